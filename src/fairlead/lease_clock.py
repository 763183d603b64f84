"""The worker's clock for leases."""

import time
from collections.abc import Callable
from functools import partial

# Monotonic seconds that also count while the machine is suspended, where it can: a resumed worker sees its leases as expired.
# Not a function of our own: it is asked several times for each job.
lease_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
