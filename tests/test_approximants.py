"""Piecewise-linear approximants: their number of pieces against the theory, their errors against ball arithmetic."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, fmpq
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions import ACTIVATIONS, Asymptote, Function, PiecewiseLinear, approximate, approximate_jointly
from innergrad.functions import scalar as library
from innergrad.functions.adam import ADAM
from innergrad.functions.approximants import APART, RAMP, is_ramped, prove
from innergrad.functions.derived import within
from innergrad.functions.scalar import hinge_sum
from innergrad.interpret import tables
from test_functions import SMOOTH, asymptote, ball, jet

F64 = torch.float64
EDGE = 60.0
#: r and r' of every smooth activation, and the functions of the losses; those that have asymptotes
WHOLE_LINE = [name for name, f in SMOOTH.items() if not f.needs_domain]
COUNTED = ["tanh", "sigmoid", "softplus", "gelu", "silu"]
ARCTAN = Function(
    "arctan",
    torch.arctan,
    curvature=3 * math.sqrt(3) / 8,
    left=Asymptote(0, -math.pi / 2, 0),
    right=Asymptote(0, math.pi / 2, 0),
    lipschitz=1,
    bound=math.pi / 2,
)


# ------------------------------------------------------------------------------------------------- ball verification


def rational(x: float) -> fmpq:
    return fmpq(*float(x).as_integer_ratio())


def exact_pieces(f: PiecewiseLinear, lo: float, hi: float) -> list[tuple[float, float, fmpq, fmpq, fmpq]]:
    """Pieces (a, b, x, y, slope) of f on [lo, hi], f(t) = y + slope (t - x) exactly, from knots, slopes, anchor and
    value alone.
    """
    knots, slopes = [rational(k) for k in f.knots], [rational(s) for s in f.slopes]
    anchor, value = rational(f.anchor), rational(f.value)
    centre = sum(k < anchor for k in knots)
    points = {centre: (anchor, value)}
    for i in range(centre, len(knots)):
        x, y = points[i]
        points[i + 1] = (knots[i], y + slopes[i] * (knots[i] - x))
    for i in range(centre - 1, -1, -1):
        x, y = points[i + 1]
        points[i] = (knots[i], y + slopes[i + 1] * (knots[i] - x))
    edges = [-math.inf, *f.knots, math.inf]
    return [
        (max(a, lo), min(b, hi), *points[i], slopes[i])
        for i, (a, b) in enumerate(pairwise(edges))
        if max(a, lo) < min(b, hi)
    ]


def largest_error(name: str, f: PiecewiseLinear, lo: float, hi: float, allowed: float) -> arb:
    """A proven upper bound on |f - f^| on [lo, hi]: every box has |e(m)| + |e'(m)| r + |e''(box)| r^2 / 2 <= allowed.

    Boxes are bisected until that holds, so the test fails (on a box too small) if the true error exceeds ``allowed``.
    """
    worst = arb(0)
    for start, end, x, y, slope in exact_pieces(f, lo, hi):
        edges = np.linspace(start, end, math.ceil(end - start) + 1).tolist()  # exp of a wide ball is all of R
        todo = list(pairwise([start, *edges[1:-1], end]))
        while todo:
            a, b = todo.pop()
            assert b - a > 1e-9, f"|f - f^| <= {allowed} cannot be proven near {a!r}"
            middle = 0.5 * (a + b)
            radius = (arb(b) - middle).max(middle - arb(a))
            if name == "exp(min(t,0))" and a >= 0:  # its break, 0, is a knot
                value, first, second = arb(1), arb(0), arb(0)
            else:
                value, first, second = *jet(name, arb(middle), 1), jet(name, ball(a, b), 2)[2]
            error = value - (arb(y) + arb(slope) * (middle - arb(x)))
            bound = (abs(error) + abs(first - arb(slope)) * radius + abs(second) * radius * radius / 2).upper()
            if bound <= allowed:
                worst = worst.max(bound)
            else:
                todo += [(a, middle), (middle, b)]
    return worst


def check(name: str, approximant: PiecewiseLinear, epsilon: float, edge: float = EDGE) -> None:
    """The whole claim: proven error <= epsilon, and it bounds the true error on [-edge, edge]."""
    assert 0 < approximant.error <= epsilon
    assert largest_error(name, approximant, -edge, edge, approximant.error) <= epsilon


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3])
@pytest.mark.parametrize("name", WHOLE_LINE)
def test_error_is_enclosed_by_balls(name: str, epsilon: float) -> None:
    """sup |f - f^| on [-60, 60], enclosed by balls with f^ in rational arithmetic, is at most the proven error."""
    check(name, approximate(SMOOTH[name], epsilon), epsilon)


@pytest.mark.parametrize("name", ["tanh", "gelu", "silu'"])
def test_error_is_enclosed_by_balls_at_a_small_epsilon(name: str) -> None:
    check(name, approximate(SMOOTH[name], 1e-4), 1e-4)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("tanh'", 10**-2.35), ("sigmoid'", 10**-2.8), ("silu'", 10**-1.25), ("silu'", 0.1), ("gelu'", 0.1),
     ("exp(min(t,0))", 10**-3.6)],
)  # fmt: skip
def test_long_last_links(name: str, epsilon: float) -> None:
    """Where the link before the ray is hundreds long, it still has to pass the bend inside the tube."""
    check(name, approximate(SMOOTH[name], epsilon), epsilon)


@settings(max_examples=6, deadline=None)
@given(name=st.sampled_from(WHOLE_LINE), exponent=st.floats(-4, -1))
def test_error_is_enclosed_by_balls_at_any_epsilon(name: str, exponent: float) -> None:
    epsilon = 10.0**exponent
    check(name, approximate(SMOOTH[name], epsilon), epsilon)


@pytest.mark.parametrize("name", ["tanh", "softplus", "gelu'", "pseudo-huber'"])
def test_the_table_in_float64_is_within_the_error(name: str) -> None:
    """Between the outer knots, what float64 computes is within the proven error of f: rounding is part of it."""
    approximant = approximate(SMOOTH[name], 1e-4)
    knots = torch.tensor(approximant.knots, dtype=F64)
    part = torch.rand(len(knots) - 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    t = torch.cat([knots, knots[:-1] + part * knots.diff()])
    for x, y in zip(t.tolist(), approximant(t).tolist(), strict=True):
        assert abs(jet(name, arb(x), 0)[0] - arb(y)) <= approximant.error


def test_the_ball_check_can_fail() -> None:
    """The enclosure notices an error of 1% of epsilon, and a knot that moved."""
    f = approximate(library.TANH, 1e-2)
    with pytest.raises(AssertionError, match="cannot be proven"):
        largest_error("tanh", f, -EDGE, EDGE, 0.99e-2)
    moved = PiecewiseLinear(tuple(k + 1e-3 for k in f.knots), f.slopes, f.anchor, f.value)
    with pytest.raises(AssertionError, match="cannot be proven"):
        largest_error("tanh", moved, -EDGE, EDGE, 1e-2)


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4])
@pytest.mark.parametrize("name", WHOLE_LINE)
def test_tails_stay_in_the_tube(name: str, epsilon: float) -> None:
    """The rays are parallel to the asymptotes, within epsilon of them, and begin where they are monotone: so the error
    at infinity is at most epsilon, which evaluation in float64 up to |t| = 1e8 confirms.
    """
    f = SMOOTH[name]
    approximant = approximate(f, epsilon)
    assert approximant.domain == (-math.inf, math.inf)
    pieces = exact_pieces(approximant, -1e300, 1e300)
    for side, (a, b, x, y, slope) in ((-1, pieces[0]), (1, pieces[-1])):
        asym = asymptote(f, side)
        assert slope == rational(asym.slope)
        assert abs(arb(y - slope * x) - asym.intercept) <= epsilon
        assert side * ((b if side < 0 else a) - asym.beyond) >= 0
    t = torch.logspace(1, 8, 2000, dtype=F64)
    for points in (t, -t):
        error = (approximant(points) - f(points)).abs()
        assert (error <= epsilon + 1e-15 * t).all()  # 1e-15 t: a few ulp of f itself


# ------------------------------------------------------------------------------------------------- number of pieces


def roots(name: str, lo: float, hi: float) -> Iterator[float]:
    """Sign changes of f'': the kinks of sqrt |f''|."""
    grid = np.linspace(lo, hi, 161)
    values = [float(jet(name, arb(float(x)), 2)[2].mid()) for x in grid]
    for (a, b), (u, v) in zip(pairwise(grid), pairwise(values), strict=True):
        if u == 0:
            yield float(a)
        elif u * v < 0:
            while b - a > 1e-12:
                m = 0.5 * (a + b)
                a, b = (m, b) if float(jet(name, arb(float(m)), 2)[2].mid()) * u > 0 else (a, m)
            yield float(a)


@cache
def root_curvature(name: str) -> float:
    """int sqrt |f''| over the line; beyond 60 it is below 1e-11 for every function counted."""
    edges = [-60.0, *roots(name, -8, 8), 60.0]

    def integrand(t: float) -> float:
        return math.sqrt(abs(float(jet(name, arb(t), 2)[2].mid())))

    return sum(quad(integrand, a, b, limit=200, epsabs=1e-6)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("name", COUNTED)
def test_number_of_pieces(name: str, epsilon: float) -> None:
    """Pieces are within 2 of 1/4 int sqrt|f''| epsilon^-1/2, the best a free-knot approximant can do."""
    best = root_curvature(name) / 4 / math.sqrt(epsilon)
    assert abs(approximate(SMOOTH[name], epsilon).pieces - best) <= 2


def test_root_curvature_of_softplus_is_pi() -> None:
    """The integral itself, where it is known: int sqrt(sigmoid') = int sech(t/2)/2 = pi."""
    assert root_curvature("softplus") == pytest.approx(math.pi, abs=1e-5)


# ------------------------------------------------------------------------------------------------- both forms of f^


def forms(f: Function, epsilon: float) -> PiecewiseLinear:
    return approximate(f, epsilon, radius=10.0 if f.needs_domain else None)


@pytest.mark.parametrize("epsilon", [0.05, 1e-2, 1e-3])
@pytest.mark.parametrize("name", SMOOTH)
def test_value_at_zero_is_exact(name: str, epsilon: float) -> None:
    """f^(0) == f(0), bit for bit, as a table and as a sum of ReLUs, in float64."""
    f, zero = SMOOTH[name], torch.zeros(1, dtype=F64)
    approximant = forms(f, epsilon)
    assert (approximant(zero) == f(zero)).all()
    assert (hinge_sum(approximant, zero) == f(zero)).all()


EVERY = [*SMOOTH.values(), *(ACTIVATIONS[name].r for name in ("relu", "leaky_relu", "relu6"))]


@pytest.mark.parametrize("f", EVERY, ids=lambda f: f.name)
def test_table_and_hinges_are_one_function(f: Function) -> None:
    """The table form, the hinge form and exact rational evaluation agree to 1e-13 (1 + |t|)."""
    approximant = forms(f, 1e-3)
    lo, hi = max(approximant.domain[0], -200.0), min(approximant.domain[1], 200.0)
    knots = torch.tensor(approximant.knots, dtype=F64)
    t = torch.cat([torch.linspace(lo, hi, 4001, dtype=F64), knots, 0.5 * (knots[1:] + knots[:-1])])
    tolerance = 1e-13 * (1 + t.abs())
    assert ((approximant(t) - hinge_sum(approximant, t)).abs() <= tolerance).all()
    for a, b, x, y, slope in exact_pieces(approximant, lo, hi):
        for point in (a, 0.5 * (a + b), b):
            exact = float(arb(y + slope * (rational(point) - x)).mid())
            assert abs(float(approximant(torch.tensor(point, dtype=F64))) - exact) <= 1e-13 * (1 + abs(point))


@pytest.mark.parametrize("f", [*EVERY, library.DRELU, library.DLEAKY, library.DRELU6], ids=lambda f: f.name)
def test_hinges_are_normalised(f: Function) -> None:
    """Definition 4 of the paper: |a| + |b| <= 1; a is 0 or +- a power of two, so that the scaling is exact."""
    hinges = forms(f, 1e-2).hinges
    assert hinges.shape[1] == 3
    for a, b, c in hinges:
        assert abs(a) + abs(b) <= 1
        assert a == 0 or math.frexp(abs(a))[0] == 0.5
        assert c != 0
    constants, linear = hinges[hinges[:, 0] == 0], hinges[hinges[:, 0] != 0]
    assert len(constants) <= 1
    assert len(linear) <= forms(f, 1e-2).pieces + 1  # a jump per knot, and the two sides of the anchor


def test_piecewise_linear_functions_are_their_own_approximants() -> None:
    for name in ("relu", "leaky_relu", "relu6"):
        r = ACTIVATIONS[name].r
        assert approximate(r, 1e-2) is r.exact
        assert approximate(r, 1e-2).error == 0


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_piecewise_linear_function_is_its_hinges(data: st.DataObject) -> None:
    """Table, hinges and rational evaluation agree for arbitrary knots, slopes and anchors; exactly at the anchor."""
    numbers = st.integers(-64, 64).map(lambda i: i / 8)
    knots = tuple(sorted(data.draw(st.sets(numbers, max_size=6))))
    slopes = tuple(data.draw(st.lists(numbers, min_size=len(knots) + 1, max_size=len(knots) + 1)))
    anchor = data.draw(st.one_of(numbers, st.sampled_from(knots)) if knots else numbers)
    f = PiecewiseLinear(knots, slopes, anchor, data.draw(numbers))
    at = torch.tensor([anchor], dtype=F64)
    assert float(f(at)) == f.value == float(hinge_sum(f, at))
    for a, b, x, y, slope in exact_pieces(f, -20, 20):
        for point in (a, 0.5 * (a + b), b):  # dyadic numbers: no rounding anywhere
            exact = y + slope * (rational(point) - x)
            t = torch.tensor([point], dtype=F64)
            assert rational(f(t)) == exact
            assert rational(hinge_sum(f, t)) == exact


# ------------------------------------------------------------------------------------------------------ joint knots


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3])
@pytest.mark.parametrize("name", COUNTED)
def test_joint_knots(name: str, epsilon: float) -> None:
    """r and r' on one set of knots: each within epsilon (by balls), in no more pieces than both apart."""
    activation = ACTIVATIONS[name]
    both = (activation.r, activation.dr)
    joint = approximate_jointly(both, epsilon)
    assert joint[0].knots == joint[1].knots
    zero = torch.zeros(1, dtype=F64)
    for f, approximant in zip(both, joint, strict=True):
        check(f.name, approximant, epsilon)
        assert (approximant(zero) == f(zero)).all()
        assert (hinge_sum(approximant, zero) == f(zero)).all()
    assert joint[0].pieces <= sum(approximate(f, epsilon).pieces for f in both)


