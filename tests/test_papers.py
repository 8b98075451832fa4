"""The experiments of the papers: they end in time, survive being killed, and are judged by their numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import innergrad
from innergrad import lab
from innergrad.cli.app import app
from innergrad.errors import InputError, JobError
from innergrad.lab import checkpoints, timed
from innergrad.lab.timed import _chosen, train_within
from innergrad.papers import (
    bridges,
    catalogue,
    deep_optimizers,
    depth,
    mixtures,
    parameters,
    shapes,
    stacks,
    through_networks,
    views,
)
from innergrad.papers.bridges import Functions, network
from innergrad.papers.catalogue import FIGURES
from innergrad.papers.deep_optimizers import MIXED, RELU, SOFTMAX, TINY, Test, Variant, experiments, trained
from innergrad.papers.frame import Clock, Figure, Finding, Record, Run, Study, Verdict, over_seeds, read_records
from innergrad.papers.views import BEST, COLUMNS, ERROR, LEARNER, MEASURES, POOLED

LEARNERS = Variant("softmax")


def tiny(folder: Path, seconds: float = 600.0) -> Run:
    return Run(SOFTMAX, "tiny", folder, "cpu", Clock(seconds))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = tiny(tmp_path_factory.mktemp("study"))
    assert SOFTMAX.run(run)
    return run


# ------------------------------------------------------------------------------------------------------------- in time


def test_steps_chosen_in_warm_up_give_the_weights_of_a_run_configured_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit. (How many are chosen depends on the machine: here it is said.)"""
    stack = experiments(replace(TINY, steps=1000, seeds=(0,), layers=(3,)), LEARNERS)
    monkeypatch.setattr(timed, "_chosen", lambda *_: 60)
    short = train_within(stack, 600.0)
    assert short.finished
    assert short.step == short.experiments[0].train.steps == 60
    again, planned = lab.train(list(short.experiments)), stack[0].train.optimiser.factor(torch.tensor(59), 1000)
    assert short.log[-1]["lr"] == again.log[-1]["lr"] != [stack[0].train.optimiser.lr * float(planned)]
    for one, other in zip(short.learner.parameters(), again.learner.parameters(), strict=True):
        assert torch.equal(one, other)


def test_steps_fit_into_the_time() -> None:
    assert _chosen(42_000, 840, 1e9, 0.01) == 42_000
    assert 840 + 9_700 < _chosen(42_000, 840, 100.0, 0.01) <= 840 + 10_000
    assert _chosen(42_000, 840, -1.0, 0.01) == 841


def test_time_that_ends_in_warm_up_ends_training() -> None:
    """Not after all of it, which may take hours at a full size on a CPU."""
    one = experiments(TINY, Variant("softmax"))[0]
    with pytest.raises(JobError, match="0 of 8 steps of warm-up"):
        train_within([one], 1e-9)


def test_what_cannot_be_timed_is_refused() -> None:
    (one, *_) = experiments(TINY, LEARNERS)
    without = replace(one, train=replace(one.train, optimiser=replace(one.train.optimiser, warmup=0)))
    with pytest.raises(InputError, match="cannot be timed"):
        train_within([without], 1.0)


