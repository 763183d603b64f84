"""The log of a handler: stored as bounded text with the attempt, and passed on to structlog."""

import threading
from collections import deque
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import UUID

import structlog

from fairlead.model.secrets.redact import Mask, shorten

MAX_BYTES = 65_536
LONGEST_LINE = 8_192


def clean_text(text: str, longest: int, mask: Mask | None = None) -> str:
    """Text that PostgreSQL can store, masked and then cut to a length, so that no part of a secret stays."""
    return shorten(text, longest, mask).replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def attempt_fields(
    *, job_id: UUID, tenant_id: UUID, definition_key: str, attempt_no: int, worker_id: str | None
) -> dict[str, Any]:
    """The log fields of an attempt."""
    named = {} if worker_id is None else {"worker_id": worker_id}
    return {
        "job_id": str(job_id),
        "tenant_id": str(tenant_id),
        "definition_key": definition_key,
        "attempt_no": attempt_no,
        **named,
    }


class Log:
    """`log.info("fetched", rows=12)`; stores the first and the last lines, with a mark for the dropped ones."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, mask: Mask | None = None, **bound: Any) -> None:
        self._lines = BoundedLines(max_bytes)
        self._mask = mask
        self._bound = bound
        self._logger: Any = None
        self._open = True

    def debug(self, event: str, **fields: Any) -> None:
        self.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self.write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self.write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self.write("error", event, fields)

    @property
    def text(self) -> str:
        """The stored text."""
        return self._lines.text()

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Store a line and pass it on to structlog; ignored after the attempt is over."""
        if not self._open:
            return
        if self._mask is not None:
            event, fields = self._mask.text(str(event)), _mask_fields(self._mask, fields)
        self._lines.add(_format_line(level, event, fields))
        if self._logger is None:
            self._logger = structlog.get_logger("fairlead.job").bind(**self._bound)
        getattr(self._logger, level)(event, **fields)

    def take_new_lines(self) -> list[str]:
        """The stored lines that were not taken before, with a mark where lines were dropped."""
        return self._lines.take_new()

    def close(self) -> None:
        self._open = False


class BoundedLines:
    """Lines of text within a size limit: the first, the last, and a count of the dropped ones. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_bytes = self._tail_bytes = 0
        self._dropped = self._dropped_bytes = 0
        # how many of all lines, also the dropped ones, `take_new` has passed
        self._taken = 0
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        size = len(line.encode()) + 1
        with self._lock:
            if not self._tail and self._head_bytes + size <= self._half:
                self._head.append(line)
                self._head_bytes += size
                return
            self._tail.append(line)
            self._tail_bytes += size
            while self._tail_bytes > self._half and len(self._tail) > 1:
                gone = len(self._tail.popleft().encode()) + 1
                self._tail_bytes -= gone
                self._dropped += 1
                self._dropped_bytes += gone

    def take_new(self) -> list[str]:
        """The lines since the last call; the dropped ones among them are one mark."""
        with self._lock:
            head, before_tail = len(self._head), len(self._head) + self._dropped
            taken, self._taken = self._taken, before_tail + len(self._tail)
            missed = before_tail - max(taken, head)
            mark = [f"… {missed} lines dropped: they came too fast …"] if missed > 0 else []
            return [*self._head[taken:], *mark, *islice(self._tail, max(0, taken - before_tail), None)]

    def text(self) -> str:
        with self._lock:
            mark = (
                [f"… {self._dropped} lines ({self._dropped_bytes} bytes) dropped …"] if self._dropped else []
            )
            return "".join(f"{line}\n" for line in (*self._head, *mark, *self._tail))


def _format_line(level: str, event: str, fields: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    rendered = "".join(f" {name}={render_value(value)}" for name, value in fields.items())
    return clean_text(f"{now}Z {level:<7} {event}{rendered}", LONGEST_LINE).replace("\n", "\\n")


def _mask_fields(mask: Mask, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without secrets; values other than strings and numbers become text."""
    return {
        mask.text(name): mask.value(value)
        if value is None or isinstance(value, str | int | float)
        else mask.text(render_value(value))
        for name, value in fields.items()
    }


def render_value(value: Any) -> str:
    """A field's value as text."""
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value[:LONGEST_LINE]):
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a value whose repr fails must not fail the job
        return f"<{type(value).__name__}>"
