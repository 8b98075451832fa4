"""Mutated model folders, configurations, tables, checkpoints and runs, and what the doors of the library say to them.

    python benchmarks/mutations.py --cases 100000 --workers 16 --store

Each case is made from its number and the seed alone. It is judged in a process of its own kind, with limits. Sizes that
can be had may take long, if that is said first (``said``). Wrong are:

    raw        an exception that is not one of the library's own; on the command line also an exit without a sentence
    outside    something was written, moved or removed outside the folder that the command was given
    code       something was executed: a process, a pickle's function, a file of the case, a string
    memory     more than ROOM bytes were asked for, over what the process had; the library must refuse before
    slow       more than SECONDS of processor time, and nothing was said before
    died       the process ended: a signal, or no answer

``--only 123`` runs one case here, and shows it; ``--keep folder`` leaves its files there. Many small files are made:
TMPDIR=/dev/shm keeps them off the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import functools
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import weakref
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import typer.main
from safetensors.torch import load as tensors_of
from safetensors.torch import save, save_file

import _mutators
import innergrad as ig
from _mutators import CANARY, DIGITS, PICKLE, as_json, change, changed_tensors, damaged, forged, settled, table, value
from _parts import Parts
from innergrad import manifest
from innergrad.cli import main as command_line
from innergrad.cli.flags import MODEL, THEOREM
from innergrad.config import parse, to_table, to_toml
from innergrad.errors import InputError, JobError
from innergrad.lab import checkpoints
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.learners import GPTConfig, LearnerConfig
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Linear, Task
from innergrad.lab.training import load_learner, train
from innergrad.model.storage import seal

ROOM = 2**31  # bytes, over those of the process before a case
SECONDS, PATIENCE = 20.0, 120.0  # of the processor for a case; of a clock, for a process that says nothing
GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
CSV = "a,b,y\n1,0.2,0.3\n0.5,0.1,0.2\n-0.25,0.75,0.5\n0.1,0.2,\n"
VERDICTS = ("done", "refused", "failed", "said", "raw", "outside", "code", "memory", "slow", "died")
BAD = VERDICTS[4:]
FOLDERS = re.compile(r'File "[^"]*/([^"/]+)"')  # of a traceback: where a machine has its files is its own business


# ------------------------------------------------------------------------------------------------- what is mutated


@dataclass
class Bases:
    """Good files, once made, of every kind."""

    folder: Path
    models: list[tuple[bytes, bytes]] = field(default_factory=list)  # config.json, weights.safetensors
    configs: list[Any] = field(default_factory=list)  # of the models, parsed
    settings: list[dict[str, Any]] = field(default_factory=list)  # of compile and cost
    experiments: list[dict[str, Any]] = field(default_factory=list)  # of train and sweep
    runs: list[Path] = field(default_factory=list)

    @property
    def small(self) -> int:
        """The number of a small model of gradient descent."""
        known = [i for i, one in enumerate(self.configs) if one["algorithm"]["kind"] == "gradient_descent"]
        return min(known, key=lambda i: len(self.models[i][1]))


def bases(folder: Path, few: bool = False) -> Bases:
    found = Bases(folder)
    for path in sorted(GOLDEN.glob("*.zip"))[:: 5 if few else 1]:
        if "stranger" not in path.name:
            with zipfile.ZipFile(path) as archive:
                found.models.append((archive.read("config.json"), archive.read("weights.safetensors")))
    found.configs = [json.loads(config) for config, _ in found.models]
    network = {"sizes": [2, 3, 1], "activation": "tanh", "output": "linear", "bias": True}
    common = {"epsilon": 0.01, "n_examples": 4}
    descent = {"loss": "squared", "lr": 0.1, "steps": 2, "box": 4.0, "momentum": 0.1, "weight_decay": 0.01}
    descent |= {"nesterov": False, "l1": 0.0, "clip": 1.0, "batch_size": 2}
    adam = {"optimiser": "adam", "lr": [0.1, 0.05], "betas": [0.9, 0.99], "delta": 0.1}
    functional = {"kind": "functional", "kernel": "exp", "bandwidth": 1.0, "d": 2, "d_y": 1, "steps": 4}
    functional |= {"step_rule": "chebyshev", "lambda_max": 40.0, "condition": 4.0}
    rls = {"kind": "rls", "d": 2, "ridge": 0.5, "noise": 1.0, "form": "rls"}
    grid = {"kind": "grid", "grid": 2, "x_bound": 1.0, "y_bound": 1.0, "steps": 1, "lr": 0.5, "box": 1.0}
    found.settings = [
        {"network": network, "algorithm": descent, "compile": {**common, "x_bound": 2.0, "y_bound": 2.0}},
        {"network": {"sizes": [1, 2, 1]}, "algorithm": adam, "compile": common},
        {"network": network, "algorithm": {"steps": 3, "schedule": "cosine"}, "compile": common},
        {"algorithm": functional, "compile": {"n_examples": 4}},
        {"algorithm": rls, "compile": {"n_examples": 2, "x_bound": 2.0}},
        {"algorithm": {"kind": "sgd", "d": 2, "lr": 0.05}, "compile": {"n_examples": 2}},
        {"network": {"sizes": [1, 1], "bias": False}, "algorithm": grid, "compile": {"n_examples": 2}},
        {"network": {"sizes": [1, 2, 1]}, "algorithm": {"steps": 1}, "compile": {"target": "gpt", "epsilon": 1e-3}},
    ]
    small = {"width": 3, "waves": 4, "depth": 2, "layers": 2, "nonzeros": 1}
    train_ = TrainConfig(steps=4, batch=2, log_every=2, checkpoint_every=2)
    base = Experiment("base", 0, 4, Linear(d=2), GPTConfig(n_layers=1, d_model=4, n_heads=1, d_mlp=4), train_)
    for kind, cls in Task.kinds.items():
        table_ = {"kind": kind, **{key: small[key] for key in small if key in cls.__dataclass_fields__}}
        made = to_table(base) | {"task": {"kind": "linear", "d": 2}}
        if kind == "pool":
            table_["task"] = {"kind": "linear", "d": 2}
        if kind == "mixture":
            table_["tasks"] = [{"kind": "linear", "d": 2}, {"kind": "ball", "d": 2}]
        with contextlib.suppress(InputError):
            made["task"] = to_table(parse(Experiment, {"task": table_}).task)
        found.experiments.append(made)
    kernel = {"kind": "kernel", "n_layers": 1}
    if "kernel" in LearnerConfig.kinds:
        with contextlib.suppress(InputError):
            learner = to_table(parse(Experiment, {"learner": kernel}).learner)
            found.experiments.append(to_table(base) | {"learner": learner})
    # in a process of its own: autograd and CUDA do not outlive a fork
    training = multiprocessing.get_context("fork").Process(target=_train, args=(base, folder))
    training.start()
    training.join()
    assert training.exitcode == 0, "the runs that are mutated were not trained"
    found.runs = [folder / "run", folder / "stack"]
    return found


def _train(base: Experiment, folder: Path) -> None:
    train(base, folder / "run")
    train([base, replace(base, name="other", seed=1)], folder / "stack")
    for run in (folder / "run", folder / "stack"):
        _settle(run)


def _settle(run: Path) -> None:
    """Without what is another the next time: times, and the order of keys. Cases are a function of their number."""
    log, about = run / "log.jsonl", run / "manifest.json"
    rows = [{**json.loads(line), "seconds": 0.25} for line in log.read_text().splitlines()]
    log.write_bytes(b"".join(as_json(row) + b"\n" for row in rows))
    then = {"started": "2026-01-01T00:00:00+00:00", "command": ["innergrad"]}
    about.write_bytes(as_json({**json.loads(about.read_text()), **then}))
    for path in checkpoints.every(run):
        path.write_bytes(settled(path.read_bytes()))


# ---------------------------------------------------------------------------------------------------- kinds of cases


@dataclass(frozen=True)
class Case:
    """A case while it is made: inputs is a folder for what is read, out one that may be written to."""

    rng: random.Random
    bases: Bases
    inputs: Path
    out: Path
    watch: Watch
    number: int

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.inputs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


Act = Callable[[], None]  # what is done once the case is made


def _command(*arguments: object) -> None:
    """``innergrad ...``; an exit without a sentence is raised as what it is not."""
    err = io.StringIO()
    argv = ["innergrad", *(str(argument) for argument in arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
    ):
        try:
            command_line()
        except SystemExit as end:
            code = end.code
    said = err.getvalue().strip().splitlines()
    if code in (0, None):
        return
    if code not in (1, 2) or not said or not said[-1].startswith("innergrad: ") or len(said[-1]) > 3000:
        raise AssertionError(f"exit code {code!r} with {said[-3:]!r}")
    raise (InputError if code == 2 else JobError)(said[-1])


def _model(case: Case) -> tuple[bytes, bytes]:
    return case.rng.choice(case.bases.models)


def _use(case: Case) -> Act:
    """Load a folder, and do something small with what was loaded."""
    folder, rng, data = case.inputs, case.rng, case.write("data.csv", CSV)
    how = rng.random()
    if how < 0.06:
        return partial(_command, "cost", folder, "--json")
    if how < 0.12:
        return partial(_command, "run", folder, "--data", data, "--executor", "plain", "--out", case.out / "run")

    def use() -> None:
        tf = ig.load(folder)
        repr(tf)
        program = tf.program
        if tf.n_layers < 100 and program.stream.d_model < 300 and rng.random() < 0.3:
            d_x, d_y = program.stream["x"].size, program.stream["y"].size
            tf.run(torch.rand(2, d_x).double(), torch.ones(2, d_y).double(), executor="plain")

    return use


def folder_config(case: Case) -> Act:
    config, weights = _model(case)
    tree = json.loads(config)
    change(case.rng, tree, case.bases.configs)
    case.write("config.json", as_json(tree))
    case.write("weights.safetensors", weights)
    return _after_sealing(case)


def folder_tensors(case: Case) -> Act:
    config, weights = _model(case)
    case.write("config.json", config)
    save_file(changed_tensors(case.rng, tensors_of(weights)), case.inputs / "weights.safetensors")
    return _after_sealing(case)


def _after_sealing(case: Case) -> Act:
    """Most of the time: who changes a model can seal it, which writes into its folder."""
    use = _use(case)
    if case.rng.random() < 0.15:
        return use

    def act() -> None:
        case.watch.folder = case.inputs
        seal(case.inputs)
        case.watch.folder = case.out
        use()

    return act


def folder_bytes(case: Case) -> Act:
    config, weights = _model(case)
    which = case.rng.random()
    if which < 0.4:
        config = damaged(case.rng, config)
    elif which < 0.7:
        weights = damaged(case.rng, weights)
    else:
        weights = forged(case.rng, weights)
    case.write("config.json", config)
    case.write("weights.safetensors", weights)
    return _after_sealing(case) if case.rng.random() < 0.3 else _use(case)


def folder_files(case: Case) -> Act:
    for name, content in zip(("config.json", "weights.safetensors"), _model(case), strict=True):
        case.write(name, content)
    _files(case, case.inputs, ("config.json", "weights.safetensors"))
    return _use(case)


def _files(case: Case, folder: Path, names: tuple[str, ...]) -> None:
    """Missing, foreign, linked, special and additional files."""
    rng, name = case.rng, case.rng.choice(names)
    path = folder / name
    how = rng.randrange(12)
    if how < 10:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    if how == 1:
        path.symlink_to("/etc/passwd")
    elif how == 2:
        path.symlink_to("/dev/zero")
    elif how == 3:
        path.symlink_to(path)
    elif how == 4:
        path.mkdir()
    elif how == 5:
        os.mkfifo(path)
    elif how == 6:
        path.write_bytes(PICKLE)
    elif how == 7:
        with path.open("wb") as file:
            file.truncate(rng.choice((1, 2**20, 2**33, 2**42)))  # sparse: it takes no room
    elif how == 8:
        path.symlink_to(case.inputs / "data.csv")
    elif how == 9:
        path.write_bytes(rng.randbytes(rng.choice((0, 1, 1000))))
    elif how == 10:
        for extra in ("model.bin", "pytorch_model.bin", "__init__.py", "conftest.py", "\u00e9\n", f"{name}.part"):
            (folder / extra).write_bytes(rng.choice((PICKLE, b"open('canary', 'w')", rng.randbytes(50))))
    elif not path.is_dir():
        path.write_bytes(damaged(rng, path.read_bytes()) if path.is_file() else b"")


def toml_model(case: Case) -> Act:
    tree = copy.deepcopy(case.rng.choice(case.bases.settings))
    config = case.write("settings.toml", _toml(case, tree, case.bases.settings))
    command = case.rng.choice(("compile", "cost"))
    return partial(_command, command, "--config", config, "--out", case.out / "made", "-q")


def toml_lab(case: Case) -> Act:
    tree = copy.deepcopy(case.rng.choice(case.bases.experiments))
    if case.rng.random() < 0.1:
        tree = {"experiments": [tree, copy.deepcopy(tree)]}
    config = case.write("experiment.toml", _toml(case, tree, case.bases.experiments))
    more = ("--grid", "seed=0,1") if case.rng.random() < 0.2 else ()
    command = "sweep" if more else "train"
    return partial(_command, command, config, *more, "--out", case.out / "run", "--device", "cpu", "-q")


def _toml(case: Case, tree: Any, others: list[Any]) -> bytes:
    rng = case.rng
    if rng.random() < 0.12:
        return damaged(rng, to_toml(tree).encode())
    good = to_toml(tree).encode()
    change(rng, tree, others)
    try:
        text = to_toml(tree).replace(json.dumps(DIGITS), "7" * 5000)
    except RecursionError:  # deeper than can be written
        return damaged(rng, good)
    return text.encode("utf-8", "surrogatepass")


def csv_files(case: Case) -> Act:
    number = case.bases.small
    config, weights = case.bases.models[number]
    folder = case.write("model/config.json", config).parent
    case.write("model/weights.safetensors", weights)
    stream = {lane["name"]: lane["shape"] for lane in case.bases.configs[number]["layout"]}
    d_x, d_y = (stream[name][0] for name in "xy")
    header = [f"x{i}" for i in range(d_x)] + [f"y{i}" for i in range(d_y)]
    rows = [[f"{case.rng.uniform(-1, 1):.3g}" for _ in header] for _ in range(3)]
    text = "\n".join(map(",".join, [header, *rows, [*rows[0][:d_x], *[""] * d_y]])) + "\n"
    good, bad = case.write("good.csv", text), case.write("bad.csv", table(case.rng, text))
    if case.rng.random() < 0.1:
        _files(case, case.inputs, ("bad.csv",))
    out = ("--out", case.out / "run") if case.rng.random() < 0.5 else ()
    if case.rng.random() < 0.3:
        return partial(_command, "run", folder, "--data", good, "--query", bad, "--executor", "plain", *out, "--json")
    return partial(_command, "run", folder, "--data", bad, "--executor", "plain", *out)


def checkpoint(case: Case) -> Act:
    run = case.rng.choice(case.bases.runs)
    path = checkpoints.every(run)[-1]
    content = path.read_bytes()
    how = case.rng.random()
    if how < 0.2:
        content = damaged(case.rng, content)
    elif how < 0.4:
        content = forged(case.rng, content)
    else:  # a digest is no signature
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        tensors = tensors_of(content)
        if how < 0.6:
            tensors = changed_tensors(case.rng, tensors)
        else:
            meta = {"meta": json.loads(header["meta"]), **{k: header[k] for k in ("format", "version", "step")}}
            change(case.rng, meta if case.rng.random() < 0.2 else meta["meta"], case.bases.experiments)
            header |= {k: v if isinstance(v, str) else str(v) for k, v in meta.items() if k != "meta"}
            header["meta"] = as_json(meta.get("meta")).decode()
        header["digest"] = checkpoints._digest(tensors, header)
        content = settled(save(tensors, {k: v.encode("utf-8", "replace").decode() for k, v in header.items()}))
    folder = case.inputs / "run"
    shutil.copytree(run, folder)
    (folder / "checkpoints" / path.name).write_bytes(content)
    return _use_run(case, folder)


def _use_run(case: Case, folder: Path) -> Act:
    how, model = case.rng.random(), case.rng.choice((0, 0, 0, 1, 5))
    if how < 0.5:
        return partial(_load, folder, model)
    if how < 0.75:
        few = ("--prompts", 3, "--points", 3, "--device", "cpu", "--baselines", "mean,best")
        return partial(_command, "evaluate", folder, *few, "--out", case.out / "curves.json")
    # a run is resumed in its own folder, which then is the output
    resumed = case.out / "run"
    shutil.copytree(folder, resumed, symlinks=True, ignore=_special)
    return partial(_command, "train", resumed, "--resume", "--device", "cpu", "-q")


def _special(folder: str, names: list[str]) -> list[str]:
    """What copytree cannot copy."""
    return [name for name in names if (Path(folder) / name).is_fifo() or _large(Path(folder) / name)]


def _large(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > 2**24


def _load(folder: Path, model: int) -> None:
    load_learner(folder, model)


def run_folder(case: Case) -> Act:
    run = case.rng.choice(case.bases.runs)
    folder = case.inputs / "run"
    shutil.copytree(run, folder)
    if case.rng.random() < 0.3:
        for path in (folder / "checkpoints").iterdir():
            path.unlink()
        (folder / ".begun").touch()
    if case.rng.random() < 0.3:
        rows = [{"name": "a", "seed": 0, "changes": [], "run": "r", "model": 0, "step": 1, "loss": 0.1, "error": ""}]
        change(case.rng, rows, [])
        (folder / "sweep.json").write_bytes(as_json(rows))
    names = ("config.toml", "manifest.json", "log.jsonl", "log.jsonl", "checkpoints", "sweep.json", ".lock", ".begun")
    name = case.rng.choice(names)
    path = folder / name
    how = case.rng.random()
    if how < 0.35 or not path.is_file() or name in (".lock", ".begun"):
        _files(case, folder, (name,))
    elif how < 0.6 or name == "sweep.json":  # changed already
        path.write_bytes(damaged(case.rng, path.read_bytes()))
    elif name == "log.jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(case.rng, rows, [])
        path.write_bytes(b"".join(as_json(row) + b"\n" for row in rows))
    elif name == "config.toml":
        tree = copy.deepcopy(case.rng.choice(case.bases.experiments))
        path.write_bytes(_toml(case, tree, case.bases.experiments))
    else:
        tree = json.loads(path.read_text())
        change(case.rng, tree, [])
        path.write_bytes(as_json(tree))
    if case.rng.random() < 0.15:
        config = case.write("base.toml", to_toml(case.bases.experiments[0]))
        where = case.out / "sweep"
        shutil.copytree(folder, where / "base-seed=0", symlinks=True, ignore=_special)
        if (folder / "sweep.json").is_file() and not _large(folder / "sweep.json"):
            shutil.copy(folder / "sweep.json", where / "sweep.json")
        return partial(_command, "sweep", config, "--grid", "seed=0", "--out", where, "--device", "cpu", "-q")
    return _use_run(case, folder)


def flags(case: Case) -> Act:
    rng = case.rng
    known = {name: kind for part in MODEL.values() for name, (kind, _) in part.items()}
    theorem = {name: kind for part in THEOREM.values() for name, (kind, _) in part.items()}
    start: list[object]
    how = rng.random()
    if how < 0.6:
        command = rng.choice(("compile", "cost"))
        start = [
            command,
            "--sizes",
            "2,3,1",
            "--epsilon",
            "0.05",
            "--n-examples",
            "4",
            "--out",
            case.out / "made",
            "-q",
        ]
        if rng.random() < 0.3:
            start = [command, "--algorithm", rng.choice(("functional", "sgd", "rls", "grid")), *start[5:]]
    elif how < 0.75:
        known, start = (
            theorem,
            ["cost", "--theorem", rng.choice(("neural-networks-2", "neural-networks-3", "neural-networks-4")), "-q"],
        )
    elif how < 0.9:
        config = case.write("base.toml", to_toml(rng.choice(case.bases.experiments)))
        start = ["train", config, "--out", case.out / "run", "--device", "cpu", "-q"]
        names = [name for name, _ in _leaves(case.bases.experiments[0])]
        sets = [f"{rng.choice(names)}={_text(value(rng))}" for _ in range(rng.choice((1, 2)))]
        return partial(_command, *start, *(part for item in sets for part in ("--set", item)))
    else:
        few = ["--prompts", _text(value(rng, 3)), "--points", _text(value(rng, 3)), "--batch", _text(value(rng, 2))]
        spec = rng.choice(("mean", "ridge:lam=", "nngp:layers=", "lasso:lam=", "gd:steps=", "knn:k=")) + _text(
            value(rng)
        )
        start = [
            "evaluate",
            case.bases.runs[0],
            "--device",
            "cpu",
            "-q",
            "--baselines",
            spec,
            *few[rng.choice((0, 2, 4)) :],
            *rng.choice(((), ("--model", _text(value(rng, 3))), ("--model", "9" * 5000))),
        ]
        return partial(_command, *start, "--prompts", "3")
    given: list[object] = []
    for name in rng.sample(sorted(known), rng.choice((1, 1, 2, 3))):
        flag = "--" + name.replace("_", "-")
        if known[name] is bool:
            given.append(flag)
        elif name in ("sizes", "betas", "eps") and rng.random() < 0.7:
            given += [flag, ",".join(_text(value(rng)) for _ in range(rng.choice((1, 2, 3, 2000))))]
        else:
            given += [flag, _text(value(rng, rng.choice((1, 0.1, None))))]
    return partial(_command, *start, *given)


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in tree.items():
        place = f"{name}.{key}" if name else key
        if isinstance(item, dict):
            yield from _leaves(item, place)
        else:
            yield place, item


def _text(item: Any) -> str:
    """What a shell can hand to a command: no zero bytes, and not a hundred kilobytes."""
    return str(item).replace("\x00", "")[:20_000].encode("utf-8", "replace").decode()


KINDS: dict[str, tuple[int, Callable[[Case], Act]]] = {  # how many of a hundred
    "folder: config.json": (24, folder_config),
    "folder: tensors": (13, folder_tensors),
    "folder: bytes": (10, folder_bytes),
    "folder: files": (4, folder_files),
    "TOML of compile, cost": (11, toml_model),
    "TOML of train, sweep": (9, toml_lab),
    "CSV": (12, csv_files),
    "checkpoint": (7, checkpoint),
    "folder of a run": (4, run_folder),
    "flags": (6, flags),
}
ORDER = [name for name, (share, _) in KINDS.items() for _ in range(share)]


def kind_of(number: int, seed: int) -> str:
    return random.Random(f"{seed} {number} kind").choice(ORDER)


# ------------------------------------------------------------------------------------------------------------ judging


class Found(NamedTuple):
    number: int
    kind: str
    verdict: str
    seconds: float
    memory: int
    words: str


class OutOfTime(BaseException):
    """The processor's time of a case is over."""


