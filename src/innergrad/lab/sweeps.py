"""Many runs: a grid of changes to one experiment, trained one after another or, where the shapes agree, stacked.

    grid(experiment, ["train.optimiser.lr=1e-3,3e-4", "seed=0,1,2"])     6 experiments, with names that tell them apart
    sweep(experiments, folder, stack=True)                               6 rows, one a model

A sweep that was stopped goes on where it was: runs with a checkpoint are resumed, finished ones are only read.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from innergrad.config import change, parse, read
from innergrad.errors import InputError, JobError
from innergrad.files import make_folder, read_text, require_plain, write_whole
from innergrad.lab.checkpoints import newest
from innergrad.lab.devices import pick_device
from innergrad.lab.evaluation import COMMA
from innergrad.lab.experiments import Experiment
from innergrad.lab.journal import CONFIG, LOG, SWEEP, Progress, read_log
from innergrad.lab.training import check_folder, check_stack, train

MOST_RUNS = 10_000  # of a grid
ODD = re.compile(r"[^A-Za-z0-9.+=_-]+")  # characters that names of folders do without

Bar = Callable[[int, str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Row:
    """A model: its experiment, the folder of its run, its number in the stack, and where training ended; or the
    failure.
    """

    name: str
    seed: int
    changes: tuple[str, ...]
    run: str
    model: int
    step: int
    loss: float | None
    error: str = ""


@dataclass(frozen=True)
class Experiments:
    """A configuration file that is a stack."""

    experiments: tuple[Experiment, ...]

    def __post_init__(self) -> None:
        if not self.experiments:
            raise InputError("there are no experiments", allowed="one [[experiments]] or more")


def read_experiments(path: str | Path, sets: Sequence[str] = (), seed: int | None = None) -> list[Experiment]:
    r"""The experiments of a configuration file or of a run's folder, changed by ``sets``.

    Args:
        path: the file or folder.
        sets: changes. "train.steps=100" is for all of a stack; "experiments.1.train.steps=100" then changes the second.
        seed: the lowest seed becomes this one. The others keep their distance.

    Examples:
        >>> from pathlib import Path
        >>> from innergrad import lab
        >>> _ = Path("mine.toml").write_text('n_points = 11\n[task]\nkind = "linear"\nd = 5\n')
        >>> [experiment] = lab.read_experiments("mine.toml", sets=["train.steps=100"])
        >>> experiment.task.d, experiment.train.steps
        (5, 100)
    """
    path = Path(path) / CONFIG if Path(path).is_dir() else Path(path)
    table, source = read(path), str(path)
    if "experiments" in table:
        found = parse(Experiments, table, source=source).experiments
    else:
        found = (parse(Experiment, table, source=source),)
    of_one = [item for item in sets if item.startswith("experiments.")]
    of_all = [item for item in sets if item not in of_one]
    found = change(Experiments(tuple(change(one, of_all) for one in found)), of_one).experiments
    if seed is not None:
        lowest = min(one.seed for one in found)
        found = tuple(replace(one, seed=seed + one.seed - lowest) for one in found)
    nameless = [replace(one, name="-") for one in found]
    if sets and any(one in nameless[:number] for number, one in enumerate(nameless)):
        hint = "change one of them (--set experiments.1.seed=1), or all seeds (--seed)"
        raise InputError("two experiments of the stack are the same", got=" ".join(sets), hint=hint)
    return list(found)


def grid(base: Experiment, axes: Iterable[str]) -> list[tuple[Experiment, tuple[str, ...]]]:
    """An experiment for every combination of values, each with the changes that make it.

    Args:
        base: is changed.
        axes: keys and values: "seed=0,1,2".

    Examples:
        >>> from innergrad import lab
        >>> made = lab.grid(lab.Experiment(), ["seed=0,1", "task.d=5,10"])
        >>> len(made), made[0][1]
        (4, ('seed=0', 'task.d=5'))
    """
    choices: dict[str, list[str]] = {}
    for axis in axes:
        key, equals, text = axis.partition("=")
        key, values = key.strip(), [value.strip() for value in COMMA.split(text)]
        if not equals or not text.strip():
            raise InputError("an axis of a grid is key=value,value,...", got=repr(axis), allowed="e.g. seed=0,1,2")
        if key in choices:
            hint = f"values of one key stand together: --grid {key}={','.join(choices[key] + values)}"
            raise InputError(f"a grid has the key {key} twice", hint=hint)
        choices[key] = values
    count = math.prod(map(len, choices.values()))
    if count > MOST_RUNS:
        raise InputError("a grid has too many combinations", got=f"{count:,}", allowed=f"at most {MOST_RUNS:,}")
    made = []
    for chosen in itertools.product(*choices.values()):
        pairs = list(zip(choices, chosen, strict=True))
        changes = tuple(f"{key}={value}" for key, value in pairs)
        short = [ODD.sub("_", f"{key.rpartition('.')[2]}={value}") for key, value in pairs]
        experiment = change(base, changes, what="--grid")
        made.append((replace(experiment, name="-".join([base.name, *short])), changes))
    names = [experiment.name for experiment, _ in made]
    if len(set(names)) < len(names):
        raise InputError("a grid has a combination twice", got=next(name for name in names if names.count(name) > 1))
    return made


def groups(experiments: Sequence[Experiment]) -> list[list[int]]:
    """Numbers of the experiments that can be trained as one stack, in the order of their first members."""
    found: list[list[int]] = []
    for number, experiment in enumerate(experiments):
        for group in found:
            try:
                check_stack([experiments[group[0]], experiment])
            except InputError:
                continue
            group.append(number)
            break
        else:
            found.append([number])
    return found


def sweep(
    made: Sequence[tuple[Experiment, tuple[str, ...]]],
    folder: str | Path,
    *,
    stack: bool = False,
    device: torch.device | str | None = "cpu",
    progress: Bar | None = None,
) -> list[Row]:
    """Train the experiments of a ``grid``, each in a folder below ``folder``. sweep.json there has a row for each.

    A run that fails is a row with an ``error``, and the others go on. Nothing is trained if one of the folders is
    another run's. Rows of other grids in the same folder stay.

    Args:
        made: from ``grid``.
        folder: of the sweep.
        stack: train experiments of one shape side by side.
        device: None for the GPU if there is one.
        progress: shows how far it is.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> base = lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short)
        >>> rows = lab.sweep(lab.grid(base, ["seed=0,1"]), "sweep", stack=True)
        >>> len(rows)
        2
    """
    folder, experiments = Path(folder), [experiment for experiment, _ in made]
    device = pick_device(device)
    if (folder / CONFIG).exists() or newest(folder) is not None:
        raise InputError(f"{folder} is the folder of a run", hint="choose another for the sweep")
    make_folder(folder, "the run")
    require_plain(folder, [SWEEP])
    rows: dict[int, Row] = {}
    others = read_sweep(folder)
    together = groups(experiments) if stack else [[number] for number in range(len(made))]
    runs = [
        folder / (f"stack-{count}" if stack else experiments[group[0]].name) for count, group in enumerate(together)
    ]
    for run, group in zip(runs, together, strict=True):
        check_folder(run, [experiments[number] for number in group])
    for run, group in zip(runs, together, strict=True):
        step, losses, stopped, error = _one([experiments[number] for number in group], run, device, progress)
        for place, number in enumerate(group):
            one = experiments[number]
            lost = error or ("" if losses[place] is not None else "the loss is not finite; lower the learning rate")
            rows[number] = Row(one.name, one.seed, made[number][1], str(run), place, step, losses[place], lost)
        done = [vars(rows[number]) for number in sorted(rows)]
        mine = {(row["run"], row["model"]) for row in done}
        done = [row for row in others if (row["run"], row["model"]) not in mine] + done
        write_whole(folder / SWEEP, json.dumps(done, indent=1) + "\n")
        if stopped:
            break
    return [rows[number] for number in sorted(rows)]


def read_sweep(folder: str | Path) -> list[dict[str, Any]]:
    """The rows in a sweep's folder, one a model; none if nothing was trained there."""
    path = Path(folder) / SWEEP
    if not path.exists():
        return []
    try:
        rows = json.loads(read_text(path))
        found = [vars(Row(**row)) for row in rows] if isinstance(rows, list) else None
        hash(tuple((row["run"], row["model"]) for row in found or ()))
    except (OSError, ValueError, TypeError, RecursionError):
        found = None
    if found is None:
        raise InputError(f"{path} is not the file of a sweep", hint="move it away, or choose another folder")
    return found


def _one(
    experiments: list[Experiment], run: Path, device: torch.device | str, progress: Bar | None
) -> tuple[int, list[float | None], bool, str]:
    """Trains one stack, or goes on with it: the step and losses at its end, whether it was told to stop, its error."""
    with progress(experiments[0].train.steps, run.name) if progress else nullcontext() as report:
        try:
            result = train(experiments, run, device=device, resume=newest(run) is not None, progress=report)
        except Exception as error:  # a task is anybody's code
            words = str(error) if isinstance(error, JobError | InputError) else f"{type(error).__name__}: {error}"
            return *last_line(run, len(experiments)), False, words
    return *last_line(run, len(experiments)), result.asked or not result.finished, ""


def last_line(run: Path, stack: int) -> tuple[int, list[float | None]]:
    """The step and the losses, one a model, in the last line of a run's log; 0 and None before there is one."""
    log = read_log(run) if (run / LOG).exists() else []
    if not log:
        return 0, [None] * stack
    losses = log[-1].get("loss")
    if not isinstance(losses, list) or len(losses) != stack:
        raise InputError(f"the last line of {run / LOG} has no loss for each model", got=repr(losses))
    return log[-1]["step"], losses
