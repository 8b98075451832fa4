"""Every check of the stored results can fail: one number of a copy of results/ is changed, and the check says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import _results
import bridges
import check_results
import tables
from checks import claims, variants

ROOT = Path(__file__).parent.parent
Place = tuple[Any, ...]  # keys and numbers of entries, down to the number


def times(factor: float) -> Callable[[Any], Any]:
    return lambda value: value * factor


def to(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


MODELS = ("models", "2-layer networks", "curves", "model", "squared error")
CHANGES: dict[str, tuple[str, Place, Callable[[Any], Any]]] = {
    "certificates.no_certificate_is_violated": ("certificates_violations", ("oracles_apart",), to(1e-11)),
    "certificates.certificates_are_as_tight_as_claimed": ("certificates_tightness", ("tightness", 5, "sup"), to(61)),
    "certificates.no_attack_breaks_a_certificate": ("certificates_attack", ("attack", 3, "closest"), to(1.01)),
    "certificates.trajectories_are_as_tight_as_claimed": (
        "certificates_trajectory",
        ("trajectory", 0, "violations"),
        to(1),
    ),
    "certificates.long_paths_on_llama_are_bounded": (
        "certificates_llama_trajectory",
        ("trajectory", 1, "bound"),
        to(2e-3),
    ),
    "certificates.no_certificate_on_llama_is_violated": ("certificates_llama", ("violations",), to([{"number": 1}])),
    "claims.every_stored_verdict_is_accepted": ("claims", ("claims", 7, "measured"), to(1e-3)),
    "diffusion.in_context_equals_direct_training": ("diffusion", ("studies", 1, "score_difference"), to(2e-3)),
    "diffusion.rounding_is_all_that_differs": ("diffusion", ("orders", 5, "float64"), to(2e-12)),
    "diffusion.eight_gaussians_are_sampled": (
        "diffusion",
        ("seeds", 0, "on_the_scale", "energy distance", "in context"),
        to(0.21),
    ),
    "diffusion.certificates_hold": ("diffusion", ("certificates", 0, "score_apart"), to(1.0)),
    "executor.the_grid_is_whole_and_meets_its_goals": ("executor_grid_1", ("rows", 9, "ratio"), to(1.01)),
    "executor.batches_are_faster_than_vmap": ("executor_batch_gpu", ("rows", 0, "ratio"), to(float("nan"))),
    "papers.the_gradient_stays_in_the_predicted_set": ("functional_theorems", ("set", 4, "averaged"), to(1e-3)),
    "papers.descent_on_the_set_ends_where_the_full_gradient_vanishes": (
        "functional_theorems",
        ("flow", 2, "predicted"),
        to(1e-2),
    ),
    "papers.complex_steps_would_err_less_where_labels_are_not_linear": (
        "functional_rotations",
        ("rows", 1, "gain", 1),
        to(2e-4),
    ),
    "papers.training_ends_near_the_best_turned_weights": ("functional_rotations", ("rows", 2, "distances", 0), to(0.1)),
    "executor.the_large_network_fits": ("executor_memory", ("rows", -4, "peak_mib"), to(8193)),
    "executor.a_thousand_steps_end_where_autograd_does": ("executor_steps", ("rows", 1, "held"), to(False)),
    "executor.operations_are_counted_by_the_one_counter": ("executor_dense", ("rows", 0, "flops_structured"), times(2)),
    "executor.a_kernel_is_built_once": ("executor_auto", ("rows", 1, "processor_seconds"), to(1.0)),
    "lab.the_stored_run_is_the_shipped_configuration": ("lab_three_tasks", ("training", "seconds"), times(6)),
    "lab.the_stored_run_holds_its_claims": ("lab_three_tasks", ("claims", 2, "holds"), to(False)),
    "lab.learners_come_as_near_to_the_best_as_the_pages_say": ("lab_three_tasks", (*MODELS, 10, "value"), times(1.03)),
    "lab.the_evaluation_is_whole": ("lab_full", ("n_prompts",), to(6399)),
    "llama.stock_covers_every_depth_and_loss": ("llama_stock", ("rows",), lambda rows: rows[30:]),
    "llama.blocks_of_stock_models_are_the_formulas": ("llama_stock", ("rows", 3, "blocks_float64"), times(2)),
    "llama.stock_models_are_within_their_limits": ("llama_stock", ("rows", 2, "weights_float64", 4), to(1.1e-11)),
    "llama.long_runs_are_exact_where_they_are_not_chaotic": (
        "llama_stock",
        ("rows",),
        lambda rows: [row | {"growth_later": [1e3]} for row in rows],
    ),
    "score_learner.the_learner_wins_with_64_samples": (
        "score_learner",
        ("dimensions", 0, "counts", 1, "methods", 1, "gain"),
        to(-0.01),
    ),
    "score_learner.every_method_is_measured": (
        "score_learner",
        ("dimensions", 0, "counts", 0, "methods", 2, "error"),
        times(9),
    ),
    "products.sizes_of_squares_are_the_formula": ("products", ("sizes", -1, "heads"), times(1.1)),
    "products.products_and_selecting_heads_are_the_same_numbers": ("products", ("scales", 0, "max"), times(1.1)),
    "products.errors_of_squares_are_within_what_was_proven": ("products", ("scales", -1, "max"), times(1e9)),
    "products.rounding_of_positions_does_not_grow_in_the_built_layer": ("products", ("codes", 0, "last"), times(4)),
    "products.steps_of_training_round_as_training_does": ("products", ("training", 0, "error"), times(4)),
    "products.outside_is_always_said": ("products", ("outside", 0, "says"), to("outside")),
    "reliability.every_kill_is_as_if_it_never_was": ("kills", ("kills",), to(499)),
    "reliability.rows_are_what_they_are_alone": ("invariance", ("apart",), to([{"share": 2.0}])),
    "reliability.no_bit_flips_without_a_word": ("damage", ("rows", 0, "raw"), to(1)),
    "reliability.whatever_is_read_gets_a_sentence": ("mutations", ("wrong",), to([{"verdict": "raw"}])),
    "training.speeds_add_up": ("training_speed_cpu", ("stacks", 0, "against_reference"), times(1.02)),
    "training.speeds_on_a_gpu_are_those_asked_for": ("training_speed_cuda", ("stacks", 0, "mfu"), times(1.1)),
    "training.operations_are_counted_by_the_one_counter": ("training_speed_cpu", ("gflop_a_step",), times(1.01)),
    "training.curves_are_one_training": ("training_curve_cpu", ("plain",), lambda rows: [[1.0] * len(rows[0])] * 5),
    "training.curves_a_window_late_are_told_apart": (
        "training_curve_cpu",
        ("fast",),
        lambda rows: [row[1:] + row[-1:] for row in rows],
    ),
    "training.loops_are_as_near_as_the_page_says": ("training_target_cuda", ("rows", 0, "steps_a_second"), times(1.1)),
    "training.the_race_was_won_by_reaching_the_target": ("training_target_cpu", ("rows", 1, "reached"), to(False)),
    "variants.depths_are_the_formulas": ("variants", ("variants", 2, "layers"), times(2)),
    "variants.errors_of_variants_are_as_the_page_says": ("variants", ("variants", 3, "median"), times(1 + 1e-8)),
    "variants.the_width_of_narrow_is_a_straight_line_and_that_of_literal_is_none": (
        "variants",
        ("fits", 1, "slope"),
        times(1.01),
    ),
    "variants.lanes_of_jacobians_are_the_formula": ("variants", ("jacobians", -1, "lanes"), times(2)),
    "variants.joint_knots_are_fewer_than_both": ("variants", ("knots", 0, "joint"), times(2)),
    "variants.every_rule_is_torch_optim": ("optimisers", ("rules", 0, "distance"), to(1e-12)),
    "variants.adam_is_certified_and_falls_with_epsilon": ("optimisers", ("adam", 0, "first"), times(2)),
}
OF_PAGES = {"claims.rows_of_the_page_name_tests_that_exist", "variants.pages_have_all_tables_of_their_benchmarks"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of results/, which the checks read instead."""
    monkeypatch.setattr(_results, "RESULTS", Path(shutil.copytree(_results.RESULTS, tmp_path / "results")))
    return _results.RESULTS


