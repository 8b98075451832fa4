"""Ways to train the same network in torch, written as a user of torch would: the rivals of the executor.

Each takes the risk of the paper, sum of squares / (2n), tanh and a linear output, and returns the weights after L
steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from innergrad.algorithms.networks import Network

Train = Callable[[Network, Tensor, Tensor, Tensor, float, int], Tensor]


def parameters(net: Network, w0: Tensor) -> list[Tensor]:
    """V_1, b_1, V_2, b_2, ..."""
    return [part.clone() for pair in net.unflatten(w0) for part in pair if part is not None]


def flat(weights: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in weights])


def _forward(weights: list[Tensor], X: Tensor) -> Tensor:
    p, last = X, len(weights) - 2
    for j in range(0, len(weights), 2):
        z = torch.addmm(weights[j + 1], p, weights[j].T)
        p = z if j == last else torch.tanh(z)
    return p


def _risk(weights: list[Tensor], X: Tensor, y: Tensor) -> Tensor:
    return (_forward(weights, X) - y).square().sum() / (2 * len(X))


def module(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """nn.Module, backward(), torch.optim.SGD."""
    layers: list[nn.Module] = []
    for j, (V, b) in enumerate(net.unflatten(w0), start=1):
        assert b is not None
        linear = nn.Linear(V.shape[1], V.shape[0], dtype=V.dtype)
        linear.weight.data, linear.bias.data = V.clone(), b.clone()
        layers += [linear, nn.Tanh()] if j < net.depth else [linear]
    model = nn.Sequential(*layers)
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        ((model(X) - y).square().sum() / (2 * len(X))).backward()
        optimiser.step()
    return flat(list(model.parameters()))


def functional(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """torch.autograd.grad on a list of tensors, new tensors each step."""
    weights = [part.requires_grad_() for part in parameters(net, w0)]
    for _ in range(steps):
        gradients = torch.autograd.grad(_risk(weights, X, y), weights)
        weights = [(w.detach() - lr * g).requires_grad_() for w, g in zip(weights, gradients, strict=True)]
    return flat(weights)


def foreach(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """torch.autograd.grad, and one in-place update of all tensors."""
    weights = [part.requires_grad_() for part in parameters(net, w0)]
    for _ in range(steps):
        gradients = torch.autograd.grad(_risk(weights, X, y), weights)
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=-lr)
    return flat(weights)


def manual(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """Back-propagation by hand, in torch."""
    weights = parameters(net, w0)
    scale = -lr / len(X)
    for _ in range(steps):
        activations = [X]
        for j in range(0, len(weights), 2):
            z = torch.addmm(weights[j + 1], activations[-1], weights[j].T)
            activations.append(z if j == len(weights) - 2 else z.tanh_())
        s = activations[-1] - y
        for j in range(len(weights) - 2, -1, -2):
            p = activations[j // 2]
            below = (s @ weights[j]).mul_(1 - p * p) if j else s
            weights[j].addmm_(s.T, p, alpha=scale)
            weights[j + 1].add_(s.sum(0), alpha=scale)
            s = below
    return flat(weights)


AUTOGRAD: dict[str, Train] = {"module": module, "functional": functional, "foreach": foreach}


def vmapped(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """torch.func: vmap(grad) over prompts, X (batch, n, d); weights (batch, D_w) after the steps."""

    def risk(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
        return (net.forward(w, X) - y).square().sum() / (2 * X.shape[0])

    gradient = torch.func.vmap(torch.func.grad(risk))
    w = w0.clone()
    for _ in range(steps):
        w = w - lr * gradient(w, X, y)
    return w


def vmapped_lists(net: Network, X: Tensor, y: Tensor, w0: Tensor, lr: float, steps: int) -> Tensor:
    """The same on separate tensors, updated in place together."""
    weights = [part.contiguous() for pair in net.unflatten(w0) for part in pair if part is not None]

    def risk(weights: list[Tensor], X: Tensor, y: Tensor) -> Tensor:
        return _risk(weights, X, y)

    gradient = torch.func.vmap(torch.func.grad(risk))
    weights = [part.clone() for part in weights]
    for _ in range(steps):
        torch._foreach_add_(weights, gradient(weights, X, y), alpha=-lr)
    return torch.cat([part.flatten(1) for part in weights], dim=1)


BATCHED: dict[str, Train] = {"vmap": vmapped, "vmap of lists": vmapped_lists}
