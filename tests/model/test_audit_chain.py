"""Lines of an exported audit log: every change of them is found, and its first line is named."""

import json
import re
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import AuditExportInvalid, AuditKeyInvalid
from fairlead.model import audit_chain
from fairlead.model.audit_chain import ChainWriter, VerifiedExport, verify
from tests.tables import each_case

KEY = audit_chain.generate_key()
OTHER = audit_chain.generate_key()


def export(entries: int = 5, key: Ed25519PrivateKey = KEY, tenant: str = "acme") -> list[str]:
    chain = ChainWriter(key)
    lines = [chain.begin({"tenant": tenant})]
    lines += [
        chain.add({"action": f"A{n}", "details": {"text": 'ü","hash":"'}}) for n in range(1, entries + 1)
    ]
    return [*lines, chain.end()]


def read(lines: list[str], key: Ed25519PrivateKey = KEY) -> VerifiedExport:
    return verify([f"{line}\n".encode() for line in lines], key.public_key(), name="a.jsonl")


def refuse(lines: list[str], key: Ed25519PrivateKey = KEY) -> str:
    with pytest.raises(AuditExportInvalid) as refused:
        read(lines, key)
    assert refused.value.faults[0].path in refused.value.message
    return refused.value.message


def test_an_unchanged_export_is_verified() -> None:
    found = read(export())

    assert (found.entries, found.about["tenant"]) == (5, "acme")
    assert found.key == audit_chain.fingerprint(KEY.public_key())
    assert read(export(0)).entries == 0


def replace_line(at: int, change: Callable[[str], str]) -> list[str]:
    lines = export()
    return [*lines[:at], change(lines[at]), *lines[at + 1 :]]


@each_case(
    ("lines", "said"),
    [
        (replace_line(3, lambda line: line.replace("A3", "A9")), "line 4: entry 3 does not fit its hash"),
        (replace_line(0, lambda line: line.replace("acme", "evil")), "line 1: the first line does not fit"),
        (replace_line(2, lambda line: line + " "), "line 3: it was changed"),
        (replace_line(2, lambda _: "nonsense"), "line 3: it was changed"),
        (replace_line(2, lambda _: ""), "line 3: it was changed"),
        (replace_line(2, lambda _: "[]"), "line 3: it was changed"),
        (export()[:3] + export()[4:], "line 4: entry 3 was removed: entry 4 follows"),
        (export()[:5] + export()[6:], "line 6: it ends 5 entries, and 4 are here: lines were removed"),
        (export()[:-1], "line 7: the signed last line is missing"),
        (export()[1:], "line 1: the file does not begin with"),
        ([], "line 1: the file is empty"),
        ([*export()[:2], export()[3], export()[2], *export()[4:]], "line 3: entry 3 is here, where entry 2"),
        ([*export()[:4], export()[2], *export()[4:]], "line 5: entry 2 is here again"),
        ([*export(), export()[-1]], "line 8: it was added after the end"),
        ([*export()[:-1], export(4)[-1]], "line 7: it ends 4 entries"),
        ([*export()[:-1], export(tenant="umbrella")[-1]], "line 7: the signature is not that of the lines"),
        (
            replace_line(6, lambda line: line.replace('"entries":5', '"entries":6')),
            "line 7: the signature is wrong",
        ),
        (replace_line(0, lambda line: line.replace("audit/1", "audit/9")), "line 1: the format is"),
    ],
)
def test_the_first_wrong_line_is_named(lines: list[str], said: str) -> None:
    assert said in refuse(lines)


def test_another_key_and_a_forged_signature_are_refused() -> None:
    assert "line 7: it is signed with the key" in refuse(export(), OTHER)
    forged = export(key=OTHER)
    its, ours = (audit_chain.fingerprint(key.public_key()) for key in (OTHER, KEY))
    # a forger who names the right key in the last line still lacks it
    assert "line 7: the signature is wrong" in refuse([*forged[:-1], forged[-1].replace(its, ours)])


def test_a_change_with_all_hashes_written_anew_is_found_at_the_signature() -> None:
    chain = ChainWriter(OTHER)
    real = export()
    lines = [chain.begin({"tenant": "acme"})]
    lines += [chain.add({"action": "FORGED"}) for _ in range(5)]
    assert "line 7: the signature is not that of the lines before it" in refuse([*lines, real[-1]])


@given(st.data())
def test_any_changed_character_is_found(data: st.DataObject) -> None:
    text = "\n".join(export(3))
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.characters(exclude_characters=text[at], exclude_categories=["Cs"]))
    refuse((text[:at] + new + text[at + 1 :]).split("\n"))


def test_a_reader_without_fairlead_can_check_the_chain() -> None:
    import hashlib  # noqa: PLC0415 - all that the page asks a reader for

    before = "0" * 64
    for line in export()[:-1]:
        text, value = re.fullmatch(r'(.*),"hash":"([0-9a-f]{64})"\}', line).groups()  # type: ignore[union-attr]
        assert hashlib.sha256((before + text).encode()).hexdigest() == value
        before = value
    assert json.loads(export()[-1])["last"] == before


@each_case(
    "text", [b"", b"secret-text", b"-----BEGIN PRIVATE KEY-----\nsecret-text\n-----END PRIVATE KEY-----"]
)
def test_a_key_that_is_none_is_refused_without_being_quoted(text: bytes) -> None:
    for read_key in (audit_chain.read_private_key, audit_chain.read_public_key):
        with pytest.raises(AuditKeyInvalid) as refused:
            read_key(text)
        assert "secret-text" not in refused.value.message


def test_keys_survive_writing_and_reading() -> None:
    private = audit_chain.write_private_key(KEY)
    public = audit_chain.write_public_key(KEY.public_key())

    names = {audit_chain.fingerprint(audit_chain.read_public_key(text)) for text in (private, public)}
    assert names == {audit_chain.fingerprint(KEY.public_key())}
    with pytest.raises(AuditKeyInvalid, match="private key"):
        audit_chain.read_private_key(public)
