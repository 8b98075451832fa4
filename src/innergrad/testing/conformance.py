"""The laws as tests: a class to inherit from, whose methods pytest collects in the author's own test file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError
from innergrad.testing import laws
from innergrad.testing.case import Case
from innergrad.testing.judges import too_steep

LONG = 40  # examples: beyond 32, where a code of positions or a sum over tokens that is too short would show


class Conformance:
    """The tests that an algorithm of your own inherits.

    Pytest collects a test for every law that a compiled transformer must obey.

    The laws compare with the algorithm's own ``reference``. Write that by other means than the program: autograd, or a
    closed form. Prompts are those of ``random_prompt``, and start from Gaussian weights; override ``prompt`` or
    ``start`` if that does not suit. An algorithm that goes through the examples in order says ``ordered = True``. For a
    table of algorithms override ``cases``; each is compiled once. ``long_cases`` are those that get prompts of 40
    examples.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.testing import Conformance
        >>> class TestMine(Conformance):
        ...     def algorithm(self):
        ...         return ig.OnlineSGD(d=2)
        ...     def options(self):  # of ig.compile, if not the defaults
        ...         return {"n_examples": 4}
        >>> any(name.startswith("test_") for name in dir(TestMine))
        True
    """

    ordered: bool = False
    extensions: tuple[object, ...] = ()

    def algorithm(self) -> Algorithm:
        raise NotImplementedError(f"{type(self).__name__} has to say which algorithm: def algorithm(self)")

    def options(self) -> dict[str, Any]:
        return {}

    def prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """One random prompt: X (n, d), y (n, d_y), X_query (n_query, d)."""
        return self.algorithm().random_prompt(n, n_query, generator)

    def start(self, generator: torch.Generator) -> Tensor | None:
        """Random weights w0 (D_w,) for a prompt to start from; None: Gaussian ones, inside the weights' bounds."""
        del generator
        return None

    def cases(self) -> Mapping[str, Case]:
        algorithm = self.algorithm()
        case = Case(
            algorithm,
            self.options(),
            ordered=self.ordered,
            draw=self.prompt,
            extensions=self.extensions,
            start=self.start,
        )
        return {algorithm.kind: case}

    def long_cases(self) -> Mapping[str, Case]:
        return {name: case.of(LONG) for name, case in self.cases().items()}

    # -------------------------------------------------------------------------------------------------------- pytest

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Tests that take ``case`` or ``long_case`` run for each of them."""
        for argument, table in _tables(type(self)).items():  # type: ignore[arg-type]  # a class can be hashed
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, list(table.values()), ids=list(table), scope="class")

    # ---------------------------------------------------------------------------------------------------------- laws

    def test_dense_equals_plain(self, case: Case) -> None:
        laws.dense_equals_plain(case.tf, case.prompts(3))

    def test_the_certificate_holds(self, case: Case) -> None:
        laws.the_certificate_holds(case.tf, case.prompts(2))

    def test_the_certificate_holds_in_float32(self, case: Case) -> None:
        if case.float32 and not too_steep(case.tf, as_weights=True):
            laws.the_certificate_holds(case.tf, case.prompts(2), "dense", torch.float32)
        else:  # rounding the argument of so steep a weight would change everything
            with pytest.raises(InputError, match="too steep"):
                case.tf.certify(**case.prompts(2), executor="dense", dtype=torch.float32)

    def test_an_independent_forward_pass_of_the_saved_folder_agrees(self, case: Case, tmp_path: Path) -> None:
        laws.an_independent_forward_pass_agrees(case.tf, case.prompts(1), tmp_path)

    def test_every_law_of_verify_holds(self, case: Case) -> None:
        report = case.tf.verify(**case.prompts(2))
        assert report.passed, str(report)
        laws.the_proof_is_one(case.tf, report)

    def test_save_and_load_is_the_identity(self, case: Case, tmp_path: Path) -> None:
        laws.save_and_load_is_the_identity(case.tf, case.prompts(2), tmp_path, case.extensions)

    def test_rows_are_what_they_are_alone(self, case: Case) -> None:
        laws.rows_are_what_they_are_alone(case.tf, case.prompts(3), case.ordered)

    def test_the_order_of_the_examples_matters_where_it_should(self, case: Case) -> None:
        if case.ordered:
            laws.the_order_of_examples_matters(case.tf, case.prompts(3))

    def test_cost_counts_the_weights_that_are_there(self, case: Case) -> None:
        laws.cost_counts_the_weights_that_are_there(case.tf)

    def test_the_state_dict_is_dense_and_loads_back(self, case: Case) -> None:
        laws.the_state_dict_is_dense_and_loads_back(case.compile(), case.prompts(1))

    def test_float32_is_close_to_float64(self, case: Case) -> None:
        laws.float32_is_close_to_float64(case.tf, case.prompts(2))

    # -------------------------------------------------------------------------------------------------- long prompts

    @pytest.mark.parametrize("equal", [False, True], ids=["different", "equal"])
    def test_long_prompts_dense_equals_plain(self, long_case: Case, equal: bool) -> None:
        laws.dense_equals_plain(long_case.tf, long_case.full(1, equal))

    @pytest.mark.parametrize("equal", [False, True], ids=["different", "equal"])
    def test_long_prompts_the_certificate_holds(self, long_case: Case, equal: bool) -> None:
        laws.the_certificate_holds(long_case.tf, long_case.full(1, equal))

    @pytest.mark.parametrize("equal", [False, True], ids=["different", "equal"])
    def test_long_prompts_every_law_of_verify_holds(self, long_case: Case, equal: bool) -> None:
        report = long_case.tf.verify(**long_case.full(1, equal))
        assert report.passed, str(report)

    def test_long_prompts_save_and_load_is_the_identity(self, long_case: Case, tmp_path: Path) -> None:
        laws.save_and_load_is_the_identity(long_case.tf, long_case.full(1), tmp_path, long_case.extensions)


@cache
def _tables(battery: type[Conformance]) -> dict[str, Mapping[str, Case]]:
    """Of a class, once: all its tests share the compiled transformers."""
    one = battery()
    return {"case": one.cases(), "long_case": one.long_cases()}
