"""``innergrad fit``: learn from a CSV as a spreadsheet writes it, in one forward pass; score, predict, keep, report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innergrad.cli import flags, names
from innergrad.cli.commands import require_folder
from innergrad.cli.flags import FOLDER, LIST, Force
from innergrad.cli.lab import Json, Quiet
from innergrad.cli.names import FIT_FILES, PREDICTION_FILES
from innergrad.cli.places import near_path, require_there
from innergrad.errors import InputError, require_packages
from innergrad.files import Writer, digest, digests, write_whole
from innergrad.tables.new_rows import NewRows, read_new, without_target
from innergrad.tables.table import ROWS, Asked, read_table

if TYPE_CHECKING:
    from innergrad.tables.fitted import Fitted, Predictions
    from innergrad.written import Task

DEFAULT_OUT = Path("out/fit")
REPORT = "report.html"
COLUMN = "COLUMN"
EXTRA = "pip install 'innergrad[demo]'"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(fit)


@dataclass(frozen=True)
class Wanted:
    """What is to be done with a table. learner: a run of one's own. interval: the share of targets that low and high
    have between them.
    """

    predict: Path | None
    report: bool
    engine: str
    learner: Path | None
    interval: float


def fit(
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="CSV file: a line of names, then a row for every case.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar=COLUMN, help="The column to predict. Rows where it is filled teach."),
    ] = None,
    predict: Annotated[
        Path | None,
        flags.path("--predict", "CSV with new rows; default: the rows of DATA whose target is empty."),
    ] = None,
    model: Annotated[
        Path | None,
        flags.path(
            "--model", "Instead of DATA: a folder of an earlier fit, which predicts the rows of --predict.", FOLDER
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Also report.html, with pictures; it needs no network.")
    ] = False,
    engine: Annotated[
        str,
        flags.chosen(
            "--engine",
            "engine",
            names.ENGINES,
            "pretrained: a transformer trained to learn tables; or a compiled one: gd (a network by gradient descent), "
            "ridge, kernel.",
        ),
    ] = names.ENGINES[0],
    learner: Annotated[
        Path | None,
        flags.path(
            "--learner", "Of engine pretrained: a learner of tables of your own, trained by innergrad train.", FOLDER
        ),
    ] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="The target is a class, though it looks like a number.")
    ] = False,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="The target is an amount, though it looks like a class.")
    ] = False,
    drop: Annotated[
        str | None, typer.Option("--drop", metavar=LIST, help="Columns to leave out, comma-separated.")
    ] = None,
    interval: Annotated[
        float, flags.amount("--interval", "The share of true values that low and high should have between them.")
    ] = 0.8,
    rows: Annotated[int, flags.count("--rows", "The most rows that teach; of more, a random sample.", 5)] = ROWS,
    out: Annotated[
        Path | None,
        flags.path("--out", "Folder for the fitted model, predictions.csv, report.html; default: out/fit.", FOLDER),
    ] = None,
    force: Force = False,
    seed: Annotated[int, flags.seed("Seed of folds and samples.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a column of a CSV from the others, say how well, and predict new rows with intervals.

    The file may be as a spreadsheet writes it: commas or semicolons, decimal commas, dates, text, empty cells. What was
    done with every column is said. The score is by 5-fold cross-validation, beside other methods.

    innergrad fit houses.csv --target price --predict new.csv --report
    """
    if not 0.0 < interval < 1.0:
        raise InputError("--interval is a share", got=interval, allowed="between 0 and 1, e.g. 0.8", hint="80% is 0.8")
    if classes and numbers:
        raise InputError("the target is of one kind", got="--classes and --numbers", allowed="one of them, or none")
    wanted = Wanted(predict, report, engine, learner, interval)
    if model is not None:
        asked = {"DATA": data, "--target": target, "--drop": drop, "--report": report or None, "--learner": learner}
        _use(model, wanted, [name for name, value in asked.items() if value is not None], out, force, as_json, quiet)
        return
    if data is None:
        hint = "innergrad fit houses.csv --target price"
        raise InputError("the CSV file is missing", got="no file", hint=hint)
    task: Task | None = "classes" if classes else "numbers" if numbers else None
    dropped = tuple(name.strip() for name in drop.split(",")) if drop else ()
    _fit(data, Asked(target, task, dropped, rows, seed), wanted, out or DEFAULT_OUT, force, as_json, quiet)


