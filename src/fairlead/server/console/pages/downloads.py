"""The lists of the console as CSV: each with the filters and the permission of its page.

No column has payloads, outputs, data of events or tokens: see the record itself for those.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from fairlead.actions import (
    access,
    audit,
    error_groups,
    events,
    hosts,
    jobs,
    sources,
    system,
    triggers,
    webhooks,
    workflows,
)
from fairlead.db.tx import Tx
from fairlead.model.error_groups import GroupOrder
from fairlead.model.trigger_kinds import describe_trigger
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.csv_download import PAGE_ROWS, download_csv, fields, page_by_id
from fairlead.server.console.pages import audit as audit_page
from fairlead.server.console.pages import definitions as definitions_page
from fairlead.server.console.pages import errors as errors_page
from fairlead.server.console.pages import events as events_page
from fairlead.server.console.pages import hosts as hosts_page
from fairlead.server.console.pages import jobs as jobs_page
from fairlead.server.console.pages import members as members_page
from fairlead.server.console.pages import sources as sources_page
from fairlead.server.console.pages import tenants as tenants_page
from fairlead.server.console.pages import tokens as tokens_page
from fairlead.server.console.pages import triggers as triggers_page
from fairlead.server.console.pages import webhooks as webhooks_page
from fairlead.server.console.pages import workers as workers_page
from fairlead.server.console.pages import workflow_runs as runs_page
from fairlead.server.console.pages import workflows as workflows_page

router = APIRouter(route_class=GuardedRoute)

Rows = Sequence[Any]

JOBS = fields(
    *("id", "tenant", "definition_key", "status", "source", "priority", "attempt_count", "failure_count"),
    *("lost_count", "max_attempts", "queued_at", "scheduled_for", "started_at", "finished_at", "cost_cents"),
    *("dedupe_key", "correlation_id", "parent_id", "workflow_run_id", "host_id", "claimed_by_worker"),
    *("created_by", "last_error"),
)
ERRORS = fields(
    *(
        "id",
        "tenant",
        "definition_key",
        "pattern",
        "failed",
        "dead_letter",
        "seen",
        "first_seen",
        "last_seen",
    ),
    *("first_version", "last_version", "last_job_id", "is_muted", "muted_by", "muted_until", "mute_note"),
)
TRIGGERS = {
    **fields("id", "tenant", "label", "trigger_type"),
    "fires": describe_trigger,
    **fields(
        "definition_key", "is_enabled", "is_over", "next_fire_at", "last_fired_at", "created_at", "created_by"
    ),
}
FIRINGS = fields(
    *("id", "fired_at", "outcome", "job_id", "reason", "detail", "event_id", "scheduled_at", "covers_until"),
    "covers",
)
EVENTS = {
    **fields("id", "tenant", "name"),
    "source": lambda one: events_page.source_of(one.data),
    **fields("correlation_id", "occurred_at", "recorded_at", "dispatched_at", "replay_of", "created_by"),
}
WEBHOOKS = {
    **fields("id", "tenant"),
    "url": lambda one: one.payload_template.get("url"),
    **fields("event_name", "is_enabled", "last_fired_at", "created_at", "created_by"),
}
HOSTS = fields(
    *("id", "tenant", "name", "online", "draining", "running", "max_running", "agent_version"),
    *("last_seen_at", "paused_at", "paused_by", "pause_note", "created_at", "created_by"),
)
RESOURCES = fields("id", "tenant", "host", "kind", "name", "created_at", "created_by")
WORKERS = fields(
    *("worker_id", "tenant", "stale", "hostname", "version", "started_at", "last_seen_at", "running_count"),
    *("concurrency", "drain_requested_at", "drain_requested_by", "queues"),
)
SOURCES = fields(
    *("name", "driver", "tenant", "event", "state", "messages", "duplicates", "refused", "last_message_at"),
    *("last_refusal", "failing_since", "last_error", "paused_at", "paused_by", "note", "seen_at"),
)
WORKFLOWS = {
    **fields("key", "version", "tenant", "is_shared"),
    "steps": lambda one: len(one.spec["steps"]),
    "description": lambda one: one.spec.get("description"),
    **fields("created_at", "created_by"),
}
RUNS = {
    **fields("id", "tenant", "key", "version", "status", "steps", "created_at", "finished_at", "created_by"),
    **fields("correlation_id"),
    "error": lambda one: _read_message(one.error),
}
STEPS = {
    **fields("place", "name", "definition_key", "state", "queued_at", "started_at", "finished_at", "items"),
    **fields("failed", "canceled", "job_id", "job_status", "attempt_count"),
    "error": lambda one: _read_message(one.trouble),
}
AUDIT = fields(
    *("at", "actor", "principal_id", "action", "tenant", "resource_type", "resource_id", "details", "ip")
)
MEMBERS = fields(
    "id", "email", "role", "tenant", "created_at", "created_by", "disabled_at", "has_second_factor"
)
TOKENS = fields(
    *("id", "name", "role", "tenant", "state", "host_id", "definitions", "created_at", "created_by"),
    *("last_used_at", "expires_at", "revoked_at"),
)
DEFINITIONS = fields(
    *("key", "description", "kind", "is_active", "paused_at", "timeout_seconds", "max_attempts"),
    *("default_priority", "max_running", "max_running_per_tenant", "retention_days", "version", "updated_at"),
)
TENANTS = {
    "tenant": lambda one: one.queue.tenant,
    "name": lambda one: one.queue.name,
    "queued": lambda one: one.queue.queued,
    "oldest_queued_seconds": lambda one: one.queue.oldest_queued_seconds,
    "running": lambda one: one.queue.running,
    "max_running": lambda one: one.queue.max_running,
    "weight": lambda one: one.queue.weight,
    **fields("succeeded", "failed"),
    "dead_letter": lambda one: one.queue.dead_letter,
    "paused_at": lambda one: one.queue.paused_at,
}


# Work


@router.get("/jobs.csv")
async def download_jobs(request: Request, visit: jobs_page.Reader) -> Response:
    """The jobs, newest first."""
    async with visit.transaction() as tx:
        asked = await jobs_page.build_filter(tx, visit, jobs_page.JobsPageQuery.of(request))

    async def fetch(tx: Tx, cursor: str | None) -> tuple[Rows, str | None]:
        page = await jobs.list_jobs(tx, visit.principal, asked, limit=PAGE_ROWS, cursor=cursor)
        return page.items, page.next_cursor

    return await download_csv(visit, "jobs", JOBS, fetch)


@router.get("/errors.csv")
async def download_errors(request: Request, visit: errors_page.Reader) -> Response:
    """The groups of errors, in the order of the page."""
    wanted = errors_page.ErrorsPageQuery.of(request)

    async def fetch(tx: Tx, offset: int | None) -> tuple[Rows, int | None]:
        start = offset or 0
        found = await error_groups.list_groups(
            tx,
            visit.principal,
            wanted.filter(),
            order=GroupOrder(wanted.sort),
            limit=error_groups.MAX_PAGE,
            offset=start,
        )
        more = found.more and start + len(found) < errors_page.MOST_PAGES * errors_page.ROWS
        return found, start + len(found) if more else None

    return await download_csv(visit, "errors", ERRORS, fetch)


@router.get("/triggers.csv")
async def download_triggers(request: Request, visit: triggers_page.Reader) -> Response:
    """The triggers, newest first."""
    filters = triggers_page.TriggersPageQuery.of(request).filters()

    async def fetch(tx: Tx, before: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(
            await triggers.list_triggers(tx, visit.principal, before=before, limit=PAGE_ROWS, **filters)
        )

    return await download_csv(visit, "triggers", TRIGGERS, fetch)


@router.get("/triggers/{trigger_id}/firings.csv")
async def download_firings(request: Request, trigger_id: UUID, visit: triggers_page.Reader) -> Response:
    """A trigger's firings, newest first."""
    outcome = triggers_page.read_outcome(request)

    async def fetch(tx: Tx, before: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(
            await triggers.list_firings(
                tx, visit.principal, trigger_id, outcome=outcome, before=before, limit=PAGE_ROWS
            )
        )

    return await download_csv(visit, "firings", FIRINGS, fetch)


@router.get("/events.csv")
async def download_events(request: Request, visit: events_page.Reader) -> Response:
    """The events, newest first."""
    filters = events_page.read_filters(request)

    async def fetch(tx: Tx, before: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(
            await events.list_events(tx, visit.principal, before=before, limit=PAGE_ROWS, **filters)
        )

    return await download_csv(visit, "events", EVENTS, fetch)


@router.get("/webhooks.csv")
async def download_webhooks(visit: webhooks_page.Reader) -> Response:
    """The webhooks that the page shows, newest first."""

    async def fetch(tx: Tx, _: None) -> tuple[Rows, None]:
        return await webhooks.list_newest(tx, visit.principal), None

    return await download_csv(visit, "webhooks", WEBHOOKS, fetch)


@router.get("/workflows.csv")
async def download_workflows(visit: workflows_page.Reader) -> Response:
    """The workflows, by key."""

    async def fetch(tx: Tx, after: tuple[str, UUID] | None) -> tuple[Rows, tuple[str, UUID] | None]:
        key, tenant_id = after or ("", None)
        found = await workflows.list_workflows(
            tx, visit.principal, after=key, after_tenant=tenant_id, limit=PAGE_ROWS
        )
        following = None if found.last is None else (found.last.key, found.last.tenant_id)
        return workflows_page.hide_shadowed(visit, found), following

    return await download_csv(visit, "workflows", WORKFLOWS, fetch)


@router.get("/workflow-runs.csv")
async def download_runs(request: Request, visit: runs_page.Reader) -> Response:
    """The runs, newest first."""
    filters = runs_page.read_filters(request)

    async def fetch(tx: Tx, before: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(
            await workflows.list_runs(tx, visit.principal, before=before, limit=PAGE_ROWS, **filters)
        )

    return await download_csv(visit, "runs", RUNS, fetch)


@router.get("/workflow-runs/{run_id}/steps.csv")
async def download_steps(run_id: UUID, visit: runs_page.Reader) -> Response:
    """The steps of a run, in their order."""

    async def fetch(tx: Tx, first: int | None) -> tuple[Rows, int | None]:
        shown = await workflows.show_run(tx, visit.principal, run_id, first=first or 0, limit=PAGE_ROWS)
        return shown.steps, shown.next_place

    return await download_csv(visit, "steps", STEPS, fetch)


# Machines


@router.get("/hosts.csv")
async def download_hosts(visit: hosts_page.Reader) -> Response:
    """The hosts, oldest first."""

    async def fetch(tx: Tx, after: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(await hosts.list_hosts(tx, visit.principal, after=after, limit=PAGE_ROWS))

    return await download_csv(visit, "hosts", HOSTS, fetch)


@router.get("/hosts/{host_id}/resources.csv")
async def download_resources(host_id: UUID, visit: hosts_page.Reader) -> Response:
    """The resources of a host, oldest first."""

    async def fetch(tx: Tx, after: UUID | None) -> tuple[Rows, UUID | None]:
        await hosts.get(tx, visit.principal, host_id)  # refuses an unknown host
        return page_by_id(
            await hosts.list_resources(tx, visit.principal, host_id=host_id, after=after, limit=PAGE_ROWS)
        )

    return await download_csv(visit, "resources", RESOURCES, fetch)


@router.get("/sources.csv")
async def download_sources(visit: sources_page.Reader) -> Response:
    """The sources, by name."""

    async def fetch(tx: Tx, after: str | None) -> tuple[Rows, str | None]:
        found = await sources.list_sources(tx, visit.principal, after=after or "", limit=PAGE_ROWS)
        return found, None if found.last is None else found.last.name

    return await download_csv(visit, "sources", SOURCES, fetch)


@router.get("/workers.csv")
async def download_workers(visit: workers_page.Reader) -> Response:
    """The workers, by id."""
    lease = visit.fl.settings.lease_seconds

    async def fetch(tx: Tx, after: str | None) -> tuple[Rows, str | None]:
        found = await system.list_workers(
            tx, visit.principal, lease_seconds=lease, after=after or "", limit=PAGE_ROWS
        )
        return found, None if found.last is None else found.last.worker_id

    return await download_csv(visit, "workers", WORKERS, fetch)


# Administration


@router.get("/audit.csv")
async def download_audit(request: Request, visit: audit_page.Reader) -> Response:
    """The audit entries, newest first."""
    asked = audit_page.AuditPageQuery.of(request).filter()

    async def fetch(tx: Tx, cursor: str | None) -> tuple[Rows, str | None]:
        page = await audit.list_entries(tx, visit.principal, asked, limit=PAGE_ROWS, cursor=cursor)
        return page.items, page.next_cursor

    return await download_csv(visit, "audit", AUDIT, fetch)


@router.get("/members.csv")
async def download_members(visit: members_page.Manager) -> Response:
    """The members."""

    async def fetch(tx: Tx, after: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(await access.list_users(tx, visit.principal, after=after, limit=PAGE_ROWS))

    return await download_csv(visit, "members", MEMBERS, fetch)


@router.get("/tokens.csv")
async def download_tokens(visit: tokens_page.Manager) -> Response:
    """The tokens, without any part of their secrets."""

    async def fetch(tx: Tx, after: UUID | None) -> tuple[Rows, UUID | None]:
        return page_by_id(await access.list_tokens(tx, visit.principal, after=after, limit=PAGE_ROWS))

    return await download_csv(visit, "tokens", TOKENS, fetch)


@router.get("/definitions.csv")
async def download_definitions(request: Request, visit: definitions_page.Reader) -> Response:
    """The definitions, by key."""

    async def fetch(tx: Tx, _: None) -> tuple[Rows, None]:
        return await definitions_page.find_definitions(tx, visit, definitions_page.read_words(request)), None

    return await download_csv(visit, "definitions", DEFINITIONS, fetch)


@router.get("/tenants.csv")
async def download_tenants(request: Request, visit: tenants_page.Reader) -> Response:
    """All tenants, by slug."""
    wanted = tenants_page.TenantsPageQuery.of(request)

    async def fetch(tx: Tx, after: str | None) -> tuple[Rows, str | None]:
        found = await system.compare_tenants(
            tx,
            visit.principal,
            seconds=tenants_page.SPANS[wanted.span],
            after=after or "",
            limit=PAGE_ROWS,
        )
        rows = [one for one in found if wanted.matches(one)]
        return rows, None if found.last is None else found.last.queue.tenant

    return await download_csv(visit, "tenants", TENANTS, fetch)


def _read_message(error: Any) -> str | None:
    """The message of a stored error, or its code."""
    return (error.get("message") or error.get("code")) if isinstance(error, dict) else None
