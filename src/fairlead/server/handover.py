"""What the application of a cell tells the router about a request that another cell may have to answer."""

from typing import Any

import msgspec
from starlette.types import Scope

from fairlead.errors import FairleadError

# Scope key of the CellHandover. A server with one database has none.
HANDOVER = "fairlead.handover"


class CellHandover(msgspec.Struct):
    """What an application found out about a request."""

    # the tenant that the request is for, by slug or id
    tenant: str | None = None
    # whether the caller belongs to no tenant, and the request names none
    is_for_all: bool = False
    # whether another cell gets the request: then it is neither logged nor counted here
    is_handed_on: bool = False
    # the error that the application answers with
    refusal: FairleadError | None = None
    # the principal and the credential of a ticket, which is valid once
    redeemed: Any = None


def find_handover(scope: Scope) -> CellHandover | None:
    """The handover of a request, if the router is waiting for it."""
    found: CellHandover | None = scope.get(HANDOVER)
    return found


def note_tenant(scope: Scope, tenant: str) -> None:
    """Tell the router which tenant the request is for."""
    if (handover := find_handover(scope)) is not None:
        handover.tenant = tenant


def note_refusal(scope: Scope, error: FairleadError) -> None:
    """Tell the router which error the response describes."""
    if (handover := find_handover(scope)) is not None:
        handover.refusal = error
