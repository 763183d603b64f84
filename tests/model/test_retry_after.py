from datetime import UTC, datetime

from fairlead.model.messages.retry_after import parse_retry_after
from tests.tables import each_case

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@each_case(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("999999999999999999", 86_400.0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("", None),
    ],
)
def test_a_server_says_seconds_or_a_time(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, NOW) == seconds
