"""Secrets in payloads: which fields are secret, and how they are masked in everything that is shown.

A schema marks a field with `"writeOnly": true` or `"x-secret": true`. From it come paths, such as `/smtp/password`
or `/users/*/token`: `*` matches any one key or index, `**` any number of them.
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

from fairlead.keys.sealed import is_sealed
from fairlead.model.ansi import show_text
from fairlead.model.outcome import Failed, Outcome, Succeeded
from fairlead.model.secrets.reference import (
    drop_references,
    is_reference,
    list_references,
    refuse_unmarked,
    replace_references,
)

MASK = "[redacted]"
ANY, ANY_DEPTH = "*", "**"
# Shorter secrets are not masked: they would hide half of every text.
SHORTEST_TEXT = 4
SHORTEST_PART = 8
FEWEST_DIGITS = 6
# A text with more parts is not a header.
MOST_PARTS = 16
# The most secrets to search for; if a payload has more, every text of the job is masked whole.
MOST_SECRETS = 200
MOST_PLACES = 100
MOST_STEPS = 20_000
# Only secrets of this length are masked in a text that a user chose: a shorter one could be guessed from the mask.
LEAST_TO_COMPARE = 16
# Cuts are rounded to this length: they reveal little of a secret's length, and nothing of its letters.
REACH = 64
# A secret of these characters has only one form in all encodings.
_ALWAYS_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")

SecretPath = tuple[str, ...]
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
    """The paths of the fields that the schema marks as secret; every path if the schema is too complex."""
    if not has_marks(schema):
        return []
    try:
        found = _SecretMarkReader(schema).paths(schema)
    except (_SchemaTooComplex, RecursionError):
        found = {(ANY_DEPTH,)}
    return sorted(join_path(path) for path in found)


def has_marks(schema: Any) -> bool:
    """Whether the schema has any mark: most have none."""
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


def drop_examples(schema: Any) -> Any:
    """The schema without defaults and examples of secrets: everyone can read the definition."""
    if isinstance(schema, list):
        return [drop_examples(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    telling = {"default", "examples"} if _is_marked(schema) or _any_marked(schema) else set()
    return {name: drop_examples(one) for name, one in schema.items() if name not in telling}


def _any_marked(schema: Mapping[str, Any]) -> bool:
    """Whether an alternative of the schema is marked."""
    return any(isinstance(one, dict) and _is_marked(one) for one in _in_place(schema))


class _SchemaTooComplex(Exception):
    """The schema is too large, or has references that cannot be followed."""


class _SecretMarkReader:
    """Finds marked fields, and follows references within the schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0
        self._open: list[str] = []
        self._recursive: set[str] = set()

    def paths(self, schema: Any) -> set[SecretPath]:
        """The marked paths below this part of the schema, relative to it."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _SchemaTooComplex
        if not isinstance(schema, dict):
            return set()
        if _is_marked(schema):
            return {()}
        found: set[SecretPath] = set()
        for below in _in_place(schema):
            found |= self.paths(below)
        for name, below in _children(schema):
            found |= {(name, *path) for path in self.paths(below)}
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                found |= self._follow_reference(schema[keyword])
        return found

    def _follow_reference(self, reference: Any) -> set[SecretPath]:
        if reference in self._open:
            self._recursive.add(reference)
            return set()
        target = self._resolve_reference(reference)
        self._open.append(reference)
        found = self.paths(target)
        self._open.pop()
        if reference in self._recursive:
            # a recursive schema: the same fields can occur at any depth
            found |= {(ANY_DEPTH, *path) for path in found}
        return found

    def _resolve_reference(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not re.fullmatch(r"#(/.*)?", reference):
            raise _SchemaTooComplex
        place = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and name.isdigit() and int(name) < len(place):
                place = place[int(name)]
            elif isinstance(place, dict) and name in place:
                place = place[name]
            else:
                raise _SchemaTooComplex
        return place


def _in_place(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Subschemas that apply to the same value."""
    for keyword in _IN_PLACE:
        parts = schema.get(keyword)
        yield from parts if isinstance(parts, list) else ()
    for keyword in _IN_PLACE_ONE:
        yield schema.get(keyword)
    yield from _named_subschemas(schema, "dependentSchemas").values()


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Subschemas that apply to parts of the value, with the name of the part."""
    yield from _named_subschemas(schema, "properties").items()
    yield from ((ANY, below) for below in _named_subschemas(schema, "patternProperties").values())
    yield from ((ANY, schema.get(keyword)) for keyword in (*_ANY_ITEM, *_ANY_NAME))
    first = schema.get("prefixItems")
    yield from ((str(at), below) for at, below in enumerate(first if isinstance(first, list) else ()))


def _named_subschemas(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _escape_part(part: str) -> str:
    if part in (ANY, ANY_DEPTH):
        return part
    return part.replace("~", "~0").replace("/", "~1")


@lru_cache(10_000)
def split_path(path: str) -> SecretPath:
    """The names of a path."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])


