"""Any permutation-equivariant function of a prompt, on a grid: Lemma 16 and Theorem 6 of *Deep Optimizers*, literally.

Four layers a step, for softmax attention and ReLU MLPs (target ``softmax``, variant ``lookup``):

    mlp          quantise      every entry of x, y and w to one of D cells; code_i: the digits of (x_i, y_i), in [0, 1)
    attention    context id    id = 2 (the digits of w) + sum_i softmax_i(s code_i) code_i
    mlp          look up       w <- step(w, X, y) at the middles of the cells: a step function of id
    mlp          project, clear

The softmax-weighted mean of the codes (the Boltzmann operator) is one number. For most s it tells multisets of examples
apart. s is chosen so that the ids are as far apart as possible, and a table whose ids are too close is refused. It has
D^D_w (D^(d_x + d_y) + n - 1 choose n) rows: that is why an existence proof of this kind is not a construction. Steps of
step functions are ramps, as in (F.5); an argument inside one is looked up between two rows.
"""

from __future__ import annotations

import itertools
import math
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.errors import InputError, LongRun, integer, real
from innergrad.functions.scalar import IDENTITY, NEGATION, Function, Levels, PiecewiseLinear, clip_residual
from innergrad.ir.program import Attend, Layer, Loop, Options, Program, Score, pointwise
from innergrad.ir.stream import Lane, example_stream

MOST_ROWS = 2_000_000
SECONDS_A_CELL, LONG = 3e-3, 10.0  # about, for every cell of the weights: five steps on all prompts; worth a word
RAMP = 2.0**-20  # of a quantiser, in cells
SAME, APART = 1e-13, 1e-11  # ids closer than SAME are equal; different ones must be APART
SHARPNESS = tuple(float(s) for s in np.geomspace(1.0, 48.0, 24))  # candidates for s


