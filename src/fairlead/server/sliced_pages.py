"""Responses that are pages of a list, written row by row, with pauses for other requests."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, get_args

from fastapi.responses import Response
from msgspec.structs import replace
from pydantic import TypeAdapter

from fairlead.server.views import View
from fairlead.turns.loop_pauses import LoopPauses

Endpoint = Callable[..., Awaitable[Any]]


def is_page(view: type[View]) -> bool:
    """Whether a response is a page: rows, and the cursor of the next ones."""
    return {"items", "next_cursor"} <= view.model_fields.keys()


def respond_in_slices(endpoint: Endpoint, view: type[View]) -> Endpoint:
    """The endpoint of a page with its response as JSON text: to write 2 MB at once would hold up all other requests."""
    [kind] = get_args(view.model_fields["items"].annotation)
    row_type: TypeAdapter[Any] = TypeAdapter(kind)

    @wraps(endpoint)
    async def respond(*args: Any, **options: Any) -> Response:
        page = await endpoint(*args, **options)
        if isinstance(page, Response):
            return page
        rows, pauses = list[bytes](), LoopPauses()
        for row in page.items:
            rows.append(row_type.dump_json(row_type.validate_python(row)))
            await pauses.pause_if_due()
        around = view.of(replace(page, items=[])).model_dump_json().encode()
        # quotes inside of texts are escaped: these are the items
        text = around.replace(b'"items":[]', b'"items":[' + b",".join(rows) + b"]", 1)
        return Response(text, media_type="application/json")

    return respond
