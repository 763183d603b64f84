"""Pages out of templates, and how things are written on them."""

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

# A word for the next page: what became of an action.
FLASH = "fairlead_flash"
LONGEST_FLASH = 500
MINUTE, HOUR, DAY = 60, 3600, 86_400


@cache
def environment() -> jinja2.Environment:
    """Where the templates are, and what they know."""
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
        pretty=pretty,
        words=lambda value: str(value).replace("_", " "),
    )
    return made


def page(template: str, request: Request, **facts: Any) -> str:
    """A page, or a part of one."""
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
            flash=flashed(request),
            **facts,
        )
    )


# How things are written


def moment(value: datetime | None, *, missing: str = "") -> Markup:
    """A time: how long ago, and exactly when for those who ask. The browser keeps it up to date."""
    if value is None:
        return escape(missing)
    at = value.astimezone(UTC)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}" data-moment>{}</time>').format(
        at.isoformat(), exact, relative((datetime.now(UTC) - at).total_seconds())
    )


def relative(seconds: float) -> str:
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


def pretty(value: Any) -> str:
    """Something as JSON that people can read."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# A word for the next page


def flash(text: str) -> str:
    """A word as a cookie can hold it."""
    return quote(text[:LONGEST_FLASH])


def flashed(request: Request) -> str | None:
    """The word that the page before left."""
    text = request.cookies.get(FLASH)
    return None if text is None else unquote(text)[:LONGEST_FLASH]


def header_json(value: Any) -> str:
    """JSON for a header: nothing but ASCII."""
    return json.dumps(value, ensure_ascii=True)
