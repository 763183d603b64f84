"""The scenarios of tests/interleavings that a mutant names, in its scratch copy."""

import os

import pytest

from fairlead import Fairlead
from tests.interleavings import mutants
from tests.interleavings.explorer import connect, explore

# Their names, separated by |.
SCENARIOS = "MUTANTS_SCENARIOS"


@pytest.mark.parametrize("name", [one for one in os.environ.get(SCENARIOS, "").split("|") if one])
async def test_every_interleaving_is_consistent(fl: Fairlead, name: str) -> None:
    async with connect(fl) as connections:
        await explore(connections, mutants.SCENARIOS[name])
