"""Attention, LayerNorm and GELU of the learners: each plain torch, and a Triton kernel that computes the same on a GPU.

attention.py, norms.py                 the functions; they choose between plain torch and the kernel
attention_triton.py, norms_triton.py   the kernels; imported when the first one runs
"""

from innergrad.lab.kernels.attention import attend, attention_pattern
from innergrad.lab.kernels.norms import add_norm, bias_gelu

__all__ = ["add_norm", "attend", "attention_pattern", "bias_gelu"]
