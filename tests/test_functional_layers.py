"""Functional gradient descent with heads of their own in every layer, against the paper's layer in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import innergrad as ig
from innergrad import FunctionalHead, FunctionalLayers, Kernel
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig

EXECUTORS = ["plain", "dense", "fused"]
H = {"linear": lambda z: z, "relu": lambda z: np.maximum(z, 0.0), "exp": np.exp}
SIGMA = np.diag([1.0, 0.25, 2.25]) + 0.1
Paper = tuple[str, np.ndarray, np.ndarray, np.ndarray]  # h, V, B, C


def h(name: str, U: np.ndarray, W: np.ndarray) -> np.ndarray:
    """(12): h(<u_i, w_j>); softmax over the keys i, which are all columns but the last."""
    scores = U.T @ W
    if name != "softmax":
        return np.asarray(H[name](scores))
    weights = np.exp(scores[:-1])
    return np.concatenate([weights / weights.sum(0), np.zeros((1, len(scores)))])


def transformer(X: np.ndarray, y: np.ndarray, x: np.ndarray, layers: Sequence[Sequence[Paper]]) -> np.ndarray:
    """(1)-(4) and (26): Z <- Z + sum over heads of V Z M h(B X, C X); minus the label of the last column."""
    d = X.shape[1]
    Z = np.concatenate([np.concatenate([X, y], 1), np.concatenate([x, np.zeros(y.shape[1])])[None]]).T
    M = np.diag([1.0] * len(X) + [0.0])
    for heads in layers:
        Z = Z + sum(V @ Z @ M @ h(name, B @ Z[:d], C @ Z[:d]) for name, V, B, C in heads)
    return -np.asarray(Z[d:, -1])


def some_layers(
    names: Sequence[Sequence[str]], d: int = 3, d_y: int = 1, seed: int = 0, moved: float = 0.2
) -> tuple[FunctionalLayers, list[list[Paper]]]:
    """Heads with random matrices; B and C may have fewer rows than columns. moved: the size of A."""
    rng, layers, paper = np.random.default_rng(seed), list[list[FunctionalHead]](), list[list[Paper]]()
    for heads in names:
        layers.append([])
        paper.append([])
        for name in heads:
            m = int(rng.integers(1, d + 1))
            A, r = moved * rng.normal(size=(d, d)), 0.2 * rng.normal()
            B, C = (0.5 * rng.normal(size=(m, d)) for _ in "BC")
            layers[-1].append(FunctionalHead(name, r, A, B, C))
            V = np.block([[A, np.zeros((d, d_y))], [np.zeros((d_y, d)), -r * np.eye(d_y)]])
            paper[-1].append((name, V, B, C))
    return FunctionalLayers(layers, d, d_y), paper


def prompt(n: int = 6, d: int = 3, d_y: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 3, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X[:n], rng.normal(size=(n, d_y)), X[n:]


def by_paper(given: tuple[np.ndarray, np.ndarray, np.ndarray], layers: Sequence[Sequence[Paper]]) -> np.ndarray:
    X, y, X_query = given
    return np.stack([transformer(X, y, x, layers) for x in X_query])


MIXED = [["exp", "linear"], ["softmax"], ["relu", "softmax", "exp"], ["linear"]]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("seed", range(4))
def test_the_transformer_is_the_paper_s(seed: int, executor: Any) -> None:
    d, d_y = 2 + seed % 3, 1 + seed % 2
    algorithm, layers = some_layers(MIXED, d, d_y, seed)
    given = prompt(6, d, d_y, seed)
    wanted = by_paper(given, layers)
    tf = ig.compile(algorithm, target="kernel", n_examples=8)
    assert tf.n_layers == len(MIXED)
    assert tf.n_heads == max(map(len, MIXED))
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(tf.run(*given, executor=executor).predictions.numpy(), wanted, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(ig.reference(algorithm, *given).predictions.numpy(), wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.filterwarnings("ignore::innergrad.PoorRun")
@pytest.mark.parametrize("variant", ["pre-ln", "raw"])
def test_standard_blocks_compute_it_too(variant: str) -> None:
    """exp by a heavy sink, softmax as it is, linear scores as sums of exp heads."""
    algorithm, layers = some_layers([["exp", "softmax"], ["softmax"], ["linear"]], d_y=2, seed=3)
    given = prompt(d_y=2)
    tf = ig.compile(algorithm, target="gpt", variant=variant, n_examples=8, epsilon=1e-9, z_bound=4.0)
    for executor in ("plain", "dense"):
        error = np.abs(tf.run(*given, executor=executor).predictions.numpy() - by_paper(given, layers)).max()  # type: ignore[arg-type]
        assert error < 1e-10, executor


def test_standard_blocks_have_no_relu_scores() -> None:
    algorithm, _ = some_layers([["relu"]])
    with pytest.raises(ig.LoweringError, match="softmax heads add up exponentials of scores"):
        ig.compile(algorithm, target="gpt")


def test_scores_that_are_zero_are_h_of_zero() -> None:
    """B = C = 0, where the paper's landscape has stationary points, too."""
    zero = np.zeros((3, 3))
    names = ("linear", "exp", "softmax", "relu")
    algorithm = FunctionalLayers([FunctionalHead(name, 0.1, 0.3, zero, zero) for name in names], d=3)
    V = np.diag([0.3, 0.3, 0.3, -0.1])
    given = prompt()
    run = ig.compile(algorithm, target="kernel", n_examples=6).run(*given)
    np.testing.assert_allclose(
        run.predictions, by_paper(given, [[(name, V, zero, zero)] for name in names]), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", ["linear", "exp", "softmax"])
def test_stationary_points_are_those_of_the_theorem(kernel: str) -> None:
    """A_l = a_l 1, B_l = b_l Sigma^(-1/2), C_l = c_l Sigma^(-1/2)."""
    r, a, b, c = [0.1, 0.05, 0.2], [-0.1, 0.1, 0.0], [0.5, 0.6, 0.7], [1.0, -0.5, 0.3]
    values, vectors = np.linalg.eigh(SIGMA)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    layers = [
        [(kernel, np.diag([a_l] * 3 + [-r_l]), b_l * root, c_l * root)]
        for r_l, a_l, b_l, c_l in zip(r, a, b, c, strict=True)
    ]
    algorithm, given = FunctionalLayers.stationary(kernel, r, a, b, c, covariance=SIGMA), prompt()
    run = ig.compile(algorithm, target="kernel", n_examples=6).run(*given)
    np.testing.assert_allclose(run.predictions, by_paper(given, layers), rtol=1e-11, atol=1e-14)


def test_one_kernel_without_matrices_is_functional_gradient_descent() -> None:
    kernel = Kernel("linear") * Kernel("exp", 1.5) + 0.5 * Kernel("exp", G=np.ones((2, 3)) / 3)
    one = ig.FunctionalGradientDescent(kernel, steps=6, d=3, step=0.02, covariate_step=-0.01)
    other = FunctionalLayers([FunctionalHead(kernel, 0.02, -0.01)] * 6, d=3)
    a, b = (ig.compile(algorithm, target="kernel", n_examples=6) for algorithm in (one, other))
    np.testing.assert_allclose(a.run(*prompt()).predictions, b.run(*prompt()).predictions, rtol=1e-12)
    assert len(list(b.module.stored_layers())) == 1, "equal layers are a loop"


def test_heads_are_kernels_that_are_added() -> None:
    """Proposition D.1: a sum of kernels is one head each."""
    G = 0.5 * np.random.default_rng(1).normal(size=(2, 3))
    heads = [FunctionalHead("linear", 0.1), FunctionalHead("exp", 0.05, B=G, C=G)]
    summed = ig.FunctionalGradientDescent(2.0 * Kernel("linear") + Kernel("exp", G=G), steps=5, step=0.05, d=3)
    several = FunctionalLayers([heads] * 5, d=3)
    a, b = (ig.compile(algorithm, target="kernel", n_examples=6) for algorithm in (summed, several))
    np.testing.assert_allclose(a.run(*prompt()).predictions, b.run(*prompt()).predictions, rtol=1e-11, atol=1e-14)


# ---------------------------------------------------------------------------------------------------- what was trained


@pytest.mark.parametrize("normalise", ["none", "count"])
@pytest.mark.parametrize("free_A", [True, False])
def test_a_learner_is_the_transformer_that_is_compiled_of_it(free_A: bool, normalise: Any) -> None:
    config = KernelLearnerConfig(3, ("exp", "softmax", "relu", "linear"), free_A, normalise)
    learner = config.build(d=4, n_points=8, stack=2).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    x, y = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 8, 4), (5, 8)))
    x = x / x.norm(dim=-1, keepdim=True)
    predicted = learner(x.expand(2, -1, -1, -1), y.expand(2, -1, -1))
    for model in range(2):
        algorithm = learner.as_algorithm(model, n_examples=7)
        tf = ig.compile(algorithm, target="kernel", n_examples=7)
        for executor in EXECUTORS:
            run = tf.run(x[:, :-1], y[:, :-1], x[:, -1:], executor=executor)  # type: ignore[arg-type]
            torch.testing.assert_close(run.predictions, predicted[model], rtol=1e-10, atol=1e-10)


