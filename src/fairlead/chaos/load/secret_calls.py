"""Calls that change secrets outside of Fairlead, to which jobs and commands refer."""

import time
from pathlib import Path
from typing import Any
from uuid import UUID

from fairlead.chaos import scenario
from fairlead.chaos.load import secret_values
from fairlead.chaos.load.client_calls import CallResult, ClientSession


async def change_secret(session: ClientSession, tenant: str) -> None:
    """Give the secret of the tenant or of the commands another value."""
    owner = session.chance.choice((tenant, scenario.COMMANDS_SECRET))
    what: dict[str, Any] = {"via": "file", "owner": owner, "number": time.monotonic_ns()}

    async def send(_: UUID) -> CallResult:
        secret_values.set_secret(Path(session.access.secrets), owner, what["number"])
        return CallResult([], {})

    await session.call("secret", tenant, what, send)
