"""Training: the loop, and the checks and files around it.

    Experiment(task, learner, train, n_points, seed)  --train-->  a run's folder: config, manifest, log, checkpoints

A run is a function of its experiments: data, initial weights, schedules and curricula depend on the seed and on the
number of the step alone. So a run that was killed and resumed ends like one that was not, bit for bit on the same kind
of device. Devices that share a batch see the samples that one device would.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from innergrad.config import differences, parse, to_table
from innergrad.errors import InputError, JobError, own_gradients, within_limits
from innergrad.lab import checkpoints
from innergrad.lab.checks import check_task, is_users_own
from innergrad.lab.devices import pick_device
from innergrad.lab.experiments import Experiment
from innergrad.lab.journal import SNAPSHOTS, Journal, Progress, check_new, read_log, read_measures, saved
from innergrad.lab.labels import require_one_number
from innergrad.lab.layout import Layout
from innergrad.lab.learners.base import Learner
from innergrad.lab.measures import Measures, Watch
from innergrad.lab.origins import Origin
from innergrad.lab.room import check_learner, check_training
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Task
from innergrad.lab.weights import theta_of, weights_of

MOST_SNAPSHOTS = 10**9  # none is removed
FREE = ("name", "train.log_every", "train.checkpoint_every", "train.snapshots")  # what a resumed run may change


@dataclass(frozen=True)
class Result:
    """The end of a run.

    Attributes:
        learner: the trained stack.
        experiments: what was trained.
        step: steps taken.
        finished: all steps were taken.
        log: the lines of the log.
        asked: a signal asked for an end.
        measures: what the measures gave, one row a step at which they were called.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> result = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short))
        >>> type(result.learner.model(0)).__name__
        'GPT'
    """

    learner: Learner
    experiments: tuple[Experiment, ...]
    step: int
    finished: bool
    log: tuple[dict[str, Any], ...]
    asked: bool = False
    measures: tuple[dict[str, Any], ...] = ()


@within_limits("training")
def train(
    experiments: Experiment | Sequence[Experiment],
    folder: Path | str | None = None,
    *,
    device: torch.device | str | None = "cpu",
    resume: bool = False,
    start: Learner | str | Path | None = None,
    tensorboard: bool = False,
    progress: Progress | None = None,
    measures: Measures | None = None,
) -> Result:
    """Train experiments as one stack: models of one shape, side by side.

    A run is a function of its experiments, and of the weights that it starts from. A run that was stopped and resumed
    ends where one ends that was not. Resumed with more steps, it is trained longer: from there on the learning rate is
    that of the longer run.

    Args:
        experiments: one, or several of one shape.
        folder: keep a log and checkpoints there.
        device: None for the GPU if there is one.
        resume: go on from the last checkpoint in the folder.
        start: begin with the weights of this learner, or of this run or checkpoint: one model for all, or one for each.
            By default they are drawn from the seed.
        tensorboard: also write TensorBoard's files.
        progress: is told about every line of the log.
        measures: functions of the learner by name, called at log-spaced steps. They are kept in measures.jsonl.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> result = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short), "run")
        >>> result.step, result.finished
        (2, True)
    """
    experiments = [experiments] if isinstance(experiments, Experiment) else experiments
    device = pick_device(device)
    for task in filter(is_users_own, dict.fromkeys(one.task for one in experiments)):
        check_task(task)
    with processes(device), signals() as told, own_gradients():
        return _train(experiments, folder, device, resume, start, tensorboard, progress, measures, told)


def _train(
    experiments: Sequence[Experiment],
    folder: Path | str | None,
    device: torch.device | str,
    resume: bool,
    start: Learner | str | Path | None,
    tensorboard: bool,
    progress: Progress | None,
    measures: Measures | None,
    told: list[int],
) -> Result:
    """The loop. ``told``: signals that ask for an end."""
    check_stack(experiments)
    check_training(experiments)
    stack, config = Stack(experiments, device), experiments[0].train
    first, origin = stack.rank == 0, Origin()
    if resume:
        origin = restore(stack, experiments, folder)
    elif start is not None:
        origin = begin(stack, start)
    step, began, kept = int(stack.step), time.perf_counter(), config.snapshot_steps
    log = [row for row in read_log(folder) if row["step"] <= step] if resume and folder else []
    seen = [row for row in read_measures(folder) if row["step"] <= step] if resume and folder else []
    if step == config.steps:
        if folder and first:
            saved(Path(folder))  # killed right after its last checkpoint, which was its first
        return Result(stack.learner, tuple(experiments), step, True, tuple(log), measures=tuple(seen))
    watch, journal = Watch(measures if first else {}, config.steps, seen), None
    if folder and first:
        how: dict[str, Any] = {"step": step if resume else None, "tensorboard": tensorboard}
        journal = Journal(folder, configuration(experiments), **how, about=origin.news(config.steps))
        watch.write = journal.measured
        origin = origin.planned_for(step, config.steps)
    with journal or nullcontext():  # closed in any case: its holder keeps others out of the folder
        if journal and not resume:
            keep_first(stack, experiments, journal, origin)
        asked = stack.any_device(told)
        while step < config.steps and not asked:
            n = config.curriculum.length(step, stack.n_points)
            everies = (config.log_every, config.checkpoint_every, config.curriculum.every)
            ends = (*(next_multiple(step, every) for every in everies), *(at for at in kept if at > step))
            end = min(config.steps, *ends)
            watch.run(stack, step, end, n)
            step = end
            if step % config.log_every == 0 or step == config.steps:
                log.append(row := report(stack, step, time.perf_counter() - began))
                if journal:
                    journal.write(row)
                if progress and first:
                    progress(step, f"loss {min(filter(math.isfinite, row['loss']), default=math.nan):.4g}")
                if not any(map(math.isfinite, row["loss"])):  # the other models of a stack go on
                    hint = "lower the learning rate, or look for labels that are not finite"
                    raise JobError(f"the loss is not finite at step {step}; got {row['loss']}; {hint}")
            if journal and step in kept:
                save(stack, experiments, journal.snapshots, step, origin, snapshot=True)
            asked = stack.any_device(told)
            if journal and (step % config.checkpoint_every == 0 or step == config.steps or asked):
                journal.sync()
                save(stack, experiments, journal.checkpoints, step, origin)
                saved(journal.folder)
    asked = stack.any_device(told)  # also while the last checkpoint was written
    finished, found = step == config.steps, tuple(watch.rows)
    return Result(stack.learner, tuple(experiments), step, finished, tuple(log), asked, found)


# ----------------------------------------------------------------------------------------------------------- around it


def next_multiple(step: int, every: int) -> int:
    return (step // every + 1) * every


def report(stack: Stack, step: int, seconds: float) -> dict[str, Any]:
    """A line of the log. Losses and norms are means over the steps since the last line, one a model."""
    losses, norms = stack.take_means()
    lr = (stack.lr[:, 0] * stack.rule.factor(torch.tensor(step - 1), stack.config.steps).item()).tolist()
    return {
        "step": step,
        "loss": losses,
        "grad_norm": norms,
        "lr": lr,
        "prompts": step * stack.config.batch,
        "seconds": round(seconds, 3),
    }


def check_stack(experiments: Sequence[Experiment]) -> None:
    """An error unless the experiments can be trained in one graph."""
    if not experiments:
        raise InputError("nothing to train", allowed="one experiment or more")
    first = experiments[0]
    world = dist.get_world_size() if dist.is_initialized() else 1
    if first.train.batch % world:
        raise InputError("train.batch must be a multiple of the processes", got=f"{first.train.batch} and {world}")
    if first.train.labels == "averaged":
        _check_averaged(experiments)
    for one in experiments[1:]:
        optimiser = replace(
            one.train.optimiser, lr=first.train.optimiser.lr, weight_decay=first.train.optimiser.weight_decay
        )
        like = replace(
            one,
            name=first.name,
            seed=first.seed,
            task=first.task,
            learner=one.learner.drawn_as(first.learner),
            train=replace(one.train, optimiser=optimiser),
        )
        if like != first or (one.task.d, one.task.outputs) != (first.task.d, first.task.outputs):
            sizes = "task.d" if one.task.d != first.task.d else "task.outputs"
            apart = differences(to_table(first), to_table(like)) or [sizes]
            allowed = "name, seed, task (of one d and outputs), initial weights, train.optimiser.lr and weight_decay"
            raise InputError("experiments of a stack may not differ in this", got=", ".join(apart), allowed=allowed)


def _check_averaged(experiments: Sequence[Experiment]) -> None:
    """An error unless the learner is linear in the labels, and every task knows their covariance."""
    first = experiments[0]
    learner = first.learner.build_for(first.task.d, first.n_points, outputs=first.task.outputs)
    if type(learner).label_weights is Learner.label_weights:
        allowed = "learner.kind = kernel, or a class with label_weights"
        raise InputError("labels are averaged for learners that are linear in them", got=learner, allowed=allowed)
    require_one_number("averaging over labels", outputs=first.task.outputs)
    for task in (one.task for one in experiments if type(one.task).covariance is Task.covariance):
        allowed = "task.kind = gaussian-process, or a class with covariance"
        raise InputError("labels are averaged where their covariance is known", got=task.kind, allowed=allowed)


def save(
    stack: Stack, experiments: Sequence[Experiment], folder: Path, step: int, origin: Origin, *, snapshot: bool = False
) -> None:
    """A checkpoint of all that resuming and loading need; a snapshot has the parameters only, and stays."""
    tables = [to_table(one) for one in experiments]
    meta = {"experiments": tables, "layout": stack.layout.table, **origin.meta()}
    if snapshot:
        checkpoints.save(folder, step, {"theta": stack.theta}, meta, keep=MOST_SNAPSHOTS)
    else:
        checkpoints.save(folder, step, stack.state, meta)


def keep_first(stack: Stack, experiments: Sequence[Experiment], journal: Journal, origin: Origin) -> None:
    """What a new run keeps before its first step. Weights from elsewhere are kept at once: resuming needs them."""
    if stack.config.snapshots:
        save(stack, experiments, journal.snapshots, 0, origin, snapshot=True)
    if origin.start is not None:
        save(stack, experiments, journal.checkpoints, 0, origin)
        saved(journal.folder)


def begin(stack: Stack, start: Learner | str | Path) -> Origin:
    """Puts other weights into a stack: those of one model into all, or those of as many models, one into each."""
    table, theta, about = weights_of(start)
    if len(theta) not in (1, stack.size):
        allowed = "1" if stack.size == 1 else f"1 or {stack.size}"
        raise InputError("the weights to start from are of another number of models", got=len(theta), allowed=allowed)
    ours, theirs = ({name: shape for name, (_, shape) in one.items()} for one in (stack.layout.table, table))
    apart = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    if apart or theta.shape[1] != stack.layout.width:
        name = apart[0] if apart else "theta"
        what, hint = f"the weights to start from are of another shape: {name}", "take the learner settings of that run"
        raise InputError(what, got=theirs.get(name, "absent"), allowed=str(ours.get(name, "absent")), hint=hint)
    with torch.no_grad():
        stack.theta.copy_(theta)
    digest = hashlib.sha256(theta.cpu().contiguous().numpy().tobytes()).hexdigest()
    return Origin({**about, "models": len(theta), "sha256": digest})


def restore(stack: Stack, experiments: Sequence[Experiment], folder: Path | str | None) -> Origin:
    """Puts a stack where the newest checkpoint of the folder was. The experiments must be those of the checkpoint, but
    for more steps.
    """
    if folder is None:
        raise InputError("resuming needs the folder of the run")
    found = checkpoints.load(folder)
    check_same(found, experiments)
    found.require({name: tuple(value.shape) for name, value in stack.state.items()})
    for name, value in found.tensors.items():
        stack.state[name].copy_(value)
    if int(stack.step) != found.step or found.step > stack.config.steps:
        got = f"step {int(stack.step)}, and {found.step} in the header, of {stack.config.steps}"
        raise checkpoints.Damaged(f"the checkpoint {found.path} is damaged", got=got)
    return origin_of(found)


def origin_of(found: checkpoints.Checkpoint) -> Origin:
    """Where the weights of a checkpoint come from."""
    origin = Origin.of(found.meta)
    if origin is None:
        raise checkpoints.Damaged(f"the checkpoint {found.path} is damaged", got="a header that no run writes")
    return origin


def check_folder(folder: Path, experiments: Sequence[Experiment]) -> None:
    """An error unless a run of these experiments can begin in the folder, or go on there."""
    if checkpoints.newest(folder) is None:
        check_new(folder, configuration(experiments))
    else:
        check_same(checkpoints.load(folder), experiments)


def check_same(found: checkpoints.Checkpoint, experiments: Sequence[Experiment]) -> None:
    """An error unless the checkpoint is of these experiments."""
    tables = [_with_defaults(table) for table in found.meta.get("experiments", [])]
    apart = [
        f"experiment {number}: {name} {words}"
        for number, (then, now) in enumerate(zip(tables, experiments, strict=False))
        for name, words in differences(to_table(now), then).items()
        if name not in FREE and not (name == "train.steps" and _longer(now, then))
    ]
    if len(tables) != len(experiments):
        apart = [f"{len(tables)} experiments there, {len(experiments)} here"]
    if len(apart) == 1 and ": train.steps " in apart[0]:
        allowed, hint = (
            f"more steps than {found.step:,}, which were taken",
            "leave train.steps out, or begin another run",
        )
        raise InputError("a run is not made shorter", got=apart[0].partition(": ")[2], allowed=allowed, hint=hint)
    if apart:
        hint = "resume with the configuration in the run's folder, or begin another run"
        raise InputError(f"the checkpoint {found.path.name} is of another run", got=", ".join(apart), hint=hint)


def _with_defaults(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table of an experiment; settings that came after it was written have their defaults."""
    try:
        return to_table(parse(Experiment, table))
    except InputError:  # of another program's; the differences say so
        return table


