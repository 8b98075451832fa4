"""The compiled record: executors run it, evidence is about it, storage keeps it.

algorithm -> program -> approximants -> weights. Nothing here runs anything; :class:`innergrad.CompiledTransformer` is
this record with everything a user can ask of it.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.functions.states import FOLDER, Standing, StateName, proven_again, standing, weakest
from innergrad.functions.tape import Formula, Tape
from innergrad.interpret.plain import Limits, ScalarFunction
from innergrad.ir.program import Layer, Options, Program
from innergrad.memory import require_memory
from innergrad.model.comparison import Compared, compared
from innergrad.model.cost import Cost, cost_of
from innergrad.model.guard import Guard, Outside
from innergrad.model.prompt import ArrayLike, Prompt, make_prompt, read_predictions, read_weights, reading
from innergrad.targets import TARGETS, LoopedTransformer, Target
from innergrad.targets.weights.modules import BYTES_PER_ENTRY, Count
from innergrad.targets.weights.rows import require_room, require_room_to_count

CHECKED = "checked"  # in ``kept``
PRODUCTS = "products"  # beside functions, the operations that targets with fitted functions do not compute as they are
SMALLER = "use executor='plain', a larger epsilon, a smaller network or a smaller batch"


@dataclass(frozen=True)
class Compiled:
    """A learning algorithm as the weights of a transformer.

    stored_module: the weights, where they were made before (loaded, or changed); else ``module`` makes them.
    loaded: it comes from a folder, and the errors of the approximants are proven again before they count.
    """

    algorithm: Algorithm
    program: Program
    approximants: dict[str, Approximant]
    options: Options
    stored_module: LoopedTransformer | None = field(default=None, compare=False, repr=False)
    loaded: bool = field(default=False, compare=False, repr=False)

    @property
    def target(self) -> Target:
        return TARGETS[self.options.target]

    @cached_property
    def standings(self) -> dict[str, Standing]:
        """The state of every function and of its approximant: see :mod:`innergrad.functions.states`."""
        functions, of = self.program.functions(), {f.value: primitives for f, primitives in self.primitives.items()}
        doubts = self._prove_again() if self.loaded else {}
        found = {name: standing(f, self.approximants.get(name), of.get(f.value, ())) for name, f in functions.items()}
        found |= doubts
        if not self.target.proven:
            found[PRODUCTS] = Standing("measured")
        linear = {f.name: f for f in self.primitives if f.exact is not None}  # programs may have it under another name
        return {name: standing(f, None, self.primitives[f]) for name, f in linear.items() if name not in found} | found

    def _prove_again(self) -> dict[str, Standing]:
        """Gives loaded approximants the errors that are proven. Returns the state of those that have none."""
        doubts: dict[str, Standing] = {}
        for name, f in self.program.functions().items():
            given = self.approximants.get(name)
            if isinstance(given, PiecewiseLinear) and f.exact is None and not f.jumps:
                try:
                    self.approximants[name] = proven_again(f, given, self.accuracies[name])
                except InputError as problem:
                    self.approximants[name] = replace(given, error=math.inf)
                    doubts[name] = Standing("declared", str(problem), FOLDER)
        return doubts

    @cached_property
    def primitives(self) -> Mapping[Function, tuple[Formula, ...]]:
        """Functions that must be derivatives for the program to be the algorithm, each with its primitive."""
        return self.algorithm.primitives()

    @cached_property
    def state(self) -> StateName:
        """The weakest state of its functions: exact, proven, measured or declared."""
        return weakest(known.state for known in self.standings.values())

    @property
    def proven(self) -> bool:
        """All functions are computed as they are, or the errors of their approximants are proven."""
        return self.state in ("exact", "proven")

    def require_proven_facts(self) -> None:
        """Refuse a certificate where what is known of a function is what its author says, or what a grid shows."""
        for name, known in self.standings.items():
            if known.reason:
                what = f"nothing is proven about {name}, so there is no certificate"
                raise InputError(what, got=known.reason, hint=f"what is known of it is {known.known}")
        for name, f in self.program.functions().items():
            if isinstance(f.value, Tape) and not f.value.still():
                what = f"{name} has changed since it was made, so there is no certificate"
                raise InputError(what, hint="a formula must depend on nothing but t")

    @property
    def unchecked(self) -> bool:
        """The matrices come from elsewhere (a folder), and no verification has passed on them, as they are."""
        return self.stored_module is not None and self.kept.get(CHECKED) != _fingerprint(self.stored_module)

    def mark_checked(self) -> None:
        """A verification passed on the matrices as they are."""
        self.kept[CHECKED] = _fingerprint(self.module)

    @property
    def functions(self) -> dict[str, ScalarFunction]:
        """The functions that the weights compute: for each scalar function its approximant or, if it has none, the
        function.
        """
        return {**self.program.functions(), **self.approximants}

    @cached_property
    def accuracies(self) -> dict[str, float]:
        """The sup error that each approximant may have."""
        return {name: self.options.accuracy(name) for name in self.approximants}

    @cached_property
    def kept(self) -> dict[str, Any]:
        """Results that executors keep here under their names, so that each is made once."""
        return {}

    # ---------------------------------------------------------------------------------------------------------- size

    @property
    def n_layers(self) -> int:
        """Layers of the body; the read-out is counted separately."""
        return self.program.n_layers

    @property
    def n_readout_layers(self) -> int:
        return len(self.program.readout)

    @property
    def d_model(self) -> int:
        return self.program.stream.d_model

    @property
    def n_heads(self) -> int:
        """Heads of the widest attention layer."""
        return max((row.heads for row in self.cost().rows if row.kind == "attention"), default=0)

    @property
    def n_parameters(self) -> int:
        """Nonzero weights; each loop's block counts once, for it is stored once."""
        return self.cost().nonzeros

    def cost(self) -> Cost:
        """Layers, heads, width, parameters and FLOPs. Its ``compare()`` shows other targets and variants.

        Where the paper states a size, that is beside the real one.

        Examples:
            >>> import innergrad as ig
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=10, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> tf.cost().blocks
            41
        """
        return self._cost

    @cached_property
    def _cost(self) -> Cost:
        paper = {}
        if self.options.target == self.algorithm.home:  # the paper's statement is about that architecture
            paper = self.algorithm.paper_cost(self.options.epsilon, self.options.n_examples)
        counts = self.foreseen or [built.counted() for built in self.module.stored_layers()]
        found = cost_of(self.program, self.options, counts, paper, self.approximants)
        return replace(found, others=partial(compared, self.algorithm, self.options, self._beside))

    def _beside(self, program: Program, approximants: dict[str, Approximant], options: Options) -> Compared:
        """The cost of the same algorithm, compiled otherwise."""
        return Compiled(self.algorithm, program, approximants, options).cost().beside(options)

    @cached_property
    def foreseen(self) -> list[Count] | None:
        """The weights of every stored layer, counted without building them where that is possible."""
        require_room_to_count(self.program)
        return self.target.foreseen(self.program, self.approximants, self.options)

    # ------------------------------------------------------------------------------------------------------- weights

    @cached_property
    def module(self) -> LoopedTransformer:
        """The transformer: a ``torch.nn.Module`` from (batch, T, d_model) to (batch, T, d_model), float64."""
        if self.stored_module is not None:
            return self.stored_module
        if self.foreseen:
            require_memory(BYTES_PER_ENTRY * self.cost().nonzeros, "building the weights", SMALLER)
        require_room(self.program, self.approximants, counted=bool(self.foreseen))
        return self.target.lower(self.program, self.approximants, self.options)

    def module_for(self, dtype: torch.dtype) -> LoopedTransformer:
        """The module, or a copy of it in another precision."""
        self.require_double()
        return self.module if dtype == torch.float64 else copy.deepcopy(self.module).to(dtype)

    def require_double(self) -> None:
        """``tf.module.float()`` converts in place, for good: nothing may be computed from or saved of that."""
        if any(buffer.dtype == torch.float32 for buffer in self.module.buffers()):
            raise InputError(
                "the weights of tf.module were converted to float32 in place",
                hint="compile or load again, and convert a copy: copy.deepcopy(tf.module).float()",
            )

    def check_steps(self, dtype: torch.dtype, *, as_weights: bool) -> None:
        """Refuse a dtype in which the ramps of tables are not told apart, and, in matrices, one whose rounding becomes
        more than 2^-10 by the slope of a ramp: see :func:`innergrad.functions.approximants.ramp_approximant`.
        """
        for name, f in self.approximants.items():
            pieces = isinstance(f, PiecewiseLinear)  # which no executor but the matrices adds up
            if f.ramps and f.error != 0.0 and (as_weights or not pieces):
                width, least = min(high - low for low, high in f.ramps), 2.0**10 * torch.finfo(dtype).eps
                if width < least:
                    what = f"the ramps of {name} are too steep for {'matrices' if pieces else 'its units'} in {dtype}"
                    hint = (
                        f"use float64{', the plain executor' * pieces}, or compile with epsilons={{{name!r}: 2**-12}}"
                    )
                    raise InputError(what, got=f"{width:.1e} wide", allowed=f"at least {least:.1e}", hint=hint)
            if f.ramps and f.error == 0.0 and isinstance(f, PiecewiseLinear):
                width = min(high - low for low, high in f.ramps) / max(1.0, *map(abs, f.knots))
                if torch.finfo(dtype).eps > 1e-3 * width:
                    what = f"the steps of {name} are too steep for {dtype}"
                    raise InputError(what, got=f"ramps {width:.0e} wide", hint="a table needs float64")

    # ------------------------------------------------------------------------------------------------------- prompts

    def ranges(self, layer: Layer) -> Mapping[str, Limits]:
        """Ranges of the lanes that a layer reads. Outside them the layer computes something wrong."""
        known, limits = self._ranges.get(id(layer), (None, None))
        return limits if known is layer and limits is not None else self._bounds(layer)

    @cached_property
    def _ranges(self) -> dict[int, tuple[Layer, Mapping[str, Limits]]]:
        """Of the layers of the program, by their identities, for their hashes are as long as they are."""
        return {id(layer): (layer, self._bounds(layer)) for layer in self.program.layers}

    def _bounds(self, layer: Layer) -> Mapping[str, Limits]:
        return self.target.bounds(self.program, layer, self.options)

    def guard(self, outside: Outside = "error") -> Guard:
        """The guard of one run's domains. outside: ``error``, or ``flag``, which takes note and continues."""
        return Guard(self.program, self.options, self.approximants, self.ranges, outside)

    def prompt(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        guard: Guard | None = None,
    ) -> Prompt:
        """The caller's arrays, checked and batched. guard: takes values outside the declared domain, which are errors
        otherwise.
        """
        given = (X, y, X_query, w0, sample_weight)
        return make_prompt(
            self.algorithm, self.program, *given, seed=seed, dtype=dtype, limits=self.options, guard=guard
        )

    def in_double(self, prompt: Prompt, sample_weight: ArrayLike | None, guard: Guard | None = None) -> Prompt:
        """The same prompt in float64. A certificate compares with the algorithm on that prompt."""
        double = (part.double() for part in (prompt.X, prompt.y, prompt.X_query))
        return self.prompt(*double, w0=prompt.w0.double(), sample_weight=sample_weight, guard=guard)

    def stream(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike | None = None, **prompt: Any) -> Tensor:
        """The residual stream (batch, T, d_model) that ``tf.module`` takes: the examples, then the queries.

        Other arguments are those of ``prompt``. ``tf.program.stream.unpack`` gives its lanes by name.

        Examples:
            >>> import innergrad as ig, torch
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=1, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> stream = tf.stream(torch.ones(4, 1), torch.ones(4, 1), torch.ones(2, 1))
            >>> stream.shape[-1] == tf.d_model
            True
        """
        return self.program.stream.pack(self.prompt(X, y, X_query, **prompt).state(self.program))

    @property
    def reading(self) -> dict[str, Any]:
        """Where predictions are in the stream, for :func:`innergrad.read_predictions`."""
        return reading(self.program)

    def predictions(self, hidden: Tensor, n_query: int) -> Tensor:
        """Predictions (batch, n_query, d_y) from the hidden states after the last layer, (batch, tokens, width).

        The states may be those of ``tf.module``, of an exported Llama or GPT-2 (its ``last_hidden_state``), or of an
        ONNX model.

        Examples:
            >>> import innergrad as ig, torch
            >>> X = torch.ones(4, 1)
            >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=1, box=None)
            >>> tf = ig.compile(algorithm, target="llama")
            >>> tuple(tf.predictions(tf.module(tf.stream(X, X, X[:2])), n_query=2).shape)
            (1, 2, 1)
        """
        if hidden.ndim < 2 or hidden.shape[-1] < self.d_model or not 0 <= n_query <= hidden.shape[-2]:
            got = f"{tuple(hidden.shape)}, n_query = {n_query}"
            allowed = f"(..., tokens, {self.d_model} or wider), n_query up to the number of tokens"
            raise InputError("hidden states have the wrong shape", got=got, allowed=allowed)
        found: Tensor = read_predictions(hidden, self.reading, n_query)
        return found

    def learned(self, hidden: Tensor, token: int = 0) -> Tensor:
        """The weights (batch, n_weights) that a token holds in hidden states, as ``predictions`` takes them."""
        return read_weights(self.program, hidden, token)


def _fingerprint(module: LoopedTransformer) -> str:
    """Of every entry of the matrices."""
    digest = hashlib.sha256()
    for layer in module.stored_layers():
        for stack in (getattr(layer, name) for name in layer.matrices):
            for part in (stack.index, stack.value):
                digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
