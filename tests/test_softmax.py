"""Target ``softmax``, variants ``sink`` and ``mean``: gradient descent in blocks without LayerNorm, run as matrices.

The oracles are autograd on networks written out here, and torch's own sigmoid, tanh and softmax.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from innergrad.functions.fits import gelu, smooth
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.mlps import FeedForward

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu": torch.relu,
}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda t, y: (t - y) ** 2,
    "logistic": lambda t, y: F.binary_cross_entropy_with_logits(t, y, reduction="none"),
    "log-cosh": lambda t, y: torch.log(torch.cosh(t - y)),
    "pseudo-huber": lambda t, y: torch.sqrt(1 + (t - y) ** 2) - 1,
}
PRECISIONS: dict[str, tuple[torch.dtype, float | None]] = {"f64": (torch.float64, None), "f32": (torch.float32, 1e-5)}
VARIANTS = ["sink", "mean"]


@pytest.fixture(scope="module", autouse=True)
def fits_are_made_once() -> Iterator[None]:
    """Fitting GeLUs takes long, and is always the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gelu, "_fit", cache(gelu._fit))
        yield


def compiled(algorithm: ig.Algorithm, variant: str = "sink", **options: Any) -> ig.CompiledTransformer:
    return ig.compile(algorithm, target="softmax", variant=variant, **options)


def small(variant: str = "sink", steps: int = 2, **options: Any) -> ig.CompiledTransformer:
    return compiled(ig.GradientDescent(ig.Network([2, 3, 1]), lr=0.3, steps=steps), variant, **options)


# --------------------------------------------------------------------------------------------- autograd, written out


def forward(w: Tensor, X: Tensor, net: ig.Network) -> Tensor:
    """The network from its flat weights: layer by layer, each matrix row by row, its bias after it."""
    r, start, p = ACTIVATIONS[net.activation.name], 0, X
    for j, (c, k) in enumerate(pairwise(net.sizes), start=1):
        p = p @ w[start : start + k * c].view(k, c).T
        start += k * c
        if net.bias:
            p, start = p + w[start : start + k], start + k
        p = r(p) if j < len(net.sizes) - 1 or net.output == "activation" else p
    return p


def train(algorithm: ig.GradientDescent, X: Tensor, y: Tensor, w0: Tensor) -> Tensor:
    """The weights after every step on half the mean loss, by autograd: momentum, weight decay and the box included."""
    w, m, path = w0.clone(), torch.zeros_like(w0), [w0]
    for _ in range(algorithm.steps):
        w.requires_grad_()
        losses = LOSSES[algorithm.loss.name](forward(w, X, algorithm.network), y).sum(-1)
        (gradient,) = torch.autograd.grad(0.5 * losses.mean(), w)
        with torch.no_grad():
            m = algorithm.momentum * m + gradient + algorithm.weight_decay * w
            w = w - algorithm.lr * m
            w = w if algorithm.box is None else w.clamp(-algorithm.box, algorithm.box)
        path.append(w.detach())
    return torch.stack(path)


