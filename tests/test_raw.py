"""The primitives mov, aff, mul and div, and the two chains made of them, against numpy and autograd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import innergrad as ig
from innergrad.interpret import plain
from innergrad.ir.program import Program
from innergrad.ir.stream import Lane
from innergrad.model.executors import EXECUTORS
from innergrad.transformer import CompiledTransformer

raw = ig.raw
VARIANTS = ("pre-ln", "raw")
D, QUERIES = 3, 2
SGD = raw.OneStepSGD(D, lr=0.2, weight_decay=0.3, w=(0.5, -1.0, 0.7))
RIDGE = raw.OneStepRidge(D, ridge=0.5)


def prompt(algorithm: Any, seed: int = 0, n_query: int = QUERIES) -> tuple[Any, Any, Any]:
    X, y, X_query = algorithm.random_prompt(1, n_query, torch.Generator().manual_seed(seed))
    return X.numpy(), y.numpy(), X_query.numpy()


# --------------------------------------------------------------------------------------------- one operation at a time


@dataclass(frozen=True)
class Single(raw.Chain):
    """Fills its lanes with numbers that differ between tokens, then does one operation.

    A = [x, x], B (2 x 3) = x + y + 1 in every entry times its number; c = x_0 + 5, which is positive.
    """

    kind: ClassVar[str] = "single"
    n_readout: ClassVar[int] = 1

    d: int = D
    operation: Any = None

    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        return {"A": (2, D), "B": (D, 2), "c": (), "P": (2, 2), "Q": (2, D), "z": (D,)}

    def ranges(self, options: ig.Options) -> dict[str, float]:
        return {"A": 8.0, "B": 8.0, "c": 9.0}

    def operations(self) -> tuple[Any, ...]:
        A = tuple(tuple(float(i % D == j) for j in range(D)) for i in range(2 * D))
        B = tuple(tuple(0.3 * (i + j) - 0.7 for j in range(D)) for i in range(2 * D))
        return (
            raw.Aff("A", (("x", A),)),
            raw.Aff("B", (("x", B), ("y", tuple((0.2 * i,) for i in range(2 * D)))), bias=(0.5,) * (2 * D)),
            raw.Aff("c", (("x", ((1.0, 0.0, 0.0),)),), bias=(5.0,)),
            raw.Aff("P", bias=(1.0, -2.0, 3.0, -4.0)),
            self.operation,
            raw.Aff("out", (("x", ((1.0, 0.0, 0.0),)),)),
        )


def lanes_after(tf: CompiledTransformer, data: tuple[Any, Any, Any]) -> list[Mapping[str, np.ndarray]]:
    """The lanes of the tokens (not of the sink) before the operation and after it, by the matrices."""
    found = []
    layers = list(tf.module.stored_layers())
    names = [layer.name for layer in layers]
    for last in ("aff P", "aff out"):
        h = tf.stream(*data)
        for layer in layers[: names.index(last) + (last == "aff P")]:
            h = layer(h)
        state = tf.program.stream.unpack(h)
        found.append({name: lane[0, int(tf.program.sink) :].numpy() for name, lane in state.items()})
    return found


def moved(before: Mapping[str, np.ndarray], source: int, target: int, src: str, dst: str) -> np.ndarray:
    wanted = before[dst].copy()
    wanted[target:] = before[src][source] if target == 2 else wanted[target:]
    if target < 2:
        wanted[target] = before[src][source]
    return wanted


W = np.random.default_rng(3).normal(size=(2, 2 * D, 2 * D))
B0 = np.random.default_rng(4).normal(size=2 * D)


def nested(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


OPERATIONS: dict[str, tuple[Any, str, Any]] = {
    "mov, into the token after": (raw.Mov(0, 1, "A", "A"), "A", lambda h: moved(h, 0, 1, "A", "A")),
    "mov, between lanes": (raw.Mov(0, 1, "A", "Q"), "Q", lambda h: moved(h, 0, 1, "A", "Q")),
    "mov, into the queries": (raw.Mov(1, "queries", "B", "B"), "B", lambda h: moved(h, 1, 2, "B", "B")),
    "mov, x into the queries": (raw.Mov(0, "queries", "x", "z"), "z", lambda h: moved(h, 0, 2, "x", "z")),
    "aff": (
        raw.Aff("Q", (("A", nested(W[0])), ("B", nested(W[1]))), bias=tuple(B0.tolist())),
        "Q",
        lambda h: (h["A"].reshape(-1, 6) @ W[0].T + h["B"].reshape(-1, 6) @ W[1].T + B0).reshape(-1, 2, D),
    ),
    "aff, in place": (raw.Aff("A", (("A", -0.5), ("Q", 2.0))), "A", lambda h: -0.5 * h["A"] + 2 * h["Q"]),
    "aff, nothing but a bias": (
        raw.Aff("A", bias=tuple(B0.tolist())),
        "A",
        lambda h: np.broadcast_to(B0.reshape(2, D), h["A"].shape),
    ),
    "mul, 2 x 3 and 3 x 2": (raw.Mul((2, D, 2), "A", "B", "P"), "P", lambda h: h["A"] @ h["B"]),
    "mul, a scalar": (raw.Mul((D, 1, 1), "x", "c", "z"), "z", lambda h: h["x"] * h["c"][:, None]),
    "mul, in place": (raw.Mul((D, 1, 1), "x", "y", "x"), "x", lambda h: h["x"] * h["y"]),
    "div": (raw.Div("A", "c", "Q"), "Q", lambda h: h["A"] / np.abs(h["c"])[:, None, None]),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_what_numpy_does_and_nothing_else(name: str, variant: str) -> None:
    """In every token; the matrices themselves, in float64. All other lanes stay."""
    operation, dst, wanted = OPERATIONS[name]
    tf = ig.compile(Single(operation=operation), variant=variant, n_examples=1, z_bound=16.0)
    before, after = lanes_after(tf, prompt(SGD))
    assert np.abs(before[dst] - wanted(before)).max() > 0.1, "the operation has something to do"
    assert np.abs(after[dst] - wanted(before)).max() < 1e-8
    others = [lane.name for lane in tf.program.stream.lanes if lane.name not in (dst, "pad_up", "pad_down", "out")]
    assert max(np.abs(after[lane] - before[lane]).max() for lane in others) < 1e-8


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))
def test_every_shape_of_mul_is_a_matrix_product(a: int, b: int, c: int, seed: int) -> None:
    """By the plain interpreter, on lanes whose shape is not the matrices'."""
    shapes = {"L": (a * b,), "R": (b * c,), "M": (a * c,)}
    lanes = [Lane(name, shape, "state", shared=False) for name, shape in shapes.items()]
    stream = ig.example_stream(1, 1, *lanes, Lane("out", (1,), "state", shared=False))
    layer = raw.Mul((a, b, c), "L", "R", "M").layer(stream, "one")
    program = Program(stream, (ig.Loop(1, (layer,)),), (), "out")
    rng = np.random.default_rng(seed)
    state = {lane.name: torch.from_numpy(rng.normal(size=(1, 1, *lane.shape))) for lane in stream.lanes}
    state["one"] = torch.ones(1, 1, dtype=torch.float64)
    ((_, after, _),) = plain.run(program, state, program.functions())
    L, R = (state[name].numpy()[0, 0] for name in ("L", "R"))
    assert np.allclose(after["M"][0, 0].numpy(), (L.reshape(a, b) @ R.reshape(b, c)).ravel(), atol=1e-12)


