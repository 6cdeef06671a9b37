"""`lever doctor`: each thing that can be wrong is found, with the command that mends it; and it changes nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lever.exits import Exit
from tests.cli.conftest import Cli
from tests.cli.test_init import everything_in
from tests.cli.test_mistakes import NOT_SHOWN, SHOWN
from tests.fakes.operator_socket import HEALTH, operator_socket


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be, short enough for every system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder / "operator.sock"
    shutil.rmtree(folder)


def checks(cli: Cli, instance: Path, path: Path, health: Any = HEALTH, **env: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code, and what was found that is not as it should be."""
    with operator_socket(path, health=(200, health)):
        done = cli("doctor", instance, "--socket", path, "--json", env=env)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] == (done.status == 0)
    return done.status, [check for check in told["checks"] if check["level"] != "ok"]


def test_a_healthy_instance(cli: Cli, instance: Path, path: Path) -> None:
    before = everything_in(instance)
    assert checks(cli, instance, path) == (0, [])
    with operator_socket(path):
        done = cli("doctor", instance, "--socket", path)
    assert {line[:5] for line in done.stdout.splitlines()} == {"ok   "}
    assert "next: lever directive selftest" in done.stderr
    assert everything_in(instance) == before


def edit(instance: Path, old: str, new: str) -> None:
    config = instance / "lever.yaml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))


def one_key(instance: Path) -> None:
    signers = instance / "allowed_signers"
    signers.write_text("\n".join(signers.read_text().splitlines()[:-1]) + "\n")


def expired(instance: Path) -> None:
    signers = instance / "allowed_signers"
    signers.write_text(signers.read_text().replace('namespaces="', 'valid-before="20200101Z",namespaces="'))


def damaged(instance: Path) -> None:
    (segment,) = (instance / "state" / "journal").glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-5] ^= 1
    segment.write_bytes(raw)


def public_half_alone(instance: Path) -> None:
    (instance / "keys" / "operator-1").unlink()
    (instance / "keys" / "operator-1.pub").unlink()


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str, str, str]] = {
    # what is done: (how, the check, its level, a word of the text, a word of the hint)
    "no such key in the configuration": (
        lambda i: edit(i, "state: state", "stat: state"), "configuration", "fail", "unknown key", "config.md",
    ),
    "allowed_signers gone": (
        lambda i: (i / "allowed_signers").unlink(), "allowed_signers", "fail", "does not exist", "$(cat KEY.pub)",
    ),
    "allowed_signers writable by others": (
        lambda i: (i / "allowed_signers").chmod(0o666), "allowed_signers", "fail", "written by others", "chmod go-w",
    ),
    "allowed_signers empty": (
        lambda i: (i / "allowed_signers").write_text(""), "allowed_signers", "fail", "no line", "operator@demo",
    ),
    "keys expired": (expired, "allowed_signers", "fail", "expired", "valid-before"),
    "one key": (one_key, "allowed_signers", "warn", "one key only", 'namespaces="lever-'),
    "no operator block": (
        lambda i: (i / "lever.yaml").write_text("instance: demo\n"), "allowed_signers", "warn", "disabled", "operator",
    ),
    "signing key readable by others": (
        lambda i: (i / "keys" / "operator-1").chmod(0o644), "signing key", "fail", "read by others", "chmod 0600",
    ),
    "signing key gone": (public_half_alone, "signing key", "fail", "can't be read", "ssh-keygen"),
    "signing key a folder": (
        lambda i: edit(i, "key: keys/operator-1", "key: keys"), "signing key", "fail", "no file", "signing_key",
    ),
    "signing key in a work tree": (lambda i: (i / ".git").mkdir(), "signing key", "warn", "tree that agents", "mv "),
    "state folder open": (lambda i: (i / "state").chmod(0o755), "state folder", "fail", "open to others", "chmod 0700"),
    "state folder gone": (lambda i: shutil.rmtree(i / "state"), "state folder", "fail", "no such file", "backup"),
    "journal damaged": (damaged, "journal", "fail", "damaged", "lever journal verify"),
}  # fmt: skip


@pytest.mark.promise("P12")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_has_its_hint(cli: Cli, instance: Path, path: Path, fault: str) -> None:
    spoil, about, level, text, hint = FAULTS[fault]
    spoil(instance)
    status, found = checks(cli, instance, path)
    assert status == (Exit.VERIFICATION_FAILED if level == "fail" else 0)
    told = next(check for check in found if check["about"] == about)
    assert (told["level"], text in told["text"], hint in told["hint"]) == (level, True, True), found


def test_no_configuration(cli: Cli) -> None:
    done = cli("doctor")
    assert done.status == Exit.VERIFICATION_FAILED
    assert "FAIL configuration: expected a lever.yaml" in done.stdout
    assert "     hint: lever init --name NAME" in done.stdout


def test_no_broker(cli: Cli, instance: Path, path: Path) -> None:
    done = cli("doctor", instance, "--socket", path)
    assert done.status == Exit.VERIFICATION_FAILED
    assert "FAIL broker: expected a broker on" in done.stdout
    assert "     hint: lever broker serve" in done.stdout


