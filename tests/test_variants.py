"""Variants ``compact`` and ``shallow``: depth, width, products without product layers, and their domain.

The laws that hold for every algorithm are in test_conformance.py, which has cases of both.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.errors import DomainError, LoweringError
from innergrad.functions.derived import square_derivative, within
from innergrad.functions.facts import prove_facts
from innergrad.functions.scalar import IDENTITY
from innergrad.model.prompt import Prompt
from innergrad.targets import TARGETS
from innergrad.targets.parts.functions import together
from innergrad.targets.parts.scores import HingeMlp, Product, ScoreAttention
from innergrad.transformer import exact_run
from logistic_regression import LogisticRegression

VARIANTS = ("compact", "shallow")
DEPTH = {"literal": lambda N: 2 * N + 4, "compact": lambda N: 2 * N - 1, "shallow": lambda N: N + 2}


def gd(
    N: int, K: int = 3, activation: str = "tanh", output: str = "linear", bias: bool = True, **settings: object
) -> ig.GradientDescent:
    sizes = [2, *[K] * (N - 1), 2]
    return ig.GradientDescent(ig.Network(sizes, activation, output, bias), **{"steps": 2, **settings})  # type: ignore[arg-type]


def compiled(algorithm: ig.Algorithm, variant: str, **options: object) -> ig.CompiledTransformer:
    return ig.compile(algorithm, variant=variant, **{"epsilon": 5e-2, "n_examples": 9, **options})  # type: ignore[arg-type]


def prompt_of(algorithm: ig.GradientDescent, n: int = 5, n_query: int = 3, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X, y, X_query = algorithm.random_prompt(n, n_query, generator)
    w0 = torch.randn(algorithm.network.n_weights, generator=generator, dtype=torch.float64).mul(0.7).clamp(-4, 4)
    sample_weight = torch.rand(n, generator=generator, dtype=torch.float64)
    return {"X": X, "y": y, "X_query": X_query, "w0": w0, "sample_weight": sample_weight}


# --------------------------------------------------------------------------------------------------------------- depth


@pytest.mark.parametrize("output", ["linear", "activation"])
@pytest.mark.parametrize("N", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("variant", DEPTH)
def test_layers_a_step(variant: str, N: int, output: str) -> None:
    """In the cost table, and in the module: blocks of attention and mlp; the literal variant counts every sublayer."""
    tf = compiled(gd(N, output=output), variant)
    cost, (block,) = tf.cost(), tf.module.stored_blocks()
    assert cost.layers_a_step == DEPTH[variant](N)
    name = "layers a step" if variant == "literal" else "blocks a step"
    assert cost.totals()[name] == DEPTH[variant](N)
    assert cost.sublayers_a_step == len(block) == tf.n_layers / 2
    kinds = Counter(type(layer) for layer in block)
    if variant == "literal":
        assert (kinds[ScoreAttention], kinds[Product], kinds[HingeMlp]) == (N + 2, N, 2)
        return
    assert kinds[ScoreAttention] == DEPTH[variant](N)
    assert kinds[Product] == 0
    assert not any(isinstance(a, HingeMlp) and isinstance(b, HingeMlp) for a, b in pairwise(block))
    assert [type(layer) for layer in tf.module.stored_readout()] == [ScoreAttention] * N


@pytest.mark.parametrize("variant", VARIANTS)
def test_other_losses_take_the_stated_number_of_blocks_more(variant: str) -> None:
    def more(**settings: object) -> float:
        return compiled(gd(3, **settings), variant).cost().layers_a_step - DEPTH[variant](3)  # type: ignore[arg-type]

    assert [more(loss=loss) for loss in ("log-cosh", "pseudo-huber", "logistic")] == [0, 0, 0]
    assert [more(output="activation", loss=loss) for loss in ("log-cosh", "pseudo-huber")] == [1, 1]
    for d_y in (2, 3, 5):
        net = ig.Network([2, 3, 3, d_y])
        cost = compiled(ig.GradientDescent(net, "softmax", steps=1), variant).cost()
        assert cost.layers_a_step == DEPTH[variant](3) + math.ceil(math.log2(d_y))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_without_a_hidden_layer_is_refused(variant: str) -> None:
    with pytest.raises(ig.InputError, match=r"hidden layer; got N = 1.*literal"):
        compiled(gd(1), variant)


def test_algorithms_without_these_variants_say_so() -> None:
    with pytest.raises(ig.InputError, match="no program for variant 'compact'"):
        compiled(LogisticRegression(d=2), "compact")


# --------------------------------------------------------------------------------------------------------------- width


@pytest.mark.parametrize("K", [3, 5])
def test_jacobians_are_carried_in_lanes_that_are_used_again(K: int) -> None:
    """Two for every layer but the last two, of K^2 entries, whatever N: the width is linear in N."""
    widths = []
    for N in range(4, 12):
        stream = gd(N, K).program(ig.Options(variant="shallow")).stream
        carried = [lane for lane in stream.lanes if lane.name.startswith("T")]
        assert sum(lane.size for lane in carried) == (2 * (N - 2) - 1) * K * K  # the last needs no second one
        widths.append(stream.d_model)
    steps = torch.tensor(widths).diff()
    assert bool((steps == steps[0]).all())
    assert steps[0] == 3 * K * K + K + 4 * K  # V_j, two Jacobians; b_j; p_j, d_j, o_j, s_j


# ------------------------------------------------------------------------------------------------- the same algorithm


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("activation", ig.ACTIVATIONS)
@pytest.mark.parametrize(
    ("output", "loss"),
    [
        ("linear", "squared"), ("linear", "log-cosh"), ("linear", "logistic"), ("linear", "softmax"),
        ("activation", "squared"), ("activation", "pseudo-huber"),
    ],
)  # fmt: skip
def test_the_exact_program_is_gradient_descent(variant: str, activation: str, output: str, loss: str) -> None:
    """Against autograd: widths that differ, biases or none, short and full weighted prompts, momentum, decay."""
    for N, bias, n in ((2, True, 1), (6, False, 9)):
        sizes = [2, 3, 2, 3, 2, 3][:N] + [2]
        net = ig.Network(sizes, activation, output, bias)
        algorithm = ig.GradientDescent(net, loss, lr=0.3, steps=2, box=1.0, momentum=0.5, weight_decay=0.1)
        program = algorithm.program(ig.Options(variant=variant, n_examples=9))
        given = prompt_of(algorithm, n)
        given["w0"] = given["w0"].clamp(-1, 1)
        reference = ig.reference(algorithm, **given)
        omega = given.pop("sample_weight")
        batch = {name: value.unsqueeze(0) for name, value in given.items()}
        prompt = Prompt(**batch, omega=(omega / omega.sum()).unsqueeze(0), batched=False)
        weights, state = exact_run(program, prompt)
        scale = max(1.0, float(reference.predictions.abs().max()))
        assert float((weights[0] - reference.weights).abs().max()) <= 1e-12
        assert float((prompt.predictions(program, state)[0] - reference.predictions).abs().max()) <= 1e-12 * scale


@pytest.mark.parametrize("variant", VARIANTS)
def test_room_for_more_examples_changes_nothing(variant: str) -> None:
    """Blank tokens fill the prompt: 16, 32 or 64 tokens."""
    given = prompt_of(gd(3))
    runs = [compiled(gd(3), variant, n_examples=n).run(**given) for n in (9, 17, 40)]  # type: ignore[arg-type]
    for run in runs[1:]:
        assert float((run.weights - runs[0].weights).abs().max()) <= 1e-14
        assert float((run.predictions - runs[0].predictions).abs().max()) <= 1e-14


def test_prompts_have_a_fixed_length_which_is_saved(tmp_path: Path) -> None:
    tf = compiled(gd(2), "compact")
    assert tf.program.length == tf.cost().n_tokens == 16
    assert json.loads((tf.save(tmp_path) / "config.json").read_text())["prompt"]["length"] == 16
    given = prompt_of(gd(2), 9, 7)
    assert tf.run(**given).predictions.shape == (7, 2)  # type: ignore[arg-type]
    with pytest.raises(ig.InputError, match="9 examples and 8 queries; allowed: 16 together"):
        tf.run(**prompt_of(gd(2), 9, 8))  # type: ignore[arg-type]


def test_blank_tokens_do_not_sit_on_the_kinks_of_a_relu_network() -> None:
    """Without biases, r' of an empty token would be asked for at 0, where it jumps: nothing would be certified."""
    algorithm = gd(3, activation="relu", bias=False, lr=0.01)
    tf = compiled(algorithm, "compact", epsilon=1e-6)
    given = prompt_of(algorithm)
    assert tf.verify(**given).ramp_hits == [0, 0]
    certificate = tf.certify(**given, trajectory=True)  # type: ignore[arg-type]
    assert max(certificate.gradient) < 1e-9
    assert certificate.diverged is None


