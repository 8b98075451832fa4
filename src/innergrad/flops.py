"""How many operations a computation takes. One way to count, for programs, for the weights they become, for learners
of the lab, and for networks that are trained directly.

    products    a multiplication and the addition after it are two, as in Hoffmann et al. (2022) and as
                ``torch.utils.flop_counter`` has it, which counts these and nothing else
    functions   operations on single numbers: a ReLU, a tanh, an exponential, an addition is one each; a softmax
                is three an entry (exponential, sum, division)

Left out, as smaller by the width of a layer: biases, residual connections, norms and masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SOFTMAX = 3  # operations an entry


@dataclass(frozen=True)
class Flops:
    """Operations of products, and of functions."""

    products: int = 0
    functions: int = 0

    @property
    def total(self) -> int:
        return self.products + self.functions

    def __add__(self, other: Flops) -> Flops:
        return Flops(self.products + other.products, self.functions + other.functions)

    def __mul__(self, times: int) -> Flops:
        return Flops(self.products * times, self.functions * times)

    __rmul__ = __mul__


def total(parts: Iterable[Flops]) -> Flops:
    return sum(parts, Flops())


def product(*sizes: int) -> Flops:
    """A contraction with these index ranges, summed indices among them: (m, k) by (k, n) is ``product(m, k, n)``."""
    return Flops(2 * math.prod(sizes))


def functions(count: int, each: int = 1) -> Flops:
    """A function of so many numbers; each: its operations."""
    return Flops(0, count * each)


def feature_sum(count: int, terms: int) -> Flops:
    """sum_m c_m phi(a_m t + b_m) at so many t, as heads and units compute it: two multiply-adds and phi a term."""
    return product(2, count, terms) + functions(count, terms)


def attention(heads: int, pairs: int, d_qk: int, d_v: int, each: int = 1) -> Flops:
    """Scores of so many pairs of tokens, a function of each, and the sum of values; not the projections."""
    return product(heads, pairs, d_qk + d_v) + functions(heads * pairs, each)


def mlp(tokens: int, d_model: int, units: int, *, gated: bool = False) -> Flops:
    """Into the units, their function, and out of them. gated: into their second factors, too, and one product each."""
    return product(2 + gated, tokens, d_model, units) + functions(tokens * units, 1 + gated)


def network(sizes: Sequence[int], rows: int) -> Flops:
    """A forward pass of a network with these layer sizes."""
    return total(product(rows, a, b) + functions(rows * b) for a, b in pairwise(sizes))


def gradient_step(sizes: Sequence[int], rows: int) -> Flops:
    """A step of gradient descent on so many examples: forward, backward, update.

    Backward: the gradient of every matrix, of the input of all but the first, and for every unit its derivative and
    the product with it; for every output the derivative of the loss. Update: two operations a weight.
    """
    weights = [a * b for a, b in pairwise(sizes)]
    backward = product(rows, sum(weights)) + product(rows, sum(weights[1:])) + functions(rows * sum(sizes[1:]), 2)
    return network(sizes, rows) + backward + functions(rows * sizes[-1]) + functions(sum(weights), 2)
