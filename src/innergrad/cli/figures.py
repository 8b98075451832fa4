"""``innergrad figures``: the experiments of the papers, each one command."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Container
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

OWN = Path("out/figures")
PUBLISHED = Path(__file__).with_name("verdicts.json")  # those of docs/reproduction.md, written by benchmarks/tables.py
NOT_RUN = "not run"
TIMES = {"quick": "minutes", "small": "an hour or two"}  # on a CPU
NOTHING = {"verdict": None, "caveat": None, "reason": None}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(figures)


def figures(
    name: Annotated[
        str | None, typer.Argument(help="A figure. Without a name, the list of all, with the verdicts that are stored.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller learners and networks: minutes on a CPU.")] = False,
    small: Annotated[
        bool, typer.Option("--small", help="Sizes between both: about an hour on a CPU. Some figures have them.")
    ] = False,
    seconds: Annotated[
        float | None, flags.amount("--seconds", "Training is shortened so that everything ends within these.")
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option("--stages", help="Run only these. none: draw the records that are there.", metavar="STAGE,..."),
    ] = None,
    out: Annotated[
        Path | None, flags.path("--out", "Folder; default out/figures, out/figures-quick or out/figures-small.", FOLDER)
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
        given = {
            "--quick": quick,
            "--small": small,
            "--seconds": seconds is not None,
            "--stages": stages is not None,
            "--force": force,
        }
        if any(given.values()):
            got = ", ".join(flag for flag, here in given.items() if here)
            raise InputError("these are settings of one figure", got=got, hint="name it: innergrad figures NAME ...")
        _print_list(list(FIGURES.values()), out, as_json)
        return
    figure, size = FIGURES[name], _size(quick=quick, small=small)
    if size not in figure.study.sizes:
        allowed = ", ".join(one.name for one in FIGURES.values() if size in one.study.sizes)
        raise InputError(f"{name} has no {size} sizes", got=f"--{size}", allowed=allowed, hint="or take --quick")
    limit = math.inf if seconds is None else seconds
    chosen = None if stages is None else [] if stages == "none" else stages.split(",")
    found = _run(figure, size, limit, chosen, out, device, force, seed, quiet)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print(". ".join(text[:1].upper() + text[1:] for text in (worded(found), found["reason"])))
        if size != "full" and (whole := published(name)):
            print(f"A small version is no evidence. docs/reproduction.md has the larger one: {worded(whole)}.")
        print(f"wrote {name}.json, {name}.png and {name}.svg into {found['folder']}")


def _size(*, quick: bool, small: bool) -> str:
    if quick and small:
        raise InputError("these are two sizes", got="--quick --small", allowed="one of them")
    return "quick" if quick else "small" if small else "full"


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
    if size == "full" and run.device == "cpu" and stages != []:
        run.say(_long(figure, study.sizes))
    done = study.run(run, stages or figure.stages) if stages != [] else True
    found = figure.finish(run, force=force) | {"folder": str(folder)}
    if not done and found["verdict"] == "open":
        raise JobError(f"there was no time for all of {figure.name}: {found['reason']} The same command goes on.")
    return found


def _long(figure: Figure, sizes: Container[str]) -> str:
    """What to expect of a full experiment on a CPU."""
    cost = (published(figure.name) or {}).get("cost")
    others = " or ".join(f"--{size} ({time})" for size, time in TIMES.items() if size in sizes)
    told = f" The stored one took {cost}." if cost else ""
    return f"{figure.name}: the full experiment, on a CPU.{told} Shorter: {others}. If stopped, it goes on later."


def _print_list(found: list[Figure], folder: Path | None, as_json: bool) -> None:
    """Every figure with its verdict: that of ``folder``; or your own, or else the one of docs/reproduction.md."""
    rows = [
        {
            "name": one.name,
            "paper": one.paper,
            "number": one.number,
            "study": one.study.name,
            "title": one.title,
            **(stored(one.name, folder or OWN) or (None if folder else _known(one.name)) or NOTHING),
        }
        for one in found
    ]
    if as_json:
        print(json.dumps(rows))
        return
    told = [worded(row) if row["verdict"] else NOT_RUN for row in rows]
    name, verdict = max(len(row["name"]) for row in rows), max(map(len, told))
    for row, words in zip(rows, told, strict=True):
        print(f"{row['name']:<{name}}  {words:<{verdict}}  {row['title']}")


def _known(name: str) -> dict[str, Any] | None:
    found = published(name)
    return found and {key: found[key] for key in NOTHING}


def worded(found: dict[str, Any]) -> str:
    """The verdict in words, and under which reservation."""
    from innergrad.papers.frame import SAID

    return f"{SAID[found['verdict']]}{f' ({caveat})' if (caveat := found['caveat']) else ''}"


def stored(name: str, folder: Path) -> dict[str, Any] | None:
    """The verdict that a folder has, the reservation, and the reason; None if it is not there, or of another form."""
    from innergrad.papers.frame import SAID

    try:
        found = json.loads(read_text(folder / f"{name}.json"))
        known = {"verdict": found["verdict"], "caveat": found["caveat"], "reason": found.get("reason")}
        return known if known["verdict"] in SAID else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def published(name: str) -> dict[str, Any] | None:
    """The verdict of docs/reproduction.md, which comes with the package; None if the figure was not run."""
    found: dict[str, Any] | None = json.loads(read_text(PUBLISHED)).get(name)
    return found
