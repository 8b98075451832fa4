"""Gradient descent with the weights in *neuron tokens* (variant ``narrow``), in 3N + 3 layers a step. The width is O(N
K), where all weights in every token take O(N K^2). The number of heads a layer does not depend on K.

Neuron k of layer j is a token. It holds v, its row of V_j, in the lane V1 (first layer) or V2 (all others), its bias
in b1, and the one-hot code of k in the lane ej. Other tokens hold zeros there. All other lanes are those of
:mod:`innergrad.algorithms.descent.literal`, hidden ones as wide as the widest hidden layer, and q, which holds
V_{j+1}^T s_{j+1} for one j at a time. With T tokens, i a token and the mean over all tokens s:

    attention    1 .. N      p_j,i += T mean r(<p_{j-1},i, v_s> + b_s) e_j,s        one head a hinge for the whole layer
    attention    N + 1       d_j,i += T mean r'(<p_{j-1},i, v_s> + b_s) e_j,s,  all j
    mlp          N + 2       g = u(p_N, y)                           (softmax: ceil(log2 d_y) more, for log-sum-exp)
    product      N + 3       s_N = omega g d_N
    attention,   2 a layer   q_i += T mean <s_{j+1},i, e_{j+1},s> v_s
      product                s_j = d_j q, q cleared                                                 j = N - 1 .. 1
    attention    3N + 2      v_i -= eta/2 mean <e_j,i, s_j,s> p_{j-1},s, all j;   b_i likewise, with 1 in place of p
    mlp          3N + 3      project v and b onto the box, clear the scratch lanes

A code picks one term of a mean; the others are multiplied by its zeros. So nothing is masked with large constants, T
is a constant of the weights, and prompts have a fixed number of tokens.

A token without an example (a neuron, a blank) computes the same as one with its x and y = 0. It has omega = 0, hence
s_j = 0 for all j, and everything that is averaged in an update has s_j as a factor: nothing of it reaches a weight. A
token that is no neuron has e = 0. So nothing is added to its v and b, and they stay zero.
"""

from __future__ import annotations

from dataclasses import replace

from innergrad.algorithms.descent.literal import copy_layer, loss_layers
from innergrad.algorithms.descent.step import DescentSettings, below, descent, weight_bound
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.ir.program import Attend, Layer, Mark, Options, Part, Program, Score
from innergrad.ir.stream import Lane

MOST_NEURONS = 20_000


def narrow_program(algorithm: DescentSettings, options: Options) -> Program:
    net, N = algorithm.network, algorithm.network.depth
    if sum(net.sizes[1:]) > MOST_NEURONS:
        got, allowed = f"{sum(net.sizes[1:]):,} neurons", f"at most {MOST_NEURONS:,}"
        raise InputError("variant 'narrow' has a token for each neuron", got=got, allowed=allowed)
    tokens = options.n_examples + 1 + sum(net.sizes[1:])
    hidden = max(net.sizes[1:-1], default=0)
    widths = {j: net.sizes[-1] if j == N else hidden for j in range(1, N + 1)}
    loss_lanes, losses = loss_layers(algorithm.loss, f"p{N}", net.sizes[-1])
    scratch = (
        *(Lane(f"p{j}", (k,)) for j, k in widths.items()),
        *(Lane(f"d{j}", (k,)) for j, k in widths.items()),
        *loss_lanes,
        Lane("g", (net.sizes[-1],)),
        *(Lane(f"s{j}", (k,)) for j, k in reversed(widths.items())),
        *([Lane("q", (hidden,))] if N > 1 else []),
    )
    codes = tuple(Lane(f"e{j}", (k,), "input", bound=1.0) for j, k in widths.items())
    gradients = (*_forward(net, tokens), _derivatives(net, tokens), *losses, *_backward(N, tokens))
    program = descent(
        algorithm,
        scratch,
        gradients,
        (*_forward(net, tokens, "read-out: "), copy_layer(N)),
        "y",
        lambda dst, j, matrix, rate: _gradient(N, dst, j, matrix, rate),
        codes,
        tokens,
        _weights(net, hidden, weight_bound(algorithm)),
    )
    program = program.with_layers(lambda layer: _through_codes(program, layer, N, tokens))
    return replace(program, placement=_placement(net), marks=_marks(net))


# -------------------------------------------------------------------------------------------------------- neuron tokens


def _weights(net: Network, hidden: int, bound: float) -> tuple[Lane, ...]:
    """The weights that a neuron token trains: its row of V_j, in V1 or V2, and its bias."""
    first = Lane("V1", (net.sizes[0],), "weight", shared=False, bound=bound)
    other = Lane("V2", (hidden,), "weight", shared=False, bound=bound)
    bias = Lane("b1", (), "weight", shared=False, bound=bound)
    return (first, *([other] if hidden else []), *([bias] if net.bias else []))


