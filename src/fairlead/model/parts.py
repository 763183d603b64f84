"""The parts that an argv template is made of."""

from dataclasses import dataclass
from typing import Union

from fairlead.model.path import Path
from fairlead.model.slot import Slot

ITEM = "item"


@dataclass(frozen=True, slots=True)
class Text:
    """One argument: literal text and slots."""

    pieces: tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class Flag:
    """One literal argument if the value is true."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class When:
    """Some parts if the value is given (neither missing nor null nor false), others if not."""

    path: Path
    then: tuple["Part", ...]
    otherwise: tuple["Part", ...] = ()


@dataclass(frozen=True, slots=True)
class Each:
    """The parts once for each item of a list."""

    path: Path
    argv: tuple["Part", ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """One argument of all items of a list."""

    path: Path
    slot: Slot
    separator: str
    prefix: str = ""


Part = Union[Text, Flag, When, Each, Joined]  # noqa: UP007 - named before it is made
