"""The same server stack with nothing behind it: our listener, our routes, our TLS, and one constant answer.

Run as `python -m bench.constant STATE INSTANCE`: prints its port, serves until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from broker.doors.http import App, Request, Response, Route
from broker.doors.listen import Door
from broker.doors.socket import bind_tcp
from broker.trust.authority import CertificateAuthority
from broker.trust.tls import ServerCertificate, server_context
from broker.wire import names
from broker.wire.names import Instant

ANSWER = Response(200, b'{"id":"' + b"x" * 36 + b'","kind":"instruction","advisory_text":"' + b"x" * 60 + b'"}')


async def constant(request: Request) -> Response:
    return ANSWER


async def main(state: Path, instance: str) -> None:
    authority = CertificateAuthority.load(state / "ca", names.instance(instance))
    context = server_context(authority)
    ServerCertificate(authority, ["127.0.0.1"]).rotate(context, Instant(time.time_ns() // 1000))
    route = Route("POST", "/directive/consume", constant, "application/json", 4096)
    sockets = bind_tcp("127.0.0.1", 0)
    door = Door("constant", App([route], ["127.0.0.1"]), sockets, context)
    await door.start()
    print(door.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await door.close(1)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2]))
