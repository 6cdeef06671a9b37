"""What each tool does, at the agent door; the identity folder is read anew for each call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.errors import Malformed
from broker.wire import directive_tools as tools
from broker.wire import names, tool_results
from broker.wire.bodies import MAX_ID_CHARS
from broker.wire.names import DirectiveId, Instant
from broker.wire.times import SECOND
from lever.agent import answers, calling, consuming
from lever.agent.failures import AgentFailure, Missed
from lever.agent.folder import IdentityFolder
from lever.agent.session import connected

Answer = dict[str, Any]
PROMPT_S = 1


@dataclass(slots=True)
class Desk:
    """Carries calls out, each on the caller's thread.

    draw: a new attempt key or call_id; sleep: seconds, between tries.
    """

    folder: IdentityFolder
    clock: Callable[[], Instant]
    draw: Callable[[], str]
    sleep: Callable[[float], None]
    _attempts: dict[DirectiveId, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, call: tools.Call) -> Answer:
        """The structured result. Raises AgentFailure."""
        match call:
            case tools.Consume():
                return self._consume(_id(call.id))
            case tools.Check():
                id = _id(call.id)
                with connected(self.folder, self.clock()) as door:
                    return {"id": id, "state": door.check(id)}
            case tools.Inbox():
                with connected(self.folder, self.clock()) as door:
                    return answers.inbox(door.inbox(call.wait_s, None, requests=True))
            case tools.Report():
                id = _id(call.id)
                with connected(self.folder, self.clock()) as door:
                    return {"id": id, "reported": door.report(id, call.outcome, call.note)}

    def listed(self) -> list[Answer]:
        """The brokered tools that this identity may call or ask for; none while the broker can't say."""
        try:
            with connected(self.folder, self.clock()) as door:
                return door.tools()
        except AgentFailure:
            return []

    def call(self, name: str, arguments: Answer, call_id: str, wait_s: int) -> Answer:
        """The result of a brokered tool, a refusal too. Without a call_id each call is another. Raises AgentFailure,
        Malformed."""
        if len(name) > MAX_ID_CHARS:
            raise Malformed("tool", tool_results.NO_SUCH_TOOL)
        with connected(self.folder, self.clock()) as door:
            return calling.call(door, name, arguments, call_id or self.draw(), wait_s, sleep=self.sleep)

    def taken(self, call: tools.Call, begun_at: Instant) -> None:
        """The answer leaves: a further consume of this id is a new one, not the lost one again.

        Not after a slow answer: a harness may have given up on it without a word.
        """
        if isinstance(call, tools.Consume) and self.clock() - begun_at < PROMPT_S * SECOND:
            with self._lock:
                self._attempts.pop(DirectiveId(call.id), None)

    def _consume(self, id: DirectiveId) -> Answer:
        """Under one attempt key until the answer is known to have arrived: a lost answer is not a lost action."""
        with self._lock:
            attempt = self._attempts.setdefault(id, self.draw())
        try:
            with connected(self.folder, self.clock()) as door:
                return dict(consuming.consume(door, id, attempt, sleep=self.sleep).members)
        except Missed:
            with self._lock:
                self._attempts.pop(id, None)
            raise


def _id(raw: str) -> DirectiveId:
    """An id outside the alphabet names nothing, and is the same miss as any other."""
    try:
        return names.directive_id(raw)
    except Malformed as error:
        raise Missed from error


def words(error: AgentFailure) -> str:
    """A failure for the model: what happened, and what helps."""
    return f"{error.text}\nhint: {error.hint}" if error.hint else error.text
