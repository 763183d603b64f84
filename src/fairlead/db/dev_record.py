"""Records of the `fairlead dev` processes that this user runs, wherever they were started.

Each process writes a small file in the user's state folder and holds a shared lock on it, so the lock shows whether it
still runs. The file has no secrets.
"""

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fairlead.db.binaries import POSIX, is_last, open_private, release_share, same_file, take_share


class DevRecord(msgspec.Struct, frozen=True):
    """One `fairlead dev`: its URL, its data folder, and its database unless it is the embedded one."""

    url: str
    data_dir: str
    database: str | None = None

    @property
    def how_to_join(self) -> str:
        """The setting with which another process uses its database."""
        if self.database is None:
            return f"FAIRLEAD_DATA_DIR={shlex.quote(self.data_dir)}"
        return f"FAIRLEAD_DATABASE_URL for {self.database}"


@contextlib.contextmanager
def keep_record(record: DevRecord) -> Iterator[None]:
    """Keep the record until the block ends; if it cannot be written, continue without it."""
    path = _path_of(record)
    share = None
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            share = _take_current_share(path)
            path.write_bytes(msgspec.json.encode(record))
    try:
        yield
    finally:
        if share is not None and path is not None:
            if is_last(share):
                path.unlink(missing_ok=True)
            release_share(share)


def _take_current_share(path: Path) -> int:
    """A shared lock on the file; taken again if another process removed the file while we waited."""
    share = take_share(path)
    while not same_file(share, path):
        release_share(share)
        share = take_share(path)
    return share


def find_records() -> list[DevRecord]:
    """The records of the processes that run now."""
    folder = _state_folder()
    if folder is None or not folder.is_dir():
        return []
    found = (_read(path) for path in sorted(folder.glob("*.json")))
    return [record for record in found if record is not None]


def _read(path: Path) -> DevRecord | None:
    """A record, if its `fairlead dev` runs; removes the file of a killed process."""
    try:
        fd = open_private(path)
    except OSError:
        return None
    try:
        if is_last(fd):
            path.unlink(missing_ok=True)
            return None
        return msgspec.json.decode(path.read_bytes(), type=DevRecord)
    except (OSError, msgspec.MsgspecError):
        return None  # half written, or not our file
    finally:
        release_share(fd)


def _path_of(record: DevRecord) -> Path | None:
    folder = _state_folder()
    name = hashlib.sha256(f"{record.data_dir}\n{record.database}".encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{name}.json"


def _state_folder() -> Path | None:
    """The user's state folder, by the XDG convention; None on systems without one."""
    if not POSIX:
        return None
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "fairlead" / "dev"
