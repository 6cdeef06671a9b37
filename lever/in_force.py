"""The policies in force and the accepted tools, as the running broker tells them, each checked here by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    from broker.wire import policy

    found = envelopes.ask(place, "/admin/policy_show", "policy_show", {}).get("policies") or []
    try:
        told = {str(one["scope"]): (policy.parse(str(one["policy"]).encode()), one["digest"]) for one in found}
    except (Malformed, KeyError, TypeError) as error:
        raise _other(f"the broker's answer holds no policies: {error}") from error
    for scope, (value, digest) in told.items():
        if value.digest.hex() != digest:
            raise _other(f"the policy of {scope} is not the one whose digest the broker tells")
    return {scope: value for scope, (value, _) in told.items()}


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


def rows(place: Place, server: str | None) -> dict[str, list[dict[str, Any]]]:
    """By server, each tool as it is defined now, beside what was accepted."""
    params = {} if server is None else {"server": server}
    found = envelopes.ask(place, "/admin/tools_list", "tools_list", params).get("servers")
    return found if isinstance(found, dict) else {}


def catalogue(place: Place, server: str) -> Mapping[str, PinnedTool]:
    """A server's accepted tools, by their names in policies."""
    from broker.wire import catalogue, server_identity

    listed = [one for one in rows(place, server).get(server, []) if one.get("accepted_definition")]
    pinned = [
        catalogue.pin(server, one["accepted_definition"], server_identity.read(one.get("accepted_identity")))
        for one in listed
    ]
    return {tool.qualified: tool for tool in pinned}


def _other(text: str) -> CliError:
    return CliError(text, hint="lever broker status", exit=Exit.VERIFICATION_FAILED)
