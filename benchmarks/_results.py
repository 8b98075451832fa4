"""Stored results: one JSON file each under results/, with the command and the versions that made it."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"


def store(name: str, command: str, data: dict[str, Any], out: Path | None = None) -> Path:
    """results/<name>.json, and the same file in the folder ``out``."""
    import numpy
    import torch

    import innergrad

    versions = {"innergrad": innergrad.__version__, "torch": torch.__version__, "numpy": numpy.__version__}
    manifest = {"command": command, "python": platform.python_version(), **versions}
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_compact({"manifest": manifest, **data}) + "\n")
    print(f"wrote {path.relative_to(RESULTS.parent)}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / path.name).write_text(path.read_text())
    return path


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def device_name(device: str) -> str:
    """The GPU's name, or the CPU's."""
    import torch

    from innergrad.manifest import manifest

    name: str = torch.cuda.get_device_name(device) if device.startswith("cuda") else manifest({})["hardware"]["cpu"]
    return name


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


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
