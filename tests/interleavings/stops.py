"""Stops between the statements of stored functions, so that other participants may act there.

A stop waits for an advisory lock that the explorer holds. A volatile function takes a new snapshot for each of its
statements, so a stop between two of them changes nothing but the time between them.
"""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from fairlead.db.stored_functions import list_stored_functions

# The first key of the advisory locks; the second is the participant's number and the number of the stop.
LOCK_CLASS = 24004
MOST_STOPS = 24

STOP_HERE = f"""
create or replace function fairlead.stop_here() returns void language plpgsql volatile as $$
declare
    participant integer := nullif(current_setting('explorer.participant', true), '')::integer;
    number integer := coalesce(nullif(current_setting('explorer.stop', true), ''), '0')::integer + 1;
begin
    if participant is null or participant = 0 or number > {MOST_STOPS} then
        return;
    end if;
    perform set_config('explorer.stop', number::text, false);
    perform pg_advisory_lock_shared({LOCK_CLASS}, participant * 100 + number);
    perform pg_advisory_unlock_shared({LOCK_CLASS}, participant * 100 + number);
end
$$
"""
# Function names, and the texts of their sources before which to stop.
Stops = Mapping[str, tuple[str, ...]]
BEFORE_LOCKING_LIMITS = "    if array_position(got, null) is not null then"
BEFORE_COUNTING_LEASES = "    select jsonb_object_agg(s.name, coalesce(s.place, 0)),"
BEFORE_CHOOSING = "        -- 3. Turns between tenants."
BEFORE_TAKING = "    -- 4. Take."
BEFORE_INSERTING_KEY = (
    "            -- waits for an uncommitted holder of the key, so the answer below is final"
)
BEFORE_READING_KEY = "            select k.job_id, k.unique_until into holder from fairlead.active_keys k"
BEFORE_INSERTING_JOB = "    insert into fairlead.job_records ("
AROUND_LIMITS: Stops = {"budgets": (BEFORE_LOCKING_LIMITS, BEFORE_COUNTING_LEASES)}
WITHIN_CLAIM: Stops = {"claim": (BEFORE_CHOOSING, BEFORE_TAKING)}
WITHIN_ENQUEUE: Stops = {"enqueue_one": (BEFORE_READING_KEY, BEFORE_INSERTING_JOB)}
WITHIN_DEDUPE: Stops = {"enqueue_one": (BEFORE_INSERTING_KEY, BEFORE_READING_KEY)}


def key_of(participant: int, stop: int) -> int:
    """The second key of the advisory lock of a stop."""
    return participant * 100 + stop


def replace_once(text: str, old: str, new: str) -> str:
    """The text with its only occurrence of `old` replaced."""
    assert text.count(old) == 1, f"{text.count(old)} times in the source, not once: {old}"
    return text.replace(old, new)


def read_function(name: str) -> str:
    """The source of a stored function."""
    return next(one.text for one in list_stored_functions() if one.name == name)


def put_stops(text: str, before: tuple[str, ...]) -> str:
    """The source of a function with a stop before each of these texts."""
    for place in before:
        text = replace_once(text, place, f"    perform fairlead.stop_here();\n{place}")
    return text


async def apply_functions(connection: AsyncConnection[Any], changed: Mapping[str, str], stops: Stops) -> None:
    """Replace stored functions of this database by changed ones, and put stops into them."""
    if stops:
        await connection.execute(STOP_HERE.encode())
    for name in {*changed, *stops}:
        text = changed.get(name) or read_function(name)
        await connection.execute(put_stops(text, stops.get(name, ())).encode())
