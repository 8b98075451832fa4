"""The tables of docs/reproduction.md: every figure of a paper, judged by the records in results/figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import reproduction_lessons
from innergrad.papers import functional_gradient, parameters, views
from innergrad.papers.catalogue import FIGURES
from innergrad.papers.frame import SAID, Figure, fewest_seeds
from innergrad.papers.mixtures import window
from innergrad.papers.views import BEST, LEARNER, LOSS, POOLED, WITHIN

FOLDER = Path(__file__).parent.parent / "results" / "figures"
SMALL = FOLDER / "small"
VERDICTS = "src/innergrad/cli/verdicts.json"  # what the command line knows of them
HOLDS = {True: "yes", False: "no", None: "open"}
READINGS = {"over all prompts": POOLED, "within a prompt": WITHIN}  # what R^2 is a share of: the variance of labels


def place(figure: Figure) -> Path | None:
    """Where its files are: of full sizes, or else of small ones; None if it was not run."""
    return next((one for one in (FOLDER, SMALL) if (one / f"{figure.name}.json").is_file()), None)


def stored(figure: Figure) -> dict[str, Any] | None:
    """What ``innergrad figures`` wrote; None if it was not run."""
    folder = place(figure)
    return json.loads((folder / f"{figure.name}.json").read_text()) if folder else None


def verdicts() -> str:
    """All verdicts, as a file of the package."""
    found = {name: one for name, figure in FIGURES.items() if (one := stored(figure))}
    kept = ("verdict", "caveat", "reason")
    words = {name: {key: one[key] for key in kept} | {"cost": cost(one)} for name, one in found.items()}
    return json.dumps(words, indent=1) + "\n"


def trained(found: dict[str, Any]) -> str:
    """How learners were trained: steps, and seeds of the curve that has the fewest."""
    steps = sorted({one["steps"] for one in found["training"].values()})
    seeds = fewest_seeds(found["rows"], len(found["sizes"]["seeds"]))
    told = " or ".join(f"{number:,}" for number in steps)
    return f"Learners: {told} steps of training, {seeds} seed{'s' * (seeds != 1)}."


def cost(found: dict[str, Any]) -> str:
    """Seconds of the stages that ran, by device."""
    spent: dict[str, float] = {}
    for one in found["cost"].values():
        if one["seconds"] is not None:
            spent[one["device"]] = spent.get(one["device"], 0.0) + one["seconds"]
    return ", ".join(f"{seconds / 60:.1f} min, {device}" for device, seconds in spent.items()) or "not recorded"


def command(figure: Figure) -> str:
    """The one that runs it at the sizes of the table."""
    size = (stored(figure) or {}).get("size", "full")
    return f"`innergrad figures {figure.name}{f' --{size}' if size != 'full' else ''}`"


def first_upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def verdict(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not run yet"
    return SAID[found["verdict"]] + (f" ({found['caveat']})" if found["caveat"] else "")


def summary() -> list[str]:
    """One row a figure."""
    lines = ["| figure | the paper's claims that hold | verdict | command | cost |", "|---|---|---|---|---|"]
    for paper in dict.fromkeys(figure.paper for figure in FIGURES.values()):
        lines.append(f"| ***{paper}*** | | | | |")
        for figure in (one for one in FIGURES.values() if one.paper == paper):
            found = stored(figure)
            name = f"[{figure.number}](#{figure.name})" if found else figure.number
            cells = [f"{name}: {subject(figure)}", tally(found), verdict(found), command(figure)]
            lines.append(f"| {' | '.join(cells)} | {cost(found) if found else ''} |")
    return lines


def tally(found: dict[str, Any] | None) -> str:
    """4 of 5: claims of the paper that hold, of those that can be tested."""
    tested = [one["holds"] for one in (found or {"findings": []})["findings"] if counts(one)]
    return f"{sum(holds is True for holds in tested)} of {len(tested)}" if tested else ""


def counts(finding: dict[str, Any]) -> bool:
    return not any(finding[name] for name in ("question", "ours")) and bool(finding["testable"])


def subject(figure: Figure) -> str:
    """The title without the paper and the number, which stand beside it."""
    return figure.title.removeprefix(figure.paper).partition(": ")[2] or figure.title


def sections() -> list[str]:
    """A section a figure that was run: the picture, and finding by finding the paper's number and ours."""
    lines: list[str] = []
    for figure in FIGURES.values():
        found = stored(figure)
        if found is None:
            continue
        lines += ["", f"### {figure.name}", "", f"*{figure.paper}*, {figure.number}. {subject(figure)}.", ""]
        lines += [f"**{first_upper(verdict(found))}.** {first_upper(found['reason'])}", ""]
        if found["training"]:
            lines += [trained(found), ""]
        folder = place(figure)
        if folder and (picture := folder / f"{figure.name}.png").is_file():
            lines += [f"![{figure.title}](../results/figures/{picture.relative_to(FOLDER)})", ""]
        lines += claims(found)
        if folder == FOLDER and (SMALL / f"{figure.name}.json").is_file():
            lines += smaller(figure)
    return lines[1:]


