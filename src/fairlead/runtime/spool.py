"""The agent's unsent requests, on disk until the server has answered: a file for each lease, a line for each request."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import structlog

from fairlead.model.job import Lease

log = structlog.get_logger(__name__)

# Above this size the spool stores no more output; it always stores results.
MOST_BYTES = 64 * 2**20
SUFFIX = ".jsonl"


class SpooledRequest(NamedTuple):
    """A request about a job: `logs`, `result` or `release`, and its body."""

    what: str
    body: dict[str, Any]


class Spool:
    """Requests in the order in which they must be sent; survives restarts of the agent."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._most_bytes = most_bytes

    def add(self, lease: Lease, request: SpooledRequest) -> None:
        """Store an attempt's result: it is on disk when this returns."""
        self._write(lease, request, durable=True)

    def add_logs(self, lease: Lease, request: SpooledRequest) -> bool:
        """Store an attempt's output if there is room; returns whether it was stored."""
        if sum(path.stat().st_size for path in self._folder.iterdir()) > self._most_bytes:
            log.warning("output_not_kept", job_id=str(lease.job_id), why="the spool is full")
            return False
        self._write(lease, request, durable=False)
        return True

    def has(self, lease: Lease) -> bool:
        """Whether requests of this lease are stored."""
        return self._path(lease).exists()

    def requests(self, lease: Lease) -> Iterator[SpooledRequest]:
        """The stored requests of a lease, in order."""
        for line in self._path(lease).read_bytes().splitlines():
            if not line:
                continue
            try:
                yield msgspec.json.decode(line, type=SpooledRequest)
            except msgspec.DecodeError:
                # the agent was killed while it wrote
                log.warning("spool_line_cut", job_id=str(lease.job_id))

    def forget(self, lease: Lease) -> None:
        """Remove a lease's requests: the server has answered."""
        self._path(lease).unlink(missing_ok=True)

    def leases(self) -> list[Lease]:
        """The leases with stored requests, oldest first."""
        files = sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        return [_parse_lease(path) for path in files]

    def _path(self, lease: Lease) -> Path:
        return self._folder / f"{lease.job_id}.{lease.attempt_no}.{lease.token}{SUFFIX}"

    def _write(self, lease: Lease, request: SpooledRequest, *, durable: bool) -> None:
        fd = os.open(self._path(lease), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "wb") as file:
            # ends a line that a killed agent left incomplete
            file.write(b"\n" * bool(os.fstat(fd).st_size) + msgspec.json.encode(request) + b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if durable:
            sync_folder(self._folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _parse_lease(path: Path) -> Lease:
    job_id, attempt_no, token = path.name.removesuffix(SUFFIX).split(".")
    return Lease(UUID(job_id), int(attempt_no), UUID(token))
