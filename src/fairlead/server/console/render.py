"""Renders templates, and formats values for them."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

import jinja2
from fastapi import Request
from markupsafe import Markup, escape

from fairlead.model import ansi
from fairlead.model.access import Permission
from fairlead.model.flow import describe_rate
from fairlead.model.job import JobStatus
from fairlead.model.spreadsheet import MOST_ROWS
from fairlead.server.console import assets, number_format
from fairlead.version import __version__

# Cookie with a message for the next page.
FLASH = "fairlead_flash"
LONGEST_FLASH = 500
MINUTE, HOUR, DAY = 60, 3600, 86_400
_WRITTEN = {
    "second": "%a %Y-%m-%d %H:%M:%S",
    "minute": "%a %Y-%m-%d %H:%M",
    "hour": "%Y-%m-%d %H:%M",
    "day": "%Y-%m-%d",
    "month": "%Y-%m",
}


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment with our globals and filters."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fairlead.server.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_strip_escapes,
    )
    made.globals.update(
        icon=assets.icon,
        Permission=Permission,
        JobStatus=JobStatus,
        most_csv_rows=MOST_ROWS,
        version=__version__,
    )
    made.filters.update(
        moment=moment,
        duration=_format_duration,
        milliseconds=_format_milliseconds,
        short=lambda value: str(value)[-8:],
        number=number_format.number,
        exact=exact_time,
        zoned=zoned_time,
        pretty=pretty_json,
        rate=describe_rate,
        words=lambda value: str(value).replace("_", " "),
    )
    return made


def _strip_escapes(value: Any) -> Any:
    """Text without terminal escape sequences: errors and output of commands have colours."""
    if type(value) is str and not value.isprintable():
        return ansi.strip_ansi(value)
    return value


def render_page(template: str, request: Request, **facts: Any) -> str:
    """Render a page or a part of one."""
    root = str(request.scope.get("root_path", ""))
    names = assets.hashed_names()
    return (
        environment()
        .get_template(template)
        .render(
            root=root,
            api=root.removesuffix("/console") + "/api/v1",
            asset=lambda name: f"{root}/static/{names[name]}",
            path=request.url.path.removeprefix(root),
            query=dict(request.query_params),
            query_text=request.url.query,
            api_url=str(request.base_url).rstrip("/").removesuffix("/console") + "/api/v1",
            flash=read_flash(request),
            separator=number_format.thousands_separator(request.headers.get("accept-language", "")),
            **facts,
        )
    )


# Formats


def moment(value: datetime | None, *, missing: str = "") -> Markup:
    """A relative time with the exact time as its tooltip. A script keeps it up to date."""
    if value is None:
        return escape(missing)
    at = value.astimezone(UTC)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}" data-moment>{}</time>').format(
        at.isoformat(), exact, relative_time((datetime.now(UTC) - at).total_seconds())
    )


def exact_time(value: datetime, parts: str = "second") -> Markup:
    """An exact time; `short` has no year and no seconds. A script writes it in the reader's time zone and format."""
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" data-exact="{}">{}</time>').format(
        at.isoformat(), parts, at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def zoned_time(value: datetime, zone: str, parts: str = "second") -> Markup:
    """An exact time in a zone that the page names. A script writes it in the reader's format."""
    at = value.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}" data-exact="{}" data-zone="{}">{}</time>').format(
        at.isoformat(), parts, zone, at.strftime(_WRITTEN[parts])
    )


def relative_time(seconds: float) -> str:
    """`3 min ago`, `in 2 h`."""
    if abs(seconds) < 1:
        return "now"
    text = duration(abs(seconds), parts=1)
    return f"{text} ago" if seconds > 0 else f"in {text}"


def duration(seconds: float | None, *, parts: int = 2) -> str:
    """`850 ms`, `3.2 s`, `4 min 10 s`, `2 d 3 h`."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10 and parts > 1:
        return f"{seconds:.1f} s"
    left = int(seconds)
    found: list[str] = []
    for size, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or found:
            found.append(f"{count} {name}" if count else "")
    return " ".join(one for one in found[:parts] if one)


@jinja2.pass_context
def _format_duration(context: jinja2.runtime.Context, seconds: float | None) -> str:
    return duration(seconds).replace(".", number_format.decimal_mark(str(context.get("separator", ","))))


@jinja2.pass_context
def _format_milliseconds(context: jinja2.runtime.Context, value: float | None) -> str:
    return "" if value is None else _format_duration(context, value / 1000)


def pretty_json(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# Message for the next page


def encode_flash(text: str) -> str:
    """Encode a message for a cookie."""
    return quote(text[:LONGEST_FLASH])


def read_flash(request: Request) -> str | None:
    """The message of the previous page, if any."""
    text = request.cookies.get(FLASH)
    return None if text is None else unquote(text)[:LONGEST_FLASH]


def header_json(value: Any) -> str:
    """JSON for a header: ASCII only."""
    return json.dumps(value, ensure_ascii=True)
