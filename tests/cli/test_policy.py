"""`lever policy`: check, compare and try policies, with no broker and no configuration near."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lever.exits import Exit
from tests.cli.conftest import Cli

POLICIES = Path(__file__).parents[2] / "docs" / "policies"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The starting policies, beside the command."""
    for path in POLICIES.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["read-only", "developer", "office"])
def test_init_writes_a_policy_that_does_what_is_expected_of_it_and_overwrites_nothing(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    done = cli("policy", "init", name, "--json")
    assert json.loads(done.stdout) == {"files": [f"{name}.yaml", f"{name}.expected.yaml", "catalogue.json"]}
    assert cli("policy", "test", f"{name}.expected.yaml").status == 0
    (tmp_path / f"{name}.expected.yaml").unlink()
    (tmp_path / f"{name}.yaml").write_text("mine")
    again = cli("policy", "init", name)
    assert (again.status, again.stdout) == (Exit.REFUSED, "")
    assert (tmp_path / f"{name}.yaml").read_text() == "mine"
    assert not (tmp_path / f"{name}.expected.yaml").exists()


def test_init_of_another_beside_it_and_not_over_a_catalogue_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    assert cli("policy", "init", "office").status == 0
    assert cli("policy", "init", "developer").stdout == "developer.yaml\ndeveloper.expected.yaml\n"
    (tmp_path / "catalogue.json").write_text("{}")
    assert cli("policy", "init", "read-only").status == Exit.REFUSED
    assert not (tmp_path / "read-only.yaml").exists()
    assert (tmp_path / "catalogue.json").read_text() == "{}"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_check_tells_the_digest_and_the_warnings(cli: Cli, files: Path) -> None:
    done, data = cli("policy", "check", "policy.yaml"), cli("policy", "check", "policy.yaml", "--json")
    assert (done.status, data.status) == (0, 0)
    told = json.loads(data.stdout)
    assert f"sha256:{told['digest']}" in done.stdout
    assert told["names_checked"] is False
    assert done.stderr.splitlines() == [
        "tool names were not checked: expected a lever.yaml in this folder or one above it, found none",
        *(f"warning: {text}" for text in told["warnings"]),
        "good: 5 allowed, 4 approval_required, 9 denied, 8 in the table",
    ]


@pytest.mark.promise("P19")
def test_check_tells_each_mistake_with_its_line_and_a_hint(cli: Cli, files: Path) -> None:
    change(files / "office.yaml", "default_action: deny", "default_action: allow")
    change(files / "office.yaml", "    - mail.search", "    - search")
    done = cli("policy", "check", "office.yaml")
    assert (done.status, done.stdout) == (Exit.USAGE, "")
    first, second, hint = done.stderr.splitlines()
    assert first.startswith("error: office.yaml:4:17: expected deny")
    assert second.startswith("error: office.yaml:7:7: expected the server's name before the tool's")
    assert hint.startswith("hint:  every key is explained in docs/formats/policy.md")


def test_diff_tells_what_becomes_wider(cli: Cli, files: Path) -> None:
    shutil.copy(files / "office.yaml", files / "new.yaml")
    change(files / "new.yaml", "    sensitive: true", "    lease_seconds: 30")
    done = cli("policy", "diff", "office.yaml", "new.yaml")
    assert done.stdout.splitlines() == [
        "wider     account payroll sensitive: true -> false",
        "stricter  account payroll lease_seconds: 90 -> 30",
    ]
    data = [json.loads(line) for line in cli("policy", "diff", "office.yaml", "new.yaml", "--json").stdout.splitlines()]
    assert data[0] == {"what": "account payroll sensitive", "old": "true", "new": "false", "effect": "wider"}
    assert cli("policy", "diff", "office.yaml", "office.yaml").stderr == "nothing changes\n"


SEND = '{"account": "office", "to": ["a@example.org", "b@example.org"], "subject": "s", "text": "t"}'


def test_explain_shows_each_numbered_step(cli: Cli, files: Path) -> None:
    words = ("policy", "explain", "worker-a", "mail.send", SEND, "--policy", "office.yaml")
    done = cli(*words, "--catalogue", "catalogue.json")
    assert (done.status, done.stderr.count("\n")) == (0, 1)
    assert "steps 1 to 3 are left out" in done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["4", "5", "6", "7", "8", "9", "id", "id", "act"]
    assert lines[1].startswith("5  approval required by `mail.send` of policy office@")
    assert lines[6:8] == ["   id a@example.org", "   id b@example.org"]
    told = json.loads(cli(*words, "--json").stdout)
    assert (told["outcome"], told["denied"], told["account"], told["class"]) == ("act", False, "office", "mutation")
    assert "without --catalogue" in cli(*words).stderr


def test_explain_a_refusal_under_two_layers(cli: Cli, files: Path) -> None:
    (files / "call.json").write_text('{"path": "/srv/project/a"}')
    words = ("policy", "explain", "worker-a", "files.read_file", "@call.json", "--policy", "developer.yaml")
    assert "automatic" in cli(*words).stdout
    done = cli(*words, "--policy", "office.yaml")
    assert done.stdout.splitlines()[-1].startswith("denied    denied by default: in no list of policy office@")
    told = json.loads(cli(*words, "--policy", "office.yaml", "--json").stdout)
    assert (told["outcome"], told["denied"], told["args_digest"]) == ("denied_by_default", True, None)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read", "{}", "tool: expected server.tool"),
        ("files.read_file", '{"a": 1, "a": 2}', "arguments: duplicate key a"),
        ("files.read_file", "@none.json", "none.json can't be read: No such file"),
        ("files.read_file", "\udcff", "not UTF-8"),
    ],
)
def test_explain_what_can_not_be_read(cli: Cli, files: Path, tool: str, arguments: str, said: str) -> None:
    done = cli("policy", "explain", "worker-a", tool, arguments, "--policy", "developer.yaml")
    assert done.status == Exit.USAGE
    assert said in done.stderr


def test_test_passes_and_names_what_is_not_as_expected(cli: Cli, files: Path) -> None:
    good = cli("policy", "test", "developer.expected.yaml")
    assert (good.status, good.stdout, good.stderr) == (0, "", "all 9 decisions are as expected\n")
    change(files / "developer.yaml", "    - git.git_status\n", "")
    done = cli("policy", "test", "developer.expected.yaml")
    assert done.status == Exit.VERIFICATION_FAILED
    assert done.stdout.splitlines()[0] == "wrong  line 8: git.git_status: expected automatic, found denied_by_default"
    assert "error: 2 of 9 decisions are not as expected" in done.stderr
    data = [json.loads(line) for line in cli("policy", "test", "developer.expected.yaml", "--json").stdout.splitlines()]
    assert [each["found"] for each in data if each["found"] != each["expected"]] == ["denied_by_default"] * 2
