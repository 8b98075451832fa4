"""Functional gradient descent on target ``kernel``: against the recursion in numpy, torch.optim and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.kernel_ridge import KernelRidge

import innergrad as ig
from innergrad import FunctionalGradientDescent, Kernel

EXECUTORS = ["plain", "dense"]
DTYPES = [torch.float64, torch.float32]
G = np.random.default_rng(7).normal(size=(2, 5)) / 2


class Prompt(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_query: np.ndarray


def sphere(rng: np.random.Generator, *shape: int) -> np.ndarray:
    points = rng.normal(size=shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def prompt(n: int = 10, n_query: int = 3, d: int = 5, d_y: int = 1, seed: int = 0) -> Prompt:
    """x on the unit sphere, y ~ N(0, 1)."""
    rng = np.random.default_rng(seed)
    return Prompt(sphere(rng, n, d), rng.normal(size=(n, d_y)), sphere(rng, n_query, d))


def compiled(algorithm: FunctionalGradientDescent, n_examples: int = 16) -> ig.CompiledTransformer:
    return ig.compile(algorithm, target="kernel", n_examples=n_examples)


def quietly(kernel: Kernel, **settings: Any) -> FunctionalGradientDescent:
    """The algorithm; what is not positive warns, as it must."""
    if kernel.positive or kernel.normalised:
        return FunctionalGradientDescent(kernel, **settings)
    with pytest.warns(ig.NotPositive, match="not positive semi-definite"):
        return FunctionalGradientDescent(kernel, **settings)


# ------------------------------------------------------------------------------------------------------ Proposition 3.1

Matrix = Callable[[np.ndarray, np.ndarray], np.ndarray]
KERNELS: dict[str, tuple[Kernel, Matrix]] = {
    "linear": (Kernel("linear"), lambda A, B: A @ B.T),
    "relu": (Kernel("relu"), lambda A, B: np.maximum(A @ B.T, 0)),
    "exp": (Kernel("exp"), lambda A, B: np.exp(A @ B.T)),
    "bandwidth": (Kernel("exp", bandwidth=0.8), lambda A, B: np.exp(A @ B.T / 0.64)),
    "softmax": (Kernel("softmax"), lambda A, B: softmax(A @ B.T)),
    "softmax, bandwidth": (Kernel("softmax", bandwidth=0.5), lambda A, B: softmax(4 * A @ B.T)),
    "sum": (Kernel("linear") + 0.5 * Kernel("exp", 0.7), lambda A, B: A @ B.T + 0.5 * np.exp(A @ B.T / 0.49)),
    "product": (Kernel("linear") * Kernel("exp"), lambda A, B: (A @ B.T) * np.exp(A @ B.T)),
    "G": (Kernel("exp", G=G), lambda A, B: np.exp(A @ G.T @ G @ B.T)),
    "sum of products": (
        Kernel("linear") * Kernel("linear") * 0.5 + Kernel("exp", G=G) * Kernel("linear", 2.0),
        lambda A, B: 0.5 * (A @ B.T) ** 2 + np.exp(A @ G.T @ G @ B.T) * (A @ B.T) / 4,
    ),
    "negative weight": (Kernel("exp") + (-0.5) * Kernel("linear"), lambda A, B: np.exp(A @ B.T) - 0.5 * A @ B.T),
}


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def functions(matrix: Matrix, given: Prompt, rates: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """f_l at the examples and at the queries: f_{l+1}(.) = f_l(.) + r_l sum_i (y_i - f_l(x_i)) k(., x_i)."""
    coefficients, path = np.zeros_like(given.y), []
    for r in [*rates, 0.0]:
        at_examples = matrix(given.X, given.X) @ coefficients
        path.append((at_examples, matrix(given.X_query, given.X) @ coefficients))
        coefficients = coefficients + r * (given.y - at_examples)
    return path


@pytest.mark.parametrize("dtype", DTYPES, ids=["f64", "f32"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", KERNELS)
def test_every_layer_is_a_step_of_functional_gradient_descent(name: str, executor: Any, dtype: torch.dtype) -> None:
    """An example's lane is its residual y_i - f_l(x_i), a query's is -f_l(x): 1e-13 in float64, 1e-5 in float32."""
    kernel, matrix = KERNELS[name]
    algorithm, given = quietly(kernel, steps=20, d_y=2), prompt(d_y=2)
    trace = compiled(algorithm).trace(*given, executor=executor, dtype=dtype)
    path = functions(matrix, given, algorithm.rates())
    assert len(trace) == len(path) == 21
    assert max(np.abs(at_queries).max() for _, at_queries in path) > 0.1
    for (_, lanes), (at_examples, at_queries) in zip(trace, path, strict=True):
        expected = np.concatenate([given.y - at_examples, -at_queries])
        assert lanes["y"].dtype == dtype
        assert np.abs(lanes["y"][0].numpy() - expected).max() < (1e-13 if dtype == torch.float64 else 1e-5)
        np.testing.assert_array_equal(lanes["x"][0, :10].double().numpy(), given.X.astype(lanes["x"].numpy().dtype))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["linear", "exp", "softmax", "sum"])
def test_chebyshev_layers_are_steps_of_functional_gradient_descent(name: str, executor: Any) -> None:
    """The same recursion with a rate for every layer; residuals reach 1e2 on the way."""
    kernel, matrix = KERNELS[name]
    algorithm, given = FunctionalGradientDescent(kernel, steps=32, step_rule="chebyshev"), prompt()
    trace = compiled(algorithm).trace(*given, executor=executor)
    for (_, lanes), (_, at_queries) in zip(trace, functions(matrix, given, algorithm.rates()), strict=True):
        assert np.abs(lanes["y"][0, 10:].numpy() + at_queries).max() < 1e-11


@pytest.mark.parametrize("d_y", [1, 3])
def test_the_linear_kernel_is_gradient_descent_on_linear_regression(d_y: int) -> None:
    """Appendix I.2: the query's lane is -<w_l, x>, w_l of torch.optim.SGD on half the sum of squares, from zero."""
    given, step = prompt(n=12, d_y=d_y), 0.07
    X, y, X_query = (torch.from_numpy(part) for part in given)
    model = torch.nn.Linear(5, d_y, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    optimiser = torch.optim.SGD(model.parameters(), lr=step)
    algorithm = FunctionalGradientDescent("linear", steps=30, d_y=d_y, step=step)
    for _, lanes in compiled(algorithm).trace(*given, executor="dense"):
        torch.testing.assert_close(lanes["y"][0, 12:], -model(X_query).detach(), rtol=0, atol=1e-13)
        optimiser.zero_grad()
        (0.5 * (model(X) - y).square().sum()).backward()
        optimiser.step()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_queries_and_labels_do_not_mix(executor: Any) -> None:
    """Several queries and labels in one pass are what they are one at a time, also in batches."""
    tf, one = (compiled(FunctionalGradientDescent("exp", steps=12, d_y=d_y)) for d_y in (2, 1))
    given, other = prompt(n=7, n_query=4, d_y=2), prompt(n=7, n_query=4, d_y=2, seed=1)
    together = tf.run(*(np.stack(pair) for pair in zip(given, other, strict=True)), executor=executor).predictions
    assert together.shape == (2, 4, 2)
    for q in range(4):
        for k in range(2):
            alone = one.run(given.X, given.y[:, k], given.X_query[q : q + 1], executor=executor).predictions
            assert float(alone) == pytest.approx(float(together[0, q, k]), abs=1e-13)


# ------------------------------------------------------------------------------------------------------ Proposition 3.4


class Exponential(SklearnKernel):
    """exp(<x, z>) as a kernel of scikit-learn."""

    def __init__(self) -> None:
        """No parameters; scikit-learn asks for a signature."""

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None, eval_gradient: bool = False) -> np.ndarray:
        return np.exp(X @ (X if Y is None else Y).T)

    def diag(self, X: np.ndarray) -> np.ndarray:
        return np.exp((X**2).sum(1))

    def is_stationary(self) -> bool:
        return False


