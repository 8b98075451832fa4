"""The compiled transformer: one program, its approximants, and the interpretations a user calls."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.dense.sparse import BYTES_PER_ENTRY, require_memory
from innergrad.errors import DomainError, InputError, JobError
from innergrad.executor import OVERFLOWED, FusedExecutor, recorded
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.interpret import exact, plain
from innergrad.interpret.cost import Cost
from innergrad.interpret.plain import ScalarFunction
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program, Score
from innergrad.prompt import ArrayLike, Noted, Prompt, in_prompts, make_prompt, refuse
from innergrad.stream import State
from innergrad.targets import TARGETS, LoopedTransformer, Target

if TYPE_CHECKING:
    from innergrad.attack import Attack
    from innergrad.bounds import Domainwide
    from innergrad.certificate import Certificate
    from innergrad.explain import Explanation
    from innergrad.report import Report
    from innergrad.solver import Solution

Executor = Literal["plain", "dense", "fused"]
Outside = Literal["error", "flag"]
_BOUNDS = dict.fromkeys("xXucB", "x_bound") | {"y": "y_bound"}  # lanes whose range follows from another option
_SMALLER = "use executor='plain', a larger epsilon, a smaller network or a smaller batch"


@dataclass(frozen=True)
class Run:
    """What a forward pass learned.

    weights (..., steps + 1, D_w): after every step; D_w = 0 if the algorithm trains no weights. With ``until`` there
        are fewer: up to the last step that some prompt of the batch took; with ``record``, those of the steps
        ``recorded``
    predictions (..., n_query, d_y)
    online (..., n): causal programs' prediction of each y_t from the examples before it, else None
    std (..., n_query): predictive standard deviation, where the algorithm knows one and it was asked for, else None
    stopped: with ``until``, how many steps were taken before the run stopped, None if it did not; one for each prompt
        of a batch
    violations: what left its domain, a sentence each, if they were to be flagged
    recorded: the steps after which ``weights`` are, 0 for the initial weights
    """

    weights: Tensor
    predictions: Tensor
    online: Tensor | None = None
    std: Tensor | None = None
    stopped: int | tuple[int | None, ...] | None = None
    violations: tuple[str, ...] = ()
    recorded: tuple[int, ...] = ()


@dataclass(frozen=True, repr=False)
class CompiledTransformer:
    """A learning algorithm as a transformer. Made by :func:`innergrad.compile`, or by :func:`innergrad.load`.

    solution: how the accuracies were chosen, if they were chosen for a ``weight_error`` (it is not saved).
    """

    algorithm: Algorithm
    program: Program
    approximants: Mapping[str, Approximant]
    options: Options
    stored_module: LoopedTransformer | None = field(default=None, compare=False, repr=False)
    solution: Solution | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        options = self.options
        single = ", ".join(f"{name}: {error:.3g}" for name, error in options.epsilons)
        epsilon = f"{options.epsilon:.6g}" + (f" ({single})" if single else "")
        error = f"epsilon = {epsilon}, {'proven' if self.proven else 'measured'}"
        exact = self.proven and not self.approximants
        return (
            f"<CompiledTransformer: {self.algorithm.kind} on target {options.target!r}, {self.n_layers} + "
            f"{self.n_readout_layers} layers, d_model = {self.d_model}, {'exact' if exact else error}>"
        )

    @property
    def proven(self) -> bool:
        """The errors of the approximants are proven. If not they are measured: then nothing here is a certificate."""
        return self.target.proven

    # ---------------------------------------------------------------------------------------------------------- size

    @property
    def target(self) -> Target:
        return TARGETS[self.options.target]

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
        """Layers, heads, width, parameters, FLOPs and the norm B_theta, beside the paper's formulas."""
        return self._cost

    @cached_property
    def _cost(self) -> Cost:
        paper = {}
        if self.options.target == self.algorithm.home:  # what the paper says is about that architecture
            paper = self.algorithm.paper_cost(self.options.epsilon, self.options.n_examples)
        return self.target.cost(self.program, self.approximants, self.options, paper)

    @cached_property
    def module(self) -> LoopedTransformer:
        """The transformer: a ``torch.nn.Module`` from (batch, T, d_model) to (batch, T, d_model), float64."""
        if self.stored_module is not None:
            return self.stored_module
        require_memory(BYTES_PER_ENTRY * self.cost().nonzeros, "building the weights", _SMALLER)
        return self.target.lower(self.program, self.approximants, self.options)

    @property
    def functions(self) -> dict[str, ScalarFunction]:
        """What the weights compute for each scalar function: its approximant, or, if it has none, the function."""
        return {**self.program.functions(), **self.approximants}

    # ---------------------------------------------------------------------------------------------------------- running

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Executor = "plain",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        return_std: bool = False,
        until: float | None = None,
        outside: Outside = "error",
        record: int | Literal["all", "last"] = "all",
        compiled: bool | None = None,
    ) -> Run:
        """One forward pass on a prompt or a batch of prompts.

        executor: ``dense`` runs the matrices of ``tf.module``; ``plain`` interprets the program with the same
        approximants, which is the same function up to rounding on targets relu and kernel, and up to the measured
        errors of products and divisions on target gpt; ``fused`` does the same at the price of training, see
        :mod:`innergrad.executor`. Where X is a tensor on a GPU, ``plain`` and ``fused`` run there.

        record: after which steps the weights are returned: ``all``, every k-th and the last, or the ``last`` alone.
        compiled: whether ``fused`` runs a compiled kernel; by default it does where there is one.

        X (n, d_x) or (batch, n, d_x); y (n, d_y) or (n,); w0 (D_w,) or (batch, D_w), default
        ``algorithm.initial_weights(seed)``; sample_weight (n,) or (batch, n): an example of weight 2 counts as two,
        one of weight 0 as none. return_std: also the predictive standard deviation, where the algorithm knows one.

        until: stop at the first weights at which the norm of the gradient mapping of projected gradient descent,
        (w - clip(w - lr grad L(w))) / lr, is certified to be at most this; by default what the transformer was compiled
        with. The steps it was compiled with are the most that are taken. Every prompt of a batch stops by itself, and
        keeps its weights from then on. See :mod:`innergrad.stopping`.

        outside: what to do about an input, a weight or an argument of a function outside the domain it was compiled
        for: ``error``, or ``flag``, which goes on and lists them in ``run.violations``.
        """
        self._check_dtype(dtype, executor)
        wanted, noted = recorded(self.program.steps, record), self._noted(outside)
        if executor == "fused" and noted is not None:
            raise InputError("the fused executor refuses violations", got="outside='flag'", allowed="executor='plain'")
        if executor != "fused" and compiled is not None:
            raise InputError("only the fused executor has a compiled path", got=f"executor={executor!r}")
        prompt = self.prompt(
            X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed, violated=noted or refuse
        )
        limit = self.options.until if until is None else until
        stopped: tuple[int | None, ...] | None = None
        if limit is not None:
            from innergrad.stopping import run_until

            if noted is not None:
                raise InputError(
                    "a run is stopped by its certificate, which holds inside the domain",
                    got="until and outside='flag'",
                    allowed="one of them",
                )
            given = self.in_double(prompt, sample_weight)
            if record != "all":
                raise InputError("a run that stops by itself records all steps", got=f"record={record!r}")
            weights, state, stopped = run_until(self, prompt, given, executor, limit)
            wanted = tuple(range(len(weights)))
        else:
            weights, state = self._forward(prompt, executor, noted, wanted, compiled)
        predictions = prompt.predictions(self.program, state)
        if not (bool(torch.isfinite(weights[-1]).all()) and bool(torch.isfinite(predictions).all())):
            raise JobError(OVERFLOWED)
        std = self._std(prompt, state, executor, noted) if return_std else None
        run = _as_run(self.program, prompt, torch.stack(weights, dim=1), state, std)
        return replace(
            run,
            stopped=stopped if stopped is None or prompt.batched else stopped[0],
            violations=tuple(noted.sentences) if noted else (),
            recorded=wanted,
        )

    def _forward(
        self,
        prompt: Prompt,
        executor: Executor,
        noted: Noted | None,
        wanted: tuple[int, ...],
        compiled: bool | None = None,
    ) -> tuple[list[Tensor], State]:
        """Weights after the wanted steps, and the lanes after the read-out."""
        if executor == "fused":
            return self.fused.run(prompt, wanted, compiled)
        weights, state, step = [prompt.w0] if 0 in wanted else [], prompt.state(self.program), 0
        for _, state, step_ends in self.execute(prompt, executor, noted):
            step += step_ends
            if step_ends and step in wanted:
                weights.append(prompt.weights(self.program, state))
        return weights, state

    @cached_property
    def fused(self) -> FusedExecutor:
        """The fused executor of this program."""
        target = self.target
        return FusedExecutor(
            self.program, self.functions, lambda layer: target.bounds(self.program, layer, self.options)
        )

    def _noted(self, outside: Outside) -> Noted | None:
        """What takes violations of domains, if they are to be flagged."""
        if outside not in ("error", "flag"):
            raise InputError("unknown treatment of violations", got=repr(outside), allowed="'error' or 'flag'")
        return Noted(self.program.steps) if outside == "flag" else None

    def _std(self, prompt: Prompt, state: State, executor: Executor, noted: Noted | None) -> Tensor:
        """Predictive standard deviation at the queries, (batch, n_query)."""
        if self.program.variance is not None:
            lane = state[self.program.variance]
            return self.algorithm.std(lane[:, lane.shape[1] - prompt.X_query.shape[1] :])
        columns = self.algorithm.variance_prompt(prompt.X, prompt.X_query)
        if columns is None:
            raise InputError(f"{self.algorithm.kind} has no predictive standard deviation", got="return_std=True")
        targets, prior = columns
        batch, n_query = prompt.X_query.shape[:2]
        one_each = Prompt(
            prompt.X.repeat_interleave(n_query, 0),
            targets.flatten(0, 1),
            prompt.X_query.flatten(0, 1).unsqueeze(1),
            prompt.w0.repeat_interleave(n_query, 0),
            prompt.omega.repeat_interleave(n_query, 0),
            True,
        )
        aside = None if noted is None else Noted(noted.steps)
        _, state = self._forward(one_each, executor, aside, ())
        if noted is not None and aside is not None:
            noted.sentences += [f"predictive deviation, one prompt a query: {text}" for text in aside.sentences]
        explained = one_each.predictions(self.program, state)[:, 0, 0].view(batch, n_query)
        return self.algorithm.std(prior - explained)

    def trace(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Executor = "plain",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> list[tuple[str, State]]:
        """Named lanes after every layer: [("input", lanes), ("forward 1", lanes), ...]; lanes are (batch, T or 1 if
        shared, ...).
        """
        self._check_dtype(dtype, executor)
        prompt = self.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed)
        return [
            ("input", prompt.state(self.program)),
            *((layer.name, state) for layer, state, _ in self.execute(prompt, executor)),
        ]

    def execute(
        self, prompt: Prompt, executor: Executor, noted: Noted | None = None
    ) -> Iterator[tuple[Layer, State, bool]]:
        """The forward pass, layer by layer: (layer, lanes after it, whether a step ends). noted: takes violations of
        domains, which otherwise are errors.
        """
        state = prompt.state(self.program)
        tokens, longest = state["x"].shape[1], self.target.longest(self.program, self.options, prompt.X.dtype)
        if executor == "dense" and tokens > longest:
            raise InputError(
                f"the prompt is too long for {prompt.X.dtype}: its positions are rounded",
                got=f"{tokens} tokens",
                allowed=f"at most {longest:g}",
                hint="use float64, or variant='raw'",
            )
        if noted is not None:
            noted.step = 1
        if executor == "fused":
            return self.fused.layers(prompt)
        return self._layers(state, executor, noted)

    def read_out(self, state: State, executor: Executor) -> State:
        """The lanes after the read-out, from those after a step."""
        readout: Executor = "dense" if executor == "dense" else "plain"
        for _, after, _ in self._layers(state, readout, None, readout=True):
            state = after
        return state

    def _layers(
        self, state: State, executor: Executor, noted: Noted | None, *, readout: bool = False
    ) -> Iterator[tuple[Layer, State, bool]]:
        """All layers, or those of the read-out."""
        run = self._run_plain if executor == "plain" else self._run_dense
        return self._within_bounds(state, run(state, noted, readout), noted)

    def _within_bounds(
        self, state: State, steps: Iterator[tuple[Layer, State, bool]], noted: Noted | None
    ) -> Iterator[tuple[Layer, State, bool]]:
        """Stop where a lane leaves the range in which the weights compute what they should, or take note of it."""
        known: dict[int, dict[str, tuple[float, float]]] = {}
        violated = noted or refuse
        for layer, after, step_ends in steps:
            if id(layer) not in known:
                known[id(layer)] = self.target.bounds(self.program, layer, self.options)
            for lane, (low, high) in known[id(layer)].items():
                found, slack = (float(state[lane].min()), float(state[lane].max())), 1e-4 * high  # rounding of float32
                if found[0] < low - slack or found[1] > high + slack:
                    place = in_prompts((state[lane] < low - slack) | (state[lane] > high + slack))
                    hint = f"compile with a larger {_BOUNDS.get(lane, 'z_bound')}, or scale the data"
                    error = DomainError(
                        f"layer {layer.name}: lane {lane} left the range its products are made for",
                        got=f"{found[0] if found[0] < low - slack else found[1]:g}",
                        allowed=f"[{low:g}, {high:g}]",
                        hint=f"{place}; {hint}" if place else hint,
                    )
                    violated(error)
            state = after
            if noted is not None:
                noted.step += step_ends
            yield layer, after, step_ends

    def _apply(self, layer: Layer, state: State, noted: Noted | None) -> State:
        """A layer as the program says. Approximants outside their domain are an error, or noted."""
        if noted is None:
            return plain.apply_layer(self.program, layer, state, self.functions)

        def observe(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            f = self.approximants.get(score.f.name)
            outside = None if f is None else f.outside(argument)
            if f is not None and outside is not None:
                what = f"layer {layer.name}: an argument of {score.f.name} left the domain of its approximant"
                place = in_prompts((argument < f.domain[0]) | (argument > f.domain[1]))
                noted(DomainError(what, got=f"{outside:g}", allowed=f"[{f.domain[0]:g}, {f.domain[1]:g}]", hint=place))

        unchecked = {name: partial(_evaluate, f) for name, f in self.functions.items()}
        return plain.apply_layer(self.program, layer, state, unchecked, observer=observe)

    def _schedule(self, readout: bool) -> Iterable[tuple[Layer, bool]]:
        return [(layer, False) for layer in self.program.readout] if readout else self.program.schedule()

    def _run_plain(self, state: State, noted: Noted | None, readout: bool) -> Iterator[tuple[Layer, State, bool]]:
        for layer, step_ends in self._schedule(readout):
            state = self._apply(layer, state, noted)
            yield layer, state, step_ends

    def _run_dense(self, state: State, noted: Noted | None, readout: bool) -> Iterator[tuple[Layer, State, bool]]:
        """The module, layer by layer; functions with a bounded domain are checked on the stream it produced."""
        stream, h = self.program.stream, self.program.stream.pack(state)
        largest = max(row.heads * max(row.d_head, 1) for row in self.cost().rows)
        require_memory(
            4 * largest * h.shape[0] * h.shape[1] * h.element_size(), "running the dense transformer", _SMALLER
        )
        module = self.module_for(h.dtype)
        modules = iter(module.stored_readout()) if readout else module.layers()
        bounded = any(map(math.isfinite, (end for f in self.approximants.values() for end in f.domain)))
        for layer, step_ends in self._schedule(readout):
            if bounded:
                self._apply(layer, stream.unpack(h), noted)
            h = next(modules)(h)
            yield layer, stream.unpack(h), step_ends

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
        violated: Callable[[InputError], None] = refuse,
    ) -> Prompt:
        """The caller's arrays, checked and batched. violated: what to do about values outside the declared domain."""
        given = (X, y, X_query, w0, sample_weight)
        return make_prompt(
            self.algorithm, self.program, *given, seed=seed, dtype=dtype, limits=self.options, violated=violated
        )

    def in_double(
        self,
        prompt: Prompt,
        sample_weight: ArrayLike | None,
        violated: Callable[[InputError], None] = refuse,
    ) -> Prompt:
        """The same prompt in float64: what is certified is the distance to the algorithm on that."""
        weight = None if sample_weight is None else torch.as_tensor(sample_weight).to(prompt.X.dtype).double()
        double = (part.double() for part in (prompt.X, prompt.y, prompt.X_query))
        return self.prompt(*double, w0=prompt.w0.double(), sample_weight=weight, violated=violated)

    def stream(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike | None = None, **prompt: Any) -> Tensor:
        """The residual stream (batch, T, d_model) that ``tf.module`` takes: demos, then queries; other arguments as
        in ``prompt``.

        ``tf.program.stream.unpack`` gives its lanes by name.
        """
        return self.program.stream.pack(self.prompt(X, y, X_query, **prompt).state(self.program))

    def _check_dtype(self, dtype: torch.dtype, executor: Executor) -> None:
        """Refuse an epsilon that drowns in the rounding of the dtype."""
        if executor not in get_args(Executor):
            raise InputError("unknown executor", got=repr(executor), allowed=", ".join(get_args(Executor)))
        if dtype not in (torch.float32, torch.float64):
            raise InputError("unsupported dtype", got=dtype, allowed="torch.float32 or torch.float64")
        self.check_steps(dtype)
        for name, f in self.approximants.items():
            if 0.0 < f.error < torch.inf:
                floor, epsilon = rounding(f, dtype, executor), self.options.accuracy(name)
                if floor > epsilon:
                    raise InputError(
                        f"epsilon = {epsilon:g} cannot be reached in {dtype} by the {executor} executor",
                        got=f"a rounding error of {floor:.1e} in {name}",
                        hint="use float64, the plain executor, or a larger epsilon",
                    )

    def check_steps(self, dtype: torch.dtype) -> None:
        """Refuse a dtype in which the ramps of tables are not told apart."""
        for name, f in self.approximants.items():
            if f.ramps and f.error == 0.0 and isinstance(f, PiecewiseLinear):
                width = min(high - low for low, high in f.ramps) / max(1.0, *map(abs, f.knots))
                if torch.finfo(dtype).eps > 1e-3 * width:
                    what = f"the steps of {name} are too steep for {dtype}"
                    raise InputError(what, got=f"ramps {width:.0e} wide", hint="a table needs float64")

    # ----------------------------------------------------------------------------------------------------------
    # checking and saving

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
        """Check every law of the weights on random prompts, or on the given data; see :mod:`innergrad.verification`."""
        from innergrad.verification import verify

        return verify(self, X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed, prompts=prompts)

    @cached_property
    def certificate(self) -> Domainwide:
        """What is known before any run: bounds on the error for every prompt of the declared domain (x_bound, y_bound,
        box); see :mod:`innergrad.bounds`.
        """
        from innergrad.bounds import apriori

        return apriori(self)

    def certify(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_query: ArrayLike | None = None,
        *,
        w0: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        executor: Executor = "plain",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        trajectory: bool | None = None,
        errors: Literal["sup", "pointwise"] | None = None,
        outside: Outside = "error",
    ) -> Certificate:
        """A rigorous bound on the error of a run on these examples: of the gradient in every step, of the weights along
        the path, and of the predictions; see :mod:`innergrad.certificate`.

        trajectory: also bound the distance to the algorithm's own path and the predictions, which costs more; by
        default for up to 1,536 weights. errors: ``pointwise``, from the errors of the approximants at the arguments
        that occurred, or ``sup``, from their proven sup errors, where these are proven: about twice as large, and
        infinite where an argument may be on a ramp. outside: as in ``run``; where an approximant is outside its domain
        nothing is known from its sup error.
        """
        from innergrad.certificate import certify

        self._check_dtype(dtype, executor)
        noted = self._noted(outside)
        given = {"w0": w0, "sample_weight": sample_weight, "dtype": dtype, "seed": seed}
        prompt = self.prompt(X, y, X_query, **given, violated=noted or refuse)  # type: ignore[arg-type]
        double = self.in_double(prompt, sample_weight, Noted(0) if noted else refuse)
        how = {"executor": executor, "trajectory": trajectory, "errors": errors, "noted": noted}
        return certify(self, prompt, double, **how)  # type: ignore[arg-type]

    def explain(self, X: ArrayLike | None = None, y: ArrayLike | None = None, **how: Any) -> Explanation:
        """Where the error of a run comes from, bound beside measured, and how healthy it is; see
        :mod:`innergrad.explain`.
        """
        from innergrad.explain import explain

        return explain(self, X, y, **how)

    def attack(self, *, starts: int = 32, iterations: int = 100, seed: int = 0) -> Attack:
        """The worst prompt and weights of the domain that gradient ascent finds; see :mod:`innergrad.attack`."""
        from innergrad.attack import attack

        return attack(self, starts=starts, iterations=iterations, seed=seed)

    def save(self, path: str | Path) -> Path:
        """Write a folder: config.json (settings, layout, layers) and weights.safetensors."""
        from innergrad.storage import save

        return save(self, Path(path))


