"""The fused executor: the same function as the plain interpreter and the weights, compiled or not, alone or batched."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from cases import CASES
from innergrad.errors import DomainError, JobError
from innergrad.functions.approximants import approximate, ramp_approximant
from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import graph, tables
from innergrad.interpret.native import kernel
from innergrad.model.executors import recorded
from innergrad.testing import Case
from innergrad.testing.judges import rounding

FLOAT64 = {"dtype": torch.float64, "device": torch.device("cpu")}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max().clamp(min=1.0)) if b.numel() else 0.0


# ------------------------------------------------------------------------------------------------------ every program


@pytest.mark.parametrize("batch", [1, 3])
def test_fused_equals_plain(case: Case, batch: int) -> None:
    """To 1e-13, with and without the compiler. Ramps are exact in both: neither adds hinges; but where they are sums of
    features, their slope multiplies what arguments are rounded by.
    """
    prompt = case.prompts(batch)
    fitted = [f for f in case.tf.approximants.values() if isinstance(f, FeatureSum)]
    limit = max([1e-13, *(2.0**-53 / (high - low) for f in fitted for low, high in f.ramps)])
    plain = case.tf.run(**prompt)  # type: ignore[arg-type]
    for compiled in (None, False):
        fused = case.tf.run(**prompt, executor="fused", compiled=compiled)  # type: ignore[arg-type]
        assert fused.weights.shape == plain.weights.shape
        assert distance(fused.weights, plain.weights) <= limit
        assert distance(fused.predictions, plain.predictions) <= limit
        if plain.online is not None and fused.online is not None:
            assert distance(fused.online, plain.online) <= 1e-13


@pytest.mark.parametrize("name", CASES)
def test_fused_equals_dense(name: str) -> None:
    """To 1e-13, where the weights are exact; elsewhere products are those of smooth units."""
    case = CASES[name]
    if not case.tf.proven:
        pytest.skip("the module's own accuracy is compared in the battery")
    prompt = case.prompts(1)
    dense, fused = (case.tf.run(**prompt, executor=name) for name in ("dense", "fused"))  # type: ignore[arg-type]
    assert distance(fused.weights, dense.weights) <= rounding(case.tf, 1e-13)
    assert distance(fused.predictions, dense.predictions) <= rounding(case.tf, 1e-13)


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_does_not_depend_on_its_batch(name: str) -> None:
    case = CASES[name]
    prompt = case.prompts(3)
    together = case.tf.run(**prompt, executor="fused")  # type: ignore[arg-type]
    alone = case.tf.run(**{name: value[1] for name, value in prompt.items()}, executor="fused")  # type: ignore[arg-type]
    assert distance(together.weights[1], alone.weights) <= 1e-12
    assert distance(together.predictions[1], alone.predictions) <= 1e-12


@pytest.mark.parametrize("name", CASES)
def test_its_certificate_holds(name: str) -> None:
    """Inside a step the executor shows nothing; what it ends with is compared with what the layers should give."""
    case = CASES[name]
    if case.tf.options.target != "relu":
        pytest.skip("rounding is the only difference, and the battery certifies the other executors on these")
    prompt = {name: value.float().double() for name, value in case.prompts(2).items()}
    how = {"executor": "fused", "dtype": torch.float32}
    run = case.tf.run(**prompt, **how)  # type: ignore[arg-type]
    certificate = case.tf.certify(**prompt, **how, trajectory=True)  # type: ignore[arg-type]
    exact = ig.reference(case.algorithm, **prompt)
    assert certificate.trajectory is not None
    assert certificate.predictions is not None
    assert bool(((run.weights[:, 1:] - exact.weights[:, 1:]).norm(dim=-1) <= certificate.trajectory).all())
    assert bool(((run.predictions - exact.predictions).abs() <= certificate.predictions).all())


def test_gradient_descent_on_relu_attention_is_compiled(case: Case) -> None:
    """On this machine, which has a compiler; variants whose tokens read one another aside."""
    if case.tf.options.target == "relu" and case.tf.options.variant != "narrow":
        assert not isinstance(case.tf.fused.native, str), case.tf.fused.native


# ------------------------------------------------------------------------------------------------------- many prompts


def demo(steps: int = 6, n: int = 40, **settings: object) -> tuple[ig.CompiledTransformer, dict[str, Tensor]]:
    network = ig.Network([3, 8, 8, 2])
    algorithm = ig.GradientDescent(network, steps=steps, **settings)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    prompt = {
        "X": torch.randn(5, n, 3, generator=generator, dtype=torch.float64),
        "y": torch.randn(5, n, 2, generator=generator, dtype=torch.float64),
        "X_query": torch.randn(5, 4, 3, generator=generator, dtype=torch.float64),
        "w0": torch.stack([network.init(seed) for seed in range(5)]),
    }
    return ig.compile(algorithm, n_examples=n), prompt


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 7, 64, 333, 1100])
def test_any_number_of_examples_and_threads(n: int, threads: int) -> None:
    tf, prompt = demo(n=n)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for batch in (slice(0, 1), slice(0, 5)):
            some = {name: value[batch] for name, value in prompt.items()}
            plain, fused = tf.run(**some), tf.run(**some, executor="fused", compiled=True)
            assert distance(fused.weights, plain.weights) <= 1e-13
    finally:
        torch.set_num_threads(before)


def test_data_sets_of_different_sizes_in_one_call() -> None:
    """Each with its own w0, number of examples and weights: as if it were alone."""
    tf, prompt = demo()
    lengths = [40, 1, 17, 32, 33]
    X = [x[:k] for x, k in zip(prompt["X"], lengths, strict=True)]
    y = [x[:k] for x, k in zip(prompt["y"], lengths, strict=True)]
    weights = [torch.rand(k, generator=torch.Generator().manual_seed(k)) + 0.1 for k in lengths]
    for given_weights in (None, weights):
        for compiled in (True, False):
            together = tf.run(**ig.ragged(X, y, given_weights), w0=prompt["w0"], executor="fused", compiled=compiled)
            for i, k in enumerate(lengths):
                own = None if given_weights is None else given_weights[i]
                alone = tf.run(X[i], y[i], w0=prompt["w0"][i], sample_weight=own)
                assert len(X[i]) == k
                assert distance(together.weights[i], alone.weights) <= 1e-12


def test_ragged_says_what_is_wrong() -> None:
    with pytest.raises(ig.InputError, match="wrong shape"):
        ig.ragged([torch.zeros(3, 2)], [torch.zeros(2, 1)])
    with pytest.raises(ig.InputError, match="data set"):
        ig.ragged([], [])


def test_float32_is_as_close_as_float32_allows() -> None:
    tf, prompt = demo(steps=20)
    exact = tf.run(**prompt)
    for compiled in (True, False):
        fused = tf.run(**prompt, executor="fused", dtype=torch.float32, compiled=compiled)
        assert fused.weights.dtype == torch.float32
        assert 0 < distance(fused.weights.double(), exact.weights) <= 1e-4


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_recorded(compiled: bool) -> None:
    tf, prompt = demo(steps=10)
    whole = tf.run(**prompt, executor="fused", compiled=compiled)
    assert whole.recorded == tuple(range(11))
    for record, steps in (("last", (10,)), (4, (0, 4, 8, 10)), (5, (0, 5, 10)), (1, tuple(range(11)))):
        some = tf.run(**prompt, executor="fused", compiled=compiled, record=record)  # type: ignore[arg-type]
        assert some.recorded == recorded(10, record) == steps
        assert torch.equal(some.weights, whole.weights[:, list(steps)])
        plain = tf.run(**prompt, record=record)  # type: ignore[arg-type]
        assert plain.weights.shape == some.weights.shape


@pytest.mark.parametrize("record", ["some", 0, -2, 1.5])
def test_what_cannot_be_recorded(record: object) -> None:
    tf, prompt = demo()
    with pytest.raises(ig.InputError, match="record"):
        tf.run(**prompt, record=record)  # type: ignore[arg-type]


@pytest.mark.soak
def test_thousands_of_steps_take_the_memory_of_one() -> None:
    """The peak of a fresh process, after 20 steps and after 5,000 more: the compiled path, and torch."""
    code = """
