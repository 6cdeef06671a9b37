"""Signing as ssh-keygen itself does it, but never through a forwarded agent. Real keys, real agents, real terminals."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.wire.names import NAMESPACE_DIRECTIVE
from lever import signer
from lever.exits import CliError, Exit
from lever.forwarded import judged_by_place, why_forwarded
from tests.cli.conftest import Cli, Done
from tests.rig import make_key

RAW = b'{"bytes":"that are signed"}'
RELAY = Path(__file__).parent.parent / "fakes" / "ssh_agent_relay.py"
PASSPHRASE = "correct horse"


def environment(**more: str | Path) -> dict[str, str]:
    """This one without any agent, and more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "DISPLAY"))}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def verified(key: Path, raw: bytes, signature: bytes, folder: Path) -> bool:
    """What ssh-keygen says of the signature."""
    public = Path(f"{key}.pub").read_text()
    (folder / "allowed").write_text(f"operator {public}")
    (folder / "sig").write_bytes(signature)
    argv = ["ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "operator", "-n", NAMESPACE_DIRECTIVE, "-s", "sig"]
    return subprocess.run(argv, input=raw, cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.fixture
def locked(key: Path) -> Path:
    """The key, with a passphrase on it."""
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSPHRASE, "-f", str(key)], check=True, capture_output=True)
    return key


@pytest.fixture
def agent(short: Path) -> Iterator[Path]:
    """The socket of a running ssh-agent."""
    path = short / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield path
        process.send_signal(signal.SIGTERM)


@contextmanager
def listening_as(name: str, path: Path, real: Path) -> Iterator[int]:
    """A process of this name that listens on the socket and passes on to the real agent; its id."""
    program = path.parent / name
    program.symlink_to(sys.executable)
    argv = [str(program), str(RELAY), str(path), str(real)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "listening\n"
        yield process.pid
        process.kill()


def add(agent: Path, key: Path) -> None:
    env = environment(SSH_AUTH_SOCK=agent)
    subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def only_public(key: Path) -> Path:
    """The public half, and the private one gone."""
    key.unlink()
    return Path(f"{key}.pub")


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_signature_over_exactly_these_bytes(tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "k", kind)
    signature = signer.sign(key, NAMESPACE_DIRECTIVE, RAW, environment())
    assert verified(key, RAW, signature, tmp_path)
    assert not verified(key, RAW + b" ", signature, tmp_path)


def test_a_pub_file_beside_its_private_half_means_that(key: Path, tmp_path: Path) -> None:
    assert verified(key, RAW, signer.sign(Path(f"{key}.pub"), NAMESPACE_DIRECTIVE, RAW, environment()), tmp_path)


def test_a_key_in_a_local_agent(key: Path, agent: Path, tmp_path: Path) -> None:
    add(agent, key)
    public = only_public(key)
    for named in (public, key):
        signature = signer.sign(named, NAMESPACE_DIRECTIVE, RAW, environment(SSH_AUTH_SOCK=agent))
        assert verified(key, RAW, signature, tmp_path)


def test_a_locked_key_that_a_local_agent_holds_unlocked(
    cli: Cli, key: Path, agent: Path, instance: Path, tmp_path: Path
) -> None:
    add(agent, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSPHRASE, "-f", str(key)], check=True, capture_output=True)
    assert signed(cli, instance, key, SSH_AUTH_SOCK=agent).status == 0


def signed(cli: Cli, instance: Path, key: Path, **env: str | Path) -> Done:
    """`lever directive sign` without a terminal."""
    words = ("directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--key", key)
    return cli.forked(*words, "--config", instance, env={name: str(value) for name, value in env.items()})


def test_a_locked_key_without_a_terminal_is_told_and_exits_5(cli: Cli, instance: Path, locked: Path) -> None:
    done = signed(cli, instance, locked)
    assert done.status == Exit.SIGNING_FAILED
    assert f"the key {locked} has a passphrase, and there is no terminal to ask for it" in done.stderr
    assert "hint:  eval" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("display", ["", ":99"], ids=["plain terminal", "terminal on a desktop"])
