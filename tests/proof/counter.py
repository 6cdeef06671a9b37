"""Both doors before one life, as the handlers that they have: what callers ask comes in as it does from the sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from broker.doors.agent import AgentDoor, Rates
from broker.doors.http import Request, Response, Route
from broker.doors.operator import Desk, DirectiveRoutes
from broker.rules.rates import TokenBucket
from broker.wire.names import NAMESPACE_DIRECTIVE, Instant
from broker.wire.verified import Standing, VerifiedBytes
from tests.proof.cast import BOTH, TERMS, A, caller, order, request, signed_statement
from tests.proof.life import Life
from tests.proof.scenario import Story

PLENTY = TokenBucket(1000, 1000)


@dataclass
class Counter:
    """A life with both doors, and the story that says what time it is."""

    life: Life
    story: Story

    def clock(self) -> Instant:
        return self.story.at

    @property
    def agent(self) -> AgentDoor:
        return AgentDoor(
            turn=self.life.turn,
            clock=self.clock,
            steady=self.clock,
            authority=cast(Any, SimpleNamespace(read_request=lambda pem: request(A, pem))),
            standing=standing,
            repeat_s=60,
            inbox=cast(Any, None),
            rates=Rates(PLENTY, PLENTY, PLENTY, PLENTY, PLENTY),
        )

    @property
    def desk(self) -> Desk:
        return Desk(self.life.turn, self.clock, _verify)

    def routes(self) -> list[Route]:
        async def first_attempt(id: str, timeout_s: float, /) -> bool:
            await asyncio.sleep(0)
            return True

        operator = DirectiveRoutes(self.desk, TERMS, first_attempt, cast(Any, None))
        return [*self.agent.routes(), *operator.routes()]

    async def post(self, path: str, **body: Any) -> Response:
        """One request to the handler of this path, as the door makes it."""
        handler = {route.path: route.handler for route in self.routes()}[path]
        raw = json.dumps(body).encode()
        asked = SimpleNamespace(
            body=raw, connection={"caller": caller(A, 1)}, peer_uid=1000, client_certificate_der=b""
        )
        return await handler(cast(Request, asked))

    def made(self, kind: type) -> int:
        """How many records of a kind this life has written."""
        return sum(isinstance(record.fact, kind) for record in self.life.records)


def pair(name: str, raw: bytes) -> dict[str, str]:
    """A body: these bytes, and what stands for their signature."""
    signature = base64.b64encode(b"-----BEGIN SSH SIGNATURE-----").decode()
    return {name: base64.b64encode(raw).decode(), "signature": signature}


async def standing() -> Standing:
    """Every key of the story stands."""
    await asyncio.sleep(0)  # as ssh-keygen takes its time
    return BOTH


async def _verify(raw: bytes, signature: bytes, namespace: str, now: Instant, /) -> VerifiedBytes:
    await asyncio.sleep(0)
    signed = signed_statement("new", now)[0] if namespace == NAMESPACE_DIRECTIVE else order("list", now, "").verified
    return VerifiedBytes(raw, signature, namespace, signed.fingerprint, signed.signer_digest, signed.allowed_digest)
