"""Prompts: examples, queries and initial weights as the initial state of a residual stream. Predictions are read off
the final state, by one function for every target, module and export.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import LOG_UNIT, Algorithm
from innergrad.algorithms.descent.step import batch_weights
from innergrad.errors import InputError, seed_number
from innergrad.ir.program import STANDARD_LANES, Options, Program
from innergrad.ir.stream import POSITION, State, low
from innergrad.model.guard import Guard

ArrayLike = Tensor | np.ndarray | list[object]
# position, its square, its binary digits as signs, "not the sink"; logarithms of the examples' weights and of the
# number of tokens, the sink aside; weights of the examples of batches, and their logarithms; "no marker"
TARGET_LANES = ("pos", "pos2", "bits", "ns", "log_omega", "log_tokens", "batch", "log_batch", "unmarked")
ZERO = "zero"  # a lane that is always zero: after a LayerNorm it shows the amount that was subtracted
NO_WEIGHT = -64.0  # the logarithm of no weight, or of one as small: e^-64 is nothing beside the others
#: lanes of logarithms, and the number in them that stands for no weight; in float32, too
BOTTOMS = dict.fromkeys(("log_omega", "log_batch"), NO_WEIGHT / LOG_UNIT * (1 - 1e-6))


@dataclass(frozen=True)
class Prompt:
    """A batch of prompts, checked; omega sums to one.

    batched: the caller's arrays had a batch axis; flat: the caller's y had no axis of outputs.
    """

    X: Float[Tensor, "batch n d_x"]
    y: Float[Tensor, "batch n d_y"]
    X_query: Float[Tensor, "batch n_query d_x"]
    w0: Float[Tensor, "batch n_weights"]
    omega: Float[Tensor, "batch n"]
    batched: bool
    flat: bool = False

    def __getitem__(self, some: slice) -> Prompt:
        """Some prompts of the batch."""
        X, y, X_query, w0, omega = (part[some] for part in (self.X, self.y, self.X_query, self.w0, self.omega))
        return Prompt(X, y, X_query, w0, omega, self.batched, self.flat)

    @property
    def gradients(self) -> tuple[str, ...]:
        """The caller's arrays through which gradients flow, by name."""
        parts = {"X": self.X, "y": self.y, "X_query": self.X_query, "w0": self.w0, "sample_weight": self.omega}
        return tuple(name for name, part in parts.items() if part.requires_grad and torch.is_grad_enabled())

    def state(self, program: Program) -> State:
        """The residual stream before the first layer: the tokens' lanes by name.

        stacked: demos (x_i; y_i), then queries (x; 0), as in (2.1) of the paper; interleaved: x_1, y_1, x_2, y_2, ...,
        then queries, t marking the labels. Lanes the prompt does not fill hold their ``fill``. A sink has empty lanes.
        So have the blank tokens before the queries that fill a prompt up to a fixed length. Only their x is the first
        demo's, so that no function is evaluated far from the data (at 0, a ReLU's kink). Tokens that carry weights, or
        marks alone, stand before the demos: blank ones, with their weights and marks. Low lanes hold the values of
        their lanes: such values are open, in the words of :mod:`innergrad.model.double`.
        """
        (batch, n, _), n_query, sink = self.X.shape, self.X_query.shape[1], int(program.sink)
        zeros, nothing = self.X.new_zeros(batch, n), self.X.new_zeros(batch, n_query)
        x = _tokens(program, self.X, torch.zeros_like(self.X), self.X_query, self.X[:, :1])
        tokens = x.shape[1]
        omega = _tokens(program, zeros, self.omega, nothing)
        position = torch.arange(tokens, dtype=self.X.dtype, device=self.X.device).expand(batch, tokens)
        known: dict[str, Callable[[], Tensor]] = {
            "x": lambda: x,
            "y": lambda: _tokens(
                program, torch.zeros_like(self.y), self.y, self.y.new_zeros(batch, n_query, self.y.shape[2])
            ),
            "t": lambda: _tokens(program, zeros, torch.ones_like(zeros), nothing),
            "query": lambda: _tokens(program, zeros, zeros, torch.ones_like(nothing)),
            "omega": lambda: omega * tokens,
            "log_omega": lambda: omega.log().clamp(min=NO_WEIGHT) / LOG_UNIT,
            "log_tokens": lambda: self.X.new_full((batch, 1), math.log(tokens - sink)),
            "one": lambda: self.X.new_ones(batch, 1),
            "ns": lambda: (position > 0).to(self.X.dtype),
            "pos": lambda: position * POSITION,
            "pos2": lambda: (position * POSITION) ** 2,
            "bits": lambda: signs(position, program.stream["bits"].size),
            "unmarked": lambda: self._unmarked(program, tokens),
        }
        has = program.stream.by_name
        lanes: State = {name: make() for name, make in known.items() if name in has or low(name) in has}
        lanes |= self._batches(program, tokens) if program.batches else {}
        lanes |= placed(program, self.w0, tokens)
        for mark in program.marks:
            lane = program.stream[mark.lane]
            held = lanes.setdefault(mark.lane, self.X.new_zeros(batch, tokens, *lane.shape))
            held[:, sink + mark.token].view(batch, lane.size)[:, mark.entry] = 1.0
        lanes |= {low(name): held for name, held in lanes.items()}
        return {
            lane.name: lanes[lane.name]
            if lane.name in lanes
            else self.X.new_full((), lane.fill).expand(batch, 1 if lane.shared else tokens, *lane.shape)
            for lane in program.stream.lanes
        }

    def _unmarked(self, program: Program, tokens: int) -> Tensor:
        """One, but for the tokens that carry weights, or marks alone."""
        lane, sink = self.X.new_ones(len(self.X), tokens), int(program.sink)
        lane[:, sink : sink + program.carriers] = 0.0
        return lane

    def _batches(self, program: Program, tokens: int) -> State:
        """The weights of the examples of every batch, along a new last axis, and their logarithms."""
        each = torch.stack([batch_weights(self.omega, batch) for batch in program.batches], dim=-1)
        missing = (each.sum(1) == 0).any(0).nonzero().flatten().tolist()
        if missing and "log_batch" in program.stream.by_name:
            raise InputError(
                "a softmax averages over some example of every batch",
                got=f"batch {list(program.batches[missing[0]])}, of which a prompt has none",
                hint="give longer prompts, or use target='relu', where the gradient of such a batch is zero",
            )
        queries = self.X.new_zeros(len(self.X), self.X_query.shape[1], len(program.batches))
        lane = _tokens(program, torch.zeros_like(each), each, queries)
        return {"batch": lane * tokens, "log_batch": lane.log().clamp(min=NO_WEIGHT) / LOG_UNIT}

    def weights(self, program: Program, state: Mapping[str, Tensor]) -> Float[Tensor, "batch n_weights"]:
        """The flat weight vector: where the program places it; else held by every token, or, if it is not shared, by
        the last label's.
        """
        token = int(program.sink) + 2 * self.X.shape[1] - 1 if program.tokens == "interleaved" else 0
        return flat_weights(program, state, token)

    def predictions(self, program: Program, state: Mapping[str, Tensor]) -> Float[Tensor, "batch n_query d_y"]:
        lane = state[program.prediction]
        here = {"first": 0, "size": lane.shape[-1], "sign": program.sign}
        found: Tensor = read_predictions(lane, {"zero": None, "prediction": here}, self.X_query.shape[1])
        return found

    def like_y(self, predictions: Tensor) -> Tensor:
        """Without the axis of outputs if y had none, so that ``predictions - y`` has the right shape."""
        return predictions[..., 0] if self.flat else predictions

    def online(self, program: Program, state: Mapping[str, Tensor]) -> Float[Tensor, "batch n d_y"]:
        """The predictions of an interleaved, causal program at every x_t, from the examples before it."""
        first = int(program.sink)
        return program.sign * state[program.prediction][:, first : first + 2 * self.X.shape[1] : 2]


