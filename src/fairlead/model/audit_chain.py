"""The format of an exported audit log: lines of JSON in a hash chain, whose last line is signed.

The first line describes the export, each following line is an entry, and the last line ends the file. Each line but the
last ends with its hash: SHA-256 of the hash before it and of the line's own text up to `,"hash"`. The last line has the
number of entries and the last hash, and ends with an Ed25519 signature of the format's name, a line feed, and its own text
up to `,"signature"`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from fairlead.errors import AuditExportInvalid, AuditKeyInvalid, Fault
from fairlead.model.ansi import escape_json

FORMAT = "fairlead-audit/1"
FIRST_HASH = "0" * 64

_HASHED = re.compile(r'(?P<text>\{.*),"hash":"(?P<value>[0-9a-f]{64})"\}', re.DOTALL)
_SIGNED = re.compile(r'(?P<text>\{.*),"signature":"(?P<value>[A-Za-z0-9+/]{86}==)"\}', re.DOTALL)


# Keys


def generate_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def read_private_key(text: bytes) -> Ed25519PrivateKey:
    """The private key in a PEM text; AuditKeyInvalid never quotes it."""
    try:
        key = load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuditKeyInvalid(
            "The key is not an unencrypted private key in PEM form. Make one with: fairlead audit key FILE"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise AuditKeyInvalid("The key is not an Ed25519 key. Make one with: fairlead audit key FILE")
    return key


def read_public_key(text: bytes) -> Ed25519PublicKey:
    """The public key in a PEM text, or that of the private key in it."""
    if b"PRIVATE KEY" in text:
        return read_private_key(text).public_key()
    try:
        key = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise AuditKeyInvalid(
            "The key is not a public key in PEM form. Use the .pub file of: fairlead audit key"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise AuditKeyInvalid("The key is not an Ed25519 key. Use the .pub file of: fairlead audit key")
    return key


def write_private_key(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_public_key(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(key: Ed25519PublicKey) -> str:
    """The name of a key: the beginning of the SHA-256 of its 32 bytes."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:32]


# Writing


