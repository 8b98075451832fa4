"""Programs that name no target, scheduled: instructions placed into the sublayers that a target has.

A layer whose sublayer can do all its instructions stays as it is; kinds are hints. Otherwise it goes, as a whole, into
another sublayer; otherwise it is split. Each part says which instructions it can do. An instruction that no part can do
at once becomes several, through scratch lanes of its own:

    f(<q, k>) v      z = <q, k>;  p = f(z);  dst += p v
    mean of such     u = f(<q, k>) v in every token, if the query is the same in all;  dst += mean u
    where: demos     u = everything else;  dst += t u

Instructions of a layer all read the stream before the layer. So the instructions that write scratch lanes come first;
nobody else reads those lanes. Then come those that write the program's own lanes, in an order in which none reads a
lane that another has written. Where there is no such order, a scratch lane helps. Scratch lanes are cleared at the end
of every pass of their loop.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, permutations

from innergrad.errors import LoweringError
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.interpret.walk import by_itself, written_on
from innergrad.ir.program import Attend, Expr, Kind, Layer, Options, Program, Score, View, labels_of
from innergrad.ir.stream import Lane, Stream
from innergrad.targets import Target
from innergrad.targets.parts.base import constant, described, linear, need

ONE: Expr = (View("one"),)


def legalise(program: Program, target: Target, options: Options) -> Program:
    """The same program, every layer of a kind that the target has and can realise; or the reason why not."""
    work = _Pass(program, target, options)
    body = tuple(replace(loop, layers=work.segment(loop.layers, clear=True)) for loop in program.body)
    readout = work.segment(program.readout, clear=False)
    return replace(program, stream=work.stream, body=body, readout=readout)


@dataclass
class _Pass:
    """The state of the pass: the stream, as it grows."""

    program: Program
    target: Target
    options: Options
    made: set[str] = field(default_factory=set)  # scratch lanes
    used: set[str] = field(default_factory=set)  # those of the present segment

    @property
    def stream(self) -> Stream:
        return self.program.stream

    @property
    def kinds(self) -> list[Kind]:
        """The sublayers to try, in this order."""
        heads_first = self.options.variant == "sink"
        order: tuple[Kind, ...] = ("attention", "mlp") if heads_first else ("mlp", "product", "attention")
        return [kind for kind in order if kind in self.target.modules]

    # ------------------------------------------------------------------------------------------------------- layers

    def segment(self, layers: Sequence[Layer], clear: bool) -> tuple[Layer, ...]:
        """The layers of a loop, or of the read-out."""
        self.used = set()
        made = [new for layer in layers for new in self.layer(layer)]
        return tuple(self._cleared(made) if clear and self.used else made)

    def layer(self, layer: Layer) -> list[Layer]:
        hint: Kind = "mlp" if layer.kind == "product" and "product" not in self.target.modules else layer.kind
        for kind in dict.fromkeys((hint, *self.kinds)):
            whole = self._whole(layer, kind)
            if whole is not None:
                return [whole]
        return self._split(layer)

    def _whole(self, layer: Layer, kind: Kind) -> Layer | None:
        """The layer in one sublayer of this kind."""
        if kind not in self.target.modules:
            return None
        forms = [self._form(instruction, kind, layer.name) for instruction in layer.instructions]
        made = replace(layer, kind=kind, instructions=tuple(form for form in forms if form is not None))
        return None if None in forms or self._refused(made) else made

    def _refused(self, layer: Layer) -> bool:
        return any(True for _ in self.target.why_not(layer, self.target.context(self.program, self.options)))

    def _form(self, instruction: Attend, kind: Kind, name: str) -> Attend | None:
        """An equivalent of the instruction that a sublayer of this kind can do."""
        every = forms(instruction, self.stream)
        return next((form for form in every if not self._refused(Layer(kind, name, (form,)))), None)

    def _split(self, layer: Layer) -> list[Layer]:
        before: list[Attend] = []
        finals = [self._resolved(instruction, layer, before) for instruction in layer.instructions]
        order = self._unseen(finals, layer.name)
        while order is None:  # some would see the output of others: one after the other through a scratch lane
            number, seen = next((n, i) for n, i in enumerate(finals) if any(_sees(i, other) for other in finals))
            lane = self._fresh(seen, layer.name, seen.dst.labels, self.stream[seen.dst.lane].shared)
            before.append(seen.changed(dst=lane, scale=1.0))
            finals[number] = self._resolved(Attend((seen.dst,), value=(lane,), scale=seen.scale), layer, before)
            order = self._unseen(finals, layer.name)
        made = [*self._scheduled(before, layer.name), *order]
        names = [layer.name] if len(made) == 1 else [f"{layer.name}, {n}" for n in range(1, len(made) + 1)]
        return [replace(part, name=name) for part, name in zip(made, names, strict=True)]

    def _unseen(self, finals: list[Attend], name: str) -> tuple[Layer, ...] | None:
        """Layers in an order in which none reads a lane that an earlier one wrote."""
        for order in permutations(self._grouped(finals, name)):
            pairs = ((i, j) for n, group in enumerate(order) for i in group.instructions for j in _all(order[:n]))
            if not any(_sees(i, j) for i, j in pairs):
                return order
        return None

    def _scheduled(self, instructions: list[Attend], name: str) -> list[Layer]:
        """Instructions that write scratch lanes: each after those whose lanes it reads."""
        made: list[Layer] = []
        while instructions:
            waiting = {instruction.dst.lane for instruction in instructions}
            first = self._grouped([i for i in instructions if not waiting & _read(i)], name)[0]
            done = {instruction.dst for instruction in first.instructions}
            instructions = [i for i in instructions if i.dst not in done]
            made.append(first)
        return made

    def _grouped(self, instructions: Iterable[Attend], name: str) -> list[Layer]:
        """As few layers as can be found that do all the instructions; the fullest first."""
        left, made = list(instructions), list[Layer]()
        while left:
            best: tuple[list[Attend], Layer] | None = None
            for kind in self.kinds:
                taken, forms = list[Attend](), list[Attend]()
                for instruction in left:
                    form = self._form(instruction, kind, name)
                    if form is not None and not self._refused(Layer(kind, name, (*forms, form))):
                        taken.append(instruction)
                        forms.append(form)
                if taken and (best is None or len(taken) > len(best[0])):
                    best = taken, Layer(kind, name, tuple(forms))
            assert best is not None, "every instruction was resolved"
            left = [instruction for instruction in left if not any(instruction is one for one in best[0])]
            made.append(best[1])
        return made

    def _cleared(self, layers: list[Layer]) -> list[Layer]:
        """The scratch lanes set to zero: in the last mlp, if it is not too early, or in a new one."""
        reads = [i for i, layer in enumerate(layers) for a in layer.instructions if _read(a) & self.used]
        writes = [i for i, layer in enumerate(layers) for a in layer.instructions if a.dst.lane in self.used]
        last = max((i for i, layer in enumerate(layers) if layer.kind == "mlp"), default=-1)
        lanes = [self.stream[name] for name in sorted(self.used)]
        views = [View(lane.name, tuple("klmnop"[: len(lane.shape)])) for lane in lanes]
        clear = tuple(Attend((view,), Score(NEGATION, ((view,), ONE))) for view in views)
        if last >= max(reads, default=-1) and last > max(writes):
            merged = replace(layers[last], instructions=(*layers[last].instructions, *clear))
            if not self._refused(merged):
                return [*layers[:last], merged, *layers[last + 1 :]]
        return [*layers, Layer("mlp", f"{layers[-1].name}, clear", clear)]

    # ------------------------------------------------------------------------------------------------- instructions

    def _resolved(self, instruction: Attend, layer: Layer, before: list[Attend], of: str = "") -> Attend:
        """An instruction that some part can do at once. Instructions that have to come first go to ``before``. of: the
        lane that it is for.
        """
        of = of or instruction.dst.lane
        while not any(self._form(instruction, kind, layer.name) for kind in self.kinds):
            parts = self._decomposed(instruction, layer.name)
            if parts is None:
                raise self._refusal(instruction, layer, of)
            before.append(self._resolved(parts[0], layer, before, of))
            instruction = parts[1]
        return instruction

    def _decomposed(self, i: Attend, name: str) -> tuple[Attend, Attend] | None:
        """An instruction that writes a scratch lane, and one that reads it; None if there are none."""
        written = written_on(i)
        if written is not None:
            lane = self._fresh(i, name, i.dst.labels)
            return i.changed(dst=lane, scale=1.0, where="all"), _product(i, ((View(written),), (lane,)))
        if need(i) == "mean" and i.scores:
            if any(not self.stream[v.lane].shared for score in i.scores for query, _ in score.pairs for v in query):
                return None
            own = Attend((i.dst,), *i.scores, value=i.value)
            lane = self._fresh(own, name, i.dst.labels, shared=False)
            return own.changed(dst=lane), i.changed(scores=(), value=(lane,))
        if not by_itself(i) or need(i) in ("division", "linear map", "product", "function"):
            return None
        for number, score in enumerate(i.scores):
            if not linear(score):  # z = <q, k>
                return self._named(i, name, number, Score(IDENTITY, *score.pairs), score.f)
        for number, score in enumerate(i.scores):
            if score.f != IDENTITY:  # p = f(z)
                return self._named(i, name, number, score, IDENTITY)
        factors, scale = _factors(i)
        labels = tuple(x for x in i.dst.labels if x in labels_of(factors[0]) | labels_of(factors[1]))
        product = Attend((i.dst,), Score(IDENTITY, (factors[0], factors[1])))
        lane = self._fresh(product, name, labels)
        rest = [Score(IDENTITY, (factor, ONE)) for factor in ((lane,), *factors[2:])]
        return product.changed(dst=lane), i.changed(scores=rest, value=ONE, scale=scale)

    def _named(self, i: Attend, name: str, number: int, inner: Score, outer: object) -> tuple[Attend, Attend]:
        """lane = inner, and the instruction with f(lane) in place of a score."""
        used = {label for pair in inner.pairs for side in pair for label in labels_of(side)}
        first = Attend((i.dst,), inner)
        lane = self._fresh(first, name, tuple(label for label in i.dst.labels if label in used))
        scores = (*i.scores[:number], Score(outer, ((lane,), ONE)), *i.scores[number + 1 :])  # type: ignore[arg-type]
        return first.changed(dst=lane), i.changed(scores=scores)

    def _fresh(self, i: Attend, name: str, labels: tuple[str, ...], shared: bool | None = None) -> View:
        """A scratch lane for the output of an instruction, named after its lane and layer."""
        shape = tuple(self.program.label_sizes(i)[label] for label in labels)
        shared = all(self.stream[lane].shared for lane in _read(i)) if shared is None else shared
        stem = re.sub(r"\W+", "_", f"{i.dst.lane}_{name}")
        for number in count(1):
            lane = Lane(f"{stem}_{number}", shape, "scratch", shared, bound=self._bound(i))
            known = self.stream.by_name.get(lane.name)
            if known is None:
                self.program = replace(self.program, stream=Stream((*self.stream.lanes, lane)))
                self.made.add(lane.name)
            if known is None or (known == lane and lane.name in self.made - self.used):
                break
        self.used.add(lane.name)
        return View(lane.name, labels)

    def _bound(self, i: Attend) -> float:
        """A bound on the output of an instruction, where the lanes it reads have bounds."""
        given = {"x": self.options.x_bound, "y": self.options.y_bound}

        def size(expression: Expr) -> float:
            bounds = ((abs(v.coefficient), given.get(v.lane) or self.stream[v.lane].bound) for v in expression)
            return sum(coefficient * bound for coefficient, bound in bounds)

        total, sizes = size(i.value), self.program.label_sizes(i)
        for score in i.scores:
            z = 0.0
            for query, key in score.pairs:
                summed = math.prod(sizes[x] for x in (labels_of(query) | labels_of(key)) - set(i.dst.labels))
                z += summed * size(query) * size(key)
            total *= z if score.f in (IDENTITY, NEGATION) else score.f.magnitude(z)
        return total if math.isfinite(total) and total > 0 else math.inf

    def _refusal(self, instruction: Attend, layer: Layer, of: str) -> LoweringError:
        context = self.target.context(self.program, self.options)
        reasons = {
            kind: reason.what
            for kind in self.kinds
            for _, reason in self.target.why_not(Layer(kind, layer.name, (instruction,)), context)
        }
        what = f"layer {layer.name}, {of}: target {self.options.target!r} has no layer for this"
        told = "; ".join(f"{kind}: {reason}" for kind, reason in reasons.items())
        return LoweringError(what, got=described(instruction), hint=told)


# ---------------------------------------------------------------------------------------------------- equivalent forms


def forms(i: Attend, stream: Stream) -> Iterator[Attend]:
    """The instruction, and others that do the same: sides of inner products and factors exchanged in its own token."""
    yield i
    if not by_itself(i):
        return
    scores = tuple(Score(score.f, *(_sided(pair, stream) for pair in score.pairs)) for score in i.scores)
    if scores != i.scores:
        yield i.changed(scores=scores)
    if any(score.f != IDENTITY or not linear(score) for score in i.scores):
        return
    factors, scale = _factors(i)
    if len(factors) == 1:
        yield i.changed(scores=(), value=factors[0], scale=scale)
        yield i.changed(scores=(Score(IDENTITY, (factors[0], ONE)),), value=ONE, scale=scale)
    if len(factors) == 2:
        pair = _sided((factors[0], factors[1]), stream)
        yield i.changed(scores=(Score(IDENTITY, pair),), value=ONE, scale=scale)


def _sided(pair: tuple[Expr, Expr], stream: Stream) -> tuple[Expr, Expr]:
    """A token's own lanes on the query side, shared lanes on the key side."""
    query, key = pair
    own = [any(not stream[view.lane].shared for view in side) for side in pair]
    return (key, query) if own == [False, True] else (query, key)


