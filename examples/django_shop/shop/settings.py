"""A small shop: what its tasks need is in INSTALLED_APPS, MIDDLEWARE and TASKS."""

import os

import django
from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "not for production"  # noqa: S105
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "fairlead.integrations.django",
    "shop",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS += ["django_tasks"]  # Django 6 has it built in
MIDDLEWARE = ["fairlead.integrations.django.TenantMiddleware"]

# yours may well be a plain dictionary: HOST, NAME, USER, PASSWORD
_parts = conninfo_to_dict(os.environ["FAIRLEAD_DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.pop("dbname"),
        "USER": _parts.pop("user", ""),
        "PASSWORD": _parts.pop("password", ""),
        "HOST": _parts.pop("host", ""),
        "PORT": str(_parts.pop("port", "")),
        "OPTIONS": _parts,
    }
}

TASKS = {
    "default": {
        "BACKEND": "fairlead.integrations.django.FairleadBackend",
        "QUEUES": ["default", "reports"],
        "OPTIONS": {"TENANT_OF_REQUEST": "shop.tenants.find_tenant"},
    }
}
