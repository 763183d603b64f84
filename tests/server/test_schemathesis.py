"""Whatever fits the description of the API, and much that does not, is answered as described, to everybody."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.server.world import Uncounted, World, listening, world_on
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

# How many requests each operation gets, each of them from each role.
EXAMPLES = 5
WHO = (None, "viewer", "operator", "tenant_admin", "super_admin", "worker", "agent")
# Where it could end its own session, its own token, or everybody's work: the others test what these do.
NOT_HERE = {("PUT", "/api/v1/admin/system"), ("POST", "/api/v1/jobs/tick")}

# The same requests every time.
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def served(module_url: str) -> Iterator[tuple[World, str]]:
    """A world behind a socket, in a thread with a loop of its own: schemathesis itself is not asynchronous."""
    started: Future[tuple[World, str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        async with world_on(module_url) as world:
            world.app.state.gatekeeper.failures = Uncounted(world.fl)
            stop = asyncio.Event()
            async with listening(world) as port:
                url = f"http://127.0.0.1:{port}"
                started.set_result((world, url, asyncio.get_running_loop(), stop))
                await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="served")
    thread.start()
    world, url, loop, stop = started.result(SECONDS)
    yield world, url
    loop.call_soon_threadsafe(stop.set)
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.timeout(10 * SECONDS)
def test_every_operation_answers_everybody_as_described(served: tuple[World, str]) -> None:
    # half a second to import, which whoever collects the tests need not wait for
    import schemathesis  # noqa: PLC0415
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415
    from schemathesis.config import SchemathesisConfig  # noqa: PLC0415
    from schemathesis.specs.openapi import checks  # noqa: PLC0415

    conformance: list[Any] = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    world, url = served
    schema = schemathesis.openapi.from_dict(world.app.openapi(), config=SchemathesisConfig())
    asked = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # an Err raises here, which is right
        if (operation.method.upper(), operation.path) in NOT_HERE:
            continue

        @BOUNDED
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.headers.pop("X-Tenant", None)
            for who in WHO:  # to make up a request takes longer than to send it
                try:
                    headers = {**world.headers(who), **_tenant(who, asked)}
                    answer = case.call(base_url=url, headers=headers, timeout=SECONDS)
                    case.validate_response(answer, checks=conformance)
                except BaseException as error:
                    error.add_note(f"asked by {who}")
                    raise

        ask()
    assert asked > 100, "it asks of everything"


def _tenant(who: str | None, n: int) -> dict[str, str]:
    """A super admin acts in a tenant every other time."""
    return {"X-Tenant": "acme"} if who == "super_admin" and n % 2 else {}
