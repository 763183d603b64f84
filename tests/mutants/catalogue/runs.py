"""The chaos runs that mutants share: the unchanged tree passes each of them once. And the stepped scenarios, by name."""

from tests.mutants.mutant import Chaos, Edit, Interleavings


def step(*scenarios: str) -> Interleavings:
    """The interleavings of these scenarios of tests/interleavings/scenarios.py."""
    return Interleavings(scenarios)


# Fewer processes and jobs than in an ordinary run, so that two runs fit on two cores; but more calls for these jobs.
_FEW = (
    "--typescript-workers",
    "0",
    "--http-workers",
    "0",
    "--servers",
    "1",
    "--clients",
    "2",
    "--rate",
    "40",
)
_SMALL = (*_FEW, "--agents", "0")
_JOBS = "chaos/load/client_jobs.py"
_CALLS = (
    Edit("chaos/load/enqueue_calls.py", "BULK = (10, 500)\n", "BULK = (2, 12)\n"),
    Edit(
        "chaos/load/client.py", "enqueue_calls.enqueue_bulk, 65, 125)", "enqueue_calls.enqueue_bulk, 65, 5)"
    ),
)
_OFTEN = Edit("chaos/faults/plan.py", '    "connections": (1.0, 5.0),\n', '    "connections": (0.2, 1.0),\n')

# Always for so long that the next attempts run when the worker goes on.
_LONG_STOPS = Edit(
    "chaos/faults/process_faults.py",
    "        seconds = scene.chance.uniform(*bounds)\n        scene.pids.append(process.pid)\n",
    "        seconds = scene.chance.uniform(8.0, 11.0)\n        scene.pids.append(process.pid)\n",
)

