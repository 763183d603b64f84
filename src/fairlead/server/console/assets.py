"""Static files, served under names with a content hash, so that browsers may cache them forever."""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from markupsafe import Markup

from fairlead.errors import NotFound

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


def static_folder() -> Traversable:
    """The folder of the static files."""
    return files("fairlead.server.console").joinpath("static")


@cache
def hashed_names() -> dict[str, str]:
    """The served name of each file."""
    return {one.name: _hashed_name(one.name) for one in static_folder().iterdir() if one.is_file()}


def _hashed_name(name: str) -> str:
    mark = hashlib.sha256(static_folder().joinpath(name).read_bytes()).hexdigest()[:12]
    stem, dot, ending = name.partition(".")
    return f"{stem}-{mark}{dot}{ending}"


@cache
def read_asset(served: str) -> tuple[bytes, str]:
    """The content and the media type of a served file."""
    for name, other in hashed_names().items():
        if other == served:
            return static_folder().joinpath(name).read_bytes(), TYPES["." + name.rpartition(".")[2]]
    raise NotFound("There is no such file.")


@cache
def icon(name: str) -> Markup:
    """An inline SVG icon, hidden from screen readers."""
    text = static_folder().joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
    inner = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    return Markup(  # noqa: S704 - our own files
        '<svg class="icon" aria-hidden="true" width="16" height="16" viewBox="0 0 24 24" fill="none" stroke="currentColor"'
        f' stroke-width="2" stroke-linecap="round" stroke-linejoin="round">{inner.strip()}</svg>'
    )
