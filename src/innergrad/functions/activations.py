"""Activations r with their derivatives r', and the functions that losses use.

Constants (each checked in the tests against python-flint's ball arithmetic):

    sup |tanh''| = 4 / (3 sqrt 3)        sup |tanh'''| = 2
    sup |sigmoid''| = 1 / (6 sqrt 3)     sup |sigmoid'''| = 1/8          (softplus' = sigmoid)
    sup |gelu''| = 2 phi(0)              sup |gelu'''| = 0.778769..., at t^2 = (7 - sqrt 33) / 2
    sup |silu''| = 1/2                   sup |silu'''| = 0.308181...

A new activation is an :class:`Activation` built from two :class:`Function` objects with the same kind of facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Asymptote, Function, linear_function
from innergrad.registry import Registry

_SQRT2 = math.sqrt(2.0)
_PHI0 = 1.0 / math.sqrt(2.0 * math.pi)


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


def _phi(t: Tensor) -> Tensor:
    return torch.exp(-0.5 * t * t) * _PHI0


def _cdf(t: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-t / _SQRT2)


def _dsigmoid(t: Tensor) -> Tensor:
    return torch.sigmoid(t) * torch.sigmoid(-t)


def _dtanh(t: Tensor) -> Tensor:
    return torch.cosh(t.clamp(-350.0, 350.0)).square().reciprocal()


def _dsilu(t: Tensor) -> Tensor:
    return torch.sigmoid(t) * (1 + t * torch.sigmoid(-t))


def _softplus(t: Tensor) -> Tensor:
    return -torch.nn.functional.logsigmoid(-t)  # derivatives are right at 0, and accurate far out


def _flat(value: float, beyond: float) -> Asymptote:
    return Asymptote(0.0, value, beyond)


TANH = Function(
    "tanh", torch.tanh, curvature=4 / (3 * math.sqrt(3)), left=_flat(-1, 0), right=_flat(1, 0), lipschitz=1, bound=1
)
DTANH = Function(
    "tanh'", _dtanh, curvature=2.0, left=_flat(0, 0), right=_flat(0, 0), lipschitz=4 / (3 * math.sqrt(3)), bound=1
)
SIGMOID = Function(
    "sigmoid",
    torch.sigmoid,
    curvature=1 / (6 * math.sqrt(3)),
    left=_flat(0, 0),
    right=_flat(1, 0),
    lipschitz=0.25,
    bound=1,
)
DSIGMOID = Function(
    "sigmoid'",
    _dsigmoid,
    curvature=0.125,
    left=_flat(0, 0),
    right=_flat(0, 0),
    lipschitz=1 / (6 * math.sqrt(3)),
    bound=0.25,
)
SOFTPLUS = Function("softplus", _softplus, curvature=0.25, left=_flat(0, 0), right=Asymptote(1, 0, 0), lipschitz=1)
# gelu' peaks at sqrt 2, gelu'' changes sign there; gelu - t and gelu are monotone beyond 0.76, gelu' beyond sqrt 2
GELU = Function(
    "gelu", lambda t: t * _cdf(t), curvature=2 * _PHI0, left=_flat(0, -1), right=Asymptote(1, 0, 1), lipschitz=1.13
)
DGELU = Function(
    "gelu'",
    lambda t: _cdf(t) + t * _phi(t),
    curvature=0.7787697,
    left=_flat(0, -1.5),
    right=_flat(1, 1.5),
    lipschitz=2 * _PHI0,
    bound=1.13,
)
# silu and silu - t are monotone beyond 1.2785, silu' beyond 2.3994
SILU = Function(
    "silu",
    lambda t: t * torch.sigmoid(t),
    curvature=0.5,
    left=_flat(0, -1.3),
    right=Asymptote(1, 0, 1.3),
    lipschitz=1.1,
)
DSILU = Function(
    "silu'", _dsilu, curvature=0.3081816, left=_flat(0, -2.4), right=_flat(1, 2.4), lipschitz=0.5, bound=1.1
)
SIN = Function("sin", torch.sin, curvature=1.0, lipschitz=1, bound=1)
COS = Function("sin'", torch.cos, curvature=1.0, lipschitz=1, bound=1)

RELU = linear_function("relu", PiecewiseLinear((0.0,), (0.0, 1.0)), 1.0)
DRELU = Function("relu'", lambda t: (t > 0).to(t.dtype), curvature=0.0, bound=1, jumps=((0.0, 1.0, 1),))
LEAK = 0.01
LEAKY = linear_function("leaky_relu", PiecewiseLinear((0.0,), (LEAK, 1.0)), 1.0)
DLEAKY = Function(
    "leaky_relu'",
    lambda t: torch.where(t > 0, torch.ones_like(t), LEAK),
    curvature=0.0,
    bound=1,
    jumps=((0.0, 1.0 - LEAK, 1),),
)
RELU6 = linear_function("relu6", PiecewiseLinear((0.0, 6.0), (0.0, 1.0, 0.0)), 1.0, bound=6.0)
DRELU6 = Function(
    "relu6'", lambda t: ((t > 0) & (t < 6)).to(t.dtype), curvature=0.0, bound=1, jumps=((0.0, 1.0, 1), (6.0, -1.0, -1))
)

#: exp on the half-line t <= 0, continued by 1: what a softmax probability exp(t_k - LSE(t)) needs.
EXP_CAPPED = Function(
    "exp(min(t,0))",
    lambda t: torch.exp(t.clamp(max=0.0)),
    curvature=1.0,
    left=_flat(0, 0),
    right=_flat(1, 0),
    lipschitz=1,
    bound=1,
    breaks=(0.0,),
)
#: t / sqrt(1 + t^2), the derivative of the pseudo-Huber loss with delta = 1; sup |f''| = 48 sqrt 5 / 125 at t = 1/2
PSEUDO_HUBER_U = Function(
    "pseudo-huber'",
    lambda t: t / torch.hypot(t, torch.ones_like(t)),
    curvature=48 * math.sqrt(5) / 125,
    left=_flat(-1, 0),
    right=_flat(1, 0),
    lipschitz=1,
    bound=1,
)

_BUILTIN = (
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
ACTIVATIONS = Registry(
    "activation",
    {activation.name: activation for activation in _BUILTIN},
    hint="or an ig.Activation of your own; to load a model that has one, ig.load(path, extensions=[it])",
)
