"""What the command line says of input that is wrong: at once, without torch, in one paragraph that tells what to do.
And what it does with a table as it was measured, which is seldom scaled.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from typer.core import TyperOption

import innergrad as ig
from innergrad.algorithms import ALGORITHMS as KINDS
from innergrad.algorithms.functional import StepRule
from innergrad.algorithms.kernels import H
from innergrad.cli import data, lab_settings, names
from innergrad.cli.app import parser
from innergrad.cli.lab import OLD_NAMES
from innergrad.cli.making import MAKERS, SCHEDULES, compile_settings
from innergrad.cli.settings import ALGORITHMS, settings
from innergrad.cli.theorems import THEOREMS
from innergrad.cli.words import in_flags
from innergrad.errors import plural
from innergrad.export.families import FAMILIES
from innergrad.functions.fits.sigmas import SIGMAS
from innergrad.lab import journal
from innergrad.model import symptoms
from innergrad.model.executors import EXECUTORS
from innergrad.papers.catalogue import FIGURES
from innergrad.targets import TARGETS
from test_cli import SMALL, call, columns, good, random_data, read_rows, write_rows

ROOT = Path(__file__).parent.parent
COMMANDS = parser().commands
TABLE = ROOT / "examples" / "examples.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs, one output, at most six examples."""
    folder = tmp_path_factory.mktemp("input") / "model"
    good("compile", *SMALL, "--out", folder, "--quiet")
    return folder


# --------------------------------------------------------------------------------------------------------------- names


def test_the_names_are_the_librarys() -> None:
    """They are written down twice, so that a misspelt one is answered without torch."""
    assert {name: target.variants for name, target in TARGETS.items()} == names.TARGETS
    assert tuple(ig.ACTIVATIONS) == names.ACTIVATIONS
    assert tuple(ig.LOSSES) == names.LOSSES
    assert tuple(H) == names.KERNELS
    assert tuple(SIGMAS) == names.SIGMAS
    assert get_args(StepRule) == names.STEP_RULES
    assert tuple(SCHEDULES) == names.SCHEDULES
    assert tuple(FAMILIES) == names.FAMILIES
    assert {*EXECUTORS, "auto"} == {*names.EXECUTORS}
    assert tuple(ALGORITHMS) == tuple(MAKERS) == names.ALGORITHMS
    assert tuple(THEOREMS) == names.THEOREMS
    assert tuple(FIGURES) == names.FIGURES
    assert (journal.CONFIG, journal.LOG) == (names.RUN_CONFIG, names.RUN_LOG)
    assert (symptoms.LARGE, symptoms.SMALL, symptoms.OUTER) == (data.LARGE, data.SMALL, data.OUTER)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_targets_of_an_algorithm_are_its_own(name: str) -> None:
    sizes = {"sizes": "2,1"} if "sizes" in ALGORITHMS[name].names else {"d": 2}
    more = {"steps": 1, "grid": 2, "box": "1"} if name == "grid" else {}
    tf = compile_settings(settings(None, {"algorithm": name, **sizes, **more, "n_examples": 2}))
    assert tf.algorithm.targets == ALGORITHMS[name].targets
    assert type(tf.algorithm) in KINDS.values()


def test_the_settings_of_the_lab_are_its_classes() -> None:
    """``python benchmarks/settings_tables.py`` writes the file anew."""
    import settings_tables

    written = json.loads(files("innergrad.cli").joinpath(lab_settings.FILE).read_text())
    assert written == json.loads(json.dumps(settings_tables.outline()))


def test_old_names_of_configurations_and_theorems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for old in ("000_balls", "001_relu_3", "003_kernels", "004_linear"):
        assert old.partition("_")[0] in OLD_NAMES
        wrong = call("train", f"configs/{old}.toml", "--set", "train.stpes=1", "--out", tmp_path / "run")
        assert "did you mean train.steps?" in wrong.err
    assert good("cost", "--theorem", "000-3", "--json") == good("cost", "--theorem", "neural-networks-3", "--json")
    assert "000" not in good("cost", "-h")


# ------------------------------------------------------------------------------------------------------- without torch

MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {  # arguments; and what is said
    "command": (("comple",), "did you mean compile?"),
    "name of a figure": (("figures", "mixture-relu"), "did you mean mixtures-relu?"),
    "flag": (("compile", "--sizes", "2,1", "--out", "x", "--targt", "relu"), "did you mean --target?"),
    "target": (("compile", "--sizes", "2,1", "--out", "x", "--target", "lama"), "did you mean llama?"),
    "variant": (("cost", "--sizes", "2,1", "--variant", "shalow"), "did you mean shallow?"),
    "variant of another": (("cost", "--sizes", "2,1", "--variant", "chain"), "--target llama has it"),
    "activation": (("cost", "--sizes", "2,1", "--activation", "Tahn"), "did you mean tanh?"),
    "loss": (("cost", "--sizes", "2,1", "--loss", "sqared"), "did you mean squared?"),
    "algorithm": (("cost", "--algorithm", "rsl"), "did you mean rls?"),
    "schedule": (("cost", "--sizes", "2,1", "--schedule", "cosin"), "did you mean cosine?"),
    "number": (("cost", "--sizes", "2,1", "--lr", "fast"), "--lr takes a number; got 'fast'"),
    "negative number": (("cost", "--sizes", "2,1", "--lr", "-1"), "--lr must be a finite number, at least 0; got -1"),
    "sizes": (("cost", "--sizes", "2,x,1"), "--sizes must be integers; got '2,x,1'"),
    "examples": (("cost", "--sizes", "2,1", "--n-examples", "9" * 9), "--n-examples must be a positive integer"),
    "seed": (("cost", "--sizes", "2,1", "--seed", "-1"), "seed must be"),
    "settings file": (("cost", "--config", "setings.toml"), "did you mean settings.toml?"),
    "section": (("cost", "--config", "settings.toml"), "did you mean network?"),
    "model": (("run", "modle", "--data", "data.csv"), "did you mean model?"),
    "table": (("run", "model", "--data", "date.csv"), "did you mean data.csv?"),
    "no table": (("run", "model"), "give --data"),
    "text": (
        ("run", "model", "--data", "text.csv"),
        "line 3 of text.csv, column 'b' (number 2), is not a number; got 'x'",
    ),
    "missing value": (("run", "model", "--data", "missing.csv"), "got 'NA'; a value is missing: leave the row out"),
    "thousands": (("run", "model", "--data", "thousands.csv"), "got '1,200'; leave out the commas between thousands"),
    "one word too many": (("compile", "--sizes", "2,1", "--out", "x", "--steps", "2", "20"), "arguments; got 20;"),
    "target column": (("run", "model", "--data", "data.csv", "--target", "T"), "did you mean t?"),
    "executor": (("run", "model", "--data", "data.csv", "--executor", "danse"), "did you mean dense?"),
    "dtype": (("run", "model", "--data", "data.csv", "--dtype", "float46"), "did you mean float64?"),
    "scale without data": (("verify", "model", "--scale"), "--scale is about the rows of --data"),
    "prompts": (("verify", "model", "--prompts", "0"), "--prompts must be a positive integer; got 0"),
    "figure": (("verify", "model", "--figure", "x.png"), "give --explain too"),
    "format": (("export", "model", "--out", "x", "--format", "onx"), "did you mean onnx?"),
    "family": (("export", "model", "--out", "x", "--family", "lama"), "did you mean llama?"),
    "no Llama": (("export", "model", "--out", "x", "--family", "llama"), "--family and --kv-heads are for Llamas"),
    "report": (("report", "modle"), "did you mean model?"),
    "demo": (("demo", "--target", "lama"), "did you mean llama?"),
    "bench": (("bench", "executr"), "did you mean executor?"),
    "points": (("bench", "--points", "1,2"), "--points are n,K,N; got '1,2'"),
    "theorem": (("cost", "--theorem", "neural-network-3"), "did you mean neural-networks-3?"),
    "configuration": (("train", "smok.toml"), "did you mean smoke.toml?"),
    "setting": (("train", "smoke.toml", "--set", "train.stpes=3"), "did you mean train.steps?"),
    "value": (("train", "smoke.toml", "--set", "train.steps=many"), "train.steps is wrong; got 'many'"),
    "task": (("train", "smoke.toml", "--set", "task.kind=liner"), "did you mean linear?"),
    "optimiser": (("train", "smoke.toml", "--set", "train.optimiser.kind=moun"), "did you mean muon?"),
    "device": (("train", "smoke.toml", "--device", "tpu"), "unknown device; got 'tpu'"),
    "a model to train": (("train", "model", "--resume"), "is a compiled model, not a run of the lab"),
    "grid": (("sweep", "smoke.toml", "--grid", "sede=0,1"), "did you mean seed?"),
    "run": (("evaluate", "nothing"), "cannot read the checkpoint nothing"),
    "baseline": (("evaluate", ".", "--baselines", "mean,rigde"), "did you mean ridge?"),
    "shift": (("evaluate", ".", "--set", "train.steps=3"), "only the task of a trained model can be changed"),
}
SCRIPT = """
import contextlib, io, json, sys
from innergrad.cli import main
found = {}
for name, arguments in json.load(sys.stdin).items():
    sys.argv, out, err, code = ["innergrad", *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    heavy = [name for name in ("torch", "numpy", "matplotlib", "sklearn", "safetensors") if name in sys.modules]
    found[name] = [code, out.getvalue(), err.getvalue(), heavy]
print(json.dumps(found))
"""


