"""Gradient descent on an N-layer network with the squared loss in N blocks a step: as many as it needs attentions, one
for every activation and one for the mean.

Behind the last activation there is a single MLP, and G_m is a product of p_{N-1}, d_{N-1} and more. So attention has to
multiply. In :mod:`innergrad.algorithms.descent.widest` a head multiplies a function of z by weights, which are its
values. Here a head also multiplies functions of *two* neurons. It attends to nine markers (i, j), whose scores are the
sums of those of single markers. So its weights are products, and with the values v_i w_j X the head reads v(z_a) w(z_b)
X:

    attention   r_b  = sum_a M_ba p_a d_b,  M = 2 V_N^T V_N       that is d (V_N^T 2 V_N p)_b;   p, d of layer N - 1
                U_N  = V_N diag(d),   z_N = V_N p,   G_N = 2 z_N p^T
    mlp         G_m  = r^T S_m - 2 U_N (y S_m),   s_m = r^T T_m - 2 U_N (y T_m)                              m < N - 1
                G_{N-1} = r p_{N-2}^T - 2 U_N (y p_{N-2}^T),  s_{N-1} = r - 2 U_N y,   G_N -= 2 y p^T

with y - b_N for y. S_m and T_m, the derivatives of z_{N-1}, are those of ``widest``; y S_m, the outer products with y,
are made along with them, for nothing behind the last activation could. M has a value on markers by the MLP behind the
first activation. Networks with N = 2 have none before the last one. There the head reads 2 V_N p_a d_b, and V_N x, made
before the step, is its factor. N = 1 takes one block in every variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from innergrad.algorithms.descent import wide
from innergrad.algorithms.descent.averages import forward
from innergrad.algorithms.descent.chain import Chain, Output, output_of, program_of
from innergrad.algorithms.descent.sigmoids import LOG_2, SIGMOIDS, Sigmoid
from innergrad.algorithms.descent.step import DescentSettings, below, times
from innergrad.algorithms.descent.widest import Carried, carried_of, lanes_of, longer, names_of
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Mark, Options, Program, Score, expr
from innergrad.ir.stream import Lane

PAIRS = SIGMOIDS**2


def shortest_program(algorithm: DescentSettings, options: Options) -> Program:
    output = output_of(algorithm, options)
    if not output.squared:
        raise InputError(
            "shortest multiplies the output's derivative into products of attention, for a linear one",
            got=f"loss {algorithm.loss.name}, output {algorithm.network.output}",
            allowed="the squared loss with a linear output",
            hint="variant='widest' takes N + 1 blocks, whatever the loss",
        )
    return program_of(algorithm, output, _steps)


def _steps(output: Output) -> Chain:
    net, N = output.net, output.net.depth
    carried = carried_of(output.activate, net)
    if carried.late:
        what, hint = "shortest takes activations that are polynomials of sigmoids", "variant='widest' takes silu"
        raise InputError(what, got=net.activation.name, allowed="tanh, sigmoid", hint=hint)
    last = Last(net, carried.sigmoid)
    layers = list[Layer]()
    for j in range(1, N - 1):
        layers.append(Layer("attention", f"activation {j}", carried.heads(j)))
        made = (*carried.products(j), *longer(net, j), *_with_targets(net, j), *(last.marked() if j == 1 else ()))
        layers.append(Layer("mlp", f"forward {j + 1}", made))
    layers.append(Layer("attention", f"activation {N - 1}", (*carried.heads(N - 1), *last.heads())))
    layers.append(Layer("mlp", "gradients", tuple(last.gradients())))
    z = Lane("z1", (net.sizes[1],), "state", shared=False)
    prepared, kept = last.prepared()
    inputs = (Lane("pair", (PAIRS,), "input", bound=1.0), Lane("paired", (), "input", bound=1.0))
    marks = tuple(Mark(name, i, i if name == "pair" else 0) for i in range(PAIRS) for name in ("pair", "paired"))
    return Chain(
        tuple(layers),
        (*_scratch(net, carried), *last.scratch()),
        (*forward(net, 1), *carried.prepared(), *prepared),
        (z, *carried.kept(), *kept),
        inputs=inputs,
        marks=marks,
    )


def residual(net: Network, label: str = "o") -> str:
    """y - b_N."""
    return f"y[{label}] - b{net.depth}[{label}]" if net.bias else f"y[{label}]"


# --------------------------------------------------------------------------------------- behind the last activation


class Last:
    """The last activation, of layer N - 1, and the MLP behind it."""

    def __init__(self, net: Network, sigmoid: Sigmoid) -> None:
        self.net, self.sigmoid, self.N = net, sigmoid, net.depth
        self.short = net.depth == 2
        self.z = f"z{self.N - 1}"

    def pair(self, first: str, second: str) -> str:
        """v_i w_j on marker (i, j), from v and w on single markers."""
        v, w = ({view.index: view.coefficient for view in expr(text)} for text in (first, second))
        found = ((v.get((i,), 0.0) * w.get((j,), 0.0), SIGMOIDS * i + j) for i, j in product(range(SIGMOIDS), repeat=2))
        return "".join(f" {'-' if c < 0 else '+'} {abs(c)!r}*pair[{at}]" for c, at in found if c).lstrip(" +")

    def head(self, dst: str, a: int, value: str) -> Attend:
        """dst[.., k] += v(z_a) w(z_k) value[.., k], from marked values."""
        ones = " + ".join(f"f[{i}]" for i in range(SIGMOIDS))
        place = "f[1] + 2.0*f[2]"
        scores = [
            (times(self.sigmoid.rate, f"{self.z}[{a}]"), self.pair(place, ones)),
            (times(self.sigmoid.rate, f"{self.z}[k]"), self.pair(ones, place)),
            (expr("one"), f"{self.pair(LOG_2, ones)} + {self.pair(ones, LOG_2)}"),
        ]
        return Attend(dst, Score(IDENTITY, *scores), value=value, scope="paired", reduce="softmax")

    def prepared(self) -> tuple[tuple[Attend, ...], tuple[Lane, ...]]:
        """Before a step: the values of z_N and of G_N; M, or, with N = 2, the values of V_N p d, and V_N x."""
        N, (K, d_y) = self.N, self.net.sizes[-2:]
        V = f"V{N}[o,k]"
        pp = self.pair(self.sigmoid.value, self.sigmoid.value)
        made = [
            Attend("pV[o,k]", Score(IDENTITY, (self.sigmoid.value, V))),
            Attend("ppV[o,k]", Score(IDENTITY, (pp, V))),
        ]
        lanes = [Lane("pV", (d_y, K)), Lane("ppV", (d_y, K))]
        if self.short:
            pd = self.pair(self.sigmoid.value, self.sigmoid.slope)
            made += [Attend("pdV[o,k]", Score(IDENTITY, (pd, V))), Attend("Vx[o,k,c]", Score(IDENTITY, (V, "x[c]")))]
            lanes += [Lane("pdV", (d_y, K)), Lane("Vx", (d_y, K, self.net.sizes[0]))]
        else:
            made.append(Attend("VtV[k,c]", Score(IDENTITY, (f"V{N}[e,k]", f"V{N}[e,c]")), scale=2.0))
            lanes.append(Lane("VtV", (K, K)))
        made.append(Attend("yp0[o,c]", Score(IDENTITY, (residual(self.net), "x[c]"))))
        lanes.append(Lane("yp0", (d_y, self.net.sizes[0])))
        return tuple(made), tuple(Lane(lane.name, lane.shape, "state", shared=False) for lane in lanes)

    def marked(self) -> tuple[Attend, ...]:
        """The values of r: M on markers."""
        pd = self.pair(self.sigmoid.value, self.sigmoid.slope)
        return (Attend("pdM[k,c]", Score(IDENTITY, (pd, "VtV[k,c]"))),)

    def heads(self) -> Iterator[Attend]:
        for a in range(self.net.sizes[-2]):
            z = self.sigmoid.of(f"z{self.N}[k]", f"{self.z}[{a}]")
            yield z.changed(value=expr(f"pV[k,{a}]"))
            yield self.head(f"G{self.N}[o,k]", a, f"2.0*ppV[o,{a}]")
            yield self.head("X[o,k]", a, f"pdV[o,{a}]") if self.short else self.head("r[k]", a, f"pdM[k,{a}]")

    def gradients(self) -> Iterator[Attend]:
        net, N, y = self.net, self.N, residual(self.net)
        U = f"U{N}[o,e]"
        yield Attend(f"G{N}[k,c]", Score(IDENTITY, (residual(net, "k"), f"p{N - 1}[c]")), scale=-2.0)
        if net.bias:
            yield Attend(f"z{N}[k]", value=f"b{N}[k]")
        dst = f"G{N - 1}[k,c]"
        if self.short:
            yield Attend(dst, Score(IDENTITY, ("X[o,k]", "Vx[o,k,c]")), scale=2.0)
        else:
            yield Attend(dst, Score(IDENTITY, ("r[k]", f"{below(N - 1)}[c]")))
        yield Attend(dst, Score(IDENTITY, (f"U{N}[o,k]", f"yp{N - 2}[o,c]")), scale=-2.0)
        if net.bias:
            s = f"s{N - 1}[k]"
            yield (
                Attend(s, Score(IDENTITY, ("X[o,k]", f"V{N}[o,k]")), scale=2.0)
                if self.short
                else Attend(s, value="r[k]")
            )
            yield Attend(s, Score(IDENTITY, (f"U{N}[o,k]", y)), scale=-2.0)
        for m in range(1, N - 1):
            written = zip(names_of(net, N - 1, m), "ST", (f"G{m}[k,c]", f"s{m}[k]"), ("e,k,c", "e,k"), strict=False)
            for name, kind, dst, labels in written:
                yield Attend(dst, Score(IDENTITY, ("r[e]", f"{name}[{labels}]")))
                own = f"y{kind}{m}_{net.sizes[N - 1]}"
                yield Attend(dst, Score(IDENTITY, (U, f"{own}[o,{labels}]")), scale=-2.0)

    def scratch(self) -> tuple[Lane, ...]:
        K, d_y = self.net.sizes[-2:]
        return (Lane("X", (d_y, K)),) if self.short else (Lane("r", (K,)), Lane("pdM", (K, K)))


# ----------------------------------------------------------------------------------------- outer products with y - b_N


def _with_targets(net: Network, j: int) -> Iterator[Attend]:
    """y p_j^T, y S_m and y T_m, as the derivatives of z_{j+1} are made."""
    y, U = residual(net), f"U{j + 1}"
    yield Attend(f"yp{j}[o,c]", Score(IDENTITY, (y, f"p{j}[c]")))
    yield Attend(f"yS{j}_{net.sizes[j + 1]}[o,e,k,c]", Score(IDENTITY, (f"{U}[e,k]", f"yp{j - 1}[o,c]")))
    if net.bias:
        yield Attend(f"yT{j}_{net.sizes[j + 1]}[o,e,k]", Score(IDENTITY, (f"{U}[e,k]", y)))
    for m in range(1, j):
        before = [lane for i in range(m + 1, j + 1) for lane in _targets(net, i, m)]
        for lane, old in zip(_targets(net, j + 1, m), _targets(net, j, m), strict=True):
            yield from wide.onward(U, lane, old.name, before, lead="o,")


def _targets(net: Network, j: int, m: int) -> tuple[Lane, ...]:
    """The lanes of y S_m and y T_m for the derivatives of z_j."""
    return tuple(Lane(f"y{lane.name}", (net.sizes[-1], *lane.shape)) for lane in wide.lanes_of(net, j, m))


def _scratch(net: Network, carried: Carried) -> Iterator[Lane]:
    """Cleared at the end of every step."""
    N, sizes = net.depth, net.sizes
    for j in range(1, N + 1):
        yield Lane(f"G{j}", (sizes[j], sizes[j - 1]))
        yield from (Lane(f"z{j}", (sizes[j],)) for _ in range(j > 1))
        yield from (Lane(f"s{j}", (sizes[j],)) for _ in range(net.bias and j < N))
    for j in range(1, N):
        yield from carried.lanes(j)
        yield from (Lane(f"yp{j}", (sizes[-1], sizes[j])) for _ in range(j < N - 1))
    products = dict[str, Lane]()
    for m in range(1, N - 1):
        for j in range(m + 1, N):
            products |= {lane.name: lane for lane in (*lanes_of(net, j, m), *_targets(net, j, m))}
    yield from products.values()
