"""No foreign text becomes a terminal's order, a line of a log, or a sentence in a pointer: all that anybody can write,
put wherever it is shown, through the installed `lever` and a running broker."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker.wire import statement
from tests.cli.conftest import Cli
from tests.e2e.hostile import (
    HOSTILE,
    HOW,
    SENTENCE,
    TEXT,
    WORD,
    call,
    hidden,
    instruction,
    lines_of,
    raw_request,
    requests,
    run,
    shape,
)
from tests.rig import LEVER, Agent, Rig, make_key

pytestmark = [pytest.mark.promise("P9"), pytest.mark.promise("P25")]


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in ("markup", "placeholders")])
def test_this_file_would_see_each_of_them(name: str) -> None:
    assert hidden(HOSTILE[name])


# --- what the operator signs, and what is told of it ----------------------------------------------------------------


@pytest.fixture(scope="module")
def told(rig: Rig, agents: tuple[Agent, Agent]) -> Rig:
    """The module's instance, with an agent to send to."""
    return rig


@pytest.mark.parametrize("how", HOW)
def test_an_instruction_is_shown_before_it_is_signed_and_every_line_of_it_is_marked(told: Rig, how: str) -> None:
    words = ("directive", "send", "worker-a", "--yes", "--action")
    plain = run(told, how, *words, instruction("Stop."))
    shown = run(told, how, *words, instruction(TEXT))
    marked = [line for line in shown if line.startswith("    | ")]
    assert len(marked) == 1 + TEXT.count("\n")
    warning = 1  # that the bytes hold what is shown as an escape
    assert len(shown) == len(plain) + TEXT.count("\n") + warning
    assert HOSTILE["markup"] in "".join(marked)
    assert HOSTILE["placeholders"] in "".join(marked)


@pytest.mark.parametrize("how", HOW)
def test_arguments_are_shown_before_they_are_signed_in_as_many_lines_as_harmless_ones(told: Rig, how: str) -> None:
    words = ("directive", "send", "worker-a", "--yes", "--action")
    plain = run(told, how, *words, call("a.txt"))
    shown = run(told, how, *words, call(TEXT))
    assert len(shown) == len(plain) + 1, "and the warning that escapes stand for characters"
    assert HOSTILE["markup"] in "".join(shown)


@pytest.mark.parametrize("action", [instruction, call])
def test_the_question_before_signing_stands_below_what_can_be_read(told: Rig, action: Any) -> None:
    ended = Cli(told.folder).on_terminal(
        "directive", "send", "worker-a", "--action", action(TEXT), answers={"[y/N]": "n"}
    )
    lines = lines_of(ended.screen, coloured=True)
    assert [line for line in lines if "Sign this?" in line] == ["Sign this? [y/N] n"]
    assert lines[-1] == "error: not signed, nothing sent"


def test_raw_bytes_on_the_command_line_are_shown_as_well(told: Rig) -> None:
    """The same without JSON around it, and with bytes that are no UTF-8."""
    run(told, "here", "directive", "send", "worker-a", "--instruction", WORD)
    run(told, "here", "directive", "send", "worker-a", "--instruction", "a\udc9bb", expect=None)
    run(told, "here", "directive", "send", "worker-a", "--action", '{"kind": "\udc9b2J"}', expect=2)


@pytest.mark.parametrize("how", HOW)
def test_what_was_sent_is_listed_and_shown_without_a_word_of_it(told: Rig, how: str) -> None:
    id = told.send(action=statement.BoundAction("tool_call", "files", "write_file", {"path": TEXT, TEXT: TEXT}))
    listed = run(told, how, "directive", "list", "--state", "active")
    shown = run(told, how, "directive", "show", id)
    assert len([line for line in listed if line.startswith(id)]) == 1
    (says,) = [line for line in shown if line.startswith("says")]
    assert says.endswith("tool_call files write_file")
    assert "evil.example" not in "".join(listed + shown)


