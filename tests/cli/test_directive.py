"""`lever directive`: what is signed is what was shown, and what comes back is told as it is."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.wire import envelope, statement
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE
from broker.wire.statement import BoundAction, Instruction
from broker.wire.times import SECOND, parse
from lever.draft import action_of
from lever.exits import Exit
from tests.cli.conftest import Cli, Done
from tests.fakes.operator_socket import OperatorSocket, operator_socket

ID = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"
RESOLVED = (200, {"cn": "worker-a", "slug": "worker-a", "generation": 3})
SENT = (200, {"id": ID, "delivered": True})
ROW = {
    "id": ID, "state": "consumed", "kind": "tool_call", "tool": "files", "op": "write_file", "enforced": False,
    "target": {"cn": "worker-a", "generation": 3}, "issued_at": "2026-01-01T00:00:00Z",
    "not_before": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:10:00Z", "fingerprint": "SHA256:x",
    "pointer": {"state": "delivered", "attempts": 2, "delivered_at": "2026-01-01T00:00:01Z"},
    "consumed_at": "2026-01-01T00:01:00Z", "ended_at": "2026-01-01T00:01:00Z", "reason": None,
}  # fmt: skip


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be, short enough for every system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder / "operator.sock"
    shutil.rmtree(folder)


def signed_by(instance: Path, name: str, body: Any, namespace: str) -> bytes:
    """The bytes in a request body, once the instance's allowed_signers has accepted their signature."""
    raw, signature = base64.b64decode(body[name]), base64.b64decode(body["signature"])
    (instance / "sig").write_bytes(signature)
    argv = ["ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", "operator@demo", "-n", namespace, "-s", "sig"]
    subprocess.run(argv, input=raw, cwd=instance, check=True, capture_output=True)
    return raw


def body_for(broker: OperatorSocket, route: str) -> Any:
    (body,) = (body for asked, body in broker.asked if asked == route)
    return body


def send(cli: Cli, instance: Path, path: Path, *words: str) -> tuple[Done, OperatorSocket]:
    with operator_socket(path, directive_resolve=RESOLVED, directive_send=SENT) as broker:
        done = cli("directive", "send", "worker-a", *words, "--config", instance, "--socket", path)
    return done, broker


@pytest.mark.promise("P25")
def test_the_bytes_that_are_sent_are_signed_and_were_shown(cli: Cli, instance: Path, path: Path) -> None:
    done, broker = send(cli, instance, path, "--instruction", "Finish the report first.")
    assert done.status == 0, done.stderr
    raw = signed_by(instance, "statement", body_for(broker, "/directive/send"), NAMESPACE_DIRECTIVE)
    assert raw.decode() in done.stderr.splitlines()
    assert "    | Finish the report first." in done.stderr.splitlines()
    value = statement.read(raw)
    assert (value.instance, value.target.cn, value.target.generation) == ("demo", "worker-a", 3)
    assert value.expires_at - value.not_before == 600 * SECOND, "directive_expiry"
    assert done.stdout.split() == ["id", ID, "told", "yes"]


def test_each_directive_has_an_id_of_its_own(cli: Cli, instance: Path, path: Path) -> None:
    ids = {
        json.loads(base64.b64decode(body_for(broker, "/directive/send")["statement"]))["directive_id"]
        for _, broker in (send(cli, instance, path, "--instruction", "x") for _ in range(2))
    }
    assert len(ids) == 2


def test_the_window_opens_when_it_is_told_to_and_lasts_from_then(cli: Cli, instance: Path, path: Path) -> None:
    words = ("--instruction", "x", "--not-before", "2030-01-01T09:00:00+01:00", "--expires", "1h30m")
    _, broker = send(cli, instance, path, *words)
    value = statement.read(base64.b64decode(body_for(broker, "/directive/send")["statement"]))
    assert value.not_before == parse("2030-01-01T08:00:00Z", "")
    assert value.expires_at == parse("2030-01-01T09:30:00Z", "")


