"""The tenants among which a process divides what it has."""

import math

from fairlead.turns.owner import Owner

# For so long after its last use an owner is active.
ACTIVE_SECONDS = 1.0


class ActiveTenants:
    """The weights of the tenants that were active in the last second. Clients choose their addresses, so these do not count."""

    def __init__(self) -> None:
        # in the last second, and in this one
        self._last: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._from = -math.inf
        # all of the last second together; 0 if there were none
        self.weight = 0.0

    def count(self, owner: Owner, now: float) -> None:
        """The owner is active."""
        if now - self._from > ACTIVE_SECONDS:
            self.advance(now)
        if self._now.get(owner.name, 0.0) < owner.weight and not owner.is_address:
            self._now[owner.name] = owner.weight

    def advance(self, now: float) -> None:
        """Begin a new second, if one is over."""
        passed = now - self._from
        if passed > ACTIVE_SECONDS:
            self._last = self._now if passed <= 2 * ACTIVE_SECONDS else {}
            self._now = {}
            self._from = now
            self.weight = sum(self._last.values())

    def weigh(self, owner: Owner) -> float:
        """The weight of an owner. Its requests may say less, such as those of webhooks."""
        return max(owner.weight, self._last.get(owner.name, 0.0), self._now.get(owner.name, 0.0))
