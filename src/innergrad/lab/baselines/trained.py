"""Networks trained on the prompt: one network for every prompt and every prefix, all of them at once.

*Transformers are Deep Optimizers*, App. G, trains a 3-layer network of width 200 on the first k pairs for 100 epochs,
and asks it for y_k. There are (prompts) x (lengths) such fits: 486,400 for 6,400 prompts of 76 points. A fit here is
one entry of a batch:

    p_0 = x,    z_j = p_{j-1} W_j,    p_j = relu(z_j),    f = z_N        W_j (fits, fan_in, fan_out), no biases
    L   = 1/k sum_{i < k} (f(x_i) - y_i)^2                                  the fit of prefix k; torch's MSE loss
    s_N = dL/df,    s_{j-1} = relu'(z_{j-1}) * (s_j W_j^T),    dL/dW_j = p_{j-1}^T s_j

so an epoch is 3N - 1 batched products and one pass of torch's optimiser. Prefixes of similar length share a bucket,
padded to its longest; a point beyond the prefix has weight zero in the loss, and row k of the same products is the
prediction. All fits start from the same weights, those of ``seed``, so a fit depends on its own pairs only. For labels
that are vectors the network has as many outputs, and L is the sum over them.

*Best epoch.* The paper reports the highest R^2 over the epochs, measured on the query itself: an oracle that no learner
has. ``pooled`` takes, at each k, the one epoch whose squared error summed over all prompts is lowest. ``per-prompt``
takes the epoch for every prompt on its own, which is more optimistic. ``last`` is the last epoch and no oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.counter_rng import CounterRNG

OPTIMISERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "adam": lambda weights, lr: torch.optim.Adam(weights, lr=lr, fused=weights[0].dtype == torch.float32),
    "sgd": lambda weights, lr: torch.optim.SGD(weights, lr=lr),
    "momentum": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9),
}
INITS = ("he", "torch")
EPOCHS = ("last", "pooled", "per-prompt")
BUCKET = 8  # prefixes that share their padding
SHARE = 0.5  # of a GPU's free memory for a chunk of fits
CPU_BYTES = 1 << 28  # a chunk on the CPU; small ones stay near the cache
CHUNK = 1 << 14  # fits at most: more are no faster, and their weights have fewer than 2^31 entries


@dataclass(frozen=True)
class Fits:
    """Predictions of y_k by the network trained on the first k pairs, after each epoch: (epochs, B, n); y (B, n).

    Labels that are vectors have one more axis; an epoch is then chosen by the sum over their numbers.
    """

    predictions: Tensor
    y: Tensor

    @property
    def errors(self) -> Tensor:
        """(epochs, n): squared errors summed over the prompts."""
        return self._squares().sum(1)

    def _squares(self) -> Tensor:
        """(epochs, B, n)"""
        squares = (self.predictions - self.y).square()
        return squares.sum(3) if squares.ndim == 4 else squares

    @property
    def last(self) -> Tensor:
        """(B, n) after the last epoch."""
        return self.predictions[-1]

    @property
    def best(self) -> Tensor:
        """(B, n) after the epoch that is best for all prompts together at that k: an oracle."""
        epoch = self.errors.nan_to_num(nan=math.inf).argmin(0)
        return self.predictions[epoch, :, torch.arange(len(epoch), device=epoch.device)].transpose(0, 1)

    @property
    def best_per_prompt(self) -> Tensor:
        """(B, n) after the epoch that is best for that prompt at that k: a more optimistic oracle."""
        epoch = self._squares().nan_to_num(nan=math.inf).argmin(0, keepdim=True)
        epoch = epoch.view(*epoch.shape, *[1] * (self.predictions.ndim - 3)).expand_as(self.predictions[:1])
        return self.predictions.gather(0, epoch)[0]

    def at(self, epoch: str) -> Tensor:
        """``last``, ``pooled`` or ``per-prompt``."""
        if epoch == "last":
            return self.last
        return self.best if epoch == "pooled" else self.best_per_prompt


@dataclass(frozen=True)
class TrainedNetwork(Predictor, kind="network"):
    """A ReLU network of ``layers`` layers trained on the prompt by ``optimiser`` for ``epochs`` epochs.

    Inputs and labels are divided by ``x_scale`` and ``y_scale`` (labels of mean square about one train well).
    ``batch``: points of a minibatch, 0 for all of them; minibatches are the same for all prompts and shuffled every
    epoch. ``init``: ``torch`` (that of nn.Linear) or ``he`` (N(0, 2/fan_in), the last layer N(0, 1/fan_in); it starts
    from a large random function, which 100 epochs do not forget). ``ks``: lengths to fit, all by default; predictions
    at the others are NaN. Length 0 predicts 0. ``tf32``: products on the tensor cores with 10-bit mantissas; weights,
    sums and the optimiser stay in float32.
    """

    layers: int = 3
    width: int = 200
    epochs: int = 100
    lr: float = 3e-3
    optimiser: str = "adam"
    batch: int = 0
    init: str = "torch"
    seed: int = 0
    epoch: str = "last"
    x_scale: float = 1.0
    y_scale: float = 1.0
    ks: tuple[int, ...] | None = None
    tf32: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "width", "epochs"):
            integer(name, getattr(self, name))
        integer("batch", self.batch, low=0)
        for name in ("lr", "x_scale", "y_scale"):
            real(name, getattr(self, name), above=0.0)
        for name, allowed in (("optimiser", tuple(OPTIMISERS)), ("init", INITS), ("epoch", EPOCHS)):
            if getattr(self, name) not in allowed:
                raise InputError(f"unknown {name}", got=repr(getattr(self, name)), allowed=", ".join(allowed))

    @property
    def name(self) -> str:
        return f"{self.layers}-layer network, {self.optimiser} {self.lr:g}, {self.epoch} epoch"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.fit(x, y).at(self.epoch)

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Fits:
        """All epochs of all fits: x (B, n, d), y (B, n). Fits are independent; chunks only bound the memory."""
        n = x.shape[1]
        ks = sorted({integer("ks", k, 0, n - 1) for k in (range(n) if self.ks is None else self.ks)})
        start = self.start(x, y.shape[2] if y.ndim == 3 else 1)
        found = x.new_full((self.epochs, *y.shape), math.nan)
        if ks[:1] == [0]:
            found[:, :, 0] = 0.0
        with _products(self.tf32 and x.is_cuda):
            for bucket in self._buckets([k for k in ks if k]):
                length = bucket[-1] + 1
                rows = max(1, _fits_of_a_chunk(start, length) // len(bucket))
                for first in range(0, len(x), rows):
                    part = slice(first, first + rows)
                    self._train(start, x[part, :length], y[part, :length], bucket, found[:, part])
        return Fits(found, y)

    def start(self, x: Tensor, outputs: int = 1) -> list[Tensor]:
        """The initial weights of every fit, [(fan_in, fan_out)]: input x (..., d), hidden layers of one width."""
        sizes = [x.shape[-1], *[self.width] * (self.layers - 1), outputs]
        index = torch.zeros(1, dtype=torch.int64, device=x.device)
        weights = []
        for number, (rows, columns) in enumerate(pairwise(sizes)):
            rng = CounterRNG.of(self.seed, f"trained/{number}", x.device)
            if self.init == "he":
                gain = (1.0 if number == self.layers - 1 else 2.0) / rows
                weights.append(rng.normal(index, rows, columns)[0] * math.sqrt(gain))
            else:
                weights.append((2.0 * rng.uniform(index, rows, columns)[0] - 1.0) / math.sqrt(rows))
        return [weight.to(x.dtype) for weight in weights]

    def _buckets(self, ks: list[int]) -> list[list[int]]:
        """Lengths that are trained together; minibatches of different lengths have nothing in common."""
        if self.batch:
            return [[k] for k in ks]
        return [list(part) for _, part in groupby(ks, lambda k: (k - 1) // BUCKET)]

    def _train(self, start: list[Tensor], x: Tensor, y: Tensor, ks: list[int], found: Tensor) -> None:
        """Trains the prefixes ``ks`` of the prompts x (B, T, d), y (B, T); writes found (epochs, B, n)."""
        prompts, length, d = x.shape
        fits = prompts * len(ks)
        x = (x / self.x_scale)[:, None].expand(-1, len(ks), -1, -1).reshape(fits, length, d)
        outputs = start[-1].shape[1]
        labels = (y / self.y_scale)[:, None]
        y = labels.expand(-1, len(ks), *labels.shape[2:]).reshape(fits, length, outputs)
        k = torch.tensor(ks, device=x.device)
        query = k.repeat(prompts)[:, None, None].expand(-1, 1, outputs)
        weights = [weight.repeat(fits, 1, 1) for weight in start]
        optimiser = OPTIMISERS[self.optimiser](weights, self.lr)
        for epoch in range(self.epochs + 1):
            for number, chosen in enumerate(self._minibatches(epoch, k, length, x.dtype)):
                layers = _forward(weights, x)
                if epoch and not number:  # the prediction after the epochs before this one
                    answer = layers[-1].gather(1, query).view(prompts, len(ks), *found.shape[3:])
                    found[epoch - 1][:, k] = answer * self.y_scale
                if epoch == self.epochs:
                    return
                slope = chosen.repeat(prompts, 1)[..., None] * (layers[-1] - y)
                for weight, gradient in zip(weights, _backward(weights, layers, slope), strict=True):
                    weight.grad = gradient
                optimiser.step()

    def _minibatches(self, epoch: int, k: Tensor, length: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """(lengths, T): twice the weight of each point in the loss of a step, 2 / (points of the step) or 0."""
        position = torch.arange(length, device=k.device)
        if not self.batch:
            yield (position < k[:, None]) * (2.0 / k[:, None].to(dtype))
            return
        points = int(k[0])
        index = torch.tensor([epoch], device=k.device)
        shuffled = CounterRNG.of(self.seed, f"minibatches/{points}", k.device).uniform(index, points)[0].argsort()
        for first in range(0, points, self.batch):
            some = shuffled[first : first + self.batch]
            yield (position[:, None] == some).any(1)[None].to(dtype) * (2.0 / len(some))


def _forward(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    """p_0 = x, p_1, ..., f: the layers of each fit at its points, (fits, T, width)."""
    layers = [x]
    for weight in weights[:-1]:
        layers.append(torch.bmm(layers[-1], weight).relu_())
    return [*layers, torch.bmm(layers[-1], weights[-1])]


def _backward(weights: list[Tensor], layers: list[Tensor], slope: Tensor) -> list[Tensor]:
    """The gradients of the weights, from ``slope`` = dL/df (fits, T, outputs). relu'(0) = 0, as in torch."""
    gradients = []
    for number in reversed(range(len(weights))):
        gradients.append(torch.bmm(layers[number].mT, slope))
        if number:
            onwards = weights[number].mT
            slope = slope * onwards if slope.shape[-1] == 1 else torch.bmm(slope, onwards)  # one output: no sum
            slope.mul_(layers[number] > 0)
    return gradients[::-1]


def _fits_of_a_chunk(start: list[Tensor], length: int) -> int:
    """How many fits are trained at once: five times the weights (gradients, old ones, two moments) and activations."""
    widths = start[0].shape[0] + sum(weight.shape[1] for weight in start)
    size = (5 * sum(weight.numel() for weight in start) + 5 * length * widths) * start[0].element_size()
    device, room = start[0].device, float(CPU_BYTES)
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = SHARE * (torch.cuda.mem_get_info(device)[0] + kept)
    return max(1, min(CHUNK, int(room // size)))


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    """Products of float32 in TF32, or in full; afterwards the process has the setting it had."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
