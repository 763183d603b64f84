"""A message as it goes over SMTP."""

from datetime import datetime
from email.errors import MessageError
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from fairlead.model.email import Mailbox, Message
from fairlead.model.path import Flaw

# ASCII on the wire: not every server on the way takes more.
_POLICY = SMTP.clone(cte_type="7bit", refold_source="none")
LONGEST_QUOTED = 60


def mime_of(message: Message, message_id: str, at: datetime) -> bytes:
    """The message as bytes. Those in `bcc` are nowhere in it: only the envelope names them."""
    mime = EmailMessage(policy=_POLICY)
    people = {"From": [message.sender], "To": message.to, "Cc": message.cc, "Reply-To": message.reply_to}
    for header, mailboxes in people.items():
        if mailboxes:
            # a line for each, written here: the library loses the quotes of a name that does not fit into a line, and what is
            # in it can be taken for addresses
            mime.set_raw(header, ",\r\n ".join(_written(one) for one in mailboxes))
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
    except MessageError:  # what newer versions of the library find of the same
        raise Flaw("its headers cannot be written") from None
    head, _, _ = wire.partition(b"\r\n\r\n")
    written = [
        line.partition(b":")[0].decode("ascii") for line in head.split(b"\r\n") if line[:1] not in b" \t"
    ]
    if written != mime.keys():
        raise Flaw("it would have other headers than were asked for")
    return wire


def _written(mailbox: Mailbox) -> str:
    if mailbox.name.isascii() and len(mailbox.name) <= LONGEST_QUOTED:
        return str(mailbox)
    words = Header(mailbox.name, "utf-8", maxlinelen=LONGEST_QUOTED).encode(linesep="\r\n")
    return f"{words} <{mailbox.address}>"
