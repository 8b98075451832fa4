"""How good predictions are, length by length, with intervals.

Predictions p and labels y are (B, n): entry k is about the label y_k of each prompt, predicted from the k pairs before
it.

    squared error   1/B sum_b (y_bk - p_bk)^2 / scale^2
    pooled R^2      1 - sum_b (y_bk - p_bk)^2 / sum_b (y_bk - mean_b y_bk)^2   with one query a prompt (Deep Optimizers)
    within-prompt   1 - sum_b (y_bk - p_bk)^2 / sum_b v_b,    v_b the variance of the labels *inside* prompt b
    mean R^2        mean over prompts of 1 - sum_i (y_bi - p_bi)^2 / sum_i (y_bi - mean_i y_bi)^2

Labels may be vectors of k numbers, with p and y (B, n, k). Squares, of errors and of variances, then are means over the
k numbers, |.|^2 / k. The scale is that of a number. So a prediction of zero has the squared error 1, whatever k is.

Pooled R^2 is easy where prompts differ in their level: for networks at inputs N(-2, I) the mean of the labels seen has
0.8 and more. Within-prompt R^2 is 0 for a predictor that knows only the level of the prompt. So report both.

Intervals are bootstrap percentiles over prompts, which are independent; the points of a prompt are not. A number may be
undefined: labels are all equal, as those of dead networks, or predictions are not finite. Then it is NaN, or its prompt
is left out, and ``Curve.undefined`` says how many and why.

Examples:
    >>> import torch
    >>> from innergrad import lab
    >>> y = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    >>> lab.metrics.squared_error(torch.zeros_like(y), y).at(0)[0] == float(y[:, 0].double().square().mean())
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from innergrad.errors import InputError, integer
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import require_one_number

RESAMPLES = 1000
LEVEL = 0.95

Statistic = Callable[[Tensor], Tensor]  # (samples, B) how often each prompt counts -> (samples, lengths)


@dataclass(frozen=True)
class Curve:
    """A measure at the lengths ``k``: ``value`` and its interval from ``low`` to ``high``, each (lengths,) float64.

    ``undefined`` is empty, or names the missing values and the reason.
    """

    k: Tensor
    value: Tensor
    low: Tensor
    high: Tensor
    undefined: str = ""

    def at(self, k: int) -> tuple[float, float, float]:
        """Value, low and high at length k."""
        (place,) = (self.k == k).nonzero(as_tuple=True)
        if not len(place):
            raise InputError(
                "the curve has no such length", got=k, allowed=f"{int(self.k.min())} to {int(self.k.max())}"
            )
        return float(self.value[place[0]]), float(self.low[place[0]]), float(self.high[place[0]])

    def rows(self) -> list[dict[str, float | int | None]]:
        """For tables and JSON: one row a length, None where a number is not defined."""
        columns = zip(self.k.tolist(), self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [{"k": int(k), "value": _number(v), "low": _number(a), "high": _number(b)} for k, v, a, b in columns]


def squared_error(
    p: Tensor, y: Tensor, scale: float = 1.0, *, rng: CounterRNG | None = None, resamples: int = RESAMPLES
) -> Curve:
    """The mean over prompts of (y_k - p_k)^2 / scale^2, for each k."""
    error = _errors(p, y) / scale**2
    return _curve(lambda w: w @ error / len(error), y, _strange(error), rng, resamples)


def pooled_r2(p: Tensor, y: Tensor, *, rng: CounterRNG | None = None, resamples: int = RESAMPLES) -> Curve:
    """1 - (error of p) / (variance of y_k), both over all prompts, for each k; NaN where all prompts have one label."""
    error = _errors(p, y)
    centred = y.double() - y.double().mean(0)
    alike = _all_numbers(y.amax(0) == y.amin(0), 1)

    def statistic(w: Tensor) -> Tensor:
        flat = centred.flatten(1)  # the numbers of a label side by side
        each = w @ flat.square() - (w @ flat).square() / len(y)
        total = each if y.ndim == 2 else each.unflatten(1, y.shape[1:]).mean(2)
        return 1.0 - (w @ error) / total.masked_fill(alike | (total <= 0), math.nan)

    undefined = _join(_strange(error), _count(alike, "lengths", "the same label in all prompts"))
    return _curve(statistic, y, undefined, rng, resamples)


def within_prompt_r2(p: Tensor, y: Tensor, *, rng: CounterRNG | None = None, resamples: int = RESAMPLES) -> Curve:
    """1 - (error of p) / (variance inside the prompts), for each k.

    v_b = 1/(n - 1) sum_i (y_bi - mean_i y_bi)^2 over all n labels of prompt b, those after k too: it measures how much
    its function varies and is nobody's prediction. Sums over prompts are divided, so steep functions count more than
    flat ones. A predictor that knows the mean of its function at every k has 0. Prompts with constant labels are left
    out.
    """
    if y.shape[1] < 2:
        raise InputError("the variance inside a prompt needs two labels or more", got=f"{y.shape[1]}")
    constant = _all_numbers(y.amax(1) == y.amin(1), 1)
    error = _errors(p, y).masked_fill(constant[:, None], 0.0)
    inside = _mean_of_numbers(y.double().var(1), 1).masked_fill(constant, 0.0)

    def statistic(w: Tensor) -> Tensor:
        total = (w @ inside)[:, None]
        return 1.0 - (w @ error) / total.masked_fill(total == 0, math.nan)

    undefined = _join(_strange(error), _count(constant, "prompts", "constant labels"))
    return _curve(statistic, y, undefined, rng, resamples)


def mean_r2(p: Tensor, y: Tensor, *, rng: CounterRNG | None = None, resamples: int = RESAMPLES) -> Curve:
    """The mean over prompts of each prompt's R^2 over its m test points, as *Deep Optimizers* has it.

    p and y are (B, K, m): K lengths with m test points each; or (B, m), one length. The paper describes one query for
    each prompt. One point has no variance, so this measure is not defined there: its figures can only be pooled R^2.
    Nearly flat prompts have enormous negative values here, and can dominate the mean. Prompts with constant labels are
    left out.
    """
    p, y = (part if part.ndim == 3 else part[:, None] for part in (p, y))
    if y.shape[-1] < 2:
        raise InputError("R^2 of a prompt needs two test points or more", got=y.shape[-1], hint="see pooled_r2")
    require_one_number("the mean of each prompt's R^2", p[:, 0] if p.ndim > 3 else None)
    error = _squares(p, y).sum(-1)
    total = (y.double() - y.double().mean(-1, keepdim=True)).square().sum(-1)
    constant = y.amax(-1) == y.amin(-1)
    each = (1.0 - error / total).masked_fill(constant, 0.0)

    def statistic(w: Tensor) -> Tensor:
        count = w @ (~constant).double()
        return (w @ each) / count.masked_fill(count == 0, math.nan)

    undefined = _join(_strange(error), _count(constant.any(1), "prompts", "constant labels"))
    return _curve(statistic, y, undefined, rng, resamples)


# ------------------------------------------------------------------------------------------------------------ helpers


def _errors(p: Tensor, y: Tensor) -> Tensor:
    """(B, n): squared errors in float64, of vectors their means; NaN for predictions that are not finite."""
    return _mean_of_numbers(_squares(p, y), 2)


def _mean_of_numbers(values: Tensor, axes: int) -> Tensor:
    """The mean over the numbers of a label, if there is an axis of them after so many others."""
    return values.mean(-1) if values.ndim > axes else values


def _all_numbers(values: Tensor, axes: int) -> Tensor:
    return values.all(-1) if values.ndim > axes else values


def _squares(p: Tensor, y: Tensor) -> Tensor:
    """Squared errors in float64; NaN for predictions that are not finite."""
    if p.shape != y.shape:
        raise InputError("predictions and labels differ in shape", got=f"{tuple(p.shape)} and {tuple(y.shape)}")
    error = (y.double() - p.double()).square()
    return error.masked_fill(~error.isfinite(), math.nan)


def _strange(error: Tensor) -> str:
    return _count(error.isnan().any(0), "lengths", "predictions that are not finite")


def _curve(statistic: Statistic, y: Tensor, undefined: str, rng: CounterRNG | None, resamples: int) -> Curve:
    """The statistic of all prompts, and where it lies for LEVEL of ``resamples`` resampled sets of prompts."""
    prompts, device = len(y), y.device
    value = statistic(torch.ones(1, prompts, dtype=torch.float64, device=device))[0]
    integer("resamples", resamples)
    counts = _counts(rng, prompts, resamples, device) if rng else bootstrap_counts(prompts, resamples, device)
    tails = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64, device=device)
    low, high = statistic(counts).nanquantile(tails, dim=0)
    return Curve(torch.arange(len(value)), value.cpu(), low.cpu(), high.cpu(), undefined)


def _counts(rng: CounterRNG, prompts: int, resamples: int, device: torch.device) -> Tensor:
    """(resamples, prompts) float64: how often each prompt was drawn into each resampled set."""
    drawn = rng.integers(torch.arange(resamples, device=device), prompts, prompts)
    counts = torch.zeros(resamples, prompts, dtype=torch.float64, device=device)
    return counts.scatter_add_(1, drawn, torch.ones_like(counts))


@lru_cache(maxsize=1)  # the same for every measure and predictor of an evaluation, and drawing them takes longest
def bootstrap_counts(prompts: int, resamples: int, device: torch.device) -> Tensor:
    """(resamples, prompts) float64: how often each prompt is in each resampled set, the same every time."""
    return _counts(CounterRNG.of(0, "bootstrap"), prompts, resamples, device)


def _count(which: Tensor, of: str, reason: str) -> str:
    """'12 of 6,400 prompts have constant labels', or nothing."""
    number = int(which.sum())
    return f"{number:,} of {len(which):,} {of} have {reason}" if number else ""


def _join(*sentences: str) -> str:
    return "; ".join(sentence for sentence in sentences if sentence)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------------------------------------- over seeds

#: Student's t: 97.5 % quantiles for 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
NORMAL = 1.959964  # that of infinitely many


def over_seeds(curves: Sequence[Curve]) -> Curve:
    """The mean of curves of several learners, and its 95 % interval by Student's t. A single curve stays as it is."""
    if len(curves) == 1:
        return curves[0]
    values = torch.stack([curve.value for curve in curves])
    mean, half = values.mean(0), student(len(curves) - 1) * values.std(0) / math.sqrt(len(curves))
    undefined = "; ".join(dict.fromkeys(curve.undefined for curve in curves if curve.undefined))
    return Curve(curves[0].k, mean, mean - half, mean + half, undefined)


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table by Cornish and Fisher's expansion, to 0.2 %."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
