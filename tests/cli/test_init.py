"""`lever init`: a whole new instance, or nothing at all; and never over anything that is there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from broker import offline
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant
from lever.exits import Exit
from tests.cli.conftest import Cli
from tests.rig import make_key, now


def everything_in(folder: Path) -> dict[str, bytes | str | None]:
    """What lies in a folder: names, contents, where links lead."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_instance_with_keys_of_its_own_is_whole(cli: Cli) -> None:
    done = cli("init", "new/demo", "--name", "demo", "--make-keys", "--listen", "0.0.0.0:9000", "--advertise", "hub:1")
    assert done.status == 0, done.stderr
    folder = cli.folder / "new" / "demo"
    config = offline.load_config(folder / "lever.yaml")
    assert (config.instance, str(config.listen), str(config.advertise)) == ("demo", "0.0.0.0:9000", "hub:1")
    assert config.operator
    assert config.operator.signing_key == folder / "keys" / "operator-1"
    assert offline.diagnose_signers(config.operator.allowed_signers, config.instance, now()) == []
    assert offline.verify_journal(config.state).problems == ()
    assert {path.name for path in folder.iterdir()} == {"lever.yaml", "allowed_signers", "state", "keys"}


def test_the_example_of_a_server_is_one_without_its_marks(instance: Path) -> None:
    written = instance / "lever.yaml"
    before, mark, example = written.read_text().partition("# servers:\n")
    shown, _, rest = example.partition("\n\n")
    written.write_text(f"{before}{(mark + shown).replace('# ', '')}\n\n{rest}")
    assert [*offline.load_config(written).servers] == ["git"]


def test_what_is_secret_is_for_the_owner_alone(instance: Path) -> None:
    secret = [instance / "state", instance / "keys", *(instance / "keys").glob("operator-?")]
    assert [mode_of(path) & 0o077 for path in secret] == [0] * 4
    assert mode_of(instance / "allowed_signers") == 0o644


def test_keys_on_the_host_are_named_for_what_they_are(cli: Cli) -> None:
    done = cli("init", "--name", "demo", "--make-keys")
    assert "warning: the keys are files without a passphrase on this host" in done.stderr
    assert "next: lever broker serve" in done.stderr


def test_given_keys_may_sign_for_both_namespaces_and_the_first_is_what_commands_sign_with(cli: Cli, key: Path) -> None:
    second = make_key(cli.folder / "second", "ecdsa")
    done = cli("init", "demo", "--name", "demo", "--key", f"{key}.pub", "--key", f"{second}.pub", "--json")
    assert done.status == 0, done.stderr
    told = json.loads(done.stdout)
    lines = (cli.folder / "demo" / "allowed_signers").read_text().splitlines()
    keys = [line for line in lines if not line.startswith("#")]
    start = f'operator@demo namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}" '
    assert keys == [start + Path(f"{path}.pub").read_text().strip() for path in (key, second)]
    assert told["signing_key"] == str(key)
    assert (len(told["fingerprints"]), told["warnings"]) == (2, [])
    assert offline.diagnose_signers(cli.folder / "demo" / "allowed_signers", Instance("demo"), now()) == []


def test_a_key_whose_private_half_is_elsewhere_is_signed_with_by_its_public_half(cli: Cli, key: Path) -> None:
    key.unlink()
    done = cli("init", "demo", "--name", "demo", "--key", f"{key}.pub", "--json")
    assert json.loads(done.stdout)["signing_key"] == f"{key}.pub"
    assert "one key only: losing it locks you out" in done.stderr


@pytest.mark.parametrize("name", ["true", "null", "123", "0x1f", "a-b"])
def test_a_name_that_yaml_could_misread_comes_back_as_it_was(cli: Cli, name: str) -> None:
    assert cli("init", "new", "--name", name, "--make-keys").status == 0
    assert offline.load_config(cli.folder / "new" / "lever.yaml").instance == name


@pytest.mark.parametrize("taken", ["lever.yaml", "allowed_signers", "state", "keys"])
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_nothing_is_overwritten(cli: Cli, taken: str, kind: str) -> None:
    folder = cli.folder / "demo"
    folder.mkdir()
    path = folder / taken
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    before = everything_in(cli.folder)
    done = cli("init", "demo", "--name", "demo", "--make-keys")
    assert done.status == Exit.REFUSED
    assert str(Path("demo") / taken) in done.stderr
    assert "nothing was changed" in done.stderr
    assert everything_in(cli.folder) == before


