"""Bad input: the Python API raises InputError with one clear line; the command line prints that line, exits with code 2
and leaves what is on disk as it was.
"""

from __future__ import annotations

import functools
import json
import math
import pickle
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import innergrad as ig
from innergrad import memory
from innergrad.model import storage
from innergrad.model.storage import seal
from test_cli import SMALL, call, change_weight, shell

NAN, INF = math.nan, math.inf

# ------------------------------------------------------------------------------------------------------ the Python API


@functools.cache
def compiled(kind: str = "plain") -> ig.CompiledTransformer:
    """Small transformers: two inputs, at most four examples."""
    net, options, settings = ig.Network([2, 3, 1]), {}, {"steps": 1}
    if kind == "bounded":
        options = {"x_bound": 2.0, "y_bound": 2.0}
    elif kind == "tanh output":
        net = ig.Network([2, 3, 1], output="activation")
    elif kind == "relu6 output":
        net = ig.Network([2, 3, 1], "relu6", output="activation")
    elif kind == "logistic":
        settings["loss"] = "logistic"
    elif kind == "softmax":
        net, settings["loss"] = ig.Network([2, 3, 3]), "softmax"
    elif kind == "sin":
        net, options = ig.Network([2, 3, 1], "sin"), {"z_bound": 4.0}
    elif kind == "two outputs":
        net = ig.Network([2, 3, 2])
    else:
        assert kind == "plain"
    return ig.compile(ig.GradientDescent(net, **settings), epsilon=1e-2, n_examples=4, **options)


class Broken:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise KeyError("columns")


def full(*shape: int, value: float = 0.5) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64)


def with_entry(tensor: Tensor, value: float) -> Tensor:
    """One entry replaced, the last."""
    changed = tensor.clone()
    changed.view(-1)[-1] = value
    return changed


def run(kind: str = "plain", **given: Any) -> ig.Run:
    """A run whose arguments are good unless given."""
    d_y = compiled(kind).program.stream["y"].size
    arguments = {"X": full(3, 2), "y": full(3, d_y), "X_query": full(2, 2)} | given
    return compiled(kind).run(**arguments)


def compile_(algorithm: Any = None, **options: Any) -> ig.CompiledTransformer:
    """One layer, no function to approximate, unless an algorithm is given."""
    algorithm = ig.GradientDescent(ig.Network([2, 1]), steps=1) if algorithm is None else algorithm
    return ig.compile(algorithm, **({"epsilon": 1e-2, "n_examples": 4} | options))


def descent(*sizes: int, activation: str = "tanh", output: str = "linear", **settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(sizes or (2, 3, 1), activation, output), **settings)


def reference(**given: Any) -> ig.Run:
    return ig.reference(descent(steps=1), **({"X": full(3, 2), "y": full(3, 1)} | given))


Call = Callable[[], object]
D_W = 13  # weights of a 2-3-1 network with biases
W0 = ig.Network([2, 3, 1]).init(0)

