"""The demo of `fairlead dev`: a tenant, definitions, a durable function, a workflow, schedules and an event trigger."""

import asyncio
from datetime import timedelta

from fairlead.actions import triggers
from fairlead.db.tx import Tx
from fairlead.errors import TenantExists
from fairlead.handlers.context import Context
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob

TENANT = "demo"
OWNER = "fairlead-demo"
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald")
EVENT = "demo.user.signed_up"
CONFIRMED = "demo.user.confirmed"
WELCOME = {
    "label": "Welcome new users",
    "trigger_type": "event",
    "event_name": EVENT,
    "definition_key": "demo.greet",
    "payload_template": {"name": "{{event.user.name}}"},
}
WORKFLOW = "demo.newsletter"
TRIGGERS = f"a greeting every minute, a report at 02:00 in New York, a greeting on {EVENT}"


def add_demo(fl: Fairlead) -> None:
    """Register the demo's functions and schedules; they are published when the Fairlead opens and when its worker starts."""

    @fl.every(60, tenant=TENANT, name="demo.hourglass", payload={"name": "all, once a minute"})
    @fl.job(key="demo.greet", description="Greet a person")
    async def greet(ctx: Context, name: str) -> str:
        ctx.log.info("greeting", name=name)
        await asyncio.sleep(0.5)
        return f"Hello, {name}"

    @fl.cron("0 2 * * *", timezone="America/New_York", tenant=TENANT, name="demo.nightly")
    @fl.job(key="demo.report", description="Write the nightly report", timeout=600, max_attempts=5)
    async def report(ctx: Context) -> dict[str, int]:
        for page in range(1, 6):
            await ctx.progress(page * 20, f"page {page} of 5")
            await asyncio.sleep(1)
        return {"pages": 5}

    @fl.job(key="demo.export", description="Always fails, as an example of a failure", max_attempts=2)
    async def export(ctx: Context, to: str) -> None:
        ctx.log.info("connecting", to=to)
        raise ConnectionError(f"{to} answered 503 Service Unavailable")

    @fl.job(key="demo.onboard", description="Wait until a user has confirmed, then greet", durable=True)
    async def onboard(ctx: Context, name: str) -> str:
        account = await ctx.step("create account", lambda: {"name": name, "plan": "free"})
        found = await ctx.wait_for_event(CONFIRMED, where={"name": name}, timeout=timedelta(days=7))
        if found is None:
            return f"{account['name']} has not confirmed"
        return str(await ctx.step("greet", lambda: f"Welcome, {name}"))

    flow = fl.workflow(WORKFLOW, description="Greet each name, then write the report and print it")
    greeted = flow.step("greet", greet, {"name": "{{item}}"}, for_each="{{input.names}}")
    flow.step("report", report, after=[greeted])
    flow.step("print", export, {"to": "the printer"}, after=[greeted], on_failure="continue")


async def make_demo(fl: Fairlead) -> None:
    """Create a tenant with some jobs, a run, a trigger and an event; a second call adds nothing."""
    try:
        await fl.add_tenant(TENANT, name="Demo")
    except TenantExists:
        pass
    else:
        await fl.enqueue_many(
            [
                *(NewJob(definition="demo.greet", tenant=TENANT, payload={"name": name}) for name in NAMES),
                NewJob(definition="demo.report", tenant=TENANT, priority=10, dedupe_key="nightly-report"),
                NewJob(definition="demo.export", tenant=TENANT, payload={"to": "the warehouse"}),
            ]
        )
        for name in NAMES[:2]:
            await fl.enqueue("demo.onboard", tenant=TENANT, payload={"name": name})
        await fl.emit(CONFIRMED, tenant=TENANT, data={"name": NAMES[0]})
        await fl.start(WORKFLOW, tenant=TENANT, input={"names": NAMES})
    if await fl.database.transact(lambda tx: _add_trigger(tx, fl)):
        await fl.emit(EVENT, tenant=TENANT, data={"user": {"name": "Margaret"}})


async def _add_trigger(tx: Tx, fl: Fairlead) -> bool:
    """Add the demo's trigger unless it exists; whether it was added."""
    if await triggers.list_triggers(tx, fl.principal, tenant=TENANT, event_name=EVENT):
        return False
    await triggers.create(tx, fl.principal, TENANT, WELCOME)
    return True
