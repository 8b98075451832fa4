"""Which algorithm a learner runs: measures and probes on planted truth; the experiments of Akyürek et al. (2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad import lab
from innergrad.errors import InputError
from innergrad.lab.baselines import KNN, LeastSquares, OnePass, OneStep, Predictor, Ridge
from innergrad.lab.differences import ILW, REFERENCES, SPD
from innergrad.lab.probes import least_squares, moments, shuffled
from innergrad.lab.stack import Stack
from innergrad.papers import linear_algorithms, linear_inits, linear_noise, linear_probes, linear_sizes, stacks
from innergrad.papers.catalogue import FIGURES
from innergrad.papers.frame import Clock, Finding, Record, Run

D, N = 4, 13
LINEAR: tuple[Predictor, ...] = (
    LeastSquares(),
    Ridge(0.1, intercept=False),
    OneStep(),
    OnePass(),
    OneStep(0.1),
    OnePass(0.2),
)


def drawn(prompts: int, n: int = N, noise: float = 0.0, d: int = D) -> tuple[Tensor, Tensor, Tensor]:
    x, y, params = lab.Linear(d=d, noise=noise).sample(lab.CounterRNG.of(0, "test"), torch.arange(prompts), n)
    return x, y, params["w"]


def unclear(one: Predictor) -> Callable[[Tensor, Tensor], Tensor]:
    """A learner that is nearly an algorithm, and does not say which."""
    return lambda x, y: one(x, y) + 0.02 * torch.sin(50 * x.sum(-1))


# ------------------------------------------------------------------------------------------------------------ measures


@pytest.mark.parametrize("one", REFERENCES, ids=lambda one: one.name)
def test_the_right_algorithm_is_named(one: Predictor) -> None:
    found = lab.compare(unclear(one), lab.Linear(d=D), n_prompts=60, n_points=N, weight_prompts=20)
    few = {"low": 1, "high": D - 1} if one.name != "3-NN, squared-distance weights" else {"low": D, "high": N}
    assert [found.nearest(SPD), found.nearest(ILW), found.nearest(SPD, **few)] == [one.name] * 3
    assert found.curves[SPD][one.name].at(N - 1)[0] < 0.02**2 / D


def test_predictions_that_differ_by_a_number_differ_by_its_square() -> None:
    p = torch.randn(50, 6, dtype=torch.float64)
    assert lab.squared_prediction_difference(p + 3.0, p, d=2).at(4) == pytest.approx((4.5, 4.5, 4.5))


def test_the_least_norm_is_seen_below_d_pairs() -> None:
    """Another solution, least in a norm of its own: it fits every pair, and is told apart only where several do."""
    scales = torch.tensor([3.0, 1.0, 0.5, 1.0])
    found = lab.compare(lambda x, y: LeastSquares()(x * scales, y), lab.Linear(d=D), n_prompts=60, n_points=N)
    curve = found.curves[SPD]["least squares"]
    assert all(curve.at(k)[0] > 0.02 for k in range(1, D))
    assert all(curve.at(k)[0] < 1e-6 for k in range(D, N))


@pytest.mark.parametrize("one", LINEAR, ids=lambda one: one.name)
def test_implied_weights_are_the_weights(one: Predictor) -> None:
    """Those that a predictor says, and those that its predictions imply. All of n pairs, too."""
    x, y, _ = drawn(10, 6, noise=0.3)
    tests = torch.randn(10, 2 * D, D, generator=torch.Generator().manual_seed(0))
    said, implied = (
        lab.implied_weights(f, x, y, tests, [0, 2, 6]) for f in (one, lambda x, y: one(x.double(), y.double()))
    )
    assert torch.allclose(said, implied, atol=1e-5)
    assert said[:, 0].abs().max() == 0


@pytest.mark.parametrize("lam", [0.03, 1.0, 7.0])
def test_the_matching_ridge_is_found(lam: float) -> None:
    x, y, _ = drawn(200, noise=1.0)
    p = Ridge(lam, intercept=False)(x.double(), y.double())
    exact = lab.matching_ridge(p, x, y)
    assert exact.lam == pytest.approx(lam, rel=0.01)
    assert lab.matching_ridge(LeastSquares()(x, y), x, y).at_an_end


def test_its_interval_holds_the_truth() -> None:
    """In 20 trials, with other noise on the predictions in each: 95 % would be 19; 15 or fewer come once in 400."""
    x, y, _ = drawn(60, noise=1.0)
    p, noise = Ridge(1.0, intercept=False)(x.double(), y.double()), torch.Generator().manual_seed(0)
    found = [lab.matching_ridge(p + 0.1 * torch.randn(p.shape, generator=noise), x, y) for _ in range(20)]
    assert sum(one.low < 1.0 < one.high for one in found) >= 16
    assert sum(one.spd for one in found) / 20 == pytest.approx(0.01 / D, rel=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: lab.implied_weights(KNN(), x, y, torch.zeros(2, D - 1, D), [1]),
        lambda x, y: lab.implied_weights(KNN(), x, y, torch.zeros(2, D, D), [N + 1]),
        lambda x, y: lab.matching_ridge(y, x, y, ks=[N]),
        lambda x, y: lab.matching_ridge(y, x, y, lams=(1.0, 0.5, 2.0)),
        lambda x, y: lab.compare(KNN(), lab.Linear(d=2), n_prompts=4, n_points=5).nearest("SDP"),
        lambda x, y: lab.compare(KNN(), lab.Linear(d=2), n_prompts=4, n_points=5).nearest(low=9),
        lambda x, y: lab.probe(lambda x, y: x[None], lab.Linear(d=2), prefixes=[9], n_points=5),
        lambda x, y: lab.probe(lambda x, y: x[None], lab.Linear(d=2), prefixes=[], n_points=5),
        lambda x, y: OneStep(lr=0.0),
    ],
)
def test_wrong_questions_are_refused(wrong: Callable[[Tensor, Tensor], object]) -> None:
    with pytest.raises(InputError):
        wrong(*drawn(2)[:2])


# ------------------------------------------------------------------------------------------------------------- descent


def test_one_step_is_that_of_autograd() -> None:
    x, y, _ = drawn(1)
    w = torch.zeros(D, dtype=torch.float64, requires_grad=True)
    (0.5 * (x[0, :7].double() @ w - y[0, :7]).square().sum()).backward()
    assert w.grad is not None
    assert torch.allclose(OneStep(0.3).linear_weights(x, y)[0, 7], -0.3 * w.grad)


def test_one_pass_is_online_sgd() -> None:
    x, y, _ = drawn(1, 6)
    run = ig.reference(ig.OnlineSGD(d=D, lr=0.2), x[0].double(), y[0].double(), x[0, :1].double())
    assert run.online is not None
    assert torch.allclose(OnePass(0.2)(x.double(), y.double())[0], run.online.flatten())


@pytest.mark.parametrize(("kind", "lr"), [(OneStep, 1 / (6 + D + 1)), (OnePass, 1 / (D + 2))])
def test_the_default_rate_is_the_best(kind: type[OneStep | OnePass], lr: float) -> None:
    x, y, w = drawn(20_000, 7)

    def error(one: Predictor) -> float:
        weights = one.linear_weights(x, y)
        assert weights is not None
        return float((weights[:, 6] - w).square().sum(-1).mean())

    assert error(kind()) == pytest.approx(error(kind(lr)))
    assert error(kind()) < min(error(kind(0.85 * lr)), error(kind(1.15 * lr)))


# -------------------------------------------------------------------------------------------------------------- probes


@pytest.mark.parametrize("k", [2, D, 9])
def test_targets(k: int) -> None:
    x, y, _ = drawn(5, k, noise=0.5)
    exact = (torch.linalg.pinv(x.double()) @ y.double()[..., None])[..., 0]
    assert torch.allclose(least_squares(x, y).double(), exact, atol=1e-4)
    assert torch.allclose(moments(x, y), (x * y[..., None]).sum(1), atol=1e-5)
    assert torch.allclose(shuffled(moments)(x, y), (x * y[:, [k - 1, *range(k - 1)], None]).sum(1), atol=1e-5)


def test_probes_find_what_is_planted() -> None:
    """Layer 0 has the tokens; layer 1 has X^T y of the first k pairs at the label of pair k, in a form that is linear
    for moments, and not for weights; their controls are nowhere.
    """
    d, n = 2, 4

    def states(x: Tensor, y: Tensor) -> Tensor:
        tokens = torch.zeros(2, len(x), 2 * n - 1, 2 * d + 1)
        tokens[..., -1] = 1.0  # alpha has no bias: it can tell tokens apart by a constant alone
        tokens[:, :, ::2, :d], tokens[:, :, 1::2, d] = x, y[:, :-1]
        for k in range(1, n):
            w = least_squares(x[:, :k], y[:, :k])
            tokens[1, :, 2 * k - 1, : 2 * d] = torch.cat((moments(x[:, :k], y[:, :k]) / k, w.sign() * w.square()), -1)
        return tokens

    config = lab.ProbeConfig(width=24, steps=200, batch=64, lr=3e-2, n_prompts=256)
    found = lab.probe(states, lab.Linear(d=d), prefixes=[3], n_points=n, config=config)
    error = {key: float(value[1, 0]) for key, value in found.errors.items()}
    assert error["linear", "moments"] < 0.05
    assert error["mlp", "weights"] < 0.3 * error["linear", "weights"] < 0.1
    assert all(error["mlp", name] < 0.3 * error["mlp", f"{name}, control"] for name in ("moments", "weights"))
    assert float(found.errors["mlp", "moments"][0, 0]) > 10 * error["mlp", "moments"]
    assert int(found.attention["mlp", "moments"][1, 0].argmax()) == 5
    assert found.steps == 200
    short = lab.probe(states, lab.Linear(d=d), prefixes=[2], n_points=n, config=config, seconds=1e-3)
    assert short.steps < 200


# ------------------------------------------------------------------------------------------------------ initial weights


@pytest.mark.parametrize(
    ("how", "variances"), [("uniform-scaling", (1 / 32, 1.0, 1 / 19)), ("normal", (1.0, 1.0, 1.0))]
)
def test_initial_weights_have_the_variance_they_should(how: Any, variances: tuple[float, ...]) -> None:
    shape = lab.GPTConfig(
        n_layers=4, d_model=32, n_heads=2, d_mlp=64, weight_init=how, bias_init=how, position_init=how
    )
    learner = shape.build(d=3, n_points=10).init([0])
    for name, variance in zip(("W_in", "b_in", "W_pos"), variances, strict=True):
        value = learner.get_parameter(name).detach()
        assert float(value.var()) == pytest.approx(variance, rel=0.15)
        assert how == "normal" or float(value.abs().max()) <= math.sqrt(3 * variance)


def test_models_of_a_stack_may_begin_in_different_ways() -> None:
    first, *_, second = linear_inits.experiments(linear_inits.TINY)
    stack = Stack([first, second], "cpu")
    for number, one in enumerate((first, second)):
        alone = Stack([one], "cpu")
        assert torch.equal(stack.theta[number], alone.theta[0])
    assert not torch.equal(stack.theta[0], stack.theta[1])
    with pytest.raises(InputError, match="may not differ"):
        lab.train([first, replace(second, learner=replace(first.learner, n_layers=2))])  # type: ignore[call-arg]


# ---------------------------------------------------------------------------------------------------------- experiments


def tiny(study: str, folder: Path) -> Run:
    return Run(
        next(one.study for one in FIGURES.values() if one.study.name == study), "tiny", folder, "cpu", Clock(600.0)
    )


SOAK = [pytest.param(name, marks=pytest.mark.soak) for name in ("linear-noise", "linear-inits")]  # the same code


@pytest.mark.parametrize("study", ["linear-algorithms", "linear-sizes", *SOAK])
def test_an_experiment_runs_is_judged_and_is_not_run_again(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny(study, tmp_path)
    assert not run.study.run(replace(run, clock=Clock(0.0)))
    assert not list(tmp_path.iterdir())
    assert run.study.run(run)
    monkeypatch.setattr(stacks, "train_within", lambda *_, **__: pytest.fail("trained again"))
    assert run.study.run(run)
    for figure in (one for one in FIGURES.values() if one.study.name == study):
        found = figure.finish(run)
        assert found["verdict"] in ("reproduced", "partly", "not")
        assert {row["interval"] for row in found["rows"]} == {"seeds"}
        assert (tmp_path / f"{figure.name}.png").is_file()


class Planted:
    """A learner that is an algorithm."""

    def __init__(self, predict: Predictor) -> None:
        self.predict = predict


def held(found: list[Finding]) -> list[bool | None]:
    return [one.holds for one in found]


def algorithms(one: Predictor) -> list[bool | None]:
    """The findings of Fig. 1 about a planted learner."""
    sizes, bench = linear_algorithms.TINY, linear_algorithms.bench(linear_algorithms.TINY, "cpu")
    curves = {SPD: bench.spd(one), ILW: bench.ilw(one)}
    records = [{"measure": name, "seed": 0, "prompts": 30, "curves": value} for name, value in curves.items()]
    return held(linear_algorithms.judge(sizes, linear_algorithms.rows(sizes, records)))


def test_fig_1_is_judged_by_its_rules() -> None:
    assert algorithms(LeastSquares()) == [True, True, True, True]
    assert algorithms(Ridge(1e-3, intercept=False)) == [True, True, True, True]
    assert algorithms(OneStep()) == [False, False, False, False]
    assert held(linear_algorithms.judge(linear_algorithms.TINY, [])) == [None]


def noise(factor: float) -> list[Record]:
    """Rows of Fig. 2: learners whose lambda is so many times that of the best."""
    sizes, records = replace(linear_noise.TINY, prompts=60), []
    run = Run(replace(linear_noise.STUDY, sizes={"tiny": sizes}), "tiny", Path(), "cpu", Clock())
    for sigma, tau in sizes.cells:
        task = lab.Linear(d=sizes.d, noise=sigma, tau=tau)
        best = task.best()
        other = replace(best, lam=factor * best.lam) if isinstance(best, Ridge) else best
        planted: Any = Planted(other)
        records.append({"sigma": sigma, "tau": tau, "seed": 0, **linear_noise.match(run, planted, task)})
    return linear_noise.rows(sizes, records)


def test_fig_2_is_judged_by_its_rules() -> None:
    sizes = linear_noise.TINY
    rows = noise(1.0)
    assert held(linear_noise.judge(sizes, rows)) == [True, True, True]
    assert all(linear_noise.identifiable(row) for row in rows if row["sigma"])
    assert held(linear_noise.judge(sizes, noise(1.6))) == [False, True, True]
    assert held(linear_noise.judge(sizes, rows[:-1])) == [None]
    flat = [{**row, "curve": [1.0] * len(row["curve"])} for row in rows]  # no lambda is better than another
    assert held(linear_noise.judge(sizes, flat))[0] is False
    apart = [{**row, "lam": 3 * row["truth"]} if row is flat[-1] else row for row in (*rows[:-1], flat[-1])]
    assert held(linear_noise.judge(sizes, apart))[0] is True
    words = linear_noise.judge(sizes, apart)[0].words
    assert "outside a factor of 1.5, and not judged since not identifiable: sigma = 1 and tau = 1" in words
    assert "not judged" not in linear_noise.judge(sizes, rows)[0].words


class Shrunk(Predictor, kind="shrunk"):
    """A third of a step of gradient descent."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return OneStep()(x, y) / 3


