"""A run in which everything is right has no findings."""

from fairlead.chaos.checks.check_run import RunFacts, check_run
from tests.chaos.checks.played_run import PLAN, PlayedRun


async def test_a_clean_run_has_no_findings(played_run: PlayedRun) -> None:
    result = await check_run(played_run.folder, played_run.fl.database, RunFacts(plan=PLAN, seed=7))

    assert result.findings == []
    assert result.is_clean
    assert result.seed == 7
