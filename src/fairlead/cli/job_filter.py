"""The options that select jobs, shared by several commands.

Each has the name of its field of JobFilter, as the library and the API have it; a second, shorter name may follow.
"""

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
    click.option(
        "--definition-key", "--definition", "definition_key", help="Only jobs of this definition: its key."
    ),
    click.option("--host-id", "--host", "host_id", type=click.UUID, help="Only jobs for this host: its id."),
    click.option("--dedupe-key"),
    click.option("--correlation-id"),
    click.option(
        "--workflow-run-id",
        "--run",
        "workflow_run_id",
        type=click.UUID,
        help="Only the steps of this workflow run.",
    ),
    click.option("--created-after", type=output.Moment(), help="Such as 2026-02-16 or 2026-02-16T10:30:00Z."),
    click.option("--created-before", type=output.Moment()),
    click.option(
        "--waiting-for", type=output.enum_choice(WaitingFor), help="Queued jobs, by what they wait for."
    ),
    click.option(
        "--worker", help="The worker that runs the job or ran it last: its id, or the beginning of it."
    ),
    click.option("--error", help="A part of the last error."),
    click.option(
        "--duration-over",
        "--longer-than",
        "duration_over",
        type=float,
        help="The last attempt took longer than so many seconds.",
    ),
    click.option(
        "--duration-under",
        "--shorter-than",
        "duration_under",
        type=float,
        help="The last attempt took less than so many seconds.",
    ),
    click.option(
        "--tags",
        "--tag",
        "tags",
        multiple=True,
        help="Only jobs with this tag; may be repeated: then with all of them.",
    ),
    click.option(
        "--payload-contains",
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
    return _add_options(function, "--payload", "--where")


def retry_filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for `retry`, whose own --payload is the new payload of one job."""
    return _add_options(function, "--where")


def _add_options(function: Callable[..., Any], *payload: str) -> Callable[..., Any]:
    of_payload = click.option(
        *payload,
        "payload_values",
        multiple=True,
        metavar="PATH=VALUE",
        help="A value of the payload, such as customer.id=42; * stands for any characters. May be repeated.",
    )
    for option in reversed((*_OPTIONS, of_payload)):
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
        else read_json(payload_contains, "value of --payload-contains"),
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
    tags = given.pop("tags", ())
    values = given.pop("payload", {})
    pairs = [
        *((name.replace("_", "-"), _format_value(value)) for name, value in given.items()),
        *(("where", f"{path}={text}") for path, text in values.items()),
        *(("tags", tag) for tag in tags),
    ]
    return " ".join(f"--{name} {value}" for name, value in pairs)


def _format_value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return ",".join(value) if isinstance(value, list) else str(value)
