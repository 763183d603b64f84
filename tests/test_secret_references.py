"""Jobs whose payloads refer to secrets: only the worker that runs them has the secrets."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from fairlead import BatchJob, Context, Fairlead, Secret, Settings
from fairlead.errors import JobFailed, PayloadInvalid, SettingInvalid, SignatureInvalid
from fairlead.handlers import secrets
from tests.databases import find_in_database
from tests.given import OTHER, TENANT
from tests.processes import FAIRLEAD, started
from tests.tables import each_case
from tests.waiting import SECONDS

VALUE = "sk-live-0123456789-canary"
REFERENCE = {"$secret": "stripe"}


class Charge(msgspec.Struct):
    token: Annotated[str, Secret()]


def write_config(folder: Path, text: str) -> Path:
    path = folder / "fairlead.toml"
    path.write_text(text)
    return path


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STRIPE_KEY", VALUE)
    (tmp_path / "token").write_text(f"{VALUE}-file\n")
    return write_config(
        tmp_path,
        '[secrets.stripe]\nsource = "env:STRIPE_KEY"\ndefinitions = ["pay", "blocking", "alone", "bulk"]\n'
        f'[secrets.filed]\nsource = "file:{tmp_path / "token"}"\ndefinitions = ["pay"]\ntenants = ["{TENANT}"]\n',
    )


async def run_job(fl: Fairlead, key: str, payload: dict[str, Any], tenant: str = TENANT) -> Any:
    job = await fl.enqueue(key, tenant=tenant, payload=payload)
    await fl.tick()
    return await job.result(timeout=SECONDS)


@pytest.mark.usefixtures("db")
async def test_functions_get_the_secret_and_nobody_else_does(
    settings: Settings, database_url: str, config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fl, seen = Fairlead(settings=settings), list[str]()
    fl.allow_secrets(config)

    @fl.job(key="pay")
    async def pay(ctx: Context, token: Annotated[str, Secret()], fails: bool = False) -> dict[str, str]:  # noqa: FBT001, FBT002 - a payload
        seen.append(token)
        ctx.log.info("paying", text=f"with {token}")
        ctx.progress(50, f"with {token}")
        if fails:
            raise ValueError(f"{token} was refused")
        return {"said": f"paid with {token}"}

    @fl.job(key="blocking")
    def blocking(token: Annotated[str, Secret()]) -> str:
        seen.append(token)
        return token

    @fl.job(key="bulk", batch=10, batch_wait=0.01)
    async def bulk(jobs: list[BatchJob[Charge]]) -> None:
        seen.extend(one.payload.token for one in jobs)

    async with fl:
        assert await run_job(fl, "pay", {"token": REFERENCE}) == {"said": "paid with [redacted]"}
        assert await run_job(fl, "pay", {"token": {"$secret": "filed"}}) == {"said": "paid with [redacted]"}
        assert await run_job(fl, "blocking", {"token": REFERENCE}) == "[redacted]"
        with pytest.raises(JobFailed) as failed:
            job = await fl.enqueue(
                "pay", tenant=TENANT, payload={"token": REFERENCE, "fails": True}, max_attempts=1
            )
            await fl.tick()
            await job.result(timeout=SECONDS)
        assert "[redacted] was refused" in str(failed.value)
        shown, attempts = await fl.show(job.id)
        await run_job(fl, "bulk", {"token": REFERENCE})
    assert seen == [VALUE, f"{VALUE}-file", VALUE, VALUE, VALUE]
    assert shown.payload["token"] == REFERENCE
    assert VALUE not in f"{shown} {attempts}"
    assert find_in_database(database_url, VALUE) == []
    assert VALUE not in "".join(capfd.readouterr())


@pytest.mark.usefixtures("db")
async def test_a_secret_that_the_job_cannot_have_fails_it_with_the_name_and_the_reason(
    settings: Settings, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl = Fairlead(settings=settings)
    fl.allow_secrets(config)
    ran = []

    @fl.job(key="pay", max_attempts=1)
    async def pay(token: Annotated[str, Secret()]) -> None:
        ran.append(token)

    @fl.job(key="other", max_attempts=1)
    async def other(token: Annotated[str, Secret()]) -> None:
        ran.append(token)

    async with fl:
        for key, name, tenant, kind, said in (
            ("pay", "nosuch", TENANT, "SecretMissing", "add [secrets.nosuch] to its fairlead.toml"),
            ("other", "stripe", TENANT, "SecretRefused", "does not list the definition other"),
            ("pay", "filed", OTHER, "SecretRefused", f"does not list the tenant {OTHER}"),
        ):
            with pytest.raises(JobFailed, match=kind) as failed:
                await run_job(fl, key, {"token": {"$secret": name}}, tenant)
            assert said in str(failed.value)
        monkeypatch.delenv("STRIPE_KEY")
        with pytest.raises(JobFailed, match="the variable STRIPE_KEY is not set"):
            await run_job(fl, "pay", {"token": REFERENCE})
        monkeypatch.setenv("STRIPE_KEY", "short")
        with pytest.raises(JobFailed, match="fewer than 8 characters"):
            await run_job(fl, "pay", {"token": REFERENCE})
        with pytest.raises(PayloadInvalid):
            await fl.enqueue("pay", tenant=TENANT, payload={"token": {"$secret": "not a name"}})
    assert ran == []


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_of_the_application_resolves_secrets(settings: Settings, *, is_async: bool) -> None:
    fl, asked, seen = Fairlead(settings=settings), list[tuple[str, str]](), list[str]()

    def find(name: str, ctx: Context) -> str | None:
        asked.append((name, ctx.tenant))
        if name == "broken":
            raise RuntimeError(VALUE)
        return None if name == "nosuch" else VALUE

    async def find_async(name: str, ctx: Context) -> str | None:
        return find(name, ctx)

    fl.resolve_secret(find_async if is_async else find)
    with pytest.raises(SignatureInvalid):
        fl.resolve_secret(find)

    @fl.job(key="pay", max_attempts=1)
    async def pay(token: Annotated[str, Secret()]) -> None:
        seen.append(token)

    async with fl:
        await run_job(fl, "pay", {"token": REFERENCE})
        with pytest.raises(JobFailed, match="SecretMissing") as missing:
            await run_job(fl, "pay", {"token": {"$secret": "nosuch"}})
        with pytest.raises(JobFailed, match="raised RuntimeError for broken") as broken:
            await run_job(fl, "pay", {"token": {"$secret": "broken"}})
    assert seen == [VALUE]
    assert asked == [(name, TENANT) for name in ("stripe", "nosuch", "broken")]
    assert VALUE not in f"{missing.value} {broken.value}"


@pytest.mark.usefixtures("db")
async def test_a_step_does_not_record_the_secret(settings: Settings, database_url: str) -> None:
    fl = Fairlead(settings=settings)
    fl.resolve_secret(lambda *_: VALUE)

    @fl.job(key="pay", durable=True, max_attempts=1)
    async def pay(ctx: Context, token: Annotated[str, Secret()], *, tells: bool) -> int:
        said = await ctx.step("pay", lambda: {"header": f"Bearer {token}"} if tells else {"paid": len(token)})
        return int(said["paid"])

    async with fl:
        assert await run_job(fl, "pay", {"token": REFERENCE, "tells": False}) == len(VALUE)
        with pytest.raises(JobFailed, match="Step 'pay': its result has a secret"):
            await run_job(fl, "pay", {"token": REFERENCE, "tells": True})
    assert find_in_database(database_url, VALUE) == []


@each_case(
    ("table", "said"),
    [
        ('[secrets.x]\nsource = "env:PATH"', "secrets.x.definitions"),
        ('[secrets.x]\nsource = "env:PATH"\ndefinitions = []', "secrets.x.definitions"),
        ('[secrets.x]\ndefinitions = ["a"]', "secrets.x.source"),
        ('[secrets.x]\nsource = "sk-live-1"\ndefinitions = ["a"]', "secrets.x.source"),
        ('[secrets.x]\nsource = "file:token"\ndefinitions = ["a"]', "secrets.x.source"),
        ('[secrets.x]\nsource = "env:PATH"\ndefinitions = ["a"]\ntenants = "acme"', "secrets.x.tenants"),
        ('[secrets.x]\nvalue = "sk-live"\ndefinitions = ["a"]', "must be a table with source"),
        ('[secrets."a b"]\nsource = "env:PATH"\ndefinitions = ["a"]', "the name must have"),
        ('[secrets.x]\nsource = "env:PATH"\ndefinitions = ["http.request"]', "callers choose the host"),
        (
            '[secrets.x]\nsource = "env:NO_SUCH_VARIABLE_HERE"\ndefinitions = ["a"]',
            "NO_SUCH_VARIABLE_HERE is not set",
        ),
        ("secrets = 5", "must be tables"),
    ],
)
def test_a_table_that_cannot_work_is_refused_when_the_worker_starts(
    table: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingInvalid) as refused:
        secrets.load_secrets(write_config(tmp_path, table))
    assert said in refused.value.message
    assert "sk-live" not in refused.value.message


JOBS = """
from typing import Annotated
from fairlead import Context, Fairlead, Secret

