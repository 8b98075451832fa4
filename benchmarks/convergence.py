"""Lemma 14 against what a transformer does: its bound on the gradient mapping beside the measured norms.

Writes results/convergence.json and docs/convergence.png. The step-size condition eta <= 1/L_f is met: L_f is a proven
bound for the whole declared domain, so the domain is small and the steps are many.
"""

from __future__ import annotations

from pathlib import Path

import torch

import innergrad as ig
from _results import store
from innergrad.evidence.bounds import draw_convergence, gradient_mapping

PICTURE = Path(__file__).parent.parent / "docs" / "convergence.png"
SIZES, BOX, RATE, STEPS, EXAMPLES, EPSILON = [2, 4, 1], 0.5, 0.06, 1000, 16, 1e-3


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
    main()
