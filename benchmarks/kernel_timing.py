"""Checks and times the lab's kernels on a GPU: python benchmarks/kernel_timing.py [attention] [norms].

Results are compared with plain torch in float64, and every run must give the same bits. Times are of CUDA graphs; the
inputs rotate, so that they are not found in the cache. After ``SECONDS`` a part names what is left and does not run it.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from innergrad.lab.kernels import attention_triton, norms_triton
from innergrad.lab.kernels.attention import KINDS, attend
from innergrad.lab.kernels.norms import add_norm, bias_gelu

SECONDS = 50.0
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3}  # relative, of the norm, against float64
TOKENS, HEADS, HEAD, BATCH = 101, 8, 32, 64  # Deep Optimizers' model
WIDTH = HEADS * HEAD

ATTENTION = (
    attention_triton.Choice(64, 4),
    attention_triton.Choice(64, 4, 168),
    attention_triton.Choice(64, 4, 128),
    attention_triton.Choice(64, 8),
)
NORMS = tuple(
    norms_triton.Choice(*numbers)
    for numbers in ((1024, 2, 8), (1024, 2, 10), (1024, 4, 6), (2048, 4, 3), (2048, 4, 4), (2048, 4, 5))
)


# --------------------------------------------------------------------------------------------------------- correctness


def gradients(function: Callable[..., object], inputs: Iterable[Tensor | None], grads: Iterable[Tensor | None]):
    """Outputs of a function, and the gradients of its inputs for those of its outputs; None: absent, or not used."""
    leaves = [None if z is None else z.detach().requires_grad_() for z in inputs]
    outs = function(*leaves)
    outs = outs if isinstance(outs, tuple) else (outs,)
    pairs = [(out, grad) for out, grad in zip(outs, grads, strict=True) if grad is not None]
    given = [leaf for leaf in leaves if leaf is not None]
    found = torch.autograd.grad([out for out, _ in pairs], given, [grad for _, grad in pairs])
    return [*(out.detach() for out in outs), *found]


def compare(name: str, function, inputs: list[Tensor | None], grads: list[Tensor | None], device: str) -> bool:
    """The fast path against float64 and against itself; prints the largest error."""
    exact = gradients(partial(function, fast=False), *([_double(z) for z in each] for each in (inputs, grads)))
    there = [[None if z is None else z.to(device) for z in each] for each in (inputs, grads)]
    found, again = (gradients(partial(function, fast=True), *there) for _ in range(2))
    dtype = found[0].dtype
    sizes = [max(b.norm().item(), 1e-9) for b in exact]
    error = max(((a.cpu() - b).norm() / size).item() for a, b, size in zip(found, exact, sizes, strict=True))
    good = error <= TOLERANCE[dtype]
    same = all(map(torch.equal, found, again))
    print(f"{name:60} error {error:.1e} {'ok' if good else 'WRONG'}{'' if same else ', NOT REPEATABLE'}", flush=True)
    return good and same


def _double(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.double()


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_attention(device: str, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Every kind of attention, with biases of two models."""
    passed = True
    shapes = [(kind, length, size) for kind in KINDS for length, size in ((5, 16), (TOKENS, HEAD))]
    for kind, length, size in (*shapes, ("softmax", 51, 64), ("softmax", 200, 32)):
        inputs = [random(2, 2, length, 6 * size, dtype=dtype), random(2, 6 * size, seed=2, dtype=dtype)]
        grads = [random(2, 2, length, 2 * size, seed=1, dtype=dtype)]
        function = partial(_attend, kind=kind, dtype=dtype)
        passed &= compare(f"{kind}, {length} tokens, heads of {size}", function, [*inputs], [*grads], device)
    return passed


def _attend(qkv: Tensor, bias: Tensor, kind: str, dtype: torch.dtype, fast: bool) -> Tensor:
    """``attend``; without the kernels, qkv + bias is rounded as they do, because relu's gradient jumps at zero."""
    if fast:
        return attend(qkv, 2, kind, fast=True, bias=bias)
    moved = qkv + bias[:, None, None]
    return attend(moved + (moved.to(dtype).double() - moved).detach(), 2, kind, fast=False)


