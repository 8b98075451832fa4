"""The lab on the command line: what it does is what the library does, and exit codes tell how it went."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from innergrad.cli import lab as commands
from innergrad.cli import main
from innergrad.config import to_table, to_toml
from innergrad.errors import InputError
from innergrad.lab.baselines import Predictor
from innergrad.lab.checkpoints import load, newest
from innergrad.lab.evaluation import evaluate_run, named_baseline, shifted
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.journal import read_log
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.sweeps import COMMA, grid, groups, read_experiments, sweep
from innergrad.lab.tasks import Inputs, Linear, Networks, Task
from innergrad.manifest import IMPORTED
from innergrad.papers.catalogue import FIGURES

CONFIGS = Path(__file__).parent.parent / "configs"
SMALL = Experiment(
    "small",
    n_points=5,
    task=Linear(d=2),
    learner=GPTConfig(n_layers=1, d_model=8, n_heads=2, d_mlp=8),
    train=TrainConfig(steps=40, batch=4, log_every=10, checkpoint_every=1000, optimiser=Optimiser(lr=1e-2)),
)


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str


def call(*arguments: object) -> Called:
    """``innergrad <arguments>`` in this process; an exception that would be a traceback propagates."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["innergrad", *(str(argument) for argument in arguments)]
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return Called(code, out.getvalue(), err.getvalue())


def good(*arguments: object) -> str:
    called = call(*arguments)
    assert (called.code, called.err) == (0, ""), called
    return called.out


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(to_toml(SMALL))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "small.toml").write_text(to_toml(SMALL))
    good("train", folder / "small.toml", "--out", folder / "run", "--quiet")
    return folder / "run"


# ------------------------------------------------------------------------------------------------------------- configs


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_configuration_is_an_experiment(path: Path) -> None:
    """It parses, has the name of its file, and the commands in its comments say what exists."""
    experiment, *others = read_experiments(path)
    assert experiment.name == path.stem or others
    assert all(one.task.scale > 0 for one in (experiment, *others))
    lines = [
        line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#   innergrad")
    ]
    for line in lines:
        for part in line.partition("   ")[0].split("&&"):
            check_command(shlex.split(part), replace(experiment, name=path.stem))


def check_command(words: list[str], experiment: Experiment) -> None:
    options = list(itertools.pairwise(words))
    values = {
        name: [value for option, value in options if option == name] for name in ("--set", "--grid", "--baselines")
    }
    assert words[:2] in (["innergrad", "train"], ["innergrad", "evaluate"], ["innergrad", "sweep"])
    if words[1] == "evaluate":
        assert words[2] == f"out/{experiment.name}"
        task = shifted(experiment, values["--set"])
        for name in COMMA.split(",".join(values["--baselines"])):
            assert not name or named_baseline(name, task)
    else:
        assert words[2] == f"configs/{experiment.name}.toml"
        changed, *_ = read_experiments(CONFIGS / Path(words[2]).name, values["--set"])
        made = grid(changed, values["--grid"])
        assert len(groups([one for one, _ in made])) == 1 or "--stack" not in words


DEEP = {
    attention: [f"deep_optimizers_{attention}_{layers}" for layers in (3, 4, 6)] for attention in ("relu", "softmax")
}
CONFIGURED = {  # of figures: the files with their learners
    **{f"mixtures-{attention}": names for attention, names in DEEP.items()},
    **{f"{figure}-{attention}": names[1:2] for figure in ("parameters", "shapes") for attention, names in DEEP.items()},
    "depth": ["deep_optimizers_depth"],
    "balls": ["balls"],
    "smooth": ["smooth"],
    "kernels": ["cheng_kernels"],
    "kernel-depth": ["cheng_kernels"],
    "heads": ["cheng_heads"],
    "identity": ["cheng_theorem_4.5"],
    "identity-softmax": ["cheng_theorem_4.5", "cheng_theorem_4.6"],
    "identity-free": ["cheng_theorem_4.6"],
    "linear-algorithms": ["akyurek_linear"],
    "linear-probes": ["akyurek_linear"],
    "linear-noise": ["akyurek_noise"],
    "linear-sizes": ["akyurek_depth"],
}
OTHERS = {
    "smoke",
    "three_tasks",
    "deep_optimizers_scores",
    *(f"garg_{name}" for name in ("linear", "network", "sparse", "tree")),
}