# ------------------------------------------------------------------------------------ bounded domains, own functions


@pytest.mark.parametrize("name", ["sin", "sin'"])
def test_functions_without_asymptotes_need_a_radius(name: str) -> None:
    with pytest.raises(InputError, match="radius"):
        approximate(SMOOTH[name], 1e-2)
    with pytest.raises(InputError, match="radius"):
        approximate_jointly((library.SIN, library.COS), 1e-2)


@pytest.mark.parametrize("radius", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("name", ["sin", "sin'"])
def test_bounded_domains_are_proven_by_balls(name: str, radius: float) -> None:
    f = approximate(SMOOTH[name], 1e-3, radius)
    assert f.domain == (-radius, radius)
    assert all(-radius < knot < radius for knot in f.knots)
    check(name, f, 1e-3, edge=radius)


def test_no_domain_is_larger_than_what_is_proven_or_declared() -> None:
    """The radius that is given, and the one that each function declares: the smaller counts."""
    near = within(library.SIN, 3.0)
    assert approximate(near, 1e-2).domain == approximate(near, 1e-2, 5.0).domain == (-3.0, 3.0)
    assert approximate(near, 1e-2, 2.0).domain == (-2.0, 2.0)
    assert approximate(within(library.TANH, 2.0), 1e-2).domain == (-2.0, 2.0)
    assert approximate(within(library.DRELU, 2.0), 1e-2).domain == (-2.0, 2.0)
    assert approximate(within(ADAM, 2.0), 1e-2).domain == (approximate(ADAM, 1e-2).domain[0], 2.0)
    joint = approximate_jointly((within(library.TANH, 20.0), near, library.COS), 1e-2, 8.0)
    assert [f.domain for f in joint] == [(-8.0, 8.0), (-3.0, 3.0), (-8.0, 8.0)]
    t = torch.linspace(-8.0, 8.0, 10_001, dtype=F64)
    assert float((joint[0](t) - torch.tanh(t)).abs().max()) <= joint[0].error <= 1e-2


def test_bounded_domains_know_what_is_outside() -> None:
    f = approximate(library.SIN, 1e-2, 3.0)
    assert f.outside(torch.tensor([-3.0, 0.0, 3.0], dtype=F64)) is None
    assert f.outside(torch.tensor([0.0, 3.5], dtype=F64)) == 3.5
    assert f.outside(torch.tensor([-4.0, 3.5], dtype=F64)) == -4.0
    assert f.outside(torch.empty(0, dtype=F64)) is None
    assert approximate(library.TANH, 1e-2).outside(torch.tensor([1e30], dtype=F64)) is None


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3])
def test_own_functions_get_proven_approximants(epsilon: float) -> None:
    """arctan, which the library does not know, from its facts alone; beyond 60 it is monotone and the rays are flat."""
    f = approximate(ARCTAN, epsilon)
    check("arctan", f, epsilon, edge=max(EDGE, f.knots[-1] + 1, 1 - f.knots[0]))
    assert f.slopes[0] == f.slopes[-1] == 0
    far = torch.logspace(1, 8, 200, dtype=F64)
    assert ((f(far) - torch.arctan(far)).abs() <= epsilon).all()


