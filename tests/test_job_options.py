"""The options of a job, and the filters of lists, are the same in the library, over HTTP and on the command line."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import click
import pytest

from fairlead import Fairlead, NewJob
from fairlead.actions.jobs import JobFilter
from fairlead.cli.jobs import jobs as commands
from fairlead.cli.option_names import FIELDS
from fairlead.model.job import OPTIONS, Source
from fairlead.server.rest.jobs import FilterQuery, JobBody

# The names that differ from the request's.
IN_THE_API = {"definition": "definition_key", "delay": "delay_seconds"}
# Filters that no face of one tenant needs: the command line is for all tenants.
OF_ALL_TENANTS = {"tenant"}
# `fairlead jobs retry` has a payload of its own, for the job that it runs again.
ON_THE_COMMAND_LINE = {"payload": "payload_values", "status": "statuses"}


def options_of(command: str) -> set[str]:
    """The fields that the options and arguments of `fairlead jobs COMMAND` set."""
    params = commands.commands[command].params
    found = {str(param.name) for param in params if param.name not in ("as_json", "file")}
    longest = {
        max(param.opts, key=len).removeprefix("--") for param in params if isinstance(param, click.Option)
    }
    return found | {FIELDS[name] for name in longest if name in FIELDS}


def test_every_option_of_a_job_can_be_set_everywhere() -> None:
    settable = {"definition", "payload", *OPTIONS}

    assert set(JobBody.model_fields) == {IN_THE_API.get(name, name) for name in settable}
    assert settable - options_of("enqueue") == set()
    assert settable - set(inspect.signature(Fairlead.enqueue).parameters) == set()


@pytest.mark.parametrize("command", ["list", "cancel", "retry"])
def test_every_filter_of_the_api_is_an_option_of_the_command_line(command: str) -> None:
    filters = set(FilterQuery.model_fields) - {"definition"}

    assert filters == set(JobFilter.__struct_fields__) - OF_ALL_TENANTS
    named = {ON_THE_COMMAND_LINE.get(name, name) for name in filters | OF_ALL_TENANTS}
    assert named - options_of(command) == set()


VALUES: dict[str, Any] = {
    "priority": 1,
    "scheduled_for": datetime(2030, 1, 1, tzinfo=UTC),
    "delay": timedelta(seconds=1),
    "max_attempts": 1,
    "source": Source.EVENT,
    "parent_id": uuid4(),
    "host_id": uuid4(),
    "resource_id": uuid4(),
}


@pytest.mark.parametrize(
    "name", sorted(set(NewJob.__struct_fields__) - {"definition", "tenant", "payload", "id"})
)
def test_a_job_with_an_option_is_not_plain(name: str) -> None:
    assert NewJob(definition="a", tenant="b").plain
    assert not NewJob(definition="a", tenant="b", **{name: VALUES.get(name, "text")}).plain
