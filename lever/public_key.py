"""An operator's public key, as `lever init` takes it from a file or has ssh-keygen make it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lever.exits import CliError, Exit

_MAX_BYTES = 16384
_LINE = re.compile(r"([a-z0-9@.-]+) ([A-Za-z0-9+/]+=*)(?: (.*))?")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key's line and fingerprint, and the file to sign with: its private half, else the .pub of one in an agent."""

    line: str
    fingerprint: str
    signer: str


_NO_KEY = "ls ~/.ssh/*.pub shows yours; a new one: ssh-keygen -t ed25519; to try things out: --make-keys"


def read(path: Path) -> PublicKey:
    """The one public key in a file. Raises CliError."""
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise CliError(f"the public key {path} can't be read: {words}", hint=_NO_KEY) from error
    text = raw.decode("ascii", "replace").strip()
    if "PRIVATE KEY" in text:
        raise CliError(f"expected a public key, found a private one: {path}", hint=f"--key {path}.pub")
    found = _LINE.fullmatch(text)
    fingerprint = _fingerprint(path) if found else ""
    if not found or not fingerprint:
        raise CliError(
            f"expected one OpenSSH public key in {path}, found something else", hint=f"ssh-keygen -l -f {path}"
        )
    comment = found[3] or ""
    line = (
        f"{found[1]} {found[2]} {comment}"
        if comment.isprintable() and "\ufffd" not in comment
        else f"{found[1]} {found[2]}"
    )
    return PublicKey(line.strip(), fingerprint, _signer(path.absolute()))


def _signer(public: Path) -> str:
    if public.suffix != ".pub":
        return ""
    private = public.with_suffix("")
    return str(private if private.is_file() else public)


def make(private: Path, comment: str) -> PublicKey:
    """A new ed25519 key pair without a passphrase. Raises CliError."""
    done = _ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(private))
    if done.returncode != 0:
        raise CliError(f"ssh-keygen made no key: {done.stderr.strip()}", exit=Exit.UNEXPECTED)
    return read(private.with_name(f"{private.name}.pub"))


def _fingerprint(path: Path) -> str:
    done = _ssh_keygen("-l", "-E", "sha256", "-f", str(path))
    found = re.search(r"SHA256:[A-Za-z0-9+/]{43}", done.stdout)
    return found[0] if done.returncode == 0 and found else ""


def _ssh_keygen(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ssh-keygen", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CliError(
            f"ssh-keygen can't be run: {error.strerror}",
            hint="install OpenSSH (apt-get install openssh-client)",
            exit=Exit.UNEXPECTED,
        ) from error
