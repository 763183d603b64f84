"""Secrets that an edit left as they were shown go where they went before, and nowhere else."""

from typing import Any

import pytest

from fairlead.errors import SecretsRequired
from fairlead.model.kept_secrets import restored_for
from fairlead.model.redact import MASK, hidden
from fairlead.model.workflow_secrets import restored_spec

PATHS = ["/secret_headers", "/signing_secret"]
HEADERS = {"authorization": "Bearer s3cret-word"}


def edited(url: Any, was: Any = "https://api.example/v1", **more: Any) -> Any:
    """A payload whose url was changed and whose secrets were left, as it is stored then."""
    stored = {"url": was, "secret_headers": HEADERS, "n": 1}
    shown = hidden(stored, PATHS)
    return restored_for("http.request", {**shown, "url": url, **more}, stored, shown)


@pytest.mark.parametrize(
    "url", ["https://api.example/v1", "https://api.example/v2?q=1", "https://API.example:443/"]
)
def test_on_the_same_server_secrets_stay(url: str) -> None:
    assert edited(url, n=2) == {"url": url, "secret_headers": HEADERS, "n": 2}


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/v1",
        "http://api.example/v1",
        "https://api.example:8443/v1",
        "https://api.example.evil.example/v1",
        "https://api.example@evil.example/",
        "https://{{event.host}}/v1",
        "no url",
        None,
        ["https://api.example/v1"],
    ],
)
def test_to_another_server_secrets_have_to_be_given_anew(url: Any) -> None:
    with pytest.raises(SecretsRequired, match="give them anew") as refused:
        edited(url)
    assert [fault.path for fault in refused.value.faults] == ["/url"]
    assert "s3cret" not in str(refused.value.as_dict())

    new = {"secret_headers": {"authorization": "Bearer another"}}
    assert edited(url, **new) == {"url": url, "n": 1, **new}


def test_a_url_that_is_yet_to_be_filled_in_has_to_stay_as_it_is() -> None:
    template = "https://{{event.host}}/v1"
    assert edited(template, was=template)["secret_headers"] == HEADERS
    with pytest.raises(SecretsRequired):
        edited("https://{{event.host}}/v2", was=template)


def test_other_definitions_know_of_no_url() -> None:
    stored = {"url": "https://a.example", "token": "s3cret-word"}
    new = {"url": "https://b.example", "token": MASK}
    assert restored_for("sync", new, stored, hidden(stored, ["/token"])) == {**stored, "url": new["url"]}


def test_a_step_of_a_workflow_keeps_its_secrets_to_its_server() -> None:
    def spec(url: str, headers: Any) -> Any:
        payload = {"url": url, "secret_headers": headers}
        return {"steps": [{"name": "call", "definition": "http.request", "payload": payload}]}

    known = spec("https://api.example/v1", HEADERS)
    secrets = {"http.request": PATHS}

    same = restored_spec(spec("https://api.example/v2", MASK), known, secrets)
    assert same == spec("https://api.example/v2", HEADERS)
    with pytest.raises(SecretsRequired):
        restored_spec(spec("https://evil.example/", MASK), known, secrets)
