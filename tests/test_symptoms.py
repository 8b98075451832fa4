"""What a run says about itself: nothing if it is well, and what is wrong if it is not, with what to change."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.errors import JobError
from innergrad.ir.program import Options
from innergrad.model.executors import EXECUTORS
from innergrad.model.preparation import default_variant
from innergrad.model.prompt import Prompt, make_prompt
from innergrad.model.rates import FALL, FASTER, slower
from innergrad.model.symptoms import Symptom, symptoms
from test_cli import call, write_rows

NET = ig.Network([3, 8, 8, 1])


def data(n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """X ~ N(0, I), and a smooth function of it with a little noise."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return X, torch.tanh(X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)) + noise


def unscaled(X: Tensor) -> Tensor:
    """Ages, incomes, and a column that is as it should be."""
    return X * torch.tensor([15.0, 3e4, 1.0]) + torch.tensor([40.0, 6e4, 0.0])


def watched(algorithm: ig.Algorithm, X: Tensor, y: Tensor, X_query: Tensor) -> tuple[tuple[Symptom, ...], Prompt]:
    """Of the exact algorithm: a fuzz has no time to compile."""
    home = algorithm.home
    program = algorithm.program(Options(home, default_variant(algorithm, home), n_examples=X.shape[-2]))
    prompt = make_prompt(algorithm, program, X, y, X_query, None, None, seed=0, dtype=torch.float64)
    done = algorithm.reference(prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
    assert done is not None
    return symptoms(program, algorithm, prompt, done[0].unbind(1), {}, done[1]), prompt


def settled(executor: str) -> dict[str, Any]:
    """Without a kernel, which would have to be built."""
    return {"compiled": False} if executor == "fused" else {}


def kinds(run: ig.Run) -> set[str]:
    return {symptom.kind for symptom in run.symptoms}


# ---------------------------------------------------------------------------------------------------------------- sick


@pytest.mark.parametrize("executor", EXECUTORS)
def test_too_large_a_rate(executor: Any) -> None:
    X, y = data()
    algorithm = ig.GradientDescent(NET, lr=2.0, steps=6)
    tf = ig.compile(algorithm, epsilon=0.1, n_examples=40)
    with pytest.warns(ig.PoorRun, match="loss rising: it rose from .* to .*; lr=.* makes it fall"):
        run = tf.run(X, y, X[:3], executor=executor, **settled(executor))
    assert kinds(run) == {"loss rising", "box binding"}
    risk = algorithm.risk(run.weights[[0, -1]], X.expand(2, -1, -1), y[:, None])
    assert f"it rose from {float(risk[0]):.4g} to {float(risk[1]):.4g}" in run.warnings[0]
    pinned = int((run.weights[-1].abs() == 4.0).sum())
    assert f"{pinned} of 113 weights are at the box, 4" in run.warnings[1]
    assert run.violations == ()
    rate = float(re.search(r"lr=(\S+) makes", run.warnings[0])[1])  # type: ignore[index]
    better = ig.compile(ig.GradientDescent(NET, lr=rate, steps=6), epsilon=0.1, n_examples=40).run(X, y, X[:3])
    assert better.warnings == ()


FLAT = {"tanh", "sigmoid", "relu"}
ACTIVATIONS = [*((name, "plain") for name in sorted(FLAT | {"softplus"})), ("tanh", "fused")]


@pytest.mark.parametrize(("activation", "executor"), [*ACTIVATIONS, ("relu", "dense")])
def test_inputs_that_are_not_scaled(activation: str, executor: Any) -> None:
    X, y = data()
    network = ig.Network([3, 4, 1], activation)
    tf = ig.compile(ig.GradientDescent(network, steps=5), epsilon=0.1, n_examples=40)
    run, X_large = tf.run(X, y, X[:3]), unscaled(X)
    assert run.warnings == ()
    run = tf.run(X_large, y, X_large[:3], executor=executor, **settled(executor))
    assert kinds(run) > {"unscaled inputs"}
    assert kinds(run) >= {"saturation", "constant predictions"} or activation not in FLAT
    (scales,) = (symptom for symptom in run.symptoms if symptom.kind == "unscaled inputs")
    assert [column.number for column in scales.columns] == [1, 0]
    for column in scales.columns:
        numbers = torch.cat([X_large, X_large[:3]])[:, column.number]
        assert column.mean == pytest.approx(float(numbers.mean()))
        assert column.std == pytest.approx(float(numbers.std(correction=0)))
    assert "X[:, 1] is up to" in run.warnings[-1]
    assert "income is up to" in scales.said(["age", "income", "x"])


@pytest.mark.parametrize("executor", ["plain", "fused"])
def test_a_run_that_overflows_names_a_rate(executor: Any) -> None:
    X, y = data()
    network = ig.Network([3, 4, 1], "relu")
    tf = ig.compile(ig.GradientDescent(network, lr=1e30, steps=9, box=None), epsilon=0.1, n_examples=40)
    with pytest.raises(JobError, match=r"the forward pass overflowed: .*; lr=\S+ makes it fall") as caught:
        tf.run(X, y, executor=executor, **settled(executor))
    rate = float(re.search(r"lr=(\S+) makes", str(caught.value))[1])  # type: ignore[index]
    slow = ig.GradientDescent(network, lr=rate, steps=9, box=None)
    assert ig.compile(slow, epsilon=0.1, n_examples=40).run(X, y).warnings == ()


def test_labels_that_are_not_scaled() -> None:
    X, y = data()
    tf = ig.compile(ig.GradientDescent(ig.Network([3, 4, 1]), steps=5), epsilon=0.1, n_examples=40)
    run = tf.run(X, 1e4 * y + 5e5, X[:3])
    assert kinds(run) >= {"box binding", "unscaled labels"}
    assert "y[:, 0] is up to" in run.warnings[-1]


def test_queries_that_are_not_scaled() -> None:
    """Examples are; so nothing is wrong with the loss, and all predictions are one number."""
    X, y = data()
    tf = ig.compile(ig.GradientDescent(ig.Network([3, 4, 1]), steps=5), epsilon=0.1, n_examples=40)
    run = tf.run(X, y, unscaled(X[:5]))
    assert kinds(run) == {"constant predictions", "unscaled inputs"}
    assert "at the queries, which are far from the examples, they all are" in run.warnings[0]
    assert tf.run(X, y, X[:1].expand(5, -1)).warnings == ()  # five times the same query


def test_a_loss_that_falls_and_rises_again() -> None:
    """It ends below its start, yet the rate is too large: a fixed quadratic, whose first direction diverges slowly."""
    X = torch.tensor([[4.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    algorithm = ig.GradientDescent(ig.Network([2, 1], bias=False), lr=0.28, steps=25, box=None)
    w0 = torch.tensor([0.001, 1.0], dtype=torch.float64)
    run = ig.compile(algorithm, n_examples=2).run(X, torch.zeros(2, dtype=torch.float64), w0=w0)
    risk = algorithm.risk(run.weights, X.expand(26, -1, -1), torch.zeros(2, 1, dtype=torch.float64))
    assert 10 * risk.min() < risk[-1] < risk[0]
    assert kinds(run) == {"loss rising"}
    assert "it rose again" in run.warnings[0]


def test_prompts_of_a_batch_are_told_apart() -> None:
    X, y = data()
    both = torch.stack([X, unscaled(X)])
    tf = ig.compile(ig.GradientDescent(ig.Network([3, 4, 1]), steps=5), epsilon=0.1, n_examples=40)
    run = tf.run(both, torch.stack([y, y]), both[:, :3])
    (constant,) = (symptom for symptom in run.symptoms if symptom.kind == "constant predictions")
    assert constant.prompts == (1,)
    assert "in 1 of 2 prompts" in str(constant)


def test_many_examples_are_looked_at_in_part_first() -> None:
    """The same is found as of a few; what is said is about all of them."""
    X, y = data(3000)
    tf = ig.compile(ig.GradientDescent(NET, lr=2.0, steps=4), epsilon=0.1, n_examples=3000)
    run = tf.run(X, y, executor="fused", compiled=False, record="last")
    assert kinds(run) == {"loss rising", "box binding"}
    risk = tf.algorithm.risk(run.weights[-1:], X, y[:, None])  # type: ignore[attr-defined]
    assert f"to {float(risk):.4g} on" in run.warnings[0]


def small() -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([3, 4, 1]), steps=5)


def penalised(**settings: float) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([3, 4, 1]), steps=20, **settings)  # type: ignore[arg-type]


#: what is done to a problem that is well -> the algorithm, inputs and labels of it, the kinds, and words of the advice
SICK: dict[str, tuple[ig.Algorithm, Any, Any, set[str], str]] = {
    "small inputs": (small(), 1e-3, 1.0, {"constant predictions", "unscaled inputs"}, "scale the inputs"),
    "one large column": (small(), [1.0, 1e6, 1.0], 1.0, {"saturation", "unscaled inputs"}, "scale the inputs"),
    "small labels": (small(), 1.0, 1e-4, {"worse than the mean", "unscaled labels"}, "scale the labels"),
    "a label that is one number": (small(), 1.0, [0.0, 1e3], {"box binding", "unscaled labels"}, "subtract it"),
    "inputs that are one number": (small(), 0.0, 1.0, {"constant inputs"}, "give other columns"),
    "too much weight decay": (
        penalised(weight_decay=5.0),
        1.0,
        1.0,
        {"constant predictions"},
        "lower weight_decay, or",
    ),
    "too much l1": (penalised(l1=1.0), 1.0, 1.0, {"constant predictions"}, "lower l1, or"),
    "too small a rate": (penalised(lr=1e-6), 1.0, 1.0, {"loss standing"}, "makes it fall more"),
    "a pass of SGD that is too slow": (ig.OnlineSGD(d=3, lr=1e-7), 1.0, 1.0, {"loss standing"}, "makes it fall more"),
    "too large a lambda_max": (
        ig.FunctionalGradientDescent("linear", d=3, lambda_max=1e7),
        1.0,
        1.0,
        {"loss standing"},
        "lambda_max=",
    ),
    "likewise, with Chebyshev steps": (
        ig.FunctionalGradientDescent("linear", d=3, steps=8, lambda_max=1e7, step_rule="chebyshev"),
        1.0,
        1.0,
        {"loss standing"},
        "lambda_max=",
    ),
    "softmax attention to the largest row": (
        ig.FunctionalGradientDescent("softmax", d=3),
        30.0,
        [1.0, 1.0],
        {"constant predictions", "unscaled inputs"},
        "scale the inputs",
    ),
}


@pytest.mark.parametrize("name", SICK)
def test_what_is_wrong_is_said_with_what_to_change(name: str) -> None:
    algorithm, inputs, labels, expected, words = SICK[name]
    X, y = data()
    if "softmax" in name:
        X = torch.cat([torch.full_like(X[:1], 5.0), X[1:].abs()])
    slope, constant = labels if isinstance(labels, list) else (labels, 0.0)
    run = ig.compile(algorithm, n_examples=40).run(X * torch.tensor(inputs, dtype=X.dtype), slope * y + constant)
    assert kinds(run) >= expected
    assert any(words in sentence for sentence in run.warnings)
    assert "loss rising" not in kinds(run)


def test_a_suggested_lambda_max_is_one_that_is_taken() -> None:
    """By the error of steps that diverge, by a run that stands; of both rules, whatever the eigenvalues."""
    for number in range(40):
        generator = torch.Generator().manual_seed(number)
        X = 10.0 ** (number % 5 - 1) * torch.randn(9, 3, generator=generator, dtype=torch.float64)
        y, rule = X.sum(-1) / X.std(), ("constant", "chebyshev")[number % 2]
        for bound in (1e-3, 1e12):
            settings = {"kernel": "linear", "d": 3, "steps": 6, "step_rule": rule}
            found = ig.compile(ig.FunctionalGradientDescent(**settings, lambda_max=bound), n_examples=9)  # type: ignore[arg-type]
            try:
                said = " ".join(found.run(X, y).warnings)
            except ig.InputError as error:
                said = str(error)
            given = float(re.search(r"lambda_max=([^ ,]+)", said)[1])  # type: ignore[index]
            better = ig.FunctionalGradientDescent(**settings, lambda_max=given)  # type: ignore[arg-type]
            run = ig.compile(better, n_examples=9).run(X, y, X)
            assert float((run.predictions - y).square().sum()) < (1.0 - FALL * (bound > 1.0)) * float(y.square().sum())


def test_weights_at_the_edge_of_their_ball() -> None:
    X, y = data()
    network, rising = ig.Network([3, 4, 1]), {"box binding", "loss rising"}
    for ball, start, steps, expected in (
        (0.5, 0.1, 60, {"box binding"}),
        (0.5, 1.0, 10, rising),
        (50.0, 1.0, 10, set()),
    ):
        algorithm = ig.GradientDescent(network, lr=0.2, steps=steps, box=None, ball=ball)
        run = ig.compile(algorithm, epsilon=0.01, n_examples=40).run(X, y, w0=start * network.init(0))
        assert kinds(run) == expected
        assert all("lower the rate first" not in sentence for sentence in run.warnings)  # w0 was outside, no rate helps


def test_queries_in_other_units() -> None:
    """Of a network that does not saturate."""
    X, y = data()
    tf = ig.compile(ig.GradientDescent(ig.Network([3, 4, 1], "relu"), steps=5), epsilon=0.1, n_examples=40)
    run = tf.run(X, y, unscaled(X[:5]))
    assert "far queries: input 1 is up to" in run.warnings[0]
    assert tf.run(X, y, 20.0 * X[:5]).warnings == ()


# ---------------------------------------------------------------------------------------------------------------- well


def problem(rng: random.Random) -> tuple[ig.Network, int, dict[str, Any]]:
    depth, width = rng.choice([1, 2, 3, 4]), rng.choice([4, 8, 16])
    loss, outputs = rng.choice([("squared", 1), ("squared", 2), ("log-cosh", 1), ("logistic", 1), ("softmax", 3)])
    activation = rng.choice(["tanh", "sigmoid", "gelu", "softplus", "silu", "leaky_relu", "relu", "relu6"])
    output = "activation" if loss == "squared" and rng.random() < 0.2 else "linear"
    sizes = [rng.choice([1, 2, 3, 5, 10]), *[width] * (depth - 1), outputs]
    return ig.Network(sizes, activation, output, rng.random() < 0.8), rng.choice([3, 9, 20, 50]), {"loss": loss}  # type: ignore[arg-type]


def descent(rng: random.Random, lr: float, kind: str, steps: int) -> tuple[ig.GradientDescent, int]:
    network, n, settings = problem(rng)
    if kind == "adam":
        return ig.Adam(network, lr=0.1 * lr, steps=steps, **settings), n
    more: dict[str, dict[str, Any]] = {
        "momentum": {"momentum": 0.9},
        "nesterov": {"momentum": 0.9, "nesterov": True},
        "batches": {"batches": ig.minibatches(n, max(1, n // 2))},
        "schedule": {"lr": ig.schedules.cosine(lr, steps)},
        "clip": {"clip": 0.5},
        "l1": {"l1": 0.02},
        "decay": {"weight_decay": 0.1, "box": None},
    }
    rate = 0.3 * lr if kind in ("momentum", "nesterov") else lr
    return ig.GradientDescent(network, **{"lr": rate, "steps": steps, **settings, **more.get(kind, {})}), n


RULES = ("plain", "momentum", "nesterov", "adam", "batches", "schedule", "clip", "l1", "decay")


def healthy(seed: int, count: int) -> None:
    """Small rates on scaled data: not a word; unless all units of a ReLU layer are dead, by an independent count."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(count):
        algorithm, n = descent(rng, 0.1, rng.choice(RULES), rng.choice([1, 2, 5, 20]))
        X, y, X_query = algorithm.random_prompt(n, 3, generator)
        found, prompt = watched(algorithm, X, y, X_query)
        path, _ = algorithm.reference(prompt.X, prompt.y, prompt.X, prompt.w0, prompt.omega)
        dead, p = False, X
        for j, (V, b) in enumerate(algorithm.network.unflatten(path[0, -1]), start=1):
            z = p @ V.T + (0.0 if b is None else b)
            p = algorithm.network.activation.r(z) if algorithm.network.activated(j) else z
            dead |= algorithm.network.activated(j) and bool((p.amax(0) == p.amin(0)).any())
        assert dead or not found, (algorithm, *map(str, found))


def test_runs_that_are_well_say_nothing() -> None:
    healthy(0, 40)


@pytest.mark.soak
def test_many_runs_that_are_well_say_nothing() -> None:
    healthy(1, 3000)


def test_other_algorithms_that_are_well_say_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    for algorithm in (
        ig.OnlineSGD(d=3),
        ig.RecursiveLeastSquares(d=2),
        ig.FunctionalGradientDescent("exp", steps=8, d=3),
        ig.FunctionalGradientDescent("softmax", steps=8, d=3, d_y=2),
        ig.FunctionalGradientDescent("linear", steps=8, d=3, step_rule="chebyshev"),
    ):
        tf = ig.compile(algorithm, n_examples=9)
        for _ in range(3):
            assert tf.run(*algorithm.random_prompt(9, 3, generator)).warnings == ()


# --------------------------------------------------------------------------------------------------------------- rates


def rates(seed: int, count: int) -> None:
    """Whatever the rule, and however large rates and inputs are: where the loss rises, the rate that is suggested is
    smaller, and makes it fall in the whole run, by autograd.
    """
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    rising = 0
    for _ in range(count):
        kind = rng.choice(RULES)
        algorithm, n = descent(rng, 10.0 ** rng.uniform(0.0, 2.5), kind, rng.choice([1, 2, 5, 20]))
        X, y, X_query = algorithm.random_prompt(n, 3, generator)
        scale = rng.choice([1.0, 1.0, 10.0, 1000.0])
        found, prompt = watched(algorithm, scale * X, y, scale * X_query)
        for symptom in found:
            if symptom.kind == "loss rising":
                rising += 1
                given = (prompt.X, prompt.y, prompt.w0, algorithm.seen(prompt.omega))
                rate, tried = slower(algorithm, *given)
                assert tried is None
                assert rate is not None, (algorithm, str(symptom))
                assert rate < algorithm.rate_setting[1]
                how = f"with {rate / algorithm.rate_setting[1]:.2g} times" if algorithm.schedule else f"lr={rate:g} "
                assert how in symptom.advice
                slow = algorithm.with_rate(rate, algorithm.steps)
                path, _ = slow.reference(prompt.X, prompt.y, prompt.X, prompt.w0, prompt.omega)
                before, after = (
                    slow.objective_at(w, slow.network.forward(w, prompt.X), prompt.y, given[-1])
                    for w in (path[:, 0], path[:, -1])
                )
                assert bool(after < before)
    assert rising > count / 4


def test_the_suggested_rate_makes_the_loss_fall() -> None:
    rates(0, 25)


@pytest.mark.soak
def test_the_suggested_rate_makes_the_loss_fall_on_many_problems() -> None:
    rates(1, 3000)


def test_where_the_loss_stands_the_suggested_rate_makes_it_fall() -> None:
    """By autograd; and where none does so, as at a minimum, nothing is said."""
    rng, generator, standing = random.Random(3), torch.Generator().manual_seed(3), 0
    for _ in range(40):
        algorithm, n = descent(rng, 10.0 ** rng.uniform(-9.0, -6.0), rng.choice(RULES), rng.choice([1, 5, 20]))
        found, prompt = watched(algorithm, *algorithm.random_prompt(n, 3, generator))
        for symptom in (one for one in found if one.kind == "loss standing"):
            standing += 1
            setting = algorithm.rate_setting[1]
            said = re.search(r"lr=(\S+) makes|with (\S+) times", symptom.advice)
            rate = float(said[1]) if said[1] else float(said[2]) * setting  # type: ignore[index]
            assert rate >= FASTER * setting
            fast, omega = algorithm.with_rate(rate, algorithm.steps), algorithm.seen(prompt.omega)
            path, _ = fast.reference(prompt.X, prompt.y, prompt.X, prompt.w0, prompt.omega)
            before, after = (
                fast.objective_at(w, fast.network.forward(w, prompt.X), prompt.y, omega)
                for w in (path[:, 0], path[:, -1])
            )
            assert bool(after < (1.0 - FALL) * before * (1.0 + 1e-9))
    assert standing > 10
    X = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(9, generator=generator, dtype=torch.float64)
    w0 = torch.linalg.lstsq(X, y[:, None]).solution[:, 0]
    slow = ig.GradientDescent(ig.Network([2, 1], bias=False), lr=1e-3, steps=5)
    assert ig.compile(slow, n_examples=9).run(X, y, w0=w0).warnings == ()


def test_on_a_quadratic_the_rate_is_one_over_the_curvature() -> None:
    """One layer, squared loss: the Hessian is X^T X / n; with momentum beta, 1 - beta of it."""
    X, y = data()
    top = float(torch.linalg.eigvalsh(X.T @ X / len(X)).max())
    w0, omega = torch.randn(1, 3, dtype=torch.float64), torch.full((1, 40), 1 / 40, dtype=torch.float64)
    for momentum in (0.0, 0.5, 0.9):
        algorithm = ig.GradientDescent(ig.Network([3, 1], bias=False), lr=50.0, momentum=momentum)
        found = algorithm.curvature_rate(X[None], y[None, :, None], w0, omega)
        assert found is not None
        assert 0.5 / top <= found / (1 - momentum) <= 1 / top
        assert slower(algorithm, X[None], y[None, :, None], w0, omega)[0] == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_online_sgd_and_functional_descent(scale: float) -> None:
    """Rates of other algorithms: a pass of SGD over the examples; a kernel whose steps are not refused."""
    generator = torch.Generator().manual_seed(3)
    algorithm: ig.Algorithm = ig.OnlineSGD(d=3, lr=2.0)
    X, y, X_query = algorithm.random_prompt(12, 2, generator)
    found, _ = watched(algorithm, scale * X, y, scale * X_query)
    rising = next(symptom for symptom in found if symptom.kind == "loss rising")
    rate = float(re.search(r"lr=(\S+) makes", rising.advice)[1])  # type: ignore[index]
    assert not any(
        s.kind == "loss rising" for s in watched(ig.OnlineSGD(d=3, lr=rate), scale * X, y, scale * X_query)[0]
    )
    steps = ig.FunctionalGradientDescent("linear", steps=6, d=3, step=1.0, covariate_step=1e-9)
    tf = ig.compile(steps, n_examples=12)
    X = torch.nn.functional.normalize(X, dim=-1)
    run = tf.run(X, y, X[:2])
    assert kinds(run) == {"loss rising"}
    step = float(re.search(r"step=(\S+) makes", run.warnings[0])[1])  # type: ignore[index]
    slow = ig.FunctionalGradientDescent("linear", steps=6, d=3, step=step, covariate_step=1e-9)
    assert ig.compile(slow, n_examples=12).run(X, y, X[:2]).warnings == ()


# -------------------------------------------------------------------------------------------------- in a run, and said


def test_nothing_is_changed_by_looking() -> None:
    """The caller's random numbers, gradients and modes; runs that need no word give none."""
    X, y = data()
    tf = ig.compile(ig.GradientDescent(NET, lr=2.0, steps=3), epsilon=0.1, n_examples=40)
    state, expected = torch.get_rng_state(), tf.run(X, y)
    assert torch.equal(state, torch.get_rng_state())
    w0 = NET.init(0).requires_grad_()
    run = tf.run(X, y, w0=w0)
    assert run.weights.requires_grad
    assert run.warnings == expected.warnings
    with torch.no_grad():
        assert tf.run(X, y).warnings == expected.warnings
    with torch.inference_mode():
        assert tf.run(X.clone(), y.clone()).warnings == expected.warnings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ig.compile(ig.GradientDescent(NET, lr=0.1, steps=3), epsilon=0.1, n_examples=40).run(X, y)


def table(path: Path, X: Tensor, y: Tensor) -> Path:
    rows = [[*map(float, x), float(label)] for x, label in zip(X[:-3], y, strict=False)]
    return write_rows(path, ["age", "income", "x", "y"], rows, [[*map(float, x), ""] for x in X[-3:]])


def test_on_the_command_line(tmp_path: Path) -> None:
    """Exit code 0; a line each on stderr, with the columns' names; in the JSON, in run.json and in what is printed."""
    X, y = data()
    settings = ("--sizes", "3,4,1", "--epsilon", "0.1", "--n-examples", "40", "--steps", "5")
    assert call("compile", *settings, "--out", tmp_path / "model", "--quiet").code == 0
    good, bad = table(tmp_path / "good.csv", X, y), table(tmp_path / "bad.csv", unscaled(X), y)
    assert call("run", tmp_path / "model", "--data", good, "--json").err == ""
    done = call("run", tmp_path / "model", "--data", bad, "--json", "--out", tmp_path / "out")
    assert done.code == 0
    said = json.loads(done.out)["warnings"]
    assert done.err.splitlines() == [f"innergrad: warning: {sentence}" for sentence in said]
    assert any(sentence.startswith("constant predictions: ") for sentence in said)
    assert re.match(r"age \(column 1, .*\), income \(column 2, up to \S+\) are far from unit scale; --scale", said[-1])
    assert json.loads((tmp_path / "out" / "run.json").read_text())["warnings"] == said
    printed = call("run", tmp_path / "model", "--data", bad)
    assert "not well: " in printed.out
    quiet = call("run", tmp_path / "model", "--data", bad, "--quiet")
    assert (quiet.out, quiet.err, quiet.code) == ("", "", 0)
