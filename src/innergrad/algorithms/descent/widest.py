"""Gradient descent on an N-layer network in N + 1 blocks a step, for every loss: attention multiplies, too.

Markers hold the weights, as all tokens do. An MLP makes fV_j = slope(f) V_j of them: weights times the marker's part of
the derivative (:mod:`innergrad.algorithms.descent.sigmoids`), and zero on other tokens. A head that has these as its
values writes a derivative *times the weights behind it*, where one MLP after it would have to multiply:

    U_{j+1} = V_{j+1} diag(d_j)                        by the head of d_j itself

So the derivatives of z_{j+1} in the weights, made on the way forward, are complete with the MLP behind activation j:

    mlp             z_1 = V_1 x + b_1,  fV_j = slope(f) V_j                                            before a step
    attention, mlp  p_j, U_{j+1};   z_{j+1} = V_{j+1} p_j + b_{j+1},
                    S_j = U_{j+1} p_{j-1}^T,  S_m <- U_{j+1} S_m,  T_m <- U_{j+1} T_m,  T_j = U_{j+1}     j < N, m < j
    attention, mlp  g = u(z_N, y), where it is not linear;   G_m = g^T S_m,  s_m = g^T T_m,  G_N = g p_{N-1}^T
    attention, mlp  V_j -= eta/2 mean(G_j),  b_j -= eta/2 mean(s_j);   for the next step z_1, fV_j;   clear

S_m is (n_{j+1}, n_m, n_{m-1}) behind activation j, n_j the size of layer j. An activated output has S_m <- d_N S_m as
an MLP more: N + 2. So has silu, whose U_{j+1} takes the MLP: with e = sigmoid(z), h = sigmoid'(z), d = e + z h,

    attention, mlp  e_j, V_{j+1} e_j, V_{j+1} h_j;   z_{j+1} = (V_{j+1} e_j) z_j,
                    U_{j+1} = V_{j+1} e_j + (V_{j+1} h_j) z_j

Derivatives of piecewise-linear activations are step functions, which markers do not have: they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from innergrad.algorithms.descent import wide
from innergrad.algorithms.descent.activate import Activate, ByUnits, Weighted
from innergrad.algorithms.descent.averages import forward
from innergrad.algorithms.descent.chain import Chain, Output, output_of, program_of
from innergrad.algorithms.descent.sigmoids import Sigmoid
from innergrad.algorithms.descent.step import DescentSettings, below
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.ir.program import Attend, Layer, Options, Program, Score, expr
from innergrad.ir.stream import Lane


def widest_program(algorithm: DescentSettings, options: Options) -> Program:
    return program_of(algorithm, output_of(algorithm, options), _steps)


def _steps(output: Output) -> Chain:
    """A step up to the mean."""
    net, N = output.net, output.net.depth
    carried = carried_of(output.activate, net)
    layers, waiting = list[Layer](), tuple[Attend, ...]()
    for j in range(1, N):
        heads, made = carried.heads(j), longer(net, j)
        layers += [Layer("attention", f"activation {j}", heads)] if heads else []
        layers.append(Layer("mlp", f"forward {j + 1}", (*carried.products(j), *(waiting if carried.late else made))))
        waiting = made if carried.late else ()
    if net.activated(N):
        last = list(output.activate(N, derivative=True))
        if waiting and last[-1].kind == "mlp":
            last[-1] = Layer("mlp", last[-1].name, (*last[-1].instructions, *waiting))
        layers += [*last, Layer("mlp", f"slopes {N}", tuple(_slopes(net)))]
    loss = [output.loss] if output.loss is not None else []
    if waiting and not net.activated(N):
        layers += [*loss, Layer("mlp", "products", waiting)]
    else:
        layers += loss
    layers.append(Layer("mlp", "gradients", tuple(_gradients(output))))
    z = Lane("z1", (net.sizes[1],), "state", shared=False)
    return Chain(
        tuple(layers), _scratch(output, carried), (*forward(net, 1), *carried.prepared()), (z, *carried.kept())
    )


# ---------------------------------------------------------------------------------------------------- one layer onward


@dataclass(frozen=True)
class Carried:
    """Of tanh and sigmoid: how p_j, z_{j+1} and U_{j+1} come about. late: U_{j+1} is there with the MLP alone.

    values: prefix of the lanes of marked weights -> the value that a head reads on markers, in f.
    """

    net: Network
    sigmoid: Sigmoid
    late: bool = False

    @property
    def values(self) -> dict[str, str]:
        return {"f": self.sigmoid.slope}

    def kept(self) -> tuple[Lane, ...]:
        """The marked weights: zero but on markers."""
        sizes = self.net.sizes
        return tuple(
            Lane(f"{name}V{j}", (sizes[j], sizes[j - 1]), "state", shared=False)
            for j in range(2, self.net.depth + 1)
            for name in self.values
        )

    def prepared(self) -> tuple[Attend, ...]:
        return tuple(
            Attend(f"{name}V{j}[k,c]", Score(IDENTITY, (value, f"V{j}[k,c]")))
            for j in range(2, self.net.depth + 1)
            for name, value in self.values.items()
        )

    def head(self, dst: str, j: int, value: str) -> Attend:
        """dst[k,c] = f(z_j[c]) V_{j+1}[k,c], from marked weights."""
        return self.sigmoid.of(f"{dst}{j + 1}[k,c]", f"z{j}[c]").changed(value=expr(f"{value}V{j + 1}[k,c]"))

    def heads(self, j: int) -> tuple[Attend, ...]:
        return self.sigmoid.of(f"p{j}[k]", f"z{j}[k]"), self.head("U", j, "f")

    def products(self, j: int) -> tuple[Attend, ...]:
        return forward(self.net, j + 1)

    def lanes(self, j: int) -> Iterator[Lane]:
        """Scratch lanes of a hidden layer, and of the step to the next."""
        yield Lane(f"p{j}", (self.net.sizes[j],))
        yield Lane(f"U{j + 1}", (self.net.sizes[j + 1], self.net.sizes[j]))

    def biases(self, j: int) -> tuple[Attend, ...]:
        return (Attend(f"z{j + 1}[k]", value=f"b{j + 1}[k]"),) if self.net.bias else ()


class CarriedWeighted(Carried):
    """silu: p = z e, d = e + z h, e = sigmoid(z), h = sigmoid'(z)."""

    @property
    def values(self) -> dict[str, str]:
        return {"e": self.sigmoid.value, "h": self.sigmoid.slope}

    def heads(self, j: int) -> tuple[Attend, ...]:
        """U_{j+1} = V_{j+1} e, to begin with."""
        return self.sigmoid.of(f"e{j}[k]", f"z{j}[k]"), self.head("U", j, "e"), self.head("hU", j, "h")

    def products(self, j: int) -> tuple[Attend, ...]:
        """U_{j+1} += V_{j+1} h z; all others read it before that."""
        U, z = f"U{j + 1}[k,c]", f"z{j}[c]"
        return (
            Attend(f"p{j}[k]", Score(IDENTITY, (f"z{j}[k]", f"e{j}[k]"))),
            Attend(f"z{j + 1}[k]", Score(IDENTITY, (U, z))),
            *self.biases(j),
            Attend(U, Score(IDENTITY, (f"hU{j + 1}[k,c]", z))),
        )

    def lanes(self, j: int) -> Iterator[Lane]:
        yield from super().lanes(j)
        yield Lane(f"e{j}", (self.net.sizes[j],))
        yield Lane(f"hU{j + 1}", (self.net.sizes[j + 1], self.net.sizes[j]))


