"""The functions of token buckets against a simple model with fractions: they never allow more, and lose next to nothing."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.db.tx import Tx
from fairlead.model.flow import Rate
from tests.thorough import examples

START = datetime(2026, 11, 17, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# Not so slow that a bucket is full only in thousands of years.
rates = st.builds(Rate, st.integers(1, 1_000_000), st.integers(1, 2_592_000), st.integers(1, 10_000)).filter(
    lambda rate: Fraction(rate.per_seconds, rate.limit) * (rate.burst or 1) < 10**9
)
# How long after the last start the next one is tried, in microseconds, and how many tokens it wants.
steps = st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 50)), min_size=1, max_size=8)


class Bucket:
    """Exact tokens at a moment."""

    def __init__(self, rate: Rate) -> None:
        assert rate.burst is not None
        self.per_microsecond = Fraction(rate.limit, rate.per_seconds * 1_000_000)
        self.burst = Fraction(rate.burst)
        self.tokens = self.burst

    def wait(self, microseconds: int) -> None:
        self.tokens = min(self.burst, self.tokens + microseconds * self.per_microsecond)

    def take(self, number: int) -> None:
        self.tokens -= number


async def ask(tx: Tx, expression: str, **values: Any) -> Any:
    [(found,)] = await tx.values(f"select {expression}", values)
    return found


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rate=rates, steps=steps)
async def test_a_bucket_is_never_ahead_of_the_model(tx: Tx, rate: Rate, steps: list[tuple[int, int]]) -> None:
    text = json.dumps({"limit": rate.limit, "per_seconds": rate.per_seconds, "burst": rate.burst})
    bucket, moment, full_at = Bucket(rate), START, START - timedelta(days=1)
    # each start is rounded up to a microsecond
    lost = Fraction(0)
    for pause, wanted in steps:
        moment += pause * MICROSECOND
        bucket.wait(pause)
        found = await ask(
            tx,
            "fairlead.tokens_in(%(full_at)s::timestamptz, %(rate)s::jsonb, %(moment)s::timestamptz)",
            full_at=full_at,
            rate=text,
            moment=moment,
        )
        slack = Fraction(1, 10**6) + lost
        assert found <= bucket.tokens + Fraction(1, 10**6)
        assert found >= max(0, floor(bucket.tokens - slack))
        taken = min(found, wanted)
        if not taken:
            opens = await ask(
                tx,
                "fairlead.next_token_at(%(full_at)s::timestamptz, %(rate)s::jsonb, 0)",
                full_at=full_at,
                rate=text,
            )
            assert opens > moment
            # a billionth of a token is not missed
            early = (2 + ceil(Fraction(2, 10**9) / bucket.per_microsecond)) * MICROSECOND
            for at, least in ((opens + 2 * MICROSECOND, 1), (opens - early, 0)):
                tokens = await ask(
                    tx,
                    "fairlead.tokens_in(%(full_at)s::timestamptz, %(rate)s::jsonb, %(moment)s::timestamptz)",
                    full_at=full_at,
                    rate=text,
                    moment=at,
                )
                assert tokens >= least if least else tokens <= 0
            continue
        full_at = await ask(
            tx,
            "fairlead.full_at_after(%(full_at)s::timestamptz, %(rate)s::jsonb, %(taken)s, %(moment)s::timestamptz)",
            full_at=full_at,
            rate=text,
            taken=taken,
            moment=moment,
        )
        bucket.take(taken)
        lost += 2 * bucket.per_microsecond
        assert full_at > moment
