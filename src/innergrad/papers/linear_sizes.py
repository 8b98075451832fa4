"""Fig. 3 of *What learning algorithm is in-context learning?*: which algorithm matches small transformers.

Depth is varied at one width, and width at one depth; the paper tunes the other of the two, and the heads, each time.
No noise. For every learner the mean of SPD over all lengths is taken to each algorithm: one step of gradient descent at
its best rate, one pass of SGD, ridge regression with lambda = 0.1 and 1, least squares. (The paper does not give its
lambdas.) The least of them is the match. To predict zero is no algorithm, but stands beside them: a learner to which it
is nearer still has learned little. A stage is a shape; its seeds are one stack.

Judged by these rules, by geometric means over seeds:

- depth: the shallowest matches gradient descent (the paper: "though not well-approximated in an absolute sense");
- after those that match gradient descent, matches go from ridge regression to least squares, both are there, and
  neither comes back;
- width: the narrowest matches ridge regression. If it has learned little, this is not resolved: it may need a longer
  training;
- from 32 numbers on, least squares matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile, groupby
from typing import TYPE_CHECKING, Any, Literal

from innergrad import figures
from innergrad.lab.baselines import LeastSquares, OnePass, OneStep, Predictor, Ridge, Zero
from innergrad.lab.differences import SPD, in_chunks, matching_ridge
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.tasks import Linear
from innergrad.papers import linear_learners as base
from innergrad.papers.frame import Figure, Finding, Record, Run, Save, Study, number
from innergrad.papers.linear_learners import PAPER, Bench, geometric, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAMBDAS = (0.1, 1.0)
WIDE = 32  # the paper: even 32 numbers match least squares
GD, RIDGE, OLS, NOTHING = "gradient descent", "ridge regression", "least squares", "zero"
CANDIDATES: tuple[tuple[str, Predictor], ...] = (
    (OLS, LeastSquares()),
    *((RIDGE, Ridge(lam, intercept=False)) for lam in LAMBDAS),
    (GD, OneStep()),
    (GD, OnePass()),
    (NOTHING, Zero()),
)
FAMILY = {one.name: family for family, one in CANDIDATES}


@dataclass(frozen=True)
class Sizes(base.Sizes):
    """And the shapes. ``d_model`` is the width where depth varies, ``blocks`` the depth where width does."""

    steps: int = 6_000
    blocks: int = 8
    d_model: int = 256
    evaluation: float = 6.0
    depths: tuple[int, ...] = (1, 2, 4, 8, 16)
    widths: tuple[int, ...] = (16, 32, 64, 512)


#: About the seconds of a stage with 6,000 steps on an H200 of its own: compiling, and steps; estimated.
EFFORTS = {"depth-1": 50.0, "depth-2": 60.0, "depth-3": 80.0, "depth-4": 125.0, "depth-5": 200.0,
           "width-1": 100.0, "width-2": 100.0, "width-3": 110.0, "width-4": 225.0}  # fmt: skip
FULL = Sizes()
QUICK = replace(
    FULL,
    steps=350,
    batch=40,
    d=1,
    **base.SMALL | {"seeds": (0, 1, 2)},
    prompts=400,
    depths=(1, 2, 3),
    widths=(16,),
    evaluation=1.0,
)
TINY = replace(
    QUICK,
    steps=20,
    batch=8,
    d=3,
    n_points=6,
    seeds=(0, 1),
    blocks=2,
    d_model=16,
    prompts=30,
    depths=(1, 2),
    widths=(8,),
    evaluation=0.0,
)
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def shape(sizes: Sizes, stage: str) -> GPTConfig | None:
    """depth-1, the shallowest, to depth-5, and width-1 to width-4; None for those that these sizes do not have."""
    kind, place = stage.split("-")
    values = sizes.depths if kind == "depth" else sizes.widths
    if int(place) > len(values):
        return None
    value = values[int(place) - 1]
    return base.shape(sizes, blocks=value) if kind == "depth" else base.shape(sizes, width=value)


def measure(run: Run, learner: Learner, one: Experiment) -> Iterator[tuple[Record, Callable[[], Record]]]:
    assert isinstance(one.learner, GPTConfig)
    key = {"measure": SPD, "blocks": one.learner.n_layers, "width": one.learner.d_model, "seed": one.seed}
    yield key, partial(distances, run, learner)


def distances(run: Run, learner: Learner) -> Record:
    """SPD / d to every candidate, length by length, and the ridge regression that matches."""
    sizes: Sizes = run.sizes
    references = tuple(one for _, one in CANDIDATES)
    bench = Bench(Linear(d=sizes.d), references, sizes.prompts, sizes.n_points, 2, (), run.device)
    x, y, _ = bench.drawn
    match = matching_ridge(in_chunks(learner.predict, x, y), x, y)
    return {"prompts": sizes.prompts, "curves": bench.spd(learner.predict), "lam": number(match.lam)}


def stage(name: str, run: Run) -> bool:
    sizes: Sizes = run.sizes
    learner = shape(sizes, name)
    seeds = sizes.seeds if learner else ()
    stack = [base.experiment(sizes, f"{name}-{seed}", seed, learner) for seed in seeds]
    return base.learners(run, name, stack, EFFORTS, measure)


STUDY = Study("linear-sizes", SIZES, {name: partial(stage, name) for name in EFFORTS})


# -------------------------------------------------------------------------------------------------------------- figure


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row for each shape and candidate: the mean of SPD / d over lengths; over seeds, the geometric mean and its
    interval.
    """
    del sizes
    found: list[Record] = []
    order = sorted(records, key=lambda record: (record["blocks"], record["width"], record["seed"]))
    for (blocks, width), group in groupby(order, key=lambda record: (record["blocks"], record["width"])):
        mine = list(group)
        means = {name: [_mean(record["curves"][name]) for record in mine] for name in FAMILY}
        match = [min((name for name in FAMILY if FAMILY[name] != NOTHING), key=lambda name: means[name][place])
                 for place in range(len(mine))]  # fmt: skip
        shared: Record = {"measure": SPD, "blocks": blocks, "width": width, "prompts": mine[0]["prompts"]}
        shared |= {"seeds": [record["seed"] for record in mine], "lam": [record["lam"] for record in mine]}
        shared |= {"interval": "seeds", "matches": match}
        for name, values in means.items():
            value, low, high = (number(one) for one in geometric(values))
            found.append({**shared, "by": name, "family": FAMILY[name], "value": value, "low": low, "high": high})
    return found


