"""What the commands do, once the arguments are parsed."""

from __future__ import annotations

import csv
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from innergrad.algorithms import GradientDescent
from innergrad.compiler import compile
from innergrad.errors import InputError
from innergrad.interpret.cost import Cost, number
from innergrad.networks import Network
from innergrad.storage import load
from innergrad.transformer import CompiledTransformer
from innergrad.verification import Report

NETWORK = ("sizes", "activation", "output", "bias")
ALGORITHM = ("loss", "lr", "steps", "box", "momentum", "weight_decay")
COMPILE = ("epsilon", "n_examples", "x_bound", "y_bound", "z_bound")
SECTIONS = {"network": NETWORK, "algorithm": ALGORITHM, "compile": COMPILE}


# ---------------------------------------------------------------------------------------------------------- settings


def settings(config: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a TOML file with sections [network], [algorithm], [compile]; flags that were given override it."""
    chosen: dict[str, Any] = {} if config is None else _read_config(config)
    known = (*NETWORK, *ALGORITHM, *COMPILE)
    chosen |= {name: value for name, value in flags.items() if name in known and value is not None}
    if isinstance(chosen.get("sizes"), str):
        try:
            chosen["sizes"] = [int(part) for part in chosen["sizes"].split(",")]
        except ValueError:
            raise InputError("sizes must be integers", got=repr(chosen["sizes"]), allowed="e.g. 3,8,8,1") from None
    if isinstance(chosen.get("box"), str):
        chosen["box"] = _box(chosen["box"])
    return chosen


def _box(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError("box must be a number or 'none'", got=repr(text)) from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a TOML file") from error
    chosen: dict[str, Any] = {}
    for section, values in content.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise InputError(
                f"unknown section in {path}", got=f"[{section}]", allowed="[network], [algorithm], [compile]"
            )
        for name, value in values.items():
            if name not in SECTIONS[section]:
                raise InputError(
                    f"unknown setting in [{section}] of {path}", got=name, allowed=", ".join(SECTIONS[section])
                )
            chosen[name] = value
    return chosen


def compile_settings(chosen: Mapping[str, Any]) -> CompiledTransformer:
    if "sizes" not in chosen:
        raise InputError("the network's sizes are missing", hint="give --sizes 3,8,8,1, or sizes in a --config file")

    def part(names: Sequence[str]) -> dict[str, Any]:
        return {name: chosen[name] for name in names if name in chosen}

    try:
        algorithm = GradientDescent(Network(**part(NETWORK)), **part(ALGORITHM))
        return compile(algorithm, **part(COMPILE))
    except TypeError as error:
        raise InputError("a setting has the wrong type", got=str(error)) from error


# ---------------------------------------------------------------------------------------------------------- commands


def compile_model(chosen: Mapping[str, Any], out: Path, *, as_json: bool, quiet: bool) -> None:
    tf = compile_settings(chosen)
    tf.save(out)
    if as_json:
        print(json.dumps({"saved": str(out), **tf.cost().to_json()}))
    elif not quiet:
        print_cost(tf.cost())
        Console().print(f"saved to [bold]{out}[/bold]; next: innergrad verify {out}")


def cost_model(model: Path | None, chosen: Mapping[str, Any], out: Path | None, *, as_json: bool, quiet: bool) -> None:
    if (model is None) == (not chosen):
        raise InputError("give either a saved model or settings", hint="innergrad cost out/model, or --sizes 3,8,8,1")
    cost = (compile_settings(chosen) if model is None else load(model)).cost()
    if out is not None:
        _write_json(out, cost.to_json())
    if as_json:
        print(json.dumps(cost.to_json()))
    elif not quiet:
        print_cost(cost)


def verify_model(
    model: Path | None,
    data: Path | None,
    targets: str | None,
    prompts: int,
    out: Path | None,
    *,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    if prompts < 1:
        raise InputError("prompts must be a positive integer", got=prompts)
    tf = _load(model)
    reports = {"random prompts": tf.verify(seed=seed, prompts=prompts)}
    if data is not None:
        table = read_table(data, targets, tf)
        reports[str(data)] = tf.verify(table.X, table.y, table.X_query if len(table.X_query) else None, seed=seed)
    result = {name: report.to_json() for name, report in reports.items()}
    if out is not None:
        _write_json(out, result)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        for name, report in reports.items():
            print_report(name, report)
    return 0 if all(report.passed for report in reports.values()) else 1


def run_model(
    model: Path | None,
    data: Path | None,
    targets: str | None,
    query: Path | None,
    executor: str,
    dtype: str,
    out: Path | None,
    *,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    tf = _load(model)
    if data is None:
        raise InputError("the examples are missing", hint="give --data examples.csv")
    dtypes = {"float64": torch.float64, "float32": torch.float32}
    if dtype not in dtypes:
        raise InputError("unknown dtype", got=repr(dtype), allowed=", ".join(dtypes))
    table = read_table(data, targets, tf)
    X_query = table.X_query if query is None else read_inputs(query, table.inputs)
    run = tf.run(table.X, table.y, X_query, executor=executor, dtype=dtypes[dtype], seed=seed)  # type: ignore[arg-type]
    losses = None
    if isinstance(tf.algorithm, GradientDescent):
        losses = tf.algorithm.risk(run.weights.double(), table.X.expand(len(run.weights), -1, -1), table.y).tolist()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _write_csv(
            out / "predictions.csv", [*table.inputs, *table.targets], torch.cat([X_query, run.predictions.double()], 1)
        )
        _write_csv(out / "weights.csv", [f"w{i}" for i in range(run.weights.shape[-1])], run.weights)
    if as_json:
        print(
            json.dumps({"predictions": run.predictions.tolist(), "weights": run.weights[-1].tolist(), "loss": losses})
        )
    elif not quiet:
        _print_run(table, X_query, run.predictions, losses)


def _load(model: Path | None) -> CompiledTransformer:
    if model is None:
        raise InputError("the model folder is missing", hint="write one with `innergrad compile --out out/model`")
    return load(model)


# ---------------------------------------------------------------------------------------------------------- tables in


@dataclass(frozen=True)
class Examples:
    """A CSV file: rows with targets are examples, rows with empty targets are queries."""

    X: Tensor
    y: Tensor
    X_query: Tensor
    inputs: list[str]
    targets: list[str]


def read_table(path: Path, targets: str | None, tf: CompiledTransformer) -> Examples:
    header, rows = _read_csv(path)
    d_x, d_y = tf.program.stream["x"].size, tf.program.stream["y"].size
    names = header[-d_y:] if targets is None else [name.strip() for name in targets.split(",")]
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header))
    inputs = [name for name in header if name not in names]
    if len(names) != d_y or len(inputs) != d_x:
        raise InputError(
            f"{path} does not fit the model",
            got=f"{len(inputs)} input and {len(names)} target columns",
            allowed=f"{d_x} and {d_y}",
        )
    x_columns, y_columns = [header.index(name) for name in inputs], [header.index(name) for name in names]
    examples = [(number, row) for number, row in rows if all(row[c].strip() for c in y_columns)]
    queries = [(number, row) for number, row in rows if not any(row[c].strip() for c in y_columns)]
    if len(examples) + len(queries) != len(rows):
        raise InputError(
            f"{path} has rows with some targets empty", allowed="all targets (an example) or none (a query)"
        )
    if not examples:
        raise InputError(f"{path} has no examples: every target is empty")
    return Examples(
        _numbers(path, examples, x_columns),
        _numbers(path, examples, y_columns),
        _numbers(path, queries, x_columns),
        inputs,
        names,
    )


def read_inputs(path: Path, inputs: list[str]) -> Tensor:
    header, rows = _read_csv(path)
    missing = [name for name in inputs if name not in header]
    if missing:
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header))
    return _numbers(path, rows, [header.index(name) for name in inputs])


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(newline="") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a CSV file with a header") from error
    if len(lines) < 2:
        raise InputError(f"{path} is empty", allowed="a header and at least one row")
    header = [name.strip() for name in lines[0][1]]
    if len(set(header)) != len(header):
        raise InputError(f"{path} has columns of the same name", got=", ".join(header))
    for line, row in lines[1:]:
        if len(row) != len(header):
            raise InputError(f"line {line} of {path} has the wrong length", got=len(row), allowed=str(len(header)))
    return header, lines[1:]


def _numbers(path: Path, rows: list[tuple[int, list[str]]], columns: list[int]) -> Tensor:
    values = []
    for line, row in rows:
        try:
            entries = [float(row[c]) for c in columns]
        except ValueError:
            raise InputError(f"line {line} of {path} is not numeric", got=", ".join(row)) from None
        if not all(math.isfinite(entry) for entry in entries):
            raise InputError(f"line {line} of {path} has NaN or infinity", got=", ".join(row))
        values.append(entries)
    return torch.tensor(values, dtype=torch.float64).reshape(len(values), len(columns))


# ---------------------------------------------------------------------------------------------------------- tables out


def print_cost(cost: Cost) -> None:
    layers = Table(title="Architecture", title_justify="left")
    for column in ("layer", "kind", "times", "heads / units", "d_head", "nonzero weights", "norm (C.1)"):
        layers.add_column(column, justify="left" if column in ("layer", "kind") else "right")
    for row in cost.rows:
        times = str(row.times) if row.times else "read-out"
        layers.add_row(
            row.name, row.kind, times, f"{row.heads:,}", str(row.d_head or ""), f"{row.nonzeros:,}", f"{row.norm:.3g}"
        )
    totals = Table(title=f"Totals, for {cost.n_tokens} tokens", title_justify="left")
    for column in ("", "here", "the paper"):
        totals.add_column(column, justify="right" if column == "here" else "left", overflow="fold")
    for name, value in cost.totals().items():
        totals.add_row(name, number(value), cost.paper.get(name, ""))
    console = Console()
    console.print(layers)
    console.print(totals)


def print_report(name: str, report: Report) -> None:
    table = Table(title=f"Laws on {name}", title_justify="left")
    for column in ("law", "value", "limit", "result", "worst"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left")
    for law in report.laws:
        result = "[green]holds[/green]" if law.holds else "[bold red]FAILS[/bold red]"
        table.add_row(law.name, f"{law.value:.2e}", f"{law.limit:.2e}", result, law.where)
    console = Console()
    console.print(table)
    errors, epsilon = report.step_error, report.epsilon
    console.print(
        f"error of the gradient per step: median {sorted(errors)[len(errors) // 2]:.2f}, max {max(errors):.2f} times "
        f"epsilon = {epsilon:g}; "
        f"||w - w_oracle|| after the last step: {report.distance[-1]:.2e}; ramp hits: {sum(report.ramp_hits)}"
    )


def _print_run(table: Examples, X_query: Tensor, predictions: Tensor, losses: list[float] | None) -> None:
    console = Console()
    if losses is not None:
        console.print(
            f"loss on {len(table.X)} examples: {losses[0]:.6g} before, {losses[-1]:.6g} after {len(losses) - 1} steps"
        )
    shown = Table(title=f"{len(predictions)} predictions", title_justify="left")
    for column in (*table.inputs, *table.targets):
        shown.add_column(column, justify="right")
    for x, p in zip(X_query[:20].tolist(), predictions[:20].tolist(), strict=True):
        shown.add_row(*(f"{value:.5g}" for value in (*x, *p)))
    console.print(shown)
    if len(predictions) > 20:
        console.print(f"... and {len(predictions) - 20} more; --out writes them all")


def _write_csv(path: Path, header: list[str], rows: Tensor) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows.tolist())


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
