"""lever.yaml: what the operator wrote, as checked values."""

from broker.config.loading import load
from broker.config.reader import ConfigError
from broker.config.schema import Agent, Config, Limits, Operator, Sandbox, Server
from broker.config.values import Address, Reference, ToCommand, ToInbox

__all__ = [
    "Address",
    "Agent",
    "Config",
    "ConfigError",
    "Limits",
    "Operator",
    "Reference",
    "Sandbox",
    "Server",
    "ToCommand",
    "ToInbox",
    "load",
]
