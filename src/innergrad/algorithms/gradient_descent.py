"""Gradient descent on an N-layer network, as the program of Theorem 1 (variant ``literal``: 2N + 4 layers a step).

Symbols of the paper and lanes here (sizes k_0 = d_x, ..., k_N = d_y):

    x_i, y_i        x, y                  V_j, b_j      Vj (k_j, k_{j-1}), bj (k_j,)        momentum    MVj, Mbj
    p_i(j)          pj (k_j,)             r'_i(j-1)     dj (k_j,)
    u(p_i(N), y_i)  g (d_y,)              s_i(j)        sj (k_j,)                           1, t_i      one, t

One step of Lemma 1, in its corrected form (s uses the *columns* of V_{j+1}; the last layer has d_y rows; N product
layers):

    attention    1 .. N          p_j = r(V_j p_{j-1} + b_j)
    attention    N + 1           d_j = r'(V_j p_{j-1} + b_j), all j
    mlp          N + 2           g = u(p_N, y)                     (softmax: ceil(log2 d_y) more, for log-sum-exp)
    product      N + 3 .. 2N+2   s_N = omega g d_N,   s_j = d_j (V_{j+1}^T s_{j+1})
    attention    2N + 3          V_j -= eta/2 mean(s_j p_{j-1}^T),  b_j -= eta/2 mean(s_j)
    mlp          2N + 4          project w onto the box, clear the scratch lanes

The lane omega (0 on the query) does what the paper's mask -R_3(1 - t_i) in layer N + 2 does, exactly and without a
range R_3. The read-out, N forward layers and a product that copies p_N into the query's y, is counted separately: the
paper has none.
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

from innergrad.algorithms.base import Algorithm, constant_lanes, example_lanes
from innergrad.errors import DegenerateStart, InputError
from innergrad.functions.activations import Activation
from innergrad.functions.scalar import IDENTITY, NEGATION, clip_residual
from innergrad.losses import LOSSES, LogisticLoss, Loss, ResidualLoss, SoftmaxLoss
from innergrad.networks import Network
from innergrad.program import Attend, Layer, Loop, Program, Score
from innergrad.stream import Lane, Stream

BOX_BITS = 24


@dataclass(frozen=True)
class GradientDescent(Algorithm):
    """Projected gradient descent with heavy-ball momentum and l2 weight decay, as ``torch.optim.SGD`` does it:

        m <- momentum m + grad L(w) + weight_decay w,   w <- clip(w - lr m, -box, box)

    ``box`` is rounded to 24 significant bits, so that the projection is exact in float32 and float64; None means no
    projection.
    """

    kind: ClassVar[str] = "gradient_descent"

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
        if isinstance(loss, str):
            if loss not in LOSSES:
                raise InputError(
                    "unknown loss",
                    got=repr(loss),
                    allowed=", ".join(LOSSES),
                    hint="or pass an ig.ResidualLoss of your own",
                )
            loss = LOSSES[loss]
        if isinstance(loss, LogisticLoss | SoftmaxLoss) and network.output != "linear":
            raise InputError(
                f"the {loss.name} loss acts on logits", got="an activated output", allowed="output='linear'"
            )
        if isinstance(loss, SoftmaxLoss) and network.sizes[-1] < 2:
            raise InputError(
                "the softmax loss needs at least two outputs", got=network.sizes[-1], hint="use loss='logistic'"
            )
        if not isinstance(steps, int) or steps < 1:
            raise InputError("steps must be a positive integer", got=steps)
        for name, value, low in (("lr", lr, 0.0), ("momentum", momentum, 0.0), ("weight_decay", weight_decay, 0.0)):
            if not math.isfinite(value) or value < low:
                raise InputError(f"{name} must be a finite number, at least {low:g}", got=value)
        if box is not None:
            if not (math.isfinite(box) and box > 0):
                raise InputError("box must be a positive number, or None for no projection", got=box)
            mantissa, exponent = math.frexp(box)
            box = math.ldexp(round(math.ldexp(mantissa, BOX_BITS)), exponent - BOX_BITS)
        for name, content in (
            ("network", network),
            ("loss", loss),
            ("lr", float(lr)),
            ("steps", steps),
            ("box", box),
            ("momentum", float(momentum)),
            ("weight_decay", float(weight_decay)),
        ):
            object.__setattr__(self, name, content)

    # --------------------------------------------------------------------------------------------------------------
    # the program

    def program(self) -> Program:
        net, N = self.network, self.network.depth
        tree_lanes, loss_layers = self._loss_layers()
        weights = tuple(f"{kind}{j}" for j in range(1, N + 1) for kind in (("V", "b") if net.bias else ("V",)))
        bound = math.inf if self.box is None else self.box
        shapes: dict[str, tuple[int, ...]] = {
            f"V{j}": (k, c) for j, (c, k) in enumerate(zip(net.sizes, net.sizes[1:], strict=False), start=1)
        }
        shapes |= {f"b{j}": (k,) for j, k in enumerate(net.sizes[1:], start=1)}
        momentum_lanes = tuple(Lane(f"M{w}", shapes[w], "state", shared=True) for w in weights) if self.momentum else ()
        widths = {j: (net.sizes[j],) for j in range(1, N + 1)}
        scratch = (
            *(Lane(f"p{j}", widths[j]) for j in widths),
            *(Lane(f"d{j}", widths[j]) for j in widths),
            *tree_lanes,
            Lane("g", (net.sizes[-1],)),
            *(Lane(f"s{j}", widths[j]) for j in reversed(widths)),
        )
        stream = Stream(
            (
                *example_lanes(net.sizes[0], net.sizes[-1]),
                *(Lane(w, shapes[w], "weight", shared=True, bound=bound) for w in weights),
                *momentum_lanes,
                *scratch,
                *constant_lanes(),
            )
        )
        step = (
            *self._forward_layers(),
            self._derivative_layer(),
            *loss_layers,
            *self._backward_layers(),
            self._update_layer(weights),
            self._finish_layer(weights, scratch),
        )
        copy = Layer(
            "product", "copy prediction", (Attend("y[k]", Score(IDENTITY, ("query", "one")), value=f"p{N}[k]"),)
        )
        return Program(stream, (Loop(self.steps, step),), (*self._forward_layers(), copy), weights, "y")

    def _preactivation(self, j: int) -> tuple[tuple[str, str], ...]:
        """V_j p_{j-1} + b_j as <query, key> pairs."""
        previous = "x" if j == 1 else f"p{j - 1}"
        bias = (("one", f"b{j}[k]"),) if self.network.bias else ()
        return ((f"{previous}[c]", f"V{j}[k,c]"), *bias)

    def _forward_layers(self) -> tuple[Layer, ...]:
        """Lemma 2: p_j = r(V_j p_{j-1} + b_j), one attention layer each."""
        net = self.network
        return tuple(
            Layer(
                "attention",
                f"forward {j}",
                (
                    Attend(
                        f"p{j}[k]", Score(net.activation.r if net.activated(j) else IDENTITY, *self._preactivation(j))
                    ),
                ),
            )
            for j in range(1, net.depth + 1)
        )

    def _derivative_layer(self) -> Layer:
        """Lemma 3: d_j = r'(V_j p_{j-1} + b_j) for all j; constant 1 for a linear output."""
        net = self.network
        return Layer(
            "attention",
            "derivatives",
            tuple(
                Attend(f"d{j}[k]", Score(net.activation.dr, *self._preactivation(j)))
                if net.activated(j)
                else Attend(f"d{j}[k]")
                for j in range(1, net.depth + 1)
            ),
        )

    def _loss_layers(self) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
        """Lemma 4: g = u(p_N, y); also the lanes the loss needs."""
        out = f"p{self.network.depth}"
        if isinstance(self.loss, ResidualLoss):
            g = Attend("g[k]", Score(self.loss.u, (f"{out}[k] - y[k]", "one")), scale=self.loss.scale)
            return (), (Layer("mlp", "loss derivative", (g,)),)
        if isinstance(self.loss, LogisticLoss):
            g = Attend("g[k]", Score(self.loss.sigmoid, (f"{out}[k]", "one")))
            return (), (Layer("mlp", "loss derivative", (g, Attend("g[k]", Score(NEGATION, ("y[k]", "one"))))),)
        if isinstance(self.loss, SoftmaxLoss):
            return self._softmax_layers(self.loss, out)
        raise InputError(
            f"no program is known for the loss {self.loss.name!r}", allowed="ResidualLoss, LogisticLoss, SoftmaxLoss"
        )

    def _softmax_layers(self, loss: SoftmaxLoss, out: str) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
        """LSE by a tree of LSE(a, b) = b + softplus(a - b) on scalar lanes, then g_k = exp(p_N[k] - LSE) - y_k."""
        lanes, layers, previous, width = [], [], out, self.network.sizes[-1]
        for level in range(1, math.ceil(math.log2(width)) + 1):
            lane = f"lse{level}"
            instructions = []
            for i in range(width // 2):
                a, b = f"{previous}[{2 * i}]", f"{previous}[{2 * i + 1}]"
                instructions += [
                    Attend(f"{lane}[{i}]", Score(loss.softplus, (f"{a} - {b}", "one"))),
                    Attend(f"{lane}[{i}]", Score(IDENTITY, (b, "one"))),
                ]
            if width % 2:
                instructions.append(
                    Attend(f"{lane}[{width // 2}]", Score(IDENTITY, (f"{previous}[{width - 1}]", "one")))
                )
            width = (width + 1) // 2
            lanes.append(Lane(lane, (width,)))
            layers.append(Layer("mlp", f"log-sum-exp {level}", tuple(instructions)))
            previous = lane
        g = (
            Attend("g[k]", Score(loss.exp, (f"{out}[k] - {previous}[0]", "one"))),
            Attend("g[k]", Score(NEGATION, ("y[k]", "one"))),
        )
        return tuple(lanes), (*layers, Layer("mlp", "loss derivative", g))

    def _backward_layers(self) -> tuple[Layer, ...]:
        """Lemma 5: s_N = omega g d_N, then s_j = d_j (V_{j+1}^T s_{j+1}), one product layer each."""
        N = self.network.depth
        first = Layer(
            "product", f"backward {N}", (Attend(f"s{N}[k]", Score(IDENTITY, ("omega", "g[k]")), value=f"d{N}[k]"),)
        )
        rest = (
            Layer(
                "product",
                f"backward {j}",
                (Attend(f"s{j}[k]", Score(IDENTITY, (f"V{j + 1}[c,k]", f"s{j + 1}[c]")), value=f"d{j}[k]"),),
            )
            for j in range(N - 1, 0, -1)
        )
        return (first, *rest)

    def _update_layer(self, weights: tuple[str, ...]) -> Layer:
        """w <- w - eta (momentum m + grad + decay w) and m <- momentum m + grad + decay w, grad = mean(s_j p_{j-1}^T)
        / 2.
        """
        instructions = []
        for w in weights:
            j, labels = int(w[1:]), "k,c" if w[0] == "V" else "k"
            factor = "one" if w[0] == "b" else "x[c]" if j == 1 else f"p{j - 1}[c]"
            score = Score(IDENTITY, ("one", f"s{j}[k]"))
            targets = ((w, -self.lr), (f"M{w}", 1.0)) if self.momentum else ((w, -self.lr),)
            for lane, rate in targets:
                instructions.append(
                    Attend(f"{lane}[{labels}]", score, value=factor, scope="all", reduce="mean", scale=rate / 2)
                )
                if self.weight_decay:
                    instructions.append(
                        Attend(f"{lane}[{labels}]", value=f"{w}[{labels}]", scale=rate * self.weight_decay)
                    )
            if self.momentum:
                instructions.append(Attend(f"{w}[{labels}]", value=f"M{w}[{labels}]", scale=-self.lr * self.momentum))
                instructions.append(Attend(f"M{w}[{labels}]", value=f"M{w}[{labels}]", scale=self.momentum - 1.0))
        return Layer("attention", "update", tuple(instructions))

    def _finish_layer(self, weights: tuple[str, ...], scratch: tuple[Lane, ...]) -> Layer:
        """Project the weights onto the box and clear the scratch lanes: both exact with ReLUs."""

        def pointwise(lane: str, rank: int) -> str:
            return lane + ("", "[k]", "[k,c]")[rank]

        instructions = []
        if self.box is not None:
            clip = clip_residual(self.box)
            for w in weights:
                view = pointwise(w, 2 if w[0] == "V" else 1)
                instructions.append(Attend(view, Score(clip, (view, "one"))))
        for lane in scratch:
            view = pointwise(lane.name, len(lane.shape))
            instructions.append(Attend(view, Score(NEGATION, (view, "one"))))
        return Layer("mlp", "project and clear", tuple(instructions))

    # --------------------------------------------------------------------------------------------------------------
    # prompts and oracle

    def initial_weights(self, seed: int) -> Tensor:
        return self.network.init(seed)

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        del X
        self._check_targets(y)
        if self.box is not None and float(w0.abs().max()) > self.box:
            raise InputError(
                "the box must contain w0",
                got=f"max |w0| = {float(w0.abs().max()):.6g} with box = {self.box:g}",
                hint="use a larger box or smaller initial weights",
            )
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

    @property
    def rate(self) -> float:
        return self.lr

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
        own = {
            (type_, item.name): item for item in extensions for type_ in (Activation, Loss) if isinstance(item, type_)
        }
        activation, loss = settings.pop("activation"), settings.pop("loss")
        network = Network(
            settings.pop("sizes"),
            own.get((Activation, activation), activation),
            settings.pop("output"),
            settings.pop("bias"),
        )
        return cls(network, own.get((Loss, loss), loss), **settings)
