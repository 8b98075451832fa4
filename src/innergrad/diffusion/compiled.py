"""A transformer that learns a score inside its forward pass.

Gradient descent with momentum, on a ReLU network of N >= 3 layers, is compiled into a transformer (Deep Optimizers,
Appendix H). The prompt has examples (x, t, label). After the last step the score is read out at any (x, t): the trained
weights are in the residual stream, and the read-out layers alone answer.

How long is trained? Until the loss has come to a *plateau*: in some number of steps it has fallen by less than some
share of itself. A transformer has as many steps as it was compiled with. The weights after every step are in the
stream, so those at the plateau are read from there. They are the weights of a transformer of so many steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from innergrad.algorithms import GradientDescent
from innergrad.algorithms.networks import Network
from innergrad.compiler import compile
from innergrad.diffusion.process import Times
from innergrad.diffusion.targets import Examples, ScoreTask
from innergrad.errors import InputError, integer, real, seed_number
from innergrad.evidence.certificate import Certificate
from innergrad.model.executors import Name
from innergrad.model.prompt import ArrayLike
from innergrad.transformer import CompiledTransformer

LEAST_LAYERS = 3  # N of the networks of Appendix H
KINKED = 2.0**0.5  # of initial weights, where half of the units are zero
CLOSE, SPREAD, GENTLE = 2.0, 0.7, 0.1  # of those on x; of hidden biases; of those of the last layer


@dataclass(frozen=True)
class Plateau:
    """When a loss has come to rest: in ``window`` steps it has fallen by less than the share ``fall`` of itself.

    Args:
        window: steps between two looks.
        fall: the share.

    Examples:
        >>> import innergrad as ig
        >>> ig.diffusion.Plateau(window=100, fall=0.05).reached([1.0, 0.5, 0.3, 0.29, 0.28])  # after 300 steps
        3
    """

    window: int = 250
    fall: float = 0.15

    def __post_init__(self) -> None:
        integer("window", self.window)
        real("fall", self.fall, low=0.0)

    def reached(self, losses: Sequence[float]) -> int | None:
        """The first of the losses, one every ``window`` steps, that is at rest; None if there is none."""
        pairs = enumerate(pairwise(losses), start=1)
        return next((place for place, (before, now) in pairs if now > (1.0 - self.fall) * before), None)


@dataclass(frozen=True)
class ScoreLearner:
    """Gradient descent on a score network, compiled into a transformer. It learns a score from the prompt.

    Args:
        d: the dimension of the data.
        task: how a score becomes examples.
        hidden: units of the hidden layers; at least two layers, so that the network has three.
        activation: ``relu``, as in Appendix H, or another, such as ``tanh``.
        n_examples: the longest prompt.
        lr: the learning rate.
        momentum: of the heavy ball.
        steps: the most steps of gradient descent.
        plateau: when training ends before that.
        target: the kind of transformer, ``llama`` or another one that ``innergrad.compile`` knows.

    Examples:
        >>> import innergrad as ig, torch
        >>> mixture, task = ig.diffusion.SHAPES["two-bumps"](), ig.diffusion.ScoreTask()
        >>> learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(16, 16), n_examples=64, steps=200)
        >>> learned = learner.learn(task.from_mixture(mixture, n=64))
        >>> x = torch.linspace(-2, 2, 9).view(-1, 1)
        >>> tuple(learned(x, 0.5).shape)  # the score at nine points, at time 0.5
        (9, 1)
    """

    d: int
    task: ScoreTask = field(default_factory=ScoreTask)
    hidden: tuple[int, ...] = (48, 48)
    activation: str = "relu"
    n_examples: int = 2048
    lr: float = 0.03
    momentum: float = 0.9
    steps: int = 1500
    plateau: Plateau = field(default_factory=Plateau)
    target: str = "llama"

    def __post_init__(self) -> None:
        integer("d", self.d)
        integer("steps", self.steps)
        if len(self.hidden) + 1 < LEAST_LAYERS:
            got, allowed = f"{len(self.hidden)} hidden layers", "two or more"
            raise InputError("a score network has at least three layers", got=got, allowed=allowed)

    @cached_property
    def network(self) -> Network:
        """The small network that is trained in the residual stream."""
        return Network([self.task.inputs(self.d), *self.hidden, self.d], self.activation)

    @cached_property
    def algorithm(self) -> GradientDescent:
        """What is compiled."""
        return GradientDescent(self.network, lr=self.lr, steps=self.steps, momentum=self.momentum, box=None)

    @cached_property
    def tf(self) -> CompiledTransformer:
        """The transformer. Its weights do not depend on any data."""
        return compile(self.algorithm, target=self.target, n_examples=self.n_examples)

    def start(self, seed: int = 0) -> Tensor:
        """Initial weights: normal numbers, of a size that keeps signals at their size from layer to layer.

        Three things help a score network. Biases are not zero, so that kinks are everywhere in space. The first layer
        looks at x more closely than at the time. And the last layer is small, so that training begins gently.
        """
        *parts, (last, end) = self.network.unflatten(self.network.init(seed))
        generator, hidden = torch.Generator().manual_seed(seed_number(seed) + 1), list[tuple[Tensor, Tensor | None]]()
        gain = KINKED if self.activation == "relu" else 1.0
        for V, b in parts:
            assert b is not None
            by = torch.full_like(V[:1], gain) if hidden else torch.ones_like(V[:1])
            by[:, : 0 if hidden else self.d] = CLOSE
            hidden.append((V * by, SPREAD * torch.randn(b.shape, generator=generator, dtype=b.dtype)))
        return self.network.flatten([*hidden, (GENTLE * last, end)])

    def check(self, examples: Examples) -> None:
        """An error if the prompt does not fit."""
        if examples.x.shape[-1] != self.d:
            got = f"points with {examples.x.shape[-1]} coordinates"
            raise InputError("the examples have another dimension", got=got, allowed=f"d = {self.d}")
        if len(examples) > self.n_examples:
            hint = "give fewer examples, or a learner with a larger n_examples"
            allowed = f"at most n_examples = {self.n_examples}"
            raise InputError(
                "the prompt is longer than the learner was made for", got=len(examples), allowed=allowed, hint=hint
            )

    def learn(
        self,
        examples: Examples,
        *,
        w0: ArrayLike | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        executor: Name = "auto",
    ) -> LearnedScore:
        """One forward pass on a prompt.

        Args:
            examples: of the prompt; ``task`` makes them.
            w0: initial weights of the network; by default ``start(seed)``.
            seed: of these.
            dtype: the precision of the pass.
            executor: as in ``CompiledTransformer.run``. ``auto`` is the fused one, but for runs that are very short.
        """
        self.check(examples)
        start = self.start(seed) if w0 is None else w0
        window = min(self.plateau.window, self.steps)
        run = self.tf.run(
            examples.X,
            examples.y,
            w0=start,
            sample_weight=examples.weight,
            executor=executor,
            dtype=dtype,
            record=window,
            diagnose=False,
        )
        losses = tuple(run.loss.tolist())
        place = self.plateau.reached(losses)
        last = len(losses) - 1 if place is None else place
        steps, known = run.recorded[last], run.recorded[: last + 1]
        return LearnedScore(
            self,
            examples,
            run.weights[last],
            steps,
            losses[: last + 1],
            known,
            place is not None,
            torch.as_tensor(start),
        )


@dataclass(frozen=True, eq=False)
class LearnedScore:
    """A score that a transformer has learned in its forward pass. Call it with points (n, d) and a time.

    Attributes:
        learner: what has learned it.
        examples: the prompt.
        weights: of the small network, as the residual stream holds them, (D_w,).
        steps: the steps of gradient descent that were taken.
        losses: on the examples, at the steps ``recorded``.
        recorded: the steps at which losses are known.
        at_rest: whether the loss has come to its plateau.
        w0: the initial weights.

    Examples:
        >>> import innergrad as ig
        >>> mixture, task = ig.diffusion.SHAPES["two-bumps"](), ig.diffusion.ScoreTask()
        >>> learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(16, 16), n_examples=64, steps=500)
        >>> learned = learner.learn(task.from_mixture(mixture, n=64))
        >>> learned.losses[-1] < 0.5 * learned.losses[0]
        True
    """

    learner: ScoreLearner
    examples: Examples
    weights: Tensor
    steps: int
    losses: tuple[float, ...]
    recorded: tuple[int, ...]
    at_rest: bool
    w0: Tensor

    def __call__(self, x: Tensor, t: Times) -> Tensor:
        """The score at points x (n, d) and times t, a number or (n,): the read-out layers, on the trained weights."""
        task, tf = self.learner.task, self.learner.tf
        times = task.checked_times(t, x)
        one = self.examples
        prompt = tf.prompt(one.X[:1], one.y[:1], task.features(x, times), w0=self.weights, dtype=self.weights.dtype)
        return task.score(x, times, tf.fused.answers(prompt)[0].to(x.dtype))

    def certify(self, x: Tensor, t: Times) -> ScoreCertificate:
        """Bounds on how far weights and score can be from those of exact gradient descent.

        The bounds are of a forward pass in float64, of as many steps as were taken here. They are infinite where
        nothing can be proven: a pre-activation on a kink, or a path along which small errors grow too much.

        Args:
            x: points, (n, d), at which the score is certified.
            t: their times, a number or (n,).
        """
        learner = self.learner
        times = learner.task.checked_times(t, x.double())
        same = learner if self.steps == learner.steps else replace(learner, steps=self.steps)
        found = same.tf.certify(
            self.examples.X,
            self.examples.y,
            learner.task.features(x.double(), times),
            w0=self.w0,
            sample_weight=self.examples.weight,
            trajectory=True,
        )
        assert found.predictions is not None
        return ScoreCertificate(found, found.predictions[0] / learner.task.alpha(times)[:, None])


@dataclass(frozen=True, eq=False)
class ScoreCertificate:
    """Bounds on a learned score, against exact gradient descent on the same examples.

    Attributes:
        run: the certificate of the forward pass, with bounds for every step.
        score: bounds on the error of the score, (n, d); infinite where nothing is proven.

    Examples:
        >>> import innergrad as ig, torch
        >>> mixture, task = ig.diffusion.SHAPES["two-bumps"](), ig.diffusion.ScoreTask()
        >>> learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(2, 2), activation="tanh", n_examples=4, steps=1)
        >>> certificate = learner.learn(task.from_mixture(mixture, n=4)).certify(torch.zeros(1, 1), 0.5)
        >>> bool(certificate.score.max() < 1e-9)
        True
    """

    run: Certificate
    score: Tensor

    @property
    def weights(self) -> float:
        """On the distance of the weights at the end."""
        return self.run.weights[-1]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.weights) and bool(torch.isfinite(self.score).all())
