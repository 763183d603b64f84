"""Secrets: which fields of a payload are, and how they are kept out of everything that people read.

A schema marks a field with `"writeOnly": true` or `"x-secret": true`. From it come paths, such as `/smtp/password`
or `/users/*/token`: `*` stands for any one name or place, `**` for any number of them.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from fairlead.model.outcome import Failed, Outcome, Succeeded

MASK = "[redacted]"
ANY, ANY_DEPTH = "*", "**"
# Shorter ones would hide half of every text that they are in, and say little.
SHORTEST_TEXT = 4
SHORTEST_PART = 8
FEWEST_DIGITS = 6
# What has more is no header.
MOST_PARTS = 16
# So many are looked for in every text; where a payload has more, no text of the job is shown at all.
MOST_SECRETS = 200
MOST_PLACES = 100
MOST_STEPS = 20_000
# Of secrets that may be found by trying, nothing is compared with what a user chose.
LEAST_TO_COMPARE = 16
# How much is left out beside a cut tells of a secret's length this much, and nothing of its letters.
REACH = 64
# Nothing has another form for these.
_ALWAYS_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")

Path = tuple[str, ...]
Patterns = tuple[re.Pattern[str], ...]

_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("if", "then", "else", "not")
_ANY_ITEM = ("items", "contains", "unevaluatedItems", "additionalItems")
_ANY_NAME = ("additionalProperties", "unevaluatedProperties")


def Secret() -> msgspec.Meta:  # noqa: N802 - reads as a type where it stands: Annotated[str, Secret()]
    """Marks a parameter of a job's function as a secret."""
    return msgspec.Meta(extra_json_schema={"x-secret": True})


# From a schema to paths


def secret_paths(schema: Any) -> list[str]:
    """The paths of the fields that the schema marks as secret; more than it marks where it is too tangled to tell."""
    if not _marks(schema):
        return []
    try:
        found = _Reader(schema).paths(schema)
    except (_Tangledness, RecursionError):
        found = {(ANY_DEPTH,)}
    return sorted(path_to(path) for path in found)


