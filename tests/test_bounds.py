"""Bounds for a whole domain: nothing found inside it by chance or by ascent exceeds them, and they are not idle."""

from __future__ import annotations

import math
import random
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import innergrad as ig
from convergence import draw_convergence, gradient_mapping
from innergrad.evidence.bounds import DomainCertificate, apriori, theorems
from innergrad.interpret import plain
from innergrad.interpret.plain import Labelled, contract
from innergrad.interpret.worst import Bound, Worst
from innergrad.ir.program import Attend, Layer, Loop, Program, Score

TORCH = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda t: torch.logaddexp(t, torch.zeros_like(t)),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "sin": torch.sin,
    "relu": torch.relu,
}
ROUNDING = 1e-11  # of float64, relative to the largest gradient: the bounds are about exact arithmetic


class Case:
    """One algorithm on one domain, its certificate, and the same gradient without the projection."""

    def __init__(self, algorithm: ig.GradientDescent, epsilon: float, x: float, y: float, n: int = 2) -> None:
        self.algorithm, self.x, self.y, self.n = algorithm, x, y, n
        self.tf = ig.compile(algorithm, epsilon=epsilon, n_examples=n, x_bound=x, y_bound=y)
        self.certificate = apriori(self.tf)
        self.free = ig.GradientDescent(algorithm.network, algorithm.loss, lr=1.0, steps=1, box=None)
        self.program = self.free.program(self.tf.options)

    def draw(self, batch: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Prompts of the domain, half of them near its corners."""
        net, generator = self.algorithm.network, torch.Generator().manual_seed(seed)

        def box(bound: float, *shape: int) -> Tensor:
            values = torch.rand(batch, *shape, generator=generator, dtype=torch.float64) * 2 - 1
            values[: batch // 2] = values[: batch // 2].sign() - 1e-3 * values[: batch // 2]
            return bound * values

        X, y, w = box(self.x, self.n, net.sizes[0]), box(self.y, self.n, net.sizes[-1]), box(1.0, net.n_weights)
        if self.algorithm.loss.name == "logistic":
            y = (y > 0).double()
        elif self.algorithm.loss.name == "softmax":
            y = torch.nn.functional.one_hot(y.argmax(-1), y.shape[-1]).double()
        elif net.output == "activation":
            low, high = net.activation.closed_range
            y = y.clamp(low, high)
        assert self.algorithm.box is not None
        return X, y, self.algorithm.box * w

    def risk(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        """The mean loss over two, with torch's own activations."""
        net, p = self.algorithm.network, X
        for j, (V, b) in enumerate(net.unflatten(w), start=1):
            z = p @ V.mT if b is None else p @ V.mT + b.unsqueeze(-2)
            p = TORCH[net.activation.name](z) if net.activated(j) else z
        return self.algorithm.loss.value(p, y).mean(-1) / 2

    def errors(self, X: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """||approximate gradient - gradient||_2 of every prompt, differentiable in the prompt."""
        start = 0
        tokens = len(X), self.n
        one = torch.ones(tokens, dtype=torch.float64)
        state = {"x": X, "y": y, "one": one[:, :1], "t": one, "query": 0 * one, "omega": one}
        for lane in self.program.weights:
            state[lane.name] = w[:, start : start + lane.size].reshape(len(X), 1, *lane.shape)
            start += lane.size
        for lane in self.program.stream.lanes:
            if lane.name not in state:
                state[lane.name] = torch.zeros(*tokens, *lane.shape, dtype=torch.float64)
        for layer in self.program.body[0].layers:
            state = plain.apply_layer(self.program, layer, state, self.tf.functions)
        after = torch.cat([state[lane.name].flatten(1) for lane in self.program.weights], dim=1)
        variable = w if w.requires_grad else w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.risk(variable, X, y).sum(), variable, create_graph=True)
        return (w - after - gradient).norm(dim=-1)

    def ascend(self, X: Tensor, y: Tensor, w: Tensor, iterations: int) -> float:
        """The largest error found on the way up from these prompts; labels stay as they are."""
        free = self.algorithm.loss.name in ("squared", "log-cosh", "pseudo-huber")
        limits = [(X, self.x), (w, self.algorithm.box), *([(y, self.y)] if free else [])]
        found = 0.0
        for tensor, _ in limits:
            tensor.requires_grad_()
        for i in range(iterations):
            errors = self.errors(X, y, w)
            found = max(found, float(errors.detach().max()))
            slopes = torch.autograd.grad((errors + 1e-300).log().sum(), [tensor for tensor, _ in limits])
            with torch.no_grad():
                for (tensor, bound), slope in zip(limits, slopes, strict=True):
                    largest = slope.abs().amax(dim=tuple(range(1, slope.ndim)), keepdim=True) + 1e-300
                    assert bound is not None
                    tensor += 0.05 * bound * (1 - i / iterations) * torch.nan_to_num(slope / largest)
                    tensor.clamp_(-bound, bound)
                if free and self.algorithm.network.output == "activation":
                    y.clamp_(*self.algorithm.network.activation.closed_range)
        return found


def random_case(seed: int) -> Case:
    draw = random.Random(seed)
    loss = draw.choice(["squared", "log-cosh", "pseudo-huber", "logistic", "softmax"])
    output = "linear" if loss in ("logistic", "softmax") else draw.choice(["linear", "activation"])
    d_y = draw.randint(2, 4) if loss == "softmax" else draw.randint(1, 3)
    sizes = [draw.randint(1, 3), *[draw.randint(1, 4) for _ in range(draw.randint(0, 2))], d_y]
    activation = draw.choice(["tanh", "sigmoid", "softplus", "gelu", "silu", "sin"])
    network = ig.Network(sizes, activation, output, draw.random() < 0.7)
    algorithm = ig.GradientDescent(network, loss, lr=0.1, steps=2, box=draw.choice([0.5, 1.0, 2.0]))
    y = 1.0 if loss in ("logistic", "softmax") else draw.choice([0.5, 1.0, 2.0])
    return Case(algorithm, draw.choice([0.1, 1e-2, 1e-3]), draw.choice([0.5, 1.0, 2.0]), y)


@pytest.mark.parametrize("seed", range(20))
def test_no_gradient_in_the_domain_is_farther_off(seed: int) -> None:
    """Random prompts, corners of the domain, and ascent from them."""
    case = random_case(seed)
    found = case.ascend(*case.draw(40, seed), 25)
    slack = ROUNDING * case.certificate.largest_gradient
    _, corrected, best = case.certificate.gradient
    assert found <= best.value + slack
    assert found <= corrected.value + slack
    assert best.value <= corrected.value


@pytest.mark.parametrize("seed", range(8))
def test_every_lane_after_every_layer_is_within_its_bounds(seed: int) -> None:
    """Sizes of both runs and their difference, entry by entry and in norm, for weighted examples, over two steps."""
    case = random_case(seed + 100)
    program, tf = case.tf.program, case.tf
    X, y, w0 = case.draw(40, seed)
    weight = torch.rand(40, case.n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    state = tf.prompt(X, y, X[:, :1], w0=w0, sample_weight=weight).state(program)
    exact, omega = state, state["omega"]
    sizes = {"x": (case.x, math.inf), "y": (case.y, math.inf)}
    worst = Worst(program, tf.approximants, sizes)
    for layer, _ in program.schedule():
        state = plain.apply_layer(program, layer, state, tf.functions)
        exact = plain.apply_layer(program, layer, exact, program.functions())
        worst.layer(layer)
        for lane, known in worst.lanes.items():
            unit = omega.clamp(min=1e-300) ** len(known.weights)
            for bound, values in (
                (known.size, (state[lane], exact[lane])),
                (known.error, (state[lane] - exact[lane],)),
            ):
                slack = 1e-10 * (1.0 + known.size.norm)
                for value in values:
                    value = value.flatten(2) if value.ndim > 2 else value.unsqueeze(-1)
                    value = value / unit.unsqueeze(-1) * (unit.unsqueeze(-1) > 1e-12)
                    assert bool((value.abs() <= bound.entry.tensor.flatten() + slack).all()), (layer.name, lane)
                    assert float(value.norm(dim=-1).max()) <= bound.norm + slack, (layer.name, lane)


def test_an_error_of_the_forward_pass_meets_a_large_derivative() -> None:
    """Targets of 100 and small weights: nearly all of the error is s_2 times the error of p_1."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "tanh", bias=False), steps=1, box=0.0625)
    case = Case(algorithm, 1e-3, 8.0, 100.0, n=1)
    found = case.ascend(*case.draw(100, 0), 60)
    assert case.certificate.best / 2 < found <= case.certificate.best


@pytest.mark.parametrize("seed", range(25))
def test_bounds_of_sums_and_products(seed: int) -> None:
    """Tensors with any labels in common, added and contracted."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    sizes = dict(zip("ijk", draw.choices([1, 2, 3], k=3), strict=True))
    left, right = ("".join(label for label in "ijk" if draw.random() < 0.6) for _ in range(2))
    a, b = (
        Labelled(torch.randn([sizes[label] for label in labels], generator=generator, dtype=torch.float64), labels)
        for labels in (left, right)
    )
    A, B = (Bound.tight(Labelled(x.tensor.abs(), x.labels), float(x.tensor.norm())) for x in (a, b))
    keep = "".join(label for label in "ijk" if not (label in left and label in right) or draw.random() < 0.5)
    for value, bound in ((a + b, A + B), (contract([a, b], keep), A.times(B, keep))):
        assert value.labels == bound.entry.labels
        assert bool((value.tensor.abs() <= bound.entry.tensor * (1 + 1e-12)).all())
        assert float(value.tensor.norm()) <= bound.norm * (1 + 1e-12)
        assert bound.norm <= float(bound.entry.tensor.norm()) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("sizes", "box", "factor"), [([1, 1, 1], 1.0, 2.0), ([2, 4, 1], 1.0, 4.0), ([2, 4, 4, 1], 1.0, 6.0)]
)
def test_the_domain_itself_is_that_bad(sizes: list[int], box: float, factor: float) -> None:
    """The best bound is large because some weights in the box make the error large, not because it is loose.

    Ascent from matrices of equal entries between layers of units of opposite signs: those amplify without saturation.
    """
    case = Case(ig.GradientDescent(ig.Network(sizes, "tanh"), steps=1, box=box), 1e-3, box, box, n=1)
    X, y, w = case.draw(100, 0)
    for V, b in case.algorithm.network.unflatten(w):
        signs = torch.ones(V.shape[-2], dtype=torch.float64)
        signs[::2] = -1.0
        if V.data_ptr() == w.data_ptr() and len(sizes) > 2:
            V.copy_(V.abs() * signs[:, None])
        else:
            V.fill_(box)
        assert b is not None
        b.copy_(b.abs() * signs)
    assert case.ascend(X, y, w, 150) > case.certificate.best / factor


def test_the_printed_theorem_is_violated() -> None:
    """One layer, tanh output: the printed bound has B_r <= 1 in place of ||x||, which may be 100."""
    network = ig.Network([1, 1], "tanh", output="activation", bias=False)
    case = Case(ig.GradientDescent(network, steps=1, box=0.0625), 1e-3, 100.0, 1.0, n=1)
    printed, corrected, best = case.certificate.gradient
    found = case.ascend(*case.draw(200, 0), 100)
    assert 2.0 * printed.value < found <= best.value <= corrected.value
    assert printed.note.startswith("false")


# ---------------------------------------------------------------------------------------------- Lipschitz, trajectory


@pytest.mark.parametrize("seed", range(8))
def test_hessians_are_within_the_lipschitz_constant(seed: int) -> None:
    case = random_case(seed + 200)
    X, y, w = case.draw(12, seed)
    for one_X, one_y, one_w in zip(X, y, w, strict=True):
        hessian = torch.autograd.functional.hessian(lambda v, X=one_X, y=one_y: case.risk(v, X, y), one_w)
        assert float(torch.linalg.matrix_norm(hessian, 2)) <= case.certificate.lipschitz * (1 + 1e-12)


def test_the_lipschitz_constant_of_least_squares_is_exact() -> None:
    """L = 1/2 mean (w x - y)^2: the Hessian is x x^T, largest at the corner, where it is d x_bound^2."""
    algorithm = ig.GradientDescent(ig.Network([3, 1], bias=False), steps=1, box=1.0, weight_decay=0.25)
    case = Case(algorithm, 1e-3, 2.0, 1.0)
    assert case.certificate.lipschitz == pytest.approx(12.0 + 0.25)
    assert case.certificate.best == 0.0  # linear, squared: nothing is approximated


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("activation", ["tanh", "softplus"])
def test_runs_stay_within_the_trajectory_bounds(activation: str, decay: float, momentum: float) -> None:
    network = ig.Network([2, 3, 1], activation)
    algorithm = ig.GradientDescent(network, lr=0.05, steps=4, box=0.75, momentum=momentum, weight_decay=decay)
    case = Case(algorithm, 1e-2, 1.0, 1.0, n=3)
    certificate, (X, y, w0) = case.certificate, case.draw(50, 1)
    run, exact = (
        case.tf.run(X, y, X[:, :2], w0=w0),
        ig.reference(algorithm, X, y, X[:, :2], w0=w0),
    )
    assert certificate.weights[-1] < 2 * 0.75 * math.sqrt(network.n_weights)  # says more than the box does
    for step in range(5):
        found = float((run.weights[:, step] - exact.weights[:, step]).norm(dim=-1).max())
        bounds = {bound.label: bound.value for bound in certificate.trajectory(step)}
        assert found <= bounds["best"] + 1e-14
        assert ("corrected" in bounds) == certificate.plain_descent == (momentum == 0.0)
        assert bounds["best"] <= bounds.get("corrected", math.inf)
    assert float((run.predictions - exact.predictions).norm(dim=-1).max()) <= certificate.prediction
    with pytest.raises(ig.InputError, match="no such step"):
        certificate.trajectory(5)


# ----------------------------------------------------------------------------------------------------------- Lemma 14


@cache
def convergence() -> tuple[DomainCertificate, Tensor, float]:
    """A run whose step size Lemma 14 allows."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "tanh"), lr=0.05, steps=200, box=0.5)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=8, x_bound=1.0, y_bound=0.5)
    X = torch.linspace(-1, 1, 8, dtype=torch.float64).unsqueeze(1)
    y, w0 = 0.3 * torch.sin(2 * X), torch.tensor([0.4, -0.3, 0.1, 0.2, -0.5, 0.3, -0.4], dtype=torch.float64)
    norms = gradient_mapping(algorithm, tf.run(X, y, w0=w0).weights[:-1], X, y)
    return apriori(tf), norms, float(algorithm.risk(w0, X, y))


def test_lemma_14_holds_and_converges() -> None:
    certificate, norms, risk0 = convergence()
    assert certificate.step_size_met
    means = norms.square().cumsum(0) / torch.arange(1, len(norms) + 1)
    bounds = torch.tensor([certificate.lemma14(steps, risk0) for steps in range(1, len(norms) + 1)])
    assert bool((means <= bounds).all())
    floor = 9 * certificate.best**2  # what is left of the bound after infinitely many steps
    assert certificate.lemma14(10**12, risk0) == pytest.approx(floor, rel=1e-3)
    assert bounds[-1] < bounds[0] / 50
    printed = [8 * risk0 / (certificate.lr * steps) + 10 * certificate.best**2 for steps in (1, 10, 200)]
    assert all(certificate.lemma14(steps, risk0) <= p for steps, p in zip((1, 10, 200), printed, strict=True))


def test_lemma_14_says_nothing_for_larger_steps() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 8, 1], "tanh"), lr=0.5, steps=5, box=2.0)
    certificate = Case(algorithm, 1e-3, 1.0, 1.0).certificate
    assert not certificate.step_size_met
    assert certificate.lemma14(10, 1.0) == math.inf
    assert certificate.weights[-1] == pytest.approx(2 * 2.0 * math.sqrt(algorithm.network.n_weights))  # the box's width
    assert "not met" in str(certificate)
    with pytest.raises(ig.InputError, match="steps must be positive"):
        certificate.lemma14(0, 1.0)


def test_the_gradient_mapping_is_the_projected_gradient() -> None:
    """Without a box, the gradient; at the face of the box, without what points out of it."""
    network = ig.Network([1, 1], bias=False)  # risk (w x - y)^2 / 2
    X, y, w = (torch.tensor([[value]], dtype=torch.float64) for value in (1.0, 3.0, 1.0))
    for box, expected in ((None, 2.0), (1.0, 0.0), (1.5, 1.0)):  # gradient -2, step lr * 2 = 1
        algorithm = ig.GradientDescent(network, lr=0.5, steps=1, box=box)
        assert gradient_mapping(algorithm, w, X, y) == pytest.approx(torch.tensor([expected]))


def test_the_drawing_is_a_png(tmp_path: Path) -> None:
    certificate, norms, risk0 = convergence()
    path = draw_convergence(certificate, norms.tolist(), risk0, tmp_path / "lemma14.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


# ------------------------------------------------------------------------------------------------- domains and limits


@pytest.mark.parametrize(
    ("box", "bounds", "missing"),
    [
        (None, {"x_bound": 1.0, "y_bound": 1.0}, "no box for V1, b1"),
        (1.0, {"y_bound": 1.0}, "got no x_bound;"),
        (1.0, {"x_bound": 1.0}, "got no y_bound;"),
        (1.0, {}, "no x_bound, no y_bound"),
    ],
)
def test_without_a_domain_there_is_no_number(box: float | None, bounds: dict[str, float], missing: str) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1, box=box), n_examples=2, **bounds)
    with pytest.raises(ig.InputError, match=missing):
        apriori(tf)


@pytest.mark.parametrize(("loss", "output"), [("logistic", "linear"), ("softmax", "linear"), ("squared", "activation")])
def test_targets_that_are_checked_are_bounded(loss: str, output: str) -> None:
    """Labels, and targets in the range of tanh, are at most 1."""
    algorithm = ig.GradientDescent(ig.Network([1, 2], "tanh", output=output), loss, steps=1, box=1.0)
    assert "|y| <= 1," in str(apriori(ig.compile(algorithm, n_examples=2, x_bound=1.0)))


def test_a_jump_is_bounded_by_its_height_only() -> None:
    """relu' has no uniform approximant: the theorems give up; the program knows that it stays in [0, 1]."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "relu", bias=False), steps=1, box=1.0)
    values = []
    for epsilon in (1e-2, 1e-4):
        case = Case(algorithm, epsilon, 1.0, 1.0)
        printed, corrected, best = case.certificate.gradient
        assert printed.value == corrected.value == case.certificate.lipschitz == math.inf
        assert "relu' jumps" in best.note
        values.append(best.value)
    assert 0.1 < values[0] == pytest.approx(values[1])
    X, y, w = case.draw(4, 0)
    w[:, :2] = 1e-9  # inside the ramp
    assert 0.01 < float(case.errors(X, y, w).detach().max()) <= values[1]


def test_deep_networks_give_infinity_and_no_exception() -> None:
    """Where the bounds themselves overflow."""
    algorithm = ig.GradientDescent(ig.Network([2, *[64] * 40, 1], "softplus"), steps=1, box=2.0**20)
    tf, sizes = ig.compile(algorithm, epsilon=1e-2, n_examples=2), {"x": (1e3, math.inf), "y": (1.0, math.inf)}
    worst = Worst(tf.program, tf.approximants, sizes)
    for layer in tf.program.body[0].layers:
        worst.layer(layer)
    assert worst.changes["V1"].error.norm == math.inf
    assert [bound.value for bound in theorems(algorithm, tf.approximants, sizes)] == [math.inf, math.inf]


def test_what_is_not_covered_is_refused() -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1), target="gpt", n_examples=2)
    with pytest.raises(ig.InputError, match="only target relu"):
        apriori(tf)
    still = ig.GradientDescent(ig.Network([1, 1]), lr=0.0, steps=1)
    with pytest.raises(ig.InputError, match="lr = 0"):
        apriori(ig.compile(still, n_examples=2, x_bound=1.0, y_bound=1.0))
    program = ig.GradientDescent(ig.Network([1, 1], bias=False), steps=1).program(ig.Options())
    identity = program.readout[0].instructions[0].scores[0].f
    for instruction in (
        Attend("V1[k,c]", Score(identity, ("one", "y[k]")), value="x[c]", scope="all", reduce="sum"),
        Attend("p1[k]", Score(identity, ("omega", "y[k]")), scope="all", reduce="mean"),
        Attend("p1[k]", Score(identity, ("omega", "one")), value="y[k]", scope="demos", reduce="mean"),
    ):
        body = (Loop(1, (Layer("attention", "odd", (instruction,)),)),)
        odd = Program(program.stream, body, program.readout, "y")
        with pytest.raises(ig.InputError, match="layer odd"):
            Worst(odd, {}, {"x": (1.0, 1.0), "y": (1.0, 1.0)}).layer(body[0].layers[0])


