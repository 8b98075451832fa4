"""The report of a run of the lab: how its loss fell, and how good it has become, beside baselines and under shifts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from innergrad import figures
from innergrad.errors import plural
from innergrad.lab.evaluation import MEASURES, MODEL, Evaluation, evaluate_run
from innergrad.lab.journal import Row, read_log, read_manifest
from innergrad.lab.pictures import draw_curves, draw_log
from innergrad.report.page import Page, Picture, Section, Table, number

SIZE = (5.4, 4.0)


def report_of_run(
    run: Path,
    *,
    shifts: Sequence[str] = (),
    n_prompts: int = 1024,
    seed: int = 0,
    device: str | None = "cpu",
    progress: Callable[[str], None] = lambda what: None,
) -> Page:
    """The page. shifts: changes of the task, e.g. "task.inputs.mean=2", each measured by itself."""
    rows, made = read_log(run), read_manifest(run)
    how: dict[str, Any] = {"n_prompts": n_prompts, "seed": seed, "device": device, "progress": progress}
    plain = evaluate_run(run, **how)
    shifted = [evaluate_run(run, shifts=[shift], **how) for shift in shifts]
    sections = [_training(rows), _evaluation("Evaluation, on the task it was trained on", plain)]
    sections += [_evaluation(f"Evaluation, shifted: {' '.join(one.shifts)}", one) for one in shifted]
    found = {"run": str(run), "step": plain.step, "evaluation": plain.to_json()}
    found |= {"shifted": [one.to_json() for one in shifted]} if shifted else {}
    title = f"{run.name}: a learner trained on the task {plain.task['kind']}"
    return Page(title, _lead(plain), sections, json.dumps(made, indent=1), found)


def _lead(plain: Evaluation) -> str:
    k = plain.n_points - 1
    errors = {name: found[MEASURES[0]].at(k)[0] for name, found in plain.curves.items()}
    own = errors.pop(MODEL)
    beside = ", ".join(f"{name} {number(error)}" for name, error in errors.items())
    steps, examples = plural(plain.step, "step"), plural(k, "example")
    what = f"After {steps} of training, and {examples} in its prompt, the learner's squared error is "
    return f"{what}{number(own)} of the mean square of a label" + (f" ({beside})." if beside else ".")


def _training(rows: Sequence[Row]) -> Section:
    with figures.new(size=SIZE) as (figure, (ax,)):
        draw_log(ax, rows)
        svg = figures.as_svg(figure)
    return Section("Training", [], [Picture(svg, "The loss of training, by step.")])


def _evaluation(title: str, one: Evaluation) -> Section:
    words = [
        f"{plural(one.n_prompts, 'prompt')} of {one.n_points} points, seed {one.seed}. A point is predicted from the "
        "examples before it; shaded: 95 % intervals over prompts.",
        *one.remarks(),
    ]
    pictures = []
    for measure in MEASURES[:2]:
        with figures.new(size=SIZE) as (figure, (ax,)):
            shown = {name: found[measure] for name, found in one.curves.items()}
            draw_curves(ax, shown, measure, MODEL, measure[0].upper() + measure[1:])
            pictures.append(Picture(figures.as_svg(figure), f"{measure[0].upper()}{measure[1:]}, by prompt length."))
    return Section(
        title,
        words,
        pictures,
        [Table(measure, one.table(measure), shown=measure == MEASURES[0]) for measure in MEASURES],
    )
