"""Can the checks of the ledger fail? Mutants of each of them, and how many are noticed.

    nice -n 15 python benchmarks/claims_mutants.py              rows whose code changed since they were stored
    nice -n 15 python benchmarks/claims_mutants.py --all        every row, about ten minutes on one core
    python benchmarks/claims_mutants.py --rows Lemma-3 --show   some rows, each mutant and its end; stores nothing

A mutant is the check with one change in its syntax tree, or in that of a function of the same file that it calls:
another operator, a factor or a sign left out, another constant, two arguments exchanged. It is *caught* if the row
would no longer be accepted. One that raises, or takes far too long, is counted apart: it says that the change was
noticed, not that a number was compared. A check none of whose mutants is caught compares something with itself, and
``claims.py --check`` refuses it. Some mutants change nothing that matters (the size of a sample, a formula wrong
anyway), so not all can be caught. Seeds, shapes and indices are left alone, and so is the difference of the two sides.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import inspect
import io
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import FrameType, ModuleType
from typing import Any

import torch

from _results import RESULTS, read, store
from claims import Check, Claim, accepted, all_claims, row

COMMAND = "python benchmarks/claims_mutants.py --all"
MUTANTS = 10  # of a row, that do not raise
PATIENCE, LEAST = 5.0, 2.0  # a mutant may take so many times as long as the check, and at least so many seconds
ROOM = 8 * 2**30  # bytes of address space: a constant in an exponent may ask for anything

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
ALONE = {"normal", "uniform", "manual_seed", "range", "zeros", "ones", "eye", "reshape", "expand", "default_rng"}
ALONE |= {"arange", "linspace", "logspace", "Linear"}
SIZES = {"abs", "norm", "square"}  # of a difference: a comparison
SYMMETRIC = {"gap", "max", "min", "zip", "isinstance", "product", "cartesian_prod", "equal", "quad", "print"}


# --------------------------------------------------------------------------------------------------- one change


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


class Change(ast.NodeTransformer):
    """Makes the change with number ``wanted``; ``seen`` is how many there are."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.seen, self.line = wanted, 0, 0
        self.spared: set[int] = set()

    def now(self, node: ast.AST) -> bool:
        self.seen += 1
        if self.seen - 1 == self.wanted:
            self.line = getattr(node, "lineno", 0)
            return True
        return False

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.spare(node.value)
        return self.generic_visit(node)

    def spare(self, node: ast.expr | None) -> None:
        """a - b where the two sides of a statement are compared: what differs from itself after a change is no news."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            self.spared.add(id(node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if type(node.op) in OPERATORS and id(node) not in self.spared:
            if self.now(node):
                return ast.copy_location(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right), node)
            if self.now(node):  # the second operand is left out
                return node.left
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.USub) and self.now(node):
            return node.operand
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if type(node.ops[0]) in COMPARISONS and self.now(node):
            ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
            return ast.copy_location(ast.Compare(node.left, ops, node.comparators), node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool) and self.now(node):
            return ast.copy_location(ast.Constant(2 * value if value else 1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name, plain = called(node), not any(isinstance(a, ast.Starred) for a in node.args)
        if name in ALONE:
            return node
        if name in SIZES:
            for one in (*node.args[:1], getattr(node.func, "value", None)):
                self.spare(one)
        if name not in SYMMETRIC and plain and len(node.args) > 1 and self.now(node):
            return ast.copy_location(
                ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords), node
            )
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in ("dim", "axis", "dtype", "seed") else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Decorators, annotations and the docstring are no code to change; defaults are."""
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.body = [one if is_text(one) else self.visit(one) for one in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# ------------------------------------------------------------------------------------------- functions and what calls


@dataclass(frozen=True)
class Source:
    """The functions of a module: their trees, text, and which of them each one names."""

    trees: dict[str, ast.FunctionDef]
    text: dict[str, str]
    names: dict[str, frozenset[str]]

    def reached(self, name: str) -> list[str]:
        """The function and everything that it calls here, at any depth."""
        found, waiting = [name], [name]
        while waiting:
            for other in sorted(self.names[waiting.pop()]):
                if other not in found:
                    found.append(other)
                    waiting.append(other)
        return found


@cache
def source(module: ModuleType) -> Source:
    text = inspect.getsource(module)
    trees = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    parts = {name: ast.get_source_segment(text, tree) or "" for name, tree in trees.items()}
    named = {name: frozenset(read_by(tree) & set(trees) - {name}) for name, tree in trees.items()}
    return Source(trees, parts, named)


def read_by(tree: ast.FunctionDef) -> set[str]:
    """Names that a function reads and does not make itself."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    made |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - made


def place(claim: Claim) -> tuple[ModuleType, str]:
    """Module and name of a row's check."""
    assert claim.check is not None
    return sys.modules[claim.check.__module__], claim.check.__name__


def digest(claim: Claim) -> str:
    """Of the code that the row rests on, and of its limits."""
    module, name = place(claim)
    code = source(module)
    parts = [code.text[one] for one in code.reached(name)] + [repr((claim.limit, claim.threshold))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Mutant:
    module: ModuleType
    check: str
    function: str
    number: int

    def build(self) -> tuple[Check, str]:
        """The check, in a namespace where everything on the way to the change is made anew; and the line changed."""
        code, names = source(self.module), dict(vars(self.module))
        change, line = Change(self.number), ""
        for one in code.reached(self.check):
            if self.function not in code.reached(one):
                continue
            tree = copy.deepcopy(code.trees[one])
            tree.decorator_list = [d for d in tree.decorator_list if isinstance(d, ast.Name) and d.id == "cache"]
            if one == self.function:
                tree = change.visit(tree)
                line = next(ast.unparse(n) for n in lines(tree) if n.lineno <= change.line <= (n.end_lineno or 0))
            block = ast.fix_missing_locations(ast.Module([tree], []))
            exec(compile(block, f"<mutant of {one}>", "exec"), names)
        return names[self.check], line


def lines(tree: ast.AST) -> list[ast.stmt]:
    """Statements, the innermost first."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)][::-1]


def mutants(claim: Claim) -> list[Mutant]:
    """All of them, in an order that is the same in every run: two of the check, then one of what it calls."""
    module, name = place(claim)
    code, found = source(module), []
    for function in code.reached(name):
        counter = Change()
        counter.visit(copy.deepcopy(code.trees[function]))
        found.append([Mutant(module, name, function, n) for n in range(counter.seen)])
    rng = random.Random(claim.id)
    own, others = found[0], [one for part in found[1:] for one in part]
    rng.shuffle(own)
    rng.shuffle(others)
    mixed = []
    while own and others:
        mixed += [*own[:2], others[0]]
        own, others = own[2:], others[1:]
    return mixed + own + others


# ------------------------------------------------------------------------------------------------------- running


class Slow(Exception):
    """Not an error of the mutant's own."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(claim: Claim, check: Check, seconds: float) -> str:
    """'caught', 'survived', or 'raised' if it raised or took too long."""
    changed = copy.copy(claim)
    object.__setattr__(changed, "check", check)
    try:
        with limited(seconds), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return "survived" if accepted(row(changed, changed.measure())) else "caught"
    except Exception:
        return "raised"


def tried(claim: Claim, most: int, show: bool) -> dict[str, Any]:
    """How mutants of a row end: until ``most`` of them were decided by a number, or, if none is caught, far longer."""
    start = time.perf_counter()
    claim.measure()
    seconds = max(LEAST, PATIENCE * (time.perf_counter() - start))
    ends: Counter[str] = Counter()
    for mutant in mutants(claim):
        check, line = mutant.build()
        end = outcome(claim, check, seconds)
        ends[end] += 1
        if show:
            print(f"    {end:<9}{mutant.function}: {line.splitlines()[0]}")
        enough = ends["caught"] + ends["survived"] >= most or ends.total() >= 3 * most
        if enough and (ends["caught"] or ends.total() >= 6 * most):
            break
    return {"id": claim.id, "mutants": ends.total(), "caught": ends["caught"], "raised": ends["raised"]}


def weak(rows: list[dict[str, Any]]) -> list[str]:
    """Rows none of whose mutants was caught."""
    return [entry["id"] for entry in rows if not entry["caught"]]


def stale(claims: list[Claim], rows: list[dict[str, Any]]) -> list[str]:
    """Rows whose code is not the one that was mutated."""
    known = {entry["id"]: entry["digest"] for entry in rows}
    return [claim.id for claim in claims if claim.check is not None and known.get(claim.id) != digest(claim)]


def selected(claims: list[Claim], known: dict[str, Any], part: str, again: bool) -> list[Claim]:
    """Rows whose id contains the text, and whose code is not the one that was mutated (or all of them)."""
    wanted = [claim for claim in claims if part in claim.id]
    return [c for c in wanted if again or known.get(c.id, {}).get("digest") != digest(c)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also rows whose code did not change")
    parser.add_argument("--rows", default="", help="only rows whose id contains this")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="of a row, that do not raise")
    parser.add_argument("--show", action="store_true", help="each mutant's line, and how it ended; stores nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    claims = [claim for claim in all_claims() if claim.check is not None]
    stored = (RESULTS / "claims_mutants.json").exists()
    known = {entry["id"]: entry for entry in read("claims_mutants")["rows"]} if stored else {}
    for claim in selected(claims, known, arguments.rows, arguments.all or arguments.show):
        entry = known[claim.id] = tried(claim, arguments.mutants, arguments.show) | {"digest": digest(claim)}
        mark, ends = " " if entry["caught"] else "!", f"{entry['caught']:>3} of {entry['mutants']} caught"
        print(f"{mark} {claim.id:<38}{ends}, {entry['raised']} raised", flush=True)
    if arguments.show:
        return
    rows = [known[claim.id] for claim in claims if claim.id in known]
    store("claims_mutants", COMMAND, {"rows": rows})
    if bad := weak(rows):
        sys.exit("no mutant is caught of: " + ", ".join(bad))


if __name__ == "__main__":
    main()
