"""The learner of tables: what its answers may not depend on, what they must be, and that training teaches it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from innergrad import lab, zoo
from innergrad.errors import InputError
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.kernels import sets
from innergrad.lab.learners import table, table_features, table_guesses
from innergrad.lab.learners.answers import ClassAnswer, NumberAnswer, bin_of, borders
from innergrad.lab.learners.table import TableConfig, TableLearner
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.room import activations_of_prompt
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Prompts, Task
from innergrad.lab.timed import train_within
from innergrad.lab.weights import write_learner

SMALL = TableConfig(n_cells=2, d_cell=32, d_cell_mlp=32, free=1, n_rows=2, d_row=32, d_row_mlp=32, bins=32, least=4)
D, K, N = 4, 12, 17
NAN = float("nan")
both = pytest.mark.parametrize("labels", ["numbers", "classes"])


@dataclass(frozen=True)
class Toy(Task, kind="toy-table"):
    """Linear functions in a unit of their own; with ``classes``, the side of one column that a row is on. One column is
    not there, and cells are missing.
    """

    classes: bool = False

    def sample(self, rng: lab.CounterRNG, index: Tensor, n: int, dims: int | Tensor | None = None) -> Prompts:
        x, w = rng.fork("x").normal(index, n, self.d), rng.fork("w").normal(index, self.d, 1)
        y = (x[..., 0] * w[:, 0] > 0).float() if self.classes else 100.0 + 7.0 * (x @ w)[..., 0]
        x = torch.where(rng.fork("gone").uniform(index, n, self.d) < 0.02, torch.nan, x)
        return Prompts(torch.cat((x[..., :-1], torch.full_like(x[..., -1:], torch.nan)), -1), y, {"w": w})


def built(labels: str = "numbers", stack: int = 1, **changes: Any) -> TableLearner:
    """With weights that all matter: those that begin at zero are drawn, too."""
    learner = replace(SMALL, labels=labels, **changes).build(D, N, stack).init(range(stack))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in learner.named_parameters():
            if any(part in name for part in ("W_O", "W_out", "W_U")):
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    assert isinstance(learner, TableLearner)
    return learner


def tables(labels: str = "numbers", prompts: int = 3, rows: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(prompts, rows, D, generator=generator)
    x[0, :, 1] = NAN
    x[-1, ::3, 2] = NAN
    y = torch.randn(prompts, rows, generator=generator) * 5.0 + 40.0
    return x, y if labels == "numbers" else torch.randint(0, 3, y.shape, generator=generator).float()


def said(learner: TableLearner, x: Tensor, y: Tensor) -> Tensor:
    """All that an answer says, (B, m, ...)."""
    found = learner.answer(x, y)
    if isinstance(found, ClassAnswer):
        return found.probabilities
    return torch.cat((found.mean[..., None], found.std[..., None], found.quantile([0.1, 0.5, 0.9])), -1)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-4)


@both
def test_what_an_answer_does_not_depend_on(labels: str) -> None:
    """The order of rows and of columns, the other queries, the other prompts, columns that are not there."""
    learner, (x, y) = built(labels), tables(labels)
    before = said(learner, x, y[:, :K])
    order = torch.randperm(K, generator=torch.Generator().manual_seed(1))
    close(before, said(learner, torch.cat((x[:, order], x[:, K:]), 1), y[:, order]))
    close(before, said(learner, x[..., [2, 0, 3, 1]], y[:, :K]))
    close(before, said(learner, torch.cat((x, torch.full_like(x, NAN)), -1), y[:, :K]))
    close(before[:, 2:3], said(learner, torch.cat((x[:, :K], x[:, K + 2 : K + 3]), 1), y[:, :K]))
    close(before[1:2], said(learner, x[1:2], y[1:2, :K]))
    if labels == "classes":
        names = torch.tensor([2, 0, 1])
        close(before, said(learner, x, names[y[:, :K].long()].float())[..., names])
    other = torch.cat((y[:, :1], y[:, 1:K].flip(1)), 1)  # but on labels it does
    assert not torch.allclose(before, said(learner, x, other), rtol=1e-3, atol=1e-3)


@both
def test_parts_change_nothing(labels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries and prompts in parts, and attention in parts, answer like all at once."""
    learner, (x, y) = built(labels), tables(labels)
    before = said(learner, x, y[:, :K])
    monkeypatch.setattr(table, "MOST_CELLS", 12)
    monkeypatch.setattr(table, "BLOCK", 2)
    monkeypatch.setattr(table, "MOST_ROWS", 3)
    monkeypatch.setattr(sets, "MOST_BATCH", 5)
    close(before, said(learner, x, y[:, :K]))


