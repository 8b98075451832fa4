"""A graph as the source of a C++ kernel that takes all steps of a loop in one call.

Nodes are of three kinds. *Shared* nodes exist once for a prompt: weights and their functions. *Token* nodes exist for
every token. *Reductions* are sums over tokens. Tokens are taken in blocks that stay in the cache. Within a stage, all
token nodes of a block are computed one after the other, and its reductions are added up. Then the shared nodes that
need them follow, and the next stage. Gradient descent has one stage: forward, backward and the gradients of a block of
examples, with nothing written to memory in between.

The source depends on sizes and structure only; numbers (rates, boxes, tables) are arguments, so that a kernel is built
once for each shape of network.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate

import numpy as np

from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import tables
from innergrad.interpret.graph import Coefficient, Graph, Node, Term, indices, last_uses, lengths
from innergrad.interpret.marks import Mixture

KNOWN = ("lane", "product", "sum", "apply", "select", "scatter", "normalise")


class Unsupported(Exception):
    """The graph is not of the kind that kernels are made for; the torch executor takes it."""


@dataclass(frozen=True)
class _Affine:
    """alpha W p + beta b, with a product W p that nobody else reads: one call."""

    product: Node
    alpha: Coefficient = (1.0, 0)
    bias: Node | None = None
    beta: Coefficient = (0.0, 0)


class Source:
    """The text, and the arrays that the caller has to hand over, in order: lanes (batch, size) that are read and
    written, lanes (batch, n, size) of tokens, numbers and tables.

    weights: shared lanes that are recorded, in order.
    """

    def __init__(self, graph: Graph, lane_sizes: Mapping[str, int], weights: tuple[str, ...]) -> None:
        self.graph, self.lane_sizes, self.weights = graph, lane_sizes, weights
        self.nodes = sorted(graph.nodes, key=lambda node: node.op != "lane")
        self.kind = {node: _kind(node) for node in self.nodes}
        self._require()
        self.stage = self._stages()
        self.affine = {node: found for node in self.nodes if (found := self._affine(node)) is not None}
        self.hidden = {found.product for node, found in self.affine.items() if found.product is not node}
        self.groups = self._groups()
        self.in_place = self._results_in_place()
        self.room: dict[str, int] = defaultdict(int)
        self.place = self._places()
        lanes = [node for node in self.nodes if node.op == "lane"]
        self.token_lanes = tuple(node.name for node in lanes if self.kind[node] == "token")
        shared = [node.name for node in lanes if self.kind[node] == "shared"]
        self.shared_lanes = tuple(dict.fromkeys([*shared, *graph.results, *weights]))
        self.numbers: list[Coefficient] = []
        self.tables: list[np.ndarray] = []
        self.text = f"{self._head()}\n{self._steps()}\n{self._entry()}"

    # -------------------------------------------------------------------------------------------------------- structure

    def _require(self) -> None:
        for node in self.nodes:
            used, summed = [labels for _, labels in node.args], self.kind[node] == "reduction"
            of_markers = node.op == "normalise" or isinstance(node.f, Mixture)
            applied = isinstance(node.f, PiecewiseLinear | Mixture)
            reasons = {
                f"{node.op} nodes": node.op not in KNOWN or "S" in node.labels,
                "functions that are neither piecewise linear nor of markers": node.op == "apply" and not applied,
                "functions of markers that are no token's": of_markers and self.kind[node] != "token",
                "a softmax of a matrix": node.op == "normalise" and len(node.sizes) != 1,
                "tokens that read other tokens": any("S" in labels for labels in used),
                "diagonals": any(len(set(labels)) < len(labels) for labels in used),
                "lanes that tokens keep from step to step": node.per_token and node in self.graph.results.values(),
                "a sum over tokens of another kind": summed and node.op != "product",
                "a sum over tokens times a shared value": summed and any("I" not in labels for labels in used),
            }
            for reason, holds in reasons.items():
                if holds:
                    raise Unsupported(reason)

    def _stages(self) -> dict[Node, int]:
        stage: dict[Node, int] = {}
        for node in self.nodes:
            stage[node] = max((stage[a] + (self.kind[a] == "reduction") for a, _ in node.args), default=0)
            made = [argument for argument, _ in node.args if self.kind[argument] == "token" and argument.op != "lane"]
            if any(stage[argument] != stage[node] for argument in made):
                raise Unsupported("values of tokens that are needed after a sum over tokens")
        return stage

    def _matrix(self, node: Node) -> tuple[Term, Term] | None:
        """W and p of a product of a matrix that tokens share and a vector of each."""
        if node.op != "product" or self.kind[node] != "token" or len(node.args) != 2:
            return None
        (W, of_W), (p, of_p) = sorted(node.args, key=lambda term: self.kind[term[0]] == "token")
        out, inner = indices(node.labels), indices(of_p)
        vectors = len(out) == len(inner) == 1 and out != inner and set(indices(of_W)) == {out, inner}
        return ((W, of_W), (p, of_p)) if vectors and self.kind[W] != "token" else None

    def _affine(self, node: Node) -> _Affine | None:
        if self._matrix(node) is not None:
            return _Affine(node)
        if node.op != "sum" or self.kind[node] != "token" or node.constant[0] or len(node.args) not in (1, 2):
            return None
        terms = list(zip(node.args, node.coefficients, strict=True))
        for ((product, used), alpha), *rest in (terms, terms[::-1]):
            if self.graph.uses[product] == 1 and used == node.labels and self._matrix(product) is not None:
                if not rest:
                    return _Affine(product, alpha)
                (((bias, others), beta),) = rest
                if self.kind[bias] != "token" and others == "B" + indices(node.labels):
                    return _Affine(product, alpha, bias, beta)
        return None

    def _groups(self) -> dict[Node, list[Node]]:
        """Functions that have a table, each with those that it is looked up with: two that tokens apply to the same
        argument, if they have a common table. Functions of the same markers, all that have the same argument.
        """
        groups: dict[Node, list[Node]] = {}
        mixed = [node for node in self.nodes if isinstance(node.f, Mixture)]
        for node in mixed:
            groups[node] = [n for n in mixed if n.args == node.args and n.f.weights == node.f.weights]
        bent = [node for node in self.nodes if isinstance(node.f, PiecewiseLinear)]
        cut = [node for node in bent if _has_cells(node.f)]
        for node in cut:
            if node not in groups:
                pair = [n for n in cut if n.args == node.args and n not in groups][:2]
                common = self.kind[node] == "token" and tables.cells(tuple(n.f for n in pair)) is not None
                groups |= dict.fromkeys(pair, pair) if common else {node: [node]}
        return groups

    def _results_in_place(self) -> dict[Node, str]:
        """Results that may overwrite their lane: computed entry by entry, after everybody else has read it."""
        order = {node: (self.stage[node], self.kind[node] != "shared", i) for i, node in enumerate(self.nodes)}
        found: dict[Node, str] = {}
        for name, node in self.graph.results.items():
            reads = [(n, used) for n in self.nodes for a, used in n.args if a.op == "lane" and a.name == name]
            last = all(order[reader] <= order[node] for reader, _ in reads)
            entrywise = node.op in ("apply", "sum") and all(used == node.labels for n, used in reads if n is node)
            if self.kind[node] == "shared" and self.graph.uses[node] == 1 and entrywise and last:
                found[node] = name
        return found

    # ------------------------------------------------------------------------------------------------------- workspace

    def _pool(self, node: Node) -> tuple[str, int]:
        """The pool of a node's room, and its size: lanes and rows of a block of tokens, sums of a thread, room of a
        team of threads.
        """
        size = math.prod(node.sizes)
        if self.kind[node] == "token":
            return "in" if node.op == "lane" else "rows", size
        return "sums" if self.kind[node] == "reduction" else "team", _padded(size)

    def _places(self) -> dict[Node, int]:
        """Where everything is in its pool. Rows are used again when nobody reads them any more."""
        places: dict[Node, int] = {}
        free: dict[tuple[str, int], list[int]] = defaultdict(list)
        placed = [node for node in self.nodes if node not in self.hidden and not self._lane(node)]
        for node, over in zip(placed, last_uses([self._reads(n) for n in placed], self.graph.kept), strict=True):
            for new in self.groups.get(node, [node]):
                if new not in places:
                    (pool, size), spare = self._pool(new), free[self._pool(new)]
                    places[new] = spare.pop() if spare else self.room[pool]
                    self.room[pool] = max(self.room[pool], places[new] + size)
            for old in over:
                if self._pool(old)[0] == "rows":
                    free[self._pool(old)].append(places[old])
        return places

    def _reads(self, node: Node) -> list[Node]:
        """The operands; of a product inside it, the factors."""
        inside = self.affine[node].product.args if node in self.affine else ()
        return [argument for argument, _ in (*node.args, *inside) if argument not in self.hidden]

    def _lane(self, node: Node) -> str | None:
        """The lane of the prompt that a node is, or that it overwrites."""
        return self.in_place.get(node) or (node.name if self.kind[node] == "shared" else None)

    def _base(self, node: Node) -> str:
        """Where a node is: in an array of the prompt, or in rows of a block of tokens."""
        if self._lane(node):
            return f"lane_{self._lane(node)}"
        return f"({self._pool(node)[0]} + {self.place[node]}{' * ld' if self.kind[node] == 'token' else ''})"

    def _at(self, node: Node, used: str, index: Sequence[int | None] = ()) -> str:
        """One entry of a node, in the loops over its labels: on all tokens of a vector, or one number.

        index: entries that are fixed.
        """
        row = _row(node, used, index)
        return f"{self._base(node)}[{f'({row}) * ld + v' if self.kind[node] == 'token' else row}]"

    def _head(self) -> str:
        sides = [a.sizes[0] for node in self.nodes if self._outer(node) for a, _ in node.args]
        return f"""#include "runtime.hpp"
