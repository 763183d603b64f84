"""Random values for JSON Schemas: what is asked for, or not, from nothing to as large as a server accepts."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

JsonSchema = Mapping[str, Any]

# How often a value is of another type than the schema asks for, or a field is missing or unknown.
WRONG = 0.04
NAMES = ("a", "b", "n", "items", "big", "key", "name", "payload", "input", "event.a", "", "é", "__proto__")
WORDS = (
    "",
    "a",
    "0",
    "acme",
    "hostile",
    "null",
    "{{event.big}}",
    "{{input.items}}",
    "%",
    "' or 1=1 --",
    "\x1b[31m",
)
NUMBERS = (0, 1, -1, 2, 7, 100, 1000, 10_001, 2**31, 2**53, -(2**63), 1e308, 0.1)
DEEPEST = 3000


# How often a value is costly, and in which way: as weights.
COSTS = {"none": 80, "many values": 6, "long text": 5, "depth": 3, "many keys": 3, "lists of lists": 3}


class ValueMaker:
    """Makes values from a seed. `ids` has known ids and names, which references to objects use."""

    def __init__(self, chance: random.Random, document: JsonSchema, ids: Sequence[str] = ()) -> None:
        self.chance = chance
        self._document = document
        self.ids = list(ids)

    def make(self, schema: JsonSchema, room: int = 6) -> Any:
        """A value for a schema; `room` is how deep it may go on its own account."""
        schema = self._resolve(schema)
        if room <= 0:
            return None
        if self.chance.random() < WRONG:
            return self.make_any()
        for choice in ("anyOf", "oneOf", "allOf"):
            if options := schema.get(choice):
                return self.make(self.chance.choice(options), room - 1)
        if options := [schema["const"]] if "const" in schema else schema.get("enum"):
            return self.chance.choice(options)
        return self._make_type(schema, room)

    def _make_type(self, schema: JsonSchema, room: int) -> Any:
        kind = schema.get("type")
        kind = self.chance.choice(kind) if isinstance(kind, list) else kind
        made: dict[str, Callable[[], Any]] = {
            "object": lambda: self._make_object(schema, room),
            "array": lambda: self._make_array(schema, room),
            "string": lambda: self._make_text(schema),
            "integer": lambda: self._make_number(schema),
            "number": lambda: self._make_number(schema),
            "boolean": lambda: self.chance.choice((True, False)),
            "null": lambda: None,
        }
        return made.get(str(kind), self.make_any)()

    def make_any(self) -> Any:
        """Any JSON value, now and then a costly one."""
        [cost] = self.chance.choices(list(COSTS), list(COSTS.values()))
        match cost:
            case "many values":
                number = self.chance.choice((1000, 20_000, 80_000))
                return [self.chance.choice(({}, 0, "", [], None))] * number
            case "long text":
                return self.chance.choice(("x", "é", '"', "\\", "<", "a1")) * self.chance.choice(
                    (5000, 100_000, 250_000)
                )
            case "depth":
                value: Any = 0
                for _ in range(self.chance.choice((30, 63, 500, DEEPEST))):
                    value = {"a": value} if self.chance.random() < 0.5 else [value]
                return value
            case "many keys":
                return {f"k{number}": number for number in range(self.chance.choice((1000, 20_000)))}
            case "lists of lists":
                side = self.chance.choice((30, 200))
                return [[number] * side for number in range(side)]
        return self.chance.choice((None, True, 1, self._make_word(), {}, [], {"a": 1}, [1, 2, 3], {"n": 1}))

    def _resolve(self, schema: JsonSchema) -> JsonSchema:
        for _ in range(20):
            if "$ref" not in schema:
                return schema
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return {}

    def _make_object(self, schema: JsonSchema, room: int) -> Any:
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        made = {
            name: self.make(of, room - 1)
            for name, of in properties.items()
            if self.chance.random() > WRONG and (name in required or self.chance.random() < 0.3)
        }
        if schema.get("additionalProperties", not properties) is not False or self.chance.random() < WRONG:
            for _ in range(self.chance.randrange(3)):
                made[self.chance.choice(NAMES)] = self.make_any()
        return made

    def _make_array(self, schema: JsonSchema, room: int) -> Any:
        number = self.chance.choice((0, 1, 1, 2, 3, 20)) if self.chance.random() > WRONG else 2000
        items = schema.get("items", {})
        made = [self.make(items, room - 1) for _ in range(min(number, 20))]
        return (made * (number // len(made)))[:number] if made else made

    def _make_text(self, schema: JsonSchema) -> Any:
        match schema.get("format"):
            case "uuid":
                return self._make_id()
            case "date-time":
                return self.chance.choice(
                    ("2026-01-01T00:00:00Z", "1970-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z")
                )
            case "email":
                return f"{self.chance.randrange(1000)}@hostile.example"
        if self.chance.random() < WRONG:
            return "x" * self.chance.choice((300, 5000, 100_000))
        return self._make_word()

    def _make_word(self) -> str:
        return (
            self.chance.choice(self.ids)
            if self.ids and self.chance.random() < 0.4
            else self.chance.choice(WORDS)
        )

    def _make_id(self) -> str:
        return (
            self.chance.choice(self.ids)
            if self.ids and self.chance.random() < 0.9
            else str(UUID(int=self.chance.getrandbits(128), version=4))
        )

    def _make_number(self, schema: JsonSchema) -> Any:
        least, most = schema.get("minimum"), schema.get("maximum")
        edges = [edge for edge in (least, most) if edge is not None]
        if edges and self.chance.random() < 0.7:
            return self.chance.choice(edges)
        number = self.chance.choice(NUMBERS)
        return int(number) if schema.get("type") == "integer" and abs(number) < 1e300 else number
