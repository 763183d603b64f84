"""Sign in with an identity provider: python examples/oidc_sign_in.py

The provider is oidc_provider.py; in earnest it is Keycloak, Entra ID or another, and `fairlead serve` reads fairlead.toml.
"""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from oidc_provider import GROUPS, run_provider

from fairlead import Fairlead
from fairlead.server.app import create_app

SETTINGS = """
[oidc.work]
label = "Example Corp"
issuer = "{issuer}"
client_id = "fairlead"
role_claim = "groups"
tenant = "example"
roles = {{ job-operators = "operator", job-admins = "tenant_admin" }}
"""


async def sign_in(browser: httpx2.AsyncClient, groups: list[str]) -> None:
    """What a browser does, for a person in these groups."""
    GROUPS[:] = groups
    begun = await browser.get("/console/sign-in/with/work?next=/jobs")
    async with httpx2.AsyncClient(trust_env=False) as outside:
        agreed = await outside.get(begun.headers["location"])
    answer = await browser.get(agreed.headers["location"])
    if answer.status_code == 303:
        me = (await browser.get("/api/v1/me")).json()
        print(f"{me['actor']} is {me['role']} of {me['tenant']}, and goes to {answer.headers['location']}")
    else:
        print("refused:", answer.text.split('role="alert"')[1].split("</svg>")[1].split("<")[0])


async def main(folder: str, issuer: str) -> None:
    os.environ["FAIRLEAD_CONFIG"] = f"{folder}/fairlead.toml"
    await asyncio.to_thread(Path(folder, "fairlead.toml").write_text, SETTINGS.format(issuer=issuer))
    async with Fairlead() as fl:
        await fl.add_tenant("example", exist_ok=True)
        transport = httpx2.ASGITransport(app=create_app(fl))
        async with httpx2.AsyncClient(transport=transport, base_url="https://jobs.example.com") as browser:
            page = await browser.get("/console/sign-in")
            print("button:", "Sign in with Example Corp" in page.text)
            for groups in (["job-operators"], ["job-operators", "job-admins"], ["staff"]):
                await sign_in(browser, groups)
            [identity] = (await browser.get("/api/v1/account/identities")).json()["items"]
            print("only way to sign in:", identity["is_only_way"])


if __name__ == "__main__":
    with TemporaryDirectory() as at, run_provider() as provider:
        asyncio.run(main(at, provider))