def test_a_locked_key_asks_for_its_passphrase_on_the_terminal(
    cli: Cli, instance: Path, locked: Path, tmp_path: Path, display: str
) -> None:
    ended = cli.on_terminal(
        "directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--yes", "--key", locked,
        "--config", instance, "--out", "d.json",
        env={"DISPLAY": display} if display else None, answers={"Enter passphrase": PASSPHRASE},
    )  # fmt: skip
    assert ended.status == 0, ended.screen
    assert PASSPHRASE not in ended.screen
    pair = json.loads((cli.folder / "d.json").read_bytes())
    raw, signature = (base64.b64decode(pair[name]) for name in ("statement", "signature"))
    assert verified(locked, raw, signature, tmp_path)


def test_a_wrong_passphrase_signs_nothing(cli: Cli, instance: Path, locked: Path) -> None:
    ended = cli.on_terminal(
        "directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--yes", "--key", locked,
        "--config", instance, "--out", "d.json", answers={"Enter passphrase": "wrong"},
    )  # fmt: skip
    assert ended.status == Exit.SIGNING_FAILED
    assert "ssh-keygen did not sign" in ended.screen
    assert not (cli.folder / "d.json").exists()


@pytest.mark.parametrize("name", ["sshd", "sshd-session", "ssh"])
def test_a_forwarded_agent_signs_nothing_though_it_could(
    cli: Cli, instance: Path, key: Path, agent: Path, name: str
) -> None:
    add(agent, key)
    public = only_public(key)
    forwarded = agent.parent / "forwarded"
    with listening_as(name, forwarded, agent) as pid:
        done = signed(cli, instance, public, SSH_AUTH_SOCK=forwarded)
    assert done.status == Exit.SIGNING_FAILED
    assert f"refused to sign through a forwarded ssh-agent: {name} (process {pid}) listens on it" in done.stderr
    assert "hint:  sign where the key is" in done.stderr
    assert done.stdout == ""


def test_the_same_agent_behind_another_name_signs(cli: Cli, instance: Path, key: Path, agent: Path) -> None:
    """So the test above refuses for the name alone: a relay of another kind can't be told from an agent."""
    add(agent, key)
    public = only_public(key)
    other = agent.parent / "other"
    with listening_as("keyring", other, agent):
        assert signed(cli, instance, public, SSH_AUTH_SOCK=other).status == 0


def test_a_key_file_signs_by_itself_where_an_agent_is_forwarded(
    cli: Cli, instance: Path, key: Path, agent: Path
) -> None:
    forwarded = agent.parent / "forwarded"
    with listening_as("sshd", forwarded, agent):
        assert signed(cli, instance, key, SSH_AUTH_SOCK=forwarded).status == 0


def test_a_locked_key_file_is_never_unlocked_by_a_forwarded_agent(
    cli: Cli, instance: Path, key: Path, agent: Path
) -> None:
    add(agent, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSPHRASE, "-f", str(key)], check=True, capture_output=True)
    forwarded = agent.parent / "forwarded"
    with listening_as("sshd", forwarded, agent):
        done = signed(cli, instance, key, SSH_AUTH_SOCK=forwarded)
    assert done.status == Exit.SIGNING_FAILED
    assert "has a passphrase" in done.stderr


def gone(key: Path) -> str:
    key.unlink()
    Path(f"{key}.pub").unlink()
    return "found nothing there"


def folder(key: Path) -> str:
    key.unlink()
    key.mkdir()
    return "found the folder"


def public_alone(key: Path) -> str:
    key.unlink()
    return "there is no ssh-agent"


def readable_by_others(key: Path) -> str:
    key.chmod(0o644)
    return "other users may read it"


def no_key(key: Path) -> str:
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n-----END OPENSSH PRIVATE KEY-----\n")
    return "ssh-keygen did not sign"


