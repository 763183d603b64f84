"""Interleavings of operations and deadlines, in virtual time; with INTERLEAVINGS=1 every one."""

import pytest

from fairlead import Fairlead
from tests.interleavings.deadline_scenarios import DEADLINES
from tests.interleavings.explorer import connect, explore
from tests.interleavings.test_pairs import PARTS, count_switches

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_interleaving_with_a_deadline_is_consistent(fl: Fairlead, part: int) -> None:
    async with connect(fl, participants=3, has_virtual_time=True) as connections:
        for scenario in DEADLINES[part::PARTS]:
            explored = await explore(connections, scenario, switches=count_switches(scenario))
            print(f"{scenario.name}: {explored.interleavings} interleavings, {explored.steps} steps")  # noqa: T201
            assert explored.interleavings > 1, scenario.name
