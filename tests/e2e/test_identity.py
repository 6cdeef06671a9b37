"""Tickets, certificates and renewals through the real TLS port."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.rig import Agent, Rig, is_miss


@pytest.mark.promise("P15")
def test_a_ticket_works_once_and_only_for_its_name(rig: Rig) -> None:
    ticket = rig.invite("one-a")
    agent, other, late = Agent(rig, "one-a"), Agent(rig, "one-b"), Agent(rig, "one-a")
    assert other.redeem(ticket).status_code == 403, "another name"
    first = agent.redeem(ticket)
    assert first.status_code == 200, "and that did not burn it"
    assert agent.redeem(ticket).json() == first.json(), "the same key may ask again: its answer was lost"
    assert late.redeem(ticket).status_code == 403, "another key may not"


@pytest.mark.promise("P15")
def test_every_failed_enrolment_has_one_body(rig: Rig) -> None:
    agent = Agent(rig, "body-a")
    spent = rig.invite("body-a")
    assert agent.redeem(spent).status_code == 200
    bad = [
        agent.redeem("never-issued"),
        Agent(rig, "body-a").redeem(spent),
        agent.redeem(spent, csr="no csr"),
        agent.redeem(rig.invite("body-a"), csr=agent.csr("body-b")),
        agent.post("/enrol", {"ticket": "x"}),
    ]
    assert {(r.status_code, r.content) for r in bad} == {(403, b'{"error":"forbidden"}')}


@pytest.mark.promise("P15")
def test_an_expired_ticket_is_refused(rig: Rig) -> None:
    ticket = rig.invite("brief", expires_s="1")
    agent = Agent(rig, "brief")
    deadline = 0
    while agent_row(rig, "brief") and deadline < 200:
        deadline += 1
    assert agent.redeem(ticket).status_code == 403


def agent_row(rig: Rig, cn: str) -> object:
    return rig.admin("/admin/agent_show", "agent_show", cn=cn).json()["agents"]


@pytest.mark.promise("P15")
def test_a_new_invitation_voids_the_earlier_one(rig: Rig) -> None:
    first, second = rig.invite("void-a"), rig.invite("void-a")
    assert Agent(rig, "void-a").redeem(first).status_code == 403
    assert Agent(rig, "void-a").redeem(second).status_code == 200


@pytest.mark.promise("P15")
def test_fifty_redemptions_at_once_of_one_ticket_make_one_enrolment(rig: Rig) -> None:
    ticket = rig.invite("crowd")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: Agent(rig, "crowd").redeem(ticket), range(50)))
    assert [answer.status_code for answer in answers].count(200) == 1
    (row,) = rig.admin("/admin/agent_show", "agent_show", cn="crowd").json()["agents"]
    assert row["generation"] == 1


def test_renewal_keeps_the_generation_and_ignores_the_requests_own_name(rig: Rig) -> None:
    agent = rig.enrol("renew-a")
    id = rig.send("renew-a")
    answer = agent.post("/renew", {"csr": agent.csr("somebody-else")})
    certificate = x509.load_pem_x509_certificate(answer.json()["cert"].encode())
    (name,) = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == "renew-a"
    assert agent.certified(answer.json()["cert"]).consume(id).status_code == 200


def test_renewing_again_with_the_same_key_gives_the_same_answer(rig: Rig) -> None:
    agent = rig.enrol("renew-b")
    assert agent.renew().json() == agent.renew().json()


def test_a_forked_renewal_freezes_the_agent_until_it_is_invited_again(rig: Rig) -> None:
    agent = rig.enrol("fork")
    id = rig.send("fork")
    assert agent.renew().status_code == 200
    assert agent.renew(key=ec.generate_private_key(ec.SECP256R1())).status_code == 403, "a copy of the identity"
    for response in (agent.consume(id), agent.check(id), agent.renew()):
        assert response.status_code == 403
    (row,) = rig.admin("/admin/agent_show", "agent_show", cn="fork").json()["agents"]
    assert row["state"] == "frozen"
    again = rig.enrol("fork")
    assert is_miss(again.consume(id)), "what the frozen one had is gone"
    assert again.consume(rig.send("fork", 2)).status_code == 200


@pytest.mark.promise("P16")
def test_revoking_takes_effect_on_connections_that_are_open(rig: Rig) -> None:
    agent = rig.enrol("open-line")
    assert is_miss(agent.consume("nothing"))
    rig.admin("/admin/agent_revoke", "agent_revoke", cn="open-line")
    assert agent.consume("nothing").status_code == 403


@pytest.mark.promise("P16")
@pytest.mark.parametrize("ending", ["revoked", "enrolled anew", "frozen"])
def test_a_long_poll_ends_with_the_identity_that_it_waits_for(rig: Rig, ending: str) -> None:
    agent = rig.enrol(f"poll-{ending[:3]}")
    with ThreadPoolExecutor(1) as pool, agent.client() as line:
        waiting = pool.submit(line.get, "/inbox", params={"wait": "30"})
        assert agent.renew().status_code == 200
        match ending:
            case "revoked":
                rig.admin("/admin/agent_revoke", "agent_revoke", cn=agent.cn)
            case "enrolled anew":
                rig.enrol(agent.cn)
            case _:
                agent.renew(key=ec.generate_private_key(ec.SECP256R1()))
        assert waiting.result(timeout=20).status_code == 403, "long before its thirty seconds are over"


def test_nobody_without_a_certificate_gets_past_enrol(rig: Rig) -> None:
    rig.enrol("somebody").close()
    with Agent(rig, "nobody").client() as client:
        for route in ("/directive/consume", "/directive/check", "/renew"):
            assert client.post(route, json={"id": "a"}).status_code == 403
        assert client.get("/inbox").status_code == 403


def test_resolve_tells_the_generation_and_nothing_of_strangers(rig: Rig) -> None:
    rig.enrol("resolved").close()
    with rig.line() as client:
        good = client.get("/directive/resolve", params={"agent": "resolved"})
        assert good.json() == {"cn": "resolved", "slug": "resolved", "generation": 1}
        unknown = client.get("/directive/resolve", params={"agent": "stranger"})
        assert (unknown.status_code, unknown.json()["error"]) == (409, "agent not yet enrolled")
        assert client.get("/directive/resolve", params={"agent": "a\nb"}).status_code == 400
