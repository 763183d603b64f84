"""The methods of Fairlead for events, triggers and schedules in code, and registered functions."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import backfill as backfills
from fairlead.actions import definitions, events, schedules, tenants, triggers
from fairlead.actions.schedules import WORDS, DeclaredTrigger
from fairlead.db.tx import Tx
from fairlead.errors import (
    AlreadyRegistered,
    Fault,
    RegistrationUnknown,
    ScheduleInvalid,
    SignatureInvalid,
    TriggerUnknown,
)
from fairlead.handlers.context import current_job
from fairlead.handlers.registry import Handler
from fairlead.library.client import Client, JobFunction, get_tenant
from fairlead.library.leases import KeyedFunction
from fairlead.model.access import GLOBAL_TENANT, Principal
from fairlead.model.definition import KEY
from fairlead.model.event import NewEvent
from fairlead.model.payload import encode
from fairlead.model.schedule.backfill import Backfill, BackfillPreview
from fairlead.model.trigger import CatchUp, Overlap, Trigger, TriggerType
from fairlead.runtime.periodic import Periodic
from fairlead.settings import Settings

log = structlog.get_logger(__name__)

PERIODIC = "periodic"
# The owner of registered schedules: no package or script has this name, so none removes them as its own.
REGISTRATION_OWNER = "fairlead.register"
Seconds = int | float | timedelta
P = ParamSpec("P")
R = TypeVar("R")


class Triggers(Client):
    """`emit` stores events, and `on` runs jobs for them; `every` and `cron` are schedules in code, and `register` adds
    schedules at run time.
    """

    periodic: Periodic

    def __init__(self, settings: Settings, actor: str | None, name: str | None) -> None:
        super().__init__(settings, actor, name)
        self._kept_triggers: list[DeclaredTrigger] = []

    # Events

    async def emit(
        self,
        name: str,
        *,
        tenant: str | UUID,
        data: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: UUID | None = None,
        tx: Any = None,
    ) -> UUID:
        """Store an event, which fires its triggers; returns its id. With `tx=` it joins that transaction.

        In a handler the event is caused by the handler's job; elsewhere `caused_by` may name a job.
        """
        new = NewEvent(
            name=name,
            tenant=str(tenant),
            data={} if data is None else data,
            correlation_id=correlation_id,
            occurred_at=occurred_at,
            caused_by=caused_by or current_job.get(),
        )
        if tx is not None:
            fl = await self._find_joined([new.tenant])
            exchange = events.emit_joined(fl.principal, fl.catalog, new)
            return await self._join_in(fl, [new.tenant], exchange, "emit_joined", tx)
        return await self.cells.in_cell(new.tenant, lambda fl: fl._act_once(events.emit, new))  # noqa: SLF001

    def on(
        self,
        event: str,
        /,
        *,
        tenant: str | UUID,
        payload: Mapping[str, Any] | str | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - as a trigger has it
        window: int | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job for each event of this name of a tenant that passes the filter. `options` are those of `job`.

        `payload` is a template: `{"order": "{{event.id}}"}`. Within `window` seconds, the same payload makes one job.
        """
        says = {"event_name": event, "filter": _as_stored_json(filter), "dedupe_window_seconds": window}
        return self._declare(says, tenant, payload, name, options, suffix=f" on {event}")

    # Schedules in code

    def every(
        self,
        interval: Seconds,
        /,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter: Seconds | None = None,
        tenant: str | UUID = GLOBAL_TENANT,
        name: str | None = None,
        payload: Mapping[str, Any] | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at an interval, from `start_at` or from when it is first stored. `options` are those of `job`.

        No run comes at or after `end_at`, and each comes later by a random part of `jitter` seconds.
        """
        seconds = _whole_seconds(interval, least=1)
        says = {"every_seconds": seconds, "start_at": start_at, "catch_up": catch_up, "overlap": overlap}
        says |= _read_limits(end_at, jitter)
        return self._declare(says, tenant, payload, name, options)

    def cron(
        self,
        expr: str,
        /,
        *,
        timezone: str | None = None,
        end_at: datetime | None = None,
        jitter: Seconds | None = None,
        tenant: str | UUID = GLOBAL_TENANT,
        name: str | None = None,
        payload: Mapping[str, Any] | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at the times of a cron expression, in this zone or in the tenant's. `options` are those of `job`.

        No run comes at or after `end_at`, and each comes later by a random part of `jitter` seconds.
        """
        says = {"cron_expr": expr, "timezone": timezone, "catch_up": catch_up, "overlap": overlap}
        says |= _read_limits(end_at, jitter)
        return self._declare(says, tenant, payload, name, options)

    def _declare(
        self,
        says: Mapping[str, Any],
        tenant: str | UUID,
        payload: Mapping[str, Any] | str | None,
        name: str | None,
        options: Mapping[str, Any],
        *,
        suffix: str = "",
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """A decorator that keeps a trigger with these fields; its default name is the function's key and the suffix."""
        says = {**says, "payload_template": _as_stored_json(payload)}

        def plan(made: JobFunction[P, R]) -> DeclaredTrigger:
            planned = DeclaredTrigger(
                owner=self._owner(made),
                name=name or f"{made.key}{suffix}",
                tenant=str(tenant),
                says={**says, "definition_key": made.key},
            )
            schedules.check_declared(planned, made.says["arg_schema"])
            if any((one.tenant, one.name) == (planned.tenant, planned.name) for one in self._kept_triggers):
                word = WORDS[planned.trigger_type]
                raise SignatureInvalid(
                    f"There are two {word}s {planned.name!r} of the tenant {planned.tenant!r}; give one of them a name=."
                )
            return planned

        def keep(function: Callable[P, R]) -> JobFunction[P, R]:
            made = self._as_job_function(function, options, plan)
            self._kept_triggers.append(plan(made))
            return made

        return keep

    def _as_job_function(
        self,
        function: Callable[P, R],
        options: Mapping[str, Any],
        check: Callable[[JobFunction[P, R]], object],
    ) -> JobFunction[P, R]:
        """The function as a job; a new one becomes a job only if `check` raises no error."""
        if not isinstance(function, JobFunction):
            return self.as_job(function, options, check)
        if options:
            raise SignatureInvalid(
                f"{function.key!r} is already a job: pass {', '.join(sorted(options))} to the decorator that made it one."
            )
        if function.key not in self.functions:
            raise SignatureInvalid(f"{function.key!r} is a job of another Fairlead: schedule it there.")
        return function

    def _owner(self, function: JobFunction[Any, Any]) -> str:
        """The code base that owns a schedule: other code bases do not change it."""
        if self.name is not None:
            return self.name
        package = str(function.function.__module__).partition(".")[0]
        return Path(sys.argv[0]).stem or package if package == "__main__" else package

    async def sync_schedules(self) -> list[Trigger]:
        """Store the triggers of `every`, `cron` and `on`, and remove those that the code no longer has.

        Returns the stored triggers.
        """
        owners = {self._owner(function) for function in self.functions.values()}
        if self.name is not None:
            owners.add(self.name)  # also without any function left
        if not owners:
            return []
        kept, removed = list[Trigger](), list[Trigger]()
        for fl, declared in await self._group_by_cell(self._kept_triggers):
            held, gone = await fl._act(schedules.keep_triggers, sorted(owners), declared)  # noqa: SLF001
            kept += held
            removed += gone
        for one in removed:
            what = WORDS[one.trigger_type]
            removal = f"{what}_removed"
            log.warning(removal, **{what: one.label}, why="the code no longer has it")
        return kept

    async def sync_triggers(self) -> None:
        """Store the triggers of `on` for existing tenants; schedules stay unchanged, and nothing is removed."""

        async def keep(tx: Tx, principal: Principal, wanted: Sequence[DeclaredTrigger]) -> None:
            for one in wanted:
                if await tenants.find(tx, principal, one.tenant) is not None:
                    await schedules.keep_trigger(tx, principal, one)

        if events := [one for one in self._kept_triggers if one.trigger_type is TriggerType.EVENT]:
            for fl, wanted in await self._group_by_cell(events):
                await fl._act(keep, wanted)  # noqa: SLF001

    async def _group_by_cell(
        self, kept: Sequence[DeclaredTrigger]
    ) -> list[tuple[Self, list[DeclaredTrigger]]]:
        """The client of each cell, with the triggers whose tenants live there."""
        if not self.cells:
            return [(self, list(kept))]
        members = [await self.cells.member(name) for name in self.cells.by_name]
        homes = {one.tenant: await self.cells.find(one.tenant) for one in kept}
        return [(fl, [one for one in kept if homes[one.tenant] is fl]) for fl in members]

    async def backfill(
        self,
        schedule: UUID | str | KeyedFunction,
        since: datetime,
        until: datetime | None = None,
        *,
        tenant: str | UUID = GLOBAL_TENANT,
        priority: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Backfill:
        """Enqueue a job for each instant from `since` to before `until` (default: now) that has none; all or none.

        Name the schedule of the tenant by its id, its name or its function. The same range again enqueues nothing.
        """
        fl = await self.cells.find(str(tenant)) if self.cells else self

        async def act(tx: Tx, principal: Principal) -> Backfill:
            trigger_id = await _find_schedule(tx, principal, schedule, str(tenant))
            return await backfills.backfill(
                tx,
                principal,
                fl.catalog,
                trigger_id,
                since=since,
                until=until,
                priority=priority,
                progress=progress,
            )

        return await fl._act_unhurried(act)  # noqa: SLF001 - a client of the same kind

    async def preview_backfill(
        self,
        schedule: UUID | str | KeyedFunction,
        since: datetime,
        until: datetime | None = None,
        *,
        tenant: str | UUID = GLOBAL_TENANT,
        count: int = 100,
    ) -> BackfillPreview:
        """Count the instants of a range, list the first `count`, and see which have jobs and how far these are."""
        fl = await self.cells.find(str(tenant)) if self.cells else self

        async def act(tx: Tx, principal: Principal) -> BackfillPreview:
            trigger_id = await _find_schedule(tx, principal, schedule, str(tenant))
            return await backfills.preview_backfill(
                tx, principal, trigger_id, since=since, until=until, count=count
            )

        return await fl._act(act)  # noqa: SLF001 - a client of the same kind

    # Schedules at run time

    async def register(
        self,
        tenant: str | UUID,
        job_id: str,
        start_at: datetime,
        repeat_every: Seconds,
        fn: Callable[..., Any],
        *,
        end_at: datetime | None = None,
        jitter: Seconds | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - of each run, as `job` has it
    ) -> Trigger:
        """Run a function for a tenant at `start_at` and then every `repeat_every` (0: once); runs never overlap.

        The schedule is stored in the database; an existing one with this id is updated and used.
        """
        key = _registration_key(job_id)
        _check_callable(key, fn)
        says = {
            "label": job_id,
            "definition_key": key,
            "every_seconds": _whole_seconds(repeat_every, least=0, name="repeat_every"),
            "start_at": start_at,
            "catch_up": CatchUp.ONE,
            "overlap": Overlap.SKIP,
            **_read_limits(end_at, jitter),
        }
        fl = await self.cells.find(str(tenant)) if self.cells else self
        if fl is not self:
            return await fl.register(
                tenant, job_id, start_at, repeat_every, fn, end_at=end_at, jitter=jitter, timeout=timeout
            )
        whose = await self._act(get_tenant, str(tenant))
        kept = DeclaredTrigger(owner=REGISTRATION_OWNER, name=job_id, tenant=str(whose.id), says=says)
        if not self.periodic.reserve(whose.id, key):
            raise AlreadyRegistered(
                f"{job_id!r} of the tenant {whose.slug!r} is registered here already; unregister it first."
            )
        try:
            trigger = await self.database.transact(
                lambda tx: self._attach_schedule(tx, kept, whose.id, timeout)
            )
            self.periodic.add(
                self.database, tenant_id=whose.id, definition_id=trigger.definition_id, key=key, fn=fn
            )
        finally:
            self.periodic.release(whose.id, key)
        return trigger

    async def _attach_schedule(
        self,
        tx: Tx,
        kept: DeclaredTrigger,
        tenant_id: UUID,
        timeout: int | None,  # noqa: ASYNC109 - see register
    ) -> Trigger:
        says = {"kind": "function", "max_attempts": 1, "description": f"registered as {kept.name}"}
        if timeout is not None:
            says["timeout_seconds"] = timeout
        key = kept.says["definition_key"]
        await definitions.register(tx, self.principal, key, says, tenant_id=tenant_id)
        return await schedules.keep_trigger(tx, self.principal, kept, at_once=True, within_quota=True)

    async def unregister(self, tenant: str | UUID, job_id: str) -> None:
        """Remove a schedule that was registered here, also from the database; its queued jobs are canceled."""
        fl = await self.cells.find(str(tenant)) if self.cells else self
        if fl is not self:
            await fl.unregister(tenant, job_id)
            return
        key = _registration_key(job_id)
        whose = await self._act(get_tenant, str(tenant))
        if (whose.id, key) not in self.periodic:
            raise RegistrationUnknown(
                f"{job_id!r} of the tenant {whose.slug!r} is not registered here: register it first."
            )

        async def drop(tx: Tx) -> None:
            await schedules.drop_trigger(
                tx, self.principal, owner=REGISTRATION_OWNER, name=job_id, tenant_id=whose.id
            )
            await definitions.unregister(tx, self.principal, key)

        await self.database.transact(drop)
        self.periodic.drop(tenant_id=whose.id, key=key)

    async def cancel_periodic(self) -> None:
        """Stop running registered functions in this process; their schedules stay, and other instances continue."""
        await self.periodic.cancel()


async def _find_schedule(
    tx: Tx, principal: Principal, schedule: UUID | str | KeyedFunction, tenant: str
) -> UUID:
    """The id of a tenant's schedule, given its id, its name or its function."""
    if isinstance(schedule, UUID):
        return schedule
    found = [
        one.id
        for one in await triggers.list_all(tx, principal, tenant=tenant, trigger_type=TriggerType.SCHEDULE)
        if (
            schedule in (one.name, one.label)
            if isinstance(schedule, str)
            else schedule.key == one.definition_key
        )
    ]
    if len(found) != 1:
        named = repr(schedule) if isinstance(schedule, str) else f"of {schedule.key!r}"
        number = f"are {len(found)} schedules" if found else "is no schedule"
        advice = "Name it by its id." if found else "Store schedules in code with fl.sync_schedules()."
        raise TriggerUnknown(
            f"There {number} {named} of the tenant {tenant!r}. {advice}",
            [Fault("schedule", "not exactly one")],
        )
    return found[0]


def _registration_key(job_id: str) -> str:
    key = f"{PERIODIC}.{job_id}"
    if not KEY.fullmatch(key):
        raise ScheduleInvalid(
            f"{job_id[:80]!r} cannot be a registration's id: use letters, digits, '.', '_' and '-', at most 119.",
            [Fault("job_id", "not valid")],
        )
    return key


def _check_callable(key: str, fn: Callable[..., Any]) -> None:
    fields = msgspec.structs.fields(Handler.of(key, fn).arguments)
    needed = [field.name for field in fields if field.required]
    if needed:
        raise SignatureInvalid(
            f"A registered function gets at most ctx, and this one needs {', '.join(needed)}."
        )


def _as_stored_json(said: Mapping[str, Any] | str | None) -> Any:
    """A payload template or a filter as the database returns it: tuples are lists, None is `{}`."""
    return msgspec.json.decode(encode({} if said is None else said)[1])


def _read_limits(end_at: datetime | None, jitter: Seconds | None) -> dict[str, Any]:
    seconds = None if jitter is None else _whole_seconds(jitter, least=0, name="jitter_seconds")
    return {"end_at": end_at, "jitter_seconds": seconds}


def _whole_seconds(interval: Any, *, least: int, name: str = "every_seconds") -> int:
    seconds = interval.total_seconds() if isinstance(interval, timedelta) else interval
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    # for NaN and infinity the remainder is NaN
    if not is_number or seconds % 1 != 0 or seconds < least:
        raise ScheduleInvalid(
            f"{'A jitter' if name == 'jitter_seconds' else 'An interval'} is a whole number of seconds, {least} or more; "
            f"{str(interval)[:80]!r} is not.",
            [Fault(name, f"must be a whole number of seconds, {least} or more")],
        )
    return int(seconds)
