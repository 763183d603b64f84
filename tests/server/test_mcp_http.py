"""`fairlead mcp --http`: a process of its own, over real sockets, with a token in each request."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from fairlead.errors import InvalidInput
from tests.processes import FAIRLEAD, free_port, started, until
from tests.server.mcp_clients import _answers, call, http_client, http_server, refusal
from tests.server.server_processes import serving
from tests.server.test_mcp_stdio import INITIALIZE, enqueue
from tests.server.world import World
from tests.waiting import SECONDS

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.thorough

ACCEPT = {"Accept": "application/json, text/event-stream"}


def post(url: str, token: str | None = None, body: Any = INITIALIZE, **headers: str) -> httpx2.Response:
    sent = {**ACCEPT, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    return httpx2.post(url, json=body, headers=sent, timeout=SECONDS)


async def test_each_request_acts_for_its_own_token(world: World, database_url: str) -> None:
    own, other = await enqueue(world), await enqueue(world, "umbrella")
    with http_server(database_url) as url:
        async with (
            http_client(url, world.secrets["acme", "viewer"]) as ours,
            http_client(url, world.secrets["umbrella", "tenant_admin"]) as theirs,
        ):

            async def look(client: Client, seen: str, hidden: str) -> None:
                listed = await call(client, "list_jobs")
                assert [one["id"] for one in listed["items"]] == [seen]
                assert (await call(client, "show_job", job_id=seen))["id"] == seen
                for tool in ("show_job", "explain_job", "read_job_logs"):
                    assert (await refusal(client, tool, job_id=hidden))["code"] == "job_unknown"

            await asyncio.gather(
                *(look(ours, own, other) for _ in range(5)), *(look(theirs, other, own) for _ in range(5))
            )
            assert (await refusal(ours, "list_jobs", tenant="umbrella"))["code"] == "tenant_unknown"
            offered = {one.name for one in (await theirs.list_tools()).tools}
            assert "list_jobs" in offered
            assert "enqueue_job" not in offered


async def test_requests_without_a_valid_token_are_refused_before_they_are_read(
    world: World, database_url: str
) -> None:
    with http_server(database_url) as url:
        for token in (
            None,
            "fl_nope",
            world.secrets["acme", "expired"],
            world.secrets["acme", "revoked"],
        ):
            for body in (INITIALIZE, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, "not MCP"):
                answer = post(url, token, body)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        cookie = await world.signed_in()
        assert post(url, None, Cookie=cookie).status_code == 401
        token = world.secrets["acme", "viewer"]
        empty = httpx2.post(
            url, json=INITIALIZE, headers={**ACCEPT, "Authorization": "Bearer"}, timeout=SECONDS
        )
        assert empty.status_code == 401
        basic = httpx2.post(
            url, json=INITIALIZE, headers={**ACCEPT, "Authorization": f"Basic {token}"}, timeout=SECONDS
        )
        assert basic.status_code == 401
        twice = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer fl_nope")]
        repeated = httpx2.post(url, json=INITIALIZE, headers=[*ACCEPT.items(), *twice], timeout=SECONDS)
        assert (repeated.status_code, repeated.json()["code"]) == (422, "invalid_input")
        assert post(url, token).status_code == 200


async def test_a_token_that_is_revoked_meanwhile_is_refused(world: World, database_url: str) -> None:
    token = world.secrets["acme", "viewer"]
    with http_server(database_url) as url:
        assert post(url, token).status_code == 200
        revoked = await world.call(
            "DELETE", f"/tokens/{world.token_ids['acme', 'viewer']}", who="tenant_admin"
        )
        assert revoked.is_success

        until(lambda: post(url, token).status_code == 401, "the revocation")


async def test_an_allow_list_binds_clients_within_seconds(world: World, database_url: str) -> None:
    own, other = (world.secrets[tenant, "viewer"] for tenant in ("acme", "umbrella"))
    with http_server(database_url, FORWARDED_ALLOW_IPS="192.0.2.1") as url:
        assert post(url, own).status_code == 200
        body = {"addresses": ["203.0.113.0/24"], "force": True}
        changed = await world.call("PUT", "/addresses", who="tenant_admin", json=body)
        assert changed.is_success

        until(lambda: post(url, own).status_code == 403, "the allow-list")
        assert "127.0.0.1" in post(url, own).text
        assert post(url, other).status_code == 200
        assert post(url, own, **{"X-Forwarded-For": "203.0.113.9"}).status_code == 403


async def test_pages_and_names_of_other_sites_are_refused(world: World, database_url: str) -> None:
    token = world.secrets["acme", "viewer"]
    origins = ["--allowed-origin", "https://app.example.com", "--allowed-host", "mcp.example.com"]
    with http_server(database_url, *origins) as url:
        for legacy in ({}, {"MCP_Protocol_Version": "2025-06-18"}):
            assert post(url, token, Host="rebound.example:8100", **legacy).status_code == 421
            assert post(url, token, Origin="https://evil.example", **legacy).status_code == 403
            assert (
                post(url, token, Origin="https://app.example.com.evil.example", **legacy).status_code == 403
            )
            assert post(url, token, Origin="https://app.example.com", **legacy).status_code == 200
            assert post(url, token, Host="mcp.example.com", **legacy).status_code == 200
            assert post(url, token, Host="localhost:8100", Origin="http://localhost:3000").status_code == 200


async def test_other_addresses_methods_and_bodies_are_refused(world: World, database_url: str) -> None:
    token = world.secrets["acme", "viewer"]
    with http_server(database_url, FAIRLEAD_MAX_BODY_BYTES="5000") as url:
        other = post(url.replace("/mcp", "/api/v1/jobs"), token)
        assert (other.status_code, other.json()["code"]) == (404, "not_found")
        for method in ("GET", "DELETE"):
            answer = httpx2.request(
                method, url, headers={**ACCEPT, "Authorization": f"Bearer {token}"}, timeout=SECONDS
            )
            assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
            assert answer.headers["Allow"] == "POST"
        assert post(url, token, {"jsonrpc": "2.0", "id": 1, "method": "x" * 6000}).status_code == 413
        assert post(url, token, [1, 2]).status_code == 400


async def test_a_gateway_passes_each_token_on_to_its_server(world: World, database_url: str) -> None:
    own, other = await enqueue(world), await enqueue(world, "umbrella")
    with serving(database_url) as server, http_server("", "--server", server.url) as url:
        assert post(url, "fl_nope").json()["code"] == "unauthenticated"
        async with http_client(url, world.secrets["acme", "viewer"]) as client:
            assert (await call(client, "explain_job", job_id=own))["reasons"]
            assert (await refusal(client, "explain_job", job_id=other))["code"] == "job_unknown"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(database_url: str, end: signal.Signals) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with started(
        [FAIRLEAD, "mcp", "--http", "--port", str(port)], env={"FAIRLEAD_DATABASE_URL": database_url}
    ) as process:
        until(lambda: _answers(url), "the MCP server")
        process.send_signal(end)
        output, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert f"serving MCP at {url}: tools only read" in output
    assert "stopped" in output


def test_a_server_for_other_machines_needs_its_names() -> None:
    from fairlead.server.mcp.http import find_names  # noqa: PLC0415

    assert find_names("127.0.0.1", ()) == ["127.0.0.1", "localhost", "[::1]"]
    assert find_names("::1", ["mcp.test"])[-1] == "mcp.test"
    assert find_names("0.0.0.0", ["mcp.test"]) == ["mcp.test"]  # noqa: S104
    with pytest.raises(InvalidInput, match="--allowed-host mcp"):
        find_names("0.0.0.0", ())  # noqa: S104
    with pytest.raises(InvalidInput, match="--allowed-host mcp"):
        find_names("mcp.example.com", ())
