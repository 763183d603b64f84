"""The pytest plugin: the application of `fairlead_app` on a test database, and the helpers of `fairlead.testing`, as fixtures.

pytest loads it in every run of an environment that has Fairlead: what it needs is imported by the first test that uses it.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

APP_OPTION = "fairlead_app"
NO_APP = (
    "No application is named. In the configuration of pytest, set fairlead_app to the module and the name of your Fairlead, "
    'such as fairlead_app = "myapp.jobs:fl", or define a fixture fairlead_app that returns it.'
)
NO_LOOP = (
    "This Fairlead is asynchronous, and no plugin runs asynchronous tests here: install pytest-asyncio, or mark the test with "
    "@pytest.mark.anyio."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(APP_OPTION, "The application of Fairlead's fixtures, as module:name.")


def pytest_configure(config: pytest.Config) -> None:
    if _has_asyncio(config):
        config.pluginmanager.import_plugin("fairlead.pytest_plugin.asyncio_fixtures")


def _has_asyncio(config: pytest.Config) -> bool:
    """Whether pytest-asyncio is loaded, by its entry point or by `-p`, which give it different names."""
    module = sys.modules.get("pytest_asyncio.plugin")
    return module is not None and config.pluginmanager.is_registered(module)


# What a project may define differently: a fixture of the same name in its conftest.py takes precedence


@pytest.fixture(scope="session")
def fairlead_app(pytestconfig: pytest.Config) -> Any:
    """The application's Fairlead, imported as the option `fairlead_app` names it."""
    from fairlead.errors import FairleadError  # noqa: PLC0415 - pytest loads this module in every run
    from fairlead.load import find_app  # noqa: PLC0415

    name = pytestconfig.getini(APP_OPTION)
    if not name:
        pytest.fail(NO_APP, pytrace=False)
    try:
        return find_app(name, pytestconfig.rootpath)
    except FairleadError as error:
        pytest.fail(f"fairlead_app = {name!r}: [{error.code}] {error}", pytrace=False)


@pytest.fixture
def fairlead_tenant() -> str | None:
    """The tenant that each test database has; None for none."""
    return "test"


@pytest.fixture(scope="session")
def fairlead_server_url(pytestconfig: pytest.Config) -> str:
    """The server on which each test gets a new database: an embedded PostgreSQL for this run of pytest."""
    from fairlead.test_database import shared_postgres  # noqa: PLC0415

    return shared_postgres(pytestconfig)


@pytest.fixture
def fairlead_database_url() -> str | None:
    """A database to use as it is, instead of a new one for each test."""
    return None


# The application


@pytest.fixture
def fairlead(request: pytest.FixtureRequest, fairlead_app: Any) -> Any:
    """The application's Fairlead, open on a test database with a tenant `test`; its own settings return after the test."""
    from fairlead import sync  # noqa: PLC0415

    if isinstance(fairlead_app, sync.Fairlead):
        return request.getfixturevalue("_open_sync")
    if "anyio_backend" in request.fixturenames:
        return request.getfixturevalue("_open_on_anyio")
    if _has_asyncio(request.config):
        return request.getfixturevalue("_open_on_asyncio")
    return pytest.fail(NO_LOOP, pytrace=False)


@pytest.fixture
def _fairlead_options(
    request: pytest.FixtureRequest, fairlead_tenant: str | None, fairlead_database_url: str | None
) -> dict[str, Any]:
    if fairlead_database_url is not None:
        return {"tenant": fairlead_tenant, "database_url": fairlead_database_url}
    return {"tenant": fairlead_tenant, "server_url": request.getfixturevalue("fairlead_server_url")}


@pytest.fixture
def _open_sync(fairlead_app: Any, _fairlead_options: dict[str, Any]) -> Iterator[Any]:
    from fairlead import test_database  # noqa: PLC0415

    with test_database.fairlead(fairlead_app, **_fairlead_options) as fl:
        yield fl


@pytest.fixture
async def _open_on_anyio(fairlead_app: Any, _fairlead_options: dict[str, Any]) -> AsyncIterator[Any]:
    from fairlead import test_database  # noqa: PLC0415

    async with test_database.fairlead(fairlead_app, **_fairlead_options) as fl:
        yield fl


# The helpers of `fairlead.testing`, without their first argument


def _define_helper(name: str, contract: str) -> Any:
    def helper(fairlead: Any) -> Callable[..., Any]:
        from fairlead import testing  # noqa: PLC0415

        return partial(getattr(testing, name), fairlead)

    helper.__doc__ = contract  # for `pytest --fixtures`
    return pytest.fixture(name=name)(helper)


run_due = _define_helper("run_due", "Run due jobs, and those that they enqueue, until none is due.")
pass_time = _define_helper("pass_time", "Let time pass for waiting jobs and durable functions.")
run_job = _define_helper("run_job", "Enqueue a job, run it, and return its output.")
dispatch_events = _define_helper(
    "dispatch_events", "Create the jobs of waiting events, without running them."
)
fire_schedules = _define_helper("fire_schedules", "Fire schedules, due or not, without running their jobs.")
assert_enqueued = _define_helper(
    "assert_enqueued", "Require a job of this definition; returns the matching ones."
)
assert_not_enqueued = _define_helper("assert_not_enqueued", "Require that no such job was enqueued.")
list_enqueued = _define_helper("list_enqueued", "The enqueued jobs, newest first.")
assert_emitted = _define_helper("assert_emitted", "Require an event of this name; returns the matching ones.")
