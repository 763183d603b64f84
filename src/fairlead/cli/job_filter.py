"""The options that select jobs, shared by several commands."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec import structs

from fairlead.actions.jobs import JobFilter
from fairlead.cli import output
from fairlead.cli.json_input import read_json
from fairlead.model.job import JobStatus, Source, WaitingFor

_OPTIONS = (
    click.option("--tenant", help="Only this tenant's jobs: slug or id."),
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=output.OneOrMore(JobStatus),
        help="One or more, separated by commas or repeated.",
    ),
    click.option("--source", type=output.enum_choice(Source)),
    click.option("--definition", "definition_key", help="Only jobs of this definition: its key."),
    click.option("--host", "host_id", type=click.UUID, help="Only jobs for this host: its id."),
    click.option("--dedupe-key"),
    click.option("--correlation-id"),
    click.option("--run", "workflow_run_id", type=click.UUID, help="Only the steps of this workflow run."),
    click.option("--created-after", type=output.Moment(), help="Such as 2026-02-16 or 2026-02-16T10:30:00Z."),
    click.option("--created-before", type=output.Moment()),
    click.option(
        "--waiting-for", type=output.enum_choice(WaitingFor), help="Queued jobs, by what they wait for."
    ),
    click.option(
        "--worker", help="The worker that runs the job or ran it last: its id, or the beginning of it."
    ),
    click.option("--error", help="A part of the last error."),
    click.option("--longer-than", "duration_over", type=float, help="Seconds that the last attempt took."),
    click.option("--shorter-than", "duration_under", type=float, help="Seconds that the last attempt took."),
    click.option(
        "--where",
        "payload_values",
        multiple=True,
        metavar="PATH=VALUE",
        help="A value of the payload, such as customer.id=42; * stands for any characters. May be repeated.",
    ),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        help="Only jobs with this tag; may be repeated: then with all of them.",
    ),
    click.option(
        "--contains",
        "payload_contains",
        metavar="JSON",
        help='Values that the payload has, such as \'{"customer": {"id": 42}}\'.',
    ),
    click.option(
        "--q",
        help=(
            "An id or a part of it; a part of a definition's key, of an error or of a payload; or the beginning of a "
            "correlation id or dedupe key."
        ),
    ),
)


def job_filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as keyword arguments for `build_filter`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def build_filter(
    *,
    statuses: Sequence[list[str]],
    source: str | None,
    waiting_for: str | None,
    payload_values: Sequence[str],
    payload_contains: str | None,
    tags: Sequence[str],
    **others: Any,
) -> JobFilter:
    """The filter for these options."""
    return JobFilter(
        status=[JobStatus(one) for several in statuses for one in several] or None,
        source=Source(source) if source else None,
        waiting_for=WaitingFor(waiting_for) if waiting_for else None,
        payload=dict(_split_pair(text) for text in payload_values) or None,
        tags=list(tags) or None,
        payload_contains=None
        if payload_contains is None
        else read_json(payload_contains, "value of --contains"),
        **others,
    )


def _split_pair(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise click.BadParameter(f"Write PATH=VALUE, such as customer.id=42: {text!r}.", param_hint="--where")
    return path, value


def describe_filter(wanted: JobFilter) -> str:
    """The filter as command line options, such as `--tenant acme --status failed`."""
    given = {name: value for name, value in structs.asdict(wanted).items() if value is not None}
    if wanted.payload_contains is not None:
        given["payload_contains"] = msgspec.json.encode(wanted.payload_contains).decode()
    options = {_OPTION_NAMES.get(name, name.replace("_", "-")): value for name, value in given.items()}
    tags = options.pop("tag", ())
    pairs = [(name, _format_value(value)) for name, value in options.items()] + [("tag", tag) for tag in tags]
    return " ".join(f"--{name} {value}" for name, value in pairs)


_OPTION_NAMES = {
    "definition_key": "definition",
    "host_id": "host",
    "workflow_run_id": "run",
    "duration_over": "longer-than",
    "duration_under": "shorter-than",
    "payload": "where",
    "payload_contains": "contains",
    "tags": "tag",
}


def _format_value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return " ".join(f"{path}={text}" for path, text in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)
