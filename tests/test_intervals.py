"""Interval arithmetic and proven facts, with python-flint's ball arithmetic as the referee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, arb_series, ctx
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from innergrad.errors import InputError
from innergrad.functions import ACTIVATIONS, Asymptote, Function, approximate
from innergrad.functions import scalar as library
from innergrad.functions.facts import REACH, local_curvature, prove_facts
from innergrad.functions.intervals import LIBRARY_ULP, Interval
from innergrad.functions.jets import NoRule
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import IDENTITY, RECIPROCAL, clip_residual
from test_functions import PRIMITIVES, SMOOTH, asymptote, sides, sup_of_derivative

F64 = torch.float64
Series = Callable[[arb_series], arb_series]


def derivatives(formula: Series, t: float, shift: int = 0) -> list[arb]:
    """[f, f', f''] at t, where f is the derivative of order ``shift`` of the formula."""
    before, ctx.cap = ctx.cap, 3 + shift
    try:
        series = formula(arb_series([arb(t), 1]))
        return [series[k + shift] * math.factorial(k + shift) for k in range(3)]
    finally:
        ctx.cap = before


def cells(seed: int, count: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Cells of all widths from 1e-12 to 10 in [-radius, radius]; some begin or end at 0, some are points."""
    rng = np.random.default_rng(seed)
    lo = rng.uniform(-1, 1, count) * radius * 10.0 ** rng.uniform(-2, 0, count)
    hi = lo + 10.0 ** rng.uniform(-12, 1, count)
    lo[::10], hi[5::10] = np.minimum(0.0, hi[::10]), np.maximum(0.0, lo[5::10])
    hi[3::20] = lo[3::20]
    keep = (lo <= hi) & (hi <= radius)
    return lo[keep], hi[keep]


def check_enclosures(formula: Any, at: Callable[[float, int], list[arb]], radius: float, seed: int = 0) -> None:
    """f, f' and f'' in ball arithmetic, at points of random cells, lie in the enclosures.

    at(t, side): the derivatives at t; at a kink, those of that side.
    """
    lo, hi = cells(seed, 300, radius)
    jet = evaluate(formula, lo, hi)
    parts = (jet.value, jet.first, jet.second)
    rng = np.random.default_rng(seed + 1)
    for i, (a, b) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        for t, side in ((a, 1), (b, -1), (min(max(float(rng.uniform(a, b)), a), b), 1)):
            if a == b and t == 0.0:
                continue
            for part, true in zip(parts, at(t, side), strict=True):
                assert not true < arb(float(part.lo[i])), (a, b, t)
                assert not true > arb(float(part.hi[i])), (a, b, t)


# -------------------------------------------------------------------------------------------------- what is assumed

NUMPY: list[tuple[str, Callable[[np.ndarray], np.ndarray], Callable[[arb], arb], float]] = [
    ("exp", np.exp, lambda t: t.exp(), 740.0),
    ("expm1", np.expm1, lambda t: t.expm1(), 700.0),
    ("log", lambda t: np.log(np.abs(t)), lambda t: abs(t).log(), 1e6),
    ("log1p", lambda t: np.log1p(np.abs(t)), lambda t: abs(t).log1p(), 1e6),
    ("tanh", np.tanh, lambda t: t.tanh(), 25.0),
    ("sinh", np.sinh, lambda t: t.sinh(), 700.0),
    ("cosh", np.cosh, lambda t: t.cosh(), 700.0),
    ("sin", np.sin, lambda t: t.sin(), 1e30),
    ("cos", np.cos, lambda t: t.cos(), 1e30),
    ("arctan", np.arctan, lambda t: t.atan(), 1e6),
    ("erf", lambda t: torch.erf(torch.from_numpy(t)).numpy(), lambda t: t.erf(), 10.0),
    ("erfc", lambda t: torch.erfc(torch.from_numpy(t)).numpy(), lambda t: t.erfc(), 26.0),
]


@pytest.mark.parametrize(("function", "exact", "radius"), [row[1:] for row in NUMPY], ids=[row[0] for row in NUMPY])
def test_library_functions_are_as_accurate_as_assumed(
    function: Callable[[np.ndarray], np.ndarray], exact: Callable[[arb], arb], radius: float
) -> None:
    """On long arrays, which take vectorised code, and on short ones, which do not."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1, 1, 1000) * radius * 10.0 ** rng.uniform(-12, 0, 1000)
    values = np.concatenate([function(t), function(t[:3])])
    with ctx.workprec(512):
        for x, y in zip([*t.tolist(), *t[:3].tolist()], values.tolist(), strict=True):
            assert abs(exact(arb(x)) - y) <= LIBRARY_ULP * math.ulp(y) + 2.0**-1022, x


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "square", "cube", "sqrt", "abs"])
def test_arithmetic_is_outward(operation: str) -> None:
    rng = np.random.default_rng(1)
    ends = [np.sort(rng.normal(size=(2, 200)) * 10.0 ** rng.uniform(-3, 3, (2, 200)), axis=0) for _ in range(2)]
    x, y = (Interval(a, b) for a, b in ends)
    if operation == "sqrt":
        x = abs(x)
    unary: dict[str, tuple[Callable[[Interval], Interval], Callable[[arb], arb]]] = {
        "square": (Interval.square, lambda t: t * t),
        "cube": (lambda t: t.power(3), lambda t: t**3),
        "sqrt": (Interval.sqrt, lambda t: t.sqrt()),
        "abs": (abs, abs),
    }
    binary = {"+": lambda s, t: s + t, "-": lambda s, t: s - t, "*": lambda s, t: s * t, "/": lambda s, t: s / t}
    got = unary[operation][0](x) if operation in unary else binary[operation](x, y)
    for i in range(200):
        for s in (x.lo[i], x.hi[i]):
            for t in (y.lo[i], y.hi[i]):
                true = unary[operation][1](arb(s)) if operation in unary else binary[operation](arb(s), arb(t))
                assert not true < arb(got.lo[i])
                assert not true > arb(got.hi[i])
    if operation == "/":
        across = (y.lo < 0) & (y.hi > 0)
        assert across.any()
        assert np.isinf(got.lo[across]).all()