JOINTS = {  # torch's function, and sup of its second derivative on the right half-line
    "tanh": (torch.tanh, 0.77),
    "sigmoid": (torch.sigmoid, 0.097),
    "sin": (torch.sin, 1.0),
    "line": (lambda u: 0.5 * u, 0.0),
    "falling": (lambda u: torch.exp(-u), 1.0),
}


def joined(parts: list[tuple[str, float, float, bool, float]], name: str) -> Function:
    """0.2 t and a sum of c f(a |t - b|), each on one side of its break b: smooth pieces joined at the breaks."""

    def value(t: torch.Tensor) -> torch.Tensor:
        total = 0.2 * t
        for shape, b, a, right, c in parts:
            total = total + c * JOINTS[shape][0](torch.relu(a * (t - b) if right else a * (b - t)))
        return total

    curvature = sum(abs(c) * a * a * JOINTS[shape][1] for shape, _, a, _, c in parts)
    return Function(
        name, value, curvature=1.001 * curvature + 1e-3, breaks=tuple(sorted({b for _, b, _, _, _ in parts}))
    )


@settings(max_examples=4, deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(sorted(JOINTS)),
            st.one_of(st.floats(-1.5, 1.5), st.floats(-1e-4, 1e-4), st.sampled_from([-1.0, 0.0, 0.3, 1.0])),
            st.sampled_from([0.5, 1.0, 4.0]),
            st.booleans(),
            st.floats(-2, 2),
        ),
        min_size=1,
        max_size=3,
    ),
    exponent=st.floats(-6, -2),
)
def test_breaks_anywhere(parts: list[tuple[str, float, float, bool, float]], exponent: float) -> None:
    """Smooth pieces joined at breaks of either sign: proven to be within epsilon, and so on a grid dense at breaks."""
    f, epsilon = joined(parts, f"joined {parts}"), 10.0**exponent
    approximant = approximate(f, epsilon, 2.0)
    assert approximant.error <= epsilon
    near = [b + torch.linspace(-1e-3, 1e-3, 2001, dtype=F64) for b in f.breaks]
    t = torch.cat([torch.linspace(-2.0, 2.0, 100_001, dtype=F64), *near]).clamp(-2.0, 2.0)
    assert float((approximant(t) - f(t)).abs().max()) <= approximant.error


