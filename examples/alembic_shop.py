"""Alembic applies Fairlead's schema with your own revisions, and does not see its tables.

Run it with: python examples/alembic_shop.py (needs alembic and sqlalchemy)
The revisions are in examples/alembic_shop.
"""

import os
from contextlib import nullcontext
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from fairlead.sync import Fairlead

fl = Fairlead(actor="shop")


@fl.job(key="example.ship")
def ship(order: int) -> str:
    """Ship one order."""
    return f"shipped {order}"


def main() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "alembic_shop"))
    command.upgrade(config, "head")
    command.check(config)  # raises if autogenerate wanted to drop Fairlead's tables

    url = os.environ["FAIRLEAD_DATABASE_URL"]
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with fl, Session(engine) as session:
        session.execute(text("insert into alembic_orders values (1)"))
        job = ship.enqueue(tenant="global", order=1, tx=session)
        session.commit()
        fl.tick()
        print(f"{job.read().status}: {job.result(timeout=120)}")
    command.downgrade(config, "base")
    engine.dispose()


if __name__ == "__main__":
    with nullcontext() if "FAIRLEAD_DATABASE_URL" in os.environ else Fairlead() as own:
        if own is not None:  # a database of its own
            os.environ["FAIRLEAD_DATABASE_URL"] = own.direct_url
        main()
