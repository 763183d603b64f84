"""The live parts of a page: a refresh gets only those that differ from what the browser shows."""

import re
from collections.abc import Iterator
from hashlib import blake2s

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from fairlead.server.auth import LIVE_PARTS

_START = re.compile(r'<(\w+)\b(?=[^<>]*\sdata-live[\s>])[^<>]*?\sid="([\w-]+)"[^<>]*>')
# The browser writes relative times itself: they are not changes.
_RELATIVE = re.compile(r"(<time [^>]*data-moment>)[^<]*")


def answer_refresh(request: Request, html: str) -> Response:
    """The page; for a refresh, its changed parts as JSON, or 204 if there are none."""
    # the refresh names the live parts that the page shows, with their hashes: `levels=1f0c…,table=`
    asked = request.headers.get(LIVE_PARTS)
    if asked is None:
        return HTMLResponse(html)
    known = dict(one.partition("=")[::2] for one in asked.split(","))
    changed = {
        name: {"hash": mark, "html": part}
        for name, part in split_parts(html)
        if name in known and (mark := hash_part(part)) != known[name]
    }
    return JSONResponse(changed) if changed else Response(status_code=204)


def hash_part(part: str) -> str:
    """The hash of a part, without the text of relative times."""
    return blake2s(_RELATIVE.sub(r"\1", part).encode(), digest_size=8).hexdigest()


def split_parts(html: str) -> Iterator[tuple[str, str]]:
    """The elements with `data-live`, by id. Templates escape all values, so that each tag is one of ours."""
    for start in _START.finditer(html):
        yield start[2], html[start.start() : _find_end(html, start[1], start.end())]


def _find_end(html: str, tag: str, at: int) -> int:
    """Where the element ends whose start tag ends at `at`."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b[^<>]*>").finditer(html, at):
        depth += -1 if found[1] else 1
        if depth == 0:
            return found.end()
    raise ValueError(f"The page has a <{tag}> without an end.")
