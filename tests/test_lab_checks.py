"""Checks of tasks and predictors of one's own: what is shipped passes, and each kind of slip is found."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab.baselines import Boosting, KernelDensity, Mean, Predictor, Ridge, TrainedNetwork, Tree, TunedRidge
from innergrad.lab.checks import check_predictor, check_task, is_users_own
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners import KernelLearner, KernelLearnerConfig
from innergrad.lab.tasks import (
    DecisionTrees,
    Gaussian,
    GaussianProcesses,
    Inputs,
    KernelTerm,
    Linear,
    Mixture,
    Networks,
    Params,
    Pool,
    Prompts,
    SmoothFunctions,
    Task,
    Vectors,
    measured_scale,
)
from test_lab_baselines import PREDICTORS

SHIPPED = {kind: cls for kind, cls in Task.kinds.items() if cls.__module__.startswith("innergrad.lab.tasks")}
COMBINED: dict[str, Task] = {  # the kinds without defaults
    "pool": Pool(Networks(d=6, width=16), size=20),
    "mixture": Mixture((Linear(d=4, noise=0.1), Networks(d=4, width=16, noise=0.1))),
    "vectors": Vectors(Networks(d=4, width=16, noise=0.1), size=3),
}
OTHERS: dict[str, Task] = {
    "noisy linear": Linear(d=5, noise=0.3, inputs=Gaussian(mean=1.0)),
    "deep tanh network": Networks(d=6, layers=4, width=16, activation="tanh", bias=True),
    "relu process": GaussianProcesses(terms=(KernelTerm("relu"),)),
    "deep tree": DecisionTrees(d=3, depth=6),
    "smooth": SmoothFunctions(d=4, waves=64),
}
CHECKED: list[Predictor] = [  # and those that fit at some lengths only
    *PREDICTORS,
    Tree(ks=(0, 3)),
    Boosting(trees=3, ks=(0, 2, 5)),
    TrainedNetwork(width=8, epochs=3, batch=2, ks=(1, 4)),
]


# --------------------------------------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize("kind", sorted(SHIPPED))
def test_every_shipped_task_passes(kind: str) -> None:
    assert check_task(COMBINED[kind] if kind in COMBINED else SHIPPED[kind]()) == ()


@pytest.mark.parametrize("task", OTHERS.values(), ids=OTHERS.keys())
def test_other_settings_pass(task: Task) -> None:
    assert check_task(task, n=5) == ()


@dataclasses.dataclass(frozen=True)
class OldInputs(Inputs):
    """Inputs, and below a task and a learner, of users who call the generator by the name that it once had."""

    def sample(self, stream: lab.Stream, index: Tensor, n: int, d: int) -> Tensor:
        return stream.normal(index, n, d)


@dataclasses.dataclass(frozen=True)
class OldTask(Task):
    inputs: Inputs = dataclasses.field(default_factory=OldInputs)

    def params(self, stream: lab.Stream, index: Tensor, n: int) -> Params:
        return {"w": stream.normal(index, self.d)}

    def points(self, stream: lab.Stream, index: Tensor, n: int, params: Params) -> Tensor:
        return super().points(stream, index, n, params)

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.einsum("bnd,bd->bn", x, params["w"]) / self.d**0.5


class OldLearner(KernelLearner):
    def draw(self, name: str, stream: lab.Stream, shape: torch.Size) -> Tensor:
        return super().draw(name, stream, shape)


@dataclasses.dataclass(frozen=True)
class OldConfig(KernelLearnerConfig):
    def build(self, d: int, n_points: int, stack: int = 1) -> OldLearner:
        return OldLearner(self, d, stack)


def test_classes_that_call_the_generator_stream_still_work() -> None:
    """Its class, its module and the parameter were once named after streams; overrides are called by position."""
    task = OldTask(d=3)
    assert lab.Stream is lab.CounterRNG
    assert check_task(task) == ()
    assert check_task(Pool(task, 4)) == check_task(Mixture((task, Linear(d=3)))) == ()
    assert measured_scale(task) == pytest.approx(1.0, abs=0.05)
    one = lab.Experiment(n_points=4, task=task, learner=OldConfig(n_layers=1), train=lab.TrainConfig(steps=2, batch=4))
    assert lab.train(one).finished


@dataclasses.dataclass(frozen=True)
class Right(Task):
    """y = w . x, from which the wrong tasks differ in one place."""

    d: int = 3

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": rng.normal(index, self.d)}

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.einsum("bnd,bd->bn", x, params["w"])


class GlobalParams(Right):
    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": torch.randn(len(index), self.d)}


class SeededParams(Right):
    """The same numbers every time, and for every user of torch's generator."""

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        torch.manual_seed(0)
        return {"w": torch.randn(self.d).expand(len(index), -1)}


class GlobalPoints(Right):
    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return torch.rand(len(index), n, self.d)


