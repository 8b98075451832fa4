"""The README is true: its code runs, its commands exist. (Its tables: ``make check``.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from innergrad.testing import Conformance
from test_cli import call

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str) -> None:
    exec(compile(code, "a page", "exec"), {})


def test_the_battery_of_the_page_is_collected_and_passes(pytester: pytest.Pytester) -> None:
    """The block of docs/extending.md in a file of its own, without anything of this folder: every law is a test."""
    (code,) = [block for block in blocks("python") if "Conformance" in block]
    pytester.makepyfile(test_logistic_regression=code)
    pytester.syspathinsert(ROOT / "examples")
    laws = [name for name in dir(Conformance) if name.startswith("test_")]
    twice = sum("long_prompts" in name for name in laws) - 1  # on different and on equal examples
    pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider").assert_outcomes(passed=len(laws) + twice)


def test_the_readme_promises_ten_lines_of_python() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 10


SHORTER = {
    "--steps 20": "--steps 2",
    "--n-examples 48": "--n-examples 12",
    "--sizes 10,8,8,1": "--sizes 10,3,1",
    "--sizes 2,4,1": "--sizes 2,2,1",
    "--points 20,8,3": "--points 4,4,2",
}


def commands(lab: bool) -> list[list[str]]:
    """The arguments of every command of the pages, those of the lab or the others, in order."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("innergrad ")]
    found = [line.split("#")[0].split()[1:] for line in lines]
    return [arguments for arguments in found if (arguments[0] in ("train", "evaluate", "sweep")) == lab]


def shortened(arguments: list[str]) -> list[str]:
    """The same with a few steps of training or descent, on small networks, and for prompts as long as examples.csv."""
    if arguments[0] in ("train", "sweep"):
        return [*arguments, "--set", "train.steps=4"]
    line = " ".join(arguments)
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    return line.split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the configurations and examples.csv alone."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    header = ",".join([f"x{i}" for i in range(10)] + ["y"])
    rows = [
        ",".join([f"{(i * j) % 7 / 7:.3f}" for j in range(10)] + ([f"{i / 10:.2f}"] if i < 12 else [""]))
        for i in range(14)
    ]
    (tmp_path / "examples.csv").write_text("\n".join([header, *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("lab", "count"), [(True, 8), (False, 20)], ids=["lab", "compiler"])
def test_commands_run(lab: bool, count: int) -> None:
    """Each once, in this process, shortened."""
    assert len(commands(lab)) == count
    for line in dict.fromkeys(" ".join(shortened(arguments)) for arguments in commands(lab)):
        if line.startswith("demo"):
            continue  # tests/test_cli.py runs it
        done = call(*line.split())
        assert done.code == 0, (line, done.err)


@pytest.mark.soak
@pytest.mark.parametrize("lab", [True, False], ids=["lab", "compiler"])
def test_commands_run_at_full_size(lab: bool, folder: Path) -> None:
    """As they stand on the pages, in processes of their own; what is trained is cut short."""
    for arguments in commands(lab):
        given = shortened(arguments) if lab else arguments
        command = [sys.executable, "-m", "innergrad", *given]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_example_algorithm_is_under_60_lines() -> None:
    assert len((ROOT / "examples" / "logistic_regression.py").read_text().splitlines()) < 60
