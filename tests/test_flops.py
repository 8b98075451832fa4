"""The one counter of operations, against ``torch.utils.flop_counter``, which sees products and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import innergrad as ig
from innergrad import flops
from innergrad.flops import Flops
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret.counts import function_flops
from innergrad.lab.learners.base import LearnerConfig
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.transformer import CompiledTransformer


def seen_by_torch(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5), rows=st.integers(1, 7))
def test_training_a_network(sizes: list[int], rows: int) -> None:
    modules = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b, bias=False), nn.Tanh())]
    model, x, y = nn.Sequential(*modules), torch.randn(rows, sizes[0]), torch.randn(rows, sizes[-1])
    assert seen_by_torch(lambda: model(x)) == flops.network(sizes, rows).products
    assert seen_by_torch(lambda: ((model(x) - y) ** 2).sum().backward()) == flops.gradient_step(sizes, rows).products
    units = sum(sizes[1:])
    weights = sum(p.numel() for p in model.parameters())
    assert flops.network(sizes, rows).functions == rows * units
    assert flops.gradient_step(sizes, rows).functions == 3 * rows * units + rows * sizes[-1] + 2 * weights


LEARNERS: dict[str, LearnerConfig] = {
    "gpt": GPTConfig(n_layers=2, d_model=16, n_heads=4, d_mlp=24),
    "relu": GPTConfig(n_layers=3, d_model=12, n_heads=2, d_mlp=0, attention="relu", positions="none"),
    "columns": GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8, tokens="columns"),
    "kernel": KernelLearnerConfig(n_layers=3, heads=("softmax", "relu")),
    "kernel with A": KernelLearnerConfig(n_layers=2, heads=("exp",), free_A=True),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(("d", "n_points"), [(3, 6), (5, 2)])
def test_learners(name: str, d: int, n_points: int) -> None:
    """Through ``keep``, so that attention is plain products: torch does not see into kernels of our own."""
    config = LEARNERS[name]
    learner = config.build(d, n_points).init([0])
    x, y = torch.randn(1, 1, n_points, d), torch.randn(1, 1, n_points)
    counted = config.flops(d, n_points)
    assert counted is not None
    assert seen_by_torch(lambda: learner(x, y, keep=lambda _, value: value)) == counted.products
    assert counted.functions > 0


def test_what_a_causal_mask_saves() -> None:
    config = GPTConfig(n_layers=1, d_model=8, n_heads=2, d_mlp=0)
    whole, seen, tokens = config.flops(3, 5), config.flops(3, 5, seen=True), 9
    hidden = tokens * (tokens - 1) // 2
    assert whole.products - seen.products == 2 * hidden * 8 * 2
    assert whole.functions - seen.functions == hidden * 2 * flops.SOFTMAX


def test_a_learner_of_which_nobody_knows() -> None:
    assert LearnerConfig().flops(3, 5) is None


# ---------------------------------------------------------------------------------------------------------- programs


def compiled(n: int = 3, epsilon: float = 0.1) -> CompiledTransformer:
    network = ig.Network([2, 3, 2], "tanh", output="activation", bias=False)
    algorithm = ig.GradientDescent(network, "log-cosh", lr=0.5, steps=1, box=4.0)
    return ig.compile(algorithm, target="relu", epsilon=epsilon, n_examples=n)


def square(weight: Tensor, D: int) -> Tensor:
    """(heads, r, c) -> (heads, D, D), zeros around."""
    _, rows, columns = weight.shape
    return nn.functional.pad(weight, (0, D - columns, 0, D - rows))


def test_matrices_of_a_compiled_transformer() -> None:
    """The layers of Definitions 6, 7 and 8 with D x D matrices, written out, on the weights: the same stream, and the
    products that the cost counts; the rest is a ReLU for every score and unit.
    """
    tf = compiled()
    D, rows = tf.d_model, tf.cost().rows
    X, y = torch.randn(3, 2, dtype=torch.float64), torch.rand(3, 2, dtype=torch.float64) - 0.5
    h = tf.stream(X, y, X[:1], w0=torch.randn(12, dtype=torch.float64))[0]
    tokens = len(h)
    for layer, row in zip(tf.module.layers(), rows, strict=True):
        if row.kind == "mlp":
            W_1, W_2 = layer.W_1.weight[0], layer.W_2.weight[0]
            made: Callable[[Tensor], Tensor] = lambda h, a=W_1, b=W_2: h + torch.relu(h @ a.T) @ b.T  # noqa: E731
            units = tokens * row.heads
        else:
            Q, K = square(layer.W_Q.weight, D), square(layer.W_K.weight, D)
            V, own = layer.W_O.weight @ layer.W_V.weight, row.kind == "product"
            made = lambda h, Q=Q, K=K, V=V, own=own: heads_of(h, Q, K, V, own)  # type: ignore[misc]  # noqa: E731
            units = 0 if own else row.heads * tokens**2
        seen = seen_by_torch(lambda made=made, h=h: made(h))  # type: ignore[misc]
        assert row.flops_dense == seen + units, layer.name
        expected = layer(h[None])[0]
        torch.testing.assert_close(made(h), expected, rtol=1e-9, atol=1e-9)
        h = expected


def heads_of(h: Tensor, Q: Tensor, K: Tensor, V: Tensor, own: bool) -> Tensor:
    q, k, v = (h @ M.mT for M in (Q, K, V))
    if own:  # a token's score with itself, and its value: products of 1 x D by D x 1 and of 1 x 1 by 1 x D
        scores = torch.bmm(q.flatten(0, 1)[:, None], k.flatten(0, 1)[:, :, None])
        return h + torch.bmm(scores, v.flatten(0, 1)[:, None]).view(v.shape).sum(0)
    return h + (torch.relu(q @ k.mT) @ v).sum(0) / len(h)


def test_a_program_counts_its_functions() -> None:
    """r at every unit of every token: so many hinges, four operations of products and a ReLU each."""
    tf, tokens = compiled(), 4
    terms = len(tf.approximants["tanh"].hinges)
    row = next(row for row in tf.cost().rows if row.name == "forward 1")
    arguments = tokens * 3
    inner, added = 2 * arguments * 2, 2 * arguments
    assert row.flops_structured == inner + added + 5 * arguments * terms
    fine = next(row for row in compiled(epsilon=1e-3).cost().rows if row.name == "forward 1")
    assert fine.flops_structured > row.flops_structured


def test_functions() -> None:
    f = compiled().approximants["tanh"]
    assert function_flops(f, 7) == Flops(4 * 7 * len(f.hinges), 7 * len(f.hinges))
    assert function_flops(IDENTITY, 7) == Flops()
    assert 3 * Flops(1, 2) + Flops(1, 1) == Flops(4, 7)
    assert Flops(4, 7).total == 11
