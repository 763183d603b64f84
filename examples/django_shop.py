"""A Django project whose tasks are Fairlead's jobs: its migrations, its worker, and a visit to it.

Run it with: python examples/django_shop.py (needs django and, before Django 6, django-tasks)
The project is in examples/django_shop. FAIRLEAD_DATABASE_URL names the database, such as that of `fairlead dev`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fairlead.sync import Fairlead

PROJECT = Path(__file__).parent / "django_shop"


def manage(*arguments: str) -> None:
    """`python manage.py …`, to its end."""
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=PROJECT, check=True)


@contextmanager
def run_worker() -> Iterator[None]:
    """`python manage.py fairlead_worker`, until the end of the block."""
    argv = [sys.executable, "manage.py", "fairlead_worker", "--concurrency", "4"]
    with subprocess.Popen(argv, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as worker:
        try:
            print("worker:", worker.stderr.readline().strip() if worker.stderr else "")
            yield
        finally:
            worker.terminate()
            print(f"worker: {worker.communicate(timeout=120)[1].strip().splitlines()[-1]}")


def main() -> None:
    manage("migrate", "--verbosity", "0")
    with Fairlead() as fl:  # or: manage.py fairlead tenants add acme
        fl.add_tenant("acme", exist_ok=True)
    with run_worker():
        manage("visit")


if __name__ == "__main__":
    with nullcontext() if "FAIRLEAD_DATABASE_URL" in os.environ else Fairlead() as own:
        if own is not None:  # a database of its own, which the project then uses
            os.environ["FAIRLEAD_DATABASE_URL"] = own.direct_url
        main()
