"""A generated kernel: compiled, once for each source and machine, and run on arrays.

Libraries are kept in a cache folder: ``$INNERGRAD_CACHE``, else ``$XDG_CACHE_HOME/innergrad``, else
``~/.cache/innergrad``, else, without a home, one in the folder for temporary files. A library is code that runs, so the
folder must be this user's, and nobody else may write to it or to the library; beside every file is its digest. A file
that fails a check is built again. The compiler is ``$CXX``, else the first of g++, c++ and clang++. Without one, or
with ``INNERGRAD_NATIVE=0``, there are no kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import JobError
from innergrad.files import home, make_private, put_sealed, sealed
from innergrad.interpret.graph import Coefficient, Graph
from innergrad.interpret.native.source import Source, Unsupported
from innergrad.ir.program import Program
from innergrad.ir.stream import State

BLOCK_BYTES = 512 * 1024  # of the values of a block's tokens: about half of a core's second-level cache
FLAGS = ("-std=c++17", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-fPIC")
KERNEL_HOW = ("-O3", "-shared")
PRODUCTS_HOW = ("-O2", "-c")  # -O3 takes ten times as long, for nothing
REAL = {torch.float32: "float", torch.float64: "double"}
RUNTIME = Path(__file__).with_name("runtime.hpp")
PRODUCTS = Path(__file__).with_name("runtime.cpp")
BUILDING = "building-"  # how folders of builds are called


class NoCompiler(Exception):
    """There is no compiler, or it failed; the message says why."""


@dataclass(frozen=True)
class NativeLoop:
    """A loop's graph as a kernel. Running it may raise :class:`NoCompiler`."""

    program: Program
    graph: Graph
    source: Source

    @classmethod
    def generated(cls, program: Program, graph: Graph) -> NativeLoop:
        sizes = {node.name: math.prod(node.sizes) for node in graph.nodes if node.op == "lane"}
        sizes |= {lane.name: lane.size for lane in program.stream.lanes}
        if any(not lane.shared for lane in program.weights):
            raise Unsupported("weights that are not shared")
        return cls(program, graph, Source(graph, sizes, tuple(lane.name for lane in program.weights)))

    @property
    def kind(self) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
        """Loops of the same kind differ in nothing but their numbers."""
        source = self.source
        return source.text, tuple(id(table) for table in source.tables), (*source.token_lanes, *source.shared_lanes)

    def at_hand(self, dtype: torch.dtype) -> bool:
        """The library is in the cache, so that to run it costs no compiling."""
        products, _ = _place(PRODUCTS.read_text(), dtype, ".o", PRODUCTS_HOW)
        return sealed(_place(self.source.text, dtype, ".so", (*KERNEL_HOW, str(products)))[0])

    def run(
        self,
        state: State,
        tokens: int,
        coefficients: Sequence[Sequence[Coefficient]],
        steps: int,
        wanted: Sequence[int],
    ) -> tuple[State, Tensor, Tensor]:
        """The lanes after all steps, the weights (batch, wanted, D_w) after the wanted ones (from 1), and for every
        check the smallest and the largest value.

        state: lanes (batch, size...) and (batch, n, size...). coefficients: of each step, or of all if there is one.
        """
        source, some = self.source, state["x"]
        library = build(source.text, some.dtype)
        batch, n = some.shape[:2]
        threads = max(1, min(torch.get_num_threads(), batch * max(1, n // 32)))
        real = {torch.float32: np.float32, torch.float64: np.float64}[some.dtype]
        numbers = np.array([[c * float(tokens) ** power for c, power in row] for row in coefficients], dtype=real)
        tables = [_aligned(np.ascontiguousarray(table, dtype=real)) for table in source.tables]
        shared = [
            state[name].reshape(batch, -1).clone(memory_format=torch.contiguous_format) for name in source.shared_lanes
        ]
        token = [state[name].reshape(batch, n, -1).contiguous() for name in source.token_lanes]
        record = torch.empty(batch, len(wanted), self.program.n_weights, dtype=some.dtype)
        ranges = np.empty((threads, max(len(self.graph.checks), 1), 2), dtype=real)
        ranges[..., 0], ranges[..., 1] = np.inf, -np.inf
        failed = library.take_steps(
            *(ctypes.c_long(value) for value in (batch, n, steps, threads, BLOCK_BYTES)),
            ctypes.c_void_p(numbers.ctypes.data),
            ctypes.c_long(numbers.shape[1] if len(coefficients) > 1 else 0),
            _pointers([table.ctypes.data for table in tables]),
            _pointers([lane.data_ptr() for lane in token]),
            _pointers([lane.data_ptr() for lane in shared]),
            (ctypes.c_long * len(wanted))(*wanted),
            ctypes.c_long(len(wanted)),
            ctypes.c_void_p(record.data_ptr()),
            ctypes.c_void_p(ranges.ctypes.data),
        )
        if failed:
            raise JobError("the fused executor ran out of memory")
        changed = {name: lane.view(state[name].shape) for name, lane in zip(source.shared_lanes, shared, strict=True)}
        cleared = {name: torch.zeros_like(state[name]) for name in self.graph.zero}
        found = np.stack([np.minimum.reduce(ranges[..., 0]), np.maximum.reduce(ranges[..., 1])], axis=-1)
        return state | changed | cleared, record, torch.from_numpy(found)


def _aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an address that is a multiple of 64."""
    room = np.empty(array.nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _pointers(addresses: list[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)


# ------------------------------------------------------------------------------------------------------- compiling


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
    """Everything that the machine code depends on: the compiler, and the abilities of the processor."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines(keepends=True)
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return version + features + platform.machine() + " ".join(FLAGS)


def cache_folder() -> Path:
    own, shared = os.environ.get("INNERGRAD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(shared) if shared else home(".cache")) / "innergrad"


@lru_cache(maxsize=256)
def build(source: str, dtype: torch.dtype) -> ctypes.CDLL:
    """The library made from a source, compiled unless it is in the cache."""
    try:
        products = _compiled(PRODUCTS.read_text(), dtype, ".o", PRODUCTS_HOW)
        return ctypes.CDLL(str(_compiled(source, dtype, ".so", (*KERNEL_HOW, str(products)))))
    except OSError as error:
        raise NoCompiler(f"a kernel could not be stored or loaded: {error}") from error


def _place(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Where the file made from a source is kept, and the beginning of the command that makes it."""
    command = [compiler(), *FLAGS, f"-DREAL={REAL[dtype]}", f"-I{RUNTIME.parent}"]
    parts = (source, RUNTIME.read_text(), *command[1:-1], *how, _machine())
    return cache_folder() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}{suffix}", command


def _compiled(source: str, dtype: torch.dtype, suffix: str, how: tuple[str, ...]) -> Path:
    """The file made from a source, from the cache or new; it is whole or not there at all."""
    path, command = _place(source, dtype, suffix, how)
    make_private(path.parent, BUILDING)
    if not sealed(path):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=BUILDING) as folder:
            text, made = Path(folder) / "source.cpp", Path(folder) / f"made{suffix}"
            text.write_text(source)
            given = [*command, str(text), *how, "-o", str(made)]
            done = subprocess.run(given, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoCompiler(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
            put_sealed(made, path)
    return path
