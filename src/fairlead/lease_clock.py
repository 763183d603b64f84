"""The worker's clock for leases."""

import time
from functools import partial

# Asked several times for each job: which clock it is, is found out once.
_read = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


def lease_clock() -> float:
    """Monotonic seconds that also count while the machine is suspended: a resumed worker sees its leases as expired."""
    return _read()
