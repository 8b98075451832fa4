"""The exact algorithm, without a transformer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import own_gradients
from innergrad.interpret import plain
from innergrad.ir.program import Options, Program
from innergrad.ir.stream import State
from innergrad.model.learning import Learning
from innergrad.model.preparation import default_variant
from innergrad.model.prompt import ArrayLike, Prompt, make_prompt
from innergrad.model.running import Run, as_run


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
    """The exact algorithm in float64, without a transformer.

    It runs by autograd, or by other means that share no code with the transformer. An algorithm that offers no such
    means is interpreted exactly. Arguments are those of ``CompiledTransformer.run``.

    Args:
        algorithm: what to run.
        X: inputs of the examples.
        y: their labels.
        X_query: inputs to predict at.
        w0: initial weights.
        sample_weight: weights of the examples.
        seed: of the default ``w0``.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 4, 1]), lr=0.2, steps=5, box=None)
        >>> exact = ig.reference(algorithm, X, torch.sin(X))
        >>> run = ig.compile(algorithm, target="llama").run(X, torch.sin(X))
        >>> bool((run.weights - exact.weights).abs().max() < 1e-12)
        True
    """
    shape = np.shape(X) if isinstance(X, np.ndarray | Tensor) else np.shape(np.array(X, dtype=object))
    n = shape[-2] if len(shape) > 1 else 1
    target = algorithm.home
    program = algorithm.program(Options(target, default_variant(algorithm, target), n_examples=max(n, 1)))
    prompt = make_prompt(algorithm, program, X, y, X_query, w0, sample_weight, seed=seed, dtype=torch.float64)
    parts = (prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
    online = None
    with own_gradients():  # it may be autograd's
        X, y, X_query, w0, omega = (part.detach().clone() for part in parts)
        oracle = algorithm.reference(X, y, X_query, w0, omega)
        if oracle is not None and program.causal:
            online = algorithm.reference_online(X, y, w0, omega)
    weights, state = exact_run(program, prompt)
    learning = Learning(algorithm, program, prompt, program.functions())
    run = replace(as_run(program, prompt, weights, state, None), learning=learning)
    if oracle is None:
        return run
    online = None if online is None else online[..., 0]
    std = algorithm.reference_std(prompt.X, prompt.X_query)
    oracle = oracle[0], prompt.like_y(oracle[1])
    if prompt.batched:
        return Run(*oracle, online, std, learning=learning)
    weights, predictions = (part[0] for part in oracle)
    online, std = (None if part is None else part[0] for part in (online, std))
    return Run(weights, predictions, online, std, learning=learning)


def exact_run(program: Program, prompt: Prompt) -> tuple[Tensor, State]:
    """The exact interpreter: weights (batch, steps + 1, D_w), and the state after the read-out."""
    weights, state = [prompt.w0], prompt.state(program)
    for _, after, step_ends in plain.run(program, state, program.functions()):
        state = after
        if step_ends:
            weights.append(prompt.weights(program, state))
    return torch.stack(weights, dim=1), state
