"""Files and folders that results go into, by one rule: nothing is replaced that the same command did not write.

The files of a command say so: JSON has the key ``made_by``, a PNG, a GIF, an SVG or an HTML page a comment, an ONNX
model an entry of its metadata. Of files that cannot (CSV, safetensors), a JSON file of the command in the same folder
knows the digests.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innergrad.errors import InputError, JobError

HEAD, TAIL = 4096, 65536  # bytes in which a mark is looked for
MOST_TEXT = 2**26  # bytes of a settings file, a manifest, a table of runs
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # the disk's fault
SEAL, AN_HOUR = ".sha256", 3600.0
BEFORE = "files_before"  # of an index, while files take their places
_JSON = re.compile(rb'\s*\[?\s*\{\s*"made_by": "innergrad ([a-z]+)"')
_PNG = re.compile(rb"\x89PNG.*(.{4})tEXtSoftware\0innergrad ([a-z]+)", re.DOTALL)  # the length of the text first
_PAGE = re.compile(rb"(?:<!doctype html>\s*|<\?xml[^>]*\?>\s*)?<!-- made by innergrad ([a-z]+) -->")
_GIF = re.compile(rb"GIF8.*?innergrad ([a-z]+)\0", re.DOTALL)
_ONNX = re.compile(rb'"made_by": "innergrad ([a-z]+)"')


@dataclass(frozen=True)
class Writer:
    """Writes the files of a command.

    reads: files of the command's input, which are never written to. force: replace files that others wrote.
    """

    command: str
    reads: tuple[Path, ...] = ()
    force: bool = False

    @property
    def mark(self) -> str:
        return f"innergrad {self.command}"

    @property
    def comment(self) -> str:
        """The mark, for SVG and HTML."""
        return f"<!-- made by {self.mark} -->"

    def check(self, path: Path, known: Mapping[str, Collection[str]] | None = None, *, stream: bool = False) -> None:
        """An error if the file must not be written. known: name -> digests of the command's earlier files beside it.
        stream: the output is text, which a device or a pipe that somebody reads may take.
        """
        if path.is_dir():
            raise InputError("this output is one file", got=f"{path}, a folder")
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path} is a link to nothing", hint="it is not followed: choose another output")
        if path.exists() and not path.is_file() and not (stream and _takes_text(path)):
            raise InputError(f"{path} is no regular file", hint="it is not written to: choose another output")
        if any(_same(path, given) for given in self.reads):
            raise InputError(f"{path} is read by this command, so it is not written", hint="choose another output")
        if self.force or not path.is_file():
            return
        if made_by(path) != self.command and digest(path) not in (known or {}).get(path.name, ()):
            what = f"{path} is there, and {self.mark} did not write it"
            raise InputError(what, hint="it is not replaced: choose another output, or give --force")

    def check_all(self, folder: Path, names: list[str], index: str) -> None:
        """The same of several files of a folder, whose digests ``index`` knows, and of ``index`` itself."""
        require_plain(folder, [*names, index])
        self.check(folder / index)
        known = digests(folder / index) if (folder / index).is_file() else {}
        for name in names:
            self.check(folder / name, known)

    def json(self, path: Path, content: Any) -> None:
        """Write JSON, with the mark: an object, or a list of objects."""
        self.check(path, stream=True)
        make_folder(path.parent)
        marked = [self.marked(one) for one in content] if isinstance(content, list) else self.marked(content)
        write_whole(path, json_text(marked))

    def marked(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"made_by": self.mark, **content}

    @contextmanager
    def several(self, folder: Path, index: str, content: Mapping[str, Any]) -> Iterator[Callable[[str], Path]]:
        """Files of a folder, and ``index``, which has the content and their digests. Gives a function: the name of a
        file -> where to write it. They take their places together, at the end; whenever that is interrupted, the index
        knows all that is there, old or new, and the command can be given again.
        """
        make_folder(folder)
        parts, before = dict[str, Path](), digests(folder / index)

        def part(name: str) -> Path:
            _remove_left(folder / name)
            return parts.setdefault(name, part_of(folder / name))

        try:
            yield part
            made = self.marked({**content, "files": {name: digest(path) for name, path in parts.items()}})
            for path in parts.values():
                _flush(path)
            earlier = {name: sorted(known) for name, known in before.items()}
            write_whole(folder / index, json_text({**made, BEFORE: earlier}))
            for name, path in parts.items():
                path.replace(folder / name)
            write_whole(folder / index, json_text(made))
        finally:
            for path in parts.values():
                path.unlink(missing_ok=True)


_LIST = re.compile(r"\[\n\s+[^\[\]{}\"]*\]")


def json_text(content: Any) -> str:
    """JSON for people: one entry a line, but a list of numbers on one line."""
    text = json.dumps(content, indent=1)
    return _LIST.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text) + "\n"


def read_text(path: Path, most: int = MOST_TEXT, encoding: str = "utf-8") -> str:
    """The text of a regular file of at most so many bytes."""
    require_regular(path, most)
    return path.read_text(encoding=encoding)


def require_regular(path: Path, most: int = MOST_TEXT) -> None:
    """An error for a pipe, which would block, for a device, and for a file too large to be anybody's."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return  # who opens it says so
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror) from error
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"cannot read {str(path)!r}", got=str(error)) from error
    if not stat.S_ISREG(found.st_mode):
        got = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise InputError(f"cannot read {path}", got=got, allowed="a file" if got == "a folder" else "")
    if found.st_size > most:
        got, allowed = f"{found.st_size / 2**20:,.0f} MiB", f"at most {most / 2**20:,.0f} MiB"
        raise InputError(f"{path} is too large", got=got, allowed=allowed)