def sizes_rows(depths: list[Predictor], narrow: Predictor) -> list[Record]:
    sizes = replace(linear_sizes.TINY, depths=(1, 2, 4), widths=(8,), blocks=4, d_model=32)
    run = Run(replace(linear_sizes.STUDY, sizes={"tiny": sizes}), "tiny", Path(), "cpu", Clock())
    records = []
    for blocks, width, one in [*((b, 32, one) for b, one in zip((1, 2, 4), depths, strict=True)), (4, 8, narrow)]:
        planted: Any = Planted(one)
        found = linear_sizes.distances(run, planted)
        records += [{"blocks": blocks, "width": width, "seed": seed, **found} for seed in (0, 1)]
    return linear_sizes.rows(sizes, records)


def test_fig_3_is_judged_by_its_rules() -> None:
    sizes = replace(linear_sizes.TINY, depths=(1, 2, 4), widths=(8,), blocks=4, d_model=32)
    gd, ridge, exact = OneStep(), Ridge(0.3, intercept=False), LeastSquares()
    assert held(linear_sizes.judge(sizes, sizes_rows([gd, ridge, exact], ridge))) == [True] * 4
    assert held(linear_sizes.judge(sizes, sizes_rows([gd, exact, exact], exact))) == [True, False, False, True]
    assert held(linear_sizes.judge(sizes, sizes_rows([ridge, gd, exact], gd))) == [False, False, False, True]
    assert held(linear_sizes.judge(sizes, sizes_rows([gd, ridge, exact], ridge)[:6])) == [None] * 4
    little = Shrunk()  # nearest to a step of descent, and to zero still nearer
    assert linear_sizes.matched(sizes_rows([little, ridge, exact], little)[:6])["family"] == linear_sizes.GD
    assert held(linear_sizes.judge(sizes, sizes_rows([little, ridge, exact], little))) == [True, True, False, True]
    assert linear_sizes.judge(sizes, sizes_rows([little, ridge, exact], little))[2].unclear  # the narrowest


