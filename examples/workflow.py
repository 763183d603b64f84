"""A workflow: an account is made, then indexed and welcomed side by side; a failed step is retried with its run.

Run it with: python examples/workflow.py
"""

import asyncio

from fairlead import Fairlead, FairleadError, Fatal

fl = Fairlead()
broken = True


@fl.job(key="example.create")
async def create(email: str) -> dict[str, object]:
    return {"id": 7, "email": email}


@fl.job(key="example.index")
async def index(account: int, part: str) -> str:
    if broken and part == "letters":
        raise Fatal("the shelf is full")
    return f"{part} of {account}"


@fl.job(key="example.welcome")
async def welcome(to: str, indexed: list[str]) -> str:
    return f"Dear {to}, we found your {' and '.join(indexed)}."


flow = fl.workflow("example.onboard", input_schema={"type": "object", "required": ["email"]})
made = flow.step("create", create, {"email": "{{input.email}}"})
wanted = {"account": "{{steps.create.output.id}}", "part": "{{item}}"}
parts = flow.step("index", index, wanted, after=[made], for_each="{{input.parts}}")
flow.step("welcome", welcome, {"to": "{{input.email}}", "indexed": "{{steps.index.output}}"}, after=[parts])


async def main() -> None:
    global broken
    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        asked = {"email": "ada@example.com", "parts": ["notes", "letters"]}
        run = await fl.start(flow, tenant="acme", input=asked)
        for broken in (True, False):  # noqa: B007 - the job looks at it
            while (await fl.tick()).ran:
                pass
            print(", ".join(f"{step.name} {step.state}" for step in (await run.read()).steps))
            try:
                print((await run.result())["welcome"])
            except FairleadError as error:
                print(error)
                await run.retry()


asyncio.run(main())
