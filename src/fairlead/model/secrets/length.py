"""Which values a secret cannot have: the mask itself, and short ones.

A user who chooses text that a job writes could guess a short secret from the mask.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.errors import Fault, PayloadInvalid, SecretsRequired
from fairlead.model.secrets.redact import MASK, find_secrets

# Letters and digits of this length have more values than a job could ever write.
SHORTEST_SECRET = 8


def check_secrets(key: str, payload: Any, paths: Sequence[str]) -> None:
    """Raise SecretsRequired, with each path, for a secret that is the mask; PayloadInvalid for one that is too short.

    An empty text is not a secret. Values in a marked object may be short: not all of them are secrets.
    """
    if not paths:
        return
    if masked := [path for path in paths if MASK in find_secrets(payload, [path])]:
        raise SecretsRequired(
            f"The payload was copied, and its secrets were not: replace {MASK} with the secret.",
            [Fault(path, f"enter the secret: {MASK} stands for it") for path in masked],
        )
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