def check_norms(device: str) -> bool:
    """LayerNorm with and without what is added, GELU, and both in a compiled function."""
    passed = True
    for dtype, stack, rows, width in (
        (torch.bfloat16, 1, 6464, 256),
        (torch.bfloat16, 8, 6464, 256),
        (torch.float16, 3, 77, 1024),
        (torch.bfloat16, 3, 77, 64),
    ):
        x, delta, *grads = (random(stack, rows, width, seed=i, dtype=dtype) for i in range(4))
        bias, gain, shift = (random(stack, width, seed=i, dtype=dtype) for i in range(4, 7))
        name = f"{dtype}, {stack} x {rows} rows of {width}"
        passed &= compare(f"add_norm, {name}", add_norm, [x, delta, bias, gain, shift], [*grads], device)
        passed &= compare(f"bias_gelu, {name}", bias_gelu, [x, bias], [grads[0]], device)
        if width == 256 and stack == 1:
            passed &= compare("  nothing added", add_norm, [x, None, None, gain, shift], [*grads], device)
            passed &= compare(
                "  no gradient of the residual", add_norm, [x, delta, bias, gain, shift], [None, grads[1]], device
            )
    return passed


# --------------------------------------------------------------------------------------------------------------- timing


def microseconds(step: Callable[[int], object], sets: int, device: str, replays: int = 20) -> float:
    """Median time of one of step(0) .. step(sets - 1), replayed from a CUDA graph."""
    for i in range(sets):
        step(i)
    if device == "cpu":  # the interpreter: nothing to learn from the number
        start = time.perf_counter()
        step(0)
        return (time.perf_counter() - start) * 1e6
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(min(sets, 3)):
            step(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(sets):
            step(i)
    times: list[float] = []
    for _ in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / sets)
    return statistics.median(times[3:])


class Table:
    """Lines of forward and backward times, until the time is up."""

    def __init__(self, title: str, device: str, numbers: int, end: float) -> None:
        print(f"\n{title:54}{'forward':>10}{'backward':>10}  us", flush=True)
        self.device, self.end = device, end
        self.sets = 1 if device == "cpu" else max(2, min(16, int(150e6 / (2 * numbers))))  # past the cache, of 50 MB

    def line(self, label: str, ahead, back=None, subtract: bool = False) -> None:
        """``subtract``: ``back`` runs both directions. What cannot run here gives a line too."""
        if time.perf_counter() > self.end:
            print(f"{label:54}  not run: the time is up", flush=True)
            return
        try:
            cells = [microseconds(ahead, self.sets, self.device)]
            if back:
                cells.append(microseconds(back, self.sets, self.device) - (cells[0] if subtract else 0.0))
            text = "".join(f"{cell:10.1f}" for cell in cells)
        except Exception as error:
            text = f"  does not run: {(str(error) or repr(error)).splitlines()[0][:70]}"
        print(f"{label:54}{text}", flush=True)

    def autograd(self, label: str, function, inputs: list[list[Tensor]], grads: list[list[Tensor]]) -> None:
        """The same through autograd: forward alone, and both less that."""
        leaves = [[z.detach().requires_grad_() for z in each] for each in inputs]

        def both(i: int) -> object:
            outs = function(*leaves[i])
            return torch.autograd.grad(outs, leaves[i], grads[i] if isinstance(outs, tuple) else grads[i][0])

        self.line(label, lambda i: function(*leaves[i]), both, subtract=True)


def _sets(table: Table, *shape: int) -> list[Tensor]:
    return [torch.randn(*shape, device=table.device).bfloat16() for _ in range(table.sets)]


def _name(choice: attention_triton.Choice | norms_triton.Choice) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice._asdict().items() if value)


def time_attention(device: str, stack: int, end: float) -> None:
    """One layer's attention with biases: the kernels, then torch's in the layout it likes, and from packed qkv."""
    batch = BATCH * stack
    title = f"{batch} sequences of {TOKENS} tokens, {HEADS} heads of {HEAD}"
    table = Table(title, device, 3 * batch * TOKENS * WIDTH, end)
    packed, grads = _sets(table, batch, TOKENS, 3 * WIDTH), _sets(table, batch, TOKENS, WIDTH)
    bias = torch.randn(stack, 3 * WIDTH, device=device).bfloat16()

    def kernels(label: str, bias: Tensor | None, kind: str, ahead, back) -> None:
        kept = [attention_triton.forward(qkv, bias, HEADS, kind, "count") for qkv in packed]

        def run_back(i: int) -> object:
            return attention_triton.backward(grads[i], packed[i], bias, *kept[i], HEADS, kind, "count", back)

        def run(i: int) -> object:
            return attention_triton.forward(packed[i], bias, HEADS, kind, "count", ahead)

        table.line(label, run, run_back)

    chosen = attention_triton.FORWARD, attention_triton.BACKWARD
    kernels("softmax, as chosen", bias, "softmax", *chosen)
    kernels("softmax, as chosen, without a bias", None, "softmax", *chosen)
    kernels("relu, as chosen", bias, "relu", *chosen)
    for choice in ATTENTION:
        kernels(_name(choice), bias, "softmax", choice, choice)
    parts = [[p.contiguous() for p in _heads(qkv)] for qkv in packed]
    outs = [[g.view(batch, TOKENS, HEADS, HEAD).transpose(1, 2).contiguous()] for g in grads]
    table.autograd("torch's, own layout, no bias", partial(scaled_dot_product_attention, is_causal=True), parts, outs)
    inputs = [[qkv, bias] for qkv in packed]
    table.autograd("torch's, from packed qkv and bias", _torchs, inputs, [[g] for g in grads])


