"""A process of clients that go on through every restart of the daemon and remember what they were told.

Its input has a line for each time that the daemon serves, with the number of clients that are to go on, and ends when
the work does. Its output: the public key
that its operators sign with, then, at the end, one line of JSON for each request. All clients of a folder share the
files of `Boards`, with the ids that were sent, and `agents/`, with the identities: so they meet at the same ones. Each
answer is a byte in the pipe `answered`: the first of the client's name.
"""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path

from tests.proof import told
from tests.proof.board import Boards
from tests.proof.callers import Caller
from tests.proof.consumers import Consumer
from tests.proof.lines import Gone, Lines
from tests.proof.operators import Operator
from tests.proof.signer import Signer


def main(words: list[str]) -> int:
    """seed, folder, port, instance; then each client: its role, its name and the agents that are its own."""
    seed, folder, port, instance, *names = words
    chance = random.Random(f"{seed} {names}")
    signer = Signer(instance, chance)
    print(signer.key.public_line, flush=True)
    clients = [_client(name, seed, Path(folder), int(port), signer) for name in names]
    answered = os.open(Path(folder) / "answered", os.O_WRONLY | os.O_NONBLOCK)
    with ThreadPoolExecutor(len(clients)) as pool:
        for line in sys.stdin:
            list(pool.map(_live, chance.sample(clients, int(line)), repeat(answered)))
    for client in clients:
        for said in client.lines.told:
            print(told.line(said))
    return 0


def _client(name: str, seed: str, folder: Path, port: int, signer: Signer) -> Operator | Consumer | Caller:
    role, who, *own = name.split("/")
    chance, lines, boards = random.Random(f"{seed} {who}"), Lines(who, folder, port), Boards(folder)
    match role:
        case "operator":
            return Operator(lines, boards, chance, signer, own)
        case "caller":
            return Caller(lines, boards, chance, own)
        case _:
            return Consumer(lines, boards, chance)


def _live(client: Operator | Consumer | Caller, answered: int) -> None:
    """Until nobody listens any more."""
    with suppress(Gone):
        while not client.lines.stopping:
            client.step()
            with suppress(BlockingIOError):
                os.write(answered, client.lines.who[:1].encode())
