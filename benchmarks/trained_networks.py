"""Networks trained on every prompt (001, App. G) on this machine: checked and timed.

1. A few fits on the device, in float32 and TF32, against the same fits on the CPU in float64, epoch by epoch.
2. The time of the whole job: prompts x (lengths 0 .. 75) networks of 3 layers and width 200, 100 epochs of Adam.
   Without ``--full`` a share of the prompts is trained and the time scaled up.
3. With ``--profile``: where the time goes, by kernel.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import torch
from torch import Tensor

from innergrad.lab.baselines.trained import TrainedNetwork
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.metrics import pooled_r2
from innergrad.lab.tasks.inputs import Gaussian
from innergrad.lab.tasks.networks import Networks

TASK = Networks(d=20, inputs=Gaussian(mean=-2.0), layers=3, width=200, scaling="he")
BASELINE = TrainedNetwork(x_scale=5.0**0.5, y_scale=TASK.scale)  # E x_i^2 = 5


def prompts(count: int, n: int, device: str) -> tuple[Tensor, Tensor]:
    """The first ``count`` test prompts of n points, made a few hundred networks at a time."""
    rng = CounterRNG.of(0, "trained_check")
    parts = [TASK.sample(rng, index, n)[:2] for index in torch.arange(count, device=device).chunk(count // 500 + 1)]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def timed(network: TrainedNetwork, x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """(epochs, B, n) predictions and the seconds they took."""
    begin = time.perf_counter()
    predictions = network.fit(x, y).predictions
    if x.is_cuda:
        torch.cuda.synchronize()
    return predictions, time.perf_counter() - begin


def check(device: str) -> dict[str, object]:
    """RMS distance to float64 over the RMS of the labels after 1, 10 and 100 epochs, for 4 prompts x 4 lengths."""
    x, y = prompts(4, 51, "cpu")
    some = replace(BASELINE, ks=(1, 10, 25, 50))
    exact = some.fit(x.double(), y.double()).predictions[..., some.ks]
    found: dict[str, object] = {}
    for name, tf32 in (("float32", False), ("tf32", True)):
        near = replace(some, tf32=tf32).fit(x.to(device), y.to(device)).predictions[..., some.ks].cpu().double()
        distance = (near - exact).square().mean((1, 2)).sqrt() / TASK.scale
        found[name] = {epoch: float(distance[epoch - 1]) for epoch in (1, 10, 100)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--prompts", type=int, default=6400)
    parser.add_argument("--share", type=float, default=0.05, help="of the prompts that are trained")
    parser.add_argument("--full", action="store_true", help="train all of them")
    parser.add_argument("--points", type=int, default=76)
    parser.add_argument("--float32", action="store_true", help="full float32 products instead of TF32")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()

    print("distance to float64 / rms of labels after 1, 10, 100 epochs:", json.dumps(check(given.device)), flush=True)
    network = replace(BASELINE, tf32=not given.float32)
    count = given.prompts if given.full else max(1, int(given.share * given.prompts))
    x, y = prompts(count, given.points, given.device)
    timed(replace(network, epochs=2), x[: max(1, count // 20)], y[: max(1, count // 20)])  # kernels chosen and loaded
    predictions, seconds = timed(network, x, y)
    report = {
        "fits": count * given.points,
        "seconds": round(seconds, 2),
        "seconds for all": round(seconds * given.prompts / count, 1),
        "pooled R^2, last epoch": {
            k: round(pooled_r2(predictions[-1], y, resamples=1).at(k)[0], 4)
            for k in (10, 20, 30, 40, 50, 75)
            if k < given.points
        },
    }
    print(json.dumps(report, indent=1), flush=True)
    if given.profile:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities if x.is_cuda else activities[:1]) as profiler:
            timed(replace(network, epochs=10), x, y)
        sort = "self_cuda_time_total" if x.is_cuda else "self_cpu_time_total"
        print(profiler.key_averages().table(sort_by=sort, row_limit=15, max_name_column_width=80))


if __name__ == "__main__":
    main()
