"""The cases of the laws: an algorithm, how it is compiled, and prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.compiler import compile
from innergrad.transformer import CompiledTransformer

Draw = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor, Tensor]]
Start = Callable[[torch.Generator], Tensor | None]


@dataclass(frozen=True, eq=False)
class Case:
    """An algorithm, and how it is compiled. It is compiled once, when it is first asked for.

    Args:
        algorithm: what is tested.
        options: of ``innergrad.compile``.
        ordered: the order of the examples matters.
        float32: it can be certified in float32. If not, a weight is too steep, and the refusal is tested.
        draw: (n, n_query, generator) -> one prompt: X (n, d), y (n, d_y), X_query (n_query, d). By default the
            algorithm's ``random_prompt``.
        extensions: activations and losses that ``innergrad.load`` needs besides the algorithm.
        start: generator -> initial weights w0 (D_w,), for algorithms that do not take every one. By default Gaussian
            ones inside the weights' bounds.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.testing import Case
        >>> case = Case(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), {"target": "llama"})
        >>> case.tf.options.n_examples
        9
    """

    algorithm: Algorithm
    options: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool = False
    float32: bool = True
    draw: Draw | None = None
    extensions: tuple[object, ...] = ()
    start: Start | None = None

    @cached_property
    def tf(self) -> CompiledTransformer:
        """Shared by all users: do not change its module, compile another one."""
        return self.compile()

    def compile(self) -> CompiledTransformer:
        return compile(self.algorithm, **{"n_examples": 9, **self.options})

    def of(self, n_examples: int) -> Case:
        """The same for prompts of so many examples."""
        return replace(self, options={**self.options, "n_examples": n_examples})

    def prompts(self, batch: int, n: int | None = None, n_query: int = 2, seed: int = 5) -> dict[str, Any]:
        """X (batch, n, d), y (batch, n, d_y), X_query (batch, n_query, d), w0 (batch, D_w); by default two examples
        fewer than it is compiled for.
        """
        n = max(1, self.tf.options.n_examples - 2) if n is None else n
        generator = torch.Generator().manual_seed(seed)
        draw = self.draw or self.algorithm.random_prompt
        drawn = [draw(n, n_query, generator) for _ in range(batch)]
        X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
        starts = [self.start(generator) for _ in range(batch)] if self.start else []
        given = [w0 for w0 in starts if w0 is not None]
        w0 = torch.stack(given) if given else self._gaussian(batch, generator)
        return {"X": X, "y": y, "X_query": X_query, "w0": w0}

    def _gaussian(self, batch: int, generator: torch.Generator) -> Tensor:
        """Weights of either sign, inside their bounds."""
        bounds = torch.tensor(self.tf.program.weight_bounds, dtype=torch.float64)
        bounds = bounds.clamp(max=getattr(self.algorithm, "box", None) or 1.0)
        w0 = torch.randn(batch, len(bounds), generator=generator, dtype=torch.float64)
        return w0.mul(0.7).clamp(-bounds, bounds)

    def full(self, batch: int, equal: bool = False) -> dict[str, Any]:
        """Prompts of as many examples as it is compiled for; ``equal``: all the same one."""
        prompt = self.prompts(batch, self.tf.options.n_examples, n_query=1)
        if not equal:
            return prompt
        return prompt | {name: prompt[name][:, :1].expand_as(prompt[name]).contiguous() for name in ("X", "y")}
