"""An email message: sender, recipients and content. Values that could inject headers are refused."""

import base64
import binascii
import html
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.model.secrets.redact import Mask, shorten
from fairlead.model.template.path import Flaw

# The definition of the built-in job.
EMAIL_SEND = "EMAIL_SEND"
MAX_RECIPIENTS = 50
MAX_HEADERS = 20
MAX_ATTACHMENTS = 20
MAX_ATTACHMENT_BYTES = 10 * 2**20
LONGEST_SUBJECT = 500
LONGEST_HEADER = 900
MAX_SECRETS = 20
LONGEST_SAID = 300

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Encoded words (RFC 2047): mail programs and Python's library decode them, even to line breaks.
_ENCODED = re.compile(r"=\?.*\?=")
_NAMED = re.compile(r'(?:"([^"\\<>]*)"|([^"\\<>@]*))\s*<([^<>]*)>')
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SPEC = re.compile(rf"(?=.{{3,254}}\Z)(?=[^@]{{1,64}}@){_LOCAL}@({_LABEL}(?:\.{_LABEL})*)")
_PLAIN_NAME = re.compile(r"[\w !#$%&'*+/=?^`{|}~-]*")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
# A secret's place in a text. Not braces: those are the placeholders of templates.
_SECRET_PLACE = re.compile(r"\[\[([A-Za-z][A-Za-z0-9_]{0,63})\]\]")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
# Headers for sender, recipients, structure and transport: other fields set them, or the mail servers do.
_FORBIDDEN = frozenset(
    {
        "authentication-results",
        "bcc",
        "cc",
        "date",
        "dkim-signature",
        "from",
        "message-id",
        "mime-version",
        "received",
        "reply-to",
        "return-path",
        "sender",
        "subject",
        "to",
    }
)
_FORBIDDEN_BY_PREFIX = ("arc-", "content-", "received-", "resent-", "x-fairlead-")


class Mailbox(NamedTuple):
    """An email address and its display name."""

    name: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    def __str__(self) -> str:
        if not self.name:
            return self.address
        name = self.name if _PLAIN_NAME.fullmatch(self.name) else f'"{self.name}"'
        return f"{name} <{self.address}>"