@pytest.mark.parametrize("place", [1.0, -1.0, 0.3])
@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-4])
def test_a_break_where_exp_becomes_constant(place: float, epsilon: float) -> None:
    """exp(min(t, place)): the last link goes from a convex stretch over the kink to the ray."""
    largest = math.exp(place)
    f = Function(
        f"exp(min(t, {place}))",
        lambda t: torch.exp(torch.clamp(t, max=place)),
        curvature=largest,
        left=Asymptote(0, 0, min(0.0, place)),
        right=Asymptote(0, largest, place),
        breaks=(place,),
    )
    approximant = approximate(f, epsilon)
    assert approximant.error <= epsilon
    t = torch.linspace(-12.0, 2.0, 400_001, dtype=F64)
    assert float((approximant(t) - f(t)).abs().max()) <= approximant.error


def own(name: str, **facts: object) -> Function:
    """arctan with other facts; functions are known by their names, so every one has its own."""
    right = {"curvature": ARCTAN.curvature, "left": ARCTAN.left, "right": ARCTAN.right}
    return Function(f"arctan, {name}", torch.arctan, **{**right, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "facts", "message"),
    [
        ("curvature too small", {"curvature": 0.3}, "curvature"),
        ("curvature a little too small", {"curvature": 0.64}, "curvature"),
        ("no curvature", {"curvature": math.inf}, "declares no curvature"),
        ("no right asymptote", {"right": None}, "radius"),
        ("no left asymptote", {"left": None}, "radius"),
        ("no facts", {"curvature": math.inf, "left": None, "right": None}, "radius"),
        ("asymptote above", {"right": Asymptote(0, 2.0, 0)}, None),
        ("asymptote below", {"right": Asymptote(0, -1.0, 0)}, None),
        ("asymptote with a slope", {"right": Asymptote(0.1, 0, 0)}, None),
    ],
)
def test_false_facts_are_refused(name: str, facts: dict[str, object], message: str | None) -> None:
    with pytest.raises(InputError, match=message):
        approximate(own(name, **facts), 1e-3)


