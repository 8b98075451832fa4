"""Attack: look for the prompt and the weights, inside the domain, on which a transformer's step is most wrong.

    maximise  ||step of the transformer - step of the algorithm||_2 / lr     over X, y, w_0 in the domain

by projected sign ascent from many starts at once, half of them drawn as verification draws prompts, half uniformly from
the domain. Both steps are differentiable: the program runs with the approximants (on targets where those are fitted:
the weights themselves run) and with the functions. The kinks of piecewise-linear approximants make the gradient useful
only locally, so moves begin large and shrink, and the best point seen is kept. A move out of an approximant's domain,
or to a prompt the algorithm refuses, is taken back.

The error found is a lower bound on the worst error; the certificate is an upper one. If it is above a certificate, the
certificate is wrong: a *violation*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innergrad.errors import InputError, integer
from innergrad.evidence.bounds import apriori
from innergrad.evidence.certificate import Errors, certify
from innergrad.evidence.verification import random_prompt
from innergrad.functions.states import described
from innergrad.interpret import plain
from innergrad.interpret.plain import ScalarFunction, slack
from innergrad.ir.program import Attend, Layer, Program, Score
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Name
from innergrad.model.prompt import Prompt
from innergrad.targets import LoopedTransformer

FIRST, LAST = 0.2, 0.001  # size of a step, relative to the range of the variable
PARTS = ("X", "y", "X_query", "w0")


@dataclass(frozen=True)
class Attack:
    """The worst prompt that was found, X (n, d_x), y (n, d_y), X_query (n_query, d_x), w0 (D_w,), and its error.

    error: of the gradient in the first step; without weights, of the state after it.
    median: of the errors of random prompts, drawn as verification draws them. uniform: of prompts and weights drawn
        uniformly from the domain.
    certificate: the a-posteriori bound at the worst prompt. closest: the largest error / certificate of all starts.
    domainwide: the bound for every prompt of the domain, if a domain is declared and has one, else None.
    """

    error: float
    X: Tensor
    y: Tensor
    X_query: Tensor
    w0: Tensor
    median: float
    uniform: float
    certificate: float
    closest: float
    domainwide: float | None
    domain: str
    proven: bool
    violations: tuple[str, ...]
    state: str = "proven"
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The worst error, in medians of random errors."""
        return self.error / self.median if self.median else math.inf

    def to_json(self) -> dict[str, Any]:
        """Infinite numbers are null."""
        numbers = ("error", "median", "ratio", "uniform", "certificate", "closest", "domainwide")
        found = {name: getattr(self, name) for name in numbers}
        return {
            **{name: value if value is not None and math.isfinite(value) else None for name, value in found.items()},
            "domain": self.domain,
            "proven": self.proven,
            "state": self.state,
            "notes": list(self.notes),
            "violations": list(self.violations),
            "prompt": {name: getattr(self, name).tolist() for name in PARTS},
        }

    def __str__(self) -> str:
        kind = "from proven sup errors" if self.proven else "from the errors at its arguments"
        rows = [
            ("the median error of random prompts", self.median),
            ("the median of uniform draws from that domain", self.uniform),
            (f"the certificate at that prompt ({kind})", self.certificate),
            ("the bound for every prompt of the domain", self.domainwide),
        ]
        lines = [f"worst error found, {self.domain}: {self.error:.3e}"]
        for name, value in rows:
            if value is not None and not math.isnan(value):
                times = f"{self.error / value:.3g}" if value else "infinitely many"
                lines.append(f"  {times} times {name}, {value:.3e}")
        lines.append(f"  of all starts, the closest to its own certificate reached {self.closest:.3g} of it")
        return "\n".join([*lines, *(f"  {text}" for text in self.notes), *(f"VIOLATION: {x}" for x in self.violations)])


