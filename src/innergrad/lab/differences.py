"""Which algorithm does a learner run? Differences between two predictors (Akyürek et al. 2023, section 4.1).

Two predictors f and g learn from the same k pairs. Either may be a learner, a baseline or any function predict(x, y).

    SPD   squared prediction difference   E (f(x') - g(x'))^2 / d    at a new input x'                   equation (13)
    ILW   implied linear weights          E |w_f - w_g|^2 / d        w_f fits the predictions of f       equation (15)

w_f is the least-squares fit to the predictions of f at test inputs, without an intercept (14). Both are divided by d,
the number of inputs: for weights and inputs N(0, I), 1 is then the mean square of a label, and that of a weight.

``compare`` measures a predictor beside references, at every length. ``matching_ridge`` finds the penalty of the ridge
regression that predicts most alike. Intervals are bootstrap percentiles over prompts. All of it is about labels of one
number; SPD is also defined for vectors, as the mean over their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, one_of, seed_number
from innergrad.lab.baselines import KNN, LeastSquares, OnePass, OneStep, Predictor, Ridge
from innergrad.lab.baselines.linear import prefixes
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import require_one_number
from innergrad.lab.learners.base import Learner, predictor_of
from innergrad.lab.metrics import LEVEL, RESAMPLES, Curve, bootstrap_counts, squared_error
from innergrad.lab.tasks import Task

Predict = Callable[[Tensor, Tensor], Tensor]
SPD, ILW = "SPD", "ILW"
CHUNK = 1024  # prompts that a predictor gets at a time
#: Penalties that matching_ridge tries: sixteen a decade, from 1e-4 to 1e3.
LAMS = tuple(10.0 ** (step / 16 - 4) for step in range(113))

#: What Akyürek et al. compare with, at their best rates. The weights of 3-NN: as printed (far points count more), and
#: as surely meant.
REFERENCES: tuple[Predictor, ...] = (
    LeastSquares(),
    Ridge(0.1, intercept=False),
    OneStep(),
    OnePass(),
    KNN(),
    KNN(weights="squared-distance"),
    KNN(weights="inverse"),
)


def squared_prediction_difference(p: Tensor, q: Tensor, d: int) -> Curve:
    """SPD / d of two predictors at every length, with intervals over prompts.

    Args:
        p: predictions of one, (B, n).
        q: predictions of the other, on the same prompts.
        d: the number of inputs.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, _ = lab.Linear(d=4).sample(lab.CounterRNG.of(0), torch.arange(100), n=9)
        >>> exact, step = lab.baselines.LeastSquares()(x, y), lab.baselines.OneStep()(x, y)
        >>> value, low, high = lab.squared_prediction_difference(exact, step, d=4).at(8)
        >>> low < value < high
        True
    """
    return squared_error(p, q, math.sqrt(integer("d", d)))


def implied_weights(predict: Predict | Learner, x: Tensor, y: Tensor, tests: Tensor, ks: Sequence[int]) -> Tensor:
    """The weights of the linear functions that fit a predictor best, (B, lengths, d), after k pairs of each prompt.

    The fit is to its predictions at the test inputs, by least squares, without an intercept. A predictor that says its
    weights itself (``linear_weights``) is not asked for predictions.

    Args:
        predict: a learner; or a function, whose predict(x, y) gives every label from the pairs before it:
            (B, n, d), (B, n) -> (B, n).
        x: the inputs of the prompts, (B, n, d).
        y: their labels, (B, n).
        tests: test inputs, (B, m, d), d or more for each prompt.
        ks: how many pairs the predictor sees, up to n.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, params = lab.Linear(d=2).sample(lab.CounterRNG.of(0), torch.arange(3), n=4)
        >>> tests = torch.randn(3, 5, 2)
        >>> w = lab.implied_weights(lab.Linear(d=2).best(), x, y, tests, ks=[3])
        >>> torch.allclose(w[:, 0], params["w"].double(), atol=1e-4)
        True
    """
    require_one_number("the implied linear weight vector", y)
    predict = predictor_of(predict)
    prompts, n, d = x.shape
    if tests.ndim != 3 or len(tests) != prompts or tests.shape[2] != d or tests.shape[1] < d:
        allowed = f"({prompts}, m, {d}), m = {d} or more"
        raise InputError("implied weights need test inputs for every prompt", got=tuple(tests.shape), allowed=allowed)
    for k in ks:
        integer("k", k, low=0, high=n)
    if isinstance(predict, Predictor):
        # one more point, so that there are weights for all n pairs
        known = predict.linear_weights(*_longer(x, y))
        if known is not None:
            return known[:, list(ks)].double()
    return torch.stack([_fitted(predict, x[:, :k], y[:, :k], tests) for k in ks], 1)


def implied_weight_difference(v: Tensor, w: Tensor, ks: Sequence[int]) -> Curve:
    """ILW / d of two predictors, with intervals over prompts.

    Args:
        v: weights of one, (B, lengths, d), from ``implied_weights``.
        w: weights of the other, for the same prompts and lengths.
        ks: the lengths.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> lab.implied_weight_difference(torch.ones(5, 1, 2), torch.zeros(5, 1, 2), ks=[3]).at(3)
        (1.0, 1.0, 1.0)
    """
    apart = (v.double() - w.double()).norm(dim=-1)
    curve = squared_error(apart, torch.zeros_like(apart), math.sqrt(v.shape[-1]))
    return replace(curve, k=torch.tensor(list(ks)))


# --------------------------------------------------------------------------------------------------------------- ridge


@dataclass(frozen=True)
class RidgeMatch:
    """The ridge regression that predicts most like a predictor.

    Attributes:
        lam: its penalty, the one with the least SPD, a mean over lengths.
        low: the lower end of the interval, over prompts.
        high: its upper end.
        spd: the least SPD / d.
        lams: the penalties that were tried.
        curve: SPD / d of each.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, _ = lab.Linear(d=4, noise=1.0).sample(lab.CounterRNG.of(0), torch.arange(50), n=9)
        >>> match = lab.matching_ridge(lab.baselines.Ridge(0.5, intercept=False)(x, y), x, y)
        >>> round(match.lam, 2), match.at_an_end
        (0.5, False)
    """

    lam: float
    low: float
    high: float
    spd: float
    lams: tuple[float, ...]
    curve: tuple[float, ...]

    @property
    def at_an_end(self) -> bool:
        """The match is an end of the penalties that were tried: it may lie beyond."""
        return self.lam in (self.lams[0], self.lams[-1])


def matching_ridge(
    p: Tensor, x: Tensor, y: Tensor, *, ks: Iterable[int] | None = None, lams: Sequence[float] = LAMS
) -> RidgeMatch:
    """The ridge regression without intercept that predicts most like p: the least mean of SPD over prompts and lengths.

    Args:
        p: predictions of a predictor, (B, n).
        x: the inputs of the prompts, (B, n, d).
        y: their labels, (B, n).
        ks: the lengths that count. By default all from 1 on.
        lams: penalties to try, in ascending order. Between them it is the least of a parabola in log lambda.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> task = lab.Linear(d=4, noise=1.0)  # the best predictor is ridge regression with lambda = 1
        >>> x, y, _ = task.sample(lab.CounterRNG.of(0), torch.arange(50), n=9)
        >>> round(lab.matching_ridge(task.best()(x, y), x, y).lam, 2)
        1.0
    """
    require_one_number("the matching ridge regression", y)
    wanted = set(range(1, x.shape[1]) if ks is None else ks)
    if not wanted or min(wanted) < 1 or max(wanted) >= x.shape[1]:
        raise InputError("no such lengths", got=sorted(wanted), allowed=f"1 to {x.shape[1] - 1}")
    if len(lams) < 3 or list(lams) != sorted(lams) or lams[0] <= 0:
        raise InputError("penalties are three or more positive numbers in ascending order", got=tuple(lams))
    grid = torch.tensor(lams, dtype=torch.float64, device=x.device)
    apart = torch.zeros(len(grid), len(x), dtype=torch.float64, device=x.device)
    for prefix in prefixes(x, y, intercept=False):
        if prefix.k in wanted:
            s = prefix.s
            each = prefix.predict(x[:, prefix.k].double(), s / (s.square() + grid[:, None, None]))
            apart += (each - p[:, prefix.k].double()).square() / (len(wanted) * x.shape[2])
    (lam,), (spd,) = _least(grid, apart.mean(1)[None])
    counts = bootstrap_counts(len(x), RESAMPLES, x.device)
    tails = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64, device=x.device)
    low, high = _least(grid, counts @ apart.mT / len(x))[0].quantile(tails).tolist()
    return RidgeMatch(float(lam), low, high, float(spd), tuple(lams), tuple(apart.mean(1).tolist()))


def _least(grid: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row of values (rows, penalties) is least, and how small: by the parabola in log lambda through the
    least and its neighbours; at an end, the end.
    """
    place = values.argmin(1)
    inside = (place > 0) & (place < len(grid) - 1)
    middle = place.clamp(1, len(grid) - 2)
    logs, rows = grid.log(), torch.arange(len(values), device=values.device)
    a, b, c = (logs[middle + step] for step in (-1, 0, 1))
    fa, fb, fc = (values[rows, middle + step] for step in (-1, 0, 1))
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
    curvature = (right - left) / (c - a)  # f = fa + left (t - a) + curvature (t - a) (t - b)
    ok = inside & (curvature > 0)
    top = torch.where(ok, (a + b) / 2 - left / (2 * curvature.where(ok, torch.ones_like(curvature))), logs[place])
    found = fa + left * (top - a) + curvature * (top - a) * (top - b)
    return torch.where(ok, top.exp(), grid[place]), torch.where(ok, found.clamp(min=0.0), values[rows, place])