@pytest.mark.parametrize(
    ("intercept", "epsilon"),
    [(0.8, 0.01), (1.0, 0.03), (1.0, 0.01), (1.2, 0.01), (1.4, 0.03), (1.5, 0.01), (1.5698, 0.001)],
)
def test_a_wrong_asymptote_that_f_crosses_is_refused(intercept: float, epsilon: float) -> None:
    """arctan tends to pi/2 and passes the declared limit on the way: nothing may be called proven."""
    with pytest.raises(InputError):
        approximate(own(f"limit {intercept}", right=Asymptote(0, intercept, 0)), epsilon)


def test_prove_refuses_rays_that_leave_the_tube() -> None:
    """``prove`` is independent of how the knots were found: a ray that is not parallel to the asymptote has no finite
    error.
    """
    f = approximate(library.TANH, 1e-2)
    tilted = PiecewiseLinear(f.knots, (*f.slopes[:-1], 0.5), f.anchor, f.value)
    with pytest.raises(InputError):
        prove(library.TANH, tilted, 1e-2)


@pytest.mark.parametrize("place", ["knot", "slope", "value"])
def test_prove_refuses_a_wrong_approximant(place: str) -> None:
    """Moving one knot, slope or the value by 5% of what epsilon allows, from an approximant that uses it up."""
    f = approximate(library.TANH, 1e-2)
    knots, slopes, value = list(f.knots), list(f.slopes), f.value
    middle = len(slopes) // 2
    if place == "knot":
        knots[middle] += 0.05
    elif place == "slope":
        slopes[middle] += 0.05
    else:
        value += 5e-4
    with pytest.raises(InputError):
        prove(library.TANH, PiecewiseLinear(tuple(knots), tuple(slopes), f.anchor, value), 1e-2)


