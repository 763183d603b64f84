"""Row-level security alone: what a statement forgets to ask for, it does not get."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from fairlead import Fairlead, Settings
from fairlead.db import migrate
from fairlead.db.binaries import Binaries, list_binaries
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import replace_database
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.model.job import JobStatus
from fairlead.store import access, audit, events, hosts, jobs, stats, tenants, triggers, workflows
from tests import given
from tests.acting import act
from tests.server import matrix
from tests.server.world import BASE, World, world_on

pytestmark = pytest.mark.postgres_only("it has a server of its own for each role")

FOUND = list_binaries()
TENANTS = (given.TENANT, given.OTHER)

# Tables without rows of tenants, and why a tenant's people have nothing to hide there, or may not look at all.
SYSTEM_ONLY = {
    "oidc_sign_ins": "sign-ins under way, of people who have no tenant yet; closed to tenants",
    "oidc_logouts": "hashes of logout tokens; closed to tenants",
    "job_definitions": "kinds of work are the same for every tenant, but for those registered for some: a policy hides them",
    "system": "the gate, one row",
    "duties": "the fleet's own chores; closed to tenants",
    "lost_workers": "which workers the fleet lost; closed to tenants",
    "definition_versions": "what definitions were; the console reads them for definitions that a tenant can see",
    "worker_claims": "which jobs a claim over HTTP took, by ids; closed to tenants",
    "source_messages": "ids of messages that became events, by source; closed to tenants",
    "handovers": "which attempts engines carry, by ids; closed to tenants",
    "cells": "where the databases are; closed to tenants",
    "allotments": "a cell's part of the limits of definitions; closed to tenants",
    "allotment_grants": "the parts of all cells; closed to tenants",
    "cell_rounds": "the rounds that divide limits; closed to tenants",
    "pulse": "the fleet's own; closed to tenants",
    "checks": "what the fleet's checks last found; closed to tenants",
    "migrations": "what was applied; closed to tenants",
    "function_sources": "what was applied; closed to tenants",
    "limit_locks": "rows to lock, made of ids; closed to tenants",
    "account_mails": "jobs of the tenant global; closed to tenants",
    "allowances": "what is left to callers, by hashes of who they are; closed to tenants",
}
READABLE = {"job_definitions", "system"}

# Functions that run with their definer's rights and that tenants may call, and what binds them instead.
OWN_RIGHTS = {
    "jobs_with_key": "it asks for the session's tenant itself; a test below calls it",
    "rates_of": "it tells when shared rates allow a start, for the session's own tenant",
    "token_state": "of a user whose id is known, it tells only whether a token of theirs would be good",
}

# One row of a tenant in every table that has rows of tenants: %(t)s is the tenant, %(id)s and %(d)s are its own.
ROWS: dict[str, str] = {
    "tenants": "select 1",  # there are two
    "job_workers": "insert into fairlead.job_workers (worker_id, tenant_id, hostname, version, queues) values (%(id)s::text, %(t)s, '', '', '{}')",
    "users": "insert into fairlead.users (id, tenant_id, email, password_hash, role) values (%(id)s, %(t)s, %(id)s::text || '@x', '-', 'viewer')",
    "sessions": "insert into fairlead.sessions (secret_hash, user_id, tenant_id, expires_at) select sha256(%(id)s::text::bytea), id, tenant_id, 'infinity' from fairlead.users where tenant_id = %(t)s limit 1",
    "second_factors": "insert into fairlead.second_factors (user_id, tenant_id, secret) select id, tenant_id, 'x' from fairlead.users u where tenant_id = %(t)s and not exists (select from fairlead.second_factors f where f.user_id = u.id) limit 1",
    "pending_sign_ins": "insert into fairlead.pending_sign_ins (secret_hash, user_id, tenant_id, user_updated_at, expires_at) select sha256(%(id)s::text::bytea), id, tenant_id, updated_at, 'infinity' from fairlead.users where tenant_id = %(t)s limit 1",
    "account_links": "insert into fairlead.account_links (secret_hash, user_id, tenant_id, purpose, expires_at, user_updated_at) select sha256(%(id)s::text::bytea), id, tenant_id, 'reset', 'infinity', updated_at from fairlead.users where tenant_id = %(t)s limit 1",
    "identities": "insert into fairlead.identities (user_id, tenant_id, issuer, subject, provider) select id, tenant_id, %(id)s::text, 'x', 'x' from fairlead.users where tenant_id = %(t)s limit 1",
    "oidc_sessions": "insert into fairlead.oidc_sessions (secret_hash, tenant_id, user_id, issuer, provider) select secret_hash, tenant_id, user_id, 'x', 'x' from fairlead.sessions where tenant_id = %(t)s limit 1",
    "tokens": "insert into fairlead.tokens (tenant_id, name, role, prefix, secret_hash) values (%(t)s, 'x', 'viewer', 'fl_', sha256(%(id)s::text::bytea))",
    "hosts": "insert into fairlead.hosts (id, tenant_id, name) values (%(id)s, %(t)s, %(id)s::text)",
    "resources": "insert into fairlead.resources (tenant_id, host_id, kind, name) select tenant_id, id, 'x', %(id)s::text from fairlead.hosts where tenant_id = %(t)s limit 1",
    "enrolment_codes": "insert into fairlead.enrolment_codes (code_hash, tenant_id, host_id, expires_at) select sha256(%(id)s::text::bytea), tenant_id, id, now() from fairlead.hosts where tenant_id = %(t)s limit 1",
    "tenant_cells": "with c as (insert into fairlead.cells (name, cell_id, schema_name, created_by) values ('home', gen_random_uuid(), 'fairlead', 'x') on conflict do nothing) insert into fairlead.tenant_cells (tenant_id, slug, cell) values (%(t)s, %(id)s::text, 'home')",
    "tenant_moves": "with c as (insert into fairlead.cells (name, cell_id, schema_name, created_by) values ('home', gen_random_uuid(), 'fairlead', 'x') on conflict do nothing) insert into fairlead.tenant_moves (tenant_id, slug, source, target, epoch, started_by) values (%(t)s, 'x', 'home', 'home', 1, 'x')",
    "deliveries": "insert into fairlead.deliveries (job_id, attempt_no, token, tenant_id, host_id) values (%(id)s, 1, %(id)s, %(t)s, %(id)s)",
    "job_records": "insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, payload, status, finished_at) values (%(id)s, %(t)s, %(d)s, 1, 1, now(), '{}', 'succeeded', now())",
    "ready": "insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for) values (%(id)s, %(t)s, %(d)s, 1, now())",
    "later": "insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at) values (%(id)s, %(t)s, %(d)s, 1, now())",
    "leases": "insert into fairlead.leases (job_id, attempt_no, token, worker_id, tenant_id, definition_id, expires_at) values (%(id)s, 1, %(id)s, 'x', %(t)s, %(d)s, now())",
    "active_keys": "insert into fairlead.active_keys (tenant_id, key_hash, job_id) values (%(t)s, sha256(%(id)s::text::bytea), %(id)s)",
    "job_tags": "insert into fairlead.job_tags (tenant_id, tag, job_id) values (%(t)s, 'x', %(id)s)",
    "expiries": "insert into fairlead.expiries (expires_at, job_id, tenant_id) values (now(), %(id)s, %(t)s)",
    "debounces": "insert into fairlead.debounces (tenant_id, key_hash, job_id, first_at, due_at) values (%(t)s, sha256(%(id)s::text::bytea), %(id)s, now(), now())",
    "job_attempts": "insert into fairlead.job_attempts (job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at) values (%(id)s, 1, %(t)s, %(id)s, 'x', 'lost', now(), now())",
    "key_locks": "insert into fairlead.key_locks (definition_id, tenant_id, limit_key) values (%(d)s, %(t)s, %(id)s)",
    "rate_buckets": "insert into fairlead.rate_buckets (definition_id, tenant_id, limit_key) values (%(d)s, %(t)s, %(id)s)",
    "removed_jobs": "insert into fairlead.removed_jobs (tenant_id, definition_id, jobs) values (%(t)s, %(d)s, 1)",
    "counts": "insert into fairlead.counts (tenant_id, definition_id, minute) values (%(t)s, %(d)s, now())",
    "count_levels": "insert into fairlead.count_levels (tenant_id, definition_id) values (%(t)s, %(d)s)",
    "usage_hourly": "insert into fairlead.usage_hourly values (%(t)s, %(d)s, now(), 1, 1, 0, 0, 0, 0, 1, 1, 1)",
    "tenant_use": "insert into fairlead.tenant_use (tenant_id) values (%(t)s) on conflict do nothing",
    "openings": "insert into fairlead.openings (tenant_id, quota, server_id, held, expires_at) "
    "values (%(t)s, 'long_polls', %(id)s, 1, 'infinity')",
    "run_jobs": "insert into fairlead.run_jobs (root_run_id, tenant_id, jobs) values (%(id)s, %(t)s, 1)",
    "usage_told": "insert into fairlead.usage_told (tenant_id, until) values (%(t)s, now())",
    "audit_log": "insert into fairlead.audit_log (tenant_id, actor, action, resource_type) values (%(t)s, 'x', 'x', 'x')",
    "idempotency_keys": "insert into fairlead.idempotency_keys (scope_id, key, body_hash) values (%(t)s, %(id)s::text, 'x')",
    "log_chunks": "insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, text) values (%(id)s, 1, 1, %(t)s, 'x')",
    "job_triggers": "insert into fairlead.job_triggers (id, tenant_id, label, trigger_type, event_name, definition_id) values (%(id)s, %(t)s, 'x', 'event', 'x', %(d)s)",
    "events": "insert into fairlead.events (id, tenant_id, name, data) values (%(id)s, %(t)s, 'x', '{}')",
    "events_waiting": "insert into fairlead.events_waiting (event_id, tenant_id) values (%(id)s, %(t)s)",
    "trigger_firings": "with g as (insert into fairlead.job_triggers (id, tenant_id, label, trigger_type, event_name, definition_id) values (%(id)s, %(t)s, 'x', 'event', 'x', %(d)s) returning id) insert into fairlead.trigger_firings (trigger_id, tenant_id, slot, outcome, reason) select id, %(t)s, 'x', 'skipped', 'x' from g",
    "dedupe_windows": "insert into fairlead.dedupe_windows (tenant_id, hash, job_id, expires_at) values (%(t)s, sha256(%(id)s::text::bytea), %(id)s, now())",
    "workflows": "insert into fairlead.workflows (tenant_id, key, version, spec) values (%(t)s, %(id)s::text, 1, '{}')",
    "workflow_runs": "insert into fairlead.workflow_runs (id, tenant_id, key, status, steps, input, finished_at) values (%(id)s, %(t)s, 'x', 'succeeded', 0, '{}', now())",
    "workflow_steps": "with r as (insert into fairlead.workflow_runs (id, tenant_id, key, status, steps, input, finished_at) values (%(id)s, %(t)s, 'x', 'succeeded', 1, '{}', now()) returning id) insert into fairlead.workflow_steps (run_id, place, tenant_id, name, definition_key, spec, before, next, on_failure, state, pending) select id, 0, %(t)s, 'x', 'x', '{}', '{}', '{}', 'stop', 'stopped', 0 from r",
    "ended_steps": "insert into fairlead.ended_steps (job_id, tenant_id) values (%(id)s, %(t)s)",
    "job_steps": "insert into fairlead.job_steps (job_id, position, attempt_no, status, kind, name, tenant_id, started_at) values (%(id)s, 0, 1, 'waiting', 'sleep', 'x', %(t)s, now())",
    "job_signals": "insert into fairlead.job_signals (id, job_id, tenant_id, name, sent_by) values (%(id)s, %(id)s, %(t)s, 'x', 'x')",
    "ended_children": "insert into fairlead.ended_children (job_id, tenant_id) values (%(id)s, %(t)s)",
    "approvals": "insert into fairlead.approvals (id, tenant_id, job_id, branch, position, name, title, roles) values (%(id)s, %(t)s, %(id)s, '', 0, 'x', 'x', '{}')",
    "failures": "insert into fairlead.failures (job_id, attempt_no, tenant_id) values (%(id)s, 1, %(t)s)",
    "error_groups": "insert into fairlead.error_groups (id, tenant_id, definition_id, fingerprint, pattern, sample, first_seen, last_seen, first_version, last_version, last_job_id, seen, failed, dead_letter) values (%(id)s, %(t)s, %(d)s, '', 'E', 'E', now(), now(), 1, 1, %(id)s, 1, 0, 0)",
    "error_group_hours": "insert into fairlead.error_group_hours (group_id, hour, tenant_id, failures) values (%(id)s, now(), %(t)s, 1)",
    "error_group_jobs": "insert into fairlead.error_group_jobs (job_id, group_id, tenant_id, status, failed_at) values (%(id)s, %(id)s, %(t)s, 'failed', now())",
    "error_group_changes": "insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter) values (%(id)s, %(t)s, 1, 0)",
    "saved_views": "insert into fairlead.saved_views (tenant_id, page, name, query, is_shared, owner, owner_id) values (%(t)s, '/jobs', %(id)s::text, '', true, 'x', %(id)s)",
    "tenant_keys": "insert into fairlead.tenant_keys (id, tenant_id, wrapped, master_key) values (%(id)s, %(t)s, '', 'x')",
    "hooks": "insert into fairlead.hooks (id, tenant_id, name, scheme, event_name, created_by) values (%(id)s, %(t)s, 'h' || replace(%(id)s::text, '-', ''), 'github', 'x', 'x')",
    "hook_secrets": "with h as (insert into fairlead.hooks (id, tenant_id, name, scheme, event_name, created_by) values (%(id)s, %(t)s, 'h' || replace(%(id)s::text, '-', ''), 'github', 'x', 'x') returning id) insert into fairlead.hook_secrets (hook_id, tenant_id, secret) select id, %(t)s, 'x' from h",
    "hook_deliveries": "with h as (insert into fairlead.hooks (id, tenant_id, name, scheme, event_name, created_by) values (%(id)s, %(t)s, 'h' || replace(%(id)s::text, '-', ''), 'github', 'x', 'x') returning id) insert into fairlead.hook_deliveries (hook_id, key, tenant_id, event_id) select id, sha256(%(id)s::text::bytea), %(t)s, %(id)s from h",
    "sources": "insert into fairlead.sources (name, driver, tenant_id, event) values (%(id)s::text, 'nats', %(t)s, 'x')",
    "live_tickets": "insert into fairlead.live_tickets (ticket_hash, tenant_id, actor, role, token_id, expires_at) values (sha256(%(id)s::text::bytea), %(t)s, 'x', 'viewer', %(id)s, now())",
}
# Theirs, but written only, or the fleet's alone: what is in them is not for them.
UNREADABLE = {
    "account_links",
    "identities",
    "oidc_sessions",
    "job_workers",
    "live_tickets",
    "deliveries",
    "enrolment_codes",
    "usage_told",
    "ended_steps",
    "failures",
    "hook_secrets",
    "pending_sign_ins",
    "second_factors",
    "tenant_cells",
    "tenant_moves",
}
# Of which a tenant reads more than its own: what is shared by all, which is the tenant `global`'s.
SHARED = {"workflows", "job_workers", "tenant_keys"}
OWNER_COLUMN = {"tenants": "id", "idempotency_keys": "scope_id"}
VIEWS = ("attempts", "audit_entries")
CATALOG = """
    select c.relname, c.relispartition, c.relrowsecurity, c.relforcerowsecurity,
        (select array_agg(p.polname::text order by p.polname::text) from pg_policy p where p.polrelid = c.oid),
        has_table_privilege('fairlead_tenant', c.oid, 'select'),
        has_table_privilege('fairlead_tenant', c.oid, 'insert, update, delete, truncate, references, trigger')
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'fairlead' and c.relkind in ('r', 'p', 'm', 'f')
"""


def owner_of(table: str) -> str:
    return OWNER_COLUMN.get(table, "tenant_id")


async def ids(tx: Tx) -> dict[str, UUID]:
    rows = await tx.values("select slug, id from fairlead.tenants")
    return {str(slug): tenant_id for slug, tenant_id in rows}


async def rows_of_both(database: Database) -> dict[str, UUID]:
    """A row of each tenant in every table."""
    async with database.transaction() as tx:
        found = await ids(tx)
        for table in ROWS:
            for slug in TENANTS:
                await insert(tx, table, found[slug])
    return found


async def insert(tx: Tx, table: str, tenant_id: UUID) -> None:
    [(definition,)] = await tx.values("select id from fairlead.job_definitions where key = 'anything'")
    await tx.run(ROWS[table], {"t": tenant_id, "id": uuid4(), "d": definition})


# On every PostgreSQL that is here, for a superuser and for an owner who is none


@asynccontextmanager
async def started(folders: pytest.TempPathFactory, binaries: Binaries) -> AsyncIterator[str]:
    server = EmbeddedPostgres(folders.mktemp("server") / "server", binaries=binaries)
    try:
        yield await asyncio.to_thread(server.start)
    finally:
        await asyncio.to_thread(server.stop)


def as_owner(url: str, *, createrole: bool) -> str:
    """The URL of an empty database whose owner is no superuser; a member of our roles, or one who may make roles."""
    owner, name = f"owner_{uuid4().hex[:8]}", f"owned_{uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        option = "createrole" if createrole else "nocreaterole"
        connection.execute(f"create role {owner} login {option}")
        if not createrole:
            for role in ("fairlead_system", "fairlead_tenant"):
                if not connection.execute("select from pg_roles where rolname = %s", [role]).fetchone():
                    connection.execute(f"create role {role} nologin")
                connection.execute(f"grant {role} to {owner}")
        connection.execute(f"create database {name} owner {owner}")
    return psycopg.conninfo.make_conninfo(replace_database(url, name), user=owner)


def as_superuser(url: str) -> str:
    """The URL of an empty database of the superuser's."""
    name = f"database_{uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return replace_database(url, name)


