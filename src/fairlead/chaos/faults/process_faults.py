"""Faults of processes: killed, stopped for a while, asked to end, and killed at a named point."""

import signal

from fairlead.chaos.faults import fail_points
from fairlead.chaos.faults.fault import (
    START_SECONDS,
    FaultKind,
    FaultScene,
    Inject,
    Lane,
    NothingToHit,
    WhyNot,
)
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.scenario import LABELED_WORKER, SWEEP_SECONDS, WRONG_LABELS
from fairlead.chaos.site.labels import build_label_environment
from fairlead.chaos.stage import Role, Stage, StagedProcess

WORKERS: tuple[Role, ...] = ("worker", "http_worker", "typescript_worker", "agent")
# A worker that is asked to end gives its jobs back after `drain_seconds`, which is 30 by default.
DRAIN_SECONDS = 50.0
# How long a process that works may take to reach its fail point before it is killed without it.
REACH_SECONDS = 10.0
# How long no scheduler runs.
SCHEDULERLESS_SECONDS = (5.0, 20.0)
# How long the worker with the label has a wrong one.
WRONG_SECONDS = (4.0, 12.0)


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
    scene.mark()
    await terminate(scene, process)
    scene.mark_over()
    scene.recovering = process


async def terminate(scene: FaultScene, process: StagedProcess) -> None:
    """Ask a process to end, and wait until it has ended."""
    pid = process.pid
    scene.pids.append(pid)
    process.signal(signal.SIGTERM)
    if not await scene.ends_within(process, pid, DRAIN_SECONDS):
        when = "when the faults were over" if scene.is_over else f"{DRAIN_SECONDS:.0f} s after SIGTERM"
        scene.notes.append(f"{process.name} still ran {when}, and was killed")
        process.signal(signal.SIGKILL)
        await scene.wait_until_gone(process, pid)


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


async def block_loop(scene: FaultScene) -> None:
    """Kill a worker and start it again; then one of its job functions blocks the event loop, and records it."""
    process = scene.choose_process("worker")
    scene.kind = "kill_worker"
    scene.pids.append(process.pid)
    scene.notes.append("a job function blocks the event loop of its successor")
    scene.mark()
    process = await scene.stage.restart(process, {fail_points.VARIABLE: f"{fail_points.BLOCK}:0.2"})
    scene.mark_over()
    scene.recovering = process
    await scene.ends_within(process, process.pid, START_SECONDS, or_is_ready=True)
    # the block, and the worker's recovery from it
    _, most = fail_points.BLOCKED_LEASES
    await scene.pause(REACH_SECONDS + most * scene.stage.lease_seconds)


async def give_wrong_labels(scene: FaultScene) -> None:
    """Start the worker with the label again with a wrong one for a while: no job that needs it may start anywhere."""
    labeled = [one for one in scene.stage.processes("worker") if one.name == LABELED_WORKER]
    if not labeled:
        raise NothingToHit(f"{LABELED_WORKER} is not running")
    environment = build_label_environment(scene.chance.choice(WRONG_LABELS))
    scene.target = LABELED_WORKER
    scene.notes += environment.values()
    await scene.restart_for_a_while(labeled[0], environment, scene.chance.uniform(*WRONG_SECONDS))


async def stop_schedulers(scene: FaultScene) -> None:
    """Send SIGSTOP to all schedulers, and SIGCONT after longer than most waits of durable functions last."""
    processes = scene.stage.processes("scheduler")
    scene.target = ", ".join(one.name for one in processes)
    scene.pids += [one.pid for one in processes]
    scene.mark()
    for one in processes:
        one.signal(signal.SIGSTOP)
    try:
        await scene.pause(scene.chance.uniform(*SCHEDULERLESS_SECONDS))
    finally:
        for one in processes:
            one.signal(signal.SIGCONT)
        scene.mark_over()
    scene.notes.append(f"no scheduler ran for {scene.over_at - scene.at:.1f} s")


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
    FaultKind(
        "stop_schedulers",
        "SIGSTOP of all schedulers for a while, then SIGCONT",
        "services",
        stop_schedulers,
        why_not=needs_role("scheduler"),
    ),
    FaultKind(
        fail_points.BLOCK,
        "a job function blocks the event loop of its worker, for up to two leases",
        "workers",
        block_loop,
        why_not=needs_role("worker"),
    ),
    FaultKind(
        "wrong_labels",
        "the worker that has a label is started with a wrong one for some seconds",
        "workers",
        give_wrong_labels,
        why_not=needs_role("worker"),
    ),
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
