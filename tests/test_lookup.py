"""Target ``softmax``, variant ``lookup``: learning rules tabulated on a grid.

The oracles are a quantiser and the rules themselves in plain Python, and brute-force counts of multisets.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.algorithms.lookup import MOST_ROWS, table_rows
from innergrad.targets.parts.attention import SoftmaxAttention

LR = 0.37  # weights do not land on the edges of cells


def descent(grid: int = 4, steps: int = 1, **settings: Any) -> ig.GridDescent:
    """One scalar weight, f(x) = w x, half the mean squared error."""
    network = ig.Network([1, 1], bias=False)
    algorithm = ig.GradientDescent(network, lr=LR, steps=steps, box=settings.pop("box", 1.0))
    return ig.GridDescent(algorithm, grid=grid, **settings)


@cache
def of_two(grid: int) -> ig.CompiledTransformer:
    """One step on at most two examples."""
    return ig.compile(descent(grid), n_examples=2)


# --------------------------------------------------------------------------------------------- the same in plain Python

Example = tuple[float, float]
Rule = Callable[[float, list[Example]], float]


def rounded(value: float, bound: float, grid: int) -> float:
    """The middle of its cell."""
    cell = min(grid - 1, int((value + bound) / (2 * bound) * grid))
    return -bound + (cell + 0.5) * 2 * bound / grid


def gradient_step(w: float, examples: list[Example]) -> float:
    return w - LR * sum((w * x - y) * x for x, y in examples) / len(examples)


def on_the_grid(rule: Rule, w: float, examples: list[Example], algorithm: ig.Tabulated) -> list[float]:
    """The weights after every step: w, x and y rounded, a step, clipped."""
    D, path = algorithm.grid, [w]
    cells = [(rounded(x, algorithm.x_bound, D), rounded(y, algorithm.y_bound, D)) for x, y in examples]
    for _ in range(algorithm.steps):
        w = rule(rounded(w, algorithm.box, D), cells)
        w = max(-algorithm.box, min(algorithm.box, w))
        path.append(w)
    return path


def off_the_ramps(rng: random.Random, bound: float, grid: int) -> float:
    """Uniform, but not within a thousandth of a cell of an edge."""
    cell = rng.randrange(grid)
    return -bound + (cell + rng.uniform(0.001, 0.999)) * 2 * bound / grid


def prompts(algorithm: ig.Tabulated, n: int, count: int, seed: int = 0) -> dict[str, Any]:
    rng, D = random.Random(seed), algorithm.grid

    def draw(rows: int, bound: float) -> Tensor:
        drawn = [[[off_the_ramps(rng, bound, D)] for _ in range(rows)] for _ in range(count)]
        return torch.tensor(drawn, dtype=torch.float64)

    X, y, X_query = draw(n, algorithm.x_bound), draw(n, algorithm.y_bound), draw(3, algorithm.x_bound)
    return {"X": X, "y": y, "X_query": X_query, "w0": draw(1, algorithm.box)[:, :, 0]}


def check(tf: ig.CompiledTransformer, rule: Rule, n: int, count: int = 100, tolerance: float = 1e-7) -> None:
    """The module's weights after every step, and its predictions w x, are those of plain Python on every prompt."""
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.Tabulated)
    given = prompts(algorithm, n, count, seed=n)
    run = tf.run(**given, executor="dense")
    moved = set()
    for i in range(count):
        examples = list(zip(given["X"][i, :, 0].tolist(), given["y"][i, :, 0].tolist(), strict=True))
        path = on_the_grid(rule, float(given["w0"][i]), examples, algorithm)
        assert run.weights[i, :, 0].tolist() == pytest.approx(path, abs=tolerance), examples
        w = rounded(path[-1], algorithm.box, algorithm.grid)
        expected = [w * rounded(x, algorithm.x_bound, algorithm.grid) for x in given["X_query"][i, :, 0].tolist()]
        assert run.predictions[i, :, 0].tolist() == pytest.approx(expected, abs=tolerance)
        moved.add(round(path[-1], 6))
    assert len(moved) > 3, "the rule does something"


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("grid", [2, 3, 4, 8])
def test_a_step_is_the_step_at_the_middles_of_the_cells(grid: int, n: int) -> None:
    """One example or two from the same model."""
    check(of_two(grid), gradient_step, n)


