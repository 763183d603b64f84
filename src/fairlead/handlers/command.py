"""Runs a command: exactly its argv, in its own session, under the supervisor."""

import contextlib
import os
import signal
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead.errors import Fault, Refused
from fairlead.handlers.attempt import (
    AttemptContext,
    Bounds,
    HandlerAttempt,
    OutputInvalid,
    encode_output,
    failure_outcome,
)
from fairlead.handlers.commands import Command
from fairlead.handlers.context import Fatal, ProcessResult
from fairlead.handlers.log import clean_text
from fairlead.handlers.output import PREFIX, CommandOutput, Directives, LatestLine, Pipe
from fairlead.handlers.process_tree import describe_exit, signal_group
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.supervisor import Message
from fairlead.model.command.argv import AttemptFacts, RootedPath, command_refusal
from fairlead.model.command.spec import fill_command_argv
from fairlead.model.definition import check_payload
from fairlead.model.outcome import LONGEST_MESSAGE, Failed, Outcome, Snoozed, Succeeded

logger = structlog.get_logger(__name__)

RESULT = f"{PREFIX}result "
PROGRESS = f"{PREFIX}progress "
PROGRESS_FD = 3
# The exceptions of decoding JSON into an expected type.
_NOT_JSON = (ValueError, TypeError, RecursionError)
LAST_SECONDS = 1.5

# Called with each chunk of the command's output: the stream and the text.
OnChunk = Callable[[str, str], object]


class CommandServices(NamedTuple):
    """The supervisor client that runs a process's commands, and the callback for their output."""

    supervised: Supervised
    told: OnChunk


