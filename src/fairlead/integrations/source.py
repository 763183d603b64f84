"""The interface of a source: it brings a broker's messages, which become events, and acknowledges them afterwards.

A broker delivers each message at least once. The process that runs a source remembers the ids of messages in the
transaction that stores their events, and acknowledges after its commit: each message becomes one event.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from fairlead.errors import EngineUnavailable, SettingInvalid
from fairlead.integrations.configuration import (
    ConnectionTable,
    Driver,
    load_driver,
    read_connections,
    read_options,
)
from fairlead.model.event_source import SourceMessage, SourceRules, find_rules_fault

SECTION = "sources"
LONGEST_REASON = 300
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_CREDENTIALS = re.compile(r"://[^/\s]*@")


class MessageSource(Protocol):
    """A connection to a broker. Every method raises EngineUnavailable if the broker cannot be reached."""

    def messages(self) -> AsyncIterator[Sequence[SourceMessage]]:
        """Batches of messages as they arrive; an empty one says that the broker answers. The caller may stop to iterate at any time: messages that it has not
        acknowledged or refused are delivered again, to it or to another process.
        """

    async def acknowledge(self, messages: Sequence[SourceMessage]) -> None:
        """Do not deliver these messages again."""

    async def refuse(self, messages: Sequence[SourceMessage]) -> None:
        """Give up on messages that can never become events, without blocking others."""

    async def postpone(self, messages: Sequence[SourceMessage], seconds: float) -> None:
        """Deliver these messages again, after some seconds if the broker can do that."""

    async def describe(self) -> Mapping[str, object]:
        """What the broker says about the stream, queue or topics, for `fairlead sources check`."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of every source. A driver adds its own."""

    event: str
    tenant: str | None = None
    tenant_from: str | None = None
    remember_days: int = 30

    @property
    def rules(self) -> SourceRules:
        return SourceRules(
            event=self.event,
            tenant=self.tenant,
            tenant_from=self.tenant_from,
            remember_days=self.remember_days,
        )


class ConnectSource(Protocol):
    """Opens a source.

    Every driver's module has `connect`, which also takes the table and its options; OPTIONS, the type of these options;
    and ATTRIBUTES, the names of its messages' attributes.
    """

    def __call__(self) -> AbstractAsyncContextManager[MessageSource]: ...


class ConfiguredSource(NamedTuple):
    """A source as its table in fairlead.toml describes it."""

    name: str
    driver: str
    rules: SourceRules
    connect: ConnectSource


DRIVERS = {
    "kafka": Driver("fairlead.integrations.kafka_source", "kafka"),
    "nats": Driver("fairlead.integrations.nats_source", "nats"),
    "sqs": Driver("fairlead.integrations.sqs_source", "sqs"),
}


def read_sources(path: Path) -> list[ConfiguredSource]:
    """The sources in fairlead.toml, by name. SettingInvalid names the first fault."""
    tables = read_connections(path, SECTION, DRIVERS)
    return [configure(table) for _, table in sorted(tables.items())]


def configure(table: ConnectionTable) -> ConfiguredSource:
    """The source that a table describes; does not connect."""
    if not _NAME.fullmatch(table.name):
        raise SettingInvalid(
            f"{table.where} in fairlead.toml is not valid: a name has up to 63 letters, digits, - and _."
        )
    driver: Any = load_driver(table, DRIVERS)
    options = read_options(table, driver.OPTIONS)
    if fault := find_rules_fault(options.rules, driver.ATTRIBUTES):
        raise table.refuse(fault.path, fault.message)
    return ConfiguredSource(table.name, table.driver, options.rules, partial(driver.connect, table, options))


def parse_milliseconds(milliseconds: int) -> datetime | None:
    """The time that a broker gives in milliseconds since 1970; None if it cannot be one."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds > 0 else None
    except (OverflowError, ValueError):
        return None


@contextmanager
def report_outage(broker: str, *failures: type[Exception]) -> Iterator[None]:
    """Turn these errors of a broker's library into EngineUnavailable."""
    try:
        yield
    except failures as error:
        raise EngineUnavailable(f"{broker} cannot be used now: {_describe(error)}.") from error


def _describe(error: Exception) -> str:
    """The reason of a failure, without an address or a password."""
    if isinstance(error, OSError):
        text = error.strerror or type(error).__name__
    else:
        text = str(error).strip() or type(error).__name__
    return _CREDENTIALS.sub("://", text.partition("\n")[0])[:LONGEST_REASON].rstrip(". ")
