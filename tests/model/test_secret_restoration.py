"""Secrets that an edit left as they were shown stay where nothing else was edited."""

from typing import Any

import pytest

from fairlead.errors import SecretsRequired
from fairlead.model.secrets.redact import MASK, mask_paths
from fairlead.model.secrets.restoration import restore_secrets
from fairlead.model.workflow.secrets import mask_step, restore_spec
from tests.tables import each_case

PATHS = ["/secret_headers", "/signing_secret"]
HEADERS = {"authorization": "Bearer s3cret-word"}
STORED = {"url": "https://api.example/v1", "secret_headers": HEADERS, "n": [1, 2]}
SHOWN = mask_paths(STORED, PATHS)


def test_what_is_sent_back_as_it_was_shown_is_as_it_was() -> None:
    assert restore_secrets(SHOWN, STORED, SHOWN) == STORED


@each_case(
    "edit",
    [
        {"url": "https://evil.example/v1"},
        {"url": "https://api.example/v2"},
        {"n": [1, 3]},
        {"n": []},
        {"more": "guess…"},
        {"secret_headers": MASK, "signing_secret": "own"},
    ],
)
def test_who_edits_anything_gives_the_secrets_anew(edit: dict[str, Any]) -> None:
    with pytest.raises(SecretsRequired, match="Replace each") as refused:
        restore_secrets({**SHOWN, **edit}, STORED, SHOWN)
    assert [fault.path for fault in refused.value.faults] == ["/secret_headers"]
    assert "s3cret" not in str(refused.value.as_dict())

    new = {**SHOWN, **edit, "secret_headers": {"authorization": "Bearer another"}}
    assert restore_secrets(new, STORED, SHOWN) == new


def test_what_is_left_out_is_edited_too() -> None:
    with pytest.raises(SecretsRequired):
        restore_secrets({"url": STORED["url"], "secret_headers": MASK}, STORED, SHOWN)

    without = {"url": STORED["url"], "n": [1, 2]}
    assert restore_secrets(without, STORED, SHOWN) == without


def test_a_step_of_a_workflow_keeps_its_secrets_with_its_payload() -> None:
    def spec(url: str, headers: Any, **more: Any) -> Any:
        payload = {"url": url, "secret_headers": headers}
        return {"steps": [{"name": "call", "definition": "http.request", "payload": payload, **more}]}

    known = spec("https://api.example/v1", HEADERS)
    secrets = {"http.request": PATHS}

    same = restore_spec(spec("https://api.example/v1", MASK, priority=3), known, secrets)
    assert same == spec("https://api.example/v1", HEADERS, priority=3)
    with pytest.raises(SecretsRequired):
        restore_spec(spec("https://api.example/v2", MASK), known, secrets)


@each_case("item", ["{{item.key}}", "Bearer {{item.key}}", "{{item}}"])
def test_secrets_in_the_items_of_a_step_are_not_shown_and_stay_with_its_payload(item: str) -> None:
    def step(*keys: Any, url: str = "https://api.example") -> Any:
        payload = {"url": url, "secret_headers": {"x-key": item}}
        items = [key if item == "{{item}}" else {"key": key, "n": 1} for key in keys]
        return {"name": "call", "definition": "http.request", "payload": payload, "for_each": items}

    secrets = {"http.request": ["/secret_headers"]}
    stored = step("s3cret-word", "{{input.key}}")

    shown = mask_step(stored, secrets)

    assert "s3cret" not in str(shown)
    assert "{{input.key}}" in str(shown)
    assert restore_spec({"steps": [shown]}, {"steps": [stored]}, secrets) == {"steps": [stored]}
    for edited in (
        {**shown, "payload": step(url="https://evil.example")["payload"]},
        {**shown, "for_each": shown["for_each"][:1]},
    ):
        with pytest.raises(SecretsRequired):
            restore_spec({"steps": [edited]}, {"steps": [stored]}, secrets)
