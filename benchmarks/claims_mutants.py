"""Can the checks of the ledger fail? Mutants of each of them, and how many are noticed.

    nice -n 15 python benchmarks/claims_mutants.py              rows whose code changed since they were stored
    nice -n 15 python benchmarks/claims_mutants.py --all        every row, about ten minutes on one core
    python benchmarks/claims_mutants.py --all --rows Lemma-3 --show     some rows, each mutant and its end

A mutant is the check with one change in its syntax tree, or in that of a function of its paper that it calls:
another operator, a factor or a sign left out, another constant, two arguments exchanged. It is *caught* if the row
would no longer be accepted. Four kinds are counted apart, for no check can notice them by a number:

- *raised*: it raised, or took far too long. The change was noticed, but nothing was compared.
- *looser*: the row compares a quantity with a bound, and the change made their ratio smaller: it is a bound still.
- *refuted*: only the number of the printed statement moved, and is still too large: another wrong statement is refuted.
- *idle*: the change is in a function that the check calls, and no number that is not 0 moved by a bit: the check does
  not use the line.

All others *survived*; what a row should have noticed is caught + survived, and ``claims.py --check`` refuses a row that
caught less than ``LEAST_SHARE`` of it, unless ``EXCUSES`` says why. The case that a statement is tried on is left alone
(samples, sizes, seeds, rates, indices), and so is the difference of the two sides.
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
from claims import Check, Claim, Measured, all_claims

COMMAND = "python benchmarks/claims_mutants.py --all"
MUTANTS = 8  # of a row, that are caught or survive
ENDS = ("caught", "survived", "looser", "refuted", "idle", "raised")
APART = ("looser", "refuted", "idle")  # ran to the end, and no number can notice them
LEAST_SHARE = 1 / 3  # of the mutants that could be caught
EXCUSES = {  # rows that catch less, and why
    "networks-Lemma-2": "the lower bound is the same for every width, so that changes of the width change nothing",
    "cheng-eq-79": "its number is exactly 0, so that changes of lines it does not use cannot be told from others",
    "akyurek-eq-79-82": "it compares two parts of one layer: changes of other parts change both",
}
BOUND = 1e-3  # a limit that is no rounding: the row compares with a bound
TINY = 2e-5  # a number for rounding
SEED = 100  # a whole number from here on, given to a function, is a seed or the size of a sample
MOVED = 0.01  # relative change of a number that counts as one
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
ALONE |= {
    "Heads",
    "Lanes",
    "arange",
    "linspace",
    "logspace",
    "Linear",
    "Network",
    "GradientDescent",
    "compile",
    "rand",
    "randn",
    "full",
}
SAMPLES = {"normal", "uniform", "rand", "randn"}
SHAPING = {"tensor", "stack", "diag", "Generator", "normalize", "enumerate", "zip"}
SIZES = {"abs", "norm", "square"}  # of a difference: a comparison
SYMMETRIC = {"gap", "max", "min", "zip", "isinstance", "product", "cartesian_prod", "equal", "quad", "print"}


# --------------------------------------------------------------------------------------------------- one change


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


class Change(ast.NodeTransformer):
    """Makes the change with number ``wanted``; ``seen`` is how many there are."""

    def __init__(self, wanted: int = -1, cases: frozenset[str] = frozenset()) -> None:
        self.wanted, self.seen, self.line, self.alone = wanted, 0, 0, ALONE | cases
        self.spared: set[int] = set()

    def now(self, node: ast.AST) -> bool:
        self.seen += 1
        if self.seen - 1 == self.wanted:
            self.line = getattr(node, "lineno", 0)
            return True
        return False

    def visit_Return(self, node: ast.Return) -> ast.AST:
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        if any(isinstance(one, ast.Attribute) and one.attr == "inf" for one in parts):
            return node  # the end of a check that has failed
        self.spare(node.value)
        return self.generic_visit(node)

    def spare(self, node: ast.expr | None) -> None:
        """a - b where the two sides of a statement are compared: what differs from itself after a change is no news."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            self.spared.add(id(node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return node if is_case(node.value, self.alone) else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        node.body = [self.visit(one) for one in node.body]
        if not is_case(node.iter, self.alone):
            node.iter = self.visit(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return node if is_case(node.iter, self.alone) else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if is_sample(node, self.alone):
            return node
        if type(node.op) in OPERATORS and id(node) not in self.spared and not is_idle(node):
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
        for one in (node.left, *node.comparators):  # how strict a guard is, is no statement
            if isinstance(one, ast.Constant):
                self.spared.add(id(one))
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if id(node) in self.spared or (isinstance(value, float) and 0 < abs(value) < TINY):
            return node
        if isinstance(value, int | float) and not isinstance(value, bool) and self.now(node):
            return ast.copy_location(ast.Constant(2 * value if value else 1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name, plain = called(node), not any(isinstance(a, ast.Starred) for a in node.args)
        if name in self.alone:
            return node
        for one in node.args:
            if isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value >= SEED:
                self.spared.add(id(one))
        if name in SIZES:
            for side in (*node.args[:1], getattr(node.func, "value", None)):
                self.spare(side)
        differ = len(node.args) > 1 and ast.dump(node.args[0]) != ast.dump(node.args[1])
        if name not in SYMMETRIC and plain and differ and self.now(node):
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
        """Decorators, defaults, annotations and the docstring are no code to change."""
        node.body = [one if is_text(one) else self.visit(one) for one in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None and not is_case(node.value, self.alone):
            node.value = self.visit(node.value)
        return node


def is_case(node: ast.expr, alone: frozenset[str] | set[str]) -> bool:
    """A number, a tuple of numbers, or a sample of given size and scale: what a statement is tried on."""
    if isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and node.attr in ("inf", "nan", "pi")):
        return True
    if isinstance(node, ast.Tuple | ast.List):
        return all(is_case(one, alone) or isinstance(one, ast.Name | ast.Starred) for one in node.elts)
    if isinstance(node, ast.UnaryOp):
        return is_case(node.operand, alone)
    if isinstance(node, ast.Call):
        return called(node) in alone or (called(node) in SHAPING and all(is_case(one, alone) for one in node.args))
    return is_sample(node, alone)


def is_sample(node: ast.AST, alone: frozenset[str] | set[str]) -> bool:
    """Arithmetic with a sample in it and no other functions: 0.5 * normal(3, n), w + 0.1 * normal(4, n)."""
    if not isinstance(node, ast.BinOp | ast.ListComp | ast.GeneratorExp):
        return False
    names = {called(one) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return bool(names & SAMPLES) and names <= alone | SHAPING


def is_idle(node: ast.BinOp) -> bool:
    """A factor of 1, or a number for rounding: no change of these is one of the statement."""
    right = node.right.value if isinstance(node.right, ast.Constant) else None
    if isinstance(node.op, ast.Mult | ast.Div) and right == 1:
        return True
    return isinstance(node.op, ast.Add | ast.Sub) and isinstance(right, float) and 0 < abs(right) < TINY


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# ------------------------------------------------------------------------------------------- functions and what calls


@dataclass(frozen=True)
class Source:
    """The functions of a module: their trees, text, which of them each one names, and which make the cases (CASES)."""

    trees: dict[str, ast.FunctionDef]
    text: dict[str, str]
    names: dict[str, frozenset[str]]
    cases: frozenset[str]

    def reached(self, name: str) -> list[str]:
        """The function and everything that it calls here, at any depth."""
        found, waiting = [name], [name]
        while waiting:
            for other in sorted(self.names[waiting.pop()]):
                if other not in found:
                    found.append(other)
                    waiting.append(other)
        return found


def family(module: ModuleType) -> list[ModuleType]:
    """The module, after what the checks of its paper share."""
    shared = sys.modules.get(f"{module.__package__}.common") if module.__package__ else None
    return [module] if shared is None else [shared, module]


@cache
def source(module: ModuleType) -> Source:
    trees, parts, cases = dict[str, ast.FunctionDef](), dict[str, str](), set[str]()
    for one in family(module):
        text = inspect.getsource(one)
        found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        trees |= found
        parts |= {name: ast.get_source_segment(text, tree) or "" for name, tree in found.items()}
        cases |= set(getattr(one, "CASES", ()))
    named = {name: frozenset(read_by(tree) & set(trees) - {name}) for name, tree in trees.items()}
    return Source(trees, parts, named, frozenset(cases))


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
    known = source(module)
    parts = [known.text[one] for one in known.reached(name)] + [repr((claim.limit, claim.threshold)), rules()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def code(claim: Claim) -> str:
    """What the row rests on: its check, what that calls, and the numbers with a name."""
    module, name = place(claim)
    parts = [source(module).text[one] for one in source(module).reached(name)]
    for one in family(module):
        constants = [node for node in ast.parse(inspect.getsource(one)).body if isinstance(node, ast.Assign)]
        parts += [ast.unparse(node) for node in constants]
    return "\n".join(parts)


@cache
def rules() -> str:
    """What is changed, and how: other rules, other mutants."""
    return "".join(inspect.getsource(one) for one in (Change, is_case, is_sample, is_idle))


@dataclass(frozen=True)
class Mutant:
    module: ModuleType
    check: str
    function: str
    number: int

    def build(self) -> tuple[Check, str]:
        """The check, in a namespace where everything on the way to the change is made anew; and the line changed."""
        known, names = source(self.module), dict[str, Any]()
        for module in family(self.module):
            names |= vars(module)
        change, line = Change(self.number, known.cases), ""
        for one in known.reached(self.check):
            if self.function not in known.reached(one):
                continue
            tree = copy.deepcopy(known.trees[one])
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
    known, found = source(module), []
    for function in [one for one in known.reached(name) if one not in known.cases]:
        counter = Change(cases=known.cases)
        counter.visit(copy.deepcopy(known.trees[function]))
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


def outcome(claim: Claim, check: Check, seconds: float) -> Measured | None:
    """What a mutant measures; nothing if it raised or took too long."""
    changed = copy.copy(claim)
    object.__setattr__(changed, "check", check)
    try:
        with limited(seconds), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return changed.measure()
    except Exception:
        return None


def ended(claim: Claim, before: Measured, after: Measured | None, own: bool) -> str:
    """One of ENDS; ``own``: the change is in the check itself."""
    if after is None:
        return "raised"
    if not claim.fits(after):
        return "caught"
    if not own and after == before and any(before):
        return "idle"
    if (claim.limit or 0) >= BOUND and (after.error or 0) < (1 - MOVED) * (before.error or 0):
        return "looser"
    if not moved(before.error, after.error) and moved(before.printed, after.printed):
        return "refuted"
    return "survived"


def moved(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and abs(after - before) > MOVED * abs(before)


def tried(claim: Claim, most: int, show: bool) -> dict[str, Any]:
    """How mutants of a row end: until ``most`` of them were caught or survived, or three times as many were tried."""
    start = time.perf_counter()
    before = claim.measure()
    seconds = max(LEAST, PATIENCE * (time.perf_counter() - start))
    ends: Counter[str] = Counter()
    for mutant in mutants(claim):
        check, line = mutant.build()
        end = ended(claim, before, outcome(claim, check, seconds), own=mutant.function == mutant.check)
        ends[end] += 1
        if show:
            print(f"    {end:<9}{mutant.function}: {line.splitlines()[0]}")
        enough = ends["caught"] + ends["survived"] >= most or ends.total() >= 3 * most
        if enough and (ends["caught"] or ends.total() >= 6 * most):
            break
    return {"id": claim.id} | {end: ends[end] for end in ENDS}


def weak(rows: list[dict[str, Any]]) -> list[str]:
    """Rows that catch nothing, or less than their share without a reason."""
    found = []
    for entry in rows:
        least = 0 if entry["id"] in EXCUSES else LEAST_SHARE * (entry["caught"] + entry["survived"])
        if not entry["caught"] or entry["caught"] < least:
            found.append(entry["id"])
    return found


def idle_excuses(rows: list[dict[str, Any]]) -> list[str]:
    """Excuses for rows that need none, or that are not there."""
    known = {entry["id"]: entry["caught"] < LEAST_SHARE * (entry["caught"] + entry["survived"]) for entry in rows}
    return [name for name in EXCUSES if not known.get(name, False)]


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
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="of a row, that are caught or survive")
    parser.add_argument("--show", action="store_true", help="each mutant's line, and how it ended")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    claims = [claim for claim in all_claims() if claim.check is not None]
    stored = (RESULTS / "claims_mutants.json").exists()
    known = {entry["id"]: entry for entry in read("claims_mutants")["rows"]} if stored else {}
    rows = list(known.values())
    for claim in selected(claims, known, arguments.rows, arguments.all):
        entry = known[claim.id] = tried(claim, arguments.mutants, arguments.show) | {"digest": digest(claim)}
        ends = ", ".join(f"{entry[end]} {end}" for end in ENDS if entry[end])
        print(f"{' ' if entry['caught'] else '!'} {claim.id:<38}{ends}", flush=True)
        rows = [known[claim.id] for claim in claims if claim.id in known]
        store("claims_mutants", COMMAND, {"rows": rows}, told=False)
    if bad := weak(rows):
        sys.exit("too few mutants are caught of: " + ", ".join(bad))


if __name__ == "__main__":
    main()