def probe_rows(
    moments: list[float], weights: list[float], control: float, token: int, half: float = 0.01
) -> list[Record]:
    """Rows of Fig. 4: errors of MLPs by layer, of every control, and where alpha looks (from the right token). Linear
    read-outs are worse by 0.1. ``half``: of every interval.
    """
    sizes, found = linear_algorithms.SIZES["tiny"], []
    for states in ("trained", "untrained"):
        for readout in ("linear", "mlp"):
            for target, values in (("moments", moments), ("weights", weights)):
                worse = [value + 0.1 for value in values] if readout == "linear" else values
                looks = [[[float(t == 2 * k - 1 + token) for t in range(11)] for k in sizes.prefixes]] * len(values)
                for name, errors in ((target, worse), (f"{target}, control", [control] * len(values))):
                    errors = errors if states == "trained" else [control] * len(values)
                    key = {"states": states, "readout": readout, "target": name, "steps": [7]}
                    ends = {"low": [value - half for value in errors], "high": [value + half for value in errors]}
                    found.append({**key, "value": errors, **ends, "each": [errors], "attention": looks})
    return found


def test_fig_4_is_judged_by_its_rules() -> None:
    sizes: Any = linear_algorithms.SIZES["tiny"]
    early, late = [0.8, 0.1, 0.1, 0.1], [0.8, 0.8, 0.8, 0.1]
    assert held(linear_probes.judge(sizes, probe_rows(early, late, 0.5, 0))) == [True] * 9
    assert held(linear_probes.judge(sizes, probe_rows(late, early, 0.05, 3))) == [False, True, True, False] * 2 + [
        False
    ]
    assert held(linear_probes.judge(sizes, [])) == [None]
    wide = held(linear_probes.judge(sizes, probe_rows(early, late, 0.5, 0, half=0.2)))
    assert [place for place, one in enumerate(wide) if not one] == [2, 6]  # an MLP is better, within the interval


