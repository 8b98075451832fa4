"""Fig. 1 of *What learning algorithm is in-context learning?*: a learner beside known algorithms, without noise.

A transformer of 16 blocks of 512 numbers and 4 heads learns from prompts of 40 pairs with d = 8 inputs. Its SPD and ILW
to each algorithm, divided by d, are measured at every number of pairs (:mod:`innergrad.lab.differences`). Descent has
the best rates for this task; the paper names none. 3-NN has the weights that are printed, under which far points count
more, and the inverse distances that are surely meant. The same run probes the layers for Fig. 4
(:mod:`innergrad.papers.linear_probes`). A stage is a seed: its weights are too large to keep.

Judged by these rules:

- with more than d pairs, SPD / d to least squares is below 0.01 at every length;
- so is ILW / d, at every length where it is measured;
- by the mean over all lengths, least squares is nearest of all, in SPD and in ILW;
- with fewer than d pairs, at every length, the SPD to least squares (of least norm there) is the least of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from innergrad import figures
from innergrad.lab.differences import ILW, REFERENCES, SPD
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.probes import ProbeConfig, probe
from innergrad.lab.tasks import Linear
from innergrad.papers import linear_learners as base
from innergrad.papers.frame import Figure, Finding, Record, Run, Save, Study, number
from innergrad.papers.linear_learners import PAPER, Bench, at

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

NEAR = 0.01
BEST = REFERENCES[0].name
PROBES = "probes"
TRAINED, UNTRAINED = "trained", "untrained"
SHOWN = ("moments", "weights")  # the targets whose attention is kept
STYLES: tuple[dict[str, Any], ...] = (
    {"color": figures.BLUE, "lw": 2.2},
    {"color": figures.SKY, "lw": 1.6},
    {"color": figures.ORANGE, "lw": 1.6},
    {"color": figures.AMBER, "lw": 1.6, "ls": "--"},
    {"color": figures.GREEN, "lw": 1.6},
    {"color": figures.GREY, "lw": 1.4, "ls": "--"},
    {"color": figures.DARK, "lw": 1.4, "ls": ":"},
)


@dataclass(frozen=True)
class Sizes(base.Sizes):
    """And those of implied weights and of probes."""

    steps: int = 12_000
    prompts: int = 3200
    evaluation: float = 200.0
    weight_prompts: int = 200
    ks: tuple[int, ...] = (1, 2, 4, 6, 8, 10, 12, 16, 24, 40)  # pairs, where weights are implied
    prefixes: tuple[int, ...] = (2, 4, 6, 8, 12, 20)  # pairs, that probes are about
    probe_steps: int = 1500
    probe_batch: int = 256
    probe_lr: float = 1e-3
    probe_prompts: int = 1024
    probe_seconds: float = 75.0  # at most, for the trained learner, and again for an untrained one


FULL = Sizes()
SMALL = replace(
    FULL,
    steps=4000,
    lr=2e-3,
    precision="fp32",
    d=4,
    n_points=21,
    blocks=6,
    d_model=64,
    init_std=0.08,
    prompts=1600,
    ks=(1, 2, 3, 4, 5, 6, 8, 12, 20),
    prefixes=(1, 2, 3, 4, 6, 10),
    probe_batch=128,
    probe_lr=3e-3,
    probe_seconds=600.0,
    evaluation=0.0,
)
QUICK = replace(
    FULL,
    steps=800,
    batch=64,
    d=2,
    **base.SMALL,
    prompts=400,
    weight_prompts=60,
    ks=(1, 2, 3, 4, 6, 8),
    prefixes=(2, 4),
    probe_steps=250,
    probe_batch=64,
    probe_lr=1e-2,
    probe_prompts=400,
    evaluation=10.0,
)
TINY = replace(
    QUICK,
    steps=20,
    batch=8,
    d=3,
    n_points=6,
    seeds=(0, 1),
    blocks=1,
    d_model=16,
    heads=1,
    prompts=30,
    weight_prompts=6,
    ks=(2, 4, 5),
    prefixes=(2, 3),
    probe_steps=4,
    probe_batch=8,
    probe_prompts=20,
    evaluation=0.0,
)
SIZES = {"full": FULL, "small": SMALL, "quick": QUICK, "tiny": TINY}


# --------------------------------------------------------------------------------------------------------------- study


def bench(sizes: Sizes, device: str) -> Bench:
    task = Linear(d=sizes.d)
    return Bench(task, REFERENCES, sizes.prompts, sizes.n_points, sizes.weight_prompts, sizes.ks, device)


def measure(run: Run, learner: Learner, one: Experiment) -> Iterator[tuple[Record, Callable[[], Record]]]:
    """Everything that is measured of a learner: keys, and functions that make the rest of the records."""
    sizes: Sizes = run.sizes
    beside, key = bench(sizes, run.device), {"seed": one.seed}
    yield {"measure": SPD, **key}, lambda: {"prompts": sizes.prompts, "curves": beside.spd(learner.predict)}
    yield {"measure": ILW, **key}, lambda: {"prompts": sizes.weight_prompts, "curves": beside.ilw(learner.predict)}
    untrained = one.learner.build(one.task.d, one.n_points).init([one.seed]).to(run.device)
    for states, probed in ((TRAINED, learner), (UNTRAINED, untrained)):
        yield {"measure": PROBES, "states": states, **key}, partial(probes, run, probed, states)


def probes(run: Run, learner: Learner, states: str) -> Record:
    """Errors of probes, (layers, prefixes), by read-out and target; where those of the trained learner look."""
    sizes: Sizes = run.sizes
    chosen: dict[str, Any] = {"steps": sizes.probe_steps, "batch": sizes.probe_batch, "lr": sizes.probe_lr}
    config = ProbeConfig(n_prompts=sizes.probe_prompts, **chosen)
    seconds = min(sizes.probe_seconds, max(1.0, run.clock.left - 5.0))
    shared: dict[str, Any] = {"config": config, "seconds": seconds, "device": run.device}
    with tensor_cores():
        found = probe(learner, Linear(d=sizes.d), prefixes=sizes.prefixes, n_points=sizes.n_points, **shared)
    run.say(f"{run.clock.spent:7.1f} s   probes of the {states} learner: {found.steps:,} steps")
    record: Record = {"steps": found.steps, "prompts": sizes.probe_prompts, "errors": {}, "spread": {}, "attention": {}}
    for (readout, target), errors in found.errors.items():
        name = f"{readout}, {target}"
        record["errors"][name] = _rounded(errors)
        record["spread"][name] = _rounded(found.spread[readout, target])
        if states == TRAINED and target in SHOWN:
            record["attention"][name] = _rounded(found.attention[readout, target], 3)
    return record


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Products of float32 with factors of 11 bits, on GPUs: several times as fast, and fine enough for probes."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _rounded(values: torch.Tensor, digits: int = 5) -> Any:
    """Nested lists."""
    if values.ndim:
        return [_rounded(one, digits) for one in values]
    value = number(float(values))
    return None if value is None else float(f"{value:.{digits}g}")


def stage(place: int, run: Run) -> bool:
    """One seed: trains, measures, probes."""
    sizes: Sizes = run.sizes
    stack = [base.experiment(sizes, f"linear-{seed}", seed) for seed in sizes.seeds[place : place + 1]]
    return base.learners(run, NAMES[place], stack, dict.fromkeys(NAMES, 1.0), measure)


NAMES = base.stage_names(len(FULL.seeds))
STUDY = Study("linear-algorithms", SIZES, {name: partial(stage, place) for place, name in enumerate(NAMES)})


# -------------------------------------------------------------------------------------------------------------- figure


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row for each measure and reference: a curve over seeds."""
    del sizes
    found, records = [], list(records)
    for measure in (SPD, ILW):
        mine = [record for record in records if record["measure"] == measure]
        for name in mine[0]["curves"] if mine else ():
            curves = base.together([record["curves"][name] for record in mine])
            about = {"seeds": [record["seed"] for record in mine], "prompts": mine[0]["prompts"]}
            found.append({"measure": measure, "by": name, **about, **curves})
    return found


