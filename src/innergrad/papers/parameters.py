"""Fig. 3 (ReLU attention) and Fig. 4 (softmax) of *Transformers are Deep Optimizers*: weights of another mean.

Learners of 4-layer networks with weights N(0, 1) are asked about weights N(-0.5, 1) and N(0.5, 1). On inputs N(-2, I)
every network of the former is dead: its labels are all zero, and R^2 is not defined. The latter has labels more than
ten times larger than those of training. So labels are shown raw, and rescaled prompt by prompt to the size they had in
training. The paper does not say which R^2 its figures show.

Judged by these rules, from 40 % of the longest prompt of training to all of it: for each mean but that of training,
labels raw, and again rescaled, pooled R^2 is at least that of networks trained on the prompt (best epoch) less 0.01.
Where R^2 is not defined, the claim does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from innergrad.figures import ORANGE
from innergrad.papers import views
from innergrad.papers.deep_optimizers import RELU, SOFTMAX, Sizes
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.mixtures import PAPER, window
from innergrad.papers.views import BEST, LEARNER, LOSS, POOLED, at, pick

LABELS = ("raw", "rescaled")


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
    if all(value is None for value in mine[POOLED]["value"]):
        return Finding(claim, False, f"{where}: R² is not defined, since {mine['undefined'][POOLED]}")
    if theirs is None or not (ks := views.shared(mine, theirs, *window(sizes))):
        return Finding(claim, None, f"{where}: networks trained on the prompt are not measured yet")
    gap = views.least(mine, theirs, POOLED, ks, lambda a, b: a - b)
    if gap is None:
        return Finding(claim, False, f"{where}: R² is not defined at every length")
    words = f"{where}: pooled R² less that of networks trained on the prompt is at least {gap[0]:+.3f} (k = {gap[1]})"
    return Finding(claim, gap[0] >= -LOSS, words)


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
    """A column a mean of the weights; raw labels above, rescaled ones below."""
    means = (0.0, *sizes.weight_means)
    with views.panels(2, len(means), title, save) as axes:
        for ax, (labels, mean) in zip(axes, ((one, m) for one in LABELS for m in means), strict=True):
            test = about(mean, labels)
            views.draw_beside(ax, rows, test, POOLED)
            row = pick(rows, LEARNER, test)
            if row is not None:
                views.draw_row(ax, row, POOLED, "learner", color=ORANGE, lw=2.0, zorder=3)
            if row is not None and all(value is None for value in row[POOLED]["value"]):
                ax.text(0.5, 0.5, "all labels are zero:\nR² is not defined", transform=ax.transAxes, ha="center")
                ax.set_xlim(0, sizes.asked - 1)
            views.frame(ax, POOLED, sizes.n_points - 1, f"weights N({mean:g}, 1), labels {labels}")


STAGES = ("learners", "references", "fits")  # learners of deeper networks are not measured here


def figure(number: str, attention: str, study: Study) -> Figure:
    title = f"{PAPER}, Fig. {number}: {attention} attention, 4-layer networks with other weights"
    return Figure(f"parameters-{attention}", PAPER, f"Fig. {number}", title, study, rows, judge, numbers, draw, STAGES)


FIGURES = (figure("3", "relu", RELU), figure("4", "softmax", SOFTMAX))