# ------------------------------------------------------------------------------------------------------- enclosures


def _gelu(t: arb_series) -> arb_series:
    return t * (-t / arb(math.sqrt(2.0))).erfc() / 2


def _dgelu(t: arb_series) -> arb_series:
    phi = (-t * t / 2).exp() * arb(1.0 / math.sqrt(2.0 * math.pi))
    return (-t / arb(math.sqrt(2.0))).erfc() / 2 + t * phi


def builtin(name: str, t: float, side: int) -> list[arb]:
    """The textbook function, with the constants of gelu as float64 has them."""
    if name in ("gelu", "gelu'"):
        return derivatives(_gelu if name == "gelu" else _dgelu, t)
    if name == "exp(min(t,0))" and (t > 0 or (t == 0 and side > 0)):
        return [arb(1), arb(0), arb(0)]
    if name in PRIMITIVES:
        return derivatives(PRIMITIVES[name], t)
    return derivatives(PRIMITIVES[name.removesuffix("'")], t, shift=1)


@pytest.mark.parametrize("name", SMOOTH)
def test_formulas_of_the_library_are_enclosed(name: str) -> None:
    with ctx.workprec(1024):
        check_enclosures(SMOOTH[name].value, lambda t, side: builtin(name, t, side), 40.0)


def _sided(upper: Series, lower: Series) -> Callable[[float, int], list[arb]]:
    return lambda t, side: derivatives(upper if t > 0 or (t == 0 and side > 0) else lower, t)


def _plain(formula: Series) -> Callable[[float, int], list[arb]]:
    return lambda t, side: derivatives(formula, t)


def _one(t: arb_series) -> arb_series:
    return t * 0 + 1


