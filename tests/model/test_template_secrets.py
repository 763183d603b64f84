"""What of a template may be shown, and which fields of an event are secrets because of it."""

from typing import Any

from fairlead.model.secrets.redact import MASK, mask_paths, restore_masked
from fairlead.model.template.secrets import find_secret_fields, mask_filter, mask_template
from fairlead.model.trigger_kinds.event import EventKind
from tests.tables import each_case

PATHS = ["/password", "/smtp/key", "/users/*/token"]


@each_case(
    ("template", "shown", "fields"),
    [
        ({"password": "p", "note": "n"}, {"password": MASK, "note": "n"}, []),
        ({"password": 1}, {"password": MASK}, []),
        ({"password": "{{event.a.b}}"}, {"password": "{{event.a.b}}"}, ["/a/b"]),
        ({"password": "{{meta.event_id}}"}, {"password": "{{meta.event_id}}"}, []),
        ({"password": "x{{event.a}}"}, {"password": MASK}, ["/a"]),
        ({"password": '{{event.a | default: "p"}}'}, {"password": MASK}, ["/a"]),
        ({"password": {"x": ["{{event.a}}", "{{event.b}}"]}}, {"password": MASK}, ["/a", "/b"]),
        ({"smtp": {"key": "k", "host": "h"}}, {"smtp": {"key": MASK, "host": "h"}}, []),
        ({"smtp": "{{event.smtp}}"}, {"smtp": "{{event.smtp}}"}, ["/smtp/key"]),
        ({"smtp": '{{event.smtp | default: {"key": "k"}}}'}, {"smtp": MASK}, ["/smtp/key"]),
        ({"smtp": "k"}, {"smtp": MASK}, []),
        ({"smtp": 1}, {"smtp": 1}, []),
        ({"users": "{{event.all}}"}, {"users": "{{event.all}}"}, ["/all/*/token"]),
        (
            {"users": [{"token": "t"}, "{{event.u}}"]},
            {"users": [{"token": MASK}, "{{event.u}}"]},
            ["/u/token"],
        ),
        ("{{event}}", "{{event}}", ["/password", "/smtp/key", "/users/*/token"]),
        ({"password": "{{event}}"}, {"password": "{{event}}"}, [""]),
        ({"note": "{{event.password}}"}, {"note": "{{event.password}}"}, []),
    ],
)
def test_a_template_shows_where_secrets_come_from_and_never_what_they_are(
    template: Any, shown: Any, fields: list[str]
) -> None:
    assert mask_template(template, PATHS) == shown
    assert find_secret_fields(template, PATHS, EventKind().roots) == fields
    assert restore_masked(shown, template, shown) == template, "sent back as it was shown, it stays as it is"


def test_a_template_without_secrets_is_shown_as_it_is() -> None:
    template = {"a": "{{event.a}}", "password": "p"}

    assert mask_template(template, []) == template
    assert find_secret_fields(template, [], EventKind().roots) == []


def test_where_everything_may_be_a_secret_all_of_the_template_is_hidden_and_all_of_its_event() -> None:
    fields = find_secret_fields("{{event}}", ["/**"], EventKind().roots)

    assert mask_template({"a": 1, "b": "{{event.b}}"}, ["/**"]) == MASK
    assert mask_paths({"a": 1, "b": {"c": 2}}, fields) == MASK


@each_case(
    ("filtered", "shown"),
    [
        ({"token": "t", "kind": "a"}, {"token": MASK, "kind": "a"}),
        (
            {"token": {"prefix": "t", "exists": True, "in": ["t"]}},
            {"token": {"prefix": MASK, "exists": True, "in": MASK}},
        ),
        ({"token.inner": "t"}, {"token.inner": MASK}),
        ({"smtp": {"eq": {"key": "k"}}}, {"smtp": {"eq": MASK}}),
        ({"smtp.host": "h"}, {"smtp.host": "h"}),
        ({"users.0.token": "t", "users.0.name": "n"}, {"users.0.token": MASK, "users.0.name": "n"}),
        ({"any": [{"token": "t"}, {"kind": "a"}]}, {"any": [{"token": MASK}, {"kind": "a"}]}),
    ],
)
def test_a_filter_does_not_show_the_values_that_it_compares_with_secrets(filtered: Any, shown: Any) -> None:
    assert mask_filter(filtered, ["/token", "/smtp/key", "/users/*/token"]) == shown
    assert mask_filter(filtered, ["/**"]) != filtered
    assert mask_filter(filtered, []) == filtered
    assert restore_masked(shown, filtered, shown) == filtered, "sent back as it was shown, it stays as it is"