WRITES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.chmod": (0,),
    "os.truncate": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
    "shutil.copyfile": (1,),
}
RUNS = (
    *("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn"),
    *("pickle.find_class", "socket.connect", "socket.bind", "ctypes.dlopen"),
)


class Watch:
    """An audit hook: what a case writes, and what it executes."""

    def __init__(self) -> None:
        self.folder: Path | None = None  # that may be written to; None: not armed
        self.seen: list[tuple[str, str]] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event == "open":
            path, mode, how = given
            writes = (
                how & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) if isinstance(how, int) else 0
            )
            if (writes or (isinstance(mode, str) and set(mode) & set("wax+"))) and not isinstance(path, int):
                self._writes(event, path)
        elif event in WRITES:
            for place in WRITES[event]:
                self._writes(event, given[place])
        elif event in RUNS:
            self.seen.append(("code", f"{event} {str(given)[:200]}"))
        elif event in ("exec", "compile") and given:
            source = given[0] if event == "compile" else None
            name = getattr(given[0], "co_filename", "") if event == "exec" else str(given[1])
            if CANARY in str(source) or name.startswith(str(self.folder.parent)):
                self.seen.append(("code", f"{event} {name}"))

    def _writes(self, event: str, path: Any) -> None:
        assert self.folder is not None
        if isinstance(path, int):
            return
        place = Path(os.fsdecode(path))
        real = Path(os.path.realpath(place.parent)) / place.name
        torchs = real.parent == Path(tempfile.gettempdir()) and real.name.startswith("torchinductor_")  # its own cache
        if real != Path(os.devnull) and not torchs and not real.is_relative_to(self.folder):
            self.seen.append(("outside", f"{event} {real}"))


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Memory and time of one case."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _peak() -> tuple[int, int]:
    """Bytes in use at most, and now."""
    found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(found[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))  # type: ignore[return-value]


