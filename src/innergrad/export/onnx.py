"""A compiled transformer of any target as an ONNX file: the residual stream in, the residual stream out, float32."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from innergrad.errors import InputError, require_packages
from innergrad.export.note import note
from innergrad.files import Writer, make_folder, whole
from innergrad.targets.weights.modules import SparseStack
from innergrad.transformer import CompiledTransformer

OPSET = 20


class DenseStack(SparseStack):
    """The matrices of a :class:`SparseStack`, dense, with the same methods: ONNX has no sparse products."""

    def __init__(self, stack: SparseStack) -> None:
        nn.Module.__init__(self)
        self.shape = stack.shape
        self.value = nn.Parameter(stack.dense().float(), requires_grad=False)

    def dense(self, device: torch.device | str | None = None) -> Tensor:
        return self.value.to(device)

    def tall(self) -> Tensor:
        return self.value.reshape(-1, self.shape[2])

    def wide(self) -> Tensor:
        return self.value.permute(1, 0, 2).reshape(self.shape[1], -1)


def dense_module(tf: CompiledTransformer) -> nn.Module:
    """A copy of ``tf.module`` in float32 with dense matrices; layers that are equal share them."""
    tf.require_double()
    module = copy.deepcopy(tf.module)
    made: dict[int, DenseStack] = {}
    for layer in module.stored_layers():
        for name in layer.matrices:
            stack = getattr(layer, name)
            if not isinstance(stack, DenseStack):
                setattr(layer, name, made.setdefault(id(stack), DenseStack(stack)))
    return _Layers(module)


class _Layers(nn.Module):
    """The forward pass without its check of the input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, stream: Tensor) -> Tensor:
        for layer in self.module.layers():  # type: ignore[operator]
            stream = layer(stream)
        return stream


def export_onnx(tf: CompiledTransformer, path: str | Path, *, force: bool = False) -> Path:
    """Write a file for ONNX Runtime: input ``stream``, output ``learned``, both (batch, tokens, d_model) float32.

    Its metadata ``innergrad`` says where predictions are, and has a prompt that ``check`` tries it on. Every layer is
    written out, so hundreds of layers take minutes. An earlier export is replaced.

    Args:
        tf: what to export.
        path: the file.
        force: also replace another file.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import check, export_onnx
        >>> tf = ig.compile(ig.FunctionalGradientDescent("linear", steps=1, d=1, step=0.1), n_examples=2)
        >>> check(export_onnx(tf, "descent.onnx")) < 1e-4
        True
    """
    path = Path(path)
    tf.check_steps(torch.float32, as_weights=True)
    if path.is_dir():
        raise InputError("an ONNX model is one file", got=f"{path}, a folder", hint=f"give {path / 'model.onnx'}")
    writer = Writer("export", force=force)
    writer.check(path)
    make_folder(path.parent)
    tokens = tf.program.length or tf.options.n_examples + 3
    example = torch.zeros(2, tokens, tf.d_model)
    example[..., tf.program.stream.entry("one")] = 1.0
    example[..., tf.program.stream.entry("t")] = 1.0
    require_packages("writing ONNX", "onnx", "onnxscript")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            dense_module(tf).eval(),
            (example,),
            input_names=["stream"],
            output_names=["learned"],
            dynamic_shapes={"stream": {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    content = note(tf, torch.float32) | writer.marked({})  # the mark at the end, where it is looked for
    program.model.metadata_props["innergrad"] = json.dumps(content)
    with whole(path) as part:
        program.save(str(part))
    return path
