"""The filters of jobs as SQL conditions."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.job import JobStatus
from fairlead.model.secrets.redact import ANY, ANY_DEPTH, join_path

sql = queries_beside(__file__)

TROUBLED = {JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED}
ACTIVE = {JobStatus.QUEUED, JobStatus.RUNNING}
# The clock of the process that made an id may differ from the database's by this much.
CLOCK_DIFFERENCE = timedelta(minutes=10)
_INDEXED = {"id", "tenant_id", "before", "first", "workflow_run_id"}
_INDEXED_OF_TENANT = {"correlation_id", "dedupe_key"}
_BY_INDEX = {"dedupe_key": sql.where_key}
# The first names of paths of secrets that may stand for any name.
ANY_NAME = ("", ANY, ANY_DEPTH)
_FIRST_ID = UUID(int=0)
_LAST_ID = UUID(int=(1 << 128) - 1)
_DIGITS = 32
# Fewer digits could be a word.
FEWEST_DIGITS = 8


def build_conditions(tx: Tx, filters: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The SQL conditions of filters on a job `j` of fairlead.jobs and its definition `d`, and their parameters."""
    asked = FilterConditions(tx, filters)
    return [*asked.use_index(), *asked.others()], asked.values


class FilterConditions:
    """Filters, divided into those that an index answers in the order of ids, and the others."""

    def __init__(self, tx: Tx, filters: Mapping[str, Any]) -> None:
        self.given = {name: value for name, value in filters.items() if value is not None}
        self.statuses = set(self.given.get("status", ()))
        self.given |= _bound_ids(self.given)
        self.values = {"before": _LAST_ID, "first": _FIRST_ID, "definition_id": None, **self.given}
        self.values["q_whole"] = bool(tx.redact_patterns)
        if self.statuses:
            self.values["status"] = [status.value for status in self.statuses]
        if "q" in self.given:
            self.values |= _read_id(self.given["q"])
            self.values.setdefault("tenant_id", None)
        if "tags" in self.given:
            self.values["tags"] = list(self.given["tags"])
        if "payload_contains" in self.given:
            self.values["compared_names"] = [*ANY_NAME, *name_compared(self.given["payload_contains"])]
            self.values["payload_contains"] = json_text(self.given["payload_contains"])
        self._payload = [
            _payload_condition(self.values, at, path, text)
            for at, (path, text) in enumerate(self.given.get("payload", {}).items())
        ]

    @property
    def of_tenant(self) -> bool:
        return "tenant_id" in self.given

    @property
    def running(self) -> str:
        """The condition that finds running jobs, of a tenant or of all, through their leases."""
        return str(sql.where_leased if self.of_tenant else sql.where_running)

    @property
    def only_troubled(self) -> bool:
        """Whether the partial index of failed, dead-lettered and canceled jobs has all that match."""
        return bool(self.statuses) and TROUBLED.issuperset(self.statuses)

    @property
    def is_selective(self) -> bool:
        """Whether an index finds few jobs, such as those with a correlation id."""
        names = _INDEXED - {"tenant_id", "before", "first"} | _INDEXED_OF_TENANT
        return bool(self.values.get("q_id")) or not names.isdisjoint(self.given)

    def use_index(self, *, of_definition: bool = False, of_troubled: bool = True) -> list[str]:
        """The conditions for an index; `of_definition`: for that of a tenant's jobs of a definition; not `of_troubled`:
        another finds the jobs than that of failed, dead-lettered and canceled ones.
        """
        names = [
            name for name in self.given if name in _INDEXED or (self.of_tenant and name in _INDEXED_OF_TENANT)
        ]
        if self.of_tenant:
            place = "definition_place" if of_definition else "place"
            names = [place, *(name for name in names if name not in ("tenant_id", "before", "first"))]
        found = [_BY_INDEX.get(name) or str(getattr(sql, f"where_{name}")) for name in names]
        if self.only_troubled and of_troubled:
            found.append(sql.where_troubled)
        if self.values.get("q_id"):
            found.append(sql.where_q_id)
        return found

    def others(self, *, of_records: bool = False, known: Collection[str] = ()) -> list[str]:
        """The other conditions, without the known ones; `of_records`: on a job of fairlead.job_records."""
        skipped = _INDEXED | (_INDEXED_OF_TENANT if self.of_tenant else set()) | {"payload", *known}
        if self.values.get("q_id"):
            skipped = skipped | {"q"}
        names = [
            "id_part" if name == "q" and "q_part" in self.values else name
            for name in self.given
            if name not in skipped
        ]
        if of_records and self.statuses:
            running = JobStatus.RUNNING in self.statuses
            self.values["record_status"] = [
                one.value for one in self.statuses if one is not JobStatus.RUNNING
            ]
            self.values["with_running"] = running
            names = ["record_status" if name == "status" else name for name in names]
        return [str(getattr(sql, f"where_{name}")) for name in names] + self._payload


def name_compared(contained: Mapping[str, Any]) -> set[str]:
    """The names at the top of a payload that a containment compares, as they begin the paths of secrets."""
    return {split_first(join_path([name])) for name in contained}


def split_first(path: str) -> str:
    """The first name of a path of a secret, escaped as it is there; empty for the whole payload."""
    return path.split("/", 2)[1] if path else ""


def _bound_ids(given: Mapping[str, Any]) -> dict[str, UUID]:
    """The range of ids of jobs that were created within the given times: ids begin with the time."""
    found = {}
    if (after := given.get("created_after")) is not None:
        found["first"] = _first_id(after, -CLOCK_DIFFERENCE)
    if (until := given.get("created_before")) is not None:
        found["before"] = min(given.get("before", _LAST_ID), _first_id(until, CLOCK_DIFFERENCE))
    return found


def _first_id(at: datetime, later: timedelta) -> UUID:
    """The first id of a time, moved: as seconds, since the result may be no datetime."""
    seconds = at.timestamp() + later.total_seconds()
    milliseconds = min(max(int(seconds * 1000), 0), (1 << 48) - 1)
    return UUID(int=milliseconds << 80)


def _read_id(text: str) -> dict[str, Any]:
    """The parameters for an id or a part of one; none if the text is something else."""
    digits = text.replace("-", "").lower()
    if len(digits) == _DIGITS and _is_hex(digits):
        return {"q_id": UUID(digits)}
    if not FEWEST_DIGITS <= len(digits) < _DIGITS or not _is_hex(digits):
        return {}
    return {
        "q_part": digits,
        "q_digits": len(digits),
        "q_from": 17 - len(digits) // 2,
        "q_bytes": bytes.fromhex(digits[len(digits) % 2 :]),
        "q_first": UUID(digits.ljust(_DIGITS, "0")),
        "q_last": UUID(digits.ljust(_DIGITS, "f")),
    }


def _is_hex(text: str) -> bool:
    return all(one in "0123456789abcdef" for one in text)


def _payload_condition(values: dict[str, Any], at: int, path: str, text: str) -> str:
    """The condition for a value of the payload; adds its parameters to `values`."""
    parts = path.split(".")
    pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if not values["q_whole"]:
        pattern = pattern.replace("*", "%")
    first = split_first(join_path(parts[:1]))
    values |= {f"payload_path_{at}": parts, f"payload_text_{at}": pattern, f"payload_name_{at}": first}
    return str(sql.where_payload).replace("_0)s", f"_{at})s")
