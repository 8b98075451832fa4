"""Frozen dataclasses from TOML files and back, with changes from the command line.

    @dataclass(frozen=True)
    class Run:                                  steps = 100
        steps: int                              [task]
        task: Task = Linear()                   kind = "tree"

    load(Run, "run.toml", ["task.depth=3"])  ->  Run(steps=100, task=Tree(depth=3))

Fields are bool, int, float, str, Literal, dataclasses, tuples of these, and unions, such as ``float | None``. An
integer is taken where a float is wanted, nothing else is converted. A dataclass with the class attributes ``kind: str``
and ``kinds: dict[str, type]`` is a family: the key ``kind`` of its table chooses the member. A setting that a table
leaves out has its default; where the default of a field is a dataclass, a table changes single fields. TOML has no
null: None is left out where it is the default and written as "none" elsewhere, so a ``str | None`` never holds "none".

``parse(cls, to_table(c)) == c`` and ``parse(cls, tomllib.loads(to_toml(c))) == c`` for every configuration c.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from innergrad.errors import InputError, Registry, counted, suggestion
from innergrad.files import read_text

T = TypeVar("T")
Table = dict[str, Any]
NONE = "none"
MOST, DEEPEST = 2**21, 30  # bytes of a file, and dots of a key in it


class Family:
    """A base of dataclasses that configurations choose among by the key ``kind``: ``class Linear(Task, kind="linear")``

    A direct subclass is a family with ``kinds`` of its own; members are the classes below it that give their kind. Two
    classes cannot share one; a class that is defined again (a notebook's cell) replaces itself.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[Registry[type[Any]]] = Registry("kind", {})

    def __init_subclass__(cls, kind: str = "") -> None:
        if Family in cls.__bases__:
            cls.kinds = Registry("kind", {})
        elif kind:
            cls.kinds.add(kind, cls)
            cls.kind = kind


def load(cls: type[T], path: str | Path, sets: Iterable[str] = ()) -> T:
    """The configuration in a TOML file, changed by ``sets``: texts such as "train.lr=3e-4"."""
    return change(parse(cls, read(path), source=str(path)), sets)


def read(path: str | Path, what: str = "the configuration ") -> Table:
    """The table in a TOML file; ``what`` is its name in errors."""
    wrong = f"cannot read {what}{path}"
    try:
        text = read_text(Path(path), MOST)
    except UnicodeDecodeError as error:
        raise InputError(wrong, allowed="TOML in UTF-8", hint="it is not a text file") from error
    except OSError as error:
        hint = "name a TOML file, e.g. one of configs/ in the checkout"
        raise InputError(wrong, got=error.strerror, hint=hint) from error
    try:
        if any(line.partition("=")[0].count(".") > DEEPEST for line in text.splitlines()):
            raise RecursionError  # the parser takes its time over such keys
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        got = str(error).replace("at end of document", f"at line {text.count(chr(10)) + 1}, the last")
        raise InputError(wrong, got=got, hint="it is not TOML") from error
    except ValueError as error:  # a number of thousands of digits, a date that is none
        raise InputError(wrong, got=str(error)) from error
    except RecursionError as error:
        raise InputError(wrong, got="tables or lists inside one another without end") from error


def parse(cls: type[T], table: Mapping[str, Any], *, source: str = "") -> T:
    """``cls`` from a table; ``source`` is where errors say that the table is from."""
    value: T = _dataclass(cls, table, "", f"{source}: " if source else "")
    return value


# ------------------------------------------------------------------------------------------------------------- changes


def change(config: T, sets: Iterable[str], *, what: str = "--set") -> T:
    """The configuration with every "a.b.c=value" applied; a value that is not TOML is a string, numbers index lists.

    A new ``kind`` of a family's member starts from that kind's defaults. ``what``: the name of a change in errors.
    """
    sets = list(sets)
    changes: Table = {}
    for item in sets:
        name, equals, text = item.partition("=")
        parts = [part.strip() for part in name.split(".")]
        if not equals or not all(parts):
            raise InputError(f"{what} takes key=value", got=repr(item), allowed="e.g. train.steps=1000")
        node = changes
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise InputError(f"{what} {item} changes a part of a value that is set as a whole", got=repr(node))
        node[parts[-1]] = _value(text.strip())
    source = ", ".join(f"{what} {item}" for item in sets)
    changed: T = _dataclass(type(config), changes, "", f"{source}: ", config) if sets else config
    return changed


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, str]:
    """The differences of two tables: for each key words such as "0.001, not 0.0003"."""
    a, b = dict(_leaves(here)), dict(_leaves(there))
    return {
        key: f"{a.get(key, 'absent')}, not {b.get(key, 'absent')}"
        for key in (*a, *(key for key in b if key not in a))
        if key not in a or key not in b or a[key] != b[key]
    }


def _leaves(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}" if name else key)
    else:
        yield name, node


# ------------------------------------------------------------------------------------------------- table -> dataclass


def _dataclass(cls: Any, table: object, name: str, source: str, default: Any = None) -> Any:
    """A setting that the table leaves out is the default's, if that is of the same class, else the class's own."""
    what = f"{source}{name or 'the configuration'}"
    if not isinstance(table, Mapping):
        raise InputError(f"{what} is a table", got=repr(table))
    family = isinstance(getattr(cls, "kinds", None), dict)
    cls, table = _member(cls, table, name, source, default) if family else (cls, table)
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in table:
        if key not in fields:
            keys = (["kind"] if family else []) + list(fields)
            hint = suggestion(_join(name, key), [_join(name, one) for one in keys])
            raise InputError(f"{source}unknown key {_join(name, key)}", allowed=", ".join(keys), hint=hint)
    old = {key: getattr(default, key) if type(default) is cls else _default(field) for key, field in fields.items()}
    new = {key: _typed(hints[key], table[key], _join(name, key), source, old[key]) for key in table}
    for key, value in {**old, **new}.items():
        if value is dataclasses.MISSING:
            raise InputError(f"{source}the key {_join(name, key)} is missing")
    try:
        return cls(**{**old, **new})
    except ValueError as error:  # an InputError, or that of a class of the user's own
        raise InputError(f"{what}: {error}") from error


