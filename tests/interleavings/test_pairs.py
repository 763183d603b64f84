"""Interleavings of two operations with one interruption, or those that a scenario asks for; with INTERLEAVINGS=1 every one, also of three."""

import os

import pytest

from fairlead import Fairlead
from tests.interleavings.explorer import Scenario, connect, explore
from tests.interleavings.scenarios import PAIRS, TRIPLES

# Also those that differ only in the order of steps which cannot notice each other, and those of three operations.
EVERY = os.environ.get("INTERLEAVINGS") == "1"
# Scenarios share a database, since a copy of it takes longer than a small scenario.
PARTS = 4


def count_switches(scenario: Scenario) -> int | None:
    """How often participants that could act are interrupted; None for as often as they can be."""
    return None if EVERY else scenario.switches


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, PARTS))]
)
async def test_every_interleaving_of_two_operations_is_consistent(fl: Fairlead, part: int) -> None:
    total = 0
    async with connect(fl) as connections:
        for scenario in PAIRS[part::PARTS]:
            explored = await explore(connections, scenario, every=EVERY, switches=count_switches(scenario))
            print(f"{scenario.name}: {explored.interleavings} interleavings, {explored.steps} steps")  # noqa: T201
            assert explored.interleavings > 1, scenario.name
            total += explored.interleavings
    print(f"{total} interleavings walked")  # noqa: T201


@pytest.mark.thorough
@pytest.mark.skipif(not EVERY, reason="takes minutes: `make interleavings` runs it")
@pytest.mark.parametrize("scenario", TRIPLES, ids=lambda one: one.name)
async def test_every_interleaving_of_three_operations_is_consistent(fl: Fairlead, scenario: Scenario) -> None:
    async with connect(fl, participants=3) as connections:
        explored = await explore(connections, scenario)
    print(f"{scenario.name}: {explored.interleavings} interleavings, {explored.steps} steps")  # noqa: T201
