"""Diffusion: exact scores, labels, samplers, measures; and scores that are learned in context."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import energy_distance as scipy_energy
from scipy.stats import multivariate_normal, wasserstein_distance
from torch import Tensor

from innergrad import diffusion
from innergrad.cli import diffusion as demo
from innergrad.diffusion import LABELS, SHAPES, GaussianMixture, Plateau, ScoreLearner, ScoreTask, pictures
from innergrad.diffusion.process import decay, noised, sigma
from innergrad.diffusion.study import CONTEXT, DIRECT, EXACT, Sampling, Study, study
from innergrad.errors import InputError, JobError
from innergrad.files import made_by
from test_cli import call

DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def tilted() -> GaussianMixture:
    """Three Gaussians in three dimensions, each with a covariance of its own."""
    roots = normal(3, 3, 3, seed=1)
    covariances = roots @ roots.mT + 0.1 * torch.eye(3, dtype=DOUBLE)
    return GaussianMixture(normal(3, 3, seed=2), weights=[0.2, 0.5, 0.3], covariances=covariances)


# ------------------------------------------------------------------------------------------------------------- process


@pytest.mark.parametrize("t", [0.0, 0.3, 2.0])
def test_the_density_of_a_mixture_is_that_of_scipy(t: float) -> None:
    mixture, x = tilted(), normal(20, 3, seed=3)
    left, noise = math.exp(-t), 1.0 - math.exp(-2.0 * t)
    assert mixture.axes is not None
    expected = np.zeros(20)
    for share, mean, spread, axes in zip(mixture.weights, mixture.means, mixture.variances, mixture.axes, strict=True):
        covariance = left**2 * (axes @ spread.diag() @ axes.T) + noise * torch.eye(3, dtype=DOUBLE)
        expected += float(share) * multivariate_normal(left * mean.numpy(), covariance.numpy()).pdf(x.numpy())
    assert mixture.log_density(x, t).exp().numpy() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("mixture", [tilted(), SHAPES["spiral"](), SHAPES["two-bumps"]()], ids=["3", "2", "1"])
def test_the_score_is_the_gradient_of_the_log_density(mixture: GaussianMixture) -> None:
    x = normal(30, mixture.d, seed=4).requires_grad_()
    t = torch.linspace(0.01, 3.0, 30, dtype=DOUBLE)
    (gradient,) = torch.autograd.grad(mixture.log_density(x, t).sum(), x)
    assert torch.allclose(mixture.score(x, t), gradient, rtol=1e-9, atol=1e-9)


def test_a_batch_of_mixtures_is_each_of_them() -> None:
    means, x, t = normal(4, 3, 2, seed=5), normal(4, 6, 2, seed=6), torch.rand(4, 6, dtype=DOUBLE) + 0.1
    together = GaussianMixture(means, std=0.3).score(x, t)
    for one in range(4):
        assert torch.allclose(together[one], GaussianMixture(means[one], std=0.3).score(x[one], t[one]))
    assert GaussianMixture(means, std=0.3).sample(5).shape == (4, 5, 2)


def test_samples_and_diffused_points_have_the_moments_of_the_process() -> None:
    mixture = tilted()
    assert mixture.axes is not None
    mean = (mixture.weights[:, None] * mixture.means).sum(0)
    each = mixture.axes @ mixture.variances.diag_embed() @ mixture.axes.mT
    centred = mixture.means - mean
    covariance = (mixture.weights[:, None, None] * (each + centred[:, :, None] * centred[:, None, :])).sum(0)
    x = mixture.diffused(100_000, 0.4)
    expected = math.exp(-0.8) * covariance + (1 - math.exp(-0.8)) * torch.eye(3, dtype=DOUBLE)
    assert torch.allclose(x.mean(0), math.exp(-0.4) * mean, atol=0.02)
    assert torch.allclose(x.T.cov(), expected, atol=0.08)


# ------------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("label", LABELS)
def test_a_score_comes_back_from_its_label(label: str) -> None:
    task, mixture = ScoreTask(min_time=1e-4, label=label), SHAPES["moons"]()
    examples = task.from_mixture(mixture, 200)
    exact = mixture.score(examples.x, examples.t)
    assert torch.allclose(task.score(examples.x, examples.t, examples.y), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("label", "expected"), [("noise", "-z"), ("data", "x0"), ("velocity", "s*x0 - c*z")])
def test_denoising_labels_are_what_the_page_says(label: str, expected: str) -> None:
    """And they stay at the size of data and noise, however small t is, where scores are of size 1 / sigma."""
    x0, z, t = normal(50, 2, seed=1), normal(50, 2, seed=2), torch.logspace(-6, 0, 50, dtype=DOUBLE)
    x, s, c = noised(x0, t, z), sigma(t)[:, None], decay(t)[:, None]
    task = ScoreTask(min_time=1e-6, label=label)
    found = task.labels(x, t, -z / s)
    assert torch.allclose(found, eval(expected, {"z": z, "x0": x0, "s": s, "c": c}), atol=1e-8)
    assert found.abs().max() < 6.0
    assert (z / s).abs().max() > 500.0


def test_the_mean_of_denoising_labels_is_the_true_label() -> None:
    """(H.2) has the minimum of (H.1): E[-z / sigma | x_t] is the score. Here by an integral over x_0."""
    mixture, t, x = SHAPES["two-bumps"](), 0.3, 0.2
    c, s = math.exp(-t), math.sqrt(1 - math.exp(-2 * t))

    def joint(x0: float) -> float:
        density = float(mixture.log_density(torch.tensor([[x0]], dtype=DOUBLE)).exp())
        return density * math.exp(-0.5 * ((x - c * x0) / s) ** 2)

    total = quad(joint, -4, 4)[0]
    mean = quad(lambda x0: joint(x0) * (c * x0 - x) / s**2, -4, 4)[0] / total
    exact = float(mixture.score(torch.tensor([[x]], dtype=DOUBLE), t))
    assert mean == pytest.approx(exact, rel=1e-6)


def test_weights_turn_the_loss_into_the_one_that_gamma_asks_for() -> None:
    """The weighted mean of squared errors of labels is the integral of gamma times that of scores, but for a factor."""
    task = ScoreTask(min_time=0.05, max_time=2.0, label="noise", gamma=lambda t: t)
    t = task.times((torch.arange(4000, dtype=DOUBLE) + 0.5) / 4000)
    weights = task.weights(t)
    assert weights is not None
    error = 1.0 / (1.0 + t)  # of the score
    found = float((weights * (task.alpha(t) * error).square()).mean())
    expected = quad(lambda u: u / (1.0 + u) ** 2, 0.05, 2.0)[0] / math.log(2.0 / 0.05)
    assert found == pytest.approx(expected, rel=1e-4)


def test_times_are_spread_evenly_and_points_are_those_of_the_process() -> None:
    task = ScoreTask(min_time=0.02, max_time=2.0)
    examples = task.from_data(normal(7, 2), 700)
    places = (examples.t / 0.02).log() / math.log(100.0)
    assert torch.equal((700 * places.sort().values).floor(), torch.arange(700, dtype=DOUBLE))
    assert examples.X.abs().max() < 8.0
    assert examples.X.shape == (700, task.inputs(2))


POINTS = [[0.0, 1.0], [1.0, 0.0]]
WRONG = {
    "one point": (lambda: ScoreTask().from_data([[1.0, 2.0]], 8), "one point is no distribution"),
    "equal points": (lambda: ScoreTask().from_data([[1.0, 2.0]] * 5, 8), "all points are equal"),
    "NaN": (lambda: ScoreTask().from_data([[math.nan, 2.0], [1.0, 1.0]], 8), "NaN"),
    "t = 0": (lambda: ScoreTask().given(POINTS, [0.0, 1.0], POINTS), "at t = 0 a score may be infinite"),
    "a time that is none": (lambda: ScoreTask().given(POINTS, [math.nan, 1.0], POINTS), "NaN"),
    "T_0 = 0": (lambda: ScoreTask(min_time=0.0), "infinite at t = 0"),
    "T < T_0": (lambda: ScoreTask(min_time=1.0, max_time=0.5), "min_time < max_time"),
    "scores that do not fit": (lambda: ScoreTask().given(POINTS, [1.0, 1.0], [[1.0]]), "do not fit"),
    "a label": (lambda: ScoreTask(label="nois"), "did you mean noise?"),
    "gamma": (lambda: ScoreTask(gamma=lambda t: -t).from_data(POINTS, 8), "gamma"),
    "two layers": (lambda: ScoreLearner(d=1, hidden=(8,)), "at least three layers"),
    "no spread": (lambda: GaussianMixture(POINTS), "deviations or covariances"),
    "a negative spread": (lambda: GaussianMixture(POINTS, std=-1.0), "negative"),
    "shares": (lambda: GaussianMixture(POINTS, std=1.0, weights=[1.0, -1.0]), "not negative"),
    "the line": (lambda: diffusion.wasserstein_1(normal(5, 2), normal(5, 2)), "use sliced_wasserstein"),
    "no scale": (lambda: diffusion.Scale(1.0, 0.5)(0.7), "no scale"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_gets_a_sentence(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(InputError, match=words):
        call()


# ------------------------------------------------------------------------------------------------ samplers and measures


@pytest.mark.parametrize("method", ["ode", "sde"])
def test_samples_by_the_exact_score_have_the_law_of_the_data(method: str) -> None:
    mixture, task = SHAPES["two-bumps"](), ScoreTask(min_time=1e-3)
    how = {"n": 4000, "d": 1, "method": method, "steps": 150}
    x = diffusion.sample(mixture.score, task, seed=3, **how).x
    same = diffusion.wasserstein_1(mixture.sample(4000, seed=8), mixture.sample(4000, seed=9))
    assert diffusion.wasserstein_1(x, mixture.sample(4000, seed=8)) < same + 0.04
    assert torch.equal(x, diffusion.sample(mixture.score, task, seed=3, **how).x)
    assert not torch.equal(x, diffusion.sample(mixture.score, task, seed=4, **how).x)


def test_the_flow_is_of_second_order() -> None:
    """Twice the steps, a quarter of the error: against the flow of one Gaussian, which is known."""
    std, task = 0.3, ScoreTask(min_time=0.05, max_time=3.0)
    mixture = GaussianMixture([[0.7]], std=std)
    ends = []
    for steps in (40, 80, 1000):
        ends.append(diffusion.sample(mixture.score, task, 50, 1, steps=steps, denoise=False).x)
    start = diffusion.sample(mixture.score, task, 50, 1, steps=1).path[0]
    spread = [math.sqrt(math.exp(-2 * t) * std**2 + 1 - math.exp(-2 * t)) for t in (3.0, 0.05)]
    exact = math.exp(-0.05) * 0.7 + spread[1] / spread[0] * (start - math.exp(-3.0) * 0.7)
    errors = [float((end - exact).abs().max()) for end in ends]
    assert errors[2] < 1e-4
    assert 3.0 < errors[0] / errors[1] < 5.5


def test_a_score_that_explodes_is_a_failed_job() -> None:
    with pytest.raises(JobError, match="overflowed"):
        diffusion.sample(lambda x, t: x.exp() * 1e30, ScoreTask(), 4, 1)


def test_distances_are_those_of_scipy() -> None:
    a, b = normal(70, 1), 1.0 + 2.0 * normal(50, 1, seed=1)
    flat = a[:, 0].numpy(), b[:, 0].numpy()
    assert diffusion.wasserstein_1(a, b) == pytest.approx(wasserstein_distance(*flat), rel=1e-12)
    assert diffusion.energy_distance(a, b) == pytest.approx(scipy_energy(*flat), rel=1e-9)
    along = diffusion.sliced_wasserstein(torch.cat([a, 0 * a], 1), torch.cat([b, 0 * b], 1), directions=4000)
    assert along == pytest.approx(2 / math.pi * wasserstein_distance(*flat), rel=0.03)  # E|cos|


def test_the_error_of_a_score_is_measured_under_p_t() -> None:
    mixture = GaussianMixture([[0.0, 0.0]], std=1.0)  # stays N(0, I), so the score is -x
    found = diffusion.score_error(lambda x, t: -0.9 * x, mixture, [0.1, 1.0], n=50_000)
    assert found.error == pytest.approx([0.1 * math.sqrt(2.0)] * 2, rel=0.02)
    assert found.overall == pytest.approx(0.1, rel=1e-6)


# ---------------------------------------------------------------------------------------------------------- in context


@pytest.fixture(scope="module")
def small() -> Study:
    """A small study, the same for all tests of this file."""
    learner = ScoreLearner(d=2, hidden=(8, 8), n_examples=64, lr=0.05, steps=150)
    mixture = SHAPES["moons"]()
    how = Sampling(n=200, steps=20, moments=4)
    return study("moons", mixture, learner, learner.task.from_mixture(mixture, 64), how)


def test_in_context_equals_direct_training(small: Study) -> None:
    """A ReLU network of three layers, float32; direct: torch.nn and torch.optim.SGD."""
    assert small.learned.learner.network.depth == 3
    assert small.learned.losses[-1] < 0.5 * small.learned.losses[0]
    assert small.difference() < 1e-3
    errors = small.errors()
    assert errors[CONTEXT].overall == pytest.approx(errors[DIRECT].overall, rel=1e-3)
    assert small.learned.losses[-1] == pytest.approx(small.trained.loss, rel=1e-3)


@pytest.mark.parametrize("target", ["llama", "relu"])
def test_the_score_that_is_read_out_is_that_of_the_forward_pass(target: str) -> None:
    """Asked in the prompt itself, of a pass through the matrices, and asked later."""
    task, mixture = ScoreTask(), SHAPES["moons"]()
    learner = ScoreLearner(d=2, task=task, hidden=(4, 4), activation="tanh", n_examples=8, steps=5, target=target)
    examples, x, t = task.from_mixture(mixture, 8), normal(6, 2), torch.linspace(0.05, 2.0, 6, dtype=DOUBLE)
    learned = learner.learn(examples, dtype=DOUBLE)
    asked = learner.tf.run(examples.X, examples.y, task.features(x, t), w0=learner.start(), executor="plain")
    assert torch.allclose(learned(x, t), task.score(x, t, asked.predictions), rtol=1e-9, atol=1e-9)


def test_examples_that_weigh_more_count_more() -> None:
    """A weight of zero is as if the example were not there."""
    task = ScoreTask(gamma=lambda t: (t > 0.3).double())
    learner = ScoreLearner(d=1, task=task, hidden=(6, 6), n_examples=40, steps=50)
    examples = task.from_mixture(SHAPES["two-bumps"](), 40)
    late = examples.t > 0.3
    assert 0 < int(late.sum()) < 40
    assert examples.weight is not None
    kept = diffusion.Examples(
        *(part[late] for part in (examples.X, examples.y, examples.x, examples.t, examples.weight))
    )
    x = normal(5, 1)
    assert torch.allclose(learner.learn(examples, dtype=DOUBLE)(x, 0.5), learner.learn(kept, dtype=DOUBLE)(x, 0.5))


def test_training_ends_at_the_plateau() -> None:
    """With the weights of a transformer of so many steps."""
    task = ScoreTask()
    long = ScoreLearner(d=1, task=task, hidden=(6, 6), n_examples=30, steps=800, plateau=Plateau(window=50, fall=0.2))
    examples = task.from_mixture(SHAPES["two-bumps"](), 30)
    learned = long.learn(examples, dtype=DOUBLE)
    assert learned.at_rest
    assert learned.steps < 800
    assert learned.losses[-1] > 0.8 * learned.losses[-2]
    assert all(b <= 0.8 * a for a, b in zip(learned.losses[:-1], learned.losses[1:-1], strict=False))
    short = ScoreLearner(
        d=1, task=task, hidden=(6, 6), n_examples=30, steps=learned.steps, plateau=Plateau(window=50, fall=0.0)
    )
    assert torch.allclose(short.learn(examples, dtype=DOUBLE).weights, learned.weights, atol=1e-9)


def test_the_certificate_holds_and_is_finite_for_tanh() -> None:
    """Against training in float64 by torch."""
    task, mixture = ScoreTask(), SHAPES["two-bumps"]()
    learner = ScoreLearner(d=1, task=task, hidden=(3, 3), activation="tanh", n_examples=6, steps=3)
    examples, x = task.from_mixture(mixture, 6), torch.linspace(-1, 1, 5, dtype=DOUBLE).view(-1, 1)
    learned = learner.learn(examples, dtype=DOUBLE)
    certificate = learned.certify(x, 0.2)
    how = {"lr": learner.lr, "momentum": learner.momentum, "steps": 3, "activation": "tanh", "dtype": DOUBLE}
    exact = diffusion.train_directly(examples, task, (3, 3), learner.start(), **how)
    assert certificate.finite
    assert certificate.weights < 1e-9
    assert ((learned(x, 0.2) - exact(x, 0.2)).abs() <= certificate.score + 1e-12).all()


def test_a_prompt_that_does_not_fit_gets_a_sentence(small: Study) -> None:
    learner, task = small.learned.learner, small.learned.learner.task
    with pytest.raises(InputError, match="at most n_examples = 64"):
        learner.learn(task.from_mixture(small.mixture, 65))
    with pytest.raises(InputError, match="another dimension"):
        learner.learn(task.from_mixture(SHAPES["two-bumps"](), 8))
    with pytest.raises(InputError, match="outside of what is learned"):
        small.learned(torch.zeros(1, 2), 0.0)
    with pytest.raises(InputError, match="outside of what is learned"):
        small.learned(torch.zeros(1, 2), 10.0)


# ------------------------------------------------------------------------------------------------------------- the demo


@pytest.fixture(scope="module")
def record(small: Study) -> dict[str, Any]:
    return small.record()


def test_the_record_of_a_study_has_a_scale(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record)) == record
    for what, found in record["distances"].items():
        expected = (found[CONTEXT] - found[EXACT]) / (found["noise"] - found[EXACT])
        assert record["on_the_scale"][what][CONTEXT] == pytest.approx(expected)


def test_a_demo_that_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    done = call("demo", "diffusio")
    assert (done.code, "did you mean diffusion?" in done.err) == (2, True)
    (tmp_path / "plane.png").write_text("mine")
    done = call("demo", "diffusion", "--out", tmp_path)
    assert (done.code, "it is not replaced" in done.err) == (2, True)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of the smallest size: one distribution in the plane, a film of three moments."""
    small = {"hidden": (4, 4), "n_examples": 16, "steps": 20}
    for d, name in ((1, "line_learner"), (2, "plane_learner")):
        monkeypatch.setattr(demo, name, lambda target, d=d: ScoreLearner(d=d, target=target, **small))
    monkeypatch.setattr(demo, "IN_THE_PLANE", ("moons",))
    monkeypatch.setattr(demo, "SAMPLES", 100)
    monkeypatch.setattr(demo, "FRAMES", 3)
    monkeypatch.setattr(pictures, "HOLD", 1)


