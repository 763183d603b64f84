"""Maps definition keys to functions, and payloads to their arguments."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from fairlead.errors import SignatureInvalid
from fairlead.handlers.batch_job import BatchJob, BatchOptions
from fairlead.handlers.context import Context, Fatal
from fairlead.handlers.middleware import Manager, call_within, run_within
from fairlead.model.payload import normalize_integers
from fairlead.model.pydantic_models import validate_model
from fairlead.model.signature import CONTEXT, build_arguments_type


class PayloadInvalid(Fatal):
    """The payload does not fit the function; a retry would not help."""


class Handler(msgspec.Struct, frozen=True):
    """A function that runs a definition's jobs. Created by `Handler.of`."""

    key: str
    function: Callable[..., Any]
    isolate: bool
    is_async: bool
    # of a batch handler: the type of a payload
    arguments: Any
    takes_context: bool
    batch: BatchOptions | None = None
    durable: bool = False
    # context managers around each call, the outermost first
    around: tuple[Callable[[Any], Manager], ...] = ()

    @classmethod
    def of(
        cls,
        key: str,
        function: Callable[..., Any],
        *,
        isolate: bool = False,
        batch: BatchOptions | None = None,
        durable: bool = False,
    ) -> "Handler":
        """Create a handler; raises SignatureInvalid if the function cannot be one."""
        name = getattr(function, "__qualname__", repr(function))
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            raise SignatureInvalid(f"{name} cannot be a job: it is not a function defined with `def`.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise SignatureInvalid(
                f"{name} cannot be a job: it is a generator, and a job returns one output."
            )
        if isolate and batch is not None:
            raise SignatureInvalid(f"{name} cannot be a job: a batch handler cannot be isolated.")
        takes_context = next(iter(inspect.signature(function).parameters), None) == CONTEXT
        if durable:
            _check_durable(name, isolate=isolate, batch=batch is not None, takes_context=takes_context)
        if isolate:
            _check_findable(function, name)
        return cls(
            key=key,
            function=function,
            isolate=isolate,
            is_async=inspect.iscoroutinefunction(function),
            arguments=build_arguments_type(function) if batch is None else find_payload_type(function),
            takes_context=takes_context,
            batch=batch,
            durable=durable,
        )

    def within(self, around: tuple[Callable[[Any], Manager], ...]) -> "Handler":
        """The same handler within these context managers."""
        return msgspec.structs.replace(self, around=around) if around else self

    def call(self, ctx: Context) -> Any:
        """Call the function with the payload's arguments, within the middleware."""
        if self.around:
            return self._call_within(ctx)
        arguments = self._convert_payload(ctx.payload)
        if not self.takes_context:
            return self.function(**arguments)
        return self.function(ctx, **arguments)

    def _call_within(self, ctx: Context) -> Any:
        inner = msgspec.structs.replace(self, around=())
        if self.is_async:
            return run_within(self.around, ctx, lambda: inner.call(ctx))
        return call_within(self.around, ctx, lambda: inner.call(ctx), ctx.loop)

    def call_batch(self, jobs: Sequence[BatchJob[Any]]) -> Any:
        """Call a batch handler with these jobs, within the middleware."""
        given = list(jobs)
        if not self.around:
            return self.function(given)
        if self.is_async:
            return run_within(self.around, given, lambda: self.function(given))
        return call_within(self.around, given, lambda: self.function(given), given[0].ctx.loop)

    def convert_batch_payload(self, payload: Any) -> Any:
        """The payload of a job of a batch, as the type that the function declares."""
        return self._convert(payload)

    def _convert(self, payload: Any) -> Any:
        try:
            return _convert(payload, self.arguments)
        except msgspec.ValidationError as error:
            raise PayloadInvalid(f"The payload does not fit {self.key}: {error}") from None

    def _convert_payload(self, payload: Any) -> dict[str, Any]:
        made = self._convert(payload)
        arguments = {name: getattr(made, name) for name in self.arguments.__struct_fields__}
        if not self.arguments.__struct_config__.forbid_unknown_fields:
            arguments |= {name: value for name, value in payload.items() if name not in arguments}
        if CONTEXT in arguments:
            raise PayloadInvalid(f"The payload does not fit {self.key}: {CONTEXT!r} is not an argument.")
        return arguments


