"""``innergrad``: demo, compile, run, verify, cost, export, report. Exit codes: 0 done, 1 failed job, 2 wrong input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from innergrad.cli import figures, fit, flags, lab, names, zoo
from innergrad.cli.flags import FOLDER, LIST, MODEL, THEOREM, Force, takes
from innergrad.cli.words import usage
from innergrad.errors import MOST_WORDS, InputError, JobError, limit_of, one_of, shortened

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Transformers that learn inside their forward pass: learning algorithms compiled into weights.",
)

Given = Mapping[str, Any]  # flags by the names of their settings; see ``flags.takes``
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, flags.seed("Seed of initial weights and random data, where there are any.")]

ConfigFile = Annotated[Path | None, flags.path("--config", "TOML file with the same settings; flags override.")]
ModelFolder = Annotated[Path | None, typer.Argument(metavar="MODEL", help="Folder written by `innergrad compile`.")]
Targets = Annotated[
    str | None,
    typer.Option(
        "--target-columns",
        "--target",
        metavar=LIST,
        help="Columns of the CSV that are to be predicted, comma-separated; default: the last.",
    ),
]
Data = Annotated[
    Path | None,
    flags.path("--data", "CSV with a header: input columns, then target columns; see examples/examples.csv."),
]
Scaled = Annotated[
    bool,
    typer.Option(
        "--scale",
        help="Standardise inputs and targets by the mean and deviation of the rows that teach; predictions are in the "
        "units of the file.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from innergrad import __version__

        print(f"innergrad {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="training, or diffusion: a score is learned, and noise becomes data.")
    ] = "training",
    out: Annotated[
        Path | None,
        flags.path("--out", "Folder for figures, tables and the model; default: out/demo, or out/diffusion.", FOLDER),
    ] = None,
    target: Annotated[
        str,
        flags.chosen(
            "--target",
            "target",
            names.DEMOS,
            "The kind of transformer. llama: no approximation; relu: ReLUs alone, as the papers have it.",
        ),
    ] = "llama",
    animate: Annotated[
        bool, typer.Option("--animate", help="Also a film, demo.gif: a curve is learned inside a forward pass.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the architecture, every law, and every step.")
    ] = False,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile gradient descent on a 3-layer network, run it on real data, compare with training, draw a figure.

    With diffusion: learn scores in forward passes, and turn noise into data; figures and a film.
    """
    if one_of("there is no such demo", what, names.SUBJECTS) == "diffusion":
        from innergrad.cli.diffusion import run_diffusion

        folder = out or Path("out/diffusion")
        run_diffusion(folder, target, verbose=verbose, force=force, seed=seed, as_json=json, quiet=quiet)
        return
    from innergrad.cli.demo import Asked, run_demo

    asked = Asked(target, animate, verbose)
    run_demo(out or Path("out/demo"), asked, force=force, seed=seed, as_json=json, quiet=quiet)


@app.command("compile")
@takes(MODEL)
def compile_(
    given: Given,
    out: Annotated[Path, flags.path("--out", "Folder for the model; a model already there is replaced.", FOLDER)],
    config: ConfigFile = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also the table of layers, the sizes, and what is known of each function."
        ),
    ] = False,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a learning algorithm into the weights of a transformer, and save it.

    A flag that the chosen algorithm does not take is an error. A settings file has the sections algorithm (with
    kind = "rls" or another), compile and, only for gradient-descent, network; its keys are the flags' names, with _
    for -.
    """
    from innergrad.cli import commands
    from innergrad.cli.settings import settings

    chosen = settings(config, given, needed=True)
    commands.compile_model(chosen, out, verbose=verbose, force=force, as_json=json, quiet=quiet)


@app.command()
def run(
    model: ModelFolder = None,
    data: Data = None,
    targets: Targets = None,
    query: Annotated[
        Path | None,
        flags.path(
            "--query",
            "CSV with the input columns to predict; default: rows without targets. If it has the target columns, too, "
            "they give a score on rows that did not teach.",
        ),
    ] = None,
    scale: Scaled = False,
    executor: Annotated[
        str, flags.chosen("--executor", "executor", names.EXECUTORS, "How it is run: auto, plain, dense or fused.")
    ] = "auto",
    dtype: Annotated[str, flags.chosen("--dtype", "dtype", names.DTYPES, "Numbers: float64 or float32.")] = "float64",
    std: Annotated[
        bool,
        typer.Option("--std", help="Also predictive standard deviations (rls; functional with kernel linear or exp)."),
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Also a proven bound for every prediction: how far it can be from the algorithm's own, in the units "
            "of the file.",
        ),
    ] = False,
    until: Annotated[
        float | None, flags.amount("--until", "Stop where the certified norm of the gradient is at most this.")
    ] = None,
    outside: Annotated[
        str,
        flags.chosen(
            "--outside",
            "value of --outside",
            names.OUTSIDE,
            "Values outside the model's domain: error, or flag (list).",
        ),
    ] = "error",
    out: Annotated[
        Path | None,
        flags.path(
            "--out",
            "Folder for predictions.csv and, where there are any, weights.csv (a row per step), online.csv.",
            FOLDER,
        ),
    ] = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from the rows of a CSV inside one forward pass, and predict the rows whose target is empty.

    Of sgd and rls, which learn from one row after the other, also what they predicted for each row before they saw its
    target.
    """
    from innergrad.cli import commands

    given = commands.Given(model, data, targets, query, scale)
    how = {"executor": executor, "until": until, "outside": outside, "seed": seed, "return_std": std}
    commands.run_model(given, dtype, out, how, certify=certify, force=force, as_json=json, quiet=quiet)