def _longer(now: Experiment, then: Mapping[str, Any]) -> bool:
    """Whether a run would only be trained longer."""
    before = then.get("train", {}).get("steps")
    return isinstance(before, int) and now.train.steps > before


@within_limits("loading the learner")
def load_learner(
    path: Path | str, model: int = 0, device: torch.device | str | None = "cpu"
) -> tuple[Learner, Experiment]:
    """A trained model and its experiment, from a checkpoint or from the folder of a run.

    Args:
        path: the checkpoint or folder.
        model: its number in the stack.
        device: None for the GPU if there is one.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=2, batch=4)
        >>> _ = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short), "run")
        >>> learner, experiment = lab.load_learner("run")
        >>> experiment.task
        Linear(d=2, ...
    """
    device = pick_device(device)
    found = checkpoints.load(path)
    tables = found.meta.get("experiments", [])
    if not 0 <= model < len(tables):
        raise InputError("no such model in the stack", got=model, allowed=f"0 to {len(tables) - 1}")
    experiment = parse(Experiment, tables[model], source=found.path.name)
    check_learner(experiment)
    task = experiment.task
    learner = experiment.learner.build_for(task.d, experiment.n_points, outputs=task.outputs)
    layout, named = Layout(learner), dict(learner.named_parameters())
    if found.meta.get("layout") != layout.table:
        raise InputError(f"{found.path.name} has other parameters than its configuration says")
    theta, wanted = theta_of(found), (len(tables), layout.width)
    if tuple(theta.shape) != wanted:
        got = tuple(theta.shape)
        raise checkpoints.Damaged(f"the checkpoint {found.path} is damaged", got=got, allowed=f"theta {wanted}")
    with torch.no_grad():
        for name, value in layout.unpack(theta[model : model + 1]).items():
            named[name].copy_(value)
        learner.scale.fill_(experiment.task.scale)
    return learner.to(device).eval(), experiment