def signs(position: Tensor, digits: int) -> Tensor:
    """The binary digits of whole numbers as +1 and -1, along a new last axis: their inner product is ``digits`` for
    equal numbers, and at least two less for different ones.
    """
    powers = 2.0 ** torch.arange(digits, dtype=position.dtype, device=position.device)
    return 2.0 * torch.remainder(torch.floor(position.unsqueeze(-1) / powers), 2.0) - 1.0


def _tokens(program: Program, inputs: Tensor, labels: Tensor, queries: Tensor, blank: Tensor | None = None) -> Tensor:
    """One lane of all tokens, from its values at the inputs, the labels, the queries and the blank tokens."""
    if program.tokens == "interleaved":
        examples = torch.stack([inputs, labels], dim=2).flatten(1, 2)
    else:
        examples = inputs + labels
    sink, carriers, shape = int(program.sink), program.carriers, examples.shape[2:]
    blanks = max(0, (program.length or 0) - sink - carriers - examples.shape[1] - queries.shape[1])
    nothing = examples.new_zeros(examples.shape[0], 1, *shape)
    blank = nothing if blank is None else blank
    first, filled = blank.expand(-1, carriers, *shape), blank.expand(-1, blanks, *shape)
    return torch.cat([nothing.expand(-1, sink, *shape), first, examples, filled, queries], dim=1)


