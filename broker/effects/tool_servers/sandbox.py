"""The words that start a server where nothing of the broker's can be seen: bubblewrap, or no start at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from broker.effects.tool_servers.outcome import NotSent
from broker.effects.tool_servers.settings import Sandbox

PROGRAM = "bwrap"
HOME = "/tmp"  # noqa: S108  # an empty one of the sandbox's own
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
# What programs look up, and nothing else of /etc: a broker's own files may lie there.
_LOOKED_UP = (
    "alternatives", "ca-certificates", "crypto-policies", "gai.conf", "group", "host.conf", "hosts", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols",
    "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip


def confined(
    argv: Sequence[str], sandbox: Sandbox, environ: Mapping[str, str], hidden: Sequence[Path]
) -> tuple[str, ...]:
    """The command inside its sandbox. hidden: files and folders no server may see. Raises NotSent."""
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if program is None:
        raise NotSent(
            "its sandbox needs bubblewrap (bwrap), which is not installed; without one it runs only after a "
            "written `sandbox: none`"
        )
    for path in (*sandbox.read, *sandbox.write):
        _check(path, hidden)
    for path in map(Path, _SYSTEM):
        if path.exists():
            _check(path, hidden)
    return (program, *_options(sandbox), "--", *argv)


def unseen(argv: Sequence[str], sandbox: Sandbox, environ: Mapping[str, str]) -> Path | None:
    """What of the command would be missing in its sandbox: its program, or the interpreter that this one names."""
    program = shutil.which(argv[0], path=environ.get("PATH"))
    if program is None:
        return Path(argv[0])
    shown = [root for path in (*map(Path, _SYSTEM), *sandbox.read, *sandbox.write) for root in (path, path.resolve())]
    for path in filter(None, (Path(program), _interpreter(Path(program)))):
        for place in (path, path.resolve()):  # a link has to lead to what is shown, too
            if not (place.exists() and any(place.is_relative_to(root) for root in shown)):
                return place
    return None


def _interpreter(program: Path) -> Path | None:
    with suppress(OSError), program.open("rb") as file:
        if words := file.readline(256).removeprefix(b"#!").split() if file.peek(2)[:2] == b"#!" else ():
            return Path(os.fsdecode(words[0]))
    return None


def _options(sandbox: Sandbox) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    if sandbox.network:
        yield "--share-net"
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for name in _LOOKED_UP:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run")  # noqa: S108
    for path in map(str, sandbox.read):
        yield from ("--ro-bind", path, path)
    for path in map(str, sandbox.write):
        yield from ("--bind", path, path)
    yield from ("--chdir", str(sandbox.write[0]) if sandbox.write and sandbox.write[0].is_dir() else HOME)


def _check(path: Path, hidden: Sequence[Path]) -> None:
    """Neither above nor below what is the broker's, links followed. Raises NotSent."""
    real = path.resolve()
    if not real.exists():
        raise NotSent(f"its sandbox shows {path}, which does not exist")
    for secret in (path.resolve() for path in hidden):
        if real.is_relative_to(secret) or secret.is_relative_to(real):
            raise NotSent(f"its sandbox shows {path}, and with it {secret}, which is the broker's own")
