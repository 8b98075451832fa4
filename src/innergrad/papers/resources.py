"""The size of a transformer that learns a function in context *through* a network: calculators for Theorems 2, 3 and 4
of *Transformers Perform In-Context Learning through Neural Networks*, with every hidden constant an input.

A network of n layers (weight matrices) and width K is a bridge: it can approximate the function, and a transformer can
train it. The transformer's size is its number of "parameter matrices", layers x heads. Theorem 2 has O(n^2) layers of
O(n K^2) heads, so

    size = n^3 K^2      (the proof of Theorem 3 prints n^2 K^2; Theorem 4 has n^3)

times the terms M = O(eps_g^-2) of an approximant at the accuracy eps_g of the gradient, a common factor that both
theorems leave out. In back-propagation order, with the products of the chain rule in MLPs (O(n K^2) units) and in the
values of heads, O(n) layers of O(K) heads do:

    size = n K

Numbers like exp(10^25) are ordinary here, so everything is computed as a logarithm: :class:`Amount`. With
t = ln(1/eps), the difference of two ln(size) is convex (Theorem 3) or concave (Theorem 4) in t: it changes sign at most
twice, and :func:`crossings` finds where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from innergrad.errors import InputError, integer, real

# ------------------------------------------------------------------------------------------------ numbers as logarithms


@dataclass(frozen=True, order=True)
class Amount:
    """The positive number exp(ln), which need not fit into a float."""

    ln: float

    @property
    def log10(self) -> float:
        return self.ln / math.log(10.0)

    @property
    def value(self) -> float:
        """As a float: inf, or 0, where it does not fit."""
        return _exp(self.ln)

    def __str__(self) -> str:
        if math.isinf(self.ln):
            return "0" if self.ln < 0.0 else "infinite"
        if abs(self.log10) >= 1e6:
            return f"10^({_short(self.log10)})"
        if abs(self.log10) >= 300.0:
            return f"10^{self.log10:.0f}"
        if -3.0 < self.log10 < 5.0:
            return f"{self.value:.3g}" if self.value < 999.5 else f"{self.value:,.0f}"
        return _short(self.value)

    def to_json(self) -> dict[str, float | None]:
        """The number, None where it does not fit into a float, and its logarithm."""
        fits = math.isfinite(self.value) and self.value > 0.0
        return {"value": self.value if fits else None, "log10": self.log10 if math.isfinite(self.ln) else None}


def _exp(x: float) -> float:
    return math.inf if x > 709.0 else math.exp(x)


def _short(x: float) -> str:
    """Two digits, and an exponent without leading zeros: 2.7e43."""
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


# ------------------------------------------------------------------------------------------ Theorem 2: layers and heads


LARGEST = 10**9  # of whole numbers


@dataclass(frozen=True)
class Monomial:
    """n^a K^b M^c."""

    a: int
    b: int
    c: int

    def __call__(self, n: int, K: Amount, M: Amount) -> Amount:
        return Amount(self.a * math.log(n) + self.b * K.ln + self.c * M.ln)

    def __str__(self) -> str:
        powers = (("n", self.a), ("K", self.b), ("M", self.c))
        return " ".join(name if power == 1 else f"{name}^{power}" for name, power in powers if power)


@dataclass(frozen=True)
class Route:
    """One way to a gradient step on an n-layer network of width K, with M terms an approximant.

    layers(n); heads of the widest layer; width: of the MLPs in Neural Networks, else of the residual stream, where
    the weights are.
    """

    name: str
    layers: Callable[[int], int]
    heads: Monomial
    width: Monomial


def recursion_layers(n: int) -> int:
    """a_n = (n^2 + 3n - 6)/2, Theorem 2: a_2 = 2. The gradient of an n-layer network by that of its first n - 1 layers
    takes n - 1 forward layers, a_{n-1} and two more. So a_n = a_{n-1} + n + 1.
    """
    return (n * n + 3 * n - 6) // 2


def backprop_layers(n: int) -> int:
    """2n - 1: n - 1 forward, n - 1 backward, one update; for n = 2 the update does the backward layer's work."""
    return 2 if n == 2 else 2 * n - 1


