"""Why Fig. 2 of *Transformers are Deep Optimizers* declines past 50 examples: learners with other positions.

The paper believes that the absolute positions of GPT-2 are the reason. So one learner of 4-layer networks has them, one
has rotary positions, one has none; softmax attention, one seed. Judged by these rules, in distribution: the first has a
lower pooled R^2 with the longest prompts than with the longest of training, by more than the interval of the
difference; the others have not (our rule: the paper did not train such learners).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from innergrad.figures import BLUE, GREEN, ORANGE
from innergrad.papers import views
from innergrad.papers.deep_optimizers import SIZES, Sizes, Variant, study
from innergrad.papers.depth import OWN, SHORT
from innergrad.papers.frame import Figure, Finding, Record, Save
from innergrad.papers.mixtures import PAPER
from innergrad.papers.views import LEARNER, POOLED, WITHIN, at, pick

KINDS: tuple[Literal["learned", "rotary", "none"], ...] = ("learned", "rotary", "none")
STYLES: tuple[dict[str, Any], ...] = (  # each is seen where all are the same, as in training
    {"color": ORANGE, "lw": 5.0},
    {"color": BLUE, "lw": 2.5},
    {"color": GREEN, "lw": 2.5, "ls": (0, (2, 2))},
)


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    del sizes
    return views.rows_of(records)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    ends, found = (sizes.n_points - 1, sizes.asked - 1), []
    for kind in KINDS:
        declines = kind == "learned"
        claim = f"positions {kind}: performance past training {'declines' if declines else 'does not decline'}"
        row = pick(rows, LEARNER, variant=kind)
        if row is None or any(at(row, POOLED, k) is None for k in ends):
            found.append(Finding(claim, None, f"positions {kind}: not measured yet", ours=not declines))
            continue
        first, last = (views.spread(row, POOLED, k) for k in ends)
        told = [f"{views.said(one)} at k = {k}" for one, k in zip((first, last), ends, strict=True)]
        words = f"positions {kind}: pooled R² {', '.join(told)}"
        found.append(Finding(claim, views.larger(last, first) == declines, words, ours=not declines))
    return found


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    known = {kind: row for kind in KINDS if (row := pick(rows, LEARNER, variant=kind))}
    return {kind: at(row, WITHIN, sizes.asked - 1) for kind, row in known.items()}


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """Pooled R^2 on the left, from near its top, within-prompt R^2 on the right. One seed: intervals over prompts."""
    with views.panels(1, 2, title, save, share_y=False, over="shaded, over prompts") as axes:
        for ax, measure in zip(axes, (POOLED, WITHIN), strict=True):
            views.draw_beside(ax, rows, {}, measure)
            for kind, style in zip(KINDS, STYLES, strict=True):
                row = pick(rows, LEARNER, variant=kind)
                if row is not None:
                    views.draw_row(ax, row, measure, f"learner, positions: {kind}", **style, zorder=3)
            what = "over all prompts" if measure == POOLED else "within a prompt"
            views.frame(ax, measure, sizes.n_points - 1, f"R² {what}, one seed")
        axes[0].set_ylim(0.85, 1.0)


def one_seed(sizes: Sizes) -> Sizes:
    return replace(sizes, **OWN | {"seeds": (0,)})


OWN_SIZES = {name: one_seed(sizes) for name, sizes in SIZES.items()}
OWN_SIZES["full"] = replace(OWN_SIZES["full"], **SHORT)
STAGES: dict[str, Variant] = {kind: Variant(kind, positions=kind) for kind in KINDS}
POSITIONS = study("positions", OWN_SIZES, STAGES)
TITLE = f"{PAPER}, Fig. 2, past 50 examples: softmax attention, three kinds of positions"
FIGURES = (Figure("positions", PAPER, "Fig. 2", TITLE, POSITIONS, rows, judge, numbers, draw),)