def _parse_paths(paths: Sequence[str]) -> set[SecretPath]:
    return {split_path(path) for path in paths}


def join_path(parts: Iterable[str]) -> str:
    """The path with these names; without names, the path of the whole value."""
    return "/".join(["", *map(_escape_part, parts)])


# From paths to values


def mask_paths(payload: Any, paths: Sequence[str]) -> Any:
    """The payload with a mask in place of every secret. A reference to a secret is shown: its name is none."""
    return _rewrite(payload, _parse_paths(paths), _mask_secret) if paths else payload


def _mask_secret(value: Any) -> Any:
    return value if is_reference(value) else MASK


def mask_payload(payload: Any, paths: Sequence[str], patterns: Patterns) -> Any:
    """A payload to show, edit and send back: its secret fields and all matches of patterns are masked.

    Other fields are not compared with the secrets: a user writes them, and could test guesses against the mask.
    """
    shown = mask_paths(payload, paths)
    return Mask((), patterns).value(shown, names=False) if patterns else shown


def restore_masked(edited: Any, stored: Any, shown: Any) -> Any:
    """The edited payload with each value that is still as shown replaced by the stored value."""
    if isinstance(edited, str):  # a mask is always text
        return stored if edited == shown else edited
    if isinstance(edited, Mapping) and isinstance(stored, dict) and isinstance(shown, dict):
        known = stored.keys() & shown.keys()
        return {
            name: restore_masked(one, stored[name], shown[name]) if name in known else one
            for name, one in edited.items()
        }
    if isinstance(edited, list) and isinstance(stored, list) and isinstance(shown, list):
        there = list(zip(stored, shown, strict=False))
        return [restore_masked(one, *there[at]) if at < len(there) else one for at, one in enumerate(edited)]
    return edited


def rewrite_at_paths(
    value: Any, paths: Sequence[str], at: Callable[[Any], Any], before: Callable[[Any, set[SecretPath]], Any]
) -> Any:
    """A copy with each secret changed by `at`, and by `before` each scalar where a path would lead further down."""
    return _rewrite(value, _parse_paths(paths), at, before) if paths else value


def rewrite_places(
    value: Any,
    paths: Sequence[str],
    change: Callable[[Any, SecretPath], Any],
    before: Callable[[Any, SecretPath], Any] = lambda value, _: value,
) -> Any:
    """A copy of the value with each secret changed by `change`, which gets the secret and its place; and by `before` each
    scalar where a path would lead further down.
    """
    return _rewrite_places(value, _parse_paths(paths), change, before, ()) if paths else value