def find_payload_type(function: Callable[..., Any]) -> Any:
    """The type of a payload of a batch handler: `T` of its only parameter, a `list[BatchJob[T]]`."""
    name = getattr(function, "__qualname__", repr(function))
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1 or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise SignatureInvalid(
            f"{name} cannot be a batch handler: it must have one parameter, the list of jobs, such as "
            "`jobs: list[BatchJob[Order]]`."
        )
    hint = get_type_hints(function, include_extras=True).get(parameters[0].name, list[BatchJob[Any]])
    of = next(iter(get_args(hint)), None)
    if get_origin(hint) not in (list, Sequence) or (get_origin(of) or of) is not BatchJob:
        raise SignatureInvalid(
            f"{name} cannot be a batch handler: annotate {parameters[0].name} as `list[BatchJob]`, or with the type of "
            "the payloads, such as `list[BatchJob[Order]]`."
        )
    kind = next(iter(get_args(of)), Any)
    return dict[str, Any] if kind is Any else kind


def _convert(payload: Any, arguments: Any) -> Any:
    try:
        return msgspec.convert(payload, arguments, str_keys=True, dec_hook=validate_model)
    except msgspec.ValidationError:
        # JSON Schema, which enqueue uses, accepts 1.0 as an integer
        return msgspec.convert(normalize_integers(payload), arguments, str_keys=True, dec_hook=validate_model)


def _check_findable(function: Callable[..., Any], name: str) -> None:
    """Refuse a function that a child process cannot import by its module and name."""
    module = getattr(function, "__module__", None)
    if module is None or module == "__main__":
        raise SignatureInvalid(
            f"{name} cannot be isolated: it is defined in {module or 'no module'}, which a child process "
            "cannot import. Move it to another module."
        )
    if not inspect.isfunction(function) or "<" in name:
        raise SignatureInvalid(
            f"{name} cannot be isolated: a child process cannot find it in {module} by that name. "
            "Define it with `def` at the top of the module, under its own name."
        )


def _check_durable(name: str, *, isolate: bool, batch: bool, takes_context: bool) -> None:
    """Refuse a function that cannot have steps."""
    if isolate or batch:
        other = "isolated" if isolate else "a batch handler"
        raise SignatureInvalid(f"{name} cannot be durable: it is {other}. Leave one of the two out.")
    if not takes_context:
        raise SignatureInvalid(
            f"{name} cannot be durable: its first parameter must be {CONTEXT}, which has the steps: ctx.step(…)."
        )


class Registry:
    """The handlers a worker serves, by key."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._of_tenants: dict[tuple[str, UUID], Handler] = {}

    def add(
        self,
        key: str,
        function: Callable[..., Any],
        *,
        isolate: bool = False,
        batch: BatchOptions | None = None,
        durable: bool = False,
    ) -> Handler:
        """Serve a definition with a function; a second one for the same key is refused."""
        if key in self._handlers:
            raise SignatureInvalid(f"There are two functions for the key {key!r}; give one of them another.")
        handler = self._handlers[key] = Handler.of(
            key, function, isolate=isolate, batch=batch, durable=durable
        )
        return handler

    def add_for(self, tenant_id: UUID, key: str, function: Callable[..., Any]) -> None:
        """Serve a definition with a separate function for one tenant."""
        self._of_tenants[key, tenant_id] = Handler.of(key, function)

    def get(self, key: str, tenant_id: UUID | None = None) -> Handler | None:
        """The function for a definition: the tenant's own, if there is one."""
        if self._of_tenants and tenant_id is not None and (key, tenant_id) in self._of_tenants:
            return self._of_tenants[key, tenant_id]
        return self._handlers.get(key)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._handlers)

    def __contains__(self, key: object) -> bool:
        return key in self._handlers

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        return len(self._handlers)