def test_functions_of_one_name_do_not_share_approximants() -> None:
    """Two functions with the same name but other values: each gets its own approximant, or a refusal."""
    t = torch.linspace(-5, 5, 101, dtype=F64)
    flat = {"curvature": 0.8, "right": Asymptote(0, 1, 0)}
    first = Function("mine", torch.tanh, left=Asymptote(0, -1, 0), **flat)  # type: ignore[arg-type]
    second = Function("mine", torch.sigmoid, left=Asymptote(0, 0, 0), **flat)  # type: ignore[arg-type]
    for f in (first, second):
        assert ((approximate(f, 1e-2)(t) - f(t)).abs() <= 1e-2).all()


@contextmanager
def seconds(limit: float) -> Iterator[None]:
    """TimeoutError after the limit; what is tested under it takes microseconds or for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_a_radius_that_is_none_is_refused(radius: float) -> None:
    with seconds(1.0), pytest.raises(InputError, match="radius"):
        approximate(library.SIN, 1e-2, radius)


def test_step_functions_have_no_joint_knots() -> None:
    with seconds(1.0), pytest.raises(InputError):
        approximate_jointly((library.TANH, library.DRELU), 1e-2)


@pytest.mark.parametrize("epsilon", [0.0, -1e-3, 0.2, 1e-10, math.nan, math.inf, None, "0.01", True])
def test_epsilon_out_of_range_is_refused(epsilon: Any) -> None:
    with pytest.raises(InputError, match="epsilon"):
        approximate(library.TANH, epsilon)
    with pytest.raises(InputError, match="epsilon"):
        approximate(library.DRELU, epsilon)
    with pytest.raises(InputError, match="epsilon"):
        approximate_jointly((library.TANH, library.DTANH), epsilon)


# ------------------------------------------------------------------------------------------------------------- ramps


def check_ramps(f: Function, epsilon: float, ramp: float) -> PiecewiseLinear:
    """Ramps are as wide as the largest power of two <= ramp, or 2^-22 of their position, on the side each jump names;
    f^ is f everywhere else, monotone between the two values on the ramps, and claims no sup error.
    """
    ramped = approximate(f, epsilon, ramp=ramp)
    assert ramped == approximate(f, 0.1, ramp=ramp), "epsilon has no say"
    assert ramped.error == math.inf
    assert ramped.pieces == 2 * len(f.jumps) + 1
    assert is_ramped(f, ramped, ramp)
    assert not is_ramped(f, replace(ramped, slopes=tuple(0.9 * slope for slope in ramped.slopes)), ramp)
    for (lo, hi), (position, height, side) in zip(ramped.ramps, sorted(f.jumps), strict=True):
        width, least = hi - lo, APART * abs(position)
        assert any(0.999 * low <= width <= 1.001 * high for low, high in ((ramp / 2, ramp), (least, 2 * least)))
        assert abs(math.log2(width) - round(math.log2(width))) < 1e-6
        assert (lo if side > 0 else hi) == position
        inside = torch.linspace(lo, hi, 33, dtype=F64)
        between = f(torch.tensor(lo if side > 0 else lo - 1e-3, dtype=F64)) + height * (inside - lo) / width
        torch.testing.assert_close(ramped(inside), between, rtol=0, atol=1e-14 + 2.0**-50 * abs(position) / width)
    ends = torch.tensor([x for ramp in ramped.ramps for x in ramp], dtype=F64)
    t = torch.cat([torch.linspace(-10, 10, 4001, dtype=F64), 1e6 * torch.linspace(-2, 2, 801, dtype=F64), ends])
    outside = t[[not any(lo < x < hi for lo, hi in ramped.ramps) for x in t.tolist()]]
    assert float((ramped(outside) - f(outside)).abs().max()) <= 1e-14
    # the hinges have weights height/width on arguments up to |t|: rounding u |t| / width
    narrowest, largest = min(hi - lo for lo, hi in ramped.ramps), float(ends.abs().max())
    size = sum(abs(height) for _, height, _ in f.jumps) * (1 + outside.abs() + largest) / narrowest
    assert ((hinge_sum(ramped, outside) - f(outside)).abs() <= 8 * 2.0**-53 * (1 + size)).all()
    return ramped


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["relu", "leaky_relu", "relu6"]),
    epsilon=st.floats(1e-7, 0.1),
    ramp=st.one_of(st.just(RAMP), st.floats(1e-7, 0.1)),
)
def test_ramps(name: str, epsilon: float, ramp: float) -> None:
    f = ACTIVATIONS[name].dr
    ramped = check_ramps(f, epsilon, ramp)
    t = torch.linspace(-10, 10, 4001, dtype=F64)
    outside = t[[not any(lo < x < hi for lo, hi in ramped.ramps) for x in t.tolist()]]
    assert (ramped(outside) == f(outside)).all()


def steps(jumps: tuple[tuple[float, float, int], ...]) -> Function:
    """A user's step function: at a jump, the value on the side that the ramp is not on."""

    def value(t: Tensor) -> Tensor:
        parts = [height * ((t > at) if side > 0 else (t >= at)).to(t.dtype) for at, height, side in jumps]
        return torch.stack(parts).sum(0)

    return Function("steps", value, curvature=0.0, bound=sum(abs(height) for _, height, _ in jumps), jumps=jumps)


