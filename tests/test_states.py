"""What is known of functions is in one of four states, and says which; nothing is certified from declarations.

A user's function is hostile until it is proven: whatever it is, a certificate is refused with a sentence, or holds.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import innergrad as ig
from innergrad.functions.activation import PAIRS
from innergrad.functions.approximants import approximate
from innergrad.functions.facts import prove_derivative, prove_facts
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.functions.states import standing
from innergrad.functions.tape import Opaque, Tape, record, recorded, residual
from innergrad.model.storage import seal
from innergrad.testing import Conformance, laws

Formula = Callable[[Any], Any]
FACTS: dict[str, Any] = {
    "curvature": 4 / (3 * math.sqrt(3)),
    "lipschitz": 1.0,
    "bound": 1.0,
    "left": ig.Asymptote(0, -1, 0),
    "right": ig.Asymptote(0, 1, 0),
}
SLOPE: dict[str, Any] = {
    "curvature": 2.0,
    "lipschitz": 4 / (3 * math.sqrt(3)),
    "bound": 1.0,
    "left": ig.Asymptote(0, 0, 0),
    "right": ig.Asymptote(0, 0, 0),
}
TANH = ig.ACTIVATIONS["tanh"]
X = torch.tensor([[1.0], [0.5]], dtype=torch.float64)
Y = torch.tensor([[0.2], [-0.4]], dtype=torch.float64)


def sech2(t: Any) -> Any:
    return torch.cosh(t.clamp(-350.0, 350.0)).square().reciprocal()


def activation(r: Formula, dr: Formula | None = None, name: str = "mine", **facts: Any) -> ig.Activation:
    """What passes for tanh."""
    derivative = TANH.dr if dr is None else ig.Function(f"{name}'", dr, **{**SLOPE, **facts.pop("slope", {})})
    return ig.Activation(name, ig.Function(name, r, **{**FACTS, **facts}), derivative, (-1, 1))


def spike(at: float, width: float, height: float = 0.5) -> Formula:
    return lambda t: (
        torch.tanh(t) + height * torch.where((t - at).abs() < width, torch.ones_like(t), torch.zeros_like(t))
    )


def bump(at: float, width: float, height: float = 0.5) -> Formula:
    return lambda t: torch.tanh(t) + height * torch.exp(-(((t - at) / width) ** 2))


class Counting:
    """Changes after so many calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, t: Any) -> Any:
        self.left -= 1
        return torch.tanh(t) if self.left > 0 else bump(5.123, 1e-3)(t)