# A layer is attention and the MLP behind it, as in Neural Networks; Deep Optimizers counts both, and has 2n + 4.
ROUTES = (
    Route("Neural Networks, as printed", recursion_layers, Monomial(1, 2, 1), Monomial(1, 2, 1)),
    Route("Neural Networks, heads counted", recursion_layers, Monomial(1, 3, 1), Monomial(1, 3, 0)),
    Route("Deep Optimizers", lambda n: 2 * n + 2, Monomial(0, 1, 1), Monomial(1, 2, 0)),
    Route("target softmax, sink", lambda n: 2 * n + 1, Monomial(0, 1, 1), Monomial(1, 2, 0)),
    Route("target sigma, backprop", backprop_layers, Monomial(0, 1, 1), Monomial(1, 2, 0)),
)


@dataclass(frozen=True)
class RouteCost:
    """Layers, heads of the widest layer, width, and layers x heads of one way."""

    route: str
    layers: int
    heads: Amount
    heads_order: str
    width: Amount
    width_order: str
    size: Amount


@dataclass(frozen=True)
class Pair:
    """A network that the budget of heads allows: n K^2 M of at most that many heads."""

    depth: int
    width: Amount
    product: Amount
    routes: tuple[RouteCost, ...]


@dataclass(frozen=True)
class TradeOff:
    """Theorem 2: networks (n, K) with n K^2 constant, which transformers with equally many heads can train."""

    eps: float
    terms: Amount
    heads: Amount
    network: tuple[int, int] | None
    pairs: tuple[Pair, ...]


def trade_off(
    eps: float,
    *,
    depth: int | None = None,
    width: int | None = None,
    heads: float | None = None,
    c: float = 1.0,
    deepest: int = 8,
) -> TradeOff:
    """The networks of 2 to ``deepest`` layers that cost as many heads, n K^2 M with M = c eps^-2, as the network of
    ``depth`` and ``width``, or as ``heads`` allows.

    The width for n layers is the largest integer K with n K^2 M <= heads.
    """
    t, ln_c = _t(eps), math.log(real("c", c, above=0.0, ordinary=False))
    ln_M = ln_c + 2.0 * t
    if (heads is None) == (depth is None and width is None) or (depth is None) != (width is None):
        raise InputError("give either a network, depth and width, or a budget of heads", hint="--depth 3 --width 16")
    network = None
    if depth is not None and width is not None:
        network = (integer("depth", depth, low=2, high=LARGEST), integer("width", width, high=LARGEST))
        ln_product = math.log(network[0]) + 2.0 * math.log(network[1])
    else:
        ln_product = math.log(real("heads", heads, above=0.0, ordinary=False)) - ln_M
        if ln_product < math.log(2.0) - 1e-12:
            raise InputError(
                "the budget of heads is too small for any network", got=heads, allowed=f"at least 2 M = {_times2(ln_M)}"
            )
    depths = sorted({*range(2, deepest + 1), *([network[0]] if network else [])})
    widths = {n: _widest(n, ln_product) for n in depths}
    pairs = tuple(_pair(n, K, Amount(ln_M)) for n, K in widths.items() if K.ln >= 0.0)
    return TradeOff(eps, Amount(ln_M), Amount(ln_product + ln_M), network, pairs)


def _times2(ln: float) -> Amount:
    return Amount(ln + math.log(2.0))


def _widest(n: int, ln_product: float) -> Amount:
    """The largest whole K with n K^2 <= exp(ln_product); beyond 2^53 wholeness is below rounding."""
    ln_K = 0.5 * (ln_product - math.log(n))
    if ln_K > 53 * math.log(2.0):
        return Amount(ln_K)
    K = math.floor(math.exp(ln_K) * (1.0 + 1e-12))
    return Amount(math.log(K) if K >= 1 else -math.inf)


def _pair(n: int, K: Amount, M: Amount) -> Pair:
    routes = []
    for route in ROUTES:
        layers, heads, width = route.layers(n), route.heads(n, K, M), route.width(n, K, M)
        size = Amount(math.log(layers) + heads.ln)
        routes.append(RouteCost(route.name, layers, heads, str(route.heads), width, str(route.width), size))
    return Pair(n, K, Monomial(1, 2, 0)(n, K, M), tuple(routes))


# ------------------------------------------------------------------------------------------------ two bridges, compared

Bound = Literal["at least", "at most", "none"]
Name = Literal["A", "B"]