def gaussian_process(given: Prompt) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and standard deviation at the queries, by scikit-learn; alpha only conditions the Cholesky."""
    model = GaussianProcessRegressor(Exponential(), alpha=1e-13, optimizer=None).fit(given.X, given.y[:, 0])
    mean, std = model.predict(given.X_query, return_std=True)
    return mean, std


STEPS = {"constant": (1500, {}), "chebyshev": (96, {"condition": 60.0})}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("rule", STEPS)
def test_many_layers_are_the_posterior_mean_of_a_gaussian_process(rule: Any, executor: Any) -> None:
    """n = 5 of d = 5: eigenvalues of K in [lambda_max / 60, lambda_max], so that both step rules get to 1e-9."""
    steps, settings = STEPS[rule]
    given = prompt(n=5, n_query=8, seed=1)
    eigenvalues = np.linalg.eigvalsh(np.exp(given.X @ given.X.T))
    algorithm = FunctionalGradientDescent("exp", steps, rule, lambda_max=1.01 * eigenvalues.max(), **settings)
    assert eigenvalues.min() > algorithm.lambda_max / 60
    mean, _ = gaussian_process(given)
    predicted = compiled(algorithm).run(*given, executor=executor).predictions[:, 0].numpy()
    assert np.abs(predicted - mean).max() < 1e-9
    limit = algorithm.limit(*(torch.from_numpy(part) for part in given))[:, 0].numpy()
    assert np.abs(limit - mean).max() < 1e-11
    assert np.abs(mean).max() > 0.5


@pytest.mark.parametrize("name", ["linear", "exp", "sum", "product", "G", "sum of products"])
def test_the_limit_is_kernel_ridge_regression_with_a_vanishing_ridge(name: str) -> None:
    """scikit-learn's KernelRidge with numpy's matrix: a ridge alpha shows as alpha |k| |y| / lambda_min^2 at most."""
    kernel, matrix = KERNELS[name]
    given, alpha = prompt(n=4, d_y=2, seed=3), 1e-12
    K, k = matrix(given.X, given.X), matrix(given.X_query, given.X)
    expected = KernelRidge(kernel="precomputed", alpha=alpha).fit(K, given.y).predict(k)
    limit = FunctionalGradientDescent(kernel, d_y=2).limit(*(torch.from_numpy(part) for part in given)).numpy()
    sizes = np.linalg.norm(k) * np.linalg.norm(given.y) / np.linalg.eigvalsh(K).min()
    assert np.abs(limit - expected).max() <= sizes * (alpha / np.linalg.eigvalsh(K).min() + 1e-15 * np.linalg.cond(K))
    assert np.abs(expected).max() > 0.1


def test_the_limit_of_a_singular_kernel_matrix_is_the_least_squares_solution() -> None:
    """The linear kernel with more examples than dimensions: w = X^+ y by numpy."""
    given = prompt(n=12)
    w = np.linalg.lstsq(given.X, given.y, rcond=None)[0]
    algorithm = FunctionalGradientDescent("linear", steps=400, step=1 / np.linalg.norm(given.X, 2) ** 2)
    limit = algorithm.limit(*(torch.from_numpy(part) for part in given)).numpy()
    assert np.abs(limit - given.X_query @ w).max() < 1e-12
    assert np.abs(compiled(algorithm).run(*given).predictions.numpy() - given.X_query @ w).max() < 1e-9


class GaussianProcess(NamedTuple):
    """1000 prompts of a Gaussian process with the exp kernel on the unit sphere, n = 14, d = 5."""

    X: np.ndarray
    y: np.ndarray
    X_query: np.ndarray
    bayes: np.ndarray

    @classmethod
    def draw(cls) -> GaussianProcess:
        rng = np.random.default_rng(0)
        X = sphere(rng, 1000, 15, 5)
        K = np.exp(X @ X.transpose(0, 2, 1))
        y = np.linalg.cholesky(K) @ rng.normal(size=(1000, 15, 1))
        bayes = K[:, 14:, :14] @ np.linalg.solve(K[:, :14, :14], y[:, :14])
        return cls(X[:, :14], y[:, :14], X[:, 14:], bayes)

    def excess(self, algorithm: FunctionalGradientDescent, **run: Any) -> float:
        """Excess mean squared error over Bayes: the mean squared distance to the Bayes prediction."""
        predictions = compiled(algorithm).run(self.X, self.y, self.X_query, **run).predictions
        return float(((predictions.double().numpy() - self.bayes) ** 2).mean())


@pytest.fixture(scope="module")
def process() -> GaussianProcess:
    return GaussianProcess.draw()


def test_128_chebyshev_layers_are_bayes_to_1e_3_and_beat_constant_steps(process: GaussianProcess) -> None:
    """With the default bound on the eigenvalues, which no prompt comes near to; in float32 too."""
    chebyshev = FunctionalGradientDescent("exp", steps=128, step_rule="chebyshev")
    constant = FunctionalGradientDescent("exp", steps=128)
    excess = process.excess(chebyshev, executor="dense")
    assert excess < 1e-3
    assert process.excess(chebyshev, dtype=torch.float32) < 1e-3
    assert process.excess(constant) > 10 * excess
    fewer = process.excess(FunctionalGradientDescent("exp", steps=32, step_rule="chebyshev"))
    assert fewer > 10 * excess, "depth is what does it"


class Natural(FunctionalGradientDescent):
    """Chebyshev steps from the smallest to the largest."""

    def rates(self) -> np.ndarray:
        return np.sort(super().rates())


class Reversed(FunctionalGradientDescent):
    """Chebyshev steps from the largest to the smallest."""

    def rates(self) -> np.ndarray:
        return np.sort(super().rates())[::-1]


@pytest.mark.parametrize("order", [Natural, Reversed])
def test_chebyshev_steps_in_natural_order_blow_up(order: type[FunctionalGradientDescent]) -> None:
    """The same polynomial, but rounding is multiplied by partial products: Leja's order keeps those small."""
    given = prompt(n=14)
    leja, other = (kind("exp", steps=128, step_rule="chebyshev") for kind in (FunctionalGradientDescent, order))
    assert np.array_equal(np.sort(leja.rates()), np.sort(other.rates()))
    bayes = leja.limit(*(torch.from_numpy(part) for part in given))
    assert float((compiled(leja).run(*given).predictions - bayes).abs().max()) < 0.05
    assert float((compiled(other).run(*given).predictions - bayes).abs().max()) > 1e6
    with pytest.raises(RuntimeError, match="overflowed"):
        compiled(order("exp", steps=256, step_rule="chebyshev")).run(*given, dtype=torch.float32)


