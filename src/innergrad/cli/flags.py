"""Flags that are settings of a model, and the decorator that gives them to a command.

A flag has the name of its setting (--n-examples is n_examples) in ``cli/settings.py``, which says which algorithm takes
it, or of an argument of a theorem in ``cli/theorems.py``. Its default is always None, "not given": whoever takes the
setting has the default, and the help says it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from innergrad.cli import names
from innergrad.errors import integer, one_of, real, seed_number

FILE, FOLDER, NAME, COUNT, NUMBER, LIST = "FILE", "FOLDER", "NAME", "N", "NUMBER", "A,B,..."  # what a flag takes


def chosen(flag: str, what: str, known: Collection[str], text: str) -> Any:
    """A flag whose value is one of these names: checked when it is read, and completed by the shell."""

    def check(value: str | None) -> str | None:
        return value if value is None else one_of(f"unknown {what}", value, known)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return typer.Option(flag, help=text, metavar=NAME, callback=check, autocompletion=complete)


def count(flag: str, text: str, low: int = 1) -> Any:
    """A flag whose value is an integer, at least ``low``."""

    def check(value: int | None) -> int | None:
        return value if value is None else integer(flag, value, low)

    return typer.Option(flag, help=text, metavar=COUNT, callback=check)


def amount(flag: str, text: str, low: float = 0.0) -> Any:
    """A flag whose value is a finite number, at least ``low``."""

    def check(value: float | None) -> float | None:
        return value if value is None else real(flag, value, low=low)

    return typer.Option(flag, help=text, metavar=NUMBER, callback=check)


def path(flag: str, text: str, metavar: str = FILE) -> Any:
    return typer.Option(flag, help=text, metavar=metavar)


def figure(text: str) -> Any:
    """The flag --figure. Its ending is looked at before anything is computed."""

    def check(value: Path | None) -> Path | None:
        from innergrad.figures import form_of

        if value is not None:
            form_of(value)
        return value

    return typer.Option("--figure", help=text, metavar=FILE, callback=check)


def _seed(value: int | None) -> int | None:
    return value if value is None else seed_number(value)


def seed(text: str) -> Any:
    return typer.Option("--seed", help=text, metavar=COUNT, callback=_seed)


Force = Annotated[bool, typer.Option("--force", help="Replace files that this command did not write.")]
Table = Mapping[str, Mapping[str, tuple[type, str]]]  # title of a part of the help -> name of a flag -> type, help

MODEL: Table = {
    "Settings of every algorithm": {
        "algorithm": (
            str,
            "gradient-descent (default): on a network; functional: gradient descent in the space of a kernel; sgd, "
            "rls: online SGD and recursive least squares, linear and causal; grid: gradient descent on a tiny network "
            "and a grid, looked up in a table",
        ),
        "target": (
            str,
            "The kind of transformer: relu (only gradient-descent, its default), kernel (only functional, its "
            "default), gpt (all; the only one of sgd and rls), softmax (gradient-descent, grid), sigma or llama (only "
            "gradient-descent)",
        ),
        "variant": (
            str,
            "Of the target; relu: literal (default), compact, shallow or narrow (the last three: gradient-descent "
            "only); kernel: attention; gpt: pre-ln (default), GPT-2's block, raw, which has no LayerNorm before "
            "attention, or markers; softmax: sink (default), mean, lookup or markers; sigma: backprop (default) "
            "or recursion; llama: chain (default), wide, widest or shortest",
        ),
        "epsilon": (
            float,
            "Sup error of every approximant (default: relu 1e-3, proven; gpt, softmax, sigma 1e-9, measured; llama, "
            "of functions that it has to fit, 1e-12, measured; kernel has none).",
        ),
        "n_examples": (int, "Longest prompt (default 16)."),
        "x_bound": (float, "Declared bound on |x| (rls: default 4)."),
        "y_bound": (float, "Declared bound on |y|."),
        "z_bound": (
            float,
            "Domain of functions without asymptotes (sin); on gpt, the range of every product's factors (default 8).",
        ),
        "sigma": (
            str,
            "On target sigma, the transformer's own activation: gelu (default) tanh sigmoid softplus silu cos",
        ),
        "weight_error": (
            float,
            "Instead of --epsilon: the distance of the final weights to the algorithm's, certified on random prompts; "
            "chooses an epsilon for every function, with the fewest heads (relu).",
        ),
        "until": (float, "Stop where the certified norm of the gradient (mapping) is at most this (gradient-descent)."),
        "double": (bool, "On target llama: float64 in Hugging Face's classes, whose norms cast to float32."),
    },
    "Settings of several algorithms": {
        "d": (
            int,
            "Inputs: functional (default 5), sgd, rls (default 8); the dimension, for --theorem (default of Theorem 3: "
            "coupled to eps).",
        ),
        "steps": (int, "Steps: gradient-descent (default 5), functional (default 64)."),
        "lr": (float, "Learning rate: gradient-descent (default 0.1, adam 0.01), sgd (default 0.05)."),
        "weight_decay": (float, "l2 weight decay: gradient-descent, sgd (default 0)."),
    },
    "Settings of gradient-descent": {
        "sizes": (str, "Layer sizes d_x,hidden,...,d_y, e.g. 3,8,8,1; always needed."),
        "activation": (str, "tanh (default) sigmoid softplus gelu silu sin relu leaky_relu relu6"),
        "output": (str, "linear (default) or activation"),
        "bias": (bool, "Biases in every layer (default: yes)."),
        "loss": (str, "squared (default) log-cosh pseudo-huber logistic softmax"),
        "box": (str, "Weights stay in [-box, box] (default 4); 'none' for no box."),
        "ball": (float, "In place of the box: all weights together stay in a ball of this radius."),
        "momentum": (float, "Heavy-ball momentum (default 0)."),
        "optimiser": (str, "sgd (default) or adam (target relu)"),
        "nesterov": (bool, "Nesterov's momentum (default: no)."),
        "l1": (float, "l1 penalty, by a proximal step (default 0)."),
        "clip": (float, "Entries of the gradient are clipped to [-clip, clip]."),
        "schedule": (
            str,
            "Of the learning rate, --lr its largest: constant (default); cosine, down to 0; warmup-cosine, up in a "
            "tenth of the steps, then cosine; step-decay, to a tenth after each third of the steps. A settings file "
            "may list every rate: lr = [0.1, 0.05].",
        ),
        "batch_size": (int, "Examples of a step: the first so many, then the next, of --n-examples (default: all)."),
        "epochs": (int, "Instead of --steps: times all batches are gone through."),
        "betas": (str, "Of adam (default 0.9,0.999)."),
        "delta": (float, "Of adam, which divides by sqrt(v) + delta (default 0.01)."),
    },
    "Settings of functional": {
        "kernel": (str, "exp (default) linear relu softmax"),
        "bandwidth": (float, "The kernel is h(<x, x'> / bandwidth^2) (default 1)."),
        "step_rule": (str, "constant (default) or chebyshev"),
        "step": (float, "The constant step (default 1.9 / lambda-max; softmax: 1)."),
        "d_y": (int, "Labels of an example (default 1)."),
        "lambda_max": (
            float,
            "Bound on the eigenvalues of every prompt's kernel matrix (default: for 16 examples in the unit ball).",
        ),
        "condition": (float, "Condition number that Chebyshev steps are made for (default (steps / 4)^2, at least 2)."),
        "covariate_step": (float, "Step that also moves the inputs, as GD++ does (default 0)."),
    },
    "Settings of rls": {
        "ridge": (float, "Ridge penalty on |w|^2 (default 0.5)."),
        "noise": (float, "Standard deviation of the labels' noise, for --std (default 1)."),
        "form": (str, "rls (default), or sherman-morrison: the paper's, less exact in float32"),
    },
    "Settings of grid": {
        "grid": (
            int,
            "Cells of each number of the prompt and of the weights (default 4); their ranges are --x-bound, --y-bound "
            "(default 1) and --box.",
        ),
    },
}

THEOREM: Table = {
    "Settings of --theorem": {
        "theorem": (
            str,
            "Instead of a model, what a theorem of Neural Networks (see above) needs: neural-networks-2 (layers and "
            "heads for a network; width against depth), neural-networks-3 (indicators of balls, by 2 or 3 layers), "
            "neural-networks-4 (smooth functions, deep or shallow).",
        ),
        "eps": (
            str,
            "Accuracies, comma-separated: of the gradient (Theorem 2, default 1e-2), of the network (Theorems 3 and 4, "
            "default 1e-2,1e-4,1e-8).",
        ),
        "depth": (int, "Theorem 2: layers of the network; Theorem 4: of the shallow one."),
        "width": (int, "Theorem 2: width of the network."),
        "heads": (float, "Theorem 2: budget of heads, instead of a network."),
        "s": (int, "Theorem 4: smoothness of the function."),
        "c": (float, "Theorem 2: an approximant has M = c eps^-2 terms. Default 1."),
        "c1": (
            float,
            "Theorem 3, Lemma 1: for d > c1, 2 layers have error >= c2 / d^4 unless wider than c3 exp(c4 d). "
            "Default 1.",
        ),
        "c2": (float, "Theorem 3: see c1. Default 1."),
        "c3": (float, "Theorem 3: see c1. Default 1."),
        "c4": (float, "Theorem 3: see c1. Default 1."),
        "c_sigma": (float, "Theorem 3, Lemma 2: 3 layers of width 8 c_sigma d^2 / eps do. Default 1."),
        "c_lemma3": (float, "Theorem 4, Lemma 3: c (ln(1/eps) + 1) layers of width c eps^(-d/s) do. Default 1."),
        "c_lemma4": (float, "Theorem 4, Lemma 4: L layers need width c eps^(-1/(2(L-1))). Default 1."),
    },
}


def takes(*tables: Table) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds flags to those of a command, which gets the ones that were given, by name, as its argument ``given``."""
    flags = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option(name, *about, title)
        )
        for table in tables
        for title, part in table.items()
        for name, about in part.items()
    }

    def extend(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def extended(**values: Any) -> None:
            given = {name: value for name in flags if (value := values.pop(name)) is not None}
            command(**values, given=given)

        signature = inspect.signature(command, eval_str=True)
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
        parameters = [*(each for each in own if each.name != "given"), *flags.values()]
        extended.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return extended

    return extend


METAVARS = {int: COUNT, float: NUMBER, str: NAME, bool: ""}
LISTS = ("sizes", "betas", "eps")
COMPLETED: Mapping[str, Collection[str]] = {
    "target": names.TARGETS,
    "variant": [name for variants in names.TARGETS.values() for name in variants],
    "activation": names.ACTIVATIONS,
    "output": names.OUTPUTS,
    "loss": names.LOSSES,
    "optimiser": names.OPTIMISERS,
    "schedule": names.SCHEDULES,
    "kernel": names.KERNELS,
    "step_rule": names.STEP_RULES,
    "form": names.FORMS,
    "theorem": names.THEOREMS,
    "algorithm": names.ALGORITHMS,
    "sigma": names.SIGMAS,
}


def option(name: str, kind: type, text: str, title: str) -> Any:
    """The type of a parameter that typer makes this flag of."""
    flag = name.replace("_", "-")
    words = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
    metavar = LIST if name in LISTS else NUMBER if name == "box" else METAVARS[kind]
    known = COMPLETED.get(name)

    def complete(incomplete: str) -> list[str]:
        return [one for one in known or () if one.startswith(incomplete)]

    more: dict[str, Any] = {} if known is None else {"autocompletion": complete}
    return Annotated[kind | None, typer.Option(words, help=text, rich_help_panel=title, metavar=metavar, **more)]
