"""Escape sequences are taken out, whole ones and those that come in pieces; nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.ansi import AnsiStripper, strip_ansi
from tests.tables import each_case

SEQUENCES = [
    "\x1b[31m",
    "\x1b[1;38;5;208m",
    "\x1b[2K",
    "\x1b[?25l",
    "\x1b]0;a title\x07",
    "\x1b]8;;http://example.org\x1b\\",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1bP1$r0m\x1b\\",
    "\x1b(B",
    "\x1b7",
    "\x1bc",
    "\x9b31m",
    "\x9d0;t\x9c",
]


@each_case("sequence", SEQUENCES)
def test_a_sequence_is_taken_out_and_what_is_around_it_stays(sequence: str) -> None:
    assert strip_ansi(f"before {sequence}after\n") == "before after\n"


@each_case("sequence", SEQUENCES)
def test_a_sequence_that_is_cut_between_two_chunks_is_taken_out(sequence: str) -> None:
    for cut in range(1, len(sequence)):
        stream = AnsiStripper()
        assert stream.text(f"a{sequence[:cut]}") + stream.text(f"{sequence[cut:]}b") == "ab", cut


def test_a_string_without_an_end_takes_its_line_only() -> None:
    assert strip_ansi("a\x1b]0;title\nb") == "a\nb"


def test_what_waits_for_its_end_is_bounded() -> None:
    stream = AnsiStripper()
    for _ in range(100):
        stream.text("\x1b]0;" + "x" * 1000)
    assert len(stream._held) <= 2_048


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.integers(0, 20))
def test_plain_text_stays_as_it_is_however_it_is_cut(text: str, cut: int) -> None:
    stream = AnsiStripper()
    assert stream.text(text[:cut]) + stream.text(text[cut:]) == text


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\P\x9b a(\n")))
def test_no_escape_is_ever_left(text: str) -> None:
    assert not {"\x1b", "\x9b"} & set(strip_ansi(text))
