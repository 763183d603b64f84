"""The demo of `fairlead dev`: a tenant, two kinds of jobs, and the functions that run them."""

import asyncio

from fairlead.app import Fairlead
from fairlead.errors import TenantExists
from fairlead.handlers.context import Context
from fairlead.model.job import NewJob

TENANT = "demo"
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald")


def add_demo(fl: Fairlead) -> None:
    """Register the demo's functions; they are published when the Fairlead opens."""

    @fl.job(key="demo.greet", description="Say hello to somebody")
    async def greet(ctx: Context, name: str) -> str:
        ctx.log.info("greeting", name=name)
        await asyncio.sleep(0.5)
        return f"Hello, {name}"

    @fl.job(key="demo.report", description="Write the nightly report", timeout=600, max_attempts=5)
    async def report(ctx: Context) -> dict[str, int]:
        for page in range(1, 6):
            await ctx.progress(page * 20, f"page {page} of 5")
            await asyncio.sleep(1)
        return {"pages": 5}


async def make_demo(fl: Fairlead) -> None:
    """A tenant with a few jobs to look at; the second time nothing is added."""
    try:
        await fl.add_tenant(TENANT, name="Demo")
    except TenantExists:
        return
    await fl.enqueue_many(
        [
            *(NewJob(definition="demo.greet", tenant=TENANT, payload={"name": name}) for name in NAMES),
            NewJob(definition="demo.report", tenant=TENANT, priority=10, dedupe_key="nightly-report"),
        ]
    )
