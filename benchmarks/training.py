"""How fast the lab trains, against the reference loop in the same run.

    python benchmarks/training.py speed       steps a second: the reference loop, one model, stacks; compile time; MFU
    python benchmarks/training.py curve       losses of the reference in float32 and of the lab's step, from one start
    python benchmarks/training.py target      seconds to a given loss
    python benchmarks/training.py profile     where the time of a step goes (GPU)

The reference loop is what the field uses (Garg et al., 2022): Hugging Face's GPT-2 in eager float32, Adam, prompts made
on the host, the loss looked at after every step. The model is seed 001's: 12 blocks, width 256, 8 heads, MLP 256,
prompts of 51 points of 20 numbers, batch 64. On a CPU (``--small``) everything is smaller.
Results: results/training_<what>_<device>.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from _results import store
from innergrad.lab.learner import GPT, GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.streams import Stream
from innergrad.lab.tasks import Linear, Task
from innergrad.lab.train import Experiment, TrainConfig

PEAK = {"NVIDIA H200": 989e12}  # bf16, dense, by the datasheet


def experiment(small: bool, **changes: Any) -> Experiment:
    """Seed 001's model, or a small one."""
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
    while True:
        x = torch.randn(one.train.batch, one.n_points, one.task.d)
        w = torch.randn(one.train.batch, one.task.d, 1)
        x, y = x.to(device), (x @ w)[..., 0].to(device)
        loss = (model(x, y) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield loss.item()


# --------------------------------------------------------------------------------------------------------------- speed


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def rate_of_reference(one: Experiment, device: str, seconds: float) -> float:
    loop = reference(one, device)
    for _ in range(5):
        next(loop)
    wait(device)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(loop)
        steps += 1
    return steps / (time.perf_counter() - began)


def rate_of_stack(experiments: list[Experiment], device: str, seconds: float) -> dict[str, float]:
    """Model-steps a second of a stack, after its first step, whose time is the compile time."""
    n, began = experiments[0].n_points, time.perf_counter()
    stack = Stack(experiments, device)
    stack.run(1, n)
    wait(device)
    first = time.perf_counter() - began
    block = 100 if device == "cuda" else 2
    stack.run(block, n)
    wait(device)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        stack.run(block, n)
        wait(device)
        steps += block
    return {"model_steps": len(experiments) * steps / (time.perf_counter() - began), "first_step_seconds": first}


def flops(one: Experiment) -> float:
    """Of one model's step, forward and twice that backward: products of weights, and causal attention."""
    shape = one.learner
    assert isinstance(shape, GPTConfig)
    tokens = 2 * one.n_points - 1
    weights = shape.n_layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.d_mlp) + shape.d_model * (
        one.task.d + 2
    )
    attention = shape.n_layers * 2 * shape.d_model * tokens * (tokens + 1) / 2
    return 3 * 2 * one.train.batch * (tokens * weights + attention)


def speed(device: str, small: bool, stacks: list[int], seconds: float) -> dict[str, Any]:
    one = experiment(small)
    kind = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    slow = rate_of_reference(one, device, seconds)
    print(f"reference loop: {slow:.1f} steps/s", flush=True)
    rows = []
    for size in stacks:
        found = rate_of_stack([replace(one, seed=seed) for seed in range(size)], device, seconds)
        rate = found["model_steps"]
        row: dict[str, Any] = {"stack": size, **{name: round(value, 2) for name, value in found.items()}}
        row["against_reference"] = round(rate / slow, 2)
        if kind in PEAK:
            row["mfu"] = round(rate * flops(one) / PEAK[kind], 4)
        rows.append(row)
        print(row, flush=True)
    return {
        "device": kind,
        "reference_steps": round(slow, 2),
        "gflop_a_step": round(flops(one) / 1e9, 1),
        "stacks": rows,
    }


# --------------------------------------------------------------------------------------------------------- loss curves


def curve(device: str, small: bool, seeds: int, steps: int, every: int) -> dict[str, Any]:
    """Hugging Face's GPT-2 in eager float32 with torch's AdamW, and the lab's step: equal weights, equal data."""
    rule = Optimiser(lr=3e-4, betas=(0.9, 0.999))
    base = experiment(small)
    experiments = [
        replace(base, seed=seed, train=replace(base.train, steps=steps, optimiser=rule)) for seed in range(seeds)
    ]
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
        fast.append([value / every for value in stack.taken()[0]])
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
        tokens = self.outer.embed(x[None], y[None] / self.scale, w)[0]
        read = self.backbone(inputs_embeds=tokens).last_hidden_state[:, ::2]
        out: Tensor = (read @ w["W_U"][0] + w["b_U"][0])[..., 0] * self.scale
        return out


def plain_losses(model: Plain, one: Experiment, device: str, steps: int, every: int) -> Iterator[float]:
    rule = one.train.optimiser
    optimiser = torch.optim.AdamW(model.parameters(), rule.lr, rule.betas, rule.eps, weight_decay=0.0)
    stream, total = Stream.of(one.seed, "train", device), torch.zeros((), device=device)
    for step in range(steps):
        index = step * one.train.batch + torch.arange(one.train.batch, device=device)
        x, y, _ = one.task.sample(stream, index, one.n_points)
        loss = ((model(x, y) - y) / one.task.scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.detach()
        if (step + 1) % every == 0:
            yield round(total.item() / every, 6)
            total.zero_()


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
    parser.add_argument("what", choices=("speed", "curve", "profile"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="a small model, for a CPU")
    parser.add_argument("--stacks", default="1,8", help="sizes of stacks")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each timing")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    stacks, small = [int(size) for size in given.stacks.split(",")], given.small
    command = f"python benchmarks/training.py {given.what}" + (" --small" if small else "")
    if given.what == "profile":
        profile(given.device, small, stacks)
        return
    if given.what == "speed":
        found = speed(given.device, small, stacks, given.seconds)
    else:
        found = curve(given.device, small, given.seeds, given.steps, every=max(given.steps // 20, 1))
    store(f"training_{given.what}_{given.device}", command, found)


if __name__ == "__main__":
    main()
