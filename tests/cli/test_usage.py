"""`fairlead usage`, as a person and a script use it."""

from datetime import UTC, datetime

import pytest

from tests import given
from tests.cli.test_commands import Shell


@pytest.fixture
def shell(database_url: str) -> Shell:
    runs = {"runs": 4, "succeeded": 3, "retried": 1, "run_ms": 5_400_000, "queue_ms": 250, "cost_cents": 1234}
    for tenant in ("acme", "umbrella"):
        for hour in (datetime(2026, 3, 1, 23, tzinfo=UTC), datetime(2026, 2, 10, 10, tzinfo=UTC)):
            given.at(database_url, given.add_usage, tenant, hour, **runs)
    return Shell(database_url)


def test_people_read_a_table_of_it_and_its_sum(shell: Shell) -> None:
    told = shell(
        "usage", "--tenant", "acme", "--from", "2026-02-01", "--to", "2026-04-01", "--timezone", "Asia/Tokyo"
    )

    heading, newest, _, total = told.output.splitlines()
    assert heading.split()[:4] == ["day", "(Asia/Tokyo)", "definition", "runs"]
    assert newest.split()[:4] == ["2026-03-02", "greet", "4", "3"]
    assert total.split()[0] == "all"
    assert "3.0 h" in total
    assert "24.68" in total
    assert "No runs in this period." in shell("usage", "--by", "hour").output


def test_machines_get_json_csv_and_refusals(shell: Shell) -> None:
    time = ("--by", "month", "--per", "tenant", "--from", "2026-01-01", "--to", "2026-04-01")
    found = shell.json("usage", *time)
    assert [(one["starts_at"][:7], one["tenant"]) for one in found["items"]] == [
        ("2026-03", "acme"),
        ("2026-03", "umbrella"),
        ("2026-02", "acme"),
        ("2026-02", "umbrella"),
    ]
    assert (found["totals"]["cost_cents"], found["timezone"]) == (4 * 1234, "UTC")
    table = shell("usage", *time, "--csv").output.splitlines()
    assert len(table) == 5
    assert table[1] == "2026-03-01T00:00:00+00:00,acme,,4,3,0,0,0,1,0,5400000,250,1234"
    refused = shell("usage", "--by", "hour", "--from", "2020-01-01", "--json")
    assert refused.exit_code == 1
    assert "longer steps" in refused.output
