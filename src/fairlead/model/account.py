"""The account of a user who has signed in."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from fairlead.model.access import Role


class HourCycle(StrEnum):
    """How hours are shown, as JavaScript names it: 1:00 pm or 13:00."""

    H12 = "h12"
    H23 = "h23"


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """How the console shows times to a user. None: as the browser does."""

    timezone: str | None = None
    hour_cycle: HourCycle | None = None


class Account(Preferences, frozen=True, kw_only=True):
    id: UUID
    tenant_id: UUID | None
    tenant: str | None
    email: str
    role: Role
    created_at: datetime
    has_password: bool


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which the user has signed in."""

    id: UUID
    created_at: datetime
    # exact to a minute
    last_seen_at: datetime
    # when it ends, unless it is used before: at the end of its idle timeout or of its lifetime
    expires_at: datetime
    ip: str | None
    # as the browser sent it, cut
    user_agent: str | None
    # the user agent in words, such as `Firefox on Linux`
    browser: str = ""
    is_current: bool