def _mean(curve: Record) -> float:
    """Over all lengths but zero."""
    values = [value for k, value in zip(curve["k"], curve["value"], strict=True) if k]
    return float(sum(values) / len(values))


Axis = Literal["blocks", "width"]


def series(sizes: Sizes, rows: Sequence[Record], axis: Axis) -> dict[int, list[Record]]:
    """The candidates' rows for each depth at the one width, or for each width at the one depth."""
    if axis == "blocks":
        wanted = [(blocks, sizes.d_model) for blocks in sizes.depths]
    else:
        wanted = [(sizes.blocks, width) for width in sorted({*sizes.widths, sizes.d_model})]
    found = {pair: [row for row in rows if (row["blocks"], row["width"]) == pair] for pair in wanted}
    place = 0 if axis == "blocks" else 1
    return {pair[place]: group for pair, group in found.items() if group}


def matched(group: Sequence[Record]) -> Record:
    """The candidate with the least mean over seeds; to predict nothing is none."""
    return min((row for row in group if row["family"] != NOTHING), key=lambda row: float(row["value"]))


def family(group: Sequence[Record]) -> str:
    return str(matched(group)["family"])


def idle(group: Sequence[Record]) -> bool:
    """Whether to predict zero is nearer than every algorithm."""
    nothing = next(row for row in group if row["family"] == NOTHING)
    return bool(nothing["value"] < matched(group)["value"])


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    return [*judge_depth(sizes, rows), *judge_width(sizes, rows)]


