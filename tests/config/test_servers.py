"""The `servers` block: what it means, and how a mistake in it is told without telling a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config import Config, Reference, Sandbox
from broker.effects.tool_servers import Server
from tests.config.conftest import Read, Told
from tests.config.test_meaning import GOOD
from tests.config.test_page import EXAMPLE

SECRET = "s3cret"
REFERENCE = (
    "expected `{file: PATH}`, `{environment: NAME}` or `{credential: NAME}`: where it is, never what it is; "
    "found something else"
)
NONE = "expected `none`, or a mapping with read, write or network in it; found"
USER = "expected a URL without a user, a query or a fragment: credentials go into `headers`; found one with them"


def server(read: Read, text: str) -> Server:
    """It has the shape that the room of the effects wants: a type checker sees to that."""
    config: Config = read(GOOD + f"servers: {{s: {{{text}}}}}\n")
    return config.servers["s"]


def test_the_example_means_what_it_says(read: Read) -> None:
    servers = read(EXAMPLE).servers
    assert servers["git"].command == ("/opt/git-tools/bin/mcp-server-git",)
    assert servers["git"].env == {"GIT_TOKEN": Reference("credential", "git-token")}
    shown = Sandbox.model_construct(read=(Path("/opt/git-tools"),), write=(Path("/srv/work"),), network=False)
    assert servers["git"].sandbox == shown
    assert servers["web"].url == "https://tools.example/mcp"
    assert servers["web"].headers == {"Authorization": Reference("file", "/etc/lever/web-token")}


def test_a_server_is_confined_until_none_is_written(read: Read) -> None:
    for written in ("", ", sandbox: ", ", sandbox: {}", ", sandbox: {network: false}"):
        found = server(read, f"command: [x]{written}").sandbox
        assert found is not None, written
        assert (found.read, found.write, found.network) == ((), (), False)
    assert server(read, "command: [x], sandbox: none").sandbox is None


def test_paths_and_programs_stand_in_the_folder_of_the_file(read: Read, tmp_path: Path) -> None:
    found = server(read, "command: [./bin/x, ./y], env: {A: {file: t}}, sandbox: {read: [a], write: [b, /c]}")
    assert found.command == (f"{tmp_path}/bin/x", "./y")
    assert found.env["A"] == Reference("file", f"{tmp_path}/t")
    assert found.sandbox
    assert (found.sandbox.read, found.sandbox.write) == ((tmp_path / "a",), (tmp_path / "b", Path("/c")))


def test_nothing_of_it_can_be_changed(read: Read) -> None:
    config: Any = read(EXAMPLE)
    for mapping in (config.servers, config.servers["git"].env, config.servers["web"].headers):
        with pytest.raises(TypeError):
            mapping["x"] = None


@pytest.mark.promise("P30")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"command: [x], env: {{T: {SECRET}}}", f"2:38: {REFERENCE}"),
        (f"command: [x], env: {{T: {{value: {SECRET}}}}}", f"2:38: {REFERENCE}"),
        (f"command: [x], env: {{T: [{SECRET}]}}", f"2:38: {REFERENCE}"),
        (f"command: [x], env: {{T: {{environment: '${SECRET}'}}}}", f"2:38: {REFERENCE}"),
        (f"command: [x], env: {{T: {{file: a, environment: {SECRET}}}}}", f"2:38: {REFERENCE}"),
        ("command: [x], env: {T: {credential: ../x}}", f"2:38: {REFERENCE}"),
        (
            f"command: [x], env: {SECRET}",
            "2:34: expected a mapping of names to where their values are; found something else",
        ),
        (f"url: 'https://a/mcp', headers: {{X-Key: {SECRET}}}", f"2:54: {REFERENCE}"),
        (f"url: 'https://me:{SECRET}@a/mcp'", f"2:20: {USER}"),
        (f"url: 'https://a/mcp?key={SECRET}'", f"2:20: {USER}"),
    ],
)
def test_a_literal_is_refused_and_not_repeated(told: Told, text: str, line: str) -> None:
    lines = told(GOOD + f"servers: {{s: {{{text}}}}}\n")
    assert lines == [line]
    assert SECRET not in "".join(lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "2:14: expected a `command` to start or a `url` to reach; found neither"),
        ("command: [x], url: 'https://a'", "2:14: expected a `command` to start or a `url` to reach; found both"),
        ("command: [x], headers: {}", "2:14: expected no `headers` beside `command`; found `headers`"),
        ("url: 'https://a', sandbox: none", "2:14: expected no `sandbox` beside `url`; found `sandbox`"),
        ("url: 'https://a', env: {}", "2:14: expected no `env` beside `url`; found `env`"),
        ("command: x", '2:24: expected a command as a list of 1 to 64 words; found "x"'),
        ("command: [x], sandbox: false", f"2:38: {NONE} false"),
        ("command: [x], sandbox: None", f'2:38: {NONE} "None"'),
        ("command: [x], sandbox: {network: yes}", '2:48: expected true or false; found "yes"'),
        ("command: [x], sandbox: {red: [a]}", '2:39: unknown key "red"; did you mean `read`?'),
        ("command: [x], sandbox: {read: a}", '2:45: expected a list; found "a"'),
        ("command: [x], sandbx: none", '2:29: unknown key "sandbx"; did you mean `sandbox`?'),
        ("command: [x], env: {'A B': {file: a}}", '2:35: expected the name of an environment variable; found "A B"'),
        ("url: ftp://a", '2:20: expected a URL like https://tools.example/mcp; found "ftp://a"'),
        ("url: http://a/mcp", '2:20: expected https, or http to localhost; found "http://a/mcp"'),
        ("url: 'http://127.0.0.1.evil.example/mcp'",
         '2:20: expected https, or http to localhost; found "http://127.0.0.1.evil.example/mcp"'),
        ("url: 'https://a:99999/'", '2:20: expected a URL like https://tools.example/mcp; found "https://a:99999/"'),
        ("url: 'https://a b/'", '2:20: expected a URL like https://tools.example/mcp; found "https://a b/"'),
        ("command: [x], timeout_s: 0", "2:40: expected a whole number from 1 to 3600; found 0"),
        ("command: [x], max_output_bytes: 1", "2:47: expected a whole number from 4096 to 8388608; found 1"),
    ],
)  # fmt: skip
def test_a_wrong_value(told: Told, text: str, line: str) -> None:
    assert told(GOOD + f"servers: {{s: {{{text}}}}}\n") == [line]


@pytest.mark.parametrize("name", ["Host", "content-length", "MCP-Session-Id", "a b", "a_b", "''"])
def test_what_is_no_header_of_the_operators(told: Told, name: str) -> None:
    (line,) = told(
        GOOD + f"servers: {{s: {{url: 'https://a', headers: {{{name!r}: {{file: a}}}}}}}}\n".replace('"', "")
    )
    assert "expected the name of a header that the broker does not set itself" in line


@pytest.mark.parametrize("name", ["a__b", "A", "a.b", "-a", "a_b", "a" * 64])
def test_what_is_no_server_s_name(told: Told, name: str) -> None:
    (line,) = told(GOOD + f"servers: {{{name}: {{command: [x]}}}}\n")
    assert "expected 1 to 63 of a-z 0-9 -, not starting or ending with -" in line
