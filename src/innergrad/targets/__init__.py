"""Target architectures: how a program becomes the weights of a transformer. Each is a row of parts."""

from __future__ import annotations

from innergrad.errors import Registry
from innergrad.functions.fits.sigmas import SIGMAS
from innergrad.targets.parts.attention import KernelAttention, Places, Sink, SoftmaxAttention
from innergrad.targets.parts.base import Functions, Target
from innergrad.targets.parts.functions import Blocks, Piecewise, Sigmas, Silus
from innergrad.targets.parts.gated import GatedMlp
from innergrad.targets.parts.mlps import FeedForward, SigmaMlp
from innergrad.targets.parts.norms import LayerNorm
from innergrad.targets.parts.rms_norm import RMSNorm
from innergrad.targets.parts.scores import HingeMlp, Product, ScoreAttention, SignBits
from innergrad.targets.weights.modules import LoopedTransformer, Sublayer

_BUILTIN: dict[str, Target] = {
    "relu": Target(
        variants=("literal", "compact", "shallow", "narrow"),
        parts=(ScoreAttention, Product, HingeMlp),
        positions=SignBits(),
        functions=Piecewise(),
        epsilon=1e-3,
        finest=1e-8,
        structural=("bits",),
        probes=(0.5, 2.0, 8.0),
    ),
    "kernel": Target(
        variants=("attention",),
        parts=(KernelAttention,),
        functions=Functions(),
        epsilon=1e-3,
        finest=1e-12,
        structural=("t",),
    ),
    "softmax": Target(
        variants=("sink", "mean", "lookup", "markers"),
        parts=(SoftmaxAttention, FeedForward),
        positions=Sink(),
        functions=Blocks(),
        epsilon=1e-9,
        finest=1e-12,
        structural=("t", "query", "ns", "log_omega", "log_batch", "log_tokens", "unmarked"),
    ),
    "sigma": Target(
        variants=("backprop", "recursion"),
        sigmas=SIGMAS,
        parts=(ScoreAttention, SigmaMlp),
        functions=Sigmas(),
        epsilon=1e-9,
        finest=1e-12,
        structural=("t", "query"),
    ),
    "gpt": Target(
        variants=("pre-ln", "raw", "markers"),
        norm=LayerNorm(),
        parts=(SoftmaxAttention, FeedForward),
        positions=Places(),
        functions=Blocks(),
        epsilon=1e-9,
        finest=1e-12,
        structural=(
            "t",
            "query",
            "log_omega",
            "log_batch",
            "pos",
            "pos2",
            "ns",
            "unmarked",
            "zero",
            "pad_up",
            "pad_down",
        ),
    ),
    "llama": Target(
        variants=("chain", "wide", "widest", "shortest"),
        norm=RMSNorm(),
        parts=(SoftmaxAttention, GatedMlp),
        functions=Silus(),
        epsilon=1e-12,
        finest=1e-12,
        structural=("t", "query", "log_omega", "log_batch", "pad"),
    ),
}
TARGETS = Registry("target", _BUILTIN)

__all__ = ["TARGETS", "LoopedTransformer", "Sublayer", "Target"]