# --------------------------------------------------------------------------------------------------- joint knots


def test_functions_of_one_argument_in_one_layer_share_their_knots() -> None:
    """So one head writes p_j and d_j; the literal variant has them in different layers, with fewer knots each."""
    compact, literal = (compiled(gd(3, K=4), variant, epsilon=1e-3) for variant in ("compact", "literal"))
    knots = {name: f.knots for name, f in compact.approximants.items()}  # type: ignore[union-attr]
    assert knots["tanh"] == knots["tanh'"]
    assert literal.approximants["tanh"].knots != literal.approximants["tanh'"].knots  # type: ignore[union-attr]
    assert {"tanh", "tanh'"} in map(set, together(compact.program))
    assert all(len(names) == 1 for names in together(literal.program))
    first = compact.cost().rows[0]
    pieces = compact.approximants["tanh'"].pieces  # type: ignore[union-attr]
    assert first.heads == 4 * (pieces + 1) + 1 + 2  # the constant hinge is one head for all; 2 weigh the examples
    separate = sum(row.heads for row in literal.cost().rows if row.kind == "attention" and row.times)
    assert sum(row.heads for row in compact.cost().rows if row.kind == "attention" and row.times) < separate


def test_a_group_takes_the_finest_accuracy_of_its_functions() -> None:
    tf = compiled(gd(2), "compact", epsilons={"tanh'": 1e-2})
    assert tf.approximants["tanh"].error <= 1e-2
    assert tf.verify(prompts=1).passed


