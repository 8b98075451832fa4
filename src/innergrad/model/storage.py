"""Saved models: a folder with ``config.json`` (settings, layout, layers) and ``weights.safetensors``. Nothing is ever
unpickled.

config.json
    algorithm {kind, ...settings}, options, layout [{name, shape, offset, role, shared}, ...] in stream order (fill:
    what a lane holds at the start), prompt {tokens, sink_first, causal, length, prediction} (length: of all
    prompts, if it is fixed: blank tokens stand before the queries; carriers, placement, marks: tokens before the
    examples that carry the weights, see tokens_of_weights),
    body [{count, layers: [{name, kind, shapes: {W_Q: [heads, d_head, D], ...}}]}], readout [...], approximants {name:
    {...}}
weights.safetensors
    body.0.3.W_Q.index (3, nonzeros) int32 and body.0.3.W_Q.value (nonzeros,) float64: the entries (head, row, column)
    of a weight tensor of the shape given in the config; likewise W_K, W_V, W_O, W_1, b_1, W_2. Layers that are equal
    are stored once: ``stored`` in the config then says where.
    ``approximant.<name>.knots`` and ``.slopes`` of a piecewise-linear function, ``.a``, ``.b`` and ``.c`` of a sum of
    features.

``digest`` in the config is of the tensors, and ``id`` is of the config. A folder that was damaged, or changed by hand,
is not loaded. To change a folder on purpose, seal it again: :func:`seal`. A seal is no signature: anybody can make one.
So nothing is believed. Approximants are compared with their functions when a folder is loaded, and proven again before
their errors count; matrices are unchecked until ``verify`` has passed on them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from innergrad.algorithms import ALGORITHMS
from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, within_limits
from innergrad.files import make_folder, read_text
from innergrad.functions.fits.sigmas import fingerprint
from innergrad.functions.fits.sums import FEATURES, Approximant, FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.functions.states import checked
from innergrad.ir.program import Options, Program
from innergrad.memory import require_memory
from innergrad.model.compiled import Compiled
from innergrad.model.folder import CONFIG, WEIGHTS, check_folder, not_a_model
from innergrad.model.preparation import check_options, prepared
from innergrad.targets import TARGETS, LoopedTransformer, Sublayer, Target
from innergrad.targets.weights.modules import SparseStack

FORMAT = "innergrad-1"
SEAL = "seal"  # of the file of weights: the id and the digest


def save(compiled: Compiled, path: Path, *, force: bool = False) -> Path:
    """Write the folder; a model that is already there is replaced only after the new files are complete.

    Files of the same names that are not a model's are replaced only by ``force``.
    """
    compiled.require_double()
    check_folder(path, force)
    make_folder(path)
    tensors: dict[str, Tensor] = {}
    places: dict[int, str] = {}  # of stacks: layers that are equal share theirs
    for prefix, module in _named_layers(compiled.module):
        for name in module.matrices:
            stack: SparseStack = getattr(module, name)
            if places.setdefault(id(stack), f"{prefix}.{name}") == f"{prefix}.{name}":
                tensors[f"{prefix}.{name}.index"] = stack.index.to(torch.int32).contiguous()
                tensors[f"{prefix}.{name}.value"] = stack.value.contiguous()
    for name, f in compiled.approximants.items():
        for column in ("knots", "slopes") if isinstance(f, PiecewiseLinear) else ("a", "b", "c"):
            tensors[f"approximant.{name}.{column}"] = torch.tensor(getattr(f, column), dtype=torch.float64)
    config = {
        "format": FORMAT,
        "algorithm": {"kind": compiled.algorithm.kind, **compiled.algorithm.config()},
        "options": dataclasses.asdict(compiled.options),
        "sigma": fingerprint(compiled.options.sigma) if compiled.options.sigma else None,
        "layout": _layout(compiled.program),
        "prompt": _prompt(compiled.program),
        "body": [
            {
                "count": count,
                "layers": [_describe(compiled.target, layer, f"body.{i}.{j}", places) for j, layer in enumerate(block)],
            }
            for i, (count, block) in enumerate(
                zip(compiled.module.counts, compiled.module.stored_blocks(), strict=True)
            )
        ],
        "readout": [
            _describe(compiled.target, layer, f"readout.{j}", places)
            for j, layer in enumerate(compiled.module.stored_readout())
        ],
        "approximants": {
            name: {
                **(
                    {"anchor": f.anchor, "value": f.value}
                    if isinstance(f, PiecewiseLinear)
                    else {"feature": f.feature, "slope": f.slope, "constant": f.constant}
                ),
                "domain": [_finite(end) for end in f.domain],
                "error": _finite(f.error),
                "ramps": [list(ramp) for ramp in f.ramps],
            }
            for name, f in compiled.approximants.items()
        },
    }
    config["digest"] = _digest(tensors)
    _write(path, config, tensors)
    return path


@within_limits("sealing")
def seal(path: str | Path) -> None:
    """Makes a folder whose files were changed on purpose one that loads; whether it is right, ``verify`` says."""
    folder = Path(path)
    config, tensors, _ = _parsed(folder)
    if not isinstance(config, dict):
        raise InputError(f"{folder / CONFIG} is no model's", got=type(config).__name__)
    _write(folder, {**config, "digest": _digest(tensors)}, tensors)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].clone(memory_format=torch.contiguous_format)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _identity(config: Mapping[str, Any]) -> str:
    own = {name: value for name, value in config.items() if name != "id"}
    return hashlib.sha256(json.dumps(own).encode()).hexdigest()


def _write(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Both files, which belong together by the id of the config."""
    identity = {"id": _identity(config)}
    sealed = {SEAL: f"{identity['id']} {config['digest']}"}  # one entry: several are written in any order
    parts = {name: path / f".{name}.{os.getpid()}.part" for name in (WEIGHTS, CONFIG)}
    try:
        save_file(tensors, parts[WEIGHTS], metadata=sealed)
        parts[CONFIG].write_text(json.dumps({**config, **identity}, indent=1) + "\n")
        for name, part in parts.items():
            part.replace(path / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


@within_limits("loading")
def read(path: Path, extensions: tuple[object, ...]) -> Compiled:
    """The model in a folder, weights and approximants as they were saved; see :func:`innergrad.load`."""
    config, tensors = _read(path)
    try:
        algorithm = _algorithm(config["algorithm"], extensions)
        options = check_options(_options(config["options"]))
        if options.sigma and config.get("sigma") != fingerprint(options.sigma):
            what = f"{options.sigma} is not the activation that {path} was compiled with"
            raise InputError(what, hint="in a fresh session, register the function it was compiled with")
        program = prepared(algorithm, options)
        if config.get("layout") != _layout(program):
            what = f"the layout saved in {path / CONFIG} is not that of its algorithm"
            raise InputError(what, hint="the folder was edited, or is from another version")
        approximants = _approximants(program, options, config["approximants"], tensors)
        module = _transformer(TARGETS[options.target], config, tensors)
        compiled = Compiled(algorithm, program, approximants, options, module, loaded=True)
        _check_structure(compiled, config)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RuntimeError) as error:
        what = f"{path} is not a complete model"
        raise InputError(what, got=f"{type(error).__name__}: {error}", hint="save it again") from error
    return compiled


