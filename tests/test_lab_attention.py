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
from innergrad.lab.kernels.attention import HAS_TRITON, INTERPRETED, KINDS, NORMALISE, attend, attention_pattern

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


@pytest.mark.parametrize("fast", [None, False])
def test_each_model_adds_its_own_bias(fast: bool | None) -> None:
    qkv, bias = random(2, 3, 5, 3 * 8), random(2, 3 * 8, seed=1)
    expected = torch.stack([attend(qkv[s] + bias[s], 2, "relu", fast=False) for s in range(2)])
    torch.testing.assert_close(attend(qkv, 2, "relu", fast=fast, bias=bias), expected, rtol=1e-12, atol=1e-13)
    flat = attend(qkv.flatten(0, 1), 2, "relu", fast=fast, bias=bias)  # which sequences are a model's: their order says
    torch.testing.assert_close(flat, expected.flatten(0, 1), rtol=1e-12, atol=1e-13)
    only_first = torch.zeros(2, 3, 2, 5, 5, dtype=torch.float64)
    only_first[..., 0] = 1.0
    mixed = attend(qkv, 2, pattern=only_first, bias=bias)
    torch.testing.assert_close(mixed, (qkv + bias[:, None, None])[..., :1, 16:].expand(2, 3, 5, 8))


def test_softmax_does_not_see_a_bias_of_the_keys() -> None:
    qkv, bias = random(1, 5, 3 * 8), torch.zeros(1, 3 * 8, dtype=torch.float64)
    bias[:, 8:16] = random(1, 8, seed=1)
    torch.testing.assert_close(attend(qkv, 2, bias=bias), attend(qkv, 2), rtol=1e-12, atol=1e-13)


def test_wrong_arguments_are_named() -> None:
    qkv = random(2, 6, 24)
    for call, words in (
        (lambda: attend(qkv, 3), "multiple of the heads"),
        (lambda: attend(qkv, 0), "n_heads"),
        (lambda: attend(qkv, 2, "sofmax"), "softmax, relu"),
        (lambda: attend(qkv, 2, "relu", "length"), "count, sqrt"),
        (lambda: attend(qkv, 2, fast=True), "float64|not installed|on cpu"),
        (lambda: attend(qkv, 2, bias=random(3, 24)), "divisor of the 2 sequences"),
        (lambda: attend(qkv, 2, bias=random(2, 8)), r"\(G, 24\)"),
        (lambda: attend(qkv, 2, bias=random(24)), r"\(G, 3 D\)"),
        (lambda: attend(qkv, 2, bias=random(0, 24)), r"\(G, 3 D\)"),
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
    """Where the kernels run. The interpreter of Triton 3.6 is mended in two places.

    It multiplies the bits of bf16 numbers, and its loops count with arrays of one number, which NumPy 2.4 refuses.
    """
    if CUDA:
        return "cuda"
    import numpy as np
    from triton.runtime import interpreter

    plain, patch = interpreter.InterpreterBuilder.create_dot, interpreter._patch_lang_tensor

    def dot(self, a, b, *rest):  # type: ignore[no-untyped-def]
        if a.data.dtype == np.uint16:
            a, b = (self.cast_impl(z, rest[0].dtype) for z in (a, b))
        return plain(self, a, b, *rest)

    def mended(tensor, scope) -> None:  # type: ignore[no-untyped-def]
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", mended)
    return "cpu"


HALF = torch.float16
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 1e-2}  # the interpreter rounds bf16 towards zero


