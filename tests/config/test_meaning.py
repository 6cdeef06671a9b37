"""What a good lever.yaml means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from broker.config import Address, Limits, ToCommand, ToInbox, load
from broker.wire.names import Cn
from tests.config.conftest import Read
from tests.config.test_page import EXAMPLE
from tests.vectors.configs import GOOD, OPERATOR


def test_one_line_is_enough(read: Read, tmp_path: Path) -> None:
    config = read(GOOD)
    assert config.operator is None
    assert config.reached_at == config.listen == Address("127.0.0.1", 8443)
    assert config.state == tmp_path / "state"
    assert config.socket == tmp_path / "state" / "operator.sock"
    assert config.folder == tmp_path
    assert config.deliver_to(Cn("anyone")) == (ToInbox(),)
    assert not config.declares("files", "read_file")


def test_blocks_whose_lines_are_commented_out_are_as_good_as_none(read: Read) -> None:
    config = read(GOOD + "tools:\n#  files: [read]\nagents:\nlimits:\n")
    assert (config.tools, config.agents, config.limits) == ({}, {}, Limits())
    assert read(GOOD + "agents: {worker-a: }").deliver_to(Cn("worker-a")) == (ToInbox(),)


def test_nothing_of_a_loaded_config_can_be_changed(read: Read) -> None:
    config: Any = read(EXAMPLE)
    for thing, name in [(config, "instance"), (config.limits, "ticket_s"), (config.operator, "uids")]:
        with pytest.raises(ValidationError):
            setattr(thing, name, "x")
    with pytest.raises(TypeError):
        config.tools["files"] = ("rm",)
    with pytest.raises(TypeError):
        config.agents["worker-b"] = None


@pytest.mark.promise("P13")
def test_only_a_declared_operation_of_a_declared_tool_is_declared(read: Read) -> None:
    config = read(EXAMPLE)
    assert config.declares("files", "write_file")
    assert not config.declares("files", "delete_file")
    assert not config.declares("write_file", "files")
    assert not config.declares("file", "write_file")


def test_paths_stand_in_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Read) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    text = OPERATOR + "  signing_key: ~/.ssh/id\n  socket: /run/lever/demo.sock\nstate: ../state\n"
    config = read(text + "agents: {a: {deliver: [{command: [./bin/tell]}, {command: [tell, ./x]}]}}")
    assert config.operator
    assert config.operator.allowed_signers == tmp_path / "allowed_signers"
    assert config.operator.signing_key == Path("/home/someone/.ssh/id")
    assert config.socket == Path("/run/lever/demo.sock")
    assert config.state == tmp_path / ".." / "state"
    assert config.deliver_to(Cn("a")) == (ToCommand((f"{tmp_path}/bin/tell",)), ToCommand(("tell", "./x")))
    monkeypatch.chdir(tmp_path)
    assert load(Path("lever.yaml")).state == config.state, "also when the file is named by a relative path"


@pytest.mark.parametrize(
    ("written", "seconds"), [("10m", 600), ("24h", 86400), ("90s", 90), ("1h30m", 5400), ("1h0m1s", 3601), ("1s", 1)]
)
def test_durations(read: Read, written: str, seconds: int) -> None:
    operator = read(OPERATOR + f"  directive_expiry: {written}\n").operator
    assert operator
    assert operator.directive_expiry_s == seconds


def test_the_longest_life_may_be_the_usual_one(read: Read) -> None:
    operator = read(OPERATOR + "  directive_expiry: 5m\n  directive_expiry_max: 5m\n").operator
    assert operator
    assert operator.directive_expiry_max_s == 300


@pytest.mark.parametrize(
    ("written", "host", "port", "shown"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0, "127.0.0.1:0"),
        ("localhost:65535", "localhost", 65535, "localhost:65535"),
        ("'[::1]:8443'", "::1", 8443, "[::1]:8443"),
        ("'[2001:DB8::0]:1'", "2001:db8::", 1, "[2001:db8::]:1"),
        ("broker_1.internal.:8443", "broker_1.internal.", 8443, "broker_1.internal.:8443"),
    ],
)
def test_addresses(read: Read, written: str, host: str, port: int, shown: str) -> None:
    address = read(GOOD + f"listen: {written}\n").listen
    assert address == Address(host, port)
    assert str(address) == shown


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_who_listens_everywhere_says_where_agents_find_it(read: Read, host: str) -> None:
    config = read(GOOD + f"listen: '{host}:8443'\nadvertise: broker:443\n")
    assert config.reached_at == Address("broker", 443)


def test_braces_that_are_no_placeholder_mean_nothing(read: Read) -> None:
    words = '["docker", "--format", "{{.ID}}", "{\\"a\\": \\"{text}\\"}", "{ id }", "}{"]'
    (command,) = read(GOOD + f"agents: {{a: {{deliver: [{{command: {words}}}]}}}}\n").deliver_to(Cn("a"))
    assert isinstance(command, ToCommand)
    assert command.argv[2:] == ("{{.ID}}", '{"a": "{text}"}', "{ id }", "}{")


@pytest.mark.parametrize(
    "word", ["yes", "off", "0x1f", "0o17", "1_000", "1e3", "2001-01-01", ".inf", "10:30", "=", "False", "1.0", "007"]
)
def test_words_that_other_readers_turn_into_something_else_stay_text(read: Read, tmp_path: Path, word: str) -> None:
    assert read(GOOD + f"state: {word}\n").state == tmp_path / word
