"""Measuring many learners at once: those of a sweep, on the task of training and on shifted ones, over seeds.

    evaluate_many("out/rates", shifts=["task.inputs.mean=2", "task.noise=0.5"])     one for each group and shift

Learners that differ in their seed alone are a group. Its curve is the mean over seeds, its interval Student's t over
seeds. Baselines see the same prompts as the learners; they are measured once for every task and shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.errors import InputError, plural
from innergrad.lab import checkpoints, metrics
from innergrad.lab.evaluation import COMMA, MEASURES, MODEL, Evaluation, evaluate_run
from innergrad.lab.journal import SWEEP
from innergrad.lab.pictures import plot_groups
from innergrad.lab.sweeps import read_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = dict[str, Any]


@dataclass(frozen=True)
class Member:
    """A trained model: where it is, its configuration as a table, its steps, and what tells it from others of its
    sweep.
    """

    run: Path
    model: int
    table: Table
    step: int
    changes: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        return int(self.table.get("seed", 0))

    @property
    def key(self) -> str:
        """Its steps, and all of its configuration but the seed, and the name, which follows from it."""
        return repr((self.step, {name: value for name, value in self.table.items() if name not in ("seed", "name")}))

    @property
    def name(self) -> str:
        """What tells its group from others: of a file, also the step."""
        return f"{self.settings}, step {self.step:,}" if self.run.is_file() else self.settings

    @property
    def settings(self) -> str:
        """The changes of the sweep without the seed; of a run by itself, its name."""
        changes = [change for change in self.changes if not change.startswith("seed=")]
        name = str(self.table.get("name", self.run.name))
        return " ".join(changes) or name.removesuffix(f"-seed={self.seed}")  # of a sweep over seeds alone


def evaluate_many(
    runs: str | Path | Sequence[str | Path],
    *,
    shifts: Sequence[str | Sequence[str]] = (),
    progress: Callable[[str], None] = lambda what: None,
    **settings: Any,
) -> list[Evaluation]:
    """Measure all learners of a sweep, a stack or several runs, on the trained task and on every shift, over seeds.

    Learners that differ in the seed alone, after as many steps, are one result. It has the mean of their curves, and an
    interval over seeds. Results come shift by shift, the task of training first.

    Args:
        runs: the folder of a sweep, or of a run; or several runs or checkpoints, such as ``snapshots`` lists.
        shifts: each is measured by itself: changes of the task, in a list or with commas between.
        progress: is told what is measured next.
        **settings: as in ``evaluate_run``.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> base = lab.Experiment(
        ...     n_points=4, task=lab.Linear(d=2), learner=shape, train=lab.TrainConfig(steps=2, batch=4)
        ... )
        >>> _ = lab.sweep(lab.grid(base, ["seed=0,1"]), "sweep", stack=True)
        >>> found = lab.evaluate_many("sweep", shifts=["task.inputs.mean=2"], n_prompts=16)
        >>> [(one.seeds, one.shifts) for one in found]
        [((0, 1), ()), ((0, 1), ('task.inputs.mean=2',))]
    """
    groups: dict[str, list[Member]] = {}
    for member in members(runs):
        groups.setdefault(member.key, []).append(member)
    found: list[Evaluation] = []
    for shift in [(), *(_changes(one) for one in shifts)]:
        measured: list[Any] = []  # tasks whose baselines are known
        for group in groups.values():
            task = group[0].table.get("task")
            how = {**settings, **({"baselines": []} if task in measured else {})}
            found.append(_over_seeds(group, shift, how, progress))
            measured.append(task)
    return found


def _over_seeds(
    group: Sequence[Member], shift: tuple[str, ...], settings: Table, progress: Callable[[str], None]
) -> Evaluation:
    """One result for learners that differ in their seed."""
    parts = []
    for number, member in enumerate(group):
        words = f"{member.name}, seed {member.seed}" + (f", {' '.join(shift)}" if shift else "")

        def say(what: str, words: str = words) -> None:
            progress(f"{words}: {what}")

        how = {**settings, **({"baselines": []} if number else {})}
        parts.append(evaluate_run(member.run, model=member.model, shifts=shift, progress=say, **how))
    curves = {measure: metrics.over_seeds([part.curves[MODEL][measure] for part in parts]) for measure in MEASURES}
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    if parts[1:]:
        notes.append(f"the learner's intervals are over {plural(len(parts), 'seed')}, those of others over prompts")
    steps = sorted({part.step for part in parts})
    after = " to ".join(f"{step:,}" for step in dict.fromkeys((steps[0], steps[-1])))
    seeds = tuple(member.seed for member in group)
    name = f"{group[0].settings}, {'seeds' if seeds[1:] else 'seed'} {', '.join(map(str, seeds))}, after {after} steps"
    return replace(
        parts[0],
        curves={**parts[0].curves, MODEL: curves},
        notes=tuple(notes),
        measured=name,
        name=group[0].name,
        seeds=seeds,
    )


def members(runs: str | Path | Sequence[str | Path]) -> list[Member]:
    """All trained models of a sweep, of a run, or of several; in a sweep, those that did not fail."""
    if not isinstance(runs, str | Path):
        found = [member for run in runs for member in members(run)]
        if not found:
            raise InputError("there is no run to measure", allowed="one or more")
        return found
    folder = Path(runs)
    if not is_sweep(folder):
        checkpoint = checkpoints.load(folder)
        tables = checkpoint.meta.get("experiments", [])
        return [Member(folder, number, table, checkpoint.step) for number, table in enumerate(tables)]
    rows = [row for row in read_sweep(folder) if not row["error"]]
    places = [(_place(folder, row["run"]), row) for row in rows]
    known = {run: checkpoints.load(run) for run in dict.fromkeys(run for run, _ in places)}
    if not places:
        raise InputError(f"no run of the sweep {folder} came to its end", hint="the same innergrad sweep goes on")
    try:
        return [
            Member(run, row["model"], known[run].meta["experiments"][row["model"]], known[run].step, (*row["changes"],))
            for run, row in places
        ]
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{folder / SWEEP} does not fit its runs", hint="the same innergrad sweep again") from error


def is_sweep(folder: Path) -> bool:
    return checkpoints.newest(folder) is None and (folder / SWEEP).is_file()


def _place(folder: Path, run: str) -> Path:
    """Where a run of a sweep is: below the folder, wherever that was moved to."""
    return folder / Path(run).name


def _changes(shift: str | Sequence[str]) -> tuple[str, ...]:
    found = COMMA.split(shift) if isinstance(shift, str) else shift
    return tuple(change.strip() for change in found if change.strip())


def plot_evaluations(found: Sequence[Evaluation], path: str | Path | None = None, *, force: bool = False) -> Figure:
    """Several evaluations in one figure: a line for each group of learners, a column for each shift.

    Args:
        found: from ``evaluate_many`` or ``evaluate_all``, or a single one in a list.
        path: save it there, as a PNG.
        force: replace a file that no plot wrote.

    Examples:
        >>> from innergrad import lab
        >>> task = lab.Linear(d=2)
        >>> found = lab.evaluate(task.best(), task, n_prompts=16, n_points=5, baselines=[lab.baselines.Mean()])
        >>> figure = lab.plot_evaluations([found], "curves.png")
    """
    return drawn(found, None if path is None else lambda figure: figures.save_plot(figure, path, force=force))


def drawn(found: Sequence[Evaluation], save: Callable[[Figure], object] | None) -> Figure:
    """See ``plot_evaluations``. Under shifts pooled R^2 is left out: the level of a prompt makes most of it."""
    if not found:
        raise InputError("there is no evaluation to draw", allowed="one or more")
    groups = [(_label(one, found), _shift(one), one.curves) for one in found]
    several = len({shift for _, shift, _ in groups}) > 1
    return plot_groups(groups, MEASURES[::2] if several else MEASURES, MODEL, save)


def _label(one: Evaluation, found: Sequence[Evaluation]) -> str:
    """What tells a learner from the others."""
    return one.name or (f"model {one.model}" if len({other.model for other in found}) > 1 else "the learner")


def _shift(one: Evaluation) -> str:
    return "\n".join(one.shifts) or f"task {one.task['kind']}, as in training"
