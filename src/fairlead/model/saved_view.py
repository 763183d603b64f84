"""Saved views: a list of the console and its filters, under a name."""

from uuid import UUID

import msgspec

# The lists that have their filters in the address, by their path.
PAGES = ("/jobs", "/errors", "/audit", "/workflow-runs")
LONGEST_NAME = 80
LONGEST_QUERY = 2000
# Parameters that belong to one visit, not to a view.
PASSING = {"tenant", "cursor", "top", "page"}


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """A saved view; `query` is the address's part after the question mark."""

    id: UUID
    tenant_id: UUID | None
    page: str
    name: str
    query: str
    is_shared: bool
    owner: str
    owner_id: UUID
