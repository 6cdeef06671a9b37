"""How a command ends: the exit codes in one table, and what each expected failure says to the person who ran it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from broker.errors import BrokerError, Damaged, Malformed, Refused, Unavailable, Untrusted


class Exit(IntEnum):
    """The exit codes of `lever`. A command that is interrupted ends with 130, as a shell would."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    REFUSED = 3
    NOT_REACHABLE = 4
    SIGNING_FAILED = 5
    VERIFICATION_FAILED = 6
    CORRUPT_FILE = 7
    INTERRUPTED = 130


class CliError(Exception):
    """An expected failure. text: what was expected and what was found; hint: a command that would work.

    more: further lines, when there is more than one thing to say.
    """

    def __init__(self, text: str, *, hint: str = "", exit: Exit = Exit.USAGE, more: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.exit = exit
        self.more = tuple(more)


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed command prints and how it exits. Nothing in it is escaped yet."""

    lines: tuple[str, ...]
    hint: str
    exit: Exit


def failure_of(error: CliError | BrokerError) -> Failure:
    """The words and the exit code of an expected failure."""
    if isinstance(error, CliError):
        return Failure((error.text, *error.more), error.hint, error.exit)
    return Failure((str(error),), getattr(error, "hint", ""), _exit_of(error))


def _exit_of(error: BrokerError) -> Exit:
    match error:
        case Malformed():
            return Exit.USAGE
        case Refused():
            return Exit.REFUSED
        case Untrusted():
            return Exit.VERIFICATION_FAILED
        case Unavailable():
            return Exit.NOT_REACHABLE
        case Damaged():
            return Exit.CORRUPT_FILE
        case _:
            return Exit.UNEXPECTED
