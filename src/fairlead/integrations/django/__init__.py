"""Django: a backend for its tasks, commands for manage.py, and migrations.

Add `fairlead.integrations.django` to INSTALLED_APPS, and name `fairlead.integrations.django.FairleadBackend` in TASKS.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.integrations.django.backend import FairleadBackend
    from fairlead.integrations.django.context import current_job_context, current_tenant, use_tenant
    from fairlead.integrations.django.middleware import TenantMiddleware
else:
    # imported when first used: Django imports this package before its settings and apps are ready
    _MODULES = {
        "FairleadBackend": "backend",
        "TenantMiddleware": "middleware",
        "current_job_context": "context",
        "current_tenant": "context",
        "use_tenant": "context",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["FairleadBackend", "TenantMiddleware", "current_job_context", "current_tenant", "use_tenant"]
