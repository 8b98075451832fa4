"""``innergrad demo diffusion``: scores that a transformer learns in one forward pass, and the samples they give."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import Tensor

from innergrad.diffusion.compiled import ScoreLearner
from innergrad.diffusion.pictures import a_transformer, draw_film, draw_line, draw_plane
from innergrad.diffusion.process import sigma
from innergrad.diffusion.shapes import SHAPES
from innergrad.diffusion.study import CONTEXT, DIRECT, EXACT, Sampling, Study, study
from innergrad.diffusion.targets import ScoreTask
from innergrad.files import Writer, make_folder

LINE, PLANE, FILM, NUMBERS = "line.png", "plane.png", "diffusion.gif", "diffusion.json"
IN_THE_PLANE = ("eight-gaussians", "moons", "spiral")
SAMPLES, FRAMES = 2000, 30


def early(t: Tensor) -> Tensor:
    """The weight gamma of times in the loss, with which an example counts 1 / sigma_t: early times give samples their
    shape.
    """
    return sigma(t) ** 3 * (2.0 * t).exp() / t


def line_learner(target: str = "llama") -> ScoreLearner:
    """For one dimension."""
    return ScoreLearner(d=1, task=ScoreTask(gamma=early), hidden=(24, 24), n_examples=512, lr=0.05, target=target)


def plane_learner(target: str = "llama") -> ScoreLearner:
    """For two."""
    return ScoreLearner(d=2, task=ScoreTask(gamma=early), target=target)


def run_diffusion(out: Path, target: str, *, verbose: bool, force: bool, seed: int, as_json: bool, quiet: bool) -> None:
    writer, started = Writer("demo", force=force), time.perf_counter()
    for name in (NUMBERS, LINE, PLANE, FILM):
        writer.check(out / name)
    make_folder(out)
    console = Console(quiet=quiet or as_json)
    with console.status("learning scores inside forward passes ..."):
        on_line = learned("two-bumps", line_learner(target), Sampling(SAMPLES), seed)
        learner = plane_learner(target)
        in_plane = [learned(name, learner, Sampling(SAMPLES, moments=FRAMES), seed) for name in IN_THE_PLANE]
    records = [one.record() for one in (on_line, *in_plane)]
    with console.status("drawing ..."):
        draw_line(on_line, out / LINE, writer.mark)
        draw_plane(in_plane, out / PLANE, writer.mark)
        draw_film(in_plane, out / FILM, writer.mark)
    result = {"sentence": sentence(records[1]), "seconds": time.perf_counter() - started, "studies": records}
    writer.json(out / NUMBERS, result)
    if as_json:
        print(json.dumps(result))
        return
    if verbose and not quiet:
        _print_table(console, records)
    console.print(result["sentence"], markup=False, highlight=False, soft_wrap=True)
    hint = "" if verbose else "; --verbose shows the distances"
    console.print(f"wrote {out / PLANE}, {LINE}, {FILM} and {NUMBERS}{hint}", style="dim", soft_wrap=True)


def learned(name: str, learner: ScoreLearner, how: Sampling, seed: int) -> Study:
    """The study of a distribution that ships, with true scores in the prompt."""
    mixture = SHAPES.find(name)()
    return study(name, mixture, learner, learner.task.from_mixture(mixture, learner.n_examples, seed), how, seed)


def sentence(record: dict[str, Any]) -> str:
    """What was learned, how good the samples are, and how near it is to direct training."""
    share, who = record["on_the_scale"]["sliced Wasserstein-1"][CONTEXT], a_transformer(record["target"])
    return (
        f"From {record['examples']:,} examples in its prompt {who} learned, in one forward pass, the score of "
        f"{record['name'].replace('-', ' ')}: its samples are {max(0.0, share):.0%} of the way from those of the exact "
        f"score to noise, and its score equals that of direct training to {record['score_difference']:.0e}."
    )


def _print_table(console: Console, records: list[dict[str, Any]]) -> None:
    table = Table(title="Distances of samples to the data", title_justify="left")
    for column in ("data", "distance", EXACT, DIRECT, CONTEXT, "noise", "in context, 0 to 1"):
        table.add_column(column, justify="left" if column in ("data", "distance") else "right")
    for record in records:
        for what, found in record["distances"].items():
            cells = [f"{found[name]:.3f}" for name in (EXACT, DIRECT, CONTEXT, "noise")]
            table.add_row(record["name"], what, *cells, f"{record['on_the_scale'][what][CONTEXT]:.3f}")
    console.print(table)
