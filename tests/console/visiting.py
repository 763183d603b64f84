"""A console to look at: served on a real socket, seen by a real browser, by people of every role."""

import asyncio
import json
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx2
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright
from playwright.async_api import Error as PlaywrightError
from starlette.responses import FileResponse
from starlette.routing import Route

from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.app import bind, create_server
from fairlead.server.auth import COOKIE
from fairlead.server.console import assets
from tests import given
from tests.server.world import World
from tests.thorough import THOROUGH
from tests.waiting import SECONDS

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# Where the console that is served has it. A browser keeps it, and does not compile it again for every page.
AXE_PATH = "/axe.min.js"
# A root's browser cannot have a sandbox, and none has any business calling home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # axe is large, and a page calls little of it, once: to optimise that takes longer than to run it
    "--js-flags=--max-lazy,--no-opt,--no-maglev,--always-sparkplug,--no-flush-bytecode",
)
WIDE, NARROW = 1440, 390
# What a browser says about an answer that a test asked for, and htmx about a request that the next letter replaced.
EXPECTED = (
    "Failed to load resource",
    "htmx: htmx:error: signal is aborted",
    # a page whose session was ended connects again before it is reloaded
    "HTTP Authentication failed; no valid credentials available",
)

# What the console calls to remove a toast.
TOAST_END = "() => box.remove()"
_BE_PATIENT = """(end) => {
    const disable = () => document.documentElement?.setAttribute("aria-disabled", "true");
    const watch = new MutationObserver(disable);
    disable();
    watch.observe(document, { childList: true });
    document.addEventListener("DOMContentLoaded", () => {
        watch.disconnect();
        document.documentElement.removeAttribute("aria-disabled");
    });
    const later = window.setTimeout;
    window.setTimeout = (act, ...more) => String(act) === end ? 0 : later(act, ...more);
}"""
# What the pages of tests run before their own scripts.
# Nothing can be pressed or filled before those have run, as Playwright waits while it is disabled: after a click that leads to
# another page, the buttons of that are there before they do anything.
# Toasts stay: they would go away after seconds, on a busy machine before a test has seen them.
PATIENT = f"({_BE_PATIENT})({json.dumps(TOAST_END)})"


def chromium() -> str | None:
    """The browser of this system; None for playwright's own."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    found = (shutil.which(name) for name in names)
    return os.environ.get("FAIRLEAD_TEST_CHROMIUM") or next(filter(None, found), None)


@dataclass
class Browsing:
    """A browser, the socket of every console that it sees, and pages that tests use one after the other.

    A new page starts a process, which takes longer than to load the page. A page keeps the address that its paths are
    relative to: hence one socket.
    """

    browser: Browser
    listening: socket.socket
    _idle: list[Page] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    async def take(self) -> Page:
        """A page with cookies and storage to itself."""
        if self._idle:
            return self._idle.pop()
        return await self.open()

    async def open(self, **traits: Any) -> Page:
        """A page of a browser with these traits, such as a locale and a time zone; its context is the caller's to close."""
        # an icon that turns is painted sixty times a second, by the CPU
        context = await self.browser.new_context(base_url=self.url, reduced_motion="reduce", **traits)
        context.set_default_timeout(SECONDS * 1000)
        await context.add_init_script(PATIENT)
        return await context.new_page()

    async def give_back(self, page: Page) -> None:
        """Leave the console, and forget what it kept. The file is cached, and of the same site: its process stays."""
        await page.unroute_all()
        await page.goto(f"/console/static/{assets.hashed_names()['logo.svg']}")
        await page.evaluate("localStorage.clear(); sessionStorage.clear()")
        await page.context.clear_cookies()
        self._idle.append(page)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browsing]:
    """A browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            with bind("127.0.0.1", 0) as listening:
                yield Browsing(browser, listening)
        finally:
            await browser.close()


@dataclass
class Console:
    """The console, served, with the world behind it."""

    world: World
    browsing: Browsing
    _pages: list[Page] = field(default_factory=list)
    _troubles: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.browsing.url

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

    async def read(self, role: Role, path: str, *, tenant: str = given.TENANT) -> httpx2.Response:
        """The HTML of a page for somebody of this role, without a browser: to show it takes ten times as long."""
        return await self.world.call("GET", f"{self.url}/console{path}", who=str(role), tenant=tenant)

    async def title(self, role: Role, path: str, *, tenant: str = given.TENANT) -> str:
        """The title that somebody of this role reads on a page, such as "Not found"."""
        text = (await self.read(role, path, tenant=tenant)).text
        found = re.search(r"<h1[^>]*>(.*?)</h1>", text, re.DOTALL)
        assert found is not None, text
        return re.sub(r"<[^>]*>", "", found[1]).strip()

    async def stranger(
        self, path: str, *, width: int = WIDE, theme: Literal["light", "dark"] = "light"
    ) -> Page:
        """A page of the console, for somebody who has not signed in."""
        return await self._open(path, width, theme)

    async def _open(
        self, path: str, width: int, theme: Literal["light", "dark"], cookie: str | None = None
    ) -> Page:
        page = await self.browsing.take()
        self._pages.append(page)
        if cookie is not None:
            await page.context.add_cookies([{"name": COOKIE, "value": cookie, "url": self.url}])
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=theme)
        page.on("console", self._hear)
        page.on("pageerror", self._note_error)
        await page.goto(f"/console{path}")
        return page

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning") and not any(one in said.text for one in EXPECTED):
            self._troubles.append(f"{said.type}: {said.text}")

    def _note_error(self, error: PlaywrightError) -> None:
        self._troubles.append(f"page error: {error}")

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        return self.world.transaction()

    async def close(self) -> None:
        """Give back what was opened. No page may have complained (a refusal by the Content-Security-Policy is a complaint)."""
        for page in self._pages:
            await self.browsing.give_back(page)
            page.remove_listener("console", self._hear)
            page.remove_listener("pageerror", self._note_error)
        assert not self._troubles, self._troubles


@asynccontextmanager
async def served(world: World, browsing: Browsing) -> AsyncIterator[Console]:
    """A world's application, on the socket that the browser knows."""
    kept = {"Cache-Control": "public, max-age=86400, immutable"}
    world.app.router.routes.insert(0, Route(AXE_PATH, lambda _: FileResponse(AXE, headers=kept)))
    server = create_server(world.app)
    serving = asyncio.create_task(server.serve(sockets=[browsing.listening.dup()]))
    await server.up.wait()
    console = Console(world, browsing)
    try:
        yield console
    finally:
        try:
            await console.close()
        finally:  # always: the next console listens on the same socket
            server.should_exit = True
            await serving


