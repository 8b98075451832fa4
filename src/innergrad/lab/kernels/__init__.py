"""Attention, LayerNorm and GELU of the learners: each plain torch, and a Triton kernel that computes the same on a GPU.

attention.py, norms.py, sets.py        the functions; they choose between plain torch and the kernel
*_triton.py                            the kernels; imported when the first one runs
"""

from innergrad.lab.kernels.attention import attend, attention_pattern
from innergrad.lab.kernels.norms import add_norm, bias_gelu
from innergrad.lab.kernels.sets import attend_set

__all__ = ["add_norm", "attend", "attend_set", "attention_pattern", "bias_gelu"]