#define BARRIER do {{ if (threads > 1) {{ _Pragma("omp barrier") }} }} while (0)
static const long TEAM = {self.room["team"]};
static const long THREAD = {self.room["sums"]};
static const long TOKEN_ROWS = {max(self.room["rows"], 1)};
static const long SCRATCH_ROWS = {_padded(max(sides, default=0))};
static const long BLOCK_ROWS = {max(self.room["in"], 1)};
static const long N_WEIGHTS = {sum(self.lane_sizes[name] for name in self.weights)};
static const long N_CHECKS = {max(len(self.graph.checks), 1)};
"""

    # ----------------------------------------------------------------------------------------------------------- steps

    def _steps(self) -> str:
        parts = [part for stage in range(max(self.stage.values(), default=0) + 1) for part in self._of_stage(stage)]
        copies = [
            f"std::memcpy(lane_{name}, {self._base(node)}, {self.lane_sizes[name]} * sizeof(R));"
            for name, node in self.graph.results.items()
            if node not in self.in_place
        ]
        lanes = [
            f"R* lane_{name} = lane[{i}] + prompt * {self.lane_sizes[name]}; (void)lane_{name};"
            for i, name in enumerate(self.shared_lanes)
        ]
        starts = accumulate((self.lane_sizes[name] for name in self.weights), initial=0)
        record = [
            f"std::memcpy(to + {start}, lane_{name}, {self.lane_sizes[name]} * sizeof(R));"
            for start, name in zip(starts, self.weights, strict=False)
        ]
        join = "\n".join
        return f"""