OWN: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[float, int], list[arb]]]] = {
    "rational": (lambda t: (t**3 - 2 * t) / (1 + t.square() ** 2), _plain(lambda t: (t**3 - 2 * t) / (1 + t**4))),
    "reciprocal first": (lambda t: 1 / (1 + t * t), _plain(lambda t: 1 / (1 + t * t))),
    "wave packet": (
        lambda t: torch.exp(-t * t) * torch.cos(3 * t) + t.sin() * 0.3,
        _plain(lambda t: (-t * t).exp() * (3 * t).cos() + t.sin() * arb(0.3)),
    ),
    "roots": (lambda t: t * torch.rsqrt(1 + t * t) + (2 + t**2) ** 0.5,
              _plain(lambda t: t * (1 + t * t).rsqrt() + (2 + t * t).sqrt())),
    "logs": (lambda t: torch.log(3 + t.square()) - torch.log1p(torch.exp(t)),
             _plain(lambda t: (3 + t * t).log() - (1 + t.exp()).log())),
    "hyperbolic": (lambda t: torch.sinh(t) / torch.cosh(t) - torch.expm1(-t * t),
                   _plain(lambda t: 2 - 2 / (1 + (2 * t).exp()) - (-t * t).exp())),
    "saturating": (lambda t: torch.erf(t) + torch.arctan(t) - torch.tanh(0.5 * t) * torch.sigmoid(-t),
                   _plain(lambda t: t.erf() + t.atan() - (1 - 2 / (1 + t.exp())) / (1 + t.exp()))),
    "tensors of torch": (lambda t: torch.tensor(2.0) * t - torch.tensor(1.5, dtype=F64) / (2 + torch.cos(t)),
                         _plain(lambda t: 2 * t - arb(1.5) / (2 + t.cos()))),
    "torch.nn": (lambda t: F.silu(t) + F.softplus(t, threshold=math.inf) + F.logsigmoid(t),
                 _plain(lambda t: t / (1 + (-t).exp()) + (1 + t.exp()).log() - (1 + (-t).exp()).log())),
    "gelu of torch.nn": (F.gelu, _plain(lambda t: t * (-t / arb(2).sqrt()).erfc() / 2)),
    "softsign": (F.softsign, _sided(lambda t: t / (1 + t), lambda t: t / (1 - t))),
    "abs": (lambda t: torch.exp(-t.abs()) + abs(t) / 3,
            _sided(lambda t: (-t).exp() + t / 3, lambda t: t.exp() - t / 3)),
    "elu": (lambda t: torch.where(t > 0, t, torch.expm1(t)), _sided(lambda t: t, lambda t: t.exp() - 1)),
    "elu of torch.nn": (lambda t: F.elu(t, alpha=0.5), _sided(lambda t: t, lambda t: (t.exp() - 1) / 2)),
    "less": (lambda t: torch.where(t <= 0, t.square(), 0.5 * t), _sided(lambda t: t / 2, lambda t: t * t)),
    "relu": (lambda t: F.relu(t) ** 2 + torch.maximum(t, torch.zeros_like(t)) - F.leaky_relu(-t, 0.25),
             _sided(lambda t: t * t + t + t / 4, lambda t: t)),
    "clamp": (lambda t: t.clamp(max=0.0) * torch.cos(t), _sided(lambda t: t * 0, lambda t: t * t.cos())),
    "constant": (lambda t: torch.ones_like(t), _plain(_one)),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_formulas_of_users_are_enclosed(name: str) -> None:
    with ctx.workprec(512):
        check_enclosures(*OWN[name], radius=12.0, seed=2)


@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in ("sin", "sin'")])
def test_enclosures_are_tight(name: str) -> None:
    """Cells of width 2^-20 have enclosures of f, f', f'' that are hardly wider, also next to 0."""
    lo = np.concatenate([np.linspace(-8, 8, 1025), [-(2.0**-20), 0.0]])
    jet = evaluate(SMOOTH[name].value, lo, lo + 2.0**-20)
    for part in (jet.value, jet.first, jet.second):
        assert (part.hi - part.lo).max() < 2.0**-15


def test_tails_are_tight() -> None:
    """Far out f'' is not lost in the rounding of f, and f - asymptote is not lost in f."""
    lo = np.array([-1e9, -1e3, 1e3, 2.0**100])
    for f in (library.SILU, library.SOFTPLUS, library.GELU, library.TANH, library.DSILU):
        assert evaluate(f.value, lo, lo + np.abs(lo) / 64).second.magnitude.max() < 1e-200
    rest = evaluate(library.SOFTPLUS.value, np.array([30.0]), np.array([30.0]))
    assert (rest.a[0], rest.b[0]) == (0.0, 1.0)
    assert rest.v.lo[0] == pytest.approx(math.exp(-30.0), rel=1e-12)


# ------------------------------------------------------------------------------------------------------------ facts


