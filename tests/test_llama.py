"""Target llama: gradient descent with no approximation at all. Parts alone, programs, blocks a step.

What is fitted there is in test_llama_fits.py.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import innergrad as ig
from innergrad import Attend, Lane, Layer, Loop, Program, Score
from innergrad.algorithms.descent.sigmoids import SIGMOID, TANH, Sigmoid, class_probabilities, marker_lanes, marks
from innergrad.functions.scalar import RELU, clip_residual
from innergrad.interpret import plain
from innergrad.model.prompt import Prompt
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.base import Context
from innergrad.targets.parts.gated import GatedMlp
from innergrad.targets.parts.rms_norm import PAD, RMSNorm, padding
from test_silu_gated import INSTRUCTIONS, random_state, stream

OPTIONS = ig.Options("llama", "chain")
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


# ------------------------------------------------------------------------------------------------------- parts, alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entries", [1, 15, 16, 100, 700])
def test_rms_norm_is_the_identity_bit_for_bit(entries: int, dtype: torch.dtype) -> None:
    m, c = padding(entries)
    zeros = c * m - m - entries
    assert zeros >= 0
    h = 100 * torch.randn(2, 3, entries, dtype=dtype, generator=torch.Generator().manual_seed(entries))
    whole = torch.cat([h, h.new_zeros(2, 3, zeros), h.new_full((2, 3, m), PAD)], dim=-1)
    assert torch.equal(RMSNorm().apply(whole, PAD / math.sqrt(c)), whole)


def norm_context(program: Program) -> Context:
    return Context(RMSNorm().prepare(program, OPTIONS), OPTIONS, RMSNorm())


def padded(program: Program, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state with the lanes of the norm."""
    extra = (lane for lane in program.stream.lanes if lane.name not in state or lane.name in ("pad", "spare"))
    full = {lane.name: torch.full((2, 1, *lane.shape), lane.fill, dtype=torch.float64) for lane in extra}
    return state | full


KINKS = {
    "relu": Attend("p[k]", Score(RELU, ("x[k] - y[k]", "one")), scale=0.5),
    "clip": Attend("w[k]", Score(clip_residual(0.5), ("w[k]", "one"))),
    "square": Attend("s", Score(ig.IDENTITY, ("x[c]", "x[c]"))),
    "two products": Attend("B[k,c]", Score(ig.IDENTITY, ("q[k]", "w[c]")), scale=-3.0),
}


