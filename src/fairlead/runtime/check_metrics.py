"""Results of the health checks as Prometheus metrics. Every process reports the same: one process runs the checks."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily

from fairlead.actions import checks
from fairlead.db.tx import Database
from fairlead.model.finding import Finding

READ_SECONDS = 30.0


def build_check_families(found: Sequence[Finding]) -> Iterator[GaugeMetricFamily]:
    """The metric families: a verdict for each check, and its measured value if it has one."""
    verdicts = GaugeMetricFamily(
        "fairlead_check", "The verdict of a check: 0 is ok, 1 a warning, 2 a failure.", labels=["check"]
    )
    values = GaugeMetricFamily("fairlead_check_value", "The measured value of a check.", labels=["check"])
    for one in found:
        verdicts.add_metric([one.check], one.verdict.level)
        if one.value is not None:
            values.add_metric([one.check], one.value)
    yield from (verdicts, values)


class CheckReader:
    """Reads the stored findings twice a minute, since a Prometheus registry cannot wait for the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: Sequence[Finding] = ()

    async def __call__(self) -> float:
        """Read the findings; seconds until the next read."""
        self._found = await self._database.transact(checks.list_stored)
        return READ_SECONDS

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The findings that were read last, for the registry."""
        yield from build_check_families(self._found)