def in_a_process(arguments: dict[str, tuple[str, ...]], folder: Path) -> dict[str, tuple[int, str, str, list[str]]]:
    """All of them in one new process: exit code, stdout, stderr, and which large packages are loaded by then."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, tuple[int, str, str, list[str]]] = json.loads(done.stdout)
    return found


@pytest.fixture
def workspace(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where MISTAKES are made."""
    (tmp_path / "model").symlink_to(model)
    (tmp_path / "data.csv").write_text("a,b,t\n1,2,3\n0,1,1\n0.5,0.5,\n")
    (tmp_path / "text.csv").write_text("a,b,t\n1,2,3\n1,x,2\n")
    (tmp_path / "missing.csv").write_text("a,b,t\n1,2,3\n1,NA,2\n")
    (tmp_path / "thousands.csv").write_text('a,b,t\n1,2,3\n1,"1,200",2\n')
    (tmp_path / "settings.toml").write_text("[netwrk]\nsizes = [2, 1]\n")
    (tmp_path / "smoke.toml").write_text((ROOT / "configs" / "smoke.toml").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_mistakes_are_answered_without_torch(workspace: Path) -> None:
    """The first of the list that loads something is the one to look at. At the end, one that needs torch is seen."""
    before = sorted(path.name for path in workspace.iterdir())
    given = {name: arguments for name, (arguments, _) in MISTAKES.items()}
    last = {"a run": ("run", "model", "--data", "data.csv", "--std")}
    found = in_a_process({**given, **last}, workspace)
    for name, (_, words) in MISTAKES.items():
        code, out, err, heavy = found[name]
        assert (code, out, err.count("\n")) == (2, "", 1), (name, err)
        assert words in err, (name, err)
        assert heavy == [], name
    assert "torch" in found["a run"][3]
    assert sorted(path.name for path in workspace.iterdir()) == before


def test_help_is_everywhere_and_has_no_raw_types() -> None:
    """-h is --help; what a flag takes is said in words; no torch."""
    calls = {f"{name} {flag}".strip(): (*name.split(), flag) for name in ("", *COMMANDS) for flag in ("-h", "--help")}
    found = in_a_process({"": (), **calls}, ROOT)
    assert found[""][:3] == found["--help"][:3]  # without arguments: the help, and no error
    for name, (code, out, err, heavy) in found.items():
        assert (code, err, heavy) == (0, "", []), name
        assert not re.search(r"<\w+>|\bTEXT\b|\bINTEGER\b|\bBOOLEAN\b", out), name
        assert out == found[name.replace("-h", "--help") if name.endswith(" -h") else name][1]


def test_every_flag_says_what_it_takes() -> None:
    for name, command in COMMANDS.items():
        for param in command.params:
            takes_value = isinstance(param, TyperOption) and not param.is_flag
            assert not takes_value or param.metavar, f"{name} {param.name}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes(shell: str) -> None:
    """Commands, flags, and names of targets."""

    def completed(*words: str) -> str:
        line = " ".join(("innergrad", *words))
        environment = {"_INNERGRAD_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
        environment |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        code = "import sys; from innergrad.cli import main; sys.argv[0] = 'innergrad'; main()"
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
        )
        return done.stdout

    assert "compile" in completed("comp")
    if shell == "bash":
        assert completed("compile", "--tar").split() == ["--target"]
        assert completed("compile", "--target", "l").split() == ["llama"]
        assert completed("run", "--executor", "").split() == list(names.EXECUTORS)


def test_the_lab_is_an_attribute() -> None:
    code = "import sys, innergrad; assert 'torch' not in sys.modules; assert 'lab' in dir(innergrad); "
    code += "innergrad.lab.Experiment"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("command", "text", "flags"),
    [
        ("run", "use executor='plain', or a larger epsilon", "use --executor plain, or a larger --epsilon"),
        ("compile", "use executor='plain', a larger epsilon or another", "use a larger --epsilon or another"),
        ("compile", "n_examples must be a positive integer; got 0", "--n-examples must be a positive integer; got 0"),
        ("compile", "lr must be a finite number", "--lr must be a finite number"),
        ("compile", "use loss='logistic'", "use --loss logistic"),
        ("compile", "or do without: box=None, and no ball", "or do without: --box none, and no ball"),
        ("compile", "compile with double=True", "compile with --double"),
        ("compile", "or bias=False", "or --no-bias"),
        ("compile", "give z_bound=..., or x_bound=... and a box", "give --z-bound, or --x-bound and a box"),
        ("run", "--n-examples is a flag; V1 = 3, s_j too", "--n-examples is a flag; V1 = 3, s_j too"),
    ],
)
def test_the_librarys_words_become_flags(command: str, text: str, flags: str) -> None:
    assert in_flags(text, command) == flags


