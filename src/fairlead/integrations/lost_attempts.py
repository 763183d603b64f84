"""Attempts that an engine no longer has, and for how long it has been so."""

import time
from collections.abc import Collection, Mapping, Sequence

from fairlead.integrations.engine import Handover, Report
from fairlead.model.delivery import AttemptRef
from fairlead.model.outcome import Failed

KIND = "DeliveryLost"
FORGET_SECONDS = 60.0


class LostAttempts:
    """Decides when an attempt that its engine no longer has is lost: its report may still be on its way.

    It is only a memory of what this process saw. After a restart, the time starts again.
    """

    def __init__(self, engine: str, *, after_seconds: float) -> None:
        self._engine = engine
        self._after_seconds = after_seconds
        # by Handover.id: since when it is missing, the mark of that time, and when it was missing last
        self._missing: dict[str, tuple[float, int, float]] = {}

    def note(self, checked: Sequence[Handover], missing: Collection[str], mark: int = 0) -> Mapping[str, int]:
        """Note which of the attempts that were checked are missing.

        Returns those that have been missing for long enough, each with the `mark` that was given when it was missing first.
        """
        now = time.monotonic()
        for one in checked:
            if one.id in missing:
                since, first_mark, _ = self._missing.get(one.id, (now, mark, now))
                self._missing[one.id] = (since, first_mark, now)
            else:
                self._missing.pop(one.id, None)
        # an attempt that has ended is not checked any more
        oldest = now - self._after_seconds - FORGET_SECONDS
        self._missing = {one: seen for one, seen in self._missing.items() if seen[2] > oldest}
        return {
            one: self._missing[one][1]
            for one in missing
            if now - self._missing[one][0] >= self._after_seconds
        }

    def report(self, handovers: Sequence[Handover]) -> list[Report]:
        """The reports on lost attempts."""
        return [
            Report(
                attempt=AttemptRef(one.lease.job_id, one.lease.attempt_no, one.lease.token),
                what=Failed(
                    KIND, f"{self._engine} no longer has this attempt, and its worker has reported nothing."
                ),
            )
            for one in handovers
        ]