def _row(j: int) -> str:
    """The lane with a neuron's row of V_j."""
    return "V1" if j == 1 else "V2"


def _placement(net: Network) -> tuple[Part, ...]:
    """V_1 row by row, b_1, V_2, ...: the order of ``net.flatten``; a token each neuron, layer by layer."""
    parts: list[Part] = []
    first = 0
    for j, (inputs, outputs) in enumerate(zip(net.sizes, net.sizes[1:], strict=False), start=1):
        neurons = range(first, first + outputs)
        parts += [Part(_row(j), inputs, token) for token in neurons]
        parts += [Part("b1", 1, token) for token in neurons if net.bias]
        first += outputs
    return tuple(parts)


def _marks(net: Network) -> tuple[Mark, ...]:
    codes = [(f"e{j}", k) for j, size in enumerate(net.sizes[1:], start=1) for k in range(size)]
    return tuple(Mark(lane, token, k) for token, (lane, k) in enumerate(codes))


def _through_codes(program: Program, layer: Layer, N: int, tokens: int) -> Layer:
    """Attention reads a neuron's own lanes (weight decay, momentum) by its code: <e_i, e_s> is 1 if s = i, else 0."""
    codes = [f"e{j}[{'o' if j == N else 'h'}]" for j in range(1, N + 1)]  # as wide as the output, or a hidden layer
    own = Score(IDENTITY, *((code, code) for code in codes))

    def change(i: Attend) -> Attend:
        private = any(not program.stream[view.lane].shared for view in i.value)
        if layer.kind != "attention" or not i.own or i.scores or not private:
            return i
        return Attend((i.dst,), own, value=i.value, scope="all", reduce="mean", scale=tokens * i.scale)

    return replace(layer, instructions=tuple(map(change, layer.instructions)))


# --------------------------------------------------------------------------------------------------------------- layers


def _neurons(net: Network, tokens: int, dst: str, j: int, f: Function) -> Attend:
    """dst[k] += f(V_j p_{j-1} + b_j)[k], neuron by neuron."""
    pairs = [(f"{below(j)}[c]", f"{_row(j)}[c]"), *([("one", "b1")] if net.bias else [])]
    return Attend(f"{dst}[k]", Score(f, *pairs), value=f"e{j}[k]", scope="all", reduce="mean", scale=tokens)


def _forward(net: Network, tokens: int, place: str = "") -> tuple[Layer, ...]:
    layers = []
    for j in range(1, net.depth + 1):
        r = net.activation.r if net.activated(j) else IDENTITY
        layers.append(Layer("attention", f"{place}forward {j}", (_neurons(net, tokens, f"p{j}", j, r),)))
    return tuple(layers)


def _derivatives(net: Network, tokens: int) -> Layer:
    """d_j for all j; the constant 1 for a linear output."""
    found = (
        _neurons(net, tokens, f"d{j}", j, net.activation.dr) if net.activated(j) else Attend(f"d{j}[k]")
        for j in range(1, net.depth + 1)
    )
    return Layer("attention", "derivatives", tuple(found))


def _backward(N: int, tokens: int) -> tuple[Layer, ...]:
    """s_N = omega g d_N; then q = V_{j+1}^T s_{j+1} and s_j = d_j q."""
    last = Attend(f"s{N}[k]", Score(IDENTITY, ("omega", "g[k]")), value=f"d{N}[k]")
    layers = [Layer("product", f"backward {N}", (last,))]
    for j in range(N - 1, 0, -1):
        above = Score(IDENTITY, (f"s{j + 1}[k]", f"e{j + 1}[k]"))
        transposed = Attend("q[c]", above, value="V2[c]", scope="all", reduce="mean", scale=tokens)
        product = Attend(f"s{j}[k]", Score(IDENTITY, ("one", "q[k]")), value=f"d{j}[k]")
        layers.append(Layer("attention", f"transpose {j}", (transposed,)))
        layers.append(Layer("product", f"backward {j}", (product, Attend("q[k]", value="q[k]", scale=-1.0))))
    return tuple(layers)


def _gradient(N: int, dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
    """dst += rate * grad: to V1 from the first layer, to V2 from all others, to the bias from all."""
    layers = range(1, N + 1) if not matrix else (1,) if j == 1 else range(2, N + 1)
    return tuple(
        Attend(
            dst,
            Score(IDENTITY, (f"e{layer}[a]", f"s{layer}[a]")),
            value=f"{below(layer)}[k]" if matrix else "one",
            scope="all",
            reduce="mean",
            scale=rate / 2,
        )
        for layer in layers
    )
