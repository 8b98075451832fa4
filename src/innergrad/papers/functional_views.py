"""What the figures of Cheng et al. (2024) have in common: curves over seeds, and how they are drawn.

All their axes are logarithmic, so means and 95 % intervals over seeds (Student's t) are of logarithms, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from innergrad.figures import BLUE, DARK, GREEN, ORANGE, SKY, SMALL, whole_numbers
from innergrad.papers.frame import Record, Save, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPPED = "share of prompts that the cap changes"
Corner = Literal["upper", "lower"]
FEW = 0.05  # of the prompts: a cap that changes fewer is not spoken of
Curve = dict[str, Any]  # value, low and high: lists of numbers or None
#: Of the attentions, by their activations.
STYLES: dict[str, dict[str, Any]] = {
    "linear": {"color": SKY, "marker": "s", "ls": "--"},
    "relu": {"color": GREEN, "marker": "^", "ls": "-."},
    "exp": {"color": ORANGE, "marker": "o", "ls": "-"},
    "softmax": {"color": BLUE, "marker": "D", "ls": "-"},
    "linear+exp": {"color": BLUE, "marker": "D", "ls": "-"},
}


def log_mean(curves: Iterable[Sequence[float | None]]) -> Curve:
    """The mean of several curves of positive numbers, and its interval, by their logarithms."""
    logs = [[math.log10(value) if value else None for value in curve] for curve in curves]
    found = over_seeds(logs)
    return {side: [None if value is None else _rounded(10**value) for value in found[side]] for side in found}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def risk_rows(records: Iterable[Record], along: str) -> list[Record]:
    """One row for every kernel and learner: its risk by ``along`` (n, or layers), and that of the Bayes estimator.

    Places where a seed has no finite risk are None.
    """
    groups: dict[str, dict[int, list[Record]]] = {}
    for record in records:
        about = {name: record[name] for name in ("kernel", "heads", "layers", "n", "free_A") if name != along}
        groups.setdefault(json.dumps(about), {}).setdefault(record[along], []).append(record)
    rows = []
    for key, places in groups.items():
        at = sorted(places)
        curves = [log_mean([[record["risk"]] for record in places[place]]) for place in at]
        risk = {side: [curve[side][0] for curve in curves] for side in ("value", "low", "high")}
        about = {"along": along, "at": at, "seeds": sorted(record["seed"] for record in places[at[0]])}
        bayes = [places[place][0]["bayes"] for place in at]
        capped = [max((record.get("capped") or 0.0 for record in places[place]), default=0.0) for place in at]
        about |= {"capped": capped} if any("capped" in places[place][0] for place in at) else {}
        about["each"] = [[one["risk"] for one in sorted(places[place], key=lambda one: one["seed"])] for place in at]
        rows.append({**json.loads(key), **about, "interval": "seeds", "risk": risk, "bayes": bayes})
    return rows


def pick(rows: Iterable[Record], **wanted: Any) -> Record | None:
    """The first row with these entries."""
    return next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)


def risk(rows: Sequence[Record], place: int, side: str = "value", **wanted: Any) -> float | None:
    """The risk of a learner at a place, or an end of its interval; None if it is not there, or not finite."""
    row = pick(rows, **wanted)
    return None if row is None or place not in row["at"] else row["risk"][side][row["at"].index(place)]


def paired(rows: Sequence[Record], place: int, first: Record, second: Record) -> list[tuple[float, float]]:
    """The risks of two learners at a place, seed by seed; nothing where a row does not have them."""
    both = [pick(rows, **wanted) for wanted in (first, second)]
    known = [
        row["each"][row["at"].index(place)]
        for row in both
        if row is not None and place in row.get("at", ()) and "each" in row
    ]
    if len(known) < len(both) or len(known[0]) != len(known[1]) or None in (*known[0], *known[1]):
        return []
    return list(zip(*known, strict=True))


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The interval of second over first, seeds being compared with themselves; None of one seed."""
    found = log_mean([[b / a] for a, b in pairs]) if len(pairs) > 1 else {"low": [None], "high": [None]}
    low, high = found["low"][0], found["high"][0]
    return None if low is None or high is None else (low, high)


def factor(pairs: Sequence[tuple[float, float]]) -> str:
    """The same in words, " (1.01 to 1.05)"; or nothing."""
    found = ratio(pairs)
    return "" if found is None else f" ({found[0]:.4g} to {found[1]:.4g})"


def capped(rows: Iterable[Record]) -> Record:
    """Of learners whose scores are capped: the largest share over seeds, by kernel and heads, at every place."""
    mine = [row for row in rows if "capped" in row]
    return {
        f"{row['kernel']}, {row['heads']}, {_fixed(row)}": dict(zip(row["at"], row["capped"], strict=True))
        for row in mine
    }