@pytest.mark.parametrize("steps", [2, 5])
def test_several_steps_quantise_the_weights_again_and_again(steps: int) -> None:
    check(ig.compile(descent(4, steps), n_examples=2), gradient_step, 2)


def test_prompts_may_be_shorter_than_the_table_allows() -> None:
    tf = ig.compile(descent(2, steps=2), n_examples=4)
    for n in (1, 2, 3, 4):
        check(tf, gradient_step, n, count=40)


def test_the_ranges_need_not_be_one_and_the_box_holds() -> None:
    """x in [-2, 2], y in [-3, 3], w in [-0.5, 0.5]: many steps end on the box."""
    algorithm = descent(4, box=0.5, x_bound=2.0, y_bound=3.0)
    tf = ig.compile(algorithm, n_examples=2)
    check(tf, gradient_step, 2)
    weights = tf.run(**prompts(algorithm, 2, 50), executor="dense").weights[:, 1]
    assert int((weights.abs() > 0.5 - 1e-9).sum()) > 5
    assert float(weights.abs().max()) < 0.5 + 1e-9


def test_the_error_halves_when_the_cells_do() -> None:
    """Against gradient descent without a grid: the largest error of 400 prompts is about 1.2 / D."""
    errors = {}
    for grid in (2, 4, 8):
        given = prompts(descent(64), 2, 400)
        X, y, w = given["X"][..., 0], given["y"][..., 0], given["w0"]
        exact = (w[:, 0] - LR * ((w * X - y) * X).mean(1)).clamp(-1.0, 1.0)
        errors[grid] = float((of_two(grid).run(**given, executor="dense").weights[:, 1, 0] - exact).abs().max())
    assert 0.5 < 2 * errors[2] < 2.0
    for grid in (2, 4):
        assert 0.4 < errors[2 * grid] / errors[grid] < 0.6


# ------------------------------------------------------------------------------------------------ the size of the table


def multisets(codes: int, n: int) -> list[tuple[int, ...]]:
    """Of 1 to n tokens, by brute force over all prompts."""
    return [m for k in range(1, n + 1) for m in {tuple(sorted(p)) for p in itertools.product(range(codes), repeat=k)}]


@pytest.mark.parametrize(("grid", "n"), [(2, 1), (2, 2), (2, 4), (4, 2), (4, 3), (8, 2)])
def test_the_rows_are_weights_times_multisets_of_examples(grid: int, n: int) -> None:
    assert 10 ** table_rows(descent(grid), n) == pytest.approx(grid * len(multisets(grid**2, n)), rel=1e-9)


@pytest.mark.parametrize("grid", [2, 4, 8])
def test_the_table_has_a_unit_or_more_for_each_change_of_its_output(grid: int) -> None:
    """Two hinges a step of the step function, two that clear; a sum of u hinges has no more than u + 1 levels."""
    tf = of_two(grid)
    (units,) = (row.heads for row in tf.cost().rows if row.name == "look up")
    middles = [rounded(-1 + (2 * c + 1) / grid, 1.0, grid) for c in range(grid)]
    tokens = list(itertools.product(middles, middles))
    found = [
        gradient_step(w, list(pair)) for w in middles for pair in itertools.combinations_with_replacement(tokens, 2)
    ]
    distinct = len({round(w, 9) for w in found})
    assert distinct - 1 <= units <= 2 * len(found) + 2
    assert tf.n_parameters > distinct


def test_the_table_of_a_network_is_astronomical_and_finite() -> None:
    """Exact integers say how large: D^D_w times sum_m (D^(d_x + d_y) + m - 1 choose m)."""
    network = ig.Network([10, 8, 8, 1])
    algorithm = ig.GridDescent(ig.GradientDescent(network), grid=4)
    rows = 4**network.n_weights * sum(math.comb(4**11 + m - 1, m) for m in range(1, 49))
    assert table_rows(algorithm, 48) == pytest.approx(math.log10(rows), rel=1e-12)
    assert table_rows(algorithm, 48) > 300
    wide = ig.GridDescent(ig.GradientDescent(ig.Network([2000, 50, 1])), grid=16)
    assert 1e5 < table_rows(wide, 100) < 1e9


