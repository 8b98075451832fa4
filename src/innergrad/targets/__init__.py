"""Target architectures: how a program becomes the weights of a transformer."""

from __future__ import annotations

from dataclasses import replace

from innergrad.functions.features import SIGMAS
from innergrad.registry import Registry
from innergrad.targets import gpt_functions, gpt_lowering, gpt_prepare, kernel, relu_lowering, sigma
from innergrad.targets.base import LoopedTransformer, Sublayer, Target, counted, tokens_of
from innergrad.targets.gpt import FeedForward, GptAttention
from innergrad.targets.relu import Mlp, Product, ReluAttention
from innergrad.targets.relu_cost import relu_cost
from innergrad.targets.relu_functions import approximants

GPT = Target(
    variants=("pre-ln", "raw"),
    epsilon=1e-9,
    finest=1e-12,
    proven=False,
    rounding=gpt_functions.rounding,
    prepare=gpt_prepare.prepare,
    check=gpt_functions.check,
    approximated=gpt_functions.approximated,
    approximants=gpt_functions.approximants,
    lower=gpt_lowering.lower,
    cost=counted(gpt_lowering.lower),
    bounds=gpt_functions.bounds,
    structural=("t", "query", "log_omega", "log_batch", "pos", "pos2", "ns", "zero", "pad_up", "pad_down"),
    probes=(0.25, 0.5, 1.0),
    inspect=gpt_functions.inspect,
    longest=gpt_functions.longest,
    modules={"attention": GptAttention, "mlp": FeedForward},
)

_BUILTIN: dict[str, Target] = {
    "relu": Target(
        variants=("literal", "compact", "shallow", "narrow"),
        epsilon=1e-3,
        finest=1e-8,
        proven=True,
        rounding=lambda options: 1e-12,
        check=relu_lowering.check,
        approximated=lambda program: set(program.functions()),
        approximants=approximants,
        lower=lambda program, approximants, options: relu_lowering.lower(program, approximants),
        cost=lambda program, approximants, options, paper: relu_cost(
            program, approximants, tokens_of(program, options), paper
        ),
        structural=("bits",),
        probes=(0.5, 2.0, 8.0),
        modules={"attention": ReluAttention, "product": Product, "mlp": Mlp},
    ),
    "kernel": Target(
        variants=("attention",),
        epsilon=1e-3,
        finest=1e-12,
        proven=True,
        rounding=lambda options: 1e-12,
        check=kernel.check,
        approximated=lambda program: set(),
        approximants=lambda program, options: {},
        lower=kernel.lower,
        cost=counted(kernel.lower),
        structural=("t",),
        probes=(0.25, 0.5, 1.0),
        modules={"attention": kernel.KernelAttention},
    ),
    "softmax": replace(
        GPT,
        variants=("sink", "mean", "lookup"),
        prepare=gpt_prepare.prepare_softmax,
        structural=("t", "query", "ns", "log_omega", "log_batch", "log_tokens"),
        inspect=Target.inspect,
        longest=Target.longest,
    ),
    "sigma": Target(
        variants=("backprop", "recursion"),
        sigmas=SIGMAS,
        epsilon=1e-9,
        finest=1e-12,
        proven=False,
        rounding=sigma.rounding,
        prepare=sigma.prepare,
        check=sigma.check,
        approximated=sigma.approximated,
        approximants=sigma.approximants,
        lower=sigma.lower,
        cost=counted(sigma.lower),
        bounds=sigma.bounds,
        structural=("t", "query"),
        probes=(0.25, 0.5, 1.0),
        modules={"attention": sigma.SigmaAttention, "mlp": sigma.SigmaMlp},
    ),
    "gpt": GPT,
}
TARGETS = Registry("target", _BUILTIN)

__all__ = ["TARGETS", "LoopedTransformer", "Sublayer", "Target"]
