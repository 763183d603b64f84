"""What several acceptance tests begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.fleet import Fleet
from tests.acceptance.yard import Yard


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(database_url, tmp_path) as opened:
        yield opened
        opened.is_consistent()


@pytest.fixture
def yard(database_url: str, tmp_path: Path) -> Iterator[Yard]:
    with Yard(database_url, tmp_path) as opened:
        opened.set_up()
        yield opened
        opened.is_consistent()
    assert not opened.alive()
