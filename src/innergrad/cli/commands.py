"""What the commands do, once the arguments are parsed. First they check what can be checked without torch; then they
import it.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from innergrad.cli.data import TARGETS, Examples, read_examples, write_csv
from innergrad.cli.models import Known, known
from innergrad.cli.words import in_flags, speaking_of_flags
from innergrad.errors import DomainError, InputError, JobError, PoorRun
from innergrad.files import Writer, make_folder
from innergrad.model.folder import CONFIG, WEIGHTS, check_folder

if TYPE_CHECKING:
    from torch import Tensor

    from innergrad.evidence.certificate import Certificate
    from innergrad.evidence.explain import Explanation
    from innergrad.model.scores import Score
    from innergrad.transformer import CompiledTransformer, Run

LARGE = 10**8  # bytes of an export that is worth a word
LARGE_MEMORY = 10**9  # bytes, likewise
RUN = "run.json"  # beside the CSV files of a run: what it was, and their digests


@dataclass(frozen=True)
class Given:
    """A model, and data for it. targets: names of columns; query: another file with the rows to predict."""

    model: Path | None
    data: Path | None = None
    targets: str | None = None
    query: Path | None = None
    scale: bool = False

    def examples(self, model: Known) -> Examples | None:
        if self.data is not None:
            return read_examples(self.data, self.targets, model, self.query, scale=self.scale)
        for flag, asked in ((TARGETS, self.targets), ("--query", self.query), ("--scale", self.scale or None)):
            if asked is not None:
                raise InputError(f"{flag} is about the rows of --data", got="no --data", hint="give --data, a CSV file")
        return None


def compile_model(
    chosen: Mapping[str, Any], out: Path, *, verbose: bool, force: bool, as_json: bool, quiet: bool
) -> None:
    check_folder(out, force)
    require_folder(out)
    from innergrad.cli.making import compile_settings
    from innergrad.cli.show import print_compiled, print_cost, print_states, warning_lines, working

    with warning_lines(quiet), working("compiling", quiet or as_json), speaking_of_flags("compile"):
        tf = compile_settings(chosen)
        tf.save(out, force=force)
    if as_json:
        print(json.dumps({"saved": str(out), "state": tf.state, **tf.cost().to_json()}))
    elif not quiet:
        if verbose:
            print_cost(tf.cost())
            print_states(tf)
        print_compiled(tf, out, verbose)


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
    if model is not None:
        known(model)
    from innergrad.cli.making import compile_settings
    from innergrad.cli.show import print_cost, print_states, warning_lines
    from innergrad.transformer import load

    with warning_lines(quiet), nullcontext() if model else speaking_of_flags("cost"):
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
            raise InputError("--figure draws an explanation", got="no --explain", hint="give --explain too")
        if self.figure is not None and self.figure.suffix != ".png":
            raise InputError("the figure is a PNG", got=str(self.figure), allowed="a name that ends in .png")


def verify_model(
    given: Given,
    prompts: int,
    asked: Asked,
    out: Path | None,
    *,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    writer = _writer("verify", given.model, given.data, force=force, outputs=[out, asked.figure])
    table = given.examples(known(given.model))
    from innergrad.cli.show import print_explanation, print_report, warning_lines, working
    from innergrad.evidence.attack import attack
    from innergrad.evidence.explain import draw
    from innergrad.evidence.verification import foreseen_bytes

    tf = _load(given.model)
    prompt: tuple[Tensor | None, ...] = (
        () if table is None else (table.X, table.y, table.X_query if len(table.X_query) else None)
    )
    explanation, worst = None, None
    rows = [tf.options.n_examples + 1] if table is None else [len(table.X) + len(table.X_query), tf.options.n_examples]
    size = foreseen_bytes(tf, prompts, max(rows))
    if size > LARGE_MEMORY and not quiet:
        print(f"note: verifying takes up to {size / 1e9:,.1f} GB of memory", file=sys.stderr)
    with warning_lines(quiet), working("verifying", quiet or as_json), speaking_of_flags("verify"):
        reports = {"random prompts": tf.verify(seed=seed, prompts=prompts)}
        if table is not None:
            reports[str(given.data)] = tf.verify(*prompt, seed=seed)
        if asked.explain:
            explanation = _explained(tf, prompt, seed, all(report.passed for report in reports.values()))
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
            scaled = table is not None and table.scales is not None
            print_explanation("a random prompt" if table is None else str(given.data), explanation, scaled)
        if worst is not None:
            Console().print(f"\nAttack: {worst}", markup=False, highlight=False, soft_wrap=True)
    violated = [*(explanation.violations if explanation else ()), *(worst.violations if worst else ())]
    return 0 if all(report.passed for report in reports.values()) and not violated else 1


def _explained(tf: CompiledTransformer, given: tuple[Tensor | None, ...], seed: int, passed: bool) -> Explanation:
    from innergrad.evidence.explain import explain

    try:
        return explain(tf, *given, seed=seed)
    except DomainError as error:
        if passed:
            raise
        hint = "verify without --explain says which laws fail"
        raise JobError(f"the weights are wrong, and leave the domain of a function: {error}; {hint}") from error


def run_model(
    given: Given,
    dtype: str,
    out: Path | None,
    how: Mapping[str, Any],
    *,
    certify: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """how: further arguments of ``tf.run``. certify: also bound the errors of the predictions."""
    model = known(given.model)
    how = _certifiable(how) if certify else how
    if given.data is None:
        raise InputError(
            "the examples are missing", hint="give --data, a CSV of yours, or examples/examples.csv of the checkout"
        )
    if out is not None:
        writer = _writer("run", given.model, given.data, given.query, force=force)
        writer.check_all(out, _names(model), RUN)
        require_folder(out)
    table = given.examples(model)
    assert table is not None
    import torch

    from innergrad.algorithms import GradientDescent
    from innergrad.cli.show import print_run, warning_lines, working

    tf = _load(given.model)
    with warning_lines(quiet), working("learning inside the forward pass", quiet or as_json), speaking_of_flags("run"):
        warnings.simplefilter("ignore", PoorRun)  # said below, with the names of the columns
        run = tf.run(table.X, table.y, table.X_query, dtype=getattr(torch, dtype), **how)
        certificate = _certified(tf, table, getattr(torch, dtype), how) if certify else None
    told = warnings_of(run, table, model)
    for sentence in () if quiet else told:
        print(f"innergrad: warning: {sentence}", file=sys.stderr)
    losses = None
    if isinstance(tf.algorithm, GradientDescent):
        losses = tf.algorithm.risk(run.weights.double(), table.X.expand(len(run.weights), -1, -1), table.y).tolist()
    scores = scores_of(tf, run, table, model)
    scale = {"scale": table.scale_json()} if table.scales is not None else {}
    if out is not None:
        content = {"model": str(given.model), "data": str(given.data), "warnings": told, **scale}
        with writer.several(out, RUN, content) as part:
            _write_run(part, table, tf, run, certificate)
    if as_json:
        found = _run_json(run, table, losses) | ({"warnings": told} if told else {}) | scale
        found |= {"score": {name: one.to_json() for name, one in scores.items()}} if scores else {}
        found |= {} if certificate is None else {"certificate": _certificate_json(certificate, table, run)}
        print(json.dumps(found))
    elif not quiet:
        print_run(table, run, losses, scores, certificate, tf)


def _certifiable(how: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a run whose layers can be followed: the certificate is about this very run."""
    if how["executor"] == "fused":
        what = "--certify follows every layer, and --executor fused has no layers"
        raise InputError(what, got="--executor fused", allowed="auto, plain, dense")
    if how["until"] is not None:
        raise InputError("--certify is about all steps", got="--until, too", hint="leave one of the two out")
    return {**how, "executor": "dense" if how["executor"] == "dense" else "plain"}


