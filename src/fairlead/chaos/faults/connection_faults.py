"""Faults on the way to PostgreSQL and to the HTTP servers: reset, stalled and delayed connections, swallowed replies."""

import asyncio
from collections.abc import Sequence

from fairlead.chaos.faults.fault import FaultKind, FaultScene, NothingToHit
from fairlead.chaos.faults.proxy import FaultProxy, Proxies
from fairlead.chaos.history import now
from fairlead.chaos.stage import Stage

LOOK_SECONDS = 0.05
STALL_SECONDS = (0.5, 8.0)
DELAY_SECONDS = (2.0, 8.0)
# How long a chunk is delayed at most: a round trip has two chunks or more.
LONGEST_DELAY_SECONDS = 0.08
SWALLOW_SECONDS = 5.0


async def reset_connections(scene: FaultScene) -> None:
    """Reset some connections, or all."""
    proxy = scene.choose_proxy()
    share = scene.chance.choice([0.1, 0.3, 1.0])
    scene.mark()
    count = proxy.reset(share, scene.chance)
    scene.mark_over()
    _note_count(scene, count, "connections")


async def stall_connections(scene: FaultScene) -> None:
    """Let nothing through for a while, and close nothing; then go on, or reset."""
    proxy = scene.choose_proxy()
    share = scene.chance.choice([0.2, 0.5, 1.0])
    seconds, reset = scene.chance.uniform(*STALL_SECONDS), scene.chance.random() < 0.5
    scene.mark()
    count = proxy.stall(share, scene.chance)
    try:
        await scene.pause(seconds)
    finally:
        proxy.go_on(reset=reset)
        scene.mark_over()
    _note_count(scene, count, "connections")
    scene.notes.append("then reset" if reset else "then went on")


async def delay_connections(scene: FaultScene) -> None:
    """Delay each chunk of bytes for a while."""
    proxy = scene.choose_proxy()
    longest = scene.chance.uniform(0.005, LONGEST_DELAY_SECONDS)
    seconds = scene.chance.uniform(*DELAY_SECONDS)
    scene.mark()
    proxy.delay(0.0, longest)
    try:
        await scene.pause(seconds)
    finally:
        proxy.delay(0.0, 0.0)
        scene.mark_over()
    scene.notes.append(f"each chunk by up to {longest * 1000:.0f} ms")


async def swallow_commits(scene: FaultScene) -> None:
    """Let PostgreSQL commit, drop its reply, and reset the connection."""
    await _swallow(scene, [scene.proxies.postgres])


async def swallow_responses(scene: FaultScene) -> None:
    """Let a server do what a request asks for, drop its response, and reset the connection."""
    if not scene.proxies.http:
        raise NothingToHit("the run has no proxy in front of a server")
    await _swallow(scene, scene.proxies.http)


async def _swallow(scene: FaultScene, proxies: Sequence[FaultProxy]) -> None:
    """Swallow replies in each of these proxies until one has swallowed as many as wanted, or for some seconds."""
    scene.target = ", ".join(proxy.name for proxy in proxies)
    wanted, share = scene.chance.randint(1, 10), scene.chance.choice([1.0, 0.3, 0.1])
    scene.mark()
    for proxy in proxies:
        proxy.swallow(wanted, share)
    try:
        deadline = now() + SWALLOW_SECONDS
        while max(proxy.count_swallowed() for proxy in proxies) < wanted and now() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        count = sum(proxy.stop_swallowing() for proxy in proxies)
        scene.mark_over()
    _note_count(scene, count, "replies")


def _note_count(scene: FaultScene, count: int, what: str) -> None:
    if not count:
        raise NothingToHit(f"there were no {what}")
    scene.notes.append(f"{count} {what}")


def _needs_http_proxy(_stage: Stage, proxies: Proxies) -> str | None:
    return None if proxies.http else "the run has no proxy in front of a server"


CONNECTION_FAULTS = (
    FaultKind("reset_connections", "RST for some or all connections", "connections", reset_connections, 2),
    FaultKind(
        "stall_connections",
        "nothing comes through for a while, and nothing is closed; then it goes on, or RST",
        "connections",
        stall_connections,
    ),
    FaultKind("delay_connections", "each chunk of bytes is delayed", "connections", delay_connections),
    FaultKind(
        "swallow_commits",
        "PostgreSQL commits, and the client gets RST instead of the reply",
        "connections",
        swallow_commits,
        3,
    ),
    FaultKind(
        "swallow_responses",
        "a server does what was asked, and the client gets RST instead of the response",
        "connections",
        swallow_responses,
        2,
        _needs_http_proxy,
    ),
)
