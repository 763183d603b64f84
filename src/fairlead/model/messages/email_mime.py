"""A message in MIME format, as SMTP sends it."""

from datetime import datetime
from email.errors import MessageError
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from fairlead.model.messages.email import Mailbox, Message
from fairlead.model.template.path import Flaw

# ASCII only: not every mail server accepts more.
_POLICY = SMTP.clone(cte_type="7bit", refold_source="none")
LONGEST_QUOTED = 60


def build_mime(message: Message, message_id: str, at: datetime) -> bytes:
    """The message as bytes. Addresses in `bcc` are not in it: only the envelope has them."""
    mime = EmailMessage(policy=_POLICY)
    people = {"From": [message.sender], "To": message.to, "Cc": message.cc, "Reply-To": message.reply_to}
    for header, mailboxes in people.items():
        if mailboxes:
            # One line per mailbox, formatted here: the library drops the quotes of a name that is too long for a line,
            # and a receiver could then read addresses in the name.
            mime.set_raw(header, ",\r\n ".join(_format_mailbox(one) for one in mailboxes))
    mime["Subject"] = message.subject
    mime["Date"] = format_datetime(at)
    mime["Message-ID"] = message_id
    for name, value in message.headers.items():
        mime[name] = value
    if message.text:
        mime.set_content(message.text)
    if message.html:
        add = mime.add_alternative if message.text else mime.set_content
        add(message.html, subtype="html")
    for one in message.attachments:
        main, _, sub = one.content_type.partition("/")
        mime.add_attachment(one.content, maintype=main, subtype=sub, filename=one.filename)
    try:
        wire = mime.as_bytes()
    except MessageError:  # newer versions of the library refuse such headers themselves
        raise Flaw("has headers that cannot be encoded") from None
    head, _, _ = wire.partition(b"\r\n\r\n")
    written = [
        line.partition(b":")[0].decode("ascii") for line in head.split(b"\r\n") if line[:1] not in b" \t"
    ]
    if written != mime.keys():
        raise Flaw("has values that would add headers")
    return wire


def _format_mailbox(mailbox: Mailbox) -> str:
    if mailbox.name.isascii() and len(mailbox.name) <= LONGEST_QUOTED:
        return str(mailbox)
    words = Header(mailbox.name, "utf-8", maxlinelen=LONGEST_QUOTED).encode(linesep="\r\n")
    return f"{words} <{mailbox.address}>"