def as_guest(url: str) -> str:
    """The same database for a role that owns nothing and is a member of our two roles."""
    guest = f"guest_{uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create role {guest} login")
        connection.execute(f"grant fairlead_system, fairlead_tenant to {guest}")
    return psycopg.conninfo.make_conninfo(url, user=guest)


# The last one owns nothing: somebody else ran the migrations. `make test` has only this one.
KINDS = ("maker of roles", "member of roles", "superuser", "guest")
BOUND = [
    pytest.param(
        (binaries, kind),
        marks=() if binaries == FOUND[0] and kind == KINDS[-1] else pytest.mark.thorough,
        id=f"{binaries.major}-{kind}",
    )
    for binaries in FOUND
    for kind in KINDS
]


Servers = Callable[[Binaries, str], Awaitable[str]]


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    """The URL of a server of these binaries for this kind of owner.

    Our two roles belong to the server, and the maker of roles has to make them: it has a server to itself.
    """
    running: dict[Binaries, str] = {}
    async with AsyncExitStack() as stack:

        async def server(binaries: Binaries, kind: str) -> str:
            if kind == "maker of roles":
                return await stack.enter_async_context(started(tmp_path_factory, binaries))
            if binaries not in running:
                running[binaries] = await stack.enter_async_context(started(tmp_path_factory, binaries))
            return running[binaries]

        yield server


