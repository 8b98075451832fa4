"""Expressions, programs and streams: what can be written down, what it means, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innergrad.algorithms import example_stream
from innergrad.errors import InputError
from innergrad.functions.scalar import EXP, IDENTITY, SIGMOID, TANH, Function
from innergrad.ir.program import Attend, Expr, Layer, Loop, Program, Score, View, expr
from innergrad.ir.stream import Lane, Role, Stream

# ------------------------------------------------------------------------------------------------------- expressions

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
indices = st.lists(st.one_of(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), st.integers(0, 99)), max_size=3).map(tuple)
coefficients = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
spaces = st.sampled_from(["", " ", "  "])


@given(data=st.data())
def test_expressions_round_trip(data: st.DataObject) -> None:
    """expr(text) is the list of views the text was written from, whatever the spaces and the way numbers are put."""
    views: list[View] = []
    text = ""
    for i in range(data.draw(st.integers(1, 4))):
        name, index, size = data.draw(names), data.draw(indices), data.draw(coefficients)
        negative = data.draw(st.booleans())
        space = [data.draw(spaces) for _ in range(7)]
        sign = "-" if negative else "+" if i or data.draw(st.booleans()) else ""
        number = data.draw(st.sampled_from([repr(size), f"{size:.17e}", f"{size:.17E}"]))
        if size == 1.0 and data.draw(st.booleans()):
            number = ""
        elif size == int(size) and size < 1e15:
            number = data.draw(st.sampled_from([number, str(int(size)), f"{int(size)}."]))
        text += space[0] + sign + space[1] + (number + space[2] + "*" + space[3] if number else "") + name
        if index:
            text += space[4] + "[" + (space[5] + "," + space[6]).join(map(str, index)) + "]"
        views.append(View(name, index, -size if negative else size))
    assert expr(text + data.draw(spaces)) == tuple(views)


def test_expression_examples() -> None:
    """The examples of the docstrings, written out."""
    assert expr("p3[k] - y[k]") == (View("p3", ("k",), 1.0), View("y", ("k",), -1.0))
    assert expr("-0.5*V1[k,c]") == (View("V1", ("k", "c"), -0.5),)
    assert expr("V1[2, c]")[0].labels == ("c",)
    assert expr("one") == (View("one"),)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "+", "2", "2*", "2 x", "x y", "x[", "x[]", "x[k", "x[k,]", "x[K]", "x[kc]", "x[-1]", "x[1.5]", "x +",
     "x + 2", "- - x", "x*2", "1e*x", ".5*x", "x.y", "x[k][c]", "(x)", "x[k] y[k]"],
)  # fmt: skip
def test_unreadable_expressions_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expression"):
        expr(text)


# --------------------------------------------------------------------------------------------------- well-formedness

STREAM = example_stream(
    3,
    2,
    Lane("W", (2, 3), "weight"),
    Lane("b", (2,), "weight"),
    Lane("p", (2,)),
    Lane("z", (2,)),
    Lane("g", (2,), "scratch", shared=True),
    Lane("c", (), "state"),
    Lane("square", (3, 3), "weight"),
)
FORWARD = Attend("p[k]", Score(TANH, ("x[c]", "W[k,c]"), ("one", "b[k]")))
UPDATE = Attend("W[k,c]", Score(IDENTITY, ("one", "p[k]")), value="x[c]", scope="all", reduce="mean", scale=-0.1)


def layer(*instructions: Attend, kind: str = "attention") -> Layer:
    return Layer(kind, "here", instructions)  # type: ignore[arg-type]


def program(*instructions: Attend, **parts: Any) -> Program:
    """A valid program, with the given instructions in its step or the given parts replaced."""
    body = (Loop(2, (layer(*(instructions or (FORWARD, UPDATE))),)),)
    return Program(**{"stream": STREAM, "body": body, "readout": (layer(FORWARD),), "prediction": "p", **parts})


def test_the_valid_program_is_valid() -> None:
    """The base of the table below; its counts by hand."""
    valid = program()
    assert (valid.n_layers, valid.steps, valid.n_weights) == (2, 2, 6 + 2 + 9)
    assert [lane.name for lane in valid.weights] == ["W", "b", "square"]
    assert valid.functions() == {"tanh": TANH, "identity": IDENTITY}
    assert valid.label_sizes(FORWARD) == {"k": 2, "c": 3}


def other(*lanes: Lane, without: str = "") -> Stream:
    return Stream((*(lane for lane in STREAM.lanes if lane.name != without), *lanes))


tanh_too = Function("tanh", torch.sigmoid)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    # the program
    "body of layers": (lambda: program(body=(layer(FORWARD),)), "the body is a tuple of Loops"),
    "no step": (lambda: program(body=(Loop(1, (layer(FORWARD),), step=False),)), "needs a Loop that is a step"),
    "no body": (lambda: program(body=()), "needs a Loop that is a step"),
    "no weights": (
        lambda: program(stream=example_stream(3, 2, Lane("p", (2,)), Lane("W", (2, 3)), Lane("b", (2,)))),
        "role 'weight'",
    ),
    "unknown prediction": (lambda: program(prediction="q"), "unknown lane; got 'q'"),
    "prediction of another shape": (lambda: program(prediction="x"), "of the shape of y"),
    "shared prediction": (lambda: program(prediction="g"), "must be per token"),
    "stream without y": (
        lambda: program(stream=other(without="y")),
        "a stream has the lanes x, y, one, t, query, omega; got no lane y",
    ),
    "loop of zero passes": (
        lambda: program(body=(Loop(1, (layer(FORWARD),)), Loop(0, (layer(FORWARD),)))),
        "a positive number of times; got 0",
    ),
    "loop of negative passes": (
        lambda: program(body=(Loop(5, (layer(FORWARD),)), Loop(-1, (layer(FORWARD),)))),
        "a positive number of times; got -1",
    ),
    "loop of half a pass": (lambda: program(body=(Loop(1.5, (layer(FORWARD),)),)), "a positive number of times"),  # type: ignore[arg-type]
    "loop without layers": (lambda: program(body=(Loop(1, ()),)), "a Loop needs layers"),
    "unknown kind": (lambda: program(readout=(layer(FORWARD, kind="conv"),)), "layer here: unknown kind; got conv"),
    "no instructions": (lambda: program(readout=(layer(),)), "takes a tuple of Attends"),
    "list of instructions": (
        lambda: program(readout=(Layer("mlp", "here", [FORWARD]),)),  # type: ignore[arg-type]
        "takes a tuple of Attends",
    ),
    "other instructions": (lambda: program(readout=(layer("p[k]"),)), "takes a tuple of Attends"),  # type: ignore[arg-type]
    "one name, two functions": (
        lambda: program(FORWARD, Attend("z[k]", Score(tanh_too, ("p[k]", "one")))),
        "two different functions of one program have the same name; got tanh",
    ),
    "exp on a domain, under its name": (
        lambda: program(FORWARD, Attend("z[k]", Score(replace(EXP, radius=2.0), ("p[k]", "one")))),
        "exp is a function of the library, which some targets compute as it is; got another function",
    ),
    "another relu": (
        lambda: program(FORWARD, Attend("z[k]", Score(Function("relu", torch.tanh), ("p[k]", "one")))),
        "relu is a function of the library",
    ),
    # views
    "unknown destination": (lambda: program(Attend("q")), "unknown lane; got 'q'"),
    "unknown value": (lambda: program(Attend("c", value="q")), "unknown lane; got 'q'"),
    "unknown key": (lambda: program(Attend("c", Score(TANH, ("c", "q")))), "unknown lane; got 'q'"),
    "too few indices": (lambda: program(Attend("p")), "layer here, p: lane p has shape (2,); got indices []"),
    "too many indices": (lambda: program(Attend("c[k]")), "lane c has shape (); got indices ['k']"),
    "index too large": (lambda: program(Attend("p[2]")), "lane p has shape (2,); got index 2"),
    "label of two sizes": (
        lambda: program(Attend("p[k]", value="x[k]")),
        "label k ranges over 2 and over 3 entries",
    ),
    "summed on the query side only": (
        lambda: program(Attend("z[k]", Score(TANH, ("x[c]", "b[k]")))),
        "on both sides of the inner product; got ['c']",
    ),
    "summed on the key side only": (
        lambda: program(Attend("z[k]", Score(TANH, ("one", "W[k,c]")))),
        "on both sides of the inner product; got ['c']",
    ),
    # choices
    "unknown reduce": (lambda: program(Attend("c", reduce="max")), "unknown reduce; got max"),  # type: ignore[arg-type]
    "unknown where": (lambda: program(Attend("z[k]", value="p[k]", where="some")), "unknown where; got some"),  # type: ignore[arg-type]
    "unknown scope": (lambda: program(Attend("c", scope="after")), "unknown scope; got after"),
    "scope of a vector lane": (lambda: program(Attend("c", scope="x")), "unknown scope; got x"),
    "scope of a shared lane": (lambda: program(Attend("z[k]", value="p[k]", scope="one")), "unknown scope; got one"),
    "softmax of nothing": (
        lambda: program(Attend("z[k]", value="p[k]", scope="all", reduce="softmax")),
        "a softmax has one score; got 0",
    ),
    "softmax of a product": (
        lambda: program(Attend("z[k]", Score(TANH, ("one", "t")), Score(TANH, ("one", "t")), reduce="softmax")),
        "a softmax has one score; got 2",
    ),
    "scope at nowhere": (lambda: program(Attend("c", scope="at(-1)")), "unknown scope; got at(-1)"),
    # shared lanes
    "private query into a shared lane": (
        lambda: program(Attend("c", Score(TANH, ("x[a]", "x[a]")), scope="all")),
        "a shared lane must receive the same in every token; got x differs",
    ),
    "private value into a shared lane": (lambda: program(Attend("g[k]", value="p[k]")), "got p differs"),
    "private key into a shared lane": (
        lambda: program(Attend("g[k]", Score(TANH, ("one", "p[k]")))),
        "got p differs between tokens",
    ),
    "shared lane on the demos only": (lambda: program(Attend("c", scope="all", where="demos")), "the same in every"),
    "shared lane, tokens before": (lambda: program(Attend("c", value="t", scope="before")), "before differs"),
    "shared lane, tokens up to": (lambda: program(Attend("c", value="t", scope="upto")), "upto differs"),
    # instructions
    "two destinations": (lambda: Attend("p[k] + z[k]"), "writes one lane, with distinct labels"),
    "scaled destination": (lambda: Attend("2*p[k]"), "writes one lane, with distinct labels"),
    "negative destination": (lambda: Attend("-p[k]"), "writes one lane, with distinct labels"),
    "repeated label": (lambda: Attend("square[k,k]"), "writes one lane, with distinct labels"),
    "loose label of the value": (lambda: Attend("c", value="x[k]"), "must be labels of the destination; got ['k']"),
    "score without function": (lambda: Score(("x[c]", "W[k,c]")), "first argument of a Score is its function"),  # type: ignore[arg-type]
    "score of a name": (lambda: Score("tanh", ("x[c]", "W[k,c]")), "first argument of a Score"),  # type: ignore[arg-type]
    "score without pairs": (lambda: Score(TANH), "needs (query, key) pairs"),
    "score of a string": (lambda: Score(TANH, "x[c]"), "needs (query, key) pairs"),  # type: ignore[arg-type]
    "score of a triple": (lambda: Score(TANH, ("x[c]", "W[k,c]", "one")), "needs (query, key) pairs"),  # type: ignore[arg-type]
    # streams
    "two lanes of one name": (lambda: Stream((Lane("a"), Lane("b"), Lane("a"))), "must be unique; got ['a', 'a']"),
    "unknown role": (lambda: Lane("a", (), "weights"), "lane a: unknown role; got 'weights'"),  # type: ignore[arg-type]
    "shape of a number": (lambda: Lane("a", 3), "lane a: a shape is a tuple; got 3"),  # type: ignore[arg-type]
    "no such lane": (lambda: STREAM["nothing"], "unknown lane; got 'nothing'"),
    "no such entry": (lambda: STREAM.entry("nothing"), "unknown lane; got 'nothing'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused(case: str) -> None:
    """Every snippet raises InputError, and the message says what is wrong."""
    make, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: program(body=(Loop("3", (layer(FORWARD),)),)),  # type: ignore[arg-type]
        lambda: program(body=(Loop(1, (FORWARD,)),)),  # type: ignore[arg-type]
        lambda: program(readout=(Loop(1, (layer(FORWARD),)),)),
        lambda: program(FORWARD, Attend("z[k]", value="p[k]", where="demos"), stream=other(without="t")),
        lambda: program(FORWARD, Attend("z[k]", value="p[k]", where="query"), stream=other(without="query")),
        lambda: program(FORWARD, Attend("z[k]", value="p[k]", scope="demos"), stream=other(without="t")),
    ],
    ids=[
        "count of text",
        "loop of instructions",
        "read-out of loops",
        "no lane t",
        "no lane query",
        "no lane t, scope",
    ],
)
def test_what_cannot_be_run_is_refused(make: Callable[[], Program]) -> None:
    with pytest.raises(InputError):
        make()


def test_refusals_name_layer_and_lane() -> None:
    with pytest.raises(InputError, match=r"^layer here, p: "):
        program(Attend("p[2]"))


FINE: dict[str, Attend] = {
    "self, shared into shared": Attend("c", Score(TANH, ("c", "one")), scope="self"),
    "all, private value into shared": Attend("g[k]", value="p[k]", scope="all", reduce="mean"),
    "a token, private value into shared": Attend("g[k]", value="p[k]", scope="at(0)"),
    "demos, private key into shared": Attend("g[k]", Score(TANH, ("b[k]", "t")), scope="demos"),
    "mask lane": Attend("z[k]", value="p[k]", scope="query", reduce="mean"),
    "private into private": Attend("z[k]", Score(TANH, ("x[a]", "x[a]")), value="y[k]", scope="before"),
    "one index": Attend("p[1]", Score(SIGMOID, ("p[0]", "one"))),
    "one where": Attend("z[k]", value="p[k]", where="query"),
    "softmax": Attend("z[k]", Score(IDENTITY, ("x[a]", "x[a]")), value="y[k]", scope="demos", reduce="softmax"),
}


@pytest.mark.parametrize("case", FINE)
def test_what_makes_sense_is_accepted(case: str) -> None:
    """The neighbours of the table above: one change away from something refused."""
    assert program(FINE[case]).body[0].layers[0].instructions == (FINE[case],)


@given(
    counts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()), min_size=1, max_size=4),
    readout=st.integers(0, 3),
)
def test_schedule(counts: list[tuple[int, int, bool]], readout: int) -> None:
    """The loops unrolled, then the read-out; a step ends with the last layer of each pass of a loop that counts."""
    counts = [*counts, (1, 1, True)]
    fresh = (Layer("mlp", f"layer {i}", (FORWARD,)) for i in itertools.count())
    body = tuple(Loop(count, tuple(itertools.islice(fresh, n)), step) for count, n, step in counts)
    made = program(body=body, readout=tuple(itertools.islice(fresh, readout)))
    expected = []
    for loop in body:
        for _ in range(loop.count):
            for i, one in enumerate(loop.layers):
                expected.append((one.name, loop.step and i == len(loop.layers) - 1))
    assert made.n_layers == len(expected)
    assert made.steps == sum(ends for _, ends in expected)
    expected += [(one.name, False) for one in made.readout]
    assert [(one.name, ends) for one, ends in made.schedule()] == expected
    assert len(made.layers) == sum(len(loop.layers) for loop in body) + readout


def test_instruction_views_and_scope() -> None:
    assert [view.lane for view in UPDATE.views()] == ["W", "x", "one", "p"]
    assert [Attend("c", scope=scope).at for scope in ("at(0)", "at(17)", "all", "at(x)")] == [
        (0, 0),
        (17, 0),
        None,
        None,
    ]
    parsed: Expr = FORWARD.scores[0].pairs[0][1]
    assert parsed == (View("W", ("k", "c")),)


# ----------------------------------------------------------------------------------------------------------- streams


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    shapes = draw(st.lists(st.lists(st.integers(1, 3), max_size=3).map(tuple), min_size=1, max_size=6))
    roles: st.SearchStrategy[Role] = st.sampled_from(["input", "weight", "state", "scratch"])
    return Stream(tuple(Lane(f"lane{i}", shape, draw(roles), draw(st.booleans())) for i, shape in enumerate(shapes)))


@given(stream=streams(), batch=st.integers(1, 3), tokens=st.integers(1, 4), seed=st.integers(0, 999))
def test_pack_unpack_round_trip(stream: Stream, batch: int, tokens: int, seed: int) -> None:
    """unpack(pack(state)) is the state with shared lanes copied to every token, and pack(unpack(h)) is h."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(batch, tokens, stream.d_model, generator=generator, dtype=torch.float64)
    assert torch.equal(stream.pack(stream.unpack(h)), h)
    state = {
        lane.name: torch.randn(batch, 1 if lane.shared else tokens, *lane.shape, generator=generator)
        for lane in stream.lanes
    }
    longest = max(value.shape[1] for value in state.values())
    packed = stream.pack(state)
    assert packed.shape == (batch, longest, stream.d_model)
    back = stream.unpack(packed)
    assert list(back) == [lane.name for lane in stream.lanes]
    for lane in stream.lanes:
        assert back[lane.name].shape == (batch, longest, *lane.shape)
        assert (back[lane.name] == state[lane.name]).all()


@given(stream=streams())
def test_offsets(stream: Stream) -> None:
    """Entries are numbered 0, 1, 2, ... through the lanes in order, each row-major; entry() is where pack() puts it."""
    state, expected = {}, {}
    position = 0
    for lane in stream.lanes:
        assert lane.size == math.prod(lane.shape)
        assert stream.offsets[lane.name] == position
        state[lane.name] = torch.zeros(1, 1, *lane.shape)
        for index in itertools.product(*map(range, lane.shape)):
            assert stream.entry(lane.name, index) == position
            expected[position] = (lane.name, index)
            state[lane.name][(0, 0, *index)] = position
            position += 1
    assert stream.d_model == position == len(expected)
    assert stream.pack(state)[0, 0].tolist() == list(range(position))


@pytest.mark.parametrize("role", ["input", "weight", "state", "scratch"])
def test_weights_and_state_are_always_shared(role: str) -> None:
    assert Lane("a", (), role).shared == (role in ("weight", "state"))  # type: ignore[arg-type]
    assert Lane("a", (), role, shared=True).shared  # type: ignore[arg-type]
