"""`lever request`: what is signed is what was fetched, held against its digest, and shown so that it can be read."""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from broker.wire import envelope, statement
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE
from broker.wire.statement import Approval, LeaseAction
from broker.wire.times import SECOND
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli, Done
from tests.cli.said import GRANTED, HOSTILE, REQUEST, a_request, undisguised
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import OperatorSocket, operator_socket


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) == "W" else 1 for character in line)


def approve(
    cli: Cli, instance: Path, path: Path, row: dict[str, Any], *words: str, **more: tuple[int, Any]
) -> tuple[Done, OperatorSocket]:
    with operator_socket(path, request=(200, row), directive_send=GRANTED, **more) as broker:
        done = cli("request", "approve", REQUEST, *words, "--config", instance, "--socket", path)
    return done, broker


def signed(broker: OperatorSocket, instance: Path) -> statement.Statement:
    raw = signed_by(instance, "statement", body_for(broker, "/directive/send"), NAMESPACE_DIRECTIVE)
    return statement.read(raw)


@pytest.mark.promise("P25")
def test_exactly_what_waits_is_signed_and_was_shown(cli: Cli, instance: Path, path: Path) -> None:
    row = a_request({"path": "a.txt", "text": "hello", "mode": 7})
    done, broker = approve(cli, instance, path, row)
    assert (done.status, done.stdout) == (0, f"approved {REQUEST}\n"), done.stderr
    value = signed(broker, instance)
    assert value.action == Approval(
        REQUEST, "files", "write", "mail", ("path:a.txt",), bytes.fromhex(row["args_digest"]), bytes(32 * [0xAB])
    )
    assert (value.target.cn, value.target.generation) == ("worker-a", 3)
    assert value.expires_at - value.not_before == 600 * SECOND
    lines = done.stderr.splitlines()
    for expected in (
        "tool      files.write", 'account   "mail"', 'resource  "path:a.txt"', 'argument  "path": "a.txt"',
        'argument  "text": "hello"', 'argument  "mode": 7', "uses      1",
    ):  # fmt: skip
        assert f"    | {expected}" in lines, done.stderr
    for expected in ("worker-a, generation 3", "policy cdcdcdcdcdcd", row["args_digest"]):
        assert expected in done.stderr


@pytest.mark.promise("P25")
@pytest.mark.parametrize(
    "change",
    [
        {"args": base64.b64encode(b'{"path":"b.txt"}').decode()},
        {"args_digest": "00" * 32},
        {"args": "", "state": "pending"},
        {"args": base64.b64encode(b'{ "path": "a.txt" }').decode(),
         "args_digest": sha256(b'{ "path": "a.txt" }').hexdigest()},
        {"args": "%"},
        {"request": "another"},
        {"tool_digest": "x"},
        {"agent": {"cn": "worker-a\n", "generation": 3}},
        {"resources": "all"},
    ],
    ids=["other bytes", "other digest", "no bytes", "not canonical", "not base64", "another", "no digest",
         "name", "text"],
)  # fmt: skip
def test_what_is_not_what_its_digest_says_is_never_signed(
    cli: Cli, instance: Path, path: Path, change: dict[str, Any]
) -> None:
    done, broker = approve(cli, instance, path, a_request() | change)
    assert done.status == Exit.VERIFICATION_FAILED, done.stderr
    assert "nothing was signed" in done.stderr
    assert "/directive/send" not in [route for route, _ in broker.asked]


@pytest.mark.promise("P25")
def test_nothing_that_an_agent_writes_can_disguise_the_review(cli: Cli, instance: Path, path: Path) -> None:
    row = a_request({"text": HOSTILE, f"na{HOSTILE}me": [HOSTILE]}, resources=[f"path:{HOSTILE}"], account="mail")
    done, broker = approve(cli, instance, path, row)
    assert done.status == 0, done.stderr
    assert undisguised(done.stderr)
    assert signed(broker, instance).action.resources == (f"path:{HOSTILE}",)  # type: ignore[union-attr]
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.lstrip(" |").startswith("account")] == 2 * ['    | account   "mail"']
    (shown,) = (line for line in lines if line.startswith('    | argument  "text": '))
    assert json.loads(shown.partition(": ")[2]) == HOSTILE, "what is shown is still the value itself"
    (resource, *_) = (line for line in lines if line.startswith("    | resource  "))
    assert json.loads(resource.removeprefix("    | resource  ")) == f"path:{HOSTILE}"
    with operator_socket(path, request=(200, row | {"note": HOSTILE})):
        told = cli("request", "show", REQUEST, "--config", instance, "--socket", path)
    assert undisguised(told.stdout + told.stderr)
    assert not any(line.startswith('  account   "other"') for line in told.stdout.splitlines())


