"""An agent's own place beside a running broker, a relay that loses answers, and a clock that is wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from broker.wire.statement import Instruction
from lever.agent import identity, keys
from tests.cli.conftest import Cli, Done
from tests.rig import Rig

HOUR = timedelta(hours=1)


@dataclass
class Beside:
    """One agent's folder, its bundles, and `lever agent` run there."""

    rig: Rig
    folder: Path
    cn: str
    bundles: int = 0

    @property
    def identity(self) -> Path:
        return self.folder / "identity"

    @property
    def file(self) -> Path:
        return self.identity / "identity.pem"

    def invite(self, cn: str | None = None, **changed: str) -> Path:
        """A new bundle of the operator's, with other values where they are given."""
        self.bundles += 1
        path = self.folder / f"bundle-{self.bundles}.json"
        done = Cli(self.rig.folder)("agent", "invite", cn or self.cn, "--out", path)
        assert done.status == 0, done.stderr
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        return path

    def run(self, *words: str | Path, env: dict[str, str] | None = None) -> Done:
        """`lever agent ...` with this identity, as a process."""
        return Cli(self.folder).forked("agent", *words, "--identity", self.identity, env=env)

    def quickly(self, *words: str | Path) -> Done:
        """The same within this process, for many runs."""
        return Cli(self.folder)("agent", *words, "--identity", self.identity)

    def enrol(self, bundle: Path | None = None) -> Self:
        done = self.quickly("enrol", "--bundle", bundle or self.invite())
        assert done.status == 0, done.stderr
        return self

    def rewrite(self, begin: timedelta, life: timedelta = 24 * HOUR) -> None:
        """As if the certificate had been issued at another time: signed anew by the instance's authority."""
        was = identity.parse(self.file.read_bytes())
        authority = load_pem_private_key((self.rig.state / "ca" / "authority.pem").read_bytes(), None)
        assert isinstance(authority, ec.EllipticCurvePrivateKey)
        at = datetime.now(UTC) + begin
        builder = (
            x509.CertificateBuilder()
            .subject_name(was.leaf.subject)
            .issuer_name(was.leaf.issuer)
            .public_key(was.leaf.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(at)
            .not_valid_after(at + life)
        )
        for extension in was.leaf.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        leaf = keys.certificates_pem([builder.sign(authority, hashes.SHA256())])
        raw = self.file.read_bytes()
        self.file.write_bytes(raw.replace(keys.certificates_pem([was.leaf]), leaf))

    def consumes(self) -> bool:
        """Does the identity work: does an instruction reach it?"""
        generation = identity.parse(self.file.read_bytes()).holder.generation or 1
        id = self.rig.send(self.cn, generation, action=Instruction("Go on."))
        done = self.quickly("consume", id)
        return done.status == 0 and "Go on." in done.stdout

    def recorded(self, kind: str) -> list[dict[str, object]]:
        """The journal's records of this kind about this agent."""
        lines = Cli(self.rig.folder)("journal", "show", "--kind", kind, "--json").stdout.splitlines()
        return [record for record in map(json.loads, lines) if record.get("cn") == self.cn]


def told(done: Done, status: int, *words: str) -> str:
    """Exactly one error, with these words and a hint; the hint."""
    assert done.status == status, done
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "hint:  "], done.stderr
    assert all(word in lines[0] for word in words), lines[0]
    return lines[1].removeprefix("hint:  ")


@dataclass
class Cutter:
    """A relay in front of the agent door. The next `cuts` answers are lost: the broker sent them, nobody gets them."""

    port: int
    cuts: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        self._listening.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.port)) as broker:
            asked = threading.Event()
            self._start(self._pass_requests, client, broker, asked)
            with suppress(OSError):
                while data := broker.recv(65536):
                    # TLS 1.3 without tickets: after the client's first encrypted record the broker sends answers only.
                    if self.cuts and asked.is_set():
                        self.cuts -= 1
                        break
                    client.sendall(data)
            for line in (client, broker):
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _pass_requests(self, client: socket.socket, broker: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            sent = b""
            while data := client.recv(65536):
                sent += data
                if _has_encrypted(sent):
                    asked.set()
                broker.sendall(data)
            broker.shutdown(socket.SHUT_WR)


def _has_encrypted(sent: bytes) -> bool:
    """Is there a record of application data among these TLS records?"""
    at = 0
    while at + 5 <= len(sent):
        if sent[at] == 23:
            return True
        at += 5 + int.from_bytes(sent[at + 3 : at + 5])
    return False


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) { const char *s = getenv("CLOCK_OFFSET_S"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, id, at);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
  return failed;
}
time_t time(time_t *to) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to) *to = at.tv_sec;
  return at.tv_sec;
}
int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  to->tv_sec = at.tv_sec; to->tv_usec = at.tv_nsec / 1000;
  return 0;
}
"""
