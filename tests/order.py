"""The order of a run in several processes: what takes long comes first, and not all of it in one process."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# Modules whose tests start processes and wait for them, or take long for another reason.
LONG = (
    "tests/acceptance/",
    "tests/chaos/",
    "tests/cli/test_command_jobs.py",
    "tests/integrations/",
    "tests/interleavings/",
    "tests/clients/",
    "tests/conformance/",
    "tests/server/test_canary.py",
    "tests/server/test_mcp_http.py",
    "tests/server/test_mcp_stdio.py",
    "tests/server/test_schemathesis.py",
    "tests/store/test_claim_exact.py",
    "tests/test_bench.py",
    "tests/test_examples.py",
    "tests/test_pytest_plugin.py",
    "tests/test_readme.py",
    "tests/test_release.py",
    "tests/test_site.py",
    "tests/test_tenant_moves.py",
    "tests/test_testing.py",
    "tests/test_typed_api.py",
)


def is_long(node_id: str) -> bool:
    return node_id.startswith(LONG)


def deal(long: Sequence[T], short: Sequence[T], processes: int) -> list[T]:
    """All of them, for a scheduler that gives each process an equal slice to begin with.

    Every second process begins with long ones. Not every process: half of a machine is left to the short ones, and
    the long ones, which look at what several programs do together, do not disturb each other as much.
    """
    beginners = (processes + 1) // 2
    hands = [list(long[number::beginners]) for number in range(beginners)]
    rest = list(short)
    ordered: list[T] = []
    total = len(long) + len(short)
    for process in range(processes):
        size = total * (process + 1) // processes - total * process // processes
        hand = hands[process // 2] if process % 2 == 0 else []
        taken = max(0, size - len(hand))
        ordered += hand + rest[:taken]
        del rest[:taken]
    return ordered + rest
