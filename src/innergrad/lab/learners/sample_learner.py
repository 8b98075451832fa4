"""A transformer that reads samples of a distribution as a set, and answers with its score.

A prompt holds samples and queries (``innergrad.lab.samples``). All of them are tokens. Every token reads the samples,
and none reads a query. There are no positions: the order of samples does not matter. The place of a token enters
through distances alone, by kernels whose width each head chooses for each token:

    P_is    = softmax over samples s of  <q_i, k_s> / sqrt(Dh)  -  b_i |X_i - x_s|^2 / 2       X_i = e^t x_i
    b_i     = 1 / (h_i^2 + e^2t - 1),      h_i^2 = h_0^2 exp(a linear function of LN(r_i))     one a head
    u_i     = sqrt(b_i) (sum_s P_is x_s - X_i)                                                 one a head, d numbers
    block:  r = r + W_O [P v; u],    r = r + W_out gelu(W_in LN(r))                            (q, k, v, h from LN(r))
    answer: sum over heads of  (1 / H + e^-t g_i) sqrt(b_i (e^2t - 1)) u_i  +  e^-t W_U LN(r)  (heads of their own)

A kernel density estimate of bandwidth h is one such head: with <q, k> = 0 and g = 0 the answer is sigma_t times its
score (``lab.baselines.KernelDensity``). Here a token chooses its bandwidth by the samples around it. Before training
the answer is nearly the mean of the estimates of its heads, whose bandwidths differ. At late times the data matter as
e^-t, and so do g and W_U. If all samples, and all X_i, move by the same vector, the answer stays.

Shapes: S models, B prompts, N points, d dimensions of the data, D = d_model, H heads of Dh, L blocks, M = d_mlp.
Distances, kernels and u are float32 in every precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from innergrad.errors import InputError, integer, real, shortened
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.base import Keep, Learner, LearnerConfig
from innergrad.lab.learners.gpt import product
from innergrad.lab.samples import EXTRA, asked, parts

LANES = 5  # what a token knows at first: whether it is a query, log t, sigma_t, e^-t, and how many samples there are
RANGE = 5.0  # the logarithm of h^2 / h_0^2, at most
FAR = 1e30  # where nothing is read from: finite, so that gradients are, too
LATEST = 20.0  # later the score is -x to the last digit
LARGEST, NARROWEST = 8.0, 0.02  # of samples; those of training have means up to 2 and deviations from 0.1 to 0.6
CHUNK = 256  # queries of one prompt, when a score is asked at many places
NARROW, WIDE = -2.0, 3.0  # these logarithms before training, from the first head to the last


@dataclass(frozen=True)
class SampleLearnerConfig(LearnerConfig, kind="samples"):
    """The shape of a transformer that reads samples as a set, for the task ``sample-scores``.

    Args:
        n_layers: blocks.
        d_model: width.
        n_heads: heads.
        d_mlp: hidden units of the MLP.
        bandwidth: h_0, about that of the kernels before training.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> task = lab.tasks.SampleScores(dims=2, queries=8)
        >>> learner = lab.SampleLearnerConfig(n_layers=1, d_model=16, n_heads=2).build(task.d, 24, outputs=2).init([0])
        >>> x, y, _ = task.sample(lab.CounterRNG.of(0), torch.arange(3), n=24)
        >>> tuple(learner.predict(x, y).shape)
        (3, 24, 2)
    """

    n_layers: int = 4
    d_model: int = 128
    n_heads: int = 4
    d_mlp: int = 512
    bandwidth: float = 0.2

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "d_mlp"):
            integer(f"learner.{name}", getattr(self, name))
        real("learner.bandwidth", self.bandwidth, above=0.0)
        if self.d_model % self.n_heads:
            got = f"{self.d_model} and {self.n_heads}"
            raise InputError("learner.d_model must be a multiple of learner.n_heads", got=got)

    def build(self, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> SampleLearner:
        return SampleLearner(self, d, stack, outputs)

    def activations(self, n_points: int) -> int:
        attention = 3 * self.n_heads * n_points**2
        return (self.n_layers + 1) * (attention + n_points * (10 * self.d_model + 3 * self.d_mlp))


class SampleLearner(Learner):
    """A stack of transformers that read samples; see the module. Prompts may have any number of points."""

    FUSED = ("prepare", "block", "read_out")

    def __init__(self, config: SampleLearnerConfig, d: int, stack: int = 1, outputs: int = 1) -> None:
        super().__init__(d, stack, outputs)
        if d != outputs + EXTRA:
            got, allowed = f"points of {d} numbers, labels of {outputs}", "task.kind = sample-scores"
            raise InputError("this learner reads samples, and answers with scores", got=got, allowed=allowed)
        self.config = config
        D, H, M, u = config.d_model, config.n_heads, config.d_mlp, config.n_heads * outputs
        heads: dict[str, tuple[int, ...]] = {"ln1_w": (D,), "ln1_b": (D,), "W_QK": (D, 2 * D), "b_QK": (2 * D,)}
        heads |= {"W_B": (D, H), "b_B": (H,)}
        inside = {**heads, "W_V": (D, D), "W_O": (D + u, D), "b_O": (D,), "ln2_w": (D,), "ln2_b": (D,)}
        inside |= {"W_in": (D, M), "b_in": (M,), "W_out": (M, D), "b_out": (D,)}
        shapes: dict[str, tuple[int, ...]] = {"W_E": (LANES, D), "b_E": (D,)}
        shapes |= {name: (config.n_layers, *shape) for name, shape in inside.items()}
        shapes |= {f"last_{name}": shape for name, shape in heads.items()}
        shapes |= {"W_G": (D, H), "b_G": (H,), "W_U": (D, outputs), "b_U": (outputs,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(stack, *shape)))
        self.in_blocks, self.of_heads = tuple(inside), tuple(heads)

    def alone(self) -> SampleLearner:
        return SampleLearner(self.config, self.d, outputs=self.outputs)

    @property
    def matrices(self) -> dict[str, int]:
        """Those of blocks; queries and keys are two side by side."""
        return {name: 2 if name == "W_QK" else 1 for name in ("W_QK", "W_V", "W_O", "W_in", "W_out")}

    def draw(self, name: str, rng: CounterRNG, shape: torch.Size) -> Tensor:
        """The answer starts as the mean of the heads' kernel density estimates, of widths from narrow to wide."""
        short, heads = name.removeprefix("last_"), self.config.n_heads
        if short.startswith("ln"):
            return torch.ones(shape) if short.endswith("w") else torch.zeros(shape)
        if short == "b_B":
            return torch.linspace(NARROW, WIDE, heads).expand(shape).clone()
        if short.startswith("b_") or short in ("W_B", "W_G", "W_U"):
            return torch.zeros(shape)
        writes = short in ("W_O", "W_out")
        std = 1.0 / math.sqrt(shape[-2] * (2 * self.config.n_layers if writes else 1))
        return std * rng.normal(torch.zeros(1, dtype=torch.int64), *shape)[0]

    # ------------------------------------------------------------------------------------------------------- forward

    def forward(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None = None, keep: Keep | None = None
    ) -> Tensor:
        """(S, B, N, outputs): answers at the queries, 0 elsewhere. y is not read: samples have no labels."""
        del y
        w = dict(self.named_parameters()) if weights is None else weights
        residual, place, noise, apart = self.prepare(x, w)
        layers = {name: w[name].unbind(1) for name in self.in_blocks}
        for number in range(self.config.n_layers):
            parameters = {name: layers[name][number] for name in layers}
            if keep is not None:
                residual = keep(f"blocks.{number}.resid_pre", residual)
            residual = self.block(residual, place, noise, apart, parameters)
            if keep is not None:
                residual = keep(f"blocks.{number}.resid_post", residual)
        found = self.read_out(residual, place, noise, apart, w) * parts(x).query[..., None]
        return found if self.outputs > 1 else found[..., 0]

    def objective(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor], step: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """The mean squared error at the queries: elsewhere there is nothing to predict."""
        del step, points
        errors: Tensor = ((self(x, y, weights) - y) / self.scale_of(y)).square()
        errors = errors.mean(3) if errors.ndim == 4 else errors
        return errors.sum((1, 2)) / parts(x).query.sum((1, 2)).clamp(min=1)

    def prepare(self, x: Tensor, w: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens (S, B, N, D); places X (S, B, N, d); noise e^2t - 1 (S, B, 1, N); and the halves of squared distances
        to all that is read, (S, B, 1, N, N): ``FAR`` where nothing is read.
        """
        place, t, sample, query = parts(x.float())
        place = place * t.exp()[..., None]
        apart = 0.5 * (place[:, :, :, None] - place[:, :, None]).square().sum(-1)
        apart = apart.masked_fill(~sample[:, :, None], FAR)[:, :, None]
        noise = torch.expm1(2.0 * t)[:, :, None]
        asks, left = query.to(t.dtype), (-t).exp()
        count = sample.sum(2, keepdim=True).clamp(min=1).to(t.dtype).log().expand_as(t)
        times = 0.5 * t.clamp(min=1e-6).log() * asks
        lanes = torch.stack((asks, times, (1.0 - left.square()).sqrt(), left, 0.25 * count), -1)
        residual = product(lanes.to(w["W_E"].dtype), w["W_E"]) + w["b_E"][:, None, None]
        return residual, place, noise, apart

    def block(self, residual: Tensor, place: Tensor, noise: Tensor, apart: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """One block: residual (S, B, N, D) -> the same; w (S, ...)."""
        normed = layer_norm(residual, w["ln1_w"], w["ln1_b"])
        pattern, u, _ = self.heads(normed, place, noise, apart, w)
        values = self.split(product(normed, w["W_V"]))
        mixed = (pattern.to(values.dtype) @ values).transpose(2, 3).flatten(3)
        mixed = torch.cat((mixed, u.transpose(2, 3).flatten(3).to(mixed.dtype)), -1)
        residual = residual + product(mixed, w["W_O"]) + w["b_O"][:, None, None]
        hidden = product(layer_norm(residual, w["ln2_w"], w["ln2_b"]), w["W_in"]) + w["b_in"][:, None, None]
        return residual + product(F.gelu(hidden, approximate="tanh"), w["W_out"]) + w["b_out"][:, None, None]

    def read_out(
        self, residual: Tensor, place: Tensor, noise: Tensor, apart: Tensor, w: Mapping[str, Tensor]
    ) -> Tensor:
        """(S, B, N, outputs) float32."""
        last = {name: w[f"last_{name}"] for name in self.of_heads}
        normed = layer_norm(residual, last["ln1_w"], last["ln1_b"])
        _, u, b = self.heads(normed, place, noise, apart, last)
        left = (1.0 + noise).rsqrt()  # e^-t
        gates = (product(normed, w["W_G"]) + w["b_G"][:, None, None]).float().transpose(2, 3)  # (S, B, H, N)
        rest = (product(normed, w["W_U"]) + w["b_U"][:, None, None]).float() * left.transpose(2, 3)
        gates = (1.0 / self.config.n_heads + left * gates) * b.sqrt() * noise.sqrt()
        return (gates[..., None] * u).sum(2) + rest

    def heads(
        self, normed: Tensor, place: Tensor, noise: Tensor, apart: Tensor, w: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The patterns P (S, B, H, N, N), u (S, B, H, N, d), and b (S, B, H, N); all float32."""
        q, k = (self.split(part) for part in (product(normed, w["W_QK"]) + w["b_QK"][:, None, None]).chunk(2, -1))
        exponent = (product(normed, w["W_B"]).float() + w["b_B"][:, None, None].float()).transpose(2, 3)
        squared = self.config.bandwidth**2 * (RANGE * torch.tanh(exponent / RANGE)).exp()
        b = 1.0 / (squared + noise)  # (S, B, H, N)
        q = q * (1.0 / math.sqrt(q.shape[-1]))
        scores = torch.addcmul((q @ k.mT).float(), b[..., None], apart, value=-1.0)
        pattern = scores.softmax(-1)
        u = b.sqrt()[..., None] * (pattern @ place[:, :, None] - place[:, :, None])
        return pattern, u, b

    def split(self, x: Tensor) -> Tensor:
        """(S, B, N, D) -> (S, B, H, N, Dh)"""
        return x.view(*x.shape[:-1], self.config.n_heads, -1).transpose(2, 3)

    # --------------------------------------------------------------------------------------------------------- scores

    def score(self, samples: Tensor) -> Callable[[Tensor, float | Tensor], Tensor]:
        """The score of the distribution that samples (n, d) are from, as a function of points (m, d) and a time, or a
        time for each point.

        ``innergrad.diffusion.sample`` takes it. For a stack of one.
        """
        self._single("score")
        given = _samples(samples, self.outputs).to(self.scale.device)

        @torch.no_grad()
        def score(x: Tensor, t: float | Tensor) -> Tensor:
            places, times = _asked(x, t, given)
            rows = max(1, -(-len(places) // CHUNK))
            full = F.pad(places, (0, 0, 0, rows * CHUNK - len(places))).view(rows, CHUNK, self.outputs)
            when = F.pad(times, (0, rows * CHUNK - len(times)), value=1.0).view(rows, CHUNK)
            points = asked(given.expand(rows, *given.shape), full, when)
            blank = points.new_zeros(*points.shape[:2], *((self.outputs,) if self.outputs > 1 else ()))
            answers: Tensor = self(points[None], blank[None])[0]
            found = answers[:, len(given) :].reshape(rows * CHUNK, self.outputs)
            sigma = (-torch.expm1(-2.0 * times)).sqrt()[:, None]
            answer = found[: len(places)] / sigma
            return answer.to(x) if isinstance(x, Tensor) and x.is_floating_point() else answer

        return score


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (S, B, N, D) with weight and bias (S, D)."""
    normed = F.layer_norm(x.float(), x.shape[-1:])
    return (normed * weight.float()[:, None, None] + bias.float()[:, None, None]).to(x.dtype)


def _numbers(name: str, values: object) -> Tensor:
    try:
        return torch.as_tensor(values).real.to(torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} are numbers", got=shortened(repr(values), 60)) from error


def _samples(values: object, d: int) -> Tensor:
    found = _numbers("samples", values)
    if found.ndim != 2 or found.shape[1] != d or not len(found):
        raise InputError("samples have the shape (n, d)", got=tuple(found.shape), allowed=f"d = {d}, n = 2 or more")
    if not bool(torch.isfinite(found).all()):
        raise InputError("samples contain NaN or infinity", hint="leave those rows out")
    if len(found) == 1 or bool((found == found[0]).all()):
        got = f"{len(found)} times {found[0].tolist()}"
        raise InputError("one point is no distribution", got=got, allowed="two different points or more")
    largest, spread = float(found.abs().max()), float(found.std(0).max())
    if largest > LARGEST or spread < NARROWEST:
        got = f"numbers up to {largest:.3g}, a standard deviation of {spread:.3g}"
        allowed = f"numbers up to {LARGEST:g}, and a deviation of {NARROWEST:g} or more"
        hint = "subtract the mean m of the samples and divide by their deviation s; new points are then s x + m"
        raise InputError("the samples are not scaled", got=got, allowed=allowed, hint=hint)
    return found


def _asked(x: object, t: object, given: Tensor) -> tuple[Tensor, Tensor]:
    """Places (m, d) and a time (m,) for each."""
    places, times = (_numbers(*one).to(given.device) for one in (("points", x), ("times", t)))
    if places.ndim != 2 or places.shape[1] != given.shape[1]:
        allowed = f"(m, {given.shape[1]})"
        raise InputError("points have the dimensions of the samples", got=tuple(places.shape), allowed=allowed)
    if not bool(torch.isfinite(places).all()):
        raise InputError("points contain NaN or infinity", hint="leave those rows out")
    if times.ndim > 1 or (times.ndim == 1 and len(times) != len(places)):
        got, allowed = tuple(times.shape), f"one number, or {len(places)} of them"
        raise InputError("there is a time for all points, or one for each", got=got, allowed=allowed)
    if not bool((times > 0.0).all()):
        raise InputError("a score is asked for at times above 0", got=f"t = {float(times.min()):g}")
    return places, times.clamp(max=LATEST).expand(len(places))
