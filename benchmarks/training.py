"""How fast the lab trains, against the reference loop in the same run.

    python benchmarks/training.py speed       steps a second: the reference loop, one model, stacks; compile time; MFU
    python benchmarks/training.py attention   steps a second with ReLU attention and with softmax
    python benchmarks/training.py count       only the operations of a step, with the times that are stored
    python benchmarks/training.py curve       losses of the reference in float32 and of the lab's step, from one start
    python benchmarks/training.py target      seconds until a loss is reached: the reference loop, the lab's recipe
    python benchmarks/training.py profile     where the time of a step goes (GPU)

The reference loop is what the field uses (Garg et al., 2022): Hugging Face's GPT-2 in eager float32, Adam, prompts made
on the host, the loss looked at after every step. The model is Deep Optimizers': 12 blocks, width 256, 8 heads, MLP 256,
prompts of 51 points of 20 numbers, batch 64. On a CPU (``--small``) everything is smaller.
Results: results/training_<what>_<device>.json, and the same file in the folder ``--out``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from _results import device_name, read, renew, store, wait
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.gpt import GPT, GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Linear, Task

PEAK = {"NVIDIA H200": 989e12}  # bf16, dense, by the datasheet
ROUNDS = 3  # timings of a rate
KINDS: tuple[Literal["softmax", "relu"], ...] = ("softmax", "relu")  # of attention
WINDOW = 200  # steps whose mean loss has to be below the target


def experiment(small: bool, **changes: Any) -> Experiment:
    """Seed Deep Optimizers' model, or a small one."""
    learner = GPTConfig(n_layers=3, d_model=64, n_heads=4, d_mlp=64) if small else GPTConfig()
    config = TrainConfig(steps=10**6, batch=64, precision="fp32" if small else "bf16")
    task: Task = Linear(d=5) if small else Linear()
    return replace(Experiment("bench", 0, 11 if small else 51, task, learner, config), **changes)


# ---------------------------------------------------------------------------------------------------------- reference


class Reference(nn.Module):
    """Garg et al.'s model: read-in, Hugging Face's GPT-2 on embeddings, read-out; labels are vectors (y, 0, ..., 0)."""

    def __init__(self, one: Experiment) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2Model

        shape = one.learner
        assert isinstance(shape, GPTConfig)
        self.read_in, self.read_out = nn.Linear(one.task.d, shape.d_model), nn.Linear(shape.d_model, 1)
        sizes: dict[str, Any] = {
            "n_embd": shape.d_model,
            "n_layer": shape.n_layers,
            "n_head": shape.n_heads,
            "n_inner": shape.d_mlp,
        }
        dropout: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = GPT2Config(n_positions=2 * one.n_points, use_cache=False, vocab_size=1, **sizes, **dropout)
        self.backbone = GPT2Model(config)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        wide = torch.cat((y[..., None], torch.zeros_like(x[..., 1:])), -1)
        tokens = torch.stack((x, wide), 2).flatten(1, 2)
        out: Tensor = self.read_out(self.backbone(inputs_embeds=self.read_in(tokens)).last_hidden_state)
        return out[:, ::2, 0]