def test_plurals() -> None:
    assert [plural(n, "prediction") for n in (0, 1, 2)] == ["0 predictions", "1 prediction", "2 predictions"]


def test_one_prediction_is_one(model: Path, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b,t\n1,2,3\n0,1,\n")
    printed = good("run", model, "--data", tmp_path / "data.csv")
    assert "loss on 1 example:" in printed
    assert re.search(r"1 prediction\b", printed)


# --------------------------------------------------------------------------------------------------------------- tables

TABLES = {
    "semicolons": ("a;b;t\n1;2;3\n", "has semicolons between its columns; got 'a;b;t'; allowed: commas"),
    "tabs": ("a\tb\tt\n1\t2\t3\n", "has tabs between its columns"),
    "a missing cell": ("a,b,t\n1,,3\n", "line 2 of {path}, column 'b' (number 2), is not a number; got nothing"),
    "a short row": ("a,b,t\n1,2,3\n4,5\n", "line 3 of {path} has the wrong length; got 2 cells; allowed: 3"),
    "a decimal comma": ("a,b,t\n1,5,2,3\n", "a comma inside a number? use a point"),
    "a label that is text": ("a,b,t\n1,2,yes\n", "line 2 of {path}, column 't' (number 3), is not a number; got 'yes'"),
    "too many rows": ("a,b,t\n" + "1,2,3\n" * 7, "compile with --n-examples 7"),
    "a header alone": ("a,b,t\n", "has a header but no rows; got a, b, t; allowed: a header and at least one row"),
    "nothing at all": ("", "is empty; got nothing"),
    "a column too many": ("a,b,c,t\n1,2,3,4\n", "compile with --sizes 3,...,1"),
    "a line inside quotes": ('a,"b\nc",t\n1,2,3\n1,x,3\n', "line 4 of {path}, column 'b\\nc' (number 2)"),
}


@pytest.mark.parametrize(("text", "words"), TABLES.values(), ids=TABLES)
def test_what_is_wrong_with_a_table(model: Path, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    for command in ("run", "verify", "report"):
        flags = ("--out", tmp_path / "report.html") if command == "report" else ()
        found = call(command, model, "--data", path, *flags)
        assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
        assert words.format(path=path) in found.err
    assert [one.name for one in tmp_path.iterdir()] == ["data.csv"]


def test_classes_are_told_by_line_and_column(tmp_path: Path) -> None:
    good("compile", *SMALL, "--loss", "logistic", "--out", tmp_path / "model", "--quiet")
    (tmp_path / "data.csv").write_text("a,b,label\n1,2,1\n1,2,2\n")
    found = call("run", tmp_path / "model", "--data", tmp_path / "data.csv")
    assert "logistic targets must be 0 or 1; got 2 in line 3 of" in found.err
    assert "column 'label' (number 3)" in found.err


# -------------------------------------------------------------------------------------------------------------- scaling


def test_scaling_is_standardising_and_back(model: Path, tmp_path: Path) -> None:
    """By the examples' own mean and deviation; queries likewise; predictions in the units of the table."""
    X, y, X_query = random_data(2, 1)
    X, X_query, y = 40.0 + 7.0 * X, 40.0 + 7.0 * X_query, 1000.0 - 300.0 * y
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y), [[*row, ""] for row in X_query.tolist()])
    raw = call("run", model, "--data", table)
    assert "--scale standardises the columns" in raw.err
    assert "a (column 1, up to" in raw.err
    assert "t (column 3, up to" in raw.err
    run = json.loads(good("run", model, "--data", table, "--scale", "--json", "--out", tmp_path / "out"))
    (mx, sx), (my, sy) = ((part.mean(0), part.std(0, correction=0)) for part in (X, y))
    expected = ig.load(model).run((X - mx) / sx, (y - my) / sy, (X_query - mx) / sx)
    in_units = expected.predictions * sy + my
    assert torch.allclose(torch.tensor(run["predictions"], dtype=torch.float64), in_units, rtol=1e-9)
    assert torch.allclose(torch.tensor(run["weights"], dtype=torch.float64), expected.weights[-1], atol=1e-9)
    assert run["scale"]["targets"]["t"] == pytest.approx([float(my), float(sy)])
    header, rows = read_rows(tmp_path / "out" / "predictions.csv")
    assert header == ["a", "b", "t"]
    assert [row[:2] for row in rows] == X_query.tolist()  # as they stand in the file
    assert [row[2] for row in rows] == pytest.approx(in_units[:, 0].tolist(), rel=1e-9)
    assert "predictions are in the units of the file" in good("run", model, "--data", table, "--scale")
    assert call("verify", model, "--data", table, "--scale").code == 0


