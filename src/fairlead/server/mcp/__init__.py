"""The MCP server: Fairlead's tools for AI agents, over standard input and output or over HTTP."""