# ------------------------------------------------------------------------------------------------- self-selecting heads


@pytest.mark.parametrize("variant", VARIANTS)
def test_self_selecting_heads_see_no_other_token(variant: str) -> None:
    """Off the diagonal their attention is exactly zero; on it the values add up to the product."""
    tf = compiled(gd(4, output="activation"), variant)
    given = prompt_of(gd(4, output="activation"))
    _, cache = tf.module.run_with_cache(tf.stream(**given), lambda name: name.endswith("hook_pattern"))
    seen = 0
    for number, (layer, module) in enumerate(zip(tf.program.body[0].layers, tf.module.layers(), strict=False)):
        if layer.kind == "attention":
            bits = {tf.program.stream.entry("bits", (digit,)) for digit in range(4)}
            head, _, column = module.W_Q.index  # type: ignore[union-attr]
            own = sorted({int(h) for h, c in zip(head, column, strict=True) if int(c) in bits})
            pattern = cache[f"layers.{number}.hook_pattern"][own]
            assert bool((pattern == torch.diag_embed(pattern.diagonal(dim1=-2, dim2=-1))).all())
            assert bool(own) == any(
                layer.kind == "attention" and ScoreAttention.selects(tf.program, i) for i in layer.instructions
            )
            seen += len(own)
    assert seen > 30


@pytest.mark.parametrize(
    ("activation", "options"),
    [("relu", {"z_bound": 0.5}), ("relu", {"n_examples": 100}), ("sigmoid", {"z_bound": 1e5})],
    ids=str,
)
def test_every_law_holds_for_small_and_large_ranges(activation: str, options: dict[str, float]) -> None:
    """The range is never less than r' is; of a wide one little is driven by data."""
    algorithm = gd(3, activation=activation, output="activation", box=1.0)
    tf = compiled(algorithm, "compact", **options)
    given = prompt_of(algorithm)
    report = tf.verify(**{**given, "w0": given["w0"] / 4})
    assert report.passed, str(report)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-53), (torch.float32, 2.0**-24)])
def test_positions_cost_next_to_no_rounding(dtype: torch.dtype, unit: float) -> None:
    """1024 tokens, ranges 64 and 1024: a layer of products is within R m u of the plain interpreter."""
    algorithm = gd(3)
    tf = compiled(algorithm, "compact", n_examples=1000)
    given = prompt_of(algorithm, 1000, 2)
    layer = [layer.name for layer in tf.program.body[0].layers].index("backward 2")
    before, plain = (tf.trace(**given, dtype=dtype)[i][1] for i in (layer, layer + 1))  # type: ignore[arg-type]
    stream = tf.program.stream
    dense = stream.unpack(list(tf.module_for(dtype).layers())[layer](stream.pack(before)))
    error = float((dense["s2"] - plain["s2"]).abs().max())
    assert float(plain["s2"].abs().max()) > 0.0
    assert error <= 64 * 10 * unit


def test_beyond_the_range_a_run_stops_for_the_heads_would_see_other_tokens() -> None:
    algorithm = gd(3, activation="relu", box=64.0)
    tf = compiled(algorithm, "compact", z_bound=1.0)
    assert {f.domain for name, f in tf.approximants.items() if "within" in name} == {(-2.0, 2.0), (-16.0, 16.0)}
    given = prompt_of(algorithm)
    for executor in ("plain", "dense"):
        with pytest.raises(DomainError, match=r"identity within 2 left the domain.*larger z_bound"):
            tf.run(**given, executor=executor)  # type: ignore[arg-type]
    flagged = [tf.run(**given, executor=executor, outside="flag") for executor in ("plain", "dense")]  # type: ignore[arg-type]
    assert all(run.violations for run in flagged)
    assert float((flagged[0].weights - flagged[1].weights).abs().max()) > 1e-3
    given["w0"] = given["w0"] * 0.0  # nothing is multiplied: within any range
    given["w0"][-1] = 1.0
    tf.run(**given)  # type: ignore[arg-type]


