"""What a run is made of: tenants, definitions with their limits, schedules, triggers and processes.

The site installs it, the clients use it, and the checker compares what happened with it.
"""

from typing import Any

import msgspec

from fairlead.model.flow import KeyLimit, KeyStrategy, Rate

# `hostile` attacks by everything that its own people may send; what it does is not in the history.
TENANTS = ("acme", "globex", "initech")
HOSTILE = "hostile"
HOST = "chaos-host"
# Each job function of fairlead.chaos.load.handlers writes a StartRecord and an EndRecord, and does what its payload says:
# {"seconds": how long it runs, "fail": how many attempts fail first, "snooze": how many snooze first,
#  "text": how many letters it logs or prints}. `plan` is the payload as the client sent it.
QUICK = "chaos.quick"
SLOW = "chaos.slow"
NARROW = "chaos.narrow"
FLAKY = "chaos.flaky"
FATAL = "chaos.fatal"
POISON = "chaos.poison"
LONG = "chaos.long"
# runs in a process of its own
ISOLATED = "chaos.isolated"
HTTP = "chaos.http"
TYPESCRIPT = "chaos.typescript"
STEP = "chaos.step"
JOIN = "chaos.join"
ON_EVENT = "chaos.on_event"
ON_TIME = "chaos.on_time"
COMMAND = "chaos.command"
HOST_COMMAND = "chaos.host_command"
# a durable function: its payload is a FunctionPlan
DURABLE = "chaos.durable"
# Limited by the `customer` of their payloads. Their strategies have their names.
LINE = "chaos.line"
PAIRED = "chaos.paired"
PACED = "chaos.paced"
DROP_NEW = "chaos.drop_new"
REPLACE_QUEUED = "chaos.replace_queued"
CANCEL_RUNNING = "chaos.cancel_running"
# Limited by rates; a start of the second takes the `cost` of its payload.
RATED = "chaos.rated"
COSTLY = "chaos.costly"
# debounced
SETTLED = "chaos.settled"
# ends in a transaction that also writes a row of public.chaos_commits
COMMITTED = "chaos.committed"
# Its function takes several jobs at a time, of one tenant.
BATCHED = "chaos.batched"
BATCH_SIZE = 8
# takes so many of its worker's slots that two of them fit
WIDE = "chaos.wide"
WIDE_SLOTS = 40
WORKER_SLOTS = 100
# only for the worker with the label
LABELED = "chaos.labeled"
LABEL = {"chaos": "yes"}
LABELED_WORKER = "worker-1"
# what it has while its labels are wrong
WRONG_LABELS = ({"chaos": "no"}, {"chaos/yes": "yes"}, {"other": "yes"})
# Its payload has a `token`: a secret of the job itself, or a reference to the one that its tenant sets.
SECRET = "chaos.secret"  # noqa: S105 - a definition
# whose secret commands get
COMMANDS_SECRET = "commands"  # noqa: S105 - a name
CUSTOMER = "/customer"


class DefinitionPlan(msgspec.Struct, frozen=True):
    """A definition of a run. Limits are None where there is none."""

    key: str
    # "python": by `fairlead worker`; "http", "typescript": over HTTP; "command"; "agent": a command on a host
    runner: str = "python"
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    max_attempts: int = 5
    timeout_seconds: float = 60.0
    by_key: KeyLimit | None = None
    rate: Rate | None = None
    rate_per_tenant: Rate | None = None
    slots: int | None = None
    requires: dict[str, str] | None = None

    def limits(self) -> dict[str, Any]:
        """Its limits as options of a job function, without those that it does not have."""
        names = (
            "max_running",
            "max_running_per_tenant",
            "by_key",
            "rate",
            "rate_per_tenant",
            "slots",
            "requires",
        )
        return {name: limit for name in names if (limit := getattr(self, name)) is not None}


DEFINITIONS = (
    DefinitionPlan(QUICK),
    DefinitionPlan(SLOW, max_running=6),
    DefinitionPlan(NARROW, max_running_per_tenant=2),
    DefinitionPlan(FLAKY),
    DefinitionPlan(FATAL),
    DefinitionPlan(POISON),
    DefinitionPlan(LONG),
    DefinitionPlan(ISOLATED),
    DefinitionPlan(HTTP, runner="http"),
    DefinitionPlan(TYPESCRIPT, runner="typescript"),
    DefinitionPlan(STEP),
    DefinitionPlan(JOIN),
    DefinitionPlan(ON_EVENT),
    DefinitionPlan(ON_TIME),
    DefinitionPlan(COMMAND, runner="command"),
    DefinitionPlan(HOST_COMMAND, runner="agent"),
    DefinitionPlan(DURABLE),
    DefinitionPlan(LINE, by_key=KeyLimit(CUSTOMER, max_running=1, fifo=True)),
    DefinitionPlan(PAIRED, by_key=KeyLimit(CUSTOMER, max_running=2)),
    DefinitionPlan(PACED, by_key=KeyLimit(CUSTOMER, rate=Rate(5, burst=1))),
    DefinitionPlan(DROP_NEW, by_key=KeyLimit(CUSTOMER, max_running=1, strategy=KeyStrategy.DROP_NEW)),
    DefinitionPlan(
        REPLACE_QUEUED, by_key=KeyLimit(CUSTOMER, max_running=1, strategy=KeyStrategy.REPLACE_QUEUED)
    ),
    DefinitionPlan(
        CANCEL_RUNNING, by_key=KeyLimit(CUSTOMER, max_running=1, strategy=KeyStrategy.CANCEL_RUNNING)
    ),
    DefinitionPlan(RATED, rate=Rate(60, burst=6)),
    DefinitionPlan(COSTLY, rate_per_tenant=Rate(300, burst=30, cost="/cost")),
    DefinitionPlan(SETTLED),
    DefinitionPlan(COMMITTED),
    DefinitionPlan(BATCHED),
    DefinitionPlan(WIDE, slots=WIDE_SLOTS),
    DefinitionPlan(LABELED, requires=LABEL),
    DefinitionPlan(SECRET),
)
# The most jobs that a tenant runs at once, and that the host runs at once.
TENANT_LIMITS = {"globex": 10}
HOST_LIMIT = 2
# Seconds between two instants of each tenant's interval schedules: one that fires in time, and one that fires up to some
# seconds later.
CLOCK = "chaos-clock"
JITTERED = "chaos-jittered"
CLOCK_SECONDS = 2
JITTER_SECONDS = 1
SCHEDULES = (CLOCK, JITTERED)
# Events of this type start a job of ON_EVENT by each tenant's trigger of this name.
EVENT_TYPE = "chaos.happened"
EVENT_TRIGGER = "chaos-event"
# Durable functions wait for events of this type and for signals of this name. Events of the last type are never emitted.
CONFIRMED = "chaos.confirmed"
SIGNAL = "go-on"
NEVER = "chaos.never"

# Settings of every process of a run: short, so that a run of minutes has many recoveries.
LEASE_SECONDS = 5.0
SWEEP_SECONDS = 1.0
SETTINGS = {
    "FAIRLEAD_LEASE_SECONDS": str(LEASE_SECONDS),
    "FAIRLEAD_SWEEP_SECONDS": str(SWEEP_SECONDS),
    "FAIRLEAD_POLL_SECONDS": "0.5",
}


class FleetPlan(msgspec.Struct, frozen=True):
    """How many processes of each role a run has."""

    workers: int = 3
    http_workers: int = 1
    typescript_workers: int = 1
    servers: int = 2
    schedulers: int = 2
    agents: int = 1
    clients: int = 3
    hostile_clients: int = 1