@pytest.mark.parametrize("name", SMOOTH)
def test_facts_are_proven_and_sharp(name: str) -> None:
    """Proven sups are at least the sups of ball arithmetic and at most 1e-6 more, relatively."""
    f = SMOOTH[name]
    facts = prove_facts(f)
    assert facts.proven, facts.reason
    assert facts.reach == REACH
    for order, proven in enumerate((facts.bound, facts.lipschitz, facts.curvature)):
        true = sup_of_derivative(name, order)
        if not f.needs_domain and order < 2:
            ends = [asymptote(f, side) for side in (-1, 1)]
            if order == 0 and any(a.slope for a in ends):
                continue
            true = true.max(arb(max(abs(a.intercept if order == 0 else a.slope) for a in ends)))
        assert proven >= true.lower()
        assert proven <= true.upper() * (1 + 1e-6)
    for part in (facts.value, facts.first, facts.second):
        assert part[0] < part[1]


@pytest.mark.parametrize("name", [name for name in SMOOTH if not SMOOTH[name].needs_domain])
def test_tails_are_proven(name: str) -> None:
    facts = prove_facts(SMOOTH[name])
    for tail in (facts.left, facts.right):
        assert tail is not None
        assert tail.slack <= 1e-13
        assert max(map(abs, tail.limit)) <= 1e-12


@pytest.mark.parametrize("name", [name for name, a in ACTIVATIONS.items() if a.r.name in SMOOTH])
def test_range_of_activations(name: str) -> None:
    """The declared closed range is that of r, to 1e-6."""
    lo, hi = prove_facts(ACTIVATIONS[name].r).value
    low, high = ACTIVATIONS[name].closed_range
    assert lo <= low <= lo + 1e-6
    assert high == math.inf or hi - 1e-6 <= high <= hi


@pytest.mark.parametrize("fact", ["bound", "lipschitz", "curvature"])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_fact_one_percent_too_small_is_refused(name: str, fact: str) -> None:
    declared = getattr(SMOOTH[name], fact)
    if math.isfinite(declared):
        with pytest.raises(InputError, match=rf"exceeds its declared {fact} at t = "):
            prove_facts(replace(SMOOTH[name], **{fact: 0.99 * declared}))


@pytest.mark.parametrize("name", ["tanh", "softplus", "gelu", "silu'", "pseudo-huber'"])
@pytest.mark.parametrize("change", [{"intercept": 1e-9}, {"intercept": -1e-3}, {"slope": 1e-9}])
def test_a_false_asymptote_is_refused(name: str, change: dict[str, float]) -> None:
    f = SMOOTH[name]
    for side in sides(name):
        true = asymptote(f, side)
        false = replace(true, **{key: getattr(true, key) + value for key, value in change.items()})
        with pytest.raises(InputError, match="asymptote"):
            prove_facts(replace(f, **{"left" if side < 0 else "right": false}))


@pytest.mark.parametrize("name", ["gelu", "gelu'", "silu", "silu'"])
def test_an_asymptote_declared_from_too_near_is_refused(name: str) -> None:
    """They turn before they settle."""
    right = replace(asymptote(SMOOTH[name], 1), beyond=0.25)
    with pytest.raises(InputError, match=r"monotonically beyond 0\.25"):
        prove_facts(replace(SMOOTH[name], right=right))


def test_kinks_and_jumps_have_to_be_declared() -> None:
    relu = Function("my relu", lambda t: t.clamp(min=0.0), curvature=0.0, lipschitz=1.0)
    with pytest.raises(InputError, match=r"derivative of my relu is not continuous.*declare it as a break"):
        prove_facts(relu)
    with pytest.raises(InputError, match="declare it as a break"):
        prove_facts(replace(library.EXP_CAPPED, breaks=()))
    facts = prove_facts(replace(relu, breaks=(0.0,)))
    assert facts.proven
    assert (facts.first, facts.second) == ((0.0, 1.0), (0.0, 0.0))
    with pytest.raises(InputError, match=r"my step is not continuous.*declare it as a jump"):
        prove_facts(Function("my step", lambda t: torch.where(t > 1, t, torch.ones_like(t) / 2), lipschitz=1.0))
    elu = Function("my elu", lambda t: torch.where(t > 0, t, torch.expm1(t)), curvature=1.0, lipschitz=1.0,
                   left=Asymptote(0, -1, 0), right=Asymptote(1, 0, 0), breaks=(0.0,))  # fmt: skip
    assert prove_facts(elu).proven
    assert 0 < approximate(elu, 1e-3).error <= 1e-3


