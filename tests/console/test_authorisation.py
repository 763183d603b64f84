"""Every page and action × everybody: what is answered is what the routes declare, and no page offers more."""

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

import httpx2
import pytest

from fairlead.model.access import GRANTS, PEOPLE, Role
from fairlead.server.problems import CONSOLE
from tests import given
from tests.console import page_matrix
from tests.server import matrix
from tests.server.conftest import module_url, shared_world
from tests.server.world import BASE, World
from tests.tables import Faults
from tests.thorough import THOROUGH
from tests.waiting import SECONDS

__all__ = ["module_url", "shared_world"]  # fixtures of the server's tests


BAD_TOKENS = [who for who in matrix.STRANGERS if who is not None]
PROGRAMS = [who for who in matrix.PRINCIPALS if who not in {*matrix.STRANGERS, *PEOPLE}]
# Closed, they keep everybody's jobs from running, with which other routes are asked.
GATES = ("/system/pause", "/definitions/{key}/pause", "/tenants/{slug}/pause")


def cases(rule: matrix.Rule) -> list[matrix.Case]:
    """Everybody with their own; those who might reach further also with what is another's, or is not there."""
    about = "own" if rule.about else None
    if rule.open:
        return [matrix.Case(None, "none", about)]
    if not THOROUGH:
        return _some_cases(rule, about)
    found = [matrix.Case(who, "none", about) for who in matrix.PRINCIPALS]
    for who in ("viewer", "tenant_admin", "super_admin"):
        found += [matrix.Case(who, naming, about) for naming in ("other", "missing")]
        if rule.about:
            found += [matrix.Case(who, "own", "other"), matrix.Case(who, "none", "missing")]
    return found


def _some_cases(rule: matrix.Rule, about: str | None) -> list[matrix.Case]:
    """Nobody, and by turns one of the people and one of the tokens that every page refuses alike; another tenant's admin.

    A tenant's admin may do all that its viewers may: who is kept from another tenant keeps them from it, too.
    """
    turn = page_matrix.page_rules().index(rule)
    refused = (*BAD_TOKENS, *PROGRAMS)
    asking = (None, PEOPLE[turn % len(PEOPLE)], refused[turn % len(refused)])
    found = [matrix.Case(None if who is None else str(who), "none", about) for who in asking]
    found.append(matrix.Case("tenant_admin", "other", about))
    if rule.about:
        found.append(matrix.Case("tenant_admin", "own", "other"))
    return found


async def _ask(world: World, rule: matrix.Rule, case: matrix.Case) -> httpx2.Response:
    values: dict[str, str] = {}
    for param in rule.params:
        builder = page_matrix.BUILDERS.get(param) or matrix.builder(rule, param)
        if case.about == "missing" and param == rule.about:
            values[param] = str(builder.missing())
        else:
            tenant = given.OTHER if case.about == "other" else given.TENANT
            async with world.fl.database.transaction() as tx:
                values[param] = str(await builder.make(tx, world, tenant))
    named = matrix.NAMINGS[case.naming]
    path = (
        CONSOLE + rule.path.format(**values) + ("" if named is None else "?" + urlencode({"tenant": named}))
    )
    fleet = case.who == matrix.FLEET
    return await world.call(
        rule.method,
        BASE + path,
        who="worker" if fleet else case.who,
        tenant=None if fleet else given.TENANT,
        data=page_matrix.FORMS.get(str(rule), {}) if rule.method == "POST" else None,
        follow_redirects=False,
        timeout=SECONDS,
    )


def _verdict(rule: matrix.Rule, case: matrix.Case) -> str:
    """What the rules of the API say; of what belongs to no tenant, nobody's is another's. Programs see no page."""
    found = matrix.verdict(rule, matrix.Case(case.who, case.naming, case.about if _owned(rule) else None))
    is_program = case.who not in {*matrix.STRANGERS, *PEOPLE}
    return "forbidden" if is_program and found in ("allowed", "hidden") else found


def _owned(rule: matrix.Rule) -> bool:
    return rule.about is not None and rule.about not in page_matrix.NO_TENANTS


