"""Raw connections to a running instance: one that shows every byte, or a thousand that hold or hammer the door."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.rig import Agent, Rig

PATIENCE_S = 30.0
HOST = "127.0.0.1"
_OPENING = 32


def http(method: str, target: str, *headers: str, body: bytes = b"", length: int | None = None) -> bytes:
    """A request with exactly these header lines, and a length when there is a body or one is claimed."""
    size = len(body) if length is None else length
    lines = [f"{method} {target} HTTP/1.1", *headers, *([f"Content-Length: {size}"] if size else [])]
    return "\r\n".join([*lines, "", ""]).encode() + body


def agent_post(path: str, body: bytes, *, length: int | None = None) -> bytes:
    """A well-formed POST to the agent door."""
    return http("POST", path, f"Host: {HOST}", "Content-Type: application/json", body=body, length=length)


def agent_get(target: str) -> bytes:
    """A well-formed GET to the agent door."""
    return http("GET", target, f"Host: {HOST}")


def status(answer: bytes) -> int:
    """The status of an answer; 0 when there was none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def plain(status_line: str, body: bytes) -> bytes:
    """An answer with nothing in it that depends on time or cause."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status_line.encode(), len(body), body,
    )  # fmt: skip


class Line:
    """One connection. What goes out and what comes back are the bytes on the wire."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._file = connected.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *why: object) -> None:
        self._file.close()
        self.socket.close()

    def ask(self, request: bytes) -> bytes:
        """Send this and read the whole answer; of a stream, its head. b"" when the door closed without a word."""
        with suppress(BrokenPipeError):  # it may answer a large one before it has heard all of it
            self.socket.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._file.readline()
            if not line:
                return head
            head += line
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if request.startswith(b"HEAD ") or not lengths:
            return head
        return head + self._file.read(int(lengths[0].split(b":")[1]))


def agent_line(rig: Rig, context: ssl.SSLContext) -> Line:
    """A connection to the agent door. Raises OSError when the handshake is refused."""
    plain = socket.create_connection((HOST, rig.port), timeout=PATIENCE_S)
    try:
        return Line(context.wrap_socket(plain, server_hostname=HOST))
    except BaseException:
        plain.close()
        raise


def answered(rig: Rig, context: ssl.SSLContext, request: bytes) -> bytes:
    """The answer; b"" where the handshake is refused, which in TLS 1.3 a client learns when it reads."""
    try:
        with agent_line(rig, context) as line:
            return line.ask(request)
    except OSError:
        return b""


def operator_line(rig: Rig) -> Line:
    """A connection to the operator socket."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENCE_S)
    connected.connect(str(rig.socket))
    return Line(connected)


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    half_made = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    try:
        half_made.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake alone")


def consumes(rig: Rig, agent: Agent, generation: int = 1) -> bool:
    """Does an honest agent, over a connection of its own, get its directive within a client's patience?"""
    id = rig.send(agent.cn, generation)
    with agent.client() as client:
        return client.post("/directive/consume", json={"id": id}, timeout=PATIENCE_S).status_code == 200


# hammering: threads that never wait


class Tally:
    """What the threads of a flood got, counted while they run."""

    def __init__(self) -> None:
        self.got: Counter[object] = Counter()
        self.failure: BaseException | None = None
        self.over = False
        self._changed = threading.Condition()

    def add(self, outcome: object) -> None:
        with self._changed:
            self.got[outcome] += 1
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()

    def more(self, count: int) -> None:
        """Wait until the flood has gone on by so many."""
        with self._changed:
            wanted = self.got.total() + count
            self._changed.wait_for(lambda: self.failure or self.got.total() >= wanted, PATIENCE_S)
            assert self.failure is None, self.failure
            assert self.got.total() >= wanted, "the flood has dried up"

    def until(self, outcome: object) -> None:
        """Wait until somebody got this."""
        with self._changed:
            self._changed.wait_for(lambda: self.failure or self.got[outcome], PATIENCE_S)
            assert self.failure is None, self.failure
            assert self.got[outcome], self.got


@contextmanager
def flood(work: Callable[[], Iterator[object]], threads: int = 4) -> Iterator[Tally]:
    """Threads that each run through `work` until the block ends. A failure of one is the test's."""
    tally = Tally()

    def run() -> None:
        outcomes = work()
        try:
            for outcome in outcomes:
                tally.add(outcome)
                if tally.over:
                    outcomes.close()  # type: ignore[attr-defined]  # a generator: it closes its connection here
        except BaseException as failure:
            tally.fail(failure)

    crowd = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for each in crowd:
        each.start()
    try:
        yield tally
    finally:
        tally.over = True
        for each in crowd:
            each.join(PATIENCE_S)
    assert tally.failure is None, tally.failure


# holding: connections that stop half-way


def allow_descriptors(count: int) -> None:
    """This process holds the other end of every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@dataclass(frozen=True)
class Stall:
    """A way to hold a connection: with TLS or without, these bytes, then silence."""

    name: str
    context: ssl.SSLContext | None
    sent: bytes = b""


@dataclass
class Crowd:
    """Stalled connections by the hundred. again: one that the door closes is opened anew until `leave`."""

    rig: Rig
    again: bool = False
    closed: Counter[str] = field(default_factory=Counter)
    _held: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_OPENING))
    _dropped: bool = False

    @property
    def held(self) -> int:
        """How many are open now."""
        return len(self._held)

    async def gather(self, stall: Stall, count: int) -> None:
        """Open so many of this kind; returns once each of them was held or closed."""
        arrived = [asyncio.Event() for _ in range(count)]
        self._tasks += [asyncio.create_task(self._hold(stall, each)) for each in arrived]
        async with asyncio.timeout(2 * PATIENCE_S):
            for each in arrived:
                await each.wait()

    async def leave(self) -> None:
        """Open no more, and wait until the door has closed every one."""
        self.again = False
        await asyncio.gather(*self._tasks)

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *why: object) -> None:
        await self.drop()

    async def drop(self) -> None:
        """Walk away."""
        self._dropped = True
        for writer in self._held:
            writer.transport.abort()
        await self.leave()

    async def _hold(self, stall: Stall, arrived: asyncio.Event) -> None:
        while not self._dropped:
            with suppress(OSError):  # the door may close it before it is made
                await self._once(stall, arrived)
            self.closed[stall.name] += 1
            if not self.again:
                break
        arrived.set()

    async def _once(self, stall: Stall, arrived: asyncio.Event) -> None:
        tls = {"ssl": stall.context, "server_hostname": HOST} if stall.context else {}
        async with self._turns:
            reader, writer = await asyncio.open_connection(HOST, self.rig.port, **tls)
        self._held.add(writer)
        try:
            writer.write(stall.sent)
            arrived.set()
            async with asyncio.timeout(2 * PATIENCE_S):
                await reader.read(0 if self._dropped else -1)
        except TimeoutError:
            raise AssertionError(f"{stall.name}: the door never closes it") from None
        finally:
            self._held.discard(writer)
            writer.transport.abort()
            with suppress(OSError):  # how it ended does not matter; a cancellation does
                await writer.wait_closed()
