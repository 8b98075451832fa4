"""Activations and losses from plain functions of torch: what is proven of them is true, and what is not says so."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from innergrad.functions.calculus import FACTORS, KINKS, LINEAR, is_derivative, partial
from innergrad.functions.facts import REACH
from innergrad.functions.rules import RULES
from innergrad.functions.tracing import FORMULAS, traced
from innergrad.testing import laws

Call = Callable[..., Tensor]
F64 = torch.float64
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(5, 2, generator=GENERATOR, dtype=F64)
Y = torch.rand(5, 1, generator=GENERATOR, dtype=F64)


def lecun(t: Tensor) -> Tensor:
    return 1.7159 * torch.tanh(2 / 3 * t)


def untraceable(t: Tensor) -> Tensor:
    """Honest and smooth, and no interval rule has its operation."""
    return torch.tanh(t) + 0.1 * torch.lgamma(t * t + 2.0)


activation = functools.lru_cache(ig.Activation.from_callable)

# ------------------------------------------------------------------------------------------------ what a function is


def holds(f: ig.Function, reach: float = 40.0) -> None:
    """What f says of itself, on many points of its domain; up to rounding."""
    radius = min(f.radius, reach)
    t = torch.cat([
        torch.linspace(-radius, radius, 20_001, dtype=F64),
        2 * radius * torch.rand(4_000, generator=torch.Generator().manual_seed(1), dtype=F64) - radius,
    ]).sort().values.unique()  # fmt: skip
    y, h = f(t), t.diff()
    rounding = 1e-12 * (1 + y.abs().max())
    if math.isfinite(f.bound):
        assert float(y.abs().max()) <= f.bound + rounding
    if math.isfinite(f.lipschitz):
        assert bool((y.diff().abs() <= f.lipschitz * h + rounding).all())
    even = torch.linspace(-radius, radius, 4_001, dtype=F64)
    bend = f(even).diff(n=2).abs() / (2 * radius / 4_000) ** 2
    near = torch.zeros_like(bend, dtype=torch.bool)
    for at in (*f.breaks, *(jump[0] for jump in f.jumps)):
        near |= (even[1:-1] - at).abs() <= 4 * radius / 4_000
    assert bool((bend[~near] <= f.curvature + 1e-6 * (1 + y.abs().max())).all())
    for side, asymptote in ((-1, f.left), (1, f.right)):
        if asymptote is not None:
            out = asymptote.beyond + side * torch.logspace(-3, 12, 400, dtype=F64)
            rest = (f(out) - (asymptote.slope * out + asymptote.intercept)).abs()
            allowed = 1e-15 * (1 + out.abs()) + 1e-12
            assert bool((rest[1:] <= rest[:-1] + allowed[1:]).all())
            assert float(rest[-1]) <= 1e-5 + float(allowed[-1])
    if f.exact is not None:
        assert bool(((f.exact(t) - y).abs() <= 1e-13 * (1 + t.abs())).all())


def proven(f: ig.Function) -> bool:
    return ig.prove_facts(f, min(f.radius, REACH)).proven


SMOOTH: dict[str, tuple[Call, float]] = {  # and the domain
    "lecun": (lecun, math.inf),
    "elu": (F.elu, math.inf),
    "softsign": (F.softsign, math.inf),
    "gauss": (lambda t: torch.exp(-t * t), math.inf),
    "wave": (lambda t: t + torch.sin(2 * t), math.inf),
    "cube": (lambda t: t**3 / 10, 8.0),
    "isru": (lambda t: t / torch.sqrt(1 + t**2), math.inf),
    "bent": (lambda t: (torch.sqrt(t**2 + 1) - 1) / 2 + t, math.inf),
    "module": (torch.nn.Softplus(beta=2.0), math.inf),
}
LINEAR_BETWEEN: dict[str, tuple[Call, tuple[float, ...], tuple[int, ...]]] = {  # knots, and the side of each ramp
    "hardtanh": (F.hardtanh, (-1.0, 1.0), (1, -1)),
    "hardsigmoid": (F.hardsigmoid, (-3.0, 3.0), (1, -1)),
    "clamped": (lambda t: t.clamp(min=0.0), (0.0,), (-1,)),
    "where": (lambda t: torch.where(t > 0.5, 2 * t - 0.5, t), (0.5,), (1,)),
    "magnitude": (torch.abs, (0.0,), (1,)),
    "a line": (lambda t: 2 * t + 1, (), ()),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_what_is_proven_is_true_and_the_derivative_is_autograds(name: str) -> None:
    f, domain = SMOOTH[name]
    mine = activation(f, name)
    assert mine.state == "proven"
    for part in (mine.r, mine.dr):
        assert not part.measured
        assert part.radius == domain
    assert is_derivative(mine.dr.value, mine.r.value)
    assert not is_derivative(mine.dr.value, traced(lambda t: 2 * f(t)))
    for part in (mine.r, mine.dr):
        holds(part)
    t = torch.linspace(-7, 7, 301, dtype=F64, requires_grad=True)
    value = f(t)
    (slope,) = torch.autograd.grad(value.sum(), t)
    assert torch.allclose(mine.r(t), value, rtol=0, atol=1e-8)  # F.softplus is t beyond its threshold
    assert torch.allclose(mine.dr(t.detach()), slope, rtol=1e-12, atol=1e-8)
    low, high = mine.closed_range
    assert bool(((value >= low - 1e-6) & (value <= high + 1e-6)).all())


ROOTS: dict[str, tuple[Call, float, float]] = {  # slope and intercept of the right asymptote
    "isru": (SMOOTH["isru"][0], 0.0, 1.0),
    "by rsqrt": (lambda t: t * torch.rsqrt(t * t + 4.0), 0.0, 1.0),
    "by a power": (lambda t: 3 * t * (t.square() / 4 + 1) ** -0.5, 0.0, 6.0),
    "bent": (SMOOTH["bent"][0], 1.5, -0.5),
}


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.soak) if " " in one else one for one in ROOTS])
def test_roots_of_squares_have_their_asymptotes(name: str) -> None:
    """However they are written; so the functions are for every t, and not for a domain."""
    f, slope, intercept = ROOTS[name]
    mine = activation(f, name)
    assert mine.state == "proven"
    assert mine.r.radius == math.inf
    assert mine.r.left is not None
    assert mine.r.right is not None
    assert (mine.r.right.slope, mine.r.right.intercept) == pytest.approx((slope, intercept), abs=1e-12)
    assert mine.dr.right is not None
    assert mine.dr.right.intercept == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("name", LINEAR_BETWEEN)
def test_what_is_linear_between_its_kinks_is_exact(name: str) -> None:
    f, knots, sides = LINEAR_BETWEEN[name]
    mine = activation(f, name)
    assert mine.r.exact is not None
    assert mine.r.exact.knots == knots
    assert tuple(side for _, _, side in mine.dr.jumps) == sides
    for part in (mine.r, mine.dr):
        assert proven(part)
        holds(part)
    t = torch.tensor([*knots, -4.3, 0.7, 5.1], dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(f(t).sum(), t)
    if name != "magnitude":  # of which autograd has neither side at 0
        assert torch.allclose(mine.dr(t.detach()), slope, rtol=0, atol=1e-8)  # torch's 1/6 has eight digits


@pytest.mark.soak
@pytest.mark.parametrize("f", [F.mish, F.celu, F.tanhshrink, functools.partial(F.gelu, approximate="tanh")])
def test_more_of_torchs_own(f: Call) -> None:
    mine = activation(f, "mine")
    for part in (mine.r, mine.dr):
        assert proven(part)
        assert part.left is not None
        assert part.right is not None
        holds(part)


def test_the_librarys_own_are_the_librarys_own() -> None:
    for f in (torch.tanh, torch.nn.Tanh(), F.silu, F.gelu, torch.sin, F.relu, F.leaky_relu):
        mine = ig.Activation.from_callable(f, "mine")
        assert (mine.r, mine.dr) in {(known.r, known.dr) for known in ig.ACTIVATIONS.values()}
    assert ig.Activation.from_callable(torch.tanh) is ig.ACTIVATIONS["tanh"]
    assert ig.ACTIVATIONS["tanh"].state == "proven"
    assert (
        ig.Activation("false", ig.Function("false", torch.tanh, bound=0.5), ig.ACTIVATIONS["sin"].dr).state
        == "declared"
    )
    net = ig.Network([2, 2, 1], ig.Activation.from_callable(torch.tanh, "mine"))
    assert ig.compile(ig.GradientDescent(net, steps=1, box=None), target="llama", n_examples=2).state == "exact"


def test_every_operation_that_can_be_proven_can_be_differentiated() -> None:
    """But for those that only make constants, or that a formula stands for."""
    arithmetic = {"add", "radd", "sub", "subtract", "rsub", "mul", "rmul", "multiply", "div", "rdiv", "divide", "pow"}
    arithmetic |= {"true_divide", "truediv", "rtruediv", "hypot", "logaddexp", "to", "double", "contiguous"}
    constants = {"gt", "lt", "ge", "le", "ones_like", "zeros_like", "full_like"}
    known = {*FACTORS, *KINKS, *LINEAR, *FORMULAS, *arithmetic, *constants}
    assert set(RULES) - known == set()
    t = torch.tensor([0.3, 0.7], dtype=F64, requires_grad=True)
    for name in {*FACTORS, *KINKS} & {name for name in dir(torch.Tensor) if not name.startswith("_")}:
        if name in ("clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "where", "expit"):
            continue
        tape = partial(traced(lambda t, name=name: getattr(t, name)()), 0, kinks=True)
        (slope,) = torch.autograd.grad(getattr(t, name)().sum(), t)
        assert torch.allclose(tape(t.detach()), slope, rtol=1e-13), name  # type: ignore[operator]


# ----------------------------------------------------------------------------------------------------- bad callables

STATE = [0.0]


def counting(t: Tensor) -> Tensor:
    STATE[0] += 1e-3
    return torch.tanh(t) + STATE[0]


def branching(t: Tensor) -> Tensor:
    return t if t > 0 else 0.1 * t


def by_the_sum(t: Tensor) -> Tensor:
    return torch.tanh(t) if float(t.detach().sum()) > 0 else torch.sin(t)


BAD: dict[str, tuple[Any, str]] = {
    "no function": (3.0, "no function"),
    "a class": (torch.nn.Tanh, "no function of one tensor"),
    "two arguments": (torch.atan2, "no function of one tensor"),
    "softmax": (lambda t: torch.softmax(t, -1), "not elementwise"),
    "centred": (lambda t: t - t.mean(), "not elementwise"),
    "a running sum": (lambda t: torch.cumsum(torch.atleast_1d(t), -1).reshape(t.shape), "not elementwise"),
    "by the sum": (by_the_sum, "not elementwise"),
    "a norm": (lambda t: t / (1 + t.norm()), "not elementwise"),
    "a branch": (branching, "torch.where"),
    "log": (torch.log, "not finite"),
    "a pole": (lambda t: 1 / t, "not finite"),
    "one number": (lambda t: t.sum(), "number for each t"),
    "a column": (lambda t: t.unsqueeze(-1), "number for each t"),
    "half": (lambda t: torch.tanh(t).half(), "type of its numbers"),
    "always float32": (lambda t: torch.tanh(t.float()), "type of its numbers"),
    "numpy": (lambda t: torch.from_numpy(__import__("numpy").tanh(t.detach().numpy())), "differentiated"),
    "detached": (lambda t: torch.tanh(t).detach(), "differentiated"),
    "a list": (lambda t: t.tolist(), "does not give a tensor"),
    "random": (lambda t: torch.tanh(t) + 0.1 * torch.rand_like(t), "different values for the same t"),
    "dropout": (torch.nn.Dropout(0.5), "different values for the same t"),
    "a memory": (counting, "different values for the same t"),
    "rounded": (lambda t: torch.round(t), "not smooth"),
    "sign": (torch.sign, "not smooth: it jumps; got from -1 to 1 at t = 0; allowed: a continuous slope"),
    "item": (lambda t: t * t.item(), r"got a Python number made of a tensor, by item\(\)"),
    "math": (lambda t: t * math.sin(t), r"use torch's functions, for example torch.sin\(t\)"),
    "a step": (lambda t: torch.where(t > 0, torch.ones_like(t), torch.zeros_like(t)), "differentiated"),
    "a jump": (lambda t: t + (t > 0.5).to(t.dtype), "mine jumps"),
    "a step behind lgamma": (lambda t: torch.where(t > 0.3, 1.0, 0.0) + torch.lgamma(t * t + 2), "not smooth"),
    "a kink behind lgamma": (lambda t: torch.abs(t - 0.3) + torch.lgamma(t * t + 2), "not smooth"),
    "selu": (F.selu, "derivative of mine jumps"),
    "constant": (lambda t: torch.ones_like(t) + 0 * t, "constant"),
    "raising": (lambda t: [][1], "cannot be applied"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_callable_is_refused_in_a_sentence(name: str) -> None:
    f, words = BAD[name]
    with pytest.raises(ig.InputError, match=words) as raised:
        ig.Activation.from_callable(f, "mine")
    assert "\n" not in str(raised.value)


def test_names() -> None:
    with pytest.raises(ig.InputError, match="no name of its own"):
        ig.Activation.from_callable(lambda t: torch.tanh(t) * 2)
    assert ig.Activation.from_callable(lecun).name == "lecun"
    for name in ("tanh", "identity"):
        with pytest.raises(ig.InputError, match="function of the library"):
            ig.Activation.from_callable(lecun, name)
    with pytest.raises(ig.InputError, match="loss of the library"):
        ig.Loss.from_callable(lambda d: d**2, "squared")
    with pytest.raises(ig.InputError, match="radius"):
        ig.Activation.from_callable(lecun, radius=-1.0)


# ------------------------------------------------------------------------------------------------------------ measured


def descent(mine: ig.Activation | str = "tanh", **changed: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 2, 1], mine), lr=0.2, steps=2, **changed)


@pytest.mark.parametrize("target", ["relu", pytest.param("gpt", marks=pytest.mark.soak)])
def test_what_is_measured_says_so_everywhere_and_has_no_certificate(target: str, tmp_path: Path) -> None:
    mine = ig.Activation.from_callable(untraceable)
    assert mine.r.measured
    assert mine.state == "measured"
    assert "measured=True" in repr(mine)
    holds(mine.r)
    holds(mine.dr)
    algorithm = descent(mine)
    tf = ig.compile(algorithm, target=target, epsilon=1e-2, n_examples=5)
    report = tf.verify(X, Y)
    assert tf.state == report.state == "measured"
    assert "measured, not proven: untraceable" in repr(tf)
    for name in ("untraceable", "untraceable'"):
        assert "measured on a grid, not proven" in str(tf.standings[name])
        assert "lgamma" in str(tf.standings[name])
    assert "measured on a grid, not proven" in str(report)
    assert report.passed
    laws.there_is_no_certificate(tf, {"X": X, "y": Y})
    for refused in (lambda: tf.certificate, tf.attack, lambda: tf.explain(X, Y), lambda: tf.run(X, Y, until=1.0)):
        with pytest.raises(ig.InputError, match="nothing is proven about untraceable"):
            refused()
    again = ig.load(tf.save(tmp_path / "mine"), extensions=[mine])
    assert again.state == "measured"
    laws.there_is_no_certificate(again, {"X": X, "y": Y})


# ------------------------------------------------------------------------------------------------------- compiled runs

TARGETS: dict[str, dict[str, Any]] = {
    "relu": {"epsilon": 1e-2},
    "llama": {"epsilon": 1e-6},
    "gpt": {"epsilon": 1e-6},
    "softmax": {"epsilon": 1e-6},
    "sigma": {"epsilon": 1e-6, "sigma": "gelu"},
}


@pytest.mark.parametrize("target", [pytest.param(t, marks=pytest.mark.soak) if t == "softmax" else t for t in TARGETS])
def test_a_compiled_run_is_that_of_autograd(target: str, tmp_path: Path) -> None:
    """On every target, by every executor, within its certificate; and after it was saved and loaded."""
    mine = activation(lecun)
    algorithm = descent(mine)
    tf = ig.compile(algorithm, target=target, n_examples=5, **TARGETS[target])
    assert tf.state == ("proven" if target == "relu" else "measured")
    exact, certificate = ig.reference(algorithm, X, Y).weights, tf.certify(X, Y)
    for executor in ("plain", "fused", "dense"):
        off = (tf.run(X, Y, executor=executor).weights - exact).norm(dim=-1)  # type: ignore[arg-type]
        assert float(off[-1]) <= certificate.weights[-1] * (1 + 1e-6) + 1e-9
    assert certificate.weights[-1] < 2 * TARGETS[target]["epsilon"]
    path = tf.save(tmp_path / "mine")
    with pytest.raises(ig.InputError, match=r"unknown activation.*lecun.*extensions"):
        ig.load(path)
    again = ig.load(path, extensions=[ig.Activation.from_callable(lecun)])
    assert torch.equal(again.run(X, Y).weights, tf.run(X, Y).weights)
    with pytest.raises(ig.InputError):
        ig.load(path, extensions=[ig.Activation.from_callable(lambda t: 1.5 * torch.tanh(t), "lecun")])


@pytest.mark.parametrize("name", ["hardtanh", "a line"])
def test_what_is_linear_between_its_kinks_is_exact_on_llama(name: str) -> None:
    """By its matrices, too: a line has a slope and a constant of its own."""
    algorithm = descent(activation(LINEAR_BETWEEN[name][0], name))
    tf = ig.compile(algorithm, target="llama", n_examples=5)
    exact = ig.reference(algorithm, X, Y).weights
    for executor in ("plain", "fused", "dense"):
        off = (tf.run(X, Y, executor=executor).weights - exact).abs()  # type: ignore[arg-type]
        assert float(off.max()) < 1e-9  # what a hinge of silu is off by


def test_a_callable_that_changed_gets_no_certificate() -> None:
    scale = [1.0]
    tf = ig.compile(descent(ig.Activation.from_callable(lambda t: torch.tanh(t) * scale[0], "mine")), n_examples=5)
    assert tf.certify(X, Y).bounds[0] < 1.0
    before = tf.run(X, Y).weights
    scale[0] = 2.0
    assert torch.equal(tf.run(X, Y).weights, before)
    with pytest.raises(ig.InputError, match="mine has changed since it was made"):
        tf.certify(X, Y)


# --------------------------------------------------------------------------------------------------------------- losses

LOSSES: dict[str, tuple[Call, str]] = {  # and its state on relu
    "of the difference": (lambda d: torch.log1p(d * d), "proven"),
    "of both, summed": (lambda t, y: torch.log1p((y - t) ** 2).sum(-1), "proven"),
    "mse": (torch.nn.MSELoss(reduction="none"), "proven"),
    "huber": (functools.partial(F.huber_loss, reduction="none"), "proven"),
    "poisson": (lambda t, y: torch.exp(t) - y * t, "proven"),
    "lgamma": (lambda d: torch.lgamma(d * d + 2) + d * d, "measured"),
    "lgamma of both": (lambda t, y: torch.lgamma((t - y) ** 2 + 2) + (t - y) ** 2, "measured"),
}


LONG = ("of both, summed", "lgamma of both", "poisson")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak) if n in LONG else n for n in LOSSES])
def test_a_loss_from_a_callable(name: str) -> None:
    f, state = LOSSES[name]
    loss = ig.Loss.from_callable(f, name)
    t, y = torch.randn(9, 3, dtype=F64), torch.rand(9, 3, dtype=F64)
    whole = f(t - y) if name in ("of the difference", "lgamma") else f(t, y)
    assert torch.allclose(loss.value(t, y), whole.sum(-1) if whole.ndim == 2 else whole, rtol=1e-12)
    algorithm = descent(loss=loss)
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=5)
    assert tf.state == state
    exact = ig.reference(algorithm, X, Y).weights
    off = float((tf.run(X, Y).weights[-1] - exact[-1]).norm())
    if state == "proven":
        assert off <= tf.certify(X, Y).weights[-1] < 3e-2
    else:
        assert off < 1e-2
        laws.there_is_no_certificate(tf, {"X": X, "y": Y})


BAD_LOSSES: dict[str, tuple[Any, str]] = {
    "a mean": (F.mse_loss, "number for each t"),
    "linear": (lambda d: 3 * d, "linear in t"),
    "coupled": (lambda t, y: (t.softmax(-1) - y).square().sum(-1), "couples the outputs"),
    "neither": (lambda t, y: torch.stack([t * t, y]).prod(0), "neither a function of t - y"),
    "without a rule": (lambda t, y: torch.lgamma(t * t + 2) * y, "torch.lgamma"),
    "not smooth": (lambda t, y: torch.abs(t * t - y), "torch.abs"),
    "three": (lambda t, y, z: t, "no function of two tensors"),
    "random": (lambda d: d * d + torch.rand_like(d), "different values"),
}


def test_an_argument_with_a_default_is_no_target() -> None:
    loss = ig.Loss.from_callable(lambda d, width=2.0: torch.log1p((d / width) ** 2), "mine")
    t, y = torch.randn(4, 1, dtype=F64), torch.rand(4, 1, dtype=F64)
    assert torch.allclose(loss.value(t, y), torch.log1p(((t - y) / 2.0) ** 2).sum(-1))


@pytest.mark.parametrize("name", BAD_LOSSES)
def test_a_bad_loss_is_refused_in_a_sentence(name: str) -> None:
    f, words = BAD_LOSSES[name]
    with pytest.raises(ig.InputError, match=words) as raised:
        ig.Loss.from_callable(f, "mine")
    assert "\n" not in str(raised.value)


# --------------------------------------------------------------------------------------------------------------- a fuzz

Tree = tuple[Any, ...]
UNARY: dict[str, tuple[Call, Callable[[Any], Any]]] = {
    "tanh": (torch.tanh, mpmath.tanh),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
    "softplus": (F.softplus, lambda x: mpmath.log1p(mpmath.exp(x))),
    "erf": (torch.erf, mpmath.erf),
    "arctan": (torch.arctan, mpmath.atan),
    "sin": (torch.sin, mpmath.sin),
    "bump": (lambda x: torch.exp(-x * x), lambda x: mpmath.exp(-x * x)),
    "hypot": (lambda x: torch.sqrt(1 + x * x), lambda x: mpmath.sqrt(1 + x * x)),
    "square": (torch.square, lambda x: x * x),
    "abs": (torch.abs, abs),
    "clamp": (lambda x: x.clamp(-1.0, 1.0), lambda x: min(max(x, -1), 1)),
    "elu": (F.elu, lambda x: x if x > 0 else mpmath.expm1(x)),
}
NUMBERS = st.sampled_from([-2.0, -1.3, -0.5, 0.1, 0.75, 1.0, 1.7])
TREES = st.recursive(
    st.tuples(st.just("line"), NUMBERS, NUMBERS),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(list(UNARY)), inner),
        st.tuples(st.just("+"), NUMBERS, inner, inner),
        st.tuples(st.just("*"), inner, inner),
    ),
    max_leaves=4,
)


def value_of(tree: Tree, t: Any, kind: int) -> Any:
    """By torch (0) or by mpmath (1)."""
    if tree[0] == "line":
        return tree[1] * t + tree[2]
    parts = [value_of(part, t, kind) for part in tree[1:] if isinstance(part, tuple)]
    if tree[0] == "+":
        return tree[1] * parts[0] + parts[1]
    return parts[0] * parts[1] if tree[0] == "*" else UNARY[tree[0]][kind](parts[0])


def judged(tree: Tree, radius: float | None) -> None:
    """A random function is refused, or all that is said about it is true."""
    try:
        mine = ig.Activation.from_callable(lambda t: value_of(tree, t, 0), "mine", radius)
    except ig.InputError:
        return
    for part in (mine.r, mine.dr):
        assert proven(part) or part.measured
        holds(part, reach=20.0)
    reach = min(mine.r.radius, 6.0)
    places = [x for x in (-0.93 * reach, -0.41, 0.2, 0.77 * reach) if all(abs(x - at) > 1e-3 for at in mine.r.breaks)]
    with mpmath.workdps(40):
        for x in places:
            found, slope = (float(part(torch.tensor(x, dtype=F64))) for part in (mine.r, mine.dr))
            expected = [mpmath.diff(lambda s: value_of(tree, s, 1), mpmath.mpf(x), n) for n in (0, 1)]
            size = 1 + sum(map(abs, expected))
            assert abs(found - expected[0]) <= 1e-8 * size
            assert abs(slope - expected[1]) <= 1e-8 * size
    if mine.dr.jumps or mine.r.lipschitz > 20:
        return
    algorithm = ig.GradientDescent(ig.Network([2, 2, 1], mine), lr=0.01, steps=1)
    try:
        tf = ig.compile(algorithm, epsilon=1e-2, n_examples=5, z_bound=16.0)
        run = tf.run(X / 4, Y)
    except ig.InputError:  # outside the domain, say
        return
    off = float((run.weights[-1] - ig.reference(algorithm, X / 4, Y).weights[-1]).norm())
    if mine.r.measured:
        laws.there_is_no_certificate(tf, {"X": X / 4, "y": Y})
        assert off < 0.1
    else:
        assert off <= tf.certify(X / 4, Y).weights[-1]


ROUNDED = ("*", ("line", 0.75, -0.5), ("line", 1.0, -1.3))


def test_a_derivative_that_is_linear_up_to_rounding_is_certified() -> None:
    judged(("+", -1.3, ROUNDED, ROUNDED), None)


@settings(max_examples=2, deadline=None, derandomize=True)
@given(tree=TREES)
def test_random_functions(tree: Tree) -> None:
    judged(tree, radius=3.0)


@pytest.mark.soak
@settings(max_examples=300, deadline=None)
@given(tree=TREES, radius=st.sampled_from([None, 3.0]))
def test_many_random_functions(tree: Tree, radius: float | None) -> None:
    judged(tree, radius)
