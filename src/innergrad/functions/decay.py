"""The general decay condition of Siegel and Xu: does some non-zero finite sum of shifted activations decay?

    nu(t) = sum_i beta_i sigma(omega_i t + b_i),      |nu^(k)(t)| <= C (1 + |t|)^-p   for k = 0 .. m, some p > 1

1.  nu = 0 is excluded: with it every function would satisfy the condition. Zero means zero almost everywhere.
2.  A *filter* is a sum of shifts of sigma. Differences of step h lower the degree of a polynomial tail by one, and gain
    one power of t on a slow smooth tail (arctan, log, sqrt). Differences over a period T remove a T-periodic tail.
3.  If the filtered sigma decays with p > 1 and is not zero, it is the witness nu: the condition holds.
4.  If a filter with equal steps h annihilates sigma *everywhere*, the condition fails. Then sigma is a finite sum of
    terms t^k exp(r t) a(t) with bounded almost periodic a (for a polynomial: a constant), and so is every nu. Let
    such a sum tend to 0 at +infinity. Then the terms with r >= 0 vanish one after the other, the fastest first (an
    almost periodic function that tends to 0 is 0). At -infinity so do those with r <= 0. Hence nu = 0.
5.  Polynomials, cos, periodic waves, t cos t, exp, cosh and their sums are the functions of point 4.
6.  Everything else is *undecided*: samples show neither a decaying filter nor an annihilating one.

A black box is measured, not proven: at random points in every interval [2^j, 2^(j+1)], to the rounding of float64, as
far as ``reach``. It does not see beyond that, nor into gaps that no sample met. ``proven`` is true where the facts that
a :class:`Function` declares (piecewise linear, or a step function) make the witness vanish outside an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, integer, own_gradients
from innergrad.functions.activation import ACTIVATIONS, Activation
from innergrad.functions.fits.sums import FEATURES
from innergrad.functions.scalar import Asymptote, Function

Kind = Literal[
    "decays itself",
    "asymptotically polynomial",
    "differences decay",
    "asymptotically periodic",
    "asymptotically exponential",
    "polynomial",
    "almost periodic",
    "polynomial times almost periodic",
    "exponential growth",
    "not regular",
    "undecided",
]
Unit = tuple[float, float, float]  # (omega, b, beta): beta sigma(omega t + b)
Scalar = Callable[[Tensor], Tensor]

SHELLS = 41  # samples lie in [0, 1], [1, 2], [2, 4], ..., up to 2^40, on both sides
PER_SHELL = 512  # random samples in one of them, on one side
STEPS = (1.0, 16.0, 256.0, 4096.0)  # of the differences: small ones resolve, large ones rise above rounding
ORDERS = 8  # differences are tried up to this order
SLOWEST = 1.25  # a decay exponent is measured; less than this is not told apart from 1
FASTEST = 4.0  # the exponent reported for anything that decays faster
LEAST_REACH = 1024.0  # no witness is accepted on less than |t| <= 1024
_EPS = 2.0**-52
_ZERO = 32.0  # multiples of the estimated rounding: below, a value is taken for rounding
_NONZERO = 1000.0  # a witness exceeds this multiple somewhere


@dataclass(frozen=True)
class Decay:
    """Whether a function satisfies the general decay condition. It is true, as a condition, if it does.

    The condition asks for a *witness*: a sum nu(t) = sum_i beta_i sigma(omega_i t + b_i), not zero, with |nu^(k)(t)| <=
    C (1 + |t|)^-p for k = 0 .. m and some p > 1.

    Attributes:
        holds: True or False, or None if samples do not decide.
        kind: what the function looks like far out.
        reason: the verdict in words.
        m: derivatives up to this order.
        units: the witness, as triples (omega, b, beta); empty if there is none.
        p: 0.05 below the measured exponent, at most 4.
        C: a quarter above the largest sample.
        reach: up to this |t| the decay is visible above rounding.
        rounding: how much is left of nu because a period or coefficient, such as 2 pi, is rounded.
        proven: the witness vanishes outside an interval because of declared facts. Otherwise it is measured.
        sigma: the function.

    Examples:
        >>> import innergrad as ig
        >>> decay = ig.decay_condition("tanh")
        >>> decay.holds, decay.kind
        (True, 'asymptotically polynomial')
    """

    holds: bool | None
    kind: Kind
    reason: str
    m: int = 0
    units: tuple[Unit, ...] = ()
    p: float = math.nan
    C: float = math.nan
    reach: float = 0.0
    rounding: float = 0.0
    proven: bool = False
    sigma: Scalar | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.holds is True

    def nu(self, t: Tensor) -> Tensor:
        """The witness. Far out it is lost in the rounding of its terms, which cancel."""
        if self.sigma is None or not self.units:
            raise InputError("there is no witness", got=f"{self.kind}", hint="nu exists where holds is True")
        return torch.stack([beta * self.sigma(omega * t + b) for omega, b, beta in self.units]).sum(0)

    def bound(self, t: Tensor) -> Tensor:
        """C (1 + |t|)^-p, and the rounding of the weights."""
        return self.C * (1 + t.abs()) ** -self.p + self.rounding


def decay_condition(sigma: Scalar | Function | Activation | str, m: int = 0, seed: int = 0) -> Decay:
    """Whether a function satisfies the general decay condition of Siegel and Xu, and a witness if it does.

    Transformers with such an activation can approximate. A function that is not known to the library is sampled: that
    is evidence, and no proof.

    Args:
        sigma: an elementwise map of float64 tensors, a ``Function``, an ``Activation`` or the name of one.
        m: also for derivatives up to this order. For m > 0, torch must be able to differentiate sigma.
        seed: of the sample points.

    Examples:
        >>> import innergrad as ig, torch
        >>> bool(ig.decay_condition("relu"))
        True
        >>> bool(ig.decay_condition(torch.cos))  # no sum of shifted cosines decays
        False
    """
    function = _resolve(sigma)
    order, samples = integer("m", m, low=0, high=4), _Samples(function, integer("seed", seed, low=0))
    if isinstance(function, Function):
        _check_asymptotes(function)
    why = _irregularity(function, order)
    if why is not None:
        return Decay(False, "not regular", why, order)
    with np.errstate(all="ignore"):  # overflow is looked for, not feared
        return next((d for d in _verdicts(function, samples, order) if d is not None), _undecided(samples, order))


def _verdicts(function: Scalar, samples: _Samples, m: int) -> Iterator[Decay | None]:
    """Filters from the simplest to the most special; the first that decides."""
    yield _try_filter(function, samples, _Filter((), "difference"), m)
    for step in STEPS:
        for k in range(1, ORDERS + 1):
            yield _try_filter(function, samples, _Filter((step,) * k, "difference"), m)
    periods = _periods(function)
    for period in periods:
        for k in range(1, 5):
            yield _try_filter(function, samples, _Filter((period,) * k, "period"), m)
    for pair in itertools.combinations(periods, 2):
        yield _try_filter(function, samples, _Filter(pair, "period"), m)
    for relation in _relations(function):
        yield _try_filter(function, samples, relation, m)


# ------------------------------------------------------------------------------------------------------------ filters


@dataclass(frozen=True)
class _Filter:
    """prod_i (E_{h_i} - 1) with the steps h_i, or sum_i c_i E_h^i with the coefficients c; E_h shifts by h. Centred."""

    steps: tuple[float, ...]
    origin: Literal["difference", "period", "relation"]
    coefficients: tuple[float, ...] = ()

    def units(self, scale: float = 1.0) -> tuple[Unit, ...]:
        if self.coefficients:
            middle = (len(self.coefficients) - 1) / 2
            return tuple((1.0, (i - middle) * self.steps[0], c) for i, c in enumerate(self.coefficients))
        terms = {0.0: 1.0}
        if len(set(self.steps)) == 1:  # binomial, so that equal shifts are equal in floating point
            k, h = len(self.steps), self.steps[0] * scale
            terms = {(i - k / 2) * h: float((-1) ** (k - i) * math.comb(k, i)) for i in range(k + 1)}
        elif self.steps:
            terms = {
                sum(sign * h * scale / 2 for sign, h in zip(signs, self.steps, strict=True)): float(math.prod(signs))
                for signs in itertools.product((-1, 1), repeat=len(self.steps))
            }
        return tuple((1.0, b, beta) for b, beta in terms.items())

    def exact(self) -> bool:
        return not self.coefficients and all((h * 2**20).is_integer() for h in self.steps)


def _try_filter(function: Scalar, samples: _Samples, shifts: _Filter, m: int) -> Decay | None:
    """The verdict that a filter gives, if it gives one."""
    first = _measure(samples, shifts.units(), 0)
    if _vanishes_everywhere(samples, first):
        return _rejection(_named(samples, shifts), m) if _zero_at_all_scales(samples, shifts) else None
    if not first.nonzero or not _slope(first) >= SLOWEST or _contradicted(samples, shifts):
        return None
    measured = [first, *(_measure(samples, shifts.units(), k) for k in range(1, m + 1))]
    slopes = [_slope(one) for one in measured]
    if not all(slope >= SLOWEST for slope in slopes):
        return None
    p = min(FASTEST, math.floor((min(slopes) - 0.05) * 20 + 0.3) / 20)
    shifts = _named(samples, shifts)
    constant = 1.25 * max(one.constant(p) for one in measured)
    reach = min(one.reach() for one in measured)
    rounding = 0.0 if shifts.exact() else _rounding(samples, shifts.units())
    proven = shifts.origin == "difference" and isinstance(function, Function) and _has_support(function, shifts)
    kind, reason = _acceptance(shifts, p, reach, proven)
    return Decay(True, kind, reason, m, shifts.units(), p, constant, reach, rounding, proven, function)


def _has_support(f: Function, shifts: _Filter) -> bool:
    """Declared piecewise linear or a step function, and it is: the filtered function vanishes outside an interval."""
    t = torch.linspace(-50.0, 50.0, 4001, dtype=torch.float64) + 1e-3
    k, value = len(shifts.steps), derivative(f, t, 0)
    if f.exact is not None:
        needed = 1 if f.exact.slopes[0] == f.exact.slopes[-1] == 0.0 else 2
        return k >= needed and bool(torch.allclose(value, f.exact(t), rtol=1e-14, atol=1e-14))
    steps = sum(
        (height * (t > position).to(t.dtype) for position, height, _ in f.jumps), torch.full_like(t, float(value[0]))
    )
    return bool(f.jumps) and k >= 1 and bool(torch.allclose(value, steps, rtol=1e-14, atol=1e-14))


def _vanishes_everywhere(samples: _Samples, one: _Measured) -> bool:
    """Zero to rounding in every shell in which sigma is finite (the last may be lost to the shifts)."""
    return len(one.t) >= max(6, samples.last) and one.zero


def _zero_at_all_scales(samples: _Samples, shifts: _Filter) -> bool:
    """(E_nh - 1)^k annihilates all that (E_h - 1)^k does: a slow function is not mistaken for a polynomial."""
    if shifts.coefficients:
        return _related_at_all_scales(samples.function, len(shifts.coefficients) - 1)
    whole = shifts.origin == "difference" and bool(shifts.steps) and not _repeats(samples, shifts)
    scales = [16.0**n for n in range(1, 26 if whole else 7)]
    if whole:
        scales.insert(0, 1 / shifts.steps[0])
    return all(_vanishes_everywhere(samples, _measure(samples, shifts.units(scale), 0)) for scale in scales)


def _contradicted(samples: _Samples, shifts: _Filter) -> bool:
    """If nu decays, so does the same filter with n-fold steps: a slow or nearly matched wave would come to light."""
    if shifts.coefficients or not shifts.steps:
        return False
    return any(_persists(samples, shifts, scale) for scale in (16.0, 256.0, 4096.0))


def _persists(samples: _Samples, shifts: _Filter, scale: float) -> bool:
    """With scaled steps the filtered function does not decay, or only where rounding begins to hide it."""
    one, other = (_measure(samples, shifts.units(x), 0) for x in (1.0, scale))
    return not other.zero and (_slope(other) < SLOWEST or other.plateau > one.plateau + math.log2(max(scale, 1.0)) + 6)


def _repeats(samples: _Samples, shifts: _Filter) -> bool:
    """Differences of every step remove a polynomial. A periodic function needs the step that is its period."""
    return _persists(samples, shifts, (math.sqrt(5) - 1) / 2)


def _named(samples: _Samples, shifts: _Filter) -> _Filter:
    if shifts.origin == "difference" and shifts.steps and _repeats(samples, shifts):
        return replace(shifts, origin="period")
    return shifts


# ------------------------------------------------------------------------------------------------------------ reasons


def _acceptance(shifts: _Filter, p: float, reach: float, proven: bool) -> tuple[Kind, str]:
    k = len(shifts.steps)
    rate = f"like (1 + |t|)^-{p:g}" + (" or faster" if p == FASTEST else "")
    end = f"; measured for |t| <= {reach:.0e}" if not proven else "; it vanishes outside an interval, as declared"
    if shifts.coefficients:
        return "asymptotically exponential", (
            f"a combination of {len(shifts.coefficients)} shifts removes the oscillating or growing part of both tails "
            f"and decays {rate}{end}"
        )
    if shifts.origin == "period":
        lengths = " and ".join(f"{h:.12g}" for h in dict.fromkeys(shifts.steps))
        return "asymptotically periodic", (
            f"the tails repeat with period {lengths}, up to a polynomial of degree {k - 1} at most; the difference of "
            f"order {k} over the period decays {rate}{end}"
        )
    if k == 0:
        return "decays itself", f"sigma itself decays {rate}{end}"
    if p + 0.05 > k + 0.1 or p == FASTEST or proven:
        return "asymptotically polynomial", (
            f"both tails approach polynomials of degree {k - 1} at most, which the difference of order {k} with step "
            f"{shifts.steps[0]:g} removes; it decays {rate}{end}"
        )
    return "differences decay", (
        f"the tails are smooth and grow or decay slowly, and every difference gains a power of t: that of order {k} "
        f"with step {shifts.steps[0]:g} decays {rate}{end}"
    )


def _rejection(shifts: _Filter, m: int) -> Decay:
    k, end = len(shifts.steps), "; a decaying one is zero (to rounding, at all samples)"
    if shifts.coefficients:
        roots = np.abs(np.roots(shifts.coefficients[::-1]))
        if np.all(np.abs(roots - 1) < 1e-6):
            reason = "sigma is a sum of waves, so that every finite sum of its shifts is almost periodic" + end
            return Decay(False, "almost periodic", reason, m)
        reason = "sigma is a sum of exponentials, so that every finite sum of its shifts and dilations is one" + end
        kind: Kind = "exponential growth" if np.any(np.abs(roots - 1) > 1e-3) else "polynomial times almost periodic"
        return Decay(False, kind, reason, m)
    if shifts.origin == "period":
        lengths = f"{shifts.steps[0]:.12g}"
        if k == 1:
            reason = f"sigma has period {lengths}, so that every finite sum is almost periodic" + end
            return Decay(False, "almost periodic", reason, m)
        reason = f"sigma is a polynomial in t whose coefficients have period {lengths}, and every finite sum is one in "
        return Decay(False, "polynomial times almost periodic", reason + "which they are almost periodic" + end, m)
    degree = "zero" if k == 0 else f"a polynomial of degree {k - 1}"
    reason = f"sigma is {degree}, so that every finite sum is a polynomial of degree {max(k - 1, 0)} at most" + end
    return Decay(False, "polynomial", reason, m)


def _undecided(samples: _Samples, m: int) -> Decay:
    finite = float(2.0**samples.last)
    reason = (
        f"no difference (up to order {ORDERS}), period or relation of shifts makes sigma decay faster than 1 / |t|, or "
        f"vanish everywhere, above rounding: neither answer is supported by the samples"
    )
    if samples.last < SHELLS - 1:
        reason += f"; sigma is not finite in float64 beyond |t| = {finite:.0f}"
    return Decay(None, "undecided", reason, m)


# -------------------------------------------------------------------------------------------------------- measurements


class _Samples:
    """Random points of every shell, and sigma with its derivatives at their shifts."""

    def __init__(self, function: Scalar, seed: int) -> None:
        self.function = function
        generator = np.random.default_rng(seed)
        edges = np.concatenate([[0.0], 2.0 ** np.arange(SHELLS)])
        size = edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * generator.random((SHELLS, PER_SHELL))
        coarse = np.round(size * 64) / 64  # half of them exact in binary: integers and simple fractions meet here
        size[:, ::2] = coarse[:, ::2]
        self.t = np.concatenate([size, -size], axis=1)
        values = self.values(self.t, 0)
        finite = np.isfinite(values).all(1)
        if not finite[:5].all():
            bad = self.t[:5][~np.isfinite(values[:5])]
            raise InputError(
                "sigma is not finite", got=f"t = {bad[0]:g}", allowed="finite values for |t| <= 16", hint=_STABLE
            )
        self.last = SHELLS - 1 if finite.all() else int(np.argmin(finite)) - 1
        self.t = self.t[: self.last + 1]

    def values(self, t: np.ndarray, order: int) -> np.ndarray:
        return derivative(self.function, torch.from_numpy(np.ascontiguousarray(t)), order).numpy()


_STABLE = "define it at isolated points, and write it without overflow"


def derivative(function: Scalar, t: Tensor, order: int) -> Tensor:
    """The derivative of the given order at every point, by automatic differentiation."""
    if order == 0:
        with torch.no_grad():
            return function(t)
    with own_gradients():
        t = t.detach().clone().requires_grad_()
        value = function(t)
        for k in range(order):
            if not value.requires_grad:
                if k == 0:
                    hint = "take m = 0, or use torch operations"
                    raise InputError("sigma cannot be differentiated by torch", hint=hint)
                return torch.zeros_like(t)
            (value,) = torch.autograd.grad(value.sum(), t, create_graph=k + 1 < order)
        return value.detach()


@dataclass(frozen=True)
class _Measured:
    """A filtered function at the samples: its size and the estimated rounding, shell by shell."""

    t: np.ndarray
    size: np.ndarray
    noise: np.ndarray
    width: float  # the largest shift: decay is looked for beyond it

    @property
    def zero(self) -> bool:
        return bool((self.size <= _ZERO * self.noise).all())

    @property
    def nonzero(self) -> bool:
        return bool((self.size >= _NONZERO * self.noise).any())

    @property
    def seen(self) -> np.ndarray:
        """The largest value of a shell that is not rounding, or 0."""
        visible: np.ndarray = np.where(self.size > _ZERO * self.noise, self.size, 0.0).max(1)
        return visible

    @property
    def plateau(self) -> int:
        """The last shell that reaches half of the maximum, or meets a shift."""
        high = int(np.flatnonzero(self.seen >= 0.5 * self.seen.max())[-1]) if self.seen.max() > 0 else 0
        return max(high, math.ceil(math.log2(max(self.width, 0.5))) + 1)

    @property
    def deepest(self) -> int:
        """The last shell in which a decay with the exponent SLOWEST would be above rounding."""
        start, floor = self.plateau, _ZERO * np.median(self.noise, axis=1)
        allowed = self.seen.max() * 2.0 ** (-SLOWEST * (np.arange(len(floor)) - start))
        hidden = np.flatnonzero((floor > allowed) & (np.arange(len(floor)) > start))
        return int(hidden[0]) - 1 if len(hidden) else len(floor) - 1

    def reach(self) -> float:
        return float(2.0**self.deepest)

    def constant(self, p: float) -> float:
        weighted = np.where(self.size > _ZERO * self.noise, self.size, 0.0) * (1 + np.abs(self.t)) ** p
        return float(weighted.max())


def _measure(samples: _Samples, units: tuple[Unit, ...], order: int) -> _Measured:
    """|nu^(order)|, and the rounding of its terms and of their arguments."""
    total, noise = np.zeros_like(samples.t), np.zeros_like(samples.t)
    for omega, b, beta in units:
        s = omega * samples.t + b
        gap = 2.0**-51 * (np.abs(s) + abs(b))
        value, above, below = (samples.values(x, order) for x in (s, s + gap, s - gap))
        total += beta * omega**order * value
        envelope = np.maximum.accumulate(np.abs(value).max(1))[:, None]
        noise += abs(beta * omega**order) * (2 * _EPS * envelope + np.abs(above - below))
    finite = np.isfinite(total).all(1) & np.isfinite(noise).all(1)
    last = len(finite) if finite.all() else int(np.argmin(finite))
    return _Measured(samples.t[:last], np.abs(total[:last]), noise[:last] + 1e-300, max(abs(b) for _, b, _ in units))


def _slope(one: _Measured) -> float:
    """The exponent of the decay; 0 where it does not decay, nan where rounding hides whether it does."""
    if len(one.t) == 0:
        return math.nan
    if not one.seen.max() > 0:
        return math.inf  # a derivative that vanishes
    start, deepest, top = one.plateau, one.deepest, float(one.seen.max())
    shells = np.arange(len(one.seen))
    if np.any(one.seen[start + 1 :] > 8 * top * 2.0 ** (-SLOWEST * (shells[start + 1 :] - start))):
        return 0.0
    if one.reach() < LEAST_REACH or deepest < start + 6:
        return math.nan
    above = np.pad((one.seen > 0) & (shells > start), 1)
    visible = shells[above[1:-1] & (above[:-2] | above[2:])]  # a single shell is a stray value
    if len(visible) >= 6:  # an algebraic decay, or a slower one: the slope of the last shells counts
        return _algebraic_slope(visible, np.log2(one.seen[visible]))
    lost = min(int(visible[-1]) + 1 if len(visible) else start + 1, deepest)  # it falls below rounding at once
    return math.log2(top / (_ZERO * float(np.median(one.noise[lost])))) / (lost - start)


def _algebraic_slope(shells: np.ndarray, logarithms: np.ndarray) -> float:
    """The slope of the last shells; where it still falls like a + b / log t (a logarithm), its limit a."""
    late, longer = (-float(np.polyfit(shells[-n:], logarithms[-n:], 1)[0]) for n in (4, 8))
    slope = min(late, longer)
    if len(shells) < 12:
        return slope
    earlier = -float(np.polyfit(shells[-12:-8], logarithms[-12:-8], 1)[0])
    if 0.02 < earlier - late < 0.2:
        last, before = float(shells[-4:].mean()), float(shells[-12:-8].mean())
        slope = min(slope, (last * late - before * earlier) / (last - before))
    return slope


def _rounding(samples: _Samples, units: tuple[Unit, ...]) -> float:
    """The remainder of weights that are rounded to float64: 2^-52 |b| sup |sigma'|, and the rounding of beta."""
    t, total = samples.t[6:12], 0.0
    for omega, b, beta in units:
        s, width = omega * t + b, max(abs(b), 1.0) / 64
        value = samples.values(s, 0)
        slope = np.abs(samples.values(s + width, 0) - value) / width
        inexact = 0.0 if float(beta).is_integer() else float(np.abs(value).max())
        total += 2 * _EPS * abs(beta) * (abs(b) * float(slope.max()) + inexact)
    return total


