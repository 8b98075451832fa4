"""Checkpoints are whole or absent; the log of a run that was killed has no gap and no duplicate."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save as serialised
from safetensors.torch import save_file
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab import checkpoints
from innergrad.lab.checkpoints import load, newest, save
from innergrad.lab.journal import Journal, progress, read_log

META = {"config": {"task": {"kind": "linear", "d": 5}}, "note": "é", "list": [1, 2.5, None]}


def tensors() -> dict[str, Tensor]:
    base = torch.arange(12.0).view(3, 4)
    return {
        "W": base,
        "W_T": base.T,  # a view of the same memory, not contiguous
        "half": base.to(torch.bfloat16),
        "count": torch.tensor(7),
        "double": torch.tensor([1e-300], dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "nothing": torch.zeros(0, 3),
    }


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    given = tensors()
    path = save(tmp_path / "run" / "checkpoints", 12, given, META)
    for place in (path, path.parent, path.parent.parent):  # the file, its folder, the run
        found = load(place)
        assert (found.step, found.meta, found.path) == (12, META, path)
        assert found.tensors.keys() == given.keys()
        for name, tensor in given.items():
            assert found.tensors[name].dtype == tensor.dtype
            assert torch.equal(found.tensors[name], tensor)
    assert os.listdir(path.parent) == [path.name]


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for step in (5, 40, 300, 1000):
        save(tmp_path, step, {"w": torch.tensor(step)}, {})
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-000000300.safetensors",
        "step-000001000.safetensors",
    ]
    assert newest(tmp_path) == tmp_path / "step-000001000.safetensors"
    assert load(tmp_path).step == 1000
    save(tmp_path, 1001, {"w": torch.tensor(0)}, {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001001.safetensors"]


def test_a_writer_that_fails_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before the rename: the new file is not seen, and the next writer removes what was left."""
    save(tmp_path, 1, {"w": torch.tensor(1)}, {})

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2, {"w": torch.tensor(2)}, {})
    assert load(tmp_path).step == 1
    assert list(tmp_path.glob("*.part"))
    save(tmp_path, 3, {"w": torch.tensor(3)}, {})
    assert not list(tmp_path.glob("*.part"))
    assert load(tmp_path).step == 3


WRITER = """
import sys, torch
from innergrad.lab.checkpoints import save
step = 0
while True:
    step += 1
    save(sys.argv[1], step, {"w": torch.full((400_000,), float(step))}, {"step": step})
    if step == 1:
        print("ready", flush=True)
"""


def test_a_killed_writer_never_leaves_half_a_checkpoint(tmp_path: Path) -> None:
    """Read while another process writes as fast as it can, then kill it at some moment and read again."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until, seen = time.monotonic() + 1.0, set()
        while time.monotonic() < until:
            try:
                found = load(tmp_path)
            except InputError as error:  # the file was removed, as old, between listing and opening
                assert "No such file" in str(error)  # noqa: PT017
                continue
            assert found.meta["step"] == found.step
            assert bool((found.tensors["w"] == found.step).all())
            seen.add(found.step)
        assert len(seen) > 3
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert load(tmp_path).step >= max(seen)


def test_damage_is_found_and_the_previous_file_named(tmp_path: Path) -> None:
    old, new = (save(tmp_path, step, {"w": torch.arange(1000.0)}, {}) for step in (1, 2))
    whole = new.read_bytes()
    broken = {
        "truncated": whole[:-100],
        "header only": whole[:50],
        "empty": b"",
        "zeros": bytes(len(whole)),
        "one bit": whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:],
        "another step": whole.replace(b'"step":"2"', b'"step":"3"'),
    }
    for name, content in broken.items():
        assert content != whole, name
        new.write_bytes(content)
        with pytest.raises(InputError, match=r"damaged.*the one before it is") as error:
            load(tmp_path)
        assert str(new) in str(error.value), name
        assert str(old) in str(error.value), name
        with pytest.raises(InputError, match="damaged"):
            load(new)
    assert load(old).step == 1
    old.unlink()
    with pytest.raises(InputError, match="there is no earlier one"):
        load(tmp_path)


def test_what_is_not_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no checkpoint in"):
        load(tmp_path)
    with pytest.raises(InputError, match="cannot read the checkpoint"):
        load(tmp_path / "absent.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    save_file({"w": torch.zeros(2)}, foreign, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"not a checkpoint of the lab; got format pt"):
        load(foreign)
    save_file({"w": torch.zeros(2)}, foreign)
    with pytest.raises(InputError, match="format unknown"):
        load(foreign)
    for legacy in (False, True):
        pickled = io.BytesIO()
        torch.save({"w": torch.zeros(2)}, pickled, _use_new_zipfile_serialization=not legacy)
        (tmp_path / "model.pt").write_bytes(pickled.getvalue())
        with pytest.raises(InputError, match="is a pickle"):
            load(tmp_path / "model.pt")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "VERSION", "2")
        later = save(tmp_path / "later", 1, {"w": torch.zeros(2)}, {})
    with pytest.raises(InputError, match="another version; got 2; allowed: 1"):
        load(later)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write checkpoints"):
        save(tmp_path / "file", 1, {}, {})


class Canary:
    """Unpickling it is a failure of the test."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_known_in_every_protocol(protocol: int, tmp_path: Path) -> None:
    """Those of protocols 0 and 1 begin as text does, and the name of a file may say anything."""
    path = tmp_path / "step-000000001.safetensors"
    state = {"w": torch.zeros(2)}
    canary = Canary()
    for content in (state, OrderedDict(state), [state], (state, 1), state["w"], {"a": 1.0}, canary, {"a": canary}):
        path.write_bytes(pickle.dumps(content, protocol))
        with pytest.raises(InputError, match="is a pickle; allowed: safetensors"):
            load(path)
    torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match="is a pickle; allowed: safetensors"):
        load(path)


