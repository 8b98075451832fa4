"""``innergrad figures``: the experiments of the papers, each one command."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innergrad.cli import flags, names
from innergrad.cli.flags import FOLDER, Force
from innergrad.cli.lab import Device, Json, Quiet
from innergrad.errors import InputError, JobError, one_of
from innergrad.files import read_text

if TYPE_CHECKING:
    from innergrad.papers.frame import Figure

STORED = (Path("out/figures"), Path("results/figures"))  # your own results first, then those of the checkout
NOT_RUN = "not run"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(figures)


def figures(
    name: Annotated[
        str | None, typer.Argument(help="A figure. Without a name, the list of all, with the verdicts that are stored.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller learners and networks: minutes on a CPU.")] = False,
    seconds: Annotated[
        float | None, flags.amount("--seconds", "Training is shortened so that everything ends within these.")
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option("--stages", help="Run only these. none: draw the records that are there.", metavar="STAGE,..."),
    ] = None,
    out: Annotated[
        Path | None, flags.path("--out", "Folder; default out/figures, or out/figures-quick.", FOLDER)
    ] = None,
    device: Device = None,
    force: Force = False,
    seed: Annotated[int, flags.seed("The first seed of the learners; the others follow.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of a paper, draw it, and say whether it reproduces.

    Records stay in the folder: the same command goes on with an experiment that was stopped. NAME.json has the curves,
    the verdict with its reason, and the cost; NAME.png and NAME.svg have the picture.
    """
    if name is not None:
        one_of("unknown figure", name, names.FIGURES)
    from innergrad.papers.catalogue import FIGURES

    if name is None:
        given = {"--quick": quick, "--seconds": seconds is not None, "--stages": stages is not None, "--force": force}
        if any(given.values()):
            got = ", ".join(flag for flag, here in given.items() if here)
            raise InputError("these are settings of one figure", got=got, hint="name it: innergrad figures NAME ...")
        _print_list(list(FIGURES.values()), (out,) if out else STORED, as_json)
        return
    limit = math.inf if seconds is None else seconds
    chosen = None if stages is None else [] if stages == "none" else stages.split(",")
    found = _run(FIGURES[name], "quick" if quick else "full", limit, chosen, out, device, force, seed, quiet)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print(f"{found['verdict']}{f' ({caveat})' if (caveat := found['caveat']) else ''}: {found['reason']}")
        print(f"wrote {name}.json, {name}.png and {name}.svg into {found['folder']}")


def _run(
    figure: Figure,
    size: str,
    seconds: float,
    stages: list[str] | None,
    out: Path | None,
    device: str | None,
    force: bool,
    seed: int,
    quiet: bool,
) -> dict[str, Any]:
    """The result of a figure, after the stages it needs."""
    from innergrad.lab.devices import pick_device
    from innergrad.papers.frame import Clock, Run

    study = figure.study.from_seed(seed)
    folder = out or Path("out") / ("figures" if size == "full" else f"figures-{size}")
    say = (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))
    run = Run(study, size, folder, str(pick_device(device)), Clock(seconds), say)
    done = study.run(run, stages or figure.stages) if stages != [] else True
    found = figure.finish(run, force=force) | {"folder": str(folder)}
    if not done and found["verdict"] == "open":
        raise JobError(f"there was no time for all of {figure.name}: {found['reason']} The same command goes on.")
    return found


def _print_list(found: list[Figure], folders: Sequence[Path], as_json: bool) -> None:
    rows = [
        {
            "name": one.name,
            "paper": one.paper,
            "number": one.number,
            "study": one.study.name,
            "title": one.title,
            "verdict": _stored(one.name, folders),
        }
        for one in found
    ]
    if as_json:
        print(json.dumps(rows))
        return
    name, verdict = (max(len(row[key] or NOT_RUN) for row in rows) for key in ("name", "verdict"))
    for row in rows:
        print(f"{row['name']:<{name}}  {row['verdict'] or NOT_RUN:<{verdict}}  {row['title']}")


def _stored(name: str, folders: Sequence[Path]) -> str | None:
    """The verdict of the first of these folders that has one: its word, and under which reservation."""
    from innergrad.papers.frame import SAID

    for folder in folders:
        try:
            found = json.loads(read_text(folder / f"{name}.json"))
            return f"{SAID[found['verdict']]}{f' ({caveat})' if (caveat := found['caveat']) else ''}"
        except (OSError, ValueError, KeyError, TypeError):  # not there, or of another form
            continue
    return None