class Backwards(torch.autograd.Function):
    """tanh, with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return torch.tanh(t)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return 3.0 * given[0]


class Alternating:
    """Every other time."""

    even = False

    def __call__(self, t: Any) -> Any:
        self.even = not self.even
        return torch.tanh(t) + 1e-3 * self.even


def guarded(t: Any) -> Any:
    """Something else where an error tells it that it is watched."""
    try:
        return torch.tanh(t) + 0.5 * float(t.numel() > 3)
    except Exception:
        return torch.tanh(t)


SCALE = [1.0]
ALIKE = "tensors and another to intervals"
HOSTILE: dict[str, tuple[ig.Activation, str]] = {  # and a word of the sentence
    "a spike": (activation(spike(5.123, 1e-4)), "asymptote"),
    "a bump": (activation(bump(5.123, 1e-4)), "asymptote"),
    "a bump, no asymptotes": (activation(bump(0.3, 1e-5), left=None, right=None), "curvature"),
    "a spike behind lgamma": (activation(lambda t: spike(5.123, 1e-4)(t) + 0 * torch.lgamma(t.abs() + 1)), "lgamma"),
    "for tensors": (activation(lambda t: (bump(5.123, 1e-4) if isinstance(t, Tensor) else torch.tanh)(t)), ALIKE),
    "for numpy": (activation(lambda t: bump(2.0, 1.0)(t) if hasattr(t, "numpy") else torch.tanh(t)), "asymptote"),
    "for float32": (activation(lambda t: torch.tanh(t) + 0.5 * (t.dtype == torch.float32)), "=="),
    "by numpy": (activation(lambda t: torch.from_numpy(np.tanh(t.detach().numpy()))), "rule"),
    "at random": (activation(lambda t: torch.tanh(t) + 1e-14 * float(np.random.default_rng().random())), ALIKE),
    "after a few calls": (activation(Counting(4)), ALIKE),
    "a wrong derivative": (activation(torch.tanh, lambda t: 0.9 * sech2(t)), "derivative"),
    "a derivative with a bump": (
        activation(torch.tanh, lambda t: sech2(t) + 0.5 * torch.exp(-(((t - 5.123) / 0.1) ** 2)), slope=dict.fromkeys(
            ("curvature", "lipschitz", "bound"), 101.0) | {"right": ig.Asymptote(0, 0, 7)}),
        "derivative",
    ),
    "the derivative of another": (activation(torch.tanh, lambda t: sech2(t) * 0.9999), "derivative"),
    "a wrong bound": (activation(torch.tanh, bound=0.9), "bound"),
    "a wrong slope": (activation(torch.tanh, lipschitz=0.5), "lipschitz"),
    "a wrong curvature": (activation(torch.tanh, curvature=0.1), "curvature"),
    "a wrong asymptote": (activation(torch.tanh, right=ig.Asymptote(0, 1.0 + 1e-6, 0)), "asymptote"),
}  # fmt: skip
NO_FUNCTIONS: dict[str, Formula] = {
    "for batches": guarded,
    "with gradients": lambda t: torch.tanh(t) + 1e-3 * torch.is_grad_enabled(),
    "by the number of dimensions": lambda t: torch.tanh(t) * (t.ndim if isinstance(t, Tensor) else 1),
    "in turns": Alternating(),
    "where gradients are asked for": lambda t: torch.tanh(t) + (1e-3 if getattr(t, "requires_grad", False) else 0.0),
}
HONEST: dict[str, ig.Activation] = {
    "by another formula": activation(
        lambda t: 2 * torch.sigmoid(2 * t) - 1, lambda t: 4 * torch.sigmoid(2 * t) * torch.sigmoid(-2 * t)
    ),
    "that cancels": activation(lambda t: (torch.tanh(t) + 1e8) - 1e8, sech2),
    "a derivative that is off a little": activation(
        torch.tanh, lambda t: sech2(t) * (1 - 3e-6 * torch.exp(-t * t)), slope={"curvature": 2.1}
    ),
    "with a backward of its own": activation(Backwards.apply),
    "a module": activation(torch.nn.Tanh(), sech2),
}  # fmt: skip


def network(mine: ig.Activation, **settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([1, 2, 1], mine, bias=False), lr=0.25, steps=1, box=None, **settings)


def attempt(algorithm: ig.GradientDescent, w0: Tensor, target: str, *modes: Any) -> list[str]:
    """What is said, mode by mode, where there is no certificate; "" where there is one, and then it has to hold."""
    epsilon = 1e-3 if target == "relu" else 1e-2
    try:
        tf = ig.compile(algorithm, target=target, epsilon=epsilon, n_examples=2, z_bound=8.0)
    except ig.InputError as error:
        return [str(error)] * len(modes)
    said = []
    for errors in modes:
        try:
            certificate = tf.certify(X, Y, w0=w0, errors=errors)
        except ig.InputError as error:
            said.append(str(error))
            continue
        exact = ig.reference(algorithm, X, Y, w0=w0).weights
        assert tf.state in ("proven", "measured")
        assert float((certificate.path[0, 1] - exact[1]).norm()) <= certificate.bounds[0]
        said.append("")
    return said


# ------------------------------------------------------------------------------------------------ functions of a user's

LONG = ("the derivative of another", "squared with a ripple")  # proofs that take half a minute


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(pytest.param(name, "relu", marks=pytest.mark.soak) if name in LONG else (name, "relu") for name in HOSTILE),
        *((name, "gpt") for name in ("a bump", "for tensors", "a wrong derivative")),
    ],
)
def test_no_certificate_comes_from_declarations(name: str, target: str) -> None:
    """The argument is where the function is not what it seems."""
    mine, word = HOSTILE[name]
    w0 = torch.tensor([5.123, 0.5, 1.0, 1.0], dtype=torch.float64)
    for said in attempt(network(mine), w0, target, "sup", "pointwise"):
        assert word in said or "no approximant was found" in said or "is not a sum of" in said, said
        assert "\n" not in said


@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_what_depends_on_more_than_t_is_no_function(name: str) -> None:
    with pytest.raises(ig.InputError, match="different values for the same t"):
        activation(NO_FUNCTIONS[name])


@pytest.mark.parametrize("name", HONEST)
def test_what_is_proven_is_certified(name: str) -> None:
    w0 = torch.tensor([0.9, -0.5, 1.0, 1.0], dtype=torch.float64)
    assert attempt(network(HONEST[name]), w0, "relu", "sup", "pointwise") == ["", ""]
    assert attempt(network(HONEST[name]), w0, "gpt", "pointwise") == [""]


def test_a_derivative_that_is_off_is_part_of_the_bound() -> None:
    """On a target whose errors are small, that is most of it."""
    off = HONEST["a derivative that is off a little"]
    w0 = torch.tensor([0.9, -0.5, 1.0, 1.0], dtype=torch.float64)
    bounds = {}
    for name, mine in {"off": off, "right": activation(torch.tanh, sech2)}.items():
        algorithm = network(mine)
        tf = ig.compile(algorithm, target="gpt", epsilon=1e-9, n_examples=2)
        certificate, exact = tf.certify(X, Y, w0=w0), ig.reference(algorithm, X, Y, w0=w0).weights
        error = float((certificate.path[0, 1] - exact[1]).norm())
        bounds[name] = certificate.bounds[0]
        assert error <= certificate.bounds[0]
        assert (error > 1e-8) == (name == "off")
    assert bounds["right"] < 1e-8 < bounds["off"]


def test_a_function_that_changed_is_refused() -> None:
    """It was proven as it was: then a certificate would be of another one."""
    algorithm = network(activation(lambda t: torch.tanh(t) * SCALE[0], name="scaled"))
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=2)
    assert tf.certify(X, Y).bounds[0] < 1.0
    before = tf.run(X, Y).weights
    try:
        SCALE[0] = 2.0
        assert torch.equal(tf.run(X, Y).weights, before)  # the model is what it was
        with pytest.raises(ig.InputError, match="scaled has changed since it was made"):
            tf.certify(X, Y)
    finally:
        SCALE[0] = 1.0
    assert tf.certify(X, Y).bounds[0] < 1.0


def random_spikes(count: int, seed: int) -> None:
    """Anywhere, of any width: what is proven of the function holds at the spike, or nothing is."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        at, width = float(generator.uniform(-9, 9)), float(10.0 ** generator.uniform(-9, 0))
        height = float(generator.choice([0.5, 1e-3, 1e-6]))
        make = (spike, bump)[int(generator.integers(2))]
        wide = (
            {}
            if generator.random() < 0.5
            else {"curvature": 8 * height / width**2 + 1, "lipschitz": 4 * height / width + 1, "bound": 2.0}
        )
        beyond = (
            {} if generator.random() < 0.5 else {"left": ig.Asymptote(0, -1, -40.0), "right": ig.Asymptote(0, 1, 40.0)}
        )
        f = ig.Function("mine", make(at, width, height), **{**FACTS, **wide, **beyond})
        t = torch.tensor([at, at + 0.5 * width, at - 0.99 * width], dtype=torch.float64)
        try:
            facts = prove_facts(f)
        except ig.InputError:
            assert standing(f, None).state == "declared"
            continue
        if not facts.proven:
            assert standing(f, None).state == "declared"
            continue
        assert standing(f, None).state == "exact"
        assert float(f(t).abs().max()) <= facts.bound <= f.bound * (1 + 1e-5)
        if width > 1e-2:
            stand_in = approximate(f, 1e-2)
            assert float((stand_in(t) - f(t)).abs().max()) <= stand_in.error


