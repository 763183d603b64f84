"""Events as they come in: in our own words, and as CloudEvents."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.errors import EventInvalid, EventReserved
from fairlead.model.event import NewEvent, check_event, find_name_fault, from_cloud_event, is_cloud_event
from tests.tables import each_case

CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/mycontext",
    "type": "com.example.someevent",
    "time": "2018-04-05T17:31:00Z",
    "subject": "folder/7",
    "datacontenttype": "application/json",
    "comexampleextension1": "value",
    "data": {"provider_id": "p1", "n": 3},
}


def new(**fields: Any) -> NewEvent:
    return NewEvent(**{"name": "provider.folder.updated", "tenant": "acme", "data": {}, **fields})


def paths(refusal: pytest.ExceptionInfo[EventInvalid]) -> set[str]:
    return {fault.path for fault in refusal.value.faults}


@each_case("name", ["provider.folder.updated", "a", "com.example/x:y@1+2", "A" * 255])
def test_a_name_is_free_text_of_a_pattern(name: str) -> None:
    assert find_name_fault(name) is None
    assert check_event(new(name=name)).name == name


@each_case("name", ["", "1a", ".a", "a b", "ä", "a\n", "a" * 256, None, 7])
def test_a_name_beside_the_pattern_is_refused(name: Any) -> None:
    with pytest.raises(EventInvalid) as refusal:
        check_event(new(name=name))
    assert paths(refusal) == {"name"}


@each_case("name", ["job.failed", "job.", "workflow.x", "usage.recorded"])
def test_what_the_system_tells_of_is_not_for_others_to_tell(name: str) -> None:
    with pytest.raises(EventReserved):
        check_event(new(name=name))
    with pytest.raises(EventReserved):
        from_cloud_event({**CLOUD, "type": name}, tenant="acme")


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(EventInvalid) as refusal:
        check_event(new(name="", data=[1], correlation_id="", occurred_at=datetime(2026, 1, 1)))
    assert paths(refusal) == {"name", "data", "correlation_id", "occurred_at"}


@each_case("correlation_id", ["x" * 10_000, "\x00", "\ud800"])
def test_a_correlation_id_that_cannot_be_kept_is_refused(correlation_id: str) -> None:
    with pytest.raises(EventInvalid) as refusal:
        check_event(new(correlation_id=correlation_id))
    assert paths(refusal) == {"correlation_id"}


def test_a_body_that_says_so_is_a_cloud_event() -> None:
    assert is_cloud_event(CLOUD)
    assert not is_cloud_event({"name": "x", "data": {}})
    assert not is_cloud_event([CLOUD])


def test_a_cloud_event_is_read_with_all_that_stands_beside_its_data() -> None:
    event = from_cloud_event({**CLOUD, "correlationid": "trace-7"}, tenant="acme")

    assert (event.name, event.tenant, event.correlation_id) == ("com.example.someevent", "acme", "trace-7")
    assert event.occurred_at == datetime(2018, 4, 5, 17, 31, tzinfo=UTC)
    assert (event.data["provider_id"], event.data["n"]) == ("p1", 3)
    assert event.data["cloudevent"]["source"] == "/mycontext"
    assert event.data["cloudevent"]["id"] == "A234-1234-1234"
    assert event.data["cloudevent"]["subject"] == "folder/7"
    assert event.data["cloudevent"]["comexampleextension1"] == "value"
    assert "data" not in event.data["cloudevent"]


def test_data_of_its_own_called_cloudevent_is_left_alone() -> None:
    event = from_cloud_event({**CLOUD, "data": {"cloudevent": "mine"}}, tenant="acme")

    assert event.data == {"cloudevent": "mine"}


def test_the_least_that_a_cloud_event_has_is_enough() -> None:
    least = {name: CLOUD[name] for name in ("specversion", "id", "source", "type")}

    event = from_cloud_event(least, tenant="acme")

    assert event.data == {"cloudevent": least}
    assert event.occurred_at is None


def test_null_is_as_if_it_were_left_out() -> None:
    """As the JSON format of CloudEvents demands (2.2)."""
    least = {name: CLOUD[name] for name in ("specversion", "id", "source", "type")}
    nulls = dict.fromkeys(("subject", "time", "datacontenttype", "data", "data_base64", "correlationid", "x"))

    event = from_cloud_event({**least, **nulls}, tenant="acme")

    assert event.data == {"cloudevent": least}
    assert (event.occurred_at, event.correlation_id) == (None, None)


@each_case("kind", ["application/json; charset=utf-8", "application/vnd.x+json", "Application/JSON"])
def test_every_kind_of_json_is_taken(kind: str) -> None:
    assert from_cloud_event({**CLOUD, "datacontenttype": kind}, tenant="acme").data["n"] == 3


@each_case(
    ("field", "value"),
    [
        ("specversion", "0.3"),
        ("specversion", None),
        ("specversion", 1.0),
        ("id", ""),
        ("id", None),
        ("source", 7),
        ("type", None),
        ("data", "text"),
        ("data", [1]),
        ("data_base64", "AAAA"),
        ("datacontenttype", "text/xml"),
        ("time", "yesterday"),
        ("time", 7),
    ],
)
def test_what_cannot_be_taken_of_a_cloud_event_is_named(field: str, value: Any) -> None:
    with pytest.raises(EventInvalid) as refusal:
        from_cloud_event({**CLOUD, field: value}, tenant="acme")
    assert paths(refusal) == {field}


def test_a_cloud_event_whose_type_is_no_name_of_ours_is_refused() -> None:
    with pytest.raises(EventInvalid) as refusal:
        from_cloud_event({**CLOUD, "type": "with space"}, tenant="acme")
    assert paths(refusal) == {"name"}
