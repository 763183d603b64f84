"""The shop's tasks: plain Django."""

from typing import Any

from fairlead.integrations.django import current_tenant
from shop.models import Order

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6
    from django_tasks import task


@task
def send_receipt(order_id: int) -> str:
    """Send the receipt of an order."""
    order = Order.objects.get(pk=order_id)
    return f"receipt of {order.cents / 100:.2f} to {order.email} from {current_tenant()}"


@task(queue_name="reports", takes_context=True)
def report(context: Any, month: str) -> str:
    """Write the report of a month."""
    if month == "never":
        raise ValueError("there is no such month")
    return f"report of {month}, attempt {context.attempt}"
