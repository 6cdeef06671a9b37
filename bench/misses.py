"""Can a miss's cause be told by its time? Latencies of each cause, in one shuffled run, compared in pairs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import ssl
import time
import uuid
from bisect import bisect_right
from itertools import combinations
from pathlib import Path

from bench.instance import Sealer, told, writing
from broker.errors import Reason
from broker.wire.names import DirectiveId, Fingerprint
from broker.wire.records import DirectiveInvalidated, DirectiveRevoked, DirectivesExpired, Draft, Fact
from tests.rig import MISS, Agent, Rig, now

CALLS = int(os.environ.get("BENCH_MISSES", "10000"))
STORED = int(os.environ.get("BENCH_STORED", "100000"))
LIMITS = "limits: {consume_per_minute: 1000000, max_active_per_agent: 1000000}"
HEAD = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n"
EXPECTED = HEAD + MISS
DIFFERENT = 500
# By the connection they come over: who holds an older certificate knows it, and compares his own misses alone.
CURRENT = ("unknown", "malformed", "other agent's", "consumed", "revoked", "expired", "invalidated", "early")
OLDER = ("older", "older, unknown")
CAUSES = (*CURRENT, *OLDER)


class Line:
    """One kept-alive connection with an agent's certificate."""

    def __init__(self, agent: Agent, certificate: str) -> None:
        bare = socket.create_connection(("127.0.0.1", agent.rig.port))
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: ssl.SSLSocket = agent.context(certificate).wrap_socket(bare, server_hostname="127.0.0.1")

    def miss(self, id: str) -> float:
        """The seconds that a consume of this id takes; it must be the miss."""
        body = json.dumps({"id": id})
        head = "POST /directive/consume HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        begun = time.perf_counter()
        self._socket.sendall(request)
        answer = b""
        while len(answer) < len(EXPECTED):
            answer += self._socket.recv(4096)
        seconds = time.perf_counter() - begun
        assert answer == EXPECTED, answer
        return seconds


def misses(folder: Path) -> None:
    """Two samples of each cause: how far apart are samples of one cause, and how far those of two?"""
    print(f"\nmisses of a consume, {CALLS} a sample, {STORED} directives stored: distance of the distributions")
    rig = Rig.create(folder / "misses", limits=LIMITS).start()
    agent, renamed = rig.enrol("bench-0"), rig.enrol("renamed")
    older = renamed.certificate
    assert renamed.redeem(rig.invite("renamed")).status_code == 200
    rig.enrol("bystander")
    rig.stop()
    ids = asyncio.run(_fill(rig))
    rig.start()
    current, old = Line(agent, agent.certificate), Line(renamed, older)
    samples: dict[tuple[str, int], list[float]] = {(cause, half): [] for cause in CAUSES for half in (0, 1)}
    plan = [key for key in samples for _ in range(CALLS)]
    random.Random(1).shuffle(plan)
    for cause, half in plan:
        line = old if cause in OLDER else current
        samples[cause, half].append(line.miss(random.choice(ids[cause])))
    rig.close()
    _show(samples)


def _show(samples: dict[tuple[str, int], list[float]]) -> None:
    ordered = {key: sorted(values) for key, values in samples.items()}
    same = {cause: distance(ordered[cause, 0], ordered[cause, 1]) for cause in CAUSES}
    pairs = [pair for group in (CURRENT, OLDER) for pair in combinations(group, 2)]
    different = {(a, b): distance(ordered[a, 0], ordered[b, 1]) for a, b in pairs}
    for cause in CAUSES:
        shown = {**different, (cause, cause): same[cause]}
        row = " ".join(f"{shown[cause, b]:6.4f}" if (cause, b) in shown else " " * 6 for b in CAUSES)
        p50 = ordered[cause, 0][CALLS // 2] * 1e3
        print(f"  {cause:<14} p50 {p50:.3f} ms  {row}")
    furthest, noise = max(different.values()), max(same.values())
    verdict = "met" if furthest <= 1.5 * noise else "MISSED"
    print(f"  furthest pair {furthest:.4f}, two samples of one cause up to {noise:.4f}; aim <= 1.5 times: {verdict}")


def distance(one: list[float], other: list[float]) -> float:
    """Kolmogorov and Smirnov's: the widest gap between two empirical distributions, of sorted samples."""
    return max(abs(bisect_right(one, at) / len(one) - bisect_right(other, at) / len(other)) for at in (*one, *other))


async def _fill(rig: Rig) -> dict[str, list[str]]:
    """Directives in each state, and the rest of STORED active ones of another agent; ids by the cause of a miss."""
    seal = Sealer(rig)
    unknown = [str(uuid.uuid4()) for _ in range(DIFFERENT)]
    ids = {"unknown": unknown, "older, unknown": unknown, "malformed": [f"{id[:-1]}!" for id in unknown]}
    async with writing(rig) as writer:
        other = [seal.admitted("bystander") for _ in range(STORED - 6 * DIFFERENT)]
        for start in range(0, len(other), 1000):
            writer.append(now(), [*other[start : start + 1000], *map(told, other[start : start + 1000])])
            await writer.durable()
        ids["other agent's"] = _ids(other[:DIFFERENT])
        for cause in (*CURRENT[3:], "older"):
            cn, generation = ("renamed", 2) if cause == "older" else ("bench-0", 1)
            opens = 3600 if cause == "early" else 0
            drafts = [seal.admitted(cn, generation=generation, opens_in_s=opens) for _ in range(DIFFERENT)]
            ids[cause] = _ids(drafts)
            writer.append(now(), [*drafts, *(_end(seal, cause, draft) for draft in drafts)])
        await writer.durable()
    return ids


def _ids(drafts: list[Draft]) -> list[str]:
    return [draft.fact.id for draft in drafts]  # type: ignore[union-attr]


def _end(seal: Sealer, cause: str, draft: Draft) -> Draft:
    """What has become of this directive, by the cause that its consume shall miss for."""
    id: DirectiveId = draft.fact.id  # type: ignore[union-attr]
    facts: dict[str, Fact] = {
        "revoked": DirectiveRevoked(id, Fingerprint("SHA256:bench")),
        "expired": DirectivesExpired((id,)),
        "invalidated": DirectiveInvalidated(id, Reason.KEY_NOT_STANDING),
    }
    if cause == "consumed":
        return seal.consumed(draft)
    return Draft(facts[cause]) if cause in facts else told(draft)
