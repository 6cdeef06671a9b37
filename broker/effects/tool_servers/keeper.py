"""The parent of one unconfined server, as a program of its own: whatever the server starts ends with it.

Linux gives a subreaper the orphans among its descendants, in whatever session they are. So nothing that the server
leaves behind gets away, and no other child of the broker is touched. SIGTERM, the server's end or the broker's end all
of it. It is run as a script, with the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
NOT_FOUND = 127


def main(broker: int, argv: list[str]) -> int:
    """Start the server, wait for its end or for SIGTERM; how it ended, as its exit status or minus its signal."""
    signals = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    libc = ctypes.CDLL(None)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != broker:  # it ended before it could be told
        return NOT_FOUND
    try:
        server = os.posix_spawnp(
            argv[0], argv, _environment(), setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ)
        )
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # the server's own: whoever closes them last is to be of the server
        os.dup2(nothing, descriptor)
    status = None
    while status is None and signal.sigwait(signals) != signal.SIGTERM:
        status = _reap(server)
    _end_all()
    return -signal.SIGTERM if status is None else status


def _environment() -> dict[bytes, bytes]:
    """As it came: os.environ has what Python adds for itself."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib takes 10 ms to load
        pairs = (pair.partition(b"=") for pair in file.read().split(b"\0") if pair)
        return {name: value for name, _, value in pairs}


def _reap(server: int) -> int | None:
    """Whoever has ended; the server's status, once it is the one."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == server:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            return None


def _end_all() -> None:
    """Kill children until there are none: the children of each that is killed come here."""
    while True:
        for child in _children():
            try:
                os.kill(child, signal.SIGKILL)
            except OSError:  # it is gone, or runs as another user, who is not ours to end
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    me, found = str(os.getpid()), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", errors="replace") as file:  # noqa: PTH123
                    # Whatever name it gives itself, the last parenthesis ends it.
                    words = file.read().rpartition(")")[2].split()
            except OSError:  # it is gone
                continue
            if words[1] == me:
                found.append(int(entry))
    return found


def _end_as(ended: int) -> None:
    """Tell the broker what it would have been told without us between."""
    if ended < 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -ended)
    sys.exit(abs(ended))


if __name__ == "__main__":
    _end_as(main(int(sys.argv[1]), sys.argv[2:]))