def test_random_spikes() -> None:
    random_spikes(3, seed=0)


@pytest.mark.soak
def test_many_random_spikes() -> None:
    random_spikes(400, seed=1)


def test_the_derivatives_that_ship_are_derivatives() -> None:
    for mine in ig.ACTIVATIONS.values():
        assert (mine.r.value, mine.dr.value) in PAIRS
        reach = 8.0 if mine.r.needs_domain else 2.0**128
        assert prove_derivative(mine.dr, (mine.r.exact or mine.r.value,), reach) <= 1e-5


@pytest.mark.parametrize("jumps", [((0.0, 0.9, 1),), ((0.1, 1.0, 1),), ((0.0, 1.0, 1), (5.0, 1.0, 1))])
def test_the_steps_of_a_derivative_are_the_slopes(jumps: Any) -> None:
    relu = ig.ACTIVATIONS["relu"].r
    step = ig.Function("step", lambda t: sum(h * (t > at).to(t.dtype) for at, h, _ in jumps), jumps=jumps)
    mine = ig.Activation("mine", relu, step)
    tf = ig.compile(network(mine), epsilon=1e-2, n_examples=2)
    assert tf.state == "declared"
    assert "is not the derivative" in tf.standings["step"].reason
    right = ig.Function("step", lambda t: 1.0 * (t > 0).to(t.dtype), jumps=((0.0, 1.0, 1),))
    assert ig.compile(network(ig.Activation("mine", relu, right)), n_examples=2).proven


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-13, 9e-13])
@pytest.mark.parametrize("errors", ["sup", "pointwise"])
def test_steps_that_are_a_little_off_are_part_of_the_bound(off: float, errors: Any) -> None:
    """Everything else is exact, so that 1e-13 is seen."""
    leak = ig.ACTIVATIONS["leaky_relu"].r
    level = 0.01 + off
    step = ig.Function("step", lambda t: torch.where(t > 0, torch.ones_like(t), level), jumps=((0.0, 1 - level, 1),))
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], ig.Activation("mine", leak, step), bias=False), steps=1)
    tf, w0 = ig.compile(algorithm, n_examples=2), torch.tensor([-1.0, 1.0], dtype=torch.float64)
    y = torch.full_like(Y, 3.0)
    certificate, exact = tf.certify(X, y, w0=w0, errors=errors), ig.reference(algorithm, X, y, w0=w0).weights
    error = (certificate.path[0, 1] - exact[1]).abs()
    rounded = 2.0**-53 * exact[1].abs()  # the reference's own rounding
    assert bool((error <= certificate.steps[0].radius[0] + rounded).all())
    assert off < 1e-12 / 2 or float(error.max()) > 2e-15