@pytest.mark.parametrize("name", [*INSTRUCTIONS, *KINKS])
def test_the_gated_mlp_alone(name: str) -> None:
    layer = Layer("mlp", name, ((INSTRUCTIONS | KINKS)[name],))
    context = norm_context(Program(stream(), (Loop(1, (layer,)),), (), "p"))
    program = context.program
    assert GatedMlp.why_not(layer.instructions[0], context) is None
    state = padded(program, random_state(program, torch.Generator().manual_seed(1)))
    ((_, after, _),) = plain.run(program, state, program.functions())
    found = program.stream.unpack(GatedMlp.build(layer, context)(program.stream.pack(state)))
    for lane, expected in after.items():
        torch.testing.assert_close(found[lane], expected.expand_as(found[lane]), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copying_and_clearing_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    clear = Attend("p[k]", Score(ig.NEGATION, ("p[k]", "one")))
    layer = Layer("mlp", "move", (Attend("B[0,k]", value="p[k]"), clear))
    context = norm_context(Program(stream(), (Loop(1, (layer,)),), (), "p"))
    program = context.program
    state = padded(program, random_state(program, torch.Generator().manual_seed(2)))
    before = program.stream.pack(state | {"B": 0 * state["B"]}).to(dtype)
    if dtype == torch.bfloat16:
        module = GatedMlp.build(layer, context)
        weights = [getattr(module, name).dense()[0].to(dtype) for name in ("W_1", "W_3", "W_2")]
        after = before + (torch.nn.functional.silu(before @ weights[0].T) * (before @ weights[1].T)) @ weights[2].T
    else:
        after = GatedMlp.build(layer, context).to(dtype)(before)
    moved, left = (program.stream.unpack(h) for h in (after, before))
    assert torch.equal(moved["B"][:, :, 0], left["p"])
    assert not moved["p"].any()


def marked_program(*instructions: Attend, classes: int = 0) -> Program:
    lanes = ig.example_stream(3, 3, Lane("w", (3,), "weight"), Lane("p", (3,)), Lane("d", (3,)), *marker_lanes(classes))
    layer = Layer("attention", "heads", instructions)
    return Program(lanes, (Loop(1, (layer,)),), (), "p", marks=marks(classes))


def attended(program: Program, X: torch.Tensor, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """What the plain interpreter and the weights write on the examples, and the module."""
    context = norm_context(program)
    program = context.program
    n = len(X)
    y, w0 = torch.zeros(1, n, 3, dtype=dtype), torch.zeros(1, 3, dtype=dtype)
    prompt = Prompt(X[None].to(dtype), y, X[None, :1].to(dtype), w0, torch.full((1, n), 1 / n, dtype=dtype), False)
    state = prompt.state(program)
    ((_, after, _),) = plain.run(program, state, program.functions())
    module = SoftmaxAttention.build(program.layers[0], context)
    dense = module.to(dtype)(program.stream.pack(state))
    first = program.carriers
    found, expected = program.stream.unpack(dense), after
    return (
        {k: v[0, first : first + n] for k, v in part.items() if v.shape[1] > 1} for part in (found, expected)
    ), module


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("head", "f"), [(TANH, torch.tanh), (SIGMOID, torch.sigmoid)])
def test_one_head_is_a_sigmoid_and_its_derivative(head: Sigmoid, f: Any, dtype: torch.dtype) -> None:
    program = marked_program(head.of("p[k]", "x[k]"), head.of("d[k]", "x[k]", slope=True))
    X = torch.tensor([[0.0, 1e-8, -1e-3], [0.5, -2.0, 7.0], [30.0, -400.0, 1e5]], dtype=torch.float64)
    (found, expected), module = attended(program, X, dtype)
    assert module.n_heads == 3
    z = X.clone().requires_grad_()
    p = f(z)
    (d,) = torch.autograd.grad(p.sum(), z)
    allowed = 8 * torch.finfo(dtype).eps
    for one in (found, expected):
        assert float((one["p"].double() - p.detach()).abs().max()) <= allowed
        assert float((one["d"].double() - d).abs().max()) <= allowed * 8


def test_one_head_is_the_softmax_of_logits() -> None:
    program = marked_program(class_probabilities("p[k]", "x"), classes=3)
    X = 3 * torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (found, expected), module = attended(program, X, torch.float64)
    assert module.n_heads == 1
    for one in (found, expected):
        torch.testing.assert_close(one["p"], torch.softmax(X, -1), rtol=1e-14, atol=1e-15)


# ----------------------------------------------------------------------------------------------------------- programs


def descent(sizes: list[int], activation: str = "tanh", output: Any = "linear", **settings: Any) -> ig.GradientDescent:
    bias = settings.pop("bias", True)
    network = ig.Network(sizes, activation, output, bias)
    return ig.GradientDescent(network, **{"lr": 0.5, "steps": 5, "box": None} | settings)


CASES = {
    "1 layer": descent([3, 2]),
    "1 layer, no bias": descent([3, 2], bias=False),
    "1 layer, activated": descent([3, 2], output="activation", loss="log-cosh"),
    "2 layers": descent([2, 4, 1]),
    "2 layers, no bias": descent([2, 4, 1], bias=False),
    "3 layers": descent([2, 4, 4, 1]),
    "4 layers": descent([3, 5, 4, 3, 2]),
    "sigmoid": descent([2, 4, 3, 1], "sigmoid"),
    "activated": descent([2, 4, 3, 1], output="activation"),
    "logistic": descent([2, 4, 4, 1], loss="logistic"),
    "log-cosh": descent([2, 4, 4, 1], loss="log-cosh"),
    "cross-entropy": descent([2, 4, 4], loss="softmax"),
    "cross-entropy, 3 layers": descent([2, 4, 4, 2], "sigmoid", loss="softmax"),
    "momentum": descent([2, 4, 1], momentum=0.9),
    "Nesterov": descent([2, 4, 1], momentum=0.9, nesterov=True, weight_decay=0.01),
    "box": descent([2, 4, 4, 1], box=1.6),
    "l1": descent([2, 4, 1], l1=0.01),
    "everything": descent([2, 4, 1], l1=0.01, box=1.6, clip=0.05, momentum=0.5),
    "silu": descent([2, 4, 3, 1], "silu"),
    "silu, activated": descent([2, 3, 1], "silu", "activation"),
    "relu": descent([2, 4, 3, 1], "relu"),
    "relu6": descent([2, 4, 1], "relu6"),
    "schedule": descent([2, 4, 1], lr=[0.5, 0.5, 0.1], steps=None),
    "batches": descent([2, 4, 1], batches=[[0, 1, 2], [3, 4]]),
}


BENT = ("relu", "relu6")  # piecewise-linear: not of variant widest
SQUARED = (
    "1 layer",
    "2 layers, no bias",
    "3 layers",
    "4 layers",
    "sigmoid",
    "box",
    "everything",
    "batches",
    "Nesterov",
)


@pytest.mark.parametrize(
    ("name", "variant"),
    [(n, v) for n in CASES for v in ("chain", "wide", "widest") if v != "widest" or n not in BENT]
    + [(n, "shortest") for n in SQUARED],
)
def test_the_weights_are_gradient_descent(name: str, variant: str) -> None:
    """plain == dense == fused == autograd, up to rounding."""
    algorithm = CASES[name]
    tf = ig.compile(algorithm, target="llama", variant=variant)
    X, y, X_query = algorithm.random_prompt(6, 3, torch.Generator().manual_seed(0))
    weight = None if algorithm.batches else torch.tensor([1.0, 2.0, 0.5, 0.0, 1.0, 1.0], dtype=torch.float64)
    reference = ig.reference(algorithm, X, y, X_query, sample_weight=weight)
    for executor in ("plain", "dense", "fused"):
        run = tf.run(X, y, X_query, sample_weight=weight, executor=executor)
        torch.testing.assert_close(run.weights, reference.weights, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(run.predictions, reference.predictions, rtol=1e-13, atol=1e-13)


LAWS = [
    ("1 layer", "chain"),
    ("4 layers", "wide"),
    ("cross-entropy", "chain"),
    ("everything", "wide"),
    ("silu", "chain"),
    ("silu, activated", "widest"),
    ("sigmoid", "shortest"),
    pytest.param("4 layers", "widest", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("name", "variant"), LAWS)
def test_every_law_holds(name: str, variant: str) -> None:
    tf = ig.compile(CASES[name], target="llama", variant=variant)
    assert tf.state == "exact"
    report = tf.verify()
    assert report.passed, str(report)


@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("loss", ["squared", "logistic", "log-cosh", "softmax"])
def test_blocks_a_step(N: int, loss: str) -> None:
    """2N - 1 for the squared loss, 2N for others; wide, N + 2 at most; widest, N + 1; shortest, N; one more for a
    box, and 2N + 1, N + 3 or N + 2 for an activated output.
    """

    def blocks(variant: str = "chain", **settings: Any) -> float:
        algorithm = descent([2, *[3] * (N - 1), 2], loss=loss, **settings)
        cost = ig.compile(algorithm, target="llama", variant=variant).cost()
        assert cost.readout_blocks == N - 1 + (settings.get("output") == "activation")
        return cost.layers_a_step

    expected = 2 * N - 1 if loss == "squared" else 2 * N
    assert blocks() == expected
    assert blocks(box=1.0) == expected + 1
    assert blocks("wide") == min(expected, N + 2)
    assert blocks("widest") == min(expected, N + 1)
    assert blocks("widest", box=1.0) == min(expected, N + 1) + 1
    if loss == "squared":
        assert blocks("shortest") == N
        assert blocks("shortest", box=1.0) == N + 1
    if loss in ("squared", "log-cosh"):
        assert blocks(output="activation") == 2 * N + 1
        assert blocks("wide", output="activation") == min(2 * N + 1, N + 3)
        assert blocks("widest", output="activation") == N + 2
    if loss == "squared" and N > 1:
        silu = descent([2, *[3] * (N - 1), 1], "silu")
        found = [ig.compile(silu, target="llama", variant=v).cost().layers_a_step for v in ("chain", "widest")]
        assert found == [3 * N - 2, N + 2]


@pytest.mark.parametrize("variant", ["wide", "widest", "shortest"])
def test_products_of_the_same_shape_share_a_lane_whatever_is_between_them(variant: str) -> None:
    """U_2 H_1 and U_4 U_3 U_2 H_1 have one shape, U_3 U_2 H_1 another."""
    algorithm = descent([1, 2, 3, 2, 3, 1], steps=2)
    X, y, X_query = algorithm.random_prompt(4, 1, torch.Generator().manual_seed(0))
    found = ig.compile(algorithm, target="llama", variant=variant).run(X, y, X_query, executor="plain")
    torch.testing.assert_close(found.weights, ig.reference(algorithm, X, y, X_query).weights, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("variant", ["chain", "wide", "widest"])
def test_one_head_a_neuron(variant: str) -> None:
    assert ig.compile(descent([2, 16, 1]), target="llama", variant=variant).n_heads == 16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("logistic", r"got loss logistic, output linear.*'widest' takes N \+ 1 blocks"),
        ("activated", "got loss squared, output activation"),
        ("silu", "polynomials of sigmoids; got silu"),
        ("relu", "neither steps nor fits are sums of it"),
    ],
)
def test_what_shortest_refuses(name: str, message: str) -> None:
    with pytest.raises(ig.InputError, match=message):
        ig.compile(CASES[name], target="llama", variant="shortest")


def test_widest_refuses_step_functions() -> None:
    with pytest.raises(ig.InputError, match=r"neither steps nor fits are sums of it; got activation relu6.*chain"):
        ig.compile(CASES["relu6"], target="llama", variant="widest")


@pytest.mark.parametrize("variant", ["chain", pytest.param("widest", marks=pytest.mark.soak)])
def test_a_certificate_carries_rounding_only(variant: str) -> None:
    """It is finite along the whole run, and no run is farther off."""
    algorithm = descent([2, 4, 1], steps=15)
    tf = ig.compile(algorithm, target="llama", variant=variant)
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(4))
    reference = ig.reference(algorithm, X, y, X_query)
    for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        certificate = tf.certify(X, y, X_query, dtype=dtype, executor="dense")
        off = tf.run(X, y, X_query, dtype=dtype, executor="dense").weights.double() - reference.weights
        assert certificate.state == "exact"
        assert max(certificate.weights) < limit
        assert all(float(one.norm()) <= bound for one, bound in zip(off[1:], certificate.weights, strict=True))


@pytest.mark.parametrize("variant", ["chain", "widest"])
def test_saving_and_loading_is_the_identity(variant: str, tmp_path: Any) -> None:
    algorithm = CASES["cross-entropy"]
    tf = ig.compile(algorithm, target="llama", variant=variant)
    tf.save(tmp_path / "model")
    loaded = ig.load(tmp_path / "model")
    X, y, X_query = algorithm.random_prompt(5, 2, torch.Generator().manual_seed(3))
    for executor in ("dense", "plain"):
        a, b = (one.run(X, y, X_query, executor=executor) for one in (tf, loaded))
        assert torch.equal(a.weights, b.weights)
        assert torch.equal(a.predictions, b.predictions)
