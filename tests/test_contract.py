"""The fused executor on target llama: what attention over markers and products of products become, in operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import innergrad as ig
from cases import CASES
from innergrad.interpret import contract, symbolic
from innergrad.interpret.fused import Extent, Kernel
from innergrad.interpret.graph import Graph, Node, indices
from innergrad.interpret.marks import Mixture, together

LOG_2 = 0.6931471805599453
TANH = Mixture((0.0, 2.0, 4.0), (0.0, LOG_2, 0.0), (-1.0, 0.0, 1.0))
SLOPE = Mixture((0.0, 2.0, 4.0), (0.0, LOG_2, 0.0), (0.0, 2.0, 0.0))


def step_of(algorithm: ig.GradientDescent, **how: Any) -> tuple[ig.CompiledTransformer, Graph]:
    """The transformer, and the graph of its steps."""
    tf = ig.compile(algorithm, **how)
    return tf, tf.fused.loops[-1][1]


def matrices(of: Graph) -> list[Node]:
    return [n for n in of.nodes if n.op == "product" and len(set(indices("".join(used for _, used in n.args)))) > 1]


# -------------------------------------------------------------------------------------------------- back-propagation


@pytest.mark.parametrize("variant", ["chain", "wide"])
@pytest.mark.parametrize("loss", ["squared", "log-cosh", "logistic", "softmax"])
@pytest.mark.parametrize("N", [1, 2, 3, 5])
def test_the_graph_is_back_propagation(N: int, loss: Any, variant: str) -> None:
    """One product forward and two back for each layer, fewer at the ends; every function once; no token has a matrix,
    nothing is kept but weights, and nobody but examples takes part.
    """
    network = ig.Network([3, *[4] * (N - 1), 2])
    tf, of = step_of(ig.GradientDescent(network, loss=loss, steps=2, box=None), target="llama", variant=variant)
    assert len(matrices(of)) == 3 * N - 1
    own = {"squared": 0, "softmax": 0}.get(loss, 1)
    assert sum(n.op == "apply" and n.per_token for n in of.nodes) == 2 * (N - 1) + own
    assert sum(n.op == "normalise" for n in of.nodes) == (loss == "softmax")
    assert all(len(n.sizes) <= 1 for n in of.nodes if n.per_token)
    assert not any(n.op in ("softmax", "mask") for n in of.nodes)
    assert set(of.results) == {lane.name for lane in tf.program.weights}
    assert tf.fused.demos_suffice


@pytest.mark.parametrize(("activation", "settings"), [("sigmoid", {"momentum": 0.9}), ("silu", {}), ("relu", {})])
@pytest.mark.parametrize("sizes", [(2, 8, 8, 1), (6, 5, 4, 3, 2), (64, 24, 10)])
def test_a_step_is_the_work_of_one_on_target_relu(sizes: tuple[int, ...], activation: str, settings: Any) -> None:
    """Entries that the operations go through: to 15 %, of which most are weights of the examples."""
    algorithm = ig.GradientDescent(ig.Network(list(sizes), activation), steps=2, box=None, **settings)
    relu, llama = (contract.work(step_of(algorithm, target=target)[1]) for target in ("relu", "llama"))
    assert llama <= 1.15 * relu


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("llama")])
def test_target_llama_is_compiled(name: str) -> None:
    """Where all tokens but markers mind their own business, and no function is fitted."""
    if any(word in name for word in ("widest", "shortest", "by fits")):
        assert isinstance(CASES[name].tf.fused.native, str)
        return
    native = CASES[name].tf.fused.native
    assert not isinstance(native, str), native


def test_the_order_of_products_does_not_change_them() -> None:
    """A graph before and after, in numbers; products that are not cheaper otherwise are left as they are."""
    program = ig.compile(
        ig.GradientDescent(ig.Network([6, 8, 8, 8, 2]), box=None), target="llama", variant="wide"
    ).program
    layers, zero = program.body[-1].layers, symbolic.zero_lanes(program, "scratch")
    before = symbolic.Symbols(program, layers, program.functions(), lambda layer: {}, zero).graph
    after = contract.cheapest(before)
    assert contract.work(after) < contract.work(before) / 4
    assert contract.cheapest(after) is after
    generator = torch.Generator().manual_seed(0)
    state = {
        lane.name: torch.randn((*([7] * (not lane.shared)), *lane.shape), generator=generator, dtype=torch.float64)
        for lane in program.stream.lanes
    } | {"t": torch.ones(7, dtype=torch.float64)}
    extent = Extent(7, False, torch.float64, torch.device("cpu"))
    found = [Kernel(of, extent, state).step(state)[0] for of in (before, after)]
    for name in before.results:
        torch.testing.assert_close(found[1][name], found[0][name], rtol=1e-12, atol=1e-12)


# ----------------------------------------------------------------------------------------------- functions of markers


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_mixture_is_the_function(dtype: torch.dtype) -> None:
    z = torch.cat([torch.linspace(-30, 30, 2001, dtype=dtype), torch.tensor([-1e6, 1e-12, 0.0, 1e6], dtype=dtype)])
    tanh, slope = together((TANH, SLOPE), z)
    eps = torch.finfo(dtype).eps
    assert float((tanh - torch.tanh(z.double())).abs().max()) <= 4 * eps
    assert float((slope - 1 / torch.cosh(z.double().clamp(-300, 300)) ** 2).abs().max()) <= 4 * eps


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_the_kernel_has_the_same_functions(scale: float, dtype: torch.dtype) -> None:
    """tanh, its derivative and the softmax of logits, at arguments of any size: compiled, and by torch."""
    algorithm = ig.GradientDescent(
        ig.Network([5, 7, 6, 4]), loss="softmax", lr=0.1 / max(scale, 1.0), steps=3, box=None
    )
    tf = ig.compile(algorithm, target="llama", n_examples=37)
    generator = torch.Generator().manual_seed(1)
    X = scale * torch.randn(2, 37, 5, generator=generator, dtype=torch.float64)
    y = torch.nn.functional.one_hot(torch.randint(4, (2, 37), generator=generator), 4)
    w0 = torch.stack([algorithm.network.init(seed) for seed in range(2)])
    runs = [tf.run(X, y, X, w0=w0, executor="fused", dtype=dtype, compiled=compiled) for compiled in (True, False)]
    limit = 500 * torch.finfo(dtype).eps
    assert float((runs[0].weights - runs[1].weights).abs().max()) <= limit
    assert float((runs[0].predictions - runs[1].predictions).abs().max()) <= limit * scale
