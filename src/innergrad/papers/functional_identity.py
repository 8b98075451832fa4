"""Fig. 3, 5 and 6 of Cheng et al. (2024): does training find the weights that their theorems predict?

Learners of three layers and one head are trained on prompts of 30 examples, nine pairs of a kernel K of the labels
(linear, relu, exp) and an attention h (linear, relu, softmax), with A = 0 (Theorem 4.5, Fig. 5) and with a free A
(Theorem 4.6, Fig. 6). Fig. 3 is the pair of exp and softmax. Watched during training is the distance to the identity,

    dist(M, I) = min over a of |M - a I| / |M|,    M = Sigma^(1/2) B_l^T C_l Sigma^(1/2), and M = A_0, A_1,

which the theorems predict to be 0. (A_2 does not enter the loss.) With A = 0 some 1,000 steps are enough; with a free A
some of the loss's directions are flat, and it is 4,000 steps.

Judged by this rule: a pair converges if the distance of every matrix, a mean over seeds at the end of training, is
below 0.1. The paper says "in most cases": at least 7 of 9 pairs. (It reports that a few matrices stay near 0.2 in
Fig. 5 (c) and (i), and in Fig. 6 (b).) For Fig. 3 both panels must converge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study, over_seeds
from innergrad.papers.functional_gradient import PAPER, Shape, Sizes, stage
from innergrad.papers.functional_views import cut_below, draw_curve, finish, log_mean, pick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KERNELS = ("linear", "relu", "exp")
ATTENTIONS = ("linear", "relu", "softmax")
NEAR = 0.1
ENOUGH = 7 / 9  # of the pairs
COLOURS = (figures.BLUE, figures.ORANGE, figures.GREEN)
LIMITS = (0.003, 1.3)  # of the axis


def shapes(attention: str, free_A: bool, sizes: Sizes) -> list[Shape]:
    return [Shape((attention,), sizes.layers[0], sizes.n[0], free_A)]


def names(layers: int, free_A: bool) -> list[str]:
    """Of the matrices that are watched, in the order of the records."""
    return [f"BC{layer}" for layer in range(layers)] + [f"A{layer}" for layer in range(layers - 1) if free_A]


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row a pair, with and without A: the distance of every matrix by the step, over seeds; and its mean at last."""
    found, all_records = [], list(records)
    for free_A in (False, True):
        for kernel, attention in ((k, h) for k in sizes.kernels for h in ATTENTIONS):
            key = {"kernel": kernel, "heads": attention, "free_A": free_A}
            group = [one for one in all_records if all(one[name] == value for name, value in key.items())]
            if group:
                found.append(_row(key, group, names(sizes.layers[0], free_A)))
    return found


def _row(key: Record, group: Sequence[Record], matrices: Sequence[str]) -> Record:
    curves = {m: log_mean([[row[i] for row in one["distances"]] for one in group]) for i, m in enumerate(matrices)}
    ends = {m: [one["distances"][-1][i] for one in group] for i, m in enumerate(matrices)}
    means = {m: None if None in values else float(f"{sum(values) / len(values):.4g}") for m, values in ends.items()}
    spread = {m: over_seeds([[value] for value in values]) for m, values in ends.items()}
    about = {"seeds": [one["seed"] for one in group], "interval": "seeds", "at": group[0]["watched"]}
    about["last interval"] = {m: [one["low"][0], one["high"][0]] for m, one in spread.items()}
    risks = {"risk": log_mean([[one["risk"]] for one in group]), "bayes": group[0]["bayes"]}
    return {**key, **about, "distances": curves, "last": means, **risks}


def worst(row: Record) -> float:
    """The largest distance of a row's matrices at the end."""
    return max(float("inf") if value is None else value for value in row["last"].values())


def top(row: Record) -> float:
    """The largest upper end of an interval over seeds at the end; of one seed, the largest distance."""
    ends = [high for _, high in row.get("last interval", {}).values() if high is not None]
    return float(max([worst(row), *ends]))


def worst_said(row: Record, digits: int) -> str:
    """The same in words, with its interval over seeds."""
    values = {m: float("inf") if value is None else value for m, value in row["last"].items()}
    matrix = max(values, key=lambda m: values[m])
    low, high = row.get("last interval", {}).get(matrix, (None, None))
    half = None if low is None or high is None else (high - low) / 2
    return f"{values[matrix]:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def judge(free_A: bool, sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    theorem = "4.6" if free_A else "4.5"
    claim = f"in most cases, training converges to the stationary points of Theorem {theorem}"
    mine = [row for row in rows if row["free_A"] is free_A]
    pairs = len(sizes.kernels) * len(ATTENTIONS)
    if len(mine) < pairs:
        return [Finding(claim, None, f"{len(mine)} of {pairs} pairs are measured")]
    far = sorted((row for row in mine if worst(row) >= NEAR), key=worst)
    words = f"in {pairs - len(far)} of {pairs} pairs every matrix ends within {NEAR:g} of a multiple of the identity"
    words += f", in {sum(top(row) < NEAR for row in mine)} with its whole interval over seeds"
    told = ", ".join(f"K = {row['kernel']}, h = {row['heads']}: {worst_said(row, 2)}" for row in far)
    largest = worst_said(max(mine, key=worst), 3)
    words += f" (the others: {told})" if far else f" (the largest distance is {largest})"
    paper = "panel (b) stalls" if free_A else "panels (c) and (i) stay near 0.2"
    ends = [worst_said(row, 2) for row in far]
    brief = f"in {pairs - len(far)} of {pairs} pairs; the others end at {' and '.join(ends)}" if far else words
    return [Finding(claim, pairs - len(far) >= ENOUGH * pairs, words, paper, brief=brief)]


