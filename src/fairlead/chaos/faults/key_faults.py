"""The keys that seal secrets are rotated, by the product's own command, while jobs with secrets are enqueued, edited and run."""

from fairlead.chaos.faults.fault import FaultKind, FaultScene
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.site.master_keys import build_key_environment
from fairlead.chaos.stage import Stage

# A rotation waits for a minute, until no process seals with an earlier key.
ROTATE_SECONDS = 150.0
# The share of rotations that are killed, and when: the next one goes on with them.
KILLED = 0.3
KILL_SECONDS = (0.5, 70.0)


async def rotate_keys(scene: FaultScene) -> None:
    """Give each tenant a new data key, and wrap all with one of the master keys, which all processes have."""
    stage = scene.stage
    first = scene.chance.randrange(len(stage.master_keys))
    environment = build_key_environment([*stage.master_keys[first:], *stage.master_keys[:first]])
    is_killed = scene.chance.random() < KILLED
    seconds = scene.chance.uniform(*KILL_SECONDS) if is_killed else ROTATE_SECONDS
    scene.target = "the data keys"
    scene.mark()
    command = await stage.start_command("keys", "rotate", "--data", environment=environment)
    code = await scene.wait_for_command(command, seconds)
    scene.mark_over()
    scene.notes.append(
        f"after {scene.over_at - scene.at:.1f} s " + ("killed" if code is None else f"ended with {code}")
    )


def _needs_keys(stage: Stage, _proxies: Proxies) -> str | None:
    return None if stage.master_keys else "the run has no master keys"


KEY_FAULTS = (
    FaultKind(
        "rotate_keys",
        "fairlead keys rotate --data, with the other master key, and sometimes killed",
        "keys",
        rotate_keys,
        why_not=_needs_keys,
    ),
)