@settings(max_examples=40, deadline=None)
@given(
    positions=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4, unique_by=lambda at: round(at / 3)),
    heights=st.lists(st.floats(0.01, 10), min_size=4, max_size=4),
    sides=st.lists(st.sampled_from([-1, 1]), min_size=4, max_size=4),
    ramp=st.sampled_from([RAMP, 2.0**-12, 1e-3]),
)
def test_ramps_of_a_users_jumps(positions: list[float], heights: list[float], sides: list[int], ramp: float) -> None:
    """Anywhere, of any height; and off the ramps they are exact in float32, too, by clamps and by bisection."""
    jumps = tuple(zip(sorted(positions), heights, sides, strict=False))
    assume(all(b - a > 1.0 for a, b in pairwise(at for at, _, _ in jumps)))
    f = steps(jumps)
    ramped = check_ramps(f, 1e-3, ramp)
    t = torch.tensor([x for at, _, _ in jumps for x in (at - 0.25 - 1e-6 * abs(at), at + 0.25 + 1e-6 * abs(at), 0.1)])
    (value,) = tables.evaluator((ramped,), torch.float32, torch.device("cpu"))(t)
    allowed = 1e-6 * sum(abs(height) for _, height, _ in jumps)
    for found in (value, ramped(t)):
        assert float((found - f(t.double())).abs().max()) <= allowed


