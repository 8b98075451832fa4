"""``innergrad train``, ``evaluate`` and ``sweep``: the lab on the command line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innergrad import figures, zoo
from innergrad.cli import flags, lab_settings, names
from innergrad.cli.flags import FOLDER, Force
from innergrad.cli.places import near_path, require_there
from innergrad.errors import InputError, JobError, counted, plural, suggestion
from innergrad.files import Writer, make_folder
from innergrad.model.folder import CONFIG as MODEL_CONFIG

if TYPE_CHECKING:
    from innergrad.lab.evaluation import Evaluation
    from innergrad.lab.journal import Progress

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. --set train.steps=1000; any number of times. In a stack it changes all "
        "experiments, --set experiments.1.seed=3 the second.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE",
        help="RUN this Python file (waves.py) or module (my.tasks) first, for tasks, inputs, learners and baselines of "
        "your own; any number of times.",
    ),
]
DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def _device(name: str | None) -> str | None:
    if name is not None and not DEVICE.fullmatch(name):
        raise InputError("unknown device", got=repr(name), allowed="cpu, cuda, cuda:0, cuda:1, ...")
    return name


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        callback=_device,
        help="cpu, cuda or cuda:1; default: the GPU if there is one, else the CPU.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def register(app: typer.Typer) -> None:
    """Adds the lab's commands."""
    for command in (train, evaluate, sweep):
        app.command()(command)