@pytest.mark.soak
@pytest.mark.usefixtures("tiny")
def test_the_demo(tmp_path: Path) -> None:
    """All its files, marked as its own, and not over a file of somebody else."""
    out = tmp_path / "out"
    done = call("demo", "diffusion", "--out", out, "--json")
    assert (done.code, done.err) == (0, "")
    assert {path.name: made_by(path) for path in out.iterdir()} == dict.fromkeys(
        ("diffusion.gif", "diffusion.json", "line.png", "plane.png"), "demo"
    )
    result = json.loads((out / "diffusion.json").read_text())
    assert {key: result[key] for key in json.loads(done.out)} == json.loads(done.out)
    from PIL import Image

    with Image.open(out / "diffusion.gif") as gif:
        assert getattr(gif, "n_frames", 1) >= 3
    (out / "plane.png").write_text("mine")
    assert call("demo", "diffusion", "--out", out).code == 2


@pytest.mark.soak
def test_the_demo_at_full_size(tmp_path: Path) -> None:
    """Less than 30 seconds on a core that has nothing else to do, and a film of less than 3 MB."""
    assert call("demo", "diffusion", "--out", tmp_path).code == 0
    assert (tmp_path / "diffusion.gif").stat().st_size < 3e6
    found = json.loads((tmp_path / "diffusion.json").read_text())
    for one in found["studies"]:
        assert one["score_difference"] < 1e-3
    assert found["studies"][1]["on_the_scale"]["sliced Wasserstein-1"][CONTEXT] <= 0.2


def test_the_sentence_of_the_demo_has_its_numbers(record: dict[str, Any]) -> None:
    shares = {"sliced Wasserstein-1": {CONTEXT: 0.123}}
    own = {"examples": 1234, "score_difference": 2e-5, "name": "eight-gaussians", "on_the_scale": shares}
    told = demo.sentence(record | own)
    assert "1,234 examples" in told
    assert "eight gaussians" in told
    assert "12% of the way" in told
    assert "2e-05" in told
