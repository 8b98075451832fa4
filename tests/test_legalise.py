"""Programs without targets are placed into the sublayers of every target that can run them, and compute the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from innergrad import IDENTITY, NEGATION, RECIPROCAL, Attend, Lane, Layer, Loop, Program, Score
from innergrad.errors import InputError, LoweringError
from innergrad.interpret import plain
from innergrad.model.legalise import legalise
from innergrad.model.prompt import make_prompt
from innergrad.targets import TARGETS
from logistic_regression import LogisticRegression

TANH, SIGMOID = ig.ACTIVATIONS["tanh"].r, ig.ACTIVATIONS["sigmoid"].r
PLACES = [("relu", "literal"), ("gpt", "pre-ln"), ("gpt", "raw"), ("softmax", "mean"), ("softmax", "sink")]
PLACES += [("sigma", "backprop")]
SMALL = {"relu": 1e-3, "gpt": 1e-6, "softmax": 1e-6, "sigma": 1e-6}


@dataclass(frozen=True)
class LeastSquares(ig.Algorithm):
    """Two linear outputs by gradient descent with momentum, without a word about targets or kinds of layers.

    e = omega (W x - y),   M <- momentum M + mean e x^T,   W -= lr M
    """

    d: int
    d_y: int = 2
    lr: float = 0.2
    momentum: float = 0.5
    steps: int = 4

    def program(self, options: ig.Options) -> Program:
        del options
        scratch = Lane("p", (self.d_y,)), Lane("e", (self.d_y,))
        W, M = Lane("W", (self.d_y, self.d), "weight"), Lane("M", (self.d_y, self.d), "state")
        predict = Layer("any", "predict", (Attend("p[k]", Score(IDENTITY, ("W[k,c]", "x[c]"))),))
        error = Layer("any", "error", (Attend("e[k]", Score(IDENTITY, ("omega", "one")), value="p[k] - y[k]"),))
        mean = Attend("M[k,c]", Score(IDENTITY, ("one", "e[k]")), value="x[c]", scope="all", reduce="mean")
        update = Layer("any", "update", (mean, Attend("M[k,c]", value="M[k,c]", scale=self.momentum - 1.0)))
        move = Layer("any", "move", (Attend("W[k,c]", value="M[k,c]", scale=-self.lr),))
        clear = Layer("any", "clear", ig.pointwise(NEGATION, scratch))
        stream = ig.example_stream(self.d, self.d_y, W, M, *scratch)
        return Program(stream, (Loop(self.steps, (predict, error, update, move, clear)),), (predict,), "p")

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        W = w0.view(-1, self.d_y, self.d)
        M, path = torch.zeros_like(W), [w0]
        for _ in range(self.steps):
            gradient = torch.einsum("bn,bnk,bnc->bkc", omega, X @ W.mT - y, X)
            M = self.momentum * M + gradient
            W = W - self.lr * M
            path.append(W.flatten(1))
        return torch.stack(path, dim=1), X_query @ W.mT


def data(d: int = 3, d_y: int = 1, n: int = 9) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n + 2, d, dtype=torch.float64, generator=generator)
    y = (X[:n] @ torch.randn(d, d_y, dtype=torch.float64, generator=generator)).tanh()
    return {"X": X[:n], "y": (y > 0).to(X) if d_y == 1 else y, "X_query": X[n:]}


CASES = {"logistic": (LogisticRegression(d=3, steps=3), data()), "two outputs": (LeastSquares(d=3), data(d_y=2))}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("target", "variant"), PLACES)
def test_it_runs_on_every_target_that_can(name: str, target: str, variant: str, tmp_path: Path) -> None:
    """verify, certify, save and load, executors: as for algorithms with a construction of their own."""
    algorithm, prompt = CASES[name]
    tf = ig.compile(algorithm, target=target, variant=variant, epsilon=SMALL[target], n_examples=9)
    report = tf.verify(**prompt)  # type: ignore[arg-type]
    assert report.passed, str(report)
    weights = {e: tf.run(**prompt, executor=e).weights for e in ("plain", "fused")}  # type: ignore[arg-type]
    torch.testing.assert_close(weights["plain"], weights["fused"], rtol=1e-12, atol=1e-13)
    certificate = tf.certify(prompt["X"], prompt["y"])
    oracle = ig.reference(algorithm, **prompt).weights  # type: ignore[arg-type]
    assert float((weights["plain"][-1] - oracle[-1]).norm()) <= certificate.weights[-1] + 1e-12
    again = ig.load(tf.save(tmp_path), extensions=[LogisticRegression, LeastSquares])
    assert torch.equal(again.run(**prompt).weights, tf.run(**prompt).weights)  # type: ignore[arg-type]


def test_what_the_parts_can_do_is_left_as_it_is() -> None:
    program = LogisticRegression(d=3).program(ig.Options())
    assert legalise(program, TARGETS["relu"], ig.Options()) == program


@pytest.mark.parametrize("name", CASES)
def test_a_target_that_cannot_says_why_in_a_sentence(name: str) -> None:
    with pytest.raises(
        LoweringError, match=r"^layer \w+, p: target 'kernel' has no layer for this; got a .*attention: "
    ):
        ig.compile(CASES[name][0], target="kernel")


def test_without_a_target_the_first_that_can_is_taken() -> None:
    assert ig.compile(LogisticRegression(d=2)).options.target == "relu"

    class Divides(LeastSquares):
        def program(self, options: ig.Options) -> Program:
            program = super().program(options)
            divide = Layer("any", "divide", (Attend("p[k]", Score(RECIPROCAL, ("scale", "one")), value="y[k]"),))
            scale = Lane("scale", (), "state", shared=False, fill=2.0)
            stream = ig.Stream((*program.stream.lanes, scale))
            return replace(program, stream=stream, readout=(*program.readout, divide))

    assert ig.compile(Divides(d=2)).options.target == "gpt"
    with pytest.raises(LoweringError, match="layer divide, p: target 'relu' has no layer for this; got a division"):
        ig.compile(Divides(d=2), target="relu")

    class Impossible(LeastSquares):
        def program(self, options: ig.Options) -> Program:
            program = super().program(options)
            before = Layer("any", "before", (Attend("p[k]", value="y[k]", scope="before"),))
            return replace(program, readout=(*program.readout, before))

    with pytest.raises(LoweringError, match=r"no target can run .*relu: layer before, p.*gpt: layer before, p"):
        ig.compile(Impossible(d=2))


def test_a_construction_is_lowered_as_written() -> None:
    class OnRelu(LogisticRegression):
        targets: ClassVar[tuple[str, ...]] = ("relu",)

        def program(self, options: ig.Options) -> Program:
            program = super().program(options)
            (loop,) = program.body
            wrong = replace(loop.layers[0], kind="product")
            return replace(program, body=(replace(loop, layers=(wrong, *loop.layers[1:])),))

    with pytest.raises(LoweringError, match="a product layer multiplies, it applies no function"):
        ig.compile(OnRelu(d=2))
    with pytest.raises(InputError, match="has no program for target 'gpt'"):
        ig.compile(OnRelu(d=2), target="gpt")


def test_an_unknown_variant_is_an_error() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]))
    for variant in ("pre-ln", "raw", "mean"):
        assert algorithm.program(ig.Options("gpt", variant)) == algorithm.program(ig.Options("gpt", "pre-ln"))
    with pytest.raises(InputError, match="no program for variant 'nothing'; allowed: literal, compact"):
        algorithm.program(ig.Options("gpt", "nothing"))


# -------------------------------------------------------------------------------------------------- random programs

OWN = ["p[k]", "q[k]", "y[k]", "0.5*p[k] - q[k]", "q[k] + one"]
INSTRUCTIONS = st.one_of(
    st.builds(  # a function of an inner product, sides as they come, perhaps times a lane
        lambda dst, f, pair, value, scale: Attend(dst, Score(f, pair, ("one", "b[k]")), value=value, scale=scale),
        st.sampled_from(["p[k]", "q[k]"]),
        st.sampled_from([TANH, SIGMOID, IDENTITY]),
        st.sampled_from([("x[c]", "W[k,c]"), ("W[k,c]", "x[c]")]),
        st.sampled_from(["one", "q[k]", "2.0*one"]),
        st.sampled_from([1.0, -0.5]),
    ),
    st.builds(  # products of two or three lanes
        lambda dst, pair, value: Attend(dst, Score(IDENTITY, pair), value=value),
        st.sampled_from(["p[k]", "q[k]"]),
        st.tuples(st.sampled_from([*OWN, "omega"]), st.sampled_from([*OWN, "one"])),
        st.sampled_from(["one", "y[k]"]),
    ),
    st.builds(  # two scores
        lambda f, value: Attend("q[k]", Score(f, ("p[k]", "one")), Score(TANH, ("y[k]", "one")), value=value),
        st.sampled_from([TANH, IDENTITY]),
        st.sampled_from(["one", "p[k]"]),
    ),
    st.builds(  # means over the examples
        lambda score, scale: Attend("W[k,c]", *score, value="x[c]", scope="all", reduce="mean", scale=scale),
        st.sampled_from(
            [
                (Score(IDENTITY, ("one", "q[k]")),),
                (Score(TANH, ("b[k]", "p[k]")),),
                (Score(IDENTITY, ("one", "omega")),),
            ]
        ),
        st.sampled_from([0.25, -0.5]),
    ),
    st.just(Attend("b[k]", value="p[k]", scope="all", reduce="mean", scale=0.5)),
    st.builds(lambda dst, value: Attend(dst, value=value), st.sampled_from(["p[k]", "q[k]"]), st.sampled_from(OWN)),
    st.builds(lambda where: Attend("q[k]", value="p[k]", where=where), st.sampled_from(["demos", "query"])),
    st.just(Attend("W[k,c]", value="W[k,c]", scale=-0.125)),  # decay
    st.just(Attend("b[k]", Score(TANH, ("b[k]", "one")), scale=-0.125)),
)
KINDS = st.sampled_from(["any", "attention", "mlp", "product"])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Two steps of up to three layers of up to three instructions, of any kind; p and q are cleared."""
    scratch = Lane("p", (2,)), Lane("q", (2,))
    stream = ig.example_stream(3, 2, Lane("W", (2, 3), "weight", bound=4.0), Lane("b", (2,), "weight"), *scratch)
    layers = [
        Layer(draw(KINDS), f"layer {n}", tuple(draw(st.lists(INSTRUCTIONS, min_size=1, max_size=3))))
        for n in range(draw(st.integers(1, 3)))
    ]
    clear = Layer(draw(KINDS), "clear", ig.pointwise(NEGATION, scratch))
    return Program(stream, (Loop(2, (*layers, clear)),), (layers[0],), "p")


