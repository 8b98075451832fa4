"""Compiling a kernel, once for each source and machine: the library is kept in a cache folder.

The folder is ``$INNERGRAD_CACHE``, else ``$XDG_CACHE_HOME/innergrad``, else ``~/.cache/innergrad``. The compiler is
``$CXX``, else the first of g++, c++ and clang++. Without one, or with ``INNERGRAD_NATIVE=0``, there are no kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

FLAGS = ("-std=c++17", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-fPIC")
KERNEL_HOW = ("-O3", "-shared")
PRODUCTS_HOW = ("-O2", "-c")  # -O3 takes ten times as long, for nothing
REAL = {torch.float32: "float", torch.float64: "double"}
RUNTIME = Path(__file__).with_name("runtime.hpp")
PRODUCTS = Path(__file__).with_name("runtime.cpp")


class NoCompiler(Exception):
    """There is no compiler, or it failed; the message says why."""


@lru_cache(maxsize=1)
def compiler() -> str:
    if os.environ.get("INNERGRAD_NATIVE") == "0":
        raise NoCompiler("INNERGRAD_NATIVE=0")
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NoCompiler("no C++ compiler was found (g++, c++, clang++ or $CXX)")


@lru_cache(maxsize=1)
def _machine() -> str:
    """What the machine code depends on: the compiler, and what the processor can do."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    try:
        with open("/proc/cpuinfo") as lines:
            features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return version + features + platform.machine() + " ".join(FLAGS)


def cache_folder() -> Path:
    own, shared = os.environ.get("INNERGRAD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(shared) if shared else Path.home() / ".cache") / "innergrad"


@lru_cache(maxsize=256)
def build(source: str, dtype: torch.dtype) -> ctypes.CDLL:
    """The library made from a source, compiled unless it is in the cache."""
    try:
        products = _compiled(PRODUCTS.read_text(), dtype, ".o", PRODUCTS_HOW)
        return ctypes.CDLL(str(_compiled(source, dtype, ".so", (*KERNEL_HOW, str(products)))))
    except OSError as error:
        raise NoCompiler(f"a kernel could not be stored or loaded: {error}") from error


def at_hand(source: str, dtype: torch.dtype) -> bool:
    """The library of a source is in the cache, so that to run it costs no compiling."""
    products, _ = _place(PRODUCTS.read_text(), dtype, ".o", PRODUCTS_HOW)
    return _place(source, dtype, ".so", (*KERNEL_HOW, str(products)))[0].exists()


def _place(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Where the file made from a source is kept, and the beginning of the command that makes it."""
    command = [compiler(), *FLAGS, f"-DREAL={REAL[dtype]}", f"-I{RUNTIME.parent}"]
    parts = (source, RUNTIME.read_text(), *command[1:-1], *how, _machine())
    return cache_folder() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}{suffix}", command


def _compiled(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> Path:
    """The file made from a source, from the cache or new; it is whole or not there at all."""
    path, command = _place(source, dtype, suffix, how)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            text, made = Path(folder) / "source.cpp", Path(folder) / f"made{suffix}"
            text.write_text(source)
            given = [*command, str(text), *how, "-o", str(made)]
            done = subprocess.run(given, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoCompiler(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
            os.replace(made, path)
    return path
