"""What an exported model is, for software that does not know innergrad: which entry of the stream holds what."""

from __future__ import annotations

from typing import Any

from innergrad.ir.stream import Lane
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
}


def note(tf: CompiledTransformer) -> dict[str, Any]:
    """JSON values: the algorithm, what lanes hold before the first layer, tokens, ranges, where predictions are."""
    program = tf.program
    where = "where placement says [lane, first entries, token]" if program.placement else "on every token"
    held = {lane.name: f"initial weights, {where}" for lane in program.weights}
    held |= {mark.lane: "1 where marks say [lane, token, entry]" for mark in program.marks}
    carriers = f"{program.carriers} tokens that carry weights; then " if program.placement else ""
    blanks = f"blank tokens, so that there are {program.length} in all; " if program.length else ""
    sink = "a sink, with nothing but what holds on every token; then " if program.sink else ""
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
        "read": {"prediction": {"lane": program.prediction, "sign": program.sign, "tokens": "the queries, last"}},
    }


def _held(lane: Lane) -> str:
    """What a lane holds before the first block, in words."""
    return _HOLDS.get(lane.name, f"{lane.fill:.17g} on every token")