POINTS: dict[str, Formula] = {
    "and": lambda t: ((t >= 0.25) & (t <= 0.25)).to(t.dtype),
    "minus": lambda t: (t >= 0.25).to(t.dtype) - (t > 0.25).to(t.dtype),
    "where": lambda t: torch.where(t >= 0.25, torch.ones_like(t), 0.0) * torch.where(t > 0.25, 0.0, torch.ones_like(t)),
    "of squares": lambda t: ((t * t >= 0.0625) & (t * t <= 0.0625)).to(t.dtype),
    "of exp": lambda t: ((torch.exp(t) >= 1.0) & (torch.exp(t) <= 1.0)).to(t.dtype),
    "of tanh": lambda t: ((torch.tanh(t) >= 0.0) & (torch.tanh(t) <= 0.0)).to(t.dtype),
}


@pytest.mark.parametrize("where", POINTS)
@pytest.mark.parametrize("derivative", [False, True])
def test_a_spike_that_is_one_number_wide_is_seen(where: str, derivative: bool) -> None:
    point = POINTS[where]

    def r(t: Any) -> Any:
        return torch.tanh(t) if derivative else torch.tanh(t) + 0.5 * point(t)

    def dr(t: Any) -> Any:
        return sech2(t) + 0.5 * point(t) if derivative else sech2(t)

    mine = activation(r, dr)
    facts = prove_facts(mine.dr if derivative else mine.r)
    assert not facts.proven
    assert "not that of either side" in facts.reason
    if where in ("and", "minus", "where"):
        w0 = torch.tensor([0.25, 0.5, 1.0, 1.0], dtype=torch.float64)
        assert all("nothing is proven" in said for said in attempt(network(mine), w0, "relu", "sup", "pointwise"))


