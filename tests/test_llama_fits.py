"""Target llama where neither markers nor kinks make a function: fits in silu units, with their error said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import innergrad as ig
from innergrad import Attend, Layer, Loop, Program, Score
from innergrad.functions.fits.sums import FeatureSum
from innergrad.interpret import plain
from innergrad.targets import TARGETS
from innergrad.targets.parts.base import Context
from innergrad.targets.parts.gated import GatedMlp
from innergrad.targets.parts.rms_norm import RMSNorm
from test_llama import padded
from test_silu_gated import random_state, stream

OPTIONS = ig.Options("llama", "chain", epsilon=1e-12)


def arctan() -> ig.Activation:
    """A user's own, whose facts are declared and proven."""
    half = torch.pi / 2
    r = ig.Function(
        "arctan",
        torch.arctan,
        curvature=0.65,
        lipschitz=1,
        bound=half,
        left=ig.Asymptote(0, -half, 0),
        right=ig.Asymptote(0, half, 0),
    )
    ends = ig.Asymptote(0, 0, 0)
    dr = ig.Function("arctan'", lambda t: 1 / (1 + t * t), curvature=2, lipschitz=0.65, bound=1, left=ends, right=ends)
    return ig.Activation("arctan", r, dr, (-half, half))


POISSON = ig.SmoothLoss("poisson", lambda t, y: (torch.exp(t) - y * t).sum(-1), t_bound=3, y_bound=9)


def huber(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    d = t - y
    return (d.clamp(-0.5, 0.5) * d - d.clamp(-0.5, 0.5).square() / 2).sum(-1)


HUBER = ig.ResidualLoss("huber", huber, u=ig.functions.scalar.clip(0.5))  # its derivative has kinks, and nothing else
ARCTAN_LOSS = ig.ResidualLoss(
    "arctan", lambda t, y: ((t - y).arctan() * (t - y) - torch.log1p((t - y) ** 2) / 2).sum(-1), u=arctan().r
)


def descent(sizes: list[int], activation: Any = "tanh", loss: Any = "squared", **settings: Any) -> ig.GradientDescent:
    net = ig.Network(sizes, activation, settings.pop("output", "linear"))
    return ig.GradientDescent(net, **{"loss": loss, "lr": 0.2, "steps": 3, "box": None} | settings)


ACTIVATIONS: dict[str, Any] = {"gelu": "gelu", "softplus": "softplus", "sin": "sin", "arctan": arctan()}
LOSSES: dict[str, Any] = {"pseudo-huber": "pseudo-huber", "poisson": POISSON, "arctan loss": ARCTAN_LOSS}
CASES = {name: {"activation": activation} for name, activation in ACTIVATIONS.items()}
CASES |= {name: {"loss": loss} for name, loss in LOSSES.items()}


# -------------------------------------------------------------------------------------------------------- the MLP alone


def test_the_gated_mlp_computes_the_sum_that_was_fitted() -> None:
    """To rounding, and the function to within epsilon; both functions of an argument by the same units."""
    r = ig.ACTIVATIONS["gelu"]
    lanes = {"p": ("p[k]", r.r), "B": ("B[1,k]", r.dr)}
    layer = Layer("mlp", "f", tuple(Attend(dst, Score(f, ("x[k]", "one"))) for dst, f in lanes.values()))
    program = RMSNorm().prepare(Program(stream(), (Loop(1, (layer,)),), (), "p"), OPTIONS)
    approximants = TARGETS["llama"].functions.approximants(program, OPTIONS)
    context = Context(program, OPTIONS, RMSNorm(), approximants=approximants)
    state = padded(program, random_state(program, torch.Generator().manual_seed(1)))
    ((_, fitted, _),) = plain.run(program, state, program.functions() | approximants)
    ((_, exact, _),) = plain.run(program, state, program.functions())
    module = GatedMlp.build(layer, context)
    found = program.stream.unpack(module(program.stream.pack(state)))
    for lane in lanes:
        torch.testing.assert_close(found[lane], fitted[lane].expand_as(found[lane]), rtol=1e-14, atol=1e-14)
        assert float((found[lane] - exact[lane]).abs().max()) <= OPTIONS.epsilon
    (units,) = {len(f.a) for f in approximants.values() if isinstance(f, FeatureSum)}
    assert module.W_1.shape[1] == 3 * (units - 1) + 1  # of three entries; the constant is one unit for all


# ------------------------------------------------------------------------------------------------------------ programs


@pytest.mark.parametrize("variant", ["chain", "wide"])
@pytest.mark.parametrize("sizes", [[2, 4, 1], [2, 4, 3, 1]])
@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_gradient_descent_within_the_stated_error(name: str, sizes: list[int], variant: str) -> None:
    algorithm = descent(sizes, **CASES[name])
    tf = ig.compile(algorithm, target="llama", variant=variant, epsilon=1e-9)
    assert tf.state == "measured"
    assert "epsilon = 1e-09, measured" in repr(tf)
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(0))
    reference = ig.reference(algorithm, X, y, X_query)
    for executor in ("plain", "dense", "fused"):
        run = tf.run(X, y, X_query, executor=executor)  # type: ignore[arg-type]
        assert 0 < float((run.weights - reference.weights).norm(dim=-1).max()) < 4e-9
        assert 0 < float((run.predictions - reference.predictions).abs().max()) < 4e-9


