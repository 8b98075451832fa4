"""Limits of the machine and of Python are sentences, and memory is known before it is taken."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import innergrad as ig
from innergrad import memory
from innergrad.algorithms import lookup
from innergrad.cli import commands
from innergrad.errors import InputError, JobError, integer, limit_of, real, within_limits
from innergrad.evidence.verification import foreseen_bytes
from innergrad.files import Writer
from innergrad.lab.checkpoints import every, load
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.learners import GPTConfig, LearnerConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.lab.tasks import Linear
from innergrad.lab.training import load_learner, train
from innergrad.model.storage import seal
from innergrad.targets.parts import base
from innergrad.targets.weights import rows
from test_cli import call

CONFIG = Path(__file__).parent.parent / "configs" / "smoke.toml"
RAW: dict[str, tuple[BaseException, str]] = {
    "memory": (MemoryError(), "out of memory"),
    "torch's memory": (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
    "C++'s memory": (RuntimeError("std::bad_alloc"), "out of memory"),
    "a GPU's memory": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
    "entries": (RuntimeError("Storage size calculation overflowed with sizes=[9]"), "too large for this machine"),
    "recursion": (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    "a number": (OverflowError("int too large to convert to float"), "too large for this machine"),
    "linear algebra": (np.linalg.LinAlgError("SVD did not converge in Linear Least Squares"), "numbers too far apart"),
    "torch's linear algebra": (torch.linalg.LinAlgError("linalg.eigh: failed to converge"), "numbers too far apart"),
    "text": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "text that cannot be read"),
}


@pytest.mark.parametrize("name", RAW)
def test_limits_are_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line and where the library is called."""
    error, words = RAW[name]

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(commands, "cost_model", fail)
    done = call("cost", "--sizes", "1,1")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err
    with pytest.raises(InputError, match=words), within_limits("compiling"):
        fail()


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours is not the user's."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(commands, "cost_model", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        call("cost", "--sizes", "1,1")
    with pytest.raises(RuntimeError, match="a mistake"), within_limits("compiling"):
        fail()
    assert limit_of(JobError("out of memory")) is None


def test_a_reader_who_has_seen_enough_and_a_full_disk() -> None:
    command = [sys.executable, "-m", "innergrad", "cost", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("innergrad: ")


HUGE_OR_NOT = [10**30, 10**400, 10**5000, 2**63, -1, 0, True, 1.0, "1", None, [1], float("nan")]


@pytest.mark.parametrize("value", HUGE_OR_NOT, ids=range(len(HUGE_OR_NOT)))
def test_integers(value: object) -> None:
    with pytest.raises(InputError, match="steps must be a positive integer") as caught:
        integer("steps", value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [1e308, 1e101, 1e-300, 0.0, -1.0, True, "1", float("nan"), float("inf")])
def test_numbers(value: object) -> None:
    with pytest.raises(InputError, match="lr "):
        real("lr", value, above=0.0)
    assert real("lr", 1e99, above=0.0) == 1e99


def test_sentences_are_short() -> None:
    """Also those of the command line's parser, which repeats what was given."""
    assert len(str(InputError("a" * 10_000, got="b" * 10_000, allowed="c" * 10_000, hint="d" * 10_000))) < 2000
    for flag in ("--lr", "--" + "a" * 10_000):
        done = call("cost", "--sizes", "1,1", flag, "a" * 100_000)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert len(done.err) < 3000


def test_a_fine_grid_and_a_wide_network_take_no_memory_before_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ig.GradientDescent(ig.Network([1, 1], bias=False), steps=1, box=1.0)
    with pytest.raises(InputError, match="too many rows"):
        ig.compile(ig.GridDescent(one, grid=2**24), n_examples=2)
    wide = ig.compile(ig.GradientDescent(ig.Network([2_000_000, 3, 1]), steps=1), n_examples=2, epsilon=0.01)
    monkeypatch.setattr(memory, "available_memory", lambda: 2**31)
    with pytest.raises(InputError, match="counting the weights needs"):
        wide.cost()


def test_what_takes_long_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), n_examples=2)
    monkeypatch.setattr(rows, "LONG", 1e-9)
    with pytest.warns(ig.LongRun, match="counting the weights will take about"):
        tf.cost()
    with pytest.warns(ig.LongRun, match="building the weights will take about"):
        _ = tf.module


