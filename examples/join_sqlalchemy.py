"""A job that is stored together with your own rows, or not at all: SQLAlchemy's AsyncSession.

Run it with: python examples/join_sqlalchemy.py (needs sqlalchemy[asyncio])
"""

import asyncio

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from fairlead import Fairlead
from fairlead.errors import JobUnknown

fl = Fairlead(actor="shop")


@fl.job(key="example.ship")
async def ship(ctx: object, order: int) -> None:
    """Ship one order."""


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)

        # your application has an engine already; this one goes wherever Fairlead goes
        engine = create_async_engine(
            "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(fl.direct_url)
        )
        async with AsyncSession(engine) as session:
            await session.execute(text("create temporary table orders (number int) on commit drop"))
            await session.execute(text("insert into orders values (1)"))
            kept = await ship.enqueue(tenant="example", order=1, tx=session)
            await session.commit()
            print(f"committed: the job is {(await kept.read()).status}")

            undone = await ship.enqueue(tenant="example", order=2, tx=session)
            await session.rollback()
            try:
                await undone.read()
            except JobUnknown as error:
                print(f"rolled back: {error}")
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
