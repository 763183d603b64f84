"""Messages of a source: what is stored, refused and postponed, and what is remembered."""

from typing import Any

from fairlead.actions import sources
from fairlead.actions.sources import StoredBatch
from fairlead.db.tx import Tx
from fairlead.model.event_source import SourceMessage, SourceRules
from fairlead.store import sources as sources_store
from tests import given

RULES = SourceRules(event="order.placed", tenant_from="header:tenant")


def message(
    name: str, *, tenant: str = given.OTHER, data: bytes = b"{}", order: str | None = "p"
) -> SourceMessage:
    return SourceMessage(id=name, data=data, headers={"tenant": tenant}, attributes={}, order=order)


async def store(tx: Tx, *messages: SourceMessage, rules: SourceRules = RULES) -> StoredBatch:
    await sources.report(tx, name="orders", driver="kafka", rules=rules)
    return await sources.store_messages(
        tx, given.TESTER, given.catalog(), source="orders", rules=rules, messages=messages
    )


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


async def fill_queue(tx: Tx) -> None:
    await given.set_tenant(tx, given.TENANT, quotas={"queued_jobs": 1})
    await given.queued_job(tx)


async def test_what_follows_a_postponed_message_in_its_order_is_postponed_even_if_it_would_be_refused(
    tx: Tx,
) -> None:
    await fill_queue(tx)
    done = await store(
        tx,
        message("1"),
        message("2", tenant=given.TENANT),
        message("3"),
        message("4", data=b"not json"),
        message("5", order="q"),
        message("6", tenant=given.TENANT, order=None),
        message("7", order=None),
        message("8", order=None, data=b"not json"),
    )
    assert ids(done.stored) == ["1", "5", "7"]
    assert ids(done.postponed) == ["2", "3", "4", "6"]
    assert [(one.message.id, one.reason) for one in done.refused] == [("8", "payload_not_json")]


async def test_a_tenant_that_chooses_an_id_does_not_suppress_the_message_of_another(tx: Tx) -> None:
    """Where publishers choose ids, as in the header Nats-Msg-Id, one could use up those of others."""
    first = await store(tx, message("order-7"))
    done = await store(
        tx,
        message("order-7"),
        message("order-7", tenant=given.TENANT),
        message("order-7", tenant=given.TENANT),
    )

    assert [len(one.stored) for one in (first, done)] == [1, 3]
    assert [event.tenant for event in await given.all_events(tx)] == [given.OTHER, given.TENANT]
    [found] = await sources.list_sources(tx, given.TESTER)
    assert (found.messages, found.duplicates) == (2, 2)


async def test_an_id_is_remembered_only_if_its_message_became_an_event(tx: Tx) -> None:
    await fill_queue(tx)
    await store(
        tx, message("1"), message("2", tenant="nobody"), message("3", tenant=given.TENANT, order=None)
    )
    [(found,)] = await tx.values("select message_id from fairlead.source_messages")
    assert found.endswith("/1")


async def test_a_message_twice_in_one_batch_becomes_one_event_and_both_are_acknowledged(tx: Tx) -> None:
    done = await store(tx, message("1"), message("1"), message("2"))
    assert ids(done.stored) == ["1", "1", "2"]
    [found] = await sources.list_sources(tx, given.TESTER)
    assert (found.messages, found.duplicates) == (2, 1)


async def test_ids_are_forgotten_when_their_days_are_over(tx: Tx) -> None:
    await store(tx, message("1"))
    assert await sources_store.forget_messages(tx, limit=10) == 0
    await given.expire(tx, "messages of sources")
    assert await sources_store.forget_messages(tx, limit=10) == 1


async def test_an_id_that_cannot_be_stored_is_refused(tx: Tx) -> None:
    done = await store(tx, message("x" * 501), message("\x00"), message(""))
    assert [one.reason for one in done.refused] == ["message_invalid"] * 3


async def test_a_token_of_an_attribute_names_the_tenant(tx: Tx) -> None:
    rules = SourceRules(event="order.{subject}", tenant_from="subject:2")

    def about(name: str, subject: str) -> SourceMessage:
        return SourceMessage(id=name, data=b"{}", headers={}, attributes={"subject": subject})

    done = await store(
        tx,
        about("1", f"orders.{given.TENANT}.new"),
        about("2", "orders"),
        about("3", f"a.{given.OTHER}.!"),
        rules=rules,
    )
    assert ids(done.stored) == ["1"]
    assert [(one.message.id, one.reason) for one in done.refused] == [
        ("2", "tenant_unknown"),
        ("3", "event_invalid"),
    ]
    assert f"order.orders.{given.TENANT}.new" in [event.name for event in await given.all_events(tx)]
