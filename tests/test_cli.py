"""The command line does what the Python API does: the same models, the same numbers, and exit codes that tell.

Most calls go through ``main`` in this process; a few are real subprocesses.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

import innergrad as ig
from conftest import missing
from innergrad.cli import animation, main
from innergrad.cli.app import app
from innergrad.cli.data import read_examples
from innergrad.cli.demo import explained, ridge, sentence
from innergrad.cli.flags import MODEL
from innergrad.cli.models import known
from innergrad.cli.settings import ALGORITHMS, COMPILE
from innergrad.evidence.attack import attack
from innergrad.evidence.explain import explain
from innergrad.files import made_by
from innergrad.model.cost import Cost, LayerCost, condensed
from innergrad.model.storage import seal
from innergrad.papers.resources import BallConstants, SmoothConstants, indicator, smooth, to_json, trade_off
from innergrad.targets import TARGETS

COMMANDS = ("demo", "compile", "run", "verify", "cost", "report", "fit")
EXECUTABLE = Path(sys.executable).parent / "innergrad"
SMALL = ("--sizes", "2,3,1", "--epsilon", "0.01", "--n-examples", "6", "--steps", "2")
MODEL_FILES = ("config.json", "weights.safetensors")


@dataclass(frozen=True)
class Result:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Result:
    """``innergrad <arguments>`` in this process; an exception that would be a traceback propagates. Where it needs what
    is not installed, the test is skipped.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["innergrad", *(str(argument) for argument in arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, {"COLUMNS": "200"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    if code and (reason := missing(err.getvalue())):
        pytest.skip(reason)
    return Result(code, out.getvalue(), err.getvalue())


def good(*arguments: object) -> str:
    """What a call prints that must succeed, and say nothing on stderr."""
    result = call(*arguments)
    assert (result.code, result.err) == (0, ""), result
    return result.out


def squeezed(text: object) -> str:
    """Without white space: long lines are wrapped."""
    return "".join(str(text).split())


def shell(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command, in a process of its own."""
    return subprocess.run(
        [str(EXECUTABLE), *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
    )


def write_rows(path: Path, header: Sequence[str], *blocks: Sequence[Sequence[object]]) -> Path:
    """A CSV file; floats are written with all their digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for block in blocks:
            writer.writerows([repr(cell) if isinstance(cell, float) else cell for cell in row] for row in block)
    return path


def read_rows(path: Path) -> tuple[list[str], list[list[float]]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return header, [[float(cell) for cell in row] for row in rows]


def columns(*parts: Tensor) -> list[list[float]]:
    return torch.cat(parts, dim=-1).tolist()


def random_data(d_x: int, d_y: int, n: int = 5, n_query: int = 3, seed: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(2, n + n_query, max(d_x, d_y), generator=generator, dtype=torch.float64)
    return draw[0, :n, :d_x], draw[1, :n, :d_y], draw[0, n:, :d_x]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with two inputs and one output."""
    folder = tmp_path_factory.mktemp("cli") / "model"
    good("compile", *SMALL, "--out", folder, "--quiet")
    return folder


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with two inputs and two outputs."""
    folder = tmp_path_factory.mktemp("cli") / "wide"
    good("compile", *SMALL, "--sizes", "2,3,2", "--out", folder, "--quiet")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five examples and three queries in one file, for ``model``."""
    X, y, X_query = random_data(2, 1)
    return write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y), [[*row, ""] for row in X_query.tolist()])


# ------------------------------------------------------------------------------------------------------------ compile

FLAGS = (
    *("--sizes", "2,3,1", "--activation", "sigmoid", "--output", "activation", "--no-bias"),
    *("--loss", "log-cosh", "--lr", "0.25", "--steps", "2", "--box", "3", "--momentum", "0.5"),
    *("--weight-decay", "0.125", "--epsilon", "0.02", "--n-examples", "5"),
    *("--x-bound", "7", "--y-bound", "6", "--z-bound", "5"),
)
TOML = """
[network]
sizes = [2, 3, 1]
activation = "sigmoid"
output = "activation"
bias = false

[algorithm]
loss = "log-cosh"
lr = 0.25
steps = 2
box = 3.0
momentum = 0.5
weight_decay = 0.125

[compile]
epsilon = 0.02
n_examples = 5
x_bound = 7.0
y_bound = 6.0
z_bound = 5.0
"""


def saved_by_python(folder: Path) -> Path:
    """The model of FLAGS and of TOML; no setting has its default value."""
    network = ig.Network([2, 3, 1], activation="sigmoid", output="activation", bias=False)
    algorithm = ig.GradientDescent(
        network, loss="log-cosh", lr=0.25, steps=2, box=3.0, momentum=0.5, weight_decay=0.125
    )
    tf = ig.compile(algorithm, epsilon=0.02, n_examples=5, x_bound=7.0, y_bound=6.0, z_bound=5.0)
    return tf.save(folder)


def assert_same_model(a: Path, b: Path) -> None:
    assert json.loads((a / "config.json").read_text()) == json.loads((b / "config.json").read_text())
    left, right = load_file(a / "weights.safetensors"), load_file(b / "weights.safetensors")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_compile_with_flags_is_the_python_api(tmp_path: Path) -> None:
    printed = good("compile", *FLAGS, "--out", tmp_path / "flags")
    assert squeezed(tmp_path / "flags") in squeezed(printed)
    assert_same_model(tmp_path / "flags", saved_by_python(tmp_path / "python"))
    assert sorted(file.name for file in (tmp_path / "flags").iterdir()) == sorted(MODEL_FILES)


def test_compile_with_a_toml_file_is_the_python_api(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(TOML)
    good("compile", "--config", tmp_path / "settings.toml", "--out", tmp_path / "toml")
    assert_same_model(tmp_path / "toml", saved_by_python(tmp_path / "python"))


@pytest.mark.parametrize(
    ("line", "other", "flag"),
    [
        ("sizes = [2, 3, 1]", "sizes = [4, 2, 2]", ("--sizes", "2,3,1")),
        ('activation = "sigmoid"', 'activation = "tanh"', ("--activation", "sigmoid")),
        ('output = "activation"', 'output = "linear"', ("--output", "activation")),
        ("bias = false", "bias = true", ("--no-bias",)),
        ('loss = "log-cosh"', 'loss = "pseudo-huber"', ("--loss", "log-cosh")),
        ("lr = 0.25", "lr = 0.5", ("--lr", "0.25")),
        ("steps = 2", "steps = 3", ("--steps", "2")),
        ("box = 3.0", 'box = "none"', ("--box", "3")),
        ("momentum = 0.5", "momentum = 0.0", ("--momentum", "0.5")),
        ("weight_decay = 0.125", "weight_decay = 0.0", ("--weight-decay", "0.125")),
        ("epsilon = 0.02", "epsilon = 0.03", ("--epsilon", "0.02")),
        ("n_examples = 5", "n_examples = 4", ("--n-examples", "5")),
        ("x_bound = 7.0", "x_bound = 8.0", ("--x-bound", "7")),
        ("y_bound = 6.0", "y_bound = 8.0", ("--y-bound", "6")),
        ("z_bound = 5.0", "z_bound = 8.0", ("--z-bound", "5")),
    ],
)
def test_flags_override_the_toml_file(tmp_path: Path, line: str, other: str, flag: tuple[str, ...]) -> None:
    """A file with one setting changed is another model; the flag brings the first one back."""
    assert line in TOML
    (tmp_path / "settings.toml").write_text(TOML.replace(line, other))
    good("compile", "--config", tmp_path / "settings.toml", "--out", tmp_path / "changed")
    good("compile", "--config", tmp_path / "settings.toml", *flag, "--out", tmp_path / "back")
    expected = saved_by_python(tmp_path / "python")
    assert (tmp_path / "changed" / "config.json").read_text() != (expected / "config.json").read_text()
    assert_same_model(tmp_path / "back", expected)


@pytest.mark.parametrize("how", ["flag", "toml"])
def test_box_none_means_no_projection(tmp_path: Path, how: str) -> None:
    (tmp_path / "settings.toml").write_text('[algorithm]\nbox = "none"\n')
    given = ("--box", "none") if how == "flag" else ("--config", tmp_path / "settings.toml")
    good("compile", *SMALL, *given, "--out", tmp_path / "model")
    algorithm = ig.load(tmp_path / "model").algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    assert algorithm.box is None


def test_compile_replaces_an_older_model(tmp_path: Path) -> None:
    good("compile", *SMALL, "--out", tmp_path / "model")
    good("compile", *FLAGS, "--out", tmp_path / "model")
    assert_same_model(tmp_path / "model", saved_by_python(tmp_path / "python"))
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == sorted(MODEL_FILES)


def test_compile_json(tmp_path: Path) -> None:
    printed = json.loads(good("compile", *SMALL, "--out", tmp_path / "model", "--json"))
    tf = ig.load(tmp_path / "model")
    assert printed["saved"] == str(tmp_path / "model")
    assert printed["totals"] == tf.cost().totals()


# --------------------------------------------------------------------------------------------------- every algorithm


@dataclass(frozen=True)
class Model:
    """A model as settings of the command line, and the same in Python; no setting has its default value."""

    kind: str
    settings: dict[str, object]
    algorithm: ig.Algorithm
    compile: dict[str, object] = field(default_factory=lambda: {"n_examples": 5})
    network: dict[str, object] = field(default_factory=dict)
    std: bool = False

    @property
    def flags(self) -> list[object]:
        given = {"algorithm": self.kind, **self.network, **self.settings, **self.compile}
        flags = ((f"--{name.replace('_', '-')}", value) for name, value in given.items())
        return [part for flag, value in flags for part in ((flag,) if value is True else (flag, _text(value)))]

    @property
    def toml(self) -> str:
        sections = {"network": self.network, "algorithm": {"kind": self.kind, **self.settings}, "compile": self.compile}
        return "".join(
            f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            for section, values in sections.items()
            if values
        )

    def saved_by_python(self, folder: Path) -> Path:
        return ig.compile(self.algorithm, **self.compile).save(folder)


def _text(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else value


GPT = {"target": "gpt", "n_examples": 5}
KERNEL = ig.Kernel("exp", bandwidth=1.5)
GRID = {"loss": "squared", "lr": 0.05, "steps": 2, "box": 2.0, "weight_decay": 0.1, "grid": 2}
MODELS = {
    "grid": Model(
        "grid",
        {**GRID, "x_bound": 5.0, "y_bound": 6.0},
        ig.GridDescent(
            ig.GradientDescent(ig.Network([2, 1]), lr=0.05, steps=2, box=2.0, weight_decay=0.1),
            grid=2,
            x_bound=5.0,
            y_bound=6.0,
        ),
        {"n_examples": 5},
        {"sizes": [2, 1]},
    ),
    "gradient descent, solved": Model(
        "gradient-descent",
        {"lr": 0.25, "steps": 1},
        ig.GradientDescent(ig.Network([2, 2, 1], "sigmoid"), lr=0.25, steps=1),
        {"target": "relu", "n_examples": 5, "weight_error": 0.05, "until": 1e-6},
        {"sizes": [2, 2, 1], "activation": "sigmoid"},
    ),
    "gradient descent on gpt": Model(
        "gradient-descent",
        {"lr": 0.25, "steps": 2},
        ig.GradientDescent(ig.Network([2, 3, 1], "sigmoid"), lr=0.25, steps=2),
        {**GPT, "epsilon": 1e-6, "z_bound": 6.0},
        {"sizes": [2, 3, 1], "activation": "sigmoid"},
    ),
    "gradient descent on llama": Model(
        "gradient-descent",
        {"lr": 0.25, "steps": 2},
        ig.GradientDescent(ig.Network([2, 3, 1], "sigmoid"), lr=0.25, steps=2),
        {"target": "llama", "n_examples": 5, "double": True},
        {"sizes": [2, 3, 1], "activation": "sigmoid"},
    ),
    "gradient descent on sigma": Model(
        "gradient-descent",
        {"lr": 0.25, "steps": 2},
        ig.GradientDescent(ig.Network([2, 3, 1], "sigmoid"), lr=0.25, steps=2),
        {
            "target": "sigma",
            "variant": "backprop",
            "n_examples": 5,
            "epsilon": 1e-6,
            "z_bound": 6.0,
            "sigma": "softplus",
        },
        {"sizes": [2, 3, 1], "activation": "sigmoid"},
    ),
    "functional": Model(
        "functional",
        {"kernel": "exp", "bandwidth": 1.5, "d": 2, "steps": 3, "step_rule": "constant", "step": 0.02},
        ig.FunctionalGradientDescent(KERNEL, steps=3, d=2, step=0.02),
        {"target": "kernel", "variant": "attention", "n_examples": 5, "epsilon": 0.01, "x_bound": 5.0, "y_bound": 6.0},
        std=True,
    ),
    "functional, chebyshev": Model(
        "functional",
        {
            "bandwidth": 1.5,
            "d": 2,
            "steps": 6,
            "step_rule": "chebyshev",
            "lambda_max": 60.0,
            "condition": 9.0,
        },
        ig.FunctionalGradientDescent(KERNEL, steps=6, d=2, step_rule="chebyshev", lambda_max=60.0, condition=9.0),
        std=True,
    ),
    "functional, with covariate steps": Model(
        "functional",
        {"kernel": "linear", "d": 2, "d_y": 1, "steps": 2, "covariate_step": -0.02},
        ig.FunctionalGradientDescent("linear", steps=2, d=2, covariate_step=-0.02),
    ),
    "functional on gpt": Model(
        "functional",
        {"kernel": "softmax", "d": 2, "steps": 2},
        ig.FunctionalGradientDescent("softmax", steps=2, d=2),
        GPT,
    ),
    "sgd": Model(
        "sgd",
        {"d": 2, "lr": 0.25, "weight_decay": 0.125},
        ig.OnlineSGD(d=2, lr=0.25, weight_decay=0.125),
        {**GPT, "variant": "pre-ln"},
    ),
    "sgd, raw": Model("sgd", {"d": 2, "lr": 0.1}, ig.OnlineSGD(d=2, lr=0.1), {"variant": "raw", "n_examples": 5}),
    "rls": Model(
        "rls", {"d": 2, "ridge": 0.25, "noise": 0.5}, ig.RecursiveLeastSquares(d=2, ridge=0.25, noise=0.5), std=True
    ),
    "rls, sherman-morrison": Model(
        "rls",
        {"d": 2, "form": "sherman-morrison"},
        ig.RecursiveLeastSquares(d=2, form="sherman-morrison"),
        {"n_examples": 5, "x_bound": 5.0},
        std=True,
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    """Every model of the table, compiled by the command line."""
    chosen, folder = MODELS[request.param], tmp_path_factory.mktemp("each") / "model"
    good("compile", *chosen.flags, "--out", folder, "--quiet")
    return chosen, folder


def test_every_algorithm_and_setting_is_in_the_table() -> None:
    """A fifth algorithm, or a new setting, is not forgotten here."""
    assert {model.kind for model in MODELS.values()} == set(ALGORITHMS)
    for name, choice in ALGORITHMS.items():
        if name != "gradient-descent":  # FLAGS has all of these
            assert {key for model in MODELS.values() if model.kind == name for key in model.settings} == {
                *choice.settings
            }
    assert {key for model in MODELS.values() for key in model.compile} == {*COMPILE}


def test_every_algorithm_compiles(each: tuple[Model, Path], tmp_path: Path) -> None:
    """Flags, a TOML file and the Python API give the same model."""
    chosen, folder = each
    (tmp_path / "settings.toml").write_text(chosen.toml)
    good("compile", "--config", tmp_path / "settings.toml", "--out", tmp_path / "toml")
    expected = chosen.saved_by_python(tmp_path / "python")
    assert_same_model(folder, expected)
    assert_same_model(tmp_path / "toml", expected)


def test_every_algorithm_has_a_cost(each: tuple[Model, Path], tmp_path: Path) -> None:
    chosen, folder = each
    (tmp_path / "settings.toml").write_text(chosen.toml)
    printed = [
        good("cost", *given, "--json") for given in (chosen.flags, ("--config", tmp_path / "settings.toml"), (folder,))
    ]
    assert printed[0] == printed[1] == printed[2]
    tf = ig.load(folder)
    assert json.loads(printed[0]) == json.loads(json.dumps({"state": tf.state, **tf.cost().to_json()}))


def test_every_algorithm_verifies(each: tuple[Model, Path], data: Path) -> None:
    _, folder = each
    reports = json.loads(good("verify", folder, "--data", data, "--json", "--prompts", 1))
    X, y, X_query = random_data(2, 1)
    assert reports[str(data)] == ig.load(folder).verify(X, y, X_query).to_json()
    assert all(report["passed"] for report in reports.values())
    printed = good("verify", folder, "--prompts", 1)
    assert printed.count("Laws on") == 1
    assert "FAILS" not in printed


def test_every_algorithm_runs(each: tuple[Model, Path], data: Path, tmp_path: Path) -> None:
    """The numbers, and the files, of the Python API; nothing about what an algorithm does not have."""
    chosen, folder = each
    X, y, X_query = random_data(2, 1)
    tf, run = ig.load(folder), python_run(folder, X, y, X_query)
    shown = json.loads(good("run", folder, "--data", data, "--json", "--out", tmp_path / "out"))
    learns, online = tf.program.n_weights > 0, tf.program.causal
    descends = isinstance(chosen.algorithm, ig.GradientDescent)
    scored = learns and tf.algorithm.predicted(run.weights[-1:], X[None]) is not None
    has = {"predictions": True, "weights": learns, "online": online, "loss": descends, "score": scored}
    assert set(shown) == {key for key, there in has.items() if there}
    assert shown["predictions"] == run.predictions.tolist()
    assert not learns or shown["weights"] == run.weights[-1].tolist()
    assert not online or shown["online"] == run.online.tolist()
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {*shown, "run"} - {"loss", "score"}
    assert read_rows(tmp_path / "out" / "predictions.csv") == (["a", "b", "t"], columns(X_query, run.predictions))
    if learns:
        assert read_rows(tmp_path / "out" / "weights.csv")[1] == run.weights.tolist()
    printed = good("run", folder, "--data", data)
    assert ("loss on 5 examples" in printed) == descends
    assert ("online error" in printed) == online
    assert "3 predictions" in printed


@pytest.mark.parametrize("executor", ["plain", "dense"])
@pytest.mark.parametrize("name", ["sgd", "rls"])
def test_online_predictions(name: str, executor: str, data: Path, tmp_path: Path) -> None:
    """online.csv: what was predicted for each example before its label was seen."""
    good("compile", *MODELS[name].flags, "--out", tmp_path / "model", "--quiet")
    run_it = ("run", tmp_path / "model", "--data", data, "--executor", executor, "--out", tmp_path / "out")
    printed = good(*run_it)
    X, y, X_query = random_data(2, 1)
    online = python_run(tmp_path / "model", X, y, X_query, executor=executor).online
    assert online is not None
    header, rows = read_rows(tmp_path / "out" / "online.csv")
    assert header == ["a", "b", "t", "prediction"]
    assert rows == columns(X, y, online[:, None])
    shorter = MODELS[name].algorithm.reference(
        X[None, :3], y[None, :3], X[None, 3:4], X.new_zeros(1, 2), X.new_ones(1, 3)
    )
    assert shorter is not None
    assert rows[3][3] == pytest.approx(float(shorter[1]), abs=1e-6)
    error = float((online - y[:, 0]).square().mean().sqrt())
    assert f"root mean squared online error: {error:.6g} (5 examples)" in printed


@pytest.mark.parametrize("name", [name for name, chosen in MODELS.items() if chosen.std])
def test_standard_deviations(name: str, data: Path, tmp_path: Path) -> None:
    good("compile", *MODELS[name].flags, "--out", tmp_path / "model", "--quiet")
    run_it = ("run", tmp_path / "model", "--data", data)
    X, y, X_query = random_data(2, 1)
    run = python_run(tmp_path / "model", X, y, X_query, return_std=True)
    assert run.std is not None
    assert float(run.std.min()) > 0
    shown = json.loads(good(*run_it, "--std", "--json", "--out", tmp_path / "out"))
    assert shown["std"] == run.std.tolist()
    assert shown["predictions"] == run.predictions.tolist()
    header, rows = read_rows(tmp_path / "out" / "predictions.csv")
    assert (header, rows) == (["a", "b", "t", "std"], columns(X_query, run.predictions, run.std[:, None]))
    lines = [line.split() for line in good(*run_it, "--std").splitlines()]
    assert ["query", "t", "std"] in lines
    for number, (value, spread) in enumerate(zip(run.predictions[:, 0].tolist(), run.std.tolist(), strict=True), 1):
        assert [str(number), f"{value:.5g}", f"{spread:.5g}"] in lines
    assert "std" not in json.loads(good(*run_it, "--json"))
    assert "std" not in good(*run_it)


def test_no_queries_have_no_standard_deviations(tmp_path: Path) -> None:
    good("compile", *MODELS["rls"].flags, "--out", tmp_path / "model", "--quiet")
    X, y, _ = random_data(2, 1)
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y))
    shown = json.loads(good("run", tmp_path / "model", "--data", table, "--std", "--json", "--out", tmp_path / "out"))
    assert (shown["predictions"], shown["std"], len(shown["online"])) == ([], [], 5)
    assert (tmp_path / "out" / "predictions.csv").read_text().split() == ["a,b,t,std"]


def test_algorithms_without_standard_deviations(each: tuple[Model, Path], data: Path, tmp_path: Path) -> None:
    chosen, folder = each
    if chosen.std:
        pytest.skip("it has standard deviations")
    result = call("run", folder, "--data", data, "--std", "--out", tmp_path / "out")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("innergrad: ")
    assert "has no predictive standard deviation" in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_flag_chooses_the_algorithm_of_a_file(tmp_path: Path) -> None:
    """--algorithm overrides kind; what is left in the file must then be settings of that algorithm."""
    (tmp_path / "settings.toml").write_text('[algorithm]\nkind = "sgd"\nd = 2\n[compile]\nn_examples = 5\n')
    given = ("--config", tmp_path / "settings.toml", "--algorithm", "rls", "--ridge", "0.25", "--noise", "0.5")
    good("compile", *given, "--out", tmp_path / "model")
    assert_same_model(tmp_path / "model", MODELS["rls"].saved_by_python(tmp_path / "python"))


def test_gradient_descent_by_name_is_the_default(tmp_path: Path) -> None:
    good("compile", *SMALL, "--algorithm", "gradient-descent", "--target", "relu", "--out", tmp_path / "named")
    good("compile", *SMALL, "--out", tmp_path / "default")
    assert_same_model(tmp_path / "named", tmp_path / "default")


def test_a_kernel_without_guarantees_is_a_warning(tmp_path: Path) -> None:
    """One line on stderr, also with --json; none with --quiet."""
    settings = ("--algorithm", "functional", "--kernel", "relu", "--d", "2", "--steps", "2")
    for command in (("compile", "--out", tmp_path / "model"), ("cost",)):
        for option in ((), ("--json",)):
            result = call(*command, *settings, *option)
            assert result.code == 0
            assert result.out
            assert result.err.startswith("innergrad: warning: the kernel is not positive semi-definite")
            assert result.err.count("\n") == 1
        assert call(*command, *settings, "--quiet") == Result(0, "", "")
    good("verify", tmp_path / "model")


def test_the_help_names_every_variant_of_every_target() -> None:
    """It is written by hand, for it is shown without torch, which targets need."""
    _, text = MODEL["Settings of every algorithm"]["variant"]
    parts = dict(part.split(": ", 1) for part in re.split(r"; (?=\w+: )", text)[1:])
    assert set(parts) == set(TARGETS)
    for name, target in TARGETS.items():
        assert re.split(r"\W* ", parts[name])[0].rstrip(",") == target.variants[0], "the default comes first"
        assert set(target.variants) <= set(re.findall(r"[\w-]+", parts[name]))


def test_every_setting_is_a_flag_of_compile_and_cost() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command in ("compile", "cost"):
        flags = {option for parameter in commands[command].params for option in parameter.opts}
        printed = good(command, "--help")
        for choice in ALGORITHMS.values():
            for name in ("algorithm", *choice.names):
                assert f"--{name.replace('_', '-')}" in flags
                assert f"--{name.replace('_', '-')} " in printed
        assert all(name in printed for name in ALGORITHMS)


# --------------------------------------------------------------------------------------------------------------- cost


def test_cost_of_flags_and_of_a_folder_are_the_same(model: Path, tmp_path: Path) -> None:
    assert good("cost", *SMALL) == good("cost", model)
    from_flags, from_folder = json.loads(good("cost", *SMALL, "--json")), json.loads(good("cost", model, "--json"))
    assert from_flags == from_folder == {"state": "proven", **ig.load(model).cost().to_json()}
    (tmp_path / "settings.toml").write_text(TOML)
    assert good("cost", "--config", tmp_path / "settings.toml", "--json") == good("cost", *FLAGS, "--json")


def test_cost_prints_the_numbers_of_the_python_api(model: Path) -> None:
    tf, printed = ig.load(model), good("cost", model)
    totals = tf.cost().totals()
    assert totals["layers"] == tf.n_layers
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    for name, value in totals.items():
        (row,) = (row for row in cells if row[0] == name)
        shown = float(row[1].replace(",", ""))
        assert shown == value if "," in row[1] else shown == pytest.approx(value, rel=1e-3)
    layers = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if "│" not in line]
    for layer in tf.cost().rows:
        (row,) = (row for row in layers if row[:3] == [layer.name, layer.kind, str(layer.times or "out")])
        assert f"{layer.nonzeros:,}" in row


def row(name: str, norm: float = 1.0, kind: str = "mlp", times: int = 1, nonzeros: int = 7) -> LayerCost:
    return LayerCost(name, kind, 2, 0, nonzeros, 10, 20, norm, 30, 40, times, {})


def shown(rows: Sequence[LayerCost]) -> list[str]:
    return [item if isinstance(item, str) else item.name for item in condensed(rows)]


def test_layers_that_repeat_are_shown_once() -> None:
    steps = [row(f"{name} {i}", kind=kind) for i in range(40) for name, kind in (("read", "attention"), ("add", "mlp"))]
    out = row("predict", times=0)
    assert shown([*steps, out]) == ["read 0", "add 0", "... the 2 layers above, 39 more times", "predict"]
    assert shown(steps[:60:2]) == ["read 0", "... the layer above, 29 more times"]
    assert shown(steps[:4]) == ["read 0", "add 0", "read 1", "add 1"], "too few to be left out"
    first = replace(steps[0], heads=3)
    assert shown([first, *steps[1:]]) == ["read 0", "add 0", "read 1", "add 1", "... the 2 layers above, 38 more times"]
    assert shown([out, *steps, out, *steps])[1:4] == ["read 0", "add 0", "... the 2 layers above, 39 more times"]


@pytest.mark.parametrize("change", [{"kind": "product"}, {"heads": 3}, {"d_head": 1}, {"nonzeros": 8}, {"times": 2}])
def test_layers_that_differ_do_not_repeat(change: dict[str, object]) -> None:
    rows = [row(f"step {i}") for i in range(10)]
    rows[5] = replace(rows[5], **change)
    assert shown(rows) == [
        "step 0",
        "... the layer above, 4 more times",
        "step 5",
        *(f"step {i}" for i in range(6, 10)),
    ]
    rows[5] = replace(row("other 5"), norm=1.0)
    assert shown(rows)[2] == "other 5"


def test_norms_that_differ_are_told() -> None:
    norms = [1.0, 38.0, 1.04, 5.0, 2.0, 3.0]
    assert shown([row(f"step {i}", norm) for i, norm in enumerate(norms)]) == [
        "step 0",
        "... 4 more, norm 1.04 to 38",
        "step 5",
    ]
    assert shown([row("step", 1.0 + i * 1e-11) for i in range(9)]) == ["step", "... the layer above, 8 more times"]
    assert shown([row("step", 1.0 + i * 1e-7) for i in range(9)])[1] == "... 7 more, norm 1.0000001 to 1.0000007"
    assert shown([row("step", norm) for norm in (1.0, 2.0, 2.0, 2.0, 3.0)])[1] == "... 3 more, norm 2"
    pairs = [part for i in range(10) for part in (row(f"read {i}", 1.0 + i), row("add"))]
    assert shown(pairs) == ["read 0", "add", "... the 2 layers above, 9 more times; norm of read 1 to 10"]


def test_every_layer_is_shown_or_counted() -> None:
    """On random tables of few letters: what is shown, and what the lines say is left out, is all of it, in order."""
    generator = torch.Generator().manual_seed(0)
    for length in range(1, 60):
        letters = torch.randint(2, (length,), generator=generator).tolist()
        rows = [row(f"{'ab'[letter]} {i}", norm=float(i % 3)) for i, letter in enumerate(letters)]
        position = 0
        for item in condensed(rows):
            if isinstance(item, LayerCost):
                assert item is rows[position]
                position += 1
            elif found := re.match(r"\.\.\. the (?:(\d+) layers|layer) above, (\d+) more times", item):
                position += int(found[1] or 1) * int(found[2])
            else:
                found = re.match(r"\.\.\. (\d+) more, norm", item)
                assert found
                position += int(found[1])
        assert position == length


def test_the_cost_of_many_layers_is_short() -> None:
    """40 examples of recursive least squares, 128 Chebyshev steps: a page to read, and everything in the JSON."""
    rls = ("--algorithm", "rls", "--d", "2", "--n-examples", "40")
    chebyshev = ("--algorithm", "functional", "--d", "2", "--steps", "128", "--step-rule", "chebyshev")
    for settings, algorithm, n, line in (
        (rls, ig.RecursiveLeastSquares(d=2), 40, r"\.\.\. the \d layers above, 39 more times"),
        (
            chebyshev,
            ig.FunctionalGradientDescent(steps=128, step_rule="chebyshev", d=2),
            16,
            r"\.\.\. 126 more, norm 1\.\d+ to \d+",
        ),
    ):
        cost: Cost = ig.compile(algorithm, n_examples=n).cost()
        assert len(cost.rows) >= 128
        for text in (good("cost", *settings), str(cost)):
            (found,) = (text_line for text_line in text.splitlines() if re.search(line, text_line))
            assert found.startswith("  ")
            assert len(text.splitlines()) < 40
        layers = json.loads(good("cost", *settings, "--json"))["layers"]
        assert [layer["name"] for layer in layers] == [one.name for one in cost.rows]
    table = good("cost", *chebyshev)
    assert "step 1 " in table
    assert "step 128 " in table


def test_cost_writes_its_table(model: Path, tmp_path: Path) -> None:
    printed = good("cost", model, "--json", "--out", tmp_path / "new" / "cost.json")
    assert written(tmp_path / "new" / "cost.json", "cost") == json.loads(printed)


def written(path: Path, command: str) -> dict[str, object]:
    """What a command wrote, without its mark."""
    content = json.loads(path.read_text())
    assert content.pop("made_by") == f"innergrad {command}"
    return content


# ---------------------------------------------------------------------------------------------------------------- run


def python_run(model: Path, X: Tensor, y: Tensor, X_query: Tensor, **options: object) -> ig.Run:
    return ig.load(model).run(X, y, X_query, **options)


def assert_printed(printed: str, run: ig.Run) -> None:
    """Exactly the numbers of the Python API."""
    shown = json.loads(printed)
    assert shown["predictions"] == run.predictions.tolist()
    assert shown["weights"] == run.weights[-1].tolist()


@pytest.mark.parametrize("executor", ["plain", "dense"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_run_is_the_python_api(model: Path, data: Path, executor: str, dtype: str) -> None:
    X, y, X_query = random_data(2, 1)
    printed = good("run", model, "--data", data, "--executor", executor, "--dtype", dtype, "--json")
    run = python_run(model, X, y, X_query, executor=executor, dtype=getattr(torch, dtype))
    assert_printed(printed, run)
    algorithm = ig.load(model).algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    risk = algorithm.risk(run.weights.double(), X.expand(3, -1, -1), y)
    assert json.loads(printed)["loss"] == risk.tolist()


def test_executors_and_dtypes_differ_in_rounding_only(model: Path, data: Path) -> None:
    """So the test above can tell whether the option arrived."""
    printed = {
        (executor, dtype): json.loads(
            good("run", model, "--data", data, "--json", "--executor", executor, "--dtype", dtype)
        )
        for executor in ("plain", "dense")
        for dtype in ("float64", "float32")
    }
    first = torch.tensor(printed["plain", "float64"]["weights"])
    assert len({str(value["weights"]) for value in printed.values()}) == 4
    assert all(torch.allclose(first, torch.tensor(value["weights"]), atol=1e-5) for value in printed.values())


def test_queries_in_a_file_of_their_own(model: Path, tmp_path: Path) -> None:
    """Columns are found by name, in any order, and others are ignored; queries in the data file then do not count."""
    X, y, X_query = random_data(2, 1)
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y), [[9.0, 9.0, ""]])
    rows = [[b, "text", a] for a, b in X_query.tolist()]
    queries = write_rows(tmp_path / "query.csv", ["b", "comment", "a"], rows)
    printed = good("run", model, "--data", table, "--query", queries, "--json")
    assert_printed(printed, python_run(model, X, y, X_query))


def test_targets_by_name_and_several_outputs(wide: Path, tmp_path: Path) -> None:
    """--target names the columns of y, in the order of the outputs; the inputs keep the order of the file."""
    X, y, X_query = random_data(2, 2)
    header = ["t2", "a", "t1", "b"]
    examples = columns(y[:, 1:], X[:, :1], y[:, :1], X[:, 1:])
    queries = [["", a, "", b] for a, b in X_query.tolist()]
    table = write_rows(tmp_path / "data.csv", header, examples, queries)
    printed = good("run", wide, "--data", table, "--target", "t1, t2", "--json", "--out", tmp_path / "out")
    run = python_run(wide, X, y, X_query)
    assert_printed(printed, run)
    assert read_rows(tmp_path / "out" / "predictions.csv") == (
        ["a", "b", "t1", "t2"],
        columns(X_query, run.predictions),
    )


def test_the_last_columns_are_the_targets(wide: Path, tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 2)
    queries = [[*row, "", " "] for row in X_query.tolist()]
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t1", "t2"], queries, columns(X, y))
    assert_printed(good("run", wide, "--data", table, "--json"), python_run(wide, X, y, X_query))


def test_run_writes_predictions_and_weights(model: Path, data: Path, tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 1)
    good("run", model, "--data", data, "--out", tmp_path / "new" / "out")
    run = python_run(model, X, y, X_query)
    assert read_rows(tmp_path / "new" / "out" / "predictions.csv") == (
        ["a", "b", "t"],
        columns(X_query, run.predictions),
    )
    header, rows = read_rows(tmp_path / "new" / "out" / "weights.csv")
    first = [f"V1[{row},{column}]" for row in range(3) for column in range(2)]
    assert header == [*first, "b1[0]", "b1[1]", "b1[2]", "V2[0,0]", "V2[0,1]", "V2[0,2]", "b2[0]"]
    assert rows == run.weights.tolist()


def test_run_without_queries_learns(model: Path, tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 1)
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y))
    printed = good("run", model, "--data", table, "--json")
    assert_printed(printed, python_run(model, X, y, X_query[:0]))
    assert json.loads(printed)["predictions"] == []


def test_run_prints_a_table(model: Path, data: Path, tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 1)
    printed, run = good("run", model, "--data", data), python_run(model, X, y, X_query)
    for number, prediction in enumerate(run.predictions.tolist(), start=1):
        assert [str(number), *(f"{value:.5g}" for value in prediction)] in [
            line.split() for line in printed.splitlines()
        ]
    many = write_rows(tmp_path / "many.csv", ["a", "b"], [[float(i), 0.0] for i in range(25)])
    assert "and 5 more" in good("run", model, "--data", data, "--query", many)


def test_the_seed_chooses_the_initial_weights(model: Path, data: Path, tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 1)
    starts = {}
    for seed in (0, 1):
        printed = good("run", model, "--data", data, "--seed", seed, "--json", "--out", tmp_path)
        assert_printed(printed, python_run(model, X, y, X_query, seed=seed))
        starts[seed] = read_rows(tmp_path / "weights.csv")[1][0]
        assert starts[seed] == ig.Network([2, 3, 1]).init(seed).tolist()
    assert starts[0] != starts[1]
    assert good("run", model, "--data", data, "--json") == good("run", model, "--data", data, "--json", "--seed", "0")


@pytest.mark.parametrize("text", ["\ufeffa,b,t\n", "a , b , t\n\n", "a,b,t\r\n"], ids=["bom", "spaces", "crlf"])
def test_csv_as_other_programs_write_it(model: Path, tmp_path: Path, text: str) -> None:
    """Excel's byte-order mark, spaces around names, blank lines, Windows line ends."""
    (tmp_path / "data.csv").write_text(text + "1,2,3\n0.5,-1, 0.25 \n", encoding="utf-8", newline="")
    (tmp_path / "query.csv").write_text("a,b\n1,1\n")
    printed = good("run", model, "--data", tmp_path / "data.csv", "--query", tmp_path / "query.csv", "--json")
    X = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    y = torch.tensor([[3.0], [0.25]], dtype=torch.float64)
    assert_printed(printed, python_run(model, X, y, torch.ones(1, 2, dtype=torch.float64)))


# ------------------------------------------------------------------------------------------------------ classification


def test_logistic_classification(tmp_path: Path) -> None:
    X, _, X_query = random_data(2, 1, n=6)
    labels = (X[:, :1] > 0).double()
    table = write_rows(
        tmp_path / "data.csv",
        ["a", "b", "label"],
        [[*x, int(label)] for x, (label,) in zip(X.tolist(), labels.tolist(), strict=True)],
        [[*row, ""] for row in X_query.tolist()],
    )
    folder = tmp_path / "model"
    good("compile", *SMALL, "--loss", "logistic", "--lr", "1", "--out", folder)
    printed = good("run", folder, "--data", table, "--json")
    assert_printed(printed, python_run(folder, X, labels, X_query))
    reference = ig.reference(ig.load(folder).algorithm, X, labels, X_query)
    assert torch.allclose(torch.tensor(json.loads(printed)["predictions"]).double(), reference.predictions, atol=0.05)
    losses = json.loads(printed)["loss"]
    assert losses[-1] < losses[0]
    assert call("verify", folder, "--data", table).code == 0


def test_softmax_classification(tmp_path: Path) -> None:
    X, y, X_query = random_data(2, 3, n=6)
    labels = torch.nn.functional.one_hot(y.argmax(-1), 3).double()
    header = ["a", "b", "red", "green", "blue"]
    rows = [[*x, *(int(entry) for entry in row)] for x, row in zip(X.tolist(), labels.tolist(), strict=True)]
    table = write_rows(tmp_path / "data.csv", header, rows, [[*row, "", "", ""] for row in X_query.tolist()])
    folder = tmp_path / "model"
    good("compile", *SMALL, "--sizes", "2,3,3", "--loss", "softmax", "--lr", "1", "--out", folder)
    printed = good("run", folder, "--data", table, "--json")
    assert_printed(printed, python_run(folder, X, labels, X_query))
    reference = ig.reference(ig.load(folder).algorithm, X, labels, X_query)
    assert torch.allclose(torch.tensor(json.loads(printed)["predictions"]).double(), reference.predictions, atol=0.05)
    losses = json.loads(printed)["loss"]
    assert losses[-1] < losses[0]
    assert call("verify", folder, "--data", table).code == 0


# ------------------------------------------------------------------------------------------------------------- verify

LAWS = ["weights", "probe", "proof", "approximation", "gradient", "oracle", "examples", "shared", "scratch", "inputs"]
LAWS += ["box"]


def test_verify_a_good_model(model: Path, data: Path, tmp_path: Path) -> None:
    assert "FAILS" not in good("verify", model)
    result = json.loads(good("verify", model, "--data", data, "--json", "--out", tmp_path / "new" / "report.json"))
    assert written(tmp_path / "new" / "report.json", "verify") == result
    assert list(result) == ["random prompts", str(data)]
    for report in result.values():
        assert report["passed"] is True
        assert [law["name"] for law in report["laws"]][: len(LAWS)] == LAWS
        assert all(law["holds"] and law["value"] <= law["limit"] for law in report["laws"])
    X, y, X_query = random_data(2, 1)
    assert result[str(data)] == ig.load(model).verify(X, y, X_query).to_json()


def test_verify_says_what_is_proven(model: Path, tmp_path: Path) -> None:
    """On target gpt the law is called ``fit``, and nothing is a certificate; the table and the summary say so."""

    def laws(printed: str) -> list[str]:
        return [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")]

    printed = good("verify", model)
    assert laws(printed) == LAWS
    assert "no certificate" not in printed
    good("compile", *MODELS["sgd"].flags, "--out", tmp_path / "sgd", "--quiet")
    printed = good("verify", tmp_path / "sgd")
    assert laws(printed) == ["fit" if law == "proof" else law for law in LAWS]
    assert "Laws on random prompts (measured, not proven: no certificate)" in printed
    assert squeezed("no certificate, for functions are measured") in squeezed(printed)


def test_verify_takes_the_seed_and_the_number_of_prompts(model: Path) -> None:
    def distance(*options: object) -> list[float]:
        found: list[float] = json.loads(good("verify", model, "--json", *options))["random prompts"]["distance"]
        return found

    tf = ig.load(model)
    assert distance("--seed", 3) == tf.verify(seed=3).distance != tf.verify(seed=0).distance
    assert distance("--prompts", 1) == tf.verify(prompts=1).distance != tf.verify(prompts=4).distance


CHANGES = [
    ("body.0.0.W_V", "forward 1"),
    ("body.0.2.W_Q", "derivatives"),
    ("body.0.3.W_1", "loss derivative"),
    ("body.0.4.W_K", "backward 2"),
    ("body.0.5.W_O", "backward 1"),
    ("body.0.6.W_V", "update"),
    ("body.0.7.W_2", "project and clear"),
    ("readout.0.W_Q", "read-out: forward 1"),
    ("readout.2.W_V", "read-out: copy"),
]


@pytest.mark.parametrize(("key", "layer"), CHANGES)
def test_verify_notices_one_changed_weight(model: Path, data: Path, tmp_path: Path, key: str, layer: str) -> None:
    """One weight of one layer of each kind: attention, mlp, product, read-out. The layer is named."""
    folder = shutil.copytree(model, tmp_path / "changed")
    change_weight(folder, key, 1e-6)
    result = call("verify", folder, "--data", data, "--json")
    assert (result.code, result.err) == (1, "")
    for report in json.loads(result.out).values():
        assert report["passed"] is False
        assert any(f"layer {layer}," in law["where"] for law in report["laws"] if not law["holds"])


@pytest.mark.parametrize(("key", "layer"), CHANGES[::3])
def test_verify_says_so_in_words(model: Path, tmp_path: Path, key: str, layer: str) -> None:
    folder = shutil.copytree(model, tmp_path / "changed")
    change_weight(folder, key, -0.5)
    text = call("verify", folder, "--prompts", 1)
    assert text.code == 1
    assert any("FAILS" in line and f"layer {layer}," in line for line in text.out.splitlines())


def change_weight(folder: Path, key: str, value: float) -> None:
    """Add to one entry of a weight tensor."""
    weights = {name: tensor.clone() for name, tensor in load_file(folder / "weights.safetensors").items()}
    weights[f"{key}.value"][0] += value
    save_file(weights, folder / "weights.safetensors")
    seal(folder)


@pytest.mark.parametrize(
    "bound",
    [("--x-bound", "1"), ("--y-bound", "1"), ("--box", "0.5"), ("--activation", "sin", "--x-bound", "1")],
    ids=["x-bound", "y-bound", "box", "sin"],
)
def test_verify_respects_the_declared_domain(tmp_path: Path, bound: tuple[str, ...]) -> None:
    """Random prompts and initial weights are drawn inside the domain the model was compiled for."""
    good("compile", *SMALL, *bound, "--out", tmp_path / "model")
    good("verify", tmp_path / "model")


def test_verify_explains(model: Path, data: Path, tmp_path: Path) -> None:
    """Errors, shares and health are printed; --json has what the library gives; --figure is drawn."""
    printed = good("verify", model, "--explain", "--figure", tmp_path / "new" / "figure.png")
    for text in ("share of the bound by function", "largest error of a layer's output", "Health", "range use"):
        assert text in printed
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads(good("verify", model, "--data", data, "--explain", "--json", "--out", tmp_path / "report.json"))
    tf = ig.load(model)
    table = read_examples(data, None, known(model))
    tf.verify(prompts=1)  # as the command does
    assert result["explain"] == explain(tf, table.X, table.y, table.X_query).to_json()
    assert written(tmp_path / "report.json", "verify") == result
    assert "attack" not in result
    assert good("verify", model, "--explain", "--quiet") == ""


def test_verify_explains_weights_that_are_wrong(model: Path, tmp_path: Path) -> None:
    """A red row does not change the exit code; the law that fails does."""
    folder = shutil.copytree(model, tmp_path / "changed")
    change_weight(folder, "body.0.0.W_V", 0.5)
    result = call("verify", folder, "--explain", "--json")
    assert (result.code, result.err) == (1, "")
    rows = {row["name"]: row for row in json.loads(result.out)["explain"]["health"]}
    assert not rows["rounding share"]["green"]
    good("compile", *SMALL, "--box", "1", "--out", tmp_path / "tight")
    health = json.loads(good("verify", tmp_path / "tight", "--explain", "--json"))["explain"]["health"]
    assert not {row["name"]: row for row in health}["range use"]["green"]


def test_verify_attacks(model: Path) -> None:
    result = json.loads(good("verify", model, "--attack", "--seed", 1, "--json"))
    assert result["attack"] == attack(ig.load(model), seed=1).to_json()
    assert result["attack"]["ratio"] >= 3.0
    assert result["attack"]["violations"] == []
    assert "times the median error of random prompts" in good("verify", model, "--attack")


def test_an_error_above_its_certificate_is_a_failure(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(attack(ig.load(model), starts=2, iterations=1), violations=("too large",))
    monkeypatch.setattr("innergrad.evidence.attack.attack", lambda tf, seed: found)
    result = call("verify", model, "--attack")
    assert result.code == 1
    assert "VIOLATION: too large" in result.out


def test_verify_refuses_a_figure_of_nothing(model: Path, tmp_path: Path) -> None:
    assert call("verify", model, "--figure", tmp_path / "figure.png").code == 2
    assert call("verify", model, "--explain", "--figure", tmp_path / "figure.pdf").code == 2


# ----------------------------------------------------------------------------------------------------- every command


def test_quiet_prints_nothing(model: Path, data: Path, tmp_path: Path) -> None:
    for flag in ("--quiet", "-q"):
        assert good("compile", *SMALL, "--out", tmp_path / "model", flag) == ""
        assert good("cost", model, flag) == ""
        assert good("run", model, "--data", data, "--out", tmp_path / "out", flag) == ""
        assert good("verify", model, flag, "--out", tmp_path / "report.json") == ""
    assert (tmp_path / "out" / "predictions.csv").exists()
    assert json.loads((tmp_path / "report.json").read_text())["random prompts"]["passed"]
    change_weight(tmp_path / "model", "body.0.0.W_V", 0.5)
    assert call("verify", tmp_path / "model", "--quiet") == Result(1, "", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_what_every_command_has(command: str) -> None:
    printed = good(command, "--help")
    assert f"innergrad {command}" in printed
    for option in ("--json", "--quiet", "--out", "--seed"):
        assert option in printed, option


def test_help_lists_the_commands() -> None:
    printed = good("--help")
    assert all(command in printed for command in COMMANDS)


def test_help_does_not_load_torch() -> None:
    code = f"""
import sys
from innergrad.cli import main
for command in {COMMANDS!r}:
    sys.argv = ["innergrad", command, "--help"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, command
    else:
        raise AssertionError(command)
    assert "torch" not in sys.modules, command
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


# Rich reads square brackets as markup; names of files and columns are not markup.


def test_brackets_in_file_names(tmp_path: Path, data: Path) -> None:
    folder, table = tmp_path / "[" / "x] [red]", tmp_path / "[" / "y] [red].csv"
    table.parent.mkdir()
    shutil.copy(data, table)
    assert squeezed(folder) in squeezed(good("compile", *SMALL, "--out", folder))
    assert squeezed(table) in squeezed(good("verify", folder, "--data", table))


def test_brackets_in_column_names(model: Path, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x[0],[red],[/t]\n1,2,3\n1,1,\n")
    printed = good("run", model, "--data", tmp_path / "data.csv")
    assert "[/t]" in printed


# -------------------------------------------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def installed() -> None:
    assert EXECUTABLE.exists(), "the package is not installed: make setup"


@pytest.mark.usefixtures("installed")
def test_the_installed_command(model: Path, tmp_path: Path, data: Path) -> None:
    """run; then verify with a changed weight (exit code 1) and a file that is not there (exit code 2)."""
    folder = shutil.copytree(model, tmp_path / "model")
    done = shell("run", folder, "--data", data, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert_printed(done.stdout, python_run(folder, *random_data(2, 1)))
    change_weight(folder, "body.0.4.W_Q", 0.5)
    done = shell("verify", folder, "--prompts", 1)
    assert (done.returncode, done.stderr) == (1, "")
    assert "backward 2" in done.stdout
    done = shell("run", folder, "--data", tmp_path / "nothing.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("innergrad: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("installed")
def test_a_terminal_that_knows_only_ascii(model: Path) -> None:
    done = shell("cost", model, PYTHONIOENCODING="ascii", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "parameters (nonzero)" in done.stdout


@pytest.mark.slow
def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fewer examples and queries. It ends in one sentence; the tables are for who asks."""
    monkeypatch.setattr("innergrad.cli.demo.N_EXAMPLES", 16)
    monkeypatch.setattr("innergrad.cli.demo.N_QUERY", 8)
    check_demo("llama", tmp_path, good("demo", "--out", tmp_path / "demo", "--json"))
    told = good("demo", "--out", tmp_path / "demo", "--verbose").splitlines()
    assert told[-2] == json.loads((tmp_path / "demo" / "demo.json").read_text())["sentence"]
    assert told[-1].startswith("wrote")
    assert any("Laws on" in line for line in told)
    assert any(line.startswith("transformers.LlamaModel") for line in told) == bool(find_spec("transformers"))


def test_the_sentence_of_the_demo_has_its_numbers() -> None:
    targets, guesses = [0.0, 1.0, 2.0, 3.0], [0.5, 1.0, 2.0, 2.5]
    result = {"target": "llama", "blocks": 7, "targets": targets, "predictions_in_context": guesses}
    result["predictions_gd"] = [0.5, 1.0, 2.0, 2.5 + 2**-40]
    result["explained"] = explained(result, [1.5] * 4)
    assert result["explained"] == pytest.approx({"in_context": 0.9, "gradient_descent": 0.9, "ridge": 0.0})
    said = sentence(result)
    assert "Llama of 7 blocks" in said
    assert "for 4 new patients" in said
    assert "explain 90% of the differences (ridge regression: 0%)" in said
    assert said.endswith("to 9e-13 (in float64).")
    assert "Llama" not in sentence({**result, "target": "relu"})


def test_ridge_regression_is_scikit_learns() -> None:
    """On a linear function it is nearly the truth; on noise, nearly the mean."""
    generator = torch.Generator().manual_seed(0)
    X, noise = (torch.randn(40, d, generator=generator, dtype=torch.float64) for d in (3, 1))
    y = X @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    assert ridge(X[:30], y[:30], X[30:]) == pytest.approx(y[30:, 0].tolist(), abs=0.05)
    assert max(map(abs, ridge(X[:30], noise[:30], X[30:]))) < 1.0


@pytest.mark.soak
def test_the_film_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GIF of one forward pass, marked as the demo's; fewer steps, and dots, than by default."""
    monkeypatch.setattr(animation, "STEPS", 30)
    monkeypatch.setattr(animation, "DOTS", 30)
    made = animation.film(0)
    assert made.own == pytest.approx(made.losses, rel=1e-9)
    assert made.own[-1] < 0.2 * made.own[0]
    assert [frame.layer for frame in made.frames] == sorted({frame.layer for frame in made.frames})
    assert (made.frames[-1].step, made.frames[-1].layer) == (30, made.tf.n_layers)
    exact = ig.reference(made.tf.algorithm, made.X, made.y, seed=0).weights
    for frame in made.frames:  # the stream holds the weights of its step, but for those that are just being written
        nearest = (frame.weights - exact).norm(dim=-1).min()
        assert float(nearest) < 1e-9
    names = {frame.name for frame in made.frames} - {"", "prepare"}
    assert len(names) == animation.LAYERS == len(animation.step_layers(made))
    path = tmp_path / "demo.gif"
    animation.draw_film(made, path, "innergrad demo")
    assert made_by(path) == "demo"
    from PIL import Image

    with Image.open(path) as gif:
        assert gif.n_frames == len(made.frames)
        assert gif.info["comment"] == b"innergrad demo"


@pytest.mark.soak
def test_the_film_at_full_size_is_small(tmp_path: Path) -> None:
    animation.draw_film(animation.film(0), tmp_path / "demo.gif")
    assert (tmp_path / "demo.gif").stat().st_size < 3e6


@pytest.mark.soak
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("target", ["llama", "relu"])
def test_demo_at_full_size(target: str, tmp_path: Path) -> None:
    """As ``make demo`` runs it, in a process of its own."""
    flags = () if target == "llama" else ("--target", target)
    done = shell("demo", "--out", tmp_path / "demo", "--json", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    check_demo(target, tmp_path, done.stdout)
    first, second, *others = shell("demo", "--out", tmp_path / "demo", *flags).stdout.splitlines()
    assert first == json.loads((tmp_path / "demo" / "demo.json").read_text())["sentence"]
    assert (second[:5], others) == ("wrote", [])


def check_demo(target: str, tmp_path: Path, printed: str) -> None:
    assert sorted(file.name for file in (tmp_path / "demo").iterdir()) == ["demo.json", "demo.png", "model"]
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG\r\n")
    result = written(tmp_path / "demo" / "demo.json", "demo")
    assert json.loads(printed) == result
    assert result["laws"]["passed"] is True
    gd, in_context = torch.tensor(result["loss_gd"]), torch.tensor(result["loss_in_context"])
    assert torch.allclose(gd, in_context, atol=10 * result["epsilon"])
    assert gd[-1] < 0.8 * gd[0]
    predictions = torch.tensor([result["predictions_gd"], result["predictions_in_context"]])
    assert float((predictions[0] - predictions[1]).abs().max()) < (1e-13 if target == "llama" else 0.05)
    if target == "llama" and find_spec("transformers"):
        stock = torch.tensor(result["predictions_stock"])
        assert float((stock - predictions[0]).abs().max()) < 1e-5
    tf = ig.load(tmp_path / "demo" / "model")
    assert (tf.n_layers, len(gd)) == (result["layers"], tf.program.steps + 1)


# ------------------------------------------------------------------------------------------------------------ theorems


def test_theorems_are_the_calculators(tmp_path: Path) -> None:
    """--json, and the file of --out, have the numbers of innergrad.papers.resources; --quiet prints nothing."""
    for flags, results in (
        (
            ("neural-networks-2", "--eps", "0.1,0.01", "--depth", 3, "--width", 16),
            [trade_off(e, depth=3, width=16) for e in (0.1, 0.01)],
        ),
        (("neural-networks-2", "--heads", "1e6", "--c", 2), [trade_off(1e-2, heads=1e6, c=2.0)]),
        (("neural-networks-3",), [indicator([1e-2, 1e-4, 1e-8])]),
        (
            (
                "neural-networks-3",
                "--eps",
                "1e-7",
                "--d",
                22,
                *("--c1", 2, "--c2", 3, "--c3", 4, "--c4", 0.5, "--c-sigma", 6),
            ),
            [indicator([1e-7], 22, BallConstants(2.0, 3.0, 4.0, 0.5, 6.0))],
        ),
        (
            ("neural-networks-4", "--eps", "1e-8", "--d", 1, "--s", 8, "--depth", 3, "--c-lemma3", 2, "--c-lemma4", 3),
            [smooth([1e-8], 1, 8, 3, SmoothConstants(2.0, 3.0))],
        ),
    ):
        printed = json.loads(good("cost", "--theorem", *flags, "--json", "--out", tmp_path / "new" / "cost.json"))
        assert printed == {"theorem": flags[0], "results": json.loads(json.dumps(to_json(results)))}
        assert written(tmp_path / "new" / "cost.json", "cost") == printed
        assert good("cost", "--theorem", *flags, "--quiet") == ""
        assert good("cost", "--theorem", *flags)


def test_theorems_print_their_tables() -> None:
    balls = good("cost", "--theorem", "neural-networks-3", "--eps", "1e-4,1e-8")
    assert "eps = 0.0001, d = 10, coupled" in balls
    for number in ("> 22,026", "≤ 8.0e6", "> 2.7e43", "≤ 8.0e12", "crossover 5.2e-6", "O(eps^-2)", "O(eps^-3)"):
        assert number in balls
    assert balls.index("A has the smaller number, which decides nothing") < balls.index("Smaller: B.")
    smooth_functions = good("cost", "--theorem", "neural-networks-4", "--d", 1, "--s", 8, "--depth", 3, "--eps", "1e-8")
    assert "crossover 0.0618, 2.7e-12" in smooth_functions
    assert "2(L-1)d = 4 < s = 8" in smooth_functions
    assert "no crossover" in good(
        "cost", "--theorem", "neural-networks-4", "--d", 1, "--s", 3, "--depth", 3, "--c-lemma3", 10
    )
    assert "no bound" in good("cost", "--theorem", "neural-networks-3", "--d", 22, "--eps", "1e-2")
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in _trade_off_table().splitlines() if "│" in line
    ]
    assert ["3", "16", "768", "6", "8", "7", "5"] in [row[:7] for row in cells]
    assert "10^(" in good("cost", "--theorem", "neural-networks-3", "--eps", "1e-300", "--c4", "1e100")


def _trade_off_table() -> str:
    return good("cost", "--theorem", "neural-networks-2", "--depth", 3, "--width", 16, "--eps", "0.1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--theorem", "neural-networks-5"),
            "unknown theorem; got 'neural-networks-5'; allowed: neural-networks-2, neural-networks-3",
        ),
        (("--theorem", "neural-networks-3", "--s", 4), "does not take this; got --s; allowed: --eps, --d, --c1"),
        (("--theorem", "neural-networks-2", "--d", 4), "does not take this; got --d;"),
        (("--theorem", "neural-networks-3", "--sizes", "2,3,1", "--no-bias"), "got --sizes, --no-bias"),
        (("--theorem", "neural-networks-3", "--epsilon", "1e-3"), "the accuracies are --eps"),
        (("--theorem", "neural-networks-3", "folder"), "got a model folder"),
        (("--theorem", "neural-networks-3", "--config", "settings.toml"), "got --config"),
        (("--theorem", "neural-networks-4", "--d", 1), "needs --s, --depth"),
        (("--theorem", "neural-networks-2"), "either a network, depth and width, or a budget of heads"),
        (("--theorem", "neural-networks-2", "--heads", 3), "too small"),
        (("--theorem", "neural-networks-3", "--eps", "1e-2,small"), "eps must be numbers"),
        (("--theorem", "neural-networks-3", "--eps", "1e-2,"), "eps must be numbers"),
        (("--theorem", "neural-networks-3", "--eps", "2"), "less than 1"),
        (("--theorem", "neural-networks-3", "--eps", "1e-400"), "eps must be a positive number"),
        (("--theorem", "neural-networks-3", "--c4", "-1"), "c4 must be a positive number"),
        (("--theorem", "neural-networks-4", "--d", 1, "--s", 2, "--depth", 3), "s must be an integer, at least 3"),
        (("--eps", "1e-2"), "belong to a theorem; got --eps"),
        (("--sizes", "2,3,1", "--depth", 3), "belong to a theorem; got --depth"),
    ],
)
def test_theorems_with_wrong_input(flags: tuple[object, ...], message: str) -> None:
    for output in ((), ("--json",), ("--quiet",)):
        result = call("cost", *flags, *output)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("innergrad: ")
        assert result.err.count("\n") == 1
        assert message in result.err


def test_theorems_do_without_torch() -> None:
    code = "import sys; from innergrad.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, "cost", "--theorem", "neural-networks-3", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["theorem"] == "neural-networks-3"
    assert not re.search(r"\| +(torch|numpy)$", done.stderr, re.MULTILINE)