def check_choices(instance: Any, prefix: str = "") -> None:
    """An error if a field of a dataclass is none of the values of its Literal; for ``__post_init__``."""
    for name, hint in get_type_hints(type(instance)).items():
        value = getattr(instance, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            allowed = ", ".join(map(str, get_args(hint)))
            raise InputError(f"unknown {prefix}{name}", got=repr(value), allowed=allowed)


def _member(cls: Any, table: Mapping[str, Any], name: str, source: str, default: Any) -> tuple[Any, Mapping[str, Any]]:
    """The member of a family that ``kind`` names, and the table without that key."""
    key, hint = _join(name, "kind"), "a kind of your own is imported first, on the command line with --import FILE"
    below = {kind: member for kind, member in sorted(cls.kinds.items()) if issubclass(member, cls)}
    members = Registry("kind", below, unknown=f"{source}unknown {key}", hint=hint)
    kind = table.get("kind", getattr(default, "kind", "") or getattr(cls, "kind", "") or None)
    if kind is None:
        raise InputError(f"{source}the key {key} is missing", allowed=", ".join(members))
    return members.find(kind), {key: value for key, value in table.items() if key != "kind"}


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _typed(hint: Any, value: Any, name: str, source: str, default: Any = None) -> Any:
    """The value as its annotation wants it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, name, source, default)
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return _tuple(arguments, value, name, source)
        if isinstance(value, Mapping) and isinstance(default, tuple):
            return _entries(arguments, value, name, source, default)
    elif dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, name, source, default)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif hint in (bool, int, str):
        if type(value) is hint:
            return value
    else:
        raise TypeError(f"{name}: configurations have no {hint}")
    near = suggestion(value, get_args(hint)) if origin is Literal else ""
    raise InputError(f"{source}{name} is wrong", got=repr(value), allowed=_words(hint), hint=near)


def _union(members: tuple[Any, ...], value: Any, name: str, source: str, default: Any) -> Any:
    if type(None) in members and (value is None or value == NONE):
        return None
    errors = []
    members = tuple(member for member in members if member is not type(None))
    for member in sorted(members, key=lambda member: member is float):  # 1 stays an integer in int | float
        try:
            return _typed(member, value, name, source, default)
        except InputError as error:
            errors.append(error)
    if len(members) == 1 or isinstance(value, Mapping):
        raise errors[0]
    raise InputError(f"{source}{name} is wrong", got=repr(value), allowed=" or ".join(map(_words, members)))


def _tuple(arguments: tuple[Any, ...], values: list[Any] | tuple[Any, ...], name: str, source: str) -> tuple[Any, ...]:
    if arguments[-1:] == (...,):
        arguments = arguments[:1] * len(values)
    if len(arguments) != len(values):
        raise InputError(f"{source}{name} has {len(arguments)} entries", got=len(values))
    pairs = enumerate(zip(arguments, values, strict=True))
    return tuple(_typed(hint, value, f"{name}.{i}", source) for i, (hint, value) in pairs)


def _entries(
    arguments: tuple[Any, ...], changes: Mapping[str, Any], name: str, source: str, default: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A tuple some of whose entries are changed: {"0": ..., "2": ...}."""
    entries = list(default)
    for key, value in changes.items():
        place = counted(key)
        if place is None or place >= len(entries):
            raise InputError(f"{source}{name}.{key} is not in the list", allowed=f"0 to {len(entries) - 1}")
        hint = arguments[0] if arguments[-1] is ... else arguments[place]
        entries[place] = _typed(hint, value, f"{name}.{key}", source, entries[place])
    return tuple(entries)


def _words(hint: Any) -> str:
    """An annotation for people."""
    simple = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    if hint in simple:
        return simple[hint]
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    return "a list" if get_origin(hint) is tuple else "a table"


def _join(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


# ------------------------------------------------------------------------------------------ dataclass -> table -> TOML


def to_table(config: Any) -> Table:
    """All fields of a dataclass as dicts, lists, strings, numbers and booleans; of a family's member also ``kind``."""
    table: Table = {"kind": config.kind} if isinstance(getattr(config, "kinds", None), dict) else {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.init and not (value is None and field.default is None):
            table[field.name] = _plain(value)
    return table


def _plain(value: Any) -> Any:
    if value is None:
        return NONE
    if dataclasses.is_dataclass(value):
        return to_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def to_toml(config: Any) -> str:
    """The text of a configuration file: a dataclass, or a table as ``to_table`` makes them."""
    table = to_table(config) if dataclasses.is_dataclass(config) else config
    return "\n".join(_lines(table, "")).strip() + "\n"


def _lines(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """First the values of a table, then the tables below it, each under its header."""
    later = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in later:
            yield f"{_key(key)} = {_inline(value)}"
    for key, value in later.items():
        header = f"{name}.{_key(key)}" if name else _key(key)
        yield from ("", f"[{header}]")
        yield from _lines(value, header)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else _string(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _string(key)
