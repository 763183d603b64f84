"""`fairlead audit`."""

from datetime import datetime, timedelta
from typing import Any

import click
import msgspec
from msgspec.structs import asdict, replace
from rich.text import Text

from fairlead.actions import audit as actions
from fairlead.actions.audit import AuditFilter, AuditPosition, StoredEntry
from fairlead.cli import output
from fairlead.cli.audit_export import export, key, verify
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import CommandSession, list_command
from fairlead.cli.tenant_names import Slugs, read_slugs, slug_of
from fairlead.cli.tokens import limit_to_tenant, open_tenant_transaction
from fairlead.db.tx import Tx
from fairlead.model.access import Principal
from fairlead.runtime.service import wait_any

EVERY_SECONDS = 1.0
# An entry is visible only after its transaction commits, which may be after newer entries are visible.
LOOK_BACK = timedelta(seconds=5)


@click.group(invoke_without_command=True)
@click.option("--tenant", help="Only this tenant's entries: slug or id.")
@click.option("--action", help="Only this action, such as JOBS_CANCELED.")
@click.option("--actor", help="Only by this actor, such as cli:ada.")
@click.option("--principal", "principal_id", type=click.UUID, help="Only by the user or token with this id.")
@click.option("--resource", metavar="TYPE[:ID]", help="Only about this resource, such as job or job:ID.")
@click.option("--since", type=output.PastMoment(), help="Not before this: a time, or 15m, 2h, 1d ago.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=50, show_default=True)
@click.option("--cursor", help="Continue after the page that printed this cursor.")
@click.option("-f", "--follow", is_flag=True, help="Also print new entries, until Ctrl-C.")
@output.json_option
@click.pass_context
def audit(context: click.Context, /, **options: Any) -> None:
    """Show the audit log: each actor, action and resource. Newest first; with --follow, oldest first."""
    if context.invoked_subcommand is None:
        _show(**options)


audit.add_command(export)
audit.add_command(verify)
audit.add_command(key)


@list_command
async def _show(
    session: CommandSession,
    *,
    tenant: str | None,
    resource: str | None,
    since: datetime | None,
    limit: int,
    cursor: str | None,
    follow: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    kind, _, thing = (resource or "").partition(":")
    wanted = AuditFilter(resource_type=kind or None, resource_id=thing or None, after=since, **filters)
    if follow:
        await _follow(session, tenant, wanted, limit=limit, as_json=as_json)
        return
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        page = await actions.list_entries(tx, principal, wanted, limit=limit, cursor=cursor)
        slugs = await read_slugs(tx, principal)
    if as_json:
        items = [_document(one, slugs) for one in page.items]
        output.print_json({"items": items, "next_cursor": page.next_cursor})
        return
    output.print_table(
        ("at", "tenant", "actor", "principal", "action", "resource", "details"),
        [_row(one, slugs) for one in page.items],
        empty="No matching audit entries.",
    )
    if page.next_cursor:
        output.console(stderr=True).print(f"more: --cursor {page.next_cursor}", style="dim")


async def _follow(
    session: CommandSession, tenant: str | None, wanted: AuditFilter, *, limit: int, as_json: bool
) -> None:
    """Print the latest entries, oldest first, and then new ones, until a stop signal."""
    stop = stop_signal()
    async with session.open() as fl:
        async with fl.transaction() as tx:
            principal = await limit_to_tenant(tx, fl.principal, tenant)
        follower = Follower(wanted, limit)
        while not stop.is_set():
            async with fl.transaction() as tx:
                found = await follower.look(tx, principal)
                slugs = await read_slugs(tx, principal) if found else {}
            for one in found:
                _print_line(one, slugs, as_json=as_json)
            await wait_any(stop, seconds=EVERY_SECONDS)


class Follower:
    """Finds the entries that are new since the last read."""

    def __init__(self, wanted: AuditFilter, limit: int) -> None:
        self._wanted = wanted
        self._limit = limit
        self._seen: set[AuditPosition] | None = None
        self._newest: datetime | None = None

    async def look(self, tx: Tx, principal: Principal) -> list[StoredEntry]:
        """New entries, oldest first; at the first read, the latest `limit` entries."""
        if self._seen is None:
            return await self._begin(tx, principal)
        found = [one for one in await self._read_recent(tx, principal) if one.place not in self._seen]
        self._remember(found)
        return found[::-1]

    async def _begin(self, tx: Tx, principal: Principal) -> list[StoredEntry]:
        # an entry that is added between these reads is in the last one, or the next call finds it
        self._seen = set()
        self._remember((await actions.list_entries(tx, principal, self._wanted, limit=1)).items)
        self._remember(await self._read_recent(tx, principal))
        page = await actions.list_entries(tx, principal, self._wanted, limit=self._limit)
        self._remember(page.items)
        return page.items[::-1]

    async def _read_recent(self, tx: Tx, principal: Principal) -> list[StoredEntry]:
        """Every entry since LOOK_BACK before the newest one that was seen, newest first."""
        wanted = self._wanted
        if self._newest is not None:
            since = self._newest - LOOK_BACK
            wanted = replace(wanted, after=since if wanted.after is None else max(since, wanted.after))
        found: list[StoredEntry] = []
        cursor = None
        while True:
            page = await actions.list_entries(tx, principal, wanted, limit=actions.MAX_PAGE, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    def _remember(self, found: list[StoredEntry]) -> None:
        """Remember the entries that were seen, as long as they can be found again."""
        self._newest = max((one.at for one in found), default=self._newest)
        known = (self._seen or set()) | {one.place for one in found}
        oldest = None if self._newest is None else self._newest - LOOK_BACK
        self._seen = {place for place in known if oldest is None or place.at >= oldest}


def _print_line(one: StoredEntry, slugs: Slugs, *, as_json: bool) -> None:
    if as_json:
        output.print_json(_document(one, slugs))
        return
    tenant, *rest = _row(one, slugs)[1:]
    parts = [one.at.isoformat(timespec="seconds"), tenant or "–", *rest]
    output.console().print(Text("  ".join(str(part) for part in parts if part is not None)))


def _document(one: StoredEntry, slugs: Slugs) -> dict[str, Any]:
    """An entry as JSON, as in the REST API, with its tenant's slug."""
    kept = {name: value for name, value in asdict(one).items() if name not in ("part", "spot", "n")}
    return {**kept, "tenant": slug_of(one.tenant_id, slugs)}


def _row(one: StoredEntry, slugs: Slugs) -> tuple[Any, ...]:
    about = one.resource_type if one.resource_id is None else f"{one.resource_type} {one.resource_id}"
    details = msgspec.json.encode(one.details).decode() if one.details else None
    return one.at, slug_of(one.tenant_id, slugs), one.actor, one.principal_id, one.action, about, details
