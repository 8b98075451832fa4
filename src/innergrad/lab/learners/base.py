"""The base class of learners, for training and evaluation: a stack of models that read prompts and predict labels.

**A single model is a stack of one.** Every parameter has a leading dimension S, the models of the stack, and products
are batched over it. Training S models of one shape (seeds, tasks, learning rates) is therefore the same code, and on a
GPU much faster than one after another.

``forward`` takes the parameters as an argument, so that training can hand it copies in another precision.
``run_with_cache`` runs the same forward and keeps the activations.

A label is one number, y (..., n), or a vector of ``outputs`` numbers, y (..., n, outputs). So are predictions.

A kind of learner is a ``LearnerConfig`` and a ``Learner``: ``gpt.py``, ``kernel_learner.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from inspect import signature
from typing import ClassVar

import torch
from torch import Tensor, nn

from innergrad.config import Family
from innergrad.errors import InputError, integer, lacks
from innergrad.flops import Flops
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import shape_of_label, words_for_label

Keep = Callable[[str, Tensor], Tensor]  # sees an activation by its name, and returns its replacement


@dataclass(frozen=True)
class LearnerConfig(Family):
    """The shape of a learner. Subclass it, and ``Learner``, to train a model of your own.

    A subclass gives its ``kind``, the name in configuration files, and overrides ``build``.

    Examples:
        >>> from innergrad import lab
        >>> [kind for kind in ("gpt", "kernel", "samples", "table", "lstm") if kind in lab.LearnerConfig.kinds]
        ['gpt', 'kernel', 'samples', 'table']
    """

    by_component: ClassVar[bool] = False  # whether numbers of a label are prompts of their own: so many activations
    INITIAL: ClassVar[tuple[str, ...]] = ()  # settings of initial weights alone: models of a stack may differ in them

    def drawn_as(self, other: LearnerConfig) -> LearnerConfig:
        """This shape, with the initial weights of another of its kind."""
        if type(self) is not type(other):
            return self
        return replace(self, **{name: getattr(other, name) for name in self.INITIAL})

    def build(self, d: int, n_points: int, stack: int = 1) -> Learner:
        """``stack`` untrained models for prompts of at most ``n_points`` points of ``d`` numbers.

        A kind whose labels may be vectors takes a fourth argument, ``outputs``.
        """
        raise lacks(self, "build(d, n_points, stack)")

    def build_for(self, d: int, n_points: int, stack: int = 1, outputs: int = 1) -> Learner:
        """``build`` for labels of ``outputs`` numbers; an error if learners of this kind predict one number alone."""
        build: Callable[..., Learner] = self.build
        if outputs == 1:
            return build(d, n_points, stack)
        if "outputs" not in signature(build).parameters:
            hint = "its build(d, n_points, stack) has to take outputs, too"
            raise InputError(
                f"a learner of kind {self.kind} predicts one number", got=f"labels of {outputs}", hint=hint
            )
        return build(d, n_points, stack, outputs=outputs)

    def activations(self, n_points: int) -> int:
        """How many numbers a prompt leaves behind in a forward pass, about; 0 where nobody knows."""
        del n_points
        return 0

    def flops(self, d: int, n_points: int, *, seen: bool = False) -> Flops | None:
        """Operations of a forward pass on one prompt; None where nobody knows. seen: of scores, only those that a
        causal mask shows; otherwise all, as plain matrix products compute them.
        """
        del d, n_points, seen
        return None


class Learner(nn.Module):
    """A stack of models that read prompts and predict labels. A single model is a stack of one.

    Every parameter has a leading axis S, the models of the stack. ``model(i)`` takes one of them out.

    Args:
        d: the number of inputs.
        stack: S.
        outputs: the numbers of a label.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> learner = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8).build(d=2, n_points=4).init([0])
        >>> x, y = torch.zeros(3, 4, 2), torch.zeros(3, 4)
        >>> tuple(learner.predict(x, y).shape)  # every label, from the pairs before it
        (3, 4)
        >>> predictions, cache = learner.run_with_cache(x, y, names=["blocks.0.resid_post"])
        >>> tuple(cache["blocks.0.resid_post"].shape)
        (3, 7, 8)
    """

    FUSED: ClassVar[tuple[str, ...]] = ()  # methods that training on a GPU compiles
    scale: Tensor  # (S,): the root mean square of a number of a label; the network works on y / scale

    def __init__(self, d: int, stack: int = 1, outputs: int = 1) -> None:
        super().__init__()
        self.d, self.stack, self.outputs = integer("d", d), integer("stack", stack), integer("outputs", outputs)
        self.register_buffer("scale", torch.ones(stack))

    def init(self, seeds: Sequence[int]) -> Learner:
        """Draws the parameters: those of model s depend on seeds[s] alone."""
        rngs = [CounterRNG.of(seed, "init") for seed in seeds]
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                drawn = [self.draw(name, rng.fork(name), parameter.shape[1:]) for rng in rngs]
                parameter.copy_(torch.stack(drawn))
        return self

    @property
    def matrices(self) -> dict[str, int]:
        """Parameters that Muon takes, (S, ..., a, b), and how many matrices are side by side in each."""
        return {name: 1 for name, parameter in self.named_parameters() if parameter.ndim > 2}

    @property
    def decayed(self) -> set[str]:
        """Parameters that weight decay is for."""
        return set(self.matrices)

    def draw(self, name: str, rng: CounterRNG, shape: torch.Size) -> Tensor:
        """Initial values of one model's parameter."""
        raise lacks(self, "draw(name, rng, shape)")

    def forward(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None = None, keep: Keep | None = None
    ) -> Tensor:
        """Predictions of the last labels, (S, B, m): m = n for causal learners, 1 for those that answer one query.

        x (S, B, n, d), y (S, B, n); no prediction reads the label it predicts, nor later ones. Labels that are vectors,
        and their predictions, have one more axis.
        """
        raise lacks(self, "forward(x, y, weights, keep)")

    def objective(
        self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor], step: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """What training makes small, one number a model, (S,): the loss of the predictions.

        ``step``: of training, for objectives that draw something. ``points``: of a prompt that count; None for all.
        """
        del step
        return self.loss(self(x, y, weights), y, points)

    def loss(self, predictions: Tensor, y: Tensor, points: Tensor | None = None) -> Tensor:
        """Mean squared error of each model in units of its labels' scale, (S,), over the points that count.

        The error of a vector is the mean over its numbers.
        """
        n, m = y.shape[2], predictions.shape[2]
        errors = ((predictions - y[:, :, n - m :]) / self.scale_of(y)).square()
        errors = errors.mean(3) if errors.ndim == 4 else errors
        if points is None or m == 1:
            return errors.mean((1, 2))
        counted = torch.arange(n, device=y.device) < points
        return (errors * counted).sum((1, 2)) / (counted.sum() * errors.shape[1])

    def scale_of(self, y: Tensor) -> Tensor:
        """The scale, with the axes of labels y (S, B, n, ...)."""
        return self.scale.view(-1, *[1] * (y.ndim - 1))

    def label_weights(self, x: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """(S, B, n): v with  y_n - prediction = sum_i v_i y_i,  for learners that are linear in the labels."""
        raise lacks(self, "label_weights(x, weights)")

    @torch.no_grad()
    def predict(self, x: Tensor, y: Tensor) -> Tensor:
        """Every label of every prompt from the pairs before it: (B, n, d), (B, n) -> (B, n). For a stack of one.

        Labels of several numbers, and their predictions, are (B, n, outputs).
        """
        self._single("predict")
        self._check(x, y)
        n = x.shape[1]
        whole: Tensor = self(x[None], y[None])[0]
        if whole.shape[1] == n:
            return whole
        prefixes = [self(x[None, :, : k + 1], y[None, :, : k + 1])[0] for k in range(n - 1)]
        return torch.cat((*prefixes, whole), 1)

    @torch.no_grad()
    def run_with_cache(
        self,
        x: Tensor,
        y: Tensor,
        names: Sequence[str] = ("*",),
        edits: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Predictions (B, m) and the activations (B, ...) whose names match one of ``names``: ``blocks.*.resid_post``.

        ``edits`` maps names, or patterns of names, to functions that replace an activation before it is used; they keep
        its shape. For a stack of one.
        """
        self._single("run_with_cache")
        self._check(x, y)
        cache: dict[str, Tensor] = {}
        seen: set[str] = set()
        names = (names,) if isinstance(names, str) else names
        for name, edit in (edits or {}).items():
            if not callable(edit):
                got, allowed = type(edit).__name__, "a function of the activation"
                raise InputError(f"the edit of {name} is no function", got=got, allowed=allowed)

        def keep(name: str, value: Tensor) -> Tensor:
            seen.add(name)
            for pattern, edit in (edits or {}).items():
                if fnmatch(name, pattern):
                    value = _edited(name, edit(value[0]), value[0])[None]
            if any(fnmatch(name, pattern) for pattern in names):
                cache[name] = value[0]
            return value

        predictions = self(x[None], y[None], keep=keep)[0]
        unknown = [name for name in (*names, *(edits or ())) if not any(fnmatch(one, name) for one in seen)]
        if unknown:
            raise InputError("no activation has this name", got=", ".join(unknown), allowed=", ".join(sorted(seen)))
        return predictions, cache

    def model(self, number: int) -> Learner:
        """One model of the stack, by itself."""
        if not 0 <= number < self.stack:
            raise InputError("no such model in the stack", got=number, allowed=f"0 to {self.stack - 1}")
        alone = self.alone()
        with torch.no_grad():
            for name, value in self.state_dict().items():
                alone.state_dict()[name].copy_(value[number : number + 1])
        return alone.to(next(self.parameters()).device)

    def alone(self) -> Learner:
        """An untrained learner of the same shape, a stack of one."""
        raise lacks(self, "alone()")

    def extra_repr(self) -> str:
        """The text of print(learner)."""
        numbers = sum(parameter[0].numel() for parameter in self.parameters())
        return f"d={self.d}, stack={self.stack}, {numbers:,} parameters each"

    def _single(self, what: str) -> None:
        if self.stack != 1:
            raise InputError(f"{what} is for one model", got=f"a stack of {self.stack}", hint="take learner.model(i)")

    def _check(self, x: Tensor, y: Tensor) -> None:
        for value in (x, y):
            if not isinstance(value, Tensor):
                raise InputError("prompts are tensors, x (B, n, d) and y (B, n)", got=type(value).__name__)
        one = shape_of_label(self.outputs)
        if x.ndim != 3 or x.shape[2] != self.d or y.shape != x.shape[:2] + one:
            got = f"{tuple(x.shape)} and {tuple(y.shape)}"
            allowed = f"d = {self.d}" + (f", outputs = {self.outputs}" if one else "")
            raise InputError(f"prompts are x (B, n, d) and y {words_for_label(self.outputs)}", got=got, allowed=allowed)
        if not y.numel():
            raise InputError(
                "there are no prompts", got=f"y {tuple(y.shape)}", allowed="one prompt of one point, or more"
            )


def predictor_of(predict: Callable[[Tensor, Tensor], Tensor] | Learner) -> Callable[[Tensor, Tensor], Tensor]:
    """The ``predict`` of a learner; a function is itself one."""
    if isinstance(predict, Learner):
        predict._single("a prediction")
        return predict.predict
    if not callable(predict):
        allowed = "predict(x, y), or a learner"
        raise InputError("what predicts is a function or a learner", got=type(predict).__name__, allowed=allowed)
    return predict


def _edited(name: str, new: object, old: Tensor) -> Tensor:
    """The tensor that an edit returned, if it can take the activation's place."""
    if not isinstance(new, Tensor) or new.shape != old.shape:
        got = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
        raise InputError(f"an edit of {name} must return a tensor of its shape", got=got, allowed=str(tuple(old.shape)))
    return new