@pytest.fixture(
    scope="module",
    params=BOUND,
)
async def bound(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Database]:
    """A migrated database with two tenants and a row of each in every table, used by one of three kinds of owner."""
    binaries, kind = request.param
    server = await servers(binaries, kind)
    owner = (
        as_superuser(server)
        if kind in ("superuser", "guest")
        else as_owner(server, createrole=kind == "maker of roles")
    )
    await migrate.up(owner, "fairlead")
    url = as_guest(owner) if kind == "guest" else owner
    async with Database(url, Settings()) as database:
        await act(database, given.tenants_and_definitions)
        await rows_of_both(database)
        yield database


@pytest.fixture
async def found(bound: Database) -> Mapping[str, UUID]:
    return await act(bound, ids)


async def test_every_table_has_policies_or_a_reason(bound: Database) -> None:
    catalog = await act(bound, Tx.values, CATALOG)
    for name, partition, enabled, forced, policies, reads, writes in catalog:
        if partition:
            assert not reads, f"{name}: a partition has no policies of its own, and tenants may read it"
            assert not writes, f"{name}: a partition has no policies of its own, and tenants may write it"
        elif name in SYSTEM_ONLY:
            assert not writes, f"tenants may write {name}"
            assert reads is (name in READABLE), f"{name}: {SYSTEM_ONLY[name]}"
        else:
            assert name in ROWS, f"{name}: give it policies and a row in ROWS, or a reason in SYSTEM_ONLY"
            assert enabled, f"{name} has no row-level security"
            assert forced, f"{name} does not force row-level security upon its owner"
            expected = ["system_rows", "tenant_rows"]
            expected = ["shared_rows", *expected] if name in SHARED else expected
            assert policies == expected, f"{name} has other policies: {policies}"
    assert set(ROWS) <= {name for name, *_ in catalog}


