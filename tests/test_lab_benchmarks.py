"""benchmarks/lab.py and benchmarks/training.py at a tiny size."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lab as bench
import lab_figure
import training
from innergrad.config import to_table, to_toml
from innergrad.errors import InputError
from innergrad.lab.baselines import Mean, TrainedNetwork
from innergrad.lab.checkpoints import load
from innergrad.lab.evaluation import prompts
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.sweeps import read_experiments
from innergrad.lab.tasks import GaussianMixture, Linear, Networks
from innergrad.lab.training import check_stack, load_learner

ROOT = Path(__file__).parent.parent
TRAIN = TrainConfig(
    steps=12,
    batch=4,
    log_every=2,
    checkpoint_every=1000,
    optimiser=Optimiser("muon", lr=1e-3, clip=1.0),
    curriculum=Curriculum(first_dims=2, every=3),
)
LINEAR = Experiment("linear", 0, 51, Linear(d=4), GPTConfig(n_layers=1, d_model=16, n_heads=2, d_mlp=16), train=TRAIN)
SHALLOW, DEEP = Networks(d=4, width=8, layers=2), Networks(d=4, width=8, layers=3, inputs=GaussianMixture(w1=1.0))
TINY: dict[str, Any] = {"width": 6, "epochs": 4}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("configs") / "tiny.toml"
    experiments = [LINEAR, replace(LINEAR, name="shallow", task=SHALLOW), replace(LINEAR, name="deep", task=DEEP)]
    path.write_text(to_toml({"experiments": [to_table(one) for one in experiments]}))
    return path


@pytest.fixture(scope="module")
def runs(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs, with one that went through."""
    folder = tmp_path_factory.mktemp("runs")
    assert bench.train(config, "tiny", runs=folder, results=folder / "results")
    return folder


@pytest.fixture(scope="module")
def models(runs: Path) -> dict[str, Any]:
    return bench.evaluate(runs / "tiny", n_prompts=60, n_fits=24, network=TINY)


