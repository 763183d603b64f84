"""An MCP client asks why a job does not run: python examples/mcp_client.py

It starts `fairlead mcp` as Claude or an editor does, with the token of a viewer. Its extra: pip install 'fairlead[mcp]'.
"""

import asyncio
import os
import sys
from typing import Any
from uuid import uuid4

from mcp import Client, StdioServerParameters

from fairlead import Fairlead
from fairlead.actions import access
from fairlead.model.access import Role

fl = Fairlead()


@fl.job(key="example.report")
async def report(ctx: object, month: str) -> None:
    """Nobody runs it here."""


async def create_token(role: Role) -> str:
    """What `fairlead tokens create` does."""
    tenant = await fl.add_tenant("example", exist_ok=True)
    async with fl.transaction() as tx:
        made = await access.create_token(
            tx, fl.principal, name=f"ai-{uuid4().hex[:8]}", role=role, tenant_id=tenant.id
        )
    return made.secret


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result: Any = await client.call_tool(tool, arguments)
    return result.content[0].text if result.is_error else result.structured_content


async def main() -> None:
    async with fl:
        env = {**os.environ, "FAIRLEAD_TOKEN": await create_token(Role.VIEWER)}
        job = await report.enqueue(tenant="example", month="2026-10")
        server = StdioServerParameters(command=sys.executable, args=["-m", "fairlead.cli", "mcp"], env=env)
        async with Client(server) as client:
            hints = [one.annotations for one in (await client.list_tools()).tools]
            print("all tools only read:", all(hint and hint.read_only_hint for hint in hints))
            waiting = await call(client, "list_jobs", status=["queued"], definition_key="example.report")
            why = await call(client, "explain_job", job_id=waiting["items"][0]["id"])
            for reason in why["reasons"]:
                print(f"{reason['code']}: {reason['message']}")
            print(await call(client, "cancel_job", job_id=str(job.id)))


if __name__ == "__main__":
    asyncio.run(main())
