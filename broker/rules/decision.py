"""What a rule returns: the facts to write, the answer to release once they are durable, or the refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from broker.errors import Reason, Refused
from broker.wire.records import Draft, RequestRefused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """drafts: facts in the order they are to be written; exactly one of answer and refused is meant.

    noted: the refusal as the journal shall have it, where those of one caller fold; None where a draft already says it.
    """

    drafts: tuple[Draft, ...] = ()
    answer: T | None = None
    refused: Refused | None = None
    noted: RequestRefused | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks what, in the journal's words. door: agent, operator; caller: a CN, uid:N; subject: an id or a name."""

    door: str
    caller: str
    op: str
    subject: str = ""

    def refuse(
        self,
        reason: Reason,
        detail: str = "",
        hint: str = "",
        drafts: tuple[Draft, ...] = (),
        *,
        rule: str = "",
        policies: tuple[str, ...] = (),
    ) -> Decision[Any]:
        """The refusal of this request, noted for the journal; so rule holds nothing of what the caller wrote."""
        noted = RequestRefused(self.door, self.caller, self.op, self.subject, reason, 1, rule, policies)
        return Decision(drafts, None, Refused(reason, detail, hint), noted)
