"""Three ways to multiply two numbers that a token holds, inside a transformer of target relu.

    product     an element-wise multiplication layer:   dst += <W_Q h, W_K h> W_V h               one head
    selecting   ReLU attention that sees its own token: dst += relu(x) y - relu(-x) y             two heads
    squares     an MLP:  x y = s((x + y) / 2) - s((x - y) / 2),  s(t) = t^2 made piecewise linear, proven error

Writes results/products.json and docs/products.png and prints the tables (two minutes, one thread); ``--draw``: only
the figure and the tables, from stored results. Everything is computed by the matrices of the built layers; the exact
products are rational arithmetic on the very numbers that the layers were given.

A range belongs to ``selecting`` (of the one factor that is in the score) and to ``squares`` (of both). ``accuracy`` of
``squares`` is a proven bound on the error of a product, relative to the product of the two ranges.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import innergrad as ig
from _results import read, store
from innergrad import figures
from innergrad.errors import DomainError
from innergrad.figures import BLUE, DARK, GREENS, GREY, ORANGE
from innergrad.functions.approximants import approximate
from innergrad.functions.derived import within
from innergrad.functions.scalar import IDENTITY, Function, PiecewiseLinear
from innergrad.interpret import plain
from innergrad.ir.program import Attend, Layer, Loop, Program, Score, View
from innergrad.ir.stream import Lane, State, example_stream
from innergrad.model.cost import LayerCost, cost_of
from innergrad.model.prompt import signs
from innergrad.targets import TARGETS, LoopedTransformer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = Path(__file__).parent.parent / "docs" / "products.png"
SQUARE = Function("square", lambda t: t * t, curvature=2.0, lipschitz=2.0, bound=1.0, radius=1.0)  # on [-1, 1]
DTYPES = {"float64": torch.float64, "float32": torch.float32}
SCALES = tuple(10.0**k for k in range(-3, 4))
WIDEST = 1024.0  # the range of a layer that takes all scales
DEPTH = 12
FACTOR = math.sqrt(2.0)  # of a chain: from 1/sqrt(2) to sqrt(2), of either sign
TOKENS, PROMPTS = 64, 64
LENGTHS = (8, 64, 512)


# --------------------------------------------------------------------------------------------------------- the programs


@dataclass(frozen=True)
class Method:
    """A way to multiply; accuracy: of ``squares``."""

    name: str
    accuracy: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.name}, {self.accuracy:.0e}" if self.accuracy else self.name

    def layer(self, j: int, factor: float, other: float) -> Layer:
        """p_j = f_j p_{j-1}, entry by entry; |f_j| <= factor and |p_{j-1}| <= other, both powers of two."""
        name, dst, f, p = f"product {j}", f"p{j}[k]", f"f{j}", _running(j - 1)
        if self.name == "product":
            return Layer("product", name, (Attend(dst, Score(IDENTITY, (f"{f}[k]", "one")), value=f"{p}[k]"),))
        if self.name == "selecting":
            score = Score(within(IDENTITY, factor), (f"{f}[k]", "one"))
            return Layer("attention", name, (Attend(dst, score, value=f"{p}[k]"),))

        def half(sign: float) -> Attend:
            mean = (View(f, ("k",), 0.5 / factor), View(p, ("k",), 0.5 * sign / other))
            return Attend(dst, Score(SQUARE, (mean, "one")), scale=sign * factor * other)

        return Layer("mlp", name, (half(1.0), half(-1.0)))


METHODS = (Method("product"), Method("selecting"), *(Method("squares", a) for a in (1e-2, 1e-4, 1e-6)))


def _running(j: int) -> str:
    return f"p{j}" if j else "x"


@dataclass(frozen=True)
class Chain:
    """x f_1 f_2 ... f_d, one factor a layer, ``width`` of them side by side. ranges: of f_j and p_{j-1}, by layer."""

    method: Method
    ranges: tuple[tuple[float, float], ...]
    width: int = 1
    tokens: int = TOKENS

    @cached_property
    def program(self) -> Program:
        depth, K = len(self.ranges), self.width
        lanes = [Lane(f"f{j}", (K,), "input") for j in range(1, depth + 1)]
        lanes += [Lane(f"p{j}", (K,), "state", shared=False) for j in range(1, depth + 1)]
        if self.method.name == "selecting":
            lanes.append(Lane("bits", (int(math.log2(self.tokens)),), "input", bound=1.0))
        layers = tuple(self.method.layer(j, *pair) for j, pair in enumerate(self.ranges, start=1))
        return Program(example_stream(K, K, *lanes), (Loop(1, layers),), (), f"p{depth}", length=self.tokens)

    @cached_property
    def functions(self) -> dict[str, PiecewiseLinear]:
        epsilon = self.method.accuracy / 2 or 1e-3  # of the two squares; the identity needs none
        return {name: approximate(f, epsilon, f.radius) for name, f in self.program.functions().items()}

    @cached_property
    def module(self) -> LoopedTransformer:
        return TARGETS["relu"].lower(self.program, self.functions, ig.Options())

    @property
    def cost(self) -> tuple[LayerCost, ...]:
        relu, options = TARGETS["relu"], ig.Options()
        counts = relu.foreseen(self.program, self.functions, options)
        assert counts is not None
        return cost_of(self.program, options, counts, {}).rows

    def module_for(self, dtype: torch.dtype) -> LoopedTransformer:
        return copy.deepcopy(self.module).to(dtype)

    def state(self, factors: list[Tensor]) -> State:
        """factors: x, f_1, ..., f_d, each (prompts, tokens, width)."""
        prompts, tokens = factors[0].shape[:2]
        lanes = {"x" if j == 0 else f"f{j}": values for j, values in enumerate(factors)}
        lanes["one"] = factors[0].new_ones(prompts, tokens)
        position = torch.arange(tokens, dtype=factors[0].dtype).expand(prompts, tokens)
        lanes["bits"] = signs(position, int(math.log2(self.tokens)))
        stream = self.program.stream
        return {
            lane.name: lanes.get(lane.name, factors[0].new_zeros(prompts, tokens, *lane.shape)) for lane in stream.lanes
        }

    def run(self, factors: list[Tensor]) -> State:
        """The lanes after all layers of the module, in the dtype of the factors."""
        stream = self.program.stream
        with torch.no_grad():
            return stream.unpack(self.module_for(factors[0].dtype)(stream.pack(self.state(factors))))

    def check(self, factors: list[Tensor]) -> None:
        """What every run of a compiled transformer does before a dense layer: DomainError outside the ranges."""
        for _ in plain.run(self.program, self.state(factors), self.functions):
            pass


def power_of_two(least: float) -> float:
    return 2.0 ** math.ceil(math.log2(least))


# ---------------------------------------------------------------------------------------------------------------- error


def fractions(values: Tensor) -> Iterator[Fraction]:
    return map(Fraction, values.double().flatten().tolist())


def exact_products(factors: list[Tensor]) -> list[Fraction]:
    return [math.prod(group, start=Fraction(1)) for group in zip(*map(fractions, factors), strict=True)]


def largest_error(found: Tensor, factors: list[Tensor]) -> float:
    return max(abs(float(a - b)) for a, b in zip(fractions(found), exact_products(factors), strict=True))


def summary(errors: Iterable[float]) -> dict[str, float]:
    found = list(errors)
    return {"max": max(found), "median": statistics.median(found)}


def uniform(shape: tuple[int, ...], scale: float, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)).to(dtype)


def scales() -> list[dict[str, Any]]:
    """One product of numbers uniform in [-scale, scale]; error relative to scale^2."""
    rows = []
    for name, dtype in DTYPES.items():
        for scale in SCALES:
            pair = [uniform((PROMPTS, TOKENS, 1), scale, dtype, seed) for seed in (0, 1)]
            exact = exact_products(pair)
            for method in METHODS:
                fitted = power_of_two(scale)
                for kind, R in (("fitted", fitted), ("fixed", WIDEST)):
                    if method.name == "product" and kind == "fixed":
                        continue
                    chain = Chain(method, ((R, R),))
                    chain.check(pair)
                    found = fractions(chain.run(pair)["p1"])
                    errors = (abs(float(a - b)) / scale**2 for a, b in zip(found, exact, strict=True))
                    rows.append(_named(method, name, scale=scale, range=kind, R=R, **summary(errors)))
    return rows


def _named(method: Method, dtype: str, **rest: Any) -> dict[str, Any]:
    return {"method": method.name, "accuracy": method.accuracy or None, "dtype": dtype, **rest}


def chain_factors(dtype: torch.dtype) -> list[Tensor]:
    """Thirteen factors, log-uniform from 1/sqrt(2) to sqrt(2), of random signs."""
    shape = (PROMPTS, TOKENS, 1)
    sizes = [FACTOR ** uniform(shape, 1.0, torch.float64, seed) for seed in range(DEPTH + 1)]
    sides = [uniform(shape, 1.0, torch.float64, 100 + seed).sign() for seed in range(DEPTH + 1)]
    return [(size * side).to(dtype) for size, side in zip(sizes, sides, strict=True)]


def chain(method: Method) -> Chain:
    """Ranges known beforehand: a factor is at most sqrt(2), a product of j at most 2^(j/2)."""
    return Chain(method, tuple((2.0, power_of_two(1.001 * FACTOR**j)) for j in range(1, DEPTH + 1)))


def depths() -> list[dict[str, Any]]:
    """Products of d + 1 factors of size about one, one factor a layer; error relative to the product."""
    rows = []
    for name, dtype in DTYPES.items():
        factors = chain_factors(dtype)
        exact = [exact_products(factors[: d + 1]) for d in range(1, DEPTH + 1)]
        for method in METHODS:
            built = chain(method)
            built.check(factors)
            after = built.run(factors)
            for d in range(2, DEPTH + 1, 2):
                found = fractions(after[f"p{d}"])
                errors = (abs(float(a / b - 1)) for a, b in zip(found, exact[d - 1], strict=True))
                rows.append(_named(method, name, depth=d, **summary(errors)))
    return rows


def outside() -> list[dict[str, Any]]:
    """One token in 64 beyond the range R = 1: what a run says, and the error of the product if nobody had said it."""
    rows = []
    for method in METHODS:
        built = Chain(method, ((1.0, 1.0),))
        for beyond in (1.0, 1.25, 2.0, 8.0):
            pair = [uniform((PROMPTS, TOKENS, 1), 1.0, torch.float64, seed) for seed in (0, 1)]
            for values in pair:
                values[:, 0] = beyond
            found, exact = built.run(pair)["p1"], pair[0] * pair[1]
            error = (found - exact).abs()
            try:
                built.check(pair)
                said = ""
            except DomainError as stopped:
                said = str(stopped)
            worst = {"token": float(error[:, 0].max()) / beyond**2, "others": float(error[:, 1:].max())}
            rows.append(_named(method, "float64", beyond=beyond, **worst, says=said))
    return rows


# ------------------------------------------------------------------------------------------------------- size and time


def sizes() -> list[dict[str, Any]]:
    """Of one product: what is added to the transformer by one more."""
    rows = []
    for method in METHODS:
        one, two = (Chain(method, ((1.0, 1.0),), width=width).cost[0] for width in (1, 2))
        lanes = int(math.log2(TOKENS)) if method.name == "selecting" else 0
        rows.append(
            {
                "method": method.name,
                "accuracy": method.accuracy or None,
                "kind": one.kind,
                "layers": 1,
                "heads": two.heads - one.heads,
                "nonzeros": two.nonzeros - one.nonzeros,
                "position_lanes": lanes,
            }
        )
    return rows


def least_time(work: Callable[[], object], repeats: int = 15, at_least: float = 0.02) -> float:
    """Seconds of one call, the least of the repeats, each at least 20 ms long. Of the processor's time, on one thread:
    what else the machine does at the same time does not count.
    """
    clock = time.process_time
    start, count = clock(), 0
    while clock() - start < at_least:
        work()
        count += 1
    found = []
    for _ in range(repeats):
        start = clock()
        for _ in range(count):
            work()
        found.append((clock() - start) / count)
    return min(found)


def times(width: int = 8, tokens: int = 512) -> list[dict[str, Any]]:
    """Nanoseconds a product: a layer of 8 products a token, 512 tokens in prompts of 8, 64 or 512."""
    rows = []
    for name, dtype in DTYPES.items():
        for length in LENGTHS:
            pair = [uniform((tokens // length, length, width), 1.0, dtype, seed) for seed in (0, 1)]
            direct = least_time(lambda pair=pair: pair[0] * pair[1])  # type: ignore[misc]
            row = {"dtype": name, "tokens": length, "direct": 1e9 * direct / (tokens * width)}
            for method in METHODS:
                built = Chain(method, ((1.0, 1.0),), width, length)
                module, h = built.module_for(dtype), built.program.stream.pack(built.state(pair))
                with torch.no_grad():
                    row[method.label] = 1e9 * least_time(lambda m=module, h=h: m(h)) / (tokens * width)  # type: ignore[misc]
            rows.append(row)
    return rows


# ------------------------------------------------------------------------------------------------------------ positions


def binary_signs(n: int, R: float) -> tuple[np.ndarray, np.ndarray]:
    bits = 2.0 * (np.arange(n)[:, None] >> np.arange(int(math.log2(n))) & 1) - 1.0
    one = np.ones((n, 1))
    return np.hstack([R / 2 * bits, -R / 2 * bits.shape[1] * one]), np.hstack([bits, one])


def position_and_square(n: int, R: float) -> tuple[np.ndarray, np.ndarray]:
    i, one = np.arange(n)[:, None].astype(float), np.ones((n, 1))
    return np.hstack([-R * i * i, 2 * R * i, -R * one]), np.hstack([one, i, i * i])


def one_hot(n: int, R: float) -> tuple[np.ndarray, np.ndarray]:
    one = np.ones((n, 1))
    return np.hstack([R * np.eye(n), -R * one]), np.hstack([np.eye(n), one])


CODES = {"binary signs": binary_signs, "(i, i²)": position_and_square, "one-hot": one_hot}
RANGES = (1.0, 64.0, 4096.0)


def code_error(code: str, n: int, R: float, dtype: type, *, last: bool) -> float:
    """Largest error of q_i v_i by self-selecting heads, q and v uniform in [-1, 1]; last: q is added after positions.

    The score is q_i - R distance(i, s), the distance at least 1 for two tokens: a product of matrices, summed from the
    first column to the last. (A library chooses an order of its own, and another one on some processors.)
    """
    query, key = CODES[code](n, R)
    generator = np.random.default_rng(n)
    q, v = generator.uniform(-1, 1, (2, n, 1)).astype(dtype).astype(float)

    def head(sign: float) -> np.ndarray:
        sides = [(query, sign * q), (key, np.ones((n, 1)))]
        rows: list[np.ndarray] = [np.hstack(side if last else side[::-1]).astype(dtype) for side in sides]
        scores = sum(np.outer(*columns) for columns in zip(rows[0].T, rows[1].T, strict=True))
        seen: np.ndarray = np.maximum(scores, 0) @ (sign * v).astype(dtype)
        return seen

    found, factors = torch.from_numpy(head(1.0) + head(-1.0)), [torch.from_numpy(q), torch.from_numpy(v)]
    return largest_error(found, factors)


def built_error(n: int, R: float, dtype: torch.dtype) -> float:
    """The same by the built layer."""
    pair = [uniform((4096 // n, n, 1), 1.0, dtype, seed) for seed in (0, 1)]
    return largest_error(Chain(Method("selecting"), ((R, R),), tokens=n).run(pair)["p1"], pair)


def codes() -> list[dict[str, Any]]:
    """Rounding of self-selecting heads by how positions are written, their number n and the range R."""
    rows: list[dict[str, Any]] = []
    for (name, dtype), kind in zip(DTYPES.items(), (np.float64, np.float32), strict=True):
        for n in LENGTHS:
            for R in RANGES:
                at = {"dtype": name, "n": n, "R": R}
                rows.append({"code": "built layer", "lanes": int(math.log2(n)), **at, "last": built_error(n, R, dtype)})
                for code, lanes in (("binary signs", int(math.log2(n))), ("(i, i²)", 2), ("one-hot", n)):
                    last, first = (code_error(code, n, R, kind, last=last) for last in (True, False))
                    rows.append({"code": code, "lanes": lanes, **at, "last": last, "first": first})
    return rows


# ----------------------------------------------------------------------------------------------------- back-propagation


def training(n: int = 15, K: int = 4, seeds: int = 5) -> list[dict[str, Any]]:
    """A step of gradient descent on a tanh network of N layers: the modules with product layers (``literal``) and with
    self-selecting heads (``compact``), beside training without a transformer.

    error: how far rounding moves the step, relative to its norm; from the same program in float64, or, for direct
    training by autograd, from autograd in float64. Largest over the seeds. milliseconds: of the step, one prompt.
    """
    rows: list[dict[str, Any]] = []
    for N in (2, 4, 8, 12):
        network = ig.Network([2, *[K] * (N - 1), 1], "tanh")
        algorithm = ig.GradientDescent(network, lr=1.0, steps=1, box=None)
        built = {
            name: ig.compile(algorithm, variant=name, epsilon=1e-2, n_examples=n) for name in ("literal", "compact")
        }
        data = [algorithm.random_prompt(n, 0, torch.Generator().manual_seed(seed))[:2] for seed in range(seeds)]
        for name, dtype in DTYPES.items():
            given = [(X.to(dtype), y.to(dtype), network.init(s).to(dtype)) for s, (X, y) in enumerate(data)]
            for variant, tf in built.items():
                errors = []
                for X, y, w0 in given:
                    right = tf.run(X.double(), y.double(), w0=w0.double()).weights
                    found = tf.run(X, y, w0=w0, executor="dense", dtype=dtype).weights
                    errors.append(_moved(found, right))
                X, y, w0 = given[0]
                h, module = tf.stream(X, y, w0=w0, dtype=dtype), tf.module_for(dtype)
                block = module.stored_blocks()[0]
                seconds = least_time(lambda block=block, h=h: _through(block, h))  # type: ignore[misc]
                layers = tf.cost().layers_a_step
                rows.append(_step(N, variant, name, layers, errors, seconds))
            errors = [_moved(_train(network, *g), _train(network, *(part.double() for part in g))) for g in given]
            seconds = least_time(lambda g=given[0], network=network: _train(network, *g))  # type: ignore[misc]
            rows.append(_step(N, "direct", name, None, errors if dtype == torch.float32 else None, seconds))
    return rows


def _step(
    N: int, way: str, dtype: str, layers: float | None, errors: list[float] | None, seconds: float
) -> dict[str, Any]:
    error = max(errors) if errors else None  # training in float64 is what it is compared with
    return {"N": N, "way": way, "dtype": dtype, "layers": layers, "error": error, "milliseconds": 1e3 * seconds}


def _moved(found: Tensor, right: Tensor) -> float:
    right = right.double()
    return float((found[-1].double() - right[-1]).norm() / (right[-1] - right[0]).norm())


def _through(block: list[Any], h: Tensor) -> Tensor:
    with torch.no_grad():
        for layer in block:
            h = layer(h)
    return h


def _train(network: ig.Network, X: Tensor, y: Tensor, w0: Tensor) -> Tensor:
    """w0 and the weights after one step, in the dtype of the data."""
    w = w0.clone().requires_grad_()
    loss = (network.forward(w, X) - y).square().sum() / (2 * len(X))
    (gradient,) = torch.autograd.grad(loss, w)
    return torch.stack([w0, w0 - gradient])


# ---------------------------------------------------------------------------------------------------- tables and figure


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def _way(row: dict[str, Any]) -> str:
    return Method(row["method"], row["accuracy"] or 0.0).label


def _pick(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (found,) = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return found


def table_of_sizes() -> list[str]:
    """What a product costs; nanoseconds a product in float32 / float64, beside x * y of tensors."""
    stored = read("products")
    head = ["way", "sublayer", "heads or units", "nonzeros", "range of", *(f"ns, n = {n}" for n in LENGTHS)]
    ranges = {"product": "none", "selecting": "one factor", "squares": "both factors"}

    def spent(way: str) -> list[str]:
        rows = [
            [_pick(stored["times"], dtype=dtype, tokens=n)[way] for dtype in ("float32", "float64")] for n in LENGTHS
        ]
        return [" / ".join(f"{float(f'{value:.2g}'):,g}" for value in pair) for pair in rows]

    rows = []
    for row in stored["sizes"]:
        sizes = [_way(row), row["kind"], f"{row['heads']:,}", f"{row['nonzeros']:,}", ranges[row["method"]]]
        rows.append([*sizes, *spent(_way(row))])
    return _table(head, [*rows, ["*x * y*", "", "", "", "", *spent("direct")]])


def table_of_scales() -> list[str]:
    """Largest (median) error relative to scale^2."""
    rows, shown, lines = read("products")["scales"], (1e-3, 1e-1, 1e1, 1e3), []
    for dtype in DTYPES:
        for method in METHODS:
            kinds = ("fitted",) if method.name == "product" else ("fitted", "fixed")
            for kind in kinds:
                wanted = {"method": method.name, "accuracy": method.accuracy or None, "dtype": dtype, "range": kind}
                found = [_pick(rows, **wanted, scale=scale) for scale in shown]
                name = "none" if method.name == "product" else {"fitted": "fitted", "fixed": f"{WIDEST:.0f}"}[kind]
                lines.append([dtype, method.label, name, *(f"{row['max']:.0e} ({row['median']:.0e})" for row in found)])
    return _table(["", "way", "range", *(f"scale {scale:g}" for scale in shown)], lines)


def table_of_depths() -> list[str]:
    """Largest (median) error of a chain relative to the product."""
    rows, shown, lines = read("products")["depths"], (2, 4, 8, 12), []
    for dtype in DTYPES:
        for method in METHODS:
            wanted = {"method": method.name, "accuracy": method.accuracy or None, "dtype": dtype}
            found = [_pick(rows, **wanted, depth=depth) for depth in shown]
            lines.append([dtype, method.label, *(f"{row['max']:.0e} ({row['median']:.0e})" for row in found)])
    return _table(["", "way", *(f"{depth} products" for depth in shown)], lines)


def table_of_codes() -> list[str]:
    """Rounding of self-selecting heads: q added after the positions / before them."""
    rows, lines = read("products")["codes"], []
    for dtype in DTYPES:
        for code in ("built layer", *CODES):
            for n in LENGTHS:
                found = [_pick(rows, dtype=dtype, code=code, n=n, R=R) for R in RANGES]
                cells = [" / ".join(_rounding(row[key]) for key in ("last", "first") if key in row) for row in found]
                lines.append([dtype, code, n, found[0]["lanes"], *cells])
    return _table(["", "code", "n", "lanes", *(f"R = {R:g}" for R in RANGES)], lines)


def _rounding(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def table_outside() -> list[str]:
    """The error of a product outside the range, relative to its scale, had the run not been stopped."""
    rows, lines = read("products")["outside"], []
    for method in METHODS:
        found = [row for row in rows if _way(row) == method.label]
        cells = [_rounding(row["token"]) + (" (stopped)" if row["says"] else "") for row in found]
        lines.append([method.label, *cells])
    beyond = dict.fromkeys(row["beyond"] for row in rows)
    return _table(["way", *(f"{times:g} R" for times in beyond)], lines)


def table_of_training() -> list[str]:
    """A step of gradient descent: rounding, and milliseconds."""
    rows, lines = read("products")["training"], []
    for N in dict.fromkeys(row["N"] for row in rows):
        for way in ("literal", "compact", "direct"):
            found = [_pick(rows, N=N, way=way, dtype=dtype) for dtype in DTYPES]
            errors = ["" if row["error"] is None else f"{row['error']:.0e}" for row in found]
            spent = [f"{row['milliseconds']:.2g}" for row in found]
            lines.append(
                [N, way, found[0]["layers"] or "", *(cell for pair in zip(errors, spent, strict=True) for cell in pair)]
            )
    head = ["N", "way", "layers a step", *(f"{dtype}: {what}" for dtype in DTYPES for what in ("rounding", "ms"))]
    return _table(head, lines)


TABLES: dict[str, Callable[[], list[str]]] = {
    "product_sizes": table_of_sizes,
    "product_scales": table_of_scales,
    "product_depths": table_of_depths,
    "product_codes": table_of_codes,
    "product_outside": table_outside,
    "product_training": table_of_training,
}
SQUARES = ("squares, 1e-02", "squares, 1e-04", "squares, 1e-06")
COLORS = {"product": BLUE, "selecting": ORANGE, **dict(zip(SQUARES, GREENS, strict=True))}
NAMES = {"product": "product layer", "selecting": "self-selecting heads"}


def draw() -> None:
    """The largest error by scale, with fitted ranges and with one range for all, and by depth."""
    from matplotlib.lines import Line2D

    stored = read("products")
    fitted = [row for row in stored["scales"] if row["range"] == "fitted"]
    fixed = [row for row in stored["scales"] if row["range"] == "fixed" or row["method"] == "product"]
    with figures.new(1, 3, size=(15, 5.4), share_y=True) as (figure, axes):
        _panel(axes[0], fitted, "scale", "one product, range fitted to the scale")
        _panel(axes[1], fixed, "scale", f"one product, range {WIDEST:.0f} for every scale")
        _panel(axes[2], stored["depths"], "depth", "chains of d products, ranges fitted")
        axes[0].set_ylabel("largest error")
        for dtype, place in (("float64", 4e-16), ("float32", 6e-10)):
            axes[0].annotate(f"{dtype}: one rounding", (1e-3, place), color=DARK, fontsize=10)
        axes[0].annotate("float32 and float64 alike", (1e-3, 2e-3), color=DARK, fontsize=10)
        axes[0].annotate("as large as the product", (1e-3, 2.0), color=GREY, fontsize=10)
        for ax in axes[:2]:
            ax.set(xscale="log", xlabel="inputs uniform in [−scale, scale];  error / scale²")
        axes[2].set(xlabel="d, factors of size about one;  error / |product|", xticks=range(2, DEPTH + 1, 2))
        handles = [
            Line2D([], [], color=COLORS[m.label], marker=_marker(m.name), lw=2, label=NAMES.get(m.label, _squares(m)))
            for m in METHODS
        ]
        handles += [
            Line2D([], [], color=DARK, lw=1.8, ls=line, label=dtype)
            for dtype, line in (("float64", "-"), ("float32", (0, (4, 2))))
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=7)
        figure.suptitle("Three ways to multiply inside a transformer")
        figures.save(figure, PICTURE)
    print(f"wrote docs/{PICTURE.name}")


def _squares(method: Method) -> str:
    return f"MLP squares, {method.accuracy:.0e} R²"


def _marker(name: str) -> str:
    return {"product": "o", "selecting": "x", "squares": ""}[name]


def _panel(ax: Axes, rows: list[dict[str, Any]], across: str, title: str) -> None:
    """Product layers and self-selecting heads coincide: the one thick with dots, the other on top, with crosses."""
    for dtype, line in (("float64", "-"), ("float32", (0, (4, 2)))):
        for method in METHODS:
            found = [row for row in rows if _way(row) == method.label and row["dtype"] == dtype]
            thick = {"product": 4.5, "selecting": 1.5, "squares": 2.0}[method.name]
            look: dict[str, Any] = {
                "color": COLORS[method.label],
                "ls": line,
                "lw": thick,
                "marker": _marker(method.name),
                "ms": 7,
            }
            ax.plot([row[across] for row in found], [row["max"] for row in found], **look)
    ax.axhline(1.0, color=GREY, lw=0.8, ls=":")
    ax.set_title(title)
    ax.set(yscale="log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="only the figure and the tables, from stored results")
    if not parser.parse_args().draw:
        torch.set_num_threads(1)
        start = time.perf_counter()
        parts = (sizes, times, scales, depths, outside, codes, training)
        data: dict[str, Any] = {part.__name__: part() for part in parts}
        settings = {
            "tokens": TOKENS,
            "prompts": PROMPTS,
            "widest": WIDEST,
            "accuracies": [method.accuracy for method in METHODS if method.accuracy],
            "threads": 1,
        }
        store("products", "python benchmarks/products.py", {"settings": settings, **data})
        print(f"{time.perf_counter() - start:.0f} s")
    draw()
    for name, table in TABLES.items():
        print(f"\n<!-- table: {name} -->", *table(), "<!-- end -->", sep="\n")


if __name__ == "__main__":
    main()
