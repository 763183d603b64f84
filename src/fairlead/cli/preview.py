"""`fairlead triggers preview`: the next runs of a trigger or of an unsaved schedule, or the effect of an event."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.text import Text

from fairlead.actions.preview import PreviewRequest, PreviewResult, TriggerPreview, preview_trigger
from fairlead.cli import output
from fairlead.cli.field_options import field_options, option_of
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command
from fairlead.errors import Fault, InvalidInput, TriggerFormInvalid
from fairlead.model.schedule.spec import ScheduledRun, in_words, preview_new
from fairlead.model.trigger import TriggerRequest, TriggerType
from fairlead.model.trigger_kinds.schedule import build_schedule

MOST = 100
WOULD = {
    PreviewResult.ENQUEUE: "would enqueue",
    PreviewResult.DEDUPLICATE: "would enqueue nothing: this job of the deduplication window has the same payload",
    PreviewResult.NOTHING: "would do nothing: the event does not match the trigger",
    PreviewResult.FAIL: "would fail",
}


@click.command()
@click.argument("trigger_id", type=click.UUID, required=False)
@field_options(
    TriggerRequest,
    *("cron_expr", "timezone", "every_seconds", "start_at", "end_at", "jitter_seconds"),
    timezone="The time zone of --cron and of the printed runs (default UTC).",
)
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
    wanted = PreviewRequest(trigger_id=trigger_id, event_id=event_id, sample=data, count=count)
    async with session.open() as fl, fl.transaction() as tx:
        found = await preview_trigger(tx, fl.principal, fl.catalog, wanted)
    if as_json:
        output.print_json(found)
    else:
        _print_preview(found)


def _print_unsaved_schedule(count: int, *, as_json: bool, **says: Any) -> None:
    """Print the runs of an unsaved schedule, without a database."""
    if (says["cron_expr"] is None) == (says["every_seconds"] is None):
        raise TriggerFormInvalid(
            "Give exactly one of a trigger's id, --cron and --every.", [Fault("", "not exactly one")]
        )
    said = TriggerRequest(label="", trigger_type=TriggerType.SCHEDULE, definition_key="", **says)
    now, zone = datetime.now(UTC), said.timezone or "UTC"
    schedule = build_schedule(said, zone, start_at=now)
    runs = preview_new(schedule, now, count, zone=zone)
    if as_json:
        output.print_json({"in_words": in_words(schedule), "runs": runs})
    else:
        _print_runs(in_words(schedule), runs)


def _refuse_schedule_options(says: Mapping[str, Any]) -> None:
    if extra := sorted(name for name, value in says.items() if value is not None):
        raise InvalidInput(f"The trigger already has a schedule: leave out {option_of(extra[0])}.")


def _print_preview(found: TriggerPreview) -> None:
    if found.in_words is not None:
        _print_runs(found.in_words, found.runs)
        if found.would is not PreviewResult.FAIL:
            return
        output.console().print()
    output.console().print(WOULD[found.would], style="red" if found.would is PreviewResult.FAIL else "bold")
    facts = [("job", found.job_id), ("payload", _json(found.payload))]
    facts += [(fault.path or "/", fault.message) for fault in found.errors]
    output.print_facts((name, value) for name, value in facts if value is not None)


def _print_runs(words: str, runs: Sequence[ScheduledRun]) -> None:
    output.console().print(words, style="bold", markup=False)
    delayed = any(run.fires_at != run.at for run in runs)
    columns = ("local", "offset", "UTC", *(["fires (UTC)"] if delayed else []), "", "note")
    output.print_table(columns, [_row(run, delayed=delayed) for run in runs], empty="It does not run again.")


def _row(run: ScheduledRun, *, delayed: bool) -> tuple[Any, ...]:
    fires = "with jitter" if run.fires_at is None else f"{run.fires_at:%F %T}"
    times = (f"{run.local:%a %F %T}", run.offset, f"{run.at:%F %T}", *([fires] if delayed else []))
    return (*times, run.fires_at or run.at, Text(run.note or "", "yellow"))


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
