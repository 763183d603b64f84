"""A job that is stored together with your own rows, or not at all: Django's transaction.atomic.

Run it with: python examples/join_django.py (needs django)
Its jobs are run by: fairlead worker join_django:fl (in this folder)
"""

import django
from django.conf import settings
from django.db import connection, connections, transaction
from psycopg.conninfo import conninfo_to_dict

from fairlead.errors import JobUnknown
from fairlead.sync import Fairlead

fl = Fairlead(actor="shop")


@fl.job(key="example.ship")
def ship(order: int) -> None:
    """Ship one order."""


class OutOfStock(Exception):
    """A reason of the shop's own to undo everything."""


def main() -> None:
    with fl:
        # your project has its DATABASES already; this one goes wherever Fairlead goes
        options = conninfo_to_dict(fl.direct_url)
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": options.pop("dbname"),
            "OPTIONS": options,
        }
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("create temporary table orders (number int)")
            cursor.execute("insert into orders values (1)")
            kept = ship.enqueue(tenant="global", order=1, tx=connection)
        print(f"committed: the job is {fl.read(kept.id).status}")

        try:
            with transaction.atomic():
                undone = ship.enqueue(tenant="global", order=2, tx=connection)
                raise OutOfStock  # noqa: TRY301
        except OutOfStock:
            try:
                fl.read(undone.id)
            except JobUnknown as error:
                print(f"rolled back: {error}")
        connections.close_all()


if __name__ == "__main__":
    main()
