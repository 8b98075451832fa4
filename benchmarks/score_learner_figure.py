"""docs/score_learner.png: a prompt of samples, and the field of its score: exact, by the learner, by kernel density."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import _score_rivals as rivals
from innergrad import figures
from innergrad.diffusion import SHAPES, GaussianMixture
from innergrad.diffusion.process import sigma
from innergrad.figures import BLUE, DARK, GREY, ORANGE, SMALL
from innergrad.lab.learners.sample_learner import SampleLearner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N, TIME, REACH, ARROWS = 64, 0.1, 3.0, 19
SEED = 3  # of the prompt
PLACES = 2000  # of P_t, where errors in the titles are measured


def draw(learner: SampleLearner, path: Path, mixture: GaussianMixture | None = None) -> None:
    """Eight Gaussians on a circle, which no training has seen: a prompt of N samples."""
    mixture = SHAPES["eight-gaussians"]() if mixture is None else mixture
    samples = mixture.sample(N, seed=SEED)
    steps = torch.linspace(-REACH, REACH, ARROWS, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    density = rivals.by_density(samples[None])

    def by_density(x: Tensor) -> Tensor:
        return density(x[None], torch.full((1, len(x)), TIME, dtype=x.dtype))[0] / sigma(TIME)

    learned = learner.score(samples)
    fields: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
        "exact": (lambda x: mixture.score(x, TIME), DARK),
        "learner": (lambda x: learned(x, TIME), ORANGE),
        "kernel density": (by_density, BLUE),
    }
    places = mixture.diffused(PLACES, TIME)
    exact = mixture.score(places, TIME)
    with figures.new(1, 4, size=(14, 3.9)) as (figure, axes):
        axes[0].plot(*samples.T.tolist(), "o", color=DARK, ms=3.5)
        axes[0].set_title(f"prompt: {N} samples")
        for ax, (name, (score, colour)) in zip(axes[1:], fields.items(), strict=True):
            _arrows(ax, mixture, grid, score(grid), colour)
            error = float((score(places) - exact).square().sum().sqrt() / exact.square().sum().sqrt())
            ax.set_title(name if name == "exact" else f"{name}: error {error:.0%}")
        for ax in axes:
            ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", xticks=[], yticks=[])
        words = (
            f"The score at t = {TIME:g}, where the density is not tiny. Errors: root mean square over p_t, relative."
        )
        figure.text(0.5, 0.01, words, ha="center", color=GREY, fontsize=SMALL)
        figures.save(figure, path)
    print(f"wrote {path.name}")


def _arrows(ax: Axes, mixture: GaussianMixture, grid: Tensor, score: Tensor, colour: str) -> None:
    seen = mixture.log_density(grid, TIME) > -7.0
    arrows = 0.08 * score[seen]
    points = grid[seen]
    ax.quiver(
        *points.T.tolist(), *arrows.T.tolist(), color=colour, angles="xy", scale_units="xy", scale=1.0, width=0.004
    )
