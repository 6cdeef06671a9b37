"""Steps 1 to 3 of docs/formats/policy.md: whether a caller's calls get as far as the judgement, at this moment."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import Reason
from broker.rules import identity
from broker.rules.authority import budgets
from broker.rules.authority.entries import Run
from broker.rules.authority.judgement import Step
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.rules.identity import Bearer
from broker.wire.names import Cn, Instant
from broker.wire.policy_terms import Policy

MAX_IN_FLIGHT: Final = 16
Bar = tuple[Reason, str]


def who_bar(book: Book, now: Instant, caller: Bearer) -> Bar | None:
    """Step 1: who it is, and whether anybody may do anything."""
    if reason := identity.barred(book, caller, now) or identity.stale(book, caller):
        return reason, ""
    if book.ledger.stopped_at:
        return Reason.EMERGENCY_STOP, "the operator has stopped everything for now"
    return None


def run_bar(run: Run | None, layers: tuple[Policy, ...], now: Instant) -> Bar | None:
    """Step 2: its run, and what that may still use."""
    if run and run.stopped:
        return Reason.RUN_STOPPED, f"the run is over ({run.stopped}): the operator has to begin another"
    return budgets.exceeded(run, layers, now)


def rate_bar(book: Book, caller: Bearer) -> Bar | None:
    """Step 3: what of its calls has no end yet."""
    if _in_flight(book, caller) >= MAX_IN_FLIGHT:
        return Reason.RATE_LIMITED, f"{MAX_IN_FLIGHT} calls are running"
    return None


def started_run(book: Book, caller: Bearer) -> Run | None:
    """The run that this identity is in."""
    return book.ledger.runs.get(book.ledger.run_of.get((caller.cn, caller.generation), ""))


class Told(NamedTuple):
    """The steps for people, and the first that refuses."""

    steps: tuple[Step, ...]
    refused: Bar | None


def told(book: Book, now: Instant, cn: Cn) -> Told:
    """Of the agent of this name, with its newest certificate."""
    agent = book.agents.get(cn)
    if agent is None:
        return Told((Step(1, f"nobody is enrolled as {cn}: what follows is as if somebody were"),), None)
    run, layers = started_run(book, agent), book.ledger.layers(scopes_of(book, cn))
    found = (
        (f"{cn} is enrolled, generation {agent.generation}, and nothing is stopped", who_bar(book, now, agent)),
        (_of_run(run, layers, now), run_bar(run, layers, now)),
        (f"{_in_flight(book, agent)} of its calls run, {MAX_IN_FLIGHT} may at once", rate_bar(book, agent)),
    )
    steps = (Step(number, _words(bar) if bar else good) for number, (good, bar) in enumerate(found, 1))
    return Told(tuple(steps), next((bar for _, bar in found if bar), None))


def _words(bar: Bar) -> str:
    reason, detail = bar
    return f"{reason}: {detail}" if detail else str(reason)


def _of_run(run: Run | None, layers: tuple[Policy, ...], now: Instant) -> str:
    allowed = budgets.limits(layers)
    limits = {name: getattr(allowed, f"max_{name}") for name in budgets.used(None, now)}
    used = budgets.used(run, now)
    counted = ", ".join(f"{name} {used[name]}/{limit}" for name, limit in limits.items() if limit is not None)
    begun = f"run {run.run} goes on" if run else "it is in no run: its first call begins one"
    return f"{begun}; {counted or 'no budget is set'}"


def _in_flight(book: Book, caller: Bearer) -> int:
    return sum(book.ledger.claims[id].cn == caller.cn for id in book.ledger.running)
