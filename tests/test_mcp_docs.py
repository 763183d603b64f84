"""The pages about MCP: every tool is in the reference, and every configuration starts a command that exists."""

import json
import re
from typing import Any

from fairlead.cli.mcp import mcp
from fairlead.server.mcp.bounds import LONGEST_LOG, MOST_BYTES, MOST_ITEMS
from fairlead.server.mcp.tools import TOOLS, McpTool, schema_of
from tests.tables import each_case
from tests.test_docs import read, rows, says, sections

HOW_TO = read("how-to/mcp.md")
REFERENCE = sections(read("reference/mcp.md"))


@each_case("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_is_documented_with_its_arguments_answer_permission_and_hints(tool: McpTool) -> None:
    section = REFERENCE[f"`{tool.name}`"]
    arguments = schema_of(tool.arguments)["properties"].keys() - {"tenant"}
    answer = schema_of(tool.answer)["properties"]
    inner = [name for one in answer.values() for name in one.get("items", {}).get("properties", ())]

    assert set(rows(section)) == arguments
    assert [name for name in [*answer, *inner] if not says(section, name)] == []
    assert f"Permission: {f'`{tool.permission}`' if tool.permission else 'any token'}." in section
    if tool.writes:
        hints = ["" if true else "not " for true in (tool.destructive, tool.idempotent)]
        assert f"Hints: {hints[0]}destructive, {hints[1]}idempotent." in section


def test_no_tool_is_documented_that_does_not_exist() -> None:
    documented = {heading.strip("`") for heading in REFERENCE if heading.startswith("`")}

    assert documented == {one.name for one in TOOLS}
    changing = read("reference/mcp.md").split("## Tools that change something")[1]
    assert {one.name for one in TOOLS if f"### `{one.name}`" in changing} == {
        one.name for one in TOOLS if one.writes
    }


def test_the_bounds_of_answers_are_documented() -> None:
    assert f"{MOST_ITEMS} lines a page" in HOW_TO
    assert f"{LONGEST_LOG:,} characters of a log, {MOST_BYTES:,} bytes in all" in " ".join(HOW_TO.split())


def configurations() -> list[Any]:
    blocks = re.findall(r"^```json\n(.*?)^```", HOW_TO, re.DOTALL | re.MULTILINE)
    return [
        server
        for block in blocks
        for servers in [json.loads(block)]
        for server in (servers.get("mcpServers") or servers["servers"]).values()
    ]


def test_every_configuration_of_a_client_starts_a_command_that_exists() -> None:
    started = [one for one in configurations() if "command" in one]

    assert len(started) == 3
    for one in started:
        assert one["command"] == "fairlead"
        assert one["args"][0] == "mcp"
        assert one["env"].keys() == {"FAIRLEAD_URL", "FAIRLEAD_TOKEN"}
        mcp.make_context("mcp", one["args"][1:])  # it refuses what it does not know
    [over_http] = [one for one in configurations() if "url" in one]
    assert over_http["headers"].keys() == {"Authorization"}


def test_every_command_of_the_page_exists() -> None:
    lines = re.findall(r"^(?:.* -- )?fairlead (mcp.*)$", HOW_TO, re.MULTILINE)

    assert len(lines) >= 2
    for line in lines:
        mcp.make_context("mcp", line.split()[1:])
