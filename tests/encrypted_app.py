"""An application whose database encrypts secrets, for the tests of encryption."""

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Context, Fairlead, Secret, Settings
from fairlead.actions import encryption
from tests.given import TESTER

VALUE = "sk-live-0123456789-canary"


def read_payload(url: str, job_id: UUID) -> Any:
    with psycopg.connect(url) as connection:
        [payload] = connection.execute(
            "select payload from fairlead.jobs where id = %s", [job_id]
        ).fetchone() or [None]
        return payload


def write_payload(url: str, job_id: UUID, payload: Any) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "update fairlead.job_records set payload = %s where id = %s", [Jsonb(payload), job_id]
        )


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "master.key").write_text(base64.b64encode(os.urandom(32)).decode())
    return f"file:{tmp_path / 'master.key'}"


@pytest.fixture
def own(settings: Settings, key: str) -> Settings:
    """The settings of a process that has the key."""
    return replace(settings, encryption_key=key)


App = tuple[Fairlead, list[Any]]


def build_app(settings: Settings) -> tuple[Fairlead, list[str]]:
    """An application with a function that gets a secret, and the secrets that it got."""
    fl, seen = Fairlead(settings=settings), list[str]()

    @fl.job(key="pay", max_attempts=2)
    async def pay(
        ctx: Context,
        token: Annotated[str, Secret()],
        amount: int = 1,
        fails: bool = False,  # noqa: FBT001, FBT002 - a payload
    ) -> dict[str, str]:
        seen.append(token)
        ctx.log.info("paying", text=f"with {token}")
        ctx.progress(50, f"with {token}")
        if fails:
            raise ValueError(f"{token} was refused")
        return {"said": f"paid {amount} with {token}"}

    return fl, seen


async def enable(fl: Fairlead) -> None:
    async with fl.database.transaction() as tx:
        await encryption.enable(tx, TESTER)


async def reseal(fl: Fairlead, *seals: Callable[..., Awaitable[Any]]) -> int:
    """Seal all that these seal in batches with the current keys: how much was changed."""
    changed = 0
    for seal in seals:
        after = None
        while True:
            batch = await fl.database.transact(partial(seal, principal=TESTER, after=after, limit=1))
            assert batch.broken == 0
            changed, after = changed + batch.changed, batch.after
            if after is None:
                break
    return changed


async def rotate(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch, resealing: Callable[[], Awaitable[int]]
) -> int:
    """A whole rotation of data keys: the old one is used until all is sealed with the new one. How much was."""
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    await fl.database.transact(lambda tx: encryption.renew_keys(tx, TESTER))
    _, used = await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER))
    assert used == 1
    changed = await resealing()
    _, used = await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER))
    assert used == 0
    return changed


@pytest.fixture
async def app(own: Settings, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """The application that `build` of the test's module makes, if it has one."""
    fl, seen = getattr(request.module, "build", build_app)(own)
    async with fl:
        await enable(fl)
        yield fl, seen
