"""Optimisers: programs are torch.optim step by step, transformers are within their certificates of it."""

from __future__ import annotations

import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import innergrad as ig
from innergrad.algorithms.descent.step import batch_weights
from innergrad.cli.app import app, main
from innergrad.functions.adam import ADAM
from innergrad.functions.approximants import approximate, prove
from innergrad.functions.facts import local_swing, prove_facts
from innergrad.functions.scalar import MOST_BOXES, PiecewiseLinear, hinge_sum, soft_residual, threshold_unit
from innergrad.model.prompt import make_prompt
from innergrad.transformer import exact_run

NET = ig.Network([3, 4, 2])
N_EXAMPLES = 7


def prompt(n: int = N_EXAMPLES, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return ig.GradientDescent(NET).random_prompt(n, 1, torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------------------------------------- torch.optim

Scheduler = Callable[[torch.optim.Optimizer], Any]
RULES: dict[str, dict[str, Any]] = {
    "heavy ball": {"momentum": 0.9},
    "heavy ball, decay": {"momentum": 0.8, "weight_decay": 0.1},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "nesterov, decay": {"momentum": 0.7, "nesterov": True, "weight_decay": 0.2},
    "ista": {"l1": 0.2},
    "ista, momentum, decay": {"l1": 0.1, "momentum": 0.5, "weight_decay": 0.1},
    "clip": {"clip": 0.05},
    "clip, nesterov, decay": {"clip": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.3},
    "batches": {"batches": [[0, 1, 2], [3, 4], [5, 6]], "momentum": 0.5},
    "all of it": {
        "momentum": 0.6,
        "nesterov": True,
        "weight_decay": 0.1,
        "l1": 0.05,
        "clip": 0.1,
        "batches": [[0, 1, 2], [5, 3], [4, 6]],
    },
    "adam": {"adam": True, "delta": 0.01},
    "adam, decay, betas": {"adam": True, "weight_decay": 0.1, "betas": (0.7, 0.9), "delta": 0.1},
    "adam, clip, batches, l1": {"adam": True, "clip": 0.05, "batches": [[0, 1, 2, 3], [4, 5, 6]], "l1": 0.01},
}
SCHEDULES: dict[str, tuple[tuple[float, ...], Scheduler]] = {
    "constant": (ig.schedules.constant(0.2, 6), lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 1.0)),
    "cosine": (
        ig.schedules.cosine(0.2, 6, final=0.01),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=6, eta_min=0.01),
    ),
    "step decay": (ig.schedules.step_decay(0.2, 6, 2, 0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5)),
    "exponential": (ig.schedules.exponential(0.2, 6, 0.7), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.7)),
}


def algorithm_of(rule: dict[str, Any], rates: tuple[float, ...], box: float | None = None) -> ig.GradientDescent:
    own = {name: value for name, value in rule.items() if name != "adam"}
    return (ig.Adam if "adam" in rule else ig.GradientDescent)(NET, lr=rates, box=box, **own)


