"""Sign-in and sign-out with a certified provider, `oidc-provider` for Node, as a browser goes through its pages."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import NamedTuple
from urllib.parse import parse_qs, urljoin

import httpx2
import pytest

from tests import given, node_programs
from tests.handlers.loopback import Reply, Server, serving
from tests.oidc_provider import CLIENT, SECRET
from tests.oidc_stage import HOME, START, TABLE, Browser, use_providers
from tests.server.world import World, world_on
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough


class Certified(NamedTuple):
    world: World
    issuer: str
    # receives its logout tokens
    sink: Server

    def browser(self) -> Browser:
        transport = httpx2.ASGITransport(app=self.world.app, raise_app_exceptions=False)
        return Browser(self.world, httpx2.AsyncClient(transport=transport, trust_env=False))


@pytest.fixture
async def certified(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Certified]:
    if why := node_programs.why_not("oidc"):
        pytest.skip(why)
    monkeypatch.setenv("TEST_OIDC_SECRET", SECRET)
    async with (
        serving(lambda _: Reply()) as sink,
        world_on(database_url) as world,
        provider_on(sink) as issuer,
    ):
        use_providers(world, TABLE.format(issuer=issuer, client=CLIENT, tenant=given.TENANT))
        yield Certified(world, issuer, sink)


@asynccontextmanager
async def provider_on(sink: Server) -> AsyncIterator[str]:
    """The provider as a process of its own. Its issuer."""
    options = {
        "client": CLIENT,
        "secret": SECRET,
        "callback": f"{START}/callback",
        "signedOut": f"{HOME}/console/sign-in",
        "logout": f"{sink.url}/logout",
    }
    program = node_programs.node_folder("oidc") / "provider.mjs"
    process = await asyncio.create_subprocess_exec(
        "node", str(program), json.dumps(options), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            issuer = (await process.stdout.readline()).decode().strip()
        assert issuer, "the provider did not start"
        yield issuer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Person:
    """Somebody at the provider's pages: follows redirects, and submits each form with their name and a password."""

    def __init__(self, login: str, client: httpx2.AsyncClient) -> None:
        self.login = login
        self.client = client

    async def go(self, url: str) -> str:
        """The address to which the provider sends the browser back."""
        answer = await self.client.get(url)
        for _ in range(20):
            if answer.is_redirect:
                to = urljoin(str(answer.url), answer.headers["location"])
                if to.startswith(HOME):
                    return to
                answer = await self.client.get(to)
            else:
                answer = await self._submit(answer)
        raise AssertionError(f"the provider's pages do not end: {answer.text[:500]}")

    async def _submit(self, page: httpx2.Response) -> httpx2.Response:
        assert page.status_code == 200, page.text
        [action] = re.findall(r'<form[^>]* action="([^"]+)"', page.text)
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text)
        fields = {name: unescape(value) for name, value in hidden}
        if 'name="login"' in page.text:
            fields |= {"login": self.login, "password": "any"}
        if 'name="logout"' in page.text:
            fields["logout"] = "yes"
        return await self.client.post(urljoin(str(page.url), unescape(action)), data=fields)


@pytest.fixture
async def person() -> AsyncIterator[Person]:
    async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS) as client:
        yield Person("grace", client)


async def test_a_person_signs_in_at_the_provider(certified: Certified, person: Person) -> None:
    browser = certified.browser()

    back = await person.go(await browser.begin(f"{START}?next=/jobs"))
    answer = await browser.get(back)

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs"), answer.text
    me = await browser.me()
    assert (me["actor"], me["role"], me["tenant"]) == ("user:grace@example.com", "operator", given.TENANT)
    again = await browser.get(back)
    assert again.status_code == 403, "a code was accepted twice"


async def test_a_sign_out_at_the_provider_ends_the_session_here(certified: Certified, person: Person) -> None:
    browser = certified.browser()
    await browser.get(await person.go(await browser.begin()))
    left = await browser.client.post(f"{HOME}/console/sign-out", headers={"sec-fetch-site": "same-origin"})
    page = await browser.get(urljoin(HOME, left.headers["location"]))
    other = certified.browser()
    await other.get(await person.go(await other.begin()))

    [link] = [one for one in re.findall(r'href="([^"]+)"', page.text) if one.startswith(certified.issuer)]
    assert "id_token_hint=" in link
    forged = re.sub("(id_token_hint=[^.]+.)[^.]+", r"\1eyJzdWIiOiJldmUifQ", unescape(link))
    assert (await person.client.get(forged)).status_code == 400  # so that the provider reads it
    back = await person.go(unescape(link))
    [asked] = certified.sink.asked  # before the provider sent the browser back
    [token] = parse_qs(asked.body.decode())["logout_token"]
    told = await browser.client.post(f"{START}/logout", data={"logout_token": token})

    assert back == f"{HOME}/console/sign-in"
    assert told.status_code == 200, told.text
    assert "actor" not in await other.me()
    twice = await browser.client.post(f"{START}/logout", data={"logout_token": token})
    assert twice.status_code == 400