import resource, sys, torch, innergrad as ig
for steps in (20, int(sys.argv[1])):
    tf = ig.compile(ig.GradientDescent(ig.Network([4, 32, 32, 1]), lr=0.01, steps=steps), n_examples=400)
    X, y = torch.randn(400, 4), torch.randn(400, 1)
    tf.run(X, y, executor="fused", compiled=sys.argv[2] == "True", record="last")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    for compiled, many in ((True, 5000), (False, 300)):
        command = [sys.executable, "-c", code, str(many), str(compiled)]
        few, most = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
        assert most - few < 30_000  # KiB: storing every step would take 50 MB and more


# -------------------------------------------------------------------------------------------------- the compiled path


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tf, prompt = demo()
    compiled = tf.run(**prompt, executor="fused", compiled=True)
    monkeypatch.setenv("INNERGRAD_NATIVE", "0")
    kernel.compiler.cache_clear()
    try:
        fresh = ig.compile(tf.algorithm, n_examples=40, epsilon=2e-3)
        monkeypatch.setattr("innergrad.interpret.native.kernel.build", kernel.build.__wrapped__)
        assert distance(fresh.run(**prompt, executor="fused").weights, fresh.run(**prompt).weights) <= 1e-13
        with pytest.raises(ig.InputError, match="no compiled path on this machine"):
            fresh.run(**prompt, executor="fused", compiled=True)
        assert distance(tf.run(**prompt, executor="fused").weights, compiled.weights) <= 1e-13
    finally:
        kernel.compiler.cache_clear()