def placed(program: Program, w0: Tensor, tokens: int) -> State:
    """The weight lanes that hold a flat vector."""
    lanes: State = {}
    start = 0
    for part in program.parts:
        lane, flat = program.stream[part.lane], w0[:, start : start + part.size]
        start += part.size
        if part.token is None:
            held = flat.reshape(len(w0), 1, *lane.shape)
            lanes[part.lane] = held if lane.shared else held.expand(-1, tokens, *lane.shape)
        else:
            held = lanes.setdefault(part.lane, w0.new_zeros(len(w0), tokens, *lane.shape))
            held[:, part.token].view(len(w0), lane.size)[:, : part.size] = flat
    return lanes


def flat_weights(program: Program, state: Mapping[str, Tensor], token: int = 0) -> Float[Tensor, "batch n_weights"]:
    """The flat weight vector: where the program places it, or held by a token (by every token, where it is shared)."""
    parts = []
    for part in program.parts:
        held = state[part.lane]
        place = part.token if part.token is not None else token if held.shape[1] > 1 else 0
        parts.append(held[:, place].flatten(1)[:, : part.size] if held.ndim > 2 else held[:, place, None])
    return torch.cat(parts, dim=-1) if parts else state["x"].new_zeros(state["x"].shape[0], 0)


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
    guard: Guard | None = None,
) -> Prompt:
    """Check and batch the caller's arrays. X is (n, d_x) or (batch, n, d_x); everything else may or may not have the
    batch axis. guard: takes values outside the declared domain, which are errors otherwise.
    """
    stream, known = program.stream, {*STANDARD_LANES, *TARGET_LANES, *(mark.lane for mark in program.marks)}
    unknown = [lane.name for lane in stream.lanes if lane.role == "input" and not (lane.name in known or lane.fill)]
    if unknown or len(stream["x"].shape) != 1 or len(stream["y"].shape) != 1:
        raise InputError(
            "a prompt fills the lanes x (d_x,), y (d_y,), one, t, query, omega",
            got=unknown or "x or y not a vector",
            hint="make the stream with example_stream",
        )
    d_x, d_y = stream["x"].size, stream["y"].size
    inputs = array("X", X, dtype)
    if inputs.ndim not in (2, 3) or inputs.shape[-1] != d_x or (inputs.ndim == 3 and len(inputs) == 0):
        raise InputError("X has the wrong shape", got=tuple(inputs.shape), allowed=f"(n, {d_x}) or (batch, n, {d_x})")
    batched, batch, n = inputs.ndim == 3, (inputs.shape[0] if inputs.ndim == 3 else 1), inputs.shape[-2]
    if n < 1 or (limits is not None and n > limits.n_examples):
        allowed = "at least 1" if limits is None else f"1 to n_examples = {limits.n_examples}"
        hint = "compile with a larger n_examples" if n else ""
        raise InputError("the number of examples is out of range", got=n, allowed=allowed, hint=hint)
    if limits is not None and n != limits.n_examples and getattr(algorithm, "fixed_length", False):
        raise InputError("the number of examples is fixed", got=n, allowed=f"{limits.n_examples}")
    device = inputs.device
    targets = array("y", y, dtype).to(device)
    flat = d_y == 1 and (
        targets.shape == inputs.shape[:-1] or (targets.shape[-1:] != (1,) and targets.ndim == inputs.ndim - 1)
    )
    targets = targets.unsqueeze(-1) if flat else targets
    queries = inputs.new_zeros(batch, 0, d_x) if X_query is None else array("X_query", X_query, dtype).to(device)
    weights = _initial_weights(algorithm, w0, program.n_weights, seed, dtype).to(device)
    ones = torch.ones(n, dtype=torch.float64)
    omega = (ones if sample_weight is None else array("sample_weight", sample_weight, torch.float64)).to(device)
    prompt = Prompt(
        _batch("X", inputs, (batch, n, d_x)),
        _batch("y", targets, (batch, n, d_y)),
        _batch("X_query", queries, (batch, queries.shape[-2] if queries.ndim > 1 else -1, d_x)),
        _batch("w0", weights, (batch, program.n_weights)),
        _normalised(_batch("sample_weight", omega, (batch, n))).to(dtype),
        batched,
        flat,
    )
    room = math.inf if program.length is None else program.length - program.carriers
    if n + prompt.X_query.shape[1] > room:
        raise InputError(
            "prompts of this transformer have a fixed number of tokens, examples and queries",
            got=f"{n} examples and {prompt.X_query.shape[1]} queries",
            allowed=f"{room} together",
            hint="give fewer queries at a time, or compile with a larger n_examples",
        )
    (guard or Guard(program, limits)).inputs(prompt.X, prompt.X_query, prompt.y, prompt.w0)
    if sample_weight is not None and not algorithm.weighted:
        raise InputError(f"{algorithm.kind} does not weight its examples", got="sample_weight")
    algorithm.check_prompt(prompt.X.detach(), prompt.y.detach(), prompt.w0.detach())
    if prompt.X_query.shape[1]:
        algorithm.check_queries(prompt.X_query.detach())
    return prompt


