"""Variant narrow: the weights in tokens of their own, one a neuron."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.export.note import note
from innergrad.interpret import plain
from innergrad.interpret.affine import BALL, BEFORE, Affine, radius_of
from innergrad.ir.program import Attend, Layer, Loop, Mark, Part, Program
from innergrad.model.prompt import flat_weights, placed
from innergrad.targets.parts.scores import ScoreAttention
from innergrad.transformer import exact_run

N_EXAMPLES = 9


def descent(sizes: list[int], activation: str = "tanh", output: str = "linear", bias: bool = True, **settings: object):
    return ig.GradientDescent(ig.Network(sizes, activation, output, bias), **settings)  # type: ignore[arg-type]


@cache
def compiled(algorithm: ig.GradientDescent, variant: str = "narrow", epsilon: float = 1e-3) -> ig.CompiledTransformer:
    return ig.compile(algorithm, variant=variant, epsilon=epsilon, n_examples=N_EXAMPLES)


def prompts(algorithm: ig.GradientDescent, n: int = 7, n_query: int = 2, batch: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    drawn = [algorithm.random_prompt(n, n_query, generator) for _ in range(batch)]
    X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
    w0 = torch.stack([algorithm.network.init(seed) for seed in range(batch)])
    return {"X": X, "y": y, "X_query": X_query, "w0": w0}


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


ALGORITHMS = {
    "uneven": descent([3, 4, 6, 5, 2], steps=2, lr=0.3),
    "wide inputs": descent([7, 2, 3, 1], "gelu", steps=2),
    "wide outputs": descent([2, 3, 6], "softplus", "activation", bias=False, loss="log-cosh", steps=2),
    "one layer": descent([3, 2], loss="pseudo-huber", steps=2),
    "momentum, decay": descent([2, 3, 3, 1], "sigmoid", steps=3, lr=0.5, momentum=0.8, weight_decay=0.1),
    "softmax": descent([2, 4, 5], loss="softmax", steps=2),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_exact_program_is_autograd_for_any_number_of_weighted_examples(name: str) -> None:
    algorithm = ALGORITHMS[name]
    tf = compiled(algorithm)
    for n, n_query in ((1, 2), (4, 6), (N_EXAMPLES, 1), (N_EXAMPLES, 0)):
        given = prompts(algorithm, n, n_query)
        weight = torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        exact = ig.reference(algorithm, **given, sample_weight=weight)
        prompt = tf.prompt(**given, sample_weight=weight)
        weights, state = exact_run(tf.program, prompt)
        assert state["x"].shape[1] == tf.program.length
        assert far(weights, exact.weights) < 1e-12
        assert n_query == 0 or far(prompt.predictions(tf.program, state), exact.predictions) < 1e-12


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_computes_what_the_literal_variant_computes(name: str) -> None:
    algorithm = ALGORITHMS[name]
    given = prompts(algorithm)
    literal = compiled(algorithm, "literal").run(**given)
    for executor in ("plain", "dense"):
        run = compiled(algorithm).run(**given, executor=executor)  # type: ignore[arg-type]
        assert far(run.weights, literal.weights) < 1e-13
        assert far(run.predictions, literal.predictions) < 1e-13


# ---------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("N", range(2, 7))
def test_a_step_has_3n_plus_3_layers(N: int) -> None:
    tf = compiled(descent([2, *[3] * (N - 1), 1], steps=2))
    assert tf.n_layers == 2 * (3 * N + 3)
    assert len(tf.module.stored_blocks()[0]) == 3 * N + 3
    assert tf.cost().totals()["layers"] == 2 * (3 * N + 3)
    assert tf.n_readout_layers == N + 1


@pytest.mark.parametrize("d_y", [2, 5, 8])
def test_softmax_takes_a_tree_of_log_sum_exp_more(d_y: int) -> None:
    assert compiled(descent([2, 3, d_y], loss="softmax", steps=1)).n_layers == 9 + math.ceil(math.log2(d_y))


WIDTHS = (4, 8, 16, 32, 64)


def test_the_width_is_linear_in_k_and_heads_do_not_depend_on_it() -> None:
    """(4N - 2) K + ...; all weights in every token take a multiple of K^2."""
    narrow, literal = (
        {K: compiled(descent([2, K, K, 2], bias=False, steps=1), variant) for K in WIDTHS}
        for variant in ("narrow", "literal")
    )
    for K, tf in narrow.items():
        assert tf.d_model == 10 * K + 20
        assert tf.program.length == N_EXAMPLES + 1 + 2 * K + 2
    slope = math.log(literal[64].d_model / literal[32].d_model) / math.log(2)
    assert slope > 1.7
    assert narrow[16].d_model == 180 < literal[16].d_model / 2.3
    heads = {K: [row.heads for row in tf.cost().rows if row.kind == "attention"] for K, tf in narrow.items()}
    assert all(heads[K] == heads[4] for K in WIDTHS)
    assert literal[64].n_heads > 15 * literal[4].n_heads
    assert narrow[64].n_heads < literal[4].n_heads


def test_the_counted_heads_are_the_built_ones() -> None:
    for K in (3, 6):
        module = compiled(descent([2, K, K, 1], steps=1)).module
        built = [layer.n_heads for layer in module.stored_layers() if type(layer) is ScoreAttention]
        r, dr = (len(compiled(descent([2, K, K, 1], steps=1)).approximants[f].hinges) for f in ("tanh", "tanh'"))
        derivatives = 2 * (dr - 1) + 1  # one head for all constants
        assert built == [r, r, 2, derivatives, 2, 2, 6, r, r, 2]


# --------------------------------------------------------------------------------------------------------------- tokens


def test_tokens_without_an_example_change_no_weight_and_only_neurons_hold_one() -> None:
    """Whatever the lanes x and y of neuron and blank tokens hold: not a bit of a weight depends on it."""
    algorithm = ALGORITHMS["momentum, decay"]
    tf = compiled(algorithm)
    given = prompts(algorithm, n=4, n_query=1)
    stream, carriers = tf.program.stream, tf.program.carriers
    state = tf.prompt(**given).state(tf.program)
    blank = (state["t"] == 0)[0]
    assert carriers == 7
    assert int(blank.sum()) == carriers + N_EXAMPLES + 1 - 4
    ends = []
    for noise in (0.0, 3.0):
        changed = dict(state)
        for lane in ("x", "y"):
            random = torch.randn(state[lane].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            changed[lane] = state[lane] + noise * random * blank[:, None]
        h = stream.pack(changed)
        for (_, step_ends), layer in zip(tf.program.schedule(), tf.module.layers(), strict=True):
            h = layer(h)
            after = stream.unpack(h)
            for lane in tf.program.weights:  # also in the middle of a step
                assert not bool(after[lane.name][:, carriers:].any())
            if step_ends:
                for lane in stream.lanes:
                    if lane.role == "scratch":
                        assert not bool(after[lane.name].any())
                w = flat_weights(tf.program, after)
                for name, lane in placed(tf.program, w, h.shape[1]).items():
                    assert torch.equal(lane, after[name])
        ends.append(w)
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], given["w0"])


def test_there_is_room_for_n_examples_and_a_query() -> None:
    algorithm = ALGORITHMS["wide inputs"]
    tf = compiled(algorithm)
    given = prompts(algorithm, n=7, n_query=3)
    together = tf.run(**given)
    for i in range(3):
        alone = tf.run(**{**given, "X_query": given["X_query"][:, i : i + 1]})
        assert far(alone.predictions, together.predictions[:, i : i + 1]) < 1e-13
        assert far(alone.weights, together.weights) < 1e-13
    with pytest.raises(ig.InputError, match="7 examples and 4 queries; allowed: 10 together"):
        tf.run(**prompts(algorithm, n=7, n_query=4))


def test_weights_go_into_the_lanes_and_come_back() -> None:
    program = compiled(ALGORITHMS["uneven"]).program
    w = torch.arange(1.0, program.n_weights + 1).repeat(2, 1)
    lanes = placed(program, w, program.length or 0)
    assert torch.equal(flat_weights(program, lanes), w)
    assert sum(int((lane != 0).sum()) for lane in lanes.values()) == 2 * program.n_weights
    net = ALGORITHMS["uneven"].network
    (V, b), (V_3, _) = net.unflatten(w[0])[0], net.unflatten(w[0])[2]
    assert torch.equal(lanes["V1"][0, :4], V)
    assert torch.equal(lanes["b1"][0, :4], b)
    assert torch.equal(lanes["V2"][0, 10:15], V_3)


def test_a_placement_is_checked() -> None:
    lanes = (ig.Lane("w", (2,), "weight", shared=False), ig.Lane("e", (1,), "input"), ig.Lane("p", (1,)))
    stream = ig.example_stream(2, 1, *lanes)
    body = (Loop(1, (Layer("product", "step", (Attend("w[k]", value="w[k]"),)),)),)

    def make(parts: tuple[Part, ...], marks: tuple[Mark, ...] = (), length: int | None = 9) -> Program:
        return Program(stream, body, (), "p", length=length, placement=parts, marks=marks)

    assert make((Part("w", 2, 0), Part("w", 1, 3))).carriers == 4
    wrong = [
        ("weight lane", lambda: make((Part("w", 3, 0),))),
        ("weight lane", lambda: make((Part("w", 1),))),
        ("weight lane", lambda: make((Part("x", 1, 0),))),
        ("same place", lambda: make((Part("w", 1, 0), Part("w", 2, 0)))),
        ("fixed length", lambda: make((Part("w", 1, 0),), length=None)),
        ("a mark", lambda: make((Part("w", 1, 0),), (Mark("e", 1, 0),))),
        ("a mark", lambda: make((Part("w", 1, 0),), (Mark("e", 0, 1),))),
        ("a mark", lambda: make((Part("w", 1, 0),), (Mark("p", 0, 0),))),
    ]
    for message, build in wrong:
        with pytest.raises(ig.InputError, match=message):
            build()


# --------------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("name", ["uneven", "momentum, decay", "softmax"])
def test_the_certificate_is_that_of_the_literal_variant(name: str) -> None:
    """A step's bound is the same, up to rounding; the path's holds, and is not much larger."""
    algorithm = ALGORITHMS[name]
    given = prompts(algorithm)
    certified = {v: compiled(algorithm, v).certify(**given, trajectory=True) for v in ("literal", "narrow")}
    narrow, literal = certified["narrow"], certified["literal"]
    for a, b in zip(narrow.steps, literal.steps, strict=True):
        assert far(a.radius, b.radius) < 1e-12
        total = sum(b.shares.values())
        assert sum(a.shares.values()) == pytest.approx(total, rel=1e-6)
        for function in ("tanh", "sigmoid", "tanh'", "sigmoid'", "products"):
            parts = [sum(v for k, v in step.shares.items() if k.startswith(f"{function}: ")) for step in (a, b)]
            assert parts[0] == pytest.approx(parts[1], rel=1e-6, abs=1e-9 * total)
    assert narrow.trajectory is not None
    assert literal.trajectory is not None
    exact = ig.reference(algorithm, **given)
    assert bool(((narrow.path - exact.weights)[:, 1:].norm(dim=-1) <= narrow.trajectory).all())
    assert float((narrow.trajectory / literal.trajectory).max()) < 2.0


@pytest.mark.parametrize(("sizes", "activation", "size"), [([1, 2, 1], "sigmoid", 0.3), ([2, 4, 4, 2], "tanh", 0.01)])
def test_the_forms_enclose_a_step_from_every_point_around_the_weights(
    sizes: list[int], activation: str, size: float
) -> None:
    """The exact step from w + size xi is w' + M xi, within the radii and balls, which are not much too large."""
    algorithm = descent(sizes, activation, steps=1, lr=1.0, box=None)
    program, given = compiled(algorithm).program, prompts(algorithm, n=4, batch=1)
    entries = torch.eye(program.n_weights, dtype=torch.float64)
    affine = Affine(program, {}, columns=True)
    for name, lane in placed(program, entries, program.length or 0).items():
        affine.start(name, size * lane.movedim(0, -1).unsqueeze(0))

    def step(w0: Tensor, beside: Affine | None = None) -> dict[str, Tensor]:
        state = compiled(algorithm).prompt(**{**given, "w0": w0}).state(program)
        for layer in program.body[0].layers:
            after = plain.apply_layer(program, layer, state, program.functions())
            if beside is not None:
                beside.layer(layer, state, after)
            state = after
        return state

    reached = step(given["w0"], affine)
    errors = {lane.name: affine.errors[lane.name] for lane in program.weights}
    likes = {name: torch.ones_like(reached[name]) for name in errors}
    blocks = (
        flat_weights(program, {name: error[BEFORE][..., z] for name, error in errors.items()})
        for z in range(program.n_weights)
    )
    M = torch.stack([block[0] for block in blocks], dim=-1)
    rest = {name: radius_of(error, likes[name], "IR") + error[BALL] for name, error in errors.items()}
    allowed, generator, closest = flat_weights(program, rest)[0], torch.Generator().manual_seed(0), 0.0
    for _ in range(50):
        xi = torch.randn(program.n_weights, generator=generator, dtype=torch.float64)
        xi = xi / xi.norm()
        moved = flat_weights(program, step(given["w0"] + size * xi)) - flat_weights(program, reached)
        closest = max(closest, float(((moved[0] - M @ xi).abs() / allowed).max()))
    assert 0.02 < closest <= 1.0