def data(algorithm: ig.GradientDescent, n: int = 8, n_query: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian inputs; targets 0 or 1 for the logistic loss, in (0, 1) for an activated output."""
    generator, net = torch.Generator().manual_seed(seed), algorithm.network
    X = torch.randn(n + n_query, net.sizes[0], generator=generator, dtype=torch.float64)
    y = torch.randn(n, net.sizes[-1], generator=generator, dtype=torch.float64)
    if algorithm.loss.name == "logistic":
        y = (y > 0).double()
    elif net.output == "activation":
        y = torch.sigmoid(y)
    return X[:n], y, X[n:]


def error(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).abs().max())


def check(algorithm: ig.GradientDescent, variant: str, precision: str, tolerance: float, n: int = 8) -> None:
    """The module against autograd: weights after every step, and predictions; and something was learned."""
    dtype, epsilon = PRECISIONS[precision]
    X, y, X_query = data(algorithm, n)
    w0 = algorithm.network.init(1)
    w0 = w0 if algorithm.box is None else w0.clamp(-0.9 * algorithm.box, 0.9 * algorithm.box)
    tf, expected = compiled(algorithm, variant, epsilon=epsilon, n_examples=n), train(algorithm, X, y, w0)
    run = tf.run(X, y, X_query, w0=w0, executor="dense", dtype=dtype)
    assert run.weights.shape == expected.shape
    assert error(run.weights, expected) < tolerance
    assert error(run.predictions, forward(expected[-1], X_query, algorithm.network)) < 10 * tolerance
    assert error(expected[-1], expected[0]) > 0.01


@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-8), ("f32", 3e-4)])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus", "gelu", "silu"])
def test_with_a_sink_twenty_steps_are_those_of_autograd(
    activation: str, loss: str, bias: bool, precision: str, tolerance: float
) -> None:
    """N = 3, K = 4."""
    net = ig.Network([2, 4, 4, 1], activation, bias=bias)
    check(ig.GradientDescent(net, loss, lr=0.2, steps=20), "sink", precision, tolerance)


MEANS: dict[str, dict[str, Any]] = {
    "tanh, squared": {},
    "gelu, logistic": {"activation": "gelu", "loss": "logistic"},
    "sigmoid, squared, activated output": {"activation": "sigmoid", "output": "activation", "lr": 1.0},
}


@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-6), ("f32", 1e-4)])
@pytest.mark.parametrize("name", MEANS)
def test_without_a_sink_a_large_network_is_trained_as_by_autograd(name: str, precision: str, tolerance: float) -> None:
    """N = 4, K = 16, ten steps."""
    given = {"activation": "tanh", "loss": "squared", "output": "linear", "lr": 0.2, **MEANS[name]}
    net = ig.Network([3, 16, 16, 16, 2], given["activation"], given["output"])
    check(ig.GradientDescent(net, given["loss"], lr=given["lr"], steps=10), "mean", precision, tolerance)


OTHERS: dict[str, dict[str, Any]] = {
    "log-cosh": {"loss": "log-cosh"},
    "pseudo-huber": {"loss": "pseudo-huber", "activation": "silu"},
    "activated output": {"activation": "sigmoid", "output": "activation", "lr": 2.0},
    "activated output, log-cosh": {"activation": "sigmoid", "output": "activation", "loss": "log-cosh", "lr": 2.0},
    "one layer": {"sizes": [2, 2]},
    "one layer, logistic": {"sizes": [2, 2], "loss": "logistic"},
    "tight box, momentum, weight decay": {"box": 0.4, "lr": 1.0, "momentum": 0.5, "weight_decay": 0.1},
    "no box": {"box": None},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_losses_outputs_and_optimisers_are_those_of_autograd(name: str, variant: str) -> None:
    given = {"sizes": [2, 3, 2, 2], "activation": "tanh", "output": "linear", "lr": 0.2, **OTHERS[name]}
    net = ig.Network(given.pop("sizes"), given.pop("activation"), given.pop("output"))
    algorithm = ig.GradientDescent(net, steps=5, **given)
    check(algorithm, variant, "f64", 1e-8)
    if algorithm.box == 0.4:
        X, y, _ = data(algorithm)
        on_the_box = train(algorithm, X, y, net.init(1).clamp(-0.36, 0.36))[1:].abs() == algorithm.box
        assert int(on_the_box.sum()) > 3, "the projection is active"


def test_without_a_sink_kinks_are_no_obstacle() -> None:
    """relu is exact but for a ramp; no pre-activation falls into it."""
    check(ig.GradientDescent(ig.Network([2, 3, 3, 1], "relu"), steps=5), "mean", "f64", 1e-7)


# --------------------------------------------------------------------------------------------------------- block counts


def network(depth: int, output: Any = "linear") -> ig.Network:
    return ig.Network([2, *[2] * (depth - 1), 1], "sigmoid", output)


def blocks_of_the_module(tf: ig.CompiledTransformer) -> tuple[int, int]:
    """Of one step: blocks (attention, then an mlp; either may be missing), and attention layers."""
    (layers,) = tf.module.stored_blocks()
    blocks = 0
    for i, layer in enumerate(layers):
        assert isinstance(layer, SoftmaxAttention | FeedForward)
        blocks += isinstance(layer, SoftmaxAttention) or i == 0 or not isinstance(layers[i - 1], SoftmaxAttention)
    return blocks, sum(isinstance(layer, SoftmaxAttention) for layer in layers)


@pytest.mark.parametrize("loss", ["squared", "logistic", "log-cosh", "pseudo-huber"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_a_step_with_a_sink_takes_two_blocks_a_layer_and_one(depth: int, loss: str) -> None:
    """Attention: one for each activation and for the update, one for the loss unless it is squared."""
    tf = compiled(ig.GradientDescent(network(depth), loss, steps=3), epsilon=1e-5)
    assert tf.cost().blocks == 3 * (2 * depth + 1)
    assert tf.module.counts == [3]
    assert blocks_of_the_module(tf) == (2 * depth + 1, depth + (loss != "squared"))


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(("loss", "more"), [("squared", 1), ("log-cosh", 2), ("pseudo-huber", 2)])
def test_an_activated_output_takes_one_block_more_or_two(depth: int, loss: str, more: int) -> None:
    tf = compiled(ig.GradientDescent(network(depth, "activation"), loss, steps=2), epsilon=1e-5)
    assert tf.cost().blocks == 2 * (2 * depth + 1 + more)
    assert blocks_of_the_module(tf)[0] == 2 * depth + 1 + more


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("loss", "output", "more"),
    [("squared", "linear", -1), ("logistic", "linear", 0), ("log-cosh", "linear", 0), ("squared", "activation", 1)],
)
def test_a_step_without_a_sink_takes_four_blocks_a_layer(depth: int, loss: str, output: str, more: int) -> None:
    """One less for the squared loss, one more for an activated output; attention does the update alone."""
    tf = compiled(ig.GradientDescent(network(depth, output), loss, steps=2), "mean", epsilon=1e-5)
    assert tf.cost().blocks == 2 * (4 * depth + more)
    assert blocks_of_the_module(tf) == (4 * depth + more, 1)


# -------------------------------------------------------------------------------------------------- prompts of any size


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_model_takes_prompts_of_any_length_and_any_number_of_queries(variant: str) -> None:
    tf = small(variant, n_examples=5)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    X, y, X_query = data(tf.algorithm, n=5, n_query=3)
    w0 = tf.algorithm.network.init(2)
    for n in range(1, 6):
        expected = train(tf.algorithm, X[:n], y[:n], w0)
        for m in range(4):
            run = tf.run(X[:n], y[:n], X_query[:m], w0=w0, executor="dense")
            assert error(run.weights, expected) < 1e-8
            predictions = forward(expected[-1], X_query[:m], tf.algorithm.network)
            assert run.predictions.shape == (m, 1)
            assert m == 0 or error(run.predictions, predictions) < 1e-8


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_example_of_weight_two_counts_as_two_and_one_of_weight_zero_as_none(variant: str) -> None:
    """Autograd sees the examples repeated, or left out."""
    tf = small(variant, n_examples=6)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    X, y, X_query = data(tf.algorithm, n=6)
    w0 = tf.algorithm.network.init(2)
    for counts in ([1, 0, 2, 1, 2, 0], [0, 0, 2, 0, 0, 0], [2, 2, 2, 2, 2, 1]):
        times = torch.tensor(counts)
        expected = train(tf.algorithm, X.repeat_interleave(times, 0), y.repeat_interleave(times, 0), w0)
        run = tf.run(X, y, X_query, w0=w0, sample_weight=times.double(), executor="dense")
        assert error(run.weights, expected) < 1e-8
        assert error(expected, train(tf.algorithm, X, y, w0)) > 1e-3, "the weights matter"


# ----------------------------------------------------------------------------------------------------------------- sink


@pytest.fixture(scope="module")
def twenty() -> tuple[ig.CompiledTransformer, Tensor, Tensor]:
    """Twenty steps, their stream, and what autograd learns."""
    tf = small(steps=20, n_examples=6)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    X, y, X_query = data(tf.algorithm, n=6)
    w0 = tf.algorithm.network.init(3)
    return tf, tf.stream(X, y, X_query, w0=w0), train(tf.algorithm, X, y, w0)[-1]


def learned(tf: ig.CompiledTransformer, h: Tensor) -> Tensor:
    """The weights that every token, the sink too, holds after the module: (tokens, D_w)."""
    lanes = tf.program.stream.unpack(tf.module(h))
    return torch.cat([lanes[lane.name][0].flatten(1) for lane in tf.program.weights], dim=1)


def changed(tf: ig.CompiledTransformer, h: Tensor, lane: str, token: int | slice, value: float) -> Tensor:
    entry, stream = tf.program.stream.entry(lane, (0,) * len(tf.program.stream[lane].shape)), h.clone()
    stream[:, token, entry] = value
    return stream


def test_the_weights_of_all_tokens_are_those_of_autograd(twenty: tuple[ig.CompiledTransformer, Tensor, Tensor]) -> None:
    tf, h, expected = twenty
    assert error(learned(tf, h), expected.expand(h.shape[1], -1)) < 1e-8


@pytest.mark.parametrize("wrong", [0.0, 6.0, 9.0])
def test_a_wrong_logarithm_of_the_number_of_tokens_is_a_wrong_result(
    twenty: tuple[ig.CompiledTransformer, Tensor, Tensor], wrong: float
) -> None:
    """Six examples and two queries: log 8. (0: as for one token; log 9 counts the sink.)"""
    tf, h, expected = twenty
    lane, tokens = tf.program.stream.entry("log_tokens"), torch.tensor([1.0, 6.0, 8.0, 9.0], dtype=torch.float64)
    assert float(h[0, 0, lane]) == pytest.approx(float(tokens[2].log()), rel=1e-15)
    value = 0.0 if wrong == 0.0 else float(torch.tensor(wrong).double().log())
    off = learned(tf, changed(tf, h, "log_tokens", slice(None), value))
    assert error(off, expected.expand(h.shape[1], -1)) > 1e-3


def test_what_the_prompt_gives_is_left_as_it_is(twenty: tuple[ig.CompiledTransformer, Tensor, Tensor]) -> None:
    """Input lanes of all tokens, and the sink's empty ones, to the last bit."""
    tf, h, _ = twenty
    before, after = (tf.program.stream.unpack(stream) for stream in (h, tf.module(h)))
    inputs = [lane.name for lane in tf.program.stream.lanes if lane.role == "input"]
    assert {"x", "y", "one", "t", "query", "ns", "log_omega", "log_tokens"} <= set(inputs)
    for lane in inputs:
        assert torch.equal(before[lane], after[lane])
    for lane in ("x", "y", "t", "query", "ns", "omega"):
        assert float(after[lane][:, 0].abs().max()) == 0.0


@pytest.mark.parametrize("lane", ["x", "y"])
def test_nothing_of_the_sink_enters_the_weights(
    twenty: tuple[ig.CompiledTransformer, Tensor, Tensor], lane: str
) -> None:
    """Garbage in its x or y: its gradient counts e^-64, and heads read nothing of it but the lane ns. In an example's
    lane the same garbage is not without effect.
    """
    tf, h, _ = twenty
    clean = learned(tf, h)
    assert error(learned(tf, changed(tf, h, lane, 0, 1.7)), clean) < 1e-14
    assert error(learned(tf, changed(tf, h, lane, 1, 1.7)), clean) > 1e-3


@pytest.mark.parametrize(("lane", "value"), [("ns", 1.0), ("log_omega", -0.1)])
def test_a_sink_that_takes_part_spoils_the_weights(
    twenty: tuple[ig.CompiledTransformer, Tensor, Tensor], lane: str, value: float
) -> None:
    """What keeps it out: ns = 0 keeps it from being summed, a weight of e^-64 from being averaged."""
    tf, h, expected = twenty
    off = learned(tf, changed(tf, changed(tf, h, "y", 0, 1.0), lane, 0, value))
    assert error(off, expected.expand(h.shape[1], -1)) > 1e-4


def test_a_head_with_a_sink_computes_a_sigmoid() -> None:
    """1 - the attention paid to the sink, whatever the number of tokens; all tokens but the sink get the same."""
    for n in (1, 3, 6):
        tf = small(steps=1, n_examples=6)
        assert isinstance(tf.algorithm, ig.GradientDescent)
        X, y, X_query = data(tf.algorithm, n=n)
        _, seen = tf.module.run_with_cache(
            tf.stream(X, y, X_query), ["layers.1.hook_pattern", "layers.1.hook_resid_pre"]
        )
        pattern, h = seen["layers.1.hook_pattern"], seen["layers.1.hook_resid_pre"]
        layer = list(tf.module.layers())[1]
        assert isinstance(layer, SoftmaxAttention)
        heads = layer.W_Q.dense()
        lane = tf.program.stream.entry("log_tokens")
        heads[..., lane] = 0.0  # what is left is a z + b
        argument = torch.einsum("mre,bte->mbt", heads, h)
        assert argument.shape[0] > 50
        assert float(argument.min()) < -3.0
        assert float(argument.max()) > 3.0
        assert error(1 - pattern[..., 0], torch.sigmoid(argument)) < 1e-14
        assert (
            error(pattern[..., 1:], (torch.sigmoid(argument) / (n + 2)).unsqueeze(-1).expand_as(pattern[..., 1:]))
            < 1e-14
        )


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "gelu", "silu"])
def test_one_attention_layer_applies_an_activation_and_its_derivative(name: str) -> None:
    """To the pre-activations of every token, the sink's too, within epsilon = 1e-9 of torch's."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], name), steps=1)
    tf = compiled(algorithm, n_examples=4)
    X, y, X_query = data(algorithm, n=4)
    _, seen = tf.module.run_with_cache(tf.stream(2 * X, y, X_query), ["layers.1.hook_resid_post"])
    lanes = tf.program.stream.unpack(seen["layers.1.hook_resid_post"])
    z = lanes["z1"].detach().requires_grad_()
    expected = ACTIVATIONS[name](z)
    (derivative,) = torch.autograd.grad(expected.sum(), z)
    assert error(lanes["p1"], expected.detach()) < 2e-9
    assert error(lanes["d1"], derivative) < 2e-9


@pytest.mark.parametrize("name", ["tanh", "softplus", "gelu", "silu"])
def test_an_activation_and_its_derivative_share_their_heads(name: str) -> None:
    """Heads = units x neurons, not twice that, and as many as the activation alone takes, in the read-out."""
    tf = compiled(ig.GradientDescent(ig.Network([2, 3, 5, 1], name), steps=1))
    r = ig.ACTIVATIONS[name]
    terms = [{(float(a), float(b)) for a, b, _ in tf.approximants[f.name].hinges} for f in (r.r, r.dr)]
    units = len(terms[0] | terms[1])
    heads = {row.name: row.heads for row in tf.cost().rows if row.kind == "attention"}
    assert units <= max(map(len, terms)) + 1
    for j, neurons in ((1, 3), (2, 5)):
        assert heads[f"activation {j}"] == units * neurons
        assert heads[f"read-out: activation {j}"] == len(terms[0]) * neurons
    assert tf.n_heads == 5 * units


def test_sigmoid_itself_is_one_head_a_neuron() -> None:
    """In the read-out, where no derivative is needed."""
    tf = compiled(ig.GradientDescent(ig.Network([2, 7, 1], "sigmoid"), "logistic", steps=1))
    heads = {row.name: row.heads for row in tf.cost().rows if row.kind == "attention"}
    assert heads["read-out: activation 1"] == 7
    assert heads["loss derivative"] == 1


# --------------------------------------------------------------------------------------------------------------- verify


def copied(tf: ig.CompiledTransformer) -> ig.CompiledTransformer:
    """The same model with a module of its own."""
    return ig.CompiledTransformer(tf.algorithm, tf.program, tf.approximants, tf.options, copy.deepcopy(tf.module))


def noticed(tf: ig.CompiledTransformer, **prompt: Any) -> bool:
    """A law fails, or the forward pass is stopped where a lane leaves its range."""
    try:
        return not tf.verify(prompts=1, **prompt).passed
    except ig.DomainError:
        return True


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest) -> tuple[ig.CompiledTransformer, dict[str, Tensor]]:
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), "logistic", lr=0.5, steps=1)
    X, y, X_query = data(algorithm, n=3, n_query=1)
    omega = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    prompt = {"X": X, "y": y, "X_query": X_query, "sample_weight": omega}
    return compiled(algorithm, request.param, n_examples=3, epsilon=1e-6, z_bound=4.0), prompt


def test_a_corrupted_weight_of_any_layer_is_noticed(
    model: tuple[ig.CompiledTransformer, dict[str, Tensor]],
) -> None:
    """The largest weight that each layer writes with, off by one per cent."""
    tf, prompt = model
    bad = copied(tf)
    assert not noticed(bad, **prompt)
    for layer in bad.module.stored_layers():
        assert isinstance(layer, SoftmaxAttention | FeedForward)
        stack = layer.W_O if isinstance(layer, SoftmaxAttention) else layer.W_2
        entry = int(stack.value.abs().argmax())
        original = stack.value[entry].item()
        stack.value[entry] = 1.01 * original
        assert noticed(bad, **prompt), layer.name
        stack.value[entry] = original
    assert not noticed(tf)


def test_a_softmax_that_weights_the_examples_wrongly_is_noticed_where_they_have_weights(
    model: tuple[ig.CompiledTransformer, dict[str, Tensor]],
) -> None:
    tf, prompt = model
    bad = copied(tf)
    update = next(layer for layer in bad.module.stored_layers() if layer.name == "update")
    assert isinstance(update, SoftmaxAttention)
    update.W_K.value *= 1.1
    assert noticed(bad, **prompt)


def test_a_softmax_that_weights_the_examples_wrongly_is_noticed_on_random_prompts(
    model: tuple[ig.CompiledTransformer, dict[str, Tensor]],
) -> None:
    """Its weights are omega^1.1: two examples with weights 2 and 1 count 2.14 to 1."""
    bad = copied(model[0])
    update = next(layer for layer in bad.module.stored_layers() if layer.name == "update")
    assert isinstance(update, SoftmaxAttention)
    update.W_K.value *= 1.1
    assert noticed(bad)


def test_a_projection_that_does_not_project_is_noticed(
    model: tuple[ig.CompiledTransformer, dict[str, Tensor]],
) -> None:
    """Every hinge of the clip of V1, without effect: its units are those with a bias."""
    bad = copied(model[0])
    project = next(layer for layer in bad.module.stored_layers() if layer.name == "project and clear")
    assert isinstance(project, FeedForward)
    first = bad.program.stream.offsets["V1"]
    of_V1 = (project.W_2.index[1] >= first) & (project.W_2.index[1] < first + 2)
    clip = of_V1 & torch.isin(project.W_2.index[2], project.b_1.index[1])
    assert int(clip.sum()) >= 4, "two hinges for each of two weights"
    h = torch.zeros(1, 1, bad.d_model, dtype=torch.float64)
    h[..., bad.program.stream.entry("one")] = 1.0
    h[..., first] = 5.0
    assert float(project(h)[0, 0, first]) == pytest.approx(4.0)
    project.W_2.value[clip] = 0.0
    assert float(project(h)[0, 0, first]) == pytest.approx(5.0)
    assert noticed(bad)


def test_a_wrong_unit_at_the_end_of_the_domain_is_noticed() -> None:
    """Of the sum of sigmoids that is tanh on [-8, 8] up to 1e-9: the first, off by 1%, is an error of 1e-6 at -8."""
    bad = copied(small(n_examples=4))
    layer = next(layer for layer in bad.module.stored_layers() if layer.name == "activation 1")
    assert isinstance(layer, SoftmaxAttention)
    stream = bad.program.stream
    h = torch.zeros(1, 2, bad.d_model, dtype=torch.float64)
    h[..., stream.entry("one")] = 1.0
    h[:, 1, stream.entry("ns")] = 1.0
    h[..., stream.entry("z1", (0,))] = -8.0
    tanh = torch.tensor(-8.0, dtype=torch.float64).tanh()
    assert error(stream.unpack(layer(h))["p1"][0, 1, 0], tanh) < 2e-9
    units = layer.W_O.shape[0] // 3  # of each of three neurons
    layer.W_O.value[layer.W_O.index[0] % units == 0] *= 1.01
    assert error(stream.unpack(layer(h))["p1"][0, 1, 0], tanh) > 1e-6
    assert noticed(bad)


# ------------------------------------------------------------------------------------------------------------ bad input


def test_a_variant_it_has_not_is_refused() -> None:
    with pytest.raises(ig.InputError, match=r"unknown variant.*'softmax'; got 'raw'; allowed: sink, mean, lookup"):
        small("raw")


def test_looking_up_gradient_descent_is_refused_with_what_does() -> None:
    with pytest.raises(ig.InputError, match=r"gradient_descent has no program for variant 'lookup'.*ig\.GridDescent"):
        small("lookup")


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(ig.InputError, match="recursive_least_squares has no program for target 'softmax'"):
        compiled(ig.RecursiveLeastSquares(2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("executor", ["plain", "dense"])
def test_a_z_bound_that_is_too_small_is_an_error_when_it_is_left(variant: str, executor: Any) -> None:
    """z = 1.5; with a larger bound it is none."""
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], bias=False), steps=1)
    X, y, w0 = torch.tensor([[1.0]]), torch.zeros(1, 1), torch.tensor([1.5, 0.5])
    with pytest.raises(ig.DomainError, match="z_bound"):
        compiled(algorithm, variant, z_bound=1.0, epsilon=1e-6).run(X, y, w0=w0, executor=executor)
    compiled(algorithm, variant, z_bound=2.0, epsilon=1e-6).run(X, y, w0=w0, executor=executor)


def test_an_epsilon_out_of_reach_is_refused_with_what_is_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth, "UNITS", (12, 16))  # trying up to 256 takes seconds
    with pytest.raises(ig.InputError, match=r"not a sum of 16 units sigmoid.*\[-500, 500\].*smaller z_bound"):
        small(z_bound=500.0)


def test_an_epsilon_that_drowns_in_rounding_is_refused() -> None:
    tf = small()
    with pytest.raises(ig.InputError, match=r"epsilon = 1e-09 cannot be reached in torch\.float32"):
        tf.run(torch.zeros(2, 2), torch.zeros(2, 1), executor="dense", dtype=torch.float32)


# ----------------------------------------------------------------------------------------------------- saving and hooks


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_model_is_the_same_model(variant: str, tmp_path: Path) -> None:
    tf = small(variant, n_examples=4, epsilon=1e-7)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    X, y, X_query = data(tf.algorithm, n=4)
    again = ig.load(tf.save(tmp_path))
    a, b = (m.run(X, y, X_query, executor="dense") for m in (tf, again))
    assert torch.equal(a.weights, b.weights)
    assert torch.equal(a.predictions, b.predictions)
    assert (again.options, again.algorithm, again.cost().blocks) == (tf.options, tf.algorithm, tf.cost().blocks)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_cached_is_what_happened(variant: str) -> None:
    """Patterns are a softmax of scores, without a mask; units are GeLUs of the stream itself; the stream adds up."""
    tf = small(variant, n_examples=3)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    h = tf.stream(*data(tf.algorithm, n=3))
    output, seen = tf.module.run_with_cache(h)
    assert torch.equal(output, tf.module(h))
    for i, layer in enumerate(tf.module.layers()):
        at = {name.split(".")[2]: value for name, value in seen.items() if name.startswith(f"layers.{i}.")}
        assert torch.equal(at["hook_resid_pre"], seen[f"layers.{i - 1}.hook_resid_post"] if i else h)
        before = at["hook_resid_pre"]
        if isinstance(layer, SoftmaxAttention):
            W_Q, W_K, W_V, W_O = (stack.dense() for stack in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
            q, k, v = (torch.einsum("mre,bte->mbtr", W, before) for W in (W_Q, W_K, W_V))
            pattern = (q @ k.mT).softmax(-1)
            torch.testing.assert_close(at["hook_pattern"], pattern, rtol=1e-9, atol=1e-13)
            written = torch.einsum("mdr,mbtr->btd", W_O, pattern @ v)
        else:
            assert isinstance(layer, FeedForward)
            pre = layer.W_1.dense()[0] @ before[0].T + layer.b_1.dense()[0]
            torch.testing.assert_close(at["hook_post"], F.gelu(pre), rtol=1e-9, atol=1e-12)
            written = (layer.W_2.dense()[0] @ F.gelu(pre)).T.view_as(h)
        torch.testing.assert_close(at["hook_resid_post"], before + written, rtol=1e-9, atol=1e-9)
