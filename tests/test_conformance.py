"""The battery that every algorithm inherits: one table of algorithms, every law."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, NamedTuple

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


def functional(kernel: str | ig.Kernel, **settings: object) -> ig.FunctionalGradientDescent:
    return ig.FunctionalGradientDescent(kernel, **settings)  # type: ignore[arg-type]


class Case(NamedTuple):
    algorithm: ig.Algorithm
    epsilon: float | None = None
    target: str | None = None
    variant: str | None = None
    ordered: bool = False  # the order of the examples matters
    z_bound: float | None = None
    sigma: str | None = None


SIGMA = np.diag([1.0, 0.25, 2.25]) + 0.1
CASES = {
    "tanh, squared": Case(gd([3, 4, 4, 2], steps=3), 1e-3),
    "one layer": Case(gd([3, 2], bias=False, steps=3), 1e-2),
    "one layer, activated": Case(gd([3, 2], "sigmoid", "activation", steps=3), 1e-2),
    "momentum and decay": Case(gd([2, 3, 1], "gelu", lr=0.3, steps=4, momentum=0.8, weight_decay=0.1), 1e-2),
    "log-cosh, activated": Case(gd([3, 5, 2], "softplus", "activation", loss="log-cosh", steps=2), 1e-2),
    "pseudo-huber": Case(gd([2, 3, 2], "silu", loss="pseudo-huber", steps=2), 1e-3),
    "logistic": Case(gd([2, 3, 2], "gelu", loss="logistic", steps=2), 1e-2),
    "softmax": Case(gd([2, 4, 5], "tanh", loss="softmax", steps=2), 1e-2),
    "tight box": Case(gd([2, 3, 1], lr=2.0, steps=4, box=0.3), 1e-2),
    "no box": Case(gd([2, 3, 1], steps=2, box=None), 1e-2),
    "sin": Case(gd([2, 3, 1], "sin", steps=2), 1e-2, z_bound=16.0),
    "relu": Case(gd([3, 4, 4, 1], "relu", steps=3), 1e-3),
    "leaky_relu": Case(gd([3, 4, 1], "leaky_relu", steps=3), 1e-3),
    "relu6, activated": Case(gd([3, 4, 1], "relu6", "activation", steps=3), 1e-3),
    "N = 6": Case(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2),
    "compact: tanh, squared": Case(gd([3, 4, 4, 2], steps=2), 1e-3, variant="compact"),
    "compact: activated, N = 2, no bias": Case(
        gd([2, 3, 2], "sigmoid", "activation", bias=False, steps=3, lr=2.0, box=0.6), 1e-2, variant="compact"
    ),
    "compact: log-cosh, activated, momentum, decay": Case(
        gd([3, 4, 2, 2], "softplus", "activation", loss="log-cosh", steps=2, momentum=0.8, weight_decay=0.1),
        1e-2,
        variant="compact",
    ),
    "compact: relu6, activated": Case(gd([3, 4, 3, 1], "relu6", "activation", steps=2), 1e-3, variant="compact"),
    "compact: softmax": Case(gd([2, 4, 3], loss="softmax", steps=2), 1e-2, variant="compact"),
    "compact: sin, logistic": Case(
        gd([2, 3, 1], "sin", loss="logistic", steps=2), 1e-2, variant="compact", z_bound=16.0
    ),
    "shallow: tanh, N = 2": Case(gd([3, 4, 2], steps=2), 1e-3, variant="shallow"),
    "shallow: N = 6": Case(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2, variant="shallow"),
    "shallow: silu, activated, momentum, decay": Case(
        gd([2, 3, 3, 3, 1], "silu", "activation", steps=2, momentum=0.8, weight_decay=0.1), 1e-2, variant="shallow"
    ),
    "shallow: pseudo-huber, activated, no bias": Case(
        gd([2, 3, 3, 1], "tanh", "activation", False, loss="pseudo-huber", steps=2, box=None), 1e-2, variant="shallow"
    ),
    "shallow: relu": Case(gd([3, 4, 4, 4, 1], "relu", steps=2), 1e-3, variant="shallow"),
    "a stranger's algorithm": Case(LogisticRegression(d=3, steps=5), 1e-3),
    "a stranger's algorithm, placed: gpt": Case(LogisticRegression(d=3, steps=3), 1e-6, "gpt"),
    "a stranger's algorithm, placed: softmax": Case(LogisticRegression(d=3, steps=3), 1e-6, "softmax"),
    "a stranger's algorithm, placed: sigma": Case(LogisticRegression(d=3, steps=3), 1e-5, "sigma"),
    "kernel: linear": Case(functional("linear", steps=6, d=3)),
    "kernel: exp, Chebyshev": Case(functional("exp", steps=8, step_rule="chebyshev", d=3)),
    "kernel: softmax": Case(functional("softmax", steps=5, d=3, d_y=2)),
    "kernel: sum, products, maps": Case(
        functional(
            0.5 * ig.Kernel("linear") + ig.Kernel("exp", 1.5, covariance=SIGMA) * ig.Kernel("linear"), d=3, steps=4
        )
    ),
    "kernel: covariate steps": Case(functional("linear", steps=4, covariate_step=-0.02, d=3)),
    "gpt: tanh, squared": Case(gd([2, 3, 3, 2], steps=2), 1e-5, "gpt", z_bound=32.0),
    "gpt raw: logistic, momentum, decay": Case(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-6,
        "gpt",
        "raw",
        z_bound=16.0,
    ),
    "gpt: activated, tight box": Case(
        gd([2, 3, 1], "sigmoid", "activation", steps=3, lr=2.0, box=0.3), 1e-6, "gpt", z_bound=16.0
    ),
    "gpt: SGD": Case(ig.OnlineSGD(d=3, lr=0.1, weight_decay=0.1), 1e-6, ordered=True),
    "gpt raw: SGD": Case(ig.OnlineSGD(d=2, lr=0.1), 1e-6, variant="raw", ordered=True),
    "gpt: RLS": Case(ig.RecursiveLeastSquares(d=2), 1e-6),
    "gpt raw: RLS": Case(ig.RecursiveLeastSquares(d=3, ridge=1.0), 1e-6, variant="raw"),
    "gpt: Sherman-Morrison": Case(ig.RecursiveLeastSquares(d=2, form="sherman-morrison"), 1e-6, z_bound=64.0),
    "gpt: heavy sink": Case(functional("exp", steps=6, d=3), 1e-6, "gpt"),
    "gpt: linear attention from exp heads": Case(functional("linear", steps=4, d=3), 1e-6, "gpt"),
    "softmax, sink: tanh, squared": Case(gd([2, 3, 3, 2], steps=2), 1e-5, "softmax", "sink", z_bound=32.0),
    "softmax, sink: logistic, momentum, decay": Case(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-5,
        "softmax",
        "sink",
        z_bound=16.0,
    ),
    "softmax, sink: activated, tight box": Case(
        gd([2, 3, 1], "sigmoid", "activation", steps=3, lr=2.0, box=0.3), 1e-6, "softmax", "sink", z_bound=16.0
    ),
    "softmax, mean: softplus, pseudo-huber, no bias": Case(
        gd([2, 3, 3, 1], "softplus", loss="pseudo-huber", bias=False, steps=2), 1e-6, "softmax", "mean", z_bound=16.0
    ),
    "softmax, lookup": Case(
        ig.GridDescent(gd([1, 1], bias=False, steps=2, lr=1.0, box=1.0), grid=2), None, "softmax", "lookup"
    ),
    "softmax, lookup: bias, decay": Case(
        ig.GridDescent(gd([1, 1], loss="squared", steps=1, lr=2.0, box=0.9, weight_decay=0.1), grid=2, y_bound=2.0)
    ),
    "sigma, gelu: tanh, tight box": Case(gd([2, 3, 3, 1], steps=3, lr=2.0, box=0.6), 1e-6, "sigma", z_bound=16.0),
    "sigma, tanh: Theorem 1": Case(gd([2, 4, 1], steps=2, box=None), 1e-4, "sigma", z_bound=8.0, sigma="tanh"),
    "sigma, sigmoid: logistic, momentum, decay": Case(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-4,
        "sigma",
        z_bound=8.0,
        sigma="sigmoid",
    ),
    "sigma, softplus: recursion, N = 3": Case(
        gd([2, 3, 2, 2], bias=False, steps=2), 1e-4, "sigma", "recursion", z_bound=5.0, sigma="softplus"
    ),
    "sigma, silu: recursion, N = 4": Case(
        gd([2, 2, 3, 2, 1], "sigmoid", bias=False, steps=1), 1e-5, "sigma", "recursion", z_bound=12.0, sigma="silu"
    ),
    "sigma, cos: four layers": Case(gd([2, 2, 2, 2, 1], steps=1, box=None), 1e-4, "sigma", z_bound=8.0, sigma="cos"),
    "gpt raw: softmax attention": Case(functional("softmax", steps=4, d=3), 1e-6, "gpt", "raw"),
    "narrow: tanh, squared, uneven": Case(gd([3, 4, 5, 2], steps=2), 1e-3, variant="narrow"),
    "narrow: one layer, activated": Case(gd([3, 2], "sigmoid", "activation", steps=2), 1e-2, variant="narrow"),
    "narrow: momentum and decay": Case(
        gd([2, 3, 1], "gelu", lr=0.3, steps=3, momentum=0.8, weight_decay=0.1), 1e-2, variant="narrow"
    ),
    "narrow: log-cosh, activated, tight box": Case(
        gd([3, 5, 2], "softplus", "activation", loss="log-cosh", steps=2, lr=2.0, box=0.6), 1e-2, variant="narrow"
    ),
    "narrow: logistic, no bias, no box": Case(
        gd([2, 3, 2], "silu", bias=False, loss="logistic", steps=2, box=None), 1e-2, variant="narrow"
    ),
    "narrow: softmax": Case(gd([2, 4, 5], loss="softmax", steps=2), 1e-2, variant="narrow"),
    "narrow: sin, pseudo-huber": Case(
        gd([2, 3, 1], "sin", loss="pseudo-huber", steps=2), 1e-2, variant="narrow", z_bound=16.0
    ),
    "narrow: relu, no bias": Case(gd([3, 4, 4, 1], "relu", bias=False, steps=2), 1e-3, variant="narrow"),
    "narrow: relu6, activated": Case(gd([3, 4, 1], "relu6", "activation", steps=2), 1e-3, variant="narrow"),
    "narrow: N = 6": Case(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2, variant="narrow"),
    "nesterov, decay, cosine": Case(
        gd([2, 3, 2], "gelu", lr=ig.schedules.cosine(0.3, 3), momentum=0.8, nesterov=True, weight_decay=0.1), 1e-3
    ),
    "l1, clip, batches": Case(
        gd([2, 3, 1], lr=0.5, l1=0.1, clip=0.3, batches=ig.minibatches(9, 4)), 1e-3, ordered=True
    ),
    "adam": Case(ig.Adam(ig.Network([2, 3, 1]), lr=0.05, steps=2, delta=0.1), 1e-4),
    "compact: adam, clip, cosine": Case(
        ig.Adam(ig.Network([2, 3, 1]), lr=ig.schedules.cosine(0.05, 2), delta=0.1, clip=1.0), 1e-4, variant="compact"
    ),
    "shallow: l1, clip, batches": Case(
        gd([2, 3, 1], lr=0.5, l1=0.1, clip=0.3, batches=ig.minibatches(9, 4)), 1e-3, variant="shallow", ordered=True
    ),
    "narrow: adam, decay": Case(
        ig.Adam(ig.Network([2, 3, 1]), lr=0.05, steps=2, delta=0.1, weight_decay=0.1), 1e-4, variant="narrow"
    ),
    "gpt: nesterov, l1, batches": Case(
        gd([2, 2, 1], momentum=0.5, nesterov=True, l1=0.1, lr=(0.4, 0.2), batches=((0, 1, 2), (3, 4, 5, 6))),
        1e-5,
        "gpt",
        ordered=True,
        z_bound=16.0,
    ),
}


class Compiled:
    def __init__(self, name: str, tf: ig.CompiledTransformer | None = None) -> None:
        self.case = CASES[name]
        self.algorithm = self.case.algorithm
        self.tf = tf or self.compile()
        self.n_weights = self.tf.program.n_weights

    def compile(self) -> ig.CompiledTransformer:
        _, epsilon, target, variant, _, z_bound, sigma = self.case
        given = {"target": target, "variant": variant, "epsilon": epsilon, "z_bound": z_bound, "sigma": sigma}
        return ig.compile(self.algorithm, n_examples=9, **given)  # type: ignore[arg-type]

    def prompts(self, batch: int, n: int = 7, n_query: int = 2) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(5)
        drawn = [self.algorithm.random_prompt(n, n_query, generator) for _ in range(batch)]
        X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
        box = getattr(self.algorithm, "box", None) or 1.0
        w0 = torch.randn(batch, self.n_weights, generator=generator, dtype=torch.float64).mul(0.7).clamp(-box, box)
        return {"X": X, "y": y, "X_query": X_query, "w0": w0}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Compiled:
    return Compiled(request.param)


def close(a: Tensor, b: Tensor, tolerance: float, case: Compiled) -> None:
    """Relative to the largest entry; a ramp of width delta multiplies rounding by 1/delta; GeLUs multiply by less."""
    if a.numel():
        ramps = any(f.ramps for f in case.tf.approximants.values())
        tolerance = tolerance if case.tf.proven else max(tolerance, FITTED)
        assert float((a - b).abs().max()) <= tolerance * (2**13 if ramps else 1) * max(1.0, float(b.abs().max()))


FITTED = 1e-6  # the stated accuracy of those cases: products and divisions by GeLUs are not exact


def test_dense_equals_plain(case: Compiled) -> None:
    prompt = case.prompts(3)
    plain, dense = (case.tf.trace(**prompt, executor=executor) for executor in ("plain", "dense"))  # type: ignore[arg-type]
    assert [name for name, _ in plain] == [name for name, _ in dense]
    for (_, a), (_, b) in zip(plain, dense, strict=True):
        for lane in a:
            close(b[lane], a[lane].expand_as(b[lane]), 1e-13, case)
    assert len(plain) == case.tf.n_layers + case.tf.n_readout_layers + 1


@pytest.mark.parametrize(("executor", "dtype"), [("plain", torch.float64), ("dense", torch.float32)])
def test_the_certificate_holds(case: Compiled, executor: str, dtype: torch.dtype) -> None:
    """Of weights and predictions, against the algorithm itself; infinite only where a ramp may have been hit."""
    prompt, how = case.prompts(2), {"executor": executor, "dtype": dtype}
    if dtype == torch.float32 and case.tf.options.variant == "lookup":
        with pytest.raises(ig.InputError, match="too steep"):
            case.tf.certify(**prompt, **how)  # type: ignore[arg-type]
        return
    prompt = {name: value.to(dtype).double() for name, value in prompt.items()}
    run = case.tf.run(**prompt, **how)  # type: ignore[arg-type]
    exact = ig.reference(case.algorithm, **prompt)
    certificate = case.tf.certify(**prompt, **how, trajectory=True)  # type: ignore[arg-type]
    assert certificate.trajectory is not None
    assert certificate.predictions is not None
    assert torch.equal(certificate.path, run.weights)
    steps = exact.weights.shape[1] - 1  # an online algorithm has no step for examples that are not there
    distance = (run.weights[:, 1 : steps + 1] - exact.weights[:, 1:]).norm(dim=-1)
    assert bool((distance <= certificate.trajectory[:, :steps]).all())
    assert bool(((run.predictions - exact.predictions).abs() <= certificate.predictions).all())
    assert (certificate.diverged is None) or certificate.culprits
    for step, bound in enumerate(certificate.bounds, start=1):
        assert bound < 1.0 or any(text.startswith(f"step {step}:") for text in certificate.culprits)


def test_an_independent_forward_pass_of_the_saved_folder_agrees(case: Compiled, tmp_path: Path) -> None:
    prompt = {name: value[0] for name, value in case.prompts(1).items()}
    case.tf.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    lanes = first_lanes(config, {name: value.numpy() for name, value in prompt.items()})
    h = torch.from_numpy(forward(tmp_path, lanes))
    final = case.tf.program.stream.pack(case.tf.trace(**prompt, executor="dense")[-1][1])[0]
    # the same matrices, so the same numbers up to rounding, which LayerNorm's pads (2^24) make larger
    tolerance = 1e-13 if case.tf.proven else 1e-11
    ramps = any(f.ramps for f in case.tf.approximants.values())
    assert float((h - final).abs().max()) <= tolerance * (2**13 if ramps else 1) * max(1.0, float(final.abs().max()))


def first_lanes(config: dict, prompt: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The lanes of every token before the first layer, from what the folder says about prompts."""
    X, y, X_query = prompt["X"], prompt["y"], prompt["X_query"]
    n, tokens = len(X), [(X[0], 0 * y[0], 0.0, 0.0)] * config["prompt"].get("carriers", 0)
    for x, target in zip(X, y, strict=True):
        if config["prompt"]["tokens"] == "interleaved":
            tokens += [(x, 0 * target, 0.0, 0.0), (0 * x, target, 1.0, 0.0)]
        else:
            tokens.append((x, target, 1.0, 0.0))
    blanks = max(0, config["prompt"].get("length", 0) - len(tokens) - len(X_query))
    tokens += [(X[0], 0 * y[0], 0.0, 0.0)] * blanks + [(x, 0 * y[0], 0.0, 1.0) for x in X_query]
    if config["prompt"]["sink_first"]:
        tokens.insert(0, (0 * X[0], 0 * y[0], 0.0, 0.0))
    columns = (np.array(column) for column in zip(*tokens, strict=True))
    lanes = dict(zip(("x", "y", "t", "query"), columns, strict=True))
    position = np.arange(len(tokens)) / 128
    lanes |= {"one": np.ones(1), "omega": lanes["t"] * len(tokens) / n}
    lanes |= {"pos": position, "pos2": position**2, "ns": (position > 0).astype(float)}
    real = len(tokens) - config["prompt"]["sink_first"]
    lanes |= {"log_omega": np.where(lanes["t"] == 1, -np.log(n), -64.0) / 16, "log_tokens": np.array(np.log(real))}
    members = [[i for i in batch if i < n] for batch in config["prompt"].get("batches", [])]
    if members:
        number = np.where(lanes["t"] == 1, np.cumsum(lanes["t"]) - 1, -1)[:, None]
        inside = np.stack([np.isin(number, batch)[:, 0] / max(1, len(batch)) for batch in members], axis=-1)
        with np.errstate(divide="ignore"):
            lanes |= {"batch": inside * len(tokens), "log_batch": np.maximum(np.log(inside), -64.0) / 16}
    start = 0
    for lane in config["layout"]:
        if lane["name"] == "bits":
            lanes["bits"] = 2.0 * (np.arange(len(tokens))[:, None] >> np.arange(lane["shape"][0]) & 1) - 1
        if lane["role"] == "weight" and "placement" not in config["prompt"]:
            size = int(np.prod(lane["shape"]))
            lanes[lane["name"]] = prompt["w0"][start : start + size]
            start += size
    shapes = {lane["name"]: (len(tokens), int(np.prod(lane["shape"]))) for lane in config["layout"]}
    for name, size, token in config["prompt"].get("placement", []):
        lanes.setdefault(name, np.zeros(shapes[name]))[token, :size] = prompt["w0"][start : start + size]
        start += size
    for name, token, entry in config["prompt"].get("marks", []):
        lanes.setdefault(name, np.zeros(shapes[name]))[token, entry] = 1.0
    return lanes