def test_a_range_that_is_wide_enough_is_a_power_of_two() -> None:
    algorithm = gd(3, activation="relu", box=64.0)
    wide, given = compiled(algorithm, "compact", z_bound=1000.0), prompt_of(algorithm)
    assert {f.domain[1] for name, f in wide.approximants.items() if "within" in name} == {1024.0, 16.0}
    wide.run(**given)  # type: ignore[arg-type]


def _check(program: ig.Program) -> None:
    TARGETS["relu"].check(program, ig.Options(variant="compact"))


def test_what_self_selecting_heads_need_is_checked() -> None:
    program = gd(2).program(ig.Options(variant="compact", n_examples=9))
    _check(program)
    with pytest.raises(LoweringError, match=r"only through shared keys and values.*fixed length"):
        _check(replace(program, length=None))
    with pytest.raises(LoweringError, match="4 binary digits for 17 tokens"):
        _check(replace(program, length=17))

    def with_score(*score: object) -> ig.Program:
        (loop,) = program.body
        more = ig.Attend("d1[k]", ig.Score(*score), value="p1[k]")  # type: ignore[arg-type]
        layer = replace(loop.layers[1], instructions=(*loop.layers[1].instructions, more))
        return replace(program, body=(replace(loop, layers=(loop.layers[0], layer, *loop.layers[2:])),))

    _check(with_score(within(IDENTITY, 8.0), ("d1[k]", "one")))
    with pytest.raises(LoweringError, match=r"needs a bound on its score; got identity.*within\(f, radius\)"):
        _check(with_score(IDENTITY, ("d1[k]", "one")))
    with pytest.raises(LoweringError, match="both read lanes that differ between tokens"):
        _check(with_score(within(IDENTITY, 8.0), ("d1[k]", "p1[k]")))


def test_arguments_count_also_where_they_are_multiplied_by_nothing() -> None:
    """r'(z) y with y = 0: outside the range of z the head would pick up the targets of other tokens."""
    algorithm = gd(2, activation="relu", output="activation", box=64.0)
    tf, given = compiled(algorithm, "compact"), prompt_of(algorithm)
    given["X"][0], given["y"][0] = 1.0, 0.0
    given["w0"] = torch.full_like(given["w0"], 8.0)
    with pytest.raises(DomainError, match=r"relu\^2.*left the domain"):
        tf.run(**given)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- (r^2)'


@pytest.mark.parametrize("name", ig.ACTIVATIONS)
def test_the_derivative_of_the_square_is_proven(name: str) -> None:
    activation = ig.ACTIVATIONS[name]
    parts = square_derivative(activation)
    assert all(prove_facts(f).proven for f in parts)
    t = torch.linspace(-9.987, 9.987, 4001, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(activation.r(t).square().sum(), t)
    t = t.detach()
    assert float((sum(f(t) for f in parts) - expected).abs().max()) <= 1e-12 * float(expected.abs().max())
    for f in parts:
        if f.left is not None and f.right is not None:
            for side, asymptote in ((-1.0, f.left), (1.0, f.right)):
                far = torch.tensor(side * 60.0, dtype=torch.float64)
                assert abs(float(f(far)) - asymptote.slope * float(far) - asymptote.intercept) < 1e-12


def test_a_user_s_activation_gets_its_square_too() -> None:
    """arctan, from its two formulas alone; what it declares is proven."""
    r = ig.Function(
        "arctan", torch.arctan, curvature=0.65, left=ig.Asymptote(0.0, -math.pi / 2, 0.0),
        right=ig.Asymptote(0.0, math.pi / 2, 0.0), lipschitz=1.0, bound=math.pi / 2,
    )  # fmt: skip
    dr = ig.Function(
        "arctan'", lambda t: 1.0 / (1.0 + t * t), curvature=2.0, left=ig.Asymptote(0.0, 0.0, 0.0),
        right=ig.Asymptote(0.0, 0.0, 0.0), lipschitz=0.65, bound=1.0,
    )  # fmt: skip
    (f,) = square_derivative(ig.Activation("arctan", r, dr, (-math.pi / 2, math.pi / 2)))
    assert prove_facts(f).proven
    assert 0.0 < prove_facts(f).curvature <= f.curvature
