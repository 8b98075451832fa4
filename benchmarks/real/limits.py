"""What limits the gain on tables of numbers? Groups of tables by size, a blend of baselines, baselines with all rows.

The groups were formed when the results were known. The blend and the rows beyond 1,000 are evidence of what others can
reach; no model of ours was changed by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import blend, models, summary
from .scores import Row
from .tables import TRAIN, Table

MOST = (250, 1250)  # rows of the tables of a group; four fifths of 1,250 are learned from, and none is cut away
RIVALS = ("process", "linear", "forest")  # those that aims were set for
AIMS = {"process": 0.035, "linear": 0.065, "forest": 0.07}  # gains in R^2
ALL = ("linear", "boosting", "forest")  # baselines that learn from all rows in minutes
EVERY = 5000  # training rows of `all-rows`: no table has more
BEST = "best"  # the best of the six baselines of each table, chosen when all scores are known
MEASURES = ("regression", "regression by fold")  # R^2 of all rows together, the mean of the folds' R^2


def groups(rows: Sequence[Row], tables: Sequence[Table], ours: Sequence[str]) -> dict[str, Row]:
    """Summaries of the tables of numbers of at most so many rows, by both measures."""
    found = dict[str, Row]()
    for name in MEASURES:
        scores = summary.of_tables(rows, by_fold=name != MEASURES[0])
        for most in MOST:
            keys = summary.keys_of([table for table in tables if table.rows <= most], "regression")
            found[f"{name}, at most {most} rows"] = summary.group(scores, keys, ours)
    return found


def blended(rows: Sequence[Row], others: Sequence[Row]) -> Row:
    """Gains over baselines, of the learner, of the blend, and of the best baseline, on tables that the blend has.

    ``rows`` are those of the blend, ``others`` those of the baselines and of the estimator. ``off`` is the largest
    relative difference between the squares of a part of the blend and those that its baseline has stored.
    """
    keys = sorted(summary.of_tables(rows))
    lines = list[Row]()
    for name in MEASURES:
        scores = summary.of_tables([*rows, *others], by_fold=name != MEASURES[0])
        table = {
            model: np.array([scores[key][model]["score"] for key in keys])
            for model in ("innergrad", blend.NAME, *models.MODELS)
        }
        table[BEST] = np.max([table[model] for model in models.MODELS], axis=0)
        pairs = [(one, other) for one in ("innergrad", blend.NAME, BEST) for other in RIVALS]
        pairs += [("innergrad", blend.NAME), ("innergrad", BEST)]
        lines += [{"measure": name, **summary.gain(table, *pair)} for pair in pairs]
    stored = {(row["source"], row["table"], row["fold"], row["model"]): row for row in others}
    off = [
        abs(row[f"{part} squares"] / stored[row["source"], row["table"], row["fold"], part]["squares"] - 1.0)
        for row in rows
        for part in blend.PARTS
    ]
    return {"tables": len(keys), "off": float(f"{max(off):.2g}"), "same": float(np.mean(np.array(off) < 1e-3))} | {
        "gains": lines
    }


def floors(rows: Sequence[Row], stored: Mapping[str, Any], keys: Sequence[tuple[str, str]]) -> Row:
    """The least error that is known of the large tables, 1 - R^2, as a mean of each table's best.

    ``rows``: baselines that learned from all rows; ``stored``: results/real_tables.json. ``thousand``: the six
    baselines with 1,000 rows. ``all``: these, and three with all rows. ``learner``: these, and the learner alone with
    1,000 rows.
    """
    scores = summary.of_tables(rows)
    lines = {(row["source"], row["table"]): row for row in stored["by_table"]}
    tables = list[Row]()
    for key in keys:
        line: Row = {"table": key[1], "source": key[0], "rows": lines[key]["rows"]}
        line["thousand"] = max(lines[key][model] for model in models.MODELS)
        line |= {f"{model}, all rows": float(f"{cell['score']:.5g}") for model, cell in scores[key].items()}
        line["all"] = max(value for name, value in line.items() if name == "thousand" or name.endswith("all rows"))
        line["learner"] = max(line["all"], lines[key]["learner"])
        tables.append(line)
    means = {name: 1.0 - float(np.mean([line[name] for line in tables])) for name in ("thousand", "all", "learner")}
    return {name: float(f"{value:.5g}") for name, value in means.items()} | {"by_table": tables}


def large(tables: Sequence[Table]) -> list[Table]:
    """Tables of numbers whose folds have 1,000 rows to learn from."""
    return [table for table in tables if table.task == "regression" and len(table.split(0, EVERY)[0]) >= TRAIN]