def by_torch(rule: dict[str, Any], scheduler: Scheduler, X: Tensor, y: Tensor, w0: Tensor, steps: int) -> Tensor:
    """(steps + 1, D_w): torch.optim on half the mean squared error, nothing of innergrad's but the forward pass."""
    w = w0.clone().requires_grad_()
    if "adam" in rule:
        betas, eps = rule.get("betas", (0.9, 0.999)), rule.get("delta", 1e-2)
        optimiser: torch.optim.Optimizer = torch.optim.Adam(
            [w], 0.2, betas, eps, weight_decay=rule.get("weight_decay", 0.0)
        )
    else:
        names = ("momentum", "nesterov", "weight_decay")
        optimiser = torch.optim.SGD([w], 0.2, **{name: rule[name] for name in names if name in rule})
    rates, path = scheduler(optimiser), [w.detach().clone()]
    for step in range(steps):
        batch = rule["batches"][step % len(rule["batches"])] if "batches" in rule else list(range(len(X)))
        rate = optimiser.param_groups[0]["lr"]
        optimiser.zero_grad()
        ((NET.forward(w, X[batch]) - y[batch]).square().sum() / (2 * len(batch))).backward()
        if "clip" in rule:
            torch.nn.utils.clip_grad_value_([w], rule["clip"])
        optimiser.step()
        rates.step()
        with torch.no_grad():
            w.copy_(torch.nn.functional.softshrink(w, rate * rule.get("l1", 0.0)))
        path.append(w.detach().clone())
    return torch.stack(path)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [(name, "constant" if i % 2 else "cosine") for i, name in enumerate(RULES)]
    + [("all of it", schedule) for schedule in ("step decay", "exponential")],
)
def test_the_exact_program_and_the_oracle_are_torch_optim(name: str, schedule: str) -> None:
    rates, scheduler = SCHEDULES[schedule]
    algorithm, (X, y, _), w0 = algorithm_of(RULES[name], rates), prompt(), NET.init(1)
    expected = by_torch(RULES[name], scheduler, X, y, w0, len(rates))
    assert algorithm.steps == 6
    options = ig.Options(n_examples=N_EXAMPLES)
    program = algorithm.program(options)
    checked = make_prompt(algorithm, program, X, y, None, w0, None, seed=0, dtype=torch.float64)
    torch.testing.assert_close(exact_run(program, checked)[0][0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ig.reference(algorithm, X, y, w0=w0).weights, expected, rtol=1e-12, atol=1e-12)
    assert float((expected[1:] - expected[:-1]).norm(dim=-1).min()) > 1e-3, "every step is one"


@pytest.mark.parametrize("name", RULES)
def test_the_transformer_is_within_its_certificate_of_torch_optim(name: str) -> None:
    """From the transformer's own weights and state before it, every step is: so the first, from given ones."""
    rates, scheduler = SCHEDULES["step decay"]
    algorithm, (X, y, _), w0 = algorithm_of(RULES[name], rates[:3]), prompt(), NET.init(1)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=N_EXAMPLES)
    expected = by_torch(RULES[name], scheduler, X, y, w0, 3)
    certificate = tf.certify(X, y, w0=w0, trajectory=True)
    for executor in ("plain", "dense"):
        run = tf.run(X, y, w0=w0, executor=executor).weights  # type: ignore[arg-type]
        distance = (run - expected).norm(dim=-1)
        assert bool((distance[1:] <= torch.tensor(certificate.weights)).all())
        assert float(distance[1]) <= certificate.bounds[0]
    assert all(0 < bound < 0.5 for bound in certificate.bounds)
    assert float(distance[-1]) > 1e-6, "the transformer approximates"


@pytest.mark.parametrize("variant", ["compact", "shallow", "narrow"])
@pytest.mark.parametrize("name", ["all of it", "adam, clip, batches, l1"])
def test_every_variant_has_every_rule(name: str, variant: str) -> None:
    rates, scheduler = SCHEDULES["exponential"]
    algorithm, (X, y, X_query), w0 = algorithm_of(RULES[name], rates[:2], box=4.0), prompt(), NET.init(1)
    tf = ig.compile(algorithm, variant=variant, epsilon=3e-3, n_examples=N_EXAMPLES)
    expected = by_torch(RULES[name], scheduler, X, y, w0, 2)
    exact, _ = exact_run(tf.program, tf.prompt(X, y, X_query, w0=w0))
    torch.testing.assert_close(exact[0], expected, rtol=1e-12, atol=1e-12)
    report = tf.verify(X, y, X_query, w0=w0)
    assert report.passed, str(report)
    certificate = tf.certify(X, y, w0=w0, trajectory=True)
    distance = (tf.run(X, y, w0=w0).weights - expected).norm(dim=-1)
    assert bool((distance[1:] <= torch.tensor(certificate.weights)).all())
    assert all(bound < 0.5 for bound in certificate.bounds)


