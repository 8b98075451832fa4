"""A SiLU-gated MLP as a part: tested alone, and in a row of a target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad import IDENTITY, NEGATION, Attend, Lane, Layer, Loop, Program, Score
from innergrad.interpret import plain
from innergrad.ir.program import labels_of
from innergrad.model.legalise import legalise
from innergrad.model.storage import _fit
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.base import Abilities, Context, Functions, Part, Target
from innergrad.targets.weights.modules import SparseStack, stack
from innergrad.targets.weights.rows import Row, add, points, row_of, scaled, score_rows


class SiluGated(Part):
    """h_i += W_2 (silu(W_1 h_i) * (W_3 h_i)). Two units a product, exact: silu(a) b - silu(-a) b = a b."""

    kind = "mlp"
    matrices = ("W_1", "W_3", "W_2")
    can: ClassVar[Abilities] = {"linear map": "exactly", "product": "exactly"}
    about = "a SiLU-gated mlp adds products of two linear forms of its own token"
    W_3: SparseStack

    def forward(self, h: Tensor) -> Tensor:
        gate, up = (matrix.tall() @ h.flatten(0, 1).T for matrix in (self.W_1, self.W_3))
        written: Tensor = self.W_2.tall() @ (torch.nn.functional.silu(gate) * up)
        return h + written.T.view_as(h)

    @classmethod
    def terms(cls, i: Attend, context: Context) -> Iterator[tuple[Row, Row, int, float]]:
        """a, b, destination, coefficient: what an instruction adds is the sum of coefficient (a h)(b h)."""
        program, one = context.program, {context.one: 1.0}
        for at in points(program, i, dict.fromkeys(i.dst.labels), {}):
            entry = program.stream.entry(i.dst.lane, tuple(x if isinstance(x, int) else at[x] for x in i.dst.index))
            value: Row = {}
            for inner in points(program, i, sorted(labels_of(i.value) - set(at)), at):
                add(value, row_of(program.stream, i.value, inner))
            pairs = [pair for score in i.scores for pair in score_rows(program, i, score, at)]
            sign = -1.0 if any(score.f == NEGATION for score in i.scores) else 1.0
            for query, key in pairs or [(one, one)]:
                coefficient, forms = sign * i.scale, []
                for row in (query, key, value):
                    if set(row) == {context.one}:
                        coefficient *= row[context.one]
                    else:
                        forms.append(row)
                a, b = [*forms, one, one][:2]
                yield a, b, entry, coefficient

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        units = [
            (scaled(a, s), b, entry, s * w)
            for i in layer.instructions
            for a, b, entry, w in cls.terms(i, context)
            for s in (1.0, -1.0)
        ]
        D, n = context.program.stream.d_model, len(units)
        return cls(
            layer.name,
            stack((1, n, D), ((0, u, e, w) for u, (a, _, _, _) in enumerate(units) for e, w in a.items())),
            stack((1, n, D), ((0, u, e, w) for u, (_, b, _, _) in enumerate(units) for e, w in b.items())),
            stack((1, D, n), ((0, entry, u, w) for u, (_, _, entry, w) in enumerate(units))),
        )


TARGET = Target(("only",), (SoftmaxAttention, SiluGated), Functions(), 1e-3, 1e-12, ())
OPTIONS = ig.Options("silu-gated", "only")


def stream() -> ig.Stream:
    lanes = (
        Lane("w", (3,), "weight"),
        Lane("A", (2, 3), "weight"),
        Lane("p", (3,)),
        Lane("q", (2,)),
        Lane("s"),
        Lane("B", (2, 3)),
    )
    return ig.example_stream(3, 3, *lanes)


def random_state(program: Program, generator: torch.Generator) -> dict[str, Tensor]:
    def draw(lane: Lane) -> Tensor:
        shape = 2, 1 if lane.shared else 5, *lane.shape
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return {lane.name: draw(lane) for lane in program.stream.lanes} | {"one": torch.ones(2, 1, dtype=torch.float64)}


def assert_computes(program: Program) -> None:
    """The weights compute what the plain interpreter computes, in all lanes."""
    placed = legalise(program, TARGET, OPTIONS)
    TARGET.check(placed, OPTIONS)
    state = random_state(placed, torch.Generator().manual_seed(0))
    *_, (_, after, _) = plain.run(placed, state, placed.functions())
    found = placed.stream.unpack(TARGET.lower(placed, {}, OPTIONS)(placed.stream.pack(state)))
    for name, expected in after.items():
        torch.testing.assert_close(found[name], expected.expand_as(found[name]), rtol=1e-13, atol=1e-13)


INSTRUCTIONS = {
    "entrywise": Attend("p[k]", Score(IDENTITY, ("x[k]", "y[k] - w[k]")), scale=-2.0),
    "inner product": Attend("s", Score(IDENTITY, ("x[c]", "w[c]"), ("3.0*one", "t"))),
    "matrix": Attend("q[k]", Score(IDENTITY, ("x[c]", "A[k,c]"))),
    "outer product": Attend("B[k,c]", Score(IDENTITY, ("one", "q[k]")), value="x[c]", scale=0.5),
    "value": Attend("p[k]", Score(IDENTITY, ("2.0*one", "s + one")), value="x[k]"),
    "copy": Attend("p[k]", value="x[k] - 2.0*y[k]"),
    "constant": Attend("s", value="2.0*one", scale=3.0),
    "clear": Attend("p[k]", Score(NEGATION, ("p[k]", "one"))),
    "one entry": Attend("p[0]", Score(IDENTITY, ("x[1]", "y[2]"))),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_part_alone(name: str) -> None:
    layer = Layer("mlp", name, (INSTRUCTIONS[name],))
    program = Program(stream(), (Loop(1, (layer,)),), (), "p")
    context = Context(program, OPTIONS)
    assert SiluGated.why_not(layer.instructions[0], context) is None
    state = random_state(program, torch.Generator().manual_seed(1))
    ((_, after, _),) = plain.run(program, state, program.functions())
    found = program.stream.unpack(SiluGated.build(layer, context)(program.stream.pack(state)))
    for lane, expected in after.items():
        torch.testing.assert_close(found[lane], expected.expand_as(found[lane]), rtol=1e-13, atol=1e-13)


def test_a_layer_of_all_of_them() -> None:
    layer = Layer("any", "all", tuple(INSTRUCTIONS.values()))
    assert_computes(Program(stream(), (Loop(1, (layer,)),), (), "p"))


def test_gradient_descent_in_a_row_of_a_target() -> None:
    scratch = Lane("p", (1,)), Lane("e")
    lanes = ig.example_stream(3, 1, Lane("w", (3,), "weight"), *scratch)
    e = Score(IDENTITY, ("one", "e"))
    step = (
        Layer("any", "forward", (Attend("p[0]", Score(IDENTITY, ("x[c]", "w[c]"))),)),
        Layer("any", "error", (Attend("e", Score(IDENTITY, ("omega", "p[0] - y[0]"))),)),
        Layer("any", "update", (Attend("w[k]", e, value="x[k]", scope="all", reduce="mean", scale=-0.1),)),
        Layer("any", "clear", ig.pointwise(NEGATION, scratch)),
    )
    program = Program(lanes, (Loop(3, step),), step[:1], "p")
    placed = legalise(program, TARGET, OPTIONS)
    assert {layer.kind for layer in placed.layers} == {"attention", "mlp"}
    assert_computes(program)


def test_functions_are_refused() -> None:
    tanh = Attend("p[k]", Score(ig.ACTIVATIONS["tanh"].r, ("x[k]", "one")))
    with pytest.raises(ig.LoweringError, match=r"SiLU-gated.*got a function"):
        TARGET.check(Program(stream(), (Loop(1, (Layer("mlp", "f", (tanh,)),)),), (), "p"), OPTIONS)


def test_a_part_with_matrices_of_its_own_fits_when_it_is_loaded() -> None:
    """W_1 and W_2 must fit one another; a third one is the part's own business."""
    shapes = {"W_1": (1, 4, 8), "W_2": (1, 8, 4), "W_3": (1, 4, 8)}
    layer = SiluGated("gated", *(stack(shape, []) for shape in shapes.values()))
    assert _fit(layer, shapes, 8)
    assert not _fit(layer, {**shapes, "W_2": (1, 8, 5)}, 8)
