"""Additions with LayerNorm, and biases with GELU: plain torch against torch's own, the kernels against plain torch.

The kernels run on a GPU where there is one, and otherwise in Triton's interpreter, if Triton is installed: one test
runs this file again in a process where it is switched on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from innergrad.errors import InputError
from innergrad.lab.kernels.norms import HAS_TRITON, INTERPRETED, add_norm, bias_gelu

CUDA = torch.cuda.is_available()
HALF = torch.float16
kernels = pytest.mark.skipif(
    not HAS_TRITON or not (CUDA or INTERPRETED), reason="Triton runs neither here nor on a GPU"
)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(*shape: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """residual, delta, bias, gain, shift; the parameters are rows that lie apart, as in one vector of parameters."""
    S, D = shape[0], shape[-1]
    apart = random(S, 3 * D + 16, seed=2, dtype=dtype)[:, : 3 * D].unflatten(1, (3, D)).unbind(1)
    return [random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype), *apart]


@pytest.mark.parametrize("stack", [1, 3])
def test_each_model_has_its_own_layer_norm(stack: int) -> None:
    residual, delta, bias, gain, shift = inputs(stack, 2, 5, 12)
    total, normed = add_norm(residual, delta, bias, gain, shift)
    for s in range(stack):
        expected = residual[s] + delta[s] + bias[s]
        torch.testing.assert_close(total[s], expected)
        torch.testing.assert_close(normed[s], F.layer_norm(expected, (12,), gain[s], shift[s], eps=1e-5))
    total, normed = add_norm(residual, None, None, gain, shift)
    assert torch.equal(total, residual)
    torch.testing.assert_close(normed[-1], F.layer_norm(residual[-1], (12,), gain[-1], shift[-1], eps=1e-5))
    torch.testing.assert_close(add_norm(residual, delta, None, gain, shift)[0], residual + delta)
    torch.testing.assert_close(add_norm(residual[:, 0, 0], None, bias, gain, shift)[0], residual[:, 0, 0] + bias)


def test_gelu_is_torchs() -> None:
    x, _, bias, *_ = inputs(3, 4, 12)
    expected = torch.stack([F.gelu(x[s] + bias[s], approximate="tanh") for s in range(3)])
    torch.testing.assert_close(bias_gelu(x, bias), expected)


def test_half_precision_is_rounded_once() -> None:
    """The sum of three is rounded once, then normalised with statistics of float32."""
    given = inputs(2, 9, 64, dtype=torch.bfloat16)
    total, normed = add_norm(*given)
    exact = given[0].double() + given[1].double() + given[2].double()[:, None]
    assert torch.equal(total, exact.to(torch.bfloat16))
    expected = add_norm(total.double(), None, None, given[3].double(), given[4].double())[1]
    assert (normed.double() - expected).norm() < 2**-8 * expected.norm()
    assert normed.dtype == torch.bfloat16
    half = bias_gelu(given[0], given[2])
    assert half.dtype == torch.bfloat16
    full = bias_gelu(given[0].double(), given[2].double())
    assert (half.double() - full).norm() < 2**-8 * full.norm()


def test_gradients_and_second_derivatives_of_plain_torch() -> None:
    leaves = [z.clone().requires_grad_() for z in inputs(2, 2, 4)]
    assert torch.autograd.gradcheck(add_norm, leaves)
    assert torch.autograd.gradgradcheck(add_norm, leaves)
    assert torch.autograd.gradcheck(bias_gelu, (leaves[0], leaves[2]))


def test_wrong_arguments_are_named() -> None:
    residual, delta, bias, gain, shift = inputs(2, 3, 8)
    for call, words in (
        (lambda: add_norm(residual, delta[:1], bias, gain, shift), "one shape"),
        (lambda: add_norm(residual, delta, bias[:1], gain, shift), r"bias must be .*\(1, 8\).*\(2, 8\)"),
        (lambda: add_norm(residual, delta, bias, gain[0], shift), "gain must be"),
        (lambda: add_norm(residual, delta, bias, gain, shift[:, :4]), "shift must be"),
        (lambda: add_norm(residual[0, 0], None, None, gain, shift), r"\(S, ..., D\)"),
        (lambda: add_norm(residual, delta, bias, gain, shift, fast=True), "float64|not installed|on cpu"),
        (lambda: bias_gelu(residual, gain[:1]), "bias must be"),
        (lambda: bias_gelu(residual, gain, fast=True), "float64|not installed|on cpu"),
    ):
        with pytest.raises(InputError, match=words):
            call()


@pytest.mark.skipif(not HAS_TRITON or CUDA or INTERPRETED, reason="needs Triton, and is not needed with a GPU")
def test_kernels_in_the_interpreter() -> None:
    options = ["-p", "no:cacheprovider", "-k", "kernel and not interpreter"]
    command = [sys.executable, "-m", "pytest", *options, __file__]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
    assert " skipped" not in run.stdout


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the kernels run. Loops in Triton 3.6's interpreter count with arrays, which NumPy 2.4 refuses: mend it."""
    if CUDA:
        return "cuda"
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def mended(tensor, scope) -> None:  # type: ignore[no-untyped-def]
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", mended)
    return "cpu"