def carried_of(activate: Activate, net: Network) -> Carried:
    if isinstance(activate, ByUnits):
        raise InputError(
            "derivatives times weights are attention over markers, and neither steps nor fits are sums of it",
            got=f"activation {net.activation.name}",
            allowed="tanh, sigmoid, silu",
            hint="variants chain and wide take others",
        )
    if isinstance(activate, Weighted):
        return CarriedWeighted(net, activate.sigmoid, late=True)
    return Carried(net, activate.sigmoid)


# ----------------------------------------------------------------------------------------- derivatives in the weights


def lanes_of(net: Network, j: int, m: int) -> tuple[Lane, ...]:
    """The derivatives of z_j in V_m, and, for the bias, in z_m, which for j = m + 1 is U_j; products of the same shape
    share a lane.
    """
    return wide.lanes_of(net, j, m, bias=net.bias and j > m + 1)


def longer(net: Network, j: int) -> tuple[Attend, ...]:
    """The derivatives of z_{j+1}: U_{j+1} times those of z_j, and S_j = U_{j+1} p_{j-1}^T."""
    own = Attend(wide.view_of(lanes_of(net, j + 1, j)[0]), Score(IDENTITY, (f"U{j + 1}[e,k]", f"{below(j)}[c]")))
    return (own, *(i for m in range(1, j) for i in _longer(net, j, m)))