@pytest.mark.promise("P25")
def test_a_disguised_text_is_shown_undisguised_and_signed_as_it_is(cli: Cli, instance: Path, path: Path) -> None:
    text = "do this\n    | and\x1b[2K that \u202egnp\u200b \x9b31m \\u202e"
    done, broker = send(cli, instance, path, "--instruction", text)
    raw = base64.b64decode(body_for(broker, "/directive/send")["statement"])
    assert statement.read(raw).action == Instruction(text)
    lines = done.stderr.splitlines()
    assert "    | do this" in lines
    assert "    |     | and\\u001b[2K that \\u202egnp\\u200b \\u009b31m \\\\u202e" in lines
    assert [json.loads(line) for line in lines if line.startswith("{")] == [json.loads(raw)]
    assert "warning: what a terminal would hide or obey" in done.stderr
    assert not set("\x1b\x9b\u202e\u200b") & set(done.stderr)


def test_an_action_is_shown_argument_by_argument(cli: Cli, instance: Path, path: Path) -> None:
    action = {"kind": "tool_call", "tool": "files", "op": "write_file", "args": {"path": "a.txt", "n": [1, 2.50]}}
    done, broker = send(cli, instance, path, "--action", json.dumps(action))
    value = statement.read(base64.b64decode(body_for(broker, "/directive/send")["statement"]))
    assert value.action == BoundAction("tool_call", "files", "write_file", {"path": "a.txt", "n": [1, 2.5]})
    assert '      "path": "a.txt"' in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"id": ID, "delivered": False}, "not yet; it is tried again"),
        ({"id": ID, "delivered": False, "scheduled": True}, "when its window opens"),
        ({"id": ID, "delivered": True, "enforced": False}, "no: the agent makes the call itself"),
    ],
)
def test_how_it_was_taken_is_told(cli: Cli, instance: Path, path: Path, answer: Any, told: str) -> None:
    with operator_socket(path, directive_resolve=RESOLVED, directive_send=(200, answer)):
        words = ("directive", "send", "worker-a", "--instruction", "x", "--config", instance, "--socket", path)
        assert told in cli(*words).stdout
        assert json.loads(cli(*words, "--json").stdout) == answer


def test_on_a_terminal_a_no_sends_nothing(cli: Cli, instance: Path, path: Path) -> None:
    words = ("directive", "send", "worker-a", "--instruction", "x", "--config", instance, "--socket", path)
    with operator_socket(path, directive_resolve=RESOLVED, directive_send=SENT) as broker:
        refused = cli.on_terminal(*words, answers={"[y/N]": "n"})
        nothing = cli.on_terminal(*words, answers={"[y/N]": ""})
        assert "/directive/send" not in [route for route, _ in broker.asked]
        agreed = cli.on_terminal(*words, answers={"[y/N]": "y"})
    assert (refused.status, nothing.status, agreed.status) == (Exit.SIGNING_FAILED, Exit.SIGNING_FAILED, 0)
    assert "not signed, nothing sent" in refused.screen
    assert ID in agreed.screen


def test_a_person_who_cannot_have_seen_the_review_is_not_asked(cli: Cli, instance: Path) -> None:
    """Standard input is a terminal, standard error is not."""
    words = ("directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--config", instance)
    ended = cli.on_terminal(*words, redirect="2>err")
    assert ended.status == Exit.SIGNING_FAILED
    assert "expected standard error to be a terminal" in (cli.folder / "err").read_text()


@pytest.mark.parametrize(
    ("instruction", "action", "told"),
    [
        (None, None, "expected one of --instruction and --action"),
        ("x", "{}", "expected one of --instruction and --action"),
        (None, "{", "--action: not one JSON value"),
        (None, "[]", "--action: expected an object"),
        (None, '{"kind":"lease"}', 'expected --action to say "kind"'),
        (None, '{"kind":"tool_call","tool":"files"}', "action.op: missing"),
        (None, '{"kind":"tool_call","tool":"files","op":"a","text":"x"}', "action.text: unknown field"),
        (None, '{"kind":"tool_call","tool":"files","op":"a","uses":2}', "action.uses: expected 1"),
        (None, '{"kind":"tool_call","tool":"files","op":"a","args":[]}', "action.args: expected an object"),
        (None, '{"kind":"tool_call","tool":"files","op":"a","args":{"a":1,"a":2}}', "duplicate key"),
        (None, '{"kind":"tool_call","tool":"files","op":"a","args":{"a":1e999}}', "too large"),
        (None, '{"kind":"tool_call","tool":"","op":"a"}', "action.tool: expected 1 to 128"),
        (None, '{"kind":"instruction"}', 'expected --action to say "kind"'),
    ],
)
def test_an_action_that_is_none_is_told_before_anything_is_asked(
    cli: Cli, instance: Path, instruction: str | None, action: str | None, told: str
) -> None:
    words = [*(("--instruction", instruction) if instruction else ()), *(("--action", action) if action else ())]
    done = cli("directive", "send", "worker-a", *words, "--config", instance)
    assert done.status == Exit.USAGE
    assert told in done.stderr


