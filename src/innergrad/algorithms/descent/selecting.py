"""The common parts of the variants without product layers (``compact``, ``shallow``): everything up to s_N.

An instruction of an attention layer that multiplies lanes of its own token becomes *self-selecting heads*, whose scores
are positive at the token itself and nowhere else (:mod:`innergrad.targets.parts.scores`). They need positions (the lane
bits, binary signs), prompts of a fixed length, and a bound on the score: ``z_bound``, by default 64, for derivatives
and pre-activations. Outside it a run stops with a DomainError.

Lanes as in :mod:`innergrad.algorithms.descent.literal`, and oj = omega p_{j-1} (p_0 = x), the inputs of layer j times
the weights of the examples. With z_j = V_j p_{j-1} + b_j, layer j of the first N is

    attention   j < N     p_j = r(z_j), d_j = r'(z_j), on the same knots: one head writes both;     o_j
                j = N     linear output:             p_N = z_N;              then an mlp, s_N = u(p_N, y)
                          activated, squared loss:   s_N = (r^2)'(z_N) - 2 y r'(z_N)
                          activated, other losses:   p_N, d_N;  an mlp, g = u(p_N, y);  one attention more, s_N = d_N g

The weights of the examples enter through the o_j alone, so the backward pass of a short prompt is not larger than that
of a long one. The read-out is the N forward layers; the prediction is the lane p_N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from innergrad.algorithms.descent.literal import loss_layers, preactivation
from innergrad.algorithms.descent.step import DescentSettings, Gradient, below, descent
from innergrad.algorithms.losses import ResidualLoss
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.approximants import LARGEST_EPSILON
from innergrad.functions.derived import square_derivative, within
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.ir.program import Attend, Layer, Options, Program, Score
from innergrad.ir.stream import Lane

RANGE = 64.0  # of the factor of self-selecting heads, unless z_bound says otherwise


@dataclass(frozen=True)
class Selecting:
    """A step up to s_N, which a variant continues.

    forward: the instructions of attention layers 1 .. N.  output: the layers after them that make s_N.
    lanes: their outputs.  signal: the lane of s_N.
    radius: the range of the factors of self-selecting heads.  length: tokens of every prompt.
    """

    algorithm: DescentSettings
    forward: tuple[tuple[Attend, ...], ...]
    output: tuple[Layer, ...]
    lanes: tuple[Lane, ...]
    signal: str
    radius: float
    length: int

    @property
    def net(self) -> Network:
        return self.algorithm.network

    @property
    def factor(self) -> Function:
        """The identity, as far as self-selecting heads can tell tokens apart."""
        return within(IDENTITY, self.radius)

    def s(self, j: int) -> str:
        """The lane of the derivative of the loss in z_j."""
        return self.signal if j == self.net.depth else f"s{j}"

    def backward(self, j: int) -> Attend:
        """s_j = d_j (V_{j+1}^T s_{j+1})."""
        transpose = Score(self.factor, (f"V{j + 1}[e,c]", f"{self.s(j + 1)}[e]"))
        return Attend(f"s{j}[c]", transpose, value=f"d{j}[c]")

    def gradient(self, dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        """dst += rate * grad,  grad = mean(s_j o_j^T) / 2."""
        score, value = Score(IDENTITY, ("one", f"{self.s(j)}[k]")), f"o{j}[c]" if matrix else "omega"
        return (mean(dst, score, value, rate),)

    def program(self, scratch: tuple[Lane, ...], step: tuple[Layer, ...], gradient: Gradient) -> Program:
        """The step, the update and the read-out, with positions and prompts of a fixed length."""
        net = self.net
        bits = Lane("bits", (int(math.log2(self.length)),), "input", bound=1.0)
        readout = tuple(
            Layer("attention", f"read-out: forward {j}", (_activation(net, j),)) for j in range(1, net.depth + 1)
        )
        output = f"p{net.depth}"
        return descent(self.algorithm, (*self.lanes, *scratch), step, readout, output, gradient, (bits,), self.length)


def mean(dst: str, score: Score, value: str, rate: float) -> Attend:
    """dst += rate/2 * mean over the tokens."""
    return Attend(dst, score, value=value, scope="all", reduce="mean", scale=rate / 2)


def selecting(algorithm: DescentSettings, options: Options) -> Selecting:
    net, N = algorithm.network, algorithm.network.depth
    if N < 2:
        raise InputError(
            f"variant {options.variant!r} is for networks with a hidden layer",
            got=f"N = {N}",
            allowed="N >= 2",
            hint="variant='literal' takes any network",
        )
    steepest = net.activation.dr.bound + LARGEST_EPSILON  # its approximant is multiplied by, too
    radius = _power_of_two(max(options.z_bound or RANGE, steepest if math.isfinite(steepest) else 0.0))
    length = int(_power_of_two(options.n_examples + 1))
    weigh = Score(within(IDENTITY, float(length)), ("omega", "one"))  # at most length: its mean over the tokens is one
    forward: list[tuple[Attend, ...]] = [
        (_activation(net, j), _derivative(net, j), Attend(f"o{j}[c]", weigh, value=f"{below(j)}[c]"))
        for j in range(1, N)
    ]
    last, output, lanes, signal = _output(algorithm, radius)
    forward.append((*last, Attend(f"o{N}[c]", weigh, value=f"{below(N)}[c]")))
    lanes = (
        *(Lane(f"p{j}", (net.sizes[j],)) for j in range(1, N + 1)),
        *(Lane(f"d{j}", (net.sizes[j],)) for j in range(1, N)),
        *(Lane(f"o{j}", (net.sizes[j - 1],)) for j in range(1, N + 1)),
        *lanes,
    )
    return Selecting(algorithm, tuple(forward), output, lanes, signal, radius, length)


def _power_of_two(least: float) -> float:
    """A mean over 2^m tokens, and a multiple of 2^m, are exact."""
    return 2.0 ** math.ceil(math.log2(least))


def _activation(net: Network, j: int) -> Attend:
    r = net.activation.r if net.activated(j) else IDENTITY
    return Attend(f"p{j}[k]", Score(r, *preactivation(net, j)))


def _derivative(net: Network, j: int) -> Attend:
    return Attend(f"d{j}[k]", Score(net.activation.dr, *preactivation(net, j)))


def _output(
    algorithm: DescentSettings, radius: float
) -> tuple[tuple[Attend, ...], tuple[Layer, ...], tuple[Lane, ...], str]:
    """Instructions of attention layer N, the layers after it, their lanes, and the lane that is then s_N."""
    net, N, loss = algorithm.network, algorithm.network.depth, algorithm.loss
    d_y, p = net.sizes[N], _activation(net, N)
    if net.activated(N) and isinstance(loss, ResidualLoss) and loss.u == IDENTITY:
        return _squared(net, 0.5 * loss.scale, radius), (), (Lane(f"s{N}", (d_y,)),), f"s{N}"
    lanes, layers = loss_layers(loss, f"p{N}", d_y)
    lanes = (*lanes, Lane("g", (d_y,)))
    if not net.activated(N):
        return (p,), layers, lanes, "g"
    product = Attend(f"s{N}[k]", Score(within(IDENTITY, radius), (f"d{N}[k]", "one")), value="g[k]")
    lanes = (*lanes, Lane(f"d{N}", (d_y,)), Lane(f"s{N}", (d_y,)))
    return (p, _derivative(net, N)), (*layers, Layer("attention", f"backward {N}", (product,))), lanes, f"s{N}"


def _squared(net: Network, scale: float, radius: float) -> tuple[Attend, ...]:
    """s_N = scale ((r^2)'(z_N) - 2 y r'(z_N)) on the demos; the queries have t = 0 and y = 0."""
    N, z = net.depth, preactivation(net, net.depth)
    parts = (
        Attend(f"s{N}[k]", Score(within(f, radius), *z), value="t", scale=scale)
        for f in square_derivative(net.activation)
    )
    slope = Score(within(net.activation.dr, radius), *z)
    return (*parts, Attend(f"s{N}[k]", slope, value="y[k]", scale=-2.0 * scale))
