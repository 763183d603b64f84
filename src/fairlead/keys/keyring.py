"""The keys of one process for sealed values: its master keys, and the data keys that it has unwrapped lately."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast
from uuid import UUID

from fairlead.errors import EncryptionKeyMissing, EncryptionKeyUnavailable, Fault, SettingInvalid
from fairlead.keys.master import (
    CalledMasterKey,
    KeyWrapper,
    LocalMasterKey,
    MasterKey,
    decode_master_key,
)
from fairlead.keys.sealed import DataKey
from fairlead.settings import Settings

# How long an unwrapped data key stays in memory, and how many do.
KEY_SECONDS = 300.0
MOST_KEYS = 10_000
# A call for a key that failed after so long is not repeated for a while: each job of the tenant would wait as long again.
SLOW_SECONDS = 1.0
FAILED_SECONDS = 10.0
# How long a process seals with a data key after another one has replaced it.
CURRENT_SECONDS = 30.0
# How long a process takes to notice that the database encrypts now.
STATE_SECONDS = 5.0

PLATFORM: Final = "-"
SOURCES = "write file:/path, env:NAME or call:module:name"


class Keyring:
    """The master keys of the settings, and bounded caches. It never talks to the database: see store/sealing.py."""

    def __init__(self, settings: Settings) -> None:
        self.current_master = _read_master("encryption_key", settings.encryption_key)
        old = [_read_master("encryption_old_keys", one) for one in settings.encryption_old_keys]
        self.masters: dict[str, MasterKey] = {
            one.id: one for one in (*old, self.current_master) if one is not None
        }
        self._keys: dict[UUID, tuple[DataKey, float]] = {}
        self._current: dict[str, tuple[DataKey, float]] = {}
        self._failed: dict[UUID | None, tuple[str, float]] = {}
        self._is_on = False
        self._checked_until = 0.0

    @property
    def is_known_off(self) -> bool:
        """Whether the database did not encrypt a moment ago."""
        return not self._is_on and monotonic() < self._checked_until

    @property
    def is_known_on(self) -> bool:
        """Whether the database encrypts, which it does for ever once it has begun."""
        return self._is_on

    def note_state(self, *, is_on: bool) -> None:
        """Remember whether the database encrypts."""
        self._is_on = is_on
        self._checked_until = monotonic() + STATE_SECONDS

    def forget_state(self) -> None:
        """Ask the database again whether it encrypts, if it did not."""
        self._checked_until = 0.0

    def find(self, key_id: UUID) -> DataKey | None:
        """An unwrapped data key, if it is in memory."""
        found = self._keys.get(key_id)
        return found[0] if found is not None and monotonic() < found[1] else None

    def find_current(self, owner: str) -> DataKey | None:
        """The key with which to seal values of an owner: a tenant's slug or id, or PLATFORM."""
        found = self._current.get(owner)
        return found[0] if found is not None and monotonic() < found[1] else None

    def keep(self, key: DataKey, *owners: str) -> None:
        """Keep a data key for a while; as the current one of these owners, if any."""
        _put(self._keys, key.id, (key, monotonic() + KEY_SECONDS))
        for owner in owners:
            _put(self._current, owner, (key, monotonic() + CURRENT_SECONDS))

    def forget_current(self) -> None:
        """Read the current keys again before the next value is sealed."""
        self._current.clear()

    @contextmanager
    def call_for(self, about: UUID | None) -> Iterator[None]:
        """Call a master key in the block, for a data key or the first one of a tenant or (None) the platform.

        A call that failed slowly a moment ago fails at once.
        """
        failed = self._failed.get(about)
        if failed is not None and monotonic() < failed[1]:
            raise EncryptionKeyUnavailable(failed[0])
        begun = monotonic()
        try:
            yield
        except EncryptionKeyUnavailable as error:
            if monotonic() - begun >= SLOW_SECONDS:
                _put(self._failed, about, (error.message, monotonic() + FAILED_SECONDS))
            raise

    def require_master(self, master_id: str | None = None) -> MasterKey:
        """The master key with this id, or (None) the current one."""
        if self.current_master is None:
            raise EncryptionKeyMissing(
                "This database encrypts secrets, and this process has no master key: set encryption_key in fairlead.toml or "
                "FAIRLEAD_ENCRYPTION_KEY to the same source as everywhere else."
            )
        if master_id is None:
            return self.current_master
        found = self.masters.get(master_id)
        if found is None:
            raise EncryptionKeyMissing(
                f"A data key is wrapped by the master key {master_id}, which this process does not have: add its source to "
                "encryption_old_keys, and run `fairlead keys rotate`."
            )
        return found


def _put(cache: dict[Any, Any], name: Any, value: Any) -> None:
    """Put a value at the end of a cache, and drop the oldest ones of a full cache."""
    cache.pop(name, None)
    cache[name] = value
    while len(cache) > MOST_KEYS:
        del cache[next(iter(cache))]


def _read_master(setting: str, source: str | None) -> MasterKey | None:
    if source is None:
        return None
    kind, _, rest = source.partition(":")
    match kind:
        case "env" if rest:
            text = os.environ.get(rest)
            if text is None:
                raise _invalid(setting, f"the variable {rest} is not set")
        case "file" if rest.startswith("/"):
            try:
                text = Path(rest).read_text("ascii")
            except OSError as error:
                raise _invalid(setting, f"the file {rest} cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise _invalid(setting, f"the file {rest} has no key as text") from None
        case "call" if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", rest):
            return CalledMasterKey(source, _build_finder(source, rest))
        case _:
            raise _invalid(setting, SOURCES)  # never the value: it may be the key itself
    key = decode_master_key(text)
    if key is None:
        raise _invalid(
            setting,
            f"{kind}:{rest} must have 32 bytes as base64 or hex, as `fairlead keys generate` prints them",
        )
    return LocalMasterKey(key)


def _build_finder(source: str, place: str) -> Callable[[], KeyWrapper]:
    module, _, name = place.partition(":")

    def find() -> KeyWrapper:
        try:
            return cast("KeyWrapper", getattr(import_module(module), name))
        except (ImportError, AttributeError) as error:
            raise EncryptionKeyUnavailable(
                f"The master key {source} is not available: {type(error).__name__}, there is no {name} in the module "
                f"{module} that this process can import."
            ) from None

    return find


def _invalid(setting: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"The setting {setting} is not valid: {why}.", [Fault(setting, why)])
