"""Whose request it is."""

from django.http import HttpRequest


def find_tenant(request: HttpRequest) -> str | None:
    """The slug of the tenant; yours may come from the user, the host name or the path."""
    slug: str | None = request.headers.get("X-Shop")
    return slug
