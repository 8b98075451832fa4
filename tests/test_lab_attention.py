"""Causal attention: the reference against loops and torch's own, and the kernels against the reference.

The kernels run on a GPU where there is one. Elsewhere they run in Triton's interpreter, if Triton is installed: it must
be switched on before Triton is imported, so one test runs this file again in a process of its own.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from innergrad.errors import InputError
from innergrad.lab.attention import HAS_TRITON, INTERPRETED, KINDS, NORMALISE, attend, attention_pattern

CUDA = torch.cuda.is_available()
kernels = pytest.mark.skipif(
    not HAS_TRITON or not (CUDA or INTERPRETED), reason="Triton runs neither here nor on a GPU"
)
OPTIONS = [("softmax", "count"), *product(KINDS[1:], NORMALISE)]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_hand(qkv: Tensor, n_heads: int, kind: str, normalise: str) -> Tensor:
    """Token by token, head by head, from the definition; qkv (T, 3 D)."""
    width = qkv.shape[1] // 3
    size = width // n_heads
    out = torch.zeros(len(qkv), width, dtype=qkv.dtype)
    for i, h in product(range(len(qkv)), range(n_heads)):
        columns = slice(h * size, (h + 1) * size)
        query = qkv[i, :width][columns]
        weights = []
        for j in range(i + 1):
            score = float(query @ qkv[j, width : 2 * width][columns]) / math.sqrt(size)
            weights.append(
                {"relu": max(score, 0.0), "linear": score}.get(kind) if kind in ("relu", "linear") else math.exp(score)
            )
        count = {"count": i + 1, "sqrt": math.sqrt(i + 1), "none": 1}[normalise]
        total = sum(weights) if kind == "softmax" else count
        for j, weight in enumerate(weights):
            out[i, columns] += weight / total * qkv[j, 2 * width :][columns]
    return out


@pytest.mark.parametrize(("kind", "normalise"), OPTIONS)
def test_reference_is_the_definition(kind: str, normalise: str) -> None:
    qkv = random(2, 3, 7, 3 * 8)  # stack, batch, tokens, packed
    out = attend(qkv, 2, kind, normalise, fast=False)
    assert out.shape == (2, 3, 7, 8)
    torch.testing.assert_close(out[1, 2], by_hand(qkv[1, 2], 2, kind, normalise), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(attend(qkv, 2, kind, normalise), out, rtol=1e-12, atol=1e-13)


def test_softmax_is_torchs() -> None:
    qkv = random(3, 11, 3 * 8)
    q, k, v = (part.reshape(3, 11, 2, 4).transpose(1, 2) for part in qkv.split(8, dim=-1))
    expected = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(3, 11, 8)
    torch.testing.assert_close(attend(qkv, 2, fast=False), expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(attend(qkv, 2), expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("fast", [None, False])
@pytest.mark.parametrize("kind", KINDS)
def test_later_tokens_change_nothing(kind: str, fast: bool | None) -> None:
    qkv = random(2, 9, 3 * 8)
    other = torch.cat([qkv[:, :5], 100 * random(2, 6, 3 * 8, seed=1)], dim=1)  # another future, and a longer one
    before, after = (attend(z, 2, kind, fast=fast)[:, :5] for z in (qkv, other))
    torch.testing.assert_close(after, before, rtol=1e-13, atol=1e-15)
    leaf = qkv.requires_grad_()
    (grad,) = torch.autograd.grad(attend(leaf, 2, kind, fast=fast)[:, :5].sum(), leaf)
    assert grad[:, 5:].abs().max() == 0.0
    assert grad[:, :5].abs().max() > 0.0


def test_future_scores_that_overflow_leave_gradients_finite() -> None:
    qkv = random(1, 3, 3 * 4)
    qkv[:, 2, 4:8] = 1e6 * qkv[:, 0, :4]  # the score of token 0 with the future token 2
    leaf = qkv.requires_grad_()
    (grad,) = torch.autograd.grad(attend(leaf, 1, "exp", fast=False)[:, :2].sum(), leaf)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_second_derivatives_of_the_reference(kind: str) -> None:
    qkv = random(1, 4, 3 * 4, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: attend(z, 2, kind, "sqrt", fast=False), qkv)
    assert torch.autograd.gradgradcheck(lambda z: attend(z, 2, kind, "sqrt", fast=False), qkv)


def test_pattern_is_what_attention_used() -> None:
    qkv = random(2, 6, 3 * 8)
    for kind, normalise in OPTIONS:
        pattern = attention_pattern(qkv, 2, kind, normalise)
        assert pattern.shape == (2, 2, 6, 6)
        assert pattern.triu(1).abs().max() == 0.0
        expected = attend(qkv, 2, kind, normalise, fast=False)
        torch.testing.assert_close(attend(qkv, 2, pattern=pattern), expected, rtol=1e-13, atol=1e-14)
    only_first = torch.zeros(2, 2, 6, 6, dtype=torch.float64)
    only_first[..., 0] = 1.0
    torch.testing.assert_close(attend(qkv, 2, pattern=only_first), qkv[:, :1, 16:].expand(2, 6, 8))


def test_half_precision_forms_scores_in_float32() -> None:
    qkv = random(2, 40, 3 * 32, dtype=torch.bfloat16)
    out = attend(qkv, 2, "relu")
    assert out.dtype == torch.bfloat16
    exact = attend(qkv.double(), 2, "relu")
    assert (out.double() - exact).norm() / exact.norm() < 2**-8  # one rounding, of the output
    assert attention_pattern(qkv, 2).dtype == torch.float32


def test_wrong_arguments_are_named() -> None:
    qkv = random(2, 6, 24)
    for call, words in (
        (lambda: attend(qkv, 3), "multiple of the heads"),
        (lambda: attend(qkv, 0), "n_heads"),
        (lambda: attend(qkv, 2, "sofmax"), "softmax, relu"),
        (lambda: attend(qkv, 2, "relu", "length"), "count, sqrt"),
        (lambda: attend(qkv, 2, fast=True), "float64|not installed|on cpu"),
        (lambda: attend(qkv, 2, pattern=torch.ones(2, 2, 6, 6), fast=True), "explicit pattern"),
    ):
        with pytest.raises(InputError, match=words):
            call()


@pytest.mark.skipif(not HAS_TRITON or CUDA or INTERPRETED, reason="needs Triton, and is not needed with a GPU")
def test_kernels_in_the_interpreter() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    options = ["-p", "no:cacheprovider", "-k", "kernel and not interpreter"]
    command = [sys.executable, "-m", "pytest", *options, __file__]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
    assert " skipped" not in run.stdout


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the kernels run. The interpreter of Triton 3.6 multiplies the bits of bf16 numbers: mend it."""
    if CUDA:
        return "cuda"
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder

    plain = InterpreterBuilder.create_dot

    def dot(self, a, b, *rest):  # type: ignore[no-untyped-def]
        if a.data.dtype == np.uint16:
            a, b = (self.cast_impl(z, rest[0].dtype) for z in (a, b))
        return plain(self, a, b, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", dot)
    return "cpu"


def both(qkv: Tensor, grad: Tensor, n_heads: int, kind: str, normalise: str, fast: bool) -> tuple[Tensor, Tensor]:
    leaf = qkv.detach().requires_grad_()
    out = attend(leaf, n_heads, kind, normalise, fast=fast)
    return out.detach(), torch.autograd.grad(out, leaf, grad)[0]


@kernels
@pytest.mark.parametrize(
    ("length", "size", "dtype", "kind", "normalise"),
    [
        *((length, 32, torch.float32, "softmax", "count") for length in (5, 64, 101, 128)),
        *((length, 16, torch.float32, "relu", "count") for length in (5, 102, 200)),
        *((37, 16, torch.float32, *options) for options in OPTIONS[2:]),
        *((length, 32, torch.bfloat16, kind, "count") for length, kind in zip((102, 70, 16, 33), KINDS, strict=True)),
        (256, 16, torch.bfloat16, "softmax", "count"),
        (20, 128, torch.float16, "softmax", "count"),
    ],
)
def test_kernels_are_the_reference(device, length, size, dtype, kind, normalise) -> None:  # type: ignore[no-untyped-def]
    qkv, grad = random(1, length, 6 * size, dtype=dtype), random(1, length, 2 * size, seed=1, dtype=dtype)
    exact = both(qkv.double(), grad.double(), 2, kind, normalise, fast=False)
    found = both(qkv.to(device), grad.to(device), 2, kind, normalise, fast=True)
    tolerance = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == dtype
        assert a.is_contiguous()
        for part in zip(a.cpu().double().chunk(3, -1), b.chunk(3, -1), strict=True):  # of the gradient: q, k and v
            assert (part[0] - part[1]).norm() <= tolerance * part[1].norm()


@kernels
def test_kernels_give_one_token_its_own_value(device: str) -> None:
    qkv, grad = (random(1, 1, width, seed=4, dtype=torch.float32).to(device) for width in (96, 32))
    out, dqkv = both(qkv, grad, 2, "softmax", "count", fast=True)
    torch.testing.assert_close(out, qkv[..., 64:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dqkv, torch.cat([0 * grad, 0 * grad, grad], -1), rtol=1e-6, atol=2e-6)


@kernels
def test_kernels_never_read_another_sequence_or_the_future(device: str) -> None:
    qkv = random(3, 40, 6 * 16, dtype=torch.float32)
    other = qkv.clone()
    other[1, 25:] = math.nan
    a, b = (attend(z.to(device), 2, fast=True).cpu() for z in (qkv, other))
    assert torch.equal(a[[0, 2]], b[[0, 2]])
    assert not torch.isfinite(b[1, 25:]).any()
    other[1, 25:] = 1e4 * random(15, 6 * 16, seed=2, dtype=torch.float32)
    assert torch.equal(a[1, :25], attend(other.to(device), 2, fast=True).cpu()[1, :25])


@kernels
def test_kernels_take_strided_input_and_gradients(device: str) -> None:
    wide = random(2, 3, 20, 2 * 96, dtype=torch.float32).to(device)
    view = wide[..., ::2].requires_grad_()
    out = attend(view, 2, "relu", fast=True)
    (grad,) = torch.autograd.grad(out.sum(), view)  # the gradient of a sum is an expanded scalar
    plain = view.detach().contiguous().requires_grad_()
    expected = attend(plain, 2, "relu", fast=False)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.sum(), plain)[0], rtol=1e-4, atol=1e-4)
    assert attend(wide[:0, ..., :96], 2, fast=True).shape == (0, 3, 20, 32)