SHAPES: dict[str, tuple[Call, str]] = {
    "X of one axis": (lambda: run(X=full(2)), "X has the wrong shape; got (2,); allowed: (n, 2)"),
    "X of four axes": (lambda: run(X=full(1, 1, 3, 2)), "X has the wrong shape"),
    "X with too many columns": (lambda: run(X=full(3, 3)), "X has the wrong shape; got (3, 3)"),
    "X with too few columns": (lambda: run(X=full(3, 1)), "X has the wrong shape"),
    "X a number": (lambda: run(X=1.0), "X has the wrong shape"),
    "X an empty batch": (lambda: run(X=full(0, 3, 2)), "X has the wrong shape"),
    "y too long": (lambda: run(y=full(4, 1)), "y has the wrong shape; got (4, 1); allowed: (3, 1)"),
    "y too wide": (lambda: run(y=full(3, 2)), "y has the wrong shape"),
    "y a row": (lambda: run(y=full(1, 3)), "y has the wrong shape"),
    "y of another batch": (lambda: run(y=full(2, 3, 1)), "y has the wrong shape"),
    "y a number": (lambda: run(y=1.0), "y has the wrong shape"),
    "y flat with two outputs": (lambda: run("two outputs", y=full(3)), "y has the wrong shape"),
    "X_query of one axis": (lambda: run(X_query=full(2)), "X_query has the wrong shape"),
    "X_query too wide": (lambda: run(X_query=full(2, 3)), "X_query has the wrong shape"),
    "X_query of another batch": (lambda: run(X_query=full(2, 2, 2)), "X_query has the wrong shape"),
    "w0 too short": (lambda: run(w0=W0[:-1]), "w0 has the wrong shape; got (12,); allowed: (13,)"),
    "w0 too long": (lambda: run(w0=full(14)), "w0 has the wrong shape"),
    "w0 a column": (lambda: run(w0=W0[:, None]), "w0 has the wrong shape"),
    "w0 of another batch": (lambda: run(w0=full(2, D_W)), "w0 has the wrong shape"),
    "sample_weight too short": (lambda: run(sample_weight=full(2)), "sample_weight has the wrong shape"),
    "sample_weight a column": (lambda: run(sample_weight=full(3, 1)), "sample_weight has the wrong shape"),
    "reference: X": (lambda: reference(X=full(3, 1)), "X has the wrong shape"),
    "reference: w0": (lambda: reference(w0=full(3)), "w0 has the wrong shape"),
    "verify: X": (lambda: compiled().verify(full(3, 1), full(3, 1)), "X has the wrong shape"),
    "verify: X without y": (lambda: compiled().verify(full(3, 2)), "y"),
    "verify: y without X": (lambda: compiled().verify(None, full(3, 1)), "X"),
    "verify: only X_query": (lambda: compiled().verify(X_query=full(3, 2)), "X"),
    "unflatten": (lambda: ig.Network([2, 3, 1]).unflatten(full(4)), "does not fit the network"),
    "load_state_dict": (
        lambda: compiled().module.load_state_dict(
            {name: tensor[..., :-1] for name, tensor in compiled().module.state_dict().items()}
        ),
        "wrong shape",
    ),
}
NUMBERS: dict[str, tuple[Call, str]] = {
    **{
        f"{name} with {value}": (
            lambda name=name, value=value, good=good: run(**{name: with_entry(good, value)}),
            f"{name} contains NaN or infinity",
        )
        for name, good in (
            ("X", full(3, 2)),
            ("y", full(3, 1)),
            ("X_query", full(2, 2)),
            ("w0", W0),
            ("sample_weight", full(3)),
        )
        for value in (NAN, INF, -INF)
    },
    "a number beyond float32": (
        lambda: run(X=full(3, 2, value=1e300), dtype=torch.float32),
        "X is too large; got up to 1e+300; allowed: up to 3.403e+38 in torch.float32",
    ),
    "X sparse": (lambda: run(X=full(3, 2).to_sparse()), "arrays are dense; got a sparse tensor"),
    "X without numbers": (lambda: run(X=torch.empty(3, 2, device="meta")), "arrays are dense"),
    "X masked": (lambda: run(X=np.ma.masked_array(np.ones((3, 2)), [[True, False]] * 3)), "entries that are masked"),
    "y masked": (lambda: run(y=np.ma.masked_greater(np.arange(3.0), 1.0)), "entries that are masked"),
    "X of a class that is no array": (lambda: run(X=Broken()), "X is not an array of numbers; got Broken"),
    "weights that are negative, and sum to minus infinity": (
        lambda: run(sample_weight=full(3, value=-1e308)),
        "sample_weight must be non-negative",
    ),
    **{
        f"ragged: {name}": (lambda given=given: ig.ragged(*given), words)
        for name, given, words in (
            ("other columns", ([full(3, 2), full(3, 3)], [full(3), full(3)]), "have the same columns"),
            ("text", (["a"], ["b"]), "is not an array of numbers"),
            ("a label", ([full(3, 2)], [1.0]), "has the wrong shape"),
            ("no list", (None, None), "is not a list of arrays"),
            ("axes of y", ([full(3, 2)] * 2, [full(3), full(3, 1)]), "y of data set 1 has the wrong shape"),
            ("fewer weights", ([full(3, 2)] * 2, [full(3)] * 2, [full(3)]), "as many sample_weight as X; got 1 and 2"),
            ("rows", ([[[1.0, 2.0], [3.0]]], [[1.0, 2.0]]), "is not an array of numbers"),
        )
    },
    "X of text": (lambda: run(X=[["a", "b"]] * 3), "X is not an array of numbers"),
    "X ragged": (lambda: run(X=[[1.0, 2.0], [3.0]]), "X is not an array of numbers"),
    "X None": (lambda: run(X=None), "X is not an array of numbers"),
    "X complex": (lambda: run(X=full(3, 2) + 1j), "X must be real"),
    "y of text": (lambda: run(y=np.array([["a"]] * 3)), "y is not an array of numbers"),
    "w0 of text": (lambda: run(w0="zeros"), "w0 is not an array of numbers"),
    "a negative sample weight": (
        lambda: run(sample_weight=torch.tensor([1.0, -0.5, 1.0])),
        "sample_weight must be non-negative",
    ),
    "sample weights all zero": (lambda: run(sample_weight=full(3, value=0.0)), "a positive sum"),
    "no examples": (lambda: run(X=full(0, 2), y=full(0, 1)), "the number of examples is out of range; got 0"),
    "no examples for the reference": (lambda: reference(X=full(0, 2), y=full(0, 1)), "number of examples"),
    "too many examples": (
        lambda: run(X=full(5, 2), y=full(5, 1)),
        "the number of examples is out of range; got 5; allowed: 1 to n_examples = 4",
    ),
    "too many examples to verify": (lambda: compiled().verify(full(5, 2), full(5, 1)), "number of examples"),
    "no prompts to verify": (lambda: compiled().verify(prompts=0), "prompts must be a positive integer"),
    "half a prompt to verify": (lambda: compiled().verify(prompts=2.5), "prompts must be a positive integer"),
    "a fractional seed": (lambda: run(seed=1.5), "seed"),
    "a seed of 70 bits": (lambda: run(seed=2**70), "seed"),
}
TARGETS: dict[str, tuple[Call, str]] = {
    "above tanh": (lambda: run("tanh output", y=full(3, 1, value=1.01)), "allowed: [-1, 1]"),
    "below tanh": (lambda: run("tanh output", y=full(3, 1, value=-1.01)), "targets must lie in its range"),
    "below relu6": (lambda: run("relu6 output", y=full(3, 1, value=-0.01)), "allowed: [0, 6]"),
    "above relu6": (lambda: run("relu6 output", y=full(3, 1, value=6.01)), "passes through relu6"),
    "reference above tanh": (
        lambda: ig.reference(compiled("tanh output").algorithm, full(3, 2), full(3, 1, value=2.0)),
        "targets must lie in its range",
    ),
    "logistic 0.5": (lambda: run("logistic"), "logistic targets must be 0 or 1"),
    "logistic -1": (lambda: run("logistic", y=full(3, 1, value=-1.0)), "logistic targets must be 0 or 1"),
    "logistic 2": (lambda: run("logistic", y=full(3, 1, value=2.0)), "logistic targets must be 0 or 1"),
    "softmax halves": (lambda: run("softmax"), "softmax targets must be one-hot rows"),
    "softmax two ones": (lambda: run("softmax", y=torch.tensor([[1, 1, 0]] * 3)), "one-hot rows"),
    "softmax no one": (lambda: run("softmax", y=torch.tensor([[0, 0, 0]] * 3)), "one-hot rows"),
    "softmax 2, -1, 0": (lambda: run("softmax", y=torch.tensor([[2, -1, 0]] * 3)), "one-hot rows"),
    "softmax class numbers": (lambda: run("softmax", y=torch.tensor([0, 1, 2])), "y has the wrong shape"),
}
DOMAINS: dict[str, tuple[Call, str]] = {
    "x_bound": (lambda: run("bounded", X=full(3, 2, value=-2.1)), "X leaves the domain"),
    "x_bound on queries": (lambda: run("bounded", X_query=full(1, 2, value=2.1)), "max |X| = 2.1; allowed: at most 2"),
    "y_bound": (lambda: run("bounded", y=full(3, 1, value=2.1)), "y leaves the domain"),
    "sin, plain": (lambda: run("sin", X=full(3, 2, value=9.0)), "sin left the domain"),
    "sin, dense": (lambda: run("sin", X=full(3, 2, value=9.0), executor="dense"), "sin left the domain"),
    "sin on queries, plain": (lambda: run("sin", X_query=full(1, 2, value=9.0)), "allowed: [-4, 4]"),
    "sin on queries, dense": (
        lambda: run("sin", X_query=full(1, 2, value=9.0), executor="dense"),
        "compile with a larger z_bound",
    ),
    "box": (lambda: run(w0=with_entry(W0, 4.5)), "the box must contain w0; got max |b2| = 4.5 with a box of 4"),
    "box, in float32": (lambda: run(w0=with_entry(W0, -4.5), dtype=torch.float32), "the box must contain w0"),
    "box, for the reference": (lambda: reference(w0=with_entry(W0, 4.5)), "the box must contain w0"),
    "box smaller than net.init": (
        lambda: compile_(descent(box=0.1, steps=1)).run(full(3, 2), full(3, 1)),
        "the box must contain w0",
    ),
    "sin without a domain": (
        lambda: compile_(descent(activation="sin")),
        "no asymptotes of sin are known, so its approximant needs a domain",
    ),
    "sin with inputs but without a box": (
        lambda: compile_(descent(activation="sin", box=None), x_bound=1.0),
        "give z_bound",
    ),
}
UNKNOWN: dict[str, tuple[Call, str]] = {
    "activation": (lambda: ig.Network([2, 3, 1], "Tanh"), "unknown activation; got 'Tanh'; allowed: tanh, sigmoid"),
    "activation 3": (lambda: ig.Network([2, 3, 1], 3), "unknown activation"),
    "activation torch.tanh": (lambda: ig.Network([2, 3, 1], torch.tanh), "unknown activation"),
    "output": (lambda: ig.Network([2, 3, 1], output="softmax"), "unknown output; got 'softmax'"),
    "bias": (lambda: ig.Network([2, 3, 1], bias="no"), "bias"),
    "loss": (lambda: descent(loss="mse"), "unknown loss; got 'mse'; allowed: squared, log-cosh"),
    "loss 3": (lambda: descent(loss=3), "unknown loss"),
    "network": (lambda: ig.GradientDescent([2, 3, 1]), "network"),
    "algorithm": (lambda: ig.compile("gradient_descent"), "algorithm"),
    "algorithm a network": (lambda: ig.compile(ig.Network([2, 3, 1])), "algorithm"),
    "target": (lambda: compile_(target="bert"), "unknown target; got 'bert'; allowed: relu"),
    "target a list": (lambda: compile_(target=["relu"]), "unknown target"),
    "variant": (lambda: compile_(variant="tiny"), "unknown variant of target 'relu'; got 'tiny'; allowed: literal"),
    "executor": (lambda: run(executor="gpu"), "unknown executor; got 'gpu'; allowed: plain, dense, fused"),
    "executor None": (lambda: run(executor=None), "unknown executor"),
    "executor of a trace": (
        lambda: compiled().trace(full(3, 2), full(3, 1), executor="gpu"),
        "unknown executor",
    ),
    "dtype float16": (lambda: run(dtype=torch.float16), "unsupported dtype; got torch.float16"),
    "dtype int64": (lambda: run(dtype=torch.int64), "allowed: torch.float32 or torch.float64"),
    "dtype a string": (lambda: run(dtype="float64"), "dtype"),
    "lane": (lambda: compiled().program.stream["V9"], "unknown lane; got 'V9'"),
}
SETTINGS: dict[str, tuple[Call, str]] = {
    **{
        f"sizes {sizes!r}": (lambda sizes=sizes: ig.Network(sizes), "sizes are d_x, hidden widths..., d_y")
        for sizes in ([2], [], [2, 0], [2, -3, 1], [2, 2.5, 1], [2, True], "abc", [None, 1], [[2], [1]], None, 3)
    },
    **{
        f"{name} {value!r:.20}": (lambda name=name, value=value: descent(**{name: value}), name)
        for name, values in (
            ("lr", (-0.1, NAN, INF, "fast", None, [], [0.1, -0.1], [0.1, "fast"], torch.tensor(0.1), 10**400)),
            ("steps", (0, -1, 2.5, "3", True)),
            ("box", (0, -1.0, NAN, INF, "none", [4.0])),
            ("momentum", (-0.1, NAN, "0.9")),
            ("weight_decay", (-0.1, INF, "0.9")),
            ("nesterov", (True, 1, "yes")),
            ("l1", (-0.1, NAN, "0.9", None)),
            ("clip", (0.0, -1.0, NAN, "1", [1.0])),
            ("batches", ([], [[]], [0, 1], "01", 3, ["01"])),
            ("epochs", (0, -1, 1.5, "2", True)),
        )
        for value in values
    },
    **{
        f"{name} {value!r}": (lambda name=name, value=value: compile_(**{name: value}), name)
        for name, values in (
            ("n_examples", (0, -1, 2.5, "4", None, True)),
            ("x_bound", (0, -1.0, NAN, INF, "1")),
            ("y_bound", (0, NAN, "1")),
            ("z_bound", (0, NAN, "1")),
            ("epsilon", (1e-12, 0.0, -0.1, 0.5, NAN, INF, "small")),
        )
        for value in values
    },
    "epsilon 1e-12 with functions to approximate": (
        lambda: compile_(descent(), epsilon=1e-12),
        "got 1e-12; allowed: 1e-08 to 0.1",
    ),
    "logistic with an activated output": (
        lambda: descent(loss="logistic", output="activation"),
        "the logistic loss acts on logits; got an activated output; allowed: output='linear'",
    ),
    "softmax with an activated output": (
        lambda: descent(2, 3, 2, loss="softmax", output="activation"),
        "the softmax loss acts on logits",
    ),
    "softmax with one output": (
        lambda: descent(loss="softmax"),
        "the softmax loss needs at least two outputs; got 1; use loss='logistic'",
    ),
    "embed a wider network": (
        lambda: ig.Network([2, 3, 1]).embed(ig.Network([2, 4, 1]), full(17)),
        "does not fit into [2, 3, 1]",
    ),
    "embed where r(0) is not 0": (
        lambda: ig.Network([2, 3, 1], "sigmoid").embed(ig.Network([2, 2, 1], "sigmoid"), full(9)),
        "zero padding needs r(0) = 0",
    ),
}


