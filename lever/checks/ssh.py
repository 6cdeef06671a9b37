"""Checks of OpenSSH on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lever import forwarded
from lever.checks.finding import Finding

_NEEDED = (9, 1)
"""OpenSSH: ssh-keygen takes `-Overify-time` in UTC since then."""
_INSTALL = "install OpenSSH 9.1 or newer (apt-get install openssh-client; brew install openssh)"


def keygen() -> Iterator[Finding]:
    """Is ssh-keygen there, and new enough for the broker?"""
    try:
        subprocess.run(["ssh-keygen", "-?"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        said = subprocess.run(["ssh", "-V"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        yield Finding("ssh-keygen", "fail", f"can't be run: {error.strerror} ({error.filename})", _INSTALL)
        return
    words = (said.stderr + said.stdout).strip().partition(",")[0]
    found = re.match(r"OpenSSH_(?:for_Windows_)?(\d+)\.(\d+)", words)
    if not found:
        yield Finding("ssh-keygen", "warn", f"of unknown version: {words[:60]!r}", "lever directive selftest")
    elif (int(found[1]), int(found[2])) < _NEEDED:
        yield Finding("ssh-keygen", "fail", f"{words} is too old, expected OpenSSH 9.1 or newer", _INSTALL)
    else:
        yield Finding("ssh-keygen", "ok", words)


def agent() -> Iterator[Finding]:
    """Would a signature come from another machine?"""
    socket = os.environ.get("SSH_AUTH_SOCK")
    if not socket:
        return
    try:
        why = forwarded.why_forwarded(Path(socket), os.environ)
    except forwarded.NoAgent as error:
        yield Finding("ssh-agent", "warn", f"nothing answers on {socket}: {error}", "unset SSH_AUTH_SOCK")
        return
    if why:
        text = f"it is forwarded to this host ({why}): lever does not sign through it, and this host could"
        yield Finding("ssh-agent", "warn", text, "unset SSH_AUTH_SOCK; and from now on log in without it: ssh -a HOST")
    else:
        yield Finding("ssh-agent", "ok", f"local, as far as can be told: {socket}")
