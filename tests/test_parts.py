"""A part is one class, tested alone: a gated MLP and a norm that no target has; what parts say of themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad import IDENTITY, Attend, Lane, Layer, Loop, Program, Score
from innergrad.interpret import plain
from innergrad.model.cost import cost_of
from innergrad.model.legalise import legalise
from innergrad.targets import TARGETS
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.base import ABILITIES, Abilities, Context, Functions, Norm, Part, Target, need
from innergrad.targets.parts.mlps import FeatureMlp
from innergrad.targets.weights.modules import SparseStack
from innergrad.targets.weights.rows import Row
from test_silu_gated import SiluGated

SOURCE = Path(ig.__file__).parent


class Halved(Norm):
    """A norm that halves: every row that reads doubles."""

    name = "halved"

    def gain(self, kind: str, context: Context) -> Any:
        return 0.5

    def apply(self, h: Tensor, gain: float) -> Tensor:
        return gain * h

    def read(self, row: Row, gain: float, context: Context) -> Row:
        return {entry: weight / gain for entry, weight in row.items()}


def program(*layers: Layer) -> Program:
    stream = ig.example_stream(3, 3, Lane("w", (3,), "weight"), Lane("p", (3,)))
    return Program(stream, (Loop(1, layers),), (), "p")


def test_a_gated_mlp_is_one_class() -> None:
    products = Attend("p[k]", Score(IDENTITY, ("x[k]", "y[k] - w[k]")), scale=-2.0)
    layer = Layer("any", "products", (products, Attend("p[k]", value="x[k]")))
    target = Target(("only",), (SoftmaxAttention, SiluGated), Functions(), 1e-3, 1e-12, ())
    options = ig.Options("gated", "only")
    placed = legalise(program(layer), target, options)
    assert [x.kind for x in placed.layers] == ["mlp"]
    state = {
        lane.name: torch.randn(2, 1 if lane.shared else 5, *lane.shape, dtype=torch.float64)
        for lane in placed.stream.lanes
    } | {"one": torch.ones(2, 1, dtype=torch.float64)}
    ((_, after, _),) = plain.run(placed, state, placed.functions())
    module = target.lower(placed, {}, options)
    found = placed.stream.unpack(module(placed.stream.pack(state)))
    torch.testing.assert_close(found["p"], after["p"], rtol=1e-13, atol=1e-13)
    cost = cost_of(placed, options, [built.counted() for built in module.stored_layers()], {})
    assert (cost.rows[0].heads, cost.rows[0].kind) == (12, "mlp")
    with pytest.raises(ig.LoweringError, match=r"a SiLU-gated mlp adds products of two linear forms.*got a function"):
        target.check(
            program(Layer("mlp", "f", (Attend("p[k]", Score(ig.ACTIVATIONS["tanh"].r, ("x[k]", "one"))),))), options
        )


def test_a_norm_is_one_class() -> None:
    mean = program(Layer("attention", "mean", (Attend("p[k]", value="x[k]", scope="all", reduce="mean"),)))
    context = Context(mean, ig.Options("gpt", "pre-ln"), norm=Halved())
    built = SoftmaxAttention.build(mean.layers[0], context)
    assert built.settings == {"gain": 0.5, "norm": "halved", "causal": False}
    h = torch.randn(2, 5, mean.stream.d_model, dtype=torch.float64)
    x, p = mean.stream.unpack(h)["x"], mean.stream.unpack(built(h))["p"]
    torch.testing.assert_close(p - mean.stream.unpack(h)["p"], x.mean(1, keepdim=True).expand_as(x))


def test_the_cost_is_counted_on_a_module_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=2), target="gpt", epsilon=1e-5)
    assert tf.module is not None
    monkeypatch.setattr(Target, "lower", None)
    assert tf.cost().nonzeros == sum(int((built.value != 0).sum()) for built in stacks(tf.module))


def stacks(module: torch.nn.Module) -> list[SparseStack]:
    """One of every layer, also of those that share them."""
    layers = module.stored_layers()  # type: ignore[operator]
    return [getattr(layer, name) for layer in layers for name in layer.matrices]


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_part_says_it_can_do_is_an_ability(name: str) -> None:
    for kind, can in TARGETS[name].abilities().items():
        assert kind in TARGETS[name].modules
        assert set(can) <= set(ABILITIES)
        assert all(text and "{" not in text for text in can.values())


def test_what_is_not_in_the_table_is_refused() -> None:
    """why_not goes by the table: without its entry an ability is gone."""
    copy = Attend("p[k]", value="x[k]")
    assert need(copy) == "linear map"
    context = Context(program(Layer("mlp", "copy", (copy,))), ig.Options())
    assert SiluGated.why_not(copy, context) is None

    class Less(SiluGated):
        can: ClassVar[Abilities] = {"product": "exactly"}

    reason = Less.why_not(copy, context)
    assert reason is not None
    assert reason.got == "a linear map of the token's own lanes"


def test_what_a_part_lacks_is_said_when_a_row_is_made() -> None:
    class Nothing(Part):
        """Not even a kind."""

    class NoAlgebra(FeatureMlp):
        """It does not say what t and t^2 are."""

    with pytest.raises(ig.InputError, match=r"part Nothing has no kind, about, build, forward; docs/extending\.md"):
        Target(("only",), (Nothing,), Functions(), 1e-3, 1e-12, ())
    with pytest.raises(ig.InputError, match=r"part NoAlgebra has no algebra; docs/extending\.md"):
        Target(("only",), (NoAlgebra,), Functions(), 1e-3, 1e-12, ())


@pytest.mark.parametrize("score", [("x[k] + 100.0*t", "one"), ("x[k]", "one"), ("x[k] - y[k]", "one"), ("x[0]", "one")])
def test_an_entry_that_several_units_read_is_counted_for_each(score: tuple[str, str]) -> None:
    """On relu the cost is counted on a few heads that stand for the others."""
    f = Score(ig.ACTIVATIONS["sigmoid"].r, score)
    found = program(Layer("mlp", "f", (Attend("p[k]", f), Attend("p[k]", value="x[k] - 2.0*y[k]"))))
    relu, options = TARGETS["relu"], ig.Options()
    approximants = relu.functions.approximants(found, options)
    (built,) = relu.lower(found, approximants, options).stored_layers()
    (counted,) = relu.foreseen(found, approximants, options) or ()
    assert counted._replace(norm=0.0) == built.counted()._replace(norm=0.0)
    assert counted.norm == pytest.approx(built.counted().norm, rel=1e-12)


def test_no_row_is_written_in_terms_of_another() -> None:
    """Parts are shared; no part is named after, or imports, a target."""
    names = {path.stem for path in SOURCE.glob("targets/**/*.py")}
    assert not {name for name in names if name.split("_")[0] in ("relu", "gpt", "sigma")}
    assert replace(TARGETS["gpt"], norm=Norm()).abilities()["mlp"] == TARGETS["softmax"].abilities()["mlp"]
