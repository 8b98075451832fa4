"""More classes than the learner has: groups of classes, each class against the rest, and a forest.

    python benchmarks/table_many_classes.py            stores results/table_many_classes.json (half an hour)
    python benchmarks/table_many_classes.py --tables 2 --keep no

Tables come from the prior of classes, with up to ``--classes``; those with more than ten are taken. The number of
groupings was chosen here. *One by one* is scikit-learn's OneVsRestClassifier around the same estimator.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch

from _results import device_name, read, store
from innergrad import InContextClassifier, lab
from innergrad.estimators.engines import groupings, pretrained

ROWS, ASKED, COLUMNS, SEED = 300, 100, 8, 7
COUNTS = (2, 4, groupings.GROUPINGS, 16)
ONE_BY_ONE, FOREST = "one by one", "random forest"
WAYS = (ONE_BY_ONE, *(f"{count} groupings" for count in COUNTS), FOREST)
LEAST = 1e-6  # a chance counts as this at least


def make(way: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.multiclass import OneVsRestClassifier

    if way == FOREST:
        return RandomForestClassifier(300, random_state=0)
    one = InContextClassifier(n_estimators=1)
    return OneVsRestClassifier(one) if way == ONE_BY_ONE else one


def answered(way: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and their chances in the rows that are asked for."""
    given: Callable[..., np.ndarray] = groupings.groupings
    if way not in (ONE_BY_ONE, FOREST):
        count = int(way.split()[0])

        def given(classes: int, groups: int, seed: int) -> np.ndarray:
            return groupings.groupings(classes, groups, seed, count)

    with mock.patch("innergrad.estimators.engines.pretrained.groupings", given):
        model = make(way).fit(x[:ROWS], y[:ROWS])
        return model.classes_, model.predict_proba(x[ROWS:])


def measured(way: str, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    began = time.perf_counter()
    classes, chances = answered(way, x, y)
    seconds = time.perf_counter() - began
    known = np.isin(y[ROWS:], classes)
    place, chances = np.searchsorted(classes, y[ROWS:][known]), chances[known]
    loss = -np.log(chances[np.arange(len(place)), place].clip(LEAST)).mean()
    auc = np.mean([roc_auc_score(place == label, chances[:, label]) for label in np.unique(place)])
    right = (chances.argmax(1) == place).mean()
    return {"loss": float(loss), "auc": float(auc), "right": float(right), "seconds": seconds}


def tables(count: int, classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    task, number = lab.TableClassification(d=COLUMNS, classes=classes, two=0.0), 0
    while count:
        prompt = task.sample(lab.CounterRNG.of(SEED), torch.tensor([number]), ROWS + ASKED)
        x, y = prompt.x[0].double().numpy(), prompt.y[0].numpy().astype(int)
        number += 1
        if len(np.unique(y[:ROWS])) > pretrained.MOST_CLASSES:
            count -= 1
            yield x[:, ~np.isnan(x).all(0)], y


def summary(found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    rows = []
    for way, each in found.items():
        row: dict[str, Any] = {"way": way}
        for name in each[0]:
            values = np.array([one[name] for one in each])
            apart = values - np.array([one[name] for one in found[ONE_BY_ONE]])
            row[name] = round(float(values.mean()), 4)
            row[f"{name}_apart"] = round(float(apart.mean()), 4)
            row[f"{name}_half"] = round(1.96 * float(apart.std(ddof=1)) / math.sqrt(len(apart)), 4)
        rows.append(row)
    return rows


def table() -> list[str]:
    """For docs/reference/estimators.md."""
    data = read("table_many_classes")
    lines = ["| how | log-loss | against one by one | AUC | right | seconds |", "|---|---|---|---|---|---|"]
    for row in data["rows"]:
        apart = "" if row["way"] == ONE_BY_ONE else f"{row['loss_apart']:+.3f} ± {row['loss_half']:.3f}"
        way = f"**{row['way']}**" if row["way"] == f"{groupings.GROUPINGS} groupings" else row["way"]
        lines.append(
            f"| {way} | {row['loss']:.3f} | {apart} | {row['auc']:.3f} | {row['right']:.0%} | {row['seconds']:.1f} |"
        )
    about = (
        f"{data['tables']} tables of the prior with 11 to {data['most']} classes (mean {data['mean']:.0f}), {ROWS} rows"
    )
    return [*lines, "", f"{about} known, {ASKED} asked for. ± is a 95 % interval. One core of an {data['device']}."]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--classes", type=int, default=30, help="at most")
    parser.add_argument("--keep", choices=("yes", "no"), default="yes", help="whether to store the result")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    numbers = []
    for x, y in tables(given.tables, given.classes):
        numbers.append(len(np.unique(y[:ROWS])))
        for way in WAYS:
            found[way].append(measured(way, x, y))
        print(numbers[-1], {way: round(each[-1]["loss"], 3) for way, each in found.items()}, flush=True)
    about = {"device": device_name("cpu"), "tables": len(numbers), "most": max(numbers)}
    about["mean"] = float(np.mean(numbers))
    command = f"python benchmarks/table_many_classes.py --tables {given.tables} --classes {given.classes}"
    if given.keep == "yes":
        store("table_many_classes", command, about | {"rows": summary(found)})


if __name__ == "__main__":
    main()
