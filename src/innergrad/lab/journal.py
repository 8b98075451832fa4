"""The folder of a run, and its progress on the screen.

    config.toml      the configuration as used, defaults and changes included
    manifest.json    versions, code, machine, time, command line; also of the times it was resumed
    log.jsonl        one line an interval, {"step": 100, "loss": ..., ...}; flushed, so a killed run keeps its lines
    measures.jsonl   one line a step at which measures were called, {"step": 10, "distance": ...}; if there are any
    checkpoints/     see innergrad.lab.checkpoints
    snapshots/       weights that are kept for good, if asked for
    tensorboard/     if asked for

A run that is resumed at step s goes on in the same files: lines after s, and one that was cut off, are removed first.
The log of a run that was killed and resumed therefore has the same steps as that of one that never was.

Nobody's files are replaced: a new run begins in a folder without the first four, or begins again in that of a run of
the same configuration that ended before its first checkpoint was whole. (Until then there is a file ``.begun``.)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from innergrad.config import to_table, to_toml
from innergrad.errors import InputError
from innergrad.files import make_folder, read_text, require_plain, require_regular, write_whole
from innergrad.lab.checkpoints import newest
from innergrad.manifest import manifest

CONFIG, MANIFEST, LOG, CHECKPOINTS, LOCK = "config.toml", "manifest.json", "log.jsonl", "checkpoints", ".lock"
SNAPSHOTS, TENSORBOARD = "snapshots", "tensorboard"
BEGUN = ".begun"  # there is no checkpoint yet
SWEEP = "sweep.json"  # beside the folders of the runs of a sweep
MEASURES = "measures.jsonl"
MOST_LOG = 2**28  # bytes
Row = dict[str, Any]


class Journal:
    """Writes a run's folder. ``step`` is None for a new run, else the step of the checkpoint it goes on from.

    config: a dataclass or a table. A folder with a checkpoint, or with files of another run, is an error.
    about: further entries of the manifest, or of its line about this resumption; with ``steps`` among them, the run
    becomes a longer one, and its configuration says so from now on. Use as a context manager, or call ``close``.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Any,
        *,
        step: int | None = None,
        tensorboard: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        log = self.folder / LOG
        if step is None:
            check_new(self.folder, config)
        make_folder(self.folder, "the run")
        check_places(self.folder)
        made = self._manifest(config, step, about or {})
        self._lock = _lock(self.folder)
        self._board = _tensorboard(self.folder / TENSORBOARD, step) if tensorboard else None
        if step is None:
            (self.folder / BEGUN).touch()
            write_whole(self.folder / CONFIG, to_toml(config))
        else:
            saved(self.folder)
            if "steps" in (about or {}):
                write_whole(self.folder / CONFIG, to_toml(config))
        write_whole(self.folder / MANIFEST, json.dumps(made, indent=1) + "\n")
        rows = read_log(self.folder) if step is not None and log.exists() else []
        write_whole(log, "".join(_line(row) for row in rows if row["step"] <= (step or 0)))
        self._log = log.open("a", encoding="utf-8")
        if (self.folder / MEASURES).exists():
            kept = [row for row in read_measures(self.folder) if step is not None and row["step"] <= step]
            write_whole(self.folder / MEASURES, "".join(_line(row) for row in kept))

    def _manifest(self, config: Any, step: int | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """Of a new run, or that of the old one with a line about where and when it went on."""
        made, old = manifest(config), {} if step is None else read_manifest(self.folder)
        if not old:
            return {**made, **about}
        again = {name: made[name] for name in ("started", "versions", "git", "imports", "hardware", "command")}
        before = old.get("resumed", [])
        return {**old, "resumed": [*(before if isinstance(before, list) else []), {"step": step, **about, **again}]}

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def snapshots(self) -> Path:
        return self.folder / SNAPSHOTS

    def write(self, row: Mapping[str, Any]) -> None:
        """A line of the log; ``row["step"]`` says when. Numbers that are not finite become null."""
        self._log.write(_line(row))
        self._log.flush()
        if self._board is not None:
            for name, value in _scalars(row):
                self._board.add_scalar(name, value, row["step"])

    def measured(self, row: Mapping[str, Any]) -> None:
        """A line of the measures."""
        with (self.folder / MEASURES).open("a", encoding="utf-8") as file:
            file.write(_line(row))

    def sync(self) -> None:
        """The log reaches the disk: before the checkpoint does that has its steps."""
        os.fsync(self._log.fileno())

    def close(self) -> None:
        """Everything, also lines that cannot be written because the disk is full."""
        try:
            self._log.close()
        finally:
            self._lock.close()
            if self._board is not None:
                self._board.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def saved(folder: Path) -> None:
    """There is a checkpoint: from now on the run is resumed, and never begins again."""
    (folder / BEGUN).unlink(missing_ok=True)


def check_places(folder: Path) -> None:
    """An error, before any work, if something is in the way of a run's files."""
    for path in (folder, folder / CHECKPOINTS, folder / SNAPSHOTS, folder / TENSORBOARD):
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path} is a link to nothing", allowed="a folder, existing or new")
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is in the way", got="a file", allowed="a folder, existing or new")
    require_plain(folder, (CONFIG, MANIFEST, LOG, MEASURES, LOCK, BEGUN))