def judge(number: int, seed: int, given: Bases, home: Path, watch: Watch) -> Found:
    """Make a case, do it, and say what happened."""
    kind = kind_of(number, seed)
    rng = random.Random(f"{seed} {number}")
    shutil.rmtree(home, ignore_errors=True)
    inputs, out, here = home / "in", home / "out", home / "here"
    for folder in (inputs, out, here):
        folder.mkdir(parents=True)
    os.chdir(here)
    case = Case(rng, given, inputs, out, watch, number)
    try:
        act = KINDS[kind][1](case)
    except RecursionError:  # a tree that is deeper than Python copies or writes
        act = folder_bytes(case)
    before, began = _peak()[1], time.process_time()
    verdict, words, warned = "done", "", list[type[Warning]]()  # warned: also where the command line is to be quiet
    try:
        with limited(), mock.patch.object(warnings, "warn", lambda _, kind=UserWarning, **__: warned.append(kind)):
            watch.seen, watch.folder = [], out
            act()
    except InputError as error:
        verdict, words = "refused", _said(error)
    except JobError as error:
        verdict, words = "failed", _said(error)
    except OutOfTime as error:
        verdict, words = (
            "said" if ig.LongRun in warned else "slow",
            "".join(traceback.format_tb(error.__traceback__)[-6:]),
        )
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        verdict, words = "raw", "".join(traceback.format_exception(error))
    finally:
        watch.folder = None
    if any(sign in words for sign in ("out of memory", "MemoryError", "can't allocate memory")):
        verdict = "memory"
    for event, what in watch.seen:
        verdict, words = event, f"{what}\n{words}"
    if any(here.iterdir()) or list(home.rglob(CANARY)):
        verdict, words = "code", f"files appeared: {[str(path) for path in here.iterdir()]}\n{words}"
    return Found(
        number,
        kind,
        verdict,
        time.process_time() - began,
        max(0, _peak()[0] - before),
        FOLDERS.sub(r'File "\1"', words[-4000:]),
    )


