from django.db import models


class Order(models.Model):
    """An order of a customer."""

    email = models.EmailField()
    cents = models.IntegerField()

    def __str__(self) -> str:
        return f"order {self.pk} of {self.email}"