@app.command()
def verify(
    model: ModelFolder = None,
    data: Data = None,
    targets: Targets = None,
    scale: Scaled = False,
    prompts: Annotated[int, flags.count("--prompts", "Number of random prompts.")] = 4,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also say where the error comes from: bound and measured error of every step and layer, shares of the "
            "bound, and a health table; on the given data, else on a random prompt.",
        ),
    ] = False,
    figure: Annotated[Path | None, flags.figure("With --explain: draw it, a PNG or an SVG.")] = None,
    attack: Annotated[
        bool,
        typer.Option("--attack", help="Also search for the prompt and weights with the largest error, in the domain."),
    ] = False,
    out: Annotated[Path | None, flags.path("--out", "Write the report as JSON to this file.")] = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every law of the weights, on random prompts and on given data; exit code 1 if one fails, or if an error is
    above its certificate.

    On targets gpt, softmax and sigma, and of what llama fits, the sup errors of approximants are measured (law `fit`),
    not proven (law `proof`); the bounds of --explain are rigorous there, too: they rest on the errors at the arguments
    that occur.
    """
    from innergrad.cli import commands

    asked = commands.Asked(explain, figure, attack)
    given = commands.Given(model, data, targets, scale=scale)
    code = commands.verify_model(given, prompts, asked, out, force=force, seed=seed, as_json=json, quiet=quiet)
    raise typer.Exit(code)


@app.command()
@takes(MODEL, THEOREM)
def cost(
    given: Given,
    model: ModelFolder = None,
    config: ConfigFile = None,
    out: Annotated[Path | None, flags.path("--out", "Write the table as JSON to this file.")] = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Layers, heads, width, parameters, FLOPs and norm of a saved model or of given settings, beside the paper's.

    The settings are those of `innergrad compile`. Layers that repeat are shown once; --json lists them all.

    Or, with --theorem, how large a transformer must be to learn a function through a network, by the theorems of
    "Transformers Perform In-Context Learning through Neural Networks", corrected; all constants are yours.
    """
    from innergrad.cli import theorems

    if theorems.asked(given):
        places = {name: value for name, value in (("model", model), ("config", config)) if value is not None}
        theorems.cost_of_theorem({**given, **places}, out, force=force, as_json=json, quiet=quiet)
    else:
        from innergrad.cli import commands
        from innergrad.cli.settings import settings

        chosen = settings(config, given)
        commands.cost_model(model, chosen, out, config=config, force=force, as_json=json, quiet=quiet)


