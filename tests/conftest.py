"""Shared by all tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy.fft  # noqa: F401  loads once in a process: not first inside pytester, which forgets what it imported
import pytest
import torch

pytest_plugins = ["pytester"]
for folder in ("examples", "benchmarks"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

from cases import CASES, LONG  # noqa: E402
from innergrad.errors import InputError  # noqa: E402

OPTIONAL = {  # what is not installed without extras
    **dict.fromkeys(("matplotlib", "PIL", "sklearn", "joblib"), "demo"),
    "pandas": "tables",
    **dict.fromkeys(("onnx", "onnxscript", "onnxruntime", "transformers"), "export"),
    **dict.fromkeys(("transformer_lens", "nnsight"), "interpretability"),
    **dict.fromkeys(("mkdocs", "griffe", "yaml"), "docs"),
    **dict.fromkeys(("scipy", "mpmath", "flint"), "dev"),
}


ABSENT = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}
HINT = "pip install"


def missing(error: BaseException | str | None) -> str:
    """What an extra would bring, if that is why something could not be imported, or was refused for the lack of it."""
    text = error if isinstance(error, str) else str(error) if isinstance(error, InputError) else ""
    names = [name for name in ABSENT if name.replace("sklearn", "scikit-learn") in text or name in text]
    if names and HINT in text:
        return text.strip()
    while isinstance(error, BaseException) and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    name = (getattr(error, "name", "") or "").partition(".")[0]
    return f"{name} is not installed: pip install 'innergrad[{OPTIONAL[name]}]'" if name in ABSENT else ""


class Module(pytest.Module):
    """A module of tests, skipped as a whole where it needs what an extra would bring."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if reason := missing(error.__cause__):
                pytest.skip(reason, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return Module.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    try:
        return (yield)
    except (ImportError, InputError) as error:
        if reason := missing(error):
            pytest.skip(reason)
        raise


#: Of these tests ``make test`` runs one case in so many, each law on other cases than the last; ``make soak`` the rest.
#: It is for tables of like cases, any of which could stand for the others; a shorter one runs as a whole.
#: What is long by itself, a test or one value of a parameter, carries the mark ``soak`` where it stands.
SAMPLED = {
    "test_the_certificate_holds": 10,
    "test_the_certificate_holds_in_float32": 12,
    "test_every_law_of_verify_holds": 10,
    "test_rows_are_what_they_are_alone": 8,
    "test_long_prompts_every_law_of_verify_holds": 9,
    "test_long_prompts_the_certificate_holds": 9,
    "test_long_prompts_dense_equals_plain": 3,
    "test_the_state_dict_is_dense_and_loads_back": 5,
    "test_fused_equals_dense": 12,
    "test_a_prompt_does_not_depend_on_its_batch": 5,
    "test_its_certificate_holds": 10,
    "test_gradient_descent_on_relu_attention_is_compiled": 2,
    "test_float32_is_within_the_radius_of_float64": 10,
    "test_every_choice_is_the_same_in_every_interpreter": 4,
    "test_no_weight_is_farther_off_than_certified": 8,
    "test_a_step_from_every_point_of_the_ellipsoid_is_enclosed": 3,
    "test_every_bound_holds": 4,
    "test_one_corrupted_weight_in_any_matrix_is_noticed_and_its_layer_named": 6,
    "test_a_corrupted_weight_of_any_layer_is_noticed": 3,
    "test_a_corrupted_weight_of_a_value_output_or_mlp_matrix_is_noticed": 2,
    "test_a_corrupted_weight_of_the_units_that_set_pads_back_is_noticed": 3,
    "test_queries_or_keys_set_to_zero_are_noticed": 2,
    "test_verify_passes_and_notices_a_corrupted_weight": 5,
    "test_verify_notices_one_changed_weight": 2,
    "test_every_algorithm_verifies": 4,
    "test_piecewise_linear_networks_are_exact_without_ramp_hits": 3,
    "test_gradient_error_is_a_few_epsilon": 7,
    "test_gradient_error_of_the_dense_transformer": 3,
    "test_with_a_sink_twenty_steps_are_those_of_autograd": 3,
    "test_without_a_sink_a_large_network_is_trained_as_by_autograd": 2,
    "test_every_kind_of_training_is_that_of_autograd": 3,
    "test_biases_losses_and_other_networks": 4,
    "test_deep_networks_are_trained_by_the_recursion_and_by_backprop": 3,
    "test_networks_with_kinks_train_as_in_torch": 3,
    "test_any_number_of_examples_and_threads": 3,
    "test_layers_a_step": 3,
    "test_every_variant_has_every_rule": 3,
    "test_the_exact_program_and_the_oracle_are_torch_optim": 2,
    "test_the_transformer_is_within_its_certificate_of_torch_optim": 2,
    "test_without_data_it_is_certified_on_random_prompts": 2,
    "test_the_papers_form_agrees_in_float64_and_is_worse_in_float32": 2,
    "test_every_choice_means_its_definition": 2,
    "test_error_is_enclosed_by_balls": 2,
    "test_number_of_pieces": 4,
    "test_joint_knots": 2,
    "test_bounded_domains_are_proven_by_balls": 2,
    "test_no_gradient_in_the_domain_is_farther_off": 4,
    "test_runs_stay_within_the_trajectory_bounds": 3,
    "test_runs_stay_within_the_bounds_for_every_input": 2,
    "test_no_certificate_comes_from_declarations": 2,
    "test_errors_in_a_folder_are_not_believed": 2,
    "test_what_is_proven_is_certified": 2,
    "test_inside_the_domain_nothing_changes": 2,
    "test_tables_hold_the_knots_of_the_compiled_functions": 3,
    "test_facts_are_proven_and_sharp": 2,
    "test_local_curvature": 2,
    "test_a_spike_that_is_one_number_wide_is_seen": 2,
    "test_activated_outputs_on_sigma": 3,
    "test_it_runs_on_every_target_that_can": 2,
    "test_the_exact_program_is_gradient_descent": 3,
    "test_the_exact_program_is_autograd": 2,
    "test_the_weights_are_gradient_descent": 2,
    "test_a_fact_one_percent_too_small_is_refused": 3,
    "test_the_certificate_is_that_of_the_literal_variant": 3,
    "test_transformers_are_within_their_certificates_of_torch": 2,
    "test_value_at_zero_is_exact": 3,
    "test_hinges_are_normalised": 3,
    "test_tails_stay_in_the_tube": 2,
    "test_poisson_regression_by_fits": 2,
    "test_poisson_regression_is_within_its_certificate": 2,
    "test_gradient_error_of_deep_networks": 2,
    "test_save_and_load_is_the_identity": 5,
    "test_an_independent_forward_pass_of_the_saved_folder_agrees": 4,
    "test_float32_is_close_to_float64": 4,
    "test_fused_equals_plain": 3,
    "test_a_declared_radius_is_the_domain_on_every_target": 3,
    "test_blocks_a_step": 3,
    "test_every_law_holds": 2,
    "test_every_law_holds_and_the_fit_is_called_one": 2,
    "test_every_law_holds_for_small_and_large_ranges": 2,
    "test_every_lane_after_every_layer_is_within_its_bounds": 2,
    "test_broken_models": 2,
    "test_claim": 3,
    "test_dense_equals_plain": 2,
    "test_the_order_of_the_examples_matters_where_it_should": 2,
    "test_cost_counts_the_weights_that_are_there": 2,
    "test_one_function_reads_predictions_off_hidden_states": 2,
    "test_a_run_warns_of_what_is_wrong_with_the_algorithms_own": 2,
    "test_an_old_folder_loads_and_its_program_is_the_same": 2,
    "test_a_program_that_is_compiled_now_has_the_layers_and_the_cost_it_had": 2,
    "test_auto_equals_plain": 2,
    "test_what_is_no_file_is_not_written_to": 3,
    "test_shared_sums_reach_epsilon_between_the_points_they_were_fitted_to": 3,
    "test_long_prompts_save_and_load_is_the_identity": 3,
    "test_pieces_and_jumps_are_proven_too": 2,
    "test_what_cannot_be_solved": 2,
    "test_a_compiled_run_is_that_of_autograd": 2,
    "test_it_fails_for_a_reason": 3,
    "test_what_is_proven_is_true_and_the_derivative_is_autograds": 2,
    "test_every_algorithm_has_a_cost": 2,
    "test_every_algorithm_runs": 2,
    "test_the_domain_itself_is_that_bad": 3,
    "test_four_mlps_are_the_projection_within_the_stated_error": 3,
    "test_every_law_holds_where_it_is_fitted": 2,
    "test_a_batch_in_parts_is_certified_as_a_whole": 3,
    "test_stored_tightness_is_what_is_measured": 3,
    "test_samples_do_not_decide": 2,
}


def kept(number: int, one_in: int, shift: int) -> bool:
    """Whether case ``number`` of a table is one of the sample: one of every k = ``one_in`` in a row, where the digits
    of the number in base k, and ``shift``, add up to a multiple of k. A table of all combinations of parameters is not
    cut along one of them, as it would be by taking every k-th row.
    """
    total = shift
    while number:
        number, digit = divmod(number, one_in)
        total += digit
    return total % one_in == 0


@pytest.hookimpl(tryfirst=True)  # before soak is deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first, so that no process waits for another's at the end; those of a case, or of a model of the table
    of the command line, in one process, which compiles it once.
    """
    tables: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        if name in SAMPLED and "soak" not in item.keywords:
            tables.setdefault((item.nodeid.partition("[")[0], name), []).append(item)
    for (_, name), table in tables.items():
        for number, item in enumerate(table):
            if len(table) >= SAMPLED[name] and not kept(number, SAMPLED[name], list(SAMPLED).index(name)):
                item.add_marker(pytest.mark.soak)
    items.sort(key=lambda item: "slow" not in item.keywords)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if name := group_of(item):
                item.add_marker(pytest.mark.xdist_group(name))


NAMES = {id(case): name for table in (CASES, LONG) for name, case in table.items()}


def group_of(item: pytest.Item) -> str | None:
    """The row of ``cases.py``, or of the table of ``test_cli.py``, that a test is about, or the model that its module
    makes once for several tests, if there is one.
    """
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if "each" in given:
        return f"model: {given['each']}"
    if isinstance(given.get("model"), str) or "solved" in getattr(item, "fixturenames", ()):
        return f"{item.path.stem}: {given.get('model', 'solved')}"
    name = given.get("name")
    if isinstance(name, str) and name in CASES:
        return name
    return NAMES.get(id(given.get("case"))) or NAMES.get(id(given.get("long_case"))) or given.get("golden")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs on several processes; threads would only fight."""
    torch.set_num_threads(1)
