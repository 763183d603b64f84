"""What workers behind an engine can send: a message that cannot be read ends neither the bridge nor the results of others."""

from uuid import uuid4

import pytest

from fairlead.integrations.bullmq.stored_job import StoredJob, read_outcome, read_progress
from fairlead.integrations.result_messages import BadMessages, read_result
from fairlead.model.outcome import Failed, Succeeded

# More levels than the parser takes.
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("output", [DEEP, "[" * 100_000, "1e999", '"\\ud800"', "{"])
def test_a_result_that_cannot_be_read_is_noted_and_left_out(output: str) -> None:
    bad = BadMessages("carrier")
    message = (
        f'{{"job_id":"{uuid4()}","attempt_no":1,"lease_token":"{uuid4()}","status":"succeeded","output":{output}}}'
    )

    assert read_result(message, bad, None) is None
    assert bad.count == 1


def test_a_value_of_bullmq_that_is_nested_too_deeply_is_text() -> None:
    completed = StoredJob(state="completed", return_value=DEEP, failed_reason=None, stacktrace=None, log=[])
    failed = StoredJob(state="failed", return_value=None, failed_reason="no", stacktrace=DEEP, log=[])

    assert read_outcome(completed) == Succeeded(DEEP)
    assert read_outcome(failed) == Failed("Error", "no")
    assert read_progress(DEEP).message == DEEP
