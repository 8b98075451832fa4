"""A graph as the source of a C++ kernel that takes all steps of a loop in one call.

Nodes are of three kinds: what a prompt holds once (*shared*: weights and what is made of them), what every token holds
(*token* nodes), and sums over tokens (*reductions*). Tokens are taken in blocks that stay in the cache: within a stage,
all token nodes of a block are computed one after the other, and its reductions are added up; then the shared nodes that
need them follow, and the next stage. Gradient descent has one stage: forward, backward and the gradients of a block of
examples, with nothing written to memory in between.

The source depends on sizes and structure only; numbers (rates, boxes, tables) are arguments, so that a kernel is built
once for each shape of network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import tables
from innergrad.interpret.graph import Coefficient, Graph, Node

HEADER = """#include "runtime.hpp"
#define BARRIER do { if (threads > 1) { _Pragma("omp barrier") } } while (0)
"""


class Unsupported(Exception):
    """The graph is not of the kind that kernels are made for; the torch executor takes it."""


@dataclass
class Source:
    """The text, and what the caller has to hand over, in order."""

    text: str
    shared_lanes: tuple[str, ...]  # (batch, size), read and written
    token_lanes: tuple[str, ...]  # (batch, n, size)
    numbers: tuple[Coefficient, ...]
    tables: tuple[np.ndarray, ...]


def generate(graph: Graph, lane_sizes: Mapping[str, int], weights: tuple[str, ...]) -> Source:
    """weights: shared lanes that are recorded, in order."""
    return _Generator(graph, lane_sizes, weights).source()


@dataclass
class _Generator:
    graph: Graph
    lane_sizes: Mapping[str, int]
    weights: tuple[str, ...]
    numbers: list[Coefficient] = field(default_factory=list)
    tables: list[np.ndarray] = field(default_factory=list)
    longest_side: int = 0  # of the sums over tokens of s p^T

    # -------------------------------------------------------------------------------------------------------- source

    def source(self) -> Source:
        nodes = self.graph.nodes
        self._require(nodes)
        self.name = {node: f"v{i}" for i, node in enumerate(nodes)}
        self.kind = {node: self._kind(node) for node in nodes}
        self.stage = self._stages(nodes)
        self.inlined = self._inlined(nodes)
        shared = tuple(n.name for n in nodes if n.op == "lane" and self.kind[n] == "shared")
        shared += tuple(name for name in (*self.graph.results, *self.weights) if name not in shared)
        shared = tuple(dict.fromkeys(shared))
        tokens = tuple(n.name for n in nodes if n.op == "lane" and self.kind[n] == "token")
        body = self._body(nodes, shared)
        layout = self._workspace(nodes, tokens)
        text = f"{HEADER}\n{layout}\n{body}\n{self._entry(tokens)}"
        return Source(text, shared, tokens, tuple(self.numbers), tuple(self.tables))

    def _require(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if node.op not in ("lane", "product", "sum", "apply", "select", "scatter") or "S" in node.labels:
                raise Unsupported(f"{node.op} nodes")
            if node.op == "apply" and not isinstance(node.f, PiecewiseLinear):
                raise Unsupported("functions that are not piecewise linear")
            if any("S" in used for _, used in node.args):
                raise Unsupported("tokens that read other tokens")
            if any(len(set(used)) < len(used) for _, used in node.args):
                raise Unsupported("diagonals")
        for node in self.graph.results.values():
            if node.per_token:
                raise Unsupported("lanes that tokens keep from step to step")

    def _kind(self, node: Node) -> str:
        if node.per_token:
            return "token"
        return "reduction" if any("I" in used for _, used in node.args) else "shared"

    def _stages(self, nodes: tuple[Node, ...]) -> dict[Node, int]:
        stage: dict[Node, int] = {}
        for node in nodes:
            stage[node] = max(
                (stage[a] + (self.kind[a] == "reduction") for a, _ in node.args if a.op != "lane"), default=0
            )
            for argument, _ in node.args:
                late = self.kind[argument] == "token" and argument.op != "lane" and stage[argument] != stage[node]
                if late:
                    raise Unsupported("values of tokens that are needed after a sum over tokens")
        return stage

    def _inlined(self, nodes: tuple[Node, ...]) -> dict[Node, tuple[Node, Node | None]]:
        """sum -> (matrix product that it is made of, bias), for alpha W p + beta b."""
        uses: dict[Node, int] = {}
        for node in (*nodes,):
            for argument, _ in node.args:
                uses[argument] = uses.get(argument, 0) + 1
        for check in self.graph.checks:
            uses[check.node] = uses.get(check.node, 0) + 1
        found: dict[Node, tuple[Node, Node | None]] = {}
        for node in nodes:
            if node.op != "sum" or self.kind[node] != "token" or node.constant[0] or len(node.args) > 2:
                continue
            products = [a for a, used in node.args if uses[a] == 1 and used == node.labels and self._matrix(a)]
            if not products:
                continue
            others = [(a, used) for a, used in node.args if a is not products[0]]
            if others and (self.kind[others[0][0]] == "token" or "B" + node.labels[2:] != others[0][1]):
                continue
            found[node] = products[0], others[0][0] if others else None
        return found

    def _matrix(self, node: Node) -> tuple[Node, Node, int, int, int, int] | None:
        """(matrix, token lane, rows, columns, row stride, column stride) of a product W p."""
        if node.op != "product" or self.kind[node] != "token" or len(node.args) != 2:
            return None
        by_kind = {self.kind[a] == "token": (a, used) for a, used in node.args}
        if len(by_kind) != 2:
            return None
        (p, of_p), (W, of_W) = by_kind[True], by_kind[False]
        out, inner = node.labels[2:], of_p[2:]
        if len(out) != 1 or len(inner) != 1 or set(of_W[1:]) != set(out + inner) or out == inner:
            return None
        strides = _strides(W)
        rs, cs = (strides[of_W[1:].index(label)] for label in (out, inner))
        return W, p, node.sizes[0], p.sizes[0], rs, cs

    # ---------------------------------------------------------------------------------------------------- workspace

    def _workspace(self, nodes: tuple[Node, ...], tokens: tuple[str, ...]) -> str:
        """Where everything lives: offsets in what a team of threads holds, in what a thread holds, and rows of a block.

        Rows are used again when nobody reads them any more.
        """
        lines, team, thread, top = [], 0, 0, 0
        free: dict[int, list[int]] = {}
        ends, rows = self._last_uses(nodes), dict[Node, int]()
        for i, node in enumerate(nodes):
            size = math.prod(node.sizes)
            if node.op == "lane" or node in self.hidden:
                continue
            if self.kind[node] == "token":
                for made in self.group.get(node, [node]):
                    if made not in rows:
                        spare = free.get(size)
                        rows[made] = spare.pop() if spare else top
                        top += size * (rows[made] == top)
                        lines.append(f"static const long row_{self.name[made]} = {rows[made]};")
            elif self.kind[node] == "reduction":
                lines.append(f"static const long at_{self.name[node]} = {thread};")
                thread += _padded(size)
            else:
                lines.append(f"static const long at_{self.name[node]} = {team};")
                team += _padded(size)
            for other in ends.get(i, ()):
                if other in rows:
                    free.setdefault(math.prod(other.sizes), []).append(rows[other])
        return "\n".join(
            [
                *lines,
                f"static const long TEAM = {team};",
                f"static const long THREAD = {thread};",
                f"static const long TOKEN_ROWS = {max(top, 1)};",
                f"static const long SCRATCH_ROWS = {_padded(self.longest_side)};",
                f"static const long BLOCK_ROWS = {max(sum(self.lane_sizes[name] for name in tokens), 1)};",
            ]
        )

    def _last_uses(self, nodes: tuple[Node, ...]) -> dict[int, list[Node]]:
        """Operation -> token nodes that nobody reads after it; checked ones are kept."""
        last: dict[Node, int] = {}
        for i, node in enumerate(nodes):
            if node in self.hidden:
                continue
            sources = list(node.args)
            if node in self.inlined:
                sources += self.inlined[node][0].args
            last |= {argument: i for argument, _ in sources}
        ends: dict[int, list[Node]] = {}
        for node, i in last.items():
            if all(node is not check.node for check in self.graph.checks):
                ends.setdefault(i, []).append(node)
        return ends

    # --------------------------------------------------------------------------------------------------------- body

    def _body(self, nodes: tuple[Node, ...], shared: tuple[str, ...]) -> str:
        self.hidden = {product for product, _ in self.inlined.values()}
        self.group: dict[Node, list[Node]] = {}
        for node in nodes:
            if node.op == "apply" and tables.clamped_pieces(node.f) is None:
                same = [n for n in nodes if n.op == "apply" and n.args == node.args and self._has_cells(n)]
                self.group[node] = self._together(node, same)
        self.in_place = self._results_in_place(nodes)
        stages = max(self.stage.values(), default=0) + 1
        parts = []
        for stage in range(stages):
            here = [n for n in nodes if self.stage[n] == stage and n.op != "lane" and n not in self.hidden]
            given = [n for n in nodes if n.op == "lane" and stage == 0]
            once = [line for n in given if self.kind[n] == "shared" for line in self._check_shared(n)]
            once += [line for n in here if self.kind[n] == "shared" for line in self._shared(n) + self._check_shared(n)]
            token = [line for n in given if self.kind[n] == "token" for line in self._check_rows(n)]
            token += [line for n in here if self.kind[n] != "shared" for line in self._for_tokens(n)]
            reductions = [n for n in here if self.kind[n] == "reduction"]
            if once:
                parts += ["if (thread == 0) {", *once, "}", "BARRIER;"]
            if token:
                parts += [line for n in reductions for line in self._cleared(n)]
                parts += [
                    "for (long block = thread; block < n_blocks; block += threads) {",
                    "const long nv = block + 1 < n_blocks ? ld : last_nv;",
                    "const long here = block + 1 < n_blocks ? ld * VL : n - block * ld * VL; (void)here;",
                    "vec* in = blocks + block * BLOCK_ROWS * ld; (void)in;",
                    *token,
                    "}",
                    "BARRIER;",
                ]
            if reductions:
                checked = [line for n in reductions for line in self._check_shared(n)]
                parts += ["if (thread == 0) {", "add_up(own_of, threads);", *checked, "}", "BARRIER;"]
        copies = [
            f"std::memcpy(lane_{name}, {self._pointer(node)}, {self.lane_sizes[name]} * sizeof(R));"
            for name, node in self.graph.results.items()
            if node not in self.in_place
        ]
        parts += ["if (thread == 0) {", *copies, "}", "BARRIER;"]
        lanes = [
            f"R* lane_{name} = lane[{i}] + prompt * {self.lane_sizes[name]}; (void)lane_{name};"
            for i, name in enumerate(shared)
        ]
        record, start = [], 0
        for name in self.weights:
            size = self.lane_sizes[name]
            record.append(f"std::memcpy(to + {start}, lane_{name}, {size} * sizeof(R));")
            start += size
        return "\n".join(
            [
                f"static const long N_WEIGHTS = {start};",
                "static void add_up(R* const* own_of, long threads) {",
                "  for (long i = 1; i < threads; ++i)",
                "    for (long j = 0; j < THREAD; ++j) own_of[0][j] += own_of[i][j];",
                "}",
                "static void steps(long prompt, long n, long n_steps, long thread, long threads, long ld,",
                "                  long n_blocks, long last_nv, const R* numbers, long numbers_stride,",
                "                  const R* const* table,",
                "                  R* const* lane, vec* blocks, R* team, R* const* own_of, vec* rows,",
                "                  const long* wanted, long n_wanted, R* record, R* ranges) {",
                "R* own = own_of[thread]; R* sums = own_of[0]; (void)own; (void)sums; (void)ranges; (void)rows;",
                "(void)table; (void)team; (void)n;",
                "long next = 0;",
                *lanes,
                "for (long step = 1; step <= n_steps; ++step, numbers += numbers_stride) {",
                *parts,
                "if (next < n_wanted && wanted[next] == step) {",
                "if (thread == 0) { R* to = record + (prompt * n_wanted + next) * N_WEIGHTS; (void)to;",
                *record,
                "}",
                "++next; BARRIER; }",
                "}",
                "}",
            ]
        )

    def _results_in_place(self, nodes: tuple[Node, ...]) -> dict[Node, str]:
        """Results that may overwrite their lane: computed entry by entry, after everybody else has read it."""
        order = {node: (self.stage[node], self.kind[node] != "shared", i) for i, node in enumerate(nodes)}
        found: dict[Node, str] = {}
        for name, node in self.graph.results.items():
            lane = next((n for n in nodes if n.op == "lane" and n.name == name), None)
            readers = [n for n in nodes if any(a is lane for a, _ in n.args)]
            straight = all(used == node.labels for a, used in node.args if a is lane)
            entrywise = node.op == "apply" or (node.op == "sum" and straight)
            once = sum(other is node for other in self.graph.results.values()) == 1
            read = any(a is node for n in nodes for a, _ in n.args)
            last = all(order[reader] <= order[node] for reader in readers)
            if self.kind[node] == "shared" and entrywise and once and not read and last:
                found[node] = name
        return found

    def _has_cells(self, node: Node) -> bool:
        return tables.clamped_pieces(node.f) is None and tables.cells((node.f,)) is not None

    def _together(self, node: Node, same: list[Node]) -> list[Node]:
        """The functions that are looked up with this one: two of the same argument, if they have a common table."""
        if node not in same or self.kind[node] != "token":
            return [node]
        start = same.index(node) // 2 * 2
        pair = same[start : start + 2]
        return pair if tables.cells(tuple(n.f for n in pair)) is not None else [node]

    def _entry(self, tokens: tuple[str, ...]) -> str:
        rows = 0
        arrange = []
        for i, name in enumerate(tokens):
            size = self.lane_sizes[name]
            lane = f"token[{i}] + prompt * n * {size}, n, {size}"
            arrange.append(f"arrange_rows({lane}, blocks, {rows}, n_blocks, ld, first, every);")
            rows += size
        return f"""
