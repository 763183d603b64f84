"""What tenants and workers behind an engine can forge: results that cannot be read, and names that lead elsewhere."""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from fairlead.integrations.bullmq.stored_job import StoredJob, read_outcome, read_progress
from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.engine import Handover
from fairlead.integrations.result_messages import BadMessages, read_result
from fairlead.model.job import Lease
from fairlead.model.outcome import Failed, Succeeded

# More levels than the parser takes.
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("output", [DEEP, "[" * 100_000, "1e999", '"\\ud800"', "{"])
def test_a_result_that_cannot_be_read_is_noted_and_left_out(output: str) -> None:
    bad = BadMessages("carrier")
    message = f'{{"job_id":"{uuid4()}","attempt_no":1,"lease_token":"{uuid4()}","status":"succeeded","output":{output}}}'

    assert read_result(message, bad, None) is None
    assert bad.count == 1


def test_a_value_of_bullmq_that_is_nested_too_deeply_is_text() -> None:
    completed = StoredJob(state="completed", return_value=DEEP, failed_reason=None, stacktrace=None, log=[])
    failed = StoredJob(state="failed", return_value=None, failed_reason="no", stacktrace=DEEP, log=[])

    assert read_outcome(completed) == Succeeded(DEEP)
    assert read_outcome(failed) == Failed("Error", "no")
    assert read_progress(DEEP).message == DEEP


@pytest.mark.thorough  # imports the libraries of Google
@pytest.mark.parametrize(
    ("host", "sent_to"),
    [
        ("box-1", "https://box-1.workers.example/run/box-1"),
        (
            "evil.example/?",
            "https://evil.example%2F%3F.workers.example/run/evil.example%2F%3F",
        ),
        ("../a", "https://..%2Fa.workers.example/run/..%2Fa"),
        ("..", None),
    ],
)
async def test_the_name_of_a_host_leads_to_no_other_server(host: str, sent_to: str | None) -> None:
    from fairlead.integrations.cloud_tasks import CloudTasksEngine, CloudTasksOptions  # noqa: PLC0415

    client: Any = AsyncMock()
    options = CloudTasksOptions(project="p", location="l", url="https://{host}.workers.example/run/{host}")
    engine = CloudTasksEngine(ConnectionTable("engines", "tasks", "cloud_tasks", {}), options, client)
    attempt = Handover(
        lease=Lease(uuid4(), 1, uuid4()),
        tenant="acme",
        tenant_id=uuid4(),
        definition_key="k",
        queue="q",
        payload={},
        timeout_seconds=60,
        max_attempts=1,
        deadline=datetime.now(UTC),
        host=host,
    )

    refused = await engine.hand_over([attempt])

    sent = [call.kwargs["task"].http_request.url for call in client.create_task.await_args_list]
    assert sent == ([] if sent_to is None else [sent_to])
    assert bool(refused) == (sent_to is None)
