"""Families of models whose blocks a transformer of target ``llama`` becomes, and their differences.

All of them have rotary positions, softmax attention and gated MLPs. The rest is this table:

- ``layer_norm``: StableLM has LayerNorm in place of RMSNorm (:mod:`innergrad.export.frames`).
- ``offset``: Gemma multiplies by weight + 1 in its norms. (2^38 - 1 + 1 = 2^38, in every floating-point type.)
- ``act``: Gemma's gates are gelu. They do the same as silu for the blocks: gelu(a) - gelu(-a) = a, gelu(64) = 64, and
  gelu(2^60 t) / 2^60 = relu(t). A sum of other silu units is another function there, and is refused.
- ``pinned``: Qwen3 normalises queries and keys, each head for itself. One entry of every query and every key reads a
  pad, 2^40, beside which the others are nothing, so that the norm is the identity; its own weight there is zero, so
  scores do not see it.
- ``masked``: StableLM's blocks drop ``is_causal``, so the model needs a 4-D attention mask of zeros.
- ``square``: StableLM's heads together are as wide as the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from innergrad.errors import InputError
from innergrad.targets.parts.rms_norm import PAD

UNTURNED = 1e30  # the divisor of positions
EPS = 1e-6  # of the norms: nothing beside the pads
RMS_PADS = {torch.float64: PAD, torch.float32: PAD, torch.bfloat16: PAD}
# LayerNorm's mean carries the rounding of pads (of 2^20 in float32: 2^-4), so they are as small as they can be.
LAYER_PADS = {torch.float64: 2.0**36, torch.float32: 2.0**20, torch.bfloat16: 2.0**20, torch.float16: 2.0**14}


@dataclass(frozen=True)
class Family:
    """See the module docstring. model: the class of transformers'. biases: which matrices have one, which is zero.
    own: settings of the configuration. turned: of its rotary positions.
    """

    model: str
    act: str = "silu"
    layer_norm: bool = False
    offset: float = 0.0
    pinned: bool = False
    masked: bool = False
    square: bool = False
    biases: tuple[str, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    turned: Mapping[str, float] = field(default_factory=dict)

    def pad(self, dtype: torch.dtype) -> float:
        """The value of pads in a model of this dtype, or the reason why there is none."""
        pads = LAYER_PADS if self.layer_norm else RMS_PADS
        if dtype in pads:
            return pads[dtype]
        what = "the norms of these models need pads of 2^40, which is beyond the largest number"
        raise InputError(what, got=str(dtype).removeprefix("torch."), allowed="float32, bfloat16")


FAMILIES = {
    "llama": Family("LlamaModel"),
    "mistral": Family("MistralModel", own={"sliding_window": None}),
    "qwen2": Family("Qwen2Model", biases=("q_proj", "k_proj", "v_proj")),
    "qwen3": Family("Qwen3Model", pinned=True),
    "gemma": Family("GemmaModel", act="gelu_pytorch_tanh", offset=1.0),
    "stablelm": Family(
        "StableLmModel", layer_norm=True, masked=True, square=True, turned={"partial_rotary_factor": 0.5}
    ),
    "smollm3": Family("SmolLM3Model"),  # some of its layers do not turn anything
}


def family_of(name: str) -> Family:
    if name not in FAMILIES:
        raise InputError("unknown family of models", got=repr(name), allowed=", ".join(FAMILIES))
    return FAMILIES[name]