@pytest.mark.parametrize("target", ["softmax", "sigma"])
def test_other_targets_have_every_rule_but_adam(target: str) -> None:
    net = ig.Network([2, 2, 1])
    rule: dict[str, Any] = {"momentum": 0.5, "nesterov": True, "l1": 0.1, "clip": 0.2}
    algorithm = ig.GradientDescent(net, lr=(0.4, 0.2), batches=[[0, 1], [2, 3]], **rule)
    compile_ = {"target": target, "epsilon": 1e-3, "z_bound": 8.0, "n_examples": 4}
    tf = ig.compile(algorithm, **compile_)  # type: ignore[arg-type]
    X, y, X_query = algorithm.random_prompt(4, 1, torch.Generator().manual_seed(0))
    run, exact = tf.run(X, y, X_query), ig.reference(algorithm, X, y, X_query)
    torch.testing.assert_close(run.weights, exact.weights, rtol=0, atol=1e-3)
    report = tf.verify(X, y, X_query)
    assert report.passed, str(report)
    with pytest.raises(ig.InputError, match=f"adam has no program for target '{target}'; allowed: relu"):
        ig.compile(ig.Adam(net), **compile_)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- layers


@pytest.mark.parametrize("N", [1, 2, 4])
def test_layers_of_a_step(N: int) -> None:
    net = ig.Network([3] + [2] * N)
    for algorithm, more in (
        (ig.GradientDescent(net, momentum=0.9, nesterov=True, l1=0.1, weight_decay=0.1), 0),
        (ig.GradientDescent(net, clip=1.0), 1),
        (ig.Adam(net, l1=0.1, weight_decay=0.1), 2),
        (ig.Adam(net, clip=1.0), 3),
    ):
        tf = ig.compile(algorithm, epsilon=1e-2, n_examples=4)
        assert tf.n_layers == (2 * N + 4 + more) * algorithm.steps
        assert len(list(tf.module.layers())) == tf.n_layers + tf.n_readout_layers
        if more and N > 1:
            for variant, layers in (("compact", 2 * N - 1), ("narrow", 3 * N + 3)):
                other = ig.compile(algorithm, epsilon=1e-2, n_examples=4, variant=variant)
                extra = {1: (1, 1), 2: (2, 3), 3: (2, 4)}[more][variant == "narrow"]
                count = other.cost().blocks if variant == "compact" else other.n_layers
                assert count == (layers + extra) * algorithm.steps, (variant, more)


def test_steps_with_the_same_settings_are_one_loop_and_equal_layers_share_their_matrices(tmp_path: Path) -> None:
    algorithm = ig.GradientDescent(NET, lr=(0.1, 0.1, 0.1, 0.05, 0.05, 0.1))
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=4)
    assert [loop.count for loop in tf.program.body] == [3, 2, 1]
    first, second, third = tf.module.stored_blocks()
    for i, (a, b, c) in enumerate(zip(first, second, third, strict=True)):
        for name in a.matrices:
            assert getattr(a, name) is getattr(c, name), "the same rate"
            assert (getattr(a, name) is getattr(b, name)) == (tf.program.body[0].layers[i].name != "update")
    tf.save(tmp_path / "three")
    single = ig.compile(ig.GradientDescent(NET, lr=0.1), epsilon=1e-2, n_examples=4)
    single.save(tmp_path / "one")
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("one", "three")]
    assert sizes[1] < 1.3 * sizes[0], "what is equal is stored once"
    again, (X, y, X_query) = ig.load(tmp_path / "three"), prompt(4)
    for executor in ("plain", "dense"):
        a, b = (t.run(X, y, X_query, executor=executor) for t in (tf, again))  # type: ignore[arg-type]
        assert torch.equal(a.weights, b.weights)
    assert again.algorithm == algorithm


# --------------------------------------------------------------------------------------------------- proximal step, box


def test_the_proximal_map_is_soft_threshold_then_box() -> None:
    """The minimiser of (x - t)^2 / 2 + kappa |x| on the box, on a fine grid; the other order is another map."""
    kappa, box = 0.75, 2.0
    f, t, x = soft_residual(kappa, box), torch.linspace(-5, 5, 101).double(), torch.linspace(-2, 2, 4001).double()
    costs = (x - t[:, None]).square() / 2 + kappa * x.abs()
    torch.testing.assert_close(t + f(t), x[costs.argmin(1)], rtol=0, atol=1e-3)
    swapped = torch.nn.functional.softshrink(t.clamp(-box, box), kappa)
    assert float((t + f(t) - swapped).abs().max()) == kappa


