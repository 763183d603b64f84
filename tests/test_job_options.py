"""The options of a job, and the filters of lists, have one name in the library, over HTTP and on the command line."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from fairlead import Fairlead, NewJob
from fairlead.actions.jobs import JobFilter
from fairlead.cli.jobs import jobs as commands
from fairlead.model.job import EDITABLE, OPTIONS, Source
from fairlead.server.rest.jobs import EditBody, FilterQuery, JobBody
from fairlead.server.views import Body
from tests.tables import each_case

# Filters that no face of one tenant needs: the command line is for all tenants.
OF_ALL_TENANTS = {"tenant"}
# `fairlead jobs retry` has a payload of its own, for the job that it runs again; there the filter is only --where.
TAKEN = {("retry", "--payload")}


def options_of(command: str) -> set[str]:
    """The options and arguments of `fairlead jobs COMMAND`."""
    params = commands.commands[command].params
    return {name for param in params for name in param.opts}


def as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def names_of(body: type[Body]) -> set[str]:
    """The fields of a body, by every name that it accepts."""
    aliases = [getattr(one.validation_alias, "choices", ()) for one in body.model_fields.values()]
    return {*body.model_fields, *(str(name) for choices in aliases for name in choices)}


@each_case(
    ("command", "options", "body", "method"),
    [("enqueue", OPTIONS, JobBody, Fairlead.enqueue), ("edit", EDITABLE, EditBody, Fairlead.edit)],
)
def test_an_option_of_a_job_has_one_name_everywhere(
    command: str, options: dict[str, Any], body: type[Body], method: Any
) -> None:
    names = {"payload", *options}

    assert names - names_of(body) == set()
    assert names - inspect.signature(method).parameters.keys() == set()
    assert {as_option(name) for name in options} - options_of(command) == set()


@each_case("command", ["list", "cancel", "retry"])
def test_a_filter_has_one_name_everywhere(command: str) -> None:
    names = set(JobFilter.__struct_fields__)

    assert set(FilterQuery.model_fields) - {"definition"} == names - OF_ALL_TENANTS
    options = {as_option(name) for name in names if (command, as_option(name)) not in TAKEN}
    assert options - options_of(command) == set()


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


@each_case("name", sorted(set(NewJob.__struct_fields__) - {"definition", "tenant", "payload", "id"}))
def test_a_job_with_an_option_is_not_plain(name: str) -> None:
    assert NewJob(definition="a", tenant="b").plain
    assert not NewJob(definition="a", tenant="b", **{name: VALUES.get(name, "text")}).plain
