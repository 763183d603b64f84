"""The options that a trigger gives to its jobs: a template, as the payload is."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.errors import Fault, InvalidInput, TriggerInvalid
from fairlead.model.job import NewJob
from fairlead.model.request import parse_request
from fairlead.model.template.spec import compile_template
from fairlead.model.trigger import TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import kind_of

NAMES = ("priority", "max_attempts", "tags", "timeout", "expires_in", "debounce")


def check_options(asked: TriggerRequest) -> None:
    """Refuse unknown options, invalid templates, and values that no event could make valid."""
    given = {} if asked.job_options is None else asked.job_options
    if not isinstance(given, Mapping):
        raise TriggerInvalid(
            "Invalid trigger: /job_options must be an object.", [Fault("/job_options", "must be an object")]
        )
    for name in given:
        if name not in NAMES:
            raise _refusal(name, f"unknown option; known are {', '.join(NAMES)}")
    if "debounce" in given and asked.trigger_type is TriggerType.SCHEDULE:
        raise _refusal("debounce", "only for events: the runs of a schedule have their own times")
    compile_template(given, kind_of(asked).roots)
    fixed = {name: value for name, value in given.items() if b"{{" not in msgspec.json.encode(value)}
    try:
        read_options(fixed)
    except InvalidInput as refusal:
        raise _refusal(refusal.faults[0].path, refusal.faults[0].message) from refusal


def render_options(trigger: TriggerRequest, context: Mapping[str, Any], *, max_bytes: int) -> dict[str, Any]:
    """The options of the job of one firing."""
    if not trigger.job_options:
        return {}
    rendered = compile_template(trigger.job_options, kind_of(trigger).roots).render(
        context, max_bytes=max_bytes
    )
    return read_options(rendered)


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as NewJob takes them; InvalidInput names the invalid one."""
    new: NewJob = parse_request({"definition": "any", "tenant": "any", **given})
    return {name: getattr(new, name) for name in given}


def _refusal(name: str, message: str) -> TriggerInvalid:
    path = f"/job_options/{name}"
    return TriggerInvalid(f"Invalid trigger: {path} {message}.", [Fault(path, message)])
