"""A run of the scenario on an empty database, with real processes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from psycopg import Connection

from tests.chaos.live_run import LiveRun
from tests.databases import Databases
from tests.sessions import Sessions


@pytest.fixture
def empty_url(server: str, migrated: str, nodes: Sequence[Connection], sessions: Sessions) -> Iterator[str]:
    """A migrated database without a tenant."""
    with Databases(server, migrated, nodes, sessions).lend(new=True) as url:
        yield url


@pytest.fixture
def live_run(empty_url: str, tmp_path: Path) -> LiveRun:
    return LiveRun(empty_url, tmp_path)
