"""Sealed values: what opens them, and what does not."""

import base64
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from fairlead import Settings
from fairlead.actions import encryption, tenants
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import EncryptionKeyMissing, EncryptionKeyUnavailable, SealBroken, SettingInvalid
from fairlead.keys.keyring import Keyring
from fairlead.store.sealing import find_current_key, seal, unseal
from tests import given
from tests.acting import act

SECRET = "correct horse battery staple"  # noqa: S105 - not one
PURPOSE = "second_factors:1:secret"


def write_key(folder: Path, name: str = "master.key") -> str:
    """A new master key in a file; its source."""
    path = folder / name
    path.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
    return f"file:{path}"


@pytest.fixture
def key(tmp_path: Path) -> str:
    return write_key(tmp_path)


@pytest.fixture
async def sealed_db(database_url: str, settings: Settings, key: str) -> AsyncIterator[Database]:
    """A database that encrypts, in a process that has the key."""
    async with Database(database_url, replace(settings, encryption_key=key)) as database:
        assert await act(database, encryption.enable, given.TESTER)
        yield database


async def make_tenant(database: Database, name: str = "initech") -> UUID:
    return (await act(database, tenants.add, given.TESTER, slug=name)).id


async def seal_one(database: Database, tenant_id: UUID | None, purpose: str = PURPOSE) -> str:
    return await act(database, seal, tenant_id, purpose, SECRET)


async def unseal_one(database: Database, tenant_id: UUID | None, stored: str, purpose: str = PURPOSE) -> str:
    return await act(database, unseal, tenant_id, purpose, stored)


@pytest.mark.parametrize("text", [SECRET, "sealed:1:x:y"])
async def test_without_encryption_the_stored_form_says_that_it_is_plain(tx: Tx, text: str) -> None:
    stored = await seal(tx, None, PURPOSE, text)

    assert stored == f"plain:{text}"
    assert await unseal(tx, None, PURPOSE, stored) == text


@pytest.mark.parametrize("of_tenant", [True, False])
async def test_a_sealed_text_can_be_opened_and_does_not_show_the_secret(
    sealed_db: Database, *, of_tenant: bool
) -> None:
    tenant_id = await make_tenant(sealed_db) if of_tenant else None

    one, other = await seal_one(sealed_db, tenant_id), await seal_one(sealed_db, tenant_id)

    assert one.startswith("sealed:1:")
    assert one != other
    assert SECRET not in one
    assert await unseal_one(sealed_db, tenant_id, one) == SECRET


async def test_what_was_stored_before_encryption_can_still_be_read(sealed_db: Database) -> None:
    assert await unseal_one(sealed_db, None, f"plain:{SECRET}") == SECRET


async def test_each_tenant_has_its_own_key(sealed_db: Database) -> None:
    one, other = await make_tenant(sealed_db), await make_tenant(sealed_db, "hooli")
    async with sealed_db.transaction() as tx:
        keys = [(await find_current_key(tx, owner)).id for owner in (one, other, None, one)]

    assert len(set(keys)) == 3
    assert keys[0] == keys[3]


def flip(text: str) -> str:
    """The sealed text with one bit of its ciphertext flipped."""
    head, _, tail = text.rpartition(":")
    content = bytearray(base64.urlsafe_b64decode(tail + "=" * (-len(tail) % 4)))
    content[len(content) // 2] ^= 1
    return f"{head}:{base64.urlsafe_b64encode(bytes(content)).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (flip, "was changed"),
        (lambda text: text[:-8], "was changed"),
        (lambda text: text[:50], "was cut"),
        (lambda text: text.replace("sealed:1:", "sealed:2:"), "version '2'"),
        (lambda text: text + ":x", "not the form"),
        (lambda text: text + "!", "characters"),
        (lambda text: "sealed:1:" + uuid7().hex + ":" + text.rpartition(":")[2], "is not in tenant_keys"),
        (lambda _: "other", "not the form"),
    ],
)
async def test_a_changed_value_is_refused_and_not_shown(
    sealed_db: Database, change: Callable[[str], str], why: str
) -> None:
    stored = await seal_one(sealed_db, None)

    with pytest.raises(SealBroken, match=why) as refused:
        await unseal_one(sealed_db, None, change(stored))

    assert SECRET not in refused.value.message
    assert stored.rpartition(":")[2][:20] not in refused.value.message


