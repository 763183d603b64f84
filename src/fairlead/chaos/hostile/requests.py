"""Requests that are made of the OpenAPI document: every route, with parameters and bodies of all sizes."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from uuid import UUID

import msgspec

from fairlead.chaos.hostile.values import ValueMaker

METHODS = ("get", "post", "put", "patch", "delete")
# What would only end the attack: sign-outs, and changes of its own tokens and addresses.
LEFT_OUT = ("/sign-out", "/logout", "/addresses", "/revoke-tokens", "/account/", "/tokens/{token_id}")
MOST_IDS = 300
# Larger ones are refused by their length.
MOST_BODY_BYTES = 17_000_000


class Operation(NamedTuple):
    """A route: its method, its path with parameters, and what it takes."""

    method: str
    path: str
    parameters: list[dict[str, Any]]
    body: dict[str, Any] | None


class MadeRequest(NamedTuple):
    """A request to send."""

    method: str
    path: str
    body: bytes | None


class RequestMaker:
    """Makes requests from a seed; learns the ids of what the responses show."""

    def __init__(self, document: Mapping[str, Any], chance: random.Random, foreign_ids: list[str]) -> None:
        self._chance = chance
        self._operations = list_operations(document)
        self._ids: dict[str, list[str]] = defaultdict(list)
        self._foreign_ids = foreign_ids
        self._values = ValueMaker(chance, document)

    def make(self) -> MadeRequest:
        """Any request."""
        return self.fill(self._chance.choice(self._operations))

    def fill(self, operation: Operation) -> MadeRequest:
        """A request of this route."""
        path = operation.path
        for parameter in operation.parameters:
            if parameter["in"] == "path":
                value = self._choose_id(operation.path, parameter["name"])
                path = path.replace("{" + parameter["name"] + "}", quote(value, safe=""))
        query = {
            parameter["name"]: self._make_text(parameter.get("schema", {}))
            for parameter in operation.parameters
            if parameter["in"] == "query" and self._chance.random() < 0.3
        }
        # logs that are followed and long polls are attacks of their own
        query = {name: text for name, text in query.items() if name not in ("follow", "wait")}
        if query:
            path = f"{path}?{urlencode(query)}"
        body = None
        if operation.body is not None:
            body = encode_body(self._values.make(operation.body))[:MOST_BODY_BYTES]
        return MadeRequest(operation.method.upper(), path, body)

    def learn(self, path: str, text: bytes) -> None:
        """Remember the ids in a response."""
        try:
            answer = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        items = answer.get("items", [answer]) if isinstance(answer, dict) else []
        for item in items[:20] if isinstance(items, list) else ():
            found = item.get("id") or item.get("key") if isinstance(item, dict) else None
            if isinstance(found, str):
                self._remember(self._ids[path.partition("?")[0]], found)
                self._remember(self._values.ids, found)

    def _remember(self, ids: list[str], found: str) -> None:
        if len(ids) < MOST_IDS:
            ids.append(found)
        else:
            ids[self._chance.randrange(MOST_IDS)] = found

    def _choose_id(self, path: str, name: str) -> str:
        known = self._ids.get(path.partition("/{" + name)[0], [])
        roll = self._chance.random()
        if known and roll < 0.8:
            return self._chance.choice(known)
        if self._foreign_ids and roll < 0.9:
            return self._chance.choice(self._foreign_ids)
        return self._chance.choice(
            [
                str(UUID(int=self._chance.getrandbits(128), version=4)),
                "x",
                "chaos.quick",
                "..",
                "%00",
                "x" * 500,
            ]
        )

    def _make_text(self, schema: Mapping[str, Any]) -> str:
        value = self._values.make(schema)
        text = value if isinstance(value, str) else encode_body(value).decode(errors="replace")
        return text[:4000]


def list_operations(document: Mapping[str, Any]) -> list[Operation]:
    """The routes of a document, but for those that would end the attack."""
    found = []
    for path, item in document["paths"].items():
        if any(part in path for part in LEFT_OUT):
            continue
        for method in METHODS:
            if (operation := item.get(method)) is None:
                continue
            content = operation.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("schema") if content else None
            found.append(Operation(method, path, operation.get("parameters", []), body))
    return found


def encode_body(value: Any) -> bytes:
    """JSON text, also of values that are too deep for an encoder."""
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        return "".join(_write(value)).encode(errors="replace")


def _write(value: Any) -> list[str]:
    """The parts of the text of a value, without a call for each level."""
    parts, left = list[str](), [value]
    while left:
        item = left.pop()
        if isinstance(item, _Text):
            parts.append(item.text)
        elif isinstance(item, dict):
            fields = [
                part
                for name, inner in item.items()
                for part in (_Text(f"{json.dumps(name)}:"), inner, _COMMA)
            ]
            left += reversed([_Text("{"), *fields[:-1], _Text("}")])
        elif isinstance(item, list):
            items = [part for inner in item for part in (inner, _COMMA)]
            left += reversed([_Text("["), *items[:-1], _Text("]")])
        else:
            parts.append(json.dumps(item))
    return parts


class _Text(NamedTuple):
    """A part that is written as it is."""

    text: str


_COMMA = _Text(",")
