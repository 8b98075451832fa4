"""Activations: a scalar function r and its derivative r'. Those that ship, and those made from a plain function of
torch (:meth:`Activation.from_callable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from innergrad.errors import InputError, Registry, real
from innergrad.functions.callables import RADIUS, function_pair
from innergrad.functions.facts import facts_on
from innergrad.functions.jets import NoRule
from innergrad.functions.scalar import (
    COS,
    DGELU,
    DLEAKY,
    DRELU,
    DRELU6,
    DSIGMOID,
    DSILU,
    DTANH,
    GELU,
    LEAKY,
    RELU,
    RELU6,
    SIGMOID,
    SILU,
    SIN,
    SOFTPLUS,
    TANH,
    Function,
)
from innergrad.functions.tape import Ref, record
from innergrad.functions.tracing import check_callable, name_of


@dataclass(frozen=True)
class Activation:
    """r and r'. ``closed_range`` is the closure of r(R): the targets an activated output can reach."""

    name: str
    r: Function
    dr: Function
    closed_range: tuple[float, float] = (-math.inf, math.inf)

    @property
    def smooth(self) -> bool:
        return not self.dr.jumps

    @property
    def vanishes_at_zero(self) -> bool:
        return float(self.r(torch.zeros((), dtype=torch.float64))) == 0.0

    @property
    def state(self) -> str:
        """What is known of r and of r': "proven" for their domain, "measured" on a grid, or "declared" by an author."""
        for f in (self.r, self.dr):
            try:
                known = facts_on(f, (-f.radius, f.radius)).proven
            except InputError:
                known = False
            if not known:
                return "measured" if f.measured else "declared"
        return "proven"

    @staticmethod
    def from_callable(
        f: Callable[[Tensor], Tensor], name: str | None = None, radius: float | None = None
    ) -> Activation:
        """An activation from a plain function of torch, applied entry by entry::

            mish = ig.Activation.from_callable(lambda t: t * torch.tanh(torch.nn.functional.softplus(t)), "mish")

        name: what it is known by; without one, the name of the function. radius: it is applied to |t| <= radius only,
            and an argument outside is an error; without one, to every t, or, where nothing can be proven for every t,
            to |t| <= 8.

        The derivative and all facts are found, and proven by interval arithmetic. Where intervals cannot follow the
        function, they are measured on a grid: it compiles and runs, everything that is printed says "measured", and it
        has no certificate. ``state`` says which of both it is.

        ``torch.nn.functional.softplus`` is log(1 + e^t) for every t here. Beyond a threshold torch takes t for it,
        which is 2e-9 away.

        At a kink of a function that is linear on both sides, its derivative is the one that torch's autograd gives, or,
        if that is of neither side (abs at 0), that of the left side.
        """
        return _from_callable(f, name_of(f, name), None if radius is None else real("radius", radius, above=0.0))


BUILTIN = (
    Activation("tanh", TANH, DTANH, (-1, 1)),
    Activation("sigmoid", SIGMOID, DSIGMOID, (0, 1)),
    Activation("softplus", SOFTPLUS, SIGMOID, (0, math.inf)),
    Activation("gelu", GELU, DGELU, (-0.16997120747990369, math.inf)),
    Activation("silu", SILU, DSILU, (-0.27846454276107380, math.inf)),
    Activation("sin", SIN, COS, (-1, 1)),
    Activation("relu", RELU, DRELU, (0, math.inf)),
    Activation("leaky_relu", LEAKY, DLEAKY),
    Activation("relu6", RELU6, DRELU6, (0, 6)),
)
PAIRS = frozenset((a.r.value, a.dr.value) for a in BUILTIN)  # of which the second is the derivative of the first
ACTIVATIONS = Registry(
    "activation",
    {activation.name: activation for activation in BUILTIN},
    hint="or an ig.Activation of your own; to load a model that has one, ig.load(path, extensions=[it])",
)

RESERVED = ("identity", "negation", "exp", "reciprocal")  # functions that some targets know by name
#: of torch.nn.functional, with which its functions are the library's
DEFAULTS = {("inplace", False), ("approximate", "none"), ("negative_slope", 0.01), ("beta", 1.0), ("threshold", 20.0)}


def _from_callable(f: Callable[[Tensor], Tensor], name: str, radius: float | None) -> Activation:
    check_callable(f, name, RADIUS if radius is None else radius)
    shipped = _shipped(f) if radius is None else None
    if shipped is not None:
        return shipped if name == shipped.name else replace(shipped, name=name)
    if name in ACTIVATIONS or name in RESERVED:
        raise InputError(f"{name} is a function of the library, and this is another one", hint="give it another name")
    pair = function_pair(f, name, radius)
    return Activation(name, pair.f, pair.slope, pair.range)


def _shipped(f: Callable[[Tensor], Tensor]) -> Activation | None:
    """The activation of the library that does the same, step by step, or that torch has under the same name."""
    try:
        tape = record(f)
    except NoRule:
        return None
    if len(tape.steps) == 1 and tape.steps[0].args == (Ref(0),) and set(tape.steps[0].kwargs) <= DEFAULTS:
        return ACTIVATIONS.get(tape.steps[0].name)
    return next((known for known in BUILTIN if known.r.value == tape), None)