@pytest.mark.parametrize("executor", ["plain", "dense"])
def test_zeros_of_the_proximal_step_and_the_box_are_exact(executor: str) -> None:
    algorithm = ig.GradientDescent(NET, lr=2.0, l1=0.06, box=0.15, steps=6)
    tf, (X, y, _) = ig.compile(algorithm, epsilon=1e-3, n_examples=N_EXAMPLES), prompt()
    w0 = NET.init(1).clamp(-0.15, 0.15)
    weights = tf.run(X, y, w0=w0, executor=executor).weights[1:]  # type: ignore[arg-type]
    assert int((weights == 0.0).sum()) > 10
    assert int((weights.abs() == algorithm.box).sum()) > 5
    assert algorithm.box is not None
    assert float(weights.abs().max()) == algorithm.box


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rate=st.floats(1e-6, 10.0),
    l1=st.floats(1e-6, 10.0),
    box=st.floats(0.01, 100.0),
    far=st.floats(0.0, 7.0),
)
def test_the_box_is_exact_for_any_threshold(rate: float, l1: float, box: float, far: float) -> None:
    algorithm = ig.GradientDescent(NET, lr=rate, l1=l1, box=box)
    threshold = algorithm.threshold(rate)
    assert algorithm.box is not None
    assert abs(threshold - rate * l1) <= threshold_unit(algorithm.box, rate * l1)
    if threshold == 0.0:
        return
    f = soft_residual(threshold, algorithm.box)
    t = torch.tensor([algorithm.box + threshold + far * algorithm.box], dtype=torch.float64).clamp(
        max=8 * algorithm.box
    )
    if float(t) >= algorithm.box + threshold:
        assert float(t + f(t)) == algorithm.box
        assert f.exact is not None
        assert float(-t + hinge_sum(f.exact, -t)) == -algorithm.box
    assert float(threshold / 3 + f(torch.tensor([threshold / 3], dtype=torch.float64))) == 0.0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(boxes=st.floats(1e-3, 0.99), power=st.integers(-20, 28), box=st.floats(1e-90, 1e90))
def test_the_box_is_exact_for_thresholds_of_many_boxes(boxes: float, power: int, box: float) -> None:
    algorithm = ig.GradientDescent(NET, lr=1.0, l1=boxes * 2.0**power * box, box=box)
    assert algorithm.box is not None
    threshold = algorithm.threshold(1.0)
    f = algorithm.projection(1.0)
    assert f is not None
    assert f.exact is not None
    assert abs(threshold - algorithm.l1) <= f.rounded
    t = torch.tensor([1.0, 2.0, 1e3, 1e9], dtype=torch.float64) * (algorithm.box + threshold)
    assert torch.equal(f.exact.plus_identity(t), torch.full_like(t, algorithm.box))
    assert torch.equal(f.exact.plus_identity(-t), torch.full_like(t, -algorithm.box))


def test_a_threshold_beside_which_the_box_is_nothing_is_refused() -> None:
    with pytest.raises(ig.InputError, match="does not tell"):
        ig.GradientDescent(NET, lr=[0.0, 1.0], l1=2 * MOST_BOXES, box=1.0)
    ig.GradientDescent(NET, lr=[0.0, 1.0], l1=2 * MOST_BOXES, box=None)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(beta=st.floats(0.0, 1.0, exclude_max=True), power=st.integers(1, 40))
def test_adam_s_corrections_do_not_cancel(beta: float, power: int) -> None:
    algorithm = ig.Adam(NET, steps=40, betas=(beta, 0.0))
    (found, second) = next(itertools.islice(algorithm.plan, power - 1, None)).corrections
    exact = 1 - Fraction(beta) ** power
    assert abs(Fraction(found) - exact) <= 8 * Fraction(2) ** -53 * exact
    assert second == 1.0


# ------------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_a_batch_add_up_to_one_however_small_they_are(dtype: torch.dtype) -> None:
    least = torch.finfo(dtype).smallest_normal
    omega = torch.tensor([[1.0, least / 4, least / 4]], dtype=dtype)
    assert batch_weights(omega, (1, 2)).tolist() == [[0.0, 0.5, 0.5]]
    assert batch_weights(torch.tensor([[1.0, 0.0, 0.0]], dtype=dtype), (1, 2)).tolist() == [[0.0, 0.0, 0.0]]


