"""Values with errors: linear combinations of symbols, what is loose beside them, and how they go through products.

See :mod:`innergrad.interpret.affine` for what the symbols are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.interpret.plain import Labelled, contract

BEFORE = 0  # the number of the block of symbols that stand for the state before the step
U = 2.0**-53
Key = tuple[int, str]  # a block of symbols, and whose they are: "I", "S" of the token written or read, "G" of all
COMMON: Key = (BEFORE, "G")


def gamma(terms: int) -> float:
    return terms * U / (1 - terms * U)


@dataclass
class Error:
    """What a lane may be off by: coefficients of symbols (batch, tokens or 1, *shape, symbols), a radius of the shape
    of the lane, and a vector of norm at most ``ball`` (batch, tokens or 1). A lane of means may also have ``columns``,
    coefficients (batch, tokens or 1, *shape, symbols) of symbols of all tokens, which they are made of.
    """

    blocks: dict[int, Tensor] = field(default_factory=dict)
    radius: Tensor | None = None
    ball: Tensor | None = None
    columns: dict[int, Tensor] = field(default_factory=dict)

    def total(self, like: Tensor, *, before: bool = True) -> Tensor:
        """The radius of all of it, of the shape of the lane; without what comes from BEFORE, if so asked."""
        total = torch.zeros_like(like) if self.radius is None else self.radius.expand_as(like).clone()
        if before and self.ball is not None:
            total = total + self.ball.view(*self.ball.shape, *[1] * (like.ndim - 2))
        for number, block in (*self.blocks.items(), *self.columns.items()):
            if before or number != BEFORE:
                total = total + measure(block, -1, number)
        return sound(total)

    def of_first(self, tokens: int) -> Error:
        """What the lane of the first tokens is off by."""
        blocks, columns = ({n: b[:, :tokens] for n, b in part.items()} for part in (self.blocks, self.columns))
        radius, ball = (None if part is None else part[:, :tokens] for part in (self.radius, self.ball))
        return Error(blocks, radius, ball, columns)


@dataclass
class Form:
    """A value with labelled axes and its error: blocks of coefficients, whose last label is Z, a loose radius, and the
    norm (for every token) of a vector besides. tokens: the axes that number tokens, not entries of the vector.
    read: of a sum over tokens S, the coefficients of symbols of those tokens.
    """

    centre: Labelled
    blocks: dict[Key, Labelled] = field(default_factory=dict)
    loose: Labelled | None = None
    ball: Labelled | None = None
    tokens: str = "BIS"
    read: dict[Key, Labelled] = field(default_factory=dict)

    @property
    def errs(self) -> bool:
        return bool(self.blocks) or self.loose is not None or self.ball is not None

    def radius(self) -> Labelled:
        return _total([self.entries(), *self.vector(self.tokens)[:1]], self.centre)

    def entries(self) -> Labelled:
        """The radius of all that is known entry by entry."""
        sizes = [
            Labelled(measure(block.tensor, block.labels.index("Z"), number), block.labels.replace("Z", ""))
            for (number, _), block in self.blocks.items()
            if number != BEFORE
        ]
        return _total([*sizes, *([] if self.loose is None else [self.loose])], self.centre)

    def vector(self, axes: str) -> list[Labelled]:
        """What comes from BEFORE: the radius of every entry, and the norm of the vector, for every token."""
        block = self.blocks.get(COMMON)
        if block is None:
            return [] if self.ball is None else [self.ball, self.ball]
        entries = Labelled(measure(block.tensor, block.labels.index("Z"), BEFORE), block.labels.replace("Z", ""))
        tokens = tokens_in(block.labels, axes)
        rows = block.aligned(tokens + "".join(label for label in block.labels if label not in tokens + "Z") + "Z")
        matrices = rows.reshape(*rows.shape[: len(tokens)], -1, rows.shape[-1])
        norm = Labelled(spectral_norm(matrices), tokens)
        return [entries, norm] if self.ball is None else [entries + self.ball, norm + self.ball]


def plus(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a + b


def measure(block: Tensor, axis: int, number: int) -> Tensor:
    """rad: Euclidean for the symbols BEFORE, else the sum of absolute coefficients."""
    size: Tensor = block.norm(dim=axis) if number == BEFORE else block.abs().sum(axis)
    return size


def sound(radius: Tensor) -> Tensor:
    """Zero times infinity is not known: infinity."""
    return torch.nan_to_num(radius, nan=math.inf, posinf=math.inf)


def spectral_norm(matrix: Tensor) -> Tensor:
    """The spectral norm of every matrix (..., rows, columns), infinite where an entry is, or is on the way there."""
    if 1 in matrix.shape[-2:]:
        return sound(matrix.flatten(-2).norm(dim=-1))
    bad = ~(matrix.abs() < 1e100).flatten(-2).all(-1)
    finite = torch.where(bad[..., None, None], 0.0, matrix)
    gram = finite @ finite.mT if matrix.shape[-2] <= matrix.shape[-1] else finite.mT @ finite
    norm = torch.linalg.eigvalsh(gram)[..., -1].clamp(min=0.0).sqrt() * (1 + 1e-9)
    return torch.where(bad, math.inf, norm)


def sum_of(a: Form, b: Form) -> Form:
    blocks = dict(a.blocks)
    for key, block in b.blocks.items():
        blocks[key] = blocks[key] + block if key in blocks else block
    return Form(a.centre + b.centre, blocks, both(a.loose, b.loose), both(a.ball, b.ball), a.tokens)


def both(a: Labelled | None, b: Labelled | None) -> Labelled | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _total(parts: list[Labelled], like: Labelled) -> Labelled:
    total = Labelled(torch.zeros_like(like.tensor), like.labels)
    for part in parts:
        total = total + part
    return total.map(sound)


def tokens_in(labels: str, axes: str) -> str:
    return "".join(label for label in labels if label in axes)


def over_entries(reduce: Callable[..., Tensor], value: Labelled, axes: str) -> Labelled:
    """Reduced over every axis that is not a token's."""
    tokens = tokens_in(value.labels, axes)
    ordered = value.aligned(tokens + "".join(label for label in value.labels if label not in tokens))
    entries = tuple(range(len(tokens), ordered.ndim))
    return Labelled(reduce(ordered, dim=entries) if entries else ordered, tokens)


