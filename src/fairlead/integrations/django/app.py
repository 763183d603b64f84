"""The tasks of a Django project as an application: `fairlead worker fairlead.integrations.django.app:fl`.

DJANGO_SETTINGS_MODULE names the settings. `manage.py fairlead_worker` does the same.
"""

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from fairlead.integrations.django.project import build_app_of_environment

fl = build_app_of_environment()