def reference(one: Experiment, device: str, lr: float = 1e-4) -> Iterator[float]:
    """The reference loop, a step at a time: yields the loss."""
    torch.manual_seed(0)
    model = Reference(one).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for step in count():
        x = torch.randn(one.train.batch, one.n_points, one.task.d)
        dims = one.train.curriculum.dims(torch.tensor(step), one.task.d)
        if dims is not None:
            x[..., int(dims) :] = 0.0
        w = torch.randn(one.train.batch, one.task.d, 1)
        x, y = x.to(device), (x @ w)[..., 0].to(device)
        loss = (model(x, y) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield loss.item()


# --------------------------------------------------------------------------------------------------------------- speed


def timings(advance: Callable[[], object], device: str, seconds: float, steps: int) -> dict[str, float]:
    """Steps a second of a call that takes ``steps``: the median of ROUNDS timings of ``seconds`` each, and extremes."""
    rates = []
    for _ in range(ROUNDS):
        wait(device)
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            advance()
            wait(device)
            calls += 1
        rates.append(calls * steps / (time.perf_counter() - began))
    return {"steps_a_second": statistics.median(rates), "slowest": min(rates), "fastest": max(rates)}


def rate_of_reference(one: Experiment, device: str, seconds: float) -> dict[str, float]:
    loop = reference(one, device)
    for _ in range(5):
        next(loop)
    return timings(lambda: next(loop), device, seconds, 1)


def rate_of_stack(experiments: list[Experiment], device: str, seconds: float) -> dict[str, float]:
    """Model-steps a second of a stack, after its first step, whose time is the compile time."""
    n, began = experiments[0].n_points, time.perf_counter()
    stack = Stack(experiments, device)
    stack.run(1, n)
    wait(device)
    first = time.perf_counter() - began
    block = 100 if device == "cuda" else 2
    stack.run(block, n)
    return {
        **timings(lambda: stack.run(block, n), device, seconds, block * len(experiments)),
        "first_step_seconds": first,
    }


def flops(one: Experiment) -> float:
    """Of one model's step, forward and twice that backward: products of weights, and the scores that attention sees."""
    forward = one.learner.flops(one.task.d, one.n_points, seen=True)
    assert forward is not None
    return 3.0 * one.train.batch * forward.products


def speed(device: str, small: bool, stacks: list[int], seconds: float) -> dict[str, Any]:
    one, kind = experiment(small), device_name(device)
    slow = rate_of_reference(one, device, seconds)
    print(f"reference loop: {slow}", flush=True)
    rows = []
    for size in stacks:
        found = rate_of_stack([replace(one, seed=seed) for seed in range(size)], device, seconds)
        rate = found["steps_a_second"]
        row: dict[str, Any] = {"stack": size, **{name: round(value, 2) for name, value in found.items()}}
        row["against_reference"] = round(rate / slow["steps_a_second"], 2)
        if kind in PEAK:
            row["mfu"] = round(rate * flops(one) / PEAK[kind], 4)
        rows.append(row)
        print(row, flush=True)
    return {
        "reference": [{name: round(value, 2) for name, value in slow.items()}],
        "gflop_a_step": round(flops(one) / 1e9, 3),
        "seconds_a_timing": seconds,
        "stacks": rows,
    }


def attention(device: str, small: bool, stacks: list[int], seconds: float) -> dict[str, Any]:
    """Model-steps a second with softmax and with ReLU attention, in turns: what ReLU attention costs beside softmax."""
    one, rows = experiment(small), []
    for size in stacks:
        rates: dict[str, list[float]] = {}
        for kind in KINDS * 2:
            assert isinstance(one.learner, GPTConfig)
            learner = replace(one.learner, attention=kind)
            members = [replace(one, seed=seed, learner=learner) for seed in range(size)]
            rates.setdefault(kind, []).append(rate_of_stack(members, device, seconds)["steps_a_second"])
        row: dict[str, Any] = {"stack": size, **{kind: round(statistics.mean(rates[kind]), 2) for kind in KINDS}}
        rows.append(row | {"relu_over_softmax": round(row["relu"] / row["softmax"], 3)})
        print(rows[-1], flush=True)
    return {"seconds_a_timing": seconds, "stacks": rows}


def count_again() -> None:
    """Operations of a step, and the share of the peak that follows, in results/training_speed_*.json."""
    for device in ("cpu", "cuda"):
        name, operations = f"training_speed_{device}", flops(experiment(small=device == "cpu"))
        stored = read(name)
        peak = PEAK.get(stored["device"])
        stacks = stored["stacks"]
        if peak:
            stacks = [row | {"mfu": round(row["steps_a_second"] * operations / peak, 4)} for row in stacks]
        changed = {"gflop_a_step": round(operations / 1e9, 3), "stacks": stacks}
        renew(name, "python benchmarks/training.py count", changed)


def settings(one: Experiment) -> dict[str, Any]:
    """Of torch, for both loops; the reference has Hugging Face's default attention and is never compiled."""
    return {
        "lab_precision": one.train.precision,
        "lab_compile": one.train.compile,
        "reference_precision": "fp32",
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
    }


# --------------------------------------------------------------------------------------------------------- loss curves


def curve(device: str, small: bool, seeds: int, steps: int, every: int) -> dict[str, Any]:
    """Hugging Face's GPT-2 in eager float32 with torch's AdamW, and the lab's step: equal weights, equal data.

    The first part of a curriculum on dimensions: without one, so few steps leave the loss where it began.
    """
    rule, curriculum = Optimiser(lr=3e-4, betas=(0.9, 0.999)), Curriculum(first_dims=2, every=350)
    base = experiment(small)
    config = replace(base.train, steps=steps, optimiser=rule, curriculum=curriculum)
    experiments = [replace(base, seed=seed, train=config) for seed in range(seeds)]
    stack = Stack(experiments, device)
    plain = []
    for number, one in enumerate(experiments):
        torch.manual_seed(number)
        model = Plain(one, stack, number).to(device)
        plain.append(list(plain_losses(model, one, device, steps, every)))
        print(f"seed {number}, plain: {plain[-1]}", flush=True)
    fast = []
    for _ in range(steps // every):
        stack.run(every, one.n_points)
        fast.append(stack.take_means()[0])
    return {"steps": steps, "every": every, "plain": plain, "fast": [list(each) for each in zip(*fast, strict=True)]}


class Plain(nn.Module):
    """Hugging Face's GPT-2 between embedding and read-out of a model of the stack, with whose weights it starts."""

    def __init__(self, one: Experiment, stack: Stack, number: int) -> None:
        super().__init__()
        learner = stack.learner.model(number)
        assert isinstance(learner, GPT)
        self.outer, self.scale = learner, one.task.scale
        self.backbone = Reference(one).backbone
        state = self.backbone.state_dict()
        for name, value in learner.to_gpt2().items():
            state[name][: len(value)].copy_(value)
        for name, parameter in learner.named_parameters():
            parameter.requires_grad_(name in ("W_E", "b_E", "W_U", "b_U"))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        w = dict(self.outer.named_parameters())
        tokens = self.outer.tokens(x[None], y[None] / self.scale, w)[0]
        read = self.backbone(inputs_embeds=tokens).last_hidden_state[:, ::2]
        out: Tensor = (read @ w["W_U"][0] + w["b_U"][0])[..., 0] * self.scale
        return out


def plain_losses(model: Plain, one: Experiment, device: str, steps: int, every: int) -> Iterator[float]:
    rule = one.train.optimiser
    optimiser = torch.optim.AdamW(model.parameters(), rule.lr, rule.betas, rule.eps, weight_decay=0.0)
    rng, total = CounterRNG.of(one.seed, "train", device), torch.zeros((), device=device)
    for step in range(steps):
        index = step * one.train.batch + torch.arange(one.train.batch, device=device)
        dims = one.train.curriculum.dims(torch.tensor(step, device=device), one.task.d)
        x, y, _ = one.task.sample(rng, index, one.n_points, dims)
        loss = ((model(x, y) - y) / one.task.scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.detach()
        if (step + 1) % every == 0:
            yield round(total.item() / every, 6)
            total.zero_()


# -------------------------------------------------------------------------------------------------------------- target


def recipe(small: bool, every: int) -> Experiment:
    """The lab's: Muon. Both loops have its curriculum: one more coordinate after every ``every`` steps."""
    one = experiment(small, n_points=11 if small else 41)
    rule = Optimiser("muon", lr=3e-3 if small else 1e-3, warmup=WINDOW, clip=1.0)
    curriculum = Curriculum(first_dims=2 if small else 5, every=every)
    return replace(one, train=replace(one.train, optimiser=rule, curriculum=curriculum))


def least_squares_loss(one: Experiment) -> float:
    """The mean over positions k of the best error / d there is, max(1 - k / d, 0): no loss goes below it."""
    return sum(max(1.0 - k / one.task.d, 0.0) for k in range(one.n_points)) / one.n_points


def target(device: str, small: bool, goal: float, limit: float, every: int, lr: float) -> dict[str, Any]:
    """Seconds until the mean loss / d of WINDOW steps on whole prompts, in all coordinates, is below ``goal``.

    Everything counts: building the model, compiling, data. A loop is stopped after ``limit`` seconds.
    """
    one = recipe(small, every)
    names = {"reference": f"GPT-2 in eager fp32, Adam {lr:g}", "lab": f"Muon {one.train.optimiser.lr:g}"}
    rows = []
    for name, blocks in (("reference", reference_blocks(one, device, lr)), ("lab", lab_blocks(one, device))):
        rows.append({"loop": name, "how": names[name], **race(blocks, one, goal, limit)})
        print(rows[-1], flush=True)
    slow, fast = rows
    ratio = round(slow["seconds"] / fast["seconds"], 2) if fast["reached"] else None
    bound = "exact" if slow["reached"] else "at least: the reference was stopped"
    floor = least_squares_loss(one)
    about = {"target": goal, "least_squares": round(floor, 4), "limit_seconds": limit, "curriculum_every": every}
    return {**about, "n_points": one.n_points, "d": one.task.d, "ratio": ratio, "ratio_is": bound, "rows": rows}


def race(blocks: Iterator[float], one: Experiment, goal: float, limit: float) -> dict[str, Any]:
    """Runs blocks of WINDOW steps, each giving its mean loss / d, until one is below the goal or the time is over."""
    losses: list[float] = []
    began = time.perf_counter()
    whole = one.train.curriculum.every * (one.task.d - one.train.curriculum.first_dims)  # steps of the curriculum
    while True:
        start = WINDOW * len(losses)
        losses.append(next(blocks))
        seconds = time.perf_counter() - began
        reached = start >= whole and losses[-1] < goal
        if reached or seconds > limit:
            steps = WINDOW * len(losses)
            row = {"reached": reached, "seconds": round(seconds, 2), "steps": steps, "loss": round(losses[-1], 4)}
            return {**row, "whole_prompts_from_step": whole, "steps_a_second": round(steps / seconds, 1)}


def reference_blocks(one: Experiment, device: str, lr: float) -> Iterator[float]:
    loop = reference(one, device, lr)
    while True:
        yield sum(islice(loop, WINDOW)) / WINDOW / one.task.d


def lab_blocks(one: Experiment, device: str) -> Iterator[float]:
    stack = Stack([one], device)
    while True:
        stack.run(WINDOW, one.n_points)
        yield stack.take_means()[0][0]


# -------------------------------------------------------------------------------------------------------------- profile


def profile(device: str, small: bool, stacks: list[int]) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    one = experiment(small)
    for size in stacks:
        stack = Stack([replace(one, seed=seed) for seed in range(size)], device)
        stack.run(3, one.n_points)
        wait(device)
        with profiler(activities=[ProfilerActivity.CUDA]) as found:
            stack.run(5, one.n_points)
            wait(device)
        print(f"stack of {size}, five steps")
        print(found.key_averages().table(sort_by="cuda_time_total", row_limit=30, max_name_column_width=70), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "attention", "count", "curve", "target", "profile"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="a small model, for a CPU")
    parser.add_argument("--out", type=Path, help="a folder to write the result to as well")
    parser.add_argument("--stacks", default="1,8", help="sizes of stacks")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each timing")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--goal", type=float, help="loss / d to reach (0.35; small: 0.45)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a loop is stopped")
    parser.add_argument("--every", type=int, help="steps between changes of the curriculum (350; small: 200)")
    parser.add_argument("--lr", type=float, help="of the reference loop (Garg et al.: 1e-4; small: 1e-3)")
    given = parser.parse_args()
    stacks, small, device = [int(size) for size in given.stacks.split(",")], given.small, given.device
    chosen = {
        name: getattr(given, name) for name in ("stacks", "seconds", "seeds", "steps", "goal", "limit", "every", "lr")
    }
    changed = [f" --{name} {value}" for name, value in chosen.items() if value != parser.get_default(name)]
    command = f"python benchmarks/training.py {given.what}" + " --small" * small + "".join(changed)
    if given.what == "count":
        count_again()
        return
    if given.what == "profile":
        profile(device, small, stacks)
        return
    caches = TemporaryDirectory()  # nothing is compiled already: the time of a first step is that of a first run
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": caches.name, "TRITON_CACHE_DIR": f"{caches.name}/triton"}
    if given.what == "speed":
        found = speed(device, small, stacks, given.seconds)
    elif given.what == "attention":
        found = attention(device, small, stacks, given.seconds)
    elif given.what == "target":
        goal, every, lr = (0.45, 200, 1e-3) if small else (0.35, 350, 1e-4)
        found = target(device, small, given.goal or goal, given.limit, given.every or every, given.lr or lr)
    else:
        found = curve(device, small, given.seeds, given.steps, every=max(given.steps // 20, 1))
    about = {"device": device_name(device), "settings": settings(experiment(small))}
    store(f"training_{given.what}_{device}", command, {**about, **found}, given.out)


if __name__ == "__main__":
    main()
