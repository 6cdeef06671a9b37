"""Tool calls of one agent, many at one moment, and an operator who answers them."""

from __future__ import annotations

import random

from broker.wire.names import Digest
from broker.wire.statement import Action, Approval
from tests.proof import tool_desk
from tests.proof.callers import outcome_of
from tests.proof.identities import newest
from tests.proof.scene import Scene
from tests.proof.together import Ask, at_once
from tests.proof.tool_desk import SERVER

CN = "ant"


def new_run(scene: Scene) -> str:
    """One of which nothing is used."""
    said = scene.lines.operator("run_new", "/admin/run_new", scene.signer.envelope("run_new", cn=CN))
    return str(said.answer["run"])


def call(scene: Scene, tool: str, word: str, call_id: str = "") -> Ask:
    identity = newest(scene.folder / "agents", CN)
    assert identity
    body = {"name": f"{SERVER}__{tool}", "arguments": tool_desk.arguments(word)}
    return Ask(str(scene.port), "/tools/call", body | ({"call_id": call_id} if call_id else {}), str(identity.pem))


def called_at_once(scene: Scene, asks: list[Ask]) -> list[tuple[str, str]]:
    """Of each call, in this order, why it was not carried out, and what the server said."""
    places = random.Random(scene.chance.random()).sample(range(len(asks)), len(asks))
    got = at_once(scene.forge, scene.folder, [asks[place] for place in places])
    assert {one.status for one in got} == {200}
    told = {places[one.number]: outcome_of(one.answer) for one in got}
    return [(told[place]["code"], told[place]["text"]) for place in range(len(asks))]


def asked(scene: Scene, tool: str, word: str) -> str:
    """What waits for the operator, since the agent has called this."""
    (got,) = at_once(scene.forge, scene.folder, [call(scene, tool, word)], 1)
    outcome = outcome_of(got.answer)
    assert outcome["code"] == "consent_required"
    return str(outcome["request"])


def says(scene: Scene, action: Action) -> None:
    identity = newest(scene.folder / "agents", CN)
    assert identity
    pair = scene.signer.statement(scene.signer.name("s"), CN, identity.generation, action)
    said = scene.lines.operator("send", "/directive/send", pair)
    assert said.done, said.answer


def approves(scene: Scene, request: str) -> None:
    row = scene.lines.ask("request", f"/request?id={request}").answer
    digests = (Digest(bytes.fromhex(row[name])) for name in ("args_digest", "tool_digest"))
    server, _, tool = row["tool"].partition(".")
    says(scene, Approval(request, server, tool, row["account"] or "", tuple(row["resources"]), *digests))


def executed(scene: Scene, *words: str) -> list[str]:
    """What the server says of its calls of these words."""
    return [f"{tool} {word} {mark}" for tool, word, mark in tool_desk.executions(scene.folder) if word in words]