@pytest.mark.promise("P25")
def test_on_a_terminal_nothing_is_folded_into_a_line_of_its_own(cli: Cli, instance: Path, path: Path) -> None:
    """A value that is as wide as the terminal can't put its end where one of our lines would begin."""
    row = a_request({"text": "y" * 58 + 'uses      100 "' + "\u6771" * 30})
    with operator_socket(path, request=(200, row), directive_send=GRANTED):
        words = ("request", "approve", REQUEST, "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": "n"}, env={"NO_COLOR": "1"})
    assert ended.status == Exit.SIGNING_FAILED
    lines = ended.screen.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith('    | argument  "text"'))
    assert lines[at + 1].startswith("    : ")
    assert all(columns(line) <= 80 for line in lines[at : at + 3])
    assert not any(line.startswith("uses") for line in lines)


def test_a_long_value_is_shown_by_size_and_digest_and_paged_in_full(cli: Cli, instance: Path, path: Path) -> None:
    text = "\n".join(f"line {number} \\n" for number in range(60)) + "\nsecret \x1b[2J end"
    row = a_request({"text": text, "list": list(range(200))})
    digest = sha256(text.encode()).hexdigest()
    short = f'    | argument  "text": a text of {len(text.encode())} bytes, SHA-256 {digest}'
    with operator_socket(path, request=(200, row), directive_send=GRANTED) as broker:
        words = ("request", "approve", REQUEST, "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": "y"}, env={"NO_COLOR": "1", "PAGER": "cat"})
        done = cli("request", "show", REQUEST, "--config", instance, "--socket", path)
    assert ended.status == 0, ended.screen
    assert "    | line 59 \\\\n" in ended.screen.splitlines()
    assert "    | secret \\u001b[2J end" in ended.screen.splitlines()
    assert ended.screen.index("line 59") < ended.screen.index("Sign this?")
    assert short in done.stdout.splitlines()
    assert "    | line 59 \\\\n" in done.stdout.splitlines()
    assert "    |   199" in done.stdout.splitlines()
    assert body_for(broker, "/directive/send")


def test_a_no_sends_nothing(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, request=(200, a_request()), directive_send=GRANTED) as broker:
        words = ("request", "approve", REQUEST, "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": ""})
    assert ended.status == Exit.SIGNING_FAILED
    assert "/directive/send" not in [route for route, _ in broker.asked]


@pytest.mark.parametrize("state", ["approved", "denied", "expired"])
def test_a_request_that_was_answered_is_not_signed_again(cli: Cli, instance: Path, path: Path, state: str) -> None:
    done, broker = approve(cli, instance, path, a_request(state=state, args=""))
    assert done.status == Exit.REFUSED
    assert f"is {state} already" in done.stderr
    assert "/directive/send" not in [route for route, _ in broker.asked]


def test_a_request_to_read_is_answered_with_a_lease_as_the_policy_has_it(cli: Cli, instance: Path, path: Path) -> None:
    terms = {"terms": {"sensitive": False, "lease_seconds": 60, "lease_operations": 5}}
    done, broker = approve(cli, instance, path, a_request(regime="lease", tool="mail.read", **terms), "--json")
    assert done.status == 0, done.stderr
    signed_ones = [route for route, body in broker.asked if body and "signature" in body]
    assert signed_ones == ["/directive/send"], "one signature: what is shown comes with the request"
    assert signed(broker, instance).action == LeaseAction("mail", 60, 5, REQUEST)
    assert json.loads(done.stdout) == GRANTED[1] | {"seconds": 60, "operations": 5}
    asked = a_request({"seconds": 30}, regime="lease", tool="", **terms)
    _, broker = approve(cli, instance, path, asked)
    assert signed(broker, instance).action == LeaseAction("mail", 30, 5, REQUEST)


