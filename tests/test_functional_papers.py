"""The experiments of Cheng et al. (2024): averaged labels, measures during training, verdicts, and the theorems."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab.experiments import Experiment, TrainConfig, log_spaced
from innergrad.lab.journal import read_measures
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Covariance, GaussianProcesses, KernelTerm
from innergrad.lab.timed import train_within
from innergrad.papers import functional_conditioning, functional_examples, functional_gradient, functional_identity
from innergrad.papers.catalogue import FIGURES
from innergrad.papers.frame import Clock, Record, Run
from innergrad.papers.functional_theorems import Symmetric, off_set, signed_shifts, size

RULE = Optimiser(lr=0.02, schedule="cosine", warmup=8, clip=1.0)
TRAIN = TrainConfig(steps=24, batch=8, optimiser=RULE, log_every=4, checkpoint_every=8, labels="averaged")
LEARNER = KernelLearnerConfig(2, ("softmax",), True)
ONE = Experiment(n_points=5, task=GaussianProcesses(terms=(KernelTerm("relu"),)), learner=LEARNER, train=TRAIN)
WATCHED = {"distance": lambda learner: learner.distance_to_identity(Covariance().sigma())}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# ----------------------------------------------------------------------------------------------------- averaged labels


@pytest.mark.parametrize("heads", [("softmax",), ("linear", "exp")])
def test_label_weights_are_the_predictions_derivatives(heads: tuple[str, ...]) -> None:
    """label - prediction = v y: against autograd's derivative of the ordinary forward pass, with A and without."""
    for free_A in (False, True):
        model = KernelLearnerConfig(3, heads, free_A, "count", 0.5, -0.4).build(5, 7, 2).init([0, 1]).double()
        x, y = normal(2, 3, 7, 5) / 3.0, normal(2, 3, 7)
        v, y = model.label_weights(x), y.requires_grad_()
        slopes = torch.autograd.grad((y[..., -1:] - model(x, y)).sum(), y)[0]
        torch.testing.assert_close(v, slopes, rtol=1e-10, atol=1e-12)


def test_the_averaged_loss_is_the_mean_over_labels() -> None:
    """Of the ordinary loss, over 20,000 draws of the labels of two prompts; within four standard errors."""
    stack = Stack([replace(ONE, train=replace(TRAIN, batch=2))], "cpu")
    x, K = stack.batch(5)
    averaged = stack.risk(stack.learner.label_weights(x), K)
    noise = normal(20_000, 2, 5, 1)
    y = (torch.linalg.cholesky(K[0].double()) @ noise)[..., 0].float().view(1, -1, 5)
    errors = (stack.learner(x.expand(20_000, 2, 5, 5).reshape(1, -1, 5, 5), y)[0, :, 0] - y[0, :, -1]).detach()
    drawn = (errors / stack.learner.scale).square()
    assert float(averaged[0].detach()) == pytest.approx(
        float(drawn.mean()), abs=4 * float(drawn.std()) / len(drawn) ** 0.5
    )


def test_covariances_are_those_of_drawn_labels() -> None:
    """K_+ of a kernel that is not positive, noise included, against 20,000 draws."""
    task = GaussianProcesses(terms=(KernelTerm("relu"),), noise=0.3)
    x = task.points(lab.CounterRNG.of(0), torch.arange(1), 4, {})
    index = torch.arange(20_000)
    y = task.evaluate(task.params(lab.CounterRNG.of(1), index, 4), x.expand(20_000, -1, -1))
    y = y + 0.3 * lab.CounterRNG.of(2).normal(index, 4)
    torch.testing.assert_close(task.covariance(x)[0], (y.mT @ y) / len(y), rtol=0, atol=0.04)


