"""What a tenant owns, with a canary in all of its texts, and requests of another tenant that name it everywhere."""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import fairlead
from fairlead.chaos.hostile.requests import list_operations
from fairlead.chaos.hostile.values import ValueMaker
from fairlead.model.access import Role
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.server.problems import CONSOLE
from tests import given
from tests.console import page_matrix
from tests.server import matrix
from tests.server.world import BASE, World

MARK = "kestrel7f3a"
VICTIM, ATTACKER = given.OTHER, given.TENANT
UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Everybody of the other tenant; a session is that of an operator, and None has no token.
ATTACKERS = ("viewer", "operator", "tenant_admin", "application", "worker", "agent", "session", None)
# What ends a session, and so the attack.
LEFT_OUT = ("/logout", "/sign-out", "/account/")
# How long a request would wait, or stay open.
SLOW = ("wait", "follow")
# Texts that no route takes, or that a route takes in a form of its own.
TEXTS = {
    "tenants": "name = %(mark)s || name",
    "hosts": "name = %(mark)s || name, pause_note = %(mark)s",
    "resources": "name = %(mark)s || name, kind = %(mark)s",
    "approvals": "title = %(mark)s, description = %(mark)s, name = %(mark)s",
    "job_triggers": "label = %(mark)s",
    "workflow_runs": "correlation_id = %(mark)s",
    "sessions": "user_agent = %(mark)s",
    "identities": "subject = %(mark)s",
    "job_attempts": "stdout_tail = %(mark)s, stderr_tail = %(mark)s",
    "error_groups": "mute_note = %(mark)s",
    "tokens": "name = %(mark)s || name",
}
VIEW = """
    insert into fairlead.saved_views (tenant_id, page, name, query, is_shared, owner, owner_id)
    values (%(tenant)s, '/jobs', %(mark)s, %(mark)s, true, %(mark)s, gen_random_uuid())
"""
# Columns that others may change: a forged delivery to a hook's address is its last refusal.
CHANGED_BY_OTHERS = ("last_refused_at", "last_refusal")
# Tables of a tenant in which the canary must be.
MARKED = {*TEXTS, "saved_views", "job_records", "job_tags", "log_chunks", "events", "hooks", "users"}
MARKED |= {"workflows", "workflow_steps", "hook_secrets", "job_definitions", "audit_log"}


class Owned:
    """The objects of a tenant, by the parameter that names them in a path."""

    def __init__(self, world: World, tenant: str) -> None:
        self.world = world
        self.tenant = tenant
        self.values: dict[tuple[str, str], str] = {}

    async def make(self) -> None:
        """Make an object for each parameter of each route; routes that mean something else by it have their own."""
        made: dict[object, str] = {}
        for rule in all_rules():
            for param in rule.params:
                builder = builder_of(rule, param)
                if builder.make not in made:
                    async with self.world.transaction() as tx:
                        made[builder.make] = str(await builder.make(tx, self.world, self.tenant))
                self.values[str(rule), param] = made[builder.make]

    def of(self, rule: matrix.Rule, param: str) -> str:
        return self.values[str(rule), param]


def all_rules() -> list[matrix.Rule]:
    """Every route of the API and every page."""
    return [*matrix.api_rules(), *page_matrix.page_rules()]


def builder_of(rule: matrix.Rule, param: str) -> matrix.Builder:
    is_page = rule in page_matrix.page_rules()
    special = page_matrix.BUILDERS.get(param) if is_page else None
    return special or matrix.builder(rule, param)