def _certified(tf: CompiledTransformer, table: Examples, dtype: Any, how: Mapping[str, Any]) -> Certificate:
    chosen = {name: how[name] for name in ("executor", "seed", "outside")}
    return tf.certify(table.X, table.y, table.X_query, dtype=dtype, **chosen)


def _certificate_json(certificate: Certificate, table: Examples, run: Run) -> dict[str, Any]:
    """Bounds; those of predictions in the units of the file, all others of the data as they were learned from. Null
    where nothing is known.
    """
    found: dict[str, Any] = {"state": certificate.state, "gradient": certificate.gradient}
    if certificate.predictions is not None:
        bounds = table.bounds_in_units(certificate.predictions[0], run.predictions)
        found |= {"weights": certificate.weights, "predictions": bounds.tolist()}
    return {name: _finite(value) for name, value in found.items()} | {"notes": list(certificate.notes)}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scores_of(tf: CompiledTransformer, run: Run, table: Examples, model: Known) -> dict[str, Score]:
    """How good the predictions are: on the examples, if the weights say what they are there, and on queries whose truth
    is known.
    """
    from innergrad.model.scores import score

    learned = tf.algorithm.predicted(run.weights[-1:].double(), table.X.unsqueeze(0)) if run.weights.numel() else None
    found = {} if learned is None else {"examples": score(learned[0], table.y, table.targets, classes=model.classes)}
    if table.truth is not None:
        guesses, truth = table.in_units(run.predictions)[list(table.known)], table.truth.tensor()
        found["held_out"] = score(guesses, truth, table.targets, classes=model.classes)
    return {name: one for name, one in found.items() if one is not None}


