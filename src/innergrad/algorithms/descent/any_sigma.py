"""Gradient descent on an N-layer network, attention and MLPs with any activation: target ``sigma``, *Neural Networks*.

Attention of this kind multiplies a function of a token's own lanes with shared lanes, and averages products
f(<q, k_s>) v_s over the tokens; MLPs multiply. A layer is an attention layer and an MLP. Lanes as in
:mod:`innergrad.algorithms.descent.sink`; s_N carries omega, which is zero on the queries.

Variant ``backprop``, for N >= 3; 2N - 1 layers:

    attention, mlp   1 .. N - 1      p_j, d_j = r, r'(z_j),  z_{j+1} = sum_k V_{j+1}[:,k] r(z_j[k]) + b_{j+1};  U_j, H_j
                                     the last MLP also:  s_N = omega u(z_N, y)        (one layer more unless squared)
    mlp              N .. 2N - 2     q_{N-1} = V_N^T s_N,  q_{j-1} = U_j^T q_j
    attention, mlp   2N - 1          V_j -= eta/2 mean(q_j H_j),  V_N -= eta/2 mean(s_N p_{N-1}^T);  project and clear

For N = 2 the last attention takes q_1 = V_2^T s_2 as its score, so two layers suffice: Theorem 1. In both, the products
of a gradient are those of attention itself, score times value; the paper fits them by two-dimensional dictionaries.

Variant ``recursion``, Theorem 2 as the paper proves it, corrected: forward mode. The Jacobian J_m of z_m in V_1 .. V_m
is computed from J_{m-1}, each level with a forward pass of its own:

    a_N = (N - 1) + a_{N-1} + 2,  a_2 = 2:   forward pass;  J_{N-1};  C_N = V_N r'(z_{N-1}) J_{N-1};  mean(s_N C_N)

(N^2 + 3N - 6) / 2 layers, and K_m D_w lanes for each Jacobian.
"""

from __future__ import annotations

from innergrad.algorithms.descent.averages import (
    Derivative,
    gradient_range,
    kinked,
    last_lane,
    layer_lanes,
    loss_derivative,
)
from innergrad.algorithms.descent.literal import loss_layers
from innergrad.algorithms.descent.sink import kept_lanes, kept_products
from innergrad.algorithms.descent.step import DescentSettings, Gradient, below, descent
from innergrad.algorithms.losses import SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.fits.sigmas import SIGMAS
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.ir.program import DEFAULT_BOUND, Attend, Layer, Options, Program, Score
from innergrad.ir.stream import Lane


def backprop_program(algorithm: DescentSettings, options: Options) -> Program:
    net, N = algorithm.network, algorithm.network.depth
    _require_hinges(net, options)
    bound = gradient_range(algorithm, options)
    scratch = [lane for j in range(1, N + 1) for lane in layer_lanes(net, j) if lane.name != "z1" or N == 1]
    scratch += _signal_lanes(net, bound)
    u = _loss(algorithm, options, bound)
    output, signal = _signal(net, u)
    products = tuple(made for j in range(1, N) for made in kept_products(j))
    layers = _forward(net, kept=True)
    tail = [*output, Layer("mlp", f"backward {N}", (signal,))]
    if tail[0].kind == "attention":
        layers.append(tail.pop(0))
    layers += [_with(tail[0], *products), *tail[1:]]
    scratch += [*u.lanes, *(lane for j in range(1, N) for lane in kept_lanes(net, j))]
    for j in range(N - 1, 0, -1) if N > 2 else ():
        above = (f"V{N}[c,k]", f"s{N}[c]") if j == N - 1 else (f"U{j + 1}[c,k]", f"q{j + 1}[c]")
        layers.append(Layer("mlp", f"backward {j}", (Attend(f"q{j}[k]", Score(IDENTITY, above)),)))
        scratch.append(Lane(f"q{j}", (net.sizes[j],), bound=bound))
    return descent(algorithm, tuple(scratch), tuple(layers), _readout(net), last_lane(net), _gradient(net), smooth=True)


def _loss(algorithm: DescentSettings, options: Options, bound: float) -> Derivative:
    """The derivative of the loss by mlps: attention of this kind has no softmax, so that of the softmax loss is the
    tree of softplus, for differences of logits of up to z_bound.
    """
    net = algorithm.network
    if not isinstance(algorithm.loss, SoftmaxLoss):
        return loss_derivative(algorithm, bound)
    differences = options.z_bound or DEFAULT_BOUND
    lanes, layers = loss_layers(algorithm.loss.smooth(differences, net.sizes[-1]), last_lane(net), net.sizes[-1])
    return Derivative("g[k]", (*lanes, Lane("g", (net.sizes[-1],), bound=1.0 + bound)), layers)