# ------------------------------------------------------------------------------------------------------- the two chains


def sgd_answer(X: np.ndarray, y: np.ndarray, X_query: np.ndarray) -> np.ndarray:
    x, w = X[0], np.array(SGD.w)
    return X_query @ (w - SGD.lr * (x * (w @ x - y[0, 0]) + 2 * SGD.weight_decay * w))


def ridge_answer(X: np.ndarray, y: np.ndarray, X_query: np.ndarray) -> np.ndarray:
    x = X[0]
    return X_query @ np.linalg.inv(np.outer(x, x) + RIDGE.ridge * np.eye(D)) @ x * y[0, 0]


CHAINS = {"sgd": (SGD, sgd_answer), "ridge": (RIDGE, ridge_answer)}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_predicts_what_numpy_does(name: str, variant: str, executor: Any) -> None:
    algorithm, answer = CHAINS[name]
    tf = ig.compile(algorithm, variant=variant, n_examples=1)
    for seed in range(3):
        data = prompt(algorithm, seed)
        got = tf.run(*data, executor=executor).predictions[:, 0].numpy()
        assert np.abs(got - answer(*data)).max() < 1e-8
        assert np.abs(answer(*data)).max() > 0.01


@pytest.mark.parametrize("name", CHAINS)
def test_the_label_holds_the_new_weights_before_the_read_out(name: str) -> None:
    """Predictions at the basis vectors are the weights; the token of y_1 has them in its lane w."""
    algorithm, answer = CHAINS[name]
    X, y, _ = prompt(algorithm)
    tf = ig.compile(algorithm, n_examples=1)
    states = [lanes["w"] for _, lanes in tf.trace(X, y)]
    wanted = torch.from_numpy(answer(X, y, np.eye(D)))
    assert float((states[tf.n_layers][0, int(tf.program.sink) + 1] - wanted).abs().max()) < 1e-8


@pytest.mark.parametrize(
    ("algorithm", "operations", "blocks"),
    [(SGD, 9, 7), (RIDGE, 14, 12), (raw.OneStepSGD(7), 9, 7), (raw.OneStepRidge(5), 14, 12)],
)
def test_the_papers_counts(algorithm: Any, operations: int, blocks: int) -> None:
    """Nine and fourteen operations (App. A and B), a layer of the program each; fewer layers of a transformer, since a
    mov needs no MLP and the others, division aside, no attention.
    """
    assert len(algorithm.operations()) == operations
    program = algorithm.program(ig.Options("gpt", "raw", n_examples=1))
    assert program.n_layers + len(program.readout) == operations
    for variant in VARIANTS:
        cost = ig.compile(algorithm, variant=variant, n_examples=1).cost()
        assert cost.blocks + cost.readout_blocks == blocks <= operations