def results(function, given: Sequence[Tensor | None], grads: Sequence[Tensor | None], fast: bool):  # type: ignore[no-untyped-def]
    """Outputs, and gradients of all that is given for those of the outputs; None: absent, or not used."""
    leaves = [None if z is None else z.detach().requires_grad_() for z in given]
    outs = function(*leaves, fast=fast)
    outs = outs if isinstance(outs, tuple) else (outs,)
    used = [(out, grad) for out, grad in zip(outs, grads, strict=True) if grad is not None]
    present = [leaf for leaf in leaves if leaf is not None]
    return [*outs, *torch.autograd.grad([out for out, _ in used], present, [grad for _, grad in used])]


def compare(function, given, grads, device: str) -> None:  # type: ignore[no-untyped-def]
    """Half precision on the kernels against float64 on plain torch: the results' own rounding, and little more."""
    double, there = (
        [[None if z is None else change(z) for z in each] for each in (given, grads)]
        for change in (torch.Tensor.double, lambda z: z.to(device))
    )
    for a, b in zip(results(function, *there, True), results(function, *double, False), strict=True):
        assert a.dtype == HALF
        assert a.shape == b.shape
        assert (a.cpu() - b).norm() <= 5e-4 * b.norm()


@kernels
@pytest.mark.parametrize("absent", [(), (0,), (1,), (0, 1), (5,), (0, 1, 5), (6,)])
def test_kernels_add_and_normalise(device: str, absent: tuple[int, ...]) -> None:
    """Without delta (0), bias (1), or a gradient of the residual (5) or of the LayerNorm (6)."""
    given = inputs(2, 3, 7, 64, dtype=HALF)
    grads = [random(2, 3, 7, 64, seed=seed, dtype=HALF) for seed in (5, 6)]
    if 6 in absent:
        given[3:] = [torch.ones_like(z) for z in given[3:]]
        expected = results(add_norm, given, [grads[0], 0 * grads[1]], False)
        found = results(
            lambda *z, fast: add_norm(*z, fast=fast), [z.to(device) for z in given], [grads[0].to(device), None], True
        )
        assert all(torch.allclose(a.cpu(), b, rtol=1e-2, atol=1e-2) for a, b in zip(found, expected, strict=True))
        return
    chosen = [None if i - 1 in absent else z for i, z in enumerate(given)]
    compare(add_norm, chosen, [None if 5 in absent else grads[0], grads[1]], device)


@kernels
@pytest.mark.parametrize(("stack", "rows", "width"), [(1, 1, 16), (3, 65, 32), (1, 50, 256), (2, 5, 1024)])
def test_kernels_of_all_sizes(device: str, stack: int, rows: int, width: int) -> None:
    grads = [random(stack, rows, width, seed=seed, dtype=HALF) for seed in (5, 6)]
    given = inputs(stack, rows, width, dtype=HALF)
    compare(add_norm, given, grads, device)
    compare(bias_gelu, [given[0], given[2]], grads[:1], device)


@kernels
def test_kernels_of_gelu_cut_wide_rows(device: str) -> None:
    x, grad = (3 * random(2, 9, 768, seed=seed, dtype=HALF) for seed in (0, 1))
    compare(bias_gelu, [x, random(2, 768, seed=2, dtype=HALF)], [grad], device)


