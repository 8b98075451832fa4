"""Derivatives along the way forward: variant ``wide`` of target ``llama`` has them in place of a backward pass.

With U_j = d_j V_j, H_m = d_m p_{m-1}^T and q_{N-1} the derivative of the loss in p_{N-1}, an example has the gradients

    G_m = q_{N-1}^T S_m,   s_m = q_{N-1}^T T_m              m < N - 1, and, as in the chain, for m >= N - 1
    S_m = U_{N-1} .. U_{m+1} H_m                            K D_m numbers, if D_m is the size of V_m
    T_m = U_{N-1} .. U_{m+1} d_m                            for biases

The products grow by one factor an MLP: U_j is there one MLP after d_j, and so is the product up to U_j one after that.
So S_m is complete with the second MLP behind the last activation, for every m, and the gradients with the third. A step
takes N + 2 blocks for every loss, where the chain has 2N - 1 or 2N. An activated output is a block more.

A product takes the lane of the one before it, if that has its shape. Not so if they are to be *apart*: where every
value has two lanes (:mod:`innergrad.model.double`), its correction needs its factors one MLP later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from innergrad.algorithms.descent.step import below
from innergrad.algorithms.networks import Network
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.ir.program import Attend, Score, pointwise
from innergrad.ir.stream import Lane


def product_lanes(net: Network, apart: bool = False) -> tuple[Lane, ...]:
    """The lanes of H_m, S_m and T_m; products of the same shape share theirs, if not apart."""
    lanes = dict[str, Lane]()
    for m in range(1, net.depth):
        lanes[f"H{m}"] = Lane(f"H{m}", (net.sizes[m], net.sizes[m - 1]))
        for j in range(m + 1, net.depth):
            for lane in lanes_of(net, j, m, apart=apart):
                lanes[lane.name] = lane
    return tuple(lanes.values())


def lanes_of(net: Network, j: int, m: int, *, bias: bool | None = None, apart: bool = False) -> tuple[Lane, ...]:
    """Of the products from U_j to m; bias: whether there is one for it, by default where the network has biases."""
    (a, k), c = (net.sizes[i] for i in (j, m)), net.sizes[m - 1]
    name = f"{m}_{a}_{j}" if apart else f"{m}_{a}"
    S = Lane(f"S{name}", (a, k, c))
    return (S, Lane(f"T{name}", (a, k))) if (net.bias if bias is None else bias) else (S,)


def onward(U: str, lane: Lane, old: str, before: Iterable[Lane], lead: str = "") -> Iterator[Attend]:
    """U times the product in the lane ``old``. Where it takes the lane of an earlier product, the rest of that product
    is cleared.

    lead: labels in front of those of U.
    """
    if lane in before:
        yield from pointwise(NEGATION, (lane,))
    factors = f"{U}[e,a]", f"{old}[{lead}a,{_rest(lane, lead)}]"
    yield Attend(view_of(lane, lead), Score(IDENTITY, factors))


def view_of(lane: Lane, lead: str = "") -> str:
    return f"{lane.name}[{lead}e,{_rest(lane, lead)}]"


def _rest(lane: Lane, lead: str) -> str:
    """The labels behind e: those of a matrix, for S_m, or of a bias, for T_m."""
    return "k,c" if len(lane.shape) - lead.count(",") == 3 else "k"


def outer_slopes(j: int) -> Attend:
    """H_j = d_j p_{j-1}^T."""
    return Attend(f"H{j}[k,c]", Score(IDENTITY, (f"d{j}[k]", f"{below(j)}[c]")))


def longer(net: Network, j: int, apart: bool = False) -> tuple[Attend, ...]:
    """U_j times the products up to U_{j-1}, or times H_{j-1} and d_{j-1}; for all of them."""
    return tuple(i for m in range(1, j) for i in _longer(net, j, m, apart))


def _longer(net: Network, j: int, m: int, apart: bool) -> Iterator[Attend]:
    new = lanes_of(net, j, m, apart=apart)
    U = f"U{j}"
    if j == m + 1:
        first = {"S": (f"{U}[e,k]", f"H{m}[k,c]"), "T": (f"{U}[e,k]", f"d{m}[k]")}
        for lane in new:
            yield Attend(view_of(lane), Score(IDENTITY, first[lane.name[0]]))
        return
    before = [lane for i in range(m + 1, j) for lane in lanes_of(net, i, m, apart=apart)]
    for lane, old in zip(new, lanes_of(net, j - 1, m, apart=apart), strict=True):
        yield from onward(U, lane, old.name, before)


def gradients(net: Network, apart: bool = False) -> tuple[Attend, ...]:
    """G_m and s_m, m < N - 1, from q_{N-1}."""
    made = list[Attend]()
    for m in range(1, net.depth - 1):
        for lane in lanes_of(net, net.depth - 1, m, apart=apart):
            dst = f"G{m}[k,c]" if lane.name[0] == "S" else f"s{m}[k]"
            made.append(Attend(dst, Score(IDENTITY, (f"q{net.depth - 1}[e]", view_of(lane)))))
    return tuple(made)
