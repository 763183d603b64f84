"""The visitor of a console page: principal, tenant and permissions."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fairlead.actions import system, tenants
from fairlead.actions.system import SystemGate
from fairlead.errors import Forbidden, InvalidInput
from fairlead.model.access import GRANTS, PEOPLE, Permission, Role
from fairlead.model.payload import find_storage_flaw
from fairlead.server.auth import ADMITTED, CHOSEN_TENANT, Caller, Requires, refuse_unreadable
from fairlead.server.console import render


class Visit(Caller, frozen=True):
    """The authenticated visitor of a page."""

    request: Request | None = None
    # the slug of the visited tenant, if any
    tenant_slug: str | None = None
    # the system's gate, if it is closed
    gate: SystemGate | None = None

    def may(self, permission: Permission) -> bool:
        """Whether the visitor has a permission."""
        return permission in GRANTS[self.principal.role]

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

    def page(self, template: str, /, status: int = 200, **facts: Any) -> HTMLResponse:
        """Render a page."""
        return HTMLResponse(
            render.render_page(template, self.current_request, visit=self, **facts), status_code=status
        )

    def respond(self, told: str, *, to: str | None = None, undo: str | None = None) -> Response:
        """Answer a completed action with a message; `undo` is the URL that reverts it."""
        return respond_to_action(self.current_request, told, to=to, undo=undo)

    async def form(self) -> dict[str, str]:
        """The submitted fields; for a repeated name, the last value."""
        return dict(await read_form_fields(self.current_request))


class RequiresVisit(Requires):
    """A page's permission: a dependency that returns the visit. The URL names a super admin's tenant."""

    async def __call__(self, request: Request) -> Visit:
        by, admitted = request.scope.get(ADMITTED, (None, None))
        if by is self and isinstance(admitted, Visit):
            return admitted
        request.scope[CHOSEN_TENANT] = request.query_params.get("tenant") or None
        caller = await super().__call__(request)
        async with caller.fl.database.transaction() as tx:
            slug = await tenants.get_slug(tx, caller.tenant_id)
            gate = await system.get_closed_gate(tx)
        return Visit(
            caller.fl,
            caller.principal,
            caller.ip,
            caller.token_id,
            request=request,
            tenant_slug=slug,
            gate=gate,
        )

    def denial(self, role: Role) -> Forbidden | None:
        """The console is for users; programs use the API."""
        if role not in PEOPLE:
            return Forbidden(
                f"The console is for people, and {role} is a role of programs. Use the API: /api/v1/docs."
            )
        return super().denial(role)

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


async def read_form_fields(request: Request) -> list[tuple[str, str]]:
    """The submitted fields of a form, in order."""
    try:
        text = (await request.body()).decode()
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
