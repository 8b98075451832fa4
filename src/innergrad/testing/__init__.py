"""The battery that every algorithm inherits, for authors of extensions: see :class:`Conformance`.

case          an algorithm, how it is compiled, and the prompts it is tried on
judges        how far two computations of the same numbers may be apart
laws          statements about every compiled transformer, one function a law
forward       a forward pass of a saved folder in numpy, which knows nothing of this library
conformance   the laws as tests that pytest collects
"""

from __future__ import annotations

try:
    import pytest
except ModuleNotFoundError as error:
    raise ImportError("innergrad.testing needs pytest: pip install pytest") from error

# a law that fails shows its numbers, as a test does
pytest.register_assert_rewrite("innergrad.testing.laws", "innergrad.testing.conformance")

from innergrad.testing.case import Case  # noqa: E402
from innergrad.testing.conformance import Conformance  # noqa: E402

__all__ = ["Case", "Conformance"]
