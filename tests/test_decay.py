"""The general decay condition: verdicts, reasons, and witnesses checked independently in 60-digit arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions import Asymptote, Function
from innergrad.functions.decay import Decay, decay_condition
from innergrad.functions.scalar import DRELU

Scalar = Callable[[Tensor], Tensor]

#: sigma for torch, the same function from its textbook definition for mpmath, the category, words of the reason
HOLDS: dict[str, tuple[Scalar | Function | str, Callable[[mpf], mpf], str, str]] = {
    "tanh": ("tanh", mp.tanh, "asymptotically polynomial", "degree 0 at most"),
    "sigmoid": ("sigmoid", lambda t: 1 / (1 + mp.exp(-t)), "asymptotically polynomial", "degree 0 at most"),
    "softplus": ("softplus", lambda t: mp.log1p(mp.exp(t)), "asymptotically polynomial", "degree 1 at most"),
    "gelu": ("gelu", lambda t: t * mp.ncdf(t), "asymptotically polynomial", "degree 1 at most"),
    "silu": ("silu", lambda t: t / (1 + mp.exp(-t)), "asymptotically polynomial", "degree 1 at most"),
    "relu": ("relu", lambda t: max(t, mpf(0)), "asymptotically polynomial", "outside an interval"),
    "leaky_relu": ("leaky_relu", lambda t: t if t > 0 else mpf(0.01) * t, "asymptotically polynomial", "as declared"),
    "heaviside": (DRELU, lambda t: mpf(t > 0), "asymptotically polynomial", "outside an interval"),
    "sign": (torch.sign, mp.sign, "asymptotically polynomial", "degree 0 at most"),
    "gaussian": (lambda t: torch.exp(-t * t), lambda t: mp.exp(-t * t), "decays itself", "sigma itself decays"),
    "elu": (torch.nn.functional.elu, lambda t: t if t > 0 else mp.expm1(t), "asymptotically polynomial", "degree 1"),
    "log cosh": (
        lambda t: t.abs() + torch.log1p(torch.exp(-2 * t.abs())) - math.log(2),
        lambda t: abs(t) + mp.log1p(mp.exp(-2 * abs(t))) - mp.log(2),
        "asymptotically polynomial",
        "degree 1 at most",
    ),
    "relu^2": (lambda t: t.clamp(min=0) ** 2, lambda t: max(t, mpf(0)) ** 2, "asymptotically polynomial", "degree 2"),
    "t^2 sigmoid": (
        lambda t: t * t * torch.sigmoid(t),
        lambda t: t * t / (1 + mp.exp(-t)),
        "asymptotically polynomial",
        "degree 2 at most",
    ),
    "arctan": (torch.atan, mp.atan, "asymptotically polynomial", "like (1 + |t|)^-1.95;"),
    "softsign": (lambda t: t / (1 + t.abs()), lambda t: t / (1 + abs(t)), "asymptotically polynomial", "^-1.95;"),
    "sqrt": (lambda t: t.abs().sqrt(), lambda t: mp.sqrt(abs(t)), "differences decay", "gains a power of t"),
    "log": (lambda t: torch.log1p(t * t), lambda t: mp.log1p(t * t), "differences decay", "gains a power of t"),
    "wide tanh": (lambda t: torch.tanh(t / 1e4), lambda t: mp.tanh(t / 10**4), "asymptotically polynomial", "degree 0"),
}
#: the same for witnesses with a period that is not a float64: their weights are rounded
PERIODIC: dict[str, tuple[Scalar, Callable[[mpf], mpf], str]] = {
    "sinc": (lambda t: torch.sinc(t / math.pi), mp.sinc, "6.28318530718"),
    "sin + tanh": (lambda t: torch.sin(t) + torch.tanh(t), lambda t: mp.sin(t) + mp.tanh(t), "6.28318530718"),
    "sin + relu": (
        lambda t: torch.sin(1.37 * t) + torch.relu(t),
        lambda t: mp.sin(mpf(1.37) * t) + max(t, mpf(0)),
        "4.58626664758",
    ),
}


def _triangle(t: Tensor) -> Tensor:
    return (torch.remainder(t, 1.0) - 0.5).abs()


def _late(t: Tensor) -> Tensor:
    """tanh on [-50, 50], then straight lines, with period 1000."""
    u = torch.remainder(t + 500, 1000.0) - 500
    return torch.where(u.abs() <= 50, torch.tanh(u), torch.sign(u) * (500 - u.abs()) / 450)


FAILS: dict[str, tuple[Scalar | str, str, str]] = {
    "cos": (torch.cos, "almost periodic", "period 6.28318530718"),
    "sin": ("sin", "almost periodic", "almost periodic; a decaying one is zero"),
    "slow cos": (lambda t: torch.cos(t / 300), "almost periodic", "period 1884.95559215"),
    "triangle wave": (_triangle, "almost periodic", "period 1,"),
    "square wave": (lambda t: torch.sign(torch.sin(t)), "almost periodic", "period 6.28318530718"),
    "two waves": (lambda t: torch.sin(t) + torch.sin(math.sqrt(2) * t), "almost periodic", "sum of waves"),
    "tanh on [-50, 50], period 1000": (_late, "almost periodic", "period 1000,"),
    "t cos t": (
        lambda t: t * torch.cos(t),
        "polynomial times almost periodic",
        "coefficients have period 6.28318530718",
    ),
    "t + sin^2": (lambda t: t + torch.sin(t) ** 2, "polynomial times almost periodic", "period 3.14159265359"),
    "floor": (torch.floor, "polynomial times almost periodic", "coefficients have period 1,"),
    "t^3": (lambda t: t**3, "polynomial", "polynomial of degree 3"),
    "constant": (torch.ones_like, "polynomial", "polynomial of degree 0"),
    "zero": (torch.zeros_like, "polynomial", "sigma is zero"),
    "exp": (torch.exp, "exponential growth", "sum of exponentials"),
    "cosh": (torch.cosh, "exponential growth", "sum of exponentials"),
    "exp cos": (lambda t: torch.exp(t) * torch.cos(t), "exponential growth", "sum of exponentials"),
    "tan": (torch.tan, "not regular", "unbounded near t ="),
}
UNDECIDED: dict[str, Scalar] = {
    "cos t^2": lambda t: torch.cos(t * t),  # it fails: the phases are distinct polynomials; no filter shows it
    "exp |t|": lambda t: torch.exp(t.abs()),  # it holds, but not above the rounding of float64
    "t + 1e-12 gaussian": lambda t: t + 1e-12 * torch.exp(-t * t),  # likewise
    "exp t^2": lambda t: torch.exp(t * t),
    "very wide tanh": lambda t: torch.tanh(t / 1e12),  # the samples end before its tails begin
    "tanh, cos beyond 1e7": lambda t: torch.where(t.abs() < 1e7, torch.tanh(t), torch.cos(t)),
    "tanh, a chirp beyond 50": lambda t: torch.tanh(t) + torch.sin(t * t / 100) * (t - 50).clamp(0, 1),
}


def _points() -> list[mpf]:
    """1,000 points, close to 0 and far out, on both sides."""
    generator = np.random.default_rng(12345)
    size = np.concatenate([8 * generator.random(400), 10 ** (9 * generator.random(600))])
    return [mpf(float(x)) for x in size * generator.choice([-1.0, 1.0], 1000)]


def _check_witness(verdict: Decay, sigma: Callable[[mpf], mpf], slack: float = 0.0) -> None:
    """The bound holds at 1,000 points in 60 digits, where nothing cancels, and nu is not zero."""
    with mp.workdps(60):
        units = [(mpf(omega), mpf(b), mpf(beta)) for omega, b, beta in verdict.units]
        largest = mpf(0)
        for t in _points():
            nu = abs(mp.fsum(beta * sigma(omega * t + b) for omega, b, beta in units))
            assert nu <= verdict.C * (1 + abs(t)) ** -verdict.p + slack, (t, nu)
            largest = max(largest, nu)
    assert largest > 1e-5
    assert largest > 1e6 * slack


@pytest.mark.parametrize("name", HOLDS)
def test_it_holds_with_a_witness(name: str) -> None:
    sigma, reference, kind, words = HOLDS[name]
    verdict = decay_condition(sigma)
    assert verdict.holds is True
    assert verdict
    assert verdict.kind == kind
    assert words in verdict.reason
    assert verdict.p > 1
    assert verdict.rounding == 0.0
    assert verdict.reach >= 1024
    _check_witness(verdict, reference)


@pytest.mark.parametrize("name", PERIODIC)
def test_periodic_tails_are_removed_by_a_difference_over_the_period(name: str) -> None:
    sigma, reference, period = PERIODIC[name]
    verdict = decay_condition(sigma)
    assert verdict.holds is True
    assert verdict.kind == "asymptotically periodic"
    assert f"period {period}" in verdict.reason
    assert 0 < verdict.rounding < 1e-12
    _check_witness(verdict, reference, verdict.rounding)


def test_several_waves_and_a_step() -> None:
    root = math.sqrt(2)
    verdict = decay_condition(lambda t: torch.sin(t) + torch.sin(root * t) + torch.tanh(t))
    assert verdict.holds is True
    assert verdict.kind == "asymptotically exponential"
    _check_witness(verdict, lambda t: mp.sin(t) + mp.sin(mpf(root) * t) + mp.tanh(t), 1e-13)


@pytest.mark.parametrize("name", FAILS)
def test_it_fails_for_a_reason(name: str) -> None:
    sigma, kind, words = FAILS[name]
    verdict = decay_condition(sigma)
    assert verdict.holds is False
    assert not verdict
    assert verdict.kind == kind
    assert words in verdict.reason
    assert verdict.units == ()


@pytest.mark.parametrize("name", UNDECIDED)
def test_samples_do_not_decide(name: str) -> None:
    verdict = decay_condition(UNDECIDED[name])
    assert verdict.holds is None
    assert not verdict
    assert verdict.kind == "undecided"
    assert "neither answer is supported" in verdict.reason


def test_the_verdict_does_not_hang_on_the_samples() -> None:
    for seed in (1, 2, 3):
        assert decay_condition("gelu", seed=seed).kind == "asymptotically polynomial"
        assert decay_condition(torch.cos, seed=seed).kind == "almost periodic"
        assert decay_condition(torch.exp, seed=seed).kind == "exponential growth"


def test_growth_beyond_the_range_in_which_it_looks_like_tanh() -> None:
    """tanh up to 50 and a cubic beyond: its difference of order 4 vanishes there, so that it holds."""
    verdict = decay_condition(lambda t: torch.tanh(t) + (t - 50).clamp(min=0) ** 3)
    assert verdict.holds is True
    assert len(verdict.units) == 5
    _check_witness(verdict, lambda t: mp.tanh(t) + max(t - 50, mpf(0)) ** 3)


def test_a_slow_wave_is_not_taken_for_a_polynomial() -> None:
    """Five differences make sin(t / 1000) smaller than rounding; the same with larger steps do not."""
    verdict = decay_condition(lambda t: torch.sin(t / 1000) + torch.exp(-t * t))
    assert verdict.kind == "asymptotically periodic"
    assert verdict.units[1][1] - verdict.units[0][1] == pytest.approx(2000 * math.pi, rel=1e-14)


def test_a_black_box_is_measured_and_a_declared_hinge_is_proven() -> None:
    hidden = decay_condition(lambda t: torch.where(t.abs() < 2.0**45, torch.tanh(t), torch.cos(t)))
    assert hidden.holds is True  # nobody has looked there, and the verdict says how far it has
    assert not hidden.proven
    assert hidden.reach < 2.0**45
    assert "measured for |t| <= 3e+10" in hidden.reason
    assert decay_condition("relu").proven
    assert decay_condition("relu6").proven
    assert decay_condition(DRELU).proven
    assert not decay_condition(torch.relu).proven
    wrong = Function("not a step", torch.tanh, jumps=((0.0, 2.0, 1),))
    assert not decay_condition(wrong).proven


def test_derivatives() -> None:
    """With m, the derivatives decay too, and sigma has to have them."""
    for name in ("softplus",):
        verdict = decay_condition(name, m=2)
        assert verdict.holds is True
        reference = HOLDS[name][1]
        with mp.workdps(40):
            for t in (-30.5, -3.25, 0.1, 0.7, 2.0, 11.0, 200.0):
                for k in (1, 2):
                    terms = [
                        mpf(beta) * mpf(omega) ** k * mp.diff(reference, mpf(omega) * t + mpf(b), k)
                        for omega, b, beta in verdict.units
                    ]
                    assert abs(mp.fsum(terms)) <= verdict.C * (1 + abs(t)) ** -verdict.p + 1e-15
    step = decay_condition(DRELU, m=1)
    assert step.holds is False
    assert step.kind == "not regular"
    assert "not Lipschitz at t = 0," in step.reason
    assert decay_condition("relu", m=1).holds is True
    assert "derivative of order 1" in decay_condition("relu", m=2).reason
    assert decay_condition(lambda t: t.abs().sqrt(), m=1).kind == "not regular"
    # its derivative decays like 1 / t only, and oscillates faster and faster: no difference helps
    assert decay_condition(lambda t: torch.sin(t * t) / (1 + t * t)).holds is True
    assert decay_condition(lambda t: torch.sin(t * t) / (1 + t * t), m=1).holds is None


def test_nu_and_its_bound() -> None:
    verdict = decay_condition("tanh")
    t = torch.linspace(-20, 20, 4001, dtype=torch.float64).reshape(1, -1)
    nu = verdict.nu(t)
    assert nu.shape == t.shape
    assert torch.allclose(nu, torch.tanh(t + 0.5) - torch.tanh(t - 0.5), rtol=0, atol=1e-15)
    assert bool((nu.abs() <= verdict.bound(t)).all())
    with pytest.raises(InputError, match="there is no witness; got almost periodic"):
        decay_condition("sin").nu(t)


def test_a_false_asymptote_is_noticed() -> None:
    flat = Asymptote(0.0, 0.5, 0.0)
    with pytest.raises(InputError, match=r"declared right asymptote; got 0 t \+ 0.5; .*monotone"):
        decay_condition(Function("tanh, misdeclared", torch.tanh, right=flat))


def _fails(t: Tensor) -> Tensor:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize(
    ("sigma", "words"),
    [
        ("swish", "unknown activation; got 'swish'; allowed: tanh, sigmoid"),
        (3.0, "sigma is not a function; got float; allowed: a map of float64 tensors"),
        (lambda t: t > 0, r"must return float64 .*got torch.bool of shape \(14,\); convert"),
        (lambda t: t.float(), "must return float64"),
        (lambda t: t.sum(), r"got torch.float64 of shape \(\)"),
        (lambda t: 1.0, "must return float64 .*got float"),
        (lambda t: torch.cumsum(t, 0), "each entry alone"),
        (_fails, "sigma fails on a float64 tensor; got RuntimeError: no such luck"),
        (lambda t: torch.sin(t) / t, "sigma is not finite; got t = -?0; allowed: finite values"),
        (lambda t: torch.log(t), "sigma is not finite"),
    ],
)
def test_bad_functions(sigma: Scalar | str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        decay_condition(sigma)


def test_bad_orders() -> None:
    for m in (-1, 1.5, True, 9):
        with pytest.raises(InputError, match="m must be an integer"):
            decay_condition("tanh", m=m)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed must be"):
        decay_condition("tanh", seed=-1)
    with pytest.raises(InputError, match="cannot be differentiated by torch; take m = 0"):
        decay_condition(lambda t: torch.from_numpy(np.tanh(t.detach().numpy())), m=1)