def test_minibatches() -> None:
    assert ig.minibatches(5, 2) == ((0, 1), (2, 3), (4,))
    assert ig.minibatches(4, 2, epochs=2) == ((0, 1), (2, 3)) * 2
    shuffled = ig.minibatches(9, 3, epochs=3, seed=1)
    assert shuffled == ig.minibatches(9, 3, epochs=3, seed=1) != ig.minibatches(9, 3, epochs=3, seed=2)
    for epoch in range(3):
        assert sorted(itertools.chain(*shuffled[3 * epoch : 3 * epoch + 3])) == list(range(9))
    assert shuffled[:3] != shuffled[3:6], "shuffled anew"
    assert ig.GradientDescent(NET, batches=shuffled).steps == 9
    assert ig.GradientDescent(NET, batches=[[0], [1]], epochs=3).steps == 6
    assert ig.GradientDescent(NET, epochs=3).steps == 3
    assert ig.GradientDescent(NET, batches=[[0], [1]], steps=5).runs[4][0].batch == 0
    with pytest.raises(ig.InputError, match="got size=6; allowed: 1 to 5"):
        ig.minibatches(5, 6)


@pytest.mark.parametrize("variant", ["literal", "compact", "shallow", "narrow"])
def test_a_batch_that_a_short_prompt_lacks_has_gradient_zero(variant: str) -> None:
    algorithm = ig.GradientDescent(NET, lr=0.3, batches=[[0, 1], [4, 5], [1, 5]])
    tf, (X, y, _) = ig.compile(algorithm, variant=variant, n_examples=6), prompt(3)
    weights = tf.run(X, y, w0=NET.init(1)).weights
    assert float((weights[1] - weights[0]).norm()) > 1e-2
    torch.testing.assert_close(weights[2], weights[1], rtol=0, atol=1e-15)
    alone = tf.run(X[1:2].expand(2, -1), y[1:2].expand(2, -1), w0=weights[2]).weights  # example 1, twice, is batch 0
    torch.testing.assert_close(alone[1], weights[3], rtol=0, atol=1e-12)


def test_a_softmax_needs_an_example_of_every_batch() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 2, 1]), batches=[[0, 1], [2, 3]])
    tf = ig.compile(algorithm, target="softmax", variant="mean", epsilon=1e-3, n_examples=4)
    X, y, _ = algorithm.random_prompt(2, 0, torch.Generator().manual_seed(0))
    with pytest.raises(ig.InputError, match=r"got batch \[2, 3\], of which a prompt has none"):
        tf.run(X, y)


def test_weights_of_examples_are_kept_inside_batches() -> None:
    omega = torch.tensor([[0.1, 0.3, 0.0, 0.6]], dtype=torch.float64)
    torch.testing.assert_close(batch_weights(omega, (0, 1)), torch.tensor([[0.25, 0.75, 0.0, 0.0]]).double())
    assert not batch_weights(omega, (2, 7)).any()
    algorithm = ig.GradientDescent(NET, lr=0.3, batches=[[0, 1, 2], [3, 4]])
    tf, (X, y, _) = ig.compile(algorithm, epsilon=1e-4, n_examples=5), prompt(5)
    weight = torch.tensor([1.0, 3.0, 1.0, 2.0, 0.0], dtype=torch.float64)
    w = NET.init(1)
    for members in ([0, 1, 1, 1, 2], [3]):  # by hand: examples repeated
        variable = w.clone().requires_grad_()
        loss = (NET.forward(variable, X[members]) - y[members]).square().sum() / (2 * len(members))
        w = w - 0.3 * torch.autograd.grad(loss, variable)[0]
    run = tf.run(X, y, w0=NET.init(1), sample_weight=weight).weights
    exact = ig.reference(algorithm, X, y, w0=NET.init(1), sample_weight=weight).weights
    torch.testing.assert_close(exact[-1], w, rtol=1e-12, atol=1e-13)
    assert float((run[-1] - w).norm()) < 5e-4


# ---------------------------------------------------------------------------------------------------- Adam's function