def warnings_of(run: Run, table: Examples, model: Known) -> list[str]:
    """What is plainly wrong with what was learned, by the names of the columns; --scale for columns that need it."""
    from innergrad.model.symptoms import INPUTS, LABELS

    unscaled = table.unscaled(model.classes)
    found = [
        in_flags(symptom.said(table.targets if symptom.kind == LABELS else table.inputs), "run")
        for symptom in run.symptoms
        if not (unscaled and symptom.kind in (INPUTS, LABELS))
    ]
    return [*found, unscaled] if unscaled else found


def _run_json(run: Run, table: Examples, losses: list[float] | None) -> dict[str, Any]:
    """What the run gave; what an algorithm does not have, e.g. weights, has no entry."""
    parts = {
        "predictions": table.in_units(run.predictions),
        "weights": run.weights[-1] if run.weights.shape[-1] else None,
        "online": None if run.online is None else table.in_units(run.online.unsqueeze(-1)).squeeze(-1),
        "std": None if run.std is None else table.spread_in_units(run.std),
    }
    found: dict[str, Any] = {name: part.tolist() for name, part in parts.items() if part is not None}
    found |= {"stopped": run.stopped} if run.stopped is not None else {}
    found |= {"violations": list(run.violations)} if run.violations else {}
    return found if losses is None else {**found, "loss": losses}


def _names(model: Known) -> list[str]:
    """The files that a run writes."""
    return ["predictions.csv", *["weights.csv"] * model.weights, *["online.csv"] * model.causal]


def _write_run(
    part: Callable[[str], Path], table: Examples, tf: CompiledTransformer, run: Run, certificate: Certificate | None
) -> None:
    """predictions.csv; weights.csv if the algorithm has weights, online.csv if it learns from one row at a time. Inputs
    and targets are in the units of the file, weights are those of the network.
    """
    import torch

    X, y, X_query = (rows.tensor() for rows in table.rows)
    columns = [*table.inputs, *table.targets]
    std = {} if run.std is None else {"std": table.spread_in_units(run.std.double()).unsqueeze(-1)}
    bounds = None if certificate is None else certificate.predictions
    proven = [] if bounds is None else [table.bounds_in_units(bounds[0], run.predictions).double()]
    further = [*std, *(f"{name} proven to" for name in table.targets if proven)]
    predictions = torch.cat([X_query, table.in_units(run.predictions.double()), *std.values(), *proven], dim=1)
    write_csv(part("predictions.csv"), [*columns, *further], predictions)
    if run.weights.shape[-1]:
        write_csv(part("weights.csv"), weight_names(tf), run.weights)
    if run.online is not None:
        online = torch.cat([X, y, table.in_units(run.online.double().unsqueeze(-1))], dim=1)
        write_csv(part("online.csv"), [*columns, "prediction"], online)