def _gradient(net: Network) -> Gradient:
    N = net.depth

    def gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        if j == N:
            score, value = Score(IDENTITY, ("one", f"s{N}[k]")), f"{below(N)}[c]" if matrix else "one"
        else:
            pair = ("V2[o,k]", "s2[o]") if N == 2 else ("one", f"q{j}[k]")
            score, value = Score(IDENTITY, pair), f"H{j}[k,c]" if matrix else f"d{j}[k]"
        return (Attend(dst, score, value=value, scope="all", reduce="mean", scale=rate / 2),)

    return gradient


def _signal(net: Network, u: Derivative) -> tuple[list[Layer], Attend]:
    """The layers between z_N and s_N, and the instruction for s_N = omega u(z_N, y). An activated output, which the
    paper does not have: p_N and d_N by attention, u(p_N, y), and its product with d_N, which takes the place of u.
    """
    N = net.depth
    if not net.activated(N):
        return [*u.layers], Attend(f"s{N}[k]", Score(IDENTITY, ("omega", u.g)))
    r = net.activation
    own = tuple(Attend(f"{name}{N}[k]", _score(net, f, N, "k")) for name, f in (("p", r.r), ("d", r.dr)))
    product = Layer("mlp", "output derivative", (Attend("h[k]", Score(IDENTITY, (u.g, f"d{N}[k]"))),))
    layers = [Layer("attention", f"activation {N}", own), *u.layers, product]
    return layers, Attend(f"s{N}[k]", Score(IDENTITY, ("omega", "h[k]")))


def _signal_lanes(net: Network, bound: float) -> list[Lane]:
    """s_N, and for an activated output h, its product without the weight of the example."""
    shape = (net.sizes[-1],)
    lanes = [Lane(f"s{net.depth}", shape, bound=bound)]
    return [*lanes, Lane("h", shape, bound=bound)] if net.activated(net.depth) else lanes


def _readout(net: Network) -> tuple[Layer, ...]:
    """z_N, or p_N."""
    N, layers = net.depth, _forward(net, "read-out: ")
    if net.activated(N):
        last = Attend(f"p{N}[k]", _score(net, net.activation.r, N, "k"))
        layers.append(Layer("attention", f"read-out: activation {N}", (last,)))
    return tuple(layers)


def _require_hinges(net: Network, options: Options) -> None:
    """Kinks are sums of hinges sigma(k z) / k, which a sigma has that is relu from afar."""
    hinges = [name for name, known in SIGMAS.items() if known.hinge is not None]
    if kinked(net) and options.sigma not in hinges:
        raise InputError(
            f"{net.activation.name} has kinks, and no unit of {options.sigma}, which is bounded, is a hinge from afar",
            got=f"sigma={options.sigma!r}",
            allowed=f"sigma={', '.join(hinges)}, or a smooth activation",
        )


def _with(layer: Layer, *instructions: Attend) -> Layer:
    return Layer(layer.kind, layer.name, (*layer.instructions, *instructions))


def _score(net: Network, f: Function, j: int, k: str | int, copy: str = "") -> Score:
    """f(z_j[k]); z_1 is not stored: it is the inner product of the input and the weights."""
    if j > 1:
        return Score(f, (f"z{j}{copy}[{k}]", "one"))
    pairs = (("x[c]", f"V1[{k},c]"), ("one", f"b1[{k}]"))
    return Score(f, *(pairs if net.bias else pairs[:1]))


def _forward(net: Network, place: str = "", kept: bool = False, copy: str = "", depth: int = 0) -> list[Layer]:
    """z_2 .. z_N by one attention layer each; if kept, p_j and d_j by the same heads. copy: of the lanes z_j."""
    r, layers = net.activation, []
    if net.depth == 1:
        return [Layer("attention", f"{place}forward 1", (Attend("z1[k]", _score(net, IDENTITY, 1, "k")),))]
    for j in range(1, depth or net.depth):
        made = [
            Attend(f"z{j + 1}{copy}[o]", _score(net, r.r, j, k, copy), value=f"V{j + 1}[o,{k}]")
            for k in range(net.sizes[j])
        ]
        made += [Attend(f"z{j + 1}{copy}[o]", value=f"b{j + 1}[o]")] if net.bias else []
        if kept:
            made += [Attend(f"p{j}[k]", _score(net, r.r, j, "k")), Attend(f"d{j}[k]", _score(net, r.dr, j, "k"))]
        layers.append(Layer("attention", f"{place}forward {j}", tuple(made)))
    return layers


# ----------------------------------------------------------------------------------------------- the paper's recursion