def test_a_table_that_takes_long_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ig.GradientDescent(ig.Network([1, 1], bias=False), steps=1, box=1.0)
    monkeypatch.setattr(lookup, "LONG", 1e-9)
    with pytest.warns(ig.LongRun, match="tabulating 2 cells of the weights will take about"):
        ig.compile(ig.GridDescent(one, grid=2), n_examples=2)


@pytest.mark.parametrize("size", [True, False, 1.0, 2.5, "2", None, [2], 10**30, -1], ids=str)
def test_a_size_in_a_folder_is_a_whole_number(size: object, tmp_path: Path) -> None:
    """Of every matrix, wherever it stands."""
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1), n_examples=2)
    tf.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    layers = [layer for part in config["body"] for layer in part["layers"]]
    for shape in [shape for layer in layers for shape in layer["shapes"].values()]:
        for place in range(3):
            kept, shape[place] = shape[place], size
            (tmp_path / "config.json").write_text(json.dumps(config))
            seal(tmp_path)
            with pytest.raises(InputError):
                ig.load(tmp_path)
            shape[place] = kept


@pytest.mark.parametrize(
    "sizes",
    [pytest.param([8192, 3, 1], marks=pytest.mark.soak), [2, 3000, 1], [3, 3, 3000], [60, 60, 60], [8] * 40],
    ids=str,
)
def test_the_time_to_count_the_weights_is_not_underrated(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide, narrow, deep: what is said is at least half of what the processor takes."""
    said: dict[str, float] = {}
    monkeypatch.setattr(rows, "_announce", said.__setitem__)
    tf = ig.compile(ig.GradientDescent(ig.Network(sizes), steps=1), n_examples=2, epsilon=0.01)
    began = time.process_time()
    assert tf.foreseen
    assert said[rows.COUNTING] > (time.process_time() - began) / 2 - 0.1


LAYERED = {
    "gpt": GPTConfig(100_000, 4, 1, 4),
    "tied": GPTConfig(100_000, 4, 1, 4, tied=True),
    "no mlp": GPTConfig(100_000, 4, 1, 0, positions="none", tokens="columns"),
    "kernel": KernelLearnerConfig(100_000, ("linear",)),
}


@pytest.mark.parametrize("learner", LAYERED.values(), ids=LAYERED)
def test_many_small_layers_are_refused_before_they_take_memory(
    learner: LearnerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a layer takes is not its numbers alone, but the graph of its operations."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2**31)
    job = Experiment("many", n_points=4, task=Linear(d=2), learner=learner, train=TrainConfig(steps=1, batch=2))
    with pytest.raises(InputError, match="training with batches of 2 prompts needs"):
        train(job)


TAKEN = """
import sys, resource
from innergrad.lab.stack import Stack
from innergrad.lab.room import LAYER
from test_limits import LAYERED, Experiment, Linear, TrainConfig, replace

def peak(n):
    learner, config = replace(LAYERED[sys.argv[1]], n_layers=n), TrainConfig(batch=2)
    Stack([Experiment("a", n_points=4, task=Linear(d=2), learner=learner, train=config)], "cpu").advance(4)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few = peak(2)
assert (peak(4000) - few) / 4000 < LAYER, "bytes for a layer"
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", LAYERED)
def test_a_layer_takes_no_more_than_is_foreseen(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", TAKEN, name], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_thousand_parts_of_the_weights_and_marks_are_checked_one_by_one() -> None:
    """Not each against all others: a folder may have a million of them."""
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1, box=None), target="llama")
    counted = mock.PropertyMock(return_value=tf.program.carriers)
    with mock.patch.object(type(tf.program), "carriers", counted):
        replace(tf.program, marks=tf.program.marks * 1000)
    assert counted.call_count < 10


