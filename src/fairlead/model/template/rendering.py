"""Rendering a template: look up values and insert them, within a limit of bytes."""

from itertools import chain
from typing import Any, NoReturn

import msgspec

from fairlead.errors import Fault, PayloadNotJson, PayloadTooDeep, PayloadTooLarge, TemplateFailed
from fairlead.model.payload import encode, json_pointer
from fairlead.model.template.path import MISSING, Flaw, look_up
from fairlead.model.template.placeholder import Placeholder, TemplateText

MAX_DEPTH = 64
MAX_FAULTS = 20

_QUOTES = len('""')
_PLAIN = {dict, list, str, int, float, bool, type(None)}

Where = tuple[str | int, ...]


class EncodedValues:
    """The JSON texts of values of a context: each is encoded once, however many templates use it."""

    def __init__(self) -> None:
        # the values, too: while they are here, no other value has the identity of one of them
        self._known: dict[int, tuple[Any, bytes]] = {}

    def find(self, value: Any) -> bytes | None:
        known = self._known.get(id(value))
        return None if known is None else known[1]

    def add(self, value: Any, text: bytes) -> None:
        self._known[id(value)] = (value, text)


def render_tree(
    tree: Any, context: dict[str, Any], *, literal_bytes: int, max_bytes: int, encoded: EncodedValues
) -> Any:
    """A new JSON value: the tree with its placeholders filled; TemplateFailed has every fault."""
    rendering = _TemplateRenderer(context, max_bytes, encoded)
    rendering.spend(literal_bytes, ())
    result = rendering.render_node(tree, ())
    if rendering.faults:
        rendering.fail()
    return result


class _TemplateRenderer:
    def __init__(self, context: dict[str, Any], max_bytes: int, encoded: EncodedValues) -> None:
        self.context = context
        self.max_bytes = max_bytes
        self.room = max_bytes
        self.encoded = encoded
        self.faults: list[Fault] = []

    def render_node(self, node: Any, where: Where) -> Any:
        kind = type(node)
        if kind is dict:
            return {key: self.render_node(item, (*where, key)) for key, item in node.items()}
        if kind is list:
            return [self.render_node(item, (*where, index)) for index, item in enumerate(node)]
        try:
            if kind is Placeholder:
                return self.exact(node, where)
            if kind is TemplateText:
                return self.text(node, where)
        except Flaw as flaw:
            self.refuse(where, flaw.message)
        return node

    def exact(self, place: Placeholder, where: Where) -> Any:
        value = self.value(place)
        text = self.encode(place, value, where)
        self.spend(len(text), where)
        return msgspec.json.decode(text) if type(value) in (dict, list) else value

    def text(self, node: TemplateText, where: Where) -> str:
        return "".join(part if isinstance(part, str) else self.form(part, where) for part in node.parts)

    def form(self, place: Placeholder, where: Where) -> str:
        """A value as text inside a longer string."""
        value = self.value(place)
        if value is None or type(value) in (dict, list):
            raise Flaw(f"{place.path} is null, an object or a list, which cannot be part of a longer string")
        text = self.encode(place, value, where)
        self.spend(len(text) - (_QUOTES if type(value) is str else 0), where)
        return value if type(value) is str else text.decode()

    def value(self, place: Placeholder) -> Any:
        value = look_up(place.path, self.context)
        if value is MISSING:
            value = place.default
        if value is MISSING:
            raise Flaw(f"{place.path} is missing and has no default")
        return value

    def encode(self, place: Placeholder, value: Any, where: Where) -> bytes:
        if (text := self.encoded.find(value)) is None:
            try:
                _require_room(value, self.room)
                text = encode(value, max_bytes=self.room + _QUOTES, max_depth=MAX_DEPTH)[1]
            except PayloadTooLarge:
                self.too_large(where)
            except (PayloadNotJson, PayloadTooDeep) as error:
                raise Flaw(f"{place.path} cannot be kept as JSON: {error.faults[0].message}") from None
            self.encoded.add(value, text)
        return text

    def spend(self, size: int, where: Where) -> None:
        self.room -= size
        if self.room < 0:
            self.too_large(where)

    def refuse(self, where: Where, message: str) -> None:
        self.faults.append(Fault(json_pointer(where), message))
        if len(self.faults) == MAX_FAULTS:
            self.fail()

    def too_large(self, where: Where) -> NoReturn:
        self.faults.append(
            Fault(json_pointer(where), f"at this point the result exceeds {self.max_bytes} bytes")
        )
        self.fail()

    def fail(self) -> NoReturn:
        first = self.faults[0]
        raise TemplateFailed(
            f"The template cannot be filled: {first.path or '/'}: {first.message}.", self.faults
        )


def _require_room(value: Any, room: int) -> None:
    """Refuse values that are not plain JSON or certainly larger than `room`, before encoding.

    The weight is at most the size as JSON text. It counts shared values each time, so it also ends for a value that
    contains itself.
    """
    level = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _PLAIN:
            raise PayloadNotJson("No JSON.", [Fault("", "something in it has no JSON form")])
        objects = [item for item in level if type(item) is dict] if dict in kinds else []
        arrays = [item for item in level if type(item) is list] if list in kinds else []
        texts = [item for item in level if type(item) is str] if str in kinds else []
        room -= 2 * sum(map(len, objects)) + 2 * sum(map(len, arrays)) + sum(map(len, texts))
        if room < 0:
            raise PayloadTooLarge("Too large.")
        level = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
