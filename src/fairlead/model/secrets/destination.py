"""Literal secrets in a template of `http.request` may only go to a host that is literal in the template."""

from collections.abc import Iterator, Sequence
from typing import Any

from fairlead.model.messages import http_call
from fairlead.model.secrets.redact import rewrite_at_paths
from fairlead.model.template.path import MISSING, Flaw
from fairlead.model.template.placeholder import Placeholder, TemplateText, parse_template_string

WHY = (
    "has a placeholder as its host, and the template has literal secrets: the caller who chooses the host would receive "
    "them. Write a literal host, or take the secrets from the same source as the host"
)

# The longest scheme before a credential, as in `Bearer {{input.token}}`.
_LONGEST_SCHEME = 10
# Values of these roots come from the system, not from the caller.
_OURS = ("tenant",)


def sends_secrets_anywhere(definition_key: str, template: Any, secret_paths: Sequence[str]) -> bool:
    """Whether a template sends a literal secret to a host that a placeholder chooses."""
    if definition_key != http_call.KEY or not isinstance(template, dict):
        return False
    return _host_is_chosen(template.get("url")) and _has_literal_secret(template, secret_paths)


def _host_is_chosen(url: Any) -> bool:
    try:
        found = parse_template_string(url) if isinstance(url, str) else ""
    except Flaw:
        return False  # the template's own check refuses it
    if isinstance(found, str):
        return False
    before = ""
    for part in found.parts if isinstance(found, TemplateText) else (found,):
        if isinstance(part, str):
            before += part
            if _ends_host(before):
                return False
        elif part.path.segments[0] in _OURS and "://" in before:
            before += "x"
        else:
            return True
    return False


def _ends_host(url: str) -> bool:
    """Whether this beginning of a URL has the complete host."""
    _, found, rest = url.partition("://")
    return bool(found) and any(mark in rest for mark in "/?#")


def _has_literal_secret(template: Any, secret_paths: Sequence[str]) -> bool:
    found: list[str] = []
    rewrite_at_paths(
        template, secret_paths, lambda value: found.extend(_iterate_literals(value)), lambda value, _: value
    )
    return bool(found)


def _iterate_literals(value: Any) -> Iterator[str]:
    """The literal texts and numbers in a secret value."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _iterate_literals(one)
    elif isinstance(value, list):
        for one in value:
            yield from _iterate_literals(one)
    elif isinstance(value, str):
        yield from _literals_in_text(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _literals_in_text(text: str) -> Iterator[str]:
    try:
        found = parse_template_string(text)
    except Flaw:
        return
    if isinstance(found, str):
        yield from [found] if found else []
        return
    places = [found] if isinstance(found, Placeholder) else found.places
    yield from (str(place.default) for place in places if place.default not in (MISSING, None, ""))
    if isinstance(found, TemplateText):
        word = found.literal.strip()
        if len(word) > _LONGEST_SCHEME or not (word == "" or word.isalpha()):
            yield word