def recursion_program(algorithm: DescentSettings, options: Options) -> Program:
    net, N = algorithm.network, algorithm.network.depth
    _require_hinges(net, options)
    if N == 2:
        return backprop_program(algorithm, options)  # Theorem 1
    if net.bias or N < 2:
        raise InputError(
            "the recursion takes two layers, or more without biases, as the paper's networks are",
            got=f"{N} layer{'s' * (N > 1)}, bias={net.bias}",
            hint="use variant='backprop'" + (", or bias=False" if net.bias and N > 1 else ""),
        )
    bound, own = gradient_range(algorithm, options), _Recursion(net)
    u = _loss(algorithm, options, bound)
    own.scratch += [Lane(f"z{j}", (net.sizes[j],)) for j in range(2, N)] + [*layer_lanes(net, N)]
    own.scratch += [*u.lanes, *_signal_lanes(net, bound)]
    output, signal = _signal(net, u)
    layers = [*_forward(net), *output, *own.jacobian(N - 1)]
    attention, mlp = own.combine(N, "")
    layers += [attention, _with(mlp, signal)]

    def gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        """V_N: s_N p_{N-1}^T; others: the sum over the outputs o of s_N[o] C_N[o]."""
        terms = [(f"s{N}[k]", f"P{N - 1}[c]")]
        if j < N:
            terms = [(f"s{N}[{o}]", f"C{N}V{j}[{o},k,c]") for o in range(net.sizes[N])]
        return tuple(
            Attend(dst, Score(IDENTITY, ("one", s)), value=value, scope="all", reduce="mean", scale=rate / 2)
            for s, value in terms
        )

    return descent(algorithm, tuple(own.scratch), tuple(layers), _readout(net), last_lane(net), gradient, smooth=True)


class _Recursion:
    """Jacobians: the lane JmVi[h,c,e] holds the derivative of z_m[h] in V_i[c,e], i < m; that in V_m is P_{m-1}."""

    def __init__(self, net: Network) -> None:
        self.net, self.scratch = net, list[Lane]()

    def _lane(self, name: str, *shape: int) -> None:
        self.scratch.append(Lane(name, shape))

    def jacobian(self, m: int) -> list[Layer]:
        """a_m layers."""
        net, sizes, r = self.net, self.net.sizes, self.net.activation
        if m == 2:
            self._lane("P1", sizes[1])
            self._lane("D1", sizes[1])
            self._lane("T1", sizes[1], sizes[0])
            self._lane("J2V1", sizes[2], sizes[1], sizes[0])
            activations = Attend("P1[k]", _score(net, r.r, 1, "k")), Attend("D1[k]", _score(net, r.dr, 1, "k"))
            return [
                Layer("attention", "Jacobian 2: activations", activations),
                Layer("mlp", "Jacobian 2: inputs", (Attend("T1[c,e]", Score(IDENTITY, ("D1[c]", "x[e]"))),)),
                Layer("mlp", "Jacobian 2", (Attend("J2V1[k,c,e]", Score(IDENTITY, ("V2[k,c]", "T1[c,e]"))),)),
            ]
        copy = f"at{m}"
        for j in range(2, m + 1):
            self._lane(f"z{j}{copy}", sizes[j])
        layers = _forward(net, f"Jacobian {m}: ", copy=copy, depth=m)
        layers += [*self.jacobian(m - 1), *self.combine(m, copy)]
        for i in range(1, m):
            self._lane(f"J{m}V{i}", sizes[m], sizes[i], sizes[i - 1])
        stored = (Attend(f"J{m}V{i}[k,c,e]", value=f"C{m}V{i}[k,c,e]") for i in range(1, m))
        return [*layers, Layer("mlp", f"Jacobian {m}", tuple(stored))]

    def combine(self, m: int, copy: str) -> tuple[Layer, Layer]:
        """C_m = V_m r'(z_{m-1}) J_{m-1}: E_m = V_m r' by attention, whose values are shared; its product by the mlp."""
        net, sizes, r, h = self.net, self.net.sizes, self.net.activation, self.net.sizes[m - 1]
        self._lane(f"E{m}", sizes[m], h)
        self._lane(f"P{m - 1}", h)
        for i in range(1, m):
            self._lane(f"C{m}V{i}", sizes[m], sizes[i], sizes[i - 1])
        weighted = (Attend(f"E{m}[k,{c}]", _score(net, r.dr, m - 1, c, copy), value=f"V{m}[k,{c}]") for c in range(h))
        attention = (*weighted, Attend(f"P{m - 1}[k]", _score(net, r.r, m - 1, "k", copy)))
        products = [
            Attend(f"C{m}V{i}[k,c,e]", Score(IDENTITY, (f"E{m}[k,h]", f"J{m - 1}V{i}[h,c,e]"))) for i in range(1, m - 1)
        ]
        products.append(Attend(f"C{m}V{m - 1}[k,c,e]", Score(IDENTITY, (f"E{m}[k,c]", f"P{m - 2}[e]"))))
        return Layer("attention", f"chain rule {m}", attention), Layer("mlp", f"chain rule {m}: sum", tuple(products))
