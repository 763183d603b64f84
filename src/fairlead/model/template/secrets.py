"""Secrets in templates: masking a template, and finding the event fields that become secrets of a job.

How literal secrets are sealed is in sealed.py.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fairlead.model.secrets.redact import ANY as ANY_NAME
from fairlead.model.secrets.redact import ANY_DEPTH, MASK, SecretPath, join_path, rewrite_at_paths, split_path
from fairlead.model.secrets.sealed_payload import KEY, hide_sealed, is_sealed_value
from fairlead.model.template.filter import ANY as ALTERNATIVES
from fairlead.model.template.path import Path as Field
from fairlead.model.template.path import parse_path
from fairlead.model.template.placeholder import Placeholder, parse_template_string
from fairlead.model.template.sealed import Seal, is_bare_placeholder, show_fields
from fairlead.model.template.spec import compile_template


def mask_template(template: Any, secret_paths: Sequence[str]) -> Any:
    """The template with literal secrets masked, sealed or not; a bare placeholder, which only names a path, stays."""
    shown = hide_sealed(template)
    return rewrite_at_paths(shown, secret_paths, _mask_value, lambda value, _: _mask_text(value))


def _mask_value(value: Any) -> Any:
    return value if is_bare_placeholder(value) else MASK


def _mask_text(value: Any) -> Any:
    # an object with a secret belongs here: a valid text can only be a placeholder
    return MASK if isinstance(value, str) and not is_bare_placeholder(value) else value


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

    rewrite_at_paths(
        show_fields(template), secret_paths, lambda value: add(compile_template(value, roots).paths), before
    )
    return sorted(found)


def mask_filter(document: Any, secret_fields: Sequence[str]) -> Any:
    """A valid filter with the values masked that it compares with secret fields of its events, sealed or not."""
    return _change_operands(hide_sealed(document), secret_fields, lambda *_: MASK)


def seal_filter(document: Any, secret_fields: Sequence[str], seal: Seal) -> Any:
    """A valid filter with the values sealed that it compares with secret fields of its events."""
    return _change_operands(
        document,
        secret_fields,
        lambda value, at: value if value is None or is_sealed_value(value) else {KEY: seal(value, at)},
    )


def _change_operands(document: Any, secret_fields: Sequence[str], change: Callable[..., Any]) -> Any:
    secrets = [split_path(one) for one in secret_fields]
    return _change_conditions(document, secrets, change, ()) if secrets else document


def _change_conditions(
    document: Any, secrets: Sequence[SecretPath], change: Callable[..., Any], at: SecretPath
) -> Any:
    changed = dict[str, Any]()
    for key, says in document.items():
        if key == ALTERNATIVES:
            changed[key] = [
                _change_conditions(one, secrets, change, (*at, key, str(place)))
                for place, one in enumerate(says)
            ]
        elif not any(_overlap(parse_path(key).segments, one) for one in secrets):
            changed[key] = says
        elif not isinstance(says, dict) or is_sealed_value(says):
            changed[key] = change(says, (*at, key))
        else:
            changed[key] = {
                name: operand if name == "exists" else change(operand, (*at, key, name))
                for name, operand in says.items()
            }
    return changed


def _overlap(path: SecretPath, secret: SecretPath) -> bool:
    """Whether one path leads to the other, or further down from it."""
    for step, secret_step in zip(path, secret, strict=False):
        if secret_step == ANY_DEPTH:
            return True
        if secret_step not in (ANY_NAME, step):
            return False
    return True
