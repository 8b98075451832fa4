"""Folders that results go into."""

from __future__ import annotations

from pathlib import Path

from innergrad.errors import InputError


def make_folder(path: Path, what: str = "") -> None:
    """The folder, made if it is missing; ``what`` is to be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = f"cannot write {what} into {path}" if what else f"cannot write into {path}"
        raise InputError(words, got=str(error), allowed="a folder, existing or new") from error
