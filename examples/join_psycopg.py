"""A job that is stored together with your own rows, or not at all: psycopg.

Run it with: python examples/join_psycopg.py
"""

import asyncio

import psycopg

from fairlead import Fairlead, Job
from fairlead.errors import JobUnknown

fl = Fairlead(actor="shop")


@fl.job(key="example.ship")
async def ship(ctx: object, order: int) -> None:
    """Ship one order."""


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)

        # your application's own connection, to the database that Fairlead's schema is in
        async with await psycopg.AsyncConnection.connect(fl.direct_url) as connection:
            await connection.execute("create temporary table orders (number int)")
            await connection.commit()

            await connection.execute("insert into orders values (1)")
            kept = await ship.enqueue(tenant="example", order=1, tx=connection)
            await connection.commit()
            print(f"committed: the job is {(await kept.read()).status}")

            await connection.execute("insert into orders values (2)")
            undone = await ship.enqueue(tenant="example", order=2, tx=connection)
            await connection.rollback()
            try:
                left: Job | None = await undone.read()
            except JobUnknown:
                left = None
            print(f"rolled back: the job is {left}")


if __name__ == "__main__":
    asyncio.run(main())
