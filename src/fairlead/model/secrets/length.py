"""The minimum length of secrets: a user who chooses text that a job writes could guess a shorter one from the mask."""

from collections.abc import Sequence
from typing import Any

from fairlead.errors import Fault, PayloadInvalid
from fairlead.model.secrets.redact import find_secrets

# Letters and digits of this length have more values than a job could ever write.
SHORTEST_SECRET = 8


def check_secrets(key: str, payload: Any, paths: Sequence[str]) -> None:
    """Raise PayloadInvalid, with each path, if a secret text or number is too short.

    An empty text is not a secret. Values in a marked object may be short: not all of them are secrets.
    """
    if not paths:
        return
    faults = [
        Fault(path, f"a secret must have at least {SHORTEST_SECRET} characters")
        for path in paths
        if any(_is_short(value) for value in find_secrets(payload, [path]))
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