def test_the_answer_in_training_is_the_answer() -> None:
    """With more rows than demonstrations as keys, hidden ones change nothing; a stack is its models."""
    learner, (x, y) = built(), tables()
    shown = (torch.arange(N) < K).expand(3, -1)
    seen, codes, scales = learner.read(x, y, shown, N)
    for keys in (K, N):
        logits, _ = learner.network(seen, codes, shown, None, keys=keys)
        close(NumberAnswer(logits[0, :, K:].softmax(-1), *scales).mean, learner.answer(x, y[:, :K]).mean)
    stack = built(stack=2)
    together = stack(x.expand(2, -1, -1, -1), y.expand(2, -1, -1))
    for number in range(2):
        alone = stack.model(number)
        assert isinstance(alone, TableLearner)
        close(together[number], alone(x[None], y[None])[0])
        close(together[number], alone.answer(x, y[:, :-1]).mean)
    assert not torch.allclose(together[0], together[1])


@pytest.mark.parametrize("q", [1, 2, 5])
def test_every_number_of_a_vector_is_answered_as_if_alone(q: int) -> None:
    """Also where one has another unit by a million, and where one is constant."""
    learner, (x, y) = built(), tables()
    vectors = torch.stack([y.roll(number, 1) for number in range(q)], 2)
    vectors[..., 1:2] *= 1e6
    vectors[..., 2:3] = 0.1
    found = said(learner, x, vectors[:, :K])
    assert found.shape == (3, N - K, q, 5)
    for number in range(q):
        alone = said(learner, x, vectors[:, :K, number])
        torch.testing.assert_close(found[:, :, number], alone, rtol=2e-5, atol=2e-4)
    if q == 5:
        assert torch.equal(found[:, :, 2, 1], torch.zeros(3, N - K))
        assert not torch.allclose(found[:, :, 0], found[:, :, 3], rtol=1e-3)  # each depends on its own labels


def test_the_parts_of_a_vector_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, (x, y) = built(), tables()
    vectors = torch.stack((y, y.roll(1, 1)), 2)[:, :K]
    before = said(learner, x, vectors)
    monkeypatch.setattr(table, "MOST_CELLS", 12)
    monkeypatch.setattr(table, "BLOCK", 2)
    monkeypatch.setattr(table, "MOST_ROWS", 3)
    close(before, said(learner, x, vectors))


def test_vectors_are_predicted_and_learned_number_by_number() -> None:
    """In a stack, too; the loss is that of the numbers as prompts of their own."""
    x, y = tables(rows=6)
    vectors = torch.stack((y, 100.0 - y.roll(1, 1)), 2)
    stack = SMALL.build(D, N, 2, outputs=2)
    stack.load_state_dict(built(stack=2).state_dict())
    for number in (0, 1):
        model = stack.model(number)
        assert isinstance(model, TableLearner)
        found = model.predict(x, vectors)
        assert found.shape == vectors.shape
        one = built(stack=2).model(number)
        close(found, torch.stack([one.predict(x, labels) for labels in vectors.unbind(2)], 2))
        close(found[:, 4:5], model.answer(x[:, :5], vectors[:, :4]).mean)
        _, cache = model.run_with_cache(x, vectors, ["rows.*"])
        _, alone = one.run_with_cache(x, vectors[..., 1], ["rows.*"])
        assert cache["rows.1.resid_post"].shape == (3, 2, 6, 32)
        close(cache["rows.1.resid_post"][:, 1], alone["rows.1.resid_post"])
        edited, _ = model.run_with_cache(x, vectors, [], {"rows.1.resid_post": torch.zeros_like})
        assert not torch.allclose(edited, found[:, -1:])
    weights, step = dict(stack.named_parameters()), torch.tensor(5)
    both, apart = vectors.expand(2, -1, -1, -1), torch.stack(vectors.unbind(2), 1).flatten(0, 1).expand(2, -1, -1)
    repeated = x.repeat_interleave(2, 0).expand(2, -1, -1, -1)
    found = stack.objective(x.expand(2, -1, -1, -1), both, weights, step)
    close(found, stack.objective(repeated, apart, weights, step))
    assert found.shape == (2,)


