"""The tools: their names, permissions, hints and schemas, and how a call runs."""

import inspect
from collections.abc import Awaitable, Callable, Collection
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from fairlead.errors import AnswerTooLarge, Fault, InvalidInput, ToolUnknown, WritesDisabled
from fairlead.model.access import Permission
from fairlead.server.mcp import reads, writes
from fairlead.server.mcp.answers import AccessAnswer, ToolAnswer
from fairlead.server.mcp.api import ApiCaller
from fairlead.server.mcp.arguments import ToolArguments
from fairlead.server.mcp.bounds import MOST_BYTES

MOST_FAULTS = 10


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool. Its function's name, docstring and annotations are its name, description and schemas."""

    run: Callable[[ApiCaller, Any], Awaitable[ToolAnswer]]
    title: str
    # None: every token may use it
    permission: Permission | None
    writes: bool = False
    # hints for clients: whether a call undoes or stops something, and whether a second call changes nothing more
    destructive: bool = False
    idempotent: bool = True

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def description(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.run) or ""

    @property
    def arguments(self) -> type[ToolArguments]:
        """The type of the arguments."""
        *_, given = inspect.signature(self.run).parameters.values()
        kind: type[ToolArguments] = given.annotation
        return kind

    @property
    def answer(self) -> type[ToolAnswer]:
        """The type of the answer."""
        kind: type[ToolAnswer] = inspect.signature(self.run).return_annotation
        return kind

    def is_for(self, permissions: Collection[str]) -> bool:
        """Whether a token with these permissions may use it."""
        return self.permission is None or self.permission in permissions


TOOLS = (
    McpTool(run=reads.show_access, title="Show my access", permission=None),
    McpTool(run=reads.show_overview, title="Is everything fine?", permission=Permission.READ_JOBS),
    McpTool(run=reads.show_queue_depth, title="Queue depth", permission=Permission.READ_JOBS),
    McpTool(run=reads.show_job_times, title="Waiting and run times", permission=Permission.READ_JOBS),
    McpTool(run=reads.list_jobs, title="List jobs", permission=Permission.READ_JOBS),
    McpTool(run=reads.show_job, title="Show a job", permission=Permission.READ_JOBS),
    McpTool(run=reads.explain_job, title="Why is a job not running?", permission=Permission.READ_JOBS),
    McpTool(run=reads.read_job_logs, title="Read a job's log", permission=Permission.READ_JOBS),
    McpTool(run=reads.list_definitions, title="List definitions", permission=Permission.READ_DEFINITIONS),
    McpTool(run=reads.show_definition, title="Show a definition", permission=Permission.READ_DEFINITIONS),
    McpTool(run=reads.list_error_groups, title="List dead letters", permission=Permission.READ_JOBS),
    McpTool(run=reads.show_error_group, title="Show an error group", permission=Permission.READ_JOBS),
    McpTool(
        run=writes.enqueue_job,
        title="Enqueue a job",
        permission=Permission.ENQUEUE_JOBS,
        writes=True,
        idempotent=False,
    ),
    McpTool(
        run=writes.retry_job,
        title="Retry a job",
        permission=Permission.WRITE_JOBS,
        writes=True,
        idempotent=False,
    ),
    McpTool(
        run=writes.retry_error_group,
        title="Retry the jobs of an error group",
        permission=Permission.WRITE_JOBS,
        writes=True,
        idempotent=False,
        destructive=True,
    ),
    McpTool(
        run=writes.cancel_job,
        title="Cancel a job",
        permission=Permission.WRITE_JOBS,
        writes=True,
        destructive=True,
    ),
    McpTool(
        run=writes.pause_definition,
        title="Pause a definition",
        permission=Permission.MANAGE_DEFINITIONS,
        writes=True,
        destructive=True,
    ),
    McpTool(
        run=writes.resume_definition,
        title="Resume a definition",
        permission=Permission.MANAGE_DEFINITIONS,
        writes=True,
    ),
)
BY_NAME = {one.name: one for one in TOOLS}


class ToolBox:
    """The tools that a server offers."""

    def __init__(self, *, allow_writes: bool) -> None:
        self.allow_writes = allow_writes

    async def list_tools(self, api: ApiCaller) -> list[McpTool]:
        """The tools that the caller's token may use."""
        permissions = (await api.get("/me"))["permissions"]
        return [one for one in TOOLS if one.is_for(permissions) and (self.allow_writes or not one.writes)]

    async def call(self, api: ApiCaller, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The answer of a tool, as JSON values. The API refuses what the token's role does not permit."""
        tool = self.find(name)
        wanted = _read_arguments(tool, given)
        caller = api.choose_tenant(wanted.tenant)
        answer = await tool.run(caller, wanted)
        if caller.missing_cells and "missing_cells" in type(answer).model_fields:
            answer = answer.model_copy(update={"missing_cells": caller.missing_cells})
        if isinstance(answer, AccessAnswer):
            answer = answer.model_copy(update={"writes_allowed": self.allow_writes})
        return _limit_size(answer)

    def find(self, name: str) -> McpTool:
        """The tool with this name, or an error."""
        tool = BY_NAME.get(name)
        if tool is None:
            raise ToolUnknown(
                f"There is no tool {name[:80]!r}. Known: {', '.join(BY_NAME)}.", [Fault("name", "unknown")]
            )
        if tool.writes and not self.allow_writes:
            raise WritesDisabled(
                f"{name} changes something, and this MCP server only reads. Start it with `fairlead mcp --allow-writes`, or "
                "use the console or the command line."
            )
        return tool


def _read_arguments(tool: McpTool, given: dict[str, Any]) -> ToolArguments:
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        faults = [
            Fault(".".join(map(str, one["loc"])), _describe(one)) for one in error.errors()[:MOST_FAULTS]
        ]
        known = ", ".join(tool.arguments.model_fields)
        raise InvalidInput(
            f"The arguments of {tool.name} are not valid: {faults[0].path}: {faults[0].message}. Known: {known}.",
            faults,
        ) from error


def _describe(one: Any) -> str:
    return "unknown argument" if one["type"] == "extra_forbidden" else str(one["msg"])


def _limit_size(answer: ToolAnswer) -> dict[str, Any]:
    made = answer.model_dump(mode="json")
    size = len(msgspec.json.encode(made))
    if size > MOST_BYTES:
        raise AnswerTooLarge(
            f"The answer has {size} bytes; a tool returns at most {MOST_BYTES}. Ask for less: a smaller limit, or one job."
        )
    return made


@cache
def schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of arguments or of an answer, without references: not every client resolves them."""
    schema = kind.model_json_schema(mode="validation" if issubclass(kind, ToolArguments) else "serialization")
    inlined: dict[str, Any] = _inline(schema, schema.pop("$defs", {}))
    return inlined


def _inline(node: Any, known: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(one, known) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = known[node["$ref"].removeprefix("#/$defs/")]
        node = {**named, **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: _inline(value, known) for key, value in node.items()}