def test_every_check_is_changed_below() -> None:
    assert {*CHANGES, *OF_PAGES} == set(check_results.checks())


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_number_is_found_and_named(name: str, results: Path) -> None:
    file, place, change = CHANGES[name]
    path = results / f"{file}.json"
    stored = entry = json.loads(path.read_text())
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]] = change(entry[place[-1]])
    path.write_text(json.dumps(stored))
    line = check_results.failure(name)
    assert line is not None
    assert line.startswith(f"{name}: results/{file}.json, ")
    assert "\n" not in line


def test_a_file_that_is_not_there_is_a_line(results: Path) -> None:
    (results / "variants.json").unlink()
    line = check_results.failure("variants.depths_are_the_formulas")
    assert line is not None
    assert "cannot be read" in line
    assert "variants.json" in line
    assert "\n" not in line


def test_pages_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("variants", "optimisers", "ledger"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        (tmp_path / f"{page}.md").write_text(text.replace("<!-- table: ", "<!-- ", 1).replace("` |\n", "x` |\n", 1))
    monkeypatch.setattr(variants, "DOCS", tmp_path)
    monkeypatch.setattr(claims.bench, "PAGE", tmp_path / "ledger.md")
    assert all(check_results.failure(name) for name in OF_PAGES)


def test_the_script_fails_with_a_line_for_each_check(results: Path) -> None:
    """Its exit code is what ``make check`` goes by; the stored results themselves are for ``make check`` to judge."""
    (results / "lab_full.json").write_text("{}")
    with pytest.raises(SystemExit) as stop:
        check_results.main()
    *lines, last = str(stop.value.code).splitlines()  # a text that is no number is exit code 1
    assert [line.split(":")[0] for line in lines] == ["lab.the_evaluation_is_whole"]
    assert last == f"1 of {len(check_results.checks())} checks of results/ failed"


def test_a_table_that_is_not_what_the_results_say_is_found() -> None:
    """By the comparison that ``tables.py --check`` and ``bridges.py --check`` make."""
    for render, page in ((tables.rendered, ROOT / "docs" / "variants.md"), (bridges.rendered, bridges.PAGE)):
        text = page.read_text()
        start = text.index("<!-- table: ")
        changed = text[:start] + text[start:].replace("|\n", "| changed |\n", 1)
        assert changed != text
        assert render(changed) == render(text) != changed