# -------------------------------------------------------------------------------------------------------------- memory


def test_memory_that_a_process_or_a_container_may_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = memory.available_memory()
    assert 0 < whole <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, text in (("memory.max", "5000\n"), ("memory.current", "2000\n"), ("memory.stat", "inactive_file 500\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.available_memory() == 3500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() > 10**6
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, resource.RLIM_INFINITY))
    assert memory.available_memory() == 0
    with pytest.raises(InputError, match=r"this needs 1\.0 GiB of memory; got 0\.0 GiB available; do that"):
        memory.require_memory(2**30, "this", "do that")


DESCENT = ig.GradientDescent(ig.Network([2, 3, 1]), steps=1)
MANY_HEADS: dict[str, ig.Algorithm] = {
    "relu": DESCENT,
    "softmax": DESCENT,
    "gpt": ig.FunctionalGradientDescent("linear", d=2, steps=2),
}


@pytest.mark.parametrize("target", MANY_HEADS)
def test_heads_in_pieces_compute_the_same(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a piece has no more numbers than it may."""
    tf = ig.compile(MANY_HEADS[target], target=target, epsilon=1e-2, n_examples=4)
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.rand(2, 3, d, generator=generator, dtype=torch.float64) / 2 for d in (2, 1))
    h = tf.stream(X, y, X)
    whole = tf.module(h)
    monkeypatch.setattr(base, "PIECE", 500)
    pieces = [layer._pieces(h) for layer in tf.module.layers() if isinstance(layer, base.Heads)]
    several = [found for found in pieces if len(found) > 1]
    assert several
    for found in several:
        assert [one.last for one in found[:-1]] == [one.first for one in found[1:]]
        sizes = ((one.last - one.first) * (2 * (one.d_head + one.d_v) + h.shape[1]) for one in found)
        alone = (one.last - one.first == 1 for one in found)
        assert all(single or h.shape[0] * h.shape[1] * size <= 500 for size, single in zip(sizes, alone, strict=True))
    torch.testing.assert_close(tf.module(h), whole, rtol=1e-12, atol=1e-12)


def test_verify_knows_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), epsilon=1e-2, n_examples=4)
    small, large = foreseen_bytes(tf, 1, 5), foreseen_bytes(tf, 10**6, 5)
    assert small < 200e6 < 10e9 < large
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    with pytest.raises(InputError, match=r"verifying needs .* of memory.*fewer prompts"):
        tf.verify(prompts=10**6)
    assert tf.verify(prompts=1).passed


PEAK = """
import resource, torch, innergrad as ig
from innergrad.evidence.verification import foreseen_bytes
torch.set_num_threads(1)
tf = ig.compile(ig.GradientDescent(ig.Network([3, {0}, {0}, {0}, 1]), steps=1), epsilon=1e-3)
tf.run(torch.ones(1, 3), torch.ones(1, 1), executor="plain")
peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tf.module
before = peak()
assert tf.verify(prompts=4).passed
print(peak() - before, foreseen_bytes(tf, 4, 17))
"""


@pytest.mark.soak
@pytest.mark.parametrize("width", [24, 48])
def test_verify_takes_no_more_memory_than_it_says(width: int) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK.format(width)], capture_output=True, text=True, check=True)
    taken, foreseen = map(int, done.stdout.split())
    assert taken <= foreseen < 10**9


# ------------------------------------------------------------------------------------------------- folders of others


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits") / "run"
    tiny = GPTConfig(n_layers=1, d_model=4, n_heads=1, d_mlp=4)
    settings = TrainConfig(steps=2, batch=2, log_every=1, checkpoint_every=1)
    train(Experiment("tiny", 0, 4, Linear(d=2), tiny, settings), folder)
    return folder


@pytest.mark.parametrize("name", ["manifest.json", "log.jsonl", ".lock", ".begun", "config.toml"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_folder_of_a_run_leads_nowhere(run: Path, name: str, there: bool, tmp_path: Path) -> None:
    """What it leads to is neither written nor made, also if it looks like what would be there."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", run, folder], check=True)
    last = every(folder)[-1]
    last.unlink()
    content = (folder / name).read_bytes() if (folder / name).exists() else b"{}"
    if there:
        elsewhere.write_bytes(content)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    assert call("train", folder, "--resume", "--device", "cpu", "-q").code == 2
    assert elsewhere.exists() == there
    assert not there or elsewhere.read_bytes() == content


