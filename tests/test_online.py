"""SGD and recursive least squares on target ``gpt``, executed as matrices: against numpy, torch.optim, scikit-learn."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import Ridge

import innergrad as ig
from innergrad import OnlineSGD, RecursiveLeastSquares
from innergrad.evidence.report import Report

VARIANTS = ["raw", "pre-ln"]
D, N = 8, 40
PRECISIONS = {"f64": (torch.float64, None), "f32": (torch.float32, 1e-5)}  # dtype, and the epsilon made for it


class Prompt(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_query: np.ndarray


def prompt(n: int = N, n_query: int = 3, d: int = D, seed: int = 0) -> Prompt:
    """A linear function of Gaussian inputs, clipped to |x| <= 3, with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + n_query, d)).clip(-3, 3)
    y = X[:n] @ rng.normal(size=d) / d**0.5 + 0.1 * rng.normal(size=n)
    return Prompt(X[:n], y, X[n:])


@cache
def compiled(
    algorithm: ig.Algorithm, variant: str, precision: str = "f64", n_examples: int = N, z_bound: float | None = None
) -> ig.CompiledTransformer:
    _, epsilon = PRECISIONS[precision]
    return ig.compile(algorithm, variant=variant, epsilon=epsilon, n_examples=n_examples, z_bound=z_bound)


def dense(tf: ig.CompiledTransformer, given: Prompt, precision: str = "f64", **run: Any) -> ig.Run:
    return tf.run(*given, executor="dense", dtype=PRECISIONS[precision][0], **run)


def distance(a: torch.Tensor, b: np.ndarray) -> float:
    return float(np.abs(a.double().numpy() - b).max())


# --------------------------------------------------------------------------------------------------------------- SGD


def sgd(given: Prompt, lr: float, decay: float, w0: np.ndarray | None = None) -> np.ndarray:
    """Equation (11), example after example: weights (n + 1, d)."""
    path = [np.zeros(given.X.shape[1]) if w0 is None else w0]
    for x, y in zip(given.X, given.y, strict=True):
        w = path[-1]
        path.append(w - lr * (x * (w @ x - y) + 2 * decay * w))
    return np.array(path)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_forward_pass_is_sgd(variant: str, decay: float, precision: str) -> None:
    """d = 8, 40 examples: weights after every example, 1e-9 in float64 and 1e-4 in float32."""
    given, tolerance = prompt(), 1e-9 if precision == "f64" else 1e-4
    tf = compiled(OnlineSGD(D, lr=0.05, weight_decay=decay), variant, precision)
    run, path = dense(tf, given, precision), sgd(given, 0.05, decay)
    assert run.weights.shape == path.shape == (N + 1, D)
    assert distance(run.weights, path) < tolerance
    assert run.online is not None
    assert distance(run.online, (path[:-1] * given.X).sum(1)) < 5 * tolerance, "|x| is less than five"
    assert distance(run.predictions, given.X_query @ path[-1]) < 5 * tolerance
    assert np.abs(path[-1]).max() > 0.3


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_torchs_sgd_agrees(decay: float) -> None:
    """(<w, x> - y)^2 / 2, and weight_decay |w|^2, which torch.optim halves."""
    given = prompt(n=10)
    w = torch.zeros(D, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w], lr=0.05, weight_decay=2 * decay)
    for x, y in zip(given.X, given.y, strict=True):
        optimiser.zero_grad()
        (0.5 * (w @ torch.from_numpy(x) - y) ** 2).backward()
        optimiser.step()
    run = dense(compiled(OnlineSGD(D, 0.05, decay), "pre-ln"), given)
    assert distance(run.weights[-1], w.detach().numpy()) < 1e-9


@pytest.mark.parametrize("variant", VARIANTS)
def test_sgd_takes_two_blocks_an_example_and_one_to_predict(variant: str) -> None:
    tf = compiled(OnlineSGD(D), variant)
    assert tf.cost().blocks == 2 * N, "the body"
    assert [layer.kind for layer in tf.program.readout] == ["mlp"]
    assert tf.cost().totals()["read-out layers"] == 1
    kinds = [layer.kind for layer, _ in tf.program.schedule()]
    assert kinds == ["attention", "mlp", "mlp"] * N + ["mlp"], "2n + 1 blocks, each with one mlp"


# --------------------------------------------------------------------------------------------------------------- RLS


