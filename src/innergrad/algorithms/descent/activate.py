"""Activations and their derivatives as layers: p_j = r(z_j), d_j = r'(z_j). But for the last, without an approximation.

tanh, sigmoid          attention over markers (:mod:`innergrad.algorithms.descent.sigmoids`)
silu                   attention: e = sigmoid(z), h = sigmoid'(z);   mlp: p = z e,  d = e + z h
piecewise linear       mlp: p and, by ramps as everywhere, the steps of d
any other              mlp: p and d, by fits
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from innergrad.algorithms.descent.sigmoids import SIGMOID, TANH, Sigmoid
from innergrad.functions.activation import ACTIVATIONS, Activation
from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Score


@dataclass(frozen=True)
class Activate:
    """Of tanh and sigmoid. lanes: the lanes of a layer beside pj and dj, by the letters of their names."""

    sigmoid: Sigmoid
    lanes: tuple[str, ...] = ()

    def __call__(self, j: int, place: str = "", *, derivative: bool) -> Iterator[Layer]:
        yield Layer("attention", f"{place}activation {j}", self.heads(j, "pd" if derivative else "p"))

    def heads(self, j: int, lanes: str) -> tuple[Attend, ...]:
        """The function into the first lane, and its derivative into the second, if there is one."""
        z = f"z{j}[k]"
        return tuple(self.sigmoid.of(f"{lane}{j}[k]", z, slope=n > 0) for n, lane in enumerate(lanes))


@dataclass(frozen=True)
class Weighted(Activate):
    """silu."""

    lanes: tuple[str, ...] = ("e", "h")

    def __call__(self, j: int, place: str = "", *, derivative: bool) -> Iterator[Layer]:
        yield Layer("attention", f"{place}sigmoid {j}", self.heads(j, "eh" if derivative else "e"))
        z, e, h = (f"{name}{j}[k]" for name in "zeh")
        made = [Attend(f"p{j}[k]", Score(IDENTITY, (z, e)))]
        if derivative:
            made += [Attend(f"d{j}[k]", Score(IDENTITY, (z, h))), Attend(f"d{j}[k]", value=e)]
        yield Layer("mlp", f"{place}activation {j}", tuple(made))


@dataclass(frozen=True)
class ByUnits(Activate):
    """Piecewise-linear activations, and those that are fitted: the MLP has units for them."""

    activation: Activation = ACTIVATIONS["relu"]

    def __call__(self, j: int, place: str = "", *, derivative: bool) -> Iterator[Layer]:
        functions = {"p": self.activation.r, "d": self.activation.dr}
        made = (Attend(f"{lane}{j}[k]", Score(f, (f"z{j}[k]", "one"))) for lane, f in functions.items())
        yield Layer("mlp", f"{place}activation {j}", tuple(made)[: 1 + derivative])


def activate_of(activation: Activation) -> Activate:
    """The layers of an activation: exact ones, if there are any."""
    known = {"tanh": Activate(TANH), "sigmoid": Activate(SIGMOID), "silu": Weighted(SIGMOID)}
    for name, layers in known.items():
        if (activation.r, activation.dr) == (ACTIVATIONS[name].r, ACTIVATIONS[name].dr):
            return layers
    return ByUnits(SIGMOID, activation=activation)