static void arrange_rows(const R* lane, long n, long size, vec* blocks, long row, long n_blocks, long ld, long first,
                         long every) {{
  for (long block = first; block < n_blocks; block += every) {{
    R* to = (R*)(blocks + (block * BLOCK_ROWS + row) * ld);
    const long start = block * ld * VL, here = n - start < ld * VL ? n - start : ld * VL;
    std::memset(to, 0, size * ld * sizeof(vec));
    for (long i = 0; i < here; ++i)
      for (long f = 0; f < size; ++f) to[f * ld * VL + i] = lane[(start + i) * size + f];
  }}
}}
static void arrange_all(const R* const* token, long prompt, long n, vec* blocks, long n_blocks, long ld, long first,
                        long every) {{
  (void)token; (void)prompt; (void)n; (void)blocks; (void)n_blocks; (void)ld; (void)first; (void)every;
  {" ".join(arrange)}
}}
extern "C" long take_steps(long batch, long n, long n_steps, long threads, long block_bytes, const R* numbers,
                           long numbers_stride, const R* const* table, const R* const* token, R* const* lane,
                           const long* wanted, long n_wanted, R* record, R* ranges) {{
  const long total = (n + VL - 1) / VL;
  long ld = block_bytes / (long)(TOKEN_ROWS * sizeof(vec)) / COLUMNS * COLUMNS;
  ld = ld < COLUMNS ? COLUMNS : ld > 4 * COLUMNS ? 4 * COLUMNS : ld;
  if (batch < threads && threads > 1) {{
    const long share = (total + threads - 1) / threads;
    ld = ld < share ? ld : share;
  }}
  ld = ld < total ? ld : total;
  const long n_blocks = (total + ld - 1) / ld, last_nv = total - (n_blocks - 1) * ld;
  const long teams = batch < threads ? 1 : threads, size = threads / teams;
  const long team_bytes = ((TEAM * (long)sizeof(R) + 63) / 64 + 1) * 64;
  const long thread_bytes = ((THREAD * (long)sizeof(R) + 63) / 64 + 1) * 64;
  const long row_bytes = (TOKEN_ROWS + SCRATCH_ROWS) * ld * (long)sizeof(vec);
  const long blocks_bytes = n_blocks * BLOCK_ROWS * ld * (long)sizeof(vec);
  const long bytes = teams * (team_bytes + blocks_bytes) + threads * (thread_bytes + row_bytes);
  char* memory = (char*)std::aligned_alloc(64, bytes);
  if (!memory) return 1;
  char* team_at = memory; char* blocks_at = team_at + teams * team_bytes;
  char* own_at = blocks_at + teams * blocks_bytes; char* rows_at = own_at + threads * thread_bytes;
  R** own_of = (R**)std::malloc(threads * sizeof(R*));
  for (long i = 0; i < threads; ++i) own_of[i] = (R*)(own_at + i * thread_bytes);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {{
#if defined(_OPENMP)
    const long me = threads > 1 ? omp_get_thread_num() : 0;
#else
    const long me = 0;
#endif
    const long my_team = me / size, in_team = me % size;
    vec* blocks = (vec*)(blocks_at + my_team * blocks_bytes);
    for (long prompt = my_team; prompt < batch; prompt += teams) {{
      arrange_all(token, prompt, n, blocks, n_blocks, ld, in_team, size);
      if (size > 1) {{
#pragma omp barrier
      }}
      steps(prompt, n, n_steps, in_team, size, ld, n_blocks, last_nv, numbers, numbers_stride, table, lane, blocks,
            (R*)(team_at + my_team * team_bytes), own_of + my_team * size, (vec*)(rows_at + me * row_bytes), wanted,
            n_wanted, record, ranges + me * 2 * {max(len(self.graph.checks), 1)});
    }}
  }}
  std::free(own_of);
  std::free(memory);
  return 0;
}}
"""

    # ------------------------------------------------------------------------------------------------------- emission

    def _number(self, coefficient: Coefficient) -> str:
        self.numbers.append(coefficient)
        return f"numbers[{len(self.numbers) - 1}]"

    def _pointer(self, node: Node) -> str:
        """Of what a prompt holds."""
        if node.op == "lane":
            return f"lane_{node.name}"
        if node in self.in_place:
            return f"lane_{self.in_place[node]}"
        return f"({'sums' if self.kind[node] == 'reduction' else 'team'} + at_{self.name[node]})"

    def _rows(self, node: Node) -> str:
        """Of what the tokens of a block hold."""
        if node.op == "lane":
            row = 0
            for other in self.graph.nodes:
                if other.op == "lane" and self.kind[other] == "token":
                    if other is node:
                        break
                    row += self.lane_sizes[other.name]
            return f"(in + {row} * ld)"
        return f"(rows + row_{self.name[node]} * ld)"

    def _for_tokens(self, node: Node) -> list[str]:
        """What is done for a block of tokens: a value, and its check, or a part of a sum over all."""
        if self.kind[node] == "reduction":
            return self._reduction(node)
        return self._token(node) + self._check_rows(node)

    def _cleared(self, node: Node) -> list[str]:
        """The first block of a thread sets a sum of outer products; others begin with zero, as do idle threads."""
        zero = f"std::memset(own + at_{self.name[node]}, 0, {math.prod(node.sizes)} * sizeof(R));"
        return [f"if (thread >= n_blocks) {zero}" if self._outer(node) else zero]

    def _outer(self, node: Node) -> bool:
        """Whether a reduction is the sum over tokens of a[k] b[c]."""
        parts = [used.replace("B", "").replace("I", "") for _, used in node.args]
        vectors = len(parts) == 2 and all(len(part) == 1 for part in parts) and parts[0] != parts[1]
        return vectors and set(parts) == set(node.labels[1:])

    def _check_rows(self, node: Node) -> list[str]:
        rows, count = self._rows(node), math.prod(node.sizes)
        numbers = [i for i, check in enumerate(self.graph.checks) if check.node is node]
        return [f"extremes({rows}, {count}, ld, here, ranges + {2 * i});" for i in numbers]

    def _check_shared(self, node: Node) -> list[str]:
        numbers = [i for i, check in enumerate(self.graph.checks) if check.node is node]
        return [f"extremes({self._pointer(node)}, {math.prod(node.sizes)}, ranges + {2 * i});" for i in numbers]

    def _token(self, node: Node) -> list[str]:
        out, count = self._rows(node), math.prod(node.sizes)
        if node in self.inlined or (self._matrix(node) is not None):
            product, bias = self.inlined.get(node, (node, None))
            found = self._matrix(product)
            assert found is not None
            W, p, n_out, n_in, rs, cs = found
            alpha, beta = "R(1)", "R(0)"
            if node in self.inlined:
                index = next(i for i, (a, _) in enumerate(node.args) if a is product)
                alpha = self._number(node.coefficients[index])
                beta = self._number(node.coefficients[1 - index]) if bias is not None else beta
            b = "nullptr" if bias is None else self._pointer(bias)
            matrix = f"{self._pointer(W)}, {rs}, {cs}, {n_out}, {n_in}"
            return [f"times({matrix}, {self._rows(p)}, {out}, nv, ld, {alpha}, {b}, {beta});"]
        if node.op == "apply":
            return self._apply(node, count)
        return self._loops(node, out)

    def _apply(self, node: Node, count: int) -> list[str]:
        ((argument, _),) = node.args
        source = self._rows(argument)
        pieces = tables.clamped_pieces(node.f)
        if pieces is not None:
            body = self._pieces(node.f, "t")
            return [
                f"for (long r = 0; r < {count}; ++r) for (long v = 0; v < nv; ++v) {{",
                f"const vec t = {source}[r * ld + v]; {self._rows(node)}[r * ld + v] = {body}; }}",
            ]
        if tables.cells((node.f,)) is None:
            body = f"((R*)&to)[i] = {self._search(node.f, '((const R*)&t)[i]')};"
            return [
                f"for (long r = 0; r < {count}; ++r) for (long v = 0; v < nv; ++v) {{",
                f"const vec t = {source}[r * ld + v]; vec to; for (long i = 0; i < VL; ++i) {body}",
                f"{self._rows(node)}[r * ld + v] = to; }}",
            ]
        group = self.group[node]
        if group[0] is not node and node in self.group[group[0]]:
            return []
        table, inverse, offset, last = self._table(group)
        outs = ", ".join(self._rows(n) for n in group)
        return [
            f"{{ vec* const to[{len(group)}] = {{{outs}}};",
            f"for (long r = 0; r < {count}; ++r) for (long v = 0; v < nv; ++v)",
            f"look_up<{len(group)}>({table}, {inverse}, {offset}, {last}, {source}[r * ld + v], to, r * ld + v); }}",
        ]

    def _table(self, group: list[Node]) -> tuple[str, str, str, str]:
        found = tables.cells(tuple(n.f for n in group))
        assert found is not None
        numbers = ((found.inverse, 0), (found.offset, 0), (found.count - 1.0, 0))
        inverse, offset, last = (self._number(number) for number in numbers)
        return self._records(found.records), inverse, offset, last

    def _records(self, records: np.ndarray) -> str:
        """A table that the caller hands over."""
        if all(records is not table for table in self.tables):
            self.tables.append(records)
        return f"table[{next(i for i, table in enumerate(self.tables) if table is records)}]"

    def _search(self, f: PiecewiseLinear, t: str) -> str:
        """A function without cells, of one number."""
        return f"search({self._records(tables.pieces(f))}, {self._number((len(f.slopes) - 1.0, 0))}, {t})"

    def _pieces(self, f: PiecewiseLinear, t: str) -> str:
        pieces = tables.clamped_pieces(f)
        assert pieces is not None
        terms = [
            f"piece({t}, {', '.join(self._number((x, 0)) for x in (p.slope, p.low, p.high, p.start))})" for p in pieces
        ]
        constant = self._number((f.value, 0))
        return " + ".join([*terms, constant]) if terms else f"{t} * R(0) + {constant}"

    def _loops(self, node: Node, out: str) -> list[str]:
        """A sum, a product, a selection or a scattering of token nodes, entry by entry along the tokens."""
        labels = node.labels[2:]
        sizes = dict(zip(labels, node.sizes, strict=True))
        for argument, used in node.args:
            sizes |= dict(zip(used.replace("B", "").replace("I", ""), argument.sizes, strict=True))
        to = f"{out}[({_index(node, node.labels)}) * ld + v]"
        if node.op in ("select", "scatter"):
            return self._moves(node, sizes, to)
        values = [self._value(argument, used) for argument, used in node.args]
        if node.op == "sum":
            numbers, total = self._total(node, values)
            return ["{", numbers, *_nest(labels, sizes, f"{to} = vec{{}} + {total};"), "}"]
        inner = "".join(dict.fromkeys(n for _, used in node.args for n in used if n.islower() and n not in labels))
        if not inner:
            return _nest(labels, sizes, f"{to} = {' * '.join(values)};")
        zero = _nest(labels, sizes, f"{to} = vec{{}};")
        return [*zero, *_nest(labels + inner, sizes, f"{to} += {' * '.join(values)};")]

    def _total(self, node: Node, values: list[str]) -> tuple[str, str]:
        """The coefficients of a sum as constants, which the loop keeps in registers, and the sum."""
        coefficients = [*node.coefficients, *([node.constant] if node.constant[0] or not values else [])]
        numbers = ", ".join(f"c{i} = {self._number(c)}" for i, c in enumerate(coefficients))
        terms = [f"c{i} * {value}" for i, value in enumerate(values)]
        return f"const R {numbers};", " + ".join(terms + [f"c{len(values)}"] * (len(coefficients) - len(values)))

    def _moves(self, node: Node, sizes: Mapping[str, int], to: str) -> list[str]:
        (first, used), *rest = node.args
        if node.op == "select":
            fixed = _fixed(first, used, node)
            return _nest(node.labels[2:], sizes, f"{to} = {self._value(first, used, fixed)};")
        copied = _nest(node.labels[2:], sizes, f"{to} = {self._value(first, used)};")
        added, labels = rest[0]
        fixed = {label: i for label, i in zip(node.labels[2:], node.index, strict=True) if i is not None}
        place = f"{self._rows(node)}[({_index(node, node.labels, fixed)}) * ld + v]"
        kept = "".join(label for label in node.labels[2:] if label not in fixed)
        return [*copied, *_nest(kept, sizes, f"{place} += {self._value(added, labels)};")]

    def _value(self, node: Node, used: str, fixed: Mapping[str, int] | None = None) -> str:
        """One entry, on all tokens of a vector, of a token node; one number of a shared one."""
        at = _index(node, used, fixed)
        if self.kind[node] == "token":
            return f"{self._rows(node)}[({at}) * ld + v]"
        return f"{self._pointer(node)}[{at}]"

    def _reduction(self, node: Node) -> list[str]:
        if node.op != "product":
            raise Unsupported("a sum over tokens of another kind")
        own = f"(own + at_{self.name[node]})"
        strides = dict(zip(node.labels[1:], _strides(node), strict=True))
        if any(self.kind[argument] != "token" for argument, _ in node.args):
            raise Unsupported("a sum over tokens times what they share")
        parts = [used.replace("B", "").replace("I", "") for _, used in node.args]
        if self._outer(node):
            (a, _), (b, _) = node.args
            self.longest_side = max(self.longest_side, a.sizes[0], b.sizes[0])
            return [
                f"outer({self._rows(a)}, {a.sizes[0]}, {self._rows(b)}, {b.sizes[0]}, here, ld, {own}, "
                f"{strides[parts[0]]}, {strides[parts[1]]}, rows + TOKEN_ROWS * ld, block == thread);"
            ]
        sizes: dict[str, int] = {}
        for argument, used in node.args:
            sizes |= dict(zip(used.replace("B", "").replace("I", ""), argument.sizes, strict=True))
        to = f"{own}[{_index(node, node.labels)}]"
        rows = [f"{self._rows(a)} + ({_index(a, used)}) * ld" for a, used in node.args]
        value = f"total({rows[0]}, nv)" if len(rows) == 1 else f"dot({rows[0]}, {rows[1]}, nv)"
        return _nest_plain("".join(sizes), sizes, f"{to} += {value};")

    def _shared(self, node: Node) -> list[str]:
        count = math.prod(node.sizes)
        out, labels = self._pointer(node), node.labels[1:]
        if node.op == "apply":
            ((argument, _),) = node.args
            source = self._pointer(argument)
            pieces = tables.clamped_pieces(node.f)
            if pieces is not None:
                body = f"const R t = {source}[r]; {out}[r] = {self._pieces(node.f, 't')};"
                return [f"for (long r = 0; r < {count}; ++r) {{ {body} }}"]
            if tables.cells((node.f,)) is None:
                return [f"for (long r = 0; r < {count}; ++r) {out}[r] = {self._search(node.f, source + '[r]')};"]
            table, inverse, offset, last = self._table([node])
            return [
                f"for (long r = 0; r < {count}; ++r)",
                f"look_up_one<1>({table}, {inverse}, {offset}, {last}, {source}[r], {out} + r, 1);",
            ]
        sizes = dict(zip(labels, node.sizes, strict=True))
        for argument, used in node.args:
            sizes |= dict(zip(used.replace("B", ""), argument.sizes, strict=True))
        to = f"{out}[{_index(node, node.labels)}]"
        if node.op in ("select", "scatter"):
            (first, used), *rest = node.args
            if node.op == "select":
                return _nest_plain(labels, sizes, f"{to} = {self._value(first, used, _fixed(first, used, node))};")
            added, others = rest[0]
            fixed = {label: i for label, i in zip(labels, node.index, strict=True) if i is not None}
            kept = "".join(label for label in labels if label not in fixed)
            place = f"{out}[{_index(node, node.labels, fixed)}]"
            copied = _nest_plain(labels, sizes, f"{to} = {self._value(first, used)};")
            return [*copied, *_nest_plain(kept, sizes, f"{place} += {self._value(added, others)};")]
        values = [self._value(argument, used) for argument, used in node.args]
        if node.op == "sum":
            numbers, total = self._total(node, values)
            return ["{", numbers, *_nest_plain(labels, sizes, f"{to} = {total};"), "}"]
        inner = "".join(dict.fromkeys(n for _, used in node.args for n in used if n.islower() and n not in labels))
        if not inner:
            return _nest_plain(labels, sizes, f"{to} = {' * '.join(values)};")
        zero = _nest_plain(labels, sizes, f"{to} = 0;")
        return [*zero, *_nest_plain(labels + inner, sizes, f"{to} += {' * '.join(values)};")]


def _padded(size: int) -> int:
    """To a multiple of the longest vector."""
    return -(-size // 16) * 16


def _strides(node: Node) -> list[int]:
    """Of its index axes, row-major."""
    strides, step = [], 1
    for size in reversed(node.sizes):
        strides.append(step)
        step *= size
    return strides[::-1]


def _index(node: Node, used: str, fixed: Mapping[str, int] | None = None) -> str:
    """The row of a node's entry, as an expression in the loop variables."""
    inner = [label for label in used if label.islower()]
    terms = [
        f"{(fixed or {}).get(label, 'i' + label)} * {stride}"
        for label, stride in zip(inner, _strides(node), strict=True)
    ]
    return " + ".join(terms) or "0"


def _fixed(first: Node, used: str, node: Node) -> dict[str, int]:
    inner = [label for label in used if label.islower()]
    return {label: i for label, i in zip(inner, node.index, strict=True) if i is not None}


def _nest_plain(labels: str, sizes: Mapping[str, int], body: str) -> list[str]:
    loops = [f"for (long i{label} = 0; i{label} < {sizes[label]}; ++i{label})" for label in labels]
    loops[-1:] = ["\n#pragma GCC ivdep\n" + loop for loop in loops[-1:]]  # nobody writes what it reads elsewhere
    return [" ".join(loops) + " { " + body + " }"]


def _nest(labels: str, sizes: Mapping[str, int], body: str) -> list[str]:
    """The loops over some labels, and over the vectors of tokens."""
    loops = [f"for (long i{label} = 0; i{label} < {sizes[label]}; ++i{label})" for label in labels]
    return [" ".join([*loops, "for (long v = 0; v < nv; ++v)"]) + " { " + body + " }"]
