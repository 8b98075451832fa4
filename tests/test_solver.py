"""Accuracies of single functions, and the solver that chooses them from an error on the final weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import innergrad as ig
from innergrad.evidence.solver import STEP, Solution
from innergrad.model.storage import seal

N = 6
TARGET = 1e-2


def descent(activation: str = "tanh", **settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(
        ig.Network([2, 3, 1], activation), **{"loss": "log-cosh", "lr": 0.2, "steps": 2, **settings}
    )


def examples(seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    X, y, _ = descent().random_prompt(N, 1, torch.Generator().manual_seed(seed))
    return X, y, descent().network.init(seed)


@pytest.fixture(scope="module")
def solved() -> ig.CompiledTransformer:
    X, y, w0 = examples()
    return ig.compile(descent(), weight_error=TARGET, data=(X, y), w0=w0, n_examples=N)


def solution_of(tf: ig.CompiledTransformer) -> Solution:
    assert tf.solution is not None
    return tf.solution


def certified(algorithm: ig.Algorithm, **accuracy: Any) -> float:
    """The bound on the final weights on the examples, with other accuracies."""
    X, y, w0 = examples()
    return ig.compile(algorithm, n_examples=N, **accuracy).certify(X, y, w0=w0, errors="sup").weights[-1]


def heads(tf: ig.CompiledTransformer) -> int:
    return sum(row.heads for row in tf.cost().rows)


# ------------------------------------------------------------------------------------------------------- the solution


def test_the_error_is_met_and_certified(solved: ig.CompiledTransformer) -> None:
    solution, (X, y, w0) = solution_of(solved), examples()
    assert solved.certify(X, y, w0=w0, errors="sup").weights[-1] == solution.bound <= TARGET
    assert solution.bound > 0.9 * TARGET  # nothing is wasted
    distance = (solved.run(X, y, w0=w0).weights[-1] - ig.reference(descent(), X, y, w0=w0).weights[-1]).norm()
    assert 0 < float(distance) <= solution.bound


def test_no_function_can_be_a_step_of_the_grid_coarser(solved: ig.CompiledTransformer) -> None:
    epsilons = solution_of(solved).epsilons
    assert set(epsilons) == {"tanh", "tanh'"}
    for name in epsilons:
        assert certified(descent(), epsilons={**epsilons, name: epsilons[name] * STEP}) > TARGET


def test_it_takes_fewer_heads_than_a_common_epsilon(solved: ig.CompiledTransformer) -> None:
    """... which is the coarsest on the grid that meets the error."""
    solution = solution_of(solved)
    common = ig.compile(descent(), epsilon=solution.common_epsilon, n_examples=N)
    assert certified(descent(), epsilon=solution.common_epsilon) <= TARGET
    assert certified(descent(), epsilon=solution.common_epsilon * STEP) > TARGET
    assert heads(solved) == solution.heads < solution.common_heads == heads(common)


def test_the_transformer_has_the_accuracies_that_were_chosen(solved: ig.CompiledTransformer) -> None:
    solution = solution_of(solved)
    assert dict(solved.options.epsilons) == solution.epsilons
    assert solved.options.epsilon == max(solution.epsilons.values())  # bounds all of them
    for name, epsilon in solution.epsilons.items():
        assert 0.5 * epsilon < solved.approximants[name].error <= epsilon == solved.options.accuracy(name)
    assert "tanh': " in repr(solved)
    assert f"{solution.heads} (a common epsilon" in str(solution)
    assert "the given data" in str(solution)


def test_a_solved_transformer_is_saved_and_verified(solved: ig.CompiledTransformer, tmp_path: Path) -> None:
    loaded, (X, y, w0) = ig.load(solved.save(tmp_path / "model")), examples()
    assert loaded.options == solved.options
    assert loaded.options.weight_error == TARGET
    assert loaded.certify(X, y, w0=w0, errors="sup").weights[-1] == solution_of(solved).bound
    assert loaded.verify(prompts=1).passed


@pytest.mark.parametrize(
    ("algorithm", "error"),
    [
        (descent("softplus", loss="squared", steps=1, box=None), 1e-2),
        (descent(momentum=0.5, weight_decay=0.1), 1e-2),
    ],
)
def test_without_data_it_is_certified_on_random_prompts(algorithm: ig.GradientDescent, error: float) -> None:
    tf = ig.compile(algorithm, weight_error=error, n_examples=3)
    solution = solution_of(tf)
    assert solution.bound <= error
    assert solution.heads <= solution.common_heads
    assert solution.prompts == "4 random prompts"
    generator = torch.Generator().manual_seed(0)  # they are drawn like this
    drawn = [algorithm.random_prompt(3, 1, generator)[:2] for _ in range(4)]
    X, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    w0 = torch.stack([algorithm.network.init(seed) for seed in range(4)])
    exact = ig.reference(algorithm, X, y, w0=w0).weights[:, -1]
    assert float((tf.run(X, y, w0=w0).weights[:, -1] - exact).norm(dim=-1).max()) <= solution.bound


def test_a_linear_network_needs_no_accuracy() -> None:
    solution = solution_of(ig.compile(ig.GradientDescent(ig.Network([2, 1])), weight_error=1e-6))
    assert solution.epsilons == {}
    assert solution.bound < 1e-10
    assert solution.heads == solution.common_heads


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (descent(), {"target": "gpt"}, "needs proven errors.*target='relu'"),
        (descent("relu"), {}, "step functions have no sup error.*got relu'.*width of ramps|width of ramps.*got relu'"),
        (ig.FunctionalGradientDescent(d=2), {}, "about weights"),
        (descent(), {"epsilon": 1e-3}, "weight_error chooses the epsilons"),
        (descent(), {"epsilons": {"tanh": 1e-3}}, "weight_error chooses the epsilons"),
        (descent(), {"data": torch.ones(2, 2)}, "data is a pair of arrays"),
        (descent(), {"weight_error": 0.0}, "weight_error must be a positive number"),
        (descent(), {"weight_error": "small"}, "weight_error must be a positive number"),
        (descent(), {"weight_error": None, "data": (1, 2)}, "no weight_error"),
        (descent(steps=1), {"weight_error": 1e-9}, r"weight_error = 1e-09 cannot be certified.*got \d.*fewer steps"),
        (
            descent(steps=6, lr=20.0, box=None, loss="squared"),
            {},
            r"cannot be certified.*got a bound that diverges in step \d; take fewer steps, a smaller lr",
        ),
    ],
)
def test_what_cannot_be_solved(algorithm: ig.Algorithm, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ig.InputError, match=message):
        ig.compile(algorithm, n_examples=3, **{"weight_error": 1e-3, **options})


# ------------------------------------------------------------------------------------ accuracies of single functions


def test_each_function_has_its_own_accuracy() -> None:
    tf = ig.compile(descent(), epsilons={"tanh'": 1e-2}, n_examples=N)
    one, other = (ig.compile(descent(), epsilon=epsilon, n_examples=N) for epsilon in (1e-3, 1e-2))
    assert tf.approximants["tanh"] == one.approximants["tanh"]
    assert tf.approximants["tanh'"] == other.approximants["tanh'"]
    X, y, w0 = examples()
    bounds = [model.certify(X, y, w0=w0, errors="sup").weights[-1] for model in (one, tf, other)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 3


def test_float32_is_checked_against_the_accuracy_of_each_function() -> None:
    """The rounding of the weights in float32 is more than 1e-6, which one of the functions is to have."""
    X, y, w0 = examples()
    coarse = ig.compile(descent(steps=1), n_examples=N)
    assert coarse.run(X, y, w0=w0, executor="dense", dtype=torch.float32).weights.dtype == torch.float32
    fine = ig.compile(descent(steps=1), epsilons={"tanh'": 1e-6}, n_examples=N)
    with pytest.raises(ig.InputError, match=r"epsilon = 1e-06 cannot be reached in torch\.float32.*in tanh'"):
        fine.run(X, y, w0=w0, executor="dense", dtype=torch.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": {"sinh": 1e-3}}, "does not approximate; got sinh; allowed: tanh, tanh'"),
        ({"epsilons": {"identity": 1e-3}}, "does not approximate; got identity"),
        ({"epsilons": {"tanh": 0.5}}, "epsilon is the sup error"),
        ({"epsilons": {"tanh": "fine"}}, "epsilon is the sup error"),
        ({"epsilons": {"tanh": 1e-9}}, "epsilon is the sup error"),
        ({"epsilons": {1: 1e-3}}, "pairs of a function's name and a number"),
        ({"epsilons": [("tanh", 1e-3)]}, "epsilons are given by name"),
        ({"epsilons": {"tanh": 1e-9}, "target": "gpt"}, "share their units"),
    ],
)
def test_bad_accuracies(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ig.InputError, match=message):
        ig.compile(descent(), n_examples=N, **options)


def test_accuracies_are_saved_and_checked(tmp_path: Path) -> None:
    tf = ig.compile(descent(steps=1), epsilons={"tanh'": 1e-2}, n_examples=2)
    folder = tf.save(tmp_path / "model")
    assert ig.load(folder).options == tf.options
    written = (folder / "config.json").read_text()

    def edited(**options: Any) -> None:
        config = json.loads(written)
        config["options"] |= options
        (folder / "config.json").write_text(json.dumps(config))
        seal(folder)
        ig.load(folder)

    for epsilons, message in (
        (
            [["tanh'", 5e-3]],
            "the error of tanh' is not the one that is stated|error of tanh' is larger than its epsilon",
        ),
        ([["sinh", 1e-2]], "does not approximate; got sinh"),
        ([["tanh'", "fine"]], "epsilon is the sup error"),
        ([["tanh'"]], "pairs of a function's name"),
        (3, "not a complete model"),
    ):
        with pytest.raises(ig.InputError, match=message):
            edited(epsilons=epsilons)
    for name in ("weight_error", "until"):
        with pytest.raises(ig.InputError, match=name):
            edited(**{name: -1.0})


def test_folders_without_the_later_options_are_loaded(tmp_path: Path) -> None:
    tf = ig.compile(descent(steps=1), n_examples=2)
    folder = tf.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for name in ("epsilons", "weight_error", "until"):
        del config["options"][name]
    del config["digest"]
    weights = folder / "weights.safetensors"
    save_file(load_file(weights), weights)  # it says nothing of itself
    (folder / "config.json").write_text(json.dumps(config))
    assert ig.load(folder).options == tf.options