def _transformer(target: Target, config: dict[str, Any], tensors: dict[str, Tensor]) -> LoopedTransformer:
    made: dict[str, SparseStack] = {}
    blocks = [
        [_module(target, layer, tensors, f"body.{i}.{j}", made) for j, layer in enumerate(loop["layers"])]
        for i, loop in enumerate(config["body"])
    ]
    readout = [_module(target, layer, tensors, f"readout.{j}", made) for j, layer in enumerate(config["readout"])]
    return LoopedTransformer(blocks, [loop["count"] for loop in config["body"]], readout)


def _check_structure(compiled: Compiled, config: dict[str, Any]) -> None:
    """The layers, their sizes and the functions are those of the algorithm; the values of the weights are as saved."""
    program = compiled.program
    saved = [(loop["count"], [(layer["name"], layer["kind"]) for layer in loop["layers"]]) for loop in config["body"]]
    expected = [(loop.count, [(layer.name, layer.kind) for layer in loop.layers]) for loop in program.body]
    readout = [(layer["name"], layer["kind"]) for layer in config["readout"]]
    if saved != expected or readout != [(layer.name, layer.kind) for layer in program.readout]:
        raise ValueError("the layers are not those of the algorithm")
    if set(compiled.approximants) != compiled.target.functions.approximated(program):
        raise ValueError(f"the approximants are those of {sorted(compiled.approximants)}")
    counts = compiled.foreseen  # without building the weights again
    rows = [None] * len(program.layers) if counts is None else [count.shapes for count in counts]
    for shapes, module in zip(rows, compiled.module.stored_layers(), strict=True):
        found = {name: getattr(module, name).shape for name in module.matrices}
        if not _fit(module, found, program.stream.d_model) if shapes is None else found != shapes:
            raise ValueError(f"the matrices of layer {module.name} have the wrong shapes")