# ------------------------------------------------------------------------------------------------------------- compare


@dataclass(frozen=True)
class Comparison:
    """How far a predictor is from each reference, at every length.

    Attributes:
        d: the number of inputs.
        curves: curves["SPD"] and curves["ILW"]: for each reference by name, a ``metrics.Curve`` of the measure / d.
        ridge: the ridge regression that matches best.

    Examples:
        >>> from innergrad import lab
        >>> found = lab.compare(lab.baselines.OneStep(), lab.Linear(d=3), n_prompts=20, n_points=8)
        >>> found.nearest(), found.nearest("ILW")
        ('one step of GD', 'one step of GD')
        >>> len(found.table())  # a header, and seven references
        8
    """

    d: int
    curves: dict[str, dict[str, Curve]]
    ridge: RidgeMatch

    def nearest(self, measure: str = SPD, low: int = 1, high: int | None = None) -> str:
        """The reference that is least far away: by the mean of a measure over the lengths from low to high."""
        means = self.means(measure, low, high)
        return min(means, key=lambda name: means[name])

    def means(self, measure: str = SPD, low: int = 1, high: int | None = None) -> dict[str, float]:
        """The mean of a measure over the lengths from low to high, for each reference."""
        curves = self.curves[one_of("unknown measure", measure, tuple(self.curves))]
        found = {}
        for name, curve in curves.items():
            counted = (curve.k >= low) & (curve.k <= (math.inf if high is None else high))
            if not counted.any():
                raise InputError("no such lengths", got=f"{low} to {high}", allowed=str(curve.k.tolist()))
            found[name] = float(curve.value[counted].mean())
        return found

    def table(self, measure: str = SPD, ks: Sequence[int] = ()) -> list[list[str]]:
        """Rows of text, the first the header: a measure at the lengths ``ks``, with half its interval. By default at
        1, d / 2, d and 2 d, where these were measured.
        """
        curves = self.curves[one_of("unknown measure", measure, tuple(self.curves))]
        known = next(iter(curves.values())).k.tolist()
        if not set(ks) <= set(known):
            raise InputError(f"{measure} was not measured at all of these lengths", got=list(ks), allowed=str(known))
        chosen = list(ks) or [k for k in known if k in (1, self.d // 2, self.d, 2 * self.d)]
        rows = [[f"{measure} / d", *(f"k={k}" for k in chosen)]]
        for name, curve in curves.items():
            cells = [curve.at(k) for k in chosen]
            rows.append([name, *(f"{value:.3g} ±{(high - low) / 2:.1g}" for value, low, high in cells)])
        return rows


def compare(
    predict: Predict | Learner,
    task: Task,
    references: Sequence[Predictor] = REFERENCES,
    *,
    n_prompts: int = 400,
    n_points: int = 41,
    weight_prompts: int = 100,
    ks: Sequence[int] | None = None,
    n_tests: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Comparison:
    """How far a predictor is from known algorithms: SPD / d and ILW / d, length by length (Akyürek et al. 2023).

    Args:
        predict: a learner; or a function, whose predict(x, y) gives every label from the pairs before it.
        task: where prompts come from. Linear functions are what the references are for.
        references: the algorithms. By default least squares (below d pairs, that of least norm), ridge regression, one
            step of gradient descent, one pass of SGD, and 3-NN with three kinds of weights.
        n_prompts: how many prompts SPD is measured on.
        n_points: points of each.
        weight_prompts: how many of them ILW is measured on. It asks for ``n_tests`` predictions a prompt and length.
        ks: the lengths for ILW. By default 1, d / 2, d, 2 d and the longest, if they are that long.
        n_tests: test inputs for ILW. By default 2 d.
        seed: of the prompts. Training never draws them.
        device: where to run.

    Examples:
        >>> from innergrad import lab
        >>> found = lab.compare(lab.baselines.KNN(), lab.Linear(d=3), n_prompts=20, n_points=8)
        >>> found.nearest()
        '3-NN'
        >>> value, low, high = found.curves["SPD"]["least squares"].at(7)
    """
    integer("prompts", n_prompts, low=2)
    integer("points", n_points, low=2)
    require_one_number("the comparison with linear algorithms", outputs=task.outputs)
    predict = predictor_of(predict)
    few, d = min(integer("weight_prompts", weight_prompts, low=2), n_prompts), task.d
    lengths = sorted({k for k in (1, d // 2, d, 2 * d, n_points - 1) if 1 <= k < n_points}) if ks is None else list(ks)
    rng = CounterRNG.of(seed_number(seed), "compare", device)
    index = torch.arange(n_prompts, device=device)
    x, y, _ = task.sample(rng, index, n_points)
    tests = task.inputs.sample(rng.fork("tests"), index[:few], n_tests or 2 * d, d)
    p, own = in_chunks(predict, x, y), implied_weights(predict, x[:few], y[:few], tests, lengths)
    spd = {one.name: squared_prediction_difference(p, in_chunks(one, x, y), d) for one in references}
    match = matching_ridge(p, x, y)
    weights = {one.name: implied_weights(one, x[:few], y[:few], tests, lengths) for one in references}
    ilw = {name: implied_weight_difference(own, other, lengths) for name, other in weights.items()}
    return Comparison(d, {SPD: spd, ILW: ilw}, match)


def in_chunks(predict: Predict, x: Tensor, y: Tensor, chunk: int = CHUNK) -> Tensor:
    """Predictions in chunks of prompts, for predictors that treat a prompt by itself."""
    return torch.cat([predict(*part) for part in zip(x.split(chunk), y.split(chunk), strict=True)])


def _fitted(predict: Predict, x: Tensor, y: Tensor, tests: Tensor) -> Tensor:
    """(B, d): the fit to predictions at the test inputs, each put after the k pairs; float64."""
    prompts, k, d = x.shape
    m = tests.shape[1]
    xs = torch.cat((x[:, None].expand(prompts, m, k, d), tests[:, :, None]), 2).flatten(0, 1)
    ys = torch.cat((y[:, None].expand(prompts, m, k), y.new_zeros(prompts, m, 1)), 2).flatten(0, 1)
    found = in_chunks(predict, xs, ys)[:, k].view(prompts, m, 1)
    solved: Tensor = torch.linalg.lstsq(tests.double(), found.double()).solution
    return solved[..., 0]


def _longer(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat((x, torch.zeros_like(x[:, :1])), 1), torch.cat((y, torch.zeros_like(y[:, :1])), 1)
