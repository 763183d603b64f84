"""A process that divides the limits of definitions between cells, again and again: python -m tests.allotting URL."""

import asyncio
import sys

from fairlead import Fairlead
from fairlead.library.cell_rounds import CellRounds


async def allot(url: str) -> None:
    async with Fairlead(url) as fl:
        rounds = CellRounds(fl.cells)
        while True:
            await rounds.run_now()
            sys.stdout.write("a round\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(allot(sys.argv[1]))