async def test_every_table_that_names_a_tenant_is_a_tenants_table(bound: Database) -> None:
    async with bound.transaction() as tx:
        named = await tx.values(
            "select distinct c.relname from pg_attribute a join pg_class c on c.oid = a.attrelid "
            "join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'fairlead' "
            "and c.relkind in ('r', 'p') and not c.relispartition and a.attname = 'tenant_id' and not a.attisdropped"
        )
    assert {name for (name,) in named} <= set(ROWS)


async def test_nothing_goes_around_the_policies(bound: Database) -> None:
    async with bound.transaction() as tx:
        views = await tx.values(
            "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = 'fairlead' and (relkind = 'm' "
            "or relkind = 'v' and not coalesce('security_invoker=true' = any(reloptions), false))"
        )
        definers = await tx.values(
            "select proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
            "where n.nspname = 'fairlead' and prosecdef and has_function_privilege('fairlead_tenant', p.oid, 'execute')"
        )
        roles = await tx.values(
            "select rolname from pg_roles where rolname in ('fairlead_tenant', 'fairlead_system') "
            "and (rolsuper or rolbypassrls or rolcanlogin)"
        )
        member = await tx.values("select pg_has_role('fairlead_tenant', 'fairlead_system', 'member')")
    assert views == [], "a view reads with its owner's rights unless it says security_invoker"
    unexplained = {name for (name,) in definers} - OWN_RIGHTS.keys()
    assert not unexplained, "a function of its definer's rights knows no tenant"
    assert roles == []
    assert member == [(False,)]