def _initial_weights(
    algorithm: Algorithm, w0: ArrayLike | None, n_weights: int, seed: int, dtype: torch.dtype
) -> Tensor:
    if w0 is not None:
        return array("w0", w0, dtype)
    start = algorithm.initial_weights(seed_number(seed))
    return torch.zeros(n_weights, dtype=dtype) if start is None else start.to(dtype)


def array(name: str, values: ArrayLike, dtype: torch.dtype) -> Tensor:
    """A caller's numbers as a tensor; all of them, and all finite."""
    try:
        tensor = _tensor(values)
    except InputError:
        raise
    except Exception as error:  # of a class that says it is an array
        raise InputError(f"{name} is not an array of numbers", got=type(values).__name__) from error
    if tensor.is_complex():
        raise InputError(f"{name} must be real", got="complex numbers")
    converted = tensor.to(dtype)
    if not bool(torch.isfinite(converted).all()):
        if bool(torch.isfinite(tensor).all()):
            got, allowed = f"up to {float(tensor.abs().max()):.4g}", f"up to {torch.finfo(dtype).max:.4g} in {dtype}"
            raise InputError(f"{name} is too large", got=got, allowed=allowed, hint="scale it, or use torch.float64")
        odd = (~torch.isfinite(tensor)).nonzero()
        got = f"{len(odd)} of {tensor.numel()} entries, the first at {odd[0].tolist()}"
        raise InputError(
            f"{name} contains NaN or infinity", got=got, allowed="finite numbers", hint="clean the data first"
        )
    return converted


