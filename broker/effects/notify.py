"""Notices to the service manager: ready, status, stopping, and the beats that its watchdog waits for.

The protocol is sd_notify(3): one datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names. It is twenty
lines without a library: docs/decisions/0008-systemd.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Final

_OURS: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_READY_WAIT_S: Final = 5.0  # this one must not be lost to a full queue: the start would be taken for a hang


class Notifier:
    """The line to the service manager that started this process; without one, every notice goes nowhere.

    address: a path, or `@name` for an abstract socket, or empty; watchdog_s: after such a silence the manager ends us.
    """

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> Notifier:
        """What the environment says, taken out of it: what this process starts must not speak in its name."""
        address, period, owner = (environment.pop(name, "") for name in _OURS)
        meant = period.isascii() and period.isdigit() and int(period) > 0 and owner in ("", str(pid))
        return cls(address, watchdog_s=int(period) / 1_000_000 if meant else None)

    def ready(self, status: str) -> None:
        """Both doors answer. status: one line that `systemctl status` shows."""
        self._send(f"READY=1\n{_status(status)}", wait_s=_READY_WAIT_S)

    def status(self, status: str) -> None:
        """Replace the line that `systemctl status` shows."""
        self._send(_status(status))

    def stopping(self) -> None:
        """The shutdown has begun."""
        self._send("STOPPING=1")

    async def beat(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Beat at half the watchdog's period until cancelled, so that an event loop which hangs is noticed."""
        if not self._address or self._watchdog_s is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await sleep(self._watchdog_s / 2)

    def _send(self, notice: str, *, wait_s: float = 0) -> None:
        if not self._address:
            return
        # A manager that is away or slow must neither stop nor delay the broker: it gives the verdict, by its watchdog.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(wait_s)
            line.sendto(notice.encode(), self._address)


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())
