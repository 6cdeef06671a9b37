"""What the doors ask of every request, on every route. Each one that is refused would work but for one thing."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.wire import accepted, catalogue, policy, statement
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instant
from tests.e2e.flooding import HOST, Line, agent_line, agent_post, answered, http, operator_line, plain, status
from tests.rig import MISS, SECOND, Agent, Rig, now, pair, sign, wire_time

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "doors.md"
JSON = "application/json"
Body = Callable[[Rig, Agent], dict[str, str]]


@dataclass(frozen=True)
class Call:
    """A route, what works there, and what the answer then says. at_most: the size of its body."""

    path: str
    body: Body | None = None
    at_most: int = 0
    says: bytes = b""
    query: str = ""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"

    def __str__(self) -> str:
        return self.path


def _signed_statement(rig: Rig, agent: Agent) -> dict[str, str]:
    raw = statement.encode(rig.statement(agent.cn))
    return pair("statement", raw, sign(rig.key, NAMESPACE_DIRECTIVE, raw))


def _order(op: str, params: Callable[[Rig, Agent], dict[str, str]]) -> Body:
    def body(rig: Rig, agent: Agent) -> dict[str, str]:
        raw = rig.envelope(op, None, **params(rig, agent))
        return pair("envelope", raw, sign(rig.key, NAMESPACE_ADMIN, raw))

    return body


def _id(rig: Rig, agent: Agent) -> dict[str, str]:
    return {"id": rig.send(agent.cn)}


def _consumed(rig: Rig, agent: Agent) -> dict[str, str]:
    id = rig.send(agent.cn)
    assert agent.consume(id).status_code == 200
    return {"id": id, "outcome": "done"}


def _listing(rig: Rig, agent: Agent) -> dict[str, str]:
    return {"jsonrpc": "2.0", "id": "1", "method": "tools/list"}


def _cn(rig: Rig, agent: Agent) -> dict[str, str]:
    return {"cn": agent.cn}


def _nothing(rig: Rig, agent: Agent) -> dict[str, str]:
    return {}


def _ticket(rig: Rig, agent: Agent) -> dict[str, str]:
    return {"cn": agent.cn, "ticket_digest": sha256(uuid.uuid4().bytes).hexdigest()}


def _any(name: str) -> Callable[[Rig, Agent], dict[str, str]]:
    return lambda rig, agent: {name: "none"}


def _attaching(op: str, attached: bytes, **params: str) -> Body:
    def body(rig: Rig, agent: Agent) -> dict[str, str]:
        raw = rig.envelope(op, None, digest=sha256(attached).hexdigest(), **params)
        signed = pair("envelope", raw, sign(rig.key, NAMESPACE_ADMIN, raw))
        return {**signed, "attachment": base64.b64encode(attached).decode()}

    return body


PAIR, ATTACHED = 131072, 4 * 1024 * 1024
LISTS = {"allowed": [], "approval_required": [], "denied": []}
POLICY = policy.encode(policy.of({"v": 1, "name": "door", "default_action": "deny", "tool_allowlist": LISTS}))
TOOLS = accepted.encode("s", [catalogue.pin("s", {"name": "read", "inputSchema": {"type": "object"}})])
READ = {
    "policy_show": b'"policies":',
    "tools_list": b'"servers":',
    "request_list": b'"requests":',
    "lease_list": b'"leases":',
    "run_list": b'"runs":',
}
AGENT_DOOR = [
    Call("/enrol", lambda rig, agent: {"ticket": rig.invite(agent.cn), "csr": agent.csr()}, 16384, b"CERTIFICATE"),
    Call("/renew", lambda rig, agent: {"csr": agent.csr()}, 16384, b"CERTIFICATE"),
    Call("/directive/consume", _id, 4096, b'"kind":"instruction"'),
    Call("/directive/check", _id, 4096, b'"state":"active"'),
    Call("/directive/report", _consumed, 8192, b'"reported":"done"'),
    Call("/inbox", says=b'"pointers":[]'),
    Call("/mcp", _listing, 131072, b'"directive_consume"'),
    Call("/tools", says=b'"tools":[]'),
    Call("/tools/call", lambda rig, agent: {"name": "s__none", "arguments": ""}, 131072, b'"unknown_tool"'),
]
OPERATOR_DOOR = [
    Call("/directive/send", _signed_statement, PAIR, b'"delivered":true'),
    Call("/directive/resolve", query="?agent=", says=b'"generation":1'),
    Call("/directive/list", _order("list", _nothing), PAIR, b'"directives":'),
    Call("/directive/revoke", _order("revoke", _id), PAIR, b'"revoked":true'),
    Call("/directive/selftest", _signed_statement, PAIR, b'"ok":true'),
    Call("/admin/agent_invite", _order("agent_invite", _ticket), PAIR, b'"broker_ca":'),
    Call("/admin/agent_pause", _order("agent_pause", _cn), PAIR, b'"paused":true'),
    Call("/admin/agent_resume", _order("agent_resume", _cn), PAIR, b'"resumed":false'),
    Call("/admin/agent_revoke", _order("agent_revoke", _cn), PAIR, b'"revoked":true'),
    Call("/admin/agent_list", _order("agent_list", _nothing), PAIR, b'"agents":'),
    Call("/admin/agent_show", _order("agent_show", _cn), PAIR, b'"agents":'),
    Call("/admin/observe", _order("observe", _nothing), PAIR, b"application/x-ndjson"),
    *(Call(f"/admin/{op}", _order(op, _nothing), PAIR, says) for op, says in READ.items()),
    Call("/admin/policy_apply", _attaching("policy_apply", POLICY, scope="instance"), ATTACHED, b'"version":"door@'),
    Call("/admin/tools_accept", _attaching("tools_accept", TOOLS), ATTACHED, b'"accepted":["read"]'),
    Call("/admin/act_revoke", _order("act_revoke", _any("id")), PAIR, b'"revoked":false'),
    Call("/admin/lease_close", _order("lease_close", _any("id")), PAIR, b'"closed":false'),
    Call("/admin/run_new", _order("run_new", _cn), PAIR, b'"run":'),
    Call("/admin/run_stop", _order("run_stop", _any("run")), PAIR, b'"stopped":false'),
    Call("/admin/stop_lift", _order("stop_lift", _nothing), PAIR, b'"lifted":false'),
    Call("/usage", lambda rig, agent: {"agent": agent.cn}, 4096, b'"added":false'),
    Call("/health", says=b'"instance":"demo"'),
]
# What works only where something else was done before; tests/authority goes through each of them.
ELSEWHERE = {("GET", "/request"), ("POST", "/admin/request_deny"), ("POST", "/admin/outcome_note"), ("POST", "/stop")}
CALLS = AGENT_DOOR + OPERATOR_DOOR


@dataclass
class Ready:
    """A request that would work, for an agent of its own. Each variation of it goes over a connection of its own."""

    call: Call
    rig: Rig
    agent: Agent
    body: bytes

    @classmethod
    def make(cls, call: Call, rig: Rig) -> Ready:
        agent = rig.enrol(f"a{uuid.uuid4().hex[:12]}")
        body = json.dumps(call.body(rig, agent), separators=(",", ":")).encode() if call.body else b""
        return cls(call, rig, agent, body)

    @property
    def host(self) -> str:
        return HOST if self.call in AGENT_DOOR else "operator"

    @property
    def target(self) -> str:
        return self.call.path + (self.call.query and self.call.query + self.agent.cn)

    def raw(
        self, *extra: str, method: str = "", host: str | None = None, kind: str | None = JSON, **body: Any
    ) -> bytes:
        """The request, with one thing or another in its place. kind: its content type."""
        lines = [f"Host: {self.host if host is None else host}", *extra]
        if self.call.body and kind is not None:
            lines.append(f"Content-Type: {kind}")
        return http(method or self.call.method, self.target, *lines, **{"body": self.body} | body)

    def line(self) -> Line:
        return agent_line(self.rig, self.agent.context()) if self.call in AGENT_DOOR else operator_line(self.rig)

    def refused(self, request: bytes, *expected: int) -> bytes:
        """The answer, which must have one of these statuses, and must not invite a browser."""
        with self.line() as line:
            answer = line.ask(request)
        assert status(answer) in expected, (request[:400], answer)
        assert b"access-control" not in answer.lower()
        return answer

    def works(self) -> None:
        """Nothing of what was refused has had an effect: the envelope, id or ticket is as good as before."""
        with self.line() as line:
            answer = line.ask(self.raw())
        assert status(answer) == 200, answer
        assert self.call.says in answer


@pytest.fixture(params=CALLS, ids=str)
def ready(request: pytest.FixtureRequest, rig: Rig) -> Ready:
    return Ready.make(request.param, rig)


@pytest.fixture(params=[call for call in CALLS if call.body], ids=str)
def posting(request: pytest.FixtureRequest, rig: Rig) -> Ready:
    return Ready.make(request.param, rig)


def test_the_table_has_every_route_of_the_page() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| `(GET|POST) ", line)]
    told = {
        (method, path)
        for row in rows
        for method, first, more in re.findall(r"^\| `(GET|POST) ([/\w]+)[^`]*`(?:, `(\w+)`)?", row)
        for path in (first, *([f"/admin/{more}"] if more else []))
    }
    assert told - ELSEWHERE == {(call.method, call.path) for call in CALLS}


# --- method, type, size -----------------------------------------------------------------------------------------------

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "SEARCH"]
TYPES = [
    None, "", "*/*", "text/plain", "text/json", "application/jsonp", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x", "application/json, text/plain", "application/json; charset=utf-16",
    "application/json; profile=x", "application/json; charset=utf-8; q=1", "application/cbor",
]  # fmt: skip


@pytest.mark.promise("P31")
def test_a_route_takes_its_one_method(ready: Ready) -> None:
    own = ready.call.method
    for method in METHODS:
        if method != own:
            answer = ready.refused(ready.raw(f"X-HTTP-Method-Override: {own}", method=method), 405)
            assert f"\r\nallow: {own}\r\n".encode() in answer
    for method in ("CONNECT", own.lower(), own.title(), own + "S"):
        ready.refused(ready.raw(method=method), 400)
    ready.works()


@pytest.mark.promise("P31")
def test_a_route_takes_its_one_content_type(ready: Ready) -> None:
    if ready.call.body:
        for kind in TYPES:
            ready.refused(ready.raw(kind=kind), 415)
        ready.refused(ready.raw("Content-Type: text/plain"), 400)
    else:
        ready.refused(ready.raw(f"Content-Type: {JSON}", body=b"{}"), 400)
        ready.refused(ready.raw("Transfer-Encoding: chunked") + b"0\r\n\r\n", 400)
    ready.works()


@pytest.mark.promise("P31", "P32")
def test_a_body_has_a_size_however_it_is_framed(posting: Ready) -> None:
    at_most = posting.call.at_most
    large = posting.body.ljust(at_most + 1)
    posting.refused(posting.raw(body=b"", length=at_most + 1), 413)
    posting.refused(posting.raw(body=b"", length=10**15), 413)
    posting.refused(posting.raw("Transfer-Encoding: chunked", body=b"") + chunks(large), 413)
    posting.refused(posting.raw("Transfer-Encoding: chunked"), 400)
    posting.refused(posting.raw(f"Content-Length: {len(posting.body) + 1}"), 400)
    posting.body = posting.body.ljust(at_most)
    posting.works()


def chunks(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:7], body[7:], b""))


# --- who is asked, and from where -------------------------------------------------------------------------------------


@pytest.mark.promise("P33")
def test_a_rebound_name_and_a_browser_page_get_nothing(ready: Ready) -> None:
    ours = ready.host
    for host in ("evil.example", "", f"{ours}.evil.example", f"evil.{ours}", f"evil.example:{ready.rig.port}", "[::1]"):
        ready.refused(ready.raw(host=host), 421)
    for origin in ("https://evil.example", "null", "", f"https://{HOST}:{ready.rig.port}", "http://operator"):
        ready.refused(ready.raw(f"Origin: {origin}"), 403)
    ready.refused(
        ready.raw("Origin: https://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS"), 403
    )
    ready.works()


@pytest.mark.promise("P33")
def test_a_request_names_its_host_once_and_speaks_http_1_1(ready: Ready) -> None:
    good, own = ready.raw(), f"Host: {ready.host}\r\n".encode()
    for host in (ready.host, "evil.example"):
        ready.refused(good.replace(own, own + f"hOST: {host}\r\n".encode()), 400)
    ready.refused(good.replace(own, b""), 400)
    for scheme in (b"http", b"https"):
        absolute = b" %b://%b/" % (scheme, ready.host.encode())
        ready.refused(good.replace(b" /", absolute, 1), 400)
    ready.refused(good.replace(b" /", b" //evil.example/", 1), 404)
    ready.refused(good.replace(b"HTTP/1.1", b"HTTP/1.0", 1), 505)
    ready.refused(good.replace(own, b"").replace(b"HTTP/1.1", b"HTTP/1.0", 1), 505)
    for version in (b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.2"):
        ready.refused(good.replace(b"HTTP/1.1", version, 1), 400, 505)
    ready.works()


# --- strict JSON ------------------------------------------------------------------------------------------------------


def spoilt(body: bytes) -> Iterator[bytes]:
    """The same body, as two parsers could read it differently or none should read it at all."""
    name = next(iter(json.loads(body)))
    escaped = f'"\\u{ord(name[0]):04x}{name[1:]}"'
    for key in (f'"{name}"', escaped, f'"{name.upper()}"'):
        yield b"{%b:null,%b" % (key.encode(), body[1:])
        yield b"%b,%b:null}" % (body[:-1], key.encode())
    deep = ["[" * 64 + "]" * 64, '{"a":' * 64 + "0" + "}" * 64, "[" * 1500 + "]" * 1500, "[" * 1500]
    numbers = ["NaN", "-Infinity", "1e400", "9007199254740993", "1" * 2000, "01", "+1", "0x1"]
    texts = ['"\\ud800"', '"\\udc00\\ud800"', '"\\x41"', '"\t"', "'a'", '"\x00"']
    for value in (*deep, *numbers, *texts):
        yield b'%b,"more":%b}' % (body[:-1], value.encode())
    yield b'%b,"more":"\xff"}' % body[:-1]
    yield b'%b,"more":"\xed\xa0\x80"}' % body[:-1]
    yield from (body + tail for tail in (b"{}", b",", b"\0", b"//", b"\xef\xbb\xbf", body))
    yield from (body[:-1] + b",}", b"\xef\xbb\xbf" + body, b"[" + body + b"]", b"", b"null", body[:-1])
    yield from (body.decode().encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"))


@pytest.mark.promise("P7", "P31")
def test_only_strict_json_is_looked_at(posting: Ready) -> None:
    answers = set()
    with posting.line() as line:
        for body in spoilt(posting.body):
            answer = line.ask(posting.raw(body=body))
            assert status(answer) == (403 if posting.call.path == "/enrol" else 400), (body, answer)
            assert b"unknown field" not in answer, "the bytes are judged before what they say"
            answers.add(answer)
    if posting.call.path == "/enrol":
        assert len(answers) == 1, "whoever enrols is told nothing"
    posting.works()


# --- certificates -----------------------------------------------------------------------------------------------------


def forged(agent: Agent, issuer: x509.Name, signer: Agent) -> str:
    """What looks like the agent's certificate, for the signer's key and by the signer's hand."""
    at = datetime.now(UTC)
    identity = x509.UniformResourceIdentifier(f"lever://demo/agent/{agent.cn}/generation/1")
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, agent.cn)]))
        .issuer_name(issuer)
        .public_key(signer.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(hours=1))
        .not_valid_after(at + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([identity]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
    )
    return builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_a_certificate_of_any_other_hand_does_not_get_in(rig: Rig, tmp_path: Path) -> None:
    victim, thief = rig.enrol("victim"), rig.enrol("thief")
    ours = x509.load_pem_x509_certificate(victim.certificate.encode())
    theirs = x509.load_pem_x509_certificate(thief.certificate.encode())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "victim")])
    contexts = [
        thief.context(forged(victim, subject, thief)),
        thief.context(forged(victim, ours.issuer, thief)),
        thief.context(forged(victim, theirs.subject, thief) + thief.certificate),
    ]
    other = Rig.create(tmp_path / "other").start()  # the same instance name, another authority
    try:
        stranger = other.enrol("victim")
        other.ca_pem = rig.ca_pem
        contexts.append(stranger.context())
        id = rig.send("victim")
        request = agent_post("/directive/consume", json.dumps({"id": id}).encode())
        assert [answered(rig, context, request) for context in contexts] == [b""] * len(contexts)
    finally:
        other.close()
    assert victim.consume(id).status_code == 200