def test_a_learner_that_divides_by_the_number_of_examples_asks_for_it() -> None:
    with pytest.raises(ig.InputError, match="divides by the number of examples; give n_examples"):
        KernelLearnerConfig(normalise="count").build(2, 4).as_algorithm()


# ---------------------------------------------------------------------------------------------- saving, verify, errors


def test_save_and_load_is_the_identity(tmp_path: Path) -> None:
    algorithm, _ = some_layers(MIXED, d_y=2)
    tf = ig.compile(algorithm, target="kernel", n_examples=6)
    again = ig.load(tf.save(tmp_path))
    assert again.algorithm == algorithm
    for executor in EXECUTORS:
        a, b = (t.run(*prompt(d_y=2), executor=executor).predictions for t in (tf, again))  # type: ignore[arg-type]
        assert torch.equal(a, b)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_verify_passes_and_notices_a_corrupted_weight_in_every_layer(every: int) -> None:
    algorithm, _ = some_layers(MIXED)
    tf = ig.compile(algorithm, target="kernel", n_examples=5)
    assert tf.verify(prompts=2).passed
    stacks = [getattr(layer, name) for layer in tf.module.stored_layers() for name in ("W_Q", "W_K", "W_V", "W_O")]
    for stack in stacks[::every]:  # three and four have no common factor: every layer, every kind of matrix
        kept = stack.value.clone()
        stack.value[0] *= 1.01
        assert not tf.verify(prompts=2).passed
        stack.value.copy_(kept)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: FunctionalLayers([]), "layers are made of heads"),
        (lambda: FunctionalLayers([[]]), "layers are made of heads"),
        (lambda: FunctionalLayers(["exp"]), "layers are made of heads"),  # type: ignore[list-item]
        (lambda: FunctionalLayers([FunctionalHead("exp")]), "layer 1 does nothing"),
        (lambda: FunctionalLayers([FunctionalHead("exp", 1.0, B=np.ones((2, 5)))]), "do not fit the inputs"),
        (lambda: FunctionalLayers([FunctionalHead("exp", 1.0, A=np.ones((2, 5)))]), "do not fit the inputs"),
        (lambda: FunctionalLayers([FunctionalHead("exp", 1.0, B=np.ones((2, 3)), C=np.ones((2, 3)))]), "do not fit"),
        (lambda: FunctionalHead("exp", float("nan")), "step must be a finite number"),
        (lambda: FunctionalHead("exp", 1.0, B=[[float("inf")]]), "B must be a matrix of finite numbers"),
        (lambda: FunctionalHead("cosine", 1.0), "unknown kernel"),
        (lambda: FunctionalLayers.stationary("exp", [0.1, 0.2], a=[0.1]), "one a, b and c a layer"),
        (
            lambda: FunctionalLayers(
                [FunctionalHead(Kernel("exp", G=np.ones((2, 5))), 1.0, 0.0, *[np.ones((2, 5))] * 2)]
            ),
            "G does not fit its argument",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        make()