async def submit(page: Page, button: str, fields: Mapping[str, str]) -> None:
    """Fill the fields of a form, and click its button."""
    for name, text in fields.items():
        await page.fill(name, text)
    await page.click(button)


async def close_secret(page: Page, button: str = "text=Done") -> None:
    """Close the dialog that shows a secret, and wait for the page that is then loaded without it."""
    async with page.expect_event("load"):
        await page.click(button)


# What axe finds. Not while something still fades in: its colours are not yet its own.
# Not in the navigation, which is the same on every page, nor behind a modal dialog, where nothing can be used.
_LOOK = """async ([whole, only]) => {
    const once = document.getAnimations().filter((one) => one.effect.getTiming().iterations === 1);
    await Promise.allSettled(once.map((one) => one.finished));
    const context = whole ? document : document.querySelector(":modal") ?? { include: [document], exclude: ["#nav"] };
    const options = { resultTypes: ["violations"], selectors: false, preload: false };
    const found = await axe.run(context, only ? { ...options, runOnly: only } : options);
    return found.violations.map(({ id, help, nodes }) =>
        `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" ")}`);
}"""
# By how much the page is wider than its window: what is drawn, such as a chart, follows the window some frames later.
_WIDER = """async () => {
    const root = document.documentElement, wider = () => root.scrollWidth - root.clientWidth;
    for (let frame = 0; frame < 100 && wider() > 0; frame++) await new Promise(requestAnimationFrame);
    return wider();
}"""
CONTRAST = ("color-contrast",)


async def accessible_in_each_look(
    page: Page, *, dark: int = NARROW, shot: str | None = None, whole: bool = False
) -> None:
    """The page is accessible in a narrow and then in a wide window; the one of the width `dark` is dark.

    Without loading it again: to load a page and axe takes longer than to look at them. In `make thorough` also the other
    way round; otherwise the wide look is at what differs, its colours and its width. With SHOTS, the folder of that name
    gets pictures.
    """
    for darkened in (dark, WIDE + NARROW - dark) if THOROUGH else (dark,):
        for width in (NARROW, WIDE):
            theme: Literal["light", "dark"] = "dark" if width == darkened else "light"
            await page.set_viewport_size({"width": width, "height": 900})
            await page.emulate_media(color_scheme=theme)
            await accessible(page, whole=whole, only=CONTRAST if width == WIDE and not whole else ())
            if shot and (folder := os.environ.get("SHOTS")):
                await page.screenshot(path=Path(folder) / f"{shot}-{width}-{theme}.png", full_page=True)


async def accessible(page: Page, *, whole: bool = False, only: Sequence[str] = ()) -> None:
    """Nothing on the page is in the way of anybody, as far as axe can tell; and it is no wider than its window.

    `whole` is also the navigation and what a dialog covers, as always in `make thorough`. `only` are rules of axe.
    """
    await page.wait_for_load_state()  # a click may have led here
    if not await page.evaluate("'axe' in window"):
        await page.add_script_tag(url=AXE_PATH)
    said = await page.evaluate(_LOOK, [whole or THOROUGH, None if THOROUGH else list(only) or None])
    assert not said, "\n".join(said)
    await _fits(page)


async def fits_each_window(page: Page) -> None:
    """The page is no wider than its window, narrow or wide; in `make thorough` it is accessible there, too."""
    if THOROUGH:
        await accessible_in_each_look(page)
    for width in (NARROW, WIDE):
        await page.set_viewport_size({"width": width, "height": 900})
        await _fits(page)


async def _fits(page: Page) -> None:
    wider = await page.evaluate(_WIDER)
    assert wider <= 0, f"the page is {wider} px wider than its window"
