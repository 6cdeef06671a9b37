"""Checks of the broker as it runs: does it answer, and do the clocks agree?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from lever import clocks, socket_path
from lever.checks import state
from lever.checks.finding import Finding, Level
from lever.exits import CliError, Exit
from lever.where import Place


def answers(place: Place) -> Iterator[Finding]:
    """Does a broker of this instance answer, and does it go with the clock?"""
    from lever.line import Line

    config = place.config
    if place.socket_named is None and (words := socket_path.too_long(config.socket)):
        hint = socket_path.shorter(config.instance, place.config_path)
        yield Finding("broker", "fail", words, hint)
        return
    try:
        line = Line(place.socket)
        line.meet(place.instance)
        health, ahead_s = clocks.ask(line)
    except CliError as error:
        yield _silent(place, error)
        return
    yield Finding("broker", "ok", f"version {health.get('version')}, process {health.get('pid')}, on {place.socket}")
    told, now = health.get("config_digest"), place.config.digest
    if told and told != now:
        text = f"{place.config_path} says other things than when the broker started: they count from its next start"
        yield Finding("broker", "warn", text, f"stop the broker, then: {_serve(place)}")
    if since := health.get("stopped_at"):
        text = f"the emergency stop is on since {since}: no tool call goes through, no directive is handed out"
        yield Finding("broker", "warn", text, "lever resume")
    yield _clock(place, health, ahead_s)


def _silent(place: Place, error: CliError) -> Finding:
    """Why no broker answers: there is none, or one holds the state folder and listens elsewhere."""
    from lever.line import SERVE

    holder = state.holder(place.config.state) if error.exit is Exit.NOT_REACHABLE else None
    if holder:
        text = f"process {holder} holds the state folder, but {place.socket} does not answer"
        return Finding("broker", "fail", text, f"kill {holder}; once it has ended: {_serve(place)}")
    return Finding("broker", "fail", error.text, _serve(place) if error.hint == SERVE else error.hint)


def _clock(place: Place, health: dict[str, Any], ahead_s: float) -> Finding:
    if health.get("clock_behind"):
        text = "the broker's journal knows a later time than its clock: it decides nothing until then"
        hint = f"{clocks.MEND}; or if the clock is right, stop the broker, then: {_serve(place)} --accept-clock"
        return Finding("clock", "fail", text, hint)
    if abs(ahead_s) > clocks.AGREE_S:
        level: Level = "fail" if abs(ahead_s) > clocks.FRESH_S else "warn"
        return Finding("clock", level, clocks.words(ahead_s), clocks.MEND)
    return Finding("clock", "ok", "not behind the journal, and that of this machine")


def _serve(place: Place) -> str:
    return f"lever broker serve {shlex.quote(str(place.config_path))}"