@pytest.mark.parametrize("epsilon", [1e-1, 1e-2, 1e-3, 1e-4])
def test_the_approximant_of_adam(epsilon: float) -> None:
    """Proven, with 1.092 epsilon^-1/2 pieces for the whole half-line; sums of its hinges are exact to rounding."""
    f = approximate(ADAM, epsilon)
    t = torch.cat([torch.zeros(1), torch.logspace(-24, 16, 100_001)]).double()
    error = float((f(t) - ADAM(t)).abs().max())
    assert 0.99 * epsilon < error <= f.error <= epsilon
    assert f.pieces <= 1.092 * epsilon**-0.5 + 1.5
    assert f.domain == (-(epsilon**2), math.inf)
    assert float((hinge_sum(f, t) - f(t)).abs().max()) < 1e-14
    assert float((hinge_sum(f, t.float()) - f(t.float())).abs().max()) < 1e-6
    assert float(f(torch.tensor(0.0, dtype=torch.float64))) == pytest.approx(1.0, abs=1e-12)


def test_fewer_heads_than_the_papers_count_for_any_delta() -> None:
    """An absolute error e of 1 / (sqrt(v) + delta) takes 1.092 / sqrt(delta) e^-1/2 heads, on the whole half-line; on
    v <= 1 alone the optimum is 2.6, 9.8 and 31 e^-1/2 for delta = 0.1, 0.01 and 0.001.
    """
    for delta, c in ((0.1, 2.6), (0.01, 9.8), (0.001, 31.0)):
        epsilon = 1e-2 * delta  # an absolute error of 1e-2
        assert c * 1e-2**-0.5 <= approximate(ADAM, epsilon).pieces <= 1.36 * c * 1e-2**-0.5


def test_a_wrong_approximant_of_adam_is_not_proven() -> None:
    f = approximate(ADAM, 1e-2)
    for wrong in (
        PiecewiseLinear(f.knots, f.slopes, f.anchor, f.value + 1e-3, f.domain),
        PiecewiseLinear(f.knots[1:], f.slopes[1:], f.anchor, f.value, f.domain),  # wrong next to 0 alone
        PiecewiseLinear(f.knots, f.slopes, f.anchor, f.value, (-1.0, math.inf)),
    ):
        with pytest.raises(ig.InputError):
            prove(ADAM, wrong, 1e-2)
    assert prove(ADAM, f, 1e-2).error <= 1e-2
    with pytest.raises(ig.InputError, match="no curvature"):
        approximate(ig.Function("root", lambda t: torch.sqrt(t.clamp(min=0.0)), breaks=(0.0,)), 1e-2, 4.0)


def test_what_is_known_next_to_an_infinite_slope() -> None:
    facts = prove_facts(ADAM)
    assert facts.proven
    assert math.isinf(facts.lipschitz)
    generator = torch.Generator().manual_seed(0)
    z = 10.0 ** (8 * torch.rand(400, generator=generator, dtype=torch.float64) - 6)
    z[:3] = 0.0
    radius = z * torch.rand(400, generator=generator, dtype=torch.float64) * 3 + 1e-9
    swing = local_swing(ADAM, z, radius)
    inside = z + radius * torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
    seen = (ADAM(inside) - ADAM(z)).abs().amax(0)
    assert bool((seen <= swing).all())
    assert bool((swing <= seen * 1.0001 + 1e-12).all()), "it is monotone, so the ends say it all"


def test_adam_is_certified_where_gradients_vanish() -> None:
    """An input that is always zero: the second moment of its weights is zero, where the slope is infinite."""
    X, y, _ = prompt()
    X[:, 0] = 0.0
    tf = ig.compile(ig.Adam(NET, lr=0.05, steps=3), epsilon=1e-3, n_examples=N_EXAMPLES)
    for errors in ("pointwise", "sup"):
        certificate = tf.certify(X, y, w0=NET.init(1), errors=errors, trajectory=False)  # type: ignore[arg-type]
        assert all(0 < bound < 0.2 for bound in certificate.bounds)
        radius = certificate.steps[0].radius[0, : 4 * 3].view(4, 3)
        assert float(radius[:, 0].max()) < 1e-10 < float(radius[:, 1:].min())


