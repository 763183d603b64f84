"""What a kind of trigger says about itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from fairlead.errors import Fault, TriggerInvalid
from fairlead.model.trigger import Trigger, TriggerRequest, TriggerSpec, TriggerType

# A check of values: it raises Refused.
Check = Callable[[], object]


class TriggerKind(ABC):
    """One kind of trigger: its fields and their checks, its next firing, and its description."""

    trigger_type: ClassVar[TriggerType]
    # what code and messages call a trigger of this kind
    noun: ClassVar[str]
    # the fields of which a trigger has exactly one, as messages name them, and the fields that go with that one only
    forms: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]]
    # the other fields that only this kind has
    options: ClassVar[tuple[str, ...]]
    # the fields whose default differs from that of TriggerSpec
    defaults: ClassVar[Mapping[str, Any]]
    # the roots of its template's paths, besides `trigger` and `tenant`
    own_roots: ClassVar[tuple[str, ...]]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that only this kind has."""
        return (*self.forms, *(name for _, names in self.forms.values() for name in names), *self.options)

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots that its template's paths may begin with."""
        return (*self.own_roots, "trigger", "tenant")

    @abstractmethod
    def check_fields(self, asked: TriggerRequest) -> None:
        """Refuse fields that do not go together."""

    @abstractmethod
    def list_checks(self, asked: TriggerRequest, zone: str) -> list[Check]:
        """The checks of the values of its own fields; `zone` is the tenant's time zone."""

    @abstractmethod
    def describe(self, trigger: Trigger) -> str:
        """When the trigger fires, in words."""

    @abstractmethod
    def build_manual_context(self, trigger: Trigger, now: datetime) -> Mapping[str, Any]:
        """The values for the template when a user fires it; Refused if this kind needs more than a time."""

    def complete(self, asked: TriggerRequest, now: datetime) -> dict[str, Any]:  # noqa: ARG002
        """The fields that depend on when the trigger is created."""
        return {}

    def find_next(
        self,
        spec: TriggerSpec,  # noqa: ARG002
        old: Trigger | None,  # noqa: ARG002
        *,
        zone: str,  # noqa: ARG002
        now: datetime,  # noqa: ARG002
        at_once: bool,  # noqa: ARG002
    ) -> datetime | None:
        """Its next instant, without jitter, given the trigger before the change; None if it does not fire by time.

        With `at_once`, a schedule that began in the past fires now.
        """
        return None

    def find_fire_time(
        self,
        spec: TriggerSpec,  # noqa: ARG002
        instant: datetime,
        *,
        trigger_id: UUID,  # noqa: ARG002
        zone: str,  # noqa: ARG002
    ) -> datetime:
        """When it fires for an instant: later by a part of its jitter, if it has one."""
        return instant

    def iterate_instants(self, trigger: Trigger, since: datetime) -> Iterator[datetime]:  # noqa: ARG002
        """Its instants from a time on; Refused if it does not fire by time."""
        raise TriggerInvalid(
            "This trigger has no scheduled times: replay its events instead.",
            [Fault("trigger_type", "must be schedule")],
        )

    def describe_times(self, trigger: Trigger) -> str | None:  # noqa: ARG002
        """Its times in words; None if it has none, or if its time zone is unknown here."""
        return None


def common_context(trigger: Trigger) -> dict[str, Any]:
    """The values that templates of every kind may use."""
    return {
        "trigger": {"id": str(trigger.id), "label": trigger.label},
        "tenant": {
            "id": str(trigger.tenant_id),
            "slug": trigger.tenant,
            "name": trigger.tenant_name,
            "timezone": trigger.tenant_timezone,
        },
    }
