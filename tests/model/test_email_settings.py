import tomllib

import pytest

from fairlead.errors import SettingInvalid
from fairlead.model.command.spec import SecretSource
from fairlead.model.messages.email import Mailbox
from fairlead.model.messages.email_settings import MicrosoftGraph, Resend, Smtp, read_email_settings
from tests.tables import each_case

SMTP = '[email]\nprovider = "smtp"\nfrom = "a@acme.example"\nhost = "mail.acme.example"\n'
SENDER = Mailbox("", "a@acme.example")


def test_without_email_there_is_nothing() -> None:
    assert read_email_settings({}) == {}


def test_each_provider_is_read() -> None:
    text = SMTP + (
        'username = "u"\npassword = "env:P"\n'
        '[email.tenants.one]\nprovider = "resend"\nfrom = "Acme <a@acme.example>"\napi_key = "file:/k"\n'
        '[email.tenants.two]\nprovider = "graph"\nfrom = "a@acme.example"\ndirectory_id = "d"\nclient_id = "c"\n'
        'client_secret = "env:S"\n'
        '[email.tenants.three]\ntls = "tls"\n'
    )
    found = read_email_settings(tomllib.loads(text))

    smtp = Smtp(sender=SENDER, host="mail.acme.example", username="u", password=SecretSource("env", "P"))
    assert found[None] == smtp
    assert found["one"] == Resend(
        sender=Mailbox("Acme", "a@acme.example"), api_key=SecretSource("file", "/k")
    )
    assert found["two"] == MicrosoftGraph(
        sender=SENDER, directory_id="d", client_id="c", client_secret=SecretSource("env", "S")
    )
    three = found["three"]
    assert isinstance(three, Smtp)
    assert (smtp.actual_port, three.actual_port, three.username) == (587, 465, "u")


@each_case(
    ("text", "where"),
    [
        ("email = 1", "email"),
        ('[email]\nfrom = "a@b.example"', "email.provider"),
        ('[email]\nprovider = "pigeon"', "email.provider"),
        ('[email]\nprovider = "smtp"\nhost = "h"', "email.from"),
        ('[email]\nprovider = "smtp"\nfrom = "a@b.example"', "email.host"),
        (SMTP + "colour = 1", "email.colour"),
        (SMTP + "port = 0", "email.port"),
        (SMTP + 'tls = "maybe"', "email.tls"),
        (SMTP + 'username = "u"', "email"),
        (SMTP + 'username = "u"\npassword = "hunter2"', "email.password"),
        (SMTP + 'username = "u"\npassword = "env:P"\ntls = "none"', "email"),
        (SMTP.replace("a@acme.example", "a@b.example\\r\\nBcc: x"), "email.from"),
        (SMTP + "[email.tenants]\nacme = 1", "email.tenants.acme"),
        (SMTP + '[email.tenants.acme]\nprovider = "resend"', "email.tenants.acme.from"),
        (
            '[email]\nprovider = "resend"\nfrom = "a@b.example"\napi_key = "env:K"\napi_url = "http://api.example"',
            "email.api_url",
        ),
        (
            '[email]\nprovider = "graph"\nfrom = "a@b.example"\nclient_secret = "env:K"\nclient_id = "c"\ndirectory_id = "../x"',
            "email.directory_id",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_name(text: str, where: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        read_email_settings(tomllib.loads(text))
    assert refused.value.faults[0].path == where
    assert "hunter2" not in str(refused.value.as_dict())


@each_case(
    "url", ["https://api.resend.com/emails", "https://api.resend.com/emails/", "https://api.resend.com?x=1"]
)
def test_an_address_of_a_call_is_refused_where_the_base_url_belongs(url: str) -> None:
    text = f'[email]\nprovider = "resend"\nfrom = "a@b.example"\napi_key = "env:K"\napi_url = "{url}"'
    with pytest.raises(SettingInvalid, match=r"must be only the base URL, such as https://api\.resend\.com"):
        read_email_settings(tomllib.loads(text))
