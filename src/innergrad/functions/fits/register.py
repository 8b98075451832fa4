"""Activations of a user's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.decay import decay_condition
from innergrad.functions.fits.algebra import evaluate, scales_of
from innergrad.functions.fits.sigmas import POINTS, SHIPPED, SIGMAS, Sigma, fingerprint
from innergrad.functions.fits.sums import FEATURES, feature


def register_sigma(name: str, function: Callable[[Tensor], Tensor]) -> Sigma:
    """Make a function the activation of a whole transformer: ``ig.compile(..., target="sigma", sigma=name)``.

    It must satisfy the general decay condition (``decay_condition``), and be smooth where it is used. Register it
    again, under the same name, before you load a saved model.

    Args:
        name: an identifier that is not taken.
        function: an elementwise map of tensors.

    Examples:
        >>> import innergrad as ig, torch
        >>> _ = ig.register_sigma("bell", lambda t: torch.exp(-t * t))
        >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None)
        >>> ig.compile(algorithm, target="sigma", sigma="bell").options.sigma
        'bell'
    """
    if not isinstance(name, str) or not name.isidentifier() or name in SHIPPED:
        taken = ", ".join(SHIPPED)
        raise InputError("an activation needs a name of its own", got=repr(name), allowed=f"an identifier, not {taken}")
    decay = decay_condition(function)
    if not decay.holds:
        verdict = "cannot be shown to satisfy" if decay.holds is None else "does not satisfy"
        raise InputError(f"{name} {verdict} the general decay condition", got=f"{decay.kind}: {decay.reason}")
    if name in FEATURES:  # models that were compiled with it must not change
        if fingerprint(name) != [float(v) for v in function(POINTS)]:
            raise InputError(f"{name} is another function already", hint="take another name")
        return SIGMAS[name]
    FEATURES[name] = function
    try:
        SIGMAS[name] = _measured(name)
    except (InputError, np.linalg.LinAlgError) as error:
        del FEATURES[name]
        raise InputError(
            f"sums of {name} make no squares: it has to be smooth, and curved, near zero", got=str(error)
        ) from error
    return SIGMAS[name]


def _measured(name: str) -> Sigma:
    """Where to use sigma: the entries of the table of shipped ones, measured."""
    phi, t = feature(name), np.linspace(-3.0, 3.0, 601)
    value, odd, even = phi(t), np.gradient(phi(t), t), np.gradient(np.gradient(phi(t), t), t)
    far = np.linspace(-60.0, 60.0, 2401)
    exact = float(np.abs(phi(far) - phi(-far) - far).max()) < 1e-12
    hinge = 1.001 * float(np.abs(phi(far) - np.maximum(far, 0)).max()) if exact else None
    inner = slice(50, -50)
    points = (
        0.0 if exact else float(t[inner][np.abs(odd[inner]).argmax()]),
        float(t[inner][np.abs(even[inner]).argmax()]),
    )
    level = float(t[np.abs(value).argmax()])
    candidates = [
        Sigma((1.0, 0.7, 0.5, 0.35, 0.25, 0.15), *points, width, level, hinge) for width in (2.0, 1.0, 0.5, 0.25)
    ]
    grid = torch.linspace(-1.0, 1.0, 501, dtype=torch.float64)
    errors = [
        max(
            float((evaluate(scales_of(name, known, power, False), name, grid) - grid**power).abs().max())
            for power in (1, 2)
        )
        for known in candidates
    ]
    if not min(errors) < 1e-3:
        raise InputError(
            "no scale was found", got=f"errors of {min(errors):.0e} of t and t^2 on [-1, 1]", allowed="1e-3"
        )
    return candidates[int(np.argmin(errors))]
