"""The parts that an argv template is made of."""

from typing import Union

import msgspec

from fairlead.model.command.slot import Slot
from fairlead.model.template.path import Path

ITEM = "item"


class ArgvText(msgspec.Struct, frozen=True):
    """One argument: literal text and slots."""

    pieces: tuple[str | Slot, ...]


class ArgvFlag(msgspec.Struct, frozen=True):
    """One literal argument if the value is true."""

    path: Path
    text: str


class ConditionalParts(msgspec.Struct, frozen=True):
    """`then` if the value is given (neither missing nor null nor false), `otherwise` if not."""

    path: Path
    then: tuple["Part", ...]
    otherwise: tuple["Part", ...] = ()


class RepeatedParts(msgspec.Struct, frozen=True):
    """The parts once for each item of a list."""

    path: Path
    argv: tuple["Part", ...]


class JoinedItems(msgspec.Struct, frozen=True):
    """One argument: all items of a list, joined."""

    path: Path
    slot: Slot
    separator: str
    prefix: str = ""


Part = Union[ArgvText, ArgvFlag, ConditionalParts, RepeatedParts, JoinedItems]  # noqa: UP007 - a forward reference
