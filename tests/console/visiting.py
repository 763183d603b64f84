"""A console to look at: served on a real socket, seen by a real browser, by people of every role."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.app import bind, make_server
from fairlead.server.auth import COOKIE
from tests import given
from tests.server.world import World

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
# A root's browser cannot have a sandbox, and none has any business calling home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDE, NARROW = 1440, 390
# What a browser says about an answer that a test asked for.
EXPECTED = ("Failed to load resource",)


def chromium() -> str | None:
    """The browser of this system; None for playwright's own."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    found = (shutil.which(name) for name in names)
    return os.environ.get("FAIRLEAD_TEST_CHROMIUM") or next(filter(None, found), None)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Console:
    """The console, served, with the world behind it."""

    world: World
    browser: Browser
    url: str
    _contexts: list[BrowserContext] = field(default_factory=list)
    _troubles: list[str] = field(default_factory=list)

    async def visit(
        self,
        role: Role = Role.TENANT_ADMIN,
        path: str = "/jobs",
        *,
        tenant: str = given.TENANT,
        width: int = WIDE,
        theme: Literal["light", "dark"] = "light",
    ) -> Page:
        """A page of the console, as somebody of this role sees it."""
        cookie = (await self.world.signed_in(role, tenant)).partition("=")[2]
        return await self._open(path, width, theme, cookie)

    async def stranger(
        self, path: str, *, width: int = WIDE, theme: Literal["light", "dark"] = "light"
    ) -> Page:
        """A page of the console, for somebody who has not signed in."""
        return await self._open(path, width, theme)

    async def _open(
        self, path: str, width: int, theme: Literal["light", "dark"], cookie: str | None = None
    ) -> Page:
        context = await self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, base_url=self.url
        )
        self._contexts.append(context)
        if cookie is not None:
            await context.add_cookies([{"name": COOKIE, "value": cookie, "url": self.url}])
        context.set_default_timeout(20_000)
        page = await context.new_page()
        page.on("console", lambda said: self._hear(said.type, said.text))
        page.on("pageerror", lambda error: self._troubles.append(f"page error: {error}"))
        await page.goto(f"/console{path}")
        return page

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(EXPECTED):
            self._troubles.append(f"{kind}: {text}")

    async def make(self, sql: str, values: Any = ()) -> None:
        """Change the database behind the console's back."""
        async with self.world.fl.database.transaction() as tx:
            await tx.run(sql, values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        async with self.world.fl.database.transaction() as tx:
            yield tx

    async def close(self) -> None:
        """Close what was opened. No page may have complained (a refusal by the Content-Security-Policy is a complaint)."""
        for context in self._contexts:
            await context.close()
        assert not self._troubles, self._troubles


@asynccontextmanager
async def served(world: World, browser: Browser) -> AsyncIterator[Console]:
    """A world's application on a socket of its own."""
    listening = bind("127.0.0.1", 0)
    server = make_server(world.app)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.up.wait()
    console = Console(world, browser, f"http://127.0.0.1:{listening.getsockname()[1]}")
    try:
        yield console
    finally:
        await console.close()
        server.should_exit = True
        await serving


async def accessible(page: Page) -> None:
    """Nothing on the page is in the way of anybody, as far as axe can tell; and it is no wider than its window."""
    # not while something still fades in: its colours are not yet its own
    await page.evaluate(
        "Promise.allSettled(document.getAnimations().filter(a => a.effect.getTiming().iterations === 1).map(a => a.finished))"
    )
    await page.evaluate(AXE)
    violations = await page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
    )
    said = [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in violations
    ]
    assert not said, "\n".join(said)
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} px wider than its window"
