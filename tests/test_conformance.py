"""The battery that every algorithm inherits: one table of algorithms, every law."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import innergrad as ig
from independent_forward import forward
from innergrad.errors import LoweringError
from logistic_regression import LogisticRegression


def gd(
    sizes: list[int], activation: str = "tanh", output: str = "linear", bias: bool = True, **settings: object
) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(sizes, activation, output, bias), **settings)  # type: ignore[arg-type]


CASES: dict[str, tuple[ig.Algorithm, float]] = {
    "tanh, squared": (gd([3, 4, 4, 2], steps=3), 1e-3),
    "one layer": (gd([3, 2], bias=False, steps=3), 1e-2),
    "one layer, activated": (gd([3, 2], "sigmoid", "activation", steps=3), 1e-2),
    "momentum and decay": (gd([2, 3, 1], "gelu", lr=0.3, steps=4, momentum=0.8, weight_decay=0.1), 1e-2),
    "log-cosh, activated": (gd([3, 5, 2], "softplus", "activation", loss="log-cosh", steps=2), 1e-2),
    "pseudo-huber": (gd([2, 3, 2], "silu", loss="pseudo-huber", steps=2), 1e-3),
    "logistic": (gd([2, 3, 2], "gelu", loss="logistic", steps=2), 1e-2),
    "softmax": (gd([2, 4, 5], "tanh", loss="softmax", steps=2), 1e-2),
    "tight box": (gd([2, 3, 1], lr=2.0, steps=4, box=0.3), 1e-2),
    "no box": (gd([2, 3, 1], steps=2, box=None), 1e-2),
    "sin": (gd([2, 3, 1], "sin", steps=2), 1e-2),
    "relu": (gd([3, 4, 4, 1], "relu", steps=3), 1e-3),
    "leaky_relu": (gd([3, 4, 1], "leaky_relu", steps=3), 1e-3),
    "relu6, activated": (gd([3, 4, 1], "relu6", "activation", steps=3), 1e-3),
    "N = 6": (gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2),
    "a stranger's algorithm": (LogisticRegression(d=3, steps=5), 1e-3),
}


class Case:
    def __init__(self, name: str) -> None:
        self.algorithm, epsilon = CASES[name]
        self.tf = ig.compile(self.algorithm, epsilon=epsilon, n_examples=9, z_bound=16.0)
        self.n_weights = self.tf.program.n_weights

    def prompts(self, batch: int, n: int = 7, n_query: int = 2) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(5)
        drawn = [self.algorithm.random_prompt(n, n_query, generator) for _ in range(batch)]
        X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
        box = getattr(self.algorithm, "box", None) or 1.0
        w0 = torch.randn(batch, self.n_weights, generator=generator, dtype=torch.float64).mul(0.7).clamp(-box, box)
        return {"X": X, "y": y, "X_query": X_query, "w0": w0}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def close(a: Tensor, b: Tensor, tolerance: float, case: Case) -> None:
    """Relative to the largest entry; a ramp of width delta multiplies rounding by 1/delta."""
    ramps = any(f.ramps for f in case.tf.approximants.values())
    assert float((a - b).abs().max()) <= tolerance * (2**13 if ramps else 1) * max(1.0, float(b.abs().max()))


def test_dense_equals_plain_to_1e_13(case: Case) -> None:
    prompt = case.prompts(3)
    plain, dense = (case.tf.trace(**prompt, executor=executor) for executor in ("plain", "dense"))  # type: ignore[arg-type]
    assert [name for name, _ in plain] == [name for name, _ in dense]
    for (_, a), (_, b) in zip(plain, dense, strict=True):
        for lane in a:
            close(b[lane], a[lane].expand_as(b[lane]), 1e-13, case)
    assert len(plain) == case.tf.n_layers + case.tf.n_readout_layers + 1


def test_an_independent_forward_pass_of_the_saved_folder_agrees_to_1e_13(case: Case, tmp_path: Path) -> None:
    prompt = {name: value[0] for name, value in case.prompts(1).items()}
    case.tf.save(tmp_path)
    n, n_query = len(prompt["X"]), len(prompt["X_query"])
    demo = np.arange(n + n_query) < n
    lanes = {
        "x": np.concatenate([prompt["X"], prompt["X_query"]]),
        "y": np.concatenate([prompt["y"], np.zeros((n_query, prompt["y"].shape[1]))]),
        "one": np.ones(1),
        "t": demo.astype(float),
        "query": (~demo).astype(float),
        "omega": demo * (n + n_query) / n,
    }
    start = 0
    for lane in json.loads((tmp_path / "config.json").read_text())["layout"]:
        if lane["role"] == "weight":
            size = int(np.prod(lane["shape"]))
            lanes[lane["name"]] = prompt["w0"][start : start + size].numpy()
            start += size
    h = torch.from_numpy(forward(tmp_path, lanes))
    final = case.tf.trace(**prompt)[-1][1]
    close(h, case.tf.program.stream.pack(final)[0], 1e-13, case)


def test_every_law_of_verify_holds(case: Case) -> None:
    report = case.tf.verify(**case.prompts(2))
    assert report.passed, str(report)
    assert [law.name for law in report.laws] == [
        "weights", "probe", "proof", "approximation", "oracle", "examples", "shared", "scratch", "inputs", "box",
    ]  # fmt: skip
    assert max(report.distance) > 0 or case.algorithm == CASES["one layer"][0]


def test_save_and_load_is_the_identity(case: Case, tmp_path: Path) -> None:
    again = ig.load(case.tf.save(tmp_path), extensions=[LogisticRegression])
    prompt = case.prompts(2)
    for executor in ("plain", "dense"):
        a, b = (tf.run(**prompt, executor=executor) for tf in (case.tf, again))  # type: ignore[arg-type]
        assert torch.equal(a.weights, b.weights)
        assert torch.equal(a.predictions, b.predictions)
    assert again.algorithm == case.algorithm
    assert again.approximants == dict(case.tf.approximants)
    assert again.options == case.tf.options
    assert str(again.cost()) == str(case.tf.cost())


def test_a_prompt_depends_on_no_other_prompt_and_on_no_order(case: Case) -> None:
    prompt = case.prompts(4)
    together = case.tf.run(**prompt)
    alone = case.tf.run(**{name: value[2] for name, value in prompt.items()})
    close(alone.weights, together.weights[2], 1e-12, case)
    close(alone.predictions, together.predictions[2], 1e-12, case)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    shuffled = case.tf.run(**{**prompt, "X": prompt["X"][:, order], "y": prompt["y"][:, order]})
    close(shuffled.weights, together.weights, 1e-12, case)
    swapped = case.tf.run(**{**prompt, "X_query": prompt["X_query"].flip(1)})
    close(swapped.predictions.flip(1), together.predictions, 1e-12, case)


def test_cost_counts_the_weights_that_are_there(case: Case) -> None:
    rows, modules = case.tf.cost().rows, list(case.tf.module.stored_layers())
    for row, module in zip(rows, modules, strict=True):
        stacks = dict(module.named_children())
        assert row.nonzeros == sum(int((stack.value != 0).sum()) for stack in stacks.values())
        assert row.heads == (stacks["W_1"].shape[1] if "W_1" in stacks else stacks["W_Q"].shape[0])
        if "W_1" in stacks:
            norm = float(stacks["W_1"].norms().max() + stacks["W_2"].norms().max())
        else:
            value = stacks["W_O"].dense() @ stacks["W_V"].dense()
            norm = float(
                max(stacks["W_Q"].norms().max(), stacks["W_K"].norms().max()) + value.abs().sum(1).amax(-1).sum()
            )
            assert row.low_rank == sum(stack.dense().numel() for stack in stacks.values())
        assert row.norm == pytest.approx(norm, rel=1e-12), row.name
    assert case.tf.n_parameters == sum(row.nonzeros for row in rows)
    assert case.tf.n_heads == max(row.heads for row in rows if row.kind == "attention")


def test_the_state_dict_is_dense_and_loads_back(case: Case) -> None:
    module = ig.compile(case.algorithm, epsilon=case.tf.options.epsilon, n_examples=9, z_bound=16.0).module
    state = module.state_dict()
    assert all(value.ndim == 3 and not value.is_sparse for value in state.values())
    assert sum(int((value != 0).sum()) for value in state.values()) == case.tf.n_parameters
    h = case.tf.program.stream.pack(case.tf.trace(**case.prompts(1))[0][1])
    before = module(h)
    for stack in module.modules():
        if hasattr(stack, "value"):
            stack.value = torch.zeros_like(stack.value)
    assert torch.equal(module(h), h)
    module.load_state_dict(state)
    assert torch.equal(module(h), before)


def test_float32_is_close_to_float64(case: Case) -> None:
    if any(f.ramps for f in case.tf.approximants.values()):
        pytest.skip("a ramp multiplies rounding by 1/delta: no claim in float32")
    prompt = case.prompts(2)
    double = case.tf.run(**prompt)
    for executor in ("plain", "dense"):
        single = case.tf.run(**prompt, executor=executor, dtype=torch.float32)  # type: ignore[arg-type]
        assert single.weights.dtype == torch.float32
        assert float((single.weights - double.weights).abs().max()) < 1e-4


def test_a_program_the_target_cannot_realise_fails_at_compile_time_with_the_reason() -> None:
    class Impossible(LogisticRegression):
        def program(self, options: ig.Options) -> ig.Program:
            program = super().program(options)
            layer = program.body[0].layers[0]
            wrong = ig.Layer("product", layer.name, layer.instructions)
            return ig.Program(program.stream, (ig.Loop(1, (wrong,)),), program.readout, "p")

    with pytest.raises(LoweringError, match="a product layer multiplies, it applies no function"):
        ig.compile(Impossible(d=2))