@pytest.mark.parametrize("steps", [1, 2, 7, 64])
def test_chebyshev_steps_are_the_inverse_roots_of_the_chebyshev_polynomial(steps: int) -> None:
    """Numpy's roots, mapped to [lambda_max / kappa, lambda_max]."""
    algorithm = FunctionalGradientDescent("exp", steps, "chebyshev", lambda_max=30.0, condition=100.0)
    roots = np.polynomial.Chebyshev.basis(steps, domain=[0.3, 30.0]).roots()
    np.testing.assert_allclose(np.sort(1 / algorithm.rates()), np.sort(roots.real), rtol=1e-9)


# -------------------------------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("step", [0.3, 1.0, 1.9])
def test_softmax_attention_converges_for_steps_below_two_and_not_to_bayes(step: float) -> None:
    """Its fixed point k(x)^T K^-1 D y / sum_j k(x, x_j), D = diag(K 1), in numpy."""
    given = prompt(n=5, seed=1)
    algorithm = FunctionalGradientDescent("softmax", steps=3000, step=step)
    K, k = np.exp(given.X @ given.X.T), np.exp(given.X_query @ given.X.T)
    fixed = k @ np.linalg.solve(K, K.sum(1, keepdims=True) * given.y) / k.sum(1, keepdims=True)
    assert np.linalg.eigvals(K / K.sum(1, keepdims=True)).real.min() * step * 3000 > 27, "e^-27 = 2e-12"
    limit = algorithm.limit(*(torch.from_numpy(part) for part in given)).numpy()
    assert np.abs(limit - fixed).max() < 1e-12
    assert np.abs(compiled(algorithm).run(*given).predictions.numpy() - fixed).max() < 1e-10
    bayes = k @ np.linalg.solve(K, given.y)
    assert np.abs(fixed - bayes).max() > 0.05


