"""A link from the admin site to the console, for staff who may view jobs."""

from typing import Any
from urllib.parse import quote

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect

from fairlead.integrations.django.models import ConsoleLink
from fairlead.integrations.django.project import find_option


def build_console_url(job_id: object = None) -> str | None:
    """The URL of the console, or of a job in it; None without the option CONSOLE_URL."""
    given = find_option("CONSOLE_URL")
    if not given:
        return None
    return f"{given.rstrip('/')}/jobs{'' if job_id is None else '/' + quote(str(job_id), safe='')}"


@admin.register(ConsoleLink)
class ConsoleLinkAdmin(admin.ModelAdmin):
    """Redirects to the console; without the option CONSOLE_URL there is no link."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the index shows the link."""
        return build_console_url() is not None and self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's
        """The permission `fairlead.view_consolelink`."""
        return bool(build_console_url() is not None and request.user.has_perm("fairlead.view_consolelink"))

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - Django's
        """Jobs are enqueued by tasks."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's
        """The console has the actions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's
        """Retention deletes jobs."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseRedirect:  # noqa: ARG002
        """The console's list of jobs."""
        return self._redirect(request)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002 - Django's
        extra_context: Any = None,  # noqa: ARG002 - Django's
    ) -> HttpResponseRedirect:
        """The console's page of a job."""
        return self._redirect(request, object_id)

    def _redirect(self, request: HttpRequest, job_id: str | None = None) -> HttpResponseRedirect:
        url = build_console_url(job_id)
        if url is None or not self.has_view_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(url)
