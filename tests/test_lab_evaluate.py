"""What is measured is what was trained: the task of the checkpoint, all of it, and nothing of the training data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.baselines import KNN, LeastSquares, Mean, Predictor, Ridge, Zero
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.evaluation import (
    MEASURES,
    default_baselines,
    evaluate,
    evaluate_run,
    lengths,
    named_baseline,
    trained_points,
)
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.lab.tasks import DecisionTrees, GaussianMixture, Linear, Networks
from innergrad.lab.training import load_learner, train

SMALL = GPTConfig(n_layers=1, d_model=8, n_heads=2, d_mlp=8)
NETWORKS = Networks(d=3, width=100, layers=2, noise=0.25, inputs=GaussianMixture(w1=0.75, mean=1.5))
EXPERIMENT = Experiment("small", n_points=7, task=NETWORKS, learner=SMALL, train=TrainConfig(steps=2, batch=4))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    train([EXPERIMENT], folder)
    return folder


def test_the_curves_are_those_of_the_definitions() -> None:
    task, n = Linear(d=3, tau=2.0, noise=0.5), 6
    found = evaluate(Mean(), task, n_prompts=300, n_points=n, seed=3, batch=64, baselines=[Mean(), Zero()])
    drawn = task.sample(CounterRNG.of(3, "evaluate"), torch.arange(300), n)
    error = (drawn.y.double() - Mean()(drawn.x, drawn.y).double()).square()
    expected = {
        "squared error": error.mean(0) / task.scale**2,
        "pooled R^2": 1 - error.sum(0) / (drawn.y.double() - drawn.y.double().mean(0)).square().sum(0),
        "within-prompt R^2": 1 - error.mean(0) / drawn.y.double().var(1).mean(),
    }
    assert found.curves.keys() == {"model", "mean", "zero"}
    for measure, values in expected.items():
        torch.testing.assert_close(found.curves["model"][measure].value, values)
        torch.testing.assert_close(found.curves["mean"][measure].value, values)  # in batches, or all at once
        curve = found.curves["model"][measure]
        assert bool(((curve.low <= curve.value) & (curve.value <= curve.high)).all())
    torch.testing.assert_close(
        found.curves["zero"]["squared error"].value, drawn.y.double().square().mean(0) / task.scale**2
    )


def test_the_task_is_the_checkpoints(run: Path) -> None:
    """Width 100 is trained and width 100 is measured, with its noise and its inputs; not the defaults of the task."""
    found = evaluate_run(run, n_prompts=200, baselines=["mean"])
    assert found.task["width"] == 100
    assert (found.task["noise"], found.task["inputs"]["w1"], found.task["inputs"]["mean"]) == (0.25, 0.75, 1.5)
    learner, experiment = load_learner(run)
    assert experiment == EXPERIMENT
    same = evaluate(learner.predict, NETWORKS, n_prompts=200, n_points=7, baselines=[Mean()])
    other = evaluate(learner.predict, replace(NETWORKS, width=4), n_prompts=200, n_points=7, baselines=[Mean()])
    for name in ("model", "mean"):
        assert torch.equal(found.curves[name]["squared error"].value, same.curves[name]["squared error"].value)
        assert not torch.equal(found.curves[name]["squared error"].value, other.curves[name]["squared error"].value)


def test_evaluation_does_not_see_the_training_data() -> None:
    index = torch.arange(50)
    trained, tested = (NETWORKS.sample(CounterRNG.of(0, name), index, 3).x for name in ("train", "evaluate"))
    assert not torch.isin(trained, tested).any()


def test_a_shift_changes_the_task_and_is_named(run: Path) -> None:
    shifts = ["task.inputs.w1=0.5", "task.weight_mean=0.5"]
    found = evaluate_run(run, n_prompts=100, shifts=shifts, baselines=["zero"])
    assert found.shifts == tuple(shifts)
    assert (found.task["inputs"]["w1"], found.task["weight_mean"], found.task["width"]) == (0.5, 0.5, 100)
    assert found.scale == NETWORKS.scale  # the unit is the trained task's
    assert any("the shifted task's is" in note for note in found.notes)
    assert evaluate_run(run, n_prompts=100, shifts=["task.inputs.w1=0.5"], baselines=[]).notes == ()
    for shift, words in (
        ("task.d=4", "points of one size; got d = 4; allowed: 3"),
        ("learner.n_layers=2", "only the task of a trained model can be changed"),
        ("task.widht=3", "did you mean task.width"),
    ):
        with pytest.raises(InputError, match=words):
            evaluate_run(run, n_prompts=100, shifts=[shift])


def test_prompts_longer_than_those_of_training(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"learned positions end before the prompt does; got 8 points; allowed: up to 7"
    ):
        evaluate_run(run, n_prompts=10, n_points=8, baselines=[])
    free = replace(EXPERIMENT, learner=replace(SMALL, positions="none"))
    train([free], tmp_path)
    found = evaluate_run(tmp_path, n_prompts=10, n_points=8, baselines=[])
    assert found.notes == ("training saw prompts of at most 7 points: lengths from k = 7 on are longer",)
    assert len(found.curves["model"]["squared error"].value) == 8
    fixed = Curriculum(first_points=4, every=2, buckets=1)
    assert trained_points(replace(EXPERIMENT, train=replace(EXPERIMENT.train, curriculum=fixed))) == 4
    assert trained_points(EXPERIMENT) == 7


def test_a_learner_that_answers_one_query(tmp_path: Path) -> None:
    train([replace(EXPERIMENT, learner=KernelLearnerConfig(n_layers=1))], tmp_path)
    found = evaluate_run(tmp_path, n_prompts=10, baselines=[])
    assert found.notes == ("training asked for the last of 7 points only: at other lengths the learner is on its own",)
    assert bool(found.curves["model"]["squared error"].value.isfinite().all())


def test_names_of_baselines() -> None:
    noisy = Linear(d=3, noise=0.5)
    assert named_baseline("ridge:lam=0.5:intercept=false", noisy) == Ridge(0.5, intercept=False)
    assert named_baseline(" knn:k=5:weights=inverse", noisy) == KNN(5, "inverse")
    assert named_baseline("best", noisy) == Ridge(0.25, intercept=False)
    assert default_baselines(Linear(d=3)) == ([Mean(), LeastSquares()], [])
    chosen, (note,) = default_baselines(DecisionTrees(d=3))
    assert chosen == [Mean()]
    assert "left out: it fits a model for every prompt and length" in note
    for text, words in (
        ("rigde", "unknown kind; got 'rigde'.*did you mean ridge"),
        ("ridge:lamb=1", "baseline ridge: lamb=1: unknown key lamb.*did you mean lam"),
        ("ridge:lam=-1", "lam must be a positive number"),
        ("ridge:lam", "baseline ridge: takes key=value; got 'lam'; allowed: e.g. ridge:lam=0.1"),
        ("ridge:=1", "baseline ridge: takes key=value; got '=1'; allowed: e.g. ridge:lam=0.1"),
    ):
        with pytest.raises(InputError, match=words):
            named_baseline(text, noisy)
    several = [Mean(), KNN(3), KNN(3), KNN(5), Ridge(0.5), Ridge(0.5, intercept=False)]
    found = evaluate(Mean(), noisy, n_prompts=4, n_points=4, baselines=several)
    assert len(found.curves) == 6  # the model, and five that differ


@dataclass(frozen=True)
class Sometimes(Predictor):
    """Predicts at even lengths only."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(torch.arange(y.shape[1]) % 2 == 0, 0.0, math.nan).expand(y.shape)


