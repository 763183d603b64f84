"""A plugin of pytest that tries versions of stored functions, each in the databases of this test process: see run.py.

First it runs each test that it does not know yet, and writes which stored functions it calls: PostgreSQL counts them. Then it
gives the databases one version after the other, and runs the tests that call its function until one of them fails. That test
must pass again with the function as it is, and fail once more with the version: else it is left out from then on.
"""

import gc
import os
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from fairlead.db.scratch import replace_database
from fairlead.db.sql import in_schema, include_queries
from fairlead.db.statements import split_statements
from fairlead.db.tx import Tx
from tests import sessions
from tests.databases import Databases
from tests.restoring import OBJECTS

# A file with the Order.
ORDER = "MUTANTS_ORDER"
# A test that fails without the version, too, begins its finding so.
UNSURE = "unsure: "
# A test that takes this much longer than it should, in seconds, waits for ever.
PATIENCE, PATIENCE_TIMES = 30.0, 10.0
# With more tests that fail for another reason, the process ends: something is broken in it.
MOST_DOUBTED = 3
# The calls are saved after so many tests.
SAVED = 50
SHARED, TEMPLATE, MIGRATED = "shared", "fairlead_template", "migrated"
FLUSH = b"select pg_stat_force_next_flush()"
# PostgreSQL counts no function that it inlines, and inlines none that has settings.
KEEP_CALLS = """
do $$
declare
    one regprocedure;
begin
    for one in select p.oid from pg_proc p join pg_language l on l.oid = p.prolang
            where p.pronamespace = 'fairlead'::regnamespace and l.lanname = 'sql' loop
        execute format('alter function %s {} plan_cache_mode {}', one);
    end loop;
end
$$
"""
LIST_DATABASES = "select datname from pg_database where datname = 'shared' or datname like 'test\\_%'"
LIST_CALLS = "select funcname, sum(calls)::bigint from pg_stat_user_functions group by funcname"


class Call(msgspec.Struct, frozen=True):
    """How long a test takes, and which stored functions it calls."""

    seconds: float
    functions: tuple[str, ...]


class Trial(msgspec.Struct, frozen=True):
    """A version of a function to try."""

    name: str
    function: str
    source: str
    text: str


class Order(msgspec.Struct, frozen=True):
    """What this run shall do: its files, and the versions."""

    calls: str
    results: str
    trials: tuple[Trial, ...]
    # a version that the tests of so many seconds do not see, shortest first, has survived
    most_seconds: float


class Result(msgspec.Struct, frozen=True):
    """The test that failed with a version, or none; and how many passed before it."""

    name: str
    finding: str
    passed: int