@pytest.mark.parametrize(
    "formula",
    [
        lambda t: torch.where(t > 0.0, torch.tanh(t), torch.tanh(t)),
        lambda t: torch.where(t >= -0.3, torch.tanh(t), torch.tanh(t)),
        lambda t: torch.tanh(t) * (t > 0).to(t.dtype) + torch.tanh(t) * (t <= 0).to(t.dtype),
    ],
)
def test_comparisons_that_agree_where_they_tie_are_proven(formula: Formula) -> None:
    assert prove_facts(ig.Function("mine", formula, **{**FACTS, "breaks": (-0.3, 0.0)})).proven


RELU6 = ig.ACTIVATIONS["relu6"].r.exact


def between(t: Any, low: float, high: float) -> Any:
    return ((t > low) & (t < high)).to(t.dtype)


@pytest.mark.parametrize(
    ("f", "proven"),
    [
        (ig.Function("spiked", lambda t: t.clamp(0.0, 6.0) + 0.5 * between(t, 2.01, 2.0100001), exact=RELU6), False),
        (ig.Function("my relu6", lambda t: t.clamp(0.0, 6.0), exact=RELU6), True),
        (ig.Function("a step", lambda t: (t > 0).to(t.dtype) + between(t, 3.3, 3.301), jumps=((0.0, 1.0, 1),)), False),
        (ig.Function("by lgamma", lambda t: t + 0 * torch.lgamma(t), exact=ig.PiecewiseLinear((), (1.0,))), False),
    ],
)  # fmt: skip
def test_pieces_and_jumps_are_proven_too(f: ig.Function, proven: bool) -> None:
    assert prove_facts(f).proven == proven
    assert standing(f, None).state == ("exact" if proven else "declared")


def logcosh(d: Any) -> Any:
    return -torch.nn.functional.logsigmoid(-2 * d) - d


LOSSES: dict[str, tuple[Callable[[Any, Any], Any], ig.Function, float, bool]] = {
    "log-cosh": (lambda t, y: logcosh(t - y).sum(-1), TANH.r, 1.0, True),
    "half of it": (lambda t, y: (0.5 * logcosh(t - y)).sum(-1), TANH.r, 1.0, False),
    "a bump": (lambda t, y: (logcosh(t - y) + 1e-3 * torch.exp(-((t - y - 1) ** 2))).sum(-1), TANH.r, 1.0, False),
    "of y besides": (lambda t, y: (logcosh(t - y) + 0 * y).sum(-1), TANH.r, 1.0, False),
    "squared": (lambda t, y: ((t - y) ** 2).sum(-1), ig.IDENTITY, 2.0, True),
    "squared, half": (lambda t, y: (0.5 * (t - y) ** 2).sum(-1), ig.IDENTITY, 2.0, False),
    "squared with a ripple": (lambda t, y: ((t - y) ** 2 + 1e-9 * torch.sin(t - y)).sum(-1), ig.IDENTITY, 2.0, False),
    "a mean": (lambda t, y: ((t - y) ** 2).mean(-1), ig.IDENTITY, 2.0, False),
}  # fmt: skip


