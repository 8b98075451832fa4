"""Attention in small sets: what it is, and that the kernel computes it. See test_lab_attention.py for where it runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.kernels.attention import HAS_TRITON, INTERPRETED
from innergrad.lab.kernels.sets import attend_set
from test_lab_attention import CUDA, device

__all__ = ["device"]  # a fixture
HEADS = 2
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 1e-2}


def sets(length: int, size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Six sets of packed heads, a gradient, and what three of them each must not read."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(6, length, 3 * HEADS * size, generator=generator).to(dtype)
    grad = torch.randn(6, length, HEADS * size, generator=generator).to(dtype)
    hidden = torch.zeros(2, length)
    hidden[0, 1], hidden[1, :3] = -1e4, -1e4
    return qkv, grad, hidden


def both(qkv: Tensor, hidden: Tensor | None, grad: Tensor, fast: bool) -> tuple[Tensor, Tensor]:
    leaf = qkv.detach().requires_grad_()
    out = attend_set(leaf, hidden, HEADS, fast=fast)
    return out.detach(), torch.autograd.grad(out, leaf, grad)[0]


def test_it_is_softmax_over_what_is_not_hidden() -> None:
    qkv, grad, hidden = sets(5, 4)
    out, slope = both(qkv, hidden, grad, fast=False)
    for number in range(6):
        read = (hidden[number // 3] == 0).nonzero()[:, 0]
        q, k, v = qkv[number].unflatten(-1, (3, HEADS, -1)).permute(1, 2, 0, 3)
        expected = (q @ k[:, read].mT / 2.0).softmax(-1) @ v[:, read]
        torch.testing.assert_close(out[number], expected.transpose(0, 1).flatten(1))
    for name in slope[:3, 1, 8:].chunk(2, -1):
        assert float(name.abs().max()) == 0.0  # keys and values that nobody reads
    shared = both(qkv, torch.zeros(1, 5), grad, fast=False)
    with pytest.raises(InputError, match="the kernel of sets does not apply"):
        attend_set(qkv, None, HEADS, fast=True)
    for found, exact in zip(both(qkv, None, grad, fast=False), shared, strict=True):
        torch.testing.assert_close(found, exact)


@pytest.mark.skipif(not HAS_TRITON or not (CUDA or INTERPRETED), reason="Triton runs neither here nor on a GPU")
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("length", "size"), [(24, 32), (5, 16), (40, 32), (64, 64)])
def test_kernels_are_the_reference(device: str, length: int, size: int, dtype: torch.dtype) -> None:
    qkv, grad, hidden = sets(length, size, dtype)
    for away in (hidden, None):
        exact = both(qkv.double(), away, grad.double(), fast=False)
        there = None if away is None else away.to(device)
        found = both(qkv.to(device), there, grad.to(device), fast=True)
        for a, b in zip(found, exact, strict=True):
            assert a.dtype == dtype
            assert (a.cpu().double() - b).norm() <= TOLERANCE[dtype] * b.norm()


@pytest.mark.skipif(not HAS_TRITON or CUDA or INTERPRETED, reason="needs Triton, and is not needed with a GPU")
def test_kernels_in_the_interpreter() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "kernels_are", __file__]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " skipped" not in run.stdout
