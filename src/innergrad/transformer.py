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
    """A learning algorithm as a transformer. Made by :func:`innergrad.compile`, or by :func:`innergrad.load`.

    solution: how the accuracies were chosen, if they were chosen for a ``weight_error`` (it is not saved).
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
        """One forward pass on a prompt or a batch of prompts.

        executor: ``dense`` runs the matrices of ``tf.module``; ``plain`` interprets the program with the same
        approximants, which is the same function up to rounding on targets relu and kernel, and up to the measured
        errors of products and divisions on target gpt; ``fused`` does the same at the price of training, see
        :mod:`innergrad.model.executors.fused`. ``auto`` is ``plain`` with outside="flag", with until, where an argument
        requires gradients and where the run is short (less than about 0.1 s), and ``fused`` otherwise, with a compiled
        kernel if one is built already or the run is long enough to pay for it: plain up to rounding. Where X is a
        tensor on a GPU, ``plain`` and ``fused`` run there.

        record: after which steps the weights are returned: ``all``, every k-th and the last, or the ``last`` alone.
        compiled: whether ``fused`` runs a compiled kernel; by default it does where there is one.

        X (n, d_x) or (batch, n, d_x); y (n, d_y) or (n,); w0 (D_w,) or (batch, D_w), default
        ``algorithm.initial_weights(seed)``; sample_weight (n,) or (batch, n): an example of weight 2 counts as two,
        one of weight 0 as none. return_std: also the predictive standard deviation, where the algorithm knows one.

        until: stop at the first weights at which the norm of the gradient mapping of projected gradient descent,
        (w - clip(w - lr grad L(w))) / lr, is certified to be at most this; by default what the transformer was compiled
        with. The steps it was compiled with are the most that are taken. Every prompt of a batch stops by itself, and
        keeps its weights from then on. See :mod:`innergrad.evidence.stopping`.

        outside: what to do about an input, a weight or an argument of a function outside the domain it was compiled
        for: ``error``, or ``flag``, which goes on and lists them in ``run.violations``.

        What is plainly wrong with what was learned is a warning (``ig.PoorRun``) and a sentence in ``run.warnings``:
        see :mod:`innergrad.model.symptoms`. diagnose=False does not look for it, which takes about a millisecond.
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
        """Named lanes after every layer: [("input", lanes), ("forward 1", lanes), ...]; lanes are (batch, T or 1 if
        shared, ...). A trace shows every layer, which the fused executor does not have, so ``auto`` is ``plain``.
        """
        chosen, guard = executor_of(self, executor), self.guard()
        chosen.check(dtype, guard)
        prompt = self.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed, guard=guard)
        return [
            ("input", prompt.state(self.program)),
            *((layer.name, state) for layer, state, _ in chosen.layers(prompt, guard)),
        ]

    def execute(self, prompt: Prompt, executor: Name = "plain", guard: Guard | None = None) -> Iterator[Step]:
        """The forward pass, layer by layer: (layer, lanes after it, whether a step ends). guard: takes violations of
        domains, which otherwise are errors.
        """
        return executor_of(self, executor).layers(prompt, guard or self.guard())

    def read_out(self, state: State, executor: Name = "plain") -> State:
        """The lanes after the read-out, from those after a step."""
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
        """Check every law of the weights, on random or on the given prompts: :mod:`innergrad.evidence.verification`."""
        return verify(self, X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed, prompts=prompts)

    @cached_property
    @in_no_mode
    def certificate(self) -> DomainCertificate:
        """What is known before any run: bounds on the error for every prompt of the declared domain (x_bound, y_bound,
        box); see :mod:`innergrad.evidence.bounds`.
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
        """A rigorous bound on the error of a run on these examples: of the gradient in every step, of the weights along
        the path, and of the predictions; see :mod:`innergrad.evidence.certificate`.

        executor: whose run it is; a certificate follows every layer of it, so ``auto`` is ``plain``.
        trajectory: also bound the distance to the algorithm's own path and the predictions, which costs more; by
        default for up to 1,536 weights. errors: ``pointwise``, from the errors of the approximants at the arguments
        that occurred, or ``sup``, from their proven sup errors, where these are proven: about twice as large, and
        infinite where an argument may be on a ramp. outside: as in ``run``; where an approximant is outside its domain
        nothing is known from its sup error.
        """
        given = {"w0": w0, "sample_weight": sample_weight, "executor": executor, "dtype": dtype, "seed": seed}
        how = {"trajectory": trajectory, "errors": errors, "outside": outside}
        return certify(self, X, y, X_query, **given, **how)  # type: ignore[arg-type]

    @in_no_mode
    def explain(self, X: ArrayLike | None = None, y: ArrayLike | None = None, **how: Any) -> Explanation:
        """Where the error of a run comes from, bound beside measured, and how healthy it is; see
        :mod:`innergrad.evidence.explain`.
        """
        return explain(self, X, y, **how)

    @in_no_mode
    def attack(self, *, starts: int = 32, iterations: int = 100, seed: int = 0) -> Attack:
        """The worst prompt and weights of the domain that gradient ascent finds: :mod:`innergrad.evidence.attack`."""
        return attack(self, starts=starts, iterations=iterations, seed=seed)

    def draw(self, path: str | Path | None = None, *, force: bool = False) -> Drawing:
        """The architecture as a picture (SVG), made from the program: blocks, what each does in words, and the lanes it
        reads and writes; what repeats is drawn once. A notebook shows it; with a path it is saved, too.
        """
        name = self.algorithm.kind.replace("_", " ")
        drawing = draw(self.program, f"{name[0].upper()}{name[1:]} as a transformer, target {self.options.target}")
        if path is not None:
            drawing.save(path, force=force)
        return drawing

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a folder: config.json (settings, layout, layers) and weights.safetensors.

        A model that is there is replaced; other files of these names only with ``force``.
        """
        return save(self, Path(path), force=force)


def load(path: str | Path, extensions: Iterable[object] = ()) -> CompiledTransformer:
    """Read a saved model, weights and approximants as they were saved.

    extensions: what the model needs that innergrad does not ship: Algorithm subclasses, activations, losses.
    """
    found = read(Path(path), tuple(extensions))
    parts = found.algorithm, found.program, found.approximants, found.options, found.stored_module
    return CompiledTransformer(*parts, loaded=True)
