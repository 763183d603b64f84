"""One played run for all tests of a process; each test changes it in a transaction that is rolled back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead import Fairlead, Settings
from fairlead.chaos.site.master_keys import create_master_keys
from tests.chaos.checks.play import install, play
from tests.chaos.checks.played_run import PlayedRun
from tests.chaos.checks.tampering import Tampering
from tests.databases import Databases


@pytest.fixture(scope="session")
async def played_run(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PlayedRun]:
    folder: Path = tmp_path_factory.mktemp("history")
    with databases.lend() as url:
        key = create_master_keys(folder)[0]
        fl = Fairlead(settings=Settings(database_url=url, encryption_key=f"file:{key}"), actor="tester")
        run = PlayedRun(fl, folder)
        run.add_functions()
        async with fl:
            await install(run)
            await play(run)
            yield run


@pytest.fixture
def tampering(played_run: PlayedRun, tmp_path: Path) -> Tampering:
    return Tampering(played_run, tmp_path)
