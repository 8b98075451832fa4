"""Projection onto a Euclidean ball: against torch step by step, certificates against 80-bit arithmetic."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import _judge as judge
import innergrad as ig
from innergrad.cli.app import app
from innergrad.functions.approximants import approximate, prove
from innergrad.functions.ball import BALL, MIDDLE, REACH, ROOT
from innergrad.functions.facts import prove_facts
from innergrad.model.prompt import make_prompt
from innergrad.transformer import exact_run

NET = ig.Network([3, 4, 2])
RADIUS = 1.25
VARIANTS = ["literal", "compact", "shallow", "narrow"]


def prompt(n: int = 7, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return ig.GradientDescent(NET).random_prompt(n, 1, torch.Generator().manual_seed(seed))


# --------------------------------------------------------------------------------------------------------- the function


@pytest.mark.parametrize("epsilon", [0.1, 1e-3, 1e-5])
def test_the_approximant_is_proven_and_zero_inside_the_ball_but_for_rounding(epsilon: float) -> None:
    f = approximate(BALL, epsilon)
    assert prove(BALL, f, epsilon).error <= epsilon
    outside = torch.logspace(-12, 16, 20_001, dtype=torch.float64)
    exact = (1 + outside.numpy().astype(np.longdouble)) ** np.longdouble(-0.5) - 1
    wanted = torch.from_numpy(exact.astype(np.float64))
    assert float((f(outside) - wanted).abs().max()) <= epsilon
    inside = torch.linspace(-1, 0, 1001, dtype=torch.float64)
    for found in (f(inside), f.as_weights(inside)):
        assert float(found.abs().max()) < 1e-14
    for dtype, rounding in ((torch.float64, 1e-14), (torch.float32, 1e-6)):  # hinges of one sign
        assert float((f.as_weights(outside.to(dtype)).double() - f(outside)).abs().max()) < rounding
    assert f.pieces <= 2 + 1.2 * 0.866 * epsilon**-0.5


def test_its_facts_are_proven() -> None:
    facts = prove_facts(BALL)
    assert facts.proven
    assert facts.lipschitz <= BALL.lipschitz * (1 + 1e-9)
    assert facts.curvature <= BALL.curvature * (1 + 1e-9)


# --------------------------------------------------------------------------------------------------------------- torch

RULES: dict[str, dict[str, Any]] = {
    "descent": {},
    "momentum, decay": {"momentum": 0.8, "weight_decay": 0.1},
    "nesterov": {"momentum": 0.7, "nesterov": True},
    "l1": {"l1": 0.1},
    "clip, batches": {"clip": 0.2, "batches": [[0, 1, 2, 3], [4, 5, 6]]},
    "adam": {"betas": (0.8, 0.9), "delta": 0.1},
}


def algorithm_of(rule: dict[str, Any], lr: float = 0.5, steps: int = 4) -> ig.GradientDescent:
    return (ig.Adam if "betas" in rule else ig.GradientDescent)(NET, lr=lr, steps=steps, ball=RADIUS, **rule)


def by_torch(rule: dict[str, Any], X: Tensor, y: Tensor, w0: Tensor, lr: float = 0.5, steps: int = 4) -> Tensor:
    """(steps + 1, D_w): torch.optim, then the projection, nothing of innergrad's but the forward pass."""
    w = w0.clone().requires_grad_()
    names = ("momentum", "nesterov", "weight_decay")
    optimiser: torch.optim.Optimizer = (
        torch.optim.Adam([w], lr, rule["betas"], rule["delta"])
        if "betas" in rule
        else torch.optim.SGD([w], lr, **{name: rule[name] for name in names if name in rule})
    )
    path = [w0]
    for step in range(steps):
        batch = rule["batches"][step % 2] if "batches" in rule else list(range(len(X)))
        optimiser.zero_grad()
        ((NET.forward(w, X[batch]) - y[batch]).square().sum() / (2 * len(batch))).backward()
        if "clip" in rule:
            torch.nn.utils.clip_grad_value_([w], rule["clip"])
        optimiser.step()
        with torch.no_grad():
            w.copy_(torch.nn.functional.softshrink(w, lr * rule.get("l1", 0.0)))
            if w.norm() > RADIUS:
                w.mul_(RADIUS / w.norm())
        path.append(w.detach().clone())
    return torch.stack(path)


