"""The general decay condition for twelve functions: verdict, reason and witness. Writes results/decay.json."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from _results import no_arguments, store
from innergrad.functions.decay import decay_condition

F = torch.nn.functional
FUNCTIONS: dict[str, str | Callable[[Tensor], Tensor]] = {
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "gelu": "gelu",
    "softplus": "softplus",
    "silu": "silu",
    "relu": "relu",
    "exp(-t²)": lambda t: torch.exp(-t * t),
    "arctan": torch.atan,
    "sin(t)/t": lambda t: torch.sinc(t / torch.pi),
    "cos": "cos",
    "t³": lambda t: t**3,
    "exp": "exp",
}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, function in FUNCTIONS.items():
        decay = decay_condition(function)
        rows.append(
            {
                "name": name,
                "holds": decay.holds,
                "kind": decay.kind,
                "reason": decay.reason,
                "terms": len(decay.units),
                "p": decay.p if decay.holds else None,
                "proven": decay.proven,
            }
        )
        print(rows[-1], flush=True)
    store("decay", "python benchmarks/decay.py", {"decay": rows})


if __name__ == "__main__":
    no_arguments(__doc__)
    main()
