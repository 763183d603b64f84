import re
import resource
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.handlers.output import LONGEST_LINE, MOST_HELD, CommandOutput, LatestLine
from fairlead.model.ansi import strip_ansi
from fairlead.model.secrets.redact import MASK, Mask
from tests.tables import each_case
from tests.thorough import mostly_thorough

SECRETS = ["hunter2-hunter2", "p@ss w/rd&1", "first line\nsecond line\n", "abcdabcd", "cdabcdef", "ééé€"]
FORMS = [*SECRETS, "p%40ss%20w%2Frd%261", "p%40ss+w%2Frd%261", r"first line\nsecond line\n", "second line"]
ESCAPES = "\x1b[31mred\x1b[0m\r"


class Stream:
    """An output and what it has told."""

    def __init__(
        self, *, tail: int = 65_536, cap: int = 1_048_576, secrets: Iterable[str] = (), **more: Any
    ) -> None:
        self.told: list[str] = []
        mask = Mask(secrets, more.pop("patterns", ())) if secrets or "patterns" in more else None
        self.output = CommandOutput(tail_bytes=tail, cap_bytes=cap, told=self.told.append, mask=mask, **more)

    def after(self, data: bytes, *cuts: int) -> str:
        """What is kept of this data, cut at these places."""
        at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for begin, end in pairwise(at):
            self.output.feed(data[begin:end])
        return self.output.end()


CUTS = st.lists(st.integers(0, 10_000), max_size=12)
SAID = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.text(max_size=20).map(str.encode),
        st.sampled_from([form.encode() for form in FORMS]),
        # secrets that are cut short, and others' ends
        st.tuples(st.sampled_from(FORMS), st.integers(0, 12), st.integers(0, 12)).map(
            lambda cut: cut[0].encode()[cut[1] :][: cut[2]]
        ),
        st.just(b"\n"),
    ),
    max_size=12,
).map(b"".join)


COLOURED = "".join(f"\x1b[{n % 8 + 30}m{letter}" for n, letter in enumerate(SECRETS[0]))


@given(cuts=CUTS, before=st.integers(0, 100), cap=st.integers(1, 400))
def test_a_secret_that_escapes_divide_is_masked_however_it_was_cut(
    cuts: list[int], before: int, cap: int
) -> None:
    for most in (1_048_576, cap):
        stream = Stream(secrets=SECRETS, cap=most, tail=60)

        kept = stream.after(("x" * before + COLOURED + "y" * 100).encode(), *cuts)

        for text in ("".join(stream.told), kept):
            shown = strip_ansi(text)
            assert not any(SECRETS[0][at : at + 3] in shown for at in range(13))


def test_endless_escapes_are_not_kept_for_a_secret_that_they_may_divide() -> None:
    stream = Stream(secrets=SECRETS[:1], cap=10_000_000)

    for _ in range(40):
        stream.output.feed(b"\x1b[0m" * 2_000)
        assert len(stream.output._held) < 10 * MOST_HELD
    stream.output.feed(b"h\x1b[0m")
    for _ in range(40):
        stream.output.feed(b"\x1b[0m" * 2_000)
        assert len(stream.output._held) < 10 * MOST_HELD
    stream.output.feed(b"unter2-\x1b[1mhunter2\n")

    assert "".join(stream.told).replace("\x1b[0m", "") == f"{MASK}\n"


@given(said=SAID, cuts=CUTS)
@example(said=b"abcdabcdef abcdabcdabcdef", cuts=[4, 9])
@example(said="…word2-hunter2\n".encode(), cuts=[1])
def test_what_is_told_is_the_whole_without_its_secrets_however_it_was_cut(
    said: bytes, cuts: list[int]
) -> None:
    stream = Stream(secrets=SECRETS)

    kept = stream.after(said, *cuts)

    whole = Mask(SECRETS).text(said.decode(errors="replace")).replace("\x00", "\\x00")
    assert "".join(stream.told) == kept == whole
    assert not any(form in whole for form in FORMS)


