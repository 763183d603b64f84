"""The functions of token buckets against a simple model with fractions."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
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


TOKENS = (
    "fairlead.tokens_in(%(tokens)s, %(counted_at)s::timestamptz, %(rate)s::jsonb, %(moment)s::timestamptz)"
)
NEXT = "fairlead.next_token_at(%(tokens)s, %(counted_at)s::timestamptz, %(rate)s::jsonb, 1)"


@pytest.mark.deeper
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rate=rates, steps=steps)
async def test_a_bucket_is_as_full_as_the_model(tx: Tx, rate: Rate, steps: list[tuple[int, int]]) -> None:
    text = json.dumps({"limit": rate.limit, "per_seconds": rate.per_seconds, "burst": rate.burst})
    bucket, moment = Bucket(rate), START
    state = {"tokens": float("inf"), "counted_at": START, "rate": text}
    for pause, wanted in steps:
        moment += pause * MICROSECOND
        bucket.wait(pause)
        found = await ask(tx, TOKENS, **state, moment=moment)
        assert abs(Fraction(found) - bucket.tokens) < Fraction(1, 10**6)
        taken = min(floor(found + 1e-9), wanted)
        if taken < 1:
            opens = await ask(tx, NEXT, **state)
            assert opens > moment
            assert await ask(tx, TOKENS, **state, moment=opens) >= 1 - 1e-9
            # a billionth of a token is not missed
            early = (2 + ceil(Fraction(2, 10**9) / bucket.per_microsecond)) * MICROSECOND
            assert await ask(tx, TOKENS, **state, moment=opens - early) < 1
            continue
        bucket.take(taken)
        state |= {"tokens": found - taken, "counted_at": moment}


@pytest.mark.deeper
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(after=rates, pause=st.integers(0, 10**8), left=st.integers(0, 20))
async def test_a_changed_rate_begins_with_the_tokens_that_were_left(
    tx: Tx, after: Rate, pause: int, left: int
) -> None:
    bucket = Bucket(after)
    bucket.tokens = min(bucket.burst, Fraction(left))
    bucket.wait(pause)
    text = json.dumps({"limit": after.limit, "per_seconds": after.per_seconds, "burst": after.burst})
    state = {"tokens": float(left), "counted_at": START, "rate": text}
    found = await ask(tx, TOKENS, **state, moment=START + pause * MICROSECOND)
    assert abs(Fraction(found) - bucket.tokens) < Fraction(1, 10**6)
