"""Sweeps and shifts, measured at once: what is shown is what the runs by themselves have, over seeds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from innergrad import lab
from innergrad.errors import InputError
from innergrad.files import made_by
from innergrad.lab import metrics
from innergrad.lab.metrics import Curve
from test_lab_cli import call, good

SHIFT = "task.inputs.mean=2"
BASE = lab.Experiment(
    "base",
    n_points=5,
    task=lab.Linear(d=2),
    learner=lab.GPTConfig(n_layers=1, d_model=8, n_heads=2, d_mlp=8),
    train=lab.TrainConfig(steps=4, batch=4, log_every=2),
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "sweep"
    lab.sweep(lab.grid(BASE, ["seed=0,1", "train.optimiser.lr=1e-2,1e-3"]), folder, stack=True)
    return folder


@pytest.fixture(scope="module")
def found(swept: Path) -> list[lab.Evaluation]:
    """Its learners, on the task of training and on another with another best predictor."""
    return lab.evaluate_many(swept, shifts=[f"{SHIFT}, task.noise=0.5"], n_prompts=16)


def test_a_sweep_is_measured_over_seeds_and_shifts(swept: Path, found: list[lab.Evaluation]) -> None:
    names = ["train.optimiser.lr=1e-2", "train.optimiser.lr=1e-3"]
    shifts = [(), (SHIFT, "task.noise=0.5")]
    assert [(one.name, one.shifts, one.seeds) for one in found] == [
        (name, shift, (0, 1)) for shift in shifts for name in names
    ]
    assert [set(one.curves) for one in found[:2]] == [{"model", "mean", "least squares"}, {"model"}]
    rows = json.loads((swept / "sweep.json").read_text())
    mine = [row for row in rows if "train.optimiser.lr=1e-3" in row["changes"]]
    alone = [
        lab.evaluate_run(row["run"], model=row["model"], shifts=shifts[1], n_prompts=16, baselines=[]) for row in mine
    ]
    values = [one.curves["model"]["squared error"].at(4)[0] for one in alone]
    value, low, high = found[3].curves["model"]["squared error"].at(4)
    assert value == pytest.approx(sum(values) / 2)
    assert (high - low) / 2 == pytest.approx(12.706 * abs(values[0] - values[1]) / 2)


def test_the_command_measures_draws_and_says_the_same(swept: Path, found: list[lab.Evaluation], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("evaluate", swept, "--prompts", 16, "--shift", f"{SHIFT},task.noise=0.5", "--device", "cpu")
    figure, out = tmp_path / "new" / "curves.png", tmp_path / "curves.json"
    called = call(*arguments, "--figure", figure, "--out", out)
    assert called.code == 0
    written = json.loads(out.read_text())
    assert written == [{"made_by": "innergrad evaluate", **json.loads(json.dumps(one.to_json()))} for one in found]
    assert made_by(figure) == "evaluate"
    assert f"train.optimiser.lr=1e-2, {SHIFT}" in called.out
    assert "over seeds (of learners) or prompts" in called.out
    run = next(path for path in swept.iterdir() if path.is_dir())
    short = ("--prompts", 2, "--baselines", "none", "--over-seeds", "--json", "--device", "cpu")
    assert [result["seeds"] for result in json.loads(good("evaluate", run, *short))] == [[0, 1], [0, 1]]


def test_pictures_have_the_numbers(swept: Path, found: list[lab.Evaluation], tmp_path: Path) -> None:
    figure = lab.plot_evaluations(found, tmp_path / "curves.png")
    assert len(figure.axes) == 4  # two measures, two tasks
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[1].lines}
    assert list(lines[found[2].name]) == found[2].curves["model"]["squared error"].value.tolist()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][2:] == ["mean", "least squares", "ridge 0.25"]
    assert len(lab.plot_evaluations(found[:1]).axes) == 3
    losses = lab.plot_sweep(swept)
    rows = json.loads((swept / "sweep.json").read_text())
    dots = sorted(x for line in losses.axes[1].lines if line.get_marker() == "o" for x in line.get_xdata())
    assert dots == sorted(row["loss"] for row in rows)
    run = lab.plot_loss(rows[0]["run"])
    assert [line.get_ydata()[-1] for line in run.axes[0].lines] == [row["loss"] for row in rows]


def test_figures_of_training_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    config = Path(__file__).parent.parent / "configs" / "smoke.toml"
    short = ("--set", "train.steps=2", "--set", "train.batch=2", "--quiet")
    good("train", config, *short, "--out", tmp_path / "run", "--figure", tmp_path / "loss.png")
    good("sweep", config, *short, "--out", tmp_path / "sweep", "--grid", "seed=0,1", "--figure", tmp_path / "sweep.png")
    assert (made_by(tmp_path / "loss.png"), made_by(tmp_path / "sweep.png")) == ("train", "sweep")
    (tmp_path / "mine.png").write_bytes(b"mine")
    called = call("train", config, *short, "--out", tmp_path / "other", "--figure", tmp_path / "mine.png")
    assert (called.code, "did not write it" in called.err) == (2, True)
    assert not (tmp_path / "other").exists()  # nothing was trained
    longer = ("--set", "train.steps=3", "--resume", "--json")
    assert json.loads(good("train", tmp_path / "run", *longer))["step"] == 3
    begun = good("train", config, *short[:-1], "--out", tmp_path / "second", "--start", tmp_path / "run", "--json")
    assert json.loads(begun)["step"] == 2


def test_what_cannot_be_measured_at_once(swept: Path, found: list[lab.Evaluation]) -> None:
    called = call("evaluate", swept, "--model", "1")
    assert (called.code, "measure all models" in called.err) == (2, True)
    called = call("evaluate", swept, "--shift", "train.steps=3")
    assert (called.code, "only the task" in called.err) == (2, True)
    with pytest.raises(InputError, match="is a sweep; allowed: one of its runs: stack-0"):
        lab.evaluate_run(swept)
    seven = [found[0], *(replace(found[0], shifts=(str(number),)) for number in range(6))]
    with pytest.raises(InputError, match="too many shifts for one figure; got 6"):
        lab.plot_evaluations(seven)


def test_student() -> None:
    assert metrics.student(2) == 4.303
    assert metrics.student(10) == pytest.approx(2.228, rel=2e-3)
    assert metrics.student(100) == pytest.approx(1.984, rel=1e-3)
    k = torch.arange(1)
    curves = [Curve(k, *(torch.tensor([value], dtype=torch.float64) for value in (v, v, v))) for v in (1.0, 2.0, 3.0)]
    assert metrics.over_seeds(curves).at(0) == pytest.approx((2.0, 2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)))
    assert metrics.over_seeds(curves[:1]) is curves[0]
