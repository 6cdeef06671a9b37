"""How the agent's side can fail. Each failure has a text and a hint; which exit code it is, the command knows."""

from __future__ import annotations


class AgentFailure(Exception):
    """The root. text: what was expected and what was found; hint: a command that would work."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class NoIdentity(AgentFailure):
    """There is no identity in the folder."""


class Occupied(AgentFailure):
    """The folder holds a living identity that this enrolment would destroy."""


class Unsafe(AgentFailure):
    """A folder or file that others can read or write, or that is not what it should be."""


class Damaged(AgentFailure):
    """A file whose content is not the format, or of a newer format."""


class Busy(AgentFailure):
    """Another process enrols or renews in the same folder."""


class Missed(AgentFailure):
    """The broker's one opaque answer: it says nothing about the cause, and neither does this."""

    def __init__(self) -> None:
        super().__init__("not found")


class Barred(AgentFailure):
    """The broker does not take this identity or ticket, for good: only the operator can change that."""


class RateLimited(AgentFailure):
    """Too many calls for now."""


class NotReachable(AgentFailure):
    """No answer came. sent: the request may have arrived, so its effect is unknown."""

    def __init__(self, text: str, *, sent: bool, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.sent = sent


class Unverified(AgentFailure):
    """The other end, or its answer, is not what it must be: another CA, another name, a hostile body."""
