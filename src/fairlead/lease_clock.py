"""The worker's clock for leases."""

import time


def lease_clock() -> float:
    """Monotonic seconds that also count while the machine is suspended: a resumed worker sees its leases as expired."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