def _longer(net: Network, j: int, m: int) -> Iterator[Attend]:
    before = [lane for i in range(m + 1, j + 1) for lane in lanes_of(net, i, m)]
    for lane, old in zip(lanes_of(net, j + 1, m), names_of(net, j, m), strict=False):
        yield from wide.onward(f"U{j + 1}", lane, old, before)


def names_of(net: Network, j: int, m: int) -> Iterator[str]:
    """The lanes of the derivatives of z_j in V_m and in z_m."""
    yield lanes_of(net, j, m)[0].name
    if net.bias:
        yield lanes_of(net, j, m)[1].name if j > m + 1 else f"U{j}"


def _slopes(net: Network) -> Iterator[Attend]:
    """Of an activated output: the derivatives of p_N, from those of z_N; H_N = d_N p_{N-1}^T."""
    N = net.depth
    yield Attend(f"H{N}[k,c]", Score(IDENTITY, (f"d{N}[k]", f"{below(N)}[c]")))
    for m in range(1, N):
        for name, labels in zip(names_of(net, N, m), ("e,k,c", "e,k"), strict=False):
            view = f"{name}[{labels}]"
            yield Attend(view, Score(NEGATION, (view, "one")))
            yield Attend(view, Score(IDENTITY, (f"d{N}[e]", view)))


def _gradients(output: Output) -> Iterator[Attend]:
    """G_m and s_m from the derivative of the loss in the output."""
    net, N, g = output.net, output.net.depth, output.derivative
    if net.activated(N):
        yield Attend(f"G{N}[k,c]", Score(IDENTITY, (g, f"H{N}[k,c]")))
        if net.bias:
            yield Attend(f"s{N}[k]", Score(IDENTITY, (g, f"d{N}[k]")))
    else:
        yield Attend(f"G{N}[k,c]", Score(IDENTITY, (g, f"{below(N)}[c]")))
    for m in range(1, N):
        written = zip(names_of(net, N, m), (f"G{m}[k,c]", f"s{m}[k]"), ("e,k,c", "e,k"), strict=False)
        for name, dst, labels in written:
            yield Attend(dst, Score(IDENTITY, (g.replace("[k]", "[e]"), f"{name}[{labels}]")))


def _scratch(output: Output, carried: Carried) -> tuple[Lane, ...]:
    """Cleared at the end of every step."""
    net, N, sizes = output.net, output.net.depth, output.net.sizes
    lanes = [Lane(f"G{j}", (sizes[j], sizes[j - 1])) for j in range(1, N + 1)]
    lanes += [Lane(f"z{j}", (sizes[j],)) for j in range(2, N + 1)]
    lanes += [lane for j in range(1, N) for lane in carried.lanes(j)]
    lanes += [Lane(f"s{j}", (sizes[j],)) for j in range(1, N + 1) if net.bias and net.activated(j)]
    products = {lane.name: lane for m in range(1, N) for j in range(m + 1, N + 1) for lane in lanes_of(net, j, m)}
    lanes += products.values()
    if net.activated(N):
        own = ("p", "d", *output.activate.lanes)
        lanes += [*(Lane(f"{name}{N}", (sizes[N],)) for name in own), Lane(f"H{N}", (sizes[N], sizes[N - 1]))]
    return (*lanes, *([Lane("g", (sizes[N],))] if output.loss is not None else []))
