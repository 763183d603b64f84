"""The jobs that the benchmarks run in separate worker processes."""

import time

from fairlead.library.app import Fairlead

fl = Fairlead(actor="bench")


@fl.job(key="noop")
async def noop() -> None:
    """Do nothing, quickly."""


@fl.job(key="paused")
async def run_pausable() -> None:
    """Served; a workload may pause it."""


@fl.job(key="held", max_running=1)
async def run_blockable() -> None:
    """Served; a workload may block it by leaving one job running."""


@fl.job(key="stamp")
async def stamp() -> float:
    """Return when the handler started."""
    return time.time()
