"""Stored results: one JSON file each under results/, with the command and the versions that made it."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"


def store(name: str, command: str, data: dict[str, Any]) -> Path:
    import numpy
    import torch

    import innergrad

    versions = {"innergrad": innergrad.__version__, "torch": torch.__version__, "numpy": numpy.__version__}
    manifest = {"command": command, "python": platform.python_version(), **versions}
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_compact({"manifest": manifest, **data}) + "\n")
    print(f"wrote {path.relative_to(RESULTS.parent)}")
    return path


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def _compact(data: dict[str, Any]) -> str:
    """JSON with one line per row of a list of records."""
    text = json.dumps(data, indent=1)
    lines, open_record = [], ""
    for line in text.splitlines():
        stripped = line.strip()
        if open_record:
            open_record += (" " if not open_record.endswith("{") else "") + stripped
            if stripped.startswith("}"):
                lines.append(open_record)
                open_record = ""
        elif stripped == "{" and line.startswith(" "):
            open_record = line
        else:
            lines.append(line)
    return "\n".join(lines)
