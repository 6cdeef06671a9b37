"""The directive channel through the real socket and the real TLS port."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.wire import statement
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, DirectiveId, Instance, Instant
from broker.wire.statement import Action, BoundAction, Instruction
from tests.rig import ACTIONS, SECOND, WRITE_FILE, Agent, Rig, is_miss, make_key, now, sign, wire_time

Agents = tuple[Agent, Agent]

LEASE = {"kind": "lease", "account": "a", "ttl_seconds": 90, "ops": 20}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: str(action.kind))
def test_a_directive_of_each_kind_is_told_consumed_once_and_listed(rig: Rig, agents: Agents, action: Action) -> None:
    agent, _ = agents
    id = rig.send(action=action)
    assert id in agent.inbox("?wait=5")
    assert agent.check(id).json() == {"id": id, "state": "active"}
    answer = agent.consume(id).json()
    if isinstance(action, BoundAction):
        assert answer == {"id": id, "kind": action.kind, "action": statement.action_json(action), "enforced": False}
    else:
        assert answer["advisory_text"] == action.text
        assert set(answer) == {"id", "kind", "advisory_text", "note"}
    assert is_miss(agent.consume(id))
    assert agent.check(id).json() == {"id": id, "state": "consumed"}
    assert id not in agent.inbox()
    row = rig.row(id)
    assert (row["state"], row["pointer"]["state"]) == ("consumed", "delivered")
    assert "Do the thing" not in json.dumps(row)


@pytest.mark.promise("P1")
def test_one_flipped_byte_anywhere_is_refused_and_nothing_is_stored(rig: Rig, agents: Agents) -> None:
    value = rig.statement()
    raw = statement.encode(value)
    signature = sign(rig.key, NAMESPACE_DIRECTIVE, raw)
    blob = base64.b64decode("".join(signature.decode().splitlines()[1:-1]))

    def armored(changed: bytes) -> bytes:
        text = base64.b64encode(changed).decode()
        lines = [text[i : i + 70] for i in range(0, len(text), 70)]
        return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()

    assert armored(blob).split() == signature.split()
    forgeries = [(flip(raw, i), signature) for i in range(0, len(raw), 9)]
    forgeries += [(raw, armored(flip(blob, i))) for i in range(0, len(blob), 7)]
    forgeries += [(raw, b""), (raw + b" ", signature), (raw[:-1], signature), (raw, signature[:-40])]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda forged: rig.submit(*forged), forgeries))
    assert {answer.status_code for answer in answers} == {400}
    assert rig.listed(id=value.directive_id) == []
    assert is_miss(agents[0].consume(value.directive_id))
    assert value.directive_id not in agents[0].inbox()
    assert rig.submit(raw, signature).status_code == 200, "the unaltered one is good"


def flip(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


@pytest.mark.promise("P1")
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_a_strangers_key_is_refused(rig: Rig, agents: Agents, tmp_path: Path, kind: str) -> None:
    raw = statement.encode(rig.statement())
    assert rig.send_raw(raw, key=make_key(tmp_path / "stranger", kind)).status_code == 400


@pytest.mark.promise("P2", "P37")
def test_another_agent_and_its_check_get_the_same_miss(rig: Rig, agents: Agents) -> None:
    agent, other = agents
    id = rig.send("worker-a")
    for response in (other.consume(id), other.check(id), other.consume("never-was"), other.check("never-was")):
        assert is_miss(response)
    assert id not in other.inbox()
    assert agent.consume(id).status_code == 200


@pytest.mark.promise("P2")
def test_the_predecessors_unexpired_certificate_gets_nothing_and_cannot_renew(rig: Rig) -> None:
    old = rig.enrol("worker-c")
    pending = rig.send("worker-c", 1)
    new = rig.enrol("worker-c")
    fresh = rig.send("worker-c", 2)
    for id in (pending, fresh):
        assert is_miss(old.consume(id))
        assert is_miss(old.check(id))
    assert is_miss(new.consume(pending)), "the predecessor's directives ended with it"
    assert old.renew().status_code == 403
    assert old.get("/inbox").status_code == 403
    assert new.consume(fresh).status_code == 200
    assert rig.row(pending)["state"] == "invalidated"


@pytest.mark.promise("P2")
def test_a_directive_for_a_stale_generation_is_refused_at_send(rig: Rig, agents: Agents) -> None:
    answer = rig.send_raw(statement.encode(rig.statement("worker-a", 7)))
    assert (answer.status_code, answer.json()["reason"]) == (409, "generation_stale")


_HAMMER = """
import sys, json, ssl, http.client, threading
port, ca, identity, id, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.load_verify_locations(ca); context.load_cert_chain(identity)
gate, lock, got = threading.Barrier(count), threading.Lock(), []
def go():
    line = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    line.connect(); gate.wait()
    line.request("POST", "/directive/consume", json.dumps({"id": id}), {"Content-Type": "application/json"})
    answer = line.getresponse(); body = answer.read(); line.close()
    with lock: got.append((answer.status, body.decode()))
