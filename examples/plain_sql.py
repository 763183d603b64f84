"""A job from plain SQL, by a role that may do nothing else: any language, any driver.

Run it with: python examples/plain_sql.py

The role is made for the example and dropped in the same transaction, so this needs CREATEROLE.
"""

import psycopg

from fairlead.sync import Fairlead

GRANTS = """
grant usage on schema fairlead to fairlead_example_shop;
grant execute on function fairlead.enqueue
    to fairlead_example_shop;
"""
ENQUEUE = """
select job_id, deduplicated from fairlead.enqueue(
    tenant => 'global', definition => 'example.ship', payload => '{"order": 1}', dedupe_key => 'ship-1')
"""
fl = Fairlead(actor="shop")


@fl.job(key="example.ship")
def ship(order: int) -> None:
    """Ship one order."""


def main() -> None:
    with fl, psycopg.connect(fl.inner.direct_url) as connection:
        connection.execute("create role fairlead_example_shop")
        connection.execute(GRANTS)
        connection.execute("grant fairlead_example_shop to current_user")
        connection.execute("set local role fairlead_example_shop")
        [(job_id, _)] = connection.execute(ENQUEUE).fetchall()
        [(again, deduplicated)] = connection.execute(ENQUEUE).fetchall()
        try:
            with connection.transaction():
                connection.execute("select fairlead.enqueue('global', 'example.unheard-of')")
        except psycopg.Error as error:
            print(f"refused with {error.sqlstate} {error.diag.message_detail}")

        connection.execute("reset role")
        connection.execute("drop owned by fairlead_example_shop")
        connection.execute("drop role fairlead_example_shop")
        connection.commit()
        job = fl.read(job_id)
        print(f"enqueued {job.id} by {job.created_by}: {job.payload} is {job.status}")
        print(f"deduplicated: {deduplicated}, the same job: {job_id == again}")
        fl.cancel(job_id)


if __name__ == "__main__":
    main()
