"""Alert rules and the dashboard: every expression parses, and every metric and label that it names exists."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import httpx2
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import given
from tests.deploy.files import DEPLOY, ROOT, require_command
from tests.processes import FAIRLEAD, free_port, started, until
from tests.server.cells import cells_on
from tests.server.world import BASE, World
from tests.waiting import SECONDS

MONITORING = DEPLOY / "monitoring"
# Labels that a scrape adds.
SCRAPED = {"job", "instance"}
SUFFIXES = ("_bucket", "_sum", "_count")


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text("utf-8"))
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """All expressions, by what they are for."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    for block in re.findall(r"^```\n(.*?)^```", documented, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            yield "metrics.md", line


class Use(NamedTuple):
    """A metric in an expression, with the labels that must exist: its matchers, and those of groups around it."""

    metric: str
    labels: frozenset[str]


def uses(node: Any, outer: frozenset[str] = frozenset()) -> Iterator[Use]:
    """The metrics of an expression. What this does not know, it refuses."""
    match node:
        case promql.AggregateExpr():
            grouped = frozenset(node.modifier.labels) if node.modifier else frozenset()
            yield from uses(node.expr, outer | grouped)
        case promql.Call():
            for argument in node.args:
                yield from uses(argument, outer)
        case promql.BinaryExpr():
            yield from uses(node.lhs, outer)
            yield from uses(node.rhs, outer)
        case promql.ParenExpr():
            yield from uses(node.expr, outer)
        case promql.MatrixSelector():
            yield from uses(node.vector_selector, outer)
        case promql.VectorSelector():
            matched = frozenset(one.name for one in node.matchers.matchers)
            yield Use(str(node.name), outer | matched)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            raise TypeError(f"{type(node).__name__} is not known here")


def series(text: str) -> dict[str, set[str]]:
    """The labels of each metric in an answer of /metrics; also of those that have no value yet."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        names = [name + suffix for suffix in SUFFIXES] if family.type == "histogram" else [name]
        for one in names:
            labels = {label for sample in family.samples for label in sample.labels}
            found.setdefault(one, set()).update(labels)
    return found


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """With two cells, so that figures name them."""
    async with cells_on(database_url) as made:
        yield made


@pytest.fixture
async def known(world: World, database_url: str) -> dict[str, set[str]]:
    """The metrics of a server and of a worker process that has run jobs, with their labels."""
    async with world.fl.transaction() as tx:
        await given.ended_job(tx, "dead_letter")
        await given.queued_job(tx, tenant=given.OTHER)
    server = (await world.call("GET", BASE + "/metrics", who="super_admin")).text
    server = (await world.call("GET", BASE + "/metrics", who="super_admin")).text  # has seen a request
    found = series(server)
    for name, labels in series(_worker_metrics(database_url)).items():
        found.setdefault(name, set()).update(labels)
    return found


def _worker_metrics(database_url: str) -> str:
    port = free_port()
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_METRICS_PORT": str(port)}

    def scrape() -> str | None:
        try:
            text = str(httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS).text)
        except httpx2.TransportError:
            return None
        return text if "fairlead_attempts_total{" in text else None

    with started([FAIRLEAD, "worker", "jobs:fl"], env=env, cwd=DEPLOY / "app"):
        return until(scrape, "the metrics of an attempt", longest_pause=0.5)


@pytest.mark.thorough
async def test_every_metric_and_label_exists(known: dict[str, set[str]]) -> None:
    wrong = []
    for title, text in expressions():
        for use in uses(promql.parse(text.replace("$tenant", ".*"))):
            if use.metric not in known:
                wrong.append(f"{title}: there is no metric {use.metric}")
            elif missing := use.labels - known[use.metric] - SCRAPED:
                wrong.append(f"{title}: {use.metric} has no label {', '.join(missing)}")
    assert wrong == []
    assert len(list(expressions())) > 30


def test_texts_of_alerts_use_labels_that_are_left_and_commands_that_exist() -> None:
    for rule in alerts():
        texts = " ".join(rule["annotations"].values())
        kept = {
            label
            for labels in re.findall(r"^\w+ by \(([\w, ]+)\)", rule["expr"])
            for label in labels.split(", ")
        }
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= kept, rule["alert"]
        for command in re.findall(r"fairlead ([a-z][\w -]*?)(?=[.]|$)", texts):
            require_command(shlex.split(command.replace("JOB", str(UUID(int=1)))))


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text("utf-8")
    assert [rule["alert"] for rule in alerts() if f"| `{rule['alert']}` |" not in page] == []
    named = set(re.findall(r"^\| `(Fairlead\w+)` \|", page, re.MULTILINE))
    assert named == {rule["alert"] for rule in alerts()}


def test_legends_of_panels_use_labels_that_are_left() -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            kept = {
                label for part in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in part.split(", ")
            }
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_panels_do_not_overlap_and_use_the_chosen_data_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert {one["datasource"]["uid"] for one in (panel, *panel["targets"])} == {"${datasource}"}
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


@pytest.mark.thorough
def test_promtool_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (in Debian's package prometheus). Not checked: when alerts fire")
    config = tmp_path / "prometheus.yml"
    config.write_text((MONITORING / "scrape.yml").read_text("utf-8"))
    for argv in (
        ["check", "rules", str(MONITORING / "alerts.yml")],
        ["check", "config", "--syntax-only", str(config)],
        ["test", "rules", str(Path(__file__).with_name("alerts_test.yml"))],
    ):
        done = subprocess.run([promtool, *argv], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
