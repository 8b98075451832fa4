"""Random numbers by counting: number j of sample i of a generator is a function of (generator, i, j), nothing else.

So a sample does not depend on its batch, on the number of devices that share the work, or on the step at which a run
was resumed. It is made on the device that needs it. There is no state to save, only an index.

The function is Widynski's *Squares* (64-bit output, five rounds of squaring a 64-bit counter times a key; 2020), in
integer arithmetic that is the same on every device. Normal numbers are Box and Muller's, two from each 64 bits, with
32-bit uniforms (nothing beyond 6.7 standard deviations). Sums that differ in the last bit between devices are those of
log, sqrt and cos, not of the counter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ELEMENTS = 28  # a sample may draw 2^28 times 64 bits from one generator; there are 2^35 samples
_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class CounterRNG:
    """Random numbers by counting: number j of sample i is a function of (key, i, j) alone.

    So a sample is the same in every batch, on every device and after resuming.

    Args:
        key: an odd 64-bit integer, a tensor of shape (), or (rows,) for one key for each row. ``of`` makes it from a
            seed.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> rng = lab.CounterRNG.of(0, "an example")
        >>> both, second = rng.normal(torch.tensor([0, 1]), 3), rng.normal(torch.tensor([1]), 3)
        >>> torch.equal(both[1:], second)
        True
    """

    key: Tensor

    @classmethod
    def of(cls, seed: int, name: str = "", device: torch.device | str = "cpu") -> CounterRNG:
        """The generator of a seed and a name, such as ``CounterRNG.of(0, "train")``."""
        return cls(_mix(torch.full((), _hash(f"{seed}/{name}"), dtype=torch.int64, device=device)) | 1)

    @classmethod
    def rows(cls, rngs: Sequence[CounterRNG], rows: int) -> CounterRNG:
        """One generator a block of ``rows`` rows: for the models of a stack, which see samples of their own."""
        return cls(torch.stack([rng.key for rng in rngs]).repeat_interleave(rows))

    def fork(self, name: str) -> CounterRNG:
        """An independent generator for another purpose."""
        return CounterRNG(_mix(self.key ^ _hash(name)) | 1)

    def bits(self, index: Tensor, count: int) -> Tensor:
        """(rows, count) int64 of 64 random bits for the samples ``index``, (rows,) int64."""
        counter = (index << ELEMENTS)[:, None] + torch.arange(count, device=index.device)
        return _squares(counter, self.key.to(index.device)[..., None])

    def uniform(self, index: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """(rows, *shape), uniform on [0, 1): multiples of 2^-24."""
        high, low = self._halves(index, math.prod(shape))
        pairs = torch.stack((high >> 8, low >> 8), -1).flatten(1)
        return (pairs[:, : math.prod(shape)].to(dtype) * 2.0**-24).view(-1, *shape)

    def normal(self, index: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """(rows, *shape), standard normal. The first numbers of a larger shape are those of a smaller one."""
        high, low = self._halves(index, math.prod(shape))
        radius = ((high + 1).to(dtype) * 2.0**-32).log().mul(-2.0).sqrt()
        angle = low.to(dtype) * (2.0 * math.pi * 2.0**-32)
        pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), -1).flatten(1)
        return pairs[:, : math.prod(shape)].view(-1, *shape)

    def integers(self, index: Tensor, high: int, *shape: int) -> Tensor:
        """(rows, *shape) int64, uniform on 0 .. high - 1 (up to a bias of high / 2^32)."""
        count = math.prod(shape)
        return (((self.bits(index, count) >> 32) & _LOW) * high >> 32).view(-1, *shape)

    def _halves(self, index: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Two times 32 bits for every two of ``count`` numbers."""
        bits = self.bits(index, (count + 1) // 2)
        return (bits >> 32) & _LOW, bits & _LOW


def _squares(counter: Tensor, key: Tensor) -> Tensor:
    """64 bits from a counter and a key; int64 arithmetic wraps around, as the generator wants."""
    y = counter * key
    z = y + key
    x = _swap(y * y + y)
    x = _swap(x * x + z)
    x = _swap(x * x + y)
    last = x * x + z
    x = _swap(last)
    return last ^ (((x * x + y) >> 32) & _LOW)


def _swap(x: Tensor) -> Tensor:
    """The two halves of 64 bits exchanged."""
    return ((x >> 32) & _LOW) | (x << 32)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 64 bits that leaves no pattern (the finaliser of SplitMix64)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _hash(text: str) -> int:
    """FNV-1a of a name, 64 bits: plain integers, which torch.compile folds into a constant. Always mixed afterwards."""
    number = 0xCBF29CE484222325
    for byte in text.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return _signed(number)


def _signed(number: int) -> int:
    """64 bits as torch's signed integers hold them."""
    return number - 2**64 if number >= 2**63 else number
