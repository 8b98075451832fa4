"""A program as target ``gpt`` runs it: what these blocks need besides the program's own lanes and layers.

- pads +-N and an entry that is always zero, which make LayerNorm neutral,
- where tokens are read by position, or exp scores summed: positions, and a sink before all other tokens,
- linear scores over the examples as a function that exponential heads can add up,
- around a division, pads scaled by the divisor and set back: in variant ``raw`` by the next attention layer, in
  ``pre-ln`` by the division's own MLP.

:mod:`innergrad.targets.gpt_lowering` says why.
"""

from __future__ import annotations

from dataclasses import replace

from innergrad.errors import LoweringError
from innergrad.functions.scalar import IDENTITY, RECIPROCAL, Function
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program, Score, View
from innergrad.stream import Lane, Stream

PAD = 2.0**24
PADS = {"pad_up": 1.0, "pad_down": -1.0}
LINEAR = Function("linear score", lambda t: t, curvature=0.0, lipschitz=1.0)


def prepare(program: Program, options: Options) -> Program:
    """The program as these blocks run it: pads, positions, a sink; linear scores as sums of exponentials; pads scaled
    and set back around divisions.
    """
    layers = {id(layer): _rewritten(layer) for layer in program.layers}
    divides = any(divisor_of(layer) for layer in program.layers)
    positions = divides or any(
        i.at is not None or i.scope == "previous" or _exponential(layer, i)
        for layer in layers.values()
        for i in layer.instructions
        if layer.kind == "attention"
    )
    body, carry = [], False  # carry: pads are still scaled
    for loop in program.body:
        made, carry = _around_divisions([layers[id(layer)] for layer in loop.layers], options, carry)
        if carry and loop.count > 1:
            made, carry = [*made, Layer("attention", "restore", _set_back())], False
        body.append(replace(loop, layers=tuple(made)))
    readout, carry = _around_divisions([layers[id(layer)] for layer in program.readout], options, carry)
    if carry:
        readout.append(Layer("attention", "restore", _set_back()))
    own = [Lane("zero")]
    own += [Lane(pad, (), "state" if divides else "input", not divides, fill=s * PAD) for pad, s in PADS.items()]
    if positions:
        own += [Lane("pos", (), "input"), Lane("pos2", (), "input"), Lane("ns", (), "input")]
    stream = Stream((*program.stream.lanes, *own))
    return replace(program, stream=stream, body=tuple(body), readout=tuple(readout), sink=positions)


def prepare_softmax(program: Program, options: Options) -> Program:
    """For blocks without LayerNorm: a sink, where attention applies functions to a token's own lanes."""
    del options
    sink = any(
        instruction.scores and instruction.scope == "self"
        for layer in program.layers
        for instruction in layer.instructions
        if layer.kind == "attention"
    )
    own = (Lane("ns", (), "input"), Lane("log_tokens", (), "input", shared=True)) if sink else ()
    stream = Stream((*program.stream.lanes, *own))
    return replace(program.with_layers(_products_as_mlps), stream=stream, sink=sink)


def _products_as_mlps(layer: Layer) -> Layer:
    return replace(layer, kind="mlp") if layer.kind == "product" else layer


def _rewritten(layer: Layer) -> Layer:
    """Products are mlps here; linear scores over the examples become a function that heads can sum up."""
    if layer.kind != "attention":
        return _products_as_mlps(layer)
    return replace(layer, instructions=tuple(_linear_scores(layer, i) for i in layer.instructions))


def _linear_scores(layer: Layer, i: Attend) -> Attend:
    if not _exponential(layer, i):
        return i
    scores = (Score(LINEAR, *score.pairs) if score.f == IDENTITY else score for score in i.scores)
    return Attend((i.dst,), *scores, value=i.value, scope=i.scope, reduce=i.reduce, scale=i.scale, where=i.where)


def _exponential(layer: Layer, instruction: Attend) -> bool:
    """A sum over the examples of a function of scores: heads with a heavy sink."""
    over_examples = instruction.scope == "demos" and instruction.reduce == "sum"
    return layer.kind == "attention" and over_examples and bool(instruction.scores)


def divisor_of(layer: Layer) -> str | None:
    """The lane that an mlp layer divides by."""
    scores = [s for instruction in layer.instructions for s in instruction.scores if s.f == RECIPROCAL]
    found = {view for score in scores for pair in score.pairs for side in pair for view in side if view.lane != "one"}
    if len(found) > 1 or any(view.index or view.coefficient != 1.0 for view in found):
        raise LoweringError(
            f"layer {layer.name}: a layer divides by one scalar lane, a token's own",
            got=", ".join(sorted(view.lane for view in found)),
            hint="copy what divides into a lane of shape () in the layer before",
        )
    return found.pop().lane if found else None


def _around_divisions(layers: list[Layer], options: Options, carry: bool) -> tuple[list[Layer], bool]:
    """The layers with pads scaled before each division and set back after it; whether they still are to be set back."""
    made: list[Layer] = []
    for layer in layers:
        c = divisor_of(layer)
        if carry and layer.kind == "attention":
            layer = replace(layer, instructions=(*layer.instructions, *_set_back()))
        elif carry:
            made.append(Layer("attention", f"{layer.name}: restore", _set_back()))
        carry = False
        if c is not None:
            made.append(Layer("attention", f"{layer.name}: scale", _pads(f"{c} - one")))
            if options.variant == "raw":
                carry = True
            else:
                layer = replace(layer, instructions=(*layer.instructions, *_pads(f"one - {c}")))
        made.append(layer)
    return made, carry


def _pads(change: str) -> tuple[Attend, ...]:
    """pads += +-N change."""
    return tuple(Attend(pad, value=change, scale=sign * PAD) for pad, sign in PADS.items())


def _set_back() -> tuple[Attend, ...]:
    """pads = +-N."""
    return tuple(Attend(p, value=(View("one", (), sign * PAD), View(p, (), -1.0))) for p, sign in PADS.items())
