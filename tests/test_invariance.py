"""What rounding allows two runs to be apart, and that rows of learners are what they are alone. (Of compiled
transformers this is a law of the battery.)
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import invariance as bench
from _parts import Parts
from cases import CASES
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.testing.invariance import OF_LEARNERS, SYMMETRIC, judged, learner_limit, rows
from innergrad.testing.rounding import radii_of

PROVEN = [name for name, case in CASES.items() if case.options["target"] in (None, "relu", "kernel") and case.float32]


@pytest.mark.parametrize("name", PROVEN)
def test_float32_is_within_the_radius_of_float64(name: str) -> None:
    """By the program and by the matrices: the radius is a bound, and a tenth of a thousandth of it would be none."""
    case = CASES[name]
    if not case.tf.proven:
        pytest.skip("fits have no radius in float32")
    prompts = {key: value.float().double() for key, value in case.prompts(3).items()}
    prompt = case.tf.prompt(**prompts)
    exact = case.tf.run(**prompts, executor="plain")
    ramps = any(f.ramps for f in case.tf.approximants.values())  # too steep for matrices in float32
    for executor in ("plain",) if ramps else ("plain", "dense"):
        weights, predictions = radii_of(case.tf, prompt, torch.float32, executor == "dense")
        run = case.tf.run(**prompts, executor=executor, dtype=torch.float32)
        assert bool(((run.weights[:, -1] - exact.weights[:, -1]).abs() <= weights).all())
        assert bool(((run.predictions - exact.predictions).abs() <= predictions).all())
        assert bool(((run.predictions - exact.predictions).abs() > 1e-6 * predictions).any())


def test_the_radius_grows_with_what_is_summed() -> None:
    """With the examples, and with the size of what is learned from; and it is 2^29 times as large in float32."""
    case = CASES["kernel: linear"]
    tf = case.compile()
    few, many = (tf.prompt(**case.prompts(1, n)) for n in (2, 9))
    small = radii_of(tf, few, torch.float64)[1]
    assert float(small.min()) > 0.0
    assert float(radii_of(tf, many, torch.float64)[1].mean()) > 2 * float(small.mean())
    ratio = radii_of(tf, few, torch.float32)[1] / small
    assert bool((ratio / 2.0**29 - 1).abs().max() < 1e-3)


FITTED = [name for name in bench.table() if name.startswith(("gpt", "softmax", "sigma", "llama"))]


@pytest.mark.parametrize("name", FITTED)
def test_a_radius_is_a_number_or_infinite(name: str) -> None:
    """Of recursions, radii grow beyond all numbers; then there is no limit, and not one that is no number."""
    case = bench.table()[name]
    n = min(case.tf.options.n_examples, (case.tf.program.length or 99) - case.tf.program.carriers - 2)
    prompt = case.tf.prompt(**case.prompts(2, n, 2))
    for fits in (False, True):
        radii = radii_of(case.tf, prompt, torch.float32, True, fits)
        assert all(bool((part >= 0).all()) for part in radii)


def test_without_a_limit_the_difference_is_still_said() -> None:
    parts = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 1)
    other = parts[0] + torch.tensor([0.0, 0.5, 0.25]), parts[1]
    found = judged(other, parts, (torch.full((1, 3), torch.inf), torch.full((1, 1), torch.inf)))
    assert (found.share, found.equal, found.difference, found.limit) == (0.0, False, 0.5, torch.inf)


KINDS = [
    GPTConfig(2, 16, 2, 16, attention, "count", positions, tokens=tokens, qk_norm=tied, tied=tied, init_std=0.3)
    for attention, positions, tokens, tied in (
        ("softmax", "learned", "interleaved", False),
        ("relu", "rotary", "interleaved", True),
        ("linear", "none", "columns", False),
        ("exp", "none", "columns", True),
    )
]


@pytest.mark.parametrize("config", [*KINDS, KernelLearnerConfig(2, ("softmax", "exp"), True, "count")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_learners_are_what_they_are_alone(config: Any, dtype: torch.dtype) -> None:
    learner = config.build(3, 6).init([4]).to(dtype)
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(5, 6, 3, generator=generator).to(dtype), torch.randn(5, 6, generator=generator).to(dtype)
    a_set = isinstance(config, KernelLearnerConfig) or (config.tokens, config.positions) == ("columns", "none")
    for name in OF_LEARNERS:
        found = rows(learner, x, y, name, generator)
        assert (found.share <= 1.0) == (name != SYMMETRIC or a_set), (name, found)
        assert found.equal or name != "again"
    assert learner_limit(learner, x, y) < (1e-3 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda out: out + 1e-7 * out.mean(1, keepdim=True), "alone"),
        (lambda out: out + 1e-7 * torch.arange(out.shape[1])[None, :, None], "in another batch"),
        (lambda out: out + 1e-7 * out.shape[1], "in batches of another size"),
        (lambda out: out + 1e-7 * out.shape[2], "of a shorter prompt"),
        (lambda out: out * (1 + 1e-7 * len(out)), "in a stack"),
        (lambda out: out * (1 + 1e-7 * torch.get_num_threads()), "by two threads"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_the_law_of_learners_can_fail(wrong: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = KINDS[0].build(2, 5).init([0]).double()
    kind, generator = type(learner), torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 5, 2, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    assert rows(learner, x, y, name, generator).share <= 1.0
    forward = kind.forward

    def other(self: Any, *args: Tensor, **given: Any) -> Tensor:
        return wrong(forward(self, *args, **given))

    monkeypatch.setattr(kind, "forward", other)
    assert rows(learner, x, y, name, generator.manual_seed(0)).share > 1.0


def test_cases_of_the_trial_are_a_function_of_their_number() -> None:
    """And every case is taken once, whoever takes it."""
    assert bench.of_the_lab(14) == bench.of_the_lab(14)
    taken = [number for _, part in bench.chunks(range(1500)) for number in part]
    assert sorted(taken) == list(range(1500))
    name = "kernel: softmax"
    found = [bench.compiled(place, name, CASES[name]) for place in (3, 8, 3)]
    assert found[0] == found[2] != found[1]
    assert [row["number"] for row in found[0]] == [15, 16, 17, 18]
    assert len({row["change"] for row in found[0]}) == 4
    whole = bench.summary([*found[0], bench.of_the_lab(14), {**found[1][0], "share": 1.5}])
    assert (whole["cases"], len(whole["apart"])) == (6, 1)


def test_a_trial_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Cases that were done are not done again, half a line is; rows of another code are not taken."""
    path, numbers, done = tmp_path / "rows", range(4, 64, 5), Parts(tmp_path / "rows", {}, ())
    bench.examined(numbers[:5], 1, done)
    path.write_text(path.read_text() + '{"number": 29, "ca')
    parts = Parts(path, {}, ())
    assert parts.rows == done.rows
    with mock.patch.object(bench, "of_the_lab", side_effect=bench.of_the_lab) as made:
        bench.examined(numbers, 1, parts)
    assert [call.args[0] for call in made.call_args_list] == list(numbers[5:])
    assert Parts(path, {}, ()).rows == {number: bench.of_the_lab(number) for number in numbers}
    with pytest.raises(SystemExit, match="another code"):
        Parts(path, {"seed": 1}, ())