def test_a_link_to_nothing_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="a link to nothing"):
        Writer("cost").json(tmp_path / "a.json", {})
    (tmp_path / "predictions.csv").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        Writer("run", force=True).check_all(tmp_path, ["predictions.csv"], "run.json")
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_as_a_checkpoint_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "step-000000001.safetensors")
    with pytest.raises(InputError, match="no regular file"):
        load(tmp_path)


HUGE = {
    "learner.d_model": 2**40,
    "learner.n_layers": 10**9,
    "learner.d_mlp": 10**15,
    "n_points": 10**8,
    "train.batch": 10**9,
    "task.d": 10**12,
    "learner.max_points": 10**14,
}


@pytest.mark.parametrize("name", HUGE)
def test_training_says_what_it_needs_before_it_begins(name: str, tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text("[task]\nkind = 'linear'\n[train]\nsteps = 1\n")
    done = call("train", config, "--set", f"{name}={HUGE[name]}", "--out", tmp_path / "run", "--device", "cpu")
    assert (done.code, done.out) == (2, "")
    assert re.search(r"needs [\d.]+ GiB of memory|too large for this machine|must be a positive integer", done.err)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_with_other_parameters_than_it_says(run: Path, tmp_path: Path) -> None:
    from innergrad.lab import checkpoints

    found = load(run)
    tensors = {**found.tensors, "theta": found.tensors["theta"][:, :-1]}
    checkpoints.save(tmp_path, found.step, tensors, found.meta)
    with pytest.raises(InputError, match="theta"):
        load_learner(tmp_path)


def test_a_billion_steps_take_no_memory_until_they_are_run(tmp_path: Path) -> None:
    """Compiled, counted, saved and loaded they are one loop; to keep the weights after each is refused."""
    steps = 10**9
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=steps), epsilon=0.1, n_examples=4)
    tracemalloc.start()
    try:
        assert str(8 * steps) in str(tf.cost()).replace(",", "")
        assert tf.n_layers == 8 * steps
        again = ig.load(tf.save(tmp_path / "model"))
        assert again.algorithm == tf.algorithm
        with pytest.raises(InputError, match=r"keeping the weights after 1,000,000,001 steps needs .* record='last'"):
            again.run(torch.ones(2, 2), torch.ones(2))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", ["1000000000", "9" * 25, "9" * 5000, "0", "-1", "1e400", "nan", "٣" * 5000])
def test_absurd_numbers_on_the_command_line(number: str, tmp_path: Path) -> None:
    """Exit code 2 and one short line, before anything is built or started."""
    for arguments in (
        ("bench", "--points", f"{number},4,2"),
        ("bench", "--points", f"4,{number},2"),
        ("bench", "--points", f"4,4,{number}"),
        ("bench", "--points", "4,4,2", "--threads", number),
        ("evaluate", tmp_path, "--model", number),
        ("train", CONFIG, "--set", f"experiments.1{number}.seed=1", "--out", tmp_path / "run"),
        ("compile", "--sizes", f"2,{number},1", "--out", tmp_path / "model"),
    ):
        done = call(*arguments)
        assert (done.code, done.out) == (2, ""), (arguments, done.err)
        assert done.err.count("\n") == 1
        assert len(done.err) < 1200
    assert not list(tmp_path.iterdir())
