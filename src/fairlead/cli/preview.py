"""`fairlead triggers preview`: the next runs of a trigger or of an unsaved schedule, or the effect of an event."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.text import Text

from fairlead.actions.preview import PreviewRequest, PreviewResult, TriggerPreview
from fairlead.actions.preview import preview_trigger as preview_of
from fairlead.actions.preview_subject import TriggerChoice
from fairlead.actions.trigger_spec import find_first
from fairlead.cli import output
from fairlead.cli.jobs import read_json
from fairlead.cli.session import CommandSession, command
from fairlead.errors import Fault, InvalidInput, TriggerFormInvalid
from fairlead.model.schedule.spec import ScheduledRun, in_words
from fairlead.model.schedule.spec import preview_runs as runs_of
from fairlead.model.trigger import TriggerType, build_schedule

MOST = 100
WOULD = {
    PreviewResult.ENQUEUE: "would enqueue",
    PreviewResult.DEDUPLICATE: "would enqueue nothing: this job of the deduplication window has the same payload",
    PreviewResult.NOTHING: "would do nothing: the event does not match the trigger",
    PreviewResult.FAIL: "would fail",
}


@click.command()
@click.argument("trigger_id", type=click.UUID, required=False)
@click.option("--cron", help='When to run, such as "0 2 * * *" or @daily.')
@click.option("--timezone", help="The time zone of --cron and of the printed runs (default UTC).")
@click.option("--every", type=int, metavar="SECONDS", help="Run at this interval; 0 means once.")
@click.option("--start-at", type=output.Moment(), help="When the interval begins (default: now).")
@click.option("--event-id", type=click.UUID, help="Try the trigger with this past event.")
@click.option("--sample", help="Try the trigger with an event with this data (JSON).")
@click.option("--count", type=click.IntRange(1, MOST), default=5, show_default=True, help="How many runs.")
@output.json_option
@command
async def preview(
    session: CommandSession,
    *,
    trigger_id: UUID | None,
    event_id: UUID | None,
    sample: str | None,
    count: int,
    as_json: bool,
    **says: Any,
) -> None:
    """Show the next runs of a trigger or of an unsaved schedule; or the effect of an event on a trigger."""
    if trigger_id is None:
        if event_id is not None or sample is not None:
            raise InvalidInput("Give the id of the trigger to try with this event.")
        _print_unsaved_schedule(count, as_json=as_json, **says)
        return
    _refuse_schedule_options(says)
    data = None if sample is None else read_json(sample, "sample")
    wanted = PreviewRequest(trigger=TriggerChoice(id=trigger_id), event_id=event_id, sample=data, count=count)
    async with session.open() as fl, fl.transaction() as tx:
        grace = fl.settings.schedule_grace_seconds
        found = await preview_of(tx, fl.principal, fl.catalog, wanted, grace_seconds=grace)
    if as_json:
        output.print_json(found)
    else:
        _print_preview(found)


def _print_unsaved_schedule(
    count: int,
    *,
    cron: str | None,
    timezone: str | None,
    every: int | None,
    start_at: datetime | None,
    as_json: bool,
) -> None:
    """Print the runs of an unsaved schedule, without a database."""
    if (cron is None) == (every is None):
        raise TriggerFormInvalid(
            "Give exactly one of a trigger's id, --cron and --every.", [Fault("", "not exactly one")]
        )
    now, zone = datetime.now(UTC), timezone or "UTC"
    schedule = build_schedule(cron_expr=cron, zone=zone, every_seconds=every, start_at=start_at or now)
    first = find_first(schedule, now)  # an interval that begins now runs now
    after = now if first is None else first - timedelta.resolution
    runs = runs_of(schedule, after, count, zone=zone)
    if as_json:
        output.print_json({"in_words": in_words(schedule), "runs": runs})
    else:
        _print_runs(in_words(schedule), runs)


def _refuse_schedule_options(says: Mapping[str, Any]) -> None:
    if extra := sorted(name for name, value in says.items() if value is not None):
        raise InvalidInput(f"The trigger already has a schedule: leave out --{extra[0].replace('_', '-')}.")


def _print_preview(found: TriggerPreview) -> None:
    if found.trigger_type is TriggerType.SCHEDULE:
        _print_runs(str(found.in_words), found.runs)
        if found.would is not PreviewResult.FAIL:
            return
        output.console().print()
    output.console().print(WOULD[found.would], style="red" if found.would is PreviewResult.FAIL else "bold")
    facts = [("job", found.job_id), ("payload", _json(found.payload))]
    facts += [(fault.path or "/", fault.message) for fault in found.errors]
    output.print_facts((name, value) for name, value in facts if value is not None)


def _print_runs(words: str, runs: Sequence[ScheduledRun]) -> None:
    output.console().print(words, style="bold", markup=False)
    output.print_table(
        ("local", "offset", "UTC", "", "note"),
        [
            (f"{run.local:%a %F %T}", run.offset, f"{run.at:%F %T}", run.at, Text(run.note or "", "yellow"))
            for run in runs
        ],
        empty="It does not run again.",
    )


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