@pytest.mark.parametrize(
    ("bad", "fragment"),
    [
        pytest.param(bad, fragment, id=f"{table}: {name}")
        for table, cases in (
            ("shapes", SHAPES),
            ("numbers", NUMBERS),
            ("targets", TARGETS),
            ("domains", DOMAINS),
            ("unknown", UNKNOWN),
            ("settings", SETTINGS),
        )
        for name, (bad, fragment) in cases.items()
    ],
)
def test_python(bad: Call, fragment: str) -> None:
    with pytest.raises(ig.InputError) as caught:
        bad()
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(good, id=name)
        for name, good in {
            "as it is": run,
            "n = n_examples": lambda: run(X=full(4, 2), y=full(4, 1)),
            "n = 1": lambda: run(X=full(1, 2), y=full(1, 1)),
            "lists": lambda: run(X=[[1, 2], [3, 4]], y=[1, 2], X_query=[[0, 0]]),
            "a reversed numpy array": lambda: run(X=full(3, 2).numpy()[::-1]),
            "big-endian numpy": lambda: run(X=full(3, 2).numpy().astype(">f8")),
            "w0 on the edge of the box": lambda: run(w0=with_entry(W0, -4.0)),
            "one sample weight zero": lambda: run(sample_weight=[0, 1, 1]),
            "targets on the edge of tanh": lambda: run("tanh output", y=[[1.0], [-1.0], [0.0]]),
            "targets on the edge of relu6": lambda: run("relu6 output", y=[[0.0], [6.0], [3.0]]),
            "logistic": lambda: run("logistic", y=[[0], [1], [1]]),
            "softmax": lambda: run("softmax", y=[[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
            "on the edge of the bounds": lambda: run("bounded", X=full(3, 2, value=-2.0), y=full(3, 1, value=2.0)),
            "sin in its domain": lambda: run("sin", executor="dense"),
        }.items()
    ],
)
def test_what_is_just_allowed(good: Callable[[], ig.Run]) -> None:
    result = good()
    assert bool(torch.isfinite(result.weights).all())
    assert bool(torch.isfinite(result.predictions).all())


def test_a_domain_error_is_an_input_error() -> None:
    with pytest.raises(ig.DomainError):
        run("sin", X=full(3, 2, value=9.0))


def test_a_learning_rate_of_zero_changes_nothing() -> None:
    """Allowed, so it has to work: in both executors, and as a saved model."""
    tf = compile_(descent(lr=0.0, steps=2))
    for executor in ("plain", "dense"):
        result = tf.run(full(3, 2), full(3, 1), full(1, 2), executor=executor)
        assert torch.equal(result.weights, result.weights[:1].expand(3, -1))
    assert tf.verify().passed
    assert tf.n_parameters > 0


# ------------------------------------------------------------------------------------------- precision and memory


@functools.cache
def precise(executor: str) -> ig.CompiledTransformer:
    """An epsilon out of reach of float32: 1e-6 by sums of ReLUs, 1e-8 however it is computed."""
    if executor == "dense":
        return ig.compile(descent(2, 1, loss="logistic", steps=1), epsilon=1e-6, n_examples=4)
    algorithm = descent(2, 1, activation="sin", output="activation", steps=1)
    return ig.compile(algorithm, epsilon=1e-8, n_examples=4, z_bound=0.125)


def test_float32_cannot_reach_every_epsilon_dense(tmp_path: Path) -> None:
    tf, X, y = precise("dense"), full(3, 2), full(3, 1, value=1.0)
    with pytest.raises(ig.InputError, match=r"epsilon = 1e-06 cannot be reached in torch\.float32 by the dense"):
        tf.run(X, y, executor="dense", dtype=torch.float32)
    expected = tf.run(X, y, executor="dense").weights
    assert torch.allclose(tf.run(X, y, dtype=torch.float32).weights.double(), expected, atol=1e-5)
    tf.save(tmp_path / "model")
    (tmp_path / "data.csv").write_text("a,b,t\n1,2,1\n1,1,0\n")
    arguments = ("run", tmp_path / "model", "--data", tmp_path / "data.csv", "--executor", "dense")
    assert_refused(call(*arguments, "--dtype", "float32"), "cannot be reached in torch.float32")
    assert call(*arguments).code == 0


def test_float32_cannot_reach_every_epsilon_plain() -> None:
    tf, X, y = precise("plain"), full(3, 2, value=0.01), full(3, 1, value=0.1)
    with pytest.raises(ig.InputError, match=r"epsilon = 1e-08 cannot be reached in torch\.float32 by the plain"):
        tf.run(X, y, w0=full(3, value=0.1), dtype=torch.float32)
    assert bool(tf.run(X, y, w0=full(3, value=0.1)).weights.isfinite().all())


def test_dense_tensors_need_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Refused before anything is allocated, with what is needed, what there is, and what to do instead."""
    tf = compile_(descent(steps=1))
    tf.module.state_dict()
    tf.save(tmp_path / "model")
    (tmp_path / "data.csv").write_text("a,b,t\n1,2,1\n1,1,\n")
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(ig.InputError, match=r"memory; got 0\.0 GiB available; .*plain"):
        tf.module.state_dict()
    with pytest.raises(ig.InputError, match=r"memory; got 0\.0 GiB available; .*plain"):
        tf.run(full(3, 2), full(3, 1), executor="dense")
    with pytest.raises(ig.InputError, match="memory"):
        compile_(descent(steps=1)).save(tmp_path / "other")
    assert bool(tf.run(full(3, 2), full(3, 1)).weights.isfinite().all())
    run_it = ("run", tmp_path / "model", "--data", tmp_path / "data.csv")
    assert_refused(call(*run_it), "memory")  # loading, too
    before = snapshot(tmp_path / "model")
    assert_refused(call("compile", *SMALL, "--out", tmp_path / "model"), "memory")
    assert snapshot(tmp_path / "model") == before


# ----------------------------------------------------------------------------------------------- degenerate starts


def test_zero_weights_with_tanh_are_a_saddle() -> None:
    with pytest.warns(ig.DegenerateStart, match=r"tanh\(0\) = 0.*every gradient but the output bias's is zero"):
        result = run(w0=full(D_W, value=0.0))
    moved = (result.weights[-1] != 0).nonzero().flatten().tolist()
    assert moved == [D_W - 1]


def test_zero_weights_with_sigmoid_keep_hidden_units_equal() -> None:
    algorithm = descent(activation="sigmoid", steps=3)
    with pytest.warns(ig.DegenerateStart, match="keeps all hidden units of a layer identical"):
        result = compile_(algorithm).run(torch.eye(2), [1.0, -2.0], w0=full(D_W, value=0.0))
    (V1, b1), (V2, _) = algorithm.network.unflatten(result.weights[-1])
    assert b1 is not None
    assert float(V2.abs().min()) > 0
    for rows in (V1, b1[:, None], V2.mT):
        assert torch.allclose(rows, rows[:1].expand_as(rows), rtol=0, atol=1e-12)


def test_one_prompt_of_a_batch_may_be_degenerate() -> None:
    w0 = torch.stack([W0, torch.zeros_like(W0)])
    with pytest.warns(ig.DegenerateStart, match="start from net.init"):
        run(X=full(2, 3, 2), y=full(2, 3, 1), X_query=full(2, 1, 2), w0=w0)
    with pytest.warns(ig.DegenerateStart):
        reference(w0=torch.zeros_like(W0))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_zero_weights_are_fine_for_one_layer(activation: str) -> None:
    """And for deeper networks any other start is."""
    tf = compile_(descent(2, 1, activation=activation, output="activation", steps=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tf.run(torch.eye(2), [0.25, 0.9], w0=torch.zeros(3))
        run(w0=with_entry(torch.zeros_like(W0), 0.1))
    assert float(result.weights[-1].abs().min()) > 0


# ------------------------------------------------------------------------------------------------- the command line


def assert_refused(result: Any, fragment: str, code: int = 2) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that says what is wrong."""
    assert result.code == code, result
    assert result.out == ""
    assert result.err.startswith("innergrad: "), result.err
    assert result.err.endswith("\n")
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    assert fragment in result.err


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, data and an output folder with something in it."""
    folder = tmp_path_factory.mktemp("bad")
    for name, kind in {
        "model": "plain",
        "tanh": "tanh output",
        "logistic": "logistic",
        "softmax": "softmax",
        "sin": "sin",
        "bounded": "bounded",
        "wide": "two outputs",
    }.items():
        compiled(kind).save(folder / name)
    for name, algorithm in {
        "functional": ig.FunctionalGradientDescent(d=2, steps=2, lambda_max=4.0),
        "sgd": ig.OnlineSGD(d=2),
        "rls": ig.RecursiveLeastSquares(d=2),
    }.items():
        ig.compile(algorithm, n_examples=4).save(folder / name)
    (folder / "data.csv").write_text("a,b,t\n1,2,3\n0,1,1\n0.5,0.5,\n")
    (folder / "file").write_text("not a folder\n")
    assert call("run", folder / "model", "--data", folder / "data.csv", "--out", folder / "out").code == 0
    (folder / "out" / "notes.txt").write_text("mine\n")
    return folder


@pytest.fixture
def workspace(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template, as the current folder."""
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


COMPILE = ("compile", *SMALL, "--out", "model")
FLAGS: dict[str, tuple[tuple[str, ...], str]] = {
    "no sizes": (("compile", "--out", "model"), "sizes are missing"),
    "sizes abc": ((*COMPILE, "--sizes", "abc"), "sizes must be integers; got 'abc'"),
    "sizes empty": ((*COMPILE, "--sizes", ""), "sizes must be integers"),
    "sizes 2,,1": ((*COMPILE, "--sizes", "2,,1"), "sizes must be integers"),
    "sizes 2.5,1": ((*COMPILE, "--sizes", "2.5,1"), "sizes must be integers"),
    "sizes 2": ((*COMPILE, "--sizes", "2"), "two or more positive integers"),
    "sizes 2,0,1": ((*COMPILE, "--sizes", "2,0,1"), "two or more positive integers"),
    "sizes too large to count": ((*COMPILE, "--sizes", "2,99999999999999999999,1"), ""),
    "activation": ((*COMPILE, "--activation", "Tanh"), "unknown activation; got 'Tanh'"),
    "output": ((*COMPILE, "--output", "softmax"), "unknown output; got 'softmax'"),
    "loss": ((*COMPILE, "--loss", "mse"), "unknown loss; got 'mse'"),
    "lr": ((*COMPILE, "--lr", "nan"), "lr must be a finite number"),
    "steps": ((*COMPILE, "--steps", "0"), "steps must be a positive integer"),
    "box abc": ((*COMPILE, "--box", "abc"), "box must be a number or 'none'"),
    "box -1": ((*COMPILE, "--box", "-1"), "box must be a positive number"),
    "momentum": ((*COMPILE, "--momentum", "-1"), "momentum must be a finite number"),
    "weight decay": ((*COMPILE, "--weight-decay", "inf"), "--weight-decay must be a finite number"),
    "epsilon 1e-12": ((*COMPILE, "--epsilon", "1e-12"), "allowed: 1e-08 to 0.1"),
    "epsilon -1 with nothing to approximate": ((*COMPILE, "--sizes", "2,1", "--epsilon", "-1"), "epsilon"),
    "n-examples": ((*COMPILE, "--n-examples", "0"), "--n-examples must be a positive integer"),
    "x-bound": ((*COMPILE, "--x-bound", "nan"), "--x-bound must be a positive number"),
    "sin without a domain": ((*COMPILE, "--activation", "sin"), "no asymptotes of sin are known"),
    "softmax with one output": ((*COMPILE, "--loss", "softmax"), "at least two outputs"),
    "softmax activated": (
        (*COMPILE, "--sizes", "2,3,2", "--loss", "softmax", "--output", "activation"),
        "the softmax loss acts on logits",
    ),
    "logistic activated": ((*COMPILE, "--loss", "logistic", "--output", "activation"), "the logistic loss acts on"),
    "compile into a file": (("compile", *SMALL, "--out", "file"), "file"),
    "compile below a file": (("compile", *SMALL, "--out", "file/model"), "file"),
    "cost of both": (("cost", "model", "--sizes", "2,1"), "either a saved model or settings"),
    "cost of nothing": (("cost",), "either a saved model or settings"),
    "cost below a file": (("cost", "model", "--out", "file/cost.json"), "file"),
    "cost into a folder": (("cost", "model", "--out", "out"), "out"),
    "run without data": (("run", "model"), "the examples are missing; give --data"),
    "run nothing": (("run", "nothing", "--data", "data.csv"), "not a saved model; got nothing"),
    "run an empty folder": (("run", "/", "--data", "data.csv"), "not a saved model; got /"),
    "verify nothing": (("verify", "nothing"), "not a saved model"),
    "verify a file": (("verify", "file"), "not a saved model"),
    "cost of no model": (("cost", "nothing"), "not a saved model"),
    "verify no prompts": (("verify", "model", "--prompts", "0"), "prompts must be a positive integer; got 0"),
    "verify below a file": (("verify", "model", "--out", "file/report.json"), "file"),
    "verify into a folder": (("verify", "model", "--out", "out"), "out"),
    "verify a seed of 70 bits": (("verify", "model", "--seed", str(2**70)), "seed"),
    "executor": (("run", "model", "--data", "data.csv", "--executor", "gpu"), "unknown executor; got 'gpu'"),
    "dtype": (("run", "model", "--data", "data.csv", "--dtype", "float16"), "unknown dtype; got 'float16'"),
    "a seed of 70 bits": (("run", "model", "--data", "data.csv", "--seed", str(2**70)), "seed"),
    "run into a file": (("run", "model", "--data", "data.csv", "--out", "file"), "file"),
    "run below a file": (("run", "model", "--data", "data.csv", "--out", "file/out"), "file"),
    "demo into a file": (("demo", "--out", "file"), "file"),
    "std of gradient descent": (
        ("run", "model", "--data", "data.csv", "--std", "--out", "out"),
        "gradient_descent has no predictive standard deviation",
    ),
    "cost of a model and an algorithm": (("cost", "model", "--algorithm", "rls"), "either a saved model or settings"),
}
COMMON = (
    "--target, --variant, --epsilon, --n-examples, --x-bound, --y-bound, --z-bound, --sigma, --weight-error, --until, "
    "--double"
)
ALGORITHMS: dict[str, tuple[tuple[str, ...], str]] = {  # flags that do not go together; for compile and for cost
    "unknown algorithm": (("--algorithm", "adam"), "got 'adam'; allowed: gradient-descent, functional, sgd, rls"),
    "no algorithm": (("--algorithm", ""), "unknown algorithm; got ''"),
    "the library's name": (("--algorithm", "online_sgd"), "unknown algorithm; got 'online_sgd'"),
    "gradient descent without sizes": (("--algorithm", "gradient-descent", "--steps", "3"), "sizes are missing"),
    "lr for rls": (
        ("--algorithm", "rls", "--lr", "0.1"),
        f"algorithm rls does not take this flag; got --lr; allowed: --d, --ridge, --noise, --form, {COMMON}; "
        "--algorithm gradient-descent or sgd or grid does",
    ),
    "flags of two others for rls": (
        ("--algorithm", "rls", "--d", "2", "--lr", "0.1", "--kernel", "exp"),
        f"does not take these flags; got --lr, --kernel; allowed: --d, --ridge, --noise, --form, {COMMON}\n",
    ),
    "sizes for sgd": (
        ("--algorithm", "sgd", "--sizes", "2,1"),
        f"algorithm sgd does not take this flag; got --sizes; allowed: --d, --lr, --weight-decay, {COMMON}",
    ),
    "no biases for functional": (
        ("--algorithm", "functional", "--no-bias"),
        "algorithm functional does not take this flag; got --no-bias; allowed: --kernel, --bandwidth, --d, --d-y, "
        f"--steps, --step-rule, --step, --lambda-max, --condition, --covariate-step, {COMMON}; --algorithm "
        "gradient-descent",
    ),
    "a kernel for gradient descent": (
        ("--sizes", "2,1", "--kernel", "exp"),
        "algorithm gradient-descent does not take this flag; got --kernel; allowed: --sizes, --activation, --output, "
        "--bias, --optimiser, --loss, --lr, --steps, --box, --ball, --momentum, --weight-decay, --nesterov, --l1, "
        f"--clip, --schedule, --batch-size, --epochs, --betas, --delta, {COMMON}; --algorithm functional does",
    ),
    "d for gradient descent": (("--d", "2"), "got --d; allowed: --sizes"),
    "unknown target": (("--algorithm", "rls", "--target", "bert"), "unknown target; got 'bert'; allowed: relu, kernel"),
    "rls on relu": (("--algorithm", "rls", "--target", "relu"), "no program for target 'relu'; allowed: gpt"),
    "sgd on kernel": (("--algorithm", "sgd", "--target", "kernel"), "no program for target 'kernel'; allowed: gpt"),
    "functional on relu": (("--algorithm", "functional", "--target", "relu"), "allowed: kernel, gpt"),
    "gradient descent on kernel": (("--sizes", "2,1", "--target", "kernel"), "allowed: relu, gpt"),
    "variant of another target": (("--sizes", "2,1", "--variant", "raw"), "got 'raw'; allowed: literal"),
    "unknown variant": (("--algorithm", "sgd", "--variant", "post-ln"), "got 'post-ln'; allowed: pre-ln, raw"),
    "kernel": (("--algorithm", "functional", "--kernel", "rbf"), "got 'rbf'; allowed: linear, relu, exp, softmax"),
    "bandwidth": (("--algorithm", "functional", "--bandwidth", "0"), "bandwidth must be a positive number"),
    "step rule": (("--algorithm", "functional", "--step-rule", "newton"), "allowed: constant, chebyshev"),
    "step": (("--algorithm", "functional", "--step", "-1"), "step must be a positive number"),
    "a Chebyshev step": (
        ("--algorithm", "functional", "--step-rule", "chebyshev", "--step", "1"),
        "Chebyshev steps follow from --lambda-max and condition; got --step 1.0",
    ),
    "Chebyshev for relu": (
        ("--algorithm", "functional", "--step-rule", "chebyshev", "--kernel", "relu"),
        "need a positive semi-definite kernel",
    ),
    "lambda-max": (("--algorithm", "functional", "--lambda-max", "nan"), "--lambda-max must be a positive number"),
    "condition": (("--algorithm", "functional", "--condition", "0.5"), "condition must be a finite number, at least 1"),
    "covariate step": (("--algorithm", "functional", "--covariate-step", "inf"), "--covariate-step must be a finite"),
    "d 0": (("--algorithm", "rls", "--d", "0"), "d must be a positive integer; got 0"),
    "ridge": (("--algorithm", "rls", "--ridge", "0"), "ridge must be a positive number"),
    "noise": (("--algorithm", "rls", "--noise", "-1"), "noise must be a positive number"),
    "form": (("--algorithm", "rls", "--form", "qr"), "unknown form; got 'qr'; allowed: rls, sherman-morrison"),
    "learning rate": (("--algorithm", "sgd", "--lr", "nan"), "lr must be a finite number, at least 0"),
    "weight decay of sgd": (("--algorithm", "sgd", "--weight-decay", "-1"), "--weight-decay must be a finite number"),
    "epsilon on gpt": (("--algorithm", "sgd", "--epsilon", "1"), "epsilon"),
}
USAGE: dict[str, tuple[tuple[str, ...], str]] = {  # what the parser of the command line finds wrong
    "unknown command": (("train-me",), "train-me"),
    "unknown option": ((*COMPILE, "--learning-rate", "1"), "--learning-rate"),
    "lr fast": ((*COMPILE, "--lr", "fast"), "--lr"),
    "steps 2.5": ((*COMPILE, "--steps", "2.5"), "--steps"),
    "epsilon small": ((*COMPILE, "--epsilon", "small"), "--epsilon"),
    "seed x": (("run", "model", "--data", "data.csv", "--seed", "x"), "--seed"),
    "prompts x": (("verify", "model", "--prompts", "x"), "--prompts"),
    "a value is missing": ((*COMPILE, "--lr"), "--lr"),
    "an argument too many": (("verify", "model", "model"), "model"),
    "run no model": (("run",), "model"),
    "verify no model": (("verify",), "model"),
}


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [pytest.param(*case, id=name) for name, case in {**FLAGS, **USAGE}.items()],
)
def test_arguments(workspace: Path, arguments: tuple[str, ...], fragment: str) -> None:
    before = snapshot(workspace)
    assert_refused(call(*arguments), fragment)
    assert snapshot(workspace) == before


