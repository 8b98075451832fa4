"""The interpreters of an instruction agree on every choice of scope, reduce and where, and none ignores a new one.

:mod:`test_plain` compares the plain interpreter with the definition; here the others are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, get_args

import pytest
import torch

from innergrad import program as language
from innergrad.algorithms import example_stream
from innergrad.errors import InputError
from innergrad.explain.health import Cancellation
from innergrad.functions.activations import RELU, SIGMOID, TANH
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret import plain, symbolic
from innergrad.interpret.affine import Affine
from innergrad.interpret.fused import Extent, Kernel
from innergrad.program import SCOPES, Attend, Layer, Loop, Program, Reduce, Score, Where
from innergrad.stream import Lane, State

STREAM = example_stream(3, 2, Lane("W", (2, 3), "weight"), Lane("V", (2, 3)), Lane("p", (2,)), Lane("m", (), "input"))
SCORES = {
    "private": Score(TANH, ("x[a]", "x[a]"), ("one", "W[k,a] - V[k,a]")),
    "shared": Score(SIGMOID, ("one", "W[k,a]")),
    "constant": Score(IDENTITY, ("one", "one")),
}


def made(*instructions: Attend, **kind: bool) -> Program:
    layer = Layer("attention", "here", instructions)
    return Program(STREAM, (Loop(1, (layer,)),), (), "p", **kind)  # type: ignore[arg-type]


def random_state(seed: int, tokens: int = 4) -> State:
    generator = torch.Generator().manual_seed(seed)
    state = {
        lane.name: torch.randn(2, 1 if lane.shared else tokens, *lane.shape, generator=generator).double()
        for lane in STREAM.lanes
    }
    state["one"] = torch.ones(2, 1, dtype=torch.float64)
    for name in ("t", "m"):
        state[name] = torch.randint(2, (2, tokens), generator=generator).double()
    state["query"] = 1 - state["t"]
    return state


def in_plain(program: Program, state: State) -> State:
    return plain.apply_layer(program, program.layers[0], state, program.functions())


def in_graph(program: Program, state: State) -> State:
    """The graph, replayed by the fused executor's kernel."""
    made = symbolic.build(program, program.layers, program.functions(), lambda layer: {}, clean=False)
    lanes = {name: lane[:, 0] if STREAM[name].shared else lane for name, lane in state.items()}
    extent = Extent(state["x"].shape[1], True, torch.float64, torch.device("cpu"))
    after, _ = Kernel(program, made, extent, lanes).step(lanes)
    return {name: lane.unsqueeze(1) if STREAM[name].shared else lane for name, lane in after.items()}


def in_affine(program: Program, state: State, after: State | None = None) -> Affine:
    """Beside a forward pass that gave ``after``: what it disagrees with is a radius."""
    forms = Affine(program, {})
    forms.layer(program.layers[0], state, after or state)
    return forms


def in_health(program: Program, state: State) -> Cancellation:
    lost = Cancellation()
    lost.layer(program, program.layers[0], state)
    return lost


INTERPRETERS: dict[str, Callable[[Program, State], object]] = {
    "plain": in_plain,
    "graph": in_graph,
    "affine": in_affine,
    "health": in_health,
}


# --------------------------------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize("kind", ["", "causal", "sink"])
@pytest.mark.parametrize("where", get_args(Where))
@pytest.mark.parametrize("reduce", get_args(Reduce))
@pytest.mark.parametrize("scope", [*SCOPES, "at(1)", "at(1,2)", "m"])
def test_every_choice_is_the_same_in_every_interpreter(scope: str, reduce: Any, where: Any, kind: str) -> None:
    """The graph gives what the plain interpreter gives, and so do the centres of the affine forms, up to rounding:
    sums of less than a hundred numbers of size less than ten.
    """
    how = {"scope": scope, "reduce": reduce, "where": where, "scale": -0.5}
    for seed, score in enumerate(SCORES.values()):
        state = random_state(seed)
        for instruction in (
            Attend("V[k,a]", score, value="y[k]", **how),
            Attend("V[k,a]", score, **how),
            Attend("V[1,a]", Score(score.f, ("x[a]", "W[0,a]")), value="y[1] + m", **how),
        ):
            program = made(instruction, **({kind: True} if kind else {}))
            expected, found = in_plain(program, state), in_graph(program, state)
            for name, lane in expected.items():
                torch.testing.assert_close(found[name], lane, rtol=1e-13, atol=1e-13)
            assert float(in_affine(program, state, expected).radius("V", state["V"]).max()) < 1e-11