def train(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="TOML file, e.g. configs/smoke.toml; or, with --resume, the folder of a run."
        ),
    ],
    sets: Sets = None,
    imports: Imports = None,
    out: Annotated[Path | None, flags.path("--out", "Folder of the run; default out/ and its name.", FOLDER)] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the newest checkpoint, if there is one; with --set train.steps=N, to more steps.",
        ),
    ] = False,
    start: Annotated[
        Path | None,
        flags.path("--start", "Begin with the weights of this run, checkpoint or learner of the zoo.", "RUN"),
    ] = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")] = False,
    figure: Annotated[Path | None, flags.figure("Draw the loss of training, a PNG or an SVG.")] = None,
    force: Force = False,
    seed: Annotated[
        int | None,
        flags.seed(
            "Instead of the seed in the file. In a stack, the lowest seed becomes this one and the others keep their "
            "distance from it."
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pretrain a learner on a family of functions; keeps the configuration, a log and checkpoints in a folder."""
    config = configuration(config)
    if config.is_dir() and (not resume or out not in (None, config)):
        raise InputError(f"{config} is a folder", hint="a run in it is resumed by --resume, without --out")
    if start is not None:
        start = _found(start)
        require_run(start)
    writer = _figure_writer("train", figure, config, force)
    again = import_files(imports)
    if not imports:
        lab_settings.check_configuration(config / names.RUN_CONFIG if config.is_dir() else config, sets or ())
    from innergrad.lab.checkpoints import newest, step_of
    from innergrad.lab.checks import check_task, is_users_own
    from innergrad.lab.sweeps import last_line, read_experiments
    from innergrad.lab.training import train as run

    experiments = read_experiments(config, sets or (), seed)
    name = experiments[0].name if len(experiments) == 1 else config.stem
    folder = config if config.is_dir() else out or Path("out") / name
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun started; it alone speaks
    quiet = quiet or not first
    last = newest(folder) if resume else None
    going_on = last is not None
    if going_on and not quiet:
        _note_changes(folder)
    if not quiet:
        for note in dict.fromkeys(
            note for one in experiments if is_users_own(one.task) for note in check_task(one.task)
        ):
            print(f"note: {note}", file=sys.stderr)
    steps = experiments[0].train.steps
    with _bar(steps, name, quiet) as report:
        result = run(
            experiments,
            folder,
            device=device,
            resume=going_on,
            start=None if going_on else start,
            tensorboard=tensorboard,
            progress=report,
        )
    if not result.finished:
        raise JobError(f"stopped at step {result.step} of {steps}; innergrad train {folder} --resume{again} goes on")
    if not first:
        return
    if figure is not None and writer is not None:
        _draw_training(folder, figure, writer)
    _, losses = last_line(folder, len(experiments))
    if as_json:
        seconds = result.log[-1]["seconds"] if result.log else 0.0
        print(json.dumps({"run": str(folder), "step": result.step, "loss": losses, "seconds": seconds}))
    elif not quiet:
        for one, loss in zip(experiments, losses, strict=True):
            print(f"{one.name}, seed {one.seed}: loss {_number(loss)} after {plural(result.step, 'step')}")
        if last is not None and step_of(last) == steps:
            print(_finished(folder, steps, again))
        print(f"saved in {folder}; next: innergrad evaluate {folder}{again}")


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a run or of a sweep, a checkpoint, or a learner of the zoo."),
    ],
    baselines: Annotated[
        str | None,
        typer.Option(
            "--baselines",
            metavar=flags.LIST,
            help="Names with commas between, settings after colons: mean,ridge:lam=0.1,nngp,best; or none. Default: "
            "mean,best. (best: the best known for the task.)",
        ),
    ] = None,
    points: Annotated[int | None, flags.count("--points", "Points of a prompt; default: those of training.")] = None,
    prompts: Annotated[int, flags.count("--prompts", "Number of prompts.")] = 6400,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A shift of the task, e.g. --set task.inputs.mean=2; any number of times.",
        ),
    ] = None,
    shifts: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            metavar="KEY=VALUE,...",
            help="Measure all models on the trained task, and on this one; any number of times, each by itself.",
        ),
    ] = None,
    over_seeds: Annotated[
        bool, typer.Option("--over-seeds", help="One result for models that differ in the seed alone, as for a sweep.")
    ] = False,
    imports: Imports = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="N", help="Number of the model in a run that is a stack, or all; default 0."),
    ] = None,
    batch: Annotated[int, flags.count("--batch", "Prompts the learner gets at a time.")] = 256,
    device: Device = None,
    out: Annotated[
        Path | None,
        flags.path("--out", "Write the curves as JSON to this file; folders that are missing are made."),
    ] = None,
    figure: Annotated[Path | None, flags.figure("Draw the curves, a PNG or an SVG.")] = None,
    force: Force = False,
    seed: Annotated[int, flags.seed("Seed of the prompts.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a trained learner at every prompt length, beside baselines, on the task it was trained on or shifted.

    Squared errors are divided by the mean square of the trained task's labels; intervals are 95 %, over prompts.
    """
    run = _found(run)
    require_run(run)
    sweep = (run / names.SWEEP).is_file() and not (run / names.RUN_CONFIG).is_file()
    many = sweep or bool(shifts) or over_seeds
    everyone = model == "all"
    number = counted(model or "0")
    if many and (model is not None or (sets and shifts)):
        what = "a sweep, --shift and --over-seeds measure all models, each shift by itself"
        raise InputError(what, got="--model" if model is not None else "--set", hint="leave it out")
    if not everyone and number is None:
        raise InputError("--model is the number of a model", got=repr(model), allowed="0, 1, ... or all")
    split = None if baselines is None else lab_settings.COMMA.split(baselines)
    named = None if split is None else [name for name in split if name.strip() not in ("", "none")]
    if split is not None and not named and not any(name.strip() == "none" for name in split):
        raise InputError("--baselines are names", got=repr(baselines), allowed="e.g. mean,ridge:lam=0.1; or none")
    import_files(imports)
    if not imports:
        lab_settings.check_baselines(named or ())
        lab_settings.check_shifts(run / names.RUN_CONFIG, sets or ())
        for shift in shifts or ():
            lab_settings.check_shifts(run / names.RUN_CONFIG, lab_settings.COMMA.split(shift))
    picture = _figure_writer("evaluate", figure, run, force)
    from innergrad.lab.evaluation import check_out, evaluate_all, evaluate_run
    from innergrad.lab.many import drawn, evaluate_many

    if not quiet:
        with suppress(InputError):  # a damaged manifest is of no use here, and not needed
            _note_changes(run)
    writer = None if out is None else check_out(out, run, force)  # now, and not after an hour
    with _status(quiet or as_json) as progress:
        settings: dict[str, Any] = {
            "baselines": named,
            "n_prompts": prompts,
            "n_points": points,
            "seed": seed,
            "batch": batch,
            "device": device,
            "progress": progress,
        }
        if many:
            found = evaluate_many(run, shifts=[*([",".join(sets)] if sets else []), *(shifts or ())], **settings)
        elif everyone:
            found = evaluate_all(run, shifts=sets or (), **settings)
        else:
            found = [evaluate_run(run, model=number or 0, shifts=sets or (), **settings)]
    result: Any = [one.to_json() for one in found] if everyone or many else found[0].to_json()
    if figure is not None and picture is not None:
        mark, path = picture.mark, figure
        drawn(found, lambda made: figures.save(made, path, mark=mark))
        if not (quiet or as_json):
            print(f"curves drawn in {figure}", file=sys.stderr)
    if out is not None and writer is not None:
        writer.json(out, result)
        if not (quiet or as_json):
            print(f"curves written to {out}", file=sys.stderr)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        _print_evaluations(found)


def sweep(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file, e.g. configs/smoke.toml")],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=A,B",
            help="Values of a setting: --grid train.optimiser.lr=1e-3,3e-4 --grid seed=0,1,2",
        ),
    ] = None,
    stack: Annotated[
        bool,
        typer.Option("--stack", help="Train runs of one shape together, as one stack: faster on a GPU."),
    ] = False,
    sets: Sets = None,
    imports: Imports = None,
    out: Annotated[
        Path | None, flags.path("--out", "Folder of the runs; default out/, the name, and -sweep.", FOLDER)
    ] = None,
    figure: Annotated[Path | None, flags.figure("Draw the losses of all runs, a PNG or an SVG.")] = None,
    force: Force = False,
    device: Device = None,
    seed: Annotated[int | None, flags.seed("Instead of the seed in the file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every combination of a grid of settings. The same command again goes on with a sweep that was stopped."""
    config = configuration(config)
    writer = _figure_writer("sweep", figure, config, force)
    again = import_files(imports)
    if not imports:
        where = config / names.RUN_CONFIG if config.is_dir() else config
        lab_settings.check_configuration(where, sets or (), grid or ())
    from innergrad.lab import sweeps

    experiments = sweeps.read_experiments(config, sets or (), seed)
    if len(experiments) != 1:
        raise InputError("a sweep starts from one experiment", got=f"{len(experiments)} in {config}")
    if seed is not None and any(axis.split("=")[0].strip() == "seed" for axis in grid or ()):
        raise InputError("--seed and --grid seed= ask for two things", hint="leave one of them out")
    made = sweeps.grid(experiments[0], grid or ())
    folder = out or Path("out") / f"{experiments[0].name}-sweep"
    rows = sweeps.sweep(
        made,
        folder,
        stack=stack,
        device=device,
        progress=lambda steps, name: _bar(steps, name, quiet),
    )
    if figure is not None and writer is not None and any(row.loss is not None for row in rows):
        from innergrad.lab.sweep_pictures import drawn_sweep

        mark, path = writer.mark, figure
        drawn_sweep(folder, lambda made: figures.save(made, path, mark=mark))
    if as_json:
        print(json.dumps({"folder": str(folder), "runs": [vars(row) for row in rows]}))
    elif not quiet:
        cells = [["run", "model", "changes", "loss"]]
        cells += [[Path(row.run).name, str(row.model), " ".join(row.changes), _number(row.loss)] for row in rows]
        _print_table(cells)
        good = next((row for row in rows if not row.error), None)
        hint = f"; next: innergrad evaluate {folder}{again}" if good else ""
        print(f"saved in {folder}{hint}")
    failed = [row for row in rows if row.error]
    if failed:
        raise JobError(f"{len(failed)} of {len(made)} models failed; {failed[0].name}: {failed[0].error}")
    if len(rows) < len(made) or any(row.step < one.train.steps for row, (one, _) in zip(rows, made, strict=True)):
        raise JobError("the sweep was stopped; the same command goes on")


# ------------------------------------------------------------------------------------------------------------- helpers


OLD_NAMES = {"000": "", "001": "deep_optimizers_", "003": "cheng_", "004": "akyurek_"}  # how configurations began


def configuration(path: Path) -> Path:
    """A configuration file, or the folder of a run; also by a name that a configuration once had."""
    if path.is_dir():
        if not (path / names.RUN_CONFIG).is_file():
            raise _no_run(path)
        return path
    start, _, rest = path.name.partition("_")
    if not path.exists() and start in OLD_NAMES and path.with_name(OLD_NAMES[start] + rest).is_file():
        return path.with_name(OLD_NAMES[start] + rest)
    shipped = Path("configs") / path.with_suffix(".toml").name
    near = near_path(path) or near_path(shipped) or (f"did you mean {shipped}?" if shipped.is_file() else "")
    require_there(path, "the configuration ", near or "name a TOML file, e.g. one of configs/ in the checkout")
    return path


def require_run(path: Path) -> None:
    """An error if there is nothing, or a compiled model, where a trained one should be."""
    require_there(path, "the checkpoint ", "train one: innergrad train configs/smoke.toml")
    if path.is_dir() and (path / MODEL_CONFIG).is_file() and not (path / names.RUN_CONFIG).is_file():
        raise _no_run(path)


def _found(path: Path) -> Path:
    """Where a run is; the name of a learner of the zoo stands for its weights."""
    if not path.exists() and len(path.parts) == 1 and not near_path(path):
        near = suggestion(path.name, zoo.names())
        if near and path.name not in zoo.names():
            raise InputError("there is no such run, and no such learner in the zoo", got=repr(path.name), hint=near)
    return zoo.place(path)


def _figure_writer(command: str, figure: Path | None, run: Path, force: bool) -> Writer | None:
    """Who writes a figure; an error now, and not after an hour, if it cannot be written or drawn."""
    if figure is None:
        return None
    if find_spec("matplotlib") is None:
        raise InputError("a figure needs matplotlib", hint="pip install 'innergrad[demo]'")
    writer = Writer(command, (run, run / names.RUN_CONFIG, run / names.RUN_LOG), force)
    writer.check(figure)
    make_folder(figure.parent)
    return writer


def _draw_training(folder: Path, figure: Path, writer: Writer) -> None:
    from innergrad.lab.journal import read_log
    from innergrad.lab.pictures import draw_log

    with figures.new(size=(6.4, 4.2)) as (made, (ax,)):
        draw_log(ax, read_log(folder))
        figures.save(made, figure, mark=writer.mark)


def _no_run(folder: Path) -> InputError:
    """The folder of something else."""
    if (folder / MODEL_CONFIG).is_file():
        hint = f"it is not trained any further: innergrad run {folder} --data FILE lets it learn from a table"
        return InputError(f"{folder} is a compiled model, not a run of the lab", got=MODEL_CONFIG, hint=hint)
    hint = near_path(folder) or "innergrad train configs/smoke.toml begins a run"
    return InputError(f"there is no run in {folder}", got=f"no {names.RUN_CONFIG}", hint=hint)


def import_files(given: Sequence[str] | None) -> str:
    """Runs the user's files, and returns the flags that the next command will need, too."""
    from innergrad.manifest import import_code

    with redirect_stdout(sys.stderr):  # what they print is no part of --json
        for name in given or ():
            import_code(name)
    return "".join(f" --import {name}" for name in given or ())


def _finished(folder: Path, steps: int, again: str) -> str:
    """Nothing was left to train; what to do for more."""
    more = f"innergrad train {folder} --resume --set train.steps={2 * steps}{again}"
    return (
        f"this run was finished before, after {plural(steps, 'step')}: nothing was left to train. To train it longer: "
        f"{more}"
    )


def _note_changes(folder: Path) -> None:
    """Says so if what was imported is not what it was when the run began."""
    from innergrad.lab.journal import read_manifest
    from innergrad.manifest import IMPORTED

    began = read_manifest(folder).get("imports", {})
    for name, digest in IMPORTED.items():
        if isinstance(began, dict) and began.get(name, digest) != digest:
            print(f"note: {name} has changed since this run began", file=sys.stderr)


def _bar(steps: int, name: str, silent: bool) -> AbstractContextManager[Progress]:
    from innergrad.lab.journal import progress

    return progress(steps, name, quiet=silent)


@contextmanager
def _status(silent: bool) -> Iterator[Any]:
    """A spinner on a terminal that says what is measured."""
    if silent or not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console

    with Console(stderr=True).status("loading ...") as status:
        yield lambda what: status.update(f"measuring {what} ...")


def _print_evaluations(found: list[Evaluation]) -> None:
    """One model with its baselines; or all of a stack, their baselines below the first that has the task."""
    from innergrad.lab.evaluation import MEASURES

    for one in found:
        shift = f", shifted: {' '.join(one.shifts)}" if one.shifts else ""
        size = (
            f"{plural(one.n_prompts, 'prompt')} of {one.n_points} points, seed {one.seed}; scale^2 = {one.scale**2:.4g}"
        )
        print(one.measured)
        print(f"task {one.task['kind']}{shift}; {size}")
    over = "seeds (of learners) or prompts" if any(one.seeds[1:] for one in found) else "prompts"
    print(
        "k: examples seen before the query; squared errors are divided by the mean square of a label (scale^2); "
        f"±: half the 95 % interval, over {over}"
    )
    for measure in MEASURES:
        print()
        rows = found[0].table(measure)[:1]
        for one in found:
            for name, *cells in one.table(measure)[1:]:
                rows.append([_row_name(one, name, found), *cells])
        _print_table(rows)
    for note in dict.fromkeys(note for one in found for note in one.remarks()):
        print(f"note: {note}")


def _row_name(one: Evaluation, name: str, found: list[Evaluation]) -> str:
    """Whose a line is, where there are several."""
    from innergrad.lab.evaluation import MODEL

    if name == MODEL and one.seeds:
        name = one.name
    elif name == MODEL and found[1:]:
        name = f"{MODEL} {one.model}"
    return (
        f"{name}, {' '.join(one.shifts)}" if one.shifts and any(other.shifts != one.shifts for other in found) else name
    )


def _print_table(rows: list[list[str]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
