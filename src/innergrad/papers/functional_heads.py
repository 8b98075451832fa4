"""Fig. 4 of Cheng et al. (2024): two heads with different activations, on labels of sums of kernels.

Three learners, of one linear head, one exp head, and a head of each, on labels of K = linear, K = exp, and their sum on
other coordinates, K = <u, v>_12 / 2 + exp(<u, v>_345 / 2) / 2, with 14 examples. (The second head is exp: the text of
the figure says linear twice.) Errors are expected squared errors, exact means over the labels. Judged by these rules,
each for every number of layers:

- labels of K = linear, and of K = exp: two heads err as little as the one head that matches; more by 1 % of the labels'
  variance at most;
- labels of the sum: two heads err less than each single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from innergrad import figures
from innergrad.papers.frame import Figure, Finding, Record, Save, Study, over_seeds
from innergrad.papers.functional_examples import compared, least
from innergrad.papers.functional_gradient import PAPER, Shape, Sizes, stage, task
from innergrad.papers.functional_views import cut_below, draw_risks, finish, paired, pick, risk, risk_rows

LEARNERS = {"linear": ("linear",), "exp": ("exp",), "linear-exp": ("linear", "exp")}
BOTH = "linear+exp"
MORE = 0.01  # of the labels' variance
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
    variance = task(kernel, 0).scale ** 2
    more = {layers: (a - b) / variance for layers, (a, b) in pairs.items() if a is not None and b is not None}
    if len(more) < len(pairs):
        return Finding(claim, None, f"K = {kernel}: not all depths are measured")
    place = max(more, key=lambda one: more[one])
    seeds = paired(rows, place, *({"kernel": kernel, "heads": one} for one in (BOTH, kernel)))
    found = (
        over_seeds([[100 * (a - b) / variance] for a, b in seeds])
        if len(seeds) > 1
        else {"low": [None], "high": [None]}
    )
    low, high = found["low"][0], found["high"][0]
    span = f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else ""
    words = f"K = {kernel}: two heads err more than one {kernel} head by {100 * more[place]:.2f} %{span} of the labels'"
    return Finding(claim, more[place] <= MORE, f"{words} variance at most (L = {place})")


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
                cut_below(ax, 1e-3)
        finish(figure, axes, rows, title, save)


KERNELS = ("linear", "exp", "mixed")
SIZES = {
    "full": Sizes(steps=600, batch=200, n=(14,), layers=(1, 2, 3, 4, 5, 6), kernels=KERNELS),
    "quick": Sizes(steps=150, batch=64, n=(14,), layers=(1, 2), kernels=KERNELS, seeds=(0, 1), prompts=500),
    "tiny": Sizes(steps=12, batch=8, n=(4,), layers=(1, 2), kernels=KERNELS, seeds=(0, 1), prompts=20),
}
HEADS = Study(
    "functional-heads", SIZES, {name: stage(name, partial(shapes, heads)) for name, heads in LEARNERS.items()}
)
TITLE = f"{PAPER}, Fig. 4: one and two heads, by the number of layers"
FIGURES = (Figure("heads", PAPER, "Fig. 4", TITLE, HEADS, rows, judge, numbers, draw),)
