"""Secrets in a document that was read, and is sent back: they stay only where nothing else of it was edited."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from fairlead.errors import Fault, SecretsRequired
from fairlead.model.redact import Path, path_to, restored

MOST_FAULTS = 20


def restore_secrets(edited: Any, stored: Any, shown: Any) -> Any:
    """The document as it is to be stored: sent back as it was shown, it is the stored one again.

    An edit that leaves secrets as they were shown is refused. Who edits has not seen them: with another server, another
    file or another command beside them, they could be read there.
    """
    if edited == shown:
        return stored
    places = list(islice(_differences(edited, restored(edited, stored, shown), ()), MOST_FAULTS))
    if places:
        raise SecretsRequired(
            "Something beside the secrets was edited, and they were given for what stood there before. Write them again in "
            "place of [redacted], or leave the rest as it was.",
            [Fault(path_to(place), "give it anew: something beside it was edited") for place in places],
        )
    return edited


def _differences(edited: Any, put_back: Any, at: Path) -> Iterator[Path]:
    """The places where a secret would be put back."""
    if isinstance(edited, dict) and isinstance(put_back, dict):
        for name, one in edited.items():
            yield from _differences(one, put_back[name], (*at, str(name)))
    elif isinstance(edited, list) and isinstance(put_back, list):
        for number, (one, other) in enumerate(zip(edited, put_back, strict=True)):
            yield from _differences(one, other, (*at, str(number)))
    elif edited != put_back:
        yield at
