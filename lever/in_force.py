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
    found = policies(place)
    if "instance" not in found:
        raise CliError(
            "no policy is in force: no tool can be called", hint="lever policy apply FILE", exit=Exit.REFUSED
        )
    named = _named(place, agent) if any(scope.partition("/")[0] in _NAMED for scope in found) else []
    return tuple(found[scope] for scope in ("instance", *named, f"agent/{agent}") if scope in found)


def _named(place: Place, agent: Cn) -> list[str]:
    """The tenant and the project that an agent was invited for."""
    rows = envelopes.ask(place, "/admin/agent_show", "agent_show", {"cn": agent}).get("agents") or [{}]
    if not rows[0].keys() >= {*_NAMED}:
        show.warn(f"the broker does not tell under which tenant and project {agent} stands: these layers are left out")
    return [f"{kind}/{rows[0][kind]}" for kind in _NAMED if rows[0].get(kind)]


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
    params = {} if server is None else {"server": server}
    answer = envelopes.ask(place, "/admin/tools_list", "tools_list", params)
    servers, unavailable = answer.get("servers"), answer.get("unavailable")
    return Tools(servers if isinstance(servers, dict) else {}, unavailable if isinstance(unavailable, dict) else {})


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


def catalogue(place: Place, server: str) -> Mapping[str, PinnedTool]:
    """A server's accepted tools, by their names in policies."""
    from broker.wire import catalogue, server_identity

    listed = [one for one in tools(place, server).servers.get(server, []) if one.get("accepted_definition")]
    pinned = [
        catalogue.pin(server, one["accepted_definition"], server_identity.read(one.get("accepted_identity")))
        for one in listed
    ]
    return {tool.qualified: tool for tool in pinned}


def _other(text: str) -> CliError:
    return CliError(text, hint="lever broker status", exit=Exit.VERIFICATION_FAILED)