class ChainWriter:
    """Builds the lines of an export, one after the other."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_name = fingerprint(key.public_key())
        self.hash = FIRST_HASH
        self.entries = 0

    def begin(self, about: dict[str, Any]) -> str:
        """The first line: what is exported."""
        return self._add({"type": "audit", "format": FORMAT, "key": self.key_name, **about})

    def add(self, entry: dict[str, Any]) -> str:
        """The line of the next entry."""
        self.entries += 1
        return self._add({"type": "entry", "n": self.entries, **entry})

    def end(self) -> str:
        """The signed last line."""
        text = _encode({"type": "end", "entries": self.entries, "last": self.hash, "key": self.key_name})[:-1]
        signature = base64.b64encode(self._key.sign(_signed_bytes(text))).decode()
        return f'{text},"signature":"{signature}"}}'

    def _add(self, value: dict[str, Any]) -> str:
        text = _encode(value)[:-1]
        self.hash = _hash_line(self.hash, text)
        return f'{text},"hash":"{self.hash}"}}'


def _encode(value: dict[str, Any]) -> str:
    return escape_json(msgspec.json.encode(value).decode())


def _hash_line(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}{text}".encode()).hexdigest()


def _signed_bytes(text: str) -> bytes:
    return f"{FORMAT}\n{text}".encode()


# Reading


class VerifiedExport(NamedTuple):
    """What a verified export says."""

    about: dict[str, Any]
    entries: int
    last_hash: str
    key: str


class _Line(NamedTuple):
    number: int
    text: str
    value: dict[str, Any]
    proof: str


def verify(lines: Iterable[bytes], key: Ed25519PublicKey, *, name: str) -> VerifiedExport:
    """Check each line of an export and its signature. AuditExportInvalid names the first line that is wrong."""
    reader = _Reader(name, iter(lines))
    first = reader.read_line()
    if first is None:
        raise reader.error("the file is empty")
    if first.value.get("type") != "audit":
        raise reader.error(f"the file does not begin with the first line of an export, {FORMAT}")
    if first.value.get("format") != FORMAT:
        raise reader.error(f"the format is {first.value.get('format')!r}; this version reads {FORMAT}")
    before = reader.check_hash(FIRST_HASH, first, "the first line")
    entries = 0
    while (line := reader.read_line()) is not None:
        if line.value.get("type") == "end":
            reader.check_end(line, entries=entries, last=before, key=key)
            return VerifiedExport(first.value, entries, before, fingerprint(key))
        entries += 1
        reader.check_place(line, entries)
        before = reader.check_hash(before, line, f"entry {entries}")
    raise reader.error(
        "the signed last line is missing: lines were removed from the end, or the export was interrupted"
    )


class _Reader:
    """Reads an export line by line, and says what is wrong with one."""

    def __init__(self, name: str, lines: Iterator[bytes]) -> None:
        self._name = name
        self._lines = lines
        self._number = 0

    def error(self, why: str) -> AuditExportInvalid:
        where = f"line {max(self._number, 1)}"
        return AuditExportInvalid(f"{self._name}, {where}: {why}.", [Fault(where, why)])

    def read_line(self) -> _Line | None:
        """The next line, or None at the end of the file."""
        raw = next(self._lines, None)
        self._number += 1
        if raw is None:
            return None
        line = self._parse(raw)
        if line is None:
            raise self.error("it was changed: it is not a line of an export")
        return line

    def _parse(self, raw: bytes) -> _Line | None:
        try:
            text = raw.removesuffix(b"\n").decode()
            value = msgspec.json.decode(text)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        if not isinstance(value, dict):
            return None
        found = (_SIGNED if value.get("type") == "end" else _HASHED).fullmatch(text)
        return None if found is None else _Line(self._number, found["text"], value, found["value"])

    def check_place(self, line: _Line, expected: int) -> None:
        """Whether the line is the entry that is expected: otherwise entries were removed, reordered or added."""
        n = line.value.get("n")
        if n == expected and line.value.get("type") == "entry":
            return
        if not isinstance(n, int) or line.value.get("type") != "entry":
            raise self.error(f"it was changed: entry {expected} is expected here")
        if n < expected:
            raise self.error(
                f"entry {n} is here again, where entry {expected} is expected: lines were reordered"
            )
        wrong = self.error(f"entry {n} is here, where entry {expected} is expected: lines were reordered")
        lost = self.error(f"entry {expected} was removed: entry {n} follows")
        raise wrong if self._follows(expected) else lost

    def _follows(self, n: int) -> bool:
        parsed = (self._parse(raw) for raw in self._lines)
        return any(line is not None and line.value.get("n") == n for line in parsed)

    def check_hash(self, before: str, line: _Line, what: str) -> str:
        """The line's hash, if it is the right one after the hash before it."""
        if _hash_line(before, line.text) != line.proof:
            raise self.error(
                f"{what} does not fit its hash: it was changed, or the line before it was and got a new hash"
            )
        return line.proof

    def check_end(self, line: _Line, *, entries: int, last: str, key: Ed25519PublicKey) -> None:
        """Whether the last line is signed with the key, belongs to the lines before it, and is the last."""
        if line.value.get("key") != fingerprint(key):
            raise self.error(
                f"it is signed with the key {line.value.get('key')!r}, not with {fingerprint(key)!r}: "
                "use that public key, if you trust it"
            )
        try:
            key.verify(base64.b64decode(line.proof, validate=True), _signed_bytes(line.text))
        except (InvalidSignature, binascii.Error):
            raise self.error(
                "the signature is wrong: the last line was changed, or the key did not sign it"
            ) from None
        if line.value.get("entries") != entries:
            raise self.error(
                f"it ends {line.value.get('entries')} entries, and {entries} are here: lines were removed"
            )
        if line.value.get("last") != last:
            raise self.error(
                "the signature is not that of the lines before it: one of them was changed, with all hashes after it"
            )
        if next(self._lines, None) is not None:
            self._number += 1
            raise self.error("it was added after the end")
