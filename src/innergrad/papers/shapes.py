"""Appendix B.3 of *Transformers are Deep Optimizers*: networks of another depth or width than those of training.

The paper says that its learners are for networks of the depth and the width of training.

*Other shapes.* Learners of 4-layer networks are measured on other depths and widths. Judged by this rule (the bar of
1.05 is ours): at the longest prompt of training, the squared error on every other shape is at least 1.05 times that of
the posterior for that shape, while on the shape of training it is less.

*Mixed depths.* Another learner is trained on networks of 3, 4 and 6 layers together. It is measured on these, and on 10
layers, beside the learner of 4. The paper has no such learner, so all but the first of these rules are ours. Judged at
the longest prompt of training:

- the learner of 4 layers has at least 1.05 times the error of the posterior at every other depth, and less at its own;
- the learner of mixed depths has, at each of them, at most 1.05 times the error of the learner of that depth alone;
- at a depth that it has not seen, it has at least 1.05 times the error of the posterior: the limit has moved, no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from innergrad import figures
from innergrad.papers import views
from innergrad.papers.deep_optimizers import MIXED, RELU, SIZES, SOFTMAX, Sizes, Variant, learners
from innergrad.papers.frame import Figure, Finding, Record, Save, Study
from innergrad.papers.mixtures import NEAR, PAPER
from innergrad.papers.views import ERROR, LEARNER, at, pick

Shape = tuple[int, int]  # layers and width
Line = tuple[str, str, str, Sequence[int | str | None]]  # label, colour, a predictor, what it was trained on, by shape


def plain(record: Record) -> bool:
    """Inputs, weights and labels are those of training."""
    test = record["test"]
    return (test["w1"], test["weight_mean"], test["labels"]) == (1.0, 0.0, "raw")


def shape(test: Record) -> Shape:
    return test["layers"], test["width"]


def error(sizes: Sizes, rows: Sequence[Record], by: str, on: Shape, learned: int | str | None = None) -> float | None:
    """The squared error at the longest prompt of training. ``learned``: what a learner was trained on."""
    row = pick(rows, by, {"layers": on[0], "width": on[1]}, **({"layers": learned} if by == LEARNER else {}))
    return None if row is None else at(row, ERROR, sizes.n_points - 1)


def over(error: float | None, other: float | None) -> float | None:
    return error / other if error is not None and other else None


def spread(sizes: Sizes, rows: Sequence[Record], on: Shape, learned: int | str | None) -> float | None:
    """Half the interval of a learner's squared error at the longest prompt of training."""
    row = pick(rows, LEARNER, {"layers": on[0], "width": on[1]}, layers=learned)
    return None if row is None else views.spread(row, ERROR, sizes.n_points - 1)[1]


def half(sizes: Sizes, rows: Sequence[Record], on: Shape, learned: int | str | None) -> float | None:
    """Half the interval of a learner's error over that of the posterior. Both are measured on the same prompts, and the
    posterior has no seed: it is that of the learner.
    """
    return over(spread(sizes, rows, on, learned), error(sizes, rows, "NNGP", on))


def told(ratios: Record, halves: Sequence[float | None] = ()) -> str:
    each = [f"{name} {ratio:.3f}" for name, ratio in ratios.items()]
    return ", ".join(words + (f" ± {h:.3f}" if h else "") for words, h in zip_longest(each, halves))


def largest(ratios: Record, halves: Sequence[float | None]) -> str:
    """The largest of them, in words."""
    name, half = max(zip(ratios, halves, strict=True), key=lambda one: ratios[one[0]])
    return f"at most {told({name: ratios[name]}, [half]).removeprefix(f'{name} ')} times ({name})"


def own_alone(ratios: Record) -> bool:
    """The first, that of training, is near; no other is."""
    first, *others = ratios.values()
    return first < NEAR and all(ratio >= NEAR for ratio in others)