def test_softmax_steps_of_two_or_more_are_refused() -> None:
    with pytest.raises(ig.InputError, match=r"converges for steps in \(0, 2\); got 2"):
        compiled(FunctionalGradientDescent("softmax", step=2.0)).run(*prompt())


# ---------------------------------------------------------------------------------------------------------- uncertainty


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_standard_deviation_is_that_of_a_gaussian_process(executor: Any) -> None:
    """By showing the transformer the labels k(x_i, x); scikit-learn's return_std."""
    given = prompt(n=5, n_query=8, seed=1)
    top = float(np.linalg.eigvalsh(np.exp(given.X @ given.X.T)).max())
    algorithm = FunctionalGradientDescent("exp", 96, "chebyshev", lambda_max=1.01 * top, condition=60.0)
    run = compiled(algorithm).run(*given, executor=executor, return_std=True)
    mean, std = gaussian_process(given)
    assert run.std is not None
    assert run.std.shape == (8,)
    assert np.abs(run.std.numpy() - std).max() < 1e-9
    assert np.abs(run.predictions[:, 0].numpy() - mean).max() < 1e-9
    assert std.min() > 0.1


def test_the_standard_deviation_vanishes_at_the_examples_and_comes_only_when_asked_for() -> None:
    given = prompt(n=5, seed=1)
    tf = compiled(FunctionalGradientDescent("exp", steps=1500))
    at_examples = tf.run(given.X, given.y, given.X, return_std=True).std
    assert at_examples is not None
    assert float(at_examples.max()) < 1e-3
    assert tf.run(*given).std is None