def ridge_prefixes(given: Prompt, ridge: float) -> np.ndarray:
    """scikit-learn's ridge regression, fitted again on every prefix, at the example after it; nothing is known at 0."""
    fits = [Ridge(alpha=ridge, fit_intercept=False).fit(given.X[:t], given.y[:t]) for t in range(1, len(given.X))]
    return np.array([0.0, *(fit.predict(x[None])[0] for fit, x in zip(fits, given.X[1:], strict=True))])


def ridge(given: Prompt, penalty: float) -> Ridge:
    return Ridge(alpha=penalty, fit_intercept=False).fit(given.X, given.y)


@pytest.mark.parametrize("penalty", [0.5, 2.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_pass_gives_ridge_regression_on_every_prefix(variant: str, penalty: float) -> None:
    """d = 8, n = 40, float64: 1e-7, and so are the weights of all examples and the queries' predictions."""
    given = prompt()
    run, fit = dense(compiled(RecursiveLeastSquares(D, ridge=penalty), variant), given), ridge(given, penalty)
    assert run.online is not None
    assert distance(run.online, ridge_prefixes(given, penalty)) < 1e-7
    assert distance(run.weights[-1], fit.coef_) < 1e-7
    assert distance(run.predictions, fit.predict(given.X_query)) < 1e-7


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_float32_the_prefixes_have_an_rmse_below_5e_3(variant: str) -> None:
    """With the smaller ridge, the harder one."""
    given = prompt()
    run = dense(compiled(RecursiveLeastSquares(D), variant, "f32"), given, "f32")
    assert run.online is not None
    assert run.online.dtype == torch.float32
    error = run.online.double().numpy() - ridge_prefixes(given, 0.5)
    assert np.sqrt((error**2).mean()) < 5e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_recursive_least_squares_takes_three_blocks_an_example_and_two_to_predict(variant: str) -> None:
    """The second of them is for the variance; ``raw`` sets its pads back in the attention of the first."""
    tf = compiled(RecursiveLeastSquares(D), variant)
    assert tf.cost().blocks == 3 * N
    assert [layer.kind for layer in tf.program.readout if layer.kind == "mlp"] == ["mlp", "mlp"]
    assert tf.program.readout[0].kind == ("attention" if variant == "raw" else "mlp")


@pytest.mark.parametrize(("noise", "penalty"), [(1.0, 0.5), (0.3, 2.0)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_standard_deviation_is_that_of_bayesian_linear_regression(
    variant: str, noise: float, penalty: float
) -> None:
    """A Gaussian process with the kernel noise^2 / ridge <x, x'>, observed with noise, by scikit-learn."""
    given = prompt(n=12, n_query=6)
    kernel = ConstantKernel(noise**2 / penalty, "fixed") * DotProduct(0.0, "fixed") + WhiteKernel(noise**2, "fixed")
    process = GaussianProcessRegressor(kernel, alpha=1e-14, optimizer=None).fit(given.X, given.y)
    mean, std = process.predict(given.X_query, return_std=True)
    algorithm = RecursiveLeastSquares(D, ridge=penalty, noise=noise)
    for precision, tolerance in (("f64", 1e-7), ("f32", 5e-3)):
        run = dense(compiled(algorithm, variant, precision, 12), given, precision, return_std=True)
        assert run.std is not None
        assert distance(run.std, std) < tolerance
        assert distance(run.predictions, mean) < tolerance
    assert std.min() > noise, "the noise is part of it"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_papers_form_agrees_in_float64_and_is_worse_in_float32(variant: str) -> None:
    """b = sum x y grows with n: its product with A needs a larger range (z_bound), and errs by its square."""
    given, wide = prompt(), 64.0
    expected = ridge_prefixes(given, 0.5)
    rls, paper = (RecursiveLeastSquares(D, form=form) for form in ("rls", "sherman-morrison"))

    def error(algorithm: ig.Algorithm, precision: str, z_bound: float | None) -> np.ndarray:
        run = dense(compiled(algorithm, variant, precision, N, z_bound), given, precision)
        assert run.online is not None
        return run.online.double().numpy() - expected

    assert np.abs(error(paper, "f64", wide)).max() < 1e-7
    papers, same_range, own_range = (
        np.sqrt((error(algorithm, "f32", z_bound) ** 2).mean())
        for algorithm, z_bound in ((paper, wide), (rls, wide), (rls, None))
    )
    assert papers > 1.5 * same_range
    assert papers > 3 * own_range


def test_the_papers_form_needs_a_larger_range() -> None:
    with pytest.raises(ig.DomainError, match="lane b left the range its products are made for"):
        dense(compiled(RecursiveLeastSquares(D, form="sherman-morrison"), "raw"), prompt())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_weights_of_the_papers_form_are_b(variant: str) -> None:
    given = prompt(n=6, d=3)
    tf = compiled(RecursiveLeastSquares(3, form="sherman-morrison"), variant, n_examples=6, z_bound=32.0)
    run = dense(tf, given)
    sums = np.concatenate([np.zeros((1, 3)), np.cumsum(given.X * given.y[:, None], axis=0)])
    assert distance(run.weights, sums) < 1e-7
    assert distance(run.predictions, ridge(given, 0.5).predict(given.X_query)) < 1e-7


# -------------------------------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3])
def test_pads_are_set_back_to_what_a_layer_may_round_by(epsilon: float) -> None:
    """Whatever the accuracy of functions: what is left of c after a division is an error of everything read later."""
    tf = ig.compile(RecursiveLeastSquares(1), target="gpt", variant="pre-ln", epsilon=epsilon, n_examples=4)
    report = tf.verify()
    assert report.passed, str(report)


BOTH = {"sgd": OnlineSGD(3, weight_decay=0.05), "rls": RecursiveLeastSquares(3)}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", BOTH)
def test_later_examples_do_not_change_earlier_predictions_by_a_single_bit(name: str, variant: str) -> None:
    tf, given, other = compiled(BOTH[name], variant, n_examples=9), prompt(9, d=3), prompt(9, d=3, seed=1)
    original = dense(tf, given).online
    assert original is not None
    for t in range(9):
        X, y = given.X.copy(), given.y.copy()
        y[t:], X[t + 1 :] = other.y[t:], other.X[t + 1 :]
        changed = dense(tf, Prompt(X, y, other.X_query)).online
        assert changed is not None
        assert torch.equal(changed[: t + 1], original[: t + 1]), "x_t is predicted before y_t is seen"
        assert t == 8 or not torch.equal(changed[t + 1 :], original[t + 1 :])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [1, 4, 9])
def test_shorter_prompts_and_several_queries_need_no_recompiling(n: int, variant: str) -> None:
    """Compiled for nine examples; positions of missing ones hold queries, which teach nothing."""
    given = prompt(n, n_query=5, d=3)
    column = given._replace(y=given.y[:, None])
    learned = dense(compiled(BOTH["rls"], variant, n_examples=9), column)
    fit = ridge(given, 0.5)
    assert distance(learned.predictions[:, 0], fit.predict(given.X_query)) < 1e-7
    assert learned.online is not None
    assert distance(learned.online, ridge_prefixes(given, 0.5)) < 1e-7
    run, path = dense(compiled(BOTH["sgd"], variant, n_examples=9), column), sgd(given, 0.05, 0.05)
    assert distance(run.predictions[:, 0], given.X_query @ path[-1]) < 1e-9
    assert distance(run.weights, np.concatenate([path, np.repeat(path[-1:], 9 - n, axis=0)])) < 1e-9


def test_the_label_of_a_single_example_needs_no_second_axis() -> None:
    """y is (n, d_y) or (n,), also for n = 1."""
    tf, given = compiled(BOTH["sgd"], "raw", n_examples=9), prompt(1, d=3)
    assert torch.equal(dense(tf, given).weights, dense(tf, given._replace(y=given.y[:, None])).weights)


@pytest.mark.parametrize("variant", VARIANTS)
def test_batches_are_prompts_one_after_the_other(variant: str) -> None:
    tf, pair = compiled(BOTH["rls"], variant, n_examples=9), (prompt(7, d=3), prompt(7, d=3, seed=1))
    together = tf.run(*(np.stack(parts) for parts in zip(*pair, strict=True)), executor="dense")
    assert together.online is not None
    for i, given in enumerate(pair):
        assert distance(together.predictions[i], ridge(given, 0.5).predict(given.X_query)) < 1e-7
        assert distance(together.online[i], ridge_prefixes(given, 0.5)) < 1e-7


@pytest.mark.parametrize("variant", VARIANTS)
def test_initial_weights_are_where_sgd_starts_and_what_ridge_regression_shrinks_to(variant: str) -> None:
    given, w0 = prompt(9, d=3), np.array([1.0, -0.5, 2.0])
    run = dense(compiled(BOTH["sgd"], variant, n_examples=9), given, w0=w0)
    assert distance(run.weights, sgd(given, 0.05, 0.05, w0)) < 1e-9
    learned = dense(compiled(BOTH["rls"], variant, n_examples=9), given, w0=w0)
    residual = given._replace(y=given.y - given.X @ w0)
    assert distance(learned.weights[-1], w0 + ridge(residual, 0.5).coef_) < 1e-7
    assert learned.online is not None
    assert distance(learned.online, given.X @ w0 + ridge_prefixes(residual, 0.5)) < 1e-7


@pytest.mark.parametrize("executor", ["plain", "dense"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lane_that_leaves_its_range_is_an_error_with_a_hint(variant: str, executor: Any) -> None:
    """Products of GeLUs grow cubically outside; a larger z_bound, as the hint says, serves."""
    given = prompt(5, d=3)
    large = given._replace(y=given.y + 50.0)
    with pytest.raises(ig.DomainError, match="left the range its products are made for") as caught:
        compiled(OnlineSGD(3), variant, n_examples=5).run(*large, executor=executor)
    assert "compile with a larger z_bound" in str(caught.value)
    run = dense(compiled(OnlineSGD(3), variant, n_examples=5, z_bound=128.0), large)
    assert distance(run.weights, sgd(large, 0.05, 0.0)) < 1e-7


@pytest.mark.parametrize("name", BOTH)
def test_inputs_beyond_their_bound_are_refused(name: str) -> None:
    given = prompt(5, d=3)
    tf = ig.compile(BOTH[name], n_examples=5, x_bound=1.0, y_bound=9.0)
    with pytest.raises(ig.InputError, match="X leaves the domain the transformer was compiled for"):
        tf.run(*given)
    small = given._replace(X=given.X / 4, X_query=given.X_query / 4)
    assert distance(tf.run(*small, executor="dense").weights, ig.reference(BOTH[name], *small).weights.numpy()) < 1e-7


@pytest.mark.parametrize("name", BOTH)
def test_the_reference_is_the_algorithm(name: str) -> None:
    """ig.reference needs no transformer; it agrees with numpy and scikit-learn."""
    given = prompt(9, d=3)
    weights = ig.reference(BOTH[name], *given).weights
    path = sgd(given, 0.05, 0.05) if name == "sgd" else np.array([np.zeros(3), *ridge_path(given)])
    assert distance(weights, path) < 1e-12


def ridge_path(given: Prompt) -> list[np.ndarray]:
    return [ridge(Prompt(given.X[:t], given.y[:t], given.X_query), 0.5).coef_ for t in range(1, len(given.X) + 1)]


@pytest.mark.parametrize("name", BOTH)
def test_examples_have_no_weights(name: str) -> None:
    with pytest.raises(ig.InputError, match="does not weight its examples"):
        compiled(BOTH[name], "raw", n_examples=9).run(*prompt(5, d=3), sample_weight=np.ones(5))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: OnlineSGD(0), "d must be a positive integer"),
        (lambda: OnlineSGD(2, lr=-1.0), "lr must be a finite number, at least 0"),
        (lambda: OnlineSGD(2, weight_decay=float("inf")), "weight_decay must be a finite number"),
        (lambda: RecursiveLeastSquares(2, ridge=0.0), "ridge must be a positive number"),
        (lambda: RecursiveLeastSquares(2, noise=-1.0), "noise must be a positive number"),
        (lambda: RecursiveLeastSquares(2, form="qr"), "unknown form; got 'qr'; allowed: rls, sherman-morrison"),
        (lambda: ig.compile(OnlineSGD(2), target="kernel"), "online_sgd has no program for target 'kernel'"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(make: Any, reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        make()


# ------------------------------------------------------------------------------------------------------------ verify

SMALL = {
    "sgd": OnlineSGD(2),
    "sgd, decay": OnlineSGD(2, weight_decay=0.1),
    "rls": RecursiveLeastSquares(2),
    "sherman-morrison": RecursiveLeastSquares(2, form="sherman-morrison"),
}


def small(name: str, variant: str) -> ig.CompiledTransformer:
    """A transformer of its own, to be corrupted."""
    return ig.compile(SMALL[name], variant=variant, n_examples=2)


def failing(report: Report) -> set[str]:
    return {law.name for law in report.laws if not law.holds}


def corrupted(tf: ig.CompiledTransformer, stack: Any, entries: Any, factor: float) -> set[str]:
    """The laws that fail when these weights are multiplied by the factor."""
    kept = stack.value.clone()
    stack.value[entries] *= factor
    broken = failing(tf.verify(prompts=1))
    stack.value.copy_(kept)
    return broken


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SMALL)
def test_verify_passes(name: str, variant: str) -> None:
    report = small(name, variant).verify(prompts=2)
    assert report.passed, str(report)
    assert not report.proven
    assert max(report.distance) < 1e-7


FACTORS: dict[str, dict[str, float]] = {
    "sgd": {"W_V": 1.5, "W_O": 0.0, "W_1": 1.5, "W_2": 0.0},
    "rls": {"W_V": 0.0, "W_O": 1.5, "W_1": 0.0, "W_2": 1.5},
}


@pytest.mark.parametrize("variant", ["pre-ln", pytest.param("raw", marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", FACTORS)
def test_a_corrupted_weight_of_a_value_output_or_mlp_matrix_is_noticed(name: str, variant: str) -> None:
    """The first or the last weight of every matrix of the first step and of the read-out, times 1.5 or times 0.

    A linear map is a pair of units, gelu(z) - gelu(-z), one of which is silent where z has one sign.
    """
    tf = small(name, variant)
    for layer in (*tf.module.stored_blocks()[0], *tf.module.stored_readout()):
        for matrix in set(FACTORS[name]) & set(layer.matrices):
            stack, factor = getattr(layer, matrix), FACTORS[name][matrix]
            broken = corrupted(tf, stack, -1, factor) or corrupted(tf, stack, 0, factor)
            assert broken & {"weights", "probe"}, (layer.name, matrix)
    assert tf.verify(prompts=1).passed


@pytest.mark.parametrize("layer", ["divide", "gain and error"])
def test_a_corrupted_weight_of_the_units_that_set_pads_back_is_noticed(layer: str) -> None:
    """divide: the fit of 1 / t; gain and error: the repair of what is left. Every unit's weight into the pads set to
    zero, one after the other.
    """
    tf = small("rls", "pre-ln")
    module = next(module for module in tf.module.stored_layers() if module.name == layer)
    pad = tf.program.stream.entry("pad_up")
    entries = (module.W_2.index[1] == pad).nonzero()[:, 0].tolist()
    for entry in entries[:: max(1, len(entries) // 8)]:
        assert corrupted(tf, module.W_2, entry, 0.0), entry


@pytest.mark.parametrize("matrix", ["W_Q", "W_K"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["sgd", "rls"])
def test_queries_or_keys_set_to_zero_are_noticed(name: str, variant: str, matrix: str) -> None:
    """All of a layer's: scores by position are saturated, so that single weights may change without any effect."""
    tf = small(name, variant)
    for layer in tf.module.stored_blocks()[0]:
        if matrix in layer.matrices:
            assert corrupted(tf, getattr(layer, matrix), slice(None), 0.0) & {"weights", "probe"}, layer.name


# ------------------------------------------------------------------------------ predictions at prefixes are checked


class SeesItsOwnInput(OnlineSGD):
    """The token of x_t learns from (x_t, 0): the last weights are right, the predictions at prefixes are not."""

    kind = "sees its own input"

    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        body = []
        for t, loop in enumerate(program.body):
            read = ig.Layer("attention", loop.layers[0].name, (
                ig.Attend("X[c]", value="x[c]", scope=f"at({2 * t})"), *loop.layers[0].instructions[1:],
            ))  # fmt: skip
            body.append(ig.Loop(1, (read, *loop.layers[1:])))
        return dataclasses.replace(program, body=tuple(body))


class KnowsNoVariance(RecursiveLeastSquares):
    """A variance that is 1 everywhere."""

    kind = "knows no variance"

    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        constant = ig.Layer("mlp", "variance", (ig.Attend("variance", value="one"),))
        return dataclasses.replace(program, readout=(program.readout[0], constant))


@pytest.mark.parametrize(("kind", "where"), [(SeesItsOwnInput, "online predictions"), (KnowsNoVariance, "std")])
def test_verify_compares_prefixes_and_standard_deviations_with_the_oracle(kind: Any, where: str) -> None:
    report = ig.compile(kind(d=2), n_examples=5).verify()
    (law,) = (law for law in report.laws if not law.holds)
    assert (law.name, law.where) == ("oracle", where)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ridge", [1.0, 0.1, 0.01])
def test_small_penalties_do_not_ruin_the_accuracy(ridge: float, variant: str) -> None:
    """No lane of RLS grows as the penalty becomes small; what is left is the condition of the problem."""
    algorithm = RecursiveLeastSquares(d=8, ridge=ridge)
    X, y, X_query = algorithm.random_prompt(24, 2, torch.Generator().manual_seed(3))
    run = ig.compile(algorithm, variant=variant, n_examples=24).run(X, y, X_query, executor="dense", return_std=True)
    reference = ig.reference(algorithm, X, y, X_query)
    assert float((run.online - reference.online).abs().max()) < 1e-7
    assert float((run.std - reference.std).abs().max()) < 1e-6
