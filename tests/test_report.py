"""Reports are one file that needs nothing else, and have the numbers of what they are about."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import innergrad as ig
from innergrad.config import to_toml
from innergrad.errors import at_most, readable
from innergrad.lab import evaluate_run
from test_cli import SMALL, call, good, write_rows
from test_lab_cli import SMALL as EXPERIMENT

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """What a file is made of: its tags, whether they are closed, and its text outside of pictures and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.open, self.words, self.asked = list[str](), list[str](), list[str](), list[str]()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"svg", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Page:
    """The page; it is whole, has no code, and asks for nothing from elsewhere."""
    text = path.read_text()
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(asked.startswith("#") for asked in page.asked), "something is fetched"
    assert not re.search(r"@import|url\((?!#)", text)
    assert 'name="viewport"' in text
    return page


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "model"
    good("compile", *SMALL, "--out", folder, "--quiet")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "small.toml").write_text(to_toml(EXPERIMENT))
    good("train", folder / "small.toml", "--out", folder / "run", "--quiet")
    return folder / "run"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [[0.1 * i, 0.5 - 0.1 * i, 0.3 * i - 0.5] for i in range(5)]
    return write_rows(tmp_path / "<b>data.csv", ["a", "b", "y"], rows, [[0.7, 0.2, ""]])


# --------------------------------------------------------------------------------------------------------------- model


