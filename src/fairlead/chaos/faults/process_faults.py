"""Faults of processes: killed, stopped for a while, asked to end, and killed at a named point."""

import signal

from fairlead.chaos.faults import fail_points
from fairlead.chaos.faults.fault import FaultKind, FaultScene, Inject, Lane, WhyNot
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.scenario import SWEEP_SECONDS
from fairlead.chaos.stage import Role, Stage

WORKERS: tuple[Role, ...] = ("worker", "http_worker", "typescript_worker", "agent")
# A worker that is asked to end gives its jobs back after `drain_seconds`, which is 30 by default.
DRAIN_SECONDS = 50.0
# How long a process that works, and one that starts, may take to reach its fail point before it is killed without it.
REACH_SECONDS = 10.0
START_SECONDS = 60.0


def kill(role: Role) -> Inject:
    """Send SIGKILL to one process of a role."""

    async def inject(scene: FaultScene) -> None:
        process = scene.choose_process(role)
        pid = process.pid
        scene.pids.append(pid)
        scene.mark()
        process.signal(signal.SIGKILL)
        await scene.wait_until_gone(process, pid)
        scene.mark_over()
        scene.recovering = process

    return inject


def stop(role: Role) -> Inject:
    """Send SIGSTOP to one process of a role, and SIGCONT after a time that is shorter or longer than the lease."""

    async def inject(scene: FaultScene) -> None:
        process = scene.choose_process(role)
        # a stop shorter than the lease goes unnoticed; after a longer one, another worker has the jobs
        lease = scene.stage.lease_seconds
        bounds = scene.chance.choice([(0.3, lease * 0.6), (lease + 0.5, lease + SWEEP_SECONDS + 3.0)])
        seconds = scene.chance.uniform(*bounds)
        scene.pids.append(process.pid)
        scene.mark()
        process.signal(signal.SIGSTOP)
        try:
            await scene.pause(seconds)
        finally:
            process.signal(signal.SIGCONT)
            scene.mark_over()
        scene.notes.append(f"stopped for {scene.over_at - scene.at:.1f} s")

    return inject


async def terminate_worker(scene: FaultScene) -> None:
    """Ask a worker to end while it is busy; it must end by itself."""
    process = scene.choose_process("worker")
    pid = process.pid
    scene.pids.append(pid)
    scene.mark()
    process.signal(signal.SIGTERM)
    if not await scene.ends_within(process, pid, DRAIN_SECONDS):
        scene.notes.append(f"it still ran {DRAIN_SECONDS:.0f} s after SIGTERM, and was killed")
        process.signal(signal.SIGKILL)
        await scene.wait_until_gone(process, pid)
    scene.mark_over()
    scene.recovering = process


def kill_at(point: str) -> Inject:
    """Kill a worker and start it again with a fail point; its process records its own end there."""

    async def inject(scene: FaultScene) -> None:
        process = scene.choose_process("worker", "http_worker")
        probability = scene.chance.choice([1.0, 0.3, 0.1])
        # the fault at the fail point has a record of its own
        scene.kind = f"kill_{process.role}"
        scene.pids.append(process.pid)
        scene.notes.append(
            f"its successor dies {point.replace('_', ' ')} with a probability of {probability}"
        )
        scene.mark()
        process = await scene.stage.restart(process, {fail_points.VARIABLE: f"{point}:{probability}"})
        scene.mark_over()
        scene.recovering = process
        pid = process.pid
        if not await scene.ends_within(process, pid, START_SECONDS, or_is_ready=True) and not (
            await scene.ends_within(process, pid, REACH_SECONDS)
        ):
            scene.notes.append("it did not get there, and was killed")
            scene.pids.append(pid)
            process.signal(signal.SIGKILL)
            await scene.wait_until_gone(process, pid)

    return inject


def needs_role(role: Role) -> WhyNot:
    """For a fault of a role: the run must have such a process."""

    def why_not(stage: Stage, _proxies: Proxies) -> str | None:
        return None if stage.processes(role) else f"the run has no {role.replace('_', ' ')}"

    return why_not


def _kind(do: str, role: Role, inject: Inject, text: str, share: int = 1) -> FaultKind:
    lane: Lane = "workers" if role in WORKERS else "services"
    return FaultKind(f"{do}_{role}", text, lane, inject, share, needs_role(role))


KILL = "SIGKILL, and another process is started"
STOP = "SIGSTOP for a time shorter or longer than the lease, then SIGCONT"
PROCESS_FAULTS = (
    _kind("kill", "worker", kill("worker"), KILL, 4),
    _kind("kill", "http_worker", kill("http_worker"), KILL),
    _kind("kill", "typescript_worker", kill("typescript_worker"), KILL),
    _kind("kill", "agent", kill("agent"), KILL),
    _kind("kill", "server", kill("server"), KILL, 2),
    _kind("kill", "scheduler", kill("scheduler"), KILL, 2),
    _kind("stop", "worker", stop("worker"), STOP, 3),
    _kind("stop", "agent", stop("agent"), STOP),
    _kind("stop", "server", stop("server"), STOP),
    _kind("stop", "scheduler", stop("scheduler"), STOP),
    _kind("term", "worker", terminate_worker, "SIGTERM while it is busy"),
    *(
        FaultKind(
            f"kill_{point}",
            f"a worker dies {point.replace('_', ' ')}",
            "workers",
            kill_at(point),
            why_not=needs_role("worker"),
        )
        for point in fail_points.POINTS
    ),
)
