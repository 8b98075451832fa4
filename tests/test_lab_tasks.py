"""Families of functions: every task against a plain loop over one prompt, and the laws that all tasks share."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import gamma, kv

from innergrad.config import parse, to_table
from innergrad.errors import InputError
from innergrad.lab.baselines import Lasso
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks import (
    Balls,
    Covariance,
    DecisionTrees,
    DiffusionScores,
    Gaussian,
    GaussianMixture,
    GaussianProcesses,
    Inputs,
    KernelTerm,
    Leading,
    Linear,
    Matern,
    Mixture,
    Networks,
    Pool,
    SmoothFunctions,
    SparseLinear,
    Sphere,
    Task,
    measured_scale,
)
from innergrad.lab.tasks.gaussian_processes import absolute, absolute_by_products


def test_what_a_task_lacks_is_named() -> None:
    """Tasks of one's own: nothing to evaluate, labels that are not a tensor."""

    @dataclasses.dataclass(frozen=True)
    class Bare(Task):
        d: int = 2

        def params(self, rng: CounterRNG, index: torch.Tensor, n: int) -> dict[str, torch.Tensor]:
            return {}

    @dataclasses.dataclass(frozen=True)
    class Foreign(Bare):
        def evaluate(self, params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return x[..., 0].numpy()  # type: ignore[return-value]

    for task, words in ((Task(d=2), "has no params"), (Bare(), "has no evaluate"), (Foreign(), "got ndarray")):
        with pytest.raises(InputError, match=words):
            task.sample(CounterRNG.of(0, "x"), torch.arange(3), 4)


FIGURE_4C = (
    KernelTerm("linear", weight=0.5, coordinates=(1, 1, 0, 0, 0)),
    KernelTerm("exp", weight=0.5, sigma2=2.0, coordinates=(0, 0, 1, 1, 1)),
)
RELU_PROCESS = GaussianProcesses(terms=(KernelTerm("relu"),))
TASKS: dict[str, Task] = {
    "linear": Linear(d=5, tau=0.5),
    "noisy linear": Linear(d=5, noise=0.3, inputs=Gaussian(mean=1.0)),
    "linear with covariance": Linear(
        d=3, inputs=Covariance(Gaussian(mean=1.0, std=0.5), (1.0, 4.0, 0.25), sigma_seed=3)
    ),
    "sparse": SparseLinear(d=8, inputs=Gaussian(std=2.0)),
    "tree": DecisionTrees(d=6),
    "garg": Networks(d=20, width=100, scaling="garg"),
    "he": Networks(d=6, layers=4, width=30, weight_std=0.8, inputs=GaussianMixture(w1=0.7)),
    "unit": Networks(d=6, layers=3, width=16, scaling="unit", bias=True),
    "tanh": Networks(d=6, layers=3, width=16, activation="tanh"),
    "shifted": Networks(d=6, layers=3, width=16, weight_mean=0.5, inputs=Gaussian(mean=-2.0)),
    "ball": Balls(d=6),
    "ellipsoid": Balls(d=6, stretch=0.5, inputs=GaussianMixture(per="prompt")),
    "smooth": SmoothFunctions(d=4, waves=64),
    "exp process": GaussianProcesses(),
    "linear process": GaussianProcesses(inputs=Sphere(), terms=(KernelTerm("linear"),)),
    "sum process": GaussianProcesses(inputs=Sphere(), terms=FIGURE_4C),
    "relu process": RELU_PROCESS,
    "diffusion": DiffusionScores(),
    "diffusion, constant": DiffusionScores(weighting="constant", components=3),
    "pool": Pool(Networks(d=6, width=16), size=256),
    "mixture": Mixture((Networks(d=6, width=16), Linear(d=6, inputs=Gaussian(mean=1.0))), (1.0, 3.0)),
}
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
RNG = CounterRNG.of(0, "test")


def draw(task: Task, count: int = 6, n: int = 9, **options: object) -> tuple[torch.Tensor, ...]:
    prompts = task.sample(RNG, torch.arange(count), n, **options)  # type: ignore[arg-type]
    return prompts.x, prompts.y, prompts.params


# --------------------------------------------------------------------------------------------------- laws of all tasks


@each_task
def test_a_prompt_depends_on_its_number_alone(task: Task) -> None:
    x, y, params = draw(task, 20)
    parts = [task.sample(RNG, part, 9) for part in torch.arange(20).split([1, 12, 7])]
    assert torch.equal(x, torch.cat([part.x for part in parts]))
    for name, value in params.items():
        assert torch.equal(value, torch.cat([part.params[name] for part in parts]))
    torch.testing.assert_close(y, torch.cat([part.y for part in parts]), rtol=1e-5, atol=1e-5 * task.scale)
    assert x.dtype == y.dtype == torch.float32


@each_task
def test_a_longer_prompt_begins_with_the_shorter_one(task: Task) -> None:
    x, y, _ = draw(task, n=9)
    longer_x, longer_y, _ = draw(task, n=14)
    assert torch.equal(x, longer_x[:, :9])
    same = torch.allclose(y, longer_y[:, :9], rtol=1e-5, atol=1e-5 * task.scale)
    assert same == (task is not RELU_PROCESS), "only labels of a kernel that is not positive know the prompt's length"


@each_task
def test_scale_is_the_root_mean_square_of_labels(task: Task) -> None:
    """Against 4 standard errors of the mean of squares over prompts (plus the measured scales' own)."""
    quiet = task if isinstance(task, Pool | Mixture) else dataclasses.replace(task, noise=0.0)
    squares = quiet.sample(CounterRNG.of(5, "scale test"), torch.arange(4000), 16).y.double().square().mean(1)
    error = float(squares.std()) / len(squares) ** 0.5
    repeats = 16 if isinstance(task, Pool) else 1  # 256 functions, not 4,000
    assert abs(float(squares.mean()) - task.scale**2) < 4 * math.sqrt(1 + repeats) * error
    assert task.scale == dataclasses.replace(task).scale


@each_task
def test_dims_zero_the_later_coordinates(task: Task) -> None:
    whole, _, params = draw(task)
    x, y, _ = draw(task, dims=2)
    by_tensor, _, _ = draw(task, dims=torch.tensor(2))
    assert torch.equal(x, by_tensor)
    assert torch.equal(x[..., :2], whole[..., :2])
    assert not x[..., 2:].any()
    if not task.noise:
        torch.testing.assert_close(y, task.evaluate(params, x))


@pytest.mark.parametrize("name", [name for name in TASKS if name != "tree"])
def test_the_best_predictor_beats_zero(name: str) -> None:
    """Not for trees: boosting is slow, and needs more points. A few sweeps of the lasso are enough here."""
    task = TASKS[name]
    x, y, _ = draw(task, 40, 12)
    best = task.best()
    predictions = (dataclasses.replace(best, sweeps=20) if isinstance(best, Lasso) else best)(x, y)
    assert predictions.shape == y.shape
    assert (predictions - y)[:, -1].square().mean() < y[:, -1].square().mean()


@each_task
def test_sampling_never_looks_at_a_value(task: Task) -> None:
    """On the meta device there are none: what works there needs no copy to the host and has shapes known in advance."""
    rng, index = CounterRNG.of(0, "test", "meta"), torch.arange(6, device="meta")
    prompts = task.sample(rng, index, 9, torch.tensor(2, device="meta"))
    assert prompts.x.shape == (6, 9, task.d)
    assert prompts.y.shape == (6, 9)
    assert prompts.x.is_meta
    assert prompts.y.is_meta


@each_task
def test_a_task_is_a_table_of_plain_values(task: Task) -> None:
    table = to_table(task)
    assert json.loads(json.dumps(table)) == table
    assert parse(Task, table) == task


def test_noise_is_added_to_labels() -> None:
    noisy, clean = Linear(d=5, noise=0.3), Linear(d=5)
    rest = draw(noisy, 2000, 10)[1] - draw(clean, 2000, 10)[1]
    assert stats.kstest(rest.double().numpy().ravel() / 0.3, "norm").pvalue > 1e-3


# ---------------------------------------------------------------------------------------- each task by a loop over one


def test_linear_by_a_loop() -> None:
    for task in (Linear(d=4), SparseLinear(d=4, nonzeros=2)):
        x, y, params = draw(task)
        for b in range(len(x)):
            for i in range(x.shape[1]):
                assert float(y[b, i]) == pytest.approx(
                    sum(float(params["w"][b, j]) * float(x[b, i, j]) for j in range(4)), rel=1e-4, abs=1e-5
                )


def test_sparse_weights_have_a_uniform_support() -> None:
    w = SparseLinear(d=8, nonzeros=3).params(RNG, torch.arange(4000), 1)["w"]
    assert torch.equal((w != 0).sum(1), torch.full((4000,), 3))
    _, counts = np.unique((w != 0).numpy(), axis=0, return_counts=True)
    assert len(counts) == math.comb(8, 3)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.kstest(w[w != 0].double().numpy(), "norm").pvalue > 1e-3


def test_trees_by_walking_nodes() -> None:
    task = DecisionTrees(d=5, depth=3)
    x, y, params = draw(task, 20)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            node = 0
            while node < 7:
                node = 2 * node + (2 if x[b, i, params["feature"][b, node]] > 0 else 1)
            assert y[b, i] == params["leaf"][b, node - 7]
    features = task.params(RNG, torch.arange(2000), 1)["feature"]
    assert stats.chisquare(torch.bincount(features.flatten(), minlength=5).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("name", ["garg", "he", "unit", "tanh", "shifted"])
def test_networks_by_layers(name: str) -> None:
    task = TASKS[name]
    assert isinstance(task, Networks)
    x, y, params = draw(task)
    r = np.tanh if task.activation == "tanh" else lambda z: np.maximum(z, 0)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            p = x[b, i].double().numpy()
            for layer in range(1, task.layers + 1):
                p = params[f"W{layer}"][b].double().numpy() @ p
                if task.bias:
                    p = p + params[f"b{layer}"][b].double().numpy()
                if layer < task.layers:
                    p = r(p)
            assert float(y[b, i]) == pytest.approx(float(p[0]), rel=1e-4, abs=1e-4 * task.scale)
    alone = torch.cat([task.evaluate({k: v[b : b + 1] for k, v in params.items()}, x[b : b + 1]) for b in range(6)])
    torch.testing.assert_close(y, alone, rtol=1e-5, atol=1e-5 * task.scale)


@pytest.mark.parametrize(
    ("scaling", "factors"),
    [("unit", [1, 1, 1]), ("he", [math.sqrt(2 / 5), math.sqrt(2 / 8), math.sqrt(1 / 8)]), ("garg", [1, 1, 0.5])],
)
def test_scalings_of_weights(scaling: str, factors: list[float]) -> None:
    task = Networks(d=5, layers=3, width=8, scaling=scaling, weight_mean=-0.5, weight_std=2.0)  # type: ignore[arg-type]
    params = task.params(RNG, torch.arange(3000), 1)
    for layer, factor in enumerate(factors, 1):
        weights = params[f"W{layer}"].double().numpy().ravel()
        assert stats.kstest((weights / factor + 0.5) / 2.0, "norm").pvalue > 1e-3


def test_garg_networks_have_scale_d_and_are_he_networks_otherwise() -> None:
    garg, he = Networks(scaling="garg"), Networks(scaling="he")
    assert garg.scale**2 == pytest.approx(20)
    assert he.scale**2 == pytest.approx(1)
    _, y, _ = draw(garg)
    torch.testing.assert_close(y, math.sqrt(20) * draw(he)[1])


def test_exact_scales_agree_with_measured_ones() -> None:
    for task in (TASKS["he"], TASKS["unit"], Networks(d=6, width=16, activation="linear")):
        assert measured_scale(task) == pytest.approx(task.scale, rel=0.1)


def test_dead_networks_have_scale_one() -> None:
    dead = Networks(layers=3, weight_mean=-0.5, weight_std=0.01, inputs=Gaussian(mean=-2.0))
    assert not draw(dead)[1].any()
    assert dead.scale == 1.0


def test_balls_by_distances() -> None:
    for name in ("ball", "ellipsoid"):
        x, y, params = draw(TASKS[name], 50)
        for b in range(50):
            away = params["axes"][b] * (torch.cat((x[b], params["surface"][b, None])) - params["centre"][b])
            lengths = away.norm(dim=1)
            assert torch.equal(y[b], (lengths[:-1] <= lengths[-1]).float())
    assert torch.equal(params["axes"] == 1, torch.zeros_like(params["axes"], dtype=torch.bool))
    inside = draw(Balls(d=6), 2000, 200)[1].mean(1).double()
    assert stats.kstest(inside.numpy(), "uniform").pvalue > 1e-3, "the share of points inside is uniform over balls"


def test_smooth_functions_are_sums_of_waves_with_the_covariance_of_matern() -> None:
    task = TASKS["smooth"]
    assert isinstance(task, SmoothFunctions)
    x, y, params = draw(task)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            waves = [
                float(params["amplitude"][b, m])
                * math.cos(float(params["omega"][b, m] @ x[b, i] + params["phase"][b, m]))
                for m in range(task.waves)
            ]
            assert float(y[b, i]) == pytest.approx(sum(waves), abs=1e-5)
    points = 2.0 * RNG.normal(torch.arange(1), 4, 4)
    labels = task.evaluate(task.params(RNG, torch.arange(6000), 1), points.expand(6000, -1, -1)).double()
    torch.testing.assert_close(labels.T @ labels / 6000, task.kernel(points, points)[0].double(), rtol=0, atol=0.08)


@pytest.mark.parametrize("smoothness", [0, 1, 3])
def test_matern_kernel_against_bessel_functions(smoothness: int) -> None:
    x, z = RNG.normal(torch.arange(2), 3, 4, dtype=torch.float64)
    nu, r = smoothness + 0.5, torch.cdist(x, z).numpy()
    a = math.sqrt(2 * nu) * r / 0.7
    np.testing.assert_allclose(Matern(smoothness, 0.7)(x, z), 2 ** (1 - nu) / gamma(nu) * a**nu * kv(nu, a), rtol=1e-9)


@pytest.mark.parametrize("name", ["exp process", "linear process", "sum process", "relu process"])
def test_processes_have_the_covariance_of_definition_3_3(name: str) -> None:
    task = TASKS[name]
    assert isinstance(task, GaussianProcesses)
    x = task.sample(RNG, torch.arange(1), 14).x
    u = x[0].double().numpy()
    if isinstance(task.inputs, Covariance):
        values, vectors = np.linalg.eigh(task.inputs.sigma().numpy())
        u = u @ (vectors / np.sqrt(values)) @ vectors.T
        np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1.0, rtol=1e-6)
    products = u @ u.T
    if name == "sum process":
        K = 0.5 * u[:, :2] @ u[:, :2].T + 0.5 * np.exp(0.5 * u[:, 2:] @ u[:, 2:].T)
    else:
        K = {"exp": np.exp, "linear": lambda z: z, "relu": lambda z: np.maximum(z, 0)}[name.split()[0]](products)
    values, vectors = np.linalg.eigh(K)
    K_plus = (vectors * np.abs(values)) @ vectors.T
    assert (values.min() < -1e-3) == (name == "relu process")
    count = 20000
    y = task.evaluate(task.params(RNG, torch.arange(count), 14), x.expand(count, -1, -1)).double().numpy()
    diagonal = np.diag(K_plus)
    error = np.sqrt((np.outer(diagonal, diagonal) + K_plus**2) / count)  # standard error of a sample covariance
    assert (np.abs(y.T @ y / count - K_plus) < 5 * error).all()


@pytest.mark.parametrize("compute", [absolute, absolute_by_products])
def test_absolute_values_of_matrices(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    K = RNG.normal(torch.arange(20), 31, 31, dtype=torch.float64)
    K = K + K.mT
    positive = compute(K)
    for b in range(20):
        _, values, right = np.linalg.svd(K[b].numpy())  # |K| = V S V^T for K = U S V^T
        np.testing.assert_allclose(
            positive[b].numpy(), right.T * values @ right, rtol=0, atol=2e-6 * np.linalg.norm(values)
        )
    assert torch.linalg.eigvalsh(positive).min() > -1e-10
    assert not compute(torch.zeros(1, 3, 3)).any()


def test_absolute_values_of_a_relu_kernel_in_single_precision() -> None:
    """As exact as by eigenvalues: K of points on the sphere, from the fewest points to those of the papers."""
    for n in (3, 7, 15, 31):
        x = torch.nn.functional.normalize(RNG.normal(torch.arange(100), n, 5), dim=-1)
        K = (x @ x.mT).relu()
        apart = (absolute_by_products(K) - absolute(K.double())).flatten(1).norm(dim=1)
        assert float((apart / K.flatten(1).norm(dim=1)).max()) < 2e-6


def test_a_matrix_that_is_kept_takes_gradients_wherever_it_was_made() -> None:
    """First used without gradients, as in an evaluation, and then in training."""
    task = GaussianProcesses(inputs=Covariance(sigma_seed=1234))
    with torch.inference_mode():
        task.covariance(task.points(RNG, torch.arange(2), 3, {}))
    x = torch.ones(2, 3, 5, requires_grad=True)
    (slope,) = torch.autograd.grad(task.covariance(x).sum(), x)
    assert slope.any()


def test_a_linear_process_is_linear() -> None:
    """More points than coordinates: the labels are on a plane, up to the jitter."""
    x, y, _ = draw(TASKS["linear process"], 20, 12)
    w = torch.linalg.lstsq(x[:, :5].double(), y[:, :5, None].double()).solution
    torch.testing.assert_close((x.double() @ w)[..., 0], y.double(), rtol=0, atol=2e-3)


def test_a_process_has_no_labels_beyond_its_prompt() -> None:
    params = GaussianProcesses().params(RNG, torch.arange(2), 3)
    with pytest.raises(InputError, match="shorter prompts"):
        GaussianProcesses().evaluate(params, torch.zeros(2, 4, 5))


def test_scores_are_derivatives_of_the_log_density() -> None:
    for weighting in ("sigma", "constant"):
        task = DiffusionScores(components=3, weighting=weighting)  # type: ignore[arg-type]
        x, y, params = draw(task, 5)
        for b in range(5):
            for i in range(x.shape[1]):
                point = (2 * x[b, i, 0]).double().requires_grad_()
                t = -x[b, i, 1].double().log()
                variance = (-2 * t).exp() * params["std"][b].double() ** 2 + 1 - (-2 * t).exp()
                density = (
                    params["weight"][b]
                    * torch.exp(-((point - (-t).exp() * params["mean"][b]) ** 2) / (2 * variance))
                    / variance.sqrt()
                )
                (score,) = torch.autograd.grad(density.sum().log(), point)
                factor = float((1 - (-2 * t).exp()).sqrt()) if weighting == "sigma" else 0.5
                assert float(y[b, i]) == pytest.approx(factor * float(score), rel=1e-3, abs=1e-4)


def test_points_of_a_diffusion_follow_the_process() -> None:
    task = DiffusionScores(min_time=0.5, max_time=0.5)
    params = {
        "weight": torch.tensor([[0.3, 0.7]]),
        "mean": torch.tensor([[-2.0, 1.5]]),
        "std": torch.tensor([[0.4, 0.5]]),
    }
    x = task.points(RNG, torch.arange(1), 5000, params)
    torch.testing.assert_close(x, task.features(2 * x[..., 0], torch.tensor(0.5).expand(1, 5000)))
    decay, noise = math.exp(-0.5), 1 - math.exp(-1)

    def distribution(z: np.ndarray) -> np.ndarray:
        parts = [(0.3, -2.0, 0.4), (0.7, 1.5, 0.5)]
        return sum(w * stats.norm.cdf(z, decay * m, math.sqrt(decay**2 * s**2 + noise)) for w, m, s in parts)

    assert stats.kstest(2 * x[0, :, 0].double().numpy(), distribution).pvalue > 1e-3


# ------------------------------------------------------------------------------------------- pools, mixtures and inputs


def test_a_pool_has_exactly_its_size_of_functions() -> None:
    task = Pool(Linear(d=3), size=10)
    w = task.params(RNG, torch.arange(3000), 1)["w"]
    members, counts = torch.unique(w, dim=0, return_counts=True)
    assert len(members) == 10
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    others = task.params(CounterRNG.of(9, "another run"), torch.arange(500), 1)["w"]
    assert torch.equal(torch.unique(others, dim=0), members), "the pool is the task's, not the run's"
    assert not torch.isin(Pool(Linear(d=3), 10, pool_seed=1).params(RNG, torch.arange(9), 1)["w"], members).any()


def test_a_mixture_takes_whole_prompts_from_its_tasks() -> None:
    task = TASKS["mixture"]
    assert isinstance(task, Mixture)
    x, y, params = draw(task, 2000)
    which = params["which"]
    assert stats.binomtest(int((which == 1).sum()), 2000, 0.75).pvalue > 1e-3
    for number, part in enumerate(task.tasks):
        labels = part.evaluate(task.part(params, number), x)
        assert torch.equal(labels[which == number], y[which == number])
        assert (x[which == number].mean() - number).abs() < 0.02, "the inputs are those of the prompt's task"


def test_mixture_inputs_are_drawn_per_example() -> None:
    """All coordinates of a point have one sign; points of a prompt differ. Per prompt: they do not."""
    signs = GaussianMixture(w1=0.3, mean=8.0).sample(RNG, torch.arange(1000), 20, 5).sign()
    assert torch.equal(signs, signs[..., :1].expand_as(signs))
    inside = (signs[..., 0] < 0).double()
    assert stats.binomtest(int(inside.sum()), 20000, 0.3).pvalue > 1e-3
    assert abs(float(inside.mean(1).var()) - 0.21 / 20) < 0.002, "independent within a prompt"
    signs = GaussianMixture(w1=0.3, mean=8.0, per="prompt").sample(RNG, torch.arange(1000), 20, 5).sign()
    assert torch.equal(signs, signs[:, :1, :1].expand_as(signs))
    assert stats.binomtest(int((signs[:, 0, 0] < 0).sum()), 1000, 0.3).pvalue > 1e-3


def test_a_mixture_of_one_component_is_a_gaussian() -> None:
    index = torch.arange(5)
    assert torch.equal(GaussianMixture(w1=1.0).sample(RNG, index, 4, 3), Gaussian(mean=-2.0).sample(RNG, index, 4, 3))


INPUTS = [
    Gaussian(mean=1.0, std=0.5),
    GaussianMixture(w1=0.8, mean=1.5),
    Sphere(radius=2.0),
    Covariance(),
    Covariance(base=GaussianMixture(mean=1.0)),
    Leading(Gaussian(mean=1.0), 3),
]


@pytest.mark.parametrize("inputs", INPUTS, ids=repr)
def test_second_moments_of_inputs(inputs: Inputs) -> None:
    squares = inputs.sample(RNG, torch.arange(20000), 1, 5).double().square().sum(-1)
    assert abs(float(squares.mean()) - inputs.second_moment(5)) < 4 * float(squares.std()) / 20000**0.5 + 1e-6


def test_inputs_with_covariance_are_those_of_003() -> None:
    inputs = Covariance()
    sigma = inputs.sigma()
    np.testing.assert_allclose(np.linalg.eigvalsh(sigma), [0.25, 1, 1, 1, 2.25], rtol=1e-12)
    x = inputs.sample(RNG, torch.arange(20000), 1, 5)[:, 0]
    torch.testing.assert_close(5 * x.T.cov().double(), sigma, rtol=0, atol=0.06)
    torch.testing.assert_close(inputs.whiten(x).norm(dim=1), torch.ones(20000))
    assert (sigma - Covariance(sigma_seed=1).sigma()).abs().max() > 0.1
    first = torch.stack([Covariance(eigenvalues=(1.0, 4.0), sigma_seed=seed).sigma() for seed in range(400)])
    angle = torch.atan2(2 * first[:, 0, 1], first[:, 0, 0] - first[:, 1, 1])
    assert stats.kstest((angle / (2 * math.pi) + 0.5).numpy(), "uniform").pvalue > 1e-3, "a uniform rotation"


def test_shifts_keep_everything_else() -> None:
    """A shifted task draws the same noise: only what was changed changes."""
    task = Networks(d=4, width=8)
    shifted = dataclasses.replace(task, inputs=Gaussian(mean=-2.0))
    (x, _, params), (moved, _, same) = draw(task), draw(shifted)
    torch.testing.assert_close(x - 2.0, moved)
    assert all(torch.equal(params[name], same[name]) for name in params)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Linear(d=0), "d must be"),
        (lambda: Linear(noise=-1.0), "noise"),
        (lambda: Linear(inputs="gaussian"), "gaussian-mixture"),  # type: ignore[arg-type]
        (lambda: SparseLinear(d=3, nonzeros=4), "nonzeros"),
        (lambda: DecisionTrees(depth=0), "depth"),
        (lambda: Networks(activation="swish"), "tanh"),
        (lambda: Networks(scaling="xavier"), "he, garg, unit"),  # type: ignore[arg-type]
        (lambda: GaussianMixture(w1=1.2), "probability"),
        (lambda: GaussianMixture(per="coordinate"), "example, prompt"),  # type: ignore[arg-type]
        (lambda: Linear(d=4, inputs=Covariance()), "d eigenvalues"),
        (lambda: GaussianProcesses(terms=(KernelTerm("linear", coordinates=(1.0,)),)), "coordinates"),
        (lambda: KernelTerm("softmax"), "linear, relu, exp"),  # type: ignore[arg-type]
        (lambda: DiffusionScores(d=2), "d = 3"),
        (lambda: Pool(task=3), "must be a task"),  # type: ignore[arg-type]
        (lambda: Mixture(()), "needs tasks"),
        (lambda: Mixture((Linear(), Linear(d=3))), "one d"),
        (lambda: Mixture((Linear(), Linear()), (1.0,)), "one weight"),
    ],
)
def test_errors_say_what_is_allowed(make: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()  # type: ignore[operator]


def test_user_tasks_are_known_by_their_kind() -> None:
    @dataclasses.dataclass(frozen=True)
    class Constant(Task, kind="test constant"):
        def params(self, rng: CounterRNG, index: torch.Tensor, n: int) -> dict[str, torch.Tensor]:
            return {"c": rng.normal(index)}

        def evaluate(self, params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return params["c"][:, None].expand(x.shape[:2])

    try:
        assert Task.kinds["test constant"] is Constant
        assert draw(Constant(d=2))[1].std(1).max() == 0
        with pytest.raises(InputError, match="no best predictor"):
            Constant().best()
    finally:
        del Task.kinds["test constant"]