def check_new(folder: Path, config: Any) -> None:
    """An error if a run of this configuration cannot begin in the folder, for there are files of another."""
    check_places(folder)
    if newest(folder) is not None:
        raise InputError(f"there is a run in {folder}", hint="resume it (--resume), or choose another folder")
    there = [name for name in (CONFIG, LOG, MANIFEST, MEASURES) if (folder / name).exists()]
    hidden = [folder / name for name in (BEGUN, LOCK)]
    own = [path.name for path in hidden if path.exists() and path.stat().st_size]  # a run's are empty
    if own or (there and not _begun(folder, config)):
        hint = "they are not replaced: choose another folder, or move them away"
        raise InputError(f"{folder} has files of another run", got=", ".join([*there, *own]), hint=hint)


def _begun(folder: Path, config: Any) -> bool:
    """Whether the files there are of a run of this very configuration that ended before its first checkpoint.

    If it says so itself, the log may go as far as that checkpoint; else it must end before.
    """
    path = folder / CONFIG
    try:
        if not path.is_file() or read_text(path) != to_toml(config):
            return False
    except (OSError, UnicodeDecodeError):
        return False
    table = to_table(config) if dataclasses.is_dataclass(config) else config
    settings = table.get("experiments", [table])[0].get("train", {})
    first = min(settings.get("checkpoint_every", 0), settings.get("steps", 0))
    rows = read_log(folder) if (folder / LOG).exists() else []
    return not rows or bool(rows[-1]["step"] < first + (folder / BEGUN).exists())


def _lock(folder: Path) -> IO[str]:
    """A file that this process holds as long as it lives, so that no second one trains in the folder."""
    file = (folder / LOCK).open("a")  # an existing file is not emptied
    try:
        import fcntl
    except ImportError:  # a system without locks
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise InputError(
            f"another process trains in {folder}", hint="wait for it, or choose another folder (--out)"
        ) from error
    return file


def read_log(folder: str | Path) -> list[Row]:
    """The lines of a run's log, without one at the end that a killed run left unfinished."""
    path = Path(folder) / LOG
    if not path.is_file():
        raise InputError(f"there is no log in {folder}", allowed=f"the folder of a run, with {LOG}")
    return _rows(path)


def read_measures(folder: str | Path) -> list[Row]:
    """The lines of a run's measures; none if nothing was measured."""
    path = Path(folder) / MEASURES
    return _rows(path) if path.is_file() else []


def _rows(path: Path) -> list[Row]:
    """Without a line at the end that a killed run left unfinished."""
    require_regular(path, MOST_LOG)
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")  # text after the last \n is unfinished
    return [_parsed(path, number, line) for number, line in enumerate(lines[:-1], start=1)]


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a run; empty if there is none."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return {}
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):  # neither JSON nor, perhaps, text
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged", got="no JSON object", hint="move it away: the run goes on without it")
    return found


def _parsed(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise InputError(f"{path}, line {number} is not a line of a log", got=repr(line[:60]))
    return row


def _scalars(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row; those of the models of a stack as loss/0, loss/1, ..."""
    for name, value in row.items():
        if isinstance(value, list | tuple) and len(value) > 1:
            yield from ((f"{name}/{number}", item) for number, item in enumerate(value))
        elif name != "step":
            yield name, value[0] if isinstance(value, list | tuple) else value


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _finite(value) for name, value in row.items()}) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(folder: Path, step: int | None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed", hint="pip install tensorboard, or leave it out") from error
    return SummaryWriter(str(folder), purge_step=None if step is None else step + 1)


# ------------------------------------------------------------------------------------------------------------ progress


class Progress(Protocol):
    """A training loop calls it now and then, with the steps done and a few words such as "loss 0.12"."""

    def __call__(self, step: int, words: str = "") -> None: ...


@contextmanager
def progress(steps: int, what: str = "training", *, start: int = 0, quiet: bool = False) -> Iterator[Progress]:
    """A bar on a terminal, lines on stderr elsewhere (one in 30 seconds at most), nothing if ``quiet``."""
    if quiet:
        yield lambda step, words="": None
        return
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            pass
        else:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task(what, total=steps, completed=start)
                yield lambda step, words="": bar.update(task, completed=step, description=f"{what} {words}".strip())
            return
    yield _lines(steps, what)


def _lines(steps: int, what: str, every: float = 30.0) -> Progress:
    last = time.monotonic()

    def line(step: int, words: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            print(f"{what}: {step} of {steps} {words}".rstrip(), file=sys.stderr, flush=True)

    return line
