"""Tasks in Django's transactions."""

from io import StringIO
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations.exceptions import IrreversibleError
from django.test import TestCase, TransactionTestCase, override_settings

from fairlead import sync
from fairlead.errors import JobUnknown
from fairlead.integrations.django.project import find_backend
from fairlead.integrations.django.testing import cancel_waiting_tasks
from suite import tasks
from suite.framework import TaskResultDoesNotExist, TaskResultStatus, default_task_backend, task_backends
from suite.settings import BACKEND


class Undo(Exception):
    pass


class TransactionsTestCase(TransactionTestCase):
    def tearDown(self) -> None:
        cancel_waiting_tasks()

    def assert_gone(self, result: Any) -> None:
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(result.id)

    def test_a_task_is_committed_with_the_rest(self) -> None:
        with sync.Fairlead(settings=find_backend().load_settings()) as fl:
            with transaction.atomic():
                result = tasks.noop.enqueue()
                self.assertEqual(default_task_backend.get_result(result.id), result)
                with self.assertRaises(JobUnknown):
                    fl.read(result.id)  # another connection does not see it yet

            self.assertEqual(fl.read(result.id).status, "queued")

    def test_a_task_is_rolled_back_with_the_rest(self) -> None:
        result = None
        with self.assertRaises(Undo), transaction.atomic():
            result = tasks.noop.enqueue()
            raise Undo
        self.assert_gone(result)

    def test_a_task_is_rolled_back_with_its_savepoint(self) -> None:
        with transaction.atomic():
            kept = tasks.noop.enqueue()
            try:
                with transaction.atomic():
                    undone = tasks.noop.enqueue()
                    raise Undo  # noqa: TRY301
            except Undo:
                pass
        self.assert_gone(undone)
        self.assertEqual(default_task_backend.get_result(kept.id).status, TaskResultStatus.READY)

    def test_a_refused_task_leaves_the_transaction_usable(self) -> None:
        with transaction.atomic():
            with self.assertRaisesMessage(Exception, "There is no tenant 'nobody'"):
                tasks.noop.using(tenant="nobody").enqueue()
            result = tasks.noop.enqueue()
        self.assertEqual(default_task_backend.get_result(result.id).status, TaskResultStatus.READY)

    def test_a_task_that_is_newer_than_the_last_migration_is_published(self) -> None:
        key = "suite.tasks.noop-new_queue"
        found = task_backends["any"]
        with transaction.atomic():
            result = tasks.noop.using(backend="any", queue_name="new_queue").enqueue()
            self.assertEqual(found.get_result(result.id), result)
        with sync.Fairlead(settings=find_backend().load_settings()) as fl:
            self.assertEqual(fl.read(result.id).definition_key, key)

    def test_a_key_makes_one_task(self) -> None:
        first = tasks.noop.using(dedupe_key="nightly").enqueue(1)
        second = tasks.noop.using(dedupe_key="nightly").enqueue(2)

        self.assertEqual((second.id, second.args), (first.id, [1]))


class RolledBackTestCase(TestCase):
    """Django's TestCase: a transaction that is never committed."""

    ids: list[str] = []  # noqa: RUF012 - what the other test looks for

    def test_one_enqueues_and_reads(self) -> None:
        result = tasks.noop.enqueue(1)
        self.ids.append(result.id)

        self.assertEqual(default_task_backend.get_result(result.id), result)

    def test_two_finds_nothing_of_it(self) -> None:
        for one in self.ids:
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(one)


class MigrationsTestCase(TransactionTestCase):
    def test_django_sees_no_changes(self) -> None:
        out = StringIO()
        call_command("makemigrations", "--check", "--dry-run", stdout=out)
        self.assertIn("No changes detected", out.getvalue())

    def test_the_schema_is_current_and_is_migrated_again_without_harm(self) -> None:
        out = StringIO()
        call_command("fairlead_migrate", "--check", stdout=out)
        call_command("fairlead_migrate", stdout=out)

        self.assertIn("default: Fairlead's schema is current.", out.getvalue())
        self.assertIn("default: 0 migration(s) applied, ", out.getvalue())

    def test_the_schema_is_not_dropped_by_a_migration(self) -> None:
        with self.assertRaises(IrreversibleError):
            call_command("migrate", "fairlead", "zero", verbosity=0)

    def test_a_later_version_is_applied_by_migrate_and_not_after_each_test(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "update fairlead.function_sources set checksum = 'old' where name = 'enqueue_joined'"
            )
        call_command("flush", interactive=False, verbosity=0)  # the end of a TransactionTestCase
        with self.assertRaisesMessage(CommandError, "enqueue_joined"):
            call_command("fairlead_migrate", "--check")
        call_command("migrate", verbosity=0)

        call_command("fairlead_migrate", "--check", stdout=StringIO())

    def test_a_schema_of_another_name_is_created(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"SCHEMA": "other_jobs"}}}):
            call_command("migrate", verbosity=0)
            result = tasks.noop.enqueue()
            self.assertEqual(default_task_backend.get_result(result.id).status, TaskResultStatus.READY)
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(result.id)

    def test_a_command_of_fairlead_uses_the_database_of_the_tests(self) -> None:
        call_command("fairlead", "doctor", "--json")
        with self.assertRaises(CommandError) as refused:
            call_command("fairlead", "jobs", "show", "01900000-0000-7000-8000-000000000000")
        self.assertEqual(refused.exception.returncode, 1)
