"""The API's description and the page to browse it, without any other host; and the application mounted in another."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from fairlead import Fairlead, Settings
from fairlead.server import docs, health
from fairlead.server.app import create_app
from tests.server.world import BASE, World
from tests.waiting import SECONDS

DOCS = f"{BASE}/api/v1/docs"


@pytest.mark.thorough
async def test_the_page_has_all_it_needs_from_here(world: World) -> None:
    page = await world.client.get(DOCS)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")

    needed = re.findall(r'(?:src|href)="((?!data:)[^"]+)"', page.text)
    assert len(needed) == 4
    for link in needed:
        assert (await world.client.get(httpx2.URL(DOCS).join(link))).status_code == 200


async def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(world: World) -> None:
    for path in ("", "/start.js", "/swagger-ui.css", "/swagger-ui-bundle.js"):
        answer = await world.client.get(DOCS + path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "://" not in policy
    page = (await world.client.get(DOCS)).text
    assert "://" not in page
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


async def test_only_the_files_of_the_page_are_served(world: World) -> None:
    for name in ("LICENSE", "index.html", "..%2f__init__.py", "nope"):
        assert (await world.client.get(f"{DOCS}/{name}")).status_code in (404, 422)


def test_the_licence_is_beside_what_was_vendored() -> None:
    folder = files("fairlead.server").joinpath("static", "docs")

    assert "Apache License" in folder.joinpath("LICENSE").read_text()
    assert "swagger-ui-dist 5." in folder.joinpath("NOTICE").read_text()


async def test_others_are_answered_while_the_description_is_built(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_were_answered = threading.Event()

    def build(*_: Any) -> dict[str, Any]:
        assert others_were_answered.wait(SECONDS)
        return {"built": str(uuid4())}

    monkeypatch.setattr(docs, "_build_openapi", build)
    asked = [asyncio.create_task(world.client.get(f"{BASE}/api/v1/openapi.json")) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await world.client.get(f"{BASE}/healthz")).status_code == 200
    others_were_answered.set()
    first, second = await asyncio.gather(*asked)

    assert first.status_code == 200
    assert first.json() == second.json()


async def test_the_description_says_how_one_is_known_and_what_a_problem_is(world: World) -> None:
    described = (await world.client.get(f"{BASE}/api/v1/openapi.json")).json()

    assert described["openapi"].startswith("3.1")
    jobs = described["paths"]["/api/v1/jobs"]["get"]
    assert jobs["security"] == [{"token": []}, {"session": []}]
    assert "X-Tenant" in [one["name"] for one in jobs["parameters"]]
    assert "security" not in described["paths"]["/api/v1/login"]["post"]
    for operations in described["paths"].values():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
    assert "HTTPValidationError" not in str(described)
    assert described["paths"]["/api/v1/me"]["get"]["summary"].startswith("Show the caller")


@pytest.mark.thorough
async def test_the_application_works_mounted_in_another_that_opens_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "READY_SECONDS", 60.0)
    fl = Fairlead(settings=settings)
    api = create_app(fl)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with fl:
            yield

    host = Starlette(routes=[Mount("/jobs", app=api)], lifespan=lifespan)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=host), base_url=BASE) as client:
        async with host.router.lifespan_context(host):
            assert (await client.get("/jobs/readyz")).status_code == 200
            assert (await client.get("/jobs/api/v1/me")).status_code == 401
            page = await client.get("/jobs/api/v1/docs")
            assert (await client.get(page.url.join("docs/start.js"))).status_code == 200
            described = (await client.get(page.url.join("openapi.json"))).json()
            assert {"url": "/jobs"} in described["servers"]
        closed = await client.get("/jobs/readyz")
        assert (closed.status_code, closed.json()["code"]) == (503, "not_open")
        refused = await client.get("/jobs/api/v1/jobs", headers={"Authorization": "Bearer fl_x"})
        assert (refused.status_code, refused.json()["code"]) == (500, "not_open")