def test_every_law_of_verify_holds(case: Compiled) -> None:
    report = case.tf.verify(**case.prompts(2))
    assert report.passed, str(report)
    proven = case.tf.options.target in ("relu", "kernel")
    assert [law.name for law in report.laws] == [
        "weights", "probe", "proof" if proven else "fit", "approximation", "oracle", "examples", "shared", "scratch",
        "inputs", "box",
    ]  # fmt: skip
    assert report.proven == proven
    assert ("no certificate" in str(report)) == (not proven)
    exact = case.algorithm == CASES["one layer"].algorithm or not case.tf.approximants
    assert max(report.distance) > 0 or exact


def test_save_and_load_is_the_identity(case: Compiled, tmp_path: Path) -> None:
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


def test_a_prompt_depends_on_no_other_prompt_and_on_no_order_of_exchangeable_examples(case: Compiled) -> None:
    prompt = case.prompts(4)
    together = case.tf.run(**prompt)
    alone = case.tf.run(**{name: value[2] for name, value in prompt.items()})
    close(alone.weights, together.weights[2], 1e-12, case)
    close(alone.predictions, together.predictions[2], 1e-12, case)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    shuffled = case.tf.run(**{**prompt, "X": prompt["X"][:, order], "y": prompt["y"][:, order]})
    if case.case.ordered:
        assert float((shuffled.weights - together.weights)[:, -1].abs().max()) > 1e-3
    else:
        close(shuffled.weights[:, -1], together.weights[:, -1], 1e-12, case)
        close(shuffled.predictions, together.predictions, 1e-12, case)
    swapped = case.tf.run(**{**prompt, "X_query": prompt["X_query"].flip(1)})
    close(swapped.predictions.flip(1), together.predictions, 1e-12, case)


