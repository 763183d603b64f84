"""Attempts for tests: a context, a pool, a function, its outcome."""

import asyncio
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from uuid import uuid4

from fairlead.deadlines import Deadlines
from fairlead.handlers import function
from fairlead.handlers.attempt import AttemptContext, Bounds
from fairlead.handlers.function import run_attempt
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Outcome, Succeeded
from tests.waiting import SECONDS


def context(payload: Any = None, **more: Any) -> AttemptContext:
    facts: dict[str, Any] = {
        "job_id": uuid4(),
        "tenant": "acme",
        "tenant_id": uuid4(),
        "definition_key": "work",
        "attempt_no": 2,
        "max_attempts": 3,
        "payload": {} if payload is None else payload,
    }
    return AttemptContext(**facts | more)


class ManualDeadlines(Deadlines):
    """Timeouts that are over when a test says so, and not before: however long an attempt takes to begin."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, Callable[[], None]] = {}

    def add(self, who: Hashable, seconds: float, over: Callable[[], None]) -> None:  # noqa: ARG002
        self._entries[who] = over

    def leave(self, who: Hashable, seconds: float) -> None:  # noqa: ARG002
        self._entries.pop(who, None)

    def expire(self) -> None:
        """End the time of all attempts that have begun and not ended."""
        entries, self._entries = self._entries, {}
        for over in entries.values():
            over()


def start(
    handler: Handler,
    ctx: AttemptContext,
    *,
    timeout: float | None,
    threads: Threads,
    deadlines: Deadlines | None = None,
    **bounds: Any,
) -> asyncio.Future[Outcome]:
    """An attempt that has begun when this returns; the future is its outcome."""
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    limits = Bounds(timeout, deadlines or Deadlines(), **bounds)
    function.start_attempt(handler, ctx, outcome.set_result, limits, threads)
    return outcome


async def outcome_of(
    function: Callable[..., Any],
    payload: Any = None,
    *,
    ctx: AttemptContext | None = None,
    isolate: bool = False,
    **bounds: Any,
) -> Outcome:
    """What becomes of one attempt, in a pool of its own unless one is given."""
    handler = Handler.of("work", function, isolate=isolate)
    threads = bounds.pop("threads", None) or Threads(2)
    try:
        bounds = {"timeout": 120.0, "grace": 60.0, **bounds}
        return await run_attempt(handler, ctx or context(payload), threads=threads, **bounds)
    finally:
        threads.close()


def output(outcome: Outcome) -> Any:
    """What a success gave."""
    assert isinstance(outcome, Succeeded), outcome
    return outcome.output


async def until(look: Callable[[], Any], what: str) -> Any:
    """Poll until `look` answers something true, or fail saying what was waited for."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited {SECONDS:.0f} s for {what}")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def dead(pid: int) -> bool:
    return not alive(pid)


def number_in(path: Path) -> int | None:
    """The number a process wrote there, once it has."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None
