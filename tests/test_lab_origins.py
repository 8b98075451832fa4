"""Where weights come from: snapshots, runs that are trained longer, runs that begin with other weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import innergrad as ig
from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab import checkpoints
from innergrad.lab.checkpoints import load
from innergrad.lab.experiments import log_spaced
from innergrad.lab.journal import read_log
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig
from innergrad.lab.weights import packed, unpacked, write_learner

SHAPE = lab.GPTConfig(n_layers=1, d_model=16, n_heads=2, d_mlp=16)
TRAIN = lab.TrainConfig(steps=20, batch=4, log_every=5, checkpoint_every=10, optimiser=lab.Optimiser(lr=1e-2))
ONE = lab.Experiment("one", n_points=5, task=lab.Linear(d=2), learner=SHAPE, train=TRAIN)


def longer(one: lab.Experiment, steps: int) -> lab.Experiment:
    return replace(one, train=replace(one.train, steps=steps))


def theta(path: Path) -> torch.Tensor:
    return load(path).tensors["theta"]


# ----------------------------------------------------------------------------------------------------------- snapshots


def test_log_spaced() -> None:
    assert log_spaced(1000, 1) == (0, 1, 10, 100, 1000)
    assert log_spaced(50, 3) == (0, 1, 2, 5, 10, 22, 46, 50)
    assert log_spaced(1, 4) == (0, 1)


def test_snapshots_are_the_weights_of_their_steps(tmp_path: Path) -> None:
    """Those of a run that ends there, bit for bit; and nothing else of the run changes."""
    kept = replace(ONE, train=replace(TRAIN, snapshots=2))
    result = lab.train(kept, tmp_path / "kept")
    assert [load(path).step for path in lab.snapshots(tmp_path / "kept")] == [0, 1, 3, 10, 20]
    lab.train(ONE, tmp_path / "plain")
    assert torch.equal(theta(tmp_path / "kept"), theta(tmp_path / "plain"))
    assert [row["loss"] for row in result.log] == [row["loss"] for row in read_log(tmp_path / "plain")]
    lab.train(longer(ONE, 3), tmp_path / "three")
    assert torch.equal(theta(lab.snapshots(tmp_path / "kept")[2]), theta(tmp_path / "three"))
    some = lab.snapshots(tmp_path / "kept")[2:4]
    measured = lab.evaluate_many(some, n_prompts=4, baselines=[])
    assert [(one.name, one.step, one.seeds) for one in measured] == [
        ("one, step 3", 3, (0,)),
        ("one, step 10", 10, (0,)),
    ]
    first, _ = lab.load_learner(lab.snapshots(tmp_path / "kept")[0])
    drawn = SHAPE.build(2, 5).init([0])
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), drawn.parameters(), strict=True))


# -------------------------------------------------------------------------------------------------------------- longer


def test_a_finished_run_is_trained_longer(tmp_path: Path) -> None:
    """With a constant rate it ends where the longer run ends, bit for bit; killed in between, too."""
    lab.train(ONE, tmp_path / "run")
    result = lab.train(longer(ONE, 40), tmp_path / "run", resume=True)
    assert (result.step, result.finished) == (40, True)
    lab.train(longer(ONE, 40), tmp_path / "whole")
    assert torch.equal(theta(tmp_path / "run"), theta(tmp_path / "whole"))
    assert lab.read_experiments(tmp_path / "run") == [longer(ONE, 40)]
    resumed = json.loads((tmp_path / "run" / "manifest.json").read_text())["resumed"]
    assert [(one["step"], one["steps"]) for one in resumed] == [(20, {"before": 20, "now": 40})]
    found = lab.evaluate_run(tmp_path / "run", n_prompts=4)
    assert any("trained longer: at step 20 of 20 it was planned for 40 steps" in note for note in found.notes)
    with pytest.raises(InputError, match=r"train\.steps 20, not 40"):
        lab.train(ONE, tmp_path / "run", resume=True)


def test_a_checkpoint_that_does_not_know_a_setting_yet_resumes(tmp_path: Path) -> None:
    lab.train(ONE, tmp_path / "run")
    found = load(tmp_path / "run")
    (table,) = found.meta["experiments"]
    del table["train"]["data_every"], table["task"]["noise"]
    checkpoints.save(tmp_path / "run" / "checkpoints", found.step, found.tensors, found.meta)
    assert lab.train(longer(ONE, 21), tmp_path / "run", resume=True).step == 21


def test_the_rate_follows_the_longer_plan(tmp_path: Path) -> None:
    """With a schedule, the first steps stay what they were: it is not the run that was planned so from the start."""
    falling = replace(ONE, train=replace(TRAIN, optimiser=lab.Optimiser(lr=1e-2, schedule="cosine")))
    lab.train(falling, tmp_path / "run")
    lab.train(longer(falling, 40), tmp_path / "run", resume=True)
    rates = {row["step"]: row["lr"][0] for row in read_log(tmp_path / "run")}
    factor = longer(falling, 40).train.optimiser.factor
    assert rates[25] == pytest.approx(1e-2 * float(factor(torch.tensor(24), 40)))
    assert rates[15] == pytest.approx(1e-2 * float(factor(torch.tensor(14), 20)))


# --------------------------------------------------------------------------------------------------------------- start


def test_a_run_begins_with_the_weights_of_another(tmp_path: Path) -> None:
    lab.train(ONE, tmp_path / "first")
    other = replace(ONE, seed=7, train=replace(TRAIN, steps=10))
    for number, start in enumerate((tmp_path / "first", lab.load_learner(tmp_path / "first")[0])):
        place = tmp_path / str(number)
        lab.train(replace(other, train=replace(other.train, snapshots=1)), place, start=start)
        assert torch.equal(theta(lab.snapshots(place)[0]), theta(tmp_path / "first"))
    assert torch.equal(theta(tmp_path / "0"), theta(tmp_path / "1"))
    about = json.loads((tmp_path / "0" / "manifest.json").read_text())["start"]
    assert (about["from"], about["step"], len(about["sha256"])) == ("first", 20, 64)
    note = "training began with the weights of first"
    assert note in lab.evaluate_run(tmp_path / "0", n_prompts=4).notes
    stack = [replace(other, seed=seed) for seed in (1, 2)]
    both = lab.train(stack, start=tmp_path / "first").learner  # one model into all
    assert not torch.equal(both.get_parameter("W_E")[0], both.get_parameter("W_E")[1])  # they saw other prompts


def test_a_run_that_was_killed_at_once_still_has_its_start(tmp_path: Path) -> None:
    lab.train(ONE, tmp_path / "first")
    other = replace(ONE, seed=7)
    whole = lab.train(other, tmp_path / "whole", start=tmp_path / "first")

    def power(step: int, words: str = "") -> None:
        raise RuntimeError("the power is out")

    with pytest.raises(RuntimeError, match="power"):
        lab.train(other, tmp_path / "cut", start=tmp_path / "first", progress=power)
    assert load(tmp_path / "cut").step == 0
    again = lab.train(other, tmp_path / "cut", resume=True)
    for a, b in zip(whole.learner.parameters(), again.learner.parameters(), strict=True):
        assert torch.equal(a, b)


def test_weights_that_do_not_fit() -> None:
    wide = replace(SHAPE, d_mlp=24).build(2, 5)
    with pytest.raises(InputError, match=r"of another shape: W_in; got \[1, 16, 24\]; allowed: \[1, 16, 16\]"):
        lab.train(ONE, start=wide)
    with pytest.raises(InputError, match="another number of models; got 2; allowed: 1"):
        lab.train(ONE, start=SHAPE.build(2, 5, stack=2))


# ------------------------------------------------------------------------------------------------------------ compiled


@pytest.mark.parametrize(
    "algorithm",
    [
        ig.FunctionalGradientDescent("exp", steps=3, d=2, step=0.1, covariate_step=-0.02),
        ig.FunctionalGradientDescent(ig.Kernel("linear") + 0.5 * ig.Kernel("exp", bandwidth=2.0), 2, d=2, step=0.1),
        ig.FunctionalLayers([ig.FunctionalHead("softmax", 0.7, A=0.1, B=[[1.0, 2.0]], C=[[0.5, -1.0]])] * 2, d=2),
    ],
    ids=["moves", "sum", "layers"],
)
def test_a_compiled_transformer_is_a_learner(algorithm: ig.Algorithm) -> None:
    tf = ig.compile(algorithm, n_examples=4)
    learner = lab.from_compiled(tf, free_A=True).double()
    generator = torch.Generator().manual_seed(0)
    X, y = torch.rand(3, 5, 2, generator=generator).double(), torch.rand(3, 5, generator=generator).double()
    expected = tf.run(X[:, :4], y[:, :4], X[:, 4:]).predictions[:, 0]
    assert torch.allclose(
        learner(X[None], y[None])[0, :, 0], expected, atol=2e-7
    )  # its numbers were rounded to 32 bits


def test_what_is_no_learner() -> None:
    tf = ig.compile(ig.FunctionalGradientDescent("linear", steps=2, d=2, step=0.1, covariate_step=0.1))
    with pytest.raises(InputError, match="A is not 0; give free_A=True"):
        lab.from_compiled(tf)
    with pytest.raises(InputError, match=r"no learner of the lab has the shape .* got OnlineSGD"):
        lab.from_compiled(ig.compile(ig.OnlineSGD(d=2)))


def test_training_goes_on_from_a_compiled_transformer() -> None:
    """It begins with the error of descent, and improves on it."""
    descent = lab.from_compiled(ig.compile(ig.FunctionalGradientDescent("linear", steps=2, d=3, step=0.02)))
    shape = KernelLearnerConfig(n_layers=2, heads=("linear",))
    train = lab.TrainConfig(steps=60, batch=32, log_every=1, optimiser=lab.Optimiser(lr=1e-2))
    one = lab.Experiment(n_points=9, task=lab.Linear(d=3), learner=shape, train=train)
    log = lab.train(one, start=descent).log
    x, y, _ = one.task.sample(lab.CounterRNG.of(0, "train"), torch.arange(32), 9)
    first = (descent(x[None], y[None]).detach()[0, :, 0] - y[:, -1]).square().mean() / 3
    assert log[0]["loss"][0] == pytest.approx(float(first), rel=1e-5)
    assert log[-1]["loss"][0] < 0.5 * log[0]["loss"][0]


# --------------------------------------------------------------------------------------------------------------- bits


def test_weights_in_fewer_bits(tmp_path: Path) -> None:
    theta = torch.randn(1, 256, generator=torch.Generator().manual_seed(0))
    assert torch.equal(unpacked(packed(theta, 64, 16)), theta.half().float())
    found = unpacked(made := packed(theta, 64, 8))
    assert found is not None
    assert torch.equal(found[:, :64], theta[:, :64].half().float())
    steps = theta[:, 64:].unflatten(1, (-1, 32)).abs().amax(-1, keepdim=True) / 127
    off = (found - theta)[:, 64:].unflatten(1, (-1, 32)).abs()
    assert (off <= 0.5 * steps * 1.15).all()  # half a step, and the rounding of the step, at most 127 / 2^11 of it
    assert off.max() > 0.25 * steps.min()
    assert (made["theta_8"].dtype, made["scale_8"].shape) == (torch.int8, (1, 6))
    assert unpacked({**made, "scale_8": made["scale_8"][:, 1:]}) is None
    learner = SHAPE.build(2, 5).init([3])
    path = write_learner(tmp_path, learner, ONE, 11, bits=8)
    again, experiment = lab.load_learner(path)
    assert experiment == ONE
    assert isinstance(again, type(learner))
    for (name, a), b in zip(learner.named_parameters(), again.parameters(), strict=True):
        assert torch.allclose(a, b, atol=float(a.detach().abs().max()) / 200), name


def test_kernel_learners_have_no_8_bits_to_lose(tmp_path: Path) -> None:
    learner = KernelLearnerConfig(n_layers=2).build(3, 5).init([0])
    assert isinstance(learner, KernelLearner)
    one = replace(ONE, task=lab.Linear(d=3), learner=learner.config)
    again, _ = lab.load_learner(write_learner(tmp_path, learner, one, 1, bits=8))
    assert torch.equal(again.get_parameter("r"), learner.r.half().float())


# ------------------------------------------------------------------------------------------------ the stored experiment


@pytest.mark.soak
def test_the_experiment_about_constructions(tmp_path: Path) -> None:
    """Before training, the compiled transformer has its form, and the error of three steps of descent."""
    import from_compiled

    rows = from_compiled.run(tmp_path, steps=2, tested=64)
    first = [row for row in rows if row["start"] == "compiled" and row["step"] == 0 and row["inputs"] == "sphere"]
    assert len(first) == 2 * len(from_compiled.SEEDS)
    assert {(row["plain"], row["apart"]) for row in first} == {(0.0, 0.0)}
    one = from_compiled.experiments(False)[0]
    x, y = from_compiled.prompts(one.task, 64, 21, 1, 64, "cpu")
    w = torch.zeros(64, 5)
    for _ in range(3):
        w = w + 0.15 * torch.einsum("bnd,bn->bd", x[:, :-1], y[:, :-1] - torch.einsum("bnd,bd->bn", x[:, :-1], w))
    error = ((x[:, -1] * w).sum(-1) - y[:, -1]).square().mean()
    assert first[0]["error"] == pytest.approx(float(error), rel=1e-4)


def test_what_the_page_says_about_constructions() -> None:
    """docs/lab.md, from the stored results: which form is kept, which is reached, and which is not."""
    import from_compiled

    rows = from_compiled.read("from_compiled")["rows"]
    last = max(row["step"] for row in rows)

    def ends(inputs: str, free_A: bool, start: str, name: str, step: int = last) -> list[float]:
        return [row[name] for row in from_compiled.chosen(rows, inputs, free_A, start, step)]

    assert max(ends("sphere", False, "compiled", "whitened")) < 0.05
    assert max(ends("sphere", False, "compiled", "error")) < 0.25 * min(ends("sphere", False, "compiled", "error", 0))
    assert ends("sphere", False, "random", "error") == pytest.approx(
        ends("sphere", False, "compiled", "error"), rel=0.1
    )
    assert (
        max(ends("Sigma", False, "compiled", "whitened")) < 0.05 < 0.5 < min(ends("Sigma", False, "compiled", "plain"))
    )
    assert min(ends("Sigma", False, "compiled", "whitened", 0)) > 0.5
    assert min(ends("Sigma", False, "random", "whitened")) > 0.1
    for inputs in ("sphere", "Sigma"):
        before, after = (ends(inputs, True, "compiled", "error", step) for step in (0, last))
        assert max(after) < 0.01 * min(before)
        assert min(ends(inputs, True, "random", "error")) > 10 * max(after)
    assert (
        max(ends("sphere", True, "compiled", "whitened")) < 0.1 < 0.3 < min(ends("Sigma", True, "compiled", "whitened"))
    )
