"""Fig. 2 of *What learning algorithm is in-context learning?*: noise sigma, weights N(0, tau^2 I), ridge regression.

The best predictor is ridge regression with lambda = sigma^2 / tau^2. For each learner the lambda is found whose ridge
regression predicts most alike: the least SPD, a mean over all lengths (:func:`innergrad.lab.matching_ridge`). The paper
varies the noise at a fixed prior, and the prior at a fixed noise, and gives no values. Here it is the whole grid of
sigma = 0, 0.25, 0.5, 1 and tau = 0.5, 1, 2. (These learners read labels in units of tau, so only sigma / tau matters:
cells with the same ratio are further seeds of one problem.) Transformers of 12 blocks of 256; a stage is a seed.

A lambda is *identifiable* if the minimum is sharp: SPD is at least a tenth larger at 1.5 lambda and at lambda / 1.5.
Judged by these rules:

- in every cell with noise whose lambda is identifiable, and there is one, the lambda is within a factor of 1.5 of
  sigma^2 / tau^2: the geometric mean over seeds;
- lambda rises with sigma at every tau, and falls with tau at every sigma above zero;
- without noise, lambda is at most half the least sigma^2 / tau^2 of the cells with noise (our rule).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.lab.differences import LAMS, SPD, in_chunks, matching_ridge
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.tasks import Linear
from innergrad.papers import linear_learners as base
from innergrad.papers.frame import Figure, Finding, Record, Run, Save, Study, number
from innergrad.papers.linear_learners import PAPER, Bench, geometric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FACTOR = 1.5
SHARP = 0.1
APART = 1000  # between the seeds of two cells


@dataclass(frozen=True)
class Sizes(base.Sizes):
    """And the grid."""

    steps: int = 7_000
    blocks: int = 12
    d_model: int = 256
    evaluation: float = 25.0
    sigmas: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    taus: tuple[float, ...] = (0.5, 1.0, 2.0)

    @property
    def cells(self) -> list[tuple[float, float]]:
        return [(sigma, tau) for sigma in self.sigmas for tau in self.taus]


FULL = Sizes()
QUICK = replace(
    FULL,
    steps=450,
    batch=64,
    d=1,
    **base.SMALL,
    prompts=800,
    sigmas=(0.0, 1.0),
    taus=(0.5, 1.0),
    evaluation=5.0,
)
TINY = replace(QUICK, steps=20, batch=8, n_points=5, seeds=(0, 1), d_model=16, prompts=30, evaluation=0.0)
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def experiments(sizes: Sizes, seed: int) -> list[Experiment]:
    """A learner for every cell. Each has a seed of its own: two cells of one ratio would be the same learner."""
    found = []
    for place, (sigma, tau) in enumerate(sizes.cells):
        task = Linear(d=sizes.d, noise=sigma, tau=tau)
        found.append(base.experiment(sizes, f"noise-{sigma:g}-{tau:g}-{seed}", seed + APART * place, task=task))
    return found


def measure(run: Run, learner: Learner, one: Experiment) -> Iterator[tuple[Record, Callable[[], Record]]]:
    assert isinstance(one.task, Linear)
    key = {"measure": "ridge", "sigma": one.task.noise, "tau": one.task.tau, "seed": int(one.name.rpartition("-")[2])}
    yield key, partial(match, run, learner, one.task)


def match(run: Run, learner: Learner, task: Linear) -> Record:
    """The ridge regression that matches; SPD / d to each of the grid, and to the best predictor, length by length."""
    sizes: Sizes = run.sizes
    bench = Bench(task, (task.best(),), sizes.prompts, sizes.n_points, 2, (), run.device)
    x, y, _ = bench.drawn
    found = matching_ridge(in_chunks(learner.predict, x, y), x, y)
    values = {name: number(getattr(found, name)) for name in ("lam", "low", "high", "spd")}
    (posterior,) = bench.spd(learner.predict).values()
    unit = task.tau**2  # SPD is that of labels; in units of the prior it is comparable
    return {"prompts": sizes.prompts, **values, "unit": unit, "curve": [number(value) for value in found.curve],
            "posterior": posterior}  # fmt: skip


def stage(place: int, run: Run) -> bool:
    sizes: Sizes = run.sizes
    stack = [one for seed in sizes.seeds[place : place + 1] for one in experiments(sizes, seed)]
    return base.learners(run, NAMES[place], stack, dict.fromkeys(NAMES, 1.0), measure)


NAMES = base.stage_names(len(FULL.seeds))
STUDY = Study("linear-noise", SIZES, {name: partial(stage, place) for place, name in enumerate(NAMES)})


# -------------------------------------------------------------------------------------------------------------- figure


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row a cell: lambda as a geometric mean over seeds with its interval, and SPD / (d tau^2) by lambda."""
    found, records = [], list(records)
    for sigma, tau in sizes.cells:
        mine = [record for record in records if (record["sigma"], record["tau"]) == (sigma, tau)]
        if mine:
            curves = [[value / record["unit"] for value in record["curve"]] for record in mine]
            lam, low, high = geometric([record["lam"] for record in mine])
            if len(mine) == 1:
                low, high = mine[0]["low"], mine[0]["high"]
            row: Record = {"measure": SPD, "sigma": sigma, "tau": tau, "seeds": [record["seed"] for record in mine]}
            row |= {"interval": "seeds" if len(mine) > 1 else "prompts", "prompts": mine[0]["prompts"]}
            row |= {"lam": number(lam), "low": number(low), "high": number(high), "truth": (sigma / tau) ** 2}
            row["curve"] = [number(sum(column) / len(column)) for column in zip(*curves, strict=True)]
            found.append(
                row | {"spread": [[number(v) for v in geometric(column)] for column in zip(*curves, strict=True)]}
            )
    return found