def test_a_compiler_that_fails_is_reported_or_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    tf, prompt = demo()
    monkeypatch.setattr(kernel, "compiler", lambda: "/bin/false")
    monkeypatch.setattr("innergrad.interpret.native.kernel.build", kernel.build.__wrapped__)
    monkeypatch.setenv("INNERGRAD_CACHE", str(tmp_path))
    with pytest.raises(ig.InputError, match="failed"):
        tf.run(**prompt, executor="fused", compiled=True)
    assert distance(tf.run(**prompt, executor="fused").weights, tf.run(**prompt).weights) <= 1e-13
    assert not list(os.scandir(str(tmp_path)))  # nothing half-written is left


def test_kernels_are_built_once_for_a_shape_of_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, boxes, accuracies and numbers of examples are arguments."""
    built = []
    real = kernel.build
    monkeypatch.setattr(
        "innergrad.interpret.native.kernel.build", lambda text, dtype: (built.append(text), real(text, dtype))[1]
    )
    for n, lr, box in ((12, 0.1, 4.0), (30, 0.2, 1.5)):
        tf, prompt = demo(n=n, lr=lr, box=box)
        tf.run(**prompt, executor="fused", compiled=True)
    assert len(set(built)) == 1


def test_what_has_no_compiled_path_says_why() -> None:
    tf = ig.compile(ig.FunctionalGradientDescent("linear", steps=3, d=2))
    X, y = 0.1 * torch.ones(5, 2), torch.ones(5, 1)
    with pytest.raises(ig.InputError, match="no compiled path"):
        tf.run(X, y, executor="fused", compiled=True)
    with pytest.raises(ig.InputError, match="only the fused executor"):
        tf.run(X, y, executor="plain", compiled=True)
    with pytest.raises(ig.InputError, match="unknown executor"):
        tf.run(X, y, executor="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [True, False])
def test_arguments_outside_a_domain_are_refused(compiled: bool) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1], "sin"), steps=2), z_bound=4.0)
    X, y = torch.linspace(-1, 1, 8).unsqueeze(1), torch.zeros(8, 1)
    w0 = torch.zeros(tf.program.n_weights, dtype=torch.float64)
    w0[:2] = 4.0
    tf.run(X, y, w0=w0, executor="fused", compiled=compiled)
    for executor in ("plain", "fused"):
        with pytest.raises(DomainError, match="left the domain"):
            tf.run(2 * X, y, w0=w0, executor=executor)  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [True, False])
def test_an_overflow_is_an_error(compiled: bool) -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 4, 1], "softplus"), lr=1e6, steps=60, box=None)
    tf = ig.compile(algorithm)
    with pytest.raises(JobError, match="overflowed"):
        tf.run(10 * torch.ones(4, 2), torch.ones(4, 1), executor="fused", compiled=compiled)


# ------------------------------------------------------------------------------------------------------- the passes


def test_the_graph_of_literal_is_back_propagation() -> None:
    """One product forward and two back for each layer, fewer at the ends; every function once; nothing else on
    matrices.
    """
    for N in (2, 3, 5):
        network = ig.Network([3, *[4] * (N - 1), 2])
        tf = ig.compile(ig.GradientDescent(network, steps=2))
        ((_, of),) = tf.fused.loops
        matrices = [n for n in of.nodes if n.op == "product" and len(n.args) == 2 and _contracts(n)]
        assert len(matrices) == 3 * N - 1
        assert sum(n.op == "apply" and n.per_token for n in of.nodes) == 2 * (N - 1)
        assert tf.fused.demos_suffice
        assert set(of.results) == {lane.name for lane in tf.program.weights}
        assert not of.zero  # scratch lanes are zero before and after, and never written


def _contracts(node: graph.Node) -> bool:
    return any(label not in node.labels for _, used in node.args for label in used)


# ------------------------------------------------------------------------------------------------------------- tables


def check_table(functions: tuple[PiecewiseLinear, ...], t: Tensor) -> None:
    for f, value in zip(functions, tables.evaluator(functions, **FLOAT64)(t), strict=True):
        expected = f(t)
        slope = max(map(abs, f.slopes))
        assert float((value - expected).abs().max()) <= 1e-15 * (1 + slope) * (1 + float(t.abs().max()))


@settings(max_examples=60, deadline=None)
@given(
    knots=st.lists(st.floats(-50, 50), min_size=1, max_size=40, unique=True),
    slopes=st.lists(st.floats(-8, 8), min_size=41, max_size=41),
    anchor=st.floats(-3, 3),
)
def test_tables_are_the_function(knots: list[float], slopes: list[float], anchor: float) -> None:
    knots = sorted(knots)
    f = PiecewiseLinear(tuple(knots), tuple(slopes[: len(knots) + 1]), anchor, 0.25)
    centre = torch.tensor(knots, dtype=torch.float64)
    t = torch.cat([centre, centre.nextafter(centre + 1), centre.nextafter(centre - 1), torch.linspace(-60, 60, 999)])
    check_table((f,), t.double())


@pytest.mark.parametrize("name", ["tanh", "gelu", "softplus", "sigmoid"])
@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-6])
def test_tables_hold_the_knots_of_the_compiled_functions(name: str, epsilon: float) -> None:
    activation = ig.Network([1, 1], name).activation
    pair = tuple(approximate(f, epsilon) for f in (activation.r, activation.dr))
    table = tables.cells(pair)
    assert table is not None
    assert table.count <= tables.MOST_CELLS
    for i, f in enumerate(pair):
        found = set(table.records[table.records[:, 4 * i + 3] != 0.0, 4 * i])
        assert set(f.knots) == found
    t = torch.cat([torch.tensor(pair[0].knots), torch.tensor(pair[1].knots), torch.randn(4000), torch.tensor([1e30])])
    check_table(pair, t.double())


def test_projections_and_ramps_are_exact() -> None:
    clip = PiecewiseLinear((-0.3, 0.3), (-1.0, 0.0, -1.0)).plus_identity
    t = torch.tensor([-7.0, -0.3, -0.1, 0.0, 0.2, 0.3, 1e9], dtype=torch.float64)
    (value,) = tables.evaluator((clip,), **FLOAT64)(t)
    assert torch.equal(value, t.clamp(-0.3, 0.3))
    ramp = ramp_approximant(ig.Network([1, 1], "relu").activation.dr, 2.0**-10)
    (value,) = tables.evaluator((ramp,), **FLOAT64)(torch.tensor([-1e9, -1.0, 0.0, 1.0, 1e9], dtype=torch.float64))
    assert value.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert math.isclose(float(tables.evaluator((ramp,), **FLOAT64)(torch.tensor([2.0**-11]).double())[0]), 0.5)


CLOSE = PiecewiseLinear((0.0, 1e-9, 1.0, 2.0, 3.0, 4.0), (0.5, 1.0, -1.0, 2.0, 0.3, 1.0, 0.7))


def test_close_knots_are_searched() -> None:
    assert tables.cells((CLOSE,)) is None
    check_table((CLOSE,), torch.linspace(-2, 6, 1001, dtype=torch.float64))


def test_compiled_kernels_search_close_knots_too() -> None:
    """An activation made of them; three functions of one argument, two of which share a table."""
    r = ig.Function("bumpy", CLOSE, curvature=0.0, lipschitz=2.0, breaks=CLOSE.knots, exact=CLOSE)
    steps = tuple((knot, jump, 1) for knot, jump in ((0.0, 0.5), (1.0, -2.0), (2.0, 3.0), (3.0, -1.7), (4.0, 0.7)))
    start = 0.5
    dr = ig.Function("bumpy'", lambda t: start + sum(h * (t > x).to(t.dtype) for x, h, _ in steps), jumps=steps)
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 5, 1], ig.Activation("bumpy", r, dr)), steps=3), n_examples=33)
    X, y = torch.randn(2, 33, 2, dtype=torch.float64), torch.randn(2, 33, 1, dtype=torch.float64)
    plain, fused = tf.run(X, y), tf.run(X, y, executor="fused", compiled=True)
    assert distance(fused.weights, plain.weights) <= 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("variant", ["literal", "compact", "narrow"])
def test_on_a_gpu(variant: str) -> None:
    algorithm = ig.GradientDescent(ig.Network([3, 4, 4, 2]), steps=12)
    tf = ig.compile(algorithm, variant=variant, n_examples=20)
    X, y = torch.randn(6, 20, 3, dtype=torch.float64), torch.randn(6, 20, 2, dtype=torch.float64)
    fused = tf.run(X.cuda(), y.cuda(), executor="fused")
    assert fused.weights.is_cuda
    assert distance(fused.weights.cpu(), tf.run(X, y).weights) <= 1e-13