def attack(
    tf: Compiled,
    *,
    starts: int = 32,
    iterations: int = 100,
    seed: int = 0,
    errors: Errors | None = None,
) -> Attack:
    """Search for the worst prompt and weights of the domain: |x| <= x_bound, |y| <= y_bound, weights in the box, and
    the range of random prompts where nothing is declared. Labels of classes stay as they were drawn, and examples have
    equal weights. errors: of the certificate, as in ``certify``.
    """
    starts, iterations = integer("starts", starts), integer("iterations", iterations)
    if any(f.ramps and f.error == 0.0 for f in tf.approximants.values()):
        raise InputError(
            f"{tf.algorithm.kind} cannot be attacked by gradient ascent", got="tables, whose steps have no gradient"
        )
    first = _one_step(tf)
    drawn = random_prompt(tf, seed, starts, None)
    domain = _Domain(tf, drawn)
    generator = torch.Generator().manual_seed(seed)
    random, _, gradients = _errors(first, drawn)
    if float(random.max()) == 0.0 and not any(bool(part.any()) for part in gradients):
        raise InputError(
            f"{tf.algorithm.kind} on target {tf.options.target!r} cannot be attacked by gradient ascent",
            got="an error that is zero at and around every random prompt",
            hint="nothing smooth is approximated, or all starts are where approximants are exact (zero weights)",
        )
    spread = domain.uniform(drawn, generator)
    uniform, inside, _ = _errors(first, spread)
    every_other = torch.arange(starts) % 2 == 1
    best, worst = _ascend(first, _where(inside & every_other, spread, drawn), domain, iterations, generator)
    executor: Name = "plain" if tf.target.proven else "dense"
    certified = certify(
        first, worst.X, worst.y, worst.X_query, w0=worst.w0, executor=executor, trajectory=False, errors=errors
    )
    bounds = certified.steps[0].radius.norm(dim=-1) / certified.lr
    top = int(best.argmax())
    wide = _domainwide(tf)
    violations = [
        f"an error of {float(error):.3e}, certified to be at most {float(bound):.3e}"
        for error, bound in zip(best, bounds, strict=True)
        if error > bound
    ]
    if wide is not None and float(best[top]) > wide:
        violations.append(f"an error of {float(best[top]):.3e}, at most {wide:.3e} in all of the domain")
    return Attack(
        error=float(best[top]),
        X=worst.X[top],
        y=worst.y[top],
        X_query=worst.X_query[top],
        w0=worst.w0[top],
        median=float(random.median()),
        uniform=float(uniform[inside].median()) if bool(inside.any()) else math.nan,
        certificate=float(bounds[top]),
        closest=float((best / bounds.clamp(min=1e-300)).max()),
        domainwide=wide,
        domain=str(domain),
        proven=certified.errors == "sup",
        violations=tuple(violations),
        state=tf.state,
        notes=tuple(described(tf.standings)),
    )


def _one_step(tf: Compiled) -> Compiled:
    """The transformer up to the end of its first step, with the same weights."""
    loops = tf.program.body[: 1 + next(i for i, loop in enumerate(tf.program.body) if loop.step)]
    body = (*loops[:-1], replace(loops[-1], count=1))
    module = None
    if not tf.target.proven:
        module = LoopedTransformer(tf.module.stored_blocks()[: len(body)], [loop.count for loop in body], [])
    return replace(tf, program=replace(tf.program, body=body, readout=()), stored_module=module)


def _domainwide(tf: Compiled) -> float | None:
    try:
        return apriori(tf).best
    except InputError:  # nothing declared, or nothing proven
        return None


class _Domain:
    """Intervals of x, y and the weights; y has none where it is a label."""

    def __init__(self, tf: Compiled, drawn: Prompt) -> None:
        options, self.tf = tf.options, tf
        inputs = torch.cat([drawn.X, drawn.X_query], dim=1)
        self.x, self.y = _interval(options.x_bound, inputs), _interval(options.y_bound, drawn.y)
        self.labels = not _accepts(tf, replace(drawn, y=drawn.y * 0.9 + 0.05 * sum(self.y)))
        largest = (float(drawn.w0.abs().max()) if drawn.w0.numel() else 0.0) or 1.0
        bounds = torch.tensor(tf.program.weight_bounds, dtype=torch.float64)
        self.box = torch.where(torch.isfinite(bounds), bounds, largest)

    def ranges(self) -> dict[str, tuple[Tensor | float, Tensor | float]]:
        y = {} if self.labels else {"y": self.y}
        return {"X": self.x, **y, "X_query": self.x, "w0": (-self.box, self.box)}

    def uniform(self, drawn: Prompt, generator: torch.Generator) -> Prompt:
        parts = {}
        for name, (low, high) in self.ranges().items():
            like: Tensor = getattr(drawn, name)
            parts[name] = low + (high - low) * torch.rand(like.shape, generator=generator, dtype=torch.float64)
        return _with(drawn, parts)

    def __str__(self) -> str:
        parts = [f"x in [{self.x[0]:.3g}, {self.x[1]:.3g}]"]
        parts.append("y labels" if self.labels else f"y in [{self.y[0]:.3g}, {self.y[1]:.3g}]")
        if self.box.numel():
            parts.append(f"|w| <= {float(self.box.max()):.3g}")
        return ", ".join(parts)


def _interval(bound: float | None, drawn: Tensor) -> tuple[float, float]:
    return (-bound, bound) if bound is not None else (float(drawn.min()), float(drawn.max()))


def _accepts(tf: Compiled, prompt: Prompt) -> bool:
    try:
        tf.algorithm.check_prompt(prompt.X, prompt.y, prompt.w0)
    except InputError:
        return False
    return True


