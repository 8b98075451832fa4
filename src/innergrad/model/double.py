"""A program whose numbers have twice the digits that its sublayers read, for float64 in classes that cast to float32.

The residual stream of a float64 Llama is float64, but its RMSNorm casts. A sublayer reads a lane h as read(h), which is
h rounded to float32. So a value v has two lanes, B (the lane itself) and C (its *low* lane):

    settled     v = read(B) + C,  C = v - read(B) about 2^-24 v: the parts that are read add up to v, up to 2^-48 v
    open        v = C, and B is v up to 2^-24 v: a value that was written by the sublayer before

A write goes to both lanes: a value that was open stays open, a settled one is opened by C += read(B), in the same MLP,
or, where attention writes, in the MLP before. The next MLP settles it, C -= read(B). Clearing a settled value, B -=
read(B) and C -= read(C), leaves 2^-48 v in C. The rest in B does not matter.

An MLP need not wait for an open operand. Of a product a b it reads read(B) where an operand is open. In the next MLP
both are settled, and it adds the missing part, to C alone:

    lo(a) b + read(a) lo(b)          lo: C, where the operand was open; read(a): the part of a that was read before

so that products of products follow one another without a pause. Linear maps likewise. Attention waits until everything
is settled, in one more MLP if need be. So do functions, and layers that write a lane that they multiply. Linear maps of
a token's own lanes move from attention to the MLP before it.

Where nothing is rounded, read(h) = h. Then C is zero as soon as v is settled, all corrections are zero, and the program
computes the same as before. Lanes that the prompt fills are open when the first MLP reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from innergrad.errors import LoweringError
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.interpret.walk import by_itself
from innergrad.ir.program import Attend, Expr, Layer, Loop, Program, Score, View
from innergrad.ir.stream import Lane, Stream, low
from innergrad.targets.parts.base import constant

WHOLE = ("one", "t", "query")  # 0 or 1, as marks are: float32 holds them


def doubled(program: Program) -> Program:
    """The same program, every value in two lanes."""
    marks = {mark.lane for mark in program.marks}
    used = {view.lane for layer in program.layers for i in layer.instructions for view in i.views()}
    used -= {*WHOLE, *marks}
    lanes = tuple(lane for lane in program.stream.lanes if lane.name in used)
    lows = tuple(
        Lane(low(lane.name), lane.shape, "scratch" if lane.role == "scratch" else "state", lane.shared, lane.bound)
        for lane in lanes
    )
    program = replace(program, stream=Stream((*program.stream.lanes, *lows)))
    work = _Pass(program, used, _ahead(program))
    first, *body = program.body if not program.body[0].step else (Loop(1, (), step=False), *program.body)
    loops = (replace(first, layers=work.segment(first.layers)), *map(work.loop, body))
    work.ahead = frozenset()
    return replace(program, body=loops, readout=work.segment(program.readout, "read-out"))


def _whole(lane: Lane, coefficient: float = 1.0, *, lower: bool = False) -> Expr:
    """All entries of a lane, or of its low lane."""
    return (View(low(lane.name) if lower else lane.name, tuple("klmnop"[: len(lane.shape)]), coefficient),)


def _ahead(program: Program) -> frozenset[str]:
    """The lanes that attention writes in the first layer of a step. The last MLP of the step before opens them, unless
    it reads one of them.
    """
    firsts = [loop.layers[0] for loop in program.body if loop.step and loop.layers[0].kind == "attention"]
    written = {i.dst.lane for layer in firsts for i in layer.instructions}
    kept = {name for name in written if program.stream[name].role != "scratch"}
    return frozenset() if any(kept & _read(i) for layer in firsts for i in layer.instructions) else frozenset(kept)


@dataclass
class _Pass:
    """The state of the pass, between two layers.

    doubled: the lanes that have a low one. ahead: those that are open when a step begins. open: those that are open
    now. empty: those that were cleared, with nothing left in their low lanes. entry: those that may be empty when a
    segment ends. due: corrections for the next mlp.
    """

    program: Program
    doubled: set[str]
    ahead: frozenset[str]
    open: set[str] = field(default_factory=set)
    empty: set[str] = field(default_factory=set)
    entry: frozenset[str] = frozenset()
    due: list[Attend] = field(default_factory=list)

    def __post_init__(self) -> None:
        roles = {name: self.program.stream[name].role for name in self.doubled}
        self.open = {name for name, role in roles.items() if role in ("input", "weight")}
        self.empty = {name for name, role in roles.items() if role == "scratch"}
        self.entry = frozenset(self.empty)

    def loop(self, loop: Loop) -> Loop:
        """A loop whose every pass begins in the same state. A lane that a pass does not leave empty counts as settled
        before the first pass, too. It holds nothing at all then, which is both.
        """
        while True:
            self.entry, opened = frozenset(self.empty), set(self.open)
            layers = self.segment(loop.layers)
            if self.empty == self.entry:
                return replace(loop, layers=layers)
            self.open = opened

    def segment(self, layers: Iterable[Layer], name: str = "prompt") -> tuple[Layer, ...]:
        """The layers of a loop, or of the read-out; when it ends, all is settled that need not be open, or empty."""
        made = list[Layer]()
        for layer in layers:
            made += (self._attention if layer.kind == "attention" else self._mlp)(layer, made)
            name = layer.name
        self.open, self.empty = self.open | (self.empty - self.entry), self.empty & self.entry
        made += self._settled(name, keep=self.ahead)
        return tuple(made)

    def _settled(self, name: str, keep: Iterable[str] = (), more: Iterable[Attend] = ()) -> Iterator[Layer]:
        """An mlp that settles all lanes, except those that are kept open or that it opens. None if there is nothing to
        do.
        """
        kept = set(keep)
        opened = [*self._opened(kept - self.open - self.empty), *more]
        if self.due or opened or self.open - kept:
            yield Layer("mlp", f"{name}, settled", (*self._due(kept), *opened))
            self.open |= kept - self.empty

    def _due(self, kept: Iterable[str] = ()) -> tuple[Attend, ...]:
        """The extra work of the next mlp: corrections, and C -= read(B) for lanes that are open and not kept so."""
        lanes = [self.program.stream[name] for name in sorted(self.open - set(kept))]
        settling = (Attend(_whole(lane, lower=True), value=_whole(lane, -1.0)) for lane in lanes)
        made, self.due, self.open = (*self.due, *settling), [], self.open & set(kept)
        return made

    def _opened(self, names: Iterable[str]) -> Iterator[Attend]:
        """C += read(B)."""
        for name in sorted(names):
            lane = self.program.stream[name]
            yield Attend(_whole(lane, lower=True), value=_whole(lane))

    # ------------------------------------------------------------------------------------------------------ sublayers

    def _mlp(self, layer: Layer, before: list[Layer]) -> Iterator[Layer]:
        if self._waits(layer):
            yield from self._settled(before[-1].name if before else "step")
        cleared = {i.dst.lane for i in layer.instructions if _clears(i)}
        written = [i.dst.lane for i in layer.instructions if not _clears(i)]
        opened = tuple(self._opened(set(written) - self.open - self.empty - cleared))
        made, corrections = list[Attend](), list[Attend]()
        for i in layer.instructions:
            made += _both(i) if _clears(i) else self._written(i)
            corrections += self._corrections(i)
        yield replace(layer, instructions=(*self._due(written), *opened, *made))
        self.due = corrections
        self.open, self.empty = self.open | set(written), (self.empty | cleared) - set(written)

    def _attention(self, layer: Layer, before: list[Layer]) -> Iterator[Layer]:
        own = [i for i in layer.instructions if i.own and not i.scores]
        others = [i for i in layer.instructions if not (i.own and not i.scores)]
        name = before[-1].name if before else "step"
        if self.open & {lane for i in own for lane in _read(i)}:
            yield from self._settled(name)
        written = {i.dst.lane for i in layer.instructions}
        seen = (written - self.empty) & {lane for i in others for lane in _read(i)}
        if seen:
            what = f"layer {layer.name}: attention of a program in two lanes adds to values that it does not read"
            raise LoweringError(what, got=", ".join(sorted(seen)), hint="compile it without double=True")
        moved = tuple(one for i in own for one in self._written(i))
        yield from self._settled(name, written, moved)
        yield replace(layer, instructions=tuple(one for i in others for one in self._written(i)))
        self.open, self.empty = self.open | written, self.empty - written

    def _waits(self, layer: Layer) -> bool:
        """A function of an open value, an open value cleared, or a factor written beside its product."""
        written = {i.dst.lane for i in layer.instructions}
        for i in layer.instructions:
            opened = self.open & _read(i)
            if opened and (_clears(i) or not _bilinear(i) or written & _read(i)):
                return True
        return False

    # --------------------------------------------------------------------------------------------------- instructions

    def _written(self, i: Attend) -> tuple[Attend, ...]:
        """The instruction with the readable parts of its operands, written to both lanes."""
        scores = [Score(s.f, *((self._shown(q), self._shown(k)) for q, k in s.pairs)) for s in i.scores]
        return _both(i.changed(scores=scores, value=self._shown(i.value)))

    def _corrections(self, i: Attend) -> Iterator[Attend]:
        """The part that is missing in a written lane, with the lanes as they are one mlp later: S V - S' V' = (S - S')
        V + S' (V - V'). S is the score, V the value, and ' marks the part that was read. S - S' is split likewise, pair
        by pair.
        """
        if not self.open & _read(i):
            return
        dst = replace(i.dst, lane=low(i.dst.lane))
        for score in i.scores:
            pairs = [(self._missing(q), self._full(k)) for q, k in score.pairs]
            pairs += [(self._shown(q), self._missing(k)) for q, k in score.pairs]
            some = [pair for pair in pairs if all(pair)]
            if some:
                yield i.changed(dst=dst, scores=(Score(score.f, *some),), value=self._full(i.value))
        value = self._missing(i.value)
        if value:
            scores = [Score(s.f, *((self._shown(q), self._shown(k)) for q, k in s.pairs)) for s in i.scores]
            yield i.changed(dst=dst, scores=scores, value=value)

    def _shown(self, expression: Expr) -> Expr:
        """The part of a value that an mlp can read now."""
        return tuple(
            part for view in expression for part in ((view,) if view.lane in self.open else self._full((view,)))
        )

    def _missing(self, expression: Expr) -> Expr:
        """The rest, one mlp later."""
        return tuple(replace(view, lane=low(view.lane)) for view in expression if view.lane in self.open)

    def _full(self, expression: Expr) -> Expr:
        """A value that is settled; of an empty one, the low lane alone."""
        highs = (view for view in expression if view.lane not in self.empty)
        return (*highs, *(replace(view, lane=low(view.lane)) for view in expression if view.lane in self.doubled))


def _both(i: Attend) -> tuple[Attend, Attend]:
    """Into B and C; a lane that is cleared, B from B and C from C."""
    lower = i.changed(dst=replace(i.dst, lane=low(i.dst.lane)))
    return i, lower.changed(scores=(Score(NEGATION, ((lower.dst,), "one")),)) if _clears(i) else lower


def _clears(i: Attend) -> bool:
    """dst -= dst, and nothing else."""
    alone = by_itself(i) and i.scale == 1.0 and constant(i.value) and i.dst.whole and len(i.scores) == 1
    return alone and i.scores[0].f == NEGATION and i.scores[0].pairs == (((i.dst,), (View("one"),)),)


def _bilinear(i: Attend) -> bool:
    return by_itself(i) and all(score.f in (IDENTITY, NEGATION) for score in i.scores)


def _read(i: Attend) -> set[str]:
    _, *views = i.views()
    return {view.lane for view in views}
