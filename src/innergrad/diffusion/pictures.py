"""Pictures of studies: a distribution on the line, several in the plane, and a film of samples that appear."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from innergrad import figures
from innergrad.diffusion.measures import Scale
from innergrad.diffusion.study import CONTEXT, DIRECT, EXACT, Study
from innergrad.figures import BLUE, DARK, GREENS, GREY, LARGE, ORANGE, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {EXACT: GREY, DIRECT: BLUE, CONTEXT: ORANGE}
MOMENTS = (0.05, 0.3, 1.0)  # times of the curves on the line
FIELD = 0.1  # the time of the arrows in the plane
REACH, HOLD = 3.0, 10  # of the panels in the plane; frames that the end of the film stays


def draw_line(one: Study, path: Path, mark: str | None = None) -> None:
    """Density, scores, loss, and samples of a distribution on the line."""
    with figures.new(1, 4, size=(17, 4.6)) as (figure, axes):
        x = torch.linspace(-2.6, 2.6, 261, dtype=torch.float64).view(-1, 1)
        line = x[:, 0].tolist()
        _draw_density(axes[0], one, x)
        for t, colour in zip(MOMENTS, GREENS, strict=True):
            axes[1].plot(line, one.mixture.score(x, t)[:, 0].tolist(), color=colour, lw=4, alpha=0.55)
            axes[1].plot(line, one.trained(x, t)[:, 0].tolist(), color=BLUE, lw=1.2)
            axes[1].plot(line[::8], one.learned(x, t)[::8, 0].tolist(), "o", color=ORANGE, ms=3.2)
            axes[1].plot([], [], color=colour, lw=4, alpha=0.55, label=f"exact, t = {t:g}")
        axes[1].plot([], [], color=BLUE, lw=1.2, label=DIRECT)
        axes[1].plot([], [], "o", color=ORANGE, ms=3.2, label=CONTEXT)
        axes[1].set(title="The score, learned from the prompt", xlabel="x", ylim=(-9, 13))
        axes[1].legend(loc="upper right", ncols=2)
        _draw_loss(axes[2], one)
        _draw_histograms(axes[3], one)
        figure.suptitle(_title(one))
        figures.save(figure, path, mark=mark)


def _title(one: Study) -> str:
    learner = one.learned.learner
    who = a_transformer(learner.target)
    return (
        f"{who[0].upper()}{who[1:]} learns a score from {len(one.examples)} examples in its prompt: "
        f"{one.learned.steps:,} steps of gradient descent on a {learner.network.depth}-layer "
        f"{_named(learner.activation)} network, in one forward pass"
    )


def a_transformer(target: str) -> str:
    """In words."""
    return {"llama": "a Llama", "relu": "a transformer of ReLUs"}.get(target, "a transformer")


def _named(activation: str) -> str:
    return {"relu": "ReLU"}.get(activation, activation)


def _draw_density(ax: Axes, one: Study, x: torch.Tensor) -> None:
    line = x[:, 0].tolist()
    ax.plot(line, one.mixture.log_density(x).exp().tolist(), color=DARK, lw=2, label="data, t = 0")
    for t, colour in zip(MOMENTS, GREENS, strict=True):
        ax.plot(line, one.mixture.log_density(x, t).exp().tolist(), color=colour, lw=2, label=f"t = {t:g}")
    ax.set(title="Data dissolve into noise: density", xlabel="x", ylim=(0, None))
    ax.legend(loc="upper left")


def _draw_loss(ax: Axes, one: Study) -> None:
    learned = one.learned
    ax.plot(learned.recorded, learned.losses, "o-", color=ORANGE, ms=4, label=CONTEXT)
    ax.plot([learned.steps], [one.trained.loss], "x", color=BLUE, ms=9, mew=2, label=DIRECT)
    ax.set(title="The loss on the prompt", xlabel="step of gradient descent", yscale="log")
    plateau = learned.learner.plateau
    words = (
        f"in {plateau.window} steps it falls\nby less than {plateau.fall:.0%}" if learned.at_rest else "not at rest yet"
    )
    ax.text(0.97, 0.72, words, transform=ax.transAxes, ha="right", color=DARK, fontsize=SMALL)
    ax.set_xticks(learned.recorded[::2])
    ax.legend(loc="upper right")


def _draw_histograms(ax: Axes, one: Study) -> None:
    edges = torch.linspace(-2.2, 2.2, 45).tolist()
    x = torch.linspace(-2.2, 2.2, 221, dtype=torch.float64).view(-1, 1)
    ax.plot(x[:, 0].tolist(), one.mixture.log_density(x).exp().tolist(), color=DARK, lw=1.5, label="data")
    for name, style in ((EXACT, "--"), (DIRECT, "-"), (CONTEXT, "-")):
        values = one.samples[name].x[:, 0].tolist()
        how: dict[str, Any] = {"histtype": "stepfilled", "alpha": 0.45} if name == CONTEXT else {"histtype": "step"}
        ax.hist(values, bins=edges, density=True, color=COLOURS[name], ls=style, lw=1.5, label=name, **how)
    ax.set(title=f"{one.sampling.n:,} samples each, from noise", xlabel="x")
    ax.legend(loc="upper left")


def draw_plane(studies: Sequence[Study], path: Path, mark: str | None = None) -> None:
    """A row for each distribution: prompt, field of scores, and samples by the three scores."""
    rows = len(studies)
    with figures.new(rows, 5, size=(14, 2.9 * rows + 0.6)) as (figure, axes):
        for row, one in enumerate(studies):
            panels = axes[5 * row : 5 * row + 5]
            _draw_prompt(panels[0], one)
            _draw_field(panels[1], one)
            found = one.distances["sliced Wasserstein-1"]
            scale = Scale(found[EXACT], found["noise"])
            for ax, name in zip(panels[2:], (EXACT, DIRECT, CONTEXT), strict=True):
                x = one.samples[name].x
                ax.scatter(x[:, 0].tolist(), x[:, 1].tolist(), s=2, color=COLOURS[name], lw=0)
                _frame(ax, f"Samples: {name}")
                ax.text(0.03, 0.03, _placed(scale(found[name])), transform=ax.transAxes, fontsize=SMALL, color=DARK)
        learner = studies[0].learned.learner
        figure.suptitle(
            f"Scores learned in one forward pass: gradient descent on a {learner.network.depth}-layer "
            f"{_named(learner.activation)} network of {learner.network.n_weights:,} weights, "
            f"inside {a_transformer(learner.target)}"
        )
        figures.save(figure, path, mark=mark)


def _placed(share: float) -> str:
    return f"{max(0.0, share):.0%} of the way to noise"


def _frame(ax: Axes, title: str) -> None:
    ax.set(title=title, xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal")
    ax.set_xticks([-2, 0, 2])
    ax.set_yticks([-2, 0, 2])


def _draw_prompt(ax: Axes, one: Study) -> None:
    x, t = one.examples.x, one.examples.t
    order = t.argsort(descending=True)
    points, colours = x[order], t[order].log().tolist()
    ax.scatter(points[:, 0].tolist(), points[:, 1].tolist(), c=colours, s=5, lw=0, cmap="viridis_r")
    _frame(ax, f"Prompt: {len(x):,} points")
    ax.text(0.03, 0.03, "dark: much noise", transform=ax.transAxes, fontsize=SMALL, color=DARK)


def _draw_field(ax: Axes, one: Study) -> None:
    ticks = torch.linspace(-2.6, 2.6, 15, dtype=torch.float64)
    x = torch.cartesian_prod(ticks, ticks)
    places = x[:, 0].tolist(), x[:, 1].tolist()
    for name, width in ((EXACT, 0.011), (CONTEXT, 0.0045)):
        field = one.scores[name](x, FIELD)
        field = field / (1.0 + field.norm(dim=-1, keepdim=True) / 4.0)
        arrows = field[:, 0].tolist(), field[:, 1].tolist()
        ax.quiver(*places, *arrows, color=COLOURS[name], angles="xy", scale_units="xy", scale=12.0, width=width)
    _frame(ax, f"Score at t = {FIELD:g}")
    ax.text(0.03, 0.03, "grey: exact", transform=ax.transAxes, fontsize=SMALL, color=DARK)


def draw_film(studies: Sequence[Study], path: Path, mark: str | None = None) -> None:
    """The samples of the scores that were learned in context, from noise to data, as a GIF."""
    paths = [one.samples[CONTEXT] for one in studies]
    with figures.new(1, len(studies), size=(3.1 * len(studies), 3.6)) as (figure, axes):
        figure.suptitle("Noise becomes data, by scores learned in one forward pass", fontsize=LARGE - 1)
        dots = []
        for ax, one, samples in zip(axes, studies, paths, strict=True):
            start = samples.path[0]
            dots.append(ax.plot(start[:, 0].tolist(), start[:, 1].tolist(), "o", color=ORANGE, ms=1.4, mew=0)[0])
            _frame(ax, one.name.replace("-", " "))
            ax.set_xticks([], [])
            ax.set_yticks([], [])
        note = axes[0].text(0.04, 0.04, "", transform=axes[0].transAxes, fontsize=SMALL, color=DARK)

        def frames() -> Iterator[None]:
            moments = list(range(len(paths[0].times)))
            for moment in [*moments, *[moments[-1]] * HOLD]:
                for line, samples in zip(dots, paths, strict=True):
                    points = samples.path[moment]
                    line.set_data(points[:, 0].tolist(), points[:, 1].tolist())
                t = paths[0].times[moment]
                note.set_text(f"t = {t:.2f}" if t >= 0.095 or math.isclose(t, 0.0) else f"t = {t:.3f}")
                yield

        figures.animate(figure, frames(), path, dots=84, per_second=10, mark=mark)