def through(others: list[Labelled], factor: Form, keep: str, axes: str) -> Labelled:
    """The ball of a factor times the norm of the linear map that the others are; tokens not kept are added up."""
    assert factor.ball is not None
    inner = [label for label in factor.centre.labels if label not in axes]
    outer = [label for label in keep if label not in axes]
    matrix = contract(others, axes + "".join(dict.fromkeys([*outer, *inner])))
    tokens = tokens_in(matrix.labels, axes)
    groups = [
        [label for label in matrix.labels if label in inner and label in outer],
        [label for label in matrix.labels if label in outer and label not in inner],
        [label for label in matrix.labels if label in inner and label not in outer],
    ]
    ordered = matrix.aligned(tokens + "".join("".join(group) for group in groups))
    sizes = [math.prod(matrix.tensor.shape[matrix.labels.index(label)] for label in group) for group in groups]
    norm = spectral_norm(ordered.reshape(*ordered.shape[: len(tokens)], *sizes)).amax(-1)
    return contract([Labelled(norm, tokens), factor.ball], tokens_in(keep, axes))


def bent(z: Form, slope: Tensor, curvature: Tensor | float) -> Labelled | None:
    """The ball of f(z): z's, by the steepest slope, and 1/2 sup|f''| |dz|_inf |dz|_2 of what comes from BEFORE."""
    parts = (
        []
        if z.ball is None
        else [contract([over_entries(torch.amax, Labelled(slope.abs(), z.centre.labels), z.tokens), z.ball], "BIS")]
    )
    vector = z.vector(z.tokens)
    if vector:
        entries, norm = vector
        labels = "".join(dict.fromkeys(z.centre.labels + entries.labels))
        bend = 0.5 * curvature * entries.aligned(labels)
        parts.append(contract([over_entries(torch.amax, Labelled(bend, labels), z.tokens), norm], "BIS"))
    ball = None
    for part in parts:
        ball = both(ball, part)
    return ball


def joined(labels: str, more: str) -> str:
    union = labels + "".join(label for label in more if label not in labels)
    return union.replace("Z", "") + "Z" if "Z" in union else union


def diagonal(radius: Tensor) -> Tensor:
    """One symbol for every entry of every token: (batch, tokens, *shape) -> (batch, tokens, *shape, entries)."""
    lead, shape = radius.shape[:2], radius.shape[2:]
    return torch.diag_embed(radius.reshape(*lead, -1)).reshape(*lead, *shape, -1)
