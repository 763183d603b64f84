"""The identities with which a user signs in, and whether the user could do without one."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.model.oidc.settings import OidcProvider


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A person at an identity provider who signs in as a user."""

    id: UUID
    # the provider's name in fairlead.toml at the last sign-in
    provider: str
    issuer: str
    # how the provider names the person
    subject: str
    created_at: datetime
    last_sign_in_at: datetime
    # whether the user could not sign in without it
    is_only_way: bool = False


def allows_password(providers: Iterable[OidcProvider], tenant: str | None) -> bool:
    """Whether users of a tenant may sign in with a password: super admins (None) always, others unless a provider of theirs says no."""
    return tenant is None or not any(
        not one.password_sign_in and one.tenant in (None, tenant) for one in providers
    )


def mark_only_way(
    identities: Sequence[Identity], providers: Iterable[OidcProvider], *, can_use_password: bool
) -> list[Identity]:
    """The identities, with the one marked that is the only way to sign in. A provider without its table is none."""
    issuers = {one.issuer for one in providers}
    return [
        replace(
            one,
            is_only_way=not can_use_password
            and not any(other.id != one.id and other.issuer in issuers for other in identities),
        )
        for one in identities
    ]
