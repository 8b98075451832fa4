"""The two files of a saved model, and whether they may be written. Nothing here needs torch."""

from __future__ import annotations

import json
from pathlib import Path

from innergrad.errors import InputError
from innergrad.files import read_text, require_plain

CONFIG, WEIGHTS = "config.json", "weights.safetensors"


def check_folder(path: Path, force: bool = False) -> None:
    """An error if the folder has files of the names of a model's that are none, unless ``force``."""
    require_plain(path, (CONFIG, WEIGHTS))
    there = [name for name in (CONFIG, WEIGHTS) if (path / name).exists()]
    if there and not force and not _is_model(path / CONFIG):
        what = f"{path} has files that are no model of innergrad's"
        hint = "they are not replaced: choose another folder, or give --force (force=True)"
        raise InputError(what, got=", ".join(there), hint=hint)


def _is_model(config: Path) -> bool:
    try:
        found = json.loads(read_text(config))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("format", "")).startswith("innergrad-")


def not_a_model(path: Path, hint: str = "") -> InputError:
    """The error of a folder that holds no model."""
    return InputError(
        "not a saved model",
        got=str(path),
        allowed=f"a folder with {CONFIG} and {WEIGHTS}",
        hint=hint or "write one with `innergrad compile --out`",
    )
