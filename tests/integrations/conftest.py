"""BullMQ on Redis and on PostgreSQL, each with a Node worker that serves while a module's tests run."""

import asyncio
from collections.abc import Iterator

import pytest

from tests import bullmq_parts
from tests.bullmq_parts import Broker, NodeWorker, Redis
from tests.databases import Databases

# Django runs the tests of this project: see test_django.py.
collect_ignore = ["django_suite"]
BACKENDS = ("redis", "postgres")
# The worker serves these. Another queue has no worker.
SERVED = ("work", "org-acme", "org-umbrella")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if why := bullmq_parts.why_no_redis():
        pytest.skip(why)
    with bullmq_parts.redis_server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(scope="module", params=BACKENDS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """BullMQ on Redis, then on PostgreSQL."""
    if why := bullmq_parts.why_not():
        pytest.skip(why)
    if request.param == "redis":
        server: Redis = request.getfixturevalue("redis")
        yield Broker("redis", server.url)
        return
    databases: Databases = request.getfixturevalue("databases")
    with databases.lend() as url:
        asyncio.run(bullmq_parts.create_tables(url))
        yield Broker("postgres", url)


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorker]:
    """A Node worker that listens for cancels."""
    file = tmp_path_factory.mktemp("node") / "worker.jsonl"
    with bullmq_parts.node_worker(broker.url, SERVED, file, listens=True) as running:
        yield running