@pytest.mark.parametrize("start", [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"(d", b"(l", b"}q", b"]q"])
def test_a_safetensors_file_is_no_pickle(start: bytes, tmp_path: Path) -> None:
    """It begins with the length of its header, and with one of 640 bytes as pickles of protocol 2 do."""
    length, bare = int.from_bytes(start, "little"), serialised({"w": torch.arange(2.0)})
    size = 8 + int.from_bytes(bare[:8], "little")
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + bare[8:size].ljust(length) + bare[size:])  # spaces fill a header
    assert path.read_bytes().startswith(start)
    assert checkpoints.read_tensors(path)[1]["w"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "text", ['{"a": [1]}', "[1, 2]", "(data)", "cat\ndog\npig\n", "cost,price\n1,2\n", "L1\n", "", "p"]
)
def test_a_text_is_no_pickle(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text(text)
    with pytest.raises(InputError, match="is damaged"):
        load(tmp_path / "model.safetensors")


def test_another_models_tensors(tmp_path: Path) -> None:
    found = load(save(tmp_path, 1, {"a": torch.zeros(2, 3), "b": torch.zeros(())}, {}))
    found.require({"a": (2, 3), "b": ()})
    for shapes, words in (
        ({"a": (3, 2), "b": ()}, r"a; got \(2, 3\); allowed: \(3, 2\)"),
        ({"a": (2, 3)}, r"b; got \(\); allowed: no such tensor"),
        ({"a": (2, 3), "b": (), "c": (1,)}, r"c; got no such tensor; allowed: \(1,\)"),
    ):
        with pytest.raises(InputError, match=words):
            found.require(shapes)


# ------------------------------------------------------------------------------------------------------------- journal


def test_a_runs_folder(tmp_path: Path) -> None:
    with Journal(tmp_path / "run", {"seed": 3, "train": {"lr": 0.1}}) as journal:
        journal.write({"step": 10, "loss": 0.5})
        assert read_log(tmp_path / "run") == [{"step": 10, "loss": 0.5}]  # before it is closed
        journal.write({"step": 20, "loss": float("nan"), "losses": [1.0, float("inf")]})
    assert read_log(tmp_path / "run")[1] == {"step": 20, "loss": None, "losses": [1.0, None]}
    assert (tmp_path / "run" / "config.toml").read_text() == "seed = 3\n\n[train]\nlr = 0.1\n"
    made = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (made["config"], made["seeds"]) == ({"seed": 3, "train": {"lr": 0.1}}, [3])
    save(journal.checkpoints, 20, {}, {})
    with pytest.raises(InputError, match=r"there is a run in .*--resume"):
        Journal(tmp_path / "run", {})


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize(("steps", "every"), [(30, 1000), (1000, 30)])
def test_a_run_begins_again_only_before_its_first_checkpoint(
    steps: int, every: int, stack: bool, tmp_path: Path
) -> None:
    one = {"seed": 3, "train": {"steps": steps, "checkpoint_every": every}}
    config = {"experiments": [one, {**one, "seed": 4}]} if stack else one

    def begin(config: dict[str, object], *logged: int) -> None:
        with Journal(tmp_path, config) as journal:
            assert read_log(tmp_path) == []
            for step in logged:
                journal.write({"step": step})

    begin(config, 10, 20)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 30, "lo')  # killed here, before the checkpoint of step 30
    begin(config)
    begin(config, 10, 20)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        InputError, match=r"files of another run; got config.toml, log.jsonl, manifest.json.*another folder"
    ):
        begin({**config, "name": "other"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    begin(config, 10, 20, 30)  # and killed in the checkpoint of step 30
    begin(config, 10, 20, 30)
    (tmp_path / ".begun").unlink()  # what ``saved`` does
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="files of another run"):  # there was a checkpoint
        begin(config)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["config.toml", "log.jsonl", "manifest.json"])
