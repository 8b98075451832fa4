"""Modules that have moved: their old names import, with a warning, and are the modules of the new names.

Public names are in the documentation ("What is public"); this is for code that reached deeper.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEW = {
    "ir": "program stream",
    "algorithms": "kernels losses networks",
    "model": "legalise prompt storage",
    "evidence": "attack bounds certificate explain solver stopping verification",
    "papers": "resources",
}
_VARIANTS = ("literal", "compact", "shallow", "narrow", "selecting", "sink")
MOVED = {
    **{f"innergrad.{name}": f"innergrad.{home}.{name}" for home, names in _NEW.items() for name in names.split()},
    **{f"innergrad.algorithms.{name}": f"innergrad.algorithms.descent.{name}" for name in _VARIANTS},
    "innergrad.algorithms.mean": "innergrad.algorithms.descent.averages",
    "innergrad.algorithms.general": "innergrad.algorithms.descent.any_sigma",
    "innergrad.executor": "innergrad.model.executors.fused",
    "innergrad.options": "innergrad.ir.program",
    "innergrad.ir.options": "innergrad.ir.program",
    **dict.fromkeys(("innergrad.registry", "innergrad.modes"), "innergrad.errors"),
    "innergrad.algorithms.optimisers": "innergrad.algorithms.descent.step",
    "innergrad.functions.piecewise": "innergrad.functions.scalar",
    "innergrad.functions.activations": "innergrad.functions.activation",
    "innergrad.functions.proof": "innergrad.functions.approximants",
    "innergrad.interpret.native.build": "innergrad.interpret.native.kernel",
    "innergrad.interpret.nodes": "innergrad.interpret.symbolic",
    "innergrad.functions.dictionaries": "innergrad.functions.fits.sums",
    "innergrad.functions.features": "innergrad.functions.fits.sigmas",
    **{f"innergrad.interpret.{name}": "innergrad.interpret.affine" for name in ("forms", "form_rules", "lane_errors")},
    "innergrad.evidence.explain.figure": "innergrad.evidence.explain.explanation",
    "innergrad.interpret.tensors": "innergrad.interpret.plain",
    "innergrad.interpret.balls": "innergrad.interpret.pairs",
    "innergrad.interpret.cost": "innergrad.model.cost",
    "innergrad.interpret.domains": "innergrad.interpret.plain",
    "innergrad.model.executors.plain": "innergrad.model.executors.base",
    "innergrad.targets.sparse": "innergrad.targets.weights.modules",
    "innergrad.targets.weights.sparse": "innergrad.targets.weights.modules",
    "innergrad.targets.weights.looped": "innergrad.targets.weights.modules",
    "innergrad.targets.base": "innergrad.targets.parts.base",
    "innergrad.targets.parts.softmax": "innergrad.targets.parts.attention",
    "innergrad.targets.parts.kernels": "innergrad.targets.parts.attention",
    "innergrad.targets.parts.positions": "innergrad.targets.parts.attention",
    "innergrad.targets.parts.counts": "innergrad.targets.parts.scores",
    "innergrad.targets.weights.units": "innergrad.targets.weights.rows",
    "innergrad.lab.streams": "innergrad.lab.counter_rng",
    "innergrad.lab.gpt": "innergrad.lab.learners.gpt",
    "innergrad.lab.kernel_learner": "innergrad.lab.learners.kernel_learner",
    "innergrad.lab.learner": "innergrad.lab.learners.base",
}


class MovedModules:
    """Finds a module by its old name. It comes last, so that no name that exists is looked up here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {MOVED[spec.name]}", DeprecationWarning, stacklevel=2)
        module = import_module(MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run under its own name, which it keeps."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
