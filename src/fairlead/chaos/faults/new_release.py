"""`fairlead` as of a release that has changed every stored function: `python -m fairlead.chaos.faults.new_release migrate up`."""

import runpy
from typing import Any

from fairlead.db import stored_functions
from fairlead.db.stored_functions import StoredFunction


async def list_all(connection: Any, schema: str) -> list[StoredFunction]:  # noqa: ARG001 - as the one that it replaces
    """Every function, as if the source of each differed from the database's."""
    return list(stored_functions.list_stored_functions())


if __name__ == "__main__":
    stored_functions.list_changed = list_all
    # a lower layer than the command line
    runpy.run_module("fairlead.cli", run_name="__main__")