def test_nobodys_files_are_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine \xff")
    with pytest.raises(InputError, match=f"files of another run; got {name}; .*another folder"):
        Journal(tmp_path, {})
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine \xff"]


@pytest.mark.parametrize("text", [b'{"config', b"[]", b"\xff"])
def test_a_damaged_manifest_is_named(text: bytes, tmp_path: Path) -> None:
    with Journal(tmp_path, {}) as journal:
        journal.write({"step": 10})
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(InputError, match=r"manifest.json is damaged.*move it away") as kept:
        Journal(tmp_path, {}, step=10)
    assert (tmp_path / "manifest.json").read_bytes() == text
    (tmp_path / "manifest.json").unlink()
    Journal(tmp_path, {}, step=10).close()  # nobody holds the folder, though the error is kept
    assert read_log(tmp_path) == [{"step": 10}], kept


def test_a_resumed_log_has_no_duplicates(tmp_path: Path) -> None:
    with Journal(tmp_path, {}) as journal:
        for step in (10, 20, 30):
            journal.write({"step": step, "loss": 1.0})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')  # the process was killed here
    assert [row["step"] for row in read_log(tmp_path)] == [10, 20, 30]
    started = json.loads((tmp_path / "manifest.json").read_text())
    with Journal(tmp_path, {}, step=20) as journal:
        journal.write({"step": 30, "loss": 2.0})
    resumed = json.loads((tmp_path / "manifest.json").read_text())
    assert [again["step"] for again in resumed.pop("resumed")] == [20]
    assert resumed == started
    assert read_log(tmp_path) == [{"step": s, "loss": loss} for s, loss in ((10, 1.0), (20, 1.0), (30, 2.0))]
    with Journal(tmp_path, {}, step=0):
        pass
    assert read_log(tmp_path) == []


def test_bad_logs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no log in"):
        read_log(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 1}\nhello\n')
    with pytest.raises(InputError, match="line 2 is not a line of a log; got 'hello'"):
        read_log(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is in the way"):
        Journal(tmp_path / "file", {})


def test_tensorboard_is_asked_for_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if not installed
    with Journal(tmp_path / "plain", {}) as journal:
        journal.write({"step": 1})
    with pytest.raises(InputError, match="TensorBoard is not installed"):
        Journal(tmp_path / "board", {}, tensorboard=True)
    assert not (tmp_path / "board" / "log.jsonl").exists()  # the folder can be used again


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            made.append((Path(folder).name, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            made.append((name, value, step))

        def close(self) -> None:
            made.append(("closed",))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
    with Journal(tmp_path, {}, tensorboard=True) as journal:
        journal.write({"step": 7, "loss": [0.5], "lr": [0.1, 0.2], "prompts": 64})
    numbers = [("loss", 0.5, 7), ("lr/0", 0.1, 7), ("lr/1", 0.2, 7), ("prompts", 64, 7)]
    assert made == [("tensorboard", None), *numbers, ("closed",)]
    made.clear()
    Journal(tmp_path, {}, tensorboard=True, step=7).close()
    assert made[0] == ("tensorboard", 8)  # what a killed run logged later is not shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with progress(3, quiet=True) as report:
        report(3, "loss 1")
    assert capsys.readouterr() == ("", "")
    clock = iter([0.0, 29.0, 31.0, 31.0, 60.0, 62.0, 62.0])
    monkeypatch.setattr("innergrad.lab.journal.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress(9) as report:
        for step in (1, 2, 3, 4):
            report(step, f"loss {step}")
    assert capsys.readouterr() == ("", "training: 2 of 9 loss 2\ntraining: 4 of 9 loss 4\n")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress(3, "learning") as report:
        report(2, "loss 2")
    assert "learning loss 2" in screen.getvalue()
    assert "2/3" in screen.getvalue()