def test_the_widths_grow_as_the_theorems_say() -> None:
    """O(d) and O(d^2): differences of a polynomial of degree k vanish at order k + 1."""
    for make, degree in ((raw.OneStepSGD, 1), (raw.OneStepRidge, 2)):
        widths = [make(d).program(ig.Options("gpt", n_examples=1)).stream.d_model for d in range(1, 8)]
        assert not np.diff(widths, n=degree + 1).any()
        assert np.diff(widths, n=degree).all()


@pytest.mark.parametrize("name", CHAINS)
def test_every_operation_matters(name: str) -> None:
    """Without any one of them the prediction is another one; but for x y, which the paper computes and never uses."""
    algorithm, answer = CHAINS[name]
    data = prompt(algorithm)

    @dataclass(frozen=True)
    class Without(type(algorithm)):  # type: ignore[misc]
        kind: ClassVar[str] = "without"
        skipped: int = 0

        def operations(self) -> tuple[Any, ...]:
            every = super().operations()
            return every[: self.skipped] + every[self.skipped + 1 :]

    unused = []
    for k in range(len(algorithm.operations()) - 1):
        without = Without(**algorithm.config(), skipped=k)
        try:
            got = ig.compile(without, n_examples=1, variant="raw").run(*data, executor="plain").predictions[:, 0]
        except ig.DomainError:  # without the division, or what it divides by
            continue
        if np.abs(got.numpy() - answer(*data)).max() < 1e-6:
            unused.append(algorithm.operations()[k].name)
    assert unused == ([] if name == "sgd" else ["mul xy"])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CHAINS)
def test_verify_passes_and_a_folder_gives_the_same(name: str, variant: str, tmp_path: Any) -> None:
    algorithm, _ = CHAINS[name]
    tf = ig.compile(algorithm, variant=variant, n_examples=1)
    report = tf.verify(prompts=2)
    assert report.passed, str(report)
    tf.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    data = prompt(algorithm)
    assert again.algorithm == algorithm
    assert torch.equal(again.run(*data, executor="dense").predictions, tf.run(*data, executor="dense").predictions)


def test_the_queries_are_independent_and_all_get_the_weights() -> None:
    tf, data = ig.compile(RIDGE, n_examples=1), prompt(RIDGE, n_query=5)
    together = tf.run(*data, executor="dense").predictions
    alone = [tf.run(data[0], data[1], query[None], executor="dense").predictions[0] for query in data[2]]
    assert float((together - torch.stack(alone)).abs().max()) < 1e-9


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: raw.OneStepSGD(0), "d must be a positive integer"),
        (lambda: raw.OneStepSGD(2, w=(1.0,)), "w is d numbers"),
        (lambda: raw.OneStepSGD(1, w=(float("nan"),)), "w is d numbers"),
        (lambda: raw.OneStepSGD(2, lr=-1.0), "lr must be a finite number"),
        (lambda: raw.OneStepRidge(2, ridge=0.0), "ridge must be a positive number"),
        (lambda: ig.compile(SGD), "one_step_sgd learns from one example"),
        (lambda: ig.compile(SGD, target="relu", n_examples=1), "one_step_sgd has no program for target 'relu'"),
        (lambda: ig.compile(SGD, n_examples=1).run(*prompt(SGD), w0=np.ones(D)), "w0"),
        (lambda: raw.Mov(1, 1, "x", "x"), "mov reads an earlier token"),
        (lambda: raw.Mov(2, "queries", "x", "x"), "mov reads an earlier token"),
        (lambda: raw.Mov(0, 2, "x", "x"), "mov writes a token of the example, or the queries"),
        (
            lambda: ig.compile(Single(operation=raw.Mul((2, 2, 2), "A", "B", "P")), n_examples=1),
            "do not have these matrices' entries",
        ),
        (
            lambda: ig.compile(Single(operation=raw.Aff("P", (("A", nested(W[0])),))), n_examples=1),
            "aff P: a matrix for lane A has 4 rows and 6 columns",
        ),
        (
            lambda: ig.compile(Single(operation=raw.Aff("P", (("A", 1.0),))), n_examples=1),
            "aff P: a multiple of I needs lanes of one size",
        ),
        (lambda: ig.compile(Single(operation=raw.Aff("P", bias=(1.0,))), n_examples=1), "aff P: a bias has 4 numbers"),
        (lambda: ig.compile(MovesADivisor(), n_examples=1), "a lane that is divided by cannot be moved"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(make: Any, reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        make()


@dataclass(frozen=True)
class MovesADivisor(Single):
    kind: ClassVar[str] = "moves a divisor"

    def operations(self) -> tuple[Any, ...]:
        return raw.Mov(0, 1, "c", "c"), raw.Div("A", "c", "Q"), raw.Aff("out", (("y", 1.0),))