@dataclass
class Victim:
    """A tenant whose texts are all canaries."""

    world: World
    named: Owned
    # what nobody else may ever be told
    secrets: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def ask(self, method: str, path: str, *, who: str = "tenant_admin", **more: Any) -> Any:
        answer = await self.world.call(method, path, who=who, tenant=VICTIM, **more)
        assert answer.status_code < 300, f"{method} {path}: {answer.text}"
        return answer.json()

    async def prepare(self) -> None:
        """Make all objects, some of which no request will name, and the texts in them."""
        silent = Owned(self.world, VICTIM)
        await silent.make()
        await self._write()
        await self.named.make()
        cookie = await self.world.signed_in(Role.VIEWER, VICTIM)
        async with self.world.transaction() as tx:
            values = {"mark": MARK, "tenant": self.world.tenants[VICTIM]}
            for table, texts in TEXTS.items():
                column = "id" if table == "tenants" else "tenant_id"
                await tx.run(f"update fairlead.{table} set {texts} where {column} = %(tenant)s", values)
            await tx.run(VIEW, values)
            await tx.run("update fairlead.leases set expires_at = now() + interval '1 day'")
            leases = await tx.values(
                "select job_id::text, attempt_no, token::text from fairlead.leases where tenant_id = %(tenant)s",
                values,
            )
        self.leases = {job: {"attempt_no": number, "lease_token": token} for job, number, token in leases}
        self.secrets |= {secret for (owner, _), secret in self.world.secrets.items() if owner == VICTIM}
        self.secrets.add(cookie.partition("=")[2])
        own, others = await self.rows()
        self.ids = find_ids(own.values()) - find_ids(others.values())
        marked = {table for table, row in own if MARK in row} | {
            table for table, row in others if MARK in row
        }
        assert marked >= MARKED, f"without a canary: {MARKED - marked}"

    async def _write(self) -> None:
        """What the tenant's people and programs write through the API."""
        hidden = {"key": f"{MARK}.hidden", "only_tenants": [VICTIM]}
        await self.ask("POST", "/admin/jobs/definitions", who="super_admin", json=hidden)
        job = {
            "definition_key": "anything",
            "payload": {MARK: MARK},
            "correlation_id": MARK,
            "tags": [MARK],
            "priority": 50,
        }
        output: dict[str, Any] = {"output": {"said": MARK}}
        failure: dict[str, Any] = {"error": {"type": MARK, "message": MARK}, "retryable": False}
        # nothing of it falls due later: every claim, whoever's, would see to that
        for number, end in enumerate((output, failure)):
            await self.ask("POST", "/jobs", json=job, headers={"Idempotency-Key": f"once-{number}"})
            body = {"definitions": ["anything"], "worker_id": MARK}
            [claimed] = (await self.ask("POST", "/worker/jobs/claim", who="worker", json=body))["items"]
            lease = {name: claimed[name] for name in ("attempt_no", "lease_token")}
            path = f"/worker/jobs/{claimed['job_id']}"
            told = {**lease, "percent": 5, "message": MARK}
            await self.ask("POST", f"{path}/progress", who="worker", json=told)
            lines = {**lease, "chunks": [{"seq": 0, "text": f"{MARK}\n"}]}
            await self.ask("POST", f"{path}/logs", who="worker", json=lines)
            what = "complete" if "output" in end else "fail"
            await self.ask("POST", f"{path}/{what}", who="worker", json={**lease, **end})
        trigger = {
            "label": MARK,
            "trigger_type": "event",
            "event_name": "thing.happened",
            "definition_key": "anything",
            "payload_template": {"said": MARK, "data": "{{event}}"},
        }
        await self.ask("POST", "/jobs/triggers", json=trigger)
        await self.ask("POST", "/events", json={"name": "thing.happened", "data": {"said": MARK}})
        await trigger_due(self.world.fl.database)
        step = {"name": "only", "definition": "anything", "payload": {"said": MARK}}
        flow = {"key": MARK, "description": MARK, "steps": [step], "output": {"said": MARK}}
        await self.ask("POST", "/workflows", json=flow)
        await self.ask("POST", f"/workflows/{MARK}/runs", json={"input": {"said": MARK}, "key": MARK})
        await self.ask("POST", "/tokens", json={"name": MARK, "role": "viewer"})
        user = {"email": f"{MARK}@fairlead.test", "role": "viewer", "password": f"{MARK} {MARK} {MARK}"}
        await self.ask("POST", "/users", json=user)
        await self.ask("POST", "/hooks", json={"name": MARK, "scheme": "github", "secret": f"{MARK} {MARK}"})

    async def rows(self) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
        """All rows as text: those of this tenant, and all others; by table and text, since rows are compared."""
        own, others = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
        tenant = str(self.world.tenants[VICTIM])
        async with self.world.transaction() as tx:
            tables = await tx.values(
                "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = 'fairlead' and c.relkind = 'r'"
            )
            for (table,) in tables:
                column = "id" if table == "tenants" else "tenant_id"
                for owner, text in await tx.values(
                    f"select to_jsonb(t) ->> '{column}', (to_jsonb(t) - %s::text[])::text from fairlead.{table} t",
                    [list(CHANGED_BY_OTHERS)],
                ):
                    # the audit log has a table for each month
                    name = "audit_log" if table.startswith("audit_log") else table
                    (own if owner == tenant else others)[name, text] = text
        return own, others


def find_ids(texts: Iterable[str]) -> set[str]:
    return {found for text in texts for found in UUIDS.findall(text)}


@dataclass(frozen=True)
class Sent:
    """A request of a credential."""

    rule: matrix.Rule
    who: str | None
    url: str
    headers: dict[str, str]
    more: dict[str, Any]

    @property
    def text(self) -> str:
        return repr((self.url, self.headers, self.more))


class _Values(ValueMaker):
    """Small values: large ones are the matter of `make hostile`."""

    def make_any(self) -> Any:
        return self.chance.choice((None, True, 1, self._make_word(), {"a": self._make_word()}, []))