class GlobalEvaluate(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x) + torch.randn(x.shape[:2])


class ByPlace(Right):
    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": rng.normal(torch.arange(len(index)), self.d)}


class Normalised(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        y = super().evaluate(params, x)
        return y / y.square().mean().sqrt()


class EditsX(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x.clamp_(-1.0, 1.0))


class EditsParams(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        params["w"] += 1.0
        return super().evaluate(params, x)


class AddsParams(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        params["seen"] = x
        return super().evaluate(params, x)


class InfiniteLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return 1.0 / super().evaluate(params, x).relu()


class InfinitePoints(Right):
    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return super().points(rng, index, n, params).sqrt()


class TurnedPoints(Right):
    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return super().points(rng, index, n, params).mT


class OneParameterForAll(Right):
    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": rng.normal(index[:1], self.d)[0]}


class NoDictionary(Right):
    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return rng.normal(index, self.d)  # type: ignore[return-value]


class WrongLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x)[..., None]


class NoScale(Right):
    @property
    def scale(self) -> float:
        return 0.0


class WholeLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x).round().long()


class ComplexLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x) + 0j


class WholePoints(Right):
    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return rng.integers(index, 5, n, self.d)


class LearningLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x) * torch.ones((), requires_grad=True)


class ConstantLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.ones_like(x[..., 0])


class ZeroLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., 0])


class OneSeed(Right):
    """By index, but not from the generator."""

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": CounterRNG.of(5, "mine").normal(index, self.d)}

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return CounterRNG.of(6, "mine").normal(index, n, self.d)


class OnePrompt(Right):
    """From the generator, but not by index."""

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": rng.normal(torch.zeros_like(index), self.d)}

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return rng.normal(torch.zeros_like(index), n, self.d)


class LongSample(Right):
    def sample(self, rng: CounterRNG, index: Tensor, n: int, dims: int | Tensor | None = None) -> Prompts:
        return super().sample(rng, index, n + 1, dims)


class LargeLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return 30.0 * super().evaluate(params, x)


class SmallLabels(Right):
    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return super().evaluate(params, x) / 30.0


class WrongScale(Right):
    @property
    def scale(self) -> float:
        return 50.0


class ChangingScale(Right):
    @property
    def scale(self) -> float:
        return 1.0 + 0.1 * next(TICKS)


class TextScale(Right):
    @property
    def scale(self) -> float:
        return "1"  # type: ignore[return-value]


TICKS = itertools.count()
FAR = "scale is far from the size of its labels, .*root mean square of labels is .*measured_scale"
WRONG_TASKS = [
    (WholeLabels, "labels must be floating-point numbers; got torch.int64"),
    (ComplexLabels, "labels must be floating-point numbers; got torch.complex64"),
    (WholePoints, "points must be floating-point numbers; got torch.int64"),
    (LearningLabels, "labels require gradients"),
    (ConstantLabels, "all labels are equal: there is nothing to learn; got 1 "),
    (ZeroLabels, "all labels are equal: there is nothing to learn; got 0 "),
    (OneSeed, "prompts are the same for every seed"),
    (OnePrompt, "all prompts are the same"),
    (LongSample, r"sample gives points of another shape; got a tensor \(8, 9, 3\); allowed: \(8, 8, 3\)"),
    (LargeLabels, FAR),
    (SmallLabels, FAR),
    (WrongScale, FAR),
    (ChangingScale, "scale is another number when it is asked again"),
    (TextScale, "scale must be a positive number"),
    (GlobalParams, r"params \(w\) are other numbers when the same prompts are drawn again"),
    (SeededParams, "global random numbers"),
    (GlobalPoints, "points are other numbers"),
    (GlobalEvaluate, "evaluate gives other labels when it is called again"),
    (ByPlace, r"params \(w\) of a prompt depend on the batch"),
    (Normalised, "labels of a prompt depend on the batch it is drawn in"),
    (EditsX, "evaluate changes x in place"),
    (EditsParams, "evaluate changes params in place"),
    (AddsParams, "evaluate changes params in place"),
    (InfiniteLabels, "labels must be finite; got inf"),
    (InfinitePoints, "points must be finite; got nan"),
    (TurnedPoints, r"points must be \(B, n, d\); got a tensor \(8, 3, 8\)"),
    (OneParameterForAll, r"dictionary of tensors \(B, ...\); got a tensor \(3,\)"),
    (NoDictionary, "dictionary of tensors"),
    (NoScale, "scale must be a positive number"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG_TASKS, ids=[wrong.__name__ for wrong, _ in WRONG_TASKS])
def test_wrong_tasks_are_named(wrong: type[Task], words: str) -> None:
    assert check_task(Right()) == ()
    with pytest.raises(InputError, match=f"{wrong.__name__}: .*{words}"):
        check_task(wrong())


def test_labels_of_another_shape_are_an_error() -> None:
    with pytest.raises(InputError, match="evaluate must return labels"):
        check_task(WrongLabels())


@pytest.mark.parametrize("std", [100.0, 0.001, 1e-20, 1e15])
def test_a_scale_that_is_far_off_is_an_error(std: float) -> None:
    with pytest.raises(InputError, match=f"Right: {FAR}"):
        check_task(Right(inputs=Gaussian(std=std)))
    (note,) = check_task(Right(inputs=Gaussian(std=std)), shifted=True)  # it was trained on another
    assert note.startswith("Right: learners see y / scale: the root mean square of labels is")
    assert check_task(Right(inputs=Gaussian(std=2.0))) == ()


@pytest.mark.parametrize("factor", [3.0**k for k in range(-7, 8)])
def test_how_far_a_scale_may_be_off(factor: float) -> None:
    """Nothing up to 4, a note up to 10, then an error: whichever is the larger."""

    class Scaled(Right):
        @property
        def scale(self) -> float:
            return factor * 3**0.5

    far = max(factor, 1.0 / factor)
    if far > 10.0:
        with pytest.raises(InputError, match=FAR):
            check_task(Scaled())
    else:
        assert len(check_task(Scaled())) == (far > 4.0)


def test_a_task_inside_another_is_looked_at() -> None:
    """Training checks the user's own, also those that a pool or a mixture is made of."""
    one = lab.Experiment(
        n_points=4, task=Linear(d=3), learner=KernelLearnerConfig(), train=lab.TrainConfig(steps=1, batch=4)
    )
    for task in (LargeLabels(), Pool(LargeLabels(), 4), Mixture((Linear(d=3), LargeLabels()))):
        assert is_users_own(task)
        with pytest.raises(InputError, match="scale is far"):
            check_task(task)
        with pytest.raises(InputError, match="scale is far"):
            lab.train(dataclasses.replace(one, task=task))
    assert not is_users_own(Pool(Linear(d=3), 4))


def test_classes_are_not_tasks() -> None:
    with pytest.raises(InputError, match="takes a task"):
        check_task(Right)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="takes a predictor"):
        check_predictor(Mean, 3)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- predictors


