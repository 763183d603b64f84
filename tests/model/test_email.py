from datetime import UTC, datetime
from email import message_from_bytes, policy
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.messages.email import (
    Mailbox,
    Message,
    check_headers,
    check_subject,
    message_id,
    parse_mailbox,
    remove_addresses,
)
from fairlead.model.messages.email_mime import build_mime
from fairlead.model.secrets.redact import Mask
from fairlead.model.template.path import Flaw
from tests.tables import each_case

SENDER = Mailbox("Acme", "a@acme.example")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
# what a header could be broken with, more often than chance would have it
PIECES = ["=?utf-8?q?", "=?latin-1?B?", "=0D=0A", "DQpY", "?=", "X-More:_x"]
TEXT = st.one_of(
    st.text(st.sampled_from("x,:@é"), min_size=70, max_size=90),
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('\r\n\0:<>",=?@ \t\u2028'))),
    st.lists(st.sampled_from([*PIECES, " ", "a"])).map("".join),
)


@given(name=TEXT, subject=TEXT, value=TEXT, text=TEXT)
def test_whatever_is_said_no_header_comes_of_it(name: str, subject: str, value: str, text: str) -> None:
    try:
        message = Message(
            sender=SENDER,
            to=[parse_mailbox(f"{name} <ada@example.com>")],
            bcc=[parse_mailbox("eve@example.com")],
            subject=check_subject(subject),
            text=text,
            headers=check_headers({"X-Own": value}),
        )
    except Flaw:
        return
    mime = message_from_bytes(build_mime(message, "<1@acme.example>", AT), policy=policy.default)

    body = {"Content-Type", "Content-Transfer-Encoding", "MIME-Version"} if text else set()
    assert set(mime.keys()) - body == {"From", "To", "Subject", "Date", "Message-ID", "X-Own"}
    [to] = mime["To"].addresses
    assert to.addr_spec == "ada@example.com"
    # the library puts spaces between the words that a long name is encoded in
    assert "".join(to.display_name.split()) == "".join(message.to[0].name.split())


@each_case(
    ("text", "mailbox"),
    [
        ("ada@example.com", Mailbox("", "ada@example.com")),
        (" <o'hara+x@sub.example.com> ", Mailbox("", "o'hara+x@sub.example.com")),
        ("Ada Lovelace <ada@example.com>", Mailbox("Ada Lovelace", "ada@example.com")),
        ('"Lovelace, Ada" <ada@example.com>', Mailbox("Lovelace, Ada", "ada@example.com")),
        ("Zoë <zoe@example.com>", Mailbox("Zoë", "zoe@example.com")),
    ],
)
def test_a_mailbox_is_read_and_written_again(text: str, mailbox: Mailbox) -> None:
    assert parse_mailbox(text) == mailbox
    assert parse_mailbox(str(mailbox)) == mailbox


def test_a_messages_id_is_made_from_the_jobs() -> None:
    assert message_id(UUID(int=7), SENDER) == f"<{UUID(int=7)}@acme.example>"


def test_what_a_server_says_is_masked_before_it_is_cut() -> None:
    mask = Mask(["Beadc0de-7f3a-41bc"])
    for filled in range(270, 301):
        assert "Bead" not in remove_addresses("x" * filled + "Beadc0de-7f3a-41bc and more", mask)


def test_what_a_server_says_is_told_without_addresses() -> None:
    said = "550 5.1.1 <ada@example.com>: user ada@example.com unknown\r\nx"
    assert remove_addresses(said) == "550 5.1.1 <…@…>: user …@… unknown  x"
    assert "@" not in remove_addresses("x" * 280 + " ada@example.com").replace("…@…", "")
