"""The built-in function `EMAIL_SEND`, with the providers that fairlead.toml configures."""

from collections.abc import Mapping
from typing import Any, assert_never

from fairlead.errors import Fault, SettingInvalid
from fairlead.handlers import email
from fairlead.handlers.commands import check_secret
from fairlead.handlers.email_api import GraphProvider, ResendProvider
from fairlead.model.messages.email_settings import (
    EmailSettings,
    MicrosoftGraph,
    Resend,
    Smtp,
    read_email_settings,
)


def build_emails(document: Mapping[str, Any]) -> email.Emails | None:
    """The emails of jobs, with the providers of a parsed fairlead.toml; None if its [email] is empty."""
    found = read_email_settings(document)
    return (
        email.Emails({tenant: _build_provider(tenant, one) for tenant, one in found.items()})
        if found
        else None
    )


def _build_provider(tenant: str | None, settings: EmailSettings) -> email.Provider:
    where = "email" if tenant is None else f"email.tenants.{tenant}"
    match settings:
        case Smtp(password=source):
            if source is not None:
                check_secret(f"{where}.password", source)
            return _build_smtp(settings)
        case Resend(api_key=source):
            check_secret(f"{where}.api_key", source)
            return ResendProvider(settings)
        case MicrosoftGraph(client_secret=source):
            check_secret(f"{where}.client_secret", source)
            return GraphProvider(settings)
    assert_never(settings)


def _build_smtp(settings: Smtp) -> email.Provider:
    try:
        from fairlead.handlers.email_smtp import SmtpProvider  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise SettingInvalid(
            'Email over SMTP needs an extra package: pip install "fairlead[email]".',
            [Fault("email.provider", "needs fairlead[email]")],
        ) from error
    return SmtpProvider(settings)
