"""The secrets of a run: their texts, and the files in which clients set those that jobs and commands refer to.

A text says whose it is and which of its values, for the history, which never has the text itself. It begins with MARK: the
check looks for it wherever no secret may be.
"""

import json
from hashlib import sha256
from pathlib import Path

from fairlead.chaos import scenario

MARK = "chaos-secret:"
# What was in a file before a client set it.
FIRST = 0
OWNERS = (*scenario.TENANTS, scenario.COMMANDS_SECRET)


def build_secret(owner: str, number: int) -> str:
    """A value of a secret."""
    text = f"{MARK}{owner}:{number}"
    return f"{text}:{sha256(text.encode()).hexdigest()[:16]}"


def parse_secret(text: object) -> tuple[str, int]:
    """Whose secret it is, and which of its values; ("", -1) for what is none."""
    if not isinstance(text, str) or not text.startswith(MARK):
        return "", -1
    owner, number, _ = text.removeprefix(MARK).split(":")
    return (owner, int(number)) if build_secret(owner, int(number)) == text else ("", -1)


def name_secret(tenant: str) -> dict[str, str]:
    """A reference to the secret that a tenant sets."""
    return {"$secret": f"chaos-{tenant}"}


def set_secret(folder: Path, owner: str, number: int) -> None:
    """Give a secret another value, at once for all who read it."""
    file = folder / owner
    new = file.with_name(f"{owner}.{number}")
    new.write_text(build_secret(owner, number), encoding="utf-8")
    new.replace(file)


def create_secrets(folder: Path) -> Path:
    """Create the files below a run's folder. Where they are."""
    place = folder / "secrets"
    place.mkdir()
    for owner in OWNERS:
        set_secret(place, owner, FIRST)
    return place


def describe_secrets(place: Path) -> str:
    """The part of a fairlead.toml that lets jobs refer to these secrets."""
    return "\n".join(
        f"[secrets.{json.dumps(name_secret(tenant)['$secret'])}]\n"
        f"source = {json.dumps(f'file:{place / tenant}')}\n"
        f"definitions = {json.dumps([scenario.SECRET])}\n"
        f"tenants = {json.dumps([tenant])}\n"
        for tenant in scenario.TENANTS
    )
