"""How values with errors go through functions, softmax and products: the rules of the affine interpreter.

The equations are those of :mod:`innergrad.interpret.affine`; what is in brackets there is a form's loose radius here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import add

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.facts import local_curvature, local_swing, prove_facts
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function
from innergrad.interpret.forms import (
    COMMON,
    Form,
    Key,
    U,
    bent,
    both,
    gamma,
    joined,
    over_entries,
    sound,
    sum_of,
    through,
    tokens_in,
)
from innergrad.interpret.plain import Labelled, attention, contract


def apply(f: Function, stand_in: Approximant | None, z: Form) -> tuple[Form, list[str]]:
    """f(z), with the errors of the argument and of what stands for f; and why nothing is known, where it is not."""
    value, slope = _slope(f if stand_in is None else stand_in, f, z.centre.tensor)
    radius, labels = z.radius().aligned(z.centre.labels).expand_as(value), z.centre.labels
    loose = torch.zeros_like(value) if z.loose is None else z.loose.aligned(labels).expand_as(value)
    epsilon = 0.0 if stand_in is None or stand_in.ramps else stand_in.error
    curvature = _curvature(f, z.centre.tensor, radius, locally=COMMON in z.blocks)
    rough, kept = z.entries().aligned(labels).expand_as(value), slope
    remainder = slope.abs() * loose + 0.5 * curvature * rough * (2 * radius - rough)  # the rest is in the ball
    if f.breaks:
        near = torch.zeros_like(radius, dtype=torch.bool)
        for kink in f.breaks:
            near |= (z.centre.tensor - kink).abs() <= radius
        middle, half = (0.0, prove_facts(f).lipschitz) if f.exact is None else slope_range(f.exact.slopes)
        kept = torch.where(near, middle, slope)
        remainder = torch.where(near, half * radius + abs(middle) * loose, remainder)
    if f.breaks and math.isinf(f.lipschitz) and f.exact is None:  # an infinite slope at a break
        swing = local_swing(f, z.centre.tensor, radius)
        flat = ~(kept.abs() * radius + remainder <= swing)
        slope, kept, curvature = (torch.where(flat, 0.0, part) for part in (slope, kept, curvature))
        remainder = torch.where(flat, swing, remainder)
    culprits = []
    for unknown, why in _unknown(f, stand_in, z.centre.tensor, radius):
        if bool(unknown.any()):
            remainder = torch.where(unknown, math.inf, remainder)
            culprits.append(_blame(z.centre.tensor, radius, unknown, f"arguments of {f.name} {why}"))
    remainder = remainder + epsilon + 4 * U * (value.abs() + slope.abs() * z.centre.tensor.abs())
    factor = Labelled(kept, labels)
    blocks = {key: contract([factor, block], joined(labels, block.labels)) for key, block in z.blocks.items()}
    ball = bent(z, kept, curvature)
    return Form(Labelled(value, labels), blocks, Labelled(sound(remainder), labels), ball, z.tokens), culprits


def softmax(z: Form, mask: Labelled | None, tokens: int) -> Form:
    """Attention weights; symbols of the tokens that are read, and loose radii, are taken at their worst."""
    weights = attention(z.centre, mask, tokens)
    a, labels = weights.tensor, weights.labels
    axis, scores = labels.index("S"), z.centre.aligned(labels)
    radius = torch.where(a > 0, z.radius().aligned(labels), 0.0)
    rho = radius.amax(axis, keepdim=True)
    rest = Form(z.centre, {key: block for key, block in z.blocks.items() if key[1] == "S"}, z.loose, z.ball)
    rough = rest.radius().aligned(labels).expand_as(a)
    remainder = a * (rough + (a * rough).sum(axis, keepdim=True) + 2 * rho**2 * torch.exp(2 * rho))
    remainder = remainder + (4 * U + gamma(tokens + 2)) * a * (1 + scores.abs())
    blocks: dict[Key, Labelled] = {}
    for key, block in z.blocks.items():
        if key[1] != "S":
            own = contract([weights, block], joined(labels, block.labels))
            mean = Labelled(own.tensor.sum(own.labels.index("S")), own.labels.replace("S", ""))
            blocks[key] = own + contract([weights.map(torch.neg), mean], own.labels)
    return Form(weights, blocks, Labelled(sound(remainder), labels))


def product(factors: list[Form], keep: str) -> Form:
    """The product of the factors, summed over every label that is not kept.

    Symbols of the tokens S that are read do not outlive a sum over S: their coefficients are given apart.
    """
    centres, axes = [factor.centre for factor in factors], min((factor.tokens for factor in factors), key=len)
    sizes = [centre.map(torch.abs) for centre in centres]
    lengths = {label: n for c in centres for label, n in zip(c.labels, c.tensor.shape, strict=True)}
    terms = math.prod(length for label, length in lengths.items() if label not in keep)
    loose = contract(sizes, keep).map(lambda size: size * gamma(terms + len(factors) + 1))
    blocks: dict[Key, Labelled] = {}
    read: dict[Key, Labelled] = {}

    def others(m: int) -> list[Labelled]:
        return [*centres[:m], *centres[m + 1 :]]

    for m, factor in enumerate(factors):
        for key, block in (*factor.blocks.items(), *factor.read.items()):
            apart = key[1] == "S" and "S" not in keep
            found, kept = (read, keep.replace("I", "IS") + "Z") if apart else (blocks, keep + "Z")
            part = contract([*others(m), block], kept)
            found[key] = found[key] + part if key in found else part
        if factor.loose is not None:
            loose = loose + contract([*sizes[:m], *sizes[m + 1 :], factor.loose], keep)
    balls = [through(others(m), factor, keep, axes) for m, factor in enumerate(factors) if factor.ball is not None]
    erring = {m: (factor.entries(), factor.vector(axes)) for m, factor in enumerate(factors) if factor.errs}
    for a, b in combinations(erring, 2):
        (rough_a, vector_a), (rough_b, vector_b) = erring[a], erring[b]
        rest = [size + factors[m].radius() for m, size in enumerate(sizes) if m not in (a, b)]
        loose = loose + contract([rough_a, factors[b].radius(), *rest], keep)
        if vector_a:
            loose = loose + contract([vector_a[0], rough_b, *rest], keep)
        if vector_a and vector_b:
            largest = [over_entries(torch.amax, part, axes) for part in rest]
            balls.append(contract([vector_a[1], vector_b[1], *largest], tokens_in(keep, axes)))
    ball = None
    for part in balls:
        ball = part if ball is None else ball + part
    return Form(contract(centres, keep), blocks, loose.map(sound), ball, axes, read)


def weighted(form: Form, weight: Labelled, roundings: int = 1) -> Form:
    """The form times a number that depends on no index, and is off by so many roundings."""
    size = weight.map(torch.abs)

    def times(part: Labelled, factor: Labelled) -> Labelled:
        return contract([factor, part], joined(part.labels, factor.labels))

    centre = times(form.centre, weight)
    rounded = centre.map(lambda value: gamma(roundings) * value.abs())
    loose = rounded if form.loose is None else times(form.loose, size) + rounded
    blocks, read = ({key: times(block, weight) for key, block in part.items()} for part in (form.blocks, form.read))
    ball = None if form.ball is None else times(form.ball, size)
    return Form(centre, blocks, loose.map(sound), ball, form.tokens, read)


def scaled(form: Form, factor: float) -> Form:
    return weighted(form, Labelled(torch.tensor(factor, dtype=torch.float64), ""))


def divided(form: Form, mask: Labelled | None, tokens: int) -> Form:
    """By the number of tokens that the mask shows."""
    count = Labelled(torch.tensor(float(tokens), dtype=torch.float64), "") if mask is None else contract([mask], "BI")
    return weighted(form, count.map(lambda n: 1.0 / n.clamp(min=1.0)), roundings=2)


def summed(terms: Sequence[Form]) -> Form:
    """The sum of the forms, and its rounding."""
    total = reduce(sum_of, terms)
    if len(terms) == 1:
        return total
    sizes = reduce(add, (term.centre.map(torch.abs) for term in terms))
    return replace(total, loose=both(total.loose, sizes.map(lambda size: gamma(len(terms) - 1) * size)))


def slope_range(slopes: tuple[float, ...]) -> tuple[float, float]:
    """The middle of the slopes, and how far they are from it."""
    return 0.5 * (max(slopes) + min(slopes)), 0.5 * (max(slopes) - min(slopes))


def _slope(computed: Approximant | Function, f: Function, z: Tensor) -> tuple[Tensor, Tensor]:
    """The computed value at z, and the derivative of f there."""
    with torch.no_grad():
        value = computed(z)
    if f.jumps:
        return value, torch.zeros_like(value)
    with torch.enable_grad():
        variable = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(f(variable).sum(), variable, allow_unused=True)
    return value, torch.zeros_like(value) if slope is None else slope.detach()


def _curvature(f: Function, z: Tensor, radius: Tensor, *, locally: bool) -> Tensor | float:
    """A proven bound on |f''|, off the kinks: on all of the line, or between z - radius and z + radius."""
    if f.exact is not None or f.jumps:
        return 0.0
    facts = prove_facts(f)
    if math.isfinite(facts.curvature) and not locally:
        return facts.curvature
    known = torch.isfinite(radius)
    reach = torch.where(known, radius, 0.0)
    bound = local_curvature(f, z - reach, z + reach).clamp(max=facts.curvature)
    if not facts.proven and bool(torch.isinf(bound).all()):
        raise InputError(f"nothing is proven about {f.name}, so there is no certificate", got=facts.reason)
    return torch.where(known, bound, facts.curvature)


def _unknown(f: Function, stand_in: Approximant | None, z: Tensor, radius: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Where nothing is known: a step function that may be on either side of a jump, or its stand-in on a ramp; and
    outside the domain of a stand-in.
    """
    intervals = [(at, at) for at, _, _ in f.jumps] if stand_in is None else stand_in.ramps
    if intervals:
        unknown = torch.zeros_like(z, dtype=torch.bool)
        for start, end in intervals:
            unknown |= (z + radius >= start) & (z - radius <= end)
        yield unknown, f"may be at a jump ({', '.join(f'{at:g}' for at, _, _ in f.jumps)})"
    if stand_in is not None and math.isfinite(stand_in.domain[1] - stand_in.domain[0]):
        low, high = stand_in.domain
        yield (z < low) | (z > high), f"left the domain [{low:g}, {high:g}] of its approximant"


def _blame(z: Tensor, radius: Tensor, unknown: Tensor, what: str) -> str:
    worst = torch.where(unknown, radius, -1.0).flatten().argmax()
    at, off = float(z.flatten()[worst]), float(radius.flatten()[worst])
    return f"{int(unknown.sum())} {what}, e.g. z = {at:.3g} known to within {off:.1e}"