@pytest.mark.parametrize(
    ("mlp", "linear", "holds", "unclear"),
    [
        ([0.20, 0.10, 0.15], [0.22, 0.12, 0.171], True, False),  # seeds differ by more than the read-outs do
        ([0.20, 0.10, 0.15], [0.22, 0.12, 0.149], False, True),  # better on the whole; one seed says otherwise
        ([0.22, 0.12, 0.171], [0.20, 0.10, 0.15], False, False),  # worse in every seed
        ([0.20, 0.12, 0.149], [0.21, 0.10, 0.15], False, True),  # worse on the whole, within the interval
    ],
)
def test_read_outs_are_compared_seed_by_seed(mlp: list[float], linear: list[float], holds: bool, unclear: bool) -> None:
    sizes: Any = linear_algorithms.SIZES["tiny"]
    rows = probe_rows([0.8, 0.1, 0.1, 0.1], [0.8, 0.8, 0.8, 0.1], 0.5, 0)
    for row in rows:
        row["each"] = [[0.8, 0.5, 0.5, least] for least in (linear if row["readout"] == "linear" else mlp)]
    found = linear_probes.judge(sizes, rows)
    assert [(one.holds, one.unclear) for one in (found[2], found[6])] == [(holds, unclear)] * 2


def test_table_1_is_judged_by_its_rules() -> None:
    def rows(worse: dict[str, float]) -> list[Record]:
        """Errors that N(0, 1) makes so many times larger, part by part; a seed 1 % larger than the other."""
        records = []
        for how in linear_inits.COMBINATIONS:
            named = dict(zip(linear_inits.PARTS, how, strict=True))
            value = 0.1 * math.prod(worse[part] for part in named if named[part] == "normal")
            records += [{**named, "seed": seed, "value": (1 + 0.01 * seed) * value} for seed in (0, 1)]
        return linear_inits.rows(linear_inits.TINY, records)

    found = linear_inits.judge(linear_inits.TINY, rows({"weight": 3.0, "bias": 0.5, "position": 1.0}))
    assert held(found) == [True, False, False]
    assert "3 times" in found[0].words
    found = linear_inits.judge(linear_inits.TINY, rows({"weight": 3.0, "bias": 2.0, "position": 2.0}))
    assert held(found) == [True, True, True]
    nothing = linear_inits.judge(linear_inits.TINY, rows({"weight": 10.0, "bias": 1.0, "position": 10.0}))
    assert [one.testable for one in nothing] == [True, True, True]
    assert "over the 1 of 4 pairs" in nothing[1].words


