"""How much memory there is, and a sentence, before anything is allocated, where that is not enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from innergrad.errors import InputError

GROUP = Path("/sys/fs/cgroup")  # limits of a container


def available_memory() -> int:
    """Bytes that can be allocated now: as far as the machine, the container and the process (ulimit -v) allow it."""
    return max(0, min(_rooms()))


def require_memory(n_bytes: float, what: str, hint: str) -> None:
    """Refuses, before allocating, a request that the machine has no room for."""
    available = available_memory()
    if n_bytes > available:
        needs, got = f"{n_bytes / 2**30:.1f} GiB", f"{available / 2**30:.1f} GiB available"
        raise InputError(f"{what} needs {needs} of memory", got=got, hint=hint)


def _rooms() -> Iterator[int]:
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        yield next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    with suppress(OSError, ValueError, StopIteration):  # there is no limit, or no such file
        most, used = (int((GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (GROUP / "memory.stat").read_text().splitlines()
        yield most - used + next(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
    with suppress(ImportError, OSError):  # a system without limits of processes
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