def test_an_algorithm_of_ones_own() -> None:
    """An algorithm that the library does not know, with bounds on w0 and no projection: weights may leave them."""
    path = Path(__file__).parent.parent / "examples" / "logistic_regression.py"
    example = runpy.run_path(str(path))["LogisticRegression"]

    class Bounded(example):  # type: ignore[misc, valid-type]
        def program(self, options: ig.Options) -> Program:
            program = super().program(options)
            lanes = (replace(lane, bound=1.0) if lane.role == "weight" else lane for lane in program.stream.lanes)
            return replace(program, stream=ig.Stream(tuple(lanes)))

    tf = ig.compile(Bounded(d=2, lr=0.5, steps=3), epsilon=1e-2, n_examples=4, x_bound=1.0, y_bound=1.0)
    certificate, generator = apriori(tf), torch.Generator().manual_seed(0)
    assert [bound.label for bound in certificate.gradient] == ["best"]
    X, y, w0 = (torch.rand(50, *shape, generator=generator, dtype=torch.float64) for shape in ((4, 2), (4, 1), (3,)))
    X, y, w0 = 2 * X - 1, (y > 0.5).double(), (2 * w0 - 1).sign()
    run, exact = tf.run(X, y, X, w0=w0), ig.reference(tf.algorithm, X, y, X, w0=w0)
    for step in range(1, 4):
        found = float((run.weights[:, step] - exact.weights[:, step]).norm(dim=-1).max())
        assert 0.0 < found <= certificate.trajectory(step)[-1].value < 1.0
    assert float((run.predictions - exact.predictions).norm(dim=-1).max()) <= certificate.prediction
