"""Fig. 1 (ReLU attention) and 2 (softmax) of *Transformers are Deep Optimizers*: inputs that training has not seen.

Judged by these rules, each for every depth of the networks:

- in distribution, from 40 % of the longest prompt of training to all of it (20 to 50 examples), pooled R^2 is nowhere
  lower than that of networks trained on the prompt, at their best epoch, by more than 0.01 and by more than the 95 %
  interval of the difference (that of learners is over seeds, that of networks over prompts);
- there, the squared error is at most 1.05 times that of the posterior (NNGP). The paper does not say so: it is our bar;
- at the longest prompt of training, pooled R^2 falls with every step away from the distribution of training, and from
  the first to the last by more than seeds differ (their intervals do not meet);
- there, under every shift, networks trained on the prompt are ahead by more than 0.01 and the interval: it is learners
  that decline, the functions are no harder. The paper does not ask: the rule is ours;
- with prompts longer than those of training, the first rule holds, too;
- softmax: with the longest prompts, pooled R^2 is lower than with the longest of training, by more than the interval
  (the paper sees that).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from innergrad.papers import views
from innergrad.papers.deep_optimizers import RELU, SOFTMAX, Sizes
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.views import BEST, ERROR, LEARNER, LOSS, POOLED, WITHIN, at, pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "Transformers are Deep Optimizers"
NEAR = 1.05  # times the error of the posterior


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
    told, failed, gaps = list[str](), list[str](), dict[str, float]()
    for layers in sizes.layers:
        mine, theirs = of(rows, LEARNER, layers), of(rows, BEST, layers)
        if mine is None or theirs is None or not (ks := views.shared(mine, theirs, low, high)):
            return Finding(claim, None, f"networks of {layers} layers trained on the prompt are not measured yet")
        gap = views.least(mine, theirs, POOLED, ks, lambda a, b: a - b)
        if gap is None:
            return Finding(claim, False, f"{where}, R² is not defined at every length for {layers} layers")
        value, half = views.between(*(views.spread(row, POOLED, gap[1]) for row in (theirs, mine)))
        told.append(f"{layers} layers {value:+.3f} ± {half:.3f} at k = {gap[1]}")
        gaps[f"pooled R² differs by {value:+.3f} ± {half:.3f} at worst ({layers} layers, k = {gap[1]})"] = value
        lost = views.behind(mine, theirs, POOLED, ks)
        failed += [f"{layers} layers at {len(lost)} of {len(ks)} lengths"] if lost else []
    words = (
        f"{where}, pooled R² less that of networks trained on the prompt (best epoch) is at least: {', '.join(told)}"
    )
    lower = f"lower by more than {LOSS:g} and the interval: {', '.join(failed) or 'none'}"
    brief = f"pooled R² is {lower}" if failed else min(gaps, key=lambda said: gaps[said])
    return Finding(claim, not failed, f"{words}; {lower}", brief=brief)


def near_posterior(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    """Whether the error is near that of the best predictor. Both are measured on the same prompts, and the posterior
    has no seed: the interval of the ratio is that of learners.
    """
    claim, told, held = f"in distribution, the error is at most {NEAR:g} times the posterior's", {}, True
    for layers in sizes.layers:
        mine, posterior = of(rows, LEARNER, layers), of(rows, "NNGP", layers)
        found = None if mine is None or posterior is None else over_posterior(sizes, mine, posterior)
        if mine is None or posterior is None or found is None:
            return Finding(claim, None, f"the posterior of {layers} layers is not measured yet", ours=True)
        ratio, k = found
        half = views.spread(mine, ERROR, k)[1] / (at(posterior, ERROR, k) or math.nan)
        told[f"{layers} layers {ratio:.3f} ± {half:.3f} at k = {k}"] = ratio
        held = held and ratio <= NEAR
    words, brief = ", ".join(told), max(told, key=lambda said: told[said])
    words = f"error over that of the posterior (NNGP), at most: {words}"
    return Finding(claim, held, words, brief=brief, ours=True)


def over_posterior(sizes: Sizes, mine: Record, posterior: Record) -> tuple[float, int] | None:
    """The largest ratio of errors at the lengths that are judged, and where."""
    ks = views.shared(mine, posterior, *window(sizes))
    worst = views.least(mine, posterior, ERROR, ks, lambda a, b: -a / b)
    return None if worst is None else (-worst[0], worst[1])


def declines(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    """Means fall from mixture to mixture; from the first to the last, by more than seeds differ."""
    claim, k = "performance declines as the inputs diverge from those of training", sizes.n_points - 1
    told, falls, held = [], dict[str, float](), True
    for layers in sizes.layers:
        found = [of(rows, LEARNER, layers, w1) for w1 in sizes.w1]
        values = [at(row, POOLED, k) for row in found if row is not None]
        known = [value for value in values if value is not None]
        if len(known) < len(sizes.w1):
            return Finding(claim, None, "not all mixtures are measured yet")
        each = [views.spread(row, POOLED, k) for row in found if row is not None]
        (first, near), (last, far) = each[0], each[-1]
        held = held and all(b < a for a, b in pairwise(known)) and last + far < first - near
        falls[f"{layers} layers: {views.said(each[0])} to {views.said(each[-1])}"] = first - last
        told.append(f"{layers} layers " + ", ".join(map(views.said, each)))
    weights = ", ".join(f"{w1:g}" for w1 in sizes.w1)
    brief = f"pooled R² of {min(falls, key=lambda said: falls[said])}"
    return Finding(claim, held, f"pooled R² at k = {k} for w1 = {weights}: " + "; ".join(told), brief=brief)


def left_behind(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    """Whether networks trained on the prompt are ahead of learners under every shift."""
    claim, k = "under shift, training on the prompt is ahead: it is learners that decline", sizes.n_points - 1
    told, ahead, shifts = list[str](), list[bool](), [w1 for w1 in sizes.w1 if w1 != 1.0]
    for layers in sizes.layers:
        pairs = [(of(rows, LEARNER, layers, w1), of(rows, BEST, layers, w1)) for w1 in shifts]
        known = [(a, b) for a, b in pairs if a and b and at(a, POOLED, k) is not None and at(b, POOLED, k) is not None]
        if len(known) < len(shifts):
            words = "networks trained on the prompt are not measured yet under every shift"
            return Finding(claim, None, words, ours=True)
        ahead += [bool(views.behind(mine, theirs, POOLED, [k])) for mine, theirs in known]
        told.append(f"{layers} layers " + ", ".join(views.said(views.spread(theirs, POOLED, k)) for _, theirs in known))
    weights = ", ".join(f"{w1:g}" for w1 in shifts)
    words = (
        f"pooled R² of networks trained on the prompt at k = {k} for w1 = {weights}: {'; '.join(told)}; learners are "
    )
    cases = f"behind by more than {LOSS:g} and the interval in {sum(ahead)} of {len(ahead)} cases"
    return Finding(claim, all(ahead), words + cases, brief=cases, ours=True)


def past(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    claim, ends = "performance decreases past the longest prompt of training", (sizes.n_points - 1, sizes.asked - 1)
    told, held = [], True
    for layers in sizes.layers:
        row = of(rows, LEARNER, layers)
        if row is None or any(at(row, POOLED, k) is None for k in ends):
            return Finding(claim, None, "longer prompts are not measured yet")
        first, last = (views.spread(row, POOLED, k) for k in ends)
        held = held and views.larger(last, first)
        told.append(f"{layers} layers {views.said(first)} and {views.said(last)}")
    return Finding(claim, held, f"pooled R² at k = {ends[0]} and k = {ends[1]}: " + ", ".join(told))


def judge(attention: str, sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    low, high = window(sizes)
    found = [matches(sizes, rows, low, high, "in distribution"), near_posterior(sizes, rows)]
    found += [declines(sizes, rows), left_behind(sizes, rows)]
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
            worst = over_posterior(sizes, mine, posterior)
            found["error over posterior"][str(layers)] = None if worst is None else float(f"{worst[0]:.4g}")
    return found


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A column a depth. Above: pooled R^2 in distribution; in the middle: under shift; below: within-prompt R^2 in
    distribution. Shaded, and bars of learners under shift: 95 % intervals, of learners over seeds.
    """
    with views.panels(3, len(sizes.layers), title, save, share_y="row") as axes:
        for place, layers in enumerate(sizes.layers):
            above, middle, below = axes[place :: len(sizes.layers)]
            for ax, measure in ((above, POOLED), (below, WITHIN)):
                views.draw_beside(ax, rows, {"layers": layers, "w1": 1.0}, measure)
                row = of(rows, LEARNER, layers)
                views.frame(ax, measure, sizes.n_points - 1, f"{layers}-layer networks, in distribution")
                if measure == POOLED:
                    ax.set_ylim(0.7, 1.0)
                if row is not None:
                    label, colour = "learner, w₁ = 1 (training)", views.SHIFTS[0]
                    views.draw_row(ax, row, measure, label, color=colour, lw=4.0, alpha=0.55, zorder=3)
                    views.tell_cut(ax, row, measure, window(sizes)[0], colour, (0.55, 0.2))
            draw_shifts(middle, sizes, rows, layers)
            views.frame(middle, POOLED, sizes.n_points - 1, f"{layers}-layer networks, under shift")
            middle.set_ylabel("pooled R² (long bars are cut)")


