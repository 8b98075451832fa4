"""The pages are true: code runs, commands exist, links lead somewhere. (Tables: ``make check``.)"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from innergrad.testing import Conformance
from test_cli import call

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
README, DOCS = ROOT / "README.md", ROOT / "docs"
QUICKSTART, COMMANDS = DOCS / "quickstart.md", DOCS / "commands.md"
FIRST = [README, QUICKSTART, COMMANDS]  # read first: commands of other pages use the models that these make
PAGES = [*FIRST, *(page for page in sorted(DOCS.rglob("*.md")) if page not in FIRST)]
SESSIONS = [
    DOCS / "idea.md",
    DOCS / "theory.md",
    DOCS / "diffusion.md",
    DOCS / "reference" / "estimators.md",
    *(p for p in PAGES if p.parent.name in ("tutorials", "howto")),
]


def blocks(language: str, pages: list[Path] = PAGES) -> list[str]:
    return [block for page in pages for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("code", blocks("python", [p for p in PAGES if p not in (README, QUICKSTART, *SESSIONS)]))
def test_python_blocks_run(code: str) -> None:
    exec(compile(code, "a page", "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_a_page_is_one_session(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks in order, each with the names of those before it, in an empty folder. They are one file: nnsight reads
    the source of the code that it traces.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    script = tmp_path / f"page_{page.stem}.py"  # no name of a module
    script.write_text("\n".join(blocks("python", [page])))
    runpy.run_path(str(script))


def test_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (output,) = blocks("python", [README]), blocks("text", [README])
    assert len([line for line in code.splitlines() if line.strip()]) <= 10  # it promises ten lines
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


@pytest.mark.slow
def test_the_quickstart_is_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    for code in blocks("python", [QUICKSTART]):
        exec(compile(code, "quickstart.md", "exec"), session)
    assert {path.name for path in tmp_path.iterdir()} == {"sine.svg", "loss.png", "sine", "sine-llama"}


def test_the_battery_of_the_page_is_collected_and_passes(pytester: pytest.Pytester) -> None:
    """The block of tutorials/algorithm.md in a file of its own, with nothing of this folder: every law is a test."""
    (code,) = [block for block in blocks("python") if "Conformance" in block]
    pytester.makepyfile(test_logistic_regression=code)
    pytester.syspathinsert(ROOT / "examples")
    laws = [name for name in dir(Conformance) if name.startswith("test_")]
    twice = sum("long_prompts" in name for name in laws) - 1  # on different and on equal examples
    pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider").assert_outcomes(passed=len(laws) + twice)


SHORTER = {
    "--steps 20": "--steps 2",
    "--sizes 10,8,8,1": "--sizes 10,3,1",
    "--sizes 2,4,1": "--sizes 2,2,1",
    "--points 20,8,3": "--points 4,4,2",
    "--engine kernel": "--engine ridge --rows 60",
    "--target price --predict": "--target price --rows 60 --predict",
}


def commands(lab: bool) -> list[list[str]]:
    """The arguments of every command of the pages, those of the lab or the others, in order."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("innergrad ")]
    found = [line.split("#")[0].split()[1:] for line in lines]
    return [arguments for arguments in found if (arguments[0] in ("train", "evaluate", "sweep")) == lab]


def shortened(arguments: list[str]) -> list[str]:
    """The same with a few steps of training or descent, on small networks."""
    if arguments[0] in ("train", "sweep"):
        return [*arguments, "--set", "train.steps=4"]
    line = " ".join(arguments)
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    return line.split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the configurations and the examples of the checkout alone."""
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("lab", "count"), [(True, 21), (False, 27)], ids=["lab", "compiler"])
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


def prose(page: Path) -> str:
    """Without code blocks, in which brackets are no links and # begins no heading."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """Relative ones: the file ("" for the page itself) and the place in it."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [(file, place) for file, _, place in (target.partition("#") for target in found) if "://" not in file]


def places(page: Path) -> set[str]:
    """What a link can point to: headings, as GitHub names them, and anchors."""
    text = prose(page)
    headings = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {heading.strip().replace(" ", "-") for heading in headings} | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for file, place in links(page):
        target = (page.parent / file) if file else page
        if not SOURCE.exists() and SOURCE in target.resolve().parents:
            continue  # the tests of a package: its source is elsewhere
        assert target.exists(), f"{page.name}: {file}"
        assert not place or target.suffix != ".md" or place in places(target), f"{page.name}: {file}#{place}"


def linked(page: Path) -> set[Path]:
    return {(page.parent / file).resolve() for file, _ in links(page) if file}


def test_the_index_leads_to_every_page() -> None:
    """A page of docs/reference is behind the short page that it belongs to, one of docs/api behind its own index; all
    others are on the index itself.
    """
    direct = linked(DOCS / "index.md")
    far = ("reference", "api")
    behind = {page for short in direct if short in PAGES for page in linked(short) if page.parent.name in far}
    missing = [page.name for page in PAGES if page not in direct | behind and page.name != "index.md"]
    assert missing == []


LONGEST = 1500  # words of a page that is read from start to end


def is_reference(page: Path) -> bool:
    """Made to look things up in: the first line below the title says so, and says what for."""
    first = next(line for line in page.read_text().splitlines()[1:] if line.strip())
    return first.startswith("Reference. ") and len(first.split()) > 3


def test_pages_can_be_read_at_once() -> None:
    long = [page.name for page in PAGES if not is_reference(page) and len(page.read_text().split()) > LONGEST]
    assert long == []
    assert len(re.sub(r"^\|.*$", "", prose(README), flags=re.MULTILINE).split()) <= 650  # tables aside: a front door


def test_long_pages_have_a_short_one_before_them() -> None:
    """docs/NAME.md explains in 1,000 words or fewer, tables and code aside, and links to docs/reference/NAME.md."""
    for name in ("certificates", "constructions", "executor", "reliability"):
        short, long = DOCS / f"{name}.md", DOCS / "reference" / f"{name}.md"
        assert is_reference(long)
        assert long in linked(short)
        assert len(re.sub(r"^\|.*$", "", prose(short), flags=re.MULTILINE).split()) <= 1000, name


def test_every_table_is_on_a_page_that_is_checked() -> None:
    """By tables.py, or, docs/resources.md, by bridges.py."""
    import tables

    holds = {page.relative_to(ROOT).as_posix() for page in PAGES if "<!-- table: " in page.read_text()}
    assert holds == {*tables.PAGES, "docs/resources.md"}
    shown = {name for page in PAGES for name in re.findall(r"<!-- table: (\w+) -->", page.read_text())}
    assert set(tables.TABLES) <= shown


def test_the_example_algorithm_is_under_60_lines() -> None:
    assert len((ROOT / "examples" / "logistic_regression.py").read_text().splitlines()) < 60
