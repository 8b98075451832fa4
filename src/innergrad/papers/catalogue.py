"""Every study and every figure, by name."""

from __future__ import annotations

from innergrad.papers import (
    depth,
    functional_conditioning,
    functional_depth,
    functional_examples,
    functional_heads,
    functional_identity,
    linear_algorithms,
    linear_inits,
    linear_noise,
    linear_probes,
    linear_sizes,
    mixtures,
    parameters,
    positions,
    shapes,
    through_networks,
)
from innergrad.papers.frame import Figure, Study

MODULES = (
    *(mixtures, parameters, depth, positions, shapes, through_networks),
    *(functional_examples, functional_depth, functional_identity, functional_heads, functional_conditioning),
    *(linear_algorithms, linear_noise, linear_sizes, linear_probes, linear_inits),
)
FIGURES: dict[str, Figure] = {one.name: one for module in MODULES for one in module.FIGURES}
STUDIES: dict[str, Study] = {one.study.name: one.study for one in FIGURES.values()}
