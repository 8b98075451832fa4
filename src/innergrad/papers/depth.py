"""Fig. 5 of *Transformers are Deep Optimizers*: transformers of 4, 6, 8 and 10 blocks, both attentions.

Everything is as for Fig. 1 and 2, but for the blocks and for fewer steps. Which networks the figure is about, the paper
does not say: 4 layers here, those of Fig. 3 and 4. Judged by these rules, for each attention and for 15, 30 and 45
examples (30, 60 and 90 % of the longest prompt of training), by pooled R^2:

- the deepest transformer is better than the shallowest;
- every two more blocks make it better (our question: the paper speaks of deeper ones only).

*Better*: every seed of the one is above every seed of the other. With three seeds each, chance does that once in 20
times. A test by means and Student's t would say less here: one learner of four blocks that lags behind makes the
interval of the three so long that nothing is outside. A claim is refuted if its means are in the other order, and not
resolved if they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from innergrad import figures
from innergrad.papers import views
from innergrad.papers.deep_optimizers import SIZES, Sizes, Variant, learners
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.mixtures import PAPER
from innergrad.papers.views import COLUMNS, LEARNER, POOLED, at, pick

ATTENTIONS: tuple[Literal["softmax", "relu"], ...] = ("softmax", "relu")
CLAIMS = ("a deeper transformer is better", "every two more blocks are better")
EFFORTS = (7.0, 9.0, 11.0, 13.0)  # about as the time of a step, from the shallowest to the deepest
OWN: dict[str, Any] = {
    "layers": (4,),
    "w1": (1.0,),
    "weight_means": (),
    "other_layers": (),
    "other_widths": (),
    "kept": 0,
    "evaluation": 10.0,
}
SHORT: dict[str, Any] = {"steps": 12_000, "settled": 0.4}  # of the full size


def stage(attention: str, depth: int) -> str:
    """softmax-1 to softmax-4, from the shallowest to the deepest."""
    return f"{attention}-{depth + 1}"


STAGES = {
    stage(attention, depth): Variant(stage(attention, depth), attention, depth=depth, effort=EFFORTS[depth])
    for attention in ATTENTIONS
    for depth in range(len(EFFORTS))
}


def examples(sizes: Sizes) -> list[int]:
    """15, 30 and 45 of 50."""
    return [round(share * (sizes.n_points - 1)) for share in (0.3, 0.6, 0.9)]


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Means over seeds; of learners, each seed, too, at the lengths of the figure."""
    records = list(records)
    found = views.rows_of(records)
    for row in (row for row in found if row["by"] == LEARNER):
        mine = [one for one in records if one["by"] == LEARNER and one["variant"] == row["variant"]]
        mine = sorted((one for one in mine if one["test"] == row["test"]), key=lambda one: int(one["seed"]))
        curves = [one["curves"] for one in mine]
        row["each"] = {
            str(k): [curve[POOLED]["value"][curve["k"].index(k)] for curve in curves] for k in examples(sizes)
        }
    return found


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = []
    for attention in ATTENTIONS:
        claim, every = (f"{attention} attention: {what}" for what in CLAIMS)
        told, ends, gains, means = list[str](), list[bool](), list[list[bool]](), list[float]()
        for k in examples(sizes):
            picked = [pick(rows, LEARNER, variant=stage(attention, depth)) for depth in range(len(sizes.depths))]
            known = [
                views.spread(row, POOLED, k) for row in picked if row is not None and at(row, POOLED, k) is not None
            ]
            if len(known) < len(sizes.depths):
                words = f"{attention} attention: not all depths are measured yet"
                found += [Finding(claim, None, words), Finding(every, None, words, ours=True)]
                break
            each = [row["each"][str(k)] for row in picked if row is not None]
            ends.append(above(each[0], each[-1]))
            gains.append([above(a, b) for a, b in pairwise(each)])
            means += [known[-1][0] - known[0][0]]
            told.append(f"k = {k}: " + ", ".join(views.said(one, 4) for one in known))
        else:
            words = f"{attention} attention, pooled R² for {', '.join(map(str, sizes.depths))} blocks: "
            first, *_, last = sizes.depths
            gain = f"{views.said(known[0], 4)} with {first} blocks, {views.said(known[-1], 4)} with {last}"
            words += (
                f"{'; '.join(told)}; every seed of {last} blocks is above every seed of {first} at {sum(ends)} of 3 k"
            )
            unclear = not all(ends) and all(mean > 0 for mean in means)
            found.append(Finding(claim, all(ends), words, brief=f"pooled R² {gain} (k = {k})", unclear=unclear))
            steps = [f"{a} to {b} blocks" for a, b in pairwise(sizes.depths)]
            clear = [step for step, each in zip(steps, zip(*gains, strict=True), strict=True) if all(each)]
            words = f"{attention} attention, steps after which every seed is above every seed before, at every k: "
            held = len(clear) == len(steps)
            found.append(Finding(every, held, words + (", ".join(clear) or "none"), ours=True, unclear=not held))
    return found


def above(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether every seed of the second is above every seed of the first."""
    return min(higher) > max(lower)


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Pooled R^2 with its interval, by kind of learner and number of examples."""
    found: Record = {}
    for row in (row for row in rows if row["by"] == LEARNER):
        places = [row["k"].index(k) for k in examples(sizes)]
        found[row["variant"]] = [[row[POOLED][column][place] for column in COLUMNS] for place in places]
    return found


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A row an attention, a column a number of examples: pooled R^2 by the number of blocks; bars: 95 % intervals over
    seeds. Every panel has a scale of its own, that of its values.
    """
    columns = examples(sizes)
    with figures.new(len(ATTENTIONS), len(columns), size=(13.0, 7.0)) as (figure, axes):
        panels = [(attention, k) for attention in ATTENTIONS for k in columns]
        for ax, (attention, k) in zip(axes, panels, strict=True):
            picked = [pick(rows, LEARNER, variant=stage(attention, depth)) for depth in range(len(sizes.depths))]
            known = [(blocks, *views.spread(row, POOLED, k)) for blocks, row in zip(sizes.depths, picked, strict=True)
                     if row and at(row, POOLED, k) is not None]  # fmt: skip
            style: dict[str, Any] = {"color": figures.BLUE, "marker": "o", "ms": 6, "lw": 1.8, "capsize": 4}
            places, values, halves = zip(*known, strict=True) if known else ((), (), ())
            ax.errorbar(places, values, halves, **style)
            if len(values) > 1 and max(values) > min(values):  # an interval may be far longer
                room = 0.6 * (max(values) - min(values))
                ax.set_ylim(min(values) - room, max(values) + room)
            ax.ticklabel_format(axis="y", useOffset=False)
            ax.set(xlabel="blocks of the transformer", ylabel="pooled R²", title=f"{attention} attention, {k} examples")
            ax.set_xticks(sizes.depths)
        words = "bars: 95 % intervals over seeds; each panel has its own scale, where longer bars are cut"
        figure.suptitle(f"{title}\n{words}")
        save(figure)


OWN_SIZES = {name: replace(sizes, **OWN) for name, sizes in SIZES.items()}
OWN_SIZES["full"] = replace(OWN_SIZES["full"], **SHORT)
OWN_SIZES["quick"] = replace(OWN_SIZES["quick"], steps=250)
DEPTH = Study("depth", OWN_SIZES, {name: partial(learners, name, STAGES) for name in STAGES})
TITLE = f"{PAPER}, Fig. 5: the depth of the transformer"
FIGURES = (Figure("depth", PAPER, "Fig. 5", TITLE, DEPTH, rows, judge, numbers, draw),)
