"""What the checks found, for Prometheus: the same of every process, since one of them looks for all."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily

from fairlead.actions import checks
from fairlead.db.tx import Database
from fairlead.model.finding import Finding

READ_SECONDS = 30.0


def check_families(found: Sequence[Finding]) -> Iterator[GaugeMetricFamily]:
    """A verdict for each check, and the figure behind it where there is one."""
    verdicts = GaugeMetricFamily(
        "fairlead_check", "How a check came out: 0 is ok, 1 a warning, 2 a failure.", labels=["check"]
    )
    values = GaugeMetricFamily("fairlead_check_value", "The figure behind a check.", labels=["check"])
    for one in found:
        verdicts.add_metric([one.check], one.verdict.level)
        if one.value is not None:
            values.add_metric([one.check], one.value)
    yield from (verdicts, values)


class CheckReader:
    """Reads what was found last, twice a minute, for a registry that cannot wait for the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: Sequence[Finding] = ()

    async def __call__(self) -> float:
        """Seconds until the next look."""
        self._found = await self._database.transact(checks.show_stored)
        return READ_SECONDS

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What was found, for the registry."""
        yield from check_families(self._found)