def test_scaling_of_online_predictions_and_deviations(tmp_path: Path) -> None:
    good("compile", "--algorithm", "rls", "--d", 2, "--n-examples", 5, "--out", tmp_path / "rls", "--quiet")
    X, y, X_query = random_data(2, 1)
    X, X_query, y = 5.0 + 3.0 * X, 5.0 + 3.0 * X_query, 20.0 * y
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y), [[*row, ""] for row in X_query.tolist()])
    run = json.loads(good("run", tmp_path / "rls", "--data", table, "--scale", "--std", "--json"))
    (mx, sx), (my, sy) = ((part.mean(0), part.std(0, correction=0)) for part in (X, y))
    expected = ig.load(tmp_path / "rls").run((X - mx) / sx, (y - my) / sy, (X_query - mx) / sx, return_std=True)
    assert expected.online is not None
    assert expected.std is not None
    assert run["online"] == pytest.approx((expected.online * sy + my).tolist(), rel=1e-6)
    assert run["std"] == pytest.approx((expected.std * sy).tolist(), rel=1e-6)


def test_classes_are_not_scaled(tmp_path: Path) -> None:
    good("compile", *SMALL, "--loss", "logistic", "--out", tmp_path / "model", "--quiet")
    (tmp_path / "data.csv").write_text("a,b,label\n100,2,1\n300,-2,0\n150,1,1\n120,1,\n")
    run = json.loads(good("run", tmp_path / "model", "--data", tmp_path / "data.csv", "--scale", "--json"))
    assert run["scale"]["targets"] == {}
    assert set(run["scale"]["inputs"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,t\n1,2,3\n1,4,5\n", "column 'a' (number 1) of {path} cannot be scaled; got 1 in every row that teaches"),
        ("a,b,t\n1,2,3\n2,4,3\n", "column 't' (number 3) of {path} cannot be scaled"),
        ("a,b,t\n1,2,3\n", "one row has no spread: give more rows"),
    ],
)
def test_columns_that_cannot_be_scaled(model: Path, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    found = call("run", model, "--data", path, "--scale")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert words.format(path=path) in found.err


def test_the_table_that_is_shipped_is_scikit_learns() -> None:
    """The first 60 rows of the diabetes data; the last 12 without their target."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes(scaled=False)
    with TABLE.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == [*found.feature_names, "progression"]
    assert [[float(cell) for cell in row[:10]] for row in rows] == found.data[:60].tolist()
    assert [row[10] for row in rows] == [f"{value:g}" for value in found.target[:48]] + [""] * 12


# ----------------------------------------------------------------------------------------------------------------- fuzz


@dataclass(frozen=True)
class Line:
    """A command line that is right, but for one word."""

    start: tuple[str, ...]
    flag: str
    value: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.start, self.flag, self.value) if self.value else (*self.start, self.flag)


STARTS: dict[str, tuple[str, ...]] = {
    "compile": ("compile", "--sizes", "2,3,1", "--out", "new"),
    "cost": ("cost", "--sizes", "2,3,1"),
    "run": ("run", "model", "--data", "data.csv", "--out", "new"),
    "verify": ("verify", "model", "--out", "new.json"),
    "export": ("export", "model", "--out", "new"),
    "report": ("report", "model", "--out", "new.html"),
    "demo": ("demo", "--out", "new"),
    "bench": ("bench", "--out", "new.json"),
    "train": ("train", "smoke.toml", "--out", "new"),
    "evaluate": ("evaluate", "smoke.toml", "--out", "new.json"),
    "sweep": ("sweep", "smoke.toml", "--out", "new"),
    "figures": ("figures", "depth", "--quick", "--out", "new"),
}
BAD = {  # what a flag takes -> values that are wrong for every such flag
    "N": ("x", "1.5", "-1", "", "1e3", "9" * 30, "nan", "½"),
    "NUMBER": ("x", "nan", "-1e400", "1,5", "--", "0x10"),
    "NAME": ("", "zzz", "tanh ", "RELU!", "a,b", "ß"),
    "A,B,...": ("", ",", "x", "1,,2", "1;2"),
    "KEY=VALUE": ("", "steps", "=", "train.stpes=1", "train=1", "a.b.c=1", "train.steps=x"),
    "KEY=A,B": ("", "seed", "seed=", "sede=1", "train.steps=a,b"),
    "n,K,N": ("1", "1,2", "a,b,c", "1,2,3,4", "0,1,2"),
}
ANYTHING = {  # flags that take any text of this form, or that mean nothing without others
    *("--model", "--import", "--covariate-step"),
}


def misspelt(word: str, rng: random.Random) -> str:
    """One letter more, less, changed or exchanged; never the word itself."""
    at = rng.randrange(2, len(word))
    letter = rng.choice(string.ascii_lowercase)
    ways = (word[:at] + word[at + 1 :], word[:at] + letter + word[at:], word[:at] + letter + word[at + 1 :])
    return next((way for way in rng.sample(ways, 3) if way != word), f"{word}q")


def wrong_lines() -> Iterator[Line]:
    """Every flag of every command that takes a value, with values that are wrong for it; and every flag misspelt."""
    rng = random.Random(0)
    for name in COMMANDS:
        start = STARTS.get(name, (name,))
        flags: dict[str, Any] = {
            option: param for param in COMMANDS[name].params for option in param.opts if option.startswith("--")
        }
        for flag, param in flags.items():
            wrong = misspelt(flag, rng)
            if not any(known.startswith(wrong) or wrong.startswith(known) for known in flags):
                yield Line(start, wrong, "1")
            if param.metavar in BAD and flag not in ANYTHING:
                for value in BAD[param.metavar]:
                    yield Line(start, flag, value)


def test_the_fuzz_covers_every_command() -> None:
    assert set(STARTS) <= set(COMMANDS)
    lines = list(wrong_lines())
    assert len(lines) > 500
    assert {line.start[0] for line in lines} == set(COMMANDS)


def test_wrong_command_lines_are_refused_at_once(workspace: Path) -> None:
    """Exit code 2, one paragraph with what was found and what to do next, no traceback, nothing written, no torch."""
    lines = [*wrong_lines()]
    before = sorted(path.name for path in workspace.iterdir())
    found = in_a_process({str(number): line.arguments for number, line in enumerate(lines)}, workspace)
    for line, (code, out, err, heavy) in zip(lines, found.values(), strict=True):
        assert (code, out) == (2, ""), (line.arguments, err)
        assert err.startswith("innergrad: "), line.arguments
        assert err.count("\n") == 1, line.arguments
        assert "Traceback" not in err
        assert len(err) < 1500
        assert "got " in err or "missing" in err or "unknown key" in err, (line.arguments, err)
        assert err.count("; ") >= 2, (line.arguments, err)  # what is wrong; what was found; what is allowed, or next
        assert heavy == [], line.arguments
    assert sorted(path.name for path in workspace.iterdir()) == before