class CommandAttempt(HandlerAttempt[Command]):
    """One run of a command: to stop it, the supervisor sends SIGTERM to it and its descendants and, after the grace, SIGKILL."""

    def __init__(
        self,
        command: Command,
        ctx: AttemptContext,
        bounds: Bounds,
        then: Callable[[Outcome], None],
        *,
        env: dict[str, str],
        way: CommandServices,
    ) -> None:
        super().__init__(command, ctx, bounds, then)
        self._env = env
        self._services = way
        self._run = 0
        self._pid: int | None = None
        self._ended: Message = {}
        self._trouble: str | None = None
        self._lost = False
        self._result: Any = None
        self._flaw: str | None = None
        self._result_file: Path | None = None
        self._pipes: list[Pipe] = []
        self._done = False

    def launch(self) -> None:
        try:
            check_payload(self.handler.schema, self.handler.key, self.ctx.payload)
            argv, paths = fill_command_argv(self.handler.spec, self._facts())
            check_links(self.handler.key, paths)
        except Refused as refusal:
            # a retry has the same payload
            self.end(Failed(type(refusal).__name__, refusal.message, retryable=False))
            return
        try:
            self._start_process(argv)
        except BaseException:
            self._clear()
            self._done = True
            raise
        self.running()

    def _start_process(self, argv: list[str]) -> None:
        command, spec = self.handler, self.handler.spec
        self._stdout, self._stderr = self._output("stdout"), self._output("stderr")
        self._result_file = self._services.supervised.new_file(command.uid, command.gid)
        for feed in (self._stdout.feed, self._stderr.feed, LatestLine(self._receive_progress).feed):
            self._pipes.append(Pipe(feed))
        request = {
            "argv": argv,
            "env": {**self._env, **self._build_environment()},
            "cwd": spec.cwd or "/",
            "umask": spec.umask,
            "limits": command.limits,
            "uid": command.uid,
            "gid": command.gid,
        }
        self._run = self._services.supervised.run(self, request, [pipe.give() for pipe in self._pipes])

    def interrupt(self) -> None:
        self._services.supervised.stop(self._run, 0.0 if self.forsaken else self._grace)

    def abandon(self) -> None:
        """Kill the command; end the attempt even if the kill is not confirmed in time."""
        self._services.supervised.stop(self._run, 0.0)
        self.loop.call_later(LAST_SECONDS, self.handle_gone)

    # Messages of the supervisor

    def heard(self, message: Message) -> None:
        """Handle a message: the command started, ended, or could not be started."""
        self._pid = message.get("pid", self._pid)
        self._trouble = message.get("trouble", self._trouble)
        if "exit" in message:
            self._ended = message
        self._lost = self._lost or "lost" in message
        if "unkept" in message and self._pid is not None and not self._ended:
            # its keeper kills the group too, unless the keeper was killed
            signal_group(self._pid, signal.SIGKILL)
        if "left" in message:
            logger.error("processes_left", job_id=str(self.ctx.job_id), pids=message["left"])

    def handle_gone(self) -> None:
        """End the attempt: no process of the command is left, or its end was awaited for too long."""
        if self._done:
            return
        self._done = True
        try:
            outcome = self._conclude()
        except Exception as error:  # noqa: BLE001 - the command has ended, whatever is wrong with its output
            outcome = failure_outcome(error, self.ctx.mask)
        self.end(outcome)

    def _conclude(self) -> Outcome:
        try:
            for pipe in self._pipes:
                pipe.finish()
            stdout, stderr = self._stdout.end(), self._stderr.end()
            self.ctx.ran = ProcessResult(
                pid=self._pid,
                exit_code=self._ended.get("exit"),
                signal=self._ended.get("signal"),
                stdout=stdout,
                stderr=stderr,
            )
            return self._outcome(stderr)
        finally:
            self._clear()

    def _clear(self) -> None:
        """Close the pipes and remove the result file."""
        for pipe in self._pipes:
            pipe.close()
        if self._result_file is not None:
            with contextlib.suppress(
                OSError
            ):  # the command may have replaced it; the folder is removed later
                self._result_file.unlink()

    def _outcome(self, stderr: str) -> Outcome:
        code, spec = self._ended.get("exit"), self.handler.spec
        if self._trouble is not None:
            # a lost command may have started although its pid is unknown
            kind = "CommandLost" if self._lost or self._pid is not None else "CommandNotStarted"
            return Failed(kind, clean_text(self._trouble, LONGEST_MESSAGE, self.ctx.mask))
        if code in spec.success_exit_codes:
            return self._success_outcome()
        if code is not None and code in spec.snooze_exit_codes:
            return Snoozed(spec.snooze_exit_codes[code])
        last = stderr.strip().rpartition("\n")[2]
        message = describe_exit(code, self._ended.get("signal")) + (f": {last}" if last else "")
        return Failed(
            "CommandFailed",
            clean_text(message, LONGEST_MESSAGE),
            retryable=code is None or code not in spec.fatal_exit_codes,
        )

    def _success_outcome(self) -> Outcome:
        try:
            result = self._read_result_file()
            result = self._result if result is None else result
            if self._flaw is not None:
                raise OutputInvalid(self._flaw)
            return Succeeded(
                None if result is None else encode_output(result, self.bounds.max_output_bytes)[0]
            )
        except Fatal as error:
            return Failed(
                type(error).__name__, clean_text(str(error), LONGEST_MESSAGE, self.ctx.mask), retryable=False
            )

    # The command's output

    def _output(self, stream: str) -> CommandOutput:
        spec = self.handler.spec
        return CommandOutput(
            tail_bytes=spec.tail_bytes,
            cap_bytes=spec.max_log_bytes,
            told=lambda text: self._services.told(stream, text),
            mask=self.ctx.mask,
            takes=self._directives() if stream == "stdout" else None,
        )

    def _directives(self) -> Directives | None:
        """The directives in the output; none if the payload contains one, since the command may just echo it."""
        given = msgspec.json.encode([self.ctx.payload, self.ctx.correlation_id])
        if PREFIX.encode() in given:
            return None
        return {RESULT: self._receive_result, PROGRESS: self._receive_progress}

    def _receive_result(self, text: str) -> None:
        try:
            self._result, self._flaw = msgspec.json.decode(text, type=dict[str, Any]), None
        except _NOT_JSON as error:
            self._flaw = f"A line that begins with {RESULT!r} must continue with a JSON object: {error}."

    def _receive_progress(self, text: str) -> None:
        """`40`, `40 and some words`, or `{"percent": 40, "message": "…"}`; anything else is ignored."""
        with contextlib.suppress(*_NOT_JSON):
            if text.lstrip().startswith("{"):
                said = msgspec.json.decode(text, type=dict[str, Any])
                self.ctx.progress(said.get("percent"), str(said.get("message", "")))  # type: ignore[arg-type]
            else:
                percent, _, message = text.strip().partition(" ")
                self.ctx.progress(float(percent.removesuffix("%")), message)

    # The command's input

    def _facts(self) -> AttemptFacts:
        ctx = self.ctx
        return AttemptFacts(
            payload=ctx.payload,
            tenant_id=ctx.tenant_id,
            tenant_slug=ctx.tenant,
            job_id=ctx.job_id,
            attempt=ctx.attempt_no,
            correlation_id=ctx.correlation_id,
        )

    def _build_environment(self) -> dict[str, str]:
        ctx = self.ctx
        about = {
            "FAIRLEAD_JOB_ID": str(ctx.job_id),
            "FAIRLEAD_TENANT_ID": str(ctx.tenant_id),
            "FAIRLEAD_TENANT": ctx.tenant,
            "FAIRLEAD_DEFINITION": ctx.definition_key,
            "FAIRLEAD_ATTEMPT": str(ctx.attempt_no),
            "FAIRLEAD_RESULT_FILE": str(self._result_file),
            "FAIRLEAD_PROGRESS_FD": str(PROGRESS_FD),
        }
        if ctx.correlation_id is not None:
            about["FAIRLEAD_CORRELATION_ID"] = ctx.correlation_id
        if self.bounds.timeout is not None:
            deadline = datetime.now(UTC) + timedelta(seconds=self.bounds.timeout)
            about["FAIRLEAD_DEADLINE"] = deadline.isoformat(timespec="milliseconds")
        return about

    def _read_result_file(self) -> Any:
        """The JSON in the result file; the command controls the file, so it is not trusted."""
        most = self.bounds.max_output_bytes
        text = _read_limited(self._result_file, most) if self._result_file else b""
        if len(text) > most:
            raise OutputInvalid(f"The result file has more than {most} bytes.")
        if not text.strip():
            return None
        try:
            return msgspec.json.decode(text)
        except _NOT_JSON as error:
            raise OutputInvalid(f"The result file is not JSON: {error}.") from None


def _read_limited(path: Path, most: int) -> bytes:
    """The beginning of a file, at most `most` + 1 bytes."""
    try:
        # does not follow a link, and does not block on a pipe
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise OutputInvalid(f"The result file cannot be read: {error.strerror}.") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OutputInvalid("The result file is not a regular file.")
        chunks = []
        while most >= 0 and (chunk := os.read(fd, most + 1)):
            chunks.append(chunk)
            most -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def check_links(key: str, paths: list[RootedPath]) -> None:
    """Refuse paths that leave their root by symbolic links that exist now."""
    faults = [
        Fault(one.name, "must not leave its root by a link")
        for one in paths
        if not Path(os.path.realpath(one.path)).is_relative_to(os.path.realpath(one.root))
    ]
    if faults:
        raise command_refusal(key, faults)
