"""What :mod:`mutations` does to files: values, trees of JSON and TOML, bytes, tensors and tables; all by a seed."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import math
import random
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

# of this process, before the library is imported
if importlib.util.find_spec("jaxtyping") is None:  # names in annotations, which nobody evaluates
    sys.modules["jaxtyping"] = types.SimpleNamespace(Float=None)  # type: ignore[assignment]

CANARY = "canary"  # a file that appears if something was executed
CODE = f"__import__('pathlib').Path({CANARY!r}).touch()"
PICKLE = b"\x80\x04cpathlib\nPath\n(V" + CANARY.encode() + b"\ntR(ctouch\n."
DIGITS = "@digits@"  # stands for a number of five thousand digits, which no writer writes

HOSTILE: tuple[Any, ...] = (
    *(0, 1, 2, 3, 7, 64, 1000, 4096, 65537, -1, -2, -(10**9)),
    *(2**15, 2**24, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1),
    *(10**5, 10**6, 10**7, 10**8, 10**9, 10**12, 10**15, 10**18, 10**30, 10**400),
    *(True, False, None, DIGITS),
    *(0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 1e-320, 1e-300, 1e-30, 1e-12, 1e6, 1e16, 1e100, 1e154, 1e200, 1e308, -1e308),
    *(math.nan, math.inf, -math.inf),
    *("", " ", "0", "1", "1e308", "nan", "none", "None", "null", "true", "a", "\x00", "../../up", "/etc/passwd", "~"),
    *("\u202e\u0301\ufeff", "\ud800", "\U0001d518" * 40, "%s%n{0.__class__}", "a" * 100_000, CODE),
    *([], [[]], [1], [1, 2, 3], [0] * 10_000, [1] * 3000, [[1, 2], [3]], ["a"], [None], [math.nan], [[0]] * 5000),
    *({}, {"": 0}, {"kind": "linear"}, {"a": {"b": {"c": 1}}}),
)
WORDS = ("kind", "steps", "sizes", "lr", "shape", "id", "digest", "format", "experiments", "__class__", "\u00e9", "a b")


def nested(rng: random.Random) -> Any:
    """Lists or tables inside one another."""
    depth = rng.choice((5, 40, 300, 900))
    found: Any = rng.choice((0, [], {}))
    for _ in range(depth):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


# --------------------------------------------------------------------------------------------------------------- trees


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a tree of dictionaries and lists."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            yield node, key
            waiting.append(node[key])


def value(rng: random.Random, old: Any = None) -> Any:
    """A value that nobody would write; near the old one, sometimes."""
    whole = isinstance(old, int) and not isinstance(old, bool)
    if not (whole or isinstance(old, float)) or rng.random() < 0.6 or (whole and abs(old) > 2**990):  # no float's size
        return nested(rng) if rng.random() < 0.04 else copy.deepcopy(rng.choice(HOSTILE))
    factor = rng.choice((-1, 0.5, 2, 3, 10, 100, 10**4, 10**6, 10**9))
    near = rng.choice((old + 1, old - 1, old * factor, old * factor + rng.random()))
    return int(near) if isinstance(old, int) and math.isfinite(near) and rng.random() < 0.9 else near


def change(rng: random.Random, tree: Any, others: list[Any]) -> None:
    """One to three changes, in place: values, keys that are missing, new, renamed or exchanged, parts of others."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(tree))
        if not found:
            return
        # whole parts are as likely as their many leaves
        depth = rng.random()
        tops = [(node, key) for node, key in found if node is tree] if depth < 0.2 else found
        leaves = [(n, k) for n, k in tops if not isinstance(n[k], dict | list)] if depth > 0.4 else tops
        node, key = rng.choice(leaves or tops or found)
        how = rng.random()
        if how < 0.7:
            node[key] = value(rng, node[key])
        elif how < 0.77:
            del node[key]
        elif how < 0.82 and isinstance(node, dict):
            node[rng.choice(WORDS)] = value(rng)
        elif how < 0.86 and isinstance(node, dict):
            node[rng.choice(WORDS)] = node.pop(key)
        elif how < 0.90:
            other, place = rng.choice(found)
            node[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(node[key])
        elif how < 0.94 and isinstance(node, list):
            node.extend([copy.deepcopy(node[key])] * rng.choice((1, 2, 50, 2000)))
        elif how < 0.97 and others:
            same = [(n, k) for n, k in places(rng.choice(others)) if k == key] or list(places(rng.choice(others)))
            n, k = rng.choice(same)
            node[key] = copy.deepcopy(n[k])
        else:
            node[key] = [node[key]] if rng.random() < 0.5 else {str(key): node[key]}


def as_json(tree: Any) -> bytes:
    text = json.dumps(tree, ensure_ascii=True)
    return text.replace(json.dumps(DIGITS), "7" * 5000).encode()


# --------------------------------------------------------------------------------------------------------------- bytes


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Flipped bits, cuts, copies, noise, other encodings, other kinds of file."""
    where = rng.randrange(len(content) + 1)
    length = rng.choice((1, 2, 8, 64, 1000))
    noise = rng.randbytes(length)
    some: list[Callable[[], bytes]] = [
        lambda: _flipped(rng, content, 1),
        lambda: _flipped(rng, content, rng.choice((2, 10, 100))),
        lambda: content[:where],
        lambda: content[where:],
        lambda: content[:where] + content[where + length :],
        lambda: content[:where] + noise + content[where:],
        lambda: content[:where] + noise + content[where + length :],
        lambda: content[:where] + content[where : where + length] * 50 + content[where:],
        lambda: content[:where] + bytes(length) + content[where + length :],
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.decode("latin-1").encode("utf-16"),
        lambda: content.decode("latin-1").encode("utf-8", "replace") + b"\xff\xfe",
        lambda: b"",
        lambda: noise,
        lambda: PICKLE,
        lambda: b"PK\x03\x04" + noise,
        lambda: rng.choice((b"[", b'{"a":', b"a.", b"(", b"[[")) * rng.choice((100, 3000, 100_000)),
    ]
    return rng.choice(some)()


def _flipped(rng: random.Random, content: bytes, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def forged(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file whose header lies: lengths, offsets, types, shapes, names."""
    length = int.from_bytes(content[:8], "little")
    if rng.random() < 0.15:
        size = rng.choice((0, 1, length - 1, length + 1, 2**31, 2**40, 2**63, 2**64 - 1))
        return struct.pack("<Q", size) + content[8:]
    header = json.loads(content[8 : 8 + length])
    change(rng, header, [])
    text = as_json(header)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


# ------------------------------------------------------------------------------------------------------------- tensors

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 1e-320, math.nan, math.inf, -math.inf, 2.0**31, -(2.0**31), 2.0**62)