def test_what_can_have_one_value_only_may_be_left_out() -> None:
    whole = '{"kind":"approval","tool":"t","op":"o","args":{},"arg_binding":"exact","uses":1}'
    assert action_of(None, '{"kind":"approval","tool":"t","op":"o"}') == action_of(None, whole)
    assert action_of(None, '{"kind":"instruction","text":"x"}') == Instruction("x")


def test_the_reserved_name_is_refused_before_anything_is_asked(cli: Cli, instance: Path) -> None:
    done = cli("directive", "send", "selftest", "--instruction", "x", "--config", instance)
    assert done.status == Exit.REFUSED
    assert "the name selftest is reserved" in done.stderr


def test_an_answer_for_another_agent_is_not_signed_for(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, directive_resolve=(200, {"cn": "worker-b", "generation": 1})):
        words = ("directive", "send", "worker-a", "--instruction", "x", "--config", instance, "--socket", path)
        done = cli(*words)
    assert done.status == Exit.REFUSED
    assert "asked for worker-a, the broker answers for worker-b" in done.stderr


# --- the two halves -----------------------------------------------------------------------------------------------


def sign(cli: Cli, *words: str | Path) -> Done:
    return cli("directive", "sign", "worker-a", "--instruction", "Stop.", "--generation", "3", *words)


def test_signing_and_submitting_apart(cli: Cli, instance: Path, path: Path) -> None:
    done = sign(cli, "--config", instance, "--out", "d.json")
    assert done.status == 0, done.stderr
    assert (cli.folder / "d.json").stat().st_mode & 0o777 == 0o600
    with operator_socket(path, directive_send=SENT) as broker:
        sent = cli("directive", "submit", "d.json", "--socket", path)
    assert sent.status == 0, sent.stderr
    assert "    | Stop." in sent.stderr.splitlines()
    raw = signed_by(instance, "statement", body_for(broker, "/directive/send"), NAMESPACE_DIRECTIVE)
    assert raw.decode() in sent.stderr.splitlines()
    assert statement.read(raw).target.generation == 3


def test_signing_needs_no_configuration_and_no_broker(cli: Cli, key: Path) -> None:
    done = sign(cli, "--instance", "demo", "--key", key)
    assert done.status == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"statement", "signature"}


def test_without_a_generation_and_a_broker_it_says_what_helps(cli: Cli, instance: Path, path: Path) -> None:
    words = ("--instruction", "x", "--config", instance, "--socket", path)
    done = cli("directive", "sign", "worker-a", *words)
    assert done.status == Exit.NOT_REACHABLE
    assert "hint:  say which generation is meant: --generation N" in done.stderr


@pytest.mark.parametrize("kind", ["file", "link"])
def test_out_is_never_written_over_or_through_anything(cli: Cli, instance: Path, kind: str) -> None:
    out, victim = cli.folder / "d.json", cli.folder / "victim"
    out.write_text("mine") if kind == "file" else out.symlink_to(victim)
    done = sign(cli, "--config", instance, "--out", out)
    assert done.status == Exit.REFUSED
    assert not victim.exists()
    assert kind == "link" or out.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"statement":"AA==","signature":"AA=="}'])
def test_submitting_what_is_no_directive(cli: Cli, path: Path, content: bytes) -> None:
    (cli.folder / "d.json").write_bytes(content)
    done = cli("directive", "submit", "d.json", "--socket", path)
    assert done.status == Exit.CORRUPT_FILE
    assert "expected a directive as `lever directive sign` writes it" in done.stderr


# --- what became of them ------------------------------------------------------------------------------------------


