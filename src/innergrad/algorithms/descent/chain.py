"""Gradient descent on an N-layer network in 2N - 1 blocks a step, with no approximation at all: for blocks whose MLPs
multiply exactly and whose softmax attention has markers (target ``llama``). Only activations and losses that neither
markers nor kinks can make are fitted.

Activations and their derivatives are softmax attention over markers (:mod:`innergrad.algorithms.descent.sigmoids`), one
head a neuron; everything else is a product of two linear forms. With p_0 = x, a linear output and the squared loss,
whose derivative g = 2 (z_N - y) is linear, a step is

    attention, mlp    p_j, d_j;   z_{j+1} = V_{j+1} p_j + b_{j+1},  U_j = d_j V_j,  H_1 = d_1 x^T         j < N
                      and q_{N-1} = M p_{N-1} + c, which is V_N^T g
    mlp               q_j = U_{j+1}^T q_{j+1},  s_{j+1} = d_{j+1} q_{j+1}                                 j = N-2 .. 1
    mlp               G_1 = q_1 H_1,  s_1 = d_1 q_1;   G_j = s_j p_{j-1}^T as soon as s_j is there
    attention, mlp    V_j -= eta/2 mean(G_j),  b_j -= eta/2 mean(s_j);   for the next step
                      z_1 = V_1 x + b_1,  M = 2 V_N^T V_N,  c = 2 V_N^T (b_N - y);   the rest is cleared

(N - 1) + (N - 2) + 1 + 1 = 2N - 1 blocks. Others: the derivative of the loss is attention over markers, q_{N-1} = V_N^T
g the MLP behind it, and there are neither M nor c: 2N. Where that derivative takes an MLP itself, as fits and kinks do:
2N + 1. An activated output has U_N = d_N V_N in between: 2N + 1, too. Activations that take an MLP
(:mod:`innergrad.algorithms.descent.activate`) are a block more each: 3N - 2. With N = 1 and the squared loss, G_1 =
2 (V_1 x x^T + (b_1 - y) x^T) with the lanes x x^T, made once: one block. A projection (box, l1) is an MLP more, and so
is clipping.

Variants ``wide`` and ``widest`` replace the backward pass by derivatives of all activations in the weights. They take N
+ 2 blocks a step (:mod:`innergrad.algorithms.descent.wide`), and N + 1 for every loss
(:mod:`innergrad.algorithms.descent.widest`).

The lanes z_1, M and c survive a step, so they are state: functions of the weights, made by one MLP before the first.
The read-out is N - 1 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from innergrad.algorithms.base import LOG_UNIT
from innergrad.algorithms.descent import wide
from innergrad.algorithms.descent.activate import Activate, activate_of
from innergrad.algorithms.descent.averages import WEIGHTS_OF_EXAMPLES, forward, last_lane, squared
from innergrad.algorithms.descent.literal import loss_layers
from innergrad.algorithms.descent.sigmoids import SIGMOID, TANH, class_probabilities, marker_lanes, marks
from innergrad.algorithms.descent.step import DescentSettings, Gradient, below, descent
from innergrad.algorithms.losses import LogisticLoss, Loss, ResidualLoss, SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.functions.scalar import IDENTITY
from innergrad.functions.scalar import SIGMOID as SIGMOID_FUNCTION
from innergrad.functions.scalar import TANH as TANH_FUNCTION
from innergrad.ir.program import Attend, Layer, Mark, Options, Program, Score
from innergrad.ir.stream import Lane


def chain_program(algorithm: DescentSettings, options: Options) -> Program:
    """Of variants ``chain`` and ``wide``."""
    return program_of(algorithm, output_of(algorithm, options), chain_steps)


def program_of(algorithm: DescentSettings, output: Output, steps: Callable[[Output], Chain]) -> Program:
    """The program of a variant, from the function that makes its steps. With N = 1 and M all variants are the same."""
    net = algorithm.network
    chain = _one_layer(output) if net.depth == 1 and output.squared else steps(output)
    classes = net.sizes[-1] if isinstance(algorithm.loss, SoftmaxLoss) else 0
    return descent(
        algorithm,
        chain.scratch,
        chain.layers,
        _readout(output),
        last_lane(net),
        _mean_gradient(output),
        (*WEIGHTS_OF_EXAMPLES, *marker_lanes(classes), *chain.inputs),
        prepared=chain.prepared,
        kept=chain.kept,
        first=chain.first,
        marks=(*marks(classes), *chain.marks),
        smooth=True,
    )


@dataclass(frozen=True)
class Chain:
    """The layers of a step up to the mean, and the lanes they write.

    prepared: the lanes ``kept``, which an MLP makes from the weights for the next step. first: layers before that, made
    once. inputs, marks: of markers, beside those of sigmoids and classes.
    """

    layers: tuple[Layer, ...]
    scratch: tuple[Lane, ...]
    prepared: tuple[Attend, ...]
    kept: tuple[Lane, ...]
    first: tuple[Layer, ...] = ()
    inputs: tuple[Lane, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Output:
    """The network and its loss. wide: derivatives are made on the way forward; apart: products of them do not share
    lanes. activate: the layers that compute an activation.

    derivative: of the loss in the output, as an expression with the label k. loss: the layer that writes it, if it is
    not linear in the output. short: if it is linear, q_{N-1} is M p_{N-1} + c.
    """

    net: Network
    wide: bool
    apart: bool
    activate: Activate
    derivative: str
    loss: Layer | None
    short: bool = True

    @property
    def squared(self) -> bool:
        """The derivative is linear in z_N, and the backward pass makes use of it."""
        return self.short and self.loss is None and not self.net.activated(self.net.depth)

    def signal(self, j: int) -> str:
        """The derivative of the loss in z_j."""
        return f"s{j}[k]" if self.net.activated(j) else self.derivative

    def behind(self, j: int, label: str = "k") -> str:
        """The derivative of the loss in p_j: the lane qj, or that of the loss itself."""
        return f"q{j}[{label}]" if j < self.net.depth else self.derivative.replace("[k]", f"[{label}]")


def output_of(algorithm: DescentSettings, options: Options) -> Output:
    """There is nothing to make on the way forward of a network without hidden layers."""
    net, wide = algorithm.network, options.variant == "wide" and algorithm.network.depth > 1
    return Output(net, wide, options.double, activate_of(net.activation), *_loss(algorithm.loss, last_lane(net)))


def _loss(loss: Loss, out: str) -> tuple[str, Layer | None]:
    """The derivative of the loss in the network's output, and the layer that writes the lane g: attention where it is
    exact, else an mlp, by units for kinks or by fits.
    """
    if squared(loss):
        return f"2.0*{out}[k] - 2.0*y[k]", None
    if isinstance(loss, ResidualLoss) and loss.u == TANH_FUNCTION:
        return "g[k]", _heads(TANH.of("g[k]", f"{out}[k] - y[k]", scale=loss.scale))
    if isinstance(loss, LogisticLoss) and loss.sigmoid == SIGMOID_FUNCTION:
        return "g[k] - y[k]", _heads(SIGMOID.of("g[k]", f"{out}[k]"))
    if isinstance(loss, SoftmaxLoss):
        return "g[k] - y[k]", _heads(class_probabilities("g[k]", out))
    _, (layer,) = loss_layers(loss, out, 1)
    return "g[k]", layer


def _heads(instruction: Attend) -> Layer:
    return Layer("attention", "loss derivative", (instruction,))


# ------------------------------------------------------------------------------------------------------------- a step


def chain_steps(output: Output) -> Chain:
    """Forward, the derivative of the loss, backward."""
    net, N = output.net, output.net.depth
    layers, waiting = list[Layer](), list[Attend]()  # waiting: products for the next mlp

    def mlp(name: str, *instructions: Attend) -> None:
        if instructions or waiting:
            layers.append(Layer("mlp", name, (*instructions, *waiting)))
        waiting.clear()

    for j in range(1, N):
        layers += output.activate(j, derivative=True)
        short = _last_signal(net) if output.squared and j == N - 1 else ()
        mlp(f"forward {j + 1}", *forward(net, j + 1), *_kept(output, j), *short)
        waiting += wide.longer(net, j, output.apart) if output.wide else ()
    by_units = output.loss.instructions if output.loss is not None and output.loss.kind == "mlp" else ()
    if net.activated(N):
        layers += output.activate(N, derivative=True)
        mlp(f"slopes {N}", *_kept(output, N), *by_units)
    elif by_units:
        mlp("loss derivative", *by_units)
    if output.loss is not None and not by_units:
        layers.append(output.loss)
    if not net.activated(N):
        waiting.append(_outer(output, N))
    if N > 1 and not output.squared:  # else it is there already
        mlp(f"backward {N - 1}", *_backward(output, N - 1))
        waiting += [_outer(output, N)] if net.activated(N) else []
    if output.wide:
        if output.squared and N > 2:
            mlp("products")
        last = (*_last_gradients(output), *wide.gradients(net, output.apart), *waiting)
        layers.append(Layer("mlp", "gradients", last))
        return Chain(tuple(layers), _scratch(output), *_prepared(output))
    for j in range(N - 2, 0, -1):
        mlp(f"backward {j}", *_backward(output, j))
        waiting.append(_outer(output, j + 1))
    mlp("gradients", *(_last_gradients(output) if net.activated(1) else ()))
    return Chain(tuple(layers), _scratch(output), *_prepared(output))


def _kept(output: Output, j: int) -> tuple[Attend, ...]:
    """Products of the slopes of layer j: U_j = d_j V_j, and H_j = d_j p_{j-1}^T. H_j is for the first layer; for all
    hidden ones if ``wide``.
    """
    N = output.net.depth
    outer = (wide.outer_slopes(j),) if j == 1 or (output.wide and j < N) else ()
    return outer if j == 1 else (Attend(f"U{j}[k,c]", Score(IDENTITY, (f"d{j}[k]", f"V{j}[k,c]"))), *outer)


def _last_signal(net: Network) -> tuple[Attend, ...]:
    """q_{N-1} = M p_{N-1} + c."""
    q, p = f"q{net.depth - 1}[k]", f"p{net.depth - 1}[c]"
    return Attend(q, Score(IDENTITY, ("VtV[k,c]", p))), Attend(q, value="Vty[k]")


def _backward(output: Output, j: int) -> tuple[Attend, ...]:
    """q_j = U_{j+1}^T q_{j+1} and s_{j+1} = d_{j+1} q_{j+1}; of a linear output, q_{N-1} = V_N^T g."""
    activated = output.net.activated(j + 1)
    above = f"{'U' if activated else 'V'}{j + 1}[c,k]", output.behind(j + 1, "c")
    q = Attend(f"q{j}[k]", Score(IDENTITY, above))
    return (q, _signal(output, j + 1)) if activated else (q,)


def _signal(output: Output, j: int) -> Attend:
    """s_j = d_j q_j."""
    return Attend(f"s{j}[k]", Score(IDENTITY, (f"d{j}[k]", output.behind(j))))


def _last_gradients(output: Output) -> tuple[Attend, ...]:
    """G_j = q_j H_j, and s_j where there is a bias: of the first layer; wide, of the last hidden one."""
    j = max(1, output.net.depth - 1) if output.wide else 1
    G = Attend(f"G{j}[k,c]", Score(IDENTITY, (f"H{j}[k,c]", output.behind(j))))
    return (G, _signal(output, j)) if output.net.bias else (G,)


def _outer(output: Output, j: int) -> Attend:
    """G_j = s_j p_{j-1}^T."""
    return Attend(f"G{j}[k,c]", Score(IDENTITY, (output.signal(j), f"{below(j)}[c]")))


def _prepared(output: Output) -> tuple[tuple[Attend, ...], tuple[Lane, ...]]:
    """The lanes that an MLP makes from the weights before a step: z_1, and, for a linear derivative, M and c."""
    net, N = output.net, output.net.depth
    made, kept = forward(net, 1), (Lane("z1", (net.sizes[1],), "state", shared=False),)
    if not output.squared or N == 1:
        return made, kept
    K, V = net.sizes[N - 1], f"V{N}[e,k]"
    off = f"b{N}[e] - y[e]" if net.bias else "-y[e]"
    products = (
        Attend("VtV[k,c]", Score(IDENTITY, (V, f"V{N}[e,c]")), scale=2.0),
        Attend("Vty[k]", Score(IDENTITY, (V, off)), scale=2.0),
    )
    return (*made, *products), (*kept, Lane("VtV", (K, K), "state"), Lane("Vty", (K,), "state", shared=False))


def _scratch(output: Output) -> tuple[Lane, ...]:
    """Cleared at the end of every step."""
    net, N, lanes = output.net, output.net.depth, list[Lane]()
    for j in range(1, N + 1):
        K, below = net.sizes[j], net.sizes[j - 1]
        lanes += [Lane(f"z{j}", (K,))] if j > 1 else []
        lanes += [Lane(f"{name}{j}", (K,)) for name in ("p", "d", *output.activate.lanes)] if net.activated(j) else []
        lanes += [Lane(f"q{j}", (K,))] if j == N - 1 or (j < N and not output.wide) else []
        lanes += [Lane(f"s{j}", (K,))] if net.activated(j) and (j > 1 or net.bias) else []
        lanes += [Lane(f"U{j}", (K, below))] if j > 1 and net.activated(j) else []
        lanes += [Lane("H1", (K, below))] if j == 1 and net.activated(1) and not output.wide else []
        lanes.append(Lane(f"G{j}", (K, below)))
    products = wide.product_lanes(net, output.apart) if output.wide else ()
    return (*lanes, *products, *([Lane("g", (net.sizes[N],))] if output.loss is not None else []))


def _one_layer(output: Output) -> Chain:
    """N = 1, squared: G_1 = 2 (V_1 x x^T + (b_1 - y) x^T), for the next step, from the lanes x x^T."""
    net = output.net
    d, K = net.sizes
    gradient = [Attend("G1[k,c]", Score(IDENTITY, ("V1[k,e]", "xx[e,c]")), scale=2.0)]
    off = "b1[k] - y[k]" if net.bias else "-y[k]"
    gradient.append(Attend("G1[k,c]", Score(IDENTITY, (off, "x[c]")), scale=2.0))
    kept = (Lane("z1", (K,), "state", shared=False), Lane("G1", (K, d), "state", shared=False))
    squares = Layer("mlp", "squares", (Attend("xx[k,c]", Score(IDENTITY, ("x[k]", "x[c]"))),))
    xx = Lane("xx", (d, d), "state", shared=False)
    return Chain((), (), (*forward(net, 1), *gradient), (*kept, xx), (squares,))


def _mean_gradient(output: Output) -> Gradient:
    """dst += rate * weighted mean over the examples of G_j or s_j, halved as the risk is."""

    def gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        weights = Score(IDENTITY, (f"{LOG_UNIT}*one", "log_omega"))
        value = f"G{j}[k,c]" if matrix else output.signal(j)
        return (Attend(dst, weights, value=value, scope="demos", reduce="softmax", scale=rate / 2),)

    return gradient


def _readout(output: Output) -> tuple[Layer, ...]:
    """z_1 is there already."""
    net, layers = output.net, list[Layer]()
    for j in range(1, net.depth + 1):
        if j > 1:
            layers.append(Layer("mlp", f"read-out: forward {j}", forward(net, j)))
        if net.activated(j):
            layers += output.activate(j, "read-out: ", derivative=False)
    return tuple(layers)
