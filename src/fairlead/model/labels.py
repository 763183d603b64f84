"""Labels of workers and hosts, such as gpu=true, and the labels that definitions require or prefer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.errors import Fault, InvalidInput

MOST_LABELS = 32
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
LONGEST_VALUE = 63
ADVICE = "write labels as name=value, such as gpu=true"


def find_labels_flaw(labels: Any) -> str | None:
    """Why this is no set of labels, or None."""
    if not isinstance(labels, Mapping):
        return 'must be an object, such as {"gpu": "true"}'
    if len(labels) > MOST_LABELS:
        return f"must have at most {MOST_LABELS} labels"
    for name, value in labels.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return (
                f"has the name {str(name)[:70]!r}: names have up to 63 letters, digits, dots, underscores, hyphens and "
                "slashes, and begin and end with a letter or digit"
            )
        if not isinstance(value, str) or len(value) > LONGEST_VALUE or not value.isprintable():
            return f"has a value of {name} that is not a text of up to {LONGEST_VALUE} printable characters"
    return None


def parse_labels(texts: Sequence[str], name: str = "labels") -> dict[str, str]:
    """Labels as people write them: name=value each. Raises InvalidInput for anything else."""
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key in labels:
            why = f"{text[:130]!r} names a label twice" if equals else f"{text[:130]!r} has no value"
            raise InvalidInput(f"Invalid {name}: {why}; {ADVICE}.", [Fault(name, ADVICE)])
        labels[key] = value
    check_labels(labels, name)
    return labels


def check_labels(labels: Any, name: str = "labels") -> None:
    """Raise InvalidInput unless this is a set of labels."""
    if flaw := find_labels_flaw(labels):
        raise InvalidInput(f"Invalid {name}: it {flaw}.", [Fault(name, flaw)])


def format_labels(labels: Mapping[str, Any]) -> str:
    """Labels for people: gpu=true, region=eu."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
