"""Credentials by reference: read when a server is started, never kept and never quoted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from broker.effects.tool_servers.outcome import NotSent
from broker.effects.tool_servers.settings import Reference

MAX_BYTES = 64 * 1024


def resolve(references: Mapping[str, Reference], environ: Mapping[str, str]) -> dict[str, str]:
    """The values, by what they are called. Raises NotSent."""
    return {name: _value(name, reference, environ) for name, reference in references.items()}


def _value(name: str, reference: Reference, environ: Mapping[str, str]) -> str:
    if reference.kind == "environment":
        found = environ.get(reference.name)
        if found is None:
            raise NotSent(f"{name}: the broker's environment has no {reference.name}")
    elif reference.kind == "file":
        found = _content(name, Path(reference.name))
    else:
        if not (folder := environ.get("CREDENTIALS_DIRECTORY")):
            raise NotSent(f"{name}: there are no systemd credentials: CREDENTIALS_DIRECTORY is not set")
        found = _content(name, Path(folder) / reference.name)
    if not found:
        raise NotSent(f"{name}: what it refers to is empty")
    if not found.isprintable():
        raise NotSent(f"{name}: what it refers to is not one line of text")
    return found


def _content(name: str, path: Path) -> str:
    """The text of a file, without the end of its line."""
    try:
        # A FIFO would keep us waiting for its other end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotSent(f"{name}: {path} is no regular file")
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise NotSent(f"{name}: {path} can't be read: {(error.strerror or 'unknown error').lower()}") from error
    except UnicodeDecodeError as error:
        raise NotSent(f"{name}: {path} is not UTF-8") from error
    if len(raw) > MAX_BYTES:
        raise NotSent(f"{name}: {path} has more than {MAX_BYTES} bytes")
    return text.removesuffix("\n").removesuffix("\r")
