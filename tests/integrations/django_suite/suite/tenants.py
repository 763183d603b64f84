from typing import Any


def find_tenant(request: Any) -> Any:
    return request.headers.get("X-Tenant")


def choose_tenant() -> str:
    return "chosen"
