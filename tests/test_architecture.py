"""The architecture, read from the source: who imports whom, and what may not be used at all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

import innergrad
from innergrad.cli.app import app
from innergrad.moved import MOVED

ROOT = Path(innergrad.__file__).parent

#: From the bottom to the top. A module imports from the rows above its own in this list, and from its own package.
ORDER = (
    ("errors", "moved"),
    ("files", "flops", "memory", "written"),
    ("figures",),
    ("functions",),
    ("ir",),
    ("algorithms",),
    ("interpret",),
    ("targets",),
    ("model",),
    ("evidence",),
    ("transformer",),
    ("compiler",),
    ("diffusion",),
    ("config", "zoo"),
    ("manifest",),
    ("lab",),
    ("estimators", "export", "bench", "papers"),
    ("tables",),
    ("testing", "report"),
    ("cli",),
    ("__main__",),
)
ROW = {name: row for row, names in enumerate(ORDER) for name in names}


class Import(NamedTuple):
    module: str  # that imports
    imported: str
    deferred: bool  # inside a function, or for type checkers only


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("innergrad", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def unit(module: str) -> str:
    """The name by which ORDER knows a module: the first part below the package."""
    return module.split(".")[1] if "." in module else "innergrad"


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def statements(node: ast.AST, deferred: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inside = inside or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, deferred
        yield from statements(child, inside)


def targets(module: str, statement: ast.stmt) -> Iterator[str]:
    """Modules an import statement names; ``from innergrad.interpret import plain`` names interpret.plain."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, f"{module}: imports are absolute"
        assert statement.module is not None
        for alias in statement.names:
            below = f"{statement.module}.{alias.name}"
            yield below if below in MODULES else statement.module


@cache
def imports() -> tuple[Import, ...]:
    return tuple(
        Import(module, imported, deferred)
        for module in MODULES
        for statement, deferred in statements(tree(module))
        for imported in targets(module, statement)
    )


def internal() -> Iterator[Import]:
    return (one for one in imports() if one.imported.split(".")[0] == "innergrad")


def test_the_source_is_read() -> None:
    """The rules below are about something: known imports of each kind are found."""
    assert Import("innergrad.ir.stream", "innergrad.errors", False) in imports()
    assert Import("innergrad.transformer", "innergrad.model.storage", False) in imports()
    assert Import("innergrad.cli.app", "innergrad.cli.commands", True) in imports()
    assert len(MODULES) > 30


def test_every_module_has_a_place() -> None:
    """A new module or package is put into ORDER."""
    assert {unit(module) for module in MODULES} == {"innergrad", *ROW}


@pytest.mark.parametrize("module", [module for module in MODULES if module != "innergrad"])
def test_imports_go_down(module: str) -> None:
    """No module imports from its own row (its own package excepted) or from a later one: neither at import time nor
    inside a function nor for type checkers.
    """
    here = unit(module)
    for imported in dict.fromkeys(one.imported for one in internal() if one.module == module):
        there = unit(imported)
        if there not in (here, "innergrad"):
            assert ROW[there] < ROW[here], f"{module} imports {imported}"


def test_nothing_imports_the_package_that_re_exports_it() -> None:
    """Except for its version, where the command line prints it and where manifests say it."""
    users = [one.module for one in internal() if one.imported == "innergrad" and one.module != "innergrad"]
    assert users == ["innergrad.cli.app", "innergrad.manifest"]


def test_no_module_is_part_of_a_cycle() -> None:
    """Within packages too, and with imports inside functions and for type checkers counted; only the package's own
    table of names, which imports on first use, is not. (graphlib raises CycleError and names the cycle.)
    """
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, imported, _ in internal():
        if "innergrad" not in (module, imported):
            graph[module].add(imported)
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