async def test_a_value_cannot_be_moved_to_another_tenant_or_purpose(sealed_db: Database) -> None:
    one, other = await make_tenant(sealed_db), await make_tenant(sealed_db, "hooli")
    stored = await seal_one(sealed_db, one)

    for tenant_id, purpose in ((other, PURPOSE), (None, PURPOSE), (one, "second_factors:2:secret")):
        with pytest.raises(SealBroken, match="another tenant"):
            await unseal_one(sealed_db, tenant_id, stored, purpose)


async def test_a_wrapped_key_cannot_be_given_to_another_tenant(
    sealed_db: Database, settings: Settings, key: str
) -> None:
    one, other = await make_tenant(sealed_db), await make_tenant(sealed_db, "hooli")
    stored = await seal_one(sealed_db, one)
    async with sealed_db.transaction() as tx:
        await tx.run(
            "update fairlead.tenant_keys set tenant_id = %(to)s where tenant_id = %(one)s",
            {"to": other, "one": one},
        )

    async with Database(sealed_db.url, replace(settings, encryption_key=key)) as again:
        with pytest.raises(EncryptionKeyUnavailable, match="was changed"):
            await unseal_one(again, one, stored)


async def test_a_process_without_the_key_can_neither_seal_nor_open(
    sealed_db: Database, settings: Settings
) -> None:
    stored = await seal_one(sealed_db, None)

    async with Database(sealed_db.url, settings) as without:
        with pytest.raises(EncryptionKeyMissing, match="encryption_key"):
            await seal_one(without, None)
        with pytest.raises(EncryptionKeyMissing, match="encryption_key"):
            await unseal_one(without, None, stored)


async def test_another_master_key_opens_nothing_unless_the_old_one_is_there_too(
    sealed_db: Database, settings: Settings, key: str, tmp_path: Path
) -> None:
    stored, new = await seal_one(sealed_db, None), write_key(tmp_path, "new.key")

    async with Database(sealed_db.url, replace(settings, encryption_key=new)) as wrong:
        with pytest.raises(EncryptionKeyMissing, match="encryption_old_keys"):
            await unseal_one(wrong, None, stored)
    both = replace(settings, encryption_key=new, encryption_old_keys=(key,))
    async with Database(sealed_db.url, both) as right:
        assert await unseal_one(right, None, stored) == SECRET


async def test_a_key_that_was_rolled_back_is_not_used_again(sealed_db: Database) -> None:
    tenant_id = await make_tenant(sealed_db)
    with pytest.raises(ZeroDivisionError):
        async with sealed_db.transaction() as tx:
            lost = await seal(tx, tenant_id, PURPOSE, SECRET)
            await seal(tx, tenant_id, PURPOSE, SECRET)
            raise ZeroDivisionError

    stored = await seal_one(sealed_db, tenant_id)

    assert stored.split(":")[2] != lost.split(":")[2]
    async with sealed_db.transaction() as tx:
        [(number,)] = await tx.values("select count(*) from fairlead.tenant_keys where tenant_id is not null")
    assert number == 1


async def test_encryption_is_enabled_once_and_audited(sealed_db: Database) -> None:
    async with sealed_db.transaction() as tx:
        assert not await encryption.enable(tx, given.TESTER)
        [entry] = await given.audit_entries(tx, "encryption_enabled")

    assert entry.details == {"master_key": sealed_db.keyring.require_master().id}


@pytest.mark.parametrize(
    "source",
    [
        "file:relative",
        "nothing",
        "file:/does/not/exist",
        "env:NO_SUCH_VARIABLE_HERE",
        "call:no-module",
        "",
        "QUJD" * 20,
    ],
)
def test_an_invalid_source_is_refused_without_showing_it(settings: Settings, source: str) -> None:
    with pytest.raises(SettingInvalid, match="encryption_key") as refused:
        Keyring(replace(settings, encryption_key=source))

    assert "QUJD" not in refused.value.message


def test_a_key_of_another_length_is_refused_without_showing_it(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("c2hvcnQ=")

    with pytest.raises(SettingInvalid, match="32 bytes") as refused:
        Keyring(replace(settings, encryption_key=f"file:{tmp_path / 'short'}"))

    assert "c2hvcnQ" not in refused.value.message


def test_hex_and_base64_give_the_same_key(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    key = os.urandom(32)
    texts = {"A": key.hex(), "B": base64.b64encode(key).decode(), "C": base64.urlsafe_b64encode(key).decode()}
    for name, text in texts.items():
        monkeypatch.setenv(f"MASTER_{name}", text)

    ids = {
        Keyring(replace(settings, encryption_key=f"env:MASTER_{name}")).require_master().id for name in texts
    }

    assert len(ids) == 1
