"""Scores from samples: the task, the kernel density, and the learner that reads samples as a set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innergrad import diffusion, lab, zoo
from innergrad.diffusion.process import sigma
from innergrad.errors import InputError
from innergrad.lab.baselines import KernelDensity
from innergrad.lab.baselines.density import BANDWIDTHS, likeliest_bandwidth
from innergrad.lab.learners.sample_learner import SampleLearner
from innergrad.lab.samples import asked, parts
from innergrad.lab.tasks import SampleScores

TASK = SampleScores(dims=2, queries=6, min_samples=3, components=3)
LINE = replace(TASK, dims=1)
SHAPE = lab.SampleLearnerConfig(n_layers=2, d_model=16, n_heads=2, d_mlp=16)
RNG = lab.CounterRNG.of(0, "samples")


def drawn(task: SampleScores, rows: int = 5, n: int = 20) -> lab.Prompts:
    return task.sample(RNG, torch.arange(rows), n)


def stirred(learner: lab.Learner, seed: int = 0) -> Any:
    """No parameter is zero any more, as after some training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return learner


def mixture_of(params: dict[str, Tensor], row: int) -> diffusion.GaussianMixture:
    weight, mean, std = (params[name][row].double() for name in ("weight", "mean", "std"))
    return diffusion.GaussianMixture(mean, std=std, weights=weight)


# ---------------------------------------------------------------------------------------------------------------- task


@pytest.mark.parametrize("task", [TASK, LINE], ids=["plane", "line"])
def test_labels_are_the_exact_scores_of_the_diffusion(task: SampleScores) -> None:
    x, y, params = drawn(task)
    place, t, sample, query = parts(x)
    assert query.sum(1).tolist() == [6] * 5
    assert (y[~query] == 0).all()
    assert ((sample.sum(1) >= 3) & (sample.sum(1) <= 14)).all()
    assert len(set(sample.sum(1).tolist())) > 1
    for row in range(5):
        here = query[row]
        exact = mixture_of(params, row).score(place[row][here].double(), t[row][here].double())
        wanted = (sigma(t[row][here].double())[:, None] * exact).float()
        torch.testing.assert_close(y[row][here].view(6, -1), wanted, rtol=1e-4, atol=1e-4)


def test_samples_and_queries_come_from_the_mixture() -> None:
    """First and second moments of many prompts of one mixture, at t = 0 and at t = 1; 5 standard errors."""
    task = SampleScores(dims=2, queries=500, min_samples=500, min_time=1.0, max_time=1.0)
    index = torch.arange(1)
    params = task.params(RNG, index, 1000)
    place, _, sample, query = parts(task.points(RNG.fork("points"), index, 1000, params))
    mixture = mixture_of(params, 0)
    for here, t in ((sample, 0.0), (query, 1.0)):
        found, wanted = place[here].double(), mixture.diffused(20_000, t, seed=1)
        for power in (1, 2):
            a, b = found**power, wanted**power
            assert ((a.mean(0) - b.mean(0)).abs() < 5 * b.std(0) / math.sqrt(len(a))).all()
    assert lab.check_task(task) == ()


# ------------------------------------------------------------------------------------------------------------- density


def test_the_density_is_a_mixture_with_a_gaussian_at_every_sample() -> None:
    x, y, _ = drawn(TASK)
    place, t, sample, query = parts(x.double())
    mixture = diffusion.GaussianMixture(place[2][sample[2]], std=0.3)
    wanted = sigma(t[2][query[2]])[:, None] * mixture.score(place[2][query[2]], t[2][query[2]])
    found = KernelDensity(0.3)(x, y)
    torch.testing.assert_close(found[2][query[2]], wanted.float(), rtol=1e-4, atol=1e-5)
    assert (found[~query] == 0).all()


