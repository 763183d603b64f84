"""Durable functions: steps whose results survive the attempt, and waits that hold no worker.

The function runs again from the top in every attempt, and recorded steps return their results at once. A wait ends the
attempt: `Suspend` is raised through the function, and the job goes to sleep until what it waits for has come.
"""

import asyncio
import inspect
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID, uuid5

import msgspec

from fairlead.errors import JobIdTaken
from fairlead.handlers.attempt import AttemptContext, OutputInvalid, encode_output
from fairlead.handlers.context import ChildFailed, Fatal, Nondeterministic, StepFailed, Stopped, Suspend
from fairlead.handlers.durable_branches import (
    IN_STEP,
    Branch,
    await_end,
    current_branch,
    inside_step,
    join_ends,
)
from fairlead.handlers.log import clean_text
from fairlead.handlers.step_call import (
    DEFAULTS,
    ONCE,
    Retry,
    StepOptions,
    call_step,
    check_name,
    convert_result,
    count_seconds,
)
from fairlead.model.approval import ApprovalAnswer, NewApproval
from fairlead.model.approval_rules import check_approval
from fairlead.model.durable import (
    MAX_NAME,
    MAX_RESULT_BYTES,
    MOST_SECONDS,
    RESTART_NAME,
    RESTARTS,
    NewWait,
    Place,
    ReceivedEvent,
    ReceivedSignal,
    StepEnd,
    StepError,
    StepKind,
    StepRecord,
    StepStatus,
)
from fairlead.model.event_match import build_match_key
from fairlead.model.job import NewJob
from fairlead.model.outcome import LONGEST_MESSAGE
from fairlead.model.secrets.redact import find_secrets, secret_paths
from fairlead.model.template.filter import parse_filter

# A pause before the next try of a step: up to this the function stays on its worker, longer ones are slept without one.
LONGEST_INLINE_SECONDS = 2.0


class StepStore(Protocol):
    """Where the steps of one attempt are recorded. Each method raises Stopped if the lease is lost."""

    async def load(self) -> Sequence[StepRecord]:
        """All steps of earlier attempts."""

    async def require_key(self) -> None:
        """Stop the attempt, without a charge, if a secret result could not be stored."""

    async def record(self, step: StepEnd) -> None:
        """Record a step."""

    async def begin_wait(self, wait: NewWait, *, lookback: float | None = None) -> StepRecord:
        """Record a wait; complete if what it waits for has come before."""

    async def give_up(self, place: Place) -> StepRecord:
        """End a wait whose time is over; complete if what it waits for came at the last moment."""

    async def give_up_event(self, place: Place, name: str, *, lookback: float | None) -> StepRecord:
        """The same for an event, which may have been stored in time without having been dispatched."""


class Asked(msgspec.Struct, frozen=True):
    """One call of the function: its place, and what it asks for."""

    branch: Any
    place: Place
    kind: StepKind
    name: str


