"""Secrets in templates: masking a template, and finding the event fields that become secrets of a job."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fairlead.model.secrets.redact import ANY as ANY_NAME
from fairlead.model.secrets.redact import ANY_DEPTH, MASK, SecretPath, join_path, rewrite_at_paths, split_path
from fairlead.model.template.filter import ANY as ALTERNATIVES
from fairlead.model.template.path import MISSING, parse_path
from fairlead.model.template.path import Path as Field
from fairlead.model.template.placeholder import Placeholder, parse_template_string
from fairlead.model.template.spec import compile_template


def mask_template(template: Any, secret_paths: Sequence[str]) -> Any:
    """The template with literal secrets masked; a bare placeholder, which only names a path, stays."""
    return rewrite_at_paths(template, secret_paths, _mask_value, lambda value, _: _mask_text(value))


def _mask_value(value: Any) -> Any:
    return value if _is_bare_placeholder(value) else MASK


def _mask_text(value: Any) -> Any:
    # an object with a secret belongs here: a valid text can only be a placeholder
    return MASK if isinstance(value, str) and not _is_bare_placeholder(value) else value


def _is_bare_placeholder(value: Any) -> bool:
    place = parse_template_string(value) if isinstance(value, str) else None
    return isinstance(place, Placeholder) and place.default is MISSING


def find_secret_fields(
    template: Any, secret_paths: Sequence[str], roots: Collection[str], *, of: str = "event"
) -> list[str]:
    """The paths in an event's data, or below another root, that fill the secrets of a template's jobs."""
    found: set[str] = set()

    def add(fields: Iterable[Field], onwards: Iterable[SecretPath] = ((),)) -> None:
        below = [field.segments[1:] for field in fields if field.segments[0] == of]
        found.update(join_path((*field, *more)) for field in below for more in onwards)

    def before(value: Any, onwards: set[SecretPath]) -> None:
        place = parse_template_string(value) if isinstance(value, str) else None
        if isinstance(place, Placeholder):
            add([place.path], onwards)

    rewrite_at_paths(template, secret_paths, lambda value: add(compile_template(value, roots).paths), before)
    return sorted(found)


def mask_filter(document: Any, secret_fields: Sequence[str]) -> Any:
    """A valid filter with the values masked that it compares with secret fields of its events."""
    secrets = [split_path(one) for one in secret_fields]
    return _mask_conditions(document, secrets) if secrets else document


def _mask_conditions(document: Any, secrets: Sequence[SecretPath]) -> Any:
    shown = {}
    for key, says in document.items():
        if key == ALTERNATIVES:
            shown[key] = [_mask_conditions(one, secrets) for one in says]
        else:
            hidden = any(_overlap(parse_path(key).segments, one) for one in secrets)
            shown[key] = _mask_operands(says) if hidden else says
    return shown


def _mask_operands(says: Any) -> Any:
    if not isinstance(says, dict):
        return MASK
    return {name: operand if name == "exists" else MASK for name, operand in says.items()}


def _overlap(path: SecretPath, secret: SecretPath) -> bool:
    """Whether one path leads to the other, or further down from it."""
    for step, secret_step in zip(path, secret, strict=False):
        if secret_step == ANY_DEPTH:
            return True
        if secret_step not in (ANY_NAME, step):
            return False
    return True
