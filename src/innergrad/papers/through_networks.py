"""Theorems 3 and 4 of *Transformers Perform In-Context Learning through Neural Networks*, asked about learning.

The paper has no experiments. It says: a network can approximate the function, and a transformer can train the network,
so a transformer can learn the function. The network is the bridge. Indicators of balls need few units with 3 layers,
and exponentially many in the number of inputs with 2 (Theorem 3). Smooth functions are the easier for deep networks,
the smoother they are and the fewer inputs they have (Theorem 4). These are statements about approximation. Here they
are taken at their word for learning, so that they can turn out wrong. *More*, *less* and *lower* are so by more than
the interval of the difference. A claim of them is refuted if one of its comparisons is the other way round by that
much; if none is, it is not resolved.

Judged by these rules. k is the longest prompt of the learners, K the longest of all. Errors are squared errors, means
over prompts and seeds. Those of networks are at the epoch that is best for all prompts together, an oracle.

Balls (Theorem 3):

- with prompts of K examples, networks of 3 layers err less than those of 2, for every dimension;
- the error of 2 layers over that of 3 layers, at K, is more for more inputs, for every two dimensions;
- at k, the learner's error is at most that of networks of 3 layers trained on the prompt, for every dimension;
- at k, no other predictor is nearer to the learner than networks of 3 layers, for every dimension.

Smooth functions (Theorem 4):

- at k, the learner's error is lower for smoother functions, and for functions of fewer inputs, the other one fixed;
- the same holds for the deepest networks;
- the error of 2 layers over that of the deepest, at K, is more for smoother functions, and for fewer inputs;
- at k, the learner's error is at most that of the deepest networks trained on the prompt;
- at k, the predictor that is nearest to the learner is a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Any

from innergrad.figures import BLUE, DARK, GREEN, GREY, ORANGE, SKY
from innergrad.papers import views
from innergrad.papers.bridges import (
    BRIDGES,
    LIFTED,
    MEAN,
    POSTERIOR,
    RIDGE,
    TO,
    Functions,
    Sizes,
    balls,
    network,
    smooth,
)
from innergrad.papers.frame import Figure, Finding, Record, Save
from innergrad.papers.views import ERROR, LEARNER, at, pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "Transformers Perform In-Context Learning through Neural Networks"
SHALLOW, THREE = 2, 3  # layers
Families = Callable[[Sizes], list[Functions]]
Values = Mapping[Functions, float]


def rows(kind: str, sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    del sizes
    return views.rows_of(record for record in records if record["test"]["kind"] == kind)


@dataclass(frozen=True)
class Table:
    """The rows of one figure, to be asked for numbers. A number that is not there yet is missing, or NaN."""

    sizes: Sizes
    rows: Sequence[Record]
    families: Sequence[Functions]

    @property
    def k(self) -> int:
        return self.sizes.n_points - 1

    @property
    def longest(self) -> int:
        return max(self.sizes.long_ks)

    def errors(self, by: str, k: int) -> dict[Functions, float]:
        """The error of a predictor with k examples, by family."""
        found = {one: pick(self.rows, by, vars(one)) for one in self.families}
        values = {one: None if row is None else at(row, ERROR, k) for one, row in found.items()}
        return {one: float("nan") if value is None else value for one, value in values.items()}

    def halves(self, by: str, k: int) -> dict[Functions, float]:
        """Half the interval of the error, by family; 0 where there is none."""
        found = {one: pick(self.rows, by, vars(one)) for one in self.families}
        known = {one: row for one, row in found.items() if row is not None and at(row, ERROR, k) is not None}
        return {one: views.spread(known[one], ERROR, k)[1] if one in known else 0.0 for one in self.families}

    def networks(self, layers: int, k: int) -> dict[Functions, float]:
        return self.errors(network(layers, "pooled"), k)

    def gains(self, layers: int) -> dict[Functions, float]:
        """The error of networks of 2 layers over that of deeper ones, with the longest prompts."""
        shallow, deep = (self.networks(each, self.longest) for each in (SHALLOW, layers))
        return {one: shallow[one] / (deep[one] or float("nan")) for one in self.families}

    def gain_halves(self, layers: int) -> dict[Functions, float]:
        """Half the intervals of ``gains``, as if both errors were independent."""
        parts = []
        for each in (SHALLOW, layers):
            values = self.networks(each, self.longest)
            halves = self.halves(network(each, "pooled"), self.longest)
            parts.append({one: halves[one] / (values[one] or float("nan")) for one in self.families})
        return {one: gain * math.hypot(*(part[one] for part in parts)) for one, gain in self.gains(layers).items()}

    def distances(self, one: Functions) -> dict[str, float]:
        """From the learner to every predictor, networks at their best epoch, with k examples."""
        names = MEAN, RIDGE, LIFTED, POSTERIOR, *(network(layers, "pooled") for layers in self.sizes.layers)
        found = {name: self.errors(TO + name, self.k)[one] for name in names}
        return {name: value for name, value in found.items() if value == value}


# -------------------------------------------------------------------------------------------------------------- judging


Pairs = Sequence[tuple[views.Interval, views.Interval]]  # of numbers, the first of which should be less


def ordered(pairs: Pairs) -> bool | None:
    """Whether the first of every two is less, by more than the interval of the difference; None if this cannot be told:
    no first one is more by as much.
    """
    if all(views.larger(*pair) for pair in pairs):
        return True
    return False if any(views.larger(b, a) for a, b in pairs) else None


def judged(
    claim: str, what: str, values: Sequence[Values], holds: bool | None, halves: Sequence[Values] = ()
) -> Finding:
    """A finding about numbers of every family, which are told, with their intervals; open where one is not there.
    ``holds``: None if that is not resolved.
    """
    if any(value != value for each in values for value in each.values()):
        return Finding(claim, None, f"{what}: not measured yet")
    both = [(each, half or dict.fromkeys(each, 0.0)) for each, half in zip_longest(values, halves)]
    told = [
        f"{one.words} " + " and ".join(views.said((each[one], half[one])) for each, half in both) for one in values[0]
    ]
    return Finding(claim, bool(holds), f"{what}: " + "; ".join(told), unclear=holds is None)


def as_good(table: Table, layers: int) -> Finding:
    mine, theirs = table.errors(LEARNER, table.k), table.networks(layers, table.k)
    claim = "what networks can learn from the prompt, a transformer can learn in context"
    what = f"errors of the learner and of {layers}-layer networks trained on the prompt, k = {table.k}"
    halves = [table.halves(by, table.k) for by in (LEARNER, network(layers, "pooled"))]
    return judged(claim, what, [mine, theirs], all(mine[one] <= theirs[one] for one in mine), halves)


def nearest(table: Table, claim: str, wanted: str) -> Finding:
    """Whether the name of the nearest predictor begins so, for every family."""
    found = {one: table.distances(one) for one in table.families}
    if not all(found.values()):
        return Finding(claim, None, "distances to the learner: not measured yet")
    first = {one: min(each, key=lambda name: each[name]) for one, each in found.items()}
    far = {one: (found[one][name], table.halves(TO + name, table.k)[one]) for one, name in first.items()}
    told = [f"{one.words} {name.partition(',')[0]} ({views.said(far[one])})" for one, name in first.items()]
    words = f"nearest to the learner with k = {table.k}, mean squared difference: " + "; ".join(told)
    return Finding(claim, all(name.startswith(wanted) for name in first.values()), words)


def eased(values: Values, halves: Values) -> bool | None:
    """Whether values are lower for smoother functions, and for fewer inputs, the other one fixed."""
    pairs = [(one, other) for one in values for other in values]
    smoother = [(a, b) for a, b in pairs if a.inputs == b.inputs and a.smoothness > b.smoothness]
    fewer = [(a, b) for a, b in pairs if a.smoothness == b.smoothness and a.inputs < b.inputs]
    return ordered([((values[a], halves[a]), (values[b], halves[b])) for a, b in smoother + fewer])


def judge_balls(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    table = Table(sizes, rows, balls(sizes))
    two, three = (table.networks(layers, table.longest) for layers in (SHALLOW, THREE))
    halves = [table.halves(network(layers, "pooled"), table.longest) for layers in (SHALLOW, THREE)]
    gains, gain_halves = table.gains(THREE), table.gain_halves(THREE)
    each = [(gains[one], gain_halves[one]) for one in gains]
    return [
        judged(
            "networks of 3 layers learn balls better than those of 2",
            f"errors of networks of 2 and of 3 layers trained on {table.longest} examples",
            [two, three],
            ordered([((three[one], halves[1][one]), (two[one], halves[0][one])) for one in two]),
            halves,
        ),
        judged(
            "the more inputs, the more a third layer gains",
            f"error of 2 layers over that of 3, {table.longest} examples",
            [gains],
            ordered(list(combinations(each, 2))),
            [gain_halves],
        ),
        as_good(table, THREE),
        nearest(table, "a learner predicts as a network of 3 layers that was trained on the prompt", three_layers()),
    ]


def three_layers() -> str:
    return network(THREE, "pooled").partition(",")[0]


def judge_smooth(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    table, deep = Table(sizes, rows, smooth(sizes)), sizes.layers[-1]
    mine, theirs, gains = table.errors(LEARNER, table.k), table.networks(deep, table.k), table.gains(deep)
    mine_halves, their_halves = table.halves(LEARNER, table.k), table.halves(network(deep, "pooled"), table.k)
    gain_halves = table.gain_halves(deep)
    easier = "the smoother a function and the fewer its inputs, the easier"
    return [
        judged(
            f"{easier} to learn in context",
            f"error of the learner, k = {table.k}",
            [mine],
            eased(mine, mine_halves),
            [mine_halves],
        ),
        judged(
            f"{easier} for a deep network",
            f"error of {deep}-layer networks, k = {table.k}",
            [theirs],
            eased(theirs, their_halves),
            [their_halves],
        ),
        judged(
            "the smoother a function and the fewer its inputs, the more depth gains",
            f"error of 2 layers over that of {deep}, {table.longest} examples",
            [gains],
            eased({one: -gain for one, gain in gains.items()}, gain_halves),
            [gain_halves],
        ),
        as_good(table, deep),
        nearest(table, "a learner predicts as a network that was trained on the prompt", "networks of"),
    ]


def numbers(families: Families, sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Distances from the learner at k, by family; and the share of errors in common, 1 - distance / (sum of both
    errors): 0 if the errors of both are independent, 1 if they are the same.
    """
    table, found = Table(sizes, rows, families(sizes)), {}
    mine = table.errors(LEARNER, table.k)
    for one in table.families:
        distances = table.distances(one)
        both = {name: mine[one] + table.errors(name, table.k)[one] for name in distances}
        common = {name: round(1 - distances[name] / total, 4) for name, total in both.items() if total}
        found[one.words] = {"distance": distances, "errors in common": common}
    return found


