"""What the commands do, once the arguments are parsed."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from innergrad.algorithms import GradientDescent
from innergrad.cli.data import Examples, read_inputs, read_table, write_csv
from innergrad.cli.settings import compile_settings
from innergrad.cli.show import (
    print_cost,
    print_explanation,
    print_report,
    print_run,
    print_states,
    warning_lines,
    working,
)
from innergrad.errors import DomainError, InputError, JobError, PoorRun
from innergrad.evidence.attack import attack
from innergrad.evidence.explain import Explanation, draw, explain
from innergrad.evidence.verification import foreseen_bytes
from innergrad.files import Writer, make_folder
from innergrad.model.executors import rounding
from innergrad.model.storage import CONFIG, WEIGHTS, check_folder
from innergrad.model.symptoms import LABELS
from innergrad.transformer import CompiledTransformer, Run, load

LARGE = 10**8  # bytes of an export that is worth a word
LARGE_MEMORY = 10**9  # bytes, likewise
RUN = "run.json"  # beside the CSV files of a run: what it was, and their digests


def compile_model(chosen: Mapping[str, Any], out: Path, *, force: bool, as_json: bool, quiet: bool) -> None:
    check_folder(out, force)
    with warning_lines(quiet), working("compiling", quiet or as_json):
        tf = compile_settings(chosen)
        tf.save(out, force=force)
    if as_json:
        print(json.dumps({"saved": str(out), "state": tf.state, **tf.cost().to_json()}))
    elif not quiet:
        print_cost(tf.cost())
        print_states(tf)
        if tf.solution is not None:
            Console().print(str(tf.solution), markup=False, highlight=False, soft_wrap=True)
        Console().print(f"saved to {out}; next: innergrad verify {out}", markup=False, soft_wrap=True)


def cost_model(
    model: Path | None,
    chosen: Mapping[str, Any],
    out: Path | None,
    *,
    config: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    writer = _writer("cost", model, config, force=force, outputs=[out])
    if (model is None) == (not chosen):
        raise InputError("give either a saved model or settings", hint="innergrad cost out/model, or --sizes 3,8,8,1")
    with warning_lines(quiet):
        tf = compile_settings(chosen) if model is None else load(model)
    found = {"state": tf.state, **tf.cost().to_json()}
    if out is not None:
        writer.json(out, found)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_cost(tf.cost())
        print_states(tf)


@dataclass(frozen=True)
class Asked:
    """What verification does besides checking the laws."""

    explain: bool = False
    figure: Path | None = None
    attack: bool = False

    def __post_init__(self) -> None:
        if self.figure is not None and not self.explain:
            raise InputError("--figure draws an explanation", hint="give --explain too")
        if self.figure is not None and self.figure.suffix != ".png":
            raise InputError("the figure is a PNG", got=str(self.figure), allowed="a name that ends in .png")


def verify_model(
    model: Path | None,
    data: Path | None,
    targets: str | None,
    prompts: int,
    asked: Asked,
    out: Path | None,
    *,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    if prompts < 1:
        raise InputError("prompts must be a positive integer", got=prompts)
    writer = _writer("verify", model, data, force=force, outputs=[out, asked.figure])
    tf = _load(model)
    table = None if data is None else read_table(data, targets, tf)
    given: tuple[Tensor | None, ...] = (
        () if table is None else (table.X, table.y, table.X_query if len(table.X_query) else None)
    )
    explanation, worst = None, None
    rows = [tf.options.n_examples + 1] if table is None else [len(table.X) + len(table.X_query), tf.options.n_examples]
    size = foreseen_bytes(tf, prompts, max(rows))
    if size > LARGE_MEMORY and not quiet:
        print(f"note: verifying takes up to {size / 1e9:,.1f} GB of memory", file=sys.stderr)
    with warning_lines(quiet), working("verifying", quiet or as_json):
        reports = {"random prompts": tf.verify(seed=seed, prompts=prompts)}
        if table is not None:
            reports[str(data)] = tf.verify(*given, seed=seed)
        if asked.explain:
            explanation = _explained(tf, given, seed, all(report.passed for report in reports.values()))
        if asked.attack:
            worst = attack(tf, seed=seed)
    result = {name: report.to_json() for name, report in reports.items()}
    result |= {} if explanation is None else {"explain": explanation.to_json()}
    result |= {} if worst is None else {"attack": worst.to_json()}
    if out is not None:
        writer.json(out, result)
    if explanation is not None and asked.figure is not None:
        make_folder(asked.figure.parent)
        draw(explanation, asked.figure, writer.mark)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        for name, report in reports.items():
            print_report(name, report)
        if explanation is not None:
            print_explanation("a random prompt" if table is None else str(data), explanation)
        if worst is not None:
            Console().print(f"\nAttack: {worst}", markup=False, highlight=False, soft_wrap=True)
    violated = [*(explanation.violations if explanation else ()), *(worst.violations if worst else ())]
    return 0 if all(report.passed for report in reports.values()) and not violated else 1


def _explained(tf: CompiledTransformer, given: tuple[Tensor | None, ...], seed: int, passed: bool) -> Explanation:
    try:
        return explain(tf, *given, seed=seed)
    except DomainError as error:
        if passed:
            raise
        hint = "verify without --explain says which laws fail"
        raise JobError(f"the weights are wrong, and leave the domain of a function: {error}; {hint}") from error


def run_model(
    model: Path | None,
    data: Path | None,
    targets: str | None,
    query: Path | None,
    dtype: str,
    out: Path | None,
    how: Mapping[str, Any],
    *,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """how: further arguments of ``tf.run``."""
    tf = _load(model)
    if data is None:
        raise InputError("the examples are missing", hint="give --data examples.csv")
    dtypes = {"float64": torch.float64, "float32": torch.float32}
    if dtype not in dtypes:
        raise InputError("unknown dtype", got=repr(dtype), allowed=", ".join(dtypes))
    if out is not None:
        writer = _writer("run", model, data, query, force=force)
        writer.check_all(out, _names(tf), RUN)
    table = read_table(data, targets, tf)
    X_query = table.X_query if query is None else read_inputs(query, table.inputs)
    with warning_lines(quiet), working("learning inside the forward pass", quiet or as_json):
        warnings.simplefilter("ignore", PoorRun)  # said below, with the names of the columns
        run = tf.run(table.X, table.y, X_query, dtype=dtypes[dtype], **how)
    told = [symptom.said(table.targets if symptom.kind == LABELS else table.inputs) for symptom in run.symptoms]
    for sentence in () if quiet else told:
        print(f"innergrad: warning: {sentence}", file=sys.stderr)
    losses = None
    if isinstance(tf.algorithm, GradientDescent):
        losses = tf.algorithm.risk(run.weights.double(), table.X.expand(len(run.weights), -1, -1), table.y).tolist()
    if out is not None:
        content = {"model": str(model), "data": str(data), "warnings": told}
        with writer.several(out, RUN, content) as part:
            _write_run(part, table, X_query, run)
    if as_json:
        print(json.dumps(_run_json(run, losses) | ({"warnings": told} if told else {})))
    elif not quiet:
        print_run(table, run, losses)


def _run_json(run: Run, losses: list[float] | None) -> dict[str, Any]:
    """What the run gave; what an algorithm does not have, e.g. weights, has no entry."""
    parts = {
        "predictions": run.predictions,
        "weights": run.weights[-1] if run.weights.shape[-1] else None,
        "online": run.online,
        "std": run.std,
    }
    found: dict[str, Any] = {name: part.tolist() for name, part in parts.items() if part is not None}
    found |= {"stopped": run.stopped} if run.stopped is not None else {}
    found |= {"violations": list(run.violations)} if run.violations else {}
    return found if losses is None else {**found, "loss": losses}


def _names(tf: CompiledTransformer) -> list[str]:
    """The files that a run writes."""
    causal, weights = tf.program.causal, bool(tf.program.weights)
    return ["predictions.csv", *["weights.csv"] * weights, *["online.csv"] * causal]


def _write_run(part: Callable[[str], Path], table: Examples, X_query: Tensor, run: Run) -> None:
    """predictions.csv; weights.csv if the algorithm has weights, online.csv if it learns from one row at a time."""
    names = [*table.inputs, *table.targets]
    std = {} if run.std is None else {"std": run.std.double().unsqueeze(-1)}
    predictions = torch.cat([X_query, run.predictions.double(), *std.values()], dim=1)
    write_csv(part("predictions.csv"), [*names, *std], predictions)
    if run.weights.shape[-1]:
        write_csv(part("weights.csv"), [f"w{i}" for i in range(run.weights.shape[-1])], run.weights)
    if run.online is not None:
        online = torch.cat([table.X, table.y, run.online.double().unsqueeze(-1)], dim=1)
        write_csv(part("online.csv"), [*names, "prediction"], online)


@dataclass(frozen=True)
class Exported:
    """What a saved model is exported to. family, kv_heads: of target llama, for hf; large: also more than 2 GB."""

    format: str
    dtype: str
    family: str | None = None
    kv_heads: int | None = None
    large: bool = False


def export_model(
    model: Path | None, out: Path | None, asked: Exported, *, force: bool, as_json: bool, quiet: bool
) -> None:
    from innergrad.export import export_gpt2, export_llama, export_onnx, llama_sizes, sizes_of
    from innergrad.export.card import CARD, EXAMPLE
    from innergrad.export.families import family_of

    formats, dtypes = ("hf", "onnx"), {"float32": torch.float32, "float64": torch.float64}
    if asked.format not in formats:
        raise InputError("unknown format", got=repr(asked.format), allowed=", ".join(formats))
    hf = asked.format == "hf"
    if asked.dtype not in dtypes or (not hf and asked.dtype != "float32"):
        allowed = "float32" + ", float64" * hf
        raise InputError(f"unknown dtype for {asked.format}", got=repr(asked.dtype), allowed=allowed)
    if out is None:
        raise InputError("the output is missing", hint="give --out out/gpt2, or --out out/model.onnx for onnx")
    tf, dtype, family = _load(model), dtypes[asked.dtype], asked.family or "llama"
    llama = tf.options.target == "llama" and hf
    if (asked.family is not None or asked.kv_heads is not None) and not llama:
        got = f"target {tf.options.target!r}, format {asked.format!r}"
        raise InputError("--family and --kv-heads are for Llamas", got=got, allowed="target llama, format hf")
    if asked.large and not hf:
        raise InputError("--large is for folders", got=f"format {asked.format!r}", allowed="format hf")
    if hf and not quiet:
        made = llama_sizes(tf, family, asked.kv_heads) if llama else sizes_of(tf)
        fewer = "fewer steps make" if llama else "fewer steps or a larger --epsilon make"
        more = f"; the class has no loops, and every block is dense: {fewer} it smaller"
        size = made.n_bytes(dtype)
        print(f"note: this writes {size / 1e6:,.1f} MB, {made}{more * (size > LARGE)}", file=sys.stderr)
    with working("exporting", quiet or as_json):
        if llama:
            export_llama(tf, out, dtype, family, kv_heads=asked.kv_heads, force=force, large=asked.large)
        elif hf:
            export_gpt2(tf, out, dtype, force=force, large=asked.large)
        else:
            export_onnx(tf, out, force=force)
    if as_json:
        print(json.dumps({"exported": str(out), "format": asked.format, "dtype": asked.dtype}))
    elif not quiet:
        use = "transformers.AutoModel.from_pretrained" if hf else "onnxruntime.InferenceSession"
        how = f"; {out / EXAMPLE} shows how it is called" if hf else ""
        Console().print(f"exported to {out}; next: {use}({str(out)!r}){how}", markup=False, soft_wrap=True)
        if hf and (family_of(family).masked if llama else not tf.program.causal):
            print(
                f"note: called without a 4-D attention mask it is wrong without a word: {out / CARD}", file=sys.stderr
            )
        worst = max((rounding(f, dtype, as_weights=True) for f in tf.approximants.values() if f.error), default=0.0)
        if worst > tf.options.epsilon:
            note = (
                f"note: in {asked.dtype} functions are rounded by up to {worst:.0e}, epsilon is {tf.options.epsilon:g}"
            )
            Console().print(f"{note}; a model for {asked.dtype} is compiled with --epsilon 1e-5 or so", markup=False)


def _load(model: Path | None) -> CompiledTransformer:
    if model is None:
        raise InputError("the model folder is missing", hint="write one with `innergrad compile --out out/model`")
    return load(model)


def _writer(
    command: str, model: Path | None, *reads: Path | None, force: bool, outputs: Sequence[Path | None] = ()
) -> Writer:
    """Who writes the outputs of a command; an error, before any work, if one must not be written."""
    own = () if model is None else (model / CONFIG, model / WEIGHTS)
    writer = Writer(command, (*own, *(path for path in reads if path is not None)), force)
    given = [path for path in outputs if path is not None]
    for path in given:
        writer.check(path, stream=path.suffix != ".png")
    if len({path.resolve() for path in given}) < len(given):
        raise InputError("two outputs are one file", got=str(given[0]), hint="give each a name of its own")
    return writer