# Workers that are stopped for longer than their leases, and then report what is no longer theirs.
STOPS = Chaos(
    seed=1,
    seconds=40,
    kinds=("stop_worker",),
    options=_SMALL,
    load=(
        *_CALLS,
        Edit(
            _JOBS,
            "    scenario.QUICK: RunTime(0.0, 0.3, share=0.1),\n",
            "    scenario.QUICK: RunTime(1.0, 6.0, share=0.3),\n",
        ),
        _LONG_STOPS,
    ),
)
# Workers and schedulers that are killed, at random and before and after they claim, run and finish.
KILLS = Chaos(
    seed=2,
    seconds=40,
    kinds=("kill_worker", "kill_scheduler", "kill_before_finish", "kill_after_claim"),
    options=_SMALL,
    load=_CALLS,
)
# Many jobs that kill their workers.
POISON = Chaos(
    seed=3,
    seconds=30,
    kinds=("kill_scheduler",),
    options=_SMALL,
    load=(Edit(_JOBS, "    scenario.POISON: 1,\n", "    scenario.POISON: 30,\n"),),
)
# Schedulers that are killed all the time, and many events.
SCHEDULERS = Chaos(
    seed=8,
    seconds=40,
    kinds=("kill_scheduler", "terminate_leader"),
    options=_SMALL,
    load=(
        *_CALLS,
        Edit(
            "chaos/load/client.py",
            "CallShare(change_calls.emit, 115, 1)",
            "CallShare(change_calls.emit, 600, 1)",
        ),
        Edit("chaos/faults/plan.py", '    "services": (1.0, 5.0),\n', '    "services": (0.2, 1.0),\n'),
        Edit("chaos/faults/plan.py", '    "sessions": (1.0, 5.0),\n', '    "sessions": (0.2, 1.0),\n'),
        Edit("chaos/scenario.py", "CLOCK_SECONDS = 2\n", "CLOCK_SECONDS = 1\n"),
        # of the leaders, only schedulers
        Edit(
            "chaos/faults/session_faults.py",
            "union\nselect l.pid from pg_locks l where l.relation = 'fairlead.duties'::regclass",
            "union\nselect l.pid from pg_locks l where false and l.relation = 'fairlead.duties'::regclass",
        ),
    ),
)
# Commands and jobs of a host, while workers and agents are killed.
COMMANDS = Chaos(
    seed=6,
    seconds=30,
    kinds=("kill_worker", "kill_agent"),
    options=(*_FEW, "--agents", "1"),
    load=(
        *_CALLS,
        Edit(_JOBS, "    scenario.COMMAND: 50,\n", "    scenario.COMMAND: 700,\n"),
        Edit(_JOBS, "    scenario.HOST_COMMAND: 25,\n", "    scenario.HOST_COMMAND: 700,\n"),
    ),
)
# PostgreSQL that is killed, and sessions that are terminated.
DATABASE = Chaos(
    seed=4,
    seconds=50,
    kinds=("kill_postgres", "restart_postgres", "terminate_backends"),
    options=_SMALL,
    load=(
        *_CALLS,
        Edit("chaos/faults/plan.py", '    "postgres": (35.0, 75.0),\n', '    "postgres": (6.0, 10.0),\n'),
    ),
)
# Replies that are lost after the work was done.
REPLIES = Chaos(
    seed=5,
    seconds=50,
    kinds=("swallow_commits", "swallow_responses"),
    options=(*_SMALL, "--servers", "2"),
    load=(*_CALLS, _OFTEN),
)
# Connections that are stalled for longer than the leases of long jobs.
STALLS = Chaos(
    seed=7,
    seconds=40,
    kinds=("stall_connections",),
    options=_SMALL,
    load=(
        *_CALLS,
        Edit(_JOBS, "    scenario.LONG: 30,\n", "    scenario.LONG: 500,\n"),
        Edit("chaos/load/handlers.py", "LONGEST_SECONDS = 6.0\n", "LONGEST_SECONDS = 14.0\n"),
        Edit(
            "chaos/faults/connection_faults.py",
            "STALL_SECONDS = (0.5, 8.0)\n",
            "STALL_SECONDS = (11.0, 13.0)\n",
        ),
        Edit(
            "chaos/faults/connection_faults.py",
            "    share = scene.chance.choice([0.2, 0.5, 1.0])\n",
            "    share = 0.4\n",
        ),
        Edit(
            "chaos/faults/fault.py",
            "        every: list[FaultProxy] = [*[self.proxies.postgres] * 2, *self.proxies.http]\n",
            "        every: list[FaultProxy] = [self.proxies.postgres]\n",
        ),
    ),
)
# Edits, batches, slots, labels and approvals, while workers are stopped and killed.
OPTIONS = Chaos(
    seed=10,
    seconds=40,
    kinds=("stop_worker", "kill_worker"),
    options=(*_SMALL, "--workers", "2"),
    load=(
        *_CALLS,
        _LONG_STOPS,
        Edit(
            "chaos/load/client.py",
            "CallShare(change_calls.edit, 40, 1)",
            "CallShare(change_calls.edit, 400, 1)",
        ),
        Edit("chaos/load/durable_calls.py", "approval=happens(0.1)", "approval=happens(0.9)"),
        Edit(_JOBS, "    scenario.BATCHED: 250,\n", "    scenario.BATCHED: 2500,\n"),
        Edit(_JOBS, "    scenario.WIDE: 150,\n", "    scenario.WIDE: 2500,\n"),
        Edit(_JOBS, "    scenario.LABELED: 100,\n", "    scenario.LABELED: 1000,\n"),
    ),
)
# Jobs that need a label, while the only worker with it has a wrong one for a while.
LABELS = Chaos(
    seed=13,
    seconds=30,
    kinds=("wrong_labels",),
    options=(*_SMALL, "--workers", "2"),
    load=(
        *_CALLS,
        Edit(_JOBS, "    scenario.LABELED: 100,\n", "    scenario.LABELED: 3000,\n"),
        Edit(
            "chaos/scenario.py",
            'WRONG_LABELS = ({"chaos": "no"}, ',
            'WRONG_LABELS = ({"chaos": "no"},)\n_OTHERS = (',
        ),
    ),
)
# All stored functions are replaced while everything runs, and then each process.
UPGRADES = Chaos(
    seed=14,
    seconds=40,
    kinds=("upgrade",),
    options=(*_SMALL, "--workers", "2"),
    load=_CALLS,
)
# Jobs with secrets that clients change, while the keys rotate and workers are killed.
SECRETS = Chaos(
    seed=12,
    seconds=40,
    kinds=("rotate_keys", "kill_worker"),
    options=(*_SMALL, "--workers", "2"),
    load=(
        *_CALLS,
        Edit(_JOBS, "    scenario.SECRET: 250,\n", "    scenario.SECRET: 9000,\n"),
        Edit(
            "chaos/load/client.py",
            "CallShare(secret_calls.change_secret, 80, 0)",
            "CallShare(secret_calls.change_secret, 800, 0)",
        ),
        Edit("chaos/faults/key_faults.py", "KILLED = 0.3\n", "KILLED = 0.0\n"),
        # a single rotation, which is over within seconds: another one would seal again what the first one left
        Edit("chaos/faults/plan.py", '    "keys": (2.0, 20.0),\n', '    "keys": (600.0, 600.0),\n'),
        Edit("keys/keyring.py", "CURRENT_SECONDS = 30.0\n", "CURRENT_SECONDS = 4.0\n"),
    ),
)
# Workers that die before the outcomes of attempts are written, while many jobs end in transactions of their own.
ENDS = Chaos(
    seed=11,
    seconds=50,
    kinds=("kill_before_finish",),
    options=(*_SMALL, "--workers", "2"),
    load=(*_CALLS, Edit(_JOBS, "    scenario.COMMITTED: 250,\n", "    scenario.COMMITTED: 9000,\n")),
)
