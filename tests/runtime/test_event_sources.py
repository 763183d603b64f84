"""A source that several tenants share: messages that wait for one tenant's queue do not hold up those of others."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from fairlead import Fairlead
from fairlead.integrations.source import ConfiguredSource, MessageSource
from fairlead.model.event_source import SourceMessage, SourceRules, postponed_seconds
from fairlead.runtime import event_sources
from fairlead.runtime.event_sources import run_sources
from tests import given
from tests.waiting import SECONDS

RULES = SourceRules(event="order.placed", tenant_from="header:tenant")


def message(name: str, tenant: str) -> SourceMessage:
    return SourceMessage(id=name, data=b"{}", headers={"tenant": tenant}, attributes={})


async def test_messages_of_a_tenant_with_a_full_queue_do_not_hold_up_those_of_others(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sources, "POSTPONE_SECONDS", 3600.0)
    await fl.set_quotas(given.TENANT, queued_jobs=1)
    await fl.enqueue("anything", tenant=given.TENANT)
    stop, broker = asyncio.Event(), AsyncMock()

    async def deliver() -> AsyncIterator[Sequence[SourceMessage]]:
        for batch in range(3):
            yield [message(f"{batch}-{n}", given.TENANT) for n in range(5)]
        yield [message("other", given.OTHER)]
        await stop.wait()
        yield []

    async def acknowledge(_: Sequence[SourceMessage]) -> None:
        stop.set()

    broker.messages, broker.acknowledge = deliver, acknowledge

    @asynccontextmanager
    async def connect() -> AsyncIterator[MessageSource]:
        yield broker

    source: Any = ConfiguredSource("orders", "memory", RULES, connect)
    async with asyncio.timeout(SECONDS):
        await run_sources(fl.database, fl.catalog, [source], stop)

    assert [event.tenant for event in await given.all_events(fl)] == [given.OTHER]
    assert broker.postpone.await_count == 3


def test_a_message_is_postponed_for_longer_each_time_up_to_a_bound() -> None:
    found = [
        postponed_seconds(SourceMessage(id="1", data=b"", headers={}, attributes={}, deliveries=n), 5.0)
        for n in (1, 2, 3, 100)
    ]
    assert found == [5.0, 10.0, 20.0, 80.0]


@pytest.mark.thorough  # imports the libraries of AWS
async def test_sqs_is_asked_for_the_time_of_each_message() -> None:
    from fairlead.integrations.sqs_source import SqsSource, SqsSourceOptions  # noqa: PLC0415

    client = AsyncMock()
    client.change_message_visibility_batch.return_value = {}
    options = SqsSourceOptions(
        event="e", tenant="acme", queue_url="http://sqs.test/1/orders", region="eu-central-1"
    )
    client.receive_message.return_value = {
        "Messages": [
            {"MessageId": n, "Body": "{}", "ReceiptHandle": n, "Attributes": {"ApproximateReceiveCount": n}}
            for n in ("1", "3", "1")
        ]
    }
    source = SqsSource(client, options)

    await source.postpone(await anext(source.messages()), 5.0)

    asked = [call.kwargs["Entries"] for call in client.change_message_visibility_batch.await_args_list]
    assert [[(one["ReceiptHandle"], one["VisibilityTimeout"]) for one in entries] for entries in asked] == [
        [("1", 5), ("1", 5)],
        [("3", 20)],
    ]
