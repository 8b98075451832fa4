"""Table 1 of *What learning algorithm is in-context learning?*: initial weights, biases and positions.

The paper tries two ways to draw each of the three: uniform scaling (uniform, variance 1 / inputs) and N(0, 1). It
marks uniform scaling as the better one, and gives no numbers. Here all eight combinations are trained, and GPT-2's own
beside them: weights N(0, 0.02^2), biases zero. All are one stack. The error is the learner's squared error over the
mean square of a label, a mean over all lengths.

Judged by this rule, for each of the three: the error with uniform scaling is less than with N(0, 1). The ratio of the
errors is a geometric mean over the combinations of the other two. The interval of its mean over seeds does not reach 1;
of one seed nothing is judged. Where both of a pair learned nothing, their ratio says nothing: for biases and positions,
a pair counts if the error of one of the two is below half of the mean square of a label. For weights all pairs count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal, cast

from innergrad import figures
from innergrad.lab.differences import in_chunks
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.tasks import Linear
from innergrad.papers import linear_learners as base
from innergrad.papers.frame import Figure, Finding, Record, Run, Save, Study, number
from innergrad.papers.linear_learners import PAPER, Bench, mean_interval

How = Literal["gpt2", "uniform-scaling", "normal"]
UNIFORM, NORMAL, GPT2 = ("uniform-scaling", "normal", "gpt2")
WEIGHT = "weight"
PARTS = (WEIGHT, "bias", "position")
LEARNED = 0.5  # of the mean square of a label: errors below are those of a learner that learned
COMBINATIONS = (*product((UNIFORM, NORMAL), repeat=3), (GPT2, GPT2, GPT2))


@dataclass(frozen=True)
class Sizes(base.Sizes):
    """Smaller transformers: there are nine for each seed."""

    steps: int = 5_000
    blocks: int = 8
    d_model: int = 256


FULL = Sizes()
QUICK = replace(
    FULL,
    steps=400,
    batch=32,
    lr=3e-3,
    precision="fp32",
    d=1,
    n_points=7,
    seeds=(0,),
    blocks=2,
    d_model=32,
    heads=2,
    mlp=2,
    prompts=400,
    evaluation=1.0,
)
TINY = replace(QUICK, steps=10, batch=4, n_points=4, seeds=(0, 1), blocks=1, d_model=16, prompts=20, evaluation=0.0)
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def name_of(how: Sequence[str]) -> str:
    return "gpt2" if how[0] == GPT2 else "-".join(one.partition("-")[0] for one in how)


def experiments(sizes: Sizes) -> list[Experiment]:
    found = []
    for how in COMBINATIONS:
        weight, bias, position = (cast(How, one) for one in how)
        learner = replace(base.shape(sizes), weight_init=weight, bias_init=bias, position_init=position)
        for seed in sizes.seeds:
            found.append(base.experiment(sizes, f"init-{name_of(how)}-{seed}", seed, learner))
    return found


def measure(run: Run, learner: Learner, one: Experiment) -> Iterator[tuple[Record, Callable[[], Record]]]:
    assert isinstance(one.learner, GPTConfig)
    how = {part: getattr(one.learner, f"{part}_init") for part in PARTS}
    yield {"measure": "squared error", "seed": one.seed, **how}, partial(error, run, learner)


def error(run: Run, learner: Learner) -> Record:
    """The error by length, over the mean square of a label."""
    sizes: Sizes = run.sizes
    bench = Bench(Linear(d=sizes.d), (), sizes.prompts, sizes.n_points, 2, (), run.device)
    x, y, _ = bench.drawn
    each = (in_chunks(learner.predict, x, y) - y).double().square().mean(0) / y.double().square().mean()
    return {
        "prompts": sizes.prompts,
        "value": number(float(each.mean())),
        "by length": [number(v) for v in each.tolist()],
    }


def stage(run: Run) -> bool:
    return base.learners(run, "learners", experiments(run.sizes), {"learners": 1.0}, measure)


STUDY = Study("linear-inits", SIZES, {"learners": stage})


# -------------------------------------------------------------------------------------------------------------- figure


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row for each combination: the error as a geometric mean over seeds, with its interval."""
    del sizes
    found, records = [], list(records)
    for how in COMBINATIONS:
        mine = [record for record in records if tuple(record[part] for part in PARTS) == how]
        if mine:
            value, low, high = (math.exp(one) for one in mean_interval([_log(record["value"]) for record in mine]))
            row: Record = {"by": name_of(how), **dict(zip(PARTS, how, strict=True)), "interval": "seeds"}
            row |= {"seeds": [record["seed"] for record in mine], "each": [record["value"] for record in mine]}
            found.append(row | {"value": number(value), "low": number(low), "high": number(high)})
    return found


