"""The README is true: its code runs, its commands exist. (Its tables: ``make check``.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str) -> None:
    exec(compile(code, "a page", "exec"), {})


def test_the_readme_promises_ten_lines_of_python() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 10


def of_the_lab(line: str) -> bool:
    return line.split()[1] in ("train", "evaluate", "sweep")


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "count"), [(True, 8), (False, 19)], ids=["lab", "compiler"])
def test_commands_run(lab: bool, count: int, tmp_path: Path) -> None:
    """The command-line blocks, in order, in a folder with the configurations alone; what is trained is cut short."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    header = ",".join([f"x{i}" for i in range(10)] + ["y"])
    rows = [
        ",".join([f"{(i * j) % 7 / 7:.3f}" for j in range(10)] + ([f"{i / 10:.2f}"] if i < 12 else [""]))
        for i in range(14)
    ]
    (tmp_path / "examples.csv").write_text("\n".join([header, *rows]) + "\n")
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("innergrad ")]
    chosen = [line for line in commands if of_the_lab(line) == lab]
    assert len(chosen) == count
    for line in chosen:
        arguments = line.split("#")[0].split()[1:]
        short = ["--set", "train.steps=4"] if lab and arguments[0] != "evaluate" else []
        command = [sys.executable, "-m", "innergrad", *arguments, *short]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_example_algorithm_is_under_60_lines() -> None:
    assert len((ROOT / "examples" / "logistic_regression.py").read_text().splitlines()) < 60
