"""Compiling a kernel, once for each source and machine: the library is kept in a cache folder.

The folder is ``$INNERGRAD_CACHE``, else ``$XDG_CACHE_HOME/innergrad``, else ``~/.cache/innergrad``, else, without a
home, one in the folder for temporary files. The compiler is ``$CXX``, else the first of g++, c++ and clang++. Without
one, or with ``INNERGRAD_NATIVE=0``, there are no kernels.

A library is code that runs, so the folder must be this user's, and nobody else may write to it or to the library;
beside every file is its digest. What fails a check is built again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

FLAGS = ("-std=c++17", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-fPIC")
KERNEL_HOW = ("-O3", "-shared")
PRODUCTS_HOW = ("-O2", "-c")  # -O3 takes ten times as long, for nothing
REAL = {torch.float32: "float", torch.float64: "double"}
RUNTIME = Path(__file__).with_name("runtime.hpp")
PRODUCTS = Path(__file__).with_name("runtime.cpp")
BUILDING, AN_HOUR = "building-", 3600.0


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
    if own:
        return Path(own)
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "innergrad"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"innergrad-{_user()}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _private(path: Path) -> bool:
    """This user's, and written to by nobody else; a system without such rights has no others."""
    found = path.stat()
    return not hasattr(os, "getuid") or (found.st_uid == _user() and not found.st_mode & 0o022)


def _make_private(folder: Path) -> None:
    """The folder for kernels; what builds left there that were killed is removed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _private(folder):
        with suppress(OSError):  # it can only be changed by who owns it
            folder.chmod(0o700)
    if not _private(folder):
        raise NoCompiler(f"{folder}, for kernels, is another user's: set INNERGRAD_CACHE to a folder of yours")
    for left in folder.glob(BUILDING + "*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > AN_HOUR:
                shutil.rmtree(left)


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
    return _whole(_place(source, dtype, ".so", (*KERNEL_HOW, str(products)))[0])


def _place(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Where the file made from a source is kept, and the beginning of the command that makes it."""
    command = [compiler(), *FLAGS, f"-DREAL={REAL[dtype]}", f"-I{RUNTIME.parent}"]
    parts = (source, RUNTIME.read_text(), *command[1:-1], *how, _machine())
    return cache_folder() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}{suffix}", command


def _digest_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _whole(path: Path) -> bool:
    """The file is there, private, and as it was built."""
    try:
        known, content = _digest_of(path).read_text(), path.read_bytes()
        return _private(path) and known == hashlib.sha256(content).hexdigest()
    except (OSError, ValueError):
        return False


def _compiled(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> Path:
    """The file made from a source, from the cache or new; it is whole or not there at all."""
    path, command = _place(source, dtype, suffix, how)
    _make_private(path.parent)
    if not _whole(path):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=BUILDING) as folder:
            text, made = Path(folder) / "source.cpp", Path(folder) / f"made{suffix}"
            text.write_text(source)
            given = [*command, str(text), *how, "-o", str(made)]
            done = subprocess.run(given, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoCompiler(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
            made.chmod(0o700)
            digest = Path(folder) / "digest"
            digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
            os.replace(made, path)
            os.replace(digest, _digest_of(path))
    return path
