"""Drawings say what the program does: words by the walk, the lanes that matter and no others, blocks as counted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import innergrad as ig
from innergrad.errors import InputError
from innergrad.interpret import plain
from innergrad.interpret.drawing import MOST_LANES, Drawing, draw
from innergrad.interpret.outline import Line, Outline, listed, outline
from innergrad.interpret.walk import in_place
from innergrad.interpret.words import sentence
from innergrad.ir.program import Attend, Layer, Program
from innergrad.ir.stream import State

NETWORK = ig.Network([2, 3, 3, 1])


def descent(target: str, steps: int = 2, network: ig.Network = NETWORK, **how: object) -> ig.CompiledTransformer:
    box = None if target == "llama" else 4.0
    return ig.compile(ig.GradientDescent(network, steps=steps, box=box), target=target, n_examples=4, **how)


CASES = {
    "relu": lambda: descent("relu"),
    "narrow": lambda: descent("relu", variant="narrow"),
    "llama": lambda: descent("llama"),
    "shortest": lambda: descent("llama", variant="shortest"),
    "gpt": lambda: descent("gpt"),
    "sink": lambda: descent("softmax"),
    "schedule": lambda: ig.compile(ig.GradientDescent(NETWORK, lr=(0.1, 0.2, 0.3)), n_examples=4),
    "functional": lambda: ig.compile(ig.FunctionalGradientDescent("exp", steps=3, d=2), n_examples=4),
    "chebyshev": lambda: ig.compile(
        ig.FunctionalGradientDescent("exp", steps=5, d=2, step_rule="chebyshev"), n_examples=4
    ),
    "sgd": lambda: ig.compile(ig.OnlineSGD(d=2), n_examples=3),
    "rls": lambda: ig.compile(ig.RecursiveLeastSquares(d=2), n_examples=3),
}


@pytest.fixture(scope="module", params=CASES)
def tf(request: pytest.FixtureRequest) -> ig.CompiledTransformer:
    return CASES[request.param]()


def lines(found: Outline) -> list[Line]:
    runs = [run for section in found.sections for run in section.runs]
    return [line for run in runs for block in run.blocks for sub in block for line in sub.lines]


# --------------------------------------------------------------------------------------------------------------- words


def said(tf: ig.CompiledTransformer, name: str) -> list[str]:
    (layer,) = {layer.name: layer for layer in tf.program.layers if layer.name == name}.values()
    return [sentence(tf.program, i).text for i in layer.instructions]


def test_the_words_of_back_propagation() -> None:
    tf = descent("relu")
    assert said(tf, "forward 1") == ["p1 += tanh(V1·x + b1)"]
    assert said(tf, "derivatives") == ["d1 += tanh′(V1·x + b1)", "d2 += tanh′(V2·p1 + b2)", "d3 += 1"]
    assert said(tf, "loss derivative") == ["g += 2 × (p3 − y)"]
    assert said(tf, "backward 2") == ["s2 += d2 ⊙ (V3ᵀ·s3)"]
    assert said(tf, "update")[:2] == [
        "V1 += −0.05 × the mean over all tokens of s1ₛ xₛᵀ",
        "b1 += −0.05 × the mean over all tokens of s1ₛ",
    ]
    assert said(tf, "project and clear")[0] == "clip(4.0) of V1"
    assert said(tf, "project and clear")[-1].startswith("clear ")


def test_the_words_of_other_scopes() -> None:
    functional = CASES["functional"]()
    (step,) = said(functional, "step")
    assert re.fullmatch(r"y \+= −\S+ × the sum over the examples of exp\(x·xₛ\) yₛ", step)
    assert said(CASES["sgd"](), "read 2") == ["X += x of token 3", "Y += y[0] of token 4"]
    llama = descent("llama")
    assert said(llama, "update")[0] == (
        "V1 += −0.05 × the average of G1ₛ over the examples, weighted by softmax(16 log_omegaₛ)"
    )
    assert "VtV += 2 × V3ᵀ·V3" in said(llama, "prepare")


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("before", "the sum over the tokens before of xₛ"),
        ("upto", "the sum over the tokens so far of xₛ"),
        ("previous", "x of the token before"),
        ("t", "the sum over the examples of xₛ"),
        ("query", "the sum over the tokens with query = 1 of xₛ"),
        ("at(0)", "x of token 1"),
    ],
)
def test_which_tokens_are_read(scope: str, words: str) -> None:
    program = CASES["functional"]().program
    assert sentence(program, Attend("x[k]", value="x[k]", scope=scope)).text == f"x += {words}"


def test_which_tokens_are_written() -> None:
    program = CASES["functional"]().program
    assert sentence(program, Attend("y[k]", value="y[k]", where="query", scale=-2.0)).text == (
        "on the queries: y += −2 × y"
    )


# --------------------------------------------------------------------------------------------------------------- lanes


def noisy(tf: ig.CompiledTransformer) -> State:
    """A state in which no lane is zero but masks, and lanes that are divided by stay away from it."""
    generator = torch.Generator().manual_seed(0)
    d_x, d_y = (tf.program.stream[name].size for name in ("x", "y"))
    n, prompt = 3, torch.rand(4, max(d_x, d_y), generator=generator, dtype=torch.float64)
    state = tf.prompt(prompt[:n, :d_x], prompt[:n, :d_y], prompt[n:, :d_x]).state(tf.program)
    fixed = {"one", "t", "query", "marked", "paired", "unmarked"}
    return {
        name: value if name in fixed else 0.3 + 0.5 * torch.rand(value.shape, generator=generator, dtype=value.dtype)
        for name, value in state.items()
    }


def added_by(program: Program, i: Attend, state: State) -> torch.Tensor:
    after = plain.apply_layer(program, Layer("any", "", (i,)), state, program.functions(), observer=lambda *_: None)
    return after[i.dst.lane] - state[i.dst.lane]


def test_lanes_that_are_read_are_those_that_matter(tf: ig.CompiledTransformer) -> None:
    """Changing a lane changes what an instruction adds if, and only if, its sentence says that it reads it."""
    program, state = tf.program, noisy(tf)
    instructions = dict.fromkeys(i for layer in program.layers for i in layer.instructions)
    for i in list(instructions)[:: max(1, len(instructions) // 40)]:
        before, reads = added_by(program, i, state), sentence(program, i).reads
        if in_place(i) is not None:  # what a projection adds is zero inside its box
            assert reads == (i.dst.lane,)
            continue
        for lane in program.stream.lanes:
            if lane.name == "one":
                continue
            value = state[lane.name]
            mask = lane.name in ("t", "query", "marked", "paired", "unmarked")
            changed = {**state, lane.name: 1.0 - value if mask else value + 0.1 * torch.rand_like(value)}
            differs = float((added_by(program, i, changed) - before).abs().max()) > 1e-9
            assert differs == (lane.name in reads), (i, lane.name)


# -------------------------------------------------------------------------------------------------------------- blocks


def test_blocks_are_as_many_as_the_cost_says(tf: ig.CompiledTransformer) -> None:
    found, cost = outline(tf.program), tf.cost()
    assert sum(section.n_blocks for section in found.sections) == cost.blocks + cost.readout_blocks
    assert sum(section.times for section in found.sections if section.step) == tf.program.steps


def test_every_lane_that_is_written_is_said_to_be(tf: ig.CompiledTransformer) -> None:
    """Folding leaves no instruction out: of steps and blocks that are folded, the first stands for all."""
    written = {i.dst.lane for layer in tf.program.layers for i in layer.instructions}
    assert {name for line in lines(outline(tf.program)) for name in line.writes} == written


def test_steps_are_drawn_once() -> None:
    """Whether they are a loop, or differ in their numbers: the picture does not grow with them."""
    for few, many in (
        (descent("llama", 3), descent("llama", 30)),
        (ig.compile(ig.OnlineSGD(d=2), n_examples=3), ig.compile(ig.OnlineSGD(d=2), n_examples=30)),
    ):
        small, large = few.draw().svg, many.draw().svg
        assert "One step × 3<" in small
        assert "One step × 30<" in large
        assert abs(len(large) - len(small)) < 40


def test_layers_of_a_deep_network_are_folded() -> None:
    deep = descent("relu", 2, ig.Network([2, *[2] * 11, 1]))
    found, svg = outline(deep.program), deep.draw().svg
    assert sum(section.n_blocks for section in found.sections) == deep.cost().blocks + deep.cost().readout_blocks
    assert len(found.lanes) > MOST_LANES
    assert "this form 10 times: blocks 2 to 11, up to “forward 11”" in svg
    assert ">V1–V12</text>" in svg


def test_lists_are_short() -> None:
    assert listed(["p1", "p10", "p2", "g", "s1", "s2"]) == "p1 to p10, g, s1, s2"


# ------------------------------------------------------------------------------------------------------------- picture


def test_the_picture_has_a_mark_for_every_lane_of_every_line(tf: ig.CompiledTransformer) -> None:
    found = outline(tf.program)
    root = ElementTree.fromstring(tf.draw().svg)
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    rings = [one for one in circles if one.get("fill") == "white"]
    if len(found.lanes) <= MOST_LANES:
        assert len(rings) == 1 + sum(len(line.reads) for line in lines(found))  # and the legend's
        assert len(circles) - len(rings) == 1 + sum(len(line.writes) for line in lines(found))
    texts = {"".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {f"block {n}" for n in (1, 2)} <= texts or tf.cost().blocks_a_step == 1
    assert any(f"The prediction is {'−' * (tf.program.sign < 0)}{tf.program.prediction} on the" in t for t in texts)


def test_everything_is_inside_the_picture(tf: ig.CompiledTransformer) -> None:
    root = ElementTree.fromstring(tf.draw().svg)
    _, _, width, height = (float(part) for part in root.get("viewBox", "").split())
    for kind, x, y in (("rect", "x", "y"), ("circle", "cx", "cy"), ("text", "x", "y")):
        for one in root.iter(f"{{http://www.w3.org/2000/svg}}{kind}"):
            assert 0 <= float(one.get(x, 0)) <= width
            assert 0 <= float(one.get(y, 0)) <= height


def test_names_of_layers_are_text() -> None:
    program = CASES["functional"]().program
    odd = program.with_layers(lambda layer: replace(layer, name='<script>&"'))
    texts = ["".join(one.itertext()) for one in ElementTree.fromstring(draw(odd).svg).iter()]
    assert any('<script>&"' in text for text in texts)


def test_a_drawing_replaces_only_drawings(tmp_path: Path) -> None:
    tf, path = CASES["functional"](), tmp_path / "new" / "model.svg"
    drawing = tf.draw(path)
    assert isinstance(drawing, Drawing)
    assert drawing._repr_svg_() in path.read_text()
    tf.draw(path)
    ElementTree.fromstring(path.read_text())
    path.write_text("<svg>mine</svg>")
    with pytest.raises(InputError, match="innergrad draw did not write it"):
        tf.draw(path)
    assert path.read_text() == "<svg>mine</svg>"
    tf.draw(path, force=True)
    assert "mine" not in path.read_text()


def test_the_picture_of_the_page_is_that_of_the_source() -> None:
    """docs/inside.md: if this fails, draw it again (the code is on the page)."""
    algorithm = ig.GradientDescent(ig.Network([3, 8, 8, 1]), lr=0.5, steps=20, box=None)
    drawn = ig.compile(algorithm, target="llama", n_examples=16).draw().svg
    assert drawn in (Path(__file__).parent.parent / "docs" / "drawing.svg").read_text()
