"""Renders templates, and formats values for them."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

import jinja2
from fastapi import Request
from markupsafe import Markup, escape

from fairlead.model.access import Permission
from fairlead.model.job import JobStatus
from fairlead.server.console import assets
from fairlead.version import __version__

# Cookie with a message for the next page.
FLASH = "fairlead_flash"
LONGEST_FLASH = 500
MINUTE, HOUR, DAY = 60, 3600, 86_400


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment with our globals and filters."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fairlead.server.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        icon=assets.icon,
        Permission=Permission,
        JobStatus=JobStatus,
        version=__version__,
    )
    made.filters.update(
        moment=moment,
        duration=duration,
        milliseconds=lambda value: "" if value is None else duration(value / 1000),
        short=lambda value: str(value)[-8:],
        number=lambda value: f"{value:,}",
        pretty=pretty_json,
        words=lambda value: str(value).replace("_", " "),
    )
    return made


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
            api_url=str(request.base_url).rstrip("/").removesuffix("/console") + "/api/v1",
            flash=read_flash(request),
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
