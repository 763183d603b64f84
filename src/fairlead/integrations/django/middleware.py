"""Find the tenant of each request."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from fairlead.integrations.django.context import use_tenant
from fairlead.integrations.django.project import find_option

OPTION = "TENANT_OF_REQUEST"


class TenantMiddleware:
    """Enqueues the tasks of a request for the tenant that the option TENANT_OF_REQUEST, a function of the request, returns.

    None means the backend's default tenant. Place it after the middleware that the function needs, such as authentication.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response
        self._find_tenant = _load_function()
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        if iscoroutinefunction(self):
            return self._respond(request)
        with use_tenant(self._find_tenant(request)):
            return self._get_response(request)

    async def _respond(self, request: Any) -> Any:
        found = self._find_tenant(request)
        tenant = await found if isinstance(found, Awaitable) else found
        with use_tenant(tenant):
            return await self._get_response(request)


def _load_function() -> Callable[[Any], Any]:
    given = find_option(OPTION)
    if given is None:
        raise ImproperlyConfigured(
            f"TenantMiddleware needs the option {OPTION} of the backend in TASKS: a function of the request that returns the slug of its tenant, "
            "or the path of one, such as 'shop.tenants.find_tenant'."
        )
    found: Callable[[Any], Any] = import_string(given) if isinstance(given, str) else given
    return found
