"""Fig. 5 of *Transformers are Deep Optimizers*: transformers of 4, 6, 8 and 10 blocks, both attentions.

Everything is as for Fig. 1 and 2, but for the blocks. Which networks the figure is about, the paper does not say: 4
layers here, those of Fig. 3 and 4. Judged by this rule, for each attention and for 15, 30 and 45 examples (30, 60 and
90 % of the longest prompt of training): pooled R^2, a mean over seeds, rises with every two blocks.
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
    del sizes
    return views.rows_of(records)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    found = []
    for attention in ATTENTIONS:
        claim, told, held = f"{attention} attention: a deeper transformer is better", [], True
        for k in examples(sizes):
            picked = [pick(rows, LEARNER, variant=stage(attention, depth)) for depth in range(len(sizes.depths))]
            values = [at(row, POOLED, k) for row in picked if row is not None]
            known = [value for value in values if value is not None]
            if len(known) < len(sizes.depths):
                found.append(Finding(claim, None, f"{attention} attention: not all depths are measured yet"))
                break
            held = held and all(a < b for a, b in pairwise(known))
            told.append(f"k = {k}: " + ", ".join(f"{value:.4f}" for value in known))
        else:
            found.append(Finding(claim, held, f"{attention} attention, pooled R² by depth, " + "; ".join(told)))
    return found


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Pooled R^2 with its interval, by kind of learner and number of examples."""
    found: Record = {}
    for row in (row for row in rows if row["by"] == LEARNER):
        places = [row["k"].index(k) for k in examples(sizes)]
        found[row["variant"]] = [[row[POOLED][column][place] for column in COLUMNS] for place in places]
    return found


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A panel an attention: pooled R^2 by the number of blocks; bars: 95 % intervals over seeds."""
    with figures.new(1, 2, size=(11.6, 4.6), share_y=True) as (figure, axes):
        for ax, attention in zip(axes, ATTENTIONS, strict=True):
            for k, colour in zip(examples(sizes), (figures.BLUE, figures.GREEN, figures.ORANGE), strict=True):
                picked = [pick(rows, LEARNER, variant=stage(attention, depth)) for depth in range(len(sizes.depths))]
                known = [(blocks, row) for blocks, row in zip(sizes.depths, picked, strict=True) if row]
                curves = [[row[POOLED][column][row["k"].index(k)] for column in COLUMNS] for _, row in known]
                values = [float("nan") if value is None else value for value, _, _ in curves]
                spread = [[0 if low is None else value - low for value, low, _ in curves]] * 2
                style: dict[str, Any] = {"color": colour, "marker": "o", "ms": 5, "lw": 1.8, "capsize": 3}
                ax.errorbar([blocks for blocks, _ in known], values, spread, label=f"{k} examples", **style)
            ax.set(xlabel="blocks of the transformer", ylabel="pooled R²", title=f"{attention} attention")
            ax.set_xticks(sizes.depths)
        axes[0].legend(loc="lower right")
        figure.suptitle(title)
        save(figure)


OWN_SIZES = {name: replace(sizes, **OWN) for name, sizes in SIZES.items()}
OWN_SIZES["quick"] = replace(OWN_SIZES["quick"], steps=250)
DEPTH = Study("depth", OWN_SIZES, {name: partial(learners, name, STAGES) for name in STAGES})
TITLE = f"{PAPER}, Fig. 5: the depth of the transformer"
FIGURES = (Figure("depth", PAPER, "Fig. 5", TITLE, DEPTH, rows, judge, numbers, draw),)
