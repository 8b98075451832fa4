"""Messages for who types commands: the library speaks of arguments (``executor='plain'``, ``n_examples``), and the
parser of the command line in its own way. Here both become sentences about flags.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from innergrad.cli.flags import MODEL
from innergrad.errors import InputError, suggestion

SETTINGS = frozenset(name for part in MODEL.values() for name in part)
OWN = {  # arguments of the library that are flags of a command, besides the settings of a model
    "run": ("executor", "outside", "until"),
    "export": ("family", "kv_heads", "large", "force"),
    "compile": ("force",),
}
PHRASES = {", or do without tf.module": "", "tf.certify(X, y)": "innergrad verify --explain"}
_VALUE = r"(?:'(?P<a>[^']*)'|\"(?P<b>[^\"]*)\"|(?P<c>\.\.\.|[\w.+-]*[\w]))"
_ASSIGNED = re.compile(rf"(?<![\w.])(?P<name>[a-z]\w*) ?= ?{_VALUE}")
_LEADING = re.compile(r"^(?P<name>[a-z]\w*)(?= (?:must|is|are|cannot|chooses)\b)")
_CHANGED = re.compile(r"\b(?P<verb>larger|smaller|lower|higher|give|another|without) (?P<name>[a-z]\w*)\b")


def in_flags(text: str, command: str = "compile") -> str:
    """A sentence of the library's as a user of this command says it."""
    flags = SETTINGS | {*OWN.get(command, ())}

    def assigned(found: re.Match[str]) -> str:
        value = next(part for part in (found["a"], found["b"], found["c"]) if part is not None)
        if found["name"] not in flags:
            return found[0]
        flag = _flag(found["name"])
        if value == "True":
            return flag
        if value == "False":
            return f"--no-{flag[2:]}"
        return flag if value == "..." else f"{flag} {value.lower() if value == 'None' else value}"

    def named(found: re.Match[str]) -> str:
        return found[0].replace(found["name"], _flag(found["name"])) if found["name"] in flags else found[0]

    for words, ours in PHRASES.items():
        text = text.replace(words, ours)
    if "executor" not in flags:  # nothing here runs
        text = re.sub(r"executor=(?:'\w+'|\"\w+\")(?:, | or )", "", text)
    text = _ASSIGNED.sub(assigned, text)
    text = _LEADING.sub(named, text)
    text = _CHANGED.sub(lambda found: f"{found['verb']} {_named(found['name'], flags)}", text)
    return re.sub(r"(?<![\w.-])[a-z]+(?:_[a-z]+)+\b(?!\()", lambda found: _named(found[0], flags), text)


def _named(name: str, flags: frozenset[str]) -> str:
    return _flag(name) if name in flags else name


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@contextmanager
def speaking_of_flags(command: str) -> Iterator[None]:
    """Errors of the library, about arguments, become errors about flags."""
    try:
        yield
    except InputError as error:
        error.args = (in_flags(str(error), command),)
        raise


# ----------------------------------------------------------------------------------------------------------- the parser


def usage(error: Any) -> str:
    """What the parser of the command line finds wrong: what, got, allowed, what to do next. It has several classes,
    which have moved from version to version; what they know tells them apart.
    """
    context: Any = getattr(error, "ctx", None)
    command = getattr(context, "command_path", " ".join(["innergrad", *sys.argv[1:2]])).removeprefix("python -m ")
    more = f"{command} -h explains it"
    message: str = error.format_message().rstrip(".")
    kind = type(error).__name__
    if kind == "NoSuchOption":
        known = [name for param in context.command.params for name in (*param.opts, *param.secondary_opts)]
        near = suggestion(error.option_name, [name for name in known if name.startswith("--")])
        return "; ".join(filter(None, [f"no such flag; got {error.option_name}", near, f"{command} -h lists them"]))
    if kind == "MissingParameter":
        return f"{_name(error.param)} is missing; {more}"
    if kind == "BadParameter" and getattr(error, "param", None) is not None:
        said, name, got = re.sub(r"^Invalid value for .*?: ", "", message), _name(error.param), _given(error.param)
        for words, takes in (("int", "an integer"), ("float", "a number"), ("number", "a number")):
            if re.search(rf"\bvalid {words}", said):
                return f"{name} takes {takes}; got {got}; {more}"
        return f"{name} is wrong; got {got}; {said}; {more}"
    if kind == "BadOptionUsage":
        return f"{error.option_name} needs a value; got nothing; {more}"
    extra = re.match(r"Got unexpected extra argument(?:\(s\)|s)? \((?P<got>.*)\)$", message)
    if extra:
        return "; ".join(filter(None, [f"too many arguments; got {extra['got']}", _unquoted(context), more]))
    missing = re.match(r"No such command '(?P<got>.*?)'", message)
    if missing:
        known = list(context.command.commands)
        near = suggestion(missing["got"], known)
        parts = [
            f"no such command; got {missing['got']!r}; allowed: {', '.join(known)}",
            near,
            f"{command} -h lists them",
        ]
        return "; ".join(filter(None, parts))
    return f"{message}; {more}"


def _name(param: Any) -> str:
    flags = [name for name in param.opts if name.startswith("--")]
    return flags[0] if flags else str(getattr(param, "metavar", None) or param.name)


def _unquoted(context: Any) -> str:
    """A hint, if the value of a flag may have been meant to go on: --target asking price."""
    params = getattr(getattr(context, "command", None), "params", ())
    takes = {name for param in params for name in param.opts if not getattr(param, "is_flag", False)}
    for place, word in enumerate(sys.argv):
        value = list(takewhile(lambda one: not one.startswith("-") and not Path(one).suffix, sys.argv[place + 1 :]))
        if word.startswith("--") and word in takes and len(value) > 1:
            return f"a value with a space needs quotes: {word} '{' '.join(value)}'"
    return ""


def _given(param: Any) -> str:
    """What was typed for a flag, as far as that can be seen."""
    for word, after in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if word in param.opts:
            return repr(after)
        if word.partition("=")[0] in param.opts:
            return repr(word.partition("=")[2])
    return "another value"
