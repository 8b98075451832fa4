"""Target architectures: how a program becomes the weights of a transformer."""

from __future__ import annotations

from innergrad.targets import relu_lowering
from innergrad.targets.base import LoopedTransformer, Sublayer, Target
from innergrad.targets.relu import Mlp, Product, ReluAttention
from innergrad.targets.relu_cost import relu_cost

TARGETS: dict[str, Target] = {
    "relu": Target(
        variants=("literal",),
        check=relu_lowering.check,
        lower=relu_lowering.lower,
        cost=relu_cost,
        modules={"attention": ReluAttention, "product": Product, "mlp": Mlp},
    ),
}

__all__ = ["TARGETS", "LoopedTransformer", "Sublayer", "Target"]