@dataclass(frozen=True)
class Given(ig.Algorithm):
    given: Program

    def program(self, options: ig.Options) -> Program:
        del options
        return self.given


def final(program: Program) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    w0 = 0.5 * torch.randn(8, dtype=torch.float64, generator=generator)
    data = given[:5, :3], given[:5, 3:], given[5:, :3]
    prompt = make_prompt(Given(program), program, *data, w0, None, seed=0, dtype=torch.float64)
    state = prompt.state(program)
    for _, after, _ in plain.run(program, state, program.functions()):
        state = after
    return state


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_a_random_program_computes_the_same_or_is_refused_in_a_sentence(program: Program) -> None:
    expected, done = final(program), 0
    for name, variant in [*PLACES, ("kernel", "attention"), ("softmax", "lookup")]:
        target = TARGETS[name]
        options = ig.Options(name, variant, target.epsilon, sigma=next(iter(target.sigmas), None))
        placed, refusal = None, ""
        try:
            placed = legalise(program, target, options)
        except LoweringError as error:
            refusal = str(error)
        if placed is None:
            assert re.match(rf"layer [\w ]+, \w+: target '{name}' has no layer for this; got ", refusal), refusal
            continue
        done += 1
        target.check(target.prepare(placed, options), options)
        assert {layer.kind for layer in placed.layers} <= set(target.modules)
        found = final(placed)
        for lane, value in expected.items():
            torch.testing.assert_close(found[lane], value, rtol=1e-9, atol=1e-11, msg=lambda m: f"{lane}: {m}")  # noqa: B023
        fresh = {lane.name for lane in placed.stream.lanes} - set(expected)
        read = {view.lane for layer in placed.readout for i in layer.instructions for view in i.views()}
        assert all(not found[lane].any() for lane in fresh - read)
    assert done >= len(PLACES)  # all of these are made of what these targets have


