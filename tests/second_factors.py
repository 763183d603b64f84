"""Users with a second factor: what their authenticator app shows, and how they sign in."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pyotp

from fairlead.model.access import Role
from fairlead.server.problems import PREFIX
from tests import given
from tests.server.world import BASE, PASSWORD, World

PATH = "/account/second-factor"


@dataclass
class Person:
    """A user of a world, the user's session, and the authenticator app."""

    world: World
    email: str
    cookie: str
    key: str = ""
    recovery_codes: list[str] = field(default_factory=list)

    def code(self, steps: int = 0) -> str:
        """The code of now, or of some steps later."""
        return pyotp.HOTP(self.key).at(int(time.time() // 30) + steps)

    @property
    def wrong_code(self) -> str:
        """A code that is wrong now and soon."""
        near = {self.code(steps) for steps in range(-3, 5)}
        return next(text for number in range(20) if (text := f"{number:06}") not in near)

    async def forget_steps(self) -> None:
        """Let codes be accepted that were used before: a test cannot wait for the next one."""
        async with self.world.fl.database.transaction() as tx:
            await tx.run("update fairlead.second_factors set last_step = null")

    async def call(
        self, method: str, path: str = PATH, cookie: str | None = None, **body: str
    ) -> httpx2.Response:
        more: dict[str, Any] = {} if method == "GET" else {"json": body}
        headers = {"Cookie": cookie or self.cookie}
        return await self.world.call(method, path, who=None, headers=headers, **more)

    async def login(self, password: str = PASSWORD, **more: str) -> httpx2.Response:
        body = {"email": self.email, "password": password, **more}
        self.world.client.cookies.clear()
        answer = await self.world.client.post(f"{BASE}{PREFIX}/login", json=body)
        self.world.client.cookies.clear()
        return answer

    async def begin(self) -> None:
        answer = await self.call("POST", password=PASSWORD)
        assert answer.status_code == 200, answer.text
        self.key = answer.json()["key"]

    async def enable(self) -> "Person":
        """Set up the second factor; the code that it takes can be used again."""
        await self.begin()
        answer = await self.call("POST", f"{PATH}/confirm", code=self.code())
        assert answer.status_code == 200, answer.text
        self.recovery_codes = answer.json()["recovery_codes"]
        await self.forget_steps()
        return self


async def person(world: World, role: Role = Role.OPERATOR, tenant: str = given.TENANT) -> Person:
    """A user without a second factor, who has signed in."""
    return Person(world, f"{role}.{tenant}@fairlead.test", await world.signed_in(role, tenant))


async def protected(world: World, role: Role = Role.OPERATOR, tenant: str = given.TENANT) -> Person:
    """A user with a second factor, who has signed in."""
    return await (await person(world, role, tenant)).enable()
