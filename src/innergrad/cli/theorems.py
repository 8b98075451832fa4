"""``innergrad cost --theorem``: the calculators of :mod:`innergrad.papers.resources`. Nothing here needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from innergrad.errors import InputError, Registry
from innergrad.files import Writer
from innergrad.papers import resources
from innergrad.papers.resources import Bridge, Comparison, Interval, Result, TradeOff

EPS = {"neural-networks-2": "1e-2", "neural-networks-3": "1e-2,1e-4,1e-8", "neural-networks-4": "1e-2,1e-4,1e-8"}


@dataclass(frozen=True)
class Theorem:
    """A calculator: its accuracies and settings -> results; the flags it takes, and those it cannot do without."""

    calculate: Callable[..., Sequence[Result | TradeOff]]
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()


def _trade_off(eps: list[float], **chosen: Any) -> list[TradeOff]:
    return [resources.trade_off(one, **chosen) for one in eps]


def _indicator(eps: list[float], d: int | None = None, **constants: float) -> list[Result]:
    return [resources.indicator(eps, d, resources.BallConstants(**constants))]


def _smooth(eps: list[float], d: int, s: int, depth: int, **constants: float) -> list[Result]:
    return [resources.smooth(eps, d, s, depth, resources.SmoothConstants(**constants))]


THEOREMS = Registry(
    "theorem",
    {
        "neural-networks-2": Theorem(_trade_off, ("depth", "width", "heads", "c")),
        "neural-networks-3": Theorem(_indicator, ("d", "c1", "c2", "c3", "c4", "c_sigma")),
        "neural-networks-4": Theorem(_smooth, ("d", "s", "depth", "c_lemma3", "c_lemma4"), needs=("d", "s", "depth")),
    },
)
#: Theorem n of "Transformers Perform In-Context Learning through Neural Networks", as it was once called here.
OLD_NAMES = {f"000-{number}": f"neural-networks-{number}" for number in (2, 3, 4)}
OWN = frozenset(("eps", *(name for theorem in THEOREMS.values() for name in theorem.takes))) - {"d"}


def asked(given: Mapping[str, Any]) -> bool:
    """Whether a theorem was named; its flags without it are an error."""
    lost = sorted(OWN & given.keys())
    if "theorem" not in given and lost:
        flags = ", ".join(map(_flag, lost))
        raise InputError("these flags belong to a theorem", got=flags, hint=f"add --theorem {' or '.join(THEOREMS)}")
    return "theorem" in given


def cost_of_theorem(given: Mapping[str, Any], out: Path | None, *, force: bool, as_json: bool, quiet: bool) -> None:
    name = OLD_NAMES.get(given["theorem"], given["theorem"])
    theorem, chosen = THEOREMS.find(name), {key: value for key, value in given.items() if key != "theorem"}
    _check(name, theorem, chosen)
    eps = _numbers(chosen.pop("eps", EPS[name]))
    results = theorem.calculate(eps, **chosen)
    content = {"theorem": name, "results": resources.to_json(results)}
    if out is not None:
        Writer("cost", force=force).json(out, content)
    if as_json:
        print(json.dumps(content))
    elif not quiet:
        console = Console()
        for result in results:
            if isinstance(result, TradeOff):
                _print_trade_off(console, result)
            else:
                _print_result(console, result)


def _check(name: str, theorem: Theorem, chosen: Mapping[str, Any]) -> None:
    allowed = ", ".join(map(_flag, ("eps", *theorem.takes)))
    wrong = [key for key in chosen if key not in (*theorem.takes, "eps")]
    if wrong:
        got = ", ".join("a model folder" if key == "model" else _flag(key, chosen[key]) for key in wrong)
        hint = "the accuracies are --eps" if "epsilon" in wrong else ""
        raise InputError(f"theorem {name} does not take this", got=got, allowed=allowed, hint=hint)
    missing = [key for key in theorem.needs if key not in chosen]
    if missing:
        flags = ", ".join(map(_flag, missing))
        raise InputError(f"theorem {name} needs {flags}", hint=f"e.g. --theorem {name} --d 1 --s 8 --depth 3")


def _flag(key: str, value: object = None) -> str:
    return ("--no-" if value is False else "--") + key.replace("_", "-")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError("eps must be numbers", got=repr(text), allowed="e.g. 1e-2 or 1e-2,1e-4") from None


# ------------------------------------------------------------------------------------------------------------- printing

NETWORKS = {"neural-networks-3": ("A: 2 layers", "B: 3 layers"), "neural-networks-4": ("A: deep", "B: L layers")}
ORDERS = {
    "neural-networks-3": (
        "Lemma 1 bounds the width of A from below, for eps < c2/d^4; Lemma 2 that of B from above. So where B has the",
        "smaller number its transformer is the smaller one; where A has it the lemmas decide nothing.",
        "d fixed: TF_A > 8 (c3 exp(c4 d))^2, constant in eps; TF_B = O(eps^-2).",
        "d coupled, (c2/eps)^(1/4): TF_A > 8 c3^2 exp(2 c4 (c2/eps)^(1/4)); TF_B = O(eps^-3). Printed: O(eps^-1).",
    ),
    "neural-networks-4": (
        "Lemma 3 bounds the width of A from above, Lemma 4 that of B from below. So where A has the smaller number",
        "its transformer is the smaller one; where B has it the lemmas decide nothing.",
    ),
}


def _print_result(console: Console, result: Result) -> None:
    for row in result.rows:
        table = Table(title=_title(result, row), title_justify="left")
        for column in ("", *NETWORKS[result.theorem]):
            table.add_column(column, justify="right" if column else "left")
        for name, cells in _rows(row, deep=result.theorem == "neural-networks-4"):
            table.add_row(name, *cells)
        console.print(table)
        console.print(_smaller(row), highlight=False, soft_wrap=True)
        console.print()
    for name, intervals in (
        ("widths", result.verdict.width),
        ("n^3 K^2", result.verdict.size),
        ("n K", result.verdict.backprop),
    ):
        console.print(f"{name}: {_crossovers(intervals)}", highlight=False, soft_wrap=True)
    for line in (result.verdict.note, *ORDERS[result.theorem]):
        if line:
            console.print(line, highlight=False, soft_wrap=True)


def _title(result: Result, row: Comparison) -> str:
    where = f"d = {row.d:.4g}, coupled" if result.regime == "d coupled to eps" else result.regime
    return f"Theorem {result.theorem[-1]}, eps = {row.eps:g}, {where}"


def _rows(row: Comparison, deep: bool) -> list[tuple[str, list[str]]]:
    both = (row.A, row.B)
    return [
        ("layers of the network", [f"{'≤ ' * deep}{row.A.layers:.3g}", f"{row.B.layers:g}"]),
        ("its width", [_bounded(bridge, bridge.width) for bridge in both]),
        ("transformer, as printed", [f"O({bridge.printed})" for bridge in both]),
        ("transformer, n^3 K^2", [_bounded(bridge, bridge.size) for bridge in both]),
        ("in back-propagation order, n K", [_bounded(bridge, bridge.backprop) for bridge in both]),
    ]


def _bounded(bridge: Bridge, amount: object) -> str:
    return "no bound" if bridge.bound == "none" else f"{'>' if bridge.bound == 'at least' else '≤'} {amount}"


def _smaller(row: Comparison) -> str:
    if row.smaller is None:
        return "Lemma 1 says nothing here: no comparison."
    return (
        f"Smaller: {row.smaller}." if row.decided else f"{row.smaller} has the smaller number, which decides nothing."
    )


def _crossovers(intervals: tuple[Interval, ...]) -> str:
    if not intervals:
        return "no comparison"
    parts = "; ".join(
        f"{f'{part.smaller} smaller' if part.smaller else 'equal'} for {part.low} < eps < {part.high}"
        for part in intervals
    )
    found = [str(part.high) for part in intervals[1:]]
    return f"{parts} ({'crossover ' + ', '.join(found) if found else 'no crossover'})"


def _print_trade_off(console: Console, result: TradeOff) -> None:
    title = f"Theorem 2, eps = {result.eps:g}: networks for {result.heads} heads, n K^2 M with M = {result.terms} terms"
    table = Table(title=title, title_justify="left")
    names = ("Neural Networks, as printed", "Deep Optimizers", "target softmax, sink", "target sigma, backprop")
    columns = ("n", "K", "n K^2", "layers: NN", "DO", "softmax, sink", "sigma", "layers x heads: NN", "sigma")
    for column in columns:
        table.add_column(column, justify="right")
    for pair in result.pairs:
        by_name = {route.route: route for route in pair.routes}
        layers = [str(by_name[name].layers) for name in names]
        sizes = [str(by_name[name].size) for name in (names[0], names[-1])]
        table.add_row(str(pair.depth), str(pair.width), str(pair.product), *layers, *sizes)
    console.print(table)
    console.print("NN: Neural Networks, as printed; DO: Deep Optimizers", highlight=False)
    if result.network is not None:
        _print_routes(console, result, *result.network)


def _print_routes(console: Console, result: TradeOff, depth: int, width: int) -> None:
    title = f"n = {depth}, K = {width}, one step of gradient descent; heads of the widest layer"
    table = Table(title=title, title_justify="left")
    for column in ("", "layers", "heads", "order", "width", "order", "layers x heads"):
        table.add_column(column, justify="left" if column in ("", "order") else "right")
    (pair,) = (pair for pair in result.pairs if pair.depth == depth)
    for route in pair.routes:
        heads, wide = (str(route.heads), route.heads_order), (str(route.width), route.width_order)
        table.add_row(route.route, str(route.layers), *heads, *wide, str(route.size))
    console.print(table)
