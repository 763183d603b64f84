"""Invite a person, who chooses a password and is signed in: python examples/invite.py

In earnest the link is mailed (`fairlead users invite` without --print-link), and the person opens it in a browser.
"""

import asyncio
import os
import subprocess
import sys
from uuid import uuid4

import httpx2

from fairlead import Fairlead
from fairlead.server.app import create_app

os.environ["FAIRLEAD_PUBLIC_URL"] = "https://jobs.example.com"
fl = Fairlead(actor="invite-example")


def invite(email: str, database_url: str) -> str:
    """The link that the command line prints."""
    command = [sys.executable, "-m", "fairlead.cli", "--database-url", database_url, "users", "invite", email]
    options = ["--role", "operator", "--tenant", "example", "--print-link"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def main() -> None:
    email = f"ada-{uuid4().hex[:8]}@example.com"
    transport = httpx2.ASGITransport(app=create_app(fl))
    async with fl, httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1") as client:
        await fl.add_tenant("example", exist_ok=True)
        link = await asyncio.to_thread(invite, email, fl.database.url)
        page, _, token = link.partition("#")
        print("the link leads to", page)
        weak = await client.post("/invitations/accept", json={"token": token, "new_password": "too short"})
        print("a weak password:", weak.status_code, weak.json()["code"])
        chosen = {"token": token, "new_password": "a few random words"}
        accepted = await client.post("/invitations/accept", json=chosen)
        print("accepted:", accepted.status_code, accepted.json()["role"], "of", accepted.json()["tenant"])
        me = await client.get("/me")
        print("signed in:", me.json()["actor"] == f"user:{email}")
        again = await client.post("/invitations/accept", json=chosen)
        print("again:", again.status_code, again.json()["code"])


if __name__ == "__main__":
    asyncio.run(main())
