"""How few blocks a step takes: what docs/reference/llama.md counts, against autograd and against the transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig

DEPTHS = range(2, 9)


class Symbols(torch.autograd.Function):
    """An activation whose value p and derivative d have nothing to do with each other."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, p: Tensor, d: Tensor) -> Tensor:
        ctx.save_for_backward(d)
        return p.expand_as(z).clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] * ctx.saved_tensors[0], None, None


def gradient(p: float, d: float, v: float, below: float) -> float:
    """Of (v p - y)^2 in the weight w of p = r(w below), by autograd."""
    w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    value, slope = (torch.tensor(number, dtype=torch.float64) for number in (p, d))
    out: Any = Symbols.apply(w * below, value, slope)
    (found,) = torch.autograd.grad((v * out - 0.3) ** 2, w)
    return float(found)


@pytest.mark.parametrize(("v", "below"), [(1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (0.5, -2.0)])
def test_a_gradient_has_a_product_of_both_symbols_with_a_coefficient_that_varies(v: float, below: float) -> None:
    """2 v^2 below: a single mlp of degree two behind the symbols has constants there."""
    corners = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    a, b, c, e = (gradient(p, d, v, below) for p, d in corners)
    assert a - b - c + e == pytest.approx(2 * v**2 * below)


def weight(N: int, squared: bool) -> int:
    """Of the monomial of G_1 that weighs most: a symbol that MLP a is the first to read weighs 2^a, x weighs one.

    squared: p_{N-1} d_{N-1} .. d_1  V_N^2 V_{N-1} .. V_2  x
    others:  g d_{N-1} .. d_1  V_N .. V_2  x, g read by MLP N
    """
    slopes = sum(2**j for j in range(1, N))
    return slopes + (2 ** (N - 1) + N if squared else 2**N + N - 1) + 1


def fewest(N: int, squared: bool) -> int:
    """Blocks: MLPs 0 to T, with 2^(T + 1) at least the weight."""
    return next(T + 1 for T in range(4 * N) if weight(N, squared) <= 2 ** (T + 1))


def test_the_count_of_the_page() -> None:
    assert [fewest(N, squared=True) for N in DEPTHS] == [N + 1 for N in DEPTHS]
    assert [fewest(N, squared=False) for N in DEPTHS] == [3, *(N + 2 for N in DEPTHS if N > 2)]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_what_attention_multiplies_is_what_is_shorter(loss: str) -> None:
    """chain and wide are of the kind that the count is about; widest and shortest are not."""
    for N in (2, 3, 4):
        algorithm = ig.GradientDescent(ig.Network([2, *[2] * (N - 1), 1]), loss=loss, steps=1, box=None)
        least = fewest(N, loss == "squared")

        def blocks(variant: str, algorithm: ig.GradientDescent = algorithm) -> float:
            return ig.compile(algorithm, target="llama", variant=variant).cost().blocks_a_step

        assert min(blocks("chain"), blocks("wide")) >= least
        assert blocks("widest") == N + 1 <= least
        assert loss != "squared" or blocks("shortest") == N < least
