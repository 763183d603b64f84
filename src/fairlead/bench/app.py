"""The jobs that the benchmarks run, in worker processes of their own."""

import time

from fairlead.app import Fairlead

fl = Fairlead(actor="bench")


@fl.job(key="noop")
async def noop() -> None:
    """Do nothing, quickly."""


@fl.job(key="paused")
async def paused() -> None:
    """Served, but its gate is closed where a workload wants it so."""


@fl.job(key="held", max_running=1)
async def held() -> None:
    """Served, but held back by its limit where a workload leaves one running."""


@fl.job(key="stamp")
async def stamp() -> float:
    """Say when the handler began."""
    return time.time()
