"""Prints triggers: as a table, in detail, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from fairlead.cli import output
from fairlead.model.schedule.backfill import Backfill, BackfillPreview
from fairlead.model.trigger import Firing, Trigger
from fairlead.model.trigger_kinds import describe_trigger, kind_of


def trigger_document(trigger: Trigger, latest: Firing | None) -> dict[str, Any]:
    """A trigger as JSON: its fields, its schedule in words, and its last firing."""
    kept = {name: value for name, value in asdict(trigger).items() if name != "secret_paths"}
    return {"id": trigger.id, **kept, "when": describe_trigger(trigger), "last_firing": latest}


def print_triggers(found: Sequence[Trigger], latest: Mapping[UUID, Firing]) -> None:
    """Print triggers, one per line."""
    output.print_table(
        ("id", "tenant", "label", "when", "definition", "enabled", "next run", "last fired", "outcome"),
        [
            (
                one.id,
                one.tenant,
                one.label,
                describe_trigger(one),
                one.definition_key,
                "yes" if one.is_enabled else "no",
                "over" if one.is_over else one.next_fire_at,
                one.last_fired_at,
                latest[one.id].outcome if one.id in latest else None,
            )
            for one in found
        ],
        empty="No matching triggers. Add one with: fairlead triggers add --tenant TENANT --definition KEY --cron '0 2 * * *'",
    )


def print_trigger(trigger: Trigger) -> None:
    """Print a trigger in detail."""
    own = kind_of(trigger).fields
    pairs = [
        ("id", trigger.id),
        ("tenant", trigger.tenant),
        ("label", trigger.label),
        ("when", describe_trigger(trigger)),
        ("cron", trigger.cron_expr),
        ("time zone", None if trigger.cron_expr is None else _describe_zone(trigger)),
        ("filter", _json(trigger.filter) if trigger.filter else None),
        ("definition", trigger.definition_key),
        ("payload", _json(trigger.payload_template)),
        ("job options", _json(trigger.job_options) if trigger.job_options else None),
        ("window", f"{trigger.dedupe_window_seconds} s" if trigger.dedupe_window_seconds else None),
        ("catch up", trigger.catch_up if "catch_up" in own else None),
        ("overlap", trigger.overlap if "overlap" in own else None),
        ("enabled", "yes" if trigger.is_enabled else "no"),
        ("end", None if trigger.end_at is None else output.format_moment(trigger.end_at)),
        ("jitter", f"{trigger.jitter_seconds} s" if trigger.jitter_seconds else None),
        ("next run", "over" if trigger.is_over else output.format_moment(trigger.next_fire_at)),
        ("last fired", output.format_moment(trigger.last_fired_at)),
        ("managed by", None if trigger.owner is None else f"the code of {trigger.owner}, as {trigger.name}"),
        ("created", f"{output.format_moment(trigger.created_at)} by {trigger.created_by}"),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)


def print_backfill_preview(found: BackfillPreview, *, as_json: bool) -> None:
    """Print the instants of a range, and how far their jobs are."""
    if as_json:
        output.print_json(found)
        return
    number = f"more than {found.limit:,}" if found.is_too_large else f"{found.count:,}"
    output.console().print(f"{number} instants, {found.fired:,} of them with a job", style="bold")
    if found.jobs:
        output.console().print(", ".join(f"{number:,} {status}" for status, number in found.jobs.items()))
    if found.is_too_large:
        output.console().print(f"The most of one backfill are {found.limit:,}: choose shorter ranges.")
    output.print_table(
        ("instant", "job"),
        [(f"{one.at:%F %T} UTC", one.job_id) for one in found.instants],
        empty="No instants.",
    )


def print_backfill(done: Backfill, *, as_json: bool) -> None:
    """Print the result of a backfill."""
    if as_json:
        output.print_json(done)
        return
    output.console().print(f"enqueued {done.enqueued:,} jobs; {done.fired:,} instants had one already")
    if done.enqueued:
        output.console().print(f"see them with: fairlead jobs list --correlation-id {done.correlation_id}")


def _describe_zone(trigger: Trigger) -> str:
    return trigger.timezone or f"{trigger.tenant_timezone}, the tenant's"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
