"""The origin of a result: configuration, versions, code, machine, time. Without it, a number is only a rumour."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from innergrad.config import to_table
from innergrad.errors import InputError

PACKAGES = ("torch", "numpy", "safetensors", "triton")

#: What ``import_code`` imported into this process: name of the module -> sha256 of its file, if it has one.
IMPORTED: dict[str, str | None] = {}


def manifest(config: Any) -> dict[str, Any]:
    """A JSON object about this run: ``config`` is a configuration, or a table of it. Paths are never absolute."""
    table = to_table(config) if dataclasses.is_dataclass(config) else dict(config)
    return {
        "config": table,
        "seeds": sorted(set(_seeds(table))),
        "versions": {"python": platform.python_version(), **_versions()},
        "git": _git(),
        "imports": dict(IMPORTED),
        "hardware": _hardware(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [_relative(argument) for argument in (Path(sys.argv[0]).name, *sys.argv[1:])],
    }


def import_code(name: str) -> None:
    """Imports, and so runs, a Python file or a module of the user's; manifests that are written later say so.

    The folder of the file (of a module, the current one) goes to the end of sys.path, so that code finds its
    neighbours.
    """
    path = Path(name).resolve()
    is_file = path.suffix == ".py" or len(Path(name).parts) > 1
    if is_file and (not path.is_file() or "." in path.stem):
        got = "more than one dot" if path.is_file() else "no such file"
        raise InputError(f"cannot import {name}", got=got, allowed="a file such as waves.py, or a module")
    folder, module = (path.parent, path.stem) if is_file else (Path.cwd(), name)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(module)
        origin = Path((spec and spec.origin) or "").resolve()
        if spec is not None and (origin == path or not is_file):
            importlib.import_module(module)
    except (Exception, SystemExit) as error:
        got = f"{type(error).__name__}: {error}{_place(error, folder)}"
        raise InputError(f"cannot import {name}", got=got) from error
    if spec is None:
        raise InputError(f"cannot import {name}", got="no such module", hint="the name of a file ends in .py")
    if is_file and origin != path:
        raise InputError(f"cannot import {name}", got=f"another module {module}", hint="give the file another name")
    digest = hashlib.sha256(origin.read_bytes()).hexdigest() if origin.is_file() else None
    IMPORTED.setdefault(module, digest)


def _place(error: BaseException, folder: Path) -> str:
    """ " (waves.py, line 3)": the first line below the folder that led to the error. The first frame is our own."""
    for frame in traceback.extract_tb(error.__traceback__)[1:]:
        if Path(frame.filename).is_relative_to(folder):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


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
    from innergrad import __version__  # the code that runs, whatever is installed

    found = {"innergrad": __version__}
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
    status = _run("git", "--no-optional-locks", "-C", str(here), "status", "--porcelain", "--", ".")
    return None if commit is None else {"commit": commit, "dirty": bool(status)}


def _run(*command: str) -> str | None:
    """The output of a command, or None if it fails."""
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
    """An argument as it was given; of an absolute path only the part below the current folder, or its last part."""
    option, equals, text = argument.rpartition("=")
    path = Path(text)
    if not path.is_absolute():
        return argument
    inside = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return f"{option}{equals}{inside}"
