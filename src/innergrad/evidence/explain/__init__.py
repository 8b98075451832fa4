"""Where the error of a compiled transformer comes from, and whether it is well: attribution and health."""

from innergrad.evidence.explain.explanation import Explanation, Health, LayerError, StepError, draw
from innergrad.evidence.explain.run import explain

__all__ = ["Explanation", "Health", "LayerError", "StepError", "draw", "explain"]