def test_a_learner_of_vectors_is_trained_saved_and_measured(tmp_path: Path) -> None:
    task = lab.TableRegression(d=3, outputs=2)
    how = lab.TrainConfig(steps=3, batch=4)
    one = lab.Experiment(n_points=12, task=task, learner=SMALL, train=how)
    result = lab.train([one, replace(one, seed=1)], tmp_path / "run")
    learner, experiment = lab.load_learner(tmp_path / "run", model=1)
    assert experiment.task == task
    x, y, _ = task.sample(lab.CounterRNG.of(9), torch.arange(5), 12)
    assert torch.equal(learner.predict(x, y), result.learner.model(1).predict(x, y))
    assert isinstance(learner, TableLearner)
    assert learner.answer(x, y[:, :8, :1]).mean.shape == (5, 4, 1)  # the weights serve any number of them
    found = lab.evaluate_run(tmp_path / "run", n_prompts=8, n_points=6)
    assert list(found.curves) == ["model", "mean"]
    assert activations_of_prompt(SMALL, task, 12) == 2 * SMALL.activations(12)  # memory is that of two prompts


@both
def test_it_predicts_and_shows_its_inside_like_other_learners(labels: str) -> None:
    """A prediction from the rows before it; activations by name, and edits that count."""
    learner, (x, y) = built(labels), tables(labels, rows=6)
    found = learner.predict(x, y)
    answer = learner.answer(x[:, :5], y[:, :4])
    close(found[:, 4:5], answer.mean if isinstance(answer, NumberAnswer) else answer.classes.float())
    assert found.shape == y.shape
    _, cache = learner.run_with_cache(x, y, ["*"])
    assert {name: tuple(value.shape) for name, value in cache.items()} == {
        "cells.0.resid_post": (3, 6, D + 2, 32),
        "cells.1.resid_post": (3, 6, 2, 32),
        **{f"rows.{number}.resid_post": (3, 6, 32) for number in range(2)},
    }
    edited, _ = learner.run_with_cache(x, y, [], {"rows.1.resid_post": torch.zeros_like})
    assert labels == "classes" or not torch.allclose(edited, found[:, -1:])


def test_units_do_not_matter() -> None:
    """y -> a y + b moves the answer the same way, if a > 0; x -> a x + b moves nothing."""
    learner, (x, y) = built(), tables()
    x, y = x.double(), y.double()
    before, found = learner.answer(x, y[:, :K]), learner.answer(1e3 * x - 5.0, 1e-3 * y[:, :K] - 7.0)
    assert isinstance(before, NumberAnswer)
    assert isinstance(found, NumberAnswer)
    torch.testing.assert_close(found.mean, 1e-3 * before.mean - 7.0, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.std, 1e-3 * before.std, rtol=1e-4, atol=0.0)
    levels = [0.05, 0.5, 0.95]
    torch.testing.assert_close(found.quantile(levels), 1e-3 * before.quantile(levels) - 7.0, rtol=1e-6, atol=1e-7)