# --------------------------------------------------------------------------------------------------------- other shapes


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Learners of one depth on networks of every shape, and what is beside them."""

    def ours(record: Record) -> bool:
        own = record.get("layers", sizes.shifted_layers) == sizes.shifted_layers
        return plain(record) and own and shape(record["test"]) in shapes(sizes)

    return views.rows_of(record for record in records if ours(record))


def shapes(sizes: Sizes) -> list[Shape]:
    """That of training first."""
    own = sizes.shifted_layers
    others = [(layers, sizes.width) for layers in sizes.other_layers if layers != own]
    return [(own, sizes.width), *others, *((own, width) for width in sizes.other_widths)]


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """The error over that of the posterior, by shape."""
    found = {}
    for on in shapes(sizes):
        mine = error(sizes, rows, LEARNER, on, sizes.shifted_layers)
        found[f"{on[0]} layers of {on[1]}"] = over(mine, error(sizes, rows, "NNGP", on))
    return found


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    claim, ratios = "a learner is for networks of the depth and the width of training", numbers(sizes, rows)
    if None in ratios.values():
        return [Finding(claim, None, "not all shapes are measured yet")]
    halves = [half(sizes, rows, on, sizes.shifted_layers) for on in shapes(sizes)]
    words = f"error over that of the posterior at k = {sizes.n_points - 1}: {told(ratios, halves)}"
    return [Finding(claim, own_alone(ratios), words, brief=largest(ratios, halves))]


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    names = [f"{layers} layers\nof {width}" for layers, width in shapes(sizes)]
    lines: list[Line] = [("learner", figures.ORANGE, LEARNER, [sizes.shifted_layers] * len(names))]
    draw_shapes(sizes, rows, shapes(sizes), [f"{names[0]}\n(training)", *names[1:]], lines, title, save)


def draw_shapes(
    sizes: Sizes,
    rows: Sequence[Record],
    on: Sequence[Shape],
    names: Sequence[str],
    lines: Sequence[Line],
    title: str,
    save: Save,
) -> None:
    """Errors over that of the posterior at the longest prompt of training, by shape, as the rules ask for them; bars:
    95 % intervals of learners, over seeds.
    """
    with figures.new(size=(11.0, 5.6)) as (figure, (ax,)):
        every = [*lines, ("ridge", figures.GREY, "ridge", [None] * len(on))]
        for number, (label, colour, by, learned) in enumerate(every):
            ratios = [over(error(sizes, rows, by, *one), error(sizes, rows, "NNGP", one[0]))
                      for one in zip(on, learned, strict=True)]  # fmt: skip
            halves = [half(sizes, rows, *one) if by == LEARNER else None for one in zip(on, learned, strict=True)]
            both = zip(ratios, halves, strict=True)
            known = [(place, ratio, wide or 0.0) for place, (ratio, wide) in enumerate(both) if ratio]
            places = [place + 0.16 * (number - (len(every) - 1) / 2) for place, _, _ in known]
            style: dict[str, Any] = {"color": colour, "ms": 7, "lw": 0, "elinewidth": 1.5, "capsize": 4}
            marker = "os^D"[number if by == LEARNER else -1]
            bars = [wide for _, _, wide in known]
            ax.errorbar(places, [ratio for _, ratio, _ in known], bars, label=label, marker=marker, **style)
        ax.axhline(NEAR, color=figures.DARK, lw=1.4, ls="--", label=f"our bar: {NEAR:g} times the posterior’s error")
        ax.axhline(1.0, color=figures.DARK, lw=1.4, label="NNGP posterior, of infinitely wide networks")
        ax.set_xticks(range(len(names)), names)
        words = f"squared error / that of the\nNNGP posterior, {sizes.n_points - 1} examples"
        ax.set(ylabel=words, xlabel="networks that make the labels")
        figure.legend(loc="outside lower center", ncols=3, title="bars: 95 % intervals of learners, over seeds")
        figure.suptitle(title)
        save(figure)


# --------------------------------------------------------------------------------------------------------- mixed depths


def mixed_rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """Every learner on networks of every depth, and what is beside them."""
    return views.rows_of(one for one in records if plain(one) and shape(one["test"]) in depths(sizes))


def depths(sizes: Sizes) -> list[Shape]:
    return [(layers, sizes.width) for layers in sorted({*sizes.layers, *sizes.other_layers})]


def mixed_numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Errors of both learners over that of the posterior, and of the mixed one over that of the depth's own learner."""
    own, names = sizes.shifted_layers, (f"{sizes.shifted_layers} layers", MIXED)
    found: Record = {**{f"{name}, over the posterior": {} for name in names}, "mixed, over the depth's own": {}}
    for on in sorted(depths(sizes), key=lambda shape: shape[0] != own):
        posterior, mixed = error(sizes, rows, "NNGP", on), error(sizes, rows, LEARNER, on, MIXED)
        for name, mine in zip(names, (error(sizes, rows, LEARNER, on, own), mixed), strict=True):
            found[f"{name}, over the posterior"][f"{on[0]} layers"] = over(mine, posterior)
        if on[0] in sizes.layers:
            alone = error(sizes, rows, LEARNER, on, on[0])
            found["mixed, over the depth's own"][f"{on[0]} layers"] = over(mixed, alone)
    return found