def _marks(schema: Any) -> bool:
    """Whether there is a mark anywhere in it: most schemas have none."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if _is_marked(one):
                return True
            left += one.values()
        elif isinstance(one, list):
            left += one
    return False


def _is_marked(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("x-secret") is True


def without_examples(schema: Any) -> Any:
    """The schema without values of secrets: a parameter's default would be in the definition for all to read."""
    if isinstance(schema, list):
        return [without_examples(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    telling = {"default", "examples"} if _is_marked(schema) or _any_marked(schema) else set()
    return {name: without_examples(one) for name, one in schema.items() if name not in telling}


def _any_marked(schema: Mapping[str, Any]) -> bool:
    """Whether one of the forms that a value may have is a secret."""
    return any(isinstance(one, dict) and _is_marked(one) for one in _in_place(schema))


class _Tangledness(Exception):
    """The schema is too large or too strange to be followed."""


class _Reader:
    """Finds marked places, following references within the schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0
        self._open: list[str] = []
        self._recursive: set[str] = set()

    def paths(self, schema: Any) -> set[Path]:
        """The marked places below this part of the schema, seen from it."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _Tangledness
        if not isinstance(schema, dict):
            return set()
        if _is_marked(schema):
            return {()}
        found: set[Path] = set()
        for below in _in_place(schema):
            found |= self.paths(below)
        for name, below in _children(schema):
            found |= {(name, *path) for path in self.paths(below)}
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                found |= self._referred(schema[keyword])
        return found

    def _referred(self, reference: Any) -> set[Path]:
        if reference in self._open:
            self._recursive.add(reference)
            return set()
        target = self._target(reference)
        self._open.append(reference)
        found = self.paths(target)
        self._open.pop()
        if reference in self._recursive:
            # it comes again somewhere below itself, however deep the payload is
            found |= {(ANY_DEPTH, *path) for path in found}
        return found

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not re.fullmatch(r"#(/.*)?", reference):
            raise _Tangledness
        place = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and name.isdigit() and int(name) < len(place):
                place = place[int(name)]
            elif isinstance(place, dict) and name in place:
                place = place[name]
            else:
                raise _Tangledness
        return place


def _in_place(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Parts that speak of the same value."""
    for keyword in _IN_PLACE:
        parts = schema.get(keyword)
        yield from parts if isinstance(parts, list) else ()
    for keyword in _IN_PLACE_ONE:
        yield schema.get(keyword)
    yield from _named(schema, "dependentSchemas").values()


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Parts that speak of what is in the value, with the name they speak of."""
    yield from _named(schema, "properties").items()
    yield from ((ANY, below) for below in _named(schema, "patternProperties").values())
    yield from ((ANY, schema.get(keyword)) for keyword in (*_ANY_ITEM, *_ANY_NAME))
    first = schema.get("prefixItems")
    yield from ((str(at), below) for at, below in enumerate(first if isinstance(first, list) else ()))


def _named(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _escaped(part: str) -> str:
    if part in (ANY, ANY_DEPTH):
        return part
    return part.replace("~", "~0").replace("/", "~1")


@lru_cache(10_000)
def _parts(path: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])


def _all(paths: Sequence[str]) -> set[Path]:
    return {_parts(path) for path in paths}


def path_to(parts: Iterable[str]) -> str:
    """The path that leads by these names; by none of them, to everything."""
    return "/".join(["", *map(_escaped, parts)])


# From paths to values


def hidden(payload: Any, paths: Sequence[str]) -> Any:
    """The payload with a mask in place of every secret."""
    return _replaced(payload, _all(paths), lambda _: MASK) if paths else payload


def shown_payload(payload: Any, paths: Sequence[str], patterns: Patterns) -> Any:
    """A payload as it may be shown, and edited and sent back: masked where its secrets are, and where a pattern matches.

    What else is in it is compared with no secret: a user wrote it, and would see which of many guesses is masked.
    """
    shown = hidden(payload, paths)
    return Mask((), patterns).value(shown, names=False) if patterns else shown


def restored(edited: Any, stored: Any, shown: Any) -> Any:
    """An edited payload in which all that was left as it was shown is again as it is stored."""
    if isinstance(edited, str):  # a mask is a text, or in one
        return stored if edited == shown else edited
    if isinstance(edited, Mapping) and isinstance(stored, dict) and isinstance(shown, dict):
        known = stored.keys() & shown.keys()
        return {
            name: restored(one, stored[name], shown[name]) if name in known else one
            for name, one in edited.items()
        }
    if isinstance(edited, list) and isinstance(stored, list) and isinstance(shown, list):
        there = list(zip(stored, shown, strict=False))
        return [restored(one, *there[at]) if at < len(there) else one for at, one in enumerate(edited)]
    return edited


def rewritten(
    value: Any, paths: Sequence[str], at: Callable[[Any], Any], before: Callable[[Any, set[Path]], Any]
) -> Any:
    """A copy with each secret changed by `at`; and by `before` what paths lead on from, though it holds nothing more."""
    return _replaced(value, _all(paths), at, before) if paths else value


def secrets_in(payload: Any, paths: Sequence[str]) -> list[Any]:
    """The secrets that are in the payload."""
    found: list[Any] = []
    if paths:
        _replaced(payload, _all(paths), found.append)
    return found


def _replaced(
    value: Any,
    paths: set[Path],
    change: Callable[[Any], Any],
    before: Callable[[Any, set[Path]], Any] = lambda value, _: value,
) -> Any:
    """A copy of the value with each place that a path leads to changed."""
    paths = _spread(paths)
    if () in paths:
        return change(value)
    if not paths:
        return value
    if isinstance(value, dict):
        return {name: _replaced(one, _below(paths, name), change, before) for name, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, _below(paths, str(at)), change, before) for at, one in enumerate(value)]
    return before(value, paths)


def _spread(paths: set[Path]) -> set[Path]:
    """Any number of steps may also be none."""
    more = {path[1:] for path in paths if path[:1] == (ANY_DEPTH,)}
    return paths if more <= paths else _spread(paths | more)


def _below(paths: set[Path], name: str) -> set[Path]:
    """What is left of the paths after a step."""
    return {path[1:] for path in paths if path and path[0] in (name, ANY)} | {
        path for path in paths if path[:1] == (ANY_DEPTH,)
    }


# From values to texts without them


class Mask:
    """Masks known secrets, and whatever matches a pattern, in texts and in JSON."""

    def __init__(self, secrets: Iterable[Any], patterns: Patterns = ()) -> None:
        self._numbers: set[int | float] = set()
        texts: set[str] = set()
        leaves = list(islice(_leaves(secrets), MOST_SECRETS + 1))
        self._everything = len(leaves) > MOST_SECRETS
        for leaf in leaves:
            self._learn(leaf, texts)
        # the longest first: one may be a part of another
        self._texts = sorted(texts, key=len, reverse=True)
        self._has_lines = any("\n" in text for text in texts)
        self.leaves = leaves
        self.patterns = patterns

    def _learn(self, leaf: Any, texts: set[str]) -> None:
        if isinstance(leaf, int | float):
            if sum(character.isdigit() for character in repr(leaf)) >= FEWEST_DIGITS:
                self._numbers.add(leaf)
                texts.add(repr(leaf))
        elif len(leaf) >= SHORTEST_TEXT:
            for one in (leaf, *_credentials(leaf)):
                texts.update(_forms(one))

    @property
    def longest(self) -> int:
        """The length of the longest text that is looked for."""
        return len(self._texts[0]) if self._texts else 0

    @property
    def reach(self) -> int:
        """How far from a cut a secret may reach that is cut in two: the length of the longest, rounded up."""
        return -(-self.longest // REACH) * REACH

    def text(self, text: str) -> str:
        """The text without secrets. It must be whole: of one that was cut, a secret may be left in part.

        Nothing is done about the beginning of a secret: who may choose a text would learn the secret letter by letter.
        """
        return self._patterned(self._replaced(text))

    def beginning(self, text: str) -> str:
        """A text that lost its end, without secrets and without all that a secret may have begun in."""
        if not self._texts:
            return self.text(text)
        return self.text(text[: self._before_spans(text, max(0, len(text) - self.reach))])

    def chosen(self, text: str | None) -> str | None:
        """A text that a user chose beside the payload, without those secrets that cannot be found by trying."""
        if text is None:
            return None
        long = [secret for secret in self._texts if len(secret) >= LEAST_TO_COMPARE]
        return self._patterned(self._replaced(text, long))

    def _replaced(self, text: str, secrets: Sequence[str] | None = None) -> str:
        if self._everything:
            return MASK
        kept, at = [], 0
        for begin, end in self._spans(text, self._texts if secrets is None else secrets):
            kept += [text[at:begin], MASK]
            at = end
        return "".join((*kept, text[at:])) if kept else text

    def _patterned(self, text: str) -> str:
        for pattern in self.patterns:
            text = pattern.sub(MASK, text)
        return text

    @staticmethod
    def _spans(text: str, secrets: Sequence[str]) -> list[tuple[int, int]]:
        """Where secrets are. Those that overlap are one: nothing of the second is left when the first is gone."""
        found = []
        for secret in secrets:
            begin = text.find(secret)
            while begin >= 0:
                found.append((begin, begin + len(secret)))
                begin = text.find(secret, begin + 1)
        spans: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if spans and begin < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
        return spans

    def safe_start(self, text: str) -> int:
        """Where a text that lost its beginning is free of what may be the end of a secret."""
        at = min(len(text), self.reach)
        return next((end for begin, end in self._spans(text, self._texts) if begin < at < end), at)

    def before_match(self, text: str, at: int) -> int:
        """The place, or where the match of a pattern begins that reaches over it; one without end is cut."""
        begins = [
            match.start()
            for pattern in self.patterns
            for match in pattern.finditer(text)
            if match.start() < at < match.end()
        ]
        return min(begins, default=at) or at

    def safe_cut(self, text: str, at: int) -> int:
        """The last place up to `at` where a text that goes on can be cut without cutting a secret in two.

        It does not depend on whether the text ends with the beginning of a secret: that could be seen, and tried.
        """
        if text[at - 1 : at] == "\n" and not self._has_lines:  # no secret reaches over the end of a line
            return at
        return self._before_spans(text, self.before_match(text, max(0, min(at, len(text) - self.reach))))

    def _before_spans(self, text: str, at: int) -> int:
        """The place, or where a secret begins that is there whole and reaches over it."""
        moved = True
        while moved:
            cut = min((self._before(text, at, secret) for secret in self._texts), default=at)
            moved, at = cut < at, cut
        return at

    @staticmethod
    def _before(text: str, at: int, secret: str) -> int:
        begin = text.find(secret, max(0, at - len(secret) + 1), at + len(secret) - 1)
        return begin if 0 <= begin < at else at

    def value(self, value: Any, *, names: bool = True) -> Any:
        """The JSON without secrets, in names too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(str(name)) if names else name: self.value(one, names=names)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one, names=names) for one in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self._everything or value in self._numbers or self._matches(value) else value
        return value

    def outcome(self, outcome: Outcome) -> Outcome:
        """How an attempt ended, without secrets."""
        if isinstance(outcome, Succeeded) and outcome.output is not None:
            return msgspec.structs.replace(outcome, output=self.value(outcome.output))
        if isinstance(outcome, Failed):
            return msgspec.structs.replace(
                outcome,
                kind=self.text(outcome.kind),
                message=self.text(outcome.message),
                traceback=None if outcome.traceback is None else self.text(outcome.traceback),
            )
        return outcome

    def _matches(self, number: float) -> bool:
        return any(pattern.search(repr(number)) for pattern in self.patterns)


def _leaves(values: Iterable[Any]) -> Iterator[str | int | float]:
    """The texts and numbers in JSON."""
    left = list(values)
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str) or (isinstance(one, int | float) and not isinstance(one, bool)):
            yield one


def _forms(secret: str) -> Iterator[str]:
    """A secret as it appears in texts: plain, as Python and JSON show it, in an address, and line by line."""
    yield secret
    if _ALWAYS_PLAIN.fullmatch(secret):  # as most are, and a mask is made for every job that has secrets
        return
    yield repr(secret)[1:-1]
    for encoded in (msgspec.json.encode(secret).decode()[1:-1], json.dumps(secret)[1:-1]):
        yield encoded
        yield encoded.replace("/", "\\/")
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    if "\n" in secret:
        yield from (line for line in secret.splitlines() if len(line) >= 2 * SHORTEST_TEXT)


def _credentials(secret: str) -> Iterator[str]:
    """What a header such as `Bearer …` or `Basic …` holds beside its scheme: who got it may say just that back."""
    scheme, *parts = secret.split(maxsplit=MOST_PARTS) or [""]
    if not parts or len(parts) == MOST_PARTS or "\n" in secret:
        return
    # of more than a scheme and a token, mere words are left: they would hide half of every text
    yield from (one for one in parts if len(one) >= SHORTEST_PART and (len(parts) == 1 or not one.isalpha()))
    if scheme.lower() == "basic":
        yield from (one for one in _of_basic(parts[0]) if len(one) >= SHORTEST_TEXT)


def _of_basic(encoded: str) -> tuple[str, ...]:
    """The user and password of Basic, and the password alone."""
    try:
        both = b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return both, both.partition(":")[2]


def mask_for(payload: Any, paths: Sequence[str], patterns: Patterns = ()) -> Mask | None:
    """What masks a job's secrets; None where there is nothing to mask."""
    secrets = secrets_in(payload, paths)
    return Mask(secrets, patterns) if secrets or patterns else None


def shorten(text: str, longest: int, mask: Mask | None = None) -> str:
    """The beginning of a text. It is masked before it is cut: of a secret that was cut in two, a mask finds nothing."""
    if mask is not None:
        text = mask.text(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def places(payload: Any, mask: Mask) -> list[str]:
    """The paths to what of a payload holds a secret that the mask knows; too many of them are one, to everything."""
    found = list(islice(_places(payload, mask, ()), MOST_PLACES + 1))
    return [path_to(())] if len(found) > MOST_PLACES else [path_to(place) for place in found]


def _places(value: Any, mask: Mask, at: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _places(one, mask, (*at, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _places(one, mask, (*at, str(number)))
    elif mask.value(value) != value:
        yield at


def shown_key(key: str, definition_key: str, paths: Sequence[str], mask: Mask) -> str:
    """A dedupe key as it may be shown: one that was made from a payload has its secrets too."""
    parts = key.split("::", 2)
    if len(parts) == 3 and parts[0] == definition_key:
        try:
            payload = msgspec.json.decode(parts[2])
        except msgspec.DecodeError:
            pass  # it only looked like one
        else:
            key = "::".join([*parts[:2], msgspec.json.encode(hidden(payload, paths)).decode()])
    return str(mask.chosen(key))
