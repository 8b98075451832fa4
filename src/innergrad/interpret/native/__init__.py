"""The compiled path of the fused executor: a graph as C++, built on demand."""

from innergrad.interpret.native.kernel import NativeLoop, NoCompiler
from innergrad.interpret.native.source import Unsupported

__all__ = ["NativeLoop", "NoCompiler", "Unsupported"]
