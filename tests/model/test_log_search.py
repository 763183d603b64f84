"""The search in a log finds what the viewer shows."""

from datetime import UTC, datetime

from fairlead.model.log import Chunk
from fairlead.model.log_search import ChunkMatches, LineSearch

ALL = ("stdout", "stderr", "log")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def chunk(seq: int, text: str, *, stream: str = "stdout", attempt_no: int = 1) -> Chunk:
    return Chunk(attempt_no=attempt_no, seq=seq, stream=stream, at=AT, text=text)


def found(wanted: str, *chunks: Chunk, streams: tuple[str, ...] = ALL) -> list[tuple[int, int, int]]:
    search = LineSearch(wanted, streams)
    for one in chunks:
        search.add([one])
    return [(one.attempt_no, one.seq, one.count) for one in search.matches()]


def test_matches_are_counted_in_any_case_at_the_chunk_in_which_their_line_begins() -> None:
    assert found("needle", chunk(1, "Needle needle\nnothing\nNEEDLE\n"), chunk(2, "hay\n")) == [(1, 1, 3)]
    assert found("needle", chunk(1, "hay\nnee"), chunk(2, "dle\nneedle\n")) == [(1, 1, 1), (1, 2, 1)]


def test_a_line_ends_where_another_stream_or_attempt_begins() -> None:
    assert found("needle", chunk(1, "nee"), chunk(2, "dle", stream="stderr")) == []
    assert found("needle", chunk(1, "nee"), chunk(1, "dle", attempt_no=2)) == []


def test_colours_inside_a_match_do_not_hide_it() -> None:
    assert found("needle", chunk(1, "nee\x1b[3"), chunk(2, "1mdle\x1b[0m")) == [(1, 1, 1)]


def test_lines_of_other_streams_do_not_count() -> None:
    chunks = [chunk(1, "needle\n"), chunk(2, "needle\n", stream="stderr")]
    assert found("needle", *chunks, streams=("stderr",)) == [(1, 2, 1)]
    assert found("needle", *chunks, streams=()) == []


def test_nothing_is_found_in_nothing() -> None:
    assert LineSearch("a", ALL).matches() == list[ChunkMatches]()
    assert found("", chunk(1, "needle\n")) == []
