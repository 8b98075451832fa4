"""``innergrad report``: what is in a folder, as one HTML file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from innergrad.cli.data import read_table
from innergrad.cli.show import warning_lines, working
from innergrad.errors import InputError
from innergrad.files import Writer, make_folder, write_whole
from innergrad.lab import checkpoints
from innergrad.lab.journal import CONFIG as RUN_CONFIG
from innergrad.lab.journal import LOG, MANIFEST
from innergrad.model.storage import CONFIG, WEIGHTS
from innergrad.report import Page, report_of_model, report_of_run
from innergrad.transformer import load


def write_report(
    folder: Path,
    out: Path,
    data: Path | None,
    targets: str | None,
    shifts: list[str],
    prompts: int,
    device: str | None,
    *,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    model = (folder / CONFIG).is_file()
    if not model and not (folder / LOG).is_file():
        allowed = "a folder written by innergrad compile, or by innergrad train"
        raise InputError(f"there is neither a model nor a run in {folder}", allowed=allowed)
    if model and shifts:
        raise InputError(
            "--set shifts the task of a run", got=f"{folder}, a compiled model", hint="give a run's folder"
        )
    if not model and (data is not None or targets is not None):
        raise InputError("--data is for compiled models", got=f"{folder}, a run", hint="give a compiled model's folder")
    own = [CONFIG, WEIGHTS] if model else [RUN_CONFIG, MANIFEST, LOG]
    reads = [*(folder / name for name in own), *([] if data is None else [data])]
    writer = Writer("report", (*reads, *([] if model else checkpoints.every(folder))), force)
    writer.check(out, stream=True)
    with warning_lines(quiet), working("measuring", quiet or as_json):
        page = _of_model(folder, data, targets, seed) if model else _of_run(folder, shifts, prompts, seed, device)
    make_folder(out.parent)
    write_whole(out, page.html(writer.comment))
    if as_json:
        print(json.dumps({"report": str(out), "lead": page.lead, **page.found}))
    elif not quiet:
        Console(file=sys.stdout).print(f"{page.lead}\nwrote {out}", markup=False, highlight=False, soft_wrap=True)


def _of_model(folder: Path, data: Path | None, targets: str | None, seed: int) -> Page:
    tf = load(folder)
    if data is None:
        return report_of_model(tf, folder.name, seed=seed)
    table = read_table(data, targets, tf)
    given = {"X": table.X, "y": table.y, "X_query": table.X_query}
    return report_of_model(tf, folder.name, **given, source=data.name, seed=seed)


def _of_run(folder: Path, shifts: list[str], prompts: int, seed: int, device: str | None) -> Page:
    return report_of_run(folder, shifts=shifts, n_prompts=prompts, seed=seed, device=device)
