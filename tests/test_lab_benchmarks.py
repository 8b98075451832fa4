"""benchmarks/lab.py and benchmarks/training.py at a tiny size, and what their stored results claim."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

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

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import lab as bench
import lab_figure
import lab_tables
import training
from _results import read

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
CURVES = ("training_curve_cpu", "training_curve_cuda")
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


def test_the_stored_run_is_the_shipped_configuration_and_holds_its_claims() -> None:
    """Recomputed from the curves: nothing that is said of the three learners is stored without them."""
    stored, folder = read("lab_three_tasks"), ROOT / "results" / "lab_three_tasks"
    experiments = read_experiments(ROOT / "configs" / "three_tasks.toml")
    assert read_experiments(folder) == experiments
    assert [about["task"] for about in stored["models"].values()] == [to_table(one.task) for one in experiments]
    assert bench.claims(stored["models"]) == stored["claims"]
    assert [one["holds"] for one in stored["claims"]] == [True] * 6
    assert all(about["n_prompts"] >= 20_000 for about in stored["models"].values())
    assert stored["training"]["seconds"] < 25 * 60
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == stored["training"]["steps"] == experiments[0].train.steps
    for number, about in enumerate(stored["models"].values()):  # the loss is the mean of the errors at all lengths
        errors = [row["value"] for row in about["curves"]["model"]["squared error"]]
        assert log[-1]["loss"][number] == pytest.approx(sum(errors) / len(errors), rel=0.02)


def test_what_the_pages_say_of_the_stored_run() -> None:
    """README and docs/lab.md: how near the learners come to the best, and that those of networks are below ridge."""
    linear, *networks = (
        {name: [row["value"] for row in rows["squared error"]] for name, rows in about["curves"].items()}
        | {"best": [row["value"] for row in about["curves"][about["reference"]]["squared error"]]}
        for about in read("lab_three_tasks")["models"].values()
    )
    assert all(mine <= 1.02 * best for mine, best in zip(linear["model"][:19], linear["best"][:19], strict=True))
    for curves in networks:
        assert all(mine <= 1.021 * best for mine, best in zip(curves["model"], curves["best"], strict=True))
        ridge = curves["ridge, leave-one-out lambda with intercept"]
        assert all(mine < other for mine, other in zip(curves["model"][1:], ridge[1:], strict=True))


def test_the_stored_evaluation_is_whole() -> None:
    """6,400 prompts at 76 lengths, and no epoch that could be chosen is better than the posterior."""
    stored = read("lab_full")
    assert (stored["n_prompts"], stored["n_points"], stored["fits"]) == (6400, 76, 6400 * 75)
    assert stored["seconds"] < 5 * 60
    curves = {name: rows["pooled R^2"] for name, rows in stored["curves"].items()}
    posterior = curves["NNGP, 3 layers"]
    assert [row["k"] for row in posterior] == list(range(76))
    last, pooled, oracle = (
        bench.at(curves[f"3-layer network, adam 0.003, {epoch} epoch"], 50)
        for epoch in ("last", "pooled", "per-prompt")
    )
    assert last <= pooled < bench.at(posterior, 50) < oracle


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


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_stored_speeds_add_up(device: str) -> None:
    stored = read(f"training_speed_{device}")
    (reference,) = stored["reference"]
    for row in (reference, *stored["stacks"]):
        assert 0 < row["slowest"] <= row["steps_a_second"] <= row["fastest"]
    for row in stored["stacks"]:
        ratio = row["steps_a_second"] / reference["steps_a_second"]
        assert row["against_reference"] == pytest.approx(ratio, rel=0.01)


def test_stored_speeds_on_a_gpu() -> None:
    """One model and stacks against what was asked of them, and the share of the peak from the operations of a step."""
    stored = read("training_speed_cuda")
    rows = {row["stack"]: row for row in stored["stacks"]}
    assert rows[1]["slowest"] > 450
    assert max(row["slowest"] for row in rows.values()) > 1000
    assert all(row["first_step_seconds"] < 100 for row in rows.values())
    for row in rows.values():
        peak = training.PEAK[stored["device"]] / (1e9 * stored["gflop_a_step"])
        assert row["mfu"] == pytest.approx(row["steps_a_second"] / peak, abs=2e-4)


@pytest.mark.parametrize("name", CURVES)
def test_stored_curves_are_one_training(name: str) -> None:
    """The loss falls, the loops start on one path, and their means are nearer than seeds are at every window.

    Seed by seed that holds as long as rounding to bfloat16 has not led to another path: then it is like another seed.
    """
    stored = read(name)
    plain = torch.tensor(stored["plain"])
    assert len(plain) >= 5
    assert (plain.min(1).values < 0.6 * plain[:, 0]).all()
    rows = {name: torch.tensor(row) for name, row in lab_tables.compare_curves(stored["plain"], stored["fast"]).items()}
    seeds = rows["standard deviation of the reference's seeds"]
    assert (rows["difference of the means"] < seeds).all()
    assert (rows["largest difference of one seed"] < seeds)[:3].all()


def test_what_the_page_says_of_the_loops() -> None:
    """docs/lab.md: how near the means are, when seeds part, where they end; how fast the reference was in two runs."""
    stored = read("training_curve_cuda")
    rows = {name: torch.tensor(row) for name, row in lab_tables.compare_curves(stored["plain"], stored["fast"]).items()}
    seeds = rows["standard deviation of the reference's seeds"]
    assert (rows["difference of the means"] / seeds).max() == pytest.approx(0.65, abs=0.005)
    near = rows["largest difference of one seed"] < seeds
    assert near.long().cumprod(0).sum() * stored["every"] == 300
    ends = sorted(abs(fast[-1] / plain[-1] - 1) for plain, fast in zip(stored["plain"], stored["fast"], strict=True))
    assert ends[-1] == pytest.approx(0.12, abs=0.005)
    assert ends[-2] < 0.03
    speed, race = read("training_speed_cuda")["reference"][0], read("training_target_cuda")["rows"][0]
    assert [round(row["steps_a_second"]) for row in (speed, race)] == [43, 30]
    cpu = read("training_curve_cpu")
    same = lab_tables.compare_curves(cpu["plain"], cpu["fast"])["largest difference of one seed"]
    assert max(same) < 1e-6


@pytest.mark.parametrize("name", CURVES)
def test_losses_a_window_late_are_not_the_same_training(name: str) -> None:
    """The check above can fail: fifty steps are told apart, before the curriculum adds a coordinate."""
    stored = read(name)
    plain, late = ([row[i : i + 6] for row in stored[loop]] for i, loop in ((1, "plain"), (0, "fast")))
    rows = lab_tables.compare_curves(plain, late)
    seeds = rows["standard deviation of the reference's seeds"]
    assert sum(a > b for a, b in zip(rows["difference of the means"], seeds, strict=True)) >= 4


def test_stored_race_was_won_by_reaching_the_target() -> None:
    stored = read("training_target_cpu")
    assert stored["least_squares"] == pytest.approx(training.least_squares_loss(training.recipe(True, 200)), abs=1e-4)
    reference, lab = stored["rows"]
    for row in (reference, lab):
        assert row["reached"]
        assert stored["least_squares"] < row["loss"] < stored["target"]
    assert stored["ratio"] == pytest.approx(reference["seconds"] / lab["seconds"], rel=0.01)
    assert stored["ratio"] > 1.0
