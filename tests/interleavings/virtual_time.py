"""Time that passes when a participant lets it: on these connections the clock is PostgreSQL's and what has passed since.

The statements of the product name `clock_timestamp` without a schema, so a function of that name in a schema before
`pg_catalog` takes its place. A sequence keeps how much has passed: what a participant adds is seen by all at once, also by
transactions that began before.
"""

import re
from typing import Any

from psycopg import AsyncConnection

from tests.interleavings.steps import CONTENDED

SESSION = {"search_path": "virtual, pg_catalog, public"}
# Statements that deadlines matter to.
WITH_DEADLINES = re.compile(CONTENDED.pattern + r"|\b(pass_time|expire_jobs|rate_buckets)\b")
# Watchdogs have looked meanwhile: they rescue nothing for a while after a time in which none of them did.
INSTALL = """
create schema if not exists virtual;
create sequence if not exists virtual.passed minvalue 0 start 0;
create or replace function virtual.clock_timestamp() returns timestamptz language sql volatile as $$
    select pg_catalog.clock_timestamp() + make_interval(secs => p.last_value) from virtual.passed p;
$$;
create or replace function fairlead.pass_time(seconds integer) returns void language plpgsql volatile as $$
begin
    perform setval('virtual.passed', p.last_value + seconds) from virtual.passed p;
    update fairlead.pulse set pulse_at = virtual.clock_timestamp()
    where ctid = any(array(select p.ctid from fairlead.pulse p for update skip locked));
end
$$;
create or replace function fairlead.begin_time() returns void language plpgsql volatile as $$
begin
    perform setval('virtual.passed', 0);
    update fairlead.pulse set pulse_at = pg_catalog.clock_timestamp();
end
$$;
grant usage on schema virtual to public;
grant select on virtual.passed to public;
"""
# The functions that applications call have a path of their own.
PATHS = """
select format('alter function %s set search_path = virtual, pg_catalog, pg_temp', p.oid::regprocedure) from pg_proc p
where p.pronamespace = 'fairlead'::regnamespace and array_to_string(p.proconfig, ' ') ~ 'search_path=pg_catalog'
"""


async def install(connection: AsyncConnection[Any]) -> None:
    """Give this database, a copy for the purpose, a clock that participants move."""
    await connection.execute(INSTALL.encode())
    cursor = await connection.execute(PATHS.encode())
    for (statement,) in await cursor.fetchall():
        await connection.execute(statement)
