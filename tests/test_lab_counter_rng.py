"""Random numbers by counting: what a number depends on, and that the numbers are random."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from innergrad.lab.counter_rng import ELEMENTS, CounterRNG

RNG = CounterRNG.of(0, "test")
ROWS = torch.arange(2000)


def squares64(counter: int, key: int) -> int:
    """Widynski's generator in Python's integers, as his paper prints it."""
    mask = 2**64 - 1
    y = x = counter * key & mask
    z = y + key & mask
    for addend in (y, z, y):
        x = x * x + addend & mask
        x = (x >> 32 | x << 32) & mask
    t = x = x * x + z & mask
    x = (x >> 32 | x << 32) & mask
    return t ^ ((x * x + y & mask) >> 32)


def test_bits_are_those_of_the_squares_generator() -> None:
    index = torch.tensor([0, 1, 77, 2**34 + 5])
    bits = RNG.bits(index, 5)
    key = int(RNG.key) % 2**64
    for row, number in enumerate(index.tolist()):
        for j in range(5):
            counter = ((number << ELEMENTS) + j) % 2**64
            assert int(bits[row, j]) % 2**64 == squares64(counter, key)


@pytest.mark.parametrize("draw", ["uniform", "normal", "integers"])
def test_a_row_depends_on_its_index_alone(draw: str) -> None:
    def numbers(index: torch.Tensor, *shape: int) -> torch.Tensor:
        return RNG.integers(index, 10, *shape) if draw == "integers" else getattr(RNG, draw)(index, *shape)

    whole = numbers(ROWS[:100], 7, 3)
    parts = torch.cat([numbers(part, 7, 3) for part in ROWS[:100].split([1, 13, 86])])
    assert torch.equal(whole, parts)
    shuffled = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole[shuffled], numbers(ROWS[:100][shuffled], 7, 3))
    assert torch.equal(whole[:, :4], numbers(ROWS[:100], 4, 3)), "a longer prompt begins with the shorter one"


def test_rows_of_a_stack_are_those_of_its_generators() -> None:
    seeds = [CounterRNG.of(seed, "train") for seed in range(3)]
    together = CounterRNG.rows(seeds, 5).fork("inputs").normal(torch.arange(5).repeat(3), 4)
    assert torch.equal(together, torch.cat([one.fork("inputs").normal(torch.arange(5), 4) for one in seeds]))


def test_uniform_numbers_are_uniform() -> None:
    numbers = RNG.uniform(ROWS, 50).double().numpy()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    counts = np.histogram(numbers[:, 0], bins=20, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-3
    integers = RNG.integers(ROWS, 7, 50).numpy()
    assert stats.chisquare(np.bincount(integers.ravel(), minlength=7)).pvalue > 1e-3
    pairs = integers[:-1] * 7 + integers[1:]  # of consecutive samples, whose counters differ in high bits only
    assert stats.chisquare(np.bincount(pairs.ravel(), minlength=49)).pvalue > 1e-3
    bits = RNG.bits(ROWS, 50)
    ones = torch.stack([(bits >> place & 1).sum() for place in range(64)]).numpy()
    assert stats.chisquare(ones).pvalue > 1e-3, "every one of the 64 bits is fair"


def test_normal_numbers_are_normal() -> None:
    numbers = RNG.normal(ROWS, 50).double()
    assert stats.kstest(numbers.numpy().ravel(), "norm").pvalue > 1e-3
    assert abs(float(numbers.mean())) < 4 / numbers.numel() ** 0.5
    assert abs(float(numbers.pow(2).mean()) - 1) < 4 * (2 / numbers.numel()) ** 0.5
    assert abs(float(numbers.pow(4).mean()) - 3) < 4 * (96 / numbers.numel()) ** 0.5


def test_numbers_are_not_correlated() -> None:
    """Across places of a row, samples, forks, forks of forks, names and seeds; the largest of all is a chance."""
    rngs = [RNG, RNG.fork("inputs"), RNG.fork("params"), RNG.fork("inputs").fork("params")]
    rngs += [CounterRNG.of(1, "test"), CounterRNG.of(0, "tess"), CounterRNG.of(2, "test").fork("inputs")]
    columns = torch.cat([rng.normal(ROWS, 6) for rng in rngs], 1)
    columns = torch.cat((columns, RNG.normal(ROWS + 1, 6), RNG.normal(ROWS + len(ROWS), 6)), 1)
    correlation = torch.corrcoef(columns.double().T)
    worst = float((correlation - torch.eye(len(correlation))).abs().max())
    assert worst < 5 / len(ROWS) ** 0.5
    assert len({int(rng.key) for rng in rngs}) == len(rngs)