def test_list_asks_with_a_signed_envelope_that_works_once(cli: Cli, instance: Path, path: Path) -> None:
    raws = set()
    for _ in range(2):
        with operator_socket(path, directive_list=(200, {"directives": [ROW]})) as broker:
            cli("directive", "list", "--state", "active", "--config", instance, "--socket", path)
        raws.add(signed_by(instance, "envelope", body_for(broker, "/directive/list"), NAMESPACE_ADMIN))
    assert len(raws) == 2
    value = envelope.read(raws.pop())
    assert (value.op, value.instance, value.params["state"]) == ("list", "demo", "active")


def test_list_on_a_terminal_fits_and_keeps_the_ids_whole(cli: Cli, instance: Path, path: Path) -> None:
    row = ROW | {"target": {"cn": "w" * 63, "generation": 12}, "state": "invalidated"}
    with operator_socket(path, directive_list=(200, {"directives": [ROW, row]})):
        ended = cli.on_terminal("directive", "list", "--config", instance, "--socket", path, env={"NO_COLOR": "1"})
    lines = ended.screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, lines)) <= 80
    assert ended.screen.count(ID) == 2


def test_list_in_a_pipe_is_one_line_a_directive(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, directive_list=(200, {"directives": [ROW | {"id": "a\x1b[2Jb\nc"}]})):
        done = cli("directive", "list", "--config", instance, "--socket", path)
    head, row = done.stdout.splitlines()
    assert head.split() == ["ID", "STATE", "TOLD", "AGENT", "SAYS"]
    assert row.split() == ["a\\u001b[2Jb\\nc", "consumed", "yes", "worker-a/3", "tool_call", "files", "write_file"]


def test_show_tells_all_and_a_miss_is_refused(cli: Cli, instance: Path, path: Path) -> None:
    words = ("directive", "show", ID, "--config", instance, "--socket", path)
    with operator_socket(path, directive_list=(200, {"directives": [ROW]})):
        told, data = cli(*words), cli(*words, "--json")
    assert "enforced  no: the agent makes the call itself" in told.stdout
    assert "told      yes, attempts: 2, 2026-01-01T00:00:01Z" in told.stdout
    assert json.loads(data.stdout) == ROW
    with operator_socket(path, directive_list=(200, {"directives": []})):
        assert cli(*words).status == Exit.REFUSED


def test_revoke_shows_what_it_signs_and_a_miss_is_refused(cli: Cli, instance: Path, path: Path) -> None:
    words = ("directive", "revoke", ID, "--config", instance, "--socket", path)
    with operator_socket(path, directive_revoke=(200, {"revoked": True})) as broker:
        done = cli(*words)
    raw = signed_by(instance, "envelope", body_for(broker, "/directive/revoke"), NAMESPACE_ADMIN)
    assert raw.decode() in done.stderr.splitlines()
    assert done.stdout == f"revoked {ID}\n"
    with operator_socket(path, directive_revoke=(200, {"revoked": False})):
        missed = cli(*words, "--json")
    assert (missed.status, json.loads(missed.stdout)) == (Exit.REFUSED, {"revoked": False})
    assert f"hint:  lever directive show {ID}\n" in missed.stderr


def test_revoke_of_what_the_broker_never_heard_of_leads_to_what_it_knows(cli: Cli, instance: Path, path: Path) -> None:
    words = ("directive", "revoke", "nope", "--config", instance, "--socket", path)
    with operator_socket(path, directive_revoke=(200, {"revoked": False, "known": False})):
        done = cli(*words)
    assert (done.status, done.stdout) == (Exit.REFUSED, "")
    assert done.stderr.splitlines()[-2:] == [
        "error: nothing to revoke: the broker knows no directive nope",
        "hint:  lever directive list shows those that it knows",
    ]


def test_the_way_out_of_a_refused_signature_names_the_key_that_made_it(cli: Cli, instance: Path, path: Path) -> None:
    refusal = {"error": "unknown", "reason": "bad_signature", "hint": "lever directive selftest"}
    key = instance / "keys" / "operator-2"
    words = ("directive", "revoke", ID, "--config", instance, "--socket", path)
    with operator_socket(path, directive_revoke=(400, refusal)):
        other, usual = cli(*words, "--key", key), cli(*words)
    assert f"hint:  lever directive selftest --key {key}\n" in other.stderr
    assert "hint:  lever directive selftest\n" in usual.stderr


