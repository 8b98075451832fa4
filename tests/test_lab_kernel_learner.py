"""The attention-only models of 003 against the matrix formula, functional gradient descent and the compiler."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import innergrad as ig
from innergrad.errors import InputError
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.base import LearnerConfig
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig, distance
from innergrad.lab.tasks import Covariance, GaussianProcesses, KernelTerm, Sphere

H = {"linear": lambda z: z, "relu": lambda z: np.maximum(z, 0), "exp": np.exp}


def prompts(n: int = 7, models: int = 1, count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """x (models, count, n + 1, 5) and labels, float64."""
    task = GaussianProcesses(inputs=Sphere(), terms=(KernelTerm("exp"),))
    made = task.sample(CounterRNG.of(0, "test"), torch.arange(models * count), n + 1)
    return made.x.double().unflatten(0, (models, count)), made.y.double().unflatten(0, (models, count))


def learner(stack: int = 1, **options: object) -> KernelLearner:
    config = KernelLearnerConfig(init_std=0.5, init_r=-0.1, **options)  # type: ignore[arg-type]
    return config.build(5, 8, stack).init(list(range(stack))).double()  # type: ignore[return-value]


def formula(model: KernelLearner, s: int, x: np.ndarray, y: np.ndarray) -> float:
    """(26) and (27) with matrices Z, V and M, for one prompt; minus the lane."""
    n = len(x) - 1
    weights = {name: value.detach().numpy()[s] for name, value in model.named_parameters()}
    Z = np.concatenate((x.T, np.append(y[:n], 0.0)[None]))
    M = np.diag(np.append(np.ones(n), 0.0))
    for layer in range(model.config.n_layers):
        change = np.zeros_like(Z)
        for head, h in enumerate(model.config.heads):
            V = np.zeros((6, 6))
            V[5, 5] = weights["r"][layer, head]
            if "A" in weights:
                V[:5, :5] = weights["A"][layer, head]
            scores = (weights["B"][layer, head] @ Z[:5]).T @ (weights["C"][layer, head] @ Z[:5])
            if h == "softmax":
                pattern = np.exp(scores) / np.exp(scores[:n]).sum(0)
            else:
                pattern = H[h](scores) / (n if model.config.normalise == "count" else 1)
            change += V @ Z @ M @ pattern
        Z = Z + change
    return float(-Z[5, n])


@pytest.mark.parametrize("free_A", [False, True])
@pytest.mark.parametrize(
    "heads", [("linear",), ("relu",), ("exp",), ("softmax",), ("linear", "exp"), ("softmax", "relu")]
)
def test_forward_is_the_matrix_formula(heads: tuple[str, ...], free_A: bool) -> None:
    normalise = "count" if free_A else "none"
    model = learner(3, heads=heads, free_A=free_A, normalise=normalise)
    x, y = prompts(models=3)
    predictions = model(x, y).detach()
    assert predictions.shape == (3, 4, 1)
    for s in range(3):
        for b in range(4):
            assert float(predictions[s, b, 0]) == pytest.approx(
                formula(model, s, x[s, b].numpy(), y[s, b].numpy()), rel=1e-9
            )


def test_a_stack_is_its_models_and_seeds_make_models() -> None:
    model = learner(3, free_A=True)
    x, y = prompts(models=3)
    for s in range(3):
        assert torch.equal(model.model(s).double()(x[s : s + 1], y[s : s + 1])[0], model(x, y)[s])
        alone = KernelLearnerConfig(init_std=0.5, init_r=-0.1, free_A=True).build(5, 8).init([s]).double()
        for name, value in alone.named_parameters():
            assert torch.equal(value[0], model.get_parameter(name)[s])


def test_the_label_that_is_predicted_is_not_read() -> None:
    model, (x, y) = learner(heads=("softmax", "linear"), free_A=True), prompts()
    other = y.clone()
    other[..., -1] += 10.0
    assert torch.equal(model(x, y), model(x, other))
    other[..., -2] += 1.0
    assert not torch.equal(model(x, y), model(x, other))


def test_labels_enter_linearly() -> None:
    model, (x, y) = learner(free_A=True), prompts()
    torch.testing.assert_close(model(x, 3.0 * y), 3.0 * model(x, y))


@pytest.mark.parametrize("heads", [("linear",), ("relu",), ("exp",), ("softmax",), ("linear", "exp")])
def test_identity_weights_are_functional_gradient_descent(heads: tuple[str, ...]) -> None:
    steps = [0.05, 0.02, 0.04]
    model, (x, y) = learner(heads=heads, free_A=True).as_descent(steps), prompts()
    for b in range(4):
        u, labels = x[0, b].numpy(), y[0, b, :-1].numpy()
        if heads == ("softmax",):
            kernel = np.exp(u @ u[:-1].T)
            kernel /= kernel.sum(1, keepdims=True)
        else:
            kernel = sum(H[h](u @ u[:-1].T) for h in heads)
        f = np.zeros(len(u))  # f_l at all points
        for step in steps:
            f = f + step * kernel @ (labels - f[:-1])
        assert model(x, y)[0, b, 0].item() == pytest.approx(f[-1], rel=1e-9)


@pytest.mark.parametrize("kernel", ["linear", "exp", "softmax"])
def test_identity_weights_are_the_compiled_transformer(kernel: str) -> None:
    step = 0.5 if kernel == "softmax" else 0.05
    algorithm = ig.FunctionalGradientDescent(kernel=kernel, steps=3, d=5, step=step)
    compiled = ig.compile(algorithm, target="kernel", n_examples=7)
    model, (x, y) = learner(heads=(kernel,)).as_descent([step] * 3), prompts()
    run = compiled.run(x[0, :, :-1], y[0, :, :-1], x[0, :, -1:], dtype=torch.float64)
    torch.testing.assert_close(model(x, y)[0], run.predictions, rtol=1e-9, atol=1e-12)


def test_steps_lead_to_the_bayes_predictor() -> None:
    """Proposition 3.4: many layers of the right kernel are the posterior mean of the process."""
    task = GaussianProcesses(inputs=Sphere(), terms=(KernelTerm("linear"),))
    made = task.sample(CounterRNG.of(0, "test"), torch.arange(20), 15)
    x, y = made.x.double(), made.y.double()
    model = KernelLearnerConfig(n_layers=200, heads=("linear",)).build(5, 15).double().as_descent([0.2] * 200)
    torch.testing.assert_close(model.predict(x, y)[:, -1], task.best()(x, y)[:, -1], rtol=0, atol=1e-3)


def test_every_prefix_is_predicted_from_what_came_before() -> None:
    model, (x, y) = learner(), prompts()
    predictions = model.predict(x[0], y[0])
    assert predictions.shape == y[0].shape
    assert not predictions[:, 0].any()
    for k in (1, 4, 7):
        torch.testing.assert_close(predictions[:, k], model(x[:, :, : k + 1], y[:, :, : k + 1])[0, :, 0])


def test_cache_names_what_passes_by() -> None:
    model, (x, y) = learner(heads=("softmax", "exp")), prompts()
    predictions, cache = model.run_with_cache(x[0], y[0], ["blocks.*.attn.pattern", "blocks.2.resid_post"])
    assert set(cache) == {
        "blocks.0.attn.pattern",
        "blocks.1.attn.pattern",
        "blocks.2.attn.pattern",
        "blocks.2.resid_post",
    }
    assert cache["blocks.0.attn.pattern"].shape == (4, 2, 8, 7)
    torch.testing.assert_close(cache["blocks.1.attn.pattern"][:, 0].sum(-1), torch.ones(4, 8, dtype=torch.float64))
    torch.testing.assert_close(-cache["blocks.2.resid_post"][:, -1:, -1], predictions)


def test_distance_to_identity() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    scanned = min(np.linalg.norm(matrix - a * np.eye(5)) / np.linalg.norm(matrix) for a in np.linspace(-3, 3, 60001))
    assert float(distance(torch.tensor(matrix))) == pytest.approx(scanned, abs=1e-8)
    sigma = Covariance().sigma()
    model = learner(2)
    assert (model.distance_to_identity(sigma) > 0.5).all()
    inverse_root = torch.tensor(Covariance().inverse_root, dtype=torch.float64)
    descent = model.as_descent([0.1] * 3, inverse_root)
    assert descent.distance_to_identity(sigma).shape == (2, 3, 1)
    assert descent.distance_to_identity(sigma).max() < 1e-6
    assert descent.distance_to_identity().min() > 0.1


def test_a_few_steps_of_training_learn() -> None:
    """Adam on fresh prompts, a stack of two: the loss falls below that of predicting zero for both."""
    task = GaussianProcesses(inputs=Sphere(), terms=(KernelTerm("linear"),))
    model = KernelLearnerConfig(n_layers=2, heads=("softmax",)).build(5, 13, 2).init([0, 1])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(60):
        made = task.sample(CounterRNG.of(1, "train"), torch.arange(512) + 512 * step, 13)
        x, y = made.x.unflatten(0, (2, 256)), made.y.unflatten(0, (2, 256))
        loss = (model(x, y)[..., 0] - y[..., -1]).square().mean(1)
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        losses.append(loss.detach())
    assert (torch.stack(losses[-10:]).mean(0) < 0.8 * torch.stack(losses[:3]).mean(0)).all()


def test_errors_say_what_is_allowed() -> None:
    assert LearnerConfig.kinds["kernel"] is KernelLearnerConfig
    with pytest.raises(InputError, match="linear, relu, exp, softmax"):
        KernelLearnerConfig(heads=("tanh",))
    with pytest.raises(InputError, match="activations"):
        KernelLearnerConfig(heads=())
    with pytest.raises(InputError, match="one step a layer"):
        learner().as_descent([0.1])