def _evaluate(f: ScalarFunction, t: Tensor) -> Tensor:
    """f(t), also where f is an approximant and t is outside its domain, which the interpreter does not let pass."""
    return f(t)


@lru_cache(maxsize=256)
def rounding(f: Approximant, dtype: torch.dtype, executor: Executor) -> float:
    """Measured rounding error of an approximant in a dtype, against float64."""
    t = f.samples().to(dtype)
    computed = f.as_weights(t) if executor == "dense" else f(t)
    return float((computed.double() - f(t.double())).abs().max())


def default_variant(algorithm: Algorithm, target: str) -> str:
    """The first variant of the target that the algorithm has a program for."""
    return algorithm.variants.get(target, TARGETS[target].variants)[0]


def reference(
    algorithm: Algorithm,
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike | None = None,
    *,
    w0: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    seed: int = 0,
) -> Run:
    """The exact algorithm in float64, without a transformer: by autograd where the algorithm says how, else by the
    exact interpreter.
    """
    shape = np.shape(X) if isinstance(X, np.ndarray | Tensor) else np.shape(np.array(X, dtype=object))
    n = shape[-2] if len(shape) > 1 else 1
    target = algorithm.home
    program = algorithm.program(Options(target, default_variant(algorithm, target), n_examples=max(n, 1)))
    prompt = make_prompt(algorithm, program, X, y, X_query, w0, sample_weight, seed=seed, dtype=torch.float64)
    oracle = algorithm.reference(prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
    weights, state = exact_run(program, prompt)
    run = _as_run(program, prompt, weights, state, None)
    if oracle is None:
        return run
    online = algorithm.reference_online(prompt.X, prompt.y, prompt.w0, prompt.omega) if program.causal else None
    online = None if online is None else online[..., 0]
    std = algorithm.reference_std(prompt.X, prompt.X_query)
    if prompt.batched:
        return Run(*oracle, online, std)
    weights, predictions = (part[0] for part in oracle)
    return Run(weights, predictions, None if online is None else online[0], None if std is None else std[0])


def exact_run(program: Program, prompt: Prompt) -> tuple[Tensor, State]:
    """The exact interpreter: weights (batch, steps + 1, D_w), and the state after the read-out."""
    weights, state = [prompt.w0], prompt.state(program)
    for _, after, step_ends in exact.run(program, state):
        state = after
        if step_ends:
            weights.append(prompt.weights(program, state))
    return torch.stack(weights, dim=1), state


def _as_run(program: Program, prompt: Prompt, weights: Tensor, state: State, std: Tensor | None) -> Run:
    predictions = prompt.predictions(program, state)
    online = prompt.online(program, state)[..., 0] if program.causal else None
    if prompt.batched:
        return Run(weights, predictions, online, std)
    return Run(weights[0], predictions[0], None if online is None else online[0], None if std is None else std[0])
