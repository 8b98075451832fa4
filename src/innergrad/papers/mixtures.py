"""Fig. 1 (ReLU attention) and 2 (softmax) of *Transformers are Deep Optimizers*: inputs that training has not seen.

Judged by these rules, each for every depth of the networks:

- in distribution, from 40 % of the longest prompt of training to all of it (20 to 50 examples), pooled R^2 is at least
  that of networks trained on the prompt, at their best epoch, less 0.01;
- at the longest prompt of training, pooled R^2 falls with every step away from the distribution of training, and from
  the first to the last by more than seeds differ (their intervals do not meet);
- with prompts longer than those of training, the first rule holds, too;
- softmax: with the longest prompts, pooled R^2 is lower than with the longest of training (the paper sees that).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

from innergrad.papers import views
from innergrad.papers.deep_optimizers import RELU, SOFTMAX, Sizes
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.views import BEST, ERROR, LEARNER, LOSS, POOLED, WITHIN, at, pick

PAPER = "Transformers are Deep Optimizers"


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Learners on networks of their own depth, inputs of every mixture, and what is beside them."""

    def ours(record: Record) -> bool:
        test = record["test"]
        own = test["weight_mean"] == 0.0 and test["labels"] == "raw" and test["width"] == sizes.width
        return own and test["layers"] in sizes.layers and record.get("layers", test["layers"]) == test["layers"]

    return views.rows_of(record for record in records if ours(record))


def window(sizes: Sizes) -> tuple[int, int]:
    """The lengths that are judged: from 40 % of the longest prompt of training to all of it."""
    return round(0.4 * (sizes.n_points - 1)), sizes.n_points - 1


def of(rows: Sequence[Record], by: str, layers: int, w1: float = 1.0) -> Record | None:
    return pick(rows, by, {"layers": layers, "w1": w1})


def matches(sizes: Sizes, rows: Sequence[Record], low: int, high: int, where: str) -> Finding:
    """Whether learners are as good as networks trained on the prompt, at lengths from low to high."""
    claim = f"{where}, learning in context matches training on the prompt"
    gaps = {}
    for layers in sizes.layers:
        mine, theirs = of(rows, LEARNER, layers), of(rows, BEST, layers)
        if mine is None or theirs is None or not (ks := views.shared(mine, theirs, low, high)):
            return Finding(claim, None, f"networks of {layers} layers trained on the prompt are not measured yet")
        gaps[layers] = views.least(mine, theirs, POOLED, ks, lambda a, b: a - b)
    held = [layers for layers, gap in gaps.items() if gap is not None and gap[0] >= -LOSS]
    told = ", ".join(f"{layers} layers {gap[0]:+.3f} at k = {gap[1]}" for layers, gap in gaps.items() if gap)
    words = f"{where}, pooled R² less that of networks trained on the prompt (best epoch) is at least: {told}"
    return Finding(claim, len(held) == len(gaps), words)


def declines(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    """Means fall from mixture to mixture; from the first to the last, by more than seeds differ."""
    claim, k = "performance declines as the inputs diverge from those of training", sizes.n_points - 1
    told, held = [], True
    for layers in sizes.layers:
        found = [of(rows, LEARNER, layers, w1) for w1 in sizes.w1]
        values = [at(row, POOLED, k) for row in found if row is not None]
        known = [value for value in values if value is not None]
        if len(known) < len(sizes.w1):
            return Finding(claim, None, "not all mixtures are measured yet")
        first, last = (row for row in (found[0], found[-1]) if row is not None)
        low, high = first[POOLED]["low"][first["k"].index(k)], last[POOLED]["high"][last["k"].index(k)]
        held = held and all(b < a for a, b in pairwise(known)) and (low is None or high is None or high < low)
        told.append(f"{layers} layers " + ", ".join(f"{value:.3f}" for value in known))
    weights = ", ".join(f"{w1:g}" for w1 in sizes.w1)
    return Finding(claim, held, f"pooled R² at k = {k} for w1 = {weights}: " + "; ".join(told))


def past(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    claim, ends = "performance decreases past the longest prompt of training", (sizes.n_points - 1, sizes.asked - 1)
    told, held = [], True
    for layers in sizes.layers:
        row = of(rows, LEARNER, layers)
        first, last = (None if row is None else at(row, POOLED, k) for k in ends)
        if first is None or last is None:
            return Finding(claim, None, "longer prompts are not measured yet")
        held = held and last < first
        told.append(f"{layers} layers {first:.3f} and {last:.3f}")
    return Finding(claim, held, f"pooled R² at k = {ends[0]} and k = {ends[1]}: " + ", ".join(told))


def judge(attention: str, sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    low, high = window(sizes)
    found = [matches(sizes, rows, low, high, "in distribution"), declines(sizes, rows)]
    found.append(matches(sizes, rows, high + 1, sizes.asked - 1, "past the longest prompt of training"))
    return [*found, past(sizes, rows)] if attention == "softmax" else found


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """The largest error over that of the posterior at the lengths that are judged, by depth; and R^2 at their end."""
    found: Record = {"error over posterior": {}, POOLED: {}, WITHIN: {}}
    for layers in sizes.layers:
        mine, posterior = of(rows, LEARNER, layers), of(rows, "NNGP", layers)
        if mine is None:
            continue
        for measure in (POOLED, WITHIN):
            place = mine["k"].index(sizes.n_points - 1)
            found[measure][str(layers)] = [mine[measure][column][place] for column in views.COLUMNS]
        if posterior is not None:
            ks = views.shared(mine, posterior, *window(sizes))
            worst = views.least(mine, posterior, ERROR, ks, lambda a, b: -a / b)
            found["error over posterior"][str(layers)] = None if worst is None else float(f"{-worst[0]:.4g}")
    return found


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A column a depth; pooled R^2 above, within-prompt R^2 below. Shaded, and bars of learners under shift: 95 %
    intervals, of learners over seeds.
    """
    every, most = max(1, sizes.asked // 5), sizes.asked
    with views.panels(2, len(sizes.layers), title, save) as axes:
        for place, (measure, layers) in enumerate((m, n) for m in (POOLED, WITHIN) for n in sizes.layers):
            ax = axes[place]
            views.draw_beside(ax, rows, {"layers": layers, "w1": 1.0}, measure)
            for number, (w1, colour) in enumerate(zip(sizes.w1, views.SHIFTS, strict=False)):
                bars = () if w1 == 1.0 else range(number * every // 4 + every // 2, most, every)  # side by side
                row = of(rows, LEARNER, layers, w1)
                if row is not None:
                    label = f"learner, w₁ = {w1:g}" + (" (training)" if w1 == 1.0 else "")
                    views.draw_row(ax, row, measure, label, bars=bars, color=colour, lw=2.0, zorder=3)
            views.frame(ax, measure, sizes.n_points - 1, f"{layers}-layer networks" if measure == POOLED else "")


def figure(number: str, attention: str, study: Study) -> Figure:
    title = f"{PAPER}, Fig. {number}: {attention} attention, inputs w₁ N(−2, I) + (1 − w₁) N(2, I)"
    name = f"mixtures-{attention}"
    return Figure(name, PAPER, f"Fig. {number}", title, study, rows, partial(judge, attention), numbers, draw)


FIGURES = (figure("1", "relu", RELU), figure("2", "softmax", SOFTMAX))
