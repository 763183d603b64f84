"""Secrets in templates: masking a template, and finding the event fields that become secrets of a job."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fairlead.model.path import MISSING
from fairlead.model.path import Path as Field
from fairlead.model.place import Place, read
from fairlead.model.redact import MASK, Path, path_to, rewritten
from fairlead.model.template import compiled


def shown_template(template: Any, secret_paths: Sequence[str]) -> Any:
    """The template with literal secrets masked; a bare placeholder, which only names a path, stays."""
    return rewritten(template, secret_paths, _shown, lambda value, _: _shown_before(value))


def _shown(value: Any) -> Any:
    return value if _says_where(value) else MASK


def _shown_before(value: Any) -> Any:
    # an object with a secret belongs here: a valid text can only be a placeholder
    return MASK if isinstance(value, str) and not _says_where(value) else value


def _says_where(value: Any) -> bool:
    place = read(value) if isinstance(value, str) else None
    return isinstance(place, Place) and place.default is MISSING


def secret_fields(
    template: Any, secret_paths: Sequence[str], roots: Collection[str], *, of: str = "event"
) -> list[str]:
    """The paths in an event's data, or below another root, that fill the secrets of a template's jobs."""
    found: set[str] = set()

    def add(fields: Iterable[Field], onwards: Iterable[Path] = ((),)) -> None:
        below = [field.segments[1:] for field in fields if field.segments[0] == of]
        found.update(path_to((*field, *more)) for field in below for more in onwards)

    def before(value: Any, onwards: set[Path]) -> None:
        place = read(value) if isinstance(value, str) else None
        if isinstance(place, Place):
            add([place.path], onwards)

    rewritten(template, secret_paths, lambda value: add(compiled(value, roots).paths), before)
    return sorted(found)
