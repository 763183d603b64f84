"""The messages with which workers behind an engine report, and the reports that they become."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import structlog

from fairlead.integrations.engine import DeliveryProgress, Report
from fairlead.model.delivery import AttemptRef
from fairlead.model.outcome import MOST_CENTS, Failed, Succeeded

log = structlog.get_logger(__name__)

LONGEST_LOG = 1_048_576
# A bad message is logged with its beginning only, and without its values.
LONGEST_FAULT = 200


class ErrorMessage(msgspec.Struct):
    """Why an attempt failed."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    message: str = ""
    traceback: str | None = None


class ResultMessage(msgspec.Struct):
    """A worker's report on an attempt: its outcome, or how far it is."""

    job_id: UUID
    attempt_no: Annotated[int, msgspec.Meta(ge=1, le=2_147_483_647)]
    lease_token: UUID
    status: Literal["succeeded", "failed", "progress"]
    output: Any = None
    error: ErrorMessage | None = None
    retryable: bool = True
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    message: str = ""
    log: str | None = None
    cost_cents: Annotated[int, msgspec.Meta(ge=0, le=MOST_CENTS)] = 0

    def read(self) -> Succeeded | Failed | DeliveryProgress:
        """What the worker reported."""
        match self.status:
            case "succeeded":
                return Succeeded(self.output, self.cost_cents)
            case "progress":
                return DeliveryProgress(self.percent, self.message)
            case "failed":
                error = self.error or ErrorMessage("Failed", self.message or "The worker gave no reason.")
                return Failed(
                    error.type,
                    error.message,
                    retryable=self.retryable,
                    traceback=error.traceback,
                    cost_cents=self.cost_cents,
                )


_DECODER = msgspec.json.Decoder(ResultMessage)


class BadMessages:
    """Counts the messages that are no results, and logs each: they must not block the others."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self.count = 0

    def note(self, why: str) -> None:
        self.count += 1
        log.warning("bad_result_message", engine=self._engine, why=why[:LONGEST_FAULT], so_far=self.count)


def read_result(
    data: bytes | str, bad: BadMessages, acknowledge: Callable[[], Awaitable[None]] | None
) -> Report | None:
    """The report in a message, or None if it is not valid: then `bad` has noted it."""
    try:
        message = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        # msgspec names the field and the type that it expected, never the value
        bad.note(str(error))
        return None
    except RecursionError:
        bad.note("the message is nested too deeply")
        return None
    return Report(
        attempt=AttemptRef(message.job_id, message.attempt_no, message.lease_token),
        what=message.read(),
        log=None if message.log is None else message.log[-LONGEST_LOG:],
        acknowledge=acknowledge,
    )