def test_too_large_a_table_is_refused_with_its_size() -> None:
    algorithm = descent(16)
    rows = 16 * len(multisets(256, 2)) + 16 * math.comb(256 + 2, 3)
    assert rows > MOST_ROWS
    with pytest.raises(ig.InputError, match=rf"too many rows; got 10\^{math.log10(rows):.1f} with 16 cells.*2,000,000"):
        ig.compile(algorithm, n_examples=3)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_step_takes_four_layers(steps: int) -> None:
    """quantise, context id, look up, project; one of them is attention, with one head."""
    tf = ig.compile(descent(2, steps), n_examples=2)
    assert tf.n_layers == 4 * steps
    layers = list(tf.module.layers())
    assert len(layers) == 4 * steps + tf.n_readout_layers
    attention = [i for i, layer in enumerate(layers) if isinstance(layer, SoftmaxAttention)]
    assert attention == [4 * i + 1 for i in range(steps)]
    assert tf.n_heads == 1


# --------------------------------------------------------------------------------------------------- a user's own rules


@dataclass(frozen=True)
class Cubic(ig.Tabulated):
    """A loss that innergrad does not ship: |w x - y|^3."""

    def loss(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return (w[:, None] * X - y)[..., 0].abs() ** 3

    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        return w * x


@dataclass(frozen=True)
class Quantile(Cubic):
    """The loss of a quantile: tau r for r = y - w x > 0, (tau - 1) r for r < 0."""

    tau: float = 0.8

    def loss(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        r = (y - w[:, None] * X)[..., 0]
        return torch.maximum(self.tau * r, (self.tau - 1) * r)


@dataclass(frozen=True)
class MedianStep(Cubic):
    """Towards the median (the lower one) of what each example asks for, y / (1 + x^2)."""

    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        asked = (y / (1 + X**2))[..., 0]
        return w + self.lr * (asked.median(dim=1, keepdim=True).values - w)


@dataclass(frozen=True)
class Relabels(Cubic):
    """Examples get the label y - mean(y)."""

    def relabel(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return y - y.mean(1, keepdim=True)


def cubic_step(w: float, examples: list[Example]) -> float:
    slopes = [3 * abs(w * x - y) * (w * x - y) * x for x, y in examples]
    return w - LR * sum(slopes) / len(slopes)


def quantile_step(w: float, examples: list[Example]) -> float:
    slopes = [-x * (0.8 if y > w * x else -0.2) for x, y in examples]
    return w - LR * sum(slopes) / len(slopes)


def median_step(w: float, examples: list[Example]) -> float:
    asked = sorted(y / (1 + x * x) for x, y in examples)
    return w + LR * (asked[(len(asked) - 1) // 2] - w)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("kind", "rule"), [(Cubic, cubic_step), (Quantile, quantile_step), (MedianStep, median_step)])
def test_a_users_loss_and_a_users_step_become_tables(kind: type[Cubic], rule: Rule, steps: int) -> None:
    """The loss as in Theorem 6, a gradient step on its mean; the median is no mean at all."""
    tf = ig.compile(kind(grid=4, lr=LR, steps=steps), n_examples=3)
    for n in (1, 2, 3):
        check(tf, rule, n, count=40)


def test_a_table_can_have_several_weights_inputs_and_outputs() -> None:
    """w of 2 entries, x of 2, and y of 2: w_k <- mean of (y_k + x_k) / 4 + w_{1-k} / 2, predicted w_k x_{1-k}."""

    @dataclass(frozen=True)
    class Crossed(ig.Tabulated):
        def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
            return ((X + y) / 4).mean(1) + w.flip(-1) / 2

        def predict(self, w: Tensor, x: Tensor) -> Tensor:
            return w * x.flip(-1)

    algorithm = Crossed(d_x=2, d_y=2, n_weights=2, grid=2, steps=2)
    tf = ig.compile(algorithm, n_examples=2)
    generator = torch.Generator().manual_seed(0)
    X, y, X_query, w0 = (
        (2 * torch.rand(30, *shape, 2, generator=generator, dtype=torch.float64) - 1)
        for shape in ((2,), (2,), (1,), ())
    )
    run = tf.run(X, y, X_query, w0=w0, executor="dense")

    def middle(t: Tensor) -> Tensor:
        return torch.where(t > 0, 0.5, -0.5).double()

    w = w0
    for _ in range(2):
        w = ((middle(X) + middle(y)) / 4).mean(1) + middle(w).flip(-1) / 2
    on_an_edge = (w.abs() < 1e-6).any(-1)  # sums of quarters may be zero
    first = ((middle(X) + middle(y)) / 4).mean(1) + middle(w0).flip(-1) / 2
    kept = ~on_an_edge & ~(first.abs() < 1e-6).any(-1)
    assert int(kept.sum()) > 5
    assert float((run.weights[kept, 2] - w[kept]).abs().max()) < 1e-8
    assert float((run.predictions[kept, 0] - (middle(w) * middle(X_query[:, 0]).flip(-1))[kept]).abs().max()) < 1e-8


@pytest.mark.parametrize("steps", [1, 2])
def test_examples_can_be_relabelled(steps: int) -> None:
    """y_i - mean(y) at the middles of the cells, in the lane labels of every example, in any order."""
    tf = ig.compile(Relabels(grid=3, lr=LR, steps=steps), n_examples=3)
    algorithm = tf.algorithm
    assert isinstance(algorithm, Relabels)
    for n in (1, 2, 3):
        given = prompts(algorithm, n, 40, seed=n)
        lanes = tf.trace(**given, executor="dense")[-1][1]
        cells = [[rounded(v, 1.0, 3) for v in row] for row in given["y"][..., 0].tolist()]
        y = torch.tensor(cells, dtype=torch.float64)
        assert lanes["labels"].shape == (40, n + 3, 1)
        assert float((lanes["labels"][:, :n, 0] - (y - y.mean(1, keepdim=True))).abs().max()) < 1e-8
        shuffled = {**given, "X": given["X"].flip(1), "y": given["y"].flip(1)}
        again = tf.trace(**shuffled, executor="dense")[-1][1]["labels"]
        assert float((again[:, :n].flip(1) - lanes["labels"][:, :n]).abs().max()) < 1e-8
        check(tf, cubic_step, n, count=10)


# ------------------------------------------------------------------------------------------------------ what is refused


@dataclass(frozen=True)
class FirstExample(Cubic):
    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return y[:, 0]


@dataclass(frozen=True)
class MiddleCountsTwice(Cubic):
    """y_1 / 4 + y_2 / 2 + y_3 / 4 for three examples, else the mean: the order matters, but not its reversal."""

    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return (y.mean(1) * 3 + y[:, 1]) / 4 if y.shape[1] == 3 else y.mean(1)


@dataclass(frozen=True)
class Total(Cubic):
    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return y.sum(1) / 4


@dataclass(frozen=True)
class WrongShape(Cubic):
    def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return torch.cat([w, w], dim=-1)


@dataclass(frozen=True)
class RelabelsInOrder(Cubic):
    def relabel(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return y.cumsum(1)


@dataclass(frozen=True)
class RelabelsByNumber(Cubic):
    def relabel(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return y * y.shape[1]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FirstExample, "step is not permutation-equivariant.*other results for the examples in another order"),
        (WrongShape, r"wrong shape; got shape \(\d+, 2\)"),
        (Total, "if step depends on the number of examples, fixed_length=True"),
        (RelabelsInOrder, "relabel is not permutation-equivariant"),
        (RelabelsByNumber, "relabel is not permutation-equivariant, or depends on more than the mean"),
    ],
)
def test_a_rule_that_is_no_function_of_the_mean_over_the_examples_is_refused(kind: type[Cubic], reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        ig.compile(kind(grid=2), n_examples=2)


def test_a_rule_that_only_the_reversal_leaves_alone_is_refused() -> None:
    with pytest.raises(ig.InputError, match="permutation-equivariant"):
        ig.compile(MiddleCountsTwice(grid=2), n_examples=3)


def test_the_number_of_examples_does_not_matter_where_there_is_one() -> None:
    check(ig.compile(Total(grid=8), n_examples=1), lambda w, examples: examples[0][1] / 4, 1)


@pytest.mark.parametrize("lane", ["X", "y"])
def test_inputs_outside_the_grid_are_an_error(lane: str) -> None:
    tf = ig.compile(descent(2, x_bound=0.5, y_bound=2.0), n_examples=2)
    given: dict[str, Any] = {"X": torch.full((2, 1), 0.4), "y": torch.full((2, 1), 1.9)}
    tf.run(**given, w0=torch.tensor([0.3]))
    given[lane][1] = 3.0
    with pytest.raises(ig.InputError, match=rf"{lane} is not on the grid; got max \|{lane}\| = 3"):
        tf.run(**given, w0=torch.tensor([0.3]))


def test_queries_outside_the_grid_are_an_error() -> None:
    tf = ig.compile(descent(2), n_examples=1)
    with pytest.raises(ig.InputError, match="not on the grid"):
        tf.run(torch.tensor([[0.3]]), torch.tensor([[0.3]]), torch.tensor([[5.0]]), w0=torch.tensor([0.3]))


def test_what_has_no_grid_is_refused() -> None:
    network = ig.Network([1, 1])
    for algorithm in (ig.GradientDescent(network, box=None), ig.GradientDescent(network, momentum=0.5)):
        with pytest.raises(ig.InputError, match="a grid needs a box, and no momentum; got box="):
            ig.GridDescent(algorithm)
    with pytest.raises(ig.InputError, match="grid"):
        descent(1)
    with pytest.raises(ig.InputError, match="does not weight its examples"):
        ig.compile(descent(2)).run(
            torch.tensor([[0.3]]), torch.tensor([[0.3]]), w0=torch.tensor([0.3]), sample_weight=torch.ones(1)
        )
    for variant in ("sink", "mean"):
        with pytest.raises(ig.InputError, match=f"grid_descent has no program for variant '{variant}'"):
            ig.compile(descent(2), variant=variant)


# --------------------------------------------------------------------------------------------------- edges, and float32


@pytest.mark.parametrize("lane", ["X", "y", "X_query", "w0"])
def test_a_value_on_an_edge_is_in_the_cell_that_the_reference_says(lane: str) -> None:
    """0 is an edge of every even grid: weights that start at 0, inputs that are 0."""
    algorithm = descent(4)
    given = {name: value[0] for name, value in prompts(algorithm, 1, 1).items()}
    given[lane] = torch.zeros_like(given[lane])
    tf = ig.compile(algorithm, n_examples=1)
    run, reference = tf.run(**given, executor="dense"), ig.reference(algorithm, **given)
    assert float((run.weights - reference.weights).abs().max()) < 1e-8
    assert float((run.predictions - reference.predictions).abs().max()) < 1e-8


def test_every_law_holds_for_a_users_rule_that_starts_from_zero() -> None:
    report = ig.compile(Cubic(grid=4), n_examples=2).verify()
    assert report.passed, str(report)


def test_every_multiset_of_examples_finds_its_own_row() -> None:
    """All 3876 of four examples on four cells; those that are worst are run as matrices, too."""
    algorithm = Cubic(grid=4, lr=LR)
    tf, w = ig.compile(algorithm, n_examples=4), -0.75
    middles = [-0.75, -0.25, 0.25, 0.75]
    tokens = [(x, y) for y in middles for x in middles]
    all_of_them = list(itertools.combinations_with_replacement(tokens, 4))
    given = torch.tensor(all_of_them, dtype=torch.float64)
    expected = torch.tensor([cubic_step(w, list(examples)) for examples in all_of_them], dtype=torch.float64)
    prompt: dict[str, Any] = {"X": given[..., :1], "y": given[..., 1:], "w0": torch.full((len(given), 1), w)}
    errors = (tf.run(**prompt).weights[:, 1, 0] - expected.clamp(-1.0, 1.0)).abs()
    worst = errors.argsort()[-5:]
    dense = tf.run(**{name: value[worst] for name, value in prompt.items()}, executor="dense").weights[:, 1, 0]
    assert float((dense - expected[worst].clamp(-1.0, 1.0)).abs().max()) < 1e-6
    assert float(errors.max()) < 1e-6


def test_float32_is_right_or_refused() -> None:
    """Of the table with 8 cells an entry 90% of prompts get another row."""
    tf, given = of_two(8), prompts(descent(8), 2, 100)
    try:
        single = tf.run(**given, executor="dense", dtype=torch.float32)
    except ig.InputError:
        return
    double = tf.run(**given, executor="dense")
    assert float((single.weights.double() - double.weights).abs().max()) < 1e-3


# ------------------------------------------------------------------------------------------------- saving and verifying


def same(a: ig.CompiledTransformer, b: ig.CompiledTransformer) -> None:
    assert isinstance(a.algorithm, ig.Tabulated)
    given = prompts(a.algorithm, 2, 20)
    for executor in ("plain", "dense"):
        one, other = (tf.run(**given, executor=executor) for tf in (a, b))
        assert torch.equal(one.weights, other.weights)
        assert torch.equal(one.predictions, other.predictions)
    assert a.algorithm == b.algorithm
    assert a.options == b.options


def test_a_saved_grid_descent_is_the_same(tmp_path: Path) -> None:
    tf = ig.compile(descent(3, steps=2, x_bound=2.0, y_bound=0.5), n_examples=2)
    same(tf, ig.load(tf.save(tmp_path)))


def test_a_users_rule_is_saved_and_loaded_with_its_class(tmp_path: Path) -> None:
    tf = ig.compile(Quantile(grid=3, tau=0.6), n_examples=2)
    tf.save(tmp_path)
    again = ig.load(tmp_path, extensions=[Quantile])
    same(tf, again)
    assert isinstance(again.algorithm, Quantile)
    assert again.algorithm.tau == 0.6
    with pytest.raises(ig.InputError, match=r"the model's algorithm is not known here; got 'Quantile'.*extensions="):
        ig.load(tmp_path)


@pytest.mark.parametrize(
    "algorithm", [descent(2, steps=2), descent(3), descent(4), MedianStep(grid=3, steps=2), Relabels(grid=3)]
)
def test_every_law_holds(algorithm: ig.Tabulated) -> None:
    report = ig.compile(algorithm, n_examples=2).verify()
    assert report.passed, str(report)


def test_a_corrupted_weight_of_any_matrix_is_noticed() -> None:
    """The largest of each, off by one per cent; of keys the smallest, for the largest tells examples from queries by
    e^-1024.
    """
    algorithm = descent(3)
    tf = ig.compile(algorithm, n_examples=2)
    bad = ig.CompiledTransformer(tf.algorithm, tf.program, tf.approximants, tf.options, copy.deepcopy(tf.module))
    given = prompts(algorithm, 2, 3)
    assert bad.verify(**given).passed
    for layer in bad.module.stored_layers():
        for name in layer.matrices:
            stack = getattr(layer, name)
            if not len(stack.value):
                continue
            size = stack.value.abs()
            entry = int(size.argmin() if name == "W_K" else size.argmax())
            original = stack.value[entry].item()
            stack.value[entry] = 1.01 * original
            assert not bad.verify(**given).passed, (layer.name, name)
            stack.value[entry] = original
    assert bad.verify(**given).passed


def test_any_symmetric_rule_is_looked_up_for_prompts_of_one_length() -> None:
    """Sums over the examples and ranks depend on their number: fine, if it is fixed."""

    @dataclass(frozen=True)
    class Sums(Cubic):
        def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
            return 0.3 * y.sum(1)

        def relabel(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
            return (y.unsqueeze(1) < y.unsqueeze(2)).double().sum(2)  # how many labels are smaller

    rule = Sums(grid=3, fixed_length=True)
    tf = ig.compile(rule, n_examples=3)
    X, y = torch.tensor([[-0.6], [0.0], [0.7]]), torch.tensor([[0.6], [-0.7], [0.0]])
    assert float(tf.run(X, y, executor="dense").weights[-1, 0]) == pytest.approx(0.3 * (2 / 3 - 2 / 3 + 0.0), abs=1e-9)
    labels = tf.trace(X, y, executor="dense")[-1][1]["labels"][0, :3, 0]
    assert torch.allclose(labels, torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64), atol=1e-9)
    with pytest.raises(ig.InputError, match="the number of examples is fixed; got 2; allowed: 3"):
        tf.run(X[:2], y[:2])


def test_rules_that_give_no_table_are_refused() -> None:
    @dataclass(frozen=True)
    class Nothing(ig.Tabulated):
        def predict(self, w: Tensor, x: Tensor) -> Tensor:
            return w * x

    @dataclass(frozen=True)
    class NotANumber(Nothing):
        def step(self, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
            return w * float("nan")

    with pytest.raises(ig.InputError, match="Nothing has no rule; override loss, or step"):
        ig.compile(Nothing(), n_examples=1)
    with pytest.raises(ig.InputError, match="step gives no table, or the wrong shape; got NaN or infinity"):
        ig.compile(NotANumber(), n_examples=1)
    with pytest.raises(ig.InputError, match="ranges of a grid are settings of the algorithm"):
        ig.compile(Cubic(), n_examples=1, x_bound=3.0)


def test_a_table_is_not_exported_in_float32(tmp_path: Path) -> None:
    from innergrad.export import export_onnx

    with pytest.raises(ig.InputError, match=r"too steep for torch.float32.*a table needs float64"):
        export_onnx(ig.compile(Cubic(grid=4), n_examples=2), tmp_path / "model.onnx")