def settled(content: bytes) -> bytes:
    """A file of safetensors with its header in alphabetical order, which otherwise is another in every process."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def changed_tensors(rng: random.Random, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Other entries, types, shapes and names; some missing, some more."""
    tensors = dict(sorted(tensors.items()))  # safetensors reads them in an order that is another in every process
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not tensors:
            break
        name, other = rng.choice(list(tensors)), rng.choice(list(tensors))
        tensor, how = tensors[name], rng.randrange(11)
        if how < 3 and tensor.numel():
            whole = (-1, 0, 1, 100) if tensor.element_size() < 4 else (-1, 0, 1, 100, 2**31 - 1, -(2**31))
            number = torch.tensor(rng.choice(NUMBERS if tensor.is_floating_point() else whole), dtype=torch.float64)
            tensor = tensor.clone()
            tensor.view(-1)[rng.randrange(tensor.numel())] = number.to(tensor.dtype)
        elif how == 3:
            tensor = tensor.to(rng.choice(DTYPES))
        elif how == 4:
            tensor = tensor.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1))))
        elif how == 5:
            tensor = tensor.reshape(-1)[: rng.randrange(tensor.numel() + 1)]
        elif how == 6:
            tensor = torch.zeros(rng.choice(((0,), (), (0, 3), (3, 0), (1,), (2, 2, 2), (70_000,))), dtype=tensor.dtype)
        elif how == 7:
            tensors[name], tensor = tensors[other], tensor
            name = other
        elif how == 8:
            del tensors[name]
            continue
        elif how == 9:
            del tensors[name]
            name = rng.choice((name + "x", name.upper(), "", "a" * 1000, "body.0.0.W_Q.index", "\u00e9", name[:-1]))
        else:
            name = rng.choice(("extra", "body.9.9.W_Q.value", "approximant.tanh.knots"))
        tensors[name] = tensor
    return {name: tensor.clone().contiguous() for name, tensor in tensors.items()}


# -------------------------------------------------------------------------------------------------------------- tables

CELLS = (
    *(
        "",
        " ",
        "0",
        "-0",
        "1e400",
        "-1e400",
        "nan",
        "inf",
        "NaN",
        "NULL",
        "None",
        "NA",
        "1,5",
        "1.000,5",
        "1_0",
        "0x1p3",
    ),
    *("1e308", "-1e308", "1e-400", "\u0661\u0662", "\uff11", "1\u00a0000", "--1", "1e", "true", "\x00", "a" * 200_000),
    *("9" * 5000, '"', '""', '"a\nb"', "=1+1", "1;2", "\t", "\ufeff1", "\ud83d\ude00", CODE, "1" * 131_073),
)
LARGEST = 2**30  # characters of a table: it has to be made before it can be refused


def table(rng: random.Random, text: str) -> bytes:
    """A CSV file of other cells, ragged rows, other separators, quotes, line ends and encodings."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        row, how = rng.choice(rows), rng.randrange(9)
        cell = rng.randrange(len(row)) if row else 0
        if how < 4 and row:
            row[cell] = rng.choice(CELLS)
        elif how == 4:
            row.append(rng.choice(CELLS))
        elif how == 5 and row:
            row.pop(cell)
        elif how == 6:
            rows.extend([list(row)] * rng.choice((1, 3, 40, 2000)))
        elif how == 7:
            rows.remove(row)
        else:
            row *= rng.choice((0, 2, 50, 3000))
        if not rows:
            break
    sizes = itertools.accumulate(sum(map(len, row)) + len(row) for row in rows)
    rows = [row for row, _ in itertools.takewhile(lambda pair: pair[1] <= LARGEST, zip(rows, sizes, strict=True))]
    separator = rng.choice((",",) * 8 + (";", "\t", ", ", "|"))
    end = rng.choice(("\n",) * 6 + ("\r\n", "\r", "\n\n", "\x85", "\u2028"))
    content = end.join(separator.join(row) for row in rows) + rng.choice((end, "", end * 3))
    codec = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7"))
    made = content.encode(codec, "replace")
    return damaged(rng, made) if rng.random() < 0.15 else made
