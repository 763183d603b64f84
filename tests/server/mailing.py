"""A world whose mails arrive at a real SMTP server."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx2

from fairlead import Fairlead, Settings
from tests import given
from tests.handlers.mail_servers import MailServer, mail_server
from tests.server.world import World, world_on

PUBLIC_URL = "https://jobs.example.com/fairlead"
LINK = re.compile(r"https://jobs\.example\.com/fairlead/console/([a-z-]+)#(fl_[A-Za-z0-9_-]+)")
NEW = "a new and good password"
ADA = "ada@example.com"


@dataclass
class Mailing:
    """A world, a worker that sends its mails, and the server that gets them."""

    world: World
    worker: Fairlead
    server: MailServer
    seen: int = 0
    secrets: list[str] = field(default_factory=list)

    async def deliver(self) -> list[EmailMessage]:
        """Send what waits; the new mails."""
        await self.worker.tick()
        new = self.server.messages[self.seen :]
        self.seen += len(new)
        self.secrets += [link(one)[1] for one in new]
        return new

    async def link(self) -> str:
        """The secret in the only new mail."""
        [mail] = await self.deliver()
        return link(mail)[1]

    async def invite(self, email: str = ADA, role: str = "operator", **more: Any) -> dict[str, Any]:
        body = {"email": email, "role": role, "invite": True}
        made = await self.world.call("POST", "/users", **{"who": "tenant_admin", **more}, json=body)
        assert made.status_code == 201, made.text
        return made.json()  # type: ignore[no-any-return]

    async def accept(self, token: str, password: str = NEW) -> httpx2.Response:
        return await self._post("/invitations/accept", {"token": token, "new_password": password})

    async def ask(self, email: str = ADA, **more: Any) -> httpx2.Response:
        return await self._post("/password-resets", {"email": email}, **more)

    async def confirm(self, token: str, password: str = NEW) -> httpx2.Response:
        return await self._post("/password-resets/confirm", {"token": token, "new_password": password})

    async def sign_in(self, password: str, email: str = ADA) -> int:
        answer = await self._post("/login", {"email": email, "password": password})
        return answer.status_code

    async def add(self, email: str = ADA, role: str = "operator", **more: Any) -> dict[str, Any]:
        """A user with a password."""
        body = {"email": email, "role": role, "password": f"the old one of {role}"}
        made = await self.world.call("POST", "/users", **{"who": "tenant_admin", **more}, json=body)
        assert made.status_code == 201, made.text
        return made.json()  # type: ignore[no-any-return]

    async def _post(self, path: str, body: dict[str, str], **more: Any) -> httpx2.Response:
        answer = await self.world.call("POST", path, who=None, json=body, **more)
        self.world.client.cookies.clear()
        return answer


def link(mail: EmailMessage) -> tuple[str, str]:
    """The page and the secret of the link in a mail; both parts of it have the same."""
    bodies = [mail.get_body((kind,)) for kind in ("plain", "html")]
    [found] = {found for one in bodies if one is not None for found in LINK.findall(one.get_content())}
    return found  # type: ignore[no-any-return]


def write_email_settings(file: Path, port: int) -> Path:
    """A fairlead.toml with a mail server on loopback."""
    file.write_text(
        f'[email]\nprovider = "smtp"\nfrom = "Fairlead <no-reply@jobs.example.com>"\nhost = "127.0.0.1"\nport = {port}\n'
        'tls = "none"\n'
    )
    return file


@asynccontextmanager
async def mailing_on(database_url: str, folder: Path, **changes: Any) -> AsyncIterator[Mailing]:
    """A world on a copy of the template; `changes` are settings."""
    async with mail_server() as server:
        worker = Fairlead(settings=Settings(database_url=database_url), actor="tester")
        worker.allow_builtins(write_email_settings(folder / "fairlead.toml", server.port))
        async with worker, world_on(database_url, **{"public_url": PUBLIC_URL, **changes}) as world:
            yield Mailing(world, worker, server)


OTHER = given.OTHER