def require_plain(folder: Path, names: Iterable[str]) -> None:
    """An error if one of these names, in a folder that is written to, is a link, a pipe, a device or a folder: the
    output would go elsewhere.
    """
    for path in (folder / name for name in names):
        kind = "a link" if path.is_symlink() else "" if path.is_file() or not path.exists() else "no regular file"
        if kind:
            raise InputError(f"{path} is {kind}", hint="it is not written to: remove it, or choose another folder")


def made_by(path: Path) -> str:
    """The command that a file says it is of; empty if it does not say."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        file.seek(max(0, path.stat().st_size - TAIL))
        tail = file.read() if path.suffix == ".onnx" else b""
    if picture := _PNG.match(head):  # bytes of a checksum follow the name, and may be letters
        return picture[2][: int.from_bytes(picture[1]) - len(b"Software\0innergrad ")].decode()
    found = _JSON.match(head) or _PAGE.match(head) or _GIF.match(head) or _ONNX.search(tail)
    return found[1].decode() if found else ""


def digests(index: Path) -> dict[str, set[str]]:
    """Name -> digests of the files beside it that a command's JSON file lists; none if it lists none. There are several
    of a file that was about to be replaced when the command ended.
    """
    found = dict[str, set[str]]()
    try:
        content = json.loads(read_text(index))
        listed = [*content["files"].items()]
        listed += [(name, one) for name, known in content.get(BEFORE, {}).items() for one in known]
        for name, value in listed:
            if Path(name).name == name:
                found.setdefault(str(name), set()).add(str(value))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return found


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folder(path: Path, what: str = "") -> None:
    """The folder, made if it is missing; ``what`` names the output."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = f"cannot write {what} into {path}" if what else f"cannot write into {path}"
        if error.errno in FULL:  # nothing is wrong with the input
            raise JobError(f"{words}: {error.strerror}") from error
        raise InputError(words, got=str(error), allowed="a folder, existing or new") from error


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one go: readers see the old text or the new. A path that is no file (/dev/stdout) is written
    to.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file, which takes its place when it is whole. A link stays one. If the old file has other names
    (hard links), its old content stays under these.
    """
    path = path.resolve()
    part = part_of(path)
    _remove_left(path)
    try:
        yield part
        _flush(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Where a file is written by this process: not the name of anybody's file."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _takes_text(path: Path) -> bool:
    """A device, or a pipe that somebody reads: opening another would wait for ever."""
    kind = path.stat().st_mode
    if not stat.S_ISFIFO(kind):
        return stat.S_ISCHR(kind)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _remove_left(path: Path) -> None:
    """Removes the remains of killed writers of this file: parts of processes that no longer exist."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        number = part.name.split(".")[-2]
        if number.isdecimal() and not _alive(int(number)):
            part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    """Whether there is such a process; where that cannot be asked, there may be."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


# ------------------------------------------------------------------------------------------------------ private files


def home(folder: str) -> Path:
    """A folder of the user's home; of a user without one, for temporary files, by the user's number."""
    try:
        return Path.home() / folder
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"{_user()}{folder}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def private(path: Path) -> bool:
    """This user's, and written to by nobody else; a system without such rights has no others."""
    found = path.stat()
    return not hasattr(os, "getuid") or (found.st_uid == _user() and not found.st_mode & 0o022)


def make_private(folder: Path, left: str) -> None:
    """A folder that only this user writes to. A name that begins with ``left`` and is older than an hour was left there
    by a killed process: it is removed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not private(folder) and not _others(folder, left):
        with suppress(OSError):  # it can only be changed by who owns it
            folder.chmod(0o700)
    if not private(folder):
        whose = "is another user's" if folder.stat().st_uid != _user() else "is one that others may write to"
        raise PermissionError(f"{folder} {whose}: set INNERGRAD_CACHE to a folder of its own")
    for old in folder.glob(left + "*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > AN_HOUR:
                shutil.rmtree(old)


def _others(folder: Path, left: str) -> list[str]:
    """Names in a folder that belong to no cache: the rights of such a folder are not for us to change."""
    own = (left, SEAL, ".so", ".o")
    return [one.name for one in folder.iterdir() if not (one.name.startswith(own[0]) or one.name.endswith(own[1:]))]


def put_sealed(made: Path, path: Path) -> None:
    """Move a file to its place, private, with its digest beside it."""
    made.chmod(0o700)
    known = made.with_name(made.name + SEAL)
    known.write_text(digest(made))
    os.replace(made, path)
    os.replace(known, path.with_name(path.name + SEAL))


def sealed(path: Path) -> bool:
    """The file is there, private, and as :func:`put_sealed` left it."""
    try:
        return private(path) and path.with_name(path.name + SEAL).read_text() == digest(path)
    except (OSError, ValueError):
        return False


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them is not there
        return False
