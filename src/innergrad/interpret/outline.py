"""A program as an outline for people: sections of blocks of sublayers of sentences, each shown once.

- A *section* is the layers before the first step, a step, or the read-out; ``times`` says how often it is applied.
- A *block* is attention and the MLP after it, or one of them alone, as in ``tf.cost()``.
- A *line* is a sentence (:mod:`innergrad.interpret.words`) with the lanes that it reads and writes.

Repetitions are folded at every level: steps that differ in their numbers only, blocks that differ in the numbers of
their lanes only (the layers of a deep network), and lines of one form in a sublayer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from innergrad.interpret.repeats import FEWEST_HIDDEN, longest_run, without_digits
from innergrad.interpret.words import MINUS, Sentence, sentence
from innergrad.ir.program import Layer, Loop, Program
from innergrad.ir.stream import Lane

SAME = 3  # lines of one form that are said as one
LONGEST_SUM = 64  # characters of a line that sums up several instructions on one lane


@dataclass(frozen=True)
class Line:
    """A sentence, and the lanes of all instructions it stands for."""

    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Sublayer:
    """Attention, an MLP, or an element-wise product."""

    kind: str
    name: str
    lines: tuple[Line, ...]
    form: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """Blocks that are applied one after the other, ``times`` times, on lanes of other numbers. last: the names of the
    sublayers of the last time.
    """

    blocks: tuple[tuple[Sublayer, ...], ...]
    times: int = 1
    last: str = ""


@dataclass(frozen=True)
class Section:
    """Runs of blocks, applied ``times`` times. changing: with other numbers every time (rates, tokens)."""

    title: str
    runs: tuple[Run, ...]
    times: int
    step: bool
    changing: bool = False

    @property
    def n_blocks(self) -> int:
        """Of all its times."""
        return self.times * sum(run.times * len(run.blocks) for run in self.runs)


@dataclass(frozen=True)
class Outline:
    """The sections in order, and the lanes that occur in them, by role, in the order of the stream."""

    sections: tuple[Section, ...]
    lanes: tuple[Lane, ...]


def outline(program: Program) -> Outline:
    """The whole program, everything that repeats folded."""
    loops = [_section(program, loop) for loop in program.body]
    sections = [_applied_again(list(same)) for _, same in groupby(loops, key=_form)]
    if program.readout:
        sections.append(Section("Read-out", _runs(program, program.readout), 1, False))
    used = {name for section in sections for line in _lines(section) for name in (*line.reads, *line.writes)}
    order = {"input": 0, "weight": 1, "state": 2, "scratch": 3}
    lanes = sorted((lane for lane in program.stream.lanes if lane.name in used), key=lambda lane: order[lane.role])
    return Outline(tuple(sections), tuple(lanes))


def _lines(section: Section) -> Iterator[Line]:
    return (line for run in section.runs for block in run.blocks for sub in block for line in sub.lines)


# -------------------------------------------------------------------------------------------------- steps and blocks


def _section(program: Program, loop: Loop) -> Section:
    title = "One step" if loop.step else "Before the first step"
    return Section(title, _runs(program, loop.layers), loop.count, loop.step)


def _form(section: Section) -> object:
    blocks = [block for run in section.runs for block in run.blocks]
    return section.step, [[sub.form for sub in block] for block in blocks], [run.times for run in section.runs]


def _applied_again(same: Sequence[Section]) -> Section:
    """One for all of them."""
    return replace(same[0], times=sum(one.times for one in same), changing=len(same) > 1)


def _runs(program: Program, layers: Sequence[Layer]) -> tuple[Run, ...]:
    blocks, found, start = _blocks([_sublayer(program, layer) for layer in layers]), list[Run](), 0
    forms = [tuple(sub.form for sub in block) for block in blocks]
    while start < len(blocks):
        period, length = longest_run(forms, start)
        times = length // period
        shown = blocks[start : start + period]
        if sum(map(len, shown)) * (times - 1) < FEWEST_HIDDEN:
            period, times = 1, 1
        last = blocks[start + period * (times - 1)][0].name if times > 1 else ""
        found.append(Run(tuple(blocks[start : start + period]), times, last))
        start += period * times
    return tuple(found)


def _blocks(sublayers: Sequence[Sublayer]) -> list[tuple[Sublayer, ...]]:
    """An MLP right after attention belongs to its block."""
    found = list[tuple[Sublayer, ...]]()
    for sub in sublayers:
        if sub.kind == "mlp" and found and len(found[-1]) == 1 and found[-1][0].kind == "attention":
            found[-1] = (*found[-1], sub)
        else:
            found.append((sub,))
    return found


# ---------------------------------------------------------------------------------------------------------- sentences


def _sublayer(program: Program, layer: Layer) -> Sublayer:
    said = _summed([sentence(program, i) for i in layer.instructions])
    form = (layer.kind, without_digits(layer.name), *(one.form for one in said))
    return Sublayer(layer.kind, layer.name, tuple(_folded(said)), form)


def _summed(said: Sequence[Sentence]) -> list[Sentence]:
    """The addends of several instructions to one lane, as one sum where that is short."""
    found = list[Sentence]()
    for one in said:
        before = found[-1] if found else one
        first, more = before.text.partition(" += ")[0], one.text.partition(" += ")[2]
        together = f"{before.text} + {more}".replace(f"+ {MINUS}", f"{MINUS} ")
        if found and one.text.startswith(f"{first} += ") and more and len(together) <= LONGEST_SUM:
            reads = tuple(dict.fromkeys((*before.reads, *one.reads)))
            found[-1] = replace(before, text=together, reads=reads)
        else:
            found.append(one)
    return found


def _folded(said: Sequence[Sentence]) -> Iterator[Line]:
    """Lines: an operation on several lanes is said once."""
    groups: dict[str, list[Sentence]] = {}
    for one in said:
        groups.setdefault(one.verb or one.form, []).append(one)
    for same in groups.values():
        if not same[0].verb and len(same) < SAME:
            yield from (Line(one.text, one.reads, (one.writes,)) for one in same)
            continue
        writes = tuple(dict.fromkeys(one.writes for one in same))
        reads = tuple(dict.fromkeys(lane for one in same for lane in one.reads))
        if same[0].verb:
            text = f"{same[0].verb} {listed(writes)}"
        else:
            others = listed([one.writes for one in same[1:]])
            text = f"{same[0].text}; likewise {others} ({len(same)} instructions)"
        yield Line(text, reads, writes)


def listed(names: Sequence[str]) -> str:
    """Names with commas between, those that differ in their numbers only as one: p1 to p9."""
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        families.setdefault(without_digits(name), []).append(name)
    return ", ".join(map(reach, families.values()))


def reach(names: Sequence[str]) -> str:
    """Of one family of names: all if they are few, else the first and the last."""
    ordered = sorted(names, key=lambda name: (len(name), name))
    return ", ".join(ordered) if len(names) < SAME else f"{ordered[0]} to {ordered[-1]}"
