"""Parse and validate a request for a trigger, and compute its next firing."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.errors import Fault, Refused, TriggerFormInvalid, TriggerInvalid
from fairlead.model.input_fields import read_input
from fairlead.model.template.spec import compile_template
from fairlead.model.trigger import CatchUp, Overlap, Trigger, TriggerRequest, TriggerSpec
from fairlead.model.trigger_kinds import KINDS, kind_of
from fairlead.model.trigger_kinds.kind import Check
from fairlead.model.trigger_options import check_options

REQUEST_FIELDS = TriggerRequest.__struct_fields__


def parse_request(document: Mapping[str, Any]) -> TriggerRequest:
    """Parse a document; the error names every invalid field."""
    given, faults = read_input(TriggerRequest, document)
    if faults:
        raise _invalid(faults)
    asked = TriggerRequest(**given)
    _check_form(asked)
    kind_of(asked).check_fields(asked)
    return asked


def build_spec(
    asked: TriggerRequest,
    *,
    trigger_id: UUID,
    definition_id: UUID,
    zone: str,
    now: datetime,
    unless_changed_from: Trigger | None = None,
    at_once: bool = False,
) -> TriggerSpec:
    """The trigger to store, with its next firing: with `at_once`, now if it began in the past."""
    kind = kind_of(asked)
    for check in _list_checks(asked, zone):
        check()
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    spec = TriggerSpec(definition_id=definition_id, **{**kind.defaults, **given, **kind.complete(asked, now)})
    if not spec.is_enabled:
        return spec
    instant = kind.find_next(spec, unless_changed_from, zone=zone, now=now, at_once=at_once)
    if instant is None:
        return spec
    fires_at = kind.find_fire_time(spec, instant, trigger_id=trigger_id, zone=zone)
    return replace(spec, next_instant=instant, next_fire_at=fires_at)


def list_refusals(document: Mapping[str, Any], zone: str) -> Iterator[Refused]:
    """All reasons to refuse a document that names its type; `parse_request` and `build_spec` raise only the first."""
    given, faults = read_input(TriggerRequest, document)
    if faults:
        yield _invalid(faults)
    asked = TriggerRequest(**{"label": "", "definition_key": "", **given})
    kind, checks = kind_of(asked), _list_checks(asked, zone)
    if any(getattr(asked, name) is not None for name in kind.forms):
        checks.insert(0, lambda: kind.check_fields(asked))
    for check in checks:
        try:
            check()
        except Refused as refusal:
            yield refusal


def _list_checks(asked: TriggerRequest, zone: str) -> list[Check]:
    kind = kind_of(asked)
    template = {} if asked.payload_template is None else asked.payload_template
    return [
        lambda: compile_template(template, kind.roots),
        lambda: check_options(asked),
        *kind.list_checks(asked, zone),
    ]


def _check_form(asked: TriggerRequest) -> None:
    """Refuse a trigger that has not exactly one form, or fields of another kind."""
    forms = [name for kind in KINDS.values() for name in kind.forms if getattr(asked, name) is not None]
    if len(forms) != 1 or forms[0] not in kind_of(asked).forms:
        words = ", or ".join(words for kind in KINDS.values() for words, _ in kind.forms.values())
        raise TriggerFormInvalid(
            f"A trigger has either {words}: give exactly one, and the trigger_type that goes with it "
            f"({' or '.join(KINDS)}).",
            [Fault(name, "not together") for name in forms] or [Fault("", "is missing")],
        )
    foreign = [name for kind in KINDS.values() if kind is not kind_of(asked) for name in kind.fields]
    if foreign := [name for name in foreign if _is_set(asked, name)]:
        raise TriggerFormInvalid(
            f"{foreign[0]} does not go with a trigger of type {asked.trigger_type}: leave it out.",
            [Fault(name, f"not with {asked.trigger_type}") for name in foreign],
        )


def _is_set(asked: TriggerRequest, name: str) -> bool:
    # a stored trigger has these defaults for the fields of other kinds
    return getattr(asked, name) not in (None, {}, CatchUp.SKIP, Overlap.ALLOW)


def _invalid(faults: list[Fault]) -> TriggerInvalid:
    return TriggerInvalid(f"Invalid trigger: {faults[0].path} {faults[0].message}.", faults)
