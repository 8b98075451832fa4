"""Decision trees (Garg et al.): every inner node asks for the sign of one coordinate, every leaf has a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import integer
from innergrad.lab.baselines import Boosting, Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task


@dataclass(frozen=True)
class DecisionTrees(Task, kind="decision-tree"):
    """Full binary trees. A node looks at one coordinate.

    From node v, a positive number goes to node 2v + 2, any other to node 2v + 1.

    ``feature`` (B, 2^depth - 1) is uniform over the coordinates, with repetition. ``leaf`` (B, 2^depth) is N(0, 1), so
    labels have mean square 1 whatever the inputs.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        depth: of a tree.
    """

    depth: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("depth", self.depth, high=12)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        feature = rng.fork("feature").integers(index, self.d, 2**self.depth - 1)
        return {"feature": feature, "leaf": rng.normal(index, 2**self.depth)}

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        node = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
        for _ in range(self.depth):
            coordinate = params["feature"].gather(1, node)
            value = x.gather(2, coordinate[:, :, None])[:, :, 0]
            node = 2 * node + 1 + (value > 0)
        return params["leaf"].gather(1, node - (2**self.depth - 1))

    def best(self) -> Predictor:
        """Gradient boosting, the strongest known; Garg et al. found that trained transformers beat it by far."""
        return Boosting()
