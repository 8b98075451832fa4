"""Variant markers of targets softmax and gpt: one head a neuron, products by fits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import innergrad as ig
from innergrad.export.gpt2 import gpt2_inputs, gpt2_stream, to_gpt2
from test_llama import descent

TARGETS = ("softmax", "gpt")
CASES = {
    "one layer": descent([3, 2]),
    "tanh": descent([2, 4, 4, 1]),
    "sigmoid, cross-entropy": descent([2, 4, 3], "sigmoid", loss="softmax", bias=False),
    "logistic, momentum, box": descent([2, 3, 1], loss="logistic", momentum=0.9, weight_decay=0.01, box=1.6),
    "log-cosh, activated": descent([2, 3, 2], "sigmoid", "activation", loss="log-cosh"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_gradient_descent(name: str, target: str) -> None:
    """The program has no approximation but a box, to epsilon = 1e-9; the matrices have fits of products."""
    algorithm = CASES[name]
    tf = ig.compile(algorithm, target=target, variant="markers")
    assert tf.state == "measured"
    X, y, X_query = algorithm.random_prompt(6, 3, torch.Generator().manual_seed(0))
    weight = torch.tensor([1.0, 2.0, 0.5, 0.0, 1.0, 1.0], dtype=torch.float64)
    reference = ig.reference(algorithm, X, y, X_query, sample_weight=weight)
    allowed = {("plain", torch.float64): 1e-13, ("dense", torch.float64): 1e-11, ("dense", torch.float32): 2e-4}
    if algorithm.box is not None:
        allowed = {("plain", torch.float64): 1e-8, ("dense", torch.float64): 1e-8}
    for (executor, dtype), most in allowed.items():
        run = tf.run(X, y, X_query, sample_weight=weight, executor=executor, dtype=dtype)
        torch.testing.assert_close(run.weights.double(), reference.weights, rtol=most, atol=most)
        torch.testing.assert_close(run.predictions.double(), reference.predictions, rtol=most, atol=most)


@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_other_activations_are_a_block_more(activation: str) -> None:
    algorithm = descent([2, 3, 3, 1], activation, steps=2)
    tf = ig.compile(algorithm, target="softmax", variant="markers")
    assert tf.cost().layers_a_step == 2 * 3 + 2
    X, y, X_query = algorithm.random_prompt(6, 3, torch.Generator().manual_seed(0))
    run, reference = tf.run(X, y, X_query, executor="dense"), ig.reference(algorithm, X, y, X_query)
    torch.testing.assert_close(run.weights, reference.weights, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("target", TARGETS)
def test_heads_and_blocks(target: str) -> None:
    """As many heads as neurons in the largest layer; 2N blocks a step, one more for an activated output or a box."""

    def cost(variant: str = "markers", **settings: Any) -> Any:
        return ig.compile(descent([2, 4, 3, 1], **settings), target=target, variant=variant).cost()

    found = cost()
    assert found.totals()["heads of the widest layer"] == 4
    assert found.layers_a_step == 6 < cost({"softmax": "sink", "gpt": "pre-ln"}[target]).layers_a_step
    assert cost(loss="log-cosh").layers_a_step == 6
    assert cost(output="activation").layers_a_step == cost(box=1.0).layers_a_step == 7


def test_a_step_in_stock_gpt2() -> None:
    pytest.importorskip("transformers")
    algorithm = descent([2, 4, 1], steps=3)
    tf = ig.compile(algorithm, target="gpt", variant="markers", n_examples=6)
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(0))
    model = to_gpt2(tf, torch.float64)
    with torch.no_grad():
        hidden = model(**gpt2_inputs(tf, tf.stream(X, y, X_query), torch.float64)).last_hidden_state
    found = tf.program.stream.unpack(gpt2_stream(tf, hidden))["z2"][0, -2:]
    torch.testing.assert_close(found, ig.reference(algorithm, X, y, X_query).predictions, rtol=1e-10, atol=1e-10)


def test_it_is_of_gradient_descent_alone() -> None:
    with pytest.raises(ig.InputError, match=r"no program for variant 'markers' of target 'gpt'.*pre-ln, raw"):
        ig.compile(ig.OnlineSGD(d=2), target="gpt", variant="markers")