def test_results_are_json_and_a_table(tmp_path: Path) -> None:
    found = evaluate(Sometimes(), Linear(d=2), n_prompts=50, n_points=5, baselines=[Zero()])
    path = found.save(tmp_path / "new" / "result.json")
    read = json.loads(path.read_text())
    assert read == {"made_by": "innergrad evaluate", **json.loads(json.dumps(found.to_json()))}
    assert (read["n_prompts"], read["task"]["kind"], read["shifts"]) == (50, "linear", [])
    rows = read["curves"]["model"]["squared error"]["rows"]
    assert [row["value"] is None for row in rows] == [False, True, False, True, False]
    assert "2 of 5 lengths" in read["curves"]["model"]["squared error"]["undefined"]
    zero = found.curves["zero"]["squared error"].at(2)
    header, model, baseline = found.table(ks=(1, 2))
    assert header == ["squared error", "k=1", "k=2"]
    assert model == ["model", "-", baseline[2]]
    assert baseline[2].startswith(f"{zero[0]:.3g} ±")
    assert found.table(MEASURES[1])[0] == ["pooled R^2", *(f"k={k}" for k in lengths(5))]


def test_bad_sizes(run: Path) -> None:
    for settings in ({"n_prompts": 1}, {"n_points": 1}, {"batch": 0}, {"seed": -1}):
        with pytest.raises(InputError):
            evaluate_run(run, **{"n_prompts": 10, **settings})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no such model in the stack; got 1; allowed: 0 to 0"):
        evaluate_run(run, model=1)
