"""Fairlead's schema. Its own migrations are numbered SQL files; `manage.py migrate` also applies those of later versions."""

from typing import Any, ClassVar

from django.db import migrations, models

from fairlead.integrations.django.operations import ApplyFairleadSchema


class Migration(migrations.Migration):
    """The schema, and the model behind the link in the admin site, which has no table."""

    initial = True
    atomic = False  # the schema is created in another connection
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        ApplyFairleadSchema(),
        migrations.CreateModel(
            name="ConsoleLink",
            fields=[("id", models.UUIDField(primary_key=True, serialize=False))],
            options={
                "managed": False,
                "default_permissions": ("view",),
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
    ]