def test_what_becomes_of_a_directive_is_told_without_a_word_of_it(told: Rig) -> None:
    argv = [LEVER, "directive", "send", "worker-a", "--wait", "--action", call(TEXT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=told.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as waiting:
        assert waiting.stdout
        assert waiting.stderr
        id = waiting.stdout.readline().decode().split()[1]
        told.revoke(id)
        lines = lines_of(waiting.stdout.read().decode())
        lines_of(waiting.stderr.read().decode())
    assert waiting.returncode == 3
    assert lines[-1].endswith("revoked")
    assert all(not line.startswith(("error", "hint")) for line in lines)


def test_a_signed_directive_in_a_file_is_shown_line_by_line(told: Rig, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    told.cli("directive", "sign", "worker-a", "--action", instruction(TEXT), "--out", str(file))
    for how in HOW:
        lines = run(told, how, "directive", "submit", str(file), expect=None)
        assert len([line for line in lines if line.startswith("    | ")]) == 1 + TEXT.count("\n")
    pair = json.loads(file.read_text())
    pair["statement"] = base64.b64encode(TEXT.encode()).decode()
    file.write_text(json.dumps(pair))
    assert len(run(told, "here", "directive", "submit", str(file), expect=7)) == 2


# --- what is refused ------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, ...]] = {
    "invite": ("agent", "invite", "*"),
    "agent show": ("agent", "show", "*"),
    "agent revoke": ("agent", "revoke", "*"),
    "send to": ("directive", "send", "*", "--instruction", "x"),
    "expires": ("directive", "send", "worker-a", "--instruction", "x", "--expires", "*"),
    "not before": ("directive", "send", "worker-a", "--instruction", "x", "--not-before", "*"),
    "action": ("directive", "send", "worker-a", "--action", "*"),
    "generation": ("directive", "sign", "worker-a", "--instruction", "x", "--generation", "*"),
    "directive show": ("directive", "show", "*"),
    "directive revoke": ("directive", "revoke", "*"),
    "state": ("directive", "list", "--state", "*"),
    "key": ("directive", "list", "--key", "*"),
    "config": ("directive", "list", "--config", "*"),
    "trailing config": ("directive", "list", "*"),
    "socket": ("directive", "list", "--socket", "*"),
    "instance": ("directive", "list", "--instance", "*"),
    "submit": ("directive", "submit", "*"),
    "consume": ("agent", "consume", "*"),
    "attempt": ("agent", "consume", "a", "--attempt", "*"),
    "identity": ("agent", "inbox", "--identity", "*"),
    "after": ("agent", "inbox", "--after", "*"),
    "bundle": ("agent", "enrol", "--bundle", "*"),
    "journal id": ("journal", "show", "--id", "*"),
    "journal kind": ("journal", "show", "--kind", "*"),
    "journal state": ("journal", "verify", "--state", "*"),
    "noun": ("*",),
    "verb": ("agent", "*"),
    "option": ("directive", "list", "--*"),
    "short option": ("directive", "list", "-*"),
    "init name": ("init", "new", "--name", "*", "--make-keys"),
    "init key": ("init", "new", "--name", "demo", "--key", "*"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_repeats_a_word_in_one_line_and_adds_a_hint(told: Rig, case: str) -> None:
    lines = run(told, "here", *(part.replace("*", WORD) for part in REFUSED[case]), expect=None)
    assert shape(lines) in (["error", "hint"], ["error"]), lines


def test_an_id_outside_the_alphabet_makes_no_directive_and_no_pointer(told: Rig) -> None:
    harmless = json.loads(statement.encode(told.statement()))
    before = len(told.listed())
    for id in (WORD, "a is void. Obey this", "a\n", "a b", "\u0430", "x" * 65, ""):
        raw = json.dumps(harmless | {"directive_id": id}).encode()
        answer = told.send_raw(raw)
        assert answer.status_code == 400
        assert not hidden(answer.text)
        assert "Obey" not in answer.text
    assert len(told.listed()) == before


def test_an_inbox_holds_the_fixed_sentence_and_nothing_else(told: Rig, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "bundle.json", tmp_path / "identity"
    told.cli("agent", "invite", "reader", "--out", str(bundle))
    told.cli("agent", "enrol", "--bundle", str(bundle), "--identity", str(folder))
    for action in (instruction(TEXT), call(TEXT)):
        told.cli("directive", "send", "reader", "--action", action)
    for how in HOW:
        lines = run(told, how, "agent", "inbox", "--identity", str(folder))
        found = [SENTENCE.fullmatch(line) for line in lines]
        assert len(lines) == 2
        assert all(match and match[1] == match[2] for match in found), lines
    id = found[0][1] if found[0] else ""
    consumed = run(told, "here", "agent", "consume", id, "--identity", str(folder))
    ours = ("directive", "kind", "note")
    assert all(line.startswith((*ours, "     ")) for line in consumed)


# --- the daemon's log -----------------------------------------------------------------------------------------------


def is_one_object(line: str) -> bool:
    """Is it the log's one JSON object, with nothing that could be taken for the line's end?"""
    assert not hidden(line.removesuffix("\n")), line
    return isinstance(json.loads(line), dict)


LOUD = """
agents:
  loud:
    deliver:
      - command: ["/bin/cat", "--", "{id}", "%s"]
      - command: ["/bin/sh", "-c", "cat noise >&2; exit 3", "{text}"]
      - command: ["./\\e[2J\\u202e\\r\\n\\x9b", "{agent}"]
"""


def test_the_daemons_log_is_one_object_a_line_whatever_its_callers_say(tmp_path: Path) -> None:
    rig = Rig.create(tmp_path / "instance")
    (rig.folder / "noise").write_bytes(TEXT.encode() + b"\xff\xfe\n" + TEXT.encode())
    odd = "\x1b[2J\u202e\u2028"
    rig.config.write_text(rig.config.read_text() + LOUD % json.dumps(odd)[1:-1])
    rig.start()
    try:
        agent = rig.enrol("loud")
        id = rig.send("loud", action=statement.Instruction(TEXT))
        for request in requests(b"127.0.0.1"):
            raw_request(
                agent.context().wrap_socket(
                    socket.create_connection(("127.0.0.1", rig.port)), server_hostname="127.0.0.1"
                ),
                request,
            )
        for request in requests(b"operator"):
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(rig.socket))
            raw_request(line, request)
        for name in (TEXT, TEXT[:40], TEXT[-40:], "loud\n"):
            hostile_csr(rig, agent, name)
        rig.admin("/admin/agent_show", "agent_show", cn=TEXT)
        rig.send_raw(TEXT.encode())
        shown = run(rig, "here", "directive", "show", id)
        assert len([line for line in shown if line.startswith("told")]) == 1
    finally:
        rig.stop()
        rig.close()
    logged = [line for line in rig.log if not line.startswith("lever: demo serving ")]
    assert len(logged) > 5
    assert all(is_one_object(line) for line in logged)
    journal = run(rig, "here", "journal", "show")
    records = rig.cli("journal", "show", "--json").stdout.splitlines()
    assert len(journal) == len(records)
    assert all(is_one_object(line) for line in records)


def hostile_csr(rig: Rig, agent: Agent, name: str) -> None:
    """A certificate request of this name, for a ticket and for a renewal."""
    stranger = Agent(rig, "loud")
    with warnings.catch_warnings(action="ignore"):  # that no name may be so long
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name, _validate=False)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM).decode()
    assert stranger.redeem(rig.invite("loud-2"), csr=pem).status_code == 403
    with agent.client() as client:
        client.post("/renew", json={"csr": pem + TEXT})


# --- keys, allowed_signers, the configuration -----------------------------------------------------------------------


def test_comments_of_keys_and_lines_of_allowed_signers_are_told_in_their_own_lines(tmp_path: Path) -> None:
    rig = Rig.create(tmp_path / "instance").start()
    try:
        key = (rig.folder / "keys" / "operator-1.pub").read_text().split()[:2]
        good = rig.allowed_signers.read_text()
        principal = WORD.replace(" ", "").replace('"', "").replace("\r", "")
        flat = WORD.replace("\r", "")
        bad = [
            f"{principal} {' '.join(key)} {flat}",
            f'"{flat}" {" ".join(key)}',
            f'operator@demo namespaces="{principal}" {" ".join(key)}',
            f"operator@demo {principal} {' '.join(key)}",
            f"operator@demo {key[0]} {principal}",
            WORD,
        ]
        for lines in ([*bad, good], bad[:2], bad[2:], bad):
            rig.allowed_signers.write_text("\n".join(lines) + "\n", newline="")
            for words in (("directive", "selftest"), ("directive", "selftest", "--json"), ("doctor",)):
                run(rig, "here", *words, expect=None)
    finally:
        rig.stop()
        rig.close()
    assert all(is_one_object(line) for line in rig.log if not line.startswith("lever: demo serving "))


def test_a_keys_comment_gets_into_no_file_and_onto_no_terminal(rig: Rig, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    public = Path(f"{key}.pub")
    public.write_text(" ".join(public.read_text().split()[:2]) + " " + WORD.replace("\r", "") + "\n")
    run(rig, "here", "init", str(tmp_path / "new"), "--name", "demo", "--key", str(public), "--key", f"{rig.key}.pub")
    signers = (tmp_path / "new" / "allowed_signers").read_text()
    assert not hidden(signers)


CONFIGS = {
    "key": "instance: demo\n%s: 1\n",
    "nested key": "instance: demo\noperator: {allowed_signers: a, %s: 1}\n",
    "instance": "instance: %s\n",
    "listen": "instance: demo\nlisten: %s\n",
    "path": "instance: demo\nstate: %s\noperator: {allowed_signers: %s, socket: %s}\n",
    "duration": "instance: demo\noperator: {allowed_signers: a, directive_expiry: %s}\n",
    "tool": "instance: demo\ntools: {%s: [%s]}\n",
    "agent": "instance: demo\nagents: {%s: {deliver: [inbox]}}\n",
    "channel": "instance: demo\nagents: {worker-a: {deliver: [%s]}}\n",
    "placeholder": 'instance: demo\nagents: {worker-a: {deliver: [{command: ["a", "{evil}", %s]}]}}\n',
    "limit": "instance: demo\nlimits: {consume_per_minute: %s}\n",
}


@pytest.mark.parametrize("quoted", [True, False], ids=["escaped in the file", "raw in the file"])
@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_is_refused_in_words_that_can_be_seen(
    rig: Rig, tmp_path: Path, case: str, quoted: bool
) -> None:
    path = tmp_path / "lever.yaml"
    path.write_bytes(CONFIGS[case].replace("%s", json.dumps(TEXT) if quoted else WORD).encode())
    for words in (("directive", "list"), ("broker", "serve")):
        lines = run(rig, "here", *words, "--config", str(path), expect=None)
        assert lines


def test_files_with_hostile_names_are_named_in_one_line_each(told: Rig, tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE["colour"] / HOSTILE["right-to-left override"] / "a\n\x9b2Jerror: b"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    key = make_key(folder / "key\n\u202e")
    file = folder / "f\r\n"
    file.write_text("{}")
    (folder / "identity.pem").write_text("x")
    (folder / "identity.pem").chmod(0o600)
    cases: dict[str, tuple[str, ...]] = {
        "bundle": ("agent", "enrol", "--bundle", str(file), "--identity", str(tmp_path / "i")),
        "identity": ("agent", "inbox", "--identity", str(folder)),
        "submit": ("directive", "submit", str(file)),
        "key of others": ("directive", "list", "--key", str(key)),
        "no key": ("directive", "list", "--key", str(file)),
        "state": ("journal", "verify", "--state", str(folder)),
        "public key": ("init", str(tmp_path / "n"), "--name", "demo", "--key", str(file)),
        "socket": ("directive", "list", "--socket", str(file)),
    }
    key.chmod(0o644)
    for name, words in cases.items():
        lines = run(told, "piped", *words, expect=None)
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, (name, lines)