@pytest.mark.parametrize("predictor", CHECKED, ids=lambda p: p.name.replace(" ", "_"))
def test_every_shipped_predictor_passes(predictor: Predictor) -> None:
    check_predictor(predictor, d=3)


def test_no_shipped_predictor_is_left_out() -> None:
    shipped = {cls for cls in Predictor.kinds.values() if cls.__module__.startswith("innergrad.lab.baselines")}
    assert {type(predictor) for predictor in CHECKED} == shipped - {KernelDensity}  # its samples may stand anywhere


class MeanOfAll(Predictor):
    """A mean over all prompts and the labels seen in them: it tunes on all of them together, as it may."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return Mean()(x, y).mean(0, keepdim=True).expand_as(y)


class Copies(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return y


class LaterPoints(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return Ridge(intercept=False)(x - x.mean(1, keepdim=True), y)


class LastLabel(Predictor):
    """Right until the last point."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([Mean()(x, y)[:, :-1], y[:, -1:]], 1)


class ReturnsNothing(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


class Columns(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(y)[..., None]


class Random(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.randn_like(y)


class EditsLabels(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        y -= 1.0
        return torch.zeros_like(y)


class EditsPoints(Predictor):
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        x /= 2.0
        return torch.zeros_like(y)


WRONG_PREDICTORS = [
    (Copies(), "looks ahead: the prediction of y_0 changes with y_0 or later labels"),
    (LaterPoints(), "looks ahead: the prediction of y_1 changes with points after x_1"),
    (LastLabel(), "looks ahead: the prediction of y_5 changes with y_5"),
    (TunedRidge(select="oracle"), "looks ahead"),  # as oracles do
    (TrainedNetwork(width=8, epochs=9, lr=0.05, epoch="per-prompt"), "looks ahead"),
    (ReturnsNothing(), "must return predictions .* got NoneType; allowed: a tensor \\(4, 6\\)"),
    (Columns(), "got a tensor \\(4, 6, 1\\)"),
    (Random(), "change when it is called again"),
    (EditsLabels(), "changes y in place"),
    (EditsPoints(), "changes x in place"),
]


@pytest.mark.parametrize(
    ("wrong", "words"), WRONG_PREDICTORS, ids=[type(wrong).__name__ for wrong, _ in WRONG_PREDICTORS]
)
def test_wrong_predictors_are_named(wrong: Predictor, words: str) -> None:
    with pytest.raises(InputError, match=f"{type(wrong).__name__}.* {words}"):
        check_predictor(wrong, d=3)


def test_choices_may_depend_on_all_prompts() -> None:
    check_predictor(MeanOfAll(), d=3)
