"""The tables of docs/reproduction.md: every figure of a paper, judged by the records in results/figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from innergrad.papers.catalogue import FIGURES
from innergrad.papers.frame import SAID, Figure, fewest_seeds

FOLDER = Path(__file__).parent.parent / "results" / "figures"
HOLDS = {True: "yes", False: "no", None: "open"}


def stored(figure: Figure) -> dict[str, Any] | None:
    """What ``innergrad figures`` wrote; None if it was not run."""
    path = FOLDER / f"{figure.name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def trained(found: dict[str, Any]) -> str:
    """How learners were trained: steps, and seeds of the curve that has the fewest."""
    steps = sorted({one["steps"] for one in found["training"].values()})
    seeds = fewest_seeds(found["rows"], len(found["sizes"]["seeds"]))
    told = " or ".join(f"{number:,}" for number in steps)
    return f"Learners: {told} steps of training, {seeds} seed{'s' * (seeds != 1)}."


def cost(found: dict[str, Any]) -> str:
    """Seconds of the stages that ran, by device."""
    spent: dict[str, float] = {}
    for one in found["cost"].values():
        if one["seconds"] is not None:
            spent[one["device"]] = spent.get(one["device"], 0.0) + one["seconds"]
    return ", ".join(f"{seconds / 60:.1f} min, {device}" for device, seconds in spent.items()) or "not recorded"


def command(figure: Figure) -> str:
    return f"`innergrad figures {figure.name}`"


def verdict(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not run yet"
    return SAID[found["verdict"]] + (f" ({found['caveat']})" if found["caveat"] else "")


def summary() -> list[str]:
    """One row a figure."""
    lines = ["| figure | verdict | command | cost |", "|---|---|---|---|"]
    for paper in dict.fromkeys(figure.paper for figure in FIGURES.values()):
        lines.append(f"| ***{paper}*** | | | |")
        for figure in (one for one in FIGURES.values() if one.paper == paper):
            found = stored(figure)
            name = f"[{figure.number}](#{figure.name})" if found else figure.number
            lines.append(
                f"| {name}: {subject(figure)} | {verdict(found)} | {command(figure)} | {cost(found) if found else ''} |"
            )
    return lines


def subject(figure: Figure) -> str:
    """The title without the paper and the number, which stand beside it."""
    return figure.title.removeprefix(figure.paper).partition(": ")[2] or figure.title


def sections() -> list[str]:
    """A section a figure that was run: the picture, and finding by finding the paper's number and ours."""
    lines: list[str] = []
    for figure in FIGURES.values():
        found = stored(figure)
        if found is None:
            continue
        lines += ["", f"### {figure.name}", "", f"*{figure.paper}*, {figure.number}. {subject(figure)}.", ""]
        lines += [f"**{verdict(found).capitalize()}.** {found['reason']}", ""]
        if found["training"]:
            lines += [trained(found), ""]
        if (FOLDER / f"{figure.name}.png").is_file():
            lines += [f"![{figure.title}](../results/figures/{figure.name}.png)", ""]
        lines += ["| the paper says | its number | ours | holds |", "|---|---|---|---|"]
        for one in found["findings"]:
            ours = one["words"].replace("|", "\\|")
            lines.append(f"| {one['claim']} | {one.get('paper') or 'none given'} | {ours} | {HOLDS[one['holds']]} |")
    return lines[1:]


TABLES = {"reproduction": summary, "reproduction_sections": sections}