def _ascend(
    tf: Compiled, start: Prompt, domain: _Domain, iterations: int, generator: torch.Generator
) -> tuple[Tensor, Prompt]:
    """The largest error of every start, and where it was seen."""
    ranges = domain.ranges()
    best, at, prompt = torch.full((len(start.X),), -1.0, dtype=torch.float64), start, start
    for number in range(iterations + 1):
        error, inside, gradients = _errors(tf, prompt)
        better = inside & (error > best)
        for i in better.nonzero().flatten().tolist():
            better[i] = _accepts(tf, _rows(prompt, torch.tensor([i])))
        best = torch.where(better, error, best)
        at = _where(better, prompt, at)
        rate = FIRST * (LAST / FIRST) ** (number / iterations)
        moved = {}
        for name, gradient in zip(PARTS, gradients, strict=True):
            if name in ranges:
                low, high = ranges[name]
                flat = (gradient == 0).flatten(1).all(1).view(-1, *[1] * (gradient.ndim - 1))
                blind = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
                step = torch.where(flat, blind, gradient).sign() * rate * (high - low)
                moved[name] = torch.clamp(getattr(prompt, name) + step, torch.as_tensor(low), torch.as_tensor(high))
        prompt = _where(inside, _with(prompt, moved), at)
    return best, at


def _rows(prompt: Prompt, rows: Tensor) -> Prompt:
    return _with(prompt, {name: getattr(prompt, name)[rows] for name in (*PARTS, "omega")})


def _where(chosen: Tensor, one: Prompt, other: Prompt) -> Prompt:
    """Prompt by prompt."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(chosen.view(-1, *[1] * (a.ndim - 1)), a, b)

    return _with(one, {name: pick(getattr(one, name), getattr(other, name)) for name in PARTS})


def _with(prompt: Prompt, parts: Mapping[str, Tensor]) -> Prompt:
    return replace(prompt, **dict[str, Any](parts))


def _errors(tf: Compiled, prompt: Prompt) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """Error of every prompt (batch,), whether it stays inside all domains, and the gradients of the error."""
    program = tf.program
    variables = {name: getattr(prompt, name).detach().clone().requires_grad_() for name in PARTS}
    inside = torch.ones(len(prompt.X), dtype=torch.bool)
    with torch.enable_grad():
        moving = _with(prompt, variables)
        found = _step(tf, moving, inside)
        start = moving.state(program)
        *_, (_, exact, _) = plain.run(program, start, program.functions())
        error = (learned(program, moving, found) - learned(program, moving, exact)).norm(dim=-1)
        error = error / float(getattr(tf.algorithm, "lr", 1.0) or 1.0)
        gradients = torch.autograd.grad(error.sum(), list(variables.values()), materialize_grads=True)
    return error.detach(), inside, [gradient.nan_to_num() for gradient in gradients]


def _step(tf: Compiled, prompt: Prompt, inside: Tensor) -> State:
    """The state after the transformer's step; ``inside`` becomes False where a prompt leaves a domain."""
    program = tf.program
    functions: dict[str, ScalarFunction] = {**program.functions()}
    functions |= {name: replace(f, domain=(-math.inf, math.inf)) for name, f in tf.approximants.items()}

    def watch(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
        f = tf.approximants.get(score.f.name)
        if f is not None and math.isfinite(f.domain[1] - f.domain[0]):
            _inside(inside, argument, f.domain)

    state, modules = prompt.state(program), None if tf.target.proven else tf.module.layers()
    h = program.stream.pack(state)
    for layer, _ in program.schedule():
        for lane, limits in tf.ranges(layer).items():
            room = slack(limits)  # as in a run
            _inside(inside, state[lane], (limits[0] - room, limits[1] + room))
        after = plain.apply_layer(program, layer, state, functions, observer=watch)
        if modules is None:
            state = after
        else:
            h = next(modules)(h)
            state = program.stream.unpack(h)
    return state


def _inside(inside: Tensor, values: Tensor, limits: tuple[float, float]) -> None:
    flat = values.detach().flatten(1)
    inside &= (flat.amin(1) >= limits[0]) & (flat.amax(1) <= limits[1])


def learned(program: Program, prompt: Prompt, state: State) -> Tensor:
    """The numbers that a certificate of a step is about: the weights or, where there are none, all state; (batch,
    entries).
    """
    if program.weights:
        return prompt.weights(program, state)
    lanes = [lane for lane in program.stream.lanes if lane.role == "state"]
    return torch.cat([(state[x.name][:, :1] if x.shared else state[x.name]).flatten(1) for x in lanes], dim=1)