def _fit(layer: Sublayer, shapes: dict[str, tuple[int, int, int]], d_model: int) -> bool:
    """The matrices of a layer fit one another and the stream."""
    if "W_1" in shapes:
        units = shapes["W_1"][1]
        expected = {"W_1": (1, units, d_model), "b_1": (1, units, 1), "W_2": (1, d_model, units)}
    else:
        (scores, d_head, _), (heads, d_v, _) = shapes["W_Q"], shapes["W_V"]
        own = layer.settings.get("heads")  # where a head may have several scores
        expected = dict.fromkeys(("W_Q", "W_K"), (scores, d_head, d_model))
        expected |= {"W_V": (heads, d_v, d_model), "W_O": (heads, d_model, d_v)}
        if heads != (scores if own is None else len(own)):
            return False
    return all(shape == expected.get(name, shape) for name, shape in shapes.items())  # a part may have others


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not (path / CONFIG).is_file() or not (path / WEIGHTS).is_file():
        raise not_a_model(path)
    config, tensors, metadata = _parsed(path)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(
            f"{path / CONFIG} has an unknown format",
            got=config.get("format") if isinstance(config, dict) else type(config).__name__,
            allowed=FORMAT,
        )
    sealed = metadata.get(SEAL, metadata.get("id", config.get("id")))
    if str(sealed).split(" ")[0] != str(config.get("id")):
        raise InputError(f"{CONFIG} and {WEIGHTS} in {path} are of different models", hint="save it again")
    if {"digest", SEAL} & {*config, *metadata}:  # folders of the first versions have none
        own, digest = _identity(config), _digest(tensors)
        found = {CONFIG: own == config.get("id"), WEIGHTS: digest == config.get("digest")}
        found[WEIGHTS] &= metadata in ({SEAL: f"{own} {digest}"}, {"id": own, "digest": digest}, {"id": own})
        changed = [name for name, same in found.items() if not same]
        if changed:
            hint = "save it again; if it was changed on purpose, innergrad.model.storage.seal(folder) takes it as it is"
            raise InputError(f"{path} is damaged, or was changed after it was saved", got=", ".join(changed), hint=hint)
    return config, tensors


def _parsed(path: Path) -> tuple[Any, dict[str, Tensor], dict[str, str]]:
    """The config, the tensors, and the metadata of the tensors' file."""
    try:
        config = json.loads(read_text(path / CONFIG))
        require_memory(3 * (path / WEIGHTS).stat().st_size, f"loading {path}", "it is larger than this machine")
        content = (path / WEIGHTS).read_bytes()  # not mapped: the model must not change with the file
        tensors = safetensors.torch.load(content)
        return config, tensors, _metadata(content)
    except (ValueError, OSError, SafetensorError, RecursionError) as error:
        raise InputError(f"{path} cannot be read", got=f"{type(error).__name__}: {error}") from error


