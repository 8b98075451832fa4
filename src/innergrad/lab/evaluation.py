"""Measuring a learner: errors at every prompt length, beside baselines, on the task it was trained on or a shifted one.

    squared error / scale^2      pooled R^2      within-prompt R^2          (see innergrad.lab.metrics)

All predictors see the same prompts, drawn from a generator that training never uses. The task is the object in the
checkpoint, with all its settings; a shift ("task.inputs.mean=2") changes that object and is named in the result.
Learner and scale stay: a shifted task is measured in units of the trained one. Of labels that are vectors, errors are
means over their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from innergrad.config import change, parse, to_table
from innergrad.errors import InputError, integer, seed_number, within_limits
from innergrad.files import Writer, make_folder
from innergrad.lab import checkpoints, metrics
from innergrad.lab.baselines import Mean, Predictor
from innergrad.lab.checks import check_predictor, check_task, is_users_own
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.devices import pick_device
from innergrad.lab.experiments import Experiment
from innergrad.lab.journal import CONFIG, LOG, MANIFEST, SWEEP
from innergrad.lab.labels import shape_of_label, words_for_label
from innergrad.lab.learners.base import Learner, predictor_of
from innergrad.lab.metrics import Curve
from innergrad.lab.pictures import plot_curves
from innergrad.lab.room import check_evaluation
from innergrad.lab.tasks import Task
from innergrad.lab.training import load_learner, origin_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Predict = Callable[[Tensor, Tensor], Tensor]
MODEL = "model"
COMMA = re.compile(r",(?![^\[{]*[\]}])")  # not inside brackets
MEASURES = ("squared error", "pooled R^2", "within-prompt R^2")


@dataclass(frozen=True)
class Evaluation:
    """Curves of a learner and of baselines. ``curves[predictor][measure]`` is a ``metrics.Curve``.

    Attributes:
        task: what it was measured on, as a table.
        shifts: how that differs from the trained task.
        scale: what errors are divided by.
        n_prompts: how many prompts.
        n_points: points of each.
        seed: of the prompts.
        curves: by predictor and measure. The predictor ``model`` is the learner.
        notes: what a reader should know.
        measured: which model of which run, after how many steps; ``run``, ``model`` and ``step`` say so one by one.
        run: the folder.
        model: its number in the stack.
        step: steps taken.
        name: of learners that were measured together, which differ in the seed alone (``evaluate_many``).
        seeds: theirs. The curves of ``model`` are then means over them, and the intervals are over seeds.

    Examples:
        >>> from innergrad import lab
        >>> task = lab.Linear(d=2)
        >>> found = lab.evaluate(task.best(), task, n_prompts=16, n_points=5, baselines=[lab.baselines.Mean()])
        >>> list(found.curves), found.table()[0]
        (['model', 'mean'], ['squared error', 'k=1', 'k=2', 'k=3', 'k=4'])
    """

    task: dict[str, Any]
    shifts: tuple[str, ...]
    scale: float
    n_prompts: int
    n_points: int
    seed: int
    curves: dict[str, dict[str, Curve]]
    notes: tuple[str, ...] = ()
    measured: str = ""
    run: str = ""
    model: int = 0
    step: int = 0
    name: str = ""
    seeds: tuple[int, ...] = ()

    def remarks(self) -> list[str]:
        """The notes, and where curves are not defined."""
        found = {curve.undefined for curves in self.curves.values() for curve in curves.values() if curve.undefined}
        return [*self.notes, *sorted(found)]

    def to_json(self) -> dict[str, Any]:
        curves = {
            name: {measure: {"rows": curve.rows(), "undefined": curve.undefined} for measure, curve in found.items()}
            for name, found in self.curves.items()
        }
        lists = {"shifts": list(self.shifts), "seeds": list(self.seeds)}
        return {**vars(self), **lists, "notes": self.remarks(), "curves": curves}

    def save(self, path: str | Path) -> Path:
        check_out(Path(path)).json(Path(path), self.to_json())
        return Path(path)

    def plot(self, path: str | Path | None = None, *, measure: str = MEASURES[0], force: bool = False) -> Figure:
        """A measure by the number of examples, with intervals, beside the baselines; with a path, saved as a PNG."""
        if measure not in MEASURES:
            raise InputError("unknown measure", got=repr(measure), allowed=", ".join(MEASURES))
        shown = {name: found[measure] for name, found in self.curves.items()}
        shift = f", shifted: {' '.join(self.shifts)}" if self.shifts else ""
        return plot_curves(shown, measure, MODEL, f"Task {self.task['kind']}{shift}", path, force)

    def telling(self) -> list[int]:
        """About five lengths that show the curves. Those at which all prompts have one label show nothing."""
        curves = [found[MEASURES[1]].rows() for found in self.curves.values()]
        known = [k for k, rows in enumerate(zip(*curves, strict=True)) if any(row["value"] is not None for row in rows)]
        places = lengths(len(known)) if 1 < len(known) < self.n_points else []
        return [known[place] for place in places] or lengths(self.n_points)

    def table(self, measure: str = MEASURES[0], ks: Sequence[int] = ()) -> list[list[str]]:
        """Rows of text, the first the header: a predictor's values at some lengths, each with half its interval."""
        ks = [k for k in ks if k < self.n_points] or self.telling()
        rows = [[measure, *(f"k={k}" for k in ks)]]
        for name, found in self.curves.items():
            cells = [found[measure].at(k) for k in ks]
            rows.append([name, *(f"{v:.3g} ±{(high - low) / 2:.1g}" if v == v else "-" for v, low, high in cells)])
        return rows


