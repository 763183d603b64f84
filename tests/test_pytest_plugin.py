"""The pytest plugin, in runs of pytest as users start them."""

import asyncio
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairlead import testing
from tests.processes import environment, run_to_end

pytestmark = pytest.mark.thorough

PLUGIN = ("-p", "fairlead.pytest_plugin")
ASYNCIO = ("-p", "pytest_asyncio.plugin")
ANYIO = ("-p", "anyio.pytest_plugin")

SHOP = """
from fairlead import Fairlead

fl = Fairlead(database_url="postgresql://nobody@127.0.0.1:1/production")


@fl.job
async def send_receipt(to: str, cents: int = 100) -> str:
    if cents < 0:
        raise ValueError("a negative amount")
    return f"{to} has paid {cents}"


@fl.on("order.paid", tenant="test", payload={"to": "{{event.to}}"})
@fl.job
async def pack(to: str) -> None:
    await send_receipt.enqueue(tenant="test", to=to)


@fl.every(3600, tenant="test")
@fl.job
async def clean_up() -> None: ...


async def check_out(to: str) -> None:
    await send_receipt.enqueue(tenant="test", to=to, cents=1999)
"""
TESTS = """
import pytest
from shop import check_out, clean_up, fl, pack, send_receipt

pytestmark = pytest.mark.asyncio

@pytest.mark.parametrize("to", ["ada", "grace"])
async def test_checking_out(to, fairlead, assert_enqueued, assert_not_enqueued, list_enqueued, run_due):
    assert fairlead is fl
    await check_out(to)
    [job] = await assert_enqueued(send_receipt, payload={"to": to}, tenant="test", count=1)
    await assert_not_enqueued(send_receipt, payload={"to": "eve"})
    await assert_not_enqueued(pack)
    assert [one.id for one in await list_enqueued()] == [job.id]
    assert await list_enqueued(pack) == await list_enqueued(payload={"to": "eve"}) == []
    report = await run_due()
    assert report.statuses == {"succeeded": 1}

async def test_events_and_schedules(fairlead, assert_emitted, dispatch_events, fire_schedules, assert_enqueued):
    await fairlead.emit("order.paid", tenant="test", data={"to": "ada"})
    await assert_emitted("order.paid", data={"to": "ada"}, count=1)
    await fairlead.sync_triggers()
    assert await fire_schedules(clean_up) == 1
    await assert_enqueued(clean_up)

async def test_one_job(run_job):
    assert await run_job(send_receipt, {"to": "ada"}) == "ada has paid 100"
    with pytest.raises(ValueError, match="negative"):
        await run_job("send_receipt", {"to": "ada", "cents": -1})
    with pytest.raises(Exception, match="payload"):
        await run_job(send_receipt, {"two": "ada"})
"""
SERVER = """
import os
import pytest

@pytest.fixture(scope="session")
def fairlead_server_url():
    return os.environ["SERVER"]
"""


def configure(folder: Path, app: str | None = "shop:fl", **options: str) -> None:
    """Write a pytest configuration."""
    named = options if app is None else {"fairlead_app": app, **options}
    lines = [f"{name} = {value}" for name, value in named.items()]
    (folder / "pytest.ini").write_text("\n".join(("[pytest]", *lines, "")))


async def run_pytest(folder: Path, *options: str, autoload: bool = False, **env: str) -> str:
    """The output of pytest on the tests of a folder."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    if not autoload:
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = await asyncio.to_thread(run_to_end, argv, cwd=folder, env=environment(**env))
    return done.stdout + done.stderr


async def test_a_test_gets_the_application_on_a_database_of_its_own_with_every_helper(
    server: str, tmp_path: Path
) -> None:
    configure(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(SERVER)

    assert "4 passed" in await run_pytest(tmp_path, *PLUGIN, *ASYNCIO, SERVER=server)


async def test_every_helper_of_testing_is_a_fixture(tmp_path: Path) -> None:
    listed = await run_pytest(tmp_path, *PLUGIN, "--fixtures")

    # they make fixtures, and what fixtures need; a replay needs no Fairlead
    not_fixtures = {"fixture", "postgres", "replay", "Replayed"}
    missing = [name for name in testing.__all__ if name not in not_fixtures and f"\n{name} -- " not in listed]
    assert missing == []
    assert "no docstring available" not in listed.partition("fixtures defined from fairlead")[2]


SYNC_SHOP = """
from fairlead.sync import Fairlead

fl = Fairlead()

@fl.job
def send_receipt(to: str) -> str:
    return f"{to} has paid"
"""
SYNC_TESTS = """
import os
from shop import fl, send_receipt

def test_checking_out(fairlead, fairlead_server_url, assert_enqueued, run_due, run_job, list_enqueued):
    assert fairlead is fl
    send_receipt.enqueue(tenant="acme", to="ada")
    assert_enqueued(send_receipt, payload={"to": "ada"}, count=1)
    assert run_due().statuses == {"succeeded": 1}
    assert run_job(send_receipt, {"to": "grace"}, tenant="acme") == "grace has paid"
    assert [job.payload["to"] for job in list_enqueued()] == ["grace", "ada"]
    assert fairlead_server_url != os.environ["SERVER"]