def _form_of(score: Score) -> Expr:
    """The linear form that a score is."""
    return tuple(
        view
        for query, key in score.pairs
        for form, factor in [(query, key) if constant(key) else (key, query)]
        for view in _times(form, sum(one.coefficient for one in factor))
    )


def _times(expression: Expr, factor: float) -> Expr:
    return tuple(replace(view, coefficient=view.coefficient * factor) for view in expression)


def _factors(i: Attend) -> tuple[list[Expr], float]:
    """The linear forms that an instruction multiplies, and the number before them."""
    forms = [_form_of(score) for score in i.scores]
    if constant(i.value):
        return forms, i.scale * sum(view.coefficient for view in i.value)
    return [*forms, i.value], i.scale


def _product(i: Attend, factors: tuple[Expr, Expr]) -> Attend:
    return Attend((i.dst,), Score(IDENTITY, factors), scale=i.scale)


def _all(layers: Iterable[Layer]) -> Iterator[Attend]:
    return (instruction for layer in layers for instruction in layer.instructions)


def _sees(reader: Attend, writer: Attend) -> bool:
    return writer.dst.lane in _read(reader)


def _read(instruction: Attend) -> set[str]:
    """The lanes that an instruction reads."""
    _, *views = instruction.views()
    return {view.lane for view in views}
