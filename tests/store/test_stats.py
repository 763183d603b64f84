"""What goes on now, as the tables say it."""

from fairlead.db.tx import Tx
from fairlead.model.summary import Percentiles
from fairlead.store import stats
from tests import given


async def test_times_are_percentiles_of_the_newest_jobs_and_by_definition(tx: Tx) -> None:
    for n in range(1, 101):
        definition = "greet" if n <= 50 else "anything"
        job_id = await given.ended_job(tx, "succeeded", definition=definition)
        await given.set_attempt(tx, job_id, queue_ms=n, duration_ms=2 * n)
    tenant_id = await given.tenant_id(tx)

    whole, anything, greet = await stats.list_times(tx, tenant_id=tenant_id, look=1000)
    newest, *_ = await stats.list_times(tx, tenant_id=tenant_id, look=10)

    assert (whole.definition_key, whole.jobs) == (None, 100)
    assert whole.wait_ms == Percentiles(50, 95, 99)
    assert whole.run_ms == Percentiles(100, 190, 198)
    assert (anything.definition_key, anything.wait_ms) == ("anything", Percentiles(75, 98, 100))
    assert (greet.definition_key, greet.wait_ms) == ("greet", Percentiles(25, 48, 50))
    assert (newest.jobs, newest.wait_ms) == (10, Percentiles(95, 100, 100))