@pytest.mark.parametrize(
    ("below", "above"),
    [
        ("functions", tuple(name for name in ROW if name not in ("errors", "functions"))),
        ("ir", ("algorithms", "interpret", "targets", "model", "evidence", "transformer", "compiler")),
        ("algorithms", ("interpret", "targets", "model", "evidence", "transformer", "compiler")),
        ("interpret", ("algorithms", "targets", "model", "evidence", "transformer", "compiler")),
        ("targets", ("algorithms", "model", "evidence", "transformer", "compiler")),
        ("evidence", ("transformer", "compiler")),
    ],
)
def test_what_must_not_know_of_what(below: str, above: tuple[str, ...]) -> None:
    """One program per algorithm, several interpretations: neither knows the other, not even inside a function."""
    checked = {name for name in MODULES if unit(name) == below}
    assert checked
    assert [one for one in internal() if one.module in checked and unit(one.imported) in above] == []


@pytest.mark.parametrize(("top", "users"), [("cli", {"cli", "__main__"}), ("testing", {"testing"})])
def test_nothing_imports_what_is_at_the_top(top: str, users: set[str]) -> None:
    assert {unit(one.module) for one in internal() if unit(one.imported) == top} == users


# -------------------------------------------------------------------------------------- what an instruction means

MEANING = ("scope", "reduce", "where")
DECIDE = ("innergrad.ir.", "innergrad.interpret.walk", "innergrad.targets.parts.")


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(DECIDE)])
def test_only_the_walk_and_the_parts_read_what_an_instruction_asks_for(module: str) -> None:
    """By the syntax tree. Functions of these names, torch.where say, are called and not read; and the records of laws
    and of health say ``where`` something was seen.
    """
    called = {id(node.func) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute) and node.attr in MEANING and isinstance(node.ctx, ast.Load):
            read = ast.unparse(node)
            assert id(node) in called or read in ("self.where", "law.where"), f"{module}, line {node.lineno}: {read}"


def test_the_walk_does_read_them() -> None:
    """So that the rule above would find a reader."""
    read = {n.attr for n in ast.walk(tree("innergrad.interpret.walk")) if isinstance(n, ast.Attribute)}
    assert set(MEANING) <= read


# ------------------------------------------------------------------------------------------------------- old names


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_module_of_the_new_one(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = import_module(old)
    assert module is import_module(MOVED[old])
    assert module.__name__ == MOVED[old]
    assert module.__spec__ is not None
    assert module.__spec__.name == MOVED[old]


# ------------------------------------------------------------------------------------------------- what is forbidden

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec", "__import__", "torch.load", "torch.save", "numpy.load", "np.load"}


@pytest.mark.parametrize("module", MODULES)
def test_no_pickle_and_no_eval(module: str) -> None:
    """Loading a model never runs code: no pickle in any form, no torch.load, no eval."""
    assert {one.imported.split(".")[0] for one in imports() if one.module == module} & UNSAFE_MODULES == set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Name | ast.Attribute):
            assert ast.unparse(node) not in UNSAFE_CALLS, f"line {node.lineno}"
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle", f"line {node.value.lineno}"


# ------------------------------------------------------------------------------------------------------- lazy imports