def draw_shifts(ax: Axes, sizes: Sizes, rows: Sequence[Record], layers: int) -> None:
    """Learners under every shift, as lines, and networks trained on the prompt in the same colours, as circles."""
    every, most = max(1, sizes.asked // 5), sizes.asked
    for number, (w1, colour) in enumerate(zip(sizes.w1, views.SHIFTS, strict=False)):
        mine, theirs = of(rows, LEARNER, layers, w1), of(rows, BEST, layers, w1)
        if w1 == 1.0:
            continue
        if theirs is not None:
            style: dict[str, Any] = {"color": colour, "lw": 0, "marker": "o", "ms": 5, "mfc": "none", "mew": 1.4}
            views.draw_row(ax, theirs, POOLED, f"network, best epoch, w₁ = {w1:g}", **style)
        if mine is not None:
            bars = range(number * every // 4 + every // 2, most, every)  # side by side
            views.draw_row(ax, mine, POOLED, f"learner, w₁ = {w1:g}", bars=bars, color=colour, lw=2.0, zorder=3)


def figure(number: str, attention: str, study: Study) -> Figure:
    title = f"{PAPER}, Fig. {number}: {attention} attention, inputs w₁ N(−2, I) + (1 − w₁) N(2, I)"
    name = f"mixtures-{attention}"
    return Figure(name, PAPER, f"Fig. {number}", title, study, rows, partial(judge, attention), numbers, draw)


FIGURES = (figure("1", "relu", RELU), figure("2", "softmax", SOFTMAX))