@pytest.mark.parametrize(("arguments", "fragment"), [pytest.param(*case, id=name) for name, case in ALGORITHMS.items()])
@pytest.mark.parametrize("command", [("compile", "--out", "model"), ("cost",)], ids=["compile", "cost"])
def test_algorithms(workspace: Path, command: tuple[str, ...], arguments: tuple[str, ...], fragment: str) -> None:
    before = snapshot(workspace)
    assert_refused(call(*command, *arguments), fragment)
    assert snapshot(workspace) == before


FITS_NO_MACHINE: dict[str, tuple[tuple[str, ...], str, int]] = {
    "steps": (("functional", "--steps", str(10**14)), "steps must be a positive integer; got 1000000", 2),
    "d": (("functional", "--d", str(10**20)), "d must be a positive integer; got 1000000000000000000", 2),
    "d of sgd": (("sgd", "--d", str(10**7)), "allowed: 1 to 20000", 2),
    "d of rls": (("rls", "--d", "20000"), "counting the weights needs", 2),
    "examples": (("sgd", "--n-examples", str(10**9)), "--n-examples must be a positive integer", 2),
}


@pytest.mark.parametrize("name", FITS_NO_MACHINE)
def test_models_that_fit_no_machine(workspace: Path, name: str) -> None:
    arguments, fragment, code = FITS_NO_MACHINE[name]
    before = snapshot(workspace)
    assert_refused(call("compile", "--algorithm", *arguments, "--out", "model"), fragment, code=code)
    assert snapshot(workspace) == before


