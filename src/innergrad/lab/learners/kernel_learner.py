"""The attention-only models of Cheng et al.: a layer is a step of something like gradient descent in function space.

Tokens are stacked columns (x_1; y_1), ..., (x_n; y_n), (x; 0), the last one the query, and a layer adds to all of them

    Z <- Z + sum over heads of V Z M h(B X, C X),    V = diag(A, r),    M leaves out the query as a key        (2), (26)
    h(U, W)_ij = h(<u_i, w_j>)  for linear, relu, exp;   exp(<u_i, w_j>) / sum_k exp(<u_k, w_j>)  for softmax      (12)

    x_j += A sum_i h_ij x_i,     y_j += r sum_i h_ij y_i        i over the n examples, j over examples and query

The prediction is *minus* the query's label lane. With A = 0, B = C = 1 and r = -eta the lane of an example is its
residual y_i - f(x_i), and that of the query is -f(x). Then f <- f + eta sum_i (y_i - f(x_i)) h(., x_i) (Proposition
3.1, corrected).

Labels enter linearly, so the scale of labels does not matter to these models. Only B^T C matters: (B, C) and
(L^T B, L^-1 C) give the same predictions.

A label may be a vector: its numbers are mixed alike, each in a lane of its own.

Parameters: r (S, L, H); A, B, C (S, L, H, d, d) for a stack of S models of L layers with H heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from innergrad import flops
from innergrad.config import check_choices
from innergrad.errors import InputError, integer, real
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.base import Keep, Learner, LearnerConfig

if TYPE_CHECKING:
    from innergrad.algorithms.base import Algorithm
    from innergrad.algorithms.functional_layers import FunctionalHead, FunctionalLayers
    from innergrad.transformer import CompiledTransformer

ACTIVATIONS = ("linear", "relu", "exp", "softmax")


@dataclass(frozen=True)
class KernelLearnerConfig(LearnerConfig, kind="kernel"):
    """The shape of the attention-only models of Cheng et al. (2024). The defaults are theirs.

    Args:
        n_layers: layers.
        heads: the activation of each head: ``linear``, ``relu``, ``exp`` or ``softmax``.
        free_A: train the matrix A on values, as in Theorem 4.6 there. Otherwise it is 0, as in Theorem 4.5.
        normalise: ``count`` divides linear, relu and exp by the number of examples.
        init_std: the standard deviation of the initial entries of A, B and C.
        init_r: the initial step r.
        cap: scores of exp and relu count as ``cap`` at most; None for no limit. Without one, learners with a free A and
            many layers overflow in training: larger covariates make larger scores, and these make larger covariates.

    Examples:
        >>> from innergrad import lab
        >>> learner = lab.KernelLearnerConfig(n_layers=1, heads=("linear",)).build(d=3, n_points=5)
        >>> sorted(name for name, _ in learner.named_parameters())
        ['B', 'C', 'r']
    """

    n_layers: int = 3
    heads: tuple[str, ...] = ("softmax",)
    free_A: bool = False
    normalise: Literal["none", "count"] = "none"
    init_std: float = 0.3
    init_r: float = -0.01
    cap: float | None = None

    def __post_init__(self) -> None:
        check_choices(self, "learner.")
        integer("learner.n_layers", self.n_layers)
        unknown = [head for head in self.heads if head not in ACTIVATIONS]
        if unknown or not self.heads:
            raise InputError("learner.heads are activations", got=repr(self.heads), allowed=", ".join(ACTIVATIONS))
        real("learner.init_std", self.init_std, above=0.0)
        if self.cap is not None:
            real("learner.cap", self.cap)
        real("learner.init_r", self.init_r)

    def build(self, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> KernelLearner:
        return KernelLearner(self, d, stack, outputs)

    def activations(self, n_points: int) -> int:
        return self.n_layers * len(self.heads) * 3 * n_points**2

    def flops(self, d: int, n_points: int, *, seen: bool = False) -> flops.Flops:
        """Every token reads the examples; C^T B is made once, here for one prompt."""
        del seen  # nothing is masked
        layer, pairs = flops.Flops(), n_points * (n_points - 1)
        for head in self.heads:
            each = flops.SOFTMAX if head == "softmax" else 0 if head == "linear" else 1
            layer += flops.product(d, d, d) + flops.product(n_points, d, d) + flops.attention(1, pairs, d, d + 1, each)
            layer += flops.functions(n_points) + (flops.product(n_points, d, d) if self.free_A else flops.Flops())
        return self.n_layers * layer


class KernelLearner(Learner):
    """A stack of attention-only models; see the module. Prompts may have any number of points."""

    def __init__(self, config: KernelLearnerConfig, d: int, stack: int = 1, outputs: int = 1) -> None:
        super().__init__(d, stack, outputs)
        self.config = config
        shape = (stack, config.n_layers, len(config.heads))
        self.r = nn.Parameter(torch.zeros(shape))
        for name in ("A", "B", "C") if config.free_A else ("B", "C"):
            self.register_parameter(name, nn.Parameter(torch.zeros(*shape, d, d)))

    @property
    def matrices(self) -> dict[str, int]:
        return {name: 1 for name, _ in self.named_parameters() if name != "r"}

    def alone(self) -> KernelLearner:
        return KernelLearner(self.config, self.d, outputs=self.outputs)

    def draw(self, name: str, rng: CounterRNG, shape: torch.Size) -> Tensor:
        if name == "r":
            return torch.full(shape, self.config.init_r)
        return self.config.init_std * rng.normal(torch.zeros(1, dtype=torch.int64), *shape)[0]

    def forward(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None = None, keep: Keep | None = None
    ) -> Tensor:
        """(S, B, 1): the label of the last point from the pairs before it; x (S, B, n + 1, d), y (S, B, n + 1)."""
        w = dict(self.named_parameters()) if weights is None else weights
        keep = keep or _pass
        labels = torch.cat((y[:, :, :-1], torch.zeros_like(y[:, :, :1])), 2)
        lanes = labels[..., None] if self.outputs == 1 else labels
        Z = torch.cat((x, lanes), 3).to(w["r"].dtype)
        for layer in range(self.config.n_layers):
            Z = keep(f"blocks.{layer}.resid_pre", Z)
            parameters = {name: value[:, layer] for name, value in w.items()}
            Z = keep(f"blocks.{layer}.resid_post", self.layer(Z, parameters, keep, f"blocks.{layer}.attn.pattern"))
        return -Z[:, :, -1:, -1 if self.outputs == 1 else slice(self.d, None)].to(y.dtype)

    def label_weights(self, x: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """(S, B, n + 1): v with  label - prediction = sum_i v_i y_i  at the query, whatever the labels y are.

        No pattern depends on labels. So the patterns h are made first, and v is carried back through the layers, from
        v = (0, ..., 0, 1) by v <- v + r M h v (Lemma A.1 of Cheng et al.). The last layer is asked for the query's row
        alone, and its A does not matter.
        """
        w = dict(self.named_parameters()) if weights is None else weights
        X, rows, last = x.to(w["r"].dtype), [], self.config.n_layers - 1
        for layer in range(self.config.n_layers):
            parameters = {name: value[:, layer] for name, value in w.items()}
            demos = X[:, :, :-1]
            pattern = self.attention(X if layer < last else X[:, :, -1:], demos, parameters)
            rows.append((pattern, parameters["r"]))
            if layer < last and "A" in w:
                X = X + self.moves(pattern @ demos[:, :, None], parameters["A"])
        v = torch.zeros_like(X[:, :, :-1, 0])
        for pattern, r in reversed(rows):
            query = pattern[:, :, :, -1]  # (S, B, H, n)
            owed = (
                query if pattern is rows[-1][0] else (v[:, :, None, None] @ pattern[:, :, :, :-1])[:, :, :, 0] + query
            )
            v = v + (r[:, None, :, None] * owed).sum(2)
        return torch.cat((v, torch.ones_like(v[:, :, :1])), 2)

    def layer(self, Z: Tensor, w: Mapping[str, Tensor], keep: Keep, name: str) -> Tensor:
        """Z (S, B, n + 1, d + outputs) after one layer; parameters (S, H, ...)."""
        X, demos, d = Z[..., : self.d], Z[:, :, :-1], self.d
        pattern = keep(name, self.attention(X, demos[..., :d], w))
        mixed = pattern @ demos[:, :, None]
        labels = (w["r"][:, None, :, None, None] * mixed[..., d:]).sum(2)
        covariates = self.moves(mixed[..., :d], w["A"]) if "A" in w else torch.zeros_like(X)
        return Z + torch.cat((covariates, labels), -1)

    def attention(self, X: Tensor, demos: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """The pattern (S, B, H, tokens, n) of tokens X (S, B, tokens, d) that look at the examples (S, B, n, d)."""
        products = w["C"].mT @ w["B"]  # <B x_i, C x_j> = x_j^T (C^T B) x_i
        queries = [_each(X, products[:, head]) for head in range(len(self.config.heads))]
        return self.pattern(_side_by_side(queries) @ demos.mT[:, :, None])

    def moves(self, mixed: Tensor, A: Tensor) -> Tensor:
        """How covariates change: A times what each head mixed, (S, B, H, tokens, d), summed over heads."""
        return torch.stack([_each(mixed[:, :, head], A[:, head].mT) for head in range(len(self.config.heads))]).sum(0)

    def pattern(self, scores: Tensor) -> Tensor:
        """h of every head: (S, B, H, queries, examples) -> the same."""
        count = max(scores.shape[-1], 1) if self.config.normalise == "count" else 1
        made = []
        for head, score in zip(self.config.heads, scores.unbind(2), strict=True):
            if head == "softmax":
                made.append(score.softmax(-1))
            else:
                found = self.capped(score).relu() if head == "relu" else score
                found = self.capped(score).exp() if head == "exp" else found
                made.append(found if count == 1 else found / count)
        return _side_by_side(made)

    def capped(self, score: Tensor) -> Tensor:
        return score if self.config.cap is None else score.clamp(max=self.config.cap)

    def as_descent(self, r: Sequence[float], root: Tensor | None = None) -> KernelLearner:
        """Sets every model to functional gradient descent with steps r_l: V = diag(0, -r_l), B = C = ``root`` (or 1).

        With root = Sigma^(-1/2) this is the stationary point of Theorem 4.5; several heads add their kernels.
        """
        if len(r) != self.config.n_layers:
            raise InputError("one step a layer", got=len(r), allowed=str(self.config.n_layers))
        with torch.no_grad():
            self.r.copy_(-torch.tensor(r, dtype=self.r.dtype)[:, None].expand_as(self.r))
            for name in ("B", "C"):
                parameter = self.get_parameter(name)
                parameter.copy_(torch.eye(self.d).expand_as(parameter) if root is None else root.expand_as(parameter))
            if self.config.free_A:
                self.get_parameter("A").zero_()
        return self

    @torch.no_grad()
    def as_algorithm(self, model: int = 0, n_examples: int | None = None) -> FunctionalLayers:
        """One model of the stack as an algorithm to compile: the same numbers, in float64. n_examples: of its prompts,
        which all must have so many, if ``normalise`` divides by their number.
        """
        from innergrad.algorithms.functional_layers import FunctionalHead, FunctionalLayers

        if self.config.cap is not None:
            hint = "where no score reaches it, a learner of the same weights with cap = None predicts the same"
            raise InputError(
                "attention with a cap is no kernel that can be compiled", got=f"cap = {self.config.cap}", hint=hint
            )
        if self.config.normalise == "count" and n_examples is None:
            raise InputError("this learner divides by the number of examples", hint="give n_examples")
        w = {name: value[model].double().cpu() for name, value in self.named_parameters()}
        layers = []
        for layer in range(self.config.n_layers):
            heads = []
            for head, kernel in enumerate(self.config.heads):
                at = layer, head
                count = n_examples or 1 if self.config.normalise == "count" and kernel != "softmax" else 1
                A = w["A"][at] / count if "A" in w else 0.0
                heads.append(FunctionalHead(kernel, -float(w["r"][at]) / count, A, w["B"][at], w["C"][at]))
            layers.append(heads)
        return FunctionalLayers(layers, self.d, self.outputs)

    @torch.no_grad()
    def distance_to_identity(self, sigma: Tensor | None = None) -> Tensor:
        """(S, L, H): dist(Sigma^(1/2) B^T C Sigma^(1/2), I) of Cheng et al., H.2: 0 where Theorem 4.5 is stationary.

        sigma: (d, d), or (S, d, d), one a model.
        """
        products = self.get_parameter("B").double().mT @ self.get_parameter("C").double()
        if sigma is not None:
            values, vectors = torch.linalg.eigh(sigma.to(products))
            root = (vectors * values.sqrt()[..., None, :]) @ vectors.mT
            root = root[:, None, None] if sigma.ndim == 3 else root
            products = root @ products @ root
        return distance(products)


def distance(matrix: Tensor) -> Tensor:
    """min over a of |M - a I| / |M| (Frobenius; a = trace M / d) for M (..., d, d); 1 for a matrix without a trace."""
    d = matrix.shape[-1]
    square = matrix.square().sum((-2, -1))
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (1.0 - trace.square() / (d * square)).clamp(min=0.0).sqrt()


def _each(x: Tensor, matrix: Tensor) -> Tensor:
    """x (S, B, n, d) times matrix (S, d, e): one product a model. On a GPU one a prompt: else the gradient of a small
    matrix would be summed over all prompts by one block of threads, which is slow.
    """
    if x.is_cuda:
        return x @ matrix[:, None]
    return torch.bmm(x.flatten(1, 2), matrix).view(*x.shape[:3], matrix.shape[-1])


def _side_by_side(values: Sequence[Tensor]) -> Tensor:
    """A tensor a head, with an axis of heads after those of models and prompts; one head is not copied."""
    return values[0][:, :, None] if len(values) == 1 else torch.stack(list(values), 2)


def _pass(name: str, value: Tensor) -> Tensor:
    return value


# ------------------------------------------------------------------------------------------- from compiled to trained


def from_compiled(tf: CompiledTransformer, *, free_A: bool = False) -> KernelLearner:
    """A compiled transformer of functional gradient descent as a learner that can be trained further.

    It predicts what the transformer does. ``lab.train(experiment, start=learner)`` begins there. The learner's numbers
    are 32-bit.

    Args:
        tf: compiled from ``FunctionalGradientDescent`` or ``FunctionalLayers``.
        free_A: train the matrix A on values, too. It must be, where it is not 0 in the transformer.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad import lab
        >>> tf = ig.compile(ig.FunctionalGradientDescent("linear", steps=2, d=3, step=0.1), n_examples=4)
        >>> learner = lab.from_compiled(tf)
        >>> learner.config.n_layers, learner.config.heads
        (2, ('linear',))
    """
    layers = [[term for head in layer for term in _terms(head)] for layer in _heads(tf.algorithm)]
    kinds = [tuple(term.kind for term in layer) for layer in layers]
    if len(set(kinds)) > 1:
        allowed = "the same kernels in every layer"
        raise InputError("a learner has the same heads in every layer", got=", ".join(map(str, kinds)), allowed=allowed)
    moves = any(term.A.any() for layer in layers for term in layer)
    if moves and not free_A:
        raise InputError("this transformer moves its inputs: A is not 0", hint="give free_A=True")
    d = len(layers[0][0].A)
    outputs = int(getattr(tf.algorithm, "d_y", 1))
    learner = KernelLearnerConfig(len(layers), kinds[0], free_A=free_A).build(d, 2, outputs=outputs)
    with torch.no_grad():
        learner.r.copy_(torch.tensor([[-term.step for term in layer] for layer in layers]))
        for name in ("A", "B", "C") if free_A else ("B", "C"):
            parts = [[torch.from_numpy(getattr(term, name)) for term in layer] for layer in layers]
            learner.get_parameter(name).copy_(torch.stack([torch.stack(layer) for layer in parts]))
    return learner


@dataclass(frozen=True)
class _Term:
    """A head of a learner: y_j -= step sum_i h(<B x_i, C x_j>) y_i, and so for x_j by A."""

    kind: str
    step: float
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray


def _heads(algorithm: Algorithm) -> list[tuple[FunctionalHead, ...]]:
    """Those of every layer, with the number of inputs in their matrices."""
    from innergrad.algorithms.functional import FunctionalGradientDescent
    from innergrad.algorithms.functional_layers import FunctionalHead, FunctionalLayers

    if not isinstance(algorithm, FunctionalGradientDescent | FunctionalLayers):
        got, allowed = type(algorithm).__name__, "FunctionalGradientDescent or FunctionalLayers"
        raise InputError("no learner of the lab has the shape of this transformer", got=got, allowed=allowed)
    one = np.eye(algorithm.d)
    if isinstance(algorithm, FunctionalLayers):
        full = [[(head, head.maps(algorithm.d)) for head in layer] for layer in algorithm.layers]
        return [tuple(FunctionalHead(head.kernel, head.step, *maps) for head, maps in layer) for layer in full]
    A = algorithm.covariate_step * one
    return [(FunctionalHead(algorithm.kernel, float(r), A, one, one),) for r in algorithm.rates()]


def _terms(head: FunctionalHead) -> Iterator[_Term]:
    """One for each summand of the head's kernel, weight h(<G B x_i, G C x_j> / bandwidth^2)."""
    A, B, C = (np.array(getattr(head, name)) for name in "ABC")
    for weight, factors in head.kernel.terms:
        if len(factors) != 1:
            hint = "a head of the lab's learner has one kernel"
            raise InputError("a product of kernels is no head of a learner", got=repr(head.kernel), hint=hint)
        (factor,) = factors
        G = np.eye(len(B)) if factor.G is None else np.array(factor.G)
        key, query = G @ B / factor.bandwidth**2, G @ C
        if key.shape != A.shape:  # only the product of the two matters
            key, query = query.T @ key, np.eye(len(A))
        yield _Term(factor.h, weight * head.step, weight * A, key, query)