@pytest.mark.parametrize(
    "algorithm",
    [
        FunctionalGradientDescent("softmax"),
        FunctionalGradientDescent("exp", d_y=2),
        FunctionalGradientDescent("linear", covariate_step=-0.01),
    ],
)
def test_no_standard_deviation_where_there_is_no_gaussian_process(algorithm: FunctionalGradientDescent) -> None:
    with pytest.raises(ig.InputError, match="has no predictive standard deviation"):
        compiled(algorithm).run(*prompt(d_y=algorithm.d_y), return_std=True)


# ------------------------------------------------------------------------------------------------------ covariate steps


def covariates(matrix: Matrix, given: Prompt, r: float, a: float, steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """x and y lanes of all tokens after every layer of Theorem 4.6's algorithm."""
    n = len(given.X)
    x, y = np.concatenate([given.X, given.X_query]), np.concatenate([given.y, np.zeros((len(given.X_query), 1))])
    path = [(x, y)]
    for _ in range(steps):
        K = matrix(x, x[:n])
        x, y = x + a * K @ x[:n], y - r * K @ y[:n]
        path.append((x, y))
    return path


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["linear", "exp", "softmax", "sum"])
def test_covariate_steps_move_the_inputs_too(name: str, executor: Any) -> None:
    kernel, matrix = KERNELS[name]
    given, r, a = prompt(n=6), 0.02, -0.01
    algorithm = FunctionalGradientDescent(kernel, steps=15, step=r, covariate_step=a)
    tf = compiled(algorithm)
    path = covariates(matrix, given, r, a, 15)
    for (_, lanes), (x, y) in zip(tf.trace(*given, executor=executor), path, strict=True):
        assert np.abs(lanes["x"][0].numpy() - x).max() < 1e-13
        assert np.abs(lanes["y"][0].numpy() - y).max() < 1e-13
    assert np.abs(path[-1][0] - path[0][0]).max() > 1e-3
    reference = ig.reference(algorithm, *given).predictions
    assert float((tf.run(*given, executor=executor).predictions - reference).abs().max()) < 1e-13


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_negative_covariate_steps_improve_the_condition_of_the_linear_kernel_in_every_layer(share: float) -> None:
    """x += a X^T X x maps singular values s to s + a s^3. For -1 / (3 lambda_max) < a < 0 that is increasing, and large
    ones shrink by more than small ones: cond(K) falls. n <= d examples, or K is singular.
    """
    given = prompt(n=4, d=6, seed=2)
    top = np.linalg.norm(given.X, 2) ** 2
    algorithm = FunctionalGradientDescent("linear", steps=12, d=6, step=0.1, covariate_step=-share / (3 * top))
    trace = compiled(algorithm).trace(*given, executor="dense")[:-1]
    inputs = [lanes["x"][0, :4].numpy() for _, lanes in trace]
    by_numpy = [np.linalg.cond(x @ x.T) for x in inputs]
    claimed = [float(condition) for condition in algorithm.conditions(torch.from_numpy(given.X))]
    np.testing.assert_allclose(claimed, by_numpy, rtol=1e-12)
    assert (np.diff(by_numpy) < 0).all()
    assert by_numpy[-1] < (0.9 if share < 0.5 else 0.5) * by_numpy[0]


