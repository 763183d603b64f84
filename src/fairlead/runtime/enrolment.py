"""What an agent knows of itself between starts: its server, its host, its token, and since when it has that."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from fairlead.errors import InvalidInput
from fairlead.runtime.line import Line
from fairlead.runtime.spool import sync_folder

FILE = "agent.json"
OLD = timedelta(days=30)


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Who an agent is."""

    server: str
    host_id: UUID
    host: str
    token: str
    since: datetime | None = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Enrolment({self.server}, {self.host})"

    def is_old(self, now: datetime) -> bool:
        """Whether the token should be rotated: it is older than a month, or nobody knows."""
        return self.since is None or now - self.since > OLD


class _Enrolled(msgspec.Struct):
    token: str
    host_id: UUID
    host: str


async def enrol(server: str, code: str) -> Enrolment:
    """Exchange a code for a token of the agent's own."""
    async with Line(server) as line:
        told = await line.post("/agent/enrol", {"code": code}, _Enrolled)
    return _made(server, told)


async def rotate(known: Enrolment) -> Enrolment:
    """Exchange the token for a new one. The old one is good for some minutes more: until this is kept, it has to be."""
    async with Line(known.server, known.token) as line:
        told = await line.post(f"/agent/hosts/{known.host_id}/token", None, _Enrolled)
    return _made(known.server, told)


def _made(server: str, told: _Enrolled) -> Enrolment:
    return Enrolment(
        server=server, host_id=told.host_id, host=told.host, token=told.token, since=datetime.now(UTC)
    )


def keep(folder: Path, enrolment: Enrolment) -> None:
    """Write it where only this user can read it; all of it, or nothing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder / f"{FILE}.new"
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(enrolment)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / FILE)
    sync_folder(folder)


def kept(folder: Path) -> Enrolment | None:
    """What was written; None if nothing was."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Enrolment)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{folder / FILE} is not an agent's: {error}. Enrol again, with --enrol."
        ) from None
