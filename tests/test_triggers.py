"""The face of what makes jobs by itself: events, and schedules that the code keeps."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from fairlead import Context, Fairlead, Secret, Settings, testing
from fairlead.actions import triggers
from fairlead.errors import (
    CronInvalid,
    EventInvalid,
    FilterInvalid,
    PayloadNotJson,
    ScheduleInvalid,
    SignatureInvalid,
    TemplateInvalid,
    TenantUnknown,
    TimezoneUnknown,
    TriggerInvalid,
    TriggerUnknown,
)
from fairlead.model.trigger import Trigger
from fairlead.runtime.trigger_loops import run_triggers
from tests import given
from tests.given import OTHER, TENANT
from tests.tables import each_case
from tests.waiting import eventually
from tests.working import working

FAR = datetime(2999, 1, 1, tzinfo=UTC)
Decorate = Callable[[Fairlead], None]


@asynccontextmanager
async def application(
    settings: Settings, decorate: Decorate, *, name: str | None = "shop"
) -> AsyncIterator[Fairlead]:
    """An instance of an application that has these schedules in its code, synced."""
    fl = Fairlead(settings=settings, actor="deployer", name=name)
    decorate(fl)
    async with fl:
        await fl.sync_schedules()
        yield fl


async def kept(fl: Fairlead) -> dict[str, Trigger]:
    """All triggers, by label."""
    async with fl.transaction() as tx:
        return {one.label: one for one in await triggers.list_triggers(tx, fl.principal)}


async def audited(fl: Fairlead) -> list[str]:
    entries = await given.audit_entries(fl, resource_type="trigger")
    return [f"{entry.action} {entry.details['label']}" for entry in entries]


def nightly(fl: Fairlead) -> None:
    @fl.cron("0 2 * * *", tenant=TENANT, payload={"depth": 3})
    async def nightly(ctx: Context, depth: int) -> int:
        return depth


def empty(_: Fairlead) -> None:
    """An application without any function."""


def nothing(fl: Fairlead) -> None:
    @fl.job
    async def other(ctx: Context) -> None: ...


# In code


async def test_a_schedule_in_code_is_in_the_database_once_it_is_synced(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        @fl.every(timedelta(minutes=5), start_at=FAR, timeout=60, key="beat.often")
        async def beat() -> None: ...

        @fl.cron(
            "@hourly",
            timezone="Asia/Kathmandu",
            tenant=TENANT,
            name="sweep each hour",
            payload={"at": "{{schedule.local_time}}"},
            catch_up="all",
            overlap="allow",
        )
        @fl.job(max_attempts=2)
        async def sweep(ctx: Context, at: str) -> None: ...

    async with application(settings, decorate) as fl:
        there = await kept(fl)
        assert set(there) == {"beat.often", "sweep each hour"}
        beat, sweep = there["beat.often"], there["sweep each hour"]
        async with fl.transaction() as tx:
            found = await tx.values("select key, timeout_seconds, max_attempts from fairlead.job_definitions")

    assert (beat.tenant, beat.every_seconds, beat.start_at, beat.next_fire_at) == ("global", 300, FAR, FAR)
    assert (beat.owner, beat.name, beat.created_by) == ("shop", "beat.often", "deployer")
    assert (beat.catch_up, beat.overlap) == ("skip", "skip")
    assert (sweep.tenant, sweep.cron_expr, sweep.timezone) == (TENANT, "@hourly", "Asia/Kathmandu")
    assert (sweep.catch_up, sweep.overlap) == ("all", "allow")
    assert sweep.next_fire_at is not None
    assert sweep.next_fire_at.minute == 15
    assert {("beat.often", 60, 3), ("sweep", 3600, 2)} <= set(found)


async def test_a_function_may_have_several_schedules_with_names_and_is_still_a_function(
    settings: Settings,
) -> None:
    fl = Fairlead(settings=settings, name="shop")

    @fl.every(60, tenant=TENANT, payload={"who": "often"})
    @fl.every(3600, tenant=OTHER, payload={"who": "elsewhere"})
    @fl.cron("0 2 * * *", tenant=TENANT, payload={"who": "nightly"}, name="nightly")
    @fl.job(key="greet.all")
    async def greet(who: str, *, loud: bool = False) -> str:
        return who.upper() if loud else who

    assert await greet("ada", loud=True) == "ADA"
    async with fl:
        await fl.sync_schedules()
        async with fl.transaction() as tx:
            there = await triggers.list_triggers(tx, fl.principal)
        assert {(one.tenant, one.label, one.definition_key) for one in there} == {
            (TENANT, "greet.all", "greet.all"),
            (OTHER, "greet.all", "greet.all"),
            (TENANT, "nightly", "greet.all"),
        }
        await greet.enqueue(tenant=TENANT, who="by hand")


def test_what_cannot_be_a_schedule_is_refused_where_the_code_says_it() -> None:
    fl, other = Fairlead(settings=Settings()), Fairlead(settings=Settings())
    refused: list[tuple[type[Exception], Callable[[], Any]]] = [
        (CronInvalid, lambda: fl.cron("every day")),
        (CronInvalid, lambda: fl.cron("0 0 31 2 *")),
        (TimezoneUnknown, lambda: fl.cron("@daily", timezone="Mars/Olympus")),
        (ScheduleInvalid, lambda: fl.every(0)),
        (ScheduleInvalid, lambda: fl.every(0.5)),
        (ScheduleInvalid, lambda: fl.every(timedelta(days=400))),
        (ScheduleInvalid, lambda: fl.every(60, start_at=datetime(2026, 1, 1))),
        (TriggerInvalid, lambda: fl.every(60, catch_up="some")),
        (TriggerInvalid, lambda: fl.every(60, overlap="perhaps")),
        (TriggerInvalid, lambda: fl.every(60, name="x" * 300)),
        (PayloadNotJson, lambda: fl.every(60, payload={"n": object()})),
        (TemplateInvalid, lambda: fl.every(60, payload={"n": "{{event.n}}"})),
        (SignatureInvalid, lambda: fl.every(60, payload={"n": "one"})),
        (SignatureInvalid, lambda: fl.every(60, payload={"m": 1})),
    ]

    async def count(n: int = 1) -> None: ...

    for number, (kind, decorate) in enumerate(refused):
        with pytest.raises(kind):
            decorate()(fl.job(key=f"job-{number}")(count))

    @other.job
    async def theirs() -> None: ...

    with pytest.raises(SignatureInvalid, match="another Fairlead"):
        fl.every(60)(theirs)
    with pytest.raises(SignatureInvalid, match="timeout"):
        other.every(60, timeout=5)(theirs)
    with pytest.raises(SignatureInvalid, match="payload="):

        @fl.every(60)
        async def needy(name: str) -> None: ...

    other.every(60)(theirs)
    with pytest.raises(SignatureInvalid, match="name="):
        other.cron("@daily")(theirs)


# Syncing


async def test_a_worker_syncs_as_it_starts_and_runs_what_is_due(settings: Settings) -> None:
    fl, ran = Fairlead(settings=settings, name="shop"), list[str]()

    @fl.every(1, tenant=TENANT)
    async def beat(ctx: Context) -> None:
        ran.append(ctx.tenant)

    async with fl, working(fl), run_triggers(fl.database, fl.direct_url):
        await eventually(lambda: len(ran) > 1, "two runs")
    assert set(ran) == {TENANT}


async def test_syncing_again_changes_nothing_and_writes_nothing(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        nightly(fl)

        @fl.every(60, tenant=TENANT, payload={"ids": (UUID(int=1), 2)}, catch_up="one")
        async def beat(ids: list[Any]) -> None: ...

    async with application(settings, decorate) as fl:
        before, said = await kept(fl), await audited(fl)
        assert await fl.sync_schedules() == [before["beat"], before["nightly"]]
        assert said == ["trigger_created beat", "trigger_created nightly"]
    async with application(settings, decorate) as fl:
        assert (await kept(fl), await audited(fl)) == (before, said)


async def test_a_secret_of_a_schedule_is_kept_as_it_is_and_never_shown(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        @fl.every(3600, tenant=TENANT, payload={"token": "hush-hush"})
        async def fetch(token: Annotated[str, Secret()]) -> bool:
            return len(token) == 9

    async with application(settings, decorate) as fl:
        for _ in range(2):
            [shown] = await fl.sync_schedules()
            assert shown.payload_template == {"token": "[redacted]"}
        assert await audited(fl) == ["trigger_created fetch"]
        await fl.tick()
        [job] = await testing.assert_enqueued(fl, "fetch")
        assert (job.output, job.payload) == (True, {"token": "[redacted]"})


async def test_many_instances_may_sync_at_once(settings: Settings) -> None:
    def decorate(order: int) -> Decorate:
        def decorated(fl: Fairlead) -> None:
            for n in range(6)[:: 1 if order % 2 else -1]:

                @fl.every(60, tenant=TENANT, key=f"beat-{n}")
                async def beat() -> None: ...

        return decorated

    instances = [Fairlead(settings=settings, name="shop") for _ in range(6)]
    for order, fl in enumerate(instances):
        decorate(order)(fl)
    await asyncio.gather(*(fl.open() for fl in instances))
    try:
        for _ in range(2):
            await asyncio.gather(*(fl.sync_schedules() for fl in instances))

        assert await audited(instances[0]) == [f"trigger_created beat-{n}" for n in range(6)]
        assert len(await kept(instances[0])) == 6
    finally:
        await asyncio.gather(*(fl.close() for fl in instances))


async def test_changed_code_changes_the_schedule_in_place(settings: Settings) -> None:
    def changed(fl: Fairlead) -> None:
        @fl.every(3600, start_at=FAR, tenant=TENANT, payload={"depth": 4}, catch_up="one")
        async def nightly(ctx: Context, depth: int) -> int:
            return depth

    async with application(settings, nightly) as fl:
        before = (await kept(fl))["nightly"]
    async with application(settings, changed) as fl:
        after = (await kept(fl))["nightly"]
        assert await audited(fl) == ["trigger_created nightly", "trigger_changed nightly"]

    assert after.id == before.id
    assert (after.cron_expr, after.every_seconds, after.next_fire_at) == (None, 3600, FAR)
    assert (after.payload_template, after.catch_up) == ({"depth": 4}, "one")


async def test_an_interval_goes_on_from_when_it_was_first_seen_and_a_new_one_from_there(
    settings: Settings,
) -> None:
    def every(seconds: int) -> Decorate:
        def decorate(fl: Fairlead) -> None:
            @fl.every(seconds, tenant=TENANT)
            async def beat() -> None: ...

        return decorate

    async with application(settings, every(3600)) as fl:
        first = (await kept(fl))["beat"]
        assert first.next_fire_at == first.start_at
        await testing.fire_schedules(fl)
        assert (await kept(fl))["beat"].next_fire_at == first.start_at + timedelta(hours=1)  # type: ignore[operator]
    async with application(settings, every(1800)) as fl:
        await testing.fire_schedules(fl)
        halved = (await kept(fl))["beat"]
        await testing.assert_enqueued(fl, "beat", count=1)
    assert halved.start_at == first.start_at
    assert halved.next_fire_at == first.start_at + timedelta(minutes=30)  # type: ignore[operator]


async def test_what_the_code_dropped_is_removed_with_what_waits_of_it(settings: Settings) -> None:
    async with application(settings, nightly) as fl:
        await testing.fire_schedules(fl, "nightly")
        [job] = await testing.assert_enqueued(fl, "nightly", payload={"depth": 3})
    async with application(settings, nothing) as fl:
        assert await kept(fl) == {}
        assert await audited(fl) == [
            "trigger_created nightly",
            "trigger_fired nightly",
            "trigger_deleted nightly",
        ]
        assert (await fl.read(job.id)).status == "canceled"
    async with application(settings, nightly) as fl:
        assert set(await kept(fl)) == {"nightly"}


async def test_the_schedule_of_the_last_function_is_removed_with_it_where_the_code_has_a_name(
    settings: Settings,
) -> None:
    async with application(settings, nightly) as fl:
        assert set(await kept(fl)) == {"nightly"}
    async with application(settings, empty) as fl:
        assert await kept(fl) == {}


async def test_what_another_code_base_keeps_is_left_alone(settings: Settings) -> None:
    async with application(settings, nightly) as fl:
        async with fl.transaction() as tx:
            by_hand = {"label": "by hand", "trigger_type": "schedule", "cron_expr": "@daily"}
            await triggers.create(tx, fl.principal, TENANT, {**by_hand, "definition_key": "nightly"})
        await fl.register(TENANT, "registered", FAR, 60, lambda: None)
    for name, decorate in (("bakery", nothing), ("periodic", nothing), (None, nothing), (None, empty)):
        async with application(settings, decorate, name=name) as fl:
            assert set(await kept(fl)) == {"nightly", "by hand", "registered"}
    async with application(settings, nightly, name=None) as fl:
        async with fl.transaction() as tx:
            owners = {(one.label, one.owner) for one in await triggers.list_triggers(tx, fl.principal)}
        assert {("nightly", "shop"), ("nightly", "tests"), ("by hand", None)} <= owners


async def test_a_schedule_of_a_tenant_that_is_not_there_is_refused_by_its_name(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        nightly(fl)

        @fl.every(60, tenant="nobody")
        async def lonely() -> None: ...

    with pytest.raises(TenantUnknown, match=r"'nobody' to have the schedule 'lonely'.*add_tenant"):
        async with application(settings, decorate):
            pass
    async with application(settings, empty) as fl:
        assert await kept(fl) == {}


async def test_what_an_operator_disabled_stays_so(settings: Settings) -> None:
    async with application(settings, nightly) as fl, fl.transaction() as tx:
        await triggers.change(tx, fl.principal, (await kept(fl))["nightly"].id, {"is_enabled": False})
    async with application(settings, nightly) as fl:
        there = (await kept(fl))["nightly"]

    assert (there.is_enabled, there.next_fire_at) == (False, None)


# Events


def welcoming(fl: Fairlead, **options: Any) -> None:
    said: dict[str, Any] = {"tenant": TENANT, "payload": {"name": "{{event.name}}"}, **options}

    @fl.on("user.joined", **said)
    @fl.job
    async def welcome(name: str) -> str:
        return f"Welcome, {name}"


async def test_a_function_runs_for_each_event_that_it_waits_for(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        welcoming(fl, filter={"name": {"ne": "Eve"}})

    async with application(settings, decorate) as fl:
        for tenant, name in ((TENANT, "Ada"), (TENANT, "Eve"), (OTHER, "Bob")):
            await fl.emit("user.joined", tenant=tenant, data={"name": name})
        await fl.emit("user.left", tenant=TENANT, data={"name": "Zoe"})
        report = await testing.run_due(fl)
        [job] = await testing.assert_enqueued(fl, "welcome", count=1)
        [trigger] = (await kept(fl)).values()

    assert (report.statuses, job.output, job.source) == ({"succeeded": 1}, "Welcome, Ada", "event")
    assert (trigger.label, trigger.owner, trigger.dedupe_window_seconds) == (
        "welcome on user.joined",
        "shop",
        300,
    )


async def test_a_trigger_in_code_is_changed_in_place_and_removed_with_it(settings: Settings) -> None:
    def changed(fl: Fairlead) -> None:
        welcoming(fl, payload={"name": "dear {{event.name}}"}, filter={"name": "Ada"})

    for decorate in (welcoming, welcoming, changed, changed):
        async with application(settings, decorate) as fl:
            [there] = (await kept(fl)).values()
    with capture_logs() as logged:
        async with application(settings, nothing) as fl:
            assert await kept(fl) == {}
            actions = [action.partition(" ")[0] for action in await audited(fl)]

    assert (there.payload_template, there.filter) == ({"name": "dear {{event.name}}"}, {"name": "Ada"})
    assert actions == ["trigger_created", "trigger_changed", "trigger_deleted"]
    assert [(one["event"], one["trigger"]) for one in logged] == [
        ("trigger_removed", "welcome on user.joined")
    ]


async def test_the_window_of_a_trigger_is_the_operators_unless_the_code_says_it(settings: Settings) -> None:
    async with application(settings, welcoming) as fl:
        [trigger] = (await kept(fl)).values()
        async with fl.transaction() as tx:
            changes = {"dedupe_window_seconds": 5, "is_enabled": False}
            await triggers.change(tx, fl.principal, trigger.id, changes)
    seen = []
    for decorate in (welcoming, lambda fl: welcoming(fl, window=0)):
        async with application(settings, decorate) as fl:
            [trigger] = (await kept(fl)).values()
            seen.append((trigger.dedupe_window_seconds, trigger.is_enabled))

    assert seen == [(5, False), (0, False)]


async def test_a_function_may_wait_for_several_events_of_several_tenants(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        @fl.every(3600, tenant=TENANT, payload={"data": {}})
        @fl.on("a.b", tenant=OTHER, payload="{{event}}", max_attempts=1, key="all")
        async def everything(data: dict[str, Any]) -> dict[str, Any]:
            return data

        fl.on("a.b", tenant=TENANT, payload={"data": "{{event}}"})(fl.functions["all"])
        fl.on("c", tenant=TENANT, payload={"data": "{{meta}}"})(fl.functions["all"])

    async with application(settings, decorate) as fl:
        await fl.emit("a.b", tenant=OTHER, data={"data": {"n": 1}})
        await fl.emit("a.b", tenant=TENANT, data={"n": 2})
        await fl.emit("c", tenant=TENANT)
        assert await testing.dispatch_events(fl) == 3
        made = [job.payload["data"] for job in await testing.assert_enqueued(fl, "all", count=3)]

    assert {"n": 1} in made
    assert {"n": 2} in made
    assert "c" in [one.get("event_name") for one in made]


def test_what_cannot_be_a_trigger_is_refused_where_the_code_says_it() -> None:
    fl = Fairlead(settings=Settings())
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (FilterInvalid, {"filter": {"n": {"about": 1}}}),
        (TemplateInvalid, {"payload": {"n": "{{schedule.n}}"}}),
        (TriggerInvalid, {"window": -1}),
        (SignatureInvalid, {"payload": {"m": 1}}),
        (PayloadNotJson, {"payload": {"n": object()}}),
    ]

    def count(n: int = 1) -> None: ...

    for number, (kind, options) in enumerate(refused):
        with pytest.raises(kind):
            fl.on("a.b", tenant=TENANT, **options)(fl.job(key=f"job-{number}")(count))
    with pytest.raises(EventInvalid):
        fl.on("not a name", tenant=TENANT, key="unnamed")(count)
    with pytest.raises(TypeError, match="tenant"):
        fl.on("a.b")(count)  # type: ignore[call-arg]
    fl.on("a.b", tenant=TENANT, key="once")(count)
    with pytest.raises(SignatureInvalid, match=r"two triggers 'once on a.b'.*name="):
        fl.on("a.b", tenant=TENANT)(fl.functions["once"])


async def test_a_test_has_the_triggers_of_its_tenants_and_no_schedules(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    welcoming(fl)
    nightly(fl)
    fl.on("user.joined", tenant="nobody", payload={"name": "x"})(fl.functions["welcome"])

    async with fl:
        await fl.emit("user.joined", tenant=TENANT, data={"name": "Ada"})
        assert (await testing.run_due(fl)).statuses == {"succeeded": 1}
        assert set(await kept(fl)) == {"welcome on user.joined"}


async def test_an_event_makes_the_jobs_of_its_triggers(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        rule: dict[str, Any] = {"label": "welcome", "trigger_type": "event", "event_name": "user.joined"}
        rule |= {"definition_key": "greet", "payload_template": {"name": "{{event.name}}"}}
        await triggers.create(tx, fl.principal, TENANT, rule)
    occurred = datetime(2026, 1, 2, tzinfo=UTC)
    event_id = await fl.emit(
        "user.joined", tenant=TENANT, data={"name": "Ada"}, correlation_id="c-1", occurred_at=occurred
    )

    assert await testing.dispatch_events(fl) == 1
    [job] = await testing.assert_enqueued(fl, "greet", tenant=TENANT, payload={"name": "Ada"}, count=1)
    [event] = await testing.assert_emitted(fl, "user.joined", tenant=TENANT, data={"name": "Ada"})
    assert (job.source, job.source_ref, job.correlation_id) == ("event", str(event_id), "c-1")
    assert (event.id, event.occurred_at) == (event_id, occurred)


async def test_an_event_that_cannot_be_is_refused(fl: Fairlead) -> None:
    with pytest.raises(EventInvalid):
        await fl.emit("not a name", tenant=TENANT)
    with pytest.raises(TenantUnknown):
        await fl.emit("user.joined", tenant=uuid4())
    async with fl.transaction() as tx:
        assert await given.count(tx, "events") == 0


# An end, jitter, and backfills


async def test_a_schedule_in_code_has_an_end_and_jitter(settings: Settings) -> None:
    def decorate(fl: Fairlead) -> None:
        @fl.every(300, start_at=FAR, end_at=FAR + timedelta(hours=1), jitter=timedelta(minutes=1), key="beat")
        async def beat() -> None: ...

        @fl.cron("@hourly", end_at=datetime(2020, 1, 1, tzinfo=UTC), key="past")
        async def past() -> None: ...

        @fl.every(60, end_at=datetime(2020, 1, 1, tzinfo=UTC), key="gone")
        async def gone() -> None: ...

    # twice, since code whose schedules are over must start again
    for _ in range(2):
        async with application(settings, decorate) as fl:
            there = await kept(fl)

    beat = there["beat"]
    assert (beat.end_at, beat.jitter_seconds, beat.next_instant) == (FAR + timedelta(hours=1), 60, FAR)
    assert beat.next_fire_at is not None
    assert FAR <= beat.next_fire_at < FAR + timedelta(minutes=1)
    assert [there[name].is_over for name in ("beat", "past", "gone")] == [False, True, True]


@each_case("jitter", [0.5, -1, True, "60"])
def test_a_wrong_jitter_is_refused_where_it_stands(jitter: Any) -> None:
    with pytest.raises(ScheduleInvalid, match="A jitter is a whole number of seconds"):
        Fairlead(settings=Settings()).every(60, jitter=jitter)


async def test_a_range_of_a_schedule_in_code_is_backfilled_once(settings: Settings) -> None:
    since = datetime(2026, 3, 1, tzinfo=UTC)

    def decorate(fl: Fairlead) -> None:
        @fl.cron("0 2 * * *", tenant=TENANT, name="nightly", key="sweep")
        async def sweep() -> None: ...

    async with application(settings, decorate) as fl:
        sweep = fl.functions["sweep"]
        week = since, since + timedelta(days=7)
        seen = await fl.preview_backfill("nightly", *week, tenant=TENANT, count=3)
        done = await fl.backfill(sweep, *week, tenant=TENANT)
        trigger = (await kept(fl))["nightly"]
        again = await fl.backfill(trigger.id, *week)
        with pytest.raises(TriggerUnknown):
            await fl.backfill("nightly", *week)

    assert (seen.count, len(seen.instants)) == (7, 3)
    assert (done.enqueued, done.fired) == (7, 0)
    assert (again.enqueued, again.fired) == (0, 7)


def test_a_schedule_that_is_refused_leaves_no_function_behind() -> None:
    fl = Fairlead(settings=Settings())

    async def report() -> None: ...

    with pytest.raises(CronInvalid):
        fl.cron("every day")(report)
    fl.cron("0 2 * * *")(report)

    assert list(fl.functions) == ["report"]
