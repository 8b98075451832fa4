"""The graphs of a program's loops, and the work that they leave for before and after: lanes that are functions of
others.

Layers before the first step may prepare lanes from the weights, which every step prepares again at its end, for the
next: z_1 = V_1 x + b_1, say. Such a lane is the same function of the others at the beginning of all steps. So it is not
carried from step to step. A step begins with the function itself, and its uses decide how it is computed, or whether.
After the last step the lanes are made (``derived``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from innergrad.interpret import contract
from innergrad.interpret.given import Given
from innergrad.interpret.graph import Graph, Linear, ScalarFunction
from innergrad.interpret.symbolic import Bounds, Symbols, zero_lanes
from innergrad.ir.program import Program


@dataclass(frozen=True)
class Steps:
    """loops: a graph for every loop of the body. given: the lanes that they read beside those of the program, made
    before the first step. derived: the lanes that are made of others, after the last.
    """

    loops: tuple[Graph, ...]
    given: Graph
    derived: Graph


def build(program: Program, functions: Mapping[str, ScalarFunction], bounds: Bounds) -> Steps:
    how = (functions, bounds)
    first = _first(program, *how)
    prepared = [] if first is None else [first]
    body = [loop.layers for loop in program.body[len(prepared) :]]
    derived = {name: symbols.lanes[name] for symbols in prepared for name in symbols.graph.results}
    while True:
        scratch = zero_lanes(program, "scratch")
        made = {layers: Symbols(program, layers, *how, scratch, derived) for layers in dict.fromkeys(body)}
        again = {n: v for n, v in derived.items() if all(symbols.rederived(n, v) for symbols in made.values())}
        if len(again) == len(derived):
            break
        derived = again
    given = Given({i.dst.lane for layer in program.layers for i in layer.instructions})
    graphs = {layers: given.out_of(contract.cheapest(_less(symbols, derived))) for layers, symbols in made.items()}
    loops = (*(_less(symbols, derived) for symbols in prepared), *(graphs[layers] for layers in body))
    results = {name: symbols.graph.results[name] for symbols in prepared for name in derived}
    return Steps(loops, given.graph, Graph(results, (), ()))


def _first(program: Program, functions: Mapping[str, ScalarFunction], bounds: Bounds) -> Symbols | None:
    """The first loop, if it prepares: it is no step, and writes state that was zero, and nothing else."""
    loop, state = program.body[0], zero_lanes(program, "state")
    if loop.step or loop.count > 1:
        return None
    symbols = Symbols(program, loop.layers, functions, bounds, state | zero_lanes(program, "scratch"))
    return None if symbols.graph.zero or not symbols.graph.results.keys() <= state else symbols


def _less(symbols: Symbols, derived: Mapping[str, Linear]) -> Graph:
    """The graph without results that are derived from others."""
    graph = symbols.graph
    results = {name: node for name, node in graph.results.items() if name not in derived}
    return Graph(results, graph.zero, graph.checks)
