"""The doctor's look at identity providers, over real sockets."""

import json
import time
import tomllib
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from fairlead.actions.oidc_checks import examine_providers
from fairlead.model.finding import Finding, Verdict
from fairlead.model.oidc.settings import read_oidc_settings
from tests import given
from tests.cli.test_commands import Shell
from tests.handlers.loopback import Reply
from tests.oidc_provider import CLIENT, SECRET, Provider, provider_on
from tests.oidc_stage import TABLE

OK = {
    "oidc_secret": Verdict.OK,
    "oidc_discovery": Verdict.OK,
    "oidc_clock": Verdict.OK,
    "oidc_issuer": Verdict.OK,
    "oidc_keys": Verdict.OK,
    "oidc_algorithms": Verdict.OK,
}
DISCOVERY = "/.well-known/openid-configuration"


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Provider]:
    monkeypatch.setenv("TEST_OIDC_SECRET", SECRET)
    async with provider_on() as opened:
        yield opened


async def examine(issuer: str) -> dict[str, Finding]:
    text = TABLE.format(issuer=issuer, client=CLIENT, tenant=given.TENANT)
    found = await examine_providers(read_oidc_settings(tomllib.loads(text)).values())
    assert all(one.advice for one in found if one.verdict is not Verdict.OK)
    assert all(one.detail.startswith("work: ") for one in found)
    assert SECRET not in str(found)
    return {one.check: one for one in found}


def verdicts(found: dict[str, Finding]) -> dict[str, Verdict]:
    return {name: one.verdict for name, one in found.items()}


async def test_a_provider_that_works_is_fine(provider: Provider) -> None:
    found = await examine(provider.issuer)
    assert verdicts(found) == OK
    assert "RS256" in found["oidc_algorithms"].detail


async def test_a_provider_that_is_down_is_a_warning() -> None:
    found = await examine("http://127.0.0.1:1")
    assert found["oidc_discovery"].verdict is Verdict.WARN
    assert "cannot be reached" in found["oidc_discovery"].detail
    assert "super admins" in found["oidc_discovery"].advice
    assert "oidc_keys" not in found


async def test_another_issuer_is_named(provider: Provider) -> None:
    provider.document = {"issuer": f"{provider.issuer}/"}
    found = await examine(provider.issuer)
    assert found["oidc_issuer"].verdict is Verdict.FAIL
    assert f"{provider.issuer}/" in found["oidc_issuer"].detail


@pytest.mark.parametrize(
    ("document", "check", "verdict", "says"),
    [
        ({"token_endpoint": "http://elsewhere.example"}, "oidc_issuer", Verdict.FAIL, "token_endpoint"),
        (
            {"id_token_signing_alg_values_supported": ["HS256", "none"]},
            "oidc_algorithms",
            Verdict.FAIL,
            "HS256, none",
        ),
        (
            {"id_token_signing_alg_values_supported": ["ES256"]},
            "oidc_algorithms",
            Verdict.FAIL,
            "keys are for RS256",
        ),
        ({"code_challenge_methods_supported": ["plain"]}, "oidc_algorithms", Verdict.WARN, "S256"),
        ({"jwks_uri": "http://127.0.0.1:1/jwks"}, "oidc_keys", Verdict.WARN, "cannot be read"),
    ],
)
async def test_what_would_refuse_sign_ins_is_said(
    provider: Provider, document: dict[str, Any], check: str, verdict: Verdict, says: str
) -> None:
    provider.document = document
    found = await examine(provider.issuer)
    assert (found[check].verdict, says in found[check].detail) == (verdict, True), found[check]


async def test_a_provider_without_usable_keys_fails(provider: Provider) -> None:
    provider.replies["/jwks"] = Reply(body={"keys": [{"kty": "oct", "k": "AAAA"}]})
    assert (await examine(provider.issuer))["oidc_keys"].verdict is Verdict.FAIL
    provider.replies["/jwks"] = Reply(body=[1])
    assert (await examine(provider.issuer))["oidc_keys"].verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("seconds", "age", "verdict"),
    [
        (0, 0, Verdict.OK),
        (-3600, 3600, Verdict.OK),  # from a cache
        (-1800, 0, Verdict.FAIL),
        (-300, 0, Verdict.WARN),
        (900, 0, Verdict.FAIL),
    ],
)
async def test_clocks_are_compared(provider: Provider, seconds: int, age: int, verdict: Verdict) -> None:
    headers = (("date", formatdate(time.time() + seconds, usegmt=True)), ("age", str(age)))
    provider.replies[DISCOVERY] = Reply(body=provider.describe(), headers=headers)
    assert (await examine(provider.issuer))["oidc_clock"].verdict is verdict


async def test_a_missing_secret_is_named_and_not_shown(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_OIDC_SECRET")
    found = await examine(provider.issuer)
    assert found["oidc_secret"].verdict is Verdict.FAIL
    assert "TEST_OIDC_SECRET" in found["oidc_secret"].detail


def test_the_command_has_these_findings(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "fairlead.toml"
    settings.write_text(TABLE.format(issuer="http://127.0.0.1:1", client=CLIENT, tenant=given.TENANT))
    monkeypatch.setenv("FAIRLEAD_CONFIG", str(settings))
    monkeypatch.setenv("TEST_OIDC_SECRET", SECRET)
    shell = Shell(database_url)

    lines = [json.loads(line) for line in shell("doctor", "--json").stdout.splitlines()]
    assert {one["check"]: one["verdict"] for one in lines if one["check"].startswith("oidc")} == {
        "oidc_secret": "ok",
        "oidc_discovery": "warn",
    }

    settings.write_text("[oidc.work]\nissuer = 1\n")
    result = shell("doctor", "--json")
    [broken] = [one for line in result.stdout.splitlines() if (one := json.loads(line))["check"] == "oidc"]
    assert (broken["verdict"], result.exit_code) == ("fail", 1)
    assert "oidc.work" in broken["detail"]