def test_jumps_without_room_between_them_are_refused() -> None:
    with pytest.raises(InputError, match=r"the jumps of steps are too close.*1\.0, 1\.000000001"):
        approximate(steps(((1.0, 1.0, 1), (1.0 + 1e-9, 1.0, 1))), 1e-3)


@pytest.mark.parametrize(("dtype", "half"), [(torch.float64, 2.0**-26), (torch.float32, 2.0**-12)])
def test_half_of_the_digits(dtype: torch.dtype, half: float) -> None:
    """The rule: hinges of a ramp of sqrt(u) round, at arguments of size one, by about as much as it is wide."""
    f, t = library.DLEAKY, torch.linspace(0.5, 2.0, 4001).to(dtype)
    narrow, wide = (hinge_sum(approximate(f, 1e-3, ramp=width), t) - f(t) for width in (half, 8 * half))
    assert half / 16 < float(narrow.abs().max()) <= 4 * half
    assert float(wide.abs().max()) < float(narrow.abs().max()) / 2
    exact = hinge_sum(approximate(library.DRELU, 1e-3, ramp=half), torch.linspace(1.0, 0.5 / half, 4001).to(dtype))
    assert bool((exact == 1.0).all()), "a height of one, at zero: the hinges cancel exactly"


def test_ramp_hits_are_counted() -> None:
    """hits: the number of arguments strictly inside a ramp, here by a loop."""
    ramped = approximate(library.DRELU6, 0.1, ramp=0.1)
    width = 2.0**-4
    assert ramped.ramps == ((0.0, width), (6.0 - width, 6.0))
    t = torch.cat([torch.linspace(-1, 7, 1001, dtype=F64), torch.tensor([0.0, width, 6.0 - width, 6.0], dtype=F64)])
    expected = sum(0 < x < width or 6 - width < x < 6 for x in t.tolist())
    assert expected > 0
    assert int(ramped.hits(t)) == int(ramped.hits(t.reshape(5, -1))) == expected
    assert int(approximate(library.TANH, 0.1).hits(t)) == 0