def test_selftest_tries_each_key_and_tells_the_brokers_reason(cli: Cli, instance: Path, path: Path) -> None:
    refusal = {"error": "key expired; line 2: too old", "reason": "bad_signature", "hint": "set a later valid-before"}
    words = ("directive", "selftest", "--config", instance, "--socket", path)
    keys = [word for number in (1, 2) for word in ("--key", str(instance / "keys" / f"operator-{number}"))]
    with operator_socket(path, directive_selftest=(400, refusal)) as broker:
        done, data = cli(*words, *keys), cli(*words, *keys, "--json")
    assert done.status == Exit.VERIFICATION_FAILED
    assert done.stdout.count("FAIL") == 2
    assert "key expired; line 2: too old" in done.stdout
    assert "error: 2 of 2 keys did not pass" in done.stderr
    assert "hint:  set a later valid-before" in done.stderr
    assert [key["ok"] for key in json.loads(data.stdout)["keys"]] == [False, False]
    value = statement.read(base64.b64decode(broker.asked[1][1]["statement"]))
    assert (value.target.cn, value.target.generation) == ("selftest", 1)


def test_selftest_goes_on_after_a_key_that_cannot_sign(cli: Cli, instance: Path, path: Path) -> None:
    words = ("directive", "selftest", "--config", instance, "--socket", path, "--json")
    answer = {"ok": True, "fingerprint": "SHA256:x", "warnings": ["only one key"]}
    with operator_socket(path, directive_selftest=(200, answer)):
        done = cli(*words, "--key", "gone", "--key", instance / "keys" / "operator-2")
    assert done.status == Exit.SIGNING_FAILED
    assert [key["ok"] for key in json.loads(done.stdout)["keys"]] == [False, True]


@pytest.mark.parametrize("stopped", [{}, {"stopped": True}])
def test_selftest_tells_once_that_everything_is_stopped_and_that_is_no_failure(
    cli: Cli, instance: Path, path: Path, stopped: dict[str, bool]
) -> None:
    keys = [word for number in (1, 2) for word in ("--key", str(instance / "keys" / f"operator-{number}"))]
    with operator_socket(
        path, directive_selftest=(200, {"ok": True, "fingerprint": "SHA256:x", "warnings": []} | stopped)
    ):
        done = cli("directive", "selftest", *keys, "--config", instance, "--socket", path)
    assert done.status == 0
    assert done.stdout.count("ok") == 2
    assert done.stderr.count("warning: the emergency stop is on") == len(stopped)
    assert ("lever resume" in done.stderr) is bool(stopped)


STATE = {"kind": "state", "state": "active"}


@pytest.mark.parametrize(
    ("last", "status", "told"),
    [
        ({"kind": "directive_consumed", "cn": "worker-a", "generation": 3}, 0, "consumed by worker-a, generation 3"),
        ({"kind": "directive_revoked"}, 3, "revoked"),
        ({"kind": "directives_expired", "ids": [ID]}, 3, "expired"),
        ({"kind": "directive_invalidated", "reason": "key_not_standing"}, 3, "invalidated: key_not_standing"),
        ({"kind": "state", "state": "consumed"}, 0, "consumed"),
        ({"kind": "pointer_delivered", "channel": "inbox"}, 4, "told by inbox"),
    ],
)
def test_wait_tells_what_comes_until_the_end(
    cli: Cli, instance: Path, path: Path, last: dict[str, Any], status: int, told: str
) -> None:
    words = ("directive", "send", "worker-a", "--instruction", "x", "--wait", "--config", instance, "--socket", path)
    events = [STATE, {"at": "2026-01-01T00:00:00Z", **last}]
    answers = {"directive_resolve": RESOLVED, "directive_send": SENT, "admin_observe": (200, events)}
    with operator_socket(path, **answers) as broker:
        done, data = cli(*words), cli(*words, "--json")
    assert done.status == status, done.stderr
    assert done.stdout.splitlines()[-1] == f"2026-01-01T00:00:00Z  {told}"
    assert [json.loads(line) for line in data.stdout.splitlines()] == [SENT[1], *events]
    asked = [body for route, body in broker.asked if route == "/admin/observe"]
    sent = [body for route, body in broker.asked if route == "/directive/send"]
    watched = envelope.read(signed_by(instance, "envelope", asked[0], NAMESPACE_ADMIN)).params["id"]
    assert watched == statement.read(base64.b64decode(sent[0]["statement"])).directive_id
