"""How should a learner of tables get categories: as they come, by the mean labels of their rows, or a column for each?

    python benchmarks/table_categories.py [--tables 300]      stores results/table_categories.json (an hour of one core)

Tables come from the prior, with columns of numbers and of categories only. All ways see the same rows. The score is
R^2, clipped at -1, or minus the log-loss. The learners are those of the zoo, or of ``--weights``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch

from _results import read, store
from innergrad import InContextClassifier, InContextRegressor, lab
from innergrad.estimators.engines import contexts
from innergrad.estimators.engines.base import Table

SEED, KNOWN, ASKED, COLUMNS = 79, 200, 64, 12
WAYS: dict[str, tuple[bool, bool, int]] = {  # the first member has them by labels; the second, a column each; members
    "as they come, then in another order": (False, False, 2),
    "by labels": (True, False, 1),
    "by labels, then in another order": (True, False, 2),
    "by labels, then a column for each category": (True, True, 2),
}
PLAIN = next(iter(WAYS))


@contextmanager
def shown(by_labels: bool, apart: bool) -> Iterator[None]:
    """How the first and the second prompt of an ensemble have categories."""

    def as_they_come(table: Table) -> tuple[Any, ...]:
        return tuple(np.arange(count) if count else None for count in table.levels)

    usual = contexts.by_labels, contexts.APART
    contexts.by_labels = usual[0] if by_labels else as_they_come
    contexts.APART = usual[1] if apart else range(0)
    try:
        yield
    finally:
        contexts.by_labels, contexts.APART = usual


def tables(task: Any, number: int) -> Iterator[tuple[Any, Any]]:
    """Frames and labels of tables that have a column of categories."""
    x, y, _ = task.sample(lab.CounterRNG.of(SEED), torch.arange(number), n=KNOWN + ASKED)
    for cells, labels in zip(x.double().numpy(), y.double().numpy(), strict=True):
        cells = cells[:, ~np.isnan(cells).all(0)]
        frame = pd.DataFrame(cells)
        whole = np.flatnonzero(((cells == cells.round()) | np.isnan(cells)).all(0))
        for column in whole:
            texts = [None if np.isnan(cell) else f"{cell:.0f}" for cell in cells[:, column]]
            frame[column] = pd.Categorical(texts)
        if len(whole) and len(np.unique(labels[:KNOWN])) > 1 and len(np.unique(labels[KNOWN:])) > 1:
            yield frame, labels


def score(model: Any, frame: Any, labels: Any) -> float:
    known, asked = frame[:KNOWN], frame[KNOWN:]
    if isinstance(model, InContextRegressor):
        errors = model.fit(known, labels[:KNOWN]).predict(asked) - labels[KNOWN:]
        return float(max(-1.0, 1.0 - np.square(errors).mean() / labels[KNOWN:].var()))
    model.fit(known, labels[:KNOWN].astype(int))
    chances = np.full((ASKED, 1 + int(labels.max())), 1e-6)
    chances[:, model.classes_] = model.predict_proba(asked)
    return float(np.log(chances[np.arange(ASKED), labels[KNOWN:].astype(int)].clip(1e-6)).mean())


def measured(numbers: bool, learner: Any, count: int) -> dict[str, Any]:
    columns = (lab.tables.NumberColumn(1.0), lab.tables.CategoryColumn(1.0))
    task = (lab.TableRegression if numbers else lab.TableClassification)(d=COLUMNS, columns=columns, derived_share=0.0)
    make = InContextRegressor if numbers else InContextClassifier
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for frame, labels in tables(task, count):
        for way, (by_labels, apart, members) in WAYS.items():
            with shown(by_labels, apart):
                found[way].append(score(make(learner=learner, n_estimators=members), frame, labels))
    lines = {}
    for way, values in found.items():
        gains = np.array(values) - np.array(found[PLAIN])
        wide = float(gains.std(ddof=1) / len(gains) ** 0.5)
        lines[way] = {"mean": float(np.mean(values)), "gain": float(gains.mean()), "standard_error": wide}
        print(f"{'numbers' if numbers else 'classes'}, {way}: {lines[way]}", flush=True)
    return {"tables": len(gains), "ways": lines}


def table() -> list[str]:
    lines = ["| categories in each prompt | R² | gain | minus the log-loss | gain |", "|---|---|---|---|---|"]
    found = read("table_categories")
    for way in WAYS:
        cells = [
            f"{one['mean']:.3f} | " + ("" if way == PLAIN else f"{one['gain']:+.4f} ± {one['standard_error']:.4f}")
            for one in (found[name]["ways"][way] for name in ("numbers", "classes"))
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    count = " and ".join(str(found[name]["tables"]) for name in ("numbers", "classes"))
    return [*lines, "", f"{count} tables, {found['known']} rows known; ± is a standard error."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--weights", nargs=2, default=["tables-regression", "tables-classification"])
    given = parser.parse_args()
    loaded = [
        lab.load_pretrained(name)[0] if name.startswith("tables-") else lab.load_learner(name)[0]
        for name in given.weights
    ]
    found = {
        name: measured(name == "numbers", learner, given.tables)
        for name, learner in zip(("numbers", "classes"), loaded, strict=True)
    }
    store("table_categories", "python benchmarks/table_categories.py", {"known": KNOWN, "seed": SEED} | found)


if __name__ == "__main__":
    main()
