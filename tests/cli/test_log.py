"""The log of a command shows no values of variables, and nothing that matches a pattern."""

import json
import logging

import pytest
import structlog

from fairlead.cli import log
from fairlead.cli.session import Session


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
    log.set_up(logging.INFO, Session({}))

    fails({"token": "canary"})

    written = capsys.readouterr().err
    assert "canary" not in written.replace('fails({"token"', "")
    assert "ValueError" in written
    assert "[redacted]" in written
    assert "sk-abc" not in written
    if form == "json":
        assert json.loads(written)["token"] == "[redacted]"  # noqa: S105
