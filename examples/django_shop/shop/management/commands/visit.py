"""Visits the shop as its customers do, while a worker runs elsewhere."""

import time
from typing import Any

from django.core.management.base import BaseCommand
from django.test import Client

from shop.models import Order
from shop.tasks import report


class Command(BaseCommand):
    """`manage.py visit`: place orders, and wait for what the tasks return."""

    def handle(self, *_: Any, **__: Any) -> None:
        acme = Client(headers={"X-Shop": "acme"})
        placed = acme.post("/orders", {"email": "ada@example.com", "cents": 1250}).json()
        while (shown := acme.get(f"/receipts/{placed['task']}").json())["status"] in ("READY", "RUNNING"):
            time.sleep(0.1)
        self.stdout.write(f"{shown['status']}: {shown['receipt']}")

        refused = acme.post("/orders", {"email": "eve@example.com", "cents": 0})
        self.stdout.write(f"refused with {refused.status_code}; orders: {Order.objects.count()}")

        for month in ("may", "never"):
            result = report.using(priority=10, tenant="acme").enqueue(month)
            while not result.is_finished:
                time.sleep(0.1)
                result.refresh()
            if result.errors:
                self.stdout.write(f"{result.status}: {result.errors[0].traceback.splitlines()[-1]}")
            else:
                self.stdout.write(f"{result.status}: {result.return_value}")