def pick(rows: Sequence[Record], measure: str) -> dict[str, Record]:
    return {row["by"]: row for row in rows if row["measure"] == measure}


def largest(row: Record, low: int, high: int) -> tuple[float, int]:
    """The largest value of a curve at lengths from low to high, and where."""
    return max((at(row, k), k) for k in row["k"] if low <= k <= high)


def said(row: Record, k: int) -> str:
    """The value at a length, with its interval: over seeds, or over prompts if there is one seed."""
    value, low, high = (row[column][row["k"].index(k)] for column in base.COLUMNS)
    return base.span(value, low, high)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found, last = [], sizes.n_points - 1
    for measure in (SPD, ILW):
        curves = pick(rows, measure)
        claim = f"with more than d pairs the learner agrees with least squares, by {measure}"
        if not curves:
            return [Finding(claim, None, f"{measure} is not measured yet")]
        value, k = largest(curves[BEST], sizes.d + 1, last)
        lengths = [one for one in curves[BEST]["k"] if sizes.d < one <= last]
        brief = words = f"{measure}/d to least squares is at most {said(curves[BEST], k)} at k = {k}"
        if len(lengths) < last - sizes.d:
            words += f" (measured at {', '.join(map(str, lengths))})"
        if sizes.d in curves[BEST]["k"]:
            words += f"; with d pairs, which no rule judges, {said(curves[BEST], sizes.d)}"
        found.append(Finding(claim, value < NEAR, words, paper="below 0.01", brief=brief))
    means = {measure: _means(pick(rows, measure)) for measure in (SPD, ILW)}
    told = "; ".join(f"{measure}/d " + ", ".join(f"{name} {value:.2g}" for name, value in sorted(
        one.items(), key=lambda item: item[1])[:3]) for measure, one in means.items())  # fmt: skip
    nearest = all(min(one, key=lambda name: one[name]) == BEST for one in means.values())
    found.append(Finding("of all references, least squares is nearest", nearest, f"means over lengths: {told}"))
    return [*found, minimum_norm(sizes, pick(rows, SPD))]