@pytest.mark.parametrize("reduce", get_args(Reduce))
@pytest.mark.parametrize("scope", [*SCOPES, "at(1)", "at(1,2)", "m"])
def test_only_terms_of_both_signs_cancel(scope: str, reduce: Any) -> None:
    """Whatever is summed, and however: of positive numbers nothing is lost, of x - x everything."""
    state = {name: lane.abs() for name, lane in random_state(0).items()}
    score = Score(IDENTITY, ("x[a]", "x[a]"))
    for value, lost in (("x[a]", 0.0), ("x[a] - x[a]", 0.0 if reduce == "softmax" else torch.inf)):
        program = made(Attend("x[a]", score, value=value, scope=scope, reduce=reduce))
        assert in_health(program, state).bits == lost


# ------------------------------------------------------------------------------------------------- what is not known


def test_all_choices_are_known() -> None:
    """What the decisions of an instruction are, by hand."""
    scopes = {scope: Attend("p[k]", scope=scope) for scope in (*SCOPES, "at(3)", "at(3,1)", "m")}
    assert {scope: i.scope_kind for scope, i in scopes.items()} == {
        **{scope: scope for scope in SCOPES},
        "at(3)": "at",
        "at(3,1)": "at",
        "m": "lane",
    }
    assert [scope for scope, i in scopes.items() if i.token == "I"] == ["self"]
    assert [Attend("p[k]", where=where).written for where in ("all", "demos", "query")] == [None, "t", "query"]
    powers = {
        reduce: [Attend("p[k]", scope="all", reduce=reduce).power(s) for s in (True, False)]
        for reduce in get_args(Reduce)
    }
    assert powers == {"sum": [0, 1], "mean": [-1, 0], "softmax": [0, 0]}
    assert [Attend("p[k]", reduce=reduce).power(False) for reduce in get_args(Reduce)] == [0, 0, 0]


CHOICES = [(choice, interpreter) for choice in ("scope", "reduce", "where") for interpreter in INTERPRETERS]
CHOICES.remove(("where", "health"))  # which looks at all tokens, whether they are written or not


@pytest.mark.parametrize(("choice", "interpreter"), CHOICES)
def test_a_new_choice_is_refused_by_name(choice: str, interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope, reduce or where that was declared but not given a meaning is no synonym of another one."""
    monkeypatch.setattr(language, "Reduce", Literal["sum", "mean", "softmax", "newest"])
    monkeypatch.setattr(language, "Where", Literal["all", "demos", "query", "newest"])
    monkeypatch.setattr(language, "SCOPES", (*SCOPES, "newest"))
    program = made(Attend("V[k,a]", SCORES["private"], value="y[k]", **{choice: "newest"}))
    with pytest.raises(AssertionError, match=r"unreachable.*'newest'"):
        INTERPRETERS[interpreter](program, random_state(0))


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_no_field_is_left_out(interpreter: str) -> None:
    """Every interpreter looks at every field of an instruction; one that is added has to be read by all."""
    read: set[str] = set()

    class Watched(Attend):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    program = made(Watched("V[k,a]", SCORES["private"], value="y[k]"))
    read.clear()
    INTERPRETERS[interpreter](program, random_state(0))
    without = {"scale", "where"} if interpreter == "health" else set()  # they are not part of a ratio
    assert {field.name for field in fields(Attend)} - read == without


# ----------------------------------------------------------------------------------------------------------- in place


ARGUMENTS = {
    "itself": [("p[k]", "one")],
    "the other way round": [("one", "p[k]")],
    "shifted": [("p[k]", "one"), ("one", "one")],
    "scaled": [("p[k]", "3.0*one")],
    "negated": [("one", "-1.0*p[k]")],
}


@pytest.mark.parametrize("reduce", get_args(Reduce))
@pytest.mark.parametrize("case", ARGUMENTS)
def test_errors_of_a_function_in_place(case: str, reduce: Any) -> None:
    """p += relu(a p + b): wherever p is in its interval, it arrives in the one of the affine forms."""
    state, radius = random_state(0), torch.full((2, 4, 2), 0.25, dtype=torch.float64)
    program = made(Attend("p[k]", Score(RELU, *ARGUMENTS[case]), reduce=reduce))
    after = in_plain(program, state)["p"]
    forms = Affine(program, {})
    forms.given("p", radius)
    forms.layer(program.layers[0], state, {**state, "p": after})
    for part in torch.linspace(-1, 1, 9, dtype=torch.float64):
        other = in_plain(program, {**state, "p": state["p"] + part * radius})["p"]
        assert bool(((other - after).abs() <= forms.radius("p", after) * (1 + 1e-12)).all())


def test_a_mask_that_is_written_has_no_graph() -> None:
    """The fused executor makes masks before the first layer, so it would read what the lane was."""
    program = made(Attend("V[k,a]", value="x[a]", scope="m"), Attend("m", value="t"))
    with pytest.raises(InputError, match="layers that write lane m"):
        in_graph(program, random_state(0))