static void add_up(R* const* own_of, long threads) {{
  for (long i = 1; i < threads; ++i)
    for (long j = 0; j < THREAD; ++j) own_of[0][j] += own_of[i][j];
}}
static void steps(long prompt, long n, long n_steps, long thread, long threads, long ld,
                  long n_blocks, long last_nv, const R* numbers, long numbers_stride,
                  const R* const* table,
                  R* const* lane, vec* blocks, R* team, R* const* own_of, vec* rows,
                  const long* wanted, long n_wanted, R* record, R* ranges) {{
R* own = own_of[thread]; R* sums = own_of[0]; (void)own; (void)sums; (void)ranges; (void)rows;
(void)table; (void)team; (void)n;
long next = 0;
{join(lanes)}
for (long step = 1; step <= n_steps; ++step, numbers += numbers_stride) {{
{join(parts + _by_one(copies))}
if (next < n_wanted && wanted[next] == step) {{
if (thread == 0) {{ R* to = record + (prompt * n_wanted + next) * N_WEIGHTS; (void)to;
{join(record)}
}}
++next; BARRIER; }}
}}
}}
"""

    def _of_stage(self, stage: int) -> list[str]:
        """The work of one thread for the prompt, and then of each for its blocks of tokens; their sums are added up."""
        here = [node for node in self.nodes if self.stage[node] == stage and node not in self.hidden]
        reductions = [node for node in here if self.kind[node] == "reduction"]
        shared = [line for node in here if self.kind[node] == "shared" for line in self._computed(node)]
        tokens = [line for node in here if self.kind[node] != "shared" for line in self._computed(node)]
        parts = _by_one(shared) + [self._cleared(node) for node in reductions]
        if tokens:
            parts += [
                "for (long block = thread; block < n_blocks; block += threads) {",
                "const long nv = block + 1 < n_blocks ? ld : last_nv;",
                "const long here = block + 1 < n_blocks ? ld * VL : n - block * ld * VL; (void)here;",
                "vec* in = blocks + block * BLOCK_ROWS * ld; (void)in;",
                *tokens,
                "}",
                "BARRIER;",
            ]
        if reductions:
            checks = [line for node in reductions for line in self._checks(node)]
            parts += _by_one(["add_up(own_of, threads);", *checks])
        return parts

    def _computed(self, node: Node) -> list[str]:
        """A value and its checks, or a part of a sum over all tokens."""
        if self.kind[node] == "reduction":
            return [self._reduction(node)]
        return self._checks(node) if node.op == "lane" else [self._value(node), *self._checks(node)]

    def _checks(self, node: Node) -> list[str]:
        what = f"{self._base(node)}, {math.prod(node.sizes)}{', ld, here' if self.kind[node] == 'token' else ''}"
        numbers = [i for i, check in enumerate(self.graph.checks) if check.node is node]
        return [f"extremes({what}, ranges + {2 * i});" for i in numbers]

    def _entry(self) -> str:
        sizes = [self.lane_sizes[name] for name in self.token_lanes]
        arrange = [
            f"arrange_rows(token[{i}] + prompt * n * {size}, n, {size}, blocks, {row}, n_blocks, ld, first, every);"
            for i, (size, row) in enumerate(zip(sizes, accumulate(sizes, initial=0), strict=False))
        ]
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
            n_wanted, record, ranges + me * 2 * N_CHECKS);
    }}
  }}
  std::free(own_of);
  std::free(memory);
  return 0;
}}
"""

    # ------------------------------------------------------------------------------------------------------- sums

    def _outer(self, node: Node) -> bool:
        """Whether a reduction is the sum over tokens of a[k] b[c]."""
        parts = [indices(used) for _, used in node.args]
        return self.kind[node] == "reduction" and len(parts) == 2 and sorted(parts) == sorted(indices(node.labels))

    def _cleared(self, node: Node) -> str:
        """The first block of a thread sets a sum of outer products; others begin with zero, as do idle threads."""
        zero = f"std::memset(own + {self.place[node]}, 0, {math.prod(node.sizes)} * sizeof(R));"
        return f"if (thread >= n_blocks) {zero}" if self._outer(node) else zero

    def _reduction(self, node: Node) -> str:
        own = f"(own + {self.place[node]})"
        if self._outer(node):
            strides = _strides(node, node.labels)
            sides = [f"{self._base(a)}, {a.sizes[0]}" for a, _ in node.args]
            steps = [str(strides[indices(used)]) for _, used in node.args]
            return (
                f"outer({', '.join(sides)}, here, ld, {own}, {', '.join(steps)}, rows + TOKEN_ROWS * ld, "
                "block == thread);"
            )
        rows = [f"{self._base(a)} + ({_row(a, used)}) * ld" for a, used in node.args]
        value = f"{'total' if len(rows) == 1 else 'dot'}({', '.join(rows)}, nv)"
        every = lengths((node, node.labels), *node.args)
        return self._nest(node, every, f"{own}[{_row(node, node.labels)}] += {value};")

    # ---------------------------------------------------------------------------------------------------------- values

    def _value(self, node: Node) -> str:
        """The loops that compute a node, entry by entry."""
        if node in self.affine:
            return self._times(node, self.affine[node])
        own, to = lengths((node, node.labels)), self._at(node, node.labels)
        values = [self._at(argument, used) for argument, used in node.args]
        zero = "vec{}" if self.kind[node] == "token" else "R(0)"
        match node.op:
            case "apply":
                return self._apply(node)
            case "normalise":
                ((argument, _),) = node.args
                return f"normalise({self._base(argument)}, {self._base(node)}, {node.sizes[0]}, nv, ld);"
            case "sum":
                numbers, total = self._total(node, values)
                spread = "vec{} + " if self.kind[node] == "token" else ""
                return f"{{ {numbers}\n{self._nest(node, own, f'{to} = {spread}{total};')} }}"
            case "select":
                ((source, used),) = node.args
                return self._nest(node, own, f"{to} = {self._at(source, used, node.index)};")
            case "scatter":
                kept = {label: own[label] for label, i in zip(own, node.index, strict=True) if i is None}
                place = self._at(node, node.labels, node.index)
                copied = self._nest(node, own, f"{to} = {values[0]};")
                return f"{copied}\n{self._nest(node, kept, f'{place} += {values[1]};')}"
        product, every = " * ".join(values), lengths((node, node.labels), *node.args)
        if len(every) == len(own):
            return self._nest(node, own, f"{to} = {product};")
        cleared = self._nest(node, own, f"{to} = {zero};")
        return f"{cleared}\n{self._nest(node, every, f'{to} += {product};')}"

    def _times(self, node: Node, affine: _Affine) -> str:
        found = self._matrix(affine.product)
        assert found is not None
        (W, of_W), (p, of_p) = found
        strides = _strides(W, of_W)
        rs, cs = strides[indices(affine.product.labels)], strides[indices(of_p)]
        matrix = f"{self._base(W)}, {rs}, {cs}, {node.sizes[0]}, {p.sizes[0]}"
        alpha, beta = self._number(affine.alpha), self._number(affine.beta)
        bias = "nullptr" if affine.bias is None else self._base(affine.bias)
        return f"times({matrix}, {self._base(p)}, {self._base(node)}, nv, ld, {alpha}, {bias}, {beta});"

    def _total(self, node: Node, values: list[str]) -> tuple[str, str]:
        """The coefficients of a sum as constants, which the loop keeps in registers, and the sum."""
        coefficients = [*node.coefficients, *([node.constant] if node.constant[0] or not values else [])]
        numbers = ", ".join(f"c{i} = {self._number(c)}" for i, c in enumerate(coefficients))
        terms = [f"c{i} * {value}" for i, value in enumerate(values)]
        return f"const R {numbers};", " + ".join(terms + [f"c{len(values)}"] * (len(coefficients) - len(values)))

    def _apply(self, node: Node) -> str:
        """A function, by a formula or in a table."""
        ((argument, _),) = node.args
        kind, at = ("vec", "ir * ld + v") if self.kind[node] == "token" else ("R", "ir")
        t, entries = f"const {kind} t = {self._base(argument)}[{at}];", {"r": math.prod(node.sizes)}
        if node not in self.groups:
            return self._nest(node, entries, f"{t} {self._base(node)}[{at}] = {self._formula(node.f)};")
        group = self.groups[node]
        if node is not group[0]:
            return ""
        if isinstance(node.f, Mixture):
            return self._nest(node, entries, f"{t} {self._mixture(group, at)}")
        look_up = f"look_up<{len(group)}>({self._table(group)}, t, to, {at});"
        to = f"{kind}* const to[{len(group)}] = {{{', '.join(self._base(n) for n in group)}}};"
        return f"{{ {to}\n{self._nest(node, entries, f'{t} {look_up}')} }}"

    def _mixture(self, group: list[Node], at: str) -> str:
        """Means of the values on markers, with weights that are the same for all functions of the group."""
        rates, logs = group[0].f.weights
        pairs = enumerate(zip(rates, logs, strict=True))
        scores = [f"e{i} = t * {self._number((a, 0))} + {self._number((b, 0))}" for i, (a, b) in pairs]
        names = [f"e{i}" for i in range(len(rates))]
        largest = " ".join(f"m = {name} > m ? {name} : m;" for name in names[1:])
        weights = " ".join(f"{name} = exponential({name} - m);" for name in names)
        lines = [f"vec {', '.join(scores)}, m = e0; {largest} {weights} const vec sum = {' + '.join(names)};"]
        for node in group:
            terms = zip(names, node.f.values, strict=True)
            value = " + ".join(f"{name} * {self._number((number, 0))}" for name, number in terms)
            lines.append(f"{self._base(node)}[{at}] = ({value}) / sum;")
        return " ".join(lines)

    def _formula(self, f: PiecewiseLinear) -> str:
        """f(t): a sum of clamped pieces if there are few, else a search."""
        pieces = tables.clamped_pieces(f)
        if pieces is None:
            return f"search({self._records(tables.pieces(f))}, {self._number((len(f.slopes) - 1.0, 0))}, t)"
        terms = [f"piece(t, {', '.join(self._number((x, 0)) for x in astuple(piece))})" for piece in pieces]
        return " + ".join([*(terms or ["t * R(0)"]), self._number((f.value, 0))])

    def _table(self, group: list[Node]) -> str:
        found = tables.cells(tuple(n.f for n in group))
        assert found is not None
        numbers = [self._number((number, 0)) for number in (found.inverse, found.offset, found.count - 1.0)]
        return ", ".join([self._records(found.records), *numbers])

    def _records(self, records: np.ndarray) -> str:
        """A table that the caller hands over."""
        if all(records is not table for table in self.tables):
            self.tables.append(records)
        return f"table[{next(i for i, table in enumerate(self.tables) if table is records)}]"

    def _number(self, coefficient: Coefficient) -> str:
        self.numbers.append(coefficient)
        return f"numbers[{len(self.numbers) - 1}]"

    def _nest(self, node: Node, ranges: Mapping[str, int], body: str) -> str:
        """Loops over some labels, and over the vectors of tokens if the node is one of theirs."""
        loops = [f"for (long i{label} = 0; i{label} < {length}; ++i{label})" for label, length in ranges.items()]
        if self.kind[node] == "token":
            loops.append("for (long v = 0; v < nv; ++v)")
        else:
            loops[-1:] = ["\n#pragma GCC ivdep\n" + loop for loop in loops[-1:]]  # nobody writes its operands elsewhere
        return f"{' '.join(loops)} {{ {body} }}"


def _kind(node: Node) -> str:
    return "token" if node.per_token else ("reduction" if node.tokens else "shared")


def _has_cells(f: PiecewiseLinear) -> bool:
    return tables.clamped_pieces(f) is None and tables.cells((f,)) is not None


def _by_one(lines: list[str]) -> list[str]:
    """Work that one thread does while the others wait."""
    return ["if (thread == 0) {", *lines, "}", "BARRIER;"] if lines else []


def _padded(size: int) -> int:
    """To a multiple of the longest vector."""
    return -(-size // 16) * 16


def _strides(node: Node, used: str) -> dict[str, int]:
    """Of its index axes, row-major."""
    steps = [math.prod(node.sizes[i + 1 :]) for i in range(len(node.sizes))]
    return dict(zip(indices(used), steps, strict=True))


def _row(node: Node, used: str, index: Sequence[int | None] = ()) -> str:
    """The row of a node's entry, as an expression in the loop variables and the indices that are fixed."""
    fixed = index or [None] * len(node.sizes)
    entries = zip(_strides(node, used).items(), fixed, strict=True)
    return " + ".join(f"{f'i{label}' if i is None else i} * {step}" for (label, step), i in entries) or "0"
