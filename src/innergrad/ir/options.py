"""How an algorithm is compiled, and so what prompts the transformer takes. Saved with the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Target architecture and variant, accuracy and domain; see :func:`innergrad.compile`.

    epsilons: (function, sup error) of the functions whose accuracy is not ``epsilon``.
    weight_error: the error of the final weights that the accuracies were solved for, if they were.
    until: the norm of the gradient mapping at which runs stop, if they do.
    """

    target: str = "relu"
    variant: str = "literal"
    epsilon: float = 1e-3
    n_examples: int = 16
    x_bound: float | None = None
    y_bound: float | None = None
    z_bound: float | None = None
    sigma: str | None = None
    epsilons: tuple[tuple[str, float], ...] = ()
    weight_error: float | None = None
    until: float | None = None

    def accuracy(self, name: str) -> float:
        """The sup error that the approximant of a function may have."""
        return dict(self.epsilons).get(name, self.epsilon)
