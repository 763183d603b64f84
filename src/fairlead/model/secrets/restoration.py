"""Masked secrets in a document that a user sends back: they are restored only if nothing else was edited."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from fairlead.errors import Fault, SecretsRequired
from fairlead.model.secrets.redact import SecretPath, join_path, restore_masked

MOST_FAULTS = 20


def restore_secrets(edited: Any, stored: Any, shown: Any) -> Any:
    """The document to store: the stored one, if it was sent back as it was shown.

    An edit that keeps masked secrets is refused. The editor has not seen them, and could send them to another server,
    file or command.
    """
    if edited == shown:
        return stored
    places = list(islice(_differences(edited, restore_masked(edited, stored, shown), ()), MOST_FAULTS))
    if places:
        raise SecretsRequired(
            "The document was edited, and its secrets were given for the earlier version. Replace each [redacted] with the "
            "secret, or undo the other edits.",
            [Fault(join_path(place), "enter the secret again: another part was edited") for place in places],
        )
    return edited


def _differences(edited: Any, put_back: Any, at: SecretPath) -> Iterator[SecretPath]:
    """The paths where a secret would be restored."""
    if isinstance(edited, dict) and isinstance(put_back, dict):
        for name, one in edited.items():
            yield from _differences(one, put_back[name], (*at, str(name)))
    elif isinstance(edited, list) and isinstance(put_back, list):
        for number, (one, other) in enumerate(zip(edited, put_back, strict=True)):
            yield from _differences(one, other, (*at, str(number)))
    elif edited != put_back:
        yield at
