"""A folder that ``from_pretrained`` loads: config.json, weights in files of a gigabyte, and files that explain them."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from innergrad.errors import InputError
from innergrad.files import Writer, digest, digests

NOTE, WHOLE, INDEX = "innergrad.json", "model.safetensors", "model.safetensors.index.json"
SHARD = 2**30  # bytes of the largest file
LARGEST = 2 * 10**9  # bytes of a folder that is written without being asked for
NEEDED = "pip install transformers"


class Sizes(ABC):
    """Of the model that a transformer becomes."""

    n_layer: int
    n_head: int
    d_head: int
    n_inner: int

    def __str__(self) -> str:
        return f"{self.n_layer} blocks, {self.heads}, width {self.width}, {self.n_inner} units"

    @property
    def heads(self) -> str:
        return f"{self.n_head} heads of {self.d_head}"

    @property
    @abstractmethod
    def width(self) -> int:
        """Of the stream."""

    @property
    @abstractmethod
    def n_parameters(self) -> int: ...

    def n_bytes(self, dtype: torch.dtype) -> int:
        """Of the files, almost: every block is stored, also those that are equal."""
        return self.n_parameters * dtype.itemsize


def require_small(size: int, in_memory: str, *, large: bool) -> None:
    """Refuse a folder of so many bytes, unless it was asked for."""
    if size > LARGEST and not large:
        hint = f"large=True (--large) writes it; {in_memory} makes it in memory, where equal blocks are one"
        raise InputError(
            "the folder would be large, for every block is written out", got=f"{size / 1e9:.1f} GB", hint=hint
        )


def fingerprints(state: Mapping[str, Tensor]) -> dict[str, str]:
    """A digest of the weights of every block, "layers.3" or "h.3", and of the weights outside of blocks, "": of names,
    and of the bits.
    """
    found = dict[str, Any]()
    for name in sorted(state):
        parts = name.split(".")
        block = ".".join(parts[:2]) if len(parts) > 1 and parts[1].isdigit() else ""
        held = found.setdefault(block, hashlib.sha256())
        held.update(name.encode())
        held.update(state[name].detach().cpu().contiguous().view(torch.uint8).numpy())
    return {block: held.hexdigest()[:16] for block, held in found.items()}


def write_model(
    path: Path,
    config: dict[str, Any],
    state: dict[str, Tensor],
    texts: Mapping[str, str],
    note: dict[str, Any],
    *,
    force: bool,
) -> Path:
    """The folder. texts: further files, by name. note: the content of innergrad.json.

    An earlier export is replaced; other files of these names only with ``force``.
    """
    shards = _shards(state)
    several = [f"model-{n:05d}-of-{len(shards):05d}.safetensors" for n in range(1, len(shards) + 1)]
    weights = several if len(shards) > 1 else [WHOLE]
    files = ["config.json", *texts, *weights, *([INDEX] if len(shards) > 1 else [])]
    writer = Writer("export", force=force)
    writer.check_all(path, [*dict.fromkeys([*files, WHOLE, INDEX])], NOTE)
    before = digests(path / NOTE)
    texts = {"config.json": json.dumps(config, indent=1) + "\n", **texts}
    if len(shards) > 1:
        places = {key: file for file, shard in zip(weights, shards, strict=True) for key in shard}
        index = {"metadata": {"total_size": sum(value.nbytes for value in state.values())}, "weight_map": places}
        texts[INDEX] = json.dumps(index, indent=1) + "\n"
    note = {**note, "weights": fingerprints(state)}
    with writer.several(path, NOTE, note) as part:
        for file, shard in zip(weights, shards, strict=True):
            tensors = {key: value.clone().contiguous() for key, value in shard.items()}
            save_file(tensors, part(file), metadata={"format": "pt"})
        for file, text in texts.items():
            part(file).write_text(text, encoding="utf-8")
        for old in {*before, WHOLE, INDEX} - {*files}:  # weights of an earlier export would be loaded instead
            if (path / old).is_file() and (force or digest(path / old) in before.get(old, ())):
                (path / old).unlink()
    return path


def _shards(state: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The parameters in files of at most ``SHARD`` bytes, a larger one alone. (Two names of a tensor cannot share its
    bytes in a file that ``from_pretrained`` reads: a key that is missing there is drawn at random.)
    """
    shards: list[dict[str, Tensor]] = [{}]
    room = SHARD
    for name, value in state.items():
        room -= value.nbytes
        if room < 0 and shards[-1]:
            shards.append({})
            room = SHARD - value.nbytes
        shards[-1][name] = value
    return shards
