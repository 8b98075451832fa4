"""The residual stream: named lanes that every token carries.

A lane is a small tensor per token (``x`` of shape (d_x,), ``V1`` of shape (K, d_x), ``one`` of shape ()). The stream
is their concatenation, in the order given, flattened row-major: ``V1[k, c]`` of token i is
``h_i[offset(V1) + k * d_x + c]``.

Symbols: T tokens, D = d_model lanes' entries, B prompts in a batch; a stream tensor has shape (B, T, D).
A *state* is the same thing by name: ``{lane: (B, T, *shape)}``, with a token axis of length 1 for shared lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError

Role = Literal["input", "weight", "state", "scratch"]
State = dict[str, Tensor]
POSITION = 2.0**-7  # the unit of positions; small, so that pos and pos2 do not dominate the stream


@dataclass(frozen=True)
class Lane:
    """A named tensor carried by every token.

    role: ``input`` (given by the prompt, never written except by the read-out), ``weight`` (what the algorithm trains),
        ``state`` (what else survives a step, e.g. momentum), ``scratch`` (zero before and after every step).
    shared: all tokens of a prompt hold the same value; so for weights and state unless they say otherwise.
    bound: a bound on the absolute value, ``inf`` if none is declared.
    fill: what the lane holds at the start where the prompt gives nothing.
    least: a lower bound of a lane that is divided by.
    bound_from: the option of ``compile`` that its range follows from, where it has one; for errors, not saved.
    """

    name: str
    shape: tuple[int, ...] = ()
    role: Role = "scratch"
    shared: bool | None = None
    bound: float = math.inf
    fill: float = 0.0
    least: float = 1.0
    bound_from: str = field(default="z_bound", compare=False)

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InputError(f"lane {self.name}: unknown role", got=repr(self.role), allowed=", ".join(get_args(Role)))
        if not isinstance(self.shape, tuple):
            raise InputError(f"lane {self.name}: a shape is a tuple", got=repr(self.shape), allowed="e.g. (3,) or ()")
        if self.shared is None:
            object.__setattr__(self, "shared", self.role in ("weight", "state"))

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Stream:
    """The ordered lanes of a residual stream. The order is explicit and is saved with the model."""

    lanes: tuple[Lane, ...]

    def __post_init__(self) -> None:
        names = [lane.name for lane in self.lanes]
        if len(set(names)) != len(names):
            raise InputError("lane names must be unique", got=sorted(n for n in names if names.count(n) > 1))

    @cached_property
    def by_name(self) -> Mapping[str, Lane]:
        return {lane.name: lane for lane in self.lanes}

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        offsets, total = {}, 0
        for lane in self.lanes:
            offsets[lane.name] = total
            total += lane.size
        return offsets

    @property
    def d_model(self) -> int:
        return sum(lane.size for lane in self.lanes)

    def __getitem__(self, name: str) -> Lane:
        if name not in self.by_name:
            raise InputError("unknown lane", got=repr(name), allowed=", ".join(self.by_name))
        return self.by_name[name]

    def entry(self, name: str, index: tuple[int, ...] = ()) -> int:
        """Position in the residual stream of one entry of a lane."""
        flat = 0
        for i, size in zip(index, self[name].shape, strict=True):
            flat = flat * size + i
        return self.offsets[name] + flat

    def pack(self, state: Mapping[str, Tensor]) -> Float[Tensor, "batch tokens d_model"]:
        """State by name -> stream tensor; shared lanes are copied into every token."""
        tokens = max(value.shape[1] for value in state.values())
        return torch.cat(
            [
                state[lane.name].flatten(2).expand(-1, tokens, -1)
                if lane.shape
                else state[lane.name].unsqueeze(-1).expand(-1, tokens, -1)
                for lane in self.lanes
            ],
            dim=-1,
        )

    def unpack(self, h: Float[Tensor, "batch tokens d_model"]) -> State:
        """Stream tensor -> state by name, every lane per token (shared lanes too: as the transformer holds them)."""
        return {
            lane.name: h[..., self.offsets[lane.name] : self.offsets[lane.name] + lane.size].reshape(
                *h.shape[:2], *lane.shape
            )
            for lane in self.lanes
        }


def low(name: str) -> str:
    """The lane of a lane's low digits, where a program has it; see :mod:`innergrad.model.double`."""
    return f"{name}_low"


def example_stream(d_x: int, d_y: int, *lanes: Lane) -> Stream:
    """The stream of (2.1): x and y (0 on the query), the algorithm's own lanes, and the constant lanes.

    An algorithm that works on x or y in place gives its own lane of that name.

    one: 1.  t: 1 on demos, 0 on the query.  query: 1 - t, exactly.
    omega: the weight of a demo, T omega_i / sum(omega), 0 on the query: it turns the mean over all T tokens, which is
    what attention computes, into the weighted mean over the demos, for any number of demos.
    """
    given = {lane.name: lane for lane in lanes}
    return Stream(
        (
            given.get("x", Lane("x", (d_x,), "input", bound_from="x_bound")),
            given.get("y", Lane("y", (d_y,), "input", bound_from="y_bound")),
            *(lane for lane in lanes if lane.name not in ("x", "y")),
            Lane("one", (), "input", shared=True, bound=1.0),
            Lane("t", (), "input", bound=1.0),
            Lane("query", (), "input", bound=1.0),
            Lane("omega", (), "input"),
        )
    )