def check_out(path: Path, run: Path | None = None, force: bool = False) -> Writer:
    """The writer of a result at this place; makes its folder. An error if the file is there and is not an earlier
    result, or is one of the run that is evaluated.
    """
    make_folder(path.parent, "the result")
    own = [] if run is None else [run, run / CONFIG, run / MANIFEST, run / LOG, *checkpoints.every(run)]
    writer = Writer("evaluate", (*own,), force)
    writer.check(path, stream=True)
    return writer


def lengths(n_points: int) -> list[int]:
    """About five lengths that show a curve of ``n_points`` points."""
    return sorted({round((n_points - 1) * i / 5) for i in range(1, 6)})


def evaluate(
    predict: Predict | Learner,
    task: Task,
    *,
    n_prompts: int = 6400,
    n_points: int = 76,
    seed: int = 0,
    batch: int = 256,
    baselines: Iterable[Predictor] = (),
    scale: float | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[str], None] = lambda what: None,
) -> Evaluation:
    """Measure a predictor, and baselines beside it, on prompts of a task.

    Args:
        predict: a learner; or a function, whose predict(x, y) gives every label from the pairs before it:
            (B, n, d), (B, n) -> (B, n); or (B, n, k) -> (B, n, k), where labels are vectors.
        task: the task.
        n_prompts: how many prompts.
        n_points: points of each.
        seed: of the prompts. Training never draws them.
        batch: prompts that ``predict`` gets at a time. Baselines get all at once: some of them choose by all prompts.
        baselines: predictors to compare with.
        scale: what errors are divided by. By default the task's own.
        device: where to run.
        progress: is told what is measured next.

    Examples:
        >>> from innergrad import lab
        >>> task = lab.Linear(d=2)
        >>> found = lab.evaluate(task.best(), task, n_prompts=16, n_points=5)
        >>> error, low, high = found.curves["model"]["squared error"].at(4)
        >>> error < 1e-6  # two points determine a line of two inputs
        True
    """
    integer("prompts", n_prompts, low=2)
    integer("points", n_points, low=2)
    integer("batch", batch)
    scale = task.scale if scale is None else scale
    x, y = prompts(task, n_prompts, n_points, seed, batch, device)
    asked = predictor_of(predict)
    predictors: dict[str, Predict] = {MODEL: lambda x, y: _in_batches(asked, x, y, batch)}
    for baseline in dict.fromkeys(baselines):
        label = baseline.name
        if label in predictors:  # another setting of the same kind: said in full
            settings = to_table(baseline)
            label = ":".join([settings.pop("kind"), *(f"{key}={value}" for key, value in settings.items())])
        predictors[label] = baseline
    curves = {}
    for name, predictor in predictors.items():
        progress(name)
        curves[name] = measured(_predictions(name, predictor, x, y), y, scale)
    return Evaluation(to_table(task), (), scale, n_prompts, n_points, seed, curves)


