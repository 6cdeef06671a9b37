"""The policies in force and the accepted tools, as the running broker tells them, each checked here by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.errors import Malformed
from broker.wire.names import Cn
from lever import envelopes, show
from lever.exits import CliError, Exit
from lever.where import Place

if TYPE_CHECKING:
    from broker.wire.catalogue import PinnedTool
    from broker.wire.policy_terms import Account, Policy

_NAMED = ("tenant", "project")


def policies(place: Place) -> dict[str, Policy]:
    """By scope. Raises CliError where the broker's answer holds something else than policies."""
    return policies_and_tools(place)[0]


def policies_and_tools(place: Place) -> tuple[dict[str, Policy], list[str] | None]:
    """The policies by scope, and the names of the accepted tools; None from a broker that does not tell them."""
    from broker.wire import policy

    answer = envelopes.ask(place, "/admin/policy_show", "policy_show", {})
    found, accepted = answer.get("policies") or [], answer.get("accepted")
    try:
        told = {str(one["scope"]): (policy.parse(str(one["policy"]).encode()), one["digest"]) for one in found}
    except (Malformed, KeyError, TypeError) as error:
        raise _other(f"the broker's answer holds no policies: {error}") from error
    for scope, (value, digest) in told.items():
        if value.digest.hex() != digest:
            raise _other(f"the policy of {scope} is not the one whose digest the broker tells")
    names = [str(name) for name in accepted] if isinstance(accepted, list) else None
    return {scope: value for scope, (value, _) in told.items()}, names


def layers(place: Place, agent: Cn) -> tuple[Policy, ...]:
    """Those that an agent stands under, the instance's first. Raises CliError where the instance has none."""
    found = _begun(policies(place))
    return _of(found, agent, _row(place, agent) if _of_more(found) else {})


def layers_and_calls(place: Place, agent: Cn) -> tuple[tuple[Policy, ...], Calls]:
    """The same, and how the agent itself stands."""
    found, row = _begun(policies(place)), _row(place, agent)
    return _of(found, agent, row), _calls(row, agent)


def _begun(found: dict[str, Policy]) -> dict[str, Policy]:
    if "instance" not in found:
        raise CliError(
            "no policy is in force: no tool can be called", hint="lever policy apply FILE", exit=Exit.REFUSED
        )
    return found


def _row(place: Place, agent: Cn) -> dict[str, Any]:
    """Empty for an agent that the broker does not know."""
    rows = envelopes.ask(place, "/admin/agent_show", "agent_show", {"cn": agent}).get("agents")
    return rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}


def _of_more(found: dict[str, Policy]) -> bool:
    """Is there a tenant's or a project's?"""
    return any(scope.partition("/")[0] in _NAMED for scope in found)


def _of(found: dict[str, Policy], agent: Cn, row: dict[str, Any]) -> tuple[Policy, ...]:
    if _of_more(found) and row and not row.keys() >= {*_NAMED}:
        show.warn(f"the broker does not tell under which tenant and project {agent} stands: these layers are left out")
    named = [f"{kind}/{row[kind]}" for kind in _NAMED if row.get(kind)]
    return tuple(found[scope] for scope in ("instance", *named, f"agent/{agent}") if scope in found)


@dataclass(frozen=True, slots=True)
class Calls:
    """Whether an agent's calls get as far as the judgement, in the broker's own words. steps: each number and text;
    refused: the code and the reason of what bars it."""

    steps: Sequence[tuple[int, str]] = ()
    refused: tuple[str, str] | None = None


def _calls(row: dict[str, Any], agent: Cn) -> Calls:
    if not row:
        return Calls(((1, f"nobody is enrolled as {agent}: what follows is as if somebody were"),))
    try:
        told = row["calls"]
        refused = told["refused"]
        return Calls(
            [(int(one["number"]), str(one["text"])) for one in told["steps"]],
            (str(refused["code"]), str(refused["reason"])) if refused else None,
        )
    except (KeyError, TypeError, ValueError):
        show.warn("the broker does not tell how the agent stands: steps 1 to 3 are left out")
        return Calls()


def terms(layers: Sequence[Policy], account: str) -> Account | None:
    """What a lease of this account may be, the least of all layers; None where the instance's policy knows none."""
    from broker.wire.policy_terms import Account

    if not layers or account not in layers[0].accounts:
        return None
    known = [layer.accounts[account] for layer in layers if account in layer.accounts]
    return Account(
        any(one.sensitive for one in known),
        min(one.lease_seconds for one in known),
        min(one.lease_operations for one in known),
    )


@dataclass(frozen=True, slots=True)
class Tools:
    """By server, each tool as it is defined now, beside what was accepted; and why a server can't be read."""

    servers: Mapping[str, list[dict[str, Any]]]
    unavailable: Mapping[str, dict[str, str]]

    def why(self, server: str) -> str:
        """In one line, empty where it can be read: what the broker saw, then what the server wrote last itself."""
        told = self.unavailable.get(server)
        return ": ".join(filter(None, (told.get("why"), told.get("said")))) or "no word of why" if told else ""


def tools(place: Place, server: str | None) -> Tools:
    """What the broker tells of the tools of all servers, or of one."""
    from lever import definitions

    params = {} if server is None else {"server": server}
    answer = envelopes.ask(place, "/admin/tools_list", "tools_list", params)
    servers, unavailable = answer.get("servers"), answer.get("unavailable")
    rows = {
        name: [definitions.judged(name, row) for row in rows]
        for name, rows in (servers.items() if isinstance(servers, dict) else ())
    }
    return Tools(rows, unavailable if isinstance(unavailable, dict) else {})


def rows(place: Place, server: str) -> list[dict[str, Any]]:
    """The tools of a server that can be read at this moment. Raises CliError for another."""
    found = tools(place, server)
    if why := found.why(server):
        raise CliError(f"the server {server} can't be read: {why}", hint=_mend(server, why), exit=Exit.REFUSED)
    return found.servers.get(server, [])


def _mend(server: str, why: str) -> str:
    if "bwrap: execvp" in why:
        return f"its program or that one's interpreter is not in the sandbox: add it to servers.{server}.sandbox.read"
    return "lever doctor"


def catalogue(place: Place, server: str) -> Mapping[str, PinnedTool | str]:
    """A server's accepted tools, by their names in policies; of one that is shut, why."""
    from broker.wire import catalogue, server_identity

    known: dict[str, PinnedTool | str] = {}
    for one in tools(place, server).servers.get(server, []):
        if why := one.get("refused"):
            known[str(one.get("tool"))] = str(why)
        elif definition := one.get("accepted_definition"):
            tool = catalogue.pin(server, definition, server_identity.read(one.get("accepted_identity")))
            known[tool.qualified] = tool
    return known


def _other(text: str) -> CliError:
    return CliError(text, hint="lever broker status", exit=Exit.VERIFICATION_FAILED)