def test_the_three_tasks_are_one_stack() -> None:
    experiments = read_experiments(ROOT / "configs" / "three_tasks.toml")
    check_stack(experiments)
    assert [one.task.best().name for one in experiments] == ["least squares", "NNGP, 2 layers", "NNGP, 3 layers"]
    assert experiments[2].task == bench.TASK_001
    train = experiments[0].train
    last = torch.tensor(train.steps // 8)
    assert train.curriculum.dims(last - 1, 20) == 19
    assert train.curriculum.dims(last, 20) == 20


# --------------------------------------------------------------------------------------------------------------- train


def test_a_run_that_ran_out_of_time_goes_on_to_the_same_end(config: Path, runs: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    where: dict[str, Any] = {"runs": tmp_path, "results": results, "out": out}
    assert not bench.train(config, "tiny", minutes=0.0, **where)
    assert load(tmp_path / "tiny").step == 2  # the first line of the log
    assert bench.train(config, "tiny", resume=True, **where)
    assert torch.equal(load(tmp_path / "tiny").tensors["theta"], load(runs / "tiny").tensors["theta"])
    for folder in (results, out):
        files = sorted(path.name for path in (folder / "lab_tiny").iterdir())
        assert files == ["config.toml", "log.jsonl", "manifest.json"]
    assert read_experiments(results / "lab_tiny") == read_experiments(config)
    assert bench.training(tmp_path / "tiny", "cpu")["steps"] == 12
    with pytest.raises(InputError, match="there is a run"):
        bench.train(config, "tiny", **where)


def test_a_stored_log_is_thinned_and_keeps_its_end(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "LINES", 4)
    bench.copy_journal(runs / "tiny", tmp_path)
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [4, 8, 12]


def test_seconds_of_a_resumed_run_are_those_of_its_parts(runs: Path, tmp_path: Path) -> None:
    bench.copy_journal(runs / "tiny", tmp_path)
    rows = [{"step": step, "seconds": seconds} for step, seconds in ((2, 5.0), (4, 9.0), (6, 3.0), (8, 4.0))]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bench.training(tmp_path, "cpu")["seconds"] == 13.0


# ------------------------------------------------------------------------------------------------------------ evaluate


def test_every_model_is_measured_on_its_own_task(runs: Path, models: dict[str, Any]) -> None:
    """The curves are those of the model of that number and of the baselines, on the same prompts."""
    assert {name: about["reference"] for name, about in models.items()} == {
        "linear": "least squares",
        "shallow": "NNGP, 2 layers",
        "deep": "NNGP, 3 layers",
    }
    for number, (about, task) in enumerate(zip(models.values(), (Linear(d=4), SHALLOW, DEEP), strict=True)):
        x, y = prompts(task, 60, 51, bench.SEED, 60, "cpu")
        learner, _ = load_learner(runs / "tiny", number)
        for name, p in (("model", learner.predict(x, y)), ("mean", Mean()(x, y))):
            error = (p.double() - y.double()).square().mean(0) / task.scale**2
            stored = [row["value"] for row in about["curves"][name]["squared error"]]
            torch.testing.assert_close(torch.tensor(stored, dtype=torch.float64), error, rtol=1e-4, atol=1e-9)
        assert len(about["curves"]) == 4
        assert "fitted" not in about or task is DEEP


def test_networks_are_trained_on_the_prompts_that_the_model_sees(models: dict[str, Any]) -> None:
    x, y = (part[:24] for part in prompts(DEEP, 60, 51, bench.SEED, 60, "cpu"))
    fitted = models["deep"]["fitted"]
    assert fitted["n_prompts"] == 24
    assert len(fitted["curves"]) == 4 + 2 * len(bench.RATES)
    for lr in bench.RATES:
        network = TrainedNetwork(layers=3, y_scale=DEEP.scale, lr=lr, epoch="pooled", ks=bench.KS, **TINY)
        p = network(x, y)[:, list(bench.KS)]
        labels = y[:, list(bench.KS)].double()
        r2 = 1 - (p - labels).square().sum(0) / (labels - labels.mean(0)).square().sum(0)
        rows = fitted["curves"][network.name]["pooled R^2"]
        assert [row["k"] for row in rows] == list(bench.KS)
        assert [row["value"] for row in rows] == pytest.approx(r2.tolist(), rel=1e-4, abs=1e-6)
    whole, few = models["deep"]["curves"]["model"], fitted["curves"]["model"]
    assert bench.at(whole["squared error"], 50) != bench.at(few["squared error"], 50)  # 60 prompts, 24 prompts


def rows(values: dict[int, float]) -> list[dict[str, float]]:
    return [{"k": k, "value": value} for k, value in values.items()]


GOOD: dict[str, Any] = {
    "linear": {
        "task": {"kind": "linear"},
        "curves": {"model": {"squared error": rows({20: 0.024, 40: 0.0009})}},
    },
    "two": {
        "task": {"kind": "network", "layers": 2},
        "reference": "posterior",
        "curves": {
            "model": {"squared error": rows({20: 0.42, 40: 0.29, 50: 0.25})},
            "posterior": {"squared error": rows({20: 0.41, 40: 0.28, 50: 0.24})},
        },
    },
    "three": {
        "task": {"kind": "network", "layers": 3},
        "curves": {"model": {}},
        "fitted": {
            "curves": {
                "model": {"pooled R^2": rows({50: 0.96})},
                "one, pooled epoch": {"pooled R^2": rows({50: 0.95})},
                "other, pooled epoch": {"pooled R^2": rows({50: 0.965})},
                "other, last epoch": {"pooled R^2": rows({50: 0.99})},
            }
        },
    },
}


def test_claims_are_made_of_the_curves() -> None:
    assert [one["holds"] for one in bench.claims(GOOD)] == [True] * 6


@pytest.mark.parametrize(
    ("name", "part", "curve", "measure", "k", "value", "number"),
    [
        ("linear", "", "model", "squared error", 20, 0.026, 0),
        ("linear", "", "model", "squared error", 40, 0.0011, 1),
        ("two", "", "model", "squared error", 20, 0.41 * 1.06, 2),
        ("two", "", "posterior", "squared error", 40, 0.29 / 1.06, 3),
        ("two", "", "model", "squared error", 50, None, 4),  # not a number
        ("three", "fitted", "model", "pooled R^2", 50, 0.954, 5),
        ("three", "fitted", "one, pooled epoch", "pooled R^2", 50, 0.971, 5),
    ],
)
def test_a_claim_fails_when_its_curve_does(
    name: str, part: str, curve: str, measure: str, k: int, value: float | None, number: int
) -> None:
    models = copy.deepcopy(GOOD)
    about = models[name][part] if part else models[name]
    next(row for row in about["curves"][curve][measure] if row["k"] == k)["value"] = value
    assert [one["holds"] for one in bench.claims(models)] == [place != number for place in range(6)]


def test_the_whole_evaluation_has_every_length_and_adds_up(runs: Path) -> None:
    found = bench.full(runs / "tiny", task=DEEP, n_prompts=12, n_points=54, network=TINY)
    assert set(found["curves"]) >= {"model", "mean", "NNGP, 3 layers", "ridge, leave-one-out lambda with intercept"}
    assert sum("3-layer network" in name for name in found["curves"]) == 3
    for name, curve in found["curves"].items():
        lengths = [row["k"] for row in curve["squared error"] if row["value"] is not None]
        assert lengths == list(range(51 if name == "model" else 54))
    assert found["seconds"] == pytest.approx(sum(found["parts"].values()), abs=0.1)
    with pytest.raises(InputError, match="no model"):
        bench.full(runs / "tiny", task=replace(DEEP, width=9), n_prompts=2, n_points=3, network=TINY)


def test_the_figure_is_drawn(models: dict[str, Any], tmp_path: Path) -> None:
    lab_figure.draw({"models": models}, tmp_path / "lab.png")
    assert (tmp_path / "lab.png").read_bytes().startswith(b"\x89PNG")


# ------------------------------------------------------------------------------------------------------------- training


def test_no_loss_is_below_that_of_least_squares() -> None:
    from innergrad.lab.baselines import LeastSquares

    one = training.recipe(True, 200)
    x, y = prompts(one.task, 4000, one.n_points, 0, 4000, "cpu")
    error = float((LeastSquares()(x, y) - y).square().mean()) / one.task.d
    assert error == pytest.approx(training.least_squares_loss(one), rel=0.03)


def test_a_race_ends_when_whole_prompts_are_learned_or_the_time_is_over() -> None:
    """Losses of a curriculum's easy prompts do not count: here d - 2 = 3 changes, one every 200 steps."""
    one = training.recipe(True, 200)
    losses = [0.1, 0.1, 0.1, 0.9, 0.5, 0.4, 0.3]
    found = training.race(iter(losses), one, 0.45, 60.0)
    assert (found["reached"], found["steps"], found["loss"]) == (True, 6 * training.WINDOW, 0.4)
    found = training.race(iter(losses), one, 0.45, 0.0)
    assert (found["reached"], found["steps"]) == (False, training.WINDOW)


def test_the_reference_loop_has_the_curriculum() -> None:
    """Its first loss is that of prompts in the first coordinates: about 2 at d = 5, not 5."""
    one = training.recipe(True, 200)
    easy = next(training.reference(one, "cpu"))
    hard = next(training.reference(replace(one, train=replace(one.train, curriculum=Curriculum())), "cpu"))
    assert easy < 0.7 * hard