def imported_by(*arguments: str) -> tuple[set[str], str]:
    """Top-level packages that a fresh interpreter imports, and what it prints."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in lines}, result.stdout


def test_import_innergrad_does_not_import_torch() -> None:
    """... but the first use of a name does, which shows that the measurement works."""
    loaded, _ = imported_by("-c", "import innergrad; innergrad.__version__")
    assert "innergrad" in loaded
    assert not loaded & {"torch", "numpy"}
    loaded, _ = imported_by("-c", "import innergrad; innergrad.Network")
    assert "torch" in loaded


def test_only_the_battery_needs_pytest() -> None:
    """And says so where there is none."""
    names = "import innergrad\nfor name in innergrad.__all__:\n  try: getattr(innergrad, name)"
    loaded, _ = imported_by("-c", f"{names}\n  except ModuleNotFoundError: pass")  # of what an extra would bring
    assert "pytest" not in loaded
    without = "import sys; sys.modules['pytest'] = None\ntry: import innergrad.testing"
    without += "\nexcept ImportError as error: print(error)"
    assert imported_by("-c", without)[1] == "innergrad.testing needs pytest: pip install pytest\n"


COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


HELP = """
import contextlib, io, json, sys
from innergrad.cli import main
heavy, shown = ("torch", "numpy", "matplotlib", "sklearn"), {}
for command in sys.argv[1:]:
    sys.argv = ["innergrad", command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main()
    shown[command] = [printed.getvalue(), [name for name in heavy if name in sys.modules]]
print(json.dumps(shown))
"""


def test_help_does_not_import_torch() -> None:
    """``innergrad --help`` and ``innergrad <command> --help`` answer without loading torch or numpy.

    The commands in one process: the first that loads something is the one to look at.
    """
    loaded, printed = imported_by("-m", "innergrad", "--help")
    assert "Usage" in printed
    assert all(command in printed for command in COMMANDS)
    assert not loaded & {"torch", "numpy", "matplotlib", "sklearn"}
    shown = json.loads(imported_by("-c", HELP, *COMMANDS)[1])
    assert list(shown) == COMMANDS
    for command, (printed, heavy) in shown.items():
        assert "Usage" in printed, command
        assert command in printed
        assert heavy == [], command


@pytest.mark.parametrize("start", ["innergrad.lab", "innergrad.papers.__main__"])
def test_the_lab_needs_torch_numpy_and_safetensors_only(start: str) -> None:
    """What ``import innergrad.lab`` imports, read from the source: GPU machines often have these and nothing else. The
    experiments of the papers run there, too.
    """
    reached, found, waiting = set[str](), set[str](), [start]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        for one in imports():
            if one.module == module and not one.deferred:
                if one.imported in MODULES:
                    parts = one.imported.split(".")
                    waiting += [".".join(parts[: end + 1]) for end in range(1, len(parts))]
                else:
                    found.add(one.imported.split(".")[0])
    assert {"innergrad.lab.training", "innergrad.lab.learners.gpt", "innergrad.lab.kernels.attention"} <= reached
    assert found - set(sys.stdlib_module_names) == {"torch", "numpy", "safetensors"}


def test_the_script_is_the_module() -> None:
    """The console script and ``python -m innergrad`` call the same function."""
    (script,) = entry_points(group="console_scripts", name="innergrad")
    assert script.value == "innergrad.cli:main"
    assert Import("innergrad.__main__", "innergrad.cli", False) in imports()


def test_public_names_exist() -> None:
    """__all__, the lazy table and the imports for type checkers name the same things, and each can be had."""
    import innergrad

    declared = {
        alias.name
        for statement, _ in statements(tree("innergrad"))
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("innergrad")
        for alias in statement.names
        if statement.module not in ("innergrad.moved", "innergrad")  # a module is no name of it
    }
    assert set(innergrad.__all__) == declared == set(innergrad._HOME)
    for name in innergrad.__all__:
        assert getattr(innergrad, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        innergrad.no_such_name  # noqa: B018


@pytest.mark.parametrize("one_in", [2, 3, 7])
def test_a_sample_has_one_of_so_many_in_a_row_and_cuts_along_no_parameter(one_in: int) -> None:
    from conftest import kept

    for shift in range(9):
        rows = [(a, b) for a in range(one_in) for b in range(one_in)]
        found = [row for number, row in enumerate(rows) if kept(number, one_in, shift)]
        assert [a for a, _ in found] == list(range(one_in)) == sorted(b for _, b in found)


def test_tests_that_are_sampled_exist() -> None:
    """A name that nothing has would sample nothing, without a word."""
    from conftest import SAMPLED

    folders = (Path(__file__).parent, Path(innergrad.__file__).parent / "testing")
    sources = "\n".join(file.read_text() for folder in folders for file in folder.glob("*.py"))
    assert [name for name in SAMPLED if f"def {name}(" not in sources] == []
