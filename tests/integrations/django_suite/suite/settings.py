"""A project with several Fairlead backends."""

import os

import django
from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "of the tests"  # noqa: S105
ROOT_URLCONF = "suite.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "fairlead.integrations.django",
    "suite",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS += ["django_tasks"]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "fairlead.integrations.django.TenantMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGGING_CONFIG = None

_parts = conninfo_to_dict(os.environ["FAIRLEAD_DATABASE_URL"])
_database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": _parts.pop("dbname"),
    "USER": _parts.pop("user", ""),
    "PASSWORD": _parts.pop("password", ""),
    "HOST": _parts.pop("host", ""),
    "PORT": str(_parts.pop("port", "")),
    "OPTIONS": _parts,
    # a copy of template1 would have the encoding of this machine
    "TEST": {"CHARSET": "UTF8", "TEMPLATE": "template0"},
}
DATABASES = {"default": _database}

BACKEND = "fairlead.integrations.django.FairleadBackend"
TASKS = {
    "default": {
        "BACKEND": BACKEND,
        "QUEUES": ["default", "queue_1"],
        "OPTIONS": {
            "TENANT_OF_REQUEST": "suite.tenants.find_tenant",
            "CONSOLE_URL": "https://jobs.example.com/console/",
            "TASK_MODULES": ["suite.more_tasks"],
        },
    },
    "any": {"BACKEND": BACKEND, "QUEUES": []},
}
