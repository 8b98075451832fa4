"""What the prior of tables draws: a picture of its parts, and how well known methods do on its tables.

    python benchmarks/table_prior.py          writes docs/table_prior.png and results/table_prior.json (three minutes)
    python benchmarks/table_prior.py --draw   only the picture

The scores are those of scikit-learn's methods on fresh tables of 240 rows: 160 to learn from, 80 to predict. They are
there to see whether tables are neither too easy nor too hard, and whether no method has them all. Nothing here looks at
a real table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from _results import read, store
from innergrad import figures
from innergrad.lab import CounterRNG, TableClassification, TableRegression, tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = Path(__file__).parent.parent / "docs" / "table_prior.png"
ROWS, LEARNED, TABLES_DRAWN = 240, 160, 200
SORTS = {
    "rows": "how rows come about",
    "columns": "kinds of columns",
    "derived": "columns made of other columns",
    "functions": "functions behind the labels",
    "noises": "noise",
    "labels": "sorts of numbers",
    "rules": "ways to make classes",
}
Scores = dict[str, list[float]]


# --------------------------------------------------------------------------------------------------------------- scores


def filled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The columns that are there, with means in their gaps."""
    x = x[:, ~np.isnan(x[:LEARNED]).all(0)]
    return np.where(np.isnan(x), np.nanmean(x[:LEARNED], 0), x)


def regression(count: int) -> Scores:
    """R^2 on the rows that were not learned from, at least -1, of each method and table."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel() * RBF(3.0, (0.1, 1e3)) + WhiteKernel(0.3, (1e-5, 10.0))
    methods = {
        "ridge": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))),
        "random forest": RandomForestRegressor(60, random_state=0),
        "Gaussian process": make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel)),
    }
    xs, ys, _ = TableRegression().sample(CounterRNG.of(0, "scores"), torch.arange(count), ROWS)
    found: Scores = {name: [] for name in methods}
    for x, y in zip(xs.numpy(), ys.numpy(), strict=True):
        x, y = filled(x), (y - y[:LEARNED].mean()) / (y[:LEARNED].std() + 1e-9)
        for name, method in methods.items():
            wrong = method.fit(x[:LEARNED], y[:LEARNED]).predict(x[LEARNED:]) - y[LEARNED:]
            found[name].append(max(-1.0, 1.0 - float((wrong**2).mean() / (y[LEARNED:].var() + 1e-12))))
    return found


def classification(count: int) -> Scores:
    """Area under the ROC curve, one class against the rest, of each method and table with two classes on both sides."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    methods = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "random forest": RandomForestClassifier(60, random_state=0),
        "15 nearest": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
    }
    xs, ys, _ = TableClassification().sample(CounterRNG.of(0, "scores"), torch.arange(count), ROWS)
    found: Scores = {name: [] for name in methods}
    for x, y in zip(xs.numpy(), ys.numpy(), strict=True):
        common = [label for label in np.unique(y) if (y[:LEARNED] == label).any() and (y[LEARNED:] == label).any()]
        if len(common) < 2:
            continue
        x, here = filled(x), np.isin(y, common)
        old, new = here & (np.arange(ROWS) < LEARNED), here & (np.arange(ROWS) >= LEARNED)
        for name, method in methods.items():
            chances = method.fit(x[old], y[old]).predict_proba(x[new])
            given = chances[:, 1] if len(common) == 2 else chances
            found[name].append(float(roc_auc_score(y[new], given, multi_class="ovr")))
    return found