# ----------------------------------------------------------------------------------------------- periods and relations


def _periods(function: Scalar) -> list[float]:
    """Candidates for the period of a tail, from its correlation with itself."""
    found: list[float] = []
    for side, width in itertools.product((1.0, -1.0), (1.0, 32.0, 512.0, 8192.0, 131072.0)):
        t = side * (64 * width + np.linspace(0, width, 4096, endpoint=False))
        raw = derivative(function, torch.from_numpy(t), 0).numpy()
        if not np.isfinite(raw).all():
            break
        for guess in _dips(raw, width / 4096):
            for period in _nearby(_polished(function, t[:1024], guess)):
                if all(abs(period - other) > 1e-14 * period for other in found):
                    found.append(period)
    return found[:12]


def _dips(raw: np.ndarray, spacing: float) -> list[float]:
    """Lags at which a detrended window repeats itself: the first, and the one at which it does so best."""
    x = np.linspace(-1, 1, len(raw))
    w = raw - np.polynomial.Polynomial.fit(x, raw, 3)(x)
    if np.abs(w).max() <= 1e-9 * max(np.abs(raw).max(), 1e-300):
        return []
    n, half = len(w), len(w) // 2
    square = np.concatenate([[0.0], np.cumsum(w * w)])
    lags = np.arange(half)
    spectrum = np.fft.rfft(w, 2 * n)
    overlap = np.fft.irfft(spectrum * spectrum.conj())[:half]
    mismatch = (square[n - lags] + square[n] - square[lags] - 2 * overlap) / np.maximum(
        square[n - lags] + square[n] - square[lags], 1e-300
    )
    risen = np.flatnonzero(mismatch > 0.5)
    if not len(risen):
        return []
    lows = [i for i in range(risen[0], half - 1) if mismatch[i] <= min(mismatch[i - 1], mismatch[i + 1], 0.05)]
    best = sorted(lows, key=lambda i: float(mismatch[i]))[:1]
    return [i * spacing for i in dict.fromkeys(lows[:1] + best)]