def claims(found: dict[str, Any]) -> list[str]:
    """Finding by finding, the paper's number and ours."""
    lines = ["| the paper says | its number | ours | holds |", "|---|---|---|---|"]
    for one in found["findings"]:
        ours = one["words"].replace("|", "\\|")
        claim, number = ("*ours:* ", "") if one["ours"] else ("", one["paper"] or "none given")
        lines.append(f"| {claim}{one['claim']} | {number} | {ours} | {held(one)} |")
    return lines


def smaller(figure: Figure) -> list[str]:
    """The same figure with smaller learners, if there is one."""
    found = json.loads((SMALL / f"{figure.name}.json").read_text())
    sizes, seeds = found["sizes"], fewest_seeds(found["rows"], len(found["sizes"]["seeds"]))
    what = f"{seeds} learners of {sizes['blocks']} blocks of {sizes['d_model']}, {sizes['d']} inputs, "
    what += f"{sizes['n_points'] - 1} pairs; intervals over seeds"
    lines = ["", f"**With small learners** ({what}; `innergrad figures {figure.name} --small`, {cost(found)}):", ""]
    if (picture := SMALL / f"{figure.name}.png").is_file():
        lines += [f"![{figure.title}, small learners](../results/figures/{picture.relative_to(FOLDER)})", ""]
    return lines + claims(found)


def held(finding: dict[str, Any]) -> str:
    if finding["question"]:
        return f"a question; our answer: {HOLDS[finding['holds']]}"
    word = "not resolved" if finding["unclear"] else HOLDS[finding["holds"]]
    return word if finding["testable"] else "cannot be tested"


# ------------------------------------------------------------------------------------ which R^2 Fig. 3 and 4 can show


def readings() -> list[str]:
    """Learners beside networks trained on the prompt, by what R^2 can mean, attention and weights; and what fits."""
    figure = FIGURES["parameters-softmax"]
    sizes = figure.study.sizes["full"]
    means = (0.0, *sizes.weight_means)
    head = " | ".join(f"weights N({mean:g}, 1)" for mean in means)
    lines = [f"| variance | labels | attention | {head} |", "|---" * (3 + len(means)) + "|"]
    fits: dict[str, bool] = {}
    for variance, measure in READINGS.items():
        for labels in parameters.LABELS:
            for attention in ("relu", "softmax"):
                found = stored(FIGURES[f"parameters-{attention}"])
                assert found is not None
                cells = [reading(found["rows"], sizes, mean, labels, measure) for mean in means]
                lines.append(f"| {variance} | {labels} | {attention} | {' | '.join(words for words, _ in cells)} |")
                name = f"{labels} labels, variance {variance}"
                fits[name] = fits.get(name, True) and all(fit is not False for _, fit in cells)
    fitting = [name for name, fit in fits.items() if fit]
    words = f"Wherever R² is defined, learners match in {len(fitting)} of {len(fits)} readings: {'; '.join(fitting)}."
    return [*lines, "", words]


def reading(rows: list[Any], sizes: Any, mean: float, labels: str, measure: str) -> tuple[str, bool | None]:
    """R^2 of the learner and of networks at the longest prompt of training; whether the first match at all lengths."""
    mine, theirs = (views.pick(rows, by, parameters.about(mean, labels)) for by in (LEARNER, BEST))
    assert mine is not None
    assert theirs is not None
    ks = views.shared(mine, theirs, *window(sizes))
    if any(views.at(row, measure, k) is None for row in (mine, theirs) for k in ks):
        return "not defined", None
    lost = views.behind(mine, theirs, measure, ks)
    both = " and ".join(views.said(views.spread(row, measure, ks[-1])) for row in (mine, theirs))
    return f"{both}: {f'behind by more than {LOSS:g}' if lost else 'match'}", not lost


# ---------------------------------------------------------------------------------------- trainings of Cheng et al.


def batches() -> list[str]:
    """Steps, and prompts in a step, of every stored training of a study."""
    head = ["figures", "steps", "prompts in a step", "steps on the same prompts", "prompts in all"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    studies: dict[str, list[Figure]] = {}
    for figure in FIGURES.values():
        if figure.paper == functional_gradient.PAPER:
            studies.setdefault(figure.study.name, []).append(figure)
    for group in studies.values():
        sizes = group[0].study.sizes["full"]
        names = ", ".join(f"`{figure.name}`" for figure in group)
        parts = {": A = 0": sizes.steps, ": A is free": sizes.free_steps} if sizes.free_steps else {"": sizes.steps}
        if sizes.slow_from <= max(sizes.layers):
            parts[f": {sizes.slow_from} layers"] = 2 * sizes.steps
        for about, steps in parts.items():
            every, batch = sizes.data_every, sizes.batch
            cells = [f"{names}{about}", f"{steps:,}", f"{batch:,}", f"{every}", f"{-(-steps // every) * batch:,}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


TABLES = {
    "reproduction": summary,
    "reproduction_sections": sections,
    "reproduction_readings": readings,
    "reproduction_batches": batches,
    **reproduction_lessons.TABLES,
}
