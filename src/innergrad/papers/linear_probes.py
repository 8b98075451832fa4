"""Fig. 4 of *What learning algorithm is in-context learning?*: what probes read from the layers of a learner.

The learners are those of Fig. 1. Probes are trained for X^T y, the *moments*, and for the least-squares *weights* of
the first k pairs, in every layer, with a linear read-out and with an MLP (:mod:`innergrad.lab.probes`). Beside them
stand probes for a control, the same target of pairs whose labels are exchanged, and probes of an untrained learner.
The paper has 1e-4 as the rate of Adam, and does not say how many steps. Here the rate is 1e-3 and falls to zero, so
that few steps do.

Errors are relative to the mean square of the target. They are means over prefixes, unless one is named. Layer 0 has the
tokens as they come in. Judged by these rules, for each target:

- the MLP's least error over layers is below that of its control, and below that of the untrained learner;
- in its best layer it is at most half of that in layer 0;
- the least error of the MLP over layers is below that of the linear read-out, by more than the interval of the
  difference: of each seed compared with itself, since both read the same states and were trained as long;
- moments come first: their error is halfway from layer 0 to its least in an earlier layer than that of the weights;
- in its best layer, for every prefix, alpha is largest at the label of the prefix's last pair, or at the input after
  it. (Weights of d pairs or more are the same for every prefix, so any later token will do: they are left out.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from innergrad import figures
from innergrad.papers import views
from innergrad.papers.frame import Figure, Finding, Record, Save, number
from innergrad.papers.linear_algorithms import PROBES, SHOWN, STUDY, TRAINED, UNTRAINED, Sizes
from innergrad.papers.linear_learners import PAPER, mean_interval, span

LINEAR, MLP = "linear", "mlp"
WORDS = {"moments": "moments Xᵀy", "weights": "weights w"}
HALF = 0.5


def rows(sizes: Sizes, records: Iterable[Record]) -> list[Record]:
    """A row for each kind of hidden states, read-out and target: errors (layers, prefixes), their means by layer."""
    del sizes
    found, records = [], [record for record in records if record["measure"] == PROBES]
    for states in (TRAINED, UNTRAINED):
        mine = [record for record in records if record["states"] == states]
        for name in mine[0]["errors"] if mine else ():
            readout, _, target = name.partition(", ")
            key = {"states": states, "readout": readout, "target": target, "seeds": [one["seed"] for one in mine]}
            key["steps"] = [one["steps"] for one in mine]
            errors = [one["errors"][name] for one in mine]
            spread = [one["spread"][name] for one in mine]
            looks = [one["attention"][name] for one in mine if name in one["attention"]]
            row = {**key, **_by_layer(errors, spread), "errors": _mean(errors), "attention": _short(_mean(looks))}
            row["half"] = _half(errors) if len(errors) > 1 else _scaled(spread[0], 1.96)
            found.append(row | ({"attention half": _short(_half(looks))} if len(looks) > 1 else {}))
    return found


def _mean(tables: Sequence[Any]) -> Any:
    """The mean of nested lists of one shape."""
    if not tables:
        return None
    if isinstance(tables[0], list):
        return [_mean([table[place] for table in tables]) for place in range(len(tables[0]))]
    return number(sum(tables) / len(tables))


def _half(tables: Sequence[Any]) -> Any:
    """Half the 95 % interval over seeds of nested lists of one shape, entry by entry."""
    if isinstance(tables[0], list):
        return [_half([table[place] for table in tables]) for place in range(len(tables[0]))]
    mean, _, high = mean_interval(tables)
    return number(high - mean)


def _short(table: Any) -> Any:
    """Numbers with the three digits that records have; None stays."""
    return [_short(one) for one in table] if isinstance(table, list) else number(table, digits=3)


def _scaled(table: Any, factor: float) -> Any:
    return [_scaled(one, factor) for one in table] if isinstance(table, list) else number(factor * table)


def said(row: Record, layer: int) -> str:
    """The error in a layer, with its interval."""
    low, high = (row[column][layer] if column in row else None for column in ("low", "high"))
    return span(float(row["value"][layer]), low, high)


def _by_layer(errors: Sequence[Any], spread: Sequence[Any]) -> Record:
    """Errors as means over prefixes, with 95 % intervals: over seeds; of one seed, over prompts."""
    found: Record = {"value": [], "low": [], "high": [], "interval": "seeds" if len(errors) > 1 else "prompts"}
    found["each"] = [[number(sum(prefixes) / len(prefixes)) for prefixes in one] for one in errors]
    for layer in range(len(errors[0])):
        means = [one[layer] for one in found["each"]]
        value, low, high = mean_interval(means)
        if len(errors) == 1:
            half = 1.96 * sum(spread[0][layer]) / len(spread[0][layer])  # prefixes share their prompts
            low, high = value - half, value + half
        for name, one in (("value", value), ("low", low), ("high", high)):
            found[name].append(number(one))
    return found


def pick(rows: Sequence[Record], states: str, readout: str, target: str) -> Record | None:
    key = {"states": states, "readout": readout, "target": target}
    return next((row for row in rows if all(row[name] == value for name, value in key.items())), None)


def best(row: Record) -> int:
    """The layer with the least error."""
    return _least(row["value"])


def _least(values: Sequence[float]) -> int:
    return min(range(len(values)), key=lambda layer: values[layer])


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def gap(row: Record, other: Record) -> tuple[float, float, float, float]:
    """The least errors of two rows, their difference, and half its 95 % interval: means over seeds, each seed in its
    own best layer and compared with itself. Of one seed, the interval is as if both had other prompts.
    """
    if len(row["each"]) > 1:
        mine, theirs = ([min(one) for one in each["each"]] for each in (row, other))
        mean, _, high = mean_interval([b - a for a, b in zip(mine, theirs, strict=True)])
        return sum(mine) / len(mine), sum(theirs) / len(theirs), mean, high - mean
    one, two = (
        (each["value"][best(each)], each["high"][best(each)] - each["value"][best(each)]) for each in (row, other)
    )
    return one[0], two[0], *views.between(one, two)


def halfway(row: Record) -> int:
    """The first layer whose error is at most halfway from that of layer 0 to the least."""
    values, least = row["value"], min(row["value"])
    return next(layer for layer, value in enumerate(values) if value <= (values[0] + least) / 2)


def judge(sizes: Sizes, rows: Sequence[Record]) -> list[Finding]:
    if pick(rows, UNTRAINED, MLP, SHOWN[0]) is None:
        return [Finding("targets are decoded from late layers", None, "probes are not trained yet")]
    found, chosen = [], {}
    for target in SHOWN:
        mlp, linear = (_sure(rows, TRAINED, readout, target) for readout in (MLP, LINEAR))
        control, raw = _sure(rows, TRAINED, MLP, f"{target}, control"), _sure(rows, UNTRAINED, MLP, target)
        layer, chosen[target] = best(mlp), mlp
        least, others = mlp["value"][layer], (min(control["value"]), min(raw["value"]))
        told = said(mlp, layer), said(control, best(control)), said(raw, best(raw))
        words = f"{target}: least error {told[0]}, control {told[1]}, untrained learner {told[2]}"
        found.append(Finding(f"probes for {target} find more than their controls", least < min(others), words))
        first = mlp["value"][0]
        words = f"{target}: error {said(mlp, 0)} in layer 0, {told[0]} in layer {layer}"
        found.append(
            Finding(f"{target} are decoded deep in the network, not from its input", least <= HALF * first, words)
        )
        mine, theirs, lower, half = gap(mlp, linear)
        words = f"{target}: least error {mine:.3f} with an MLP, {theirs:.3f} with a linear read-out"
        words += ", each seed in its best layer" if len(mlp["each"]) > 1 else ""
        words += f"; lower by {lower:.3f} ± {half:.3f}"
        claim = f"an MLP decodes {target} better than a linear read-out"
        found.append(Finding(claim, lower > half, words, unclear=-half < lower <= half))
        if target != "weights" or min(sizes.prefixes) < sizes.d:
            found.append(looked(sizes, mlp, target))
    moments, weights = (halfway(chosen[target]) for target in SHOWN)
    words = f"errors are halfway in layer {moments} for moments and in layer {weights} for weights; least in layers "
    words += " and ".join(f"{_listed(map(_least, chosen[target]['each']))} for {target}" for target in SHOWN)
    words += ", seed by seed" if len(chosen[SHOWN[0]]["each"]) > 1 else ""
    words += f"; probes were trained for {', '.join(f'{steps:,}' for steps in chosen[SHOWN[0]]['steps'])} steps"
    paper = "moments in layer 7, weights around layer 12"
    return [*found, Finding("moments are computed before weights", moments < weights, words, paper=paper)]


def _sure(rows: Sequence[Record], states: str, readout: str, target: str) -> Record:
    row = pick(rows, states, readout, target)
    assert row is not None
    return row


def looked(sizes: Sizes, row: Record, target: str) -> Finding:
    """Whether alpha is largest at the right tokens, in the best layer."""
    layer, apart, claim = best(row), [], f"probes for {target} attend to the right tokens"
    prefixes = [(place, k) for place, k in enumerate(sizes.prefixes) if target != "weights" or k < sizes.d]
    for place, k in prefixes:
        alpha = row["attention"][layer][place]
        top = max(range(len(alpha)), key=lambda token: alpha[token])
        if top not in (2 * k - 1, 2 * k):
            apart.append(f"k = {k}: at {token_name(top)}")
    told = f"{target}, layer {layer}: alpha is largest where it should be for {len(prefixes) - len(apart)} of "
    return Finding(claim, not apart, f"{told}{len(prefixes)} prefixes" + (f" ({', '.join(apart)})" if apart else ""))


def token_name(token: int) -> str:
    return f"{'y' if token % 2 else 'x'}_{token // 2 + 1}"


def numbers(sizes: Sizes, rows: Sequence[Record]) -> Record:
    """For each row, its best layer and the error there, with its interval."""
    del sizes
    found: Record = {}
    for row in rows:
        layer = best(row)
        name = f"{row['target']}, {row['readout']}, {row['states']}"
        found[name] = {"layer": layer, "error": [row[column][layer] for column in ("value", "low", "high")]}
    return found


STYLES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("MLP", TRAINED, MLP, "", {"color": figures.BLUE, "lw": 2.2}),
    ("linear", TRAINED, LINEAR, "", {"color": figures.SKY, "lw": 1.6, "ls": "--"}),
    ("MLP, control", TRAINED, MLP, ", control", {"color": figures.ORANGE, "lw": 1.6}),
    ("MLP, untrained learner", UNTRAINED, MLP, "", {"color": figures.GREY, "lw": 1.6, "ls": ":"}),
)


def draw(sizes: Sizes, rows: Sequence[Record], title: str, save: Save) -> None:
    """A row a target. Left: error by layer; middle: by prefix, in the best layer; right: alpha there."""
    with figures.new(2, 3, size=(15.0, 7.6)) as (figure, axes):
        for number_, target in enumerate(SHOWN):
            by_layer, by_prefix, map_ = axes[3 * number_ : 3 * number_ + 3]
            mlp = pick(rows, TRAINED, MLP, target)
            for label, states, readout, more, style in STYLES:
                row = pick(rows, states, readout, target + more)
                if row is None:
                    continue
                layers = range(len(row["value"]))
                by_layer.plot(layers, row["value"], label=label, **style)
                by_layer.fill_between(layers, row["low"], row["high"], color=style["color"], alpha=0.18, lw=0)
                errors, half = row["errors"][best(row)], row["half"][best(row)]
                by_prefix.errorbar(sizes.prefixes, errors, half, marker="o", ms=4, capsize=3, label=label, **style)
            by_layer.set(xlabel="layer (0: the tokens)", ylabel="squared error / mean square", title=WORDS[target])
            by_prefix.set(
                xlabel="pairs k of the prefix",
                ylabel="squared error / mean square,\nin the best layer",
                title=WORDS[target],
            )
            for ax in (by_layer, by_prefix):
                ax.set_ylim(0, 1.1)
                figures.whole_numbers(ax)
            if mlp is not None and mlp["attention"]:
                _draw_attention(map_, sizes, mlp)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(STYLES))
        figure.suptitle(f"{title}; {_intervals(rows)}")
        save(figure)


def _intervals(rows: Sequence[Record]) -> str:
    """What the intervals of the figure are about."""
    seeds = max((len(row["seeds"]) for row in rows), default=1)
    return "one seed, 95 % intervals over prompts" if seeds == 1 else f"{seeds} seeds, 95 % intervals over them"


def _draw_attention(ax: Any, sizes: Sizes, row: Record) -> None:
    """Alpha by prefix and token, a mean over seeds; a square around the tokens that are right. The title says the
    longest half of an interval over seeds; one seed has none.
    """
    layer = best(row)
    table, last = row["attention"][layer], 2 * max(sizes.prefixes) + 6
    shown = [line[:last] for line in table]
    image = ax.imshow(shown, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="α")
    for place, k in enumerate(sizes.prefixes):
        left, right, top, bottom = 2 * k - 1.5, 2 * k + 0.5, place - 0.5, place + 0.5
        corners = (left, right, right, left, left), (top, top, bottom, bottom, top)
        ax.plot(*corners, color=figures.ORANGE, lw=1.4)
    ax.set_yticks(range(len(sizes.prefixes)), [str(k) for k in sizes.prefixes])
    ticks = [2 * k - 1 for k in sizes.prefixes if 2 * k - 1 < len(table[0])]
    ax.set_xticks(ticks, [f"$y_{{{k}}}$" for k in sizes.prefixes[: len(ticks)]])
    ax.grid(visible=False)
    ax.set(
        xlabel="token", ylabel="pairs k of the prefix", title=f"α of the MLP probe, layer {layer}, {_seeds(row, layer)}"
    )


def _seeds(row: Record, layer: int) -> str:
    if "attention half" not in row:
        return "one seed"
    return f"{len(row['seeds'])} seeds, ± {max(max(line) for line in row['attention half'][layer]):.2f} at most"


TITLE = f"{PAPER} Fig. 4: probes in the layers of a learner"
FIGURES = (Figure("linear-probes", PAPER, "Fig. 4", TITLE, STUDY, rows, judge, numbers, draw),)