threads = [threading.Thread(target=go) for _ in range(count)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(got))
"""


@pytest.mark.promise("P3")
def test_two_hundred_concurrent_consumes_from_four_processes_give_it_once(
    rig: Rig, agents: Agents, tmp_path: Path
) -> None:
    agent, _ = agents
    id = rig.send(action=WRITE_FILE)
    ca, identity = tmp_path / "ca.pem", tmp_path / "identity.pem"
    ca.write_text(rig.ca_pem)
    identity.write_text(agent.private_pem() + agent.certificate)
    argv = [sys.executable, "-c", _HAMMER, str(rig.port), str(ca), str(identity), id, "50"]
    crowd = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(4)]
    got = [answer for each in crowd for answer in json.loads(each.communicate(timeout=60)[0])]
    assert len(got) == 200
    assert [status for status, _ in got].count(200) == 1
    assert {body for status, body in got if status != 200} == {'{"error":"not found"}'}


STATEMENT_FLAWS = {
    "another instance": ({"instance": "other"}, "wrong_instance"),
    "expired": ({"not_before": wire_time(-100), "expires_at": wire_time(-10)}, "expired"),
    "beyond the cap": ({"expires_at": wire_time(26 * 3600)}, "expiry_beyond_cap"),
    "issued in the future": ({"issued_at": wire_time(3600)}, "issued_in_future"),
    "window turned round": ({"not_before": wire_time(7200), "expires_at": wire_time(3600)}, "window_empty"),
    "unknown field": ({"extra": 1}, "malformed"),
    "boolean for an integer": ({"v": True}, "malformed"),
    "float for an integer": ({"target_agent": {"cn": "worker-a", "generation": 1.0}}, "malformed"),
    "the reserved name": ({"target_agent": {"cn": "selftest", "generation": 1}}, "reserved_name"),
    "a lease of no account": ({"action": LEASE}, "unknown_account"),
    "a lease of too long": ({"action": LEASE | {"ttl_seconds": 301}}, "malformed"),
}


@pytest.mark.promise("P7")
@pytest.mark.parametrize("name", STATEMENT_FLAWS)
def test_a_flawed_statement_is_refused_and_the_operator_is_told_why(rig: Rig, agents: Agents, name: str) -> None:
    changes, reason = STATEMENT_FLAWS[name]
    value = rig.statement()
    document = json.loads(statement.encode(value)) | changes
    answer = rig.send_raw(json.dumps(document).encode())
    assert answer.status_code in (400, 409)
    assert answer.json()["reason"] == reason
    assert answer.json()["error"]
    assert rig.listed(id=value.directive_id) == []


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-1] + b',"v":1}',
        lambda raw: raw[:-1] + b',"\\u0076":1}',
        lambda raw: raw[:-1] + b',"V":1}',
        lambda raw: raw + b"{}",
        lambda raw: b"\xef\xbb\xbf" + raw,
    ],
    ids=[
        "duplicate key",
        "duplicate spelt with an escape",
        "key differing in case",
        "trailing bytes",
        "byte order mark",
    ],
)
def test_bytes_that_two_parsers_could_read_differently_are_refused(rig: Rig, agents: Agents, spoil: object) -> None:
    answer = rig.send_raw(spoil(statement.encode(rig.statement())))  # type: ignore[operator]
    assert (answer.status_code, answer.json()["reason"]) == (400, "malformed")


@pytest.mark.promise("P7")
def test_a_signature_of_another_namespace_or_principal_is_refused(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    raw = statement.encode(rig.statement())
    assert rig.send_raw(raw, namespace=NAMESPACE_ADMIN).status_code == 400
    assert rig.send_raw(raw, namespace="file").status_code == 400
    other = make_key(tmp_path / "other-instance")
    before = rig.allowed_signers.read_text()
    try:
        rig.allowed_signers.write_text(f"{before}operator@other {other.with_suffix('.pub').read_text()}")
        assert rig.send_raw(raw, key=other).status_code == 400
    finally:
        rig.allowed_signers.write_text(before)


@pytest.mark.promise("P7")
def test_a_statement_signed_for_one_instance_does_not_verify_at_another(rig: Rig, agents: Agents) -> None:
    raw = statement.encode(rig.statement(instance=Instance("other")))
    answer = rig.send_raw(raw)
    assert (answer.status_code, answer.json()["reason"]) == (409, "wrong_instance")


@pytest.mark.promise("P8")
def test_an_envelope_works_once(rig: Rig) -> None:
    raw = rig.envelope("list")
    body = {
        "envelope": base64.b64encode(raw).decode(),
        "signature": base64.b64encode(sign(rig.key, NAMESPACE_ADMIN, raw)).decode(),
    }
    assert rig.post("/directive/list", body).status_code == 200
    again = rig.post("/directive/list", body)
    assert (again.status_code, again.json()["reason"]) == (409, "envelope_replayed")


@pytest.mark.promise("P8")
@pytest.mark.parametrize("offset_s", [-125, 125])
def test_an_envelope_outside_its_two_minutes_is_refused(rig: Rig, offset_s: int) -> None:
    raw = rig.envelope("list", issued_at=Instant(now() + offset_s * SECOND))
    body = {
        "envelope": base64.b64encode(raw).decode(),
        "signature": base64.b64encode(sign(rig.key, NAMESPACE_ADMIN, raw)).decode(),
    }
    assert rig.post("/directive/list", body).json()["reason"] == "envelope_stale"


@pytest.mark.promise("P8")
def test_an_envelope_for_one_operation_does_not_serve_another(rig: Rig, agents: Agents) -> None:
    id = rig.send()
    assert rig.admin("/directive/revoke", "list", id=id).json()["reason"] in ("wrong_operation", "malformed")
    assert rig.row(id)["state"] == "active"


def test_revoke_ends_a_directive_once(rig: Rig, agents: Agents) -> None:
    id = rig.send()
    assert rig.revoke(id).json() == {"revoked": True}
    assert is_miss(agents[0].consume(id))
    assert rig.revoke(id).json() == {"revoked": False}
    assert rig.row(id)["state"] == "revoked"


def test_an_id_seen_before_is_refused_also_after_its_end(rig: Rig, agents: Agents) -> None:
    id = rig.send()
    again = statement.encode(rig.statement(directive_id=DirectiveId(id)))
    assert rig.send_raw(again).json()["reason"] == "id_seen"
    assert agents[0].consume(id).status_code == 200
    assert rig.send_raw(again).json()["reason"] == "id_seen"


@pytest.mark.promise("P10")
def test_a_scheduled_directive_is_neither_told_nor_consumable_before_its_time(rig: Rig, agents: Agents) -> None:
    at = now()
    value = rig.statement(not_before=Instant(at + 300 * SECOND))
    answer = rig.send_raw(statement.encode(value)).json()
    assert answer["scheduled"] is True
    assert answer["delivered"] is False
    assert is_miss(agents[0].consume(value.directive_id))
    assert is_miss(agents[0].check(value.directive_id))
    assert value.directive_id not in agents[0].inbox()
    assert rig.row(value.directive_id)["state"] == "scheduled"


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("cn", "action", "reason"),
    [
        ("worker-a", BoundAction("tool_call", "files", "delete_file", {}), "tool_undeclared"),
        ("worker-a", BoundAction("approval", "mail", "send", {}), "tool_undeclared"),
        ("nobody", Instruction("Hello."), "unknown_agent"),
    ],
)
def test_what_could_never_be_acted_on_is_refused_at_send(
    rig: Rig, agents: Agents, cn: str, action: Action, reason: str
) -> None:
    answer = rig.send_raw(statement.encode(rig.statement(cn, action=action)))
    assert (answer.status_code, answer.json()["reason"]) == (409, reason)
    assert answer.json()["hint"]


@pytest.mark.promise("P13")
def test_a_directive_for_a_revoked_agent_is_refused_and_what_it_had_ends(rig: Rig) -> None:
    agent = rig.enrol("worker-r")
    id = rig.send("worker-r")
    assert rig.admin("/admin/agent_revoke", "agent_revoke", cn="worker-r").json() == {"revoked": True}
    assert rig.send_raw(statement.encode(rig.statement("worker-r"))).json()["reason"] == "agent_revoked"
    assert rig.row(id)["state"] == "invalidated"
    for response in (agent.consume(id), agent.check(id), agent.renew()):
        assert (response.status_code, response.json()) == (403, {"error": "forbidden"})


@pytest.mark.promise("P14")
def test_the_same_attempt_gets_the_lost_answer_again_and_no_other_does(rig: Rig, agents: Agents) -> None:
    agent, other = agents
    id = rig.send(action=WRITE_FILE)
    first = agent.consume(id, "attempt-1")
    again = agent.consume(id, "attempt-1")
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    for response in (agent.consume(id), agent.consume(id, "attempt-2"), other.consume(id, "attempt-1")):
        assert is_miss(response)


@pytest.mark.promise("P14")
def test_an_answer_is_not_repeated_once_it_was_taken_back(rig: Rig, agents: Agents) -> None:
    agent, id = agents[0], rig.send()
    assert agent.consume(id, "again").status_code == 200
    assert rig.revoke(id).json() == {"revoked": False}, "it was consumed"
    assert rig.revoke("nope").json() == {"revoked": False, "known": False}
    assert is_miss(agent.consume(id, "again"))
    assert rig.row(id)["state"] == "consumed"


def test_without_an_attempt_the_second_consume_is_the_miss(rig: Rig, agents: Agents) -> None:
    id = rig.send()
    assert agents[0].consume(id).status_code == 200
    assert is_miss(agents[0].consume(id, "late"))


def test_a_call_of_the_wrong_shape_is_a_400_and_a_malformed_id_is_the_miss(rig: Rig, agents: Agents) -> None:
    agent, _ = agents
    for body in ({}, {"id": 1}, {"id": None}, [], {"id": "a", "more": 1}):
        assert agent.post("/directive/consume", body).status_code == 400
    for id in ("", "a b", "../x", "ä", "a\n", "x" * 65):
        assert is_miss(agent.consume(id))
