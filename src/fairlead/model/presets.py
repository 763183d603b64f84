"""Definitions that come ready made: a name, and what each of them says."""

from collections.abc import Mapping
from typing import Any

_SERVER: dict[str, Any] = {
    "kind": "host",
    "arg_schema": {
        "type": "object",
        "properties": {"serverInstanceId": {"type": "string", "minLength": 1, "maxLength": 200}},
        "required": ["serverInstanceId"],
    },
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