def _polished(function: Scalar, t: np.ndarray, period: float) -> float:
    """The shift that matches best, by least squares over more and more periods."""

    def at(s: np.ndarray) -> np.ndarray:
        return derivative(function, torch.from_numpy(s), 0).numpy()

    start, value = period, at(t)
    trend = np.stack([np.ones_like(t), (t - t[0]) / (t[-1] - t[0])], axis=1)
    for count in (1, 1, 2, 4, 16, 64, 256, 1024, 1024):
        s = t + count * period
        width = period * 1e-5
        slope = (at(s + width) - at(s - width)) / (2 * width)
        if not np.isfinite(slope).all() or np.abs(slope).max() == 0:
            break
        columns = np.concatenate([slope[:, None], trend * np.abs(slope).max()], axis=1)
        change = float(np.linalg.lstsq(columns, at(s) - value, rcond=None)[0][0]) / count
        if not abs(change) < 0.01 * period:
            break
        period -= change
    return period if abs(period - start) < 0.01 * start else start


def _nearby(period: float) -> list[float]:
    """The period; before it fractions and fractions of pi that it equals, after it those it may stand for (a jump)."""
    ratios = [(Fraction(period / base).limit_denominator(8), base) for base in (1.0, math.pi)]
    simple = [float(ratio) * base for ratio, base in ratios if ratio > 0]
    near = [x for x in simple if abs(x - period) <= 1e-8 * period]
    return [*near, period, *(x for x in simple if 1e-8 * period < abs(x - period) <= 1e-3 * period)]


