"""The learner: N-layer networks (Definition 1 and Theorem 5 of the paper: any widths, d_x different from d_y).

    p_0 = x,   z_j = V_j p_{j-1} (+ b_j),   p_j = r(z_j) for j < N,   p_N = r(z_N) or z_N

Symbols: sizes = [k_0 = d_x, k_1, ..., k_N = d_y]; V_j of shape (k_j, k_{j-1}); b_j of shape (k_j,). The flat weight
    vector w is layer by
layer, each matrix row-major, its bias after it; D_w entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError, integer, seed_number
from innergrad.functions.activation import ACTIVATIONS, Activation

Output = Literal["linear", "activation"]
LARGEST_NETWORK, DEEPEST = 10**7, 1000


@dataclass(frozen=True)
class Network:
    """The small network that is trained inside the transformer.

        p_0 = x,   z_j = V_j p_{j-1} + b_j,   p_j = r(z_j) for j < N,   p_N = z_N, or r(z_N)

    Its weights are one flat vector: layer by layer, each matrix row by row, its bias after it. That is the order of
    ``torch.nn.utils.parameters_to_vector``.

    Args:
        sizes: inputs, hidden layers, outputs: [d_x, k_1, ..., d_y].
        activation: r, a name from ``innergrad.ACTIVATIONS`` or an ``Activation`` of your own.
        output: ``linear``, or ``activation``, which applies r to the last layer as well.
        bias: whether there are biases.

    Examples:
        >>> import innergrad as ig, torch
        >>> net = ig.Network([3, 8, 2], activation="relu")
        >>> w = net.init(seed=0)
        >>> net.n_weights, tuple(net.forward(w, torch.ones(5, 3, dtype=torch.float64)).shape)
        (50, (5, 2))
    """

    sizes: tuple[int, ...]
    activation: Activation
    output: Output
    bias: bool

    def __init__(
        self, sizes: Sequence[int], activation: str | Activation = "tanh", output: Output = "linear", bias: bool = True
    ) -> None:
        try:
            whole = tuple(integer("each of the sizes", k) for k in sizes)
        except (InputError, TypeError):
            whole = ()
        if len(whole) < 2:
            allowed = "two or more positive integers"
            raise InputError("sizes are d_x, hidden widths..., d_y", got=repr(sizes), allowed=allowed)
        if len(whole) > DEEPEST:
            raise InputError("the network is too deep", got=f"{len(whole)} sizes", allowed=f"at most {DEEPEST}")
        sizes = whole
        if sum(c * k for c, k in pairwise(sizes)) > LARGEST_NETWORK:
            raise InputError(
                "the network is too large", got=f"sizes {list(sizes)}", allowed=f"{LARGEST_NETWORK:.0e} weights"
            )
        if not isinstance(activation, Activation):
            activation = ACTIVATIONS.find(activation)
        if not isinstance(bias, bool):
            raise InputError("bias must be True or False", got=repr(bias))
        if output not in ("linear", "activation"):
            raise InputError("unknown output", got=repr(output), allowed="'linear' or 'activation'")
        for name, value in (("sizes", sizes), ("activation", activation), ("output", output), ("bias", bias)):
            object.__setattr__(self, name, value)

    @property
    def depth(self) -> int:
        """N, the number of weight matrices."""
        return len(self.sizes) - 1

    @property
    def n_weights(self) -> int:
        return sum(k * (c + self.bias) for c, k in zip(self.sizes, self.sizes[1:], strict=False))

    def activated(self, j: int) -> bool:
        """Whether layer j = 1..N applies r."""
        return j < self.depth or self.output == "activation"

    def flatten(self, weights: Sequence[tuple[Tensor, Tensor | None]]) -> Float[Tensor, "... n_weights"]:
        """[(V_1, b_1), ..., (V_N, b_N)] -> w."""
        parts = []
        for V, b in weights:
            parts.append(V.flatten(-2))
            if b is not None:
                parts.append(b)
        return torch.cat(parts, dim=-1)

    def unflatten(self, w: Float[Tensor, "... n_weights"]) -> list[tuple[Tensor, Tensor | None]]:
        """w -> [(V_1, b_1), ..., (V_N, b_N)]; b_j is None without biases."""
        if w.shape[-1:] != (self.n_weights,):
            raise InputError(
                "the weight vector does not fit the network",
                got=f"shape {tuple(w.shape)}",
                allowed=f"(..., {self.n_weights})",
            )
        weights: list[tuple[Tensor, Tensor | None]] = []
        start = 0
        for c, k in zip(self.sizes, self.sizes[1:], strict=False):
            V = w[..., start : start + k * c].reshape(*w.shape[:-1], k, c)
            start += k * c
            b = w[..., start : start + k] if self.bias else None
            start += k * self.bias
            weights.append((V, b))
        return weights

    def init(self, seed: int = 0) -> Float[Tensor, " n_weights"]:
        """Weights N(0, 1/fan_in), zero biases, float64."""
        generator = torch.Generator().manual_seed(seed_number(seed))
        weights: list[tuple[Tensor, Tensor | None]] = []
        for c, k in zip(self.sizes, self.sizes[1:], strict=False):
            V = torch.randn(k, c, generator=generator, dtype=torch.float64) / c**0.5
            weights.append((V, torch.zeros(k, dtype=torch.float64) if self.bias else None))
        return self.flatten(weights)

    def forward(self, w: Float[Tensor, "... n_weights"], X: Float[Tensor, "... n d_x"]) -> Float[Tensor, "... n d_y"]:
        """The exact network, differentiable by autograd."""
        *_, (_, p) = self.layers(w, X)
        return p

    def layers(
        self, w: Float[Tensor, "... n_weights"], X: Float[Tensor, "... n d_x"]
    ) -> Iterator[tuple[Float[Tensor, "... n k_j"], Float[Tensor, "... n k_j"]]]:
        """z_j and p_j of every layer."""
        p = X
        for j, (V, b) in enumerate(self.unflatten(w), start=1):
            z = p @ V.mT
            if b is not None:
                z = z + b.unsqueeze(-2)
            p = self.activation.r(z) if self.activated(j) else z
            yield z, p

    def embed(self, small: Network, w: Float[Tensor, "... n_small"]) -> Float[Tensor, "... n_weights"]:
        """Zero-pad the weights of a smaller network of the same depth and kind into this one.

        If r(0) = 0, gradient descent on the padded network is gradient descent on the small one: padded units stay at
        zero. Inputs and targets are padded with zeros by the caller; fewer outputs need a loss whose derivative
        vanishes at t = y = 0.
        """
        self._check_embeds(small)
        padded: list[tuple[Tensor, Tensor | None]] = []
        for (V, b), c, k in zip(small.unflatten(w), self.sizes, self.sizes[1:], strict=False):
            big = V.new_zeros(*V.shape[:-2], k, c)
            big[..., : V.shape[-2], : V.shape[-1]] = V
            padded.append((big, None if b is None else torch.nn.functional.pad(b, (0, k - b.shape[-1]))))
        return self.flatten(padded)

    def extract(self, small: Network, w: Float[Tensor, "... n_weights"]) -> Float[Tensor, "... n_small"]:
        """The inverse of ``embed``: the weights of the smaller network."""
        self._check_embeds(small)
        return small.flatten(
            [
                (V[..., :k, :c], None if b is None else b[..., :k])
                for (V, b), c, k in zip(self.unflatten(w), small.sizes, small.sizes[1:], strict=False)
            ]
        )

    def _check_embeds(self, small: Network) -> None:
        same = (small.depth, small.activation, small.output, small.bias) == (
            self.depth,
            self.activation,
            self.output,
            self.bias,
        )
        if not same or any(a > b for a, b in zip(small.sizes, self.sizes, strict=True)):
            raise InputError(
                f"the network {list(small.sizes)} does not fit into {list(self.sizes)}",
                allowed="same depth, activation, output and bias, no layer wider",
            )
        if not self.activation.vanishes_at_zero:
            raise InputError(f"zero padding needs r(0) = 0, and {self.activation.name}(0) is not 0")