def test_positive_covariate_steps_make_it_worse_and_none_leave_it() -> None:
    X = torch.from_numpy(prompt(n=4, d=6, seed=2).X)

    def conditions(a: float) -> np.ndarray:
        return np.array(FunctionalGradientDescent("linear", steps=6, d=6, covariate_step=a).conditions(X))

    assert (np.diff(conditions(0.02)) > 0).all()
    assert (np.diff(conditions(0.0)) == 0).all()


def test_covariate_steps_leave_no_kernel_for_limits_and_chebyshev_steps() -> None:
    X, y, X_query = (torch.from_numpy(part) for part in prompt())
    algorithm, reason = (
        FunctionalGradientDescent("exp", covariate_step=-0.1),
        "need a kernel matrix that stays the same",
    )
    with pytest.raises(ig.InputError, match=f"limits {reason}; got covariate steps"):
        algorithm.limit(X, y, X_query)
    with pytest.raises(ig.InputError, match=f"Chebyshev steps {reason}; got covariate steps"):
        FunctionalGradientDescent("exp", step_rule="chebyshev", covariate_step=-0.1)


# ------------------------------------------------------------------------------------------------------ what is refused


def test_the_relu_kernel_warns_and_diverges() -> None:
    """The recursion holds at finite depth (see above), but K has negative eigenvalues: every layer multiplies them."""
    given = prompt(n=14)
    few, many = (quietly(Kernel("relu"), steps=steps, step=0.1) for steps in (10, 1500))
    assert float(compiled(few).run(*given).predictions.abs().max()) < 10
    assert float(compiled(many).run(*given).predictions.abs().max()) > 1e6


def test_the_relu_kernel_has_neither_chebyshev_steps_nor_a_limit() -> None:
    with pytest.raises(ig.InputError, match="Chebyshev steps need a positive semi-definite kernel"):
        FunctionalGradientDescent("relu", step_rule="chebyshev")
    X, y, X_query = (torch.from_numpy(part) for part in prompt())
    with pytest.raises(ig.InputError, match="limits need a positive semi-definite kernel"):
        quietly(Kernel("relu")).limit(X, y, X_query)


RULES: list[tuple[Any, float, float]] = [
    ("constant", 5.0, 2 / 1.9),
    ("chebyshev", 5.0, 1.0),
    ("constant", 0.5, 2 / 1.9),
]


@pytest.mark.parametrize(("rule", "lambda_max", "slack"), RULES)
def test_steps_that_are_too_large_for_a_prompt_are_refused(rule: Any, lambda_max: float, slack: float) -> None:
    """They would diverge: r lambda >= 2 for the largest eigenvalue of this prompt's kernel matrix."""
    given = prompt(n=14)
    top = np.linalg.eigvalsh(np.exp(given.X @ given.X.T)).max()
    tf = compiled(FunctionalGradientDescent("exp", 8, rule, lambda_max=lambda_max))
    with pytest.raises(ig.InputError, match="the steps are too large for this prompt") as caught:
        tf.run(*given)
    assert f"got largest eigenvalue {top:.4g}" in str(caught.value)
    assert f"at most {slack * lambda_max:.4g}" in str(caught.value)


def test_a_step_just_below_the_bound_converges_and_just_above_is_refused() -> None:
    given = prompt(n=5, seed=1)
    top = float(np.linalg.eigvalsh(np.exp(given.X @ given.X.T)).max())
    below, above = (FunctionalGradientDescent("exp", steps=3000, step=s * 2 / top) for s in (0.99, 1.01))
    limit = below.limit(*(torch.from_numpy(part) for part in given))
    assert float((compiled(below).run(*given).predictions - limit).abs().max()) < 1e-9
    with pytest.raises(ig.InputError, match="they diverge"):
        compiled(above).run(*given)


