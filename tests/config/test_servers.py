"""The `servers` block: what it means, and how a mistake in it is told without telling a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config import Config, Reference, Sandbox
from broker.effects.tool_servers import Server
from tests.config.conftest import Read, Told
from tests.config.test_page import EXAMPLE
from tests.vectors.configs import GOOD

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
