"""The part of Go's templates that our chart uses, for machines without Helm. What it does not know, it refuses."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_ACTION = re.compile(r"(?P<left>\s*\{\{-|\{\{)\s*(?P<code>.*?)\s*(?P<right>-\}\}\s*|\}\})", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\$?[\w.]*[\w]|\$|\.|\(|\)|\||:=|,')
_OPENERS = ("if", "with", "range", "define")


@dataclass
class Block:
    """Text and actions; of an opener also what it says, and the blocks within."""

    head: str = ""
    parts: list["str | Block"] = field(default_factory=list)


def _parse(text: str) -> Block:
    root = Block()
    open_blocks = [root]
    position = 0
    for found in _ACTION.finditer(text):
        open_blocks[-1].parts.append(text[position : found.start()])
        position = found.end()
        code = found["code"]
        if code.startswith("/*"):
            continue
        if code == "end":
            open_blocks.pop()
            continue
        block = Block(code)
        open_blocks[-1].parts.append(block)
        if code.split()[0] in _OPENERS:
            open_blocks.append(block)
        elif code.split()[0] in ("else", "block", "template"):
            raise ValueError(f"{code!r} is not known here: add it, or write the chart without it")
    assert len(open_blocks) == 1, f"{open_blocks[-1].head!r} has no end"
    root.parts.append(text[position:])
    return root


def _to_yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=False, sort_keys=True)).removesuffix("\n")


def _nindent(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line for line in text.split("\n"))


def _quote(value: Any) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _required(why: str, value: Any) -> Any:
    assert value not in (None, ""), why
    return value


class Chart:
    """Templates by the name of their file."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {name: _parse(text) for name, text in files.items()}
        self._defined: dict[str, Block] = {}
        for block in self._files.values():
            for part in block.parts:
                if isinstance(part, Block) and part.head.startswith("define"):
                    self._defined[part.head.split('"')[1]] = part
        self._functions: dict[str, Callable[..., Any]] = {
            "and": lambda *values: next((one for one in values if not one), values[-1]),
            "default": lambda other, value: value or other,
            "include": lambda name, dot: self._run(self._defined[name], dot, {"$": dot}),
            "index": lambda values, place: values[place],
            "list": lambda *values: list(values),
            "nindent": _nindent,
            "not": lambda value: not value,
            "printf": lambda text, *values: text % values,
            "quote": _quote,
            "required": _required,
            "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
            "toYaml": _to_yaml,
        }

    def render(self, name: str, data: Mapping[str, Any]) -> str:
        return self._run(self._files[name], data, {"$": data})

    def _run(self, block: Block, dot: Any, variables: dict[str, Any]) -> str:
        return "".join(self._pieces(block, dot, variables))

    def _pieces(self, block: Block, dot: Any, variables: dict[str, Any]) -> Iterator[str]:
        for part in block.parts:
            if isinstance(part, str):
                yield part
                continue
            kind, _, rest = part.head.partition(" ")
            if kind == "define":
                continue
            if kind == "range":
                yield from self._range(part, rest, dot, variables)
            elif kind in ("if", "with"):
                if value := self._evaluate(rest, dot, variables):
                    yield self._run(part, value if kind == "with" else dot, dict(variables))
            elif assigned := re.fullmatch(r"(\$\w+) := (.*)", part.head):
                variables[assigned[1]] = self._evaluate(assigned[2], dot, variables)
            else:
                value = self._evaluate(part.head, dot, variables)
                yield "" if value is None else str(value)

    def _range(self, block: Block, head: str, dot: Any, variables: dict[str, Any]) -> Iterator[str]:
        named = re.fullmatch(r"(\$\w+), (\$\w+) := (.*)", head)
        values = self._evaluate(named[3] if named else head, dot, variables) or []
        pairs = sorted(values.items()) if isinstance(values, Mapping) else list(enumerate(values))
        for key, value in pairs:
            inner = dict(variables) | ({named[1]: key, named[2]: value} if named else {})
            yield self._run(block, value, inner)

    def _evaluate(self, code: str, dot: Any, variables: Mapping[str, Any]) -> Any:
        words = _WORD.findall(code)
        assert "".join(words) == re.sub(r'\s(?=(?:[^"]*"[^"]*")*[^"]*$)', "", code), f"cannot read {code!r}"
        value, rest = self._pipeline(words, dot, variables)
        assert not rest, code
        return value

    def _pipeline(self, words: list[str], dot: Any, variables: Mapping[str, Any]) -> tuple[Any, list[str]]:
        value, words = self._call(words, dot, variables, [])
        while words and words[0] == "|":
            value, words = self._call(words[1:], dot, variables, [value])
        return value, words

    def _call(
        self, words: list[str], dot: Any, variables: Mapping[str, Any], piped: list[Any]
    ) -> tuple[Any, list[str]]:
        function = self._functions.get(words[0])
        if function is None:
            assert not piped, f"{words[0]} is not a function that is known here"
            return self._operand(words, dot, variables)
        arguments, words = [], words[1:]
        while words and words[0] not in ("|", ")"):
            value, words = self._operand(words, dot, variables)
            arguments.append(value)
        return function(*arguments, *piped), words

    def _operand(self, words: list[str], dot: Any, variables: Mapping[str, Any]) -> tuple[Any, list[str]]:
        word, rest = words[0], words[1:]
        if word == "(":
            value, rest = self._pipeline(rest, dot, variables)
            assert rest[0] == ")"
            return value, rest[1:]
        if word.startswith('"'):
            return word[1:-1].replace('\\"', '"'), rest
        if word.isdigit():
            return int(word), rest
        first, *fields = word.split(".")
        assert not first or first.startswith("$"), f"{word!r} is not known here"
        value = variables[first] if first else dot
        for name in filter(None, fields):
            value = None if value is None else value.get(name)
        return value, rest
