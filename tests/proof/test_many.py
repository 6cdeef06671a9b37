"""Many at once, from several processes over connections of their own: whoever wins, it is one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from broker.wire.statement import LeaseAction
from tests.proof import tool_desk
from tests.proof.board import AGENTS
from tests.proof.calling import approves, asked, call, called_at_once, executed, new_run, says
from tests.proof.forge import Forge
from tests.proof.identities import key_name, new_key, newest, request
from tests.proof.kills import Killed
from tests.proof.operators import digest_of
from tests.proof.scene import Scene
from tests.proof.signer import text_of
from tests.proof.together import Ask, Got, at_once
from tests.proof.tool_desk import MOST_CALLS, MOST_READS

LIMITS = (
    "limits: {consume_per_minute: 1000000, enrol_per_minute: 1000000, max_active_per_agent: 1000000, "
    "calls_per_minute: 1000000}"
)
CALLERS = 32


@pytest.fixture(scope="module")
def scene(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(forge, tmp_path_factory.mktemp("many"), random.getrandbits(32), Killed(), LIMITS).make()
    daemon = made.start()
    made.enrol_all()
    tool_desk.put_in_force(made.lines, made.signer)
    yield made
    daemon.end()
    made.close()


def sent(scene: Scene, cn: str, count: int) -> list[str]:
    """So many new directives for this agent."""
    ids = [scene.signer.name("d") for _ in range(count)]
    identity = newest(scene.folder / "agents", cn)
    assert identity
    for id in ids:
        pair = scene.signer.statement(id, cn, identity.generation)
        assert scene.lines.operator("send", "/directive/send", pair).done
    return ids


def consume(scene: Scene, cn: str, id: str, attempt: str = "") -> Ask:
    identity = newest(scene.folder / "agents", cn)
    assert identity
    body = {"id": id} | ({"attempt": attempt} if attempt else {})
    return Ask(str(scene.port), "/directive/consume", body, str(identity.pem))


def to_operator(scene: Scene, route: str, body: dict[str, str]) -> Ask:
    return Ask(str(scene.state / "operator.sock"), route, body)


def all_at_once(scene: Scene, asks: list[Ask]) -> list[tuple[Ask, Got]]:
    scene.chance.shuffle(asks)
    return list(zip(asks, at_once(scene.forge, scene.folder, asks), strict=True))


def takers(answered: list[tuple[Ask, Got]], id: str) -> list[str]:
    """The attempt keys of those who got this directive, and it was the right one."""
    taken = [(ask, got) for ask, got in answered if ask.route.endswith("/consume") and ask.body["id"] == id]
    assert {got.status for _, got in taken} <= {200, 404}
    given = [(ask, got) for ask, got in taken if got.status == 200]
    assert all(got.answer["advisory_text"] == text_of(id) for _, got in given)
    return [ask.body.get("attempt", "") for ask, _ in given]


def once(attempts: list[str]) -> bool:
    """To one taker: without an attempt key one answer, with one as often as that key asked."""
    return len(attempts) == 1 or (len(set(attempts)) == 1 and attempts[0] != "")


@pytest.mark.promise("P3", "P14")
def test_two_hundred_consumes_with_and_without_attempt_keys_have_one_taker(scene: Scene) -> None:
    (id,) = sent(scene, "ant", 1)
    asks = [consume(scene, "ant", id, attempt) for attempt in ("", "a", "b", "c") for _ in range(40)]
    asks += [consume(scene, "bee", id, "a") for _ in range(40)]
    answered = all_at_once(scene, asks)
    attempts = takers(answered, id)
    assert once(attempts), Counter(attempts)
    assert attempts[0] == "" or len(attempts) == 40, "who has the key gets the answer as often as he asks"
    assert all(got.status == 404 for ask, got in answered if "/bee." in ask.pem)


@pytest.mark.promise("P3", "P4")
def test_a_revocation_against_consumes_is_either_or(scene: Scene) -> None:
    ids = sent(scene, "ant", 16)
    asks = [consume(scene, "ant", id, attempt) for id in ids for attempt in ("", "", "a", "b")]
    asks += [to_operator(scene, "/directive/revoke", scene.signer.envelope("revoke", id=id)) for id in ids]
    answered = all_at_once(scene, asks)
    listed = scene.listed().directives
    revocations = [got for ask, got in answered if ask.route == "/directive/revoke"]
    assert {got.status for got in revocations} == {200}
    consumed = [id for id in ids if takers(answered, id)]
    assert all(once(takers(answered, id)) for id in consumed)
    assert [listed[id] for id in ids] == ["consumed" if id in consumed else "revoked" for id in ids]
    assert sum(got.answer["revoked"] for got in revocations) == len(ids) - len(consumed)


@pytest.mark.promise("P2", "P3")
def test_an_enrolment_against_consumes_ends_what_was_not_had(scene: Scene) -> None:
    cn = "cat"
    ids, ticket = sent(scene, cn, 30), scene.signer.name("t")
    pair = scene.signer.envelope("agent_invite", cn=cn, ticket_digest=digest_of(ticket))
    assert scene.lines.operator("invite", "/admin/agent_invite", pair).done
    asks = [consume(scene, cn, id) for id in ids for _ in range(3)]
    asks.append(Ask(str(scene.port), "/enrol", {"ticket": ticket, "csr": request(cn, new_key())}))
    answered = all_at_once(scene, asks)
    assert [got.status for ask, got in answered if ask.route == "/enrol"] == [200]
    seen = scene.listed()
    assert seen.agents[cn] == (2, "enrolled")
    for id in ids:
        attempts = takers(answered, id)
        assert len(attempts) <= 1
        assert seen.directives[id] == ("consumed" if attempts else "invalidated")
    late = all_at_once(scene, [consume(scene, cn, id) for id in ids])
    assert {got.status for _, got in late} == {404}, "the one before it"


@pytest.mark.promise("P15")
def test_one_ticket_redeemed_at_once_with_many_keys_serves_one(scene: Scene) -> None:
    cn, ticket = "dog", scene.signer.name("t")
    pair = scene.signer.envelope("agent_invite", cn=cn, ticket_digest=digest_of(ticket))
    assert scene.lines.operator("invite", "/admin/agent_invite", pair).done
    keys = [new_key() for _ in range(12)]
    requests = {key_name(key): request(cn, key) for key in keys}
    asks = [Ask(str(scene.port), "/enrol", {"ticket": ticket, "csr": csr}) for csr in requests.values()] * 5
    answered = all_at_once(scene, asks)
    served = [(ask.body["csr"], got.answer["cert"]) for ask, got in answered if got.status == 200]
    assert len(set(served)) == 1, "one key, and one certificate"
    assert len(served) == 5, "which asked five times"
    assert {got.status for _, got in answered} == {200, 403}
    assert scene.listed().agents[cn] == (2, "enrolled")


@pytest.mark.promise("P7", "P3")
def test_one_id_in_many_statements_at_once_is_admitted_once(scene: Scene) -> None:
    id = scene.signer.name("d")
    pairs = [scene.signer.statement(id, cn, 1) for cn in AGENTS[:2] for _ in range(20)]
    answered = all_at_once(scene, [to_operator(scene, "/directive/send", pair) for pair in pairs])
    assert Counter(got.status for _, got in answered) == {200: 1, 409: 39}
    assert {got.answer["reason"] for _, got in answered if got.status == 409} == {"id_seen"}


@pytest.mark.promise("P3", "P20")
def test_one_act_is_claimed_once_by_many_identical_calls(scene: Scene) -> None:
    new_run(scene)
    word = scene.signer.name("w")
    approves(scene, asked(scene, "write", word))
    asks = [call(scene, "write", word, name) for name in ("", "one", "other", "") for _ in range(CALLERS // 4)]
    answered = called_at_once(scene, asks)
    made = executed(scene, word)
    assert len(made) == 1, made
    assert {text for code, text in answered if code == ""} <= {*made}, "whoever has an answer has that of the one call"
    assert {code for code, _ in answered} <= {"", "in_progress", "consent_required"}
    taken = {ask.body.get("call_id", "") for ask, (code, _) in zip(asks, answered, strict=True) if code == ""}
    assert len(taken) == 1, "and it is called by one name"


@pytest.mark.promise("P21")
def test_a_lease_is_read_under_as_often_as_it_says(scene: Scene) -> None:
    new_run(scene)
    words = [scene.signer.name("r") for _ in range(CALLERS)]
    request = asked(scene, "read", words[0])
    says(scene, LeaseAction("mail", 90, MOST_READS, request))
    answered = called_at_once(scene, [call(scene, "read", word) for word in words])
    assert Counter(code for code, _ in answered) == {"": MOST_READS, "consent_required": CALLERS - MOST_READS}
    assert answered[0][0] == "", "the read that asked for it finds its operation"
    assert sorted(executed(scene, *words)) == sorted(text for code, text in answered if code == "")


@pytest.mark.promise("P24")
def test_a_budget_is_spent_and_never_passed(scene: Scene) -> None:
    run = new_run(scene)
    words = [scene.signer.name("l") for _ in range(CALLERS)]
    answered = called_at_once(scene, [call(scene, "look", word) for word in words])
    assert Counter(code for code, _ in answered) == {"": MOST_CALLS, "budget_exceeded": CALLERS - MOST_CALLS}
    assert len(executed(scene, *words)) == MOST_CALLS == scene.listed().runs[run].calls