@pytest.mark.parametrize("name", CASES)
def test_no_run_is_farther_off_than_its_certificate(name: str) -> None:
    algorithm = descent([2, 3, 1], **CASES[name], steps=2)
    tf = ig.compile(algorithm, target="llama", epsilon=1e-9)
    X, y, X_query = algorithm.random_prompt(5, 2, torch.Generator().manual_seed(0))
    reference = ig.reference(algorithm, X, y, X_query)
    certificate = tf.certify(X, y, X_query, executor="dense")
    assert certificate.state == "measured"
    assert "measured: " in str(certificate)
    run = tf.run(X, y, X_query, executor="dense")
    off = (run.weights - reference.weights).norm(dim=-1)[1:]
    assert all(float(one) <= bound < 1e-7 for one, bound in zip(off, certificate.weights, strict=True))
    assert certificate.predictions is not None
    assert bool(((run.predictions - reference.predictions).abs() <= certificate.predictions).all())


def test_at_the_default_epsilon_fits_are_rounding_in_float64() -> None:
    for name in ("gelu", "pseudo-huber"):
        algorithm = descent([2, 4, 1], **CASES[name])
        tf = ig.compile(algorithm, target="llama")
        assert tf.options.epsilon == 1e-12
        X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(0))
        off = tf.run(X, y, X_query, executor="dense").weights - ig.reference(algorithm, X, y, X_query).weights
        assert float(off.abs().max()) < 1e-13