def weight_names(tf: CompiledTransformer) -> list[str]:
    """A name for every weight, in their order: V1[0,0] is row 0, column 0 of the matrix of layer 1, b1[0] its first
    bias; of algorithms without layers w[0], w[1], ...
    """
    from innergrad.algorithms import GradientDescent

    if isinstance(tf.algorithm, GradientDescent):
        network = tf.algorithm.network
        shapes = dict[str, tuple[int, ...]]()
        for layer, (fan_in, width) in enumerate(itertools.pairwise(network.sizes), start=1):
            shapes[f"V{layer}"] = (width, fan_in)
            shapes |= {f"b{layer}": (width,)} if network.bias else {}
    else:
        shapes = {lane.name: lane.shape for lane in tf.program.weights}
    places = ((name, itertools.product(*map(range, shape))) for name, shape in shapes.items())
    return [f"{name}[{','.join(map(str, place))}]" for name, each in places for place in each]


@dataclass(frozen=True)
class Exported:
    """What a saved model is exported to. family, kv_heads: of target llama, for hf; large: also more than 2 GB."""

    format: str
    dtype: str
    family: str | None = None
    kv_heads: int | None = None
    large: bool = False

    def __post_init__(self) -> None:
        if self.format == "onnx" and self.dtype != "float32":
            raise InputError("unknown dtype for onnx", got=repr(self.dtype), allowed="float32")
        if self.format == "onnx" and self.large:
            raise InputError("--large is for folders", got="format 'onnx'", allowed="format hf")


def export_model(
    model: Path | None, out: Path | None, asked: Exported, *, force: bool, as_json: bool, quiet: bool
) -> None:
    if out is None:
        raise InputError("the output is missing", hint="give --out out/gpt2, or --out out/model.onnx for onnx")
    target, hf = known(model).target, asked.format == "hf"
    llama = target == "llama" and hf
    if (asked.family is not None or asked.kv_heads is not None) and not llama:
        got = f"target {target!r}, format {asked.format!r}"
        raise InputError("--family and --kv-heads are for Llamas", got=got, allowed="target llama, format hf")
    import torch

    from innergrad.cli.show import working
    from innergrad.export import export_gpt2, export_llama, export_onnx, llama_sizes, sizes_of
    from innergrad.export.card import CARD, EXAMPLE
    from innergrad.export.families import family_of
    from innergrad.model.executors import rounding

    tf, dtype, family = _load(model), getattr(torch, asked.dtype), asked.family or "llama"
    with speaking_of_flags("export"):
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
        package = use.partition(".")[0]
        how += "" if find_spec(package) else f" (needs {package}, which is not installed: pip install {package})"
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
    from innergrad.transformer import load

    assert model is not None  # ``known`` has looked
    return load(model)


def require_folder(path: Path) -> None:
    """An error if nothing could be written there: this, or a folder above it, is a file, or others' alone."""
    what, allowed = f"cannot write into {path}", "a folder, existing or new"
    for one in (path, *path.parents):
        if os.path.exists(one):  # not so of what may not be looked into
            if not os.path.isdir(one):
                raise InputError(what, got=f"{one}, a file", allowed=allowed, hint="give another with --out")
            if not os.access(one, os.W_OK | os.X_OK):
                got = f"no right to write into {one.resolve()}"
                raise InputError(what, got=got, allowed=allowed, hint="give another with --out")
            return


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
