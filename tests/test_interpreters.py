"""The interpreters of an instruction agree on every choice of scope, reduce and where, and none ignores a new one.

:mod:`test_plain` compares the plain interpreter with the definition; here the others are compared with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, get_args

import pytest
import torch

from innergrad.algorithms import example_stream
from innergrad.errors import InputError
from innergrad.evidence.explain.health import Cancellation
from innergrad.functions.scalar import IDENTITY, RELU, SIGMOID, TANH
from innergrad.interpret import plain, symbolic, walk
from innergrad.interpret.affine import Affine
from innergrad.interpret.fused import Extent, Kernel
from innergrad.interpret.plain import Labelled
from innergrad.interpret.walk import seen
from innergrad.ir import program as language
from innergrad.ir.program import SCOPES, Attend, Layer, Loop, Program, Reduce, Score, Where
from innergrad.ir.stream import Lane, State
from test_plain import in_scope

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
    stream = program.stream
    lanes = {name: lane[:, 0] if stream[name].shared else lane for name, lane in state.items()}
    extent = Extent(state["x"].shape[1], True, torch.float64, torch.device("cpu"))
    after, _ = Kernel(made, extent, lanes).step(lanes)
    return {name: lane.unsqueeze(1) if stream[name].shared else lane for name, lane in after.items()}


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
    """Whatever is summed, and however: of positive numbers nothing is lost, of x - x everything, but for means by
    softmax, which are not looked at (of a single token, a softmax is no mean).
    """
    state = {name: lane.abs() for name, lane in random_state(0).items()}
    score = Score(IDENTITY, ("x[a]", "x[a]"))
    everything = 0.0 if reduce == "softmax" and scope != "self" else torch.inf
    for value, lost in (("x[a]", 0.0), ("x[a] - x[a]", everything)):
        program = made(Attend("x[a]", score, value=value, scope=scope, reduce=reduce))
        assert in_health(program, state).value == lost


# ------------------------------------------------------------------------------------------------- what is not known


def test_all_choices_are_known() -> None:
    """Which tokens a token reads, by hand: of four, the first one a sink."""
    state = random_state(0)
    for causal, sink in ((False, False), (True, False), (False, True), (True, True)):
        program = made(Attend("p[k]"), causal=causal, sink=sink)
        for scope in (*SCOPES, "at(1)", "at(1,2)", "m"):
            read = seen(program, Attend("p[k]", scope=scope))
            if scope == "self":
                assert read is None
                continue
            assert read is not None
            mask = Labelled(read.mask(state, 4), read.labels).aligned("BIS").expand(2, 4, 4)
            for b, i, s in itertools.product(range(2), range(4), range(4)):
                lanes = {name: lane.numpy() for name, lane in state.items()}
                assert bool(mask[b, i, s]) == in_scope(scope, lanes, b, i, s, causal, sink), (scope, b, i, s)


CHOICES = [(choice, interpreter) for choice in ("scope", "reduce", "where") for interpreter in INTERPRETERS]


@pytest.mark.parametrize(("choice", "interpreter"), CHOICES)
def test_a_new_choice_is_refused_by_name(choice: str, interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope, reduce or where that was declared but not given a meaning is no synonym of another one."""
    monkeypatch.setattr(language, "Reduce", Literal["sum", "mean", "softmax", "newest"])
    monkeypatch.setattr(language, "Where", Literal["all", "demos", "query", "newest"])
    monkeypatch.setattr(language, "SCOPES", (*SCOPES, "newest"))
    monkeypatch.setattr(walk, "SCOPES", (*SCOPES, "newest"))
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
    assert {field.name for field in fields(Attend)} - read == set()


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


SEVERAL = {
    "in a function": Attend("V[k,a]", Score(TANH, ("one", "p[k]"))),
    "beside a constant": Attend("V[k,a]", value="p[k] + one"),
    "beside a constant, in a function": Attend("V[k,a]", Score(TANH, ("one", "p[k]"), ("one", "0.1*one"))),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_a_number_of_tokens_is_no_other_number(case: str) -> None:
    """A lane that holds how many tokens there are is a constant of the graph, though not the same for every prompt."""
    count, clear = Attend("p[k]", scope="all", reduce="sum"), Attend("p[k]", value="p[k]", scale=-1.0)
    layers = tuple(Layer("attention", f"layer {i}", (each,)) for i, each in enumerate((count, SEVERAL[case], clear)))
    program, state = Program(STREAM, (Loop(1, layers),), (), "p"), random_state(0)
    state["p"] = torch.zeros_like(state["p"])
    expected = state
    for layer in layers:
        expected = plain.apply_layer(program, layer, expected, program.functions())
    made = symbolic.build(program, layers, program.functions(), lambda layer: {})
    lanes = {name: lane[:, 0] if STREAM[name].shared else lane for name, lane in state.items()}
    after, _ = Kernel(made, Extent(4, True, torch.float64, torch.device("cpu")), lanes).step(lanes)
    torch.testing.assert_close(after["V"], expected["V"], rtol=1e-13, atol=1e-13)
