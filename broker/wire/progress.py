"""What a client hears while its call waits, where it asked for that: how long it has taken, and nothing else."""

from __future__ import annotations

from typing import Final, TypeAlias

from broker.wire.strict_json import JsonObject

EVERY_S: Final = 5.0
MESSAGE: Final = "the call is under way, or waits for the operator"
Token: TypeAlias = str | int


def notice(token: Token, seconds: float) -> JsonObject:
    """The message. In seconds, and of no known total: when the operator answers, and how long a tool takes, nobody
    knows."""
    params: JsonObject = {"progressToken": token, "progress": seconds, "message": MESSAGE}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
