"""Labels that are vectors: the same laws as for numbers, column by column, in every part of the lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import innergrad as ig
from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab import baselines, metrics
from innergrad.lab.learners.gpt import GPT
from innergrad.lab.tasks import Mixture, Pool, Vectors
from innergrad.testing import invariance

PAIR = Vectors(lab.Linear(d=3, noise=0.5), size=2)
SHAPE = lab.GPTConfig(n_layers=1, d_model=16, n_heads=2, d_mlp=16)
ONE = lab.Experiment(n_points=6, task=PAIR, learner=SHAPE, train=lab.TrainConfig(steps=3, batch=8))


def prompts(task: lab.Task = PAIR, rows: int = 5, n: int = 7) -> lab.Prompts:
    return task.sample(lab.CounterRNG.of(0, "vectors"), torch.arange(rows), n)


# --------------------------------------------------------------------------------------------------------------- tasks


def test_each_number_is_a_function_of_the_family_with_noise_of_its_own() -> None:
    x, y, params = prompts(rows=4000, n=2)
    exact = torch.stack([(x @ params[f"{number}.w"][..., None])[..., 0] for number in (0, 1)], 2)
    noise = (y - exact).flatten(0, 1)
    assert y.shape == (4000, 2, 2)
    assert noise.mT.cov().sub(0.25 * torch.eye(2)).abs().max() < 0.02
    assert float(exact.square().mean().sqrt()) == pytest.approx(PAIR.scale, rel=0.03)
    assert lab.tasks.measured_scale(PAIR) == pytest.approx(PAIR.scale, rel=0.03)


@pytest.mark.parametrize("task", [PAIR, Pool(PAIR, size=3), Mixture((PAIR, PAIR))])
def test_tasks_of_vectors_keep_the_promises(task: lab.Task) -> None:
    assert task.outputs == 2
    assert lab.check_task(task) == ()


@dataclass(frozen=True)
class Wrong(lab.Task, kind="three-for-two"):
    d: int = 2

    @property
    def outputs(self) -> int:
        return 2

    def params(self, rng: lab.CounterRNG, index: Tensor, n: int) -> dict[str, Tensor]:
        return {"w": rng.normal(index, 3)}

    def evaluate(self, params: dict[str, Tensor], x: Tensor) -> Tensor:
        return params["w"][:, None].expand(*x.shape[:2], 3)


# ----------------------------------------------------------------------------------------------------------- baselines


@pytest.mark.parametrize(
    "predictor",
    [
        baselines.Zero(),
        baselines.Mean(),
        baselines.KNN(),
        baselines.LeastSquares(),
        baselines.Ridge(),
        baselines.TunedRidge(),
        baselines.Lasso(),
        baselines.KernelBayes(),
        baselines.KernelBayes("relu"),
        baselines.NNGP(),
        baselines.OneStep(),
        baselines.OnePass(),
    ],
    ids=lambda one: one.name,
)
def test_a_baseline_predicts_every_number_by_itself(predictor: lab.Predictor) -> None:
    x, y, _ = prompts()
    apart = torch.stack([predictor(x, y[..., number]) for number in (0, 1)], 2)
    torch.testing.assert_close(predictor(x, y), apart, rtol=1e-6, atol=1e-6)
    lab.check_predictor(predictor, d=3, n=4, outputs=2)


def test_a_trained_network_has_as_many_outputs_and_is_trained_as_torch_does() -> None:
    x, y, _ = prompts(rows=2, n=5)
    settings = baselines.TrainedNetwork(layers=2, width=8, epochs=4, optimiser="sgd", lr=0.05, ks=(4,))
    weights = [nn.Parameter(weight.clone()) for weight in settings.start(x, 2)]
    optimiser = torch.optim.SGD(weights, lr=0.05)
    for _ in range(4):
        optimiser.zero_grad()
        ((x[1, :4] @ weights[0]).relu() @ weights[1] - y[1, :4]).square().sum(1).mean().backward()
        optimiser.step()
    wanted = (x[1, 4] @ weights[0]).relu() @ weights[1]
    fits = settings.fit(x, y)
    torch.testing.assert_close(fits.last[1, 4], wanted.detach(), rtol=1e-5, atol=1e-6)
    for chosen in (fits.best, fits.best_per_prompt):
        assert chosen.shape == y.shape
    assert float((fits.best_per_prompt - y)[:, 4].square().sum()) <= float((fits.best - y)[:, 4].square().sum())


def test_a_compiled_network_has_as_many_outputs() -> None:
    x, y, _ = prompts(rows=2, n=3)
    settings = baselines.CompiledNetwork(hidden=(3,), steps=2)
    found, tf = settings(x, y), settings.transformer(3, 2, outputs=2)
    alone = tf.run(x[1, :2].double(), y[1, :2].double(), x[1, 2:].double(), seed=0)
    torch.testing.assert_close(found[1, 2], alone.predictions[0].float(), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ learners


@pytest.mark.parametrize("tokens", ["interleaved", "columns"])
def test_a_gpt_that_ignores_the_second_number_is_the_gpt_of_the_first(
    tokens: Literal["interleaved", "columns"],
) -> None:
    shape = replace(SHAPE, tokens=tokens)
    one, two = shape.build(3, 7).init([0]), shape.build(3, 7, outputs=2).init([1])
    with torch.no_grad():
        for name, value in one.named_parameters():
            mine = two.get_parameter(name)
            if name == "W_E":
                mine.copy_(torch.cat((value[:, :1], torch.zeros_like(value[:, :1]), value[:, 1:]), 1))
            elif name in ("W_U", "b_U"):
                mine[..., :1].copy_(value)
            else:
                mine.copy_(value)
    x, y, _ = prompts()
    torch.testing.assert_close(two.predict(x, y)[..., 0], one.predict(x, y[..., 0]), rtol=1e-5, atol=1e-5)
    seen = torch.cat((y[:, :2], y[:, 2:] + 1.0), 1)
    assert torch.equal(two.predict(x, seen)[:, :3], two.predict(x, y)[:, :3])  # no look ahead
    with torch.no_grad():
        two.get_parameter("W_E")[:, 1, ::2] = 1.0  # now it reads the second number too
    assert not torch.allclose(two.predict(x, y)[..., 0], one.predict(x, y[..., 0]))


def test_the_kernel_learner_predicts_every_number_by_itself() -> None:
    shape = lab.KernelLearnerConfig(n_layers=2, heads=("softmax", "linear"), free_A=True, init_r=-0.1)
    one: Any = shape.build(3, 7).init([0])
    two: Any = shape.build(3, 7, outputs=2).init([0])
    x, y, _ = prompts()
    apart = torch.stack([one.predict(x, y[..., number]) for number in (0, 1)], 2)
    torch.testing.assert_close(two.predict(x, y), apart, rtol=1e-5, atol=1e-6)
    assert two.as_algorithm().d_y == 2


def test_a_compiled_transformer_of_several_labels_becomes_a_learner() -> None:
    algorithm = ig.FunctionalGradientDescent("linear", steps=2, d=3, d_y=2, step=0.1)
    learner = lab.from_compiled(tf := ig.compile(algorithm, n_examples=6))
    x, y, _ = prompts()
    run = tf.run(x[:, :-1].double(), y[:, :-1].double(), x[:, -1:].double())
    torch.testing.assert_close(learner.predict(x, y)[:, -1].double(), run.predictions[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["alone", "in a stack", "of a shorter prompt"])
def test_rows_of_a_batch_are_independent(name: str) -> None:
    x, y, _ = prompts()
    learner = SHAPE.build(3, 7, outputs=2).init([0])
    assert invariance.rows(learner, x, y, name, torch.Generator().manual_seed(0)).share <= 1.0


def test_the_loss_is_the_mean_over_numbers_in_units_of_the_scale() -> None:
    learner = SHAPE.build(3, 6, stack=2, outputs=2)
    learner.scale.copy_(torch.tensor([1.0, 2.0]))
    generator = torch.Generator().manual_seed(0)
    p, y = (torch.randn(2, 4, 6, 2, generator=generator) for _ in range(2))
    wanted = (p - y).square().mean((1, 2, 3)) / torch.tensor([1.0, 4.0])
    torch.testing.assert_close(learner.loss(p, y), wanted)
    few = (p - y)[:, :, :3].square().mean((1, 2, 3)) / torch.tensor([1.0, 4.0])
    torch.testing.assert_close(learner.loss(p, y, torch.tensor(3)), few)


def test_a_checkpoint_of_garg_may_have_a_wider_read_out() -> None:
    made: Any = lab.GPTConfig(n_layers=1, d_model=32, n_heads=1, d_mlp=64).build(d=3, n_points=7).init([0])
    generator = torch.Generator().manual_seed(0)
    state = {f"_backbone.{name}": value for name, value in made.to_gpt2().items()}
    state |= {"_read_in.weight": torch.randn(32, 3, generator=generator), "_read_in.bias": torch.zeros(32)}
    state |= {"_read_out.weight": torch.randn(2, 32, generator=generator), "_read_out.bias": torch.zeros(2)}
    x, y, _ = prompts()
    tokens = lab.interleave(x, y) @ state["_read_in.weight"].mT
    learner = lab.load_garg(state)
    embedded = learner.embed(x[None], y[None], dict(learner.named_parameters()))[0]
    torch.testing.assert_close(embedded, tokens[:, :-1] + state["_backbone.wpe.weight"])
    assert learner.predict(x, y).shape == y.shape


def test_a_wrapped_module_predicts_vectors() -> None:
    narrow, wide = nn.Linear(3, 8), nn.Linear(8, 2)
    learner = lab.wrap(
        nn.Tanh(),
        d=3,
        read_in=lambda x, y: narrow(lab.interleave(x, y)),
        read_out=lambda states: wide(states)[:, ::2],
        outputs=2,
    )
    x, y, _ = prompts()
    assert learner.predict(x, y).shape == y.shape


# ------------------------------------------------------------------------------------------- training and measuring


def test_training_checkpoints_and_evaluation(tmp_path: Path) -> None:
    result = lab.train([ONE, replace(ONE, seed=1)], tmp_path / "run")
    learner, experiment = lab.load_learner(tmp_path / "run", model=1)
    assert experiment.task == PAIR
    assert isinstance(learner, GPT)
    x, y, _ = prompts(n=6)
    assert torch.equal(learner.predict(x, y), result.learner.model(1).predict(x, y))
    found = lab.evaluate_run(tmp_path / "run", n_prompts=16)
    assert list(found.curves) == ["model", "mean", "ridge 0.25"]
    with pytest.raises(InputError, match="predicts labels of one size"):
        lab.evaluate_run(tmp_path / "run", n_prompts=16, shifts=["task.size=3"])


@pytest.mark.soak
def test_training_learns_vectors() -> None:
    task = Vectors(lab.Linear(d=1), size=2)
    train = lab.TrainConfig(steps=200, batch=64, optimiser=lab.Optimiser(lr=1e-2))
    result = lab.train(lab.Experiment(n_points=4, task=task, learner=replace(SHAPE, n_layers=2), train=train))
    found = lab.evaluate(result.learner.predict, task, n_prompts=256, n_points=4)
    assert found.curves["model"]["squared error"].at(3)[0] < 0.6  # 1 is a prediction of zero


@pytest.mark.parametrize("measure", [metrics.squared_error, metrics.pooled_r2, metrics.within_prompt_r2])
def test_measures_average_squares_over_numbers(measure: Callable[..., metrics.Curve]) -> None:
    generator = torch.Generator().manual_seed(0)
    p, y = (torch.randn(40, 5, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    found = measure(p, y).value
    if measure is metrics.squared_error:
        wanted = torch.stack([measure(p[..., number], y[..., number]).value for number in (0, 1)]).mean(0)
    else:
        spread = (y - y.mean(0)).square().sum(0) if measure is metrics.pooled_r2 else y.var(1).sum(0)
        wanted = 1.0 - (p - y).square().sum((0, 2)) / spread.sum(-1)
    torch.testing.assert_close(found, wanted)
    same = torch.stack((p[..., 0], p[..., 0]), 2), torch.stack((y[..., 0], y[..., 0]), 2)
    torch.testing.assert_close(measure(*same).value, measure(p[..., 0], y[..., 0]).value)


def test_probes_have_targets_of_vectors() -> None:
    x, y, params = prompts(replace(PAIR, task=lab.Linear(d=3)))
    weights = torch.stack((params["0.w"], params["1.w"]), 2).flatten(1)
    torch.testing.assert_close(lab.probes.least_squares(x, y), weights, rtol=1e-4, atol=1e-4)
    wanted = torch.stack([lab.probes.moments(x, y[..., number]) for number in (0, 1)], 2).flatten(1)
    torch.testing.assert_close(lab.probes.moments(x, y), wanted)
    learner, short = SHAPE.build(3, 6, outputs=2).init([0]), lab.ProbeConfig(steps=2, batch=4, n_prompts=4)
    assert lab.probe(learner, PAIR, prefixes=[3], n_points=6, config=short).steps == 2


# ------------------------------------------------------------------------------------------------------------ refusals


@dataclass(frozen=True)
class Narrow(lab.LearnerConfig, kind="one-number-alone"):
    def build(self, d: int, n_points: int, stack: int = 1) -> lab.Learner:
        return lab.Learner(d, stack)


X, Y, _ = prompts()
LINEAR = replace(ONE, task=lab.Linear(d=3, noise=0.5))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: lab.check_task(Wrong()), "labels (B, n, outputs)"),
        (lambda: Vectors(PAIR), "for labels of one number; got labels of 2"),
        (lambda: Vectors(lab.Linear(d=3), size=1), "size"),
        (lambda: Mixture((PAIR, lab.Linear(d=3, noise=0.5))), "one number of outputs"),
        (lambda: lab.train([ONE, LINEAR]), "task.outputs"),
        (lambda: lab.train(replace(ONE, learner=Narrow())), "kind one-number-alone predicts one number"),
        (lambda: lab.compare(baselines.Ridge(), PAIR), "linear algorithms is for labels of one number"),
        (lambda: lab.matching_ridge(Y, X, Y), "ridge regression is for labels of one number"),
        (lambda: lab.implied_weights(baselines.Ridge(), X, Y, X, [2]), "is for labels of one number"),
        (lambda: SHAPE.build(3, 7, outputs=2).predict(X, Y[..., 0]), "outputs = 2"),
        (lambda: SHAPE.build(3, 7).predict(X, Y), "prompts are x (B, n, d) and y (B, n)"),
        (lambda: lab.interleave(X, torch.zeros(5, 7, 4)), "wider than a point"),
        (lambda: metrics.mean_r2(torch.zeros(4, 2, 3, 2), torch.zeros(4, 2, 3, 2)), "labels of one number"),
        (
            lambda: lab.train(
                replace(ONE, learner=lab.KernelLearnerConfig(), train=replace(ONE.train, labels="averaged"))
            ),
            "averaging over labels is for labels of one number",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as found:
        wrong()
    assert words in str(found.value)