def test_an_instance_is_not_made_twice(cli: Cli, instance: Path) -> None:
    before = everything_in(instance)
    done = cli("init", "demo", "--name", "other", "--make-keys")
    assert done.status == Exit.REFUSED
    assert everything_in(instance) == before


def test_other_files_in_the_folder_are_left_alone(cli: Cli) -> None:
    (cli.folder / "notes.txt").write_text("mine")
    assert cli("init", "--name", "demo", "--make-keys").status == 0
    assert (cli.folder / "notes.txt").read_text() == "mine"


def private(folder: Path) -> tuple[str, ...]:
    return ("--key", str(make_key(folder / "key")))


def twice(folder: Path) -> tuple[str, ...]:
    public = f"{make_key(folder / 'key')}.pub"
    return ("--key", public, "--key", public)


def two_in_one(folder: Path) -> tuple[str, ...]:
    lines = [Path(f"{make_key(folder / name)}.pub").read_text() for name in ("one", "two")]
    (folder / "both.pub").write_text("".join(lines))
    return ("--key", str(folder / "both.pub"))


def with_options(folder: Path) -> tuple[str, ...]:
    """A line of authorized_keys or allowed_signers is more than a key."""
    line = Path(f"{make_key(folder / 'key')}.pub").read_text()
    (folder / "more.pub").write_text(f"cert-authority {line}")
    return ("--key", str(folder / "more.pub"))


def nonsense(folder: Path) -> tuple[str, ...]:
    (folder / "bad.pub").write_text("ssh-ed25519 AAAA nonsense\n")
    return ("--key", str(folder / "bad.pub"))


def missing(folder: Path) -> tuple[str, ...]:
    return ("--key", str(folder / "gone.pub"))


def none(folder: Path) -> tuple[str, ...]:
    return ()


def both(folder: Path) -> tuple[str, ...]:
    return ("--make-keys", "--key", f"{make_key(folder / 'key')}.pub")


def bad_listen(folder: Path) -> tuple[str, ...]:
    return ("--make-keys", "--listen", "nowhere")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (private, "expected a public key, found a private one"),
        (twice, "expected different keys"),
        (two_in_one, "expected one OpenSSH public key"),
        (with_options, "expected one OpenSSH public key"),
        (nonsense, "expected one OpenSSH public key"),
        (missing, "can't be read: no such file"),
        (none, "expected your public keys (--key) or --make-keys, found neither"),
        (both, "found both"),
        (bad_listen, "--listen or --advertise: expected HOST:PORT"),
    ],
)
def test_what_cannot_become_an_instance_leaves_nothing_behind(cli: Cli, spoil: object, told: str) -> None:
    assert callable(spoil)
    words = spoil(cli.folder)
    before = everything_in(cli.folder)
    done = cli("init", "demo", "--name", "demo", *words)
    assert done.status == Exit.USAGE, done.stderr
    assert told in done.stderr
    assert "hint:  " in done.stderr
    assert everything_in(cli.folder) == before


def test_without_ssh_keygen_nothing_is_made(cli: Cli) -> None:
    done = cli("init", "demo", "--name", "demo", "--make-keys", env={"PATH": ""})
    assert done.status == Exit.UNEXPECTED
    assert "ssh-keygen can't be run" in done.stderr
    assert everything_in(cli.folder) == {}


def test_a_folder_that_cannot_be_made(cli: Cli) -> None:
    (cli.folder / "file").write_text("")
    done = cli("init", "file/demo", "--name", "demo", "--make-keys")
    assert done.status in (Exit.UNEXPECTED, Exit.USAGE)
    assert "Traceback" not in done.stderr
    assert "hint:  " in done.stderr


def test_a_comment_that_would_disguise_the_line_is_left_out(cli: Cli, key: Path) -> None:
    public = Path(f"{key}.pub")
    kind, blob, _ = public.read_text().split()
    public.write_text(f"{kind} {blob} a\x1b[2Jb\n")
    assert cli("init", "demo", "--name", "demo", "--key", public).status == 0
    assert f"{kind} {blob}\n" in (cli.folder / "demo" / "allowed_signers").read_text()


def test_the_state_folder_is_of_this_moment(cli: Cli) -> None:
    before = now()
    assert cli("init", "--name", "demo", "--make-keys").status == 0
    (first,) = offline.walk_journal(cli.folder / "state")
    assert before <= first.at <= Instant(now())
    assert os.listdir(cli.folder / "state" / "ca")
