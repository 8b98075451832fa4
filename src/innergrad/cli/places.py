"""Files and folders that are not there: which name beside them was meant."""

from __future__ import annotations

from pathlib import Path

from innergrad.errors import InputError, suggestion


def near_path(path: Path) -> str:
    """ "did you mean out/model?", if something of a similar name is beside where this should be; else nothing."""
    try:
        names = [one.name for one in path.parent.iterdir() if not one.name.startswith(".")]
    except (OSError, ValueError):
        return near_path(path.parent) if path.parent != path and not _there(path.parent) else ""
    found = suggestion(path.name, names)
    if not found:
        return ""
    name = found.removeprefix("did you mean ").removesuffix("?")
    return f"did you mean {path.parent / name}?" if name != path.name else ""


def require_there(path: Path, what: str, hint: str = "") -> None:
    """An error if there is no such file or folder; ``what`` was to be read."""
    if not _there(path):
        words = near_path(path) or hint
        raise InputError(f"cannot read {what}{path}", got="no such file or folder", hint=words)


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