def test_adams_function_has_its_own_accuracy() -> None:
    algorithm, (X, y, _), w0 = ig.Adam(NET, lr=0.05, steps=3), prompt(), NET.init(1)
    bounds = []
    for epsilon in (1e-2, 1e-3):
        tf = ig.compile(algorithm, epsilon=1e-4, epsilons={"adam": epsilon}, n_examples=N_EXAMPLES)
        assert tf.approximants["adam"].error <= epsilon
        bounds.append(tf.certify(X, y, w0=w0, trajectory=False).bounds[-1])
    assert bounds[0] > 5 * bounds[1]


# ------------------------------------------------------------------------------------------------- settings and saving


def test_schedules() -> None:
    assert ig.schedules.warmup_cosine(1.0, 6, 2) == pytest.approx((1 / 3, 2 / 3, *ig.schedules.cosine(1.0, 4)))
    algorithm = ig.GradientDescent(NET, lr=[0.2, 0.0, 0.1])
    assert (algorithm.steps, algorithm.lr, algorithm.rates) == (3, 0.1, (0.2, 0.0, 0.1))
    assert ig.GradientDescent(NET, lr=torch.full((4,), 0.5)) == ig.GradientDescent(NET, lr=0.5, steps=4)
    for settings_ in ({"lr": [0.1, 0.2], "steps": 3}, {"lr": [0.1, 0.2], "epochs": 3}, {"steps": 3, "epochs": 2}):
        with pytest.raises(ig.InputError, match="do not agree on the number of steps"):
            ig.GradientDescent(NET, **settings_)  # type: ignore[arg-type]
    with pytest.raises(ig.InputError, match="warmup must be an integer"):
        ig.schedules.warmup_cosine(0.1, 3, 3)


@pytest.mark.parametrize("name", RULES)
def test_settings_are_saved(name: str, tmp_path: Path) -> None:
    algorithm = algorithm_of(RULES[name], (0.2, 0.1))
    config = json.loads(json.dumps(algorithm.config()))
    assert type(algorithm).from_config(config) == algorithm
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=N_EXAMPLES)
    again, (X, y, X_query) = ig.load(tf.save(tmp_path)), prompt()
    assert again.algorithm == algorithm
    assert torch.equal(again.run(X, y, X_query).weights, tf.run(X, y, X_query).weights)


def test_folders_of_earlier_versions_load(tmp_path: Path) -> None:
    tf = ig.compile(ig.GradientDescent(NET, lr=0.3, momentum=0.5), epsilon=1e-2, n_examples=4)
    config = json.loads((tf.save(tmp_path) / "config.json").read_text())
    for name in ("nesterov", "l1", "clip", "batches"):
        del config["algorithm"][name]
    del config["digest"]
    weights = tmp_path / "weights.safetensors"
    save_file(load_file(weights), weights)  # it says nothing of itself
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ig.load(tmp_path).algorithm == tf.algorithm
    del config["algorithm"]["momentum"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ig.InputError, match=r"missing or unknown: \['momentum'\]"):
        ig.load(tmp_path)


OTHERS: dict[str, ig.GradientDescent] = {
    "schedule": ig.GradientDescent(NET, lr=[0.1, 0.2]),
    "l1": ig.GradientDescent(NET, l1=0.1),
    "clip": ig.GradientDescent(NET, clip=0.1),
    "batches": ig.GradientDescent(NET, batches=[[0, 1], [2]]),
    "adam": ig.Adam(NET),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_for_plain_descent_refuses_the_others(name: str) -> None:
    tf, (X, y, _) = ig.compile(OTHERS[name], epsilon=1e-2, n_examples=4, x_bound=4.0, y_bound=4.0), prompt(4)
    with pytest.raises(ig.InputError, match="until= bounds the gradient mapping"):
        tf.run(X, y, until=1e-3)
    with pytest.raises(ig.InputError, match="a certificate for every input is for gradient descent with one rate"):
        _ = tf.certificate
    with pytest.raises(ig.InputError, match="got another optimiser, rates that differ, l1, clip, batches or a ball"):
        ig.GridDescent(OTHERS[name], grid=2)


def test_bad_settings() -> None:
    cases: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: ig.Adam(NET, betas=(0.9, 1.0)), "betas are less than 1"),
        (lambda: ig.Adam(NET, betas=0.9), "betas are two numbers"),  # type: ignore[arg-type]
        (lambda: ig.Adam(NET, betas=(-0.1, 0.9)), "betas must be a finite number, at least 0"),
        (lambda: ig.Adam(NET, delta=0.0), "delta must be a positive number"),
        (lambda: ig.GradientDescent(NET, nesterov=True), "nesterov is a kind of momentum"),
        (lambda: ig.GradientDescent(NET, batches=[[0, 0]]), "an example is in a batch once"),
        (lambda: ig.GradientDescent(NET, batches=[[-1]]), "an example of a batch must be an integer, at least 0"),
        (lambda: ig.compile(ig.GradientDescent(NET, batches=[[4]]), n_examples=4), "got example 4; allowed: 0 to 3"),
    )
    for bad, fragment in cases:
        with pytest.raises(ig.InputError) as caught:
            bad()
        assert fragment in str(caught.value)


