"""Secrets that are too short are refused: where a job writes chosen text beside one, all its values could be tried."""

from collections.abc import Sequence
from typing import Any

from fairlead.errors import Fault, PayloadInvalid
from fairlead.model.redact import secrets_in

# Of letters and digits, this many have more values than all the texts that an operator could have a job write.
SHORTEST_SECRET = 8


def check_secrets(key: str, payload: Any, paths: Sequence[str]) -> None:
    """Raise PayloadInvalid, naming each place, if a text or number that is a secret is too short.

    An empty text is no secret. What is in a marked object may be short: beside its secrets it holds other values.
    """
    faults = [
        Fault(path, f"a secret must have at least {SHORTEST_SECRET} characters")
        for path in paths
        if any(_is_short(value) for value in secrets_in(payload, [path]))
    ]
    if faults:
        first = faults[0]
        raise PayloadInvalid(f"The payload does not fit {key}: {first.path}: {first.message}", faults)


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) < SHORTEST_SECRET
    if isinstance(value, int | float) and not isinstance(value, bool):
        return sum(character.isdigit() for character in repr(value)) < SHORTEST_SECRET
    return False
