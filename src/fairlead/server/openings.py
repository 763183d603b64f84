"""What callers keep open at this process: live sockets and followed logs, bounded for each caller and each tenant."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from fairlead.errors import TooManyRequests

RETRY_SECONDS = 5


class Cap(NamedTuple):
    """How many of something may be open, and the setting that says so. 0 means any number."""

    setting: str
    most: int


class Openings:
    """How many of one kind are open, of each caller and of each tenant."""

    def __init__(self, kind: str, caller: Cap, tenant: Cap) -> None:
        self._kind = kind
        self._caller = caller
        self._tenant = tenant
        self._open: Counter[tuple[str, object]] = Counter()

    @contextmanager
    def open(self, caller: object, tenant_id: UUID | None) -> Iterator[None]:
        """Count one for the length of the block, or refuse it with the cap that it would exceed."""
        counted = [("caller", caller)]
        self._require("This token or user", self._caller, ("caller", caller))
        if tenant_id is not None:
            self._require("This tenant", self._tenant, ("tenant", tenant_id))
            counted.append(("tenant", tenant_id))
        self._open.update(counted)
        try:
            yield
        finally:
            self._open.subtract(counted)
            for key in counted:
                if not self._open[key]:
                    del self._open[key]

    def _require(self, who: str, cap: Cap, key: tuple[str, object]) -> None:
        if cap.most and self._open[key] >= cap.most:
            error = TooManyRequests(
                f"{who} has {self._open[key]} {self._kind} open at this server; the limit is {cap.most} "
                f"(FAIRLEAD_{cap.setting.upper()}). Close some, or try again later."
            )
            error.retry_after = RETRY_SECONDS
            raise error