def test_the_bandwidth_is_the_likeliest_of_the_grid() -> None:
    samples = diffusion.SHAPES["two-bumps"]().sample(12, seed=2)
    found = likeliest_bandwidth(samples[None], torch.ones(1, 12, dtype=torch.bool))

    def likelihood(h: float) -> float:
        others = [torch.cat((samples[:i], samples[i + 1 :])) for i in range(12)]
        each = [diffusion.GaussianMixture(one, std=h).log_density(samples[i : i + 1]) for i, one in enumerate(others)]
        return float(torch.cat(each).sum())

    assert float(found) == max(BANDWIDTHS, key=likelihood)


# ------------------------------------------------------------------------------------------------------------- learner


@pytest.mark.parametrize("task", [TASK, LINE], ids=["plane", "line"])
def test_a_head_is_a_kernel_density_estimate(task: SampleScores) -> None:
    """Before training, with one head whose exponent is set to zero: bandwidth h_0, exactly."""
    shape = replace(SHAPE, n_heads=1, bandwidth=0.3)
    learner = shape.build(task.d, 20, outputs=task.dims).init([0])
    with torch.no_grad():
        learner.get_parameter("last_b_B").zero_()
        learner.get_parameter("last_W_QK").zero_()
    x, y, _ = drawn(task)
    torch.testing.assert_close(learner.predict(x, y), KernelDensity(0.3)(x, y), rtol=1e-4, atol=1e-5)


def test_order_does_not_matter_and_empty_places_neither() -> None:
    learner = stirred(SHAPE.build(TASK.d, 20, outputs=2).init([0]))
    x, y, _ = drawn(TASK)
    found = learner.predict(x, y)
    assert found[:, -6:].abs().min() > 0
    order = torch.cat((torch.randperm(14, generator=torch.Generator().manual_seed(0)), torch.arange(14, 20)))
    torch.testing.assert_close(learner.predict(x[:, order], y)[:, -6:], found[:, -6:], rtol=1e-4, atol=1e-5)
    row = int(parts(x).sample.sum(1).argmin())
    full = x[row : row + 1, ~(x[row, :, -1] == 0)]
    torch.testing.assert_close(
        learner.predict(full, y[:1, : full.shape[1]])[:, -6:], found[row : row + 1, -6:], rtol=1e-4, atol=1e-5
    )
    alone = torch.cat((x[:, :14], x[:, 17:18]), 1)  # one query by itself
    torch.testing.assert_close(learner.predict(alone, y[:, :15])[:, -1], found[:, 17], rtol=1e-4, atol=1e-5)