def _relations(function: Scalar) -> Iterator[_Filter]:
    """The shortest linear relation between equally spaced values of both tails: exponentials and several waves.

    Longer ones are its multiples.
    """
    for order in range(1, 9):
        coefficients, residual, _ = _fit_relation(function, order, 1.0)
        if residual <= 1e-12:
            yield _Filter((_RELATION_STEP,) * order, "relation", coefficients)
            return


def _related_at_all_scales(function: Scalar, order: int) -> bool:
    """A sum of exponentials has a relation of the same order for every step; a slow function soon has none.

    Steps at which sigma overflows (exp) say nothing; nor do those for which the arguments are rounded to whole waves.
    """
    fits = [_fit_relation(function, order, 4.0**n, tails=False) for n in range(1, 51)]
    return all(residual <= 1e-12 + _ZERO * noise for _, residual, noise in fits if math.isfinite(residual))


_RELATION_STEP = 0.5


def _fit_relation(
    function: Scalar, order: int, scale: float, tails: bool = True
) -> tuple[tuple[float, ...], float, float]:
    """Coefficients, the residual relative to sigma, and the relative rounding of sigma; nan where it overflows.

    tails: fitted for 20 <= |t| <= 50; otherwise for |t| <= 10, both times the scale.
    """
    offsets = np.random.default_rng(1).random(240)
    offsets = offsets * 30 + 20 if tails else offsets * 10
    starts = np.concatenate([offsets, -offsets])[:, None]
    s = scale * (starts + _RELATION_STEP * (np.arange(order + 1) - order / 2))
    rows, above, below = (
        derivative(function, torch.from_numpy(x), 0).numpy() for x in (s, s * (1 + 2**-51), s * (1 - 2**-51))
    )
    size = np.abs(rows).max(1)
    if not np.isfinite(rows + above + below).all() or not (size > 0).any():
        return (), math.nan, math.nan
    present = size > 0
    _, singular, right = np.linalg.svd(rows[present] / size[present, None], full_matrices=False)
    noise = np.abs(above - below)[present] / size[present, None]
    coefficients = right[-1] / np.abs(right[-1]).max()
    return tuple(coefficients.tolist()), float(singular[-1] / singular[0]), _EPS + float(np.median(noise))


