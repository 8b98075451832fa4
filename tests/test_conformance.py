"""The battery of ``innergrad.testing`` on the library's own table of algorithms, and that its laws can fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import innergrad as ig
from cases import CASES, LONG
from innergrad import IDENTITY, NEGATION, Attend, Lane, Layer, Loop, Score
from innergrad.errors import LoweringError
from innergrad.model.executors import EXECUTORS
from innergrad.targets import TARGETS
from innergrad.testing import Case, Conformance, forward, laws
from logistic_regression import LogisticRegression

FITTED = "llama: gelu, pseudo-huber, by fits"
LAWS = "weights probe {} approximation gradient oracle examples shared scratch inputs box"


class TestInnergrad(Conformance):
    def cases(self) -> Mapping[str, Case]:
        return CASES

    def long_cases(self) -> Mapping[str, Case]:
        return LONG

    def test_every_law_of_verify_holds(self, case: Case) -> None:
        """And there are as many as there were; what is approximated is not exact."""
        report = case.tf.verify(**case.prompts(2))
        assert report.passed, str(report)
        proven = case.tf.options.target in ("relu", "kernel", "llama") and case is not CASES[FITTED]
        assert " ".join(law.name for law in report.laws) == LAWS.format("proof" if proven else "fit")
        assert report.proven == proven
        assert ("no certificate" in str(report)) == (not proven)
        exact = case is CASES["one layer"] or not case.tf.approximants
        assert max(report.distance) > 0 or exact

    @pytest.mark.soak
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
    @pytest.mark.parametrize("executor", EXECUTORS)
    def test_rows_are_what_they_are_alone_by_every_executor(
        self, case: Case, executor: Any, dtype: torch.dtype
    ) -> None:
        if dtype == torch.float32 and not case.float32:
            pytest.skip("a weight is too steep for float32")
        laws.rows_are_what_they_are_alone(case.tf, case.prompts(4), case.ordered, executor, dtype)

    def test_one_function_reads_predictions_off_hidden_states(self, case: Case) -> None:
        """What the module returns, the lane and the sign known to nobody here, against a run."""
        prompts = case.prompts(2)
        hidden = case.tf.module(case.tf.stream(**prompts))
        found, run = case.tf.predictions(hidden, 2), case.tf.run(**prompts, executor="dense")
        assert torch.equal(found, run.predictions)
        numbers = ig.read_predictions(hidden.numpy(), case.tf.reading, 2)
        assert torch.equal(torch.from_numpy(numbers), found)

    def test_a_run_warns_of_what_is_wrong_with_the_algorithms_own(self, case: Case) -> None:
        """The box binds, the loss rises, or predictions are constant, by the oracle; else not a word."""
        prompts, algorithm = case.prompts(2), case.algorithm
        exact = ig.reference(algorithm, **{**prompts, "X_query": prompts["X"]})
        last, y = exact.weights[:, -1], prompts["y"]
        box = bool((last.abs() == (getattr(algorithm, "box", None) or math.inf)).any())
        ball = getattr(algorithm, "ball", None) or math.inf
        box |= bool((last.norm(dim=-1) >= ball * (1 - 1e-9)).any())
        rising = constant = False
        if isinstance(algorithm, ig.GradientDescent):
            path = torch.stack([algorithm.risk(w, prompts["X"], y) for w in exact.weights.unbind(1)])
            least = path.amin(0) if algorithm.monotone else path[0]
            lost = path[-1] > 1.1 * least + 0.25 * (path[0] - least)  # again, a quarter of what was gained
            rising = bool((lost | (path[-1] > 1.02 * path[0])).any())
            constant = bool(((exact.predictions.amax(1) == exact.predictions.amin(1)) & (y.amax(1) > y.amin(1))).any())
        found = {symptom.kind for symptom in case.tf.run(**prompts).symptoms}
        assert ("box binding" in found) == box
        assert ("loss rising" in found) == rising
        assert ("constant predictions" in found) == constant
        assert box or rising or constant or not found


GROWTH = ig.Function(
    "exp(min(t,1))-1",
    lambda t: torch.expm1(torch.clamp(t, max=1.0)),
    curvature=math.e,
    lipschitz=math.e,
    bound=math.e - 1.0,
    left=ig.Asymptote(0.0, -1.0, 0.0),
    right=ig.Asymptote(0.0, math.e - 1.0, 1.0),
    breaks=(1.0,),
)


@dataclass(frozen=True)
class ExponentiatedGradient(ig.Algorithm):
    """w_c *= exp(min(-lr g_c, 1)), g the gradient of half the mean squared error of <w, x>: weights must start, and
    stay, positive.
    """

    d: int
    lr: float = 0.1
    steps: int = 3

    def program(self, options: ig.Options) -> ig.Program:
        del options
        lanes = (Lane("p", (1,)), Lane("e"), Lane("g", (self.d,), shared=True))
        stream = ig.example_stream(self.d, 1, Lane("w", (self.d,), "weight"), *lanes)
        forward = Layer("any", "forward", (Attend("p[0]", Score(IDENTITY, ("x[c]", "w[c]"))),))
        error = Layer("any", "error", (Attend("e", Score(IDENTITY, ("omega", "p[0] - y[0]"))),))
        mean = Attend("g[c]", Score(IDENTITY, ("one", "e")), value="x[c]", scope="all", reduce="mean", scale=-self.lr)
        gradient = Layer("any", "gradient", (mean,))
        update = Layer("any", "update", (Attend("w[c]", Score(GROWTH, ("g[c]", "one")), value="w[c]"),))
        clear = Layer("any", "clear", ig.pointwise(NEGATION, lanes))
        return ig.Program(stream, (Loop(self.steps, (forward, error, gradient, update, clear)),), (forward,), "p")

    def initial_weights(self, seed: int) -> Tensor:
        return torch.full((self.d,), 1.0 / self.d, dtype=torch.float64)

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        if not bool((w0 > 0).all()):
            raise ig.InputError("exponentiated gradient starts from positive weights", got=f"{float(w0.min()):g}")

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        path = [w0]
        for _ in range(self.steps):
            residual = (X @ path[-1].unsqueeze(-1) - y).squeeze(-1)
            gradient = torch.einsum("bn,bn,bnc->bc", omega, residual, X)
            path.append(path[-1] * torch.exp((-self.lr * gradient).clamp(max=1.0)))
        return torch.stack(path, dim=1), X_query @ path[-1].unsqueeze(-1)


class TestExponentiatedGradient(Conformance):
    def algorithm(self) -> ig.Algorithm:
        return ExponentiatedGradient(d=3)

    def start(self, generator: torch.Generator) -> Tensor:
        return torch.rand(3, generator=generator, dtype=torch.float64) + 0.1


def test_weights_are_gaussian_where_nothing_says_otherwise() -> None:
    """So an algorithm that does not take every start needs to say which."""
    case = Case(ExponentiatedGradient(d=3))
    assert bool((case.prompts(3)["w0"] < 0).any())
    with pytest.raises(ig.InputError, match="starts from positive weights"):
        laws.dense_equals_plain(case.tf, case.prompts(3))
    assert torch.equal(Case(case.algorithm, start=lambda generator: None).prompts(3)["w0"], case.prompts(3)["w0"])


@pytest.mark.parametrize("table", [CASES, LONG], ids=["cases", "long"])
def test_every_target_and_variant_is_in_the_table(table: dict[str, Case]) -> None:
    """But lookup tables of long prompts, whose rows are exponential in the number of examples, and variants of llama
    that differ from another in how layers are arranged alone.
    """
    every = {(name, variant) for name, target in TARGETS.items() for variant in target.variants}
    found = set()
    for algorithm, options in ((case.algorithm, case.options) for case in table.values()):
        target = options["target"] or algorithm.home
        found.add((target, options["variant"] or algorithm.variants.get(target, TARGETS[target].variants)[0]))
    arranged = {("llama", variant) for variant in ("wide", "widest", "shortest")}
    assert every - found == (set() if table is CASES else {("softmax", "lookup"), *arranged})


# ------------------------------------------------------------------------------------------------ each law can fail


class WrongOracle(LogisticRegression):
    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        weights, predictions = super().reference(X, y, X_query, w0, omega)
        return weights * 1.01, predictions


class Forgetful(LogisticRegression):
    def config(self) -> dict[str, Any]:
        return {**super().config(), "lr": 0.5}


def broken(kind: type[LogisticRegression] = LogisticRegression, weight: float = 1.0) -> Case:
    """A case of its own; one weight of the first layer is multiplied by ``weight``."""
    case = Case(kind(d=3, steps=2), {"epsilon": 1e-2})
    next(case.tf.module.stored_layers()).W_Q.value[0] *= weight
    return case


def disturbed(monkeypatch: pytest.MonkeyPatch, change: Callable[[ig.Run], Tensor]) -> None:
    """Runs predict something else."""
    run = ig.CompiledTransformer.run

    def other(self: ig.CompiledTransformer, *args: Any, **given: Any) -> ig.Run:
        found = run(self, *args, **given)
        return replace(found, predictions=change(found))

    monkeypatch.setattr(ig.CompiledTransformer, "run", other)


def test_laws_of_the_weights_can_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = broken(weight=1.001)
    with pytest.raises(AssertionError, match="after forward"):
        laws.dense_equals_plain(case.tf, case.prompts(1))
    with pytest.raises(AssertionError):
        laws.cost_counts_the_weights_that_are_there(broken(weight=0.0).tf)
    case = broken()
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", lambda self, state: None)
    with pytest.raises(AssertionError):
        laws.the_state_dict_is_dense_and_loads_back(case.compile(), case.prompts(1))
    monkeypatch.setitem(forward.SIGMA, "relu", lambda z: z)
    with pytest.raises(AssertionError):
        laws.an_independent_forward_pass_agrees(case.tf, case.prompts(1), tmp_path)


def test_laws_of_the_algorithm_can_fail(tmp_path: Path) -> None:
    case = broken(WrongOracle)
    with pytest.raises(AssertionError):
        laws.the_certificate_holds(case.tf, case.prompts(1))
    case = broken(Forgetful)
    with pytest.raises(AssertionError):
        laws.save_and_load_is_the_identity(case.tf, case.prompts(1), tmp_path)


def test_laws_of_runs_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    case, sgd = broken(), CASES["gpt raw: SGD"]
    with pytest.raises(AssertionError):
        laws.the_order_of_examples_matters(case.tf, case.prompts(1))
    with pytest.raises(AssertionError, match="examples in another order, auto"):
        laws.rows_are_what_they_are_alone(sgd.tf, sgd.prompts(1), ordered=False)
    laws.rows_are_what_they_are_alone(case.tf, case.prompts(2), ordered=False)
    calls = itertools.count()
    for change, words in (
        (lambda run: run.predictions + 1e-10 * run.predictions.sum(), "alone"),
        (lambda run: run.predictions + 1e-10 * run.predictions[:1], "alone"),
        (
            lambda run: run.predictions * (1 + 1e-10 * torch.arange(len(run.predictions[0])).double()[:, None]),
            "queries in",
        ),
        (lambda run: run.predictions * (1 + 1e-10 * run.predictions.shape[1]), "a query alone"),
        (lambda run: run.predictions * (1 + 1e-10 * torch.get_num_threads()), "by two threads"),
        (lambda run: run.predictions * (1 + 2e-16 * (next(calls) > 5)), "again"),
    ):
        with monkeypatch.context() as patch:
            disturbed(patch, change)
            with pytest.raises(AssertionError, match=words):
                laws.rows_are_what_they_are_alone(case.tf, case.prompts(2), ordered=False)
    disturbed(monkeypatch, lambda run: run.predictions * (1.001 if run.weights.dtype == torch.float32 else 1.0))
    with pytest.raises(AssertionError):
        laws.float32_is_close_to_float64(case.tf, case.prompts(1))


# ------------------------------------------------------------------------------------------------------- refusals


def test_a_program_the_target_cannot_realise_fails_at_compile_time_with_the_reason() -> None:
    class Impossible(LogisticRegression):
        targets: ClassVar[tuple[str, ...]] = ("relu",)

        def program(self, options: ig.Options) -> ig.Program:
            program = super().program(options)
            layer = program.body[0].layers[0]
            wrong = ig.Layer("product", layer.name, layer.instructions)
            return ig.Program(program.stream, (ig.Loop(1, (wrong,)),), program.readout, "p")

    with pytest.raises(LoweringError, match="a product layer multiplies, it applies no function"):
        ig.compile(Impossible(d=2))
