"""What the lanes of a stream may be off by, and how it changes where layers add to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.interpret.form_rules import slope_range
from innergrad.interpret.forms import BEFORE, Error, Form, diagonal, gamma, measure, plus, sound
from innergrad.interpret.plain import Labelled
from innergrad.interpret.walk import in_place
from innergrad.ir.program import Attend, Program, View


@dataclass
class Change:
    """What an instruction adds to a lane: its form, and the radii of other tokens' symbols by where they come from."""

    dst: View
    form: Form
    source: str
    others: dict[str, Labelled]
    columns: dict[int, Labelled]


class LaneErrors:
    """The errors of all lanes, and where they come from."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.errors: dict[str, Error] = {}
        self.sources: list[str] = ["before"]
        self.shares: dict[str, dict[str, Tensor]] = {}  # lane of means -> source -> part of its radius

    def start(self, lane: str, block: Tensor) -> None:
        """The lane is off by ``block`` times the symbols BEFORE."""
        self.errors[lane] = Error({BEFORE: block})

    def given(self, lane: str, radius: Tensor) -> None:
        """An input lane is itself rounded."""
        if bool((radius > 0).any()):
            self.sources.append("rounding")
            self.errors[lane] = Error({len(self.sources) - 1: diagonal(radius)})

    def radius(self, lane: str, like: Tensor, *, before: bool = True) -> Tensor:
        error = self.errors.get(lane)
        return torch.zeros_like(like) if error is None else error.total(like, before=before)

    def parts(self, lanes: list[str]) -> dict[str, float]:
        """What the radii of the lanes, summed, are made of; for the mean prompt of the batch."""
        found: dict[str, float] = {}
        for lane in lanes:
            for source, share in self.shares.get(lane, {}).items():
                found[source] = found.get(source, 0.0) + float(share.sum()) / len(share)
            error = self.errors.get(lane, Error())
            for number, block in error.blocks.items():
                source = self.sources[number]
                found[source] = found.get(source, 0.0) + float(measure(block, -1, number).sum()) / len(block)
        return found

    def collapse(self) -> None:
        """Forget the symbols BEFORE: what they were for is a radius from now on."""
        for error in self.errors.values():
            block = error.blocks.pop(BEFORE, None)
            if block is not None:
                size = measure(block, -1, BEFORE)
                error.radius = size if error.radius is None else error.radius + size

    def add(self, lane: str, changes: list[Change], before: Tensor, after: Tensor) -> None:
        """The lane after the layer: coefficients added, new symbols for what is loose and for what was rounded."""
        shared = self.program.stream[lane].shared
        before, after = (before[:, :1], after[:, :1]) if shared else (before, after)
        tokens = max(before.shape[1], after.shape[1])
        shape = self.program.stream[lane].shape
        error, full = self.errors.setdefault(lane, Error()), torch.Size((after.shape[0], tokens, *shape))
        computed, size = torch.zeros(full, dtype=torch.float64), before.abs() + after.abs()
        radii: dict[str, Tensor] = {}
        for change in changes:
            place = (slice(None), slice(None), *change.dst.place)
            labels = "BI" + "".join(change.dst.labels)
            centre = change.form.centre.aligned(labels)
            computed[place] += centre
            for (number, _), block in change.form.blocks.items():
                added = block.aligned(labels + "Z")
                spread = torch.zeros(*full, added.shape[-1], dtype=torch.float64)
                spread[place] = added
                error.blocks[number] = error.blocks[number] + spread if number in error.blocks else spread
            if change.form.ball is not None:
                norm = change.form.ball.aligned("BI").expand(full[:2])
                copies = full[2:].numel() / max(1, centre[0, 0].numel()) if change.dst.whole else 1.0
                error.ball = plus(error.ball, norm * math.sqrt(copies))
            for number, block in change.columns.items():
                added = block.aligned(labels + "SZ").flatten(-2)  # symbols of all tokens S
                spread = torch.zeros(*full, added.shape[-1], dtype=torch.float64)
                spread[place] = added
                error.columns[number] = plus(error.columns.get(number), spread)
            loose = {change.source: change.form.loose} if change.form.loose is not None else {}
            for source, part in (*loose.items(), *change.others.items()):
                radii.setdefault(source, torch.zeros(full, dtype=torch.float64))[place] += part.aligned(labels)
        residual = (after - before - computed).abs()
        if changes:  # what no instruction writes is compared without any arithmetic
            residual = residual + gamma(len(changes) + 2) * (size + computed.abs())
        if self.gathers(lane):
            kept = self.shares.setdefault(lane, {})
            for source, radius in ({**radii, "rounding": radii.get("rounding", 0.0) + residual}).items():
                kept[source] = kept[source] + radius if source in kept else radius
                error.radius = radius if error.radius is None else error.radius + radius
            return
        new = sound(sum(radii.values()) + residual)
        if bool((new > 0).any()):
            self.sources.append(changes[0].source if changes else "rounding")
            error.blocks[len(self.sources) - 1] = diagonal(new)

    def squeeze(self, i: Attend, before: Tensor, after: Tensor) -> None:
        """lane += f(lane), entry by entry, f piecewise linear: clearing a lane removes its error, a projection keeps
        it where the box is not touched.
        """
        f, lane = in_place(i), i.dst.lane
        assert f is not None
        error = self.errors.get(lane)
        if self.program.stream[lane].shared:
            before, after = before[:, :1], after[:, :1]
        residual = (after - before - f(before)).abs()
        rounded = bool((residual > 0).any())
        if error is None and not rounded:
            return
        error = self.errors.setdefault(lane, Error())
        slopes = [1.0 + slope for slope in f.slopes]
        radius = error.total(before)
        piece = torch.bucketize(before.contiguous(), torch.tensor(f.knots, dtype=torch.float64))
        slope = torch.tensor(slopes, dtype=torch.float64)[piece]
        near = torch.zeros_like(radius, dtype=torch.bool)
        for kink in f.knots:
            near |= (before - kink).abs() <= radius
        middle, half = slope_range(tuple(slopes))
        if error.radius is not None:  # |g(a) - g(b)| <= max slope |a - b|
            error.radius = error.radius * torch.where(near, max(map(abs, slopes)), slope.abs())
        for blocks in (error.blocks, error.columns):
            for number, block in blocks.items():
                size = measure(block, -1, number)
                blocks[number] = block * torch.where(near, middle, slope).unsqueeze(-1)
                if bool(near.any()):
                    error.radius = plus(error.radius, torch.where(near, half * size, 0.0))
        if error.ball is not None:
            steepest = slope.abs().masked_fill(near, max(map(abs, slopes))).view(*slope.shape[:2], -1).amax(-1)
            error.ball = error.ball * steepest if bool((steepest > 0).any()) else None
        if rounded:
            error.radius = plus(error.radius, residual)
        if not bool((error.total(before) > 0).any()):
            self.errors.pop(lane)

    def gathers(self, lane: str) -> bool:
        """Whether the lane takes means over the examples: its errors are no token's own, but a radius or columns."""
        known = self.program.stream[lane]
        return bool(known.shared) or bool(self.program.placement and known.role in ("weight", "state"))