def _said(error: BaseException) -> str:
    """The sentence, and what it came from."""
    cause = error.__cause__
    return str(error) if cause is None else f"{error} <- {type(cause).__name__}: {str(cause)[:300]}"


def prepare() -> Watch:
    """Make this process one that judges cases: quiet, on one thread, training for a step at most."""
    torch.set_num_threads(1)
    os.environ["INNERGRAD_NATIVE"] = "0"  # no compiler is run
    sys.dont_write_bytecode = True

    def interrupt(*_: object) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, interrupt)
    manifest._run = lambda *command: None  # no git: it is somebody else's program
    os.fsync = lambda fd: None
    typer.main.get_command = functools.cache(typer.main.get_command)  # the same for every case, and dear to make
    whole, begun = Stack.run, weakref.WeakSet[Stack]()

    def run(self: Stack, steps: int, n: int) -> None:
        if self in begun:
            raise JobError("a training run that goes on")
        begun.add(self)
        whole(self, 1, n)
        self.step += steps - 1

    Stack.run = run  # type: ignore[method-assign]
    return Watch()


# ------------------------------------------------------------------------------------------------------- many at a time


def _worker(numbers: list[int], seed: int, given: Bases, home: Path, answers: Connection) -> None:
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with the process that started it
    watch = prepare()
    for number in numbers:
        answers.send(number)
        answers.send(judge(number, seed, given, home, watch))
    answers.send(None)


