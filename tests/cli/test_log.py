"""The log of a command: a line for each thing that happens, without values of variables and what matches a pattern."""

import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog

from fairlead.cli import log
from fairlead.cli.session import CommandSession
from tests.processes import FAIRLEAD, started, until
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]
APP = "tests.acceptance.jobs_under_test:fl"


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    kept = logging.lastResort
    yield
    logging.lastResort = kept


def fails(payload: dict[str, str]) -> None:
    try:
        int("sk-abc")
    except ValueError:
        structlog.get_logger("test").exception("it_failed", token="sk-abc", said=["with sk-abc"])  # noqa: S106


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_is_logged_without_what_its_variables_hold(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_LOG_FORMAT", form)
    monkeypatch.setenv("FAIRLEAD_REDACT_PATTERNS", "sk-[a-z]+")
    log.set_up(logging.INFO, CommandSession({}))

    fails({"token": "canary"})

    written = capsys.readouterr().err
    assert "canary" not in written.replace('fails({"token"', "")
    assert "ValueError" in written
    assert "[redacted]" in written
    assert "sk-abc" not in written
    if form == "json":
        assert json.loads(written)["token"] == "[redacted]"  # noqa: S105


@pytest.mark.parametrize("form", ["console", "json"])
def test_what_libraries_log_is_written_as_what_we_log_in_a_line_each(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_LOG_FORMAT", form)
    log.set_up(logging.WARNING, CommandSession({}))
    monkeypatch.setattr(logging.root, "handlers", [])  # but those of the tests

    logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "fairlead", "FATAL\nDETAIL: gone")
    logging.getLogger("psycopg.pool").info("not of this level")
    structlog.get_logger("ours").warning("listen_lost", why="FATAL\nDETAIL: gone")

    first, second = capsys.readouterr().err.splitlines()
    if form == "json":
        told = json.loads(first)
        assert (told["logger"], told["level"]) == ("psycopg.pool", "warning")
        assert told["event"] == "error connecting in 'fairlead': FATAL\nDETAIL: gone"
    else:
        assert "warning" in first
        assert "error connecting in 'fairlead': FATAL DETAIL: gone" in first
        assert "why=FATAL DETAIL: gone" in " ".join(second.replace("'", "").split())


def test_an_application_that_sets_up_logging_itself_has_its_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up(logging.WARNING, CommandSession({}))
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.basicConfig(format="mine: %(message)s", stream=sys.stderr)

    logging.getLogger("psycopg.pool").warning("gone")

    assert capsys.readouterr().err == "mine: gone\n"


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_are_for_a_terminal_whose_user_has_not_declined_them(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    terminal: bool,
    no_color: str,
    coloured: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    log.set_up(logging.WARNING, CommandSession({}))

    structlog.get_logger("ours").warning("something", why="x")

    assert ("\x1b[" in capsys.readouterr().err) is coloured


LISTENING = (
    "select 1 from pg_stat_activity "
    "where application_name = 'fairlead listen' and query like 'listen%' and datname = current_database()"
)
CUT_ALL = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where application_name ~ '^fairlead' and datname = current_database()"
)


@pytest.mark.parametrize(
    "argv",
    [("worker", APP), ("serve", "--port", "0", "--scheduler"), ("scheduler",)],
    ids=lambda argv: argv[0],
)
def test_a_log_for_machines_is_an_object_a_line_whatever_happens(
    database_url: str, argv: tuple[str, ...]
) -> None:
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_LOG_FORMAT": "json",
        "FAIRLEAD_POLL_SECONDS": "0.1",
        "PYTHONUNBUFFERED": "1",
    }
    with started([FAIRLEAD, *argv], env=env, cwd=ROOT) as process:
        lines = Lines(process.stdout)
        lines.until(lambda line: line["event"] in ("serving", "scheduling"))
        with psycopg.connect(database_url, autocommit=True) as connection:
            until(lambda: connection.execute(LISTENING).fetchone(), "it to be up")
            connection.execute(CUT_ALL)
        lines.until(lambda line: line.get("logger") == "psycopg.pool" or line["event"] == "listen_lost")
        process.send_signal(signal.SIGTERM)
        lines.until(lambda line: line["event"] == "stopped")
        assert process.wait(SECONDS) == 0


def test_a_refusal_at_the_start_is_one_too(database_url: str) -> None:
    env = {"FAIRLEAD_LOG_FORMAT": "json", "FAIRLEAD_DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    with started([FAIRLEAD, "scheduler"], env=env) as process:
        said, _ = process.communicate(timeout=SECONDS)
    assert json.loads(said)["code"] == "database_unreachable"


class Lines:
    """The objects that a process writes, one a line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def until(self, wanted: Callable[[dict[str, Any]], object]) -> None:
        for line in self._stream:
            if wanted(json.loads(line)):
                return
        raise AssertionError("it ended before it said so")
