"""How the agent's side can fail: each failure has its words, a hint, and its exit code."""

from __future__ import annotations

from typing import ClassVar

from lever.exits import CliError, Exit


class AgentFailure(CliError):
    """The root. text: what was expected and what was found; hint: a command that would work."""

    code: ClassVar[Exit] = Exit.UNEXPECTED

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text, hint=hint, exit=self.code)


class NoIdentity(AgentFailure):
    """There is no identity in the folder."""

    code = Exit.USAGE


class Occupied(AgentFailure):
    """The folder holds a living identity that this enrolment would destroy."""

    code = Exit.USAGE


class Unsafe(AgentFailure):
    """A folder or file that others can read or write, or that is not what it should be."""

    code = Exit.CORRUPT_FILE


class Damaged(AgentFailure):
    """A file whose content is not the format, or of a newer format."""

    code = Exit.CORRUPT_FILE


class DiskFailed(AgentFailure):
    """The folder can't be read or written: no room, no right, no such place."""


class Busy(AgentFailure):
    """Another process enrols or renews in the same folder."""


class Missed(AgentFailure):
    """The broker's one opaque answer: it says nothing about the cause, and neither does this."""

    code = Exit.REFUSED

    def __init__(self) -> None:
        super().__init__("not found")


class Barred(AgentFailure):
    """The broker does not take this identity or ticket, for good: only the operator can change that."""

    code = Exit.REFUSED


class RateLimited(AgentFailure):
    """Too many calls for now."""

    code = Exit.REFUSED


class NotReachable(AgentFailure):
    """No answer came. sent: the request may have arrived, so its effect is unknown."""

    code = Exit.NOT_REACHABLE

    def __init__(self, text: str, *, sent: bool, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.sent = sent


class Unverified(AgentFailure):
    """The other end, or its answer, is not what it must be: another CA, another name, a hostile body."""

    code = Exit.VERIFICATION_FAILED