async def test_a_tenant_finds_no_rows_but_its_own(bound: Database, found: Mapping[str, UUID]) -> None:
    for table in (*ROWS, *VIEWS):
        column = owner_of(table)
        async with bound.transaction() as tx:
            both = await tx.values(
                f"select distinct {column} from fairlead.{table} where {column} = any(%s)",
                [[found[slug] for slug in TENANTS]],
            )
        assert len(both) == 2, f"both have rows of {table}, or this test could not fail"
        async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
            if await allowed(tx, table, "select"):
                seen = await tx.values(f"select distinct {column} from fairlead.{table}")
                assert seen == [(found[given.TENANT],)], f"{table} shows rows of others"
            else:
                assert table in UNREADABLE, f"tenants cannot read {table}"


async def allowed(tx: Tx, table: str, what: str) -> bool:
    [(answer,)] = await tx.values("select has_table_privilege(%s, %s)", [f"fairlead.{table}", what])
    return bool(answer)


async def test_a_shared_workflow_is_read_by_every_tenant_and_changed_by_none(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    async with bound.transaction() as tx:
        await tx.run(
            "insert into fairlead.workflows (tenant_id, is_shared, key, version, spec) values (%s, true, 'all', 1, '{}')",
            [found["global"]],
        )
    for slug in TENANTS:
        async with bound.transaction(TransactionIdentity(found[slug])) as tx:
            assert await tx.values("select key from fairlead.workflows where is_shared") == [("all",)]
        mine = f"values ('{found[slug]}', true, 'mine', 1, '{{}}')"
        for statement in (
            "update fairlead.workflows set version = 2 where is_shared",
            "delete from fairlead.workflows where is_shared",
            f"insert into fairlead.workflows (tenant_id, is_shared, key, version, spec) {mine}",
        ):
            with pytest.raises((errors.InsufficientPrivilege, errors.CheckViolation)):
                async with bound.transaction(TransactionIdentity(found[slug])) as tx:
                    await tx.run(statement)
    await act(bound, Tx.run, "delete from fairlead.workflows where is_shared")


async def test_of_workers_a_tenant_reads_what_its_own_and_everybodys_serve(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    async with bound.transaction() as tx:
        await tx.run(
            "insert into fairlead.job_workers (worker_id, hostname, version, queues) values ('w', '', '', '{}')"
        )
    async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
        seen = await tx.values("select distinct tenant_id from fairlead.job_workers order by 1")
        assert seen == [(found[given.TENANT],), (None,)]
    for column in ("worker_id", "hostname", "metadata"):
        with pytest.raises(errors.InsufficientPrivilege):
            async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
                await tx.values(f"select {column} from fairlead.job_workers")
    await act(bound, Tx.run, "delete from fairlead.job_workers where worker_id = 'w'")


async def test_nobody_finds_any_row_without_a_tenant(bound: Database) -> None:
    for table in ROWS:
        async with bound.transaction() as tx:
            await tx.values("select set_config('role', 'fairlead_tenant', true)")
            if await allowed(tx, table, "select"):
                assert await tx.values(f"select 1 from fairlead.{table}") == [], table


async def test_a_tenant_changes_no_rows_but_its_own(bound: Database, found: Mapping[str, UUID]) -> None:
    other = found[given.OTHER]
    for table in ROWS:
        column = owner_of(table)
        for statement in (
            f"update fairlead.{table} set {column} = {column} where {column} = %s",
            f"delete from fairlead.{table} where {column} = %s",
        ):
            with pytest.raises((Done, errors.InsufficientPrivilege)):
                async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
                    raise Done(await tx.run(statement, [other]))


async def test_a_tenant_cannot_write_a_row_of_another(bound: Database, found: Mapping[str, UUID]) -> None:
    own, other = found[given.TENANT], found[given.OTHER]
    for table in ROWS.keys() - {"tenants"}:
        column = owner_of(table)
        if table not in (
            "sessions",
            "identities",
            "oidc_sessions",
            "resources",
            "enrolment_codes",
        ):  # those are made from rows that the tenant does not even see
            with pytest.raises(errors.InsufficientPrivilege):
                async with bound.transaction(TransactionIdentity(own)) as tx:
                    await tx.run(ROWS[table], {"t": other, "id": uuid4(), "d": uuid4()})
        with pytest.raises(errors.InsufficientPrivilege):
            async with bound.transaction(TransactionIdentity(own)) as tx:
                await tx.run(f"update fairlead.{table} set {column} = %s where {column} = %s", [other, own])
                raise AssertionError(f"a row of {table} was given to another tenant")


class Done(Exception):
    """Ends a transaction without its changes; says how many rows were touched, which must be none."""

    def __init__(self, touched: int) -> None:
        super().__init__(touched)
        assert touched == 0, f"{touched} rows of another tenant were touched"


async def test_the_stores_queries_without_their_tenant_find_only_the_tenants_own(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    own = found[given.TENANT]
    async with bound.transaction(TransactionIdentity(own)) as tx:
        seen = [
            *[job.tenant_id for job in await jobs.find(tx, {}, limit=1000)],
            *[entry.tenant_id for entry in await audit.list_recent(tx, limit=1000)],
            *[one.tenant_id for one in await access.list_tokens(tx, tenant_id=None, after=None, limit=1000)],
            *[one.tenant_id for one in await access.list_users(tx, tenant_id=None, after=None, limit=1000)],
            *[one.id for one in await tenants.list_all(tx)],
            *[
                one.tenant_id
                for one in await triggers.list_page(tx, {}, tenant_id=None, before=None, limit=1000)
            ],
            *[
                one.tenant_id
                for one in await events.list_page(
                    tx, tenant_id=None, name=None, correlation_id=None, before=None, limit=1000
                )
            ],
            *[one.tenant_id for one in await hosts.list_page(tx, tenant_id=None, after=None, limit=1000)],
            *[one.tenant_id for one in await workflows.list_newest(tx, tenant_id=None, after="", limit=1000)],
            *[
                one.tenant_id
                for one in await workflows.list_runs(
                    tx, tenant_id=None, key=None, status=None, before=None, limit=1000
                )
            ],
            *[
                one.tenant_id
                for one in await hosts.list_resources(
                    tx, tenant_id=None, host_id=None, kind=None, after=None, limit=1000
                )
            ],
        ]
        assert await tenants.get(tx, given.OTHER) is None
        assert await tenants.get_ids(tx, TENANTS) == {given.TENANT: own}
        assert len(await stats.list_running(tx, tenant_id=None, limit=1000)) <= 1
    assert set(seen) == {own}


async def test_another_tenants_job_is_not_there_for_any_query(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    async with bound.transaction() as tx:
        job = await given.running_job(tx, tenant=given.OTHER)
        waiting = await given.queued_job(tx, tenant=given.OTHER)
    async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
        assert await jobs.get(tx, job) is None
        assert await jobs.list_attempts(tx, job) == []
        assert not await jobs.cancel_queued(tx, waiting)
        assert not await jobs.request_cancel(tx, job)
        assert not await jobs.lock_terminal(tx, job)


async def test_jobs_are_found_by_key_for_their_own_tenant_only(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    async with bound.transaction() as tx:
        made = {slug: await given.queued_job(tx, tenant=slug, dedupe_key="shared") for slug in TENANTS}
    for slug in TENANTS:
        async with bound.transaction(TransactionIdentity(found[slug])) as tx:
            assert await tx.values("select fairlead.jobs_with_key('shared', 10)") == [(made[slug],)]
    async with bound.transaction() as tx:
        await tx.values("select set_config('role', 'fairlead_tenant', true)")
        assert await tx.values("select fairlead.jobs_with_key('shared', 10)") == []


async def test_the_role_and_the_tenant_end_with_the_transaction(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    async with bound.transaction(TransactionIdentity(found[given.TENANT])) as tx:
        [(inside,)] = await tx.values("select current_user::text")
    for _ in range(bound.settings.pool_size):
        async with bound.transaction() as tx:
            [(outside, tenant)] = await tx.values(
                "select current_user::text, current_setting('fairlead.tenant_id', true)"
            )
            assert (inside, outside != inside, tenant or "") == ("fairlead_tenant", True, "")


async def test_an_agents_token_cannot_name_another_tenants_host(
    bound: Database, found: Mapping[str, UUID]
) -> None:
    with pytest.raises(errors.ForeignKeyViolation):
        async with bound.transaction() as tx:
            await tx.run(
                "insert into fairlead.tokens (tenant_id, host_id, name, role, prefix, secret_hash) "
                "select %s, id, 'x', 'agent', 'fl_', 'x' from fairlead.hosts where tenant_id = %s limit 1",
                [found[given.TENANT], found[given.OTHER]],
            )


async def test_work_goes_on_under_the_policies(bound: Database) -> None:
    async with bound.transaction() as tx:  # rows that were made up for the tests above are no jobs
        for table in ("ready", "later", "leases", "active_keys", "job_attempts", "job_records", "counts"):
            await tx.run(f"delete from fairlead.{table}")
    fl = Fairlead(settings=Settings(database_url=bound.url))

    @fl.job(key="double")
    async def double(n: int) -> int:
        return 2 * n

    async with fl:
        one = await double.enqueue(n=1, tenant=given.TENANT)
        many = await fl.enqueue_many(
            [given.request(definition="double", payload={"n": n}, tenant=given.OTHER) for n in range(3)]
        )
        await fl.tick(10)
        assert (await one.read()).output == 2
        for job in many:
            done = await act(fl, jobs.get, job.id)
            assert done is not None
            assert done.status is JobStatus.SUCCEEDED
        await given.no_inconsistencies(fl.database)


# With what the application asks for taken away


@pytest.fixture
async def forgetful(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A build in which no statement asks for a tenant any more."""
    async with world_on(database_url) as world:
        async with world.fl.database.transaction() as tx:
            for slug in TENANTS:
                await given.queued_job(tx, tenant=slug, correlation_id=f"of {slug}")
                await given.running_job(tx, tenant=slug)
                await given.ended_job(tx, "failed", tenant=slug)
                for param in ("trigger_id", "event_id", "key", "run_id"):
                    await matrix.BUILDERS[param].make(tx, world, slug)
        for name in ("all", "first", "values", "dicts", "run", "run_quick"):
            monkeypatch.setattr(Tx, name, _forgetting(getattr(Tx, name)))
        yield world
        monkeypatch.undo()


_ASKED = re.compile(
    r"(\w+\.)?\btenant_id = %\(tenant_id\)s(::uuid)?"
    r"|\(\w+\.tenant_id, [^)]*\) [<>]=? \(%\(tenant_id\)s, .*\)$",
    re.MULTILINE,
)


def _forgetting(method: Any) -> Any:
    async def forget(self: Tx, *args: Any) -> Any:
        *before, query, params = args if len(args) > 1 else (*args, None)
        if isinstance(params, Mapping) and "tenant_id" in params and not _INSERTS.search(query):
            query, params = _ASKED.sub("true", query), {**params, "tenant_id": None}
        return await method(self, *before, query, params)

    return forget


_INSERTS = re.compile(r"^\s*insert\b", re.MULTILINE)


@pytest.mark.thorough
async def test_with_every_where_on_the_tenant_forgotten_no_route_shows_a_foreign_row(
    forgetful: World,
) -> None:
    foreign = await _foreign_names(forgetful)
    for rule in matrix.api_rules():
        if rule.method != "GET" or rule.open:
            continue
        for about in ("own", "other") if rule.about else ("own",):
            tenant = given.OTHER if about == "other" else given.TENANT
            values = {}
            async with forgetful.fl.database.transaction() as tx:
                for param in rule.params:
                    values[param] = str(await matrix.builder(rule, param).make(tx, forgetful, tenant))
            answer = await forgetful.call(
                "GET",
                BASE + rule.path.format(**values),
                who="tenant_admin",
                params=matrix.QUERIES.get(str(rule), {}),
            )
            assert answer.status_code < 500, f"{rule}: {answer.text}"
            text = answer.text
            for name in values.values():  # an id that was asked for may be repeated in the refusal
                text = text.replace(name, "") if answer.status_code in (403, 404) else text
            shown = [name for name in foreign if name in text]
            assert not shown, f"{rule} shows what belongs to another tenant: {shown}"


async def test_that_build_would_leak_without_row_level_security(
    forgetful: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.db.database.TENANT_ROLE", "none")
    answer = await forgetful.call("GET", "/jobs", who="viewer")
    assert f"of {given.OTHER}" in answer.text, "or the test above could not fail"


async def _foreign_names(world: World) -> list[str]:
    """Everything by which the other tenant's rows could be known."""
    async with world.fl.database.transaction() as tx:
        other = world.tenants[given.OTHER]
        rows = await tx.values(
            "select id::text from fairlead.jobs where tenant_id = %(t)s union all "
            "select id::text from fairlead.tokens where tenant_id = %(t)s union all "
            "select id::text from fairlead.hosts where tenant_id = %(t)s union all "
            "select id::text from fairlead.resources where tenant_id = %(t)s union all "
            "select id::text from fairlead.job_triggers where tenant_id = %(t)s union all "
            "select id::text from fairlead.workflows where tenant_id = %(t)s union all "
            "select id::text from fairlead.workflow_runs where tenant_id = %(t)s union all "
            "select id::text from fairlead.events where tenant_id = %(t)s",
            {"t": other},
        )
    return [str(other), f"of {given.OTHER}", *(name for (name,) in rows)]
