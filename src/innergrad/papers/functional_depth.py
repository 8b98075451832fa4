"""Fig. 2 of Cheng et al. (2024): the error by the number of layers, for two kernels, three attentions, two lengths.

Errors are expected squared errors, exact means over the labels, and means over seeds. Less is less by more than the
interval of the factor, as in Fig. 1. Judged by these rules:

- labels of K = relu, 14 and 6 examples: h = relu errs less than exp with every number of layers ("ignoring softmax");
- labels of K = exp, 14 examples: softmax errs less than exp with 1 to 3 layers; with 6 layers or more the gap is very
  small: at most 5 %;
- labels of K = exp, 6 examples: exp errs least of all three with 5 layers or more.

**Why exp with a free A overflows, and the cure.** A layer moves covariates by A times a sum of exp(<B x_i, C x_j>) x_i,
and the next layer takes exponentials of products of the results. If a step of the optimiser makes covariates larger,
scores grow by the square, and the moves of the following layer by the exponential of that: a tower with a storey a
layer. It overflows within a few layers, however small the step was that began it, and a gradient that is not finite
ends the run. Clipping does not help: it comes after the forward pass. Nor does a division by the number of examples.
With A = 0 covariates do not move, and there is no tower. The cure: scores of exp are capped at 4 (``learner.cap``).
Then covariates grow by a bounded factor a layer, everything is finite, and the gradient leads back. On the sphere,
scores of B = C = Sigma^(-1/2) are 1 at most, so the cap is out of the way of them. How often it matters in a trained
learner is in the numbers of the figures. (Fig. 1: never on exp labels; often on linear ones, for some seeds.) Beyond
three layers scores of relu are capped, too. Its tower is one of powers, of degree 3^L with L layers: with eight layers
and six examples, training ran away or ended in a learner with rare, huge errors at every learning rate down to an
eighth. The paper does not say how it trained 8 layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.functional_examples import compared, least
from innergrad.papers.functional_gradient import PAPER, Shape, Sizes, stage
from innergrad.papers.functional_views import (
    CAPPED,
    cap_note,
    cap_said,
    capped,
    draw_risks,
    factor,
    finish,
    paired,
    pick,
    risk,
    risk_rows,
)

ATTENTIONS = ("relu", "exp", "softmax")
FEW, MANY, MORE = 3, 6, 5  # layers: softmax is ahead up to FEW; the gap is small from MANY; exp is best from MORE
SMALL = 1.05  # a very small gap


def shapes(attention: str, sizes: Sizes) -> list[Shape]:
    return [Shape((attention,), layers, n) for layers in sizes.layers for n in sizes.n]


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    del sizes
    return risk_rows(records, "layers")


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    long, short = sizes.n
    found = []
    for n in sizes.n:
        mine = [row for row in rows if row["n"] == n]
        claim = f"labels of K = relu, {n} examples: attention h = relu errs less than exp"
        most = least(mine, "relu", "relu", ["exp"], sizes.layers, "L")
        found.append(compared(claim, f"K = relu, n = {n}, h = relu", most))
    mine = [row for row in rows if row["n"] == long]
    few = [layers for layers in sizes.layers if layers <= FEW]
    claim = f"labels of K = exp, {long} examples: softmax errs less than exp with few layers"
    most = least(mine, "exp", "softmax", ["exp"], few, "L")
    found.append(compared(claim, f"K = exp, n = {long}, h = softmax", most))
    found.append(gap(sizes, mine, long))
    mine = [row for row in rows if row["n"] == short]
    deep = [layers for layers in sizes.layers if layers >= MORE] or [sizes.layers[-1]]
    claim = f"labels of K = exp, {short} examples: exp errs least with many layers"
    most = least(mine, "exp", "exp", ["relu", "softmax"], deep, "L")
    return [*found, compared(claim, f"K = exp, n = {short}, h = exp", most)]


def gap(sizes: Sizes, rows: Sequence[Record], n: int) -> Finding:
    """Between softmax and exp on exp labels with many layers."""
    claim = f"labels of K = exp, {n} examples: the gap between softmax and exp is very small with many layers"
    deep = [layers for layers in sizes.layers if layers >= MANY] or [sizes.layers[-1]]
    pairs = [[risk(rows, layers, kernel="exp", heads=one) for one in ("softmax", "exp")] for layers in deep]
    factors = [max(a / b, b / a) for a, b in pairs if a is not None and b is not None]
    if len(factors) < len(pairs):
        return Finding(claim, None, f"K = exp, n = {n}: not all depths are measured")
    place = deep[factors.index(max(factors))]
    heads = [{"kernel": "exp", "heads": one} for one in ("softmax", "exp")]
    words = f"K = exp, n = {n}, {deep[0]} to {deep[-1]} layers: the errors of softmax and exp differ by "
    words += f"{100 * (max(factors) - 1):.1f} % at most (L = {place}"
    span = factor(paired(rows, place, *heads)).strip(" ()")
    words += f"; exp over softmax {span})" if span else ")"
    words += cap_said(rows, deep, "L", "exp", ("softmax", "exp"))
    return Finding(claim, max(factors) <= SMALL, words)


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Errors with the most layers, and that of the Bayes estimator; by kernel, length and attention."""
    found: Record = {}
    for kernel, n, attention in ((k, n, h) for k in sizes.kernels for n in sizes.n for h in ATTENTIONS):
        row = pick(rows, kernel=kernel, n=n, heads=attention)
        if row is not None:
            found[f"{kernel}, n = {n}, {attention}"] = [row["risk"]["value"][-1], row["bayes"][-1]]
    return {"error, Bayes": found, CAPPED: capped(rows)}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A panel a kernel and length; shaded: 95 % intervals over seeds."""
    with figures.new(2, 2, size=(11.4, 8.4)) as (figure, axes):
        for ax, (n, kernel) in zip(axes, ((n, kernel) for n in sizes.n for kernel in sizes.kernels), strict=True):
            draw_risks(ax, rows, ATTENTIONS, f"labels of K = {kernel}, {n} examples", kernel=kernel, n=n)
            ax.set_xlabel("layers")
        finish(figure, axes, rows, title, save)


KERNELS = ("relu", "exp")
SIZES = {
    "full": Sizes(steps=1000, batch=3000, n=(14, 6), layers=(1, 2, 3, 4, 5, 6, 7, 8), kernels=KERNELS),
    "quick": Sizes(
        steps=150, batch=64, data_every=3, n=(14, 6), layers=(1, 3), kernels=KERNELS, seeds=(0, 1), prompts=500
    ),
    "tiny": Sizes(steps=12, batch=8, data_every=3, n=(4, 2), layers=(1, 2), kernels=KERNELS, seeds=(0, 1), prompts=20),
}
DEPTH = Study("functional-depth", SIZES, {one: stage(one, partial(shapes, one)) for one in ATTENTIONS})
TITLE = f"{PAPER}, Fig. 2: the error by the number of layers"
FIGURES = (Figure("kernel-depth", PAPER, "Fig. 2", TITLE, DEPTH, rows, judge, numbers, draw, note=cap_note),)