LAWS = {
    "gelu": ("gelu", [2, 4, 1], "chain", {}),
    "softplus, activated, batches": (
        "softplus",
        [2, 3, 1],
        "wide",
        {"output": "activation", "batches": [[0, 1], [2]]},
    ),
    "sin, box, momentum": ("sin", [2, 4, 3, 1], "wide", {"box": 1.0, "momentum": 0.5}),
    "arctan": ("arctan", [2, 3, 1], "chain", {}),
    "pseudo-huber": ("pseudo-huber", [2, 3, 3, 1], "wide", {}),
    "poisson": ("poisson", [2, 4, 1], "chain", {}),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_law_holds_and_the_fit_is_called_one(name: str) -> None:
    of, sizes, variant, settings = LAWS[name]
    tf = ig.compile(descent(sizes, **CASES[of], **settings), target="llama", variant=variant, epsilon=1e-9)
    report = tf.verify(prompts=2)
    assert report.passed, str(report)
    assert "fit" in {law.name for law in report.laws}
    assert report.state == "measured"
    assert "fitted" in str(report)


def test_a_weight_of_a_fit_that_is_off_is_found() -> None:
    tf = ig.compile(descent([2, 3, 1], "gelu"), target="llama", epsilon=1e-9)
    (layer,) = [x for x in tf.module.stored_layers() if x.name == "activation 1"]
    layer.W_2.value[7] *= 1 + 1e-6
    report = tf.verify(prompts=1)
    assert not report.passed
    assert "activation 1" in str(report)


# ------------------------------------------------------------------------------------------------- what stays, and cost


def test_what_has_kinks_alone_stays_exact() -> None:
    algorithm = descent([2, 4, 1], loss=HUBER)
    tf = ig.compile(algorithm, target="llama")
    assert tf.state == "exact"
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(0))
    run, reference = tf.run(X, y, X_query, executor="dense"), ig.reference(algorithm, X, y, X_query)
    torch.testing.assert_close(run.weights, reference.weights, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("N", [1, 2, 3, 4])
def test_blocks_a_step(N: int) -> None:
    """An activation is a block more for every hidden layer, 3N - 2; a loss one more than by attention, 2N + 1."""

    def blocks(**settings: Any) -> float:
        return (
            ig.compile(descent([2, *[2] * (N - 1), 1], **settings), target="llama", epsilon=1e-4).cost().layers_a_step
        )

    assert blocks(activation="gelu") == max(1, 3 * N - 2)
    assert blocks(loss="pseudo-huber") == blocks(loss="pseudo-huber", output="activation") == 2 * N + 1


def test_leaving_the_domain_is_an_error_and_z_bound_is_it() -> None:
    algorithm = descent([2, 3, 1], "gelu", steps=1, lr=1e-3)
    X, y = torch.full((3, 2), 10.0, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    w0 = torch.full((algorithm.network.n_weights,), 0.5, dtype=torch.float64)
    with pytest.raises(ig.DomainError, match=r"gelu"):
        ig.compile(algorithm, target="llama", epsilon=1e-4).run(X, y, w0=w0)
    wider = ig.compile(algorithm, target="llama", epsilon=1e-4, z_bound=40.0)
    off = wider.run(X, y, w0=w0).weights - ig.reference(algorithm, X, y, w0=w0).weights
    assert 0 < float(off.abs().max()) < 1e-4


def test_an_epsilon_that_cannot_be_met_is_refused_with_one_that_can() -> None:
    with pytest.raises(ig.InputError, match=r"not a sum of 256 units silu.*allowed: at least .*z_bound"):
        ig.compile(descent([2, 3, 1], loss="pseudo-huber"), target="llama", z_bound=60.0)
    with pytest.raises(ig.InputError, match="weight_error needs proven errors"):
        ig.compile(descent([2, 3, 1], "gelu"), target="llama", weight_error=1e-3)


def test_single_functions_may_have_an_epsilon() -> None:
    algorithm = descent([2, 3, 1], loss="pseudo-huber", activation="gelu")
    u = ig.LOSSES["pseudo-huber"].u.name  # type: ignore[attr-defined]
    tf = ig.compile(algorithm, target="llama", epsilon=1e-4, epsilons={u: 1e-8})
    assert tf.approximants[u].error <= 1e-8 < tf.approximants["gelu"].error


def test_saving_and_loading_is_the_identity(tmp_path: Any) -> None:
    algorithm = descent([2, 3, 1], **CASES["arctan"], steps=2)
    tf = ig.compile(algorithm, target="llama", epsilon=1e-6)
    loaded = ig.load(tf.save(tmp_path / "model"), extensions=[arctan()])
    X, y, X_query = algorithm.random_prompt(5, 2, torch.Generator().manual_seed(3))
    assert loaded.state == "measured"
    for executor in ("dense", "plain"):
        a, b = (one.run(X, y, X_query, executor=executor) for one in (tf, loaded))
        assert torch.equal(a.weights, b.weights)