@kernels
def test_kernels_choices_agree(device: str) -> None:
    from innergrad.lab.attention_triton import Choice, backward, forward

    qkv, grad = (random(1, 50, width, dtype=torch.float32).to(device) for width in (48, 16))
    outs, grads = [], []
    for block in (16, 32, 64):
        out, norms = forward(qkv, 1, "softmax", "count", Choice(block, 4))
        outs.append(out)
        grads.append(backward(grad, qkv, out, norms, 1, "softmax", "count", Choice(block, 4)))
    for results in (outs, grads):
        for a, b in pairwise(results):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@kernels
def test_kernels_compile_without_a_graph_break(device: str) -> None:
    torch.library.opcheck(
        torch.ops.innergrad.attend.default, (torch.randn(1, 5, 48, device=device), 1, "softmax", "count")
    )
    qkv = random(2, 20, 6 * 16, dtype=torch.float32).to(device).requires_grad_()
    compiled = torch.compile(lambda z: attend(2 * z, 2, "exp", fast=True), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(qkv), attend(2 * qkv, 2, "exp", fast=True), rtol=0.0, atol=0.0)
    expected = torch.autograd.grad(attend(2 * qkv, 2, "exp", fast=True).square().sum(), qkv)[0]
    torch.testing.assert_close(
        torch.autograd.grad(compiled(qkv).square().sum(), qkv)[0], expected, rtol=1e-6, atol=1e-6
    )


@kernels
def test_kernels_refuse_second_derivatives(device: str) -> None:
    qkv = random(1, 5, 48, dtype=torch.float32).to(device).requires_grad_()
    (grad,) = torch.autograd.grad(attend(qkv, 1, fast=True).square().sum(), qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(grad.sum(), qkv)


@kernels
def test_kernels_refuse_what_does_not_fit(device: str) -> None:
    for shape, dtype in (((1, 257, 48), torch.float32), ((1, 200, 96), torch.float32), ((1, 5, 24), torch.float32)):
        with pytest.raises(InputError, match="do not apply"):
            attend(torch.zeros(shape, dtype=dtype, device=device), 1, fast=True)
