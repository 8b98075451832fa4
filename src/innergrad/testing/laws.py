"""Laws of every compiled transformer, on any prompt: an AssertionError says which law does not hold, and by how much.

Prompts are batches: X (B, n, d), y (B, n, d_y), X_query (B, m, d), w0 (B, D_w).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from innergrad.errors import InputError
from innergrad.evidence.report import Report
from innergrad.model.executors import Name as Executor
from innergrad.testing import invariance
from innergrad.testing.forward import first_lanes, forward
from innergrad.testing.judges import distance, rounding, too_steep
from innergrad.transformer import CompiledTransformer, load, reference

BOTH: tuple[Executor, ...] = ("plain", "dense")
Prompts = dict[str, Any]  # of tensors


def dense_equals_plain(tf: CompiledTransformer, prompts: Prompts) -> None:
    """The weights compute the program, in every lane after every layer."""
    plain, dense = (tf.trace(**prompts, executor=executor) for executor in BOTH)
    assert [name for name, _ in plain] == [name for name, _ in dense]
    for (layer, a), (_, b) in zip(plain, dense, strict=True):
        for lane in a:
            assert distance(b[lane], a[lane].expand_as(b[lane])) <= rounding(tf, 1e-13), f"lane {lane} after {layer}"
    assert len(plain) == tf.n_layers + tf.n_readout_layers + 1


def the_certificate_holds(
    tf: CompiledTransformer, prompts: Prompts, executor: Executor = "plain", dtype: torch.dtype = torch.float64
) -> None:
    """Of weights and predictions, against the algorithm itself; infinite only where a ramp may have been hit. Where
    nothing is proven about a function there is none.
    """
    how: dict[str, Any] = {"executor": executor, "dtype": dtype}
    if any(known.reason for known in tf.standings.values()):
        there_is_no_certificate(tf, prompts)
        return
    prompts = {name: value.to(dtype).double() for name, value in prompts.items()}
    run = tf.run(**prompts, **how)
    exact = reference(tf.algorithm, **prompts)
    certificate = tf.certify(**prompts, **how, trajectory=True)
    assert certificate.trajectory is not None
    assert certificate.predictions is not None
    assert torch.equal(certificate.path, run.weights)
    steps = exact.weights.shape[1] - 1  # an online algorithm has no step for examples that are not there
    away = (run.weights[:, 1 : steps + 1] - exact.weights[:, 1:]).norm(dim=-1)
    assert bool((away <= certificate.trajectory[:, :steps]).all())
    assert bool(((run.predictions - exact.predictions).abs() <= certificate.predictions).all())
    assert (certificate.diverged is None) or certificate.culprits
    for step, bound in enumerate(certificate.bounds, start=1):
        assert bound < 1.0 or any(text.startswith(f"step {step}:") for text in certificate.culprits)


def there_is_no_certificate(tf: CompiledTransformer, prompts: Prompts) -> None:
    """A declaration gives no certificate, in any mode, and the refusal says why."""
    for errors in ("sup", "pointwise"):
        try:
            tf.certify(**prompts, errors=errors)
            said = "a certificate"
        except InputError as error:
            said = str(error)
        assert "nothing is proven about" in said


def the_proof_is_one(tf: CompiledTransformer, report: Report) -> None:
    """There is a law ``proof`` where functions are exact or proven, and nowhere else; a report says which they are."""
    assert ("proof" in {law.name for law in report.laws}) == tf.proven == report.proven
    assert report.state == tf.state
    assert tf.state in repr(tf)
    assert tf.proven or all(note in str(report) for note in report.notes)


def an_independent_forward_pass_agrees(tf: CompiledTransformer, prompts: Prompts, folder: Path) -> None:
    """numpy on the saved folder: the same matrices, so the same numbers up to rounding, which LayerNorm's pads (2^24)
    make larger.
    """
    prompt = {name: value[0] for name, value in prompts.items()}
    tf.save(folder)
    config = json.loads((folder / "config.json").read_text())
    lanes = first_lanes(config, {name: value.numpy() for name, value in prompt.items()})
    h = torch.from_numpy(forward(folder, lanes))
    final = tf.program.stream.pack(tf.trace(**prompt, executor="dense")[-1][1])[0]
    assert distance(h, final) <= rounding(tf, 1e-13, fitted=1e-11)


def save_and_load_is_the_identity(
    tf: CompiledTransformer, prompts: Prompts, folder: Path, extensions: Iterable[object] = ()
) -> None:
    again = load(tf.save(folder), extensions=[type(tf.algorithm), *extensions])
    for executor in BOTH:
        a, b = (one.run(**prompts, executor=executor) for one in (tf, again))
        assert torch.equal(a.weights, b.weights)
        assert torch.equal(a.predictions, b.predictions)
    assert again.algorithm == tf.algorithm
    assert again.approximants == dict(tf.approximants)
    assert again.options == tf.options
    assert str(again.cost()) == str(tf.cost())


def rows_are_what_they_are_alone(
    tf: CompiledTransformer,
    prompts: Prompts,
    ordered: bool,
    executor: Executor = "auto",
    dtype: torch.dtype = torch.float64,
) -> None:
    """A prompt depends neither on its batch nor on the number of threads. A prediction does not depend on the other
    queries. Nothing depends on the order of the examples, unless the algorithm is ``ordered``. All of it up to
    rounding, and the same call gives the same bits.
    """
    names = [name for name in invariance.CHANGES if not (ordered and name == invariance.SYMMETRIC)]
    generator = torch.Generator().manual_seed(1)
    for name, found in invariance.compared(tf, prompts, names, generator, executor, dtype).items():
        assert found.share <= 1.0, f"{name}, {executor}, {dtype}: {found}"
        assert found.equal or name != "again"


def the_order_of_examples_matters(tf: CompiledTransformer, prompts: Prompts) -> None:
    """Of an algorithm that says so."""
    order = torch.randperm(prompts["X"].shape[1], generator=torch.Generator().manual_seed(1))
    shuffled = tf.run(**{**prompts, "X": prompts["X"][:, order], "y": prompts["y"][:, order]})
    assert float((shuffled.weights - tf.run(**prompts).weights)[:, -1].abs().max()) > 1e-3


def cost_counts_the_weights_that_are_there(tf: CompiledTransformer) -> None:
    """Shapes, nonzeros, heads and norms of every stored layer, counted in its matrices."""
    rows, modules = tf.cost().rows, list(tf.module.stored_layers())
    for row, module in zip(rows, modules, strict=True):
        stacks = {name: getattr(module, name) for name in module.matrices}
        assert row.shapes == {name: stack.shape for name, stack in stacks.items()}
        assert row.nonzeros == sum(int((stack.value != 0).sum()) for stack in stacks.values())
        assert row.heads == (stacks["W_1"].shape[1] if "W_1" in stacks else stacks["W_V"].shape[0])
        if "W_1" in stacks:
            norm = float(stacks["W_1"].norms().max() + stacks["W_2"].norms().max())
        else:
            value = stacks["W_O"].dense() @ stacks["W_V"].dense()
            score = max(stacks["W_Q"].norms().max(), stacks["W_K"].norms().max())
            norm = float(score + value.abs().sum(1).amax(-1).sum())
            assert row.low_rank == sum(stack.dense().numel() for stack in stacks.values())
        assert abs(row.norm - norm) <= 1e-12 * norm, row.name
    assert tf.n_parameters == sum(row.nonzeros for row in rows)
    assert tf.n_heads == max((row.heads for row in rows if row.kind == "attention"), default=0)


def the_state_dict_is_dense_and_loads_back(tf: CompiledTransformer, prompts: Prompts) -> None:
    """``tf`` must be one's own: its module is emptied and filled again."""
    module = tf.module
    state = module.state_dict()
    assert all(value.ndim == 3 and not value.is_sparse for value in state.values())
    assert sum(int((value != 0).sum()) for value in state.values()) == tf.n_parameters
    h = tf.program.stream.pack(tf.trace(**prompts)[0][1])
    before = module(h)
    for layer in module.stored_layers():
        for stack in (getattr(layer, name) for name in layer.matrices):
            stack.value = torch.zeros_like(stack.value)
    assert torch.equal(module(h), h)
    module.load_state_dict(state)
    assert torch.equal(module(h), before)


def float32_is_close_to_float64(tf: CompiledTransformer, prompts: Prompts) -> None:
    """By every executor that takes float32: matrices with steep ramps, and tables, do not, and say so."""
    double = tf.run(**prompts)
    for executor in BOTH:
        if too_steep(tf, as_weights=executor == "dense"):
            continue
        single = tf.run(**prompts, executor=executor, dtype=torch.float32)
        assert single.weights.dtype == torch.float32
        assert distance(single.weights, double.weights) < 1e-4
        assert distance(single.predictions, double.predictions) < 1e-4
