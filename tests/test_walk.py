"""Every algebra of the walk agrees with the loop over tokens, on random instructions and prompts of 1 to 64 tokens, or
refuses in a sentence.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from innergrad.errors import InputError, LoweringError
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.interpret import plain
from innergrad.interpret.counts import structured_flops
from innergrad.interpret.extended import Extended
from innergrad.interpret.pairs import radii_after
from innergrad.interpret.ranges import Ranges
from innergrad.interpret.walk import added
from innergrad.ir.program import SCOPES, Attend, View
from innergrad.ir.stream import State
from test_interpreters import in_affine, in_graph, in_health
from test_plain import instructions, made, naive_layer, random_state

KINDS = st.fixed_dictionaries({"causal": st.booleans(), "sink": st.booleans()})


def prompt(tokens: int, equal: bool, seed: int) -> State:
    """equal: every token is the first one, so that nothing tells them apart but their places."""
    state = random_state(2, tokens, seed)
    if equal:
        state = {name: lane[:, :1].expand(-1, lane.shape[1], *lane.shape[2:]).clone() for name, lane in state.items()}
    return state


def usable(instruction: Attend, kind: dict[str, bool]) -> bool:
    """A shared lane must receive the same in every token, which it does not where tokens see different ones."""
    try:
        made((instruction,), **kind)
    except InputError:
        return False
    return True


@st.composite
def anything(draw: st.DrawFn) -> Attend:
    """Random instructions that may write a shared lane what differs between tokens."""
    instruction = draw(instructions())
    twin = {"p": "g", "V": "W", "s": "c"}.get(instruction.dst.lane, instruction.dst.lane)
    dst = View(draw(st.sampled_from([instruction.dst.lane, twin])), instruction.dst.index)
    scope = draw(st.sampled_from([instruction.scope, *SCOPES, "m", "at(0)", "at(1)", "at(0,2)"]))
    where = draw(st.sampled_from([instruction.where, "all"]))
    return instruction.changed(dst=dst, scope=scope, where=where)


@settings(max_examples=100, deadline=None)
@given(
    layers=st.lists(anything(), min_size=1, max_size=2),
    tokens=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 99),
    kind=KINDS,
)
def test_shared_lanes_stay_shared(layers: list[Attend], tokens: int, seed: int, kind: dict[str, bool]) -> None:
    """Whatever program is accepted, every lane that is declared to be equal in all tokens is, after every layer."""
    try:
        program = made(*((layer,) for layer in layers), **kind)
    except InputError:
        return
    state = random_state(2, tokens, seed)
    start = {name: lane.expand(-1, tokens, *lane.shape[2:]).clone() for name, lane in state.items()}
    for layer, after, _ in plain.run(program, start, program.functions()):
        for lane in (lane for lane in program.stream.lanes if lane.shared):
            value = after[lane.name].expand(-1, tokens, *lane.shape)
            scale = max(1.0, float(value.abs().max()))
            apart = float((value - value[:, :1]).abs().max())
            assert apart <= 1e-12 * scale, f"lane {lane.name} after {layer.name}: {layers}"


@pytest.mark.parametrize("scope", ["demos", "at(0)", "m"])
def test_a_sink_reads_nothing_so_it_would_miss_what_a_shared_lane_receives(scope: str) -> None:
    shared = Attend("g[k]", value="p[k]", scope=scope)
    made((shared,))
    made((shared.changed(scope="all"),), sink=True)
    with pytest.raises(
        LoweringError, match=r"the same in every token; got scope .* the sink .*; allowed: scope self or"
    ):
        made((shared,), sink=True)
    made((Attend("p[k]", value="p[k]", scope=scope),), sink=True)


@pytest.mark.parametrize("equal", [False, True])
@settings(max_examples=40, deadline=None)
@given(instruction=instructions(), tokens=st.sampled_from([1, 2, 3, 5, 9]), seed=st.integers(0, 99), kind=KINDS)
def test_all_algebras_agree(equal: bool, instruction: Attend, tokens: int, seed: int, kind: dict[str, bool]) -> None:
    if usable(instruction, kind):
        agree(instruction, prompt(tokens, equal, seed), kind)


@pytest.mark.parametrize("tokens", [17, 64])
@settings(max_examples=2, deadline=None)
@given(instruction=instructions(), equal=st.booleans(), kind=KINDS)
def test_all_algebras_agree_on_long_prompts(
    tokens: int, instruction: Attend, equal: bool, kind: dict[str, bool]
) -> None:
    if usable(instruction, kind):
        state = prompt(tokens, equal, 1)
        agree(instruction, {name: lane[:1] for name, lane in state.items()}, kind)


def agree(instruction: Attend, state: State, kind: dict[str, bool]) -> None:
    program, lane = made((instruction,), **kind), instruction.dst.lane
    expected = torch.from_numpy(naive_layer((instruction,), state, **kind)[lane])
    scale = max(1.0, float(expected.abs().max()))
    found = plain.apply_layer(program, program.layers[0], state, program.functions())
    assert float((found[lane] - expected).abs().max()) <= 1e-11 * scale
    graph = in_graph(program, state)
    assert float((graph[lane] - found[lane]).abs().max()) <= 1e-11 * scale
    assert float(in_affine(program, state, found).radius(lane, found[lane]).max()) <= 1e-9 * scale
    in_extended(program, instruction, state, found[lane] - state[lane])
    assert in_health(program, state).value >= 0.0
    assert structured_flops(program, instruction, state["x"].shape[1]).products > 0
    largest(program, instruction, state, found[lane] - state[lane])
    perturbed(program, instruction, state)


def in_extended(program: plain.Program, instruction: Attend, state: State, change: torch.Tensor) -> None:
    linear = all(score.f in (IDENTITY, NEGATION) for score in instruction.scores)
    try:
        found = added(program, instruction, Extended(program, state))
    except InputError:
        assert not linear, instruction
        return
    whole = torch.zeros_like(change)
    whole[(slice(None), slice(None), *instruction.dst.place)] = torch.from_numpy(
        found.aligned("BI" + "".join(instruction.dst.labels)).astype(np.float64)
    )
    assert float((whole - change).abs().max()) <= 1e-11 * max(1.0, float(change.abs().max()))


def largest(program: plain.Program, instruction: Attend, state: State, change: torch.Tensor) -> None:
    """No entry that is added is larger than the range that follows from the ranges of the lanes."""
    bounds = {name: float(value.abs().max()) for name, value in state.items()}
    n_examples = int(state["t"].sum(1).max())
    bound = added(program, instruction, Ranges(program, instruction, bounds, 0.0, n_examples)).bound
    assert float(change.abs().max()) <= bound * (1 + 1e-12) + 1e-12


def perturbed(program: plain.Program, instruction: Attend, state: State) -> None:
    """Wherever the lanes are within their radii, what comes out is within its own; the functions here are monotone."""
    layer, lane, functions = program.layers[0], instruction.dst.lane, program.functions()
    masks = {"one", "t", "query", "m"}
    radii = {n: torch.full_like(v[:, :1], 0.0 if n in masks else 1e-3) for n, v in state.items()}
    after = radii_after(program, layer, state, functions, radii, lambda score, z: torch.zeros_like(z.tensor))
    generator = np.random.default_rng(0)
    moved = {n: v + radii[n] * torch.from_numpy(generator.uniform(-1, 1, v.shape)) for n, v in state.items()}
    difference = (
        plain.apply_layer(program, layer, moved, functions)[lane]
        - plain.apply_layer(program, layer, state, functions)[lane]
    )
    assert bool((difference.abs() <= after[lane] * (1 + 1e-9) + 1e-12).all())
