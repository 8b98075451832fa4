"""Fig. 4 of Cheng et al. (2024): two heads with different activations, on labels of sums of kernels.

Three learners, of one linear head, one exp head, and a head of each, on labels of K = linear, K = exp, and their sum on
other coordinates, K = <u, v>_12 / 2 + exp(<u, v>_345 / 2) / 2, with 14 examples. (The second head is exp: the text of
the figure says linear twice.) Errors are expected squared errors, exact means over the labels. Judged by these rules,
each for every number of layers (with six, two heads diverge at the rate of the others, so all learners of six layers
have half of it, and twice the steps):

- labels of K = linear, and of K = exp: two heads err as little as the one head that matches: nowhere more by more than
  the interval of their factor, of each seed compared with itself;
- labels of the sum: two heads err less than each single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.functional_examples import compared, least
from innergrad.papers.functional_gradient import PAPER, Shape, Sizes, stage, task
from innergrad.papers.functional_views import (
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

LEARNERS = {"linear": ("linear",), "exp": ("exp",), "linear-exp": ("linear", "exp")}
BOTH = "linear+exp"
PANELS = {"linear": "K = linear", "exp": "K = exp", "mixed": "their sum on other coordinates"}


def shapes(heads: tuple[str, ...], sizes: Sizes) -> list[Shape]:
    return [Shape(heads, layers, sizes.n[0]) for layers in sizes.layers]


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    del sizes
    return risk_rows(records, "layers")


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = [as_good(sizes, rows, kernel) for kernel in ("linear", "exp")]
    claim = "labels of a sum of kernels: two heads err less than one"
    most = least(rows, "mixed", BOTH, ["linear", "exp"], sizes.layers, "L")
    return [*found, compared(claim, "the sum, two heads", most)]


def as_good(sizes: Sizes, rows: Sequence[Record], kernel: str) -> Finding:
    """Two heads against the single one that matches."""
    claim = f"labels of K = {kernel}: two heads err as little as one {kernel} head"
    pairs = {
        layers: [risk(rows, layers, kernel=kernel, heads=one) for one in (BOTH, kernel)] for layers in sizes.layers
    }
    more = {layers: a / b for layers, (a, b) in pairs.items() if a is not None and b}
    if len(more) < len(pairs):
        return Finding(claim, None, f"K = {kernel}: not all depths are measured")
    heads = [{"kernel": kernel, "heads": one} for one in (kernel, BOTH)]
    seeds = {layers: paired(rows, layers, *heads) for layers in more}
    ends = {layers: ratio(each) for layers, each in seeds.items()}
    worse = [layers for layers, span in ends.items() if (more[layers] if span is None else span[0]) > 1.0]
    place = max(worse or more, key=lambda one: more[one])
    least, variance = risk(rows, place, kernel=kernel, heads=BOTH), task(kernel, 0).scale ** 2
    words = (
        f"two heads err {more[place]:.3g} times{factor(seeds[place])} as much as one {kernel} head at most (L = {place}"
    )
    words += f", where their error is {100 * (least or 0.0) / variance:.2g} % of the labels' variance)"
    words += f"; more by more than the interval with {', '.join(map(str, worse))} layers" if worse else ""
    return Finding(claim, not worse, f"K = {kernel}: {words}", brief=words)


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Errors with the most layers, and that of the Bayes estimator."""
    found: Record = {}
    for kernel, heads in ((kernel, heads) for kernel in sizes.kernels for heads in LEARNERS.values()):
        row = pick(rows, kernel=kernel, heads="+".join(heads))
        if row is not None:
            found[f"{kernel}, {' and '.join(heads)}"] = [row["risk"]["value"][-1], row["bayes"][-1]]
    return {"error, Bayes": found}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A panel a kernel; shaded: 95 % intervals over seeds."""
    names = ["+".join(heads) for heads in LEARNERS.values()]
    with figures.new(1, len(sizes.kernels), size=(4.6 * len(sizes.kernels) + 2.2, 4.8)) as (figure, axes):
        for ax, kernel in zip(axes, sizes.kernels, strict=True):
            draw_risks(ax, rows, names, f"labels of {PANELS[kernel]}", kernel=kernel)
            ax.set_xlabel("layers")
            if kernel == "linear":  # the Bayes estimator's error is rounding
                cut_below(ax, 1e-5)
        finish(figure, axes, rows, title, save)


KERNELS = ("linear", "exp", "mixed")
SIZES = {
    "full": Sizes(steps=600, batch=3000, n=(14,), layers=(1, 2, 3, 4, 5, 6), kernels=KERNELS, slow_from=6),
    "quick": Sizes(
        steps=150, batch=64, data_every=3, n=(14,), layers=(1, 2), kernels=KERNELS, seeds=(0, 1), prompts=500
    ),
    "tiny": Sizes(steps=12, batch=8, data_every=3, n=(4,), layers=(1, 2), kernels=KERNELS, seeds=(0, 1), prompts=20),
}
HEADS = Study(
    "functional-heads", SIZES, {name: stage(name, partial(shapes, heads)) for name, heads in LEARNERS.items()}
)
TITLE = f"{PAPER}, Fig. 4: one and two heads, by the number of layers"
FIGURES = (Figure("heads", PAPER, "Fig. 4", TITLE, HEADS, rows, judge, numbers, draw),)
