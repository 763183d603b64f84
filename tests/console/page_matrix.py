"""The pages and actions of the console, and how to fill their paths: what tests/server/matrix.py is for the API."""

from functools import cache

from fastapi import FastAPI
from starlette.routing import Mount

from fairlead.actions import workflows
from fairlead.db.tx import Tx
from fairlead.model.access import GLOBAL_TENANT
from fairlead.server.problems import CONSOLE, PREFIX
from tests import given
from tests.server import matrix
from tests.server.world import World


async def _key(tx: Tx, world: World, tenant: str) -> str:
    return "anything"


async def _slug(tx: Tx, world: World, tenant: str) -> str:
    return tenant


async def _action(tx: Tx, world: World, tenant: str) -> str:
    return "cancel"


async def _worker(tx: Tx, world: World, tenant: str) -> str:
    await tx.run(
        "insert into fairlead.job_workers (worker_id, hostname) values ('w:1:a', 'w') on conflict do nothing"
    )
    return "w:1:a"


async def _workflow_key(tx: Tx, world: World, tenant: str) -> str:
    """One that is shared: what is a tenant's own is looked for in the tenant that is named."""
    return (await workflows.publish(tx, given.TESTER, GLOBAL_TENANT, matrix.WORKFLOW))[0].key


def _none() -> str:
    return "there-is-no-such-thing"


# The parameters that the API has none of; those of one name that mean something else here.
BUILDERS: dict[str, matrix.Builder] = {
    # a host of its own: some actions revoke its agents, and everybody asks after them
    "key": matrix.Builder(_key, missing=_none, shared=True),
    "slug": matrix.Builder(_slug, missing=_none, shared=True),
    "action": matrix.Builder(_action, missing=_none, shared=True),
    "workflow_key": matrix.Builder(_workflow_key, missing=_none, shared=True),
    "worker_id": matrix.Builder(_worker, missing=_none, shared=True),
    "mark": matrix.Builder(_slug, missing=_none, shared=True),
    # none is configured: see tests/server/test_oidc_sign_in.py
    "provider": matrix.Builder(_slug, missing=_none, shared=True),
    "host_id": matrix.SPECIAL[f"{PREFIX}/hosts/{{host_id}}", "host_id"],
}
# What they name belongs to no tenant, so that nobody's is another's.
NO_TENANTS = ("key", "slug", "action", "mark", "provider", "workflow_key", "worker_id")
# Forms with which an action gets as far as looking for its object.
FORMS: dict[str, dict[str, str]] = {"POST /errors/{group_id}/mute": {"how": "1h"}}


@cache
def console() -> FastAPI:
    """The console's application."""
    [found] = [
        route.app
        for route in matrix.application().routes
        if isinstance(route, Mount) and route.path == CONSOLE and isinstance(route.app, FastAPI)
    ]
    return found


@cache
def page_rules() -> list[matrix.Rule]:
    """The rules of the console's application."""
    return matrix.rules(console())
