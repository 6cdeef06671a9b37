"""`lever run`: the span that an agent's budgets count over."""

from __future__ import annotations

from typing import Any

import click

from broker.wire.names import Cn, DirectiveId
from lever import show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import CENTS, CN, ID, as_json, with_key, with_socket
from lever.where import Place

_HEADERS = ("RUN", "AGENT", "STATE", "CALLS", "SECONDS")
_EXAMPLE = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"
_COUNT = click.IntRange(min=0)


@click.group(cls=Story)
def run() -> None:
    """See what agents have used, and begin or end a run.

    A run is what budgets count over. It begins with an agent's first call after its enrolment, or by `new`; one that
    was stopped never goes on.
    """


@run.command("list", epilog=examples("lever run list", "lever run list --json"))
@with_key
@as_json
def list_(place: Place, as_json: bool) -> None:
    """List runs, with what they used of their limits."""
    answer = _listed(place)
    if as_json:
        return show.data(answer)
    if answer.get("stopped"):
        show.warn("everything is stopped: lever resume")
    found = answer.get("runs") or []
    show.table(_HEADERS, [_row(one) for one in found]) if found else show.say("no runs")


@run.command("show", epilog=examples(f"lever run show {_EXAMPLE}"))
@click.argument("id", metavar="RUN", type=ID)
@with_key
@as_json
def show_(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Show one run: each limit, and what is used of it."""
    found = next((one for one in _listed(place).get("runs") or [] if one.get("run") == id), None)
    if found is None:
        raise CliError(f"the broker knows no run {id}", hint="lever run list", exit=Exit.REFUSED)
    if as_json:
        return show.data(found)
    show.facts(
        {
            "run": str(found.get("run")),
            "agent": _agent(found),
            "state": str(found.get("state")),
            "began": str(found.get("started_at")),
            "last figures": str(found.get("usage_at") or ""),
        }
    )
    names = [*(found.get("used") or {})]
    show.table(("WHAT", "USED", "LIMIT"), [(name, *_of(found, name)) for name in names])


@run.command(epilog=examples("lever run new worker-a"))
@click.argument("agent", type=CN)
@with_key
@as_json
def new(place: Place, agent: Cn, as_json: bool) -> None:
    """Begin a run of AGENT anew.

    What its last one used no longer counts, and the leases of that one are closed.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/run_new", "run_new", {"cn": agent})
    show.data(answer) if as_json else show.put(f"{agent} begins run {answer.get('run')}")


@run.command(epilog=examples(f"lever run stop {_EXAMPLE}"))
@click.argument("id", metavar="RUN", type=ID)
@with_key
@as_json
def stop(place: Place, id: DirectiveId, as_json: bool) -> None:
    """End a run for good.

    Its agent calls nothing more until you begin another: lever run new AGENT.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/run_stop", "run_stop", {"run": id})
    if as_json:
        show.data(answer)
    if not answer.get("stopped"):
        raise CliError(f"nothing to stop: no run {id} goes on", hint="lever run list", exit=Exit.REFUSED)
    if not as_json:
        show.put(f"stopped {id}")


@run.command(
    epilog=examples("lever run usage worker-a --input-tokens 1200 --output-tokens 300 \\\n    --cost-cents 2.5")
)
@click.argument("agent", type=CN)
@click.option("--input-tokens", type=_COUNT, default=0, metavar="N", help="Tokens read by the model.")
@click.option("--output-tokens", type=_COUNT, default=0, metavar="N", help="Tokens that it wrote.")
@click.option("--cost-cents", type=CENTS, default=0, metavar="X", help="What it cost, to 4 places behind the point.")
@with_socket
@as_json
def usage(place: Place, agent: Cn, input_tokens: int, output_tokens: int, cost_cents: int, as_json: bool) -> None:
    """Add figures to the run that AGENT is in.

    They are what was used since the last figures. A host-side proxy in front of the model reports them, at least once
    a minute where a policy limits tokens or cost. It needs no key: figures only narrow.
    """
    from lever.line import Line

    figures = {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": output_tokens}
    answer = Line(place.socket).post("/usage", {"agent": agent, **figures, "cost_micro": cost_cents})
    if as_json:
        show.data(answer)
    if not answer.get("added"):
        why = "it has called nothing yet, or its run was stopped"
        raise CliError(f"{agent} is in no run: {why}", hint="lever run list", exit=Exit.REFUSED)
    if not as_json:
        show.put(f"added to run {answer.get('run')}")


def _listed(place: Place) -> dict[str, Any]:
    from lever.envelopes import ask

    return ask(place, "/admin/run_list", "run_list", {})


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    calls, seconds = ("/".join(_of(one, name)) for name in ("tool_calls", "wall_time_secs"))
    return (str(one.get("run")), _agent(one), str(one.get("state")), calls, seconds)


def _of(one: dict[str, Any], name: str) -> tuple[str, str]:
    """What was used, and the limit."""
    limit = (one.get("limits") or {}).get(name)
    return str((one.get("used") or {}).get(name, 0)), "-" if limit is None else str(limit)


def _agent(one: dict[str, Any]) -> str:
    agent = one.get("agent") or {}
    return f"{agent.get('cn')}/{agent.get('generation')}"
