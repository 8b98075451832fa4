"""A new algorithm in one screen: l2-regularised logistic regression by gradient descent, as a transformer.

    p_i = sigmoid(<w, x_i> + b),   w -= lr (mean_i (p_i - y_i) x_i + l2 w),   b -= lr mean_i (p_i - y_i)

Run it: ``python examples/logistic_regression.py``. Everything but the program and its oracle comes from the library.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import innergrad as ig
from innergrad import IDENTITY, NEGATION, Attend, Lane, Layer, Loop, Score


@dataclass(frozen=True)
class LogisticRegression(ig.Algorithm):
    d: int
    lr: float = 1.0
    l2: float = 0.1
    steps: int = 200

    def program(self, options: ig.Options) -> ig.Program:
        del options  # the same program for every way of compiling it
        scratch = Lane("p", (1,)), Lane("g")
        stream = ig.example_stream(self.d, 1, Lane("w", (self.d,), "weight"), Lane("b", (), "weight"), *scratch)
        sigmoid = ig.ACTIVATIONS["sigmoid"].r
        forward = Layer("attention", "forward", (Attend("p[0]", Score(sigmoid, ("x[c]", "w[c]"), ("one", "b"))),))
        error = Layer("product", "error", (Attend("g", Score(IDENTITY, ("omega", "p[0] - y[0]"))),))
        g = Score(IDENTITY, ("one", "g"))
        dw = Attend("w[c]", g, value="x[c]", scope="all", reduce="mean", scale=-self.lr)
        db = Attend("b", g, scope="all", reduce="mean", scale=-self.lr)
        update = Layer("attention", "update", (dw, db, Attend("w[c]", value="w[c]", scale=-self.lr * self.l2)))
        clear = Layer("mlp", "clear", ig.pointwise(NEGATION, scratch))
        return ig.Program(stream, (Loop(self.steps, (forward, error, update, clear)),), (forward,), "p")

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        def logits(w: Tensor, X: Tensor) -> Tensor:
            return X @ w[:, :-1, None] + w[:, None, -1:]

        def risk(w: Tensor) -> Tensor:
            loss = cross_entropy(logits(w, X), y, omega[..., None], reduction="sum")
            return loss + self.l2 / 2 * w[:, :-1].square().sum()

        path = [w0]
        for _ in range(self.steps):
            path.append(path[-1] - self.lr * torch.func.grad(risk)(path[-1]))
        return torch.stack(path, dim=1), logits(path[-1], X_query).sigmoid()


if __name__ == "__main__":
    X = torch.randn(24, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) > 0.3).to(X)
    tf = ig.compile(LogisticRegression(d=3), epsilon=1e-4, n_examples=24)
    print(tf.cost(), tf.verify(X, y, X), tf.run(X, y, X).weights[-1], sep="\n\n")
