"""The demo: gradient descent on a 3-layer network, compiled, run on real data and compared with training.

On target ``llama`` nothing is approximated; where transformers is installed, its own LlamaModel makes the predictions,
too. On target ``relu`` functions have the error epsilon. It ends in one sentence; the tables are for who asks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from innergrad import figures
from innergrad.algorithms import GradientDescent
from innergrad.algorithms.networks import Network
from innergrad.cli.animation import draw_film, film
from innergrad.cli.show import print_cost, print_report, warning_lines
from innergrad.compiler import compile
from innergrad.errors import InputError
from innergrad.evidence.report import Report
from innergrad.figures import BLUE, GREY, ORANGE
from innergrad.files import Writer, make_folder
from innergrad.model.folder import check_folder
from innergrad.model.learning import draw_loss
from innergrad.transformer import CompiledTransformer, Run, reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_EXAMPLES, N_QUERY = 48, 100
EPSILON, BOX = 1e-3, 4.0  # of target relu
FILM = "demo.gif"


def diabetes(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """scikit-learn's diabetes data: X, y of the examples in the prompt, X, y of the queries; all standardised."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise InputError("the demo needs scikit-learn and matplotlib", hint="pip install 'innergrad[demo]'") from error
    inputs, targets = load_diabetes(return_X_y=True)
    X, y = torch.from_numpy(inputs), torch.from_numpy(targets).unsqueeze(-1)
    X, y = ((values - values.mean(0)) / values.std(0) for values in (X, y))
    chosen = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[: N_EXAMPLES + N_QUERY]
    X, y = X[chosen], y[chosen]
    return X[:N_EXAMPLES], y[:N_EXAMPLES], X[N_EXAMPLES:], y[N_EXAMPLES:]


@dataclass(frozen=True)
class Asked:
    """animate: also the film; verbose: also the tables."""

    target: str
    animate: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.target not in ("llama", "relu"):
            raise InputError("the demo has no such target", got=repr(self.target), allowed="llama, relu")


def run_demo(out: Path, asked: Asked, *, force: bool, seed: int, as_json: bool, quiet: bool) -> None:
    target, writer = asked.target, Writer("demo", force=force)
    for name in ("demo.json", "demo.png", *([FILM] if asked.animate else [])):
        writer.check(out / name)
    check_folder(out / "model", force)
    make_folder(out)
    console = Console(quiet=quiet or as_json)
    X, y, X_query, y_query = diabetes(seed)
    network, exact = Network([X.shape[1], 8, 8, 1], "tanh"), target == "llama"
    algorithm = GradientDescent(network, lr=0.5, steps=20, box=None if exact else BOX)
    with warning_lines(quiet or as_json), console.status("compiling, then learning inside one forward pass ..."):
        started = time.perf_counter()
        tf = compile(algorithm, target=target, n_examples=N_EXAMPLES, epsilon=None if exact else EPSILON)
        tf.save(out / "model", force=force)
        compiled = time.perf_counter()
        run = tf.run(X, y, X_query, executor="dense", seed=seed)
        finished = time.perf_counter()
        stock = stock_predictions(tf, X, y, X_query, seed) if exact and find_spec("transformers") else None
        report = tf.verify(X, y, X_query, seed=seed)
    trained = reference(algorithm, X, y, X_query, seed=seed)
    result = summary(tf, run, trained, report, X, y, y_query)
    if stock is not None:
        result["predictions_stock"] = stock.flatten().tolist()
    result["explained"] = explained(result, ridge(X, y, X_query))
    result |= {"compile_seconds": compiled - started, "forward_seconds": finished - compiled, "laws": report.to_json()}
    result["sentence"] = sentence(result)
    writer.json(out / "demo.json", result)
    draw(result, out / "demo.png", writer.mark)
    if asked.animate:
        with console.status("filming a forward pass ..."):
            draw_film(film(seed), out / FILM, writer.mark)
    if as_json:
        print(json.dumps(result))
        return
    if asked.verbose and not quiet:
        _print_tables(console, tf, result, report, trained, stock)
    console.print(result["sentence"], markup=False, highlight=False, soft_wrap=True)
    also = f", {FILM}" if asked.animate else ""
    hint = "" if asked.verbose else "; --verbose shows every step and every law"
    console.print(f"wrote {out / 'demo.png'}{also}, demo.json and model/{hint}", style="dim", soft_wrap=True)


