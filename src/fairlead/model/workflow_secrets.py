"""Secrets and workflows: what of a spec, a run and its steps may be shown, and what was shown is put back into it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.model.kept_secrets import restore_secrets
from fairlead.model.redact import Mask, Patterns, mask_for, shown_payload
from fairlead.model.template_secrets import secret_fields, shown_template
from fairlead.model.workflow_run import Run, RunStep
from fairlead.model.workflow_step import ITEM_ROOTS, PREVIOUS, ROOTS

# The paths to secrets in payloads, by the keys of their definitions.
Secrets = Mapping[str, Sequence[str]]

# Of a step: what may hold secrets, written out.
_WITH_SECRETS = ("payload", "for_each")


def shown_spec(spec: Any, secrets: Secrets, patterns: Patterns = ()) -> Any:
    """A workflow's document with the secrets masked that its payloads spell out."""
    return {**spec, "steps": [shown_step(step, secrets, patterns) for step in spec["steps"]]}


def shown_step(step: Any, secrets: Secrets, patterns: Patterns = ()) -> Any:
    """The same of one step."""
    paths = secrets.get(step["definition"], ())
    if "payload" not in step or not (paths or patterns):
        return step
    shown = {name: step[name] for name in _WITH_SECRETS if name in step}
    shown["payload"] = shown_template(step["payload"], paths)
    if isinstance(step.get("for_each"), list) and (fields := _of_items(step["payload"], paths)):
        shown["for_each"] = [shown_template(item, fields) for item in step["for_each"]]
    return {**step, **shown_payload(shown, (), patterns)}


def _of_items(payload: Any, paths: Sequence[str]) -> list[str]:
    """Where in an item of for_each the secrets of a step's jobs come from."""
    return secret_fields(payload, paths, (*ROOTS, PREVIOUS, *ITEM_ROOTS), of="item")


def restored_spec(spec: Any, known: Any, secrets: Secrets, patterns: Patterns = ()) -> Any:
    """A document in which all payloads that are as they were shown of the `known` one are again as they are there."""
    before = {(step["name"], step["definition"]): step for step in known["steps"]}
    return {**spec, "steps": [_restored_step(step, before, secrets, patterns) for step in spec["steps"]]}


def _restored_step(step: Any, before: Mapping[Any, Any], secrets: Secrets, patterns: Patterns) -> Any:
    stored = before.get((step["name"], step["definition"]), {})
    if "payload" not in step or "payload" not in stored:
        return step
    shown = shown_step(stored, secrets, patterns)
    # items fill the payload: who changes them changes what stands beside its secrets
    edited, was, seen = (
        {name: one[name] for name in _WITH_SECRETS if name in one} for one in (step, stored, shown)
    )
    return {**step, **restore_secrets(edited, was, seen)}


def shown_run(run: Run, patterns: Patterns = ()) -> Run:
    """The run without the secrets of its input, wherever they got to."""
    mask = mask_for(run.input, run.secret_paths, patterns)
    if mask is None:
        return run
    return replace(
        run,
        input=shown_payload(run.input, run.secret_paths, patterns),
        output=mask.value(run.output),
        error=mask.value(run.error),
        correlation_id=mask.chosen(run.correlation_id),
    )


def shown_steps(
    steps: Iterable[RunStep], run: Run, secrets: Secrets, patterns: Patterns = ()
) -> list[RunStep]:
    """Steps of a run, which is as it is recorded, without secrets."""
    mask = mask_for(run.input, run.secret_paths, patterns) or Mask(())
    return [
        replace(
            step,
            spec=shown_step(step.spec, secrets, patterns),
            error=mask.value(step.error),
            last_error=mask.value(step.last_error),
        )
        for step in steps
    ]


def kept_output(output: Any, *, given: Any, secret_paths: Sequence[str], patterns: Patterns = ()) -> Any:
    """A run's output as it may be kept: without the secrets of the input that was given."""
    mask = mask_for(given, secret_paths, patterns)
    return output if mask is None else mask.value(output)
