"""Plain signs that a finished run went wrong: a sentence each, with advice.

    loss rising              the algorithm's own objective on the examples is larger after the run than before it, or,
                             where steps should only lower it, than on the way; with a rate at which it falls
    loss standing            it did not move, and with another rate it falls
    box binding              weights are at the edge of their box, or ball
    saturation               almost no gradient comes through a layer, and the loss is still large
    constant predictions     the same number in every row, though rows and labels differ
    constant inputs          the same in every row, though labels differ
    far queries              they are a hundred times as far from the examples as these from one another
    worse than the mean      none of these, and yet the labels' mean would be much nearer to them: they are not scaled
    unscaled inputs, labels  beside one of these: columns that are large or small, and the scale they need

It costs little: the learner, by its own formula, at the first weights, the last and a few between, and only on some of
the examples if they are many. If something looks wrong there, all examples are looked at before a word is said. Only a
loss that rises or stands costs more: the rate that is suggested has been tried, by the algorithm itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.losses import ResidualLoss
from innergrad.errors import readable
from innergrad.functions.activation import Activation
from innergrad.ir.program import Program
from innergrad.model.prompt import Prompt
from innergrad.model.rates import NO_SMALLER, higher_rate, lower_rate

Kind = Literal[
    "loss rising",
    "loss standing",
    "box binding",
    "saturation",
    "constant predictions",
    "constant inputs",
    "far queries",
    "worse than the mean",
    "unscaled inputs",
    "unscaled labels",
]
INPUTS: Kind = "unscaled inputs"
LABELS: Kind = "unscaled labels"
RISE, NOISE, FLOOR = 0.01, 0.5, 1e-4  # of the loss before; likewise of steps on some examples; of the labels' spread
FAR_UP = 1e3  # times the loss before: descent has run away, and takes rounding with it
AGAIN, LOST = 0.1, 0.25  # of the least loss on the way; of the gain until there
STANDS, CREEPS = 1e-4, 1e-2  # of the loss: a smaller change is none; likewise from weights that are zero
LEARNED = 0.1  # of the labels' spread, as a loss: below it, something has been learned, and nothing else is said
FLAT, MOSTLY = 1e-3, 0.8  # of the largest derivative; of the arguments, beyond those of Gaussian ones
FAR, VERY_FAR = 3.0, 100.0  # in sizes of the examples
EQUAL, NEARLY = 1e-4, 1e-2  # of the size of predictions, and of the labels' spread; likewise, if there is a reason
WORSE, CENTRED = (
    100.0,
    0.01,
)  # times the squared error of the labels' mean; of their mean square, which counts as spread
LARGE, SMALL = 10.0, 0.1  # from which, and up to which, an input or a label is not scaled
SHARE, FEW = 0.006, 32  # of the examples a step, and at least: these are looked at first
ON_THE_WAY = 3  # steps between the first and the last
OUTER = 3.0  # standard deviations: values further out may be a few rows of a column that is scaled
ON_THE_BALL = 0.99  # of its radius: projections onto it are approximated
NAMED = 6  # columns


@dataclass(frozen=True)
class Column:
    """A column of inputs or labels that is large, or small: its ``largest`` absolute value, and the numbers that
    standardise it.
    """

    number: int
    largest: float
    mean: float
    std: float

    def said(self, name: str, kind: Kind) -> str:
        how = f"({name} - {self.mean:.3g}) / {self.std:.3g}"
        if not self.std:
            how = "the same everywhere: " + ("subtract it" if kind == LABELS else "leave it out")
        return f"{name} is up to {readable(self.largest, 3)}: {how}"


@dataclass(frozen=True)
class Symptom:
    """A sign, and the advice. prompts: in which of a batch."""

    kind: Kind
    found: str
    advice: str = ""
    prompts: tuple[int, ...] = ()
    columns: tuple[Column, ...] = ()

    def said(self, names: Sequence[str] = ()) -> str:
        """The sentence; names: of the columns, where they have any."""
        label = "y[:, {}]" if self.kind == LABELS else "X[:, {}]"
        each = [c.said(names[c.number] if names else label.format(c.number), self.kind) for c in self.columns[:NAMED]]
        more = [f"and {len(self.columns) - NAMED} more"] if len(self.columns) > NAMED else []
        return f"{self.kind}: " + "; ".join(filter(None, [self.found, self.advice, *each, *more]))

    def __str__(self) -> str:
        return self.said()


@dataclass(frozen=True)
class Learned:
    """The evidence: weights after some steps, the first and the last among them; their prompt; and the residuals that
    the stream holds at the examples, for an algorithm that keeps them.
    """

    algorithm: Algorithm
    prompt: Prompt
    weights: tuple[Tensor, ...]
    residuals: Tensor | None

    def on(self, examples: Tensor) -> Learned:
        """The same on some of the examples."""
        part, omega = self.prompt, self.prompt.omega[:, examples]
        total = omega.sum(-1, keepdim=True)
        some = replace(
            part, X=part.X[:, examples], y=part.y[:, examples], omega=torch.where(total > 0, omega / total, omega)
        )
        return replace(self, prompt=some, residuals=None if self.residuals is None else self.residuals[:, examples])

    @cached_property
    def predictions(self) -> Tensor | None:
        """(steps, batch, n, d_y): at the examples, by the weights after every step, all of them at once."""
        y = self.prompt.y
        if self.residuals is not None:
            return torch.stack([torch.zeros_like(y), *[y - self.residuals] * (len(self.weights) - 1)])
        steps = len(self.weights)
        found = self.algorithm.predicted(torch.cat(self.weights), self.prompt.X.repeat(steps, 1, 1))
        return None if found is None else found.view(steps, *y.shape)

    @cached_property
    def losses(self) -> Tensor | None:
        """(steps, batch): the algorithm's objective, of these predictions."""
        if self.predictions is None:
            return None
        steps, w = len(self.weights), torch.cat(self.weights)
        y, omega = self.prompt.y.repeat(steps, 1, 1), self.prompt.omega.repeat(steps, 1)
        found = self.algorithm.objective_at(w, self.predictions.flatten(0, 1), y, omega)
        return None if found is None else found.view(steps, -1)

    @cached_property
    def spread(self) -> Tensor:
        """(batch,): half the labels' variance, or, where they are equal, half their mean square."""
        y, omega = self.prompt.y, self.prompt.omega.unsqueeze(-1)
        centred = (omega * (y - (omega * y).sum(1, keepdim=True)).square()).sum((1, 2))
        return 0.5 * torch.where(centred > 0, centred, (omega * y.square()).sum((1, 2)))

    @property
    def residual(self) -> bool:
        """Labels are numbers to be near to, and no classes."""
        return not isinstance(self.algorithm, GradientDescent) or isinstance(self.algorithm.loss, ResidualLoss)


