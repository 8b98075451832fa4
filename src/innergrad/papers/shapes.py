"""Appendix B.3 of *Transformers are Deep Optimizers*: networks of another depth or width than those of training.

The paper says that its learners are for networks of the depth and the width of training. So those of 4-layer networks
are measured on others. Judged by this rule: at the longest prompt of training, the squared error on every other shape
is at least 1.05 times that of the posterior for that shape, while on the shape of training it is less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from innergrad import figures
from innergrad.papers import views
from innergrad.papers.deep_optimizers import RELU, SOFTMAX, Sizes
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.mixtures import PAPER
from innergrad.papers.views import ERROR, LEARNER, at, pick

NEAR = 1.05
BARS = ((LEARNER, "learner", figures.ORANGE), ("ridge", "ridge", figures.GREY), ("NNGP", "posterior", figures.DARK))


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Learners of one depth on networks of every shape, and what is beside them."""

    def ours(record: Record) -> bool:
        test = record["test"]
        plain = test["w1"] == 1.0 and test["weight_mean"] == 0.0 and test["labels"] == "raw"
        own = record.get("layers", sizes.shifted_layers) == sizes.shifted_layers
        return plain and own and shape(test) in shapes(sizes)

    return views.rows_of(record for record in records if ours(record))


def shape(test: Record) -> tuple[int, int]:
    return test["layers"], test["width"]


def shapes(sizes: Sizes) -> list[tuple[int, int]]:
    """Layers and width: that of training first."""
    own = sizes.shifted_layers
    others = [(layers, sizes.width) for layers in sizes.other_layers if layers != own]
    return [(own, sizes.width), *others, *((own, width) for width in sizes.other_widths)]


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """The error over that of the posterior, by shape."""
    found: Record = {}
    for layers, width in shapes(sizes):
        test = {"layers": layers, "width": width}
        mine, posterior = pick(rows, LEARNER, test), pick(rows, "NNGP", test)
        if mine is not None and posterior is not None:
            k = sizes.n_points - 1
            error, best = at(mine, ERROR, k), at(posterior, ERROR, k)
            found[f"{layers} layers of {width}"] = error / best if error is not None and best else None
    return found


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    claim, found = "a learner is for networks of the depth and the width of training", numbers(sizes, rows)
    ratios = [ratio for ratio in found.values() if ratio is not None]
    if len(ratios) < len(shapes(sizes)):
        return [Finding(claim, None, "not all shapes are measured yet")]
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
    held = ratios[0] < NEAR and all(ratio >= NEAR for ratio in ratios[1:])
    return [Finding(claim, held, f"error over that of the posterior at k = {sizes.n_points - 1}: {told}")]


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """Squared errors at the longest prompt of training, by shape; bars: 95 % intervals."""
    k = sizes.n_points - 1
    with figures.new(size=(11.0, 4.8)) as (figure, (ax,)):
        for number, (by, label, colour) in enumerate(BARS):
            known = [(n, row) for n, (layers, width) in enumerate(shapes(sizes))
                     if (row := pick(rows, by, {"layers": layers, "width": width}))]  # fmt: skip
            curves = [[row[ERROR][column][row["k"].index(k)] for column in views.COLUMNS] for _, row in known]
            spread = [[0 if low is None else value - low for value, low, _ in curves]] * 2
            places = [n + 0.2 * (number - 1) for n, _ in known]
            style: dict[str, Any] = {"color": colour, "marker": "o", "ms": 7, "lw": 0, "elinewidth": 1.5, "capsize": 4}
            ax.errorbar(places, [value for value, _, _ in curves], spread, label=label, **style)
        names = [f"{layers} layers\nof {width}" for layers, width in shapes(sizes)]
        ax.set_xticks(range(len(names)), [f"{names[0]}\n(training)", *names[1:]])
        ax.set(ylabel=f"squared error / mean square, k = {k}", xlabel="networks that make the labels")
        ax.set_ylim(bottom=0)
        ax.legend()
        figure.suptitle(title)
        save(figure)


def figure(attention: str, study: Study) -> Figure:
    title = f"{PAPER}, B.3: {attention} attention, networks of other depths and widths"
    return Figure(f"shapes-{attention}", PAPER, "App. B.3", title, study, rows, judge, numbers, draw)


FIGURES = (figure("relu", RELU), figure("softmax", SOFTMAX))
