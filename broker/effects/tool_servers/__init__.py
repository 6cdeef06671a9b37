"""Upstream MCP servers: started or reached for one holder each, called once per call, and never trusted."""

from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Done, Failed, Holder, NotSent, Outcome, Unknown
from broker.effects.tool_servers.pool import ToolServers
from broker.effects.tool_servers.settings import Reference, Sandbox, Server

__all__ = [
    "Done",
    "Failed",
    "Holder",
    "Look",
    "NotSent",
    "Outcome",
    "Reference",
    "Sandbox",
    "Server",
    "ToolServers",
    "Unknown",
]