@dataclass(frozen=True)
class Bridge:
    """A network between function and transformer, and the size of the transformer that trains it.

    bound: the lemma's statement about the width, and so about the sizes: at least, at most, or nothing.
    printed: the theorem's own order, its constants one; size: n^3 K^2; backprop: n K.
    """

    layers: float
    width: Amount
    bound: Bound
    printed: Amount
    size: Amount
    backprop: Amount


@dataclass(frozen=True)
class Comparison:
    """Both bridges at one accuracy. ``smaller`` has the smaller number of n^3 K^2; it *is* the smaller transformer only
    if ``decided``: a number that bounds from below lies above one that bounds from above.
    """

    eps: float
    d: float
    A: Bridge
    B: Bridge
    smaller: Name | None
    decided: bool


@dataclass(frozen=True)
class Interval:
    """Accuracies low < eps < high, where this bridge has the smaller number, or neither; low = 0 is Amount(-inf)."""

    low: Amount
    high: Amount
    smaller: Name | None
    decided: bool


@dataclass(frozen=True)
class Verdict:
    """The comparison over all accuracies: of the widths, of n^3 K^2, and of the size in back-propagation order."""

    width: tuple[Interval, ...]
    size: tuple[Interval, ...]
    backprop: tuple[Interval, ...]
    note: str