@pytest.mark.parametrize("spoil", [gone, folder, public_alone, readable_by_others, no_key])
def test_a_key_that_cannot_sign_is_told_with_what_is_wrong(cli: Cli, instance: Path, key: Path, spoil: object) -> None:
    assert callable(spoil)
    told = spoil(key)
    done = signed(cli, instance, key)
    assert done.status == Exit.SIGNING_FAILED
    assert told in done.stderr
    assert "hint:  " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_that_does_not_answer(key: Path, short: Path) -> None:
    public = only_public(key)
    for path in (short / "gone", Path("relative")):
        with pytest.raises(CliError, match="no ssh-agent answers") as raised:
            signer.sign(public, NAMESPACE_DIRECTIVE, RAW, environment(SSH_AUTH_SOCK=path))
        assert raised.value.exit is Exit.SIGNING_FAILED


def test_an_agent_without_the_key(key: Path, agent: Path) -> None:
    public = only_public(key)
    with pytest.raises(CliError, match="the ssh-agent did not sign"):
        signer.sign(public, NAMESPACE_DIRECTIVE, RAW, environment(SSH_AUTH_SOCK=agent))


def test_without_ssh_keygen(key: Path) -> None:
    with pytest.raises(CliError, match="ssh-keygen can't be run"):
        signer.sign(key, NAMESPACE_DIRECTIVE, RAW, environment(PATH=""))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_key_of_another_user(short: Path) -> None:
    """Root can read everything, so this becomes nobody."""
    key = make_key(short / "key")
    short.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from lever import signer\n"
        "os.setuid(65534)\n"
        "try: signer.sign(Path(sys.argv[1]), 'ns', b'x')\n"
        "except signer.CliError as error: print(error.text)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(key)], capture_output=True, text=True, check=True)
    assert "can't be read by this user" in done.stdout


@contextmanager
def orphaned(path: Path) -> Iterator[None]:
    """A socket whose listener is gone while another accepts, as with an ssh-agent that went to the background."""
    code = (
        "import os, socket, sys\n"
        "line = socket.socket(socket.AF_UNIX); line.bind(sys.argv[1]); line.listen()\n"
        "if os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True)\n"
        "while True: line.accept()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.wait()
        yield
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "session", "forwarded"),
    [
        ("ssh-XXabcdef12/agent.4711", {}, False),
        # An ssh-agent started within an ssh session has the same name as a forwarded one; its listener has gone.
        ("ssh-XXabcdef12/agent.4711", {"SSH_CONNECTION": "a 1 b 2"}, False),
        ("s.Ab1.agent.Cd2", {"SSH_CONNECTION": "a 1 b 2"}, False),
        ("s.Ab1.sshd.Cd2", {}, True),
    ],
)
def test_where_the_listener_is_gone_the_name_tells(
    short: Path, name: str, session: dict[str, str], forwarded: bool
) -> None:
    path = short / name
    path.parent.mkdir(exist_ok=True)
    with orphaned(path):
        assert (why_forwarded(path, session) is not None) == forwarded
        link = short / "link"
        link.symlink_to(path)
        assert (why_forwarded(link, session) is not None) == forwarded


@pytest.mark.parametrize(
    ("place", "is_gone", "in_session", "forwarded"),
    [
        ("/tmp/ssh-XXabcdef12/agent.4711", False, True, True),
        ("/tmp/ssh-XXabcdef12/agent.4711", True, True, False),
        ("/tmp/ssh-XXabcdef12/agent.4711", False, False, False),
        ("/run/user/1000/keyring/ssh", False, True, False),
        ("/home/a/.ssh/agent/s.Ab1.sshd.Cd2", True, False, True),
        ("/home/a/.ssh/agent/s.Ab1.agent.Cd2", False, True, False),
    ],
)
def test_where_the_listener_is_hidden_the_place_and_the_session_tell(
    place: str, is_gone: bool, in_session: bool, forwarded: bool
) -> None:
    assert (judged_by_place(place, is_gone=is_gone, in_session=in_session) is not None) == forwarded


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    yield made
    shutil.rmtree(made)
