"""Every study and every figure, by name."""

from __future__ import annotations

from innergrad.papers import depth, mixtures, parameters, positions, shapes, through_networks
from innergrad.papers.frame import Figure, Study

FIGURES: dict[str, Figure] = {
    one.name: one
    for module in (mixtures, parameters, depth, positions, shapes, through_networks)
    for one in module.FIGURES
}
STUDIES: dict[str, Study] = {one.study.name: one.study for one in FIGURES.values()}