def test_the_report_of_a_model(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    found = json.loads(good("report", model, "--data", table, "--out", out, "--json"))
    tf, X = ig.load(model), [[0.1 * i, 0.5 - 0.1 * i] for i in range(5)]
    y = [[0.3 * i - 0.5] for i in range(5)]
    ran = tf.run(X, y, [[0.7, 0.2]], executor="dense")
    exact = ig.reference(tf.algorithm, X, y, [[0.7, 0.2]])
    assert found["loss"] == pytest.approx(ran.loss.tolist(), rel=1e-9)
    assert found["loss_exact"] == pytest.approx(exact.loss.tolist(), rel=1e-9)
    assert found["prediction_difference"] == pytest.approx(float((ran.predictions - exact.predictions).abs().max()))
    assert found["path_error"] == pytest.approx((ran.weights - exact.weights).norm(dim=-1)[1:].tolist(), rel=1e-6)
    assert all(a <= b for a, b in zip(found["path_error"], found["path_bound"], strict=True))
    assert found["blocks"] == tf.cost().blocks
    assert found["laws_hold"] is True
    page = read(out)
    assert page.tags.count("svg") == 5  # the architecture, loss, predictions, error by step and by layer
    assert found["lead"] in page.text
    assert f"{found['loss'][-1]:.6f}" in page.text
    assert f"{tf.n_parameters:,}" in page.text
    assert "<b>data.csv" in page.text
    assert '"versions"' in page.text
    assert str(tmp_path) not in out.read_text()
    assert tf.draw().svg in out.read_text()


def test_without_data_the_prompt_is_the_algorithms_own(model: Path, tmp_path: Path) -> None:
    """The seed decides, and the same seed gives the same numbers."""
    reports = [
        json.loads(good("report", model, "--out", tmp_path / "report.html", "--json", "--seed", seed))
        for seed in (3, 3, 4)
    ]
    assert reports[0] == reports[1]
    assert reports[0]["loss"] != reports[2]["loss"]
    assert reports[0]["examples"] == 6
    assert "a random prompt of the algorithm's own, seed 4" in read(tmp_path / "report.html").text


@pytest.mark.parametrize(
    "flags",
    [
        ("--algorithm", "functional", "--d", "2", "--steps", "3"),
        ("--algorithm", "rls", "--d", "2"),
        ("--sizes", "2,3,1", "--steps", "2", "--target", "llama", "--box", "none"),
    ],
    ids=["functional", "rls", "llama"],
)
def test_reports_of_other_models(flags: tuple[str, ...], tmp_path: Path) -> None:
    good("compile", *flags, "--n-examples", "4", "--out", tmp_path / "model", "--quiet")
    found = json.loads(good("report", tmp_path / "model", "--out", tmp_path / "report.html", "--json"))
    assert found["prediction_difference"] < 1e-6
    assert found["loss"] == pytest.approx(found["loss_exact"], abs=1e-6)
    assert read(tmp_path / "report.html").tags.count("svg") == 5


def test_what_is_not_well_is_said(model: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.csv", ["a", "b", "y"], [[1.0, 1.0, float(i)] for i in range(4)])
    done = call("report", model, "--data", data, "--out", tmp_path / "report.html", "--json")
    found = json.loads(done.out)
    assert found["warnings"]
    assert (done.code, done.err.splitlines()) == (0, [f"innergrad: warning: {one}" for one in found["warnings"]])
    assert found["lead"].startswith("This run did not go well: ")
    assert f"Not well: {found['warnings'][0]}" in read(tmp_path / "report.html").text


def test_a_table_that_is_not_scaled_is_told_of_by_its_columns(model: Path, tmp_path: Path) -> None:
    rows = [[100.0 * i, 0.5 - 0.1 * i, 0.3 * i - 0.5] for i in range(5)]
    data = write_rows(tmp_path / "data.csv", ["age", "b", "y"], rows)
    raw, scaled = (
        json.loads(good("report", model, "--data", data, "--out", tmp_path / "report.html", "--json", "-q", *flags))
        for flags in ((), ("--scale",))
    )
    assert raw["warnings"][-1].startswith("age (column 1, up to 400) is far from unit scale; --scale")
    assert not any("unit scale" in sentence for sentence in scaled["warnings"])
    assert "scaled by its own mean and deviation" in read(tmp_path / "report.html").text
    assert "Inputs: age, b. Target: y." in read(tmp_path / "report.html").text


def test_a_scaled_table_is_shown_in_its_own_units(model: Path, tmp_path: Path) -> None:
    """Predictions and their difference; the headline says what was measured, and what is proven."""
    rows = [[100.0 * i, 0.5 - 0.1 * i * i, 250_000.0 + 9_000.0 * i * i] for i in range(5)]
    data = write_rows(tmp_path / "data.csv", ["age", "b", "price ($)"], rows)
    found = json.loads(good("report", model, "--data", data, "--scale", "--out", tmp_path / "report.html", "--json"))
    X, y = torch.tensor(rows, dtype=torch.float64).split((2, 1), dim=1)
    (X, _), (y, std) = (
        ((part - part.mean(0)) / part.std(0, correction=0), part.std(0, correction=0)) for part in (X, y)
    )
    tf = ig.load(model)
    apart = tf.run(X, y, X, executor="dense").predictions - ig.reference(tf.algorithm, X, y, X).predictions
    assert found["prediction_difference"] == pytest.approx(float(apart.abs().max() * std), rel=1e-4)
    shown = readable(found["prediction_difference"], 3)
    assert f"Measured: its predictions differ from those of gradient descent itself by at most {shown}" in found["lead"]
    assert f"Proven: the last weights are within {at_most(found['path_bound'][-1])} of the exact ones" in found["lead"]
    page = read(tmp_path / "report.html").text
    assert "In the units of the file." in page
    assert "R² on 5 examples" in page
    assert "Scroll the picture sideways" in page


# ----------------------------------------------------------------------------------------------------------------- run


def test_the_report_of_a_run(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    flags = ("--prompts", 32, "--set", "task.inputs.mean=2", "--seed", 5)
    found = json.loads(good("report", run, "--out", out, "--json", "--device", "cpu", *flags))
    plain = evaluate_run(run, n_prompts=32, seed=5)
    assert found["evaluation"]["curves"] == plain.to_json()["curves"]
    shifted = evaluate_run(run, n_prompts=32, seed=5, shifts=["task.inputs.mean=2"])
    assert [one["curves"] for one in found["shifted"]] == [shifted.to_json()["curves"]]
    page = read(out)
    assert page.tags.count("svg") == 5  # the loss, and two measures for each task
    assert found["lead"] in page.text
    assert "Evaluation, shifted: task.inputs.mean=2" in page.text
    assert all(cell in page.text for row in plain.table() for cell in row)


# ------------------------------------------------------------------------------------------------------------- manners


def test_only_reports_are_replaced(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert good("report", model, "--out", out, "--quiet") == ""
    first = good("report", model, "--out", out)
    assert first.count("\n") == 2
    assert f"wrote {out}" in first
    out.write_text("<!doctype html>mine")
    refused = call("report", model, "--out", out)
    assert refused.code == 2
    assert "innergrad report did not write it" in refused.err
    assert out.read_text() == "<!doctype html>mine"
    good("report", model, "--out", out, "--quiet", "--force")
    read(out)


def test_inputs_are_not_written_to(model: Path, run: Path, table: Path) -> None:
    for folder, out in ((model, model / "config.json"), (run, run / "log.jsonl")):
        before = out.read_bytes()
        refused = call("report", folder, "--out", out, "--force")
        assert (refused.code, out.read_bytes()) == (2, before)
        assert "is read by this command" in refused.err
    refused = call("report", model, "--data", table, "--out", table, "--force")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("which", "flags", "words"),
    [
        ("nothing", (), "neither a model nor a run"),
        ("model", ("--set", "task.inputs.mean=2"), "--set shifts the task of a run"),
        ("run", ("--data", "x.csv"), "--data is for compiled models"),
        ("run", ("--set", "train.steps=3"), "only the task of a trained model can be changed"),
        ("model", ("--data", "missing.csv"), "missing.csv"),
    ],
)
def test_wrong_input_is_one_line(
    which: str, flags: tuple[str, ...], words: str, request: pytest.FixtureRequest
) -> None:
    tmp_path = request.getfixturevalue("tmp_path")
    folder = tmp_path if which == "nothing" else request.getfixturevalue(which)
    done = call("report", folder, "--out", tmp_path / "report.html", *flags)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
