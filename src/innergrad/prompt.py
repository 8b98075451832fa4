"""Prompts: examples, queries and initial weights as the initial state of a residual stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, seed_number
from innergrad.program import STANDARD_LANES, Program
from innergrad.stream import State

ArrayLike = Tensor | np.ndarray | list[object]


@dataclass(frozen=True)
class Options:
    """How an algorithm was compiled, and so what prompts it takes; saved with the model."""

    target: str
    variant: str
    epsilon: float
    n_examples: int
    x_bound: float | None = None
    y_bound: float | None = None
    z_bound: float | None = None


@dataclass(frozen=True)
class Prompt:
    """A batch of prompts, checked; omega sums to one. ``batched``: the caller's arrays had a batch axis."""

    X: Float[Tensor, "batch n d_x"]
    y: Float[Tensor, "batch n d_y"]
    X_query: Float[Tensor, "batch n_query d_x"]
    w0: Float[Tensor, "batch n_weights"]
    omega: Float[Tensor, "batch n"]
    batched: bool

    def state(self, program: Program) -> State:
        """Demos, then queries, as tokens: (2.1) of the paper with the lanes query and omega."""
        (batch, n, _), n_query = self.X.shape, self.X_query.shape[1]
        demos = self.X.new_ones(batch, n)
        blank = self.X.new_zeros(batch, n_query)
        state: State = {
            "x": torch.cat([self.X, self.X_query], dim=1),
            "y": torch.cat([self.y, self.y.new_zeros(batch, n_query, self.y.shape[2])], dim=1),
            "one": self.X.new_ones(batch, 1),
            "t": torch.cat([demos, blank], dim=1),
            "query": torch.cat([torch.zeros_like(demos), torch.ones_like(blank)], dim=1),
            "omega": torch.cat([self.omega * (n + n_query), blank], dim=1),
        }
        start = 0
        for lane in program.weights:
            state[lane.name] = self.w0[:, None, start : start + lane.size].reshape(batch, 1, *lane.shape)
            start += lane.size
        for lane in program.stream.lanes:
            if lane.name not in state:
                state[lane.name] = self.X.new_zeros(batch, 1 if lane.shared else n + n_query, *lane.shape)
        return state


def flat_weights(program: Program, state: Mapping[str, Tensor]) -> Float[Tensor, "batch n_weights"]:
    """The flat weight vector held by the first token."""
    return torch.cat(
        [state[lane.name][:, 0].flatten(1) if lane.shape else state[lane.name][:, :1] for lane in program.weights],
        dim=-1,
    )


def make_prompt(
    algorithm: Algorithm,
    program: Program,
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike | None,
    w0: ArrayLike | None,
    sample_weight: ArrayLike | None,
    *,
    seed: int,
    dtype: torch.dtype,
    limits: Options | None = None,
) -> Prompt:
    """Check and batch the caller's arrays. X is (n, d_x) or (batch, n, d_x); everything else may or may not have the
    batch axis.
    """
    stream, known = program.stream, STANDARD_LANES
    unknown = [lane.name for lane in stream.lanes if lane.role == "input" and lane.name not in known]
    if unknown or len(stream["x"].shape) != 1 or len(stream["y"].shape) != 1:
        raise InputError(
            "a prompt fills the lanes x (d_x,), y (d_y,), one, t, query, omega",
            got=unknown or "x or y not a vector",
            hint="make the stream with example_stream",
        )
    d_x, d_y = stream["x"].size, stream["y"].size
    inputs = _array("X", X, dtype)
    if inputs.ndim not in (2, 3) or inputs.shape[-1] != d_x or (inputs.ndim == 3 and len(inputs) == 0):
        raise InputError("X has the wrong shape", got=tuple(inputs.shape), allowed=f"(n, {d_x}) or (batch, n, {d_x})")
    batched, batch, n = inputs.ndim == 3, (inputs.shape[0] if inputs.ndim == 3 else 1), inputs.shape[-2]
    if n < 1 or (limits is not None and n > limits.n_examples):
        allowed = "at least 1" if limits is None else f"1 to n_examples = {limits.n_examples}"
        hint = "compile with a larger n_examples" if n else ""
        raise InputError("the number of examples is out of range", got=n, allowed=allowed, hint=hint)
    targets = _array("y", y, dtype)
    if d_y == 1 and targets.shape[-1:] != (1,) and targets.ndim == inputs.ndim - 1:
        targets = targets.unsqueeze(-1)
    queries = inputs.new_zeros(batch, 0, d_x) if X_query is None else _array("X_query", X_query, dtype)
    weights = _initial_weights(algorithm, w0, program.n_weights, seed, dtype)
    omega = torch.ones(n, dtype=dtype) if sample_weight is None else _array("sample_weight", sample_weight, dtype)
    prompt = Prompt(
        _batch("X", inputs, (batch, n, d_x)),
        _batch("y", targets, (batch, n, d_y)),
        _batch("X_query", queries, (batch, queries.shape[-2] if queries.ndim > 1 else -1, d_x)),
        _batch("w0", weights, (batch, program.n_weights)),
        _normalised(_batch("sample_weight", omega, (batch, n))),
        batched,
    )
    if limits is not None:
        _check_bound("X", torch.cat([prompt.X, prompt.X_query], dim=1), limits.x_bound)
        _check_bound("y", prompt.y, limits.y_bound)
    _check_weights(program, prompt.w0)
    algorithm.check_prompt(prompt.X, prompt.y, prompt.w0)
    return prompt


def _check_bound(name: str, tensor: Tensor, bound: float | None) -> None:
    largest = float(tensor.abs().max())
    if bound is not None and largest > bound:
        what = f"{name} leaves the domain the transformer was compiled for"
        raise InputError(what, got=f"max |{name}| = {largest:g}", allowed=f"at most {bound:g}")


def _check_weights(program: Program, w0: Tensor) -> None:
    start = 0
    for lane in program.weights:
        largest = float(w0[:, start : start + lane.size].abs().max())
        if largest > lane.bound:
            raise InputError(
                "the box must contain w0",
                got=f"max |{lane.name}| = {largest:.6g} with a box of {lane.bound:g}",
                hint="use a larger box or smaller initial weights",
            )
        start += lane.size


def _initial_weights(
    algorithm: Algorithm, w0: ArrayLike | None, n_weights: int, seed: int, dtype: torch.dtype
) -> Tensor:
    if w0 is not None:
        return _array("w0", w0, dtype)
    start = algorithm.initial_weights(seed_number(seed))
    return torch.zeros(n_weights, dtype=dtype) if start is None else start.to(dtype)


def _array(name: str, values: ArrayLike, dtype: torch.dtype) -> Tensor:
    try:
        if isinstance(values, np.ndarray):  # torch takes neither negative strides nor foreign byte orders
            values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} is not an array of numbers", got=type(values).__name__) from error
    if tensor.is_complex():
        raise InputError(f"{name} must be real", got="complex numbers")
    tensor = tensor.to(dtype)
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} contains NaN or infinity", hint="clean the data first")
    return tensor


def _batch(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(tensor.shape) == shape:
        return tensor
    if tuple(tensor.shape) == shape[1:]:
        return tensor.expand(shape)
    raise InputError(
        f"{name} has the wrong shape",
        got=tuple(tensor.shape),
        allowed=f"{shape[1:]} or {shape}".replace("-1", "n_query"),
    )


def _normalised(omega: Tensor) -> Tensor:
    total = omega.sum(-1, keepdim=True)
    if bool((omega < 0).any()) or bool((total <= 0).any()):
        raise InputError("sample_weight must be non-negative, with a positive sum in every prompt")
    return omega / total
