"""Neural networks with random weights: y = c_N W_N r(c_{N-1} W_{N-1} ... r(c_1 W_1 x)), W_j entries N(mean, std^2).

    scaling   c_j of a hidden layer   c_N             labels
    unit      1                       1               as printed; they grow as (width / 2)^((N - 1) / 2)
    he        sqrt(2 / fan_in_j)      sqrt(1/width)   O(1) at every depth: mean square E |x|^2 / d for ReLU
    garg      1                       sqrt(2/width)   N = 2: Garg et al., sqrt(2/width) relu(x W_1) W_2; square E |x|^2

For ReLU, or no activation, and weights of mean zero the mean square of labels is exact. Given the layer below, a unit's
input is symmetric with variance c^2 std^2 |p|^2, and ReLU keeps half of a symmetric variable's square. Otherwise it is
measured once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from innergrad.config import check_choices
from innergrad.errors import InputError, Registry, integer, real
from innergrad.lab.baselines import NNGP, Predictor, TunedRidge
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task, measured_scale

ACTIVATIONS: Registry[Callable[[Tensor], Tensor]] = Registry(
    "activation",
    {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "gelu": functional.gelu,
        "sigmoid": torch.sigmoid,
        "softplus": functional.softplus,
        "silu": functional.silu,
        "sin": torch.sin,
        "leaky_relu": functional.leaky_relu,
        "linear": lambda x: x,
    },
)
KEPT = {"relu": 0.5, "linear": 1.0}  # E r(z)^2 / E z^2 for symmetric z, where it does not depend on z


@dataclass(frozen=True)
class Networks(Task, kind="network"):
    """Random networks of ``layers`` weight matrices: d -> width -> ... -> width -> 1.

    Parameters W1 .. WN (B, out, in) and b1 .. bN (B, out) are stored with their factors.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        layers: how many weight matrices.
        width: of hidden layers.
        activation: a name from ``innergrad.ACTIVATIONS``.
        scaling: the factors of the weights: ``he``, ``garg`` or ``unit``.
        weight_mean: shifts the weights before they are scaled. *Deep Optimizers* has -0.5 and 0.5.
        weight_std: their standard deviation before they are scaled.
        bias: add a bias to every layer, with the distribution and the factor of its weights.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> task = lab.Networks(d=2, layers=2, width=8)
        >>> tuple(task.sample(lab.CounterRNG.of(0), torch.arange(3), n=4).params["W1"].shape)
        (3, 8, 2)
    """

    layers: int = 2
    width: int = 100
    activation: str = "relu"
    scaling: Literal["he", "garg", "unit"] = "he"
    weight_mean: float = 0.0
    weight_std: float = 1.0
    bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("layers", self.layers, high=1000)
        integer("width", self.width)
        ACTIVATIONS.find(self.activation)
        check_choices(self)
        real("weight_mean", self.weight_mean)
        real("weight_std", self.weight_std, above=0.0)
        if not isinstance(self.bias, bool):
            raise InputError("bias is true or false", got=repr(self.bias))

    @property
    def sizes(self) -> tuple[int, ...]:
        """d, width, ..., width, 1."""
        return (self.d, *[self.width] * (self.layers - 1), 1)

    def factor(self, layer: int) -> float:
        """c_j of layer j = 1 .. N."""
        fan_in, last = self.sizes[layer - 1], layer == self.layers
        if self.scaling == "he":
            return float(((1.0 if last else 2.0) / fan_in) ** 0.5)
        return float((2.0 / self.width) ** 0.5) if self.scaling == "garg" and last else 1.0

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        made = {}
        for layer in range(1, self.layers + 1):
            shapes: dict[str, tuple[int, ...]] = {f"W{layer}": (self.sizes[layer], self.sizes[layer - 1])}
            if self.bias:
                shapes[f"b{layer}"] = (self.sizes[layer],)
            for name, shape in shapes.items():
                weights = self.weight_mean + self.weight_std * rng.fork(name).normal(index, *shape)
                made[name] = self.factor(layer) * weights
        return made

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        for layer in range(1, self.layers + 1):
            x = x @ params[f"W{layer}"].mT
            if self.bias:
                x = x + params[f"b{layer}"][:, None, :]
            if layer < self.layers:
                x = ACTIVATIONS[self.activation](x)
        return x[:, :, 0]

    @property
    def scale(self) -> float:
        if self.activation not in KEPT or self.weight_mean != 0.0:
            return measured_scale(self)
        square = self.inputs.second_moment(self.d)  # E |p|^2 of the layer's input
        for layer in range(1, self.layers + 1):
            square = (self.factor(layer) * self.weight_std) ** 2 * (square + self.bias)
            if layer < self.layers:
                square *= self.width * KEPT[self.activation]
        return float(square**0.5)

    def best(self) -> Predictor:
        """ReLU: the posterior of infinitely wide networks, which have (nearly) the covariance of these; else ridge.

        The strongest known, not the best: a posterior over the weights of finite networks has no closed form.
        """
        if self.activation == "relu" and self.weight_mean == 0.0 and not self.bias:
            return NNGP(self.layers, self.width, self.scaling, self.noise, self.weight_std)
        return TunedRidge()
