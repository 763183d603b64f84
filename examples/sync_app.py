"""The synchronous face, for applications without an event loop: the same names, without await.

Run it with: python examples/sync_app.py
Its jobs are run by: fairlead worker sync_app:fl (in this folder)
"""

from datetime import UTC, datetime, timedelta

from fairlead.errors import JobNotRetryable
from fairlead.sync import Fairlead

fl = Fairlead(actor="sync-app")


@fl.job(key="example.report", timeout=600)
def report(month: str) -> str:
    """Write one month's report."""
    return f"report of {month}"


def main() -> None:
    with fl:
        # `global` is there from the start: it owns the work that belongs to no tenant
        job = report.enqueue(tenant="global", month="2026-01")
        print(f"enqueued {job.id}: {job.read().status}")

        tonight = datetime.now(UTC) + timedelta(hours=8)
        later = fl.enqueue(
            report.key, tenant="global", payload={"month": "2026-02"}, scheduled_for=tonight, priority=50
        )
        print(f"not before {later.read().scheduled_for:%Y-%m-%d %H:%M} UTC: {later.id}")

        try:
            fl.retry(job.id)
        except JobNotRetryable as error:
            print(f"refused with {error.code}")
        print(f"canceled: {fl.cancel(job.id).status}")
        again = fl.retry(job.id, payload={"month": "2026-03"})
        print(f"retried with another payload: {again.payload} is {again.status}")

        fl.tick()  # what a worker does all day, here and now
        print(f"done: {job.result(timeout=120)}")
        fl.cancel(later.id)


if __name__ == "__main__":
    main()