def _wrong(verdict: str, rule: matrix.Rule, answer: httpx2.Response) -> str | None:
    status, to = answer.status_code, answer.headers.get("location", "")
    if status >= 500:
        return "broken"
    signing_in = status == 303 and "/sign-in" in to
    match verdict:
        case "unauthenticated":
            return None if signing_in else "not shown to the sign-in"
        case "forbidden":
            return None if status == 403 else "not forbidden"
        case "hidden" | "no_such_tenant":
            return None if status == 404 else "not hidden"
        case "allowed":
            return "denied" if signing_in or status in ((403, 404) if _owned(rule) else (403,)) else None
    return None


_DIALOG = re.compile(r'<dialog id="([^"]+)".*?</dialog>', re.DOTALL)

# Where links lead, and what buttons and forms send.
_LINKS = re.compile(rf'<a\b[^>]*\bhref="{CONSOLE}([^"?#]*)')
_SENT = re.compile(
    rf'<form\b[^>]*\bmethod="post" action="{CONSOLE}([^"?#]*)|\b(?:hx-post|data-batch)="{CONSOLE}([^"?#]*)'
)


def _offers(page: str) -> Iterator[tuple[str, str]]:
    """The methods and addresses that a page offers. (A dialog that no button opens offers nothing.)"""
    page = _DIALOG.sub(lambda found: found[0] if f'data-open="#{found[1]}"' in page else "", page)
    yield from (("GET", path) for path in _LINKS.findall(page))
    yield from (("POST", form or button) for form, button in _SENT.findall(page))


def _find_rule(method: str, path: str) -> matrix.Rule | None:
    """The first that fits, as the router finds it."""
    fitting = (
        rule
        for rule in page_matrix.page_rules()
        if rule.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", rule.path), path)
    )
    return next(fitting, None)


def _find_overreach(who: str, page: str) -> list[str]:
    """What a page offers to somebody whose role may not have it."""
    rules = {_find_rule(method, path) for method, path in _offers(page)}
    needed = {str(rule): rule.permission for rule in rules if rule is not None and not rule.open}
    return sorted(rule for rule, need in needed.items() if need is not None and need not in GRANTS[Role(who)])


@pytest.mark.deeper
@pytest.mark.parametrize("part", range(matrix.PARTS))
async def test_every_page_answers_everybody_as_declared(shared_world: World, part: int) -> None:
    faults = Faults()
    for rule in page_matrix.page_rules()[part :: matrix.PARTS]:
        with faults.of(str(rule)):
            await _check(shared_world, rule)
    faults.conclude()


async def _check(world: World, rule: matrix.Rule) -> None:
    unknown = [
        param for param in rule.params if param not in page_matrix.BUILDERS and param not in matrix.BUILDERS
    ]
    assert not unknown, f"nobody can make a {unknown}: add a builder"
    faults = []
    for case in cases(rule):
        verdict = _verdict(rule, case)
        answer = await _ask(world, rule, case)
        if wrong := _wrong(verdict, rule, answer):
            faults.append(f"{case}: {wrong}: {answer.status_code} {answer.text[:200]}")
        if case.who in PEOPLE and (too_much := _find_overreach(str(case.who), answer.text)):
            faults.append(f"{case}: the page offers what the role may not have: {too_much}")
        if not rule.open:
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
    if rule.path in GATES:
        opening = replace(rule, path=rule.path.replace("pause", "resume"))
        for about in ("own", "other") if rule.about else (None,):
            await _ask(world, opening, matrix.Case("super_admin", "none", about))
    assert not faults, "\n".join(faults)


async def test_a_form_of_another_site_changes_nothing(shared_world: World) -> None:
    cookie = await shared_world.signed_in(Role.SUPER_ADMIN)
    for rule in page_matrix.page_rules():
        if rule.method == "POST" and not rule.params:
            answer = await shared_world.call(
                "POST",
                f"{BASE}{CONSOLE}{rule.path}",
                who=None,
                headers={"Cookie": cookie, "Sec-Fetch-Site": "cross-site"},
                data={},
            )
            assert answer.status_code == 403, rule