def mixed_halves(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """Half the intervals of ``mixed_numbers``, by their keys. A ratio of two learners has the intervals of both."""
    names = tuple(mixed_numbers(sizes, rows))
    wanted: tuple[int | str, ...] = (sizes.shifted_layers, MIXED)
    found: Record = {name: {} for name in names}
    for on in depths(sizes):
        for name, learned in zip(names, wanted, strict=False):
            found[name][f"{on[0]} layers"] = half(sizes, rows, on, learned)
        if on[0] in sizes.layers:
            mine = [(error(sizes, rows, LEARNER, on, one), spread(sizes, rows, on, one)) for one in (MIXED, on[0])]
            shares = [over(width, value) for value, width in mine]
            ratio = over(mine[0][0], mine[1][0])
            found[names[-1]][f"{on[0]} layers"] = ratio and ratio * math.hypot(*(share or 0.0 for share in shares))
    return found


def mixed_judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    one, mixed, alone = mixed_numbers(sizes, rows).values()
    one_half, mixed_half, alone_half = mixed_halves(sizes, rows).values()
    new = {name: ratio for name, ratio in mixed.items() if name not in alone}
    where = f"at k = {sizes.n_points - 1}"
    rules = [
        (
            "a learner of one depth is for that depth",
            one,
            one_half,
            own_alone,
            "the learner of one depth, over the posterior",
        ),
        (
            "a learner of mixed depths is as good at each as a learner of that depth alone",
            alone,
            alone_half,
            lambda ratios: all(ratio <= NEAR for ratio in ratios.values()),
            "the learner of mixed depths, over the learner of that depth",
        ),
        (
            "a learner of mixed depths is for those depths",
            new,
            mixed_half,
            lambda ratios: all(ratio >= NEAR for ratio in ratios.values()),
            "the learner of mixed depths, over the posterior",
        ),
    ]
    found = []
    for place, (claim, ratios, halves, rule, what) in enumerate(rules):
        if None in ratios.values():
            found.append(Finding(claim, None, f"{what}: not all depths are measured yet", ours=place > 0))
        elif ratios:
            intervals = [halves.get(name) for name in ratios]
            words = f"error of {what}, {where}: {told(ratios, intervals)}"
            brief = largest(ratios, intervals)
            found.append(Finding(claim, rule(ratios), words, brief=brief, ours=place > 0))
    return found


def mixed_draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    seen = {layers: "\n(mixed)" if layers in sizes.layers else "\n(new to both)" for layers, _ in depths(sizes)}
    names = [f"{layers} layers{words}" for layers, words in seen.items()]
    own = sizes.shifted_layers
    alone = [layers if layers in sizes.layers else None for layers, _ in depths(sizes)]
    lines: list[Line] = [
        (f"learner of {own}-layer networks", figures.ORANGE, LEARNER, [own] * len(names)),
        ("learner of mixed depths", figures.BLUE, LEARNER, [MIXED] * len(names)),
        ("learner of that depth alone", figures.SKY, LEARNER, alone),
    ]
    draw_shapes(sizes, rows, depths(sizes), names, lines, title, save)


# -------------------------------------------------------------------------------------------------------------- figures


STAGES = ("learners", "references")  # learners of deeper networks are not measured here


def figure(attention: str, study: Study) -> Figure:
    title = f"{PAPER}, B.3: {attention} attention, networks of other depths and widths"
    return Figure(f"shapes-{attention}", PAPER, "App. B.3", title, study, rows, judge, numbers, draw, STAGES)


#: The learner of mixed depths, and beside it the records of those of one depth.
NETWORKS_MIXED = Study(
    "networks-mixed",
    SIZES,
    {"mixed": partial(learners, "mixed", {"mixed": Variant(MIXED, mixed=True)})}
    | {name: SOFTMAX.stages[name] for name in ("learners", "references")},
    {"learners": SOFTMAX.name, "references": SOFTMAX.shared["references"]},
)
MIXED_TITLE = f"{PAPER}, B.3: a learner of mixed depths, softmax attention"
FIGURES = (
    figure("relu", RELU),
    figure("softmax", SOFTMAX),
    Figure(
        "shapes-mixed",
        PAPER,
        "App. B.3",
        MIXED_TITLE,
        NETWORKS_MIXED,
        mixed_rows,
        mixed_judge,
        mixed_numbers,
        mixed_draw,
    ),
)
