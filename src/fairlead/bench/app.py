"""The jobs that the benchmarks run in separate worker processes."""

import time

from fairlead.library.app import Fairlead
from fairlead.model.flow import KeyLimit, Rate

fl = Fairlead(actor="bench")


@fl.job(key="noop")
async def noop(customer: int = 0) -> None:
    """Do nothing, quickly."""


@fl.job(key="paused")
async def run_pausable() -> None:
    """Served; a workload may pause it."""


@fl.job(key="held", max_running=1)
async def run_blockable() -> None:
    """Served; a workload may block it by leaving one job running."""


@fl.job(key="rated", rate=Rate(1_000_000, 1))
async def run_rated(customer: int = 0) -> None:
    """Do nothing, with a rate that is never reached."""


@fl.job(key="keyed", by_key=KeyLimit("/customer", max_running=1))
async def run_keyed(customer: int = 0) -> None:
    """Do nothing, one job of each customer at a time."""


@fl.job(key="slow", rate=Rate(1, 86_400))
async def run_slow() -> None:
    """Do nothing, once a day."""


@fl.job(key="stamp")
async def stamp() -> float:
    """Return when the handler started."""
    return time.time()
