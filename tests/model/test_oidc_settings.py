"""[oidc.NAME] in fairlead.toml: what it may say, and the field that is named if it is wrong."""

import re
import tomllib
from pathlib import Path

import pytest

from fairlead.errors import SettingInvalid, SignInRefused
from fairlead.model.access import Role
from fairlead.model.command.spec import SecretSource
from fairlead.model.oidc.claims import find_claim, read_person
from fairlead.model.oidc.settings import OidcProvider, read_oidc_settings
from tests.tables import each_case

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sign-in-with-oidc.md"
GOOD = """
[oidc.work]
issuer = "https://id.example.com"
client_id = "fairlead"
role_claim = "groups"
tenant = "acme"
roles = { staff = "viewer" }
"""


def read(text: str) -> dict[str, OidcProvider]:
    return read_oidc_settings(tomllib.loads(text))


def test_the_settings_of_the_page_are_valid() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)

    simple, several = (read(block)["work"] for block in blocks)

    assert simple.client_secret == SecretSource("env", "OIDC_SECRET")
    assert (simple.label, simple.roles["job-admins"]) == ("Example Corp", Role.TENANT_ADMIN)
    assert (several.tenants or {})["Acme Inc."] == "acme"
    assert (several.label, several.password_sign_in) == ("work", False)


def test_without_tables_there_is_no_provider() -> None:
    assert read("") == {}


@each_case(
    ("change", "field"),
    [
        (("https://id.example.com", "http://id.example.com"), "oidc.work.issuer"),
        (("https://id.example.com", "https://id.example.com?x=1"), "oidc.work.issuer"),
        (("https://id.example.com", "https://a:b@id.example.com"), "oidc.work.issuer"),
        (('issuer = "https://id.example.com"\n', ""), "oidc.work.issuer"),
        (('"fairlead"', "7"), "oidc.work.client_id"),
        (('"fairlead"', '"fairlead"\nclient_secret = "hunter2"'), "oidc.work.client_secret"),
        (('"fairlead"', '"fairlead"\nscopes = ["email"]'), "oidc.work.scopes"),
        (('"fairlead"', '"fairlead"\nlabel = ""'), "oidc.work.label"),
        (('"fairlead"', '"fairlead"\nlink_by_email = "yes"'), "oidc.work.link_by_email"),
        (('"fairlead"', '"fairlead"\nclientsecret = "env:X"'), "oidc.work.clientsecret"),
        (('role_claim = "groups"', ""), "oidc.work.role_claim"),
        (("viewer", "worker"), "oidc.work.roles"),
        (("viewer", "admin"), "oidc.work.roles"),
        (('{ staff = "viewer" }', "{}"), "oidc.work.roles"),
        (('"acme"', '"Acme Inc."'), "oidc.work.tenant"),
        (('"acme"', '"global"'), "oidc.work.tenant"),
        (('tenant = "acme"', ""), "oidc.work"),
        (('tenant = "acme"', 'tenant = "acme"\ntenant_claim = "org"'), "oidc.work"),
        (('tenant = "acme"', 'tenant = "acme"\ntenants = { A = "acme" }'), "oidc.work"),
        (("oidc.work", "oidc.Work"), "oidc.Work"),
        (("[oidc.work]", "[oidc]"), "oidc.client_id"),
    ],
)
def test_a_wrong_field_is_named(change: tuple[str, str], field: str) -> None:
    with pytest.raises(SettingInvalid) as caught:
        read(GOOD.replace(*change))
    assert field in (caught.value.faults[0].path, "oidc.client_id" if field == "oidc.client_id" else "")
    assert "hunter2" not in caught.value.message


def test_two_tables_for_one_issuer_are_refused() -> None:
    with pytest.raises(SettingInvalid, match=r"oidc\.home\.issuer"):
        read(GOOD + GOOD.replace("oidc.work", "oidc.home"))


def test_super_admins_alone_need_no_tenant() -> None:
    text = GOOD.replace('tenant = "acme"', "").replace("viewer", "super_admin")
    [provider] = read(text).values()
    person = read_person(provider, {"sub": "1", "email": "a@example.com", "groups": "staff"})
    assert (person.role, person.tenant) == (Role.SUPER_ADMIN, None)


def test_a_claim_is_found_by_its_name_or_its_path() -> None:
    claims = {"https://x.example/roles": 1, "a.b": 2, "a": {"b": 3, "c": {"d": 4}}, "e": [5]}
    found = [find_claim(claims, path) for path in ("https://x.example/roles", "a.b", "a.c.d", "a.x", "e.0")]
    assert found == [1, 2, 4, None, None]


@each_case("org", [None, "", [], ["acme", "globex"], "nobody", "global", {"acme": 1}, 7, ["acme", 7]])
def test_a_tenant_must_be_one_that_the_settings_know(org: object) -> None:
    text = GOOD.replace(
        'tenant = "acme"', 'tenant_claim = "org"\ntenants = { acme = "acme", globex = "globex" }'
    )
    [provider] = read(text).values()
    claims = {"sub": "1", "email": "a@example.com", "groups": ["staff"], "org": org}
    with pytest.raises(SignInRefused):
        read_person(provider, claims)


@each_case("org", ["global", ["acme", "globex"], "", "a\x00"])
def test_a_claim_cannot_name_the_global_tenant_or_several(org: object) -> None:
    [provider] = read(GOOD.replace('tenant = "acme"', 'tenant_claim = "org"')).values()
    with pytest.raises(SignInRefused):
        read_person(provider, {"sub": "1", "email": "a@example.com", "groups": ["staff"], "org": org})
