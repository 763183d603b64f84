"""Pictures of every page, wide and narrow, light and dark: python -m tests.console.screenshots FOLDER (make screenshots)."""

import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal
from uuid import UUID

from playwright.async_api import Page

from fairlead import Context, Fairlead, Fatal
from fairlead.actions import hosts
from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.tx import Tx
from fairlead.library.workflows import FlowStep
from fairlead.model.access import Role
from fairlead.model.job import NewJob
from fairlead.settings import Settings
from tests import given
from tests.console.visiting import NARROW, WIDE, Console, browsing, served
from tests.server.world import world_on
from tests.waiting import SECONDS

DOCS = Path(__file__).parents[2] / "docs" / "images"
# The pictures that the documentation shows, and what they are called there.
SHOWN = {
    "overview-wide-light": "overview-light",
    "jobs-wide-light": "jobs-light",
    "job-failed-wide-dark": "job-dark",
    "triggers-wide-light": "triggers-light",
    "workflow-run-wide-light": "workflow-run-light",
    "tenants-wide-dark": "tenants-dark",
    "jobs-narrow-dark": "jobs-narrow",
}
# An hour that somebody could have had: how many jobs ended well and badly in each minute.
_HOUR = """
insert into fairlead.counts (
    tenant_id, definition_id, minute, succeeded, failed, runs, retried, run_ms, queue_ms, cost_cents)
select %(tenant)s, d.id, date_trunc('minute', clock_timestamp()) - make_interval(mins => m.number), m.good, m.bad,
    m.good + m.bad, 0, 2345 * m.good, 120 * m.good, 3 * m.good
from unnest(%(minutes)s::int[], %(good)s::int[], %(bad)s::int[]) as m(number, good, bad), fairlead.job_definitions d
where d.key = 'retired'
"""


# A worker may have added it up.
_NO_HOUR = """
with invented as (select id from fairlead.job_definitions where key = 'retired'),
    levels as (delete from fairlead.count_levels where definition_id = (select id from invented)),
    hours as (delete from fairlead.usage_hourly where definition_id = (select id from invented))
delete from fairlead.counts where definition_id = (select id from invented)
"""


def add_work(fl: Fairlead) -> None:
    """Jobs that end in every way."""

    @fl.job(key="invoice.send", description="Send an invoice to a customer", max_attempts=3)
    async def send(ctx: Context, customer: str, amount: int = 0) -> dict[str, str]:
        ctx.log.info("rendering", customer=customer, amount=amount)
        ctx.log.info("sent", customer=customer)
        return {"sent_to": f"{customer}@example.com"}

    @fl.job(key="report.render", description="Render a report of a month", timeout=600)
    async def render(ctx: Context, month: str) -> dict[str, int]:
        await ctx.progress(60, f"{month}: page 12 of 20")
        if month == "2026-10":
            await asyncio.sleep(600)
        return {"pages": 20}

    @fl.job(key="warehouse.sync", description="Bring the warehouse up to date", max_attempts=1)
    async def sync(ctx: Context, table: str) -> None:
        ctx.log.info("connecting", to="warehouse.internal:5439")
        ctx.log.warning("slow answer", seconds=28)
        if table == "orders":
            raise Fatal("there is no table orders_2026: create it, or drop it from the job")
        raise TimeoutError(f"warehouse.internal:5439 did not answer within 30 s (table {table})")


def add_workflow(fl: Fairlead) -> None:
    """A graph with a step of every kind."""
    flow = fl.workflow("month.close", description="Closes a month: invoices, a report, the warehouse")
    flow.step("undo", "invoice.send", {"customer": "accounting"})
    check = flow.step("check", "invoice.send", {"customer": "accounting"})
    invoices = flow.step(
        "invoices", "invoice.send", {"customer": "{{item}}"}, after=[check], for_each="{{input.customers}}"
    )
    report = flow.step("report", "report.render", {"month": "{{input.month}}"}, after=[check])
    audit = {"input.audit": {"eq": True}}
    flow.step("auditors", "invoice.send", {"customer": "auditors"}, after=[report], when=audit)
    sync = {"table": "{{input.table}}"}
    flow.step("warehouse", "warehouse.sync", sync, after=[invoices, report], on_failure=FlowStep("undo"))


async def start_runs(fl: Fairlead) -> dict[str, str]:
    """A run that goes on, and one that failed."""
    given_to = {"customers": ["Ada", "Grace", "Edsger"], "audit": True, "table": "orders"}
    failed = await fl.start("month.close", tenant=given.TENANT, input={**given_to, "month": "2026-09"})
    await _until(fl, "select count(*) from fairlead.workflow_runs where status = 'failed'", 1)
    run = await fl.start("month.close", tenant=given.TENANT, input={**given_to, "month": "2026-10"})
    return {"run": str(run.id), "failed_run": str(failed.id)}