class Attachment(NamedTuple):
    filename: str
    content_type: str
    content: bytes


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that every provider can send."""

    sender: Mailbox
    to: Sequence[Mailbox]
    cc: Sequence[Mailbox] = ()
    bcc: Sequence[Mailbox] = ()
    reply_to: Sequence[Mailbox] = ()
    subject: str = ""
    text: str | None = None
    html: str | None = None
    headers: Mapping[str, str]
    attachments: Sequence[Attachment] = ()

    @property
    def recipients(self) -> list[str]:
        """Every address once, bcc included."""
        return list(dict.fromkeys(one.address for one in (*self.to, *self.cc, *self.bcc)))


def message_id(job_id: UUID, sender: Mailbox) -> str:
    """The Message-ID: the same for each attempt of a job, so that a receiver can recognise a second copy."""
    return f"<{job_id}@{sender.domain}>"


def parse_mailbox(text: str) -> Mailbox:
    """`ada@example.com` or `Ada Lovelace <ada@example.com>`, or a Flaw that does not repeat the text."""
    if _CONTROLS.search(text) or "=?" in text:  # the rest of an encoded word may be in the next name
        raise Flaw("has line breaks, control characters or =?")
    match = _NAMED.fullmatch(text.strip())
    name, address = (match[1] or match[2] or "", match[3]) if match else ("", text.strip())
    if not _SPEC.fullmatch(address) or len(name) > 200:
        raise Flaw(
            "must be an address such as ada@example.com or Ada <ada@example.com>, in ASCII but for the name"
        )
    return Mailbox(name.strip(), address)


def parse_mailboxes(field: str, given: str | Sequence[str] | None) -> list[Mailbox]:
    """One or several addresses; the Flaw names the invalid one."""
    found = []
    for number, one in enumerate([given] if isinstance(given, str) else given or ()):
        try:
            found.append(parse_mailbox(one))
        except Flaw as flaw:
            raise Flaw(f"{field}[{number}] {flaw.message}") from None
    return found


def insert_secrets(
    field: str, text: str | None, secrets: Mapping[str, str] | None, *, as_html: bool = False
) -> str | None:
    """The text with the secrets in their places, `[[name]]`; a Flaw names a place without a secret.

    Without `secrets` the text stays as it is.
    """
    if text is None or secrets is None:
        return text

    def find(place: re.Match[str]) -> str:
        if place[1] not in secrets:
            raise Flaw(f"{field} has [[{place[1]}]], which is not in secrets")
        return html.escape(secrets[place[1]]) if as_html else secrets[place[1]]

    return _SECRET_PLACE.sub(find, text)


def check_headers(given: Mapping[str, str] | None) -> dict[str, str]:
    """The user's own headers, or a Flaw."""
    found = dict(given or {})
    lower = [name.lower() for name in found]
    if len(found) > MAX_HEADERS or len(set(lower)) < len(lower):
        raise Flaw(f"headers must have at most {MAX_HEADERS} entries, each name once")
    for name, value in found.items():
        if not _HEADER_NAME.fullmatch(name):
            raise Flaw("headers must have names of letters, digits and -")
        if name.lower() in _FORBIDDEN or name.lower().startswith(_FORBIDDEN_BY_PREFIX):
            raise Flaw(f"headers must not have {name}")
        if _has_hidden_syntax(value) or len(value) > LONGEST_HEADER:
            raise Flaw(
                f"headers.{name} must be one line of {LONGEST_HEADER} characters at most, without =?…?="
            )
    return found


def check_subject(text: str) -> str:
    """A subject, or a Flaw."""
    if _has_hidden_syntax(text) or len(text) > LONGEST_SUBJECT:
        raise Flaw(f"subject must be one line of {LONGEST_SUBJECT} characters at most, without =?…?=")
    return text


def _has_hidden_syntax(text: str) -> bool:
    return bool(_CONTROLS.search(text) or _ENCODED.search(text))


def decode_attachment(number: int, filename: str, content_type: str, content: str) -> Attachment:
    """An attached file, or a Flaw; `content` is base64."""
    where = f"attachments[{number}]"
    if not filename or len(filename) > 200 or _has_hidden_syntax(filename) or re.search(r'[/\\"]', filename):
        raise Flaw(f"{where}.filename must be a plain name of 200 characters at most")
    kind = content_type.lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        raise Flaw(f"{where}.content_type must be a media type without parameters, such as application/pdf")
    try:
        return Attachment(filename, kind, base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError):
        raise Flaw(f"{where}.content must be base64") from None


def check_sizes(message: Message) -> None:
    """Raise a Flaw if the message has no content, no recipients, or exceeds a limit."""
    if not 1 <= len(message.recipients) <= MAX_RECIPIENTS:
        raise Flaw(f"to, cc and bcc must have 1 to {MAX_RECIPIENTS} addresses together")
    if not message.text and not message.html:
        raise Flaw("text or html is missing")
    if len(message.attachments) > MAX_ATTACHMENTS:
        raise Flaw(f"attachments must have at most {MAX_ATTACHMENTS} files")
    if sum(len(one.content) for one in message.attachments) > MAX_ATTACHMENT_BYTES:
        raise Flaw(f"attachments must have at most {MAX_ATTACHMENT_BYTES} bytes together")


def remove_addresses(text: str, mask: Mask | None = None) -> str:
    """The beginning of a mail server's reply, without secrets and email addresses."""
    said = _CONTROLS.sub(" ", shorten(text, LONGEST_SAID, mask))
    return re.sub(r"[^\s<>\"'(),;:]+@[^\s<>\"'(),;:]*", "…@…", said)
