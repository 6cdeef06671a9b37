"""One tool call, asked again under the same call_id while its answer may have been lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lever.agent.answers import Result
from lever.agent.door import Door
from lever.agent.failures import AgentFailure, NotReachable, RateLimited

PAUSES_S = (0.5, 2.0, 5.0)
"""Between tries while no answer comes."""
RUNNING_S = (15.0,) * 24
"""Between looks at a call that goes on without the line it came by: longer than the broker lets any call run."""


def call(
    door: Door, name: str, arguments: dict[str, Any], call_id: str, wait_s: int, *, sleep: Callable[[float], None]
) -> Result:
    """What the call came to; the broker carries a call_id out once, however often it is asked.

    Raises AgentFailure; NotReachable with sent when it may have been carried out all the same.
    """
    lost = False
    silent, running = iter(PAUSES_S), iter(RUNNING_S)
    while True:
        try:
            result = door.call(name, arguments, call_id, wait_s)
        except (NotReachable, RateLimited) as error:
            if not lost and not (isinstance(error, NotReachable) and error.sent):
                raise  # the broker never heard of this call
            pause_s = next(silent, None)
            if pause_s is None:
                raise _unknown(name, call_id, error) from error
        else:
            silent = iter(PAUSES_S)
            pause_s = next(running, None) if lost and _runs(result) else None
            if pause_s is None:
                return result
        lost = True
        sleep(pause_s)


def _runs(result: Result) -> bool:
    said = result.get("structuredContent")
    return result.get("isError") is True and isinstance(said, dict) and said.get("code") == "in_progress"


def _unknown(name: str, call_id: str, error: AgentFailure) -> NotReachable:
    return NotReachable(
        f"no answer to the call of {name}, and whether it was carried out is unknown: {error.text}",
        sent=True,
        hint=f"do not make it anew; what came of it: lever agent call {name} ARGUMENTS --call-id {call_id}",
    )
