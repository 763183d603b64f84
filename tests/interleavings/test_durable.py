"""Every interleaving of two operations of which one is about a durable function."""

import pytest

from fairlead import Fairlead
from tests.interleavings.approval_scenarios import APPROVALS
from tests.interleavings.durable_scenarios import DURABLE
from tests.interleavings.explorer import Scenario, connect, explore
from tests.interleavings.test_pairs import EVERY, SWITCHES


@pytest.mark.parametrize("scenario", [*DURABLE, *APPROVALS], ids=lambda one: one.name)
async def test_every_interleaving_with_a_durable_function_is_consistent(
    fl: Fairlead, scenario: Scenario
) -> None:
    async with connect(fl) as connections:
        explored = await explore(connections, scenario, every=EVERY, switches=SWITCHES)
    print(f"{scenario.name}: {explored.interleavings} interleavings, {explored.steps} steps")  # noqa: T201
    assert explored.interleavings > 1
