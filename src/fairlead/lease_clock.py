"""The worker's clock for leases."""

import time

# Looked for once: the clock is asked several times for each job.
_CLOCK = time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else None


def lease_clock() -> float:
    """Monotonic seconds that also count while the machine is suspended: a resumed worker sees its leases as expired."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
