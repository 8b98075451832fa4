"""``innergrad report``: what is in a folder, as one HTML file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from innergrad.cli import lab
from innergrad.cli.data import Examples, read_examples
from innergrad.cli.models import Known, known
from innergrad.cli.names import FIT, FIT_FILES, RUN_CONFIG, RUN_LOG
from innergrad.cli.places import near_path
from innergrad.cli.words import in_flags, speaking_of_flags
from innergrad.errors import InputError
from innergrad.files import Writer, make_folder, write_whole
from innergrad.model.folder import CONFIG, WEIGHTS

if TYPE_CHECKING:
    from innergrad.report import Page

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Asked:
    """data, targets, scale: of a model; shifts, imports, prompts, device: of a run."""

    data: Path | None = None
    targets: str | None = None
    scale: bool = False
    shifts: Sequence[str] = ()
    imports: Sequence[str] | None = None
    prompts: int = 1024
    device: str | None = None


def write_report(folder: Path, out: Path, asked: Asked, *, force: bool, seed: int, as_json: bool, quiet: bool) -> None:
    if (folder / FIT).is_file():
        _write_report_of_fit(folder, out, asked, force=force, as_json=as_json, quiet=quiet)
        return
    model = (folder / CONFIG).is_file()
    if not model and not (folder / RUN_LOG).is_file():
        allowed = "a folder written by innergrad compile, innergrad train or innergrad fit"
        raise InputError(f"there is neither a model nor a run in {folder}", allowed=allowed, hint=near_path(folder))
    if model and asked.shifts:
        got = f"{folder}, a compiled model"
        raise InputError("--set shifts the task of a run", got=got, hint="give a run's folder")
    about_data = asked.data is not None or asked.targets is not None or asked.scale
    if not model and about_data:
        got = f"{folder}, a run"
        raise InputError("--data is for compiled models", got=got, hint="give a compiled model's folder")
    if model and about_data and asked.data is None:
        raise InputError(
            "--target-columns and --scale are about the rows of --data", got="no --data", hint="give --data"
        )
    own = [CONFIG, WEIGHTS] if model else [RUN_CONFIG, MANIFEST, RUN_LOG]
    reads = [*(folder / name for name in own), *([] if asked.data is None else [asked.data])]
    writer = Writer("report", (*reads, *([] if model else checkpoints_of(folder))), force)
    writer.check(out, stream=True)
    table, found = None, known(folder) if model else None
    if found is not None and asked.data is not None:
        table = read_examples(asked.data, asked.targets, found, scale=asked.scale)
    lab.import_files(asked.imports)
    from innergrad.cli.show import warning_lines, working

    with warning_lines(quiet), working("measuring", quiet or as_json), speaking_of_flags("run"):
        page = _of_model(found, table, seed) if found is not None else _of_run(folder, asked, seed)
    make_folder(out.parent)
    write_whole(out, page.html(writer.comment))
    _tell(page, out, as_json, quiet)


def _write_report_of_fit(folder: Path, out: Path, asked: Asked, *, force: bool, as_json: bool, quiet: bool) -> None:
    """Of a table that `innergrad fit` learned from: all that the page says is in its folder."""
    if asked.data is not None or asked.targets is not None or asked.scale or asked.shifts or asked.imports:
        what = "--data, --target-columns, --scale, --set and --import are not for a fitted table"
        raise InputError(what, got=f"{folder}, written by innergrad fit", hint="leave them out")
    writer = Writer("report", tuple(folder / name for name in FIT_FILES), force)
    writer.check(out, stream=True)
    from innergrad.report import report_of_fit

    page = report_of_fit(folder)
    make_folder(out.parent)
    write_whole(out, page.html(writer.comment))
    _tell(page, out, as_json, quiet)


def _tell(page: Page, out: Path, as_json: bool, quiet: bool) -> None:
    if not quiet:
        for warning in page.found.get("warnings", ()):
            print(f"innergrad: warning: {in_flags(warning, 'run')}", file=sys.stderr)
    if as_json:
        print(json.dumps({"report": str(out), "lead": page.lead, **page.found}))
    elif not quiet:
        Console(file=sys.stdout).print(f"{page.lead}\nwrote {out}", markup=False, highlight=False, soft_wrap=True)


def checkpoints_of(folder: Path) -> list[Path]:
    """Files of a run that are read, and so never written to."""
    from innergrad.lab import checkpoints

    return list(checkpoints.every(folder))


def _of_model(model: Known, table: Examples | None, seed: int) -> Page:
    from innergrad.report import report_of_model
    from innergrad.transformer import load

    tf, name = load(model.folder), model.folder.name
    if table is None:
        return report_of_model(tf, name, seed=seed)
    given = {"X": table.X, "y": table.y, "X_query": table.X_query}
    unscaled = table.unscaled(model.classes)
    source = table.rows[0].path.name + (", scaled by its own mean and deviation" if table.scales is not None else "")
    columns, notes = (table.inputs, table.targets), [unscaled] if unscaled else []
    units = table.in_units if table.scales is not None else None
    return report_of_model(tf, name, **given, source=source, columns=columns, notes=notes, units=units, seed=seed)


def _of_run(folder: Path, asked: Asked, seed: int) -> Page:
    from innergrad.report import report_of_run

    return report_of_run(folder, shifts=asked.shifts, n_prompts=asked.prompts, seed=seed, device=asked.device)
