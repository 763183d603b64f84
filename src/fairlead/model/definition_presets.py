"""Ready-made definitions, by the name of their preset."""

from collections.abc import Mapping
from typing import Any

from fairlead.model.command.argv_parts import ArgvText
from fairlead.model.command.argv_shape import derive_shape, payload_schema
from fairlead.model.command.slot import Slot
from fairlead.model.template.path import Path

# The schema comes from the rules of commands: an agent can run every payload that the server accepts.
_SERVER_SLOT = Slot(path=Path(("payload", "serverInstanceId")), max_length=200)

_SERVER: dict[str, Any] = {
    "kind": "host",
    "arg_schema": payload_schema(derive_shape([ArgvText((_SERVER_SLOT,))])),
    "resource_pointer": "/serverInstanceId",
    "timeout_seconds": 300,
    "max_attempts": 3,
    "backoff": {"base_seconds": 2, "factor": 2, "cap_seconds": 60, "jitter": 0},
}

PRESETS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "servers": tuple(
        {**_SERVER, "key": f"SERVER_{what.upper()}", "description": f"{what.title()} a server on its host."}
        for what in ("start", "stop", "restart")
    )
}
