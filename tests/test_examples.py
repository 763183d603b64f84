"""Every example is run as a reader would run it: as a process, and more than once."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import bullmq_parts, typescript
from tests.brokers import TOOLS, MotoServer, NatsServer
from tests.processes import FAIRLEAD, environment, run_to_end, started
from tests.tables import each_case

EXAMPLES = Path(__file__).parents[1] / "examples"


def find_bullmq() -> tuple[str | None, dict[str, str]]:
    why = bullmq_parts.why_no_redis() or bullmq_parts.why_not()
    return why, {} if why else {"NODE_PATH": str(bullmq_parts.node_folder() / "node_modules")}


def find_moto() -> tuple[str | None, dict[str, str]]:
    folder = TOOLS / "moto" / "bin"
    return MotoServer.find_missing(), {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


# Those that leave in the database what the next run finds by its name: triggers, schedules, hosts, keys.
LEAVES = (
    "agent.py",
    "bulk.py",
    "console.py",
    "event_trigger.py",
    "first_job.py",
    "periodic.py",
    "schedules.py",
    "webhooks_in.py",
)
# Run by `make test`, too.
SMOKE = "first_job.py"
# What each one has to say to have shown what it promises.
SAYS = {
    "agent.py": (
        " serves only the commands SERVER_RESTART, SERVER_START, SERVER_STOP",
        "SERVER_START: {'pid': ",
        "SERVER_RESTART: {'pid': ",
        "SERVER_STOP: {'pid': None}",
    ),
    "approval.py": (
        "Refund order 1? is open\npaying 20 euros for order 1\npayment-1\n",
        "order 2: rejected by ada@example.com, it was used\n",
        "reminder: Refund order 3?\norder 3: no answer within a week\n",
    ),
    "audit_export.py": (
        " entries, signed with the key ",
        "audit.jsonl: ",
        ", unchanged, signed with the key ",
        "error [audit_export_invalid] ",
        "line 2: entry 1 does not fit its hash",
    ),
    "batches.py": (
        "10 documents of example\n",
        "{'indexed': 0}\n",
        "Fatal: there is no document 7\n",
        "document 8 is queued\n",
    ),
    "bullmq_bridge.py": (
        "{'image': 'cat.png', 'width': 80, 'attempt': 1}",
        "Error: not an image",
    ),
    "backfill.py": (
        "the next run is for 02:00:00",
        "jitter delays it: True",
        "7 nights, 0 with a report",
        "enqueued 7, had one already 0",
        "enqueued 0, had one already 7",
        "report of 20",
        "7 succeeded",
    ),
    "bulk.py": (
        "enqueued 5000 jobs in ",
        "refused, nothing stored: [1234]/customer ",
        "one job for two requests: True",
    ),
    "cells.py": (
        " lives in the cell eu-",
        "its jobs go to eu-",
        "Hello Ada and Hello Grace",
        "Hello Ada from home again",
    ),
    "commands.py": (
        "archive: None\n  exit code 0, said: ",
        "packed: ['.']\n",
        "refused with payload_invalid",
        "is failed: CommandFailed: exited with status 65: the model is missing",
        "sync-dropbox: {'ran': 'sync-dropbox', 'attempt': 1}",
        "  exit code 0, said: zoltag recompute-trained-tags --tenant-id ",
        "train-keyword-models: {'ran': 'train-keyword-models', 'attempt': 1}",
    ),
    "console.py": (
        "signed in: 303 to /console/overview",
        "the jobs page has the job: True",
        "Job canceled.",
        "it is canceled",
        "to a viewer: 403",
    ),
    "errors.py": (
        "2 x RuntimeError: no paper for order <n>",
        "overview: 2 warnings",
        "retried: 2 ['label 11', 'label 12']",
    ),
    "event_sources.py": ("packed [1, 2, 3]", "3 events, 2 duplicates"),
    "event_trigger.py": (
        "example.folder.updated: enqueued ",
        "synced /photos/new, 100 files at most",
    ),
    "first_job.py": (
        "example.greet {'name': 'Ada'} is queued",
        "refused with payload_invalid: ",
        "deduplicated: True, the same job: True",
        ": now canceled",
    ),
    "http_request.py": (
        'the shop got {"book":"Emma"}, key open-sesame, signed: True',
        "{'number': 7}",
        "RequestRefused: 192.168.0.1 is not on the public network. ",
    ),
    "invite.py": (
        "the link leads to https://jobs.example.com/console/invitation\n",
        "a weak password: 422 invalid_input\n",
        "accepted: 200 operator of example\n",
        "signed in: True\n",
        "again: 422 account_link_invalid\n",
    ),
    "http_worker.py": (
        "attempt 1: succeeded",
        "succeeded: ADA",
        "failed: Nobody: there is nobody to shout at",
    ),
    "django_shop.py": (
        "worker: serving shop.tasks.report, ",
        "SUCCESSFUL: receipt of 12.50 to ada@example.com from acme",
        "refused with 422; orders: 1",
        "SUCCESSFUL: report of may, attempt 1",
        "FAILED: ValueError: there is no such month",
        "worker: stopped",
    ),
    "alembic_shop.py": ("succeeded: shipped 1",),
    "fastapi_app.py": (
        "202 {'status': 'succeeded', 'receipt': 'receipt of order 7'}",
        "refused: There is no tenant 'nobody'",
    ),
    "flask_app.py": (
        "202 {'receipt': 'receipt of order 7', 'status': 'succeeded'}",
        "refused: 404 tenant_unknown",
    ),
    "encrypt_secrets.py": (
        "shown: {'api_key': '[redacted]', 'customer': 'ada'}",
        "stored: sealed:1:",
        "{'customer': 'ada', 'characters': 28, 'charged_with': '[redacted]'}",
    ),
    "second_factor.py": (
        "with the password: 200",
        "set up, with 10 recovery codes",
        "with the password: 401 second_factor_required",
        "with a recovery code: 200",
        "with the same again: 401 second_factor_required",
        "recovery codes left: 9",
    ),
    "tokens.py": (
        "jobs: 200",
        "events: 403 forbidden",
        "jobs, from elsewhere: 403 address_not_allowed",
        "after the rotation: 200",
        "allow-list: ['10.0.0.0/8']",
        "the admin, from elsewhere: 403 address_not_allowed",
        "a list without the admin: address_list_excludes_you",
    ),
    "secret_reference.py": (
        "{'customer': 'ada', 'characters': 28, 'charged_with': '[redacted]'}",
        "stored: {'api_key': {'$secret': 'stripe'}, 'customer': 'ada'}",
        "SecretMissing: a secret of the payload is not available: this worker has no secret paypal: add [secrets.paypal]",
        "refused with payload_invalid: ",
    ),
    "sqlmodel_app.py": ("committed: sent invoice 1", "rolled back: There is no job ", " Invoices: 1"),
    "join_django.py": ("committed: the job is queued", "rolled back: There is no job "),
    "join_psycopg.py": ("committed: the job is queued", "rolled back: the job is None"),
    "join_sqlalchemy.py": ("committed: the job is queued", "rolled back: There is no job "),
    "live_updates.py": ("job.created example.cheer", "job_run.completed example.cheer"),
    "middleware.py": (
        "charging 5 for request-1\n",
        "charging -1 for request-1\n",
        "captured in request-1: Fatal of example.charge\n",
    ),
    "oidc_sign_in.py": (
        "button: True\n",
        "user:ada@example.com is operator of example, and goes to /console/jobs\n",
        "user:ada@example.com is tenant_admin of example, and goes to /console/jobs\n",
        "refused: Your account at Example Corp has no role here.",
        "only way to sign in: True\n",
    ),
    "mount_api.py": (
        "ready: ready",
        "described at /fairlead/api/v1/docs: Fairlead /fairlead",
        "without a token: 401 unauthenticated",
        "the console: 303 to /fairlead/console/sign-in?next=%2Fjobs",
    ),
    "mcp_client.py": (
        "all tools only read: True",
        "no_worker: No worker is running",
        '{"code":"writes_disabled",',
    ),
    "nats_engine.py": ("{'image': 'cat.png', 'attempt': 1}",),
    "onboarding.py": (
        "creating the account of ada@example.com\nafter the first step the job is queued\n",
        "mail to ada@example.com: welcome, Ada\naccount-7 is ready, with 9 entries\n",
    ),
    "order_saga.py": (
        "order 0 is on its way\n",
        "reserved car\ngave back the reservation of car\norder 1 was canceled: card declined\n",
        "gave back the charge of order 2\ngave back the reservation of piano\norder 2 was canceled: the carrier ",
    ),
    "own_loop.py": (
        "cat.png is succeeded: {'made': 3, 'image': 'cat.png'}",
        "dog.png is failed: Failed: there is nothing to do",
        "eel.png is canceled: no output",
    ),
    "periodic.py": (
        "count runs every 1 s, next at ",
        "refused with already_registered",
        "the one-shot ran",
        "it ran three times",
        "kept by the code: clean_up, next at ",
        "kept by the code: often, next at ",
    ),
    "plain_sql.py": (
        "refused with FL001 definition_unknown",
        "{'order': 1} is queued",
        "deduplicated: True, the same job: True",
    ),
    "recycling.py": (
        "2 processes have run jobs",
        " jobs have ended; --max-jobs is 10\n",
        "worker: the worker process ",
    ),
    "reported.py": (
        "event='signing in' ",
        "tenant='example'",
        "definition_key='example.sign_in'",
        "Sentry got the password [redacted] is wrong\n  of example.sign_in for example\n",
    ),
    "run_worker.py": (
        "worker: serving example.flaky, example.hello, ",
        "hello Ada, from attempt 1",
        "[True, 'worked at attempt 3', 'waited', True]",
        "is failed: Fatal: there is no such customer",
        "worker: ended with 0",
    ),
    "schedules.py": (
        "beat at 20",
        "example.beat  every second from 20",
        "No matching triggers.",
    ),
    "sqs_engine.py": ("{'image': 'cat.png', 'attempt': 1}",),
    "sync_app.py": (
        "refused with job_not_retryable",
        "canceled: canceled",
        "retried with another payload: {'month': '2026-03'} is queued",
        "done: report of 2026-03",
    ),
    "tested.py": (
        "test_bookshop.py::test_checking_out_sends_a_receipt PASSED",
        "5 passed",
    ),
    "traced.py": (
        "POST /orders\n  enqueue example.order\n    run example.order\n      charge the card\n",
        "\n      charge the card\n        enqueue example.receipt\n          run example.receipt\n",
    ),
    "quotas.py": (
        "refused with queue_full: 3 of 3 used",
        "each is failed: quota_exceeded",
        "queued_jobs: 4 of 1000000",
    ),
    "enqueue_options.py": (
        "nightly, page-1: at most 300 s",
        "the key of a job that has ended is still taken: True",
        "three edits, 1 job: page 3: a b c",
    ),
    "find_and_edit.py": (
        "nightly and eu: 3 jobs",
        "canceled for customer 1: 2, all jobs seen: True",
        "edited: 250, corrected",
        "invoice of 250 for customer 2",
        "refused with job_not_editable",
    ),
    "rates.py": (
        "6 mails in ",
        "imports of a customer one by one, in their order: True",
    ),
    "transactional_end.py": ("the job has its output: True", "paid 1 time, by attempt 2"),
    "labels.py": (
        "a worker with 4 slots used at most 3 of them",
        "No live worker has gpu=true, which example.train requires: 1 serves it without these labels.",
        "trained waves",
    ),
    "typescript.py": (
        "{ tenant: 'example', resized: 'cat.png' }",
        "log: resizing cat.png",
        "a.png, b.png, c.png",
        "failed: Fatal: there is no image",
        "refused with definition_unknown",
    ),
    "usage.py": (
        "3 runs, 2 succeeded, 1 retried, 18 cents",
        "starts_at,tenant,definition_key,runs,succeeded,",
        "this month: 0.18",
    ),
    "webhooks_in.py": (
        "'duplicate': False}",
        "'duplicate': True}",
        "forged: 401 webhook_unverified",
        "deployed: ['6dcb09b']",
    ),
    "webhooks.py": ("job.failed: example.import: Fatal: a.csv is empty", "removed "),
    "worker_over_http.py": (
        "worker: serving example.resize over HTTP",
        "{'thumbnail': 'small-a.png'}",
        "worker: ended with 0",
    ),
    "workflow_waits.py": (
        "invoice for order 7\nShip order 7?\nshipped, paid by ada\n",
        "invoice succeeded, paid succeeded, check succeeded, ship succeeded, rest running, thank waiting",
        "thank you\n{'thank': 'thank you'}\n",
    ),
    "workflow.py": (
        "create succeeded, index failed, welcome stopped",
        "of example.onboard is failed: index: Fatal: the shelf is full",
        "create succeeded, index succeeded, welcome succeeded",
        "Dear ada@example.com, we found your notes of 7 and letters of 7.",
    ),
}
# No plugins of pytest but those that a user of the example has.
PYTEST_ONLY = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "fairlead.pytest_plugin,pytest_asyncio.plugin",
}
# What an example needs beside Python: why it cannot have that here, and the variables with which it finds it.
NEEDS: dict[str, Callable[[], tuple[str | None, dict[str, str]]]] = {
    "bullmq_bridge.py": find_bullmq,
    "nats_engine.py": lambda: (NatsServer.find_missing(), {}),
    "sqs_engine.py": find_moto,
    "tested.py": lambda: (None, PYTEST_ONLY),
    "typescript.py": lambda: (None, {"NODE": typescript.require_build()}),
}
# What others import.
MODULES = {"bridged.py", "http_only.py", "node_worker.py", "oidc_provider.py", "worker_jobs.py"}


def run(name: str, cwd: Path, **env: str) -> str:
    """What the example prints; it must end well and warn of nothing."""
    argv = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = run_to_end(argv, env=environment(**env), cwd=cwd)
    # which database is used is told on stderr; nothing else may be
    # (and, in a copy of an old template, that the duties are late)
    told = [
        line
        for line in done.stderr.splitlines()
        if line and "using the " not in line and "check_changed" not in line
    ]
    assert (done.returncode, told) == (0, []), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def missing(name: str, output: str) -> list[str]:
    return [line for line in SAYS[name] if line not in output]


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(SAYS) | MODULES


def works(name: str, cwd: Path, database_url: str, *, times: int = 1) -> bool:
    why, more = NEEDS[name]() if name in NEEDS else (None, {})
    if why:
        pytest.skip(why)
    for _ in range(times):
        assert missing(name, run(name, cwd, FAIRLEAD_DATABASE_URL=database_url, **more)) == []
    return list(cwd.iterdir()) == []


@pytest.mark.thorough
def test_the_first_example_works_twice(database_url: str, tmp_path: Path) -> None:
    assert works(SMOKE, tmp_path, database_url, times=2)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(SAYS.keys() - {*LEAVES}))
def test_an_example_works(name: str, database_url: str, tmp_path: Path) -> None:
    assert works(name, tmp_path, database_url)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted({*LEAVES} - {SMOKE}))
def test_an_example_works_again_where_it_left_something(name: str, database_url: str, tmp_path: Path) -> None:
    assert works(name, tmp_path, database_url, times=2)


def test_the_first_example_needs_no_database_to_be_there(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for _ in range(2):
        assert missing("first_job.py", run("first_job.py", tmp_path, FAIRLEAD_DATA_DIR=str(data_dir))) == []
    assert list(tmp_path.iterdir()) == [data_dir]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["flask_app.py", "join_django.py", "sqlmodel_app.py", "sync_app.py"])
def test_a_worker_serves_a_synchronous_example_as_it_says(name: str, database_url: str) -> None:
    argv = f"fairlead worker {name.removesuffix('.py')}:fl"
    assert f"Its jobs are run by: {argv} (in this folder)" in (EXAMPLES / name).read_text("utf-8")
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([FAIRLEAD, *argv.split()[1:]], env=env, cwd=EXAMPLES) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving example.")


@each_case("name", sorted(SAYS.keys() | MODULES))
def test_an_example_says_how_to_run_it_and_is_short(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")

    assert name in MODULES or f"python examples/{name}" in text
    assert len(text.splitlines()) < 60