CSV: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty; got nothing; allowed: a header and at least one row"),
    "only a header": ("a,b,t\n", "has a header but no rows; got a, b, t"),
    "no header": ("1,2,3\n4,5,6\n", "header"),
    "no examples": ("a,b,t\n1,2,\n", "has no examples"),
    "a short row": (
        "a,b,t\n1,2,3\n1,2\n",
        "line 3 of bad.csv has the wrong length; got 2 cells; allowed: 3, as the header has; nothing is given for",
    ),
    "a long row": ("a,b,t\n1,2,3,4\n", "line 2 of bad.csv has the wrong length"),
    "text": ("a,b,t\n1,two,3\n", "line 2 of bad.csv, column 'b' (number 2), is not a number; got 'two'"),
    "text in a target": (
        "a,b,t\n1,2,3\n1,2,high\n",
        "line 3 of bad.csv, column 't' (number 3), is not a number; got 'high'",
    ),
    "text in a query": ("a,b,t\n1,2,3\n1,x,\n", "line 3 of bad.csv, column 'b' (number 2), is not a number; got 'x'"),
    "an empty input": ("a,b,t\n,2,3\n", "line 2 of bad.csv, column 'a' (number 1), is not a number; got nothing"),
    "NaN": ("a,b,t\n1,nan,3\n", "is NaN or infinity; got"),
    "infinity": ("a,b,t\n1,2,-inf\n", "is NaN or infinity; got"),
    "infinity by digits": ("a,b,t\n1,2,1e999\n", "is NaN or infinity; got"),
    "two columns of one name": ("a,a,t\n1,2,3\n", "columns of the same name"),
    "too few columns": ("a,t\n1,2\n", "got 1 input and 1 target columns; allowed: 2 and 1"),
    "too many columns": ("a,b,c,t\n1,2,3,4\n", "got 3 input and 1 target columns; allowed: 2 and 1"),
    "semicolons": ("a;b;t\n1;2;3\n", "bad.csv has semicolons between its columns; got 'a;b;t'; allowed: commas"),
    "too many rows": (
        "a,b,t\n" + "1,2,3\n" * 5,
        "got 5 rows; allowed: 1 to 4, the model's --n-examples; compile with --n-examples 5",
    ),
    "binary": (bytes(range(256)), "cannot read bad.csv"),
}