def test_the_distribution_of_a_number() -> None:
    """Quantiles rise, their mean is the mean, and so is their spread; labels fall into their bins."""
    generator = torch.Generator().manual_seed(0)
    chances = (3.0 * torch.randn(2, 3, 32, generator=generator)).softmax(-1)
    answer = NumberAnswer(chances, torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    levels = (np.arange(20_000) + 0.5) / 20_000
    drawn = answer.quantile(levels.tolist())
    assert bool((drawn.diff(dim=-1) >= 0).all())
    torch.testing.assert_close(drawn.mean(-1), answer.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(drawn.std(-1), answer.std, rtol=1e-3, atol=1e-3)
    ends, edges = answer.quantile([0.0, 1.0]), borders(32)
    torch.testing.assert_close(ends[1, 0].double(), -2.0 + 3.0 * edges[[0, -1]], rtol=1e-6, atol=0.0)
    inside = (edges[1:] + edges[:-1]) / 2.0
    assert torch.equal(bin_of(inside, 32), torch.arange(32))
    assert bin_of(torch.tensor([-1e6, 1e6]), 32).tolist() == [0, 31]
    for wrong in ([-0.1], [1.1], [NAN]):
        with pytest.raises(InputError, match="quantiles are chances"):
            answer.quantile(wrong)


def test_ranks_and_z_scores_are_of_the_demonstrations() -> None:
    x = torch.tensor([3.0, 1.0, 1.0, NAN, 2.0, 9.0])[None, :, None]
    shown = torch.tensor([[True, True, True, True, False, False]])
    seen = table_features.seen(x, shown, torch.zeros(1, 6, 2), False)
    known = x[0, :3, 0]
    expected = (x[0, :, 0] - known.mean()) / known.std(correction=0)
    torch.testing.assert_close(seen.z[0, :, 0], expected.nan_to_num(0.0).clamp(max=table_features.MOST_Z))
    torch.testing.assert_close(seen.rank[0, :, 0], torch.tensor([2 / 3, -1 / 3, -1 / 3, 0.0, 1 / 3, 1.0]))
    assert seen.columns[0, 0, 3] == 0.25  # missing
    location, scale = table_features.location_scale(torch.tensor([[*[0.0, 2.0] * 50, 1e6]]), torch.ones(1, 101) > 0)
    assert 0.5 < float(location) < 1e4
    assert float(scale) < 1e5


@pytest.mark.parametrize(("k", "d"), [(9, 3), (8, 20)])
@pytest.mark.parametrize("penalty", table_guesses.PENALTIES)
def test_guesses_leave_a_demonstration_out(k: int, d: int, penalty: float) -> None:
    """Against ridge regression that is fitted again without the row, with an intercept that is not penalised."""
    generator = np.random.default_rng(0)
    z, y = generator.normal(size=(k + 3, d)), generator.normal(size=k + 3)
    shown = torch.arange(k + 3)[None] < k
    found, errors = table_guesses.ridge(torch.tensor(z)[None], torch.tensor(y)[None, :, None], shown, (penalty,))[0]
    for row in range(k + 3):
        rest = np.array([other for other in range(k) if other != row])
        fitted = Ridge(alpha=k * penalty).fit(z[rest], y[rest])
        assert float(found[0, row, 0]) == pytest.approx(fitted.predict(z[row : row + 1])[0], abs=1e-5)
    assert float(errors) == pytest.approx(np.square(found[0, :k, 0].numpy() - y[:k]).mean(), rel=1e-4)


@pytest.mark.parametrize("stop", table_guesses.STOPS)
def test_doublings_are_the_mean_of_descent(stop: int) -> None:
    """Against steps one by one, on the 9 demonstrations of 10 rows that may be some; hidden rows change nothing."""
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(1, 12, 3, generator=generator), torch.randn(1, 12, 1, generator=generator)
    shown, weights = torch.arange(12)[None] < 9, torch.tensor([[0.5, 0.3, 0.2]])
    found, _ = table_guesses.descent(z, weights, y, shown, 10, (stop,))[0]
    apart = ((z[0, :, None] - z[0, None, :9]).square() * weights[0]).sum(-1).double()
    kernel, labels = (-apart / 2.0).exp(), y[0, :9, 0].double()
    kernel = kernel - kernel[:9].mean(0)
    kernel = kernel - kernel.mean(1, keepdim=True)
    size = kernel[:9].abs().sum(1).max()

    def mean_of_descent(y: Tensor) -> Tensor:
        sums, total = torch.zeros_like(y), torch.zeros(12, *y.shape[1:], dtype=torch.float64)
        for _ in range(2**stop):
            total = total + y.mean(0) + kernel @ sums
            sums = sums + (y - y.mean(0) - kernel[:9] @ sums) / size
        return total / 2**stop

    fits, own = mean_of_descent(labels), mean_of_descent(torch.eye(9, dtype=torch.float64))[:9].diagonal()
    torch.testing.assert_close(found[0, 9:, 0].double(), fits[9:], rtol=1e-5, atol=1e-5)
    others = labels - (labels - fits[:9]) / (1.0 - own)
    torch.testing.assert_close(found[0, :9, 0].double(), others, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [2, 8, 12, 30, 64])
@pytest.mark.parametrize("d", [3, 20, 40])
def test_a_demonstration_does_not_tell_its_own_label(k: int, d: int) -> None:
    """Its guesses stay where the label moves, however few the rows and however many the columns."""
    generator = torch.Generator().manual_seed(k + d)
    z, y = torch.randn(4, k + 5, d, generator=generator), torch.randn(4, k + 5, 2, generator=generator)
    shown, weights = (torch.arange(k + 5) < k).expand(4, -1), torch.full((4, d), 1.0 / d)

    def guesses(labels: Tensor) -> Tensor:
        found = table_guesses.ridge(z, labels, shown)
        found += table_guesses.descent(z, weights, labels, shown, k + 2)
        return torch.stack([one for one, _ in found])

    moved = y.clone()
    moved[:, 0] += 0.5
    before, after = guesses(y), guesses(moved)
    torch.testing.assert_close(before[:, :, 0], after[:, :, 0], rtol=1e-4, atol=1e-4)
    assert float((before - after)[:, :, 1:].abs().max()) > 0.01  # others hear of it


@pytest.mark.parametrize("far", [1e6, 1e9])
def test_a_large_offset_changes_nothing(far: float) -> None:
    """In float64, of a column and of the labels: what is left of the numbers is what counts."""
    learner, (x, y) = built(), tables()
    before = said(learner, x.double(), y[:, :K].double())
    moved = said(learner, x.double() + far, y[:, :K].double() + far)
    torch.testing.assert_close(moved[..., 0] - far, before[..., 0], rtol=0, atol=2e-3)
    torch.testing.assert_close(moved[..., 1], before[..., 1], rtol=1e-3, atol=1e-3)


@both
def test_odd_tables(labels: str) -> None:
    """One demonstration, equal labels, columns without a number or with one value, huge numbers, 1,500 rows."""
    learner, (x, y) = built(labels), tables(labels)
    one = said(learner, x, y[:, :1])
    assert bool(one.isfinite().all())
    if labels == "numbers":
        close(one[..., 0], y[:, :1].expand(-1, N - 1))
        equal = learner.answer(x, torch.full((3, K), 0.1))
        assert isinstance(equal, NumberAnswer)
        close(equal.quantile([0.0, 1.0]), torch.full((3, N - K, 2), 0.1))
    else:
        chances = said(learner, x, torch.full((3, K), 2.0))
        assert torch.equal(chances, torch.tensor([0.0, 0.0, 1.0]).expand(3, N - K, 3))
    odd = x.clone()
    odd[..., 0], odd[..., 1], odd[..., 2] = NAN, 3.25, 1e30 * x[..., 2]
    odd[:, 2, 3] = torch.inf
    assert bool(said(learner, odd, y[:, :K]).isfinite().all())
    assert bool(said(learner, torch.full_like(x, NAN), y[:, :K]).isfinite().all())
    long, many = tables(labels, prompts=1, rows=1500)
    assert said(learner, long, many[:, :1000]).shape[1] == 500


def test_what_is_no_table() -> None:
    learner, (x, y) = built("classes"), tables("classes")
    for labels in (y[:, :K] + 0.5, y[:, :K] - 1.0, y[:, :K] + 9.0):
        with pytest.raises(InputError, match="these are no labels of classes"):
            learner.answer(x, labels)
    with pytest.raises(InputError, match=r"tables are x \(B, n, d\) and y \(B, k\) or \(B, k, q\); got"):
        learner.answer(x, y)
    for shape in ((3, K, 0), (3, K, 2, 2), (3, N, 2), (2, K, 2)):
        with pytest.raises(InputError, match="tables are x"):
            built().answer(x, torch.zeros(shape))
    for wrong in (lambda: learner.answer(x, y[:, :K, None]), lambda: learner.config.build(D, N, outputs=2)):
        with pytest.raises(InputError, match="a learner of classes is for labels of one number"):
            wrong()
    with pytest.raises(InputError, match="a label is missing"):
        built().answer(x, torch.stack((y[:, :K], torch.full((3, K), NAN)), 2))
    with pytest.raises(InputError, match="a label is missing"):
        learner.answer(x, torch.full((3, K), NAN))
    with pytest.raises(InputError, match="answers with numbers"):
        built().answer(x, y[:, :K], classes=3)
    assert learner.answer(x, y[:, :K], classes=5).probabilities.shape == (3, N - K, 5)  # type: ignore[union-attr]
    for wrong in ({"d_cell": 40}, {"most": 1.0}, {"labels": "words"}):
        with pytest.raises(InputError):
            replace(SMALL, **wrong)  # type: ignore[arg-type]


@both
def test_training_splits_by_the_step(labels: str) -> None:
    """Numbers of demonstrations differ between prompts and steps and stay in bounds; every parameter gets a slope."""
    learner, (x, y) = built(labels), tables(labels)
    weights = dict(learner.named_parameters())
    most = SMALL.demonstrations(N)
    first, again, other = (learner.split(torch.tensor(step), 500, most, x.device) for step in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (int(first.min()), int(first.max())) == (SMALL.least, most)
    loss = learner.objective(x[None], y[None], weights, torch.tensor(5))
    slopes = torch.autograd.grad(loss.sum(), list(weights.values()))
    assert loss.shape == (1,)
    assert all(bool(slope.abs().max() > 0) for slope in slopes)
    shorter = learner.objective(x[None], y[None], weights, torch.tensor(5), torch.tensor(N - 3))
    other = torch.cat((y[:, : N - 3], y[:, N - 3 :].flip(1) + (labels == "numbers")), 1)
    close(shorter, learner.objective(x[None], other[None], weights, torch.tensor(5), torch.tensor(N - 3)))


@both
def test_training_teaches_it(labels: str, tmp_path: Path) -> None:
    """Sixty steps on linear functions, a third of whose spread is out of sight; what is saved answers the same."""
    task = Toy(d=3, classes=labels == "classes")
    shape = replace(SMALL, labels=labels, n_cells=1, n_rows=1)
    how = lab.TrainConfig(steps=60, batch=8, optimiser=lab.Optimiser("muon", lr=2e-2, schedule="cosine", warmup=10))
    one = lab.Experiment(n_points=32, task=task, learner=shape, train=how)
    learner = train_within([one], 600.0).learner
    assert isinstance(learner, TableLearner)
    x, y, _ = task.sample(lab.CounterRNG.of(9), torch.arange(64), 32)
    found = learner.answer(x, y[:, :24])
    if isinstance(found, NumberAnswer):
        assert float((found.mean - y[:, 24:]).square().mean() / y.var()) < 0.5
        low, high = found.quantile([0.1, 0.9]).unbind(-1)
        assert 0.6 < float(((low < y[:, 24:]) & (y[:, 24:] < high)).float().mean()) < 0.95
    else:
        assert float((found.classes == y[:, 24:]).float().mean()) > 0.75
    path = write_learner(tmp_path, learner, one, 60, bits=32)
    loaded, _ = lab.load_learner(path)
    assert isinstance(loaded, TableLearner)
    close(said(loaded, x, y[:, :24]), said(learner, x, y[:, :24]))


@pytest.mark.parametrize("name", [name for name in zoo.names() if name.startswith("tables-")])
def test_a_learner_of_the_zoo_does_what_its_card_says(name: str) -> None:
    """On a few tables of its prior it is about as much better than ridge regression as its card says."""
    from tables_learner_scores import on_prior

    learner, experiment = lab.load_pretrained(name)
    assert isinstance(learner, TableLearner)
    row = zoo.card(name)["numbers"]["rows"][0]
    found = on_prior(learner, experiment.task, row["k"], 24, "cpu")
    end = "" if learner.config.labels == "numbers" else " accuracy"
    gains = [each[f"learner{end}"] - each[f"ridge{end}"] for each in (found, row)]
    assert gains[0] == pytest.approx(gains[1], abs=0.12)


def test_a_race_begins_anew() -> None:
    """A stack that is started again with a seed trains as a new one of that seed, and as no other."""
    import tables_learner as script

    def one(seed: int) -> Experiment:
        how = TrainConfig(steps=8, batch=4, optimiser=Optimiser("muon", lr=1e-2, warmup=2))
        return Experiment("race", seed, 12, Toy(d=2), SMALL, how)

    fresh = [Stack([one(seed)], "cpu") for seed in (0, 1)]
    for stack in fresh:
        stack.run(3, 12)
    again = Stack([one(0)], "cpu")
    again.run(5, 12)
    for seed in (1, 0):
        script.restart(again, seed)
        again.run(3, 12)
        for name, value in again.state.items():
            torch.testing.assert_close(value, fresh[seed].state[name], msg=name)
    assert not torch.equal(fresh[0].state["theta"], fresh[1].state["theta"])


def test_priors_that_lack_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lacks what its name says, a run that was cut off goes on, and what is lost is measured prompt by prompt."""
    import table_ablation as script

    whole = lab.TableRegression(d=20)
    for name, prior in script.PRIORS.items():
        assert all(getattr(whole, part) != value for part, value in prior.items()), name
        assert all(part in ("missing", "derived_share") or value for part, value in prior.items()), name
    given = ["train", "--out", str(tmp_path), "--size", "tiny", "--device", "cpu", "--steps", "12", "--guess", "off"]
    given += ["--prompts", "4", "--ks", "8", "--seeds", "0", "--priors"]
    script.main([*given, "straight lines only"])
    first = json.loads((tmp_path / script.FILE).read_text())["rows"]
    script.main([*given, script.WHOLE, "straight lines only"])
    rows = json.loads((tmp_path / script.FILE).read_text())["rows"]
    assert [row["prior"] for row in rows] == ["straight lines only", script.WHOLE]
    assert rows[:1] == first
    lines, every = (np.array(row["scores"]["8 rows"]) for row in rows)
    assert lines.shape == every.shape == (4,)
    assert (lines != every).any()
    kept: dict[str, Any] = {}
    monkeypatch.setattr(script, "store", lambda name, command, data: kept.update(data))
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.main(["store", str(tmp_path)])
    assert [len(each) for each in kept["commands"].values()] == [0, 1]
    assert kept["guess on"] == []
    old = {"prior": "no trees"}
    before = kept | {"guess on": [old], "guess off": [old], "commands": {"guess on": ["a command"]}}
    (tmp_path / f"{script.NAME}.json").write_text(json.dumps(before))
    script.main(["store", str(tmp_path)])
    assert kept["guess on"] == [old]
    assert [row["prior"] for row in kept["guess off"]] == [script.WHOLE, "straight lines only", "no trees"]
    assert [len(each) for each in kept["commands"].values()] == [1, 1]
    (tmp_path / f"{script.NAME}.json").write_text(json.dumps(kept))
    script.main(["store", str(tmp_path)])
    assert [len(each) for each in kept["commands"].values()] == [1, 1]  # each command once
    (tmp_path / f"{script.NAME}.json").write_text(json.dumps(before | {"size": "full"}))
    with pytest.raises(SystemExit, match="different sizes"):
        script.main(["store", str(tmp_path)])
    summary = {row["prior"]: row["8 rows"] for row in kept["guess off"][:2]}
    assert summary[script.WHOLE]["lost"] == 0.0
    found = summary["straight lines only"]
    assert found["lost"] == pytest.approx((every - lines).mean(), abs=1e-4)
    assert found["half"] == pytest.approx(1.96 * (every - lines).std(ddof=1) / 2.0, abs=1e-4)


@both
def test_the_script(labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains, goes on, scores tables, races and packs; the zoo reads what it packs."""
    import tables_learner as script
    import tables_learner_scores as scores
    import tables_learner_zoo as zoo_script
    from real import tables as real_tables

    monkeypatch.setitem(script.KINDS, labels, "toy-table")
    monkeypatch.setattr(sets, "AVAILABLE", sets.AVAILABLE)  # the script takes the kernel away
    monkeypatch.setattr(scores, "QUERIES", 8)
    generator = np.random.default_rng(0)
    x, fold = generator.normal(size=(100, 3)).astype(np.float32), np.arange(100) % 5
    y = x[:, 0] if labels == "numbers" else (x[:, 0] > 0).astype(np.float32)
    task, classes = ("regression", ()) if labels == "numbers" else ("classification", ("no", "yes"))
    shape = (("b", "c", "d"), np.zeros(3, bool), x, y, fold.astype(np.int8), np.arange(100, dtype=np.int32), classes)
    real_tables.store([real_tables.Table("a", "toys", task, "y", *shape)], tmp_path / "tables.npz")
    rows = [{"table": "a", "source": "toys", "model": "forest", "r2" if labels == "numbers" else "auc": -9.0}]
    monkeypatch.setattr(scores, "read", lambda _: {"rows": rows})
    task = json.dumps({"d": 3, "classes": labels == "classes"})
    common = ["--labels", labels, "--size", "tiny", "--device", "cpu", "--task", task, "--out", str(tmp_path)]
    common += ["--tables", str(tmp_path / "tables.npz"), "--points", "24"]
    name = script.NAMES[labels]
    script.main(["train", "--steps", "12", *common])
    script.main(["train", "--steps", "12", *common, "--start", str(tmp_path / f"{name}-0-state.safetensors")])
    log = json.loads((tmp_path / f"{name}-0.json").read_text())
    assert log["steps"] == 12
    assert len(log["validation"]["rows"]) == 1
    assert log["start"] is not None
    script.main(["speedrun", "--seeds", "2", "--looks", "2", "--timed", "8", "--seconds", "0.01", *common])
    race = json.loads((tmp_path / f"{name}-speedrun.json").read_text())
    assert [run["passed"] for run in race["runs"]] == [{"forest": 0.0}] * 2  # before any training
    assert [len(run["curve"]) for run in race["runs"]] == [3, 3]
    files = [str(tmp_path / f"{name}-0.{end}") for end in ("safetensors", "json", "json")]
    monkeypatch.setattr(zoo_script, "LOST", 1.0)  # of eight prompts
    script.main(["pack", *files, "--size", "tiny", "--bits", "8", "--device", "cpu", "--out", str(tmp_path)])
    card = zoo.card(name, tmp_path)
    learner, experiment = lab.load_learner(zoo.weights(name, tmp_path))
    assert isinstance(learner, TableLearner)
    assert experiment.task == Toy(d=3, classes=labels == "classes")
    assert card["training"]["steps"] == 24  # of two trainings
    monkeypatch.setattr(zoo, "names", lambda: [name])
    monkeypatch.setattr(zoo, "card", lambda _: card)
    assert zoo_script.table()[2].startswith(f"| `{name}` | 8 | ")
