"""The facts that functions declare, against python-flint's ball arithmetic; their values, against torch and autograd.

The ball forms below are written from the textbook definitions, not from the source: ``BALLS[name](t)`` maps a Taylor
jet of the argument to a Taylor jet of the function, with rigorous radii. A sup is enclosed by branch and bound on
[-FAR, FAR] (:func:`sup`) and on the tails by a factorisation in which infinity is an ordinary point (:func:`tail`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from flint import arb, arb_series, ctx
from torch.nn import functional as F

from innergrad.algorithms.losses import LOSSES, LogisticLoss, ResidualLoss, SoftmaxLoss
from innergrad.functions import ACTIVATIONS, Asymptote, Function
from innergrad.functions import scalar as library
from innergrad.functions.scalar import IDENTITY, NEGATION, clip_residual

ctx.prec = 256  # the smallest number that matters is gelu's derivative at FAR, about 2^-180
ctx.cap = 8
FAR = 16
F64 = torch.float64

# --------------------------------------------------------------------------------------------------- ball arithmetic

Jet = Callable[[arb_series], arb_series]


def _sigmoid(t: arb_series) -> arb_series:
    return 1 / (1 + (-t).exp())


def _gelu(t: arb_series) -> arb_series:
    return t * (t * (-1 / arb(2).sqrt())).erfc() / 2


#: f as a map of jets. exp(min(t,0)) is listed on t <= 0, where it is not constant.
PRIMITIVES: dict[str, Jet] = {
    "tanh": lambda t: 1 - 2 / (1 + (2 * t).exp()),
    "sigmoid": _sigmoid,
    "softplus": lambda t: (1 + t[0].exp()).log() + _sigmoid(t).integral(),  # t = t_0 + h: the integral is over h
    "gelu": _gelu,
    "silu": lambda t: t * _sigmoid(t),
    "sin": lambda t: t.sin(),
    "exp(min(t,0))": lambda t: t.exp(),
    "pseudo-huber'": lambda t: t * (1 + t * t).rsqrt(),
    "arctan": lambda t: t.atan(),
}


def jet(name: str, t: arb, order: int) -> list[arb]:
    """[f, f', ..., f^(order)] on the ball t. A trailing ' is one derivative more of the function without it."""
    shift = 0
    if name not in PRIMITIVES:
        name, shift = name.removesuffix("'"), 1
    before, ctx.cap = ctx.cap, order + shift + 1
    try:
        series = PRIMITIVES[name](arb_series([t, 1]))
        return [series[k + shift] * math.factorial(k + shift) for k in range(order + 1)]
    finally:
        ctx.cap = before


def ball(lo: float | arb, hi: float | arb) -> arb:
    return arb(lo).union(arb(hi))


def sup(g: Callable[[arb], tuple[arb, arb]], lo: float, hi: float, relative: float = 1e-12) -> arb:
    """Enclosure of sup |g| on [lo, hi]; g returns (g, g') on a ball. The widest enclosure allowed is ``relative``.

    Branch and bound: |g| <= min(|g(box)|, |g(middle)| + |g'(box)| radius) above, |g(middle)| below.
    """
    least = max(g(arb(x))[0].abs_lower() for x in (lo, hi))
    most = max(g(arb(x))[0].abs_upper() for x in (lo, hi))
    boxes: list[tuple[arb, int, float, float]] = []  # the largest upper bound first
    count, enough = 0, 1 + arb(relative) / 2

    def visit(a: float, b: float) -> None:
        nonlocal least, count
        middle, box = arb(0.5 * (a + b)), ball(a, b)
        centre, (value, slope) = g(middle)[0], g(box)
        least = least.max(centre.abs_lower())
        upper = value.abs_upper().min((abs(centre) + abs(slope) * (b - a) / 2).abs_upper())
        count += 1
        heapq.heappush(boxes, (-upper, count, a, b))

    for i in range(64):
        visit(lo + (hi - lo) * i / 64, lo + (hi - lo) * (i + 1) / 64)
    while -boxes[0][0] > least * enough:
        assert count < 20_000, "the enclosure does not converge"
        _, _, a, b = heapq.heappop(boxes)
        visit(a, 0.5 * (a + b))
        visit(0.5 * (a + b), b)
    return least.union(most.max(-boxes[0][0]))


@cache
def sup_of_derivative(name: str, order: int) -> arb:
    """Enclosure of sup |f^(order)| over |t| <= FAR; over t <= 0 for exp(min(t,0)), which is constant elsewhere."""
    return sup(lambda t: tuple(jet(name, t, order + 1)[order:]), -FAR, 0 if name == "exp(min(t,0))" else FAR)  # type: ignore[arg-type]


class Tail(NamedTuple):
    """(f - asymptote)^(k) = weight_k(T) * factor_k(1/T, q(T)), k = 1, 2, for every t = side * T with T >= FAR.

    The weights are positive and decrease beyond FAR; the factors are rational, also at 1/T = 0 and q = 0.
    """

    weights: tuple[Callable[[arb], arb], Callable[[arb], arb]]
    factors: Callable[[arb, arb], tuple[arb, arb]]


def _logistic(t: arb) -> arb:
    return 1 / (1 + t.exp())


def _phi(t: arb) -> arb:
    return (-t * t / 2).exp() / (2 * arb.pi()).sqrt()


def tail(name: str, side: int) -> Tail:
    """The tails, written by hand; e = side, v = 1/T.

    With q = sigmoid(-T):  sigmoid' = q (1 - q),  sigmoid'' = e q (1 - q) (2q - 1),
    sigmoid''' = q (1 - q) (1 - 6q + 6q^2),  silu^(k) = t sigmoid^(k) + k sigmoid^(k-1).
    With q = sigmoid(-2T):  tanh t = 2 sigmoid(2t) - 1.
    With q = M/T, Mills' ratio M = Phi(-T)/phi(T):  gelu' = slope + e phi (T - M),  gelu'' = phi (2 - T^2),
    gelu''' = e phi (T^3 - 4T).
    """
    e = side
    once, twice, half = (_logistic, _logistic), (lambda t: _logistic(2 * t),) * 2, (lambda t: t * _logistic(t),) * 2
    table: dict[str, Tail] = {
        "tanh": Tail(twice, lambda v, q: (4 * (1 - q), e * 8 * (1 - q) * (2 * q - 1))),
        "tanh'": Tail(twice, lambda v, q: (e * 8 * (1 - q) * (2 * q - 1), 16 * (1 - q) * (1 - 6 * q + 6 * q * q))),
        "sigmoid": Tail(once, lambda v, q: (1 - q, e * (1 - q) * (2 * q - 1))),
        "sigmoid'": Tail(once, lambda v, q: (e * (1 - q) * (2 * q - 1), (1 - q) * (1 - 6 * q + 6 * q * q))),
        "softplus": Tail(once, lambda v, q: (arb(-e), 1 - q)),
        "silu": Tail(half, lambda v, q: (e * (1 - q - v), (1 - q) * (2 * v + 2 * q - 1))),
        "silu'": Tail(
            half,
            lambda v, q: ((1 - q) * (2 * v + 2 * q - 1), e * (1 - q) * (3 * v * (2 * q - 1) + 1 - 6 * q + 6 * q * q)),
        ),
        "gelu": Tail((lambda t: t * _phi(t), lambda t: t**2 * _phi(t)), lambda v, q: (e * (1 - q), 2 * v * v - 1)),
        "gelu'": Tail(
            (lambda t: t**2 * _phi(t), lambda t: t**3 * _phi(t)), lambda v, q: (2 * v * v - 1, e * (1 - 4 * v * v))
        ),
        "exp(min(t,0))": Tail((lambda t: (-t).exp(),) * 2, lambda v, q: (arb(1), arb(1))),
        "pseudo-huber'": Tail(
            (lambda t: t**-3, lambda t: t**-4),
            lambda v, q: ((1 + v * v).rsqrt() ** 3, -3 * e * (1 + v * v).rsqrt() ** 5),
        ),
    }
    return table[name]


def small(name: str, t: arb) -> arb:
    """q at T = t."""
    if name.startswith("gelu"):
        return (t / arb(2).sqrt()).erfc() / 2 / _phi(t) / t
    return _logistic(2 * t if name.startswith("tanh") else t)


def tail_factors(name: str, side: int) -> tuple[arb, arb]:
    """The factors on the whole tail, infinity included: 0 < v <= 1/FAR, and q < v^2 (Mills) or q < sigmoid(-FAR)."""
    largest = arb(FAR) ** -2 if name.startswith("gelu") else _logistic(arb(FAR))
    return tail(name, side).factors(ball(0, 1 / arb(FAR)), ball(0, largest))


SMOOTH: dict[str, Function] = {
    f.name: f
    for f in (
        library.TANH,
        library.DTANH,
        library.SIGMOID,
        library.DSIGMOID,
        library.SOFTPLUS,
        library.GELU,
        library.DGELU,
        library.SILU,
        library.DSILU,
        library.SIN,
        library.COS,
        library.EXP_CAPPED,
        library.PSEUDO_HUBER_U,
    )
}
ASYMPTOTIC = [name for name, f in SMOOTH.items() if not f.needs_domain]
#: declared as upper bounds, not as the value (see the module docstring of activations)
BOUNDS_ONLY = {("gelu'", 2), ("silu'", 2)}


def sides(name: str) -> Iterator[int]:
    yield -1
    if name != "exp(min(t,0))":
        yield 1


def asymptote(f: Function, side: int) -> Asymptote:
    found = f.left if side < 0 else f.right
    assert found is not None
    return found


def points(seed: int = 0, spread: float = 8.0, count: int = 2000) -> torch.Tensor:
    t = spread * torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return torch.cat([t, torch.linspace(-3, 3, 61, dtype=F64), torch.tensor([-700.0, -40.0, 40.0, 700.0], dtype=F64)])


# ------------------------------------------------------------------------------------------------- facts of smooth f


@pytest.mark.parametrize("name", SMOOTH)
def test_values_are_the_ball_values(name: str) -> None:
    """f in float64 is within 8 units in the last place of max(1, |f|) of the textbook definition: what proofs trust."""
    t = points(count=200)
    for x, y in zip(t.tolist(), SMOOTH[name](t).tolist(), strict=True):
        true = jet(name, arb(min(x, 0.0) if name == "exp(min(t,0))" else x), 0)[0]
        assert abs(true - y).upper() <= 8 * 2.0**-53 * max(1.0, abs(y)), x


@pytest.mark.parametrize("name", ASYMPTOTIC)
def test_tail_table_is_the_function(name: str) -> None:
    """The hand-written factorisation of the tails agrees with the jets to 30 digits, and its weights decrease."""
    with ctx.workprec(1024):  # gelu - t at 33 is 2^-785
        for side in sides(name):
            weights, factors = tail(name, side)
            for x in (arb(FAR), arb(FAR) + 0.5, arb(20), arb(33)):
                _, first, second = jet(name, side * x, 2)
                first -= asymptote(SMOOTH[name], side).slope
                products = [w(x) * factor for w, factor in zip(weights, factors(1 / x, small(name, x)), strict=True)]
                for product, derivative in zip(products, (first, second), strict=True):
                    assert abs(product / derivative - 1) < 1e-30
                assert all(w(x) > w(x + 1) for w in weights)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", SMOOTH)
def test_declared_sups_are_sups(name: str, order: int) -> None:
    """bound, lipschitz and curvature are >= sup |f|, |f'|, |f''|, and within 1% of it unless they are mere bounds.

    Enclosures have a relative width of 1e-12, and an attained sup cannot be told from an equal declaration: so much
    is allowed below.
    """
    f = SMOOTH[name]
    declared = (f.bound, f.lipschitz, f.curvature)[order]
    true = sup_of_derivative(name, order)
    if f.needs_domain:  # sin and cos: [-FAR, FAR] holds two periods
        assert true.contains(1) or abs(true - 1) < 1e-12
    elif order == 0:
        growing = [side for side in (-1, 1) if asymptote(f, side).slope]
        assert math.isinf(declared) == bool(growing)
        if growing:
            return
        true = true.max(arb(max(abs(asymptote(f, side).intercept) for side in (-1, 1))))
    else:
        for side in sides(name):  # beyond FAR: |derivative| <= |slope| + size of the weight * |factor|
            slope = abs(asymptote(f, side).slope) if order == 1 else 0.0
            beyond = tail(name, side).weights[order - 1](arb(FAR)) * abs(tail_factors(name, side)[order - 1])
            assert (slope + beyond).upper() <= declared or tail_approaches_from_below(name, side)
            true = true.max(arb(slope))
    assert declared >= true.upper() * (1 - 1e-11)
    if (name, order) not in BOUNDS_ONLY:
        assert declared <= true.lower() * 1.01


def tail_approaches_from_below(name: str, side: int) -> bool:
    """f' tends to the slope from below in absolute value, so the tail adds nothing to sup |f'|."""
    slope, first = asymptote(SMOOTH[name], side).slope, tail_factors(name, side)[0]
    return bool(first < 0) if slope > 0 else bool(first > 0)


@pytest.mark.parametrize("name", ASYMPTOTIC)
def test_asymptotes(name: str) -> None:
    """f - (slope t + intercept) is monotone from ``beyond`` outwards and tends to 0, on both sides."""
    f = SMOOTH[name]
    for side in sides(name):
        asym = asymptote(f, side)
        sign = monotone(name, asym.slope, *sorted((asym.beyond, side * FAR)))
        assert sign * tail_factors(name, side)[0] > 0, "the tail goes on in the same direction"
        for x in (50, 100):  # monotone, so the limit is 0 if these are small
            rest = jet(name, arb(side * x), 0)[0] - asym.slope * side * x - asym.intercept
            assert abs(rest) < (arb(x) ** -2 if name == "pseudo-huber'" else (-arb(x) / 2).exp())
    if name == "exp(min(t,0))":
        assert (asymptote(f, 1).slope, asymptote(f, 1).intercept, asymptote(f, 1).beyond) == (0, 1, 0)


def monotone(name: str, slope: float, lo: float, hi: float) -> int:
    """The sign of f' - slope on [lo, hi], proven box by box; f' may vanish at an end if f'' has one sign there."""
    signs, todo = set(), [(lo + (hi - lo) * i / 64, lo + (hi - lo) * (i + 1) / 64) for i in range(64)]
    while todo:
        a, b = todo.pop()
        _, first, second = jet(name, ball(a, b), 2)
        first -= slope
        if first > 0 or first < 0:
            signs.add(1 if first > 0 else -1)
        elif second > 0 or second < 0:
            ends = [jet(name, arb(x), 1)[1] - slope for x in (a, b)]
            signs |= {1 if end > 0 else -1 for end in ends if end.abs_upper() > arb(2) ** -200}
        else:
            assert b - a > 1e-6, f"no sign on [{a}, {b}]"
            todo += [(a, 0.5 * (a + b)), (0.5 * (a + b), b)]
    assert len(signs) == 1, f"f' - {slope} changes sign on [{lo}, {hi}]"
    return signs.pop()


@pytest.mark.parametrize("name", [name for name, a in ACTIVATIONS.items() if a.r.name in SMOOTH])
def test_closed_range_of_smooth_activations(name: str) -> None:
    """closed_range is the closure of r(R): the ends are attained, or are limits, to the last bit."""
    activation = ACTIVATIONS[name]
    lo, hi = activation.closed_range
    if activation.r.needs_domain:
        assert (lo, hi) == (-1, 1)
        assert jet(name, arb.pi() / 2, 0)[0].overlaps(arb(1))
        return
    limits = [(-math.inf if side < 0 else math.inf) if asymptote(activation.r, side).slope else
              asymptote(activation.r, side).intercept for side in (-1, 1)]  # fmt: skip
    # |r - c| for a constant c above r is largest where r is least
    shift = 40
    least = shift - sup(lambda t: (jet(name, t, 1)[0] - shift, jet(name, t, 1)[1]), -FAR, FAR, 1e-19)
    assert hi == limits[1]
    expected = least if least < limits[0] else arb(limits[0])
    assert abs(expected - lo).upper() <= 2.0**-53 * max(1.0, abs(lo))


# ---------------------------------------------------------------------------------------------- kinks, jumps, values


def test_breaks_are_where_the_derivative_jumps() -> None:
    """exp(min(t,0)) has left derivative 1 and right derivative 0 at its one break, and no other; smooth f has none."""
    assert {name: f.breaks for name, f in SMOOTH.items() if f.breaks} == {"exp(min(t,0))": (0.0,)}
    left = jet("exp(min(t,0))", arb(0), 1)
    assert left[0] == 1
    assert left[1] == 1
    assert (library.EXP_CAPPED(torch.linspace(0, 50, 101, dtype=F64)) == 1).all()


@pytest.mark.parametrize("f", [library.RELU, library.LEAKY, library.RELU6, IDENTITY, NEGATION, clip_residual(1.5)])
def test_piecewise_linear_facts(f: Function) -> None:
    """Breaks are the knots, lipschitz the largest |slope|, bound the sup, curvature 0; between breaks f is affine."""
    assert f.exact is not None
    assert f.breaks == f.exact.knots
    assert f.curvature == 0
    assert f.lipschitz == max(abs(s) for s in f.exact.slopes)
    ends = [-1e9, *f.breaks, 1e9]
    peak = max(abs(float(f(torch.tensor(x, dtype=F64)))) for x in ends)
    assert f.bound == (peak if peak < 1e6 else math.inf)
    for a, b in pairwise([-10.0, *f.breaks, 10.0]):
        t = torch.linspace(a, b, 33, dtype=F64)
        chord = torch.linspace(float(f(t[0])), float(f(t[-1])), 33, dtype=F64)
        torch.testing.assert_close(f(t), chord, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "relu6"])
def test_jumps_of_step_derivatives(name: str) -> None:
    """r' is constant between its jumps, which are as high as declared; at a jump it has the value of the side that
    stays exact.
    """
    f, r = ACTIVATIONS[name].dr, ACTIVATIONS[name].r
    assert tuple(sorted(position for position, _, _ in f.jumps)) == r.breaks
    for position, height, side in f.jumps:
        at, below, above = (float(f(torch.tensor(x, dtype=F64))) for x in (position, position - 1e-9, position + 1e-9))
        assert above - below == pytest.approx(height, abs=1e-15)
        assert at == (below if side > 0 else above)
    edges = [-50.0, *r.breaks, 50.0]
    for a, b in pairwise(edges):
        inside = f(torch.linspace(a, b, 101, dtype=F64)[1:-1])
        assert (inside == inside[0]).all()
    assert f.bound == max(float(f(torch.tensor(x, dtype=F64)).abs()) for x in (-1.0, 1.0, 7.0))


TORCH_OWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "sin": torch.sin,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_r_is_torchs_own(name: str) -> None:
    """r is torch.nn.functional's function of that name (defaults: exact gelu, slope 0.01).

    A few ulp of max(1, |t|); F.softplus is t beyond its threshold 20, where the rest is exp(-20) = 2e-9.
    """
    t = points()
    tolerance = 1e-15 * t.abs().clamp(min=1)
    if name == "softplus":
        tolerance = torch.where(t > 20, torch.exp(-t) + tolerance, tolerance)
    assert ((ACTIVATIONS[name].r(t) - TORCH_OWN[name](t)).abs() <= tolerance).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dr_is_the_derivative_of_torchs_own(name: str) -> None:
    """r' equals autograd of torch's own r, away from the jumps of r', to 1e-12."""
    t = points()
    for position, _, _ in ACTIVATIONS[name].dr.jumps:
        t = t[t != position]
    t.requires_grad_()
    (expected,) = torch.autograd.grad(TORCH_OWN[name](t).sum(), t)
    tolerance = torch.full_like(t, 1e-12).detach()
    if name == "softplus":  # autograd knows nothing of the rest beyond the threshold
        tolerance = torch.where(t > 20, torch.exp(-t) + 1e-12, 1e-12).detach()
    assert ((ACTIVATIONS[name].dr(t.detach()) - expected).abs() <= tolerance).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dr_is_the_derivative_of_r(name: str) -> None:
    """r' equals autograd of the library's own r."""
    t = points(seed=1)
    for position, _, _ in ACTIVATIONS[name].dr.jumps:
        t = t[t != position]
    t.requires_grad_()
    (expected,) = torch.autograd.grad(ACTIVATIONS[name].r(t).sum(), t)
    torch.testing.assert_close(ACTIVATIONS[name].dr(t.detach()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_properties(name: str) -> None:
    activation = ACTIVATIONS[name]
    assert activation.name == name
    assert activation.r.name == name
    assert activation.smooth == (name not in ("relu", "leaky_relu", "relu6"))
    assert activation.vanishes_at_zero == (name not in ("sigmoid", "softplus"))


@pytest.mark.parametrize("name", [*SMOOTH, "relu", "leaky_relu", "relu6"])
def test_magnitude_bounds_the_function(name: str) -> None:
    """|f(t)| <= magnitude(radius) for |t| <= radius, up to the rounding of f."""
    f = SMOOTH[name] if name in SMOOTH else ACTIVATIONS[name].r
    for radius in (0.0, 0.3, 1.0, 5.0, 100.0):
        assert float(f(torch.linspace(-radius, radius, 1001, dtype=F64)).abs().max()) <= f.magnitude(radius) * (
            1 + 2**-51
        )


# ------------------------------------------------------------------------------------------------------------ losses


def u_of(name: str, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """dl/dt the way the programs put it together from the loss's functions."""
    loss = LOSSES[name]
    if isinstance(loss, ResidualLoss):
        return loss.scale * loss.u(t - y)
    if isinstance(loss, LogisticLoss):
        return loss.sigmoid(t) - y
    assert isinstance(loss, SoftmaxLoss)
    tree = t[..., 0]
    for k in range(1, t.shape[-1]):
        tree = t[..., k] + loss.softplus(tree - t[..., k])
    return loss.exp(t - tree[..., None]) - y


@pytest.mark.parametrize("name", LOSSES)
def test_u_is_the_derivative_of_the_loss(name: str) -> None:
    """u, assembled from the loss's functions, is autograd's dl/dt to 1e-12."""
    generator = torch.Generator().manual_seed(3)
    t = 5 * torch.randn(500, 4, generator=generator, dtype=F64)
    if name in ("logistic", "softmax"):
        y = F.one_hot(torch.randint(4, (500,), generator=generator), 4).to(F64)
    else:
        y = torch.randn(500, 4, generator=generator, dtype=F64)
    t.requires_grad_()
    value = LOSSES[name].value(t, y)
    assert value.shape == (500,)
    (expected,) = torch.autograd.grad(value.sum(), t)
    torch.testing.assert_close(u_of(name, t.detach(), y), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_values_are_torchs_own(name: str) -> None:
    """Loss.value is the named loss of torch where torch has it, else its textbook formula; summed over outputs."""
    generator = torch.Generator().manual_seed(4)
    t = 3 * torch.randn(300, 3, generator=generator, dtype=F64)
    y = torch.randn(300, 3, generator=generator, dtype=F64)
    labels = torch.randint(3, (300,), generator=generator)
    one_hot = F.one_hot(labels, 3).to(F64)
    value = LOSSES[name].value
    if name == "squared":
        got, expected = value(t, y), F.mse_loss(t, y, reduction="none").sum(-1)
    elif name == "log-cosh":
        got, expected = value(t, y), torch.log(torch.cosh(t - y)).sum(-1)
    elif name == "pseudo-huber":
        got, expected = value(t, y), (torch.hypot(torch.ones_like(t), t - y) - 1).sum(-1)
    elif name == "logistic":
        got = value(t, one_hot)
        expected = F.binary_cross_entropy_with_logits(t, one_hot, reduction="none").sum(-1)
    else:
        got, expected = value(t, one_hot), F.cross_entropy(t, labels, reduction="none")
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)
