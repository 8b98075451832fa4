"""Fig. 3 (ReLU attention) and Fig. 4 (softmax) of *Transformers are Deep Optimizers*: weights of another mean.

Learners of 4-layer networks with weights N(0, 1) are asked about weights N(-0.5, 1) and N(0.5, 1). On inputs N(-2, I)
every network of the former is dead: its labels are all zero, and R^2 is not defined. The latter has labels more than
ten times larger than those of training. So labels are shown raw, and rescaled prompt by prompt to the size they had in
training. The paper does not say which R^2 its figures show.

Judged by this rule, for each mean but that of training, labels raw, and again rescaled: at no length, from 40 % of the
longest prompt of training to all of it, is pooled R^2 lower than that of networks trained on the prompt (best epoch) by
more than 0.01 and by more than the 95 % interval of the difference. That of learners is over seeds, that of networks
over prompts. Where all labels are zero, R^2 is not defined, and the claim cannot be tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from innergrad.figures import ORANGE
from innergrad.papers import views
from innergrad.papers.deep_optimizers import RELU, SOFTMAX, Sizes
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.mixtures import PAPER, window
from innergrad.papers.views import BEST, ERROR, LEARNER, LOSS, POOLED, at, pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = ("raw", "rescaled")
CONSTANT, STRANGE = "the same label", "not finite"  # why R^2 is not defined, in the words of lab.metrics


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Learners of one depth on networks of that depth, with weights of every mean, and what is beside them."""

    def ours(record: Record) -> bool:
        test = record["test"]
        depths = {test["layers"], record.get("layers", test["layers"])}
        return test["w1"] == 1.0 and test["width"] == sizes.width and depths == {sizes.shifted_layers}

    return views.rows_of(record for record in records if ours(record))


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    return [judged(sizes, rows, mean, labels) for mean in sizes.weight_means for labels in LABELS]


def judged(sizes: Sizes, rows: Sequence[Record], mean: float, labels: str) -> Finding:
    where = f"weights N({mean:g}, 1), labels {labels}"
    claim, test = f"{where}: learning in context matches training on the prompt", about(mean, labels)
    mine, theirs = pick(rows, LEARNER, test), pick(rows, BEST, test)
    if mine is None:
        return Finding(claim, None, f"{where}: not measured yet")
    if dead(mine):
        words = f"{where}: R² is not defined, since {mine['undefined'][POOLED]}; {nearly(sizes, mine)}"
        return Finding(claim, None, words, testable=False)
    if theirs is None or not (ks := views.shared(mine, theirs, *window(sizes))):
        return Finding(claim, None, f"{where}: networks trained on the prompt are not measured yet")
    if any(at(row, POOLED, k) is None for row in (mine, theirs) for k in ks):
        return Finding(claim, False, f"{where}: R² is not defined at every length")
    lost = views.behind(mine, theirs, POOLED, ks)
    words = f"{where}: pooled R² of learners and of networks trained on the prompt {beside(mine, theirs, ks)}"
    words += f"; lower by more than {LOSS:g} and the interval at {len(lost)} of {len(ks)} lengths"
    brief = f"pooled R² of learners and of networks {beside(mine, theirs, ks[-1:])}"
    return Finding(claim, not lost, words, brief=brief)


def dead(row: Record) -> bool:
    """Whether R^2 is not defined because of the labels alone, whatever is predicted."""
    reason = row.get("undefined", {}).get(POOLED, "")
    undefined = all(value is None for value in row[POOLED]["value"])
    return undefined and CONSTANT in reason and STRANGE not in reason


def nearly(sizes: Sizes, row: Record) -> str:
    """How far predictions are from labels that are all zero."""
    error = at(row, ERROR, sizes.n_points - 1)
    return f"the squared error is {error or 0:.0e} of the mean square of labels in training"


def beside(mine: Record, theirs: Record, ks: Sequence[int]) -> str:
    """Both curves at the first length, in the middle, and at the last."""
    shown = dict.fromkeys((ks[0], ks[len(ks) // 2], ks[-1]))
    each = {k: [views.said(views.spread(row, POOLED, k)) for row in (mine, theirs)] for k in shown}
    return ", ".join(f"{a} and {b} (k = {k})" for k, (a, b) in each.items())


def about(mean: float, labels: str) -> Record:
    return {"weight_mean": mean, "labels": labels}


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Pooled R^2 of the learners at the longest prompt of training."""
    found = {}
    for mean in (0.0, *sizes.weight_means):
        for labels in LABELS:
            row = pick(rows, LEARNER, about(mean, labels))
            found[f"{mean:g}, {labels}"] = None if row is None else at(row, POOLED, sizes.n_points - 1)
    return {POOLED: found}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A column a mean of the weights; raw labels above, rescaled ones below. Raw ones have scales of their own: those
    of training are near 1, and learners may be far below zero.
    """
    means = (0.0, *sizes.weight_means)
    with views.panels(2, len(means), title, save, share_y=False) as axes:
        for ax, (labels, mean) in zip(axes, ((one, m) for one in LABELS for m in means), strict=True):
            test = about(mean, labels)
            views.draw_beside(ax, rows, test, POOLED)
            row = pick(rows, LEARNER, test)
            views.frame(ax, POOLED, sizes.n_points - 1, f"weights N({mean:g}, 1), labels {labels}".replace("-", "−"))
            ax.set_xlim(-0.05 * (sizes.asked - 1), 1.05 * (sizes.asked - 1))
            if labels == "raw":
                ax.set_ylim(*RAW["training" if mean == 0.0 else "others"])
            if row is not None:
                draw_learner(ax, sizes, row, (0.3, 0.9) if labels == "rescaled" and mean else (0.5, 0.4))


def draw_learner(ax: Axes, sizes: Sizes, row: Record, place: tuple[float, float]) -> None:
    """``place``: of the words, where the panel cuts the curve."""
    if all(value is None for value in row[POOLED]["value"]):
        words = "all labels are zero:\nR² is not defined"
        ax.text(sizes.n_points / 2, sum(ax.get_ylim()) / 2, words, ha="center", va="center")
        return
    views.draw_row(ax, row, POOLED, "learner", color=ORANGE, lw=3.0, zorder=3)
    views.tell_cut(ax, row, POOLED, window(sizes)[0], ORANGE, place)


RAW = {"training": (0.7, 1.0), "others": (-1.3, 1.02)}  # the axes of raw labels
STAGES = ("learners", "references", "fits")  # learners of deeper networks are not measured here


def figure(number: str, attention: str, study: Study) -> Figure:
    title = f"{PAPER}, Fig. {number}: {attention} attention, 4-layer networks with other weights"
    return Figure(f"parameters-{attention}", PAPER, f"Fig. {number}", title, study, rows, judge, numbers, draw, STAGES)


FIGURES = (figure("3", "relu", RELU), figure("4", "softmax", SOFTMAX))
