"""The model behind the link in the admin site."""

from django.db import models


class ConsoleLink(models.Model):
    """A link to the console, or to a job in it. It has no table: its permission says which staff get the link."""

    id = models.UUIDField(primary_key=True)

    class Meta:
        """Without a table."""

        managed = False
        app_label = "fairlead"
        default_permissions = ("view",)
        verbose_name = "job"
        verbose_name_plural = "jobs"

    def __str__(self) -> str:
        return str(self.id)
