"""Errors in Sentry and the job in every log line, with secrets masked in both.

Run it with: python examples/reported.py (it needs the extra sentry; nothing is sent anywhere)
"""

import asyncio
from typing import Annotated

import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from fairlead import Fairlead, Fatal, Secret
from fairlead.integrations.sentry import report_attempt
from fairlead.integrations.structlog import bind_job


class Printer(Transport):
    """Prints what would be sent. In earnest: sentry_sdk.init(dsn="…"), and no transport."""

    def capture_envelope(self, envelope: Envelope) -> None:
        if event := envelope.get_event():
            print("Sentry got", event["exception"]["values"][-1]["value"])
            print("  of", event["tags"]["fairlead.definition"], "for", event["tags"]["fairlead.tenant"])


sentry_sdk.init(dsn="http://key@localhost/1", transport=Printer(), auto_enabling_integrations=False)
log = structlog.wrap_logger(
    structlog.PrintLogger(),
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
)

fl = Fairlead(actor="reported")
fl.around_attempt(bind_job)
fl.around_attempt(report_attempt)


@fl.job(key="example.sign_in")
async def sign_in(user: str, password: Annotated[str, Secret()]) -> None:
    log.info("signing in", user=user)
    raise Fatal(f"the password {password} is wrong")


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        await sign_in.enqueue(tenant="example", user="ada", password="open-sesame")  # noqa: S106 - an example
        await fl.tick()


if __name__ == "__main__":
    asyncio.run(main())