def judged(numbers: Sequence[int], seed: int, workers: int, given: Bases) -> Iterator[Found]:
    """Every case, by processes that are started again where one dies."""
    context = multiprocessing.get_context("fork")
    running: dict[Connection, tuple[Any, int, int, float]] = {}  # process, worker, case, since when
    shares = [list(numbers[worker::workers]) for worker in range(workers)]

    def begin(worker: int) -> None:
        ours, theirs = context.Pipe(duplex=False)
        arguments = (shares[worker], seed, given, given.folder / f"worker-{worker}", theirs)
        process = context.Process(target=_worker, args=arguments, daemon=True)
        process.start()
        theirs.close()
        running[ours] = (process, worker, -1, time.monotonic())

    for worker in range(workers):
        begin(worker)
    while running:
        for connection in wait(list(running), timeout=1.0):
            assert isinstance(connection, Connection)
            process, worker, number, _ = running[connection]
            try:
                found = connection.recv()
            except EOFError:
                process.join()
                del running[connection]
                if number == -1:
                    raise RuntimeError(f"a process ended before its first case: exit code {process.exitcode}") from None
                yield Found(number, kind_of(number, seed), "died", 0.0, 0, f"exit code {process.exitcode}")
                begin(worker)
                continue
            if found is None:
                del running[connection]
                process.join()
            elif isinstance(found, int):
                shares[worker].remove(found)
                running[connection] = (process, worker, found, time.monotonic())
            else:
                yield found
        for process, _, _, since in running.values():
            if time.monotonic() - since > PATIENCE:
                process.kill()