# --------------------------------------------------------------------------------------------------------------- input


def _resolve(sigma: Scalar | Function | Activation | str) -> Scalar:
    """The function, checked: an elementwise, deterministic map of float64 tensors."""
    if isinstance(sigma, str):
        known: dict[str, Activation | Scalar] = {**FEATURES, **ACTIVATIONS}
        if sigma not in known:
            raise InputError("unknown activation", got=repr(sigma), allowed=", ".join([*ACTIVATIONS, "cos", "exp"]))
        sigma = known[sigma]
    if isinstance(sigma, Activation):
        sigma = sigma.r
    kind = "a map of float64 tensors, a Function, an Activation or the name of one"
    if not callable(sigma):
        raise InputError("sigma is not a function", got=type(sigma).__name__, allowed=kind)
    t = torch.linspace(-3.0, 3.5, 14, dtype=torch.float64)
    try:
        value, again = sigma(t), sigma(t.flip(0))
    except Exception as error:
        raise InputError("sigma fails on a float64 tensor", got=f"{type(error).__name__}: {error}", allowed=kind) from (
            error
        )
    if not isinstance(value, Tensor) or value.dtype != torch.float64 or value.shape != t.shape:
        got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError("sigma must return float64 of its argument's shape", got=got, hint="convert: .to(t.dtype)")
    if not torch.allclose(value.flip(0), again, rtol=1e-12, atol=1e-14, equal_nan=True):
        raise InputError("sigma must act on each entry alone", got="values that change with the order of the entries")
    return sigma


