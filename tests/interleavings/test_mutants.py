"""The explorer finds faults of the protocol: it must be able to fail."""

import pytest

from fairlead import Fairlead
from tests.interleavings.explorer import FindingError, connect, explore
from tests.interleavings.mutants import MUTANTS, Mutant
from tests.interleavings.test_pairs import count_switches

PARTS = 4


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, PARTS))]
)
async def test_each_fault_of_the_protocol_is_found(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    missed = [one.name for one in MUTANTS[part::PARTS] if not await is_found(fl, monkeypatch, one)]
    assert missed == []


async def is_found(fl: Fairlead, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> bool:
    with monkeypatch.context() as patch:
        scenario = mutant.apply(patch)
        participants, clock = len(scenario.participants), scenario.has_virtual_time
        async with connect(fl, participants=participants, has_virtual_time=clock) as connections:
            try:
                await explore(connections, scenario, switches=count_switches(scenario))
            except FindingError as found:
                print(f"{mutant.name}: {found.problem.strip().splitlines()[-1]}")  # noqa: T201
                return True
    return False
