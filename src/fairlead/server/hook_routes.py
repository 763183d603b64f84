"""Where other systems send webhooks. A delivery is authenticated by its signature, not by a token or session."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from fairlead.server.auth import GuardedRoute, PublicAccess
from fairlead.server.client_addresses import client_address
from fairlead.server.hook_receiver import HookReceiver
from fairlead.server.views import View, to_json

router = APIRouter(route_class=GuardedRoute, tags=["hooks"])

Public = Annotated[None, Depends(PublicAccess(reads_body=False))]


class ReceiptView(View):
    """The event that a delivery became; `duplicate` if an earlier delivery became it."""

    id: UUID
    duplicate: bool


_BODIES: dict[str, Any] = {
    "application/json": {"schema": {}},
    "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
}


@router.post(
    "/hooks/{tenant}/{name}",
    status_code=202,
    response_model=ReceiptView,
    responses={200: {"description": "The answer that Slack expects to a question or a form."}},
    openapi_extra={"requestBody": {"content": _BODIES, "required": True}},
)
async def receive(request: Request, tenant: str, name: str, _: Public) -> Response:
    """Receive a webhook of another system, signed as the hook's scheme prescribes; it becomes an event once."""
    receiver: HookReceiver = request.app.state.hook_receiver
    ip = client_address(request)
    hook = await receiver.find(request, tenant, name)
    body = await receiver.read_body(hook, request)
    delivery, receipt = await receiver.receive(hook, request.headers, body, ip)
    if delivery.challenge is not None:
        return JSONResponse({"challenge": delivery.challenge})
    if receipt is None or delivery.is_form:  # Slack shows the body of an answer to a command
        return Response(status_code=200)
    return JSONResponse(
        to_json(ReceiptView(id=receipt.event_id, duplicate=receipt.duplicate)), status_code=202
    )
