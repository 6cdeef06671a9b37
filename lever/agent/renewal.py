"""Renewing for ever: when the next try is due, and the loop around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Never

from broker.wire.names import Instant
from broker.wire.times import SECOND, show
from lever.agent.enrolment import Done, Outcome, half_life, renew
from lever.agent.failures import AgentFailure, Barred, Busy, DiskFailed, NotReachable, RateLimited, Unverified
from lever.agent.folder import IdentityFolder
from lever.agent.identity import Identity
from lever.agent.session import explained

RETRY_S = 30.0
RETRY_MAX_S = 300.0
NAP_S = 300.0
"""A sleep is cut into naps: after a suspended machine or a changed clock, the next look is at most this far."""


@dataclass(frozen=True, slots=True)
class Tries:
    """What happened with one certificate so far. chance: this try's draw, at least 0 and below 1."""

    chance: float
    failures: int = 0
    failed_at: Instant | None = None

    def failed(self, at: Instant, chance: float) -> Tries:
        """One failure more."""
        return Tries(chance, self.failures + 1, at)


def due_at(begin_at: Instant, end_at: Instant, tries: Tries) -> Instant:
    """When to try next.

    First at half-life and up to a twentieth of the life later, so that agents enrolled together don't come together;
    after the nth failure, half to all of 30 s * 2^(n-1), and never more than five minutes.
    """
    life = end_at - begin_at
    if tries.failed_at is None:
        return Instant(begin_at + life // 2 + int(tries.chance * (life // 20)))
    pause_s = min(RETRY_S * 2.0 ** min(tries.failures - 1, 16), RETRY_MAX_S)
    return Instant(tries.failed_at + int(pause_s * (0.5 + tries.chance / 2) * SECOND))


def told(error: str, tries: Tries, now: Instant, begin_at: Instant, end_at: Instant) -> str:
    """The line about a failed try: how often, when next, how long the certificate lasts; loud in its last quarter."""
    next_s = max(0, due_at(begin_at, end_at, tries) - now) // SECOND
    left_s = (end_at - now) // SECOND
    loud = "WARNING: " if end_at - now <= (end_at - begin_at) // 4 else ""
    return (
        f"{loud}renewal failed ({tries.failures} in a row): {error}; next try in {next_s} s; "
        f"the certificate ends in {_span(left_s)}, at {show(end_at)}"
    )


def keep_renewed(
    folder: IdentityFolder,
    *,
    clock: Callable[[], Instant],
    draw: Callable[[], float],
    sleep: Callable[[float], None],
    say: Callable[[str], None],
    renewed: Callable[[Done], None],
) -> Never:
    """Renew until it can't be done any more, which is raised: Barred, or a folder that can't be used.

    The folder is read anew before each look, so an enrolment beside it is taken up.
    """
    tries = Tries(draw())
    current = folder.read()
    ahead, fresh = 0, current.holder.cert_digest
    while True:
        found = folder.read()
        if found.holder.cert_digest != current.holder.cert_digest:
            if found.holder.cert_digest != fresh:
                ahead = 0  # an enrolment beside us, by whatever clock
            current, tries = found, Tries(draw())
        if clock() < current.holder.not_before_at + ahead:
            ahead = 0  # our clock was put right
        begin_at, end_at = Instant(current.holder.not_before_at + ahead), Instant(current.holder.not_after_at + ahead)
        if tries.failures and clock() >= end_at:
            raise explained(Barred(""), current, clock())
        wait = due_at(begin_at, end_at, tries) - clock()
        if wait > 0:
            sleep(min(wait / SECOND, NAP_S))
            continue
        done = _try(folder, clock())
        now = clock()
        if isinstance(done, str):
            tries = tries.failed(now, draw())
            say(told(done, tries, now, begin_at, end_at))
        elif done.outcome is Outcome.RENEWED:
            renewed(done)
            ahead, fresh = _ahead(done.identity, now), done.identity.holder.cert_digest
            if ahead:
                say(f"WARNING: here it is {show(now)}, and the certificate that came now is older than half its life: "
                    "one of the two clocks is wrong; going by the certificate's")  # fmt: skip


def stay_renewed(
    folder: IdentityFolder,
    *,
    clock: Callable[[], Instant],
    draw: Callable[[], float],
    sleep: Callable[[float], None],
    say: Callable[[str], None],
) -> Never:
    """As `keep_renewed`, beside a server: where there is no identity, or its time is over, a new one is waited for."""
    said = ""
    while True:
        try:
            keep_renewed(folder, clock=clock, draw=draw, sleep=sleep, say=say, renewed=lambda done: None)
        except AgentFailure as error:
            if error.text != said:
                say(f"no renewal: {error.text}")
            said = error.text
        sleep(NAP_S)


def _try(folder: IdentityFolder, now: Instant) -> Done | str:
    """One renewal; the words for a failure that may pass. Raises the ones that will not."""
    try:
        return renew(folder, now=now)
    except (NotReachable, RateLimited, Unverified, Busy, DiskFailed) as error:
        return error.text


def _ahead(fresh: Identity, now: Instant) -> int:
    """How far our clock is ahead, when it would have a fresh certificate renewed at once, and again, without end."""
    return now - fresh.holder.not_before_at if now >= half_life(fresh) else 0


def _span(seconds: int) -> str:
    if seconds >= 7200:
        return f"{seconds // 3600} h"
    return f"{seconds // 60} min" if seconds >= 120 else f"{seconds} s"
