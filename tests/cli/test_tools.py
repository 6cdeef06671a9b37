"""`lever tools`: what is accepted is what was read, and nothing in it can hide."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from broker.wire import accepted, envelope
from broker.wire.names import NAMESPACE_ADMIN
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli, Done
from tests.cli.said import HOSTILE, IDENTITY, a_definition, a_tool, pin, undisguised
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import OperatorSocket, operator_socket

READ = a_definition("read")


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def tools(cli: Cli, instance: Path, path: Path, *words: str, rows: list[dict[str, Any]]) -> tuple[Done, OperatorSocket]:
    answers = {
        "admin_tools_list": (200, {"servers": {"files": rows}}),
        "admin_tools_accept": (200, {"accepted": [row["definition"]["name"] for row in rows if row["definition"]]}),
    }
    with operator_socket(path, **answers) as broker:
        done = cli("tools", *words, "--config", instance, "--socket", path)
    return done, broker


def attached(broker: OperatorSocket, instance: Path) -> bytes:
    """What was sent along, once the signature over its digest was accepted."""
    body = body_for(broker, "/admin/tools_accept")
    raw = base64.b64decode(body["attachment"])
    value = envelope.read(signed_by(instance, "envelope", body, NAMESPACE_ADMIN))
    assert (value.op, value.params["digest"]) == ("tools_accept", sha256(raw).hexdigest())
    return raw


@pytest.mark.promise("P25")
def test_accept_signs_the_definitions_that_were_shown(cli: Cli, instance: Path, path: Path) -> None:
    write = a_definition("write", annotations={"destructiveHint": True}, description="Writes a file.\nOnce.")
    done, broker = tools(cli, instance, path, "accept", "files", rows=[a_tool(write), a_tool(READ, READ)])
    assert done.status == 0, done.stderr
    assert accepted.parse(attached(broker, instance)) == ("files", (pin(write),))
    lines = done.stderr.splitlines()
    for expected in ("description: Writes a file.", "  Once.", '  "destructiveHint": true'):
        assert f"    | {expected}" in lines, done.stderr
    assert pin(write).digest.hex() in done.stderr
    assert "Does read." not in done.stderr, "it is accepted already"
    assert done.stdout.splitlines()[0] == "accepted files.write"


@pytest.mark.promise("P22")
def test_accept_shows_whose_the_tools_are_and_signs_that_too(cli: Cli, instance: Path, path: Path) -> None:
    done, broker = tools(cli, instance, path, "accept", "files", rows=[a_tool(READ)])
    assert done.status == 0, done.stderr
    for expected in ("name: files", "version: 1.0", f"reached: {IDENTITY['reached']}"):
        assert f"    | {expected}" in done.stderr.splitlines(), done.stderr
    (tool,) = accepted.parse(attached(broker, instance))[1]
    assert tool.identity.value == IDENTITY
    assert "command:" not in done.stderr
    with (instance / "lever.yaml").open("a") as config:
        config.write("servers: {files: {command: [/opt/files, --root, /a b], sandbox: none}}\n")
    done, _ = tools(cli, instance, path, "accept", "files", rows=[a_tool(READ)])
    assert "    | command: /opt/files --root '/a b'" in done.stderr.splitlines(), "in words, where they are known"
    other = a_tool(READ) | {"identity": IDENTITY | {"reached": f"command sha256:{'0' * 64}"}}
    done, _ = tools(cli, instance, path, "accept", "files", rows=[other])
    assert "command: " not in done.stderr
    assert "started files by another command than this configuration has" in done.stderr
    hidden = a_tool(READ) | {"identity": IDENTITY | {"version": "1\u202e0"}}
    done, broker = tools(cli, instance, path, "accept", "files", rows=[hidden])
    assert (done.status, "/admin/tools_accept" in [route for route, _ in broker.asked]) == (Exit.REFUSED, False)
    assert undisguised(done.stderr)


@pytest.mark.promise("P22")
def test_a_server_that_is_another_now_is_told_of_each_of_its_tools(cli: Cli, instance: Path, path: Path) -> None:
    rows = [a_tool(READ, READ) | {"state": "changed", "identity": IDENTITY | {"version": "2.0"}}]
    for done in (
        tools(cli, instance, path, "diff", "files", rows=rows)[0],
        tools(cli, instance, path, "accept", "files", rows=rows)[0],
    ):
        lines = (done.stdout + done.stderr).splitlines()
        assert '    | -  "version": "1.0"' in lines, lines
        assert '    | +  "version": "2.0"' in lines


@pytest.mark.promise("P22", "P25")
def test_a_tool_that_must_not_be_accepted_says_why_and_bars_no_other(cli: Cli, instance: Path, path: Path) -> None:
    odd = a_tool(a_definition("odd")) | {"state": "unacceptable", "why": f"it hides {HOSTILE}", "definition": None}
    rows = [odd | {"identity": None}, a_tool(READ)]
    for text in told_of_unacceptable(cli, instance, path, "odd", rows):
        assert "must not be accepted: it hides x" in text
        assert undisguised(text)


def told_of_unacceptable(cli: Cli, instance: Path, path: Path, name: str, rows: list[Any]) -> list[str]:
    """What each command says of the first tool, which is not accepted, while the second one, `read`, is."""
    listed, _ = tools(cli, instance, path, "list", "files", rows=rows)
    assert [line.split()[1] for line in listed.stdout.splitlines()[1:]] == ["unacceptable", "quarantined"]
    diff, _ = tools(cli, instance, path, "diff", "files", name, rows=rows)
    named, broker = tools(cli, instance, path, "accept", "files", name, rows=rows)
    assert (named.status, "/admin/tools_accept" in [route for route, _ in broker.asked]) == (Exit.REFUSED, False)
    done, broker = tools(cli, instance, path, "accept", "files", rows=rows)
    assert done.status == 0, done.stderr
    assert [tool.name for tool in accepted.parse(attached(broker, instance))[1]] == ["read"]
    return [listed.stderr, diff.stdout, named.stderr, done.stderr]


BOMB = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}


@pytest.mark.promise("P11", "P22")
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "#/$defs/d0", "$defs": BOMB}, "has one value looked at more than 10000 times"),
        ({"properties": {"a": {"pattern": "((a{100}){100}){100}"}}}, "is no JSON Schema that stands by itself"),
        ({"properties": {f"a{n}": {"pattern": "a"} for n in range(65)}}, "has more than 64 patterns"),
        ({"properties": {"a": {"type": "sting"}}}, "is no JSON Schema that stands by itself"),
        ({"$ref": "https://example.org/schema"}, "names a definition that is not there"),
    ],
    ids=["bomb", "pattern", "patterns", "no schema", "elsewhere"],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_tool_that_no_call_could_use_says_why_and_bars_no_other(
    cli: Cli, instance: Path, path: Path, schema: dict[str, Any], why: str, before: bool
) -> None:
    """Also one that was accepted: by an older release, say."""
    bad = a_definition("bad", inputSchema={"type": "object", **schema})
    rows = [a_tool(bad, bad if before else None), a_tool(READ)]
    for text in told_of_unacceptable(cli, instance, path, "bad", rows):
        assert f"must not be accepted: every call of it would be refused: inputSchema: {why}" in text


def test_a_server_that_can_not_be_read_is_told_with_its_own_last_words(cli: Cli, instance: Path, path: Path) -> None:
    told = {"why": "it ended with exit status 1", "said": f"bwrap: execvp /opt/x{HOSTILE}: No such file or directory"}
    answer = {"servers": {"git": [], "files": [a_tool(READ, READ)]}, "unavailable": {"git": told}}
    with (instance / "lever.yaml").open("a") as config:
        config.write("servers: {late: {command: [/opt/late], sandbox: none}}\n")
    with operator_socket(path, admin_tools_list=(200, answer)) as broker:
        listed, raw, accept, diff = (
            cli("tools", *words, "--config", instance, "--socket", path)
            for words in (("list",), ("list", "--json"), ("accept", "git"), ("diff", "git"))
        )
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["git", "unavailable"],
        ["files.read", "accepted"],
    ]
    assert "late, which" in listed.stderr, "named since the broker started"
    assert json.loads(raw.stdout)["unavailable"] == {"git": told}
    assert (listed.status, raw.status, accept.status, diff.status) == (0, 0, Exit.REFUSED, Exit.REFUSED)
    assert "servers.git.sandbox.read" in accept.stderr
    for done in (listed, accept, diff):
        assert "the server git can't be read: it ended with exit status 1: bwrap: execvp /opt/x" in done.stderr
        assert undisguised(done.stderr)
    assert "/admin/tools_accept" not in [route for route, _ in broker.asked]


def test_accept_by_name_takes_no_others(cli: Cli, instance: Path, path: Path) -> None:
    rows = [a_tool(a_definition(name)) for name in ("write", "read", "list")]
    done, broker = tools(cli, instance, path, "accept", "files", "read", "list", rows=rows)
    assert done.status == 0, done.stderr
    assert [tool.name for tool in accepted.parse(attached(broker, instance))[1]] == ["read", "list"]
    done, broker = tools(cli, instance, path, "accept", "files", "rad", rows=rows)
    assert (done.status, "there are: write, read, list" in done.stderr) == (Exit.REFUSED, True)


@pytest.mark.promise("P25")
@pytest.mark.parametrize(
    "change",
    [
        *({"description": f"Reads{c}."} for c in ("\x1b[2J", "\r", "\u202e", "\u2066", "\u200b", "\ufeff", "\xad")),
        {"title": "a\u200bb"},
        {"inputSchema": {"type": "object", "properties": {"a\u202e": {}}}},
        {"inputSchema": {"type": "object", "description": "\u2063"}},
        {"annotations": {"title": "\u200d"}},
        {"inputSchema": {"type": "string"}},
    ],
)
def test_a_definition_that_hides_something_is_refused_before_anything_is_signed(
    cli: Cli, instance: Path, path: Path, change: dict[str, Any]
) -> None:
    rows = [a_tool(a_definition("write", **change)), a_tool(READ)]
    done, broker = tools(cli, instance, path, "accept", "files", rows=rows)
    assert done.status == Exit.REFUSED, done.stderr
    assert "files.write must not be accepted" in done.stderr
    assert undisguised(done.stderr)
    assert [route for route, _ in broker.asked].count("/admin/tools_accept") == 0
    assert tools(cli, instance, path, "accept", "files", "read", rows=rows)[0].status == 0, "the others can be"


@pytest.mark.promise("P25")
def test_list_and_diff_show_what_a_server_says_so_that_it_can_be_seen(cli: Cli, instance: Path, path: Path) -> None:
    before = a_definition("write", description="Writes a file.\nAsks first.")
    after = before | {
        "description": f"Writes a file.\n{HOSTILE}",
        "annotations": {"readOnlyHint": True, "title": HOSTILE},
    }
    rows = [a_tool(after, before), a_tool(READ, READ), a_tool(READ, READ) | {"state": "gone", "definition": None}]
    listed, _ = tools(cli, instance, path, "list", "files", rows=rows)
    assert [line.split()[1] for line in listed.stdout.splitlines()[1:]] == ["changed", "accepted", "gone"]
    done, _ = tools(cli, instance, path, "diff", "files", "write", rows=rows)
    assert done.status == 0, done.stderr
    assert undisguised(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    assert "    | -  Asks first." in lines
    assert any(line.startswith('    | +  x"\\r') for line in lines)
    assert '    | +  "readOnlyHint": true,' in lines
    assert f'    | +  "title": {json.dumps(HOSTILE)}' in lines, "still the JSON that it is"
    assert "Does read." not in done.stdout
    gone, _ = tools(cli, instance, path, "diff", "files", rows=rows)
    assert "files.read  gone" in gone.stdout.splitlines()
    data, _ = tools(cli, instance, path, "list", "files", "--json", rows=rows)
    assert json.loads(data.stdout) == {"servers": {"files": rows}, "unavailable": {}}


def test_nothing_to_accept_signs_nothing(cli: Cli, instance: Path, path: Path) -> None:
    done, broker = tools(cli, instance, path, "accept", "files", rows=[a_tool(READ, READ)])
    assert (done.status, "nothing to accept" in done.stderr) == (0, True)
    assert "/admin/tools_accept" not in [route for route, _ in broker.asked]
    assert "nothing differs" in tools(cli, instance, path, "diff", "files", rows=[a_tool(READ, READ)])[0].stderr


def test_a_tool_that_was_changed_and_changed_back_says_so(cli: Cli, instance: Path, path: Path) -> None:
    rows = [a_tool(READ, READ) | {"state": "changed"}]
    assert "seen changed in between" in tools(cli, instance, path, "diff", "files", rows=rows)[0].stdout
    done, broker = tools(cli, instance, path, "accept", "files", rows=rows)
    assert "seen changed in between" in done.stderr
    assert accepted.parse(attached(broker, instance)) == ("files", (pin(READ),))


def test_a_no_accepts_nothing(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_tools_list=(200, {"servers": {"files": [a_tool(READ)]}})) as broker:
        words = ("tools", "accept", "files", "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": "n"})
    assert ended.status == Exit.SIGNING_FAILED
    assert "/admin/tools_accept" not in [route for route, _ in broker.asked]


@pytest.mark.parametrize("name", ["Files", "a b", "a__b", ""])
def test_what_is_no_servers_name_is_told(cli: Cli, instance: Path, name: str) -> None:
    assert cli("tools", "accept", name, "--config", instance).status == Exit.USAGE