@pytest.mark.parametrize(("content", "fragment"), [pytest.param(*case, id=name) for name, case in CSV.items()])
@pytest.mark.parametrize("command", ["run", "verify"])
def test_csv(workspace: Path, command: str, content: str | bytes, fragment: str) -> None:
    Path("bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(workspace)
    out = "out" if command == "run" else "out/report.json"
    assert_refused(call(command, "model", "--data", "bad.csv", "--out", out), fragment)
    assert snapshot(workspace) == before


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("run", "model", "--data", "none.csv"), "cannot read none.csv"),
        (("run", "model", "--data", "out"), "cannot read out"),
        (("run", "model", "--data", "data.csv", "--query", "none.csv"), "cannot read none.csv"),
        (("run", "model", "--data", "data.csv", "--query", "half.csv"), "no such column in half.csv; got b"),
        (
            ("run", "model", "--data", "data.csv", "--query", "text.csv"),
            "line 2 of text.csv, column 'b' (number 2), is not a number",
        ),
        (
            ("run", "model", "--data", "data.csv", "--query", "nan.csv"),
            "line 2 of nan.csv, column 'b' (number 2), is NaN or infinity",
        ),
        (("run", "model", "--data", "data.csv", "--query", "header.csv"), "header.csv has a header but no rows"),
        (
            ("run", "model", "--data", "data.csv", "--target", "z"),
            "no such column in data.csv; got z; allowed: a, b, t",
        ),
        (("run", "model", "--data", "data.csv", "--target", ""), "no such column"),
        (("run", "model", "--data", "data.csv", "--target", "t,t"), "target columns"),
        (("run", "model", "--data", "data.csv", "--target", "b,t"), "1 input and 2 target columns"),
        (("verify", "model", "--data", "data.csv", "--target", "z"), "no such column"),
        (("verify", "model", "--data", "none.csv"), "cannot read none.csv"),
        (("run", "wide", "--data", "wide.csv"), "wide.csv has rows with some targets empty"),
        (("run", "tanh", "--data", "data.csv"), "targets must lie in its range"),
        (("run", "functional", "--data", "data.csv"), "the steps are too large for this prompt: they diverge"),
        (("verify", "functional", "--data", "data.csv"), "the steps are too large for this prompt"),
        (("run", "rls", "--data", "far.csv", "--target", "b"), "far.csv does not fit the model"),
        (("run", "rls", "--data", "steep.csv"), "lane X left the range its products are made for"),
        (("run", "sgd", "--data", "small.csv", "--std"), "online_sgd has no predictive standard deviation"),
        (("run", "logistic", "--data", "data.csv"), "logistic targets must be 0 or 1"),
        (("run", "softmax", "--data", "softmax.csv"), "one-hot rows"),
        (("run", "bounded", "--data", "data.csv"), "y leaves the domain"),
        (("run", "bounded", "--data", "small.csv", "--query", "far.csv"), "X leaves the domain"),
        (("run", "sin", "--data", "small.csv", "--query", "far.csv"), "sin left the domain"),
        (("run", "sin", "--data", "small.csv", "--query", "far.csv", "--executor", "dense"), "sin left the domain"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_data_that_does_not_fit(workspace: Path, arguments: tuple[str, ...], fragment: str) -> None:
    Path("half.csv").write_text("a\n1\n")
    Path("text.csv").write_text("a,b\n1,x\n")
    Path("nan.csv").write_text("a,b\n1,nan\n")
    Path("header.csv").write_text("a,b\n")
    Path("far.csv").write_text("a,b\n9,9\n")
    Path("steep.csv").write_text("a,b,t\n9,9,1\n1,1,\n")
    Path("small.csv").write_text("a,b,t\n0.5,0.5,0.5\n")
    Path("wide.csv").write_text("a,b,t,u\n1,2,3,4\n1,2,,4\n")
    Path("softmax.csv").write_text("a,b,t,u,v\n1,2,1,0,0\n1,2,1,1,0\n")
    before = snapshot(workspace)
    out = () if arguments[0] == "verify" else ("--out", "out")
    assert_refused(call(*arguments, *out), fragment)
    assert snapshot(workspace) == before


NETWORK = "[network]\nsizes = [2, 3, 1]\n"
TOML: dict[str, tuple[str | bytes | None, str]] = {
    "missing": (None, "cannot read bad.toml"),
    "binary": (b"\xff\xfe\x00", "cannot read bad.toml"),
    "empty": ("", "--sizes 3,8,8,1"),
    "syntax": ("[network]\nsizes = = 3\n", "cannot read bad.toml; got Invalid value (at line 2"),
    "a section twice": (NETWORK + NETWORK, "cannot read bad.toml"),
    "unknown section": ("[nets]\nsizes = [2, 1]\n", "unknown section in bad.toml; got [nets]; allowed: [network]"),
    "no section": ("sizes = [2, 1]\n", "unknown section"),
    "unknown key": (
        "[network]\nsize = [2, 1]\n",
        "unknown setting in [network] of bad.toml; got size; allowed: sizes, activation",
    ),
    "a key of another section": ("[network]\nsizes = [2, 1]\nlr = 0.1\n", "unknown setting in [network]"),
    "a key of two lines": ('[network]\n"a\\nb" = 1\n', "unknown setting in [network]"),
    "sizes abc": ('[network]\nsizes = "abc"\n', "sizes must be integers; got 'abc'"),
    "sizes 3": ("[network]\nsizes = 3\n", "sizes"),
    "sizes floats": ("[network]\nsizes = [2.0, 1]\n", "two or more positive integers"),
    "activation 3": (NETWORK + "activation = 3\n", "activation"),
    "activation a list": (NETWORK + 'activation = ["tanh"]\n', "activation"),
    "output 3": (NETWORK + "output = 3\n", "unknown output"),
    "bias no": (NETWORK + 'bias = "no"\n', "bias"),
    "loss 3": (NETWORK + "[algorithm]\nloss = 3\n", "loss"),
    "lr fast": (NETWORK + '[algorithm]\nlr = "fast"\n', "lr"),
    "lr a date": (NETWORK + "[algorithm]\nlr = 2020-01-01\n", "lr"),
    "lr nan": (NETWORK + "[algorithm]\nlr = nan\n", "lr must be a finite number"),
    "lr of 500 digits": (NETWORK + f"[algorithm]\nlr = {'9' * 500}\n", "lr"),
    "lr true": (NETWORK + "[algorithm]\nlr = true\n", "lr"),
    "steps 2.5": (NETWORK + "[algorithm]\nsteps = 2.5\n", "steps must be a positive integer; got 2.5"),
    "steps text": (NETWORK + '[algorithm]\nsteps = "3"\n', "steps must be a positive integer"),
    "steps true": (NETWORK + "[algorithm]\nsteps = true\n", "steps must be a positive integer"),
    "box text": (NETWORK + '[algorithm]\nbox = "big"\n', "box must be a number or 'none'"),
    "box a list": (NETWORK + "[algorithm]\nbox = [4.0]\n", "box"),
    "momentum text": (NETWORK + '[algorithm]\nmomentum = "x"\n', "momentum"),
    "epsilon text": (NETWORK + '[compile]\nepsilon = "small"\n', "epsilon"),
    "epsilon text, one layer": ('[network]\nsizes = [2, 1]\n[compile]\nepsilon = "small"\n', "epsilon"),
    "n_examples text": (NETWORK + '[compile]\nn_examples = "4"\n', "n_examples must be a positive integer"),
    "x_bound text": (NETWORK + '[compile]\nx_bound = "4"\n', "x_bound"),
    "target 3": (NETWORK + "[compile]\ntarget = 3\n", "unknown target; got 3"),
    "variant a list": (NETWORK + '[compile]\nvariant = ["literal"]\n', "unknown variant of target 'relu'"),
    "kind 3": (NETWORK + "[algorithm]\nkind = 3\n", "unknown algorithm; got 3; allowed: gradient-descent, functional"),
    "kind a list": ('[algorithm]\nkind = ["rls"]\n', "unknown algorithm; got ['rls']"),
    "kind in another section": ('[compile]\nkind = "rls"\n', "unknown setting in [compile] of bad.toml; got kind"),
    "algorithm not a section": ('algorithm = "rls"\n', "unknown section in bad.toml; got [algorithm]"),
    "a network for rls": (
        '[algorithm]\nkind = "rls"\n' + NETWORK,
        "unknown section in bad.toml; got [network]; allowed: [algorithm] and [compile], each with the settings of "
        "algorithm rls below it",
    ),
    "lr for rls": (
        '[algorithm]\nlr = 0.1\nkind = "rls"\n',
        "unknown setting in [algorithm] of bad.toml; got lr; allowed: kind, d, ridge, noise, form (algorithm rls)",
    ),
    "d without a kind": ("[algorithm]\nd = 2\n", "got d; allowed: kind, optimiser, loss, lr, steps, box"),
    "d 2.5": ('[algorithm]\nkind = "sgd"\nd = 2.5\n', "d must be a positive integer; got 2.5"),
    "kernel 3": ('[algorithm]\nkind = "functional"\nkernel = 3\n', "unknown kernel; got 3"),
    "bandwidth text": ('[algorithm]\nkind = "functional"\nbandwidth = "1"\n', "bandwidth must be a positive number"),
    "form a list": ('[algorithm]\nkind = "rls"\nform = ["rls"]\n', "unknown form; got ['rls']"),
}


@pytest.mark.parametrize(("content", "fragment"), [pytest.param(*case, id=name) for name, case in TOML.items()])
@pytest.mark.parametrize(
    "command", [("compile", "--out", "model"), ("cost", "--out", "out/cost.json")], ids=["compile", "cost"]
)
def test_toml(workspace: Path, command: tuple[str, ...], content: str | bytes | None, fragment: str) -> None:
    if content is not None:
        Path("bad.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(workspace)
    assert_refused(call(*command, "--config", "bad.toml"), fragment)
    assert snapshot(workspace) == before


def test_results_that_are_not_finite_are_a_failure(workspace: Path) -> None:
    """A forward pass that overflows has no predictions: exit code 1, one line, and no NaN in what is written."""
    Path("huge.csv").write_text("a,b,t\n1e308,1e308,1e308\n1,1,\n")
    before = snapshot(workspace)
    assert_refused(call("run", "model", "--data", "huge.csv", "--json", "--out", "out"), "", code=1)
    assert snapshot(workspace) == before


# --------------------------------------------------------------------------------------------------- broken models

Change = Callable[[Path], object]


def edited(*path: str | int, to: object = ..., drop: bool = False) -> Change:
    """Change, or drop, one entry of config.json."""

    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        entry: Any = config
        for key in path[:-1]:
            entry = entry[key]
        assert not isinstance(entry, Mapping) or drop is False or path[-1] in entry
        if drop:
            del entry[path[-1]]
        else:
            entry[path[-1]] = to
        (folder / "config.json").write_text(json.dumps(config))
        seal(folder)

    return change


def tensor(name: str, change: Callable[[Tensor], Tensor] | None) -> Change:
    """Change, or drop, one tensor of weights.safetensors."""

    def apply(folder: Path) -> None:
        weights = {key: value.clone() for key, value in load_file(folder / "weights.safetensors").items()}
        old = weights.pop(name)
        if change is not None:
            weights[name] = change(old).contiguous()
        save_file(weights, folder / "weights.safetensors")
        seal(folder)

    return apply


def truncated(name: str) -> Change:
    def apply(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return apply


BROKEN: dict[str, tuple[Change, str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "not a saved model"),
    "no weights": (lambda folder: (folder / "weights.safetensors").unlink(), "not a saved model"),
    "config truncated": (truncated("config.json"), "cannot be read"),
    "weights truncated": (truncated("weights.safetensors"), "cannot be read"),
    "config empty": (lambda folder: (folder / "config.json").write_text(""), "cannot be read"),
    "weights empty": (lambda folder: (folder / "weights.safetensors").write_bytes(b""), "cannot be read"),
    "config binary": (lambda folder: (folder / "config.json").write_bytes(b"\xff\x00"), "cannot be read"),
    "config a list": (lambda folder: (folder / "config.json").write_text("[]"), "unknown format"),
    "config {}": (lambda folder: (folder / "config.json").write_text("{}"), "unknown format"),
    "another format": (edited("format", to="innergrad-0"), "unknown format; got innergrad-0; allowed: innergrad-1"),
    "no algorithm": (edited("algorithm", drop=True), ""),
    "algorithm 3": (edited("algorithm", to=3), ""),
    "unknown kind": (
        edited("algorithm", "kind", to="newton"),
        "the model's algorithm is not known here; got 'newton'; allowed: gradient_descent",
    ),
    "kind a list": (edited("algorithm", "kind", to=["gradient_descent"]), "not known here"),
    "no kind": (edited("algorithm", "kind", drop=True), "not known here"),
    "no sizes": (edited("algorithm", "sizes", drop=True), "sizes"),
    "other sizes": (edited("algorithm", "sizes", to=[2, 4, 1]), "layout"),
    "sizes 3": (edited("algorithm", "sizes", to=3), "sizes"),
    "unknown activation": (edited("algorithm", "activation", to="swish"), "unknown activation; got 'swish'"),
    "activation 3": (edited("algorithm", "activation", to=3), ""),
    "another activation": (edited("algorithm", "activation", to="sigmoid"), ""),
    "unknown loss": (edited("algorithm", "loss", to="mse"), "unknown loss"),
    "loss a list": (edited("algorithm", "loss", to=["mse"]), ""),
    "lr text": (edited("algorithm", "lr", to="fast"), "lr"),
    "another number of steps": (edited("algorithm", "steps", to=7), ""),
    "another box": (edited("algorithm", "box", to=9.0), ""),
    "an unknown setting": (edited("algorithm", "nesterov", to=True), "nesterov"),
    "no options": (edited("options", drop=True), "not a complete model"),
    "an unknown option": (edited("options", "depth", to=3), "not a complete model"),
    "epsilon text": (edited("options", "epsilon", to="small"), "epsilon"),
    "epsilon -1": (edited("options", "epsilon", to=-1), "epsilon"),
    "n_examples 0": (edited("options", "n_examples", to=0), "n_examples"),
    "n_examples text": (edited("options", "n_examples", to="4"), "n_examples"),
    "x_bound text": (edited("options", "x_bound", to="4"), "x_bound"),
    "another target": (edited("options", "target", to="bert"), "unknown target"),
    "no layout": (edited("layout", drop=True), "layout"),
    "layout: another offset": (edited("layout", 1, "offset", to=0), "layout saved in"),
    "layout: another name": (edited("layout", 0, "name", to="z"), "layout saved in"),
    "layout: another order": (
        lambda folder: edited("layout", to=json.loads((folder / "config.json").read_text())["layout"][::-1])(folder),
        "layout saved in",
    ),
    "no body": (edited("body", drop=True), "not a complete model"),
    "an empty body": (edited("body", to=[]), ""),
    "another count": (edited("body", 0, "count", to=7), ""),
    "count text": (edited("body", 0, "count", to="1"), ""),
    "a layer less": (edited("body", 0, "layers", 7, drop=True), ""),
    "an unknown kind of layer": (edited("body", 0, "layers", 0, "kind", to="softmax"), "not a complete model"),
    "another kind of layer": (edited("body", 0, "layers", 0, "kind", to="product"), ""),
    "no shapes": (edited("body", 0, "layers", 0, "shapes", drop=True), "not a complete model"),
    "a shape too small": (edited("body", 0, "layers", 0, "shapes", "W_Q", to=[1, 1, 1]), "outside its shape"),
    "a shape too large": (edited("body", 0, "layers", 0, "shapes", "W_Q", to=[100, 100, 100]), ""),
    "a shape that fits no memory": (edited("body", 0, "layers", 0, "shapes", "W_Q", to=[10**6] * 3), ""),
    "no read-out": (edited("readout", drop=True), "not a complete model"),
    "an empty read-out": (edited("readout", to=[]), ""),
    "no approximants": (edited("approximants", drop=True), "not a complete model"),
    "an approximant less": (edited("approximants", "tanh", drop=True), ""),
    "approximants a list": (edited("approximants", to=[]), ""),
    "an anchor of text": (edited("approximants", "tanh", "anchor", to="x"), ""),
    "a domain of text": (edited("approximants", "tanh", "domain", to=["a", "b"]), ""),
    "a ramp of one number": (edited("approximants", "tanh", "ramps", to=[[1.0]]), ""),
    "an index less": (tensor("body.0.0.W_Q.index", None), "not a complete model"),
    "an index out of range": (tensor("body.0.0.W_Q.index", lambda t: t + 1000), "outside its shape"),
    "a negative index": (tensor("readout.2.W_V.index", lambda t: t - 1000), "outside its shape"),
    "indices of another length": (tensor("body.0.0.W_Q.index", lambda t: t[:, 1:]), "outside its shape"),
    "a weight NaN": (tensor("body.0.3.W_1.value", lambda t: with_entry(t, NAN)), "not finite"),
    "a weight infinite": (tensor("readout.0.W_K.value", lambda t: with_entry(t, INF)), "not finite"),
    "weights with two axes": (tensor("body.0.0.W_Q.value", lambda t: t[:, None]), ""),
    "knots NaN": (tensor("approximant.tanh.knots", lambda t: with_entry(t, NAN)), ""),
    "knots in another order": (tensor("approximant.tanh.knots", lambda t: t.flip(0)), ""),
    "a slope less": (tensor("approximant.tanh.slopes", lambda t: t[1:]), ""),
}


@pytest.mark.parametrize(("change", "fragment"), [pytest.param(*case, id=name) for name, case in BROKEN.items()])
def test_broken_models(workspace: Path, change: Change, fragment: str) -> None:
    """Refused when they are loaded, not somewhere in a forward pass."""
    change(workspace / "model")
    with pytest.raises(ig.InputError) as caught:
        ig.load("model")
    assert fragment in str(caught.value)
    for command in (("verify", "model"), ("run", "model", "--data", "data.csv", "--out", "out"), ("cost", "model")):
        before = snapshot(workspace)
        assert_refused(call(*command), fragment)
        assert snapshot(workspace) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edited("options", "epsilon", to=1e-6), id="a smaller epsilon"),
        pytest.param(edited("approximants", "tanh", "error", to=1.0), id="a larger error"),
        pytest.param(edited("approximants", "tanh", "error", to=None), id="an infinite error"),
        pytest.param(edited("approximants", "tanh", "value", to=0.5), id="another approximant"),
        pytest.param(edited("algorithm", "lr", to=0.3), id="another learning rate"),
        pytest.param(lambda folder: change_weight(folder, "body.0.0.W_Q", 1e-3), id="another weight"),
    ],
)
def test_models_that_claim_what_they_do_not_do(workspace: Path, change: Change) -> None:
    """Well-formed, but not what config.json says: verify must not pass them."""
    change(workspace / "model")
    assert call("verify", "model").code in (1, 2)


