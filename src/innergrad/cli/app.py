"""``innergrad``: demo, compile, run, verify, cost, export. Exit codes: 0 done, 1 a failed job, 2 wrong input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from innergrad.cli import lab
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

# Settings of a model: each has the name of a setting in innergrad.cli.settings, which says what algorithm takes it.
EVERY, SEVERAL = "Settings of every algorithm", "Settings of several algorithms"
DESCENT, FUNCTIONAL, RLS, THEOREM = (
    f"Settings of {name}" for name in ("gradient-descent", "functional", "rls", "--theorem")
)

AlgorithmName = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help="gradient-descent (default): on a network; functional: gradient descent in the space of a kernel; "
        "sgd, rls: online SGD and recursive least squares, linear and causal; grid: gradient descent on a tiny network "
        "and a grid, looked up in a table",
        rich_help_panel=EVERY,
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="relu (only gradient-descent, its default), kernel (only functional, its default), gpt (all; the only "
        "one of sgd and rls), softmax (gradient-descent, grid) or sigma (only gradient-descent)",
        rich_help_panel=EVERY,
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(
        "--variant",
        help="Of the target; relu: literal (default), compact, shallow or narrow (the last three: gradient-descent "
        "only); kernel: attention; gpt: pre-ln (default), GPT-2's block, or raw, 004's, which has no LayerNorm before "
        "attention; softmax: sink (default), mean or lookup; sigma: backprop (default) or recursion",
        rich_help_panel=EVERY,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Sup error of every approximant (default: relu 1e-3, proven; gpt, softmax, sigma 1e-9, measured; kernel "
        "has none).",
        rich_help_panel=EVERY,
    ),
]
Examples = Annotated[
    int | None, typer.Option("--n-examples", help="Longest prompt (default 16).", rich_help_panel=EVERY)
]
XBound = Annotated[
    float | None, typer.Option("--x-bound", help="Declared bound on |x| (rls: default 4).", rich_help_panel=EVERY)
]
YBound = Annotated[float | None, typer.Option("--y-bound", help="Declared bound on |y|.", rich_help_panel=EVERY)]
ZBound = Annotated[
    float | None,
    typer.Option(
        "--z-bound",
        help="Domain of functions without asymptotes (sin); on gpt, the range of every product's factors (default 8).",
        rich_help_panel=EVERY,
    ),
]
Sigma = Annotated[
    str | None,
    typer.Option(
        "--sigma",
        help="On target sigma, the transformer's own activation: gelu (default) tanh sigmoid softplus silu cos",
        rich_help_panel=EVERY,
    ),
]
WeightError = Annotated[
    float | None,
    typer.Option(
        "--weight-error",
        help="Instead of --epsilon: the distance of the final weights to the algorithm's, certified on random prompts; "
        "chooses an epsilon for every function, with the fewest heads (relu).",
        rich_help_panel=EVERY,
    ),
]
Until = Annotated[
    float | None,
    typer.Option(
        "--until",
        help="Stop where the certified norm of the gradient (mapping) is at most this (gradient-descent).",
        rich_help_panel=EVERY,
    ),
]

Dimension = Annotated[
    int | None,
    typer.Option(
        "--d",
        help="Inputs: functional (default 5), sgd, rls (default 8); the dimension of --theorem 000-3 (default: coupled "
        "to eps) and 000-4.",
        rich_help_panel=SEVERAL,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", help="Steps: gradient-descent (default 5), functional (default 64).", rich_help_panel=SEVERAL
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="Learning rate: gradient-descent (default 0.1, adam 0.01), sgd (default 0.05).",
        rich_help_panel=SEVERAL,
    ),
]
Decay = Annotated[
    float | None,
    typer.Option("--weight-decay", help="l2 weight decay: gradient-descent, sgd (default 0).", rich_help_panel=SEVERAL),
]

Sizes = Annotated[
    str | None,
    typer.Option(
        "--sizes", help="Layer sizes d_x,hidden,...,d_y, e.g. 3,8,8,1; always needed.", rich_help_panel=DESCENT
    ),
]
ActivationName = Annotated[
    str | None,
    typer.Option(
        "--activation",
        help="tanh (default) sigmoid softplus gelu silu sin relu leaky_relu relu6",
        rich_help_panel=DESCENT,
    ),
]
OutputKind = Annotated[
    str | None, typer.Option("--output", help="linear (default) or activation", rich_help_panel=DESCENT)
]
Bias = Annotated[
    bool | None,
    typer.Option("--bias/--no-bias", help="Biases in every layer (default: yes).", rich_help_panel=DESCENT),
]
LossName = Annotated[
    str | None,
    typer.Option("--loss", help="squared (default) log-cosh pseudo-huber logistic softmax", rich_help_panel=DESCENT),
]
Box = Annotated[
    str | None,
    typer.Option("--box", help="Weights stay in [-box, box] (default 4); 'none' for no box.", rich_help_panel=DESCENT),
]
Momentum = Annotated[
    float | None, typer.Option("--momentum", help="Heavy-ball momentum (default 0).", rich_help_panel=DESCENT)
]

Optimiser = Annotated[
    str | None, typer.Option("--optimiser", help="sgd (default) or adam (target relu)", rich_help_panel=DESCENT)
]
Nesterov = Annotated[
    bool | None,
    typer.Option("--nesterov/--no-nesterov", help="Nesterov's momentum (default: no).", rich_help_panel=DESCENT),
]
L1 = Annotated[
    float | None, typer.Option("--l1", help="l1 penalty, by a proximal step (default 0).", rich_help_panel=DESCENT)
]
Clip = Annotated[
    float | None,
    typer.Option("--clip", help="Entries of the gradient are clipped to [-clip, clip].", rich_help_panel=DESCENT),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="Of the learning rate, --lr its largest: constant (default); cosine, down to 0; warmup-cosine, up in a "
        "tenth of the steps, then cosine; step-decay, to a tenth after each third of the steps. A settings file may "
        "list every rate: lr = [0.1, 0.05].",
        rich_help_panel=DESCENT,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        help="Examples of a step: the first so many, then the next, of --n-examples (default: all).",
        rich_help_panel=DESCENT,
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", help="Instead of --steps: times all batches are gone through.", rich_help_panel=DESCENT),
]
Betas = Annotated[str | None, typer.Option("--betas", help="Of adam (default 0.9,0.999).", rich_help_panel=DESCENT)]
Delta = Annotated[
    float | None,
    typer.Option("--delta", help="Of adam, which divides by sqrt(v) + delta (default 0.01).", rich_help_panel=DESCENT),
]

KernelName = Annotated[
    str | None, typer.Option("--kernel", help="exp (default) linear relu softmax", rich_help_panel=FUNCTIONAL)
]
Bandwidth = Annotated[
    float | None,
    typer.Option("--bandwidth", help="The kernel is h(<x, x'> / bandwidth^2) (default 1).", rich_help_panel=FUNCTIONAL),
]
StepRule = Annotated[
    str | None, typer.Option("--step-rule", help="constant (default) or chebyshev", rich_help_panel=FUNCTIONAL)
]
Step = Annotated[
    float | None,
    typer.Option(
        "--step",
        help="The constant step (default 1.9 / lambda-max; softmax: 1).",
        rich_help_panel=FUNCTIONAL,
    ),
]
LambdaMax = Annotated[
    float | None,
    typer.Option(
        "--lambda-max",
        help="Bound on the eigenvalues of every prompt's kernel matrix (default: for 16 examples in the unit ball).",
        rich_help_panel=FUNCTIONAL,
    ),
]
Condition = Annotated[
    float | None,
    typer.Option(
        "--condition",
        help="Condition number that Chebyshev steps are made for (default (steps / 4)^2, at least 2).",
        rich_help_panel=FUNCTIONAL,
    ),
]
Outputs = Annotated[
    int | None, typer.Option("--d-y", help="Labels of an example (default 1).", rich_help_panel=FUNCTIONAL)
]
CovariateStep = Annotated[
    float | None,
    typer.Option(
        "--covariate-step",
        help="Step that also moves the inputs, as GD++ does (default 0).",
        rich_help_panel=FUNCTIONAL,
    ),
]

Ridge = Annotated[
    float | None, typer.Option("--ridge", help="Ridge penalty on |w|^2 (default 0.5).", rich_help_panel=RLS)
]
Noise = Annotated[
    float | None,
    typer.Option(
        "--noise", help="Standard deviation of the labels' noise, for --std (default 1).", rich_help_panel=RLS
    ),
]
Form = Annotated[
    str | None,
    typer.Option(
        "--form", help="rls (default), or sherman-morrison: the paper's, less exact in float32", rich_help_panel=RLS
    ),
]

# Settings of --theorem: each has the name of an argument in innergrad.cli.theorems.
TheoremName = Annotated[
    str | None,
    typer.Option(
        "--theorem",
        help="Instead of a model, a theorem's resources: 000-2 (layers and heads for a network; width against depth), "
        "000-3 (ball indicators through 2 or 3 layers), 000-4 (smooth functions, deep or shallow)",
        rich_help_panel=THEOREM,
    ),
]
Accuracies = Annotated[
    str | None,
    typer.Option(
        "--eps",
        help="Accuracies, comma-separated: of the gradient (000-2, default 1e-2), of the network (000-3, 000-4, "
        "default 1e-2,1e-4,1e-8).",
        rich_help_panel=THEOREM,
    ),
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", help="000-2: layers of the network; 000-4: of the shallow one.", rich_help_panel=THEOREM),
]
Width = Annotated[int | None, typer.Option("--width", help="000-2: width of the network.", rich_help_panel=THEOREM)]
Heads = Annotated[
    float | None,
    typer.Option("--heads", help="000-2: budget of heads, instead of a network.", rich_help_panel=THEOREM),
]
Smoothness = Annotated[
    int | None, typer.Option("--s", help="000-4: smoothness of the function.", rich_help_panel=THEOREM)
]
C = Annotated[
    float | None,
    typer.Option("--c", help="000-2: an approximant has M = c eps^-2 terms. Default 1.", rich_help_panel=THEOREM),
]
C1 = Annotated[
    float | None,
    typer.Option(
        "--c1",
        help="000-3, Lemma 1: for d > c1, 2 layers have error >= c2 / d^4 unless wider than c3 exp(c4 d). Default 1.",
        rich_help_panel=THEOREM,
    ),
]
C2 = Annotated[
    float | None,
    typer.Option("--c2", help="000-3: see c1. Default 1.", rich_help_panel=THEOREM),
]
C3 = Annotated[
    float | None,
    typer.Option("--c3", help="000-3: see c1. Default 1.", rich_help_panel=THEOREM),
]
C4 = Annotated[
    float | None,
    typer.Option("--c4", help="000-3: see c1. Default 1.", rich_help_panel=THEOREM),
]
CSigma = Annotated[
    float | None,
    typer.Option(
        "--c-sigma",
        help="000-3, Lemma 2: 3 layers of width 8 c_sigma d^2 / eps do. Default 1.",
        rich_help_panel=THEOREM,
    ),
]
CLemma3 = Annotated[
    float | None,
    typer.Option(
        "--c-lemma3",
        help="000-4, Lemma 3: c (ln(1/eps) + 1) layers of width c eps^(-d/s) do. Default 1.",
        rich_help_panel=THEOREM,
    ),
]
CLemma4 = Annotated[
    float | None,
    typer.Option(
        "--c-lemma4",
        help="000-4, Lemma 4: L layers need width c eps^(-1/(2(L-1))). Default 1.",
        rich_help_panel=THEOREM,
    ),
]

Grid = Annotated[
    int | None,
    typer.Option(
        "--grid",
        help="Cells of each number of the prompt and of the weights (default 4); their ranges are --x-bound, --y-bound "
        "(default 1) and --box.",
        rich_help_panel="Settings of grid",
    ),
]

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
    algorithm: AlgorithmName = None,
    target: Architecture = None,
    variant: Variant = None,
    epsilon: Epsilon = None,
    n_examples: Examples = None,
    x_bound: XBound = None,
    y_bound: YBound = None,
    z_bound: ZBound = None,
    sigma: Sigma = None,
    weight_error: WeightError = None,
    until: Until = None,
    d: Dimension = None,
    steps: Steps = None,
    lr: Rate = None,
    weight_decay: Decay = None,
    sizes: Sizes = None,
    activation: ActivationName = None,
    output: OutputKind = None,
    bias: Bias = None,
    loss: LossName = None,
    box: Box = None,
    momentum: Momentum = None,
    optimiser: Optimiser = None,
    nesterov: Nesterov = None,
    l1: L1 = None,
    clip: Clip = None,
    schedule: Schedule = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    betas: Betas = None,
    delta: Delta = None,
    kernel: KernelName = None,
    bandwidth: Bandwidth = None,
    step_rule: StepRule = None,
    step: Step = None,
    d_y: Outputs = None,
    lambda_max: LambdaMax = None,
    condition: Condition = None,
    covariate_step: CovariateStep = None,
    ridge: Ridge = None,
    noise: Noise = None,
    form: Form = None,
    grid: Grid = None,
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
    executor: Annotated[str, typer.Option("--executor", help="plain, dense or fused")] = "plain",
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32")] = "float64",
    std: Annotated[
        bool,
        typer.Option("--std", help="Also predictive standard deviations (rls; functional with kernel linear or exp)."),
    ] = False,
    until: Annotated[
        float | None,
        typer.Option("--until", help="Stop where the certified norm of the gradient is at most this."),
    ] = None,
    outside: Annotated[
        str,
        typer.Option("--outside", help="Values outside the domain of the model: error, or flag, which lists them."),
    ] = "error",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for predictions.csv and, where there are any, weights.csv (a row per step), online.csv.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from the rows of a CSV inside one forward pass, and predict the rows whose target is empty.

    Of sgd and rls, which learn from one row after the other, also what they predicted for each row before they saw its
    target.
    """
    from innergrad.cli import commands

    how = {"executor": executor, "until": until, "outside": outside, "seed": seed, "return_std": std}
    commands.run_model(model, data, targets, query, dtype, out, how, as_json=json, quiet=quiet)


