"""What a database that encrypts refuses: plain secrets by any way in, and limits by secret fields."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Settings, sync
from fairlead.actions import definitions, encryption
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionInvalid, EncryptionKeyMissing
from fairlead.model.definition import DefinitionSpec
from fairlead.model.job import NewJob
from fairlead.model.secrets.pointers import list_secret_pointers
from fairlead.model.secrets.sealed_payload import seal_values
from fairlead.store import sealing
from tests.databases import find_in_database
from tests.encrypted_app import VALUE, App, app, build_app, enable, key, own
from tests.given import OTHER, TENANT, TESTER
from tests.tables import each_case

__all__ = ["app", "key", "own"]

SCHEMA = {
    "type": "object",
    "properties": {
        "token": {"type": "string", "x-secret": True},
        "auth": {"type": "object", "properties": {"pin": {"type": "integer", "x-secret": True}}},
        "customer": {"type": "string"},
    },
}
POINTING: list[tuple[str, dict[str, Any]]] = [
    ("by_key", {"by_key": {"pointer": "/token", "max_running": 1}}),
    ("by_key", {"by_key": {"pointer": "/auth", "max_running": 1}}),
    ("by_key.rate.cost", {"by_key": {"pointer": "/customer", "rate": {"limit": 1, "cost": "/auth/pin"}}}),
    ("rate.cost", {"rate": {"limit": 10, "cost": "/auth/pin"}}),
    ("rate_per_tenant.cost", {"rate_per_tenant": {"limit": 10, "cost": "/auth/pin"}}),
    ("resource_pointer", {"resource_pointer": "/token"}),
]


@each_case(("field", "changes"), POINTING)
async def test_a_limit_by_a_secret_field_is_refused_where_the_database_encrypts(
    app: App, field: str, changes: dict[str, Any]
) -> None:
    fl, _ = app
    with pytest.raises(DefinitionInvalid, match="point at another field") as refused:
        await fl.database.transact(
            lambda tx: definitions.patch(tx, TESTER, "limited", {"arg_schema": SCHEMA, **changes})
        )
    assert [fault.path for fault in refused.value.faults] == [field]
    assert await fl.database.transact(lambda tx: definitions.find(tx, TESTER, "limited")) is None


async def test_a_field_that_becomes_secret_later_is_refused_too(app: App) -> None:
    fl, _ = app
    changes = {"by_key": {"pointer": "/customer", "max_running": 1}, "arg_schema": SCHEMA}
    await fl.database.transact(lambda tx: definitions.patch(tx, TESTER, "limited", changes))

    marked = {**SCHEMA, "properties": {"customer": {"type": "string", "writeOnly": True}}}
    with pytest.raises(DefinitionInvalid):
        await fl.database.transact(
            lambda tx: definitions.patch(tx, TESTER, "limited", {"arg_schema": marked})
        )


async def test_encryption_is_not_turned_on_while_a_limit_is_by_a_secret_field(own: Settings) -> None:
    fl, _ = build_app(own)
    async with fl:
        for n, (_, changes) in enumerate(POINTING):
            await fl.database.transact(
                lambda tx, n=n, changes=changes: definitions.patch(  # type: ignore[misc]
                    tx, TESTER, f"limited_{n}", {"arg_schema": SCHEMA, **changes}
                )
            )
        with pytest.raises(DefinitionInvalid, match="6 definitions") as refused:
            await enable(fl)
        assert "limited_0.by_key" in refused.value.message
        status = await fl.database.transact(lambda tx: encryption.list_keys(tx, TESTER))
        assert not status.enabled

        for n in range(len(POINTING)):
            await fl.database.transact(
                lambda tx, n=n: definitions.patch(  # type: ignore[misc]
                    tx,
                    TESTER,
                    f"limited_{n}",
                    {"by_key": None, "rate": None, "rate_per_tenant": None, "resource_pointer": None},
                )
            )
        await enable(fl)


@each_case(
    ("pointer", "is_refused"),
    [("/token", True), ("/token/0", True), ("/auth", True), ("/auth/pin", True), ("/auth/name", False), ("/other", False)],
)  # fmt: skip
def test_pointers_to_secrets_and_to_what_holds_them(pointer: str, is_refused: bool) -> None:  # noqa: FBT001 - a parameter
    spec = DefinitionSpec(key="one", arg_schema=SCHEMA, resource_pointer=pointer)
    assert bool(list_secret_pointers(spec)) is is_refused


async def test_an_unopened_fairlead_without_a_key_cannot_enqueue_plain_secrets(
    app: App, settings: Settings, database_url: str
) -> None:
    without, _ = build_app(settings)
    many = [
        NewJob(definition="pay", tenant=tenant, payload={"token": VALUE, "amount": n})
        for n, tenant in enumerate((TENANT, OTHER))
    ]
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        for _ in range(2):
            with pytest.raises(EncryptionKeyMissing, match="encryption_key"):
                await without.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, tx=connection)
            with pytest.raises(EncryptionKeyMissing):
                await without.enqueue_many(many, tx=connection)

    blocking = sync.Fairlead(settings=settings)
    with psycopg.connect(database_url) as other, pytest.raises(EncryptionKeyMissing):
        blocking.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, tx=other)
    assert find_in_database(database_url, VALUE) == []


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_a_client_that_has_not_noticed_yet_is_told_and_seals(
    own: Settings,
    database_url: str,
    is_bulk: bool,  # noqa: FBT001 - a parameter
) -> None:
    fl, _ = build_app(own)
    async with fl, await psycopg.AsyncConnection.connect(database_url) as connection:
        await enable(fl)
        fl.database.keyring.note_state(is_on=False)
        new = NewJob(definition="pay", tenant=TENANT, payload={"token": VALUE})
        if is_bulk:
            await fl.enqueue_many([new], tx=connection)
        else:
            await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, dedupe_key="once")
    assert find_in_database(database_url, VALUE) == []


@each_case(
    ("payload", "is_refused"),
    [
        ({"token": VALUE}, True),
        ({"token": 1}, True),
        ({"token": {"$secret": {"deep": VALUE}}}, True),
        ({"token": {"$sealed": VALUE}}, True),
        ({"token": {"$sealed": "sealed:1:x", "more": VALUE}}, True),
        ({"token": {"$secret": "bank"}}, False),
        ({"token": ""}, False),
        ({"token": None}, False),
        ({"amount": 3}, False),
    ],
)
async def test_sql_cannot_enqueue_plain_secrets(
    app: App,
    database_url: str,
    payload: dict[str, Any],
    is_refused: bool,  # noqa: FBT001 - a parameter
) -> None:
    query = "select fairlead.enqueue(%s, 'pay', %s)"
    with psycopg.connect(database_url) as connection:
        if not is_refused:
            assert connection.execute(query, [TENANT, Jsonb(payload)]).fetchone()
            return
        with pytest.raises(psycopg.DatabaseError, match="encryption_key_missing") as refused:
            connection.execute(query, [TENANT, Jsonb(payload)])
    assert refused.value.diag.message_detail == "encryption_key_missing"
    assert "$secret" in str(refused.value.diag.message_hint)
    assert find_in_database(database_url, VALUE) == []


@each_case(
    ("paths", "payload", "is_plain"),
    [
        (["/a/b"], {"a": {"b": "x"}}, True),
        (["/a/b"], {"a": {"c": "x"}, "b": "x"}, False),
        (["/a/b"], {"a": [{"b": "x"}]}, False),
        (["/a/*/b"], {"a": [{"c": 1}, {"b": "x"}]}, True),
        (["/a/*/b"], {"a": {"one": {"b": False}}}, True),
        (["/a/1"], {"a": ["x", ""]}, False),
        (["/a/1"], {"a": ["", "x"]}, True),
        (["/a/1"], {"a": {"1": "x"}}, True),
        (["/**/b"], {"a": [{"c": {"b": ["x"]}}]}, True),
        (["/**/b"], {"b": None, "c": [{}]}, False),
        (["/**"], {"a": "x"}, True),
        ([""], {"a": {"$secret": "x"}}, False),
        ([""], {"a": 0}, True),
        (["/a~1b/c~0d"], {"a/b": {"c~d": "x"}}, True),
        (["/a"], {"a": {"one": {"$secret": "x"}, "two": [{"$secret": "y"}]}}, False),
        (["/x", "/a"], {"a": {"one": {"$secret": "x"}, "two": ["y"]}}, True),
    ],
)
async def test_the_database_finds_the_places_that_python_seals(
    app: App,
    tx: Tx,
    paths: list[str],
    payload: Any,
    is_plain: bool,  # noqa: FBT001 - a parameter
) -> None:
    query = "select fairlead.has_plain_secret(%(paths)s, %(payload)s::jsonb)"
    find = {"paths": paths, "payload": Jsonb(payload)}
    fl, _ = app
    assert await tx.values(query, find) == [(is_plain,)]

    found = await fl.database.transact(lambda own: sealing.find_current_key(own, TENANT))
    assert found.tenant_id is not None
    sealed = seal_values(payload, paths, found, tenant_id=found.tenant_id, definition="pay", job_id=None)
    assert await tx.values(query, {"paths": paths, "payload": Jsonb(sealed)}) == [(False,)]
