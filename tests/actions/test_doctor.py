"""The doctor's look at row-level security, and at stored functions that are missing."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fairlead.actions.doctor import examine
from fairlead.db import migrate, schema_node
from fairlead.db.sharded_tables import ShardedTables
from fairlead.model.finding import Finding, Verdict
from fairlead.settings import Settings


async def found(url: str) -> Finding:
    findings = [one async for one in examine(url, Settings())]
    return next(one for one in findings if one.check == "row_security")


async def test_a_migrated_database_has_it(database_url: str) -> None:
    assert (await found(database_url)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("breakage", "fault"),
    [
        (
            "alter table fairlead.job_records no force row level security",
            "job_records has no forced row-level security",
        ),
        ("alter table fairlead.audit_log disable row level security", "audit_log has no forced"),
        ("drop policy tenant_rows on fairlead.tokens", "tokens has no policy for fairlead_tenant"),
        ("drop policy system_rows on fairlead.leases", "leases has no policy for fairlead_system"),
        ("create table fairlead.notes (tenant_id uuid)", "notes has no forced row-level security"),
    ],
)
async def test_what_was_taken_away_is_named(database_url: str, breakage: str, fault: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(breakage)

    finding = await found(database_url)

    assert finding.verdict is Verdict.FAIL
    assert fault in finding.detail


async def test_a_role_that_is_no_member_is_told_which_grant_it_needs(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create role outsider login; grant usage on schema fairlead to outsider")
        connection.execute(
            "grant select, insert, update, delete on all tables in schema fairlead to outsider"
        )
        connection.execute("grant execute on all functions in schema fairlead to outsider")
        try:
            finding = await found(make_conninfo(database_url, user="outsider"))
        finally:
            connection.execute("drop owned by outsider; drop role outsider")

    assert finding.verdict is Verdict.FAIL
    assert "this role is not a member of fairlead_tenant" in finding.detail
    assert "grant fairlead_system, fairlead_tenant to" in finding.advice


async def test_membership_of_the_two_roles_is_all_that_a_role_needs(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create role runner login in role fairlead_system, fairlead_tenant")
        try:
            url = make_conninfo(database_url, user="runner")
            findings = [one async for one in examine(url, Settings())]
        finally:
            connection.execute("drop owned by runner; drop role runner")

    assert [one for one in findings if one.verdict is Verdict.FAIL] == []


def drop_function(url: str, name: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(f"drop function fairlead.{name}".encode())


async def test_a_stored_function_that_is_missing_is_found_and_migrate_up_restores_it(
    database_url: str,
) -> None:
    drop_function(database_url, "prepare_audit_days")

    *_, finding = [finding async for finding in examine(database_url, Settings())]

    assert (finding.check, finding.verdict) == ("schema", Verdict.FAIL)
    assert "1 stored function(s): prepare_audit_days. Run: fairlead migrate up" in finding.detail
    await migrate.up(database_url, "fairlead")
    *_, finding = [finding async for finding in examine(database_url, Settings())]
    assert (finding.check, finding.verdict) == ("consistency", Verdict.OK)


async def test_on_citus_too_it_is_found_where_every_transaction_calls_a_stored_function(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_node(url: str, schema: str) -> str:
        return url

    async def open_shards(url: str, schema: str) -> ShardedTables:
        return ShardedTables({}, {})

    monkeypatch.setattr(schema_node, "find_node", find_node)
    monkeypatch.setattr(schema_node, "open_shards", open_shards)
    drop_function(database_url, "hold_placement")

    *_, finding = [finding async for finding in examine(database_url, Settings(citus=True))]

    assert (finding.check, finding.verdict) == ("database", Verdict.FAIL)
    assert "hold_placement() does not exist. Run: fairlead migrate up" in finding.detail