def symptoms(
    program: Program,
    algorithm: Algorithm,
    prompt: Prompt,
    weights: Sequence[Tensor],
    state: Mapping[str, Tensor],
    predictions: Tensor,
) -> tuple[Symptom, ...]:
    """weights: after the recorded steps, (batch, D_w) each; state: the lanes after the run; predictions: at the
    queries, (batch, n_query, d_y).
    """
    with torch.no_grad():
        prompt = _detached(prompt, algorithm.seen(prompt.omega.detach()))
        places = [len(weights) * part // (ON_THE_WAY + 1) for part in range(1, ON_THE_WAY + 1)]
        between = [
            weights[place].detach() for place in sorted({*places} - {0, len(weights) - 1}) if place < len(weights)
        ]
        path = (prompt.w0, *between, weights[-1].detach())
        learned = Learned(algorithm, prompt, path, _residuals(program, algorithm, prompt, state))
        examples = _some(prompt.X.shape[1], program.steps)
        found = _examined(learned if examples is None else learned.on(examples), program, predictions.detach())
        if found and examples is not None:
            found = _examined(learned, program, predictions.detach())
        found = _first_things_first(one for symptom in found if (one := _with_rate(learned, symptom)) is not None)
        return (*found, *(_scales(learned) if found else ()))


def _first_things_first(found: Iterable[Symptom]) -> list[Symptom]:
    """Where the loss rises, and a smaller rate makes it fall, that comes before a box and before flat units."""
    found = list(found)
    if not any(one.kind == "loss rising" and one.advice and NO_SMALLER not in one.advice for one in found):
        return found
    later = ("box binding", "saturation")
    return [replace(one, advice="lower the rate first") if one.kind in later else one for one in found]


def _with_rate(learned: Learned, symptom: Symptom) -> Symptom | None:
    """The symptom, with a rate that makes the loss fall in these prompts; a loss that stands, and that no other rate
    makes fall, is none.
    """
    if symptom.kind == "loss rising":
        return replace(symptom, advice=lower_rate(learned.algorithm, learned.prompt, symptom.prompts))
    if symptom.kind == "loss standing":
        advice = higher_rate(learned.algorithm, learned.prompt, symptom.prompts)
        advice = advice or ("scale the inputs" if _columns(learned.prompt.X) else "")
        return replace(symptom, advice=advice) if advice else None
    return symptom


def _detached(prompt: Prompt, omega: Tensor) -> Prompt:
    X, y, X_query, w0 = (part.detach() for part in (prompt.X, prompt.y, prompt.X_query, prompt.w0))
    return replace(prompt, X=X, y=y, X_query=X_query, w0=w0, omega=omega)


def _residuals(program: Program, algorithm: Algorithm, prompt: Prompt, state: Mapping[str, Tensor]) -> Tensor | None:
    if not algorithm.keeps_residuals:
        return None
    first = int(program.sink) + program.carriers
    return state["y"][:, first : first + prompt.X.shape[1]].detach()


def _some(n: int, steps: int) -> Tensor | None:
    """Which examples are looked at first: spread over all, or None for all."""
    wanted = max(FEW, math.ceil(SHARE * steps * n))
    return None if wanted >= n else torch.linspace(0, n - 1, wanted).round().long()


def _examined(learned: Learned, program: Program, at_queries: Tensor) -> list[Symptom]:
    rising = standing = saturated = constant = worse = None
    if learned.losses is not None:
        rising, standing = _rising(learned, learned.losses), _standing(learned, learned.losses)
        saturated = _saturated(learned, learned.losses[-1])
    if learned.predictions is not None:
        constant = _constant(learned, learned.predictions[-1], at_queries)
        worse = _worse(learned, learned.predictions[-1])
    box = _box(learned, program)
    found = [one for one in (rising, standing, box, saturated, constant) if one is not None]
    same, far = _constant_inputs(learned), None if constant else _far(learned)
    return [one for one in (*found, same, far, None if found else worse) if one is not None]


# ------------------------------------------------------------------------------------------------------------ the loss


def _rising(learned: Learned, losses: Tensor) -> Symptom | None:
    before, *between, after = losses
    floor = FLOOR * learned.spread
    algorithm = learned.algorithm
    risen, least = ~(after <= before * (1.0 + (NOISE if algorithm.by_example else RISE)) + floor), before
    if isinstance(algorithm, GradientDescent) and algorithm.monotone:
        for loss in between:
            least = torch.fmin(least, loss)
        risen |= after > least * (1.0 + AGAIN) + LOST * (before - least) + floor
    if not bool(risen.any()):
        return None
    worst = int(torch.where(risen, after - least, -math.inf).argmax())
    first, low, last = float(before[worst]), float(least[worst]), float(after[worst])
    way = f"from {readable(first, 4)} to {readable(last, 4)}"
    if last <= first:
        way = f"again: {readable(first, 4)}, then {readable(low, 4)}, at last {readable(last, 4)}"
    shaky = "; so far up rounding decides, and other executors may end elsewhere" if last > FAR_UP * first else ""
    return Symptom("loss rising", f"it rose {way} on the examples{_where(risen)}{shaky}", prompts=_prompts(risen))


def _standing(learned: Learned, losses: Tensor) -> Symptom | None:
    """It did not move, and is large; whether it could have is tried."""
    before, after = losses[0], losses[-1]
    still = (before - after).abs() <= (STANDS if isinstance(learned.algorithm, GradientDescent) else CREEPS) * before
    still &= after > LEARNED * learned.spread
    if not bool(still.any()):
        return None
    worst = int(still.to(torch.uint8).argmax())
    first, last = float(before[worst]), float(after[worst])
    found = f"it was {readable(first, 4)} on the examples, and is {readable(last, 4)}{_where(still)}"
    return Symptom("loss standing", found, prompts=_prompts(still))


def _worse(learned: Learned, predictions: Tensor) -> Symptom | None:
    """The labels' mean would be nearer to them, by far."""
    y, omega = learned.prompt.y, learned.prompt.omega.unsqueeze(-1)
    mean = (omega * y).sum(1, keepdim=True)
    own, off = ((omega * (y - other).square()).sum((1, 2)) for other in (mean, predictions))  # (batch,)
    usual = torch.maximum(own, CENTRED * (omega * y.square()).sum((1, 2)))
    rows = (own > 0.0) & (off > WORSE * usual)
    if not learned.residual or not bool(rows.any()) or not _columns(y):
        return None
    worst = int(torch.where(rows, off / usual, -1.0).argmax())
    there, centre = (readable(math.sqrt(float(part[worst])), 3) for part in (off, own))
    found = (
        f"predictions at the examples are off by {there}{_where(rows)}, and the mean of the labels would be by {centre}"
    )
    return Symptom("worse than the mean", found, "scale the labels", _prompts(rows))


# ------------------------------------------------------------------------------------------ weights, units, predictions


def _box(learned: Learned, program: Program) -> Symptom | None:
    w = learned.weights[-1]
    count = w.shape[-1]
    large = [name for name, values in (("labels", learned.prompt.y), ("inputs", learned.prompt.X)) if _large(values)]
    otherwise = f"scale the {' and the '.join(large)}" if large else "lower the rate, or scale the labels"
    ball = getattr(learned.algorithm, "ball", None)
    if ball is not None and bool((rows := w.norm(dim=-1) >= ball * ON_THE_BALL).any()):
        found = f"the weights are at the edge of their ball, {ball:g}{_where(rows)}: it decides them, not the loss"
        return Symptom("box binding", found, f"give a larger ball, or {otherwise}", _prompts(rows))
    sizes = ((part.size, program.stream[part.lane].bound) for part in program.parts)
    bounds = [torch.full((size,), bound, dtype=torch.float64, device=w.device) for size, bound in sizes]
    bound = torch.cat(bounds) if bounds else w.new_zeros(0)
    at = w.abs() >= bound * (1.0 - 4 * torch.finfo(w.dtype).eps)
    rows = at.any(-1)
    if not bool(rows.any()):
        return None
    worst = int(at.sum(-1).argmax())
    pinned, box = int(at[worst].sum()), float(bound[at[worst]].max())
    found = f"{pinned} of {count} weights are at the box, {box:g}{_where(rows)}: it decides them, not the loss"
    return Symptom("box binding", found, f"give a larger box, or {otherwise}", _prompts(rows))


def _saturated(learned: Learned, loss: Tensor) -> Symptom | None:
    """A layer whose derivatives are almost all nothing, and the loss is still large."""
    algorithm = learned.algorithm
    large = loss > LEARNED * learned.spread
    if not isinstance(algorithm, GradientDescent) or not bool(large.any()):
        return None
    network = algorithm.network
    usual, peak = _usual(network.activation)
    layers = network.layers(learned.weights[-1], learned.prompt.X)
    arguments = {j: z for j, (z, _) in enumerate(layers, start=1) if network.activated(j)}
    if not arguments:
        return None
    together = torch.cat([*arguments.values()], dim=-1)  # (batch, n, units)
    flat = (network.activation.dr(together).abs() <= FLAT * peak).to(together.dtype)
    shares = (learned.prompt.omega.unsqueeze(-1) * flat).sum(1)  # (batch, units)
    for j, units in zip(arguments, shares.split([z.shape[-1] for z in arguments.values()], -1), strict=True):
        share = units.mean(-1)
        rows = large & (share > usual + MOSTLY * (1.0 - usual))
        if bool(rows.any()):
            name, worst = network.activation.name, float(share.max())
            found = f"{worst:.0%} of the arguments of {name} in layer {j} are where it is flat{_where(rows)}"
            found += ": almost no gradient comes through"
            return Symptom("saturation", found, _instead(learned), _prompts(rows))
    return None


def _instead(learned: Learned) -> str:
    """Advice for units through which nothing comes."""
    if _columns(learned.prompt.X) or not isinstance(learned.algorithm, GradientDescent):
        return "scale the inputs"
    penalties = [name for name in ("weight_decay", "l1") if getattr(learned.algorithm, name)]
    other = "start from other weights, e.g. of another seed"
    return f"lower {' and '.join(penalties)}, or {other}" if penalties else other


def _large(values: Tensor) -> bool:
    return bool((values.abs() > LARGE).any())


@lru_cache(maxsize=64)
def _usual(activation: Activation) -> tuple[float, float]:
    """The share of standard Gaussian arguments at which an activation is flat, and its largest derivative there."""
    slopes = activation.dr(torch.special.ndtri(torch.linspace(0.0025, 0.9975, 200, dtype=torch.float64))).abs()
    peak = float(slopes.max())
    return float((slopes <= FLAT * peak).double().mean()), peak


def _constant(learned: Learned, at_examples: Tensor, at_queries: Tensor) -> Symptom | None:
    """At the examples; or at the queries, if they are far from the examples (a few that are not may be alike).

    A deep network may begin almost constant; on inputs that are not scaled it stays so.
    """
    prompt = learned.prompt
    odd = bool(_columns(prompt.X))
    equal = NEARLY if odd or not isinstance(learned.algorithm, GradientDescent) else EQUAL
    shown = (prompt.omega > 0).unsqueeze(-1)
    for where, predictions, X, rows, apart in (
        ("the examples", at_examples, prompt.X, shown, 0.0),
        ("the queries, which are far from the examples,", at_queries, prompt.X_query, None, FAR),
    ):
        width = _range(predictions, rows)
        same = odd | (width <= equal * predictions.abs().sum(1))  # (batch, d_y)
        if predictions.shape[1] < 2 or not bool(same.any()):
            continue
        labels, size = _range(prompt.y, shown), prompt.X.abs().amax((1, 2))
        differ = _range(X, rows).amax(-1) > apart * size
        same &= (labels > 0) & (width <= equal * labels) & (odd | (width <= equal * predictions.abs().amax(1)))
        found = differ & same.any(-1)
        if bool(found.any()):
            row = int(found.to(torch.uint8).argmax())
            column = int(same[row].to(torch.uint8).argmax())
            value, apart = float(predictions[row, 0, column]), float(width[row, column])
            about = f" up to {apart:.1g}" if apart > EQUAL * abs(value) else ""
            text = (
                f"at {where} they all are {readable(value, 4)}{about}{_where(found)}, though inputs and labels differ"
            )
            return Symptom("constant predictions", text, _instead(learned), _prompts(found))
    return None


def _constant_inputs(learned: Learned) -> Symptom | None:
    """No function of the inputs has these labels."""
    prompt = learned.prompt
    shown = (prompt.omega > 0).unsqueeze(-1)
    same = _range(prompt.X, shown).amax(-1) == 0
    rows = same & (_range(prompt.y, shown) > EQUAL * prompt.y.abs().amax(1)).any(-1)
    if not bool(rows.any()):
        return None
    found = f"the inputs are the same in every row{_where(rows)}, and the labels are not"
    return Symptom(
        "constant inputs", found, "nothing but the labels' mean can be learned: give other columns", _prompts(rows)
    )


def _far(learned: Learned) -> Symptom | None:
    """Queries are in other units than examples."""
    X, X_query = learned.prompt.X, learned.prompt.X_query
    if not X_query.shape[1]:
        return None
    shown = (learned.prompt.omega > 0).unsqueeze(-1)
    low = torch.where(shown, X, math.inf).amin(1, keepdim=True)
    width = _range(X, shown)
    beyond = (X_query - low).abs().amax(1)
    columns = (width > 0) & (beyond > VERY_FAR * torch.maximum(width, X.abs().amax(1)))
    rows = columns.any(-1)
    if not bool(rows.any()):
        return None
    row = int(rows.to(torch.uint8).argmax())
    column = int(columns[row].to(torch.uint8).argmax())
    sizes = [float(part[row, :, column].abs().max()) for part in (X_query, X)]
    there, here = (readable(size, 3) for size in sizes)
    found = f"input {column} is up to {there} in the queries, and up to {here} in the examples"
    return Symptom("far queries", found + _where(rows), "scale both alike", _prompts(rows))


def _range(values: Tensor, shown: Tensor | None) -> Tensor:
    """(batch, columns): from the smallest to the largest, of the rows that are shown."""
    if values.shape[1] == 0:
        return values.new_zeros(len(values), values.shape[2])
    if shown is None:
        return values.amax(1) - values.amin(1)
    return torch.where(shown, values, -math.inf).amax(1) - torch.where(shown, values, math.inf).amin(1)


# -------------------------------------------------------------------------------------------------------------- scales


def _scales(learned: Learned) -> list[Symptom]:
    """Columns that are not scaled. They are named beside other symptoms, since they may be the cause."""
    prompt = learned.prompt
    given = [(INPUTS, "scale these columns", torch.cat([prompt.X, prompt.X_query], dim=1))]
    given += [(LABELS, "scale the labels, and the predictions back", prompt.y)] if learned.residual else []
    found = [Symptom(kind, what, columns=_columns(values)) for kind, what, values in given]
    return [symptom for symptom in found if symptom.columns]


def _columns(values: Tensor) -> tuple[Column, ...]:
    """Of all prompts, the largest first."""
    flat = values.double().flatten(0, 1)
    largest, mean, std = flat.abs().amax(0).tolist(), flat.mean(0).tolist(), flat.std(0, correction=0).tolist()
    wrong = (c for c, size in enumerate(largest) if abs(mean[c]) + OUTER * std[c] > LARGE or 0 < size < SMALL)
    return tuple(Column(c, largest[c], mean[c], std[c]) for c in sorted(wrong, key=lambda c: -largest[c]))


def _prompts(rows: Tensor) -> tuple[int, ...]:
    return tuple(rows.nonzero().flatten().tolist())


def _where(rows: Tensor) -> str:
    return f" (in {int(rows.sum())} of {len(rows)} prompts)" if len(rows) > 1 else ""
