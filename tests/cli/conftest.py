"""What the tests of commands share."""

import pytest

from tests.cli.test_commands import Shell


@pytest.fixture
def shell(database_url: str) -> Shell:
    return Shell(database_url)
