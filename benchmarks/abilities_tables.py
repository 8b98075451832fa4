"""The tables of docs/extending.md: which layer can do what, on which target, as the parts of the targets say it."""

from __future__ import annotations

from collections.abc import Callable

from innergrad.targets import TARGETS
from innergrad.targets.parts.base import ABILITIES


def abilities() -> list[str]:
    lines = [f"| | {' | '.join(f'`{name}`' for name in TARGETS)} |", "|---|" + "---|" * len(TARGETS)]
    for ability, words in ABILITIES.items():
        cells = []
        for target in TARGETS.values():
            can = {kind: texts[ability] for kind, texts in target.abilities().items() if ability in texts}
            cells.append("; ".join(f"{kind}: {how}" for kind, how in can.items()) or "no")
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return lines


def keys() -> list[str]:
    """The keys of ``can``, for who writes a part."""
    return ["| key of `can` | ability |", "|---|---|", *(f"| `{key}` | {words} |" for key, words in ABILITIES.items())]


TABLES: dict[str, Callable[[], list[str]]] = {"abilities": abilities, "ability_keys": keys}
