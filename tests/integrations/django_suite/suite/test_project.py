"""Tenants, the admin link, checks and options."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import AsyncClient, SimpleTestCase, TestCase, TransactionTestCase, override_settings

from fairlead import sync
from fairlead.errors import TenantUnknown
from fairlead.integrations.django import current_job_context, current_tenant, use_tenant
from fairlead.integrations.django.databases import build_url
from fairlead.integrations.django.middleware import TenantMiddleware
from fairlead.integrations.django.project import find_backend
from fairlead.integrations.django.testing import cancel_waiting_tasks
from suite import tasks
from suite.framework import InvalidTask, InvalidTaskBackend, default_task_backend, task_backends
from suite.settings import BACKEND
from suite.tenants import choose_tenant


def configure(**options: Any) -> Any:
    queues = options.pop("QUEUES", ["default"])
    return override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": queues, "OPTIONS": options}})


class TenantsTestCase(TransactionTestCase):
    def setUp(self) -> None:
        self.fl = sync.Fairlead(settings=find_backend().load_settings())
        self.fl.open()
        for slug in ("acme", "chosen", "default-tenant"):
            self.fl.add_tenant(slug, exist_ok=True)

    def tearDown(self) -> None:
        self.fl.close()
        cancel_waiting_tasks()

    def find_tenant(self, result: Any) -> str:
        return self.fl.read(result.id).tenant

    def test_a_task_belongs_to_the_tenant_that_is_named_closest_to_it(self) -> None:
        self.assertEqual(self.find_tenant(tasks.noop.enqueue()), "global")
        with configure(TENANT="default-tenant"):
            self.assertEqual(self.find_tenant(tasks.noop.enqueue()), "default-tenant")
            with use_tenant("acme"):
                self.assertEqual(current_tenant(), "acme")
                self.assertEqual(self.find_tenant(tasks.noop.enqueue()), "acme")
                self.assertEqual(self.find_tenant(tasks.noop.using(tenant="chosen").enqueue()), "chosen")
        for given in (choose_tenant, "suite.tenants.choose_tenant"):
            with configure(TENANT=given):
                self.assertEqual(self.find_tenant(tasks.noop.enqueue()), "chosen")
        self.assertIsNone(current_tenant())
        self.assertIsNone(current_job_context())

    def test_an_unknown_tenant_is_refused(self) -> None:
        with use_tenant("nobody"), self.assertRaises(TenantUnknown):
            tasks.noop.enqueue()

    def test_a_request_has_a_tenant(self) -> None:
        for headers, tenant in (({"X-Tenant": "acme"}, "acme"), ({}, "global")):
            job_id = self.client.get("/enqueue", headers=headers).content.decode()
            self.assertEqual(self.fl.read(job_id).tenant, tenant)

    async def test_an_asynchronous_request_has_a_tenant(self) -> None:
        response = await AsyncClient().get("/enqueue-async", headers={"X-Tenant": "acme"})
        job, _ = await _show(self.fl, response.content.decode())
        self.assertEqual(job.tenant, "acme")

    @configure()
    def test_the_middleware_needs_its_option(self) -> None:
        with self.assertRaisesMessage(ImproperlyConfigured, "TENANT_OF_REQUEST"):
            TenantMiddleware(lambda request: request)


async def _show(fl: sync.Fairlead, job_id: str) -> Any:
    from asgiref.sync import sync_to_async  # noqa: PLC0415

    return await sync_to_async(fl.show)(job_id)


class AdminTestCase(TestCase):
    def setUp(self) -> None:
        self.staff = User.objects.create_user("staff", is_staff=True)
        self.client.force_login(self.staff)

    def allow(self) -> None:
        self.staff.user_permissions.add(Permission.objects.get(codename="view_consolelink"))

    def test_staff_who_may_view_jobs_are_sent_to_the_console(self) -> None:
        self.assertNotContains(self.client.get("/admin/"), "/admin/fairlead/consolelink/")
        self.assertEqual(self.client.get("/admin/fairlead/consolelink/").status_code, 403)
        self.allow()

        self.assertContains(self.client.get("/admin/"), "/admin/fairlead/consolelink/")
        for path, target in (("", ""), ("123/change/", "/123")):
            response = self.client.get(f"/admin/fairlead/consolelink/{path}")
            self.assertRedirects(
                response, f"https://jobs.example.com/console/jobs{target}", fetch_redirect_response=False
            )

    @configure(TENANT_OF_REQUEST="suite.tenants.find_tenant")
    def test_without_a_console_there_is_no_link(self) -> None:
        self.allow()

        self.assertNotContains(self.client.get("/admin/"), "/admin/fairlead/consolelink/")
        self.assertEqual(self.client.get("/admin/fairlead/consolelink/").status_code, 403)


class OptionsTestCase(SimpleTestCase):
    def list_codes(self) -> list[str]:
        return [one.id for one in default_task_backend.check()]

    def test_the_checks_name_what_is_wrong(self) -> None:
        with configure(DATABASE="other"):
            self.assertEqual(self.list_codes(), ["fairlead.E002"])
        with configure(QUEUES=["two words"]):
            self.assertEqual(self.list_codes(), ["fairlead.E004"])
        with override_settings(INSTALLED_APPS=["suite"]):
            self.assertEqual(self.list_codes(), ["fairlead.E001"])

    @configure(TENNANT="acme")
    def test_an_unknown_option_is_refused(self) -> None:
        with self.assertRaisesMessage(
            InvalidTaskBackend, "unknown options: TENNANT. Known: CONSOLE_URL, DATABASE"
        ):
            task_backends["default"].check()

    def test_a_path_that_cannot_be_a_key_is_refused(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "cannot be the key of a definition"):
            tasks.noop.using(backend="any", queue_name="q" * 120)

    def test_a_backend_is_found_by_its_alias(self) -> None:
        self.assertEqual((find_backend().alias, find_backend("any").alias), ("default", "any"))
        with self.assertRaisesMessage(
            ImproperlyConfigured, "no Fairlead backend 'unknown'; it has any, default"
        ):
            find_backend("unknown")
        with (
            override_settings(TASKS={}),
            self.assertRaisesMessage(ImproperlyConfigured, "settings.TASKS has no Fairlead backend"),
        ):
            find_backend()

    def test_the_url_of_a_database_has_everything_that_django_has(self) -> None:
        from django.db import connections  # noqa: PLC0415

        given = {
            "NAME": "a shop",
            "USER": "ada",
            "PASSWORD": "p@ss/w%rd",
            "HOST": "db.example.com",
            "PORT": "6432",
            "OPTIONS": {
                "sslmode": "require",
                "pool": True,
                "assume_role": "owner",
                "isolation_level": 3,
            },
        }
        before = connections["default"].settings_dict
        connections["default"].settings_dict = {**before, **given}
        try:
            url = build_url("default")
        finally:
            connections["default"].settings_dict = before

        self.assertEqual(
            url,
            "postgresql://ada:p%40ss%2Fw%25rd@/a%20shop?sslmode=require&options=-c%20role%3Downer&host=db.example.com"
            "&port=6432",
        )

    def test_an_unknown_backend_is_refused_by_the_worker(self) -> None:
        with self.assertRaises((CommandError, ImproperlyConfigured)):
            call_command("fairlead_worker", "--once", "--backend", "unknown")