def ridge(X: Tensor, y: Tensor, X_query: Tensor) -> list[float]:
    """Predictions of scikit-learn's ridge regression, with a penalty that it chooses by itself."""
    from sklearn.linear_model import RidgeCV

    chosen = RidgeCV(alphas=[10.0**k for k in range(-3, 5)]).fit(X.numpy(), y[:, 0].numpy())
    found: list[float] = chosen.predict(X_query.numpy()).tolist()
    return found


def explained(result: dict[str, Any], by_ridge: list[float]) -> dict[str, float]:
    """How much of the variance of the targets each explains, R^2: 1 is the truth, 0 what their mean would do."""
    truth = torch.tensor(result["targets"])
    total = (truth - truth.mean()).square().sum()
    guesses = {
        "in_context": result["predictions_in_context"],
        "gradient_descent": result["predictions_gd"],
        "ridge": by_ridge,
    }
    return {name: float(1 - (torch.tensor(one) - truth).square().sum() / total) for name, one in guesses.items()}


def sentence(result: dict[str, Any]) -> str:
    """What was learned, against the truth, against ridge regression, and against gradient descent itself."""
    who = f"this Llama of {result['blocks']} blocks" if result["target"] == "llama" else "this ReLU transformer"
    pairs = zip(result["predictions_in_context"], result["predictions_gd"], strict=True)
    apart = max(abs(a - b) for a, b in pairs)
    share = result["explained"]
    return (
        f"From {N_EXAMPLES} patients in its prompt {who} learned, in one forward pass, how diabetes progresses: for "
        f"{len(result['targets'])} new patients its predictions explain {share['in_context']:.0%} of the differences "
        f"(ridge regression: {share['ridge']:.0%}), and equal those of gradient descent to {apart:.0e} (in float64)."
    )


def _print_tables(
    console: Console,
    tf: CompiledTransformer,
    result: dict[str, Any],
    report: Report,
    trained: Run,
    stock: Tensor | None,
) -> None:
    print_cost(tf.cost())
    print_report("the diabetes data", report)
    _print_steps(console, result)
    if stock is not None:
        worst = float((stock - trained.predictions).abs().max())
        console.print(f"transformers.LlamaModel, unmodified, float32: predictions off by at most {worst:.1e}")
    console.print(
        f"compiled in {result['compile_seconds']:.1f} s; one forward pass of {tf.n_layers} + {tf.n_readout_layers} "
        f"layers: {result['forward_seconds']:.1f} s\n"
    )


def stock_predictions(tf: CompiledTransformer, X: Tensor, y: Tensor, X_query: Tensor, seed: int) -> Tensor:
    """What Hugging Face's class computes with the same weights, in float32."""
    from innergrad.export import to_llama

    w0 = tf.algorithm.initial_weights(seed)
    with torch.no_grad():
        hidden = to_llama(tf)(inputs_embeds=tf.stream(X, y, X_query, w0=w0, dtype=torch.float32)).last_hidden_state
    predictions: Tensor = tf.predictions(hidden, len(X_query))[0].double()
    return predictions


def summary(
    tf: CompiledTransformer, run: Run, trained: Run, report: Report, X: Tensor, y: Tensor, y_query: Tensor
) -> dict[str, Any]:
    """Everything the table and the figure show."""
    assert isinstance(tf.algorithm, GradientDescent)
    risk = tf.algorithm.risk
    data = X.expand(len(run.weights), -1, -1)
    return {
        "target": tf.options.target,
        "epsilon": report.epsilon,
        "layers": tf.n_layers,
        "blocks": tf.cost().blocks,
        "loss_gd": risk(trained.weights, data, y).tolist(),
        "loss_in_context": risk(run.weights, data, y).tolist(),
        "distance": (run.weights - trained.weights).norm(dim=-1).tolist(),
        "gradient_error": [error * report.epsilon for error in report.step_error],
        "predictions_gd": trained.predictions.flatten().tolist(),
        "predictions_in_context": run.predictions.flatten().tolist(),
        "targets": y_query.flatten().tolist(),
    }


