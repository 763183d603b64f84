"""Reading an argv template from the tables of fairlead.toml."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fairlead.errors import Fault
from fairlead.model.command.argv import Argv
from fairlead.model.command.argv_parts import (
    ITEM,
    ArgvFlag,
    ArgvText,
    ConditionalParts,
    JoinedItems,
    Part,
    RepeatedParts,
)
from fairlead.model.command.argv_shape import derive_shape, find_contradictions
from fairlead.model.command.argv_text import Scope, own_type, parse_literal, parse_pieces, parse_source
from fairlead.model.command.interpreters import find_interpreter_flaws
from fairlead.model.command.slot import (
    DASH,
    MAX_ARGUMENT_BYTES,
    Slot,
    SlotType,
    find_argument_flaw,
    resolve_under,
)
from fairlead.model.template.path import Flaw, Path

MAX_DEPTH = 16

_RULES = frozenset({"type", "root", "values", "allow_dash", "max_length", "prefix"})
_KNOWN = {
    "flag": frozenset({"flag", "if"}),
    "slot": _RULES | {"slot"},
    "each": _RULES | {"each", "argv", "join"},
    "if": frozenset({"if", "argv", "else"}),
}
_EXPECTED = "must be a string, or a table with one of slot, if, flag and each"

T = TypeVar("T")


class ArgvReader:
    """Reads one argv and collects its faults; the result is valid only if `faults` is empty."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def argv(self, written: Any, where: str) -> Argv:
        """The executable, and the parts that follow it."""
        if not isinstance(written, list) or not written:
            self.refuse(where, "must be a list that begins with the absolute path of an executable")
            return Argv("/", (), derive_shape(()))
        executable = self.executable(written[0], f"{where}[0]")
        parts = self.parts(written, where, Scope(), first=1)
        shape = derive_shape(parts)
        for flaw in (
            ()
            if self.faults
            else (*find_contradictions(shape, "payload"), *find_interpreter_flaws(executable, parts))
        ):
            self.refuse(where, flaw)
        return Argv(executable, parts, shape)

    def executable(self, written: Any, where: str) -> str:
        found = self.literal(written, where)
        if found is not None and (
            not found.startswith("/") or found.endswith("/") or find_argument_flaw(found)
        ):
            self.refuse(where, "must be the absolute path of an executable, such as /usr/bin/rsync")
        return found or "/"

    def parts(
        self, written: Any, where: str, scope: Scope, *, first: int = 0, depth: int = 0
    ) -> tuple[Part, ...]:
        if not isinstance(written, list):
            self.refuse(where, "must be a list")
            return ()
        if depth > MAX_DEPTH:
            self.refuse(where, f"is nested deeper than {MAX_DEPTH} levels")
            return ()
        found = [
            self.part(one, f"{where}[{index}]", scope, depth)
            for index, one in enumerate(written)
            if index >= first
        ]
        return tuple(part for part in found if part is not None)

    def part(self, written: Any, where: str, scope: Scope, depth: int) -> Part | None:
        if isinstance(written, str):
            return self.word(written, where, scope)
        kind = next((kind for kind in _KNOWN if isinstance(written, Mapping) and kind in written), None)
        if kind is None:
            self.refuse(where, _EXPECTED)
            return None
        for name in sorted(written.keys() - _KNOWN[kind]):
            known = ", ".join(sorted(_KNOWN[kind]))
            self.refuse(f"{where}.{name}", f"is unknown beside {kind}; known are {known}")
        match kind:
            case "flag":
                return self.flag(written, where, scope)
            case "slot":
                return self.slot_part(written, where, scope)
            case "each":
                return self.each(written, where, scope, depth)
        return self.when(written, where, scope, depth)

    def word(self, written: str, where: str, scope: Scope) -> Part | None:
        if "\x00" in written:
            self.refuse(where, "must not have NUL")
            return None
        pieces = self.try_read(where, lambda: list(parse_pieces(written, scope)))
        return None if pieces is None else ArgvText(_merge_texts(pieces))

    def flag(self, table: Mapping[str, Any], where: str, scope: Scope) -> Part | None:
        text = self.literal(table["flag"], f"{where}.flag")
        path = self.source(table.get("if"), f"{where}.if", scope, given=True)
        return ArgvFlag(path, text) if path and text is not None else None

    def when(self, table: Mapping[str, Any], where: str, scope: Scope, depth: int) -> Part | None:
        path = self.source(table["if"], f"{where}.if", scope)
        if "argv" not in table:
            self.refuse(where, "must have argv: the arguments to add if the value is given")
        then = self.parts(table.get("argv", []), f"{where}.argv", scope, depth=depth + 1)
        otherwise = self.parts(table.get("else", []), f"{where}.else", scope, depth=depth + 1)
        return ConditionalParts(path, then, otherwise) if path else None

    def slot_part(self, table: Mapping[str, Any], where: str, scope: Scope) -> Part | None:
        path = self.source(table["slot"], f"{where}.slot", scope)
        prefix = self.literal(table.get("prefix", ""), f"{where}.prefix") or ""
        slot = self.slot(path, table, where, leading=not prefix) if path else None
        return ArgvText(_merge_texts([prefix, slot])) if slot else None

    def each(self, table: Mapping[str, Any], where: str, scope: Scope, depth: int) -> Part | None:
        if scope.item is not None:
            self.refuse(where, "an each cannot contain another each")
            return None
        path = self.source(table["each"], f"{where}.each", scope, given=True)
        prefix = self.literal(table.get("prefix", ""), f"{where}.prefix") or ""
        joined = "join" in table
        inside = joined or "argv" in table
        slot = self.slot(Path((ITEM,)), table, where, leading=not (prefix or inside))
        if "argv" in table and (joined or "prefix" in table):
            self.refuse(where, "argv cannot be combined with join or prefix")
        if joined:
            separator = self.literal(table["join"], f"{where}.join")
            if separator == "":
                self.refuse(f"{where}.join", "must not be empty")
            return JoinedItems(path, slot, separator or ",", prefix) if path else None
        if "argv" not in table:
            return RepeatedParts(path, (ArgvText(_merge_texts([prefix, slot])),)) if path else None
        parts = self.parts(table["argv"], f"{where}.argv", Scope(slot), depth=depth + 1)
        return RepeatedParts(path, parts) if path else None

    def slot(self, path: Path, table: Mapping[str, Any], where: str, *, leading: bool) -> Slot:
        """The slot that the fields of a table describe."""
        kind = self.type(path, table, where)
        root = self.root(table, where, kind)
        allow_dash = table.get("allow_dash", False)
        if not isinstance(allow_dash, bool):
            self.refuse(f"{where}.allow_dash", "must be true or false")
        values = self.values(table, where, kind, dashless=leading and allow_dash is False)
        max_length = self.max_length(table, where, kind)
        return Slot(
            path=path,
            type=kind,
            root=root,
            values=values,
            allow_dash=allow_dash is True,
            max_length=max_length,
        )

    def type(self, path: Path, table: Mapping[str, Any], where: str) -> SlotType:
        own = own_type(path)
        if own and "type" in table:
            self.refuse(f"{where}.type", f"{path} takes no type")
        said = table.get("type", own or SlotType.STRING)
        if said not in list(SlotType):
            self.refuse(f"{where}.type", f"must be one of {', '.join(SlotType)}")
            return SlotType.STRING
        return SlotType(said)

    def root(self, table: Mapping[str, Any], where: str, kind: SlotType) -> str:
        said = table.get("root")
        if (kind is SlotType.PATH) != (said is not None):
            self.refuse(f"{where}.root", 'goes with type = "path", and that needs it')
            return "/"
        if said is None:
            return "/"
        if not isinstance(said, str) or not said.startswith("/") or find_argument_flaw(said):
            self.refuse(f"{where}.root", "must be the absolute path of a folder")
            return "/"
        return self.try_read(f"{where}.root", lambda: resolve_under("/", said)) or "/"

    def values(
        self, table: Mapping[str, Any], where: str, kind: SlotType, *, dashless: bool
    ) -> tuple[str | int, ...]:
        said = table.get("values")
        if (kind is SlotType.ENUM) != (said is not None):
            self.refuse(f"{where}.values", 'goes with type = "enum", and that needs it')
            return ()
        if said is not None and (not isinstance(said, list) or not said):
            self.refuse(f"{where}.values", "must be a list of one or more strings or integers")
            return ()
        for index, one in enumerate(said or ()):
            if flaw := _find_value_flaw(one, dashless=dashless):
                self.refuse(f"{where}.values[{index}]", flaw)
        return tuple(said or ())

    def max_length(self, table: Mapping[str, Any], where: str, kind: SlotType) -> int:
        said: Any = table.get("max_length", MAX_ARGUMENT_BYTES)
        if "max_length" in table and kind not in (SlotType.STRING, SlotType.PATH):
            self.refuse(f"{where}.max_length", "goes with the types string and path")
        elif type(said) is not int or not 1 <= said <= MAX_ARGUMENT_BYTES:
            self.refuse(f"{where}.max_length", f"must be 1 to {MAX_ARGUMENT_BYTES}")
        else:
            return said
        return MAX_ARGUMENT_BYTES

    def source(self, written: Any, where: str, scope: Scope, *, given: bool = False) -> Path | None:
        """The path in a field; `given`: it must be in the payload."""
        if not isinstance(written, str):
            self.refuse(where, "must be a path such as payload.path")
            return None
        path = self.try_read(where, lambda: parse_source(written, scope))
        if path and given and own_type(path):
            self.refuse(where, "must be a path into the payload")
        return path

    def literal(self, written: Any, where: str) -> str | None:
        if not isinstance(written, str):
            self.refuse(where, "must be a string")
            return None
        return self.try_read(where, lambda: parse_literal(written))

    def try_read(self, where: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Flaw as flaw:
            self.refuse(where, flaw.message)
            return None

    def refuse(self, where: str, message: str) -> None:
        self.faults.append(Fault(where, message))


def _merge_texts(pieces: list[str | Slot]) -> tuple[str | Slot, ...]:
    """The pieces without empty ones; neighbouring texts are joined."""
    merged: list[str | Slot] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, str) and isinstance(last, str):
            merged[-1] = last + piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def _find_value_flaw(value: Any, *, dashless: bool) -> str | None:
    if type(value) is not str and type(value) is not int:
        return "must be a string or an integer"
    if isinstance(value, str) and (flaw := find_argument_flaw(value)):
        return flaw
    if dashless and str(value).startswith(DASH):
        return "begins with -, which needs allow_dash = true"
    return None
