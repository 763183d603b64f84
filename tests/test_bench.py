"""The benchmarks run and say what they measured; how fast is not a test's business."""

import json

import pytest
from click.testing import CliRunner

from fairlead.bench import WORKLOADS, bulk, drain, enqueue, latency
from fairlead.cli import main


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bulk, drain, enqueue, latency):
        monkeypatch.setattr(module, "ROUNDS", 1, raising=False)
        monkeypatch.setattr(module, "JOBS", 50)


def test_each_workload_prints_its_figure_beside_the_raw_limit(server: str) -> None:
    result = CliRunner().invoke(main, ["bench", "--json"], env={"FAIRLEAD_DATABASE_URL": server})

    assert result.exit_code == 0, result.output
    measures = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["workload"] for one in measures] == list(WORKLOADS)
    for one in measures:
        assert one["value"] > 0
        assert one["ratio"] == pytest.approx(one["value"] / one["limit"], rel=0.05)
        assert one["unit"] == ("ms" if one["workload"] == "latency" else "jobs/s")


def test_people_get_a_table(server: str) -> None:
    result = CliRunner().invoke(main, ["bench", "enqueue"], env={"FAIRLEAD_DATABASE_URL": server})
    assert "raw limit" in result.output
