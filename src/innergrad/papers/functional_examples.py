"""Fig. 1 of Cheng et al. (2024): the error by the number of examples, for three kernels and four attentions.

Learners of three layers, A free. Errors are expected squared errors, exact means over the labels, and means over seeds
(of logarithms, as the paper's axis). An error is less than another if its mean is, and if the 95 % interval of their
factor has no 1 in it. That interval is of each seed compared with itself: seeds have axes of their own, which all
attentions share. Judged by these rules, each for every number of examples:

- labels of K = linear: h = linear has the least error among linear, relu and exp ("ignoring softmax");
- labels of K = relu: h = relu has the least error among them;
- labels of K = exp: softmax has a smaller error than exp with 6 examples or more.

An expected error can be that of a few prompts. With a free A, and attention other than softmax, covariates of a rare
prompt can run away. With 1,000 prompts in a step that was seen for relu attention on linear labels; with 3,000 not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.functional_gradient import PAPER, Shape, Sizes, stage
from innergrad.papers.functional_views import (
    CAPPED,
    cap_note,
    cap_said,
    capped,
    cut_below,
    draw_risks,
    factor,
    finish,
    paired,
    pick,
    ratio,
    risk,
    risk_rows,
)

ATTENTIONS = ("linear", "relu", "exp", "softmax")
MANY = 6  # examples: from here on the paper sees softmax ahead of exp


def shapes(attention: str, sizes: Sizes) -> list[Shape]:
    return [Shape((attention,), sizes.layers[0], n) for n in sizes.n]


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    del sizes
    return risk_rows(records, "n")


def least(
    rows: Sequence[Record], kernel: str, best: str, others: Sequence[str], places: Sequence[int], along: str
) -> tuple[bool | None, str, str, bool]:
    """Whether an attention has the least error at every place, by more than intervals; and by which factor at least, or
    where it has not. Then where the cap has an effect; and whether means say so, and intervals do not.
    """
    factors, unclear, spans = dict[int, float](), [], dict[int, str]()
    for place in places:
        mine = risk(rows, place, kernel=kernel, heads=best)
        theirs = [risk(rows, place, kernel=kernel, heads=other) for other in others]
        known = [value for value in theirs if value is not None]
        if mine is None or len(known) < len(theirs):
            return None, f"not all of h = {', '.join((best, *others))} are measured at {along} = {place}", "", False
        factors[place] = min(known) / mine
        for other, value in zip(others, known, strict=True):
            heads = [{"kernel": kernel, "heads": one} for one in (best, other)]
            pairs = paired(rows, place, *heads)
            span = ratio(pairs)
            if value == min(known):
                spans[place] = factor(pairs)
            if span is not None and span[0] <= 1.0:
                unclear.append(f"{other} at {along} = {place}{factor(pairs)}")
    cap = cap_said(rows, places, along, kernel, (best, *others))
    lost = [place for place, factor in factors.items() if factor <= 1.0]
    if lost:
        told = ", ".join(f"{factors[place]:.3f} times{spans[place]} at {along} = {place}" for place in lost)
        return False, f"the best of {' and '.join(others)} errs only {told}", cap, False
    place = min(factors, key=lambda one: factors[one])
    words = f"{' and '.join(others)} err at least {factors[place]:.2f} times{spans[place]} as much ({along} = {place})"
    words += f"; not by more than the interval: {', '.join(unclear)}" if unclear else ""
    return not unclear, words, cap, bool(unclear)


def compared(claim: str, about: str, found: tuple[bool | None, str, str, bool]) -> Finding:
    """A finding about the least error."""
    holds, words, cap, unclear = found
    return Finding(claim, holds, f"{about}: {words}{cap}", brief=words, unclear=unclear)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = []
    for kernel in ("linear", "relu"):
        others = [one for one in ("linear", "relu", "exp") if one != kernel]
        claim = f"labels of K = {kernel}: attention h = {kernel} errs least, ignoring softmax"
        most = least(rows, kernel, kernel, others, sizes.n, "n")
        found.append(compared(claim, f"K = {kernel}, h = {kernel}", most))
    claim = f"labels of K = exp: softmax errs less than exp with {MANY} examples or more"
    most = least(rows, "exp", "softmax", ["exp"], [n for n in sizes.n if n >= MANY], "n")
    return [*found, compared(claim, "K = exp, h = softmax", most)]


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Errors over that of the Bayes estimator with the most examples, by kernel and attention."""
    found: Record = {}
    for kernel in sizes.kernels:
        for attention in ATTENTIONS:
            row = pick(rows, kernel=kernel, heads=attention)
            if row is not None:
                found[f"{kernel}, {attention}"] = [row["risk"]["value"][-1], row["bayes"][-1]]
    return {"error, Bayes": found, CAPPED: capped(rows)}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A panel a kernel; shaded: 95 % intervals over seeds."""
    with figures.new(1, len(sizes.kernels), size=(4.6 * len(sizes.kernels) + 2.2, 4.8)) as (figure, axes):
        for ax, kernel in zip(axes, sizes.kernels, strict=True):
            draw_risks(ax, rows, ATTENTIONS, f"labels of K = {kernel}", kernel=kernel)
            ax.set_xlabel("examples in the prompt")
            if kernel == "linear":  # below, there is nothing but rounding
                cut_below(ax, 1e-3)
        finish(figure, axes, rows, title, save)


KERNELS = ("linear", "relu", "exp")
SIZES = {
    "full": Sizes(steps=1000, batch=3000, n=(2, 4, 6, 8, 10, 12), layers=(3,), kernels=KERNELS),
    "quick": Sizes(
        steps=150, batch=64, data_every=3, n=(2, 6, 10), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=500
    ),
    "tiny": Sizes(steps=12, batch=8, data_every=3, n=(2, 6), layers=(2,), kernels=KERNELS, seeds=(0, 1), prompts=20),
}
EXAMPLES = Study("functional-examples", SIZES, {one: stage(one, partial(shapes, one)) for one in ATTENTIONS})
TITLE = f"{PAPER}, Fig. 1: the error by the number of examples, three layers"
FIGURES = (Figure("kernels", PAPER, "Fig. 1", TITLE, EXAMPLES, rows, judge, numbers, draw, note=cap_note),)
