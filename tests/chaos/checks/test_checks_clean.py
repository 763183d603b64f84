"""A run in which everything is right has no findings."""

from fairlead.chaos.checks.check_run import MEANINGS, RunFacts, check_run
from tests.chaos.checks.played_run import PLAN, PlayedRun


async def test_a_clean_run_has_no_findings(played_run: PlayedRun) -> None:
    result = await check_run(played_run.folder, played_run.fl.database, RunFacts(plan=PLAN, seed=7))

    assert result.findings == []
    assert result.is_clean
    assert result.seed == 7


async def test_every_rule_has_something_to_check(played_run: PlayedRun) -> None:
    facts = RunFacts(plan=PLAN, full_jobs=1)

    result = await check_run(played_run.folder, played_run.fl.database, facts)

    assert result.work.keys() == MEANINGS.keys()
    assert not result.not_checked, result.not_checked
    assert result.findings == []