@pytest.mark.parametrize(("terms", "exit", "why"), [
    (None, Exit.REFUSED, "no lease of account mail"),
    ({"sensitive": True, "lease_seconds": 90, "lease_operations": 20}, Exit.REFUSED, "each read is its own act"),
    ({"sensitive": False, "lease_seconds": 301, "lease_operations": 20}, Exit.VERIFICATION_FAILED, "terms"),
    ({"sensitive": False, "lease_seconds": True, "lease_operations": 20}, Exit.VERIFICATION_FAILED, "terms"),
    ({"sensitive": False, "lease_seconds": 90}, Exit.VERIFICATION_FAILED, "terms"), ("long", 6, "terms"),
])  # fmt: skip
def test_no_lease_is_signed_that_no_policy_could_allow(
    cli: Cli, instance: Path, path: Path, terms: Any, exit: Exit, why: str
) -> None:
    done, broker = approve(cli, instance, path, a_request(regime="lease", tool="mail.read", terms=terms))
    assert (done.status, why in done.stderr) == (exit, True), done.stderr
    assert "/directive/send" not in [route for route, _ in broker.asked]


def test_the_list_shows_what_waits_and_all_of_it_on_demand(cli: Cli, instance: Path, path: Path) -> None:
    waits, denied = (a_request(state=state, tool=f"files.{state}\x1b[2J") for state in ("pending", "denied"))
    lapsed, unanswered = a_request(state="expired", answer="act-1"), a_request(state="expired")
    act = {
        "act": "act-1", "state": "active", "request": REQUEST, "agent": {"cn": "worker-a", "generation": 3},
        "tool": "files.write", "account": None, "expires_at": "2126-01-01T00:00:00Z",
    }  # fmt: skip
    words = ("--config", instance, "--socket", path)
    told = {"requests": [waits, denied, lapsed, unanswered], "acts": [act]}
    with operator_socket(path, admin_request_list=(200, told)) as broker:
        short, full = cli("request", "list", *words), cli("request", "list", "--all", *words)
        data = cli("request", "list", "--json", *words)
        ended = cli.on_terminal("request", "list", "--all", *words, env={"NO_COLOR": "1"})
    assert "files.pending" in short.stdout
    assert "denied" not in short.stdout
    assert "files.denied" in full.stdout
    assert [("approved, expired" in line, "expired" in line) for line in full.stdout.splitlines()[3:5]] == [
        (True, True), (False, True),
    ]  # fmt: skip
    assert "act-1" in full.stdout
    assert undisguised(full.stdout)
    assert [one["state"] for one in json.loads(data.stdout)["requests"]] == ["pending"]
    lists = [body for route, body in broker.asked if route == "/admin/request_list"]
    asked = [envelope.read(base64.b64decode(body["envelope"])).params for body in lists]
    assert ["all" in params for params in asked] == [False, True, False, True], "what is settled comes on demand"
    plain = ended.screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, plain)) <= 80


def test_deny_carries_the_note_signed(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_request_deny=(200, {"denied": True})) as broker:
        words = ("request", "deny", REQUEST, "--note", "Not\u202ethis one.", "--config", instance, "--socket", path)
        done = cli(*words)
    assert (done.status, done.stdout) == (0, f"denied {REQUEST}\n")
    raw = signed_by(instance, "envelope", body_for(broker, "/admin/request_deny"), NAMESPACE_ADMIN)
    value = envelope.read(raw)
    assert (value.op, value.params["id"], value.params["note"]) == ("request_deny", REQUEST, "Not\u202ethis one.")
    assert undisguised(done.stderr)


def test_revoke_of_an_act_that_is_gone_says_so(cli: Cli, instance: Path, path: Path) -> None:
    words = ("request", "revoke", "act-1", "--config", instance, "--socket", path)
    with operator_socket(path, admin_act_revoke=(200, {"revoked": True})):
        assert cli(*words).stdout == "revoked act-1\n"
    with operator_socket(path, admin_act_revoke=(200, {"revoked": False})):
        assert cli(*words).status == Exit.REFUSED
