"""An upgrade while everything runs: first the database, beside processes of the earlier version, then one process at a time."""

from fairlead.chaos.faults.fault import FaultKind, FaultScene
from fairlead.chaos.faults.process_faults import needs_role, terminate
from fairlead.chaos.stage import Role, StagedProcess

MIGRATE_SECONDS = 120.0
READY_SECONDS = 120.0
# How long processes of the earlier version go on with the new functions.
OLD_SECONDS = (1.0, 5.0)
# In this order, as docs/how-to/upgrade.md has it.
ROLES: tuple[Role, ...] = ("server", "scheduler", "worker", "http_worker", "typescript_worker", "agent")


async def upgrade(scene: FaultScene) -> None:
    """Replace all stored functions, and then each process by another, which begins when the one before it works."""
    scene.target = "all processes"
    scene.mark()
    command = await scene.stage.start_command(
        "migrate", "up", environment={}, module="fairlead.chaos.faults.new_release"
    )
    code = await scene.wait_for_command(command, MIGRATE_SECONDS)
    scene.notes.append("the migration was killed" if code is None else f"the migration ended with {code}")
    await scene.pause(scene.chance.uniform(*OLD_SECONDS))
    for role in ROLES:
        for process in sorted(scene.stage.processes(role), key=lambda one: one.name):
            if scene.is_over:
                break
            await _replace(scene, process)
    scene.mark_over()


async def _replace(scene: FaultScene, process: StagedProcess) -> None:
    await process.wait_until_ready(READY_SECONDS)  # another fault may have ended it
    await terminate(scene, process)
    await process.wait_until_ready(READY_SECONDS)


UPGRADE_FAULTS = (
    FaultKind(
        "upgrade",
        "all stored functions are replaced, then each process by another, one at a time",
        "workers",
        upgrade,
        why_not=needs_role("worker"),
    ),
)
