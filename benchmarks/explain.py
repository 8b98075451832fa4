"""The demo, explained: bound and measured error of every step and layer, and its health.

Writes results/explain.json and docs/explain.png.
"""

from __future__ import annotations

from pathlib import Path

import torch

import innergrad as ig
from _results import no_arguments, store
from innergrad.cli.demo import EPSILON, N_EXAMPLES, diabetes
from innergrad.evidence.explain import draw

PICTURE = Path(__file__).parent.parent / "docs" / "explain.png"


def main() -> None:
    torch.set_num_threads(1)
    X, y, _, _ = diabetes(0)
    algorithm = ig.GradientDescent(ig.Network([X.shape[1], 8, 8, 1], "tanh"), lr=0.5, steps=20)
    tf = ig.compile(algorithm, epsilon=EPSILON, n_examples=N_EXAMPLES)
    explanation, attack = tf.explain(X, y), tf.attack()
    store("explain", "python benchmarks/explain.py", {**explanation.to_json(), "attack": attack.to_json()})
    draw(explanation, PICTURE)
    print(f"wrote docs/{PICTURE.name}")


if __name__ == "__main__":
    no_arguments(__doc__)
    main()
