"""``innergrad``: demo, compile, run, verify, cost. Exit codes: 0 done, 1 the job failed, 2 the input is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from innergrad.errors import InputError, JobError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Transformers that learn inside their forward pass: learning algorithms compiled into weights.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of initial weights and random data, where there are any.")]
Sizes = Annotated[str | None, typer.Option("--sizes", help="Layer sizes d_x,hidden,...,d_y, e.g. 3,8,8,1.")]
ActivationName = Annotated[
    str | None, typer.Option("--activation", help="tanh (default) sigmoid softplus gelu silu sin relu leaky_relu relu6")
]
OutputKind = Annotated[str | None, typer.Option("--output", help="linear (default) or activation")]
Bias = Annotated[bool | None, typer.Option("--bias/--no-bias", help="Biases in every layer (default: yes).")]
LossName = Annotated[
    str | None, typer.Option("--loss", help="squared (default) log-cosh pseudo-huber logistic softmax")
]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate (default 0.1).")]
Steps = Annotated[int | None, typer.Option("--steps", help="Steps of gradient descent (default 5).")]
Box = Annotated[str | None, typer.Option("--box", help="Weights stay in [-box, box] (default 4); 'none' for no box.")]
Momentum = Annotated[float | None, typer.Option("--momentum", help="Heavy-ball momentum (default 0).")]
Decay = Annotated[float | None, typer.Option("--weight-decay", help="l2 weight decay (default 0).")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="Sup error of every approximant (default 1e-3).")]
Examples = Annotated[int | None, typer.Option("--n-examples", help="Longest prompt (default 16).")]
XBound = Annotated[float | None, typer.Option("--x-bound", help="Declared bound on |x|.")]
YBound = Annotated[float | None, typer.Option("--y-bound", help="Declared bound on |y|.")]
ZBound = Annotated[float | None, typer.Option("--z-bound", help="Domain of functions without asymptotes (sin).")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with the same settings; flags override.")]
ModelFolder = Annotated[Path | None, typer.Argument(help="Folder written by `innergrad compile`.")]
Targets = Annotated[str | None, typer.Option("--target", help="Target columns, comma-separated; default: the last.")]
Data = Annotated[Path | None, typer.Option("--data", help="CSV with a header: input columns, then target columns.")]


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
    out: Annotated[Path, typer.Option("--out", help="Folder for the figure, the table and the model.")] = Path(
        "out/demo"
    ),
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile gradient descent on a 3-layer network, run it on real data, compare with training, draw a figure."""
    from innergrad.cli.demo import run_demo

    run_demo(out, seed=seed, as_json=json, quiet=quiet)


@app.command("compile")
def compile_(
    out: Annotated[Path, typer.Option("--out", help="Folder for the model; a model already there is replaced.")],
    config: ConfigFile = None,
    sizes: Sizes = None,
    activation: ActivationName = None,
    output: OutputKind = None,
    bias: Bias = None,
    loss: LossName = None,
    lr: Rate = None,
    steps: Steps = None,
    box: Box = None,
    momentum: Momentum = None,
    weight_decay: Decay = None,
    epsilon: Epsilon = None,
    n_examples: Examples = None,
    x_bound: XBound = None,
    y_bound: YBound = None,
    z_bound: ZBound = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write gradient descent on a network into the weights of a transformer, and save it."""
    from innergrad.cli import commands
    from innergrad.cli.settings import settings

    commands.compile_model(settings(config, locals()), out, as_json=json, quiet=quiet)


@app.command()
def run(
    model: ModelFolder = None,
    data: Data = None,
    targets: Targets = None,
    query: Annotated[
        Path | None,
        typer.Option("--query", help="CSV with the input columns to predict; default: rows without targets."),
    ] = None,
    executor: Annotated[str, typer.Option("--executor", help="plain or dense")] = "plain",
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32")] = "float64",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for predictions.csv and weights.csv.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from the rows of a CSV inside one forward pass, and predict the rows whose target is empty."""
    from innergrad.cli import commands

    commands.run_model(model, data, targets, query, executor, dtype, out, seed=seed, as_json=json, quiet=quiet)


@app.command()
def verify(
    model: ModelFolder = None,
    data: Data = None,
    targets: Targets = None,
    prompts: Annotated[int, typer.Option("--prompts", help="Number of random prompts.")] = 4,
    out: Annotated[Path | None, typer.Option("--out", help="Write the report as JSON to this file.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every law of the weights, on random prompts and on given data; exit code 1 if one fails."""
    from innergrad.cli import commands

    raise typer.Exit(commands.verify_model(model, data, targets, prompts, out, seed=seed, as_json=json, quiet=quiet))


@app.command()
def cost(
    model: ModelFolder = None,
    config: ConfigFile = None,
    sizes: Sizes = None,
    activation: ActivationName = None,
    output: OutputKind = None,
    bias: Bias = None,
    loss: LossName = None,
    lr: Rate = None,
    steps: Steps = None,
    box: Box = None,
    momentum: Momentum = None,
    weight_decay: Decay = None,
    epsilon: Epsilon = None,
    n_examples: Examples = None,
    x_bound: XBound = None,
    y_bound: YBound = None,
    z_bound: ZBound = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the table as JSON to this file.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Layers, heads, width, parameters, FLOPs and norm of a saved model or of given settings, beside the paper's."""
    from innergrad.cli import commands
    from innergrad.cli.settings import settings

    commands.cost_model(model, settings(config, locals()), out, as_json=json, quiet=quiet)


USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # click's UsageError, wherever typer keeps it


def main() -> None:
    """Entry point: bad input is one line on stderr and exit code 2, a failed job one line and exit code 1."""
    try:
        code = app(standalone_mode=False)
    except (InputError, USAGE_ERROR) as error:
        code = _complain(error.format_message() if hasattr(error, "format_message") else str(error), 2)
    except (JobError, OSError) as error:
        code = _complain(str(error), 1)
    except typer.Abort:
        code = _complain("interrupted", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    print(f"innergrad: {' '.join(message.split())}", file=sys.stderr)
    return code