@pytest.mark.parametrize("call", [call for call in AGENT_DOOR if call.path != "/enrol"], ids=str)
def test_without_a_certificate_a_route_has_one_answer(rig: Rig, call: Call) -> None:
    ready = Ready.make(call, rig)
    with agent_line(rig, Agent(rig, "nobody").context()) as line:
        answers = {line.ask(ready.raw()) for _ in range(2)}
        if call.body:
            answers |= {line.ask(ready.raw(body=body)) for body in (b"{", b"{}", b'{"id":"a"}')}
    assert answers == {plain("403 Forbidden", b'{"error":"forbidden"}')}
    ready.works()


# --- the miss ---------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P6", "P2", "P12")
def test_every_miss_has_the_same_bytes_whatever_its_cause(own_rig: Rig) -> None:
    rig = own_rig
    old = rig.enrol("reborn")
    inherited = rig.send("reborn")
    agent, other = rig.enrol("reborn"), rig.enrol("other")
    current, anothers = rig.send("reborn", 2), rig.send("other")
    consumed, revoked, unsigned = (
        rig.send("reborn", 2),
        rig.send("reborn", 2),
        rig.send("reborn", 2, key=rig.second_key),
    )
    assert agent.consume(consumed).status_code == 200
    assert rig.revoke(revoked).json() == {"revoked": True}
    ends = Instant(now() + 3 * SECOND)
    brief = rig.send("reborn", 2, expires_at=ends)
    later = rig.statement("reborn", 2, not_before=Instant(now() + 300 * SECOND))
    assert rig.send_raw(statement.encode(later)).status_code == 200
    while now() < ends:
        agent.get(f"/inbox?wait=1&after={wire_time()}")  # nothing comes: each look waits out its second
    second = rig.second_key.with_suffix(".pub").read_text().split()[1]
    lines = rig.allowed_signers.read_text().splitlines(keepends=True)
    rig.allowed_signers.write_text("".join(line for line in lines if second not in line))
    malformed = ["", "a b", "../x", "ä", "a\n", "\0", "x" * 65, "x" * 256]
    silent = [str(uuid.uuid4()), "never-was", *malformed, anothers, later.directive_id, inherited]
    misses = [(agent, "check", id) for id in silent] + [(old, "check", id) for id in (inherited, current)]
    ended = [consumed, revoked, brief, unsigned]
    misses += [(agent, "consume", id) for id in silent + ended]
    misses += [(old, "consume", id) for id in (inherited, current, consumed)] + [(other, "consume", current)]
    answers = {miss: raw_answer(rig, *miss) for miss in misses}
    assert set(answers.values()) == {plain("404 Not Found", MISS)}, answers
    assert agent.consume(current).status_code == 200, "none of them used it up"


def raw_answer(rig: Rig, agent: Agent, op: str, id: str) -> bytes:
    with agent_line(rig, agent.context()) as line:
        return line.ask(agent_post(f"/directive/{op}", json.dumps({"id": id}).encode()))
