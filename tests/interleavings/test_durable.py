"""Every interleaving of two operations of which one is about a durable function."""

import pytest

from fairlead import Fairlead
from tests.interleavings.approval_scenarios import APPROVALS
from tests.interleavings.durable_scenarios import DURABLE
from tests.interleavings.explorer import connect, explore
from tests.interleavings.test_pairs import EVERY, PARTS, count_switches

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_interleaving_with_a_durable_function_is_consistent(fl: Fairlead, part: int) -> None:
    async with connect(fl) as connections:
        for scenario in [*DURABLE, *APPROVALS][part::PARTS]:
            explored = await explore(connections, scenario, every=EVERY, switches=count_switches(scenario))
            print(f"{scenario.name}: {explored.interleavings} interleavings, {explored.steps} steps")  # noqa: T201
            assert explored.interleavings > 1, scenario.name