def test_averaged_labels_take_most_of_the_noise_out_of_a_gradient() -> None:
    """At the weights of functional gradient descent, over batches; against the noise of drawn labels."""
    noise = []
    for labels in ("averaged", "drawn"):
        settings = replace(TRAIN, labels=labels, batch=4)
        stack = Stack([Experiment(n_points=11, task=GaussianProcesses(), learner=LEARNER, train=settings)], "cpu")
        learner: Any = stack.learner
        learner.as_descent([1.0, 1.0], torch.tensor(Covariance().inverse_root))
        found: list[torch.Tensor] = []

        def kept(grads: Any, loss: Any, stack: Stack = stack, found: list[torch.Tensor] = found) -> None:
            found.append(stack.layout.pack(grads)[0])
            stack.step += 1

        stack.apply_update = kept
        stack.run(60, 11)
        noise.append(float(torch.stack(found).var(0).sum()))
    assert noise[0] < noise[1] / 4


def test_a_batch_that_is_used_again_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives bit for bit the weights of a run that draws it every time."""
    one, drawn = replace(ONE, train=replace(TRAIN, data_every=3)), []
    again = lab.train(one)
    sample = Stack.batch

    def noted(self: Stack, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn.append(int(self.step))
        return sample(self, n)

    monkeypatch.setattr(Stack, "batch", noted)
    lab.train(one)
    assert drawn == list(range(0, 24, 3))
    monkeypatch.setattr(Stack, "kept_batch", Stack.batch)
    plain = lab.train(one)
    for a, b in zip(again.learner.parameters(), plain.learner.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_step_is_the_plain_one() -> None:
    """Bit for bit on the same GPU; to rounding on the CPU, where nothing is recorded."""
    theta = {}
    for device, record in (("cuda", True), ("cuda", False), ("cpu", True)):
        stack = Stack([replace(ONE, train=replace(TRAIN, compile=False, record=record))], device)
        assert stack.recorded == (device == "cuda" and record)
        stack.run(8, 5)
        theta[device, record] = stack.theta.cpu()
    assert torch.equal(theta["cuda", True], theta["cuda", False])
    torch.testing.assert_close(theta["cuda", True], theta["cpu", True], rtol=0, atol=1e-5)


def test_nothing_is_recorded_on_a_cpu() -> None:
    for compile, record in ((True, False), (False, True)):
        assert not Stack([replace(ONE, train=replace(TRAIN, compile=compile, record=record))], "cpu").recorded


def test_a_stack_that_diverges_takes_twice_the_steps_at_half_the_rate() -> None:
    sizes, shape = functional_examples.SIZES["tiny"], functional_gradient.Shape(("exp",), 2, 2)
    first, again = (functional_gradient.experiments(sizes, shape, halved)[0].train for halved in (0, 1))
    assert (again.steps, again.optimiser.lr) == (2 * first.steps, first.optimiser.lr / 2)


@pytest.mark.parametrize(
    ("diverges", "slow_from", "halved"), [(0, 1000, 0), (1, 1000, 1), (0, 2, 1), (1, 2, 2), (9, 1, 4)]
)
def test_a_stack_is_trained_again_until_no_model_diverges(
    diverges: int, slow_from: int, halved: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the rate of its depth on; three times more at most. What is noted are the steps of the last time."""
    rates: list[float] = []

    def trained(stack: list[Experiment], seconds: float, **how: Any) -> Any:
        result = train_within(stack, seconds, **how)
        rates.append(stack[0].train.optimiser.lr)
        if len(rates) <= diverges:
            result = replace(result, log=(*result.log[:-1], {**result.log[-1], "loss": [math.nan]}))
        return result

    monkeypatch.setattr(functional_gradient, "train_within", trained)
    study = functional_examples.EXAMPLES
    sizes = replace(study.sizes["tiny"], slow_from=slow_from, n=(2,), kernels=("linear",), seeds=(0,), steps=10)
    run = Run(replace(study, sizes={"tiny": sizes}), "tiny", tmp_path, "cpu", Clock())
    assert study.stages["exp"](run)
    (row,) = run.records("exp").rows
    notes = run.records("exp").notes["training"]
    assert (row["halved"], row["steps"], notes) == (
        halved,
        10 * 2**halved,
        {"steps": 10 * 2**halved, "planned": 10 * 2**halved},
    )
    assert rates == pytest.approx([rates[0] / 2**place for place in range(len(rates))])