# -------------------------------------------------------------------------------------------------------------- drawing


def styles(sizes: Sizes) -> dict[str, tuple[str, dict[str, Any]]]:
    """Label and style of every predictor."""
    found: dict[str, tuple[str, dict[str, Any]]] = {
        MEAN: ("mean of the labels", {"color": GREY, "lw": 1.2}),
        RIDGE: ("ridge (λ by leave-one-out)", {"color": GREY, "lw": 1.2, "ls": "--"}),
        LIFTED: ("ridge on x and |x|²", {"color": DARK, "lw": 1.4, "ls": ":"}),
        POSTERIOR: ("posterior", {"color": DARK, "lw": 1.8, "ls": ":", "zorder": 4}),
    }
    for layers, colour, marker in zip(sizes.layers, (SKY, BLUE, GREEN), "v^o", strict=False):
        style = {"color": colour, "lw": 1.4, "marker": marker, "ms": 5}
        found[network(layers, "pooled")] = f"{layers}-layer network trained on\nthe prompt, best epoch (oracle)", style
    return found


def draw(families: Families, sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A column a family. Above: errors; below: distances from the learner. Shaded: 95 % intervals."""
    columns = families(sizes)
    with views.panels(2, len(columns), title, save, share_y="row") as axes:
        for above, below, one in zip(axes, axes[len(columns) :], columns, strict=False):
            draw_row(above, rows, LEARNER, one, "learner", {"color": ORANGE, "lw": 2.2, "zorder": 3})
            for name, (label, style) in styles(sizes).items():
                draw_row(above, rows, name, one, label, style)
                draw_row(below, rows, TO + name, one, label, style)
            lengths(above, (*sizes.ks, *sizes.long_ks))
            lengths(below, sizes.ks)
            above.axvline(sizes.n_points - 1, color=GREY, lw=0.8, ls=(0, (4, 3)))
            above.set(title=one.words, ylabel="squared error / mean square")
            below.set(ylabel="squared distance to learner")
        axes[0].set_ylim(0, 1.1 * top(rows, min(sizes.ks)))
        axes[-1].set_ylim(bottom=0)


def top(rows: Sequence[Record], least: int) -> float:
    """The largest value from ``least`` examples on, less those of ridge regression: from as many examples as inputs it
    may be far above.
    """
    curves = [zip(row["k"], row[ERROR]["value"], strict=True) for row in rows if RIDGE not in row["by"]]
    return float(max(value for curve in curves for k, value in curve if k >= least and value is not None))


def draw_row(ax: Axes, rows: Sequence[Record], by: str, one: Functions, label: str, style: dict[str, Any]) -> None:
    row = pick(rows, by, vars(one))
    if row is not None:
        views.draw_row(ax, row, ERROR, label, **style)


def lengths(ax: Axes, ks: Sequence[int]) -> None:
    """An axis of the number of examples, from the least to the most of ``ks``, in powers of two."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(ks) / 1.1, max(ks) * 1.1)
    ticks = [k for k in ks if k not in (30, 40)]  # too near to their neighbours
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.set(xlabel="examples in the prompt")


FIGURES = tuple(
    Figure(
        name,
        PAPER,
        number,
        f"{PAPER}, {number}: {subject}",
        BRIDGES,
        partial(rows, kind),
        judge,
        partial(numbers, families),
        partial(draw, families),
        (name, "networks"),
        lambda rows: "the paper’s statements are about approximation",
    )
    for name, number, subject, kind, families, judge in (
        ("balls", "Theorem 3", "indicators of balls", "ball", balls, judge_balls),
        ("smooth", "Theorem 4", "smooth functions", "smooth", smooth, judge_smooth),
    )
)
