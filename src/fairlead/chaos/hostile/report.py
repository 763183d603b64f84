"""What a run has shown: the victims alone and beside the attackers, and what exceeds the bounds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fairlead.chaos.hostile.attacker import SentRecord
from fairlead.chaos.hostile.victims import Answered
from fairlead.chaos.spread import Spread, measure_spread

# A victim's p99 beside attackers: this many times its p99 alone, or this many seconds if that is more.
MOST_TIMES = 3.0
LEAST_SECONDS = 0.25
# How long a victim's job may wait for a worker, and its event for a job.
MOST_WAIT_SECONDS = 2.0
MOST_MEMORY = 500 << 20
RECOVERY_SECONDS = 5.0


class HostileResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a run."""

    seed: int
    seconds: float
    alone: Spread
    beside: Spread
    # by route: beside attackers
    routes: dict[str, Spread]
    waits_of_jobs: Spread
    waits_of_events: Spread
    # the answers to victims that were no success, and their number
    refused: dict[str, int]
    # processes that ended and were started again
    restarts: dict[str, int]
    # the most memory of each process, in bytes
    memory: dict[str, int]
    recovered_after: float
    sent: int
    # how often attackers got each status; 0: no answer
    answers: dict[int, int]
    attacks: dict[str, int]
    # what attackers had under way when victims waited longest
    suspects: dict[str, int]
    # the longest that one step held the server's event loop
    longest_step: float
    findings: list[str] = []


def find_excesses(result: HostileResult) -> list[str]:
    """What exceeds the bounds."""
    findings = []
    bound = max(MOST_TIMES * result.alone.p99, LEAST_SECONDS)
    if result.beside.p99 > bound:
        findings.append(f"p99 of victims: {result.beside.p99:.3f} s, more than {bound:.3f} s")
    for what, spread in (("jobs", result.waits_of_jobs), ("events", result.waits_of_events)):
        if spread.longest > MOST_WAIT_SECONDS:
            findings.append(
                f"a victim's {what} waited {spread.longest:.2f} s, more than {MOST_WAIT_SECONDS:g} s"
            )
    findings += [f"victims got {answer}, {number} times" for answer, number in result.refused.items()]
    findings += [f"{name} ended, {number} times" for name, number in result.restarts.items()]
    findings += [
        f"{name} had {size >> 20} MB, more than {MOST_MEMORY >> 20} MB"
        for name, size in result.memory.items()
        if size > MOST_MEMORY
    ]
    if result.recovered_after > RECOVERY_SECONDS:
        findings.append(
            f"all was well {result.recovered_after:.1f} s after the attack, not within {RECOVERY_SECONDS:g} s"
        )
    return findings


def find_recovery(answers: Sequence[Answered], ended_at: float, bound: float) -> float:
    """How long after the end of the attack the p99 of what a victim got was past the bound.

    As the bar is one of the p99, one answer in a hundred of those that came afterwards may be late.
    """
    afterwards = [answer for answer in answers if answer.at + answer.seconds > ended_at]
    late = sorted(answer.at + answer.seconds - ended_at for answer in afterwards if answer.seconds > bound)
    allowed = len(afterwards) // 100
    return late[-1 - allowed] if len(late) > allowed else 0.0


def find_suspects(slow: Sequence[Answered], sent: Sequence[SentRecord], most: int = 12) -> dict[str, int]:
    """What was under way, by name, when victims waited longest."""
    found = Counter[str]()
    for answer in sorted(slow, key=lambda one: -one.seconds)[:20]:
        ended = answer.at + answer.seconds
        found.update(
            {one.name.partition("?")[0] for one in sent if one.began < ended and one.ended > answer.at}
        )
    return dict(found.most_common(most))


def read_sent(folder: Path) -> list[SentRecord]:
    """What the attackers have sent."""
    found = []
    for file in sorted(folder.glob("sent-*.jsonl")):
        lines = file.read_bytes().splitlines()
        found += [msgspec.json.decode(line, type=SentRecord) for line in lines if line.endswith(b"}")]
    return found


def render(result: HostileResult) -> str:
    """The result as text."""
    lines = [
        f"seed {result.seed}, {result.seconds:.0f} s: {result.sent:,} requests of attackers, {sum(result.attacks.values())} attacks",
        f"{'':24}{'number':>8}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'longest':>9}",
        _render_spread("victims alone", result.alone),
        _render_spread("victims beside attackers", result.beside),
        *(_render_spread(f"  {name[:21]}", spread) for name, spread in sorted(result.routes.items())),
        _render_spread("their jobs wait", result.waits_of_jobs),
        _render_spread("their events wait", result.waits_of_events),
        f"memory: {_render_sizes(result.memory)}",
        f"the longest step of a request: {result.longest_step * 1000:.0f} ms",
        f"answers to attackers: {', '.join(f'{status}: {number:,}' for status, number in sorted(result.answers.items()))}",
        f"well again after: {result.recovered_after:.1f} s",
    ]
    if result.suspects:
        lines.append(f"under way when victims waited longest: {', '.join(result.suspects)}")
    lines += [f"FINDING: {finding}" for finding in result.findings] or ["nothing is wrong"]
    return "\n".join(lines)


def _render_spread(name: str, spread: Spread) -> str:
    times = (spread.p50, spread.p95, spread.p99, spread.longest)
    return f"{name:24}{spread.number:8,}" + "".join(f"{seconds * 1000:9.0f}" for seconds in times)


def _render_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size >> 20} MB" for name, size in sizes.items())


def measure_answers(answers: Sequence[Answered]) -> Spread:
    """How the durations of these answers are spread."""
    return measure_spread([answer.seconds for answer in answers])