def test_labels_cannot_be_averaged_for_every_learner_and_task() -> None:
    with pytest.raises(InputError, match="linear in them"):
        lab.train(replace(ONE, learner=lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)))
    with pytest.raises(InputError, match="covariance is known"):
        lab.train(replace(ONE, task=lab.Networks(d=5)))


# ------------------------------------------------------------------------------------------------------------ measures


def test_steps_are_log_spaced() -> None:
    assert log_spaced(14, 10) == (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 14)
    assert log_spaced(1, 10) == (0, 1)
    assert 20 < len(log_spaced(1000, 10)) < 35


def test_measures_change_nothing_and_see_the_learner_of_their_step(tmp_path: Path) -> None:
    """The run's weights are those of a run without; a row is that of a run which ends at its step."""
    watched = lab.train(ONE, measures=WATCHED)
    plain = lab.train(ONE)
    for a, b in zip(watched.learner.parameters(), plain.learner.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [row["step"] for row in watched.measures] == [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 24]
    stack = Stack([ONE], "cpu")
    stack.run(13, 5)
    (row,) = (row for row in watched.measures if row["step"] == 13)
    assert row["distance"] == WATCHED["distance"](stack.learner).tolist()
    timed = train_within([ONE], 600.0, measures=WATCHED)
    assert timed.measures == watched.measures


def test_measures_of_a_stopped_run_go_on(tmp_path: Path) -> None:
    """A checkpoint in the middle: the file then has the rows of a run in one go."""

    whole = lab.train(ONE, tmp_path / "whole", measures=WATCHED)
    folder, calls = tmp_path / "cut", []

    def cut(learner: lab.Learner) -> Any:
        calls.append(1)
        if len(calls) == 12:  # at step 20, after the checkpoint of step 16
            raise RuntimeError("cut")
        return WATCHED["distance"](learner)

    with pytest.raises(RuntimeError, match="cut"):
        lab.train(ONE, folder, measures={"distance": cut})
    with (folder / "measures.jsonl").open("a") as file:
        file.write('{"step": 20, "dist')  # a line that was cut off
    again = lab.train(ONE, folder, resume=True, measures=WATCHED)
    assert read_measures(folder) == read_measures(tmp_path / "whole") == list(whole.measures) == list(again.measures)


def test_measures_that_give_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="gives no numbers"):
        lab.train(ONE, measures={"name": lambda learner: "words"})
    with pytest.raises(InputError, match="functions by name"):
        lab.train(ONE, measures={"step": lambda learner: 1.0})


# -------------------------------------------------------------------------------------------------------------- the cap


def test_capped_scores_keep_many_layers_finite() -> None:
    """exp with covariates that grow a little in each of eight layers: a tower that overflows. The cap stops it, and
    changes nothing where no score reaches it.
    """
    x = torch.nn.functional.normalize(normal(1, 4, 9, 5), dim=-1).float()
    shape = KernelLearnerConfig(8, ("exp",), True, "count")
    for a, finite in ((0.5, False), (-0.1, True)):
        free, capped = (replace(shape, cap=cap).build(5, 9).as_descent([0.1] * 8) for cap in (None, 4.0))
        for learner in (free, capped):
            learner.get_parameter("A").data += a * torch.eye(5)
        assert bool(free.label_weights(x).isfinite().all()) is finite
        assert capped.label_weights(x).isfinite().all()
        assert torch.equal(free.label_weights(x), capped.label_weights(x)) is finite
        assert (functional_gradient.without_cap(capped) is None) is False
    with pytest.raises(InputError, match="cap"):
        capped.as_algorithm(n_examples=8)


# ------------------------------------------------------------------------------------------------------------- studies


SLOW = ("kernels", "kernel-depth", "identity", "identity-free", "heads", "conditioning")


@pytest.mark.parametrize("name", ["identity-softmax", *(pytest.param(one, marks=pytest.mark.soak) for one in SLOW)])
def test_a_figure_is_trained_judged_and_drawn(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name]
    run = Run(figure.study, "tiny", tmp_path, "cpu", Clock(600.0))
    assert figure.study.run(run)
    found = figure.finish(run)
    assert found["verdict"] in ("reproduced", "partly", "not")
    assert {row["interval"] for row in found["rows"]} == {"seeds"}
    assert (tmp_path / f"{name}.png").is_file()
    assert json.loads((tmp_path / f"{name}.json").read_text())["cost"]