@given(said=SAID, cuts=CUTS, cap=st.integers(8, 200), tail=st.integers(2, 60))
@example(said=b"x" * 20 + b"hunter2-hunter2" + b"y" * 100, cuts=[], cap=30, tail=20)
@example(said=b"x" * 60 + b"hunter2-hunter2" + b"y" * 10, cuts=[66], cap=20, tail=30)
def test_no_cap_and_no_cut_leaves_a_piece_of_a_secret(
    said: bytes, cuts: list[int], cap: int, tail: int
) -> None:
    secret = SECRETS[0]
    said = said.replace(secret[:3].encode(), b"").replace(secret[-3:].encode(), b"")
    said = said[: len(said) // 2] + secret.encode() + said[len(said) // 2 :]
    stream = Stream(secrets=[secret], cap=cap, tail=tail)

    kept = stream.after(said, *cuts)

    for text in (kept, "".join(stream.told)):
        assert secret[:3] not in text
        assert secret[-3:] not in text


@each_case("after", range(120, 180))
def test_the_end_of_a_secret_whose_beginning_is_gone_is_not_kept(after: int) -> None:
    stream = Stream(secrets=["hunter2-hunter2"], cap=10, tail=200)

    kept = stream.after(b"x" * 1000 + (b"hunter2-hunter2" * 20) + b"y" * (after - 100), *range(0, 1400, 7))

    assert not re.search("unt|nte|ter|er2", kept)


@each_case("guessed", range(1, 15))
def test_a_guess_at_the_cap_tells_nothing_of_the_secret(guessed: int) -> None:
    """Where a text is cut does not depend on whether it ends with the beginning of the secret."""
    told = []
    for secret in ("hunter2-hunter2", "another-word-ab"):
        stream = Stream(secrets=[secret], cap=500, tail=100)
        kept = stream.after(b"x" * (500 - guessed) + b"hunter2-hunter2"[:guessed] + b"y" * 2000)
        told.append((kept, stream.told))

    assert told[0] == told[1]


def test_a_line_without_end_is_told_on_without_cutting_a_secret_in_two() -> None:
    stream = Stream(secrets=["hunter2-hunter2"])
    said = (b"x" * (MOST_HELD - 5) + b"hunter2-hunter2") * 3

    stream.after(said, *range(0, len(said), 1000))

    assert len(stream.told) >= 3
    assert "".join(stream.told) == ("x" * (MOST_HELD - 5) + MASK) * 3


def test_a_match_of_a_pattern_is_not_cut_in_two_in_a_line_without_end() -> None:
    stream = Stream(patterns=(re.compile(r"tok_\w+"),))
    said = b"x " * (MOST_HELD // 2) + b"tok_abcdefgh " + b"y" * MOST_HELD

    stream.after(said, MOST_HELD + 6)

    assert "cdefgh" not in "".join(stream.told)
    assert MASK in "".join(stream.told)


def test_lines_are_told_as_soon_as_they_are_whole() -> None:
    stream = Stream(secrets=["hunter2-hunter2"])

    stream.output.feed(b"one\ntwo\nthr")

    assert stream.told == ["one\ntwo\n"]


@given(
    said=st.text(max_size=300).map(lambda text: text.replace("\x00", "")),
    cuts=CUTS,
    tail=st.integers(1, 80),
    cap=st.integers(1, 200),
)
def test_the_head_and_the_tail_are_kept_and_the_bytes_between_are_counted(
    said: str, cuts: list[int], tail: int, cap: int
) -> None:
    whole = said.encode()
    half = tail // 2
    stream = Stream(tail=tail, cap=cap)

    kept = stream.after(whole, *cuts)

    if len(whole) <= 2 * half:
        assert kept == said
        return
    found = re.fullmatch(r"(?s)(.*)\n… (\d+) bytes dropped …\n(.*)", kept)
    assert found
    head, dropped, end = found[1].encode(), int(found[2]), found[3].encode()
    assert whole.startswith(head)
    assert whole.endswith(end)
    assert len(head) + dropped + len(end) == len(whole)
    # of a character that is cut in two, neither part is kept
    assert half - 3 <= len(head) <= half
    assert half - 3 <= len(end) <= half


@given(said=st.binary(max_size=400), cuts=CUTS, cap=st.integers(10, 300))
def test_no_more_than_the_cap_is_told(said: bytes, cuts: list[int], cap: int) -> None:
    stream = Stream(tail=10, cap=cap)

    stream.after(said.replace(b"\x00", b""), *cuts)

    told = "".join(stream.told)
    # what goes on behind the cap may be cut in the middle of a character
    assert said.replace(b"\x00", b"")[:cap].decode(errors="replace").startswith(told)
    assert len(told.replace("\ufffd", "")) <= cap


@each_case("said", [b"\xff\xfe\x00\x80", b"\xe2\x82", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xc0\xaf"])
def test_what_is_no_text_is_kept_as_far_as_it_is(said: bytes) -> None:
    for cut in range(len(said)):
        stream = Stream()
        assert stream.after(said, cut) == said.decode(errors="replace").replace("\x00", "\\x00")


def test_colours_and_carriage_returns_stay() -> None:
    assert Stream().after(ESCAPES.encode(), 3) == ESCAPES


@pytest.mark.parametrize(
    "line", mostly_thorough([b"line\n" * 13_107, b"x" * 65_536, bytes(range(256)) * 256])
)
def test_two_hundred_megabytes_take_no_room(line: bytes) -> None:
    stream = Stream(secrets=SECRETS, takes={"fairlead:result ": lambda _: None})
    stream.output.feed(line * 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(200 * 2**20 // len(line)):
        stream.output.feed(line)
    kept = stream.output.end()

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_192  # KiB
    assert len(kept.encode()) < 70_000
    assert sum(map(len, stream.told)) <= 3 * 1_048_576


# Lines for us


class Heard(list[str]):
    """Lines that were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = {"fairlead:result ": self.append, "fairlead:progress ": self.append}


@given(
    parts=st.lists(
        st.sampled_from(
            [
                b"fairlead:result {}\n",
                b"fairlead:progress 40\n",
                b"fairlead:",
                b"fair",
                b"fairlead:resul\n",
                b"see fairlead:result x\n",
                b"\n",
                b"text",
                b"fairlead:result at the end",
            ]
        ),
        max_size=8,
    ),
    cuts=CUTS,
)
def test_lines_for_us_are_heard_and_not_shown(parts: list[bytes], cuts: list[int]) -> None:
    said = b"".join(parts)
    heard = Heard()

    kept = Stream(takes=heard.takes).after(said, *cuts)

    lines = said.decode().split("\n")
    ours = [line for line in lines if line.startswith(tuple(heard.takes))]
    assert kept == _joined(lines, ours)
    # of those that come together only the last of a kind is heard, and the last of all always is
    told = [line.split(" ", 1)[1] for line in ours]
    assert set(heard) <= set(told)
    for prefix in heard.takes:
        last = [line.removeprefix(prefix) for line in ours if line.startswith(prefix)][-1:]
        assert not last or last[0] in heard


def _joined(lines: list[str], without: list[str]) -> str:
    kept = "".join(f"{line}\n" for line in lines[:-1] if line not in without)
    return kept + ("" if lines[-1] in without else lines[-1])


def test_a_result_is_heard_however_much_was_said_before_and_after_it() -> None:
    heard = Heard()

    Stream(tail=100, cap=1000, takes=heard.takes).after(
        b"x" * 100_000 + b"\nfairlead:result {}\n" + b"y" * 10**6
    )

    assert heard == ["{}"]


@pytest.mark.parametrize("size", [100, 20_000, 1_048_000])
def test_a_long_result_is_heard_whole(size: int) -> None:
    heard = Heard()
    said = b"fairlead:result " + b"z" * size + b"\nend"

    assert Stream(takes=heard.takes).after(said, *range(0, len(said), 7_000)) == "end"
    assert heard == ["z" * size]


def test_a_result_without_end_takes_no_room() -> None:
    heard = Heard()
    stream = Stream(takes=heard.takes)

    stream.output.feed(b"fairlead:result ")
    for _ in range(100):
        stream.output.feed(b"z" * 65_536)

    assert stream.after(b"\nend") == "end"
    assert len(heard[0]) < 1_200_000


@given(lines=st.lists(st.integers(0, 100), max_size=20), cuts=CUTS)
def test_of_progress_the_last_is_heard(lines: list[int], cuts: list[int]) -> None:
    heard: list[str] = []
    reader = LatestLine(heard.append)
    data = "".join(f"{line}\n" for line in lines).encode() + b"half"
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]

    for begin, end in pairwise(at):
        reader.feed(data[begin:end])

    assert heard[-1:] == [str(line) for line in lines[-1:]]


def test_a_line_of_progress_that_is_too_long_is_not_heard() -> None:
    heard: list[str] = []
    reader = LatestLine(heard.append)

    for _ in range(10):
        reader.feed(b"1" * (LONGEST_LINE // 4))
    reader.feed(b"50 end\n60\n")
    reader.feed(b"x" * 70_000 + b"\n")

    assert heard == ["60"]
