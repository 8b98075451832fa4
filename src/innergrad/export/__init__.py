"""Compiled transformers for other people's software: Hugging Face's GPT-2, Llama and their like, ONNX Runtime."""

from innergrad.export.checking import check, predict
from innergrad.export.gpt2 import GPT2Export, export_gpt2, gpt2_inputs, gpt2_stream, sizes_of, to_gpt2
from innergrad.export.heads import LlamaExport
from innergrad.export.llama import export_llama, llama_inputs, llama_sizes, llama_stream, to_llama
from innergrad.export.onnx import export_onnx

__all__ = [
    "GPT2Export",
    "LlamaExport",
    "check",
    "export_gpt2",
    "export_llama",
    "export_onnx",
    "gpt2_inputs",
    "gpt2_stream",
    "llama_inputs",
    "llama_sizes",
    "llama_stream",
    "predict",
    "sizes_of",
    "to_gpt2",
    "to_llama",
]