def _metadata(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file: in its header, after eight bytes that give the header's length."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, str] = header.get("__metadata__", {})
    return metadata


def _algorithm(settings: dict[str, Any], extensions: tuple[object, ...]) -> Algorithm:
    settings = dict(settings)
    kind = settings.pop("kind", None)
    own = {item.kind: item for item in extensions if isinstance(item, type) and issubclass(item, Algorithm)}
    return ALGORITHMS.with_own(own).find(kind).from_config(settings, extensions)


def _options(settings: dict[str, Any]) -> Options:
    """Folders of older versions lack the later options, which then have their defaults."""
    return Options(**{**settings, "epsilons": tuple(tuple(pair) for pair in settings.get("epsilons", ()))})


def _layout(program: Program) -> list[dict[str, Any]]:
    return [
        {
            "name": lane.name,
            "shape": list(lane.shape),
            "offset": program.stream.offsets[lane.name],
            "role": lane.role,
            "shared": lane.shared,
            **({"fill": lane.fill} if lane.fill else {}),
        }
        for lane in program.stream.lanes
    ]


def _prompt(program: Program) -> dict[str, Any]:
    """How examples become tokens, and where predictions are: for readers of the folder; loading does not need it."""
    return {
        "tokens": program.tokens,
        "sink_first": program.sink,
        "causal": program.causal,
        **({} if program.length is None else {"length": program.length}),
        "prediction": {"lane": program.prediction, "sign": program.sign},
        **tokens_of_weights(program),
        **({"batches": [list(batch) for batch in program.batches]} if program.batches else {}),
    }


def tokens_of_weights(program: Program) -> dict[str, Any]:
    """The place of the flat weight vector, if tokens before the examples carry it: [lane, first entries, token], part
    by part. Also the entries of lanes that are 1 there: [lane, token, entry]. Tokens are numbered from 0 after a sink.
    """
    if not program.carriers:
        return {}
    placement = [[part.lane, part.size, part.token] for part in program.placement]
    held = {"placement": placement} if placement else {}
    return {"carriers": program.carriers, **held, "marks": [list(mark) for mark in program.marks]}


def _named_layers(module: LoopedTransformer) -> Iterator[tuple[str, Sublayer]]:
    for i, block in enumerate(module.stored_blocks()):
        for j, layer in enumerate(block):
            yield f"body.{i}.{j}", layer
    for j, layer in enumerate(module.stored_readout()):
        yield f"readout.{j}", layer


def _describe(target: Target, layer: Sublayer, prefix: str, places: dict[int, str]) -> dict[str, Any]:
    stored = {name: places[id(getattr(layer, name))] for name in layer.matrices}
    stored = {name: place for name, place in stored.items() if place != f"{prefix}.{name}"}
    kind = next(kind for kind, module in target.modules.items() if type(layer) is module)
    return {
        "name": layer.name,
        "kind": kind,
        "shapes": {name: list(getattr(layer, name).shape) for name in layer.matrices},
        **({"settings": layer.settings} if layer.settings else {}),
        **({"stored": stored} if stored else {}),
    }


def _module(
    target: Target, entry: dict[str, Any], tensors: dict[str, Tensor], prefix: str, made: dict[str, SparseStack]
) -> Sublayer:
    stacks = []
    kind = target.modules[entry["kind"]]
    for name in kind.matrices:
        shape = tuple(entry["shapes"][name])
        if any(type(size) is not int for size in shape):  # true is 1 where entries are compared, and no size elsewhere
            raise ValueError(f"{prefix}.{name} has a shape that is no numbers: {shape}")
        place = entry.get("stored", {}).get(name, f"{prefix}.{name}")
        if place in made:
            stacks.append(made[place])
            continue
        index, value = tensors[f"{place}.index"].long(), tensors[f"{place}.value"]
        limit = torch.tensor(shape).unsqueeze(-1)
        if (
            len(shape) != 3
            or value.ndim != 1
            or index.shape != (3, len(value))
            or bool((index < 0).any())
            or bool((index >= limit).any())
        ):
            raise ValueError(f"{prefix}.{name} has entries outside its shape {shape}")
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{prefix}.{name} has weights that are not finite")
        made[place] = SparseStack(shape, index, value.double())
        stacks.append(made[place])
    return kind(entry["name"], *stacks, **entry.get("settings", {}))


def _approximants(
    program: Program, options: Options, entries: dict[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Approximant]:
    """The approximants with their true errors, no matter what the folder says."""
    functions = program.functions()
    unknown = sorted(set(entries) - set(functions))
    if unknown:
        raise ValueError(f"approximants of functions that the program does not have: {unknown}")
    try:
        found = ((name, _approximant(entry, tensors, name)) for name, entry in entries.items())
        return {name: checked(functions[name], f, accuracy(options, name)) for name, f in found}
    except InputError as error:
        what = "an approximant in the folder does not fit its function"
        raise InputError(what, got=str(error), hint="the folder was edited, or is from another version") from error


def accuracy(options: Options, name: str) -> float:
    """Tables are exact for every epsilon; other functions have their own."""
    return 1e-3 if options.variant == "lookup" else options.accuracy(name)


def _approximant(entry: dict[str, Any], tensors: dict[str, Tensor], name: str) -> Approximant:
    lo, hi = (None if end is None else _number(end) for end in entry["domain"])

    def column(field: str) -> tuple[float, ...]:
        tensor = tensors[f"approximant.{name}.{field}"]
        if tensor.ndim != 1 or not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"approximant.{name}.{field} is no list of numbers")
        return tuple(tensor.tolist())

    known = (
        (-math.inf if lo is None else lo, math.inf if hi is None else hi),
        math.inf if entry["error"] is None else _number(entry["error"]),
        tuple((_number(low), _number(high)) for low, high in entry["ramps"]),
    )
    if any(low >= high for low, high in known[2]):
        raise ValueError(f"the ramps of {name} are no intervals")
    if "feature" in entry:
        kind, a, b, c = entry["feature"], column("a"), column("b"), column("c")
        if kind not in FEATURES or not len(a) == len(b) == len(c):
            raise ValueError(f"approximant {name} is no sum of features")
        return FeatureSum(kind, a, b, c, _number(entry["slope"]), _number(entry["constant"]), *known)
    return PiecewiseLinear(column("knots"), column("slopes"), _number(entry["anchor"]), _number(entry["value"]), *known)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
