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
    """A named tensor that every token carries.

    Args:
        name: instructions know it by this.
        shape: of the tensor; () for a number.
        role: ``input``: given by the prompt, and never written except by the read-out. ``weight``: trained. ``state``:
            survives a step, such as momentum. ``scratch``: zero before and after every step.
        shared: all tokens of a prompt hold the same value. By default so for weights and state.
        bound: the largest absolute value, if one is declared.
        fill: its value at the start, where the prompt gives none.
        least: a lower bound, for a lane that is divided by.
        bound_from: the option of ``compile`` that sets its range. Errors name it; it is not saved.

    Examples:
        >>> import innergrad as ig
        >>> ig.Lane("w", (3,), "weight").shared
        True
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
    """The lanes of a residual stream, in order. The order is saved with the model.

    Args:
        lanes: the lanes.

    Examples:
        >>> import innergrad as ig
        >>> stream = ig.example_stream(2, 1, ig.Lane("w", (2,), "weight"))
        >>> stream.d_model, stream.entry("w", (1,))  # where w[1] is
        (9, 4)
    """

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
    """The stream of a prompt: x and y, the algorithm's own lanes, and lanes of constants.

    y is 0 on a query. The constants are ``one`` (1), ``t`` (1 on examples, 0 on queries), ``query`` (1 - t) and
    ``omega``, the weight of an example. ``omega`` is T omega_i / sum(omega), with T the number of tokens, and 0 on
    queries: as a factor it turns the mean over all tokens, which attention computes, into the weighted mean over the
    examples.

    Args:
        d_x: the number of inputs.
        d_y: the number of labels.
        *lanes: the algorithm's own. A lane named x or y takes the place of the usual one.

    Examples:
        >>> import innergrad as ig
        >>> [lane.name for lane in ig.example_stream(2, 1, ig.Lane("w", (2,), "weight")).lanes]
        ['x', 'y', 'w', 'one', 't', 'query', 'omega']
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