def test_a_ratio_of_errors_is_over_pairs_that_learned() -> None:
    """A bias that doubles the error is seen, though half of the combinations learn nothing, whatever their bias is."""
    records: list[Record] = []
    for how in linear_inits.COMBINATIONS:
        named = dict(zip(linear_inits.PARTS, how, strict=True))
        value = 1.02 if named["weight"] == "normal" else 0.2 if named["bias"] == "normal" else 0.1
        records += [{**named, "seed": seed, "value": (1 + 0.001 * seed) * value} for seed in (0, 1)]
    rows = linear_inits.rows(linear_inits.TINY, records)
    each, pairs = linear_inits.ratios(rows, "bias")
    assert (pairs, each) == (2, pytest.approx([math.log(2.0)] * 2))
    assert linear_inits.ratios(rows, "weight")[1] == 4
    dead = [row | {"value": 1.02, "each": [1.02, 1.02]} for row in rows]
    weight, bias, _ = linear_inits.judge(linear_inits.TINY, dead)
    assert (weight.holds, weight.testable, bias.holds, bias.testable) == (False, True, None, False)


def test_intervals_are_those_of_seeds_and_of_prompts() -> None:
    """Rows of the right panel of Fig. 2 and of the middle panels of Fig. 4."""
    curve = {"sigma": 1.0, "tau": 1.0, "prompts": 9, "unit": 1.0, "lam": 1.0, "low": 0.9, "high": 1.1}
    records = [curve | {"seed": seed, "curve": [value, 1.0]} for seed, value in ((0, 1.0), (1, 4.0))]
    sizes = replace(linear_noise.TINY, sigmas=(1.0,), taus=(1.0,))
    (row,) = linear_noise.rows(sizes, records)
    assert row["spread"][1] == [1.0, 1.0, 1.0]
    value, low, high = row["spread"][0]
    assert (value, low * high) == pytest.approx((2.0, 4.0), rel=1e-4)
    assert high == pytest.approx(2.0 * math.exp(12.706 * math.log(2.0)), rel=1e-3)
    probes = {"measure": "probes", "states": "trained", "steps": 5, "errors": {"mlp, moments": [[0.5]]}}
    probes |= {"spread": {"mlp, moments": [[0.1]]}, "attention": {"mlp, moments": [[[0.2, 0.8]]]}}
    other = probes | {"errors": {"mlp, moments": [[0.7]]}, "attention": {"mlp, moments": [[[0.4, 0.6]]]}}
    tiny: Any = linear_algorithms.SIZES["tiny"]
    (one,) = linear_probes.rows(tiny, [probes | {"seed": 0}])
    (two,) = linear_probes.rows(tiny, [probes | {"seed": 0}, other | {"seed": 1}])
    assert one["half"] == [[pytest.approx(0.196)]]
    assert "attention half" not in one
    assert two["half"] == [[pytest.approx(12.706 * 0.1, rel=1e-4)]]
    assert two["attention half"] == [[[1.27] * 2]]  # three digits
    assert (linear_probes.said(one, 0), linear_probes.said({"value": [0.5]}, 0)) == ("0.5 (0.3 to 0.7)", "0.5")
