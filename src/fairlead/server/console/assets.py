"""Files of the console: each named with a hash of its content, so that browsers may keep it for good."""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from markupsafe import Markup

from fairlead.errors import NotFound

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


def folder() -> Traversable:
    """Where they are."""
    return files("fairlead.server.console").joinpath("static")


@cache
def hashed_names() -> dict[str, str]:
    """By their own names, the names that they are served under."""
    return {one.name: _hashed(one.name) for one in folder().iterdir() if one.is_file()}


def _hashed(name: str) -> str:
    mark = hashlib.sha256(folder().joinpath(name).read_bytes()).hexdigest()[:12]
    stem, dot, ending = name.partition(".")
    return f"{stem}-{mark}{dot}{ending}"


@cache
def content(served: str) -> tuple[bytes, str]:
    """The file that is served under this name, and its type."""
    for name, other in hashed_names().items():
        if other == served:
            return folder().joinpath(name).read_bytes(), TYPES["." + name.rpartition(".")[2]]
    raise NotFound("There is no such file.")


@cache
def icon(name: str) -> Markup:
    """A small drawing beside words: to those who do not see it, nothing."""
    text = folder().joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
    inner = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    return Markup(  # noqa: S704 - our own files
        '<svg class="icon" aria-hidden="true" width="16" height="16" viewBox="0 0 24 24" fill="none" stroke="currentColor"'
        f' stroke-width="2" stroke-linecap="round" stroke-linejoin="round">{inner.strip()}</svg>'
    )
