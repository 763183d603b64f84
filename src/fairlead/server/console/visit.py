"""The visitor of a console page: principal, tenant and permissions."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec.structs import replace

from fairlead.actions import account, system, tenants
from fairlead.actions.system import SystemGate
from fairlead.errors import Forbidden, InvalidInput, TenantUnknown
from fairlead.model.access import PEOPLE, Permission, Principal, Role
from fairlead.model.account import Preferences
from fairlead.model.payload import find_storage_flaw
from fairlead.server.auth import (
    ADMITTED,
    CHOSEN_TENANT,
    Caller,
    Gatekeeper,
    Requires,
    read_bounded_body,
    refuse_unreadable,
)
from fairlead.server.console import number_format, render
from fairlead.server.console.live_parts import answer_refresh
from fairlead.server.problems import CONSOLE, route_of

# Parameters that name a place in one tenant's list.
PLACES = ("tenant", "cursor", "top", "after")
MOST_NEAR = 8
# The least size of the largest form.
FORM_BYTES = 1_048_576
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-", re.IGNORECASE)


class Visit(Caller, frozen=True):
    """The authenticated visitor of a page."""

    request: Request | None = None
    # the slug of the visited tenant, if any
    tenant_slug: str | None = None
    # the system's gate, if it is closed
    gate: SystemGate | None = None
    # how the visitor wants to see times
    preferences: Preferences = Preferences()
    # whether the page is about the whole system, whichever tenant is chosen
    everywhere: bool = False

    def may(self, permission: Permission) -> bool:
        """Whether the visitor has a permission."""
        return permission in self.principal.permissions

    @property
    def is_super(self) -> bool:
        return self.principal.role is Role.SUPER_ADMIN

    @property
    def current_request(self) -> Request:
        """The request."""
        if self.request is None:
            raise RuntimeError("a visit must have a request")
        return self.request

    def to(self, path: str, /, **query: Any) -> str:
        """The URL of a console page, in the tenant that a super admin has chosen."""
        return page_url(self.current_request, path, self.tenant_slug if self.is_super else None, query)

    def page_of_other_tenant(self) -> tuple[str, dict[str, str]]:
        """The path and the parameters of this page for another tenant; for a single object, its list."""
        request = self.current_request
        pattern = route_of(request.scope).removeprefix(CONSOLE)
        if self.everywhere or not pattern.startswith("/"):
            return "/jobs", {}
        if request.method != "GET" or "{" in pattern:
            return f"/{pattern.split('/')[1]}", {}
        given = request.query_params.items()
        # an id in a parameter names an object of this tenant
        kept = {name: text for name, text in given if name not in PLACES and not _UUID.search(text)}
        return pattern, kept

    def page(self, template: str, /, status: int = 200, **facts: Any) -> Response:
        """Render a page; for a refresh, only its changed parts."""
        html = render.render_page(template, self.current_request, visit=self, **facts)
        if status == 200:
            return answer_refresh(self.current_request, html)
        return HTMLResponse(html, status_code=status)

    def number(self, value: int) -> str:
        """A number in the visitor's format, for messages."""
        languages = self.current_request.headers.get("accept-language", "")
        return number_format.format_number(value, number_format.thousands_separator(languages))

    def respond(self, told: str, *, to: str | None = None, undo: str | None = None) -> Response:
        """Answer a completed action with a message; `undo` is the URL that reverts it."""
        return respond_to_action(self.current_request, told, to=to, undo=undo)

    async def form(self) -> dict[str, str]:
        """The submitted fields; for a repeated name, the last value."""
        return dict(await read_form_fields(self.current_request))


class ChosenTenantUnknown(Exception):  # not a FairleadError: it never leaves the console
    """A super admin chose a tenant that does not exist; `near` has tenants with a similar name."""

    def __init__(self, named: str, visit: Visit, near: Sequence[str], error: TenantUnknown) -> None:
        super().__init__(error.message)
        self.named, self.visit, self.near, self.error = named, visit, near, error


