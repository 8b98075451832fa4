"""The calculators of Theorems 2, 3 and 4 against direct evaluation, closed forms and SciPy's root finder."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
from decimal import Decimal, localcontext
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import lambertw

import innergrad as ig
from innergrad.cli import main
from innergrad.errors import InputError
from innergrad.papers.resources import (
    ROUTES,
    Amount,
    BallConstants,
    Interval,
    SmoothConstants,
    backprop_layers,
    crossings,
    indicator,
    recursion_layers,
    smooth,
    to_json,
    trade_off,
)

positive = st.floats(0.05, 20.0)
ROOT = Path(__file__).parent.parent
ROUTE = {route.name: route for route in ROUTES}

# ------------------------------------------------------------------------------------------------------------ amounts


@pytest.mark.parametrize(
    ("ln", "text"),
    [
        (0.0, "1"),
        (math.log(999.4), "999"),
        (math.log(999.6), "1,000"),
        (math.log(99_999.0), "99,999"),
        (math.log(2.7e43), "2.7e43"),
        (math.log(6.2e-6), "6.2e-6"),
        (1e5, "10^43429"),
        (-1e5, "10^-43429"),
        (1e25, "10^(4.3e24)"),
        (-math.inf, "0"),
        (math.inf, "infinite"),
    ],
)
def test_amounts_are_readable_at_any_size(ln: float, text: str) -> None:
    assert str(Amount(ln)) == text


@pytest.mark.parametrize("ln", [-1e25, -800.0, 0.0, 700.0, 800.0, 1e25, math.inf, -math.inf])
def test_amounts_are_json(ln: float) -> None:
    """Strict JSON, without Infinity; a value that does not fit is null, its logarithm is there."""
    shown = json.loads(json.dumps(to_json(Amount(ln)), allow_nan=False))
    assert shown["log10"] == (ln / math.log(10.0) if math.isfinite(ln) else None)
    assert shown["value"] == (math.exp(ln) if abs(ln) <= 700.0 else None)


# ---------------------------------------------------------------------------------------------------------- Theorem 2


def test_the_recursion_is_the_papers() -> None:
    """n - 1 forward layers, a_{n-1} for the network below, one for P and one for the loss."""
    a = 2
    for n in range(2, 60):
        assert recursion_layers(n) == a
        a = n + a + 2
    assert [recursion_layers(n) for n in range(2, 8)] == [2, 6, 11, 17, 24, 32]
    assert [backprop_layers(n) for n in range(2, 6)] == [2, 5, 7, 9]
    assert [n for n in range(2, 60) if recursion_layers(n) < ROUTE["Deep Optimizers"].layers(n)] == [2, 3]
    assert [n for n in range(2, 60) if recursion_layers(n) <= backprop_layers(n)] == [2]


@pytest.mark.parametrize(
    ("target", "variant", "route"),
    [
        ("softmax", "sink", "target softmax, sink"),
        ("sigma", "backprop", "target sigma, backprop"),
        ("sigma", "recursion", "Neural Networks, heads counted"),
        ("relu", "literal", "Deep Optimizers"),
    ],
)
def test_layers_and_heads_are_those_of_compiled_transformers(target: str, variant: str, route: str) -> None:
    """As many layers as the route says; heads are K M up to a constant few, for every depth.

    Of the recursion only the layers: its products are in MLPs and in values here, and in heads in the paper.
    """
    terms = set()
    for n, K in ((2, 2), (2, 4), (3, 2), (3, 4)) if target != "relu" else ((2, 2), (4, 3)):
        network = ig.Network([K] * n + [1], "tanh", "linear", False)
        algorithm = ig.GradientDescent(network, steps=2, box=None if target != "relu" else 4.0)
        cost = ig.compile(algorithm, target=target, variant=variant, epsilon=1e-2, n_examples=4).cost()
        assert cost.blocks == 2 * ROUTE[route].layers(n)
        heads = max(row.heads for row in cost.rows if row.kind == "attention")
        terms.add(heads // K)
    if route != "Deep Optimizers":  # on ReLU attention the widest layer is another one for other sizes
        assert len(terms) == 1


@given(depth=st.integers(2, 9), width=st.integers(1, 400), eps=st.floats(1e-6, 0.9), c=positive)
@settings(max_examples=60, deadline=None)
def test_the_trade_off_by_trying_every_width(depth: int, width: int, eps: float, c: float) -> None:
    """The widest network for each depth, found by counting up; heads never exceed the budget."""
    found = {pair.depth: pair for pair in trade_off(eps, depth=depth, width=width, c=c).pairs}
    for n in range(2, max(8, depth) + 1):
        K = 0
        while n * (K + 1) ** 2 <= depth * width**2:
            K += 1
        assert (n in found) == (K >= 1)
        if K:
            assert found[n].width.value == pytest.approx(K, rel=1e-12)
            assert found[n].product.value == pytest.approx(n * K * K, rel=1e-12)
            values = {"n K^2 M": n * K * K * c / eps**2, "n K^3 M": n * K**3 * c / eps**2, "K M": K * c / eps**2}
            values |= {"n K^2": n * K * K, "n K^3": n * K**3}
            for route in found[n].routes:
                heads = values[route.heads_order]
                assert route.heads.value == pytest.approx(heads, rel=1e-9)
                assert route.width.value == pytest.approx(values[route.width_order], rel=1e-9)
                assert route.size.value == pytest.approx(route.layers * heads, rel=1e-9)
    assert found[depth].width.value == pytest.approx(width, rel=1e-12)


@pytest.mark.parametrize(("heads", "eps"), [(1e6, 0.1), (2e4, 0.01), (19_999.0, 0.01)])
def test_a_budget_of_heads(heads: float, eps: float) -> None:
    if heads < 2 / eps**2:
        with pytest.raises(InputError, match="too small"):
            trade_off(eps, heads=heads)
        return
    result = trade_off(eps, heads=heads)
    assert result.heads.value == pytest.approx(heads)
    for pair in result.pairs:
        K = math.isqrt(int(heads * eps**2 / pair.depth + 1e-9))
        assert pair.width.value == pytest.approx(K)
        (printed,) = (route for route in pair.routes if route.route == "Neural Networks, as printed")
        assert printed.heads.value <= heads * (1 + 1e-9)


def test_budgets_that_no_float_holds() -> None:
    result = trade_off(1e-200, depth=3, width=10**9)
    assert result.terms.log10 == pytest.approx(400.0)
    assert result.pairs[0].routes[0].size.log10 > 400.0
    assert str(result.terms) == "10^400"


# ---------------------------------------------------------------------------------------------------------- Theorem 3


def test_numbers_with_all_constants_one() -> None:
    """eps = 1e-4: d = 10, K_A > 2.2e4, K_B = 8e6; eps = 1e-8: 2.7e43 and 8e12; the widths cross at about 6e-6."""
    coarse, fine = indicator([1e-4, 1e-8]).rows
    assert (coarse.d, fine.d) == (pytest.approx(10.0), pytest.approx(100.0))
    assert coarse.A.width.value == pytest.approx(math.e**10)
    assert coarse.B.width.value == pytest.approx(8e6)
    assert fine.A.width.value == pytest.approx(2.688117e43, rel=1e-6)
    assert fine.B.width.value == pytest.approx(8e12)
    assert (coarse.smaller, coarse.decided, fine.smaller, fine.decided) == ("A", False, "B", True)
    assert coarse.A.printed.value == pytest.approx(math.exp(20.0))
    assert coarse.B.printed.value == pytest.approx(1e4)
    assert coarse.A.size.value == pytest.approx(8 * math.exp(20.0))
    assert coarse.B.size.value == pytest.approx(27 * 64e12)
    x = brentq(lambda x: math.exp(x) - 8 * x**6, 10, 30)  # x = eps^(-1/4)
    verdict = indicator([0.5]).verdict
    assert _crossovers(verdict.width) == [pytest.approx(x**-4)] == [pytest.approx(6.2e-6, rel=0.01)]
    x = brentq(lambda x: 8 * math.exp(2 * x) - 27 * (8 * x**6) ** 2, 10, 30)
    assert _crossovers(verdict.size) == [pytest.approx(x**-4)] == [pytest.approx(5.2e-6, rel=0.01)]


def _crossovers(intervals: tuple[Interval, ...]) -> list[float]:
    for first, second in pairwise(intervals):
        assert first.low == second.high
        assert first.smaller != second.smaller
    return [part.high.value for part in intervals[1:]]


def _sizes(eps: float, d: float, c: BallConstants) -> tuple[float, float, float, float]:
    """K_A, K_B and both n^3 K^2, as the lemmas are written."""
    K_A = c.c3 * math.exp(c.c4 * d)
    K_B = max(8 * c.c_sigma * d**2 / eps, c.c_sigma * math.sqrt(1 / (2 * eps)))
    return K_A, K_B, 2**3 * K_A**2, 3**3 * K_B**2


constants = st.builds(BallConstants, *[positive] * 5)


@given(c=constants, eps=st.floats(1e-6, 0.99), d=st.none() | st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_ball_sizes_by_direct_evaluation(c: BallConstants, eps: float, d: int | None) -> None:
    (row,) = indicator([eps], d, c).rows
    dimension = (c.c2 / eps) ** 0.25 if d is None else d
    expected = _sizes(eps, dimension, c) if c.c4 * dimension < 300 else None
    assert row.d == pytest.approx(dimension)
    if expected:
        found = (row.A.width.value, row.B.width.value, row.A.size.value, row.B.size.value)
        assert found == pytest.approx(expected, rel=1e-9)
        assert row.A.backprop.value == pytest.approx(2 * expected[0])
        assert row.B.backprop.value == pytest.approx(3 * expected[1])
    bounded = dimension > c.c1 and dimension >= 1 and eps < c.c2 / dimension**4 * (1 + 1e-9)
    assert row.A.bound == ("at least" if bounded else "none")
    assert row.smaller == (None if not bounded else "A" if row.A.size < row.B.size else "B")
    assert row.decided == (row.smaller == "B")


@given(c=constants, d=st.none() | st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_ball_crossovers_by_scanning(c: BallConstants, d: int | None) -> None:
    """Winners on a fine grid of accuracies are those of the intervals, and SciPy finds the same crossovers."""

    def excess(t: float) -> float:
        eps = math.exp(-t)
        dimension = (c.c2 / eps) ** 0.25 if d is None else d
        ln_K_A = math.log(c.c3) + c.c4 * dimension
        ln_K_B = math.log(max(8 * c.c_sigma * dimension**2 / eps, c.c_sigma * math.sqrt(1 / (2 * eps))))
        return math.log(8) + 2 * ln_K_A - math.log(27) - 2 * ln_K_B

    intervals = indicator([0.5], d, c).verdict.size
    if d is not None and d <= c.c1:
        assert intervals == ()
        return
    start = max(0.0, 4 * math.log(max(1.0, c.c1) if d is None else d) - math.log(c.c2))
    assert -intervals[0].high.ln == pytest.approx(start)
    grid = [start + 1e-9 + 0.05 * i for i in range(4000)]
    changes = [(a, b) for a, b in pairwise(grid) if (excess(a) > 0) != (excess(b) > 0)]
    roots = [brentq(excess, a, b, xtol=1e-12) for a, b in changes]
    found = [-part.high.ln for part in intervals[1:] if -part.high.ln < grid[-1]]
    if len(found) == len(roots):  # two roots within a step of the grid cancel
        assert found == pytest.approx(roots, abs=1e-6)
    else:
        assert len(found) == len(roots) + 2
        assert min(b - a for a, b in pairwise(found)) < 0.05
    for part in intervals:
        t = 0.5 * (min(-part.low.ln, 200.0) - part.high.ln)
        if -part.high.ln < t < min(-part.low.ln, 200.0):
            assert (excess(t) < 0) == (part.smaller == "A")


def test_ball_sizes_can_cross_twice() -> None:
    """c3 = 20, c_sigma = 0.05: B is smaller at coarse accuracies, A in between, B again at fine ones."""
    intervals = indicator([0.5], constants=BallConstants(c3=20.0, c_sigma=0.05)).verdict.size
    assert [part.smaller for part in intervals] == ["B", "A", "B"]

    def excess(x: float) -> float:  # x = eps^(-1/4)
        return math.log(8 * (20 * math.exp(x)) ** 2) - math.log(27 * (0.4 * x**6) ** 2)

    assert _crossovers(intervals) == pytest.approx([brentq(excess, 1, 6) ** -4, brentq(excess, 6, 30) ** -4])


def test_orders_in_both_regimes() -> None:
    """TF_B is eps^-2 for a fixed d and eps^-3 for a coupled one; TF_A does not depend on eps for a fixed d."""
    for d, order in ((5, 2.0), (None, 3.0)):
        rows = indicator([1e-6, 1e-7, 1e-8], d).rows
        for a, b in pairwise(rows):
            assert b.B.size.log10 - a.B.size.log10 == pytest.approx(order)
            assert b.B.printed.log10 - a.B.printed.log10 == pytest.approx(1.0)
        assert (rows[0].A.size == rows[2].A.size) == (d is not None)


def test_beyond_every_float() -> None:
    """exp(10^25) and exp(10^81), compared with decimal arithmetic of 60 digits."""
    for exponent in (100, 300):
        (row,) = indicator([10.0**-exponent]).rows
        with localcontext() as context:
            context.prec = 60
            log10 = Decimal(10) ** (exponent // 4) / Decimal(10).ln()
            assert row.A.width.log10 == pytest.approx(float(log10), rel=1e-9)
        assert row.smaller == "B"
        assert math.isinf(row.A.width.value)
    (row,) = indicator([5e-324], constants=BallConstants(c4=1e308)).rows
    assert str(row.A.width) == "infinite"
    json.dumps(to_json(row), allow_nan=False)


# ---------------------------------------------------------------------------------------------------------- Theorem 4


def test_the_logarithm_hides_the_asymptotic_condition() -> None:
    """d = 1, s = 8, L = 3: 2(L-1)d < s, yet A is the larger one from 0.06 down to 3e-12."""
    result = smooth([1e-8, 1e-16], 1, 8, 3)
    assert [row.A.size.value for row in result.rows] == pytest.approx([7.3e5, 5.4e8], rel=0.01)
    assert [row.B.size.value for row in result.rows] == pytest.approx([2.7e5, 2.7e9], rel=0.01)
    assert [(row.smaller, row.decided) for row in result.rows] == [("B", False), ("A", True)]
    assert _crossovers(result.verdict.size) == pytest.approx([0.0618, 2.67e-12], rel=0.01)
    assert [part.smaller for part in result.verdict.size] == ["A", "B", "A"]


@given(
    d=st.integers(1, 6),
    s=st.integers(3, 60),
    L=st.integers(2, 8),
    c=st.builds(SmoothConstants, positive, positive),
)
@settings(max_examples=150, deadline=None)
def test_smooth_crossovers_in_closed_form(d: int, s: int, L: int, c: SmoothConstants) -> None:
    """(c (t+1))^3 (c eps^(-d/s))^2 = L^3 (c' eps^(-1/(2(L-1))))^2 by Lambert's W: t + 1 = q e^(p t), p = rate / 3."""
    intervals = smooth([0.5], d, s, L, c).verdict.size
    p = (1 / (L - 1) - 2 * d / s) / 3
    q = L * c.c_lemma4 ** (2 / 3) / c.c_lemma3 ** (5 / 3)
    if abs(p) < 1e-12:
        roots = [q - 1.0]
    else:  # u = t + 1: u e^(-p u) = q e^(-p)
        branches = [lambertw(-p * q * math.exp(-p), k) for k in (0, -1)]
        roots = sorted({float(-w.real / p) - 1.0 for w in branches if abs(w.imag) < 1e-12})
    roots = [root for root in roots if root > 1e-9 and math.isfinite(root)]
    found = [-part.high.ln for part in intervals[1:]]
    if len(roots) == len(found):
        assert found == pytest.approx(roots, rel=1e-6, abs=1e-6)
    else:  # a double root, up to rounding
        assert abs(len(roots) - len(found)) in (1, 2)
        assert min(abs(math.log(t + 1) - math.log(q) - p * t) for t in (*roots, *found)) < 1e-6
    if 2 * (L - 1) * d < s:
        assert (intervals[-1].smaller, intervals[-1].decided) == ("A", True)
    else:
        assert (intervals[-1].smaller, intervals[-1].decided) == ("B", False)
    for part in intervals:  # the winner in the middle, evaluated directly
        t = 0.5 * (min(-part.low.ln, 50.0) - part.high.ln)
        if -part.high.ln < t < min(-part.low.ln, 50.0):
            A = (c.c_lemma3 * (t + 1)) ** 3 * (c.c_lemma3 * math.exp(t * d / s)) ** 2
            B = L**3 * (c.c_lemma4 * math.exp(t / (2 * (L - 1)))) ** 2
            assert (A < B) == (part.smaller == "A")


@pytest.mark.parametrize("s", [3, 4])
def test_without_the_condition_there_is_no_crossover_at_small_eps(s: int) -> None:
    """2(L-1)d >= s: A is larger for every small eps; with a large constant for every eps."""
    assert [part.smaller for part in smooth([0.5], 1, s, 3).verdict.size] == ["A", "B"]
    (only,) = smooth([0.5], 1, s, 3, SmoothConstants(c_lemma3=10.0)).verdict.size
    assert (only.smaller, only.low.value, only.high.value) == ("B", 0.0, 1.0)
    assert ">=" in smooth([0.5], 1, s, 3).verdict.note


def test_equal_widths_are_a_tie() -> None:
    """d/s = 1/(2(L-1)), equal constants."""
    (only,) = smooth([0.5], 1, 4, 3).verdict.width
    assert (only.smaller, only.decided) == (None, False)


def test_a_tie_at_eps_1_is_no_crossover() -> None:
    """c = 2, L = 2: both sizes are 32 at eps = 1, up to rounding."""
    first, _ = smooth([0.5], 1, 3, 2, SmoothConstants(2.0, 2.0)).verdict.size
    assert (first.smaller, first.high.value) == ("B", 1.0)


def test_a_crossover_beyond_every_float() -> None:
    """2(L-1)d = 1998 < s = 2000: the crossover is at about 10^-41000."""
    verdict = smooth([0.5], 999, 2000, 2).verdict
    t = -verdict.size[-1].high.ln
    assert t > 1e4
    assert 3 * math.log(t + 1) - 3 * math.log(2) - t / 1000 == pytest.approx(0.0, abs=1e-6)
    assert str(verdict.size[-1].high).startswith("10^-")


def test_crossings_of_known_functions() -> None:
    assert crossings(lambda t: (t - 2.0) * (t - 300.0), 0.0, 151.0) == pytest.approx([2.0, 300.0])
    assert crossings(lambda t: (t - 2.0) * (t - 300.0), 100.0, 151.0) == pytest.approx([300.0])
    assert crossings(lambda t: t * t + 1.0, 0.0, 0.0) == ()
    assert crossings(lambda t: 1.0 - t, 0.0, math.inf) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: indicator([1.0]), "less than 1"),
        (lambda: indicator([0.0]), "eps"),
        (lambda: indicator([math.nan]), "eps"),
        (lambda: indicator([0.1], 0), "d must"),
        (lambda: indicator([0.1], constants=BallConstants(c2=0.0)), "c2"),
        (lambda: smooth([0.1], 1, 2, 3), "s must"),
        (lambda: smooth([0.1], 1, 3, 1), "depth must"),
        (lambda: smooth([0.1], 1, 3, 10**400), "depth must"),
        (lambda: smooth([0.1], 0, 3, 2), "d must"),
        (lambda: smooth([0.1], 1, 3, 2, SmoothConstants(c_lemma4=math.inf)), "c_lemma4"),
        (lambda: trade_off(0.1), "either a network"),
        (lambda: trade_off(0.1, depth=3), "either a network"),
        (lambda: trade_off(0.1, depth=3, width=4, heads=100.0), "either a network"),
        (lambda: trade_off(0.1, depth=1, width=4), "depth must"),
        (lambda: trade_off(0.1, heads=-1.0), "heads must"),
        (lambda: trade_off(0.1, heads=math.inf), "heads must"),
    ],
)
def test_wrong_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


# --------------------------------------------------------------------------------------------------------------- docs

BLOCK = re.compile(r"```text\n\$ innergrad (.*?)\n(.*?)```", re.DOTALL)
PAGE = ROOT / "docs" / "resources.md"


def printed(arguments: str) -> str:
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["innergrad", *arguments.split()]),
        mock.patch.dict(os.environ, {"COLUMNS": "110"}),
        contextlib.redirect_stdout(out),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert stop.value.code == 0
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def test_the_page_shows_what_the_commands_print() -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 4
    for arguments, shown in blocks:
        assert shown == printed(arguments)