@dataclass(frozen=True)
class Tabulated(Algorithm):
    """A learning rule of your own on a grid, as a table (Lemma 16 and Theorem 6 of *Deep Optimizers*, literally).

    Override ``loss``, or ``step``, and ``predict``. Every number is rounded to a cell of a grid, and the transformer
    looks the next weights up. Tables grow very fast with the sizes. The default step is on the *mean* loss, as in the
    theorem; that of ``GradientDescent`` is on half of it.

    Args:
        d_x: the number of inputs.
        d_y: the number of labels.
        n_weights: the number of weights.
        grid: cells of each number.
        lr: the learning rate.
        steps: how many.
        x_bound: inputs are in [-x_bound, x_bound].
        y_bound: labels, likewise.
        box: weights, likewise.
        fixed_length: prompts have exactly ``n_examples`` examples. Otherwise a prompt and the same prompt twice look
            the same to the transformer, so the rule may depend on the examples only as a mean over them does.

    Examples:
        >>> import innergrad as ig, torch
        >>> class Slope(ig.Tabulated):
        ...     def loss(self, w, X, y):
        ...         return (w[:, None] * X - y).square().sum(-1)
        ...     def predict(self, w, x):
        ...         return w * x
        >>> tf = ig.compile(Slope(grid=2), n_examples=2)
        >>> tuple(tf.run(torch.ones(2, 1), torch.ones(2, 1)).weights.shape)
        (2, 1)
    """

    targets: ClassVar[tuple[str, ...]] = ("softmax",)
    variants: ClassVar[Mapping[str, tuple[str, ...]]] = {"softmax": ("lookup",)}
    weighted: ClassVar[bool] = False

    d_x: int = 1
    d_y: int = 1
    n_weights: int = 1
    grid: int = 4
    lr: float = 0.5
    steps: int = 1
    x_bound: float = 1.0
    y_bound: float = 1.0
    box: float = 1.0
    fixed_length: bool = False

    def __post_init__(self) -> None:
        for name in ("d_x", "d_y", "n_weights", "steps"):
            integer(name, getattr(self, name))
        integer("grid", self.grid, low=2)
        for name in ("x_bound", "y_bound", "box"):
            real(name, getattr(self, name), above=0.0)
        real("lr", self.lr, low=0.0)

    # ------------------------------------------------------------------------------------------- what a user overrides

    def loss(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        """The loss of every example, (batch, n), from w (batch, n_weights), X (batch, n, d_x), y (batch, n, d_y)."""
        raise InputError(f"{type(self).__name__} has no rule", hint="override loss, or step")

    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        """The next weights, (batch, n_weights): any function that does not depend on the order of the examples.

        By default a gradient step on the mean loss, as in Theorem 6.
        """
        variable = w.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.loss(variable, X, y).mean(-1).sum(), variable)
        return w - self.lr * gradient

    def relabel(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor | None:
        """The new labels of every example, (batch, n, d_y), if there are any: any permutation-equivariant function.

        It is written to the lane ``labels`` of the examples.
        """
        del w, X, y
        return None

    @abstractmethod
    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        """The prediction, (batch, d_y), from w (batch, n_weights) and x (batch, d_x)."""

    # ---------------------------------------------------------------------------------------------------------- prompts

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Uniform on the grid's domain."""
        X = self.x_bound * (2 * torch.rand(n + n_query, self.d_x, generator=generator, dtype=torch.float64) - 1)
        y = self.y_bound * (2 * torch.rand(n, self.d_y, generator=generator, dtype=torch.float64) - 1)
        return X[:n], y, X[n:]

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        del w0
        for name, values, bound in (("X", X, self.x_bound), ("y", y, self.y_bound)):
            largest = float(values.abs().max())
            if largest > bound:
                raise InputError(f"{name} is not on the grid", got=f"max |{name}| = {largest:g}", allowed=f"{bound:g}")

    def check_queries(self, X_query: Tensor) -> None:
        if X_query.numel():
            self.check_prompt(X_query, X_query.new_zeros(1), X_query)

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """The rule itself, applied to the middles of the cells."""
        del omega
        w, path = w0, [w0]
        for _ in range(self.steps):
            w = self.step(*(self.rounded(v, b) for v, b in ((w, self.box), (X, self.x_bound), (y, self.y_bound))))
            w = w.detach().clamp(-self.box, self.box)
            path.append(w)
        batch, n_query, _ = X_query.shape
        weights = self.rounded(w, self.box).repeat_interleave(n_query, 0)
        found = self.predict(weights, self.rounded(X_query, self.x_bound).flatten(0, 1)).detach()
        return torch.stack(path, dim=1), found.reshape(batch, n_query, self.d_y)

    def rounded(self, values: Tensor, bound: float) -> Tensor:
        """The middles of the cells of [-bound, bound] that the values are in."""
        cells = ((values / bound + 1) * self.grid / 2).floor().clamp(0, self.grid - 1)
        return self.middles(cells, bound)

    def middles(self, cells: Tensor, bound: float) -> Tensor:
        return bound * ((2 * cells + 1) / self.grid - 1)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon
        rows = self.grid ** ((self.d_x + self.d_y) * n_examples + self.n_weights)
        return {
            "layers": f"4L = {4 * self.steps} (Theorem 6)",
            "FLOPs (D x D heads)": f"one unit or more for each of D^(n (d_x + d_y) + D_w) = {rows:.3g} prompts",
        }

    # ---------------------------------------------------------------------------------------------------------- program

    def program(self, options: Options) -> Program:
        if options.x_bound is not None or options.y_bound is not None:
            raise InputError("the ranges of a grid are settings of the algorithm", got="x_bound or y_bound of compile")
        table = _context_ids(self, options.n_examples)  # first: it refuses grids that are too fine
        x, y, w = (self._quantiser(name) for name in ("x", "y", "w"))
        digits = self.d_x + self.d_y
        quantise = [
            Attend("code", Score(f, (f"{lane}[{i}]", "one")), scale=self.grid ** float(place - digits))
            for place, (lane, i, f) in enumerate(
                [*(("x", i, x) for i in range(self.d_x)), *(("y", i, y) for i in range(self.d_y))]
            )
        ]
        quantise += [
            Attend("id", Score(w, (f"w[{i}]", "one")), scale=2.0 * self.grid**i) for i in range(self.n_weights)
        ]
        mean = Attend(
            "id", Score(IDENTITY, (f"{table.sharpness!r}*one", "code")), value="code", scope="demos", reduce="softmax"
        )
        looked_up = [
            Attend(f"w[{i}]", Score(step_function(f"w'[{i}]", table.ids, table.weights[:, i]), ("id", "one")))
            for i in range(self.n_weights)
        ]
        weights = (Lane("w", (self.n_weights,), "weight", bound=self.box),)
        scratch = (Lane("code"), Lane("id", shared=True))
        own = [Lane("key"), Lane("p", (self.d_y,))]
        if table.labels is not None:  # looked up by a token and its context
            own.append(Lane("labels", (self.d_y,), "state", shared=False))
            places, values = table.labels
            looked_up += [
                Attend(
                    f"labels[{k}]",
                    Score(
                        step_function(f"labels[{k}]", places, values[:, k]),
                        ("id", "one"),
                        (f"{self._span()!r}*code", "one"),
                    ),
                )
                for k in range(self.d_y)
            ]
            looked_up += pointwise(NEGATION, own[-1:])
        step = (
            Layer("mlp", "quantise", tuple(quantise)),
            Layer("attention", "context id", (mean,)),
            Layer("mlp", "look up", (*pointwise(NEGATION, weights), *looked_up)),
            Layer(
                "mlp",
                "project and clear",
                (*pointwise(clip_residual(self.box), weights), *pointwise(NEGATION, scratch)),
            ),
        )
        stream = example_stream(self.d_x, self.d_y, *weights, *scratch, *own)
        return Program(stream, (Loop(self.steps, step),), self._readout(x, w), "p")

    def _span(self) -> float:
        """The factor of code that makes one number of a token's own code and the id of its context."""
        return 2.0 * float(self.grid) ** (self.n_weights + self.d_x + self.d_y)

    def _quantiser(self, lane: str) -> Function:
        bound = {"x": self.x_bound, "y": self.y_bound, "w": self.box}[lane]
        ramp = RAMP * bound
        starts = bound * (2 * np.arange(1, self.grid) / self.grid - 1) - ramp  # an edge is in the cell above it
        return _steps(f"cell of {lane}", starts, np.arange(self.grid, dtype=float), np.full(len(starts), ramp))

    def _readout(self, x: Function, w: Function) -> tuple[Layer, ...]:
        """The prediction from the cells of w and x, by the same means."""
        D, count = self.grid, self.n_weights + self.d_x
        if D**count > MOST_ROWS:
            raise _too_large(self, math.log10(D) * count)
        cells = torch.cartesian_prod(*[torch.arange(D, dtype=torch.float64)] * count).reshape(-1, count)
        weights = self.middles(cells[:, : self.n_weights], self.box)
        values = self.predict(weights, self.middles(cells[:, self.n_weights :], self.x_bound)).detach()
        _require_numbers("predict", values, (len(cells), self.d_y))
        keys = cells @ (float(D) ** torch.arange(count, dtype=torch.float64))
        order = keys.argsort()
        lanes = [*((f"w[{i}]", w) for i in range(self.n_weights)), *((f"x[{i}]", x) for i in range(self.d_x))]
        quantise = (Attend("key", Score(f, (lane, "one")), scale=float(D) ** i) for i, (lane, f) in enumerate(lanes))
        looked_up = (
            Attend(f"p[{k}]", Score(step_function(f"p[{k}]", keys[order], values[order, k]), ("key", "one")))
            for k in range(self.d_y)
        )
        return (
            Layer("mlp", "read-out: quantise", tuple(quantise)),
            Layer("mlp", "read-out: look up", tuple(looked_up)),
        )


@dataclass(frozen=True)
class GridDescent(Tabulated):
    """Gradient descent on a network, on a grid: a ``Tabulated`` rule made from a ``GradientDescent``.

    Args:
        algorithm: the descent. It needs a box, and takes no momentum.
        grid: cells of each number.
        x_bound: inputs are in [-x_bound, x_bound].
        y_bound: labels, likewise.

    Examples:
        >>> import innergrad as ig, torch
        >>> descent = ig.GradientDescent(ig.Network([1, 1], bias=False), lr=0.5, steps=1, box=1.0)
        >>> tf = ig.compile(ig.GridDescent(descent, grid=2), n_examples=2)
        >>> tf.options.variant
        'lookup'
    """

    kind: ClassVar[str] = "grid_descent"
    algorithm: GradientDescent | None = None

    def __init__(self, algorithm: GradientDescent, grid: int = 4, x_bound: float = 1.0, y_bound: float = 1.0) -> None:
        if not isinstance(algorithm, GradientDescent):
            raise InputError(
                "a grid is for gradient descent", got=type(algorithm).__name__, allowed="ig.GradientDescent"
            )
        if algorithm.box is None or algorithm.momentum or not algorithm.basic:
            what, got = "a grid needs a box, and no momentum", f"box={algorithm.box}, momentum={algorithm.momentum:g}"
            got = got if algorithm.basic else "another optimiser, rates that differ, l1, clip, batches or a ball"
            raise InputError(what, got=got)
        net = algorithm.network
        sizes = {"d_x": net.sizes[0], "d_y": net.sizes[-1], "n_weights": net.n_weights}
        rule = {"lr": algorithm.lr, "steps": algorithm.steps, "box": algorithm.box}
        given = {"grid": grid, "x_bound": x_bound, "y_bound": y_bound, "algorithm": algorithm, "fixed_length": False}
        for name, value in (sizes | rule | given).items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def descent(self) -> GradientDescent:
        assert self.algorithm is not None
        return self.algorithm

    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        variable = w.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.descent.risk(variable, X, y).sum(), variable)
        return w - self.lr * (gradient + self.descent.weight_decay * w)

    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        return self.descent.network.forward(w, x.unsqueeze(1))[:, 0]

    def initial_weights(self, seed: int) -> Tensor:
        return self.descent.initial_weights(seed).clamp(-self.box, self.box)

    def config(self) -> dict[str, Any]:
        own = {"grid": self.grid, "x_bound": self.x_bound, "y_bound": self.y_bound}
        return {**own, "algorithm": self.descent.config()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> GridDescent:
        own = {name: config[name] for name in ("grid", "x_bound", "y_bound")}
        return cls(GradientDescent.from_config(config["algorithm"], extensions), **own)


def table_rows(algorithm: Tabulated, n: int) -> float:
    """log10 of the number of rows: weights on the grid times multisets of 1 to n examples."""
    tokens = math.log(algorithm.grid) * (algorithm.d_x + algorithm.d_y)
    sizes = [_log_choose(math.exp(tokens) + m - 1, m) if tokens < 600 else m * tokens for m in range(1, n + 1)]
    largest = max(sizes)
    total = largest + math.log(sum(math.exp(size - largest) for size in sizes))
    return (total + algorithm.n_weights * math.log(algorithm.grid)) / math.log(10)


def _log_choose(a: float, b: int) -> float:
    return sum(math.log(max(a - i, 1.0)) for i in range(b)) - math.lgamma(b + 1)


def _too_large(algorithm: Tabulated, log10: float) -> InputError:
    return InputError(
        "the table has too many rows",
        got=f"10^{log10:.1f} with {algorithm.grid} cells an entry",
        allowed=f"at most {MOST_ROWS:,}",
        hint="this construction is for a handful of numbers; variant='sink' is for networks",
    )


def _multisets(codes: int, n: int) -> Iterator[np.ndarray]:
    for m in range(1, n + 1):
        yield np.array(list(itertools.combinations_with_replacement(range(codes), m)), dtype=np.int64)


@dataclass(frozen=True)
class _Table:
    """Context ids in increasing order, and the next weights at each; likewise places and labels of examples."""

    sharpness: float
    ids: Tensor
    weights: Tensor
    labels: tuple[Tensor, Tensor] | None


def _context_ids(algorithm: Tabulated, n: int) -> _Table:
    """The table, with the sharpness s of the softmax that keeps its ids farthest apart."""
    if n**2 > 2 * MOST_ROWS:  # of two codes there are m + 1 multisets of m
        raise _too_large(algorithm, 2 * math.log10(n))
    if table_rows(algorithm, n) > math.log10(MOST_ROWS):
        raise _too_large(algorithm, table_rows(algorithm, n))
    size = algorithm.grid ** (algorithm.d_x + algorithm.d_y)
    chosen = [torch.from_numpy(part) for part in _multisets(size, n)][-1 if algorithm.fixed_length else 0 :]
    parts = [_outputs(algorithm, part) for part in chosen]
    weights = torch.cat([part[0] for part in parts], dim=1)  # (cells of w, multisets, n_weights)
    codes = [part.double() / size for part in chosen]
    best, gap = None, 0.0
    for sharpness in SHARPNESS:
        means = torch.cat([(torch.softmax(sharpness * code, -1) * code).sum(-1) for code in codes])
        order = means.argsort()
        same = means[order].diff() < SAME
        if bool((same & (weights[:, order].diff(dim=1).abs().amax((0, 2)) > 1e-9)).any()):
            continue  # two prompts with one id and different outputs
        kept = order[torch.cat([torch.ones(1, dtype=torch.bool), ~same])]
        smallest = float(means[kept].diff().min()) if len(kept) > 1 else 1.0
        if smallest > gap:
            best, gap = (sharpness, means, kept), smallest
    if best is None or gap < APART:
        raise InputError(
            "the softmax does not tell all prompts apart, or the rule depends on more than the mean over the examples",
            got=f"ids {gap:.0e} apart",
            allowed=f"{APART:g} or more",
            hint="use a coarser grid or fewer examples; if step depends on the number of examples, fixed_length=True",
        )
    sharpness, means, kept = best
    cells = 2.0 * torch.arange(len(weights), dtype=torch.float64)
    labels = _labels(algorithm, chosen, [part[1] for part in parts], cells, means)
    return _Table(sharpness, (cells[:, None] + means[kept]).flatten(), weights[:, kept].flatten(0, 1), labels)


def _labels(
    algorithm: Tabulated, chosen: list[Tensor], parts: list[Tensor | None], cells: Tensor, means: Tensor
) -> tuple[Tensor, Tensor] | None:
    """id + span * code of every example in every context, and its new labels."""
    places, values, start = [], [], 0
    for multisets, labels in zip(chosen, parts, strict=True):
        if labels is None:
            return None
        own = 2.0 * algorithm.grid**algorithm.n_weights * multisets.double()
        ids = means[start : start + len(multisets)].unsqueeze(-1)
        places.append((cells[:, None, None] + ids + own).flatten())
        values.append(labels.reshape(-1, algorithm.d_y))
        start += len(multisets)
    place, value = torch.cat(places), torch.cat(values)
    order = place.argsort()
    place, value = place[order], value[order]
    same = place.diff() < SAME * float(place.max())
    if bool((same & (value.diff(dim=0).abs().amax(-1) > 1e-9)).any()):
        raise InputError(
            "relabel is not permutation-equivariant, or depends on more than the mean over the examples",
            got="two labels for one example in one context",
            hint="equal examples must get equal labels; if they depend on the number of examples, fixed_length=True",
        )
    kept = torch.cat([torch.ones(1, dtype=torch.bool), ~same])
    return place[kept], value[kept]


def _outputs(algorithm: Tabulated, multisets: Tensor) -> tuple[Tensor, Tensor | None]:
    """The rule at every cell of the weights and every multiset of codes: (cells, multisets, n_weights), and labels
    (cells, multisets, n, d_y).
    """
    D, W = algorithm.grid, algorithm.n_weights
    places = D ** torch.arange(algorithm.d_x + algorithm.d_y)
    entries = (multisets.unsqueeze(-1) // places % D).double()
    X = algorithm.middles(entries[..., : algorithm.d_x], algorithm.x_bound)
    y = algorithm.middles(entries[..., algorithm.d_x :], algorithm.y_bound)
    found, labels = [], list[Tensor]()
    if (seconds := SECONDS_A_CELL * D**W) > LONG:
        warnings.warn(
            f"tabulating {D**W:,} cells of the weights will take about {seconds:.0f} s", LongRun, stacklevel=2
        )
    for cell in range(D**W):
        digits = torch.tensor([float(cell // D**i % D) for i in range(W)], dtype=torch.float64)
        w = algorithm.middles(digits, algorithm.box).expand(len(X), W)
        found.append(algorithm.step(w, X, y).detach())
        _require_numbers("step", found[-1], w.shape)
        new = algorithm.relabel(w, X, y)
        if new is not None:
            _require_numbers("relabel", new, y.shape)
            labels.append(new.detach())
        _check_symmetric(algorithm, found[-1], new, w, X, y)
    return torch.stack(found), torch.stack(labels) if labels else None


def _check_symmetric(
    algorithm: Tabulated, weights: Tensor, labels: Tensor | None, w: Tensor, X: Tensor, y: Tensor
) -> None:
    """Other orders of the examples (reversed, and shuffled, each prompt in its own way) change no weight, and order the
    labels likewise.
    """
    generator = torch.Generator().manual_seed(0)
    orders = [torch.rand(X.shape[:2], generator=generator).argsort(-1) for _ in range(3)]
    for order in (torch.arange(X.shape[1] - 1, -1, -1).expand(X.shape[:2]), *orders):
        shuffled = [values.gather(1, order.unsqueeze(-1).expand_as(values)) for values in (X, y)]
        _require_equal("step", weights, algorithm.step(w, *shuffled), w.shape)
        other = algorithm.relabel(w, *shuffled) if labels is not None else None
        if labels is not None and other is not None:
            same = labels.shape == y.shape
            expected = labels.gather(1, order.unsqueeze(-1).expand_as(labels)) if same else labels
            _require_equal("relabel", expected, other, y.shape)


def _require_numbers(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(values.shape) != tuple(shape) or not bool(torch.isfinite(values).all()):
        got = f"shape {tuple(values.shape)}" if tuple(values.shape) != tuple(shape) else "NaN or infinity"
        raise InputError(
            f"{name} gives no table, or the wrong shape", got=got, allowed=f"numbers of shape {tuple(shape)}"
        )


def _require_equal(name: str, expected: Tensor, found: Tensor, shape: torch.Size) -> None:
    wrong = expected.shape != shape
    if wrong or float((found - expected).detach().abs().max()) > 1e-9 * max(1.0, float(expected.abs().max())):
        raise InputError(
            f"{name} is not permutation-equivariant, or gives the wrong shape",
            got=f"shape {tuple(expected.shape)}" if wrong else "other results for the examples in another order",
            allowed=f"shape {tuple(shape)}, whatever the order of the examples",
        )


def step_function(name: str, places: Tensor, values: Tensor) -> Function:
    """The function that has the given value around each of the increasing places: ramps in the middle between them."""
    x, v = places.numpy(), values.numpy()
    edges, width = (x[1:] + x[:-1]) / 2, np.diff(x) / 2
    return _steps(name, edges - width / 2, v, width)


def _steps(name: str, edges: np.ndarray, values: np.ndarray, widths: np.ndarray) -> Function:
    """values[i] between edges i - 1 and i, each step a ramp of its width that begins at the edge."""
    changes = np.diff(values)
    kept = changes != 0.0
    edges, changes, widths = edges[kept], changes[kept], widths[kept]
    starts, ends = edges.tolist(), (edges + widths).tolist()
    knots = np.stack([edges, edges + widths], axis=1).flatten()
    slopes = np.concatenate([[0.0], np.stack([changes / widths, np.zeros_like(changes)], axis=1).flatten()])
    anchor = float(edges[0]) if len(edges) else 0.0
    ramped = PiecewiseLinear(
        tuple(knots.tolist()),
        tuple(slopes.tolist()),
        anchor,
        float(values[0]),
        ramps=tuple(zip(starts, ends, strict=True)),
    )
    levels = np.concatenate([values[:1], values[0] + np.cumsum(changes)])
    value = Levels(tuple((edges + widths / 2).tolist()), tuple(levels.tolist()))
    jumps = tuple(zip(starts, changes.tolist(), itertools.repeat(1)))
    return Function(name, value, curvature=0.0, bound=float(np.abs(values).max()), jumps=jumps, exact=ramped)
