"""A program as a picture: depth goes down, the lanes of the stream are tracks, and words describe every layer.

    drawing = draw(program)       # in a notebook it shows itself
    drawing.save("model.svg")     # replaces nothing but an earlier drawing

On a line of a layer a ring is a lane that is read, a full dot a lane that is written. Everything is made from the
program: the words by :mod:`innergrad.interpret.words`, the folding by :mod:`innergrad.interpret.outline`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from innergrad.figures import BLUE, DARK, GREEN, GREY, ORANGE
from innergrad.files import Writer, make_folder, write_whole
from innergrad.interpret.outline import Outline, Run, Section, Sublayer, outline, reach
from innergrad.interpret.repeats import without_digits
from innergrad.interpret.words import MINUS
from innergrad.ir.program import Program
from innergrad.ir.stream import Lane

COLOUR = {"attention": BLUE, "mlp": ORANGE, "product": GREEN, "any": GREY}
KIND = {"attention": "attention", "mlp": "MLP", "product": "product", "any": "any layer"}
ROLE = {"input": "from the prompt", "weight": "learned", "state": "kept", "scratch": "scratch"}
MARGIN, GAP, PAD = 16, 10, 9
WORDS, LETTERS, LETTER = 452, 74, 5.9  # pixels of the column of words; letters of a line there; pixels of a letter
TRACK, ROW, WRAPPED, HEAD = 23, 20, 14, 19  # pixels of a track, of a line, of a line that goes on, of a layer's name
MOST_LANES = 36  # with more of them, lanes that differ in their numbers share a track
MOST_LINES = 3
LEGEND, LEAST_WIDTH = 74, 690
SIGNS = {
    "+=": "is added to",
    "·": "matrix product",
    "⊙": "entry by entry",
    "ᵀ": "transposed",
    "ₛ": "at the token that is read",
    "′": "derivative",
}


@dataclass(frozen=True)
class Drawing:
    """A picture, as SVG."""

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the file. One that is there is replaced if it is a drawing of ours, others only with ``force``."""
        writer, path = Writer("draw", force=force), Path(path)
        writer.check(path, stream=True)
        make_folder(path.parent)
        write_whole(path, f"{writer.comment}\n{self.svg}\n")
        return path


def draw(program: Program, title: str = "") -> Drawing:
    """The architecture of a program: the layers before the first step, a step, and the read-out, each drawn once."""
    found = outline(program)
    tracks = Tracks.of(found.lanes)
    parts, y = list[str](), float(MARGIN)
    if title:
        parts.append(_text(MARGIN, y + 14, title, size=15, bold=True))
        y += 30
    for section in found.sections:
        part, height = _section(section, tracks, y)
        parts.append(part)
        y += height + 2 * GAP
    parts.append(_legend(program, found, y))
    width, height = max(tracks.right + MARGIN, LEAST_WIDTH), y + LEGEND
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" role="img">'
        f"<title>{escape(title or 'The architecture')}</title>"
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'
    )


# ------------------------------------------------------------------------------------------------------------- lanes