@dataclass(frozen=True)
class Result:
    """A theorem at some accuracies, in one regime of the dimension."""

    theorem: str
    regime: str
    rows: tuple[Comparison, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Rule:
    """size = n^a K^b."""

    a: int
    b: int

    def ln(self, n: float, ln_K: float) -> float:
        return self.a * math.log(n) + self.b * ln_K


WIDTH, SIZE, BACKPROP = Rule(0, 1), Rule(3, 2), Rule(1, 1)


def _bridge(n: float, ln_K: float, bound: Bound, printed: float) -> Bridge:
    return Bridge(n, Amount(ln_K), bound, Amount(printed), Amount(SIZE.ln(n, ln_K)), Amount(BACKPROP.ln(n, ln_K)))


def _compare(eps: float, d: float, A: Bridge, B: Bridge) -> Comparison:
    if "none" in (A.bound, B.bound):
        return Comparison(eps, d, A, B, None, False)
    smaller: Name = "A" if A.size < B.size else "B"
    return Comparison(eps, d, A, B, smaller, _decided(smaller, A.bound, B.bound))


def _decided(smaller: Name | None, of_A: Bound, of_B: Bound) -> bool:
    return smaller is not None and (of_A, of_B) == (
        ("at most", "at least") if smaller == "A" else ("at least", "at most")
    )


def _t(eps: object) -> float:
    """ln(1/eps)."""
    number = real("eps", eps, above=0.0, ordinary=False)
    if number >= 1.0:
        raise InputError("eps must be less than 1", got=f"{number:g}", allowed="0 < eps < 1")
    return -math.log(number)


# ----------------------------------------------------------------------------------------- Theorem 3: balls' indicators


@dataclass(frozen=True)
class BallConstants:
    """Lemma 1: d > c1, error >= c2 / d^4 for every 2-layer network of width <= c3 exp(c4 d). (Printed: c2 for c3.)
    Lemma 2: a 3-layer network of width max(8 c_sigma d^2 / eps, c_sigma sqrt(1 / (2 eps))) has error eps. (Printed:
    8 c_sigma d^2 / sigma.)
    """

    c1: float = 1.0
    c2: float = 1.0
    c3: float = 1.0
    c4: float = 1.0
    c_sigma: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c1", "c2", "c3", "c4", "c_sigma"):
            real(name, getattr(self, name), above=0.0, ordinary=False)

    def ln_shallow(self, ln_d: float) -> float:
        """ln of the width that a 2-layer network must exceed, c3 exp(c4 d)."""
        return math.log(self.c3) + self.c4 * _exp(ln_d)

    def ln_deep(self, ln_d: float, t: float) -> float:
        """ln of the width that 3 layers need at most."""
        return math.log(self.c_sigma) + max(math.log(8.0) + 2.0 * ln_d + t, 0.5 * (t - math.log(2.0)))

    def ln_coupled(self, t: float) -> float:
        """ln d, d = (c2/eps)^(1/4): the largest dimension in which Lemma 1 forbids error eps."""
        return 0.25 * (math.log(self.c2) + t)


def indicator(eps: Iterable[float], d: int | None = None, constants: BallConstants | None = None) -> Result:
    """Theorem 3: the indicator of a ball in R^d through 2 layers (A) or 3 (B).

    As printed, widths exp(eps^-1/4) and eps^-1 give sizes exp(2 eps^-1/4) and eps^-1. But K_B = O(eps^-1) squared is
    O(eps^-2), and Lemma 1 bounds K_A from *below*, and only where eps < c2 / d^4. Two readings are consistent:

    - d fixed: K_A > c3 exp(c4 d), which does not grow as eps -> 0, and TF_B = O(eps^-2). TF_B is smaller between the
      two accuracies where the bounds meet, if there are any, and nothing is known below.
    - d = None: coupled, d = (c2/eps)^(1/4), the largest that Lemma 1 allows: K_A > c3 exp(c4 (c2/eps)^(1/4)), but now
      K_B = 8 c_sigma d^2 / eps = O(eps^-3/2) and TF_B = O(eps^-3).
    """
    known, ts = constants or BallConstants(), [(number, _t(number)) for number in eps]
    ln_fixed = None if d is None else math.log(integer("d", d, high=LARGEST))

    def bridges(t: float) -> tuple[float, Bridge, Bridge]:
        ln_d = known.ln_coupled(t) if ln_fixed is None else ln_fixed
        applies = ln_d > math.log(known.c1) and 0.0 <= ln_d <= known.ln_coupled(t) + 1e-12
        A = _bridge(2, known.ln_shallow(ln_d), "at least" if applies else "none", 2.0 * _exp(0.25 * t))
        return ln_d, A, _bridge(3, known.ln_deep(ln_d, t), "at most", t)

    rows = []
    for number, t in ts:
        ln_d, A, B = bridges(t)
        rows.append(_compare(number, _exp(ln_d), A, B))
    return Result(
        "neural-networks-3",
        "d coupled to eps" if d is None else f"d = {d}",
        tuple(rows),
        _ball_verdict(known, ln_fixed),
    )


def _ball_verdict(known: BallConstants, ln_fixed: float | None) -> Verdict:
    ln_smallest = max(0.0, math.log(known.c1)) if ln_fixed is None else ln_fixed
    start = max(0.0, 4.0 * ln_smallest - math.log(known.c2))  # Lemma 1 from here on, where d <= (c2/eps)^(1/4)
    if ln_fixed is not None and ln_fixed <= math.log(known.c1):
        return Verdict((), (), (), f"Lemma 1 says nothing: it is about d > c1 = {known.c1:g}")
    # coupled: d/dt of ln(K_A) - ln(K_B) is c4 d / 4 - 3/2, from d >= 1 on; fixed: it is negative
    turning = start if ln_fixed is not None else 4.0 * math.log(6.0 / known.c4) - math.log(known.c2)

    def intervals(rule: Rule) -> tuple[Interval, ...]:
        def excess(t: float) -> float:
            ln_d = known.ln_coupled(t) if ln_fixed is None else ln_fixed
            return rule.ln(2, known.ln_shallow(ln_d)) - rule.ln(3, known.ln_deep(ln_d, t))

        return _intervals(excess, start, turning, "at least", "at most")

    note = f"Lemma 1 says nothing for eps > {Amount(-start)}" if start > 0.0 else ""
    return Verdict(intervals(WIDTH), intervals(SIZE), intervals(BACKPROP), note)


# ------------------------------------------------------------------------------------------ Theorem 4: smooth functions


@dataclass(frozen=True)
class SmoothConstants:
    """Lemma 3: depth c_lemma3 (ln(1/eps) + 1), width c_lemma3 eps^(-d/s). Lemma 4: width c_lemma4 eps^(-1/(2(L-1)))."""

    c_lemma3: float = 1.0
    c_lemma4: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c_lemma3", "c_lemma4"):
            real(name, getattr(self, name), above=0.0, ordinary=False)


def smooth(eps: Iterable[float], d: int, s: int, depth: int, constants: SmoothConstants | None = None) -> Result:
    """Theorem 4: a function of smoothness s on [0, 1]^d through a deep narrow network (A) or one of ``depth`` L (B).

    A: at most c (t + 1) layers, t = ln(1/eps), of width c eps^(-d/s); TF_A = O(ln^3(1/eps) eps^(-2d/s)).
    B: L layers of width at least c eps^(-1/(2(L-1))); TF_B = O(eps^(-1/(L-1))).

    Lemma 4 follows from counting pieces: h hidden layers of U units in all make at most (2U)^h of them on a line, and a
    curved function needs eps^-1/2. L weight matrices are L - 1 hidden layers: the exponent is right for Definition 4.
    With 2(L-1)d < s TF_A is smaller as eps -> 0; because of the ln^3, only below a crossover.
    """
    d, s = integer("d", d, high=LARGEST), integer("s", s, low=3, high=LARGEST)
    L = integer("depth", depth, low=2, high=LARGEST)
    known, ts = constants or SmoothConstants(), [(number, _t(number)) for number in eps]
    c_A, c_B = math.log(known.c_lemma3), math.log(known.c_lemma4)

    rows = []
    for number, t in ts:
        A = _bridge(known.c_lemma3 * (t + 1.0), c_A + d / s * t, "at most", 3.0 * math.log(t) + 2.0 * d / s * t)
        B = _bridge(L, c_B + t / (2 * (L - 1)), "at least", t / (L - 1))
        rows.append(_compare(number, d, A, B))

    gain = 2 * (L - 1) * d
    rate = (s - gain) / (s * (L - 1))  # of ln(TF_B) - ln(TF_A), up to logarithms: 1/(L-1) - 2d/s

    def intervals(rule: Rule) -> tuple[Interval, ...]:
        constant = rule.a * (c_A - math.log(L)) + rule.b * (c_A - c_B)

        def excess(t: float) -> float:
            return constant + rule.a * math.log(t + 1.0) - 0.5 * rule.b * rate * t

        turning = 2 * rule.a / (rule.b * rate) - 1.0 if rate > 0.0 else math.inf  # its derivative is zero there
        return _intervals(excess, 0.0, turning, "at most", "at least")

    note = f"2(L-1)d = {gain} {'<' if gain < s else '>='} s = {s}: smaller as eps -> 0 is {'A' if gain < s else 'B'}"
    verdict = Verdict(intervals(WIDTH), intervals(SIZE), intervals(BACKPROP), note)
    return Result("neural-networks-4", f"d = {d}, s = {s}, L = {L}", tuple(rows), verdict)


# ----------------------------------------------------------------------------------------------------------- crossovers

FARTHEST = 1e300  # of t = ln(1/eps)


def crossings(f: Callable[[float], float], start: float, turning: float) -> tuple[float, ...]:
    """All t > start where f changes its sign, f being monotone on both sides of ``turning``."""
    ends = [start, *([turning] if start < turning < FARTHEST else []), FARTHEST]
    found = []
    for low, high in pairwise(ends):
        sign, step = f(low) > 0.0, 1.0
        while low + step < high and (f(low + step) > 0.0) == sign:
            step *= 2.0
        reach = min(low + step, high)
        if (f(reach) > 0.0) != sign:
            found.append(_bisect(f, low, reach))
    return tuple(found)


def _bisect(f: Callable[[float], float], low: float, high: float) -> float:
    sign = f(low) > 0.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (f(middle) > 0.0) == sign else (low, middle)
    return 0.5 * (low + high)


def _intervals(
    f: Callable[[float], float], start: float, turning: float, of_A: Bound, of_B: Bound
) -> tuple[Interval, ...]:
    """Where f = ln(size of A) - ln(size of B) is negative or positive, from the coarsest eps to the finest."""
    later = (t for t in crossings(f, start, turning) if t > start + 1e-9)  # not the rounding of a tie at the start
    ends = [start, *later, math.inf]
    parts = []
    for low, high in pairwise(ends):
        inside = low + 1.0 if high == math.inf else 0.5 * (low + high)
        smaller: Name | None = "A" if f(inside) < 0.0 else "B" if f(inside) > 0.0 else None
        parts.append(Interval(Amount(-high), Amount(-low), smaller, _decided(smaller, of_A, of_B)))
    return tuple(parts)


# ----------------------------------------------------------------------------------------------------------------- JSON


def to_json(item: object) -> Any:
    """Results as JSON: amounts by value and logarithm, dataclasses by name."""
    if isinstance(item, Amount):
        return item.to_json()
    if isinstance(item, list | tuple):
        return [to_json(part) for part in item]
    if hasattr(item, "__dataclass_fields__"):
        return {name: to_json(getattr(item, name)) for name in item.__dataclass_fields__}
    if isinstance(item, float) and not math.isfinite(item):
        return None
    return item
