"""Stored results: one JSON file each under results/, with the command and the versions that made it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from innergrad.errors import InputError

RESULTS = Path(__file__).parent.parent / "results"


def _one_line(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What a command says of an error, in place of Python: of wrong input, or a package that is not there, one line."""
    if not issubclass(kind, InputError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr, flush=True)
    os._exit(2)  # a hook cannot choose the status otherwise


sys.excepthook = _one_line


def store(
    name: str, command: str, data: dict[str, Any], out: Path | None = None, *, keep: bool = True, told: bool = True
) -> Path:
    """results/<name>.json, and the same file in the folder ``out``; without ``keep``, only the latter."""
    import numpy
    import torch

    import innergrad

    versions = {"innergrad": innergrad.__version__, "torch": torch.__version__, "numpy": numpy.__version__}
    manifest = {"command": command, "python": platform.python_version(), **versions}
    text = _compact({"manifest": manifest, **data}) + "\n"
    folders = [*([RESULTS] if keep else []), *([out] if out is not None else [])]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(text)
        if told:
            print(f"wrote {folder.name}/{name}.json")
    return folders[0] / f"{name}.json"


def renew(name: str, command: str, changed: dict[str, Any]) -> None:
    """Replaces a part of results/<name>.json; the rest and its manifest stay, and ``renewed`` says what did it."""
    import innergrad

    content = read(name) | changed | {"renewed": {"command": command, "innergrad": innergrad.__version__}}
    (RESULTS / f"{name}.json").write_text(_compact(content) + "\n")
    print(f"renewed: results/{name}.json")


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def no_arguments(about: str | None) -> None:
    """For a command without settings: ``--help`` says what it does, and anything else is an error; nothing is run."""
    argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()


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
