"""Secrets in workflows: masking specs, runs and steps, and restoring masked secrets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.model.secrets.redact import Mask, Patterns, build_mask, mask_payload
from fairlead.model.secrets.restoration import restore_secrets
from fairlead.model.secrets.sealed_payload import hide_sealed
from fairlead.model.template.sealed import Seal, seal_literals
from fairlead.model.template.secrets import find_secret_fields, mask_template
from fairlead.model.workflow.run import Run, RunStep
from fairlead.model.workflow.spec import find_definition_key
from fairlead.model.workflow.step import ITEM_ROOTS, PREVIOUS, ROOTS
from fairlead.model.workflow.waits import WAIT_KEYS

# The paths of secrets in payloads, by definition key.
SecretPathsByDefinition = Mapping[str, Sequence[str]]

# The fields of a step that may have literal secrets.
_WITH_SECRETS = ("payload", "for_each", *WAIT_KEYS)
_TEMPLATES = ("payload", *WAIT_KEYS)


def mask_spec(spec: Any, secrets: SecretPathsByDefinition, patterns: Patterns = ()) -> Any:
    """A workflow's document with its literal secrets masked."""
    return {**spec, "steps": [mask_step(step, secrets, patterns) for step in spec["steps"]]}


def seal_step_fields(fields: Mapping[str, Any], paths: Sequence[str], seal: Seal) -> dict[str, Any]:
    """`payload` and `for_each` of a step with literals sealed where its jobs have secrets."""
    sealed = dict(fields)
    if not paths or "payload" not in fields:
        return sealed
    sealed["payload"] = seal_literals(
        fields["payload"], paths, lambda value, at: seal(value, ("payload", *at))
    )
    if isinstance(fields.get("for_each"), list) and (items := _find_item_secrets(fields["payload"], paths)):
        sealed["for_each"] = [
            seal_literals(
                item,
                items,
                lambda value, at, number=number: seal(value, ("for_each", str(number), *at)),  # type: ignore[misc]
            )
            for number, item in enumerate(fields["for_each"])
        ]
    return sealed


def mask_step(step: Any, secrets: SecretPathsByDefinition, patterns: Patterns = ()) -> Any:
    """One step of a document with its literal secrets masked, sealed or not."""
    paths = secrets.get(find_definition_key(step), ())
    if not any(name in step for name in _TEMPLATES):
        return step
    shown = {name: hide_sealed(step[name]) for name in _WITH_SECRETS if name in step}
    if not (paths or patterns):
        return {**step, **shown}
    if "payload" not in step:
        return {**step, **mask_payload(shown, (), patterns)}
    shown["payload"] = mask_template(step["payload"], paths)
    if isinstance(step.get("for_each"), list) and (fields := _find_item_secrets(step["payload"], paths)):
        shown["for_each"] = [mask_template(item, fields) for item in step["for_each"]]
    return {**step, **mask_payload(shown, (), patterns)}


def _find_item_secrets(payload: Any, paths: Sequence[str]) -> list[str]:
    """The paths in an item of for_each that fill the secrets of the step's jobs."""
    return find_secret_fields(payload, paths, (*ROOTS, PREVIOUS, *ITEM_ROOTS), of="item")


def restore_spec(
    spec: Any, known: Any, secrets: SecretPathsByDefinition, patterns: Patterns = (), *, sealed: Any = None
) -> Any:
    """The document with each payload that is still as shown replaced by the payload of the `known` document.

    `sealed` is that document as it is stored, and was shown.
    """
    stored = known if sealed is None else sealed
    before = {
        (step["name"], find_definition_key(step)): (step, mask_step(as_stored, secrets, patterns))
        for step, as_stored in zip(known["steps"], stored["steps"], strict=True)
    }
    return {**spec, "steps": [_restore_step(step, before) for step in spec["steps"]]}


def _restore_step(step: Any, before: Mapping[Any, tuple[Any, Any]]) -> Any:
    stored, shown = before.get((step["name"], find_definition_key(step)), ({}, {}))
    if not any(name in step and name in stored for name in _TEMPLATES):
        return step
    # items fill the payload: a user who edits them edits the request that has the secrets
    edited, was, seen = (
        {name: one[name] for name in _WITH_SECRETS if name in one} for one in (step, stored, shown)
    )
    return {**step, **restore_secrets(edited, was, seen)}


def mask_run(run: Run, patterns: Patterns = ()) -> Run:
    """The run with the secrets of its input masked, also in its output and error.

    If they are sealed, the output and the error were masked when they were written.
    """
    mask = build_mask(run.input, run.secret_paths, patterns)
    if mask is None:
        return replace(run, input=hide_sealed(run.input)) if run.secret_paths else run
    return replace(
        run,
        input=hide_sealed(mask_payload(run.input, run.secret_paths, patterns)),
        output=mask.value(run.output),
        error=mask.value(run.error),
        correlation_id=mask.mask_chosen(run.correlation_id),
    )


def mask_steps(
    steps: Iterable[RunStep], run: Run, secrets: SecretPathsByDefinition, patterns: Patterns = ()
) -> list[RunStep]:
    """The steps of a run with secrets masked; `run` must be unmasked."""
    mask = build_mask(run.input, run.secret_paths, patterns) or Mask(())
    return [
        replace(
            step,
            spec=mask_step(step.spec, secrets, patterns),
            error=mask.value(step.error),
            last_error=mask.value(step.last_error),
        )
        for step in steps
    ]


def mask_output(output: Any, *, given: Any, secret_paths: Sequence[str], patterns: Patterns = ()) -> Any:
    """A run's output to store: the secrets of its input are masked."""
    mask = build_mask(given, secret_paths, patterns)
    return output if mask is None else mask.value(output)