def _check_asymptotes(f: Function) -> None:
    """A declared asymptote is verified: the distance to it does not grow outwards."""
    for side, asymptote in ((-1.0, f.left), (1.0, f.right)):
        if asymptote is not None and not _approaches(f, side, asymptote):
            line = f"{asymptote.slope:g} t + {asymptote.intercept:g}"
            raise InputError(
                f"{f.name} does not approach its declared {'right' if side > 0 else 'left'} asymptote",
                got=line,
                hint=f"f(t) minus the asymptote must be monotone, with limit 0, from {asymptote.beyond:g} outwards",
            )


def _approaches(f: Function, side: float, asymptote: Asymptote) -> bool:
    t = asymptote.beyond + side * torch.cat([torch.zeros(1), 2.0 ** torch.arange(-4, 21)]).to(torch.float64)
    line = asymptote.slope * t + asymptote.intercept
    value = derivative(f, t, 0)
    rest, rounding = (value - line).abs(), 16 * _EPS * (1 + value.abs() + line.abs())
    smaller = bool((rest[1:] <= rest[:-1] + rounding[1:]).all())
    return smaller and float(rest[-1]) <= 0.5 * float(rest[0]) + float(rounding[-1])


def _irregularity(function: Scalar, m: int) -> str | None:
    """Why sigma is not in W^(m,inf)_loc, as far as [-16, 16] shows: a pole, or a derivative that is not Lipschitz."""
    for k in range(max(m, 1)):
        for where, pole in _rough_points(function, k):
            what = "sigma" if k == 0 else f"the derivative of order {k} of sigma"
            if pole or m > k:
                wrong = "unbounded near" if pole else "not Lipschitz at"
                return f"{what} is {wrong} t = {where:.6g}, so that sigma is not in W^({m},inf)_loc"
    return None


