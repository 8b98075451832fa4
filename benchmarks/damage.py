"""Damage on a disk: bits that flip in saved folders, checkpoints and built kernels. Is every one of them found?

    python benchmarks/damage.py --flips 2000      stores results/damage.json

One bit of one file is flipped, the file is read as a user would, and the bit is put back. ``refused``: a sentence says
so. ``same``: it is loaded, and is what it was (a bit of the space between numbers of a text, say). ``other``: it is
loaded and is something else, without a word. ``raw``: an exception that is no sentence. A library of kernels that is
damaged is never loaded: it is built again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import innergrad as ig
from _results import store
from innergrad import files
from innergrad.errors import InputError
from innergrad.interpret.native import kernel
from innergrad.lab import checkpoints

Row = dict[str, Any]
SOURCE = 'extern "C" long answer() { return 42; }\n'
REBUILDS = 4
#: Targets, each with an algorithm that they are quick to be compiled for.
MODELS: dict[str, Callable[[], ig.CompiledTransformer]] = {
    "relu": lambda: ig.compile(_descent(), n_examples=4, epsilon=1e-2),
    "gpt": lambda: ig.compile(_descent(), target="gpt", n_examples=4, epsilon=1e-4, z_bound=8.0),
    "kernel": lambda: ig.compile(ig.FunctionalGradientDescent("exp", steps=3, d=2), n_examples=4),
}


def _descent() -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 3, 1]), steps=1)


def flipped(path: Path, draw: random.Random, read: Callable[[], object]) -> str:
    """What reading makes of one bit that is not what it was; ``read`` returns whether all is as it was."""
    whole = path.read_bytes()
    place, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    try:
        return "same" if read() else "other"
    except InputError:
        return "refused"
    except Exception as error:
        print(f"RAW: {path.name}, byte {place}, bit {bit}: {type(error).__name__}: {error}", flush=True)
        return "raw"
    finally:
        path.write_bytes(whole)


def saved(name: str, flips: int, folder: Path) -> list[Row]:
    tf = MODELS[name]()
    tf.save(folder)
    draw, rows = random.Random(name), list[Row]()

    def same() -> bool:
        found = ig.load(folder)
        return found.options == tf.options and found.algorithm == tf.algorithm and _equal(found, tf)

    for path in sorted(folder.iterdir()):
        counts = Counter(flipped(path, draw, same) for _ in range(flips // 2))
        rows.append(_row(f"a saved model ({name})", path.name, counts))
    return rows


def _equal(a: ig.CompiledTransformer, b: ig.CompiledTransformer) -> bool:
    one, other = (tf.module.state_dict() for tf in (a, b))
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def of_a_run(flips: int, folder: Path) -> Row:
    tensors = {"theta": torch.randn(2, 300), "step": torch.tensor(7)}
    path = checkpoints.save(folder, 7, tensors, {"experiments": [{"seed": 1}]})

    def same() -> bool:
        found = checkpoints.load(folder)
        kept = found.tensors.keys() == tensors.keys()
        return kept and found.step == 7 and all(torch.equal(found.tensors[key], tensors[key]) for key in tensors)

    draw = random.Random("checkpoint")
    return _row("a checkpoint", "safetensors", Counter(flipped(path, draw, same) for _ in range(flips)))


def of_a_kernel(flips: int, folder: Path) -> Row | None:
    """Whether a damaged library would be loaded; a few are built again. None without a compiler."""
    (folder / "products.cpp").write_text("int nothing;\n")
    kernel.PRODUCTS = folder / "products.cpp"
    os.environ["INNERGRAD_CACHE"] = str(folder / "cache")

    def build() -> Path:
        return kernel._compiled(SOURCE, torch.float64, ".so", kernel.KERNEL_HOW)

    try:
        path = build()
    except kernel.NoCompiler:
        return None
    draw, whole, counts = random.Random("kernel"), path.read_bytes(), Counter[str]()
    for number in range(flips):
        at = draw.choice([path, path.with_name(path.name + files.SEAL)])
        content = at.read_bytes()
        place = draw.randrange(len(content))
        at.write_bytes(content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :])
        found = not files.sealed(path)
        if number < REBUILDS:
            found = found and files.sealed(build())
        counts["refused" if found else "other"] += 1
        at.write_bytes(content)
        if number < REBUILDS:
            path.write_bytes(whole)
            path.with_name(path.name + files.SEAL).write_text(files.digest(path))
    return _row("a built kernel", "library and its digest", counts)


def _row(what: str, file: str, counts: Counter[str]) -> Row:
    kinds = {kind: counts[kind] for kind in ("refused", "same", "other", "raw")}
    return {"what": what, "file": file, "flips": sum(counts.values()), **kinds}


def damage(flips: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="damage-") as place:
        folder = Path(place)
        rows = [row for name in MODELS for row in saved(name, flips // len(MODELS), folder / name)]
        rows.append(of_a_run(flips, folder / "run"))
        built = of_a_kernel(flips, folder)
    return rows + ([built] if built else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = damage(given.flips)
    store("damage", f"python benchmarks/damage.py --flips {given.flips}", {"rows": rows}, given.out)
    bad = sum(row["other"] + row["raw"] for row in rows)
    print(f"{sum(row['flips'] for row in rows)} bits flipped, {bad} of them without a sentence")
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