def cap_said(rows: Sequence[Record], places: Sequence[int], along: str, kernel: str, heads: Sequence[str]) -> str:
    """Where the cap of the scores changes the answers to many prompts; nothing if it does nowhere."""
    told = []
    for one in heads:
        row = pick(rows, kernel=kernel, heads=one)
        shares = dict(zip(row["at"], row["capped"], strict=True)) if row is not None and "capped" in row else {}
        met = [place for place in places if shares.get(place, 0.0) > FEW]
        if met:
            most = 100 * max(shares[place] for place in met)
            told.append(f"h = {one} ({along} = {', '.join(map(str, met))}; up to {most:.0f} % of the prompts)")
    return f"; the cap of the scores has an effect for {' and '.join(told)}" if told else ""


def cap_note(rows: Sequence[Record]) -> str:
    """In how many learners the cap of the scores, which the paper does not have, has an effect; nothing if in none."""
    met = sum(share > FEW for row in rows for share in row.get("capped", ()))
    return f"scores capped in {met} of {sum(len(row['at']) for row in rows)} points" if met else ""


def _fixed(row: Record) -> str:
    return f"{row['layers']} layers" if row["along"] == "n" else f"n = {row['n']}"


def draw_curve(ax: Axes, at: Sequence[int], curve: Curve, label: str, **style: Any) -> None:
    """A curve with its interval; places without a value are left out."""
    known = [i for i, value in enumerate(curve["value"]) if value is not None]
    ax.plot([at[i] for i in known], [curve["value"][i] for i in known], label=label, **style)
    bounded = [i for i in known if curve["low"][i] is not None]
    if bounded:
        low, high = ([curve[side][i] for i in bounded] for side in ("low", "high"))
        ax.fill_between([at[i] for i in bounded], low, high, color=style["color"], alpha=0.18, lw=0)


def cut_below(ax: Axes, bottom: float, top: float | None = None, *, corner: Corner = "upper") -> None:
    """An axis that ends there, and says so (in the upper right corner, or the lower left one): curves that are only
    rounding below would take most of it.
    """
    ax.set_ylim(bottom, top)
    words = f"curves that leave it below\nare less than {bottom:g}"
    side: dict[str, Any] = {"ha": "right", "va": "top"} if corner == "upper" else {"ha": "left", "va": "bottom"}
    place = 0.97 if corner == "upper" else 0.03
    ax.text(place, place, words, transform=ax.transAxes, fontsize="small", color=DARK, **side)


def plain_ticks(ax: Axes) -> None:
    """On a log axis of less than a decade, ticks as on a linear one: 0.2, 0.4 instead of multiples of powers."""
    from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

    low, high = ax.get_ylim()
    if high < 10 * low:
        ax.yaxis.set_major_locator(MaxNLocator(6))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def finish(figure: Figure, axes: Sequence[Axes], rows: Sequence[Record], title: str, save: Save) -> None:
    """One legend beside all panels, which says what is shaded, and the title."""
    seeds = min((len(row["seeds"]) for row in rows), default=1)
    words = f"shaded: 95 % intervals\nover {seeds} seeds" if seeds > 1 else "one seed"
    words += "\nhollow: the cap of the scores\nhas an effect" if cap_note(rows) else ""
    about: dict[str, Any] = {"title": words, "title_fontsize": SMALL, "alignment": "left"}
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", **about)
    figure.suptitle(title)
    save(figure)


def draw_risks(ax: Axes, rows: Sequence[Record], heads: Sequence[str], title: str, **wanted: Any) -> None:
    """A panel: the risk of every attention, and that of the Bayes estimator."""
    bayes: dict[int, float] = {}
    for one in heads:
        row = pick(rows, heads=one, **wanted)
        if row is not None:
            draw_curve(ax, row["at"], row["risk"], f"h = {one.replace('+', ' and ')}", lw=1.8, ms=5, **STYLES[one])
            met = [i for i, share in enumerate(row.get("capped", ())) if share > FEW and row["risk"]["value"][i]]
            look: dict[str, Any] = {
                "mfc": "white",
                "mec": STYLES[one]["color"],
                "mew": 1.6,
                "ms": 5,
                "lw": 0,
                "zorder": 3,
            }
            values = [row["risk"]["value"][i] for i in met]
            ax.plot([row["at"][i] for i in met], values, marker=STYLES[one]["marker"], **look)
            bayes |= dict(zip(row["at"], row["bayes"], strict=True))
    if bayes:
        places = sorted(bayes)
        ax.plot(places, [bayes[place] for place in places], color=DARK, lw=1.4, ls=":", label="Bayes estimator")
    ax.set_yscale("log")
    ax.set(ylabel="expected squared error (labels²)", title=title)
    plain_ticks(ax)
    whole_numbers(ax)