def seconds(task: tables.Tables) -> float:
    """Of a table of 320 rows, drawn 64 at a time on one thread."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        task.sample(CounterRNG.of(0), torch.arange(64), 320)
        times.append((time.perf_counter() - start) / 64)
    return min(times)


def measure(count: int) -> None:
    warnings.filterwarnings("ignore", module="sklearn")  # of kernels at a bound
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    torch.set_num_threads(1)
    data = {
        "tables": count,
        "regression": regression(count),
        "classification": classification(count),
        "seconds": {"regression": seconds(TableRegression()), "classification": seconds(TableClassification())},
    }
    store("table_prior", "python benchmarks/table_prior.py", data)


# --------------------------------------------------------------------------------------------------------------- tables


def scores_table() -> list[str]:
    """Mean, median and the ends of the scores, and how often a method is the best of the three."""
    data = read("table_prior")
    lines = [
        "| labels | method | mean | median | 10% to 90% of tables | best of the three |",
        "|---|---|---|---|---|---|",
    ]
    for task, score in (("regression", "numbers, R²"), ("classification", "classes, ROC AUC")):
        values = np.array(list(data[task].values()))
        best = values.argmax(0)
        for number, name in enumerate(data[task]):
            low, middle, high = np.quantile(values[number], [0.1, 0.5, 0.9])
            share = (best == number).mean()
            ends = f"{round(low, 2) + 0.0:.2f} to {round(high, 2) + 0.0:.2f}"  # never -0.00
            words = f"{values[number].mean():.2f} | {middle:.2f} | {ends} | {share:.0%}"
            lines.append(f"| {score} | {name} | {words} |")
    return lines


def speed_table() -> list[str]:
    rates = {name: 1.0 / seconds for name, seconds in read("table_prior")["seconds"].items()}
    numbers, classes = (f"{rates[name]:.0f}" for name in ("regression", "classification"))
    return [f"One core draws {numbers} tables of 320 rows a second, or {classes} with classes."]


def weights_table(task: tables.Tables, *sorts: str) -> list[str]:
    """Every part of a sort, how often it is taken, and what it is."""
    lines = ["| part | taken | what it is |", "|---|---|---|"]
    for sort in sorts:
        parts = getattr(task, sort)
        total = sum(part.weight for part in parts)
        for part in parts:
            words = (type(part).__doc__ or "").splitlines()[0]
            own = [f.name for f in fields(part) if f.name != "weight" and getattr(part, f.name) != f.default]
            name = type(part).__name__ + "".join(f"({key}={getattr(part, key)})" for key in own)
            lines.append(f"| `{name}` | {part.weight / total:.0%} | {words} |")
    return lines


def _weights(sort: str) -> Callable[[], list[str]]:
    task: tables.Tables = TableClassification() if sort == "rules" else TableRegression()
    return lambda: weights_table(task, sort)


TABLES: dict[str, Callable[[], list[str]]] = {
    "table_prior_scores": scores_table,
    "table_prior_speed": speed_table,
    **{f"table_prior_{sort}": _weights(sort) for sort in SORTS},
}


# -------------------------------------------------------------------------------------------------------------- picture


def draw() -> None:
    """Rows, columns and functions: one table a panel."""
    plain = TableRegression(
        d=2,
        columns=(tables.NumberColumn(),),
        derived_share=0.0,
        blend=0.0,
        units=0.0,
        missing=tables.Missing(0.0),
        labels=(tables.PlainLabel(),),
        noises=(tables.NormalNoise(),),
        strength=tables.Strength(nothing=0.0, power=0.05),
    )
    with figures.new(3, 6, size=(15, 8)) as (figure, axes):
        for ax, part in zip(axes[:6], plain.rows, strict=True):
            _pair(ax, replace(plain, d=5, rows=(part,)), f"rows: {part.kind}")
        kinds = [part for part in TableRegression().columns if part.kind != "number"]
        for ax, kind in zip(axes[6:12], (kinds[0], kinds[3], kinds[4], kinds[5], kinds[7], kinds[8]), strict=True):
            _column(ax, replace(plain, columns=(kind,)), f"column: {kind.kind}")
        shown = [part for part in plain.functions if part.kind not in ("node", "account")]
        for ax, function in zip(axes[12:], shown, strict=True):
            task = replace(plain, d=1, rows=(tables.IndependentRows(),), functions=(replace(function, quiet=0.0),))
            _function(ax, task, f"function: {function.kind}")
        for ax, words in zip(axes[::6], ("two columns", "rows", "label"), strict=True):
            ax.set_ylabel(words)
        for ax in axes:
            ax.tick_params(labelbottom=False, labelleft=False, length=0)
        figures.save(figure, PICTURE)
    print(f"wrote {PICTURE.name}")


def _pair(ax: Axes, task: tables.Tables, title: str) -> None:
    """The two columns that have most to do with one another, in a table where they have more than in most."""
    x, _, made = task.sample(CounterRNG.of(4, "picture"), torch.arange(150), 300)
    full = x[made["columns"] == task.d]
    related = torch.stack([torch.corrcoef(table.T).abs().fill_diagonal_(0.0).flatten() for table in full])
    strongest = related.amax(1)
    number = int(strongest.argsort()[int(0.8 * len(full))])
    first, second = divmod(int(related[number].argmax()), task.d)
    ax.scatter(full[number, :, first], full[number, :, second], s=5, color=figures.BLUE, alpha=0.6, lw=0)
    ax.set_title(title, loc="left")


def _function(ax: Axes, task: tables.Tables, title: str) -> None:
    """The label of a table by its only column."""
    x, y, _ = task.sample(CounterRNG.of(4, "picture"), torch.arange(1), 300)
    ax.scatter(x[0, :, 0], y[0], s=5, color=figures.GREEN, alpha=0.6, lw=0)
    ax.set_title(title, loc="left")


def _column(ax: Axes, task: tables.Tables, title: str) -> None:
    x = task.sample(CounterRNG.of(2, "picture"), torch.arange(1), 300).x[0, :, 0]
    values, counts = x.unique(return_counts=True)
    if len(values) < 30:
        ax.bar(values, counts, color=figures.ORANGE, width=0.6)
    else:
        ax.hist(x, bins=30, color=figures.ORANGE)
    ax.set_title(title, loc="left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="only the picture")
    parser.add_argument("--tables", type=int, default=TABLES_DRAWN, help="to score")
    args = parser.parse_args()
    draw()
    if not args.draw:
        measure(args.tables)


if __name__ == "__main__":
    main()