def test_cost_counts_the_weights_that_are_there(case: Compiled) -> None:
    rows, modules = case.tf.cost().rows, list(case.tf.module.stored_layers())
    for row, module in zip(rows, modules, strict=True):
        stacks = {name: getattr(module, name) for name in module.matrices}
        assert row.shapes == {name: stack.shape for name, stack in stacks.items()}
        assert row.nonzeros == sum(int((stack.value != 0).sum()) for stack in stacks.values())
        assert row.heads == (stacks["W_1"].shape[1] if "W_1" in stacks else stacks["W_V"].shape[0])
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


def test_the_state_dict_is_dense_and_loads_back(case: Compiled) -> None:
    module = case.compile().module
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


def test_float32_is_close_to_float64(case: Compiled) -> None:
    if any(f.ramps for f in case.tf.approximants.values()):
        pytest.skip("a ramp multiplies rounding by 1/delta: no claim in float32")
    prompt = case.prompts(2)
    double = case.tf.run(**prompt)
    for executor in ("plain", "dense"):
        single = case.tf.run(**prompt, executor=executor, dtype=torch.float32)  # type: ignore[arg-type]
        assert single.weights.dtype == torch.float32
        for a, b in ((single.weights, double.weights), (single.predictions, double.predictions)):
            assert not a.numel() or float((a - b).abs().max()) < 1e-4 * max(1.0, float(b.abs().max()))


def test_a_program_the_target_cannot_realise_fails_at_compile_time_with_the_reason() -> None:
    class Impossible(LogisticRegression):
        targets: ClassVar[tuple[str, ...]] = ("relu",)

        def program(self, options: ig.Options) -> ig.Program:
            program = super().program(options)
            layer = program.body[0].layers[0]
            wrong = ig.Layer("product", layer.name, layer.instructions)
            return ig.Program(program.stream, (ig.Loop(1, (wrong,)),), program.readout, "p")

    with pytest.raises(LoweringError, match="a product layer multiplies, it applies no function"):
        ig.compile(Impossible(d=2))