# -------------------------------------------------------------------------------------------------------- command line

FLAGS = ("--sizes", "3,4,2", "--n-examples", "6", "--epsilon", "1e-2", "--quiet")
COMMANDS: dict[str, tuple[tuple[str, ...], ig.GradientDescent]] = {
    "sgd": (
        (
            *(
                "--momentum",
                "0.9",
                "--nesterov",
                "--l1",
                "0.01",
                "--clip",
                "0.5",
                "--schedule",
                "cosine",
                "--lr",
                "0.2",
            ),
            *("--batch-size", "4", "--epochs", "2"),
        ),
        ig.GradientDescent(
            NET,
            lr=ig.schedules.cosine(0.2, 4),
            momentum=0.9,
            nesterov=True,
            l1=0.01,
            clip=0.5,
            batches=ig.minibatches(6, 4),
        ),
    ),
    "adam": (
        ("--optimiser", "adam", "--delta", "0.1", "--betas", "0.8,0.9", "--steps", "10", "--schedule", "warmup-cosine"),
        ig.Adam(NET, lr=ig.schedules.warmup_cosine(0.01, 10, 1), betas=(0.8, 0.9), delta=0.1),
    ),
    "step decay": (
        ("--steps", "6", "--schedule", "step-decay"),
        ig.GradientDescent(NET, lr=[0.1] * 2 + [0.1 * 0.1] * 2 + [0.1 * 0.1**2] * 2),
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_has_every_setting(name: str, tmp_path: Path) -> None:
    flags, algorithm = COMMANDS[name]
    result = CliRunner().invoke(app, ["compile", *FLAGS, *flags, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert ig.load(tmp_path).algorithm == algorithm


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--optimiser lion", "unknown optimiser; got 'lion'; allowed: sgd, adam"),
        ("--optimiser adam --momentum 0.9", "optimiser adam does not take this; got --momentum"),
        ("--delta 0.1", "optimiser sgd does not take this; got --delta"),
        ("--schedule up", "unknown schedule; got 'up'; allowed: constant, cosine, warmup-cosine, step-decay"),
        ("--nesterov", "nesterov is a kind of momentum"),
        ("--batch-size 7", "got size=7; allowed: 1 to 6"),
        ("--epochs 2 --steps 3", "do not agree on the number of steps"),
        ("--optimiser adam --betas 0.9", "betas are two numbers"),
        ("--optimiser adam --betas a,b", "betas are two numbers; got 'a,b'"),
        ("--optimiser adam --target gpt", "adam has no program for target 'gpt'; allowed: relu"),
        ("--l1 -1", "l1 must be a finite number, at least 0"),
        ("--clip 0", "clip must be a positive number"),
    ],
)
def test_wrong_settings_on_the_command_line(
    flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["innergrad", "compile", *FLAGS, *flags.split(), "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_a_delta_that_the_accuracy_does_not_reach_is_warned_of() -> None:
    network = ig.Network([3, 4, 2])
    with pytest.warns(UserWarning, match="epsilon / delta is large"):
        ig.compile(ig.Adam(network, delta=1e-8, steps=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ig.compile(ig.Adam(network, delta=1e-2, steps=2))
