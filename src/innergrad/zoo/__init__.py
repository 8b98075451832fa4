"""The zoo: trained learners that are part of the package, each with a card. Read here without torch.

    NAME.json           the card: task, data, training, numbers, limits, digest
    NAME.safetensors    the weights, in 16 or 8 bits

``benchmarks/zoo.py`` writes both.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from innergrad.errors import InputError, one_of
from innergrad.files import digest, read_text

FOLDER = Path(str(files("innergrad.zoo")))
CARD, WEIGHTS = ".json", ".safetensors"
ENTRIES = ("name", "title", "task", "data", "learner", "training", "numbers", "limits", "weights", "licence")

Card = dict[str, Any]


def names(folder: Path = FOLDER) -> list[str]:
    """Of all learners, in the order of the alphabet."""
    return sorted(path.stem for path in folder.glob(f"*{CARD}"))


def card(name: str, folder: Path = FOLDER) -> Card:
    """The card of a learner; a name that is misspelt is answered with the nearest."""
    one_of("unknown learner", name, names(folder), hint="innergrad zoo lists them")
    return dict(_card(folder / f"{name}{CARD}"))


@cache
def _card(path: Path) -> Card:
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"the card {path.name} is damaged", got=str(error), hint="install the package again"
        ) from error
    lacking = [name for name in ENTRIES if name not in found] if isinstance(found, dict) else ["everything"]
    if lacking:
        raise InputError(f"the card {path.name} is damaged", got=f"no {', '.join(lacking)}")
    return dict(found)


def weights(name: str, folder: Path = FOLDER) -> Path:
    """The file with the weights of a learner, after a check of its digest."""
    wanted, path = card(name, folder)["weights"], folder / f"{name}{WEIGHTS}"
    hint = "install the package again"
    if not path.is_file():
        raise InputError(f"the weights of {name} are missing", got=f"no {path.name}", hint=hint)
    found = digest(path)
    if found != wanted["sha256"]:
        got, allowed = f"SHA-256 {found[:16]}...", f"{wanted['sha256'][:16]}..., as its card says"
        raise InputError(f"the weights of {name} are damaged", got=got, allowed=allowed, hint=hint)
    return path


def place(path: Path) -> Path:
    """The weights of the learner of this name, unless a file or folder has it; else the path as it is."""
    name = str(path)
    return weights(name) if not path.exists() and name in names() else path