def at(row: Record, lam: float) -> float:
    """SPD at a penalty, between those that were tried; their ends beyond."""
    logs = [math.log(one) for one in LAMS]
    place = min(max((math.log(lam) - logs[0]) / (logs[1] - logs[0]), 0.0), len(logs) - 1.0)
    low = min(int(place), len(logs) - 2)
    a, b = row["curve"][low : low + 2]
    return float(a + (place - low) * (b - a))


def identifiable(row: Record) -> bool:
    """Whether SPD is least at lambda, and a tenth larger at 1.5 times lambda and at lambda / 1.5."""
    least, lam = at(row, row["lam"]), row["lam"]
    return all(at(row, other) >= (1 + SHARP) * least for other in (lam * FACTOR, lam / FACTOR))


def near(row: Record) -> bool:
    """Whether lambda is within the factor of what it should be."""
    return bool(1 / FACTOR <= row["lam"] / row["truth"] <= FACTOR)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    claim = "the ridge parameter that matches best is sigma² / tau²"
    if len(rows) < len(sizes.cells):
        return [Finding(claim, None, "not all cells are measured yet")]
    noisy = [row for row in rows if row["sigma"] > 0]
    sharp = [row for row in noisy if identifiable(row)]
    told = "; ".join(
        f"{truth:g}: " + ", ".join(said(row) + "*" * (row not in sharp) for row in same)
        for truth, same in _by_truth(noisy).items()
    )
    words = f"sigma²/tau² and the lambdas of its cells (*: not identifiable): {told}"
    spared = [row for row in noisy if row not in sharp and not near(row)]
    cells = ", ".join(f"sigma = {row['sigma']:g} and tau = {row['tau']:g}" for row in spared)
    words += f"; outside a factor of {FACTOR:g}, and not judged since not identifiable: {cells}" * bool(spared)
    larger = sum(row["low"] > row["truth"] for row in noisy)
    words += f"; larger than sigma²/tau², beyond their intervals, in {larger} of {len(noisy)} cells" * bool(larger)
    held = bool(sharp) and all(near(row) for row in sharp)
    return [Finding(claim, held, words, brief=farthest(sharp)), rises(sizes, rows), without_noise(rows)]


def farthest(rows: Sequence[Record]) -> str:
    """The lambda that is farthest from what it should be, over that."""
    if not rows:
        return "no cell is identifiable"
    row = max(rows, key=lambda one: abs(math.log(one["lam"] / one["truth"])))
    value, low, high = (row[side] / row["truth"] for side in ("lam", "low", "high"))
    return f"λ is {value:.2f} ({low:.2f} to {high:.2f}) times that, or nearer, in {len(rows)} cells"


def said(row: Record) -> str:
    """The lambda of a cell, with its interval."""
    return f"{row['lam']:.3g} ({row['low']:.3g} to {row['high']:.3g})"


def _by_truth(rows: Sequence[Record]) -> dict[float, list[Record]]:
    """Cells of one problem: only sigma / tau matters."""
    order = sorted({row["truth"] for row in rows})
    return {truth: [row for row in rows if row["truth"] == truth] for truth in order}


def rises(sizes: Sizes, rows: Sequence[Record]) -> Finding:
    claim = "the matching lambda rises with the noise and falls with the prior's variance"
    lam = {(row["sigma"], row["tau"]): row["lam"] for row in rows}
    up = [(lam[a, tau], lam[b, tau]) for tau in sizes.taus for a, b in pairwise(sizes.sigmas)]
    down = [(lam[sigma, b], lam[sigma, a]) for sigma in sizes.sigmas if sigma for a, b in pairwise(sizes.taus)]
    held = sum(a < b for a, b in up + down)
    words = f"lambda is ordered in {held} of {len(up + down)} neighbouring cells"
    ratios = len({row["truth"] for row in rows if row["truth"]})
    words += f" (they have {ratios} different sigma²/tau²: learners read labels in units of tau)"
    return Finding(claim, held == len(up + down), words)