def both(qkv, bias, grad, n_heads, kind, normalise, fast) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The output, and the gradients of qkv and of the bias, if there is one."""
    leaves = [z.detach().requires_grad_() for z in (qkv, bias) if z is not None]
    out = attend(leaves[0], n_heads, kind, normalise, fast=fast, bias=None if bias is None else leaves[1])
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def close(found: Tensor, exact: Tensor) -> None:
    """Queries, keys and values, each by its norm; a part that is zero must be zero."""
    for a, b in zip(found.cpu().double().chunk(3, -1), exact.chunk(3, -1), strict=True):
        assert (a - b).norm() <= TOLERANCE[found.dtype] * b.norm() + 1e-12


@kernels
@pytest.mark.parametrize(
    ("length", "size", "dtype", "kind", "normalise"),
    [
        *((length, 32, HALF, "softmax", "count") for length in (5, 64, 101, 128)),
        *((length, 16, HALF, "relu", "count") for length in (5, 102, 200)),
        *((37, 16, HALF, *options) for options in OPTIONS[2:]),
        *((length, 32, torch.bfloat16, kind, "count") for length, kind in zip((102, 70, 16, 33), KINDS, strict=True)),
        (256, 16, torch.bfloat16, "softmax", "count"),
        (20, 128, HALF, "softmax", "count"),
    ],
)
def test_kernels_are_the_reference(device, length, size, dtype, kind, normalise) -> None:  # type: ignore[no-untyped-def]
    qkv, grad = random(1, length, 6 * size, dtype=dtype), random(1, length, 2 * size, seed=1, dtype=dtype)
    exact = both(qkv.double(), None, grad.double(), 2, kind, normalise, fast=False)
    found = both(qkv.to(device), None, grad.to(device), 2, kind, normalise, fast=True)
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == dtype
        assert a.is_contiguous()
        close(a, b)


@kernels
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_add_a_bias_and_sum_its_gradient(device: str, kind: str) -> None:
    qkv, grad = random(2, 2, 70, 48, dtype=HALF), random(2, 2, 70, 16, seed=1, dtype=HALF)
    bias = random(2, 96, seed=2, dtype=HALF)[:, 48:]  # rows that lie apart
    moved = (qkv + bias[:, None, None]).double()  # rounded as the kernels round: relu has a kink
    out, dqkv = both(moved, None, grad.double(), 1, kind, "sqrt", fast=False)
    found = both(qkv.to(device), bias.to(device), grad.to(device), 1, kind, "sqrt", fast=True)
    for a, b in zip(found, (out, dqkv, dqkv.sum((1, 2))), strict=True):
        assert a.dtype == HALF
        close(a, b)
    assert (found[2][:, 16:32].abs().max() == 0.0) == (kind == "softmax")


@kernels
def test_kernels_give_one_token_its_own_value(device: str) -> None:
    qkv, grad = (random(1, 1, width, seed=4, dtype=HALF).to(device) for width in (96, 32))
    out, dqkv = both(qkv, None, grad, 2, "softmax", "count", fast=True)
    torch.testing.assert_close(out, qkv[..., 64:], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(dqkv, torch.cat([0 * grad, 0 * grad, grad], -1), rtol=1e-3, atol=2e-6)


@kernels
def test_kernels_never_read_another_sequence_or_the_future(device: str) -> None:
    qkv = random(3, 40, 6 * 16, dtype=HALF)
    other = qkv.clone()
    other[1, 25:] = math.nan
    a, b = (attend(z.to(device), 2, fast=True).cpu() for z in (qkv, other))
    assert torch.equal(a[[0, 2]], b[[0, 2]])
    assert not torch.isfinite(b[1, 25:]).any()
    other[1, 25:] = 1e4 * random(15, 6 * 16, seed=2, dtype=HALF)
    assert torch.equal(a[1, :25], attend(other.to(device), 2, fast=True).cpu()[1, :25])


@kernels
@pytest.mark.parametrize("kind", ["softmax", "exp"])
def test_kernels_keep_a_large_bias_out_of_the_padding(device: str, kind: str) -> None:
    """Scores of the bias with itself overflow exp; no token has them, for q + bias is small."""
    bias = torch.full((1, 48), 100.0, dtype=HALF, device=device)
    qkv = random(1, 20, 48, dtype=HALF).to(device) - bias
    found = both(qkv, bias, torch.ones(1, 20, 16, dtype=HALF, device=device), 1, kind, "count", fast=True)
    assert all(torch.isfinite(z).all() for z in found)


@kernels
def test_kernels_take_strided_input_and_gradients(device: str) -> None:
    wide = random(2, 3, 20, 2 * 96, dtype=HALF).to(device)
    view = wide[..., ::2].requires_grad_()
    out = attend(view, 2, "relu", fast=True)
    (grad,) = torch.autograd.grad(out.sum(), view)  # the gradient of a sum is an expanded scalar
    plain = view.detach().double().requires_grad_()
    expected = attend(plain, 2, "relu", fast=False)
    close(out.detach(), expected.detach().cpu())
    close(grad, torch.autograd.grad(expected.sum(), plain)[0].cpu())
    bias = torch.zeros(2, 96, dtype=HALF, device=device, requires_grad=True)
    empty = attend(wide[:, :0, ..., :96], 2, fast=True, bias=bias)
    assert empty.shape == (2, 0, 20, 32)
    assert torch.autograd.grad(empty.sum(), bias)[0].abs().max() == 0.0


@kernels
def test_kernels_choices_agree(device: str) -> None:
    from innergrad.lab.kernels.attention_triton import Choice, backward, forward

    qkv, grad, bias = (random(*shape, dtype=HALF).to(device) for shape in ((1, 50, 48), (1, 50, 16), (1, 48)))
    results = []
    for block in (16, 32, 64):
        out, norms = forward(qkv, bias, 1, "softmax", "count", Choice(block, 4))
        results.append((out, *backward(grad, qkv, bias, out, norms, 1, "softmax", "count", Choice(block, 4))))
    for first, second in pairwise(results):
        for a, b in zip(first, second, strict=True):
            close(a, b.cpu().double())


@kernels
def test_kernels_compile_without_a_graph_break(device: str) -> None:
    qkv, bias = (random(*shape, dtype=HALF).to(device).requires_grad_() for shape in ((2, 20, 96), (1, 96)))
    torch.library.opcheck(torch.ops.innergrad.attend.default, (qkv, bias, 2, "relu", "count"), rtol=1e-3, atol=1e-3)

    def grads(function) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        return torch.autograd.grad(function(qkv, bias), (qkv, bias))

    def loss(qkv: Tensor, bias: Tensor) -> Tensor:
        return attend(0.5 * qkv, 2, "exp", fast=True, bias=0.5 * bias).square().sum()

    expected, found = grads(loss), grads(torch.compile(loss, fullgraph=True, backend="aot_eager"))
    assert all(torch.isfinite(grad).all() for grad in expected)
    assert all(map(torch.equal, found, expected))


@kernels
def test_kernels_refuse_second_derivatives(device: str) -> None:
    qkv = random(1, 5, 48, dtype=HALF).to(device).requires_grad_()
    (grad,) = torch.autograd.grad(attend(qkv, 1, fast=True).square().sum(), qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(grad.sum(), qkv)


@kernels
def test_kernels_refuse_what_does_not_fit(device: str) -> None:
    for shape, dtype in (((1, 257, 48), HALF), ((1, 200, 192), HALF), ((1, 5, 24), HALF), ((1, 5, 48), torch.float32)):
        with pytest.raises(InputError, match="do not apply"):
            attend(torch.zeros(shape, dtype=dtype, device=device), 1, fast=True)