def test_kinks_at_tokens_that_are_not_read_do_not_matter() -> None:
    """A token without weights has pre-activations of exactly zero: at the jump of relu'."""
    algorithm = descent([3, 8, 8, 1], "relu", steps=2)
    tf, given = compiled(algorithm, epsilon=1e-5), prompts(algorithm)
    certificate = tf.certify(**given, trajectory=True, errors="sup")
    assert not certificate.culprits
    assert max(certificate.weights) < 1e-10
    assert tf.verify(**given).ramp_hits == [0, 0]


def test_a_priori_bounds_are_those_of_the_literal_variant() -> None:
    algorithm = descent([2, 3, 1], steps=2)
    wide = [
        ig.compile(algorithm, variant=v, n_examples=4, x_bound=1.0, y_bound=1.0).certificate
        for v in ("narrow", "literal")
    ]
    assert wide[0] == wide[1]
    assert 0 < wide[0].best < math.inf


# ----------------------------------------------------------------------------------------------- everything else has it


def test_a_run_stops_by_its_certificate() -> None:
    algorithm = descent([2, 3, 1], steps=60, lr=0.5)
    given = {name: value[0] for name, value in prompts(algorithm, batch=1).items()}
    runs = [compiled(algorithm, v).run(**given, until=0.05) for v in ("narrow", "literal")]
    assert runs[0].stopped == runs[1].stopped
    assert isinstance(runs[0].stopped, int)
    assert far(runs[0].weights, runs[1].weights) < 1e-12