def without_noise(rows: Sequence[Record]) -> Finding:
    claim = "without noise the matching lambda is near zero"
    lams = [row["lam"] for row in rows if not row["sigma"]]
    least = min(row["truth"] for row in rows if row["sigma"] > 0)
    words = f"without noise lambda is at most {max(lams):.2g}; the least sigma²/tau² of the others is {least:g}"
    return Finding(claim, max(lams) <= least / 2, words, ours=True)


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """By cell: lambda with its interval, what it should be, and whether it is identifiable."""
    del sizes
    return {
        f"sigma {row['sigma']:g}, tau {row['tau']:g}": {
            "lambda": [row["lam"], row["low"], row["high"]],
            "sigma^2 / tau^2": row["truth"],
            "identifiable": identifiable(row),
        }
        for row in rows
    }


SHIFT = 1.25  # between cells of one problem, side by side
COLOURS = (figures.GREY, figures.BLUE, figures.GREEN, figures.ORANGE)  # of the sigmas
MARKERS = "os^D"  # of the taus


def draw_lambdas(ax: Axes, sizes: Sizes, rows: Sequence[Record]) -> None:
    """Lambda over sigma^2 / tau^2, which should be 1, in every cell with noise. As a ratio, cells of one problem can
    stand side by side: the rule is as near to all of them.
    """
    ax.axhline(1.0, color=figures.DARK, lw=1.0)
    ax.axhspan(1 / FACTOR, FACTOR, color=figures.GREY, alpha=0.2, lw=0)
    for truth, same in _by_truth(rows).items():
        for place, row in enumerate(same):
            x = truth * SHIFT ** (place - (len(same) - 1) / 2)
            colour = COLOURS[sizes.sigmas.index(row["sigma"]) % len(COLOURS)]
            marker = MARKERS[sizes.taus.index(row["tau"]) % len(MARKERS)]
            bars = [[(row["lam"] - row["low"]) / truth], [(row["high"] - row["lam"]) / truth]]
            style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 8, "capsize": 4}
            ax.errorbar([x], [row["lam"] / truth], bars, mfc=colour if identifiable(row) else "white", **style)
    ax.set(xscale="log", yscale="log", xlabel="σ² / τ²; cells of one value side by side")
    ax.set_ylabel("λ of the ridge regression that matches,\nover σ² / τ²")
    over = rows[0]["interval"] if rows else "seeds"
    ax.set_title(f"filled: identifiable; shaded: within a factor of {FACTOR:g};\nbars: 95 % intervals over {over}")
    ends = [end / row["truth"] for row in rows for end in (row["low"], row["high"])]
    _ticks(ax, [row["truth"] for row in rows], ends)
    _name_cells(ax, sizes)


def _ticks(ax: Axes, truths: Sequence[float], ends: Sequence[float]) -> None:
    """In plain numbers, with room above for the legend."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    known = sorted({*truths})
    ax.set_xticks(known, [f"{truth:.3g}" for truth in known])
    ax.minorticks_off()
    ax.set_ylim(min([1 / FACTOR, *ends]) / 1.2, 2.5 * max([FACTOR, *ends]))
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _name_cells(ax: Axes, sizes: Sizes) -> None:
    """What colours and markers mean."""
    noisy = [(sigma, colour) for sigma, colour in zip(sizes.sigmas, COLOURS, strict=False) if sigma]
    for sigma, colour in noisy:
        ax.plot([], [], color=colour, lw=6, label=f"σ = {sigma:g}")
    for tau, marker in zip(sizes.taus, MARKERS, strict=False):
        ax.plot([], [], color=figures.DARK, lw=0, marker=marker, ms=8, label=f"τ = {tau:g}")
    ax.legend(loc="upper right", ncols=2)


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """Left: the matching lambda over sigma^2 / tau^2. Right: SPD by lambda, for the middle tau."""
    with figures.new(1, 2, size=(12.6, 4.9)) as (figure, (left, right)):
        draw_lambdas(left, sizes, [row for row in rows if row["sigma"] > 0])
        middle, shown, seeds = sizes.taus[len(sizes.taus) // 2], list[float](), len(rows[0]["seeds"]) if rows else 0
        for row in (row for row in rows if row["tau"] == middle):
            colour = COLOURS[sizes.sigmas.index(row["sigma"]) % len(COLOURS)]
            value, low, high = zip(*row["spread"], strict=True)
            right.plot(LAMS, value, color=colour, lw=1.8, label=f"σ = {row['sigma']:g}")
            right.fill_between(LAMS, low, high, color=colour, alpha=0.18, lw=0)
            shown += value
            if row["truth"]:
                right.axvline(row["truth"], color=colour, lw=1.0, ls=":")
        right.set(xscale="log", yscale="log", xlabel="λ (dotted: σ² / τ²)")
        right.set_ylabel("SPD / d to the ridge regression,\nin units of τ²")
        if shown:  # of two seeds, an interval may be far longer
            right.set_ylim(min(shown) / 3, max(shown) * 3)
        right.set_title(f"τ = {middle:g}; {'one seed' if seeds == 1 else f'shaded: 95 % intervals over {seeds} seeds'}")
        right.legend()
        figure.suptitle(title)
        save(figure)


TITLE = f"{PAPER} Fig. 2: noise σ, weights N(0, τ²)"
FIGURES = (Figure("linear-noise", PAPER, "Fig. 2", TITLE, STUDY, rows, judge, numbers, draw),)