def test_the_broker_of_another_instance(cli: Cli, instance: Path, path: Path) -> None:
    status, found = checks(cli, instance, path, HEALTH | {"instance": "prod"})
    assert status == Exit.VERIFICATION_FAILED
    assert found[0]["about"] == "broker"


def test_a_clock_behind_the_journal(cli: Cli, instance: Path, path: Path) -> None:
    status, found = checks(cli, instance, path, HEALTH | {"clock_behind": True})
    assert status == Exit.VERIFICATION_FAILED
    assert found[0]["about"] == "clock"


def stub(folder: Path, version: str) -> str:
    """A PATH on which ssh says it is of this version."""
    folder.mkdir()
    for name in ("ssh", "ssh-keygen"):
        (folder / name).write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("OpenSSH_8.9p1 Ubuntu-3, OpenSSL 3.0.2", "fail"),
        ("OpenSSH_9.0p1, LibreSSL 3.3.6", "fail"),
        ("OpenSSH_9.1p1, OpenSSL 3", "ok"),
        ("OpenSSH_10.2p1, OpenSSL 3", "ok"),
        ("Sun_SSH_1.1", "warn"),
    ],
)
def test_an_ssh_that_is_too_old(cli: Cli, version: str, level: str) -> None:
    done = cli("doctor", "--json", env={"PATH": stub(cli.folder / "bin", version)})
    assert json.loads(done.stdout)["checks"][0] == {
        "about": "ssh-keygen",
        "level": level,
        "text": json.loads(done.stdout)["checks"][0]["text"],
        "hint": json.loads(done.stdout)["checks"][0]["hint"],
    }


def test_no_ssh_at_all(cli: Cli) -> None:
    done = cli("doctor", env={"PATH": ""})
    assert "FAIL ssh-keygen: can't be run" in done.stdout
    assert "hint: install OpenSSH" in done.stdout


def test_an_agent_socket_that_nobody_listens_on(cli: Cli, instance: Path, path: Path) -> None:
    _, found = checks(cli, instance, path, SSH_AUTH_SOCK=str(path.parent / "agent"))
    assert found[0]["about"] == "ssh-agent"
    assert "nothing answers" in found[0]["text"]


SERVERS = """
servers:
  open: {command: [/bin/true], sandbox: none}
  shut: {command: [/bin/true]}
"""


def test_a_server_with_the_brokers_own_rights_is_named(cli: Cli, instance: Path, path: Path) -> None:
    config = instance / "lever.yaml"
    config.write_text(config.read_text() + SERVERS)
    status, found = checks(cli, instance, path)
    assert (status, [check["about"] for check in found]) == (0, ["tool server"])
    assert found[0]["text"].startswith("open runs with all rights of the broker")
    assert "sandbox: {read" in found[0]["hint"]


def test_without_bubblewrap_a_confined_server_is_told_as_one_that_will_not_start(
    cli: Cli, instance: Path, path: Path, tmp_path: Path
) -> None:
    config = instance / "lever.yaml"
    config.write_text(config.read_text() + SERVERS)
    for name in ("ssh-keygen", "ssh-add"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    status, found = checks(cli, instance, path, PATH=str(tmp_path))
    assert status == 6
    assert "shut will not be started" in found[-1]["text"]
    assert found[-1]["hint"] == "sudo apt-get install bubblewrap"


def test_a_server_whose_program_or_interpreter_its_sandbox_hides_or_that_shows_the_brokers_files(
    cli: Cli, instance: Path, path: Path, tmp_path: Path
) -> None:
    config, script, interpreter = instance / "lever.yaml", tmp_path / "tool", tmp_path / "there" / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to("/bin/sh")
    script.write_text(f"#!{interpreter} -I\n")
    script.chmod(0o700)
    config.write_text(
        f"{config.read_text()}\nservers:\n"
        "  gone: {command: [/opt/no-such-thing]}\n"
        f"  hidden: {{command: [{script}]}}\n"
        f"  script: {{command: [{script}], sandbox: {{read: [{script}]}}}}\n"
        f"  whole: {{command: [{script}], sandbox: {{read: [{script}, {interpreter.parent}]}}}}\n"
        f"  spies: {{command: [/bin/true], sandbox: {{write: [{instance}]}}}}\n"
    )
    with operator_socket(path):
        told = json.loads(cli("doctor", instance, "--socket", path, "--json").stdout)["checks"]
    found = [check["text"] for check in told if check["about"] == "tool server"]
    words = (
        ("gone", "/opt/no-such-thing"),
        ("hidden", f"{NOT_SHOWN} {script}"),
        ("script", f"{NOT_SHOWN} {interpreter}"),
        ("spies", SHOWN),
    )
    for text, (name, word) in zip(found[:-1], words, strict=True):
        assert text.startswith(f"{name} will not be started"), text
        assert word in text
    assert found[-1] == "confined: whole"
