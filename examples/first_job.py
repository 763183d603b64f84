"""The first job: a function becomes a definition, a call to it is stored, read, and canceled.

Run it with: python examples/first_job.py

It needs no set-up. Without FAIRLEAD_DATABASE_URL it starts an embedded PostgreSQL in `.fairlead`
(or FAIRLEAD_DATA_DIR) and stops it at the end; what it stored stays there.
"""

import asyncio

from fairlead import Fairlead
from fairlead.errors import PayloadInvalid

fl = Fairlead(actor="first-job")


@fl.job(key="example.greet", max_attempts=5)
async def greet(ctx: object, name: str, times: int = 1) -> None:
    """Greet somebody."""


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", name="An example", exist_ok=True)

        job = await greet.enqueue(tenant="example", name="Ada")
        stored = await job.read()
        print(f"enqueued {stored.id}: {stored.definition_key} {stored.payload} is {stored.status}")

        try:
            await greet.enqueue(tenant="example", name=42)
        except PayloadInvalid as error:
            print(f"refused with {error.code}: {error}")

        keyed = greet.options(dedupe_key="greet-grace", priority=10)
        first = await keyed.enqueue(tenant="example", name="Grace")
        second = await keyed.enqueue(tenant="example", name="Grace")
        print(f"deduplicated: {second.deduplicated}, the same job: {first.id == second.id}")

        for one in (job, first):
            ended = await fl.cancel(one.id)
            print(f"canceled {ended.id}: now {ended.status}")


if __name__ == "__main__":
    asyncio.run(main())
