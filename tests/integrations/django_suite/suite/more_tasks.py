"""Found only because TASK_MODULES names it."""

from suite.framework import task


@task(queue_name="queue_1")
def elsewhere() -> str:
    return "elsewhere"
