"""Reads form fields as values, and collects the faults of all fields."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from fairlead.errors import Fault, InvalidInput
from fairlead.model.flow import Rate, parse_rate


class Form:
    """Fields as the browser sent them. `check` raises if a field that was read is invalid."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.faults: list[Fault] = []

    def text(self, name: str) -> str:
        return self.given.get(name, "").strip()

    def some_text(self, name: str) -> str | None:
        """A text, or None if the field is empty."""
        return self.text(name) or None

    def is_ticked(self, name: str) -> bool:
        return name in self.given

    def whole(self, name: str) -> int:
        """A whole number."""
        try:
            return int(self.text(name))
        except ValueError:
            return int(self._add_fault(name, "must be a whole number"))

    def some_whole(self, name: str) -> int | None:
        """A whole number, or None if the field is empty."""
        return self.whole(name) if self.text(name) else None

    def some_rate(self, name: str) -> Rate | None:
        """A rate such as 100/min+20, or None if the field is empty."""
        if not self.text(name):
            return None
        try:
            return parse_rate(self.text(name))
        except InvalidInput as error:
            self._add_fault(name, error.faults[0].message)
            return None

    def decimal(self, name: str) -> float:
        """A number."""
        try:
            return float(self.text(name))
        except ValueError:
            return self._add_fault(name, "must be a number")

    def json(self, name: str) -> Any:
        """Any JSON."""
        try:
            return json.loads(self.text(name))
        except json.JSONDecodeError as error:
            return self._add_fault(
                name, f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
            )
        except (ValueError, RecursionError):
            return self._add_fault(
                name, "is JSON that cannot be stored: it is nested too deeply, or a number is too long"
            )

    def some_moment(self, name: str, zone: ZoneInfo) -> datetime | None:
        """A time, in the zone unless it has an offset; None if the field is empty."""
        if not self.text(name):
            return None
        try:
            found = datetime.fromisoformat(self.text(name))
        except ValueError:
            self._add_fault(name, "must be a time such as 2026-02-16T10:30")
            return None
        return found.replace(tzinfo=zone) if found.tzinfo is None else found

    def _add_fault(self, name: str, why: str) -> int:
        self.faults.append(Fault(name, why))
        return 0  # a placeholder: `check` rejects the form

    def check(self) -> None:
        """Raise InvalidInput if a field was invalid."""
        if self.faults:
            raise InvalidInput(f"{self.faults[0].path} {self.faults[0].message}.", self.faults)


def uuid_of(text: str | None) -> UUID | None:
    """The UUID in a text, or None."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
