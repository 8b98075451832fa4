"""Gradient descent on networks: the program is the algorithm, the transformer is within epsilon of it."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from innergrad.functions.approximants import RAMP
from innergrad.functions.scalar import Asymptote
from innergrad.model.prompt import make_prompt
from innergrad.transformer import exact_run

SMOOTH = ["tanh", "sigmoid", "softplus", "gelu", "silu", "sin"]
PIECEWISE = ["relu", "leaky_relu", "relu6"]
TASKS = [(loss, out) for loss in ("squared", "log-cosh", "pseudo-huber") for out in ("linear", "activation")]
TASKS += [("logistic", "linear"), ("softmax", "linear")]


def gd(
    sizes: list[int], activation: str = "tanh", output: str = "linear", bias: bool = True, **settings: object
) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(sizes, activation, output, bias), **settings)  # type: ignore[arg-type]


def prompt(algorithm: ig.GradientDescent, n: int = 8, n_query: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return algorithm.random_prompt(n, n_query, torch.Generator().manual_seed(seed))


def compiled(algorithm: ig.GradientDescent, epsilon: float = 1e-2, n_examples: int = 16) -> ig.CompiledTransformer:
    return ig.compile(algorithm, epsilon=epsilon, n_examples=n_examples, z_bound=16.0)


# ---------------------------------------------------------------------------------------------- program = algorithm


@pytest.mark.parametrize(("loss", "output"), TASKS)
@pytest.mark.parametrize("activation", SMOOTH + PIECEWISE)
def test_the_exact_program_is_autograd(activation: str, loss: str, output: str) -> None:
    for sizes, bias, extra in (
        ([3, 4, 5, 3], True, {}),
        ([2, 3], False, {"momentum": 0.9}),
        ([3, 2, 2], True, {"weight_decay": 0.1}),
    ):
        algorithm = gd(sizes, activation, output, bias, loss=loss, lr=0.3, steps=4, box=1.5, **extra)
        X, y, X_query = prompt(algorithm)
        program, w0 = algorithm.program(ig.Options()), algorithm.network.init(3).clamp(-1.5, 1.5)
        checked = make_prompt(algorithm, program, X, y, X_query, w0, None, seed=0, dtype=torch.float64)
        weights, state = exact_run(program, checked)
        predictions = checked.predictions(program, state)
        reference = algorithm.reference(checked.X, checked.y, checked.X_query, checked.w0, checked.omega)
        torch.testing.assert_close(weights, reference[0], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(predictions, reference[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.2), (0.8, 0.1)])
def test_the_oracle_is_torch_optim_sgd(momentum: float, decay: float) -> None:
    algorithm = gd([3, 4, 2], loss="log-cosh", lr=0.2, steps=6, box=None, momentum=momentum, weight_decay=decay)
    X, y, _ = prompt(algorithm)
    w = algorithm.network.init(0).requires_grad_()
    optimiser = torch.optim.SGD([w], lr=0.2, momentum=momentum, weight_decay=decay)
    for _ in range(6):
        optimiser.zero_grad()
        d = algorithm.network.forward(w, X) - y
        (torch.log(torch.cosh(d)).sum() / (2 * len(X))).backward()
        optimiser.step()
    reference = ig.reference(algorithm, X, y, w0=algorithm.network.init(0))
    torch.testing.assert_close(reference.weights[-1], w.detach(), rtol=1e-11, atol=1e-12)


# ---------------------------------------------------------------------------------------------- architecture


@pytest.mark.parametrize("N", range(1, 8))
@pytest.mark.parametrize("steps", [1, 3])
def test_a_step_has_the_layers_of_theorem_1(N: int, steps: int) -> None:
    tf = compiled(gd([3] + [2] * (N - 1) + [2], steps=steps))
    block = ["attention"] * (N + 1) + ["mlp"] + ["product"] * N + ["attention", "mlp"]
    assert [layer.kind for layer in tf.program.body[0].layers] == block
    assert tf.n_layers == (2 * N + 4) * steps == len(list(tf.module.layers())) - tf.n_readout_layers
    assert tf.n_readout_layers == N + 1
    assert tf.cost().blocks == (2 * N + 2) * steps
    assert len(list(tf.module.stored_layers())) == 2 * N + 4 + N + 1, "one block is stored, however many steps"


@pytest.mark.parametrize("d_y", [2, 3, 4, 5, 8, 9])
def test_softmax_adds_log2_layers(d_y: int) -> None:
    tf = compiled(gd([2, 3, d_y], loss="softmax", steps=2))
    assert tf.n_layers == (2 * 2 + 4 + math.ceil(math.log2(d_y))) * 2


def test_the_width_is_the_papers_plus_query_and_omega() -> None:
    net = ig.Network([3, 4, 4, 2], bias=False)
    units = 4 + 4 + 2
    papers = 3 + 2 + net.n_weights + 3 * units + 2 + 2  # x, y, w, p and r' and s, g, one and t
    assert compiled(ig.GradientDescent(net)).d_model == papers + 2


# ---------------------------------------------------------------------------------------------- error


def gradient_errors(tf: ig.CompiledTransformer, executor: str, seeds: int) -> Tensor:
    """||w_{l+1} - GD(w_l)|| / lr / epsilon for every seed and step; the exact step by autograd."""
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    assert algorithm.box is not None
    drawn = [prompt(algorithm, 8, 0, seed) for seed in range(seeds)]
    X, y = torch.stack([p[0] for p in drawn]), torch.stack([p[1] for p in drawn])
    w0 = torch.stack([algorithm.network.init(seed) for seed in range(seeds)])
    weights = tf.run(X, y, w0=w0, executor=executor).weights  # type: ignore[arg-type]
    start = weights[:, :-1].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(algorithm.risk(start, X[:, None], y[:, None]).sum(), start)
    ideal = (weights[:, :-1] - algorithm.lr * gradient).clamp(-algorithm.box, algorithm.box)
    return ((weights[:, 1:] - ideal).norm(dim=-1) / algorithm.lr / tf.options.epsilon).flatten()


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("activation", SMOOTH)
def test_gradient_error_is_a_few_epsilon(activation: str, epsilon: float) -> None:
    """A sample of benchmarks/gradient_error.py: median <= 5 and 95% <= 10 epsilon for N <= 6, 50 seeds, 10 steps."""
    for i, (N, (loss, output)) in enumerate(zip((1, 2, 3, 4, 6, 6, 3, 6), TASKS, strict=True)):
        d_y = 4 if loss == "softmax" else 2
        algorithm = gd([4] + [8] * (N - 1) + [d_y], activation, output, i % 2 == 0, loss=loss, steps=10, box=8.0)
        errors = gradient_errors(compiled(algorithm, epsilon), "plain", 50)
        assert errors.median() <= 5, (N, loss, output)
        assert errors.quantile(0.95) <= 10, (N, loss, output)


@pytest.mark.parametrize("N", [10, 12])
def test_gradient_error_of_deep_networks(N: int) -> None:
    for activation, epsilon in itertools.product(("tanh", "softplus", "sin"), (1e-2, 1e-3)):
        errors = gradient_errors(
            compiled(gd([4] + [8] * (N - 1) + [2], activation, steps=10, box=8.0), epsilon), "plain", 50
        )
        assert errors.median() <= 10
        assert errors.quantile(0.95) <= 25


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize(("activation", "loss"), [("tanh", "squared"), ("gelu", "softmax"), ("softplus", "logistic")])
def test_gradient_error_of_the_dense_transformer(activation: str, loss: str, epsilon: float) -> None:
    algorithm = gd([4, 4, 4, 3], activation, loss=loss, steps=10, box=8.0)
    errors = gradient_errors(compiled(algorithm, epsilon, 8), "dense", 10)
    assert errors.median() <= 5
    assert errors.quantile(0.95) <= 10
    assert errors.max() > 0.01, "the error is that of the approximants, not of a test that compares a thing with itself"


@pytest.mark.parametrize("activation", PIECEWISE)
def test_piecewise_linear_networks_are_exact_without_ramp_hits(activation: str) -> None:
    """Every step whose arguments avoid the ramps equals gradient descent to rounding: u max|z| / delta in the matrices,
    nothing of it where the height of the jump is a power of two. The default ramps are hit by none, whatever epsilon.
    """
    algorithm = gd([3, 4, 4, 2], activation, steps=10, lr=0.1)
    tf = compiled(algorithm, 1e-1, 8)
    for seed in range(3):
        X, y, X_query = prompt(algorithm, 8, 1, seed)
        report = tf.verify(X, y, X_query, w0=algorithm.network.init(seed))
        assert report.passed, str(report)
        assert sum(report.ramp_hits) == 0
        steep = 64 * 2.0**-53 / RAMP if activation == "leaky_relu" else 0.0
        assert max(report.step_error) * tf.options.epsilon < 1e-11 + steep


@pytest.mark.parametrize(("target", "activation"), [("relu", "leaky_relu"), ("relu", "relu6"), ("gpt", "relu")])
def test_matrices_are_made_for_float32_with_wider_ramps(target: str, activation: str) -> None:
    """Others say what to do. Executors that add no hinges take float32 as they are."""
    algorithm, name = gd([2, 3, 1], activation, steps=2), f"{activation}'"
    X, y, _ = prompt(algorithm, 4, 0, 0)
    narrow = ig.compile(algorithm, target=target, epsilon=1e-3, n_examples=4)
    with pytest.raises(ig.InputError, match=r"too steep.*float32.*1\.5e-08 wide.*epsilons=\{"):
        narrow.run(X, y, executor="dense", dtype=torch.float32)
    wide = ig.compile(algorithm, target=target, epsilon=1e-3, n_examples=4, epsilons={name: 2.0**-12})
    exact = ig.reference(algorithm, X, y).weights
    runs = [wide.run(X, y, executor="dense", dtype=torch.float32)]
    if target == "relu":
        runs += [narrow.run(X, y, executor="plain", dtype=torch.float32)]
        runs += [narrow.run(X, y, executor="fused", dtype=torch.float32, compiled=False)]
    else:
        with pytest.raises(ig.InputError, match="too steep for its units"):
            narrow.run(X, y, executor="plain", dtype=torch.float32)
        with pytest.raises(ig.InputError, match="one epsilon is for all of them"):
            ig.compile(gd([2, 3, 1]), target="gpt", epsilons={"tanh": 1e-5})
    for run in runs:
        assert float((run.weights - exact).abs().max()) < 1e-4


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    activation=st.sampled_from(PIECEWISE),
    depth=st.integers(2, 6),
    width=st.integers(2, 8),
    epsilon=st.sampled_from([1e-1, 1e-2, 1e-3]),
    variant=st.sampled_from(["literal", "compact", "narrow"]),
    seed=st.integers(0, 1000),
)
def test_networks_of_relus_are_exact_at_every_epsilon(
    activation: str, depth: int, width: int, epsilon: float, variant: str, seed: int
) -> None:
    """Ten steps from random weights, with no more heads than wide ramps have."""
    algorithm = gd([4, *[width] * (depth - 1), 2], activation, steps=10, box=8.0)
    X, y, _ = prompt(algorithm, 8, 0, seed)
    w0 = algorithm.network.init(seed)
    tf = ig.compile(algorithm, epsilon=epsilon, n_examples=8, variant=variant)
    wide = {name: epsilon for name, f in tf.approximants.items() if f.ramps}
    assert tf.n_heads == ig.compile(algorithm, epsilon=epsilon, n_examples=8, variant=variant, epsilons=wide).n_heads
    error = (tf.run(X, y, w0=w0).weights - ig.reference(algorithm, X, y, w0=w0).weights).abs().max()
    assert float(error) < 1e-12


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    activation=st.sampled_from(SMOOTH + PIECEWISE),
    task=st.sampled_from(TASKS),
    bias=st.booleans(),
    momentum=st.sampled_from([0.0, 0.7]),
    decay=st.sampled_from([0.0, 0.1]),
    box=st.sampled_from([None, 0.5, 3.7]),
    n=st.integers(1, 6),
)
def test_every_law_holds_for_any_network(
    sizes: list[int],
    activation: str,
    task: tuple[str, str],
    bias: bool,
    momentum: float,
    decay: float,
    box: float | None,
    n: int,
) -> None:
    loss, output = task
    if loss == "softmax":
        sizes = [*sizes[:-1], sizes[-1] + 1]
    algorithm = gd(sizes, activation, output, bias, loss=loss, steps=2, momentum=momentum, weight_decay=decay, box=box)
    report = compiled(algorithm, 1e-2, n).verify(prompts=2)
    assert report.passed, str(report)


# ---------------------------------------------------------------------------------------------- prompts


def test_any_number_of_examples_up_to_n_examples_and_any_start() -> None:
    algorithm = gd([2, 4, 1], steps=3)
    tf = compiled(algorithm, n_examples=12)
    for n, executor in itertools.product((1, 2, 7, 12), ("plain", "dense")):
        X, y, X_query = prompt(algorithm, n, 2, seed=n)
        w0 = algorithm.network.init(n)
        run, reference = tf.run(X, y, X_query, w0=w0, executor=executor), ig.reference(algorithm, X, y, X_query, w0=w0)  # type: ignore[arg-type]
        assert (run.weights - reference.weights).norm(dim=-1).max() < 10 * 1e-2 * 0.1 * 3  # 10 epsilon lr, 3 steps
        assert run.weights.shape == (4, algorithm.network.n_weights)
        assert run.predictions.shape == (2, 1)


def test_sample_weights_are_those_of_the_weighted_risk() -> None:
    algorithm = gd([2, 4, 1], "sigmoid", steps=3, lr=0.5)
    X, y, _ = prompt(algorithm, 6)
    weight = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0, 1.0], dtype=torch.float64)
    repeated = torch.repeat_interleave(torch.arange(6), (2 * weight).long())
    a = ig.reference(algorithm, X, y, sample_weight=weight).weights
    b = ig.reference(algorithm, X[repeated], y[repeated]).weights
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    tf = compiled(algorithm, 1e-3)
    c, d = (tf.run(X, y, sample_weight=weight, executor=e).weights for e in ("plain", "dense"))  # type: ignore[arg-type]
    torch.testing.assert_close(c, d, rtol=1e-12, atol=1e-13)
    assert (c - a).norm(dim=-1).max() < 5e-3  # 3.3 epsilon lr a step, 3 steps


def test_smaller_networks_by_zero_padding() -> None:
    """One compiled transformer trains a narrower network, with fewer inputs and outputs, exactly as its own."""
    for activation in ("tanh", "gelu", "silu", "relu", "sin"):
        big, small = ig.Network([4, 6, 5, 3], activation), ig.Network([2, 3, 5, 1], activation)
        a, b = (ig.GradientDescent(net, lr=0.3, steps=5) for net in (big, small))
        X, y, X_query = prompt(b)
        w0 = small.init(4)
        own = compiled(b, 1e-3).run(X, y, X_query, w0=w0)
        pad = torch.nn.functional.pad
        for executor in ("plain", "dense"):
            run = compiled(a, 1e-3).run(
                pad(X, (0, 2)), pad(y, (0, 2)), pad(X_query, (0, 2)), w0=big.embed(small, w0), executor=executor
            )  # type: ignore[arg-type]
            torch.testing.assert_close(big.extract(small, run.weights), own.weights, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(run.predictions[:, :1], own.predictions, rtol=1e-12, atol=1e-13)
            assert not (run.weights - big.embed(small, big.extract(small, run.weights))).any(), (
                "padded weights stay exactly zero"
            )


# ---------------------------------------------------------------------------------------------- extension points


def arctan() -> ig.Activation:
    """r = arctan with what has to be known of it: sup |r''| = 3 sqrt 3 / 8, sup |r'''| = 2."""
    half = math.pi / 2
    r = ig.Function("arctan", torch.arctan, curvature=3 * math.sqrt(3) / 8, lipschitz=1, bound=half,
                    left=Asymptote(0, -half, 0), right=Asymptote(0, half, 0))  # fmt: skip
    dr = ig.Function("arctan'", lambda t: 1 / (1 + t * t), curvature=2, lipschitz=3 * math.sqrt(3) / 8, bound=1,
                     left=Asymptote(0, 0, 0), right=Asymptote(0, 0, 0))  # fmt: skip
    return ig.Activation("arctan", r, dr, (-half, half))


def arctan_loss() -> ig.ResidualLoss:
    """l(d) = d arctan(d) - log(1 + d^2) / 2, so u = arctan."""
    return ig.ResidualLoss(
        "arctan-loss",
        lambda t, y: ((t - y) * torch.arctan(t - y) - torch.log1p((t - y).square()) / 2).sum(-1),
        arctan().r,
    )


def test_a_users_activation_and_loss_compile_like_the_built_in_ones(tmp_path) -> None:
    algorithm = ig.GradientDescent(ig.Network([3, 4, 4, 2], arctan(), "activation"), loss=arctan_loss(), steps=5)
    tf = compiled(algorithm, 1e-3, 8)
    assert all(f.error <= 1e-3 for f in tf.approximants.values())
    report = tf.verify()
    assert report.passed, str(report)
    assert max(report.step_error) < 5
    with pytest.raises(ig.InputError, match="unknown activation"):
        ig.load(tf.save(tmp_path))
    again = ig.load(tmp_path, extensions=[arctan(), arctan_loss()])
    X, y, X_query = prompt(algorithm)
    assert torch.equal(
        again.run(X, y, X_query, executor="dense").weights, tf.run(X, y, X_query, executor="dense").weights
    )


def test_sin_takes_its_domain_from_the_box_and_x_bound() -> None:
    algorithm = gd([2, 3, 1], "sin", box=2.0)
    tf = ig.compile(algorithm, epsilon=1e-2, x_bound=3.0)
    radius = 2.0 * 2 * 3.0 + 2.0  # |V x + b|, which exceeds |V p + b| <= 2 (3 (1 + eps) + 1)
    assert tf.approximants["sin"].domain == (-radius, radius)
    X, y, X_query = (values.clamp(-3, 3) for values in prompt(algorithm))
    assert tf.verify(X, y, X_query).passed