def test_without_time_a_stage_ends_and_says_so(done: Run, tmp_path: Path) -> None:
    (tmp_path / "networks-softmax.learners.json").write_bytes(
        (done.out / "networks-softmax.learners.json").read_bytes()
    )
    assert not SOFTMAX.run(tiny(tmp_path, seconds=0.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["networks-softmax.learners.json"]


# ------------------------------------------------------------------------------------------------------------- records


def test_everything_is_measured(done: Run) -> None:
    stages = done.all_records()
    tests = [deep_optimizers.tests(TINY, layers) for layers in TINY.layers]
    assert len(stages["learners"].rows) == len(TINY.seeds) * sum(map(len, tests))
    assert {row["by"] for row in stages["fits"].rows} == set(stacks.EPOCHS.values())
    assert {row["test"]["w1"] for row in stages["references"].rows} == set(TINY.w1)
    assert stages["learners"].notes["training"]["steps"] == TINY.steps
    lengths = {k for row in stages["fits"].rows for k in row["curves"]["k"]}
    assert lengths == set(range(1, TINY.asked))


def test_kept_weights_are_the_measured_ones(done: Run) -> None:
    """In 16 bits, and read by load_learner: they have the errors of the records."""
    path = done.out / "networks-4-softmax-0"
    learner, one = lab.load_learner(path)
    assert checkpoints.load(path).tensors["theta"].dtype == torch.float16
    x, y = trained(TINY, 4).draw(TINY, "cpu")
    found = stacks.curves(learner.predict(x, y), y, one.task.scale)
    key: Record = {"by": LEARNER, "layers": 4, "seed": 0, "test": vars(trained(TINY, 4))}
    (row,) = (r for r in done.records("learners").rows if all(r[name] == value for name, value in key.items()))
    assert found["squared error"]["value"] == pytest.approx(row["curves"]["squared error"]["value"], rel=1e-4)


def test_a_killed_run_keeps_its_records_and_goes_on(done: Run, tmp_path: Path) -> None:
    """SIGKILL after the first records; then the same command comes to the numbers of a run in one go."""
    command = [sys.executable, "-m", "innergrad.papers", "networks-softmax", "--size", "tiny", "--out", str(tmp_path)]
    path = {"PYTHONPATH": str(Path(innergrad.__file__).parent.parent)}
    with subprocess.Popen(command, env={**os.environ, **path}, stdout=subprocess.DEVNULL) as process:
        file, ends = tmp_path / "networks.references.json", time.monotonic() + 120
        while not file.is_file() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    kept = read_records(file)["records"]
    assert kept
    assert SOFTMAX.run(tiny(tmp_path))
    for stage in SOFTMAX.stages:
        again, once = (run.records(stage).rows for run in (tiny(tmp_path), done))
        assert [row["test"] for row in again] == [row["test"] for row in once]
        for one, other in zip(again, once, strict=True):
            assert one["curves"]["squared error"]["value"] == pytest.approx(
                other["curves"]["squared error"]["value"], rel=1e-5, nan_ok=True
            )


def test_relu_learners_of_deep_networks_are_a_stage_of_their_own(tmp_path: Path) -> None:
    """Both stages together learn every depth, once. At the full size coordinates come later, three at a time; at sizes
    without deep networks there is nothing to do. Fewer steps than planned are said.
    """
    sizes = deep_optimizers.FULL
    rest, deep = (Variant("relu", "relu", deep=which, slow=0.25 if which else None) for which in (False, True))
    assert [*rest.layers(sizes), *deep.layers(sizes)] == list(sizes.layers) == [3, 4, 6]
    assert rest.train(sizes).curriculum == lab.Curriculum(first_dims=5, every=350)
    assert deep.train(sizes).curriculum == lab.Curriculum(first_dims=5, more_dims=3, every=2100)
    run = Run(RELU, "tiny", tmp_path, "cpu", Clock(600.0), steps=12)
    assert RELU.run(run, ["deep"])
    assert not run.records("deep").rows
    assert RELU.run(run, ["learners"])
    found = run.records("learners").notes["training"]
    assert (found["steps"], found["planned"]) == (12, TINY.steps)


def test_what_is_measured_is_not_trained_again(done: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(stacks, "train_within", never)
    monkeypatch.setattr(deep_optimizers.TrainedNetwork, "fit", never)
    assert SOFTMAX.run(tiny(done.out))


def test_records_of_other_settings_are_not_mixed(done: Run) -> None:
    with pytest.raises(InputError, match="other settings"):
        SOFTMAX.from_seed(5).run(Run(SOFTMAX.from_seed(5), "tiny", done.out, "cpu", Clock()))


def test_rescaled_labels_have_the_size_of_training() -> None:
    test = Test(4, TINY.width, weight_mean=0.5, labels="rescaled")
    _, y = test.draw(TINY, "cpu")
    scale = trained(TINY, 4).task(TINY).scale
    size = y.square().mean(1).sqrt()
    assert torch.allclose(size[size > 0], torch.full_like(size[size > 0], scale), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------ verdicts


def test_intervals_over_seeds_are_students() -> None:
    found = over_seeds([[1.0, None], [2.0, 1.0], [3.0, 1.0]])
    assert found["value"] == [2.0, None]
    assert found["high"][0] == pytest.approx(2.0 + 4.303 / 3**0.5, rel=1e-5)
    assert over_seeds([[1.0]]) == {"value": [1.0], "low": [None], "high": [None]}


def test_a_verdict_follows_from_its_findings() -> None:
    yes, no, unknown = (Finding(word, holds, word) for word, holds in (("a", True), ("b", False), ("c", None)))
    words = [Verdict(found).word for found in ((yes, yes), (yes, no), (no, no), (yes, no, unknown))]
    assert words == ["reproduced", "partly", "not", "open"]
    assert Verdict((yes, no)).reason == "not so: b (b)."
    assert Verdict((yes, no, replace(no, claim="d"))).reason == "not so: b; d."
    assert Verdict((replace(no, brief="short"),)).reason == "not so: b (short)."
    assert Verdict((yes, yes)).reason == "a (a)."
    assert Verdict((no, unknown)).reason == "c."


def test_what_cannot_be_tested_decides_nothing() -> None:
    yes, no, never = Finding("a", True, "a"), Finding("b", False, "b"), Finding("c", None, "c", testable=False)
    assert [Verdict(found).word for found in ((yes, never), (no, never), (never,))] == ["reproduced", "not", "open"]
    assert [Verdict(found).reason for found in ((yes, never), (no, never), (never,))] == [
        "a (a).",
        "not so: b (b).",
        "c.",
    ]
    assert Verdict((never,)).to_json()["findings"][0]["testable"] is False


def row(by: str, test: Test | Functions, values: list[float], **more: Any) -> Record:
    curve = {"value": values, "low": values, "high": values}
    return {"by": by, "test": vars(test), "k": list(range(len(values))), **dict.fromkeys(MEASURES, curve), **more}


def made(learner: float, networks: float, shifted: float, late: float, over: float = 1.04) -> list[Record]:
    """Rows of the mixtures at the tiny size: R^2 of the learner in distribution, ... and with long prompts; and its
    error over that of the posterior. Networks under shift have 0.9.
    """
    found = []
    for layers in TINY.layers:
        own = trained(TINY, layers)
        errors = {ERROR: {column: [over] * TINY.asked for column in COLUMNS}}
        found.append(row(LEARNER, own, [learner] * TINY.n_points + [late] * (TINY.asked - TINY.n_points)) | errors)
        found.append(row(LEARNER, replace(own, w1=0.5), [shifted] * TINY.asked))
        found.append(row(BEST, own, [networks] * TINY.asked))
        found.append(row(BEST, replace(own, w1=0.5), [0.9] * TINY.asked))
        found.append(row("NNGP", own, [1.0] * TINY.asked))
    return found


@pytest.mark.parametrize(
    ("numbers", "held"),
    [
        ((0.9, 0.905, 0.5, 0.899), [True, True, True, True, True, True]),
        ((0.9, 0.92, 0.5, 0.8), [False, True, True, True, False, True]),
        ((0.9, 0.9, 0.95, 0.8), [True, True, False, False, False, True]),
        ((0.9, 0.9, 0.5, 0.9), [True, True, True, True, True, False]),
        ((0.9, 0.9, 0.5, 0.8, 1.051), [True, False, True, True, False, True]),
        ((0.9, 0.9, 0.895, 0.8), [True, True, True, False, False, True]),  # behind by less than 0.01
    ],
)
def test_mixtures_are_judged_by_their_rules(numbers: tuple[float, ...], held: list[bool]) -> None:
    assert [one.holds for one in mixtures.judge("softmax", TINY, made(*numbers))] == held
    assert [one.holds for one in mixtures.judge("relu", TINY, made(*numbers))] == held[:5]


def test_a_decline_that_is_less_than_seeds_differ_is_none() -> None:
    rows = made(0.9, 0.9, 0.5, 0.8)
    wide = [
        one | {POOLED: one[POOLED] | {"low": [0.05] * TINY.asked, "high": [0.95] * TINY.asked}}
        for one in rows
        if one["test"]["w1"] == 0.5
    ]
    assert mixtures.declines(TINY, rows).holds
    assert not mixtures.declines(TINY, [one for one in rows if one["test"]["w1"] != 0.5] + wide).holds


@pytest.mark.parametrize(
    "rule", [mixtures.past, mixtures.left_behind, partial(mixtures.matches, low=6, high=8, where="late")]
)
def test_what_is_less_than_its_interval_decides_nothing(rule: Any) -> None:
    """Of the same means: with intervals of nothing, and of 0.6 on both sides, longer than any difference."""
    rows = made(0.9, 0.9, 0.5, 0.8)
    wide = [one | {POOLED: {name: [value + more for value in one[POOLED]["value"]] for name, more in
                            zip(COLUMNS, (0.0, -0.6, 0.6), strict=True)}} for one in rows]  # fmt: skip
    assert rule(TINY, rows).holds is not rule(TINY, wide).holds


def test_curves_that_a_panel_does_not_reach_are_named_there() -> None:
    found: list[str] = []
    with views.panels(1, 2, "", lambda figure: found.extend(text.get_text() for text in figure.axes[1].texts)) as axes:
        axes[1].plot([0, 1], [-2.0, -1.0], label="far below")
        axes[1].plot([0, 1], [-2.0, 0.5], label="leaves")
        axes[1].plot([0, 1], [3.0, 2.0], label="far above")
        axes[1].set_ylim(0.0, 1.0)
    assert found == ["↓ far below", "↑ far above"]


def test_what_is_not_measured_is_open() -> None:
    rows = [one for one in made(0.9, 0.9, 0.5, 0.8) if one["by"] != BEST]
    assert [one.holds for one in mixtures.judge("softmax", TINY, rows)] == [None, True, True, None, None, True]
    rows = [one for one in made(0.9, 0.9, 0.5, 0.8) if one["by"] != "NNGP"]
    assert [one.holds for one in mixtures.judge("softmax", TINY, rows)] == [True, None, True, True, False, True]


@pytest.mark.parametrize(
    ("values", "held", "unclear"),
    [
        ([0.90, 0.91, 0.92, 0.93], [True, True], [False, False]),
        ([0.90, 0.91, 0.9101, 0.93], [True, False], [False, True]),  # a step that is less than what seeds differ
        ([0.90, 0.90, 0.90, 0.9001], [False, False], [True, True]),
        ([0.93, 0.92, 0.91, 0.90], [False, False], [False, True]),
        ([0.90, 0.91], [None, None], [False, False]),
    ],
)
def test_depths_are_judged_by_their_rules(values: list[float], held: list[bool | None], unclear: list[bool]) -> None:
    """Each has three seeds, 0.001 apart. One of the shallowest that lags behind does not hide what the others gain."""
    for behind in (0.0, 0.5):
        rows = []
        for attention in depth.ATTENTIONS:
            for place, value in enumerate(values):
                each = [value - 1e-3 - behind * (place == 0), value, value + 1e-3]
                curve = over_seeds([[one] * TINY.asked for one in each])
                rows.append(row(LEARNER, trained(TINY, 4), [0.0] * TINY.asked, variant=depth.stage(attention, place)))
                rows[-1] |= {POOLED: curve, "each": dict.fromkeys(map(str, depth.examples(TINY)), each)}
        found = depth.judge(replace(TINY, depths=(4, 6, 8, 10)), rows)
        assert [one.holds for one in found] == held * 2
        assert [one.ours for one in found] == [False, True] * 2
        if not behind:
            assert [one.unclear for one in found] == unclear * 2


def test_claims_of_ours_do_not_count_and_what_is_not_resolved_is_not_refuted() -> None:
    yes, no, own = Finding("a", True, "1"), Finding("b", False, "2"), Finding("c", False, "3", ours=True)
    vague = Finding("d", False, "4", unclear=True)
    found = {
        (yes, own): ("reproduced", "a (1)."),
        (yes, vague): ("partly", "not resolved: d (4)."),
        (no, vague): ("not", "not so: b; not resolved: d."),
        (vague,): ("unclear", "not resolved: d (4)."),
        (own,): ("open", "not so: c (3)."),
    }
    for findings, (word, reason) in found.items():
        verdict = Verdict(findings)
        assert (verdict.word, verdict.reason) == (word, reason)
    assert Verdict((yes,), trained=(3, 4), note="that").caveat == "trained for 3 of 4 steps, that"


def test_seeds_that_lack_are_said() -> None:
    yes = Finding("a", True, "a")
    assert Verdict((yes,), seeds=(1, 3)).caveat == "1 of 3 seeds"
    assert Verdict((yes,), trained=(3, 4), seeds=(3, 3)).caveat == "trained for 3 of 4 steps"


def test_what_is_said_of_dead_networks_cannot_be_tested() -> None:
    """But a learner whose predictions are not finite has failed."""
    test, nothing = replace(trained(TINY, 4), weight_mean=0.5), [None] * TINY.asked
    why, strange = (
        "9 of 9 lengths have the same label in all prompts",
        "9 of 9 lengths have predictions that are not finite",
    )
    for reason, holds, testable in ((why, None, False), (strange, False, True), (f"{strange}; {why}", False, True)):
        rows = [row(LEARNER, test, nothing, undefined={POOLED: reason}), row(BEST, test, [0.5] * TINY.asked)]
        found = parameters.judged(TINY, rows, 0.5, "raw")
        assert (found.holds, found.testable) == (holds, testable)
        assert testable or "the same label" in found.words


@pytest.mark.parametrize(
    ("learner", "networks", "half", "holds"),  # half: of the interval of the difference
    [
        (0.891, 0.90, 0.0, True),  # 0.01 is no loss
        (0.85, 0.90, 0.0, False),
        (0.85, 0.90, 0.04, False),
        (0.85, 0.90, 0.06, True),
        (0.95, 0.90, 0.0, True),
    ],
)
def test_other_weights_are_judged_with_intervals(learner: float, networks: float, half: float, holds: bool) -> None:
    test, more = replace(trained(TINY, 4), weight_mean=0.5), (0.0, -half / 2**0.5, half / 2**0.5)
    rows = []
    for by, value in ((LEARNER, learner), (BEST, networks)):
        curve = {name: [value + m] * TINY.asked for name, m in zip(COLUMNS, more, strict=True)}
        rows.append(row(by, test, [0.0] * TINY.asked) | {POOLED: curve})
    found = parameters.judged(TINY, rows, 0.5, "raw")
    assert found.holds is holds
    assert f"{learner:.3f}" in found.words


def test_the_curve_of_one_seed_has_its_interval_over_prompts() -> None:
    one = row(LEARNER, trained(TINY, 4), [0.5]) | {"seed": 0, "prompts": 9}
    one["curves"] = {"k": [0]} | {m: {"value": [0.5], "low": [0.4], "high": [0.7]} for m in MEASURES}
    two = one | {"seed": 1}
    (alone,), (both,) = views.rows_of([one]), views.rows_of([one, two])
    assert (alone["interval"], alone[POOLED]["low"], alone[POOLED]["high"]) == ("prompts", [0.4], [0.7])
    assert (both["interval"], both[POOLED]["low"]) == ("seeds", [0.5])


@pytest.mark.parametrize(
    ("own", "other", "mixed", "new", "held"),
    [
        (1.04, 1.2, 1.09, 1.2, [True, True, True]),  # over the posterior: 1.09 is 1.05 times 1.04
        (1.06, 1.2, 1.09, 1.2, [False, True, True]),
        (1.04, 1.04, 1.09, 1.2, [False, True, True]),
        (1.04, 1.2, 1.1, 1.04, [True, False, False]),
    ],
)
def test_mixed_depths_are_judged_by_their_rules(
    own: float, other: float, mixed: float, new: float, held: list[bool]
) -> None:
    """The learner of 4 layers at its own depth and at others; that of mixed depths at its own, and at a new one."""
    sizes, rows = replace(TINY, other_layers=(3, 6)), []
    for layers in (3, 4, 6):
        test = trained(TINY, layers)
        rows += [row("NNGP", test, [1.0] * TINY.asked), row(LEARNER, test, [own], layers=3, k=[TINY.n_points - 1])]
        rows.append(row(LEARNER, test, [own if layers == 4 else other] * TINY.asked, layers=4))
        rows.append(row(LEARNER, test, [new if layers == 6 else mixed] * TINY.asked, layers=MIXED))
    assert [one.holds for one in shapes.mixed_judge(sizes, rows)] == held


def test_mixed_depths_have_intervals() -> None:
    """0.3 of 1.2 and 0.2 of 1 together: a share of the square root of 0.25² + 0.2², of the ratio 1.2."""
    sizes, rows, at = replace(TINY, other_layers=(6,)), [], TINY.n_points - 1
    for layers in (3, 4, 6):
        test = trained(TINY, layers)
        rows.append(row("NNGP", test, [2.0] * TINY.asked))
        for learned, value, half in ((layers, 1.0, 0.2), (4, 1.0, 0.2), (MIXED, 1.2, 0.3)):
            one = row(LEARNER, test, [value], layers=learned, k=[at])
            ends = {"value": [value], "low": [value - half], "high": [value + half]}
            rows.append(one | {ERROR: ends})
    own, mixed, both = shapes.mixed_halves(sizes, rows).values()
    assert own == pytest.approx(dict.fromkeys(("3 layers", "4 layers", "6 layers"), 0.1))
    assert mixed == pytest.approx(dict.fromkeys(own, 0.15))
    assert both == pytest.approx({f"{layers} layers": 1.2 * (0.25**2 + 0.2**2) ** 0.5 for layers in sizes.layers})
    assert "± 0.384" in shapes.mixed_judge(sizes, rows)[1].words


def test_the_parts_of_a_stage_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one device; those on others are told apart. What is complete stays."""
    run, now = tiny(tmp_path), time.monotonic()
    records = run.records("learners")
    monkeypatch.setattr(time, "monotonic", lambda: now + 10.0)
    stacks.noted(records, run, now, complete=False)
    assert not records.notes  # there is no record yet
    records.add({"by": LEARNER})
    stacks.noted(records, run, now, complete=False)
    stacks.noted(records, run, now + 5.0, complete=False)
    assert (records.notes["seconds"], records.notes["complete"]) == (15.0, False)
    monkeypatch.setattr(stacks, "device_name", lambda device: "GPU")
    stacks.noted(records, run, now + 8.0)
    stacks.noted(records, run, now)
    assert (records.notes["seconds"], records.notes["device"], records.notes["complete"]) == (2.0, "GPU", True)
    assert records.notes["earlier"] == [{"seconds": 15.0, "device": "CPU"}]
    assert run.records("learners").notes["earlier"] == records.notes["earlier"]


def bridge_rows(families: list[Functions], errors: dict[str, list[float]]) -> list[Record]:
    """A value for each family and predictor, at all lengths."""
    longest = max(bridges.TINY.long_ks) + 1
    return [
        row(by, one, [value] * longest)
        for by, values in errors.items()
        for one, value in zip(families, values, strict=True)
    ]


TWO, THREE = network(2, "pooled"), network(3, "pooled")
BALLS: dict[str, list[float]] = {  # all rules hold
    TWO: [0.3, 0.5],
    THREE: [0.2, 0.3],
    LEARNER: [0.1, 0.3],
    f"to {THREE}": [0.1, 0.1],
    f"to {TWO}": [0.2, 0.2],
    "to ridge": [0.2, 0.2],
}


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, [True, True, True, True]),
        ({THREE: [0.3, 0.3]}, [False, True, True, True]),
        ({TWO: [0.5, 0.5]}, [True, False, True, True]),
        ({LEARNER: [0.1, 0.31]}, [True, True, False, True]),
        ({"to ridge": [0.2, 0.05]}, [True, True, True, False]),
        ({TWO: [float("nan")] * 2}, [None, None, True, True]),
    ],
)
def test_balls_are_judged_by_their_rules(changed: dict[str, list[float]], held: list[bool | None]) -> None:
    rows = bridge_rows(bridges.balls(bridges.TINY), BALLS | changed)
    assert [one.holds for one in through_networks.judge_balls(bridges.TINY, rows)] == held


@pytest.mark.parametrize(("half", "holds"), [(0.05, True), (0.08, False)])
def test_a_gain_of_depth_must_be_more_than_its_interval(half: float, holds: bool) -> None:
    """The errors differ by 0.1 and by 0.2; the interval of a difference is 1.41 times that of each."""
    rows = bridge_rows(bridges.balls(bridges.TINY), BALLS)
    for one in rows:
        one["squared error"] |= {
            "low": [value - half for value in one["squared error"]["value"]],
            "high": [value + half for value in one["squared error"]["value"]],
        }
    first, gains, *_ = through_networks.judge_balls(bridges.TINY, rows)
    assert first.holds is holds
    share = half * (0.3**-2 + 0.2**-2) ** 0.5  # of the first ratio, 1.5
    assert f"1.500 ± {1.5 * share:.3f}" in gains.words


SMOOTH: dict[str, list[float]] = {  # 1 derivative: 2 and 3 inputs; 4 derivatives: 2 and 3 inputs
    LEARNER: [0.3, 0.4, 0.1, 0.2],
    THREE: [0.35, 0.5, 0.15, 0.3],
    TWO: [0.40, 0.51, 0.3, 0.4],
    f"to {TWO}": [0.1] * 4,
    "to posterior": [0.2] * 4,
}


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, [True] * 5),
        ({LEARNER: [0.3, 0.4, 0.3, 0.2]}, [False, True, True, False, True]),
        ({THREE: [0.35, 0.5, 0.36, 0.4]}, [True, False, False, True, True]),
        ({TWO: [0.40, 0.75, 0.3, 0.4]}, [True, True, False, True, True]),
        ({"to posterior": [0.2, 0.2, 0.2, 0.01]}, [True, True, True, True, False]),
    ],
)
def test_smooth_functions_are_judged_by_their_rules(changed: dict[str, list[float]], held: list[bool]) -> None:
    rows = bridge_rows(bridges.smooth(bridges.TINY), SMOOTH | changed)
    assert [one.holds for one in through_networks.judge_smooth(bridges.TINY, rows)] == held


def test_functions_of_few_inputs_among_many_are_functions_of_few() -> None:
    """Zeros beside the inputs change neither balls nor the size of features; distances are those of predictions."""
    ball = Functions("ball", 2).task(bridges.TINY)
    x, y, params = ball.sample(lab.CounterRNG.of(0), torch.arange(50), 20)
    few = lab.tasks.Balls(d=2).evaluate({name: value[:, :2] for name, value in params.items()}, x[..., :2])
    assert x.shape[2] == 3
    assert torch.equal(y, few)
    assert 0.2 < float(y.mean()) < 0.8
    smooth = Functions("smooth", 2, 1).task(bridges.TINY)
    assert isinstance(smooth, lab.tasks.SmoothFunctions)
    assert smooth.kernel.length == pytest.approx(2**0.5)
    found = bridges.distance(y, y + 0.5, 0.5, (3, 7))
    assert (found["k"], found["squared error"]["value"]) == ([3, 7], [1.0, 1.0])


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("name", ["mixtures-softmax", "parameters-softmax", "shapes-softmax"])
def test_a_figure_is_drawn_and_judged(done: Run, name: str) -> None:
    found = FIGURES[name].finish(done)
    stored = json.loads((done.out / f"{name}.json").read_text())
    assert stored["verdict"] == found["verdict"] in ("reproduced", "partly", "not")
    assert stored["manifest"]["learners"]["versions"]["torch"]
    assert stored["cost"]["references"]["seconds"] >= 0
    assert {one["interval"] for one in stored["rows"]} == {"seeds", "prompts"}
    assert (done.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (done.out / f"{name}.svg").read_text()


def test_learners_that_were_cut_short_are_not_judged(done: Run, tmp_path: Path) -> None:
    """Nor is it left out of the picture's title that sizes are small, or steps fewer than planned."""
    name = "mixtures-softmax"
    judged = FIGURES[name].result(done)
    assert (judged["caveat"], judged["verdict"] == "open") == ("tiny sizes", False)
    for path in done.out.glob("*.json"):
        content = json.loads(path.read_text())
        if "training" in content.get("notes", {}):
            content["notes"]["training"]["steps"] = 10
        (tmp_path / path.name).write_text(json.dumps(content))
    cut = FIGURES[name].result(replace(done, out=tmp_path))
    assert cut["caveat"] == "tiny sizes, trained for 10 of 30 steps"
    assert cut["verdict"] == "open"
    assert "too few to be judged" in cut["reason"]


STORED = Path(__file__).parent.parent / "results" / "figures"


def test_figures_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    listed = CliRunner().invoke(app, ["figures", "--json"])
    assert [one["name"] for one in json.loads(listed.stdout)] == list(FIGURES)
    wrong = CliRunner().invoke(app, ["figures", "figure-7"])
    assert isinstance(wrong.exception, InputError)
    figure: Figure = FIGURES["mixtures-softmax"]
    small = replace(figure, study=replace(figure.study, sizes={"quick": TINY}))
    monkeypatch.setitem(catalogue.FIGURES, "mixtures-softmax", small)
    given = ["figures", "mixtures-softmax", "--quick", "--stages", "learners", "--out", str(tmp_path), "--json"]
    found = CliRunner().invoke(app, given)
    assert json.loads(found.stdout)["verdict"] == "open"  # nothing to compare with
    assert (tmp_path / "mixtures-softmax.png").is_file()
    rows = json.loads(CliRunner().invoke(app, ["figures", "--json", "--out", str(tmp_path)]).stdout)
    mine = next(one for one in rows if one["name"] == "mixtures-softmax")
    assert (mine["verdict"], mine["caveat"]) == ("open", "quick sizes")
    lines = CliRunner().invoke(app, ["figures", "--out", str(tmp_path)]).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == list(FIGURES)
    assert sum("not run" in line for line in lines) == len(FIGURES) - 1


def test_published_verdicts_come_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the stored results, from any folder, until there is one of your own."""
    monkeypatch.chdir(tmp_path)
    rows = {one["name"]: one for one in json.loads(CliRunner().invoke(app, ["figures", "--json"]).stdout)}
    for name in FIGURES:
        found = next(
            (path for folder in (STORED, STORED / "small") if (path := folder / f"{name}.json").is_file()), None
        )
        keys = ("verdict", "caveat", "reason")
        known = dict.fromkeys(keys) if found is None else json.loads(found.read_text())
        assert {key: rows[name][key] for key in keys} == {key: known[key] for key in keys}, name
    Path("out/figures").mkdir(parents=True)
    Path("out/figures/heads.json").write_text('{"verdict": "not", "caveat": "my own"}')
    Path("out/figures/kernels.json").write_text('{"verdict": "of another form"}')
    again = {one["name"]: one for one in json.loads(CliRunner().invoke(app, ["figures", "--json"]).stdout)}
    assert again.pop("heads")["verdict"] == "not"
    assert again == {name: row for name, row in rows.items() if name != "heads"}


def test_a_small_version_says_what_the_larger_one_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    figure = FIGURES["mixtures-softmax"]
    tiny = replace(figure, study=replace(figure.study, sizes={"quick": TINY}))
    monkeypatch.setitem(catalogue.FIGURES, "mixtures-softmax", tiny)
    given = ["figures", "mixtures-softmax", "--quick", "--stages", "references", "--out", str(tmp_path)]
    assert (
        "no evidence. docs/reproduction.md has the larger one: partly reproduced"
        in CliRunner().invoke(app, given).stdout
    )


def test_a_full_experiment_on_a_CPU_says_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is trained. Not for smaller sizes, and not where nothing is run."""
    monkeypatch.setattr(Study, "run", lambda *rest: True)
    monkeypatch.setattr(Figure, "finish", lambda *rest, **more: {"verdict": "open", "caveat": "", "reason": ""})
    given = ["figures", "balls", "--device", "cpu", "--out", str(tmp_path)]
    said = {more: CliRunner().invoke(app, [*given, *more]).stderr for more in ((), ("--quick",), ("--stages", "none"))}
    assert "the full experiment, on a CPU. The stored one took 10.0 min, NVIDIA H200" in said[()]
    assert "Shorter: --quick (minutes) or --small (an hour or two)" in said[()]
    assert not any("full experiment" in said[more] for more in said if more)


@pytest.mark.parametrize(
    ("given", "words"), [(["heads", "--small"], "has no small sizes"), (["balls", "--small", "--quick"], "two sizes")]
)
def test_sizes_that_are_not_there_are_refused(given: list[str], words: str) -> None:
    error = CliRunner().invoke(app, ["figures", *given]).exception
    assert isinstance(error, InputError)
    assert words in str(error)


@pytest.mark.parametrize("name", ["depth", "positions", "shapes-mixed", "balls"])
def test_other_studies_run_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stage of each, and the figure, which is open. What is complete is not trained again."""
    figure = FIGURES[name]
    run = Run(figure.study, "tiny", tmp_path, "cpu", Clock(600.0))
    first = [next(iter(figure.study.stages))]
    assert figure.study.run(run, first)
    monkeypatch.setattr(stacks, "train_within", None)
    assert figure.study.run(run, first)
    assert figure.finish(run)["verdict"] == "open"


@pytest.mark.parametrize(
    "path", sorted([*STORED.glob("*.json"), *STORED.glob("small/*.json")]), ids=lambda one: one.stem
)
def test_a_stored_verdict_is_that_of_the_stored_records(path: Path) -> None:
    """The page of the experiments is made of these files."""
    stored = json.loads(path.read_text())
    if "figure" not in stored:  # records
        return
    figure = FIGURES[path.stem]
    found = json.loads(json.dumps(figure.result(Run(figure.study, stored["size"], path.parent, "cpu", Clock()))))
    for key in ("verdict", "reason", "numbers", "cost"):
        assert stored[key] == found[key], key
    for then, now in zip(stored["findings"], found["findings"], strict=True):
        assert {**now, **then} == now  # entries that came later have their defaults