def judge_depth(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = series(sizes, rows, "blocks")
    claims = (
        "the shallowest transformers match gradient descent",
        "as depth grows, the match goes from ridge regression to least squares",
    )
    if len(found) < len(sizes.depths):
        return [Finding(claim, None, "not all depths are measured yet") for claim in claims]
    matches = {depth: family(group) for depth, group in found.items()}
    shallow, *_ = matches
    later = list(dropwhile(lambda depth: matches[depth] == GD, matches))
    order = [one for one, _ in groupby(matches[depth] for depth in later)]
    words = f"match of the least depth: {told(found, [shallow])}", f"matches by depth: {told(found, later)}"
    held = matches[shallow] == GD, order == [RIDGE, OLS]
    return [Finding(*one) for one in zip(claims, held, words, strict=True)]


def judge_width(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = series(sizes, rows, "width")
    claims = "the narrowest transformers match ridge regression", f"from {WIDE} numbers on they match least squares"
    if len(found) < len({*sizes.widths, sizes.d_model}):
        return [Finding(claim, None, "not all widths are measured yet") for claim in claims]
    matches = {width: family(group) for width, group in found.items()}
    narrow, *_ = matches
    wide = [width for width in matches if width >= WIDE]
    words = f"match of the least width: {told(found, [narrow])}", f"matches by width: {told(found, wide)}"
    first = matches[narrow] == RIDGE
    return [
        Finding(claims[0], first, words[0], unclear=not first and idle(found[narrow])),
        Finding(claims[1], all(matches[width] == OLS for width in wide), words[1]),
    ]


def told(found: dict[int, list[Record]], values: Sequence[int]) -> str:
    """Matches in words, with SPD / d, how many seeds agree, and whether zero is nearer."""
    words = []
    for value in values:
        group = found[value]
        best = matched(group)
        agree = sum(FAMILY[name] == best["family"] for name in best["matches"])
        nearer = ", zero is nearer" if idle(group) else ""
        away = span(best["value"], best["low"], best["high"])
        words.append(f"{value}: {best['by']} ({away}, {agree} of {len(best['matches'])} seeds{nearer})")
    return "; ".join(words)


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """By shape: the match, its SPD / d with the interval, and the lambdas that match best, one a seed."""
    found: Record = {}
    for axis in ("blocks", "width"):
        for value, group in series(sizes, rows, axis).items():
            best = matched(group)
            about = {"match": best["by"], "SPD": [best["value"], best["low"], best["high"]], "lambda": best["lam"]}
            found[f"{axis} {value}"] = about
    return found


LABEL = "SPD / d to the learner, mean over lengths\n(1: the mean square of labels)"
COLOURS = (figures.BLUE, figures.SKY, figures.GREEN, figures.ORANGE, figures.AMBER, figures.GREY)


STEP = 1.05  # between the candidates of one shape, side by side


def draw_candidates(ax: Axes, found: dict[int, list[Record]]) -> None:
    """A curve for each candidate, with bars."""
    for place, ((_, candidate), colour) in enumerate(zip(CANDIDATES, COLOURS, strict=True)):
        picked = [(value, row) for value, group in found.items() for row in group if row["by"] == candidate.name]
        values = [row["value"] for _, row in picked]
        bars = [
            [row["value"] - row["low"] for _, row in picked],
            [row["high"] - row["value"] for _, row in picked],
        ]
        style: dict[str, Any] = {"color": colour, "marker": "o", "ms": 5, "lw": 1.8, "capsize": 3}
        style["ls"] = ":" if isinstance(candidate, Zero) else "-"
        x = [value * STEP ** (place - (len(CANDIDATES) - 1) / 2) for value, _ in picked]
        ax.errorbar(x, values, bars, label=candidate.name, **style)


def cut(found: dict[int, list[Record]], bottom: float, top: float) -> str:
    """In words, the intervals that an axis is too short for: of learners of nothing, some are at zero."""
    told = [
        f"{row['by']} at {value}, from {row['low']:.0e} to {row['high']:.3g}"
        for value, group in found.items()
        for row in group
        if row["low"] < bottom or row["high"] > top
    ]
    return f"cut at the edges: {'; '.join(told)}" if told else ""


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """Width on the left, depth on the right, as in the paper; bars: 95 % intervals over seeds."""
    known = [row["value"] for row in rows if row["family"] != NOTHING]  # a learner of nothing is at zero
    bottom, top = min(known, default=1e-3) / 3, 3 * max(known, default=1.0)
    seeds = min((len(row["seeds"]) for row in rows), default=1)
    bars = f"bars: 95 % intervals over {seeds} seeds" if seeds > 1 else "one seed"
    with figures.new(1, 2, size=(13.4, 4.9), share_y=True) as (figure, axes):
        panels: tuple[tuple[Axis, str], ...] = (
            ("width", f"width: numbers of the stream, with {sizes.blocks} blocks"),
            ("blocks", f"depth: blocks, of width {sizes.d_model}"),
        )
        for ax, (axis, label) in zip(axes, panels, strict=True):
            found = series(sizes, rows, axis)
            draw_candidates(ax, found)
            ax.set(xscale="log", yscale="log", xlabel=label, ylabel=LABEL, ylim=(bottom, top))
            ax.set_xticks(list(found), [str(value) for value in found])
            ax.minorticks_off()
            ax.set_title("\n".join(filter(None, (bars, cut(found, bottom, top)))))
        figure.legend(*axes[1].get_legend_handles_labels(), loc="outside right center")
        figure.suptitle(title)
        save(figure)


TITLE = f"{PAPER} Fig. 3: depth and width of the transformer"
FIGURES = (Figure("linear-sizes", PAPER, "Fig. 3", TITLE, STUDY, rows, judge, numbers, draw),)