def _rough_points(function: Scalar, order: int) -> Iterator[tuple[float, bool]]:
    """Points at which the derivative of the given order is not Lipschitz (a jump, a cusp), and whether it is unbounded.

    Around the steepest steps of a grid, finer grids, down to a width of 1e-9: there the slope keeps growing, and at a
    pole the values do.
    """
    edges = torch.linspace(-16.013, 16.017, 2**17 + 1, dtype=torch.float64)
    for cell in derivative(function, edges, order).diff().abs().topk(8).indices.tolist():
        low, high = float(edges[max(cell - 1, 0)]), float(edges[min(cell + 2, len(edges) - 1)])
        rises, slopes, sizes = [], [], []
        for _ in range(14):
            points = torch.linspace(low, high, 9, dtype=torch.float64)
            values = derivative(function, points, order)
            steepest = int(values.diff().abs().argmax())
            rises.append(float(values.diff().abs().amax()))
            slopes.append(rises[-1] * 8 / (high - low))
            sizes.append(float(values.abs().amax()))
            low, high = float(points[max(steepest - 1, 0)]), float(points[min(steepest + 2, 8)])
        if slopes[-1] > 4 * slopes[-7] and rises[-1] > 1e-6 * max(1.0, sizes[0]):
            yield round(low, 8) + 0.0, sizes[-1] > 4 * sizes[-7]
