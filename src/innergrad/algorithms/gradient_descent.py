"""Gradient descent on a network with momentum and weight decay: settings, prompts, oracle, saving.

The programs that a transformer runs are in :mod:`innergrad.algorithms.literal` and :mod:`innergrad.algorithms.mean`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.general import backprop_program, recursion_program
from innergrad.algorithms.literal import literal_program
from innergrad.algorithms.mean import mean_program
from innergrad.algorithms.sink import sink_program
from innergrad.errors import DegenerateStart, InputError, integer, real
from innergrad.functions.activations import Activation
from innergrad.losses import LOSSES, LogisticLoss, Loss, SoftmaxLoss
from innergrad.networks import Network
from innergrad.options import Options
from innergrad.program import Program

BOX_BITS = 24
# by variant; others: mean_program
PROGRAMS = {
    "literal": literal_program,
    "sink": sink_program,
    "backprop": backprop_program,
    "recursion": recursion_program,
}


@dataclass(frozen=True)
class GradientDescent(Algorithm):
    """Projected gradient descent with heavy-ball momentum and l2 weight decay, as ``torch.optim.SGD`` does it, on the
    paper's risk: *half* the mean loss, L(w) = 1/(2n) sum_i l(f(x_i), y_i), l summed over the outputs.

        m <- momentum m + grad L(w) + weight_decay w,   w <- clip(w - lr m, -box, box)

    ``box`` is rounded to 24 significant bits, so that the projection is exact in float32 and float64; None means no
    projection.
    """

    kind: ClassVar[str] = "gradient_descent"
    targets: ClassVar[tuple[str, ...]] = ("relu", "gpt", "softmax", "sigma")
    variants: ClassVar[Mapping[str, tuple[str, ...]]] = {"softmax": ("sink", "mean")}

    network: Network
    loss: Loss
    lr: float
    steps: int
    box: float | None
    momentum: float
    weight_decay: float

    def __init__(
        self,
        network: Network,
        loss: str | Loss = "squared",
        lr: float = 0.1,
        steps: int = 5,
        box: float | None = 4.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        if not isinstance(network, Network):
            raise InputError("gradient descent needs a network", got=repr(network), allowed="an ig.Network")
        if not isinstance(loss, Loss):
            if not isinstance(loss, str) or loss not in LOSSES:
                hint = "or an ig.ResidualLoss of your own; to load a model that has one, ig.load(path, extensions=[it])"
                raise InputError("unknown loss", got=repr(loss), allowed=", ".join(LOSSES), hint=hint)
            loss = LOSSES[loss]
        if isinstance(loss, LogisticLoss | SoftmaxLoss) and network.output != "linear":
            raise InputError(
                f"the {loss.name} loss acts on logits", got="an activated output", allowed="output='linear'"
            )
        if isinstance(loss, SoftmaxLoss) and network.sizes[-1] < 2:
            raise InputError(
                "the softmax loss needs at least two outputs", got=network.sizes[-1], hint="use loss='logistic'"
            )
        steps = integer("steps", steps)
        lr, momentum, weight_decay = (
            real(name, value, low=0.0)
            for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay))
        )
        if box is not None:
            box = real("box", box, above=0.0, hint="or None for no projection")
            mantissa, exponent = math.frexp(box)
            box = math.ldexp(round(math.ldexp(mantissa, BOX_BITS)), exponent - BOX_BITS)
        for name, content in (
            ("network", network),
            ("loss", loss),
            ("lr", lr),
            ("steps", steps),
            ("box", box),
            ("momentum", momentum),
            ("weight_decay", weight_decay),
        ):
            object.__setattr__(self, name, content)

    def program(self, options: Options) -> Program:
        """Theorem 1's on ReLU attention; on standard blocks, products in MLPs and averages by attention."""
        if isinstance(self.loss, SoftmaxLoss) and options.target != "relu":
            raise InputError(
                "the softmax loss has no program for this target",
                got=f"target={options.target!r}",
                allowed="target='relu'",
                hint="its exp is cut off at 0, where a sum of smooth units is not accurate",
            )
        return PROGRAMS.get(options.variant, mean_program)(self, options)

    # --------------------------------------------------------------------------------------------------------------
    # prompts and oracle

    def initial_weights(self, seed: int) -> Tensor:
        return self.network.init(seed)

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        del X
        self._check_targets(y)
        if self.network.depth >= 2 and bool((w0 == 0).all(-1).any()):
            warnings.warn(self._degenerate(), DegenerateStart, stacklevel=4)

    def _degenerate(self) -> str:
        r = self.network.activation
        if r.vanishes_at_zero:
            return (
                f"w0 = 0 is a saddle: {r.name}(0) = 0, so every gradient but the output bias's is zero and stays zero; "
                "start from net.init(seed)"
            )
        return (
            "w0 = 0 keeps all hidden units of a layer identical for ever (their gradients are equal), so the network "
            "never uses its width; start from net.init(seed)"
        )

    def _check_targets(self, y: Tensor) -> None:
        if isinstance(self.loss, LogisticLoss):
            if not bool(((y == 0) | (y == 1)).all()):
                raise InputError(
                    "logistic targets must be 0 or 1", got=f"values in [{float(y.min()):g}, {float(y.max()):g}]"
                )
        elif isinstance(self.loss, SoftmaxLoss):
            if not (bool(((y == 0) | (y == 1)).all()) and bool((y.sum(-1) == 1).all())):
                raise InputError("softmax targets must be one-hot rows", hint="encode the classes as 0/1 columns")
        elif self.network.output == "activation":
            lo, hi = self.network.activation.closed_range
            if float(y.min()) < lo or float(y.max()) > hi:
                raise InputError(
                    f"the output passes through {self.network.activation.name}, so targets must lie in its range",
                    got=f"values in [{float(y.min()):g}, {float(y.max()):g}]",
                    allowed=f"[{lo:g}, {hi:g}]",
                    hint="scale the targets or use output='linear'",
                )

    def risk(
        self, w: Float[Tensor, "*batch n_weights"], X: Tensor, y: Tensor, omega: Tensor | None = None
    ) -> Float[Tensor, "*batch"]:
        """L(w) = 1/2 sum_i omega_i l(f(x_i), y_i), omega summing to one (1/n by default)."""
        losses = self.loss.value(self.network.forward(w, X), y)
        return 0.5 * (losses.mean(-1) if omega is None else (omega * losses).sum(-1))

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Training by torch autograd with the same projection: the oracle."""
        w, m = w0, torch.zeros_like(w0)
        trajectory = [w]
        for _ in range(self.steps):
            variable = w.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.risk(variable, X, y, omega).sum(), variable)
            m = self.momentum * m + gradient + self.weight_decay * w
            w = w - self.lr * m
            w = w if self.box is None else w.clamp(-self.box, self.box)
            trajectory.append(w)
        return torch.stack(trajectory, dim=-2), self.network.forward(w, X_query)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        """Theorem 1 and Appendix E as printed, constants hidden in O(.) set to one."""
        net, N, L = self.network, self.network.depth, self.steps
        d_x, d_y, K, n = net.sizes[0], net.sizes[-1], max(net.sizes[1:-1], default=net.sizes[-1]), n_examples
        units = sum(net.sizes[1:])
        C_w = 2 * net.n_weights * (self.box or 0.0)
        flops = n * L * N**3 * K**5 / epsilon**2
        extra = ""
        if isinstance(self.loss, SoftmaxLoss):
            extra = f"; softmax adds ceil(log2 d_y) = {math.ceil(math.log2(d_y))} mlp layers a step"
        return {
            "layers": f"(2N+4)L = {(2 * N + 4) * L}{extra}",
            "read-out layers": "none given: after the last step the query's y is still 0",
            "width D": f"d_x+d_y+D_N+3((N-1)K+d_y)+d_y+2 = {d_x + d_y + net.n_weights + 3 * units + d_y + 2}",
            "heads of the widest layer": f"O(K eps^-2) = {K / epsilon**2:.3g}",
            "norm B_theta": f"O(eta) + C_w + 1 = {self.lr + 1 + C_w:.3g}, with C_w = 2 D_w B",
            "FLOPs (D x D heads)": f"O(n L N^3 K^5 eps^-2) = {flops:.3g}",
            "FLOPs (structured)": f"training itself: O(n L N K^2) = {n * L * N * K**2:.3g}",
        }

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """x ~ N(0, I); targets N(0, I), in the range of an activated output, labels for logistic and softmax."""
        X, y, X_query = super().random_prompt(n, n_query, generator)
        if isinstance(self.loss, LogisticLoss):
            y = (y > 0).to(y.dtype)
        elif isinstance(self.loss, SoftmaxLoss):
            y = torch.nn.functional.one_hot(y.argmax(-1), y.shape[-1]).to(y.dtype)
        elif self.network.output == "activation":
            y = self.network.activation.r(y)
        return X, y, X_query

    # --------------------------------------------------------------------------------------------------------------
    # saving

    def config(self) -> dict[str, Any]:
        net = self.network
        return {
            "sizes": list(net.sizes),
            "activation": net.activation.name,
            "output": net.output,
            "bias": net.bias,
            "loss": self.loss.name,
            "lr": self.lr,
            "steps": self.steps,
            "box": self.box,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> GradientDescent:
        """``extensions``: the user's own activations and losses, found by name."""
        settings = dict(config)
        expected = {"sizes", "activation", "output", "bias", "loss", "lr", "steps", "box", "momentum", "weight_decay"}
        if set(settings) != expected:
            wrong = sorted(set(settings) ^ expected)
            raise InputError(
                "the saved settings of gradient descent are not complete", got=f"missing or unknown: {wrong}"
            )
        own = {
            (type_, item.name): item for item in extensions for type_ in (Activation, Loss) if isinstance(item, type_)
        }
        activation, loss = settings.pop("activation"), settings.pop("loss")
        network = Network(
            settings.pop("sizes"),
            own.get((Activation, str(activation)), activation),
            settings.pop("output"),
            settings.pop("bias"),
        )
        return cls(network, own.get((Loss, str(loss)), loss), **settings)