def test_the_next_one(list_enqueued):
    assert list_enqueued() == []
"""
TENANT = """
import pytest

@pytest.fixture
def fairlead_tenant():
    return "acme"
"""


async def test_a_synchronous_application_needs_no_await_no_other_plugin_and_no_server(
    server: str, tmp_path: Path
) -> None:
    configure(tmp_path)
    (tmp_path / "shop.py").write_text(SYNC_SHOP)
    (tmp_path / "test_shop.py").write_text(SYNC_TESTS)
    (tmp_path / "conftest.py").write_text(TENANT)

    assert "2 passed" in await run_pytest(tmp_path, *PLUGIN, SERVER=server)


ANYIO_TESTS = """
import os
import pytest
from shop import check_out, send_receipt

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def fairlead_database_url():
    return os.environ["DATABASE"]

@pytest.mark.anyio
async def test_checking_out(fairlead, assert_enqueued, run_due):
    assert fairlead.database.url == os.environ["DATABASE"]
    await check_out("ada")
    await assert_enqueued(send_receipt, payload={"to": "ada"}, count=1)
    assert (await run_due()).ran == 1
"""


@pytest.mark.parametrize("plugins", [(), ASYNCIO], ids=["alone", "beside-asyncio"])
async def test_it_works_with_anyio_and_on_a_database_that_the_project_names(
    database_url: str, tmp_path: Path, plugins: tuple[str, ...]
) -> None:
    configure(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(ANYIO_TESTS)

    assert "1 passed" in await run_pytest(tmp_path, *PLUGIN, *ANYIO, *plugins, DATABASE=database_url)


# What goes wrong


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (None, "No application is named. In the configuration of pytest, set fairlead_app"),
        ("shop:nothing", "[invalid_input] 'shop:nothing' does not name a Fairlead. Use module:name"),
        ("shop.py:fl", "[invalid_input] Give the module, not its file: shop:fl."),
        ("shap:fl", "[invalid_input] The module 'shap' was not found."),
        ("shop:fl", "This Fairlead is asynchronous, and no plugin runs asynchronous tests here: install"),
    ],
)
async def test_what_is_missing_is_said_without_a_traceback(
    tmp_path: Path, app: str | None, said: str
) -> None:
    configure(tmp_path, app)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text("def test_it(run_due): ...\n")

    output = await run_pytest(tmp_path, *PLUGIN)

    assert said in output
    assert "1 error" in output
    assert "Traceback" not in output
    assert "site-packages" not in output


FAILING = """
import pytest
from shop import send_receipt

@pytest.mark.asyncio
async def test_checking_out(assert_enqueued):
    await send_receipt.enqueue(tenant="test", to="eve")
    await assert_enqueued(send_receipt, payload={"to": "ada"})  # this line
"""


async def test_a_failed_assertion_shows_the_line_of_the_test_and_what_was_enqueued(
    server: str, tmp_path: Path
) -> None:
    configure(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text(SERVER)

    output = await run_pytest(tmp_path, *PLUGIN, *ASYNCIO, SERVER=server)

    assert "# this line" in output
    assert 'send_receipt  test  {"to":"eve"}  queued' in output
    assert "fairlead/testing.py" not in output


# Runs that do not use it

OTHERS = """
import sys
import pytest

@pytest.fixture
def run_due():
    return "mine"

def test_names_of_the_project_come_first(run_due):
    assert run_due == "mine"

def test_nothing_is_imported():
    ours = {name for name in sys.modules if name.partition(".")[0] == "fairlead"}
    assert ours - {"fairlead.pytest_plugin.asyncio_fixtures"} == {"fairlead", "fairlead.version", "fairlead.pytest_plugin"}
    assert not {"psycopg", "msgspec", "structlog", "fastapi"} & set(sys.modules)
"""


@pytest.mark.parametrize("plugins", [(), ASYNCIO], ids=["alone", "beside-asyncio"])
def test_a_run_that_does_not_use_it_imports_nothing_else(tmp_path: Path, plugins: tuple[str, ...]) -> None:
    configure(tmp_path, None, **{"asyncio_default_fixture_loop_scope": "function"} if plugins else {})
    (tmp_path / "test_others.py").write_text(OTHERS)
    argv = [sys.executable, "-m", "pytest", "-q", "-W", "error::pytest.PytestWarning", *PLUGIN, *plugins]
    env = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    # a whole new process: others are forked from one that has imported Fairlead
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert "2 passed" in done.stdout, done.stdout


def test_pytest_finds_it_by_its_entry_point(pytestconfig: pytest.Config) -> None:
    [entry] = [one for one in entry_points(group="pytest11") if one.name == "fairlead"]

    assert entry.value == "fairlead.pytest_plugin"
    assert pytestconfig.pluginmanager.hasplugin("fairlead")
