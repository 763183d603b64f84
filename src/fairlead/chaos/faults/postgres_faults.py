"""Faults of the whole PostgreSQL: killed, shut down at once, without space, and with a slow disk."""

import signal

from fairlead.chaos.faults.fault import FaultKind, FaultScene, Inject, NothingToHit
from fairlead.chaos.faults.preloaded import find_obstacle
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.stage import Stage, StagedSlowDisk

DOWN_SECONDS = (0.0, 3.0)
FULL_SECONDS = (2.0, 6.0)
# How long each sync takes, and how long it does so.
SYNC_SECONDS = (0.02, 0.1, 0.4)
SLOW_SECONDS = (5.0, 15.0)


def end_postgres(number: int) -> Inject:
    """Send a signal to the postmaster, and start PostgreSQL again after a while."""

    async def inject(scene: FaultScene) -> None:
        postgres = scene.stage.postgres
        if postgres is None:
            raise NothingToHit("the run has no PostgreSQL of its own")
        scene.target = "postgres"
        scene.mark()
        try:
            await postgres.kill(number)
            await scene.pause(scene.chance.uniform(*DOWN_SECONDS))
        finally:
            await postgres.start()
            scene.mark_over()

    return inject


async def fill_disk(scene: FaultScene) -> None:
    """Leave no space to PostgreSQL for a while. If it does not survive that, it is started again."""
    disk, postgres = scene.stage.disk, scene.stage.postgres
    if disk is None or postgres is None:
        raise NothingToHit("the run has no disk that it may fill")
    scene.target = "postgres"
    before = postgres.pid
    scene.mark()
    try:
        disk.fill()
        await scene.pause(scene.chance.uniform(*FULL_SECONDS))
    finally:
        disk.free()
        await postgres.start()
        scene.mark_over()
    if postgres.pid != before:
        scene.notes.append("PostgreSQL had ended and was started again")


async def slow_down_disk(scene: FaultScene) -> None:
    """Let each sync and write of PostgreSQL take long for a while: commits wait, and nothing fails."""
    slow = _find_slow_disk(scene.stage)
    if slow is None:
        raise NothingToHit("the run has no disk that can get slow")
    seconds = scene.chance.choice(SYNC_SECONDS)
    scene.target = "postgres"
    scene.notes.append(f"each sync takes {seconds:g} s")
    scene.mark()
    try:
        slow.delay(seconds)
        await scene.pause(scene.chance.uniform(*SLOW_SECONDS))
    finally:
        slow.delay(0)
        scene.mark_over()


def _find_slow_disk(stage: Stage) -> StagedSlowDisk | None:
    return stage.postgres.slow_disk if stage.postgres else None


def _needs_slow_disk(stage: Stage, proxies: Proxies) -> str | None:
    if _find_slow_disk(stage) is not None:
        return None
    return _needs_postgres(stage, proxies) or find_obstacle() or "its library cannot be compiled"


def _needs_postgres(stage: Stage, _proxies: Proxies) -> str | None:
    return None if stage.postgres else "the PostgreSQL of the run is the user's"


def _needs_disk(stage: Stage, proxies: Proxies) -> str | None:
    if stage.disk is None:
        return (
            _needs_postgres(stage, proxies)
            or "a file system could not be mounted, for which one must be root"
        )
    return None


POSTGRES_FAULTS = (
    FaultKind(
        "kill_postgres",
        "SIGKILL of the postmaster, then a start",
        "postgres",
        end_postgres(signal.SIGKILL),
        why_not=_needs_postgres,
    ),
    FaultKind(
        "restart_postgres",
        "immediate shutdown (SIGQUIT), then a start",
        "postgres",
        end_postgres(signal.SIGQUIT),
        why_not=_needs_postgres,
    ),
    FaultKind(
        "disk_full", "no space for PostgreSQL for some seconds", "postgres", fill_disk, why_not=_needs_disk
    ),
    FaultKind(
        "slow_disk",
        "each fsync, fdatasync and write of PostgreSQL takes long for some seconds",
        "postgres",
        slow_down_disk,
        why_not=_needs_slow_disk,
    ),
)