fl = Fairlead()

@fl.job(key="alone", isolate=True, max_attempts=1)
def alone(ctx: Context, token: Annotated[str, Secret()]) -> dict[str, object]:
    ctx.log.info("with", token=token)
    return {"token": token, "characters": len(token)}
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("db")
async def test_a_worker_process_resolves_secrets_of_its_file_for_isolated_functions(
    settings: Settings, database_url: str, config: Path
) -> None:
    (config.parent / "secret_jobs.py").write_text(JOBS)
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_CONFIG": str(config),
        "PYTHONPATH": str(config.parent),
        "STRIPE_KEY": VALUE,
    }
    async with Fairlead(settings=settings) as fl:
        with started([FAIRLEAD, "worker", "secret_jobs:fl"], env=env) as process:
            assert process.stdout is not None
            said = await asyncio.to_thread(process.stdout.readline)
            job = await fl.enqueue("alone", tenant=TENANT, payload={"token": REFERENCE})
            assert await job.result(timeout=SECONDS) == {"token": "[redacted]", "characters": len(VALUE)}
            process.send_signal(signal.SIGTERM)
            rest, _ = await asyncio.to_thread(process.communicate, timeout=SECONDS)
    assert VALUE not in said + rest
    assert find_in_database(database_url, VALUE) == []
