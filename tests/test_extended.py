"""Rounding is measured in extended precision: judged by whole numbers and by Arb, which no one here wrote."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
import torch

import innergrad as ig
from innergrad.evidence.certificate import certify_run
from innergrad.functions.facts import U
from innergrad.interpret.extended import UNIT, Extended, Long, apart, long
from innergrad.model.executors import executor_of

fine = pytest.mark.skipif(UNIT >= U, reason="this platform has no numbers of more than 53 bits")


def fraction(number: np.longdouble) -> Fraction:
    return Fraction(*number.as_integer_ratio())


@fine
@pytest.mark.parametrize("seed", range(5))
def test_products_are_those_of_whole_numbers(seed: int) -> None:
    a, b = (
        torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(seed + k), dtype=torch.float64) for k in (0, 9)
    )
    algebra = Extended(None, {})  # type: ignore[arg-type]  # products read no lane
    found = algebra.product([Long(long(a), "BSk"), Long(long(b), "BSk")], "Bk").array
    for batch in range(2):
        for k in range(3):
            pairs = [
                Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[batch, :, k], b[batch, :, k], strict=True)
            ]
            size = sum(map(abs, pairs))
            assert abs(fraction(found[batch, k]) - sum(pairs)) <= 8 * Fraction(UNIT) * size
            assert size > 0


@fine
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
def test_a_softmax_is_that_of_arb(spread: float) -> None:
    scores = spread * torch.randn(1, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    algebra = Extended(None, {"x": scores.unsqueeze(-1)})  # type: ignore[arg-type]  # it asks for the number of tokens
    found = algebra.softmax(Long(long(scores), "BS"), None).array[0]
    with flint.ctx.workprec(200):  # type: ignore[attr-defined]
        powers = [flint.arb(float(z)).exp() for z in scores[0]]
        total = sum(powers, flint.arb(0))
        for weight, power in zip(found, powers, strict=True):
            numerator, denominator = fraction(weight).as_integer_ratio()
            share = flint.arb(numerator) / flint.arb(denominator) * total / power
            assert bool(abs(share - 1) < (20 + 2 * 2 * 3 * spread) * UNIT)


@fine
def test_a_step_is_off_by_what_was_rounded() -> None:
    """A linear network, one step: the bound is at least the rounding of every weight, and of its size. The step itself
    is done again in whole numbers.
    """
    algorithm = ig.GradientDescent(ig.Network([2, 1]), lr=0.5, steps=1, box=None)
    tf = ig.compile(algorithm, target="llama", n_examples=4)
    generator = torch.Generator().manual_seed(3)
    X, y, w0 = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 2), (4, 1), (3,)))
    radius, path = (found := tf.certify(X, y, w0=w0)).steps[0].radius[0], found.path[0, 1]
    rows = [[Fraction(float(value)) for value in row] + [Fraction(1)] for row in X]
    weights = [Fraction(float(value)) for value in w0]
    off = [
        sum(a * b for a, b in zip(row, weights, strict=True)) - Fraction(float(v))
        for row, v in zip(rows, y, strict=True)
    ]
    for k, (weight, bound, reached) in enumerate(zip(weights, radius, path, strict=True)):
        exact = weight - Fraction(1, 8) * sum(r * row[k] for r, row in zip(off, rows, strict=True))
        error = abs(Fraction(float(reached)) - exact)
        assert error <= Fraction(float(bound))
        assert float(bound) <= 40 * U  # bounds of sums of floats would be ten times as large


@fine
@pytest.mark.parametrize("size", [1e-15, 1e-13, 1e-9])
def test_numbers_that_were_touched_are_seen(size: float) -> None:
    """An executor whose layer adds a little more than it should: the bound has all of it."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), lr=0.5, steps=2, box=None)
    tf = ig.compile(algorithm, target="llama", n_examples=4)
    X, y, _ = algorithm.random_prompt(4, 0, torch.Generator().manual_seed(0))
    prompt = tf.prompt(X, y, None, w0=algorithm.initial_weights(0))
    executor, guard = executor_of(tf, "plain"), tf.guard("error")

    class Touched:
        def layers(self, *given: object):  # type: ignore[no-untyped-def]
            for layer, state, ends in executor.layers(prompt, guard):
                yield layer, state | {"b1": state["b1"] + size} if layer.name == "update" else state, ends

    clean, touched = (
        certify_run(tf, prompt, prompt, of, guard).steps[0].radius
        for of in (executor, Touched())  # type: ignore[arg-type]
    )
    assert float(touched.max()) >= 0.999 * size - U
    assert float(clean.max()) < 3e-15


def test_numbers_are_rounded_up() -> None:
    numbers = np.array([1, 0.0, 3.0], np.longdouble) + np.longdouble(2.0) ** -60
    zeros = torch.zeros(3, dtype=torch.float64)
    assert bool((apart(zeros, zeros, numbers).numpy().astype(np.longdouble) >= numbers).all())