@pytest.mark.parametrize("target", ["relu", "gpt"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak) if n in LONG else n for n in LOSSES])
def test_the_derivative_of_a_loss_is_proven(name: str, target: str) -> None:
    value, u, scale, right = LOSSES[name]
    algorithm = network(TANH, loss=ig.ResidualLoss("mine", value, u, scale))
    tf = ig.compile(algorithm, target=target, epsilon=1e-2, n_examples=2, x_bound=4.0, z_bound=8.0)
    assert tf.state == ("declared" if not right else "proven" if target == "relu" else "measured")
    w0 = torch.tensor([0.9, -0.5, 1.0, 1.0], dtype=torch.float64)
    if right:
        assert attempt(algorithm, w0, target, "pointwise") == [""]
    else:
        laws.there_is_no_certificate(tf, {"X": X, "y": Y, "w0": w0})


def test_other_losses_of_a_user_s_are_declared() -> None:
    mine = ig.ResidualLoss("mine", lambda t, y: (t - y).square().sum(-1), ig.IDENTITY, 2.0)
    assert isinstance(residual(mine.value, 2.0), Tape)
    logistic = type(ig.LOSSES["logistic"])("mine", lambda t, y: (torch.logaddexp(t, 0 * t) - 0.9 * t * y).sum(-1))
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), logistic, steps=1), epsilon=1e-2, n_examples=2)
    assert tf.state == "declared"


# --------------------------------------------------------------------------------------------------------------- tapes


@pytest.mark.parametrize(
    "formula",
    [
        lambda t: 1.0 / (1.0 + torch.exp(-t)),
        lambda t: torch.where(t > 0, t, 0.1 * t) - 2 * t**3 + abs(t) / 7,
        lambda t: torch.nn.functional.silu(t) * (t >= 0).to(t.dtype),
        lambda t: t.clamp(min=0.0).sqrt() + torch.full_like(t, 0.5) - torch.tensor(2.0, dtype=torch.float64),
        torch.special.erf,
        torch.nn.GELU(),
    ],
)
def test_a_tape_does_what_the_formula_does(formula: Formula) -> None:
    tape = recorded(formula)
    assert isinstance(tape, Tape)
    assert tape == record(formula)
    assert hash(tape) == hash(record(formula))
    for t in (torch.linspace(-3, 3, 50, dtype=torch.float64), torch.linspace(-3, 3, 50)):
        assert torch.equal(tape(t), formula(t))


def test_what_is_no_formula_is_opaque() -> None:
    for formula in (lambda t: t.numpy(), lambda t: 1.0, lambda t: t[0], lambda t: math.tanh(t), lambda t: t.shape):
        assert isinstance(recorded(formula), Opaque)


# ----------------------------------------------------------------------------------------- what is printed, and the law


def unknown() -> ig.Activation:
    """Honest, and beyond intervals."""
    return activation(lambda t: torch.tanh(t) + 0 * torch.lgamma(t.abs() + 1), name="unknown")


class TestABatteryOfDeclarations(Conformance):
    """Everything but certificates."""

    extensions = (unknown(),)

    def algorithm(self) -> ig.Algorithm:
        return ig.GradientDescent(ig.Network([2, 2, 1], unknown()), steps=1)

    def options(self) -> dict[str, Any]:
        return {"epsilon": 1e-2}

    def long_cases(self) -> dict[str, Any]:
        return {}


def test_everything_that_is_printed_says_the_state() -> None:
    declared = ig.compile(network(unknown()), epsilon=1e-2, n_examples=2)
    report = declared.verify(X, Y)
    assert [law.name for law in report.laws if law.name in ("proof", "fit", "declared")] == ["declared"]
    assert "declared by its author, not proven" in str(report)
    assert "lgamma" in str(report)
    assert report.to_json()["state"] == "declared"
    for ask in (declared.certify, declared.explain):
        with pytest.raises(ig.InputError, match="nothing is proven about unknown"):
            ask(X, Y)  # type: ignore[operator]
    for refuse in (lambda: declared.certificate, declared.attack, lambda: declared.run(X, Y, until=1.0)):
        with pytest.raises(ig.InputError, match="nothing is proven about unknown"):
            refuse()
    with pytest.raises(ig.InputError, match="nothing is proven about unknown"):
        ig.compile(network(unknown()), weight_error=1.0, n_examples=2)
    fitted = ig.compile(network(TANH), target="gpt", epsilon=1e-3, n_examples=2)
    certificate, explanation = fitted.certify(X, Y), fitted.explain(X, Y)
    assert certificate.state == explanation.state == fitted.state == "measured"
    for text in (str(certificate), str(explanation), str(fitted.verify(X, Y))):
        assert "measured on a grid, not proven" in text
    proven = ig.compile(network(TANH), epsilon=1e-2, n_examples=2)
    assert (proven.state, proven.certify(X, Y).state, proven.certify(X, Y).notes) == ("proven", "proven", ())
    assert "1e-2, proven" in repr(proven).replace("0.01", "1e-2")
    exact = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1), n_examples=2)
    assert repr(exact).endswith("exact>")
    assert exact.verify().state == "exact"


