"""What a result was made with: configuration, versions, code, machine, time; without it, a number is only a rumour."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from innergrad.config import to_table

PACKAGES = ("innergrad", "torch", "numpy", "safetensors", "triton")


def manifest(config: Any) -> dict[str, Any]:
    """A JSON object about this run: ``config`` is a configuration, or a table of it. Paths are never absolute."""
    table = to_table(config) if dataclasses.is_dataclass(config) else dict(config)
    return {
        "config": table,
        "seeds": sorted(set(_seeds(table))),
        "versions": {"python": platform.python_version(), **_versions()},
        "git": _git(),
        "hardware": _hardware(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [_relative(argument) for argument in (Path(sys.argv[0]).name, *sys.argv[1:])],
    }


def _seeds(node: Any) -> Iterator[int]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "seed":
                yield value
            else:
                yield from _seeds(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _seeds(item)


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git() -> dict[str, Any] | None:
    """Commit of the checkout the package is tracked in, and whether its files differ from it; None elsewhere."""
    here = Path(__file__).parent
    if _run("git", "-C", str(here), "ls-files", "--error-unmatch", "errors.py") is None:
        return None
    commit = _run("git", "-C", str(here), "rev-parse", "HEAD")
    status = _run("git", "-C", str(here), "status", "--porcelain", "--", ".")
    return None if commit is None else {"commit": commit, "dirty": bool(status)}


def _run(*command: str) -> str | None:
    """What a command prints, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _hardware() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory(),
        "gpus": [{"name": gpu.name, "memory_gib": round(gpu.total_memory / 2**30, 1)} for gpu in gpus],
        "cuda": torch.version.cuda,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def _relative(argument: str) -> str:
    """An argument as it was given; of an absolute path only what lies below the current folder, or its last part."""
    option, equals, text = argument.rpartition("=")
    path = Path(text)
    if not path.is_absolute():
        return argument
    inside = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return f"{option}{equals}{inside}"
