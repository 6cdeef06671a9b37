"""Notices to the service manager, through a real datagram socket."""

from __future__ import annotations

import asyncio
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.effects.notify import Notifier


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        listening.settimeout(10)
        yield listening


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A socket's path, relative: those of macOS hold a hundred characters."""
    monkeypatch.chdir(tmp_path)
    return "notify"


def test_ready_status_and_stopping_arrive(address: str) -> None:
    notifier = Notifier(address)
    with manager(address) as listening:
        notifier.ready("serving demo")
        assert listening.recv(1000) == b"READY=1\nSTATUS=serving demo"
        notifier.status("two\nlines=\r1")
        assert listening.recv(1000) == b"STATUS=two lines= 1"
        notifier.stopping()
        assert listening.recv(1000) == b"STOPPING=1"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract sockets are Linux's alone")
def test_an_abstract_socket_is_found_too() -> None:
    address = f"@{uuid.uuid4()}"
    with manager(address) as listening:
        Notifier(address).stopping()
        assert listening.recv(1000) == b"STOPPING=1"


async def test_the_watchdog_hears_a_beat_twice_in_each_period(address: str) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    with manager(address) as listening:
        with pytest.raises(asyncio.CancelledError):
            await Notifier(address, watchdog_s=30).beat(sleep)
        assert [listening.recv(1000) for _ in slept] == [b"WATCHDOG=1"] * 3
    assert slept == [15, 15, 15]


@pytest.mark.parametrize(
    ("environment", "beats"),
    [
        ({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "77"}, True),
        ({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "1000"}, True),
        ({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "78"}, False),
        ({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "0"}, False),
        ({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "soon"}, False),
        ({"NOTIFY_SOCKET": "notify"}, False),
        ({"WATCHDOG_USEC": "1000"}, False),
        ({}, False),
    ],
)
async def test_only_a_watchdog_that_waits_for_this_process_is_fed(
    address: str, environment: dict[str, str], beats: bool
) -> None:
    with manager(address) as listening:
        beating = asyncio.create_task(Notifier.take(environment, 77).beat())
        if beats:
            listening.setblocking(False)
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(listening, 1000) == b"WATCHDOG=1"
            beating.cancel()
        else:
            await beating
            listening.setblocking(False)
            with pytest.raises(BlockingIOError):
                listening.recv(1000)


def test_what_the_broker_starts_can_not_speak_in_its_name() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "77", "PATH": "/bin"}
    Notifier.take(environment, 77)
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("address", ["", "/nonexistent/notify", "x" * 300])
def test_a_manager_that_is_not_there_is_no_error(address: str) -> None:
    notifier = Notifier(address)
    notifier.ready("serving")
    notifier.stopping()