async def fill(fl: Fairlead, tenants: dict[str, UUID]) -> dict[str, str]:
    """Something on every page; the ids of what some pages are about."""
    names = ["Ada", "Grace", "Edsger", "Barbara", "Donald", "Margaret", "Tony", "Leslie", "Frances", "Ken"]
    new = [
        NewJob(definition="invoice.send", tenant=given.TENANT, payload={"customer": n, "amount": 120 + i})
        for i, n in enumerate(names)
    ]
    new += [
        NewJob(definition="warehouse.sync", tenant=given.TENANT, payload={"table": t})
        for t in ("users", "orders", "visits", "clicks")
    ]
    new += [NewJob(definition="report.render", tenant=given.TENANT, payload={"month": "2026-09"})]
    new += [NewJob(definition="invoice.send", tenant=given.OTHER, payload={"customer": n}) for n in names]
    made = await fl.enqueue_many(new)
    await _until(fl, "select count(*) from fairlead.jobs where status = 'queued'", 0)
    running = await fl.enqueue("report.render", tenant=given.TENANT, payload={"month": "2026-10"})
    await _until(
        fl, "select count(*) from fairlead.jobs where status = 'running' and progress is not null", 1
    )
    async with fl.transaction() as tx:
        ids = await _fill_in(tx, tenants)
    for _ in range(4):
        await fl.enqueue("anything", tenant=given.TENANT, priority=10)
    failed = await fl.database.transact(
        lambda tx: tx.values("select id::text from fairlead.jobs where status = 'dead_letter' limit 1")
    )
    ids |= await start_runs(fl)
    return {**ids, "failed": failed[0][0], "running": str(running.id), "first": str(made[0].id)}


_SOURCES = """
insert into fairlead.sources (
    name, driver, tenant_id, event, messages, duplicates, refused, last_refusal, last_message_at, failing_since, last_error,
    paused_at, seen_at)
select s.name, s.driver, t.id, s.event, s.messages, s.duplicates, s.refused, s.last_refusal, clock_timestamp() - interval '8 s',
    case when s.last_error is not null then clock_timestamp() - interval '4 min' end, s.last_error,
    case when s.name = 'clicks' then clock_timestamp() end,
    clock_timestamp() - case when s.name = 'stock' then interval '2 h' else interval '1 s' end
from (values
    ('orders', 'nats', 'acme', 'order.placed', 184220, 312, 3, 'payload_not_json', null),
    ('payments', 'kafka', null, 'payment.{topic}', 1200345, 0, 0, null,
        'Kafka cannot be used now: 3/3 brokers are down.'),
    ('clicks', 'sqs', 'acme', 'page.clicked', 98, 0, 0, null, null),
    ('stock', 'nats', 'umbrella', 'stock.changed', 12, 1, 0, null, null)
) s(name, driver, tenant, event, messages, duplicates, refused, last_refusal, last_error)
left join fairlead.tenants t on t.slug = s.tenant
"""


async def _fill_in(tx: Tx, tenants: dict[str, UUID]) -> dict[str, str]:
    await tx.run(_SOURCES)
    await given.running_job(tx, definition="anything", payload={})
    tenant, chance = tenants[given.TENANT], random.Random(7)  # noqa: S311
    minutes = list(range(1, 60))
    values = {
        "tenant": tenant,
        "minutes": minutes,
        "good": [chance.randint(30, 90) for _ in minutes],
        "bad": [chance.choice((0, 0, 0, 1, 2, 9 if 20 < minute < 26 else 0)) for minute in minutes],
    }
    await tx.run(_HOUR, values)
    trigger = await given.trigger(
        tx,
        label="Nightly report",
        trigger_type="schedule",
        cron_expr="30 2 * * *",
        timezone="America/New_York",
        definition_key="report.render",
        payload_template={"month": "2026-11"},
    )
    await given.trigger(
        tx,
        label="Invoice new orders",
        trigger_type="event",
        event_name="order.paid",
        definition_key="invoice.send",
        payload_template={"customer": "{{event.customer}}", "amount": "{{event.amount}}"},
    )
    event = await given.event(tx, name="order.paid", data={"customer": "Ada", "amount": 42})
    host = await hosts.add(tx, given.TESTER, tenant_id=tenant, name="rack-7", max_running=4)
    return {"trigger": str(trigger.id), "event": str(event), "host": str(host.id)}