# ------------------------------------------------------------------------------------------------------------- folders


def changed(folder: Path, to: Path, config: Callable[[Any], object], tensors: Callable[[Any], object]) -> Path:
    shutil.copytree(folder, to)
    settings, values = json.loads((to / "config.json").read_text()), load_file(to / "weights.safetensors")
    config(settings)
    tensors(values)
    (to / "config.json").write_text(json.dumps(settings))
    save_file(values, to / "weights.safetensors", metadata={"id": settings["id"]})
    seal(to)
    return to


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ig.CompiledTransformer, Path]]:
    made = {}
    for target, name, epsilon in (("relu", "tanh", 1e-2), ("relu", "relu", 1e-2), ("gpt", "tanh", 1e-3)):
        algorithm = ig.GradientDescent(ig.Network([1, 2, 1], name), steps=1)
        tf = ig.compile(algorithm, target=target, epsilon=epsilon, n_examples=2)
        made[f"{target} {name}"] = tf, tf.save(tmp_path_factory.mktemp("model") / "saved")
    return made


def states_the_truth(path: Path) -> bool:
    """The model in the folder is refused, or the errors it states are as large as those it has, and what it says is
    proven is.
    """
    try:
        tf = ig.load(path)
    except ig.InputError as error:
        return "\n" not in str(error)
    for _ in range(2):  # before and after its errors are proven
        for name, f in tf.program.functions().items():
            given = tf.approximants.get(name)
            if given is None or f.jumps:
                continue
            low, high = (min(max(end, -20.0), 20.0) for end in given.domain)
            t = torch.linspace(low, high, 30_011, dtype=torch.float64)
            if isinstance(given, PiecewiseLinear):
                t = torch.cat([t, torch.tensor([x for x in given.knots if low <= x <= high], dtype=torch.float64)])
            seen = float((given(t) - f(t)).abs().max())
            grids = 1e-6 if isinstance(given, PiecewiseLinear) else 0.05  # fits are measured, on another grid than this
            if not seen <= given.error * (1 + grids) + 1e-12:
                return False
        assert tf.state in repr(tf)
    if tf.state == "declared":
        with pytest.raises(ig.InputError, match="nothing is proven"):
            tf.certify(X, Y)
    return True


@pytest.mark.parametrize("model", ["relu tanh", "relu relu", "gpt tanh"])
@pytest.mark.parametrize("error", [0.0, -1.0, math.nan, math.inf, None, 1e-5, 0.5, "0", 0, True])
def test_errors_in_a_folder_are_not_believed(model: str, error: Any, folders: Any, tmp_path: Path) -> None:
    _, folder = folders[model]

    def config(settings: Any) -> None:
        for entry in settings["approximants"].values():
            entry["error"] = error

    assert states_the_truth(changed(folder, tmp_path / "changed", config, lambda _: None))