def rows(found: list[Found]) -> list[dict[str, Any]]:
    """A row a kind of case, and one of all."""
    made = []
    for kind in (*KINDS, "all"):
        mine = [one for one in found if kind in (one.kind, "all")]
        counts = Counter(one.verdict for one in mine)
        row: dict[str, Any] = {"kind": kind, "cases": len(mine), **{name: counts[name] for name in VERDICTS}}
        seconds, memory = [one.seconds for one in mine] or [0.0], [one.memory for one in mine] or [0]
        row |= {"mean_ms": round(1e3 * sum(seconds) / len(seconds)), "slowest_s": round(max(seconds), 2)}
        made.append(row | {"largest_mb": round(max(memory) / 1e6)})
    return made


def print_rows(table_: list[dict[str, Any]]) -> None:
    columns = list(table_[0])
    widths = [max(len(name), *(len(f"{row[name]}") for row in table_)) for name in columns]
    for row in [dict(zip(columns, columns, strict=True)), *table_]:
        cells = (f"{row[name]!s:{'<' if name == 'kind' else '>'}{w}}" for name, w in zip(columns, widths, strict=True))
        print("  ".join(cells))


def _shown(found: list[Found], most: int) -> None:
    """What is wrong, one of each sort first."""
    bad = [one for one in found if one.verdict in BAD]
    sorts = Counter((one.verdict, one.kind, one.words.strip()[-60:]) for one in bad)
    seen: set[tuple[str, str, str]] = set()
    for one in bad:
        sort = (one.verdict, one.kind, one.words.strip()[-60:])
        if sort not in seen and len(seen) < most:
            seen.add(sort)
            print(f"\n--- case {one.number}: {one.verdict}, {one.kind}, {one.seconds:.1f} s, {sorts[sort]} like it")
            print(one.words.strip()[-1500:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, help="one case, in this process")
    parser.add_argument("--keep", type=Path, help="with --only: its files")
    parser.add_argument("--show", type=int, default=20, help="how many wrong ones are printed")
    parser.add_argument("--parts", type=Path, help="a file of the cases done: a command that ended goes on from it")
    parser.add_argument("--again", type=int, action="append", default=[], help="as in invariance.py")
    parser.add_argument("--store", action="store_true", help="write results/mutations.json")
    parser.add_argument("--out", type=Path, help="with --store: also into this folder")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        given = bases(Path(folder).resolve())
        if chosen.only is not None:
            found = [judge(chosen.only, chosen.seed, given, given.folder / "only", prepare())]
            print(found[0])
            print(found[0].words)
            if chosen.keep is not None:
                shutil.copytree(given.folder / "only", chosen.keep, symlinks=True, ignore=_special)
            return
        every = range(chosen.first, chosen.first + chosen.cases)
        made_by = (Path(__file__), Path(_mutators.__file__), *GOLDEN.glob("*.zip"))
        parts = Parts(chosen.parts, {"seed": chosen.seed}, made_by, chosen.again)
        before, began = len(parts.rows), time.monotonic()
        for one in judged(parts.missing(every), chosen.seed, chosen.workers, given):
            kept = one.words if one.verdict in BAD else ""
            parts.add(one._replace(words=kept)._asdict())
            if len(parts.rows) % 5000 == 0:
                wrong = sum(row["verdict"] in BAD for row in parts.rows.values())
                told = f"{len(parts.rows) - before:,} more in {time.monotonic() - began:.0f} s"
                print(f"{len(parts.rows):,} cases, {wrong} wrong, {told}", file=sys.stderr)
        os.chdir("/")
    found = [Found(**parts.rows[number]) for number in every]
    found.sort()
    _shown(found, chosen.show)
    print()
    summary = rows(found)
    print_rows(summary)
    bad = [one._asdict() for one in found if one.verdict in BAD]
    seconds = sum(one.seconds for one in found)
    print(f"{len(found):,} cases, {len(bad)} wrong, {seconds:.0f} s of a processor")
    if chosen.store:
        from _results import store

        limits = {"room_mb": round(ROOM / 1e6), "seconds": SECONDS}
        about = {"seed": chosen.seed, "first": chosen.first, "processor_s": round(seconds)}
        command = f"python benchmarks/mutations.py --cases {chosen.cases} --store"
        data = {**about, "limits": limits, "kinds": summary, "wrong": bad[:100], "mended": parts.mended()}
        store("mutations", command, data, chosen.out)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
