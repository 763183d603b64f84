"""Cells: a tenant that moves to another database while the application goes on as before.

Run it with: python examples/cells.py
"""

import asyncio
import subprocess
import sys
from uuid import uuid4

from fairlead import Fairlead

fl = Fairlead(actor="cells-example")


@fl.job(key="example.greet")
async def greet(name: str) -> str:
    return f"Hello {name}"


def fairlead(*argv: str) -> None:
    """Run a command, as you would in a shell."""
    subprocess.run([sys.executable, "-m", "fairlead.cli", *argv], check=True)


async def main() -> None:
    name = f"eu-{uuid4().hex[:8]}"
    async with fl:
        tenant = (await fl.add_tenant(f"movable-{uuid4().hex[:8]}")).slug
        before = await greet.enqueue(tenant=tenant, name="Ada")

        # a cell is a database and a schema; here, for want of a second server, another schema of the same database
        url = (await fl.for_tenant(tenant)).database_url
        await asyncio.to_thread(fairlead, "cells", "add", name, url, "--schema", name.replace("-", "_"))
        await asyncio.to_thread(fairlead, "tenants", "move", tenant, "--to", name)

        after = await greet.enqueue(tenant=tenant, name="Grace")
        print(f"its jobs go to {(await fl.for_tenant(tenant)).cell}")
        while {(await before.read()).status, (await after.read()).status} != {"succeeded"}:
            await fl.tick()
        print(await before.result(), "and", await after.result())

        await asyncio.to_thread(fairlead, "tenants", "move", tenant, "--to", "home")
        await asyncio.to_thread(fairlead, "cells", "remove", name)
        print((await before.read()).output, "from home again")


if __name__ == "__main__":
    asyncio.run(main())
