"""The words of an argv template: text with slots, `--path={payload.path}`, and the paths in them."""

import re
from collections.abc import Iterator

import msgspec

from fairlead.model.command.argv_parts import ITEM
from fairlead.model.command.slot import Slot, SlotType
from fairlead.model.template.path import Flaw, Path, parse_path, parse_path_at

OWN = {
    "tenant.id": SlotType.STRING,
    "tenant.slug": SlotType.STRING,
    "job.id": SlotType.STRING,
    "job.attempt": SlotType.INTEGER,
    "job.correlation_id": SlotType.STRING,
}
INLINE = (SlotType.STRING, SlotType.INTEGER, SlotType.NUMBER, SlotType.UUID)

_BRACE = re.compile(r"[{}]")
_TYPE = re.compile(r":([a-z]+)")
_NUMBER = re.compile(r"[0-9]+")


class Scope(msgspec.Struct, frozen=True):
    """The names that slots may use: the payload, the system's own values, and within `each` also the item."""

    # the slot of `{item}`, as its each declares it
    item: Slot | None = None


def parse_pieces(text: str, scope: Scope) -> Iterator[str | Slot]:
    """The literal texts and slots of a word, or a Flaw. `{{` and `}}` are literal braces."""
    at = 0
    while brace := _BRACE.search(text, at):
        yield text[at : brace.start()]
        at = brace.end()
        if text.startswith(brace[0], at):
            yield brace[0]
            at += 1
        elif brace[0] == "}":
            raise Flaw("has a } without a {; write a literal } as }}")
        else:
            slot, at = _parse_slot(text, at, scope)
            yield slot
    yield text[at:]


def parse_literal(text: str) -> str:
    """The text of a word without slots, its doubled braces resolved; or a Flaw."""
    pieces = list(parse_pieces(text, Scope()))
    if any(isinstance(piece, Slot) for piece in pieces):
        raise Flaw("must be literal text without slots; write a literal { as {{")
    if "\x00" in text:
        raise Flaw("must not have NUL")
    return "".join(str(piece) for piece in pieces)


def parse_source(text: str, scope: Scope) -> Path:
    """The path that a field such as `slot` or `if` names, or a Flaw."""
    return _check_path(parse_path(text), scope)


def own_type(path: Path) -> SlotType | None:
    """The type of one of the system's own values; None for a path into the payload."""
    return OWN.get(str(path))


def _parse_slot(text: str, at: int, scope: Scope) -> tuple[Slot, int]:
    path, at = parse_path_at(text, at)
    _check_path(path, scope)
    said = _TYPE.match(text, at)
    at = said.end() if said else at
    if not text.startswith("}", at):
        raise Flaw(
            f"{path} is not followed by }} or by a type such as :integer}}; write a literal {{ as {{{{"
        )
    return _build_slot(path, said[1] if said else None, scope), at + 1


def _build_slot(path: Path, said: str | None, scope: Scope) -> Slot:
    own = own_type(path)
    if said is None:
        if scope.item and path == scope.item.path:
            return scope.item
        return Slot(path=path, type=own or SlotType.STRING)
    if own:
        raise Flaw(f"{path} takes no type")
    if said not in INLINE:
        raise Flaw(
            f"the type in braces must be one of {', '.join(INLINE)}; "
            f'write path and enum as {{ slot = "{path}", type = … }}'
        )
    return Slot(path=path, type=SlotType(said))


def _check_path(path: Path, scope: Scope) -> Path:
    root = path.segments[0]
    if root == ITEM:
        if scope.item is None:
            raise Flaw("item exists only in the argv of an each")
    elif root == "payload":
        if len(path.segments) == 1:
            raise Flaw("payload must be followed by the name of a field, such as payload.path")
    elif str(path) not in OWN:
        raise Flaw(f"{path} is unknown: use payload.…, {', '.join(OWN)}")
    if any(_NUMBER.fullmatch(segment) for segment in path.segments):
        raise Flaw(f"{path} must not have a number as a segment; use each for the items of a list")
    return path