def judge_softmax(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    del sizes
    found = []
    for free_A, panel in ((False, "A = 0"), (True, "a free A")):
        claim = f"{panel}: the matrices of a softmax learner of exp labels converge to the identity"
        row = pick(rows, kernel="exp", heads="softmax", free_A=free_A)
        if row is None:
            found.append(Finding(claim, None, f"{panel}: not measured yet"))
        else:
            words = f"{panel}: the largest distance ends at {worst_said(row, 3)}"
            found.append(Finding(claim, worst(row) < NEAR, words))
    return found


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """The largest distance at the end, and the error over that of the Bayes estimator, by pair."""
    del sizes
    found: Record = {"largest distance": {}, "error, Bayes": {}}
    for row in rows:
        name = f"{row['kernel']}, {row['heads']}, {'free A' if row['free_A'] else 'A = 0'}"
        found["largest distance"][name] = float(f"{worst(row):.4g}")
        found["error, Bayes"][name] = [row["risk"]["value"][0], row["bayes"]]
    return found


def _panel(ax: Axes, row: Record | None, title: str) -> None:
    bottom, _ = LIMITS
    if row is not None:
        for matrix, curve in row["distances"].items():
            layer, is_A = int(matrix[-1]), matrix.startswith("A")
            label = f"A, layer {layer + 1}" if is_A else f"BᵀC, layer {layer + 1}"
            draw_curve(ax, row["at"], curve, label, color=COLOURS[layer % 3], ls="--" if is_A else "-", lw=1.8)
        known = [value for curve in row["distances"].values() for value in curve["value"] if value is not None]
        if min(known, default=bottom) < bottom:
            cut_below(ax, bottom, corner="lower")
    ax.axhline(NEAR, color=figures.GREY, lw=0.8, ls=(0, (4, 3)), label=f"{NEAR:g}, the bound of the rule")
    ax.set(xscale="log", yscale="log", ylim=LIMITS, title=title, xlabel="steps of training")
    ax.set_ylabel("distance |M − a I| / |M|")


def draw(free_A: bool, sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A row a kernel, a column an attention; shaded: 95 % intervals over seeds."""
    with figures.new(3, 3, size=(13.0, 8.6), share_y=True) as (figure, axes):
        pairs = [(kernel, attention) for kernel in sizes.kernels for attention in ATTENTIONS]
        for ax, (kernel, attention) in zip(axes, pairs, strict=False):
            row = pick(rows, kernel=kernel, heads=attention, free_A=free_A)
            _panel(ax, row, f"labels {kernel}, attention {attention}")
        finish(figure, axes, rows, title, save)


def draw_softmax(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    del sizes
    with figures.new(1, 2, size=(11.6, 4.8), share_y=True) as (figure, axes):
        for ax, free_A in zip(axes, (False, True), strict=True):
            row = pick(rows, kernel="exp", heads="softmax", free_A=free_A)
            _panel(ax, row, "A is free" if free_A else "A = 0")
        finish(figure, axes[::-1], rows, title, save)  # the last panel has all curves


STAGES = {
    f"{attention}{'-A' * free_A}": stage(f"{attention}{'-A' * free_A}", partial(shapes, attention, free_A))
    for free_A in (False, True)
    for attention in ATTENTIONS
}
SIZES = {
    "full": Sizes(
        steps=1000,
        batch=3000,
        free_steps=4000,
        n=(30,),
        layers=(3,),
        kernels=KERNELS,
    ),
    "quick": Sizes(steps=300, batch=64, data_every=3, n=(12,), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=300),
    "tiny": Sizes(
        steps=12, batch=8, data_every=3, n=(4,), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=20, conditions=4
    ),
}
IDENTITY = Study("functional-identity", SIZES, STAGES)


def _figure(name: str, number: str, what: str, free_A: bool) -> Figure:
    title = f"{PAPER}, Fig. {number}: distance to the predicted weights, {what}"
    parts = (rows, partial(judge, free_A), numbers, partial(draw, free_A))
    stages = tuple(f"{attention}{'-A' * free_A}" for attention in ATTENTIONS)
    return Figure(name, PAPER, f"Fig. {number}", title, IDENTITY, *parts, stages)


SOFTMAX_SIZES = {
    "full": Sizes(steps=1000, batch=3000, free_steps=2000, n=(30,), layers=(3,), kernels=("exp",)),
    "quick": Sizes(
        steps=400, batch=100, data_every=3, n=(12,), layers=(2,), kernels=("exp",), seeds=(0, 1), prompts=500
    ),
    "tiny": Sizes(steps=12, batch=8, data_every=3, n=(4,), layers=(2,), kernels=("exp",), seeds=(0, 1), prompts=20),
}
SOFTMAX = Study("functional-softmax", SOFTMAX_SIZES, {name: STAGES[name] for name in ("softmax", "softmax-A")})
SOFTMAX_TITLE = f"{PAPER}, Fig. 3: distance to the predicted weights, exp labels and softmax attention"
FIGURES = (
    Figure("identity-softmax", PAPER, "Fig. 3", SOFTMAX_TITLE, SOFTMAX, rows, judge_softmax, numbers, draw_softmax),
    _figure("identity", "5", "A = 0", False),
    _figure("identity-free", "6", "A is free", True),
)