class Payload:
    """Unpickling it leaves a trace."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return subprocess.run, (["touch", "unpickled"],)


@pytest.mark.parametrize("name", ["weights.safetensors", "config.json"])
def test_nothing_is_unpickled(workspace: Path, name: str) -> None:
    for protocol in (0, pickle.HIGHEST_PROTOCOL):
        (workspace / "model" / name).write_bytes(pickle.dumps(Payload(), protocol=protocol))
        with pytest.raises(ig.InputError, match="cannot be read"):
            ig.load("model")
        assert_refused(call("verify", "model"), "cannot be read")
    torch.save({"payload": Payload()}, workspace / "model" / name)
    assert_refused(call("verify", "model"), "cannot be read")
    assert not Path("unpickled").exists()


# --------------------------------------------------------------------------------------------------- nothing is lost


@pytest.mark.parametrize("when", ["weights", "config"])
def test_an_older_model_survives_a_failed_save(workspace: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The disk is full half-way through a file: exit code 1 or 2, one line, and the old model as it was."""
    before = {name: (workspace / "model" / name).read_bytes() for name in ("config.json", "weights.safetensors")}

    def disk_full(*arguments: object, **_: object) -> None:
        path = next(argument for argument in arguments if isinstance(argument, Path | str) and len(str(argument)) < 999)
        Path(path).write_bytes(b"half a file")
        raise OSError(28, "No space left on device")

    if when == "weights":
        monkeypatch.setattr(storage, "save_file", disk_full)
    else:
        monkeypatch.setattr(Path, "write_text", disk_full)
    with pytest.raises((OSError, ig.InputError)):
        compiled("logistic").save("model")
    assert {name: (workspace / "model" / name).read_bytes() for name in before} == before
    result = call("compile", *SMALL, "--out", "model")
    assert {name: (workspace / "model" / name).read_bytes() for name in before} == before
    assert result.code in (1, 2)
    assert_refused(result, "No space left", code=result.code)


