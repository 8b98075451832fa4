"""The benchmark measures the same training, against rivals that are right; the command refuses what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import innergrad as ig
from innergrad.bench import executor, rivals
from innergrad.bench.executor import RATE, Point, data, measure, measure_batch
from innergrad.cli.app import app
from innergrad.errors import JobError

TIMES = ("module", "functional", "foreach", "manual", "compiled", "fallback")


def reference(net: ig.Network, n: int, steps: int, *batch: int) -> tuple[torch.Tensor, ...]:
    X, y, w0 = data(net, n, torch.float64, *batch)
    algorithm = ig.GradientDescent(net, lr=RATE, steps=steps, box=None)
    return X, y, w0, ig.reference(algorithm, X, y, w0=w0).weights[..., -1, :]


@pytest.mark.parametrize("name", [*rivals.AUTOGRAD, "manual"])
def test_every_rival_trains(name: str) -> None:
    """As the library's own oracle does, to rounding."""
    net = Point(30, 5, 4).network
    X, y, w0, expected = reference(net, 30, 7)
    train = {**rivals.AUTOGRAD, "manual": rivals.manual}[name]
    assert float((train(net, X, y, w0, RATE, 7) - expected).abs().max()) < 1e-13
    assert float((expected - w0).abs().max()) > 1e-3


@pytest.mark.parametrize("name", rivals.BATCHED)
def test_every_batched_rival_trains(name: str) -> None:
    net = Point(11, 5, 3).network
    X, y, w0, expected = reference(net, 11, 4, 6)
    assert float((rivals.BATCHED[name](net, X, y, w0, RATE, 4) - expected).abs().max()) < 1e-13


def test_a_point_is_measured() -> None:
    row = measure(Point(20, 8, 2, "float64"), repeats=1, seconds=0.001)
    assert all(row[name] > 0 for name in TIMES)
    best = min(row[name] for name in rivals.AUTOGRAD)  # of one round: the ratio of the times
    assert row["ratio"] == pytest.approx(row["compiled"] / best, rel=1e-2)
    assert row["fallback_ratio"] == pytest.approx(row["fallback"] / best, rel=1e-2)


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    """What slows a whole round down does not count."""
    times = {"own": [1.0, 20.0, 1.2, 1.1], "slow": [9.0] * 4, "fast": [2.0, 40.0, 2.4, 2.2]}
    assert executor.ratio(times, "own", ("slow", "fast")) == 0.5


def test_a_batch_is_measured() -> None:
    row = measure_batch(8, 6, 4, 2, "float32", "cpu", repeats=1)
    best = min(row[name] for name in rivals.BATCHED)
    assert row["ratio"] == pytest.approx(row["fused"] / best, rel=1e-2)


def test_something_else_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival that trains otherwise is noticed before anything is timed."""
    right = rivals.AUTOGRAD["foreach"]
    monkeypatch.setitem(rivals.AUTOGRAD, "foreach", lambda *given: right(*given[:-2], 2 * given[-2], given[-1]))
    with pytest.raises(JobError, match="does not end with the same weights"):
        measure(Point(20, 8, 2), repeats=1, seconds=0.001)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    runner = CliRunner()
    arguments = ["bench", "executor", "--points", "20,4,2", "--repeats", "1", "--json", "--out", str(out)]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert {"made_by": "innergrad bench", **json.loads(done.output)} == json.loads(out.read_text())
    (row,) = json.loads(out.read_text())["executor"]
    assert (row["n"], row["K"], row["N"], row["dtype"], row["threads"]) == (20, 4, 2, "float32", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("everything",), "unknown benchmark"),
        (("executor", "--points", "20,8"), "points are n,K,N"),
        (("executor", "--points", "20,8,1"), "N >= 2"),
        (("executor", "--points", "a,b,c"), "points are n,K,N"),
        (("executor", "--threads", "0"), "threads are positive integers"),
        (("executor", "--dtype", "float16"), "unknown dtype"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], said: str) -> None:
    from innergrad.cli import benches

    what, *rest = arguments
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    with pytest.raises(ig.InputError, match=said):
        benches.run_bench(
            what,
            False,
            given.get("--points"),
            given.get("--dtype", "float32"),
            given.get("--threads", "1"),
            1,
            None,
            force=False,
            as_json=False,
            quiet=True,
        )