@dataclass(frozen=True)
class Tracks:
    """Where the lanes are. groups: (words, left, right) of every role; labels: of every track, with its tooltip."""

    places: Mapping[str, float]
    labels: tuple[tuple[str, str, float], ...]
    groups: tuple[tuple[str, float, float], ...]
    right: float

    @property
    def height(self) -> float:
        """Of the header: names stand at an angle."""
        return 32 + 0.87 * LETTER * max(len(name) for name, _, _ in self.labels)

    @staticmethod
    def of(lanes: Sequence[Lane]) -> Tracks:
        """Side by side by role; if they are many, those that differ in their numbers share a track."""
        families: dict[tuple[str, str], list[Lane]] = {}
        for lane in lanes:
            family = without_digits(lane.name) if len(lanes) > MOST_LANES else lane.name
            families.setdefault((lane.role, family), []).append(lane)
        places, labels, groups = dict[str, float](), list[tuple[str, str, float]](), list[tuple[str, float, float]]()
        x = float(MARGIN + WORDS + 2 * PAD)
        for role in dict.fromkeys(role for role, _ in families):
            own, left = [lanes for (of, _), lanes in families.items() if of == role], x
            for same in own:
                places |= {lane.name: x + TRACK / 2 for lane in same}
                name = reach([lane.name for lane in same]).replace(" to ", "–").replace(", ", ",")
                labels.append((name, "; ".join(map(_about, same[:3])), x + TRACK / 2))
                x += TRACK
            x = max(x, left + LETTER * len(ROLE[role]) + 4)
            groups.append((ROLE[role], left, x))
            x += 12
        return Tracks(places, tuple(labels), tuple(groups), x - 12 + PAD)

    def header(self, y: float, bottom: float) -> str:
        """Names of the lanes, and their tracks down to the bottom."""
        parts = []
        for words, left, right in self.groups:
            parts.append(_text(left, y + 10, words, colour=GREY))
            parts.append(f'<path d="M{left:.1f} {y + 15:.1f}H{right:.1f}" stroke="{GREY}" stroke-width="1"/>')
        for name, about, x in self.labels:
            top = y + self.height
            parts.append(
                f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{GREY}" stroke-opacity=".25" stroke-width="1"/>'
                f'<text transform="translate({x + 4:.1f} {top - 5:.1f}) rotate(-60)" fill="{DARK}">'
                f"<title>{escape(about)}</title>{escape(name)}</text>"
            )
        return "".join(parts)


def _about(lane: Lane) -> str:
    size = " × ".join(map(str, lane.shape)) or "one number"
    where = "the same at every token" if lane.shared else "each token its own"
    return f"{lane.name}: {size}, {ROLE[lane.role]}, {where}"


# ------------------------------------------------------------------------------------------------- sections and layers


def _section(section: Section, tracks: Tracks, y: float) -> tuple[str, float]:
    """A box with the blocks of a section, and its height."""
    top, parts, number = y, list[str](), 1
    y += max(tracks.height, 44) + 4
    for run in section.runs:
        part, height = _run(run, tracks, y, number)
        parts.append(part)
        number += run.times * len(run.blocks)
        y += height + GAP
    colour = DARK if section.step else GREY
    words = ["", f"× {section.times:,}"][section.times > 1]
    note = f"{number - 1} block{'s' * (number > 2)}" + (f", {section.n_blocks:,} in all" if section.times > 1 else "")
    note += "; from step to step other numbers" if section.changing else ""
    box = _box(MARGIN / 2, top - 6, tracks.right, y - top + 6, colour, ".9", 1.6 if section.step else 1, fill=False)
    head = _text(MARGIN + 2, top + 16, f"{section.title} {words}".strip(), size=14, bold=True)
    head += _text(MARGIN + 2, top + 34, note, colour=GREY)
    return box + head + tracks.header(top, y - GAP) + "".join(parts), y - top


def _run(run: Run, tracks: Tracks, y: float, number: int) -> tuple[str, float]:
    """The blocks of a run, with a bracket around them if it stands for several."""
    parts, top = list[str](), y
    if run.times > 1:
        y += 18
    for place, block in enumerate(run.blocks):
        heights = [_height(sub) for sub in block]
        parts.append(_box(MARGIN, y, tracks.right - MARGIN, sum(heights) + 2, GREY, ".5", 0.8, fill=False))
        parts.append(_text(MARGIN + WORDS - 4, y + 14, f"block {number + place}", colour=GREY, end=True))
        for sub, height in zip(block, heights, strict=True):
            parts.append(_sublayer(sub, tracks, y + 1, height))
            y += height
        y += 2 + (GAP if place + 1 < len(run.blocks) else 0)
    if run.times > 1:
        last = number + run.times * len(run.blocks) - 1
        words = f"this form {run.times} times: blocks {number} to {last}, up to “{run.last}”"
        parts.append(_text(MARGIN + 2, top + 12, words, colour=DARK, bold=True))
    return "".join(parts), y - top


def _height(sub: Sublayer) -> float:
    return HEAD + sum(ROW + WRAPPED * (len(_wrapped(line.text)) - 1) for line in sub.lines) + 4


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(text, LETTERS, break_long_words=True)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: LETTERS - 2]} …"]
    return lines


