"""Checkpoints: one safetensors file each, whole or not there at all. Nothing is ever unpickled.

    folder/step-000001000.safetensors      tensors; in the header: format, version, step, meta (JSON), a digest

A file is written under another name, flushed to the disk, and only then renamed, so that a reader, or a run that is
resumed after it was killed, sees whole files only. The digest finds later damage of the disk. One process writes into a
folder at a time. The next one removes the remains of killed writers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import Tensor

from innergrad.errors import InputError, integer
from innergrad.files import make_folder, require_regular
from innergrad.memory import require_memory

FORMAT, VERSION = "innergrad-lab-checkpoint", "1"
PATTERN, PART = "step-*.safetensors", ".part"
MOST = 2**42  # bytes of a checkpoint
NO_PICKLE = "a pickle runs code; none is ever loaded"
NAME = re.compile(r"step-(\d+)\.safetensors")

START = 256  # bytes of a file that tell what it is
#: Zip files, which torch.save writes, and pickles of protocol 2 and later.
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
#: Protocols 0 and 1 have no mark of their own. A pickle of them begins with a dict, a list or a class, and puts it into
#: the memo; or with the number that old versions of torch.save begin with. No JSON begins so.
OLD_PICKLES = re.compile(rb"\(*(?:\([dl]|[}\]]|[ci][\w.]+\n[\w.]+\n)(?:p\d+\n|q[\x00-\x0f])|L\d+L\n\.")


@dataclass(frozen=True)
class Checkpoint:
    """``tensors`` after ``step`` steps; ``meta``: further saved values, JSON; ``path``: the file it was read from."""

    step: int
    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    path: Path

    def require(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """An error unless there are exactly these tensors, of these shapes."""
        for name in sorted(self.tensors.keys() | shapes.keys()):
            found = tuple(self.tensors[name].shape) if name in self.tensors else "no such tensor"
            wanted = tuple(shapes[name]) if name in shapes else "no such tensor"
            if found != wanted:
                raise InputError(f"{self.path} is of another model: {name}", got=found, allowed=str(wanted))


def save(folder: str | Path, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], keep: int = 2) -> Path:
    """Writes a checkpoint and removes all but the last ``keep``. At any moment one whole file remains."""
    folder, step, keep = Path(folder), integer("step", step, low=0), integer("keep", keep)
    make_folder(folder, "checkpoints")
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    header = {"format": FORMAT, "version": VERSION, "step": str(step), "meta": json.dumps(dict(meta))}
    header["digest"] = _digest(copies, header)
    path = folder / f"step-{step:09d}.safetensors"
    _remove(folder, "*" + PART)
    part = path.with_name(path.name + PART)
    with part.open("wb") as file:
        file.write(serialised(copies, header))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync(folder)
    for old in _steps(folder)[:-keep]:
        if old != path:
            old.unlink(missing_ok=True)
    return path


def load(path: str | Path, device: torch.device | str = "cpu") -> Checkpoint:
    """The checkpoint in a file, or the newest in a folder (or in its folder ``checkpoints``)."""
    path = Path(path)
    if not path.is_dir():
        return _read(path, device)
    found = _steps(path) or _steps(path / "checkpoints")
    if not found:
        raise InputError(
            f"there is no checkpoint in {path}", allowed=f"the folder of a run, or one with files {PATTERN}"
        )
    try:
        return _read(found[-1], device)
    except Damaged as error:
        previous = f"the one before it is {found[-2]}: load that, or remove the damaged file" if found[1:] else ""
        raise InputError(str(error), hint=previous or "there is no earlier one") from error


def every(folder: str | Path) -> list[Path]:
    """The checkpoints in a folder (or in its folder ``checkpoints``), the newest last."""
    return _steps(Path(folder)) or _steps(Path(folder) / "checkpoints")


def newest(folder: str | Path) -> Path | None:
    """The last checkpoint in a folder (or in its folder ``checkpoints``), if there is one."""
    found = every(folder)
    return found[-1] if found else None


def step_of(path: Path) -> int | None:
    """The step that a checkpoint has in its name, if it has one."""
    named = NAME.fullmatch(path.name)
    return int(named[1]) if named else None


class Damaged(InputError):
    """A file that begins like a checkpoint, or is named like one, and cannot be read to the end."""


def read_tensors(path: Path, hint: str = NO_PICKLE) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header and the tensors of a safetensors file. hint: what to do about a pickle."""
    require_regular(path, MOST)
    try:
        with path.open("rb") as file:
            start = file.read(START)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read the checkpoint {path}", got=error.strerror) from error
    if _is_pickle(start):
        raise InputError(f"{path} is a pickle", allowed="safetensors", hint=hint)
    require_memory(2 * size, f"loading {path}", "it is larger than this machine")
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise Damaged(f"the checkpoint {path} is damaged", got=str(error)) from error
    return header, tensors


def _is_pickle(start: bytes) -> bool:
    """Whether a file that begins so is a pickle, of any protocol. It is looked at, and not loaded.

    A safetensors file begins with the length of its header, 8 bytes, and a brace. A length may look like a pickle (640
    is 80 02); it is less than 2^32, so the brace comes after four zeros.
    """
    if start[4:9] == b"\0\0\0\0{":
        return False
    return start.startswith(PICKLES) or OLD_PICKLES.match(start) is not None


def _read(path: Path, device: torch.device | str) -> Checkpoint:
    header, tensors = read_tensors(path)
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of the lab", got=f"format {header.get('format', 'unknown')}")
    if header.get("version") != VERSION:
        raise InputError(f"{path} has another version", got=header.get("version"), allowed=VERSION)
    if header.get("digest") != _digest(tensors, header):
        raise Damaged(f"the checkpoint {path} is damaged", got="other numbers than were written")
    step, meta = _parsed(header, path)
    if (named := NAME.fullmatch(path.name)) and int(named[1]) != step:
        hint = "rename it, or move it away: as it is, it may hide a later one"
        raise InputError(f"the checkpoint {path} has the name of another step", got=f"step {step} inside", hint=hint)
    return Checkpoint(step, {name: tensor.to(device) for name, tensor in tensors.items()}, meta, path)


def _parsed(header: Mapping[str, str], path: Path) -> tuple[int, dict[str, Any]]:
    """The step and the further values. They must have the form that :func:`save` writes, no matter who wrote them."""
    try:
        step, meta = int(header["step"]), json.loads(header["meta"])
    except (KeyError, ValueError, RecursionError) as error:
        raise Damaged(f"the checkpoint {path} is damaged", got=f"a header without step or meta: {error}") from error
    tables = meta.get("experiments", []) if isinstance(meta, dict) else None
    if step < 0 or not isinstance(tables, list) or not isinstance(meta, dict):
        raise Damaged(f"the checkpoint {path} is damaged", got="a header that no run writes")
    if not all(isinstance(table, dict) for table in tables):
        raise Damaged(f"the checkpoint {path} is damaged", got="experiments that are no tables")
    return step, meta


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    digest = blake2b(f"{header.get('step')} {header.get('meta')}".encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _steps(folder: Path) -> list[Path]:
    """Checkpoints in a folder, the newest last. (Names are as long as each other, up to a billion steps.)"""
    return sorted(folder.glob(PATTERN), key=lambda path: (len(path.name), path.name))


def _remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make a rename last through a power cut; systems that cannot open folders do not need it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