@app.command()
def bench(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="executor: in-context training against training in torch")
    ] = "executor",
    full: Annotated[bool, typer.Option("--full", help="The whole grid, 100 points; some minutes.")] = False,
    points: Annotated[
        str | None,
        typer.Option("--points", metavar="n,K,N", help="Instead: n,K,N of each point, e.g. '20,8,3 4096,128,4'."),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar=LIST, help="float32, float64 or both, with a comma.")
    ] = "float32",
    threads: Annotated[str, typer.Option("--threads", metavar=LIST, help="Numbers of threads, e.g. 1 or 1,2.")] = "1",
    repeats: Annotated[int, flags.count("--repeats", "Runs of each, of which the median counts.")] = 5,
    out: Annotated[Path | None, flags.path("--out", "Write the results as JSON to this file.")] = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time of a step inside the transformer divided by that of the fastest way to train in torch, in one run."""
    from innergrad.cli import benches

    del seed
    benches.run_bench(what, full, points, dtype, threads, repeats, out, force=force, as_json=json, quiet=quiet)


@app.command()
def export(
    model: ModelFolder = None,
    out: Annotated[
        Path | None,
        flags.path("--out", "hf: a folder for AutoModel.from_pretrained; onnx: a file.", "PATH"),
    ] = None,
    format: Annotated[
        str,
        flags.chosen("--format", "format", names.FORMATS, "hf (target gpt, variant pre-ln, or llama) or onnx."),
    ] = "hf",
    dtype: Annotated[
        str,
        flags.chosen(
            "--dtype", "dtype", names.DTYPES, "float32; for GPT-2, StableLM, or compiled with --double, float64."
        ),
    ] = "float32",
    family: Annotated[
        str | None,
        flags.chosen(
            "--family",
            "family of models",
            names.FAMILIES,
            "Of target llama, for hf: llama (default), mistral, qwen2, qwen3, gemma, stablelm or smollm3.",
        ),
    ] = None,
    kv_heads: Annotated[
        int | None,
        flags.count("--kv-heads", "Of target llama, for hf: heads of keys and values; default: the fewest."),
    ] = None,
    large: Annotated[bool, typer.Option("--large", help="For hf: also more than 2 GB.")] = False,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model for other software: Hugging Face's GPT-2 or Llama, which run it unmodified, or ONNX Runtime.

    All take the residual stream, and give it; innergrad.json in the hf folder says what its entries are.

    The size of a folder is said before it is written; more than 2 GB are written only with --large.
    """
    from innergrad.cli import commands

    del seed
    asked = commands.Exported(format, dtype, family, kv_heads, large)
    commands.export_model(model, out, asked, force=force, as_json=json, quiet=quiet)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Written by `innergrad compile`, `train` or `fit`.")],
    out: Annotated[Path, flags.path("--out", "The HTML file.")] = Path("out/report.html"),
    data: Data = None,
    targets: Targets = None,
    scale: Scaled = False,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Of a run: a shift of its task to measure, too, e.g. task.inputs.mean=2; any number of times.",
        ),
    ] = None,
    imports: lab.Imports = None,
    prompts: Annotated[int, flags.count("--prompts", "Of a run: number of prompts it is measured on.")] = 1024,
    device: lab.Device = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML file about a compiled model, a run of the lab or a fitted table. It has all pictures, and needs no
    network.

    Of a model: its architecture, training in context beside the algorithm itself (on --data, else on a random prompt of
    the algorithm's own), error and certificate by step and layer, cost. Of a run: its loss, and what it has become,
    beside baselines. Of a table: scores, calibration, which columns matter.
    """
    from innergrad.cli import reports

    asked = reports.Asked(data, targets, scale, sets or [], imports, prompts, device)
    reports.write_report(folder, out, asked, force=force, seed=seed, as_json=json, quiet=quiet)


fit.register(app)
lab.register(app)
figures.register(app)
zoo.register(app)

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # click's UsageError, wherever typer keeps it


@cache
def parser() -> Any:
    """The command that reads the arguments. Its help says in our words what a flag takes, not by Python's types; its
    paragraphs are as wide as the terminal.
    """
    made: Any = typer.main.get_command(app)
    for command in (made, *made.commands.values()):
        command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
        command.get_help_option = _without_type(command.get_help_option)
        for param in command.params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
            elif param.metavar is None:
                param.metavar = "" if param.is_flag else "VALUE"
    return made


def _without_type(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(ctx: Any) -> Any:
        option = get(ctx)
        if option is not None:
            option.metavar = ""
        return option

    return changed


def main() -> None:
    """Entry point: bad input is one line on stderr and exit code 2, a failed job one line and exit code 1.

    What is too large for the machine, or for Python, is bad input. Without arguments, the help.
    """
    _say_everything()
    _let_threads_sleep()
    try:
        code = parser()(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()  # here, where somebody can say that there is no room, or nobody who reads it
    except USAGE_ERROR as error:
        code = _complain(usage(error), 2)
    except InputError as error:
        code = _complain(_with_next_step(str(error)), 2)
    except BrokenPipeError:  # who reads has seen enough: innergrad cost ... | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (JobError, OSError) as error:
        code = _complain(str(error), 1)
    except typer.Abort:
        code = _complain("interrupted", 1)
    except Exception as error:
        words = limit_of(error)
        if words is None:
            raise
        code = _complain(words, 2)
    sys.exit(code if isinstance(code, int) else 0)


def _say_everything() -> None:
    """Names of files and columns are anybody's: what a terminal cannot show is shown by its number."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _let_threads_sleep() -> None:
    """Threads of torch that wait do so without work. By default they spin, and where other programs run, too, small
    matrices take many times as long. torch reads this when it is loaded. Who has chosen a policy keeps it; so does
    bench, whose numbers are those of torch as it is.
    """
    if sys.argv[1:2] != ["bench"]:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _with_next_step(message: str) -> str:
    """A message that says nothing but what is wrong, and what was found, names the help."""
    command = next((word for word in sys.argv[1:2] if word in parser().commands), "")
    return message if message.count("; ") > 1 else f"{message}; {' '.join(['innergrad', command])} -h explains it"


def _complain(message: str, code: int) -> int:
    print(f"innergrad: {shortened(' '.join(message.split()), 4 * MOST_WORDS)}", file=sys.stderr)
    return code
