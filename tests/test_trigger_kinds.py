"""The kinds of triggers: each is in the table of every floor, and each face has every field."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

import fairlead
from fairlead.actions import preview
from fairlead.cli.triggers import add, change
from fairlead.errors import TriggerFormInvalid, TriggerInvalid
from fairlead.model.trigger import TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import KINDS, find_type, list_replaced_fields
from fairlead.model.trigger_spec import list_refusals, parse_request
from fairlead.runtime.trigger_loops import LOOPS
from fairlead.server.console.trigger_form import FORMS, NAMES
from fairlead.server.rest.triggers import PreviewBody, TriggerBody, TriggerPatch
from tests.tables import each_case

FIELDS = set(TriggerRequest.__struct_fields__)
NIGHTLY = {"label": "x", "trigger_type": "schedule", "definition_key": "k", "cron_expr": "@daily"}
MACROS = ("fields", "options", "example", "roots", "tried", "facts", "more_facts", "comes_next", "not_fired")


@each_case("table", [KINDS, preview._PREVIEWS, FORMS])
def test_every_kind_is_in_the_table_of_every_floor(table: Any) -> None:
    assert set(table) == set(TriggerType)
    assert set(LOOPS) <= set(TriggerType)  # a route may fire a kind, too


@each_case("kind", TriggerType)
def test_every_kind_has_its_part_of_each_page(kind: TriggerType) -> None:
    folder = Path(fairlead.__file__).parent / "server/console"
    template = (folder / f"templates/trigger_kinds/{kind}.html").read_text()
    assert [name for name in MACROS if f"macro {name}(" not in template] == []
    hidden = f".studio:not(:has(#kind-{kind}:checked)) .for-{kind}"
    assert hidden in (folder / "static/triggers.css").read_text()


def test_every_kind_names_itself_and_fields_that_no_other_kind_has() -> None:
    own = [name for kind in KINDS.values() for name in kind.fields]

    assert [kind.trigger_type for kind in KINDS.values()] == list(KINDS)
    assert len(own) == len(set(own))
    assert set(own) <= FIELDS
    assert all(set(kind.defaults) <= FIELDS for kind in KINDS.values())


@each_case("kind", TriggerType)
def test_a_field_of_another_kind_is_refused(kind: TriggerType) -> None:
    form = next(iter(KINDS[kind].forms))
    foreign = {"event_name": "a.b", "filter": {"a": 1}, "cron_expr": "@daily", "every_seconds": 1}
    foreign |= {"timezone": "UTC", "start_at": datetime(2026, 1, 1, tzinfo=UTC), "catch_up": "all"}
    for name in foreign.keys() - set(KINDS[kind].fields):
        document = {**NIGHTLY, "cron_expr": None, "trigger_type": kind, form: foreign[form]}
        with pytest.raises(TriggerFormInvalid):
            parse_request({**document, name: foreign[name]})


def test_each_face_has_every_field() -> None:
    chosen = {"trigger_type", "is_enabled"}  # the command line has other options for these
    for command in (add, change):
        options = {one.name for one in command.params if isinstance(one, click.Option)}
        assert options >= FIELDS - chosen
    assert set(NAMES) >= FIELDS
    for body in (TriggerBody, TriggerPatch, PreviewBody):
        assert body.model_json_schema()["properties"].keys() >= FIELDS


@each_case(
    ("name", "value", "message"),
    [
        ("label", "", "must be text of 1 to 200 characters"),
        ("label", "x" * 201, "must be text of 1 to 200 characters"),
        ("label", "\x00", "must be text of 1 to 200 characters"),
        ("cron_expr", 5, "must be text of 1 to 200 characters"),
        ("event_name", 5, "must be text"),
        ("is_enabled", 1, "must be true or false"),
        ("every_seconds", True, "must be an integer"),
        ("every_seconds", "60", "must be an integer"),
        ("start_at", "soon", "must be a time such as 2026-02-16T10:30:00Z"),
        ("start_at", "1700000000", "must be a time such as 2026-02-16T10:30:00Z"),
        ("dedupe_window_seconds", 2_592_001, "must be an integer between 0 and 2592000 (30 days)"),
        ("trigger_type", "webhook", "must be event or schedule"),
        ("catch_up", "never", "must be skip or one or all"),
        ("owner", "me", "unknown field"),
        ("label", None, "is required"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_send(name: str, value: Any, message: str) -> None:
    with pytest.raises(TriggerInvalid) as refused:
        parse_request({**NIGHTLY, name: value})

    assert [tuple(fault) for fault in refused.value.faults] == [(name, message)]


def test_values_are_read_as_their_types() -> None:
    asked = parse_request(
        {**NIGHTLY, "cron_expr": None, "every_seconds": 5, "start_at": "2026-02-16T10:30:00+01:00"}
    )

    assert asked.trigger_type is TriggerType.SCHEDULE
    assert asked.start_at == datetime(2026, 2, 16, 9, 30, tzinfo=UTC)


def test_a_form_is_told_of_every_fault_at_once() -> None:
    document = {"label": "", "trigger_type": "schedule", "cron_expr": "x", "payload_template": {"a": "{{b}}"}}

    codes = [one.code for one in list_refusals(document, "UTC")]

    assert codes == ["trigger_invalid", "template_invalid", "cron_invalid"]
    assert list(list_refusals(NIGHTLY, "UTC")) == []


def test_the_type_follows_from_the_fields() -> None:
    assert find_type({"event_name": "a.b"}) is TriggerType.EVENT
    assert find_type({"event_name": None, "every_seconds": 0}) is TriggerType.SCHEDULE
    assert find_type({}) is TriggerType.SCHEDULE


def test_a_new_form_replaces_the_fields_of_the_other_one() -> None:
    assert list_replaced_fields(["cron_expr", "label"]) == {"every_seconds", "start_at"}
    assert list_replaced_fields(["every_seconds"]) == {"cron_expr", "timezone"}
    assert list_replaced_fields(["label", "event_name"]) == set()
