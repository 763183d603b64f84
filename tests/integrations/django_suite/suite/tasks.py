"""The tasks of Django's own tests, and a few more."""

from typing import Any

from fairlead import Fatal, Snooze
from fairlead.integrations.django import current_job_context, current_tenant
from suite.framework import TaskContext, task


class OutOfStock(Exception):
    pass


@task()
def noop(*_args: Any, **_kwargs: Any) -> None:
    return None


@task
def noop_of_bare_decorator(*_args: Any, **_kwargs: Any) -> None:
    return None


@task()
async def noop_async(*_args: Any, **_kwargs: Any) -> None:
    return None


@task()
def calculate_meaning_of_life() -> int:
    """Calculate the meaning of life."""
    return 42


@task()
def fail_with_value_error() -> None:
    raise ValueError("This Task failed due to ValueError")


@task()
def fail_with_system_exit() -> None:
    raise SystemExit("This Task failed due to SystemExit")


@task()
async def fail_async() -> None:
    raise OutOfStock("no more\nof these: tea")


@task()
def complex_exception() -> None:
    raise ValueError(ValueError("This task failed"))


@task()
def complex_return_value() -> Any:
    return lambda: True


@task(takes_context=True)
def get_task_id(context: Any) -> str:
    found: str = context.task_result.id
    return found


@task(takes_context=True)
def check_context(context: Any, attempt: int) -> None:
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt


@task(max_attempts=2)
def fail_twice() -> None:
    raise OutOfStock("not yet")


@task(max_attempts=5)
def fail_for_good() -> None:
    raise Fatal("never")


@task()
def snooze() -> None:
    raise Snooze(3600)


@task()
def enqueue_another() -> list[str | None]:
    ctx = current_job_context()
    assert ctx is not None
    ctx.log.info("enqueues another")
    return [current_tenant(), noop.enqueue().id]
