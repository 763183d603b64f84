"""Hosts: machines of a tenant whose jobs only their own agent runs; and resources: what jobs on a host act on."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.field import Internal


class Host(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    tenant_id: UUID
    tenant: str
    name: str
    max_running: int
    labels: Any
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    draining: bool
    # when its agent started its session
    session_at: Internal[datetime | None]
    last_seen_at: datetime | None
    agent_version: str | None
    online: bool
    running: int
    created_by: str | None
    created_at: datetime
    updated_at: datetime


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    tenant_id: UUID
    tenant: str
    host_id: UUID
    host: str
    kind: str
    name: str
    created_by: str | None
    created_at: datetime
    updated_at: datetime


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a host, for its waiting agent."""

    id: UUID
    session_id: UUID | None
    paused: bool
    draining: bool
    pause_note: str | None
    # jobs wait for the host, and it has room for one
    has_work: bool
    # jobs were delivered to an agent that has not accepted them yet
    has_undelivered: bool
    canceling: tuple[UUID, ...]