def test_what_was_mended_is_judged_again_and_said(tmp_path: Path) -> None:
    """The rows of before are kept beside those of now; all others stay."""
    numbers, done = range(4, 24, 5), Parts(tmp_path / "rows", {"code of": "before"}, ())
    bench.examined(numbers, 1, done)
    done.add({**done.rows[9], "share": float("inf")})
    parts = Parts(tmp_path / "rows", {}, (), again=[9])
    assert sorted(parts.rows) == [4, 14, 19]
    bench.examined(numbers, 1, parts)
    before, again = parts.mended()
    assert before == {"judged": "before", **done.rows[9], "share": "inf"}
    assert again == {"judged": "again", **bench.of_the_lab(9)}
    assert bench.summary(list(parts.rows.values()))["apart"] == []
    with pytest.raises(SystemExit, match="code of then"):
        parts.missing(range(4, 29, 5))


@pytest.mark.soak
def test_hundreds_of_cases_of_the_trial() -> None:
    """Of those that are stored, others."""
    draw, table = random.Random(5), bench.table()
    found = [row for name, case in table.items() for row in bench.compiled(draw.randrange(10**6), name, case)]
    found += [bench.of_the_lab(draw.randrange(10**6)) for _ in range(300)]
    assert bench.summary(found)["apart"] == []
