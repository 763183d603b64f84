"""The jobs that the benchmarks run, in worker processes of their own."""

import time

from fairlead.app import Fairlead

fl = Fairlead(actor="bench")


@fl.job(key="noop")
async def noop() -> None:
    """Do nothing, quickly."""


@fl.job(key="stamp")
async def stamp() -> float:
    """Say when the handler began."""
    return time.time()
