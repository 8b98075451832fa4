"""An open question of Cheng et al. (2024): does A improve the condition number, as it does for linear attention?

Learners of three layers, with a free A and with A = 0, on prompts of 14 examples: three kernels, four attentions. The
pattern of a layer is taken at the covariates that A has moved. It is taken again, with the same B and C, at the
covariates of the prompt, enlarged to the same mean square: a change of size alone is nothing that B and C could not do.
The condition numbers of the two are compared: the largest singular value over the m-th, where m directions carry 99 %
of the labels' variance. A factor below 1 is an improvement. Beside it stands what A is good for: the error of the
learner with a free A over that of the one with A = 0.

Judged by these rules, for the patterns of the second and the third layer: the median factor over prompts is below 1,
with its whole interval over seeds,

- for linear attention on linear labels, where the paper says so (after von Oswald et al., 2023);
- for relu, exp and softmax attention on all three kinds of labels. This is the open question: its answer counts
  neither for nor against the figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.functional_gradient import PAPER, Sizes, stage
from innergrad.papers.functional_identity import shapes
from innergrad.papers.functional_views import log_mean, pick

ATTENTIONS = ("linear", "relu", "exp", "softmax")
KERNELS = ("linear", "relu", "exp")


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row a pair: by which factor A changes the condition number of each layer after the first, and the error."""
    found, all_records = [], list(records)
    for kernel, attention in ((k, h) for k in sizes.kernels for h in ATTENTIONS):
        free, zero = (
            sorted((one for one in all_records if _is(one, kernel, attention, free_A)), key=lambda one: one["seed"])
            for free_A in (True, False)
        )
        if not free:
            continue
        factors = [one["conditions"]["factors"][1:] for one in free]
        row: Record = {"kernel": kernel, "heads": attention, "seeds": [one["seed"] for one in free]}
        row |= {"interval": "seeds", "m": free[0]["conditions"]["m"], "factors": log_mean(factors)}
        row["unmoved"] = log_mean([one["conditions"]["unmoved"][1:] for one in free])
        if len(zero) == len(free):
            ratios = [
                [a["risk"] / b["risk"] if a["risk"] and b["risk"] else None] for a, b in zip(free, zero, strict=True)
            ]
            row["error over that with A = 0"] = log_mean(ratios)
        found.append(row)
    return found


def _is(one: Record, kernel: str, attention: str, free_A: bool) -> bool:
    return (one["kernel"], one["heads"], one["free_A"]) == (kernel, attention, free_A)


def answer(rows: Sequence[Record]) -> str:
    """To the open question, in a few words."""
    others = [row for row in rows if (row["kernel"], row["heads"]) != ("linear", "linear")]
    better = sum(improves(row) for row in others)
    return f"elsewhere A improves {better} of {len(others)} pairs" if others else ""


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    linear = [("linear", "linear")]
    others = [(kernel, h) for h in ATTENTIONS for kernel in sizes.kernels if (kernel, h) not in linear]
    return [
        judged("linear attention on linear labels: A improves the condition number", rows, linear),
        replace(
            judged("other labels, other attention: does A improve the condition number?", rows, others), question=True
        ),
    ]


def judged(claim: str, rows: Sequence[Record], pairs: Sequence[tuple[str, str]]) -> Finding:
    found = [pick(rows, kernel=kernel, heads=attention) for kernel, attention in pairs]
    known = [row for row in found if row is not None]
    if len(known) < len(pairs):
        return Finding(claim, None, f"{len(known)} of {len(pairs)} pairs are measured")
    better = [row for row in known if improves(row)]
    told = "; ".join(f"K = {row['kernel']}, h = {row['heads']}: {_said(row)}" for row in known)
    words = f"the condition number becomes smaller in {len(better)} of {len(known)} pairs (factors by layer: {told})"
    factors = f" (factors {told.partition(': ')[2]})" if len(known) == 1 else ""
    return Finding(claim, len(better) == len(known), words, brief=f"in {len(better)} of {len(known)} pairs{factors}")


def improves(row: Record) -> bool:
    """In every layer after the first, with the whole interval if there is one."""
    values, highs = row["factors"]["value"], row["factors"]["high"]
    tops = [value if high is None else high for value, high in zip(values, highs, strict=True)]
    return all(top is not None and top < 1.0 for top in tops)


def _said(row: Record) -> str:
    layers = zip(*(row["factors"][side] for side in ("value", "low", "high")), strict=True)
    return ", ".join("not finite" if one[0] is None else f"{one[0]:.2f}{_ends(*one[1:])}" for one in layers)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """The factors, and the error with a free A over that with A = 0."""
    del sizes
    ratio = "error over that with A = 0"
    return {
        f"{row['kernel']}, {row['heads']}": {"factors": row["factors"], ratio: row.get(ratio), "m": row["m"]}
        for row in rows
    }


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """Left: factors of the condition number by pair. Right: factors of the error. Bars: 95 % intervals over seeds."""
    del sizes
    names = [f"{row['kernel']}, {row['heads']}" for row in rows]
    layers = len(rows[0]["factors"]["value"])
    with figures.new(1, 2, size=(13.2, 6.2), share_y=True) as (figure, axes):
        for layer, (colour, marker) in zip(range(layers), ((figures.BLUE, "o"), (figures.ORANGE, "D")), strict=False):
            curves = [{side: row["factors"][side][layer] for side in row["factors"]} for row in rows]
            _points(axes[0], curves, 0.16 * (2 * layer - 1), color=colour, marker=marker, label=f"layer {layer + 2}")
        ratios = [row.get("error over that with A = 0") for row in rows]
        firsts = [None if one is None else {side: one[side][0] for side in one} for one in ratios]
        _points(axes[1], firsts, 0.0, color=figures.GREEN, marker="s", label="error")
        for ax, words in zip(axes, ("condition number, moved over unmoved", "error, free A over A = 0"), strict=True):
            ax.axvline(1.0, color=figures.GREY, lw=1.0)
            ax.set(xscale="log", xlabel=f"{words} (below 1: better)")
            ax.set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        axes[0].set_ylabel("labels, attention")
        axes[0].legend(loc="best", title="bars: 95 % intervals over seeds")
        figure.suptitle(title)
        save(figure)


def _points(ax: Any, curves: Sequence[Record | None], shift: float, **style: Any) -> None:
    """A point a pair, with its interval."""
    for place, curve in enumerate(curves):
        if curve is not None and curve["value"] is not None:
            ends = None if curve["low"] is None else [[curve["value"] - curve["low"]], [curve["high"] - curve["value"]]]
            label = style["label"] if place == 0 else None
            ax.errorbar([curve["value"]], [place + shift], xerr=ends, **style | {"label": label}, capsize=3, ms=6)


STAGES = {
    f"{attention}{'-A' * free_A}": stage(
        f"{attention}{'-A' * free_A}", partial(shapes, attention, free_A), conditions=True
    )
    for free_A in (True, False)
    for attention in ATTENTIONS
}
SIZES = {
    "full": Sizes(steps=800, batch=3000, n=(14,), layers=(3,), kernels=KERNELS),
    "quick": Sizes(
        steps=150, batch=100, data_every=3, n=(10,), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=300
    ),
    "tiny": Sizes(
        steps=12, batch=8, data_every=3, n=(4,), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=20, conditions=4
    ),
}
CONDITIONING = Study("functional-conditioning", SIZES, STAGES)
TITLE = f"{PAPER}, its open question: does A improve the condition number?"
FIGURES = (Figure("conditioning", PAPER, "Sec. 5", TITLE, CONDITIONING, rows, judge, numbers, draw, note=answer),)
