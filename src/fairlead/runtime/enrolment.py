"""What an agent knows of itself between starts: its server, its host and its token."""

import os
from pathlib import Path
from uuid import UUID

import msgspec

from fairlead.errors import InvalidInput
from fairlead.runtime.line import Line

FILE = "agent.json"


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Who an agent is."""

    server: str
    host_id: UUID
    host: str
    token: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"Enrolment({self.server}, {self.host})"


class _Enrolled(msgspec.Struct):
    token: str
    host_id: UUID
    host: str


async def enrol(server: str, code: str) -> Enrolment:
    """Exchange a code for a token of the agent's own."""
    async with Line(server) as line:
        told = await line.post("/agent/enrol", {"code": code}, _Enrolled)
    return Enrolment(server=server, host_id=told.host_id, host=told.host, token=told.token)


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