def _log(value: float | None) -> float:
    """An error that is not finite counts as a very large one."""
    return math.log(1e6 if value is None else max(value, 1e-12))


def ratios(rows: Sequence[Record], part: str) -> tuple[list[float], int]:
    """log of the error with N(0, 1) over that with uniform scaling, one a seed: means over what the others are. And how
    many pairs count.
    """
    pairs = []
    for row in (row for row in rows if row[part] == UNIFORM):
        same = {name: row[name] for name in PARTS if name != part}
        other = next(one for one in rows if one[part] == NORMAL and all(one[name] == v for name, v in same.items()))
        if part == WEIGHT or min(row["value"], other["value"]) < LEARNED:
            pairs.append([_log(b) - _log(a) for a, b in zip(row["each"], other["each"], strict=True)])
    return [sum(column) / len(column) for column in zip(*pairs, strict=True)], len(pairs)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    del sizes
    found = []
    for part in PARTS:
        claim = f"{part} initialisation: uniform scaling is better than N(0, 1)"
        if len(rows) < len(COMBINATIONS):
            return [Finding(claim, None, "not all combinations are measured yet")]
        each, pairs = ratios(rows, part)
        if not pairs:
            words = f"{part}: no combination learned, so their errors say nothing"
            found.append(Finding(claim, None, words, testable=False))
            continue
        mean, low, high = (math.exp(value) for value in mean_interval(each))
        words = f"{part}: the error with N(0, 1) is {mean:.4g} times that with uniform scaling"
        words += f" ({low:.4g} to {high:.4g})" if len(each) > 1 else ""
        words += f", over the {pairs} of 4 pairs in which one learned" if part != WEIGHT else ""
        if len(each) == 1:
            found.append(Finding(claim, None, f"{words} (one seed)"))
        else:
            found.append(Finding(claim, low > 1.0, words, unclear=low <= 1.0 <= high))
    return found


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    del sizes
    return {row["by"]: [row["value"], row["low"], row["high"]] for row in rows}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """The error of every combination; bars: 95 % intervals over seeds, dots: seeds."""
    del sizes
    colours = {UNIFORM: figures.BLUE, NORMAL: figures.ORANGE, GPT2: figures.GREEN}
    with figures.new(size=(11.0, 4.8)) as (figure, (ax,)):
        for place, row in enumerate(rows):
            colour = colours[row["weight"]]
            style: dict[str, Any] = {"color": colour, "marker": "o", "ms": 8, "capsize": 4, "lw": 0, "elinewidth": 1.5}
            ax.errorbar([place], [row["value"]], [[row["value"] - row["low"]], [row["high"] - row["value"]]], **style)
            ax.plot([place + 0.15] * len(row["each"]), row["each"], ".", color=colour, ms=5)
        for how, words in ((UNIFORM, "weights: uniform scaling"), (NORMAL, "weights: N(0, 1)"), (GPT2, "GPT-2's own")):
            ax.plot([], [], "o", color=colours[how], ms=8, label=words)
        ax.plot(
            [],
            [],
            ".",
            color=figures.GREY,
            ms=5,
            label="beside: each seed (most intervals\nare smaller than their mark)",
        )
        ax.legend()
        names = [
            row["by"] if row["weight"] == GPT2 else "\n".join(row[part].partition("-")[0] for part in PARTS)
            for row in rows
        ]
        ax.set_xticks(range(len(rows)), names)
        ax.set(yscale="log", ylabel="squared error / mean square", xlabel="weights, biases, positions (from above)")
        figure.suptitle(title)
        save(figure)


TITLE = f"{PAPER} Table 1: initial weights"
FIGURES = (Figure("linear-inits", PAPER, "Table 1", TITLE, STUDY, rows, judge, numbers, draw),)