class Trials:
    """Runs the tests in its own order."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.server = ""
        self.databases: Databases | None = None
        self.failed = ""
        self.seconds = 0.0
        self.counts: dict[tuple[str, str], int] = {}
        # how many versions each test has seen: those that saw some come earlier, beside short ones
        self.catches: Counter[str] = Counter()
        # tests that failed for another reason than a version
        self.doubted: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Keep what the trials need."""
        value = yield
        if fixturedef.argname == "server":
            self.server = str(value)
            self._execute("postgres", "alter system set track_functions = 'all'", "select pg_reload_conf()")
        if fixturedef.argname == "databases":
            self.databases = value
        return value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Function) -> Generator[None, None, None]:
        """Let the session of the shared database tell its counts: it stays open."""
        tx = item.funcargs.get("tx")
        if isinstance(tx, Tx) and not tx.connection.pgconn.pipeline_status:
            for statement in (b"rollback", FLUSH, b"begin"):
                tx.connection.pgconn.exec_(statement)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid}: {_last_line(report.longreprtext)}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if isinstance(item, pytest.Function)]
        self._warm_up(items)
        calls = self._count(items)
        by_name = {item.nodeid: item for item in items}
        for trial in self.order.trials:
            chosen = [
                (by_name[name], call.seconds)
                for name, call in calls.items()
                if trial.function in call.functions and name in by_name
            ]
            chosen.sort(key=lambda one: one[1] / (1 + 10 * self.catches[one[0].nodeid]))
            result = self._try(trial, chosen)
            with Path(self.order.results).open("ab") as file:
                file.write(msgspec.json.encode(result) + b"\n")
            if result.finding.startswith(UNSURE):
                break
        return True

    def _warm_up(self, items: list[pytest.Function]) -> None:
        """Make what all tests share while the functions are as they are."""
        for name in ("tx", "database_url"):
            self._run(next(item for item in items if name in item.fixturenames))

    def _count(self, items: list[pytest.Function]) -> dict[str, Call]:
        """Which functions each test calls. Those that fail are left out."""
        file = Path(self.order.calls)
        known = msgspec.json.decode(file.read_bytes(), type=dict[str, Call]) if file.exists() else {}
        new = [item for item in items if item.nodeid not in known]
        if not new:
            return known
        self._change("", KEEP_CALLS.format("set", "= auto"))
        missed = []
        self._list_called()
        for item in new:
            passed = self._run(item)
            call = Call(round(self.seconds, 2), tuple(sorted(self._list_called())))
            if passed:
                known[item.nodeid] = call
            else:  # perhaps it looks at plans
                missed.append((item, call))
            if len(known) % SAVED == 0:
                file.write_bytes(msgspec.json.encode(known))
        self._change("", KEEP_CALLS.format("reset", ""))
        known.update((item.nodeid, call) for item, call in missed if self._run(item))
        file.write_bytes(msgspec.json.encode(known))
        return known

    def _list_called(self) -> set[str]:
        """The functions that were called since it was asked last."""
        called = set()
        with psycopg.connect(self.server, autocommit=True) as connection:
            databases = connection.execute(LIST_DATABASES).fetchall()
        for (database,) in databases:
            with psycopg.connect(replace_database(self.server, database), autocommit=True) as connection:
                for name, number in connection.execute(LIST_CALLS):
                    if self.counts.get((database, name)) != number:
                        called.add(name)
                    self.counts[database, name] = number
        return called

    def _try(self, trial: Trial, chosen: list[tuple[pytest.Function, float]]) -> Result:
        """Run these tests until one fails that passes with the function as it is."""
        self._change(trial.function, trial.text)
        passed, spent, finding = 0, 0.0, ""
        for item, seconds in chosen:
            spent += seconds
            if spent > self.order.most_seconds or item.nodeid in self.doubted:
                continue
            item.add_marker(pytest.mark.timeout(PATIENCE + PATIENCE_TIMES * seconds))
            if self._run(item):
                passed += 1
                continue
            finding = self.failed
            self._change(trial.function, trial.source)
            gc.collect()
            is_sound = self._run(item)
            self._change(trial.function, trial.text)
            if is_sound and not self._run(item):
                self._change(trial.function, trial.source)
                self.catches[item.nodeid] += 1
                return Result(trial.name, finding, passed)
            self.doubted.add(item.nodeid)
            if len(self.doubted) > MOST_DOUBTED:
                return Result(trial.name, f"{UNSURE}{finding}", passed)
        self._change(trial.function, trial.source)
        return Result(trial.name, "", passed)

    def _run(self, item: pytest.Function) -> bool:
        """Whether the test passes, with all fixtures of its own and of its module anew."""
        self.failed, self.seconds = "", 0.0
        item._initrequest()
        # what follows has only the fixtures of the session in common with it
        item.ihook.pytest_runtest_protocol(item=item, nextitem=item.session)
        return not self.failed

    def _change(self, function: str, text: str) -> None:
        """Run the first statement of a file in the databases that tests copy and share."""
        assert self.databases is not None
        statement = (
            str(in_schema(next(split_statements(include_queries(text))), "fairlead")) if function else text
        )
        original = self.databases._original
        assert original is not None
        for name in (MIGRATED, SHARED):
            self._execute(name, statement)
        original.objects = self._execute(TEMPLATE, statement, OBJECTS)
        for name, copy in self.databases._copies.items():
            # one that a test has changed, or broken, is not lent again
            with suppress(psycopg.Error):
                if self._execute(name, OBJECTS) == copy._objects:
                    copy._objects = self._execute(name, statement, OBJECTS)

    def _execute(self, database: str, *statements: str) -> Any:
        """What the last statement answers, if it asks."""
        with psycopg.connect(replace_database(self.server, database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall()[0][0] if cursor.description else None


def _last_line(text: str) -> str:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (errors or text.splitlines() or [""])[0][:300]


def pytest_configure(config: pytest.Config) -> None:
    order = msgspec.json.decode(Path(os.environ[ORDER]).read_bytes(), type=Order)
    config.pluginmanager.register(Trials(order))
    reset = sessions._reset

    def reset_and_flush(line: psycopg.pq.abc.PGconn) -> bool:
        """A session that is kept tells its counts now, and not in ten seconds."""
        return reset(line) and sessions._run(line, FLUSH)

    sessions._reset = reset_and_flush
