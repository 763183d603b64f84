"""The isolated child process: it imports its function, runs it once, sends the outcome, and ends.

It shares only a socket with its worker. When that closes, the worker is dead, and the child kills itself.
"""

import asyncio
import contextlib
import importlib
import inspect
import itertools
import os
import re
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from typing import Any, NoReturn

import msgspec

from fairlead import errors, tracing
from fairlead.handlers import isolation_protocol
from fairlead.handlers.attempt import AttemptContext, failure_outcome
from fairlead.handlers.context import Progress
from fairlead.handlers.function import run_attempt
from fairlead.handlers.log import LONGEST_LINE, Log, clean_text, render_value
from fairlead.handlers.process_tree import kill_tree
from fairlead.handlers.registry import Handler
from fairlead.handlers.supervisor import PRIVATE, adopt_orphans, keep_private
from fairlead.handlers.threads import Threads
from fairlead.model import payload
from fairlead.model.job import EnqueueResult, NewJob
from fairlead.model.outcome import Outcome
from fairlead.model.secrets.redact import Mask

# The worker enforces the timeout with SIGKILL; the child has no timeout.
_FOREVER = 86_400.0


def main() -> NoReturn:
    """Run the child, from its command line to its end."""
    adopt_orphans()
    if (
        PRIVATE in sys.argv[3:]
    ):  # the worker also runs commands, which must not read the environment that we inherit
        keep_private()
    link = Link(socket.socket(fileno=int(sys.argv[2])))
    begin = link.begin()
    sys.path[:] = begin.sys_path
    asyncio.run(_run_attempt(begin, link))
    os._exit(1)


async def _run_attempt(begin: isolation_protocol.BeginAttempt, link: "Link") -> None:
    outcome = await _run_handler(begin, link)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    link.send(isolation_protocol.AttemptEnded.by(outcome))
    # the worker kills us now: while we live, it can find our descendants and kill them too
    threading.Event().wait()


async def _run_handler(begin: isolation_protocol.BeginAttempt, link: "Link") -> Outcome:
    ctx = ChildContext(begin.facts, link)
    if begin.secrets or begin.patterns:
        ctx.mask = Mask(begin.secrets, tuple(map(re.compile, begin.patterns)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ctx.cancel)
    try:
        handler = _import_handler(ctx.definition_key, begin)
    except BaseException as error:  # noqa: BLE001 - the import runs the user's code
        return failure_outcome(error, ctx.mask)
    with tracing.continue_trace(begin.trace):
        return await run_attempt(
            handler,
            ctx,
            timeout=None,
            threads=Threads(1),
            grace=_FOREVER,
            max_output_bytes=begin.max_output_bytes,
        )


def _import_handler(key: str, begin: isolation_protocol.BeginAttempt) -> Handler:
    """The function with this name, also if one of our decorators wrapped it, within its application's middleware."""
    found: Any = importlib.import_module(begin.module)
    for name in begin.qualname.split("."):
        found = getattr(found, name)
    if inspect.isroutine(found):
        return Handler.of(key, found)
    return Handler.of(key, getattr(found, "function", found)).within(getattr(found, "around", ()))


class Link:
    """The child's end of the socket: any thread may write, one thread reads."""

    def __init__(self, link: socket.socket) -> None:
        link.set_inheritable(False)
        self._link = link
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[EnqueueResult]] = {}

    def begin(self) -> isolation_protocol.BeginAttempt:
        """The worker's request; from now on the child ends when the worker dies."""
        first = isolation_protocol.next_to_child(self._link)
        if not isinstance(first, isolation_protocol.BeginAttempt):
            sys.exit("Do not start this by hand: a worker starts it for an isolated job.")
        threading.Thread(target=self._listen, name="fairlead-link", daemon=True).start()
        return first

    def send(self, message: msgspec.Struct) -> None:
        with self._lock:
            self._link.sendall(isolation_protocol.encode_frame(message))

    async def ask(self, new: NewJob) -> EnqueueResult:
        """Ask the worker to enqueue a job."""
        # checked before sending: the encoding would silently turn a NaN into null
        plain, _ = payload.encode(new.payload)
        number = next(self._numbers)
        answer = self._pending[number] = Future()
        self.send(isolation_protocol.EnqueueRequest(number, msgspec.structs.replace(new, payload=plain)))
        return await asyncio.wrap_future(answer)

    def _listen(self) -> None:
        while isinstance(
            message := isolation_protocol.next_to_child(self._link), isolation_protocol.EnqueueAnswer
        ):
            self._resolve_answer(message)
        kill_tree(os.getpid())
        os._exit(1)

    def _resolve_answer(self, message: isolation_protocol.EnqueueAnswer) -> None:
        answer = self._pending.pop(message.number)
        if message.id is not None:
            answer.set_result(EnqueueResult(message.id, message.deduplicated))
        else:
            answer.set_exception(_build_error(message.error or "", message.message))


class ChildContext(AttemptContext):
    """A context that sends progress, cost and log lines to the worker."""

    is_isolated = True

    def __init__(self, facts: isolation_protocol.ContextFields, link: Link) -> None:
        super().__init__(**msgspec.structs.asdict(facts), enqueue=link.ask, on_progress=self._send_progress)
        self._link = link

    def add_cost(self, cents: int) -> None:
        super().add_cost(cents)
        self._link.send(isolation_protocol.AddCost(cents))

    def _send_progress(self, progress: Progress) -> None:
        self._link.send(isolation_protocol.ProgressReport(progress.percent, progress.message))

    def _new_log(self) -> Log:
        return ChildLog(self._link, self.mask)


class ChildLog(Log):
    """A log that sends its lines to the worker."""

    def __init__(self, link: Link, mask: Mask | None) -> None:
        super().__init__(mask=mask)
        self._link = link

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if self._open:
            plain_fields = {name: _plain_value(value, self._mask) for name, value in fields.items()}
            self._link.send(
                isolation_protocol.LogLine(
                    level, clean_text(str(event), LONGEST_LINE, self._mask), plain_fields
                )
            )


def _plain_value(value: Any, mask: Mask | None) -> Any:
    """A field's value as JSON can carry it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() < 64:
        return int(value)
    return clean_text(str(value) if isinstance(value, str) else render_value(value), LONGEST_LINE, mask)


def _build_error(name: str, message: str) -> Exception:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.FairleadError):
        return kind(message)
    return RuntimeError(f"{name}: {message}")
