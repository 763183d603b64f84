"""The master keys of a run: two, so that one can take the place of the other while processes run that have both."""

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path

from fairlead.settings import PREFIX

NUMBER = 2


def create_master_keys(folder: Path) -> list[Path]:
    """Write the keys, which only this user can read."""
    files = [folder / f"master-{number}.key" for number in range(1, NUMBER + 1)]
    for file in files:
        file.touch(mode=0o600)
        file.write_bytes(base64.b64encode(os.urandom(32)))
    return files


def build_key_environment(files: Sequence[Path]) -> dict[str, str]:
    """The variables of a process that wraps data keys with the first of these keys, and has the others."""
    current, *others = (f"file:{file}" for file in files)
    return {f"{PREFIX}ENCRYPTION_KEY": current, f"{PREFIX}ENCRYPTION_OLD_KEYS": json.dumps(others)}