def test_accuracies_can_be_solved_for() -> None:
    algorithm = descent([1, 2, 1], bias=False, steps=1)
    tf = ig.compile(algorithm, variant="narrow", n_examples=2, weight_error=2e-2)
    assert tf.solution is not None
    assert tf.solution.bound <= 2e-2
    assert tf.solution.heads == sum(row.heads for row in tf.cost().rows) <= tf.solution.common_heads


def test_attack_and_explanation() -> None:
    algorithm = descent([2, 3, 1], steps=2)
    tf = ig.compile(algorithm, variant="narrow", n_examples=4, epsilon=1e-2, x_bound=2.0, y_bound=2.0)
    attack = tf.attack(starts=4, iterations=6)
    assert not attack.violations
    assert attack.error > attack.median
    assert attack.domainwide is not None
    explanation = tf.explain()
    assert all(step.measured <= step.bound for step in explanation.steps)
    assert all(row.green for row in explanation.health)
    assert {"tanh", "tanh'"} <= set(explanation.functions)


def test_the_note_of_an_export_says_where_weights_are() -> None:
    tf = compiled(ALGORITHMS["one layer"])
    said = note(tf, torch.float64)
    assert said["placement"] == [["V1", 3, 0], ["V1", 3, 1], ["b1", 1, 0], ["b1", 1, 1]]
    assert said["marks"] == [["e1", 0, 0], ["e1", 1, 1]]
    assert "2 tokens that carry weights" in said["tokens"]
    assert "12 in all" in said["tokens"]
    holds = {lane["name"]: lane["holds"] for lane in said["layout"]}
    assert "placement" in holds["V1"]
    assert "marks" in holds["e1"]