class DurableRun:
    """One attempt of a durable function: answers from the records, and records what is new."""

    def __init__(
        self, ctx: AttemptContext, store: StepStore, job_id: UUID, attempt_no: int, token: UUID
    ) -> None:
        self._ctx = ctx
        self._store = store
        self._job_id = job_id
        self._attempt_no = attempt_no
        self._token = token
        self._root = Branch()
        self._branches = {"": self._root}
        self._records: dict[Place, StepRecord] = {}
        self._loaded_at = time.monotonic()
        # the number of records of each branch, to know whether the code has passed them all
        self._lengths: dict[str, int] = {}
        self._versions: dict[str, bool] = {}
        # failures that the function got and has not gone on after
        self._unhandled: dict[Place, StepEnd] = {}
        self._random: dict[str, random.Random] = {}
        # how often the job was retried from a step
        self._restarts = 0
        # a replay has the random numbers of the job that it repeats
        self._seed = str(job_id)
        # calls that were made and not awaited yet
        self._unawaited: dict[Place, Asked] = {}

    async def load(self) -> None:
        """Read what earlier attempts have recorded."""
        found = await self._store.load()
        self._loaded_at = time.monotonic()
        for record in found:
            self._lengths[record.branch] = max(self._lengths.get(record.branch, 0), record.position + 1)
        self._records = {record.place: record for record in found}
        if (restarts := self._records.pop(RESTARTS, None)) is not None:
            self._restarts = int(restarts.result)
            self._seed = restarts.name if restarts.name != RESTART_NAME else self._seed

    @asynccontextmanager
    async def around(self, _: object) -> AsyncIterator[None]:
        """Around the function: reads what earlier attempts have recorded, and checks at the end that it has asked for all of it."""
        # a job without a parent is no replay: its first attempt has nothing to read
        if self._attempt_no > 1 or self._ctx.parent_id is not None:
            await self.load()
        yield
        self._check_end()

    # Options

    def build_options(
        self, retry: Retry | None, timeout: float | timedelta | None, *, secret: bool
    ) -> StepOptions:
        """The options of a step."""
        if retry is None and timeout is None and not secret:
            return DEFAULTS
        limit = None if timeout is None else count_seconds(timeout)
        return StepOptions(retry or ONCE, limit, secret)

    def count_seconds(self, value: float | timedelta | None, parts: dict[str, float] | None = None) -> float:
        """Seconds from a number, a timedelta, or parts such as `days=3`."""
        return count_seconds(value, parts)

    # Steps

    def step(self, name: str, function: Any, args: Any, kwargs: Any, options: StepOptions) -> Any:
        """Run a step, or return its recorded result."""
        if not callable(function):
            if inspect.iscoroutine(function):
                function.close()
            raise TypeError(
                f"Step {name!r} takes a function and its arguments, not the result of a call: ctx.step({name!r}, function, …)."
            )
        asked = self._ask(StepKind.STEP, name)
        if self._ctx.is_in_thread:
            return self._step_in_thread(asked, function, args, kwargs, options)
        return self._step(asked, function, args, kwargs, options)

    async def _step(
        self, asked: Asked, function: Callable[..., Any], args: Any, kwargs: Any, options: StepOptions
    ) -> Any:
        record = self._find(asked)
        if record is not None and record.status is StepStatus.SUCCEEDED:
            self._hide(record.result, options)
            return convert_result(record.result, function, asked.name)
        if record is not None and record.is_open:
            await self._fail_again(asked, record)
        tries = self._count_tries(asked, record)
        await self._go_on(asked.branch)
        if options.secret:
            await self._store.require_key()
        while True:
            tries += 1
            began = time.monotonic()
            try:
                result = self._encode_result(asked, await call_step(function, args, kwargs, options.timeout))
            except Exception as error:  # noqa: BLE001 - the step's failure is recorded, and raised as StepFailed
                pause = await self._fail(asked, error, began, tries, options)
            else:
                await self._succeed(asked, result, began, tries, options)
                return convert_result(result, function, asked.name)
            await asyncio.sleep(pause)

    def _step_in_thread(
        self, asked: Asked, function: Callable[..., Any], args: Any, kwargs: Any, options: StepOptions
    ) -> Any:
        """The same in a thread: a plain function runs here, a coroutine on the loop."""
        if inspect.iscoroutinefunction(function) or options.timeout is not None:
            return self._ctx.run_on_loop(self._step(asked, function, args, kwargs, options))
        record = self._find(asked)
        if record is not None and record.status is StepStatus.SUCCEEDED:
            self._hide(record.result, options)
            return convert_result(record.result, function, asked.name)
        if record is not None and record.is_open:
            self._ctx.run_on_loop(self._fail_again(asked, record))
        tries = self._count_tries(asked, record)
        self._ctx.run_on_loop(self._go_on(asked.branch))
        if options.secret:
            self._ctx.run_on_loop(self._store.require_key())
        while True:
            tries += 1
            began = time.monotonic()
            try:
                with inside_step():
                    result = self._encode_result(asked, function(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - the step's failure is recorded, and raised as StepFailed
                pause = self._ctx.run_on_loop(self._fail(asked, error, began, tries, options))
            else:
                self._ctx.run_on_loop(self._succeed(asked, result, began, tries, options))
                return convert_result(result, function, asked.name)
            self._ctx.run_on_loop(asyncio.sleep(pause))

    def _count_tries(self, asked: Asked, record: StepRecord | None) -> int:
        """The tries of earlier attempts that count. A step whose job was retried has all its tries again."""
        if record is None or record.status is not StepStatus.WAITING:
            return 0
        if (left := self._seconds_left(record)) > 0:
            raise Suspend(left, [asked.place])
        return record.tries

    def _encode_result(self, asked: Asked, result: Any) -> Any:
        """The result as every replay gets it, from its stored text; OutputInvalid if it cannot be stored."""
        if result is None:
            return None
        try:
            plain, text = encode_output(result, MAX_RESULT_BYTES)
        except OutputInvalid as error:
            raise OutputInvalid(f"Step {asked.name!r}: {error}") from None
        if self._ctx.resolved is not None and self._ctx.resolved.value(plain) != plain:
            raise OutputInvalid(
                f"Step {asked.name!r}: its result has a secret that the payload refers to, and results are stored. "
                "Return the result without it."
            )
        return msgspec.json.decode(text)

    async def _succeed(
        self, asked: Asked, result: Any, began: float, tries: int, options: StepOptions
    ) -> None:
        """Record the result."""
        took = time.monotonic() - began
        self._hide(result, options)
        await self._record(asked, tries=tries, took=took, secret=options.secret, result=result)

    def _hide(self, result: Any, options: StepOptions) -> None:
        """Mask the result of a secret step in all that the attempt says from now on."""
        if options.secret and self._ctx.mask is not None:
            self._ctx.mask.add([result])

    async def _fail(
        self, asked: Asked, error: Exception, began: float, tries: int, options: StepOptions
    ) -> float:
        """Record a failed try. The pause before the next one; if there is none, it raises StepFailed."""
        if isinstance(error, StepFailed):
            told = StepError(error.type, error.message, error.retryable)
        else:
            mask = self._ctx.mask
            told = StepError(
                clean_text(type(error).__name__, MAX_NAME, mask),
                clean_text(str(error), LONGEST_MESSAGE, mask),
                not isinstance(error, Fatal),
            )
        took = time.monotonic() - began
        if told.retryable and tries < options.retry.max_attempts:
            pause = options.retry.backoff.delay(tries)
            if pause <= LONGEST_INLINE_SECONDS:
                return pause
            await self._record(
                asked, status=StepStatus.WAITING, tries=tries, took=took, delay=pause, error=told
            )
            raise Suspend(pause, [asked.place])
        failed = await self._record(
            asked, status=StepStatus.RETRY, tries=tries, took=took, secret=options.secret, error=told
        )
        self._unhandled[asked.place] = msgspec.structs.replace(failed, status=StepStatus.FAILED)
        raise StepFailed(asked.name, told.type, told.message, retryable=told.retryable) from error

    # Waits

    async def sleep(self, asked: Asked, seconds: float | None, until: datetime | None) -> None:
        """Sleep, without a worker."""
        record = self._find(asked)
        if record is None:
            record = await self._begin(asked, seconds=seconds, due=until)
        if (left := self._seconds_left(record)) > 0:
            raise Suspend(left, [asked.place])

    async def wait_for_event(
        self, asked: Asked, where: dict[str, Any], seconds: float | None, lookback: float | None
    ) -> ReceivedEvent | None:
        """Wait for an event; None after the timeout."""
        wanted = parse_filter(where)
        record = self._find(asked)
        if record is None:
            record = await self._begin(
                asked,
                seconds=seconds,
                request={"where": where},
                match_key=build_match_key(wanted),
                lookback=lookback,
            )
        found = await self._result_of_wait(
            asked, record, lambda: self._store.give_up_event(asked.place, asked.name, lookback=lookback)
        )
        return None if found is None else msgspec.convert(found, ReceivedEvent)

    async def wait_for_signal(self, asked: Asked, seconds: float | None) -> ReceivedSignal | None:
        """Wait for a signal; None after the timeout."""
        record = self._find(asked) or await self._begin(asked, seconds=seconds)
        found = await self._result_of_wait(asked, record)
        return None if found is None else msgspec.convert(found, ReceivedSignal)

    async def wait_for_approval(
        self, asked: Asked, build: Callable[[], NewApproval], seconds: float | None
    ) -> ApprovalAnswer | None:
        """Wait for a person's answer; None after the timeout."""
        record = self._find(asked)
        if record is None:
            new = check_approval(build())
            record = await self._begin(
                asked,
                seconds=seconds,
                request={"approval_id": str(new.id), "title": new.title},
                approval=new,
            )
        found = await self._result_of_wait(asked, record)
        if found is None:
            return None
        answer = msgspec.convert(found, ApprovalAnswer)
        if self._ctx.mask is not None and (paths := secret_paths(build().form)):
            self._ctx.mask.add(find_secrets(answer.values, paths))
        return answer

    async def call(self, asked: Asked, build: Callable[[UUID], NewJob]) -> Any:
        """Enqueue a child and wait for its result."""
        record = self._find(asked)
        tries = 0 if record is None else record.tries
        is_new = record is None or (
            record.status is StepStatus.RETRY
            and 0 < record.attempt_no < self._attempt_no
            and not record.is_open
        )
        if record is None or is_new:
            tries += 1
            new = build(self._make_child_id(asked.place, tries))
            record = await self._begin(asked, child_id=await self._enqueue(new), tries=tries)
        if record.status is StepStatus.SUCCEEDED:
            return record.result
        if record.status is StepStatus.WAITING:
            raise Suspend(MOST_SECONDS, [asked.place])
        return await self._fail_again(asked, record)

    async def _fail_again(self, asked: Asked, record: StepRecord) -> NoReturn:
        """Raise a recorded failure, which is not final yet, in this attempt."""
        error = record.error or StepError("StepFailed", "the step failed")
        failed = await self._record(asked, status=StepStatus.RETRY, tries=record.tries, error=error)
        self._unhandled[asked.place] = msgspec.structs.replace(failed, status=StepStatus.FAILED)
        _raise_failure(asked, error)

    def _make_child_id(self, place: Place, tries: int) -> UUID:
        """The id of a child: the same for a call in every attempt, another one after a retry from a step before it."""
        name = f"{place.branch}/{place.position}/{tries}"
        return uuid5(self._job_id, f"{name}/{self._restarts}" if self._restarts else name)

    async def _enqueue(self, new: NewJob) -> UUID:
        """Enqueue a child. Its id says which call it belongs to: an earlier attempt may have enqueued it and died."""
        try:
            child = await self._ctx.enqueue_child(new)
        except JobIdTaken:
            return new.id
        return UUID(str(child.id))

    async def _result_of_wait(
        self, asked: Asked, record: StepRecord, give_up: Callable[[], Awaitable[StepRecord]] | None = None
    ) -> Any:
        """The result, or None if the wait has timed out; raises Suspend while it waits."""
        if record.status is StepStatus.WAITING:
            left = self._seconds_left(record) if record.seconds_left is not None else MOST_SECONDS
            if left > 0:
                raise Suspend(left, [asked.place])
            record = self._note(await (give_up() if give_up else self._store.give_up(asked.place)))
        return record.result if record.status is StepStatus.SUCCEEDED else None

    async def _begin(self, asked: Asked, *, lookback: float | None = None, **options: Any) -> StepRecord:
        await self._go_on(asked.branch)
        wait = NewWait(place=asked.place, kind=asked.kind, name=asked.name, **options)
        return self._note(await self._store.begin_wait(wait, lookback=lookback))

    # Values that must be the same in every attempt

    async def now(self, asked: Asked) -> datetime:
        """The time of the first attempt that asked."""
        record = self._find(asked)
        if record is None:
            moment = datetime.now(UTC)
            await self._go_on(asked.branch)
            await self._record(asked, result=moment.isoformat())
            return moment
        return datetime.fromisoformat(record.result)

    def random(self) -> float:
        """A number from 0 to 1: the same in every attempt, without a record."""
        branch = self._branch()
        if branch.path not in self._random:
            self._random[branch.path] = random.Random(f"{self._seed}/{branch.path}")  # noqa: S311
        return self._random[branch.path].random()

    async def version(self, name: str) -> bool:
        """Whether this job runs the code behind this version: False only while it replays what older code has recorded."""
        if name not in self._versions:
            check_name(name)
            branch = self._branch()
            at = self._records.get(Place(branch.path, branch.next))
            if at is not None and at.kind is StepKind.VERSION and at.name == name:
                branch.next += 1
                self._versions[name] = True
            elif branch.next < self._lengths.get(branch.path, 0):
                self._versions[name] = False
            else:
                asked = self._ask(StepKind.VERSION, name)
                self._unawaited.pop(asked.place, None)
                await self._go_on(branch)
                await self._record(asked)
                self._versions[name] = True
        return self._versions[name]

    # In parallel

    async def gather(self, awaitables: Sequence[Any], *, return_exceptions: bool) -> list[Any]:
        """Run all, each user's coroutine in a branch of its own; the results in order. It waits for all, then raises the first failure."""
        parent = self._branch()
        number, parent.gathers = parent.gathers, parent.gathers + 1
        tasks = [self._start_branch(parent, number, index, one) for index, one in enumerate(awaitables)]
        try:
            ended = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return join_ends(ended, return_exceptions=return_exceptions)

    def _start_branch(
        self, parent: Branch, number: int, index: int, awaitable: Any
    ) -> "asyncio.Task[tuple[Any, BaseException | None]]":
        context = copy_context()
        context.run(current_branch.set, self._open_branch(parent, number, index))
        return asyncio.get_running_loop().create_task(await_end(awaitable), context=context)

    def _open_branch(self, parent: Branch, number: int, index: int) -> Branch:
        path = f"{parent.path}/{parent.next}.{number}.{index}"
        branch = self._branches[path] = Branch(path)
        return branch

    def gather_in_thread(
        self, functions: Sequence[Callable[[], Any]], *, return_exceptions: bool
    ) -> list[Any]:
        """The same in a thread: functions without parameters, called one after the other; their waits are waited for together."""
        parent = self._branch()
        number, parent.gathers = parent.gathers, parent.gathers + 1
        ended = list[tuple[Any, BaseException | None]]()
        for index, function in enumerate(functions):
            if not callable(function):
                raise TypeError(
                    "In a plain function, ctx.gather takes functions without parameters: ctx.gather(lambda: ctx.step(…), …)."
                )
            mark = current_branch.set(self._open_branch(parent, number, index))
            try:
                ended.append((function(), None))
            except (Exception, Suspend) as error:  # noqa: BLE001 - raised below
                ended.append((None, error))
            finally:
                current_branch.reset(mark)
        return join_ends(ended, return_exceptions=return_exceptions)

    # Records

    def ask(self, kind: StepKind, name: str) -> Asked:
        """Take the next place of the branch, at the moment of the call: its order is the code's."""
        return self._ask(kind, name)

    def _ask(self, kind: StepKind, name: str) -> Asked:
        check_name(name)
        branch = self._branch()
        while self._is_left_out(Place(branch.path, branch.next), kind, name):
            branch.next += 1
        place = Place(branch.path, branch.next)
        branch.next += 1
        asked = self._unawaited[place] = Asked(branch, place, kind, name)
        return asked

    def _is_left_out(self, place: Place, kind: StepKind, name: str) -> bool:
        """Whether a version is recorded here for which the code no longer asks."""
        found = self._records.get(place) if self._records else None
        return (
            found is not None and found.kind is StepKind.VERSION and (kind, name) != (found.kind, found.name)
        )

    def _branch(self) -> Branch:
        branch = current_branch.get()
        if branch is IN_STEP:
            raise RuntimeError(
                "A step cannot ask for steps or waits of its own: call ctx.step, ctx.sleep and the others from the job's function."
            )
        return branch or self._root

    def _find(self, asked: Asked) -> StepRecord | None:
        """The record of a call, if there is one; raises Nondeterministic if it is of another call."""
        if self._ctx.is_over:
            raise Stopped
        self._unawaited.pop(asked.place, None)
        record = self._records.get(asked.place) if self._records else None
        if record is None:
            return None
        if record.kind is not asked.kind or record.name != asked.name:
            self._differ(asked, record)
        if record.status is StepStatus.FAILED:
            _raise_failure(asked, record.error or StepError("StepFailed", "the step failed"))
        return record

    def _differ(self, asked: Asked, record: StepRecord) -> NoReturn:
        where = f"call {asked.place.position + 1}"
        if asked.place.branch:
            where += f" of branch {asked.place.branch}"
        raise Nondeterministic(
            f"The code differs from what this job has recorded: {where} was {record.kind} {record.name!r}, and now it is "
            f"{asked.kind} {asked.name!r}. Put changed code behind `if await ctx.version(…)`, or restore the order of the calls "
            "and retry the job."
        )

    def _check_end(self) -> None:
        """Raise Nondeterministic if the function returned before it asked for all that is recorded."""
        for asked in self._unawaited.values():
            raise RuntimeError(
                f"The function returned without the result of {asked.kind} {asked.name!r}: write `await` before the call."
            )
        for place, record in self._records.items():
            branch = self._branches.get(place.branch)
            is_left = branch is None or place.position >= branch.next
            if is_left and record.kind is not StepKind.VERSION:
                raise Nondeterministic(
                    f"The code differs from what this job has recorded: the function returned before call {place.position + 1}, "
                    f"{record.kind} {record.name!r}. Put changed code behind `if await ctx.version(…)`, or restore the calls and "
                    "retry the job."
                )

    async def _go_on(self, branch: Branch) -> None:
        """The function goes on: failures that it got before are final, and are raised again in every later attempt."""
        if not self._unhandled:
            return
        for place in [one for one in self._unhandled if branch.holds(one.branch)]:
            await self._store.record(self._unhandled.pop(place))

    async def _record(self, asked: Asked, **values: Any) -> StepEnd:
        ended = StepEnd(
            self._job_id,
            self._attempt_no,
            self._token,
            asked.place.position,
            asked.name,
            asked.place.branch,
            asked.kind,
            **values,
        )
        await self._store.record(ended)
        return ended

    def _note(self, record: StepRecord) -> StepRecord:
        """The record as if it had been read with the others: the time that is left counts from then."""
        if record.seconds_left is None:
            return record
        return msgspec.structs.replace(
            record, seconds_left=record.seconds_left + time.monotonic() - self._loaded_at
        )

    def _seconds_left(self, record: StepRecord) -> float:
        return (record.seconds_left or 0.0) - (time.monotonic() - self._loaded_at)


def _raise_failure(asked: Asked, error: StepError) -> NoReturn:
    kind = ChildFailed if asked.kind is StepKind.CALL else StepFailed
    raise kind(asked.name, error.type, error.message, retryable=error.retryable)
