"""What a learner of tables scores: on the prior's own prompts, and on small real tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from _results import read
from innergrad.lab.evaluation import prompts
from innergrad.lab.learners import table_features as features
from innergrad.lab.learners.answers import ClassAnswer, NumberAnswer
from innergrad.lab.learners.table import MOST_CLASSES, TableLearner
from innergrad.lab.tasks import Task
from real import tables as real_tables
from real.scores import auc as of_class

KS, QUERIES, PROMPTS = (64, 250, 1000), 64, 512  # demonstrations and queries of validation prompts
SEED = 1  # of validation prompts
LEVELS = (0.1, 0.9)  # of the interval whose coverage is measured
WORST = -1.0  # an R^2 below counts as this
RIDGES = tuple(10.0**power for power in range(-4, 5))


def measured(learner: Any, task: Task, given: argparse.Namespace) -> dict[str, Any]:
    """Scores on prompts of the prior, and on real tables if there are some."""
    assert isinstance(learner, TableLearner)
    tiny = given.size == "tiny"
    rows = [
        on_prior(learner, task, k, given.prompts or (8 if tiny else PROMPTS // (4 if k >= 1000 else 1)), given.device)
        for k in ((8,) if tiny else KS)
    ]
    for row in rows:
        print("   ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    found: dict[str, Any] = {"validation": {"queries": QUERIES, "seed": SEED, "rows": rows}}
    if given.tables is not None:
        tables = Tables(given.tables, learner.config.labels)
        scores = tables.scores(learner, given.device)
        print(tables.words(scores), flush=True)
        found["tables"] = {"scores": dict(zip(tables.names, scores.tolist(), strict=True)), "others": tables.means}
    return found


@torch.no_grad()
def on_prior(learner: TableLearner, task: Task, k: int, number: int, device: str) -> dict[str, float]:
    """Scores of k demonstrations, beside the mean (or the shares of the classes) and ridge regression."""
    x, y = prompts(task, number, k + QUERIES, SEED, 32, device)
    parts = [learner.answer(a, b[:, :k], **_classes(learner)) for a, b in zip(x.split(32), y.split(32), strict=True)]
    labels, row = y[:, k:], {"k": float(k), "prompts": float(number)}
    numbers = learner.config.labels == "numbers"
    ridge = ridge_predictions(x, y, k, numbers)
    if numbers:
        answers = [part for part in parts if isinstance(part, NumberAnswer)]
        mean = torch.cat([answer.mean for answer in answers])
        low, high = torch.cat([answer.quantile(LEVELS) for answer in answers]).unbind(-1)
        flat = y[:, :k].mean(1, keepdim=True).expand_as(labels)
        row |= {"learner": r2(mean, labels), "ridge": r2(ridge, labels), "mean": r2(flat, labels)}
        row |= {"guess": r2(guess_of(learner, x, y, k)[..., 0], labels)} if learner.config.guess else {}
        return row | {"coverage": float(((labels >= low) & (labels <= high)).float().mean())}
    chances = torch.cat([part.probabilities for part in parts if isinstance(part, ClassAnswer)])
    shares = features.class_codes(y[:, :k], torch.ones_like(y[:, :k], dtype=torch.bool), MOST_CLASSES).mean(1)
    frequent = shares[:, None].expand_as(chances)
    for name, one in (("learner", chances), ("shares", frequent)):
        row[f"{name} log-loss"] = float(-one.gather(-1, labels.long()[..., None]).clamp(min=1e-6).log().mean())
    guess = {"guess": guess_of(learner, x, y, k)} if learner.config.guess else {}
    for name, one in {"learner": chances, "ridge": ridge, "shares": frequent, **guess}.items():
        row[f"{name} accuracy"] = float((one.argmax(-1) == labels).float().mean())
    row["learner AUC"] = float(np.nanmean([auc(*both) for both in zip(chances.cpu(), labels.cpu(), strict=True)]))
    return row


def guess_of(learner: TableLearner, x: Tensor, y: Tensor, k: int) -> Tensor:
    """What the learner is told by plain methods: labels (B, m, 1), or scores of the classes (B, m, 10)."""
    found = []
    for some, labels in zip(x.split(8), y.split(8), strict=True):
        shown = (torch.arange(x.shape[1], device=x.device) < k).expand(len(some), -1)
        table, _, about = learner.read(some, labels, shown, k)
        if learner.config.labels == "numbers":
            found.append(table.guess[:, k:, :1] * about[1][:, None, None] + about[0][:, None, None])
        else:
            mixed = table.guess[:, k:, :MOST_CLASSES]
            found.append(mixed.gather(-1, about[0].argsort(1)[:, None].expand_as(mixed)))
    return torch.cat(found)


def _classes(learner: TableLearner) -> dict[str, int]:
    return {} if learner.config.labels == "numbers" else {"classes": MOST_CLASSES}


def r2(predicted: Tensor, labels: Tensor) -> float:
    """The mean over prompts of R^2 on their queries."""
    return float(each_r2(predicted, labels).mean())


def each_r2(predicted: Tensor, labels: Tensor) -> Tensor:
    """R^2 of every prompt whose queries differ in their labels."""
    spread = (labels - labels.mean(1, keepdim=True)).square().sum(1)
    found = 1.0 - (predicted - labels).square().sum(1) / spread
    return found[spread > 0].clamp(min=WORST)


def ridge_predictions(x: Tensor, y: Tensor, k: int, numbers: bool) -> Tensor:
    """Ridge regression on z-scores, its penalty by generalised cross-validation: labels, or a score of each class."""
    shown = (torch.arange(x.shape[1], device=x.device) < k).expand(x.shape[:2])
    codes = features.class_codes(y, shown, MOST_CLASSES)
    z = features.seen(x, shown, codes, True).z.double()
    targets = (y[:, :k, None] if numbers else codes[:, :k]).double()
    middle = targets.mean(1, keepdim=True)
    centre = z[:, :k].mean(1, keepdim=True)
    known, targets = z[:, :k] - centre, targets - middle
    sizes, turn = torch.linalg.eigh(known.mT @ known)
    sizes = sizes.clamp(min=0.0)
    seen, along = known @ turn, (known @ turn).mT @ targets
    best, errors = None, None
    for penalty in RIDGES:
        weights = along / (sizes + penalty * k)[..., None]
        free = 1.0 - (sizes / (sizes + penalty * k)).sum(-1) / k
        error = (targets - seen @ weights).square().sum((1, 2)) / free.square().clamp(min=1e-9)
        better = torch.ones_like(error, dtype=torch.bool) if errors is None else error < errors
        errors = error if errors is None else torch.minimum(error, errors)
        best = weights if best is None else torch.where(better[:, None, None], weights, best)
    assert best is not None
    found: Tensor = (z[:, k:] - centre) @ turn @ best + middle
    return found[..., 0].to(y.dtype) if numbers else found


def auc(chances: Any, labels: Any) -> float:
    """The mean over the classes that are there, each against the others; NaN if there is one alone."""
    chances, labels = np.asarray(chances), np.asarray(labels)
    found = [of_class(labels == one, chances[:, one]) for one in np.unique(labels).astype(int)]
    return float(np.mean(found))


class Tables:
    """Small real tables, and the scores of baselines on them: the mean over folds of R^2, or of ROC AUC."""

    def __init__(self, path: Path, labels: str) -> None:
        numbers = labels == "numbers"
        chosen = real_tables.fast(real_tables.load(path), "regression" if numbers else "classification")
        if not chosen:
            sys.exit(f"{path} has no small tables whose labels are {labels}")
        self.names = [f"{table.source} {table.name}" for table in chosen]
        self.tables = [(table.x[table.order], table.y[table.order], table.fold[table.order]) for table in chosen]
        found: dict[str, dict[str, list[float]]] = {}
        for row in read("real_tables_baselines")["rows"]:
            score = row.get("r2" if numbers else "auc")
            if score is not None:
                scores = found.setdefault(row["model"], {})
                scores.setdefault(f"{row['source']} {row['table']}", []).append(score)
        whole = {model: scores for model, scores in found.items() if all(name in scores for name in self.names)}
        self.means = {
            model: float(np.mean([np.mean(scores[name]) for name in self.names])) for model, scores in whole.items()
        }

    def scores(self, learner: TableLearner, device: str) -> Any:
        """(T,): the mean over folds of R^2, or of ROC AUC."""
        return np.array([self.score(learner, table, device) for table in self.tables])

    def score(self, learner: TableLearner, table: tuple[Any, ...], device: str) -> float:
        """All folds in one batch: the rows of a larger fold that are too many are left out, queries are repeated."""
        x, y, fold = table
        folds = np.unique(fold)
        known = [np.flatnonzero(fold != one) for one in folds]
        asked = [np.flatnonzero(fold == one) for one in folds]
        k, m = min(map(len, known)), max(map(len, asked))
        rows = np.stack([np.r_[a[:k], np.resize(b, m)] for a, b in zip(known, asked, strict=True)])
        inputs = torch.as_tensor(x[rows], device=device)
        labels = torch.as_tensor(y[rows[:, :k]], dtype=torch.float64, device=device)
        answer = learner.answer(inputs, labels, **_classes(learner))
        if isinstance(answer, ClassAnswer):
            chances = answer.probabilities.cpu().numpy()
            return float(np.nanmean([auc(chances[i, : len(b)], y[b]) for i, b in enumerate(asked)]))
        mean = answer.mean.cpu().numpy()
        errors = [np.square(mean[i, : len(b)] - y[b]).sum() for i, b in enumerate(asked)]
        spreads = [np.square(y[b] - y[b].mean()).sum() for b in asked]
        return float(np.mean([1.0 - a / b for a, b in zip(errors, spreads, strict=True)]))

    def words(self, scores: Any) -> str:
        others = ", ".join(f"{name} {value:.4f}" for name, value in self.means.items())
        found = f"mean {np.mean(scores):.4f}, median {np.median(scores):.4f}"
        return f"{len(scores)} tables: {found}; means of others: {others}"
