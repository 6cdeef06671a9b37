"""Runs `ssh-keygen -Y sign` over given bytes. It knows nothing of what they mean.

The bytes go in on standard input and touch no disk. Everything else is as with ssh-keygen itself: it asks for a
passphrase or a PIN on the terminal, says on standard error when a security key wants to be touched, and uses a key in
a local ssh-agent. One thing is not: a forwarded agent never signs (lever/forwarded.py says how that is told, and what
it can't see).

When the private key's file is there, ssh-keygen is not told of any agent, unless the file has a passphrase and the
agent is local: then the agent may hold the key unlocked.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lever.exits import CliError, Exit
from lever.forwarded import NoAgent, why_forwarded

_AGENT = "SSH_AUTH_SOCK"
_BEGIN = b"-----BEGIN SSH SIGNATURE-----\n"


def sign(key: Path, namespace: str, raw: bytes, environment: Mapping[str, str] = os.environ) -> bytes:
    """The armored SSHSIG of exactly these bytes.

    key: a private key's file, or a .pub whose private half a local ssh-agent holds.
    Raises CliError with exit code 5.
    """
    private, public = _halves(key)
    env = _environment(private, public, environment)
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(private or public), "-n", namespace]
    try:
        done = subprocess.run(argv, input=raw, stdout=subprocess.PIPE, env=env, check=False)
    except OSError as error:
        raise _failed(
            f"ssh-keygen can't be run: {error.strerror}", "install OpenSSH (apt-get install openssh-client)"
        ) from error
    if done.returncode != 0 or not done.stdout.startswith(_BEGIN):
        raise _explained(private, public, done.returncode)
    return done.stdout


def is_encrypted(private: Path) -> bool:
    """Does this private key's file ask for a passphrase? False also where it can't be read as a key at all."""
    argv = ["ssh-keygen", "-y", "-P", "", "-f", str(private)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode != 0 and b"incorrect passphrase" in done.stderr


def agent_holds(public: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Does a local ssh-agent hold the private half of this key?"""
    agent = environment.get(_AGENT)
    if not agent or not _is_local(Path(agent), environment):
        return False
    try:
        listed = subprocess.run(["ssh-add", "-L"], env=dict(environment), capture_output=True, timeout=10, check=False)
        return public.read_bytes().split()[1] in listed.stdout.split()
    except (OSError, subprocess.SubprocessError, IndexError):
        return False


def _halves(key: Path) -> tuple[Path | None, Path]:
    """The private key's file, if it is there, and where its public half is or would be."""
    private = key.with_suffix("") if key.suffix == ".pub" else key
    public = private.with_name(f"{private.name}.pub")
    if private.is_dir():
        raise _failed(f"expected a key file, found the folder {private}", "--key FILE")
    if not private.is_file():
        if not public.is_file():
            raise _failed(f"expected a key at {private}, found nothing there", f"ssh-keygen -t ed25519 -f {private}")
        return None, public
    if not os.access(private, os.R_OK):
        raise _failed(f"the key {private} can't be read by this user", f"ls -l {private}")
    return private, public


def _environment(private: Path | None, public: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What ssh-keygen gets to see. Raises CliError when only a forwarded agent, or none, could sign."""
    env = dict(environment)
    agent = env.get(_AGENT)
    if private is None:
        _must_be_local(agent, public, environment)
    elif not (agent and _is_local(Path(agent), environment) and is_encrypted(private)):
        env.pop(_AGENT, None)
    if _has_terminal():
        # With data on standard input ssh-keygen would ask in a window, if it can, although there is a terminal.
        env.setdefault("SSH_ASKPASS_REQUIRE", "never")
    return env


def _is_local(agent: Path, environment: Mapping[str, str]) -> bool:
    try:
        return why_forwarded(agent, environment) is None
    except NoAgent:
        return False


def _must_be_local(agent: str | None, public: Path, environment: Mapping[str, str]) -> None:
    """Refuse to go on when the signature could only come from a forwarded agent, or from none."""
    private = public.with_suffix("")
    if not agent:
        raise _failed(
            f"only the public half of the key is here ({public}), and there is no ssh-agent ({_AGENT} is not set)",
            f'eval "$(ssh-agent)" && ssh-add {private}',
        )
    try:
        why = why_forwarded(Path(agent), environment)
    except NoAgent as error:
        raise _failed(
            f"no ssh-agent answers on {agent}: {error}", f'eval "$(ssh-agent)" && ssh-add {private}'
        ) from error
    if why:
        raise _failed(
            f"refused to sign through a forwarded ssh-agent: {why} ({agent})",
            "sign where the key is, with: lever directive sign ... --out FILE; then here: lever directive submit FILE",
        )


def _explained(private: Path | None, public: Path, status: int) -> CliError:
    """Why ssh-keygen did not sign, as far as can be found out afterwards; its own words were shown by itself."""
    if private is None:
        return _failed(f"the ssh-agent did not sign with {public}", "ssh-add -l, to see which keys it holds")
    if private.stat().st_mode & 0o077:
        return _failed(f"ssh-keygen does not use {private}: other users may read it", f"chmod 0600 {private}")
    if is_encrypted(private) and not _has_terminal():
        return _failed(
            f"the key {private} has a passphrase, and there is no terminal to ask for it",
            f'eval "$(ssh-agent)" && ssh-add {private}; or run this in a terminal',
        )
    return _failed(f"ssh-keygen did not sign with {private} (exit status {status})", f"ssh-keygen -y -f {private}")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _failed(text: str, hint: str) -> CliError:
    return CliError(text, hint=hint, exit=Exit.SIGNING_FAILED)
