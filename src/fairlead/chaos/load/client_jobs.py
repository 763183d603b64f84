"""The jobs that clients enqueue: which definitions, how often, and what their attempts do."""

import random
from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.load.secret_values import build_secret, name_secret
from fairlead.model.job import Debounce, NewJob

# How many jobs of each definition there are among 10,000.
SHARES = {
    scenario.QUICK: 4650,
    scenario.SLOW: 250,
    scenario.NARROW: 600,
    scenario.FLAKY: 900,
    scenario.FATAL: 60,
    scenario.LONG: 30,
    scenario.ISOLATED: 15,
    scenario.HTTP: 450,
    scenario.TYPESCRIPT: 450,
    scenario.COMMAND: 50,
    scenario.HOST_COMMAND: 25,
    scenario.POISON: 1,
    scenario.LINE: 250,
    scenario.PAIRED: 200,
    scenario.PACED: 100,
    scenario.DROP_NEW: 150,
    scenario.REPLACE_QUEUED: 150,
    scenario.CANCEL_RUNNING: 150,
    scenario.RATED: 300,
    scenario.COSTLY: 300,
    scenario.COMMITTED: 250,
    scenario.BATCHED: 250,
    scenario.WIDE: 150,
    scenario.LABELED: 100,
    scenario.SECRET: 250,
}
LIMITED_BY_KEY = frozenset(one.key for one in scenario.DEFINITIONS if one.by_key is not None)
FLOOD_LETTERS = 3_000_000
DEDUPE_KEYS = 12
CUSTOMERS = 8
MOST_COST = 20
# The share of jobs with a secret that refer to their tenant's.
REFERENCES = 0.5
LONGEST_DELAY = 4.0
# Seconds after its time within which a job must start: often in time, and often too late.
EXPIRY = (0.1, 3.0)
# Seconds for which a key stays taken after its enqueue.
UNIQUE_SECONDS = 3.0
# How long each enqueue puts a debounced job off, and all of them together.
DEBOUNCE_SECONDS = 1.0
MOST_DEBOUNCE_SECONDS = 4.0


class RunTime(NamedTuple):
    """How long attempts of a definition run, and which share of its jobs runs longer than an instant."""

    least: float
    most: float
    share: float = 1.0


SECONDS = {
    scenario.QUICK: RunTime(0.0, 0.3, share=0.1),
    scenario.SLOW: RunTime(0.1, 0.6),
    scenario.NARROW: RunTime(0.0, 0.2),
    scenario.HTTP: RunTime(0.0, 0.1),
    scenario.TYPESCRIPT: RunTime(0.0, 0.1),
    scenario.COMMAND: RunTime(0.05, 0.5),
    scenario.HOST_COMMAND: RunTime(0.05, 0.5),
    scenario.ISOLATED: RunTime(0.5, 2.0),
    scenario.LINE: RunTime(0.0, 0.2),
    scenario.PAIRED: RunTime(0.0, 0.3),
    scenario.DROP_NEW: RunTime(0.0, 0.5),
    scenario.REPLACE_QUEUED: RunTime(0.0, 0.5),
    scenario.CANCEL_RUNNING: RunTime(0.2, 2.0),
    scenario.COMMITTED: RunTime(0.0, 0.3),
    scenario.BATCHED: RunTime(0.0, 0.2),
    scenario.WIDE: RunTime(0.1, 0.4),
    scenario.LABELED: RunTime(0.0, 0.1),
    scenario.SECRET: RunTime(0.0, 0.2),
}
# Definitions whose jobs are edited while they wait.
EDITED = (scenario.QUICK, scenario.LINE, scenario.SECRET)


class ClientJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a client is about to enqueue. `plan` is its payload without `call`, `n` and a secret."""

    definition: str
    plan: dict[str, Any]
    # chosen in advance where the interface allows it
    id: UUID | None = None
    dedupe_key: str | None = None
    delay: float | None = None
    host: bool = False
    expires_in: float | None = None
    unique_for: float | None = None
    debounce: Debounce | None = None

    def describe(self) -> dict[str, Any]:
        """The job as the history has it."""
        given = msgspec.structs.asdict(self)
        return {name: value for name, value in given.items() if value or name == "plan"}

    def payload(self, call: UUID, n: int) -> dict[str, Any]:
        payload = {"call": str(call), "n": n, **self.plan}
        if self.definition == scenario.SECRET and "token" not in self.plan:
            payload["token"] = build_secret(f"{call}/{n}", self.plan.get("edit", 0))
        return payload

    def to_new(self, tenant: str, call: UUID, n: int, host_id: UUID) -> NewJob:
        """The request for the library."""
        return NewJob(
            id=self.id or uuid7(),
            definition=self.definition,
            tenant=tenant,
            payload=self.payload(call, n),
            correlation_id=str(call),
            dedupe_key=self.dedupe_key,
            delay=self.delay,
            host_id=host_id if self.host else None,
            expires_in=self.expires_in,
            unique_for=self.unique_for,
            debounce=self.debounce,
        )

    def to_body(self, call: UUID, n: int, host_id: UUID) -> dict[str, Any]:
        """The request for the HTTP API."""
        options = {
            "dedupe_key": self.dedupe_key,
            "delay_seconds": self.delay,
            "host_id": str(host_id) if self.host else None,
            "expires_in": self.expires_in,
            "unique_for": self.unique_for,
            "debounce": self.debounce and self.debounce.to_json(),
        }
        given = {name: value for name, value in options.items() if value is not None}
        body = {"definition_key": self.definition, "payload": self.payload(call, n)}
        return {**body, "correlation_id": str(call), **given}


class JobChooser:
    """Chooses jobs from a seed, out of the definitions that the run serves."""

    def __init__(self, chance: random.Random, unserved: Collection[str]) -> None:
        self._chance = chance
        shares = {key: share for key, share in SHARES.items() if key not in unserved}
        self._definitions, self._shares = list(shares), list(shares.values())

    def choose(self, tenant: str, *, many: bool = False, **options: Any) -> ClientJob:
        """A job; one of `many` is no flood of output."""
        [definition] = self._chance.choices(self._definitions, self._shares)
        if definition == scenario.HOST_COMMAND:
            if tenant != scenario.TENANTS[0]:  # the host is that tenant's
                return self.choose(tenant, many=many, **options)
            options["host"] = True
        plan = self._plan(definition, many=many)
        if definition == scenario.SECRET and self._chance.random() < REFERENCES:
            plan["token"] = name_secret(tenant)
        return ClientJob(definition=definition, plan=plan, **options)

    def choose_deduplicated(self, **options: Any) -> ClientJob:
        """A job with one of few keys, which are active often."""
        key = f"key-{self._chance.randrange(DEDUPE_KEYS)}"
        plan = {"seconds": round(self._chance.uniform(0, 0.5), 3)}
        return ClientJob(definition=scenario.QUICK, plan=plan, dedupe_key=key, **options)

    def choose_unique(self, **options: Any) -> ClientJob:
        """A job whose key stays taken after its end."""
        key = f"unique-{self._chance.randrange(DEDUPE_KEYS)}"
        return ClientJob(
            definition=scenario.QUICK, plan={}, dedupe_key=key, unique_for=UNIQUE_SECONDS, **options
        )

    def choose_debounced(self, **options: Any) -> ClientJob:
        """A job that each enqueue of its key puts off."""
        debounce = Debounce(
            key=f"key-{self._chance.randrange(DEDUPE_KEYS)}",
            seconds=DEBOUNCE_SECONDS,
            max_seconds=MOST_DEBOUNCE_SECONDS,
        )
        return ClientJob(definition=scenario.SETTLED, plan={}, debounce=debounce, **options)

    def choose_edited(self, **options: Any) -> ClientJob:
        """A job that is due soon and is edited before, or tried to."""
        definition = self._chance.choice(EDITED)
        plan = {**self._plan(definition, many=False), "edit": 0}
        return ClientJob(definition=definition, plan=plan, delay=self.choose_delay(), **options)

    def choose_expiry(self) -> float:
        return round(self._chance.uniform(*EXPIRY), 3)

    def choose_delay(self) -> float:
        return round(self._chance.uniform(0.2, LONGEST_DELAY), 3)

    def _plan(self, definition: str, *, many: bool) -> dict[str, Any]:
        plan: dict[str, Any] = {}
        if (seconds := SECONDS.get(definition)) and self._chance.random() < seconds.share:
            plan["seconds"] = round(self._chance.uniform(seconds.least, seconds.most), 3)
        match definition:
            case scenario.FLAKY:
                # at most one job in thirty spends all of its attempts
                plan["fail"] = self._pick({1: 50, 2: 30, 3: 17, 5: 3})
                plan["snooze"] = self._pick({0: 80, 1: 15, 2: 5})
            case scenario.HTTP | scenario.TYPESCRIPT:
                plan["fail"] = self._pick({0: 90, 1: 10})
            case scenario.COMMAND | scenario.HOST_COMMAND:
                plan["fail"] = self._pick({0: 85, 1: 15})
                plan["text"] = 2000 if many else self._pick({2000: 80, FLOOD_LETTERS: 20})
            case scenario.ISOLATED:
                plan["text"] = 20_000
            case scenario.LINE | scenario.PAIRED | scenario.COMMITTED | scenario.BATCHED | scenario.SECRET:
                plan["fail"] = self._pick({0: 90, 1: 10})
            case scenario.COSTLY:
                plan["cost"] = self._chance.randint(1, MOST_COST)
        if definition in LIMITED_BY_KEY:
            plan["customer"] = f"c{self._chance.randrange(CUSTOMERS)}"
        return plan

    def _pick(self, shares: dict[int, int]) -> int:
        [picked] = self._chance.choices(list(shares), list(shares.values()))
        return picked