def test_the_bound_that_the_refusal_offers_works() -> None:
    for seed in range(5):
        given = prompt(n=14, seed=seed)
        with pytest.raises(ig.InputError) as caught:
            compiled(FunctionalGradientDescent("exp", 8, "chebyshev", lambda_max=5.0)).run(*given)
        offered = float(str(caught.value).split("lambda_max=")[1].split()[0])
        compiled(FunctionalGradientDescent("exp", 8, "chebyshev", lambda_max=offered)).run(*given)


def test_the_refusal_of_a_step_speaks_of_the_step() -> None:
    with pytest.raises(ig.InputError) as caught:
        compiled(FunctionalGradientDescent("exp", 8, step=1.0)).run(*prompt(n=14))
    assert "lambda_max" not in str(caught.value)


def test_examples_have_no_weights() -> None:
    with pytest.raises(ig.InputError, match="does not weight its examples; got sample_weight"):
        compiled(FunctionalGradientDescent("exp")).run(*prompt(), sample_weight=np.ones(10))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"step_rule": "adam"}, "unknown step rule; got 'adam'; allowed: constant, chebyshev"),
        ({"step_rule": "chebyshev", "step": 0.1}, "Chebyshev steps follow from lambda_max and condition"),
        ({"steps": 0}, "steps must be a positive integer"),
        ({"step": 0.0}, "step must be a positive number"),
        ({"lambda_max": -1.0}, "lambda_max must be a positive number"),
        ({"condition": 0.5}, "condition must be a finite number, at least 1"),
        ({"covariate_step": float("nan")}, "covariate_step must be a finite number"),
        ({"d": 0}, "d must be a positive integer"),
        ({"d_y": 1.5}, "d_y must be a positive integer"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        FunctionalGradientDescent("exp", **settings)


# --------------------------------------------------------------------------------------------------- saving, and verify

SAVED: dict[str, FunctionalGradientDescent] = {
    "sum": FunctionalGradientDescent(Kernel("linear", G=G) + 0.5 * Kernel("exp", 0.7), steps=4),
    "product, chebyshev": FunctionalGradientDescent(Kernel("linear") * Kernel("exp"), 4, "chebyshev", d_y=2),
    "softmax": FunctionalGradientDescent("softmax", steps=4, step=1.5),
    "covariance": FunctionalGradientDescent(Kernel("exp", covariance=np.diag([1, 1, 0.25, 2.25, 1])), steps=4),
    "covariate steps": FunctionalGradientDescent("exp", steps=4, step=0.01, covariate_step=-0.01),
}


@pytest.mark.parametrize("name", SAVED)
def test_save_and_load_is_the_identity(name: str, tmp_path: Path) -> None:
    tf = compiled(SAVED[name])
    again = ig.load(tf.save(tmp_path))
    given = prompt(d_y=tf.algorithm.d_y)  # type: ignore[attr-defined]
    given = given._replace(X=given.X / 2)
    assert again.algorithm == tf.algorithm
    for executor in EXECUTORS:
        a, b = (t.run(*given, executor=executor).predictions for t in (tf, again))  # type: ignore[arg-type]
        assert torch.equal(a, b)


def test_a_saved_relu_kernel_warns_once_when_it_is_made_and_not_when_it_is_loaded(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    tf = compiled(quietly(Kernel("relu"), steps=3))
    recwarn.clear()
    assert ig.load(tf.save(tmp_path)).algorithm == tf.algorithm
    assert not [warning for warning in recwarn if warning.category is ig.NotPositive]


@pytest.mark.parametrize("name", SAVED)
def test_verify_passes_and_notices_a_corrupted_weight_in_every_matrix(name: str) -> None:
    tf = compiled(SAVED[name], n_examples=5)
    assert tf.verify(prompts=2).passed
    for matrix in ("W_Q", "W_K", "W_V", "W_O"):
        stack = getattr(next(tf.module.stored_layers()), matrix)
        for factor in (1.001, 0.0):
            kept = stack.value.clone()
            stack.value[0] *= factor
            assert not tf.verify(prompts=2).passed, (matrix, factor)
            stack.value.copy_(kept)
    assert tf.verify(prompts=2).passed
