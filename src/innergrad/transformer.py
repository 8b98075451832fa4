"""The compiled transformer: the record that compiling makes, and everything a user can ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from innergrad.errors import in_no_mode
from innergrad.evidence.attack import Attack, attack
from innergrad.evidence.bounds import DomainCertificate, apriori
from innergrad.evidence.certificate import Certificate, certify
from innergrad.evidence.explain import Explanation, explain
from innergrad.evidence.report import Report
from innergrad.evidence.solver import Solution
from innergrad.evidence.stopping import run_until
from innergrad.evidence.verification import verify
from innergrad.interpret.drawing import Drawing, draw
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Fused, Name, Step, executor_of, fused_of
from innergrad.model.guard import Guard, Outside
from innergrad.model.oracle import exact_run, reference
from innergrad.model.prompt import ArrayLike, Prompt
from innergrad.model.running import Run, run
from innergrad.model.storage import read, save

__all__ = ["CompiledTransformer", "Run", "exact_run", "load", "reference"]


@dataclass(frozen=True, repr=False)
class CompiledTransformer(Compiled):
    """A learning algorithm as a transformer. ``innergrad.compile`` and ``innergrad.load`` make it.

    Attributes:
        algorithm: what was compiled.
        program: the same as lanes and layers.
        approximants: what stands for each scalar function, by name.
        options: how it was compiled.
        solution: how the accuracies were chosen, if they were chosen for a ``weight_error``. It is not saved.

    Examples:
        >>> import innergrad as ig
        >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=2, box=None)
        >>> tf = ig.compile(algorithm, target="llama")
        >>> tf.n_layers, tf.d_model, tf.state
        (11, 64, 'exact')
    """

    solution: Solution | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        options = self.options
        single = ", ".join(f"{name}: {error:.3g}" for name, error in options.epsilons)
        epsilon = f"{options.epsilon:.6g}" + (f" ({single})" if single else "")
        known = "exact" if self.state == "exact" else f"epsilon = {epsilon}, {self.state}"
        unproven = [name for name, known in self.standings.items() if known.reason]
        known += f", not proven: {', '.join(unproven)}" if unproven else ""
        return (
            f"<CompiledTransformer: {self.algorithm.kind} on target {options.target!r}, {self.n_layers} + "
            f"{self.n_readout_layers} layers, d_model = {self.d_model}, {known}>"
        )

    # ---------------------------------------------------------------------------------------------------------- running

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Name = "auto",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        return_std: bool = False,
        until: float | None = None,
        outside: Outside = "error",
        record: int | Literal["all", "last"] = "all",
        compiled: bool | None = None,
        diagnose: bool = True,
    ) -> Run:
        """One forward pass on a prompt, or on a batch of prompts.

        A run that has plainly not learned gives a warning, ``innergrad.PoorRun``. ``run.warnings`` has the sentences.

        Args:
            X: inputs of the examples, (n, d_x) or (batch, n, d_x).
            y: their labels, (n, d_y) or (n,), with the same leading axis.
            X_query: inputs to predict at, (n_query, d_x).
            w0: initial weights, (D_w,) or (batch, D_w). By default ``algorithm.initial_weights(seed)``.
            sample_weight: weights of the examples, (n,) or (batch, n). An example of weight 2 counts as two.
            executor: how to run. ``dense`` multiplies the matrices of ``tf.module``. ``plain`` interprets the program,
                with the same approximants. ``fused`` does the same about as fast as ordinary training. ``auto`` takes
                ``plain`` for short runs (less than about 0.1 s), with ``until``, with ``outside="flag"``, and where an
                argument requires gradients; otherwise ``fused``. All give the same numbers up to rounding. Only
                ``dense`` has the measured errors of products on ``gpt``, ``softmax`` and ``sigma``. ``plain`` and
                ``fused`` run on the GPU if X is there.
            dtype: the precision of the run.
            seed: of the default ``w0``.
            return_std: also give the predictive standard deviation, if the algorithm knows one.
            until: stop at the first weights where the gradient mapping is certified to have at most this norm. The
                gradient mapping of projected gradient descent is (w - clip(w - lr grad L(w))) / lr. The number of steps
                it was compiled with is the most that are taken. Every prompt of a batch stops by itself.
            outside: what to do about a value outside the domain: ``error``, or ``flag``, which goes on and lists it in
                ``run.violations``.
            record: the steps whose weights are returned: ``all``, every k-th and the last, or only the ``last``.
            compiled: whether ``fused`` runs a compiled kernel. By default it does if there is one, or if the run is
                long enough to pay for it.
            diagnose: look for signs that nothing was learned. That takes about a millisecond.

        Examples:
            >>> import innergrad as ig, torch
            >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
            >>> algorithm = ig.GradientDescent(ig.Network([1, 4, 1]), lr=0.2, steps=20, box=None)
            >>> tf = ig.compile(algorithm, target="llama", n_examples=8)
            >>> run = tf.run(X, torch.sin(X), torch.tensor([[0.5]]))
            >>> bool(run.loss[-1] < run.loss[0])
            True
            >>> batch = tf.run(torch.stack([X, X]), torch.stack([X, -X]))  # two prompts in one pass
            >>> tuple(batch.weights.shape)  # prompts, steps + 1, weights of the small network
            (2, 21, 13)
        """
        return run(
            self,
            X,
            y,
            X_query,
            w0=w0,
            sample_weight=sample_weight,
            name=executor,
            dtype=dtype,
            seed=seed,
            return_std=return_std,
            until=until,
            outside=outside,
            record=record,
            compiled=compiled,
            stop=run_until,
            watched=diagnose,
        )

    def trace(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Name = "plain",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> list[tuple[str, State]]:
        """Named lanes after every layer: ``[("input", lanes), ("forward 1", lanes), ...]``.

        ``lanes`` maps a name to a tensor (batch, tokens, ...). The axis of tokens has length 1 for a lane that all
        tokens share. Arguments are those of ``run``. The fused executor has no layers to show, so ``auto`` means
        ``plain``.

        Examples:
            >>> import innergrad as ig, torch
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=1, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> trace = tf.trace(torch.ones(4, 1), torch.ones(4, 1))
            >>> [name for name, lanes in trace[:4]]
            ['input', 'prepare', 'activation 1', 'forward 2']
            >>> lanes = trace[-1][1]
            >>> tuple(lanes["x"].shape)  # one prompt, 7 tokens, of which 4 are examples; d_x = 1
            (1, 7, 1)
        """
        chosen, guard = executor_of(self, executor), self.guard()
        chosen.check(dtype, guard)
        prompt = self.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed, guard=guard)
        return [
            ("input", prompt.state(self.program)),
            *((layer.name, state) for layer, state, _ in chosen.layers(prompt, guard)),
        ]

    def execute(self, prompt: Prompt, executor: Name = "plain", guard: Guard | None = None) -> Iterator[Step]:
        """The forward pass of a prompt, layer by layer: ``(layer, lanes after it, whether a step ends)``.

        Args:
            prompt: from ``tf.prompt``.
            executor: as in ``run``.
            guard: collects values outside their domains. Without it they are errors.

        Examples:
            >>> import innergrad as ig, torch
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=2, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> prompt = tf.prompt(torch.ones(4, 1), torch.ones(4, 1))
            >>> [layer.name for layer, lanes, ends in tf.execute(prompt) if ends]  # the last layer of each step
            ['clear and prepare', 'clear and prepare']
        """
        return executor_of(self, executor).layers(prompt, guard or self.guard())

    def read_out(self, state: State, executor: Name = "plain") -> State:
        """The lanes after the read-out, from the lanes after a step. The read-out turns weights into predictions.

        Examples:
            >>> import innergrad as ig, torch
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=2, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> prompt = tf.prompt(torch.ones(4, 1), torch.ones(4, 1), torch.ones(2, 1))
            >>> after = [lanes for layer, lanes, ends in tf.execute(prompt) if ends]
            >>> first = prompt.predictions(tf.program, tf.read_out(after[0]))  # what one step has learned
            >>> tuple(first.shape)
            (1, 2, 1)
        """
        return executor_of(self, executor).read_out(state, self.guard())

    @property
    def fused(self) -> Fused:
        """The fused executor of this program."""
        return fused_of(self)

    # ------------------------------------------------------------------------------------------- evidence and storage

    @in_no_mode
    def verify(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        seed: int = 0,
        prompts: int = 4,
    ) -> Report:
        """Check every law of the weights, on random prompts or on the given ones.

        A law is a statement that must hold of every correct transformer, such as "no layer changes the inputs".
        docs/inside.md lists them.

        Args:
            X: inputs of the examples.
            y: their labels.
            X_query: inputs to predict at.
            w0: initial weights.
            sample_weight: weights of the examples.
            seed: of random prompts and weights.
            prompts: how many random prompts, if no X is given.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None)
            >>> report = ig.compile(algorithm, target="llama", n_examples=4).verify(prompts=1)
            >>> report.passed
            True
        """
        return verify(self, X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed, prompts=prompts)

    @cached_property
    @in_no_mode
    def certificate(self) -> DomainCertificate:
        """Bounds that hold before any run: for every prompt of the declared domain.

        The domain is given by ``x_bound``, ``y_bound`` and the algorithm's box; see ``DomainCertificate``.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), lr=0.1, steps=1, box=1.0)
            >>> tf = ig.compile(algorithm, target="relu", x_bound=1.0, y_bound=1.0, n_examples=4)
            >>> 0 < tf.certificate.best < 1  # no gradient is farther off, whatever the prompt
            True
        """
        return apriori(self)

    @in_no_mode
    def certify(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Name = "plain",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        trajectory: bool | None = None,
        errors: Literal["sup", "pointwise"] | None = None,
        outside: Outside = "error",
    ) -> Certificate:
        """A rigorous bound on the error of a run on these examples.

        It bounds the error of the gradient in every step, of the weights along the path, and of the predictions.
        Arguments that are not listed here are those of ``run``.

        Args:
            X: inputs of the examples.
            y: their labels.
            X_query: inputs to predict at.
            w0: initial weights.
            sample_weight: weights of the examples.
            executor: whose run is certified. A certificate follows every layer, so ``auto`` means ``plain``.
            dtype: the precision of the run.
            seed: of the default ``w0``.
            trajectory: also bound the distance to the algorithm's own path, and the predictions. That costs more. By
                default it is done for up to 1,536 weights.
            errors: ``pointwise`` takes the errors of the approximants at the arguments that occurred. ``sup`` takes
                their proven largest errors; it gives bounds about twice as large, and infinite ones where an argument
                may be on the ramp of a step function.
            outside: as in ``run``. Nothing is known about a function outside its domain.

        Examples:
            >>> import innergrad as ig, torch
            >>> X = torch.linspace(-1, 1, 4).view(-1, 1)
            >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=2, box=None)
            >>> tf = ig.compile(algorithm, target="llama", n_examples=4)
            >>> certificate = tf.certify(X, X, X)
            >>> max(certificate.weights) < 1e-12  # the distance to exact gradient descent, after every step
            True
        """
        given = {"w0": w0, "sample_weight": sample_weight, "executor": executor, "dtype": dtype, "seed": seed}
        how = {"trajectory": trajectory, "errors": errors, "outside": outside}
        return certify(self, X, y, X_query, **given, **how)  # type: ignore[arg-type]

    @in_no_mode
    def explain(self, X: ArrayLike | None = None, y: ArrayLike | None = None, **how: Any) -> Explanation:
        """Where the error of a run comes from: the bound beside the measured error, and the health of the numbers.

        Without data it looks at a random prompt. Other arguments are those of ``run``.

        Examples:
            >>> import innergrad as ig, torch
            >>> X = torch.linspace(-1, 1, 4).view(-1, 1)
            >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None)
            >>> explanation = ig.compile(algorithm, target="relu", n_examples=4).explain(X, X)
            >>> explanation.violations  # measured errors above their bounds
            []
        """
        return explain(self, X, y, **how)

    @in_no_mode
    def attack(self, *, starts: int = 32, iterations: int = 100, seed: int = 0) -> Attack:
        """Search the domain for the worst prompt and weights, by gradient ascent on the error of one step.

        What it finds is a lower bound; ``tf.certificate`` has the upper one.

        Args:
            starts: how many random starts.
            iterations: steps of ascent from each.
            seed: of the starts.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), lr=0.1, steps=1, box=1.0)
            >>> tf = ig.compile(algorithm, target="relu", x_bound=1.0, y_bound=1.0, n_examples=4)
            >>> found = tf.attack(starts=2, iterations=5)
            >>> found.error <= tf.certificate.best
            True
        """
        return attack(self, starts=starts, iterations=iterations, seed=seed)

    def draw(self, path: str | Path | None = None, *, force: bool = False) -> Drawing:
        """The architecture as a picture (SVG): every block, in words, and the lanes that it reads and writes.

        Blocks that repeat are drawn once. A notebook shows the picture.

        Args:
            path: also save it there.
            force: replace a file that is not an earlier drawing.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=5, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> drawing = tf.draw("descent.svg")
            >>> str(drawing.svg)[:4]
            '<svg'
        """
        name = self.algorithm.kind.replace("_", " ")
        drawing = draw(self.program, f"{name[0].upper()}{name[1:]} as a transformer, target {self.options.target}")
        if path is not None:
            drawing.save(path, force=force)
        return drawing

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a folder: config.json has the settings, lanes and layers, weights.safetensors the matrices.

        Args:
            path: the folder. A model that is there is replaced.
            force: also replace other files with these names.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=2, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> folder = tf.save("descent")
            >>> sorted(path.name for path in folder.iterdir())
            ['config.json', 'weights.safetensors']
        """
        return save(self, Path(path), force=force)


def load(path: str | Path, extensions: Iterable[object] = ()) -> CompiledTransformer:
    """Read a saved model. Its weights are those of the folder, bit for bit.

    Args:
        path: the folder.
        extensions: parts of the model that innergrad does not ship: Algorithm subclasses, activations, losses.

    Examples:
        >>> import innergrad as ig
        >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=2, box=None)
        >>> tf = ig.compile(algorithm, target="llama")
        >>> again = ig.load(tf.save("descent"))
        >>> again.algorithm == tf.algorithm
        True
    """
    found = read(Path(path), tuple(extensions))
    parts = found.algorithm, found.program, found.approximants, found.options, found.stored_module
    return CompiledTransformer(*parts, loaded=True)
