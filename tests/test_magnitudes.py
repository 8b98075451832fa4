"""Bounds on lanes are never exceeded by the plain interpreter, and are attained where they should be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad import IDENTITY, NEGATION, Attend, Lane, Layer, Loop, Program, Score
from innergrad.interpret import plain
from magnitudes import magnitudes

ROUNDING = 1 + 1e-12


def uniform(size: float, *shape: int, generator: torch.Generator) -> Tensor:
    """With every tenth entry or so at an end."""
    t = torch.empty(*shape, dtype=torch.float64).uniform_(-1.1, 1.1, generator=generator)
    return size * t.clamp(-1, 1)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
@pytest.mark.parametrize("exact", [False, True])
def test_no_lane_exceeds_its_bound(activation: str, exact: bool) -> None:
    network = ig.Network([2, 3, 1], activation=activation)
    tf = ig.compile(
        ig.GradientDescent(network, steps=1, lr=0.3, box=None),
        target="relu",
        variant="literal",
        n_examples=8,
        epsilon=0.05,
    )
    sizes, n, n_query = {"x": 1.5, "y": 2.0, "w": 0.7}, 8, 2
    given = {"x": sizes["x"], "y": sizes["y"], "omega": (n + n_query) / n}
    given |= {lane.name: sizes["w"] for lane in tf.program.weights}
    slack = {} if exact else {name: f.error for name, f in tf.approximants.items()}
    bounds = list(magnitudes(tf.program, given, n + n_query, slack))
    generator, ratio = torch.Generator().manual_seed(0), 0.0
    for _ in range(50):
        X, Xq = (uniform(sizes["x"], 4, m, 2, generator=generator) for m in (n, n_query))
        y = uniform(sizes["y"], 4, n, 1, generator=generator)
        w0 = uniform(sizes["w"], 4, tf.program.n_weights, generator=generator)
        trace = tf.trace(X, y, Xq, w0=w0, executor="plain")
        if exact:
            run = plain.run(tf.program, trace[0][1], tf.program.functions())
            trace = trace[:1] + [(layer.name, state) for layer, state, _ in run]
        for (name, bound), (same, state) in zip(bounds, trace[1:], strict=True):
            assert name == same
            for lane, value in state.items():
                assert float(value.abs().max()) <= bound[lane] * ROUNDING, (name, lane)
                if bound[lane] and lane in ("p1", "p2", "g", "s1", "s2"):
                    ratio = max(ratio, float(value.abs().max()) / bound[lane])
    assert ratio > 0.4  # not vacuous


def test_it_can_be_attained() -> None:
    """y = <x, w> of 3 entries, then times -2, then cleared."""
    stream = ig.example_stream(3, 1, Lane("w", (3,), "weight"), Lane("p"), Lane("q", (1,)))
    layers = (
        Layer("any", "p", (Attend("p", Score(IDENTITY, ("x[c]", "w[c]"))),)),
        Layer("any", "q", (Attend("q[0]", value="p", scale=-2.0, scope="all", reduce="mean"),)),
        Layer("any", "clear", ig.pointwise(NEGATION, (stream["p"], stream["q"]))),
    )
    program = Program(stream, (Loop(1, layers),), (), "q")
    found = [
        {k: v[k] for k in ("p", "q")} for _, v in magnitudes(program, {"x": 2.0, "w": 0.5, "y": 1.0, "omega": 1.0})
    ]
    assert found == [{"p": 3.0, "q": 0.0}, {"p": 3.0, "q": 6.0}, {"p": 0.0, "q": 0.0}]