@app.command()
def verify(
    model: ModelFolder = None,
    data: Data = None,
    targets: Targets = None,
    prompts: Annotated[int, typer.Option("--prompts", help="Number of random prompts.")] = 4,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also say where the error comes from: bound and measured error of every step and layer, shares of the "
            "bound, and a health table; on the given data, else on a random prompt.",
        ),
    ] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="With --explain: draw it, a PNG.")] = None,
    attack: Annotated[
        bool,
        typer.Option("--attack", help="Also search for the prompt and weights with the largest error, in the domain."),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the report as JSON to this file.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every law of the weights, on random prompts and on given data; exit code 1 if one fails, or if an error is
    above its certificate.

    On targets gpt, softmax and sigma the sup errors of approximants are measured (law `fit`), not proven (law `proof`);
    the bounds of --explain are rigorous there, too: they rest on the errors at the arguments that occur.
    """
    from innergrad.cli import commands

    asked = commands.Asked(explain, figure, attack)
    code = commands.verify_model(model, data, targets, prompts, asked, out, seed=seed, as_json=json, quiet=quiet)
    raise typer.Exit(code)


@app.command()
def cost(
    model: ModelFolder = None,
    config: ConfigFile = None,
    algorithm: AlgorithmName = None,
    target: Architecture = None,
    variant: Variant = None,
    epsilon: Epsilon = None,
    n_examples: Examples = None,
    x_bound: XBound = None,
    y_bound: YBound = None,
    z_bound: ZBound = None,
    sigma: Sigma = None,
    weight_error: WeightError = None,
    until: Until = None,
    d: Dimension = None,
    steps: Steps = None,
    lr: Rate = None,
    weight_decay: Decay = None,
    sizes: Sizes = None,
    activation: ActivationName = None,
    output: OutputKind = None,
    bias: Bias = None,
    loss: LossName = None,
    box: Box = None,
    momentum: Momentum = None,
    optimiser: Optimiser = None,
    nesterov: Nesterov = None,
    l1: L1 = None,
    clip: Clip = None,
    schedule: Schedule = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    betas: Betas = None,
    delta: Delta = None,
    kernel: KernelName = None,
    bandwidth: Bandwidth = None,
    step_rule: StepRule = None,
    step: Step = None,
    d_y: Outputs = None,
    lambda_max: LambdaMax = None,
    condition: Condition = None,
    covariate_step: CovariateStep = None,
    ridge: Ridge = None,
    noise: Noise = None,
    form: Form = None,
    grid: Grid = None,
    theorem: TheoremName = None,
    eps: Accuracies = None,
    depth: Depth = None,
    width: Width = None,
    heads: Heads = None,
    s: Smoothness = None,
    c: C = None,
    c1: C1 = None,
    c2: C2 = None,
    c3: C3 = None,
    c4: C4 = None,
    c_sigma: CSigma = None,
    c_lemma3: CLemma3 = None,
    c_lemma4: CLemma4 = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the table as JSON to this file.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Layers, heads, width, parameters, FLOPs and norm of a saved model or of given settings, beside the paper's.

    The settings are those of `innergrad compile`. Layers that repeat are shown once; --json lists them all.

    Or, with --theorem, how large a transformer 000 needs to learn a function through a network, all constants yours.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from innergrad.cli import theorems

    if theorems.asked(given):
        theorems.cost_of_theorem(given, out, as_json=json, quiet=quiet)
    else:
        from innergrad.cli import commands
        from innergrad.cli.settings import settings

        commands.cost_model(model, settings(config, given), out, as_json=json, quiet=quiet)


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="executor: in-context training against training in torch")] = "executor",
    full: Annotated[bool, typer.Option("--full", help="The whole grid, 100 points; some minutes.")] = False,
    points: Annotated[
        str | None, typer.Option("--points", help="instead: n,K,N of each, e.g. '20,8,3 4096,128,4'")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float32, float64 or both, with a comma")] = "float32",
    threads: Annotated[str, typer.Option("--threads", help="e.g. 1 or 1,2")] = "1",
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="runs of each, of which the median counts")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="Write the results as JSON to this file.")] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time of a step inside the transformer divided by that of the fastest way to train in torch, in one run."""
    from innergrad.cli import benches

    del seed
    benches.run_bench(what, full, points, dtype, threads, repeats, out, as_json=json, quiet=quiet)


@app.command()
def export(
    model: ModelFolder = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="hf: a folder for GPT2Model.from_pretrained; onnx: a file.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="hf (target gpt, variant pre-ln) or onnx")] = "hf",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or, for hf, float64")] = "float32",
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model for other software: Hugging Face's GPT-2, which runs it unmodified, or ONNX Runtime.

    Both take the residual stream, and give it; innergrad.json in the hf folder says what its entries are.
    """
    from innergrad.cli import commands

    del seed
    commands.export_model(model, out, format, dtype, as_json=json, quiet=quiet)


lab.register(app)

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # click's UsageError, wherever typer keeps it


def main() -> None:
    """Entry point: bad input is one line on stderr and exit code 2, a failed job one line and exit code 1."""
    try:
        code = app(standalone_mode=False)
    except (InputError, USAGE_ERROR) as error:
        code = _complain(error.format_message() if hasattr(error, "format_message") else str(error), 2)
    except (JobError, OSError) as error:
        code = _complain(str(error), 1)
    except (MemoryError, OverflowError) as error:
        code = _complain(f"too large for this machine: {error}", 1)
    except typer.Abort:
        code = _complain("interrupted", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    print(f"innergrad: {' '.join(message.split())}", file=sys.stderr)
    return code
