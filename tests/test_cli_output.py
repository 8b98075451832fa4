"""What commands print for people: numbers as they are written, scores, bounds in the units of the file, next steps."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad import errors
from innergrad.errors import at_most, readable
from innergrad.model.scores import score
from test_cli import SMALL, call, columns, good, random_data, write_rows

LLAMA = (*SMALL, "--target", "llama", "--box", "none")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output") / "llama"
    good("compile", *LLAMA, "--out", folder, "--quiet")
    return folder


def prices() -> tuple[Tensor, Tensor, Tensor]:
    """Examples and queries in units far from one: targets of about 300,000."""
    X, y, X_query = random_data(2, 1)
    return 40.0 + 7.0 * X, 300_000.0 + 50_000.0 * y, 40.0 + 7.0 * X_query


@pytest.fixture
def table(tmp_path: Path) -> Path:
    X, y, X_query = prices()
    queries = [[*row, ""] for row in X_query.tolist()]
    return write_rows(tmp_path / "prices.csv", ["a", "b", "price"], columns(X, y), queries)


def scaled() -> tuple[Tensor, Tensor, Tensor, float, float]:
    """The same as the model gets it; mean and deviation of the targets."""
    X, y, X_query = prices()
    (mx, sx), (my, sy) = ((part.mean(0), part.std(0, correction=0)) for part in (X, y))
    return (X - mx) / sx, (y - my) / sy, (X_query - mx) / sx, float(my), float(sy)


# -------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (330412.3, "330,412"),
        (-1234.567, "-1,234.6"),
        (152.334, "152.33"),
        (0.99712, "0.99712"),
        (9.999996, "10"),
        (0.0, "0"),
        (3e-7, "3e-07"),
        (2.5e18, "2.5e+18"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_as_people_write_them(value: float, text: str) -> None:
    assert readable(value) == text


def test_a_bound_is_rounded_up() -> None:
    for exponent in range(-20, 12):
        for digits in (1.0, 1.01, 3.14159, 9.99, 9.0):
            value = digits * 10.0**exponent
            shown = float(at_most(value).replace(",", ""))
            assert value <= shown * (1 + 1e-12)
            assert shown <= 1.1 * value
    assert at_most(123.4) == "130"
    assert at_most(math.inf) == "inf"


def test_the_score_is_scikit_learns() -> None:
    from sklearn.metrics import r2_score

    truth = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    guess = truth + 0.3 * torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = score(guess, truth, ["a", "b"])
    assert found is not None
    assert list(found.r2.values()) == pytest.approx(r2_score(truth, guess, multioutput="raw_values"))
    assert score(guess[:1], truth[:1], ["a", "b"]) is None  # one row has no spread
    hot = torch.eye(3)[[0, 1, 2, 1]]
    classes = score(torch.eye(3)[[0, 1, 1, 1]], hot, ["a", "b", "c"], classes=True)
    assert classes is not None
    assert (classes.right, classes.words("example")) == (3, "right on 4 examples: 3, which is 75%")


# ------------------------------------------------------------------------------------------------------------------ run


def test_predictions_of_a_run_are_readable_and_scored(llama: Path, table: Path, tmp_path: Path) -> None:
    """R² on the examples; and on rows of --query that have the target, too, from which nothing is learned."""
    _, _, X_query = prices()
    sX, sy, sX_query, mean, std = scaled()
    tf = ig.load(llama)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    run = tf.run(sX, sy, sX_query)
    fit = tf.algorithm.network.forward(run.weights[-1], sX)
    on_examples = float(1 - (fit - sy).square().sum() / (sy - sy.mean()).square().sum())
    printed = good("run", llama, "--data", table, "--scale")
    assert f"R² on 5 examples: {on_examples:.3f}" in printed
    for value in (run.predictions * std + mean).flatten().tolist():
        assert f"{value:,.0f}" in printed
    assert "e+05" not in printed
    truth = [310_000.0, 250_000.0, 280_000.0]
    rows = [[*row, cell] for row, cell in zip(X_query.tolist(), [truth[0], "?", truth[2]], strict=True)]
    held = write_rows(tmp_path / "held.csv", ["a", "b", "price"], rows)
    found = json.loads(good("run", llama, "--data", table, "--scale", "--query", held, "--json"))
    guesses = torch.tensor(found["predictions"], dtype=torch.float64)
    assert torch.allclose(guesses, run.predictions * std + mean, rtol=1e-9)
    guess = [found["predictions"][0][0], found["predictions"][2][0]]
    middle = (truth[0] + truth[2]) / 2
    errors_, spread = ((guess[0] - truth[0]) ** 2 + (guess[1] - truth[2]) ** 2), 2 * (truth[0] - middle) ** 2
    assert found["score"]["held_out"] == {"rows": 2, "r2": {"price": pytest.approx(1 - errors_ / spread)}}
    assert "R² on 2 held-out rows" in good("run", llama, "--data", table, "--scale", "--query", held)


def test_bounds_are_in_the_units_of_the_file(llama: Path, table: Path) -> None:
    sX, sy, sX_query, mean, std = scaled()
    tf = ig.load(llama)
    certificate, exact = tf.certify(sX, sy, sX_query), ig.reference(tf.algorithm, sX, sy, sX_query)
    assert certificate.predictions is not None
    found = json.loads(good("run", llama, "--data", table, "--scale", "--certify", "--json"))
    bounds = torch.tensor(found["certificate"]["predictions"], dtype=torch.float64)
    least = certificate.predictions[0] * std
    assert bool((bounds >= least).all())
    assert bool((bounds <= 1.001 * least + 2.0**-49 * (mean + 3 * std)).all())  # what the way back may round
    off = torch.tensor(found["predictions"], dtype=torch.float64) - (exact.predictions * std + mean)
    assert bool((off.abs() <= bounds).all())
    printed = good("run", llama, "--data", table, "--scale", "--certify")
    worst, beside = float(bounds.max()), float(certificate.predictions.max())
    assert f"{at_most(worst)} (price), in the units of the file; scaled, {at_most(beside)}" in printed
    assert "price: proven to" in printed
    assert found["certificate"]["gradient"] == pytest.approx(certificate.gradient, rel=1e-6)


@pytest.mark.parametrize(
    ("flags", "words"),
    [(("--executor", "fused"), "allowed: auto, plain, dense"), (("--until", 1.0), "leave one of the two out")],
)
def test_what_cannot_be_certified(llama: Path, table: Path, flags: tuple[object, ...], words: str) -> None:
    refused = call("run", llama, "--data", table, "--certify", *flags)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert words in refused.err


def test_a_table_without_queries_is_told_how_to_have_some(llama: Path, tmp_path: Path) -> None:
    X, y, _ = random_data(2, 1)
    table = write_rows(tmp_path / "data.csv", ["a", "b", "t"], columns(X, y))
    printed = good("run", llama, "--data", table)
    assert "no row to predict: leave the target of some rows empty, or give other rows by --query FILE" in printed
    assert "0 predictions" not in printed


def test_the_columns_to_predict_have_a_flag_of_their_own(llama: Path, table: Path) -> None:
    """--target, which means another thing to compile, is still understood."""
    how = ("run", llama, "--data", table, "--scale", "--json")
    printed = [good(*how, *named) for named in ((), ("--target-columns", "price"), ("--target", "price"))]
    assert printed[0] == printed[1] == printed[2]
    assert "no such column" in call(*how, "--target", "cost").err
    assert "--target-columns is about the rows of --data" in call("verify", llama, "--target", "price").err


# ----------------------------------------------------------------------------------------------------- other commands


def test_threads_sleep_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch is loaded, which reads it; but for bench, and for who has chosen otherwise."""
    seen = list[str | None]()

    def parsed(argv: list[str], **_: object) -> int:
        seen.append(os.environ.get("OMP_WAIT_POLICY"))
        return 0

    monkeypatch.setattr("innergrad.cli.app.parser", lambda: parsed)
    for command, before in (("cost", None), ("bench", None), ("cost", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if before is not None:
            monkeypatch.setenv("OMP_WAIT_POLICY", before)
        call(command)
    assert seen == ["PASSIVE", None, "ACTIVE"]


def test_compile_ends_in_the_lines_that_matter(tmp_path: Path) -> None:
    printed = good("compile", *SMALL, "--out", tmp_path / "model").splitlines()
    assert len(printed) == 3
    assert printed[1].startswith(f"saved to {tmp_path / 'model'}")
    assert printed[2].startswith(f"next: innergrad run {tmp_path / 'model'} --data FILE")
    cost = ig.load(tmp_path / "model").cost()
    assert f"{cost.blocks} blocks and {cost.readout_blocks} for the read-out" in printed[0]
    long = good("compile", *SMALL, "--out", tmp_path / "model", "--verbose").splitlines()
    assert len(long) > 20
    assert long[-2] == printed[1]


def test_the_cost_has_one_word_for_one_thing(llama: Path) -> None:
    cost = ig.load(llama).cost()
    totals = cost.totals()
    assert totals["blocks"] + totals["read-out blocks"] == cost.blocks + cost.readout_blocks
    assert totals["layers a step"] * cost.steps <= totals["layers"]
    for text in (good("cost", llama), str(cost)):
        assert "A block is attention and the mlp after it. The read-out is apart." in text


def test_verify_says_what_its_numbers_are_sizes_of(llama: Path) -> None:
    printed = good("verify", llama, "--prompts", 1)
    (line,) = (line for line in printed.splitlines() if re.search(r"\bgradient\b.*holds", line))
    assert "error, in epsilons" in line
    report = ig.load(llama).verify(prompts=1)
    assert all(law.unit for law in report.laws)
    assert "error, in epsilons" in str(report)


def test_export_says_what_it_needs(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("innergrad.errors", "innergrad.cli.commands"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    printed = call("export", llama, "--out", tmp_path / "hf").out
    assert "needs transformers, which is not installed: pip install transformers" in printed
    from innergrad.export import check, to_llama

    for refused in (lambda: to_llama(ig.load(llama)), lambda: check(tmp_path / "hf")):
        with pytest.raises(errors.InputError, match="needs transformers; got not installed; pip install transformers"):
            refused()
