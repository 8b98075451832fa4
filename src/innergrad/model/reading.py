"""Where predictions are in hidden states: one function reads them, for every target, module and export."""

from __future__ import annotations

from typing import Any

from innergrad.ir.program import Program

ZERO = "zero"  # a lane that is always zero: after a LayerNorm it shows what that has subtracted


def reading(program: Program) -> dict[str, Any]:
    """Where predictions are, as JSON values; exports carry it."""
    stream, lane = program.stream, program.prediction
    return {
        "zero": stream.entry(ZERO) if ZERO in stream.by_name else None,
        "prediction": {
            "lane": lane,
            "first": stream.offsets[lane],
            "size": stream[lane].size,
            "sign": program.sign,
            "tokens": "the queries, last",
        },
    }


def read_predictions(hidden: Any, read: Any, n_query: int) -> Any:
    """Predictions (..., n_query, d_y) from hidden states (..., tokens, width), of torch or of numpy.

    read: where they are, ``tf.reading`` or what an export says under "read". The queries are the last tokens. What a
    LayerNorm after the last block has subtracted from every entry is in the entry "zero", and is added again.
    """
    if read["zero"] is not None:
        hidden = hidden - hidden[..., read["zero"] : read["zero"] + 1]
    first, size, sign = (read["prediction"][name] for name in ("first", "size", "sign"))
    tokens = hidden.shape[-2]
    return sign * hidden[..., tokens - n_query : tokens, first : first + size]
