"""Checkpoints of Garg et al. (2022), and of all who train in their way: a GPT-2 with a linear read-in and read-out.

    tokens x_1, (y_1, 0, ..., 0), x_2, ...   --read_in-->   GPT-2   --read_out-->   y_k, read at x_k

With these weights, :class:`innergrad.lab.learners.gpt.GPT` is that model. Its embedding has a row for the label and one
for each input. Here the row of the label is the column of the read-in for the first input, where labels stand. A
read-out of k numbers is of labels that are vectors; these stand at the first k inputs.

A checkpoint is a state dict in a safetensors file. Their own files are pickles. A pickle runs code when it is loaded,
so none is; the error says how to convert it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from innergrad.errors import InputError, integer
from innergrad.lab import checkpoints
from innergrad.lab.learners.gpt import GPT, GPT2, GPT2_BLOCK, GPTConfig

HEAD = 32  # numbers of a head in all models of the paper
PREFIX = re.compile(r"^(?:module\.|_orig_mod\.|model\.)*_?(read_in|read_out|backbone|transformer)\.")
UNUSED = re.compile(r"wte\.weight|h\.\d+\.attn\.(?:bias|masked_bias)")  # of words; and the mask, which is known
POSITIONS, HIDDEN = GPT2["W_pos"], f"h.0.{GPT2_BLOCK['W_in']}"
CONVERT = (
    "convert it where you trust it: torch.load(path, map_location='cpu', weights_only=True), then "
    "safetensors.torch.save_file(state['model_state_dict'], 'model.safetensors')"
)


def load_garg(source: str | Path | Mapping[str, Tensor], *, n_heads: int | None = None) -> GPT:
    """A checkpoint of Garg et al. (2022) as a learner: GPT-2 blocks between a linear read-in and read-out.

    Args:
        source: a safetensors file, or a state dict: ``_read_in``, ``_backbone`` (or ``transformer``) and ``_read_out``.
            A pickle is refused, with the way to convert it.
        n_heads: heads. Weights do not say it; by default heads of 32 numbers, as in all models of the paper. A width
            that is no multiple of 32 needs it.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> made = lab.GPTConfig(n_layers=1, d_model=32, n_heads=1, d_mlp=64).build(d=3, n_points=5).init([0])
        >>> state = {f"_backbone.{name}": value for name, value in made.to_gpt2().items()}
        >>> state |= {"_read_in.weight": torch.ones(32, 3), "_read_in.bias": torch.zeros(32)}
        >>> state |= {"_read_out.weight": torch.ones(1, 32), "_read_out.bias": torch.zeros(1)}
        >>> learner = lab.load_garg(state)
        >>> tuple(learner.predict(torch.zeros(2, 5, 3), torch.zeros(2, 5)).shape)
        (2, 5)
    """
    if not isinstance(source, str | Path | Mapping):
        raise InputError("load_garg takes a safetensors file or a state dict", got=type(source).__name__)
    name = "the state dict" if isinstance(source, Mapping) else str(source)
    state = source if isinstance(source, Mapping) else checkpoints.read_tensors(Path(source), hint=CONVERT)[1]
    parts = _parts(state, name)
    shapes = {key: tuple(value.shape) for key, value in parts.items()}
    config, d, n_points, outputs = _shape(shapes, n_heads, name)
    learner = config.build(d, n_points, outputs=outputs)
    wanted = {home: tuple(value.shape) for home, value in learner.to_gpt2().items()}
    wanted |= {"read_in.weight": (config.d_model, d), "read_in.bias": (config.d_model,)}
    wanted |= {
        "read_out.weight": (outputs, config.d_model),
        "read_out.bias": (outputs,),
        POSITIONS: (shapes[POSITIONS][0], config.d_model),
    }
    for key in sorted(wanted.keys() | shapes.keys()):
        if wanted.get(key) != shapes.get(key):
            got, allowed = shapes.get(key, "no such tensor"), str(wanted.get(key, "no such tensor"))
            raise InputError(f"{name} is no GPT-2 with a read-in and a read-out: {key}", got=got, allowed=allowed)
    with torch.no_grad():
        learner.load_gpt2(parts)
        read_in = parts["read_in.weight"]
        learner.get_parameter("W_E")[0].copy_(torch.cat((read_in[:, :outputs], read_in), 1).T)
        learner.get_parameter("b_E")[0].copy_(parts["read_in.bias"])
        learner.get_parameter("W_U")[0].copy_(parts["read_out.weight"].T)
        learner.get_parameter("b_U")[0].copy_(parts["read_out.bias"])
    return learner.eval()


def _parts(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors by short names: read_in.weight, h.0.ln_1.weight, ..."""
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        start = PREFIX.match(key) if isinstance(key, str) else None
        if start is None or not isinstance(value, Tensor):
            allowed = "names that begin with _read_in, _backbone (or transformer) or _read_out"
            raise InputError(f"{name} has something that is no part of such a model", got=key, allowed=allowed)
        rest = key[start.end() :]
        short = f"{start[1]}.{rest}" if start[1].startswith("read") else rest
        if UNUSED.fullmatch(short):
            continue
        if short in found:
            raise InputError(f"{name} has two tensors for {short}", got=key, hint="leave one of them out")
        _check_numbers(value, f"{name}: {key}")
        found[short] = value.float()
    return found


def _check_numbers(value: Tensor, name: str) -> None:
    """Real ones, all finite."""
    if value.is_meta or not value.is_floating_point():
        got = "a tensor on the meta device" if value.is_meta else str(value.dtype)
        raise InputError(f"{name} has no weights", got=got, allowed="floating-point numbers")
    if not bool(value.isfinite().all()):
        raise InputError(f"{name} is broken", got="NaN or infinity", hint="take an earlier checkpoint")


def _shape(shapes: Mapping[str, tuple[int, ...]], n_heads: int | None, name: str) -> tuple[GPTConfig, int, int, int]:
    """The learner's shape, d, the longest prompts, and the numbers of a label."""
    for key in ("read_in.weight", "read_out.weight", POSITIONS, HIDDEN):
        if len(shapes.get(key, ())) != 2:
            raise InputError(f"{name} is no GPT-2 with a read-in and a read-out", got=f"no matrix {key}")
    (width, d), (positions, _), (_, hidden) = (shapes[key] for key in ("read_in.weight", POSITIONS, HIDDEN))
    blocks = {key.split(".")[1] for key in shapes if key.startswith("h.")}
    if n_heads is None and width % HEAD:
        hint = "n_heads=; the weights do not say how many there are"
        raise InputError(f"{name}: heads of {HEAD} numbers do not fit", got=f"a width of {width}", hint=hint)
    heads = width // HEAD if n_heads is None else integer("n_heads", n_heads)
    outputs = shapes["read_out.weight"][0]
    if not 1 <= outputs <= d:
        got, allowed = f"{outputs} numbers, of points of {d}", f"1 to {d}"
        raise InputError(f"{name}: the read-out is wider than a token", got=got, allowed=allowed)
    return GPTConfig(len(blocks), width, heads, hidden), d, (positions + 1) // 2, outputs