async def _until(fl: Fairlead, sql: str, wanted: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            [(found,)] = await fl.database.transact(lambda tx: tx.values(sql))
            if found == wanted:
                return
            await asyncio.sleep(0.05)


def pages(ids: dict[str, str]) -> dict[str, tuple[Role, str]]:
    """By name: who looks, and where."""
    admin, everything = Role.TENANT_ADMIN, Role.SUPER_ADMIN
    return {
        "overview": (admin, "/overview"),
        "overview-all": (everything, "/overview"),
        "jobs": (admin, "/jobs"),
        "jobs-empty": (admin, "/jobs?q=nothing"),
        "job-failed": (admin, f"/jobs/{ids['failed']}"),
        "job-running": (admin, f"/jobs/{ids['running']}"),
        "job-succeeded": (admin, f"/jobs/{ids['first']}"),
        "job-edit": (admin, f"/jobs/{ids['failed']}/edit"),
        "enqueue": (admin, "/enqueue?definition=invoice.send"),
        "triggers": (admin, "/triggers"),
        "trigger": (admin, f"/triggers/{ids['trigger']}"),
        "trigger-edit": (admin, f"/triggers/{ids['trigger']}/edit"),
        "events": (admin, "/events"),
        "event": (admin, f"/events/{ids['event']}"),
        "workflows": (admin, "/workflows"),
        "workflow": (admin, "/workflows/month.close"),
        "workflow-start": (admin, "/workflows/month.close/start"),
        "workflow-runs": (admin, "/workflow-runs"),
        "workflow-run": (admin, f"/workflow-runs/{ids['run']}"),
        "workflow-run-failed": (admin, f"/workflow-runs/{ids['failed_run']}"),
        "workflow-step": (admin, f"/workflow-runs/{ids['failed_run']}/step?place=2"),
        "hosts": (admin, "/hosts"),
        "host": (admin, f"/hosts/{ids['host']}"),
        "errors": (admin, "/errors"),
        "audit": (admin, "/audit"),
        "usage": (admin, "/usage"),
        "members": (admin, "/members"),
        "tokens": (admin, "/tokens"),
        "definitions": (admin, "/definitions"),
        "definition": (everything, "/definitions/invoice.send"),
        "tenants": (everything, "/tenants"),
        "workers": (everything, "/workers"),
        "sources": (everything, "/sources"),
        "system": (everything, "/system"),
        "not-found": (admin, "/nowhere"),
        "forbidden": (Role.VIEWER, "/tokens"),
    }


async def take(console: Console, ids: dict[str, str], folder: Path) -> None:
    """Every page, four times."""
    for theme in ("light", "dark"):
        for name, width in (("wide", WIDE), ("narrow", NARROW)):
            await _take(console, ids, folder, name, width, theme)


async def _take(
    console: Console,
    ids: dict[str, str],
    folder: Path,
    size: str,
    width: int,
    theme: Literal["light", "dark"],
) -> None:
    opened: dict[Role, Page] = {}
    for name, (role, path) in pages(ids).items():
        page = opened.get(role)
        if page is None:
            page = opened[role] = await console.visit(role, path, width=width, theme=theme)
        else:
            await page.goto(f"/console{path}")
        await page.wait_for_timeout(500)  # charts, logs, what comes after the page
        await page.screenshot(path=folder / f"{name}-{size}-{theme}.png", full_page=True)
        print(f"{name}-{size}-{theme}.png")  # noqa: T201 - a program


async def main(folder: Path) -> None:
    """Build a world, and take its pictures."""
    with tempfile.TemporaryDirectory() as data, EmbeddedPostgres(Path(data) / "d") as server:
        url = server.url
        await migrate.up(url, "fairlead")
        async with Database(url, Settings()) as database, database.transaction() as tx:
            await given.tenants_and_definitions(tx)
        async with world_on(url) as world, browsing() as browser, served(world, browser) as console:
            fl = Fairlead(settings=world.fl.settings, actor="tester", name="pictures")
            add_work(fl)
            add_workflow(fl)
            stop = asyncio.Event()
            async with fl, asyncio.TaskGroup() as group:
                group.create_task(fl.work(stop, stop, concurrency=20))
                try:
                    await take(console, await fill(fl, world.tenants), folder)
                finally:
                    stop.set()
                async with console.transaction() as tx:
                    await tx.run(_NO_HOUR)


def show(folder: Path) -> None:
    """Put those that the documentation shows into it."""
    DOCS.mkdir(parents=True, exist_ok=True)
    for taken, shown in SHOWN.items():
        shutil.copy(folder / f"{taken}.png", DOCS / f"{shown}.png")


if __name__ == "__main__":
    into = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    into.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(into))
    show(into)