def fuzz(folders: Any, tmp_path: Path, count: int, seed: int) -> None:
    """Anything about the approximants: numbers moved, swapped, domains and ramps changed."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        tf, folder = folders[str(generator.choice(list(folders)))]
        names = list(tf.approximants)
        one, other = (str(generator.choice(names)) for _ in range(2))
        what, size = int(generator.integers(6)), float(10.0 ** generator.uniform(-9, 1))

        def config(settings: Any, one: str = one, what: int = what, size: float = size) -> None:
            entry, sign = settings["approximants"][one], float(generator.choice([-1, 1]))
            if what == 1:
                entry["domain"] = [None if generator.random() < 0.3 else -10 * size, 10 * size]
            elif what == 2:
                entry["ramps"] = [] if entry["ramps"] else [[-size, size]]
            elif what == 3:
                for key in {"anchor", "value", "slope", "constant", "error"} & set(entry):
                    entry[key] = (entry[key] or 0.0) + sign * size * bool(generator.integers(2))
            elif what == 4:
                settings["options"]["epsilon"] = min(0.1, size)

        def tensors(values: Any, one: str = one, other: str = other, what: int = what, size: float = size) -> None:
            mine = [key for key in values if key.startswith(f"approximant.{one}.")]
            if what == 0:
                column = values[str(generator.choice(mine))]
                if len(column):
                    column[int(generator.integers(len(column)))] += size * float(generator.choice([-1, 1]))
            elif what == 5:
                for key in mine:
                    theirs = key.replace(f".{one}.", f".{other}.")
                    if theirs in values:
                        values[key], values[theirs] = values[theirs].clone(), values[key].clone()

        path = changed(folder, tmp_path / str(number), config, tensors)
        assert states_the_truth(path), (what, one, other, size)
        shutil.rmtree(path)


def test_what_is_changed_in_a_folder_is_noticed(folders: Any, tmp_path: Path) -> None:
    fuzz(folders, tmp_path, 25, seed=0)


@pytest.mark.soak
def test_much_is_changed_in_folders(folders: Any, tmp_path: Path) -> None:
    fuzz(folders, tmp_path, 1500, seed=1)


def test_a_false_error_that_a_grid_does_not_see_is_not_proven(folders: Any, tmp_path: Path) -> None:
    """Load compares; what counts is the proof."""
    tf, folder = folders["relu tanh"]
    again = ig.load(folder)
    assert again.approximants == dict(tf.approximants)
    again.approximants["tanh"] = PiecewiseLinear((0.0,), (1.0, 1.0), error=1e-2)
    assert again.state == "declared"
    assert again.approximants["tanh"].error == math.inf
    assert "declared by the folder it is from" in str(again.standings["tanh"])
    with pytest.raises(ig.InputError, match="nothing is proven about tanh"):
        again.certify(X, Y, errors="sup")


def test_loaded_matrices_are_unchecked_until_verify_passes(folders: Any, tmp_path: Path) -> None:
    tf, folder = folders["relu tanh"]
    assert not tf.certify(X, Y, executor="dense").unchecked
    again = ig.load(folder)
    before = again.certify(X, Y, executor="dense")
    assert before.unchecked
    assert "unchecked: the matrices were loaded" in str(before)
    assert not again.certify(X, Y, executor="plain").unchecked
    assert again.verify(X, Y).passed
    after = again.certify(X, Y, executor="dense")
    assert not after.unchecked
    assert "unchecked" not in str(after)
    assert after.bounds == before.bounds
    next(iter(again.module.stored_layers())).get_buffer("W_O.value")[0] += 0.05  # they are others now
    assert again.certify(X, Y, executor="dense").unchecked
    assert not again.verify(X, Y).passed
    assert again.certify(X, Y, executor="dense").unchecked

    def tensors(values: Any) -> None:
        values[next(key for key in values if key.endswith("W_O.value"))][0] += 0.05

    wrong = ig.load(changed(folder, tmp_path / "wrong", lambda _: None, tensors))
    assert not wrong.verify(X, Y).passed
    certificate, exact = wrong.certify(X, Y, executor="dense"), ig.reference(wrong.algorithm, X, Y).weights
    assert certificate.unchecked
    assert float((certificate.path[0, -1] - exact[-1]).norm()) <= certificate.weights[-1]