def test_scratch_lanes_are_named_after_lane_and_layer_and_know_their_bounds() -> None:
    layer = Layer("any", "first layer", (Attend("p[k]", Score(TANH, ("x[c]", "W[k,c]")), value="y[k]"),))
    scratch = Lane("p", (2,))
    stream = ig.example_stream(3, 2, Lane("W", (2, 3), "weight", bound=4.0), scratch)
    program = Program(stream, (Loop(1, (layer, Layer("any", "clear", ig.pointwise(NEGATION, (scratch,))))),), (), "p")
    placed = legalise(program, TARGETS["gpt"], ig.Options("gpt", "pre-ln", x_bound=2.0))
    new = placed.stream.lanes[len(stream.lanes) :]
    assert [lane.name for lane in new] == ["p_first_layer_1", "p_first_layer_2"]
    assert [lane.shape for lane in new] == [(2,), (2,)]
    assert [lane.bound for lane in new] == [3 * 2.0 * 4.0, 1.0]
    assert [(x.name, x.kind) for x in placed.layers] == [
        ("first layer, 1", "mlp"),
        ("first layer, 2", "mlp"),
        ("first layer, 3", "mlp"),
        ("clear", "mlp"),
    ]


def test_where_everything_reads_what_others_write_a_scratch_lane_keeps_them_apart() -> None:
    """An exchange of p and b by two sublayers: each would see what the other wrote."""
    exchange = (
        Attend("b[k]", value="p[k]", scope="all", reduce="mean"),
        Attend("p[k]", Score(TANH, ("b[k]", "one")), value="y[k]"),
    )
    scratch = Lane("p", (2,))
    stream = ig.example_stream(3, 2, Lane("W", (2, 3), "weight"), Lane("b", (2,), "weight"), scratch)
    start = Layer("any", "start", (Attend("p[k]", value="y[k]"),))
    layers = (start, Layer("any", "exchange", exchange), Layer("any", "clear", ig.pointwise(NEGATION, (scratch,))))
    program = Program(stream, (Loop(2, layers),), (), "p")
    for name, variant in PLACES:
        options = ig.Options(name, variant, sigma=next(iter(TARGETS[name].sigmas), None))
        placed = legalise(program, TARGETS[name], options)
        for lane, value in final(program).items():
            torch.testing.assert_close(final(placed)[lane], value, rtol=1e-12, atol=1e-13)


