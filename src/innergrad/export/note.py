"""A note about an exported model, for software without innergrad: the content of every entry of the stream."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.ir.stream import Lane, low
from innergrad.model.executors import executor_of
from innergrad.model.storage import tokens_of_weights
from innergrad.transformer import CompiledTransformer

_HOLDS = {
    "x": "the input: on examples and queries (interleaved: on the x tokens of examples, and on queries)",
    "y": "the label: on examples (interleaved: on their y tokens)",
    "one": "1 on every token",
    "t": "1 on examples (interleaved: on their y tokens)",
    "query": "1 on queries",
    "omega": "(number of tokens) / (number of examples) where t is 1",
    "pos": "i / 128 on token i, counted from 0",
    "pos2": "(i / 128)^2 on token i",
    "ns": "1 on every token but the sink",
    "unmarked": "1 on every token but the markers",
    "log_omega": "-log(number of examples) / 16 where t is 1, -4 elsewhere",
}


EXAMPLES, QUERIES = 8, 2  # of the prompt that a model is tried on
SLACK = {torch.float64: 1e-8, torch.float32: 1e-4}
ROUNDED = 1e-12  # in place of the first, where nothing but rounding is in the weights


def note(tf: CompiledTransformer, dtype: torch.dtype) -> dict[str, Any]:
    """JSON values: the algorithm, the content of lanes before the first layer, tokens, ranges, the place of
    predictions, and a prompt to try it on.
    """
    program = tf.program
    where = "where placement says [lane, first entries, token]" if program.placement else "on every token"
    held = {lane.name: f"initial weights, {where}" for lane in program.weights}
    held |= {low(lane.name): f"the same as {lane.name}" for lane in program.stream.lanes if lane.role != "scratch"}
    held |= {mark.lane: "1 where marks say [lane, token, entry]" for mark in program.marks}
    what = "tokens that carry weights" if program.placement else "marker tokens, with the x of the first example"
    carriers = f"{program.carriers} {what}; then " if program.carriers else ""
    blanks = f"blank tokens, so that there are {program.length} in all; " if program.length else ""
    sink = "a sink, which holds only the values of every token; then " if program.sink else ""
    examples = "x_1, y_1, x_2, y_2, ..." if program.tokens == "interleaved" else "(x_1; y_1), (x_2; y_2), ..."
    return {
        "algorithm": {"kind": tf.algorithm.kind, **tf.algorithm.config()},
        "layout": [
            {
                "name": lane.name,
                "shape": list(lane.shape),
                "offset": program.stream.offsets[lane.name],
                "holds": held.get(lane.name, _held(lane)),
            }
            for lane in program.stream.lanes
        ],
        "tokens": f"{sink}{carriers}{examples}; {blanks}then the queries",
        **tokens_of_weights(program),
        "ranges": {
            lane: list(interval)
            for layer in program.layers
            for lane, interval in tf.target.bounds(program, layer, tf.options).items()
        },
        "read": tf.reading,
        "example": example(tf, dtype),
    }


def example(tf: CompiledTransformer, dtype: torch.dtype) -> dict[str, Any] | None:
    """A prompt, as the entries of its stream that are not zero; the predictions that a model must give for it; and the
    values that every token must hold after the last block, in the places of weights and predictions. (A token that saw
    too little may have learned wrong weights, while a query that sees all of them predicts right.) lows: the places of
    their low digits, which are added, where a program has them.

    tolerance: the allowed error of a model in this dtype: ten times that of the module, and a little for other sums.
    None if no random prompt is in the domain of the transformer.
    """
    stream = _random_stream(tf)
    if stream is None:
        return None
    lanes, offsets = tf.program.stream, tf.program.stream.offsets
    held = [*tf.program.weights, lanes[tf.program.prediction]]
    places = [offsets[lane.name] + i for lane in held for i in range(lane.size)]
    lows = [offsets[low(lane.name)] + i for lane in held for i in range(lane.size) if low(lane.name) in offsets]
    slack = ROUNDED if tf.options.double and dtype == torch.float64 else SLACK[dtype]
    after = {kind: tf.module_for(kind)(stream.to(kind)).double() for kind in (torch.float64, dtype)}
    exact, rounded = (hidden[0][:, places] for hidden in (after[torch.float64], after[dtype]))
    return {
        "tokens": stream.shape[1],
        "entries": [[token, entry, float(stream[0, token, entry])] for token, entry in stream[0].nonzero().tolist()],
        "n_query": QUERIES,
        "predictions": tf.predictions(after[torch.float64], QUERIES)[0].tolist(),
        "places": places,
        **({"lows": lows} if lows else {}),
        "held": exact.tolist(),
        "tolerance": 10.0 * float((rounded - exact).abs().max()) + slack * max(1.0, float(exact.abs().max())),
    }


def _random_stream(tf: CompiledTransformer) -> Tensor | None:
    """Of a random prompt that stays in every domain: with fewer examples, or smaller, if it must."""
    most = tf.options.n_examples
    counts = (most,) if getattr(tf.algorithm, "fixed_length", False) else (min(most, EXAMPLES), min(most, 3), 1)
    for n, size in itertools.product(counts, (1.0, 0.25)):
        drawn = tf.algorithm.random_prompt(n, QUERIES, torch.Generator().manual_seed(0))
        try:
            X, y, X_query = drawn[0] * size, drawn[1], drawn[2] * size
            executor_of(tf, "plain").run(tf.prompt(X, y, X_query), (), tf.guard())
        except InputError:
            continue
        return tf.stream(X, y, X_query)
    return None


def _held(lane: Lane) -> str:
    """The content of a lane before the first block, in words."""
    return _HOLDS.get(lane.name, f"{lane.fill:.17g} on every token")
