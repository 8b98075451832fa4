"""A sweep as a picture: how the losses of its models fell, and where they ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.errors import InputError
from innergrad.figures import DARK
from innergrad.lab.journal import read_log
from innergrad.lab.pictures import LEARNERS, numbers, scale_of
from innergrad.lab.sweeps import read_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_sweep(folder: str | Path, path: str | Path | None = None, *, force: bool = False) -> Figure:
    """A sweep: the losses of its models by step, and their last losses by setting, a dot for each seed.

    Args:
        folder: of the sweep.
        path: save it there, as a PNG.
        force: replace a file that no plot wrote.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=4, batch=4, log_every=2)
        >>> base = lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short)
        >>> _ = lab.sweep(lab.grid(base, ["seed=0,1", "train.optimiser.lr=1e-2,1e-3"]), "sweep", stack=True)
        >>> figure = lab.plot_sweep("sweep", "sweep.png")
    """
    return drawn_sweep(folder, None if path is None else lambda made: figures.save_plot(made, path, force=force))


def drawn_sweep(folder: str | Path, save: Callable[[Figure], object] | None) -> Figure:
    """See ``plot_sweep``."""
    rows = [row for row in read_sweep(folder) if row["loss"] is not None]
    if not rows:
        raise InputError(f"there are no losses of a sweep in {folder}", hint="innergrad sweep trains one")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        changes = [change for change in row["changes"] if not change.startswith("seed=")]
        groups.setdefault(" ".join(changes) or "all seeds", []).append(row)
    with figures.new(1, 2, size=(12.4, 4.6)) as (figure, (left, right)):
        lines: list[Sequence[float | None]] = []
        for number, (name, group) in enumerate(groups.items()):
            colour = LEARNERS[number % len(LEARNERS)]
            for place, row in enumerate(group):
                steps, losses = _losses(Path(folder) / Path(row["run"]).name, row["model"])
                left.plot(steps, numbers(losses), color=colour, lw=1.4, alpha=0.8, label=None if place else name)
                lines.append(losses)
            ends = [row["loss"] for row in group]
            right.plot(ends, [number] * len(ends), "o", color=colour, ms=7, alpha=0.7, mew=0)
            right.plot([sum(ends) / len(ends)], [number], "|", color=DARK, ms=16, mew=2)
        left.set(title="Loss of training", xlabel="step", ylabel="loss", yscale=scale_of(lines))
        left.legend(fontsize=figures.SMALL)
        right.set_yticks(range(len(groups)), [name.replace(" ", "\n") for name in groups])
        right.set_ylim(len(groups) - 0.5, -0.5)
        right.set(title="Last loss; a dot is a seed, a bar the mean", xlabel="loss")
        right.set_xscale(scale_of([[row["loss"] for row in rows]]))
        if save is not None:
            save(figure)
    return figure


def _losses(run: Path, model: int) -> tuple[list[int], list[float | None]]:
    rows = read_log(run)
    return [row["step"] for row in rows], [row["loss"][model] for row in rows]