def _print_steps(console: Console, result: dict[str, Any]) -> None:
    table = Table(title="Gradient descent, and the transformer that does it", title_justify="left")
    for column in ("step", "loss by GD", "loss in context", "||w - w_GD||"):
        table.add_column(column, justify="right")
    rows = zip(result["loss_gd"], result["loss_in_context"], result["distance"], strict=True)
    for step, (gd, in_context, distance) in enumerate(rows):
        table.add_row(str(step), f"{gd:.6f}", f"{in_context:.6f}", f"{distance:.2e}")
    console.print(table)


def draw(result: dict[str, Any], path: Path, mark: str | None = None) -> None:
    """Loss of both, predictions of both, error per step."""
    with figures.new(1, 3, size=(14, 4.8)) as (figure, axes):
        steps, by = range(len(result["loss_gd"])), "gradient descent (autograd)"
        draw_loss(axes[0], steps, result["loss_in_context"], result["loss_gd"], by)
        _draw_predictions(axes[1], result)
        _draw_error(axes[2], result)
        figure.suptitle(_title(result))
        figures.save(figure, path, mark=mark)


def _title(result: dict[str, Any]) -> str:
    who = f"A {result['layers']}-layer ReLU transformer"
    if result["target"] == "llama":
        who = f"{'An unmodified' if 'predictions_stock' in result else 'A'} Llama of {result['blocks']} blocks"
    share, queries = result["explained"], len(result["targets"])
    return (
        f"{who} trains a 3-layer tanh network on the diabetes data, inside its forward pass\n"
        f"Variance explained among {queries} new patients: {share['in_context']:.0%} in context, "
        f"{share['ridge']:.0%} by ridge regression"
    )


def _draw_predictions(ax: Axes, result: dict[str, Any]) -> None:
    by_gd, read = result["predictions_gd"], result.get("predictions_stock", result["predictions_in_context"])
    low, high = min(by_gd + read), max(by_gd + read)
    ax.plot([low, high], [low, high], color=GREY, lw=1, zorder=0)
    ax.scatter(by_gd, read, s=22, color=ORANGE, edgecolor="white", lw=0.4)
    worst = max(abs(a - b) for a, b in zip(by_gd, read, strict=True))
    ax.set(title=f"{len(result['targets'])} held-out predictions", xlabel="network trained by gradient descent")
    ax.set_ylabel("LlamaModel, float32" if "predictions_stock" in result else "transformer, read off the query token")
    ax.text(0.05, 0.92, f"largest difference {worst:.1e}", transform=ax.transAxes, color=GREY)


def _draw_error(ax: Axes, result: dict[str, Any]) -> None:
    steps, exact = range(1, len(result["distance"])), result["target"] == "llama"
    unit = torch.finfo(torch.float64).eps if exact else EPSILON
    name, height = ("dashed: float64's $2^{-52}$", unit / 4) if exact else (r"$\epsilon$", unit)
    ax.axhline(unit, color=GREY, lw=1, ls="--")
    ax.text(len(result["distance"]) - 1, height, name, color=GREY, va="bottom", ha="right")
    ax.semilogy(
        steps, result["gradient_error"], "s-", color=ORANGE, ms=4, lw=1, label="error of the gradient, per step"
    )
    ax.semilogy(steps, result["distance"][1:], color=BLUE, lw=2.5, label=r"distance of the weights $\|w - w_{GD}\|$")
    ax.set(
        title="Error per step",
        xlabel="step",
        ylabel="l2 norm",
        xlim=(0, len(result["distance"]) - 0.5),
        ylim=(unit / 20, unit * (1e3 if exact else 20)),
    )
    figures.whole_numbers(ax)
    ax.legend()
