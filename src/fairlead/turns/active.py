"""The tenants among which a process divides what it has."""

import math

from fairlead.turns.owner import Owner

# For so long after its last use an owner is active.
ACTIVE_SECONDS = 1.0


class ActiveTenants:
    """The weights of the tenants that were active in the last second. Clients choose their addresses, so these do not count."""

    def __init__(self) -> None:
        self._weights: dict[str, float] = {}
        self._counts_from = -math.inf
        # all of them together; 0 if there were none
        self.weight = 0.0

    def count(self, owner: Owner, now: float) -> None:
        """The owner is active. Each second is counted by itself."""
        if now - self._counts_from > ACTIVE_SECONDS:
            self.weight = sum(self._weights.values())
            self._weights.clear()
            self._counts_from = now
        if not owner.is_address:
            self._weights[owner.name] = owner.weight
