"""The plain interpreter against the definition of the instruction, written as loops over tokens and indices.

:func:`naive` knows nothing of einsum, masks or shared lanes: for every token that is written, every index and every
token in the scope it evaluates

    dst_i  +=  scale * reduce over s in scope(i) of  f_1(z_1) f_2(z_2) ... * value_s,
    z = sum over pairs of <query_i, key_s>
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from innergrad.algorithms import example_stream
from innergrad.errors import DomainError
from innergrad.functions import approximate
from innergrad.functions.scalar import IDENTITY, SIGMOID, SIN, TANH
from innergrad.interpret import plain
from innergrad.ir.program import Attend, Expr, Layer, Loop, Program, Score, View
from innergrad.ir.stream import Lane, State

STREAM = example_stream(
    3,
    2,
    Lane("W", (2, 3), "weight"),
    Lane("g", (2,), "state"),
    Lane("c", (), "state"),
    Lane("Q", (3, 3), "weight"),
    Lane("V", (2, 3)),
    Lane("p", (2,)),
    Lane("s"),
    Lane("m", (), "input"),
)
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "identity": lambda z: z,
}
POOL = {2: "kl", 3: "ab"}  # labels by the size of their axis


# --------------------------------------------------------------------------------------------------- the definition


def entry(view: View, state: Mapping[str, np.ndarray], b: int, token: int, at: Mapping[str, int]) -> float:
    lane = state[view.lane]
    index = tuple(i if isinstance(i, int) else at[i] for i in view.index)
    return view.coefficient * float(lane[(b, token if lane.shape[1] > 1 else 0, *index)])


def combination(expression: Expr, *where: Any) -> float:
    return sum(entry(view, *where) for view in expression)


def sizes_of(instruction: Attend) -> dict[str, int]:
    sizes = {}
    for view in instruction.views():
        for label, size in zip(view.index, STREAM[view.lane].shape, strict=True):
            if isinstance(label, str):
                sizes[label] = size
    return sizes


def argument(score: Score, family: tuple[str, ...], sizes: Mapping[str, int], state: Any, b: int, i: int, s: int,
             at: Mapping[str, int]) -> float:  # fmt: skip
    z = 0.0
    for query, key in score.pairs:
        labels = sorted({label for view in (*query, *key) for label in view.labels} - set(family))
        for values in itertools.product(*(range(sizes[label]) for label in labels)):
            here = {**at, **dict(zip(labels, values, strict=True))}
            z += combination(query, state, b, i, here) * combination(key, state, b, s, here)
    return z


def in_scope(scope: str, state: Mapping[str, np.ndarray], b: int, i: int, s: int, causal: bool, sink: bool) -> bool:
    """Does token i read token s? A sink, token 0, is no token of the prompt: positions count from the one after it."""
    if scope == "self":
        return s == i
    if causal and s > i:
        return False
    if scope == "all":
        return True
    first = int(sink)
    if i < first:
        return False
    if scope.startswith("at("):
        token, _, since = scope[3:-1].partition(",")
        return s - first == int(token) and i - first >= int(since or 0) and state["query"][b, s] == 0
    if scope in ("before", "upto", "previous"):
        return s >= first and {"before": s < i, "upto": s <= i, "previous": s == i - 1}[scope]
    mask = state["t" if scope == "demos" else scope]
    return bool(mask[b, s if mask.shape[1] > 1 else 0] == 1)


def naive(instruction: Attend, state: Mapping[str, np.ndarray], causal: bool = False, sink: bool = False) -> np.ndarray:
    """What the instruction adds to its destination, at every token: (batch, tokens, *shape)."""
    batch, tokens = state["x"].shape[:2]
    family, sizes = instruction.dst.labels, sizes_of(instruction)
    added = np.zeros((batch, tokens, *STREAM[instruction.dst.lane].shape))
    for b, i in itertools.product(range(batch), range(tokens)):
        if instruction.where != "all" and state["t"][b, i] != (instruction.where == "demos"):
            continue
        read = [s for s in range(tokens) if in_scope(instruction.scope, state, b, i, s, causal, sink)]
        for values in itertools.product(*(range(sizes[label]) for label in family)):
            at = dict(zip(family, values, strict=True))
            terms, weights = [], []
            for s in read:
                scores = [
                    FUNCTIONS[score.f.name](argument(score, family, sizes, state, b, i, s, at))
                    for score in instruction.scores
                ]
                value = combination(instruction.value, state, b, s, at)
                if instruction.reduce == "softmax":
                    (z,) = scores
                    terms.append(value)
                    weights.append(math.exp(z))
                else:
                    terms.append(math.prod(scores) * value)
                    weights.append(1.0)
            total = sum(weight * term for weight, term in zip(weights, terms, strict=True))
            if read and instruction.reduce != "sum":
                total /= sum(weights)
            index = tuple(i if isinstance(i, int) else at[i] for i in instruction.dst.index)
            added[(b, i, *index)] += instruction.scale * total
    return added


def naive_layer(instructions: tuple[Attend, ...], state: State, **kind: bool) -> dict[str, np.ndarray]:
    """All read the state before the layer, then all add; every lane per token."""
    tokens = state["x"].shape[1]
    before = {name: value.numpy() for name, value in state.items()}
    after = {name: np.repeat(v, tokens, axis=1) if v.shape[1] == 1 else v.copy() for name, v in before.items()}
    for instruction in instructions:
        after[instruction.dst.lane] += naive(instruction, before, **kind)
    return after


# ------------------------------------------------------------------------------------------------ random instructions


@st.composite
def views(draw: st.DrawFn, lanes: list[Lane], labels: str, diagonal: bool = True) -> View:
    """A view of one of the lanes with some of the labels; a label twice, the diagonal, unless told not to."""
    lane = draw(st.sampled_from(lanes))
    index: list[str | int] = []
    for size in lane.shape:
        choices = [label for label in POOL[size] if label in labels and (diagonal or label not in index)]
        index.append(draw(st.one_of(st.sampled_from(choices), st.sampled_from(choices), st.integers(0, size - 1))
                          if choices else st.integers(0, size - 1)))  # fmt: skip
    return View(lane.name, tuple(index), draw(st.sampled_from([1.0, -1.0, 0.5, -2.0])))


@st.composite
def expressions(draw: st.DrawFn, lanes: list[Lane], labels: str) -> list[View]:
    return [draw(views(lanes, labels)) for _ in range(draw(st.sampled_from([1, 1, 2])))]


def text(expression: list[View]) -> str:
    parts = []
    for view in expression:
        index = f"[{','.join(map(str, view.index))}]" if view.index else ""
        parts.append(f"{'-' if view.coefficient < 0 else '+'} {abs(view.coefficient)!r} * {view.lane}{index}")
    return " ".join(parts)


def both_sides(query: list[View], key: list[View], family: tuple[str, ...]) -> None:
    """A summed label that is on one side only becomes index 0, so that the pair is well-formed."""
    shared = {label for view in query for label in view.labels} & {label for view in key for label in view.labels}
    for side in (query, key):
        for i, view in enumerate(side):
            index = tuple(0 if isinstance(j, str) and j not in shared and j not in family else j for j in view.index)
            side[i] = View(view.lane, index, view.coefficient)


@st.composite
def instructions(draw: st.DrawFn) -> Attend:
    every = list(STREAM.lanes)
    lane = draw(st.sampled_from([STREAM[name] for name in ("p", "V", "s", "x", "g", "c", "W", "Q")]))
    written = draw(views([lane], "klab", diagonal=False))
    dst, family = View(lane.name, written.index), written.labels
    scopes = ["self", "all", "demos", "at(0)", "at(2)", "at(9)", "m", "query"]
    private = ["before", "upto", "previous", "at(1,2)", "at(0,3)"]
    scope = draw(st.sampled_from(scopes if lane.shared else [*scopes, *private]))
    where = "all" if lane.shared else draw(st.sampled_from(["all", "demos", "query"]))
    reduce = draw(st.sampled_from(["sum", "mean", "softmax"]))
    read_at_i = [other for other in every if other.shared] if lane.shared else every
    read_at_s = read_at_i if scope == "self" else every
    scores = []
    for _ in range(1 if reduce == "softmax" else draw(st.integers(0, 2))):
        pairs = []
        for _ in range(draw(st.integers(1, 2))):
            query, key = draw(expressions(read_at_i, "klab")), draw(expressions(read_at_s, "klab"))
            both_sides(query, key, family)
            pairs.append((text(query), text(key)))
        scores.append(Score(draw(st.sampled_from([TANH, SIGMOID, IDENTITY])), *pairs))
    value = draw(expressions(read_at_s, "".join(family)))
    scale = draw(st.sampled_from([1.0, -0.25, 3.0, 0.0]))
    destination = text([dst]).removeprefix("+ 1.0 * ")
    return Attend(destination, *scores, value=text(value), scope=scope, reduce=reduce, scale=scale, where=where)


def random_state(batch: int, tokens: int, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    state = {
        lane.name: torch.randn(batch, 1 if lane.shared else tokens, *lane.shape, generator=generator).double()
        for lane in STREAM.lanes
    }
    state["one"] = torch.ones(batch, 1, dtype=torch.float64)
    for name in ("t", "m"):
        state[name] = torch.randint(2, (batch, tokens), generator=generator).double()
    state["query"] = 1 - state["t"]
    return state


def made(*layers: tuple[Attend, ...], count: int = 1, **kind: bool) -> Program:
    body = Loop(count, tuple(Layer("attention", f"layer {i}", layer) for i, layer in enumerate(layers)))
    return Program(STREAM, (body,), (), "p", **kind)  # type: ignore[arg-type]


def check(*layer: Attend, state: State, **kind: bool) -> None:
    program = made(layer, **kind)
    got = plain.apply_layer(program, program.layers[0], state, program.functions())
    tokens = state["x"].shape[1]
    for name, expected in naive_layer(layer, state, **kind).items():
        value = got[name].numpy()
        assert value.shape[1] == (1 if STREAM[name].shared else tokens)
        # sums of less than a thousand numbers of size at most a few hundred, in float64
        np.testing.assert_allclose(np.repeat(value, tokens // value.shape[1], axis=1), expected, rtol=1e-12, atol=1e-11)


LAYERS = given(
    layer=st.lists(instructions(), min_size=1, max_size=2),
    batch=st.integers(1, 2),
    tokens=st.integers(1, 4),
    seed=st.integers(0, 999),
)


@settings(max_examples=120, deadline=None)
@LAYERS
def test_every_instruction_means_its_definition(layer: list[Attend], batch: int, tokens: int, seed: int) -> None:
    """apply_layer is the triple loop, for one or two random instructions that read the same state and both add."""
    check(*layer, state=random_state(batch, tokens, seed))


@pytest.mark.soak
@settings(max_examples=2000, deadline=None)
@LAYERS
def test_every_one_of_many_instructions_means_its_definition(
    layer: list[Attend], batch: int, tokens: int, seed: int
) -> None:
    check(*layer, state=random_state(batch, tokens, seed))


SCOPES = ["self", "all", "demos", "before", "upto", "previous", "at(0)", "at(3)", "at(9)", "at(1,2)", "m", "query"]


@pytest.mark.parametrize("where", ["all", "demos", "query"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "softmax"])
@pytest.mark.parametrize("scope", SCOPES)
def test_every_choice_means_its_definition(scope: str, reduce: Any, where: Any) -> None:
    """All combinations of scope, reduce and where, with private, shared and constant factors."""
    choices = {"scope": scope, "reduce": reduce, "where": where, "scale": -0.5}
    private = Score(TANH, ("x[a]", "x[a]"), ("one", "W[k,a] - V[k,a]"))
    shared = Score(SIGMOID, ("one", "W[k,a]"))
    constant = Score(IDENTITY, ("one", "one"))
    for seed in range(3):
        state = random_state(2, 4, seed)
        for score in (private, shared, constant):
            for value in ("y[k]", "g[k]", "one", "y[1] + g[k]"):
                check(Attend("V[k,a]", score, value=value, **choices), state=state)
                kind = {"causal": seed > 0, "sink": seed < 2}
                check(Attend("V[k,a]", score, value=value, **choices), state=state, **kind)
            check(Attend("V[1,a]", Score(score.f, ("x[a]", "Q[2,a]")), **choices), state=state)
        if reduce != "softmax":
            check(Attend("V[k,a]", private, shared, value="x[a]", **choices), state=state)
            check(Attend("s", **choices), state=state)
        check(Attend("x[a]", Score(TANH, ("x[a]", "one")), value="Q[a,a] + x[a]", **choices), state=state)


def test_instructions_of_a_layer_do_not_see_each_other() -> None:
    """p is moved into s while s is moved into p: nothing is read after it was written."""
    state = random_state(1, 3, 0)
    swap = (Attend("p[0]", value="s"), Attend("s", value="p[0]"), Attend("p[0]", value="p[0]", scale=-1.0))
    check(*swap, state=state)
    program = made(swap)
    after = plain.apply_layer(program, program.layers[0], state, program.functions())
    torch.testing.assert_close(after["p"][..., 0], state["s"])
    assert all(torch.equal(state[name], value) for name, value in random_state(1, 3, 0).items()), "the input is kept"


@settings(max_examples=40, deadline=None)
@given(layer=st.lists(instructions(), min_size=1, max_size=2), seed=st.integers(0, 999))
def test_prompts_of_a_batch_do_not_mix(layer: list[Attend], seed: int) -> None:
    """A prompt alone gives what it gives in a batch (1e-12: the order of the sums may differ)."""
    state, program = random_state(3, 3, seed), made(tuple(layer))
    together = plain.apply_layer(program, program.layers[0], state, program.functions())
    for b in range(3):
        alone = {name: value[b : b + 1] for name, value in state.items()}
        result = plain.apply_layer(program, program.layers[0], alone, program.functions())
        for name, value in result.items():
            torch.testing.assert_close(value, together[name][b : b + 1], rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(layer=st.lists(instructions(), min_size=1, max_size=2), seed=st.integers(0, 999))
def test_shared_lanes_may_be_stored_once_or_per_token(layer: list[Attend], seed: int) -> None:
    """The state as the transformer holds it (shared lanes in every token) gives the same stream."""
    state, program = random_state(2, 3, seed), made(tuple(layer))
    once = plain.apply_layer(program, program.layers[0], state, program.functions())
    copied = STREAM.unpack(STREAM.pack(state))
    copied = plain.apply_layer(program, program.layers[0], copied, program.functions())
    torch.testing.assert_close(STREAM.pack(copied), STREAM.pack(once), rtol=1e-12, atol=1e-12)


def test_run_follows_the_schedule() -> None:
    """run applies the layers of every pass, then the read-out, and says where steps end."""
    forward = Attend("p[k]", Score(TANH, ("x[a]", "W[k,a]")))
    update = Attend("W[k,a]", Score(IDENTITY, ("one", "p[k]")), value="x[a]", scope="demos", reduce="mean", scale=-0.1)
    clear = Attend("p[k]", value="p[k]", scale=-1.0)
    body = Loop(3, (Layer("attention", "forward", (forward,)), Layer("attention", "update", (update, clear))))
    program = Program(STREAM, (body,), (Layer("attention", "readout", (forward,)),), "p")
    state = random_state(2, 4, 7)
    expected = state
    names = []
    for layer, got, ends in plain.run(program, state, program.functions()):
        after = naive_layer(layer.instructions, expected)
        expected = {n: torch.from_numpy(v[:, :1] if STREAM[n].shared else v) for n, v in after.items()}
        for name, value in got.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12)
        names.append((layer.name, ends))
    assert names == [("forward", False), ("update", True)] * 3 + [("readout", False)]


def test_observers_see_every_argument() -> None:
    """The observer gets the arguments of every score: the inner products, here by hand."""
    seen: list[tuple[str, torch.Tensor]] = []
    instruction = Attend("s", Score(TANH, ("x[a]", "x[a]")), Score(SIGMOID, ("one", "c")), scope="all")
    program, state = made((instruction,)), random_state(1, 3, 1)
    list(
        plain.run(program, state, program.functions(), observer=lambda _l, _i, score, z: seen.append((score.f.name, z)))
    )
    assert [name for name, _ in seen] == ["tanh", "sigmoid"]
    gram = state["x"][0] @ state["x"][0].T
    torch.testing.assert_close(seen[0][1].sort().values.flatten(), gram[None].sort().values.flatten())
    assert seen[1][1].flatten().tolist() == state["c"].flatten().tolist()


def test_arguments_outside_the_domain_are_refused() -> None:
    """An approximant of sin on [-2, 2] is not used at 2.5; at 2 it is."""
    program, state = made((Attend("s", Score(SIN, ("c", "one"))),)), random_state(1, 2, 0)
    functions = {"sin": approximate(SIN, 1e-3, 2.0)}
    before = state["s"]
    state["c"] = torch.full((1, 1), 2.0, dtype=torch.float64)
    after = plain.apply_layer(program, program.layers[0], state, functions)["s"]
    assert ((after - before - math.sin(2.0)).abs() <= 1e-3).all()
    state["c"] = torch.full((1, 1), 2.5, dtype=torch.float64)
    with pytest.raises(DomainError, match="layer 0: an argument of sin left the domain"):
        plain.apply_layer(program, program.layers[0], state, functions)
