"""Tasks that a worker has run."""

from datetime import timedelta
from io import StringIO

from django.core.management import call_command
from django.test import TransactionTestCase
from django.utils import timezone

from fairlead import sync
from fairlead.integrations.django import use_tenant
from fairlead.integrations.django.project import find_backend
from fairlead.integrations.django.testing import cancel_waiting_tasks, run_due_tasks
from suite import more_tasks, tasks
from suite.framework import LOGGER, TaskResultStatus, default_task_backend, task_finished, task_started

FAILED, READY, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL


class RunningTestCase(TransactionTestCase):
    def tearDown(self) -> None:
        cancel_waiting_tasks()

    def test_a_task_runs_once(self) -> None:
        for one in (tasks.noop, tasks.noop_async):
            with self.subTest(one):
                result = one.enqueue(1, two=3)
                self.assertEqual(run_due_tasks(), 1)
                result.refresh()

                self.assertEqual(result.status, SUCCESSFUL)
                self.assertIs(result.is_finished, True)
                self.assertGreaterEqual(result.started_at, result.enqueued_at)
                self.assertGreaterEqual(result.finished_at, result.started_at)
                self.assertEqual(result.last_attempted_at, result.started_at)
                self.assertIsNone(result.return_value)
                self.assertEqual(result.task, one)
                self.assertEqual((result.args, result.kwargs), ([1], {"two": 3}))
                self.assertEqual((result.attempts, len(result.worker_ids), result.errors), (1, 1, []))
                self.assertEqual(run_due_tasks(), 0)

    def test_what_a_task_returns_comes_back(self) -> None:
        result = tasks.calculate_meaning_of_life.enqueue()
        run_due_tasks()

        self.assertEqual(default_task_backend.get_result(result.id).return_value, 42)

    def test_an_exception_is_recorded(self) -> None:
        for one, kind, message in (
            (tasks.fail_with_value_error, ValueError, "This Task failed due to ValueError"),
            (tasks.fail_with_system_exit, SystemExit, "This Task failed due to SystemExit"),
            (tasks.fail_async, tasks.OutOfStock, "no more\nof these: tea"),
            (tasks.complex_exception, ValueError, "This task failed"),
        ):
            with self.subTest(one), self.assertLogs(LOGGER, level="ERROR") as logs:
                result = one.enqueue()
                run_due_tasks()
                result.refresh()

                self.assertEqual(len(logs.output), 1)
                self.assertEqual(result.status, FAILED)
                self.assertIs(result.is_finished, True)
                with self.assertRaisesMessage(ValueError, "Task failed"):
                    result.return_value  # noqa: B018
                self.assertIsNone(result._return_value)
                self.assertGreaterEqual(result.finished_at, result.started_at)
                [error] = result.errors
                self.assertIs(error.exception_class, kind)
                self.assertIn("Traceback (most recent call last)", error.traceback)
                self.assertTrue(error.traceback.endswith(f"{kind.__name__}: {message}\n"), error.traceback)

    def test_a_return_value_that_json_has_not_fails(self) -> None:
        with self.assertLogs(LOGGER, level="ERROR"):
            result = tasks.complex_return_value.enqueue()
            run_due_tasks()
        result.refresh()

        self.assertEqual(result.status, FAILED)
        self.assertIs(result.errors[0].exception_class, TypeError)
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_a_task_gets_its_context(self) -> None:
        result, checked = tasks.get_task_id.enqueue(), tasks.check_context.enqueue(1)
        run_due_tasks()

        self.assertEqual(default_task_backend.get_result(result.id).return_value, result.id)
        self.assertEqual(default_task_backend.get_result(checked.id).status, SUCCESSFUL)

    def test_a_run_is_logged_and_signaled(self) -> None:
        heard = []

        def hear(task_result: object, signal: object, **_: object) -> None:
            heard.append((signal, task_result.id, task_result.status))  # type: ignore[attr-defined]

        for one in (task_started, task_finished):
            one.connect(hear)
        try:
            with self.assertLogs(LOGGER, level="DEBUG") as logs:
                result = tasks.noop.enqueue()
                run_due_tasks()
        finally:
            for one in (task_started, task_finished):
                one.disconnect(hear)

        self.assertEqual(len(logs.output), 3)
        for line, text in zip(logs.output, ("enqueued", "state=RUNNING", "state=SUCCESSFUL"), strict=True):
            self.assertIn(text, line)
            self.assertIn(result.id, line)
            self.assertNotIn("None", line)
        self.assertEqual(
            heard,
            [(task_started, result.id, TaskResultStatus.RUNNING), (task_finished, result.id, SUCCESSFUL)],
        )

    def test_the_most_important_runs_first(self) -> None:
        results = {priority: tasks.noop.using(priority=priority).enqueue() for priority in (0, -100, 100, 1)}
        self.assertEqual(run_due_tasks(limit=4), 4)

        def started(priority: int) -> object:
            return default_task_backend.get_result(results[priority].id).started_at

        self.assertEqual(sorted(results, key=started), [100, 1, 0, -100])  # type: ignore[arg-type]

    def test_a_task_waits_for_its_time(self) -> None:
        now = timezone.now()
        later = tasks.noop.using(run_after=now + timedelta(hours=1)).enqueue()
        due = tasks.noop.using(run_after=now - timedelta(hours=1)).enqueue()
        self.assertEqual(run_due_tasks(), 1)

        self.assertEqual(default_task_backend.get_result(due.id).status, SUCCESSFUL)
        self.assertEqual(default_task_backend.get_result(later.id).status, READY)

    def test_a_worker_runs_the_tasks_of_its_queues(self) -> None:
        by_default, in_queue = tasks.noop.enqueue(), tasks.noop.using(queue_name="queue_1").enqueue()
        elsewhere = more_tasks.elsewhere.enqueue()
        out = StringIO()
        call_command("fairlead_worker", "--once", "--queue", "queue_1", stdout=out)

        self.assertEqual(out.getvalue().strip(), "ran 2 task(s)")
        self.assertEqual(default_task_backend.get_result(in_queue.id).status, SUCCESSFUL)
        self.assertEqual(default_task_backend.get_result(elsewhere.id).return_value, "elsewhere")
        self.assertEqual(default_task_backend.get_result(by_default.id).status, READY)

    def test_a_task_with_attempts_left_is_ready_again(self) -> None:
        result = tasks.fail_twice.enqueue()
        with self.assertNoLogs(LOGGER, level="ERROR"):
            run_due_tasks()
        result.refresh()

        self.assertEqual((result.status, result.attempts), (READY, 1))
        [error] = result.errors
        self.assertIs(error.exception_class, tasks.OutOfStock)

    def test_every_attempt_leaves_its_error(self) -> None:
        result = tasks.fail_twice.enqueue()
        run_due_tasks()
        with (
            sync.Fairlead(settings=find_backend().load_settings()) as fl,
            self.assertLogs(LOGGER, level="ERROR"),
        ):
            fl.edit(result.id, delay=0)
            run_due_tasks()
        result.refresh()

        self.assertEqual((result.status, result.attempts, len(result.errors)), (FAILED, 2, 2))
        self.assertIn("not yet", result.errors[0].traceback)
        self.assertIs(result.errors[1].exception_class, tasks.OutOfStock)
        self.assertLess(result.started_at, result.last_attempted_at)

    def test_a_fatal_error_is_not_retried(self) -> None:
        result = tasks.fail_for_good.enqueue()
        with self.assertLogs(LOGGER, level="ERROR"):
            run_due_tasks()
        result.refresh()

        self.assertEqual((result.status, result.attempts), (FAILED, 1))

    def test_a_task_may_snooze(self) -> None:
        result = tasks.snooze.enqueue()
        with self.assertNoLogs(LOGGER, level="ERROR"):
            run_due_tasks()
        result.refresh()

        self.assertEqual((result.status, result.attempts, result.errors), (READY, 1, []))

    def test_a_canceled_task_has_failed_and_says_so(self) -> None:
        result = tasks.noop.enqueue()
        cancel_waiting_tasks()
        result.refresh()

        self.assertEqual(result.status, FAILED)
        self.assertEqual(result.errors[0].traceback, "The job was canceled.\n")

    def test_what_a_task_enqueues_is_for_the_same_tenant_and_its_child(self) -> None:
        with sync.Fairlead(settings=find_backend().load_settings()) as fl:
            fl.add_tenant("acme", exist_ok=True)
            with use_tenant("acme"):
                result = tasks.enqueue_another.enqueue()
            self.assertEqual(run_due_tasks(), 2)
            result.refresh()
            tenant, child = result.return_value

            self.assertEqual(tenant, "acme")
            job, attempts = fl.show(child)
            self.assertEqual((job.tenant, str(job.parent_id), len(attempts)), ("acme", result.id, 1))
            _, [attempt] = fl.show(result.id)
            self.assertIn("enqueues another", attempt.stdout_tail or "")
