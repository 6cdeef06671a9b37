"""Programs that stand in ssh-keygen's place, and the files that operator keys are named in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE

BOTH = f'namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}"'


def program(path: Path, script: str) -> str:
    """A shell script to run instead of ssh-keygen."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@dataclass(frozen=True)
class Counted:
    """The real ssh-keygen, with a count of how often it was run."""

    executable: str
    log: Path

    @property
    def pids(self) -> list[int]:
        """The processes there were so far."""
        return [int(line) for line in self.log.read_text().splitlines()]

    @property
    def runs(self) -> int:
        """How many there were."""
        return len(self.pids)


def counted(folder: Path) -> Counted:
    """A counting ssh-keygen in this folder."""
    log = folder / "runs"
    log.touch()
    return Counted(program(folder / "counting-keygen", f'echo $$ >> "{log}"\nexec ssh-keygen "$@"'), log)


def signer(key: Path, principal: str = "operator@demo", options: str = "") -> str:
    """A line of allowed_signers for this key."""
    words = (principal, options, key.with_suffix(".pub").read_text().strip())
    return " ".join(word for word in words if word) + "\n"