@kernels
def test_kernels_choices_agree(device: str) -> None:
    """Sums over programs do not depend on how many there are, but for rounding."""
    from innergrad.lab.kernels.norms_triton import Choice, add_norm_backward, column_sums

    total, dy, gain = (random(*shape, seed=7, dtype=HALF).to(device) for shape in ((2, 60, 64), (2, 60, 64), (2, 64)))
    first, *others = (
        add_norm_backward(None, dy, total, gain, Choice(n, 4, p)) for n, p in ((256, 1), (512, 3), (1024, 99))
    )
    for other in others:
        torch.testing.assert_close(other[0], first[0], rtol=2e-3, atol=1e-4)
        torch.testing.assert_close(other[1], first[1], rtol=2e-3, atol=1e-3)
    parts = random(3, 300, 48, dtype=torch.float32).to(device)
    torch.testing.assert_close(column_sums(parts, torch.float32), parts.sum(1), rtol=1e-5, atol=1e-4)


@kernels
def test_kernels_take_strided_and_empty_tensors(device: str) -> None:
    given = [z.to(device) for z in inputs(2, 6, 64, dtype=HALF)]
    turned = given[0].reshape(2, 64, 6).mT.requires_grad_()
    total, normed = add_norm(turned, *given[1:], fast=True)
    plain = add_norm(turned, *given[1:], fast=False)
    torch.testing.assert_close(total, plain[0], rtol=1e-3, atol=1e-3)
    (grad,) = torch.autograd.grad(normed.sum() + total.sum(), turned)  # gradients of sums are expanded scalars
    (expected,) = torch.autograd.grad(plain[1].sum() + plain[0].sum(), turned)
    torch.testing.assert_close(grad, expected, rtol=1e-2, atol=1e-2)
    gain = given[3].clone().requires_grad_()
    empty = add_norm(given[0][:, :0], None, None, gain, given[4], fast=True)[1]
    assert empty.shape == (2, 0, 64)
    assert torch.autograd.grad(empty.sum(), gain)[0].abs().max() == 0.0
    assert bias_gelu(given[0][:, :0], gain, fast=True).shape == (2, 0, 64)


@kernels
def test_kernels_compile_without_a_graph_break(device: str) -> None:
    given = [z.to(device).requires_grad_() for z in inputs(2, 6, 64, dtype=HALF)]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.innergrad.add_norm.default, given, test_utils=tests)
    torch.library.opcheck(torch.ops.innergrad.bias_gelu.default, (given[0], given[2]), test_utils=tests)

    def loss(residual, delta, bias, gain, shift, fast=True):  # type: ignore[no-untyped-def]
        total, normed = add_norm(residual, delta, bias, gain, shift, fast=fast)
        _, last = add_norm(total, bias_gelu(normed, bias, fast=fast), None, gain, shift, fast=fast)
        return last.square().mean()

    def grads(function) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        return torch.autograd.grad(function(*given), given)

    found = grads(torch.compile(loss, fullgraph=True, backend="aot_eager"))
    for a, b in zip(found, grads(loss), strict=True):
        assert a.abs().max() > 0.0
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-4)  # gradients of two uses are added in another order
    single = [z.detach().float() for z in given]  # not for the kernels: the choice is part of the graph too
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*single, fast=None), loss(*single, fast=None))


@kernels
def test_kernels_refuse_what_does_not_fit(device: str) -> None:
    for shape, dtype in (((1, 3, 48), HALF), ((1, 3, 2048), HALF), ((1, 3, 64), torch.float32)):
        with pytest.raises(InputError, match="do not apply"):
            add_norm(*(z.to(device) for z in inputs(*shape, dtype=dtype)), fast=True)
    with pytest.raises(InputError, match="a width of 24"):
        bias_gelu(
            torch.zeros(1, 3, 24, dtype=HALF, device=device), torch.zeros(1, 24, dtype=HALF, device=device), fast=True
        )
    with pytest.raises(InputError, match=r"torch.float16, torch.float32"):
        bias_gelu(torch.zeros(1, 3, 16, dtype=HALF, device=device), torch.zeros(1, 16, device=device), fast=True)
