"""Random configurations, their certificates, and the judge: training in 80-bit floating point (``_oracle.py``).

Every configuration is drawn from its number alone. It is compiled, certified on several prompts, and every finite bound
is compared with the exact error, without any tolerance: each step from the weights and the state that the transformer
had before it, the trajectory, the predictions. A refusal is an answer; a bound that is too small is not.

    descent     every optimiser and setting: boxes of any size, l1, clip, schedules, minibatches, |x| from 1e-12 to 1e8
    others      the same on the targets gpt, softmax and sigma
    honest      a user's own activation, which interval arithmetic can follow
    hostile     a user's activation that is not what it declares: to be refused, unless the bound holds for what it is
    tampered    a saved model that was edited and sealed again: to be refused, unless the bound holds for what it is
    extreme     tiny networks whose settings and data are of any size, with zeros and equal numbers among them, on every
                target and variant: little else than rounding, underflow and projections is left to err
    llama       gradient descent on target llama, which approximates nothing: all depths, settings, precisions and
                executors
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

import innergrad as ig
from _oracle import Descent, Long, State, autograd_step, long, predict, step
from innergrad.errors import DegenerateStart, InputError, JobError
from innergrad.functions.scalar import Asymptote, Function
from innergrad.model.storage import seal

SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "silu", "sin")
ACTIVATIONS = (*SMOOTH, "relu", "leaky_relu", "relu6")
LOSSES = ("squared", "log-cosh", "pseudo-huber", "logistic", "softmax")
SIN_DOMAIN = 32.0
APART = 1_000_000  # between the seeds of prompts and of weights: the same seed would give the same numbers to both
MODES: tuple[Literal["sup", "pointwise"], ...] = ("sup", "pointwise")
PROMPTS = 6
KINDS = ("descent",) * 13 + ("others",) * 4 + ("honest", "hostile", "tampered")
EXTREME = 20_000  # configurations from this number on
LLAMA = 40_000  # and those of target llama from this one
EXACT = ("tanh", "sigmoid", "silu", "relu", "leaky_relu", "relu6")  # activations that it has exactly, or to rounding
EXACT_LOSSES = ("squared", "log-cosh", "logistic", "softmax")
VARIANTS = (("relu", "literal"), ("relu", "compact"), ("relu", "shallow"), ("relu", "narrow"))
OTHERS = (("gpt", "pre-ln"), ("gpt", "raw"), ("softmax", "sink"), ("softmax", "mean"), ("sigma", None))
SHAPES = ([2, 3, 1], [3, 4, 4, 2], [1, 1])  # that have C++ kernels: each takes seconds to build
Row = dict[str, Any]


# ----------------------------------------------------------------------------------------------------- users' functions


def _arctan() -> ig.Activation:
    half, curvature = math.pi / 2, 3 * math.sqrt(3) / 8
    r = Function("arctan", torch.arctan, curvature, Asymptote(0.0, -half, 0.0), Asymptote(0.0, half, 0.0), 1.0, half)
    flat = Asymptote(0.0, 0.0, -1.0), Asymptote(0.0, 0.0, 1.0)
    return ig.Activation("arctan", r, Function("arctan'", lambda t: 1 / (1 + t * t), 2.0, *flat, curvature, 1.0))


def _bump() -> ig.Activation:
    flat, slope = (Asymptote(0.0, 0.0, -1.0), Asymptote(0.0, 0.0, 1.0)), math.sqrt(2 / math.e) * (1 + 1e-9)
    r = Function("bump", lambda t: torch.exp(-t * t), 2.0, *flat, slope, 1.0)
    dr = Function("bump'", lambda t: -2 * t * torch.exp(-t * t), 4.4, *flat, 2.0, slope)
    return ig.Activation("bump", r, dr)


HONEST: dict[str, Callable[[], ig.Activation]] = {"arctan": _arctan, "bump": _bump}


def _spike(height: float) -> ig.Activation:
    """tanh, but for a narrow place; declared as tanh is."""
    tanh = ig.ACTIVATIONS["tanh"]

    def value(t: Tensor) -> Tensor:
        return torch.tanh(t) + height * ((t - 5.123).abs() < 1e-3).to(t.dtype)

    return ig.Activation("spike", dataclasses.replace(tanh.r, name="spike", value=value), tanh.dr)


def _hidden(height: float) -> ig.Activation:
    """tanh as soon as it is not given a tensor: what a proof sees is not what runs."""
    tanh = ig.ACTIVATIONS["tanh"]

    def value(t: Tensor) -> Tensor:
        near = ((t - 5.123).abs() < 1e-3).to(t.dtype) if isinstance(t, Tensor) else 0.0
        return torch.tanh(t) + height * near

    return ig.Activation("spike", dataclasses.replace(tanh.r, name="spike", value=value), tanh.dr)


HOSTILE = (_spike, _hidden)


# ------------------------------------------------------------------------------------------------------- configurations


def configuration(number: int) -> Row:
    """Kinds, activations, losses and precisions in turn; everything else drawn with the number as seed."""
    if number >= LLAMA:
        return _llama(number)
    if number >= EXTREME:
        return _extreme(number)
    draw, kind = random.Random(number), KINDS[number % len(KINDS)]
    activation, loss = ACTIVATIONS[number % 9], LOSSES[number // 9 % 5]
    row: Row = {"number": number, "kind": kind, "dtype": ("float32", "float64")[number // 45 % 2]}
    row |= {"target": "relu", "variant": None, "executor": draw.choice(["plain"] * 6 + ["fused", "fused", "dense"])}
    if kind == "honest":
        activation = draw.choice(sorted(HONEST))
    elif kind == "hostile":
        activation, row["executor"] = "spike", "plain"
    elif kind == "others":
        row["target"], row["variant"] = draw.choice(
            [("gpt", "pre-ln"), ("gpt", "raw"), ("softmax", "sink"), ("softmax", "mean"), ("sigma", None)]
        )
        kinks = row["variant"] in ("pre-ln", "raw", "mean")
        activation = activation if kinks or activation in SMOOTH else SMOOTH[number % len(SMOOTH)]
        loss = "squared" if loss == "softmax" else loss
        row["executor"] = draw.choice(["plain", "plain", "fused", "dense"])
    slow = kind == "others" or row["executor"] == "dense"  # by matrices, or by fits
    if row["executor"] == "fused":
        sizes = list(draw.choice(SHAPES))
        sizes[-1] = max(sizes[-1], 2) if loss == "softmax" else sizes[-1]
    else:
        depth, widest = (draw.randint(1, 2), 3) if slow else (draw.randint(1, 6), draw.choice([4, 8, 16, 16, 32]))
        sizes = [draw.randint(1, min(widest, 8)), *(draw.randint(1, widest) for _ in range(depth - 1))]
        sizes += [draw.randint(2 if loss == "softmax" else 1, min(widest, 8))]
    epsilon = draw.choice([1e-2, 1e-3, 1e-4])
    if not slow and activation != "sin" and draw.random() < 0.1:
        epsilon = 1e-5
    logits = loss in ("logistic", "softmax")
    adam = row["target"] == "relu" and draw.random() < 0.25
    steps, n = draw.randint(1, 3), draw.randint(1, 16)
    row |= {
        "activation": activation,
        "loss": loss,
        "sizes": sizes,
        "output": "linear" if logits or row["target"] == "sigma" else draw.choice(["linear", "activation"]),
        "bias": kind == "hostile" or draw.random() < 0.5,
        "epsilon": 1e-2 if row["executor"] == "dense" else epsilon,
        "errors": draw.choice(MODES) if row["target"] == "relu" else "pointwise",
        "adam": adam,
        "lr": draw.choice([0.01, 0.1, 0.5, 10.0 ** draw.uniform(-4, 1)]),
        "steps": steps,
        "box": draw.choice([None, 0.5, 4.0, 10.0 ** draw.uniform(-3, 6)]),
        "momentum": 0.0 if adam else draw.choice([0.0, 0.0, 0.9, draw.random()]),
        "weight_decay": draw.choice([0.0, 0.0, 0.1]),
        "l1": draw.choice([0.0, 0.0, 10.0 ** draw.uniform(-6, 0)]),
        "clip": draw.choice([None, None, 10.0 ** draw.uniform(-4, 2)]),
        "delta": 10.0 ** draw.uniform(-2, 0),
        "betas": draw.choice([(0.9, 0.999), (draw.random(), draw.random())]),
        "scheduled": draw.random() < 0.2,
        "batched": draw.random() < 0.15 and row["target"] == "relu",
        "weighted": draw.random() < 0.25,
        "n": n,
        "x_scale": draw.choice([0.3, 1.0, 3.0, 30.0, 10.0 ** draw.uniform(-12, 8)]),
        "y_scale": 1.0 if logits else draw.choice([1.0, 1.0, 10.0 ** draw.uniform(-6, 6)]),
        "w_scale": draw.choice([0.5, 1.0, 2.0, 10.0 ** draw.uniform(-20, 0)]),
    }
    row["nesterov"] = bool(row["momentum"]) and draw.random() < 0.3
    if activation == "sin" or kind == "others":  # approximants on a bounded domain
        row["x_scale"], row["y_scale"] = min(row["x_scale"], 0.5), 1.0 if logits else min(row["y_scale"], 0.5)
    if row["output"] == "activation":  # targets are in its range
        row["y_scale"] = min(row["y_scale"], 1.0)
    return row


def _extreme(number: int) -> Row:
    """A configuration of kind ``extreme``: settings of any size that the library takes."""
    draw = random.Random(number)
    target, variant = draw.choice((*VARIANTS, *VARIANTS, *OTHERS))
    activation = draw.choice(SMOOTH if variant in ("sink", None) else ACTIVATIONS)
    loss = draw.choice(LOSSES if target == "relu" else LOSSES[:4])
    depth = draw.randint(2 if variant in ("compact", "shallow") else 1, 3 if target == "relu" else 2)
    sizes = [draw.randint(1, 2) for _ in range(depth)] + [2 if loss == "softmax" else draw.randint(1, 2)]
    adam = target == "relu" and draw.random() < 0.3
    steps, n = draw.randint(1, 3), draw.randint(1, 3)

    def size(low: float, high: float, *usual: Any) -> Any:
        return draw.choice([*usual, 10.0 ** draw.uniform(low, high)])

    def beta() -> float:
        return float(draw.choice([0.0, 0.9, 0.999, draw.random(), 1.0 - draw.random() * 2.0 ** -draw.randint(1, 40)]))

    logits = loss in ("logistic", "softmax")
    ordinary = activation == "sin" or target != "relu"  # approximants on a bounded domain
    box = size(-8, 1, 4.0, 3.3, 0.1) if ordinary else size(-99, 99, None, 4.0, 10.0 ** draw.uniform(-8, 8))
    momentum = 0.0 if adam else size(-99, 0, 0.0, 0.0, 0.9, 1.0)
    return {
        "number": number,
        "kind": "extreme",
        "dtype": draw.choice(["float32", "float64", "float64"]),
        "target": target,
        "variant": variant,
        "executor": draw.choice(["plain", "plain", "plain", "dense"]),
        "activation": activation,
        "loss": loss,
        "sizes": sizes,
        "bias": draw.random() < 0.5,
        "steps": steps,
        "n": n,
        "output": "linear" if logits or target == "sigma" else draw.choice(["linear", "activation"]),
        "epsilon": 1e-2,
        "errors": draw.choice(MODES) if target == "relu" else "pointwise",
        "adam": adam,
        "box": box,
        "lr": size(-320, 0, 0.1, 10.0 ** draw.uniform(-6, 3)),
        "momentum": momentum,
        "nesterov": bool(momentum) and draw.random() < 0.4,
        "weight_decay": size(-99, 1, 0.0, 0.0, 0.1),
        "l1": size(-99, 9, 0.0, 0.0, 10.0 ** draw.uniform(-12, 3)),
        "clip": size(-99, 99, None, None, 0.01),
        "delta": size(-6, 6, 0.1, 0.01),
        "betas": (beta(), beta()),
        "scheduled": draw.random() < 0.3,
        "batched": target == "relu" and draw.random() < 0.2,
        "weighted": draw.random() < 0.4,
        "x_scale": 0.5 if ordinary else size(-300, 300, 1.0, 1.0, 10.0 ** draw.uniform(-6, 6)),
        "y_scale": 1.0 if logits else 0.5 if ordinary else size(-300, 300, 1.0, 1.0, 10.0 ** draw.uniform(-6, 6)),
        "w_scale": size(-320, 0, 1.0, 1.0),
    }


def _llama(number: int) -> Row:
    """A configuration of kind ``llama``. By matrices, networks are small."""
    draw = random.Random(number)
    activation, loss = EXACT[number % 6], EXACT_LOSSES[number // 6 % 4]
    executor = draw.choice(["plain", "plain", "plain", "fused", "dense"])
    if executor == "fused":
        sizes = list(draw.choice(SHAPES))
    else:
        depth, widest = (draw.randint(1, 3), 3) if executor == "dense" else (draw.randint(1, 6), draw.choice([2, 4, 8]))
        sizes = [draw.randint(1, widest) for _ in range(depth + 1)]
    sizes[-1] = max(sizes[-1], 2) if loss == "softmax" else sizes[-1]
    logits = loss in ("logistic", "softmax")
    momentum = draw.choice([0.0, 0.0, 0.9, draw.random()])
    output = "linear" if logits else draw.choice(["linear", "linear", "activation"])
    y_scale = 1.0 if logits else draw.choice([1.0, 1.0, 10.0 ** draw.uniform(-6, 4)])
    return {
        "number": number,
        "kind": "llama",
        "dtype": ("float32", "float64")[number // 24 % 2],
        "target": "llama",
        "variant": draw.choice(["chain", "wide"]),
        "executor": executor,
        "activation": activation,
        "loss": loss,
        "sizes": sizes,
        "output": output,
        "bias": draw.random() < 0.5,
        "epsilon": None,
        "errors": draw.choice(MODES),
        "adam": False,
        "lr": draw.choice([0.01, 0.1, 0.5, 10.0 ** draw.uniform(-4, 1)]),
        "steps": draw.randint(1, 3),
        "box": draw.choice([None, None, 0.5, 4.0, 10.0 ** draw.uniform(-3, 6)]),
        "momentum": momentum,
        "nesterov": bool(momentum) and draw.random() < 0.3,
        "weight_decay": draw.choice([0.0, 0.0, 0.1, draw.random()]),
        "l1": draw.choice([0.0, 0.0, 10.0 ** draw.uniform(-6, 0)]),
        "clip": draw.choice([None, None, 10.0 ** draw.uniform(-4, 2)]),
        "scheduled": draw.random() < 0.2,
        "batched": draw.random() < 0.15,
        "weighted": draw.random() < 0.25,
        "n": draw.randint(1, 16),
        "x_scale": draw.choice([0.3, 1.0, 3.0, 30.0, 10.0 ** draw.uniform(-12, 8)]),
        "y_scale": min(y_scale, 1.0) if output == "activation" else y_scale,
        "w_scale": draw.choice([0.5, 1.0, 2.0, 10.0 ** draw.uniform(-20, 0)]),
    }


def _unsettled(values: Tensor, scale: float, draw: random.Random) -> Tensor:
    """Some entries nothing, some of the same size, some far smaller."""
    found = values.clone().flatten()
    for i in range(len(found)):
        found[i] = draw.choice([float(found[i])] * 3 + [0.0, scale, -scale, scale * 10.0 ** draw.uniform(-320, 0)])
    return found.view(values.shape)


def _any_size(prompts: int, n: int, draw: random.Random) -> Tensor:
    """Weights of examples, the first of which counts."""
    rows = [
        [draw.choice([0.0, 1.0, draw.random(), 10.0 ** draw.uniform(-323, 0)]) for _ in range(n)]
        for _ in range(prompts)
    ]
    found = torch.tensor(rows, dtype=torch.float64)
    found[:, 0] = 10.0 ** draw.choice([0.0, draw.uniform(-30, 30)])
    return found


def with_ball(number: int) -> Row:
    """The configuration of gradient descent or Adam with a ball in place of the box, in one of the variants."""
    row, draw = configuration(number), random.Random(2 * APART + number)
    variants = ["literal", "narrow", *(["compact", "shallow"] if len(row["sizes"]) > 2 else [])]
    radius = draw.choice([0.1, 1.0, 10.0 ** draw.uniform(-3, 3)])
    return row | {"kind": "descent", "target": "relu", "box": None, "ball": radius, "variant": draw.choice(variants)}


def small(row: Row) -> bool:
    """Whether the trajectory and the predictions are certified, too."""
    return bool(sum(k * (c + 1) for c, k in zip(row["sizes"], row["sizes"][1:], strict=False)) <= 120)


def moderate(row: Row) -> bool:
    """Whether inputs are of an ordinary size: there the oracles are compared with one another."""
    if row["kind"] == "extreme":
        return False
    return bool(1e-3 <= row["x_scale"] <= 30.0 and max(row["y_scale"], row["lr"]) <= 30.0)


def algorithm_of(row: Row) -> ig.GradientDescent:
    draw = random.Random(APART + row["number"])
    activation: Any = row["activation"]
    if row["kind"] == "honest":
        activation = HONEST[activation]()
    elif row["kind"] == "hostile":
        activation = draw.choice(HOSTILE)(0.5)
    network = ig.Network(row["sizes"], activation, row["output"], row["bias"])
    given: dict[str, Any] = {name: row[name] for name in ("box", "weight_decay", "l1", "clip")}
    given["lr"] = row["lr"]
    if "ball" in row:
        given["ball"] = row["ball"]
    if row["scheduled"]:
        given["lr"] = [row["lr"] * draw.choice([0.0, 0.5, 1.0, 1.0]) for _ in range(row["steps"])]
    if row["batched"]:
        given["batches"] = [draw.sample(range(16), draw.randint(1, 8)) for _ in range(draw.randint(1, 3))]
    if row["adam"]:
        return ig.Adam(network, row["loss"], steps=row["steps"], betas=row["betas"], delta=row["delta"], **given)
    given |= {"momentum": row["momentum"], "nesterov": row["nesterov"]}
    return ig.GradientDescent(network, row["loss"], steps=row["steps"], **given)


def descent(algorithm: ig.GradientDescent) -> Descent:
    """The same algorithm, for the oracle."""
    net = algorithm.network
    rates = tuple(algorithm.rates)
    what = (net.sizes, net.activation.name, net.activated(net.depth), net.bias, algorithm.loss.name, rates)
    names: tuple[str, ...] = ("box", "ball", "momentum", "nesterov", "l1", "clip", "batches")
    names += ("betas", "delta") if isinstance(algorithm, ig.Adam) else ()
    own: dict[str, Any] = {name: getattr(algorithm, name) for name in names}
    return Descent(*what, decay=algorithm.weight_decay, **own)


class Case(NamedTuple):
    """A configuration, ready to run: inputs are what the precision holds."""

    tf: ig.CompiledTransformer
    dtype: torch.dtype
    X: Tensor
    y: Tensor
    X_query: Tensor
    w0: Tensor
    sample_weight: Tensor | None


def case(row: Row) -> Case:
    algorithm, n, dtype = algorithm_of(row), row["n"], getattr(torch, row["dtype"])
    network, generator = algorithm.network, torch.Generator().manual_seed(row["number"])
    drawn = [algorithm.random_prompt(n, 2, generator) for _ in range(PROMPTS)]
    X, y, X_query = (torch.stack([prompt[i] for prompt in drawn]) for i in range(3))
    noise = torch.randn(PROMPTS, network.n_weights, generator=generator, dtype=torch.float64)
    w0 = row["w_scale"] * (network.init(APART + row["number"]) + 0.1 * noise)
    weight = None
    if row["weighted"]:
        weight = torch.rand(PROMPTS, n, generator=generator, dtype=torch.float64)
        weight[:, 1:] *= torch.rand(weight[:, 1:].shape, generator=generator) > 0.2  # some examples count nothing
    X, X_query, y = row["x_scale"] * X, row["x_scale"] * X_query, row["y_scale"] * y
    if row["kind"] == "hostile":  # a pre-activation of the first unit is in the spike
        bias = network.sizes[0] * network.sizes[1]
        w0[:, bias] = 5.123 - (w0[:, : network.sizes[0]] * X[:, 0]).sum(1)
    if row["kind"] == "extreme":
        draw = random.Random(APART + row["number"])
        X, X_query = _unsettled(X, row["x_scale"], draw), _unsettled(X_query, row["x_scale"], draw)
        y = y if row["loss"] in ("logistic", "softmax") else _unsettled(y, row["y_scale"], draw)
        if row["output"] == "activation":
            y = y.clamp(*network.activation.closed_range)
        w0 = _unsettled(w0, min(algorithm.box or 1.0, 1e3), draw)
        weight = _any_size(PROMPTS, n, draw) if row["weighted"] else None
    w0 = w0 if algorithm.box is None else w0.clamp(-algorithm.box, algorithm.box)
    X, y, X_query, w0 = (part.to(dtype).double() for part in (X, y, X_query, w0))
    weight = None if weight is None else weight.to(dtype).double()
    return Case(_compiled(row, algorithm), dtype, X, y, X_query, w0, weight)


def _compiled(row: Row, algorithm: ig.GradientDescent) -> ig.CompiledTransformer:
    z_bound = SIN_DOMAIN if row["activation"] == "sin" else None
    chosen: dict[str, Any] = {"target": row["target"]} | ({} if row["variant"] is None else {"variant": row["variant"]})
    accuracy = {} if row["epsilon"] is None else {"epsilon": row["epsilon"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of coarse approximants
        tf = ig.compile(algorithm, n_examples=16, z_bound=z_bound, **accuracy, **chosen)
        steps = {name: 2.0**-12 for name, f in tf.approximants.items() if math.isinf(f.error)}
        if steps and row["dtype"] == "float32" and (row["executor"] == "dense" or row["target"] != "relu"):
            chosen |= {"epsilons": steps}  # ramps for float32
            tf = ig.compile(algorithm, n_examples=16, z_bound=z_bound, **accuracy, **chosen)
    return tampered(tf, row["number"]) if row["kind"] == "tampered" else tf


# ------------------------------------------------------------------------------------------------------------ tampering


def tampered(tf: ig.CompiledTransformer, number: int) -> ig.CompiledTransformer:
    """The model saved, one number of its configuration or one byte of its tensors changed, sealed, and loaded."""
    draw = random.Random(number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        tf.save(path)
        if draw.random() < 0.7:
            _change_number(path / "config.json", draw)
        else:
            file = draw.choice(sorted(path.glob("*.safetensors")))
            content = bytearray(file.read_bytes())
            header = 8 + int.from_bytes(content[:8], "little")
            content[draw.randrange(header, len(content))] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
        seal(path)
        return ig.load(path)


def _change_number(file: Path, draw: random.Random) -> None:
    """One number of the file: an error, a knot, a slope, a rate ..."""
    content = json.loads(file.read_text())
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, dict | list):
                visit(value)
            elif isinstance(value, float):
                places.append((node, key))

    visit(content)
    node, key = draw.choice([place for place in places if place[1] == "error"] * (draw.random() < 0.3) or places)
    value = node[key]
    node[key] = draw.choice([0.0, -1.0, value / 2, value * (1 + 1e-6), value + 0.1, 1e-12])
    file.write_text(json.dumps(content))


# ---------------------------------------------------------------------------------------------------------------- judge


def examine(number: int) -> Row:
    """One configuration: its certificate, and every entry of it that does not hold."""
    row = configuration(number)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateStart)  # w0 = 0 is as good as any
            return {**row, **_examine(row)}
    except InputError as refusal:  # e.g. an epsilon below the rounding of the precision
        return {**row, "refused": str(refusal).splitlines()[0]}
    except JobError as overflow:  # of the run itself
        return {**row, "overflowed": str(overflow).splitlines()[0]}
    except Exception as failure:  # nothing may fail; one that does should not stop the others
        return {**row, "failed": f"{type(failure).__name__}: {str(failure).splitlines()[:1]}"}


def _examine(row: Row) -> Row:
    tf, dtype, X, y, X_query, w0, weight = case(row)
    follow = small(row)
    queries = X_query if follow else None
    given: dict[str, Any] = {"w0": w0, "sample_weight": weight, "dtype": dtype}
    certificate = tf.certify(X, y, queries, executor=row["executor"], trajectory=follow, errors=row["errors"], **given)
    memory, predictions = _memory(tf, tf.prompt(X, y, queries, **given), row["executor"])
    if not torch.equal(memory[-1][2], certificate.path[:, -1]):
        raise RuntimeError("the run that is judged is not the one that was certified")
    algorithm = algorithm_of(row) if row["kind"] != "tampered" else tf.algorithm
    exactly, path = descent(algorithm), certificate.path.double()  # type: ignore[arg-type]
    found: Row = {"entries": 0, "infinite": 0, "violations": [], "closest": 0.0, "ratios": [], "apart": 0.0}

    def judge(what: str, error: Long, radius: Tensor) -> None:
        bound = long(radius)
        known = np.isfinite(bound)
        found["entries"] += int(known.sum())
        found["infinite"] += int((~known).sum())
        wrong = known & ~(error <= bound)  # a NaN is wrong, too
        if wrong.any():
            worst = float((error - bound)[wrong].max())
            found["violations"].append({"what": what, "entries": int(wrong.sum()), "excess": worst})
        share = error[known & (bound > 0)] / bound[known & (bound > 0)]
        found["closest"] = max(found["closest"], float(share.max(initial=0.0)))

    for b in range(PROMPTS):
        inputs = X[b], y[b], torch.ones(row["n"], dtype=torch.float64) if weight is None else weight[b]
        xs, ys, omega = map(long, inputs)
        omega = omega / omega.sum()
        for number, part in enumerate(certificate.steps):
            w, held, after = path[b, number], [lanes[b] for lanes in memory[number]], long(path[b, number + 1])
            exact, _ = step(exactly, number, long(w), _state(*held[:2]), xs, ys, omega)
            if moderate(row):
                omegas = inputs[2] / inputs[2].sum()
                check = autograd_step(exactly, number, w, (held[0], held[1]), inputs[0], inputs[1], omegas)
                gap = float(np.abs(long(check) - exact).max() / (1 + np.abs(exact).max()))
                found["apart"] = max(found["apart"], math.inf if math.isnan(gap) else gap)
            judge(f"step {number + 1}", np.abs(after - exact), part.radius[b])
            error, bound = float(np.sqrt(((after - exact) ** 2).sum())), float(part.radius[b].norm())
            if error > 0.0 and math.isfinite(bound):
                found["ratios"].append(bound / error)
        if certificate.trajectory is None:
            continue
        w_exact, state = long(w0[b]), _state(*torch.zeros(2, w0.shape[1]))
        for number in range(row["steps"]):
            w_exact, state = step(exactly, number, w_exact, state, xs, ys, omega)
            distance = np.sqrt(((long(path[b, number + 1]) - w_exact) ** 2).sum(keepdims=True))
            judge(f"trajectory {number + 1}", distance, certificate.trajectory[b, number : number + 1])
        assert certificate.predictions is not None
        exact = predict(exactly, w_exact, long(X_query[b]))
        judge("predictions", np.abs(long(predictions[b]) - exact), certificate.predictions[b])
    return found


def _state(m: Tensor, v: Tensor) -> State:
    return long(m), long(v)


def _memory(tf: ig.CompiledTransformer, prompt: Any, executor: Any) -> tuple[list[list[Tensor]], Tensor]:
    """Momentum, second moments and weights before every step, (prompts, D_w) each, and the predictions, of the same
    run.
    """
    zero = torch.zeros_like(prompt.w0)
    held, state = [[zero, zero, prompt.w0]], prompt.state(tf.program)

    def lanes(kind: str) -> Tensor:
        found = {lane.name: state.get(f"{kind}{lane.name}") for lane in tf.program.weights}
        flat: Tensor = zero if None in found.values() else prompt.weights(tf.program, found)
        return flat

    for _, after, step_ends in tf.execute(prompt, executor):
        state = after
        if step_ends:
            held.append([lanes("M"), lanes("S"), lanes("")])
    return held, prompt.predictions(tf.program, state)