def _rewrite_places(
    value: Any,
    paths: set[SecretPath],
    change: Callable[[Any, SecretPath], Any],
    before: Callable[[Any, SecretPath], Any],
    at: SecretPath,
) -> Any:
    paths = _expand_any_depth(paths)
    if () in paths:
        return change(value, at)
    if not paths:
        return value
    if isinstance(value, dict):
        return {
            name: _rewrite_places(one, _step_into(paths, name), change, before, (*at, name))
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [
            _rewrite_places(one, _step_into(paths, str(place)), change, before, (*at, str(place)))
            for place, one in enumerate(value)
        ]
    return before(value, at)


def find_secrets(payload: Any, paths: Sequence[str]) -> list[Any]:
    """The values at the secret paths of the payload, without references to secrets."""
    # what is sealed cannot be searched for; texts of its job were masked when they were written
    return [
        drop_references(one) if isinstance(one, dict | list) else one
        for one in _find_at(payload, paths)
        if not isinstance(one, dict) or not (is_reference(one) or _is_sealed(one))
    ]


def _find_at(payload: Any, paths: Sequence[str]) -> list[Any]:
    """The values at the paths of the payload."""
    found: list[Any] = []
    plain = _split_plain(tuple(paths))
    if plain is None:
        _rewrite(payload, _parse_paths(paths), found.append)
        return found
    for path in plain:  # nearly every definition; this runs for each of its jobs
        value = payload
        for name in path:
            if isinstance(value, dict) and name in value:
                value = value[name]
            else:
                break
        else:
            found.append(value)
    return found


@lru_cache(10_000)
def _split_plain(paths: tuple[str, ...]) -> tuple[SecretPath, ...] | None:
    """The names of the paths, if each is a chain of names; None if one has wildcards, or may lead into a list or a secret."""
    found = tuple(map(split_path, paths))
    names = {name for path in found for name in path}
    is_plain = names.isdisjoint((ANY, ANY_DEPTH)) and not any(map(str.isdecimal, names))
    is_apart = not any(one != other and other[: len(one)] == one for one in found for other in found)
    return found if is_plain and is_apart else None


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and is_sealed(value.get("$sealed"))


def find_references(payload: Any, paths: Sequence[str]) -> list[str]:
    """The names of the references at the secret paths of the payload."""
    return (
        list_references([one for one in _find_at(payload, paths) if isinstance(one, dict | list)])
        if paths
        else []
    )


def fill_references(payload: Any, paths: Sequence[str], texts: Mapping[str, str]) -> Any:
    """The payload with the text of each reference at its secret paths."""
    return _rewrite(payload, _parse_paths(paths), lambda value: replace_references(value, texts))


def check_references(key: str, payload: Any, paths: Sequence[str]) -> None:
    """Raise PayloadInvalid for a reference in a field that is not marked as secret."""
    refuse_unmarked(key, _rewrite(payload, _parse_paths(paths), drop_references) if paths else payload)


def _rewrite(
    value: Any,
    paths: set[SecretPath],
    change: Callable[[Any], Any],
    before: Callable[[Any, set[SecretPath]], Any] = lambda value, _: value,
) -> Any:
    """A copy of the value, changed at each path."""
    paths = _expand_any_depth(paths)
    if () in paths:
        return change(value)
    if not paths:
        return value
    if isinstance(value, dict):
        return {name: _rewrite(one, _step_into(paths, name), change, before) for name, one in value.items()}
    if isinstance(value, list):
        return [_rewrite(one, _step_into(paths, str(at)), change, before) for at, one in enumerate(value)]
    return before(value, paths)


def _expand_any_depth(paths: set[SecretPath]) -> set[SecretPath]:
    """Add the paths in which `**` stands for no step."""
    more = {path[1:] for path in paths if path[:1] == (ANY_DEPTH,)}
    return paths if more <= paths else _expand_any_depth(paths | more)


def _step_into(paths: set[SecretPath], name: str) -> set[SecretPath]:
    """The rest of the paths after a step."""
    return {path[1:] for path in paths if path and path[0] in (name, ANY)} | {
        path for path in paths if path[:1] == (ANY_DEPTH,)
    }


def is_sealed_at(names: Sequence[str], paths: Sequence[str]) -> bool:
    """Whether the value at a place, or a part of it, is secret, and so is stored sealed where the database encrypts."""
    left = _parse_paths(paths)
    for name in names:
        left = _expand_any_depth(left)
        if () in left:
            return True
        left = _step_into(left, name)
    return bool(left)


def is_hidden_by(path: str, paths: Sequence[str]) -> bool:
    """Whether all that one path hides is hidden by these paths, too."""
    left = _expand_any_depth(_parse_paths(paths))
    for name in split_path(path):
        if () in left:
            return True
        left = _expand_any_depth(_step_into(left, name))
    return () in left


# From values to texts without them


class Mask:
    """Masks known secrets, and matches of patterns, in texts and in JSON."""

    def __init__(self, secrets: Iterable[Any], patterns: Patterns = (), *, hides_all: bool = False) -> None:
        self._numbers: set[int | float] = set()
        self._everything = hides_all
        self._texts: list[str] = []
        self._has_lines = False
        self.leaves: list[str | int | float] = []
        self.patterns = patterns
        self.add(secrets)

    def add(self, secrets: Iterable[Any]) -> None:
        """Mask these secrets, too, from now on."""
        leaves = list(islice(_iterate_leaves(secrets), MOST_SECRETS + 1))
        texts = set(self._texts)
        for leaf in leaves:
            self._learn(leaf, texts)
        # the longest first: a secret may contain another
        self._texts = sorted(texts, key=len, reverse=True)
        self._has_lines = any("\n" in text for text in texts)
        self.leaves = [*self.leaves, *leaves]
        self._everything = self._everything or len(self.leaves) > MOST_SECRETS

    def _learn(self, leaf: Any, texts: set[str]) -> None:
        if isinstance(leaf, int | float):
            if sum(character.isdigit() for character in repr(leaf)) >= FEWEST_DIGITS:
                self._numbers.add(leaf)
                texts.add(repr(leaf))
        elif len(leaf) >= SHORTEST_TEXT:
            for one in (leaf, *_iterate_credentials(leaf)):
                texts.update(_iterate_forms(one))

    @property
    def longest(self) -> int:
        """The length of the longest text to search for."""
        return len(self._texts[0]) if self._texts else 0

    @property
    def reach(self) -> int:
        """How far a secret can extend from a cut: the length of the longest, rounded up."""
        return -(-self.longest // REACH) * REACH

    def text(self, text: str) -> str:
        """The text without secrets. It must be complete: a truncated text may keep part of a secret.

        The beginning of a secret is not masked: a user who chooses a text could learn the secret letter by letter.
        """
        return self._mask_patterns(self._mask_secrets(text))

    def mask_beginning(self, text: str) -> str:
        """A text whose end was cut off, without secrets and without the part where a secret may have begun."""
        if not self._texts:
            return self.text(text)
        return self.text(text[: self._move_before_secrets(text, self._find_reach(text))])

    def mask_chosen(self, text: str | None) -> str | None:
        """A text that a user chose, with only those secrets masked that are too long to guess."""
        if text is None:
            return None
        return self._mask_patterns(self._mask_secrets(text, self._long_texts()))

    def finds_long(self, value: Any) -> bool:
        """Whether JSON has a secret that is too long to guess."""
        text = msgspec.json.encode(value).decode()
        if "\\u001b" in text:
            text += text.replace("\\u001b", "\x1b").replace("\\u0007", "\x07").replace("\\n", "\n")
        return bool(self._find_spans(text, self._long_texts()))

    def _long_texts(self) -> list[str]:
        return [secret for secret in self._texts if len(secret) >= LEAST_TO_COMPARE]

    def _mask_secrets(self, text: str, secrets: Sequence[str] | None = None) -> str:
        if self._everything:
            return MASK
        return _replace_spans(text, self._find_spans(text, self._texts if secrets is None else secrets))

    def _mask_patterns(self, text: str) -> str:
        for pattern in self.patterns:
            text = (
                _replace_spans(text, _find_matches(pattern, text))
                if show_text(text)
                else pattern.sub(MASK, text)
            )
        return text

    @staticmethod
    def _find_spans(text: str, secrets: Sequence[str]) -> list[tuple[int, int]]:
        """The positions of secrets, also of divided ones. Overlapping ones are merged, so that no part of either is left."""
        found = list(_iterate_spans(text, secrets))
        if secrets and (shown := show_text(text)):
            found += [shown.locate_span(*span) for span in _iterate_spans(shown.text, secrets)]
        return _merge_spans(found)

    def find_safe_start(self, text: str) -> int:
        """The first position in a text whose beginning was cut off that no secret can reach."""
        shown = show_text(text)
        at = shown.locate(self.reach) if shown else min(len(text), self.reach)
        return next((end for begin, end in self._find_spans(text, self._texts) if begin < at < end), at)

    def _find_reach(self, text: str) -> int:
        """The last position in a text whose end was cut off, or is still to come, that no unfinished secret can reach."""
        shown = show_text(text)
        return (
            max(0, len(text) - self.reach)
            if shown is None
            else shown.locate(max(0, len(shown.text) - self.reach))
        )

    def move_before_match(self, text: str, at: int) -> int:
        """The position, or the start of a match that extends over it; a match of the whole text is cut."""
        begins = [
            begin
            for pattern in self.patterns
            for begin, end in _find_matches(pattern, text)
            if begin < at < end
        ]
        return min(begins, default=at) or at

    def find_safe_cut(self, text: str, at: int) -> int:
        """The last position up to `at` where an unfinished text can be cut without splitting a secret.

        It does not depend on whether the text ends with the beginning of a secret: a user could test guesses with it.
        """
        if text[at - 1 : at] == "\n" and not self._has_lines:  # no secret spans lines
            return at
        return self._move_before_secrets(text, self.move_before_match(text, min(at, self._find_reach(text))))

    def _move_before_secrets(self, text: str, at: int) -> int:
        """The position, or the start of a complete secret that extends over it."""
        if show_text(text):
            spans = self._find_spans(text, self._texts)
            return next((begin for begin, end in spans if begin < at < end), at)
        moved = True
        while moved:
            cut = min((self._start_of_secret(text, at, secret) for secret in self._texts), default=at)
            moved, at = cut < at, cut
        return at

    @staticmethod
    def _start_of_secret(text: str, at: int, secret: str) -> int:
        begin = text.find(secret, max(0, at - len(secret) + 1), at + len(secret) - 1)
        return begin if 0 <= begin < at else at

    def value(self, value: Any, *, names: bool = True) -> Any:
        """The JSON without secrets, also in its keys."""
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
        """The outcome without secrets."""
        if not (self._texts or self._everything or self.patterns):
            return outcome
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


def _iterate_spans(text: str, secrets: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The positions of secrets in a text."""
    for secret in secrets:
        begin = text.find(secret)
        while begin >= 0:
            yield begin, begin + len(secret)
            begin = text.find(secret, begin + 1)


def _find_matches(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """The positions of a pattern's matches, also of those that escapes divide."""
    found = [match.span() for match in pattern.finditer(text)]
    if shown := show_text(text):
        found += [shown.locate_span(*match.span()) for match in pattern.finditer(shown.text) if match[0]]
    return _merge_spans(found)


def _merge_spans(found: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if spans and begin < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def _replace_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with a mask in place of each of these parts."""
    kept, at = [], 0
    for begin, end in spans:
        kept += [text[at:begin], MASK]
        at = end
    return "".join((*kept, text[at:])) if kept else text


def join_masks(masks: Iterable[Mask | None]) -> Mask | None:
    """A mask for the secrets of several jobs of one process; None if none has a mask."""
    found = [mask for mask in masks if mask is not None]
    if len(found) <= 1:
        return found[0] if found else None
    return Mask([leaf for mask in found for leaf in mask.leaves], found[0].patterns)


def _iterate_leaves(values: Iterable[Any]) -> Iterator[str | int | float]:
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


def _iterate_forms(secret: str) -> Iterator[str]:
    """The forms of a secret in texts: plain, as Python and JSON literals, in URLs, and its single lines."""
    yield secret
    if _ALWAYS_PLAIN.fullmatch(secret):  # most secrets; this runs for every job that has any
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


def _iterate_credentials(secret: str) -> Iterator[str]:
    """The credentials in a header such as `Bearer …` or `Basic …`: a server may repeat them without the scheme."""
    scheme, *parts = secret.split(maxsplit=MOST_PARTS) or [""]
    if not parts or len(parts) == MOST_PARTS or "\n" in secret:
        return
    # with several parts, plain words are not masked: they would hide half of every text
    yield from (one for one in parts if len(one) >= SHORTEST_PART and (len(parts) == 1 or not one.isalpha()))
    if scheme.lower() == "basic":
        yield from (one for one in _decode_basic(parts[0]) if len(one) >= SHORTEST_TEXT)


def _decode_basic(encoded: str) -> tuple[str, ...]:
    """The user and password of Basic, and the password alone."""
    try:
        both = b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return both, both.partition(":")[2]


def build_mask(payload: Any, paths: Sequence[str], patterns: Patterns = ()) -> Mask | None:
    """The mask for a job's secrets; None if there is nothing to mask."""
    secrets = find_secrets(payload, paths)
    return Mask(secrets, patterns) if secrets or patterns else None


def shorten(text: str, longest: int, mask: Mask | None = None) -> str:
    """The beginning of a text. It is masked before it is cut: the mask does not find a truncated secret."""
    if mask is not None:
        text = mask.text(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def find_secret_places(payload: Any, mask: Mask) -> list[str]:
    """The paths of a payload's values that contain a known secret; if there are too many, the path of the whole payload."""
    found = list(islice(_iterate_secret_places(payload, mask, ()), MOST_PLACES + 1))
    return [join_path(())] if len(found) > MOST_PLACES else [join_path(place) for place in found]


def _iterate_secret_places(value: Any, mask: Mask, at: SecretPath) -> Iterator[SecretPath]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _iterate_secret_places(one, mask, (*at, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _iterate_secret_places(one, mask, (*at, str(number)))
    elif mask.value(value) != value:
        yield at


def mask_dedupe_key(key: str, definition_key: str, paths: Sequence[str], mask: Mask) -> str:
    """A dedupe key without secrets: a key derived from a payload contains them."""
    parts = key.split("::", 2)
    if len(parts) == 3 and parts[0] == definition_key:
        try:
            payload = msgspec.json.decode(parts[2])
        except msgspec.DecodeError:
            pass  # not derived from a payload
        else:
            key = "::".join([*parts[:2], msgspec.json.encode(mask_paths(payload, paths)).decode()])
    return str(mask.mask_chosen(key))