def test_the_page_names_the_figures_without_a_configuration() -> None:
    """And every file belongs to a figure, or is one of a few others."""
    page = (CONFIGS.parent / "docs" / "lab.md").read_text()
    (said,) = re.findall(r"There is none for the figures (.*?)\.\n?", page, re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", said)) == set(FIGURES) - set(CONFIGURED)
    assert {name for names in CONFIGURED.values() for name in names} | OTHERS == {
        one.stem for one in CONFIGS.glob("*.toml")
    }


def test_the_page_has_every_kind_of_task_and_of_inputs() -> None:
    page = (CONFIGS.parent / "docs" / "lab.md").read_text()
    ours = {
        family: [name for name, kind in family.kinds.items() if kind.__module__.startswith("innergrad.")]
        for family in (Task, Inputs)
    }
    for names in ours.values():
        assert [name for name in names if f"`{name}`" not in page] == []
    assert [len(names) for names in ours.values()] == [14, 5]
    assert "fourteen kinds of functions and tables, five kinds of inputs" in page


# -------------------------------------------------------------------------------------------------------------- stacks


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """A stack of two experiments that differ in their seeds, 4 and 2, and in their names."""
    path, two = tmp_path / "two.toml", [replace(SMALL, name="a", seed=4), replace(SMALL, name="b", seed=2)]
    path.write_text(to_toml({"experiments": [to_table(one) for one in two]}))
    return path


def test_a_seed_moves_the_seeds_of_a_stack(seeds: Path, config: Path, tmp_path: Path) -> None:
    assert [one.seed for one in read_experiments(seeds, seed=7)] == [9, 7]
    assert [one.seed for one in read_experiments(config, seed=7)] == [7]
    good("train", seeds, "--seed", 7, "--set", "train.steps=1", "--out", tmp_path / "run")
    assert [one.seed for one in read_experiments(tmp_path / "run")] == [9, 7]
    assert len(set(read_log(tmp_path / "run")[0]["loss"])) == 2


def test_a_change_is_of_all_experiments_or_of_one(seeds: Path, config: Path) -> None:
    changes = ["experiments.1.train.optimiser.lr=2e-3", "train.optimiser.lr=5e-3", "train.steps=3"]
    a, b = read_experiments(seeds, changes)
    assert (a.train.optimiser.lr, a.train.steps) == (5e-3, 3)
    assert (b.train.optimiser.lr, b.train.steps) == (2e-3, 3)  # what is said of one experiment counts more
    assert read_experiments(config, ["experiments.0.seed=5"])[0].seed == 5  # one experiment is a stack of one


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["seed=3"], "two experiments of the stack are the same; got seed=3"),
        (["experiments.0.seed=2"], "two experiments of the stack are the same"),
        (["experiments.2.seed=3"], "experiments.2 is not in the list; allowed: 0 to 1"),
        (["experiments.b.seed=3"], "experiments.b is not in the list"),
        (["experiments.1.sede=3"], "did you mean experiments.1.seed?"),
    ],
)
def test_changes_that_do_not_fit_a_stack(changes: list[str], words: str, seeds: Path) -> None:
    with pytest.raises(InputError) as error:
        read_experiments(seeds, changes)
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["experiments = []", "experiments = 3", "name = 'a'\n[[experiments]]\nseed = 1"])
def test_a_file_that_is_no_stack(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(InputError, match="experiments"):
        read_experiments(tmp_path / "odd.toml")


# --------------------------------------------------------------------------------------------------------------- train


def test_train_keeps_a_run(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    printed = good("train", config, "--out", run, "--set", "train.steps=20", "--seed", 3)
    assert "small, seed 3: loss" in printed
    assert f"innergrad evaluate {run}" in printed
    (experiment,) = read_experiments(run)
    assert (experiment.seed, experiment.train.steps, experiment.task) == (3, 20, SMALL.task)
    assert [row["step"] for row in read_log(run)] == [10, 20]
    assert json.loads((run / "manifest.json").read_text())["seeds"] == [3]
    assert load(run).step == 20
    again = call("train", config, "--out", run)
    assert (again.code, again.out) == (2, "")
    assert "there is a run in" in again.err
    report = json.loads(good("train", run, "--resume", "--json"))  # it is finished: nothing to do
    assert (report["step"], report["loss"]) == (20, read_log(run)[-1]["loss"])
    said = good("train", run, "--resume")
    assert "this run was finished before, after 20 steps" in said
    assert f"innergrad train {run} --resume --set train.steps=40" in said


def test_the_default_folder(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert good("train", config, "--set", "train.steps=1", "--quiet") == ""
    assert newest("out/small") is not None


def test_a_stopped_run_goes_on_as_if_it_never_stopped(
    config: Path, trained: Path, waves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM at step 20: exit code 1 and a checkpoint; resumed, the same numbers as in one go, to the last bit."""

    @contextlib.contextmanager
    def stopping(steps: int, name: str, silent: bool) -> Iterator[object]:
        yield lambda step, words="": os.kill(os.getpid(), signal.SIGTERM) if step == 20 else None

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(commands, "_bar", stopping)
        stopped = call("train", config, "--out", run, "--import", waves)
    assert stopped.code == 1
    assert "stopped at step 20 of 40" in stopped.err
    assert f"innergrad train {run} --resume --import {waves} goes on" in stopped.err
    assert load(run).step == 20
    good("train", run, "--resume")
    once, twice = load(trained), load(run)
    assert once.tensors.keys() == twice.tensors.keys()
    for name, tensor in once.tensors.items():
        assert torch.equal(tensor, twice.tensors[name]), name
    assert [(row["step"], row["loss"]) for row in read_log(run)] == [(r["step"], r["loss"]) for r in read_log(trained)]


def test_resume_without_a_checkpoint_begins(config: Path, tmp_path: Path) -> None:
    """So that a job can always be started with --resume."""
    good("train", config, "--out", tmp_path / "run", "--resume", "--quiet")
    assert load(tmp_path / "run").step == 40


def test_resume_refuses_another_experiment(config: Path, trained: Path) -> None:
    called = call("train", config, "--out", trained, "--resume", "--set", "task.tau=2")
    assert called.code == 2
    assert "task.tau" in called.err


def test_a_run_killed_before_its_first_checkpoint_begins_again(trained: Path, tmp_path: Path) -> None:
    run, log = tmp_path / "run", (trained / "log.jsonl").read_text().splitlines(keepends=True)
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("checkpoints"))
    (run / "log.jsonl").write_text("".join(log[:2]))
    good("train", run, "--resume", "--quiet")
    assert [row["loss"] for row in read_log(run)] == [row["loss"] for row in read_log(trained)]
    assert torch.equal(load(run).tensors["theta"], load(trained).tensors["theta"])


@pytest.mark.parametrize("again", [("--resume",), ()], ids=["resume", "begin"])
def test_a_run_that_ended_in_its_first_checkpoint_begins_again(
    again: tuple[str, ...], trained: Path, config: Path, tmp_path: Path
) -> None:
    """Out of disk, or killed: the log already has the line of that step."""
    run, steps = tmp_path / "run", [40]
    with mock.patch("innergrad.lab.checkpoints.serialised", side_effect=OSError(28, "No space left on device")):
        assert call("train", config, "--out", run, "--quiet").code == 1
    assert [row["step"] for row in read_log(run)][-1:] == steps
    good("train", config, "--out", run, "--quiet", *again)
    assert [row["loss"] for row in read_log(run)] == [row["loss"] for row in read_log(trained)]
    assert torch.equal(load(run).tensors["theta"], load(trained).tensors["theta"])
    assert call("train", config, "--out", run, "--quiet").code == 2  # now there is a run


def test_a_checkpoint_with_the_name_of_another_step_hides_none(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (found,) = (run / "checkpoints").iterdir()
    shutil.copy(found, found.with_name("step-000000900.safetensors"))
    called = call("evaluate", run, "--prompts", 4)
    assert called.code == 2
    assert "has the name of another step; got step 40 inside" in called.err


@pytest.mark.parametrize("where", ["trained", "results/lab_three_tasks"])
def test_the_log_of_a_finished_run_is_never_lost(where: str, trained: Path, tmp_path: Path) -> None:
    """A run that was copied without its checkpoints, by the command that would begin it again."""
    run, source = tmp_path / "run", trained if where == "trained" else CONFIGS.parent / where
    shutil.copytree(source, run, ignore=shutil.ignore_patterns("checkpoints"))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for arguments in ((run, "--resume"), (run / "config.toml", "--out", run)):
        with mock.patch.object(Stack, "run", side_effect=AssertionError("it trains")):
            called = call("train", *arguments, "--device", "cpu")
        assert (called.code, called.out) == (2, "")
        assert "run has files of another run; got config.toml, log.jsonl, manifest.json" in called.err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_damaged_manifest(trained: Path, tmp_path: Path) -> None:
    """Measuring does not need it; a run that goes on would lose what it says."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "manifest.json").write_text("{")
    assert good("evaluate", run, "--prompts", 20) == good("evaluate", trained, "--prompts", 20).replace(
        str(trained), str(run)
    )
    called = call("train", run, "--resume")
    assert (called.code, called.out, called.err.count("\n")) == (2, "", 1)
    assert f"{run / 'manifest.json'} is damaged" in called.err
    assert "move it away" in called.err


def test_lines_tell_how_far_it_is_where_there_is_no_terminal(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=16)  # seconds that pass whenever somebody looks
    monkeypatch.setattr("innergrad.lab.journal.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for command in ("train", "sweep"):
        called = call(command, config, "--out", tmp_path / command, "--json")
        assert called.code == 0, called
        assert json.loads(called.out)  # and nothing else
        lines = called.err.splitlines()
        assert [line.partition(" loss ")[0] for line in lines] == ["small: 20 of 40", "small: 40 of 40"]
        assert all(float(line.partition(" loss ")[2]) > 0 for line in lines)
        assert good(command, config, "--out", tmp_path / f"{command}, quiet", "--quiet") == ""


# ------------------------------------------------------------------------------------------------------------ evaluate


def test_evaluate_is_the_librarys(trained: Path, tmp_path: Path) -> None:
    arguments = ("evaluate", trained, "--prompts", 64, "--seed", 2, "--device", "cpu")
    expected = json.loads(json.dumps(evaluate_run(trained, n_prompts=64, seed=2).to_json()))
    assert json.loads(good(*arguments, "--json")) == expected
    assert set(expected["curves"]) == {"model", "mean", "least squares"}
    assert good(*arguments, "--quiet", "--out", tmp_path / "new" / "folder" / "result.json") == ""
    written = json.loads((tmp_path / "new" / "folder" / "result.json").read_text())
    assert written == {"made_by": "innergrad evaluate", **expected}
    printed = good(*arguments)
    value = expected["curves"]["model"]["squared error"]["rows"][4]["value"]
    assert f"{value:.3g}" in printed
    assert "task linear; 64 prompts of 5 points, seed 2" in printed
    assert "k: examples seen before the query" in printed
    assert "divided by the mean square of a label (scale^2); ±: half the 95 % interval, over prompts\n" in printed
    assert "seed 2; scale^2 = 2\n" in printed
    assert all(measure in printed for measure in ("squared error", "pooled R^2", "within-prompt R^2"))


def test_evaluate_with_shifts_and_baselines(trained: Path) -> None:
    arguments = ("evaluate", trained, "--prompts", 64, "--baselines", "zero,ridge:lam=0.5,knn:k=2")
    found = json.loads(good(*arguments, "--set", "task.inputs.mean=2", "--json"))
    assert found["task"]["inputs"] == {"kind": "gaussian", "mean": 2.0, "std": 1.0}
    assert found["shifts"] == ["task.inputs.mean=2"]
    assert list(found["curves"]) == ["model", "zero", "ridge 0.5 with intercept", "2-NN"]
    printed = good(*arguments, "--set", "task.inputs.mean=2")
    assert "shifted: task.inputs.mean=2" in printed
    assert "note: errors are divided by the trained task's scale^2" in printed
    alone = good("evaluate", trained, "--prompts", 64, "--baselines", "none", "--json")
    assert list(json.loads(alone)["curves"]) == ["model"]


# --------------------------------------------------------------------------------------------------------------- sweep


def test_all_models_of_a_stack(config: Path, tmp_path: Path) -> None:
    """Each as if alone; the baselines of a task once."""
    two = [SMALL, replace(SMALL, seed=1), replace(SMALL, task=Networks(d=SMALL.task.d, width=3))]
    config.write_text(to_toml({"experiments": [to_table(one) for one in two]}))
    good("train", config, "--set", "train.steps=2", "--out", tmp_path / "run")
    arguments = ("evaluate", tmp_path / "run", "--prompts", 20, "--baselines", "mean", "--device", "cpu")
    found = json.loads(good(*arguments, "--model", "all", "--json", "--out", tmp_path / "all.json"))
    assert json.loads((tmp_path / "all.json").read_text()) == [
        {"made_by": "innergrad evaluate", **one} for one in found
    ]
    assert [(one["model"], one["step"], set(one["curves"])) for one in found] == [
        (0, 2, {"model", "mean"}),
        (1, 2, {"model"}),
        (2, 2, {"model", "mean"}),
    ]
    for number in range(3):
        alone = json.loads(good(*arguments, "--model", number, "--json"))
        assert alone["curves"]["model"] == found[number]["curves"]["model"]
    table = good(*arguments, "--model", "all").split("squared error", 2)[2].splitlines()[1:6]
    assert [line.split("  ")[0].strip() for line in table] == ["model 0", "mean", "model 1", "model 2", "mean"]
    good(*arguments, "--model", "all", "--json", "--out", tmp_path / "all.json")  # an earlier result
    assert "--model is the number of a model; got '-1'" in call(*arguments, "--model=-1").err


def test_results_replace_results_only(trained: Path, tmp_path: Path) -> None:
    before = newest(trained)
    assert before is not None
    content = before.read_bytes()
    for path in (before, trained / "config.toml", trained / "log.jsonl"):
        for flags in ((), ("--force",)):
            called = call("evaluate", trained, "--prompts", 4, "--out", path, *flags)
            assert (called.code, "is read by this command" in called.err) == (2, True)
    (tmp_path / "notes.json").write_text("{}")
    called = call("evaluate", trained, "--prompts", 4, "--out", tmp_path / "notes.json")
    assert (called.code, "innergrad evaluate did not write it" in called.err) == (2, True)
    good("evaluate", trained, "--prompts", 4, "--out", tmp_path / "notes.json", "--quiet", "--force")
    assert before.read_bytes() == content
    assert "cannot write the result into /proc" in call("evaluate", trained, "--out", "/proc/none/a.json").err


def test_a_sweep_is_its_runs(config: Path, trained: Path, tmp_path: Path) -> None:
    arguments = ("sweep", config, "--grid", "train.optimiser.lr=1e-2,1e-3", "--grid", "learner.n_layers=1,2")
    found = json.loads(good(*arguments, "--out", tmp_path / "sweep", "--json"))
    assert found["runs"] == json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["name"] for row in found["runs"]] == [
        f"small-lr={lr}-n_layers={layers}" for lr in ("1e-2", "1e-3") for layers in (1, 2)
    ]
    assert found["runs"][0]["changes"] == ["train.optimiser.lr=1e-2", "learner.n_layers=1"]
    assert found["runs"][0]["loss"] == read_log(trained)[-1]["loss"][0]  # the run of the configuration itself
    assert len({row["loss"] for row in found["runs"]}) == 4
    (last,) = read_experiments(found["runs"][3]["run"])
    assert (last.train.optimiser.lr, last.learner) == (1e-3, GPTConfig(n_layers=2, d_model=8, n_heads=2, d_mlp=8))


def test_a_stacked_sweep_trains_shapes_together_and_goes_on(config: Path, trained: Path, tmp_path: Path) -> None:
    arguments = ("sweep", config, "--stack", "--grid", "learner.n_layers=1,2", "--grid", "seed=0,1")
    found = json.loads(good(*arguments, "--out", tmp_path, "--json"))["runs"]
    places = [(Path(row["run"]).name, row["model"], row["seed"]) for row in found]
    assert places == [("stack-0", 0, 0), ("stack-0", 1, 1), ("stack-1", 0, 0), ("stack-1", 1, 1)]
    assert found[0]["loss"] == pytest.approx(read_log(trained)[-1]["loss"][0], rel=1e-4)  # stacked or alone
    assert [one.seed for one in read_experiments(tmp_path / "stack-0")] == [0, 1]
    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*.safetensors"))]
    assert json.loads(good(*arguments, "--out", tmp_path, "--json"))["runs"] == found
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*.safetensors"))] == before
    assert "stack-1" in good(*arguments, "--out", tmp_path)
    seed_1 = json.loads(good("evaluate", tmp_path / "stack-0", "--model", 1, "--prompts", 50, "--json"))
    assert seed_1 == json.loads(json.dumps(evaluate_run(tmp_path / "stack-0", model=1, n_prompts=50).to_json()))
    all_of_it = json.loads(good("evaluate", tmp_path, "--prompts", 50, "--json"))
    assert [(one["name"], one["seeds"]) for one in all_of_it] == [
        ("learner.n_layers=1", [0, 1]),
        ("learner.n_layers=2", [0, 1]),
    ]


def test_a_run_that_fails_does_not_end_the_sweep(config: Path, tmp_path: Path) -> None:
    called = call("sweep", config, "--grid", "train.optimiser.lr=1e30,1e-2", "--out", tmp_path, "--json")
    assert called.code == 1
    assert "1 of 2 models failed; small-lr=1e30: the loss is not finite" in called.err
    bad, well = json.loads(called.out)["runs"]
    assert (bad["loss"], well["step"], well["error"]) == (None, 40, "")
    assert "not finite" in bad["error"]


@pytest.mark.parametrize("where", ["evaluate", "scale"])  # while it trains; before there is a folder
def test_exceptions_of_a_task_do_not_end_the_sweep(
    where: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, scale = Linear.evaluate, Linear.scale

    def broken(self: Linear, *arguments: object) -> object:
        if self.tau == 2:
            raise error
        return evaluate(self, *arguments) if arguments else scale.__get__(self)

    monkeypatch.setattr(Linear, where, broken if where == "evaluate" else property(broken))
    error: BaseException = KeyError("x")
    called = call("sweep", config, "--grid", "task.tau=2,1", "--out", tmp_path / "sweep", "--json")
    assert (called.code, called.err.count("\n")) == (1, 1)
    assert "1 of 2 models failed; small-tau=2: KeyError: 'x'" in called.err
    bad, well = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert (bad["step"], bad["loss"], bad["error"]) == (0, None, "KeyError: 'x'")
    assert (well["step"], well["error"]) == (40, "")
    for error in (KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(error)):
            sweep(grid(SMALL, ["task.tau=2"]), tmp_path / type(error).__name__)


def test_a_sweep_says_which_runs_are_not_its_own(config: Path, tmp_path: Path) -> None:
    arguments = ("sweep", config, "--grid", "seed=0,1", "--out", tmp_path, "--json")
    good(*arguments)
    before = (tmp_path / "sweep.json").read_text()
    called = call(*arguments, "--set", "task.tau=2")
    assert called.code == 2
    assert "is of another run" in called.err
    assert (tmp_path / "sweep.json").read_text() == before
    (tmp_path / "file").write_text("")
    assert "cannot write the run into" in call(*arguments[:-2], tmp_path / "file").err


def test_another_grid_in_the_same_folder_adds_its_rows(config: Path, trained: Path, tmp_path: Path) -> None:
    arguments = ("sweep", config, "--set", "train.steps=2", "--out", tmp_path / "sweep", "--json")
    for more in (("--grid", "seed=0,1"), ("--grid", "seed=1,2"), ("--grid", "seed=0,1", "--stack")):
        runs = json.loads(good(*arguments, *more))["runs"]
        assert len(runs) == 2
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [(Path(row["run"]).name, row["seed"]) for row in rows] == [
        ("small-seed=0", 0),
        ("small-seed=1", 1),
        ("small-seed=2", 2),
        ("stack-0", 0),
        ("stack-0", 1),
    ]
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    called = call(*arguments, "--grid", "seed=3")
    assert (called.code, "is not the file of a sweep" in called.err) == (2, True)
    assert "is the folder of a run" in call("sweep", config, "--grid", "seed=3", "--out", trained).err
    assert "ask for two things" in call(*arguments, "--grid", "seed=3", "--seed", 4).err


def test_nothing_is_trained_if_one_folder_is_anothers(config: Path, tmp_path: Path) -> None:
    (tmp_path / "small-seed=1").mkdir()
    (tmp_path / "small-seed=1" / "config.toml").write_text("a = 1")
    called = call("sweep", config, "--grid", "seed=0,1,2", "--out", tmp_path)
    assert called.code == 2
    assert "has files of another run; got config.toml" in called.err
    assert not (tmp_path / "small-seed=0").exists()


def test_what_stacks() -> None:
    others = [
        SMALL,
        Experiment(**{**vars(SMALL), "seed": 1, "task": Networks(d=2, width=3)}),
        Experiment(**{**vars(SMALL), "n_points": 6}),
        Experiment(**{**vars(SMALL), "task": Linear(d=3)}),
        Experiment(**{**vars(SMALL), "seed": 2, "n_points": 6}),
    ]
    assert groups(others) == [[0, 1], [2, 4], [3]]


def test_grids() -> None:
    made = grid(SMALL, ["learner.attention=relu,softmax", "train.optimiser.betas=[0.9, 0.99],[0.8, 0.9]"])
    assert [one.name for one, _ in made][:2] == [
        "small-attention=relu-betas=_0.9_0.99_",
        "small-attention=relu-betas=_0.8_0.9_",
    ]
    assert made[3][0].train.optimiser.betas == (0.8, 0.9)
    assert [one for one, _ in grid(SMALL, [])] == [SMALL]


# -------------------------------------------------------------------------------------------------- code of the user's

WAVES = """
from dataclasses import dataclass
import torch
from innergrad import lab
from waves_help import wave  # a file beside it

@dataclass(frozen=True)
class Waves(lab.Task, kind="waves"):
    speed: float = 1.0

    def params(self, stream, index, n):
        return {"a": stream.normal(index, 1)}

    def evaluate(self, params, x):
        return params["a"] * wave(self.speed * x[..., 0])

@dataclass(frozen=True)
class Half(lab.Predictor, kind="half"):
    def __call__(self, x, y):
        return torch.full_like(y, 0.5)
"""


@pytest.fixture
def waves(tmp_path: Path) -> Iterator[Path]:
    """waves.py, with a task and a baseline; afterwards this process knows nothing of it."""
    path, before = tmp_path / "code" / "waves.py", (list(sys.path), set(sys.modules), dict(IMPORTED))
    path.parent.mkdir()
    path.write_text(WAVES)
    (path.parent / "waves_help.py").write_text("def wave(t):\n    return t.cos()\n")
    with mock.patch.dict(Task.kinds), mock.patch.dict(Predictor.kinds):
        for kind in ("waves", "product", "half", "nearest"):  # pages that ran in this process define some of them
            Task.kinds.pop(kind, None)
            Predictor.kinds.pop(kind, None)
        yield path
    sys.path[:] = before[0]
    for name in set(sys.modules) - before[1]:
        if name.startswith(("waves", "broken", "my_tasks")):
            del sys.modules[name]
    IMPORTED.clear()
    IMPORTED.update(before[2])


def test_a_task_of_ones_own(waves: Path, config: Path, tmp_path: Path) -> None:
    """Trained, then measured beside a baseline of one's own, in another process that has to be told again."""

    def fresh(*arguments: object) -> Called:
        command = [sys.executable, "-P", "-m", "innergrad", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=waves.parent, check=False)
        return Called(done.returncode, done.stdout, done.stderr)

    run, kind = tmp_path / "run", ("--set", "task.kind=waves", "--set", "task.d=2")
    unknown = call("train", config, *kind, "--out", run)
    assert (unknown.code, unknown.out, run.exists()) == (2, "", False)
    assert "unknown task.kind; got 'waves'" in unknown.err
    assert "--import" in unknown.err
    printed = good("train", config, *kind, "--set", "task.speed=2", "--import", waves, "--out", run)
    assert f"next: innergrad evaluate {run} --import {waves}" in printed
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["imports"] == {"waves": hashlib.sha256(waves.read_bytes()).hexdigest()}
    assert str(tmp_path) not in json.dumps(manifest)
    (experiment,) = read_experiments(run)
    assert (experiment.task.kind, vars(experiment.task)["speed"]) == ("waves", 2.0)
    unasked = fresh("evaluate", run)  # nobody's code runs unasked
    with mock.patch.dict(Task.kinds):
        del Task.kinds["waves"]
        for called in (unasked, call("train", run, "--resume"), call("evaluate", newest(run))):
            assert (called.code, called.out) == (2, "")
            assert "unknown task.kind; got 'waves'" in called.err
            assert "--import" in called.err
    found = fresh("evaluate", run, "--import", "waves", "--baselines", "half", "--prompts", 50, "--json")  # a module
    assert list(json.loads(found.out)["curves"]) == ["model", "half"]


def test_imports_in_sweeps_and_after_a_change(waves: Path, config: Path, tmp_path: Path) -> None:
    arguments = ("sweep", config, "--set", "train.steps=10", "--import", waves, "--out", tmp_path / "sweep")
    printed = good(*arguments, "--grid", "task.kind=linear,waves")
    assert f"--import {waves}" in printed
    run = tmp_path / "sweep" / "small-kind=waves"
    assert good("train", run, "--resume", "--import", waves, "--import", waves).startswith("small-kind=waves")
    IMPORTED["waves"] = "another"
    for arguments in (("train", run, "--resume"), ("evaluate", run, "--prompts", 20)):
        called = call(*arguments, "--import", waves)
        assert (called.code, called.err) == (0, "note: waves has changed since this run began\n")


def test_the_page_about_tasks_of_ones_own_is_true(waves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two classes in a file, and its commands, cut short."""
    page = (CONFIGS.parent / "docs" / "tutorials" / "task.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    classes = [block for block in blocks if re.search("class (Products|Nearest)", block)]
    (waves.parent / "my_tasks.py").write_text("\n".join(classes))
    (waves.parent / "configs").symlink_to(CONFIGS)
    monkeypatch.chdir(waves.parent)
    commands = [line.split()[1:] for line in page.splitlines() if line.startswith("    innergrad ")]
    assert [command[0] for command in commands] == ["train", "evaluate", "sweep"]
    for command in commands:
        called = call(*command, "--json", *(["--set", "train.steps=1"], ["--prompts", "20"])[command[0] == "evaluate"])
        assert called.code == 0, called
        assert json.loads(called.out)  # what the file prints goes elsewhere
    assert read_experiments("out/products")[0].task.kind == "product"


WRONG = """
from dataclasses import dataclass
import torch
from innergrad import lab

@dataclass(frozen=True)
class Wrong(lab.Task, kind="waves"):
    how: str = "right"

    def __post_init__(self):
        super().__post_init__()
        if self.how == "refused":
            raise ValueError("how is wrong")

    def params(self, stream, index, n):
        return {"a": torch.randn(len(index), 1) if self.how == "global" else stream.normal(index, 1)}

    def evaluate(self, params, x):
        return x if self.how == "shape" else params["a"] * x[..., 0] * (1000 if self.how == "large" else 1)

@dataclass(frozen=True)
class Answer(lab.Predictor, kind="half"):
    short: bool = False

    def __call__(self, x, y):
        return y[:, 1:] if self.short else y
"""


def test_slips_in_code_of_ones_own_are_found(waves: Path, config: Path, tmp_path: Path) -> None:
    waves.write_text(WRONG)
    ask: tuple[object, ...] = ("--set", "task.kind=waves", "--set", "train.steps=4", "--import", waves)
    for how, words in (
        ("refused", "task: how is wrong"),
        ("global", "Wrong: params (a) are other numbers when the same prompts are drawn again"),
        ("shape", "task waves: evaluate must return labels (B, n)"),
        ("large", "Wrong: scale is far from the size of its labels"),
    ):
        called = call("train", config, *ask, "--set", f"task.how={how}", "--out", tmp_path / "run")
        assert (called.code, called.err.count("\n")) == (2, 1)
        assert words in called.err
        assert not (tmp_path / "run").exists()
    called = call("train", config, *ask, "--set", "task.how=right", "--out", tmp_path / "run")
    assert called.code == 0
    measure = ("evaluate", tmp_path / "run", "--import", waves, "--prompts", 20, "--baselines")
    assert "Answer looks ahead: the prediction of y_0 changes" in call(*measure, "half").err
    assert "Answer must return predictions (B, n); got a tensor (4, 5)" in call(*measure, "half:short=true").err
    called = call("sweep", config, *ask, "--grid", "task.how=right,shape,large", "--out", tmp_path / "sweep", "--json")
    assert called.code == 1
    assert [bool(row["error"]) for row in json.loads(called.out)["runs"]] == [False, True, True]


@pytest.mark.soak
def test_several_processes_know_what_was_imported(waves: Path, config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "innergrad"]
    command += ["train", str(config), "--set", "task.kind=waves", "--set", "train.steps=4", "--import", str(waves)]
    command += ["--out", str(tmp_path / "run"), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "run").step == 4


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.py", None, "absent.py; got no such file"),
        ("absent_module", None, "cannot import absent_module; got no such module; the name of a file ends in .py"),
        ("absent.module", None, "cannot import absent.module; got ModuleNotFoundError: No module named 'absent'"),
        ("broken.py", "\nx = 1 / 0", "got ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("broken.py", "x = (", "SyntaxError"),
        ("broken.py", "import sys; sys.exit(0)", "got SystemExit: 0"),
        ("broken.py", "import absent_module", "No module named 'absent_module' (broken.py, line 1)"),
        ("json.py", "x = 1", "json.py; got another module json; give the file another name"),
        ("broken.1.py", "x = 1", "got more than one dot"),
        (
            "broken.py",
            "from innergrad import lab\nclass Mine(lab.Task, kind='linear'): ...",
            "two classes of kind 'linear'; got innergrad.lab.tasks.linear.Linear and broken.Mine",
        ),
    ],
)
def test_imports_that_fail(name: str, text: str | None, words: str, waves: Path, config: Path) -> None:
    if text is not None:
        (waves.parent / name).write_text(text)
    path = waves.parent / name if name.endswith(".py") else name
    called = call("train", config, "--import", path, "--out", waves.parent / "run")
    assert (called.code, called.out, called.err.count("\n")) == (2, "", 1)
    assert words in called.err
    assert not (waves.parent / "run").exists()
    assert Task.kinds["linear"] is Linear


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "absent.toml"), "cannot read the configuration absent.toml"),
        (("train", "{config}", "--set", "train.stpes=3"), "did you mean train.steps?"),
        (("train", "{config}", "--set", "task.kind=liner"), "did you mean linear?"),
        (("train", "{config}", "--device", "cuda:99"), "there is no such GPU"),
        (("train", "{config}", "--device", "tpu"), "unknown device"),
        (("train", "{config}", "--device", "meta"), "unknown device"),
        (("train", "{config}", "--seed", "-1"), "seed must be"),
        (("train", "{run}"), "is a folder"),
        (("train", "{run}", "--resume", "--out", "elsewhere"), "is a folder"),
        (("evaluate", "absent"), "cannot read the checkpoint absent"),
        (("train", "{config}x"), "did you mean {config}?"),
        (("train", "{config}", "--set", "train.optimiser.kind=mun"), "did you mean muon?"),
        (("train", "{run}/checkpoints", "--resume"), "there is no run in"),
        (("evaluate", "{config}"), "damaged"),
        (("evaluate", "{run}", "--points", "6"), "learned positions end before the prompt does"),
        (("evaluate", "{run}", "--set", "train.steps=3"), "only the task"),
        (("evaluate", "{run}", "--baselines", "rigde"), "did you mean ridge?"),
        (("evaluate", "{run}", "--model", "1"), "no such model in the stack"),
        (("evaluate", "{run}", "--out", "{run}"), "this output is one file; got "),
        (("evaluate", "{run}", "--out", "{config}/a/result.json"), "cannot write the result into"),
        (("sweep", "{config}", "--grid", "seed"), "an axis of a grid is key=value,value"),
        (("sweep", "{config}", "--grid", "seed=0,0"), "a combination twice"),
        (("sweep", "{config}", "--grid", "seed=0", "--grid", "seed=1,2"), "stand together: --grid seed=0,1,2"),
        (("sweep", "{config}", "--grid", "sede=0,1"), "did you mean seed?"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments: tuple[str, ...], words: str, config: Path, trained: Path) -> None:
    called = call(*(argument.format(config=config, run=trained) for argument in arguments))
    assert called.code == 2, called
    assert called.out == ""
    assert called.err.count("\n") == 1
    assert words.format(config=config) in called.err
