"""Several commands at a time: all run, none outlives its time, and what fails is said."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "together.py"


def call(folder: Path, lines: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "jobs.txt").write_text(lines)
    command = [sys.executable, str(SCRIPT), str(folder / "jobs.txt"), "--out", str(folder / "out"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_they_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for a file that the other makes."""
    wait = "until [ -e {0} ]; do sleep 0.05; done"
    lines = f"a: mkdir -p {{out}} && touch {{out}}/here && {wait.format('{out:b}/here')} && echo met\n"
    lines += f"# the other\nb: mkdir -p {{out}} && touch {{out}}/here && {wait.format('{out:a}/here')}\n"
    lines += 'c: python -c "import sys; print(sys.executable)" && python -c "print(1)"\n'
    found = call(tmp_path, lines, "--at-once", "2")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines()[-1] == "a: done; b: done; c: done"
    assert (tmp_path / "out" / "c.log").read_text() == f"{sys.executable}\n1\n"
    assert (tmp_path / "out" / "a.log").read_text() == "met\n"


def test_time_ends_them(tmp_path: Path) -> None:
    """With all that they have begun; those that wait are not begun."""
    began = time.monotonic()
    lines = "bad: exit 3\nlong: sleep 50 & sleep 50; touch {out}\nnever: touch {out}\n"
    found = call(tmp_path, lines, "--at-once", "1", "--seconds", "1")
    assert found.returncode == 1
    assert found.stdout.splitlines()[-1] == "bad: failed (3); long: cut off; never: not begun"
    assert time.monotonic() - began < 30
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"bad.log", "long.log"}


def test_lines_that_are_no_jobs(tmp_path: Path) -> None:
    for lines in ("a echo\n", "a b: echo\n", "a: echo\na: echo\n", "a:\n"):
        found = call(tmp_path, lines)
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr.count("\n") == 1
        assert "a line is NAME: COMMAND" in found.stderr


def test_the_lists_of_jobs_name_what_there_is(tmp_path: Path) -> None:
    """Every stage that needs a GPU is in the list of the papers, once; commands are those of the scripts."""
    import tables_learner
    import together
    from innergrad.papers.catalogue import STUDIES

    folder = SCRIPT.parent / "jobs"
    named: list[tuple[str, str]] = []
    for command in together.read_jobs(folder / "papers.txt", tmp_path).values():
        words = command.split()
        assert words[:3] == ["python", "-m", "innergrad.papers"]
        stages = words[words.index("--stages") + 1 :] if "--stages" in words else list(STUDIES[words[3]].stages)
        named += [(words[3], stage) for stage in stages if stage not in ("--steps", "21100")]
    assert {study for study, _ in named} == set(STUDIES)
    assert len(set(named)) == len(named)
    lacking = {(name, stage) for name, study in STUDIES.items() for stage in study.stages} - set(named)
    shared = {"learners", "references", "fits"}  # of other studies, or without a use
    assert {stage for _, stage in lacking} <= shared
    lines = together.read_jobs(folder / "tables.txt", tmp_path)
    parts = [part.split() for command in lines.values() for part in command.split(" && ")]
    assert all((SCRIPT.parent.parent / words[1]).is_file() for words in parts)
    assert all(hasattr(tables_learner, words[2]) for words in parts if "tables_learner" in words[1])
