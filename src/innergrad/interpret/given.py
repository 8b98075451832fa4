"""Results that the steps of a loop need not compute again: softmax weights that depend on the prompt alone.

A mean over examples is a softmax of lanes that no layer writes. Its weights are computed once, and the graph reads them
from a lane.
"""

from __future__ import annotations

from collections.abc import Container

from innergrad.interpret.graph import Graph, Node
from innergrad.interpret.node_table import Nodes


class Given(Nodes):
    """The lanes that are given, by name, as nodes of other lanes; those of all graphs of a program."""

    def __init__(self, written: Container[str]) -> None:
        """written: the lanes that some layer writes."""
        super().__init__()
        self.written = written
        self.lanes: dict[str, Node] = {}

    @property
    def graph(self) -> Graph:
        return Graph(self.lanes, (), ())

    def out_of(self, graph: Graph) -> Graph:
        """The graph, reading the given lanes."""
        new: dict[Node, Node] = {}
        for node in graph.nodes:
            again = self.again(node, tuple((new[argument], used) for argument, used in node.args))
            new[node] = self._lane(again) if node.op == "softmax" and "S" not in node.labels else again
        return graph.replaced(new)

    def _lane(self, node: Node) -> Node:
        if not self._fixed(node):
            return node
        name = next((name for name, known in self.lanes.items() if known is node), f"given{len(self.lanes)}")
        self.lanes[name] = node
        return self.node("lane", (), node.labels, dict(zip(node.labels[2:], node.sizes, strict=True)), name=name)

    def _fixed(self, node: Node) -> bool:
        """It depends on nothing that is written."""
        reads = node.f.reads if node.op == "mask" else node.name
        return reads not in self.written and all(self._fixed(argument) for argument, _ in node.args)
