"""Whatever leaves the domain a transformer was compiled for is reported: an error, or a flag where that was asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.functions.derived import square_derivative, within
from innergrad.functions.scalar import COS, DTANH, EXP, SIN, TANH
from innergrad.targets import TARGETS

EXECUTORS = ("plain", "dense")


def descent(activation: str = "tanh", **settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 3, 1], activation), **{"lr": 0.1, "steps": 2, **settings})


def examples(size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """X, y and w0, all of them with largest entry ``size``."""
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 2), (4, 1), (13,)))
    X, y, w0 = (size * part / part.abs().max() for part in drawn)
    return X, y, w0


def equal(run: ig.Run, other: ig.Run) -> bool:
    return torch.equal(run.weights, other.weights) and torch.equal(run.predictions, other.predictions)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("target", ["relu", "gpt", "sigma", "softmax"])
def test_inside_the_domain_nothing_changes(target: str, executor: Any) -> None:
    tf = ig.compile(descent(), target=target, n_examples=4, x_bound=2.0, y_bound=2.0)
    X, y, w0 = examples()
    flagged, checked = (tf.run(X, y, X, w0=w0, executor=executor, outside=how) for how in ("flag", "error"))
    assert flagged.violations == checked.violations == ()
    assert equal(flagged, checked)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"X": 1.5}, "X leaves the domain the transformer was compiled for; got max |X| = 1.5; allowed: at most 1"),
        ({"X_query": 1.5}, "X leaves the domain the transformer was compiled for; got max |X| = 1.5; allowed: at most"),
        ({"y": 1.5}, "y leaves the domain the transformer was compiled for; got max |y| = 1.5; allowed: at most 1"),
        ({"w0": 1.5}, "the box must contain w0; got max |V1| = 1.5 with a box of 1"),
    ],
)
def test_inputs_and_initial_weights(given: dict[str, float], sentence: str, executor: Any) -> None:
    """A violation is flagged, and the run is the one without the declared domain."""
    tf = ig.compile(descent(box=1.0), n_examples=4, x_bound=1.0, y_bound=1.0)
    free = ig.compile(descent(box=1.0), n_examples=4)
    X, y, w0 = examples(0.9)
    prompt: dict[str, Any] = {"X": X, "y": y, "X_query": X.clone(), "w0": w0}
    for name, value in given.items():
        prompt[name] = prompt[name].clone()
        prompt[name].view(-1)[1] = value
    with pytest.raises(ig.InputError) as caught:
        tf.run(**prompt, executor=executor)
    run = tf.run(**prompt, executor=executor, outside="flag")
    assert run.violations == (str(caught.value),)
    assert str(caught.value).startswith(sentence)
    if "w0" not in given:
        assert equal(run, free.run(**prompt, executor=executor))


def test_several_violations_are_all_listed() -> None:
    tf = ig.compile(descent(box=1.0), n_examples=4, x_bound=1.0, y_bound=1.0)
    X, y, _ = examples(2.0)
    w0 = torch.zeros(13, dtype=torch.float64)
    w0[0], w0[6] = 3.0, -2.0  # of V1 (3, 2) and b1 (3,)
    found = tf.run(X, y, w0=w0, outside="flag").violations
    assert [sentence.split(" = ")[0].split("got ")[1] for sentence in found] == [
        "max |X|",
        "max |y|",
        "max |V1|",
        "max |b1|",
    ]


def test_which_prompts_of_a_batch() -> None:
    tf = ig.compile(descent(), n_examples=4, x_bound=1.0)
    X, y, _ = examples(0.9)
    batch = torch.stack([X, 2 * X, X, 3 * X])
    (sentence,) = tf.run(batch, y, outside="flag").violations
    assert sentence.endswith("in prompts 1, 3 of the batch")
    tf = ig.compile(descent("sin", box=None), n_examples=4, z_bound=3.0)
    found = tf.run(torch.stack([X, X, 100 * X]), y, outside="flag").violations
    assert found
    assert all(sentence.endswith("in prompt 2 of the batch") for sentence in found)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_argument_outside_the_domain_of_an_approximant(executor: Any) -> None:
    """Only sin has a domain on target relu. The sentence names step and layer, and the run is what the weights make of
    it: piecewise linear beyond the last knot, so not sin.
    """
    algorithm = descent("sin", box=None)
    tf, wide = (ig.compile(algorithm, epsilon=1e-2, n_examples=4, z_bound=bound) for bound in (2.0, 40.0))
    X, y, w0 = examples(1.0)
    X, w0 = 4 * X, 2 * w0
    with pytest.raises(ig.DomainError, match="layer forward 1: an argument of sin left the domain") as caught:
        tf.run(X, y, X, w0=w0, executor=executor)
    run = tf.run(X, y, X, w0=w0, executor=executor, outside="flag")
    assert run.violations[0] == f"step 1, {str(caught.value).split('; compile')[0]}"
    assert run.violations[0].endswith("allowed: [-2, 2]")
    places = [sentence.split(":")[0] for sentence in run.violations]
    assert {"step 1, layer derivatives", "step 2, layer forward 1", "read-out, layer read-out"} <= set(places)
    assert float((run.weights - wide.run(X, y, X, w0=w0, executor=executor).weights).abs().max()) > 0.1
    other = tf.run(X, y, X, w0=w0, executor="dense" if executor == "plain" else "plain", outside="flag")
    torch.testing.assert_close(run.weights, other.weights, atol=1e-9, rtol=0.0)
    assert [sentence.split(";")[0] for sentence in other.violations] == [s.split(";")[0] for s in run.violations]


def test_a_violation_of_the_read_out_alone() -> None:
    tf = ig.compile(descent("sin", box=None), n_examples=4, z_bound=3.0)
    X, y, w0 = examples(0.5)
    run = tf.run(X, y, 100 * X, w0=w0, outside="flag")
    assert all(", layer " in sentence for sentence in run.violations)
    assert any(sentence.startswith("read-out, layer read-out: forward 1: ") for sentence in run.violations)


CASES: dict[str, tuple[ig.Algorithm, dict[str, Any], float, str]] = {
    "products": (descent(), {"target": "gpt", "z_bound": 8.0, "x_bound": 2.0}, 2.5, "X leaves the domain"),
    "lanes": (descent(), {"target": "gpt", "z_bound": 8.0}, 9.0, "lane x left the range its products are made for"),
    "fitted": (descent(), {"target": "sigma", "z_bound": 4.0}, 3.9, "an argument of tanh"),
    "softmax": (descent(), {"target": "softmax", "z_bound": 4.0}, 3.9, "an argument of tanh"),
    "sgd": (ig.OnlineSGD(d=2), {}, 20.0, "left the range its products are made for"),
    "rls": (ig.RecursiveLeastSquares(d=2), {}, 20.0, "left the range its products are made for"),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("case", CASES)
def test_every_target_and_algorithm(case: str, executor: Any) -> None:
    """What is an error by default is a flag where that was asked for, on either executor."""
    algorithm, options, size, expected = CASES[case]
    tf = ig.compile(algorithm, n_examples=4, **options)
    X, y, w0 = examples()
    given: dict[str, Any] = {"w0": 3 * w0} if isinstance(algorithm, ig.GradientDescent) else {}
    with pytest.raises(ig.InputError, match=expected) as caught:
        tf.run(size * X, y, X, **given, executor=executor)
    run = tf.run(size * X, y, X, **given, executor=executor, outside="flag")
    told = str(caught.value).split("; compile")[0]
    assert told in run.violations[0]
    assert tf.run(X / 4, y / 4, X / 4, outside="flag", executor=executor).violations == ()


def test_the_predictive_deviation_is_watched_too() -> None:
    tf = ig.compile(ig.FunctionalGradientDescent(kernel="exp", d=2, steps=3, lambda_max=8.0), n_examples=4, x_bound=1.0)
    X, y, _ = examples(0.5)
    run = tf.run(X, y, 4 * X, return_std=True, outside="flag")
    assert run.std is not None
    assert len(run.violations) == 1


def test_a_table_has_nothing_to_extrapolate() -> None:
    """Examples off the grid are an error whatever was asked for; initial weights off the box can be flagged."""
    algorithm = ig.GridDescent(ig.GradientDescent(ig.Network([1, 1], bias=False), steps=1, box=1.0), grid=2)
    tf = ig.compile(algorithm, n_examples=2)
    X, y = torch.tensor([[0.3], [-0.4]]), torch.tensor([[0.2], [0.1]])
    with pytest.raises(ig.InputError, match="X is not on the grid"):
        tf.run(4 * X, y, w0=torch.zeros(1), outside="flag")
    (sentence,) = tf.run(X, y, w0=torch.full((1,), 1.5), outside="flag").violations
    assert "the box must contain w0" in sentence


def test_an_unknown_treatment() -> None:
    tf = ig.compile(descent(), n_examples=4)
    X, y, _ = examples()
    with pytest.raises(ig.InputError, match="allowed: 'error' or 'flag'"):
        tf.run(X, y, outside="ignore")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- the radius that a function declares


def pole(order: int) -> ig.Function:
    """1/(3 + t), or minus its derivative, which have a pole at -3: nothing can be fitted to them on [-8, 8]."""
    name = "pole" + "'" * (order - 1)
    return ig.Function(name, lambda t: (3.0 + t) ** -order, curvature=order * (order + 1.0), radius=2.0)


NEAR = {
    "both asymptotes": ig.Activation("near", within(TANH, 2.0), within(DTANH, 2.0)),
    "no asymptotes": ig.Activation("wave", within(SIN, 2.0), within(COS, 2.0)),
    "different radii": ig.Activation("mixed", within(TANH, 2.0), within(DTANH, 4.0)),
    "a pole outside": ig.Activation("pole", pole(1), pole(2)),
    "one of two": ig.Activation("one", within(SIN, 2.0), COS),
}
BLOCKS = [
    (target, variant)
    for target in ("relu", "softmax", "sigma", "gpt")
    for variant in TARGETS[target].variants
    if variant != "lookup"
]


@pytest.mark.parametrize(("target", "variant"), BLOCKS, ids=["-".join(block) for block in BLOCKS])
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.soak) if k in ("different radii", "one of two") else k for k in NEAR]
)
def test_a_declared_radius_is_the_domain_on_every_target(kind: str, target: str, variant: str) -> None:
    """Of the approximant of every function that declares one; inside nothing is said, outside it is an error."""
    network = ig.Network([2, 3, 1], NEAR[kind])
    algorithm = ig.GradientDescent(network, lr=0.01, steps=1, box=1.0)
    epsilon = 1e-3 if target == "relu" else 1e-5
    tf = ig.compile(algorithm, target=target, variant=variant, n_examples=4, epsilon=epsilon, x_bound=9.0)
    declared = {name: f.radius for name, f in tf.program.functions().items() if f.radius <= 4.0 and f.exact is None}
    assert NEAR[kind].r.name in declared
    for name, radius in declared.items():
        f, low, high = tf.approximants[name], *tf.approximants[name].domain
        assert -radius <= low < -0.9 * radius
        assert 0.9 * radius < high <= radius
        t = torch.linspace(low, high, 5001, dtype=torch.float64)
        assert float((f(t) - tf.program.functions()[name](t)).abs().max()) <= epsilon
    X, y, w0 = examples(0.9)
    for executor in (*EXECUTORS, "fused"):
        tf.run(X, y, X[:1], w0=w0, executor=executor)  # type: ignore[arg-type]
        with pytest.raises(ig.DomainError, match=f"an argument of {NEAR[kind].r.name} left the domain.*-2, 2"):
            tf.run(9.0 * X, y, X[:1], w0=w0, executor=executor)  # type: ignore[arg-type]


def test_what_is_made_of_a_function_keeps_its_radius() -> None:
    assert within(within(TANH, 2.0), 5.0).radius == within(within(TANH, 5.0), 2.0).radius == 2.0
    assert [f.radius for f in square_derivative(NEAR["different radii"])] == [2.0]
    relu = ig.ACTIVATIONS["relu6"]
    bounded = ig.Activation("near", within(relu.r, 7.0), relu.dr)
    assert [f.radius for f in square_derivative(bounded)] == [7.0, 7.0]
    line = within(relu.r, 7.0)
    assert line.exact is not None
    assert line.exact.domain == (-7.0, 7.0)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan")])
def test_a_radius_is_positive(radius: float) -> None:
    with pytest.raises(ig.InputError, match="the radius of a domain is positive"):
        ig.Function("f", torch.tanh, radius=radius)


@pytest.mark.parametrize("near", [within(EXP, 2.0), replace(EXP, radius=2.0)], ids=["within", "replaced"])
def test_kernel_attention_computes_its_functions_everywhere_so_it_refuses_a_radius(near: ig.Function) -> None:
    @dataclass(frozen=True)
    class Sum(ig.Algorithm):
        def program(self, options: ig.Options) -> ig.Program:
            stream = ig.example_stream(2, 1, ig.Lane("f", (1,), "state", shared=False), ig.Lane("p", (1,)))
            score = ig.Score(near, ("x[c]", "x[c]"))
            step, readout = (
                ig.Layer("attention", lane, (ig.Attend(f"{lane}[k]", score, value="y[k]", scope="demos"),))
                for lane in "fp"
            )
            return ig.Program(stream, (ig.Loop(1, (step,)),), (readout,), "p")

    with pytest.raises(ig.InputError, match=r"no such h|exp is a function of the library"):
        ig.compile(Sum(), target="kernel", n_examples=4)