def _tensor(values: ArrayLike) -> Tensor:
    if np.ma.is_masked(values):
        raise InputError("an array has entries that are masked", allowed="numbers alone", hint="leave those rows out")
    if isinstance(values, np.ndarray):  # torch takes neither negative strides nor foreign byte orders
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    tensor = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))  # lists as float64
    if tensor.layout is not torch.strided or tensor.is_meta:
        got = "a tensor without numbers" if tensor.is_meta else "a sparse tensor"
        raise InputError("arrays are dense", got=got, hint="give x.to_dense()")
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
    """Weights that sum to one. They stay in float64 until then, since only their ratios matter."""
    largest = omega.amax(-1, keepdim=True)
    if bool((omega < 0).any()) or not bool((largest > 0).all()):
        got = f"{float(omega.min()):.4g} to {float(omega.max()):.4g}"
        raise InputError("sample_weight must be non-negative, with a positive sum in every prompt", got=got)
    total = omega.sum(-1, keepdim=True)
    if not bool((torch.isfinite(total) & (total > torch.finfo(omega.dtype).tiny)).all()):
        exponent = torch.frexp(largest.detach()).exponent  # by a power of two: nothing is rounded
        omega = torch.ldexp(torch.ldexp(omega, -exponent // 2), -exponent - (-exponent // 2))
        total = omega.sum(-1, keepdim=True)
    return omega / total


# --------------------------------------------------------------------------------------------------------- predictions


def reading(program: Program) -> dict[str, Any]:
    """Where predictions are, as JSON values; exports carry it."""
    stream, lane = program.stream, program.prediction
    lower = {"low": stream.offsets[low(lane)]} if low(lane) in stream.by_name else {}
    return {
        "zero": stream.entry(ZERO) if ZERO in stream.by_name else None,
        "prediction": {
            "lane": lane,
            "first": stream.offsets[lane],
            "size": stream[lane].size,
            "sign": program.sign,
            "tokens": "the queries, last",
            **lower,
        },
    }


def read_predictions(hidden: Any, read: Any, n_query: int) -> Any:
    """Predictions (..., n_query, d_y) from hidden states (..., tokens, width). It takes tensors of torch or of numpy.

    The queries are the last tokens. Two corrections are made where a model needs them. The entry ``zero`` holds a
    number that a LayerNorm has subtracted from every entry; it is added again. Entries from ``low`` on hold the digits
    that a norm in float32 would lose.

    Args:
        hidden: the states after the last layer.
        read: where predictions are: ``tf.reading``, or what an export says under "read".
        n_query: the number of queries.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.ones(4, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=1, box=None)
        >>> tf = ig.compile(algorithm, target="llama")
        >>> hidden = tf.module(tf.stream(X, X, X[:2]))
        >>> found = ig.read_predictions(hidden, tf.reading, n_query=2)
        >>> bool((found - tf.run(X, X, X[:2]).predictions).abs().max() < 1e-12)
        True
    """
    if read["zero"] is not None:
        hidden = hidden - hidden[..., read["zero"] : read["zero"] + 1]
    first, size, sign = (read["prediction"][name] for name in ("first", "size", "sign"))
    tokens = hidden.shape[-2]
    found, lower = hidden[..., tokens - n_query : tokens, first : first + size], read["prediction"].get("low")
    if lower is not None:
        found = found + hidden[..., tokens - n_query : tokens, lower : lower + size]
    return sign * found


def read_weights(program: Program, hidden: Tensor, token: int = 0) -> Float[Tensor, "batch n_weights"]:
    """The flat weight vector from hidden states, as :func:`read_predictions` reads predictions."""
    shift = hidden[..., program.stream.entry(ZERO), None] if ZERO in program.stream.by_name else 0.0
    lanes = program.stream.unpack(hidden - shift)
    whole = {name: lane + lanes[low(name)] if low(name) in lanes else lane for name, lane in lanes.items()}
    return flat_weights(program, whole, token)
