"""The agent's stored identity: its server, its host, its token, and the token's age."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from fairlead.errors import InvalidInput
from fairlead.runtime.server_client import ServerClient
from fairlead.runtime.spool import sync_folder

FILE = "agent.json"
OLD = timedelta(days=30)


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's identity."""

    server: str
    host_id: UUID
    host: str
    token: str
    since: datetime | None = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Enrolment({self.server}, {self.host})"

    def is_old(self, now: datetime) -> bool:
        """Whether the token should be rotated: it is older than a month, or its age is unknown."""
        return self.since is None or now - self.since > OLD


class _EnrolmentAnswer(msgspec.Struct):
    token: str
    host_id: UUID
    host: str


async def enrol(server: str, code: str) -> Enrolment:
    """Exchange an enrolment code for the agent's token."""
    async with ServerClient(server) as line:
        answer = await line.post("/agent/enrol", {"code": code}, _EnrolmentAnswer)
    return _build_enrolment(server, answer)


async def rotate(known: Enrolment) -> Enrolment:
    """Exchange the token for a new one. The old token stays valid for some minutes, until the new one is saved."""
    async with ServerClient(known.server, known.token) as line:
        answer = await line.post(f"/agent/hosts/{known.host_id}/token", None, _EnrolmentAnswer)
    return _build_enrolment(known.server, answer)


def _build_enrolment(server: str, answer: _EnrolmentAnswer) -> Enrolment:
    return Enrolment(
        server=server, host_id=answer.host_id, host=answer.host, token=answer.token, since=datetime.now(UTC)
    )


def save_enrolment(folder: Path, enrolment: Enrolment) -> None:
    """Write the enrolment atomically to a file that only this user can read."""
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


def load_enrolment(folder: Path) -> Enrolment | None:
    """The enrolment that was saved; None if there is none."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Enrolment)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{folder / FILE} is not a valid enrolment: {error}. Enrol again, with --enrol."
        ) from None