class RequiresVisit(Requires):
    """A page's permission: a dependency that returns the visit. The URL names a super admin's tenant."""

    async def __call__(self, request: Request) -> Visit:
        by, admitted = request.scope.get(ADMITTED, (None, None))
        if by is self and isinstance(admitted, Visit):
            return admitted
        request.scope[CHOSEN_TENANT] = request.query_params.get("tenant") or None
        try:
            caller = await super().__call__(request)
        except TenantUnknown as error:
            raise await self._explain_unknown_tenant(request, error) from error
        return await self._visit(request, caller)

    async def _visit(self, request: Request, caller: Caller) -> Visit:
        async with caller.fl.database.transaction() as tx:
            slug = await tenants.get_slug(tx, caller.tenant_id)
            gate = await system.get_closed_gate(tx)
            if caller.home is None:
                preferences = await account.get_preferences(tx, caller.principal)
        if caller.home is not None:
            visitor = replace(caller.principal, user_id=caller.principal.id)
            async with caller.home.database.transaction() as tx:
                preferences = await account.get_preferences(tx, visitor)
        return Visit(
            caller.fl,
            caller.principal,
            caller.ip,
            caller.token_id,
            caller.writes,
            caller.home,
            request=request,
            tenant_slug=slug,
            gate=gate,
            preferences=preferences,
            everywhere=self.everywhere,
        )

    async def _explain_unknown_tenant(self, request: Request, error: TenantUnknown) -> Exception:
        """For a super admin, the error with near names; to others no other tenant exists."""
        named = str(request.scope.pop(CHOSEN_TENANT))
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        visit = await self._visit(request, await gatekeeper.caller(request))
        if not visit.is_super:
            return error
        async with visit.transaction() as tx:
            slugs = [one.slug for one in await tenants.list_all(tx, visit.principal)]
        part = named.strip().lower()
        inside = [slug for slug in slugs if part in slug][:MOST_NEAR]
        near = dict.fromkeys([*get_close_matches(part, slugs, MOST_NEAR, 0.5), *inside])
        return ChosenTenantUnknown(named, visit, list(near)[:MOST_NEAR], error)

    def denial(self, principal: Principal) -> Forbidden | None:
        """The console is for users; programs use the API."""
        if principal.role not in PEOPLE:
            return Forbidden(
                f"The console is for people, and {principal.role} is a role of programs. Use the API: /api/v1/docs."
            )
        return super().denial(principal)

    def check_address(self, request: Request) -> None:
        """Accept unknown parameters: bookmarked URLs may have old ones."""
        refuse_unreadable(request)


def page_url(request: Request, path: str, tenant: str | None, query: Mapping[str, Any]) -> str:
    """The URL of a console page, below the mount path."""
    given = {name: value for name, value in query.items() if value not in (None, "", [])}
    if tenant is not None and "tenant" not in query:
        given["tenant"] = tenant
    text = urlencode(given, doseq=True)
    return f"{request.scope.get('root_path', '')}{path}" + (f"?{text}" if text else "")


def _most_form_bytes(request: Request) -> int:
    """The size of the largest form: a form sends each byte of a payload as three, and has other fields."""
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    return max(FORM_BYTES, 4 * gatekeeper.fl.settings.max_payload_bytes)


async def read_form_fields(request: Request) -> list[tuple[str, str]]:
    """The submitted fields of a form, in order."""
    try:
        text = (await read_bounded_body(request, _most_form_bytes(request))).decode()
        found = parse_qsl(text, keep_blank_values=True, max_num_fields=5000, errors="strict")
    except ValueError:
        raise InvalidInput("The form is not readable: send it as a browser does.") from None
    if any(find_storage_flaw(part) for pair in found for part in pair):
        raise InvalidInput("The form holds characters that cannot be stored (such as NUL). Leave them out.")
    return found


def is_htmx(request: Request) -> bool:
    """Whether htmx sent the request."""
    return request.headers.get("hx-request") == "true"


def respond_to_action(
    request: Request, told: str, *, to: str | None = None, undo: str | None = None
) -> Response:
    """The response to a completed action: a message, and the page that shows the result."""
    if to is not None or not is_htmx(request):
        answer = (
            Response(status_code=204, headers={"HX-Redirect": str(to)})
            if is_htmx(request)
            else RedirectResponse(to or request.headers.get("referer") or "..", status_code=303)
        )
        # the next page shows the message
        answer.set_cookie(render.FLASH, render.encode_flash(told), max_age=20, samesite="strict", path="/")
        return answer
    events = {"fairlead:toast": {"text": told, "undo": undo}, "fairlead:refresh": {}}
    return Response(status_code=204, headers={"HX-Trigger": render.header_json(events)})
