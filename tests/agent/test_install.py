"""`lever agent install`: a harness's configuration gets the server and keeps everything else."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from lever.agent.harness import File, Want
from lever.agent.merging import _elements, merged
from lever.cli import main
from lever.edited_file import Edited
from lever.exits import CliError, Exit
from tests.rig import LEVER

HARNESSES = ["claude-code", "codex", "opencode"]
SCOPES = ["project", "user"]
EACH = pytest.mark.parametrize(("harness", "scope"), [(h, s) for h in HARNESSES for s in SCOPES])
CONFIGS = {
    ("claude-code", "project"): "p/.mcp.json",
    ("claude-code", "user"): "home/.claude.json",
    ("codex", "project"): "p/.codex/config.toml",
    ("codex", "user"): "home/.codex/config.toml",
    ("opencode", "project"): "p/opencode.json",
    ("opencode", "user"): "home/.config/opencode/opencode.json",
}
OTHERS = {
    "claude-code": '{\n\t"z": 1.0, "a": [1,2],\n\t"mcpServers": {\n\t\t"x": {"command": "x"}\n\t},\n\t"é": "\\u00e9"}',
    "codex": '# mine\nmodel = "m"   # the good one\n\n[mcp_servers.x]  # x\ncommand = \'x\'\n\n[tui]\ntheme = "dark"',
    "opencode": '{ "$schema": "https://opencode.ai/config.json", "mcp": { "x": {"type": "local"} }, "n": 1e3 }\n',
}


@dataclass
class World:
    """A home, a project, and the command in it."""

    root: Path

    def install(self, *argv: str) -> Result:
        return CliRunner().invoke(main, ["agent", "install", *argv], prog_name="lever")

    def write(self, *argv: str) -> Result:
        done = self.install(*argv, "--write")
        assert done.exit_code == 0, done.output
        return done

    def config(self, harness: str, scope: str) -> Path:
        return self.root / CONFIGS[harness, scope]

    def holds(self, harness: str, scope: str, content: str) -> Path:
        path = self.config(harness, scope)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        return path

    def everything(self) -> dict[str, bytes]:
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("home/.lever/identity", "p"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("LEVER_IDENTITY", "CODEX_HOME", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "p")
    return World(tmp_path)


def parsed(harness: str, text: str) -> dict[str, Any]:
    made = tomllib.loads(text) if harness == "codex" else json.loads(text)
    assert isinstance(made, dict)
    return made


def server(harness: str, data: dict[str, Any], name: str = "lever") -> list[str]:
    """The command line by which the harness starts the server."""
    if harness == "opencode":
        entry = data["mcp"][name]
        assert (entry["type"], entry["enabled"]) == ("local", True)
        return list(entry["command"])
    entry = data["mcp_servers" if harness == "codex" else "mcpServers"][name]
    return [entry["command"], *entry["args"]]


def command(world: World) -> list[str]:
    return [LEVER, "agent", "mcp", "--identity", str(world.root / "home/.lever/identity")]


@EACH
def test_what_is_printed_is_in_the_harnesss_format_and_names_its_place(world: World, harness: str, scope: str) -> None:
    before = world.everything()
    done = world.install(harness, "--scope", scope)
    assert done.exit_code == 0, done.output
    assert server(harness, parsed(harness, done.stdout)) == command(world)
    assert str(world.config(harness, scope)) in done.stderr
    assert world.everything() == before


def test_the_common_form_is_printed_and_never_written(world: World) -> None:
    done = world.install("json", "--name", "lever_2")
    assert server("json", json.loads(done.stdout), "lever_2") == command(world)
    refused = world.install("json", "--write")
    assert refused.exit_code == Exit.USAGE
    assert "hint:" in refused.stderr


@EACH
def test_a_write_creates_the_file(world: World, harness: str, scope: str) -> None:
    done = world.write(harness, "--scope", scope)
    path = world.config(harness, scope)
    assert server(harness, parsed(harness, path.read_text())) == command(world)
    assert f"wrote: {path}" in done.stderr
    assert "mcp list" in done.stderr


@pytest.mark.parametrize("harness", HARNESSES)
def test_in_the_folder_of_an_instance_nothing_is_written(world: World, harness: str) -> None:
    (world.root / "p" / "lever.yaml").write_text("instance: demo\n")
    before = world.everything()
    done = world.install(harness, "--write")
    assert (done.exit_code, world.everything()) == (Exit.REFUSED, before)
    assert "this is the folder of an instance" in done.output
    assert "could write allowed_signers" in world.write(harness, "--scope", "user").output


@EACH
def test_a_write_keeps_every_byte_of_what_is_there(world: World, harness: str, scope: str) -> None:
    path = world.holds(harness, scope, OTHERS[harness])
    world.write(harness, "--scope", scope, "--deny-builtin")
    text = path.read_text()
    made, was = parsed(harness, text), parsed(harness, OTHERS[harness])
    assert server(harness, made) == command(world)
    servers = "mcp" if harness == "opencode" else "mcp_servers" if harness == "codex" else "mcpServers"
    del made[servers]["lever"]
    assert made | was == made
    kept = iter(text)
    assert all(character in kept for character in OTHERS[harness]), "the old text is in the new one, in its order"


@EACH
def test_a_second_write_changes_nothing(world: World, harness: str, scope: str) -> None:
    world.holds(harness, scope, OTHERS[harness])
    world.write(harness, "--scope", scope, "--deny-builtin")
    before, inode = world.everything(), world.config(harness, scope).stat().st_ino
    done = world.write(harness, "--scope", scope, "--deny-builtin")
    assert f"already there: {world.config(harness, scope)}" in done.stderr
    assert (world.everything(), world.config(harness, scope).stat().st_ino) == (before, inode)


@EACH
def test_another_server_of_the_same_name_is_left_alone(world: World, harness: str, scope: str) -> None:
    world.write(harness, "--scope", scope, "--identity", "elsewhere")
    before = world.everything()
    done = world.install(harness, "--scope", scope, "--write")
    assert done.exit_code == Exit.REFUSED
    assert '+    "' in done.stderr
    assert "elsewhere" in done.stderr, "the difference"
    assert world.everything() == before
    hint = done.stderr.splitlines()[-1].removeprefix("hint:").strip()
    again = world.install(*shlex.split(hint)[3:])
    assert again.exit_code == 0, again.output
    assert server(harness, parsed(harness, world.config(harness, scope).read_text()), "lever-2") == command(world)


@pytest.mark.parametrize("harness", HARNESSES)
def test_an_entry_with_more_of_the_users_own_is_there_already(world: World, harness: str) -> None:
    world.write(harness)
    path = world.config(harness, "project")
    text = path.read_text()
    extra = text + "env = {A = 'b'}\n" if harness == "codex" else text.replace('"command"', '"env": {}, "command"')
    path.write_text(extra)
    assert "already there" in world.write(harness).stderr
    assert path.read_text() == extra


@EACH
def test_a_dry_run_shows_the_change_and_writes_nothing(world: World, harness: str, scope: str) -> None:
    path = world.holds(harness, scope, OTHERS[harness])
    before = world.everything()
    done = world.write(harness, "--scope", scope, "--dry-run")
    assert f"+++ {path}" in done.stdout
    assert any(line.startswith("+") and "identity" in line for line in done.stdout.splitlines())
    assert world.everything() == before
    assert world.install(harness, "--scope", scope, "--dry-run").stdout == done.stdout, "with --write or without"


@EACH
@pytest.mark.parametrize("content", ["{ [", '{"mcp": {}, "mcp": {}}', "\xff", "[]", "a = nan b"])
def test_a_broken_file_is_refused_and_left_alone(world: World, harness: str, scope: str, content: str) -> None:
    path = world.holds(harness, scope, "")
    path.write_bytes(content.encode("latin-1"))
    if harness == "codex" and content == "[]":
        path.write_text("[mcp_servers")
    before = world.everything()
    done = world.install(harness, "--scope", scope, "--write")
    assert done.exit_code == Exit.CORRUPT_FILE, done.output
    assert "nothing was changed" in done.stderr
    assert "hint:" in done.stderr
    assert world.everything() == before


@pytest.mark.parametrize("content", ['{\n  // mine\n  "a": 1\n}', '{"a": 1, /* b */ "c": 2}', '{"url": "http://x",}'])
@pytest.mark.parametrize("name", ["opencode.jsonc", "opencode.json"])
def test_comments_are_not_destroyed_and_the_snippet_is_printed(world: World, name: str, content: str) -> None:
    path = world.root / "p" / name
    path.write_text(content)
    done = world.install("opencode", "--write")
    assert done.exit_code == Exit.REFUSED
    assert server("opencode", json.loads(done.stdout)) == command(world)
    assert world.everything() == {f"p/{name}": content.encode()}


def test_a_jsonc_without_comments_is_the_file_to_add_to(world: World) -> None:
    (world.root / "p/opencode.jsonc").write_text('{"a": "// none"}')
    world.write("opencode")
    data = json.loads((world.root / "p/opencode.jsonc").read_text())
    assert server("opencode", data) == command(world)
    assert not world.config("opencode", "project").exists()


@pytest.mark.parametrize("content", ['{"mcp": {"servers": {}}}', '{"permissions": [{"action": "read"}]}'])
def test_an_opencode_file_in_version_2s_own_form_stays_in_it(world: World, content: str) -> None:
    path = world.holds("opencode", "project", content)
    world.write("opencode", "--deny-builtin")
    data = json.loads(path.read_text())
    assert data["mcp"] == {"servers": {"lever": {"type": "local", "command": command(world)}}}
    denied = [rule["action"] for rule in data["permissions"] if rule.get("effect") == "deny"]
    assert denied == ["shell", "edit", "webfetch"]
    assert "permission" not in data


@pytest.mark.parametrize("scope", SCOPES)
def test_claude_code_is_denied_its_own_tools_only_when_asked(world: World, scope: str) -> None:
    path = world.root / {"project": "p", "user": "home"}[scope] / ".claude/settings.json"
    world.write("claude-code", "--scope", scope)
    assert not path.exists()
    path.write_text('{\n  "permissions": {\n    "deny": ["Read(./.env)", "Bash"],\n    "allow": []\n  }\n}\n')
    done = world.write("claude-code", "--scope", scope, "--deny-builtin")
    denied = json.loads(path.read_text())["permissions"]["deny"]
    assert denied[:2] == ["Read(./.env)", "Bash"]
    assert {"Write", "Edit", "NotebookEdit", "WebFetch"} <= set(denied)
    assert denied.count("Bash") == 1
    assert "brokered" in done.stderr


def test_opencode_is_denied_its_own_tools_unless_its_user_decided_otherwise(world: World) -> None:
    path = world.holds("opencode", "project", '{"permission": {"read": "ask"}}')
    world.write("opencode", "--deny-builtin")
    wanted = {"read": "ask", "bash": "deny", "edit": "deny", "webfetch": "deny"}
    assert json.loads(path.read_text())["permission"] == wanted
    for decided in ('"allow"', '{"bash": {"git *": "allow"}}'):
        path.write_text(f'{{"permission": {decided}}}')
        done = world.install("opencode", "--write", "--deny-builtin")
        assert (done.exit_code, path.read_text()) == (Exit.REFUSED, f'{{"permission": {decided}}}')
        assert "without --deny-builtin: lever agent install opencode" in done.stderr


@pytest.mark.parametrize("table", ["[features]\nx = true\n", "[ features ] # mine\nx = true", "[features]"])
def test_codex_is_denied_its_shell_in_the_table_that_is_there(world: World, table: str) -> None:
    path = world.holds("codex", "project", f"a = 1\n{table}")
    done = world.write("codex", "--deny-builtin")
    assert tomllib.loads(path.read_text())["features"]["shell_tool"] is False
    assert path.read_text().startswith(f"a = 1\n{table.splitlines()[0]}\nshell_tool = false\n")
    assert "sandbox_mode" in done.stderr, "what it can't be denied so"


@pytest.mark.parametrize("content", ["mcp_servers = {}\n", 'a = """\n[features]\n"""\n', "features.x = true\n"])
def test_a_toml_with_no_place_for_it_is_refused(world: World, content: str) -> None:
    path = world.holds("codex", "project", content)
    done = world.install("codex", "--write", "--deny-builtin")
    assert (done.exit_code, path.read_text()) == (Exit.REFUSED, content)
    assert tomllib.loads(done.stdout)["features"] == {"shell_tool": False}, "what to put in by hand"


def test_a_second_files_refusal_leaves_the_first_alone(world: World) -> None:
    settings = world.root / "p/.claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": "none"}')
    assert world.install("claude-code", "--write", "--deny-builtin").exit_code == Exit.REFUSED
    assert not world.config("claude-code", "project").exists()


@pytest.mark.parametrize(
    ("harness", "scope", "place"),
    [
        ("claude-code", "project", "p/.claude/skills"),
        ("claude-code", "user", "home/.claude/skills"),
        ("opencode", "project", "p/.opencode/skills"),
        ("opencode", "user", "home/.config/opencode/skills"),
    ],
)
def test_the_skill_is_written_where_the_harness_looks(world: World, harness: str, scope: str, place: str) -> None:
    path = world.root / place / "operator-directives/SKILL.md"
    world.write(harness, "--scope", scope)
    assert path.read_text() == world_skill()
    path.write_text("mine")
    done = world.install(harness, "--scope", scope, "--write")
    assert (done.exit_code, path.read_text()) == (Exit.REFUSED, "mine")
    assert f"hint:  mv {path} {path}.old" in done.stderr


@pytest.mark.parametrize(("scope", "place"), [("project", "p/.agents"), ("user", "home/.agents")])
def test_for_codex_it_says_how_to_put_the_skill_there(world: World, scope: str, place: str) -> None:
    done = world.write("codex", "--scope", scope)
    line = next(line for line in done.stderr.splitlines() if "lever agent skill" in line)
    shell = line.split(": ", 1)[1].replace("lever agent", f"{LEVER} agent")
    subprocess.run(["sh", "-ec", shell], check=True)
    assert (world.root / place / "skills/operator-directives/SKILL.md").read_text() == world_skill()


def world_skill() -> str:
    return CliRunner().invoke(main, ["agent", "skill"]).stdout


@pytest.mark.parametrize(
    ("harness", "variable", "place"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
    ],
)
def test_a_folder_that_the_user_moved_is_found(
    world: World, harness: str, variable: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(world.root / "moved"))
    world.write(harness, "--scope", "user")
    assert (world.root / "moved" / place).is_file()
    assert not world.config(harness, "user").exists()


@EACH
def test_modes(world: World, harness: str, scope: str) -> None:
    before = os.umask(0o022)
    try:
        world.write(harness, "--scope", scope)
        path = world.config(harness, scope)
        assert stat.S_IMODE(path.stat().st_mode) == (0o644 if scope == "project" else 0o600)
        path.chmod(0o640)
        world.write(harness, "--scope", scope, "--name", "other")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert [one for one in path.parent.iterdir() if one.is_file()] == [path], "nothing is left beside it"
    finally:
        os.umask(before)


@EACH
def test_a_symlink_that_leaves_is_refused(world: World, harness: str, scope: str) -> None:
    victim = world.root / "victim"
    victim.write_text(OTHERS[harness])
    path = world.config(harness, scope)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim)
    done = world.install(harness, "--scope", scope, "--write")
    assert done.exit_code == Exit.REFUSED
    assert "leaves" in done.stderr
    assert victim.read_text() == OTHERS[harness]


def test_a_folder_that_is_a_symlink_out_of_the_project_is_refused(world: World) -> None:
    (world.root / "p/.codex").symlink_to(world.root / "home")
    assert world.install("codex", "--write").exit_code == Exit.REFUSED
    assert world.everything() == {}


def test_a_symlink_that_stays_is_written_through(world: World) -> None:
    path = world.config("opencode", "user")
    (world.root / "home/dotfiles").mkdir()
    (world.root / "home/dotfiles/o.json").write_text("{}")
    path.parent.mkdir(parents=True)
    path.symlink_to(world.root / "home/dotfiles/o.json")
    world.write("opencode", "--scope", "user")
    assert path.is_symlink()
    assert server("opencode", json.loads((world.root / "home/dotfiles/o.json").read_text())) == command(world)


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [_folder, _loop, os.mkfifo])
def test_what_is_no_regular_file_is_refused(world: World, make: Callable[[Path], None]) -> None:
    make(world.config("claude-code", "project"))
    done = world.install("claude-code", "--write")
    assert done.exit_code == Exit.REFUSED, done.output
    assert world.everything() == {}


def test_a_file_that_somebody_writes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"1")
    edited = Edited.open(path, tmp_path)
    path.write_bytes(b"2")
    with pytest.raises(CliError, match="meanwhile"):
        edited.replace(b"3", 0o600)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"f": b"2"}


def test_a_folder_that_can_not_be_made_is_told(world: World) -> None:
    (world.root / "p/.codex").write_text("a file")
    done = world.install("codex", "--write")
    assert done.exit_code in (Exit.REFUSED, Exit.UNEXPECTED)
    assert "Traceback" not in done.output
    assert "hint:" in done.stderr


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", '"', "x" * 65])
def test_a_name_that_some_harness_does_not_take_is_refused(world: World, name: str) -> None:
    assert world.install("json", "--name", name).exit_code == Exit.USAGE


@pytest.mark.parametrize("harness", [*HARNESSES, "json"])
@pytest.mark.parametrize("folder", ["with space", "ü 😀", 'q"\\', "\x7f\t"])
def test_any_folder_can_be_the_identitys(world: World, harness: str, folder: str) -> None:
    done = world.install(harness, "--identity", folder, "--json")
    text = json.loads(done.stdout)["files"][0]["text"]
    assert server(harness, parsed(harness, text))[-1] == str(world.root / "p" / folder)


def test_an_identity_that_is_not_there_yet_is_warned_of(world: World) -> None:
    done = world.install("claude-code", "--identity", "new")
    assert done.exit_code == 0
    assert f"lever agent enrol --bundle FILE --identity {world.root / 'p/new'}" in done.stderr
    assert "warning" not in world.install("claude-code").stderr


def test_json_says_what_was_done(world: World) -> None:
    told = json.loads(world.write("claude-code", "--json", "--dry-run").stdout)
    assert {file["outcome"] for file in told["files"]} == {"created"}
    assert not any(file["written"] for file in told["files"])
    assert all(file["diff"] for file in told["files"])
    told = json.loads(world.write("claude-code", "--json").stdout)
    assert told["files"][0]["path"] == str(world.config("claude-code", "project"))
    assert all(file["written"] for file in told["files"])
    assert told["server"]["command"] == LEVER
    told = json.loads(world.write("claude-code", "--json").stdout)
    assert {file["outcome"] for file in told["files"]} == {"there"}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_end_as_those_of_the_file_do(world: World, ending: str) -> None:
    for harness in HARNESSES:
        content = OTHERS[harness].replace("\n", ending)
        path = world.holds(harness, "project", content)
        world.write(harness)
        assert path.read_bytes().count(b"\r\n") == (path.read_bytes().count(b"\n") if ending == "\r\n" else 0)


def test_a_new_entry_is_indented_as_its_neighbours_are(world: World) -> None:
    path = world.holds("claude-code", "project", '{\n\t"mcpServers": {}\n}\n')
    world.write("claude-code")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["{", '\t"mcpServers": {', '\t\t"lever": {']
    assert lines[-4:] == ["\t\t\t]", "\t\t}", "\t}", "}"]


def test_the_elements_of_a_json_text_are_found_as_the_parser_finds_them() -> None:
    text = ' {"a\\"}" : [1, {"b": "]"}] , "c":{}, "d" : -1.5e3 }'
    found, close = _elements(text, 1)
    assert {one.key: json.loads(text[one.value : one.end]) for one in found} == json.loads(text)
    assert close == len(text) - 1


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(
    data=st.dictionaries(st.text() | st.sampled_from(["mcpServers"]), _VALUES, max_size=4),
    servers=st.none() | st.dictionaries(st.text(), _VALUES, max_size=3),
    indent=st.sampled_from([None, 1, 4, "\t"]),
    tight=st.booleans(),
    ascii_only=st.booleans(),
)
def test_any_json_object_gets_the_server_and_keeps_its_text(
    data: dict[str, Any], servers: dict[str, Any] | None, indent: int | str | None, tight: bool, ascii_only: bool
) -> None:
    data.pop("mcpServers", None)
    if servers is not None:
        servers.pop("lever", None)
        data["mcpServers"] = servers
    text = json.dumps(data, indent=indent, separators=(",", ":") if tight else None, ensure_ascii=ascii_only)
    entry = {"command": "/lever", "args": ["x"]}
    new = merged(text, File(Path("f.json"), (Want(("mcpServers", "lever"), entry),)))
    assert json.loads(new) == data | {"mcpServers": (servers or {}) | {"lever": entry}}
    kept = iter(new)
    assert all(character in kept for character in text if not character.isspace())


def test_the_running_lever_is_the_one_that_the_harness_starts(world: World) -> None:
    """Not the one that PATH finds first."""
    link = world.root / "bin/lever"
    link.parent.mkdir()
    link.symlink_to(LEVER)
    env = {"HOME": str(world.root / "home"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([link, "agent", "install", "json"], capture_output=True, text=True, check=True, env=env)
    assert server("json", json.loads(done.stdout))[0] == str(link)