def _means(curves: dict[str, Record]) -> dict[str, float]:
    return {name: sum(at(row, k) for k in row["k"] if k) / sum(k > 0 for k in row["k"]) for name, row in curves.items()}


def minimum_norm(sizes: Sizes, curves: dict[str, Record]) -> Finding:
    claim, apart = "with fewer than d pairs the learner agrees with the solution of least norm", []
    for k in range(1, sizes.d):
        others = {name: at(row, k) for name, row in curves.items() if name != BEST}
        rival = min(others, key=lambda name: others[name])
        if others[rival] <= at(curves[BEST], k):
            apart.append(f"k = {k}: {rival} {others[rival]:.2g}, least norm {at(curves[BEST], k):.2g}")
    _, k = largest(curves[BEST], 1, sizes.d - 1)
    words = (
        f"with fewer than d pairs, SPD/d to the solution of least norm is at most {said(curves[BEST], k)} at k = {k}"
    )
    return Finding(claim, not apart, words + (f"; another is nearer at {', '.join(apart)}" if apart else ""))


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """SPD / d and ILW / d to least squares, the largest with fewer than d pairs and with more."""
    found: Record = {}
    for measure in (SPD, ILW):
        row = pick(rows, measure).get(BEST)
        if row is not None:
            ends = {"fewer than d pairs": (1, sizes.d - 1), "more than d pairs": (sizes.d + 1, sizes.n_points - 1)}
            found[measure] = {name: largest(row, *pair)[0] for name, pair in ends.items()}
    return found


def draw_curve(ax: Axes, row: Record, label: str, floor: float, **style: Any) -> None:
    """A curve with its interval on a log axis; k = 0 is left out, where all predict zero."""
    places = [place for place, k in enumerate(row["k"]) if k]
    k, value, low, high = ([max(row[name][place], floor) if name != "k" else row[name][place] for place in places]
                           for name in ("k", "value", "low", "high"))  # fmt: skip
    ax.plot(k, value, label=label, marker="o" if len(k) < 15 else None, ms=4, **style)
    ax.fill_between(k, low, high, color=style["color"], alpha=0.18, lw=0)


def shaded(row: Record) -> str:
    """What the intervals of a curve are over."""
    seeds = len(row["seeds"])
    if seeds > 1:
        return f"shaded: 95 % intervals over {seeds} seeds"
    return f"one seed; shaded: 95 % intervals over {row['prompts']:,} prompts"


#: Panels: what is compared, and what is 1 on its axis.
PANELS = {
    SPD: ("predictions", "the mean square of labels"),
    ILW: ("implied linear weights", "the mean square of a weight"),
}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """SPD / d on the left, ILW / d on the right; shaded: 95 % intervals."""
    with figures.new(1, 2, size=(13.0, 4.8), share_y=True) as (figure, axes):
        for ax, (measure, (what, unit)) in zip(axes, PANELS.items(), strict=True):
            curves = pick(rows, measure)
            for (name, row), style in zip(curves.items(), STYLES, strict=False):
                draw_curve(ax, row, name, 1e-6, **style)
            ax.set_yscale("log")
            ax.axhline(NEAR, color=figures.GREY, lw=0.8, ls=(0, (4, 3)))
            ax.axvline(sizes.d, color=figures.GREY, lw=0.8, ls=":")
            ax.set_xlabel(f"pairs in the prompt\n(dotted: d = {sizes.d}; dashed: {NEAR:g}, the bound of the rules)")
            ax.set_ylabel(f"{measure} / d to the learner\n(1: {unit})")
            ax.set_title("\n".join([what, *(shaded(row) for row in [*curves.values()][:1])]))
            figures.whole_numbers(ax)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        figure.suptitle(title)
        save(figure)


TITLE = f"{PAPER} Fig. 1: linear functions without noise"
FIGURES = (Figure("linear-algorithms", PAPER, "Fig. 1", TITLE, STUDY, rows, judge, numbers, draw),)
