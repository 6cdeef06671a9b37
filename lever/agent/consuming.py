"""One consume, asked again with the same attempt while its answer may have been lost on the way."""

from __future__ import annotations

from collections.abc import Callable

from broker.wire.names import DirectiveId
from lever.agent.answers import Consumed
from lever.agent.door import Door
from lever.agent.failures import NotReachable, RateLimited

PAUSES_S = (0.5, 2.0, 5.0)
"""Between tries. With the door's own time limits the last try begins within the minute that the broker repeats."""


def consume(door: Door, id: DirectiveId, attempt: str, *, sleep: Callable[[float], None]) -> Consumed:
    """The action of a directive. Raises AgentFailure; NotReachable with sent when it may be consumed all the same."""
    lost = False
    for pause_s in PAUSES_S:
        try:
            return door.consume(id, attempt)
        except NotReachable as error:
            if not error.sent and not lost:
                raise  # the broker never heard of this attempt
        except RateLimited:
            if not lost:
                raise
        lost = True
        sleep(pause_s)
    return _last(door, id, attempt)


def _last(door: Door, id: DirectiveId, attempt: str) -> Consumed:
    try:
        return door.consume(id, attempt)
    except (NotReachable, RateLimited) as error:
        raise NotReachable(
            f"no answer to the consume of {id}, and whether it took place is unknown: {error.text}",
            sent=True,
            hint=f"within a minute of the first try: lever agent consume {id} --attempt {attempt}",
        ) from error
