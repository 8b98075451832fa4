"""Every study and every figure, by name."""

from __future__ import annotations

from innergrad.papers import deep_optimizers
from innergrad.papers.frame import Study

STUDIES: dict[str, Study] = {one.name: one for one in (deep_optimizers.SOFTMAX, deep_optimizers.RELU)}
