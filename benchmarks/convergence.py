"""Lemma 14 against what a transformer does: its bound on the gradient mapping beside the measured norms.

Writes results/convergence.json and docs/convergence.png. The step-size condition eta <= 1/L_f is met: L_f is a proven
bound for the whole declared domain, so the domain is small and the steps are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import innergrad as ig
from _results import no_arguments, store
from innergrad import figures
from innergrad.evidence.bounds import DomainCertificate

PICTURE = Path(__file__).parent.parent / "docs" / "convergence.png"
SIZES, BOX, RATE, STEPS, EXAMPLES, EPSILON = [2, 4, 1], 0.5, 0.06, 1000, 16, 1e-3


def gradient_mapping(algorithm: ig.GradientDescent, weights: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """||G(w)|| for every w of a run of one prompt, by autograd: weights (steps + 1, D_w) -> (steps + 1,)."""
    norms = []
    for w in weights.detach():
        variable = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(algorithm.risk(variable, X, y), variable)
        after = w - algorithm.lr * (gradient + algorithm.weight_decay * w)
        after = after if algorithm.box is None else after.clamp(-algorithm.box, algorithm.box)
        norms.append(((w - after) / algorithm.lr).norm())
    return torch.stack(norms)


def draw_convergence(certificate: DomainCertificate, norms: Sequence[float], risk0: float, path: str | Path) -> Path:
    """Lemma 14 against what was measured, as a PNG: squared norms of the gradient mapping, and their bound.

    norms: ||G(w_l)|| for l = 0, 1, ..., from :func:`gradient_mapping`. Needs matplotlib, of the extra ``demo``.
    """
    steps = range(1, len(norms) + 1)
    squares = torch.tensor([float(norm) ** 2 for norm in norms], dtype=torch.float64)
    bounds = [certificate.lemma14(count, risk0) for count in steps]
    means, least = squares.cumsum(0) / torch.arange(1, len(norms) + 1), squares.cummin(0).values
    with figures.new(size=(6.4, 4.0)) as (figure, (ax,)):
        if math.isfinite(bounds[0]):
            ax.plot(steps, bounds, color=figures.DARK, label="Lemma 14, corrected: on the mean so far")
        ax.plot(steps, means.tolist(), color=figures.BLUE, label="mean so far")
        ax.plot(steps, least.tolist(), "--", color=figures.ORANGE, label="least so far")
        ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="squared norm of the gradient mapping")
        met = "met" if certificate.step_size_met else "not met: no bound"
        ax.set_title(f"lr = {certificate.lr:g} <= 1/L_f = {1.0 / certificate.lipschitz:.3g}: {met}")
        ax.legend()
        return figures.save(figure, path)


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    network = ig.Network(SIZES, "tanh")
    algorithm = ig.GradientDescent(network, lr=RATE, steps=STEPS, box=BOX)
    tf = ig.compile(algorithm, epsilon=EPSILON, n_examples=EXAMPLES, x_bound=1.0, y_bound=1.0)
    X = 2 * torch.rand(EXAMPLES, 2, generator=generator, dtype=torch.float64) - 1
    y = torch.sin(2 * X.sum(-1, keepdim=True))
    run = tf.run(X, y, w0=network.init(0).clamp(-BOX, BOX))
    norms = gradient_mapping(algorithm, run.weights[:-1], X, y)
    certificate, risk = tf.certificate, float(algorithm.risk(run.weights[0], X, y))
    rows = [
        {
            "steps": steps,
            "bound": certificate.lemma14(steps, risk),
            "mean": float(norms[:steps].square().mean()),
            "least": float(norms[:steps].square().min()),
        }
        for steps in (1, 3, 10, 30, 100, 300, 1000)
    ]
    data = {
        "settings": {"sizes": SIZES, "box": BOX, "lr": RATE, "examples": EXAMPLES, "epsilon": EPSILON},
        "lipschitz": certificate.lipschitz,
        "gradient_error": certificate.best,
        "step_size_met": certificate.step_size_met,
        "rows": rows,
    }
    store("convergence", "python benchmarks/convergence.py", data)
    draw_convergence(certificate, norms.tolist(), risk, PICTURE)
    print(f"wrote docs/{PICTURE.name}")


if __name__ == "__main__":
    no_arguments(__doc__)
    main()