def _sublayer(sub: Sublayer, tracks: Tracks, y: float, height: float) -> str:
    colour = COLOUR[sub.kind]
    parts = [
        f'<rect x="{MARGIN + 1}" y="{y:.1f}" width="{tracks.right - MARGIN - 2:.1f}" height="{height:.1f}" '
        f'fill="{colour}" fill-opacity=".05"/><rect x="{MARGIN + 1}" y="{y:.1f}" width="4" height="{height:.1f}" '
        f'fill="{colour}"/>',
        f'<text x="{MARGIN + PAD + 2}" y="{y + 14:.1f}"><tspan fill="{colour}" font-weight="bold">{KIND[sub.kind]}'
        f'</tspan><tspan fill="{DARK}" dx="6">{escape(sub.name)}</tspan></text>',
    ]
    y += HEAD
    for line in sub.lines:
        lines = _wrapped(line.text)
        full = f"<title>{escape(line.text)}</title>"
        spans = "".join(
            f'<tspan x="{MARGIN + PAD + 10}" dy="{WRAPPED if n else 0}">{escape(part)}</tspan>'
            for n, part in enumerate(lines)
        )
        parts.append(f'<text y="{y + 12:.1f}" fill="black">{full}{spans}</text>')
        parts.append("".join(_marks(line.reads, line.writes, tracks, y + 8, colour)))
        y += ROW + WRAPPED * (len(lines) - 1)
    return "".join(parts)


def _marks(reads: Sequence[str], writes: Sequence[str], tracks: Tracks, y: float, colour: str) -> Iterator[str]:
    """Rings where lanes are read, dots where they are written, and a line that joins them."""
    written = dict.fromkeys(tracks.places[name] for name in writes)
    read = dict.fromkeys(tracks.places[name] for name in reads)
    ends = [*written, *read]
    yield f'<path d="M{min(ends):.1f} {y:.1f}H{max(ends):.1f}" stroke="{colour}" stroke-opacity=".45"/>'
    for x in read:
        radius = 6 if x in written else 4.2
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="white" stroke="{colour}" stroke-width="1.5"/>'
    for x in written:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3.4 if x in read else 4.8}" fill="{colour}"/>'


def _legend(program: Program, found: Outline, y: float) -> str:
    """The meaning of the marks, the words and the signs, and the place of the prediction."""
    texts = [line.text for s in found.sections for r in s.runs for b in r.blocks for sub in b for line in sub.lines]
    sign = MINUS if program.sign < 0 else ""
    words = [
        f"A lane is a named tensor that every token carries. The prediction is {sign}{program.prediction} on the "
        "query tokens, at the end.",
        "A block is attention and the MLP after it. All lines of a layer read the lanes before it, then all add.",
        "    ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items() if any(sign in text for text in texts)),
    ]
    ring = f'<circle cx="{MARGIN + 6}" cy="{y + 4}" r="4.2" fill="white" stroke="{DARK}" stroke-width="1.5"/>'
    dot = f'<circle cx="{MARGIN + 92}" cy="{y + 4}" r="4.8" fill="{DARK}"/>'
    marks = ring + _text(MARGIN + 16, y + 8, "lane read") + dot + _text(MARGIN + 102, y + 8, "lane written")
    return marks + "".join(_text(MARGIN, y + 28 + 17 * n, line) for n, line in enumerate(words))


def _box(
    x: float, y: float, width: float, height: float, colour: str, opacity: str, line: float, *, fill: bool = True
) -> str:
    paint = colour if fill else "none"
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" fill="{paint}" '
        f'stroke="{colour}" stroke-opacity="{opacity}" stroke-width="{line}"/>'
    )


def _text(
    x: float, y: float, words: str, *, size: int = 11, bold: bool = False, colour: str = DARK, end: bool = False
) -> str:
    style = (' font-weight="bold"' if bold else "") + (' text-anchor="end"' if end else "")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{style} xml:space="preserve">'
        f"{escape(words)}</text>"
    )