def _heads(qkv: Tensor) -> tuple[Tensor, ...]:
    return qkv.view(len(qkv), TOKENS, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)


def _torchs(qkv: Tensor, bias: Tensor) -> Tensor:
    moved = (qkv.view(len(bias), -1, *qkv.shape[1:]) + bias[:, None, None]).view(qkv.shape)
    q, k, v = _heads(moved)
    return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def time_norms(device: str, stack: int, end: float) -> None:
    """One LayerNorm with its addition, and one GELU: the kernels, then plain torch, run as it is and compiled."""
    rows = BATCH * TOKENS
    table = Table(f"add_norm, {stack} x {rows} rows of {WIDTH}", device, 4 * stack * rows * WIDTH, end)
    x, delta, d_total, d_normed = (_sets(table, stack, rows, WIDTH) for _ in range(4))
    bias, gain, shift = (torch.randn(stack, WIDTH, device=device).bfloat16() for _ in range(3))
    chosen = norms_triton.FORWARD, norms_triton.BACKWARD
    for label, ahead, back in (("kernels as chosen", *chosen), *((_name(choice), choice, choice) for choice in NORMS)):
        table.line(
            label,
            lambda i, ahead=ahead: norms_triton.add_norm_forward(x[i], delta[i], bias, gain, shift, ahead),
            lambda i, back=back: norms_triton.add_norm_backward(d_total[i], d_normed[i], x[i], gain, back),
        )
    inputs = [[x[i], delta[i], bias, gain, shift] for i in range(table.sets)]
    grads = [[d_total[i], d_normed[i]] for i in range(table.sets)]
    for label, function in _plain(add_norm):
        table.autograd(label, function, inputs, grads)
    parts = torch.randn(stack, 400 // stack, 3 * WIDTH, device=device)
    table.line("sums of 400 programs, part of backward", lambda i: norms_triton.column_sums(parts, torch.bfloat16))

    table = Table(f"bias_gelu, {stack} x {rows} rows of {WIDTH}", device, 4 * stack * rows * WIDTH, end)
    for label, ahead, back in (
        ("kernels as chosen", *chosen),
        *((_name(choice), choice, choice) for choice in NORMS[::3]),
    ):
        table.line(
            label,
            lambda i, ahead=ahead: norms_triton.bias_gelu_forward(x[i], bias, ahead),
            lambda i, back=back: norms_triton.bias_gelu_backward(d_total[i], x[i], bias, back),
        )
    for label, function in _plain(bias_gelu):
        table.autograd(label, function, [[z[0], z[2]] for z in inputs], grads)


def _plain(function: Callable[..., object]) -> tuple[tuple[str, Callable[..., object]], ...]:
    """Plain torch, as it is and compiled."""
    plain = partial(function, fast=False)
    return ("torch", plain), ("torch.compile", torch.compile(plain, fullgraph=True, dynamic=False))


def main(parts: list[str], device: str) -> int:
    """Checks and times the parts, to the end whatever fails; the exit status."""
    passed = True
    for part in parts or ["attention", "norms"]:
        check, timing = {"attention": (check_attention, time_attention), "norms": (check_norms, time_norms)}[part]
        end = time.perf_counter() + SECONDS
        for step in (partial(check, device), partial(timing, device, 1, end), partial(timing, device, 8, end)):
            try:
                passed &= step() is not False
            except Exception:
                traceback.print_exc()
                passed = False
        print(f"\n{part}: {time.perf_counter() - end + SECONDS:.0f} s", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "cuda" if torch.cuda.is_available() else "cpu"))