def test_what_is_measured_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a stack was cut off between two records: only what is lacking is added."""
    study = functional_examples.EXAMPLES
    run = Run(study, "tiny", tmp_path, "cpu", Clock(600.0))
    assert study.run(run, ["relu"])
    before = run.records("relu").rows
    records = run.records("relu")
    path = records.path
    content = json.loads(path.read_text())
    content["records"] = content["records"][:-2]
    path.write_text(json.dumps(content))
    assert study.run(run, ["relu"])
    assert [row["risk"] for row in run.records("relu").rows] == [row["risk"] for row in before]
    monkeypatch.setattr(functional_gradient, "train_within", None)
    assert study.run(run, ["relu"])


def test_records_are_the_models_own(tmp_path: Path) -> None:
    """The stored risk of a model is that of labels drawn for it; the Bayes estimator's, that of the task's best."""
    sizes = replace(functional_examples.SIZES["tiny"], n=(4,), steps=60, prompts=1000)
    shape = functional_gradient.Shape(("relu",), 2, 4)
    stack = functional_gradient.experiments(sizes, shape)
    result = lab.train(stack)
    for number in (0, 3):
        one, kernel = stack[number], stack[number].name.rsplit("-", 1)[0]
        model: Any = result.learner.model(number)
        found = functional_gradient.risks(model, one, kernel, 1000, "cpu")
        made = one.task.sample(lab.CounterRNG.of(5), torch.arange(20_000), 5)
        for predict, name in ((model.predict, "risk"), (one.task.best(), "bayes")):
            errors = (predict(made.x, made.y)[:, -1] - made.y[:, -1]).square()
            spread = 5 * float(errors.std()) / len(errors) ** 0.5 + 0.05 * float(errors.mean())
            assert found[name] == pytest.approx(float(errors.mean()), abs=spread)


@pytest.mark.parametrize(("a", "better"), [(-0.5, True), (0.5, False)])
def test_covariates_that_shrink_most_where_they_are_large_improve_the_condition(a: float, better: bool) -> None:
    """Linear attention, A = a I: x <- (1 + a X X^T / n) x. Against the condition numbers of that."""
    shape = functional_gradient.Shape(("linear",), 2, 12)
    one = functional_gradient.experiments(functional_identity.SIZES["tiny"], shape)[0]
    model: Any = one.learner.build(5, 13)
    model.as_descent([0.1] * 2).get_parameter("A").data += a * torch.eye(5)
    found = functional_gradient.conditioning(model, one, "linear", 20, "cpu")
    xi, _, _ = functional_gradient.prompts_of("linear", 12, 20, "cpu")
    inputs: Any = one.task.inputs
    x = xi[:, :12] @ torch.tensor(inputs.root, dtype=torch.float64)
    moved = x @ (torch.eye(5) + a / 12 * x.mT @ x)
    first, last = (torch.linalg.svdvals(z)[:, [0, found["m"] - 1]].square() for z in (moved, x))
    factors = (first[:, 0] / first[:, 1]) / (last[:, 0] / last[:, 1])
    assert found["factors"][0] == 1.0
    assert found["factors"][1] == pytest.approx(float(factors.median()), rel=1e-3)
    assert (found["factors"][1] < 1.0) is better


# ------------------------------------------------------------------------------------------------------------ verdicts


def pair(kernel: str, attention: str, last: float, free_A: bool = False) -> Record:
    curve: Record = {"value": [last], "low": [last], "high": [last]}
    return {"kernel": kernel, "heads": attention, "free_A": free_A, "last": {"BC0": 0.01, "BC1": last}, "risk": curve}


@pytest.mark.parametrize(("far", "holds"), [(0, True), (2, True), (3, False)])
def test_seven_of_nine_pairs_must_converge(far: int, holds: bool) -> None:
    sizes = functional_identity.SIZES["tiny"]
    pairs = [(k, h) for k in sizes.kernels for h in functional_identity.ATTENTIONS]
    rows = [pair(k, h, 0.2 if place < far else 0.05) for place, (k, h) in enumerate(pairs)]
    assert functional_identity.judge(False, sizes, rows)[0].holds is holds
    assert functional_identity.judge(True, sizes, rows)[0].holds is None
    assert functional_identity.judge(False, sizes, rows[1:])[0].holds is None


def test_pairs_that_converge_with_their_whole_interval_are_counted() -> None:
    sizes = functional_identity.SIZES["tiny"]
    pairs = [(k, h) for k in sizes.kernels for h in functional_identity.ATTENTIONS]
    rows = [
        pair(k, h, 0.05) | {"last interval": {"BC1": [0.0, 0.2 if n < 2 else 0.06]}} for n, (k, h) in enumerate(pairs)
    ]
    finding = functional_identity.judge(False, sizes, rows)[0]
    assert finding.holds
    assert "in 9 of 9 pairs" in finding.words
    assert "in 7 with its whole interval over seeds" in finding.words


def risks(heads: str, each: list[list[float | None]], **more: Any) -> Record:
    """The row of an attention on exp labels, at 6 examples, 8, ...; ``each``: an error a seed at every place."""
    values = [None if None in seeds else math.prod(seeds) ** (1 / len(seeds)) for seeds in each]
    at = [6, 8, 10][: len(each)]
    return {"kernel": "exp", "heads": heads, "at": at, "risk": {"value": values}, "each": each, **more}


def least(*rows: Record, places: tuple[int, ...] = (6, 8)) -> tuple[bool | None, str]:
    heads = [row["heads"] for row in rows[1:]]
    holds, words, cap, unclear = functional_examples.least(rows, "exp", "softmax", heads, places, "n")
    assert not unclear or holds is False
    return holds, words + cap


def test_the_least_error_is_compared_at_every_place() -> None:
    mine = risks("softmax", [[0.4], [0.4]])
    assert least(mine, risks("exp", [[0.6], [0.5]])) == (True, "exp err at least 1.25 times as much (n = 8)")
    assert least(mine, risks("exp", [[0.6], [0.3]])) == (False, "the best of exp errs only 0.750 times at n = 8")
    assert least(mine, risks("exp", [[0.6], [None]]))[0] is None


def test_a_factor_has_the_interval_of_seeds_compared_with_themselves() -> None:
    """Seeds differ a hundredfold, and the factor is 2 for all of them but for a little."""
    mine = risks("softmax", [[0.01, 0.1, 1.0]])
    holds, words = least(mine, risks("exp", [[0.0198, 0.2, 2.02]]), places=(6,))
    assert (holds, words) == (True, "exp err at least 2.00 times (1.951 to 2.05) as much (n = 6)")


def test_an_error_is_less_than_every_other_by_more_than_the_interval() -> None:
    """linear has a larger error on average than exp, but not for every seed."""
    mine, near, far = (risks("softmax", [[0.1, 0.1]]), risks("exp", [[0.2, 0.2]]), risks("linear", [[0.08, 0.9]]))
    assert least(mine, near, places=(6,))[0] is True
    holds, words = least(mine, near, far, places=(6,))
    assert holds is False
    assert "not by more than the interval: linear at n = 6 (" in words
    rows = (mine, near, far)
    assert functional_examples.compared(
        "c", "a", functional_examples.least(rows, "exp", "softmax", ["exp", "linear"], [6], "n")
    ).unclear
    assert not functional_examples.compared(
        "c", "a", functional_examples.least(rows, "exp", "exp", ["softmax"], [6], "n")
    ).unclear


def test_a_cap_that_matters_is_told() -> None:
    mine, words = (
        risks("softmax", [[0.1], [0.1]]),
        "; the cap of the scores has an effect for h = exp (n = 8; up to 30 %",
    )
    assert words in least(mine, risks("exp", [[0.2], [0.2]], capped=[0.01, 0.3]))[1]
    assert words in least(mine, risks("exp", [[0.2], [0.05]], capped=[0.01, 0.3]))[1]
    assert "cap" not in least(mine, risks("exp", [[0.2], [0.2]], capped=[0.01, 0.02]))[1]


def test_a_condition_number_improves_with_its_whole_interval() -> None:
    def row(values: list[float], highs: list[float | None]) -> Record:
        return {"factors": {"value": values, "high": highs}}

    assert functional_conditioning.improves(row([0.5, 0.8], [0.6, 0.9]))
    assert not functional_conditioning.improves(row([0.5, 0.8], [0.6, 1.1]))
    assert not functional_conditioning.improves(row([0.5, 1.2], [None, None]))


# ------------------------------------------------------------------------------------------------------------ theorems


def test_the_group_averages_as_all_orthogonal_matrices_do() -> None:
    group, M = signed_shifts(3), normal(3, 3)
    assert len(group) == 24
    torch.testing.assert_close(group @ group.mT, torch.eye(3, dtype=torch.float64).expand(24, 3, 3))
    torch.testing.assert_close((group @ M @ group.mT).mean(0), M.trace() / 3 * torch.eye(3, dtype=torch.float64))


PAIRS = [(kernel, h) for kernel in ("relu", "exp") for h in ("linear", "relu", "exp", "softmax")]
START = torch.tensor([[-0.5, -0.4], [0.1, 0.1], [0.8, 0.7], [0.6, 0.9]], dtype=torch.float64)


@pytest.mark.parametrize(("kernel", "attention"), PAIRS)
def test_on_the_predicted_set_the_averaged_gradient_stays_in_it(kernel: str, attention: str) -> None:
    """Theorems 4.5 and 4.6. Without the group, and off the set, it does not."""
    for free_A in (False, True):
        problem = Symmetric(kernel, attention, free_A)
        weights = problem.on_set(START)
        assert off_set(problem.gradient(weights)) < 1e-12
        assert off_set(replace(problem, turned=False).gradient(weights)) > 0.01
        weights["B"] = weights["B"] + 0.1 * normal(*weights["B"].shape)
        assert off_set(problem.gradient(weights)) > 0.01


@pytest.mark.parametrize(("kernel", "attention"), [("exp", "softmax"), ("relu", "relu"), ("exp", "linear")])
def test_descent_on_the_set_ends_where_the_full_gradient_vanishes(kernel: str, attention: str) -> None:
    """And not if B and C are multiples of the identity instead of Sigma^(-1/2)."""
    for free_A in (False, True):
        problem = Symmetric(kernel, attention, free_A)
        start = size(problem.gradient(problem.on_set(START)))
        end = problem.settled(START)
        assert float(end[[0, 2, 3]].abs().min()) > 0.05  # no trivial point
        assert size(problem.gradient(problem.on_set(end))) < 1e-6 * start
        other = torch.eye(3, dtype=torch.float64)
        wrong = problem.settled(START, other)
        assert size(problem.gradient(problem.on_set(wrong, other))) > 1e-3 * start
        assert math.isfinite(float(problem.loss(problem.on_set(wrong, other))))


@pytest.mark.parametrize("harm", ["no distances", "a text", "fewer distances", "nothing in it", "no list"])
def test_records_that_were_harmed_are_refused_in_a_sentence(harm: str, tmp_path: Path) -> None:
    """JSON as it was, and something in it missing, or another thing."""
    figure = FIGURES["identity-softmax"]
    run = Run(figure.study, "tiny", tmp_path, "cpu", Clock())
    assert figure.study.run(run)
    assert all(one.notes["complete"] for one in run.all_records().values())
    figure.finish(run)
    path = tmp_path / "functional-softmax.softmax.json"
    found = json.loads(path.read_text())
    first = found["records"][0]
    if harm == "no distances":
        del first["distances"]
    elif harm == "fewer distances":
        first["distances"] = first["distances"][:1]
    else:
        new = {"a text": ["hello"], "nothing in it": [{}], "no list": {}}[harm]
        found["records"] = new
    path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"softmax.*json is damaged; got .*; move it away, and run the same command"):
        figure.finish(run)
