"""Ways to run a compiled transformer: the same function of a prompt, up to rounding.

plain   the program, interpreted with the approximants of the weights
dense   the matrices of the module
fused   the program at the price of training
auto    fused or plain, whichever fits: :func:`choose`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast, get_args

from innergrad.errors import InputError
from innergrad.model.compiled import Compiled
from innergrad.model.executors.base import OVERFLOWED, Executor, Plain, Step, recorded, require_finite, rounding
from innergrad.model.executors.dense import Dense
from innergrad.model.executors.fused import Fused
from innergrad.model.executors.timing import plain_seconds
from innergrad.model.prompt import Prompt

Name = Literal["plain", "dense", "fused", "auto"]
EXECUTORS: Mapping[str, type[Plain] | type[Dense] | type[Fused]] = {"plain": Plain, "dense": Dense, "fused": Fused}
SHORT = 0.1  # seconds of the plain interpreter, up to which nothing is gained by another
GRAPH = 5e-3  # seconds that fusing a loop takes
WORTH_A_KERNEL = 10.0  # from which building one is; it takes a second or two, six the first time on a machine


def executor_of(of: Compiled, name: object) -> Executor:
    """The executor of that name. Its results for a transformer are kept with the transformer. ``auto`` is plain where
    all layers are to be shown; for a run :func:`choose` decides.
    """
    name = "plain" if name == "auto" else name
    if not isinstance(name, str) or name not in EXECUTORS:
        raise InputError("unknown executor", got=repr(name), allowed=", ".join(get_args(Name)))
    if name not in of.kept:
        of.kept[name] = EXECUTORS[name](of)
    return cast(Executor, of.kept[name])


def fused_of(of: Compiled) -> Fused:
    """The fused executor, with its graphs and kernels."""
    return cast(Fused, executor_of(of, "fused"))


def choose(of: Compiled, prompt: Prompt, *, compiled: bool | None = None) -> tuple[Executor, bool | None]:
    """The executor that ``auto`` takes for a run, and whether it uses a kernel.

    Plain where gradients flow through the prompt, for short runs (less than 0.1 s, or less than fusing its loops
    takes), and for programs that cannot be fused. Otherwise fused. A kernel is used if it is built already, or if the
    run is long enough to pay for building it (10 s of the plain interpreter).
    """
    plain = executor_of(of, "plain")
    if compiled is not None:
        return fused_of(of), compiled
    if prompt.gradients:
        return plain, None
    seconds = plain_seconds(of, len(prompt.X), prompt.state(of.program)["x"].shape[1])
    if seconds < max(SHORT, GRAPH * len(of.program.body)):
        return plain, None
    fast = fused_of(of)
    if not fast.possible:
        return plain, None
    worth = prompt.X.device.type != "cpu" or seconds > WORTH_A_KERNEL or fast.at_hand(prompt.X.dtype)
    return fast, None if worth else False


__all__ = [
    "EXECUTORS",
    "OVERFLOWED",
    "Executor",
    "Fused",
    "Name",
    "Step",
    "choose",
    "executor_of",
    "fused_of",
    "recorded",
    "require_finite",
    "rounding",
]
