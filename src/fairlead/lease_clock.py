"""The clock that leases are measured by on the worker's side."""

import time


def lease_clock() -> float:
    """Seconds that only increase, and that go on while the machine sleeps: a suspended worker finds its leases over."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
