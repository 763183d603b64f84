"""A command's argv as a template: a payload fills its typed slots, and cannot add arguments.

Each value is looked up and inserted once: an inserted value is never parsed again, and no shell sees it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.errors import CommandRefused, Fault
from fairlead.model.command.argv_parts import (
    ITEM,
    ArgvFlag,
    ArgvText,
    ConditionalParts,
    JoinedItems,
    Part,
    RepeatedParts,
)
from fairlead.model.command.argv_shape import ABSENT, DASHED, Field, find_payload_faults
from fairlead.model.command.slot import MAX_ARGUMENT_BYTES, Slot, SlotType, format_value, has_forbidden_dash
from fairlead.model.definition import MAX_FAULTS
from fairlead.model.template.path import MISSING, Flaw, Path, look_up

MAX_BYTES = 131_072
MAX_ARGUMENTS = 2_000


class Argv(msgspec.Struct, frozen=True):
    """A parsed argv template: the executable, and the parts that follow it."""

    executable: str
    parts: tuple[Part, ...]
    # the payload's fields and types, see argv_shape
    shape: Field


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The values that fill the slots for one attempt."""

    payload: Any
    tenant_id: UUID | str
    tenant_slug: str
    job_id: UUID | str
    attempt: int
    correlation_id: str | None = None

    def context(self) -> dict[str, Any]:
        return {
            "payload": self.payload,
            "tenant": {"id": str(self.tenant_id), "slug": self.tenant_slug},
            "job": {"id": str(self.job_id), "attempt": self.attempt, "correlation_id": self.correlation_id},
        }


class RootedPath(NamedTuple):
    """A path that fills a slot: the slot's name, and the root folder that the path may not leave, not even by a link."""

    name: str
    path: str
    root: str


class FilledArgv(NamedTuple):
    """The arguments for one attempt, the executable first, and the paths among them."""

    arguments: list[str]
    paths: list[RootedPath]


def fill_argv(key: str, argv: Argv, facts: AttemptFacts) -> FilledArgv:
    """Fill the template for one attempt; CommandRefused names each slot that cannot be filled."""
    if type(facts.payload) is not dict:
        raise command_refusal(key, [Fault("payload", "must be an object")])
    if faults := list(islice(find_payload_faults(argv.shape, facts.payload, "payload"), MAX_FAULTS)):
        raise command_refusal(key, faults)
    filling = _ArgvFiller()
    try:
        filling.add(argv.executable)
        filling.parts(argv.parts, facts.context(), "")
    except _ArgvTooLarge as error:
        filling.faults.append(Fault("argv", str(error)))
    if filling.faults:
        raise command_refusal(key, filling.faults[:MAX_FAULTS])
    return FilledArgv(filling.arguments, filling.paths)


class _ArgvTooLarge(Exception):
    """The arguments exceed a limit."""


class _ArgvFiller:
    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.paths: list[RootedPath] = []
        self.faults: list[Fault] = []
        self.size = 0

    def add(self, argument: str) -> None:
        size = len(argument.encode("utf-8", "surrogatepass"))
        self.size += size
        self.arguments.append(argument)
        if size > MAX_ARGUMENT_BYTES:
            raise _ArgvTooLarge(f"an argument must have at most {MAX_ARGUMENT_BYTES} bytes")
        if self.size > MAX_BYTES:
            raise _ArgvTooLarge(f"all arguments together must have at most {MAX_BYTES} bytes")
        if len(self.arguments) > MAX_ARGUMENTS:
            raise _ArgvTooLarge(f"there must be at most {MAX_ARGUMENTS} arguments")

    def parts(self, parts: Sequence[Part], context: Mapping[str, Any], item: str) -> None:
        for part in parts:
            self.part(part, context, item)

    def part(self, part: Part, context: Mapping[str, Any], item: str) -> None:
        """Add the part's arguments; `item` is the name of the context's item."""
        match part:
            case ArgvText():
                self.add(self.text(part, context, item))
            case ArgvFlag():
                if look_up(part.path, context) is True:
                    self.add(part.text)
            case ConditionalParts():
                self.parts(part.then if _is_given(part.path, context) else part.otherwise, context, item)
            case RepeatedParts():
                for name, value in self.items(part.path, context):
                    self.parts(part.argv, {**context, ITEM: value}, name)
            case JoinedItems():
                self.add(self.join(part, context))

    def text(self, text: ArgvText, context: Mapping[str, Any], item: str) -> str:
        argument = ""
        opener = None
        for piece in text.pieces:
            if isinstance(piece, str):
                argument += piece
            else:
                opener = opener if argument else piece
                argument += self.slot(piece, context, item)
        if opener:
            self.refuse_leading_dash(opener, argument, _slot_name(opener.path, item))
        return argument

    def join(self, part: JoinedItems, context: Mapping[str, Any]) -> str:
        texts = []
        for name, value in self.items(part.path, context):
            texts.append(self.slot(part.slot, {ITEM: value}, name))
            if part.separator in texts[-1]:
                self.faults.append(Fault(name, "must not contain the separator"))
        argument = part.prefix + part.separator.join(texts)
        if not part.prefix:
            self.refuse_leading_dash(part.slot, argument, str(part.path))
        return argument

    def refuse_leading_dash(self, slot: Slot, argument: str, name: str) -> None:
        """Add a fault if the slot's value makes the argument begin with a dash."""
        if has_forbidden_dash(slot, argument):
            self.faults.append(Fault(name, DASHED))

    def slot(self, slot: Slot, context: Mapping[str, Any], item: str) -> str:
        """The slot's text; empty, with a fault, if the value cannot fill it."""
        name = _slot_name(slot.path, item)
        value = look_up(slot.path, context)
        if value is MISSING or value is None:
            self.faults.append(Fault(name, ABSENT))
            return ""
        try:
            text = format_value(slot, value)
        except Flaw as flaw:
            self.faults.append(Fault(name, flaw.message))
            return ""
        if slot.type is SlotType.PATH:
            self.paths.append(RootedPath(name, text, slot.root))
        return text

    def items(self, path: Path, context: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The items of a list and their names."""
        value = look_up(path, context)
        if type(value) is not list:
            self.faults.append(Fault(str(path), ABSENT))
            return
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item


def _is_given(path: Path, context: Mapping[str, Any]) -> bool:
    value = look_up(path, context)
    return value is not MISSING and value is not None and value is not False


def _slot_name(path: Path, item: str) -> str:
    if path.segments[0] != ITEM:
        return str(path)
    return ".".join((item, *(str(Path((segment,))) for segment in path.segments[1:])))


def command_refusal(key: str, faults: Sequence[Fault]) -> CommandRefused:
    """The error for a payload that the command cannot run with."""
    first = faults[0]
    return CommandRefused(
        f"The command {key} cannot be run with this payload: {first.path} {first.message}.", faults
    )
