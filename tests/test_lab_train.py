"""Training: optimisers against torch's, one stack against many runs, and runs that are killed, resumed and shared."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from innergrad.config import to_table, to_toml
from innergrad.errors import InputError, JobError
from innergrad.lab import checkpoints
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.journal import read_log
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig
from innergrad.lab.optimisers import Optimiser, adamw, clipped, muon, orthogonal
from innergrad.lab.stack import Stack
from innergrad.lab.sweeps import read_experiments
from innergrad.lab.tasks import Linear, Networks
from innergrad.lab.training import load_learner, processes, train

CONFIGS = Path(__file__).parent.parent / "configs"
RULE = Optimiser(lr=3e-3, schedule="cosine", warmup=5, clip=1.0, weight_decay=0.1)
TRAIN = TrainConfig(steps=24, batch=8, optimiser=RULE, log_every=4, checkpoint_every=8)
LEARNER = GPTConfig(n_layers=2, d_model=16, n_heads=2, d_mlp=16)
BASE = Experiment(n_points=6, task=Linear(d=3), learner=LEARNER, train=TRAIN)


def parameters(run: Path | str, number: int = 0) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in load_learner(run, number)[0].named_parameters()}


# ----------------------------------------------------------------------------------------------------------- optimisers


def test_adamw_is_torchs() -> None:
    """Twenty steps of torch.optim.AdamW, two models with rates and decays of their own, float64."""
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    lr, decay = torch.tensor([[1e-2], [3e-2]]).double(), torch.tensor([[0.1], [0.0]]).double()
    theirs = [theta[i].clone().requires_grad_() for i in range(2)]
    torchs = [
        torch.optim.AdamW([p], float(lr[i]), (0.9, 0.99), weight_decay=float(decay[i])) for i, p in enumerate(theirs)
    ]
    for step in range(20):
        grad = torch.randn(2, 7, generator=generator, dtype=torch.float64)
        adamw(Optimiser(betas=(0.9, 0.99)), theta, grad, m, v, torch.tensor(step), lr, decay)
        for number in range(2):
            theirs[number].grad = grad[number].clone()
            torchs[number].step()
        assert (theta - torch.stack(theirs)).abs().max() < 1e-12


def test_muon_is_torchs() -> None:
    """torch.optim.Muon with AdamW's size of updates. It rounds to bfloat16 inside, we do not on a CPU: 3 %."""
    generator = torch.Generator().manual_seed(0)
    lr, decay = 1e-2, 0.1
    ours = torch.randn(1, 1, 12, 20, generator=generator)
    theirs = ours[0, 0].clone().requires_grad_()
    other = torch.optim.Muon(
        [theirs], lr=lr, weight_decay=decay, momentum=0.9, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    momentum, start = torch.zeros_like(ours), ours.clone()
    for _ in range(5):
        grad = torch.randn(1, 1, 12, 20, generator=generator)
        views = ({"W": ours}, {"W": grad}, {"W": momentum})
        muon(Optimiser(momentum=0.9), {"W": 1}, *views, torch.full((1, 1), lr), {"W": torch.full_like(ours, decay)})
        theirs.grad = grad[0, 0].clone()
        other.step()
    moved = (ours - start).norm()
    assert (ours[0, 0] - theirs).norm() < 0.03 * moved


@pytest.mark.parametrize("shape", [(5, 5), (4, 9), (9, 4)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    """Five Newton-Schulz steps keep the singular vectors and bring the singular values near one."""
    matrix = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = orthogonal(matrix)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    turned = u.mT @ found @ vh.mT
    values = turned.diagonal(dim1=-2, dim2=-1)
    assert (turned - torch.diag_embed(values)).abs().max() < 1e-10
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_muons_qkv_is_three_matrices() -> None:
    """Queries, keys and values are orthogonalised each for itself."""
    theta = torch.zeros(1, 1, 8, 24)
    grad = torch.randn(1, 1, 8, 24, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros_like(grad)
    muon(Optimiser(), {"W": 3}, {"W": theta}, {"W": grad}, {"W": zeros.clone()}, torch.ones(1, 1), {"W": zeros})
    for part, given in zip(theta.chunk(3, -1), grad.chunk(3, -1), strict=True):
        torch.testing.assert_close(part, -0.2 * math.sqrt(8) * orthogonal(given * 1.95))


def test_clipping_is_torchs() -> None:
    grad = torch.randn(3, 10, generator=torch.Generator().manual_seed(0)) * torch.tensor([[0.1], [1.0], [10.0]])
    found, norms = clipped(grad, 1.0)
    for number in range(3):
        parameter = torch.zeros(10, requires_grad=True)
        parameter.grad = grad[number].clone()
        norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        torch.testing.assert_close(found[number], parameter.grad)
        torch.testing.assert_close(norms[number, 0], norm)
    assert clipped(grad, None)[0] is grad


def test_schedules() -> None:
    """Warm-up is linear; cosine agrees with torch's CosineAnnealingLR; the linear one ends at ``final``."""
    cosine, steps = Optimiser(schedule="cosine", warmup=0), 50
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        assert float(cosine.factor(torch.tensor(step), steps)) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        theirs.step()
    warm = Optimiser(schedule="linear", warmup=10, final=0.1)
    factors = [float(warm.factor(torch.tensor(step), 110)) for step in range(111)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[60] == pytest.approx(0.1 + 0.9 * 0.5)
    assert factors[110] == pytest.approx(0.1)
    assert float(Optimiser(warmup=4).factor(torch.tensor(100), 10)) == 1.0


# ------------------------------------------------------------------------------------------------------------- the loop


def test_a_plain_loop_gives_the_same_weights() -> None:
    """The stack's step against a loop with torch's autograd, AdamW and clipping, from the same samples: 24 steps."""
    result = train([BASE])
    learner = LEARNER.build(3, 6).init([0])
    learner.scale.fill_(BASE.task.scale)
    named = dict(learner.named_parameters())
    matrices = [p for name, p in named.items() if name.startswith("W_") and name != "W_pos"]
    others = [p for name, p in named.items() if not (name.startswith("W_") and name != "W_pos")]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=RULE.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: float(RULE.factor(torch.tensor(step), 24)))
    for step in range(24):
        x, y, _ = BASE.task.sample(CounterRNG.of(0, "train"), torch.arange(8 * step, 8 * step + 8), 6)
        loss = ((learner(x[None], y[None])[0] - y) / BASE.task.scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    for (name, mine), theirs in zip(result.learner.named_parameters(), learner.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_stacked_runs_are_separate_runs(kind: Any) -> None:
    """Seeds, tasks, rates and decays of their own: each model as if it were alone, to 1e-5 after 24 steps."""
    rule = replace(RULE, kind=kind)
    rules = [rule, rule, replace(rule, lr=1e-3), replace(rule, weight_decay=0.0)]
    tasks = [Linear(d=3), Networks(d=3, layers=2, width=5), Linear(d=3), Networks(d=3, layers=2, width=5)]
    experiments = [
        replace(BASE, seed=seed, task=task, train=replace(TRAIN, optimiser=rule))
        for seed, (task, rule) in enumerate(zip(tasks, rules, strict=True))
    ]
    together = train(experiments)
    for number, one in enumerate(experiments):
        alone = train([one])
        for mine, theirs in zip(together.learner.model(number).parameters(), alone.learner.parameters(), strict=True):
            assert (mine - theirs).abs().max() < 1e-5
        for row, other in zip(together.log, alone.log, strict=True):
            assert row["loss"][number] == pytest.approx(other["loss"][0], rel=1e-4)


def test_the_columns_learner_trains_in_a_stack() -> None:
    kernel = replace(BASE, learner=KernelLearnerConfig(n_layers=2, heads=("linear",)))
    columns = replace(BASE, learner=replace(LEARNER, tokens="columns"))
    for one in (kernel, columns):
        result = train([replace(one, train=replace(TRAIN, steps=150, batch=64, log_every=50))])
        assert result.log[-1]["loss"][0] < 0.9 * result.log[0]["loss"][0]


def test_it_learns() -> None:
    """400 steps of Muon on linear functions of two numbers. (The mean loss of least squares is 0.25: 1, 1/2, 0, ...)"""
    rule = Optimiser(kind="muon", lr=8e-3, schedule="cosine", warmup=10, clip=1.0)
    config = TrainConfig(steps=400, batch=64, optimiser=rule, log_every=50)
    learner = GPTConfig(n_layers=2, d_model=32, n_heads=4, d_mlp=32)
    result = train([replace(BASE, task=Linear(d=2), learner=learner, train=config)])
    assert result.log[-1]["loss"][0] < 0.6
    x, y, _ = Linear(d=2).sample(CounterRNG.of(1, "test"), torch.arange(500), 6)
    errors = (result.learner.predict(x, y) - y).square().mean(0) / 2
    assert errors[5] < 0.5 * errors[0]


@pytest.mark.parametrize("name", ["three_tasks", "cheng_heads", "deep_optimizers_relu_3", "garg_linear"])
def test_a_step_is_one_graph(name: str) -> None:
    """Data and update can be traced without a break, as compiling for a GPU needs it, and are the same."""
    small = [
        replace(one, learner=replace(one.learner, n_layers=1), train=replace(one.train, batch=2))  # type: ignore[type-var]
        for one in read_experiments(CONFIGS / f"{name}.toml")
    ]
    plain, traced = Stack(small, "cpu"), Stack(small, "cpu")
    how: dict[str, Any] = {"backend": "eager", "fullgraph": True, "dynamic": False}
    traced.draw_batch, traced.apply_update = torch.compile(traced.batch, **how), torch.compile(traced.update, **how)
    for stack in (plain, traced):
        stack.run(2, stack.n_points)
    assert torch.equal(plain.theta, traced.theta)
    assert plain.take_means() == traced.take_means()


@pytest.mark.parametrize("change", [{"kind": "muon"}, {"weight_decay": 1.0}])
def test_muon_and_decay_are_for_every_learner(change: dict[str, Any]) -> None:
    """Which parameters they are for, the learner says: those of the kernel learner are not named like the GPT's."""
    rule = Optimiser(lr=1e-2)
    base = replace(BASE, learner=KernelLearnerConfig(heads=("relu",)), train=replace(TRAIN, optimiser=rule))
    plain, other = (
        train(replace(base, train=replace(base.train, optimiser=one))) for one in (rule, replace(rule, **change))
    )
    assert plain.learner.decayed == {"B", "C"}
    for name in ("B", "C"):
        assert not torch.equal(plain.learner.get_parameter(name), other.learner.get_parameter(name)), name


def test_a_learner_without_matrices_has_no_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelLearner, "matrices", {})
    base = replace(BASE, learner=KernelLearnerConfig())
    for rule, words in ((Optimiser("muon"), "no matrices for Muon"), (Optimiser(weight_decay=0.1), "decays")):
        with pytest.raises(InputError, match=words):
            train(replace(base, train=replace(TRAIN, optimiser=rule)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Optimiser(kind="sgd"), r"unknown optimiser\.kind; got 'sgd'; allowed: adamw, muon"),
        (lambda: Optimiser(schedule="linaer"), r"optimiser\.schedule"),
        (lambda: TrainConfig(precision="fp16"), r"train\.precision"),
        (lambda: GPTConfig(positions="rope"), r"learner\.positions"),
        (lambda: GPTConfig(tokens="foo"), r"learner\.tokens"),
    ],
)
def test_a_wrong_word_is_an_error_in_python_too(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_the_log_is_right_after_resuming_with_other_lines(tmp_path: Path) -> None:
    """A checkpoint between two lines, and lines at other steps from there on: means are over the steps in between."""
    one = replace(BASE, train=replace(TRAIN, steps=24, log_every=10, checkpoint_every=15))
    losses = [row["loss"][0] for row in train(replace(one, train=replace(one.train, log_every=1))).log]

    def die(step: int, words: str = "") -> None:
        if step == 20:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(one, tmp_path, progress=die)
    assert checkpoints.load(tmp_path).step == 15
    log = train(replace(one, train=replace(one.train, log_every=6)), tmp_path, resume=True).log
    assert [row["step"] for row in log] == [10, 18, 24]
    for row, (first, last) in zip(log, ((0, 10), (10, 18), (18, 24)), strict=True):
        assert row["loss"][0] == pytest.approx(sum(losses[first:last]) / (last - first), rel=1e-5)


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    config = replace(TRAIN, optimiser=Optimiser(lr=1e20))
    with pytest.raises(JobError, match="the loss is not finite at step"):
        train([replace(BASE, train=config)])


def test_a_model_that_diverges_does_not_touch_the_others() -> None:
    wild = replace(BASE, train=replace(TRAIN, optimiser=replace(RULE, lr=1e30)))
    together, alone = train([BASE, wild]), train([BASE])
    assert together.finished
    assert not math.isfinite(together.log[-1]["loss"][1])
    for mine, theirs in zip(together.learner.model(0).parameters(), alone.learner.parameters(), strict=True):
        assert (mine - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\\b"])
def test_names_are_names_of_folders(name: str) -> None:
    with pytest.raises(InputError, match="name is that of a folder"):
        replace(BASE, name=name)


# ------------------------------------------------------------------------------------------------------------ curricula


def test_curricula() -> None:
    growing = Curriculum(first_dims=5, more_dims=1, first_points=11, more_points=2, every=2000, buckets=4)
    for step, dims, points in ((0, 5, 11), (1999, 5, 11), (2000, 6, 13), (10_000, 10, 21), (10**6, 20, 41)):
        assert int(growing.dims(torch.tensor(step), 20)) == dims  # type: ignore[arg-type]
        assert int(growing.points(torch.tensor(step), 41)) == points  # type: ignore[arg-type]
        assert points <= growing.length(step, 41) <= 41
    lengths = {growing.length(step, 41) for step in range(0, 60_000, 500)}
    assert len(lengths) <= 5
    assert max(lengths) == 41
    assert Curriculum().dims(torch.tensor(3), 20) is None
    assert Curriculum().length(3, 41) == 41


def test_the_loss_counts_the_points_of_the_curriculum() -> None:
    """A prompt has the length of its bucket; points beyond the curriculum's do not count."""
    config = replace(TRAIN, curriculum=Curriculum(first_points=3, more_points=1, every=100, buckets=1))
    stack = Stack([replace(BASE, train=config)], "cpu")
    y = torch.zeros(1, 8, 6)
    predictions = torch.arange(6.0).expand(1, 8, 6)
    loss = stack.learner.loss(predictions, y, config.curriculum.points(stack.step, 6))
    assert float(loss) == pytest.approx((0 + 1 + 4) / 3 / BASE.task.scale**2)


def test_dims_are_zero_beyond_the_curriculum() -> None:
    config = replace(TRAIN, curriculum=Curriculum(first_dims=1, every=2))
    stack = Stack([replace(BASE, train=config)], "cpu")
    for step, dims in ((0, 1), (2, 2), (4, 3), (9, 3)):
        stack.step.fill_(step)
        x, _ = stack.batch(6)
        assert bool((x[..., :dims] != 0).all())
        assert not x[..., dims:].any()


def test_a_batch_can_be_kept_for_several_steps() -> None:
    stack = Stack([replace(BASE, train=replace(TRAIN, data_every=3))], "cpu")
    batches = []
    for step in range(6):
        stack.step.fill_(step)
        batches.append(stack.batch(6)[0])
    assert all(torch.equal(batches[step], batches[step // 3 * 3]) for step in range(6))
    assert not torch.equal(batches[0], batches[3])


# ------------------------------------------------------------------------------------------------------ killed, resumed

RUN = "import sys; from innergrad.lab.sweeps import read_experiments; from innergrad.lab.training import train; "
RUN += "train(read_experiments(sys.argv[1]), sys.argv[2], resume=sys.argv[3] == 'resume')"


def start(config: Path, folder: Path, how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, str(config), str(folder), how], env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.soak  # tests/test_kills.py has a dozen, of all kinds
def test_kill_9_and_resume_is_bit_for_bit_the_uninterrupted_run(tmp_path: Path) -> None:
    """A stack of two, killed at random moments until it ends: parameters, optimiser and log are a quiet run's."""
    one = replace(BASE, train=replace(TRAIN, steps=400, log_every=10, checkpoint_every=20))
    two = replace(one, seed=1, task=Networks(d=3, layers=2, width=5))
    config = tmp_path / "config.toml"
    config.write_text(to_toml({"experiments": [to_table(each) for each in (one, two)]}))
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert start(config, quiet, "begin").wait(600) == 0
    chance, moments, how = random.Random(int(time.time())), [], "begin"
    while True:
        process = start(config, killed, how)
        moment = chance.uniform(0.1, 1.2)
        began = len(list(killed.glob("checkpoints/*")))
        while process.poll() is None and len(list(killed.glob("checkpoints/*"))) == began == 0:
            time.sleep(0.01)  # until there is something to resume from
        try:
            code = process.wait(moment if len(moments) < 5 else 600)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            moments.append(moment)
            how = "resume"
            continue
        assert code == 0
        break
    print("killed after these seconds:", moments)  # seen when the test fails
    assert moments
    expected, found = checkpoints.load(quiet), checkpoints.load(killed)
    assert expected.step == found.step == 400
    assert expected.tensors.keys() == found.tensors.keys()
    for name, value in expected.tensors.items():
        assert torch.equal(value, found.tensors[name]), name
    for row, other in zip(read_log(quiet), read_log(killed), strict=True):
        assert {**row, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_resuming_in_process_is_bit_for_bit(tmp_path: Path, number: int) -> None:
    """Ended by a signal to itself and resumed, with a curriculum, a schedule and Muon."""
    curriculum = Curriculum(first_dims=1, first_points=3, more_points=1, every=5)
    rule = replace(RULE, kind="muon")
    one = replace(BASE, train=replace(TRAIN, optimiser=rule, curriculum=curriculum))
    train([one], tmp_path / "quiet")

    def stop(step: int, words: str = "") -> None:
        if step == 12:
            os.kill(os.getpid(), number)

    ended = train([one], tmp_path / "ended", progress=stop)
    assert (ended.step, ended.finished) == (12, False)
    resumed = train([one], tmp_path / "ended", resume=True)
    assert resumed.finished
    assert [row["step"] for row in resumed.log] == [4, 8, 12, 16, 20, 24]
    again = train([one], tmp_path / "ended", resume=True)  # finished: nothing happens
    assert again.log == resumed.log
    assert len(json.loads((tmp_path / "ended" / "manifest.json").read_text())["resumed"]) == 1
    expected, found = parameters(tmp_path / "quiet"), parameters(tmp_path / "ended")
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    """Another that comes while it runs is refused, and changes nothing."""
    refused = []

    def second(step: int, words: str = "") -> None:
        if step == 12:
            with pytest.raises(InputError, match="another process trains in"):
                train([BASE], tmp_path, resume=True)
            refused.append(step)

    result = train([BASE], tmp_path, progress=second)
    assert refused == [12]
    assert result.finished
    assert [row["step"] for row in read_log(tmp_path)] == [4, 8, 12, 16, 20, 24]


def test_another_configuration_does_not_resume(tmp_path: Path) -> None:
    train([BASE], tmp_path)
    with pytest.raises(InputError, match=r"is of another run; got experiment 0: train\.batch 16, not 8"):
        train([replace(BASE, train=replace(TRAIN, batch=16))], tmp_path, resume=True)
    with pytest.raises(InputError, match="1 experiments there, 2 here"):
        train([BASE, replace(BASE, seed=1)], tmp_path, resume=True)
    with pytest.raises(InputError, match="resuming needs the folder"):
        train([BASE], resume=True)
    with pytest.raises(InputError, match="no such model in the stack; got 1; allowed: 0 to 0"):
        load_learner(tmp_path, model=1)


@pytest.mark.parametrize(("device", "backend", "gpus"), [("cpu", "gloo", []), ("cuda", "nccl", [1])])
def test_processes_join_by_their_devices(
    device: str, backend: str, gpus: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which library they speak through, and that each takes the GPU of its rank; two GPUs would be needed for more."""
    joined: list[str] = []
    taken: list[int] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.distributed, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(torch.distributed, "init_process_group", joined.append)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: joined.append("waited"))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: joined.append("left"))
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    with processes(device):
        assert (joined, taken) == ([backend], gpus)
    assert joined == [backend, "waited", "left"]
    with pytest.raises(RuntimeError, match="of its own"), processes(device):
        raise RuntimeError("of its own")
    assert joined[3:] == [backend, "left"]  # who fails waits for nobody


def test_devices_that_are_not_there(tmp_path: Path) -> None:
    train([BASE], tmp_path)
    for device, words in (("cuda:99", "there is no such GPU; got 'cuda:99'"), ("abacus", "unknown device")):
        for use in (lambda: train([BASE], device=device), lambda: load_learner(tmp_path, device=device)):  # noqa: B023
            with pytest.raises(InputError, match=f"{words}.*allowed: cpu"):
                use()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"n_points": 7}, "n_points"),
        ({"task": Linear(d=4)}, "task.d"),
        ({"learner": replace(LEARNER, n_layers=3)}, "learner.n_layers"),
        ({"train": replace(TRAIN, batch=16)}, "train.batch"),
    ],
)
def test_what_does_not_stack(change: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError, match=f"of a stack may not differ in this; got {names}"):
        train([BASE, replace(BASE, **change)])


# ---------------------------------------------------------------------------------------------------- several processes

RANKS = """
import sys, torch
from safetensors.torch import save_file
from innergrad.lab.sweeps import read_experiments
from innergrad.lab.stack import Stack
from innergrad.lab.training import processes, train
experiments, folder = read_experiments(sys.argv[1]), sys.argv[2]
with processes("cpu"):
    stack, seen = Stack(experiments, "cpu"), {}
    for step in range(3):
        stack.step.fill_(step)
        seen[f"x{step}"], seen[f"y{step}"] = stack.batch(6)
    save_file({name: value.contiguous() for name, value in seen.items()}, f"{folder}/rank{stack.rank}.safetensors")
    train(experiments, f"{folder}/run")
"""


STOPPED = """
import os, signal, sys
from innergrad.lab.stack import Stack
from innergrad.lab.sweeps import read_experiments
from innergrad.lab.training import train
run = Stack.run
def run_and_tell(self, steps, n):
    run(self, steps, n)
    if self.rank == 1 and int(self.step) == 8:
        os.kill(os.getpid(), signal.SIGTERM)
Stack.run = run_and_tell
result = train(read_experiments(sys.argv[1]), sys.argv[2])
assert (result.step, result.finished) == (8, False), result
"""


def torchrun(tmp_path: Path, text: str, *arguments: object) -> None:
    """Two processes, gloo between them."""
    script = tmp_path / "ranks.py"
    script.write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, *arguments]
    done = subprocess.run([*map(str, command)], env=environment(), capture_output=True, timeout=120)
    said = done.stderr.decode()
    assert done.returncode == 0, f"{said[:6000]} ... {said[-2000:]}"  # what failed comes first, torchrun's report last


def test_what_another_process_was_told_ends_this_one_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes agree in `Stack.any_device`; here the other one says "end" after eight steps."""
    monkeypatch.setattr(Stack, "any_device", lambda self, told: int(self.step) >= 8)
    result = train([replace(BASE, train=replace(TRAIN, checkpoint_every=1000))], tmp_path)
    assert (result.step, result.finished, result.asked) == (8, False, True)
    assert checkpoints.load(tmp_path).step == 8


@pytest.mark.soak
def test_a_signal_to_one_of_two_processes_ends_both_with_a_checkpoint(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(to_toml(replace(BASE, train=replace(TRAIN, checkpoint_every=1000))))
    torchrun(tmp_path, STOPPED, config, tmp_path / "run")
    assert checkpoints.load(tmp_path / "run").step == 8


@pytest.mark.soak
def test_two_processes_see_the_samples_of_one(tmp_path: Path) -> None:
    """Under torchrun with gloo: their batches together are the batch of one process, and so is what they learn."""
    config = tmp_path / "config.toml"
    config.write_text(to_toml(BASE))
    torchrun(tmp_path, RANKS, config, tmp_path)
    ranks = [load_file(tmp_path / f"rank{rank}.safetensors") for rank in range(2)]
    stack = Stack([BASE], "cpu")
    for step in range(3):
        stack.step.fill_(step)
        x, y = stack.batch(6)
        assert torch.equal(torch.cat([rank[f"x{step}"] for rank in ranks], 1), x)
        assert torch.equal(torch.cat([rank[f"y{step}"] for rank in ranks], 1), y)
    alone = {name: value.detach() for name, value in train([BASE]).learner.named_parameters()}
    for name, value in parameters(tmp_path / "run").items():
        torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-5)
    assert [row["step"] for row in read_log(tmp_path / "run")] == [4, 8, 12, 16, 20, 24]


def test_a_failing_compiler_costs_speed_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler of torch 2.11 fails on long running sums."""
    from torch._dynamo.exc import TorchDynamoException

    from innergrad.lab import stack

    calls = []

    def compiled(value: int) -> int:
        calls.append(value)
        raise TorchDynamoException("list indices must be integers")

    monkeypatch.setattr(torch, "compile", lambda function, **how: compiled)
    found = stack.fused(lambda value: value + 1)
    with pytest.warns(UserWarning, match="the compiler fails on <lambda>"):
        assert found(1) == 2
    assert found(2) == 3
    assert calls == [1]
