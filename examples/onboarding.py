"""A durable function: an account is created once, three days pass, and an event of the user ends the wait.

Run it with: python examples/onboarding.py
"""

import asyncio
from datetime import timedelta

from fairlead import Context, Fairlead, Fatal, testing

fl = Fairlead()


async def create_account(email: str) -> dict[str, str]:
    print(f"creating the account of {email}")
    return {"id": "account-7", "email": email}


def send_mail(to: str, text: str) -> None:
    print(f"mail to {to}: {text}")


@fl.job(key="example.build-index")
async def build_index(account: str) -> int:
    return len(account)


@fl.job(key="example.onboarding", durable=True)
async def onboard(ctx: Context, email: str) -> str:
    account = await ctx.step("create", create_account, email)
    await ctx.sleep(days=3)
    answer = await ctx.wait_for_event("user.confirmed", where={"email": email}, timeout=timedelta(days=7))
    if answer is None:
        raise Fatal("not confirmed")
    mail = ctx.step("mail", send_mail, email, f"welcome, {answer.data['name']}")
    _, entries = await ctx.gather(mail, ctx.call(build_index, {"account": account["id"]}))
    return f"{account['id']} is ready, with {entries} entries"


async def main() -> None:
    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        job = await onboard.enqueue(tenant="acme", email="ada@example.com")
        await testing.run_due(fl)
        print(f"after the first step the job is {(await job.read()).status}")
        # shortened for you: three days of waiting functions pass at once
        await testing.pass_time(fl, days=3)
        await testing.run_due(fl)
        await fl.emit("user.confirmed", tenant="acme", data={"email": "ada@example.com", "name": "Ada"})
        await testing.run_due(fl)
        print(await job.result(timeout=30))


asyncio.run(main())