@pytest.mark.parametrize("name", RULES)
def test_programs_and_the_reference_are_torch(name: str) -> None:
    X, y, X_query = prompt()
    algorithm, w0 = algorithm_of(RULES[name]), NET.init(3)
    wanted = by_torch(RULES[name], X, y, w0)
    assert float(wanted[1:].norm(dim=1).max()) == pytest.approx(RADIUS, rel=1e-12), "the ball binds"
    found = ig.reference(algorithm, X, y, X_query, w0=w0).weights
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)
    for variant in VARIANTS:
        program = algorithm.program(ig.Options(target="relu", variant=variant, n_examples=7))
        checked = make_prompt(algorithm, program, X, y, None, w0, None, seed=0, dtype=torch.float64)
        weights, _ = exact_run(program, checked)
        torch.testing.assert_close(weights[0], wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_transformers_are_within_their_certificates_of_torch(variant: str) -> None:
    X, y, X_query = prompt()
    algorithm, w0 = algorithm_of(RULES["momentum, decay"]), NET.init(3)
    wanted = by_torch(RULES["momentum, decay"], X, y, w0)
    tf = ig.compile(algorithm, variant=variant, epsilon=1e-3, n_examples=7)
    certificate = tf.certify(X, y, X_query, w0=w0)
    assert certificate.weights is not None
    assert max(certificate.weights) < 0.2
    for executor in ("plain", "dense"):
        run = tf.run(X, y, X_query, w0=w0, executor=executor)  # type: ignore[arg-type]
        distance = (run.weights - wanted).norm(dim=-1)[1:]
        assert 0 < float(distance.max()) < 2e-2
        for found, bound in zip(distance.tolist(), certificate.weights, strict=True):
            assert found <= bound + 1e-12  # executors differ by rounding


# ------------------------------------------------------------------------------------------------- 80-bit certificates


def some(count: int, dtype: str) -> list[int]:
    """Numbers of configurations that are quick to compile."""
    found = []
    for number in range(40_000, 50_000):
        if judge.KINDS[number % len(judge.KINDS)] != "descent":
            continue
        row = judge.with_ball(number)
        quick = row["epsilon"] == 1e-2 and row["executor"] == "plain" and sum(row["sizes"]) <= 16
        if quick and row["dtype"] == dtype:
            found.append(number)
        if len(found) == count:
            break
    return found


@pytest.mark.filterwarnings("ignore::innergrad.errors.DegenerateStart")
@pytest.mark.parametrize("number", [*some(5, "float64"), *some(5, "float32")])
def test_every_bound_holds(number: int) -> None:
    """Steps, trajectory and predictions of random settings, judged in 80-bit arithmetic without a tolerance."""
    row = judge.with_ball(number)
    found = judge._examine(row)
    assert found["violations"] == []
    assert found["entries"] > 0
    assert found["apart"] < 1e-13  # autograd in float64


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_runs_stay_within_the_bounds_for_every_input(decay: float, variant: str) -> None:
    """From any weights in the ball; the domain is that of the ball, not of a box with its edges."""
    network = ig.Network([2, 3, 1])
    algorithm = ig.GradientDescent(network, lr=0.1, steps=4, ball=RADIUS, weight_decay=decay)
    bounds: dict[str, Any] = {"x_bound": 1.0, "y_bound": 1.0, "n_examples": 3, "variant": variant}
    tf = ig.compile(algorithm, epsilon=1e-3, epsilons={"ball": 1e-4}, **bounds)
    certificate, generator = tf.certificate, torch.Generator().manual_seed(0)
    assert certificate.domain == "|x| <= 1, |y| <= 1, ||w|| <= 1.25"
    X = 2 * torch.rand(60, 4, 2, generator=generator, dtype=torch.float64) - 1
    y = 2 * torch.rand(60, 3, 1, generator=generator, dtype=torch.float64) - 1
    w0 = torch.randn(60, network.n_weights, generator=generator, dtype=torch.float64)
    w0 = RADIUS * w0 / w0.norm(dim=1, keepdim=True)
    run, exact = tf.run(X[:, :3], y, X[:, 3:], w0=w0), ig.reference(algorithm, X[:, :3], y, X[:, 3:], w0=w0)
    for step, bound in enumerate(certificate.weights, start=1):
        found = (run.weights[:, step] - exact.weights[:, step]).norm(dim=-1)
        assert 0 < float(found.max()) <= bound < RADIUS
    assert float((run.predictions - exact.predictions).norm(dim=-1).max()) <= certificate.prediction
    boxed = ig.compile(ig.GradientDescent(network, lr=0.1, steps=4, box=RADIUS, weight_decay=decay), **bounds)
    assert certificate.largest_gradient < boxed.certificate.largest_gradient
    assert math.isinf(certificate.lemma14(4, 1.0)), "its proof is about exact projections"


def test_where_there_is_no_bound_for_every_input() -> None:
    bounds: dict[str, Any] = {"x_bound": 1.0, "y_bound": 1.0, "n_examples": 3, "epsilon": 1e-2}
    with pytest.raises(ig.InputError, match="on a ball, is for plain gradient descent; got momentum"):
        _ = ig.compile(ig.GradientDescent(NET, ball=1.0, momentum=0.5), **bounds).certificate
    with pytest.raises(ig.InputError, match="for gradient descent with one rate"):
        _ = ig.compile(ig.GradientDescent(NET, ball=1.0, l1=0.1), **bounds).certificate
    with pytest.raises(ig.InputError, match=r"may leave the ball by so much.*epsilons=\{'ball'"):
        _ = ig.compile(ig.GradientDescent(NET, ball=1.0, lr=100.0), **bounds).certificate


# ------------------------------------------------------------------------------------------------------------- settings


def test_inside_the_ball_nothing_changes() -> None:
    """But for rounding; and outside, a finer function "ball" is a more exact projection."""
    X, y, X_query = prompt()
    free, wide = (ig.GradientDescent(NET, steps=3, box=None, ball=ball) for ball in (None, 100.0))
    a, b = (ig.compile(algorithm, n_examples=7).run(X, y, X_query, executor="plain") for algorithm in (free, wide))
    torch.testing.assert_close(a.weights, b.weights, rtol=1e-13, atol=1e-14)
    narrow = ig.GradientDescent(NET, steps=1, ball=0.5)
    wanted = ig.reference(narrow, X, y, X_query).weights[-1]
    for epsilon in (1e-2, 1e-4):
        tf = ig.compile(narrow, n_examples=7, epsilon=1e-4, epsilons={"ball": epsilon})
        error = float((tf.run(X, y, X_query).weights[-1] - wanted).norm())
        assert error < 4 * epsilon
    assert error < 4e-4


def test_a_start_outside_is_projected() -> None:
    X, y, X_query = prompt()
    algorithm, w0 = ig.GradientDescent(NET, lr=1e-3, steps=1, ball=RADIUS), 10.0 * NET.init(0)
    run = ig.compile(algorithm, n_examples=7).run(X, y, X_query, w0=w0)
    assert float(w0.norm()) > 5 * RADIUS
    assert float(run.weights[-1].norm()) == pytest.approx(RADIUS, rel=0.02)


def test_a_ball_takes_the_place_of_the_box() -> None:
    assert ig.GradientDescent(NET, ball=1.0).box is None
    assert ig.GradientDescent(NET).box == 4.0
    assert ig.Adam(NET, ball=2.0).ball == 2.0
    with pytest.raises(ig.InputError, match=r"a ball takes the place of the box; got box=4, ball=1"):
        ig.GradientDescent(NET, box=4.0, ball=1.0)
    for wrong in (0.0, -1.0, math.nan, "1"):
        with pytest.raises(ig.InputError, match="ball must be a positive number"):
            ig.GradientDescent(NET, ball=wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ by MLPs, with a fit

SMOOTH: dict[str, dict[str, Any]] = {
    "gpt": {"target": "gpt"},
    "softmax, mean": {"target": "softmax", "variant": "mean"},
    "softmax, sink": {"target": "softmax", "variant": "sink"},
    "sigma": {"target": "sigma", "sigma": "softplus"},
    "llama": {"target": "llama", "variant": "chain", "epsilon": 1e-9},
    "llama, wide": {"target": "llama", "variant": "wide", "epsilon": 1e-9},
}


def test_the_root_is_proven_and_is_the_projection() -> None:
    facts = prove_facts(ROOT, ROOT.radius)
    assert facts.proven
    assert facts.lipschitz <= ROOT.lipschitz
    assert facts.curvature <= ROOT.curvature
    t = torch.linspace(-1.0, REACH**2 - 1.0, 1001, dtype=torch.float64)
    torch.testing.assert_close(ROOT(t.clamp(min=0.0) - MIDDLE), BALL(t), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_four_mlps_are_the_projection_within_the_stated_error(name: str) -> None:
    """Against torch.optim and its projection; the certificate, which knows the fit, is above the error."""
    X, y, X_query = prompt()
    rule, w0 = RULES["momentum, decay"], NET.init(3)
    wanted = by_torch(rule, X, y, w0, steps=2)
    tf = ig.compile(algorithm_of(rule, steps=2), n_examples=7, **SMOOTH[name])
    assert tf.state == "measured"
    assert tf.approximants["ball"].error <= 1e-9
    certificate = tf.certify(X, y, X_query, w0=w0, executor="dense")
    assert certificate.weights is not None
    distance = (tf.run(X, y, X_query, w0=w0, executor="dense").weights - wanted).norm(dim=-1)[1:]
    for found, bound in zip(distance.tolist(), certificate.weights, strict=True):
        assert 0 < found <= min(bound, 1e-7)


@pytest.mark.parametrize("name", ["gpt", "softmax, sink", "sigma", "llama"])
def test_every_law_holds_where_it_is_fitted(name: str) -> None:
    """From starts of the network's own, which are longer than four radii: verification shortens them."""
    algorithm = ig.GradientDescent(ig.Network([2, 2, 1]), lr=0.2, steps=2, ball=0.25, l1=0.1)
    assert float(algorithm.initial_weights(0).norm()) > REACH * 0.25
    report = ig.compile(algorithm, n_examples=4, **SMOOTH[name]).verify(prompts=2)
    assert report.passed, str(report)


def test_what_four_mlps_cost() -> None:
    """Over a box: three more blocks, for the first is in the place of the box's."""
    for target in ("gpt", "llama"):
        box, ball = (
            ig.compile(ig.GradientDescent(NET, steps=1, **by), target=target, epsilon=1e-4).cost().layers_a_step
            for by in ({"box": 4.0}, {"ball": 1.0})
        )
        assert ball == box + 3


@pytest.mark.parametrize("target", ["gpt", "llama"])
def test_weights_far_outside_are_refused_with_the_reason(target: str) -> None:
    X, y, X_query = prompt()
    radius = 0.25
    algorithm = ig.GradientDescent(NET, lr=1e-3, steps=1, ball=radius)
    tf = ig.compile(algorithm, target=target, n_examples=7, epsilon=1e-4)
    near = tf.run(X, y, X_query, w0=3.0 * radius * NET.init(0) / NET.init(0).norm())
    assert float(near.weights[-1].norm()) == pytest.approx(radius, rel=1e-2)
    far = torch.full((NET.n_weights,), 3.0 * radius, dtype=torch.float64)  # each is near, all together are not
    with pytest.raises(ig.InputError, match=r"four radii long.*larger ball, or a smaller lr"):
        tf.run(X, y, X_query, w0=far)
    with pytest.raises(
        ig.InputError, match=r"the ball must be near w0; got max \|V1\| = 1.25 with at most 1, four radii"
    ):
        tf.run(X, y, X_query, w0=torch.full_like(far, 5.0 * radius))


def test_sums_without_kinks_refuse_it() -> None:
    with pytest.raises(ig.InputError, match=r"relu has kinks, which sums of tanh do not have.*and no ball"):
        ig.compile(ig.GradientDescent(NET, ball=1.0), target="sigma", sigma="tanh")


def test_what_is_about_a_box_refuses_it() -> None:
    algorithm = ig.GradientDescent(NET, ball=1.0)
    with pytest.raises(ig.InputError, match="gradient mapping"):
        ig.compile(algorithm, n_examples=4, until=0.1)
    with pytest.raises(ig.InputError, match="a grid needs a box"):
        ig.GridDescent(ig.GradientDescent(ig.Network([1, 1]), ball=1.0))


def test_save_and_load_and_folders_without_a_ball(tmp_path: Path) -> None:
    algorithm = ig.GradientDescent(NET, steps=2, ball=RADIUS, momentum=0.5)
    tf = ig.compile(algorithm, n_examples=7)
    again = ig.load(tf.save(tmp_path))
    assert again.algorithm == algorithm
    X, y, X_query = prompt()
    assert torch.equal(again.run(X, y, X_query).weights, tf.run(X, y, X_query).weights)
    old = {name: value for name, value in ig.GradientDescent(NET).config().items() if name != "ball"}
    assert ig.GradientDescent.from_config(old) == ig.GradientDescent(NET)


def test_the_command_line_takes_a_ball(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("[network]\nsizes = [2, 3, 1]\n[algorithm]\nball = 0.75\nsteps = 2\n")
    flags = ["compile", "--sizes", "2,3,1", "--steps", "2", "--ball", "0.75"]
    for name, given in (("flags", flags), ("file", ["compile", "--config", str(tmp_path / "settings.toml")])):
        out = tmp_path / name
        result = CliRunner().invoke(app, [*given, "--out", str(out), "--quiet"])
        assert result.exit_code == 0, result.output
        settings = json.loads((out / "config.json").read_text())["algorithm"]
        assert (settings["ball"], settings["box"], settings["steps"]) == (0.75, None, 2)