def test_it_moves_with_the_data() -> None:
    """x_0 + a for all samples, x_t + e^-t a for all queries: the score stays."""
    learner = stirred(SHAPE.build(TASK.d, 20, outputs=2).init([0])).double()
    x, y, _ = drawn(TASK)
    x, y = x.double(), y.double()
    place, t, sample, query = parts(x)
    moved = x.clone()
    moved[..., :2] += (-t).exp()[..., None] * torch.tensor([0.7, -0.4]) * (sample | query)[..., None]
    torch.testing.assert_close(learner.predict(moved, y), learner.predict(x, y), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(place, parts(moved).place)


def test_training_beats_the_start_and_checkpoints_hold_it(tmp_path: Path) -> None:
    """On the line, a few steps in either precision; the loss counts queries alone."""
    train = lab.TrainConfig(steps=30, batch=16, optimiser=lab.Optimiser(lr=5e-3), log_every=10)
    one = lab.Experiment(n_points=20, task=LINE, learner=SHAPE, train=train)
    two = replace(one, seed=1)
    result = lab.train([one, two], tmp_path / "run")
    assert all(math.isfinite(loss) for loss in result.log[-1]["loss"])
    learner, _ = lab.load_learner(tmp_path / "run", 1)
    x, y, _ = drawn(LINE, rows=64)
    query = parts(x).query
    found, before = (
        (each.predict(x, y) - y)[query].square().mean() for each in (learner, SHAPE.build(LINE.d, 20).init([1]))
    )
    assert found < 0.95 * before
    loss = learner.objective(x[None], y[None], dict(learner.named_parameters()), torch.tensor(0))
    assert float(loss.detach()) == pytest.approx(float(found) / LINE.scale**2, rel=1e-4)
    rough = replace(one, train=replace(train, precision="bf16", steps=3, optimiser=lab.Optimiser("muon", lr=1e-3)))
    assert all(math.isfinite(loss) for loss in lab.train(rough).log[-1]["loss"])
    table = lab.evaluate_run(tmp_path / "run", n_prompts=8).curves
    assert list(table) == ["model", "mean", "kernel density"]


def test_a_score_is_what_samplers_take() -> None:
    learner = stirred(SHAPE.build(TASK.d, 20, outputs=2).init([0]))
    x, y, _ = drawn(TASK, rows=1, n=20)
    place, t, sample, query = parts(x[0])
    score = learner.score(place[sample])
    for number in query.nonzero()[:, 0].tolist():
        wanted = learner.predict(x, y)[0, number] / sigma(t[number])
        torch.testing.assert_close(score(place[number : number + 1], float(t[number]))[0], wanted, rtol=1e-4, atol=1e-4)
    samples = diffusion.sample(score, diffusion.ScoreTask(), n=300, d=2, steps=3)
    assert samples.x.shape == (300, 2)
    assert samples.x.dtype == torch.float64
    whole = torch.tensor([[1, 0], [0, 2]])
    torch.testing.assert_close(score(whole, 0.5), score(whole.float(), 0.5))
    torch.testing.assert_close(score(whole.tolist(), 0.5), score(whole.float(), 0.5))
    assert bool(score(whole, 1e3).isfinite().all())
    assert score(whole[:0], 0.5).shape == (0, 2)


LEARNER: Any = SHAPE.build(TASK.d, 20, outputs=2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: SHAPE.build(5, 20, outputs=2), "task.kind = sample-scores"),
        (lambda: LEARNER.score(torch.zeros(5, 3)), "samples have the shape (n, d)"),
        (lambda: LEARNER.score(torch.ones(1, 2)), "one point is no distribution"),
        (lambda: LEARNER.score(torch.ones(4, 2)), "one point is no distribution"),
        (lambda: LEARNER.score(torch.tensor([[0.0, math.nan], [1.0, 0.0]])), "NaN or infinity"),
        (lambda: LEARNER.score(100.0 * torch.eye(2)), "the samples are not scaled; got numbers up to 100"),
        (lambda: LEARNER.score(1e-3 * torch.eye(2)), "the samples are not scaled"),
        (lambda: LEARNER.score("abc"), "samples are numbers; got 'abc'"),
        (lambda: LEARNER.score([[1, 2], [3]]), "samples are numbers"),
        (lambda: LEARNER.score(torch.eye(2))(torch.zeros(3, 2), 0.0), "times above 0; got t = 0"),
        (lambda: LEARNER.score(torch.eye(2))(torch.zeros(3, 1), 0.1), "points have the dimensions of the samples"),
        (lambda: LEARNER.score(torch.eye(2))(torch.zeros(2), 0.1), "points have the dimensions of the samples"),
        (lambda: LEARNER.score(torch.eye(2))(torch.full((1, 2), math.nan), 0.1), "points contain NaN"),
        (lambda: LEARNER.score(torch.eye(2))(torch.zeros(3, 2), torch.ones(2)), "one number, or 3 of them"),
        (lambda: LEARNER.score(torch.eye(2))(torch.zeros(3, 2), "late"), "times are numbers"),
        (lambda: KernelDensity()(torch.zeros(2, 5, 3), torch.zeros(2, 5, 2)), "estimated from prompts of samples"),
        (lambda: SampleScores(min_std=2.0), "a range must not be empty"),
        (lambda: SampleScores(dims=0), "dims"),
        (lambda: replace(SHAPE, n_heads=3), "multiple of learner.n_heads"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as found:
        wrong()
    assert words in str(found.value)


# ------------------------------------------------------------------------------------------------------------ benchmark


def test_evaluation_shows_queries_alone() -> None:
    """Samples have no label: lengths without one are not in the table, and a note says what is."""
    found = lab.evaluate(lambda x, y: torch.zeros_like(y), TASK, n_prompts=6, n_points=24)
    first = TASK.unasked(24)
    assert all(int(cell.removeprefix("k=")) >= first for cell in found.table()[0][1:])
    assert lab.Linear(d=2).unasked(24) == 0


def test_the_script_trains_compares_and_shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny: the exact score has no error, a row for every method, and the zoo's reader takes the card."""
    import score_learner as script
    import score_learner_zoo

    shape = lab.SampleLearnerConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
    train = lab.TrainConfig(steps=9, batch=2, optimiser=lab.Optimiser(warmup=8))
    chosen = [
        lab.Experiment(f"scores-1-{seed}", seed, 20, script.task_of(1, queries=4), shape, train) for seed in (0, 1)
    ]
    paths = script.train(chosen, 60.0, "cpu", tmp_path)
    assert [path.name for path in paths] == ["scores-1-0.safetensors", "scores-1-1.safetensors"]
    sizes = script.Sizes(mixtures=3, places=4, counts=(8, 16), steps=2, sampled=1, drawn=20)
    found = script.compare(tmp_path, [1], "cpu", sizes, tmp_path, keep=False)["dimensions"][0]
    assert json.loads((tmp_path / "score_learner.json").read_text())["dimensions"][0] == found
    assert [row["method"] for row in found["counts"][0]["methods"]] == list(script.METHODS)
    monkeypatch.setattr(script, "read", lambda name: {"dimensions": [found]})
    assert "| kernel density |" in "\n".join(script.errors_table())
    unseen = script.Unseen(script.task_of(1), sizes, "cpu")
    assert float(unseen.errors(unseen.answer).max()) == 0.0
    mixture = unseen.mixture(1)
    exact = sigma(unseen.t[1])[:, None] * mixture.score(unseen.x[1], unseen.t[1])
    torch.testing.assert_close(unseen.exact[1], exact, rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(score_learner_zoo, "COUNTS", (8, 16))
    score_learner_zoo.shelve(tmp_path, tmp_path / "zoo", (1,), sizes)
    check_card("scores-1", tmp_path / "zoo", rel=1e-3, mixtures=3, places=4)


def check_card(name: str, folder: Path, rel: float, **sizes: int) -> None:
    """The learner does what its card says, here with the mixtures that it was measured on, or with some of them."""
    import _score_rivals as rivals
    import score_learner as script

    learner, experiment = lab.load_learner(zoo.weights(name, folder))
    assert isinstance(learner, SampleLearner)
    assert isinstance(experiment.task, SampleScores)
    rows = zoo.card(name, folder)["numbers"]["rows"]
    unseen = script.Unseen(experiment.task, script.Sizes(counts=(max(row["k"] for row in rows),), **sizes), "cpu")
    for row in rows:
        samples = unseen.samples[:, : row["k"]]
        for by, answer in (
            ("learner", rivals.by_learner(learner, samples)),
            (script.DENSITY, rivals.by_density(samples)),
        ):
            found = float(script.overall(unseen.errors(answer)).mean())
            assert found == pytest.approx(row[by], rel=rel), (row["k"], by)


@pytest.mark.parametrize("name", [one for one in zoo.names() if zoo.card(one)["learner"]["table"]["kind"] == "samples"])
def test_a_learner_of_the_zoo_does_what_its_card_says(name: str) -> None:
    """On the first of the mixtures, and at fewer places."""
    check_card(name, zoo.FOLDER, rel=0.35, mixtures=16, places=16)


def test_asked_makes_prompts() -> None:
    x = asked(torch.ones(3, 2), torch.zeros(4, 2), torch.full((4,), 0.5))
    assert x.shape == (7, 4)
    assert parts(x).sample.tolist() == [True] * 3 + [False] * 4