class Asker:
    """Makes requests from a seed: every route and every credential in turn, the victim's ids wherever one may be."""

    def __init__(self, seed: str, victim: Victim, own: Owned, document: Mapping[str, Any]) -> None:
        self._chance = random.Random(seed)  # noqa: S311
        self._victim = victim
        self._own = own
        self._operations = {(one.method.upper(), one.path): one for one in list_operations(document)}
        words = [*{*victim.named.values.values()}, *victim.leases, VICTIM, "anything", "thing.happened"]
        self._words = words
        self._values = _Values(self._chance, document, words)
        self._fields = form_fields()
        self._turn: list[tuple[matrix.Rule, str | None]] = []
        self.pairs = [
            (rule, who)
            for rule in all_rules()
            if not any(part in rule.path for part in LEFT_OUT)
            for who in ATTACKERS
        ]

    def next(self) -> Sent:
        if not self._turn:
            self._turn = self._chance.sample(self.pairs, len(self.pairs))
        return self.make(*self._turn.pop())

    def make(self, rule: matrix.Rule, who: str | None) -> Sent:
        """A request to a route."""
        is_page = rule in page_matrix.page_rules()
        values = {param: self._value(rule, param) for param in rule.params}
        path = rule.path.format(**values)
        operation = self._operations.get((rule.method, rule.path))
        named = {one["name"] for one in operation.parameters if one["in"] == "query"} if operation else set()
        if is_page:
            named = {*self._chance.sample(self._fields, 3), "tenant"}
        query = {
            name: self._chance.choice(self._words)
            for name in sorted(named - {*SLOW})
            if self._chance.random() < 0.3
        }
        more: dict[str, Any] = {"params": {**query, **matrix.QUERIES.get(str(rule), {})}}
        if rule.method not in ("GET", "DELETE"):
            if is_page:
                fields = {
                    name: self._chance.choice(self._words) for name in self._chance.sample(self._fields, 6)
                }
                more["data"] = {**fields, **page_matrix.FORMS.get(str(rule), {})}
            else:
                more["json"] = self._body(rule, values, operation)
        url = f"{BASE}{CONSOLE if is_page else ''}{path}"
        return Sent(rule, who, url, self._headers(), more)

    def arguments(self, schema: Mapping[str, Any]) -> Any:
        """Arguments of a tool, or what it takes for them."""
        made = self._replace(self._values.make(schema))
        if isinstance(made, dict) and self._chance.random() < 0.3:
            made["tenant"] = VICTIM
        return made

    def _value(self, rule: matrix.Rule, param: str) -> str:
        [kind] = self._chance.choices(("victim", "own", "none"), (80, 15, 5))
        if kind == "none":
            return str(uuid4())
        if (rule.path.startswith("/hooks/") and param == "tenant") or param == "slug":
            return VICTIM
        return (self._victim.named if kind == "victim" else self._own).of(rule, param)

    def _headers(self) -> dict[str, str]:
        tenant = self._victim.world.tenants[VICTIM]
        [named] = self._chance.choices((None, VICTIM, str(tenant), ATTACKER), (50, 20, 20, 10))
        headers = {"Sec-Fetch-Site": "same-origin"}
        if named is not None:
            headers["X-Tenant"] = named
        if self._chance.random() < 0.1:
            headers["Idempotency-Key"] = f"once-{self._chance.choice((0, 1))}"
        return headers

    def _body(self, rule: matrix.Rule, values: Mapping[str, str], operation: Any) -> Any:
        body = dict(matrix.BODIES.get(str(rule), {}))
        schema = operation.body if operation else None
        if schema is not None and self._chance.random() < 0.6:
            made = self._values.make(schema)
            if not isinstance(made, dict):
                return made
            body |= made
        body = {name: self._replace(value) for name, value in body.items()}
        # the very lease of the victim's job: only whose it is can be wrong
        if "lease_token" in body or self._chance.random() < 0.3:
            body |= self._victim.leases.get(values.get("job_id", ""), {})
        return body

    def _replace(self, value: Any) -> Any:
        """The value, with something of the victim in place of some of its texts."""
        if isinstance(value, str):
            return self._chance.choice(self._words) if self._chance.random() < 0.4 else value
        if isinstance(value, dict):
            return {name: self._replace(one) for name, one in value.items()}
        return [self._replace(one) for one in value] if isinstance(value, list) else value


def form_fields() -> list[str]:
    """The names of all fields of the console's forms."""
    templates = Path(fairlead.__file__).parent / "server/console/templates"
    texts = (one.read_text("utf-8") for one in sorted(templates.glob("**/*.html")))
    found = {name for text in texts for name in re.findall(r'name="([\w.]+)"', text)}
    return sorted({*found, "id", "ids", "tenant", "q", "cursor", "after"} - {*SLOW})