def _fit(data: Path, asked: Asked, wanted: Wanted, out: Path, force: bool, as_json: bool, quiet: bool) -> None:
    for path in filter(None, (data, wanted.predict)):
        require_there(path, "", "name a CSV file")
    writer = _writer(out, [data, wanted.predict], force, FIT_FILES)
    table = read_table(data, asked)
    new = (
        None
        if wanted.predict is None
        else read_new(wanted.predict, table.plans, table.target, table.task, table.classes)
    )
    asks = new is not None or bool(table.queries)
    if asks:
        writer.check_all(out, [*PREDICTION_FILES[1:]], PREDICTION_FILES[0])
    if wanted.report:
        writer.check(out / REPORT)
    require_packages("innergrad fit", "sklearn", *["matplotlib", "jinja2"] * wanted.report, hint=EXTRA)
    from innergrad.cli.fit_words import print_files, print_fit, print_predictions, print_table, progress_bar
    from innergrad.cli.show import working
    from innergrad.tables.fitted import Fitted, keep
    from innergrad.tables.models import Engine
    from innergrad.tables.scoring import validate

    engine = Engine.with_learner(table.task, wanted.engine, asked.seed, wanted.learner)
    if not (quiet or as_json):
        print_table(table)
    with progress_bar(quiet or as_json) as progress:
        validation = validate(table, engine, seed=asked.seed, progress=progress)
    model = Fitted.of(table, engine)
    found = keep(writer, out, model, table, validation)
    removed = _remove_earlier(writer, out, [*PREDICTION_FILES * (not asks), *[REPORT] * (not wanted.report)])
    predictions, told = None, dict[str, Any]()
    with working("predicting and drawing", quiet or as_json):
        if asks:
            asked_for = new or without_target(table)
            predictions, told = _predicted(writer, out, out, model, asked_for, wanted.interval, found["matters"])
        if wanted.report:
            from innergrad.report import report_of_fit

            write_whole(out / REPORT, report_of_fit(out).html(writer.comment))
    if as_json:
        each = {} if predictions is None else {"predictions": {**told, "values": predictions.to_json(asked_for)}}
        print(json.dumps({"out": str(out), **found, **each}))
    elif not quiet:
        print_fit(found, table.task, table.notes)
        if predictions is not None:
            print_predictions(predictions, told)
        print_files(out, [*FIT_FILES, *PREDICTION_FILES * asks, *[REPORT] * wanted.report], removed)


def _remove_earlier(writer: Writer, out: Path, names: Sequence[str]) -> list[str]:
    """Removes what an earlier fit left in the folder and this one does not write: it would look like this one's. Files
    that ``innergrad fit`` did not write, or that were changed since, stay.
    """
    index, removed = out / PREDICTION_FILES[0], list[str]()
    known = digests(index) if index.is_file() else {}
    for name in reversed(names):  # the file that knows the others goes last
        try:
            writer.check(out / name, known)
        except InputError:
            continue
        if (out / name).is_file():
            (out / name).unlink()
            removed.insert(0, name)
    return removed


def _use(
    folder: Path, wanted: Wanted, besides: list[str], out: Path | None, force: bool, as_json: bool, quiet: bool
) -> None:
    """Predict by an earlier fit."""
    if besides:
        got = f"also {', '.join(besides)}"
        raise InputError("--model is a fit that is done", got=got, hint="leave out one of them")
    if wanted.predict is None:
        raise InputError("the rows to predict are missing", got="no --predict", hint="give --predict new.csv")
    if not folder.is_dir():
        hint = near_path(folder) or "innergrad fit writes one"
        raise InputError(f"cannot read {folder}", got="no such folder", hint=hint)
    require_there(wanted.predict, "", "name a CSV file")
    place = out or folder
    reads = [wanted.predict, *(folder / name for name in FIT_FILES)]
    writer = _writer(place, reads, force, PREDICTION_FILES)
    require_packages("innergrad fit", "sklearn", hint=EXTRA)
    from innergrad.cli.fit_words import print_files, print_predictions
    from innergrad.cli.show import working
    from innergrad.tables.fitted import load

    model, known = load(folder)
    new = read_new(wanted.predict, model.plans, model.target, model.task, model.classes)
    with working("predicting", quiet or as_json):
        predictions, told = _predicted(writer, folder, place, model, new, wanted.interval, known["matters"])
    if as_json:
        print(json.dumps({"out": str(place), "predictions": {**told, "values": predictions.to_json(new)}}))
    elif not quiet:
        print_predictions(predictions, told)
        print_files(place, PREDICTION_FILES)


def _writer(out: Path, reads: Sequence[Path | None], force: bool, files: Sequence[str]) -> Writer:
    """Who writes the files, the first of which knows the others; an error, before any work, if one must not be
    written.
    """
    writer = Writer("fit", tuple(path for path in reads if path is not None), force)
    require_folder(out)
    writer.check_all(out, [*files[1:]], files[0])
    return writer


def _predicted(
    writer: Writer,
    model_folder: Path,
    out: Path,
    model: Fitted,
    new: NewRows,
    interval: float,
    matters: Sequence[Mapping[str, Any]],
) -> tuple[Predictions, dict[str, Any]]:
    """predictions.csv, and what is known of them."""
    from innergrad.tables import unusual
    from innergrad.tables.fitted import FIRST

    predictions = model.predict(new.columns, new.places, interval)
    told: dict[str, Any] = {
        "model": str(model_folder),
        "fit": digest(model_folder / FIT_FILES[0]),
        "of": new.sheet.path.name,
        "rows": len(predictions),
    }
    told |= {"lines": [new.sheet.lines[row] for row in new.places[:FIRST]]}
    told |= {"columns": predictions.header, "separator": new.sheet.separator}
    told |= {"interval": interval} if predictions.ends is not None else {}
    notes = [*new.notes, *unusual.notes(model, new, matters), *unusual.beyond(model, predictions, new)]
    told |= {"notes": notes} if notes else {}
    if score := predictions.score(new):
        told |= {"score": {**score, "taught": unusual.taught(model, new)}}
    with writer.several(out, PREDICTION_FILES[0], told) as part:
        predictions.write(part(PREDICTION_FILES[1]), new)
    return predictions, told
