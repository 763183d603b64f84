"""What Django's own tests (tests/tasks in its repository) expect of a backend."""

import pickle
from datetime import datetime
from unittest import skipIf

import django
from django.test import TestCase, override_settings
from django.utils import timezone

from fairlead.integrations.django import FairleadBackend
from suite import tasks
from suite.framework import (
    LOGGER,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task_backends,
    task_enqueued,
)
from suite.settings import BACKEND

UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"


class BackendTestCase(TestCase):
    def test_django_finds_the_backend(self) -> None:
        self.assertEqual(default_task_backend, task_backends["default"])
        self.assertIsInstance(task_backends["default"], FairleadBackend)
        self.assertEqual(default_task_backend.alias, "default")
        for name in ("defer", "async_task", "get_result", "priority"):
            self.assertIs(getattr(default_task_backend, f"supports_{name}"), True)

    def test_a_task_is_enqueued(self) -> None:
        for one in (tasks.noop, tasks.noop_async, tasks.noop_of_bare_decorator):
            with self.subTest(one):
                result = one.enqueue(1, two=3)

                self.assertEqual(result.status, TaskResultStatus.READY)
                self.assertIs(result.is_finished, False)
                self.assertIsNotNone(result.enqueued_at)
                self.assertIsNone(result.started_at)
                self.assertIsNone(result.last_attempted_at)
                self.assertIsNone(result.finished_at)
                with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
                    result.return_value  # noqa: B018
                self.assertEqual(result.task, one)
                self.assertEqual(result.args, [1])
                self.assertEqual(result.kwargs, {"two": 3})
                self.assertEqual((result.attempts, result.errors, result.worker_ids), (0, [], []))
                self.assertEqual(result.backend, "default")

    async def test_a_task_is_enqueued_asynchronously(self) -> None:
        for one in (tasks.noop, tasks.noop_async):
            result = await one.aenqueue(1, two=3)

            self.assertEqual(result.status, TaskResultStatus.READY)
            self.assertEqual(result.task, one)
            self.assertEqual((result.args, result.kwargs), ([1], {"two": 3}))

    def test_arguments_that_json_has_not_are_refused(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            tasks.noop.enqueue(datetime.now())

    def test_arguments_become_what_json_has(self) -> None:
        result = tasks.noop.enqueue((1, b"two", "ü\U0001f680"), {"3": [None, True, 1.5, 10**30]})

        self.assertEqual(result.args[0], [1, "two", "ü\U0001f680"])
        self.assertEqual(list(result.args[1].values()), [[None, True, 1.5, 10**30]])

    def test_a_task_has_other_options_without_changing(self) -> None:
        now = timezone.now()
        changed = tasks.noop.using(run_after=now, priority=1).using(queue_name="queue_1", tenant="acme")

        self.assertEqual(
            (changed.run_after, changed.priority, changed.queue_name, changed.tenant),
            (now, 1, "queue_1", "acme"),
        )
        self.assertEqual((tasks.noop.run_after, tasks.noop.priority, tasks.noop.tenant), (None, 0, None))
        self.assertEqual(tasks.noop.using(), tasks.noop)
        self.assertIsNot(tasks.noop.using(), tasks.noop)
        with self.assertRaisesMessage(TypeError, "using() has no option colour"):
            tasks.noop.using(colour="red")

    def test_the_options_of_a_task_come_back_with_its_result(self) -> None:
        wanted = tasks.noop.using(
            run_after=timezone.now(), priority=-100, queue_name="queue_1", max_attempts=None
        )
        result = wanted.enqueue()

        self.assertEqual(result.task, wanted)
        self.assertEqual(wanted.get_result(result.id).task, wanted)

    def test_a_naive_time_is_refused(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "run_after must be an aware datetime."):
            tasks.noop.using(run_after=datetime.now())

    @override_settings(USE_TZ=False)
    def test_times_are_naive_if_django_has_no_time_zones(self) -> None:
        wanted = tasks.noop.using(run_after=datetime(2030, 1, 1, 12))
        result = wanted.enqueue()

        self.assertEqual(result.task.run_after, datetime(2030, 1, 1, 12))
        self.assertTrue(timezone.is_naive(result.enqueued_at))

    def test_priorities_have_bounds(self) -> None:
        for priority in (-101, 101, 3.1):
            with self.assertRaisesMessage(
                InvalidTask, "priority must be a whole number between -100 and 100."
            ):
                tasks.noop.using(priority=priority)
        for priority in (-100, 0, 100):
            self.assertEqual(tasks.noop.using(priority=priority).enqueue().task.priority, priority)

    def test_an_unknown_queue_is_refused_unless_the_backend_takes_any(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "Queue 'queue-2' is not valid for backend."):
            tasks.noop.using(queue_name="queue-2")
        self.assertEqual(tasks.noop.using(queue_name="queue-2", backend="any").queue_name, "queue-2")
        with self.assertRaisesMessage(InvalidTask, "Queue 'two words' is not valid for Fairlead"):
            tasks.noop.using(queue_name="two words", backend="any")

    def test_a_queue_of_a_backend_that_takes_any_needs_no_setup(self) -> None:
        result = tasks.noop.using(queue_name="queue-2", backend="any").enqueue()

        self.assertEqual((result.backend, result.task.queue_name), ("any", "queue-2"))

    def test_a_result_can_be_read_again(self) -> None:
        result = default_task_backend.enqueue(tasks.noop, (), {})

        self.assertEqual(default_task_backend.get_result(result.id), result)
        self.assertEqual(tasks.noop.get_result(result.id), result)
        again = tasks.noop.get_result(result.id)
        again.refresh()
        self.assertEqual(again, result)

    async def test_a_missing_result_is_reported(self) -> None:
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.noop.get_result("123")
        for missing in ("123", UNKNOWN_ID):
            with self.assertRaises(TaskResultDoesNotExist):
                await tasks.noop.aget_result(missing)

    def test_a_result_of_another_task_is_refused(self) -> None:
        result = default_task_backend.enqueue(tasks.noop_async, (), {})

        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            tasks.noop.get_result(result.id)

    @skipIf(django.VERSION < (6, 1), "tasks cannot be pickled before Django 6.1")
    def test_tasks_and_results_can_be_pickled(self) -> None:
        result = tasks.noop.enqueue()

        self.assertEqual(pickle.loads(pickle.dumps(tasks.noop)), tasks.noop)  # noqa: S301
        self.assertEqual(pickle.loads(pickle.dumps(result)), result)  # noqa: S301

    def test_a_task_is_validated_when_it_is_enqueued(self) -> None:
        wanted = tasks.noop.using(queue_name="queue_1")
        with (
            override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["queue-9"]}}),
            self.assertRaisesMessage(InvalidTask, "Queue 'queue_1' is not valid for backend"),
        ):
            wanted.enqueue()

    def test_an_enqueue_is_logged_and_signaled(self) -> None:
        heard = []

        def hear(sender: type, task_result: object, **_: object) -> None:
            heard.append((sender, task_result))

        task_enqueued.connect(hear)
        try:
            with self.assertLogs(LOGGER, level="DEBUG") as logs:
                result = tasks.noop.enqueue()
        finally:
            task_enqueued.disconnect(hear)

        self.assertEqual(len(logs.output), 1)
        self.assertIn("enqueued", logs.output[0])
        self.assertIn(result.id, logs.output[0])
        self.assertEqual(heard, [(FairleadBackend, result)])

    def test_the_checks_find_nothing(self) -> None:
        self.assertEqual(list(default_task_backend.check()), [])
