"""Trainings and sweeps that are killed at any moment, and resumed: is the end that of one that never was?

    python benchmarks/kills.py --kills 500 --workers 16      stores results/kills.json

Each case is a life of ``innergrad train --resume`` or ``innergrad sweep``, ended once or several times, and then left
alone. It ends by one of these faults:

    point      SIGKILL at the k-th point at which something reaches the disk: a file opened, half written, written,
               about to be flushed to the disk, renamed, removed. Every k is tried; later lives get random ones
    moment     SIGKILL from outside after a random time
    fresh      the same, in a new interpreter, whose imports may be hit, too
    full       from the k-th point on, writing fails: no space left on the device
    quota      files may not grow beyond a random size (RLIMIT_FSIZE)
    SIGTERM, SIGINT     the polite ones, after a random time

Then everything is compared with a run that was never disturbed: every checkpoint that is left (all tensors, bit for
bit), the logs but for their seconds, configurations, the table of the sweep, and the names of all files. A life that is
not killed may fail only with a sentence and exit code 1.

The points are counted by this script's own patches of ``open`` and ``os``, in the process that will die; the library
knows nothing of them. Processes are forked from one that has imported torch and computed nothing.
Points are counted in memory as on a disk: TMPDIR=/dev/shm spares the disk thousands of flushes.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import functools
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: a process that has threads cannot fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch
import torch._dynamo  # a training imports it late, which would be most of every life

import innergrad.lab.sweeps  # noqa: F401  (what commands import, before there are many processes)
from innergrad.cli import main as command
from innergrad.lab.checkpoints import load

Row = dict[str, Any]
SMALL = """
name = "small"
n_points = 4
[task]
kind = "linear"
d = 2
[learner]
kind = "gpt"
n_layers = 1
d_model = 8
n_heads = 2
d_mlp = 8
[train]
steps = 12
batch = 4
log_every = 2
checkpoint_every = 4
[train.optimiser]
lr = 1e-2
"""
CURRICULUM = """
[train.curriculum]
first_dims = 1
first_points = 2
more_points = 1
every = 3
"""
TRAIN, SWEEP = ("train", "config.toml", "--resume"), ("sweep", "config.toml", "--grid", "seed=0,1", "--grid")
#: Name -> the configuration, and the command. The same command begins and goes on.
SCENARIOS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a run": (SMALL, TRAIN),
    "its last checkpoint is its first": (SMALL.replace("checkpoint_every = 4", "checkpoint_every = 400"), TRAIN),
    "a checkpoint every step, Muon, curriculum": (
        SMALL.replace("checkpoint_every = 4", "checkpoint_every = 1").replace("lr", 'kind = "muon"\nlr') + CURRICULUM,
        TRAIN,
    ),
    "a sweep": (SMALL.replace("steps = 12", "steps = 6"), (*SWEEP, "train.optimiser.lr=1e-2,1e-3")),
    "a stacked sweep": (SMALL, (*SWEEP, "learner.d_mlp=8,12", "--stack")),
}
OUT = "run"
POLITE = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
SAID = (0, 1)  # exit codes of a life that was not killed
INTERRUPTED = 130  # of one that SIGINT reached before it trained


# ----------------------------------------------------------------------------------------------- what reaches the disk


@dataclass
class Points:
    """Counts the points below a folder at which something reaches the disk; ``reach(k, what, path)`` is told each."""

    folder: Path
    reach: Callable[[int, str, str], None]
    count: int = 0
    last: str = ""

    def point(self, what: str, path: object) -> None:
        self.count, self.last = self.count + 1, str(path)
        self.reach(self.count, what, str(path))

    def inside(self, path: object) -> bool:
        return isinstance(path, str | Path) and Path(path).absolute().is_relative_to(self.folder)

    def install(self) -> None:
        """For the rest of this process, which is a child that will not outlive its command."""
        opened, made = io.open, os.open

        def watched(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            found = opened(file, mode, *args, **options)
            if not set(mode) & set("wax+") or not self.inside(file):
                return found
            self.point("opened", file)
            return Watched(found, self, str(file))

        def os_open(path: Any, flags: int, *args: Any, **options: Any) -> int:
            found = made(path, flags, *args, **options)
            if flags & os.O_CREAT and self.inside(path):
                self.point("made", path)
            return found

        builtins.open = io.open = watched
        os.open = os_open
        for name in ("replace", "unlink", "mkdir"):
            setattr(os, name, functools.partial(self._around, getattr(os, name), name))
        os.fsync = functools.partial(self._before, os.fsync)

    def _around(self, real: Callable[..., None], name: str, path: Any, *args: Any, **options: Any) -> None:
        if not self.inside(path):
            return real(path, *args, **options)
        self.point(f"before {name}", args[0] if name == "replace" else path)
        real(path, *args, **options)
        return self.point(f"after {name}", args[0] if name == "replace" else path)

    def _before(self, real: Callable[[Any], None], file: Any) -> None:
        self.point("before fsync", self.last)
        real(file)


class Watched:
    """A file that is written in halves."""

    def __init__(self, file: Any, points: Points, path: str) -> None:
        self.file, self.points, self.path = file, points, path

    def write(self, data: Any) -> int:
        for what, part in (("half written", data[: len(data) // 2]), ("written", data[len(data) // 2 :])):
            self.file.write(part)
            self.file.flush()
            self.points.point(what, self.path)
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


# ------------------------------------------------------------------------------------------------------------- a life


@dataclass(frozen=True)
class Fault:
    """How a life ends: at which point, after which time (seconds), at which size (bytes); see the top."""

    kind: str = "none"
    number: float = 0.0

    def reach(self, report: int) -> Callable[[int, str, str], None]:
        """What is done at the points; the last one is written to the file that is open as ``report``."""

        def reached(k: int, what: str, path: str) -> None:
            os.pwrite(report, f"{k}\t{what}\t{path}\0".encode(), 0)
            if self.kind == "point" and k == self.number:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "full" and k >= self.number and what not in ("before replace", "after replace"):
                if "unlink" in what:
                    return
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        return reached


@dataclass(frozen=True)
class Life:
    """code: the exit code, or minus the signal; place: the last point it reached; said: its stderr."""

    code: int
    place: tuple[int, str, str]
    said: str
    seconds: float


def live(arguments: tuple[str, ...], folder: Path, fault: Fault) -> Life:
    """One life of a command in a folder, in a process of its own."""
    report = os.open(folder / "place", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    began, pid = time.perf_counter(), os.fork()
    if pid == 0:
        code = 70
        try:
            code = _child(arguments, folder, fault, report)
        finally:
            os._exit(code)
    sent, status = False, (0, 0)
    timed = fault.kind in ("moment", "fresh", *POLITE)
    while status[0] == 0:
        if timed and not sent and time.perf_counter() - began >= fault.number:
            os.kill(pid, POLITE.get(fault.kind, signal.SIGKILL))
            sent = True
        time.sleep(0.001)
        status = os.waitpid(pid, os.WNOHANG)
    seconds = time.perf_counter() - began
    k, what, path = (os.pread(report, 4096, 0).split(b"\0")[0].decode() or "0\tbegins\t").split("\t")
    os.close(report)
    return Life(os.waitstatus_to_exitcode(status[1]), (int(k), what, path), _text(folder / "said"), seconds)


def _child(arguments: tuple[str, ...], folder: Path, fault: Fault, report: int) -> int:
    os.chdir(folder)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    argv = [*arguments, "--out", OUT, "--device", "cpu", "--quiet"]
    if fault.kind == "quota":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.number), int(fault.number)))
    if fault.kind == "fresh":
        os.execv(sys.executable, [sys.executable, "-m", "innergrad", *argv])
    sys.argv = ["innergrad", *argv]
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    Points(folder / OUT, fault.reach(report)).install()
    code: object = 0
    try:
        command()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stderr.flush()
    return code if isinstance(code, int) else 0


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


# ------------------------------------------------------------------------------------------------------- what is left


def remains(folder: Path) -> Row:
    """All that a run or a sweep left: tensors as bytes, logs without seconds, texts, and what files there are."""
    found: Row = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            point = load(path)
            found[name] = (point.step, point.meta, {key: _bytes(value) for key, value in point.tensors.items()})
        elif path.name == "log.jsonl":
            found[name] = [{**json.loads(line), "seconds": 0} for line in path.read_text().splitlines()]
        elif path.name == "manifest.json":
            found[name] = json.loads(path.read_text())["config"]
        else:
            found[name] = path.read_text()
    return found


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def apart(found: Row, expected: Row) -> str:
    """What differs; empty if nothing does. Whole checkpoints of earlier steps may be left over: one was written because
    a signal asked for it, or the life ended before it could remove the oldest.
    """
    more = found.keys() - expected.keys()
    more -= {name for name in more if name.endswith(".safetensors") and name < _last(expected, name)}
    if more or expected.keys() - found.keys():
        return "files that only one of them has: " + ", ".join(sorted(more | (expected.keys() - found.keys())))
    return ", ".join(name for name in expected if found[name] != expected[name])


def _last(expected: Row, name: str) -> str:
    """The last checkpoint beside this one."""
    folder = str(Path(name).parent)
    return max(other for other in expected if str(Path(other).parent) == folder)


# -------------------------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Quiet:
    """A scenario that nobody disturbed: what it leaves, how many points and seconds it has, how large its files are."""

    remains: Row
    points: int
    seconds: float
    largest: int


@dataclass(frozen=True)
class Case:
    scenario: str
    faults: tuple[Fault, ...]


def prepared(scenario: str, folder: Path) -> tuple[str, ...]:
    """A new folder with the configuration; the arguments of the command."""
    text, arguments = SCENARIOS[scenario]
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    return arguments


def quiet(scenario: str, folder: Path) -> Quiet:
    life = live(prepared(scenario, folder), folder, Fault())
    if life.code != 0:
        raise RuntimeError(f"{scenario}: {life.said}")
    largest = max(path.stat().st_size for path in (folder / OUT).rglob("*") if path.is_file())
    return Quiet(remains(folder / OUT), life.place[0], life.seconds, largest)


def examine(case: Case, expected: Quiet, folder: Path) -> Row:
    """The lives of a case, and whether the end is that of the quiet one."""
    arguments, ended, wrong = prepared(case.scenario, folder), list[Row](), ""
    for number, fault in enumerate(case.faults):
        life = live(arguments, folder, fault)
        killed = life.code == -signal.SIGKILL
        if killed or life.code != 0:
            ended.append({"fault": fault.kind, "killed": killed, "where": where(life, folder, number)})
        interrupted = fault.kind == "SIGINT" and life.code == INTERRUPTED
        if (life.code >= 0 and life.code not in SAID and not interrupted) or "Traceback" in life.said:
            wrong = f"{fault.kind}: exit code {life.code}: {life.said.strip()[-300:]}"
    last = live(arguments, folder, Fault())
    if last.code != 0:
        wrong = f"it does not go on, exit code {last.code}: {last.said.strip()[-300:]}"
    wrong = wrong or apart(remains(folder / OUT), expected.remains)
    shutil.rmtree(folder)
    kinds = [f"{fault.kind} {fault.number:g}" for fault in case.faults]
    return {"scenario": case.scenario, "faults": kinds, "ended": ended, "wrong": wrong}


def where(life: Life, folder: Path, number: int) -> str:
    """What a life was doing when it ended, in words, from the last point that it reached."""
    _, what, path = life.place
    place = Path(path)
    if what == "begins":
        return "before anything was written"
    if place.suffix in (".safetensors", ".part") and place.parent.name == "checkpoints":
        whole = list((folder / place.parent).glob("step-*.safetensors"))
        first = not whole or (what == "after replace" and len(whole) == 1)
        when = "first checkpoint" if first else "a later checkpoint"
    else:
        when = "sweep.json" if "sweep.json" in place.name else "the journal"
    how = {"after replace": ", just renamed", "before fsync": ", not yet on the disk", "half written": ", half written"}
    return when + how.get(what, "") + (", in a resumed life" if number else "")


def systematic(points: dict[str, int]) -> list[Case]:
    """A kill at every point of every scenario."""
    return [Case(name, (Fault("point", k),)) for name, count in points.items() for k in range(1, count + 1)]


def chance(known: dict[str, Quiet], seed: int) -> Iterator[Case]:
    """Cases without end: one to three faults, of any kind."""
    draw = random.Random(seed)
    kinds = {"point": 8, "moment": 6, "fresh": 0.25, "full": 1, "quota": 1, "SIGTERM": 1, "SIGINT": 1}
    while True:
        name = draw.choice(list(known))
        of, faults = known[name], list[Fault]()
        for _ in range(draw.choice([1, 1, 2, 3])):
            kind = draw.choices(list(kinds), list(kinds.values()))[0]
            sizes = {
                "point": draw.randint(1, of.points),
                "full": draw.randint(1, of.points),
                "quota": draw.randint(0, of.largest),
                "fresh": draw.uniform(0.0, 6.0 + of.seconds),
            }
            faults.append(Fault(kind, sizes.get(kind, draw.uniform(0.0, 1.5 * of.seconds))))
        yield Case(name, tuple(faults))


# --------------------------------------------------------------------------------------------------------- everything


def kills(least: int, workers: int, seed: int = 0, scenarios: Iterable[str] = tuple(SCENARIOS)) -> Row:
    """Cases until so many lives were ended by SIGKILL: two thirds at points, each once at most; and random ones."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        known = {name: quiet(name, Path(place) / f"quiet-{n}") for n, name in enumerate(scenarios)}
        every = systematic({name: of.points for name, of in known.items()})
        random.Random(seed).shuffle(every)
        share = every[: 2 * least // 3]
        drawn, rows, count = chance(known, seed), list[Row](), 0
        task = functools.partial(_numbered, known, Path(place))
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            batch = share
            while batch:
                numbered = [(len(rows) + n, case) for n, case in enumerate(batch)]
                for row in pool.imap_unordered(task, numbered):
                    rows.append(row)
                    if row["wrong"]:
                        print(f"WRONG: {row}", flush=True)
                count = sum(life["killed"] for row in rows for life in row["ended"])
                print(f"{len(rows)} cases, {count} kills, {time.perf_counter() - began:.0f} s", flush=True)
                missing = least - count
                batch = [next(drawn) for _ in range(max(workers, missing))] if missing > 0 else []
        points = {name: of.points for name, of in known.items()}
    return {**summary(rows, len(every), len(share)), "points": points, "seconds": round(time.perf_counter() - began)}


def _numbered(known: dict[str, Quiet], place: Path, numbered: tuple[int, Case]) -> Row:
    number, case = numbered
    return examine(case, known[case.scenario], place / f"case-{number}")


def summary(rows: list[Row], every: int, tried: int) -> Row:
    ended = [(row, life) for row in rows for life in row["ended"]]
    by = {key: Counter(life[key] for _, life in ended) for key in ("fault", "where")}
    killed = Counter(row["scenario"] for row, life in ended if life["killed"])
    return {
        "cases": len(rows),
        "kills": sum(killed.values()),
        "other_ends": len(ended) - sum(killed.values()),
        "in_a_row": sum(len(row["ended"]) > 1 for row in rows),
        "every_point": every,
        "points_tried": tried,
        "wrong": [row for row in rows if row["wrong"]],
        "scenarios": [
            {
                "scenario": name,
                "cases": sum(row["scenario"] == name for row in rows),
                "kills": killed[name],
                "wrong": sum(row["scenario"] == name and bool(row["wrong"]) for row in rows),
            }
            for name in SCENARIOS
        ],
        **{key: [{key: name, "ends": count} for name, count in sorted(found.items())] for key, found in by.items()},
    }


def main() -> None:
    from _results import store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = kills(given.kills, given.workers, given.seed)
    print(f"{found['kills']} kills and {found['other_ends']} other ends, {len(found['wrong'])} cases went wrong")
    options = f"--kills {given.kills}" + (f" --seed {given.seed}" if given.seed else "")
    store("kills", f"python benchmarks/kills.py {options}", found, given.out)
    if found["wrong"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