def _predictions(name: str, predictor: Predict, x: Tensor, y: Tensor) -> Tensor:
    """The predictions, if they have the right form; the predictor may be anybody's code."""
    found: object = predictor(x, y)
    if not isinstance(found, Tensor) or found.shape != y.shape:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        words = words_for_label(y.shape[2] if y.ndim == 3 else 1)
        raise InputError(f"{name} must return predictions {words}", got=got, allowed=f"a tensor {tuple(y.shape)}")
    return found


def prompts(
    task: Task, n_prompts: int, n_points: int, seed: int, batch: int, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """x (B, n, d) and y (B, n, ...), drawn in batches: the parameters of thousands of networks would fill memory."""
    rng = CounterRNG.of(seed_number(seed), "evaluate", device)
    parts = [task.sample(rng, index, n_points)[:2] for index in torch.arange(n_prompts, device=device).split(batch)]
    x, y = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(y)


def measured(p: Tensor, y: Tensor, scale: float) -> dict[str, Curve]:
    """Every measure of predictions p of the labels y, both (B, n) or (B, n, k)."""
    curves = (metrics.squared_error(p, y, scale), metrics.pooled_r2(p, y), metrics.within_prompt_r2(p, y))
    return dict(zip(MEASURES, curves, strict=True))


@within_limits("evaluating")
def evaluate_run(
    run: str | Path,
    *,
    model: int = 0,
    shifts: Sequence[str] = (),
    baselines: Sequence[str | Predictor] | str | None = None,
    n_prompts: int = 6400,
    n_points: int | None = None,
    seed: int = 0,
    batch: int = 256,
    device: torch.device | str | None = "cpu",
    progress: Callable[[str], None] = lambda what: None,
) -> Evaluation:
    """Measure a trained model on its own task, or on that task changed by ``shifts``.

    Args:
        run: the folder of a run, or a checkpoint.
        model: its number in the stack.
        shifts: changes of the task, such as "task.inputs.mean=2".
        baselines: predictors, or their names, in a list or with commas between. By default the mean, and the best known
            for the task.
        n_prompts: how many prompts.
        n_points: points of each. By default as in training.
        seed: of the prompts.
        batch: prompts at a time.
        device: None for the GPU if there is one.
        progress: is told what is measured next.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> _ = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short), "run")
        >>> found = lab.evaluate_run("run", n_prompts=16, shifts=["task.inputs.mean=2"])
        >>> list(found.curves)
        ['model', 'mean', 'least squares']
    """
    _refuse_sweep(Path(run))
    device = pick_device(device)
    learner, experiment = load_learner(run, model, device)
    checkpoint = checkpoints.load(run)
    task, step = shifted(experiment, shifts), checkpoint.step
    if isinstance(baselines, str):
        baselines = COMMA.split(baselines)
    chosen, notes = default_baselines(task) if baselines is None else ([named_baseline(b, task) for b in baselines], [])
    if is_users_own(task):
        notes.extend(check_task(task, shifted=task != experiment.task))
    for baseline in filter(is_users_own, chosen):
        check_predictor(baseline, task.d, outputs=task.outputs)
    if step < experiment.train.steps:
        notes.append(f"training is not finished: {step:,} of {experiment.train.steps:,} steps")
    notes.extend(origin_of(checkpoint).notes())
    points = integer("points", experiment.n_points if n_points is None else n_points, low=2)
    check_evaluation(experiment, task, integer("prompts", n_prompts, low=2), points, integer("batch", batch))
    found = evaluate(
        learner.predict,
        task,
        n_prompts=n_prompts,
        n_points=points,
        seed=seed,
        batch=batch,
        baselines=chosen,
        scale=experiment.task.scale,
        device=device,
        progress=progress,
    )
    trained = trained_points(experiment)
    label = shape_of_label(task.outputs)
    if learner(torch.zeros(1, 1, 2, task.d, device=device), torch.zeros(1, 1, 2, *label, device=device)).shape[2] == 1:
        notes.append(
            f"training asked for the last of {trained} points only: at other lengths the learner is on its own"
        )
    if unasked := task.unasked(points):
        notes.append(f"the first {unasked} of {points} points have no label; each of the others is answered from these")
    if points > trained:
        notes.append(f"training saw prompts of at most {trained} points: lengths from k = {trained} on are longer")
    if shifts and task.scale != experiment.task.scale:
        notes.append(f"errors are divided by the trained task's scale^2; the shifted task's is {task.scale**2:.4g}")
    name = f"{experiment.name}, seed {experiment.seed}, model {model} of {run} after {step:,} steps"
    about: dict[str, Any] = {"measured": name, "run": str(run), "model": model, "step": step}
    return replace(found, shifts=tuple(shifts), notes=tuple(notes), **about)


def evaluate_all(run: str | Path, **settings: Any) -> list[Evaluation]:
    """``evaluate_run`` of every model of a stack. Baselines are measured once for every task, with its first model.

    Args:
        run: the folder of a run.
        **settings: as in ``evaluate_run``.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> two = [lab.Experiment(seed=s, n_points=4, task=lab.Linear(d=2), learner=shape, train=short) for s in (0, 1)]
        >>> _ = lab.train(two, "run")
        >>> len(lab.evaluate_all("run", n_prompts=16))
        2
    """
    _refuse_sweep(Path(run))
    tables = [table.get("task") for table in checkpoints.load(run).meta.get("experiments", [])]
    return [
        evaluate_run(run, model=model, **{**settings, **({"baselines": []} if task in tables[:model] else {})})
        for model, task in enumerate(tables)
    ]


def shifted(experiment: Experiment, shifts: Sequence[str]) -> Task:
    """The task of the experiment with the changes applied; only the task can change, for the learner is trained."""
    for shift in shifts:
        if not shift.startswith("task."):
            raise InputError("only the task of a trained model can be changed", got=shift, allowed="task.<setting>=...")
    task = change(experiment, shifts).task
    if task.d != experiment.task.d:
        raise InputError("the learner reads points of one size", got=f"d = {task.d}", allowed=f"{experiment.task.d}")
    if task.outputs != experiment.task.outputs:
        got, allowed = f"outputs = {task.outputs}", f"{experiment.task.outputs}"
        raise InputError("the learner predicts labels of one size", got=got, allowed=allowed)
    return task


def trained_points(experiment: Experiment) -> int:
    """The longest prompts of training: a curriculum may end before ``n_points``."""
    last = torch.tensor(experiment.train.steps - 1)
    points = experiment.train.curriculum.points(last, experiment.n_points)
    return experiment.n_points if points is None else int(points)


def default_baselines(task: Task) -> tuple[list[Predictor], list[str]]:
    """The mean of the labels seen and the best that is known; or notes why the latter is left out."""
    try:
        best = task.best()
    except InputError as error:
        return [Mean()], [str(error)]
    if hasattr(best, "ks"):
        return [Mean()], [f"{best.name} is left out: it fits a model for every prompt and length (baseline: best)"]
    return list(dict.fromkeys([Mean(), best])), []


def named_baseline(text: str | Predictor, task: Task) -> Predictor:
    """A predictor from "ridge", "ridge:lam=0.1:intercept=false", or "best", the task's own."""
    if isinstance(text, Predictor):
        return text
    kind, *settings = text.strip().split(":")
    if kind == "best":
        return task.best()
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not key.strip() or not equals:
            raise InputError(f"baseline {kind}: takes key=value", got=repr(setting), allowed="e.g. ridge:lam=0.1")
    return change(parse(Predictor, {"kind": kind}, source="baselines"), settings, what=f"baseline {kind}:")


def _refuse_sweep(folder: Path) -> None:
    """An error that names the runs, if this is the folder of a sweep."""
    if checkpoints.newest(folder) is None and (folder / SWEEP).is_file():
        names = sorted(path.name for path in folder.iterdir() if checkpoints.newest(path) is not None)
        more = f" and {len(names) - 5} more" if names[5:] else ""
        allowed = f"one of its runs: {', '.join(names[:5])}{more}" if names else "a run; none of it has a checkpoint"
        hint = f"e.g. {folder / names[0]}; evaluate_many measures all" if names else ""
        raise InputError(f"{folder} is a sweep", allowed=allowed, hint=hint)


def _in_batches(predict: Predict, x: Tensor, y: Tensor, batch: int) -> Tensor:
    starts = range(0, len(x), batch)
    return torch.cat([predict(x[start : start + batch], y[start : start + batch]) for start in starts])
