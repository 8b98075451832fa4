"""The cache of kernels: a library is code that runs, so it is this user's and as it was built, or it is built again."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from innergrad import files
from innergrad.interpret.native import kernel as build

SOURCE = 'extern "C" long answer() { return 42; }\n'
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, and few products to build."""
    (tmp_path / "products.cpp").write_text("int nothing;\n")
    monkeypatch.setattr(build, "PRODUCTS", tmp_path / "products.cpp")
    monkeypatch.setenv("INNERGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer() -> int:
    """By the library, loaded as a new process would: under another name, lest the loader remember it."""
    built = build._compiled(SOURCE, torch.float64, ".so", build.KERNEL_HOW)
    copy = Path(tempfile.mkdtemp()) / "copy.so"
    shutil.copy(built, copy)
    return int(ctypes.CDLL(str(copy)).answer())


def seal_of(path: Path) -> Path:
    return path.with_name(path.name + files.SEAL)


def library(cache: Path) -> Path:
    (found,) = cache.glob("*.so")
    return found


def other_code(path: Path) -> None:
    text = path.with_suffix(".cpp")
    text.write_text(SOURCE.replace("42", "13"))
    assert os.system(f"g++ -shared -fPIC -o {path} {text}") == 0
    text.unlink()


def flipped(byte: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(byte * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return flip


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a library"),
    "other code": other_code,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "no digest": lambda path: seal_of(path).unlink(),
    "another digest": lambda path: seal_of(path).write_text("0" * 64),
    "a digest that is no text": lambda path: seal_of(path).write_bytes(b"\xff\xfe"),
    "others may write": lambda path: path.chmod(0o666),
    **{f"bit at {byte:.2f}": flipped(byte) for byte in (0.0, 0.11, 0.37, 0.62, 0.85, 1.0)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_built_again(damage: str, cache: Path) -> None:
    assert answer() == 42
    DAMAGE[damage](library(cache))
    assert not files.sealed(library(cache))
    assert answer() == 42
    assert files.sealed(library(cache))


def test_a_whole_library_is_not_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    monkeypatch.setattr("subprocess.run", lambda *args, **given: pytest.fail("it is built"))
    assert answer() == 42


def test_the_folder_is_private_and_what_killed_builds_left_is_removed(cache: Path) -> None:
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    old, new = cache / "building-old", cache / "building-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "source.cpp").write_text("")
    os.utime(old, (time.time() - 7200,) * 2)
    assert answer() == 42
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert (old.exists(), new.exists()) == (False, True)


def test_rights_of_a_folder_with_other_things_in_it_are_not_changed(cache: Path) -> None:
    """INNERGRAD_CACHE=/tmp: nothing is built there, and it stays everybody's."""
    cache.mkdir()
    cache.chmod(0o1777)
    (cache / "somebodys").write_text("notes")
    with pytest.raises(PermissionError, match="is one that others may write to: set INNERGRAD_CACHE"):
        answer()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o1777


def test_a_library_or_a_folder_of_another_user_is_not_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    monkeypatch.setattr(files, "_user", lambda: os.getuid() + 1)
    assert not files.sealed(library(cache))
    with pytest.raises(PermissionError, match="is another user's: set INNERGRAD_CACHE"):
        answer()
    with pytest.raises(build.NoCompiler, match="is another user's"):
        build.build.__wrapped__(SOURCE, torch.float64)


def test_no_home_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INNERGRAD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    assert build.cache_folder() == Path(tempfile.gettempdir()) / f"{os.getuid()}.cache" / "innergrad"