def test_shared_lanes_go_to_the_key_side_so_that_one_layer_does() -> None:
    scratch = Lane("p", (2,))
    stream = ig.example_stream(3, 2, Lane("W", (2, 3), "weight"), scratch)
    forward = Layer("any", "forward", (Attend("p[k]", Score(TANH, ("W[k,c]", "x[c]"), ("one", "y[k]"))),))
    program = Program(stream, (Loop(1, (forward, Layer("any", "clear", ig.pointwise(NEGATION, (scratch,))))),), (), "p")
    placed = legalise(program, TARGETS["relu"], ig.Options())
    assert [(layer.name, layer.kind) for layer in placed.layers] == [("forward", "attention"), ("clear", "mlp")]
    assert placed.layers[0].instructions[0].scores == (Score(TANH, ("x[c]", "W[k,c]"), ("y[k]", "one")),)


def test_divisions_are_kept_apart_from_one_another_and_from_others() -> None:
    """On gpt a layer divides everything it reads by one lane."""
    c, d = (Lane(name, (), "state", shared=False, bound=8.0, fill=2.0 + n) for n, name in enumerate("cd"))
    stream = ig.example_stream(3, 2, Lane("W", (2, 3), "weight"), Lane("b", (2,), "weight"), c, d, Lane("p", (2,)))
    by_c, by_d = (Attend("p[k]", Score(RECIPROCAL, (lane, "one")), value="y[k]") for lane in ("c", "d"))
    layer = Layer("any", "divide", (by_c, by_d, Attend("p[k]", value="y[k]")))
    program = Program(
        stream, (Loop(1, (Layer("any", "clear", ig.pointwise(NEGATION, (Lane("p", (2,)),))),)),), (layer,), "p"
    )
    options = ig.Options("gpt", "raw")
    placed = legalise(program, TARGETS["gpt"], options)
    assert [x.name for x in placed.readout] == ["divide, 1", "divide, 2", "divide, 3"]
    TARGETS["gpt"].check(TARGETS["gpt"].prepare(placed, options), options)
    torch.testing.assert_close(final(placed)["p"], final(program)["p"], rtol=1e-13, atol=0.0)
