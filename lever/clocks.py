"""This machine's clock against the broker's: what is signed is good for minutes, by the broker's clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from broker.errors import Malformed
from broker.wire import times
from broker.wire.times import SECOND
from lever.exits import CliError, Exit

if TYPE_CHECKING:
    from lever.line import Line

AGREE_S = 2
FRESH_S = 120
"""How old a signed operation may be: beyond that none is taken."""
MEND = "timedatectl set-ntp true; on the machine whose clock is wrong"


def ask(line: Line) -> tuple[dict[str, Any], float]:
    """The broker's health, and how many seconds its clock is ahead of this one: beyond what the way there explains."""
    asked_at = time.time()
    health = line.get("/health")
    answered_at = time.time()
    try:
        at = times.parse(health.get("at"), "at") / SECOND
    except Malformed:  # an older broker does not tell
        return health, 0.0
    return health, at - min(max(at, asked_at), answered_at)


def words(ahead_s: float) -> str:
    """What the difference is, from here."""
    return f"the broker's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"


def blamed(line: Line, error: CliError) -> CliError:
    """The same refusal, and that the two clocks differ, where they do."""
    if error.exit is not Exit.REFUSED:
        return error
    try:
        ahead_s = ask(line)[1]
    except CliError:
        return error
    if abs(ahead_s) <= AGREE_S:
        return error
    return CliError(f"{error.text}; {words(ahead_s)}", hint=MEND, exit=error.exit)