def test_conditions_that_vanish_on_a_whole_cell_are_not_guessed() -> None:
    """relu(t) > 0 is false for t < 0, where relu(t) = 0: the enclosure has to hold the other branch."""
    for formula in (lambda t: torch.where(F.relu(t) > 0, t, 5.0), lambda t: torch.where(t * t > 0, 0 * t, 5.0)):
        value = evaluate(formula, np.array([-2.0]), np.array([1.0])).value
        assert value.lo[0] <= 5 <= value.hi[0]
    value = evaluate(lambda t: torch.where(F.relu(t) > 0, t, 5.0), np.array([-2.0]), np.array([-1.0])).value
    assert value.lo[0] <= 5 <= value.hi[0]
    value = evaluate(lambda t: torch.where(t > 0, t + 1, t), np.array([0.0]), np.array([0.0])).value
    assert value.lo[0] <= 0 <= value.hi[0]


def test_exact_functions_and_steps() -> None:
    assert prove_facts(library.RELU).first == (0.0, 1.0)
    assert prove_facts(library.RELU6).value == (0.0, 6.0)
    assert prove_facts(clip_residual(1.5)).first == (-1.0, 0.0)
    assert prove_facts(IDENTITY).second == (0.0, 0.0)
    assert prove_facts(library.DRELU6).value == (0.0, 1.0)
    assert prove_facts(library.DRELU).lipschitz == math.inf
    with pytest.raises(InputError, match="bound"):
        prove_facts(replace(library.RELU6, bound=5.9))


# ------------------------------------------------------------------------------------------------- what is refused


def _looping(t: Tensor) -> Tensor:
    while t > 1:
        t = t / 2
    return t


