"""Wheel and sdist: built, installed into clean environments, with and without extras, and tested from outside.

    python benchmarks/packages.py                          build both, install each, run all tests
    python benchmarks/packages.py --only wheel --extras demo,export tests/test_cli.py      what is left is for pytest

The tests are those of the unpacked sdist, without its ``src``: what they import is what was installed. Tests of what an
extra is for are skipped, with the reason, where it is not there. This takes some minutes, most of them for torch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PINS = ROOT / "requirements" / "constraints.txt"
BUILD = "from setuptools import build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"


def run(*command: str | Path, cwd: Path | None = None) -> None:
    print("$", *(Path(part).name if Path(part).is_absolute() else part for part in command), flush=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(list(map(str, command)), cwd=cwd, env=clean, check=True)


def environment(folder: Path, *packages: str) -> Path:
    """A new one, with these packages; its python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", PINS, *packages)
    return python


def build(out: Path, work: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, in ``out``."""
    python = environment(work / "build", "setuptools>=77")
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("innergrad-*.whl"), *out.glob("innergrad-*.tar.gz")):
        old.unlink()
    source = work / "source"  # a build leaves files behind, which the next would take for the package's
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*", "build", "dist", "out")
    shutil.copytree(ROOT, source, ignore=left)
    run(python, "-c", BUILD.format(str(out)), cwd=source)
    (wheel,), (sdist,) = out.glob("innergrad-*.whl"), out.glob("innergrad-*.tar.gz")
    check_files(wheel)
    return wheel, sdist


def check_files(wheel: Path) -> None:
    """Every file of the package is in the wheel."""
    package = ROOT / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "innergrad").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = wanted - set(archive.namelist())
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(sorted(missing))}")


def outside(sdist: Path, folder: Path) -> Path:
    """The tests and what they read, without the package."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    (found / "src").rename(found / "not-the-package")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", choices=("wheel", "sdist"), help="default: both")
    parser.add_argument("--extras", action="append", help="e.g. demo,export; several times; default: none, dev")
    chosen, given = parser.parse_known_args()  # what is left is for pytest
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheel, sdist = build(chosen.out.resolve(), work)
        place = outside(sdist, work / "outside")
        for artefact, extras in ((one, more) for one in (wheel, sdist) for more in chosen.extras or ("", "dev")):
            if chosen.only and (artefact is wheel) != (chosen.only == "wheel"):
                continue
            print(f"\n{artefact.name}, extras: {extras or 'none'}", flush=True)
            wanted = ",".join(filter(None, ["test", extras]))
            python = environment(work / f"{artefact.suffix}-{extras or 'none'}", f"{artefact}[{wanted}]")
            code = "import innergrad, sys; assert innergrad.__file__.startswith(sys.prefix), innergrad.__file__"
            run(python, "-c", code, cwd=place)
            run(python.with_name("innergrad"), "--version")
            run(python, "-m", "pytest", "-n", "2", "--dist", "loadgroup", *(given or ["tests"]), cwd=place)


if __name__ == "__main__":
    main()