def snapshots(run: Path | str) -> list[Path]:
    """The snapshots of a run, the first step first: weights that ``train.snapshots`` kept. ``load_learner`` takes each.

    Args:
        run: the folder of a run.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=100, batch=2, snapshots=1)
        >>> _ = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short), "run")
        >>> [path.name for path in lab.snapshots("run")]
        ['step-000000000.safetensors', 'step-000000001.safetensors', 'step-000000010.safetensors',
         'step-000000100.safetensors']
    """
    return checkpoints.every(Path(run) / SNAPSHOTS)


def configuration(experiments: Sequence[Experiment]) -> Any:
    """The content of config.toml: one experiment is its own configuration, several are a list."""
    return experiments[0] if len(experiments) == 1 else {"experiments": [to_table(one) for one in experiments]}


@contextmanager
def processes(device: torch.device | str) -> Iterator[None]:
    """Joins the processes that ``torchrun`` started, if it did: NCCL between GPUs, gloo between CPUs."""
    if not dist.is_torchelastic_launched() or dist.is_initialized():
        yield
        return
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield
        dist.barrier()  # none leaves while another still listens: gloo may abort a process whose peer is gone
    finally:
        dist.destroy_process_group()


@contextmanager
def signals() -> Iterator[list[int]]:
    """A list that SIGTERM and Ctrl-C put their numbers into: the loop then ends where it next looks, with a checkpoint.

    A second Ctrl-C ends it at once.
    """
    told: list[int] = []

    def tell(number: int, _: object) -> None:
        if number in told and number == signal.SIGINT:
            raise KeyboardInterrupt
        told.append(number)

    try:
        before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: the caller decides
        yield told
        return
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
