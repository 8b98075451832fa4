"""Gradient descent on an N-layer network with one head a neuron, where MLPs multiply by fits: variant ``markers`` of
targets ``gpt`` and ``softmax``.

The layers are those of :mod:`innergrad.algorithms.descent.chain`, without M = 2 V_N^T V_N: products are fits on the
range of their factors, and that of M is the square of the weights'. So tanh and sigmoid and their derivatives, and the
derivatives of losses, are softmax attention over markers. They are not approximated, and have no bound on their
argument. Piecewise-linear activations are sums of GeLUs in an MLP.

A step takes 2N blocks for a linear output with every loss, and 2N + 1 for an activated one. silu and piecewise-linear
activations are a block more each. Attention with a sink has sums of sigmoids in place of markers, hundreds of heads.
"""

from __future__ import annotations

from dataclasses import replace

from innergrad.algorithms.descent.averages import gradient_range
from innergrad.algorithms.descent.chain import Chain, Output, chain_steps, output_of, program_of
from innergrad.algorithms.descent.step import DescentSettings
from innergrad.ir.program import Options, Program
from innergrad.ir.stream import Lane


def marked_program(algorithm: DescentSettings, options: Options) -> Program:
    output, gradients = replace(output_of(algorithm, options), short=False), gradient_range(algorithm, options)
    r = algorithm.network.activation
    ranges = {"p": r.r.bound, "d": r.dr.bound, "e": 1.0, "h": 1.0, "g": 1.0, "q": gradients, "s": gradients}

    def steps(output: Output) -> Chain:
        """With the ranges of the factors; by the letter of a lane."""
        chain = chain_steps(output)
        return replace(chain, scratch=tuple(_in_range(lane, ranges) for lane in chain.scratch))

    return program_of(algorithm, output, steps)


def _in_range(lane: Lane, ranges: dict[str, float]) -> Lane:
    return replace(lane, bound=ranges.get(lane.name[0], lane.bound))