UNKNOWN: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "lgamma": (lambda t: torch.lgamma(t), "torch.lgamma"),
    "a method": (lambda t: t.digamma(), "torch.digamma"),
    "a branch": (lambda t: t if t > 0 else -t, "a branch that depends on t"),
    "a loop": (_looping, "a branch that depends on t"),
    "a number": (lambda t: t * float(t), "a number made of t"),
    "equality": (lambda t: torch.where(t == 0, t, -t), "=="),
    "an index": (lambda t: t[t > 0], "no interval rule"),
    "softplus with a threshold": (F.softplus, "threshold"),
    "tanh gelu": (lambda t: F.gelu(t, approximate="tanh"), "approximate"),
    "a real power": (lambda t: t**1.5, "the power 1.5"),
    "rounding mode": (lambda t: torch.div(t, 2.0, rounding_mode="floor"), "torch.div with these arguments"),
    "in place": (lambda t: t.clamp_(0.0), "torch.clamp_"),
    "numpy": (lambda t: np.tanh(t), "no interval rule"),
    "random": (lambda t: t + torch.rand_like(t), "torch.rand_like"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_intervals_cannot_follow_is_not_proven(name: str) -> None:
    """Never mis-evaluated: the facts say that nothing is proven, and why."""
    formula, reason = UNKNOWN[name]
    with pytest.raises(NoRule):
        evaluate(formula, np.array([0.5]), np.array([2.0]))
    facts = prove_facts(Function(name, formula, curvature=1.0))
    assert not facts.proven
    assert reason in facts.reason
    assert facts.curvature == facts.lipschitz == facts.bound == math.inf


def test_functions_without_rules_keep_their_trusted_approximants() -> None:
    """asinh has no rule: declarations are refuted by samples at best, and the facts say so."""
    f = Function("asinh", torch.asinh, curvature=0.4, lipschitz=1.0)
    assert not prove_facts(f).proven
    approximant = approximate(f, 1e-3, radius=5.0)
    t = torch.linspace(-5, 5, 4001, dtype=F64)
    assert float((approximant(t) - torch.asinh(t)).abs().max()) <= approximant.error <= 1e-3
    with pytest.raises(InputError, match="curvature"):
        approximate(replace(f, curvature=0.2), 1e-3, radius=5.0)


def test_facts_on_a_domain() -> None:
    """A cubic has a curvature on a bounded domain only."""
    f = Function("cubic", lambda t: t**3, curvature=60.0, lipschitz=300.0, bound=1000.0)
    with pytest.raises(InputError, match="exceeds"):
        prove_facts(f)
    facts = prove_facts(f, 10.0)
    assert facts.proven
    assert facts.curvature == pytest.approx(60.0, rel=1e-6)
    assert approximate(f, 1e-2, radius=10.0).error <= 1e-2


# --------------------------------------------------------------------------------------------------- local curvature


@pytest.mark.parametrize("name", SMOOTH)
def test_local_curvature(name: str) -> None:
    """At least |f''| in the interval, at most the global bound, and near |f''| on small intervals."""
    generator = torch.Generator().manual_seed(0)
    lo = 3 * torch.randn(20, 4, generator=generator, dtype=F64)
    if name == "exp(min(t,0))":
        lo = -lo.abs() - 0.5
    hi = lo + 0.5 * torch.rand(20, 4, generator=generator, dtype=F64)
    bound = local_curvature(SMOOTH[name], lo, hi)
    assert bound.shape == lo.shape
    assert float(bound.max()) <= prove_facts(SMOOTH[name]).curvature
    for a, b, most in zip(lo.flatten().tolist(), hi.flatten().tolist(), bound.flatten().tolist(), strict=True):
        for t in (a, 0.5 * (a + b), b):
            assert not abs(builtin(name, t, -1)[2]) > arb(most)
    small = local_curvature(SMOOTH[name], lo, lo + 1e-6)
    for a, most in zip(lo.flatten().tolist(), small.flatten().tolist(), strict=True):
        assert abs(abs(builtin(name, a, -1)[2]) - arb(most)) < 1e-4


def test_local_curvature_where_there_is_no_global_one() -> None:
    lo, hi = torch.tensor([0.5, -2.0, -1.0], dtype=F64), torch.tensor([1.0, -1.0, 1.0], dtype=F64)
    bound = local_curvature(RECIPROCAL, lo, hi).tolist()
    assert 16.0 <= bound[0] < 16.1
    assert 2.0 <= bound[1] < 2.1
    assert bound[2] == math.inf
    across = local_curvature(library.EXP_CAPPED, lo, hi).tolist()
    assert across[2] == math.inf
    assert across[0] == 0.0
    for kinked in (
        torch.abs,
        lambda t: (t - 0.75).abs(),
    ):  # at 0 and in the middle of [0.5, 1], where intervals are cut
        for lipschitz in (1.0, math.inf):
            bound = local_curvature(Function("kinked", kinked, lipschitz=lipschitz), lo, hi).tolist()
            assert bound[0] == (0.0 if kinked is torch.abs else math.inf)
            assert bound[1] == 0.0
            assert bound[2] == math.inf
    elu = Function("elu", lambda t: torch.where(t > 0, t, torch.expm1(t)), breaks=(0.0,))
    assert local_curvature(elu, lo - 0.5, hi).tolist()[0] == 0.0  # [0, 1] begins at the break
    assert local_curvature(library.RELU, lo, hi).tolist() == [0.0, 0.0, math.inf]
    assert local_curvature(Function("unknown", torch.lgamma), lo, hi).tolist() == [math.inf] * 3


def test_what_looks_smooth_but_is_not_is_refused() -> None:
    """hypot(t, 0) = |t|; conversions cut off; jumps and pieces that the formula does not have."""
    rays = {"left": ig.Asymptote(0, 0, 0), "right": ig.Asymptote(2, 0, 0)}
    kink = ig.Function("kink", lambda t: torch.hypot(t, torch.zeros_like(t)) + t, curvature=1, lipschitz=2, **rays)
    with pytest.raises(ig.InputError):
        ig.prove_facts(kink)
    for formula in (lambda t: torch.tanh(t.detach()), lambda t: torch.tanh(t.to(torch.int64).to(torch.float64))):
        assert not ig.prove_facts(ig.Function("cut", formula, curvature=1.0, lipschitz=1.0)).proven
    with pytest.raises(ig.InputError, match="does not agree with its jumps"):
        ig.prove_facts(ig.Function("j", torch.tanh, jumps=((0.0, 2.0, 1),), bound=1.0))
    line = ig.Function("e", torch.tanh, exact=ig.PiecewiseLinear((), (1.0,)), curvature=0.0, lipschitz=1.0)
    with pytest.raises(ig.InputError, match="does not agree with its pieces"):
        ig.prove_facts(line)
    for argument in ("tanh", torch.tanh):
        with pytest.raises(ig.InputError, match="facts are proven of an"):
            ig.prove_facts(argument)  # type: ignore[arg-type]
    with pytest.raises(ig.InputError, match="finite numbers"):
        ig.Asymptote(0.0, 0.0, float("nan"))
    with pytest.raises(ig.InputError, match="not a number"):
        ig.Function("nan", torch.tanh, curvature=float("nan"))
