"""Trainings and sweeps that are killed, run out of disk or are told to stop end as if nothing had happened.

The trial itself is ``benchmarks/kills.py``; it forks, so it has a process of its own here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from innergrad import files
from innergrad.errors import JobError
from innergrad.files import write_whole
from innergrad.lab import training
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.journal import BEGUN, Journal
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.sweeps import grid, sweep
from innergrad.lab.tasks import Linear
from innergrad.lab.training import train

SMALL = Experiment(
    "small",
    n_points=3,
    task=Linear(d=1),
    learner=GPTConfig(n_layers=1, d_model=4, n_heads=1, d_mlp=4),
    train=TrainConfig(steps=4, batch=2, log_every=2, checkpoint_every=2),
)


def tried(code: str) -> Any:
    """What a process that imports ``kills`` prints, as JSON: the last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", f"import json, kills\n{code}"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.soak
def test_a_dozen_kills_are_as_if_they_never_were() -> None:
    """At points at which something reaches the disk, and at random moments."""
    some = ["its last checkpoint is its first", "a sweep"]
    found = tried(f"print(json.dumps(kills.kills(12, 2, seed={os.getpid()}, scenarios={some})))")
    assert found["wrong"] == []
    assert found["kills"] >= 12


@pytest.mark.soak
def test_hundreds_of_kills_are_as_if_they_never_were() -> None:
    found = tried("print(json.dumps(kills.kills(300, 2, seed=7)))")
    assert found["wrong"] == []
    assert found["kills"] >= 300


BROKEN = """
import tempfile
from pathlib import Path
from safetensors.torch import save as serialised
from innergrad.lab import checkpoints

def save(folder, step, tensors, meta, keep=2):  # in place, not under another name first
    header = {"format": checkpoints.FORMAT, "version": "1", "step": str(step), "meta": json.dumps(meta)}
    header["digest"] = checkpoints._digest(tensors, header)
    checkpoints.make_folder(folder, "checkpoints")
    with (folder / f"step-{step:09d}.safetensors").open("wb") as file:
        file.write(serialised({name: value.contiguous() for name, value in tensors.items()}, header))

checkpoints.save = save
place, name = Path(tempfile.mkdtemp()), "its last checkpoint is its first"
quiet = kills.quiet(name, place / "quiet")
half = kills.Fault("point", quiet.points - 3)  # then it is written, and the file .begun removed: before and after
print(json.dumps(kills.examine(kills.Case(name, (half,)), quiet, place / "case")))
"""


@pytest.mark.soak
def test_half_a_checkpoint_would_be_found() -> None:
    """The trial can fail: with a writer that writes in place."""
    found = tried(BROKEN)
    assert found["ended"][0]["where"] == "a later checkpoint, half written"
    assert "does not go on" in found["wrong"]
    assert "damaged" in found["wrong"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    """Parts of processes that are no more; not those of others that write, nor anybody's files."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, kept = f".a.json.{ended.pid}.part", (f".a.json.{os.getppid()}.part", ".a.json.mine.part", ".b.json.1.part")
    for name in (left, *kept):
        (tmp_path / name).write_text("half")
    write_whole(tmp_path / "a.json", "{}")
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", *kept}
    assert not files._alive(2**70)


def test_a_full_disk_does_not_keep_the_folder(tmp_path: Path) -> None:
    """The log cannot be written, nor closed; the next may begin."""
    journal = Journal(tmp_path, {})
    journal._log.close()
    journal._log = mock.Mock(**{"close.side_effect": OSError(28, "No space left on device")})
    with pytest.raises(OSError, match="No space"):
        journal.close()
    Journal(tmp_path, {}).close()


def test_a_full_disk_is_no_wrong_input(tmp_path: Path) -> None:
    full = mock.patch.object(os, "mkdir", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(JobError, match=r"cannot write the run into .*: No space left on device"):
        train(SMALL, tmp_path / "run")


def test_a_run_killed_right_after_its_only_checkpoint_is_no_longer_begun(tmp_path: Path) -> None:
    train(SMALL, tmp_path)
    (tmp_path / BEGUN).touch()
    train(SMALL, tmp_path, resume=True)
    assert not (tmp_path / BEGUN).exists()


def test_a_signal_at_the_end_of_a_run_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while the last checkpoint of the first run is written is not lost; the same call goes on."""
    made, save = grid(SMALL, ["seed=0,1"]), training.save

    def told(stack: Any, experiments: Any, folder: Path, step: int, *more: Any, **named: Any) -> None:
        save(stack, experiments, folder, step, *more, **named)
        if step == SMALL.train.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(training, "save", told)
        rows = sweep(made, tmp_path)
    assert [(row.name, row.step) for row in rows] == [(made[0][0].name, 4)]
    assert [row.step for row in sweep(made, tmp_path)] == [4, 4]