def test_saving_into_a_file(workspace: Path) -> None:
    before = snapshot(workspace)
    with pytest.raises(ig.InputError, match="file"):
        compiled().save("file")
    assert snapshot(workspace) == before


def test_a_loaded_model_does_not_depend_on_its_folder(workspace: Path) -> None:
    """Another program overwrites the file in place; the model in memory stays as it is, and can be saved again."""
    tf = ig.load("model")
    before = compiled().run(full(3, 2), full(3, 1), executor="dense").weights
    content = Path("model/weights.safetensors").read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    with Path("model/weights.safetensors").open("r+b") as file:
        file.write(content[:header] + bytes(len(content) - header))
    assert torch.equal(tf.run(full(3, 2), full(3, 1), executor="dense").weights, before)
    for _ in range(8):  # whatever order a header would have
        tf.save("model")
        assert Path("model/weights.safetensors").read_bytes() == content


def test_a_real_process_prints_no_traceback(workspace: Path) -> None:
    """As a user sees it; the other tests stay in this process."""
    Path("bad.csv").write_text("a,b,t\n1,two,3\n")
    done = shell("run", "model", "--data", "bad.csv", "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "innergrad: line 2 of bad.csv, column 'b' (number 2), is not a number; got 'two'; text is no input: leave the "
        "column out, or give a class a column of 0 and 1\n"
    )
