"""fairlead.enqueue: the door for plain SQL, in any language."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo
from psycopg.rows import TupleRow

from fairlead import Fairlead
from tests.given import TENANT
from tests.tables import each_case
from tests.waiting import SECONDS

ENQUEUE = "fairlead.enqueue"
GREETING = """select * from fairlead.enqueue('acme', 'greet', '{"name": "x"}')"""
Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def plain_url(database_url: str) -> Iterator[str]:
    """The database for a role that may look into the schema and nothing else."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("create role plain login")
        owner.execute("grant usage on schema fairlead to plain")
        yield conninfo.make_conninfo(database_url, user="plain")
        owner.execute("drop owned by plain")
        owner.execute("drop role plain")


@pytest.fixture
def plain(plain_url: str, database_url: str) -> Iterator[Connection]:
    """A connection of that role, with EXECUTE on the one function."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(f"grant execute on function {ENQUEUE} to plain".encode())
    with psycopg.connect(plain_url) as connection:
        yield connection
        connection.rollback()


async def test_a_role_with_execute_and_nothing_else_enqueues(fl: Fairlead, plain: Connection) -> None:
    row = plain.execute(GREETING).fetchone()
    plain.commit()

    assert row is not None
    job = await fl.read(row[0])
    assert row[1] is False
    assert (job.tenant, job.definition_key, job.payload) == (TENANT, "greet", {"name": "x"})
    assert (job.created_by, job.source) == ("plain", "manual")


async def test_every_option_can_be_named(fl: Fairlead, plain: Connection) -> None:
    named = """
        select job_id, deduplicated from fairlead.enqueue(tenant => 'acme', definition => 'anything',
            payload => '{}', priority => -5, scheduled_for => '2999-01-01T00:00:00Z', max_attempts => 1000,
            dedupe_key => 'one', correlation_id => 'trace')
    """
    first, again = plain.execute(named).fetchone(), plain.execute(named).fetchone()
    plain.commit()

    assert first is not None
    job = await fl.read(first[0])
    assert (job.priority, job.max_attempts, job.dedupe_key) == (-5, 1000, "one")
    assert (job.correlation_id, job.scheduled_for.year) == ("trace", 2999)
    assert again == (job.id, True)


async def test_a_debounced_job_gets_the_last_payload(fl: Fairlead, plain: Connection) -> None:
    debounced = """
        select job_id from fairlead.enqueue('acme', 'anything', jsonb_build_object('n', %s::int),
            debounce => '{"key": "k", "seconds": 3600}')
    """
    first, last = (plain.execute(debounced, [n]).fetchone() for n in (1, 2))
    plain.commit()

    assert first is not None
    assert first == last
    assert (await fl.read(first[0])).payload == {"n": 2}


@pytest.mark.parametrize(("scheduled_for", "word"), [(None, "ready"), ("2999-01-01", "later")])
async def test_workers_are_told_where_the_job_waits(
    plain: Connection, database_url: str, scheduled_for: str | None, word: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as listening:
        listening.execute("listen fairlead")
        plain.execute("select fairlead.enqueue('acme', 'anything', scheduled_for => %s)", [scheduled_for])
        plain.commit()
        [told] = listening.notifies(timeout=SECONDS, stop_after=1)
    assert told.payload == word


@each_case(
    ("code", "arguments"),
    [
        ("tenant_unknown", "'nobody', 'greet'"),
        ("tenant_unknown", "'00000000-0000-0000-0000-000000000000', 'greet'"),
        ("tenant_unknown", "null, 'greet'"),
        ("definition_unknown", "'acme', 'no-such-thing'"),
        ("definition_unknown", "'acme', null"),
        ("definition_inactive", "'acme', 'retired'"),
        ("payload_invalid", "'acme', 'anything', '[]'"),
        ("payload_invalid", "'acme', 'anything', '1'"),
        ("payload_invalid", "'acme', 'anything', 'null'"),
        ("payload_invalid", "'acme', 'anything', null"),
        ("payload_too_large", "'acme', 'anything', jsonb_build_object('a', repeat('x', 262144))"),
        ("invalid_input", "'acme', 'anything', max_attempts => 0"),
        ("invalid_input", "'acme', 'anything', max_attempts => 1001"),
        ("invalid_input", "'acme', 'anything', scheduled_for => 'infinity'"),
        ("invalid_input", "'acme', 'anything', scheduled_for => '-infinity'"),
        ("invalid_input", "'acme', 'anything', correlation_id => repeat('x', 256)"),
        ("invalid_input", "'acme', 'anything', correlation_id => ''"),
    ],
)
def test_a_refusal_is_an_exception_with_its_code_in_the_detail(
    plain: Connection, code: str, arguments: str
) -> None:
    plain.rollback()  # the refusal before
    with pytest.raises(psycopg.Error) as refusal:
        plain.execute(f"select fairlead.enqueue({arguments})".encode())

    assert refusal.value.sqlstate == "FL001"
    assert refusal.value.diag.message_detail == code


@each_case(
    "arguments",
    [
        "'{}', scheduled_for => '20000-01-01'",
        "'{}', scheduled_for => '0044-03-15 BC'",
        """(repeat('{"a":', 2000) || '1' || repeat('}', 2000))::jsonb""",
        """'{"a": 1e6000}'""",
        "'{}', dedupe_key => ''",
        "'{}', priority => 2147483647",
    ],
)
def test_what_the_library_would_refuse_is_refused_here_too(plain: Connection, arguments: str) -> None:
    plain.rollback()  # the refusal before
    with pytest.raises(psycopg.Error) as refusal:
        plain.execute(f"select fairlead.enqueue('acme', 'anything', {arguments})".encode())

    assert refusal.value.sqlstate == "FL001"


@pytest.mark.parametrize(
    "statement",
    [
        GREETING,
        "select fairlead.enqueue_joined('[]')",
        "select * from fairlead.enqueue_one('acme', 'anything', '{}')",
        "select fairlead.prepare_audit_days(1)",
        "select * from fairlead.resolve('acme', 'greet', 1)",
        "select from fairlead.jobs",
    ],
)
def test_without_execute_every_door_is_shut(plain_url: str, statement: str) -> None:
    with psycopg.connect(plain_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())
